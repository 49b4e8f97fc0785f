"""Learned numbers with their errors, and the questions that every learned answer knows.

The error of a mean over replicas is the half width of Student's 95 % interval, for the noise, plus a bound on the bias
that is left from the start. Products of estimates (in covariances, in gaps, and under ``sharing="none"``) are formed by
the jackknife: the mean of the pseudo-values is free of the bias that the noise of the factors causes, and their spread
is that of the product.

Where two replicas agree, what makes them differ is rare: their spread says nothing of it, and may be 0 before the first
rare reward was seen. What N updates have not shown has a probability of at most 1 − 0.025^(1/N), and may move a moment
by all of its range in every step; the error then allows for that, too.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy

from jointmdp.ground.answers import PlannedGap, ResultFace
from jointmdp.ground.arrays import Floats
from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import NotKnownError
from jointmdp.ground.intervals import Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONFIDENCE = 0.95


@cache  # SciPy takes a third of a millisecond
def student_factor(count: int) -> float:
    """Half the width of Student's interval for so many replicas, in standard errors."""
    return float(scipy.special.stdtrit(count - 1, (1 + CONFIDENCE) / 2))


class Estimate(NamedTuple):
    """A number and its error: half the width of a 95 % interval, plus the bound on the bias of the start."""

    value: float
    error: float

    @property
    def interval(self) -> Interval:
        """The interval itself."""
        return Interval(self.value - self.error, self.value + self.error)

    def __str__(self) -> str:
        return f"{self.value:.6g} ± {self.error:.2g}"


@dataclass(frozen=True, eq=False)
class Replicas:
    """Numbers ``[R, …]`` of R independent replicas, and bounds ``[…]`` on the bias of each."""

    values: Floats
    bias_bound: Floats
    unseen: Floats | float = 0.0
    """What has not been seen yet may change them by this; it counts where two replicas agree."""

    def __getitem__(self, place: Any) -> Replicas:
        """The same of some of the numbers."""
        where = place if isinstance(place, tuple) else (place,)
        unseen = np.broadcast_to(self.unseen, self.bias_bound.shape)[where]
        return Replicas(self.values[(slice(None), *where)], self.bias_bound[where], unseen)

    @property
    def mean(self) -> Floats:
        """Means over the replicas."""
        return self.values.mean(axis=0)

    @property
    def error(self) -> Floats:
        """Half widths of 95 % intervals, bias bounds included; infinite for a single replica."""
        count = len(self.values)
        if count == 1:
            return np.full(self.bias_bound.shape, np.inf)
        nearest = np.diff(np.sort(self.values, axis=0), axis=0).min(axis=0)
        agree = nearest <= self.bias_bound
        unseen = np.where(agree, self.unseen, 0.0)
        return student_factor(count) * self.values.std(axis=0, ddof=1) / math.sqrt(count) + self.bias_bound + unseen

    @property
    def estimate(self) -> Estimate:
        """One number."""
        return Estimate(float(self.mean), float(self.error))

    def plus(self, other: Replicas, factor: float = 1.0) -> Replicas:
        """The sum with a multiple of other numbers of the same replicas."""
        size = abs(factor)
        bias_bound, unseen = self.bias_bound + size * other.bias_bound, self.unseen + size * other.unseen
        return Replicas(self.values + factor * other.values, bias_bound, unseen)

    def times(self, other: Replicas) -> Replicas:
        """The product of two expectations, as pseudo-values of the jackknife."""
        u, v, count = self.values, other.values, len(self.values)
        size, more = np.abs(u.mean(axis=0)), np.abs(v.mean(axis=0))
        bias_bound = size * other.bias_bound + more * self.bias_bound + self.bias_bound * other.bias_bound
        unseen = size * other.unseen + more * self.unseen + self.unseen * other.unseen
        if count == 1:
            return Replicas(u * v, bias_bound, unseen)
        whole = u.mean(axis=0) * v.mean(axis=0)
        without = [(count * part.mean(axis=0) - part) / (count - 1) for part in (u, v)]
        return Replicas(count * whole - (count - 1) * without[0] * without[1], bias_bound, unseen)


@dataclass(frozen=True)
class LearnedGap(ResultFace, PlannedGap):
    """``Z(state, action) − Z(state, other)``, as learned: its first two moments, with 95 % intervals."""

    action: str
    other: str
    mean: float
    mean_error: float
    """Half the width of the interval."""
    variance: float
    variance_error: float
    """Half the width of the interval, before it is cut at 0."""
    independent_variance: float = math.nan
    """Variance if the two returns were independent: the sum of their variances."""

    def __repr__(self) -> str:
        mean, variance = Estimate(self.mean, self.mean_error), Estimate(self.variance, self.variance_error)
        return f"LearnedGap({self.action} − {self.other}: mean {mean}, variance {variance}; 95 %)"

    def table(self) -> list[dict[str, Any]]:
        """One row."""
        names = ("action", "other", "mean", "mean_interval", "variance", "variance_interval", "direction")
        return [{name: getattr(self, name) for name in names}]

    @property
    def mean_interval(self) -> Interval:
        """95 % interval of the mean, with the bound on the bias of the start."""
        return Estimate(self.mean, self.mean_error).interval

    @property
    def variance_interval(self) -> Interval:
        """95 % interval of the variance, with the bound on the bias of the start."""
        lower, upper = Estimate(self.variance, self.variance_error).interval
        return Interval(max(0.0, lower), max(0.0, upper), self.variance)

    @property
    def std(self) -> float:
        """Standard deviation; 0 where the estimated variance is negative."""
        return math.sqrt(max(0.0, self.variance))

    def superiority(self) -> Interval:
        """Not known: only two moments were learned."""
        raise self._not_known("P(better)")

    def tie(self) -> Interval:
        """Not known: only two moments were learned."""
        raise self._not_known("P(tie)")

    def inferiority(self) -> Interval:
        """Not known: only two moments were learned."""
        raise self._not_known("P(worse)")

    def quantile(self, q: float) -> Interval:
        """Not known: only two moments were learned."""
        raise self._not_known(f"the {q:g}-quantile")

    def cvar(self, alpha: float) -> Interval:
        """Not known: only two moments were learned."""
        raise self._not_known(f"the mean of the lowest {alpha:.0%}")

    def _not_known(self, what: str) -> NotKnownError:
        return NotKnownError(
            f"{what} of {self.action} − {self.other} is not known to learned moments; gaps of evaluate(model, policy) "
            "certify it, and those of simulate(…) estimate it"
        )


class StateAnswers(ResultFace, ABC):
    """What every learned answer can be asked, whatever holds the moments: tables, features or networks."""

    @abstractmethod
    def _coordinate(self, state: Any, action: Any) -> tuple[Any, str]:
        """What stands for a coordinate, and its action in words; equal only for equal coordinates."""

    @abstractmethod
    def _mean(self, x: Any) -> Estimate:
        """E Z(x)."""

    @abstractmethod
    def _second_moment(self, x: Any, y: Any) -> Estimate:
        """E[Z(x) Z(y)]."""

    @abstractmethod
    def _covariance(self, x: Any, y: Any) -> Estimate:
        """Cov(Z(x), Z(y))."""

    @abstractmethod
    def _difference(self, x: Any, y: Any) -> tuple[Estimate, Estimate]:
        """Mean and variance of Z(x) − Z(y), two distinct coordinates of a state."""

    def mean_at(self, state: Any, action: Any) -> Estimate:
        """E Z(state, action)."""
        return self._mean(self._coordinate(state, action)[0])

    def second_moment_at(self, state: Any, action: Any, other: Any) -> Estimate:
        """E[Z(state, action) Z(state, other)]."""
        return self.second_moment_between(state, action, state, other)

    def covariance_at(self, state: Any, action: Any, other: Any) -> Estimate:
        """Cov(Z(state, action), Z(state, other))."""
        return self.covariance_between(state, action, state, other)

    def second_moment_between(self, s: Any, a: Any, t: Any, b: Any) -> Estimate:
        """E[Z(s, a) Z(t, b)] of any two coordinates."""
        return self._second_moment(self._coordinate(s, a)[0], self._coordinate(t, b)[0])

    def covariance_between(self, s: Any, a: Any, t: Any, b: Any) -> Estimate:
        """Cov(Z(s, a), Z(t, b)) of any two coordinates."""
        return self._covariance(self._coordinate(s, a)[0], self._coordinate(t, b)[0])

    def gap(self, state: Any, action: Any, other: Any) -> LearnedGap:
        """``Z(state, action) − Z(state, other)``: mean and variance with their errors."""
        (x, first), (y, second) = (self._coordinate(state, each) for each in (action, other))
        if x == y:
            return LearnedGap(first, second, 0.0, 0.0, 0.0, 0.0, 0.0)
        mean, variance = self._difference(x, y)
        alone = sum(max(0.0, self._covariance(each, each).value) for each in (x, y))
        return LearnedGap(first, second, *mean, max(0.0, variance.value), variance.error, alone)


@dataclass(frozen=True, eq=False, repr=False)
class RunSummary(ResultFace):
    """How an answer came about."""

    order: int
    sharing: Sharing
    replicas: int
    seed: int
    steps: int
    updates: int
    """Coordinate updates, over all replicas."""
    log: tuple[dict[str, Any], ...] = ()
    """One row per report: step, updates, seconds and the error at that time."""

    def figure(self) -> Figure:
        """How the error fell."""
        return self._drawn("learning_curve")

    def _words(self) -> str:
        return f"order {self.order}, {self.steps:,} steps, {self.replicas} replicas, {self.updates:.3g} updates"
