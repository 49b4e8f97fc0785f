"""What pairing saves: how much less the gap of two results varies for sharing their noise.

With variances u and v and the correlation r of two results, their gap varies by ``u + v − 2 r √(u v)`` under shared
noise and by ``u + v`` under separate noise. So pairing saves where r is positive, and it is r that sharing has in its
hands: where one result varies much more than the other, even r = 1 saves little. The error of r comes from its
influence function, ``a b − r (a² + b²) / 2`` at standardised results a and b, whose mean square over n is the variance
of r.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jointmdp.ground.arrays import Floats

PAIRS_NOTHING = "pairing saves nothing"
LITTLE = 0.2  # a correlation that is shown to be below this is called nothing
STANDARD_ERRORS = 2.6  # 0.5 % on one side


class Paired(NamedTuple):
    """How two results go together."""

    names: str
    correlation: float
    error: float  # standard error
    varies: float
    """The variance of their gap, as a part of what it is under separate noise."""

    @property
    def is_little(self) -> bool:
        """Whether the correlation is shown to be next to nothing, or negative."""
        return self.correlation + STANDARD_ERRORS * self.error < LITTLE

    @property
    def is_much(self) -> bool:
        """Whether it is shown to be positive."""
        return self.correlation - STANDARD_ERRORS * self.error > 0

    def __str__(self) -> str:
        error = STANDARD_ERRORS * self.error
        words = f"the results of {self.names} have a correlation of {self.correlation:.2f} ± {error:.2f}"
        return f"{words}, and their gap {self.varies:.0%} of the variance that separate noise would give it"


def paired(one: Floats, other: Floats, names: str = "") -> Paired | None:
    """How two results of the same replications go together; None where one of them does not vary."""
    u, v = np.var(one), np.var(other)
    if not (np.ptp(one) > 0 and np.ptp(other) > 0 and np.isfinite(u + v)):
        return None
    a, b = (one - one.mean()) / np.sqrt(u), (other - other.mean()) / np.sqrt(v)
    r = float(np.mean(a * b))
    error = np.sqrt(np.mean((a * b - r * (a**2 + b**2) / 2) ** 2) / len(a))
    return Paired(names, r, float(error), float(np.var(one - other) / (u + v)))


class Pairing:
    """The pairing of every result with the first, in words."""

    def __init__(self, results: Floats, labels: Sequence[str]) -> None:
        self.count = len(results)
        columns = range(1, results.shape[1]) if len(results) > 2 else ()
        found = [paired(results[:, 0], results[:, j], f"{labels[0]} and {labels[j]}") for j in columns]
        self.pairs = [pair for pair in found if pair is not None]

    @property
    def is_clear(self) -> bool:
        """Whether every pair is shown to save nothing, or something."""
        return all(pair.is_little or pair.is_much for pair in self.pairs)

    @property
    def doubt(self) -> str:
        """The worst of the pairs that save nothing; empty where none is shown to."""
        bad = [pair for pair in self.pairs if pair.is_little]
        if not bad:
            return ""
        worst = min(bad, key=lambda pair: pair.correlation)
        more = f"; so it is for {len(bad) - 1} more" if len(bad) > 1 else ""
        costs = worst.correlation + STANDARD_ERRORS * worst.error < 0
        return f"{worst} ({self.count:,} replications){more}{'; pairing costs replications here' if costs else ''}"

    @property
    def text(self) -> str:
        """What is said where nothing is wrong."""
        if not self.pairs:
            return "no two results vary"
        return f"{min(self.pairs, key=lambda pair: pair.correlation)} ({self.count:,} replications)"
