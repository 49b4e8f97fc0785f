"""Functions of coordinates in the unit box: polynomials, cosines, tiles, Gaussian bumps."""

import itertools
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import scipy

from jointmdp import checks
from jointmdp.arrays import Bools, Floats, Ints
from jointmdp.errors import ModelError
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.projected.features.column_ranks import dependent_columns
from jointmdp.projected.features.coordinates import CoordinateBox, Places
from jointmdp.projected.features.feature_forms import MOST_FEATURES, check_count
from jointmdp.projected.features.state_features import ObservedColumns, StateColumns, StateFeatures
from jointmdp.simulators.simulator import Simulator

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
