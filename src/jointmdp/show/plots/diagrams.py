"""The paper's two diagrams, drawn from the models themselves: the windy gridworld and one step of the chain.

Arrows differ in line style as well as in colour, so that the pictures can be read in grey.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from jointmdp.ground.errors import ModelError
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.policies import as_policy
from jointmdp.model.tables import StateLike
from jointmdp.show.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOVES = {"U": (0, 1), "R": (1, 0), "D": (0, -1), "L": (-1, 0)}
Point = tuple[float, float]
LABEL = style.FONT_SIZE + 1  # diagrams have few words
GOAL_COLOUR = "#CFE8DF"  # the palette's green, pale enough for black letters


def draw_gridworld(model: JointMDP, policy: ArrayLike, size: int, ax: Axes | None = None) -> Axes:
    """A windy gridworld: its cells, the goal, the gust, and an arrow for each action that the policy takes.

    Args:
        model, policy, size: as `windy_gridworld(size)` takes and returns them. Where the policy is random, the
            length of an arrow grows with the probability of its action.
        ax: where to draw; by default a figure of its own, which is ``ax.figure`` of what is returned.
    """
    chosen = as_policy(model, policy)
    if model.num_states != size * size or sorted(map(str, model.action_names or ())) != sorted(MOVES):
        raise ModelError(f"draw_gridworld needs a windy gridworld of {size}×{size} cells, not {model!r}")
    ax = _blank(ax, width=2.9, height=3.1)
    here = np.arange(model.num_states)[:, None, None]
    is_goal = (model.successors == here).all(axis=(1, 2))  # no move and no gust leads away
    for s in range(model.num_states):
        y, x = divmod(s, size)
        if is_goal[s]:
            _square(ax, x, y, GOAL_COLOUR)
            fitting = min(LABEL, 40 / size)
            ax.text(x + 0.5, y + 0.5, "goal", ha="center", va="center", weight="bold", fontsize=fitting)
            continue
        _square(ax, x, y, "white")
        for action, (dx, dy) in MOVES.items():
            share = chosen[s, model.action_index(action)]
            if share > 0:
                # Alone, an arrow is centred in its cell; several start at the centre, the unlikely ones are short.
                back, ahead = (0.3, 0.3) if share == 1 else (0.0, 0.18 + 0.26 * share)
                start = (x + 0.5 - dx * back, y + 0.5 - dy * back)
                tip = (x + 0.5 + dx * ahead, y + 0.5 + dy * ahead)
                _arrow(ax, start, tip, style.PALETTE[0], width=min(1.3, 5 / size), head=min(14, 50 / size))
    _square(ax, 0, 0, "none", side=size, width=1.6)
    chance = float(model.probabilities[0, 1])
    high = size * 1.06
    _arrow(ax, (size * 0.93, high), (size * 0.07, high), style.PALETTE[1], width=2.2, line=(0, (4, 1.5)), head=20)
    words = f"gust with probability {chance:g}:\nall branches one cell to the left"
    ax.text(size / 2, size * 1.11, words, ha="center", va="bottom", color=style.PALETTE[1], fontsize=LABEL)
    ax.set(xlim=(-0.02 * size, 1.02 * size), ylim=(-0.02 * size, 1.29 * size))
    return ax


def draw_chain(model: JointMDP, state: StateLike = 0, ax: Axes | None = None) -> Axes:
    """One step of a coupled-reward chain: both actions lead to the same state and are paid against each other.

    Args:
        model: as `coupled_reward_chain()` returns it.
        state: the state left.
        ax: where to draw; by default a figure of its own, which is ``ax.figure`` of what is returned.
    """
    s = model.state_index(state)
    successors = np.unique(model.successors[s])
    if model.rewards.shape[1:] != (2, 2) or len(successors) != 1 or successors[0] == s:
        raise ModelError(
            f"draw_chain draws two actions, two sides of a coin and one next state; {model.state_label(s)} differs"
        )
    ax = _blank(ax, width=3.4, height=1.9)
    from matplotlib.patches import Circle

    ends = {0.0: model.state_label(s), 3.2: model.state_label(int(successors[0]))}
    for x, name in ends.items():
        ax.add_patch(Circle((x, 0), 0.36, facecolor=style.PAPER, edgecolor="black", linewidth=1.2))
        ax.text(x, 0, name, ha="center", va="center", fontsize=LABEL)
    for a, (side, colour, line) in enumerate([(1, style.PALETTE[1], "-"), (-1, style.PALETTE[2], (0, (4, 1.5)))]):
        angle = 0.6 * side
        start = (0.36 * np.cos(angle), 0.36 * np.sin(angle))
        tip = (3.2 - 0.37 * np.cos(angle), 0.37 * np.sin(angle))
        _arrow(ax, start, tip, colour, width=1.8, line=line, head=14, bend=-0.3 * side)
        heads, tails = (f"{model.rewards[s, w, a]:+g}".replace("-", "−") for w in (0, 1))
        words = f"{model.action_label(a)}:  heads {heads},  tails {tails}"
        below = "bottom" if side > 0 else "top"
        ax.text(1.6, 0.78 * side, words, ha="center", va=below, color=colour, fontsize=LABEL)
    ax.text(1.6, 0, "one coin for both", ha="center", va="center", fontsize=style.SMALL, color=style.GREY)
    ax.set(xlim=(-0.5, 3.7), ylim=(-1.15, 1.15))
    return ax


def _blank(ax: Axes | None, width: float, height: float) -> Axes:
    if ax is None:
        _, ax = style.figure(width=width, height=height)
    ax.set_aspect("equal")
    ax.set_axis_off()
    return ax


def _square(ax: Axes, x: float, y: float, colour: str, side: float = 1, width: float = 0.6) -> None:
    from matplotlib.patches import Rectangle

    ax.add_patch(Rectangle((x, y), side, side, facecolor=colour, edgecolor="black", linewidth=width))


def _arrow(
    ax: Axes, start: Point, tip: Point, colour: str, *, width: float, head: float, line: Any = "-", bend: float = 0.0
) -> None:
    from matplotlib.patches import FancyArrowPatch

    shape: dict[str, Any] = {"color": colour, "connectionstyle": f"arc3,rad={bend:g}", "shrinkA": 0}
    # A dashed outline would break the head up, so the head is drawn apart from the shaft, which ends inside it.
    shaft = {"arrowstyle": "-", "linestyle": line, "linewidth": width, "capstyle": "butt", "shrinkB": head / 4}
    ax.add_patch(FancyArrowPatch(start, tip, **shaft, **shape))
    ax.add_patch(FancyArrowPatch(start, tip, arrowstyle="-|>", linewidth=0, mutation_scale=head, shrinkB=0, **shape))
