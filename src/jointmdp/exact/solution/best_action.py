"""Which action is best, and how often: the answer."""

import math
from dataclasses import dataclass
from typing import Any

from jointmdp.ground.answers import ResultFace, aligned, words
from jointmdp.ground.intervals import Interval


@dataclass(frozen=True, eq=False, repr=False)
class BestAction(ResultFace):
    """How probably each action is the best of all, with the highest return or the lowest cost, with intervals."""

    state: str
    actions: tuple[str, ...]
    probability: list[float]
    """P(best); equal firsts share it equally, so that the sum is 1."""
    intervals: list[Interval]
    """Of `probability`."""
    alone: list[float]
    """P(better than all others)."""
    alone_intervals: list[Interval]
    tied: list[float]
    """P(best, together with at least one other)."""
    tied_intervals: list[Interval]
    tie: float
    """P(more than one action is best)."""
    tie_interval: Interval
    mean: list[float]
    """Mean returns: simulated, or exact where a solution was at hand."""
    is_certified: bool
    """Whether the intervals are guaranteed bounds; otherwise they hold together with probability `confidence`."""
    confidence: float
    """1 where certified."""
    method: str
    num_samples: int = 0
    """0 where nothing was simulated."""
    seed: int | None = None
    undecided: float = 0.0
    """Fraction of samples in which the end of the simulation leaves open who is first; the intervals allow for it."""
    minimise: bool = False
    """Whether returns are costs, and the lowest is the best."""

    def table(self) -> list[dict[str, Any]]:
        """One row per action."""
        names = ("action", "probability", "interval", "alone", "alone_interval", "tied", "tied_interval", "mean")
        columns = (self.actions, self.probability, self.intervals, self.alone, self.alone_intervals)
        rows = zip(*columns, self.tied, self.tied_intervals, self.mean, strict=True)
        return [dict(zip(names, row, strict=True)) | {"direction": self.direction} for row in rows]

    def __repr__(self) -> str:
        unit = 10_000 if self.is_certified else 1_000

        def both(value: float, found: Interval) -> str:
            # Ends are rounded outwards: the interval printed holds the one found.
            numbers = (value, math.floor(found.lower * unit) / unit, math.ceil(found.upper * unit) / unit)
            return "{} [{}, {}]".format(*(f"{x:.{len(str(unit)) - 1}f}" for x in numbers))

        rows = [["action", "best", "alone", "tied", "mean"]]
        for r in self.table():
            cells = [both(r["probability"], r["interval"]), both(r["alone"], r["alone_interval"])]
            rows.append([r["action"], *cells, both(r["tied"], r["tied_interval"]), f"{r['mean']:.6g}"])
        most, note = words(self.minimise).most, "(best = alone, or tied and the first place shared equally)"
        title = f"Which action {most} in {self.state}? {note}"
        tie = f"More than one is first with probability {both(self.tie, self.tie_interval)}."
        return "\n".join([title, *aligned(rows), tie, f"{self.method}."])
