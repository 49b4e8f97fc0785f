"""Confidence intervals from samples that may be skewed and full of ties.

Gaps under common random numbers are often zero and large now and then. Student's interval then covers too
rarely when the rare values lie on one side, Hall's skewness-corrected one when they are few on both sides; the
interval that holds both keeps its promise in either case (measured in `tests/test_estimates.py`) and the two agree
as samples grow.

**What has not been seen.** An event of probability p is missing from all of n samples with probability (1 − p)ⁿ: one
that happens at least once in 1/(1 − 0.05^(1/n)), about n/3, is seen with 95 % (`unseen_rate`). Of rarer ones a sample
says nothing, and no interval from samples alone can allow for all of them (Bahadur and Savage, The nonexistence of
certain statistical procedures in nonparametric problems, 1956). So every interval of a mean, a variance or a tail here
rests on a rule for them, by `Tails`:

- ``"any"``, the default: there may be one more kind of value, as rare as that, and twice as far from the median as the
  farthest one seen (its square, for variances, twice the largest). Gaffke's bound, `unseen_interval`, counts it in. It
  is no switch: the more samples, the rarer the event and the less it costs, in width 27 % with 200 normal samples, 13 %
  with 1,000 and 4 % with 10,000. Where fewer than 30 samples differ from the rest, even that is not known; then the
  unseen value may be as large as the whole range that the caller knows.
- ``"light"``: the samples show all there is, as those of normal noise do. The central limit theorem alone.

What is rarer or larger is what an interval holds "unless" (`caveat`). `benchmarks/coverage.py` measures both.
"""

import bisect
import math
from typing import Literal

import numpy as np
import scipy  # its parts load on first use; special has what is behind stats, which takes half a second to load

from jointmdp.ground.arrays import Floats, Ints
from jointmdp.ground.checks import as_fraction
from jointmdp.ground.intervals import Interval

LEAST_SAMPLES = 6  # fewer say nothing of a fourth moment
FEW = 30  # differing samples below which the size of a difference is unknown
ROUNDING = 1e-12  # of the usual value: values closer to it than this are the same
LOG_TAU = (-30.0, 60.0)  # saddle points from the middle of a sample to an error of e^(−60) at its end
FEW_IN_TAIL = 10  # values below a quantile that say little of how far below it one can be
FARTHER = 2.0  # an unseen value may be this many times as far from the median as the farthest one seen
JITTER = 1e-3  # of the range: values closer together than this say nothing of how large one can be

Tails = Literal["any", "light"]


def unseen_rate(n: int, confidence: float = 0.95) -> float:
    """The probability p of an event that n samples all miss with probability 1 − `confidence`: (1 − p)ⁿ = 0.05."""
    return -math.expm1(math.log1p(-confidence) / n)


def caveat(n: int) -> str:
    """What n samples cannot say, in words that follow an interval."""
    return f"unless events rarer than 1 in {math.floor(1 / unseen_rate(n)):,} matter"


def mean_interval(values: Floats, confidence: float = 0.95) -> Interval:
    """Confidence interval of the mean: Student's t joined with Hall (1992)'s skewness correction."""
    t = _critical(len(values), confidence)
    half = t * float(values.std(ddof=1)) / math.sqrt(len(values))
    centre = float(values.mean())
    return _join(Interval(centre - half, centre + half), _hall(values, t))


def variance_interval(values: Floats, confidence: float = 0.95) -> Interval:
    """Confidence interval of the variance: Hall's interval of squared deviations joined with Bonett's.

    Bonett, Approximate confidence interval for standard deviation of nonnormal distributions, 2006.
    """
    n = len(values)
    t = _critical(n, confidence)
    if n < LEAST_SAMPLES:
        return Interval(0.0, math.inf)
    squares = (values - values.mean()) ** 2 * (n / (n - 1))
    found, variance = _hall(squares, t), float(values.var(ddof=1))
    bonett = Interval(variance, variance)
    if variance > 0:
        cut = int(n / (2 * math.sqrt(n - 4)))  # of each end
        centre = float(np.sort(values)[cut : n - cut].mean())
        kurtosis = n * float(np.sum((values - centre) ** 4)) / ((n - 1) * variance) ** 2
        # Two equally likely values have kurtosis 1; rounding must not make the root imaginary.
        error = math.sqrt(max(kurtosis - (n - 3) / n, 0.0) / (n - 1))
        correction = n / (n - t)
        spread = math.exp(t * error * correction)
        bonett = Interval(correction * variance / spread, correction * variance * spread)
    found = _join(found, bonett)
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


def careful_mean(values: Floats, lowest: float, highest: float, error: float, tails: Tails = "any") -> Interval:
    """The mean of values that may nearly all be the same, or of which the rarest may not have been seen.

    Where fewer than 30 values differ from the rest, nothing is known of how large a difference can be, and the
    interval allows for unseen ones from `lowest` to `highest`.
    """
    if not math.isfinite(highest - lowest):
        return Interval(-math.inf, math.inf)
    usual, differing = usual_and_differing(values, lowest, highest)
    if differing < FEW:
        is_rounding = np.abs(values - usual) <= ROUNDING * abs(usual)
        return unseen_interval(np.where(is_rounding, usual, values), lowest, highest, 1 - error)
    found = mean_interval(values, 1 - error)
    if tails == "light":
        return found
    return _join(found, unseen_interval(values, *_farther(values, usual, FARTHER), 1 - error))


def careful_variance(values: Floats, lowest: float, highest: float, error: float, tails: Tails = "any") -> Interval:
    """The variance of such values."""
    found = variance_interval(values, 1 - error)
    usual, differing = usual_and_differing(values, lowest, highest)
    if tails == "light" and differing >= FEW:
        return found
    if differing < FEW and not math.isfinite(highest - lowest):
        return Interval(0.0, math.inf)
    # The mean square of the distance to any number is no less than the variance.
    centre = usual if differing < FEW else float(values.mean())
    squares = (values - centre) ** 2
    farthest = max(highest - centre, centre - lowest) ** 2 if differing < FEW else FARTHER * float(squares.max())
    above = unseen_interval(squares, 0.0, farthest, 1 - error).upper
    return Interval(0.0 if differing < FEW else found.lower, max(found.upper, above))


def _farther(values: Floats, usual: float, factor: float) -> tuple[float, float]:
    """The range of values and more, from the usual one on either side."""
    return usual - factor * (usual - float(values.min())), usual + factor * (float(values.max()) - usual)


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


def cvar_interval(
    values: Floats, alpha: float, lowest: float, highest: float, error: float, tails: Tails = "any"
) -> Interval:
    """The mean of the lowest `alpha` fraction, C = max over t of f(t) = E[t − (t−X)⁺/α], from the t̂ of the sample.

    The sample's own maximum is the mean of t̂ − (t̂−X)⁺/α, whose spread is that of the estimate to first order (Trindade,
    Uryasev, Shapiro and Zrazhevsky, Financial prediction with constrained tail risk, 2007). Its lower end allows for an
    unseen value twice as far below t̂ as the farthest one seen (below the median, where fewer than 10 values make the
    tail), by Gaffke's bound. Its upper end is Student's for as many values as make the tail, and no larger than that of
    the quantile, which C never exceeds.
    """
    # Values of any size count, unlike those of a mean: the tail of a small noise is small; the caveat has the rest.
    n, usual, differing = len(values), *usual_and_differing(values, 0.0, 0.0)
    rank, t = _rank(n, alpha), sample_quantile(values, alpha)
    if differing >= FEW:
        centre = t if rank >= FEW_IN_TAIL else usual
        lowest, highest = _farther(values, centre, FARTHER if tails == "any" else 1.0)
    most = min(quantile_interval(values, alpha, 1 - error).upper, max(highest, t))
    if not math.isfinite(lowest):
        return Interval(lowest, most)
    shares = t - np.maximum(t - values, 0.0) / alpha
    spread = float(shares.std(ddof=1)) / math.sqrt(n)
    unseen = unseen_interval(shares, t - max(t - lowest, 0.0) / alpha, t, 1 - error)
    lower = min(unseen.lower, float(shares.mean()) - _critical(n, 1 - error) * spread)
    if np.ptp(shares) > 0:  # otherwise all values of the tail are the same, and there may be one
        most = min(most, max(unseen.upper, float(shares.mean()) + _critical(rank, 1 - error) * spread))
    return Interval(max(lower, min(lowest, t)), most)


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
    low = np.concatenate([[moved], np.full(n, 1 / n), [0.0]])
    high = np.concatenate([[0.0], np.diff(np.maximum(np.linspace(0.0, 1.0, n + 1) - moved, 0.0)), [moved]])
    below = [np.minimum(np.cumsum(weights), alpha) for weights in (low, high)]
    ends = [float(np.diff(each, prepend=0.0) @ ordered) / alpha for each in below]
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

    # Where all values are ordinary ones the central limit theorem says τ; from there the ends move until they differ.
    total, mean = float(w.sum()), level(0.0)
    usual = float(scipy.special.ndtri(1 - error)) / math.sqrt(total * max(float(w @ (x - mean) ** 2) / total, 1e-300))
    ends = [math.log(min(max(usual, 1e-290), 1e290)) + step for step in (-1.0, 1.0)]
    while excess(ends[0]) < 0 and ends[0] > LOG_TAU[0]:
        ends = [ends[0] - 3, ends[0]]
    while excess(ends[1]) > 0 and ends[1] < LOG_TAU[1]:
        ends = [ends[1], ends[1] + 3]
    return highest + scale * level(math.exp(float(scipy.optimize.brentq(excess, *ends, xtol=1e-7))))


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
