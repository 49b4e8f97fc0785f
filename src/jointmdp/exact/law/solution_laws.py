"""Laws of the gaps of a solution, refined level by level until they are as narrow as asked for, within limits.

Each level is made from the one before: 64 points to a node, then three times more. What a level takes is known before
it is begun: the edges are counted, and every one of them moves all points of its child. Levels do not depend on what is
asked of them, so neither do answers.
"""

import math
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from jointmdp.exact.law.gap_law import GapLaw, RootBounds, RoundedLaw
from jointmdp.exact.law.law_bounds import distribution_bounds, rounded_law, stop_loss_bounds
from jointmdp.exact.law.node_laws import NodeLaws, Side, room_for
from jointmdp.exact.law.pair_equations import VarianceParts, merge_probability, node_means, variance_parts
from jointmdp.exact.law.pair_graph import GapBranches, GapQuery, GapStart, Opening, PairGraph, reached_pairs
from jointmdp.exact.law.shared_points import bytes_for_shared, is_shared
from jointmdp.ground.arrays import Floats, Ints
from jointmdp.ground.errors import LawStatus, NotKnownError
from jointmdp.ground.intervals import Interval
from jointmdp.ground.limits import IsOver, Limits, OutOfTimeError, TimeLimit
from jointmdp.ground.progress import Meter

FEWEST, FACTOR = 64, 3
POINT_BYTES = 260  # that a point of a node takes: laws of two levels, and what guides them
ENTRY_BYTES = 300  # that a point takes which an edge moves
NODE_BYTES = 600
BASE_BYTES = 2**20


class Level(NamedTuple):
    """What was found of all roots with so many points to a node."""

    points: int
    pairs: int
    roots: list[RootBounds]
    bytes_needed: int
    seconds: float
    is_cut: bool
    """Whether time ended before it was done; its bounds hold all the same."""


class Refinement:
    """The laws of one graph at the finest level made so far."""

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

    def most(self, points: int) -> Ints:
        """Points of each node; those that have only few values will have fewer."""
        return np.full(self.graph.num_nodes, points)

    def bytes_for(self, points: int) -> int:
        """What a level takes at most."""
        most = self.most(points)
        sizes = self.up.sizes(most)
        largest = 0
        for nodes, is_cyclic in self.up.batches(most):
            if is_cyclic and self.horizon is None and is_shared(self.up, nodes, most):
                largest = max(largest, bytes_for_shared(self.graph, nodes, points))
            else:
                largest = max(largest, ENTRY_BYTES * int(sizes[nodes].sum()))
        fixed = BASE_BYTES + NODE_BYTES * self.graph.num_nodes + 100 * len(self.graph.edges.parent)
        return max(self.graph.bytes_made, fixed + POINT_BYTES * room_for(most) + largest)

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
        return [self._root(number) for number in range(self.graph.num_roots)]

    def _root(self, number: int) -> RootBounds:
        assert self.convex is not None
        rounded = []
        for side, laws in zip((self.up, self.down), self.both, strict=True):
            z, (F,) = (side.least[[number]], np.ones((1, 1))) if laws is None else laws.of(number)
            rounded.append(RoundedLaw(z, F))
        points, (upper, lower, slope) = self.convex.of(number)
        return RootBounds(rounded[0], rounded[1], points, upper, lower, slope)


MOST_LEVELS = 6
TURN = threading.RLock()  # threads that ask at the same time would refine one law at once, each the other's levels
MERGING = 2**24  # bytes beyond those of the law that the graph of merging may take
PAYING = 0.8  # the share of its width that an answer must come to over two levels for the next to be tried
SLOWER = 4.0  # times that a level takes of the one before, about

Width = Callable[[GapLaw], float]  # of the interval that is asked for
Queries = tuple[GapStart, ...]


class SignProbabilities(NamedTuple):
    """Bounds on the signs of all gaps of all states, ``[S, A, A]`` each; NaN where an action is not available."""

    better: tuple[Floats, Floats]
    """P(a is better than b), lower and upper: P(Z(s,a) > Z(s,b)), or of costs P(Z(s,a) < Z(s,b))."""
    equal: tuple[Floats, Floats]
    """P(Z(s,a) = Z(s,b)), lower and upper."""
    status: LawStatus = LawStatus.REACHED
    """Whether all are as narrow as was asked for, and if not, why."""

    def __repr__(self) -> str:
        states, actions, _ = self.better[0].shape
        return (
            f"SignProbabilities(every two of {actions} actions in {states} states, known to within {self.width:.1e}; "
            "better[0][s, a, b] and better[1][s, a, b] bound P(a is better than b in s), equal likewise)"
        )

    def mirrored(self) -> "SignProbabilities":
        """The same where the lower of two returns is the better one."""
        return self._replace(better=(self.better[0].swapaxes(1, 2), self.better[1].swapaxes(1, 2)))

    @property
    def width(self) -> float:
        """The widest of all intervals."""
        return float(max(np.nanmax(upper - lower) for lower, upper in (self.better, self.equal)))


def _report(meter: Meter, weight: float, points: int, part: float) -> None:
    meter.update(weight * part, f"{points:,} points")


class Laws:
    """The laws of all gaps of two branches of a model."""

    def __init__(
        self, branches: GapBranches, horizon: int | None, mean: Floats | None = None, mean_errors: Floats | None = None
    ) -> None:
        """Means of returns and their certified errors, ``[S, A]``, where first actions are compared."""
        self.branches, self.horizon = branches, horizon
        none = np.zeros((0, 0))
        self.mean, self.mean_errors = none if mean is None else mean, none if mean_errors is None else mean_errors
        self._levels: dict[Queries, list[Level]] = {}
        self._open: tuple[Queries, Refinement] | None = None

    def mean_of(self, query: GapStart) -> Interval:
        """E G, certified."""
        assert not isinstance(query, Opening)
        state, action, other = query
        mean = float(self.mean[state, action] - self.mean[state, other])
        error = float(self.mean_errors[state, action] + self.mean_errors[state, other]) + 4e-16 * abs(mean)
        return Interval(mean - error, mean + error)

    def name_of(self, query: GapStart) -> str:
        """The gap in words."""
        assert not isinstance(query, Opening)
        state, action, other = query
        model = self.branches.model
        return f"{model.action_label(action)} − {model.action_label(other)} in {model.state_label(state)}"

    def gap_law(  # many parameters: what is asked, of which gap, and how it is called
        self,
        query: GapStart,
        width: Width,
        tolerance: float,
        limits: Limits,
        mean: Interval | None = None,
        name: str | None = None,
    ) -> GapLaw:
        """The law of one gap, refined until ``width(law) ≤ tolerance`` or as far as limits and progress allow.

        Where there is none, or none within the limits, a NotKnownError says why.
        """

        def wide(level: Level) -> float:
            return width(self._read(query, level, 0, mean, name))

        level, status = self._refined((query,), wide, tolerance, limits, f"law of {name or self.name_of(query)}")
        return replace(self._read(query, level, 0, mean, name), status=status)

    def gap_laws(self, queries: Queries, scales: Floats, tolerance: float, limits: Limits) -> list[GapLaw]:
        """The laws of several gaps on one graph of pairs.

        They are refined until all signs are known to `tolerance`, and tail means to `tolerance` times their `scales`.
        """

        def read(level: Level) -> list[GapLaw]:
            return [self._read(query, level, number) for number, query in enumerate(queries)]

        def wide(level: Level) -> float:
            laws = read(level)
            tails = (max(law.cvar(0.05).width, law.cvar(0.95).width) for law in laws)
            return max(
                max(law.superiority().width, law.tie().width, tail / scale)
                for law, tail, scale in zip(laws, tails, scales.tolist(), strict=True)
            )

        level, status = self._refined(queries, wide, tolerance, limits, f"laws of {len(queries):,} gaps")
        return [replace(law, status=status) for law in read(level)]

    def variance_parts(self, queries: list[GapQuery], limits: Limits) -> VarianceParts:
        """Where the variance of each gap arises."""
        is_over = TimeLimit(limits.seconds).is_over
        return variance_parts(self.branches, queries, self.horizon, limits.memory, is_over)

    def signs(self, tolerance: float, limits: Limits) -> SignProbabilities:
        """Who beats whom, for every state and every two actions."""
        available = self.branches.model.available
        pairs = np.argwhere(available[:, :, None] & available[:, None, :])
        queries = tuple((s, a, b) for s, a, b in pairs.tolist() if a < b)
        if not queries:
            return self._signs((), None)
        level, status = self._refined(
            queries, lambda level: self._signs(queries, level).width, tolerance, limits, "signs of all gaps"
        )
        return self._signs(queries, level)._replace(status=status)

    def _refined(  # many parameters: of what, how narrow, and what it may take
        self, queries: Queries, width: Callable[[Level], float], tolerance: float, limits: Limits, title: str
    ) -> tuple[Level, LawStatus]:
        """The first level that is narrow enough, or the last that limits and progress allow, and which it is."""
        clock, widths = TimeLimit(limits.seconds), [math.inf, math.inf]
        with TURN, Meter(title) as meter:
            levels = self._levels.setdefault(queries, [])
            try:
                for number in range(MOST_LEVELS):
                    if not self._has(number, queries, limits, clock, meter):
                        return levels[number - 1], LawStatus.LIMIT
                    level = levels[number]
                    widths.append(width(level))
                    if widths[-1] <= tolerance:
                        return level, LawStatus.REACHED
                    if level.is_cut:
                        return level, LawStatus.LIMIT
                    if widths[-1] > PAYING * widths[-3]:
                        return level, LawStatus.STAGNATED
                return level, LawStatus.LIMIT
            finally:
                if levels and levels[-1].is_cut:  # the next question, with more time, shall find nothing coarse
                    levels.pop()
                    self._open = None

    def _has(self, number: int, queries: Queries, limits: Limits, clock: TimeLimit, meter: Meter) -> bool:
        """Whether there is a level, or could be made, within the limits."""
        levels = self._levels[queries]
        if number < len(levels):
            return self._fits(levels[number].pairs, levels[number].bytes_needed, limits, number)
        if number and SLOWER * levels[-1].seconds > clock.left:
            return False
        try:
            return self._make(queries, number, limits, clock.is_over, meter)
        except BaseException as error:  # whatever ends it leaves a level half made
            self._open = None
            if number == 0 or not isinstance(error, OutOfTimeError):
                raise
            return False

    def _make(self, queries: Queries, number: int, limits: Limits, is_over: IsOver, meter: Meter) -> bool:
        """Add a level, if it fits."""
        refinement = self._opened(queries, limits, is_over)
        levels, points = self._levels[queries], FEWEST * FACTOR**number
        pairs, needed = refinement.graph.num_pairs, refinement.bytes_for(points)
        if not self._fits(pairs, needed, limits, number):
            return False
        made = 0 if refinement.convex is None else number
        for k in range(made, number + 1):  # another question may have come in between, and taken the place of this one
            started, count = time.monotonic(), FEWEST * FACTOR**k
            done = partial(_report, meter, FACTOR ** (k - number), count)
            try:
                roots = refinement.refine(count, is_over, done)
            except OutOfTimeError as error:
                raise OutOfTimeError(
                    f"the law lives on {pairs:,} pairs of states; of {count} points to each, {error} in the "
                    f"{limits.seconds:g} s that were given; bounds from moments need no law"
                ) from None
        levels.append(Level(points, pairs, roots, needed, time.monotonic() - started, is_over()))
        return True

    @staticmethod
    def _fits(pairs: int, needed: int, limits: Limits, number: int) -> bool:
        if needed > limits.memory and number == 0:
            raise NotKnownError(
                f"the law lives on {pairs:,} pairs of states; even {FEWEST} points to each take {needed:,} bytes, more "
                f"than the limit of memory allows ({limits.memory:,}); bounds from moments need no law"
            )
        return needed <= limits.memory

    def _opened(self, queries: Queries, limits: Limits, is_over: IsOver) -> Refinement:
        if self._open is None or self._open[0] != queries:
            self._open = None
            graph = reached_pairs(self.branches, list(queries), limits.memory, is_over)
            self._open = queries, Refinement(graph, self.horizon)
        return self._open[1]

    def _signs(self, queries: Queries, level: Level | None) -> SignProbabilities:
        available = self.branches.model.available
        exists = available[:, :, None] & available[:, None, :]
        of_same = np.eye(available.shape[1], dtype=bool) & exists
        blank = np.where(exists, 0.0, math.nan)
        better, equal = (blank.copy(), blank.copy()), (blank + of_same, blank + of_same)
        for number, query in enumerate(queries):
            assert level is not None
            assert not isinstance(query, Opening)
            s, a, b = query
            law = self._read((s, a, b), level, number)
            above, tie, below = law.superiority(), law.tie(), law.inferiority()
            for i in range(2):
                better[i][s, a, b], better[i][s, b, a] = above[i], below[i]
                equal[i][s, a, b] = equal[i][s, b, a] = tie[i]
        return SignProbabilities(better, equal)

    def _read(
        self, query: GapStart, level: Level, number: int = 0, mean: Interval | None = None, name: str | None = None
    ) -> GapLaw:
        def merging() -> Interval:
            return merge_probability(self.branches, query, level.bytes_needed + MERGING, self.horizon)

        name = self.name_of(query) if name is None else name
        mean = self.mean_of(query) if mean is None else mean
        return GapLaw(name, mean, level.pairs, level.points, LawStatus.REACHED, level.roots[number], merging)
