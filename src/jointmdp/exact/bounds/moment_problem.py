"""How large E f(Y) can be, over all laws with given moments, for f of two straight pieces; and whether there is a law.

Moments are exact: floats are rational numbers, and so are the moments of Y = (X − shift)/scale, the monic orthogonal
polynomials P_k of the functionals ``L_φ(p) = E[φ(Y) p(Y)]`` and their norms ``h_k = L_φ(P_k²)``. With φ one of
``1, y−a, b−y, (y−a)(b−y)`` (a, b the ends of the support), a sequence belongs to a law on the support iff no h_k is
negative (Hamburger, Stieltjes, Hausdorff; Krein and Nudelman, The Markov Moment Problem and Extremal Problems, 1977).
A norm that is zero leaves one law: its atoms are the roots of P_k and the zeros of φ.

The largest E f(Y) is attained on a canonical representation: a quadrature rule for the moments with few nodes, found
from the Jacobi matrix of `MomentSequence` with its last diagonal entry free (Krein and Nudelman; Karlin and Studden,
Tchebycheff Systems, 1966).

- f jumps at t, or bends down there: the representation has a node at t (Chebyshev, Markov, Stieltjes).
- f bends up at t: among all representations the one whose nodes all touch. Each is named by one of its nodes ξ, and as
  ξ moves from t to the next node of t's representation, every representation is passed once.

No node is trusted. A polynomial p that touches f at the nodes is checked to lie above f on the support, by the roots of
its derivative, and is lifted where it does not; then ``E f ≤ E p`` for every law, whatever led to p. Polynomials are
arrays of coefficients, lowest first, in extended precision; interpolation with slopes is not in NumPy or SciPy.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn

import numpy as np
import scipy
from numpy.polynomial import polynomial
from numpy.polynomial.polynomial import polyroots, polysub, polyval
from numpy.polynomial.polyutils import trimseq
from numpy.typing import NDArray

from jointmdp.ground.arrays import UNIT, Bools, Floats
from jointmdp.ground.errors import ModelError

Long = np.longdouble
Longs = NDArray[np.longdouble]
Fractions = NDArray[np.object_]  # moments, or the coefficients of a polynomial, lowest first

# Moments are floats that somebody computed: each may be this fraction of E|X−centre|ᵏ away from what was meant.
ROUNDING = Fraction(1, 2**50)
# A norm below this many times its own uncertainty says nothing about its polynomial's successor.
CLEAR = 4
DIGITS = 2**24  # shift and scale need no more digits than this, and short numbers keep the fractions short


@dataclass(frozen=True)
class Orthogonal:
    """The orthogonal polynomials of L_φ, as far as they are known better than the errors of the moments."""

    ends: str  # of the support where φ vanishes: "", "a", "b" or "ab"
    zeros: tuple[Fraction, ...]  # these ends
    factor: Fractions  # φ itself
    weighted: Fractions  # L_φ(yᵏ) for all k the moments reach
    last: Fractions  # the last P_k
    norms: tuple[Fraction, ...]  # h_0, h_1, …, up to that of `last`; nothing comes after a zero
    norm_errors: tuple[float, ...]  # how far the errors allow each norm to be off
    alpha: Floats  # the Jacobi matrix: its diagonal
    beta: Floats  # β_k = h_k/h_{k−1}; β_0 = h_0; the last one raised by its error
    rank: int  # number of polynomials with a norm that is clearly positive

    def beyond(self) -> Fractions:
        """``L_φ(P_k yʲ)`` for all j, P_k the last: all zero iff the moments are those of the law on its roots."""
        return _moved(self.last, self.weighted)


class MomentSequence:
    """The moments ``m_k = E Yᵏ``, k = 0..n, of Y = (X − shift)/scale with what is known of their errors."""

    def __init__(
        self, moments: Sequence[float], errors: Sequence[float], support: tuple[float, float], centre: float
    ) -> None:
        self.order = len(moments)
        given = [Fraction(1), *map(Fraction, moments)]
        self.is_exact = not any(errors)
        off = [Fraction(0), *(Fraction(e) + r for e, r in zip(errors, _rounding(given), strict=True))]
        self._centre = Fraction(centre)
        ends = {name: Fraction(end) for name, end in zip("ab", support, strict=True) if not math.isinf(end)}
        self.variance = given[2] - given[1] ** 2 if self.order > 1 else None
        variance_error = off[2] + 2 * abs(given[1]) * off[1] + off[1] ** 2 if self.order > 1 else 0
        self.scale = _scale(self.variance, variance_error, given[1] + self._centre, ends.values())
        step = self.scale / DIGITS
        self.shift = self._centre + round(given[1] / step) * step  # in units of x
        self.ends = {name: self.standard(end) for name, end in ends.items()}  # the finite ones
        # (x−centre)ʲ appears in yᵏ = ((x−centre − move)/scale)ᵏ with these coefficients.
        move = self.shift - self._centre
        orders = range(self.order + 1)
        table = np.array([[math.comb(k, j) * (-move) ** max(k - j, 0) / self.scale**k for j in orders] for k in orders])
        self.moments: Fractions = table @ np.array(given)
        self._table, self._moments_long, self._errors_long = longs(table), longs(self.moments), longs(np.array(off))
        factors = dict.fromkeys(("", *ends, "".join(ends)))  # the φ of the support, by the ends where they vanish
        self.orthogonal = {each: self._orthogonal(each) for each in factors if len(each) <= self.order}
        self._check()

    @property
    def mean(self) -> Fraction:
        """E X."""
        return self.original(self.moments[1])

    def standard(self, x: Fraction) -> Fraction:
        """From the user's units to standard ones."""
        return (x - self.shift) / self.scale

    def original(self, y: float | Fraction) -> Fraction:
        """From standard units to the user's."""
        return self.shift + self.scale * Fraction(y)

    def expectation(self, coefficients: Longs) -> tuple[float, float]:
        """E p(Y), and how far the errors of the moments and rounding can put it off."""
        n = len(coefficients)
        terms = coefficients * self._moments_long[:n]
        value = float(np.sum(terms))
        rounding = 2 * (n + 2) * np.finfo(Long).eps * np.sum(np.abs(terms)) + UNIT * abs(value)
        table = self._table[:n, :n]
        mine = np.abs(coefficients @ table)
        mine += n * np.finfo(Long).eps * (np.abs(coefficients) @ np.abs(table))
        return value, float(mine @ self._errors_long[:n] + rounding) * (1 + 4 * UNIT)

    def _orthogonal(self, ends: str) -> Orthogonal:
        zeros = tuple(self.ends[end] for end in ends)
        factor: Fractions = np.array([Fraction(1)])
        for end, zero in zip(ends, zeros, strict=True):
            sign = Fraction(1 if end == "a" else -1)
            factor = np.convolve(factor, np.array([-sign * zero, sign]))
        weighted = _moved(factor, self.moments)
        norms = [Fraction(1)]  # first h_{−1} := 1
        norm_errors: list[float] = []
        alpha: list[Fraction] = []
        beta: list[float] = []
        before, last = np.array([Fraction(0)]), np.array([Fraction(1)])
        tilt = Fraction(0)  # L(y^{k+1} P_k)/h_k; the diagonal is its differences
        rank = 0
        for k in range((len(weighted) + 1) // 2):
            if k:
                successor = np.convolve(last, np.array([-alpha[-1], Fraction(1)]))
                successor[: len(before)] -= norms[-1] / norms[-2] * before
                before, last = last, successor
            norm = last @ weighted[k : 2 * k + 1]
            error = self._error_of(np.convolve(factor, np.convolve(last, last)))
            beta.append((max(float(norm), 0.0) + error) / float(norms[-1]))
            norms.append(norm)
            norm_errors.append(error)
            if norm <= 0 or float(norm) <= CLEAR * error:
                break
            rank = k + 1
            if 2 * k + 1 < len(weighted):
                tilted = last @ weighted[k + 1 : 2 * k + 2] / norm
                alpha.append(tilted - tilt)
                tilt = tilted
        jacobi = np.array(alpha, dtype=np.float64), np.array(beta)
        return Orthogonal(ends, zeros, factor, weighted, last, tuple(norms[1:]), tuple(norm_errors), *jacobi, rank)

    def _error_of(self, coefficients: Fractions) -> float:
        """How far the errors of the moments can put E p(Y) off."""
        n = len(coefficients)
        return float(np.abs(longs(coefficients) @ self._table[:n, :n]) @ self._errors_long[:n])

    @cached_property
    def determined(self) -> Orthogonal | None:
        """The family whose zero norm leaves a single law, when the moments belong to it; None when they leave more."""
        if len(self.ends) == 2 and self.ends["a"] == self.ends["b"]:
            return self.orthogonal["a"]
        for family in self.orthogonal.values():
            is_certain = family.norm_errors[-1] == 0  # whatever the errors of the other moments
            if family.norms[-1] == 0 and (is_certain or (self.is_exact and not any(family.beyond()))):
                return family
        return None

    def _check(self) -> None:
        """Raise unless the norms, raised by their errors, are nonnegative; the lowest moment at fault is named."""
        at_fault = [
            (2 * k + len(ends), ends, k)
            for ends, family in self.orthogonal.items()
            for k, (norm, error) in enumerate(zip(family.norms, family.norm_errors, strict=True))
            if float(norm) < -error
        ]
        if at_fault:
            self._refuse(*min(at_fault))
        for family in self.orthogonal.values():
            if family.norms[-1] == 0:
                self._check_beyond(family)
                if family.norm_errors[-1] == 0:
                    self._check_determined(family)

    def _check_beyond(self, family: Orthogonal) -> None:
        """Where a norm is zero the orthogonal polynomials end; still ``L_φ((yʲ P_k)²) ≥ 0`` must hold for all j."""
        square = np.convolve(family.last, family.last)
        whole = np.convolve(family.factor, square)
        for j, found in enumerate(_moved(square, family.weighted)[2::2], 1):
            if float(found) < -self._error_of(np.pad(whole, (2 * j, 0))):
                raise ModelError(
                    f"no law has these moments: those up to order {len(whole) - 1 + 2 * j} give a square an "
                    f"expectation of {float(found):.6g} on {self.support_words()}"
                )

    def _check_determined(self, family: Orthogonal) -> None:
        """A norm that is certainly zero fixes the law, so every later moment must be that law's."""
        whole = np.convolve(family.factor, family.last)
        atoms, known = len(whole) - 1, len(family.last) - 1 + len(whole) - 1
        points = "a constant" if atoms == 1 else f"a law on {atoms} points"
        for order, found in enumerate(family.beyond(), atoms):
            if abs(float(found)) > self._error_of(np.pad(whole, (order - atoms, 0))):
                raise ModelError(
                    f"no law has these moments: those up to order {known} are those of {points}, whose "
                    f"{_ordinal(order)} moment differs from the given one by {float(found * self.scale**order):.6g}"
                )

    def _refuse(self, order: int, ends: str, k: int) -> NoReturn:
        support = self.support_words()
        excess = self.orthogonal[ends].norms[k] * self.scale**order
        if order == 1:
            raise ModelError(f"the mean {float(self.mean):.6g} lies outside the support {support}")
        centred = polynomial.polypow(np.array([-self.moments[1], Fraction(1)]), order)
        central = (centred @ self.moments[: order + 1]) * self.scale**order  # E(X − E X)ᵏ
        sign = -1 if "b" in ends else 1  # whether the moment is too small or too large
        limit = float(central - sign * excess)
        if order == 2 and not ends:
            raise ModelError(f"the variance is {float(central):.6g}; are the moments about {float(self._centre):g}?")
        if order == 2:
            raise ModelError(
                f"the variance {float(central):.6g} is above the largest possible {limit:.6g} = (mean − lower end) · "
                f"(upper end − mean) on the support {support}"
            )
        side, least = ("below", "least") if sign > 0 else ("above", "largest")
        reason = f"for the lower moments: the Hankel determinant of order {k} is negative"
        if order == 4 and not ends:
            reason = "= variance² · (skewness² + 1) for this variance and skewness"
        where = f" on the support {support}" if ends else ""
        raise ModelError(
            f"no law has these moments: the {_ordinal(order)} central moment {float(central):.6g} is {side} the "
            f"{least} possible{where}, {limit:.6g} {reason}"
        )

    def support_words(self) -> str:
        """The support in the user's units, open at infinite ends."""
        lower, upper = (f"{float(self.original(self.ends[e])):g}" if e in self.ends else None for e in "ab")
        return f"{'(-inf' if lower is None else '[' + lower}, {'inf)' if upper is None else upper + ']'}"


def longs(values: Fractions) -> Longs:
    """Fractions as extended floats, where the machine has them; NumPy would convert by way of floats."""
    high = values.astype(np.float64)
    low = (values - np.frompyfunc(Fraction, 1, 1)(high)).astype(np.float64)
    return high.astype(Long) + low.astype(Long)


def _moved(p: Fractions, moments: Fractions) -> Fractions:
    """``L(yʲ p)`` for all j that the moments L(yᵏ) reach."""
    return np.array([p @ moments[j : j + len(p)] for j in range(len(moments) - len(p) + 1)])


def _ordinal(k: int) -> str:
    """``_ordinal(4)`` is ``"4th"``."""
    return f"{k}{({1: 'st', 2: 'nd', 3: 'rd'}.get(k % 10, 'th')) if k % 100 not in (11, 12, 13) else 'th'}"


def _rounding(given: list[Fraction]) -> list[Fraction]:
    """The rounding each moment may carry: a fraction of E|X−centre|ᵏ, which for odd k the neighbours bound."""
    found = []
    for k in range(1, len(given)):
        size = abs(given[k])
        if k % 2 and k + 1 < len(given):
            size = max(size, Fraction(math.sqrt(abs(given[k - 1] * given[k + 1]))))
        found.append(ROUNDING * size)
    return found


def _scale(variance: Fraction | None, error: Fraction | int, mean: Fraction, ends: Iterable[Fraction]) -> Fraction:
    """A power of two about as large as the standard deviation, or what else there is to compare with."""
    size = Fraction(0) if variance is None else max(variance, Fraction(0)) + error
    if size == 0:
        size = min((abs(mean - end) ** 2 for end in ends if end != mean), default=Fraction(1))
    exponent = (size.numerator.bit_length() - size.denominator.bit_length()) // 2
    return Fraction(2) ** exponent


Scalars = list[Any]

EPS = np.finfo(Long).eps


def divided(nodes: Scalars, values: Scalars, slopes: Scalars, is_double: Scalars) -> tuple[Scalars, Scalars]:
    """Newton's form of the polynomial with these values, and these slopes at the double nodes: its points and factors.

    Lists of scalars of one kind, float or extended: arrays this short cost more than they save.
    """
    points, column, slope = [], [], []
    for y, at, tilt, double in zip(nodes, values, slopes, is_double, strict=True):
        for _ in range(2 if double else 1):
            points.append(y)
            column.append(at)
            slope.append(tilt)
    count = len(points)
    factors = [column[0]]
    for j in range(1, count):
        column = [
            slope[i] if points[i + j] == points[i] else (column[i + 1] - column[i]) / (points[i + j] - points[i])
            for i in range(count - j)
        ]
        factors.append(column[0])
    return points, factors


def hermite(nodes: Floats, values: Longs, slopes: Longs, is_double: Bools) -> Longs:
    """Coefficients of the polynomial with these values, and these slopes at the double nodes."""
    points, factors = divided(list(nodes.astype(Long)), list(values), list(slopes), list(is_double))
    found = [factors[-1]]
    for y, factor in zip(points[-2::-1], factors[-2::-1], strict=True):
        found = [factor - y * found[0], *(a - y * b for a, b in pairwise(found)), found[-1]]
    return np.array(found, dtype=Long)


def least(p: Longs, lo: float, hi: float) -> float:
    """The least value of p on [lo, hi], less its rounding; −inf when there is none."""
    if lo > hi:
        return math.inf
    p = trimseq(p)
    degree = len(p) - 1
    if degree < 1:
        return float(p[0])
    if (math.isinf(hi) and p[-1] < 0) or (math.isinf(lo) and p[-1] * (-1) ** degree < 0):
        return -math.inf
    slope = p[1:] * np.arange(1, degree + 1)  # `polyder` takes ten times as long
    bend = slope[1:] * np.arange(1, degree) if degree > 1 else np.zeros(1, dtype=Long)
    scaled = (slope / np.max(np.abs(slope))).astype(np.float64)
    with np.errstate(all="ignore"):
        try:
            turns = polyroots(scaled).real  # real parts of complex pairs do no harm
        except np.linalg.LinAlgError:
            return -math.inf
        if scaled[-1] == 0 or not np.all(np.isfinite(turns)):  # there is a turn beyond the range of floats
            return -math.inf
        # One Newton step in extended precision puts each root where the value's error is beyond rounding.
        steps = turns - polyval(turns, slope) / polyval(turns, bend)
        points = np.concatenate([turns.astype(Long), steps, np.array([lo, hi], dtype=Long)])
    points = points[np.isfinite(points) & (points >= lo) & (points <= hi)]
    rounding = 2 * (degree + 1) * EPS * polyval(np.abs(points), np.abs(p))
    return float(np.min(polyval(points, p) - rounding, initial=np.inf))


# A node this many standard deviations away carries no visible mass; with it the Jacobi matrix loses all digits.
FAR = 1e9
# A bound this close to what its own representation attains is not improved by looking at fewer moments.
SHARP = 1e-11
# Where a node is looked for first: fractions of the way between two others, and distances outside all of them.
TRIALS = np.array([1e-10, 1e-3, 0.1, 0.5, 0.9, 1 - 1e-3, 1 - 1e-10])
REACHES = np.array([1e-9, 1e-3, 0.03, 0.3, 1, 3, 10, 100, 1e4, 1e8])


class Pieces(NamedTuple):
    """f(y) = left[0] + left[1]·y below `at` and right[0] + right[1]·y above; at `at`, the larger of both."""

    at: float
    left: tuple[float, float]
    right: tuple[float, float]

    def __neg__(self) -> "Pieces":
        return Pieces(self.at, (-self.left[0], -self.left[1]), (-self.right[0], -self.right[1]))

    def values(self, nodes: Floats) -> Longs:
        """f at the nodes."""
        y = nodes.astype(Long)
        low, high = self.left[0] + self.left[1] * y, self.right[0] + self.right[1] * y
        return np.where(nodes < self.at, low, np.where(nodes > self.at, high, np.maximum(low, high)))

    def slopes(self, nodes: Floats) -> Longs:
        """f′ at the nodes."""
        return np.where(nodes < self.at, Long(self.left[1]), Long(self.right[1]))

    @property
    def kink(self) -> float:
        """By how much the slope grows at `at`; where it does, no polynomial above f can touch it there."""
        return self.right[1] - self.left[1]


class Representation(NamedTuple):
    """A quadrature rule for the moments, or for L_φ: sorted nodes and their weights."""

    nodes: Floats
    weights: Floats


class MomentProblem:
    """Best possible bounds on E f(Y) from the moments of a sequence."""

    def __init__(self, sequence: MomentSequence) -> None:
        self.sequence = sequence
        # Rounded outwards: a slightly larger support keeps every bound true.
        self.lo = round_down(sequence.ends["a"]) if "a" in sequence.ends else -math.inf
        self.hi = round_up(sequence.ends["b"]) if "b" in sequence.ends else math.inf
        self._families = {order: self._canonical_families(order) for order in range(1, sequence.order + 1)}
        # The orders that add something: where the errors drown a norm, more moments change nothing.
        lowest: dict[tuple[tuple[str, int], ...], int] = {}
        for order, families in self._families.items():
            lowest.setdefault(tuple((family.ends, _known_size(family, size)) for family, size in families), order)
        self._orders = sorted(lowest.values(), reverse=True)

    def lower(self, f: Pieces) -> float:
        """A number that E f(Y) is certainly not below."""
        return -self.upper(-f) + 0.0  # no negative zero

    @np.errstate(all="ignore")  # what overflows proves nothing and is passed over
    def upper(self, f: Pieces) -> float:
        """A number that E f(Y) is certainly not above: the best over all orders."""
        best = math.inf
        for order in self._orders:
            attained, here, error = -math.inf, math.inf, 0.0
            for rule, above in self._touching(f, order):
                bound, cost = self._certified(above, f)
                if bound < here:
                    here, error = bound, cost
                if self._is_feasible(rule):
                    attained = max(attained, float(np.sum(rule.weights * f.values(rule.nodes))))
                if here < math.inf and here - attained <= SHARP * (1 + abs(here)) + 2 * error:
                    break  # as good as this order gets
            best = min(best, here)
            if best < math.inf and best - attained <= SHARP * (1 + abs(best)):
                break
        return best

    def canonical(self, order: int, node: float) -> Representation | None:
        """The canonical representation of the moments up to `order` that has the given node."""
        found = None
        for family, size in self._families[order]:
            if all(float(z) != node for z in family.zeros):
                found = self.rule(family, _with_node(family, size, node), node)
                if self._is_feasible(found):
                    break
        return found

    def _canonical_families(self, order: int) -> list[tuple[Orthogonal, int]]:
        """The families, and how many nodes beside the zeros of φ, that a canonical representation can have."""
        half = (order + 1) // 2
        if order % 2 == 0:
            return self._known([("", half + 1), ("ab", half)])
        return self._known([("a", half), ("b", half)] if len(self.sequence.ends) == 2 else [("ab", half), ("", half)])

    def principal(self, order: int) -> Iterator[Representation]:
        """The two representations with one node fewer, which bound the others."""
        half, is_odd = divmod(order, 2)
        pair = [("", half + 1), ("ab", half)] if is_odd else [("a", half), ("b", half)]
        for family, size in self._known(pair):
            if size:
                yield self.rule(family, gauss(family, size))

    def _known(self, wanted: list[tuple[str, int]]) -> list[tuple[Orthogonal, int]]:
        """Families by the ends where φ vanishes, of which the infinite ones are left out; the first of two alike."""
        sizes: dict[str, int] = {}
        for ends, size in wanted:
            sizes.setdefault("".join(end for end in ends if end in self.sequence.ends), size)
        families = self.sequence.orthogonal
        return [(families[ends], size) for ends, size in sizes.items() if ends in families]

    def rule(self, family: Orthogonal, inner: Representation, node: float | None = None) -> Representation:
        """A rule for L_φ as one for the moments: weights divided by φ, and the rest of the mass on the zeros of φ."""
        nodes, weights = inner
        keep = np.abs(nodes) <= FAR
        if node is not None:
            nearest = np.argmin(np.abs(nodes - node))
            nodes[nearest], keep[nearest] = node, True
        nodes, weights = nodes[keep], weights[keep]
        if not family.ends:
            return Representation(nodes, weights)
        with np.errstate(all="ignore"):  # a node on an end makes weights that are not feasible
            if "a" in family.ends:
                weights = weights / (nodes - self.lo)
            if "b" in family.ends:
                weights = weights / (self.hi - nodes)
            rest = 1 - np.sum(weights)
            more = [rest]
            if family.ends == "ab":  # the mean divides the rest between the ends
                mean = float(self.sequence.moments[1])
                top = (mean - np.sum(weights * nodes) - rest * self.lo) / (self.hi - self.lo)
                more = [rest - top, top]
        nodes = np.append(nodes, [self.lo if end == "a" else self.hi for end in family.ends])
        order = np.argsort(nodes)
        return Representation(nodes[order], np.append(weights, more)[order])

    def _is_feasible(self, rule: Representation) -> bool:
        width = 1e-9 * (1 + np.max(np.abs(rule.nodes), initial=0.0))
        inside = bool(np.all((rule.nodes >= self.lo - width) & (rule.nodes <= self.hi + width)))
        return inside and bool(np.all(rule.weights >= -1e-9))

    def _touching(self, f: Pieces, order: int) -> Iterator[tuple[Representation, Longs]]:
        """Candidates of degree at most `order`, with the representation each belongs to."""
        if order == 1 and f.kink < 0:  # both lines lie above f, and the constant law attains one of them
            constant = Representation(np.array([float(self.sequence.moments[1])]), np.ones(1))
            yield from ((constant, np.array(line, dtype=Long)) for line in (f.left, f.right))
            return
        if f.kink <= 0:
            rule = self.canonical(order, f.at)
            if rule is not None:
                yield rule, self._touch(rule, f, f.at)
            return
        if order == 1:
            yield from self._lines(f)
            return
        if order == 2:
            yield self._parabola(f)
        for rule in self.principal(order):
            if f.at not in rule.nodes:
                yield rule, self._touch(rule, f)
        for node, rule in self._straddling(f, order):
            yield rule, self._touch(rule, f, node)

    def _touch(self, rule: Representation, f: Pieces, simple: float | None = None) -> Longs:
        """The polynomial that meets f at the nodes and has its slope at those inside, except at the node `simple`."""
        nodes, is_double = self._contacts(rule, simple)
        return hermite(nodes, f.values(nodes), f.slopes(nodes), is_double)

    def _contacts(self, rule: Representation, simple: float | None) -> tuple[Floats, Bools]:
        """The distinct nodes, moved into the support, and which of them are touched and not only met."""
        nodes = np.clip(rule.nodes, self.lo, self.hi)
        if simple is not None:
            nodes[rule.nodes == simple] = simple
        is_double = ~((nodes <= self.lo) | (nodes >= self.hi) | (nodes == simple))
        keep = np.ones(len(nodes), dtype=bool)
        keep[1:] = nodes[1:] > nodes[:-1]
        return nodes[keep], is_double[keep]

    def _lines(self, f: Pieces) -> Iterator[tuple[Representation, Longs]]:
        """The lowest straight line above a convex f at every mean."""
        ends = np.array([y for y in (self.lo, self.hi) if not math.isinf(y)])
        if not len(ends):
            return
        slope = f.right[1] if math.isinf(self.hi) else f.left[1]  # where one end is open, the slope out there
        line = hermite(ends, f.values(ends), np.full(len(ends), Long(slope)), np.full(len(ends), len(ends) == 1))
        mean = float(self.sequence.moments[1])
        right = (mean - ends[0]) / (ends[-1] - ends[0]) if len(ends) == 2 else 1.0
        weights = np.array([1 - right, right][-len(ends) :])
        yield Representation(ends, weights), line

    def _parabola(self, f: Pieces) -> tuple[Representation, Longs]:
        """``(y−t)⁺ ≤ (y−t+d)²/4d``, and the law on t ± d that shows it to be best without a support."""
        t = Long(f.at)
        square, error = self.sequence.expectation(np.array([t * t, -2 * t, Long(1)]))
        d = Long(max(math.sqrt(max(square, 0.0) + error), 1e-150))
        p = np.array([(d - t) ** 2, 2 * (d - t), Long(1)]) * f.kink / (4 * d)
        p[:2] += np.array(f.left)
        lean = (float(self.sequence.moments[1]) - f.at) / float(d)
        nodes, weights = np.array([f.at - float(d), f.at + float(d)]), np.array([1 - lean, 1 + lean]) / 2
        return Representation(nodes, weights), p

    def _straddling(self, f: Pieces, order: int) -> Iterator[tuple[float, Representation]]:
        """The representation all of whose nodes touch f, with one of its nodes; again for each of its nodes.

        The polynomial that meets f in value at ξ, and in slope too at the other nodes, has slope ``f′(ξ) + mismatch``
        at ξ, and ``dE f/dξ = −(weight of ξ)·mismatch``. As ξ moves from one node of t's representation to the next, E f
        rises from its least value to its largest and falls back. Any two neighbours will do, unless the law is nearly
        known: then most nodes are stuck at its atoms, and only the arc in which the light one moves shows anything.
        """
        around = self.canonical(order, f.at)
        if around is None:
            return
        ends = max(self.lo, -FAR), min(self.hi, FAR)
        nodes = np.unique(np.clip(np.append(around.nodes, np.array(ends)), *ends))
        arcs = [(float(a), float(b)) for a, b in pairwise(nodes)]
        # An arc that ends inside the support is a full turn; the others are parts of one.
        arcs.sort(key=lambda arc: (arc[0] == ends[0] or arc[1] == ends[1], min(abs(arc[0] - f.at), abs(arc[1] - f.at))))

        def mismatch(node: float) -> float:
            rule = self.canonical(order, node)
            if rule is None:
                return math.nan
            if np.all(rule.nodes > f.at):  # f is one straight line to this rule: E f has not begun to rise
                return -1.0
            if np.all(rule.nodes < f.at):
                return 1.0
            nodes, is_double = self._contacts(rule, node)
            is_double |= nodes == node
            values, slopes = f.values(nodes).astype(np.float64), f.slopes(nodes).astype(np.float64)
            points, factors = divided(nodes.tolist(), values.tolist(), slopes.tolist(), is_double.tolist())
            return -factors[-1] * math.prod(node - y for y in points if y != node)

        for start, end in arcs:
            # Next to a heavy atom the sign of the mismatch is lost in rounding, so the arc is looked at inside as well.
            trials = start + (end - start) * TRIALS
            if start == -FAR or end == FAR:
                trials = start + REACHES if end == FAR else end - REACHES[::-1]
            signs = [mismatch(float(y)) for y in trials]
            for i in range(len(trials) - 1):
                if signs[i] < 0 < signs[i + 1]:
                    node = float(
                        scipy.optimize.brentq(mismatch, trials[i], trials[i + 1], xtol=1e-10, rtol=1e-10, disp=False)
                    )
                    rule = self.canonical(order, node)
                    if rule is not None:
                        yield node, rule

    def _certified(self, p: Longs, f: Pieces) -> tuple[float, float]:
        """The bound that p proves, E p(Y) lifted by as much as p lies below f; and how much of it the errors cost."""
        if not np.all(np.isfinite(p)):
            return math.inf, 0.0
        left = least(polysub(p, f.left), self.lo, min(f.at, self.hi))
        right = least(polysub(p, f.right), max(f.at, self.lo), self.hi)
        value, error = self.sequence.expectation(p)
        return math.nextafter(math.fsum((value, error, max(0.0, -left, -right))), math.inf), error


def gauss(family: Orthogonal, size: int) -> Representation:
    """Gauss nodes and weights of L_φ: eigenvalues of the Jacobi matrix and squared first entries of its vectors."""
    size = min(size, family.rank, len(family.alpha))
    if size == 0:
        return Representation(np.zeros(0), np.zeros(0))
    return _eigen(family.alpha[:size], family.beta[:size])


def _known_size(family: Orthogonal, size: int) -> int:
    """How many nodes of a rule with `size` nodes the moments fix once one is chosen."""
    return min(size - 1, family.rank, len(family.alpha), len(family.beta) - 1)


def _with_node(family: Orthogonal, size: int, node: float) -> Representation:
    """The rule of `size` nodes for L_φ with one at the given place: the last diagonal entry makes it an eigenvalue."""
    last = _known_size(family, size)
    pivot = 1.0  # of the elimination of J − node·I
    for k in range(last):
        pivot = family.alpha[k] - node - (family.beta[k] / pivot if k else 0.0)
        if abs(pivot) < 1e-200:
            pivot = 1e-200
    corner = node + (family.beta[last] / pivot if last else 0.0)
    if last and abs(corner) > FAR * (1 + abs(node)):  # the node is a Gauss node, and the free one is at infinity
        return gauss(family, last)
    return _eigen(np.append(family.alpha[:last], corner), family.beta[: last + 1])


def _eigen(alpha: Floats, beta: Floats) -> Representation:
    # The lower triangle is all that eigh reads.
    nodes, vectors = np.linalg.eigh(np.diag(alpha) + np.diag(np.sqrt(beta[1:]), -1))
    return Representation(nodes, beta[0] * vectors[0] ** 2)


def round_down(value: Fraction) -> float:
    """The largest float not above."""
    near = float(value)
    return near if Fraction(near) <= value else math.nextafter(near, -math.inf)


def round_up(value: Fraction) -> float:
    """The smallest float not below."""
    return -round_down(-value) + 0.0
