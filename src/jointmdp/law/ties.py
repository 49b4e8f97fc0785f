"""When two branches can no longer differ: pairs whose gap is 0, ties, and the probability of becoming one.

Two branches that never see a reward difference end, with probability 1, among pairs whose gap is identically 0: the
pair chain is finite, and staying for ever where no difference can occur means being in such a class. So the mass of
"no difference ever" is a probability of absorption, and iterating it from below gives a lower bound at every step.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from jointmdp.arrays import Bools, Floats, Ints
from jointmdp.law.pair_outcomes import PairTables

MAX_SWEEPS = 2_000
SETTLED = 1e-13  # a probability that grows by less than this in a sweep is left where it is

PairStep = Callable[[Floats], Floats]


def nought_pairs(tables: PairTables) -> Bools:
    """Pairs of states whose gap is 0 whatever happens, ``[S, S]``: none of what they can come to ever differs."""
    out = tables.outcomes
    size = out.weights.shape[1]
    taken = out.weights > 0
    least = np.min(np.where(taken, out.rewards, np.inf), axis=2)
    most = np.max(np.where(taken, out.rewards, -np.inf), axis=2)
    spread = np.maximum(most[:, :, None] - least[:, None, :], most[:, None, :] - least[:, :, None])
    differs = np.any(spread > tables.same, axis=0)
    links = [_kernel(taken[g].astype(float), out.successors[g], size) for g in range(len(out.chances))]
    meetings = tables.meetings
    if meetings is not None:
        here = np.zeros(size, dtype=bool)
        here[meetings.state[np.abs(meetings.rewards) > tables.same]] = True
        np.fill_diagonal(differs, here)
    while True:
        reaches = differs.copy()
        for link in links:
            reaches |= (link @ differs.astype(float) @ link.T) > 0
        if meetings is not None:
            here = np.zeros(size, dtype=bool)
            here[meetings.state[differs[meetings.left, meetings.right]]] = True
            np.fill_diagonal(reaches, here | differs.diagonal())
        if np.array_equal(reaches, differs):
            return ~differs
        differs = reaches


def no_difference(tables: PairTables, is_nought: Bools, horizon: int | None) -> Floats:
    """A lower bound, tight but for slow chains, on the probability that two branches never differ, ``[S, S]``.

    Over a horizon the first step is already taken, and the probability is exact.
    """
    out, same = tables.outcomes, tables.same
    size = out.weights.shape[1]
    parts = [
        (chance, _kernel(np.where(label, out.weights[g], 0.0), out.successors[g], size))
        for g, chance in enumerate(out.chances)
        for label in _shared_amounts(out.weights[g], out.rewards[g], same, tables.meetings is None)
    ]
    meetings = tables.meetings
    equal = None if meetings is None else np.abs(meetings.rewards) <= same

    def step(z: Floats) -> Floats:
        after = np.zeros_like(z)
        for chance, kernel in parts:
            after += chance * (kernel @ z @ kernel.T)
        if meetings is not None and equal is not None:
            met = meetings.weights[equal] * z[meetings.left[equal], meetings.right[equal]]
            np.fill_diagonal(after, meetings.ties + np.bincount(meetings.state[equal], met, minlength=size))
        return np.where(is_nought, 1.0, after)

    if horizon is not None:
        return _repeated(step, np.ones(is_nought.shape), horizon - 1)
    return _grow(step, is_nought.astype(float))


def merging(tables: PairTables, horizon: int | None) -> tuple[Floats, Floats]:
    """Lower and upper bounds on the probability that two branches become one, ``[S, S]`` each.

    Over a horizon: before its last action, the first being taken already.
    """
    out, meetings = tables.outcomes, tables.meetings
    size = out.weights.shape[1]
    if meetings is None:
        return np.zeros((size, size)), np.zeros((size, size))
    kernels = [_kernel(out.weights[g], out.successors[g], size) for g in range(len(out.chances))]

    def step(z: Floats) -> Floats:
        after = np.zeros_like(z)
        for chance, kernel in zip(out.chances, kernels, strict=True):
            after += chance * (kernel @ z @ kernel.T)
        met = meetings.weights * z[meetings.left, meetings.right]
        np.fill_diagonal(after, meetings.ties + np.bincount(meetings.state, met, minlength=size))
        return after

    if horizon is not None:
        exact = _repeated(step, np.zeros((size, size)), horizon - 1)
        return exact, exact
    lower = _grow(step, np.zeros((size, size)))
    # Pairs that cannot meet at all stay apart for ever: without them the iteration from above comes down too.
    possible = _grow_set(kernels, meetings.left, meetings.right, meetings.state, meetings.ties > 0)
    upper = 1 - _grow(lambda z: np.where(possible, 1 - step(1 - z), 1.0), (~possible).astype(float))
    return lower, upper


def _grow_set(kernels: list[sp.csr_array], left: Ints, right: Ints, state: Ints, start: Bools) -> Bools:
    """Pairs from which the diagonal entries in `start` can be reached."""
    reach = np.diag(start)
    while True:
        wider = np.zeros_like(reach)
        for kernel in kernels:
            wider |= (kernel @ reach.astype(float) @ kernel.T) > 0
        here = start.copy()
        here[state[reach[left, right]]] = True
        np.fill_diagonal(wider, here)
        wider |= reach
        if np.array_equal(wider, reach):
            return reach
        reach = wider


def _repeated(step: PairStep, z: Floats, count: int) -> Floats:
    for _ in range(count):
        z = step(z)
    return z


def _grow(step: PairStep, z: Floats) -> Floats:
    for _ in range(MAX_SWEEPS):
        after = np.maximum(step(z), z)
        change = float(np.max(after - z))
        z = after
        if change <= SETTLED:
            break
    return np.minimum(z, 1.0)


def _kernel(weights: Floats, successors: Ints, size: int) -> sp.csr_array:
    rows = np.broadcast_to(np.arange(size)[:, None], weights.shape)
    some = weights > 0
    return sp.csr_array((weights[some], (rows[some], successors[some])), shape=(size, size))


def _shared_amounts(weights: Floats, rewards: Floats, same: float, with_own: bool) -> list[Bools]:
    """For each amount paid in several states (or in one, `with_own`): which outcomes pay it, ``[S, O]``."""
    taken = weights > 0
    values = np.unique(rewards[taken])
    starts = np.concatenate([[0], np.flatnonzero(np.diff(values) > same) + 1])
    label = np.searchsorted(values[starts], rewards, side="right") - 1
    rows = np.broadcast_to(np.arange(len(rewards))[:, None], rewards.shape)
    pairs = np.unique(np.stack([label[taken], rows[taken]]), axis=1)
    counts = np.bincount(pairs[0], minlength=len(starts))
    return [taken & (label == k) for k in np.flatnonzero(counts > (0 if with_own else 1))]
