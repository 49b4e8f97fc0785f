"""One interval type for every statement of the form "between here and there, and most likely this"."""

from __future__ import annotations

import math
from numbers import Real
from typing import NamedTuple, Self

ROUNDING = 1e-9  # of their size: by so much guaranteed ends may cross from rounding


class _Ends(NamedTuple):
    lower: float
    upper: float


class Interval(_Ends):
    """A closed interval with an estimate in it; ``x in interval`` asks whether it holds `x`.

    It unpacks to its two ends. The estimate is what the samples say themselves, where there are samples: their mean,
    fraction, quantile or tail. Where there are bounds alone it is the midpoint, which is never off by more than half
    the width; NaN where an end is infinite. ``str(interval)`` shows the estimate before the ends where samples gave
    it, ``f"{interval:.2f}"`` the ends alone.
    """

    _estimate: float | None = None

    def __new__(cls, lower: float, upper: float, estimate: float | None = None) -> Self:
        """`estimate` None: the midpoint."""
        self = super().__new__(cls, lower, upper)
        self._estimate = estimate
        return self

    @property
    def estimate(self) -> float:
        """The number itself, as well as it is known: between the two ends."""
        if self._estimate is None:
            return self.middle if math.isfinite(self.middle) else math.nan
        return self._estimate

    @property
    def width(self) -> float:
        """Upper minus lower end."""
        return self.upper - self.lower

    @property
    def middle(self) -> float:
        """The midpoint, which samples that are skewed say nothing of: see `estimate`."""
        return (self.lower + self.upper) / 2

    def widened(self, by: float) -> Interval:
        """Farther at both ends."""
        return Interval(self.lower - by, self.upper + by, self._estimate)

    def of(self, estimate: float) -> Interval:
        """The same ends about this estimate; it is moved to the nearer end where it lies outside."""
        return Interval(self.lower, self.upper, min(max(estimate, self.lower), self.upper))

    def __neg__(self) -> Interval:
        """Of minus the number."""
        return Interval(-self.upper, -self.lower, None if self._estimate is None else -self._estimate)

    def __and__(self, other: Interval) -> Interval:
        """What both say, when both are guaranteed; of ends that cross by rounding alone the truth lies in between."""
        lower, upper = max(self.lower, other.lower), min(self.upper, other.upper)
        if lower > upper:
            if lower - upper > ROUNDING * max(abs(lower), abs(upper)):
                raise ArithmeticError(f"{self} and {other} are both guaranteed and do not meet; please report this")
            lower, upper = upper, lower
        given = [each._estimate for each in (self, other) if each._estimate is not None]
        return Interval(lower, upper).of(given[0]) if given else Interval(lower, upper)

    def __eq__(self, other: object) -> bool:
        """Of two intervals also by their estimates; a pair of numbers is compared with the ends."""
        if (are_same := tuple.__eq__(self, other)) is not True:
            return are_same
        return not isinstance(other, Interval) or self._estimate == other._estimate or self.estimate == other.estimate

    def __ne__(self, other: object) -> bool:
        are_same = self.__eq__(other)
        return are_same if are_same is NotImplemented else not are_same

    def __hash__(self) -> int:
        return hash((self.lower, self.upper))

    def __contains__(self, value: object) -> bool:
        return isinstance(value, Real) and self.lower <= float(value) <= self.upper

    def __format__(self, spec: str) -> str:
        return f"[{self.lower:{spec}}, {self.upper:{spec}}]" if spec else str(self)

    def __str__(self) -> str:
        return f"{self:.6g}" if self._estimate is None else f"{self._estimate:.6g} {self:.6g}"

    __repr__ = __str__
