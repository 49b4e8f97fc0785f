"""The certified law of one gap: distribution bands, sign probabilities, quantiles and tail means, all as intervals."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from jointmdp.exact.law.node_laws import POSITIVE, chords_above, lines_below, masses_of
from jointmdp.exact.law.pair_graph import sum_down
from jointmdp.ground.arrays import UNIT, Floats, Ints
from jointmdp.ground.checks import as_finite, as_fraction
from jointmdp.ground.errors import LawStatus, NotKnownError
from jointmdp.ground.gap_face import PlannedGap
from jointmdp.ground.intervals import Interval

CUTS = 60  # lines that are tried for a tail mean
BAND = 2000  # thresholds of the band, about

Line = tuple[float, float, float]  # a threshold, the line's value there, and its slope + 1


class Atoms(NamedTuple):
    """A law on finitely many values."""

    values: Floats  # [N] ascending
    probabilities: Floats  # [N]


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
        return self._mean(np.diff(np.maximum(self._falling, 1 - alpha), prepend=1 - alpha), alpha)

    @property
    def _falling(self) -> Floats:
        """F, no larger than any F to the right."""
        return np.minimum.accumulate(self.F[::-1])[::-1]

    def _mean(self, mass: Floats, alpha: float) -> float:
        values = np.where(self.points == POSITIVE, 0.0, self.points)
        parts = mass * values
        cut = np.max(np.abs(values), where=mass > 0, initial=0.0)
        off = 4 * UNIT * (len(parts) * np.sum(np.abs(parts)) + cut)
        return _rounded(float(np.sum(parts) - off) / alpha, -1) if off > 0 else 0.0  # all values are 0, exactly


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


@dataclass(frozen=True, eq=False)
class GapLaw(PlannedGap):
    """Bounds on the law of ``G = Z(state, action) − Z(state, other)``; every interval holds the true value."""

    name: str
    mean_interval: Interval
    """E G, from the moments and their certified error."""
    pairs: int
    """Pairs of states that the two branches can come to while their future still differs."""
    points: int
    """Values that the law of each of them has at most, about."""
    status: LawStatus
    """Whether the tolerance that was asked for was reached, and if not, why."""
    _found: RootBounds
    _merging: Callable[[], Interval]
    known_variance: Interval | None = None
    """Var G, where the moments were at hand."""
    independent_variance: float = math.nan
    """Variance if the two returns were independent, where the moments were at hand."""

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
            f"{self.cvar(0.05)}; {self.pairs:,} pairs of states, {self.points:,} points: {self.status.value})"
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
        at_most, less, at_least, more = (min(float(bound(zero)[0]), other) for bound, other in sides)
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
        parts = (found.up.points, -found.down.points, found.points)
        thin = (x[np.linspace(0, len(x) - 1, min(len(x), BAND // 3)).astype(int)] for x in parts)
        t = np.unique(np.concatenate([*thin, [0.0, *self.support]]) + 0.0)
        lower, upper = self._band(t)
        lower, upper = np.maximum.accumulate(lower), np.minimum.accumulate(upper[::-1])[::-1]
        return t, np.clip(lower, 0, 1), np.clip(upper, 0, 1)

    def _band(self, t: Floats) -> tuple[Floats, Floats]:
        """Lower and upper bounds of P(G ≤ t): by rounded laws and by slopes."""
        above, below = self._slopes(t)
        lower = sum_down(np.ones(len(t)), -self._found.down.below(-t))
        return np.maximum(lower, below), np.minimum(self._found.up.at_most(t), 1 - above)

    def quantile(self, q: float) -> Interval:
        """The q-quantile, inf{t: P(G ≤ t) ≥ q}."""
        q = as_fraction("q", q)
        found = self._found
        low, high = found.up.quantile(q), 0.0 - found.down.counter_quantile(q)
        above, below = self._slopes(found.points)
        low = float(np.max(found.points[1 - above < q], initial=low))
        high = float(np.min(found.points[below >= q], initial=high))
        return Interval(low, math.inf) & Interval(-math.inf, high)

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
        low = max(_rounded(low, -1), found.up.lowest(alpha), self.support.lower)
        high = min(_rounded(self._highest_tail(alpha), 1), -found.down.highest(alpha), mean.upper)
        return Interval(low, math.inf) & Interval(-math.inf, high)

    @cached_property
    def estimate(self) -> Atoms:
        """A law between the bounds, with the mean kept: the one whose stop-loss function is the upper bound."""
        found = self._found
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


def _rounded(x: float, way: int) -> float:
    return math.nextafter(math.nextafter(x, way * math.inf), way * math.inf)


def _probability(lower: float, upper: float) -> Interval:
    return Interval(max(lower, 0.0), 1.0) & Interval(0.0, min(upper, 1.0) + 0.0)  # no minus 0
