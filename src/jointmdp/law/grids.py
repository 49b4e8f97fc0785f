"""Grids on which laws of gaps are held, and where each threshold comes from when a branch moves."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointmdp.arrays import UNIT, Floats

MARGIN = 4  # cells beyond the reach of any gap, so that a rounded law never touches the ends
NEAREST = 1e-9  # of the reach: no grid needs to tell smaller amounts from 0
MOST_AMOUNTS = 64  # rewards, at most, that are points of a geometric grid by themselves
TOO_CLOSE = 1e-9  # relative distance of two points that are one
LEAST_DENSITY = 1e-4  # of the largest: thinner tails are not given wider cells
FINEST_LATTICE = 1e-5  # of the largest amount: rewards are not called a lattice below this


class Grid(NamedTuple):
    """A symmetric grid through 0."""

    points: Floats  # [N]
    spacing: float  # the distance of its points: the least of a fitted grid, the largest of a geometric one
    rounding: float  # amounts closer than this are the same amount to the rounding rules


def even_grid(reach: float, cells: int, base: float | None) -> Grid:
    """A grid of about `cells` even cells over ``±reach``.

    Where amounts are multiples of a `base` the spacing is ``base·2ᵏ``, so that rewards are whole steps.
    """
    unit = 1.0 if base is None else base
    step = math.ldexp(unit, math.ceil(math.log2(2 * reach / cells / unit))) if reach > 0 else unit
    return _mirrored(step * np.arange(1.0, math.ceil(reach / step) + MARGIN + 1), step, reach)


def geometric_grid(reach: float, cells: int, discount: float, amounts: Floats) -> Grid:
    """A grid for sparse rewards: ``±amount·γ^(k/m)``.

    Between two rewards a gap only shrinks by γ. On this grid that is a shift, without any rounding, so that a gap
    keeps its sign for as long as there are points; what rewards add is rounded by a fraction of itself.
    """
    values, counts = np.unique(amounts, return_counts=True)
    anchor = float(values[np.argmax(counts)])
    decay = -math.log(discount)
    above = math.log(reach / anchor)
    # Points per factor of γ: as many as leave room for all magnitudes from the reach down to the nearest.
    per = max(1, math.floor(cells / 2 * decay / (above - math.log(NEAREST))))
    up = math.ceil(max(above, 0.0) / decay * per) + MARGIN
    down = max(cells // 2 - up, 2 * per)
    powers = anchor * np.exp(-decay / per * np.arange(-up, down + 1)[::-1])
    others = values[(values > powers[0]) & (values != anchor)][:MOST_AMOUNTS]
    positive = np.unique(np.concatenate([powers, others]))
    distinct = np.append(np.diff(positive) > TOO_CLOSE * positive[1:], True)
    return _mirrored(positive[distinct], float(positive[-1] * (1 - discount ** (1 / per))), reach)


def fitted_grid(reach: float, cells: int, old: Grid, stop_loss: Floats) -> Grid:
    """A grid that is finer where there is more mass, by a stop-loss function on an `old` grid; symmetric about 0.

    A cell of width h that holds density f costs about f·h² in the variance that the bounds differ by; for a given
    number of cells the sum is least when h is proportional to f^(−1/3).
    """
    mass, origin = masses(old.points, stop_loss), len(old.points) // 2
    z = old.points[origin:]
    density = (mass + mass[::-1])[origin:] / np.gradient(z)
    density = np.maximum(density, LEAST_DENSITY * np.max(density))
    total = np.concatenate([[0.0], np.cumsum(np.diff(z) * (density[1:] + density[:-1]) ** (1 / 3))])
    places = np.interp(np.linspace(0, 1, cells // 2 + 1), total / np.interp(reach, z, total), z)
    places = np.append(places[places < reach], reach)[1:]
    last = places[-1] - places[-2] if len(places) > 1 else reach
    margin = places[-1] + max(last, old.spacing / 4) * np.arange(1, MARGIN + 1)
    positive = np.concatenate([places, margin])
    return _mirrored(positive, float(np.min(np.diff(positive, prepend=0.0))), reach)


def _mirrored(positive: Floats, spacing: float, reach: float) -> Grid:
    points = np.concatenate([-positive[::-1], [0.0], positive])
    return Grid(points, spacing, 32 * UNIT * (points[-1] + 2 * reach))


class Cells(NamedTuple):
    """Where thresholds come from, ``[..., N]`` each."""

    cell: NDArray[np.int32]  # i with z_i ≤ u < z_{i+1}
    fraction: Floats  # f, how far into the cell
    bend: Floats  # f(1−f)·width
    below: Floats  # (z_0 − u)⁺


def cell_index(grid: Grid, origin: Floats) -> Cells:
    """Where each `origin` u lies on the grid."""
    z = grid.points
    cell = np.clip(np.searchsorted(z, origin, side="right") - 1, 0, len(z) - 2)
    width = z[cell + 1] - z[cell]
    fraction = np.clip((origin - z[cell]) / width, 0.0, 1.0)
    bend = fraction * (1 - fraction) * width
    return Cells(cell.astype(np.int32), fraction, bend, np.maximum(z[0] - origin, 0.0))


def threshold_origins(grid: Grid, shift: Floats, scale: float) -> tuple[NDArray[np.int32], Cells]:
    """For each shift r and threshold z_j: the last i with ``r + c·z_i < z_{j+1}``, and where ``(z_j − r)/c`` lies."""
    beyond = np.append(grid.points[1:], np.inf) - shift[..., None] - grid.rounding
    rounded = np.maximum(np.searchsorted(grid.points, beyond / scale, side="left") - 1, 0).astype(np.int32)
    return rounded, cell_index(grid, (grid.points - shift[..., None]) / scale)


def masses(points: Floats, stop_loss: Floats) -> Floats:
    """The law on the grid with these stop-loss values: their second differences, ``[N]``."""
    slopes = np.diff(stop_loss) / np.diff(points)
    return np.maximum(np.diff(slopes, prepend=-1.0, append=0.0), 0.0)


def lattice(values: Floats, resolution: float) -> float | None:
    """The largest amount of which all `values` are whole multiples, to within the resolution, or None."""
    amounts = np.unique(np.abs(values))
    amounts = amounts[amounts > resolution]
    if len(amounts) == 0:
        return None
    found, least = float(amounts[-1]), FINEST_LATTICE * float(amounts[-1])
    for amount in amounts[::-1]:
        rest = float(amount)
        while rest > resolution:
            found, rest = rest, abs(math.remainder(found, rest))
        if found < least:
            return None
    return found if off_lattice(amounts, found) <= resolution * len(amounts) else None


def off_lattice(values: Floats, base: float) -> float:
    """How far the values are from whole multiples of `base`, at most."""
    multiples = values / base
    return float(np.max(np.abs(multiples - np.round(multiples)) * base, initial=0.0))
