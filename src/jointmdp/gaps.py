"""The gap between two actions: what one would have brought more than the other, under the same luck."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

from jointmdp import bounds, checks
from jointmdp.errors import ModelError
from jointmdp.intervals import Interval

NEGLIGIBLE = 1e-6  # a gap's variance certified below this fraction of the independent one counts as gone


class Replications(NamedTuple):
    """How many simulated pairs are needed when branches share their luck as the model says, and when they do not."""

    paired: float  # a whole number, or infinity
    unpaired: float

    @property
    def saved(self) -> float:
        """How many times fewer replications sharing needs."""
        return self.unpaired / self.paired


@dataclass(frozen=True)
class Gap:
    """``G = Z(state, action) − Z(state, other)``: positive when `action` brings more."""

    state: str
    action: str
    other: str
    mean: float
    variance: float
    independent_variance: float
    """Variance if the two returns were independent: the sum of their variances."""
    mean_error: float
    """Guaranteed bound on the error of `mean`."""
    variance_error: float
    """Guaranteed bound on the error of `variance`."""

    def __repr__(self) -> str:
        return (
            f"Gap({self.action} − {self.other} in {self.state}: {self.mean:.6g} ± {self.std:.6g}, "
            f"independent ± {math.sqrt(self.independent_variance):.6g})"
        )

    @property
    def std(self) -> float:
        """Standard deviation."""
        return math.sqrt(self.variance)

    @property
    def variance_reduction(self) -> float:
        """How many times smaller shared luck makes the variance; infinite when it certainly removes all of it."""
        if self.independent_variance <= self.variance_error or self.variance == self.independent_variance == 0:
            return math.nan
        if self.variance <= self.variance_error <= NEGLIGIBLE * self.independent_variance:
            return math.inf
        return self.independent_variance / self.variance if self.variance > 0 else math.nan

    def moment(self, k: int) -> float:
        """E[Gᵏ], for k up to the order evaluated."""
        k = checks.as_count("k", k, least=0)
        if k > 2:
            raise ModelError(f"moment {k} asked for, but the solution holds moments up to order 2")
        return (1.0, self.mean, self.variance + self.mean**2)[k]

    # -- guaranteed statements: the moments' certified errors are given away on the safe side ------------------

    @property
    def is_identical(self) -> bool:
        """Whether the gap is certainly zero: an action against itself."""
        return self.action == self.other

    @property
    def inferiority_bound(self) -> float:
        """Cantelli's bound on P(G ≤ 0); 1 when the mean is not certainly positive."""
        return bounds.cantelli(self.mean - self.mean_error, self.variance + self.variance_error)

    def superiority(self) -> Interval:
        """P(G > 0)."""
        if self.is_identical:
            return Interval(0.0, 0.0)
        variance = self.variance + self.variance_error
        return Interval(
            1 - bounds.cantelli(self.mean - self.mean_error, variance),
            bounds.cantelli(-self.mean - self.mean_error, variance),
        )

    def quantile(self, q: float) -> Interval:
        """The q-quantile of G."""
        return self._widened(bounds.quantile(self.mean, self.variance + self.variance_error, q))

    def cvar(self, alpha: float) -> Interval:
        """The mean of the lowest `alpha` fraction of G."""
        return self._widened(bounds.cvar(self.mean, self.variance + self.variance_error, alpha))

    def _widened(self, found: Interval) -> Interval:
        return Interval(found.lower - self.mean_error, found.upper + self.mean_error)

    # -- planning a simulation ---------------------------------------------------------------------------------

    def replications(self, half_width: float, confidence: float = 0.95) -> Replications:
        """Pairs needed for a confidence interval of the mean gap of this half width (normal approximation)."""
        half_width = checks.as_positive("half_width", half_width)
        z = NormalDist().inv_cdf((1 + checks.as_fraction("confidence", confidence)) / 2)
        return self._plan(z / half_width)

    def replications_to_select(self, probability: float = 0.95) -> Replications:
        """Pairs needed for the better action to have the higher sample mean with this probability.

        Normal approximation; infinite when the two means cannot be told apart at all.
        """
        probability = checks.as_fraction("probability", probability)
        if probability <= 0.5:
            raise ModelError(f"probability is {probability:g}; tossing a coin selects correctly with 0.5")
        if abs(self.mean) <= self.mean_error:
            return Replications(math.inf, math.inf)
        return self._plan(NormalDist().inv_cdf(probability) / self.mean)

    def _plan(self, per_std: float) -> Replications:
        roots = (per_std * math.sqrt(variance) for variance in (self.variance, self.independent_variance))
        counts = [root * root for root in roots]
        return Replications(*(max(1, math.ceil(count)) if math.isfinite(count) else count for count in counts))
