"""The certified law of a gap: distribution bands, sign probabilities, quantiles and tail means, all as intervals.

`GapLaw` reads them from bounds; `Laws` makes these, for the gaps of a solution, and refines them step by step until
they are as narrow as asked for, within limits. There are two kinds of steps. One gives every node 64 points, then three
times more, each time from the points before. The other computes the characteristic function, up to three times the
frequency of the time before. What a step takes is known before it is begun: the edges are counted, and each of them
moves all points of its child, or is passed once for every frequency. Which steps there are depends on the graph alone,
and not on what is asked, so neither do answers.
"""

import enum
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from jointmdp.exact.law.characteristic import Spectrum
from jointmdp.exact.law.node_laws import (
    POSITIVE,
    chords_above,
    lines_below,
    masses_of,
)
from jointmdp.exact.law.pair_equations import VarianceParts, merge_probability, variance_parts
from jointmdp.exact.law.pair_graph import GapBranches, GapQuery, GapStart, Opening, reached_pairs, sum_down
from jointmdp.exact.law.refinement import Refinement, RootBounds, Step, outwards
from jointmdp.ground.answers import PlannedGap
from jointmdp.ground.arrays import UNIT, Floats, Ints
from jointmdp.ground.checks import as_finite, as_fraction
from jointmdp.ground.errors import NotKnownError
from jointmdp.ground.intervals import Interval
from jointmdp.ground.limits import Limits, OutOfTimeError, TimeLimit
from jointmdp.ground.progress import Meter

CUTS = 60  # lines that are tried for a tail mean
BAND = 2000  # thresholds of the band, about
TURN = threading.RLock()  # threads that ask at the same time would refine one law at once, each the other's levels
MERGING = 2**24  # bytes beyond those of the law that the graph of merging may take
PAYING = 0.8  # the share of its width that an answer must come to over two levels for the next to be tried

Line = tuple[float, float, float]  # a threshold, the line's value there, and its slope + 1
Width = Callable[["GapLaw"], float]  # of the interval that is asked for
Queries = tuple[GapStart, ...]


class LawStatus(enum.Enum):
    """How far a law was refined; the value is the sentence a person reads."""

    REACHED = "as narrow as was asked for"
    LIMIT = "a finer law would pass a limit: of memory, of time, or of points"
    STAGNATED = "finer laws hardly narrow the answer any more"

    @property
    def is_success(self) -> bool:
        """Whether what was asked for was reached."""
        return self is LawStatus.REACHED


class Atoms(NamedTuple):
    """A law on finitely many values."""

    values: Floats  # [N] ascending
    probabilities: Floats  # [N]


@dataclass(frozen=True, eq=False)
class GapLaw(PlannedGap):
    """Bounds on the law of ``G = Z(state, action) − Z(state, other)``; every interval holds the true value."""

    name: str
    mean_interval: Interval
    """E G, from the moments and their certified error."""
    pairs: int
    """Pairs of states that the two branches can come to while their future still differs."""
    points: int
    """Values that the law of each of them has at most, about; 2 are the least and the largest."""
    status: LawStatus
    """Whether the tolerance that was asked for was reached, and if not, why."""
    _found: RootBounds
    _merging: Callable[[], Interval]
    known_variance: Interval | None = None
    """Var G, where the moments were at hand."""
    independent_variance: float = math.nan
    """Variance if the two returns were independent, where the moments were at hand."""

    @property
    def frequencies(self) -> int:
        """At how many frequencies its characteristic function is known."""
        return 0 if self._found.spectrum is None else len(self._found.spectrum.phi)

    @property
    def mean(self) -> float:
        """E G."""
        return self.mean_interval.estimate

    @property
    def variance_interval(self) -> Interval:
        """Certified bounds of Var G."""
        if self.known_variance is None:
            raise NotKnownError("this law was asked for without moments; evaluate(...).gap(...) knows the variance")
        return self.known_variance

    @property
    def variance(self) -> float:
        """Var G."""
        return self.variance_interval.estimate

    @property
    def std(self) -> float:
        """Standard deviation of G."""
        return math.sqrt(self.variance)

    def __repr__(self) -> str:
        return (
            f"GapLaw({self.name}: better {self.superiority():.4f}, equal {self.tie():.4f}, worse "
            f"{self.inferiority():.4f}; 5 % quantile {self.quantile(0.05)}, mean of the lowest 5 % "
            f"{self.cvar(0.05)}; {self.pairs:,} pairs of states, {self.points:,} points, {self.frequencies:,} "
            f"frequencies: {self.status.value})"
        )

    @cached_property
    def merge(self) -> Interval:
        """The probability that the two branches become one."""
        return self._merging()

    @property
    def support(self) -> Interval:
        """G lies in it."""
        low, high = (0.0 if x == POSITIVE else float(x) for x in (self._found.up.points[0], self._found.down.points[0]))
        return Interval(low, 0.0 - high)

    @cached_property
    def _signs(self) -> tuple[float, float, float, float]:
        """Upper bounds on P(G ≤ 0), P(G < 0), P(G ≥ 0) and P(G > 0)."""
        zero = np.zeros(1)
        above, below = (float(found[0]) for found in self._slopes(zero))
        up, down = self._found.up, self._found.down
        sides = (up.at_most, 1 - above), (up.below, 1 - above), (down.at_most, 1 - below), (down.below, 1 - below)
        bounds = [min(float(bound(zero)[0]), other) for bound, other in sides]
        if self._found.spectrum is not None:
            low, high, least, most = (float(end[0]) for end in self._found.spectrum.above(zero))
            bounds = [min(pair) for pair in zip(bounds, (1 - low, 1 - least, most, high), strict=True)]
        at_most, less, at_least, more = bounds
        return at_most, less, at_least, more

    def superiority(self) -> Interval:
        """P(G > 0)."""
        at_most, _, _, more = self._signs
        return _probability(_less(1.0, at_most), more)

    def tie(self) -> Interval:
        """P(G = 0)."""
        at_most, less, at_least, more = self._signs
        return _probability(_less(_less(1.0, less), more), -_less(_less(1.0, at_most), at_least))

    def inferiority(self) -> Interval:
        """P(G < 0)."""
        _, less, at_least, _ = self._signs
        return _probability(_less(1.0, at_least), less)

    def cdf(self, t: float) -> Interval:
        """P(G ≤ t)."""
        lower, upper = self._band(np.array([as_finite("t", t)]))
        return _probability(float(lower[0]), float(upper[0]))

    @cached_property
    def band(self) -> tuple[Floats, Floats, Floats]:
        """Thresholds with lower and upper bounds of P(G ≤ t) at each, for plots."""
        found = self._found
        parts = [found.up.points, -found.down.points, found.points]
        if found.spectrum is not None:
            parts.append(found.spectrum.courses[0])
        thin = (x[np.linspace(0, len(x) - 1, min(len(x), BAND // 3)).astype(int)] for x in parts)
        t = np.unique(np.concatenate([*thin, [0.0, *self.support]]) + 0.0)
        lower, upper = self._band(t)
        lower, upper = np.maximum.accumulate(lower), np.minimum.accumulate(upper[::-1])[::-1]
        return t, np.clip(lower, 0, 1), np.clip(upper, 0, 1)

    def _band(self, t: Floats) -> tuple[Floats, Floats]:
        """Lower and upper bounds of P(G ≤ t): by rounded laws and by slopes."""
        above, below = self._slopes(t)
        lower = np.maximum(sum_down(np.ones(len(t)), -self._found.down.below(-t)), below)
        upper = np.minimum(self._found.up.at_most(t), 1 - above)
        if self._found.spectrum is None:
            return lower, upper
        low, high = self._found.spectrum.at_most(t)
        return np.maximum(lower, low), np.minimum(upper, high)

    def quantile(self, q: float) -> Interval:
        """The q-quantile, inf{t: P(G ≤ t) ≥ q}."""
        q = as_fraction("q", q)
        found = self._found
        low, high = found.up.quantile(q), 0.0 - found.down.counter_quantile(q)
        above, below = self._slopes(found.points)
        low = float(np.max(found.points[1 - above < q], initial=low))
        high = float(np.min(found.points[below >= q], initial=high))
        answer = Interval(low, math.inf) & Interval(-math.inf, high)
        return answer if found.spectrum is None else answer & found.spectrum.quantile(q)

    def stop_loss(self, t: float) -> Interval:
        """E(G − t)⁺."""
        at = np.array([as_finite("t", t)])
        return Interval(float(self._lower(at)[0]), float(self._upper(at)[0]))

    def cvar(self, alpha: float) -> Interval:
        """The mean of the lowest `alpha` fraction: max over t of t − E(t−G)⁺/α."""
        alpha = as_fraction("alpha", alpha)
        found, mean = self._found, self.mean_interval
        parts = (alpha - 1) * found.points, np.full(len(found.points), mean.lower), -found.upper
        size = sum(np.abs(part) for part in parts)
        low = float(np.max(sum(parts) - 4 * UNIT * size)) / alpha
        low = max(outwards(low, -1), found.up.lowest(alpha), self.support.lower)
        high = min(outwards(self._highest_tail(alpha), 1), -found.down.highest(alpha), mean.upper)
        answer = Interval(low, math.inf) & Interval(-math.inf, high)
        return answer if found.spectrum is None else answer & found.spectrum.cvar(alpha)

    @cached_property
    def estimate(self) -> Atoms:
        """A law between the bounds, with the mean kept: the one whose stop-loss function is the upper bound.

        Where no points were made, the middle between the bounds of a characteristic function.
        """
        found = self._found
        if found.spectrum is not None and len(found.points) <= 2:
            t, lower, upper, _, _ = found.spectrum.courses
            chance = np.diff((lower + upper) / 2, prepend=0.0, append=1.0)
            values = np.concatenate([t[:1], (t[1:] + t[:-1]) / 2, t[-1:]])[chance > 0]
            chance = chance[chance > 0] / chance.sum()
            return Atoms(values + (self.mean - chance @ values), chance)
        mass = masses_of(np.zeros(len(found.points), dtype=np.int64), found.points, found.upper)
        return Atoms(found.points[mass > 0], mass[mass > 0] / mass.sum())

    def _place(self, t: Floats) -> tuple[Ints, Ints, Ints]:
        """Where the points begin, how many they are, and how many lie below each threshold."""
        count = np.searchsorted(self._found.points, t, side="left")
        return np.zeros_like(count), np.full_like(count, len(self._found.points)), count

    def _upper(self, t: Floats) -> Floats:
        """Upper bounds of E(G − t)⁺."""
        return chords_above(self._found.points, self._found.upper, *self._place(t), t)

    def _lower(self, t: Floats) -> Floats:
        """Lower bounds of E(G − t)⁺."""
        found = self._found
        line, _ = lines_below(found.points, found.lower, found.slope, *self._place(t), t)
        return np.maximum(np.maximum(line, self.mean_interval.lower - t - 4 * UNIT * np.abs(t)), 0.0)

    def _slopes(self, t: Floats) -> tuple[Floats, Floats]:
        """Lower bounds of P(G > t) and P(G < t): −Π' is at least the slope of any chord to the right."""
        y, upper, lower = self._found.points, self._found.upper, self._lower(t)
        count, last = np.searchsorted(y, t, side="left"), len(y) - 1
        left, right = np.clip(count - 1, 0, last), np.clip(count, 0, last)
        above, below, away = np.zeros(len(t)), np.zeros(len(t)), 0
        while away <= last:
            k, i = np.minimum(right + away, last), np.maximum(left - away, 0)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                to_right = np.where(y[k] > t, (lower - upper[k]) / (y[k] - t), 0.0)
                to_left = np.where(y[i] < t, 1 - (upper[i] - lower) / (t - y[i]), 0.0)
            above, below = np.fmax(above, to_right), np.fmax(below, to_left)
            away = 2 * away + 1
        return np.clip(above - 8 * UNIT, 0.0, 1.0), np.clip(below - 8 * UNIT, 0.0, 1.0)

    def _highest_tail(self, alpha: float) -> float:
        """An upper bound of max over t of t − E(t−G)⁺/α.

        Between two lines below the stop-loss function, one with slope + 1 at most α and one with at least α, the
        maximum is at most the value where they cross. The line that is highest there takes the place of one of them.
        """
        y, value, slope = self._found.points, self._found.lower, self._found.slope
        a, b = (0.0, self.mean_interval.lower, 0.0), (0.0, 0.0, 1.0)  # E(G−u)⁺ ≥ E G − u, and ≥ 0
        best, reach = math.inf, max(map(abs, self.support))
        for _ in range(CUTS):
            t, found = _crossing(alpha, a, b, reach)
            best = min(best, found)
            i = int(np.argmax(value + (slope - 1) * (t - y)))
            line = (float(y[i]), float(value[i]), float(slope[i]))
            if line in (a, b):
                break
            a, b = (line, b) if line[2] <= alpha else (a, line)
        upper = self.mean_interval.upper
        return (best + upper + 4 * UNIT * (abs(best) + abs(upper))) / alpha


def _crossing(alpha: float, a: Line, b: Line, reach: float) -> tuple[float, float]:
    """Where two lines cross, and the largest ``(α−1)t − max(line a, line b)(t)``, rounded up.

    α lies between the two values of slope + 1. A mixture of the lines with slope + 1 = α lies below their maximum, and
    touches it where they cross.
    """
    (s, p, x), (t, q, y) = a, b
    if y <= x:  # both have slope + 1 = α
        share, at = 1.0, s
    else:
        share, at = (y - alpha) / (y - x), (p - (x - 1) * s - q + (y - 1) * t) / (y - x)
    parts = share * p, share * (1 - x) * s, (1 - share) * q, (1 - share) * (1 - y) * t
    # A share that is rounded tilts the line by that much, as far as G reaches.
    tilt = abs(p) + abs(q) + abs(s) + abs(t) + reach
    return at, -sum(parts) + 16 * UNIT * (sum(map(abs, parts)) + tilt)


def _less(a: float, b: float) -> float:
    """``a − b``, rounded down."""
    return float(sum_down(np.array([a]), np.array([-b]))[0])


def widest(law: GapLaw, scale: float) -> float:
    """The width of what is least known: the signs, or the means of both tails of 5 %, measured in `scale`."""
    tails = max(law.cvar(0.05).width, law.cvar(0.95).width)
    return max(law.superiority().width, law.tie().width, tails / scale)


def _probability(lower: float, upper: float) -> Interval:
    return Interval(max(lower, 0.0), 1.0) & Interval(0.0, min(upper, 1.0) + 0.0)  # no minus 0


# -- laws of a solution, level by level --------------------------------------------------------------------------------


class Made(NamedTuple):
    """What a step found of all roots."""

    bounds: list[RootBounds]
    spectra: list[Spectrum]
    bytes_needed: int
    seconds: float
    is_cut: bool
    """Whether time ended before it was done; its bounds hold all the same."""


class Level(NamedTuple):
    """What is known of all roots after some steps."""

    points: int
    pairs: int
    roots: list[RootBounds]
    bytes_needed: int


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


class Laws:
    """The laws of all gaps of two branches of a model."""

    def __init__(
        self, branches: GapBranches, horizon: int | None, mean: Floats | None = None, mean_errors: Floats | None = None
    ) -> None:
        """Means of returns and their certified errors, ``[S, A]``, where first actions are compared."""
        self.branches, self.horizon = branches, horizon
        none = np.zeros((0, 0))
        self.mean, self.mean_errors = none if mean is None else mean, none if mean_errors is None else mean_errors
        self._made: dict[Queries, dict[Step, Made]] = {}
        self._plans: dict[
            Queries, tuple[list[Step], int, list[RootBounds]]
        ] = {}  # steps, pairs, and what is known before
        self._last: dict[
            Queries, tuple[Limits, Level | NotKnownError]
        ] = {}  # what limits have ended, or why there is none
        self._open: tuple[Queries, Refinement] | None = None
        self.samples: dict[GapStart, Any] = {}  # simulated gaps, where somebody asked for them

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

        Where there is none, or none within the limits, a NotKnownError says why. The law of two actions in a state
        knows its own `mean` and `name`.
        """
        if name is not None and mean is not None:
            about = name, mean
        else:
            assert not isinstance(query, Opening)
            about = self._about(query)

        def read(level: Level, status: LawStatus = LawStatus.REACHED) -> GapLaw:
            return self._read(query, level, 0, about, status)

        return read(*self._refined((query,), lambda level: width(read(level)), tolerance, limits, f"law of {about[0]}"))

    def gap_laws(self, queries: Sequence[GapQuery], scales: Floats, tolerance: float, limits: Limits) -> list[GapLaw]:
        """The laws of several gaps on one graph of pairs, all as narrow as `widest` says, each with its scale."""

        def read(level: Level, status: LawStatus = LawStatus.REACHED) -> list[GapLaw]:
            return [self._read(query, level, i, self._about(query), status) for i, query in enumerate(queries)]

        def width(level: Level) -> float:
            return max(widest(law, scale) for law, scale in zip(read(level), scales.tolist(), strict=True))

        return read(*self._refined(tuple(queries), width, tolerance, limits, f"laws of {len(queries):,} gaps"))

    def variance_parts(self, queries: list[GapQuery], limits: Limits) -> VarianceParts:
        """Where the variance of each gap arises."""
        is_over = TimeLimit(limits.seconds).is_over
        return variance_parts(self.branches, queries, self.horizon, limits.memory, is_over)

    def signs(self, tolerance: float, limits: Limits) -> SignProbabilities:
        """Who beats whom, for every state and every two actions."""
        available = self.branches.model.available[: len(self.mean)]
        pairs = np.argwhere(available[:, :, None] & available[:, None, :])
        queries = tuple((s, a, b) for s, a, b in pairs.tolist() if a < b)
        if not queries:
            return self._signs((), None)

        def width(level: Level) -> float:
            return self._signs(queries, level).width

        level, status = self._refined(queries, width, tolerance, limits, "signs of all gaps")
        return self._signs(queries, level)._replace(status=status)

    def _refined(  # many parameters: of what, how narrow, and what it may take
        self, queries: Queries, width: Callable[[Level], float], tolerance: float, limits: Limits, title: str
    ) -> tuple[Level, LawStatus]:
        """The first level that is narrow enough, or the last that limits and progress allow, and which it is."""
        clock, before = TimeLimit(limits.seconds), math.inf
        made, level = self._made.setdefault(queries, {}), None
        latest: dict[bool, Made] = {}
        shrunk: dict[bool, list[float]] = {True: [], False: []}  # the share of the width that each step has left
        ended: dict[bool, NotKnownError] = {}
        with TURN, Meter(title) as meter:
            of_before, last = self._last.get(queries, (None, None))
            is_known = of_before is not None and limits.are_within(of_before)
            try:
                if is_known and isinstance(last, NotKnownError) and queries not in self._plans:
                    raise type(last)(str(last))
                for step in self._planned(queries, limits, clock):
                    kind = step.of_waves
                    if kind in ended or (len(shrunk[kind]) > 1 and math.prod(shrunk[kind][-2:]) > PAYING):
                        continue
                    if step not in made and is_known:  # another question has come to the end of these limits
                        if not isinstance(last, Level):
                            assert last is not None
                            raise type(last)(str(last))
                        return last, LawStatus.REACHED if width(last) <= tolerance else LawStatus.LIMIT
                    try:
                        latest[kind] = self._step(step, queries, limits, clock, meter)
                    except NotKnownError as error:
                        ended[kind] = error
                        continue
                    level = self._level(queries, latest)
                    after = width(level)
                    shrunk[kind].append(after / before if 0 < before < math.inf else 0.0)
                    before = after
                    if before <= tolerance:
                        return level, LawStatus.REACHED
                    if latest[kind].is_cut:
                        break
                if level is None:
                    raise next(iter(ended.values()))
                if ended or latest[kind].is_cut:
                    self._last[queries] = limits, level
                is_still = all(math.prod(found[-2:]) > PAYING for found in shrunk.values() if found)
                return level, LawStatus.STAGNATED if is_still and not ended else LawStatus.LIMIT
            except NotKnownError as error:
                self._last[queries] = limits, error
                raise
            finally:
                for step in [step for step, found in made.items() if found.is_cut]:
                    del made[step]  # a question with more time shall find nothing coarse
                    self._open = None

    def _planned(self, queries: Queries, limits: Limits, clock: TimeLimit) -> list[Step]:
        if queries not in self._plans:
            refinement = self._opened(queries, limits, clock)
            ends = refinement.ends() if self.horizon is None else []
            self._plans[queries] = refinement.steps(), refinement.graph.num_pairs, ends
        return self._plans[queries][0]

    def _opened(self, queries: Queries, limits: Limits, clock: TimeLimit) -> Refinement:
        if self._open is None or self._open[0] != queries:
            self._open = None  # before the next graph is made, the memory of the last one is free
            graph = reached_pairs(self.branches, list(queries), limits.memory, clock.is_over)
            self._open = queries, Refinement(graph, self.horizon)
        return self._open[1]

    def _level(self, queries: Queries, latest: dict[bool, Made]) -> Level:
        """The latest steps of both kinds together."""
        _, pairs, roots = self._plans[queries]
        bytes_needed = max(found.bytes_needed for found in latest.values())
        if False in latest:
            roots = latest[False].bounds
        if True in latest:
            rows = zip(roots, latest[True].spectra, strict=True)
            roots = [root._replace(spectrum=spectrum) for root, spectrum in rows]
        return Level(max(len(root.points) for root in roots), pairs, roots, bytes_needed)

    def _step(  # many parameters: which one, of what, and what it may take
        self, step: Step, queries: Queries, limits: Limits, clock: TimeLimit, meter: Meter
    ) -> Made:
        """What a step found, now or before; an error where it does not fit the limits."""
        made, pairs = self._made[queries], self._plans[queries][1]
        what = (
            f"frequencies up to {step.size} per standard deviation" if step.of_waves else f"{step.size} points to each"
        )
        needed = made[step].bytes_needed if step in made else 0
        try:
            if step not in made:
                refinement = self._opened(queries, limits, clock)
                needed = refinement.bytes_for(step)
            if needed > limits.memory:
                raise NotKnownError(
                    f"the law lives on {pairs:,} pairs of states; even {what} take {needed:,} bytes, "
                    f"more than the limit of memory allows ({limits.memory:,}); bounds from moments need no law"
                )
            if step in made:
                return made[step]
            if refinement.seconds_for(step) > clock.left:
                raise OutOfTimeError(f"the law lives on {pairs:,} pairs of states; {what} take more time than is left")
            started = time.monotonic()
            try:
                found = refinement.make(step, clock.is_over, lambda part: meter.update(part, what))
            except OutOfTimeError as error:
                raise OutOfTimeError(
                    f"the law lives on {pairs:,} pairs of states; of {what}, {error} in the "
                    f"{limits.seconds:g} s that were given; bounds from moments need no law"
                ) from None
        except BaseException:  # whatever ends it leaves a step half made
            self._open = None
            raise
        is_cut = clock.is_over() and not step.of_waves
        made[step] = Made(*found, needed, time.monotonic() - started, is_cut)
        return made[step]

    def _signs(self, queries: Sequence[GapQuery], level: Level | None) -> SignProbabilities:
        available = self.branches.model.available[: len(self.mean)]
        exists = available[:, :, None] & available[:, None, :]
        of_same = np.eye(available.shape[1], dtype=bool) & exists
        blank = np.where(exists, 0.0, math.nan)
        better, equal = (blank.copy(), blank.copy()), (blank + of_same, blank + of_same)
        for number, (s, a, b) in enumerate(queries):
            assert level is not None
            law = self._read((s, a, b), level, number, self._about((s, a, b)))
            above, tie, below = law.superiority(), law.tie(), law.inferiority()
            for i in range(2):
                better[i][s, a, b], better[i][s, b, a] = above[i], below[i]
                equal[i][s, a, b] = equal[i][s, b, a] = tie[i]
        return SignProbabilities(better, equal)

    def _about(self, query: GapQuery) -> tuple[str, Interval]:
        """The gap of two actions in words, and its certified mean."""
        (state, action, other), model = query, self.branches.model
        mean = float(self.mean[state, action] - self.mean[state, other])
        error = float(self.mean_errors[state, action] + self.mean_errors[state, other]) + 4e-16 * abs(mean)
        name = f"{model.action_label(action)} − {model.action_label(other)} in {model.state_label(state)}"
        return name, Interval(mean - error, mean + error)

    def _read(  # many parameters: which gap, at which level, and what is known of it
        self,
        query: GapStart,
        level: Level,
        number: int,
        about: tuple[str, Interval],
        status: LawStatus = LawStatus.REACHED,
    ) -> GapLaw:
        def merging() -> Interval:
            return merge_probability(self.branches, query, level.bytes_needed + MERGING, self.horizon)

        return GapLaw(*about, level.pairs, level.points, status, level.roots[number], merging)
