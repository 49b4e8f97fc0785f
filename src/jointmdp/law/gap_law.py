"""The certified law of one gap: distribution bands, sign probabilities, quantiles and tail means, all as intervals.

The last step, from the two actions to the pairs of states behind them, is taken exactly: the law of the gap is the
mixture over scenarios of ``r + γ G(S'_a, S'_b)``, read off at any threshold without another rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from jointmdp.arrays import UNIT, Floats
from jointmdp.checks import as_fraction, as_number
from jointmdp.errors import ModelError, NotKnownError
from jointmdp.intervals import Interval
from jointmdp.law.pair_brackets import Rows

BISECTIONS = 40
READINGS = 200_000  # entries of the brackets that one look at all thresholds may read
KNOTS = (300, 2000)  # thresholds at which slopes of the stop-loss function are compared


class Atoms(NamedTuple):
    """A law on finitely many values."""

    values: Floats  # [N] ascending
    probabilities: Floats  # [N]


@dataclass(frozen=True, eq=False)
class GapLaw:
    """Bounds on the law of ``G = Z(state, action) − Z(state, other)``; every interval holds the true value."""

    name: str
    mean_interval: Interval
    """E G, from the moments and their certified error."""
    support: Interval
    """G lies in it."""
    never_differs: float
    """At least this probability: no reward difference ever, so that G = 0."""
    merge: Interval
    """The probability that the two branches become one."""
    spacing: float
    """Distance of the grid's points; the least of a fitted grid, the largest of a geometric one."""
    cells: int
    """Cells of the grid."""
    _weights: Floats = field(repr=False)  # [n] of the mixture
    _shifts: Floats = field(repr=False)  # [n]
    _discount: float = field(repr=False)
    _points: Floats = field(repr=False)  # [N]
    _rows: Rows = field(repr=False)
    _shift_slack: float = field(repr=False)
    _probability_slack: float = field(repr=False)
    _stop_loss_slack: float = field(repr=False)
    _is_lattice: bool = field(repr=False)
    known_variance: Interval | None = None
    """Var G, where the moments were at hand."""

    @property
    def mean(self) -> float:
        """E G."""
        return self.mean_interval.middle

    @property
    def variance_interval(self) -> Interval:
        """Certified bounds of Var G."""
        if self.known_variance is None:
            raise NotKnownError("this law was asked for without moments; evaluate(...).gap(...) knows the variance")
        return self.known_variance

    @property
    def variance(self) -> float:
        """Var G."""
        return self.variance_interval.middle

    @property
    def std(self) -> float:
        """Standard deviation of G."""
        return math.sqrt(self.variance)

    def __repr__(self) -> str:
        return (
            f"GapLaw({self.name}: better {_words(self.superiority())}, equal {_words(self.tie())}, worse "
            f"{_words(self.inferiority())}; 5 % quantile {self.quantile(0.05)}, mean of the lowest 5 % "
            f"{self.cvar(0.05)}; {self.cells} cells)"
        )

    # -- signs -------------------------------------------------------------------------------------------------

    @cached_property
    def _signs(self) -> tuple[float, float, float]:
        """Lower bounds on P(G > 0), P(G = 0) and P(G < 0)."""
        above = max(1 - float(self._at_most(np.zeros(1))[0]), self._above(0.0), 0.0)
        below = max(1 - float(self._at_least(np.zeros(1))[0]), self._below(0.0), 0.0)
        tie = self.never_differs
        if self._is_lattice:
            # Every value is a whole number of steps: what is less than half a step from 0 is 0.
            half = np.array([self.spacing / 2])
            tie = max(tie, 1 - float(self._at_most(-half)[0]) - float(self._at_least(half)[0]))
        return above, tie, below

    def superiority(self) -> Interval:
        """P(G > 0)."""
        above, tie, below = self._signs
        return _probability(above, 1 - tie - below)

    def tie(self) -> Interval:
        """P(G = 0)."""
        above, tie, below = self._signs
        return _probability(tie, 1 - above - below)

    def inferiority(self) -> Interval:
        """P(G < 0)."""
        above, tie, below = self._signs
        return _probability(below, 1 - above - tie)

    # -- the distribution function -----------------------------------------------------------------------------

    def cdf(self, t: float) -> Interval:
        """P(G ≤ t)."""
        t = _as_threshold(t)
        lower, upper = self._band(np.array([t]))
        lower = np.maximum(lower, self._below(t))
        upper = np.minimum(upper, 1 - self._above(t))
        return _probability(float(lower[0]), float(upper[0]))

    @cached_property
    def band(self) -> tuple[Floats, Floats, Floats]:
        """Thresholds with lower and upper bounds of P(G ≤ t) at each, for plots and quantiles."""
        t = self._knots
        lower, upper = self._band(t)
        above, below = self._slopes(t)
        lower = np.maximum.accumulate(np.maximum(lower, below))
        upper = np.minimum.accumulate(np.minimum(upper, 1 - above)[::-1])[::-1]
        return t, np.clip(lower, 0, 1), np.clip(upper, 0, 1)

    def _band(self, t: Floats) -> tuple[Floats, Floats]:
        """What rounding and the signs say of P(G ≤ t)."""
        above, tie, below = self._signs
        lower = np.maximum(1 - self._at_least(t), np.where(t >= 0, below + tie, 0.0))
        upper = np.minimum(self._at_most(t), np.where(t <= 0, 1 - above, 1.0))
        upper = np.where(t < 0, np.minimum(upper, 1 - above - tie), upper)
        lower = np.where(t >= self.support.upper, 1.0, lower)
        return lower, np.where(t < self.support.lower, 0.0, upper)

    def quantile(self, q: float) -> Interval:
        """The q-quantile, inf{t: P(G ≤ t) ≥ q}."""
        q = as_fraction("q", q)
        t, lower, upper = self.band
        too_low = t[upper < q]
        high_enough = t[lower >= q]
        low = too_low[-1] if len(too_low) else self.support.lower
        high = high_enough[0] if len(high_enough) else self.support.upper
        above, tie, below = self._signs
        if below + tie >= q > 1 - above - tie:  # all laws in the band cross q at 0
            return Interval(0.0, 0.0)
        return Interval(float(max(low, self.support.lower)), float(min(high, self.support.upper)))

    # -- tails -------------------------------------------------------------------------------------------------

    def stop_loss(self, t: float) -> Interval:
        """E(G − t)⁺."""
        at = np.array([_as_threshold(t)])
        return Interval(float(self._lower(at)[0]), float(self._upper(at)[0]))

    def cvar(self, alpha: float) -> Interval:
        """The mean of the lowest `alpha` fraction: max over t of t − E(t−G)⁺/α."""
        alpha = as_fraction("alpha", alpha)
        low = float(np.max((alpha - 1) * self._knots + self.mean_interval.lower - self._upper(self._knots))) / alpha
        high = self._highest_tail(alpha)
        low = max(low, self._rounded_tail(alpha, -1), self.support.lower)
        high = min(high, self._rounded_tail(alpha, 1), self.mean_interval.upper)
        return Interval(low, math.inf) & Interval(-math.inf, high)

    @cached_property
    def estimate(self) -> Atoms:
        """The categorical law: every atom split between its neighbours on the grid, keeping the mean.

        Neighbours may lie a cell beyond the support.
        """
        values, chances = [], []
        for w, weight in enumerate(self._weights):
            slopes = np.diff(_convex_minorant(self._points, self._rows.upper[w])) / np.diff(self._points)
            mass = np.maximum(np.diff(np.concatenate([[-1.0], slopes, [0.0]])), 0.0)
            values.append(self._shifts[w] + self._discount * self._points)
            chances.append(weight * mass / mass.sum())
        flat, which = np.unique(np.concatenate(values), return_inverse=True)
        total: Floats = np.bincount(which, np.concatenate(chances)).astype(float)
        kept = total > 0
        return Atoms(flat[kept], total[kept])

    # -- reading the brackets ----------------------------------------------------------------------------------

    def _at_most(self, t: Floats) -> Floats:
        """Upper bounds of P(G ≤ t), by the law that is rounded down."""
        return self._mixture(self._rows.F, t, self._shifts)

    def _at_least(self, t: Floats) -> Floats:
        """Upper bounds of P(G ≥ t), by the law that is rounded up."""
        return self._mixture(self._rows.F_back, -t, -self._shifts)

    def _mixture(self, F: Floats, t: Floats, shifts: Floats) -> Floats:
        total = np.zeros_like(t)
        for weight, shift, row in zip(self._weights, shifts, F, strict=True):
            i = np.searchsorted(self._points, (t + self._shift_slack - shift) / self._discount, side="right") - 1
            total += weight * np.where(i >= 0, row[np.maximum(i, 0)], 0.0)
        return np.minimum(total + self._probability_slack, 1.0)

    def _upper(self, t: Floats) -> Floats:
        """Upper bounds of E(G − t)⁺."""
        total = np.zeros_like(t)
        for weight, shift, row in zip(self._weights, self._shifts, self._rows.upper, strict=True):
            u = (t - shift) / self._discount
            value = np.interp(u, self._points, row) + np.maximum(self._points[0] - u, 0.0)
            total += weight * self._discount * value
        return total + self._stop_loss_slack + 4 * UNIT * np.abs(t)

    def _lower(self, t: Floats) -> Floats:
        """Lower bounds of E(G − t)⁺."""
        return np.maximum(np.maximum(self._lines(t)[0], self.mean_interval.lower - t) - 4 * UNIT * np.abs(t), 0.0)

    def _lines(self, t: Floats) -> tuple[Floats, Floats]:
        """For each threshold the value there, and the slope + 1, of a line that lies below u ↦ E(G − u)⁺ everywhere."""
        value, slope = np.zeros_like(t), np.zeros_like(t)
        z = self._points
        for weight, shift, V, D in zip(self._weights, self._shifts, self._rows.V, self._rows.D, strict=True):
            u = (t - shift) / self._discount
            i = np.clip(np.searchsorted(z, u, side="right") - 1, 0, len(z) - 2)
            left = V[i] + (D[i] - 1) * (u - z[i])
            right = V[i + 1] + (D[i + 1] - 1) * (u - z[i + 1])
            value += weight * self._discount * np.maximum(left, right)
            slope += weight * np.where(left >= right, D[i], D[i + 1])
        return value - self._stop_loss_slack, np.clip(slope, 0.0, 1.0)

    def _highest_tail(self, alpha: float) -> float:
        """An upper bound of max over t of t − E(t−G)⁺/α.

        Between two lines below the stop-loss function, one with slope + 1 at most α and one with at least α, the
        maximum is at most the value where they cross; bisection finds the crossing where it is lowest.
        """
        t = self._knots
        value, slope = self._lines(t)
        below, above = np.flatnonzero(slope <= alpha), np.flatnonzero(slope >= alpha)
        a = (float(t[below[-1]]), float(value[below[-1]]), float(slope[below[-1]])) if len(below) else None
        b = (float(t[above[0]]), float(value[above[0]]), float(slope[above[0]])) if len(above) else None
        a = a or (0.0, self.mean_interval.lower, 0.0)  # E(G−u)⁺ ≥ E G − u
        b = b or (0.0, 0.0, 1.0)  # and ≥ 0
        best = _crossing(alpha, a, b)
        for _ in range(BISECTIONS):
            middle = (a[0] + b[0]) / 2
            value, slope = self._lines(np.array([middle]))
            line = (middle, float(value[0]), float(slope[0]))
            a, b = (line, b) if line[2] <= alpha else (a, line)
            best = min(best, _crossing(alpha, a, b))
        return (best + self.mean_interval.upper) / alpha

    @cached_property
    def _knots(self) -> Floats:
        """Thresholds to look at: the grid as the scenarios shift it, 0, and the ends of the support."""
        shifted = np.unique(self._shifts)[:, None] + self._discount * self._points
        inside = np.unique(np.append(shifted, 0.0))
        inside = inside[(inside > self.support.lower) & (inside < self.support.upper)]
        most = int(np.clip(READINGS / len(self._weights), *KNOTS))
        if len(inside) > most:
            inside = np.union1d(inside[np.linspace(0, len(inside) - 1, most).astype(int)], [0.0])
        return np.unique(np.concatenate([[self.support.lower], inside, [self.support.upper]]))

    # -- probabilities from differences of stop-loss values ----------------------------------------------------

    @cached_property
    def _curves(self) -> tuple[Floats, Floats, Floats]:
        t = self._knots
        return t, _convex_minorant(t, self._upper(t)), self._lower(t)

    def _above(self, t: float) -> float:
        """A lower bound of P(G > t): −Π' is at least the slope of any chord to the right."""
        knots, upper, _ = self._curves
        right = knots > t
        if not right.any():
            return 0.0
        rise = self._lower(np.array([t]))[0] - upper[right]
        with np.errstate(over="ignore"):
            return float(np.clip(np.max(rise / (knots[right] - t)), 0.0, 1.0))

    def _below(self, t: float) -> float:
        """A lower bound of P(G < t)."""
        knots, upper, _ = self._curves
        left = knots < t
        if not left.any():
            return 0.0
        step = t - knots[left]
        with np.errstate(over="ignore"):
            return float(np.clip(np.max((self._lower(np.array([t]))[0] - upper[left] + step) / step), 0.0, 1.0))

    def _slopes(self, t: Floats) -> tuple[Floats, Floats]:
        """Lower bounds of P(G > t) and P(G < t) at all knots, in blocks."""
        knots, upper, lower = self._curves
        above, below = np.zeros_like(t), np.zeros_like(t)
        for begin in range(0, len(knots), 256):
            block = slice(begin, begin + 256)
            step = knots[None, :] - knots[block, None]
            with np.errstate(divide="ignore", invalid="ignore"):
                slope = (lower[block, None] - upper[None, :]) / step
            above[block] = np.max(np.where(step > 0, slope, 0.0), axis=1)
            below[block] = np.max(np.where(step < 0, 1 - slope, 0.0), axis=1)
        return above, below

    def _rounded_tail(self, alpha: float, sign: int) -> float:
        """The tail mean of the law that is rounded down (−1) or up (+1): a bound of the gap's own."""
        F = self._rows.F if sign < 0 else self._rows.F_back
        values, chances = [], []
        for weight, shift, row in zip(self._weights, self._shifts, F, strict=True):
            mass = np.maximum(np.diff(np.append(0.0, row)), 0.0)
            values.append(shift - sign * self._discount * self._points)
            chances.append(weight * mass)
        z, p = np.concatenate(values), np.concatenate(chances)
        order = np.argsort(z)
        z, p = z[order], p[order] / p.sum()
        left = np.clip(alpha - (np.cumsum(p) - p), 0.0, p)
        wrong = self._probability_slack / alpha * self.support.width
        return float(np.sum(left * z) / alpha + sign * (self._shift_slack + wrong))


def _crossing(alpha: float, a: tuple[float, float, float], b: tuple[float, float, float]) -> float:
    """The largest ``(α−1)t − max(line a, line b)(t)`` over t; lines are (t, value, slope + 1), slopes around α."""
    (s, p, x), (t, q, y) = a, b
    if y <= x:  # both have slope + 1 = α: the difference is constant
        return min((alpha - 1) * s - p, (alpha - 1) * t - q)
    # A mixture of the two lines with slope + 1 = α lies below their maximum, and touches it where they cross.
    share = (y - alpha) / (y - x)
    at_zero = share * (p - (x - 1) * s) + (1 - share) * (q - (y - 1) * t)
    return -at_zero


def _convex_minorant(x: Floats, y: Floats) -> Floats:
    """The greatest convex function below the points, at the same places (Andrew's monotone chain)."""
    hull: list[int] = []
    for i in range(len(x)):
        while len(hull) > 1:
            j, k = hull[-2], hull[-1]
            if (y[k] - y[j]) * (x[i] - x[j]) <= (y[i] - y[j]) * (x[k] - x[j]):
                break
            hull.pop()
        hull.append(i)
    return np.interp(x, x[hull], y[hull])


def _as_threshold(t: float) -> float:
    number = as_number("t", t)
    if not math.isfinite(number):
        raise ModelError(f"t is {number}; it must be a finite number")
    return number


def _probability(lower: float, upper: float) -> Interval:
    return Interval(max(lower, 0.0), 1.0) & Interval(0.0, min(upper, 1.0))


def _words(found: Interval) -> str:
    return f"[{found.lower:.4f}, {found.upper:.4f}]"
