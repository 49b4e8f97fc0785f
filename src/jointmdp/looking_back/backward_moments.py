"""Moments of a gap or a return given what was seen: backward steps from the end, no linear solve.

With ``d = R − r + γ m(child) − m(node)``, the moments about the mean m of a node are

    h_k = Σ_moves weight · Σ_j C(k,j) d^{k−j} γʲ h_j(child),        h_0 = 1,  h_1 = 0,

and where both branches are one, the gap is 0 and ``h_j`` with it. Errors go the same way: those of what follows by the
same weights, and rounding by the size of what is added.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from jointmdp.arrays import UNIT, Floats, Ints, summed
from jointmdp.looking_back.pair_ends import KnownReturns
from jointmdp.moments.stored_moments import KnownMoments, about_mean

ROOM = 1e-9  # errors of errors


class ReturnMoves(NamedTuple):
    """Moves of one time as columns."""

    parent: Ints
    weight: Floats
    paid: Floats
    size: Floats  # of the numbers that `paid` was made of
    child: Ints  # negative where nothing follows


def backed_up(moves: ReturnMoves, count: int, later: KnownReturns, discount: float) -> KnownReturns:
    """What is known of `count` nodes, from what is known of those that they lead to."""
    order = len(later.moments) - 1
    goes = moves.child >= 0

    def of_child(values: Floats, nothing: float = 0.0) -> Floats:
        if not values.shape[-1]:
            return np.full((*values.shape[:-1], len(goes)), nothing)
        return np.where(goes, values[..., moves.child], nothing)

    def total(values: Floats) -> Floats:
        return summed(moves.parent, moves.weight * values, count)

    m = discount * of_child(later.mean)
    mean = total(moves.paid + m)
    terms = np.bincount(moves.parent, minlength=count)
    relative = (terms + 16) * UNIT  # sums, products, and weights that are rounded themselves
    sizes = moves.size + np.abs(m)
    rounding = relative * total(sizes)
    mean_error = (1 + ROOM) * (total(discount * of_child(later.mean_error)) + rounding)
    d = moves.paid + m - mean[moves.parent]
    off = (8 * UNIT) * (sizes + np.abs(mean[moves.parent]))
    h, e = of_child(later.moments), of_child(later.errors)
    h[0] = 1.0
    unsure = e + (relative[moves.parent] + (2 * order + 8) * UNIT) * np.abs(h)
    moments, errors = np.zeros((2, order + 1, count))
    moments[0], errors[1] = 1.0, mean_error

    def backup(k: int, base: Floats, values: Floats) -> Floats:
        parts = [math.comb(k, j) * base ** (k - j) * discount**j * values[j] for j in range(k + 1)]
        return total(np.sum(parts, axis=0))

    for k in range(2, order + 1):
        moments[k] = backup(k, d, h)
        wide = np.abs(d) + off
        moved = backup(k, wide, unsure) + k * total(off * _inner(k - 1, wide, discount, np.abs(h)))
        errors[k] = (1 + ROOM) * moved
    return KnownReturns(mean, mean_error, moments, errors)


def _inner(k: int, base: Floats, discount: float, values: Floats) -> Floats:
    return np.sum([math.comb(k, j) * base ** (k - j) * discount**j * values[j] for j in range(k + 1)], axis=0)


def joined(known: KnownReturns, places: Ints, more: KnownReturns, at: Ints, count: int) -> KnownReturns:
    """Two lists of nodes in one, each at its places."""
    order = len(known.moments) - 1
    shapes = ((count,), (count,), (order + 1, count), (order + 1, count))
    found = KnownReturns(*(np.zeros(shape) for shape in shapes))
    for part, where in ((known, places), (more, at)):
        for array, values in zip(found, part, strict=True):
            array[..., where] = values
    return found


def of_node(known: KnownReturns, i: int) -> tuple[float, float, KnownMoments]:
    """The mean of one node, its error, and the moments about the true mean."""
    error = float(known.mean_error[i])
    return float(known.mean[i]), error, about_mean(KnownMoments(known.moments[:, i], known.errors[:, i]), error)
