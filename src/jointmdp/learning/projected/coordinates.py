"""Where states are: coordinates of a model's states and of a simulator's observations, and the box they lie in."""

import ast
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from jointmdp.ground import checks
from jointmdp.ground.arrays import Bools, Floats, Ints
from jointmdp.ground.errors import ModelError
from jointmdp.learning.projected.feature_forms import Shown, asked, first_observation, own_state, shortened, state_words
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
