"""Certified laws of all gaps of a model: brackets that hold at every stopping point, on grids that grow finer.

Every bracket starts valid (a law at the ends of its support, the point mass at the mean), every sweep keeps it valid,
and the better of old and new is kept. A finer grid starts from what the coarser one knows. So one may stop anywhere:
for a tolerance, or when the next grid does not fit in memory.
"""

from __future__ import annotations

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
from jointmdp.law import grids, ties
from jointmdp.law.grids import Grid
from jointmdp.law.largest_gaps import largest_gaps
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


class Rows(NamedTuple):
    """The brackets of some pairs of states, on the host."""

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
        self.is_nought = ties.nought_pairs(tables)
        self.no_difference = ties.no_difference(tables, self.is_nought, horizon)
        self.most, self.reach = largest_gaps(tables, self.is_nought, horizon)
        out = tables.outcomes
        paid = np.abs(out.rewards[(out.weights > 0) & (out.rewards != 0)])
        idle = np.sum(out.chances[:, None, None] * out.weights * (out.rewards == 0)) / len(states)
        self._amounts = paid if idle >= SPARSE and tables.discount < 1 and self.reach > 0 else None
        base = grids.lattice(paid, tables.same)
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
        multiples = amounts / self._base
        return bool(np.all(np.abs(multiples - np.round(multiples)) * self._base <= self.tables.same))

    @cached_property
    def merging(self) -> tuple[Floats, Floats]:
        """Bounds on the probability that two branches become one, ``[S, S]`` each."""
        return ties.merging(self.tables, self.horizon)

    # -- the grid ----------------------------------------------------------------------------------------------

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
                    known = gap_distribution.read(self.stop_loss, *(on_device(x) for x in places))
                    stop_loss = gap_distribution.tightened(stop_loss, known)
            self.grid, self.F, self.stop_loss = grid, F, stop_loss
            if self.horizon is not None:
                self._sweep(self.horizon - 1, self.horizon)
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
        return grids.fitted_grid(self.reach, cells, self.grid, self._mass())

    def _mass(self) -> Floats:
        """Where the gaps lie, on the average over all pairs: the second difference of the stop-loss function."""
        assert self.grid is not None
        assert self.stop_loss is not None
        with float64():
            mean = np.asarray(jnp.mean(self.stop_loss.upper, axis=(0, 2)))
        slopes = np.diff(mean) / np.diff(self.grid.points)
        return np.maximum(np.diff(np.concatenate([[-1.0], slopes, [0.0]])), 0.0)

    def _make_maps(self, grid: Grid) -> LawMaps:
        t, out = self.tables, self.tables.outcomes
        g, meetings = t.discount, None
        if t.meetings is not None and len(t.meetings.weights):
            m = t.meetings
            places = grids.cell_index(grid, grids.origins(grid, m.rewards, g))
            rounded = grids.rounded_index(grid, m.rewards, g)
            parts = (m.weights, m.state, m.left, m.right, rounded, *places, m.ties)
            meetings = MeetingMaps(*(on_device(part) for part in parts))
        return LawMaps(
            on_device(grid.points),
            on_device(g),
            [on_device(out.chances[block]) for block in self._blocks(grid)],
            self._moves(grid, out.rewards, 1.0),
            self._moves(grid, -out.rewards, g),
            meetings,
            on_device(self.is_nought),
        )

    def _blocks(self, grid: Grid) -> list[slice]:
        """Values of the common luck that are handled at once: one call for many small arrays."""
        groups, size, _ = self.tables.outcomes.weights.shape
        many = max(1, BLOCK // (size * size * len(grid.points)))
        return [slice(i, i + many) for i in range(0, groups, many)]

    def _moves(self, grid: Grid, shift: Floats, scale: float) -> list[Moves]:
        out = self.tables.outcomes
        found = []
        for block in self._blocks(grid):
            weights, r = out.weights[block], shift[block]
            places = grids.cell_index(grid, grids.origins(grid, r, scale))
            below = np.einsum("gso,gson->gsn", weights, places.below)
            rounded = grids.rounded_index(grid, r, scale)
            parts = (weights, out.successors[block].astype(np.int32), rounded, *places[:3], below)
            found.append(Moves(*(on_device(part) for part in parts)))
        return found

    def _start_rounded(self, grid: Grid) -> jax.Array:
        """All mass at the lower end of the support, or at 0 where no step is left to go."""
        lowest = -self.most.T[:, None, :] if self.horizon is None else np.zeros((len(self.most), 1, len(self.most)))
        beyond = np.append(grid.points[1:], np.inf)[None, :, None]  # F_j bounds P(G < z_{j+1})
        return on_device((beyond > lowest + grid.rounding).astype(float))

    def _start_stop_loss(self, grid: Grid) -> StopLoss:
        """Above, mass at both ends of the support, with the right mean; below, all of it at the mean."""
        z, size = grid.points[None, :, None], len(self.most)
        if self.horizon is not None:
            rows = (np.maximum(-z, 0.0), np.maximum(-z, 0.0), (z >= 0).astype(float))
            return StopLoss(*(on_device(np.broadcast_to(row, (size, z.shape[1], size))) for row in rows))
        high, low = self.most[:, None, :], -self.most.T[:, None, :]
        nought = self.is_nought[:, None, :]
        mean = np.where(nought, 0.0, (self.tables.mean[:, None] - self.tables.mean[None, :])[:, None, :])
        error = np.where(nought, 0.0, self.mean_error)
        top = np.minimum(mean + error, high)
        chord = np.clip((top - low) / np.maximum(high - low, np.finfo(float).tiny), 0.0, 1.0) * (high - z)
        upper = np.where(z <= low, top - z, np.where(z >= high, 0.0, np.maximum(chord, top - z)))
        bottom = mean - error
        parts = (np.maximum(upper, 0.0), np.maximum(bottom - z, 0.0), (z >= bottom).astype(float))
        return StopLoss(*(on_device(part) for part in parts))

    # -- sweeps ------------------------------------------------------------------------------------------------

    def _sweep(self, count: int, horizon: int | None) -> None:
        assert self._maps is not None
        assert self.F is not None
        for _ in range(count):
            F = gap_distribution.step_rounded(self._maps, self.F)
            self.F = F if horizon is not None else jnp.minimum(self.F, F)
            if self.stop_loss is not None:
                X = gap_distribution.step_stop_loss(self._maps, self.stop_loss)
                self.stop_loss = X if horizon is not None else gap_distribution.tightened(self.stop_loss, X)

    def advance(self, sweeps: int) -> None:
        """Tighten the bracket by so many sweeps."""
        with float64():
            self._sweep(sweeps, None)
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

    # -- what float64 costs ------------------------------------------------------------------------------------

    @property
    def shift_slack(self) -> float:
        """Gaps are this near to those of the shaped, rounded model."""
        g = self.tables.discount
        steps = 1 / (1 - g) if self.horizon is None else min(self.horizon, 1 / (1 - g) if g < 1 else math.inf)
        assert self.grid is not None
        return 4 * self._rounding * (steps + self._grids) + 2 * self.mean_error + self.tables.slack

    @property
    def probability_slack(self) -> float:
        """Rounding of all sums of probabilities so far."""
        return self._operations * UNIT * max(self.sweeps, 1)

    @property
    def stop_loss_slack(self) -> float:
        """Rounding of all sums of stop-loss values so far."""
        assert self.grid is not None
        left = 1 / (1 - self.tables.discount) if self.horizon is None else self.horizon
        return self._operations * UNIT * float(self.grid.points[-1]) * left + self.shift_slack

    @property
    def _operations(self) -> int:
        groups, _, outcomes = self.tables.outcomes.weights.shape
        meetings = self.tables.meetings
        met = 0 if meetings is None else int(np.max(np.bincount(meetings.state), initial=0))
        return 4 * (groups + 2 * outcomes + met + 8)

    def rows(self, left: Ints, right: Ints) -> Rows:
        """The brackets of some pairs, given by position."""
        assert self.F is not None
        assert self.stop_loss is not None
        i, j = on_device(left), on_device(right)
        X = self.stop_loss
        found = (self.F[i, :, j], self.F[j, :, i], X.upper[i, :, j], X.V[i, :, j], X.D[i, :, j])
        return Rows(*(np.asarray(x) for x in found))
