"""The certified law of one gap: distribution bands, sign probabilities, quantiles and tail means, all as intervals.

The last step, from the two actions to the pairs of states behind them, is taken exactly: the law of the gap is the
mixture over scenarios of ``r + γ G(S'_a, S'_b)``, read off at any threshold without another rounding.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from jointmdp.arrays import UNIT, Floats, Ints
from jointmdp.checks import as_finite, as_fraction
from jointmdp.errors import NotKnownError
from jointmdp.intervals import Interval
from jointmdp.law.grids import masses
from jointmdp.law.pair_brackets import Brackets

BISECTIONS = 40
READINGS = 200_000  # entries of the brackets that one look at all thresholds may read
KNOTS = (300, 2000)  # thresholds at which slopes of the stop-loss function are compared

Line = tuple[float, float, float]  # a threshold, the line's value there, and its slope + 1


class Atoms(NamedTuple):
    """A law on finitely many values."""

    values: Floats  # [N] ascending
    probabilities: Floats  # [N]


class Mixture(NamedTuple):
    """The first step of some gaps as a mixture of pairs of states; the last axis is the scenario."""

    weights: Floats
    shifts: Floats
    left: Ints  # positions among the states of the laws
    right: Ints


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
    _mixture: Mixture
    _discount: float
    _brackets: Brackets  # of the pairs of the mixture
    _is_lattice: bool
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
            f"GapLaw({self.name}: better {self.superiority():.4f}, equal {self.tie():.4f}, worse "
            f"{self.inferiority():.4f}; 5 % quantile {self.quantile(0.05)}, mean of the lowest 5 % "
            f"{self.cvar(0.05)}; {self.cells} cells)"
        )

    @cached_property
    def _signs(self) -> tuple[float, float, float]:
        """Lower bounds on P(G > 0), P(G = 0) and P(G < 0)."""
        zero = np.zeros(1)
        above, below = self._slopes(zero)
        above, below = np.maximum(1 - self._at_most(zero), above), np.maximum(1 - self._at_least(zero), below)
        tie = self.never_differs
        if self._is_lattice:
            # Every value is a whole number of steps: what is less than half a step from 0 is 0.
            half = np.array([self.spacing / 2])
            tie = max(tie, 1 - float(self._at_most(-half)[0]) - float(self._at_least(half)[0]))
        return float(above[0]), tie, float(below[0])

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

    def cdf(self, t: float) -> Interval:
        """P(G ≤ t)."""
        lower, upper = self._band(np.array([as_finite("t", t)]))
        return _probability(float(lower[0]), float(upper[0]))

    @cached_property
    def band(self) -> tuple[Floats, Floats, Floats]:
        """Thresholds with lower and upper bounds of P(G ≤ t) at each, for plots and quantiles."""
        lower, upper = self._band(self._knots)
        lower, upper = np.maximum.accumulate(lower), np.minimum.accumulate(upper[::-1])[::-1]
        return self._knots, np.clip(lower, 0, 1), np.clip(upper, 0, 1)

    def _band(self, t: Floats) -> tuple[Floats, Floats]:
        """Lower and upper bounds of P(G ≤ t): by rounding, by the signs, by the support and by slopes."""
        above, tie, below = self._signs
        lower = np.maximum(1 - self._at_least(t), np.where(t >= 0, below + tie, 0.0))
        upper = np.where(t < 0, 1 - above - tie, np.where(t > 0, 1.0, 1 - above))
        upper = np.minimum(self._at_most(t), upper)
        lower = np.where(t >= self.support.upper, 1.0, lower)
        upper = np.where(t < self.support.lower, 0.0, upper)
        above_t, below_t = self._slopes(t)
        return np.maximum(lower, below_t), np.minimum(upper, 1 - above_t)

    def quantile(self, q: float) -> Interval:
        """The q-quantile, inf{t: P(G ≤ t) ≥ q}."""
        q = as_fraction("q", q)
        t, lower, upper = self.band
        above, tie, below = self._signs
        if below + tie >= q > 1 - above - tie:  # all laws in the band cross q at 0
            return Interval(0.0, 0.0)
        low = np.max(t[upper < q], initial=self.support.lower)
        high = np.min(t[lower >= q], initial=self.support.upper)
        return Interval(float(low), float(high))

    def stop_loss(self, t: float) -> Interval:
        """E(G − t)⁺."""
        at = np.array([as_finite("t", t)])
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
        """The categorical law: atoms split between neighbours on the grid (a cell beyond the support), mean kept."""
        z = self._brackets.points
        mass = np.stack([masses(z, _convex_minorant(z, row)) for row in self._brackets.upper])
        chances = self._mixture.weights[:, None] * mass / mass.sum(axis=1, keepdims=True)
        values, which = np.unique(self._mixture.shifts[:, None] + self._discount * z, return_inverse=True)
        total: Floats = np.bincount(which.ravel(), chances.ravel()).astype(float)
        return Atoms(values[total > 0], total[total > 0])

    def _at_most(self, t: Floats) -> Floats:
        """Upper bounds of P(G ≤ t), by the law that is rounded down."""
        return self._mixed(self._brackets.F, t, self._mixture.shifts)

    def _at_least(self, t: Floats) -> Floats:
        """Upper bounds of P(G ≥ t), by the law that is rounded up."""
        return self._mixed(self._brackets.F_back, -t, -self._mixture.shifts)

    def _mixed(self, F: Floats, t: Floats, shifts: Floats) -> Floats:
        u = (t + self._brackets.gap_error - shifts[:, None]) / self._discount
        i = np.searchsorted(self._brackets.points, u, side="right") - 1
        found = np.where(i >= 0, np.take_along_axis(F, np.maximum(i, 0), axis=1), 0.0)
        return np.minimum(self._mixture.weights @ found + self._brackets.probability_error, 1.0)

    def _upper(self, t: Floats) -> Floats:
        """Upper bounds of E(G − t)⁺."""
        total = np.zeros_like(t)
        for weight, shift, row in zip(self._mixture.weights, self._mixture.shifts, self._brackets.upper, strict=True):
            u = (t - shift) / self._discount
            value = np.interp(u, self._brackets.points, row) + np.maximum(self._brackets.points[0] - u, 0.0)
            total += weight * self._discount * value
        return total + self._brackets.stop_loss_error + 4 * UNIT * np.abs(t)

    def _lower(self, t: Floats) -> Floats:
        """Lower bounds of E(G − t)⁺."""
        return np.maximum(np.maximum(self._lines(t)[0], self.mean_interval.lower - t) - 4 * UNIT * np.abs(t), 0.0)

    def _lines(self, t: Floats) -> tuple[Floats, Floats]:
        """For each threshold the value there, and the slope + 1, of a line that lies below u ↦ E(G − u)⁺ everywhere."""
        value, slope = np.zeros_like(t), np.zeros_like(t)
        mix, found, z = self._mixture, self._brackets, self._brackets.points
        for weight, shift, V, D in zip(mix.weights, mix.shifts, found.V, found.D, strict=True):
            u = (t - shift) / self._discount
            i = np.clip(np.searchsorted(z, u, side="right") - 1, 0, len(z) - 2)
            left = V[i] + (D[i] - 1) * (u - z[i])
            right = V[i + 1] + (D[i + 1] - 1) * (u - z[i + 1])
            value += weight * self._discount * np.maximum(left, right)
            slope += weight * np.where(left >= right, D[i], D[i + 1])
        return value - self._brackets.stop_loss_error, np.clip(slope, 0.0, 1.0)

    def _lines_at(self, t: Floats) -> list[Line]:
        return list(zip(t.tolist(), *(found.tolist() for found in self._lines(t)), strict=True))

    def _highest_tail(self, alpha: float) -> float:
        """An upper bound of max over t of t − E(t−G)⁺/α.

        Between two lines below the stop-loss function, one with slope + 1 at most α and one with at least α, the
        maximum is at most the value where they cross; bisection finds the crossing where it is lowest.
        """
        lines = self._lines_at(self._knots)
        mean_line, zero_line = (0.0, self.mean_interval.lower, 0.0), (0.0, 0.0, 1.0)  # E(G−u)⁺ ≥ E G − u, and ≥ 0
        a = next((line for line in lines[::-1] if line[2] <= alpha), mean_line)
        b = next((line for line in lines if line[2] >= alpha), zero_line)
        best = _crossing(alpha, a, b)
        for _ in range(BISECTIONS):
            [line] = self._lines_at(np.array([(a[0] + b[0]) / 2]))
            a, b = (line, b) if line[2] <= alpha else (a, line)
            best = min(best, _crossing(alpha, a, b))
        return (best + self.mean_interval.upper) / alpha

    @cached_property
    def _knots(self) -> Floats:
        """Thresholds to look at: the grid as the scenarios shift it, 0, and the ends of the support."""
        shifted = np.unique(self._mixture.shifts)[:, None] + self._discount * self._brackets.points
        inside = np.unique(np.append(shifted, 0.0))
        inside = inside[(inside > self.support.lower) & (inside < self.support.upper)]
        most = int(np.clip(READINGS / len(self._mixture.weights), *KNOTS))
        if len(inside) > most:
            inside = np.union1d(inside[np.linspace(0, len(inside) - 1, most).astype(int)], [0.0])
        return np.unique(np.concatenate([[self.support.lower], inside, [self.support.upper]]))

    @cached_property
    def _upper_hull(self) -> Floats:
        """Upper bounds of E(G − t)⁺ at the knots, made convex."""
        return _convex_minorant(self._knots, self._upper(self._knots))

    def _slopes(self, t: Floats) -> tuple[Floats, Floats]:
        """Lower bounds of P(G > t) and P(G < t): −Π' is at least the slope of any chord to the right; in blocks."""
        lower, found = self._lower(t), np.zeros((2, len(t)))
        for begin in range(0, len(t), 256):
            block = slice(begin, begin + 256)
            step = self._knots - t[block, None]
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                slope = (lower[block, None] - self._upper_hull) / step
            found[0, block] = np.max(np.where(step > 0, slope, 0.0), axis=1)
            found[1, block] = np.max(np.where(step < 0, 1 - slope, 0.0), axis=1)
        above, below = np.clip(found, 0.0, 1.0)
        return above, below

    def _rounded_tail(self, alpha: float, sign: int) -> float:
        """The tail mean of the law that is rounded down (−1) or up (+1): a bound of the gap's own."""
        F = self._brackets.F if sign < 0 else self._brackets.F_back
        z = (self._mixture.shifts[:, None] - sign * self._discount * self._brackets.points).ravel()
        p = (self._mixture.weights[:, None] * np.maximum(np.diff(F, prepend=0.0), 0.0)).ravel()
        order = np.argsort(z)
        z, p = z[order], p[order] / p.sum()
        left = np.clip(alpha - (np.cumsum(p) - p), 0.0, p)
        wrong = self._brackets.probability_error / alpha * self.support.width
        return float(np.sum(left * z) / alpha + sign * (self._brackets.gap_error + wrong))


def _crossing(alpha: float, a: Line, b: Line) -> float:
    """The largest ``(α−1)t − max(line a, line b)(t)`` over t; α lies between the two values of slope + 1."""
    (s, p, x), (t, q, y) = a, b
    if y <= x:  # both have slope + 1 = α: the difference is constant
        return min((alpha - 1) * s - p, (alpha - 1) * t - q)
    # A mixture of the two lines with slope + 1 = α lies below their maximum, and touches it where they cross.
    share = (y - alpha) / (y - x)
    return -(share * (p - (x - 1) * s) + (1 - share) * (q - (y - 1) * t))


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


def _probability(lower: float, upper: float) -> Interval:
    return Interval(max(lower, 0.0), 1.0) & Interval(0.0, min(upper, 1.0))
