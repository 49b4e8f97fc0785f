"""Problems of mdpax as joint models: the random event that its transitions are functions of is the noise.

An mdpax problem lists its states, actions and random events, and the outcome of each event for each action. Where the
chances of events depend on the action (a forest that is cut does not burn), actions do not see the same event, and
are coupled by inversion: one uniform runs through each action's events in listed order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jointmdp.ground import checks
from jointmdp.ground.arrays import Bools, Floats, Ints, users_calls
from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import ModelError
from jointmdp.ground.progress import Meter
from jointmdp.model.action_laws import ActionLaws, laws_from_entries, merged_by_state, merged_everywhere
from jointmdp.model.couplings import MAX_ENTRIES, Coupling, coupled_tables
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.tables import ScenarioTables, blank_tables

SUM_TOLERANCE = 1e-4  # mdpax computes in single precision by default, and allows its own matrices this much
PARTS = ("state_space", "action_space", "random_event_space", "transition", "random_event_probability")
BATCH = 2**18  # outcomes that are asked for at a time
LANES = 2**14  # outcomes that are computed side by side


class EventOutcomes(NamedTuple):
    """What possible events do to states and actions that were asked about, in the order of states and actions."""

    states: Ints  # [N]
    actions: Ints  # [N]
    events: Ints  # [N]
    chances: Floats  # [N]
    rewards: Floats  # [N]
    successors: Ints  # [N]

    def of_states(self, block: slice) -> EventOutcomes:
        """Those of some states, which are numbered from 0."""
        part = slice(*np.searchsorted(self.states, [block.start, block.stop]).tolist())
        found = EventOutcomes._make(column[part] for column in self)
        return found._replace(states=found.states - block.start)


class ListedProblem:
    """An mdpax problem with its lists as arrays."""

    def __init__(self, problem: Any) -> None:
        for name in PARTS:
            if not hasattr(problem, name):
                raise ModelError(f"{problem!r} is no mdpax problem: it has no {name}")
        self.problem = problem
        self.states, self.actions, self.events = (np.asarray(getattr(problem, name)) for name in PARTS[:3])
        self._asked = jax.jit(self._many, static_argnums=2)

    def _many(self, states: Any, actions: Any, lanes: int) -> Any:
        """Successor, reward, chance and the successor's index of every event for pairs of state and action."""

        def outcome(state: Any, action: Any, event: Any) -> Any:
            after, reward = self.problem.transition(state, action, event)
            chance = self.problem.random_event_probability(state, action, event)
            return after, reward, chance, self.problem.state_to_index(after)

        mapped: Any = jax.vmap(outcome, (None, None, 0))
        return jax.lax.map(lambda pair: mapped(*pair, self.events), (states, actions), batch_size=lanes)

    def outcomes(self, states: Ints, actions: Ints) -> EventOutcomes:
        """The checked outcomes of m states with one action each."""
        size = len(self.events)
        lanes = max(1, LANES // size)
        # Of one size for the whole problem, whatever the front: each size is compiled by itself.
        batch = min(max(1, BATCH // (size * lanes)) * lanes, len(self.states) * len(self.actions))
        parts, found = [], 0
        with Meter("asking the problem") as meter:
            for at in range(0, len(states), batch):
                parts.append(self._batch(states[at : at + batch], actions[at : at + batch], batch, min(lanes, batch)))
                found += len(parts[-1].events)
                meter.update((at + batch) / len(states), f"{found:,} outcomes")
        return _joined(parts)

    @users_calls()
    def _batch(self, states: Ints, actions: Ints, batch: int, lanes: int) -> EventOutcomes:
        # Filled up with the first pair, so that every batch is of one size and compiles once.
        rows, acts = (np.pad(part, (0, batch - len(part)), constant_values=part[0]) for part in (states, actions))
        with checks.blamed("the problem's functions failed"):
            parts = self._asked(self.states[rows], self.actions[acts], lanes)
        after, reward, chance, index = (np.asarray(part)[: len(states)] for part in parts)
        shape = (len(states), len(self.events))
        chances, rewards = (part.reshape(shape).astype(np.float64) for part in (chance, reward))
        successors = index.reshape(shape).astype(np.int64)

        def place(at: tuple[int, ...]) -> str:
            return checks.place((states[at[0]], actions[at[0]], *at[1:]), *("state", "action", "event")[: len(at) + 1])

        if at := checks.first_place(~(np.isfinite(chances) & (chances >= 0))):
            raise ModelError(f"the probability of {place(at)} is {chances[at]:g}, negative or not finite")
        sums = chances.sum(axis=1)
        if at := checks.first_place(np.abs(sums - 1) > SUM_TOLERANCE):
            raise ModelError(f"event probabilities of {place(at)} sum to {sums[at]:.6g}, not 1")
        possible = chances > 0
        if at := checks.first_place(possible & ~np.isfinite(rewards)):
            raise ModelError(f"the reward of {place(at)} is {rewards[at]}, not a finite number")
        inside = (successors >= 0) & (successors < len(self.states))
        # An index that was clipped into range points to another state than the one that the transition made.
        is_there = (self.states[np.where(inside, successors, 0)] == after.reshape(*shape, -1)).all(axis=-1)
        if at := checks.first_place(possible & ~(inside & is_there)):
            (label,) = labels(after[at].reshape(1, -1))
            raise ModelError(
                f"{place(at)} leads to {label}, which state_to_index calls {successors[at]}, but the state "
                "space has no such state there"
            )
        row, events = np.nonzero(possible)
        entries = (chances[possible], rewards[possible], successors[possible])
        return EventOutcomes(states[row], actions[row], events, *entries)

    def state_numbers(self, start: Any) -> Ints:
        """The numbers of start states: vectors, or a list of them; numbers stand for states in the problem's order."""
        given = start if isinstance(start, list) else [start]
        places = self._places(self.states)
        found = []
        for state in given:
            key = _key(state)
            if np.ndim(state) == 0 and self.states.shape[1] > 1:
                found.append(checks.as_index("state", key[0], None, len(self.states)))
            elif key in places:
                found.append(places[key])
            else:
                raise ModelError(f"start {state!r} is no state of the problem; its first one is {self._label(0)}")
        if not found:
            raise ModelError("start holds no state; give at least one")
        return np.unique(np.array(found, dtype=np.int64))

    def policy_actions(self, policy: Any, states: Ints) -> Ints:
        """The number of the policy's action in each of the states.

        Given as ``[S]`` numbers or ``[S, d]`` vectors over all states of the problem, or as a function or dictionary of
        state vectors that gives an action's vector (one number where it has one component).
        """
        if isinstance(policy, Mapping):
            by_state = {_key(state): choice for state, choice in policy.items()}
            chosen = [by_state.get(tuple(row)) for row in self.states[states].tolist()]
        elif callable(policy):
            state = 0
            with checks.blamed(lambda: f"the policy failed in state {self._label(state)}"):
                chosen = [policy(self.states[state := s]) for s in states.tolist()]
        else:
            table = np.asarray(policy)
            if table.ndim not in (1, 2) or len(table) != len(self.states) or table.dtype.kind not in "iuf":
                raise ModelError(
                    f"the policy has shape {table.shape}; give one action for each of the {len(self.states)} states, "
                    "as numbers [S] or vectors [S, d], or a function or dictionary of state vectors"
                )
            if table.ndim == 1:
                return np.array([checks.as_index("action", a, None, len(self.actions)) for a in table[states].tolist()])
            chosen = list(table[states])
        places = self._places(self.actions)
        found = np.array([-1 if choice is None else places.get(_key(choice), -1) for choice in chosen], dtype=np.int64)
        if at := checks.first_place(found < 0):
            said = "says nothing" if chosen[at[0]] is None else f"gives {chosen[at[0]]!r}, which is no action,"
            raise ModelError(f"the policy {said} in state {self._label(int(states[at]))}")
        return found

    def _label(self, state: int) -> str:
        return labels(self.states[state : state + 1])[0]

    @staticmethod
    def _places(vectors: Any) -> dict[tuple[Any, ...], int]:
        return {tuple(row): i for i, row in enumerate(vectors.tolist())}


def _key(vector: Any) -> tuple[Any, ...]:
    """A vector as a tuple; one number is a vector of one component."""
    return tuple(np.asarray(vector).reshape(-1).tolist())


def reached_outcomes(problem: ListedProblem, start: Any, policy: Any, limit: int) -> tuple[Ints, EventOutcomes, bool]:
    """The states reached from `start`, their outcomes, and whether that is all: within the limit of outcomes.

    All actions are followed in the start states, and the policy's own afterwards; without a policy all of them.
    """
    front, every = problem.state_numbers(start), np.arange(len(problem.actions))
    seen = np.zeros(len(problem.states), dtype=bool)
    seen[front] = True
    parts: list[EventOutcomes] = []
    entries = 0
    while len(front):
        if policy is None or not parts:
            states, actions = np.repeat(front, len(every)), np.tile(every, len(front))
        else:
            states, actions = front, problem.policy_actions(policy, front)
        parts.append(problem.outcomes(states, actions))
        entries += len(parts[-1].events)
        after = np.unique(parts[-1].successors)
        front = after[~seen[after]]
        seen[front] = True
        if entries > limit:
            break
    found = _joined(parts)
    order = np.lexsort((found.actions, found.states))
    found = EventOutcomes._make(column[order] for column in found)
    return np.flatnonzero(seen), found, entries <= limit and not len(front)


def _joined(parts: list[EventOutcomes]) -> EventOutcomes:
    return EventOutcomes(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def labels(vectors: Any) -> list[str]:
    """Vectors in words."""
    rows = np.asarray(vectors).tolist()
    return [str(row[0]) if len(row) == 1 else f"({', '.join(map(str, row))})" for row in rows]


SAME_CHANCE = 4 * float(np.finfo(np.float32).eps)  # chances closer than this differ by rounding, not by what they say
BLOCK = 2**22  # table entries that are made and merged at a time


def from_mdpax(  # many parameters: the parts of a model, and which of it is needed
    problem: Any,
    discount: float,
    sharing: Sharing = "time",
    coupling: Coupling = "comonotone",
    *,
    start: Any = None,
    policy: Any = None,
    state_names: Sequence[Any] | None = None,
    action_names: Sequence[Any] | None = None,
    max_entries: int = MAX_ENTRIES,
) -> JointMDP:
    """A joint MDP from an mdpax problem (any object with its methods): states, actions and events are enumerated.

    Each event is a scenario where its chance depends neither on the action nor, under ``sharing="time"``, on the
    state: then the model is exact without a choice of ours. Elsewhere `coupling` says how the actions' events go
    together, as in `from_mdp`; under ``sharing="time"`` all states are put on one grid. Scenarios that give all actions
    the same outcome are merged, which changes nothing: those of a state, under ``sharing="time"`` those that are alike
    in all states.

    Args:
        problem: for example ``mdpax.problems.Forest()``.
        discount, sharing: as in `JointMDP`.
        coupling: as in `from_mdp`, over the events of each action in the problem's order.
        start: a state vector, or a list of them; then the model has only the states that are reached from there.
        policy: with a start, all actions are followed in the start states and the policy's own afterwards; others are
            unavailable there. A solver's ``policy`` ``[S, d]``, action numbers ``[S]``, or a function or dictionary of
            state vectors that gives an action's vector. `mdpax_policy` makes of it a policy for `evaluate`.
        state_names, action_names: by default the problem's vectors, as ``"(2, 0)"``.
        max_entries: the largest table, of events or of scenarios, to build.
    """
    listed = ListedProblem(problem)
    limit, share = checks.as_count("max_entries", max_entries), checks.as_sharing(sharing)
    if policy is not None and start is None:
        raise ModelError("a policy needs a start: which states does it begin in?")
    everyone, num_actions, num_events = len(listed.states), len(listed.actions), len(listed.events)
    if start is None:
        entries = everyone * num_actions * num_events
        if entries > limit:
            raise ModelError(
                f"the problem has S·A·E = {everyone}·{num_actions}·{num_events} = {entries} outcomes, more than "
                f"max_entries = {limit}; {_advice(share, start, policy)}"
            )
        states = np.arange(everyone)
        found = listed.outcomes(np.repeat(states, num_actions), np.tile(np.arange(num_actions), everyone))
    else:
        states, found, is_complete = reached_outcomes(listed, start, policy, limit)
        if not is_complete:
            raise ModelError(
                f"{len(states)} states are found so far from the start, with more than max_entries = {limit} outcomes; "
                f"{_advice(share, start, policy)}"
            )
    rank = np.cumsum(np.isin(np.arange(everyone), states)) - 1
    found = found._replace(states=rank[found.states], successors=rank[found.successors])
    exists = np.zeros((len(states), num_actions), dtype=bool)
    exists[found.states, found.actions] = True
    try:
        tables = _tables(found, exists, num_events, share, coupling, limit)
    except ModelError as error:
        if "max_entries" not in str(error):
            raise
        raise ModelError(f"{error}; {_advice(share, start, policy)}") from None
    return JointMDP(
        *tables,
        discount,
        share,
        available=exists,
        state_names=labels(listed.states[states]) if state_names is None else state_names,
        action_names=labels(listed.actions) if action_names is None else action_names,
    )


def mdpax_policy(problem: Any, policy: Any, model: JointMDP | None = None) -> Ints:
    """The number of a policy's action in each state ``[S]``: of an mdpax problem, or of a model made of it.

    The policy is given as in `from_mdpax`. Without a model it is one for `mdpax_simulator`.
    """
    listed = ListedProblem(problem)
    if model is None:
        return listed.policy_actions(policy, np.arange(len(listed.states)))
    places: dict[Any, int] = {label: i for i, label in enumerate(labels(listed.states))}
    names: Sequence[Any] = range(model.num_states) if model.state_names is None else model.state_names
    if unknown := [name for name in names if name not in places]:
        raise ModelError(f"state {unknown[0]!r} of the model is not named after a state of the problem")
    return listed.policy_actions(policy, np.array([places[name] for name in names]))


def _advice(share: Sharing, start: Any, policy: Any) -> str:
    """What to do about a model that is too large."""
    said = []
    if start is None or policy is None:
        said.append("give start= and policy=, so that only what the policy reaches from there is enumerated")
    if share == "time":
        said.append('sharing="state" needs fewer scenarios where the chances of events depend on the state')
    return "; ".join([*said, "raise max_entries; or simulate without a table: mdpax_simulator with simulate"])


def _tables(
    found: EventOutcomes, exists: Bools, num_events: int, share: Sharing, coupling: Coupling, limit: int
) -> ScenarioTables:
    """Merged scenario tables, a block of states at a time where states have scenarios of their own."""
    S, A = exists.shape
    step = max(1, BLOCK // (num_events * A))
    blocks = [slice(at, min(at + step, S)) for at in range(0, S, step)]

    def check_entries(W: int) -> None:
        if limit < S * W * A:
            raise ModelError(f"S·W·A = {S}·{W}·{A} = {S * W * A} table entries, more than max_entries = {limit}")

    def chances(block: slice) -> Floats:
        """The chance of each event, ``[n, A, E]``; NaN for actions that do not exist."""
        part = found.of_states(block)
        law = np.where(exists[block, :, None], 0.0, np.full(num_events, np.nan))
        law[part.states, part.actions, part.events] = part.chances
        return law

    def event_tables(block: slice) -> ScenarioTables:
        """With one scenario for each event; chances are those of the first action."""
        part, law = found.of_states(block), chances(block)
        shape = (len(law), num_events, A)
        rewards, successors = np.zeros(shape), np.zeros(shape, dtype=np.int64)
        at = (part.states, part.events, part.actions)
        rewards[at], successors[at] = part.rewards, part.successors
        return law[np.arange(len(law)), exists[block].argmax(axis=1)], rewards, successors

    def laws(block: slice) -> ActionLaws:
        part = found.of_states(block)
        owners = part.states * A + part.actions
        scaled = part.chances / np.bincount(owners, part.chances)[owners]

        def where(s: int, a: int) -> str:
            return checks.place((block.start + s, a), "state", "action")

        return laws_from_entries(owners, scaled, part.rewards, part.successors, exists[block], where)

    # Whether the chances of events do not depend on the action, and on the state either.
    low, high, spread = np.full(num_events, np.inf), np.full(num_events, -np.inf), 0.0
    for block in blocks:
        law = chances(block)
        least, most = np.nanmin(law, axis=1), np.nanmax(law, axis=1)
        low, high = np.minimum(low, least.min(axis=0)), np.maximum(high, most.max(axis=0))
        spread = max(spread, float(np.max(most - least)))
    if share == "time" and np.max(high - low) <= SAME_CHANCE:
        law = chances(slice(0, 1))[0, exists[0].argmax()]
        possible = law > 0
        check_entries(int(possible.sum()))
        parts = [event_tables(block) for block in blocks]
        rewards, successors = (np.concatenate([part[i][:, possible] for part in parts]) for i in (1, 2))
        return merged_everywhere((np.tile(law[possible] / law[possible].sum(), (S, 1)), rewards, successors))
    if share == "time" or callable(coupling):  # one grid for all states, or a function that is told the state's number
        tables = coupled_tables(laws(slice(0, S)), coupling, share == "time", limit)
        return merged_everywhere(tables) if share == "time" else merged_by_state(tables)
    made: list[ScenarioTables] = []
    for block in blocks:
        is_event = spread <= SAME_CHANCE
        own = event_tables(block) if is_event else coupled_tables(laws(block), coupling, False, max(limit, BLOCK))
        made.append(merged_by_state(own))
        check_entries(max(part[0].shape[1] for part in made))
    # Blocks below each other, filled up to the largest number of scenarios.
    filled = blank_tables(S, max(part[0].shape[1] for part in made), A)
    for block, part in zip(blocks, made, strict=True):
        for table, rows in zip(filled, part, strict=True):
            table[block, : rows.shape[1]] = rows
    law, rewards, successors = filled
    # Scenarios of chance zero, which inside of a block stay in the block's own states, stay where they are.
    successors = np.where(law[:, :, None] > 0, successors, np.arange(S)[:, None, None])
    return law / law.sum(axis=1, keepdims=True), rewards, successors
