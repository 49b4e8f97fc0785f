"""The two models of the tabular experiments, drawn: the grid with its policy and gust, one transition of the chain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jointmdp.envs.tabular_models import coupled_reward_chain, windy_gridworld
from jointmdp.experiments.result import FigureResult
from jointmdp.report import pictures, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZE = 3


def run() -> FigureResult:
    """The paper's two diagrams."""
    model, policy = windy_gridworld(SIZE)
    rows = [
        {"state": model.state_label(s), "policy": model.action_label(int(np.argmax(policy[s])))}
        for s in range(model.num_states)
    ]
    gust = model.probabilities[0, 1]
    text = (
        "Left: the gridworld. Arrows are the policy, right and then up. At every step one gust, with probability "
        f"{gust:g}, blows every branch one cell to the left after its own move; which branches feel the same gust is "
        "what `sharing` says. Every step taken from the goal pays 1.\n\n"
        "Right: one transition of the chain. Both actions lead to the same next state, and one coin pays one of them "
        "+1 and the other −1."
    )
    return FigureResult("models", "The two models", text, rows, _draw)


def _draw() -> Figure:
    fig, (left, right) = style.figure(columns=2, rows=1, width=4.0, height=3.6)
    model, policy = windy_gridworld(SIZE)
    pictures.draw_gridworld(model, policy, SIZE, left)
    pictures.draw_chain(coupled_reward_chain(25)[0], 0, right)
    return fig
