"""Beyond two moments: certified bands of the gap's law over simulated ones, and what each pair of moments buys."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from jointmdp.arrays import Floats
from jointmdp.checks import Sharing
from jointmdp.envs.tabular_models import inventory, windy_gridworld
from jointmdp.evaluation import evaluate
from jointmdp.experiments.gap_validation import Pair
from jointmdp.experiments.result import SHARINGS, WORDS, FigureResult
from jointmdp.intervals import Interval
from jointmdp.law.gap_law import GapLaw
from jointmdp.montecarlo.simulate import simulate_gap
from jointmdp.report import style
from jointmdp.solution.gap import Gap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ORDERS = (2, 4, 6, 8)
STOCK, ORDER, OTHER = 4, 4, 2  # the compared decision of the inventory model
CORNER = (0, "R", "U")  # and of the gridworld: its bottom left corner
SAMPLES = 20_000
CONFIDENCE = 0.99
NEVER = 1e-6  # gaps that are certainly positive but for this have no tightness
GRID, SHOP = "5×5 windy gridworld", "inventory"


@dataclass(frozen=True)
class Band:
    """One gap: its certified law and a simulation of it."""

    model: str
    sharing: Sharing
    gap: Gap
    law: GapLaw
    gaps: Floats  # [N] sorted

    @property
    def distance(self) -> float:
        """How far the simulated distribution function leaves the certified band at worst."""
        t, lower, upper = self.law.band
        simulated = np.searchsorted(self.gaps, t, side="right") / len(self.gaps)
        return float(max(np.max(lower - simulated), np.max(simulated - upper), 0.0))


def half_width(num_samples: int, confidence: float = CONFIDENCE) -> float:
    """Half the width of a simulated distribution function's band (Dvoretzky, Kiefer, Wolfowitz 1956; Massart 1990)."""
    return math.sqrt(math.log(2 / (1 - confidence)) / (2 * num_samples))


def bands(num_samples: int = SAMPLES) -> list[Band]:
    """One decision in each model, under the three kinds of sharing."""
    found = []
    for sharing in SHARINGS:
        for name, (model, policy), where in (
            (GRID, windy_gridworld(5, discount=0.95, sharing=sharing), CORNER),
            (SHOP, inventory(sharing=sharing), (STOCK, ORDER, OTHER)),
        ):
            gap = evaluate(model, policy).gap(*where)
            sample = simulate_gap(model, policy, *where, num_samples=num_samples, seed=7)
            found.append(Band(name, sharing, gap, gap.law(tolerance=0.05), np.sort(sample.gaps)))
    return found


def run_bands(found: list[Band]) -> FigureResult:
    """The certified band over the simulated distribution function."""
    rows = []
    for band in found:
        t, lower, upper = band.law.band
        simulated = np.searchsorted(band.gaps, t, side="right") / len(band.gaps)
        labels = {"model": band.model, "sharing": band.sharing, "action": band.gap.action, "other": band.gap.other}
        rows += [
            {**labels, "gap": float(x), "lower": float(low), "upper": float(high), "simulated": float(ecdf)}
            for x, low, high, ecdf in zip(t, lower, upper, simulated, strict=True)
        ]
    size = len(found[0].gaps)
    statements = "\n".join(f"- {band.model}, {WORDS[band.sharing]}: {_statement(band)}" for band in found)
    text = (
        "The distribution function of one gap in each model: certainly between the two lines, and simulated. The "
        f"shaded band holds P(gap ≤ t) whatever the simulation says. {size:,} simulated pairs know it to "
        f"± {half_width(size):.3f} with {CONFIDENCE:.0%} confidence, everywhere at once.\n\n"
        + statements
        + "\n\nMass at exactly 0 is two branches that became one before any reward told them apart."
    )
    return FigureResult("gap-laws", "The law of a gap, certified and simulated", text, rows, lambda: _draw_bands(found))


def _statement(band: Band) -> str:
    law = band.law
    return (
        f"{band.gap.action} instead of {band.gap.other} is better with probability {_interval(law.superiority())}, "
        f"equal with {_interval(law.tie())}, worse with {_interval(law.inferiority())}; the mean of the lowest 5 % is in "
        f"{law.cvar(0.05)}; the simulation leaves the band by at most {band.distance:.4f}"
    )


def _interval(found: Interval) -> str:
    return f"{found.middle:.6f}" if found.width < 1e-6 else f"[{found.lower:.4f}, {found.upper:.4f}]"


def _draw_bands(found: list[Band]) -> Figure:
    fig, axes = style.figure(columns=len(SHARINGS), rows=2, width=3.3, height=2.7)
    for band in found:
        ax = axes[(GRID, SHOP).index(band.model)][SHARINGS.index(band.sharing)]
        _draw_band(ax, band)
        if band.model == GRID:
            ax.set_title(WORDS[band.sharing])
        if band.sharing == SHARINGS[0]:
            ax.set_ylabel(f"{band.model}:\nP(gap ≤ t)")
        ax.set_xlabel(f"t ({band.gap.action} − {band.gap.other})")
    axes[0][0].legend(loc="upper left")
    return fig


def _draw_band(ax: Axes, band: Band) -> None:
    t, lower, upper = band.law.band
    low, high = (float(np.quantile(band.gaps, q)) for q in (0.002, 0.998))
    margin = 0.08 * (high - low)
    simulated = np.searchsorted(band.gaps, t, side="right") / len(band.gaps)
    ax.fill_between(t, lower, upper, step="post", color=style.PALETTE[1], alpha=0.35, linewidth=0, label="certified")
    for edge in (lower, upper):
        ax.step(t, edge, where="post", color=style.PALETTE[1], linewidth=0.8)
    ax.step(t, simulated, where="post", color="black", linestyle=":", label="simulated")
    ax.axvline(0, color=style.GREY, linewidth=1)
    ax.set_xlim(low - margin, high + margin)
    ax.set_ylim(-0.02, 1.02)


# -- how tight bounds on P(G ≤ 0) are --------------------------------------------------------------------------


def run_tightness(pairs: dict[Sharing, list[Pair]], size: int) -> FigureResult:
    """The paper's tightness figure for more moments, and for the law itself."""
    ratios = {sharing: _ratios(sharing, pairs[sharing], size) for sharing in SHARINGS}
    rows = [row for sharing in SHARINGS for row in ratios[sharing]]
    statements = "\n".join(f"- {WORDS[sharing]}: {_medians(ratios[sharing])}" for sharing in SHARINGS)
    text = (
        "How much of a guaranteed bound on P(G ≤ 0) the simulated frequency uses up, over all states and alternatives "
        "with a positive mean gap that are not better for certain: for the best possible bounds from 2, 4, 6 and 8 "
        "moments, and for the certified law. At 1 the bound is tight.\n\n" + statements + "\n\n"
        "Each pair of moments helps, but no number of moments sees an atom: ties put mass at exactly 0, and moments "
        "cannot tell 0 from a little less. The law can; what is left of its distance from 1 is the noise of the "
        "simulation."
    )
    return FigureResult(
        "tightness-orders", "How tight bounds get beyond two moments", text, rows, lambda: _draw_tightness(ratios)
    )


def _ratios(sharing: Sharing, pairs: list[Pair], size: int) -> list[dict[str, Any]]:
    model, policy = windy_gridworld(size, sharing=sharing)
    solution = evaluate(model, policy, order=max(ORDERS))
    signs = solution.signs(tolerance=1e-3)
    rows = []
    for pair in pairs:
        if not pair.has_luck or pair.gap.mean <= pair.gap.mean_error:
            continue
        s = model.state_index(pair.gap.state)
        a, b = model.action_index(pair.gap.action), model.action_index(pair.gap.other)
        gap = solution.gap(s, a, b)
        simulated = float(np.mean(pair.sample.gaps <= 0))
        bounds = {f"order_{order}": gap.moment_bounds(order=order).cdf(0.0).upper for order in ORDERS}
        bounds["law"] = float(1 - signs.better[0][s, a, b])
        if bounds["law"] < NEVER:
            continue  # better for certain: nothing to divide by
        rows.append(
            {
                "sharing": sharing,
                "state": gap.state,
                "action": gap.action,
                "other": gap.other,
                "simulated": simulated,
                **{f"bound_{key}": value for key, value in bounds.items()},
                **{f"ratio_{key}": simulated / value for key, value in bounds.items()},
            }
        )
    return rows


KEYS = {**{f"order_{order}": f"{order} moments" for order in ORDERS}, "law": "certified law"}


def _medians(rows: list[dict[str, Any]]) -> str:
    parts = [f"{words} {np.median([row[f'ratio_{key}'] for row in rows]):.2f}" for key, words in KEYS.items()]
    return f"{len(rows)} gaps; median ratio with {', '.join(parts)}"


def _draw_tightness(ratios: dict[Sharing, list[dict[str, Any]]]) -> Figure:
    fig, axes = style.figure(columns=3, rows=1, width=3.3, height=2.9)
    for ax, sharing in zip(np.ravel(axes), SHARINGS, strict=True):
        for i, (key, words) in enumerate(KEYS.items()):
            values = np.sort([row[f"ratio_{key}"] for row in ratios[sharing]])
            height = np.arange(len(values) + 1) / len(values)
            look = {"color": style.PALETTE[(i + 1) % len(style.PALETTE)], "linestyle": style.LINES[i % 4]}
            ax.step(np.append(0.0, values), height, where="post", label=words, **look)
        ax.axvline(1, color=style.GREY, linewidth=1)
        ax.set_xlim(0, 1.3)
        ax.set_title(WORDS[sharing])
        ax.set_xlabel("simulated P(gap ≤ 0) / guaranteed bound")
    np.ravel(axes)[0].set_ylabel("fraction of gaps at or below")
    fig.legend(*np.ravel(axes)[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(KEYS))
    return fig
