"""Numbers from independent replicas: their mean, and how far it may be from the truth.

The error of a mean over replicas is the half width of Student's 95 % interval, for the noise, plus the doubt, a bound
on the bias that is left from the start. Products of estimates (in covariances, in gaps, and under ``sharing="none"``)
are formed by the jackknife: the mean of the pseudo-values is free of the bias that the noise of the factors brings, and
their spread is that of the product.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.stats

from jointmdp.arrays import Floats
from jointmdp.bellman.sample_backups import powers
from jointmdp.checks import Sharing
from jointmdp.errors import ModelError, NotKnownError
from jointmdp.intervals import Interval

CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A number and its error: half the width of a 95 % interval, with what is left of the start added."""

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
    doubt: Floats

    def __getitem__(self, place: Any) -> Replicas:
        """The same of some of the numbers."""
        where = place if isinstance(place, tuple) else (place,)
        return Replicas(self.values[(slice(None), *where)], self.doubt[where])

    @property
    def mean(self) -> Floats:
        """Means over the replicas."""
        return self.values.mean(axis=0)

    @property
    def error(self) -> Floats:
        """Half widths of 95 % intervals, doubts included; infinite for a single replica."""
        count = len(self.values)
        if count == 1:
            return np.full(self.doubt.shape, np.inf)
        return critical(count) * self.values.std(axis=0, ddof=1) / math.sqrt(count) + self.doubt

    @property
    def estimate(self) -> Estimate:
        """One number."""
        return Estimate(float(self.mean), float(self.error))

    def plus(self, other: Replicas, factor: float = 1.0) -> Replicas:
        """The sum with a multiple of other numbers of the same replicas."""
        return Replicas(self.values + factor * other.values, self.doubt + abs(factor) * other.doubt)

    def times(self, other: Replicas) -> Replicas:
        """The product of two expectations, as pseudo-values of the jackknife."""
        u, v, count = self.values, other.values, len(self.values)
        size, more = np.abs(u.mean(axis=0)), np.abs(v.mean(axis=0))
        doubt = size * other.doubt + more * self.doubt + self.doubt * other.doubt
        if count == 1:
            return Replicas(u * v, doubt)
        whole = u.mean(axis=0) * v.mean(axis=0)
        without = [(count * part.mean(axis=0) - part) / (count - 1) for part in (u, v)]
        return Replicas(count * whole - (count - 1) * without[0] * without[1], doubt)


def critical(replicas: int, confidence: float = CONFIDENCE) -> float:
    """Student's t for the mean of the replicas."""
    return float(scipy.stats.t.ppf((1 + confidence) / 2, replicas - 1))


class LearnedMoments(NamedTuple):
    """Moments of one and two coordinates as learned; `at` gives those of given coordinates."""

    order: int
    sharing: Sharing
    mean: Replicas  # [X]
    pair: Replicas  # [K, X, X]

    def single(self, k: int) -> Replicas:
        """The k-th moment of every coordinate."""
        if k == 1:
            return self.mean
        here = np.arange(len(self.mean.doubt))
        return self.pair[powers(self.order).index((k - 1, 1)), here, here]

    def at(self, i: int, j: int, x: Any, y: Any) -> Replicas:
        """E[Z(x)ⁱ Z(y)ʲ] for arrays of coordinates."""
        held = powers(self.order)
        if (i, j) not in held:
            raise ModelError(f"powers {i!r}, {j!r} asked for; held are i, j ≥ 1 with i + j up to {self.order}")
        found = self.pair[held.index((i, j)), x, y]
        if self.sharing != "none":
            return found
        # Distinct coordinates are independent: nothing has to be learned but the moments of each.
        product = self.single(i)[x].times(self.single(j)[y])
        same = np.asarray(x) == np.asarray(y)
        return Replicas(np.where(same, found.values, product.values), np.where(same, found.doubt, product.doubt))

    def covariance(self, x: Any, y: Any) -> Replicas:
        """Cov(Z(x), Z(y)) for arrays of coordinates."""
        return self.at(1, 1, x, y).plus(self.mean[x].times(self.mean[y]), -1.0)

    def largest_error(self, weight: float) -> float:
        """The largest error, in the norm ‖·‖_λ: that of order k counts over λ^{k−1}."""
        size = len(self.mean.doubt)
        x, y = np.indices((size, size))
        found = [float(np.max(self.mean.error))]
        for i, j in powers(self.order):
            found.append(float(np.max(self.at(i, j, x, y).error)) / weight ** (i + j - 1))
        return max(found)


@dataclass(frozen=True)
class LearnedGap:
    """``Z(state, action) − Z(state, other)``, as learned: its first two moments, with 95 % intervals."""

    action: str
    other: str
    mean: float
    mean_error: float
    """Half the width of the interval."""
    variance: float
    variance_error: float
    """Half the width of the interval, before it is cut at 0."""

    @property
    def mean_interval(self) -> Interval:
        """95 % interval of the mean, with what is left of the start."""
        return Interval(self.mean - self.mean_error, self.mean + self.mean_error)

    @property
    def variance_interval(self) -> Interval:
        """95 % interval of the variance, with what is left of the start."""
        return Interval(max(0.0, self.variance - self.variance_error), max(0.0, self.variance + self.variance_error))

    @property
    def std(self) -> float:
        """Standard deviation; 0 where the estimated variance is negative."""
        return math.sqrt(max(0.0, self.variance))

    def superiority(self) -> Interval:
        """Not known: only two moments were learned."""
        raise NotKnownError(f"P(better) {self._elsewhere()}")

    def tie(self) -> Interval:
        """Not known: only two moments were learned."""
        raise NotKnownError(f"P(tie) {self._elsewhere()}")

    def quantile(self, q: float) -> Interval:
        """Not known: only two moments were learned."""
        raise NotKnownError(f"the {q:g}-quantile {self._elsewhere()}")

    def cvar(self, alpha: float) -> Interval:
        """Not known: only two moments were learned."""
        raise NotKnownError(f"the mean of the lowest {alpha:.0%} {self._elsewhere()}")

    def _elsewhere(self) -> str:
        return (
            f"of {self.action} − {self.other} is not known to learned moments; gaps of evaluate(model, policy) certify "
            "it, and those of simulate_gap estimate it"
        )


def gap(labels: tuple[str, str], moments: LearnedMoments, x: int, y: int) -> LearnedGap:
    """The gap between two coordinates; that of a coordinate with itself is 0."""
    if x == y:
        return LearnedGap(*labels, 0.0, 0.0, 0.0, 0.0)
    means = moments.mean[x].plus(moments.mean[y], -1.0)
    second = moments.at(1, 1, x, x).plus(moments.at(1, 1, y, y)).plus(moments.at(1, 1, x, y), -1.0)
    second = second.plus(moments.at(1, 1, y, x), -1.0)
    variance = second.plus(means.times(means), -1.0).estimate
    return LearnedGap(*labels, *means.estimate, max(0.0, variance.value), variance.error)
