"""The laws of the gaps of one graph, made finer step by step: on more points, or up to higher frequencies."""

import math
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import NamedTuple

import numpy as np

from jointmdp.exact.law.characteristic import Chains, Spectrum, Tails
from jointmdp.exact.law.law_bounds import distribution_bounds, rounded_law, stop_loss_bounds
from jointmdp.exact.law.node_laws import POSITIVE, NodeLaws, Side, node_means, room_for
from jointmdp.exact.law.pair_graph import PairGraph, sum_down
from jointmdp.exact.law.shared_points import bytes_for_shared, is_shared
from jointmdp.ground.arrays import UNIT, Floats, Ints
from jointmdp.ground.errors import NotKnownError
from jointmdp.ground.intervals import Interval
from jointmdp.ground.limits import IsOver, OutOfTimeError

FEWEST, FACTOR = 64, 3
POINT_BYTES = 260  # that a point of a node takes: laws of two levels, and what guides them
ENTRY_BYTES = 300  # that a point takes which an edge moves
NODE_BYTES = 600
SHIFT_BYTES = 500  # that a distinct reward takes where chains are walked
BASE_BYTES = 2**20
MOST_LEVELS = 6
LOWEST, WAVES = 30, 4  # the highest frequency at first, times the standard deviation, and how often it is raised
MOST_ROOTS, ALIKE = 8, 3.0  # of one characteristic function, and how many times their deviations may differ
QUICK = 10**6  # entries of the first points up to which they come first
SLOWEST = 600.0  # seconds from which on no characteristic function is begun
PER_EDGE = 2e-8  # seconds that an edge takes in one product, about
PER_PRODUCT = 6e-5  # and the product itself
PER_WAVE = 1e-8  # and a frequency at each of the places where the kernel is looked at
PER_ENTRY = 1e-5  # and a point that an edge moves, in a cycle
SLOWER = 4.0  # times that a level takes of the one before, about


def outwards(x: float, way: int) -> float:
    """Two numbers further, up or down."""
    return math.nextafter(math.nextafter(x, way * math.inf), way * math.inf)


class RoundedLaw(NamedTuple):
    """A law that is never above the variable: ``P(X < points[j+1]) ≤ F[j]``; `POSITIVE` stands for all above 0."""

    points: Floats
    F: Floats

    def at_most(self, t: Floats) -> Floats:
        """Upper bounds of P(X ≤ t)."""
        return self._read(np.searchsorted(self.points, t, side="right"))

    def below(self, t: Floats) -> Floats:
        """Upper bounds of P(X < t)."""
        # A value may lie between 0 and the least number, which is what stands for all above 0.
        return self._read(np.searchsorted(self.points, np.where(t == POSITIVE, 2 * POSITIVE, t), side="left"))

    def _read(self, count: Ints) -> Floats:
        return np.where(count > 0, self.F[np.maximum(count - 1, 0)], 0.0)

    def quantile(self, q: float) -> float:
        """A number that the q-quantile is not below."""
        return self._amount(int(np.flatnonzero(q <= self.F)[0]))

    def counter_quantile(self, q: float) -> float:
        """A number t with P(X < t) ≤ 1 − q: the q-quantile of −X is at most −t."""
        enough = np.flatnonzero(sum_down(np.ones(len(self.F)), -self.F) >= q)
        return self._amount(int(enough[-1]) + 1 if len(enough) else 0)

    def _amount(self, i: int) -> float:
        value = float(self.points[i])
        return 0.0 if value == POSITIVE else value

    def lowest(self, alpha: float) -> float:
        """A number that the mean of the lowest `alpha` fraction is not below."""
        return self._mean(np.diff(np.minimum(self._falling, alpha), prepend=0.0), alpha)

    def highest(self, alpha: float) -> float:
        """A number that the mean of the highest `alpha` fraction is not below."""
        above = np.minimum(sum_down(np.ones(len(self.F)), -self._falling), alpha)  # P(X > each), rounded down
        return self._mean(-np.diff(above, prepend=alpha), alpha)

    @property
    def _falling(self) -> Floats:
        """F, no larger than any F to the right."""
        return np.minimum.accumulate(self.F[::-1])[::-1]

    def _mean(self, mass: Floats, alpha: float) -> float:
        """The mean with these parts of `alpha`, rounded down; each part is rounded, and their sum."""
        values = np.where((self.points == POSITIVE) | (mass == 0), 0.0, self.points)
        parts = mass / alpha * values
        if not np.any(values):
            return 0.0
        off = len(parts) * (4 * UNIT * np.sum(np.abs(parts)) + POSITIVE)
        return outwards(float(np.sum(parts) - off), -1)


class RootBounds(NamedTuple):
    """All that was found of one gap."""

    up: RoundedLaw
    """Of G."""
    down: RoundedLaw
    """Of −G."""
    points: Floats
    """At which stop-loss values are bounded."""
    upper: Floats
    lower: Floats
    slope: Floats
    """Of the line through the lower bound, which lies below all of the stop-loss function; plus 1."""
    spectrum: Spectrum | None = None


class Step(NamedTuple):
    """What makes a law finer."""

    of_waves: bool
    """Whether of the characteristic function."""
    size: int
    """Points to a node, or the highest frequency per standard deviation."""


class Refinement:
    """The laws of one graph at the finest step made so far."""

    def __init__(self, graph: PairGraph, horizon: int | None) -> None:
        self.graph, self.horizon = graph, horizon
        self.up, self.down = (Side(graph, sign, horizon is None) for sign in (1, -1))
        if horizon is None and not all(np.all(np.isfinite(side.least)) for side in (self.up, self.down)):
            raise NotKnownError(
                "the law of this gap is not known: without a discount, a branch can be paid again and again, and no "
                "amount bounds the gap; give a discount below 1 or a horizon, or estimate: simulate(…) and "
                "compare(policies=…)"
            )
        self.means = node_means(self.up) if horizon is None else None
        self.convex: NodeLaws | None = None
        self.both: list[NodeLaws | None] = [None, None]
        self.made = 0  # steps with points
        self.last_seconds = 0.0  # of them
        self.pace = 1.0  # how many times as long this graph takes as was thought
        self._chains: Chains | None = None
        self._tails: list[Tails] = []

    def steps(self) -> list[Step]:
        """The quicker ones first, as far as the graph tells; but few points to begin with, if they are quick.

        They know laws of few values exactly.
        """
        points = [Step(False, FEWEST * FACTOR**k) for k in range(MOST_LEVELS)]
        if not self._has_spectrum():
            return points
        entries = int(self.up.sizes(self.most(1)).sum())
        waves = [Step(True, LOWEST * FACTOR**k) for k in range(WAVES)]
        costs = {step: PER_ENTRY * entries * step.size for step in points}
        costs |= {step: self._seconds_for(step.size) for step in waves}
        begin = points[: int(entries * FEWEST <= QUICK)]
        return [*begin, *sorted(set(costs) - set(begin), key=lambda step: (costs[step], step))]

    def _has_spectrum(self) -> bool:
        """Whether there is a characteristic function that is computed soon."""
        if self.means is None or not (0 < self.graph.discount < 1 and self.graph.is_cyclic.any()):
            return False
        spreads = self.means.spread[: self.graph.num_roots]
        sizes = [*spreads, *self.up.least, *self.down.least, self.means.error]
        if len(spreads) > MOST_ROOTS or not np.all(np.abs(sizes) < 1e100) or not spreads.min() > 1e-100:
            return False
        return bool(spreads.max() <= ALIKE * spreads.min()) and self._seconds_for(LOWEST) < SLOWEST

    def _seconds_for(self, size: int) -> float:
        """What a characteristic function would take."""
        highest, window = self._reach(size)
        chains, steps = self.chains.plan(highest, window)
        each = len(self.graph.edges.parent) * PER_EDGE + highest * window * PER_WAVE + PER_PRODUCT
        return (chains + 3) * steps * each * self.pace

    @property
    def chains(self) -> Chains:
        """The graph as chains of products walk through it."""
        if self._chains is None:
            assert self.means is not None
            self._chains = Chains(self.up, self.down, self.means)
        return self._chains

    def _reach(self, size: int) -> tuple[float, float]:
        """The highest frequency, and how wide the window is; so wide as it often is where that is not known yet."""
        spreads = self.chains.spreads
        windows = [tails.window() for tails in self._tails]
        return size / float(spreads.min()), max(windows, default=8 * float(spreads.max()))

    def most(self, points: int) -> Ints:
        """Points of each node; those that have only few values will have fewer."""
        return np.full(self.graph.num_nodes, points)

    def bytes_for(self, step: Step) -> int:
        """What a step takes at most."""
        fixed = BASE_BYTES + NODE_BYTES * self.graph.num_nodes + 100 * len(self.graph.edges.parent)
        if step.of_waves:
            chains, steps = self.chains.plan(*self._reach(step.size))
            found = 100 * chains * steps * self.graph.num_roots
            return max(self.graph.bytes_made, fixed + found + SHIFT_BYTES * len(self.chains.shifts))
        most = self.most(step.size)
        sizes = self.up.sizes(most)
        largest = 0
        for nodes, is_cyclic in self.up.batches(most):
            if is_cyclic and self.horizon is None and is_shared(self.up, nodes, most):
                largest = max(largest, bytes_for_shared(self.graph, nodes, step.size))
            else:
                largest = max(largest, ENTRY_BYTES * int(sizes[nodes].sum()))
        return max(self.graph.bytes_made, fixed + POINT_BYTES * room_for(most) + largest)

    def seconds_for(self, step: Step) -> float:
        """What a step takes, about; nothing where nothing says it."""
        return self._seconds_for(step.size) if step.of_waves else SLOWER * self.last_seconds

    def make(
        self, step: Step, is_over: IsOver, report: Callable[[float], None]
    ) -> tuple[list[RootBounds], list[Spectrum]]:
        """Do a step, and those before it that it rests on; an error where time ends long before it is done."""
        started = time.monotonic()
        if step.of_waves:
            spectra = self.transform(step.size, is_over, report)
            self.pace *= (time.monotonic() - started) / self._seconds_for(step.size)
            return [], spectra
        wanted = round(math.log(step.size / FEWEST, FACTOR))
        for k in range(self.made, wanted + 1):  # another question may have taken the place of this one in between
            started = time.monotonic()

            def share(part: float, of_all: float = FACTOR ** (k - wanted)) -> None:
                report(of_all * part)

            found = self.refine(FEWEST * FACTOR**k, is_over, share)
            self.made, self.last_seconds = k + 1, time.monotonic() - started
        return found, []

    def transform(self, size: int, is_over: IsOver, report: Callable[[float], None]) -> list[Spectrum]:
        """The characteristic function up to so many times the inverse of the standard deviation."""
        chains, still = self.chains, self.chains.unchanged(is_over)
        if not self._tails:
            lam, logs = chains.exponents(is_over)
            known = (chains.means.mean, chains.means.error), (chains.squares, chains.square_error)
            for i in range(chains.num_roots):
                mean, square = (Interval(float(x[i]) - off, float(x[i]) + off) for x, off in known)
                self._tails.append(Tails(mean, square, lam, logs[:, i]))
        highest, window = self._reach(size)
        kernel, phi, off = chains.spectrum(highest, window, is_over, report)
        rows = zip(phi, still, self._tails, strict=True)
        return [Spectrum(highest, window, kernel, row, off, same, tails) for row, same, tails in rows]

    def ends(self) -> list[RootBounds]:
        """What is known of the roots before any step: their least values, their largest ones, and their means."""
        assert self.means is not None
        found = []
        for root in range(self.graph.num_roots):
            low, high = float(self.up.least[root]), -float(self.down.least[root])
            up, down = (RoundedLaw(np.array([side.least[root]]), np.ones(1)) for side in (self.up, self.down))
            mean, error = float(self.means.mean[root]), self.means.error + 8 * UNIT * (abs(low) + abs(high))
            above = np.array([mean + error - low, 0.0]), np.array([max(mean - error - low, 0.0), 0.0])
            found.append(RootBounds(up, down, np.array([low, high]), *above, np.array([0.0, 1.0])))
        return found

    def refine(self, points: int, is_over: IsOver, report: Callable[[float], None]) -> list[RootBounds]:
        """The next level; an error where time ends long before it is done."""
        most, horizon, sides = self.most(points), self.horizon, (self.up, self.down)
        self.convex = stop_loss_bounds(*sides, most, horizon, self.means, self.convex, is_over)
        report(1 / 3)
        guides = (None, None) if horizon is not None else distribution_bounds(self.convex)
        # If time ends, what a coarser level knows stays, or the least values; over a horizon these are not known.
        with suppress(OutOfTimeError) if horizon is None else nullcontext():
            for i, (side, guide) in enumerate(zip(sides, guides, strict=True)):
                self.both[i] = rounded_law(side, most, horizon, guide, self.both[i], is_over)
                report((i + 2) / 3)
        return [self._bounds_of(root) for root in range(self.graph.num_roots)]

    def _bounds_of(self, root: int) -> RootBounds:
        assert self.convex is not None
        rounded = []
        for side, laws in zip((self.up, self.down), self.both, strict=True):
            z, (F,) = (side.least[[root]], np.ones((1, 1))) if laws is None else laws.of(root)
            rounded.append(RoundedLaw(z, F))
        points, (upper, lower, slope) = self.convex.of(root)
        return RootBounds(rounded[0], rounded[1], points, upper, lower, slope)
