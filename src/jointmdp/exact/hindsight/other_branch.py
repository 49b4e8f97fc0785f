"""Which outcome each scenario gives a branch, state by state: scenarios that lead alike count as one.

Another branch beside the seen one, step by step: where it can be, and how the two move.

A node at time t is a place of the seen branch and a state y of the other. Where they share their noise the other meets
the posterior ``q_t`` of the place, elsewhere ``p(·|y)``; where state and action coincide the two are one from then on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from jointmdp.exact.bellman.pair_step import Outcomes, branch_outcomes
from jointmdp.exact.hindsight.scenario_posteriors import SeenPaths, SeenStep
from jointmdp.exact.hindsight.trajectory import UNSEEN
from jointmdp.ground.arrays import Bools, Floats, Ints, summed
from jointmdp.model.joint_mdp import JointMDP


class StateCells(NamedTuple):
    """Outcomes of one state."""

    cells: Ints  # [W, B]
    actions: Ints  # [B]
    chances: Floats  # [B]
    rewards: Floats  # [O]
    successors: Ints  # [O]


class CellTable(NamedTuple):
    """Outcomes of some states, numbered within each state."""

    cells: Ints  # [n, W, B] the outcome of each scenario and each action that the policy takes
    actions: Ints  # [n, B] these actions, padded with the first
    chances: Floats  # [n, B] of them; 0 for padding
    rewards: Floats  # [n, O]
    successors: Ints  # [n, O]


class OutcomeCells:
    """Made for a state when it is first asked for, and kept."""

    def __init__(self, model: JointMDP, policy: Floats) -> None:
        self.model, self.policy = model, policy
        self.most = int((policy > 0).sum(axis=1).max())
        self._known: dict[int, StateCells] = {}

    def of(self, states: Ints) -> CellTable:
        """Of these states, in this order."""
        found = [self._of_state(state) for state in states.tolist()]
        most = max(len(each.rewards) for each in found)
        rewards, successors = np.zeros((len(found), most)), np.zeros((len(found), most), dtype=np.int64)
        for i, each in enumerate(found):
            rewards[i, : len(each.rewards)], successors[i, : len(each.rewards)] = each.rewards, each.successors
        cells, actions = np.stack([each.cells for each in found]), np.stack([each.actions for each in found])
        return CellTable(cells, actions, np.stack([each.chances for each in found]), rewards, successors)

    def _of_state(self, state: int) -> StateCells:
        if state not in self._known:
            self._known[state] = self._made(state)
        return self._known[state]

    def _made(self, state: int) -> StateCells:
        taken = np.flatnonzero(self.policy[state])
        actions = np.append(taken, np.full(self.most - len(taken), taken[0]))
        chances = np.append(self.policy[state, taken], np.zeros(self.most - len(taken)))
        paid, to = (table[state][:, actions].ravel() for table in (self.model.rewards, self.model.successors))
        order = np.lexsort((paid, to))
        is_new = np.append(True, (np.diff(to[order]) != 0) | (np.diff(paid[order]) != 0))
        cells = np.empty(len(order), dtype=np.int64)
        cells[order] = np.cumsum(is_new) - 1
        kept = order[is_new]
        return StateCells(cells.reshape(-1, self.most), actions, chances, paid[kept], to[kept])


ONE = -1  # the child where both branches are one
SAME = 1e-15  # probabilities that differ by rounding alone


@dataclass(frozen=True, eq=False, repr=False)
class OtherBranch:
    """What is done instead: an action first, or none; then a policy."""

    model: JointMDP
    policy: Floats  # [S, A]
    action: int | None
    can_merge: bool
    """Whether branches that coincide are one; not where whole policies are compared."""

    @cached_property
    def outcomes(self) -> Outcomes:
        """What the policy does with noise of its own."""
        is_timed = self.model.sharing == "time"
        return branch_outcomes(self.model.with_sharing("none") if is_timed else self.model, self.policy)

    @cached_property
    def cells(self) -> OutcomeCells:
        """What it does with noise that is given."""
        return OutcomeCells(self.model, self.policy)


class Nodes(NamedTuple):
    """Nodes of one time, sorted."""

    place: Ints  # [m]
    state: Ints  # [m] of the other branch
    chance: Floats  # [m] given what was seen


class PairedMoves(NamedTuple):
    """How nodes of one time move to those of the next, sorted by parent."""

    parent: Ints
    weight: Floats
    gain: Floats  # what the other branch is paid
    loss: Floats  # what the seen branch was paid
    child: Ints  # ONE where the branches are one
    place: Ints  # of the seen branch at the next time


class SeenMoves(NamedTuple):
    """How places move on, sorted by place; equal moves counted once."""

    start: Ints  # [K+1] where those of each place begin
    of_scenario: Ints  # [K, W] which of them a scenario is, counted within the place
    place: Ints  # at the next time
    weight: Floats
    reward: Floats


class Walk(NamedTuple):
    """Both branches over all steps that were seen."""

    nodes: tuple[Nodes, ...]  # at the times 0..T
    moves: tuple[PairedMoves, ...]  # between them
    seen: tuple[SeenMoves, ...]
    merged: tuple[Floats, ...]  # [K] at the times 0..T: the chance that the branches are one by then, in this place
    chances: tuple[Floats, ...]  # [K] at the times 0..T: of the places themselves


def walk(paths: SeenPaths, other: OtherBranch) -> Walk:
    """All nodes and moves, forward in time."""
    model, count = other.model, len(paths.lengths)
    nodes = [Nodes(np.arange(count), paths.states[0], np.ones(count))]
    moves: list[PairedMoves] = []
    seen: list[SeenMoves] = []
    merged, chances = [np.zeros(count)], [np.ones(count)]
    for t, step in enumerate(paths.steps):
        goes_on = ~paths.is_last(t)
        number = np.where(goes_on, np.cumsum(goes_on) - 1, UNSEEN)  # of places among those of the step
        own = seen_moves(model, step)
        is_first = t == 0 and other.action is not None
        found = _moves(nodes[-1], number, step, own, other, is_first=is_first)
        after = _reached(found, nodes[-1], model.num_states)
        size = len(paths.states[t + 1])
        is_one = found.child == ONE
        together = summed(found.place[is_one], _flow(found, nodes[-1])[is_one], size)
        before = np.repeat(np.arange(len(own.start) - 1), np.diff(own.start))
        together += summed(own.place, own.weight * merged[-1][goes_on][before], size)
        chances.append(summed(own.place, own.weight * chances[-1][goes_on][before], size))
        nodes.append(after)
        moves.append(found)
        seen.append(own)
        merged.append(together)
    return Walk(tuple(nodes), tuple(moves), tuple(seen), tuple(merged), tuple(chances))


def seen_moves(model: JointMDP, step: SeenStep) -> SeenMoves:
    """How each place moves on, given what was seen."""
    k, w = np.nonzero(step.posterior > 0)
    to, paid = step.after[k, w], model.rewards[step.state[k], w, step.action[k]]
    order = np.lexsort((paid, to, k))
    k, w, to, paid, weight = k[order], w[order], to[order], paid[order], step.posterior[k, w][order]
    is_new = np.append(True, (np.diff(k) != 0) | (np.diff(to) != 0) | (np.diff(paid) != 0)) if len(k) else k == 0
    weight = summed(np.cumsum(is_new) - 1, weight, int(is_new.sum()))
    start = np.searchsorted(k[is_new], np.arange(len(step.state) + 1))
    of_scenario = np.zeros(step.posterior.shape, dtype=np.int64)
    of_scenario[k, w] = np.cumsum(is_new) - 1 - start[k]
    return SeenMoves(start, of_scenario, to[is_new], weight, paid[is_new])


def _flow(moves: PairedMoves, nodes: Nodes) -> Floats:
    return np.asarray(moves.weight * nodes.chance[moves.parent])


def _reached(moves: PairedMoves, nodes: Nodes, size: int) -> Nodes:
    """The nodes that moves lead to; `moves.child` is numbered in place."""
    goes = moves.child != ONE
    codes, child = np.unique(moves.child[goes], return_inverse=True)
    chance = summed(child, _flow(moves, nodes)[goes], len(codes))
    moves.child[goes] = child
    return Nodes(*np.divmod(codes, size), chance)


def _moves(  # many parameters: where both are, what is known, and what the other does
    nodes: Nodes,
    number: Ints,
    step: SeenStep,
    own: SeenMoves,
    other: OtherBranch,
    *,
    is_first: bool,
) -> PairedMoves:
    """All moves of a step; children are still coded as place · states + state."""
    model = other.model
    live = np.flatnonzero(number[nodes.place] != UNSEEN)
    k, y = number[nodes.place[live]], nodes.state[live]
    together = step.state[k] == y
    shares = together if model.sharing == "state" else np.full(len(k), model.sharing == "time")
    shares = shares & (together | ~_says_nothing(model, step, own)[k])
    some = np.flatnonzero(shares)
    first = (np.arange(model.num_actions) == other.action).astype(np.float64)
    rows = np.tile(first, (len(live), 1)) if is_first else other.policy[y]
    parts = []
    if other.can_merge and model.sharing != "none":
        parts.append(_merging(live, k, together, rows, step, own))
        rows = np.where(together[:, None] & (np.arange(model.num_actions) == step.action[k][:, None]), 0.0, rows)
    if is_first:
        parts.append(_shared_first(live[some], k[some], y[some], rows[some], step, model))
    else:
        parts.append(_shared(live[some], k[some], y[some], rows[some], step, own, other.cells))
    rest = np.flatnonzero(~shares)
    if is_first:
        i, w, b = np.nonzero((model.probabilities[y[rest]] > 0)[:, :, None] & (rows[rest] > 0)[:, None, :])
        at = (y[rest][i], w, b)
        weight = model.probabilities[at[:2]] * rows[rest][i, b]
        parts.append(_apart(live[rest], k[rest], i, weight, model.rewards[at], model.successors[at], own, model))
    else:
        out = other.outcomes
        i, o = np.nonzero(out.weights[0][y[rest]] > 0)
        at = (np.zeros_like(o), y[rest][i], o)
        parts.append(_apart(live[rest], k[rest], i, out.weights[at], out.rewards[at], out.successors[at], own, model))
    found = PairedMoves._make(np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(found.parent, kind="stable")
    return PairedMoves._make(column[order] for column in found)


def _merging(nodes: Ints, k: Ints, together: Bools, rows: Floats, step: SeenStep, own: SeenMoves) -> PairedMoves:
    """The other does what was done, in the same state: from now on both are one."""
    chance = np.where(together, rows[np.arange(len(k)), step.action[k]], 0.0)
    i, e = _entries(own.start, k, np.flatnonzero(chance > 0))
    paid = own.reward[e]
    return PairedMoves(nodes[i], chance[i] * own.weight[e], paid, paid, np.full(len(i), ONE), own.place[e])


def _says_nothing(model: JointMDP, step: SeenStep, own: SeenMoves) -> Bools:
    """Places that move in one way whatever the scenario: then shared noise is as good as one's own."""
    is_open = np.all(np.abs(step.posterior - model.probabilities[step.state]) <= SAME, axis=1)
    return np.asarray(is_open & (np.diff(own.start) == 1))


def _shared(  # many parameters: where both are, what is known, and what the other does
    nodes: Ints, k: Ints, y: Ints, rows: Floats, step: SeenStep, own: SeenMoves, cells: OutcomeCells
) -> PairedMoves:
    """Both meet the same scenario, of which the posterior is known; scenarios that lead alike are one move."""
    if not len(nodes):
        none = np.zeros(0, dtype=np.int64)
        return PairedMoves(none, np.zeros(0), np.zeros(0), np.zeros(0), none, none)
    states, which = np.unique(y, return_inverse=True)
    table = cells.of(states)
    place, w = np.nonzero(step.posterior > 0)
    start = np.searchsorted(place, np.arange(len(step.state) + 1))
    i, entry = _entries(start, k, np.arange(len(k)))
    w, chance, move = w[entry], step.posterior[place, w][entry], own.of_scenario[place, w][entry]
    most_moves, most = int(np.diff(own.start).max()), table.rewards.shape[1]
    base = (i * most_moves + move) * most
    total = np.zeros(len(k) * most_moves * most)
    for slot in range(table.actions.shape[1]):
        taken = np.where(table.chances[which, slot] > 0, rows[np.arange(len(k)), table.actions[which, slot]], 0.0)
        total += summed(base + table.cells[which[i], w, slot], chance * taken[i], len(total))
    code = np.flatnonzero(total)
    i, rest = np.divmod(code, most_moves * most)
    move, outcome = np.divmod(rest, most)
    e = own.start[k[i]] + move
    child = own.place[e] * cells.model.num_states + table.successors[which[i], outcome]
    return PairedMoves(nodes[i], total[code], table.rewards[which[i], outcome], own.reward[e], child, own.place[e])


def _shared_first(nodes: Ints, k: Ints, y: Ints, rows: Floats, step: SeenStep, model: JointMDP) -> PairedMoves:
    """The same for a first action."""
    i, w, b = np.nonzero((step.posterior[k] > 0)[:, :, None] & (rows > 0)[:, None, :])
    k, y = k[i], y[i]
    weight = step.posterior[k, w] * rows[i, b]
    place = step.after[k, w]
    loss = model.rewards[step.state[k], w, step.action[k]]
    child = place * model.num_states + model.successors[y, w, b]
    return PairedMoves(nodes[i], weight, model.rewards[y, w, b], loss, child, place)


def _apart(  # many parameters: the moves of one branch as columns, and those of the other
    nodes: Ints, k: Ints, i: Ints, weight: Floats, gain: Floats, to: Ints, own: SeenMoves, model: JointMDP
) -> PairedMoves:
    """The other meets noise of its own: move ``j`` is one of node ``i[j]``."""
    j, e = _entries(own.start, k[i], np.arange(len(i)))
    place = own.place[e]
    child = place * model.num_states + to[j]
    return PairedMoves(nodes[i[j]], weight[j] * own.weight[e], gain[j], own.reward[e], child, place)


def _entries(start: Ints, k: Ints, chosen: Ints) -> tuple[Ints, Ints]:
    """For each entry of the rows ``k[chosen]``: the number in `chosen` it belongs to, and its own place."""
    lengths = start[k[chosen] + 1] - start[k[chosen]]
    which = np.repeat(chosen, lengths)
    before = np.repeat(np.cumsum(lengths) - lengths, lengths)
    return which, np.arange(int(lengths.sum())) - before + start[k[which]]
