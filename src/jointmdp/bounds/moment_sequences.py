"""Moments 1..n of a random variable, made standard, and whether any law has them.

Everything is exact: floats are rational numbers, and so are the moments of Y = (X − shift)/scale, the monic orthogonal
polynomials P_k of the functionals ``L_φ(p) = E[φ(Y) p(Y)]`` and their norms ``h_k = L_φ(P_k²)``. With φ one of
``1, y−a, b−y, (y−a)(b−y)`` (a, b the ends of the support), a sequence belongs to a law on the support iff no h_k is
negative (Hamburger, Stieltjes, Hausdorff; Krein and Nudelman, The Markov Moment Problem and Extremal Problems, 1977).
A norm that is zero leaves one law: its atoms are the roots of P_k and the zeros of φ.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NoReturn

import numpy as np
from numpy.polynomial import polynomial
from numpy.typing import NDArray

from jointmdp.arrays import Floats
from jointmdp.errors import ModelError

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
        rounding = 2 * (n + 2) * np.finfo(Long).eps * np.sum(np.abs(terms))
        table = self._table[:n, :n]
        mine = np.abs(coefficients @ table)
        mine += n * np.finfo(Long).eps * (np.abs(coefficients) @ np.abs(table))
        return float(np.sum(terms)), float(mine @ self._errors_long[:n] + rounding)

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


def polished(p: Fractions, start: float) -> float:
    """The float next to the root of p near `start`, by Newton steps in exact arithmetic."""
    for _ in range(2):
        y = Fraction(start)
        slope = polynomial.polyval(y, polynomial.polyder(p))
        start = float(y - polynomial.polyval(y, p) / slope) if slope else start
    return start


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
