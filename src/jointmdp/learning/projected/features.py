"""The constructors of features; each fits any model in tables and, but for `one_hot`, any simulator.

All but `one_hot` look at the state alone: `aggregation` at its group, the others at where it is, as functions on the
unit box of its coordinates. With ``by_action=True`` each action has its own copy of the features of the state. With
``by_action=False`` all actions share them, and every action but the first has an indicator of its own: two actions then
differ by the same amount in every state. In tables, features that are zero at every available coordinate are left out.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike

from jointmdp.ground import checks
from jointmdp.ground.arrays import Floats, Ints
from jointmdp.ground.errors import ModelError
from jointmdp.learning.projected.feature_forms import (
    MOST_FEATURES,
    CoordinateBox,
    CoordinatesLike,
    FeatureRows,
    Features,
    Places,
    Source,
    Where,
    actions_of,
    as_numbers,
    asked,
    check_count,
    dependent_columns,
    own_form,
    shortened,
)
from jointmdp.model.joint_mdp import JointMDP

ON_BORDER = 1e-9  # of a tile: coordinates this near to the next tile are rounded ones on its border
FUNCTION = "the function of groups"


def one_hot() -> Features:
    """One feature for each available coordinate of a model in tables: the projection then changes nothing."""

    def rows(source: Source) -> FeatureRows:
        if not isinstance(source, JointMDP):
            raise ModelError(
                f"one_hot() counts the states of a table, and {source.name} does not list its own; use "
                "features.aggregation(function, num_groups=...) for groups of observations, "
                "aggregation(lambda s: s, num_groups=S) where they are state numbers, or features.tiles(...) where "
                "they are vectors"
            )
        can, words, places = source.available, actions_of(source), np.argwhere(source.available)
        check_count(len(places), "one_hot()", "put states into groups: features.aggregation(groups)", can.size)
        numbers = np.cumsum(can).reshape(can.shape) - 1
        names = tuple(f"{words[a]}: {source.state_label(s)}" for s, a in places)
        return FeatureRows(names, lambda states, actions: _indicators(numbers[states, actions], len(names)))

    return Features("one_hot()", rows)


class StateColumns(NamedTuple):
    """Functions of states, which are given by number or as what a simulator shows, or of points of the unit box."""

    names: tuple[str, ...]  # k
    values: Callable[[Any], Floats]  # [N, k] of N states
    spare: Callable[[Any], Sequence[int]] = lambda states: ()
    """Columns that others make up for: in these states, or anywhere if there are none."""


def _state_features(name: str, by_action: bool, columns_of: Callable[[Source], StateColumns]) -> Features:
    """Features that look at the state alone, for each action apart or shared by all."""
    if not isinstance(by_action, bool | np.bool_):
        raise ModelError(f"by_action must be True or False, not {by_action!r}")

    def rows(source: Source) -> FeatureRows:
        columns, words = columns_of(source), actions_of(source)
        A = len(words)
        can = source.available if isinstance(source, JointMDP) else np.ones((0, A), dtype=bool)
        supports = [s.tobytes() for s in (can.T if by_action else np.ones((1, len(can)), dtype=bool))]
        places = {each: np.flatnonzero(np.frombuffer(each, dtype=bool)) for each in dict.fromkeys(supports)}
        fitted = {each: np.delete(np.arange(len(columns.names)), columns.spare(at)) for each, at in places.items()}
        kept = [fitted[each] for each in supports]  # of each action, or of all
        own = [columns.names[k] for each in kept for k in each]
        if by_action:
            names = [f"{words[a]}: {own[i]}" for i, a in enumerate(np.repeat(np.arange(A), list(map(len, kept))))]
            indicated = np.zeros(0, dtype=np.int64)
        else:
            indicated = np.flatnonzero(can.any(axis=0) | (len(can) == 0))[1:]
            names = [*own, *(words[a] for a in indicated)]
        what, less = (f"a copy for each of {A} actions", ", or by_action=False") if by_action else ("sharing", "")
        check_count(len(names), what, f"take fewer features of the state{less}", max(1, can.size))
        ends = np.cumsum([0, *map(len, kept)])

        def values(states: Any, actions: Ints) -> Floats:
            numbers = as_numbers(actions, len(states), A)
            seen = columns.values(states)
            if not by_action:
                return np.concatenate([seen[:, kept[0]], numbers[:, None] == indicated], axis=1)
            found = np.zeros((len(numbers), len(names)))
            for a in np.unique(numbers):
                at = np.flatnonzero(numbers == a)
                found[at, ends[a] : ends[a + 1]] = seen[at[:, None], kept[a]]
            return found

        return FeatureRows(tuple(names), values, is_reducible=True)

    return Features(name, rows)


def plain(label: Any) -> Any:
    """A label without its NumPy type, so that equal labels look the same."""
    return label.item() if isinstance(label, np.generic) or (hasattr(label, "item") and np.ndim(label) == 0) else label


def _indicators(numbers: ArrayLike, count: int) -> Floats:
    """A unit vector ``[count]`` for each number."""
    places = np.asarray(numbers, dtype=np.int64)
    found = np.zeros((len(places), count))
    found[np.arange(len(places)), places] = 1.0
    return found


def _as_group(label: Any, count: int | None, where: object) -> Any:
    """A label, checked; with `count` a number below it."""
    if count is None:
        if isinstance(label, float) and math.isnan(label):
            raise ModelError(f"the group of {where} is nan, which is equal to no other group")
        try:
            hash(label)
        except TypeError:
            hint = "; give a tuple" if isinstance(label, list | np.ndarray) else ""
            raise ModelError(f"the group of {where} is {shortened(label)}, which cannot be looked up{hint}") from None
        return label
    if isinstance(label, int) and 0 <= label < count:
        return int(label)  # truth values tell two groups apart
    number = checks.as_count(f"with num_groups={count} the group of {where}", label, -(2**62))
    if not 0 <= number < count:
        hint = "; groups count from 0" if number == count else ""
        raise ModelError(f"the group of {where} is {number}, outside 0..{count - 1} of num_groups={count}{hint}")
    return number


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
    count = None if num_groups is None else checks.as_count("num_groups", num_groups)

    def columns(source: Source) -> StateColumns:
        check_count(count or 0, "aggregation", "take larger groups")

        def label(seen: Any) -> Any:
            where = Where(source, seen)
            found = plain(asked(given, FUNCTION, where, own_form(source, seen))) if callable(given) else given[seen]
            return _as_group(found, count, where)

        if isinstance(source, JointMDP):
            if not callable(given) and len(given) != source.num_states:
                raise ModelError(f"groups has {len(given)} labels for {source.num_states} states; give one for each")
            label_of: Callable[[int], Any] = list(map(label, range(source.num_states))).__getitem__
            known = dict.fromkeys(map(label_of, range(source.num_states))) if count is None else range(count)
        elif not callable(given):
            raise ModelError(
                f"groups is a list of labels, which is for models in tables; for {source.name} give a function "
                "observation -> number of the group, and num_groups="
            )
        elif count is None:
            raise ModelError(
                f"aggregation needs num_groups= for {source.name}: what a simulator may show is not listed, so "
                "groups are numbers from 0 to num_groups - 1"
            )
        else:
            label_of, known = label, range(count)
        check_count(len(known), "aggregation", "take larger groups")
        place = {each: i for i, each in enumerate(known)}
        names = tuple(f"group {each!r}" for each in known)
        return StateColumns(names, lambda states: _indicators([place[label_of(s)] for s in states], len(place)))

    return _state_features(f"aggregation({shortened(given)})", by_action, columns)


def _coordinate_features(  # many parameters: what every family of functions of coordinates has
    name: str,
    advice: str,
    by_action: bool,
    places: tuple[CoordinatesLike | None, ArrayLike | None, ArrayLike | None],
    count: Callable[[CoordinateBox], int],
    functions: Callable[[CoordinateBox], StateColumns],
) -> Features:
    """Functions of where a state is: at most `count` of them, and `advice` against too many."""
    where = Places(*places)

    def columns(source: Source) -> StateColumns:
        raw, box = where.of(source)
        d = len(box.dims)
        check_count(count(box), f"{name} in {d} dimension{'' if d == 1 else 's'}", advice)
        names, values, spare = functions(box)

        def points(states: Any) -> Floats:
            return box.scaled(raw(states))

        return StateColumns(names, lambda states: values(points(states)), lambda states: spare(points(states)))

    return _state_features(name, by_action, columns)


def _functions(names: tuple[str, ...], values: Callable[[Floats], Floats]) -> StateColumns:
    """Functions of points, of which those are spare that are combinations of others."""

    def spare(points: Floats) -> list[int]:
        found = dependent_columns(values(np.unique(points, axis=0)), names) if len(points) else []
        return [each.column for each in found]

    return StateColumns(names, values, spare)


@lru_cache(maxsize=16)
def _whole_vectors(num_dims: int, largest: int, total: int) -> Ints:
    """All vectors of whole numbers from 0 to `largest` that sum to at most `total`, ``[k, d]``."""
    if total >= largest * num_dims:
        return np.array(list(itertools.product(range(largest + 1), repeat=num_dims)), dtype=np.int64)
    spread = (
        Counter(chosen)
        for n in range(total + 1)
        for chosen in itertools.combinations_with_replacement(range(num_dims), n)
    )
    return np.array([[c[i] for i in range(num_dims)] for c in spread if max(c.values(), default=0) <= largest])


def _count_whole_vectors(num_dims: int, largest: int, total: int) -> int:
    """How many there are, by inclusion and exclusion of entries above `largest`."""
    if total >= largest * num_dims:
        return int((largest + 1) ** num_dims)
    sums = (
        (-1) ** i * math.comb(num_dims, i) * math.comb(total - i * (largest + 1) + num_dims, num_dims)
        for i in range(min(num_dims, total // (largest + 1)) + 1)
    )
    return sum(sums)


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
    degree = checks.as_count("degree", degree, 0, MOST_FEATURES)

    def functions(box: CoordinateBox) -> StateColumns:
        powers = _whole_vectors(len(box.dims), degree, degree)
        factors = [[f"{x}^{p}" if p > 1 else x for x, p in zip(box.labels, row, strict=True) if p] for row in powers]

        def values(points: Floats) -> Floats:
            found = np.ones((len(points), len(powers)))
            for k, i in np.argwhere(powers).tolist():
                found[:, k] *= points[:, i] ** int(powers[k, i])
            return found

        return _functions(tuple(" ".join(row) or "constant" for row in factors), values)

    def count(box: CoordinateBox) -> int:
        return math.comb(len(box.dims) + degree, degree)

    advice, places = "take a lower degree, or fewer coordinates=", (coordinates, low, high)
    return _coordinate_features(f"polynomial({degree})", advice, by_action, places, count, functions)


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
    order = checks.as_count("order", order, 0, MOST_FEATURES)
    if max_total is not None:
        max_total = checks.as_count("max_total", max_total, 0, MOST_FEATURES)

    def limits(box: CoordinateBox) -> tuple[int, int, int]:
        d = len(box.dims)
        return d, order, order * d if max_total is None else max_total

    def functions(box: CoordinateBox) -> StateColumns:
        vectors = _whole_vectors(*limits(box))
        terms = [[f"{f} {x}" if f > 1 else x for x, f in zip(box.labels, row, strict=True) if f] for row in vectors]
        names = tuple(f"cos π({' + '.join(row)})" if row else "constant" for row in terms)
        return _functions(names, lambda points: np.cos(np.pi * (points @ vectors.T)))

    name = f"fourier({order}{'' if max_total is None else f', max_total={max_total}'})"
    advice = "take a lower order, limit the sum of frequencies with max_total=, or take fewer coordinates="
    places = coordinates, low, high
    return _coordinate_features(
        name, advice, by_action, places, lambda box: _count_whole_vectors(*limits(box)), functions
    )


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
    tilings = checks.as_count("tilings", tilings, 1, MOST_FEATURES)
    whole = tuple(checks.as_count("bins", each) for each in (bins if np.ndim(bins) else [bins]))  # type: ignore[union-attr]

    def grids(box: CoordinateBox) -> tuple[Ints, Ints, Ints]:
        """How many tiles fill the range of each dimension, ``[d]``, and of all grids shifts and sizes ``[t, d]``.

        In dimension i grid t is shifted by t·f_i / tilings modulo 1 with odd f_i, so that grids do not all move along
        the diagonal. The f_i have no divisor in common with the number of grids: no two grids share a border anywhere,
        which is what makes their tiles independent.
        """
        each = np.array(whole if np.ndim(bins) else whole * len(box.low))
        if len(each) != len(box.low):
            raise ModelError(f"bins has {len(each)} numbers for {len(box.low)} coordinates; give one for each")
        factors = [f for f in range(1, max(tilings, 2), 2) if math.gcd(f, tilings) == 1]
        shifts = [factors[i % len(factors)] for i in range(len(box.dims))]
        moved = np.outer(np.arange(tilings), shifts) % tilings
        return each[box.dims], moved, each[box.dims] + (moved > 0)

    def count(box: CoordinateBox) -> int:
        return sum(math.prod(sizes) for sizes in grids(box)[2].tolist())

    def functions(box: CoordinateBox) -> StateColumns:
        fill, moved, sizes = grids(box)
        starts = np.cumsum([0, *(math.prod(each) for each in sizes.tolist())])
        places = [(t, place) for t, each in enumerate(sizes) for place in np.ndindex(*each)]

        def held(points: Floats) -> Ints:
            """The tile that holds each point in each grid, ``[N, tilings]``."""
            at = np.floor(points[:, None] * fill + moved / tilings + ON_BORDER).astype(np.int64)
            at = np.minimum(at, sizes - 1)
            numbers = [np.ravel_multi_index(tuple(at[:, t].T), tuple(each)) for t, each in enumerate(sizes)]
            return starts[:-1] + np.stack(numbers, axis=1)

        def values(points: Floats) -> Floats:
            found = np.zeros((len(points), starts[-1]))
            found[np.arange(len(points))[:, None], held(points)] = 1.0
            return found

        def spare(points: Floats) -> list[int]:
            """Of every grid but the first the tile with the most points, and tiles that points do not tell apart.

            Without points it is the tile in the middle of every grid but the first.
            """
            tiles = held(points if len(points) else np.full((1, len(box.dims)), 0.5))
            most = [int(np.bincount(column).argmax()) for column in tiles.T[1:]]
            rest = np.setdiff1d(tiles, most)
            if not len(points):
                return most
            found = dependent_columns(values(np.unique(points, axis=0))[:, rest], [""] * len(rest))
            return most + [int(rest[each.column]) for each in found]

        names = tuple(f"tiling {t}, tile {place[0] if len(place) == 1 else place}" for t, place in places)
        return StateColumns(names, values, spare)

    advice, where = "take fewer tilings or bins, or fewer coordinates=", (coordinates, low, high)
    name = f"tiles({tilings}, {whole if np.ndim(bins) else whole[0]})"
    return _coordinate_features(name, advice, by_action, where, count, functions)


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
    if np.ndim(centres) == 0:
        places: Any = checks.as_count("centres", centres)
    else:
        places = checks.as_floats("centres", centres, "[C, d]", 1, 2)
        places = places[:, None] if places.ndim == 1 else places
        checks.check_finite("centres", places, "centre", "dimension")
        if places.size == 0:
            raise ModelError(f"centres have shape {places.shape}; give at least one")
    widths = None if width is None else checks.as_floats("width", width, "[d], or one number", 0, 1)
    if widths is not None and not (np.isfinite(widths) & (widths > 0)).all():
        raise ModelError(f"width is {width!r}; widths must be positive and finite")
    if not isinstance(constant, bool | np.bool_):
        raise ModelError(f"constant must be True or False, not {constant!r}")
    is_grid = isinstance(places, int)

    def centres_in(box: CoordinateBox) -> Floats:
        """``[C, d]`` in the unit box."""
        if is_grid:
            line = np.linspace(0.0, 1.0, places) if places > 1 else np.array([0.5])
            return np.array(list(itertools.product(line, repeat=len(box.dims))))
        if places.shape[1] != len(box.low):
            raise ModelError(
                f"centres have {places.shape[1]} coordinates, but states have {len(box.low)}; give [C, d] in the "
                "units of the coordinates"
            )
        return box.scaled(places, is_clipped=False)

    def width_in(box: CoordinateBox, points: Floats) -> Any:
        """In the unit box, given the centres there: ``[d]``, or one number."""
        if widths is not None:
            if widths.ndim == 1 and len(widths) != len(box.low):
                raise ModelError(f"width has {len(widths)} numbers for {len(box.low)} coordinates")
            return np.broadcast_to(widths, len(box.low))[box.dims]
        if len(points) == 1:
            return 0.5
        if is_grid:
            return 1.0 / (places - 1)
        distances, _ = scipy.spatial.KDTree(points).query(points, k=2)  # the nearest is the centre itself
        return distances[:, 1].mean()

    def functions(box: CoordinateBox) -> StateColumns:
        points, low, high = centres_in(box), box.low[box.dims], box.high[box.dims]
        scale = np.broadcast_to(width_in(box, points), len(box.dims))
        first: dict[tuple[float, ...], int] = {}
        for i, place in enumerate(map(tuple, points.tolist())):
            if first.setdefault(place, i) != i:
                raise ModelError(f"centre {i} is at the same place as centre {first[place]}; their bumps are the same")
        told = [", ".join(f"{x:.6g}" for x in place) for place in low + points * (high - low)]
        names = [f"bump at {place}" if len(box.dims) == 1 else f"bump at ({place})" for place in told]

        def values(at: Floats) -> Floats:
            squares = sum(((at[:, i, None] - points[:, i]) / scale[i]) ** 2 for i in range(at.shape[1]))
            return np.concatenate([np.ones((len(at), int(constant))), np.exp(-0.5 * squares)], axis=1)

        return _functions(("constant",) * int(constant) + tuple(names), values)

    def count(box: CoordinateBox) -> int:
        return int(places ** len(box.dims) if is_grid else len(places)) + int(constant)

    name = f"radial({places})" if is_grid else f"radial with {len(places)} centres"
    advice = "take fewer centres, give their places [C, d], or take fewer coordinates="
    return _coordinate_features(name, advice, by_action, (coordinates, low, high), count, functions)
