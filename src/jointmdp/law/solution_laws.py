"""Laws of the gaps of a solution, refined until they are as narrow as asked for, within limits of memory and time."""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from jointmdp.arrays import Floats
from jointmdp.errors import LawStatus, NotKnownError
from jointmdp.intervals import Interval
from jointmdp.law.first_moves import Opening
from jointmdp.law.gap_law import GapLaw
from jointmdp.law.merging import merge_probability
from jointmdp.law.reached_pairs import GapBranches, GapQuery, GapStart, reached_pairs
from jointmdp.law.refined_laws import FACTOR, FEWEST, Level, Refinement
from jointmdp.law.time_limit import IsOver, OutOfTimeError, TimeLimit
from jointmdp.law.variance_parts import VarianceParts, variance_parts
from jointmdp.progress import Meter

MOST_LEVELS = 6
TURN = threading.RLock()  # threads that ask at the same time would refine one law at once, each the other's levels
MERGING = 2**24  # bytes beyond those of the law that the graph of merging may take
PAYING = 0.8  # the share of its width that an answer must come to over two levels for the next to be tried
SLOWER = 4.0  # times that a level takes of the one before, about

Width = Callable[[GapLaw], float]  # of the interval that is asked for
Queries = tuple[GapStart, ...]


class Limits(NamedTuple):
    """What a law may take."""

    memory: int
    """Bytes."""
    seconds: float | None = None


class Signs(NamedTuple):
    """Bounds on the signs of all gaps of all states, ``[S, A, A]`` each; NaN where an action is not available."""

    better: tuple[Floats, Floats]
    """P(Z(s,a) > Z(s,b)), lower and upper."""
    equal: tuple[Floats, Floats]
    """P(Z(s,a) = Z(s,b)), lower and upper."""
    status: LawStatus = LawStatus.REACHED
    """Whether all are as narrow as was asked for, and if not, why."""

    def __repr__(self) -> str:
        states, actions, _ = self.better[0].shape
        return (
            f"Signs(every two of {actions} actions in {states} states, known to within {self.width:.1e}; "
            "better[0][s, a, b] and better[1][s, a, b] bound P(Z(s,a) > Z(s,b)), equal likewise)"
        )

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

    def signs(self, tolerance: float, limits: Limits) -> Signs:
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

    def _refined(
        self,
        queries: Queries,
        width: Callable[[Level], float],
        tolerance: float,
        limits: Limits,
        title: str,
    ) -> tuple[Level, LawStatus]:
        time_limit = TimeLimit(limits.seconds)
        with TURN:
            levels = self._levels.setdefault(queries, [])
            try:
                return self._walked(queries, levels, width, tolerance, limits, time_limit, title)
            finally:
                if levels and levels[-1].is_cut:  # the next question, with more time, shall find nothing coarse
                    levels.pop()
                    self._open = None

    def _walked(  # many parameters: those of `_refined`, and where levels are kept
        self,
        queries: Queries,
        levels: list[Level],
        width: Callable[[Level], float],
        tolerance: float,
        limits: Limits,
        time_limit: TimeLimit,
        title: str,
    ) -> tuple[Level, LawStatus]:
        widths = [math.inf, math.inf]
        with Meter(title) as meter:
            for number in range(MOST_LEVELS):
                if number == len(levels):
                    if number and SLOWER * levels[-1].seconds > time_limit.left:
                        return levels[number - 1], LawStatus.LIMIT
                    try:
                        is_made = self._make(queries, number, limits, time_limit.is_over, meter)
                    except BaseException as error:  # whatever ends it leaves a level half made
                        self._open, is_made = None, False
                        if number == 0 or not isinstance(error, OutOfTimeError):
                            raise
                    if not is_made:
                        return levels[number - 1], LawStatus.LIMIT
                elif not self._fits(levels[number].pairs, levels[number].bytes_needed, limits, number):
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
                f"than memory_limit allows ({limits.memory:,}); bounds from moments need no law"
            )
        return needed <= limits.memory

    def _opened(self, queries: Queries, limits: Limits, is_over: IsOver) -> Refinement:
        if self._open is None or self._open[0] != queries:
            self._open = None
            graph = reached_pairs(self.branches, list(queries), limits.memory, is_over)
            self._open = queries, Refinement(graph, self.horizon)
        return self._open[1]

    def _signs(self, queries: Queries, level: Level | None) -> Signs:
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
        return Signs(better, equal)

    def _read(
        self, query: GapStart, level: Level, number: int = 0, mean: Interval | None = None, name: str | None = None
    ) -> GapLaw:
        def merging() -> Interval:
            return merge_probability(self.branches, query, level.bytes_needed + MERGING, self.horizon)

        name = self.name_of(query) if name is None else name
        mean = self.mean_of(query) if mean is None else mean
        return GapLaw(name, mean, level.pairs, level.points, LawStatus.REACHED, level.roots[number], merging)
