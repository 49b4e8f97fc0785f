"""One interval type for every statement of the form "between here and there"."""

from __future__ import annotations

from numbers import Real
from typing import NamedTuple

CONTRADICTION = 1e-7  # guaranteed intervals may miss each other by this much, relatively, from rounding


class Interval(NamedTuple):
    """A closed interval; ``x in interval`` asks whether it holds `x`."""

    lower: float
    upper: float

    @property
    def width(self) -> float:
        """Upper minus lower end."""
        return self.upper - self.lower

    @property
    def middle(self) -> float:
        """The midpoint."""
        return (self.lower + self.upper) / 2

    def widened(self, by: float) -> Interval:
        """Farther at both ends."""
        return Interval(self.lower - by, self.upper + by)

    def __neg__(self) -> Interval:
        """Of minus the number."""
        return Interval(-self.upper, -self.lower)

    def __and__(self, other: Interval) -> Interval:
        """What both say, when both are guaranteed; ends that cross by rounding alone meet in the middle."""
        lower, upper = max(self.lower, other.lower), min(self.upper, other.upper)
        if lower > upper:
            if lower - upper > CONTRADICTION * max(1.0, abs(lower), abs(upper)):
                raise ArithmeticError(f"{self} and {other} are both guaranteed and do not meet; please report this")
            lower = upper = (lower + upper) / 2
        return Interval(lower, upper)

    def __contains__(self, value: object) -> bool:
        return isinstance(value, Real) and self.lower <= float(value) <= self.upper

    def __format__(self, spec: str) -> str:
        return f"[{self.lower:{spec}}, {self.upper:{spec}}]" if spec else str(self)

    def __str__(self) -> str:
        return f"[{self.lower:.6g}, {self.upper:.6g}]"
