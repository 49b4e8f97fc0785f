"""The face that every kind of gap shares, whatever method it comes from."""

from typing import Protocol, runtime_checkable

from jointmdp.intervals import Interval


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

    def quantile(self, q: float) -> Interval:
        """The q-quantile of G."""

    def cvar(self, alpha: float) -> Interval:
        """The mean of the lowest `alpha` fraction of G."""
