"""Polynomials as arrays of coefficients, lowest first, in extended precision: interpolation and certified minima.

Evaluation and roots are NumPy's. Interpolation in extended precision, with slopes, is not in NumPy or SciPy.
"""

import math
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.polynomial.polynomial import polyroots, polyval
from numpy.polynomial.polyutils import trimseq

from jointmdp.arrays import Bools, Floats
from jointmdp.bounds.moment_sequences import Long, Longs

Scalars = list[Any]

EPS = np.finfo(Long).eps


def divided(nodes: Scalars, values: Scalars, slopes: Scalars, is_double: Scalars) -> tuple[Scalars, Scalars]:
    """Newton's form of the polynomial with these values, and these slopes at the double nodes: its points and factors.

    Lists of scalars of one kind, float or extended: arrays this short cost more than they save.
    """
    points, column, slope = [], [], []
    for y, at, tilt, double in zip(nodes, values, slopes, is_double, strict=True):
        for _ in range(2 if double else 1):
            points.append(y)
            column.append(at)
            slope.append(tilt)
    count = len(points)
    factors = [column[0]]
    for j in range(1, count):
        column = [
            slope[i] if points[i + j] == points[i] else (column[i + 1] - column[i]) / (points[i + j] - points[i])
            for i in range(count - j)
        ]
        factors.append(column[0])
    return points, factors


def hermite(nodes: Floats, values: Longs, slopes: Longs, is_double: Bools) -> Longs:
    """Coefficients of the polynomial with these values, and these slopes at the double nodes."""
    points, factors = divided(list(nodes.astype(Long)), list(values), list(slopes), list(is_double))
    found = [factors[-1]]
    for y, factor in zip(points[-2::-1], factors[-2::-1], strict=True):
        found = [factor - y * found[0], *(a - y * b for a, b in pairwise(found)), found[-1]]
    return np.array(found, dtype=Long)


def least(p: Longs, lo: float, hi: float) -> float:
    """The least value of p on [lo, hi], less its rounding; −inf when there is none."""
    if lo > hi:
        return math.inf
    p = trimseq(p)
    degree = len(p) - 1
    if degree < 1:
        return float(p[0])
    if (math.isinf(hi) and p[-1] < 0) or (math.isinf(lo) and p[-1] * (-1) ** degree < 0):
        return -math.inf
    slope = p[1:] * np.arange(1, degree + 1)  # `polyder` takes ten times as long
    bend = slope[1:] * np.arange(1, degree) if degree > 1 else np.zeros(1, dtype=Long)
    scaled = (slope / np.max(np.abs(slope))).astype(np.float64)
    with np.errstate(all="ignore"):
        try:
            turns = polyroots(scaled).real  # real parts of complex pairs do no harm
        except np.linalg.LinAlgError:
            return -math.inf
        if scaled[-1] == 0 or not np.all(np.isfinite(turns)):  # there is a turn beyond the range of floats
            return -math.inf
        # One Newton step in extended precision puts each root where the value's error is beyond rounding.
        steps = turns - polyval(turns, slope) / polyval(turns, bend)
        points = np.concatenate([turns.astype(Long), steps, np.array([lo, hi], dtype=Long)])
    points = points[np.isfinite(points) & (points >= lo) & (points <= hi)]
    rounding = 2 * (degree + 1) * EPS * polyval(np.abs(points), np.abs(p))
    return float(np.min(polyval(points, p) - rounding, initial=np.inf))
