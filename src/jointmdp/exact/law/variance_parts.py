"""Where the variance of a gap arises: at which step, and in which state.

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
from jointmdp.exact.law.pair_graph import GapBranches, GapQuery, PairGraph, reached_pairs
from jointmdp.exact.law.shared_points import fixed_point
from jointmdp.ground.arrays import Floats, Ints, summed
from jointmdp.ground.limits import IsOver, OutOfTimeError

MOST_STEPS = 10_000  # that are told apart; what comes later is one part
LITTLE = 1e-13  # of the variance: what is left out at the end


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
    e = graph.edges
    some, scale = e.child >= 0, np.where(e.is_discounted, graph.discount, 1.0)
    links = (e.weight * scale**2)[some], (e.child[some], e.parent[some])
    forward = sp.csr_array(links, shape=(graph.num_nodes, graph.num_nodes))
    ahead, is_half = _values_ahead(graph, size, horizon), graph.is_half[:, None]
    at = np.eye(graph.num_nodes, len(queries))
    by_step, by_state, total = [], np.zeros((size, len(queries))), np.zeros(len(queries))
    step = _Step(graph, roots, ahead[-1], size)
    for number in range(MOST_STEPS if horizon is None else horizon):
        if is_over():
            raise OutOfTimeError(f"the variance was split over {number:,} steps, and time was over")
        if horizon is not None:
            step = _Step(graph, roots, ahead[horizon - number], size)
        after = forward @ at
        halves = np.where(is_half, after, 0.0)
        by_step.append(step.variance @ (at + halves))
        by_state += step.states @ (at + halves)
        total += by_step[-1]
        at = np.where(is_half, 0.0, after) + forward @ halves
        if not at.any() or (horizon is None and np.all(step.left(at, graph.discount) <= LITTLE * total)):
            break
    else:
        if horizon is None:
            rest = np.stack([fixed_point(forward, column) for column in at.T], axis=1)
            by_step.append(step.variance @ rest)
            by_state += step.states @ rest
    return VarianceParts(np.array(by_step).T, by_state.T)


class _Step:
    """The variance of one step of every node, ``variance[K]``, and whose it is, ``states[S, K]``."""

    def __init__(self, graph: PairGraph, roots: Ints, ahead: tuple[_Branch, _Branch], states: int) -> None:
        one, two = ahead
        first, second = np.maximum(graph.first, 0), np.maximum(graph.second, 0)
        pairs = graph.discount * (one.later[first] - two.later[second])
        half = one.value[first] - one.reward - graph.discount * two.later[second]
        expected = np.where(graph.is_half, half, pairs)
        e, size = graph.edges, graph.num_nodes
        change = (e.shift - e.counter) / 2 + np.where(e.child >= 0, expected[np.maximum(e.child, 0)], 0.0)
        mean = summed(e.parent, e.weight * change, size) / summed(e.parent, e.weight, size)
        self.variance = summed(e.parent, e.weight * (change - mean[e.parent]) ** 2, size)
        # Half steps: the second branch moves from a pair, the first from what that comes to. Roots are one state.
        moves_second = np.zeros(size, dtype=bool)
        moves_second[e.parent[~e.is_discounted]] = True
        of_first = (self.variance + one.variance[first] - two.variance[second]) / 2
        of_first = np.where(graph.is_half | graph.is_together, self.variance, np.where(moves_second, 0.0, of_first))
        first[: len(roots)] = second[: len(roots)] = roots
        parts, nodes = np.concatenate([of_first, self.variance - of_first]), np.tile(np.arange(size), 2)
        self.states = sp.csr_array((parts, (np.concatenate([first, second]), nodes)), shape=(states, size))

    def left(self, at: Floats, discount: float) -> Floats:
        """A bound on what can still come; without a discount there is none."""
        if discount == 1:
            return np.full(at.shape[1], np.inf)
        return at.sum(axis=0) * 2 * self.variance.max() / (1 - discount**2)


def _values_ahead(graph: PairGraph, size: int, horizon: int | None) -> list[tuple[_Branch, _Branch]]:
    """By the number of steps that are left, from 0; without a horizon, what stays the same."""
    one, two = (_ahead(out, graph, size, horizon) for out in graph.outcomes)
    return list(zip(one, two, strict=True))


def _ahead(out: Outcomes, graph: PairGraph, size: int, horizon: int | None) -> list[_Branch]:
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
