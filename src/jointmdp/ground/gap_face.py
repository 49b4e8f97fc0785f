"""The face that every kind of gap shares, whatever method it comes from, and how many simulated pairs it takes."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from jointmdp.ground import checks
from jointmdp.ground.errors import ModelError
from jointmdp.ground.intervals import Interval


class ReplicationsNeeded(NamedTuple):
    """Pairs needed when branches share their noise as they do, and when they do not (NaN where that is not known)."""

    paired: float  # a whole number, or infinity
    unpaired: float

    @property
    def saved(self) -> float:
        """How many times fewer replications sharing needs."""
        return self.unpaired / self.paired


class PlannedGap:
    """How many simulated pairs it takes to know a gap, from its mean and variance; a part of every kind of gap."""

    if TYPE_CHECKING:  # fields of some kinds, properties of others

        @property
        def mean(self) -> float: ...
        @property
        def variance(self) -> float: ...
        @property
        def independent_variance(self) -> float: ...

    def replications(self, half_width: float, confidence: float = 0.95) -> ReplicationsNeeded:
        """Pairs for a confidence interval of the mean gap of this half width (normal approximation)."""
        z = NormalDist().inv_cdf((1 + checks.as_fraction("confidence", confidence)) / 2)
        return self._counts(z / checks.as_positive("half_width", half_width))

    def replications_to_select(self, probability: float = 0.95) -> ReplicationsNeeded:
        """Pairs for the better of the two to have the higher sample mean with this probability.

        Normal approximation, for the mean and the variance that are known of the gap; infinite for a mean of 0.
        """
        probability, mean = checks.as_fraction("probability", probability), self._planned_mean
        if probability <= 0.5:
            raise ModelError(f"probability is {probability:g}; tossing a coin selects correctly with 0.5")
        if mean == 0:
            return ReplicationsNeeded(math.inf, math.inf)
        return self._counts(NormalDist().inv_cdf(probability) / mean)

    @property
    def _planned_mean(self) -> float:
        """The mean, or 0 where it cannot be told from it."""
        return self.mean

    def _counts(self, per_std: float) -> ReplicationsNeeded:
        roots = (per_std * math.sqrt(variance) for variance in (self.variance, self.independent_variance))
        counts = [root * root for root in roots]
        return ReplicationsNeeded(*(max(1, math.ceil(count)) if math.isfinite(count) else count for count in counts))


@runtime_checkable
class GapLike(Protocol):
    """How much more one alternative gives than another: ``G``, one random number.

    Intervals are certified bounds where the gap was computed and confidence intervals where it was sampled or learned;
    docs/gaps.md has a table. A kind that cannot answer raises `NotKnownError` and names one that can.
    """

    @property
    def mean(self) -> float:
        """E G."""

    @property
    def mean_interval(self) -> Interval:
        """Where E G lies."""

    @property
    def variance(self) -> float:
        """Var G."""

    @property
    def variance_interval(self) -> Interval:
        """Where Var G lies."""

    @property
    def std(self) -> float:
        """Standard deviation of G."""

    def superiority(self) -> Interval:
        """P(G > 0)."""

    def tie(self) -> Interval:
        """P(G = 0)."""

    def inferiority(self) -> Interval:
        """P(G < 0)."""

    def quantile(self, q: float) -> Interval:
        """The q-quantile of G."""

    def cvar(self, alpha: float) -> Interval:
        """The mean of the lowest `alpha` fraction of G."""

    def replications(self, half_width: float, confidence: float = 0.95) -> ReplicationsNeeded:
        """Pairs for an interval of E G of this half width."""

    def replications_to_select(self, probability: float = 0.95) -> ReplicationsNeeded:
        """Pairs for the better of the two to have the higher sample mean with this probability."""
