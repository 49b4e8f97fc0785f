"""Confidence intervals from samples that may be skewed and full of ties.

Gaps under common random numbers are often zero and large now and then. Student's interval then covers too
rarely when the rare values lie on one side, Hall's skewness-corrected one when they are few on both sides; the
interval that holds both keeps its promise in either case (measured in `tests/test_estimates.py`) and the two agree
as samples grow. Where only a handful of samples differ from the rest, no such interval knows what it has not seen;
`unseen_interval` does, given how large an unseen value can be.
"""

import math
from typing import Any

import numpy as np
import scipy.optimize
import scipy.stats

from jointmdp.arrays import Floats, Ints
from jointmdp.checks import as_fraction
from jointmdp.intervals import Interval

LEAST_SAMPLES = 6  # fewer say nothing of a fourth moment
FEW = 30  # differing samples below which the size of a difference is unknown
MANY = 300  # differing samples from which on the usual intervals need no help
ROUNDING = 1e-12  # of the largest value: values closer together than this are the same
JITTER = 1e-3  # of the range: values closer together than this say nothing of how large one can be


def mean_interval(values: Floats, confidence: float = 0.95) -> Interval:
    """Confidence interval of the mean: Student's t joined with Hall (1992)'s skewness correction."""
    t = _critical(len(values), confidence)
    half = t * float(values.std(ddof=1)) / math.sqrt(len(values))
    centre = float(values.mean())
    return _join(Interval(centre - half, centre + half), _hall(values, t))


def variance_interval(values: Floats, confidence: float = 0.95) -> Interval:
    """Confidence interval of the variance: Hall's interval of squared deviations joined with Bonett (2006)'s."""
    n = len(values)
    t = _critical(n, confidence)
    if n < LEAST_SAMPLES:
        return Interval(0.0, math.inf)
    squares = (values - values.mean()) ** 2 * (n / (n - 1))
    found = _join(_hall(squares, t), _bonett(values, t))
    return Interval(max(0.0, found.lower), found.upper)


def unseen_interval(values: Floats, lowest: float, highest: float, confidence: float = 0.95) -> Interval:
    """The mean of values that all lie in [lowest, highest], when next to nothing of them has been seen yet.

    Gaffke's bound (Three test statistics for a nonparametric one-sided hypothesis on the mean of a nonnegative
    variable, 2005): the upper end is a quantile of ``Σ Dᵢ xᵢ + D₀·highest``, with the n + 1 weights D uniform on those
    that sum to 1. Where all values agree it is Clopper and Pearson's bound on the unseen mass times the largest step,
    and with many values it comes down to the central limit theorem. That it always covers is a conjecture; no law is
    known for which it does not.
    """
    error = (1 - as_fraction("confidence", confidence)) / 2
    found, counts = np.unique(values, return_counts=True)
    lower = 0.0 - _most(-found[::-1], counts[::-1], max(-lowest, -float(found[0])), error)
    return Interval(lower, _most(found, counts, max(highest, float(found[-1])), error))


def careful_mean(values: Floats, lowest: float, highest: float, error: float) -> Interval:
    """The mean of values that may nearly all be the same; unseen ones may reach from `lowest` to `highest`.

    Where fewer than 30 values differ from the rest, nothing is known of how large a difference can be, and the
    interval allows for unseen ones as large as the whole range.
    """
    if not math.isfinite(highest - lowest):
        return Interval(-math.inf, math.inf)
    usual, differing = _usual(values, lowest, highest)
    if differing < FEW:
        is_rounding = np.abs(values - usual) <= ROUNDING * max(abs(lowest), abs(highest))
        return unseen_interval(np.where(is_rounding, usual, values), lowest, highest, 1 - error)
    found = mean_interval(values, 1 - error)
    if differing < MANY:
        found = _join(found, unseen_interval(values, float(values.min()), float(values.max()), 1 - error))
    return found


def careful_variance(values: Floats, lowest: float, highest: float, error: float) -> Interval:
    """The variance of values that may nearly all be the same; unseen ones may reach from `lowest` to `highest`."""
    found = variance_interval(values, 1 - error)
    usual, differing = _usual(values, lowest, highest)
    if differing >= FEW:
        return found
    if not math.isfinite(highest - lowest):
        return Interval(0.0, math.inf)
    # The mean square of the distance to any number is no less than the variance.
    farthest = max(highest - usual, usual - lowest)
    above = unseen_interval((values - usual) ** 2, 0.0, farthest**2, 1 - error).upper
    return Interval(0.0, max(found.upper, above))


def quantile_interval(values: Floats, q: float, confidence: float = 0.95) -> Interval:
    """The q-quantile between two order statistics, whose ranks are quantiles of a binomial count: for every law."""
    error, ordered = 1 - as_fraction("confidence", confidence), np.sort(values)
    low = int(scipy.stats.binom.ppf(error / 2, len(values), q))
    high = int(scipy.stats.binom.isf(error / 2, len(values), q)) + 1
    lower = float(ordered[low - 1]) if low >= 1 else -math.inf
    return Interval(lower, float(ordered[high - 1]) if high <= len(values) else math.inf)


def cvar_interval(values: Floats, alpha: float, lowest: float, highest: float, error: float) -> Interval:
    """The mean of the lowest `alpha` fraction, max over t of E[t − (t−X)⁺/α], from the t of the sample.

    At the maximum the value is flat in t, so that what t misses by is of second order (Trindade, Uryasev, Shapiro and
    Zrazhevsky, Financial prediction with constrained tail risk, 2007); the rest is a mean like any other.
    """
    t = float(np.quantile(values, alpha, method="inverted_cdf"))

    def excess(x: Any) -> Any:
        return t - np.maximum(t - x, 0.0) / alpha

    return careful_mean(excess(values), float(excess(lowest)), float(excess(highest)), error)


def proportion(counts: Ints, n: int, error: float) -> Interval:
    """Clopper and Pearson's interval (The use of confidence or fiducial limits, 1934), each end from its own count."""
    fewest, most = counts.tolist()
    lower = float(scipy.stats.beta.ppf(error / 2, fewest, n - fewest + 1)) if fewest > 0 else 0.0
    upper = float(scipy.stats.beta.isf(error / 2, most + 1, n - most)) if most < n else 1.0
    return Interval(lower, upper)


def bounded_mean(shares: Floats, error: float) -> Interval:
    """The mean of N values in [0, 1], each known to lie between a low and a high end, ``[2, N]``.

    Maurer and Pontil, Empirical Bernstein Bounds and Sample Variance Penalization, 2009, theorem 4, on both sides:
    |E X − X̄| ≤ σ̂ √(2 ln(4/δ) / n) + 7 ln(4/δ) / (3(n−1)). The standard deviation σ̂ of the unknown values X exceeds
    that of either end by at most ‖high − low‖₂ / √(n−1): it is a seminorm.
    """
    low, high = shares
    n, log = len(low), math.log(4 / error)
    moved = float(np.linalg.norm(high - low)) / math.sqrt(n - 1)

    def half(values: Floats) -> float:
        return (float(values.std(ddof=1)) + moved) * math.sqrt(2 * log / n) + 7 * log / (3 * (n - 1))

    return Interval(max(0.0, float(low.mean()) - half(low)), min(1.0, float(high.mean()) + half(high)))


def _usual(values: Floats, lowest: float, highest: float) -> tuple[float, int]:
    """The median, and how many values differ from it."""
    usual = float(np.median(values))
    # A little jitter must not make values that are nearly constant look like ones whose size is known.
    return usual, int(np.count_nonzero(np.abs(values - usual) > JITTER * (highest - lowest)))


def _most(values: Floats, counts: Ints, highest: float, error: float) -> float:
    """The level that ``Σ Dᵢ xᵢ + D₀·highest`` exceeds with probability `error`."""
    # Measured from the highest: values that agree with it but for rounding still have distances of their own.
    points, weights = np.append(values - highest, 0.0), np.append(counts, 1)
    if points[0] == 0:
        return highest
    if len(values) == 1:  # one weight against all others is a Beta variable
        return float(values[0] + (highest - values[0]) * -math.expm1(math.log(error) / counts[0]))
    middle = float(points @ weights) / float(weights.sum())

    def excess(level: float) -> float:
        return _positive_chance(points - level, weights) - error

    return highest + float(scipy.optimize.brentq(excess, middle, 1e-9 * middle, xtol=-1e-9 * middle))


def _positive_chance(steps: Floats, weights: Ints) -> float:
    """P(Σ yᵢ Γᵢ > 0) for independent Gamma variables of shape wᵢ: Lugannani and Rice's saddle point, 1980.

    Uniform weights D are exponentials divided by their sum, so ``Σ Dᵢ xᵢ > q`` is ``Σ (xᵢ − q) Eᵢ > 0``, whose
    cumulant function is K(t) = −Σ log(1 − t yᵢ).
    """
    ends = 1 / float(steps.min()), 1 / float(steps.max())

    def slope(t: float) -> float:
        return float(np.sum(weights * steps / (1 - t * steps)))

    t = float(scipy.optimize.brentq(slope, ends[0] * (1 - 1e-12), ends[1] * (1 - 1e-12), xtol=1e-14 * ends[1]))
    height = float(np.sum(weights * np.log1p(-t * steps)))  # −K(t) ≥ 0
    curvature = float(np.sum(weights * (steps / (1 - t * steps)) ** 2))
    r, v = math.copysign(math.sqrt(max(2 * height, 0.0)), t), t * math.sqrt(curvature)
    if abs(r) < 1e-4:
        return 0.5
    return float(scipy.stats.norm.sf(r) + scipy.stats.norm.pdf(r) * (1 / v - 1 / r))


def _critical(n: int, confidence: float) -> float:
    return float(scipy.stats.t.ppf((1 + as_fraction("confidence", confidence)) / 2, n - 1))


def _join(first: Interval, second: Interval) -> Interval:
    return Interval(min(first.lower, second.lower), max(first.upper, second.upper))


def _hall(values: Floats, t: float) -> Interval:
    """Hall, On the removal of skewness by transformation, 1992: a monotone cubic of the t statistic."""
    n = len(values)
    centre, std = float(values.mean()), float(values.std(ddof=1))
    if std == 0:
        return Interval(centre, centre)
    skewness = float(np.mean(((values - centre) / std) ** 3))
    a = skewness / (3 * math.sqrt(n))
    if abs(a) < 1e-9:
        return Interval(centre - t * std / math.sqrt(n), centre + t * std / math.sqrt(n))

    def inverse(q: float) -> float:
        return (float(np.cbrt(1 + 3 * a * (q - a / 2))) - 1) / a

    scale = std / math.sqrt(n)
    return Interval(centre - scale * inverse(t), centre - scale * inverse(-t))


def _bonett(values: Floats, t: float) -> Interval:
    """Bonett, Approximate confidence interval for standard deviation of nonnormal distributions, 2006."""
    n = len(values)
    variance = float(values.var(ddof=1))
    if variance == 0:
        return Interval(variance, variance)
    centre = float(scipy.stats.trim_mean(values, 1 / (2 * math.sqrt(n - 4))))
    kurtosis = n * float(np.sum((values - centre) ** 4)) / ((n - 1) * variance) ** 2
    # Two equally likely values have kurtosis 1; rounding must not make the root imaginary.
    error = math.sqrt(max(kurtosis - (n - 3) / n, 0.0) / (n - 1))
    correction = n / (n - t)
    spread = math.exp(t * error * correction)
    return Interval(correction * variance / spread, correction * variance * spread)
