"""How the returns of the actions of a state go together: correlation matrices of the two models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from jointmdp.arrays import Floats
from jointmdp.checks import Sharing
from jointmdp.envs.tabular_models import coupled_reward_chain, windy_gridworld
from jointmdp.evaluation import evaluate
from jointmdp.experiments.result import SHARINGS, WORDS, FigureResult
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.report import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = 3


def run_gridworld(sharing: Sharing) -> FigureResult:
    """The 3×3 grid of 4×4 matrices; the paper's figure for ``"state"``."""
    rival: Sharing = "time" if sharing == "state" else "state"
    model, policy = windy_gridworld(SIZE, sharing=sharing)
    correlation = evaluate(model, policy).correlation
    other = evaluate(model.with_sharing(rival), policy).correlation
    off = ~np.eye(4, dtype=bool)
    here, there = (np.nanmean(c[:, off]) for c in (correlation, other))
    text = (
        "Each tile is a state of the gridworld, drawn where it lies; its matrix shows how the returns of up, right, "
        f"down and left go together with {WORDS[sharing]}. The goal (top right) has no luck left, and an action "
        "without variance has no correlation: such entries are crossed out. Two actions that the walls make the same, "
        "such as down and left in the bottom left corner, are perfectly correlated.\n\nThe mean correlation of two "
        f"different actions is {here:.2f} here and {there:.2f} with {WORDS[rival]}; with {WORDS['none']} it is 0."
    )
    name = "wgw-correlation" if sharing == "state" else f"wgw-correlation-{sharing}"
    return FigureResult(
        name,
        f"Correlation of the actions' returns in a 3×3 windy gridworld, {WORDS[sharing]}",
        text,
        _rows(model, correlation, sharing=sharing),
        lambda: _draw_grid(correlation, model),
    )


def run_chain() -> FigureResult:
    """The chain's first state under two policies and three kinds of sharing."""
    found, rows = {}, []
    for deterministic in (False, True):
        for sharing in SHARINGS:
            model, policy = coupled_reward_chain(25, deterministic=deterministic, sharing=sharing)
            found[deterministic, sharing] = correlation = evaluate(model, policy).correlation[:1]
            rows += _rows(model, correlation, policy="one action" if deterministic else "uniform", sharing=sharing)
    uniform, one = (found[deterministic, "state"][0, 0, 1] for deterministic in (False, True))
    text = (
        "The two actions of the first state are paid opposite signs of one coin, and yet their returns correlate at "
        f"{uniform:+.3f} under the uniform policy and {one:+.3f} under a policy that always takes the first action, "
        "not at −1. Only the first of 24 rewards is opposed: after it both branches stand in the same state. Under the "
        "deterministic policy they take the same action there and are one branch for ever; under the uniform one they "
        "become one with probability ½ at every step, and are opposed until then.\n\n"
        "All branches move along the chain in step, so luck shared in the same state and luck shared at all times are "
        "the same here."
    )
    return FigureResult(
        "crc-correlation", "Correlation in the coupled-reward chain", text, rows, lambda: _draw_chain(found)
    )


def _rows(model: JointMDP, correlation: Floats, **labels: Any) -> list[dict[str, Any]]:
    return [
        {
            **labels,
            "state": model.state_label(s),
            "action": model.action_label(a),
            "other": model.action_label(b),
            "correlation": float(correlation[s, a, b]),
        }
        for s in range(len(correlation))
        for a in range(model.num_actions)
        for b in range(model.num_actions)
    ]


def _tile(ax: Axes, matrix: Floats, labels: list[str], digits: int, size: float) -> Any:
    """One matrix: dark for high correlation, the number in every cell, crossed out where there is none."""
    image = ax.imshow(matrix, vmin=-1, vmax=1, cmap="PuOr_r")
    for (i, j), value in np.ndenumerate(matrix):
        if np.isnan(value):
            ax.text(j, i, "×", ha="center", va="center", color="0.6", fontsize=size)
        else:
            color = "white" if abs(value) > 0.7 else "black"
            ax.text(j, i, f"{value:.{digits}f}", ha="center", va="center", fontsize=size, color=color)
    ax.set_xticks(range(len(labels)), labels)
    ax.set_yticks(range(len(labels)), labels)
    ax.tick_params(length=0)
    ax.grid(False)
    return image


def _draw_grid(correlation: Floats, model: JointMDP) -> Figure:
    fig, axes = style.figure(columns=SIZE, rows=SIZE, width=2.4, height=2.3)
    labels = [model.action_label(a)[0].upper() for a in range(4)]
    for state in range(SIZE * SIZE):
        y, x = divmod(state, SIZE)
        ax = axes[SIZE - 1 - y][x]
        image = _tile(ax, correlation[state], labels, digits=2, size=8)
        ax.set_title(f"{model.state_label(state)}{' (goal)' if state == SIZE * SIZE - 1 else ''}", fontsize=9)
    fig.colorbar(image, ax=np.ravel(axes).tolist(), shrink=0.7, label="correlation of returns")
    return fig


def _draw_chain(found: dict[tuple[bool, Sharing], Floats]) -> Figure:
    fig, axes = style.figure(columns=3, rows=2, width=2.4, height=2.3)
    for row, deterministic in enumerate((False, True)):
        for column, sharing in enumerate(SHARINGS):
            ax = axes[row][column]
            image = _tile(ax, found[deterministic, sharing][0], ["1st", "2nd"], digits=3, size=11)
            ax.set_title(f"{'one action' if deterministic else 'uniform policy'},\n{WORDS[sharing]}", fontsize=9)
    fig.colorbar(image, ax=np.ravel(axes).tolist(), shrink=0.7, label="correlation of returns")
    return fig
