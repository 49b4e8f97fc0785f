"""What holds of gaps before any grid: pairs whose gap is 0, ties, the probability of merging, and the largest gaps.

Two branches that never see a reward difference end, with probability 1, among pairs whose gap is identically 0: the
pair chain is finite, and staying for ever where no difference can occur means being in such a class. So the mass of
"no difference ever" is a probability of absorption, and iterating it from below gives a lower bound at every step.
"""

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from jointmdp.arrays import Bools, Floats, Ints
from jointmdp.law.pair_outcomes import PairTables

MAX_SWEEPS = 2_000
SETTLED = 1e-13  # a probability that grows by less than this in a sweep is left where it is
LARGEST_SWEEPS = 200  # of the largest gaps; every one of them leaves a valid bound, they need not converge
BRANCH_SWEEPS = 10_000  # of one branch by itself, which are cheap
STILL = 1e-9  # relative change of the largest gaps at which it is not worth another sweep

PairStep = Callable[[Floats], Floats]
WeightedKernels = list[tuple[float, sp.csr_array]]  # probability of the shared noise, and how one branch moves


def identical_pairs(tables: PairTables) -> Bools:
    """Pairs of states whose gap is 0 whatever happens, ``[S, S]``: none of what they can come to ever differs."""
    out, meetings = tables.outcomes, tables.meetings
    taken = out.weights > 0
    least = np.min(np.where(taken, out.rewards, np.inf), axis=2)
    most = np.max(np.where(taken, out.rewards, -np.inf), axis=2)
    spread = np.maximum(most[:, :, None] - least[:, None, :], most[:, None, :] - least[:, :, None])
    differs = np.any(spread > tables.resolution, axis=0)
    if meetings is not None:
        unequal = meetings.state[np.abs(meetings.rewards) > tables.resolution]
        np.fill_diagonal(differs, np.isin(np.arange(len(differs)), unequal))
    return ~_leads_to(tables, differs)


def no_difference(tables: PairTables, is_identical: Bools, horizon: int | None) -> Floats:
    """A lower bound, tight but for slow chains, on the probability that two branches never differ, ``[S, S]``.

    Over a horizon the first step is already taken, and the probability is exact.
    """
    out, meetings = tables.outcomes, tables.meetings
    parts = [
        (chance, _kernel(np.where(label, out.weights[g], 0.0), out.successors[g]))
        for g, chance in enumerate(out.chances)
        for label in _shared_amounts(out.weights[g], out.rewards[g], tables.resolution, meetings is None)
    ]
    step = _expected(tables, parts, meetings is not None and np.abs(meetings.rewards) <= tables.resolution)
    start = is_identical if horizon is None else np.ones(is_identical.shape)
    return _repeated(lambda z: np.where(is_identical, 1.0, step(z)), start.astype(float), horizon)


def merging(tables: PairTables, horizon: int | None) -> tuple[Floats, Floats]:
    """Lower and upper bounds on the probability that two branches become one, ``[S, S]`` each.

    Over a horizon: before its last action, the first being taken already.
    """
    out, meetings = tables.outcomes, tables.meetings
    never = np.zeros((len(tables.states), len(tables.states)))
    if meetings is None:
        return never, never
    kernels = [_kernel(weights, successors) for weights, successors in zip(out.weights, out.successors, strict=True)]
    step = _expected(tables, list(zip(out.chances, kernels, strict=True)), np.ones(len(meetings.weights), dtype=bool))
    lower = _repeated(step, never, horizon)
    if horizon is not None:
        return lower, lower
    # Pairs that cannot meet at all stay apart for ever: without them the iteration from above comes down too.
    possible = _leads_to(tables, np.diag(meetings.ties > 0))
    apart = _repeated(lambda z: np.where(possible, 1 - step(1 - z), 1.0), (~possible).astype(float), None)
    return lower, 1 - apart


def largest_gaps(tables: PairTables, is_identical: Bools, horizon: int | None) -> tuple[Floats, float]:
    """The largest value of each gap, ``[S, S]``, and the largest amount within a step, by the max-plus recursion."""
    out, g = tables.outcomes, tables.discount
    taken = out.weights > 0
    gains = np.where(taken, out.rewards, -np.inf)
    losses = np.where(taken, -out.rewards, -np.inf)
    best = np.zeros(is_identical.shape)
    if horizon is None:
        apart = _most(gains, out.successors, g)[:, None] + _most(losses, out.successors, g)[None, :]
        best = np.where(is_identical, 0.0, apart)
    reach = float(np.max(best))
    for _ in range(LARGEST_SWEEPS if horizon is None else horizon - 1):
        after = np.full_like(best, -np.inf)
        halfway = 0.0
        for i in range(len(out.chances)):
            half = np.max(losses[i][None] + g * best[:, out.successors[i]], axis=2)  # [S', T]
            lowest = np.max(gains[i][:, :, None] + g * best[out.successors[i]], axis=1)
            halfway = max(halfway, float(np.max(np.abs(half))), float(np.max(np.abs(lowest))))
            after = np.maximum(after, np.max(gains[i][:, :, None] + half[out.successors[i]], axis=1))
        if tables.meetings is not None:
            m = tables.meetings
            here = np.where(m.ties > 0, 0.0, -np.inf)
            np.maximum.at(here, m.state, m.rewards + g * best[m.left, m.right])
            np.fill_diagonal(after, here)
        after[is_identical] = 0.0
        if horizon is None:
            after = np.minimum(after, best)
        is_still = horizon is None and np.max(best - after) <= STILL * reach
        best, reach = after, max(0.0 if horizon is None else reach, halfway, float(np.max(np.abs(after))))
        if is_still:
            break
    return best, reach


def _most(amounts: Floats, successors: Ints, discount: float) -> Floats:
    """The largest discounted sum that one branch alone can collect, ``[S]``: an upper bound at every sweep."""
    most = np.full(amounts.shape[1], float(np.max(amounts)) / (1 - discount))
    for _ in range(BRANCH_SWEEPS):
        after = np.minimum(most, np.max(amounts + discount * most[successors], axis=(0, 2)))
        is_still = np.max(most - after) <= STILL * np.max(np.abs(most))
        most = after
        if is_still:
            break
    return most


def _leads_to(tables: PairTables, found: Bools) -> Bools:
    """Pairs from which a pair in `found` can be reached, ``[S, S]``."""
    out, meetings = tables.outcomes, tables.meetings
    taken = (out.weights > 0).astype(float)
    links = [_kernel(weights, successors) for weights, successors in zip(taken, out.successors, strict=True)]
    while True:
        wider = np.zeros_like(found)
        for link in links:
            wider |= (link @ found.astype(float) @ link.T) > 0
        if meetings is not None:
            leading = meetings.state[found[meetings.left, meetings.right]]
            np.fill_diagonal(wider, np.isin(np.arange(len(found)), leading))
        wider |= found
        if np.array_equal(wider, found):
            return found
        found = wider


def _expected(tables: PairTables, parts: WeightedKernels, kept: Bools | bool) -> PairStep:
    """z ↦ E z(next pair) over these moves and the meetings that are `kept`; branches that become one count 1."""
    m = tables.meetings

    def step(z: Floats) -> Floats:
        after = np.zeros_like(z)
        for chance, kernel in parts:
            after += chance * (kernel @ z @ kernel.T)
        if m is not None:
            met = m.weights[kept] * z[m.left[kept], m.right[kept]]
            np.fill_diagonal(after, m.ties + np.bincount(m.state[kept], met, minlength=len(z)))
        return after

    return step


def _repeated(step: PairStep, z: Floats, horizon: int | None) -> Floats:
    """What is left after all steps of a horizon but the first; without a horizon the limit, from below."""
    if horizon is not None:
        for _ in range(horizon - 1):
            z = step(z)
        return z
    for _ in range(MAX_SWEEPS):
        after = np.maximum(step(z), z)
        change = float(np.max(after - z))
        z = after
        if change <= SETTLED:
            break
    return np.minimum(z, 1.0)


def _kernel(weights: Floats, successors: Ints) -> sp.csr_array:
    rows = np.broadcast_to(np.arange(len(weights))[:, None], weights.shape)
    some = weights > 0
    return sp.csr_array((weights[some], (rows[some], successors[some])), shape=(len(weights), len(weights)))


def _shared_amounts(weights: Floats, rewards: Floats, resolution: float, with_own: bool) -> list[Bools]:
    """For each amount paid in several states (or in one, `with_own`): which outcomes pay it, ``[S, O]``."""
    taken = weights > 0
    values = np.unique(rewards[taken])
    starts = np.concatenate([[0], np.flatnonzero(np.diff(values) > resolution) + 1])
    label = np.searchsorted(values[starts], rewards, side="right") - 1
    rows = np.broadcast_to(np.arange(len(rewards))[:, None], rewards.shape)
    pairs = np.unique(np.stack([label[taken], rows[taken]]), axis=1)
    counts = np.bincount(pairs[0], minlength=len(starts))
    return [taken & (label == k) for k in np.flatnonzero(counts > (0 if with_own else 1))]
