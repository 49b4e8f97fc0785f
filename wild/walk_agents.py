"""A newcomer's walk: two environments that nobody here wrote, from where one stands to a checked gap.

An agent of Stable-Baselines3 crosses a room of MiniGrid in which balls move; a driver of highway-env comes to an
intersection. In both we stop at some step and ask which action would be better here, and how sure one can be. Both act
by probabilities: the draws are noise like all other, which the alternatives share.
"""

import sys
import time
from typing import Any

import gymnasium

import jointmdp as jm


def main() -> None:
    """Both environments, with the time that each part takes; the agent only where there is torch to train it."""
    intersection()
    try:
        import stable_baselines3  # noqa: F401
    except ImportError as error:
        print(f"Skipped: the agent on MiniGrid ({error}). A build of torch for CPUs will do.")
        return
    obstacles()


def obstacles() -> None:
    """An agent that has learned for some seconds."""
    import minigrid
    from minigrid.wrappers import FlatObsWrapper
    from stable_baselines3 import PPO

    gymnasium.register_envs(minigrid)

    def make() -> gymnasium.Env[Any, Any]:
        return FlatObsWrapper(gymnasium.make("MiniGrid-Dynamic-Obstacles-5x5-v0"))

    clock = Clock("MiniGrid with an agent of Stable-Baselines3")
    agent = PPO("MlpPolicy", make(), n_steps=256, seed=0, device="cpu").learn(2048)
    clock("trained")
    env = make()
    observation, _ = env.reset(seed=3)
    observation, *_ = env.step(int(agent.predict(observation, deterministic=True)[0]))

    def probabilities(seen: Any) -> Any:
        """Of the agent's actions; given itself instead, its most probable action is taken."""
        return agent.policy.get_distribution(agent.policy.obs_to_tensor(seen)[0]).distribution.probs[0].detach().numpy()

    checked_gap(env, observation, probabilities, clock, None, horizon=20, indifference=0.1)


def intersection() -> None:
    """A driver who keeps the speed, most of the time."""
    import highway_env

    gymnasium.register_envs(highway_env)
    clock = Clock("highway-env, a driver who mostly keeps the speed")
    env = gymnasium.make("intersection-v0")
    observation, _ = env.reset(seed=1)
    observation, *_ = env.step(1)
    checked_gap(
        env, observation, lambda seen: [0.2, 0.6, 0.2], clock, ["slower", "faster"], horizon=8, indifference=0.5
    )


def checked_gap(
    env: gymnasium.Env[Any, Any], observation: Any, policy: Any, clock: "Clock", actions: Any, **settings: Any
) -> None:
    """Audit the environment, then compare actions in the state that it is in now."""
    simulator = jm.GymnasiumSimulator(env)  # it works on copies; this one stays where it is
    clock(f"opened: {simulator!r}")
    report = jm.audit(simulator, policy=policy)
    clock(report.summary)
    if not report.is_ok:
        print(report)
        sys.exit(1)
    state = simulator.capture(env, observation)
    found = jm.compare(simulator, policy, state, actions, discount=0.95, max_replications=100, pilot=50, **settings)
    clock("compared")
    print(found)


class Clock:
    """Prints what was done and how long it took."""

    def __init__(self, title: str) -> None:
        print(f"\n{title}\n{'=' * len(title)}", flush=True)
        self.last = time.perf_counter()

    def __call__(self, what: str) -> None:
        now = time.perf_counter()
        print(f"[{now - self.last:6.1f} s] {what}", flush=True)
        self.last = now


if __name__ == "__main__":
    main()
