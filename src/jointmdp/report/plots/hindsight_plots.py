"""Pictures of hindsight: what was seen, where another branch would have gone, and the gap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from jointmdp.arrays import Floats, Ints
from jointmdp.report.plots import style
from jointmdp.report.plots.style import axes_or_own, in_our_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEAST = 0.005  # probability of a state at some time from which it is shown
MOST_STATES = 30
MOST_LABELS = 12


def _shown(path: Floats, seen: Ints) -> Ints:
    """States that were seen or would have been likely, in the order of their numbers."""
    known = np.unique(seen[seen >= 0])
    likely = path.max(axis=0)
    rest = np.setdiff1d(np.flatnonzero(likely > LEAST), known)
    room = max(MOST_STATES - len(known), 0)
    return np.sort(np.concatenate([known, rest[np.argsort(-likely[rest])][:room]]))


@in_our_style
def hindsight_path(found: Any, ax: Axes | None = None) -> Axes:
    """The seen path, and how likely the other branch would have been in each state at each time.

    Args:
        found: of `jointmdp.hindsight(…)`.
        ax: where to draw.
    """
    seen = found.question.seen.states
    states = _shown(found.path, seen)
    times = found.start + np.arange(len(seen))
    ax = axes_or_own(ax, max(4.6, min(0.45 * len(seen) + 2, 9)), max(2.6, min(0.22 * len(states) + 1.2, 6)))
    image = ax.imshow(
        found.path[:, states].T,
        cmap="Blues",
        vmin=0,
        vmax=1,
        aspect="auto",
        origin="lower",
        extent=(times[0] - 0.5, times[-1] + 0.5, -0.5, len(states) - 0.5),
    )
    rows = np.where(seen >= 0, np.searchsorted(states, np.maximum(seen, 0)), -1).astype(float)
    rows[seen < 0] = np.nan
    ax.plot(times, rows, color=style.PALETTE[2], marker=style.MARKERS[0], label="seen")
    bar = ax.figure.colorbar(image, ax=ax, fraction=0.05)
    bar.set_label(f"P(other is there): {found.question.words}")
    ax.set_xlabel("step")
    ax.set_ylabel("state")
    every = max(1, -(-len(states) // MOST_LABELS))
    places = np.arange(0, len(states), every)
    ax.set_yticks(places, [found.model.state_label(int(s)) for s in states[places]])
    ax.locator_params(axis="x", integer=True)
    ax.grid(visible=False)
    ax.legend(loc="best", frameon=True)
    ax.set_title(
        f"{found.question.words} instead of {found.gap.other}: {found.gap.mean:+.4g} ± {found.gap.std:.3g}", loc="left"
    )
    return ax


@in_our_style
def hindsight_starts(found: Any, ax: Axes | None = None) -> Axes:
    """The gap for each step at which the branches could have parted: mean, and one standard deviation.

    Args:
        found: of `jointmdp.hindsight(…, start="each")`.
        ax: where to draw.
    """
    ax = axes_or_own(ax, 4.6, 2.8)
    starts = [each.start for each in found]
    spread = np.sqrt(found.variance)
    ax.axhline(0, color=style.GREY, linewidth=1)
    ax.errorbar(starts, found.mean, yerr=spread, capsize=3, **style.line(1), label="mean ± standard deviation")
    ax.set_xlabel("step of the switch")
    ax.set_ylabel("gap to what was seen")
    ax.locator_params(axis="x", integer=True)
    ax.legend(loc="best")
    ax.set_title(f"{found[0].question.words} instead, on the same noise", loc="left")
    return ax
