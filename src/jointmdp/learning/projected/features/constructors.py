"""The constructors of features; each fits any model in tables and, but for `one_hot`, any simulator.

`one_hot` and `aggregation` tell states, or groups of states, apart by an indicator for each; the others are functions
of where a state is.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from jointmdp.ground import checks
from jointmdp.ground.arrays import Floats
from jointmdp.ground.errors import ModelError
from jointmdp.learning.projected.features.bases import (
    FourierBasis,
    OnCoordinates,
    PolynomialBasis,
    RadialBasis,
    StateColumns,
    StateFeatures,
    TileBasis,
)
from jointmdp.learning.projected.features.coordinates import CoordinatesLike, Places
from jointmdp.learning.projected.features.feature_forms import (
    MOST_FEATURES,
    FeatureRows,
    Features,
    FeatureTable,
    Shown,
    Source,
    action_words,
    asked,
    check_count,
    own_state,
    shortened,
    state_words,
)
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.simulation.simulators.simulator import Simulator


FUNCTION = "the function of groups"


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

    def columns(self, source: Source) -> StateColumns:
        """One for each label of a model's states, in the order they appear; with `num_groups` one for each number."""
        check_count(self.num_groups or 0, "aggregation", "take larger groups")
        if not isinstance(source, JointMDP):
            return self._observed(source)
        labels = [self._label(source, s) for s in range(source.num_states)]
        known = dict.fromkeys(labels) if self.num_groups is None else range(self.num_groups)
        check_count(len(known), "aggregation", "take larger groups")
        place = {label: i for i, label in enumerate(known)}
        return StateColumns(
            _group_names(known), lambda states: _indicators([place[labels[s]] for s in states], len(known))
        )

    def _label(self, model: JointMDP, state: int) -> Any:
        where = state_words(model, state)
        if callable(self.groups):
            label = plain(asked(self.groups, FUNCTION, where, own_state(model, state)))
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

    def _observed(self, simulator: Simulator) -> StateColumns:
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

        def values(observations: Sequence[Any]) -> Floats:
            seen = [(each, Shown(each)) for each in observations]
            labels = (plain(asked(groups, FUNCTION, where, each)) for each, where in seen)
            return _indicators([_as_group(label, count, w) for label, (_, w) in zip(labels, seen, strict=True)], count)

        return StateColumns(_group_names(range(count)), values)


def _indicators(numbers: Sequence[int], count: int) -> Floats:
    """A unit vector ``[count]`` for each number."""
    found = np.zeros((len(numbers), count))
    found[np.arange(len(numbers)), numbers] = 1.0
    return found


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
    basis = PolynomialBasis(checks.as_count("degree", degree, 0, MOST_FEATURES))
    return OnCoordinates(by_action, basis, Places(coordinates, low, high))


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
    tilings = checks.as_count("tilings", tilings, 1, MOST_FEATURES)
    whole = tuple(checks.as_count("bins", each) for each in (bins if np.ndim(bins) else [bins]))  # type: ignore[union-attr]
    return OnCoordinates(
        by_action, TileBasis(tilings, whole if np.ndim(bins) else whole[0]), Places(coordinates, low, high)
    )


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
    return OnCoordinates(by_action, RadialBasis(places, widths, constant), Places(coordinates, low, high))
