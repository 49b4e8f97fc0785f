"""Linear features of states and actions: what an estimator projects onto.

Every constructor gives `Features`, which fit any model in tables and, but for `one_hot`, any simulator. Some tell
states, or groups of states, apart: an indicator for each. The others are functions of where a state is, in the unit
box: polynomials, cosines, tiles, Gaussian bumps.

With ``by_action=True`` each action has its own copy of the features of the state. With ``by_action=False`` all actions
share them, and every action but the first has an indicator of its own: two actions then differ by the same amount in
every state. In tables, features that are zero at every available coordinate are left out.
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike

from jointmdp.ground import checks
from jointmdp.ground.arrays import Bools, Floats, Ints
from jointmdp.ground.errors import ModelError
from jointmdp.learning.projected.coordinates import CoordinateBox, CoordinatesLike, Places
from jointmdp.learning.projected.feature_forms import (
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


def plain(label: Any) -> Any:
    """A label without its NumPy type, so that equal labels look the same."""
    return label.item() if isinstance(label, np.generic) or (hasattr(label, "item") and np.ndim(label) == 0) else label


@dataclass(frozen=True)
class OneHot(Features):
    """An indicator of every available coordinate."""

    def for_model(self, model: JointMDP) -> FeatureTable:
        """The unit vectors."""
        places = np.argwhere(model.available)
        check_count(
            len(places), "one_hot()", "put states into groups: features.aggregation(groups)", model.available.size
        )
        values = np.zeros((*model.available.shape, len(places)))
        values[places[:, 0], places[:, 1], np.arange(len(places))] = 1.0
        actions = action_words(model.action_names, model.num_actions)
        return FeatureTable(values, tuple(f"{actions[a]}: {model.state_label(s)}" for s, a in places))

    def for_simulator(self, simulator: Simulator) -> FeatureRows:
        """Not possible: nobody lists the states."""
        raise ModelError(
            f"one_hot() counts the states of a table, and {simulator.name} does not list its own; use "
            "features.aggregation(function, num_groups=...) for groups of observations, "
            "aggregation(lambda s: s, num_groups=S) where they are state numbers, or features.tiles(...) where they "
            "are vectors"
        )


@dataclass(frozen=True)
class Aggregation(StateFeatures):
    """Indicators of groups of states."""

    groups: tuple[Any, ...] | Callable[[Any], Any]
    num_groups: int | None

    def model_columns(self, model: JointMDP) -> StateColumns:
        """One column for each label, in the order they appear; with `num_groups` one for each number."""
        check_count(self.num_groups or 0, "aggregation", "take larger groups")
        labels = [self._state_label(model, s) for s in range(model.num_states)]
        if self.num_groups is None:
            known = {label: i for i, label in enumerate(dict.fromkeys(labels))}
        else:
            known = {i: i for i in range(self.num_groups)}
        check_count(len(known), "aggregation", "take larger groups")
        return StateColumns(np.eye(len(known))[[known[label] for label in labels]], _group_names(known))

    def _state_label(self, model: JointMDP, state: int) -> Any:
        where, what = state_words(model, state), "the function of groups"
        if callable(self.groups):
            label = plain(asked(self.groups, what, where, own_state(model, state)))
        elif len(self.groups) != model.num_states:
            raise ModelError(f"groups has {len(self.groups)} labels for {model.num_states} states; give one for each")
        else:
            label = self.groups[state]
        if self.num_groups is not None:
            return _as_group(label, self.num_groups, where)
        if isinstance(label, float) and math.isnan(label):
            raise ModelError(f"the group of {where} is nan, which is equal to no other group")
        try:
            hash(label)
        except TypeError:
            hint = "; give a tuple" if isinstance(label, list | np.ndarray) else ""
            raise ModelError(f"the group of {where} is {shortened(label)}, which cannot be looked up{hint}") from None
        return label

    def simulator_columns(self, simulator: Simulator) -> ObservedColumns:
        """One column for each number of a group."""
        groups, count = self.groups, self.num_groups
        if not callable(groups):
            raise ModelError(
                f"groups is a list of labels, which is for models in tables; for {simulator.name} give a function "
                "observation -> number of the group, and num_groups="
            )
        if count is None:
            raise ModelError(
                f"aggregation needs num_groups= for {simulator.name}: what a simulator may show is not listed, so "
                "groups are numbers from 0 to num_groups - 1"
            )
        check_count(count, "aggregation", "take larger groups")

        def values(observations: Sequence[Any]) -> Floats:
            found = np.zeros((len(observations), count))
            for n, observation in enumerate(observations):
                where = Shown(observation)
                label = asked(groups, "the function of groups", where, observation)
                found[n, _as_group(plain(label), count, where)] = 1.0
            return found

        return ObservedColumns(values, _group_names(range(count)))


def _as_group(label: Any, count: int, where: object) -> int:
    if isinstance(label, int) and 0 <= label < count:
        return int(label)  # truth values tell two groups apart
    number = checks.as_count(f"with num_groups={count} the group of {where}", label, -(2**62))
    if not 0 <= number < count:
        hint = "; groups count from 0" if number == count else ""
        raise ModelError(f"the group of {where} is {number}, outside 0..{count - 1} of num_groups={count}{hint}")
    return number


def _group_names(labels: Iterable[Any]) -> tuple[str, ...]:
    return tuple(f"group {label!r}" for label in labels)


def one_hot() -> Features:
    """One feature for each available coordinate of a model in tables: the projection then changes nothing."""
    return OneHot()


def aggregation(
    groups: Sequence[Hashable] | Callable[[Any], Hashable], by_action: bool = True, *, num_groups: int | None = None
) -> Features:
    """One feature for each group of states.

    Args:
        groups: for a model the label of every state, ``[S]``, or a function of the state that gives it; labels are any
            values that can be looked up. For a simulator a function of the observation that gives a number in
            ``range(num_groups)``.
        by_action: whether each action has groups of its own.
        num_groups: how many groups there are; simulators need it. With it, labels of a model are such numbers too.
    """
    if isinstance(groups, str | bytes | dict | set | frozenset) or not (callable(groups) or np.iterable(groups)):
        raise ModelError(f"groups must be a label for each state, or a function state -> label, not {groups!r}")
    given = groups if callable(groups) else tuple(plain(label) for label in groups)
    return Aggregation(by_action, given, None if num_groups is None else checks.as_count("num_groups", num_groups))


def polynomial(
    degree: int,
    by_action: bool = True,
    *,
    coordinates: CoordinatesLike | None = None,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
) -> Features:
    """Products of powers of the coordinates of the state, ``x0^i x1^j …`` with ``i + j + … ≤ degree``.

    Args:
        degree: the largest sum of powers; 0 is a constant, 1 adds the coordinates themselves.
        by_action: whether each action has a copy of its own.
        coordinates: where states are. For a model an array ``[S, d]``, or a function of the state; by default their
            names where these are numbers or tuples of numbers, also in text, else their numbers. For a simulator a
            function of the observation; by default the observation as a vector.
        low, high: the range of each coordinate, which is scaled to [0, 1]; coordinates outside count as on its edge. By
            default the least and largest of the model's states, or the bounds of the simulator's observation space. A
            coordinate in which all states of a model agree, or whose space has one value, is left out.
    """
    return OnCoordinates(by_action, PolynomialBasis(degree), Places(coordinates, low, high))


def fourier(
    order: int,
    by_action: bool = True,
    *,
    max_total: int | None = None,
    coordinates: CoordinatesLike | None = None,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
) -> Features:
    """Cosines ``cos(π c·x)`` of the coordinates of the state, for all c with entries from 0 to `order`.

    Args:
        order: the largest entry of c; there are ``(order + 1)^d`` cosines in d dimensions.
        max_total: the largest sum of the entries of c, where all would be too many.
        by_action, coordinates, low, high: as in `polynomial`.
    """
    return OnCoordinates(by_action, FourierBasis(order, max_total), Places(coordinates, low, high))


def tiles(
    tilings: int,
    bins: int | Sequence[int],
    by_action: bool = True,
    *,
    coordinates: CoordinatesLike | None = None,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
) -> Features:
    """Tile coding: in each of several shifted grids, one feature for each tile, 1 inside of it and 0 outside.

    The first grid divides the range of each coordinate into `bins` equal tiles. The others have tiles of the same size
    and are shifted, each by another part of a tile in every dimension, so that they have one tile more there. A point
    on a border belongs to the upper tile.

    The tiles of a grid sum to 1, so one tile of every grid but the first is left out, the one in the middle: nothing is
    lost, and the features are independent. In tables it is the one with the most states, and further tiles are left
    out where states are too few to tell them from the others.

    Args:
        tilings: how many grids.
        bins: how many tiles in each dimension, one number or one for each.
        by_action, coordinates, low, high: as in `polynomial`.
    """
    return OnCoordinates(by_action, TileBasis(tilings, bins), Places(coordinates, low, high))


def radial(
    centres: int | ArrayLike,
    width: float | Sequence[float] | None = None,
    by_action: bool = True,
    *,
    constant: bool = True,
    coordinates: CoordinatesLike | None = None,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
) -> Features:
    """Gaussian bumps ``exp(−½ Σ ((x − centre) / width)²)`` around centres.

    Args:
        centres: how many in each dimension, evenly from edge to edge; or their places ``[C, d]``, in the units of the
            coordinates.
        width: the standard deviation of a bump, one number or one for each dimension, where the range of every
            coordinate is 1. By default the distance between neighbouring centres; of given places, the mean distance
            to the nearest other one.
        by_action: whether each action has a copy of its own.
        constant: whether there is a constant feature too.
        coordinates, low, high: as in `polynomial`.
    """
    return OnCoordinates(by_action, RadialBasis(centres, width, constant), Places(coordinates, low, high))
