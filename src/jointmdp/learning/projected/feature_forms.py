"""What features are to an estimator: a table for a model, rows for a simulator; and the forms a user can give them in.

A user's functions are asked about one coordinate at a time. They get the state as the model calls it (its name where
states have names, else its number; names that were numbers are text), or the observation of a simulator. Actions are
always numbers.

Which features are combinations of others where the weighting looks: QR with column pivoting, and words for it.

Columns are scaled to length 1 first. A column is dependent when less than `THRESHOLD` of it is left after the columns
picked before it are taken out of it. That is the root of the rounding of float64: products of features, which normal
equations are made of, cannot tell such a column from a combination.
"""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

from jointmdp.ground import checks
from jointmdp.ground.arrays import Bools, Floats, Ints, refuse_traced
from jointmdp.ground.errors import ModelError
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.simulation.simulators.simulator import Simulator

FeatureFunction = Callable[[Any, int], Any]

MOST_FEATURES = 2_000
"""Second moments of K features are K(K + 1)/2 unknowns; more features than this are a mistake in a setting."""

MOST_NUMBERS = 2**27
"""How many entries a table of features may have: 1 GiB."""


class FeatureTable(NamedTuple):
    """The features of every coordinate of a model in tables."""

    values: Floats  # [S, A, K], finite; rows of unavailable actions are zero
    names: tuple[str, ...]  # K, in words


class FeatureRows(ABC):
    """The features of coordinates of a simulator, computed where they are asked for."""

    names: tuple[str, ...]  # K, in words
    coordinates: float = math.inf
    """How many coordinates there are, where that is known."""
    is_reducible: bool = False
    """Whether features that depend on others where samples came may be left out: nobody wrote them one by one."""

    @abstractmethod
    def __call__(self, observations: Sequence[Any], actions: Ints) -> Floats:
        """Features ``[N, K]``, finite, of N observations and as many numbers of actions."""


class Features(ABC):
    """A rule that gives features to the coordinates of any model or simulator; `jointmdp.features` makes them."""

    @abstractmethod
    def for_model(self, model: JointMDP) -> FeatureTable:
        """The features of every coordinate of a model."""

    @abstractmethod
    def for_simulator(self, simulator: Simulator) -> FeatureRows:
        """The features of what a simulator shows."""


def as_feature_table(given: Any, model: JointMDP) -> FeatureTable:
    """Features of a model from `Features`, an array ``[S, A, K]``, a `FeatureTable` or ``f(state, action) -> [K]``."""
    refuse_traced("features", given)
    forms = "Features such as features.fourier(3), an array [S, A, K], or a function f(state, action) -> [K]"
    if isinstance(given, Features):
        return checked_table(given.for_model(model), model)
    if isinstance(given, FeatureTable):
        return checked_table(given, model)
    if callable(given):
        _refuse_constructor(given, forms)
        return checked_table(_called_table(given, model), model)
    if given is None or isinstance(given, str | bytes | dict | set | int | float | complex):
        raise ModelError(f"features must be {forms}, not {given!r}")
    return checked_table(FeatureTable(given, ()), model)


def as_feature_rows(given: Any, simulator: Simulator) -> FeatureRows:
    """Features of a simulator from `Features`, `FeatureRows` or a function ``f(observation, action) -> [K]``."""
    refuse_traced("features", given)
    forms = "Features such as features.fourier(3), or a function f(observation, action) -> [K]"
    count_actions(simulator)
    if isinstance(given, Features):
        return given.for_simulator(simulator)
    if isinstance(given, FeatureRows):
        return given
    if callable(given):
        _refuse_constructor(given, forms)
        return _CalledRows(given, simulator)
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


def checked_table(given: FeatureTable, model: JointMDP) -> FeatureTable:
    """A feature table of a model, checked and read-only; without names the features are numbered."""
    S, A = model.num_states, model.num_actions
    values = checks.as_floats("features", given.values, "[S, A, K]", 0, 1, 2, 3)
    if values.ndim != 3 or values.shape[:2] != (S, A):
        raise ModelError(
            f"features have shape {values.shape}, expected [S, A, K] with S = {S} states and A = {A} actions"
            + _shape_guess(values.shape, S, A)
        )
    names = tuple(map(str, given.names)) or tuple(f"feature {k}" for k in range(values.shape[2]))
    check_names(names, values.shape[2])
    values[~model.available] = 0.0
    if at := checks.first_place(~np.isfinite(values)):
        where = f"{state_words(model, at[0])}, {model.action_label(at[1])}"
        raise ModelError(f"feature {at[2]} ({names[at[2]]!r}) of {where} is {values[at]}; it must be a finite number")
    values.flags.writeable = False
    return FeatureTable(values, names)


def check_names(names: tuple[str, ...], count: int) -> None:
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


def state_words(model: JointMDP, state: int) -> str:
    """A state by number, and by name where it has one."""
    return f"state {state}" if model.state_names is None else f"state {state} ({model.state_label(state)})"


def own_state(model: JointMDP, state: int) -> Any:
    """A state as functions of the user get it: its name where states have names, else its number."""
    return state if model.state_names is None else model.state_names[state]


def count_actions(simulator: Simulator) -> int:
    """How many actions a simulator has; they must be numbered."""
    if simulator.action_names is None:
        raise ModelError(
            f"the actions of {simulator.name} are not numbered, and features are of numbered actions; list them "
            "(actions=[...]) when you make the simulator"
        )
    return len(simulator.action_names)


def action_words(names: Sequence[Any] | None, count: int) -> list[str]:
    """How names of features call the actions: ``a=left``, or ``a=0`` where an action has no name of its own."""
    own = [f"action {a}" if names is None else str(names[a]) for a in range(count)]
    return [f"a={a if own[a] == f'action {a}' else own[a]}" for a in range(count)]


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


class Shown:
    """An observation in words, which are only made where a message needs them."""

    def __init__(self, observation: Any, more: str = "") -> None:
        self._observation, self._more = observation, more

    def __str__(self) -> str:
        return f"observation {shortened(self._observation)}{self._more}"


def as_row(found: Any, what: str, where: object) -> Floats:
    """A vector of numbers that a user's function returned; one number is a vector of length 1."""
    if not (isinstance(found, np.ndarray) and found.ndim == 1 and found.dtype.kind in "biuf"):
        found = checks.as_floats(f"what {what} returned at {where}", found, "[K]", 0, 1)
    return found.astype(np.float64).reshape(-1)


def _feature_row(function: FeatureFunction, where: object, state: Any, action: int) -> Floats:
    what = "the function of features"
    row = as_row(asked(function, what, where, state, action), what, where)
    if at := checks.first_place(~np.isfinite(row)):
        raise ModelError(f"feature {at[0]} of {where} is {row[at]}; it must be a finite number")
    return row


def _check_length(row: Floats, count: int, where: object, first: str) -> None:
    if len(row) != count:
        raise ModelError(
            f"the function of features returned {len(row)} numbers at {where}, but {count} at {first}; every "
            "coordinate has the same features, zero where they do not apply"
        )


def _called_table(function: FeatureFunction, model: JointMDP) -> FeatureTable:
    """Features by one call for each available coordinate."""
    places = np.argwhere(model.available)
    words = [f"{state_words(model, s)}, {model.action_label(a)}" for s, a in places]
    rows: list[Floats] = []
    for (s, a), where in zip(places.tolist(), words, strict=True):
        rows.append(_feature_row(function, where, own_state(model, s), a))
        _check_length(rows[-1], len(rows[0]), where, words[0])
    values = np.zeros((*model.available.shape, len(rows[0])))
    values[model.available] = np.array(rows)
    return FeatureTable(values, ())


class _CalledRows(FeatureRows):
    """Features of a simulator by one call for each coordinate; the start says how many there are."""

    def __init__(self, function: FeatureFunction, simulator: Simulator) -> None:
        self._function, self._simulator = function, simulator
        observation, action = first_observation(simulator)
        row = self._row(observation, action)
        self.names = tuple(f"feature {k}" for k in range(len(row)))
        check_names(self.names, len(row))

    def _row(self, observation: Any, action: int) -> Floats:
        where = Shown(observation, f", {self._simulator.action_label(action)}")
        return _feature_row(self._function, where, observation, action)

    def __call__(self, observations: Sequence[Any], actions: Ints) -> Floats:
        numbers = as_numbers(actions, len(observations), count_actions(self._simulator))
        values = np.zeros((len(observations), len(self.names)))
        for n, (observation, action) in enumerate(zip(observations, numbers.tolist(), strict=True)):
            row = self._row(observation, action)
            _check_length(row, len(self.names), Shown(observation), "the start")
            values[n] = row
        return values


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


def used_columns(table: FeatureTable, available: Bools) -> FeatureTable:
    """A table without the features that are zero at every available coordinate."""
    used = np.flatnonzero((table.values != 0)[available].any(axis=0))
    return FeatureTable(table.values[:, :, used], tuple(table.names[k] for k in used))


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
