"""Numbers that obey linear equations on a graph of gaps: the chance of merging, and where variance arises.

What is expected of a gap changes with every step that both branches take, and what different steps change is
uncorrelated. So

    Var G = Σ γ²ᵗ E v(Sₜ, Tₜ),        v(s, t) = Var(R + γV(S') − R' − γV(T') | s, t),

with V the mean returns of the branches. In two states, ``v(s, t) = σ²(s) + σ²(t) − 2c``: each state is given its own
variance less what both have in common, c. So a part can be negative, where sharing takes away more than arises.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import spsolve

from jointmdp.exact.bellman.pair_step import Outcomes
from jointmdp.exact.law.node_laws import chain, fixed_point
from jointmdp.exact.law.pair_graph import GapBranches, GapQuery, GapStart, PairGraph, reached_pairs
from jointmdp.ground.arrays import Floats, Ints, summed
from jointmdp.ground.intervals import Interval
from jointmdp.ground.limits import IsOver, OutOfTimeError, never

SWEEPS = 2_000  # from below, where the solution of the equations has no certificate
MOST_STEPS = 10_000  # that are told apart; what comes later is one part
LITTLE = 1e-13  # of the variance: what is left out at the end


def merge_probability(branches: GapBranches, query: GapStart, memory: int, horizon: int | None) -> Interval:
    """The probability that two branches become one; over a horizon, before its last action."""
    if not branches.can_merge or branches.model.sharing == "none":
        return Interval(0.0, 0.0)
    graph = reached_pairs(branches, [query], memory, never, is_pruned=False)
    e, P = graph.edges, chain(graph, 1.0)
    at_once = summed(e.parent, np.where(e.child < 0, e.weight, 0.0), graph.num_nodes)
    if horizon is None:
        return _merging_ever(graph, P, at_once)
    found = np.zeros(graph.num_nodes)
    for _ in range(horizon):
        found = np.where(graph.is_half, P @ found + at_once, found)
        found = np.where(graph.is_half, found, P @ found + at_once)
    # The root has seen every step of the others, and one of its own.
    off = 4 * (horizon + 1) * graph.rounding
    return Interval(max(0.0, float(found[0]) * (1 - off)), min(1.0, float(found[0]) * (1 + off)))


def _merging_ever(graph: PairGraph, chain: sp.csr_array, at_once: Floats) -> Interval:
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


class VarianceParts(NamedTuple):
    """Of several gaps; both sum to their variances."""

    by_step: Floats  # [gaps, T], the last of all later steps where there are more than `MOST_STEPS`
    by_state: Floats  # [gaps, S]


class _Branch(NamedTuple):
    """What one branch expects, and the variance of one step, by state."""

    reward: float
    """What a half step is paid too much, since values are relative to it."""
    value: Floats  # [S]
    later: Floats  # [S] after a step
    variance: Floats  # [S]


def variance_parts(
    branches: GapBranches, queries: list[GapQuery], horizon: int | None, memory: int, is_over: IsOver
) -> VarianceParts:
    """Split the variance of each gap."""
    graph = reached_pairs(branches, queries, memory, is_over)
    size, roots = branches.model.num_states, np.array([query[0] for query in queries])
    forward = chain(graph, np.where(graph.edges.is_discounted, graph.discount**2, 1.0)).T.tocsr()
    one, two = (_ahead(out, graph, size, horizon) for out in graph.outcomes)
    ahead, is_half = list(zip(one, two, strict=True)), graph.is_half[:, None]
    at = np.eye(graph.num_nodes, len(queries))
    by_step, by_state, total = [], np.zeros((size, len(queries))), np.zeros(len(queries))
    variance, states = _step(graph, roots, ahead[-1], size)
    for number in range(MOST_STEPS if horizon is None else horizon):
        if is_over():
            raise OutOfTimeError(f"the variance was split over {number:,} steps, and time was over")
        if horizon is not None:
            variance, states = _step(graph, roots, ahead[horizon - number], size)
        after = forward @ at
        halves = np.where(is_half, after, 0.0)
        by_step.append(variance @ (at + halves))
        by_state += states @ (at + halves)
        total += by_step[-1]
        at = np.where(is_half, 0.0, after) + forward @ halves
        if not at.any():
            break
        if horizon is None and graph.discount < 1:  # so little can still come, as the variance of a step is bounded
            left = at.sum(axis=0) * 2 * variance.max() / (1 - graph.discount**2)
            if np.all(left <= LITTLE * total):
                break
    else:
        if horizon is None:
            rest = np.stack([fixed_point(forward, column) for column in at.T], axis=1)
            by_step.append(variance @ rest)
            by_state += states @ rest
    return VarianceParts(np.array(by_step).T, by_state.T)


def _step(graph: PairGraph, roots: Ints, ahead: tuple[_Branch, _Branch], states: int) -> tuple[Floats, sp.csr_array]:
    """The variance of one step of every node, ``[K]``, and whose it is, ``[S, K]``."""
    one, two = ahead
    first, second = np.maximum(graph.first, 0), np.maximum(graph.second, 0)
    pairs = graph.discount * (one.later[first] - two.later[second])
    half = one.value[first] - one.reward - graph.discount * two.later[second]
    expected = np.where(graph.is_half, half, pairs)
    e, size = graph.edges, graph.num_nodes
    change = (e.shift - e.counter) / 2 + np.where(e.child >= 0, expected[np.maximum(e.child, 0)], 0.0)
    mean = summed(e.parent, e.weight * change, size) / summed(e.parent, e.weight, size)
    variance = summed(e.parent, e.weight * (change - mean[e.parent]) ** 2, size)
    # Half steps: the second branch moves from a pair, the first from what that comes to. Roots are one state.
    moves_second = np.zeros(size, dtype=bool)
    moves_second[e.parent[~e.is_discounted]] = True
    of_first = (variance + one.variance[first] - two.variance[second]) / 2
    of_first = np.where(graph.is_half | graph.is_together, variance, np.where(moves_second, 0.0, of_first))
    first[: len(roots)] = second[: len(roots)] = roots
    parts, nodes = np.concatenate([of_first, variance - of_first]), np.tile(np.arange(size), 2)
    return variance, sp.csr_array((parts, (np.concatenate([first, second]), nodes)), shape=(states, size))


def _ahead(out: Outcomes, graph: PairGraph, size: int, horizon: int | None) -> list[_Branch]:
    """By the number of steps that are left, from 0; without a horizon, what stays the same."""
    # Values relative to a reward that is often paid lose no digits; without a discount they would never end.
    is_relative = horizon is not None or graph.discount < 1
    weights, rewards = out.chances[:, None, None] * out.weights, out.rewards - (graph.common if is_relative else 0.0)
    zero, paid = np.zeros(size), 0.0 if is_relative else graph.common

    def before(later: Floats) -> _Branch:
        returns = rewards + graph.discount * later[out.successors]
        value = np.sum(weights * returns, axis=(0, 2))
        return _Branch(paid, value, later, np.sum(weights * (returns - value[:, None]) ** 2, axis=(0, 2)))

    if horizon is not None:
        found = [_Branch(paid, zero, zero, zero)]
        for _ in range(horizon):
            found.append(before(found[-1].value))
        return found
    here = np.broadcast_to(np.arange(size)[None, :, None], out.successors.shape)
    moves = sp.csr_array((weights.ravel(), (here.ravel(), out.successors.ravel())), shape=(size, size))
    mean = np.sum(weights * rewards, axis=(0, 2))
    # Where nothing is paid any more the value is 0, and without a discount the equations do not say so.
    pays, last = np.any((weights > 0) & (rewards != 0), axis=(0, 2)), 0
    while last != (last := int(pays.sum())):
        pays |= moves @ pays.astype(float) > 0
    some = np.flatnonzero(pays)
    value = zero.copy()
    if len(some):
        value[some] = spsolve((sp.eye_array(len(some)) - graph.discount * moves[some][:, some]).tocsc(), mean[some])
    return [before(value)]
