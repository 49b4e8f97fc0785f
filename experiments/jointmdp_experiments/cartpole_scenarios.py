"""Features of CartPole: what an action would return in a few fixed scenarios of gusts.

Polynomials of position and speed fit the brink badly, over which the pole falls: by least squares on the true means
they explain 0.4 of the spread of gap means. Returns in scenarios know it. Covariances are mixed moments of such
returns, so one matrix for all pairs can hold them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jointmdp.simulation.simulators.gusty_cartpole import GAINS

# The cart and pole of CartPole-v1, as its documentation has them: masses, half the pole's length, push, seconds a step.
GRAVITY, CART, POLE, LENGTH, PUSH, STEP = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
TRACK, LEAN = 2.4, math.radians(12)  # where an episode ends
NUM_STEPS = 30


class ScenarioReturns:
    """1 and the returns in several sequences of gusts, the first of them calm; divided by 1/(1 − γ)."""

    def __init__(self, probability: float, size: float, discount: float, count: int = 8, seed: int = 5) -> None:
        rng = np.random.default_rng(seed)
        gusts = np.where(
            rng.random((count, NUM_STEPS)) < probability, size * rng.standard_normal((count, NUM_STEPS)), 0
        )
        self.gusts: list[list[float]] = [[0.0] * NUM_STEPS, *gusts.tolist()]
        self.discount = discount

    def __call__(self, observation: Any, action: int) -> list[float]:
        return [1.0, *((1 - self.discount) * self._return(observation, action, gusts) for gusts in self.gusts)]

    def _return(self, observation: Any, action: int, gusts: Sequence[float]) -> float:
        """Of an action and then the side to which the policy mostly pushes."""
        x, speed, angle, turn = (float(each) for each in observation)
        total, weight, is_right = 0.0, 1.0, action == 1
        whole = CART + POLE
        for gust in gusts:
            total, weight = total + weight, weight * self.discount
            speed += gust
            sine, cosine = math.sin(angle), math.cos(angle)
            force = ((PUSH if is_right else -PUSH) + POLE * LENGTH * turn * turn * sine) / whole
            turning = (GRAVITY * sine - cosine * force) / (LENGTH * (4 / 3 - POLE * cosine * cosine / whole))
            pushing = force - POLE * LENGTH * turning * cosine / whole
            x, speed, angle, turn = x + STEP * speed, speed + STEP * pushing, angle + STEP * turn, turn + STEP * turning
            if abs(x) > TRACK or abs(angle) > LEAN:
                break
            is_right = GAINS[0] * x + GAINS[1] * speed + GAINS[2] * angle + GAINS[3] * turn > 0
        return total
