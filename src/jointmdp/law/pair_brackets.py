"""Certified laws of all gaps of a model: brackets that hold at every stopping point, on grids that grow finer.

Every bracket starts valid (a law at the ends of its support, the point mass at the mean), every sweep keeps it valid,
and the better of old and new is kept. A finer grid starts from what the coarser one knows. So one may stop anywhere:
for a tolerance, or when the next grid does not fit in memory.
"""

import math
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jointmdp.arrays import UNIT, Floats, Ints, float64, on_device
from jointmdp.bellman import gap_distribution
from jointmdp.bellman.gap_distribution import LawMaps, MeetingMaps, Moves, StopLoss
from jointmdp.law import grids, pair_graph
from jointmdp.law.grids import Grid
from jointmdp.law.pair_outcomes import pair_tables
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.progress import Meter

LEAST_CELLS = 64  # below this no law is worth having
FIRST_CELLS = 256  # of the first grid, where memory allows it
GROWTH = (1.5, 4.0)  # cells of a grid over those of the one before
AMPLE = 1.2  # how many times more cells are taken than a width that falls as 1/cells calls for
ARRAYS = 16  # arrays ``[S, N, S]`` alive at the peak of a sweep
ROUNDED_ARRAYS = 5  # the same where only the rounded law is asked for
BLOCK = 2**21  # entries of ``[G, S, N, S]`` that are handled at once
LATTICE_CELLS = 4096  # a lattice of rewards finer than this is not worth keeping to
SPARSE = 0.5  # rewards are sparse when at least this share of steps pays nothing
PAYING = 0.9  # a chunk of sweeps, or a finer grid, must leave at most this much of the width to go on
PATIENCE = 1  # finer grids in a row that may fail to pay
CHUNK_LEFT = 0.5  # a chunk of sweeps is as long as the discount needs to shrink old errors to this,
CHUNK = (4, 24)  # within these
RESOLVED = 1e-3  # of the reach: the first geometric grid tells this from 0


def least_bytes(num_states: int) -> int:
    """Memory that the coarsest grid takes on pairs of so many states, about."""
    return 8 * ARRAYS * LEAST_CELLS * num_states**2


class Brackets(NamedTuple):
    """The brackets of some pairs of states, on the host, and what rounding cost them."""

    points: Floats  # [N]
    gap_error: float
    probability_error: float
    stop_loss_error: float
    F: Floats  # [n, N]
    F_back: Floats  # [n, N] of the same pairs the other way round
    upper: Floats  # [n, N]
    V: Floats  # [n, N]
    D: Floats  # [n, N]


class PairLaws:
    """Brackets for the laws of G(s,t) for all pairs of `states`, which must be closed under the policy."""

    def __init__(
        self, model: JointMDP, policy: Floats, mean: Floats, mean_error: float, states: Ints, horizon: int | None
    ) -> None:
        self.horizon = horizon
        self.mean_error = 2 * mean_error
        self.tables = tables = pair_tables(model, policy, mean, states, horizon)
        self.is_identical = pair_graph.identical_pairs(tables)
        self.no_difference = pair_graph.no_difference(tables, self.is_identical, horizon)
        self.most, self.reach = pair_graph.largest_gaps(tables, self.is_identical, horizon)
        self._most_at_start = self.most if horizon is None else np.zeros_like(self.most)  # no step is left to go
        out = tables.outcomes
        paid = np.abs(out.rewards[(out.weights > 0) & (out.rewards != 0)])
        idle = np.sum(out.chances[:, None, None] * out.weights * (out.rewards == 0)) / len(states)
        self._amounts = paid if idle >= SPARSE and tables.discount < 1 and self.reach > 0 else None
        base = grids.lattice(paid, tables.resolution)
        self._base = base if base is not None and 2 * self.reach <= LATTICE_CELLS * base else None
        self.sweeps = 0
        self._rounding = 0.0  # the largest of all grids so far: what a coarse one rounded stays rounded
        self._grids = 0
        self.grid: Grid | None = None
        self._maps: LawMaps | None = None
        self.F: jax.Array | None = None  # [S, N, S]
        self.stop_loss: StopLoss | None = None

    def is_lattice(self, amounts: Floats) -> bool:
        """Whether every gap that begins with one of these `amounts` is a whole number of steps of the present grid."""
        if self._base is None or self.tables.discount < 1 or self._amounts is not None:
            return False
        return grids.off_lattice(amounts, self._base) <= self.tables.resolution

    @cached_property
    def merging(self) -> tuple[Floats, Floats]:
        """Bounds on the probability that two branches become one, ``[S, S]`` each."""
        return pair_graph.merging(self.tables, self.horizon)

    def bytes_of(self, cells: int, is_whole: bool) -> int:
        """Memory that a grid of so many cells takes at its peak, about."""
        groups, size, outcomes = self.tables.outcomes.weights.shape
        meetings = self.tables.meetings
        maps = 48 * groups * size * outcomes + (0 if meetings is None else 96 * len(meetings.weights))
        return cells * (8 * (ARRAYS if is_whole else ROUNDED_ARRAYS) * size * size + maps)

    @property
    def cells(self) -> int:
        """Cells of the present grid; 0 before the first."""
        return 0 if self.grid is None else len(self.grid.points) - 1

    def set_grid(self, cells: int, is_whole: bool) -> None:
        """Change to a grid of about `cells` cells, keeping what is known; over a horizon this computes the answer."""
        grid = self._make_grid(cells)
        self._rounding = max(self._rounding, grid.rounding)
        self._grids += 1
        with float64():
            self._maps = self._make_maps(grid)
            F, stop_loss = self._start_rounded(grid), self._start_stop_loss(grid) if is_whole else None
            if self.grid is not None and self.F is not None and self.horizon is None:
                # F_j bounds P(G < z_{j+1}): the last old point strictly below the next new one.
                beyond = np.append(grid.points[1:], np.inf) - self.grid.rounding
                last = np.maximum(np.searchsorted(self.grid.points, beyond, side="left") - 1, 0)
                F = jnp.minimum(F, self.F[:, on_device(last)])
                if stop_loss is not None and self.stop_loss is not None:
                    places = grids.cell_index(self.grid, grid.points)
                    known = gap_distribution.at_points(self.stop_loss, *(on_device(x) for x in places))
                    stop_loss = gap_distribution.tightened(stop_loss, known)
            self.grid, self.F, self.stop_loss = grid, F, stop_loss
            if self.horizon is not None:
                self.advance(self.horizon - 1)
                self.sweeps = self.horizon

    def _first_cells(self, memory_limit: int, is_whole: bool) -> int:
        wanted = FIRST_CELLS
        if self._amounts is not None:
            wanted = max(wanted, math.ceil(2 * math.log(RESOLVED) / math.log(self.tables.discount)))
        fits = int(LEAST_CELLS * memory_limit / self.bytes_of(LEAST_CELLS, is_whole))
        return max(LEAST_CELLS, min(wanted, fits))

    def _make_grid(self, cells: int) -> Grid:
        if self._amounts is not None:
            return grids.geometric_grid(self.reach, cells, self.tables.discount, self._amounts)
        if self.grid is None or self.stop_loss is None or self._base is not None or self.reach == 0:
            return grids.even_grid(self.reach, cells, self._base)
        with float64():
            average = np.asarray(jnp.mean(self.stop_loss.upper, axis=(0, 2)))
        return grids.fitted_grid(self.reach, cells, self.grid, average)

    def _make_maps(self, grid: Grid) -> LawMaps:
        t, out = self.tables, self.tables.outcomes
        g, meetings = t.discount, None
        if t.meetings is not None and len(t.meetings.weights):
            m = t.meetings
            rounded, places = grids.threshold_origins(grid, m.rewards, g)
            parts = (m.weights, m.state, m.left, m.right, rounded, *places, m.ties)
            meetings = MeetingMaps(*(on_device(part) for part in parts))
        chances = [on_device(out.chances[block]) for block in self._blocks(grid)]
        first, second = self._moves(grid, out.rewards, 1.0), self._moves(grid, -out.rewards, g)
        points, is_identical = on_device(grid.points), on_device(self.is_identical)
        return LawMaps(points, on_device(g), chances, first, second, meetings, is_identical)

    def _blocks(self, grid: Grid) -> list[slice]:
        """Values of the shared noise that are handled at once: one call for many small arrays."""
        groups, size, _ = self.tables.outcomes.weights.shape
        many = max(1, BLOCK // (size * size * len(grid.points)))
        return [slice(i, i + many) for i in range(0, groups, many)]

    def _moves(self, grid: Grid, shift: Floats, scale: float) -> list[Moves]:
        out = self.tables.outcomes
        found = []
        for block in self._blocks(grid):
            weights, r = out.weights[block], shift[block]
            rounded, places = grids.threshold_origins(grid, r, scale)
            below = np.einsum("gso,gson->gsn", weights, places.below)
            parts = (weights, out.successors[block].astype(np.int32), rounded, *places[:3], below)
            found.append(Moves(*(on_device(part) for part in parts)))
        return found

    def _start_rounded(self, grid: Grid) -> jax.Array:
        """All mass at the lower end of the support."""
        beyond = np.append(grid.points[1:], np.inf)[None, :, None]  # F_j bounds P(G < z_{j+1})
        return on_device((beyond > grid.rounding - self._most_at_start.T[:, None, :]).astype(float))

    def _start_stop_loss(self, grid: Grid) -> StopLoss:
        """Above, mass at both ends of the support, with the right mean; below, all of it at the mean."""
        z, high, low = grid.points[None, :, None], self._most_at_start[:, None, :], -self._most_at_start.T[:, None, :]
        is_zero = (self.is_identical | (self.horizon is not None))[:, None, :]
        mean = np.where(is_zero, 0.0, (self.tables.mean[:, None] - self.tables.mean[None, :])[:, None, :])
        error = np.where(is_zero, 0.0, self.mean_error)
        top = np.minimum(mean + error, high)
        chord = np.clip((top - low) / np.maximum(high - low, np.finfo(float).tiny), 0.0, 1.0) * (high - z)
        upper = np.where(z <= low, top - z, np.where(z >= high, 0.0, np.maximum(chord, top - z)))
        bottom = mean - error
        parts = (np.maximum(upper, 0.0), np.maximum(bottom - z, 0.0), (z >= bottom).astype(float))
        return StopLoss(*(on_device(part) for part in parts))

    def advance(self, sweeps: int) -> None:
        """Tighten the bracket by so many sweeps; over a horizon, go so many steps back from its end."""
        assert self._maps is not None
        assert self.F is not None
        is_endless = self.horizon is None
        with float64():
            for _ in range(sweeps):
                F = gap_distribution.step_rounded(self._maps, self.F)
                self.F = jnp.minimum(self.F, F) if is_endless else F
                if self.stop_loss is not None:
                    X = gap_distribution.step_stop_loss(self._maps, self.stop_loss)
                    self.stop_loss = gap_distribution.tightened(self.stop_loss, X) if is_endless else X
        self.sweeps += sweeps

    def refine(
        self, width: Callable[[], float], tolerance: float, memory_limit: int, name: str, *, is_whole: bool = True
    ) -> bool:
        """Sweep and refine until ``width() ≤ tolerance``, memory ends, or nothing is gained; says if it is the last.

        Where only signs are asked for (``is_whole=False``) the stop-loss functions are left out.
        """
        if self.grid is None or (is_whole and self.stop_loss is None):
            self.set_grid(max(self.cells, self._first_cells(memory_limit, is_whole)), is_whole)
        chunk = math.log(CHUNK_LEFT) / math.log(min(self.tables.discount, 1 - UNIT))
        chunk = math.ceil(min(max(chunk, CHUNK[0]), CHUNK[1]))
        misses, level, first = 0, math.inf, math.inf
        with Meter(name) as meter:
            while True:
                found = width()
                idle = 0
                while self.horizon is None and found > tolerance:
                    before = found
                    self.advance(chunk)
                    found = width()
                    first = min(first, before)
                    done = math.log(first / found) / math.log(first / tolerance) if first > found > tolerance else 0.0
                    meter.update(done, f"{self.cells} cells, width {found:.1e}, wanted {tolerance:.1e}")
                    idle = idle + 1 if found > PAYING * before else 0
                    # Where rewards are sparse nothing shows until the branches have had time to arrive.
                    if idle > (0 if self._amounts is None else 1):
                        break
                misses = misses + 1 if found > PAYING * level else 0
                level = min(level, found)
                # A geometric grid is wide enough all at once, and what did not help need not be tried in large steps.
                most = GROWTH[1] if self._amounts is None and misses == 0 else 2.0
                cells = int(self.cells * min(max(AMPLE * found / tolerance, GROWTH[0]), most))
                fits = int(cells * memory_limit / self.bytes_of(cells, is_whole))
                if found <= tolerance or misses > PATIENCE or fits < GROWTH[0] * self.cells:
                    return misses > PATIENCE
                self.set_grid(min(cells, fits), is_whole)

    @property
    def gap_error(self) -> float:
        """Gaps are this near to those of the shaped, rounded model."""
        tables = self.tables
        return 4 * self._rounding * (tables.steps + self._grids) + 2 * self.mean_error + tables.error

    @property
    def probability_error(self) -> float:
        """Rounding of all sums of probabilities so far."""
        return self._operations * UNIT * max(self.sweeps, 1)

    @property
    def stop_loss_error(self) -> float:
        """Rounding of all sums of stop-loss values so far."""
        assert self.grid is not None
        left = self.tables.steps if self.horizon is None else self.horizon
        return self._operations * UNIT * float(self.grid.points[-1]) * left + self.gap_error

    @property
    def _operations(self) -> int:
        groups, _, outcomes = self.tables.outcomes.weights.shape
        meetings = self.tables.meetings
        met = 0 if meetings is None else int(np.max(np.bincount(meetings.state), initial=0))
        return 4 * (groups + 2 * outcomes + met + 8)

    def brackets(self, left: Ints, right: Ints) -> Brackets:
        """The brackets of some pairs, given by position."""
        assert self.grid is not None
        assert self.F is not None
        assert self.stop_loss is not None
        i, j = on_device(left), on_device(right)
        X = self.stop_loss
        found = (self.F[i, :, j], self.F[j, :, i], X.upper[i, :, j], X.V[i, :, j], X.D[i, :, j])
        errors = self.gap_error, self.probability_error, self.stop_loss_error
        return Brackets(self.grid.points, *errors, *(np.asarray(x) for x in found))
