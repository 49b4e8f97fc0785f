"""Wrappers of Gymnasium travel with the state: their noise, their counts, their limits of time."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import Env, wrappers
from gymnasium_worlds import Shop, actions_of, by_hand, by_simulator

from jointmdp.simulation.simulators.gusty_cartpole import Gusts
from jointmdp.simulation.simulators.gymnasium_simulator import GymnasiumSimulator
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.simulator import Outcome


class Wind(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper with state and noise of its own."""

    def __init__(self, env: Env[Any, Any]) -> None:
        super().__init__(env)
        self.rng = np.random.default_rng()
        self.gusts: list[float] = []

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, *rest = super().step(action)
        self.gusts.append(self.rng.normal())
        return observation, float(reward) + sum(self.gusts), *rest  # type: ignore[return-value]


@pytest.mark.parametrize("name", ["CartPole-v1", "FrozenLake-v1"])
def test_state_and_noise_of_wrappers_travel(name: str) -> None:
    simulator = GymnasiumSimulator(Wind(gymnasium.make(name)))
    assert simulator.streams == ("np_random", "rng")
    state = simulator.reset()
    total = 0.0
    for t in range(5):
        noise = Noise("step", t)
        simulator.query(state, [0, 1], Noise("elsewhere"))
        (outcome,) = simulator.query(state, [t % 2], noise)
        total += noise.fresh()["rng"].normal()
        bare = 1.0 if name == "CartPole-v1" else 0.0
        assert outcome.reward == pytest.approx(bare + total, rel=1e-12), "rounding of a sum of five numbers"
        state = outcome.state
        if simulator.is_over(state):
            break
    assert t > 1


WRAPPED = {
    "stacked frames": lambda: wrappers.FrameStackObservation(gymnasium.make("CartPole-v1"), 3),
    "time in the observation": lambda: wrappers.TimeAwareObservation(gymnasium.make("Pendulum-v1")),
    "sticky actions": lambda: wrappers.StickyAction(gymnasium.make("FrozenLake-v1"), 0.3),
    "normalised observations": lambda: wrappers.NormalizeObservation(gymnasium.make("MountainCar-v0")),
    "scaled reward": lambda: wrappers.TransformReward(gymnasium.make("CartPole-v1"), lambda r: 2 * r),
    "statistics": lambda: wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1")),
    "gusts": lambda: Gusts(gymnasium.make("CartPole-v1"), 0.5, 1.0),
}


@pytest.mark.parametrize("kind", WRAPPED)
def test_wrapped_environments_come_back_bit_for_bit(kind: str) -> None:
    simulator = GymnasiumSimulator(WRAPPED[kind]())
    actions = actions_of(simulator, 10)
    assert by_simulator(simulator, 2, actions) == by_hand(WRAPPED[kind](), 2, actions)


def test_wrappers_that_only_look_on_are_left_out() -> None:
    env = wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1"))
    simulator = GymnasiumSimulator(env)
    kinds = [type(level).__name__ for level in (simulator.env, simulator.env.env)]  # type: ignore[attr-defined]
    assert kinds == ["TimeLimit", "CartPoleEnv"]
    assert isinstance(env.env, wrappers.TimeLimit), "the user's own stack of wrappers is as it was"


def test_rendering_is_never_triggered() -> None:
    class Shown(Shop):
        metadata = {"render_modes": ["human"], "render_fps": 1}  # noqa: RUF012

        def step(self, action: Any) -> Any:
            assert self.render_mode is None
            return super().step(action)

    env = Shown()
    env.render_mode = "human"
    simulator = GymnasiumSimulator(env)
    assert simulator.state_kind == "copy"
    simulator.query(simulator.reset(), [0], Noise("n"))


class Knowing(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Knows another level by a name of its own."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.core, self.below = env.unwrapped, env

    def step(self, action: Any) -> Any:
        observation, _, *rest = self.env.step(action)
        return observation, 100.0 * self.below._elapsed_steps + float(getattr(self.core, "s", 0)), *rest


@pytest.mark.parametrize(("name", "kind"), [("FrozenLake-v1", "table"), ("CartPole-v1", "copy")])
def test_wrappers_that_know_another_level_go_on_knowing_it(name: str, kind: str) -> None:
    env = Knowing(gymnasium.make(name))
    env.reset(seed=0)
    simulator = GymnasiumSimulator(env)
    assert simulator.state_kind == kind
    state = simulator.reset()
    for count in (1, 2, 3):
        (found,) = simulator.query(state, [1], Noise(count))
        where = simulator.observe(found.state) if kind == "table" else 0
        assert found.reward == 100.0 * count + where
        state = found.state


# -- the end of an episode ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["copy", "replay"])
def test_a_time_limit_ends_the_episode_unless_it_is_taken_away(state: Any) -> None:
    for limit, expected in ((True, True), (False, False)):
        env = gymnasium.make("Pendulum-v1", max_episode_steps=5)
        simulator = GymnasiumSimulator(env, time_limit=limit, state=state)
        assert not simulator.is_over(simulator.walk("uniform", 4))
        last = simulator.walk("uniform", 5)
        assert simulator.is_over(last) is expected
        rewards = [outcome.reward for outcome in simulator.query(last, actions_of(simulator, 2), Noise("n"))]
        assert (rewards == [0.0, 0.0]) is expected


def test_the_count_of_a_time_limit_is_part_of_the_state() -> None:
    simulator = GymnasiumSimulator("FrozenLake-v1", settings={"is_slippery": False})
    early = simulator.at(0)
    (late,) = simulator.query(early, ["left"], Noise("n"))  # into the wall
    assert simulator.observe(late.state) == simulator.observe(early) == 0
    assert simulator.identity(late.state) != simulator.identity(early)
    endless = GymnasiumSimulator("FrozenLake-v1", settings={"is_slippery": False}, time_limit=False)
    (late,) = endless.query(endless.at(0), [0], Noise("n"))
    assert endless.identity(late.state) == endless.identity(endless.at(0))


def test_termination_absorbs() -> None:
    simulator = GymnasiumSimulator("Blackjack-v1")
    (stuck,) = simulator.query(simulator.reset(), [0], Noise("n"))
    assert simulator.is_over(stuck.state)
    assert simulator.query(stuck.state, [0, 1], Noise("n")) == [Outcome(0.0, stuck.state)] * 2
