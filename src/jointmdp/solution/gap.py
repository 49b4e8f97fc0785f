"""The gap between two actions of an evaluated model: moments, bounds, and the certified law behind them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from jointmdp import bounds, checks
from jointmdp.arrays import UNIT
from jointmdp.errors import ModelError, NotKnownError
from jointmdp.intervals import Interval
from jointmdp.law.gap_law import GapLaw
from jointmdp.law.solution_laws import Laws
from jointmdp.report.result_face import ResultFace
from jointmdp.report.result_figures import draw_law
from jointmdp.solution.replications_needed import ReplicationsNeeded, to_estimate, to_select

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TOLERANCE = 0.01  # widths of probabilities, and of amounts in standard deviations, that are asked for by default
QUANTILE_TOLERANCE = 0.1  # a quantile is as hard to find as the law is flat there
MEMORY_LIMIT = 2 * 2**30  # bytes that a law may take by default
NEGLIGIBLE = 1e-6  # a gap's variance certified below this fraction of the independent one counts as gone


@dataclass(frozen=True)
class Gap(ResultFace):
    """``G = Z(state, action) − Z(state, other)``: positive when `action` gives more."""

    state: str
    action: str
    other: str
    mean: float
    variance: float
    independent_variance: float
    """Variance if the two returns were independent: the sum of their variances."""
    mean_error: float
    """Guaranteed bound on the error of `mean`."""
    variance_error: float
    """Guaranteed bound on the error of `variance`."""
    higher: tuple[float, ...] = field(default=(), repr=False)
    """Central moments of order 3, 4, … up to the order evaluated."""
    higher_errors: tuple[float, ...] = field(default=(), repr=False)
    """Guaranteed bounds on their errors."""
    place: tuple[Laws, tuple[int, int, int]] | None = field(default=None, repr=False, compare=False)
    """Where the law is to be had: the laws of the solution, and state, action and other by index."""

    def __repr__(self) -> str:
        return (
            f"Gap({self.action} − {self.other} in {self.state}: {self.mean:.6g} ± {self.std:.6g}, "
            f"independent ± {math.sqrt(self.independent_variance):.6g})"
        )

    def table(self) -> list[dict[str, Any]]:
        """One row: what the moments say; the law takes longer, and is not asked."""
        plain = ("state", "action", "other", "mean", "mean_interval", "variance", "variance_interval", "std")
        return [{name: getattr(self, name) for name in (*plain, "independent_variance")}]

    def figure(self) -> Figure:
        """The certified law: P(gap ≤ x) lies between the two curves."""
        law = self.law()
        words = f"certified law in {self.state}"
        return draw_law(f"{self.action} − {self.other}", *law.band, self.mean_interval, words)

    @property
    def mean_interval(self) -> Interval:
        """Certified bounds of the mean."""
        return Interval(self.mean - self.mean_error, self.mean + self.mean_error)

    @property
    def variance_interval(self) -> Interval:
        """Certified bounds of the variance."""
        return Interval(max(0.0, self.variance - self.variance_error), self.variance + self.variance_error)

    @property
    def std(self) -> float:
        """Standard deviation."""
        return math.sqrt(self.variance)

    @property
    def variance_reduction(self) -> float:
        """How many times smaller sharing makes the variance; infinite when it certainly removes all of it."""
        if self.independent_variance <= self.variance_error or self.variance == self.independent_variance == 0:
            return math.nan
        if self.variance <= self.variance_error <= NEGLIGIBLE * self.independent_variance:
            return math.inf
        return self.independent_variance / self.variance if self.variance > 0 else math.nan

    @property
    def order(self) -> int:
        """The highest order of moments held."""
        return 2 + len(self.higher)

    def central_moment(self, k: int) -> float:
        """E[(G − E G)ᵏ], for k up to the order evaluated."""
        return (1.0, 0.0, self.variance, *self.higher)[self._checked(k)]

    def central_moment_error(self, k: int) -> float:
        """Guaranteed bound on the error of `central_moment`."""
        return (0.0, 0.0, self.variance_error, *self.higher_errors)[self._checked(k)]

    def moment(self, k: int) -> float:
        """E[Gᵏ], for k up to the order evaluated."""
        k = self._checked(k)
        return sum(math.comb(k, i) * self.mean ** (k - i) * self.central_moment(i) for i in range(k + 1) if i != 1)

    def moment_error(self, k: int) -> float:
        """Guaranteed bound on the error of `moment`."""
        k = self._checked(k)
        if k < 2:
            return self.mean_error if k == 1 else 0.0
        size, total = abs(self.mean) + self.mean_error, 0.0
        for i in range(k + 1):
            if i == 1:
                continue  # the first central moment is zero
            p, central = k - i, abs(self.central_moment(i))
            moved = p * self.mean_error * size ** (p - 1) if p > 0 else 0.0
            error = moved * (central + self.central_moment_error(i)) + size**p * self.central_moment_error(i)
            total += math.comb(k, i) * (error + (4 * k + 8) * UNIT * size**p * central)
        return total

    @property
    def skewness(self) -> float:
        """E(G−μ)³ / σ³; not a number where the variance is not certainly positive."""
        third = self.central_moment(3)
        return third / self.variance**1.5 if self.variance > self.variance_error else math.nan

    @property
    def excess_kurtosis(self) -> float:
        """E(G−μ)⁴ / σ⁴ − 3, zero for a normal law; not a number where the variance is not certainly positive."""
        fourth = self.central_moment(4)
        return fourth / self.variance**2 - 3 if self.variance > self.variance_error else math.nan

    def _checked(self, k: int) -> int:
        k = checks.as_count("k", k, least=0)
        if k > self.order:
            raise ModelError(
                f"moment {k} asked for, but the solution holds moments up to order {self.order}; "
                f"evaluate(..., order={k}) computes it"
            )
        return k

    @property
    def is_identical(self) -> bool:
        """Whether the gap is certainly zero: an action against itself."""
        return self.action == self.other

    @property
    def inferiority_bound(self) -> float:
        """Cantelli's bound on P(G ≤ 0); 1 when the mean is not certainly positive."""
        return bounds.cantelli(self.mean - self.mean_error, self.variance + self.variance_error)

    def superiority(self, *, tolerance: float = TOLERANCE, memory_limit: int = MEMORY_LIMIT) -> Interval:
        """P(G > 0): what the law and the moments know, refined until the width is at most `tolerance` if it can be."""

        def of_moments(known: bounds.MomentBounds) -> Interval:
            below = known.cdf(0.0)
            return Interval(1 - below.upper, 1 - below.lower)

        return self._known("signs", GapLaw.superiority, of_moments, 0.0, tolerance, memory_limit)

    def tie(self, *, tolerance: float = TOLERANCE, memory_limit: int = MEMORY_LIMIT) -> Interval:
        """P(G = 0)."""

        def of_moments(known: bounds.MomentBounds) -> Interval:
            return Interval(0.0, max(0.0, known.cdf(0.0).upper - known.cdf_left(0.0).lower))

        return self._known("signs", GapLaw.tie, of_moments, 1.0, tolerance, memory_limit)

    def inferiority(self, *, tolerance: float = TOLERANCE, memory_limit: int = MEMORY_LIMIT) -> Interval:
        """P(G < 0)."""
        return self._known("signs", GapLaw.inferiority, lambda known: known.cdf_left(0.0), 0.0, tolerance, memory_limit)

    def quantile(
        self, q: float, *, tolerance: float = QUANTILE_TOLERANCE, memory_limit: int = MEMORY_LIMIT
    ) -> Interval:
        """The q-quantile of G, refined until the width is at most `tolerance` standard deviations if it can be."""
        q, width = checks.as_fraction("q", q), _as_tolerance(tolerance) * self._scale
        return self._known(
            f"quantile {q}", lambda law: law.quantile(q), lambda known: known.quantile(q), 0.0, width, memory_limit
        )

    def cvar(self, alpha: float, *, tolerance: float = TOLERANCE, memory_limit: int = MEMORY_LIMIT) -> Interval:
        """The mean of the lowest `alpha` fraction of G, to `tolerance` standard deviations if it can be."""
        alpha, width = checks.as_fraction("alpha", alpha), _as_tolerance(tolerance) * self._scale
        return self._known(
            f"cvar {alpha}", lambda law: law.cvar(alpha), lambda known: known.cvar(alpha), 0.0, width, memory_limit
        )

    def law(self, *, tolerance: float = TOLERANCE, memory_limit: int = MEMORY_LIMIT) -> GapLaw:
        """The certified law of G.

        Its grid is refined until the probabilities of the three signs are known to within `tolerance`, and the means
        of the lowest and of the highest 5 % to within `tolerance` standard deviations, or until it fills
        `memory_limit` bytes or refining does not help; the law says what was reached.
        """
        if self.is_identical:
            raise ModelError(f"{self.action} is compared with itself; the gap is 0 and has no law to compute")
        if self.place is None:
            raise NotKnownError(
                "the law of this gap is not known: laws are computed for two actions under one policy, where the "
                "discount is below 1 or a horizon is given; simulate_gap and compare(policies=…) estimate the others"
            )
        scale = self._scale

        def width(law: GapLaw) -> float:
            tails = max(law.cvar(0.05).width, law.cvar(0.95).width)
            return max(law.superiority().width, law.tie().width, tails / scale)

        laws, where = self.place
        found = laws.gap_law(*where, width, _as_tolerance(tolerance), _as_bytes(memory_limit), "law")
        return replace(found, known_variance=self.variance_interval)

    def moment_bounds(
        self, support: tuple[float, float] | None = None, *, order: int | None = None
    ) -> bounds.MomentBounds:
        """What the moments alone (up to `order`) say of G, their certified errors given away on the safe side."""
        orders = range(2, 1 + (self.order if order is None else self._checked(order)))
        central = [0.0, *(self.central_moment(k) for k in orders)]
        errors = [self.mean_error, *(self._recentred_error(k) for k in orders)]
        return bounds.MomentBounds(central, support, centre=self.mean, errors=errors)

    def _recentred_error(self, k: int) -> float:
        """The error of the k-th moment about the computed mean, which is off the true one by up to `mean_error`."""
        sizes = [abs(self.central_moment(i)) + self.central_moment_error(i) for i in range(k)]
        moved = sum(math.comb(k, i) * self.mean_error ** (k - i) * sizes[i] for i in range(k))
        return self.central_moment_error(k) + moved

    def _known(
        self,
        question: str,
        of_law: Callable[[GapLaw], Interval],
        of_moments: Callable[[bounds.MomentBounds], Interval],
        if_identical: float,
        tolerance: float,
        memory_limit: int,
    ) -> Interval:
        """What the moments say and, where that is wider than `tolerance`, the law too; nothing if it does not fit."""
        tolerance, memory_limit = _as_tolerance(tolerance), _as_bytes(memory_limit)
        if self.is_identical:
            return Interval(if_identical, if_identical)
        found = of_moments(self.moment_bounds())
        if found.width <= tolerance or self.place is None or not self.place[0].fits(*self.place[1], memory_limit):
            return found
        laws, where = self.place
        law = laws.gap_law(*where, lambda law: of_law(law).width, tolerance, memory_limit, question)
        return found & of_law(law) & of_moments(self.moment_bounds(law.support))

    @property
    def _scale(self) -> float:
        """What amounts are measured in: the standard deviation, or what cannot be told from it where there is none."""
        least = self.mean_error + math.sqrt(self.variance_error) + NEGLIGIBLE * abs(self.mean)
        return max(self.std, least, sys.float_info.min)

    def replications(self, half_width: float, confidence: float = 0.95) -> ReplicationsNeeded:
        """Pairs needed for a confidence interval of the mean gap of this half width (normal approximation)."""
        return to_estimate(self.variance, self.independent_variance, half_width, confidence)

    def replications_to_select(self, probability: float = 0.95) -> ReplicationsNeeded:
        """Pairs needed for the better action to have the higher sample mean with this probability.

        Normal approximation; infinite when the two means cannot be told apart at all.
        """
        mean = self.mean if abs(self.mean) > self.mean_error else 0.0
        return to_select(mean, self.variance, self.independent_variance, probability)


def _as_tolerance(tolerance: float) -> float:
    return checks.as_positive("tolerance", tolerance)


def _as_bytes(memory_limit: int) -> int:
    return checks.as_count("memory_limit", memory_limit)
