"""Best-possible statements about a random variable of which only a few moments are known.

Each end of an answer is attained, or approached, by some law with these moments, so nothing sharper can be said; and
each is proven by a polynomial, so it also holds when the moments carry known errors. `MomentProblem` has the
mathematics. With two moments the answers are closed forms, such as Cantelli's inequality (1928) for a sign.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import scipy
from numpy.polynomial import polynomial

from jointmdp.exact.bounds.moment_problem import (
    Fractions,
    Long,
    MomentProblem,
    MomentSequence,
    Pieces,
    round_down,
    round_up,
)
from jointmdp.ground.arrays import UNIT
from jointmdp.ground.checks import as_amount, as_finite, as_floats, as_fraction, as_number
from jointmdp.ground.errors import ModelError
from jointmdp.ground.intervals import Interval


def cantelli(mean: float, variance: float) -> float:
    """The largest possible P(X ≤ 0): ``σ²/(σ²+μ²)`` when μ > 0, and 1 otherwise."""
    if mean <= 0:
        return 1.0
    if variance == 0:
        return 0.0
    ratio = mean / math.sqrt(variance)  # squared below: the squares of both may be out of range
    return 1 / (1 + ratio * ratio)


CROSSING = 1e-7  # standard deviations, or of a probability: by so much proven ends may cross from rounding
ROUNDINGS = 8  # of each part of a sum, at most
LOWEST = -1e30  # in standard units: stands for −∞ in a search that takes differences of values
TINY = 1e-300
REMOTE = 1e8  # standard deviations; inside what `moment_problem` calls far
GOLDEN = (math.sqrt(5) - 1) / 2
ZERO, ONE = Fraction(0), Fraction(1)
NARROW = Fraction(1, 2**160)  # of its size: how well a root is known, so that no float shows it
MOST_HALVINGS = 3000  # from the largest floats to the least ones


class MomentBounds:
    """All that the moments ``E(X−centre)ᵏ``, k = 1..n, say of X.

    `support` is an interval that X certainly lies in; an end may be infinite or None. `errors` bounds the distance of
    each given moment from the true one, and every answer then holds for all moments within the errors. Without
    `errors` the moments are exact up to the rounding of floats, and where they fix the law exactly (a variance of 0,
    the moments of a coin) they are taken at their word. A `centre` near the mean keeps digits.
    """

    def __init__(
        self,
        moments: Sequence[float],
        support: tuple[float | None, float | None] | None = None,
        *,
        centre: float = 0.0,
        errors: Sequence[float] | None = None,
    ) -> None:
        given = as_floats("moments", moments, "[n]", 1)
        if not len(given):
            raise ModelError("moments is empty; give E(X−centre)ᵏ for k = 1..n, the mean at least")
        for k, moment in enumerate(given, 1):
            if not math.isfinite(moment):
                raise ModelError(f"moment {k} is {moment}; leave out the moments from there on")
        off = np.zeros(len(given)) if errors is None else as_floats("errors", errors, "[n]", 1)
        if len(off) != len(given):
            raise ModelError(f"{len(off)} errors for {len(given)} moments; give one for each")
        for k, error in enumerate(off, 1):
            as_amount(f"the error of moment {k}", error)
        self.moments = tuple(map(float, given))
        self.errors = tuple(map(float, off))
        self.centre = as_finite("centre", centre)
        self.support = _as_support(support)
        self._problem = self._solvable()
        self._sequence = self._problem.sequence
        self._law = self._determined_law()

    def _solvable(self) -> MomentProblem:
        """The moments as far as floats can hold their standard form; a support too wide for that is none."""
        for support in dict.fromkeys((self.support, (-math.inf, math.inf))):
            for order in range(len(self.moments), 0, -1):
                try:
                    sequence = MomentSequence(self.moments[:order], self.errors[:order], support, self.centre)
                    return MomentProblem(sequence)
                except OverflowError:
                    continue
        raise ModelError("the mean is out of the range of floats")

    def __repr__(self) -> str:
        n = len(self.moments)
        words = [f"{n} moments" if n > 1 else "the mean only", f"mean {float(self._sequence.mean):.6g}"]
        if self._sequence.variance is not None:
            words.append(f"std {math.sqrt(max(float(self._sequence.variance), 0.0)):.6g}")
        if not all(map(math.isinf, self.support)):
            words.append(f"support {self._sequence.support_words()}")
        if any(self.errors):
            words.append(f"errors up to {max(self.errors):.2g}")
        if self._law is not None:
            count = len(self._law.atoms)
            words.append(f"only one law has them, on {count} point{'s' if count > 1 else ''}")
        return f"MomentBounds({', '.join(words)})"

    def cdf(self, t: float) -> Interval:
        """The smallest and largest possible P(X ≤ t)."""
        return self._probability(t, is_closed=True)

    def cdf_left(self, t: float) -> Interval:
        """The smallest and largest possible P(X < t)."""
        return self._probability(t, is_closed=False)

    def quantile(self, q: float) -> Interval:
        """The smallest and largest possible q-quantile ``inf{t: P(X ≤ t) ≥ q}``."""
        q = as_fraction("q", q)
        if self._law is not None:
            return self._outward(self._law.quantile(Fraction(q)))
        low, high = self._bracket(q)
        # P(X ≤ t) ≤ U(t) < q proves that the quantile is above t; q ≤ L(t) ≤ P(X ≤ t) that it is not.
        first = _last_below(lambda y: self._most_below(y) - q, low, high)
        last = -_last_below(lambda y: q - self._least_below(-y) or -TINY, -high, -low)  # meeting q is enough
        return self._interval(first, last)

    def stop_loss(self, t: float) -> Interval:
        """The smallest and largest possible expected excess ``E(X−t)⁺``."""
        at = _as_threshold(t)
        if math.isinf(at):
            return _point(0.0 if at > 0 else math.inf)
        exact = self._sequence.standard(Fraction(at))
        if self._law is not None:
            excess = self._law.stop_loss(exact) * exactly(self._sequence.scale)
            return Interval(round_down(excess.lower), round_up(excess.upper))
        if abs(exact) > REMOTE:
            return self._remote_excess(Fraction(at))
        y, scale = float(exact), self._sequence.scale
        error = abs(exact - Fraction(y))  # the excess changes by no more than t does
        call = Pieces(y, (0.0, 0.0), (-y, 1.0))
        lower, upper = self._problem.lower(call), self._problem.upper(call)
        least = round_down(Fraction(max(lower, 0.0)) - error)
        found = _meet(max(least, 0.0), math.inf if math.isinf(upper) else round_up(Fraction(max(upper, 0.0)) + error))
        high = math.inf if math.isinf(found.upper) else round_up(scale * Fraction(found.upper))
        return Interval(round_down(scale * Fraction(found.lower)), high)

    def cvar(self, alpha: float) -> Interval:
        """The smallest and largest possible mean of the lowest `alpha` fraction.

        ``CVaR(X) = max_t t − E(t−X)⁺/α``: the smallest is the maximum over t with the largest possible E(t−X)⁺ (a
        saddle point: what is maximised is concave in t and linear in the law), the largest that with the smallest
        possible one. Every t proves a bound on the smallest; the largest counts on a single maximum over t.
        """
        alpha = as_fraction("alpha", alpha)
        if self._law is not None:
            return self._outward(self._law.cvar(Fraction(alpha)))
        low, high = self._bracket(alpha)

        rest, mean = 1 - alpha, self._mean()

        def at(y: float, bound: Callable[[Pieces], float], way: float) -> float:
            """A bound of y − E(y−X)⁺/α = (E X − E(X−y)⁺ − (1−α)y)/α, with the excess that is the smaller; rounded."""
            if alpha < 0.5:
                parts = [y, -max(bound(Pieces(y, (y, -1.0), (0.0, 0.0))), 0.0) / alpha]
            else:
                excess = max(bound(Pieces(y, (0.0, 0.0), (-y, 1.0))), 0.0)
                parts = [part / alpha for part in (mean[0], way * mean[1], -excess, -rest * y)]
            return math.fsum(parts) + way * ROUNDINGS * UNIT * math.fsum(map(abs, parts))

        def smallest(y: float) -> float:
            return max(at(y, self._problem.upper, -1), LOWEST)

        lower = self._problem.lo
        if not math.isinf(low) and not math.isinf(high):
            peak = scipy.optimize.minimize_scalar(lambda y: -smallest(y), bounds=(low, high), options={"xatol": 1e-7})
            best = max(-float(peak.fun), smallest(low), smallest(high))
            lower = max(lower, best if best > LOWEST else -math.inf)
        upper = sum(mean)
        if self._sequence.order > 1:
            upper = min(upper, _peak(lambda y: at(y, self._problem.lower, 1), low, high, 1 / alpha))
        return self._interval(lower, upper)

    def _mean(self) -> tuple[float, float]:
        """The mean in standard units, and how far it can be off."""
        return self._sequence.expectation(np.array([0, 1], dtype=Long))

    def _probability(self, t: float, *, is_closed: bool) -> Interval:
        """P(X ≤ t), or P(X < t): both have the same extremes, unless t is an end of the support or the law is known."""
        at = _as_threshold(t)
        if math.isinf(at):
            return _point(float(at > 0))
        if at < self.support[0] or (at == self.support[0] and not is_closed):
            return _point(0.0)
        if at > self.support[1] or (at == self.support[1] and is_closed):
            return _point(1.0)
        exact = self._sequence.standard(Fraction(at))
        if self._law is not None:
            mass = self._law.mass(exact, is_closed=is_closed)
            return Interval(round_down(mass.lower), round_up(mass.upper))
        if exact > REMOTE:
            return Interval(self._least_below(REMOTE), 1.0)
        if exact < -REMOTE:
            return Interval(0.0, self._most_below(-REMOTE))
        return _meet(self._least_below(round_down(exact)), self._most_below(round_up(exact)))

    def _most_below(self, y: float) -> float:
        """The largest possible P(Y ≤ y)."""
        return min(max(self._problem.upper(Pieces(y, (1.0, 0.0), (0.0, 0.0))), 0.0), 1.0)

    def _least_below(self, y: float) -> float:
        """The smallest possible P(Y < y)."""
        return min(max(self._problem.lower(Pieces(y, (1.0, 0.0), (0.0, 0.0))), 0.0), 1.0)

    def _remote_excess(self, t: Fraction) -> Interval:
        """E(X−t)⁺ so far out that X − t is all excess, or none; the rest is bounded at a place nearer to the mean."""
        scale = self._sequence.scale
        if t > self._sequence.shift:
            rest = self._problem.upper(Pieces(REMOTE, (0.0, 0.0), (-REMOTE, 1.0)))
            return Interval(0.0, math.inf if math.isinf(rest) else round_up(scale * Fraction(max(rest, 0.0))))
        rest = self._problem.upper(Pieces(-REMOTE, (-REMOTE, -1.0), (0.0, 0.0)))
        all_of_it, error = self._sequence.mean - t, scale * Fraction(self._mean()[1])
        upper = math.inf if math.isinf(rest) else round_up(all_of_it + error + scale * Fraction(max(rest, 0.0)))
        return Interval(round_down(all_of_it - error), upper)

    def _bracket(self, q: float) -> tuple[float, float]:
        """Where the q-quantile is for sure, by mean and variance and by the support."""
        low, high = self._problem.lo, self._problem.hi
        mean, mean_error = self._mean()
        if self._sequence.order > 1:
            square, error = self._sequence.expectation(np.array([mean * mean, -2 * mean, 1], dtype=Long))
            std = math.sqrt(max(square, 0.0) + error + mean_error**2)
            low = max(low, mean - mean_error - std * math.sqrt((1 - q) / q) * (1 + 1e-9) - 1e-9)
            high = min(high, mean + mean_error + std * math.sqrt(q / (1 - q)) * (1 + 1e-9) + 1e-9)
        # With a mean and one end Markov's inequality bounds the other.
        elif math.isinf(high) and not math.isinf(low):
            high = low + (mean + mean_error - low) / (1 - q) * (1 + 1e-9) + 1e-9
        elif math.isinf(low) and not math.isinf(high):
            low = high - (high - mean + mean_error) / q * (1 + 1e-9) - 1e-9
        return low, high

    def _interval(self, lower: float, upper: float) -> Interval:
        """From standard units back to the user's, rounded outwards and within the support."""
        found = _meet(lower, upper)
        low = -math.inf if found.lower == -math.inf else round_down(self._sequence.original(found.lower))
        high = math.inf if found.upper == math.inf else round_up(self._sequence.original(found.upper))
        return Interval(*np.clip([low, high], *self.support).tolist())

    def _outward(self, found: Between) -> Interval:
        """From standard units back to the user's, rounded outwards and within the support."""
        ends = round_down(self._sequence.original(found.lower)), round_up(self._sequence.original(found.upper))
        return Interval(*np.clip(ends, *self.support).tolist())

    def _determined_law(self) -> OnlyLaw | None:
        """When only one law has the moments, that law in standard units."""
        family = self._sequence.determined
        if family is None:
            return None
        if self.support[0] == self.support[1]:
            return OnlyLaw(np.array([ONE]), family.zeros, self._sequence.moments)
        return OnlyLaw(family.last, family.zeros, self._sequence.moments)


# -- the only law that has the moments, in exact arithmetic ------------------------------------------------------------


@dataclass(frozen=True)
class Between:
    """A number between two fractions."""

    lower: Fraction
    upper: Fraction

    def __add__(self, other: Between) -> Between:
        return Between(self.lower + other.lower, self.upper + other.upper)

    def __sub__(self, other: Between) -> Between:
        return Between(self.lower - other.upper, self.upper - other.lower)

    def __mul__(self, other: Between) -> Between:
        ends = [x * y for x in (self.lower, self.upper) for y in (other.lower, other.upper)]
        return Between(min(ends), max(ends))

    def over(self, other: Between) -> Between:
        """Divided by a number that is not 0."""
        return self * Between(1 / other.upper, 1 / other.lower)

    def clipped(self, least: Fraction, most: Fraction | None = None) -> Between:
        """Where it is known to be at least, and at most, so large."""
        found = Between(max(self.lower, least), max(self.upper, least))
        return found if most is None else Between(min(found.lower, most), min(found.upper, most))


def exactly(x: Fraction) -> Between:
    """A number that is known."""
    return Between(x, x)


def most(values: Sequence[Between]) -> Between:
    """The largest of several numbers."""
    return Between(max(x.lower for x in values), max(x.upper for x in values))


class OnlyLaw:
    """A law on the roots of a polynomial and on known numbers, from its moments ``m_k``, k = 0, 1, …

    Floats are fractions, so moments are exact here. All roots are real and simple, hence one lies between any two
    neighbouring turns, and bisection brings two fractions around it together. The weight of an atom is the expectation
    of Lagrange's polynomial. All is kept between a lower and an upper fraction, so no sum cancels and no atom is too
    light to count.
    """

    def __init__(self, roots_of: Fractions, known: Sequence[Fraction], moments: Fractions) -> None:
        self._polynomial = roots_of
        atoms = sorted([*map(exactly, known), *_roots(roots_of)], key=lambda atom: atom.lower)
        found = [(atom, _weight(i, atoms, moments)) for i, atom in enumerate(atoms)]
        self.atoms, self.weights = map(list, zip(*((a, w.clipped(ZERO)) for a, w in found if w.lower > 0), strict=True))
        # Up to each atom; no rounding may leave a part of the mass out.
        sums = list(itertools.accumulate(self.weights))[:-1]
        self._below = [exactly(ZERO), *(each.clipped(ZERO, ONE) for each in sums), exactly(ONE)]

    def mass(self, t: Fraction, *, is_closed: bool) -> Between:
        """P(Y ≤ t), or P(Y < t)."""
        return self._below[
            sum(side < 0 or (is_closed and side == 0) for side in (self._side(a, t) for a in self.atoms))
        ]

    def _side(self, atom: Between, t: Fraction) -> int:
        """Whether an atom is below t (−1), at t, or above."""
        if atom.lower == atom.upper or not atom.lower <= t <= atom.upper:
            return (atom.lower > t) - (atom.upper < t)
        here, there = (polynomial.polyval(x, self._polynomial) for x in (t, atom.lower))
        return 0 if here == 0 else 1 if (here > 0) == (there > 0) else -1  # the sign changes at the atom

    def quantile(self, q: Fraction) -> Between:
        """The least atom up to which the mass is at least q."""
        ends = [
            next(atom for atom, mass in zip(self.atoms, self._below[1:], strict=True) if getattr(mass, end) >= q)
            for end in ("upper", "lower")
        ]
        return Between(ends[0].lower, ends[1].upper)

    def stop_loss(self, t: Fraction) -> Between:
        """E(Y − t)⁺."""
        return self._expected([(atom - exactly(t)).clipped(ZERO) for atom in self.atoms])

    def cvar(self, alpha: Fraction) -> Between:
        """The mean of the lowest `alpha` fraction: max over t of t − E(t−Y)⁺/α, which an atom attains."""
        return most(
            [
                t - self._expected([(t - atom).clipped(ZERO) for atom in self.atoms]) * exactly(1 / alpha)
                for t in self.atoms
            ]
        )

    def _expected(self, values: Sequence[Between]) -> Between:
        return sum((w * x for w, x in zip(self.weights, values, strict=True)), exactly(ZERO))


def _weight(i: int, atoms: Sequence[Between], moments: Fractions) -> Between:
    """The expectation of the polynomial that is 1 at an atom and 0 at the others."""
    others = [atom for j, atom in enumerate(atoms) if j != i]
    product, scale = [exactly(ONE)], exactly(ONE)
    for other in others:
        scale = scale * (atoms[i] - other)
        shifted = [exactly(ZERO), *product]
        product = [a - b * other for a, b in zip(shifted, [*product, exactly(ZERO)], strict=True)]
    return sum((c * exactly(m) for c, m in zip(product, moments, strict=False)), exactly(ZERO)).over(scale)


def _roots(p: Fractions) -> list[Between]:
    """The roots of a polynomial, all of them real and simple."""
    degree = len(p) - 1
    if degree < 1:
        return []
    if degree == 1:
        return [exactly(-p[0] / p[1])]
    reach = 1 + max(abs(c / p[-1]) for c in p[:-1])  # Cauchy's bound
    turns = [turn.lower for turn in _roots(polynomial.polyder(p))]
    return [_root(p, low, high) for low, high in itertools.pairwise([-reach, *turns, reach])]


def _root(p: Fractions, low: Fraction, high: Fraction) -> Between:
    """The one root between two places; they are as near to it as the last turn is known."""
    is_positive = polynomial.polyval(high, p) > 0
    middle = ZERO if low < 0 < high else (low + high) / 2
    for _ in range(MOST_HALVINGS):
        found = polynomial.polyval(middle, p)
        if found == 0:
            return exactly(middle)
        low, high = (low, middle) if (found > 0) == is_positive else (middle, high)
        if high - low <= NARROW * max(abs(low), abs(high)):
            break
        middle = (low + high) / 2
    return Between(low, high)


def _as_support(support: tuple[float | None, float | None] | None) -> tuple[float, float]:
    if support is None:
        return -math.inf, math.inf
    try:
        low, high = support
    except (TypeError, ValueError):
        raise ModelError(f"support must be two numbers (lowest, highest), not {support!r}") from None
    lower = -math.inf if low is None else as_number("the lower end of the support", low)
    upper = math.inf if high is None else as_number("the upper end of the support", high)
    if not lower <= upper or lower == math.inf or upper == -math.inf:
        raise ModelError(f"the support [{lower:g}, {upper:g}] is empty; are its ends in the wrong order?")
    return lower, upper


def _as_threshold(given: float) -> float:
    threshold = as_number("t", given)
    if math.isnan(threshold):
        raise ModelError("t is nan; it must be a number")
    return threshold


def _point(number: float) -> Interval:
    return Interval(number, number)


def _meet(lower: float, upper: float) -> Interval:
    """The interval between two proven ends; where they cross by more than rounding, no law has the moments."""
    if lower > upper + CROSSING * (1 + abs(upper)):
        raise ModelError(
            "no law has these moments: they prove an upper bound and a lower one above it; are the errors larger than "
            "stated?"
        )
    return Interval(min(lower, upper), max(lower, upper))


def _last_below(excess: Callable[[float], float], low: float, high: float) -> float:
    """The last place, to rounding, up to which a nondecreasing function is seen to be negative; `low` if nowhere."""
    if math.isinf(low) or math.isinf(high) or excess(low) >= 0:
        return low
    best = [low]

    def seen(y: float) -> float:
        found = excess(y)
        if found < 0:
            best[0] = max(best[0], y)
        return found

    if seen(high) < 0:
        return high
    root = scipy.optimize.brentq(seen, low, high, xtol=1e-14, rtol=1e-14, maxiter=200, disp=False)
    back = 1e-14 * (1 + abs(root))
    while best[0] < root - back and seen(root - back) >= 0:  # the search may end on the root's other side
        back *= 8
    return best[0]


def _peak(f: Callable[[float], float], low: float, high: float, steepest: float) -> float:
    """The maximum of a concave function by golden sections, with what may be left in the last one."""
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = f(left), f(right)
    best = max(f(low), f(high), at_left, at_right)
    while high - low > 1e-12 * (1 + abs(low) + abs(high)):
        if at_left >= at_right:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN * (high - low)
            at_left = f(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN * (high - low)
            at_right = f(right)
        best = max(best, at_left, at_right)
    return best + steepest * (high - low)
