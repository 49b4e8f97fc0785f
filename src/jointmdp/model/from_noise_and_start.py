"""Models from functions of noise, ``R = reward(s, a, u)`` and ``S' = successor(s, a, u)``.

`from_noise` is told how many states there are; `from_sampler` draws the noise itself; `from_start` finds the states
that can be reached from a start, natural ones by calls one at a time, vectors of whole numbers by whole arrays.

States are looked at in the order in which they are found. A state's outcomes are asked for all its actions, or, beyond
the start and where a policy is given, for the policy's own actions alone: then the model holds just what is needed to
evaluate that policy after any first action in a start state.
"""

import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NotRequired, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from jointmdp.ground import checks
from jointmdp.ground.arrays import Bools, Floats, Ints
from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import ModelError
from jointmdp.ground.progress import Meter
from jointmdp.model.couplings import MAX_ENTRIES
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.tables import as_available, blank_tables

NoiseFunction = Callable[[Any, Any, Any], Any]  # state, action, noise

LARGEST_COMPONENT = 2**40


class VectorNumbers:
    """Gives every vector of `width` whole numbers the number 0, 1, 2, … of its first appearance.

    A vector is found by a key of 64 bits, the sum of its components times random odd factors. Two vectors hardly ever
    have one key; where they do, all vectors get other keys.
    """

    def __init__(self, width: int) -> None:
        self._rng = np.random.default_rng(0)
        self._rows: Ints = np.zeros((0, width), dtype=np.int64)
        self._places: dict[int, int] = {}  # the number of each key
        self._factors = self._rng.integers(0, 2**63, width, dtype=np.uint64)

    def __len__(self) -> int:
        return len(self._places)

    @property
    def rows(self) -> Ints:
        """The vectors by number, ``[n, d]``."""
        return self._rows[: len(self)]

    def numbers(self, rows: Ints) -> Ints:
        """The number of each row of ``[k, d]``; new rows are numbered on."""
        known = self.rows
        keys, first, inverse = np.unique(self._keyed(rows), return_index=True, return_inverse=True)
        order = first.argsort()
        of_key = np.empty(len(keys), dtype=np.int64)
        of_key[order] = [self._places.setdefault(key, len(self._places)) for key in keys[order].tolist()]
        if len(self) > len(self._rows):  # doubled, so that many small fronts do not copy everything each time
            room = np.zeros((max(len(self) - len(known), len(known), 64), rows.shape[1]), dtype=np.int64)
            self._rows = np.concatenate([known, room])
        self._rows[len(known) : len(self)] = rows[first[order][of_key[order] >= len(known)]]
        found = of_key[inverse.ravel()]
        if np.array_equal(self._rows.take(found, axis=0), rows):
            return found
        distinct = False
        while not distinct:  # other factors, with which all that were known have keys of their own
            self._factors = self._rng.integers(0, 2**63, (rows.shape[1],), dtype=np.uint64)
            self._places = {key: i for i, key in enumerate(self._keyed(known).tolist())}
            distinct = len(self) == len(known)
        return self.numbers(rows)

    def _keyed(self, rows: Ints) -> Any:
        return rows.view(np.uint64) @ (2 * self._factors + 1)


class NoiseModel(NamedTuple):
    """The functions of a model, and what they are called with."""

    reward: NoiseFunction
    successor: NoiseFunction
    noise: list[Any]  # [W]
    actions: list[Any]  # [A]
    policy: Any = None
    available: Callable[[Any, Any], Any] | None = None
    action_names: tuple[Any, ...] | None = None

    def action_index(self, choice: Any) -> int:
        """The index of an action given by value, name or number."""
        if not isinstance(choice, list | np.ndarray) and choice in self.actions:
            return self.actions.index(choice)
        return checks.as_index("action", choice, self.action_names, len(self.actions))

    def support(self, choice: Any) -> Bools:
        """The actions that have a chance in what a policy gave: an action, ``{action: probability}`` or ``[A]``."""
        count = len(self.actions)
        if isinstance(choice, Mapping):
            likely = [self.action_index(a) for a, p in choice.items() if checks.as_probability("a probability", p) > 0]
            return np.isin(np.arange(count), likely)
        is_value = not isinstance(choice, list | np.ndarray) and choice in self.actions
        if is_value or np.ndim(choice) == 0:
            choice = choice.item() if isinstance(choice, np.ndarray) else choice
            return np.arange(count) == self.action_index(choice)
        chances = checks.as_floats("the policy's probabilities", choice, "[A]", 1)
        checks.check_shape("the policy's probabilities", chances, (count,), "[A]")
        found: Bools = chances > 0
        return found


class NamedStates:
    """States with their numbers, any fixed values; the model's functions are called once for each of what they take."""

    def __init__(self, functions: NoiseModel, number: Callable[[Any], int] | None = None) -> None:
        """`number` gives the number of a state where all are known."""
        self.functions, self._number = functions, number or self._numbered
        self.table_shape = (len(functions.noise), len(functions.actions))
        self._states: list[Any] = []
        self._places: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self._states)

    def begin(self, start: list[Any]) -> None:
        """Take in the start states."""
        for state in start:
            self._numbered(state)

    def _numbered(self, state: Any) -> int:
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

    def states(self, first: int = 0, last: int | None = None) -> list[Any]:
        """The states ``first, …, last − 1``, as the user writes them."""
        return self._states[first:last]

    def available(self, first: int, last: int) -> Bools:
        """Which actions the states ``first, …, last − 1`` have, ``[n, A]``."""
        legal = np.ones((last - first, self.table_shape[1]), dtype=bool)
        if self.functions.available is not None:
            for i, state in enumerate(self._states[first:last]):
                for a, action in enumerate(self.functions.actions):
                    with checks.blamed(f"available failed for state {state!r}, action {action!r}"):
                        legal[i, a] = bool(self.functions.available(state, action))
        return legal

    def chosen(self, first: int, legal: Bools) -> Bools:
        """Which actions the policy may take in the states from `first` on, ``[n, A]``; none where the end is."""
        taken = self._policy_rows(first, legal)
        if at := checks.first_place(taken & ~legal & legal.any(axis=1, keepdims=True)):
            (state,) = self.states(first + at[0], first + at[0] + 1)
            raise ModelError(
                f"the policy takes action {self.functions.actions[at[1]]!r} in state {state!r}, which is not "
                "available there"
            )
        return taken & legal

    def _policy_rows(self, first: int, legal: Bools) -> Bools:
        """The actions that a function of one state, or a dictionary, may take in each of the states."""
        taken, policy = np.zeros(legal.shape, dtype=bool), self.functions.policy
        for i, state in enumerate(self.states(first, first + len(legal))):
            if legal[i].any():  # not the end, where there is nothing to choose
                with checks.blamed(f"the policy failed in state {state!r}"):
                    choice = checks.by_state(policy, state) if isinstance(policy, Mapping) else policy(state)
                    taken[i] = self.functions.support(choice)
        return taken

    def outcomes(self, states: Ints, actions: Ints) -> tuple[Floats, Ints]:
        """Rewards and successors ``[m, W]`` of m states with one action each; new successors become known."""
        reward, successor, noise, values, *_ = self.functions
        gains = np.zeros((len(states), len(noise)))
        targets = np.zeros(gains.shape, dtype=np.int64)
        s, a, w, asked = 0, 0, 0, "reward"
        with checks.blamed(lambda: f"the {asked} of {self._place(s, a, w)} failed"):
            for i, (s, a) in enumerate(zip(states.tolist(), actions.tolist(), strict=True)):
                for w, u in enumerate(noise):
                    asked = "reward"
                    gains[i, w] = reward(self._states[s], values[a], u)
                    asked = "successor"
                    targets[i, w] = self._number(successor(self._states[s], values[a], u))
        self._check_rewards(gains, states, actions)
        return gains, targets

    def named(self) -> tuple[Ints | None, Sequence[Any] | None]:
        """The order of the states in the model, None where it is that of discovery; and their names."""
        states = self.states()
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
            where = self._place(int(states[at[0]]), int(actions[at[0]]), at[1])
            raise ModelError(f"the reward of {where} is {gains[at]}, not a finite number")

    def _place(self, state: int, action: int, noise: int) -> str:
        shown = (*self.states(state, state + 1), self.functions.actions[action], self.functions.noise[noise])
        return checks.place(tuple(map(reprlib.repr, shown)), "state", "action", "noise")


class VectorStates(NamedStates):
    """States that are whole numbers or tuples of them, whole arrays at a time; each function is called once."""

    def __init__(self, functions: NoiseModel, *, is_known: bool = False) -> None:
        """With `is_known` a state is its own number; the model's tables refuse what is none."""
        super().__init__(functions)
        self._known, self._is_tuple, self._is_known = VectorNumbers(0), True, is_known

    def __len__(self) -> int:
        return len(self._known)

    def begin(self, start: list[Any]) -> None:
        """Take in the start states."""
        given = [checks.as_fixed(state) for state in start]
        self._is_tuple = isinstance(given[0], tuple)
        try:
            rows = np.array(given)
            if rows.dtype.kind not in "iu" or rows.ndim != 1 + self._is_tuple:
                raise ValueError("they hold something else")
        except ValueError as error:
            raise ModelError(f"start must be a whole number or a tuple of them, or a list of such: {error}") from None
        self._known = VectorNumbers(rows.shape[1] if self._is_tuple else 1)
        self._known.numbers(self._checked("start", rows.reshape(len(rows), -1)))

    def states(self, first: int = 0, last: int | None = None) -> list[Any]:
        """The states ``first, …, last − 1``."""
        rows = self._known.rows[first:last].tolist()
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
        form = f"it gets arrays [n, 1] and [1, A] and gives one that broadcasts to [n, A] = {shape}"
        with checks.blamed("the vectorised available failed", form):
            return np.array(np.broadcast_to(np.asarray(self.functions.available(states, actions), dtype=bool), shape))

    def _policy_rows(self, first: int, legal: Bools) -> Bools:
        if isinstance(self.functions.policy, Mapping):
            return super()._policy_rows(first, legal)
        form = f"it gets states [n] and gives actions [n] or probabilities [n, A] = {legal.shape}"
        with checks.blamed("the vectorised policy failed", form):
            choice = self.functions.policy(self._arrays(self._known.rows[first : first + len(legal)], (-1,)))
            if not isinstance(choice, tuple) and np.ndim(choice) == 2:
                return np.array(np.broadcast_to(np.asarray(choice) > 0, legal.shape))
            values = _columns(self.functions.actions, lambda part: part)
            if not isinstance(values, tuple):
                values, choice = (values,), (choice,)
            if not isinstance(choice, tuple) or len(choice) != len(values):
                raise ModelError(f"actions are tuples of {len(values)}, so it must give a tuple of as many arrays")
            parts = [np.broadcast_to(np.asarray(part), legal.shape[:1]) for part in choice]
            taken: Bools = np.all([p[:, None] == value for p, value in zip(parts, values, strict=True)], axis=0)
            if at := checks.first_place(~taken.any(axis=1) & legal.any(axis=1)):
                found = tuple(part[at].item() for part in parts)
                raise ModelError(f"{found[0] if len(found) == 1 else found!r} is none of the actions")
        return taken

    def outcomes(self, states: Ints, actions: Ints) -> tuple[Floats, Ints]:
        """Rewards and successors by one call of each function."""
        shape = (len(states), len(self.functions.noise))
        if not len(states):
            return np.zeros(shape), np.zeros(shape, dtype=np.int64)
        given = (
            self._arrays(self._known.rows[states], (-1, 1)),
            _columns(self.functions.actions, lambda part: part[actions, None]),
            _columns(self.functions.noise, lambda part: part[None, :]),
        )
        form = f"it gets states and actions [n, 1] and noise [1, W], and what it gives broadcasts to [n, W] = {shape}"
        with checks.blamed("the vectorised reward failed", form):
            gains = np.array(np.broadcast_to(np.asarray(self.functions.reward(*given), dtype=np.float64), shape))
        with checks.blamed("the vectorised successor failed", form):
            after = self.functions.successor(*given)
            parts = after if self._is_tuple else (after,)
            width = self._known.rows.shape[1]
            if not isinstance(parts, tuple | list | np.ndarray) or len(parts) != width:
                raise ModelError(f"a state has {width} components, so it must give a tuple of {width} arrays")
            rows = np.stack([np.broadcast_to(np.asarray(part), shape) for part in parts], axis=-1)
        self._check_rewards(gains, states, actions)
        if self._is_known:
            return gains, rows[..., 0]
        return gains, self._known.numbers(self._checked("successors", rows.reshape(-1, width))).reshape(shape)

    @staticmethod
    def _checked(name: str, rows: Any) -> Ints:
        """State vectors as int64, whole and not too large."""
        with np.errstate(invalid="ignore"):
            whole = np.asarray(rows).astype(np.int64)
        if at := checks.first_place((whole != rows) | (np.abs(whole) > LARGEST_COMPONENT)):
            raise ModelError(
                f"{name} must be whole numbers of at most {LARGEST_COMPONENT:,}, not {rows[at[0]].tolist()}; without "
                "is_vectorised states may be anything"
            )
        return whole


def _columns(values: list[Any], shaped: Callable[[Any], Any]) -> Any:
    """Values as an array, tuples of them as a tuple of arrays."""
    if all(isinstance(value, tuple) for value in values):
        return tuple(shaped(np.asarray(part)) for part in zip(*values, strict=True))
    return shaped(np.asarray(values))


def from_noise(  # many parameters: the parts of a model
    reward: NoiseFunction,
    successor: NoiseFunction,
    noise: Sequence[Any],
    probabilities: ArrayLike,
    *,
    num_states: int,
    num_actions: int,
    discount: float,
    sharing: Sharing = "state",
    available: ArrayLike | None = None,
    state_names: Sequence[Any] | None = None,
    action_names: Sequence[Any] | None = None,
    is_vectorised: bool = False,
) -> JointMDP:
    """A joint MDP from functions of exogenous noise: ``R = reward(s, a, u)``, ``S' = successor(s, a, u)``.

    Each value ``u`` of ``noise`` is a scenario with its entry of ``probabilities``, the same in every state,
    so every ``sharing`` works. The functions are called once for each state, available action and value; the
    successor is a state's index or name. With ``is_vectorised`` they are called once with arrays, as in `from_start`:
    states and actions ``[n, 1]``, one row for each available action of a state, and noise ``[1, W]``; values that are
    tuples come as a tuple of arrays, and successors are indices.
    """
    S, A = checks.as_count("num_states", num_states), checks.as_count("num_actions", num_actions)
    values, chances = noise_law(noise, probabilities)
    exists = as_available(available, S, A)
    names = checks.as_names("state", state_names, S)
    functions = NoiseModel(reward, successor, values, list(range(A)))
    if is_vectorised:
        space: NamedStates = VectorStates(functions, is_known=True)
    else:
        space = NamedStates(functions, lambda state: checks.as_index("state", state, names, S))
    space.begin(list(range(S)))
    tables = _tables(exists, *space.outcomes(*np.nonzero(exists)))
    law = np.tile(chances, (S, 1))
    return JointMDP(law, *tables, discount, sharing, available=exists, state_names=names, action_names=action_names)


def noise_law(noise: Sequence[Any], probabilities: ArrayLike) -> tuple[list[Any], Floats]:
    """The values of the noise and their checked probabilities, ``[W]``."""
    values = list(noise)
    if not values:
        raise ModelError("the noise has no values; it needs at least one")
    chances = checks.as_floats("probabilities", probabilities, "[W]", 1)
    checks.check_shape("probabilities", chances, (len(values),), "one for each noise value")
    return values, checks.as_law("noise probabilities", "value", np.arange(len(values)), chances)


class NoiseModelSettings(TypedDict):
    """The settings that `from_sampler` hands on to `from_noise`."""

    num_states: int
    num_actions: int
    discount: float
    sharing: NotRequired[Sharing]
    available: NotRequired[ArrayLike | None]
    state_names: NotRequired[Sequence[Any] | None]
    action_names: NotRequired[Sequence[Any] | None]
    is_vectorised: NotRequired[bool]


def from_sampler(
    reward: NoiseFunction,
    successor: NoiseFunction,
    sampler: Callable[[np.random.Generator], Any],
    num_scenarios: int,
    *,
    seed: int,
    **settings: Unpack[NoiseModelSettings],
) -> JointMDP:
    """A joint MDP from functions of noise that can only be sampled, continuous noise for example.

    ``sampler(rng)`` is called ``num_scenarios`` times, once and for all; the values drawn are the scenarios, with equal
    weights. The other settings are those of `from_noise`. What is computed from the model is exact for the sample
    drawn, and an approximation for the noise itself whose error falls like ``1/√num_scenarios``: try several seeds.
    """
    count = checks.as_count("num_scenarios", num_scenarios)
    rng = np.random.default_rng(checks.as_count("seed", seed, 0))
    values = []
    for draw in range(count):
        with checks.blamed(f"the sampler failed on draw {draw}"):
            values.append(sampler(rng))
    return from_noise(reward, successor, values, np.full(count, 1 / count), **settings)


BATCH = 2**20  # outcomes that are asked for at a time


def from_start(  # many parameters: the parts of a model
    reward: NoiseFunction,
    successor: NoiseFunction,
    noise: Sequence[Any],
    probabilities: ArrayLike,
    start: Any,
    *,
    actions: Sequence[Any] | int,
    discount: float,
    sharing: Sharing = "state",
    policy: Any = None,
    available: Callable[[Any, Any], Any] | None = None,
    action_names: Sequence[Any] | None = None,
    is_vectorised: bool = False,
    max_entries: int = MAX_ENTRIES,
) -> JointMDP:
    """A joint MDP of all states that can be reached from `start`: ``R = reward(s, a, u)``, ``S' = successor(s, a, u)``.

    States are tuples, text or other fixed values, and become the names of the model's states, in the order in which
    they are found. Whole numbers must turn out to be 0, 1, 2, … without gaps, since a number is an index.

    Args:
        reward, successor: functions of a state, an action and a noise value.
        noise, probabilities: the values of the noise and their chances, as in `from_noise`.
        start: a state, or a list of states.
        actions: their values, or how many there are. As for states, numbers must be 0, 1, 2, …
        discount, sharing, action_names: as in `JointMDP`.
        policy: without one, all actions are followed everywhere. With one, all actions are followed in the start
            states and the policy's own afterwards; others are unavailable there, since what they lead to is not known.
            A function of the state, or a dictionary, that gives an action, ``{action: probability}`` or ``[A]``
            probabilities.
        available: ``available(s, a)`` says whether an action exists in a state; a state without any is over.
        is_vectorised: states are whole numbers or tuples of them, and functions get arrays that broadcast: states and
            actions ``[n, 1]``, noise ``[1, W]``, those that are tuples as tuples of arrays. `reward` gives ``[n, W]``
            and `successor` the same for each component. `available` gets ``[n, 1]`` and ``[1, A]``. A policy that is a
            function gets states ``[n]`` and gives actions ``[n]`` or probabilities ``[n, A]``.
        max_entries: the largest table ``S·W·A`` to build.
    """
    values, chances = noise_law(noise, probabilities)
    values, chances = [u for u, p in zip(values, chances, strict=True) if p > 0], chances[chances > 0]
    choices = _action_values(actions)
    named = checks.as_names("action", action_names, len(choices))
    if named is None and choices != list(range(len(choices))):
        named = checks.as_names("action", choices, len(choices))
    if policy is not None and not (callable(policy) or isinstance(policy, Mapping)):
        raise ModelError(
            f"the policy must be a function of the state or a dictionary {{state: action}}, not {policy!r}"
        )
    functions = NoiseModel(reward, successor, values, choices, policy, available, named)
    space = (VectorStates if is_vectorised else NamedStates)(functions)
    starts = list(start) if isinstance(start, list | set | frozenset | range | np.ndarray) else [start]
    if not starts:
        raise ModelError("start holds no state; give at least one")
    space.begin(starts)
    limit = checks.as_count("max_entries", max_entries)
    gains, targets, exists = _explored(space, limit)
    order, names = space.named()
    if order is not None:  # states that are their own numbers: the table in their order
        rank = order.argsort()
        gains, targets, exists = gains[order], rank[targets[order]], exists[order]
    law = np.broadcast_to(chances, gains.shape[:2])
    return JointMDP(law, gains, targets, discount, sharing, available=exists, state_names=names, action_names=named)


def _action_values(actions: Sequence[Any] | int) -> list[Any]:
    """What the functions are called with for each action."""
    if isinstance(actions, int | np.integer):
        return list(range(checks.as_count("actions", actions)))
    values = [] if isinstance(actions, str) else [checks.as_fixed(action) for action in actions]
    if not values:
        raise ModelError(f"actions must be a list of at least one action, or how many there are, not {actions!r}")
    if any(isinstance(a, int | float | np.number) for a in values) and values != list(range(len(values))):
        raise ModelError(
            f"actions that are numbers must be 0, 1, 2, …, since a number is an index, not {reprlib.repr(values)}; "
            "make them tuples or text, or let the functions compute the quantity from the number"
        )
    return values


def _explored(space: NamedStates, limit: int) -> tuple[Floats, Ints, Bools]:
    """Rewards and successors ``[S, W, A]`` of all states that are reached, and which actions are known, ``[S, A]``."""
    num_scenarios, num_actions = space.table_shape
    size, has_policy = num_scenarios * num_actions, space.functions.policy is not None
    num_start, done = len(space), 0
    parts: list[tuple[Bools, Floats, Ints]] = []
    with Meter("discovering states") as meter:
        while done < len(space):
            if len(space) > limit // size:
                cure = (
                    "" if has_policy else "give a policy, so that only its own actions are followed after the start; "
                )
                raise ModelError(
                    f"{len(space):,} states are found and only {done:,} of them have been looked at; with "
                    f"{num_scenarios} noise values and {num_actions} actions they make more than max_entries = "
                    f"{limit:,} table entries. {cure}bound the state (clip what grows); raise max_entries; or simulate "
                    "without a table: FunctionSimulator or JaxSimulator with simulate"
                )
            last = min(done + max(1, BATCH // size), num_start if done < num_start else len(space))
            legal = space.available(done, last)
            taken = space.chosen(done, legal) if done >= num_start and has_policy else legal
            state, action = np.nonzero(taken)
            parts.append((taken, *space.outcomes(state + done, action)))
            done = last
            meter.update(done / len(space), f"{len(space):,} states, {done:,} of them looked at")
    exists, gains, targets = (np.concatenate(part) for part in zip(*parts, strict=True))
    tables = _tables(exists, gains, targets)
    exists[~exists.any(axis=1)] = True  # states without actions are over: they stay, and nothing is paid
    return *tables, exists


def _tables(exists: Bools, gains: Floats, targets: Ints) -> tuple[Floats, Ints]:
    """Tables ``[S, W, A]`` from rewards and successors ``[m, W]`` of the actions that exist, in order."""
    _, rewards, successors = blank_tables(len(exists), gains.shape[1], exists.shape[1])
    successors = successors.astype(targets.dtype, copy=False)  # halves of states are refused where a model is made
    state, action = np.nonzero(exists)
    rewards[state, :, action], successors[state, :, action] = gains, targets
    return rewards, successors
