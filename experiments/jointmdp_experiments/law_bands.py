"""Beyond two moments: certified bands of the gap's law over simulated ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

import jointmdp as jm
from jointmdp.ground.arrays import Floats
from jointmdp.ground.checks import SHARING_WORDS, SHARINGS, Sharing
from jointmdp.ground.limits import Limits
from jointmdp.show.plots import style
from jointmdp_experiments.result import FigureResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STOCK, ORDER, OTHER = 4, 4, 2  # the compared decision of the inventory model
CORNER = (0, "R", "U")  # and of the gridworld: its bottom left corner
SAMPLES = 20_000
CONFIDENCE = 0.99
GRID, SHOP = "5×5 windy gridworld", "inventory"


@dataclass(frozen=True)
class Band:
    """One gap: its certified law and a simulation of it."""

    model: str
    sharing: Sharing
    gap: jm.results.Gap
    law: jm.results.GapLaw
    gaps: Floats  # [N] sorted

    @property
    def simulated(self) -> Floats:
        """The simulated distribution function at the points of the certified band."""
        return np.searchsorted(self.gaps, self.law.band[0], side="right") / len(self.gaps)

    @property
    def distance(self) -> float:
        """How far the simulated distribution function leaves the certified band at worst."""
        _, lower, upper = self.law.band
        return float(max(np.max(lower - self.simulated), np.max(self.simulated - upper), 0.0))


def bands(num_samples: int = SAMPLES) -> list[Band]:
    """One decision in each model, under the three kinds of sharing."""
    found = []
    for sharing in SHARINGS:
        for name, (model, policy), where in (
            (GRID, jm.envs.windy_gridworld(5, discount=0.95, sharing=sharing), CORNER),
            (SHOP, jm.envs.inventory(sharing=sharing), (STOCK, ORDER, OTHER)),
        ):
            gap = jm.evaluate(model, policy).gap(*where)
            state, *pair = where
            sample = jm.simulate(model, policy, state, pair, num_samples=num_samples, seed=7, gaps_only=True).gap(*pair)
            law = gap.law(tolerance=0.05, limits=Limits(seconds=None))  # the same figure on slow machines
            found.append(Band(name, sharing, gap, law, np.sort(sample.gaps)))
    return found


def run(found: list[Band]) -> FigureResult:
    """The certified band over the simulated distribution function."""
    rows = []
    for band in found:
        labels = {"model": band.model, "sharing": band.sharing, "action": band.gap.action, "other": band.gap.other}
        rows += [
            {**labels, "gap": float(x), "lower": float(low), "upper": float(high), "simulated": float(ecdf)}
            for x, low, high, ecdf in zip(*band.law.band, band.simulated, strict=True)
        ]
    size = len(found[0].gaps)
    # The band of a simulated distribution function, by Dvoretzky, Kiefer and Wolfowitz (1956) and Massart (1990).
    half_width = math.sqrt(math.log(2 / (1 - CONFIDENCE)) / (2 * size))
    statements = "\n".join(f"- {band.model}, {SHARING_WORDS[band.sharing]}: {_statement(band)}" for band in found)
    text = (
        "The distribution function of one gap in each model: certainly between the two lines, and simulated. The "
        f"shaded band holds P(gap ≤ t) whatever the simulation says. {size:,} simulated pairs know it to "
        f"± {half_width:.3f} with {CONFIDENCE:.0%} confidence, everywhere at once.\n\n"
        + statements
        + "\n\nMass at exactly 0 is two branches that became one before any reward differed."
    )
    return FigureResult("gap-laws", "The law of a gap, certified and simulated", text, rows, lambda: _draw(found))


def _statement(band: Band) -> str:
    law = band.law
    return (
        f"{band.gap.action} instead of {band.gap.other} is better with probability {_interval(law.superiority())}, "
        f"equal with {_interval(law.tie())}, worse with {_interval(law.inferiority())}; the mean of the lowest 5 % is "
        f"in {law.cvar(0.05)}; the simulation leaves the band by at most {band.distance:.4f}"
    )


def _interval(found: jm.Interval) -> str:
    return f"{found.estimate:.6f}" if found.width < 1e-6 else f"{found:.4f}"


def _draw(found: list[Band]) -> Figure:
    fig, axes = style.figure(columns=len(SHARINGS), rows=2, width=3.3, height=2.7)
    for band in found:
        ax = jm.plots.gap_law(band.law, axes[(GRID, SHOP).index(band.model)][SHARINGS.index(band.sharing)])
        ax.step(band.law.band[0], band.simulated, where="post", color="black", linestyle=":", label="simulated")
        low, high = (float(np.quantile(band.gaps, q)) for q in (0.002, 0.998))
        margin = 0.08 * (high - low)
        ax.set(xlim=(low - margin, high + margin), xlabel=f"t ({band.gap.action} − {band.gap.other})")
        ax.set_ylabel(f"{band.model}:\nP(gap ≤ t)" if band.sharing == SHARINGS[0] else "")
        ax.set_title(SHARING_WORDS[band.sharing] if band.model == GRID else "", loc="left")
        if ax is axes[0][0]:
            ax.legend(loc="upper left")
        elif legend := ax.get_legend():
            legend.remove()
    return fig
