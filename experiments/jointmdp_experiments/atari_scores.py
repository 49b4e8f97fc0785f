"""How near predicted moments come to the emulator's, over all roots: ratios, R², and their intervals.

Three things are random: which roots were asked, the pairs simulated at each, and the seed of a network with what it
learned from. Roots are resampled, and with them the pairs, which are independent from root to root. Networks learn from
the recordings of all seeds but their own, so that the part of the seeds is that of a jackknife; there are few of them,
so it is Student's. Both parts of an interval add up as squares.

Monte-Carlo errors are in the simulated numbers that R² compares with, and without care R² could not reach 1 even for
the truth. So pairs are cut into two halves, and where R² has a square of a difference, that from one half is multiplied
by that from the other: what is left has no Monte-Carlo error on average.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy

from jointmdp.ground.arrays import Floats

RESAMPLED = 2000
SURE = 1.96


class Score(NamedTuple):
    """A number with a 95 % interval."""

    value: float
    lower: float
    upper: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.lower:.2f}, {self.upper:.2f}]"


def ratio(predicted: Floats, simulated: Floats) -> Score:
    """The sum of predictions ``[seeds, roots]``, or ``[roots]`` without a seed, over that of simulated numbers."""
    if not simulated.any():  # nothing happened in any simulated pair
        return Score(math.nan, math.nan, math.nan)
    of_seeds = predicted.sum(axis=-1) / simulated.sum()
    value = float(of_seeds.mean())
    picks = _picks(len(simulated))
    mean = predicted.mean(axis=0) if predicted.ndim == 2 else predicted
    sums = simulated[picks].sum(axis=1)
    spread = float(np.std(mean[picks].sum(axis=1)[sums > 0] / sums[sums > 0]))
    half = math.hypot(SURE * spread, jackknife(of_seeds) if predicted.ndim == 2 else 0.0)
    return Score(value, value - half, value + half)


def jackknife(values: Floats) -> float:
    """Half the width of the 95 % interval of a mean over values that each leave one part of the data out."""
    count = len(values)
    if count == 1:
        return math.inf
    return float(scipy.special.stdtrit(count - 1, 0.975) * math.sqrt(count - 1) * values.std())


def r_squared(predicted: Floats, halves: Floats) -> Score:
    """How much of the spread over roots is predicted by the mean over seeds; 0 for the best constant.

    Args:
        predicted: ``[seeds, roots]``.
        halves: ``[splits, 2, roots]``, simulated by two halves of the pairs, cut in several ways.

    NaN where the simulated numbers spread no more than their errors make them.
    """
    rng = np.random.default_rng(0)
    seeds = rng.integers(0, len(predicted), size=(RESAMPLED, len(predicted)))
    drawn = [
        _r_squared(predicted[some].mean(axis=0)[pick], halves[:, :, pick])
        for some, pick in zip(seeds, _picks(halves.shape[2]), strict=True)
    ]
    lower, upper = np.nanquantile(drawn, [0.025, 0.975]) if np.isfinite(drawn).any() else (math.nan, math.nan)
    return Score(_r_squared(predicted.mean(axis=0), halves), float(lower), float(upper))


def _r_squared(predicted: Floats, halves: Floats) -> float:
    off = float(np.sum(np.prod(halves - predicted, axis=1)))
    total = float(np.sum(np.prod(halves - halves.mean(axis=2, keepdims=True), axis=1)))
    return 1 - off / total if total > 0 else math.nan


def _picks(count: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, count, size=(RESAMPLED, count))
