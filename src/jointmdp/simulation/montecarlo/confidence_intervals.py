"""Confidence intervals from samples that may be skewed and full of ties.

Gaps under common random numbers are often zero and large now and then. Student's interval then covers too
rarely when the rare values lie on one side, Hall's skewness-corrected one when they are few on both sides; the
interval that holds both keeps its promise in either case (measured in `tests/test_estimates.py`) and the two agree
as samples grow. Where only a handful of samples differ from the rest, no such interval knows what it has not seen;
`unseen_interval` does, given how large an unseen value can be.
"""

import bisect
import math
from typing import Any

import numpy as np
import scipy  # its parts load on first use; special has what is behind stats, which takes half a second to load

from jointmdp.ground.arrays import Floats, Ints
from jointmdp.ground.checks import as_fraction
from jointmdp.ground.intervals import Interval

LEAST_SAMPLES = 6  # fewer say nothing of a fourth moment
FEW = 30  # differing samples below which the size of a difference is unknown
MANY = 300  # differing samples from which on the usual intervals need no help
ROUNDING = 1e-12  # of the usual value: values closer to it than this are the same
LOG_TAU = (-30.0, 60.0)  # saddle points from the middle of a sample to an error of e^(−60) at its end
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
    usual, differing = usual_and_differing(values, lowest, highest)
    if differing < FEW:
        is_rounding = np.abs(values - usual) <= ROUNDING * abs(usual)
        return unseen_interval(np.where(is_rounding, usual, values), lowest, highest, 1 - error)
    found = mean_interval(values, 1 - error)
    if differing < MANY:
        found = _join(found, unseen_interval(values, float(values.min()), float(values.max()), 1 - error))
    return found


def careful_variance(values: Floats, lowest: float, highest: float, error: float) -> Interval:
    """The variance of values that may nearly all be the same; unseen ones may reach from `lowest` to `highest`."""
    found = variance_interval(values, 1 - error)
    usual, differing = usual_and_differing(values, lowest, highest)
    if differing >= MANY:
        return found
    if differing < FEW and not math.isfinite(highest - lowest):
        return Interval(0.0, math.inf)
    # The mean square of the distance to any number is no less than the variance.
    centre = usual if differing < FEW else float(values.mean())
    squares = (values - centre) ** 2
    # Squares have longer tails than values: an unseen one may be twice the largest (`benchmarks/rare_gaps.py`).
    farthest = max(highest - centre, centre - lowest) ** 2 if differing < FEW else 2 * float(squares.max())
    above = unseen_interval(squares, 0.0, farthest, 1 - error).upper
    return Interval(0.0 if differing < FEW else found.lower, max(found.upper, above))


def sample_quantile(values: Floats, q: float) -> float:
    """The least value that a fraction `q` of the values does not exceed."""
    return float(np.partition(values, rank := _rank(len(values), q) - 1)[rank])


def sample_cvar(values: Floats, alpha: float) -> float:
    """The mean of the lowest `alpha` fraction of the values; of the last of them as much as belongs to it."""
    t = sample_quantile(values, alpha)
    return t - float(np.mean(np.maximum(t - values, 0.0))) / alpha


def _rank(n: int, q: float) -> int:
    return min(max(math.ceil(q * n * (1 - 1e-12)), 1), n)  # rounding of q·n must not lead to the next value


def quantile_interval(values: Floats, q: float, confidence: float = 0.95) -> Interval:
    """The q-quantile between two order statistics, whose ranks are quantiles of a binomial count: for every law."""
    error, ordered = 1 - as_fraction("confidence", confidence), np.sort(values)
    n, counts = len(values), range(len(values) + 1)
    low = bisect.bisect_left(counts, error / 2, key=lambda k: scipy.special.bdtr(k, n, q))
    high = bisect.bisect_left(counts, True, key=lambda k: scipy.special.bdtrc(k, n, q) <= error / 2) + 1
    lower = float(ordered[low - 1]) if low >= 1 else -math.inf
    return Interval(lower, float(ordered[high - 1]) if high <= n else math.inf)


def cvar_interval(values: Floats, alpha: float, lowest: float, highest: float, error: float) -> Interval:
    """The mean of the lowest `alpha` fraction, C = max over t of f(t) = E[t − (t−X)⁺/α], from the t̂ of the sample.

    f(t̂) is a mean like any other and at most C. It falls short of it by at most ``|t* − t̂|·|F/α − 1|``, with t* the
    quantile and F the chance of values up to t̂: a product of two small numbers, each with an interval for every law
    (of second order: Trindade, Uryasev, Shapiro and Zrazhevsky, Financial prediction with constrained tail risk,
    2007). And C is no larger than the quantile.
    """
    n, part = len(values), error / 8
    rank = min(max(math.ceil(alpha * n * (1 - 1e-12)), 1), n)
    t = float(np.sort(values)[rank - 1])

    def excess(x: Any) -> Any:
        return t - np.maximum(t - x, 0.0) / alpha

    shares, ends = excess(values), (float(excess(lowest)), float(excess(highest)))
    lower = careful_mean(shares, *ends, error).lower
    upper = careful_mean(shares, *ends, error / 2).upper
    least, most = quantile_interval(values, alpha, 1 - part)
    least, most = max(least, min(lowest, t)), min(most, max(highest, t))
    below, above = (float(scipy.special.betaincinv(rank, n - rank + 1, p)) for p in (part / 2, 1 - part / 2))
    short = max((most - t) * max(1 - below / alpha, 0.0), (t - least) * max(above / alpha - 1, 0.0))
    return Interval(lower, min(upper + short, most))


def proportion(counts: Ints, n: int, error: float) -> Interval:
    """Clopper and Pearson's interval (The use of confidence or fiducial limits, 1934), each end from its own count."""
    fewest, most = counts.tolist()
    lower = float(scipy.special.betaincinv(fewest, n - fewest + 1, error / 2)) if fewest > 0 else 0.0
    upper = float(scipy.special.betainccinv(most + 1, n - most, error / 2)) if most < n else 1.0
    return Interval(lower, upper)


def bounded_variance(values: Floats, within: Interval, error: float) -> Interval:
    """The variance of values that surely lie `within`, for every number of them.

    Maurer and Pontil, 2009, theorem 10, on both sides: |σ − σ̂| ≤ width·√(2 ln(2/δ) / (n−1)).
    """
    std = float(values.std(ddof=1))
    half = within.width * math.sqrt(2 * math.log(2 / error) / (len(values) - 1))
    return Interval(max(0.0, std - half) ** 2, min(std + half, within.width / 2) ** 2)


def bounded_cvar(values: Floats, alpha: float, within: Interval, error: float) -> Interval:
    """The mean of the lowest `alpha` fraction of values that surely lie `within`, for every number of them.

    All laws in the band of Dvoretzky, Kiefer and Wolfowitz (with Massart's constant, 1990) lie between the two that
    have ε = √(ln(2/δ) / 2n) of the mass moved to one end: Brown, Large deviations bounds for estimating CVaR, 2007.
    """
    n = len(values)
    moved = min(math.sqrt(math.log(2 / error) / (2 * n)), 1.0)
    ordered = np.concatenate([[within.lower], np.sort(values), [within.upper]])
    ends = []
    for weights in (
        np.concatenate([[moved], np.full(n, 1 / n), [0.0]]),
        np.concatenate([[0.0], np.diff(np.maximum(np.linspace(0.0, 1.0, n + 1) - moved, 0.0)), [moved]]),
    ):
        below = np.minimum(np.cumsum(weights), alpha)
        ends.append(float(np.diff(below, prepend=0.0) @ ordered) / alpha)
    return Interval(ends[0], max(ends))


def mean_within(values: Floats, within: Interval, error: float) -> Interval:
    """The mean of values that surely lie `within`, for every number of them."""
    if within.width == 0:
        return within
    scaled = np.clip((values - within.lower) / within.width, 0.0, 1.0)
    found = bounded_mean(np.stack([scaled, scaled]), error)
    return Interval(within.lower + within.width * found.lower, within.lower + within.width * found.upper)


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


def usual_and_differing(values: Floats, lowest: float, highest: float) -> tuple[float, int]:
    """The median, and how many values differ from it."""
    usual = float(np.median(values))
    # A little jitter must not make values that are nearly constant look like ones whose size is known.
    return usual, int(np.count_nonzero(np.abs(values - usual) > JITTER * (highest - lowest)))


def _most(values: Floats, counts: Ints, highest: float, error: float) -> float:
    """The level q that ``Σ Dᵢ xᵢ + D₀·highest`` exceeds with probability `error`, by Lugannani and Rice (1980).

    Uniform weights D are exponentials divided by their sum, so the sum exceeds q where ``Σ (xᵢ − q) Γᵢ > 0``, with
    Gamma variables whose shapes wᵢ count equal values and the cumulant function K(t) = −Σ wᵢ log(1 − t (xᵢ − q)). At
    the saddle point K'(t) = 0, with τ = t/(1 + t q), q is the mean of x under the weights wᵢ/(1 − τ xᵢ): so τ is
    sought, not both.
    """
    if values[0] == highest:
        return highest
    if len(values) == 1:  # one weight against all others is a Beta variable
        return float(values[0] + (highest - values[0]) * -math.expm1(math.log(error) / counts[0]))
    # Measured from the highest: values that agree with it but for rounding still have distances of their own.
    scale = highest - float(values[0])
    x, w = np.append((values - highest) / scale, 0.0), np.append(counts, 1).astype(np.float64)

    def level(tau: float) -> float:
        weights = w / (1 - tau * x)
        return float(weights @ x) / float(weights.sum())

    def excess(log_tau: float) -> float:
        tau = math.exp(log_tau)
        q = level(tau)
        height = float(w @ np.log1p(-tau * x)) - float(w.sum()) * math.log1p(-tau * q)  # −K(t) ≥ 0
        curvature = float(w @ ((x - q) / (1 - tau * x)) ** 2)  # of K, over (1 − τ q)², as t is τ/(1 − τ q)
        r, v = math.sqrt(max(2 * height, 0.0)), tau * math.sqrt(curvature)
        if r < 1e-4:
            return 0.5 - error
        density = math.exp(-r * r / 2) / math.sqrt(2 * math.pi)
        return math.erfc(r / math.sqrt(2)) / 2 + density * (1 / v - 1 / r) - error

    return highest + scale * level(math.exp(float(scipy.optimize.brentq(excess, *LOG_TAU, xtol=1e-7))))


def _critical(n: int, confidence: float) -> float:
    return float(scipy.special.stdtrit(n - 1, (1 + as_fraction("confidence", confidence)) / 2))


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
    cut = int(n / (2 * math.sqrt(n - 4)))  # of each end
    centre = float(np.sort(values)[cut : n - cut].mean())
    kurtosis = n * float(np.sum((values - centre) ** 4)) / ((n - 1) * variance) ** 2
    # Two equally likely values have kurtosis 1; rounding must not make the root imaginary.
    error = math.sqrt(max(kurtosis - (n - 3) / n, 0.0) / (n - 1))
    correction = n / (n - t)
    spread = math.exp(t * error * correction)
    return Interval(correction * variance / spread, correction * variance * spread)
