"""Cantelli's inequality (1928): what mean and variance alone say of a sign, in closed form."""

import math


def cantelli(mean: float, variance: float) -> float:
    """The largest possible P(X ≤ 0): ``σ²/(σ²+μ²)`` when μ > 0, and 1 otherwise."""
    if mean <= 0:
        return 1.0
    if variance == 0:
        return 0.0
    ratio = mean / math.sqrt(variance)  # squared below: the squares of both may be out of range
    return 1 / (1 + ratio * ratio)
