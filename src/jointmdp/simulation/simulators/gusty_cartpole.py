"""CartPole in gusts of wind: "would the other action have been better here?" where no state comes twice."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from jointmdp.ground import checks
from jointmdp.ground.arrays import Floats
from jointmdp.ground.checks import Sharing
from jointmdp.simulation.simulators.gymnasium_simulator import GymnasiumSimulator

import gymnasium  # isort: skip  # after the module that says what to install when it is missing

# Push the cart to the side to which the pole falls: angle and its speed first, then move the cart back. The gains are
# those of a linear regulator for the cart-pole, rounded; balancing does not depend on their last digit.
GAINS = np.array([0.1, 0.3, 3.0, 1.0])  # position, speed, angle, angular speed


class Gusts(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Before each step a gust may push the cart, its change of speed drawn from the environment's ``np_random``."""

    def __init__(self, env: gymnasium.Env[Any, Any], probability: float, size: float) -> None:
        super().__init__(env)
        self.probability, self.size = probability, size

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        inner: Any = self.env.unwrapped
        # Two draws whatever comes of them, so that the later draws of a step never shift.
        comes, push = inner.np_random.random(), inner.np_random.standard_normal()
        if comes < self.probability:
            x, speed, angle, turn = inner.state
            inner.state = np.array([x, speed + self.size * push, angle, turn], dtype=np.float64)
        return super().step(action)


def gusty_cartpole(
    probability: float = 0.2,
    size: float = 0.5,
    *,
    max_steps: int = 200,
    discount: float = 1.0,
    sharing: Sharing = "time",
) -> tuple[GymnasiumSimulator, Callable[[Floats], Floats]]:
    """CartPole with a random push on the cart, with the actions "left" and "right", and a policy that balances it.

    Args:
        probability: how often a gust comes, each step.
        size: the standard deviation of the change of the cart's speed by a gust, in metres a second; the cart's own
            motor changes it by about 0.2 a step.
        max_steps: where the episode ends if the pole still stands.

    Rewards are 1 a step until the pole falls or the cart leaves the track.
    """
    env = Gusts(
        gymnasium.make("CartPole-v1", max_episode_steps=checks.as_count("max_steps", max_steps)),
        checks.as_probability("probability", probability),
        checks.as_amount("size", size),
    )
    found = GymnasiumSimulator(env, discount=discount, sharing=sharing, reward_bounds=(0.0, 1.0))
    found.name = "gusty CartPole"
    return found, balancing_policy


def balancing_policy(observation: Floats) -> Floats:
    """Probabilities of "left" and "right" that balance the pole: nearly certain unless it is close to upright."""
    tendency = float(GAINS @ np.asarray(observation, dtype=np.float64))
    right = 1 / (1 + math.exp(-max(-50.0, min(50.0, 20 * tendency))))
    return np.array([1 - right, right])
