"""Confidence intervals from samples that may be skewed and full of ties.

Gaps under shared luck are often zero most of the time and large now and then. Student's interval then covers too
rarely when the rare values lie on one side, Hall's skewness-corrected one when they are few on both sides; the
interval that holds both keeps its promise in either case (measured in `tests/test_estimates.py`) and the two agree
as samples grow.
"""

import math

import numpy as np
import scipy.stats

from jointmdp.checks import Floats, as_fraction
from jointmdp.intervals import Interval

LEAST_SAMPLES = 6  # fewer say nothing of a fourth moment
METHOD = "Student t joined with Hall's skewness-corrected t; variance: Hall on squared deviations joined with Bonett"


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
