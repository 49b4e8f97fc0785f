"""Computed against simulated gaps of the policy's action over every alternative, and how tight bounds on them are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

import jointmdp as jm
from jointmdp.ground.checks import SHARING_WORDS, SHARINGS, Sharing
from jointmdp.show.plots import style
from jointmdp_experiments.result import FigureResult, by_sharing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZE = 5
SAMPLES = 2_500
MOMENTS = ("mean", "variance")
ORDERS = (2, 4, 6, 8)
NEVER = 1e-6  # gaps that are certainly positive but for this have no tightness
CANTELLI = {"computed": "computed moments", "simulated": "simulated moments"}
BEYOND = {**{f"order_{order}": f"{order} moments" for order in ORDERS}, "law": "certified law"}


@dataclass(frozen=True)
class Pair:
    """One gap, computed and simulated."""

    sharing: Sharing
    gap: jm.results.Gap
    sample: jm.results.GapSample

    @property
    def labels(self) -> dict[str, Any]:
        """Which gap it is."""
        gap = self.gap
        return {"sharing": self.sharing, "state": gap.state, "action": gap.action, "other": gap.other}

    @property
    def is_random(self) -> bool:
        """Whether noise moves the gap: without variance it has no z-score."""
        return self.gap.variance > self.gap.variance_error

    @property
    def inferiority(self) -> float:
        """The simulated frequency of gaps that are not positive."""
        return float(np.mean(self.sample.gaps <= 0))

    @property
    def simulated_bound(self) -> float:
        """Cantelli's bound from simulated moments."""
        return jm.bounds.cantelli(self.sample.mean, self.sample.variance)

    def ratios(self, bounds: dict[str, float]) -> dict[str, float]:
        """How much of each bound on P(G ≤ 0) the simulated frequency uses up."""
        return {f"ratio_{key}": self.inferiority / bound for key, bound in bounds.items()}

    @property
    def mean_score(self) -> float:
        """z-score of the simulated mean; the standard error is the exact one."""
        return (self.sample.mean - self.gap.mean) / (self.gap.std / math.sqrt(len(self.sample.gaps)))

    @property
    def variance_score(self) -> float:
        """z-score of the simulated variance, with its standard error from the fourth moment."""
        return (self.sample.variance - self.gap.variance) / self.sample.variance_standard_error


Pairs = dict[Sharing, list[Pair]]
Ratios = dict[Sharing, list[dict[str, Any]]]  # a row for each gap, with a ratio for each bound


def simulated_pairs(sharing: Sharing, num_samples: int = SAMPLES, size: int = SIZE) -> list[Pair]:
    """Every state, the policy's action against every other; each pair has a seed of its own."""
    model, policy = jm.envs.windy_gridworld(size, sharing=sharing)
    solution = jm.evaluate(model, policy)
    pairs: list[Pair] = []
    for state in range(model.num_states):
        best = int(np.argmax(policy[state]))
        for other in range(model.num_actions):
            if other != best:
                seed = 10_000 * (1 + SHARINGS.index(sharing)) + len(pairs)
                sample = jm.simulate(
                    model, policy, state, [best, other], num_samples=num_samples, seed=seed, gaps_only=True
                ).gap(best, other)
                pairs.append(Pair(sharing, solution.gap(state, best, other), sample))
    return pairs


def run(pairs: Pairs) -> FigureResult:
    """Means and variances, predicted and simulated."""
    rows = [_row(pair) for sharing in SHARINGS for pair in pairs[sharing]]
    text = (
        f"Every state of the {SIZE}×{SIZE} windy gridworld, the policy's action against each of the three others: "
        f"computed moments of the gap against {SAMPLES:,} simulated pairs. Bars are 95 % confidence intervals. Points "
        "on the line agree.\n\n" + by_sharing(lambda sharing: _calibration(pairs[sharing])) + "\n\n"
        "The means are the same under all three; the variances are not. A z-score is the distance of the simulated "
        "from the computed number in standard errors."
    )
    return FigureResult("gap-validation", "Computed against simulated gaps", text, rows, lambda: _draw(pairs))


def _row(pair: Pair) -> dict[str, Any]:
    row = pair.labels
    for moment in MOMENTS:
        row[moment], row[f"simulated_{moment}"] = getattr(pair.gap, moment), getattr(pair.sample, moment)
        interval = getattr(pair.sample, f"{moment}_interval")
        row[f"simulated_{moment}_lower"], row[f"simulated_{moment}_upper"] = interval
    return row | {
        "inferiority_bound": pair.gap.inferiority_bound,
        "simulated_inferiority": pair.inferiority,
        "simulated_bound": pair.simulated_bound,
    }


def _calibration(pairs: list[Pair]) -> str:
    pairs = [pair for pair in pairs if pair.is_random]
    scores = [pair.mean_score for pair in pairs]
    spread = [pair.variance_score for pair in pairs]
    covered = np.mean([pair.gap.mean in pair.sample.mean_interval for pair in pairs])
    covered_variance = np.mean([pair.gap.variance in pair.sample.variance_interval for pair in pairs])
    test = stats.kstest(scores, "norm").pvalue
    return (
        f"{len(pairs)} gaps that are random; the intervals hold {covered:.0%} of the means and "
        f"{covered_variance:.0%} of the variances. z-scores of means: mean {np.mean(scores):+.2f}, standard deviation "
        f"{np.std(scores):.2f} (Kolmogorov–Smirnov against the standard normal: p = {test:.2f}); of variances: "
        f"{np.mean(spread):+.2f}, {np.std(spread):.2f}"
    )


def _draw(pairs: Pairs) -> Figure:
    fig, axes = style.figure(columns=3, rows=2, width=3.1, height=2.8)
    for column, sharing in enumerate(SHARINGS):
        shown = [pair for pair in pairs[sharing] if pair.is_random]
        for ax, moment in zip(axes[:, column], MOMENTS, strict=True):
            given = [pair.gap for pair in shown], [pair.sample for pair in shown]
            jm.plots.predicted_against_simulated(*given, of=moment, ax=ax)
        axes[0][column].set_title(SHARING_WORDS[sharing])
    return fig


def run_tightness(pairs: Pairs) -> FigureResult:
    """The paper's ECDF of P̂(G ≤ 0)/Cantelli, with computed and with simulated moments in the denominator."""
    ratios: Ratios = {sharing: [] for sharing in SHARINGS}
    for sharing in SHARINGS:
        for pair in _uncertain(pairs[sharing]):
            bounds = {"computed": pair.gap.inferiority_bound, "simulated": pair.simulated_bound}
            ratios[sharing].append(pair.labels | pair.ratios(bounds))

    def statement(sharing: Sharing) -> str:
        used = [row["ratio_computed"] for row in ratios[sharing]]
        return f"{len(used)} gaps, median ratio {np.median(used):.2f}, largest {max(used):.2f}"

    text = (
        "How much of Cantelli's bound on P(G ≤ 0) the simulated frequency uses up, over all states and alternatives "
        "with a random gap of positive mean. At 1 the bound is tight; far below it two moments say little. No ratio "
        "may pass 1 by more than the noise of the simulation.\n\n" + by_sharing(statement) + "\n\n"
        "The two curves differ only by the noise of simulated moments: what is loose is the bound, not the moments. "
        "Ties (G = 0) count as not better, and there are many: two branches that meet are one from then on."
    )
    return _tightness_figure("tightness", "How tight Cantelli's bound is", text, ratios, CANTELLI)


def run_tightness_beyond(pairs: Pairs, size: int = SIZE) -> FigureResult:
    """The same for the best bounds from more moments, and for the law itself."""
    ratios: Ratios = {sharing: _ratios_beyond(sharing, pairs[sharing], size) for sharing in SHARINGS}

    def statement(sharing: Sharing) -> str:
        rows = ratios[sharing]
        parts = [f"{words} {np.median([row[f'ratio_{key}'] for row in rows]):.2f}" for key, words in BEYOND.items()]
        return f"{len(rows)} gaps; median ratio with {', '.join(parts)}"

    text = (
        "How much of a guaranteed bound on P(G ≤ 0) the simulated frequency uses up, over all states and alternatives "
        "with a positive mean gap that are not better for certain: for the best possible bounds from 2, 4, 6 and 8 "
        "moments, and for the certified law. At 1 the bound is tight.\n\n" + by_sharing(statement) + "\n\n"
        "Each pair of moments helps, but no number of moments sees an atom: ties put mass at exactly 0, and moments "
        "cannot tell 0 from a little less. The law can; what is left of its distance from 1 is the noise of the "
        "simulation."
    )
    return _tightness_figure("tightness-orders", "How tight bounds get beyond two moments", text, ratios, BEYOND)


def _uncertain(pairs: list[Pair]) -> list[Pair]:
    return [pair for pair in pairs if pair.is_random and pair.gap.mean > pair.gap.mean_error]


def _ratios_beyond(sharing: Sharing, pairs: list[Pair], size: int) -> list[dict[str, Any]]:
    model, policy = jm.envs.windy_gridworld(size, sharing=sharing)
    solution = jm.evaluate(model, policy, order=max(ORDERS))
    signs = solution.signs(tolerance=1e-3)
    rows = []
    for pair in _uncertain(pairs):
        s = model.state_index(pair.gap.state)
        a, b = model.action_index(pair.gap.action), model.action_index(pair.gap.other)
        gap = solution.gap(s, a, b)
        bounds = {f"order_{order}": gap.moment_bounds(order=order).cdf(0.0).upper for order in ORDERS}
        bounds["law"] = float(1 - signs.better[0][s, a, b])
        if bounds["law"] >= NEVER:  # else better for certain: nothing to divide by
            row = pair.labels | {"simulated": pair.inferiority}
            row |= {f"bound_{key}": bound for key, bound in bounds.items()}
            rows.append(row | pair.ratios(bounds))
    return rows


def _tightness_figure(name: str, title: str, text: str, ratios: Ratios, curves: dict[str, str]) -> FigureResult:
    """Empirical distribution functions of ``ratio_{key}`` for each curve."""

    def draw() -> Figure:
        fig, axes = style.figure(columns=3, rows=1, width=3.3, height=2.9)
        for ax, sharing in zip(axes, SHARINGS, strict=True):
            for i, (key, words) in enumerate(curves.items()):
                values = np.sort([row[f"ratio_{key}"] for row in ratios[sharing]])
                height = np.arange(len(values) + 1) / len(values)
                look = {"color": style.PALETTE[i + 1], "linestyle": style.LINES[i]}
                ax.step(np.append(0.0, values), height, where="post", label=words, **look)
            ax.axvline(1, color=style.GREY, linewidth=1)
            ax.set(xlim=(0, 1.3), title=SHARING_WORDS[sharing], xlabel="simulated P(gap ≤ 0) / guaranteed bound")
        axes[0].set_ylabel("fraction of gaps at or below")
        fig.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(curves))
        return fig

    return FigureResult(name, title, text, [row for sharing in SHARINGS for row in ratios[sharing]], draw)
