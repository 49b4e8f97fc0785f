"""How the returns of the actions of a state go together: correlation matrices of the two models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import jointmdp as jm
from jointmdp.ground.arrays import Floats
from jointmdp.ground.checks import SHARING_WORDS, SHARINGS, Sharing
from jointmdp.show.plots import style
from jointmdp_experiments.result import FigureResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZE = 3
Tiles = dict[tuple[int, int], tuple[str, Floats]]  # row and column of a panel: its title and its matrix


def run_gridworld(sharing: Sharing) -> FigureResult:
    """The 3×3 grid of 4×4 matrices; the paper's figure for ``"state"``."""
    rival: Sharing = "time" if sharing == "state" else "state"
    model, policy = jm.envs.windy_gridworld(SIZE, sharing=sharing)
    correlation = jm.evaluate(model, policy).correlation
    other = jm.evaluate(model.with_sharing(rival), policy).correlation
    off = ~np.eye(4, dtype=bool)
    here, there = (np.nanmean(c[:, off]) for c in (correlation, other))
    text = (
        "Each tile is a state of the gridworld, drawn where it lies; its matrix shows how the returns of up, right, "
        f"down and left go together with {SHARING_WORDS[sharing]}. From the goal (top right) on nothing is random, and "
        "an action without variance has no correlation: such entries are crossed out. Two actions that the walls make "
        "the same, such as down and left in the bottom left corner, are perfectly correlated.\n\nThe mean correlation "
        f"of two different actions is {here:.2f} here and {there:.2f} with {SHARING_WORDS[rival]}; with "
        f"{SHARING_WORDS['none']} it is 0."
    )
    name = "wgw-correlation" if sharing == "state" else f"wgw-correlation-{sharing}"
    title = f"Correlation of the actions' returns in a 3×3 windy gridworld, {SHARING_WORDS[sharing]}"
    tiles: Tiles = {}
    for state in range(SIZE * SIZE):
        y, x = divmod(state, SIZE)
        goal = " (goal)" if state == SIZE * SIZE - 1 else ""
        tiles[SIZE - 1 - y, x] = (f"{model.state_label(state)}{goal}", correlation[state])
    labels = [model.action_label(a)[0].upper() for a in range(4)]
    rows = _rows(model, correlation, sharing=sharing)
    return FigureResult(name, title, text, rows, lambda: _draw(tiles, labels, digits=2))


def run_chain() -> FigureResult:
    """The chain's first state under two policies and three kinds of sharing."""
    tiles: Tiles = {}
    rows = []
    for i, (name, words) in enumerate({"uniform": "uniform policy", "one action": "one action"}.items()):
        for j, sharing in enumerate(SHARINGS):
            model, policy = jm.envs.coupled_reward_chain(25, deterministic=name == "one action", sharing=sharing)
            correlation = jm.evaluate(model, policy).correlation[:1]
            tiles[i, j] = (f"{words},\n{SHARING_WORDS[sharing]}", correlation[0])
            rows += _rows(model, correlation, policy=name, sharing=sharing)
    uniform, one = (tiles[i, SHARINGS.index("state")][1][0, 1] for i in (0, 1))
    text = (
        "The two actions of the first state are paid opposite signs of one coin, and yet their returns correlate at "
        f"{uniform:+.3f} under the uniform policy and {one:+.3f} under a policy that always takes the first action, "
        "not at −1. Only the first of 24 rewards is opposed: after it both branches stand in the same state. Under the "
        "deterministic policy they take the same action there and are one branch for ever; under the uniform one they "
        "become one with probability ½ at every step, and are opposed until then.\n\n"
        "All branches move along the chain in step, so noise shared in the same state and noise shared at the same "
        "time are the same here."
    )
    title = "Correlation in the coupled-reward chain"
    return FigureResult("crc-correlation", title, text, rows, lambda: _draw(tiles, ["1st", "2nd"], digits=3))


def _rows(model: jm.JointMDP, correlation: Floats, **labels: Any) -> list[dict[str, Any]]:
    rows = []
    for (s, a, b), value in np.ndenumerate(correlation):
        where = {"state": model.state_label(s), "action": model.action_label(a), "other": model.action_label(b)}
        rows.append({**labels, **where, "correlation": float(value)})
    return rows


def _draw(tiles: Tiles, labels: list[str], digits: int) -> Figure:
    """Matrices: dark for high correlation, the number in every cell, crossed out where there is none."""
    row, column = max(tiles)
    fig, axes = style.figure(columns=column + 1, rows=row + 1, width=2.4, height=2.3)
    for place, (title, matrix) in tiles.items():
        ax = axes[place]
        jm.plots.correlation_matrix(matrix, labels, ax, digits=digits, title=title)
    fig.colorbar(axes[0, 0].images[0], ax=np.ravel(axes).tolist(), shrink=0.7, label="correlation of returns")
    return fig
