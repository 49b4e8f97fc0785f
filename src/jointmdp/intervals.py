"""One interval type for every statement of the form "between here and there"."""

from numbers import Real
from typing import NamedTuple


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

    def __contains__(self, value: object) -> bool:
        return isinstance(value, Real) and self.lower <= float(value) <= self.upper

    def __str__(self) -> str:
        return f"[{self.lower:.6g}, {self.upper:.6g}]"
