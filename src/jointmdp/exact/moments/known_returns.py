"""Moments of returns, or of gaps, about a mean with their errors, and one step backward of them.

With ``d = R − r + γ m(child) − m(node)``, the moments about the mean m of a node are

    h_k = Σ_moves weight · Σ_j C(k,j) d^{k−j} γʲ h_j(child),        h_0 = 1,  h_1 = 0,

and where both branches are one, the gap is 0 and ``h_j`` with it. Errors go the same way: those of what follows by the
same weights, and rounding by the size of what is added.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jointmdp.exact.moments.higher_orders import ROOM
from jointmdp.ground.arrays import UNIT, Floats, Ints, summed


class KnownReturns(NamedTuple):
    """A mean to count from, its certified error, and moments 0, 1, … about it with theirs; the first is taken as 0."""

    mean: Floats  # [m]
    mean_error: Floats  # [m]
    moments: Floats  # [order+1, m]
    errors: Floats  # [order+1, m]

    @classmethod
    def zeros(cls, order: int, count: int) -> KnownReturns:
        """Nothing is paid any more."""
        moments = np.zeros((order + 1, count))
        moments[0] = 1.0
        return cls(np.zeros(count), np.zeros(count), moments, np.zeros((order + 1, count)))

    def at(self, places: Ints) -> KnownReturns:
        """Of some nodes only."""
        return KnownReturns._make(part[..., places] for part in self)

    def put(self, at: Ints, known: KnownReturns) -> None:
        """What is known of some nodes, to the order that is held here."""
        for mine, theirs in zip(self, known, strict=True):
            mine[..., at] = theirs if theirs.ndim == 1 else theirs[: len(mine)]


class PairEnds(NamedTuple):
    """What follows the last step that was seen."""

    order: int
    gap: Callable[[Ints, Ints], KnownReturns]
    """Of the other branch in the first states and the seen one in the second."""
    other: Callable[[Ints], KnownReturns]
    """Of the other branch alone, to order 2."""
    seen: Callable[[Ints], KnownReturns]
    """Of the seen branch alone, to order 2."""


class Moves(NamedTuple):
    """How nodes of one time move on, as columns."""

    parent: Ints
    weight: Floats
    paid: Floats
    size: Floats  # of the numbers that `paid` was made of
    child: Ints  # negative where nothing follows
    off: Floats  # the weight is off by so much at most, beside rounding of its own size


def backed_up(moves: Moves, count: int, later: KnownReturns, discount: float, sums: float) -> KnownReturns:
    """What is known of `count` nodes, from what is known of those that they lead to.

    Each weight has gone through `sums` roundings.
    """
    order = len(later.moments) - 1
    goes = moves.child >= 0

    def of_child(values: Floats) -> Floats:
        if not values.shape[-1]:  # both branches are one in all of them
            return np.zeros((*values.shape[:-1], len(goes)))
        return np.where(goes, values[..., moves.child], 0.0)

    def total(values: Floats) -> Floats:
        return summed(moves.parent, moves.weight * values, count)

    m = discount * of_child(later.mean)
    mean = total(moves.paid + m)
    terms = np.bincount(moves.parent, minlength=count)
    relative = (terms + sums + 16) * UNIT  # sums, products, and weights that are rounded themselves
    sizes = moves.size + np.abs(m)
    rounding = relative * total(sizes) + summed(moves.parent, moves.off * sizes, count)
    mean_error = (1 + ROOM) * (total(discount * of_child(later.mean_error)) + rounding)
    d = moves.paid + m - mean[moves.parent]
    off = (8 * UNIT) * (sizes + np.abs(mean[moves.parent]))
    h, e = of_child(later.moments), of_child(later.errors)
    h[0] = 1.0
    unsure = e + (relative[moves.parent] + (2 * order + 8) * UNIT) * np.abs(h)
    moments, errors = np.zeros((2, order + 1, count))
    moments[0], errors[1] = 1.0, mean_error

    def power(k: int, base: Floats, values: Floats) -> Floats:
        """Of every move: Σ_j C(k,j) baseᵏ⁻ʲ γʲ values_j."""
        return np.sum([math.comb(k, j) * base ** (k - j) * discount**j * values[j] for j in range(k + 1)], axis=0)

    wide = np.abs(d) + off
    for k in range(2, order + 1):
        moments[k] = total(power(k, d, h))
        # The derivative of the k-th power by d is k times the one before.
        moved = total(power(k, wide, unsure)) + k * total(off * power(k - 1, wide, np.abs(h)))
        moved += summed(moves.parent, moves.off * power(k, wide, np.abs(h) + e), count)
        errors[k] = (1 + ROOM) * moved
    return KnownReturns(mean, mean_error, moments, errors)
