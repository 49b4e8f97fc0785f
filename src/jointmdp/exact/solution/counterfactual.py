"""The best guess of one return from another that was seen: what means and covariances alone say.

The best linear prediction of ``Z(s,b)`` from ``Z(s,a) = z`` is ``μ_b + β (z − μ_a)`` with ``β = C_ab / C_aa``. Its
error has mean 0, variance ``C_bb − C_ab²/C_aa``, and is uncorrelated with what was seen; nothing else follows from
moments of order 2. So an interval around it that holds for every law with these moments is Chebyshev's, and a law with
three atoms attains it. What the return of the seen branch was made of says more: see `hindsight`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from jointmdp.ground import checks
from jointmdp.ground.answers import ResultFace
from jointmdp.ground.arrays import UNIT, Floats
from jointmdp.ground.errors import ModelError
from jointmdp.ground.intervals import Interval
from jointmdp.model.joint_mdp import JointMDP

ROUNDED = 1e-6  # observed returns are often rounded


@dataclass(frozen=True)
class Counterfactual(ResultFace):
    """What is expected of `other` when `action` was seen to give `observed_return`."""

    state: str
    action: str
    other: str
    observed_return: float
    mean: float
    """The best linear prediction of the return of `other`."""
    std: float
    """Standard deviation of its error."""
    slope: float
    """How much more is expected for one more that was seen."""
    mean_error: float
    """Guaranteed bound on the numerical error of `mean`."""
    std_error: float
    """Guaranteed bound on the numerical error of `std`."""

    def __repr__(self) -> str:
        return (
            f"Counterfactual({self.other} in {self.state}, given that {self.action} gave {self.observed_return:.6g}: "
            f"{self.mean:.6g} ± {self.std:.6g})"
        )

    def interval(self, confidence: float = 0.95) -> Interval:
        """Holds the return of `other` with at least this probability, for every law with these moments.

        The probability is that of both returns together. Of one value seen, which may be as rare as it likes, moments
        say nothing by themselves.
        """
        alpha = 1 - checks.as_fraction("confidence", confidence)
        half = (self.std + self.std_error) / math.sqrt(alpha) + self.mean_error
        return Interval(self.mean - half, self.mean + half)

    def table(self) -> list[dict[str, Any]]:
        """One row."""
        names = ("state", "action", "other", "observed_return", "mean", "std", "slope")
        return [{name: getattr(self, name) for name in names} | {"interval": self.interval()}]


class ObservedReturn(NamedTuple):
    """State, action and other by name, and what the action was seen to give."""

    state: str
    action: str
    other: str
    value: float


def observation(model: JointMDP, gap: tuple[int, int, int], value: float, horizon: int | None) -> ObservedReturn:
    """Checked: some sequence of rewards must come to the observed return."""
    value = checks.as_finite("observed_return", value)
    s, a, b = gap
    found = ObservedReturn(model.state_label(s), model.action_label(a), model.action_label(b), value)
    g, steps = model.discount, math.inf if horizon is None else float(horizon)
    most = model.reward_bound * (steps if g == 1 else (1 - g**steps) / (1 - g)) if model.reward_bound > 0 else 0.0
    if abs(value) > (1 + ROUNDED) * most:
        raise ModelError(
            f"{found.action} in {found.state} was observed to give {value:.6g}, but no return of the model is larger "
            f"than {most:.6g}"
        )
    return found


def predicted(
    observed: ObservedReturn, means: Floats, covariance: Floats, mean_errors: Floats, shares: Floats
) -> Counterfactual:
    """From means ``[2]`` and the covariance ``[2, 2]`` of both returns, which are off by at most their errors."""
    z = observed.value
    (mean, other_mean), (a, c), b = means.tolist(), covariance[0].tolist(), float(covariance[1, 1])
    off = [float(2 * share) + 8 * UNIT * x for share, x in zip(shares.tolist(), (a, b), strict=True)]
    off_c = float(shares.sum()) + 8 * UNIT * math.sqrt(max(a * b, 0.0))
    if a <= off[0]:
        if abs(z - mean) > float(mean_errors[0]) + math.sqrt(a + off[0]) + 1e-6 * max(1.0, abs(mean)):
            raise ModelError(
                f"{observed.action} in {observed.state} always gives {mean:.6g}, and never the observed return of "
                f"{z:.6g}"
            )
        return Counterfactual(*observed, other_mean, math.sqrt(b), 0.0, float(mean_errors[1]), math.sqrt(off[1]))
    slope = c / a
    off_slope = (off_c + abs(slope) * off[0]) / (a - off[0])
    guess = other_mean + slope * (z - mean)
    size = abs(other_mean) + abs(slope) * (abs(z) + abs(mean))
    error = float(mean_errors[1]) + off_slope * abs(z - mean) + (abs(slope) + off_slope) * float(mean_errors[0])
    left = max(0.0, b - slope * c)
    off_left = off[1] + (abs(c) + off_c) * off_slope + abs(slope) * off_c + 8 * UNIT * b
    std = math.sqrt(left)
    off_std = math.sqrt(off_left) if left <= off_left else off_left / std
    return Counterfactual(*observed, guess, std, slope, error + 8 * UNIT * size, off_std)
