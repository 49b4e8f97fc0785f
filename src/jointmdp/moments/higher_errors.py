"""Error bounds of moments of order above two.

The moments h_k of a gap about a potential obey h_k = Σ_j C(k,j) γʲ E[d^{k−j} h_j], where d is the difference of two
surpluses (see `bellman_powers`). What is computed misses the truth by e_k with

    e_k ≤ r_k + ρ_k + Σ_{1≤j<k} C(k,j) γʲ E[|d|^{k−j} e_j] + γᵏ E[e_k],

pair by pair: r_k is the residual, e_1 comes from the means, whose values the potential takes, and ρ_k is the rounding
of one backup in float64. There d is itself off by at most η, which moves the backup by kη times that of order k−1 in
absolute values, and sums of n products are off by n·u·Σ|terms|. Every function that satisfies the inequality with "≥"
bounds the error, and stays a bound when the right side is applied to it. Bounds are kept as one number a state: the
error of a pair is at most the mean of those of its two states. Moments of one branch obey the same with d its surplus.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from jointmdp.arrays import UNIT, Floats
from jointmdp.moments.certificates import pair_operations

ROOM = 1e-6  # relative room that pays for computing the bounds themselves in float64


def operations(scenarios: int, actions: int, order: int) -> int:
    """Rounding errors in one backup of a moment: its sums, its powers, and the terms of the binomial theorem."""
    return pair_operations(scenarios, actions) + 4 * (order + 1) ** 2


class Known(NamedTuple):
    """Moments 0, 1, … of a random variable about a reference, and bounds on their errors."""

    values: Floats
    errors: Floats


def backed_up(
    chances: Floats,
    d: Floats,
    later: Floats,
    errors: Floats,
    off: float,
    relative: float,
    discount: float,
    first_error: float,
) -> Known:
    """Moments of d + γX about zero, given d [W] and the moments of X, ``later`` [n+1, W], off by ``errors`` [n+1, W].

    d is off by at most `off`. The mean is zero but for `first_error`, and the first moment is taken to be zero.
    """
    order = len(later) - 1
    powers = d[None, :] ** np.arange(order + 1)[:, None]  # [n+1, W]
    sizes = (np.abs(d) + off)[None, :] ** np.arange(order + 1)[:, None]

    def backup(k: int, powers: Floats, moments: Floats) -> float:
        terms = (
            math.comb(k, j) * discount**j * float(np.sum(chances * powers[k - j] * moments[j])) for j in range(k + 1)
        )
        return math.fsum(terms)

    unsure = errors + relative * np.abs(later)
    values, off_by = np.zeros(order + 1), np.zeros(order + 1)
    values[0], off_by[1] = 1.0, first_error
    for k in range(2, order + 1):
        values[k] = backup(k, powers, later)
        off_by[k] = (1 + ROOM) * (backup(k, sizes, unsure) + k * off * backup(k - 1, sizes, np.abs(later)))
    return Known(values, off_by)


def difference(one: Known, other: Known) -> Known:
    """Moments of X − Y for independent X and Y."""
    order = len(one.values) - 1
    values, errors = np.zeros(order + 1), np.zeros(order + 1)
    for k in range(order + 1):
        for j in range(k + 1):
            x, y, dx, dy = one.values[k - j], other.values[j], one.errors[k - j], other.errors[j]
            values[k] += math.comb(k, j) * (-1) ** j * x * y
            rounding = (2 * k + 8) * UNIT * abs(x * y)
            errors[k] += math.comb(k, j) * (abs(x) * dy + abs(y) * dx + dx * dy + rounding)
    return Known(values, (1 + ROOM) * errors)


def about_mean(known: Known, mean_error: float) -> Known:
    """Central moments, from moments about a reference that is off the mean by at most `mean_error`."""
    order = len(known.values) - 1
    even = [abs(value) + error for value, error in zip(known.values, known.errors, strict=True)]
    size = [even[i] if i % 2 == 0 else math.sqrt(even[i - 1] * even[i + 1]) for i in range(order)]  # E|X|ⁱ
    values, errors = known.values.copy(), known.errors.copy()
    values[1] = errors[0] = errors[1] = 0.0
    values[2::2] = np.maximum(values[2::2], 0.0)
    for k in range(2, order + 1):
        moved = sum(math.comb(k, i) * mean_error**i * size[k - i] for i in range(1, k + 1))
        errors[k] = (1 + ROOM) * (errors[k] + moved)
    return Known(values, errors)
