"""What an mdpax problem says of states and actions, one pair of them for each row, as lists of possible events."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from jointmdp import checks
from jointmdp.arrays import Floats, Ints, users_calls
from jointmdp.errors import ModelError
from jointmdp.model.couplings import words
from jointmdp.progress import Meter

SUM_TOLERANCE = 1e-4  # mdpax computes in single precision by default, and allows its own matrices this much
PARTS = ("state_space", "action_space", "random_event_space", "transition", "random_event_probability")
BATCH = 2**18  # outcomes that are asked for at a time
LANES = 2**14  # outcomes that are computed side by side


class EventOutcomes(NamedTuple):
    """The possible events of pairs of a state and an action; pair ``i`` has those from ``starts[i]`` on."""

    states: Ints  # [m]
    actions: Ints  # [m]
    starts: Ints  # [m + 1]
    events: Ints  # [N]
    chances: Floats  # [N]
    rewards: Floats  # [N]
    successors: Ints  # [N]

    @property
    def owners(self) -> Ints:
        """The pair that each outcome belongs to, ``[N]``."""
        return np.repeat(np.arange(len(self.states)), np.diff(self.starts))


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
        # Of one size for the whole problem, whatever the front: each size is compiled anew.
        batch = min(max(1, BATCH // (size * lanes)) * lanes, len(self.states) * len(self.actions))
        parts, found = [], 0
        with Meter("asking the problem") as meter:
            for at in range(0, len(states), batch):
                parts.append(self._batch(states[at : at + batch], actions[at : at + batch], batch, min(lanes, batch)))
                found += len(parts[-1][1])
                meter.update((at + batch) / len(states), f"{found:,} outcomes")
        counts, *entries = (np.concatenate(column) for column in zip(*parts, strict=True))
        return EventOutcomes(states, actions, np.concatenate([[0], np.cumsum(counts)]), *entries)

    @users_calls()
    def _batch(self, states: Ints, actions: Ints, batch: int, lanes: int) -> tuple[Ints, Ints, Floats, Floats, Ints]:
        # Filled up with the first pair, so that every batch is of one size and compiles once.
        rows, acts = (np.pad(part, (0, batch - len(part)), constant_values=part[0]) for part in (states, actions))
        try:
            parts = self._asked(self.states[rows], self.actions[acts], lanes)
        except Exception as error:
            raise ModelError(f"the problem's functions failed: {words(error)}") from error
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
        events = np.nonzero(possible)[1]
        return possible.sum(axis=1), events, chances[possible], rewards[possible], successors[possible]

    def state_numbers(self, start: Any) -> Ints:
        """The numbers of start states: vectors, or a list of them; numbers stand for states in the problem's order."""
        given = start if isinstance(start, list) else [start]
        places = self._places(self.states)
        found = []
        for state in given:
            key = _key(state)
            if len(key) == 1 and np.ndim(state) == 0 and self.states.shape[1] > 1:
                found.append(checks.as_index("state", key[0], None, len(self.states)))
            elif key in places:
                found.append(places[key])
            else:
                (first,) = labels(self.states[:1])
                raise ModelError(f"start {state!r} is no state of the problem; its first one is {first}")
        if not found:
            raise ModelError("start holds no state; give at least one")
        return np.unique(np.array(found, dtype=np.int64))

    def policy_actions(self, policy: Any, states: Ints) -> Ints:
        """The number of the policy's action in each of the states.

        Given as ``[S]`` numbers or ``[S, d]`` vectors over all states of the problem, or as a function or dictionary of
        state vectors that gives an action's vector (one number where it has one component).
        """
        places = self._places(self.actions)
        if isinstance(policy, Mapping):
            by_state = {_key(state): choice for state, choice in policy.items()}
            chosen = [by_state.get(tuple(row)) for row in self.states[states].tolist()]
        elif callable(policy):
            chosen = [self._called(policy, row) for row in self.states[states]]
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
        found = np.array([-1 if choice is None else places.get(_key(choice), -1) for choice in chosen], dtype=np.int64)
        if at := checks.first_place(found < 0):
            (label,) = labels(self.states[states[at]][None])
            said = "says nothing" if chosen[at[0]] is None else f"gives {chosen[at[0]]!r}, which is no action,"
            raise ModelError(f"the policy {said} in state {label}")
        return found

    def _called(self, policy: Any, row: Any) -> Any:
        try:
            return policy(row)
        except Exception as error:
            (label,) = labels(row[None])
            raise ModelError(f"the policy failed in state {label}: {words(error)}") from error

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
    return np.flatnonzero(seen), _joined(parts), entries <= limit and not len(front)


def _joined(parts: list[EventOutcomes]) -> EventOutcomes:
    """All pairs in the order of states and actions."""
    states, actions = (np.concatenate([getattr(part, name) for part in parts]) for name in ("states", "actions"))
    counts = np.concatenate([np.diff(part.starts) for part in parts])
    order = np.lexsort((actions, states))
    starts = np.concatenate([[0], np.cumsum(counts)])
    places = np.repeat(starts[order] - np.concatenate([[0], np.cumsum(counts[order])])[:-1], counts[order])
    places += np.arange(len(places))
    entries = [np.concatenate([part[i] for part in parts])[places] for i in range(3, 7)]
    return EventOutcomes(states[order], actions[order], np.concatenate([[0], np.cumsum(counts[order])]), *entries)


def labels(vectors: Any) -> list[str]:
    """Vectors in words."""
    rows = np.asarray(vectors).tolist()
    return [str(row[0]) if len(row) == 1 else f"({', '.join(map(str, row))})" for row in rows]
