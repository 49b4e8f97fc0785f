"""The probability that two branches become one."""

import numpy as np
import scipy.sparse as sp

from jointmdp.arrays import Floats, summed
from jointmdp.intervals import Interval
from jointmdp.law.fixed_points import fixed_point
from jointmdp.law.reached_pairs import GapBranches, GapStart, PairGraph, reached_pairs
from jointmdp.law.time_limit import never

SWEEPS = 2_000  # from below, where the solution of the equations has no certificate


def merge_probability(branches: GapBranches, query: GapStart, memory: int, horizon: int | None) -> Interval:
    """Over a horizon: before its last action."""
    if not branches.can_merge or branches.model.sharing == "none":
        return Interval(0.0, 0.0)
    graph = reached_pairs(branches, [query], memory, never, is_pruned=False)
    e, size = graph.edges, graph.num_nodes
    some = e.child >= 0
    chain = sp.csr_array((e.weight[some], (e.parent[some], e.child[some])), shape=(size, size))
    at_once = summed(e.parent[~some], e.weight[~some], size)
    if horizon is not None:
        found = _after(graph, chain, at_once, horizon)
        off = 4 * (horizon + 1) * graph.rounding
        return Interval(max(0.0, found * (1 - off)), min(1.0, found * (1 + off)))
    return _for_ever(graph, chain, at_once)


def _after(graph: PairGraph, chain: sp.csr_array, at_once: Floats, horizon: int) -> float:
    halves, pairs = graph.is_half, ~graph.is_half
    found = np.zeros(graph.num_nodes)
    for _ in range(horizon):
        found[halves] = (chain @ found + at_once)[halves]
        found = np.where(pairs, chain @ found + at_once, found)
    # The roots have seen every step of the others, and one of their own.
    return float(found[0])


def _for_ever(graph: PairGraph, chain: sp.csr_array, at_once: Floats) -> Interval:
    """Where merging is possible the chain leaks, so its equations have one solution: x = P·x + merging at once.

    With ``w ≥ P·w + 1/2`` a residual ε of x is an error of at most 2εw.
    """
    possible, before = at_once > 0, None
    while before is None or not np.array_equal(possible, before):
        before, possible = possible, possible | (chain @ possible.astype(float) > 0)
    if not possible[0]:
        return Interval(0.0, 0.0)
    inside = np.where(possible, 1.0, 0.0)
    P = (sp.diags_array(inside) @ chain @ sp.diags_array(inside)).tocsr()
    x, w = fixed_point(P, at_once), fixed_point(P, inside)
    off = 4 * graph.rounding
    with np.errstate(invalid="ignore", over="ignore"):
        error = 2 * float(w[0]) * (float(np.max(np.abs(P @ x + at_once - x))) + off * (1 + float(np.abs(x).max())))
        is_certain = bool(np.all((w - (P @ w) * (1 + off))[possible] >= 0.5)) and bool(np.all(w >= 0))
    lower, upper = 0.0, 1.0
    if is_certain and np.isfinite(error):
        lower, upper = float(x[0]) - error, float(x[0]) + error
    else:
        below = np.zeros(len(x))
        for _ in range(SWEEPS):
            below = (P @ below + at_once) * (1 - off)
        lower = float(below[0])
    return Interval(max(0.0, lower), min(1.0, upper))
