"""What stop-loss bounds say of the law itself: masses at points, and bounds of its distribution function."""

import numpy as np

from jointmdp.arrays import UNIT, Floats, Ints
from jointmdp.law.node_grids import NodeLaws


def distribution_bounds(laws: NodeLaws) -> tuple[NodeLaws, NodeLaws]:
    """What the bounds say of G and of −G: masses, and upper bounds of the probability of being at most at each point.

    P(G > y) is at least the slope of any chord of Π from y to the right, P(G < y) one less that of one to the left.
    """
    which, place = laws.spread(np.arange(len(laws.size)))
    order = np.argsort(place)
    which, points, (upper, lower, _) = which[order], laws.points, laws.values
    above, below = np.zeros(len(points)), np.zeros(len(points))
    step = 1
    while step < int(laws.size.max()):
        i = np.flatnonzero(which[step:] == which[:-step])
        k = i + step
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            width = points[k] - points[i]
            right = np.nan_to_num((lower[i] - upper[k]) / width, nan=0.0, posinf=0.0, neginf=0.0)
            left = np.nan_to_num(1 - (upper[i] - lower[k]) / width, nan=0.0, posinf=0.0, neginf=0.0)
        above[i], below[k] = np.maximum(above[i], right), np.maximum(below[k], left)
        step *= 2
    mass = masses_of(which, points, upper)
    at_most, at_least = (np.clip(1 - found + 8 * UNIT, 0.0, 1.0) for found in (above, below))
    return laws.with_values(np.stack([mass, at_most]), False), laws.with_values(np.stack([mass, at_least]), True)


def masses(points: Floats, upper: Floats) -> Floats:
    """The law that upper bounds of one node are stop-loss values of."""
    return masses_of(np.zeros(len(points), dtype=np.int64), points, upper)


def masses_of(which: Ints, points: Floats, upper: Floats) -> Floats:
    """Of groups of points: second differences of the upper bounds."""
    is_last = np.append(which[1:] != which[:-1], True)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        slope = np.clip(np.nan_to_num(np.append(np.diff(upper) / np.diff(points), 0.0)), -1.0, 0.0)
    # The probability of being at most at a point; bounds that cross by rounding must not make it fall.
    count = np.cumsum(np.append(True, is_last[:-1]))
    F = np.maximum.accumulate(2 * count + 1 + np.where(is_last, 0.0, slope)) - 2 * count
    return np.clip(F - np.where(np.append(True, is_last[:-1]), 0.0, np.append(0.0, F[:-1])), 0.0, 1.0)
