"""States that are found on the way: natural ones by calls one at a time, vectors of whole numbers by whole arrays."""

import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jointmdp import checks
from jointmdp.arrays import Bools, Floats, Ints
from jointmdp.errors import ModelError
from jointmdp.model.couplings import words
from jointmdp.model.vector_numbers import VectorNumbers

LARGEST_COMPONENT = 2**40


class NoiseModel(NamedTuple):
    """The functions of a model, and what they are called with."""

    reward: Callable[[Any, Any, Any], Any]
    successor: Callable[[Any, Any, Any], Any]
    noise: list[Any]  # [W]
    actions: list[Any]  # [A]
    policy: Any
    available: Callable[[Any, Any], Any] | None
    action_names: tuple[Any, ...] | None

    def action_index(self, choice: Any) -> int:
        """The index of an action given by value, name or number."""
        if not isinstance(choice, list | np.ndarray) and choice in self.actions:
            return self.actions.index(choice)
        return checks.as_index("action", choice, self.action_names, len(self.actions))


class StateSpace(ABC):
    """States with their numbers, and the model's functions in terms of those."""

    def __init__(self, functions: NoiseModel) -> None:
        self.functions = functions
        self.has_policy = functions.policy is not None
        self.table_shape = (len(functions.noise), len(functions.actions))

    @abstractmethod
    def __len__(self) -> int:
        """How many states are known."""

    @abstractmethod
    def begin(self, start: Any) -> None:
        """Take in the start states."""

    @abstractmethod
    def state(self, number: int) -> Any:
        """The state with this number, as the user writes it."""

    @abstractmethod
    def available(self, first: int, last: int) -> Bools:
        """Which actions the states ``first, …, last − 1`` have, ``[n, A]``."""

    @abstractmethod
    def _policy_rows(self, first: int, legal: Bools) -> Bools:
        """Which actions the policy may take, ``[n, A]``."""

    @abstractmethod
    def outcomes(self, states: Ints, actions: Ints) -> tuple[Floats, Ints]:
        """Rewards and successors ``[m, W]`` of m states with one action each; new successors become known."""

    @abstractmethod
    def _all(self) -> list[Any]:
        """All states, as the user writes them."""

    def chosen(self, first: int, legal: Bools) -> Bools:
        """Which actions the policy may take in the states from `first` on, ``[n, A]``; none where the end is."""
        taken = self._policy_rows(first, legal)
        if at := checks.first_place(taken & ~legal & legal.any(axis=1, keepdims=True)):
            raise ModelError(
                f"the policy takes action {self.functions.actions[at[1]]!r} in state {self.state(first + at[0])!r}, "
                "which is not available there"
            )
        return taken & legal

    def named(self) -> tuple[Ints | None, Sequence[Any] | None]:
        """The order of the states in the model, None where it is that of discovery; and their names."""
        states = self._all()
        numbers = [s for s in states if isinstance(s, int | float)]
        if not numbers:
            return None, states
        if len(numbers) < len(states) or sorted(numbers) != list(range(len(states))):
            shown = f"{', '.join(map(repr, states[:8]))}{'…' * (len(states) > 8)}"
            raise ModelError(
                f"states that are numbers must turn out to be 0, 1, 2, … without gaps, since a number is an index, but "
                f"here they are {shown}; write them as tuples, (7,) for 7, or as text"
            )
        return np.argsort(np.array(numbers)), None

    def _check_rewards(self, gains: Floats, states: Ints, actions: Ints) -> None:
        if at := checks.first_place(~np.isfinite(gains)):
            where = self._place(int(states[at[0]]), int(actions[at[0]]), self.functions.noise[at[1]])
            raise ModelError(f"the reward of {where} is {gains[at]}, not a finite number")

    def _place(self, state: int, action: int, noise: Any) -> str:
        return (
            f"state {reprlib.repr(self.state(state))}, action {reprlib.repr(self.functions.actions[action])}, "
            f"noise {reprlib.repr(noise)}"
        )


class NamedStates(StateSpace):
    """Any fixed values, one call for each state, action and noise value."""

    def __init__(self, functions: NoiseModel) -> None:
        super().__init__(functions)
        self._states: list[Any] = []
        self._places: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self._states)

    def begin(self, start: Any) -> None:
        """Take in the start states."""
        for state in _listed(start):
            self._number(state)

    def _number(self, state: Any) -> int:
        """The number of a state; a new one is numbered on."""
        state = checks.as_fixed(state)
        try:
            found = self._places.setdefault(state, len(self._states))
        except TypeError:
            raise ModelError(
                f"state {state!r} cannot be looked up; states are tuples, text or other fixed values"
            ) from None
        if found == len(self._states):
            self._states.append(state)
        return found

    def state(self, number: int) -> Any:
        """The state with this number."""
        return self._states[number]

    def _all(self) -> list[Any]:
        return self._states

    def available(self, first: int, last: int) -> Bools:
        """Which actions the states have."""
        legal = np.ones((last - first, self.table_shape[1]), dtype=bool)
        if self.functions.available is not None:
            for i, state in enumerate(self._states[first:last]):
                for a, action in enumerate(self.functions.actions):
                    try:
                        legal[i, a] = bool(self.functions.available(state, action))
                    except Exception as error:
                        where = f"available failed for state {state!r}, action {action!r}"
                        raise ModelError(f"{where}: {words(error)}") from error
        return legal

    def _policy_rows(self, first: int, legal: Bools) -> Bools:
        return asked_policy(self.functions, self._states[first : first + len(legal)], legal)

    def outcomes(self, states: Ints, actions: Ints) -> tuple[Floats, Ints]:
        """Rewards and successors by single calls."""
        reward, successor, noise, values, *_ = self.functions
        gains = np.zeros((len(states), len(noise)))
        targets = np.zeros(gains.shape, dtype=np.int64)
        for i, (s, a) in enumerate(zip(states.tolist(), actions.tolist(), strict=True)):
            for w, u in enumerate(noise):
                asked = "reward"
                try:
                    gains[i, w] = reward(self._states[s], values[a], u)
                    asked = "successor"
                    targets[i, w] = self._number(successor(self._states[s], values[a], u))
                except Exception as error:
                    raise ModelError(f"the {asked} of {self._place(s, a, u)} failed: {words(error)}") from error
        self._check_rewards(gains, states, actions)
        return gains, targets


def asked_policy(functions: NoiseModel, states: Sequence[Any], legal: Bools) -> Bools:
    """The actions that a function of one state, or a dictionary, may take in each of the states."""
    taken = np.zeros(legal.shape, dtype=bool)
    for i, state in enumerate(states):
        if not legal[i].any():  # the end, where there is nothing to choose
            continue
        try:
            if isinstance(functions.policy, Mapping):
                if state not in functions.policy:
                    raise ModelError("the dictionary has no such state; give an action for each state that it reaches")
                choice = functions.policy[state]
            else:
                choice = functions.policy(state)
            taken[i] = _support(functions, choice)
        except Exception as error:
            raise ModelError(f"the policy failed in state {state!r}: {words(error)}") from error
    return taken


def _support(functions: NoiseModel, choice: Any) -> Bools:
    """The actions that have a chance in what a policy gave: an action, ``{action: probability}`` or ``[A]``."""
    count = len(functions.actions)
    if isinstance(choice, Mapping):
        likely = [functions.action_index(a) for a, p in choice.items() if checks.as_probability("a probability", p) > 0]
        return np.isin(np.arange(count), likely)
    is_value = not isinstance(choice, list | np.ndarray) and choice in functions.actions
    if is_value or np.ndim(choice) == 0:
        choice = choice.item() if isinstance(choice, np.ndarray) else choice
        return np.arange(count) == functions.action_index(choice)
    chances = checks.as_floats("the policy's probabilities", choice, "[A]", 1)
    checks.check_shape("the policy's probabilities", chances, (count,), "[A]")
    found: Bools = chances > 0
    return found


class VectorStates(StateSpace):
    """Whole numbers or tuples of them, whole arrays at a time."""

    def __init__(self, functions: NoiseModel) -> None:
        super().__init__(functions)
        self._known = VectorNumbers(0)
        self._is_tuple = True
        self._noise = _columns(functions.noise, lambda part: part[None, :])
        self._actions = _columns(functions.actions, lambda part: part)

    def __len__(self) -> int:
        return len(self._known)

    def begin(self, start: Any) -> None:
        """Take in the start states."""
        given = [checks.as_fixed(state) for state in _listed(start)]
        self._is_tuple = isinstance(given[0], tuple)
        try:
            rows = np.array(given)
            if rows.dtype.kind not in "iu" or rows.ndim != 1 + self._is_tuple:
                raise ValueError("they hold something else")
        except ValueError as error:
            raise ModelError(f"start must be a whole number or a tuple of them, or a list of such: {error}") from None
        self._known = VectorNumbers(rows.shape[1] if self._is_tuple else 1)
        self._known.numbers(self._checked("start", rows.reshape(len(rows), -1)))

    def state(self, number: int) -> Any:
        """The state with this number."""
        row = self._known.rows[number].tolist()
        return tuple(row) if self._is_tuple else row[0]

    def _all(self) -> list[Any]:
        rows = self._known.rows.tolist()
        return list(map(tuple, rows)) if self._is_tuple else [row[0] for row in rows]

    def _arrays(self, rows: Ints, shape: tuple[int, ...]) -> Any:
        """States as the functions take them: one array for each component."""
        parts = tuple(column.reshape(shape) for column in rows.T)
        return parts if self._is_tuple else parts[0]

    def available(self, first: int, last: int) -> Bools:
        """Which actions the states have, by one call."""
        shape = (last - first, self.table_shape[1])
        if self.functions.available is None:
            return np.ones(shape, dtype=bool)
        states = self._arrays(self._known.rows[first:last], (-1, 1))
        actions = _columns(self.functions.actions, lambda part: part[None, :])
        try:
            return np.array(np.broadcast_to(np.asarray(self.functions.available(states, actions), dtype=bool), shape))
        except Exception as error:
            form = f"it gets arrays [n, 1] and [1, A] and gives one that broadcasts to [n, A] = {shape}"
            raise ModelError(f"the vectorised available failed: {words(error)}; {form}") from error

    def _policy_rows(self, first: int, legal: Bools) -> Bools:
        rows = self._known.rows[first : first + len(legal)]
        if isinstance(self.functions.policy, Mapping):
            return asked_policy(self.functions, self._all()[first : first + len(legal)], legal)
        try:
            return self._taken(self.functions.policy(self._arrays(rows, (-1,))), legal)
        except Exception as error:
            form = f"it gets states [n] and gives actions [n] or probabilities [n, A] = {legal.shape}"
            raise ModelError(f"the vectorised policy failed: {words(error)}; {form}") from error

    def _taken(self, choice: Any, legal: Bools) -> Bools:
        """The actions that have a chance in what the policy gave for n states."""
        if not isinstance(choice, tuple) and np.ndim(choice) == 2:
            return np.array(np.broadcast_to(np.asarray(choice) > 0, legal.shape))
        values = self._actions
        if not isinstance(values, tuple):
            values, choice = (values,), (choice,)
        if not isinstance(choice, tuple) or len(choice) != len(values):
            raise ModelError(f"actions are tuples of {len(values)}, so it must give a tuple of as many arrays")
        taken = np.ones(legal.shape, dtype=bool)
        for part, value in zip(choice, values, strict=True):
            taken &= np.broadcast_to(np.asarray(part), legal.shape[:1])[:, None] == value
        if at := checks.first_place(~taken.any(axis=1) & legal.any(axis=1)):
            found = [np.broadcast_to(np.asarray(part), legal.shape[:1])[at].item() for part in choice]
            raise ModelError(f"{found[0] if len(found) == 1 else tuple(found)!r} is none of the actions")
        return taken

    def outcomes(self, states: Ints, actions: Ints) -> tuple[Floats, Ints]:
        """Rewards and successors by one call of each function."""
        shape = (len(states), len(self.functions.noise))
        if not len(states):
            return np.zeros(shape), np.zeros(shape, dtype=np.int64)
        given = (
            self._arrays(self._known.rows[states], (-1, 1)),
            _columns(self.functions.actions, lambda part: part[actions, None]),
            self._noise,
        )
        asked = "reward"
        try:
            gains = np.array(np.broadcast_to(np.asarray(self.functions.reward(*given), dtype=np.float64), shape))
            asked = "successor"
            after = self.functions.successor(*given)
            parts = after if self._is_tuple else (after,)
            width = self._known.rows.shape[1]
            if not isinstance(parts, tuple | list | np.ndarray) or len(parts) != width:
                raise ModelError(f"a state has {width} components, so it must give a tuple of {width} arrays")
            rows = np.stack([np.broadcast_to(np.asarray(part), shape) for part in parts], axis=-1)
        except Exception as error:
            form = (
                f"it gets states and actions [n, 1] and noise [1, W], and what it gives broadcasts to [n, W] = {shape}"
            )
            raise ModelError(f"the vectorised {asked} failed: {words(error)}; {form}") from error
        self._check_rewards(gains, states, actions)
        targets = self._known.numbers(self._checked("successors", rows.reshape(-1, width)))
        return gains, targets.reshape(shape)

    def _checked(self, name: str, rows: Any) -> Ints:
        """State vectors as int64, whole and not too large."""
        with np.errstate(invalid="ignore"):
            whole = np.asarray(rows).astype(np.int64)
        if at := checks.first_place((whole != rows) | (np.abs(whole) > LARGEST_COMPONENT)):
            raise ModelError(
                f"{name} must be whole numbers of at most {LARGEST_COMPONENT:,}, not {rows[at[0]].tolist()}; without "
                "is_vectorised states may be anything"
            )
        return whole


def _listed(start: Any) -> list[Any]:
    """The start states: a list, set or array is several, anything else is one."""
    states = list(start) if isinstance(start, list | set | frozenset | range | np.ndarray) else [start]
    if not states:
        raise ModelError("start holds no state; give at least one")
    return states


def _columns(values: list[Any], shaped: Callable[[Any], Any]) -> Any:
    """Values as an array, tuples of them as a tuple of arrays."""
    if all(isinstance(value, tuple) for value in values):
        return tuple(shaped(np.asarray(part)) for part in zip(*values, strict=True))
    return shaped(np.asarray(values))
