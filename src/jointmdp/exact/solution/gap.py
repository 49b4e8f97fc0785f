"""Where the variance of a gap comes from, by step or by state, as a result to look at.

The gap between two actions of an evaluated model: moments, bounds, and the certified law behind them.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from jointmdp.exact.bounds import moment_bounds as bounds
from jointmdp.exact.law.gap_law import GapLaw, Laws, LawStatus, widest
from jointmdp.exact.law.pair_equations import MOST_STEPS, VarianceParts
from jointmdp.exact.law.pair_graph import NOTHING, GapStart, Opening
from jointmdp.ground import checks
from jointmdp.ground.answers import PlannedGap, ResultFace, upstairs, words
from jointmdp.ground.arrays import UNIT, Floats
from jointmdp.ground.errors import ConvergenceWarning, ModelError, NotKnownError
from jointmdp.ground.intervals import Interval
from jointmdp.ground.limits import DEFAULT_LIMITS, Limits, check_limits

if TYPE_CHECKING:
    from matplotlib.figure import Figure


SHOWN = 3  # parts in the text


@dataclass(frozen=True)
class VarianceSplit(ResultFace):
    """Parts that sum to the variance of a gap. ``np.asarray(split)`` is `values`."""

    gap: str
    """Which gap."""
    by: str
    """``"step"`` or ``"state"``."""
    names: tuple[str, ...] = field(repr=False)
    values: Floats = field(repr=False)
    """One part for each name. That of a state is negative where sharing takes away more than arises there."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values, dtype=dtype)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        rows = sorted(self.table(), key=lambda row: -abs(row["variance"]))[:SHOWN]
        parts = ", ".join(f"{row[self.by]} {row['share']:.0%}" for row in rows if row["variance"])
        return f"VarianceSplit({self.gap} by {self.by}: {self.total:.6g}; {parts or 'nothing'})"

    @property
    def total(self) -> float:
        """The variance of the gap."""
        return float(self.values.sum())

    def table(self) -> list[dict[str, Any]]:
        """Name, part and share of the whole: steps in order, states with the largest part first."""
        order = np.arange(len(self.values)) if self.by == "step" else np.argsort(-np.abs(self.values), kind="stable")
        whole = self.total or 1.0
        return [
            {self.by: self.names[i], "variance": float(self.values[i]), "share": float(self.values[i]) / whole}
            for i in order.tolist()
        ]

    def figure(self) -> Figure:
        """Bars: of the first steps, or of the states with the largest parts."""
        return self._drawn("variance_over_time" if self.by == "step" else "variance_over_states")


TOLERANCE = 0.01  # widths of probabilities, and of amounts in standard deviations, that are asked for by default
QUANTILE_TOLERANCE = 0.1  # a quantile is as hard to find as the law is flat there
NEGLIGIBLE = 1e-6  # a gap's variance certified below this fraction of the independent one counts as gone


class LawInterval(Interval):
    """An interval that a law gave, or moments where they were enough: certified, with how far the law was refined."""

    status: LawStatus = LawStatus.REACHED
    simulated: Interval | None = None
    """A confidence interval (95 %) of the same number, where one was asked for; it certifies nothing."""


@dataclass(frozen=True)
class Gap(ResultFace, PlannedGap):
    """``G = Z(state, action) − Z(state, other)``, of costs the other way round: positive when `action` is better."""

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
    place: tuple[Laws, GapStart] | None = field(default=None, repr=False, compare=False)
    """Where the law is to be had: the laws of the solution, the state, and what is subtracted from what, by index."""
    minimise: bool = field(default=False, repr=False)
    """Whether returns are costs; `mean` is then how much less `action` costs."""

    def __repr__(self) -> str:
        told = words(self.minimise).told(self.action, self.other, self.mean, self.std, f" in {self.state}")
        return f"Gap({told}, independent ± {self.independent_std:.6g})"

    def table(self) -> list[dict[str, Any]]:
        """One row: what the moments say; the law takes longer, and is not asked."""
        plain = ("state", "action", "other", "mean", "mean_interval", "variance", "variance_interval", "std")
        return [{name: getattr(self, name) for name in (*plain, "independent_variance", "direction")}]

    def figure(self) -> Figure:
        """The certified law: P(gap ≤ x) lies between the two curves."""
        return self._drawn("gap_law")

    @property
    def mean_interval(self) -> Interval:
        """Certified bounds of the mean."""
        return Interval(self.mean - self.mean_error, self.mean + self.mean_error)

    @property
    def variance_interval(self) -> Interval:
        """Certified bounds of the variance."""
        return Interval(
            max(0.0, self.variance - self.variance_error), self.variance + self.variance_error, self.variance
        )

    @property
    def std(self) -> float:
        """Standard deviation."""
        return math.sqrt(self.variance)

    @property
    def independent_std(self) -> float:
        """Standard deviation if the two returns were independent."""
        return math.sqrt(self.independent_variance)

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

    def superiority(
        self, *, tolerance: float = TOLERANCE, limits: Limits = DEFAULT_LIMITS, simulate: bool = False
    ) -> LawInterval:
        """P(G > 0): what the law and the moments know, refined until the width is at most `tolerance` if it can be.

        With `simulate`, the answer's `simulated` is a confidence interval of the same probability from a simulation.
        """

        def of_moments(known: bounds.MomentBounds) -> Interval:
            below = known.cdf(0.0)
            return Interval(1 - below.upper, 1 - below.lower)

        found = self._known(GapLaw.superiority, of_moments, 0.0, tolerance, limits)
        return self._beside(found, simulate, lambda sample: sample.superiority())

    def _beside(self, found: LawInterval, simulate: bool, ask: Callable[[Any], Interval]) -> LawInterval:
        """What is known, with what a simulation says where that is asked for."""
        if simulate and self.place is not None:
            laws, query = self.place
            if query not in laws.samples:
                laws.samples[query] = self._simulated(laws, query)
            found.simulated = ask(laws.samples[query])
        return found

    @staticmethod
    def _simulated(laws: Laws, query: GapStart) -> Any:
        if isinstance(query, Opening):
            raise NotKnownError("gaps in hindsight are not simulated here; simulate_hindsight does that")
        state, action, other = query
        if action == NOTHING:
            raise NotKnownError("gaps of policies are not simulated here; compare(policies=…) does that")
        simulate = upstairs("simulation.montecarlo.simulate", "simulate")
        branches = laws.branches
        how = {"horizon": laws.horizon, "gaps_only": True}
        return simulate(branches.model, branches.first, state, [action, other], **how).gap(action, other)

    def tie(
        self, *, tolerance: float = TOLERANCE, limits: Limits = DEFAULT_LIMITS, simulate: bool = False
    ) -> LawInterval:
        """P(G = 0)."""

        def of_moments(known: bounds.MomentBounds) -> Interval:
            return Interval(0.0, max(0.0, known.cdf(0.0).upper - known.cdf_left(0.0).lower))

        found = self._known(GapLaw.tie, of_moments, 1.0, tolerance, limits)
        return self._beside(found, simulate, lambda sample: sample.tie())

    def inferiority(
        self, *, tolerance: float = TOLERANCE, limits: Limits = DEFAULT_LIMITS, simulate: bool = False
    ) -> LawInterval:
        """P(G < 0)."""
        found = self._known(GapLaw.inferiority, lambda known: known.cdf_left(0.0), 0.0, tolerance, limits)
        return self._beside(found, simulate, lambda sample: sample.inferiority())

    def quantile(
        self,
        q: float,
        *,
        tolerance: float = QUANTILE_TOLERANCE,
        limits: Limits = DEFAULT_LIMITS,
        simulate: bool = False,
    ) -> LawInterval:
        """The q-quantile of G, refined until the width is at most `tolerance` standard deviations if it can be."""
        q, scale = checks.as_fraction("q", q), self._scale
        ask = (lambda law: law.quantile(q)), (lambda known: known.quantile(q))
        return self._beside(self._known(*ask, 0.0, tolerance, limits, scale), simulate, lambda each: each.quantile(q))

    def cvar(
        self, alpha: float, *, tolerance: float = TOLERANCE, limits: Limits = DEFAULT_LIMITS, simulate: bool = False
    ) -> LawInterval:
        """The mean of the lowest `alpha` fraction of G, to `tolerance` standard deviations if it can be."""
        alpha, scale = checks.as_fraction("alpha", alpha), self._scale
        ask = (lambda law: law.cvar(alpha)), (lambda known: known.cvar(alpha))
        return self._beside(self._known(*ask, 0.0, tolerance, limits, scale), simulate, lambda each: each.cvar(alpha))

    def law(self, *, tolerance: float = TOLERANCE, limits: Limits = DEFAULT_LIMITS) -> GapLaw:
        """The certified law of G.

        It is refined until the probabilities of the three signs are known to within `tolerance`, and the means of the
        lowest and of the highest 5 % to within `tolerance` standard deviations, or until a finer one would take more
        than its `limits`, or does not help; its `status` says which.
        """
        if self.is_identical:
            raise ModelError(f"{self.action} is compared with itself; the gap is 0 and has no law to compute")

        def width(law: GapLaw) -> float:
            return widest(law, self._scale)

        _check_asked(tolerance, limits)
        found = self._law(width, tolerance, limits)
        if not found.status.is_success:
            _warn(f"the law of {self.difference}", width(found), tolerance, found.status.value, self._instead)
        return replace(found, known_variance=self.variance_interval, independent_variance=self.independent_variance)

    def _law(self, width: Callable[[GapLaw], float], tolerance: float, limits: Limits) -> GapLaw:
        assert self.place is not None
        laws, query = self.place
        return laws.gap_law(query, width, tolerance, limits, self.mean_interval, self._name)

    def variance_by_step(self, *, limits: Limits = DEFAULT_LIMITS) -> VarianceSplit:
        """How much of the variance arises at each step: what that step changes in what is expected of G.

        The parts sum to the variance. Steps that are too many to be told apart are one part, *later*.
        """
        parts = self._parts(limits)[1].by_step[0]
        names = [f"step {t}" for t in range(len(parts))]
        if len(parts) > MOST_STEPS:
            names[-1] = "later"
        return VarianceSplit(self._name, "step", tuple(names), parts)

    def variance_by_state(self, *, limits: Limits = DEFAULT_LIMITS) -> VarianceSplit:
        """How much of the variance arises in each state of the model, whichever of the two branches is there.

        The parts sum to the variance. Where branches in two states share their noise, each state bears half of what
        that takes away or adds; so a part can be negative.
        """
        laws, parts = self._parts(limits)
        model = laws.branches.model
        names = tuple(model.state_label(s) for s in range(model.num_states))
        return VarianceSplit(self._name, "state", names, parts.by_state[0])

    def _parts(self, limits: Limits) -> tuple[Laws, VarianceParts]:
        check_limits(limits)
        if self.is_identical:
            raise ModelError(f"{self.action} is compared with itself; the gap is 0 and has no variance to split")
        assert self.place is not None
        laws, query = self.place
        if isinstance(query, Opening):
            raise NotKnownError(
                "the variance of a gap in hindsight is not split; evaluate(...).gap(...) splits its own"
            )
        return laws, laws.variance_parts([query], limits)

    @property
    def _instead(self) -> str:
        is_back = self.place is not None and isinstance(self.place[1], Opening)
        return "" if is_back else "; simulate(…).gap(…) estimates it, without a certificate"

    @property
    def _name(self) -> str:
        return f"{self.difference} in {self.state}"

    @property
    def difference(self) -> str:
        """What is subtracted from what, in words."""
        return checks.difference(self.action, self.other, self.minimise)

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

    def _known(  # many parameters: the question to laws and to moments, and how well it is to be answered
        self,
        of_law: Callable[[GapLaw], Interval],
        of_moments: Callable[[bounds.MomentBounds], Interval],
        if_identical: float,
        tolerance: float,
        limits: Limits,
        scale: float = 1.0,
    ) -> LawInterval:
        """What the moments say and, where that is wider than asked for, the law too; nothing if it does not fit."""
        _check_asked(tolerance, limits)
        tolerance *= scale
        if self.is_identical:
            return LawInterval(if_identical, if_identical)
        found, status, why = of_moments(self.moment_bounds()), LawStatus.REACHED, ""
        if found.width > tolerance and self.place is not None:
            try:
                law = self._law(lambda law: of_law(law).width, tolerance, limits)
                found, status = found & of_law(law) & of_moments(self.moment_bounds(law.support)), law.status
            except NotKnownError as error:
                status, why = LawStatus.LIMIT, str(error)
        answer = LawInterval(*found)
        if not status.is_success and answer.width > tolerance:
            answer.status = status
            what = f"an interval of {self.difference}"
            _warn(what, answer.width, tolerance, why or status.value, self._instead)
        return answer

    @property
    def _scale(self) -> float:
        """What amounts are measured in: the standard deviation, or what cannot be told from it where there is none."""
        least = self.mean_error + math.sqrt(self.variance_error) + NEGLIGIBLE * abs(self.mean)
        return max(self.std, least, sys.float_info.min)

    @property
    def _planned_mean(self) -> float:
        return self.mean if abs(self.mean) > self.mean_error else 0.0


def _check_asked(tolerance: float, limits: Limits) -> None:
    checks.as_positive("tolerance", tolerance)
    check_limits(limits)


def _warn(what: str, width: float, tolerance: float, why: str, instead: str) -> None:
    instead = "" if "simulate(" in why else instead
    message = f"{what} is {width:.3g} wide, {tolerance:.3g} was asked for: {why}{instead}"
    warnings.warn(message, ConvergenceWarning, stacklevel=4)
