"""Numbers from independent replicas: their mean, and how far it may be from the truth.

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
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import scipy

from jointmdp.exact.bellman.sample_backups import powers
from jointmdp.ground.answers import ResultFace
from jointmdp.ground.arrays import Floats
from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import ModelError, NotKnownError
from jointmdp.ground.intervals import Interval

CONFIDENCE = 0.95


@cache  # SciPy takes a third of a millisecond
def student_factor(count: int) -> float:
    """Half the width of Student's interval for so many replicas, in standard errors."""
    return float(scipy.special.stdtrit(count - 1, (1 + CONFIDENCE) / 2))


def unseen_chance(updates: Any) -> Floats:
    """What so many updates have not shown is rarer than this; what was never updated has its bias bound instead."""
    counts = np.asarray(updates)
    return np.where(counts > 0, -np.expm1(math.log((1 - CONFIDENCE) / 2) / np.maximum(counts, 1)), 0.0)


def unseen_change(chance: Floats, most: Floats | float, discount: float, bias_bound: Floats) -> Floats:
    """How much what has this chance in every step may change moments that are at most `most` in size.

    Together with the bias of the start it is never more than that size: of what was hardly updated nothing is known.
    """
    return np.minimum(np.minimum(chance / (1 - discount), 1.0) * 2 * most, np.maximum(most - bias_bound, 0.0))


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


@dataclass(frozen=True, eq=False)
class LearnedMoments:
    """Moments of one and two coordinates as learned; `at` gives those of given coordinates."""

    order: int
    sharing: Sharing
    mean: Replicas  # [X]
    pair: Replicas  # [K, X, X], or where `place` says

    def place(self, x: Any, y: Any) -> tuple[Any, ...]:
        """Where pairs of coordinates are held, behind the axis of the powers."""
        return x, y

    def single(self, k: int, x: Any) -> Replicas:
        """E[Z(x)ᵏ] for arrays of coordinates."""
        return self.mean[x] if k == 1 else self.pair[powers(self.order).index((k - 1, 1)), *self.place(x, x)]

    def at(self, i: int, j: int, x: Any, y: Any) -> Replicas:
        """E[Z(x)ⁱ Z(y)ʲ] for arrays of coordinates."""
        held = powers(self.order)
        if (i, j) not in held:
            raise ModelError(f"powers {i!r}, {j!r} asked for; held are i, j ≥ 1 with i + j up to {self.order}")
        found = self.pair[held.index((i, j)), *self.place(x, y)]
        if self.sharing != "none":
            return found
        # Distinct coordinates are independent: nothing has to be learned but the moments of each.
        product = self.single(i, x).times(self.single(j, y))
        same = np.asarray(x) == np.asarray(y)
        bounds = np.where(same, found.bias_bound, product.bias_bound)
        return Replicas(
            np.where(same, found.values, product.values), bounds, np.where(same, found.unseen, product.unseen)
        )

    def covariance(self, x: Any, y: Any) -> Replicas:
        """Cov(Z(x), Z(y)) for arrays of coordinates."""
        return self.at(1, 1, x, y).plus(self.mean[x].times(self.mean[y]), -1.0)

    def gap(self, action: str, other: str, x: int, y: int) -> LearnedGap:
        """The gap between two coordinates; that of a coordinate with itself is 0."""
        if x == y:
            return LearnedGap(action, other, 0.0, 0.0, 0.0, 0.0)
        means = self.mean[x].plus(self.mean[y], -1.0)
        second = self.at(1, 1, x, x).plus(self.at(1, 1, y, y))
        second = second.plus(self.at(1, 1, x, y), -1.0).plus(self.at(1, 1, y, x), -1.0)
        variance = second.plus(means.times(means), -1.0).estimate
        return LearnedGap(action, other, *means.estimate, max(0.0, variance.value), variance.error)


@dataclass(frozen=True)
class LearnedGap(ResultFace):
    """``Z(state, action) − Z(state, other)``, as learned: its first two moments, with 95 % intervals."""

    action: str
    other: str
    mean: float
    mean_error: float
    """Half the width of the interval."""
    variance: float
    variance_error: float
    """Half the width of the interval, before it is cut at 0."""

    def table(self) -> list[dict[str, Any]]:
        """One row."""
        names = ("action", "other", "mean", "mean_interval", "variance", "variance_interval")
        return [{name: getattr(self, name) for name in names}]

    @property
    def mean_interval(self) -> Interval:
        """95 % interval of the mean, with the bound on the bias of the start."""
        return Estimate(self.mean, self.mean_error).interval

    @property
    def variance_interval(self) -> Interval:
        """95 % interval of the variance, with the bound on the bias of the start."""
        lower, upper = Estimate(self.variance, self.variance_error).interval
        return Interval(max(0.0, lower), max(0.0, upper))

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
