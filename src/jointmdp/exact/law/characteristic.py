"""Bounds of a law by its characteristic function, which a discount makes easy to compute.

A move ``G = shift + scale · G(child)`` is a product there: ``φ(θ) = Σ weight · exp(iθ·shift) · φ_child(scale·θ)``. So
one sparse product takes φ of all nodes from γθ to θ, and a chain of them begins where θ is so small that three moments
say what φ is. Its cost does not depend on how finely values are told apart, only on the highest frequency T.

What φ up to T says of ``P(G > t)`` is known best possibly (Beurling; Vaaler, Bull. AMS 12, 1985): with

    H(x) = 2 ∫₀¹ J(s) sin(sTx)/(πs) ds,    K(x) = 2 ∫₀¹ (1−s) cos(sTx) ds,    J(s) = πs(1−s)cot(πs) + s,

``|sgn(x) − H(x)| ≤ K(x)`` for all x, and the integral of K is 2π/T. So ``(1 + H ± K)/2`` at G − t bound the
probability, about 2π/T times the density of G near t apart. Tail means are known better still: with Y of Bohman's law,
whose φ is 0 above T and E Y² = (π/T)², ``E|G − t| ≤ E|G + Y − t|``, and the difference is of the order of E Y² times
the density, which the probabilities bound.

Here the integrals are sums over the frequencies of the chains; what these miss is computed on a grid of x and bounded
between, within a window. Outside of it G is bounded by ``E exp(±λG)``, which obeys the same recursion. A path on which
nothing ever differs gives an atom at 0, no density: it is taken out first.
"""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from jointmdp.exact.bellman.pair_step import RAREST
from jointmdp.exact.bellman.pair_sweep import has_numba
from jointmdp.exact.law.node_laws import NodeMeans, Side
from jointmdp.ground.arrays import UNIT, Bools, Floats, Ints, summed
from jointmdp.ground.intervals import Interval
from jointmdp.ground.limits import IsOver, OutOfTimeError, cores

Complex = np.ndarray
FINEST = 1.15  # times the frequencies that a sum needs for values as far as the window's end not to be taken for others
FIRST = 0.02  # the lowest frequency times the window: below, a sine is a line
BEGINNING = 1e-7  # what the moments at the beginning of a chain may miss φ by
STEEPEST = 8.0  # the largest exponent λ, times the standard deviation
OUTSIDE = 1e-7  # probability that the window may leave out
WIDEST = 40.0  # standard deviations that a window is wide on each side
LIKELY = 3.0  # standard deviations around the mean in which thresholds are asked for
STEP, PARTS = 0.7, 16  # of the grid, in 1/T, and cells that each step of it is taken apart into
NOTHING_DIFFERS = 1e-9, 2_000  # how narrow the atom at 0 is to be known, and steps that are made for it
CELLS = 0.7  # of the grid of thresholds, in units of 2π/T
STAIRS = 400  # steps, about, that stand for a falling function
CHUNK = 2**22
TOGETHER = 8  # chains that are walked at once: what an edge is read for
LEAST = 1e-200  # that stands for all below it where upper bounds are walked with
WORTH_COMPILING = 10**8  # moves of edges, some seconds of them


class Kernel(NamedTuple):
    """Sums that stand for H and K: at x they are ``Σ odd·sin(θx) + slope·x`` and ``Σ even·cos(θx)``."""

    frequencies: Floats  # over T, descending
    odd: Floats
    even: Floats
    slope: float
    miss: float
    """By so much at most (1 + H ± K)/2 is on the wrong side of the sign, within the window."""
    bent: Floats
    """|x + Y| is expected to be ``constant + square·x² − Σ bent·cos(θx)``, about."""
    constant: float
    square: float
    excess: tuple[Floats, Floats]
    """By so much at most it is above |x|, for |x| from each x on; falling."""
    lack: float
    """By so much at most it is below |x|, within the window."""


@lru_cache(maxsize=8)
def _kernel(discount: float, chains: int, steps: int, window: float) -> Kernel:
    """The sums over the frequencies of so many chains, good for ``|x| ≤ window`` where T is 1."""
    ratio, count = discount ** (1 / chains), chains * steps
    step = -math.log(ratio)
    s = np.outer(discount ** np.arange(steps), discount ** (np.arange(chains) / chains)).ravel()
    rest = 1 - s
    with np.errstate(divide="ignore", invalid="ignore"):
        J = np.where(rest < 1e-4, (np.pi * rest) ** 2 / 3, np.pi * s * rest / np.tan(np.pi * s) + s)
    odd, even = step * 2 * J / np.pi, step * 2 * s * rest
    slope = 2 * step / math.pi * ratio**count / (1 - ratio)
    bohman = rest * np.cos(np.pi * s) + np.sin(np.pi * s) / np.pi
    flat = step * 2 / (np.pi * s)
    flat[0] /= 2
    bent, square = flat * bohman, step / math.pi * ratio**count / (1 - ratio)
    constant = float(flat.sum()) + 2 / math.pi + square * math.pi**2
    # On a grid the sums and their slopes, between its points cubics through them: f⁗ bounds what these miss.
    cells = max(1, math.ceil(window / STEP))
    x = np.linspace(0.0, window, cells + 1)
    value, size = np.empty((6, len(x))), max(1, min(len(x), CHUNK // (8 * count)))
    wave, further = np.exp(1j * np.outer(x[:size], s)), np.exp(1j * (x[1] * size) * s)
    of_sine, of_cosine = (np.stack(rows, axis=1) for rows in ((odd, even * s, bent * s), (odd * s, even, bent)))
    for begin in range(0, len(x), size):
        rows = slice(begin, begin + size)
        value[0, rows], value[3, rows], value[5, rows] = (wave.imag[: len(x) - begin] @ of_sine).T
        value[1, rows], value[2, rows], value[4, rows] = (wave.real[: len(x) - begin] @ of_cosine).T
        wave *= further
    value[3] *= -1
    value[4:] = constant + square * x**2 - value[4], 2 * square * x + value[5]
    value[:2] += slope * x, np.full(len(x), slope)
    h, u = x[1], np.arange(PARTS + 1) / PARTS
    basis = np.stack([(1 + 2 * u) * (1 - u) ** 2, h * u * (1 - u) ** 2, u**2 * (3 - 2 * u), -h * u**2 * (1 - u)])
    H, K, away = (np.stack([a[:-1], b[:-1], a[1:], b[1:]], axis=1) @ basis for a, b in value.reshape(3, 2, -1))

    def between(weights: Floats, further: float = 0.0) -> float:
        """What a sum of waves can be off by."""
        bend = h**4 / 384 * float(weights @ s**4) + (h / PARTS) ** 2 / 8 * (float(weights @ s**2) + 2 * further)
        return bend + 8 * UNIT * (count + cells) * float(weights @ (1 + s * window))

    miss = max(float(np.max(np.abs(1 - H) - K)), 0.0) / 2 + between(np.abs(odd) + np.abs(even))
    miss += 8 * UNIT * (count + cells) * slope * window
    off = between(np.abs(bent), square) + 16 * UNIT * (constant + square * window**2) * count
    over = away - (x[:-1, None] + h * u)
    excess = np.maximum(np.maximum.accumulate(np.max(over, axis=1)[::-1])[::-1], 0.0) + off
    lack = max(float(np.max(-over)), 0.0) + off
    return Kernel(s, odd, even, slope, miss, bent, constant, square, (x[:-1], excess), lack)


class Chains:
    """The graph as chains of sparse products walk through it."""

    def __init__(self, up: Side, down: Side, means: NodeMeans) -> None:
        """Sides of the same graph."""
        graph = self.graph = up.graph
        e, size = graph.edges, graph.num_nodes
        self.up, self.down, self.means, self.num_roots = up, down, means, graph.num_roots
        self.shifts, which = np.unique(e.shift, return_inverse=True)
        self.parts: list[tuple[sp.csr_array, Floats, Ints, Bools | slice]] = []
        of_half = graph.is_half[e.parent]
        # A pair whose second branch has moved lies between two pairs: it takes the new frequency, then they do.
        for some in (of_half, ~of_half) if of_half.any() else (slice(None),):
            child = np.where(e.child[some] < 0, size, e.child[some]).astype(np.int32)
            starts = np.searchsorted(e.parent[some], np.arange(size + 1)).astype(np.int32)
            matrix = sp.csr_array((e.weight[some].copy(), child, starts), shape=(size, size + 1))
            nodes = slice(0, size) if isinstance(some, slice) else np.append(np.diff(starts) > 0, False)
            self.parts.append((matrix, e.weight[some], which[some].astype(np.int32), nodes))
        self.squares, self.square_error = self._squares()
        self.reach = np.maximum(np.abs(up.least[:size]), np.abs(down.least[:size]))
        # What a product is off by, relatively; and an exponent, over its factor: shifts, and values of children, which
        # are asked at γθ rounded.
        size_of_all = float(np.abs(e.shift).max(initial=0.0) + self.reach.max(initial=0.0))
        wrong = float(np.max(-e.counter - e.shift, initial=0.0)) + 8 * UNIT * size_of_all
        self.counted = 4 * up.rounding + 8 * UNIT, wrong

    @property
    def spreads(self) -> Floats:
        """Standard deviations of the roots, about."""
        return self.means.spread[: self.num_roots]

    def _squares(self) -> tuple[Floats, float]:
        """E G² of every node, about, and how far off that is at most."""
        e, size, scale = self.graph.edges, self.graph.num_nodes, self.up.scale
        mean = np.append(self.means.mean, 0.0)
        square = np.append(self.means.spread**2 + self.means.mean**2, 0.0)
        child = np.where(e.child < 0, size, e.child)
        parts = e.shift**2, 2 * scale * e.shift * mean[child], scale**2 * square[child]
        missed = np.abs(summed(e.parent, e.weight * sum(parts), size) - square[:-1])
        sizes = sum(np.abs(part) for part in parts)
        missed += 16 * self.up.rounding * summed(e.parent, e.weight * sizes, size)
        missed += 2 * summed(e.parent, e.weight * np.abs(e.shift), size) * self.means.error
        is_rare = e.weight <= 2 * RAREST  # these may be far less likely still
        missed += summed(e.parent[is_rare], (e.weight * sizes)[is_rare], size)
        return square[:-1], self.up.patience * float(missed.max())

    def _walk(  # many parameters: what is walked with, how far and how long
        self, values: np.ndarray, highest: np.ndarray, steps: int, is_over: IsOver, of_nothing: float = 1.0
    ) -> Iterator[np.ndarray]:
        """E exp(z·G) of the roots, ``[roots, C]``, for z from ``highest·γ^(steps−1)`` to `highest`.

        From values before the first, of all nodes, ``[K, C]``.
        """
        x = np.concatenate([values, np.full((1, len(highest)), of_nothing)])
        is_large = steps * len(highest) * len(self.graph.edges.parent) > WORTH_COMPILING
        with ThreadPoolExecutor(cores()) as pool:
            move = self._compiled(x, pool) if is_large and has_numba() else self._plain(x)
            for k in range(steps - 1, -1, -1):
                if is_over():
                    raise OutOfTimeError("the characteristic function was not computed")
                yield move(np.exp(np.outer(self.shifts, highest * self.graph.discount**k)))

    def _plain(self, x: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        def move(factor: np.ndarray) -> np.ndarray:
            for c in range(x.shape[1]):
                for matrix, weight, which, nodes in self.parts:
                    matrix.data = weight * factor[which, c]
                    x[nodes, c] = (matrix @ x[:, c])[nodes if isinstance(nodes, slice) else nodes[:-1]]
            if not np.iscomplexobj(x):
                np.maximum(x, LEAST, out=x)
            return x[: self.num_roots]

        return move

    def _compiled(self, x: np.ndarray, pool: ThreadPoolExecutor) -> Callable[[np.ndarray], np.ndarray]:
        """The same in threads, each with some of the rows."""
        from jointmdp.exact.bellman.numba_kernels import rotated
        from jointmdp.exact.bellman.numba_sweeps import run_loop

        now = np.stack([x.real, x.imag], axis=1)
        after, count = now.copy(), cores()
        blocks = []
        for matrix, weight, which, _ in self.parts:
            ends = np.searchsorted(matrix.indptr, np.linspace(0, len(weight), count + 1)[1:-1])
            ends = np.concatenate([[0], ends, [matrix.shape[0]]])
            blocks.append(
                [(a, b, (matrix.indptr[a : b + 1], matrix.indices, weight, which)) for a, b in pairwise(ends)]
            )

        def move(factor: np.ndarray) -> np.ndarray:
            nonlocal now, after
            factors = np.stack([factor.real, factor.imag], axis=1)
            for i, block in enumerate(blocks):
                into = now if i < len(blocks) - 1 else after  # half steps are read by whole ones of the same time

                def run(part: tuple[int, int, Any], into: Floats = into) -> None:
                    run_loop(rotated, part[2], factors, now, into[part[0] : part[1]], np.empty(now.shape[1:]))

                list(pool.map(run, block))
            now, after = after, now
            if not np.iscomplexobj(x):
                np.maximum(now[:, 0], LEAST, out=now[:, 0])
            found = now[: self.num_roots]
            return found[:, 0] + 1j * found[:, 1] if np.iscomplexobj(x) else found[:, 0]

        return move

    def exponents(self, is_over: IsOver) -> tuple[Floats, np.ndarray]:
        """Some λ, descending, and upper bounds of log E exp(±λG) of the roots, ``[2, roots, N]``."""
        g, found = self.graph.discount, []
        highest = STEEPEST / float(self.spreads.min())
        reach = max(float(self.reach.max()), 1e-300)
        steps = max(1, math.ceil(math.log(max(highest * reach, 2.0)) / -math.log(g)))
        square = self.squares + self.square_error
        for sign, side in ((1.0, self.down), (-1.0, self.up)):
            first = highest * g**steps
            top = np.maximum(-side.least[:-1], 0.0) * first
            # (exp x − 1 − x)/x² grows with x, so what G is at most bounds it.
            bend = np.where(top > 1e-3, 1.0001 * (np.exp(top) - 1 - top) / np.maximum(top, 1e-3) ** 2, 0.501)
            begin = 1 + first * (sign * self.means.mean + self.means.error) + first**2 * square * bend
            with np.errstate(over="ignore", invalid="ignore"):
                walk = self._walk(np.maximum(begin, 0.0)[:, None], np.array([sign * highest]), steps, is_over)
                found.append([np.log(x[:, 0]) for x in walk])
        lam = highest * g ** np.arange(steps)
        relative, wrong = self.counted
        off = np.cumsum((4 * relative + lam * wrong)[::-1])[::-1]
        logs = np.array(found).transpose(0, 2, 1)[:, :, ::-1] + off
        return np.asarray(lam), np.where(np.isnan(logs), np.inf, logs)

    def unchanged(self, is_over: IsOver) -> list[Interval]:
        """For every root the probability that nothing that the two branches are paid ever differs."""
        e, size = self.graph.edges, self.graph.num_nodes
        is_equal = (e.shift == 0) & (e.counter == 0)
        child = np.where(e.child < 0, size, e.child)[is_equal]
        matrix = sp.csr_array((e.weight[is_equal], (e.parent[is_equal], child)), shape=(size, size + 1))
        low, high = np.append(np.zeros(size), 1.0), np.ones(size + 1)
        width, most = NOTHING_DIFFERS
        for _ in range(most):
            low[:-1], high[:-1] = matrix @ low, matrix @ high
            if is_over() or np.max((high - low)[: self.num_roots]) <= width:
                break
        off = 2 * most * self.counted[0]
        ends = zip(low[: self.num_roots].tolist(), high[: self.num_roots].tolist(), strict=True)
        return [Interval(max(0.0, a * (1 - off)), min(1.0, b * (1 + off))) for a, b in ends]

    def plan(self, highest: float, window: float) -> tuple[int, int]:
        """Chains that are needed, and steps of each."""
        rate = -math.log(self.graph.discount)
        chains = max(1, math.ceil(FINEST * window * highest * rate / math.pi))
        third = float(np.max(self.reach * (self.squares + self.square_error)))
        lowest = min(FIRST / window, (6 * BEGINNING / max(third, 1e-300)) ** (1 / 3))
        return chains, max(1, math.ceil(math.log(max(highest / lowest, 1.0)) / rate))

    def spectrum(
        self, highest: float, window: float, is_over: IsOver, report: Callable[[float], None]
    ) -> tuple[Kernel, np.ndarray, Floats]:
        """The kernel, φ of the roots at its frequencies, ``[roots, N]``, and how far off each is at most."""
        g, (chains, steps) = self.graph.discount, self.plan(highest, window)
        found = np.empty((self.num_roots, steps, chains), dtype=complex)
        tops = 1j * highest * g ** (np.arange(chains) / chains)
        for begin in range(0, chains, TOGETHER):
            some = slice(begin, begin + TOGETHER)
            z = tops[some] * g**steps
            start = 1 + self.means.mean[:, None] * z + self.squares[:, None] * z**2 / 2
            for k, x in enumerate(self._walk(start, tops[some], steps, is_over)):
                found[:, steps - 1 - k, some] = x
                if k % 16 == 0:
                    report(min(1.0, (begin + TOGETHER * k / steps) / chains))
        first = highest * g**steps
        third = self.reach * (self.squares + self.square_error)
        missed = first * self.means.error + first**2 * self.square_error / 2 + first**3 * third / 6
        off = np.empty(steps)  # later steps may miss less: where branches have become one, nothing is missed
        for k, left in enumerate(self._walk(missed[:, None], np.zeros(1), steps, is_over, of_nothing=0.0)):
            off[steps - 1 - k] = left.max()
        relative, wrong = self.counted
        off += 4 * steps * relative + highest / (1 - g) * wrong
        kernel = _kernel(g, chains, steps, highest * window)
        return kernel, found.reshape(self.num_roots, -1), np.repeat(off, chains)


class Tails(NamedTuple):
    """What moments and exponents say of one gap far from its mean."""

    mean: Interval
    square: Interval
    """E G²."""
    exponents: Floats  # [N]
    logs: Floats  # [2, N] upper bounds of log E exp(±λG)

    @property
    def std(self) -> float:
        """An upper bound of the standard deviation."""
        least = max(self.mean.lower, -self.mean.upper, 0.0)
        return math.sqrt(max(self.square.upper - least**2, 0.0))

    def outside(self, t: Floats, window: float) -> Floats:
        """Upper bounds of P(|G − t| > window), and of E|G − t| and E(G − t)² there over the window and its square."""
        lam = self.exponents
        cosh = np.logaddexp(lam * window, -lam * window)
        with np.errstate(invalid="ignore", over="ignore"):
            sides = np.logaddexp(self.logs[0] - np.outer(t, lam), self.logs[1] + np.outer(t, lam)) - cosh
        # x²/cosh(λx) falls from λx = 2.1 on
        log = np.min(np.where(np.isnan(sides) | (lam * window < 2.1), np.inf, sides), axis=1, initial=math.inf)
        far = (self.square.upper + 2 * np.abs(t) * max(map(abs, self.mean[:2])) + t**2) / window**2
        with np.errstate(over="ignore"):
            return np.minimum(np.exp(log), far) * (1 + 1e-9)

    def beyond(self, t: Floats) -> tuple[Floats, Floats]:
        """Upper bounds of P(G ≥ t) and of P(G ≤ t)."""
        shift = np.outer(t, self.exponents)
        with np.errstate(over="ignore", invalid="ignore"):
            parts = (np.fmin.reduce(log, axis=1) for log in (self.logs[0] - shift, self.logs[1] + shift))
            above, below = (np.minimum(np.exp(part) * (1 + 1e-9), 1.0) for part in parts)
        return above, below

    def shortfall(self, t: float) -> float:
        """An upper bound of E(t − G)⁺, for t below the mean."""
        with np.errstate(over="ignore", invalid="ignore"):
            found = np.exp(self.logs[1] + self.exponents * t) / self.exponents
        far = self.std**2 / (4 * (self.mean.lower - t)) if t < self.mean.lower else math.inf
        return min(float(np.fmin.reduce(found, initial=math.inf)), far) * (1 + 1e-9)

    def window(self) -> float:
        """How far from a threshold values are told apart, so that hardly any lie beyond."""
        middle, std = self.mean.middle, self.std
        t = middle + std * np.array([-LIKELY, LIKELY])
        if abs(middle) <= WIDEST / 2 * std:
            t = np.append(t, 0.0)
        widths = np.arange(4.0, WIDEST + 1) * std
        return next((width for width in widths.tolist() if np.all(self.outside(t, width) <= OUTSIDE)), WIDEST * std)


@dataclass(frozen=True, eq=False)
class Spectrum:
    """What the characteristic function of one gap says of its law."""

    highest: float
    """Frequency."""
    window: float
    """Values as far as this from a threshold are told apart."""
    kernel: Kernel
    phi: Complex  # [N]
    off: Floats  # [N]
    """How far phi may be off."""
    unchanged: Interval
    """The probability that nothing ever differs; then G is 0."""
    tails: Tails

    def _sums(self, t: Floats, add: Callable[[np.ndarray], tuple[Floats, ...]], still: float = 0.0) -> list[Floats]:
        """Sums over ``exp(−iθt)(φ − still)``, for thresholds that are often evenly spaced."""
        theta = self.kernel.frequencies * self.highest
        size = max(1, min(len(t), CHUNK // (8 * len(theta))))
        even = np.linspace(t[0], t[-1], len(t))
        is_even = len(t) > size and bool(np.all(np.abs(t - even) <= 4 * UNIT * np.abs(t).max()))
        further = np.exp(-1j * theta * ((t[-1] - t[0]) / (len(t) - 1) * size)) if is_even else None
        found, wave = [], np.empty(0)
        for begin in range(0, len(t), size):
            if further is None or begin == 0:
                wave = np.exp(-1j * np.outer(t[begin : begin + size], theta)) * (self.phi - still)
            else:
                wave *= further
            found.append(add(wave[: len(t) - begin]))
        return [np.concatenate(column) for column in zip(*found, strict=True)]

    def above(self, t: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Of P(G > t) a lower and an upper bound, and the same of P(G ≥ t)."""
        kernel, theta, mean = self.kernel, self.kernel.frequencies * self.highest, self.tails.mean
        still, loose = self.unchanged.middle, self.unchanged.width
        weights = np.abs(kernel.odd) + np.abs(kernel.even)
        odd, even = self._sums(t, lambda wave: (wave.imag @ kernel.odd, wave.real @ kernel.even), still)
        slope, total = kernel.slope * self.highest, float(weights.sum())
        middle = 1 - still + odd + slope * (mean.middle - t * (1 - still))
        off = float(weights @ self.off) + total * loose + slope * (mean.width + np.abs(t) * loose) + loose
        # Sums of products, and waves that are each some other wave moved on.
        off += 4 * UNIT * (len(theta) + len(t)) * (total + float(weights @ theta) * np.abs(t)) + 16 * UNIT
        error = off / 2 + kernel.miss
        error += self.tails.outside(t, self.window) * (2 + total + slope * self.window)
        lower, upper = (middle - even) / 2 - error, (middle + even) / 2 + error
        most, least = self.tails.beyond(t)
        found = []
        for is_here in (t < 0, t <= 0):
            a, b = lower + self.unchanged.lower * is_here, upper + self.unchanged.upper * is_here
            found += [np.clip(np.maximum(a, 1 - least), 0.0, 1.0), np.clip(np.minimum(b, most), 0.0, 1.0)]
        return found[0], found[1], found[2], found[3]

    def at_most(self, t: Floats) -> tuple[Floats, Floats]:
        """Bounds of P(G ≤ t)."""
        lower, upper, _, _ = self.above(t)
        return 1 - upper, 1 - lower

    @cached_property
    def courses(self) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Thresholds, bounds of P(G ≤ t) at them, and bounds of E(t − G)⁺."""
        middle, reach = self.tails.mean.middle, min(self.window, WIDEST * self.tails.std)
        count = max(16, math.ceil(reach * self.highest / (math.pi * CELLS)))
        t = np.linspace(middle - reach, middle + reach, count)
        lower, upper = self.at_most(t)
        lower, upper = np.maximum.accumulate(lower), np.minimum.accumulate(upper[::-1])[::-1]
        least, most = self._distance(t, lower, upper)
        mean = self.tails.mean  # E(t − G)⁺ is half of E(t − G) and E|t − G|
        off = 8 * UNIT * (np.abs(t) + np.abs(middle) + most)
        low = np.maximum(np.maximum(t - mean.upper + least, 2 * (t - mean.upper)) / 2 - off, 0.0)
        return t, lower, upper, low, (t - mean.lower + most) / 2 + off

    def _distance(self, t: Floats, lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
        """Bounds of E|G − t|, where the bounds of P(G ≤ t) are known for all t."""
        kernel, theta, (mean, square) = self.kernel, self.kernel.frequencies * self.highest, self.tails[:2]
        [known] = self._sums(t, lambda wave: (wave.real @ kernel.bent,))
        total, bend = float(np.abs(kernel.bent).sum()), kernel.square * self.highest**2
        far = square.middle - 2 * t * mean.middle + t**2
        off = float(np.abs(kernel.bent) @ self.off) + bend * (square.width + 2 * np.abs(t) * mean.width)
        size = total + kernel.constant + float(np.abs(kernel.bent) @ theta) * np.abs(t)
        off += 4 * UNIT * (len(theta) + len(t)) * size
        most = kernel.constant + bend * far - known
        outside = kernel.constant + total + self.highest * self.window + bend * self.window**2
        off = off + outside * self.tails.outside(t, self.window)
        # Of what lies nearer to t than each x, no more is expected than the probability of that.
        steps = np.unique(np.geomspace(1, len(kernel.excess[0]), STAIRS).astype(int)) - 1
        x, excess = (column[steps] for column in kernel.excess)
        at_most, below = np.append(upper, 1.0), np.append(0.0, lower)
        above = np.zeros(len(t))
        for i in range(len(x)):
            fall = excess[i] - (excess[i + 1] if i + 1 < len(x) else 0.0)
            end = (x[i + 1] if i + 1 < len(x) else self.window * self.highest) / self.highest
            near = at_most[np.searchsorted(t, t + end)] - below[np.searchsorted(t, t - end)]
            above += fall * np.clip(near, 0.0, 1.0)
        return (most - above - off) / self.highest, (most + kernel.lack + off) / self.highest

    def cvar(self, alpha: float) -> Interval:
        """The mean of the lowest `alpha` fraction: the largest of t − E(t−G)⁺/alpha."""
        t, lower, upper, low, high = self.courses
        size = 8 * UNIT * (np.abs(t) + high / alpha)
        least = float(np.max(t - high / alpha - size))
        # Between two thresholds it lies below two lines, whose slopes the probabilities bound.
        value, left, right = t - low / alpha + size, 1 - lower[:-1] / alpha, 1 - upper[1:] / alpha
        if lower[-1] < alpha:
            return Interval(least, math.inf)
        width, fall = np.diff(t), left - right
        with np.errstate(divide="ignore", invalid="ignore"):
            cross = np.clip(np.nan_to_num((value[1:] - value[:-1] - right * width) / fall), 0.0, width)
        ends = (np.minimum(value[:-1] + left * x, value[1:] - right * (width - x)) for x in (0 * width, cross, width))
        return Interval(least, float(np.max([np.max(end + size[1:]) for end in ends])))

    def quantile(self, q: float) -> Interval:
        """P(G ≤ t) < q at its lower end, and ≥ q at the upper one."""
        t, lower, upper, _, _ = self.courses
        low, high = _ends(t, lower, upper, q)
        nearer = [
            np.linspace(end, t[np.clip(np.searchsorted(t, end) + way, 0, len(t) - 1)], 64)
            for end, way in ((low, 1), (high, -1))
            if math.isfinite(end)
        ]
        for t in nearer:
            a, b = _ends(t, *self.at_most(t), q)
            low, high = max(low, a), min(high, b)
        return Interval(low, high)


def _ends(t: Floats, lower: Floats, upper: Floats, q: float) -> tuple[float, float]:
    """The largest threshold with P(G ≤ t) < q for sure, and the least with ≥ q."""
    return float(np.max(t[upper < q], initial=-math.inf)), float(np.min(t[lower >= q], initial=math.inf))
