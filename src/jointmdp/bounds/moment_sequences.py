"""Moments 1..n of a random variable, made standard, and whether any law has them.

Everything is exact: floats are rational numbers, and so are the moments of Y = (X − shift)/scale, the monic orthogonal
polynomials P_k of the functionals ``L_φ(p) = E[φ(Y) p(Y)]`` and their norms ``h_k = L_φ(P_k²)``. With φ one of
``1, y−a, b−y, (y−a)(b−y)`` (a, b the ends of the support), a sequence belongs to a law on the support iff no h_k is
negative (Hamburger, Stieltjes, Hausdorff; Krein and Nudelman, The Markov Moment Problem and Extremal Problems, 1977).
A norm that is zero leaves one law: its atoms are the roots of P_k and the zeros of φ.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from jointmdp.errors import ModelError

Long = np.longdouble
Longs = NDArray[np.longdouble]
Coefficients = list[Fraction]  # coefficients in powers of y, lowest first

# Moments are floats that somebody computed: each may be this fraction of E|X−centre|ᵏ away from what was meant.
ROUNDING = Fraction(1, 2**50)
# A norm below this many times its own uncertainty says nothing about its polynomial's successor.
CLEAR = 4
DIGITS = 2**24  # shift and scale need no more digits than this, and short numbers keep the fractions short


@dataclass(frozen=True)
class Orthogonal:
    """The orthogonal polynomials of L_φ, as far as they are known better than the errors of the moments."""

    zeros: tuple[Fraction, ...]  # of φ: which ends of the support it vanishes at
    polynomials: tuple[Coefficients, ...]  # P_0, P_1, …
    norms: tuple[Fraction, ...]  # h_0, …; one for each polynomial
    slacks: tuple[float, ...]  # how far the errors allow each norm to be off
    alpha: NDArray[np.float64]  # the Jacobi matrix: its diagonal
    beta: NDArray[np.float64]  # β_k = h_k/h_{k−1}; β_0 = h_0; the last one raised by its slack
    rank: int  # number of polynomials with a norm that is clearly positive


class MomentSequence:
    """The moments ``m_k = E Yᵏ``, k = 0..n, of Y = (X − shift)/scale with what is known of their errors."""

    def __init__(
        self, moments: Sequence[float], errors: Sequence[float], support: tuple[float, float], centre: float
    ) -> None:
        self.order = len(moments)
        given = [Fraction(1), *map(Fraction, moments)]
        self.is_exact = not any(errors)
        self._slack = [Fraction(0), *(Fraction(e) + r for e, r in zip(errors, _rounding(given), strict=True))]
        self._centre = Fraction(centre)
        lo, hi = (None if math.isinf(end) else Fraction(end) for end in support)
        self.variance = given[2] - given[1] ** 2 if self.order > 1 else None
        unsure = self._slack[2] + 2 * abs(given[1]) * self._slack[1] + self._slack[1] ** 2 if self.order > 1 else 0
        self.scale = _scale(self.variance, unsure, given[1] + self._centre, lo, hi)
        step = self.scale / DIGITS
        self.shift = self._centre + round(given[1] / step) * step  # in units of x
        self.lo = None if lo is None else self.standard(lo)
        self.hi = None if hi is None else self.standard(hi)
        # (x−centre)ʲ appears in yᵏ = ((x−centre − move)/scale)ᵏ with these coefficients.
        move = self.shift - self._centre
        table = [
            [math.comb(k, j) * (-move) ** (k - j) / self.scale**k for j in range(k + 1)] for k in range(self.order + 1)
        ]
        self.moments = [sum((c * g for c, g in zip(row, given, strict=False)), Fraction(0)) for row in table]
        self.moments_long = longs(self.moments)
        self._table = np.zeros((self.order + 1, self.order + 1), dtype=Long)
        for k, row in enumerate(table):
            self._table[k, : k + 1] = longs(row)
        self._slack_long = longs(self._slack)
        self.orthogonal = {ends: self._orthogonal(ends) for ends in self._factors()}
        self._check()

    def standard(self, x: Fraction) -> Fraction:
        """From the user's units to standard ones."""
        return (x - self.shift) / self.scale

    def original(self, y: float) -> Fraction:
        """From standard units to the user's."""
        return self.shift + self.scale * Fraction(y)

    def expectation(self, coefficients: Longs) -> tuple[float, float]:
        """E p(Y), and how far the errors of the moments and rounding can put it off."""
        n = len(coefficients)
        terms = coefficients * self.moments_long[:n]
        rounding = 2 * (n + 2) * np.finfo(Long).eps * np.sum(np.abs(terms))
        table = self._table[:n, :n]
        mine = np.abs(coefficients @ table)
        mine += n * np.finfo(Long).eps * (np.abs(coefficients) @ np.abs(table))
        return float(np.sum(terms)), float(mine @ self._slack_long[:n] + rounding)

    def _factors(self) -> list[str]:
        """Which φ the support allows, by the finite ends where they vanish: "", "a", "b", "ab"."""
        ends = ("a" if self.lo is not None else "") + ("b" if self.hi is not None else "")
        found = ["", *ends] if len(ends) < 2 else ["", "a", "b", "ab"]
        return [f for f in found if len(f) <= self.order]

    def _weighted(self, ends: str) -> list[Fraction]:
        """``L_φ(yᵏ)`` for all k the moments reach."""
        found = self.moments
        for end in ends:
            bound = self.lo if end == "a" else self.hi
            assert bound is not None
            sign = 1 if end == "a" else -1
            found = [sign * (found[k + 1] - bound * found[k]) for k in range(len(found) - 1)]
        return found

    def _orthogonal(self, ends: str) -> Orthogonal:
        zeros = tuple(z for z, name in ((self.lo, "a"), (self.hi, "b")) if name in ends and z is not None)
        weighted = self._weighted(ends)
        polynomials: list[Coefficients] = []
        norms: list[Fraction] = []
        slacks: list[float] = []
        alpha: list[Fraction] = []
        beta: list[float] = []
        current: Coefficients = [Fraction(1)]
        tilt = Fraction(0)  # L(y^{k+1} P_k)/h_k; the diagonal is its differences
        rank = 0
        for k in range((len(weighted) + 1) // 2):
            norm = sum((c * weighted[j + k] for j, c in enumerate(current)), Fraction(0))
            slack = self._slack_of(_times(_factor(ends, zeros), _times(current, current)))
            polynomials.append(current)
            norms.append(norm)
            slacks.append(slack)
            last = norms[k - 1] if k else Fraction(1)
            if norm <= 0 or float(norm) <= CLEAR * slack:
                beta.append((max(float(norm), 0.0) + slack) / float(last))
                break
            beta.append((float(norm) + slack) / float(last))
            rank = k + 1
            if 2 * k + 1 >= len(weighted):
                break
            tilted = sum((c * weighted[j + k + 1] for j, c in enumerate(current)), Fraction(0)) / norm
            alpha.append(tilted - tilt)
            tilt = tilted
            successor = [Fraction(0), *current]
            for j, c in enumerate(current):
                successor[j] -= alpha[k] * c
            if k:
                for j, c in enumerate(polynomials[k - 1]):
                    successor[j] -= norm / last * c
            current = successor
        return Orthogonal(
            zeros,
            tuple(polynomials),
            tuple(norms),
            tuple(slacks),
            np.array([float(a) for a in alpha]),
            np.array(beta),
            rank,
        )

    def _slack_of(self, polynomial: Coefficients) -> float:
        """How far the errors of the moments can put E p(Y) off."""
        n = len(polynomial)
        coefficients = np.abs(longs(polynomial) @ self._table[:n, :n])
        return float(coefficients @ self._slack_long[:n])

    @cached_property
    def determined(self) -> str | None:
        """The φ whose zero norm leaves a single law, when the moments belong to it; None when they leave more."""
        if self.lo is not None and self.lo == self.hi:
            return "a"
        for ends, family in self.orthogonal.items():
            if family.norms and family.norms[-1] == 0:
                is_certain = family.slacks[-1] == 0  # whatever the errors of the other moments
                if is_certain or (self.is_exact and not any(self._beyond(ends))):
                    return ends
        return None

    def _beyond(self, ends: str) -> list[Fraction]:
        """``L_φ(P_k yʲ)`` for all j, k the first norm that is zero: all zero iff the other moments are the law's."""
        weighted, family = self._weighted(ends), self.orthogonal[ends]
        last = family.polynomials[len(family.norms) - 1]
        count = len(weighted) - len(last) + 1
        return [sum((c * weighted[i + j] for i, c in enumerate(last)), Fraction(0)) for j in range(count)]

    # -- impossible sequences ----------------------------------------------------------------------------------

    def _check(self) -> None:
        """Raise unless the norms, raised by their slacks, are nonnegative; the lowest moment at fault is named."""
        at_fault = [
            (2 * k + len(ends), ends, k)
            for ends, family in self.orthogonal.items()
            for k, (norm, slack) in enumerate(zip(family.norms, family.slacks, strict=True))
            if float(norm) < -slack
        ]
        if at_fault:
            self._refuse(*min(at_fault))
        for ends, family in self.orthogonal.items():
            if family.norms and family.norms[-1] == 0:
                self._check_beyond(ends)
                if family.slacks[-1] == 0:
                    self._check_determined(ends)

    def _check_beyond(self, ends: str) -> None:
        """Where a norm is zero the orthogonal polynomials end; still ``L_φ((yʲ P_k)²) ≥ 0`` must hold for all j."""
        weighted, family = self._weighted(ends), self.orthogonal[ends]
        k = len(family.norms) - 1
        square = _times(family.polynomials[k], family.polynomials[k])
        for j in range(1, (len(weighted) - len(square)) // 2 + 1):
            value = sum((c * weighted[i + 2 * j] for i, c in enumerate(square)), Fraction(0))
            whole = _times(_factor(ends, family.zeros), [Fraction(0)] * (2 * j) + square)
            if float(value) < -self._slack_of(whole):
                order = len(whole) - 1
                raise ModelError(
                    f"no law has these moments: those up to order {order} give a square an expectation of "
                    f"{float(value):.6g} on {self._support_words()}"
                )

    def _check_determined(self, ends: str) -> None:
        """A norm that is certainly zero fixes the law, so every later moment must be that law's."""
        family = self.orthogonal[ends]
        k = len(family.norms) - 1
        last = _times(_factor(ends, family.zeros), family.polynomials[k])
        for j, value in enumerate(self._beyond(ends)):
            if abs(float(value)) > self._slack_of([Fraction(0)] * j + last):
                order = len(last) - 1 + j
                known = 2 * k + len(ends)
                points = "a constant" if k + len(ends) == 1 else f"a law on {k + len(ends)} points"
                raise ModelError(
                    f"no law has these moments: those up to order {known} are those of {points}, whose "
                    f"{ordinal(order)} moment differs from the given one by {float(value * self.scale**order):.6g}"
                )

    def _refuse(self, order: int, ends: str, k: int) -> NoReturn:
        support = self._support_words()
        mean = self._centre + (self.shift - self._centre) + self.scale * self.moments[1]
        excess = self.orthogonal[ends].norms[k] * self.scale**order
        if order == 1:
            raise ModelError(f"the mean {float(mean):.6g} lies outside the support {support}")
        value = self._central(order)
        sign = -1 if "b" in ends else 1  # whether the moment is too small or too large
        limit = float(value - sign * excess)
        if order == 2 and not ends:
            raise ModelError(f"the variance is {float(value):.6g}; are the moments about {float(self._centre):g}?")
        if order == 2:
            raise ModelError(
                f"the variance {float(value):.6g} is above the largest possible {limit:.6g} = (mean − lower end) · "
                f"(upper end − mean) on the support {support}"
            )
        side, least = ("below", "least") if sign > 0 else ("above", "largest")
        reason = f"for the lower moments: the Hankel determinant of order {k} is negative"
        if order == 4 and not ends:
            reason = "= variance² · (skewness² + 1) for this variance and skewness"
        where = f" on the support {support}" if ends else ""
        raise ModelError(
            f"no law has these moments: the {ordinal(order)} central moment {float(value):.6g} is {side} the {least} "
            f"possible{where}, {limit:.6g} {reason}"
        )

    def _central(self, k: int) -> Fraction:
        """E(X − E X)ᵏ."""
        mean = self.moments[1]
        found = sum(
            (math.comb(k, j) * m * (-mean) ** (k - j) for j, m in enumerate(self.moments[: k + 1])), Fraction(0)
        )
        return found * self.scale**k

    def _support_words(self) -> str:
        lower = "(-inf" if self.lo is None else f"[{float(self.shift + self.scale * self.lo):g}"
        upper = "inf)" if self.hi is None else f"{float(self.shift + self.scale * self.hi):g}]"
        return f"{lower}, {upper}"


def longs(values: Sequence[Fraction]) -> Longs:
    """Fractions as extended floats, where the machine has them."""
    high = [float(v) for v in values]
    low = [float(v - Fraction(h)) for v, h in zip(values, high, strict=True)]
    return np.array(high, dtype=Long) + np.array(low, dtype=Long)


def value(p: Coefficients, y: Fraction) -> Fraction:
    """p(y)."""
    found = Fraction(0)
    for c in reversed(p):
        found = found * y + c
    return found


def polished(p: Coefficients, start: float) -> float:
    """The float next to the root of p near `start`, by Newton steps in exact arithmetic."""
    slope = [k * c for k, c in enumerate(p)][1:]
    for _ in range(2):
        y = Fraction(start)
        steepness = value(slope, y)
        start = float(y - value(p, y) / steepness) if steepness else start
    return start


def ordinal(k: int) -> str:
    """``ordinal(4)`` is ``"4th"``."""
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


def _scale(
    variance: Fraction | None, unsure: Fraction | int, mean: Fraction, lo: Fraction | None, hi: Fraction | None
) -> Fraction:
    """A power of two about as large as the standard deviation, or what else there is to compare with."""
    size = Fraction(0) if variance is None else max(variance, Fraction(0)) + unsure
    if size == 0:
        finite = [abs(mean - end) ** 2 for end in (lo, hi) if end is not None and end != mean]
        size = min(finite, default=Fraction(1))
    exponent = (size.numerator.bit_length() - size.denominator.bit_length()) // 2
    return Fraction(2) ** exponent


def _times(p: Coefficients, q: Coefficients) -> Coefficients:
    found = [Fraction(0)] * (len(p) + len(q) - 1)
    for i, a in enumerate(p):
        for j, b in enumerate(q):
            found[i + j] += a * b
    return found


def _factor(ends: str, zeros: tuple[Fraction, ...]) -> Coefficients:
    """φ itself."""
    found = [Fraction(1)]
    for end, zero in zip(ends, zeros, strict=True):
        found = _times(found, [-zero, Fraction(1)] if end == "a" else [zero, Fraction(-1)])
    return found
