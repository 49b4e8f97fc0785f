"""Linear features of states and actions: what an estimator projects onto.

Every constructor gives `Features`, which fit any model in tables and, but for `one_hot`, any simulator. With
``by_action=True`` each action has its own copy of the features of the state. With ``by_action=False`` all actions
share them, and every action but the first has an indicator of its own: two actions then differ by the same amount in
every state. In tables, features that are zero at every available coordinate are left out.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from jointmdp import checks
from jointmdp.errors import ModelError
from jointmdp.projected.features.bases import FourierBasis, OnCoordinates, PolynomialBasis, RadialBasis, TileBasis
from jointmdp.projected.features.coordinates import CoordinatesLike, Places
from jointmdp.projected.features.feature_forms import Features
from jointmdp.projected.features.state_groups import Aggregation, OneHot, plain


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
