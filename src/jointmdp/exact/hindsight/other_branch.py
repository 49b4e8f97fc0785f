"""Another branch beside the seen one, step by step.

A node at time t is a place of the seen branch and a state y of the other. Where they share their noise the other meets
the posterior ``q_t`` of the place, elsewhere ``p(·|y)``; where state and action coincide the two are one from then on.
Under Gumbel noise it meets, for each outcome that the seen branch may have got, the law of its own outcome given that.
Scenarios that lead alike count as one.

A branch may also follow a `Plan`, whose choice depends on time, on the place of the seen branch, and on a number that a
node keeps, such as how many changes are left. Then the two may part again after each step, so that they are one only
after the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from jointmdp.exact.bellman.pair_step import Outcomes, branch_outcomes, lists_of_laws, padded_lists
from jointmdp.exact.bellman.pair_sweep import policy_support
from jointmdp.exact.hindsight.logged_trajectories import UNSEEN, SeenSteps
from jointmdp.exact.hindsight.scenario_posteriors import SeenPaths, SeenStep
from jointmdp.ground import checks
from jointmdp.ground.arrays import Bools, Floats, Ints, expand, grouped, summed
from jointmdp.ground.errors import ModelError
from jointmdp.model.gumbel_max import GumbelModel
from jointmdp.model.joint_mdp import JointMDP

ONE = -1  # the child where both branches are one
SAME = 1e-15  # probabilities that differ by rounding alone


class Cells:
    """Which outcome each scenario and each action of a policy has in a state; made when a state is first asked for."""

    def __init__(self, model: JointMDP, policy: Floats) -> None:
        self.model = model
        taken, chances = policy_support(policy)
        self.is_taken = chances > 0  # [S, B] not for padding
        self.actions = np.where(self.is_taken, taken, taken[:, :1])  # [S, B]
        # Memory of states that nobody asks about is not taken.
        self.cells = np.empty((model.num_states, model.num_scenarios, taken.shape[1]), dtype=np.int64)
        self.first = np.full(model.num_states, UNSEEN)  # of the outcomes of a state, which its cells count from
        self.count = np.zeros(model.num_states, dtype=np.int64)
        self.rewards, self.successors = np.zeros(0), np.zeros(0, dtype=np.int64)

    def know(self, states: Ints) -> None:
        """Make the cells of these states, each given once."""
        new = states[self.first[states] == UNSEEN]
        if not len(new):
            return
        tables, at = (self.model.rewards, self.model.successors), (new[:, None], slice(None), self.actions[new])
        paid, to = (table[at].ravel() for table in tables)  # scenarios come last
        row = np.repeat(np.arange(len(new)), len(paid) // len(new))
        order, number = grouped(row, to, paid)
        start = np.append(number[np.searchsorted(row, np.arange(len(new)))], number[-1] + 1)
        self.first[new], self.count[new] = len(self.rewards) + start[:-1], np.diff(start)
        cells = np.empty(len(order), dtype=np.int64)
        cells[order] = number - start[row]
        self.cells[new] = cells.reshape(*self.actions[new].shape, -1).swapaxes(1, 2)
        kept = order[np.diff(number, prepend=-1) > 0]
        self.rewards, self.successors = np.append(self.rewards, paid[kept]), np.append(self.successors, to[kept])


def all_cells(model: JointMDP) -> Cells | None:
    """Those of all actions; Gumbel noise has none."""
    return None if isinstance(model, GumbelModel) else Cells(model, np.ones((model.num_states, model.num_actions)))


class Plan(Protocol):
    """What is done at a known step by nodes in these places and states, which keep these numbers."""

    def __call__(self, t: int, place: Ints, state: Ints, kept: Ints) -> tuple[Floats, Ints]:
        """Probabilities of actions ``[m, A]``, and the numbers that are kept from then on."""


@dataclass(frozen=True, eq=False, repr=False)
class OtherBranch:
    """What is done instead: an action first, or none; then a policy. Or a plan, and after the log a policy."""

    model: JointMDP
    policy: Floats  # [S, A]
    action: int | None
    can_merge: bool
    """Whether branches that coincide are one; not where whole policies are compared."""
    plan: Plan | None = None
    kept: int = 0
    """The number that nodes of a plan keep at first."""
    known: Cells | None = None
    """`Cells` of all actions, where many branches with plans use them."""

    @cached_property
    def first(self) -> OtherBranch:
        """What it does at its first step, as a policy."""
        if self.action is None:
            return self
        row = np.arange(self.model.num_actions) == self.action
        return replace(self, policy=np.tile(row.astype(np.float64), (self.model.num_states, 1)))

    @cached_property
    def outcomes(self) -> Outcomes:
        """What it does with noise of its own."""
        if isinstance(self.model, GumbelModel):
            return padded_lists(lists_of_laws(self.model, self.policy))
        is_timed = self.model.sharing == "time"
        return branch_outcomes(self.model.with_sharing("none") if is_timed else self.model, self.policy)

    @cached_property
    def cells(self) -> Cells:
        """What it does with noise that is given; under a plan, what any action does."""
        if self.plan is None:
            return Cells(self.model, self.policy)
        found = self.known or all_cells(self.model)
        assert found is not None
        return found


class Nodes(NamedTuple):
    """Nodes of one time, sorted."""

    place: Ints  # [m]
    state: Ints  # [m] of the other branch
    chance: Floats  # [m] given what was seen
    kept: Ints  # [m] what a plan wants to know; 0 where there is none


class PairedMoves(NamedTuple):
    """How nodes of one time move to those of the next, sorted by parent."""

    parent: Ints
    weight: Floats
    gain: Floats  # what the other branch is paid
    loss: Floats  # what the seen branch was paid
    child: Ints  # ONE where the branches are one
    place: Ints  # of the seen branch at the next time
    off: Floats  # the weight is off by so much at most, beside rounding of its own size


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
    nodes = [Nodes(np.arange(count), paths.states[0], np.ones(count), np.full(count, other.kept))]
    moves: list[PairedMoves] = []
    seen: list[SeenMoves] = []
    merged, chances = [np.zeros(count)], [np.ones(count)]
    for t, step in enumerate(paths.steps):
        goes_on, now, own = ~paths.is_last(t), nodes[-1], seen_moves(step)
        live, k = _places_in_step(now, goes_on)
        at, y, kept = other if t else other.first, now.state[live], now.kept
        if other.plan is None:
            rows, is_final = at.policy[y], np.ones(len(live), dtype=bool)
        else:
            rows, kept = other.plan(t, now.place[live], y, now.kept[live])
            is_final = paths.lengths[step.which[k]] == t + 1
        found = node_moves(live, k, y, rows, is_final, step, own, at)
        goes, flow = found.child != ONE, found.weight * now.chance[found.parent]
        most = int(kept.max(initial=0)) + 1
        if most > 1:
            full = np.zeros(len(now.place), dtype=np.int64)
            full[live] = kept
            found.child[goes] = found.child[goes] * most + full[found.parent[goes]]
        codes, child = np.unique(found.child[goes], return_inverse=True)
        found.child[goes] = child  # numbered
        pair, kept = np.divmod(codes, most)
        nodes.append(Nodes(*np.divmod(pair, model.num_states), summed(child, flow[goes], len(codes)), kept))
        size, before = len(paths.states[t + 1]), np.repeat(np.arange(len(own.start) - 1), np.diff(own.start))
        together = summed(found.place[~goes], flow[~goes], size)
        merged.append(together + summed(own.place, own.weight * merged[-1][goes_on][before], size))
        chances.append(summed(own.place, own.weight * chances[-1][goes_on][before], size))
        moves.append(found)
        seen.append(own)
    return Walk(tuple(nodes), tuple(moves), tuple(seen), tuple(merged), tuple(chances))


def _places_in_step(nodes: Nodes, goes_on: Bools) -> tuple[Ints, Ints]:
    """The nodes whose trajectory goes on, and the number of their place among those of the step."""
    number = np.where(goes_on, np.cumsum(goes_on) - 1, UNSEEN)[nodes.place]
    live = np.flatnonzero(number != UNSEEN)
    return live, number[live]


def seen_moves(step: SeenStep) -> SeenMoves:
    """How each place moves on, given what was seen."""
    k, w = np.nonzero(step.posterior > 0)
    to, paid = step.after[k, w], step.rewards[k, w]
    order, number = grouped(k, to, paid)
    kept = order[np.diff(number, prepend=-1) > 0]
    weight = summed(number, step.posterior[k, w][order], len(kept))
    start = np.searchsorted(k[kept], np.arange(len(step.state) + 1))
    of_scenario = np.zeros(step.posterior.shape, dtype=np.int64)
    of_scenario[k[order], w[order]] = number - start[k[order]]
    return SeenMoves(start, of_scenario, to[kept], weight, paid[kept])


def node_moves(  # many parameters: nodes, what they do, what was seen, and the branch
    nodes: Ints, k: Ints, y: Ints, rows: Floats, is_final: Bools, step: SeenStep, own: SeenMoves, other: OtherBranch
) -> PairedMoves:
    """All moves of `nodes`, which are in the places k of a step and in the states y and take actions by `rows`.

    Children are still coded as place · states + state. Only nodes that are `is_final` can become one with the seen.
    """
    model = other.model
    together = step.state[k] == y
    shares = together if model.sharing == "state" else np.full(len(k), model.sharing == "time")
    # Where nothing was learnt of the noise and all of it moves the place in one way, one's own is as good.
    is_open = np.all(np.abs(step.posterior - step.prior) <= SAME, axis=1)
    shares = shares & (together | ~(is_open & (np.diff(own.start) == 1))[k])
    parts = []
    if other.can_merge and model.sharing != "none":
        merges = together & is_final
        parts.append(_merging(nodes, k, merges, rows, step, own))
        rows = np.where(merges[:, None] & (np.arange(model.num_actions) == step.action[k][:, None]), 0.0, rows)
    some, rest = np.flatnonzero(shares), np.flatnonzero(~shares)
    if len(some):
        together_on = _given_outcomes if isinstance(model, GumbelModel) else _shared
        parts.append(together_on(nodes[some], k[some], y[some], rows[some], step, own, other))
    parts.append(_apart(nodes[rest], k[rest], y[rest], rows[rest], own, other))
    found = PairedMoves._make(np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(found.parent, kind="stable")
    return PairedMoves._make(column[order] for column in found)


def _merging(nodes: Ints, k: Ints, merges: Bools, rows: Floats, step: SeenStep, own: SeenMoves) -> PairedMoves:
    """The other does what was done, in the same state: from now on both are one."""
    chance = np.where(merges, rows[np.arange(len(k)), step.action[k]], 0.0)
    some = np.flatnonzero(chance > 0)
    i, e = expand(own.start, k[some])
    i = some[i]
    paid = own.reward[e]
    weight = chance[i] * own.weight[e]
    return PairedMoves(nodes[i], weight, paid, paid, np.full(len(i), ONE), own.place[e], np.zeros(len(i)))


def _shared(  # many parameters: where both are, what is known, and what the other does
    nodes: Ints, k: Ints, y: Ints, rows: Floats, step: SeenStep, own: SeenMoves, other: OtherBranch
) -> PairedMoves:
    """Both meet the same scenario, of which the posterior is known; scenarios that lead alike are one move."""
    place, w = np.nonzero(step.posterior > 0)
    start = np.searchsorted(place, np.arange(len(step.state) + 1))
    i, entry = expand(start, k)
    w, chance, move = w[entry], step.posterior[place, w][entry], own.of_scenario[place, w][entry]
    most = int(np.diff(own.start).max())
    i, move, weight, o = _met(i, w, chance, move, most, y, rows, other.cells)
    e = own.start[k[i]] + move
    child = own.place[e] * other.model.num_states + other.cells.successors[o]
    paid = other.cells.rewards[o], own.reward[e]
    return PairedMoves(nodes[i], weight, *paid, child, own.place[e], np.zeros(len(i)))


def _met(  # many parameters: who meets which scenario, in which group, and what is done in it
    i: Ints, w: Ints, chance: Floats, group: Ints, groups: int, y: Ints, rows: Floats, table: Cells
) -> tuple[Ints, Ints, Floats, Ints]:
    """Of nodes i that meet scenarios w: which outcomes they come to within each group, and how likely."""
    table.know(np.unique(y))
    most = int(table.count[y].max(initial=0))
    base = (i * groups + group) * most
    total = np.zeros(len(y) * groups * most)
    for slot in range(table.actions.shape[1]):
        taken = np.where(table.is_taken[y, slot], rows[np.arange(len(y)), table.actions[y, slot]], 0.0)
        if taken.any():
            total += summed(base + table.cells[y[i], w, slot], chance * taken[i], len(total))
    code = np.flatnonzero(total)
    i, rest = np.divmod(code, max(groups * most, 1))
    group, outcome = np.divmod(rest, max(most, 1))
    return i, group, total[code], table.first[y[i]] + outcome


def _given_outcomes(  # many parameters: where both are, what is known, and what the other does
    nodes: Ints, k: Ints, y: Ints, rows: Floats, step: SeenStep, own: SeenMoves, other: OtherBranch
) -> PairedMoves:
    """Both meet the same Gumbel noise: what the other gets, given each outcome that the seen one may have got."""
    model = other.model
    assert isinstance(model, GumbelModel)
    outcomes = model.outcomes
    place, w = np.nonzero(step.posterior > 0)
    i, entry = expand(np.searchsorted(place, np.arange(len(step.state) + 1)), k)
    taken, action = np.nonzero(rows)
    m, at = expand(np.searchsorted(taken, np.arange(len(k) + 1)), i)
    i, entry, b = i[m], entry[m], action[at]
    seen, w = (step.state * model.num_actions + step.action)[k[i]], w[entry]
    law = y[i] * model.num_actions + b
    # Each question once: nodes of several trajectories ask the same.
    code = (seen * outcomes.width + w) * len(outcomes.starts) + law
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    answer, o, weight, off = outcomes.given(seen[first], w[first], law[first])
    order = np.argsort(answer, kind="stable")
    n, found = expand(np.searchsorted(answer[order], np.arange(len(first) + 1)), which)
    found = order[found]
    chance = (step.posterior[k[i], w] * rows[i, b])[n]
    i, o, e = i[n], o[found], (own.start[k[i]] + own.of_scenario[k[i], w])[n]
    child = own.place[e] * model.num_states + outcomes.successors[o]
    paid = outcomes.rewards[o], own.reward[e]
    return PairedMoves(nodes[i], chance * weight[found], *paid, child, own.place[e], chance * off[found])


def _apart(nodes: Ints, k: Ints, y: Ints, rows: Floats, own: SeenMoves, other: OtherBranch) -> PairedMoves:
    """The other meets noise of its own."""
    if other.plan is None:
        _, weights, rewards, successors = (part[0] for part in other.outcomes)
        i, o = np.nonzero(weights[y] > 0)
        weight, paid, to = (part[y[i], o] for part in (weights, rewards, successors))
    elif isinstance(other.model, GumbelModel):
        i, weight, paid, to = other.model.outcomes.alone(y, rows)
    else:
        chances = other.model.probabilities[y]
        i, w = np.nonzero(chances > 0)
        i, _, weight, o = _met(i, w, chances[i, w], np.zeros_like(i), 1, y, rows, other.cells)
        paid, to = other.cells.rewards[o], other.cells.successors[o]
    j, e = expand(own.start, k[i])
    child = own.place[e] * other.model.num_states + to[j]
    weight = weight[j] * own.weight[e]
    return PairedMoves(nodes[i[j]], weight, paid[j], own.reward[e], child, own.place[e], np.zeros(len(e)))


# -- plans for the steps of a log: a policy that depends on time, and the log itself but for some steps ---------------


class TimedPlan(NamedTuple):
    """A policy that depends on time."""

    rows: Floats  # [T, S, A]

    def __call__(self, t: int, place: Ints, state: Ints, kept: Ints) -> tuple[Floats, Ints]:
        return self.rows[t, state], kept


def as_logged(model: JointMDP, logged: Ints, over: Bools) -> Ints:
    """What a branch does at each step and in each state that does what the log did, ``[T, S]``; −1 where it cannot.

    In states that are over nothing can be done, and any action stands for that.
    """
    can = model.available[:, logged].T
    return np.where(over, np.argmax(model.available, axis=1), np.where(can, logged[:, None], -1))


def but_plan(
    model: JointMDP, seen: SeenSteps, changes: Mapping[int, int], then: Floats, over: Bools, start: int
) -> Plan:
    """The logged actions but at some steps, which count from `start`; after them `then`, ``[S, A]``."""
    does = seen.actions.copy()
    does[list(changes)] = list(changes.values())
    acts = as_logged(model, does, over)

    def plan(t: int, place: Ints, state: Ints, kept: Ints) -> tuple[Floats, Ints]:
        if t >= len(does):  # an episode that is over
            return then[state], kept
        action = acts[t, state]
        if at := checks.first_place(action < 0):
            raise not_available(model, int(state[at]), start + t, int(does[t]))
        return np.eye(model.num_actions)[action], kept

    return plan


def not_available(model: JointMDP, state: int, t: int, action: int) -> ModelError:
    """The log cannot be followed."""
    return ModelError(
        f"the other branch can come to {model.state_label(state)} at step {t}, where {model.action_label(action)} is "
        "not available; give other_policy as a function of time and state, which says what is done there"
    )


def as_changes(model: JointMDP, but: Any, steps: int, start: int) -> dict[int, int]:
    """A dictionary {step: action}, whose steps count from the beginning of the log, by numbers from `start` on."""
    if not isinstance(but, Mapping) or not but:
        raise ModelError(f"but is {but!r}; give what is done instead, and when: {{step: action}}")
    found = {}
    for step, action in but.items():
        t = checks.as_count("a step of but", step, least=start, most=start + steps - 1)
        found[t - start] = model.action_index(action)
    return found


def told(model: JointMDP, changes: Mapping[int, int], start: int) -> str:
    """The log but for these steps, in words."""
    parts = [f"{model.action_label(action)} at step {start + t}" for t, action in sorted(changes.items())]
    return f"the log but {', '.join(parts[:3])}{', …' if len(parts) > 3 else ''}"
