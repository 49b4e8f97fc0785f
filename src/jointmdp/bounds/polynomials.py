"""Polynomials as arrays of coefficients, lowest first, in extended precision: interpolation and certified minima."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointmdp.arrays import Floats
from jointmdp.bounds.moment_sequences import Long, Longs

Scalars = list[Any]

EPS = np.finfo(Long).eps


def divided(nodes: Scalars, values: Scalars, slopes: Scalars, is_double: Scalars) -> tuple[list[Any], list[Any]]:
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


def hermite(nodes: Floats, values: Longs, slopes: Longs, is_double: NDArray[np.bool_]) -> Longs:
    """Coefficients of the polynomial with these values, and these slopes at the double nodes."""
    points, factors = divided(list(nodes.astype(Long)), list(values), list(slopes), list(is_double))
    found = [factors[-1]]
    for y, factor in zip(points[-2::-1], factors[-2::-1], strict=True):
        found = [factor - y * found[0], *(a - y * b for a, b in pairwise(found)), found[-1]]
    return np.array(found, dtype=Long)


def derivative(p: Longs) -> Longs:
    """Coefficients of p′."""
    return p[1:] * np.arange(1, len(p))


def evaluate(p: Longs, y: NDArray[np.floating]) -> Longs:
    """p(y), by Horner's rule."""
    found = np.zeros(len(y), dtype=Long)
    for c in p[::-1]:
        found = found * y + c
    return found


def least(p: Longs, lo: float, hi: float) -> float:
    """The least value of p on [lo, hi], less its rounding; −inf when there is none."""
    if lo > hi:
        return math.inf
    p = np.trim_zeros(p, "b")
    degree = len(p) - 1
    if degree < 1:
        return float(p[0]) if len(p) else 0.0
    if (math.isinf(hi) and p[-1] < 0) or (math.isinf(lo) and p[-1] * (-1) ** degree < 0):
        return -math.inf
    slope = derivative(p)
    scaled = (slope / np.max(np.abs(slope))).astype(np.float64)
    with np.errstate(all="ignore"):
        try:
            turns = _roots(scaled).real  # real parts of complex pairs do no harm
        except np.linalg.LinAlgError:
            return -math.inf
        turns = turns[np.isfinite(turns)]
        # One Newton step in extended precision puts each root where the value's error is beyond rounding.
        steps = turns - evaluate(slope, turns) / evaluate(derivative(slope), turns)
        points = np.concatenate([turns.astype(Long), steps, np.array([lo, hi], dtype=Long)])
    points = points[np.isfinite(points) & (points >= lo) & (points <= hi)]
    rounding = 2 * (degree + 1) * EPS * evaluate(np.abs(p), np.abs(points))
    return float(np.min(evaluate(p, points) - rounding, initial=np.inf))


def _roots(p: Floats) -> NDArray[np.complexfloating]:
    """The complex roots, as eigenvalues of the companion matrix."""
    degree = len(p) - 1
    if degree < 1:
        return np.zeros(0, dtype=complex)
    companion = np.zeros((degree, degree))
    companion.flat[degree :: degree + 1] = 1
    companion[:, -1] = -p[:-1] / p[-1]
    if not np.all(np.isfinite(companion)):
        raise np.linalg.LinAlgError
    return np.linalg.eigvals(companion).astype(complex)


def less(p: Longs, line: tuple[float, float]) -> Longs:
    """p minus the straight line ``line[0] + line[1]·y``."""
    found = np.zeros(max(len(p), 2), dtype=Long)
    found[: len(p)] = p
    found[0] -= line[0]
    found[1] -= line[1]
    return found
