"""The table of the Atari experiment: predicted moments beside the emulator's, for every game, variant and network."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jointmdp.ground.arrays import Floats
from jointmdp_experiments.atari_coins import VARIANTS, Coins
from jointmdp_experiments.atari_pairs import PairPaths
from jointmdp_experiments.atari_runs import ROWS, GameResult, Prediction
from jointmdp_experiments.atari_scores import Score, r_squared, ratio

SPLITS = 20  # ways to cut the pairs into halves


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
