"""How many simulated pairs it takes, with the noise shared as the model says and with independent noise."""

import math
from statistics import NormalDist
from typing import NamedTuple

from jointmdp import checks
from jointmdp.errors import ModelError


class ReplicationsNeeded(NamedTuple):
    """Pairs needed when branches share their noise as the model says, and when they do not."""

    paired: float  # a whole number, or infinity
    unpaired: float

    @property
    def saved(self) -> float:
        """How many times fewer replications sharing needs."""
        return self.unpaired / self.paired


def to_estimate(variance: float, independent: float, half_width: float, confidence: float) -> ReplicationsNeeded:
    """Pairs for a confidence interval of the mean gap of this half width (normal approximation)."""
    z = NormalDist().inv_cdf((1 + checks.as_fraction("confidence", confidence)) / 2)
    return _counts(z / checks.as_positive("half_width", half_width), variance, independent)


def to_select(mean: float, variance: float, independent: float, probability: float) -> ReplicationsNeeded:
    """Pairs for the better of two to have the higher sample mean with this probability (normal approximation)."""
    probability = checks.as_fraction("probability", probability)
    if probability <= 0.5:
        raise ModelError(f"probability is {probability:g}; tossing a coin selects correctly with 0.5")
    if mean == 0:
        return ReplicationsNeeded(math.inf, math.inf)
    return _counts(NormalDist().inv_cdf(probability) / mean, variance, independent)


def _counts(per_std: float, *variances: float) -> ReplicationsNeeded:
    roots = (per_std * math.sqrt(variance) for variance in variances)
    counts = [root * root for root in roots]
    return ReplicationsNeeded(*(max(1, math.ceil(count)) if math.isfinite(count) else count for count in counts))
