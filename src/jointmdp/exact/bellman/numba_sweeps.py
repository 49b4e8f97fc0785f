"""Sweeps over pairs of states on a CPU, tile by tile: XLA's gathers of columns take many times as long.

``P D Pᵀ`` is twice the same step, ``(P D)ᵀ``, and of the second one half is enough, since the result is symmetric.
Memory is read and written in order, and states that lead to each other and lie near each other are in the cache. The
loops are compiled by Numba, an extra: without it, on other devices and for small models sweeps are those of
`pair_sweep`, which says where (`is_tiled`). Certificates never come from here.

Arrays of |S|² numbers: two, and one more each where noise is shared in time and where the source is one.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from jax import Array
from numpy.typing import NDArray

from jointmdp.exact.bellman.pair_sweep import PairProblem, Source
from jointmdp.ground.arrays import on_device
from jointmdp.ground.limits import cores

if TYPE_CHECKING:
    from jointmdp.exact.bellman.numba_kernels import Panels, SparseRows

MOST_PROGRAMS = 16  # that a loop consists of: one try for each


class TiledSweeps:
    """A symmetric array in panels, and the recursion that is applied to it."""

    def __init__(self, problem: PairProblem, D: Array, has_own_diagonal: bool = True) -> None:
        from jointmdp.exact.bellman import numba_kernels

        kernel, added, discount = problem
        assert kernel.columns is not None
        self.size, self.loops = len(D), numba_kernels
        self.per_jax_sweep = float(max(2, kernel.columns.shape[2]))  # as measured (`benchmarks/sweep.py`)
        self.factor = float(discount) ** 2
        self.panels = as_panels(np.asarray(D))
        _, length, _ = self.panels.shape
        dtype = self.panels.dtype
        self.half = np.empty_like(self.panels)
        self.total = np.empty_like(self.panels) if len(kernel.chances) > 1 else None
        self.groups = []  # entries for the first and the second product; the latter with what the sum is multiplied by
        for chance, w, c in zip(np.asarray(kernel.chances), kernel.weights, kernel.columns, strict=True):
            weights, columns, lengths = as_rows(np.asarray(w), np.asarray(c))
            scaled = (self.factor * chance * weights).astype(dtype)
            self.groups.append(((weights, columns, lengths), (scaled, columns, lengths)))
        nothing = np.empty((0, *self.panels.shape[1:]), dtype)
        self.source = nothing if added.cross is None else as_panels(np.asarray(added.cross))
        self.sides, self.diagonal = np.zeros((2, length), dtype)
        if added.sides is not None:
            self.sides[: self.size] = np.asarray(added.sides)
        if not has_own_diagonal:
            self.diagonal = np.empty(0, dtype)
        self.same = np.asarray(added.same, dtype)
        chances, choice = (np.asarray(each, dtype) for each in (kernel.probabilities, kernel.choice))
        self.met = partial(numba_kernels.met, self.panels, chances, np.asarray(kernel.support, np.int32), choice)

    def run(self, count: int) -> float:
        """`count` sweeps; the size of the last step."""
        largest = 0.0
        with ThreadPoolExecutor(cores()) as pool:
            for k in range(count):
                largest = self._sweep(pool, is_measured=k == count - 1)
        return largest if np.isfinite(np.sum(self.panels)) else np.nan  # the loops take everything for a number

    def _sweep(self, pool: ThreadPoolExecutor, is_measured: bool) -> float:
        panels = range(len(self.panels))
        if len(here := self.diagonal[: self.size]):
            run_loop(self.met, here)
            here *= self.factor
            here += self.same
        base, sides = self.source, self.sides
        steps = [0.0]
        for g, (rows, scaled) in enumerate(self.groups):
            is_last = g == len(self.groups) - 1
            after = self.panels if is_last or self.total is None else self.total
            first = partial(self.loops.half_product, self.panels, rows, self.half)
            second = partial(self.loops.whole_product, self.half, scaled, sides, base, self.diagonal, after, self.size)
            list(pool.map(partial(run_loop, first), panels))
            steps = list(pool.map(partial(run_loop, second), panels, [is_last and is_measured] * len(panels)))
            base, sides = after, np.zeros_like(sides)
        return float(np.max(steps))

    def largest(self) -> float:
        """The largest entry."""
        return float(np.max(self.panels))

    def take(self) -> Array:
        """The array, ``[S, S]``; sweeps end here."""
        del self.half, self.total, self.source  # room for it
        return on_device(from_panels(self.panels, self.size))


def spread(problem: PairProblem, R: Array, count: int) -> Array:
    """Σ_{k<count} γ²ᵏ Pᵏ R Pᵏᵀ for a symmetric R."""
    tiles = TiledSweeps(problem._replace(added=Source(problem.added.same, R)), R, has_own_diagonal=False)
    tiles.run(count - 1)
    return tiles.take()


class TiledResponses:
    """The first terms of F of `diagonal_solver`, and the power of the kernel after them; `step` powers at a time."""

    def __init__(self, problem: PairProblem, step: int) -> None:
        from jointmdp.exact.bellman import numba_kernels

        assert step % 2 == 0  # powers go to and fro between two arrays
        kernel, factor = problem.kernel, float(problem.discount) ** 2
        assert kernel.columns is not None
        self.size, self.step, self.done, self.factor = kernel.weights.shape[1], step, 0, factor
        self.panels = as_panels(np.eye(self.size))
        self.sum = np.zeros_like(self.panels)
        rows = as_rows(np.asarray(kernel.weights[0]), np.asarray(kernel.columns[0]))
        tables = (np.asarray(kernel.probabilities), np.asarray(kernel.support, np.int32), np.asarray(kernel.choice))
        arrays = (self.panels, np.zeros_like(self.panels), self.sum)
        self.loop = partial(numba_kernels.add_responses, *arrays, rows, *tables, factor, step)

    @property
    def share(self) -> Array:
        """What the next term is multiplied by."""
        return on_device(np.asarray(self.factor**self.done))

    def add(self) -> None:
        """`step` more powers."""
        with ThreadPoolExecutor(cores()) as pool:
            list(pool.map(partial(run_loop, self.loop, self.factor**self.done), range(len(self.panels))))
        self.done += self.step

    @property
    def powers(self) -> tuple[Array, ...]:
        """The power that comes next."""
        return (on_device(from_panels(self.panels, self.size)),)

    @property
    def response(self) -> Array:
        """The sum of the terms."""
        return on_device(from_panels(self.sum, self.size))


def as_panels(D: NDArray[Any]) -> "Panels":
    """``[S, S]`` as ``[T, N, WIDTH]``, with zeros where there is no state."""
    from jointmdp.exact.bellman.numba_kernels import WIDTH

    S = len(D)
    T = -(-S // WIDTH)
    found = np.zeros((T, T * WIDTH, WIDTH), D.dtype)
    for t in range(T):
        columns = D[:, t * WIDTH : (t + 1) * WIDTH]
        found[t, :S, : columns.shape[1]] = columns
    return found


def from_panels(panels: "Panels", size: int) -> NDArray[Any]:
    """As `as_panels`, back."""
    found, width = np.empty((size, size), panels.dtype), panels.shape[2]
    for t, panel in enumerate(panels):
        columns = found[:, t * width : (t + 1) * width]
        columns[:] = panel[:size, : columns.shape[1]]
    return found


def as_rows(weights: NDArray[Any], columns: NDArray[Any]) -> "SparseRows":
    """Rows ``[S, K]`` as the loops read them: 0, 1, 2 or a multiple of four entries, where some may be zero."""
    from jointmdp.exact.bellman.numba_kernels import WIDTH

    order = np.argsort(weights == 0, axis=1, kind="stable")
    weights, columns = (np.take_along_axis(each, order, axis=1) for each in (weights, columns))
    lengths = np.sum(weights != 0, axis=1)
    lengths = np.where(lengths > 2, -(-lengths // 4) * 4, lengths)
    S, K = weights.shape
    more = ((0, -S % WIDTH), (0, -K % 4))
    return np.pad(weights, more), np.pad(columns, more).astype(np.int32), np.pad(lengths, more[0]).astype(np.int32)


def run_loop(loop: Callable[..., Any], *given: Any) -> Any:
    """What a loop gives. A full disk keeps Numba from storing a program, but not the next try from running it."""
    for _ in range(MOST_PROGRAMS):
        try:
            return loop(*given)
        except OSError:
            continue
    return loop(*given)
