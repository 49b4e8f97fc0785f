"""How far gaps can go: the largest value of every gap, by the max-plus form of the gap's recursion."""

import numpy as np

from jointmdp.arrays import Bools, Floats, Ints
from jointmdp.law.pair_outcomes import PairTables

SWEEPS = 200  # every one of them leaves a valid bound; they need not converge
BRANCH_SWEEPS = 10_000  # of one branch by itself, which are cheap
STILL = 1e-9  # relative change at which it is not worth another


def largest_gaps(tables: PairTables, is_nought: Bools, horizon: int | None) -> tuple[Floats, float]:
    """The largest value each gap can take, ``[S, S]``, and the largest amount that occurs within a step."""
    out, g = tables.outcomes, tables.discount
    taken = out.weights > 0
    gains = np.where(taken, out.rewards, -np.inf)
    losses = np.where(taken, -out.rewards, -np.inf)
    best = np.zeros(is_nought.shape)
    if horizon is None:
        apart = _most(gains, out.successors, g)[:, None] + _most(losses, out.successors, g)[None, :]
        best = np.where(is_nought, 0.0, apart)
    reach = float(np.max(best))
    for _ in range(SWEEPS if horizon is None else horizon - 1):
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
        after[is_nought] = 0.0
        if horizon is not None:
            best, reach = after, max(reach, halfway, float(np.max(np.abs(after))))
            continue
        after = np.minimum(after, best)
        is_still = np.max(best - after) <= STILL * reach
        best, reach = after, max(halfway, float(np.max(np.abs(after))))
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
