"""Where states are: coordinates of a model's states and of a simulator's observations, and the box they lie in.

Features of states as features of coordinates: a copy for each action, or shared with an indicator for each.

Functions of coordinates in the unit box: polynomials, cosines, tiles, Gaussian bumps.
"""

import ast
import itertools
import math
import re
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike

from jointmdp.ground import checks
from jointmdp.ground.arrays import Bools, Floats, Ints
from jointmdp.ground.errors import ModelError
from jointmdp.learning.projected.features.feature_forms import (
    MOST_FEATURES,
    FeatureRows,
    Features,
    FeatureTable,
    Shown,
    action_words,
    as_numbers,
    asked,
    check_count,
    count_actions,
    dependent_columns,
    first_observation,
    own_state,
    shortened,
    state_words,
    used_columns,
)
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.simulation.simulators.simulator import Simulator
from jointmdp.simulation.simulators.table_simulator import TableSimulator

CoordinatesLike = ArrayLike | Callable[[Any], Any]

LARGEST = 1e30  # bounds of a space from here on stand for none: float32 has no larger ones than 3.4e38
LARGEST_RANGE = 1e307  # half of it: differences of wider ones may overflow
NUMBERS = re.compile(r"[\d\s.,eE+()\[\]-]+")  # what a number, or a tuple of numbers, is written in
FUNCTION = "the function of coordinates"


class CoordinateBox(NamedTuple):
    """The ranges of D coordinates, of which d are used."""

    low: Floats  # [D]
    high: Floats  # [D]
    dims: Ints  # [d], those that are used

    @property
    def labels(self) -> list[str]:
        """The coordinates that are used, in words."""
        return [f"x{i}" for i in self.dims]

    def scaled(self, raw: Floats, is_clipped: bool = True) -> Floats:
        """Coordinates ``[N, D]`` as ``[N, d]``, scaled to [0, 1]; those outside count as on the edge."""
        low, high = self.low[self.dims], self.high[self.dims]
        inside = (raw[:, self.dims] - low) / (high - low)
        return np.clip(inside, 0.0, 1.0) if is_clipped else inside


@dataclass(frozen=True, eq=False)
class Places:
    """How a user says where states are, and in which range."""

    coordinates: CoordinatesLike | None
    low: Any
    high: Any

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            if (given := getattr(self, name)) is not None:
                ends = checks.as_floats(name, given, "[d], or one number", 0, 1)
                if not np.isfinite(ends).all():
                    raise ModelError(f"{name} is {given!r}; the ends of a range are finite numbers")
                object.__setattr__(self, name, ends)
        if self.coordinates is not None and not callable(self.coordinates):
            table = checks.as_floats("coordinates, unless they are a function,", self.coordinates, "[S, d]", 1, 2)
            object.__setattr__(self, "coordinates", table[:, None] if table.ndim == 1 else table)

    def of_model(self, model: JointMDP) -> tuple[Floats, CoordinateBox]:
        """The coordinates of every state, ``[S, D]``, and their box."""
        raw = self._raw(model)
        if at := checks.first_place(~np.isfinite(raw)):
            raise ModelError(f"coordinate {at[1]} of {state_words(model, at[0])} is {raw[at]}; it must be finite")
        least, most = raw.min(axis=0), raw.max(axis=0)
        used = least < most
        if not used.any():
            raise ModelError(
                "all states have the same coordinates, so that no feature of these tells them apart; give other "
                "coordinates=, or use features.one_hot() or features.aggregation(groups)"
            )
        box = self._box(least, most, used)
        points = box.scaled(raw)
        if at := checks.first_place(points.min(axis=0) == points.max(axis=0)):
            i = box.dims[at]
            raise ModelError(
                f"all states lie on one side of the range from {box.low[i]:g} to {box.high[i]:g} in dimension {i}; "
                f"they go from {least[i]:g} to {most[i]:g}; are low= and high= in the units of the coordinates?"
            )
        return raw, box

    def _raw(self, model: JointMDP) -> Floats:
        given, S = self.coordinates, model.num_states
        if given is None:
            return _named_coordinates(model)
        if not callable(given):
            table = np.asarray(given, dtype=np.float64)
            if len(table) != S or table.shape[1] == 0:
                hint = "; are the axes in another order?" if table.shape[1] == S else ""
                raise ModelError(f"coordinates have shape {table.shape}, expected [S, d] with S = {S} states{hint}")
            return table
        rows: list[Floats] = []
        for s in range(S):
            where = state_words(model, s)
            rows.append(
                _as_vector(asked(given, FUNCTION, where, own_state(model, s)), f"what coordinates= gives {where}")
            )
            _check_length(rows[-1], len(rows[0]), where, state_words(model, 0))
        return np.array(rows)

    def of_simulator(self, simulator: Simulator) -> tuple[Callable[[Sequence[Any]], Floats], CoordinateBox]:
        """Coordinates of observations, ``[N, D]``, as a function of these, and their box."""
        given = self.coordinates
        if given is not None and not callable(given):
            raise ModelError(
                f"coordinates is an array, which is for models in tables; for {simulator.name} give a function of the "
                "observation: where observations are state numbers, lambda s: table[s]"
            )
        start = first_observation(simulator)[0]
        count = len(_observed(given, start))

        def raw(observations: Sequence[Any]) -> Floats:
            return _all_observed(given, observations, count)

        own = _space_bounds(simulator, count) if given is None else None
        for ends, k in ((self.low, 0), (self.high, 1)):
            if ends is None and own is None:
                what = "of what coordinates= gives" if given is not None else f"of observations of {simulator.name}"
                each = "" if count == 1 else f", or {count}"
                raise ModelError(f"the range {what} is not known; give low= and high=, one number each{each}")
            if ends is None and own is not None and (at := checks.first_place(np.abs(own[k]) >= LARGEST)):
                raise ModelError(
                    f"the observation space of {simulator.name} has no finite bounds in dimension {at[0]} of {count}; "
                    "give low= and high=, between which most observations lie"
                )
        low, high = own or (np.zeros(count), np.zeros(count))  # zeros where the user's own ends take their place
        is_given = self.low is not None or self.high is not None
        return raw, self._box(low, high, (low < high) | is_given)

    def _box(self, low: Floats, high: Floats, used: Bools) -> CoordinateBox:
        """The box with the user's ends where given."""
        D = len(low)
        ends = []
        for name, given, own in (("low", self.low, low), ("high", self.high, high)):
            if given is not None and given.ndim == 1 and len(given) != D:
                raise ModelError(
                    f"{name} has {len(given)} numbers for {D} coordinates; give one number, or one for each"
                )
            ends.append(own if given is None else np.broadcast_to(given, D).astype(np.float64))
        box = CoordinateBox(ends[0], ends[1], np.flatnonzero(used))
        must = np.ones(D, dtype=bool) if self.low is not None and self.high is not None else used
        if at := checks.first_place(must & ~(box.low < box.high)):
            raise ModelError(
                f"low is {box.low[at]:g} and high {box.high[at]:g} in dimension {at[0]}; low must be below high"
            )
        if at := checks.first_place(box.high / 2 - box.low / 2 > LARGEST_RANGE):
            raise ModelError(f"the range from {box.low[at]:g} to {box.high[at]:g} in dimension {at[0]} is too wide")
        if len(box.dims) == 0:
            raise ModelError("no coordinate has room to vary; give other coordinates=, or use features.aggregation")
        return box


def _named_coordinates(model: JointMDP) -> Floats:
    """Names of states that are numbers or tuples of numbers, as coordinates; else the numbers of states."""
    numbers = np.arange(model.num_states, dtype=np.float64)[:, None]
    if model.state_names is None:
        return numbers
    found = [_parsed(name) for name in model.state_names]
    if all(each is None for each in found):
        return numbers
    lengths = [None if each is None else len(each) for each in found]
    for s, length in enumerate(lengths):
        if length != (first := next(each for each in lengths if each is not None)):
            what = "is no number or tuple of numbers" if length is None else f"has {length} numbers, not {first}"
            raise ModelError(
                f"names of states are taken for their coordinates, but that of {state_words(model, s)} {what}; give "
                "coordinates=, an array [S, d] or a function of the state"
            )
    return np.array(found, dtype=np.float64)


def _parsed(name: Any) -> tuple[float, ...] | None:
    """The numbers that a name is made of, or None."""
    if isinstance(name, str):
        try:
            name = ast.literal_eval(name.strip()) if NUMBERS.fullmatch(name) else None
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    parts = name if isinstance(name, tuple | list) else (name,)
    is_numbers = len(parts) > 0 and all(isinstance(part, int | float | np.number) for part in parts)
    return tuple(map(float, parts)) if is_numbers else None


def _as_vector(value: Any, subject: object) -> Floats:
    """Numbers, arrays and sequences of them as one flat vector; `subject` is what they come from."""
    if isinstance(value, Mapping):
        keys = ", ".join(map(repr, list(value)[:5]))
        raise ModelError(
            f"{subject} is a dictionary ({keys}); give coordinates=, a function that makes one vector of it"
        )
    if isinstance(value, tuple | list):
        parts = [_as_vector(part, subject) for part in value]
        return np.concatenate(parts) if parts else np.zeros(0)
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise ModelError(
            f"{subject} is no vector of numbers, it holds {shortened(value)}; give coordinates=, a function that "
            "returns one"
        )
    return array.astype(np.float64).reshape(-1)


def _check_length(row: Floats, count: int, where: object, first: object) -> None:
    if len(row) != count:
        raise ModelError(f"there are {len(row)} coordinates at {where}, but {count} at {first}; all need as many")
    if count == 0:
        raise ModelError(f"there are no coordinates at {where}; a state needs at least one")


def _observed(function: Callable[[Any], Any] | None, observation: Any) -> Floats:
    """The coordinates of one observation."""
    where = Shown(observation)
    if function is None:
        row = _as_vector(observation, where)
    else:
        row = _as_vector(asked(function, FUNCTION, where, observation), Shown(observation, " as coordinates= gives it"))
    _check_length(row, len(row), where, where)
    if at := checks.first_place(~np.isfinite(row)):
        raise ModelError(f"coordinate {at[0]} of {where} is {row[at]}; it must be finite")
    return row


def _all_observed(function: Callable[[Any], Any] | None, observations: Sequence[Any], count: int) -> Floats:
    """The coordinates of many observations; plain arrays of one shape are taken at once."""
    if function is None:
        try:
            block = np.asarray(observations)
        except ValueError:  # of different shapes
            block = np.zeros(0, dtype=object)
        if block.dtype.kind in "biuf" and block.size == len(observations) * count and np.isfinite(block).all():
            return block.astype(np.float64).reshape(len(observations), count)
    rows = []
    for observation in observations:
        rows.append(_observed(function, observation))
        _check_length(rows[-1], count, Shown(observation), "the start")
    return np.array(rows).reshape(-1, count)


def _space_bounds(simulator: Simulator, count: int) -> tuple[Floats, Floats] | None:
    """The bounds of what a simulator shows, as far as it has a space for that."""
    if isinstance(simulator, TableSimulator):
        found: tuple[Floats, Floats] | None = (np.zeros(1), np.full(1, simulator.model.num_states - 1.0))
    else:
        found = _bounds(getattr(getattr(simulator, "env", simulator), "observation_space", None))
    return None if found is None or len(found[0]) != count else found


def _bounds(space: Any) -> tuple[Floats, Floats] | None:
    """The least and largest entries of a Gymnasium space as vectors; None where it has none."""
    gymnasium: Any = sys.modules.get("gymnasium")  # not imported to find out
    if gymnasium is None:
        return None
    spaces = gymnasium.spaces
    if isinstance(space, spaces.Tuple):
        parts = [_bounds(part) for part in space.spaces]
        ends = [part for part in parts if part is not None]
        if len(ends) < len(parts) or not ends:
            return None
        return np.concatenate([low for low, _ in ends]), np.concatenate([high for _, high in ends])
    if isinstance(space, spaces.Box):
        low, high = space.low, space.high
    elif isinstance(space, spaces.Discrete):
        low, high = space.start, space.start + space.n - 1
    elif isinstance(space, spaces.MultiDiscrete):
        low, high = space.start, space.start + space.nvec - 1
    elif isinstance(space, spaces.MultiBinary):
        low, high = np.zeros(space.shape), np.ones(space.shape)
    else:
        return None
    return np.array(low, dtype=np.float64).reshape(-1), np.array(high, dtype=np.float64).reshape(-1)


def _none(support: Bools) -> Sequence[int]:
    return ()


class StateColumns(NamedTuple):
    """Features of N states."""

    values: Floats  # [N, k]
    names: tuple[str, ...]  # k
    spare: Callable[[Bools], Sequence[int]] = _none  # columns that others make up for in the states of a mask [N]

    def on(self, support: Bools) -> "StateColumns":
        """The columns that matter in the states of a mask."""
        kept = np.delete(np.arange(len(self.names)), self.spare(support))
        return StateColumns(self.values[:, kept], tuple(self.names[k] for k in kept))


class ObservedColumns(NamedTuple):
    """Features of what a simulator shows."""

    values: Callable[[Sequence[Any]], Floats]  # [N, k] of N observations
    names: tuple[str, ...]  # k


@dataclass(frozen=True)
class StateFeatures(Features):
    """Features that look at the state alone, for each action apart or shared by all."""

    by_action: bool

    def __post_init__(self) -> None:
        if not isinstance(self.by_action, bool | np.bool_):
            raise ModelError(f"by_action must be True or False, not {self.by_action!r}")

    @abstractmethod
    def model_columns(self, model: JointMDP) -> StateColumns:
        """Features of every state of a model."""

    @abstractmethod
    def simulator_columns(self, simulator: Simulator) -> ObservedColumns:
        """Features of observations of a simulator."""

    def for_model(self, model: JointMDP) -> FeatureTable:
        """Copies for each action, or shared features and indicators of all actions but the first that there is."""
        columns, words = self.model_columns(model), action_words(model.action_names, model.num_actions)
        return used_columns(self._table(columns, model.available, words), model.available)

    def _table(self, columns: StateColumns, available: Bools, words: list[str]) -> FeatureTable:
        S, A = available.shape
        if not self.by_action:
            shared = columns.on(np.ones(S, dtype=bool))
            present = np.flatnonzero(available.any(axis=0))[1:]
            count = len(shared.names) + len(present)
            check_count(count, "sharing by all actions", "take fewer features of the state", S * A)
            own = np.broadcast_to(np.eye(A)[None, :, present], (S, A, len(present)))
            copies = np.broadcast_to(shared.values[:, None, :], (S, A, len(shared.names)))
            values = np.concatenate([copies, own], axis=2) * available[:, :, None]
            return FeatureTable(values, shared.names + tuple(words[a] for a in present))
        on = {mask.tobytes(): columns.on(mask) for mask in np.unique(available.T, axis=0)}
        parts = [on[available[:, a].tobytes()] for a in range(A)]
        count = sum(len(part.names) for part in parts)
        advice = "take fewer features of the state, or by_action=False"
        check_count(count, f"a copy for each of {A} actions", advice, S * A)
        values, end = np.zeros((S, A, count)), 0
        for a, part in enumerate(parts):
            values[available[:, a], a, end : end + len(part.names)] = part.values[available[:, a]]
            end += len(part.names)
        return FeatureTable(values, tuple(f"{words[a]}: {name}" for a, part in enumerate(parts) for name in part.names))

    def for_simulator(self, simulator: Simulator) -> FeatureRows:
        """The same for what a simulator shows."""
        return _StateRows(self.simulator_columns(simulator), self.by_action, simulator)


class _StateRows(FeatureRows):
    """Features of observations, copied for each action or shared."""

    is_reducible = True

    def __init__(self, columns: ObservedColumns, by_action: bool, simulator: Simulator) -> None:
        self._values, self._by_action, self._num_actions = columns.values, by_action, count_actions(simulator)
        self._values([first_observation(simulator)[0]])  # what does not fit shows itself at once
        own = columns.names
        words = action_words(simulator.action_names, self._num_actions)
        if by_action:
            A, advice = self._num_actions, "take fewer features of the state, or by_action=False"
            check_count(len(own) * A, f"a copy for each of {A} actions", advice)
            self.names = tuple(f"{word}: {name}" for word in words for name in own)
        else:
            self.names = own + tuple(words[1:])

    def __call__(self, observations: Sequence[Any], actions: Ints) -> Floats:
        N, A = len(observations), self._num_actions
        numbers = as_numbers(actions, N, A)
        if N == 0:
            return np.zeros((0, len(self.names)))
        values = self._values(observations)
        if not self._by_action:
            return np.concatenate([values, np.eye(A)[numbers, 1:]], axis=1)
        copies = np.zeros((N, A, values.shape[1]))
        copies[np.arange(N), numbers] = values
        return copies.reshape(N, -1)


COUNTLESS = 10**12  # nobody asks how many more
ON_BORDER = 1e-9  # of a tile: coordinates this near to the next tile are rounded ones on its border


class Basis(ABC):
    """Functions on the unit box of any dimension."""

    advice: str  # against too many

    @abstractmethod
    def count(self, box: CoordinateBox) -> int:
        """How many functions there are at most."""

    @abstractmethod
    def names(self, box: CoordinateBox) -> tuple[str, ...]:
        """The functions in words."""

    @abstractmethod
    def values(self, points: Floats, box: CoordinateBox) -> Floats:
        """The functions ``[N, k]`` at points ``[N, d]`` of the unit box."""

    def spare(self, points: Floats, box: CoordinateBox) -> list[int]:
        """Functions that the others make up for: on these points, or anywhere if there are none."""
        if len(points) == 0:
            return []
        values = self.values(np.unique(points, axis=0), box)
        return [each.column for each in dependent_columns(values, [""] * values.shape[1])]


@dataclass(frozen=True)
class OnCoordinates(StateFeatures):
    """Features of where a state is."""

    basis: Basis
    places: Places

    def model_columns(self, model: JointMDP) -> StateColumns:
        """Functions of the coordinates of every state."""
        raw, box = self.places.of_model(model)
        self._check(box)
        points = box.scaled(raw)

        def spare(support: Bools) -> list[int]:
            return self.basis.spare(points[support], box)

        return StateColumns(self.basis.values(points, box), self.basis.names(box), spare)

    def simulator_columns(self, simulator: Simulator) -> ObservedColumns:
        """Functions of the coordinates of observations."""
        raw, box = self.places.of_simulator(simulator)
        self._check(box)
        spare = self.basis.spare(np.zeros((0, len(box.dims))), box)

        def values(observations: Sequence[Any]) -> Floats:
            return np.delete(self.basis.values(box.scaled(raw(observations)), box), spare, axis=1)

        names = self.basis.names(box)
        return ObservedColumns(values, tuple(names[k] for k in range(len(names)) if k not in spare))

    def _check(self, box: CoordinateBox) -> None:
        d = len(box.dims)
        check_count(self.basis.count(box), f"{self.basis} in {d} dimension{'' if d == 1 else 's'}", self.basis.advice)


@lru_cache(maxsize=16)
def _powers(num_dims: int, total: int) -> list[tuple[tuple[int, int], ...]]:
    """All ways to spread a sum of at most `total` over dimensions, as pairs of dimension and power."""
    return [
        tuple(Counter(chosen).items())
        for n in range(total + 1)
        for chosen in itertools.combinations_with_replacement(range(num_dims), n)
    ]


@dataclass(frozen=True)
class PolynomialBasis(Basis):
    """Monomials up to a total degree."""

    degree: int
    advice = "take a lower degree, or fewer coordinates="

    def __post_init__(self) -> None:
        object.__setattr__(self, "degree", checks.as_count("degree", self.degree, 0, MOST_FEATURES))

    def __str__(self) -> str:
        return f"polynomial({self.degree})"

    def count(self, box: CoordinateBox) -> int:
        """(d + degree choose d)."""
        return math.comb(len(box.dims) + self.degree, self.degree)

    def names(self, box: CoordinateBox) -> tuple[str, ...]:
        """``x0^2 x1``."""
        x = box.labels
        terms = _powers(len(x), self.degree)
        return tuple(" ".join(x[i] if p == 1 else f"{x[i]}^{p}" for i, p in term) or "constant" for term in terms)

    def values(self, points: Floats, box: CoordinateBox) -> Floats:
        """Products of powers."""
        terms = _powers(points.shape[1], self.degree)
        values = np.ones((len(points), len(terms)))
        for k, term in enumerate(terms):
            for i, power in term:
                values[:, k] *= points[:, i] ** power
        return values


@lru_cache(maxsize=16)
def _frequencies(order: int, max_total: int | None, num_dims: int) -> Ints:
    """All c with entries up to `order` and a sum of at most `max_total`, ``[k, d]``."""
    if max_total is None or max_total >= order * num_dims:
        return np.array(list(itertools.product(range(order + 1), repeat=num_dims)), dtype=np.int64)
    terms = [term for term in _powers(num_dims, max_total) if all(power <= order for _, power in term)]
    found = np.zeros((len(terms), num_dims), dtype=np.int64)
    for k, term in enumerate(terms):
        for i, power in term:
            found[k, i] = power
    return found


@dataclass(frozen=True)
class FourierBasis(Basis):
    """Cosines of all frequencies up to an order."""

    order: int
    max_total: int | None
    advice = "take a lower order, limit the sum of frequencies with max_total=, or take fewer coordinates="

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", checks.as_count("order", self.order, 0, MOST_FEATURES))
        if self.max_total is not None:
            object.__setattr__(self, "max_total", checks.as_count("max_total", self.max_total, 0, MOST_FEATURES))

    def __str__(self) -> str:
        return f"fourier({self.order}{'' if self.max_total is None else f', max_total={self.max_total}'})"

    def count(self, box: CoordinateBox) -> int:
        """(order + 1)^d, or as many of these as sum to at most `max_total`."""
        num_dims = len(box.dims)
        if self.max_total is None or self.max_total >= self.order * num_dims:
            return (self.order + 1) ** num_dims
        ways = [1] + [0] * self.max_total  # to reach each sum with the dimensions so far
        for _ in range(num_dims):
            ways = [sum(ways[max(0, n - self.order) : n + 1]) for n in range(self.max_total + 1)]
            if sum(ways) > COUNTLESS:
                break
        return sum(ways)

    def names(self, box: CoordinateBox) -> tuple[str, ...]:
        """``cos π(x0 + 2 x1)``."""
        found = []
        for c in _frequencies(self.order, self.max_total, len(box.dims)).tolist():
            parts = [f"{f} {x}" if f > 1 else x for f, x in zip(c, box.labels, strict=True) if f]
            found.append(f"cos π({' + '.join(parts)})" if parts else "constant")
        return tuple(found)

    def values(self, points: Floats, box: CoordinateBox) -> Floats:
        """cos(π c·x)."""
        return np.cos(np.pi * (points @ _frequencies(self.order, self.max_total, points.shape[1]).T))


@dataclass(frozen=True)
class TileBasis(Basis):
    """Indicators of the tiles of shifted grids."""

    tilings: int
    bins: int | Sequence[int]
    advice = "take fewer tilings or bins, or fewer coordinates="

    def __post_init__(self) -> None:
        object.__setattr__(self, "tilings", checks.as_count("tilings", self.tilings, 1, MOST_FEATURES))
        bins: Any = self.bins
        is_one = np.ndim(bins) == 0
        whole = checks.as_count("bins", bins) if is_one else tuple(checks.as_count("bins", each) for each in bins)
        object.__setattr__(self, "bins", whole)

    def __str__(self) -> str:
        return f"tiles({self.tilings}, {self.bins})"

    def _bins(self, box: CoordinateBox) -> Ints:
        """How many tiles fill the range of each dimension, ``[d]``."""
        if isinstance(self.bins, int):
            return np.full(len(box.dims), self.bins)
        if len(self.bins) != len(box.low):
            raise ModelError(f"bins has {len(self.bins)} numbers for {len(box.low)} coordinates; give one for each")
        return np.array(self.bins)[box.dims]

    def _grids(self, box: CoordinateBox) -> Iterator[tuple[Floats, tuple[int, ...]]]:
        """The shift of every grid in tiles, ``[d]``, and how many tiles it has in each dimension.

        In dimension i grid t is shifted by t·f_i / tilings modulo 1 with odd f_i, so that grids do not all move along
        the diagonal. The f_i have no divisor in common with the number of grids: no two grids share a border anywhere,
        which is what makes their tiles independent.
        """
        n, bins = self.tilings, self._bins(box)
        factors = [f for f in range(1, max(n, 2), 2) if math.gcd(f, n) == 1]
        shifts = np.array([factors[i % len(factors)] for i in range(len(bins))], dtype=np.int64)
        for t in range(n):
            moved = t * shifts % n
            yield moved / n, tuple((bins + (moved > 0)).tolist())

    def count(self, box: CoordinateBox) -> int:
        """All tiles of all grids."""
        return sum(math.prod(sizes) for _, sizes in self._grids(box))

    def names(self, box: CoordinateBox) -> tuple[str, ...]:
        """``tiling 0, tile (1, 2)``."""
        grids = self._grids(box)
        tiles = [(t, tile) for t, (_, sizes) in enumerate(grids) for tile in np.ndindex(*sizes)]
        return tuple(f"tiling {t}, tile {tile[0] if len(tile) == 1 else tile}" for t, tile in tiles)

    def _tile_numbers(self, points: Floats, box: CoordinateBox) -> Ints:
        """The tile that holds each point in each grid, ``[N, tilings]``."""
        bins, end, found = self._bins(box), 0, []
        for shift, sizes in self._grids(box):
            tile = np.floor(points * bins + shift + ON_BORDER).astype(np.int64)
            tile = np.minimum(tile, np.array(sizes) - 1)
            found.append(end + np.ravel_multi_index(tuple(tile.T), sizes))
            end += math.prod(sizes)
        return np.stack(found, axis=1)

    def values(self, points: Floats, box: CoordinateBox) -> Floats:
        """1 in the tile that holds the point, in every grid."""
        values = np.zeros((len(points), self.count(box)))
        values[np.arange(len(points))[:, None], self._tile_numbers(points, box)] = 1.0
        return values

    def spare(self, points: Floats, box: CoordinateBox) -> list[int]:
        """Of every grid but the first the tile with the most points, and tiles that these points do not tell apart.

        Without points it is the tile in the middle of every grid but the first.
        """
        held = self._tile_numbers(points if len(points) else np.full((1, len(box.dims)), 0.5), box)
        spare = [int(np.bincount(tiles).argmax()) for tiles in held.T[1:]]
        if len(points) == 0:
            return spare
        rest = np.delete(np.unique(held), np.searchsorted(np.unique(held), spare))
        values = self.values(np.unique(points, axis=0), box)[:, rest]
        return spare + [int(rest[each.column]) for each in dependent_columns(values, [""] * len(rest))]


@dataclass(frozen=True, eq=False)
class RadialBasis(Basis):
    """Gaussian bumps around centres, and a constant."""

    centres: Any  # a number, or [C, d] once checked
    width: Any
    constant: bool
    advice = "take fewer centres, give their places [C, d], or take fewer coordinates="

    def __post_init__(self) -> None:
        if np.ndim(self.centres) == 0:
            object.__setattr__(self, "centres", checks.as_count("centres", self.centres))
        else:
            places = checks.as_floats("centres", self.centres, "[C, d]", 1, 2)
            places = places[:, None] if places.ndim == 1 else places
            checks.check_finite("centres", places, "centre", "dimension")
            if places.size == 0:
                raise ModelError(f"centres have shape {places.shape}; give at least one")
            object.__setattr__(self, "centres", places)
        if self.width is not None:
            width = checks.as_floats("width", self.width, "[d], or one number", 0, 1)
            if not (np.isfinite(width) & (width > 0)).all():
                raise ModelError(f"width is {self.width!r}; widths must be positive and finite")
            object.__setattr__(self, "width", width)
        if not isinstance(self.constant, bool | np.bool_):
            raise ModelError(f"constant must be True or False, not {self.constant!r}")

    def __str__(self) -> str:
        return (
            f"radial({self.centres})" if isinstance(self.centres, int) else f"radial with {len(self.centres)} centres"
        )

    def count(self, box: CoordinateBox) -> int:
        """Centres, and the constant."""
        many = self.centres ** len(box.dims) if isinstance(self.centres, int) else len(self.centres)
        return int(many) + bool(self.constant)

    def _centres(self, box: CoordinateBox) -> Floats:
        """``[C, d]`` in the unit box."""
        d = len(box.dims)
        if isinstance(self.centres, int):
            line = np.linspace(0.0, 1.0, self.centres) if self.centres > 1 else np.array([0.5])
            return np.array(list(itertools.product(line, repeat=d)))
        if self.centres.shape[1] != len(box.low):
            raise ModelError(
                f"centres have {self.centres.shape[1]} coordinates, but states have {len(box.low)}; give [C, d] in the "
                "units of the coordinates"
            )
        return box.scaled(self.centres, is_clipped=False)

    def _width(self, centres: Floats, box: CoordinateBox) -> Floats:
        """``[d]`` in the unit box."""
        d = len(box.dims)
        if self.width is not None:
            if self.width.ndim == 1 and len(self.width) != len(box.low):
                raise ModelError(f"width has {len(self.width)} numbers for {len(box.low)} coordinates")
            return np.broadcast_to(self.width, len(box.low))[box.dims]
        if len(centres) == 1:
            return np.full(d, 0.5)
        if isinstance(self.centres, int):
            return np.full(d, 1.0 / (self.centres - 1))
        distances, _ = scipy.spatial.KDTree(centres).query(centres, k=2)  # the nearest is the centre itself
        return np.full(d, distances[:, 1].mean())

    def names(self, box: CoordinateBox) -> tuple[str, ...]:
        """``bump at (0.5, 2)``, in the units of the coordinates."""
        low, high = box.low[box.dims], box.high[box.dims]
        centres = self._centres(box)
        first: dict[tuple[float, ...], int] = {}
        for i, place in enumerate(map(tuple, centres.tolist())):
            if first.setdefault(place, i) != i:
                raise ModelError(f"centre {i} is at the same place as centre {first[place]}; their bumps are the same")
        own = low + centres * (high - low)
        bumps = [
            f"{place[0]:.6g}" if len(place) == 1 else f"({', '.join(f'{x:.6g}' for x in place)})"
            for place in own.tolist()
        ]
        return ("constant",) * bool(self.constant) + tuple(f"bump at {bump}" for bump in bumps)

    def values(self, points: Floats, box: CoordinateBox) -> Floats:
        """exp(−½ |(x − centre) / width|²)."""
        centres = self._centres(box)
        width = self._width(centres, box)
        squares = np.zeros((len(points), len(centres)))
        for i in range(points.shape[1]):
            squares += ((points[:, i, None] - centres[:, i]) / width[i]) ** 2
        bumps = np.exp(-0.5 * squares)
        return np.concatenate([np.ones((len(points), 1)), bumps], axis=1) if self.constant else bumps
