"""Numbers as a page holds them: few digits, few points, and on the safe side where they bound something."""

from typing import Any

import numpy as np

from jointmdp.arrays import Floats
from jointmdp.intervals import Interval

DIGITS = 6  # of moments; curves have fewer
CURVE = 64  # points of a law, about


def short(value: float, digits: int = DIGITS) -> float:
    """A number to so many digits."""
    return float(f"{value:.{digits}g}")


def shorts(values: Floats, digits: int = DIGITS) -> list[float]:
    """Numbers one after the other, to so many digits."""
    return [short(value, digits) for value in np.asarray(values).ravel().tolist()]


def ends(interval: Interval) -> list[float]:
    """Both ends of an interval, rounded outwards but never over 0."""
    found = []
    for end, sign in ((interval.lower, -1), (interval.upper, 1)):
        unit = 10.0 ** (np.floor(np.log10(abs(end))) - DIGITS + 1) if end and np.isfinite(end) else 0.0
        moved = end + sign * unit
        found.append(short(moved if moved * end > 0 else end))
    return found


def thinned(x: Floats, low: Floats, high: Floats) -> dict[str, Any]:
    """The band of a law, ``low ≤ F ≤ high`` from each x to the next, at fewer points between the same or wider curves.

    Kept are points where the curves have moved by a step of 1/CURVE, and both ends.
    """
    levels = np.floor((low + high) / 2 * CURVE)
    moved = np.flatnonzero(np.diff(levels, prepend=-1.0))
    keep = np.unique(np.concatenate([[0], moved, [len(x) - 1]]))
    last = np.append(keep[1:], len(x)) - 1  # the highest up to the next point that is kept
    return {"x": shorts(x[keep], 5), "low": shorts(low[keep], 4), "high": shorts(high[last], 4)}
