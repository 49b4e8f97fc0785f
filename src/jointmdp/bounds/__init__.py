"""Best-possible statements about a random variable of which only a few moments are known.

``MomentBounds(moments)`` answers for moments 1..n: what they say of a probability, a quantile, a tail mean or an
expected excess, no more and no less. Each end is attained, or approached, by some law with these moments, so nothing
sharper can be said; and each is proven by a polynomial, so it also holds when the moments carry known errors.
`moment_problem` has the mathematics. The two-moment statements have closed forms (Cantelli 1928).
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from jointmdp.bounds.moment_problem import MomentProblem, Pieces, gauss, round_down, round_up
from jointmdp.bounds.moment_sequences import MomentSequence, polished, value
from jointmdp.checks import as_amount, as_floats, as_fraction, as_number
from jointmdp.errors import ModelError
from jointmdp.intervals import Interval

# Two proven ends that cross by less have met; by more, they prove that no law has the moments.
MEETING = 1e-7
NOTHING = 1e30
TINY = 1e-300
REMOTE = 1e8  # standard deviations; inside what `moment_problem` calls far
GOLDEN = (math.sqrt(5) - 1) / 2


def cantelli(mean: float, variance: float) -> float:
    """The largest possible P(X ≤ 0): ``σ²/(σ²+μ²)`` when μ > 0, and 1 otherwise."""
    if mean <= 0:
        return 1.0
    if variance == 0:
        return 0.0
    ratio = mean / math.sqrt(variance)  # squared below: the squares of both may be out of range
    return 1 / (1 + ratio * ratio)


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
        slack = np.zeros(len(given)) if errors is None else as_floats("errors", errors, "[n]", 1)
        if len(slack) != len(given):
            raise ModelError(f"{len(slack)} errors for {len(given)} moments; give one for each")
        for k, error in enumerate(slack, 1):
            as_amount(f"the error of moment {k}", error)
        middle = as_number("centre", centre)
        if not math.isfinite(middle):
            raise ModelError(f"centre is {middle}; it must be a finite number")
        self.moments = tuple(map(float, given))
        self.errors = tuple(map(float, slack))
        self.centre = middle
        self.support = _as_support(support)
        self._problem = self._solvable()
        self._sequence = self._problem.sequence
        self._law = self._determined_law()

    def _solvable(self) -> MomentProblem:
        """The moments as far as their standard form is within the range of floats."""
        for order in range(len(self.moments), 0, -1):
            try:
                sequence = MomentSequence(self.moments[:order], self.errors[:order], self.support, self.centre)
                return MomentProblem(sequence)
            except OverflowError:
                continue
        raise ModelError("the mean is out of the range of floats")

    def __repr__(self) -> str:
        n = len(self.moments)
        words = [f"{n} moments" if n > 1 else "the mean only", f"mean {float(self._mean()):.6g}"]
        if self._sequence.variance is not None:
            words.append(f"std {math.sqrt(max(float(self._sequence.variance), 0.0)):.6g}")
        lower, upper = self.support
        if not (math.isinf(lower) and math.isinf(upper)):
            words.append(
                f"support {'(' if math.isinf(lower) else '['}{lower:g}, {upper:g}{')' if math.isinf(upper) else ']'}"
            )
        if any(self.errors):
            words.append(f"errors up to {max(self.errors):.2g}")
        if self._law is not None:
            words.append(f"only one law has them, on {len(self._law[0])} point{'s' if len(self._law[0]) > 1 else ''}")
        return f"MomentBounds({', '.join(words)})"

    # -- what can be asked -------------------------------------------------------------------------------------

    def cdf(self, t: float) -> Interval:
        """The smallest and largest possible P(X ≤ t)."""
        at = _as_place("t", t)
        if at < self.support[0] or at >= self.support[1]:
            return _point(float(at >= self.support[1]))
        if math.isinf(at):
            return _point(float(at > 0))
        if self._law is not None:
            return self._mass(at, is_closed=True)
        return self._probability(at)

    def cdf_left(self, t: float) -> Interval:
        """The smallest and largest possible P(X < t)."""
        at = _as_place("t", t)
        if at <= self.support[0] or at > self.support[1]:
            return _point(float(at > self.support[1]))
        if math.isinf(at):
            return _point(float(at > 0))
        if self._law is not None:
            return self._mass(at, is_closed=False)
        return self._probability(at)

    def quantile(self, q: float) -> Interval:
        """The smallest and largest possible q-quantile ``inf{t: P(X ≤ t) ≥ q}``."""
        q = as_fraction("q", q)
        if self._law is not None:
            atoms, weights = self._law
            masses = np.cumsum(weights)
            # A sum of weights that meets q up to rounding leaves two answers.
            ends = [atoms[min(int(np.searchsorted(masses, level)), len(atoms) - 1)] for level in (q - 1e-12, q + 1e-12)]
            return self._interval(*ends)
        low, high = self._bracket(q)
        # P(X ≤ t) ≤ U(t) < q proves that the quantile is above t; q ≤ L(t) ≤ P(X ≤ t) that it is not.
        first = _last_below(lambda y: self._upper_step(y) - q, low, high)
        last = -_last_below(lambda y: q - self._lower_step(-y) or -TINY, -high, -low)  # meeting q is enough
        return self._interval(first, last)

    def stop_loss(self, t: float) -> Interval:
        """The smallest and largest possible expected excess ``E(X−t)⁺``."""
        at = _as_place("t", t)
        if math.isinf(at):
            return _point(0.0 if at > 0 else math.inf)
        exact = self._sequence.standard(Fraction(at))
        if self._law is not None:
            excesses = [max(self._sequence.original(y) - Fraction(at), Fraction(0)) for y in self._law[0]]
            return _point(math.fsum(w * float(e) for w, e in zip(self._law[1], excesses, strict=True)))
        if abs(exact) > REMOTE:
            return self._remote_excess(Fraction(at))
        y, scale = float(exact), float(self._sequence.scale)
        slack = abs(float(exact - Fraction(y)))  # the excess changes by no more than t does
        call = Pieces(y, (0.0, 0.0), (-y, 1.0))
        lower, upper = self._problem.lower(call), self._problem.upper(call)
        found = _meet(max(lower - slack, 0.0), max(upper + slack, 0.0))
        return Interval(scale * found.lower, scale * found.upper)

    def cvar(self, alpha: float) -> Interval:
        """The smallest and largest possible mean of the lowest `alpha` fraction.

        ``CVaR(X) = max_t t − E(t−X)⁺/α``: the smallest is the maximum over t with the largest possible E(t−X)⁺ (a
        saddle point: what is maximised is concave in t and linear in the law), the largest that with the smallest
        possible one. Every t proves a bound on the smallest; the largest counts on a single maximum over t.
        """
        alpha = as_fraction("alpha", alpha)
        if self._law is not None:
            return self._interval(*(2 * [_tail_mean(*self._law, alpha)]))
        low, high = self._bracket(alpha)

        def smallest(y: float) -> float:
            # Where nothing is known the value is very low but finite: the search takes differences of values.
            return max(y - max(self._problem.upper(Pieces(y, (y, -1.0), (0.0, 0.0))), 0.0) / alpha, -NOTHING)

        def largest(y: float) -> float:
            return y - max(self._problem.lower(Pieces(y, (y, -1.0), (0.0, 0.0))), 0.0) / alpha

        lower = self._problem.lo
        if not math.isinf(low) and not math.isinf(high):
            peak = minimize_scalar(
                lambda y: -smallest(y), bounds=(low, high), method="bounded", options={"xatol": 1e-7}
            )
            best = max(-float(peak.fun), smallest(low), smallest(high))
            lower = max(lower, best if best > -NOTHING else -math.inf)
        mean, slack = self._sequence.expectation(np.array([0, 1], dtype=np.longdouble))
        upper = mean + slack
        if self._sequence.order > 1:
            upper = min(upper, _peak(largest, low, high, 1 / alpha))
        return self._interval(lower, upper)

    # -- how it is found ---------------------------------------------------------------------------------------

    def _mean(self) -> Fraction:
        return self._sequence.shift + self._sequence.scale * self._sequence.moments[1]

    def _probability(self, t: float) -> Interval:
        """P(X ≤ t) and P(X < t) have the same extreme values where neither the support ends nor the law is known."""
        exact = self._sequence.standard(Fraction(t))
        if exact > REMOTE:
            return Interval(self._lower_step(REMOTE), 1.0)
        if exact < -REMOTE:
            return Interval(0.0, self._upper_step(-REMOTE))
        return _meet(self._lower_step(round_down(exact)), self._upper_step(round_up(exact)))

    def _upper_step(self, y: float) -> float:
        return min(max(self._problem.upper(Pieces(y, (1.0, 0.0), (0.0, 0.0))), 0.0), 1.0)

    def _lower_step(self, y: float) -> float:
        return min(max(self._problem.lower(Pieces(y, (1.0, 0.0), (0.0, 0.0))), 0.0), 1.0)

    def _remote_excess(self, t: Fraction) -> Interval:
        """E(X−t)⁺ so far out that X − t is all excess, or none; the rest is bounded at a place nearer to the mean."""
        scale = self._sequence.scale
        if t > self._sequence.shift:
            rest = self._problem.upper(Pieces(REMOTE, (0.0, 0.0), (-REMOTE, 1.0)))
            return Interval(0.0, float(scale) * max(rest, 0.0))
        rest = self._problem.upper(Pieces(-REMOTE, (-REMOTE, -1.0), (0.0, 0.0)))
        _, unsure = self._sequence.expectation(np.array([0, 1], dtype=np.longdouble))
        all_of_it, slack = self._mean() - t, scale * Fraction(unsure)
        upper = math.inf if math.isinf(rest) else round_up(all_of_it + slack + scale * Fraction(max(rest, 0.0)))
        return Interval(round_down(all_of_it - slack), upper)

    def _bracket(self, q: float) -> tuple[float, float]:
        """Where the q-quantile is for sure, by mean and variance and by the support."""
        low, high = self._problem.lo, self._problem.hi
        if self._sequence.order > 1:
            expectation = self._sequence.expectation
            mean, unsure = expectation(np.array([0, 1], dtype=np.longdouble))
            square, slack = expectation(np.array([mean * mean, -2 * mean, 1], dtype=np.longdouble))
            std = math.sqrt(max(square, 0.0) + slack + unsure**2)
            low = max(low, mean - unsure - std * math.sqrt((1 - q) / q) * (1 + 1e-9) - 1e-9)
            high = min(high, mean + unsure + std * math.sqrt(q / (1 - q)) * (1 + 1e-9) + 1e-9)
        elif math.isinf(low) != math.isinf(high):
            # Markov's inequality bounds the open end by the mean and the other.
            mean, unsure = self._sequence.expectation(np.array([0, 1], dtype=np.longdouble))
            if math.isinf(high):
                high = low + (mean + unsure - low) / (1 - q) * (1 + 1e-9) + 1e-9
            else:
                low = high - (high - mean + unsure) / q * (1 + 1e-9) - 1e-9
        return low, high

    def _interval(self, lower: float, upper: float) -> Interval:
        """From standard units back to the user's, rounded outwards and within the support."""
        found = _meet(lower, upper)
        ends = [
            -math.inf if found.lower == -math.inf else round_down(self._sequence.original(found.lower)),
            math.inf if found.upper == math.inf else round_up(self._sequence.original(found.upper)),
        ]
        low, high = (min(max(end, self.support[0]), self.support[1]) for end in ends)
        return Interval(low, high)

    def _determined_law(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Atoms (in standard units) and weights, when only one law has the moments."""
        ends = self._sequence.determined
        if ends is None:
            return None
        if self.support[0] == self.support[1]:
            return np.array([self._problem.lo]), np.ones(1)
        family = self._sequence.orthogonal[ends]
        rule = self._problem.rule(ends, family, gauss(family, family.rank))
        keep = rule.weights > 1e-12
        polynomial = family.polynomials[len(family.norms) - 1]
        pairs = zip(rule.nodes[keep], rule.is_end[keep], strict=True)
        atoms = np.array([y if is_end else polished(polynomial, float(y)) for y, is_end in pairs])
        return atoms, rule.weights[keep] / np.sum(rule.weights[keep])

    def _mass(self, t: float, *, is_closed: bool) -> Interval:
        """P(X ≤ t) or P(X < t) for the only law; both values at a place that rounding cannot tell from an atom."""
        assert self._law is not None
        ends = self._sequence.determined
        assert ends is not None
        family = self._sequence.orthogonal[ends]
        exact = self._sequence.standard(Fraction(t))
        atoms, weights = self._law
        gap = atoms - float(exact)
        is_near = np.abs(gap) <= 1e-12 * (1 + np.abs(atoms))
        below = float(np.sum(weights[(gap < 0) & ~is_near]))
        with_near = float(np.sum(weights[(gap < 0) | is_near]))
        polynomial = family.polynomials[len(family.norms) - 1]
        is_atom = exact in family.zeros or value(polynomial, exact) == 0
        if is_atom:
            return _point(min(with_near if is_closed else below, 1.0))
        return Interval(below, min(with_near, 1.0))


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


def _as_place(name: str, given: float) -> float:
    place = as_number(name, given)
    if math.isnan(place):
        raise ModelError(f"{name} is nan; it must be a number")
    return place


def _point(number: float) -> Interval:
    return Interval(number, number)


def _meet(lower: float, upper: float) -> Interval:
    """The interval between two proven ends."""
    if lower <= upper:
        return Interval(lower, upper)
    if lower - upper > MEETING * (1 + abs(lower)):
        raise ModelError(
            "no law has these moments: they prove an upper bound and a lower one above it; are the errors larger than "
            "stated?"
        )
    return _point((lower + upper) / 2)


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
    root = brentq(seen, low, high, xtol=1e-14, rtol=1e-14, maxiter=200, disp=False)
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


def _tail_mean(atoms: np.ndarray, weights: np.ndarray, alpha: float) -> float:
    """The mean of the lowest `alpha` fraction of a law on finitely many points."""
    taken = np.diff(np.minimum(np.cumsum(weights), alpha), prepend=0.0)
    return float(taken @ atoms) / alpha
