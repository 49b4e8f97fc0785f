"""Best-possible statements about a random variable of which only two moments are known.

Each is attained by some law with that mean and variance (Cantelli 1928; for the tail mean, Rockafellar and Uryasev's
representation with the same two-point laws), so no function of two moments can say more.
"""

import math

from jointmdp.checks import as_fraction
from jointmdp.intervals import Interval


def cantelli(mean: float, variance: float) -> float:
    """The largest possible P(X ≤ 0): ``σ²/(σ²+μ²)`` when μ > 0, and 1 otherwise."""
    if mean <= 0:
        return 1.0
    if variance == 0:
        return 0.0
    ratio = mean / math.sqrt(variance)  # squared below: the squares of both may be out of range
    return 1 / (1 + ratio * ratio)


def superiority(mean: float, variance: float) -> Interval:
    """All that two moments say of P(X > 0)."""
    if mean == 0 and variance == 0:
        return Interval(0.0, 0.0)
    return Interval(1 - cantelli(mean, variance), cantelli(-mean, variance))


def quantile(mean: float, variance: float, q: float) -> Interval:
    """All that two moments say of the q-quantile."""
    q = as_fraction("q", q)
    std = math.sqrt(variance)
    return Interval(mean - std * math.sqrt((1 - q) / q), mean + std * math.sqrt(q / (1 - q)))


def cvar(mean: float, variance: float, alpha: float) -> Interval:
    """All that two moments say of the mean of the lowest `alpha` fraction."""
    alpha = as_fraction("alpha", alpha)
    return Interval(mean - math.sqrt(variance * (1 - alpha) / alpha), mean)
