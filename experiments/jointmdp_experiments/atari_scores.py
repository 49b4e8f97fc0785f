"""The table of the Atari experiment: how near predicted moments come to the emulator's, for every game and variant.

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
from typing import Any, NamedTuple

import numpy as np
import scipy

from jointmdp.ground.arrays import Floats
from jointmdp_experiments.atari_coins import VARIANTS, Coins
from jointmdp_experiments.atari_pairs import PairPaths
from jointmdp_experiments.atari_runs import ROWS, GameResult, Prediction

RESAMPLED = 2000
SURE = 1.96
SPLITS = 20  # ways to cut the pairs into halves


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


class Truth(NamedTuple):
    """What the emulator's pairs say at each root, with half widths of 95 % intervals."""

    mean: Floats  # [roots]
    mean_error: Floats
    gap: Floats  # variances of gaps
    own: Floats  # the emulator's own part of them
    own_error: Floats
    coins: Floats  # the coins' part of them
    marginal: Floats  # sums of the variances of both returns
    mean_halves: Floats  # [splits, 2, roots], by halves of the pairs
    own_halves: Floats

    @classmethod
    def of(cls, paths: list[PairPaths], coins: Coins) -> Truth:
        """All roots of a game, in a variant."""
        mean, own = ([getattr(each, name)(coins) for each in paths] for name in ("gap_mean", "own_gap_variance"))
        gap = np.array([each.gap_variance(coins).value for each in paths])
        added = np.array([each.coin_variances(coins)[0].mean() for each in paths])
        marginal = np.array([sum(one.value for one in each.variances(coins)) for each in paths])
        (m, m_error), (v, v_error) = np.array(mean).T, np.array(own).T
        halves = [each.halved(SPLITS) for each in paths]
        by_halves = [
            np.array([[[getattr(half, name)(coins).value for half in cut] for cut in cuts] for cuts in halves])
            for name in ("gap_mean", "own_gap_variance")
        ]
        return cls(m, m_error, gap, v, v_error, added, marginal, *(each.transpose(1, 2, 0) for each in by_halves))


class PredictedGaps(NamedTuple):
    """What networks of several seeds predict of gaps and of independent returns at each root, ``[seeds, roots]``."""

    mean: Floats
    gap: Floats
    independent: Floats

    @classmethod
    def of(cls, predictions: list[Prediction]) -> PredictedGaps:
        """Of networks that differ in their seed."""
        means, both = (np.array([getattr(each, name) for each in predictions]) for name in ("means", "covariances"))
        independent = np.einsum("srii->sr", both)
        gap = independent - 2 * both[:, :, 0, 1]
        return cls(means[:, :, 0] - means[:, :, 1], gap, independent)


def rows_of(result: GameResult) -> list[dict[str, Any]]:
    """One row for each variant and kind of network, scores as numbers with the ends of their intervals."""
    found = []
    for variant, coins in VARIANTS.items():
        truth = Truth.of(result.paths, coins)
        for row in ROWS:
            chosen = [each for each in result.predictions if (each.task.variant, each.task.row) == (variant, row)]
            if chosen:  # not every kind of network is trained everywhere
                found.append(
                    {
                        "game": result.game,
                        "variant": variant,
                        "network": row,
                        **_scores(PredictedGaps.of(chosen), truth),
                    }
                )
    return found


def _scores(gaps: PredictedGaps, truth: Truth) -> dict[str, Any]:
    scores = {
        "coupled": ratio(gaps.gap, truth.gap),
        "marginal": ratio(gaps.independent, truth.marginal),
        "independent": ratio(gaps.independent, truth.gap),
        "independent_simulated": ratio(truth.marginal, truth.gap),
        "mean_r_squared": r_squared(gaps.mean, truth.mean_halves),
        "own_variance_r_squared": r_squared(gaps.gap - truth.coins, truth.own_halves),
    }
    return {
        name + suffix: value
        for name, score in scores.items()
        for suffix, value in zip(("", "_lower", "_upper"), score, strict=True)
    }


def score(row: dict[str, Any], name: str) -> Score:
    """A score of a row."""
    return Score(row[name], row[f"{name}_lower"], row[f"{name}_upper"])
