"""A traffic light as a Gymnasium environment of your own: would switching now have been better?

`compare` asks both actions in one state under the same arrivals. Look at the gap: with the same cars its spread is much
smaller than with other cars for each action. `audit` first finds out whether the cars are really the same.
"""

from typing import Any

import gymnasium
import numpy as np

import jointmdp as jm

Step = tuple[np.ndarray, float, bool, bool, dict[str, Any]]


class TrafficLight(gymnasium.Env[np.ndarray, int]):
    """Two roads, one light. Green lets two cars pass a step; while the light changes nobody passes."""

    action_names = ("keep", "switch")
    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Box(0.0, 20.0, (3,), np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.waiting, self.green, self.time = [4, 4], 0, 0
        return self._observation(), {}

    def step(self, action: int) -> Step:
        arrivals = self.np_random.poisson((0.9, 0.5))  # before the action is looked at: the same for both
        if action == 0:
            self.waiting[self.green] = max(0, self.waiting[self.green] - 2)
        self.green = (self.green + action) % 2
        self.waiting = [min(20, cars + int(new)) for cars, new in zip(self.waiting, arrivals, strict=True)]
        self.time += 1
        return self._observation(), -float(sum(self.waiting)), self.time == 60, False, {}

    def _observation(self) -> np.ndarray:
        return np.array([*self.waiting, self.green], dtype=float)


def longest_queue(observation: np.ndarray) -> int:
    """Switch where the other road has at least three cars more."""
    return int(observation[1 - int(observation[2])] >= observation[int(observation[2])] + 3)


def main() -> None:
    light = jm.GymnasiumSimulator(TrafficLight(), discount=0.95)
    print(jm.audit(light, policy=longest_queue, seconds=10).summary)
    state = light.walk(longest_queue, steps=5, seed=2)
    print("waiting on road 0, on road 1, road that has green:", light.observe(state))
    gap = (found := jm.compare(light, longest_queue, state, max_replications=1_000)).gap("switch", "keep")
    print(f"a reward is minus the cars; switch instead of keep gives {gap.mean:.1f}, in {gap.mean_interval:.1f}")
    print(f"± {gap.std:.1f} with the same cars, ± {gap.std_unpaired:.1f} with other cars for each action")
    often = f"{gap.superiority().estimate:.0%} of {found.num_replications} replications"
    print(f"switching is better in {often}: {found.status.value}")


if __name__ == "__main__":
    main()
