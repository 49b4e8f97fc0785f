"""Pictures of single results: the law of a gap, returns side by side, means over states, and how an error fell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jointmdp.arrays import Floats
from jointmdp.errors import ModelError
from jointmdp.intervals import Interval
from jointmdp.report import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_CURVES = 7
MOST_ROWS = 60
MOST_BARS = 20
LEAST_BAR = 5e-4  # of the whole: less cannot be seen


def draw_law(name: str, x: Floats, low: Floats, high: Floats, mean: Interval, words: str) -> Figure:
    """P(gap ≤ x) between two curves, the sign changed by a line at 0, and the mean with its interval."""
    with style.context():
        fig, ax = style.figure(width=4.6, height=2.9)
        ax.fill_between(x, low, high, step="post", color=style.PALETTE[5], alpha=0.5, linewidth=0, label=words)
        for curve in (low, high):
            ax.step(x, curve, where="post", color=style.PALETTE[1], linewidth=0.8)
        ax.axvline(0, color=style.GREY, linewidth=1)
        ax.errorbar(
            [mean.middle],
            [0.5],
            xerr=[[mean.width / 2], [mean.width / 2]],
            color=style.PALETTE[2],
            marker=style.MARKERS[1],
            linestyle="none",
            capsize=3,
            label=f"mean {mean:.4g}",
        )
        ax.set_xlabel(f"gap {name}")
        ax.set_ylabel("P(gap ≤ x)")
        ax.set_ylim(-0.02, 1.02)
        fig.legend(loc="outside upper center", ncols=2)
    return fig


def draw_returns(names: Sequence[str], returns: Floats) -> Figure:
    """P(return ≤ x) of each alternative."""
    if len(names) > MOST_CURVES:
        raise ModelError(f"{len(names)} curves cannot be told apart; draw at most {MOST_CURVES}")
    with style.context():
        fig, ax = style.figure(width=4.6, height=2.9)
        levels = np.arange(1, len(returns) + 1) / len(returns)
        for i, name in enumerate(names):
            kind = {key: value for key, value in style.line(i).items() if key != "marker"}
            ax.step(np.sort(returns[:, i]), levels, where="post", label=name, **kind)
        ax.set_xlabel(f"return, {len(returns):,} samples")
        ax.set_ylabel("P(return ≤ x)")
        fig.legend(loc="outside upper center", ncols=4)
    return fig


def draw_means(states: Sequence[str], actions: Sequence[str], means: Floats) -> Figure:
    """The mean of each action's return in each state, the best of each state marked."""
    if len(states) > MOST_ROWS:
        raise ModelError(f"{len(states):,} states do not fit in a picture; at most {MOST_ROWS} do")
    with style.context():
        width, height = max(3.2, 1.6 + 0.5 * len(actions)), 1.2 + 0.2 * len(states)
        fig, ax = style.figure(width=width, height=height)
        image = ax.imshow(means, aspect="auto", cmap="cividis")
        ax.grid(visible=False)
        best = np.nanargmax(np.where(np.isnan(means), -np.inf, means), axis=1)
        ax.plot(best, range(len(states)), linestyle="none", marker="o", color="white", markeredgecolor="black")
        ax.set_yticks(range(len(states)), states)
        ax.set_xticks(range(len(actions)), actions, rotation=90 if max(map(len, actions)) > 3 else 0)
        ax.set_title("mean return; ○ the best action", loc="left")
        fig.colorbar(image)
    return fig


def draw_errors(log: Sequence[Mapping[str, Any]]) -> Figure:
    """How the error of learning fell with the updates."""
    rows = [row for row in log if row["error"] is not None and np.isfinite(row["error"]) and row["error"] > 0]
    if not rows:
        raise ModelError("no error was reported: one replica has none, and neither has a run before its first report")
    with style.context():
        fig, ax = style.figure(width=4.2, height=2.7)
        ax.loglog([row["updates"] for row in rows], [row["error"] for row in rows], **style.line(1))
        ax.minorticks_off()
        ax.set_xlabel("updates of coordinates, all replicas")
        ax.set_ylabel("largest error")
    return fig


def draw_parts(names: Sequence[str], shares: Floats, kind: str, title: str) -> Figure:
    """Shares of a whole as bars, the first of them; what the others come to is said."""
    seen = np.flatnonzero(np.abs(shares) >= LEAST_BAR)
    count = min(MOST_BARS, int(seen[-1]) + 1 if len(seen) else 1)
    shown, rest = names[:count], float(shares[count:].sum())
    with style.context():
        fig, ax = style.figure(width=4.6, height=1.1 + 0.18 * len(shown))
        ax.barh(range(len(shown)), 100 * shares[:count], color=style.PALETTE[1])
        ax.axvline(0, color=style.GREY, linewidth=1)
        ax.set_yticks(range(len(shown)), shown)
        ax.invert_yaxis()
        ax.grid(visible=False, axis="y")
        more = f"; the other {len(names) - len(shown):,}: {rest:.1%}" if len(names) > len(shown) else ""
        ax.set_xlabel(f"% of the variance, by {kind}{more}")
        ax.set_title(title, loc="left")
    return fig
