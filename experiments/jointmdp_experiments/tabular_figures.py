"""All tabular figures of the paper, in one folder; the first shows the two models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import jointmdp as jm
from jointmdp.ground.checks import SHARING_WORDS, SHARINGS
from jointmdp.show.plots import style
from jointmdp_experiments import correlations, gap_validation, law_bands, learning_curves, residuals
from jointmdp_experiments.result import FigureResult, save_all

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def results(announce: Callable[[str], None] = lambda _: None) -> Iterator[FigureResult]:
    """The experiments one after the other; `announce` is called with what comes next."""
    announce("the two models")
    yield run_diagrams()
    announce("residuals of the paper's iteration")
    yield residuals.run()
    announce("correlation matrices")
    yield correlations.run_gridworld("state")
    yield correlations.run_gridworld("time")
    yield correlations.run_chain()
    pairs = {}
    for sharing in SHARINGS:
        announce(f"simulated gaps, {SHARING_WORDS[sharing]}")
        pairs[sharing] = gap_validation.simulated_pairs(sharing)
    yield gap_validation.run(pairs)
    yield gap_validation.run_tightness(pairs)
    announce("higher moments and certified laws of the same gaps")
    yield gap_validation.run_tightness_beyond(pairs)
    announce("laws of two gaps, certified and simulated")
    yield law_bands.run(law_bands.bands())
    announce("learning the same moments from samples")
    yield learning_curves.run()


def run_diagrams(size: int = 3) -> FigureResult:
    """The paper's two diagrams: the grid with its policy and gust, one transition of the chain."""
    model, policy = jm.envs.windy_gridworld(size)
    rows = [
        {"state": model.state_label(s), "policy": model.action_label(int(np.argmax(policy[s])))}
        for s in range(model.num_states)
    ]
    text = (
        "Left: the gridworld. Arrows are the policy, right and then up. At every step one gust, with probability "
        f"{model.probabilities[0, 1]:g}, blows every branch one cell to the left after its own move; which branches "
        "feel the same gust is what `sharing` says. Every step taken from the goal pays 1.\n\n"
        "Right: one transition of the chain. Both actions lead to the same next state, and one coin pays one of them "
        "+1 and the other −1."
    )

    def draw() -> Figure:
        fig, (left, right) = style.figure(columns=2, rows=1, width=4.0, height=3.6)
        jm.plots.draw_gridworld(model, policy, size, left)
        jm.plots.draw_chain(jm.envs.coupled_reward_chain(25)[0], 0, right)
        return fig

    return FigureResult("models", "The two models", text, rows, draw)


def reproduce(folder: Path, announce: Callable[[str], None] = lambda _: None) -> list[FigureResult]:
    """Write every figure, its numbers and its text into `folder`, with one page that holds them all."""
    return save_all(folder, "The paper's tabular experiments", results(announce))
