"""A comparison as a picture: gaps to the best alternative with shared and independent noise, and who is best."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from jointmdp.checks import SHARING_WORDS
from jointmdp.report.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from jointmdp.comparing.paired_gaps import Compared, PairedGap

ROW = 0.42  # inches for one alternative


def draw(found: Compared) -> Figure:
    """Left: how much more the best alternative gives than each other one. Right: P(best)."""
    with style.context():
        height = 1.5 + ROW * len(found.alternatives)
        fig, (left, right) = style.figure(columns=2, rows=1, width=4.4, height=height)
        best, others = found.best_label, found.others
        gaps = [found.advantage(other) for other in others]
        places = list(range(len(gaps)))
        alone = [gap.half_width_unpaired for gap in gaps]
        below, above = ([abs(end - gap.mean) for gap, end in zip(gaps, ends, strict=True)] for ends in _ends(gaps))
        for shift, reach, label, i in (
            (-0.14, [below, above], f"{SHARING_WORDS[found.sharing]}, {found.replications:,} replications", 1),
            (0.14, [alone, alone], "independent noise, as many replications", 0),
        ):
            left.errorbar(
                [gap.mean for gap in gaps],
                [place + shift for place in places],
                xerr=reach,
                label=label,
                color=style.PALETTE[i],
                marker=style.MARKERS[i],
                linestyle="none",
                capsize=3,
            )
        left.axvline(0, color=style.GREY, linewidth=1)
        if found.indifference:
            left.axvspan(-found.indifference, 0, color="#DDDDDD", zorder=0, label="too little to matter")
        left.set_yticks(places, others)
        left.set_ylim(len(gaps) - 0.5, -0.5)
        words = f"less {best} costs" if found.minimise else f"more {best} gives"
        left.set_title(f"How much {words} than …", loc="left")
        left.set_xlabel(f"mean gap; all intervals hold together at {found.confidence:.0%}")
        _best(found, right)
        fig.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return fig


def _ends(gaps: list[PairedGap]) -> tuple[list[float], list[float]]:
    """Both ends; the mean where an end is not known, as a picture has no room for infinity."""
    pairs = [gap.mean_interval if math.isfinite(gap.half_width) else (gap.mean, gap.mean) for gap in gaps]
    return [lower for lower, _ in pairs], [upper for _, upper in pairs]


def _best(found: Compared, ax: Axes) -> None:
    for i, each in enumerate(found.alternatives):
        colour = style.PALETTE[1] if each.label == found.best_label else style.GREY
        ax.barh(i, each.best, color=colour, height=0.55, alpha=0.85)
        ends = [[max(0.0, each.best - each.best_interval.lower)], [max(0.0, each.best_interval.upper - each.best)]]
        ax.errorbar([each.best], [i], xerr=ends, color="black", capsize=3, linewidth=1)
        ax.text(min(each.best_interval.upper, 1.0) + 0.02, i, f"{each.best:.3f}", va="center", fontsize=style.SMALL)
    ax.set_yticks(range(len(found.alternatives)), list(found.labels))
    ax.set_ylim(len(found.alternatives) - 0.5, -0.5)
    ax.set_xlim(0, 1.2)
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1])
    ax.set_title(f"How often each has the {'lowest cost' if found.minimise else 'highest return'}", loc="left")
    ax.set_xlabel(f"P(best), from {found.replications:,} replications; equal firsts share")
