"""What features are to an estimator: a table for a model, rows for a simulator; and the forms a user can give them in.

Many of them are functions of where states are: of coordinates of a model's states or of a simulator's observations, in
the box that these lie in.

A user's functions are asked about one coordinate at a time. They get the state as the model calls it (its name where
states have names, else its number; names that were numbers are text), or the observation of a simulator. Actions are
always numbers.

Which features are combinations of others, where the weighting looks, comes from QR with column pivoting, of columns
scaled to length 1. A column is dependent when less than `THRESHOLD` of it is left after the columns picked before it
are taken out of it. That is the root of the rounding of float64: products of features, which normal equations are made
of, cannot tell such a column from a combination.
"""

import ast
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from jointmdp.ground import checks
from jointmdp.ground.arrays import Bools, Floats, Ints, refuse_traced
from jointmdp.ground.errors import ModelError
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.simulation.simulators.simulator import Simulator
from jointmdp.simulation.simulators.table_simulator import TableSimulator

Source = JointMDP | Simulator
FeatureFunction = Callable[[Any, int], Any]

MOST_FEATURES = 2_000
"""Second moments of K features are K(K + 1)/2 unknowns; more features than this are a mistake in a setting."""

MOST_NUMBERS = 2**27
"""How many entries a table of features may have: 1 GiB."""


class FeatureTable(NamedTuple):
    """The features of every coordinate of a model in tables."""

    values: Floats  # [S, A, K], finite; rows of unavailable actions are zero
    names: tuple[str, ...]  # K, in words


@dataclass(frozen=True)
class FeatureRows:
    """The features of coordinates, computed where they are asked for."""

    names: tuple[str, ...]  # K, in words
    values: Callable[[Any, Ints], Floats]
    """Features ``[N, K]``, finite, of N observations, or numbers of states, and as many numbers of actions."""
    coordinates: float = math.inf
    """How many coordinates there are, where that is known."""
    is_reducible: bool = False
    """Whether features that depend on others where samples came may be left out: nobody wrote them one by one."""

    def __call__(self, observations: Any, actions: Ints) -> Floats:
        """The features of coordinates."""
        return self.values(observations, actions)


@dataclass(frozen=True)
class Features:
    """A rule that gives features to the coordinates of any model or simulator; `jointmdp.features` makes them."""

    name: str
    rows: Callable[[Source], FeatureRows]
    """The features of a model's states, which are given by number, or of what a simulator shows."""

    def __repr__(self) -> str:
        return self.name


def as_feature_table(given: Any, model: JointMDP) -> FeatureTable:
    """Features of a model from `Features`, an array ``[S, A, K]``, a `FeatureTable` or ``f(state, action) -> [K]``.

    They are checked and read-only; without names they are numbered.
    """
    refuse_traced("features", given)
    forms = "Features such as features.fourier(3), an array [S, A, K], or a function f(state, action) -> [K]"
    can, places = model.available, np.argwhere(model.available)
    if isinstance(given, Features):
        rows = given.rows(model)
        values = np.zeros((*can.shape, len(rows.names)))
        for a, states in enumerate(map(np.flatnonzero, can.T)):
            values[states, a] = rows(states, np.full(len(states), a))
        used = np.flatnonzero(values.any(axis=(0, 1)))
        given = FeatureTable(values[:, :, used], tuple(rows.names[k] for k in used))
    elif callable(given):
        _refuse_constructor(given, forms)
        found = _called(given, model, *places.T.tolist())
        values = np.zeros((*can.shape, found.shape[1]))
        values[can] = found
        given = FeatureTable(values, ())
    elif given is None or isinstance(given, str | bytes | dict | set | int | float | complex):
        raise ModelError(f"features must be {forms}, not {given!r}")
    given = given if isinstance(given, FeatureTable) else FeatureTable(given, ())
    (S, A), values = can.shape, checks.as_floats("features", given.values, "[S, A, K]", 0, 1, 2, 3)
    if values.ndim != 3 or values.shape[:2] != (S, A):
        raise ModelError(
            f"features have shape {values.shape}, expected [S, A, K] with S = {S} states and A = {A} actions"
            + _shape_guess(values.shape, S, A)
        )
    names = tuple(map(str, given.names)) or tuple(f"feature {k}" for k in range(values.shape[2]))
    _check_names(names, values.shape[2])
    values[~can] = 0.0
    if at := checks.first_place(~np.isfinite(values)):
        where = Where(model, *at[:2])
        raise ModelError(f"feature {at[2]} ({names[at[2]]!r}) of {where} is {values[at]}; it must be a finite number")
    values.flags.writeable = False
    return FeatureTable(values, names)


def as_feature_rows(given: Any, simulator: Simulator) -> FeatureRows:
    """Features of a simulator from `Features`, `FeatureRows` or a function ``f(observation, action) -> [K]``."""
    refuse_traced("features", given)
    forms = "Features such as features.fourier(3), or a function f(observation, action) -> [K]"
    A = len(actions_of(simulator))
    if isinstance(given, FeatureRows):
        return given
    if isinstance(given, Features):
        rows = given.rows(simulator)
        rows([first_observation(simulator)[0]], np.zeros(1, dtype=np.int64))  # what does not fit shows itself at once
        return rows
    if callable(given):
        _refuse_constructor(given, forms)
        count = _called(given, simulator, *([each] for each in first_observation(simulator))).shape[1]
        names = tuple(f"feature {k}" for k in range(count))
        _check_names(names, count)

        def values(observations: Sequence[Any], actions: Ints) -> Floats:
            numbers = as_numbers(actions, len(observations), A).tolist()
            return _called(given, simulator, observations, numbers, count, "the start")

        return FeatureRows(names, values)
    if isinstance(given, np.ndarray | list | tuple):
        raise ModelError(
            f"features are an array, which is for models in tables; for {simulator.name} give {forms}: where "
            "observations are state numbers, lambda observation, action: table[observation, action]"
        )
    raise ModelError(f"features must be {forms}, not {given!r}")


def _refuse_constructor(given: Any, forms: str) -> None:
    name = str(getattr(given, "__name__", given))
    if isinstance(given, type):
        raise ModelError(f"features must be {forms}, not the class {name}")
    if inspect.isfunction(given) and given.__module__ == "jointmdp.learning.projected.features":
        raise ModelError(f"features is {name} itself; call it: features.{name}(…)")


def _check_names(names: tuple[str, ...], count: int) -> None:
    """Raise unless there are features, and a name for each."""
    if count == 0:
        raise ModelError("there are no features (K = 0); give at least one, a constant 1 for example")
    if len(names) != count:
        raise ModelError(f"{len(names)} names for {count} features")


def _shape_guess(shape: tuple[int, ...], num_states: int, num_actions: int) -> str:
    """What may have gone wrong with the shape of features."""
    S, A = num_states, num_actions
    if len(shape) == 2 and shape[0] == S * A and S * A != S:
        return f"; one row for each coordinate: reshape them to ({S}, {A}, {shape[1]})"
    if shape == (S, A):
        return "; is the last axis missing? for one feature give [S, A, 1]"
    if len(shape) == 2 and shape[0] == S:
        return "; is the action axis missing? they look like features of states, [S, K]: repeat them for each action"
    if len(shape) == 3 and S in shape and A in shape:
        return "; are the axes in another order?"
    return ""


class Where:
    """A state of a model, an observation or a coordinate in words, which are only made where a message needs them."""

    def __init__(self, source: Source, seen: Any, action: int | None = None) -> None:
        self.source, self.seen, self.action = source, seen, action

    def __str__(self) -> str:
        source, words = self.source, f"observation {shortened(self.seen)}"
        if isinstance(source, JointMDP):
            name = "" if source.state_names is None else f" ({source.state_label(self.seen)})"
            words = f"state {self.seen}{name}"
        return words if self.action is None else f"{words}, {source.action_label(self.action)}"


def own_form(source: Source, seen: Any) -> Any:
    """What functions of the user get: a state's name where states have names, else its number; an observation."""
    return source.state_names[seen] if isinstance(source, JointMDP) and source.state_names is not None else seen


def actions_of(source: Source) -> list[str]:
    """How names of features call the actions: ``a=left``, or ``a=0`` where an action has no name of its own."""
    if isinstance(source, JointMDP):
        own = [str(source.action_label(a)) for a in range(source.num_actions)]
    elif source.action_names is None:
        raise ModelError(
            f"the actions of {source.name} are not numbered, and features are of numbered actions; list them "
            "(actions=[...]) when you make the simulator"
        )
    else:
        own = list(map(str, source.action_names))
    return [f"a={a if name == f'action {a}' else name}" for a, name in enumerate(own)]


def first_observation(simulator: Simulator) -> tuple[Any, int]:
    """What a simulator shows at the start of seed 0, and an action that can be taken there."""
    state = simulator.reset(0)
    return simulator.observe(state), int(next(iter(simulator.available(state)), 0))


def asked(function: Callable[..., Any], what: str, where: object, *arguments: Any) -> Any:
    """What a user's function returns; where it raises, the error names the place."""
    try:
        found = function(*arguments)
    except Exception as error:
        shown = ", ".join(shortened(each) for each in arguments)
        raise ModelError(f"{what} raised {type(error).__name__} at {where}, given ({shown}): {error}") from error
    if found is None:
        raise ModelError(f"{what} returned None at {where}; is a return missing?")
    return found


def shortened(value: Any) -> str:
    """A value in a few characters, for messages."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}…"


def stacked(rows: Iterable[tuple[Floats, object]], noun: str, count: int | None = None, first: object = None) -> Floats:
    """Rows ``[K]``, each with words for where it comes from, as ``[N, K]``; all of one length, and finite.

    There must be `count` numbers, as there are at `first`; by default as many as the first row has.
    """
    found = []
    for row, where in rows:
        if at := checks.first_place(~np.isfinite(row)):
            raise ModelError(f"{noun} {at[0]} of {where} is {row[at]}; it must be a finite number")
        if count is None:
            count, first = len(row), where
        if len(row) != count:
            raise ModelError(
                f"there are {len(row)} {noun}s at {where}, but {count} at {first}; all need as many, zero where one "
                "does not apply"
            )
        found.append(row)
    return np.array(found, dtype=np.float64).reshape(len(found), count or 0)


def _called(
    function: FeatureFunction, source: Source, seen: Sequence[Any], actions: Sequence[int], *expected: Any
) -> Floats:
    """Features ``[N, K]`` by one call for each coordinate; `expected` as in `stacked`."""
    what = "the function of features"

    def row(each: Any, action: int) -> tuple[Floats, object]:
        where = Where(source, each, action)
        found = asked(function, what, where, own_form(source, each), action)
        if not (isinstance(found, np.ndarray) and found.ndim == 1 and found.dtype.kind in "biuf"):
            found = checks.as_floats(f"what {what} returned at {where}", found, "[K]", 0, 1).reshape(-1)
        return found, where

    return stacked(map(row, seen, actions), "feature", *expected)


def as_numbers(actions: Ints, count: int, num_actions: int) -> Ints:
    """The numbers of as many actions as there are observations."""
    numbers = np.asarray(actions)
    if numbers.shape != (count,) or (count and numbers.dtype.kind not in "iu"):
        raise ModelError(f"{count} observations, but actions are {shortened(actions)}; give a number for each")
    if at := checks.first_place((numbers < 0) | (numbers >= num_actions)):
        raise ModelError(f"action {at[0]} is {numbers[at]}, outside 0..{num_actions - 1}")
    return numbers.astype(np.int64)


def check_count(count: int, what: str, advice: str, coordinates: int = 1) -> None:
    """Raise before more features are made than anybody can mean, or than fit for so many coordinates."""
    if count > MOST_FEATURES:
        many = f"{count:,}" if count < 10**12 else "more than 10¹²"
        raise ModelError(f"{what} would make {many} features, more than {MOST_FEATURES:,}; {advice}")
    if count * coordinates > MOST_NUMBERS:
        raise ModelError(
            f"{what} would make {count:,} features of {coordinates:,} coordinates, {count * coordinates:.2g} numbers, "
            f"more than {MOST_NUMBERS:.2g}; {advice}"
        )


CoordinatesLike = ArrayLike | Callable[[Any], Any]

BOUNDLESS = 1e30  # bounds of a space from here on stand for none: float32 has no larger ones than 3.4e38
LARGEST_RANGE = 1e307  # half of it: differences of wider ones may overflow
NUMBERS = re.compile(r"[\d\s.,eE+()\[\]-]+")  # what a number, or a tuple of numbers, is written in


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

    def of(self, source: Source) -> tuple[Callable[[Sequence[Any]], Floats], CoordinateBox]:
        """Coordinates ``[N, D]`` as a function of numbers of a model's states, or of observations, and their box."""
        return self._of_model(source) if isinstance(source, JointMDP) else self._of_simulator(source)

    def _of_model(self, model: JointMDP) -> tuple[Callable[[Sequence[Any]], Floats], CoordinateBox]:
        given, S = self.coordinates, model.num_states
        if callable(given):
            raw = stacked((_vector(given, model, s) for s in range(S)), "coordinate")
        else:
            raw = _named_coordinates(model) if given is None else np.asarray(given, dtype=np.float64)
            if len(raw) != S or raw.shape[1] == 0:
                hint = "; are the axes in another order?" if raw.shape[1] == S else ""
                raise ModelError(f"coordinates have shape {raw.shape}, expected [S, d] with S = {S} states{hint}")
            if at := checks.first_place(~np.isfinite(raw)):
                raise ModelError(f"coordinate {at[1]} of {Where(model, at[0])} is {raw[at]}; it must be finite")
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
        return lambda states: raw[np.asarray(states, dtype=np.int64)], box

    def _of_simulator(self, simulator: Simulator) -> tuple[Callable[[Sequence[Any]], Floats], CoordinateBox]:
        given = self.coordinates
        if given is not None and not callable(given):
            raise ModelError(
                f"coordinates is an array, which is for models in tables; for {simulator.name} give a function of the "
                "observation: where observations are state numbers, lambda s: table[s]"
            )
        count = len(_vector(given, simulator, first_observation(simulator)[0])[0])

        def raw(observations: Sequence[Any]) -> Floats:
            if given is None and (block := _as_block(observations, count)) is not None:
                return block
            return stacked((_vector(given, simulator, each) for each in observations), "coordinate", count, "the start")

        own = None
        if given is None and isinstance(simulator, TableSimulator):
            own = np.zeros(1), np.full(1, simulator.model.num_states - 1.0)
        elif given is None:  # as far as it has a space
            own = _bounds(getattr(getattr(simulator, "env", simulator), "observation_space", None))
        own = None if own is None or len(own[0]) != count else own
        for ends, k in ((self.low, 0), (self.high, 1)):
            if ends is None and own is None:
                what = "of what coordinates= gives" if given is not None else f"of observations of {simulator.name}"
                each = "" if count == 1 else f", or {count}"
                raise ModelError(f"the range {what} is not known; give low= and high=, one number each{each}")
            if ends is None and own is not None and (at := checks.first_place(np.abs(own[k]) >= BOUNDLESS)):
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
                f"names of states are taken for their coordinates, but that of {Where(model, s)} {what}; give "
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


def _vector(function: Callable[[Any], Any] | None, source: Source, seen: Any) -> tuple[Floats, object]:
    """The coordinates of a state or observation, as a user's function gives them or as it is, and the words for it."""
    where, what, given = Where(source, seen), "", seen
    if function is not None:
        what, given = (
            "what coordinates= gives ",
            asked(function, "the function of coordinates", where, own_form(source, seen)),
        )
    row = _as_vector(given, what, where)
    if len(row) == 0:
        raise ModelError(f"there are no coordinates at {where}; a state needs at least one")
    return row, where


def _as_vector(value: Any, what: str, where: object) -> Floats:
    """Numbers, arrays and sequences of them as one flat vector; `what` and `where` say in words what they come from."""
    if isinstance(value, Mapping):
        keys = ", ".join(map(repr, list(value)[:5]))
        raise ModelError(
            f"{what}{where} is a dictionary ({keys}); give coordinates=, a function that makes one vector of it"
        )
    if isinstance(value, tuple | list):
        parts = [_as_vector(part, what, where) for part in value]
        return np.concatenate(parts) if parts else np.zeros(0)
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise ModelError(
            f"{what}{where} is no vector of numbers, it holds {shortened(value)}; give coordinates=, a function that "
            "returns one"
        )
    return array.astype(np.float64).reshape(-1)


def _as_block(observations: Sequence[Any], count: int) -> Floats | None:
    """Plain arrays of one shape are taken at once; None where observations are anything else."""
    try:
        block = np.asarray(observations)
    except ValueError:  # of different shapes
        return None
    is_plain = block.dtype.kind in "biuf" and block.size == len(observations) * count and np.isfinite(block).all()
    return block.astype(np.float64).reshape(len(observations), count) if is_plain else None


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


THRESHOLD = 2.0**-26  # the root of the spacing of float64, 1.5e-8
NEGLIGIBLE = 1e-6  # of the largest coefficient: columns with less are not named
MOST_PARTNERS = 3
MOST_NAMED = 5


class DependentColumn(NamedTuple):
    """A feature that says nothing which the others do not say."""

    column: int
    name: str
    reason: str

    @property
    def message(self) -> str:
        """The whole sentence."""
        return f"{self.name!r} {self.reason}"


def dependent_columns(weighted: Floats, names: Sequence[str], threshold: float = THRESHOLD) -> list[DependentColumn]:
    """The dependent columns of features ``[N, K]`` whose rows are scaled by the roots of their weights."""
    top = np.abs(weighted).max(axis=0, initial=0.0)  # [K]
    is_zero = top == 0
    found = [
        DependentColumn(k, names[k], "is zero wherever the weighting has weight")
        for k in np.flatnonzero(is_zero).tolist()
    ]
    kept = np.flatnonzero(~is_zero)
    if len(kept) == 0:
        return found
    columns = weighted[:, kept] / top[kept]  # lengths of very large or small features would overflow
    columns /= np.linalg.norm(columns, axis=0)
    triangle, pivots = linalg.qr(columns, mode="r", pivoting=True, overwrite_a=True)
    rank = int(np.count_nonzero(np.abs(np.diagonal(triangle)) > threshold))
    order = kept[pivots]
    parts = linalg.solve_triangular(triangle[:rank, :rank], triangle[:rank, rank:])  # [rank, K' − rank]
    for column, coefficients in zip(order[rank:].tolist(), np.abs(parts.T), strict=True):
        partners = np.flatnonzero(coefficients > NEGLIGIBLE * coefficients.max())
        ranked = partners[np.argsort(-coefficients[partners], kind="stable")]
        found.append(DependentColumn(column, names[column], _in_words([names[order[k]] for k in ranked])))
    return sorted(found)


def _in_words(partners: list[str]) -> str:
    shown = [repr(name) for name in partners[:MOST_PARTNERS]]
    if len(partners) == 1:
        return f"is a multiple of {shown[0]}"
    if (more := len(partners) - len(shown)) > 0:
        return f"is a combination of {', '.join(shown)} and {more} more"
    return f"is a combination of {', '.join(shown[:-1])} and {shown[-1]}"


def check_rank(weighted: Floats, names: Sequence[str], what: str) -> None:
    """Raise where features ``[N, K]``, rows scaled by the roots of their weights, are dependent; `what` begins it."""
    found = dependent_columns(weighted, names)
    if not found:
        return
    N, K = weighted.shape
    listed = "; ".join(each.message for each in found[:MOST_NAMED])
    more = f"; and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    cause = f" ({N} coordinates with weight cannot tell {K} features apart)" if N < K else ""
    raise ModelError(
        f"{what}: {len(found)} of {K} features depend on the others{cause}: {listed}{more}. Leave them out, take fewer "
        "features (a lower order, fewer tiles, larger groups), or give weight to coordinates that tell them apart"
    )
