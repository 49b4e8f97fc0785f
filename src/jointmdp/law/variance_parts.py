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

from jointmdp.arrays import Floats, summed
from jointmdp.law.branch_outcomes import Outcomes
from jointmdp.law.fixed_points import fixed_point
from jointmdp.law.reached_pairs import GapBranches, GapQuery, PairGraph, reached_pairs
from jointmdp.law.time_limit import IsOver, OutOfTimeError

MOST_STEPS = 10_000  # that are told apart; what comes later is one part
LITTLE = 1e-13  # of the variance: what is left out at the end


class VarianceParts(NamedTuple):
    """Both sum to the variance."""

    by_step: Floats
    """The last is that of all later steps."""
    by_state: Floats  # [S]


class _Branch(NamedTuple):
    """What one branch expects, and the variance of one step, by state."""

    value: Floats  # [S]
    later: Floats  # [S] after a step
    variance: Floats  # [S]


def variance_parts(
    branches: GapBranches, query: GapQuery, horizon: int | None, memory: int, is_over: IsOver
) -> VarianceParts:
    """Split the variance of one gap."""
    graph = reached_pairs(branches, [query], memory, is_over)
    size, (state, _, _) = branches.model.num_states, query
    e, found = graph.edges, np.zeros(size)
    some, scale = e.child >= 0, np.where(e.is_discounted, graph.discount, 1.0)
    links = (e.weight * scale**2)[some], (e.child[some], e.parent[some])
    forward = sp.csr_array(links, shape=(graph.num_nodes, graph.num_nodes))
    ahead = _values_ahead(graph, size, horizon)
    steps: list[float] = []
    at = np.zeros(graph.num_nodes)
    at[0] = 1.0
    step = _Step(graph, state, ahead[-1])
    for number in range(MOST_STEPS if horizon is None else horizon):
        if is_over():
            raise OutOfTimeError(f"the variance was split over {number:,} steps, and time was over")
        if horizon is not None:
            step = _Step(graph, state, ahead[horizon - number])
        after = forward @ at
        halves = np.where(graph.is_half, after, 0.0)
        steps.append(float((at + halves) @ step.variance))
        found += step.by_state(at + halves, size)
        at = np.where(graph.is_half, 0.0, after) + forward @ halves
        if not at.any() or (horizon is None and step.left(at, graph.discount) <= LITTLE * sum(steps)):
            return VarianceParts(np.array(steps), found)
    if horizon is None:
        rest = fixed_point(forward, at)
        steps.append(float(rest @ step.variance))
        found += step.by_state(rest, size)
    return VarianceParts(np.array(steps), found)


class _Step:
    """The variance of one step of every node, and whose it is."""

    def __init__(self, graph: PairGraph, state: int, ahead: tuple[_Branch, _Branch]) -> None:
        one, two = ahead
        first, second = np.maximum(graph.first, 0), np.maximum(graph.second, 0)
        pairs = graph.discount * (one.later[first] - two.later[second])
        expected = np.where(graph.is_half, one.value[first] - graph.discount * two.later[second], pairs)
        e, size = graph.edges, graph.num_nodes
        change = (e.shift - e.counter) / 2 + np.where(e.child >= 0, expected[np.maximum(e.child, 0)], 0.0)
        mean = summed(e.parent, e.weight * change, size) / summed(e.parent, e.weight, size)
        self.variance = summed(e.parent, e.weight * (change - mean[e.parent]) ** 2, size)
        # Half steps: the second branch moves from a pair, the first from what that comes to. Roots are one state.
        moves_second = np.zeros(size, dtype=bool)
        moves_second[e.parent[~e.is_discounted]] = True
        of_first = (self.variance + one.variance[first] - two.variance[second]) / 2
        of_first = np.where(graph.is_half | graph.is_together, self.variance, np.where(moves_second, 0.0, of_first))
        is_root = np.arange(size) < graph.num_roots
        self.first, self.second = np.where(is_root, state, first), np.where(is_root, state, second)
        self.of_first = np.where(is_root, self.variance, of_first)

    def by_state(self, weight: Floats, size: int) -> Floats:
        """What nodes of so much weight give to each state."""
        second = self.variance - self.of_first
        return summed(self.first, weight * self.of_first, size) + summed(self.second, weight * second, size)

    def left(self, at: Floats, discount: float) -> float:
        """A bound on what can still come."""
        return float(at.sum() * 2 * self.variance.max() / (1 - discount**2))


def _values_ahead(graph: PairGraph, size: int, horizon: int | None) -> list[tuple[_Branch, _Branch]]:
    """By the number of steps that are left, from 0; without a horizon, what stays the same."""
    one, two = (_ahead(out, graph, size, horizon) for out in graph.outcomes)
    return list(zip(one, two, strict=True))


def _ahead(out: Outcomes, graph: PairGraph, size: int, horizon: int | None) -> list[_Branch]:
    weights, rewards = out.chances[:, None, None] * out.weights, out.rewards - graph.common
    zero = np.zeros(size)

    def before(later: Floats) -> _Branch:
        returns = rewards + graph.discount * later[out.successors]
        value = np.sum(weights * returns, axis=(0, 2))
        return _Branch(value, later, np.sum(weights * (returns - value[:, None]) ** 2, axis=(0, 2)))

    if horizon is not None:
        found = [_Branch(zero, zero, zero)]
        for _ in range(horizon):
            found.append(before(found[-1].value))
        return found
    here = np.broadcast_to(np.arange(size)[None, :, None], out.successors.shape)
    moves = sp.coo_array((weights.ravel(), (here.ravel(), out.successors.ravel())), shape=(size, size))
    mean = np.sum(weights * rewards, axis=(0, 2))
    return [before(spsolve((sp.eye_array(size) - graph.discount * moves).tocsc(), mean))]
