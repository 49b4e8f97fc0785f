"""Predicted against simulated gaps of the policy's action over every alternative, and how tight Cantelli's bound is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from jointmdp.arrays import Floats
from jointmdp.bounds import cantelli
from jointmdp.checks import Sharing
from jointmdp.envs.tabular_models import windy_gridworld
from jointmdp.evaluation import evaluate
from jointmdp.experiments.result import SHARINGS, WORDS, FigureResult
from jointmdp.montecarlo.samples import GapSample
from jointmdp.montecarlo.simulate import simulate_gap
from jointmdp.report import style
from jointmdp.solution.gap import Gap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = 5
SAMPLES = 2_500


@dataclass(frozen=True)
class Pair:
    """One gap, computed and simulated."""

    sharing: Sharing
    gap: Gap
    sample: GapSample

    @property
    def has_luck(self) -> bool:
        """Whether anything is left to chance: a gap without variance has no z-score."""
        return self.gap.variance > self.gap.variance_error

    @property
    def mean_score(self) -> float:
        """z-score of the simulated mean; the standard error is the exact one."""
        return (self.sample.mean - self.gap.mean) / (self.gap.std / math.sqrt(len(self.sample.gaps)))

    @property
    def variance_score(self) -> float:
        """z-score of the simulated variance, with its standard error from the fourth moment."""
        return (self.sample.variance - self.gap.variance) / self.sample.variance_standard_error


def simulate(sharing: Sharing, num_samples: int = SAMPLES, size: int = SIZE) -> list[Pair]:
    """Every state, the policy's action against every other; each pair has a seed of its own."""
    model, policy = windy_gridworld(size, sharing=sharing)
    solution = evaluate(model, policy)
    pairs: list[Pair] = []
    first_seed = 10_000 * (1 + SHARINGS.index(sharing))
    for state in range(model.num_states):
        best = int(np.argmax(policy[state]))
        for other in range(model.num_actions):
            if other != best:
                sample = simulate_gap(
                    model, policy, state, best, other, num_samples=num_samples, seed=first_seed + len(pairs)
                )
                pairs.append(Pair(sharing, solution.gap(state, best, other), sample))
    return pairs


def run(pairs: dict[Sharing, list[Pair]]) -> FigureResult:
    """Means and variances, predicted and simulated."""
    rows = [_row(pair) for sharing in SHARINGS for pair in pairs[sharing]]
    statements = "\n".join(f"- {WORDS[sharing]}: {_calibration(pairs[sharing])}" for sharing in SHARINGS)
    text = (
        f"Every state of the {SIZE}×{SIZE} windy gridworld, the policy's action against each of the three others: "
        f"computed moments of the gap against {SAMPLES:,} simulated pairs. Bars are 95 % confidence intervals. Points "
        "on the line agree.\n\n" + statements + "\n\n"
        "The means are the same under all three; the variances are not. A z-score is the distance of the simulated "
        "from the computed number in standard errors."
    )
    return FigureResult("gap-validation", "Computed against simulated gaps", text, rows, lambda: _draw(pairs))


def _row(pair: Pair) -> dict[str, Any]:
    gap, sample = pair.gap, pair.sample
    return {
        "sharing": pair.sharing,
        "state": gap.state,
        "action": gap.action,
        "other": gap.other,
        "mean": gap.mean,
        "simulated_mean": sample.mean,
        "simulated_mean_lower": sample.mean_interval.lower,
        "simulated_mean_upper": sample.mean_interval.upper,
        "variance": gap.variance,
        "simulated_variance": sample.variance,
        "simulated_variance_lower": sample.variance_interval.lower,
        "simulated_variance_upper": sample.variance_interval.upper,
        "inferiority_bound": gap.inferiority_bound,
        "simulated_inferiority": float(np.mean(sample.gaps <= 0)),
        "simulated_bound": simulated_bound(sample),
    }


def _calibration(pairs: list[Pair]) -> str:
    lucky = [pair for pair in pairs if pair.has_luck]
    scores = [pair.mean_score for pair in lucky]
    spread = [pair.variance_score for pair in lucky]
    covered = np.mean([pair.gap.mean in pair.sample.mean_interval for pair in lucky])
    covered_variance = np.mean([pair.gap.variance in pair.sample.variance_interval for pair in lucky])
    test = stats.kstest(scores, "norm").pvalue
    return (
        f"{len(lucky)} gaps with luck in them; the intervals hold {covered:.0%} of the means and "
        f"{covered_variance:.0%} of the variances. z-scores of means: mean {np.mean(scores):+.2f}, standard deviation "
        f"{np.std(scores):.2f} (Kolmogorov–Smirnov against the standard normal: p = {test:.2f}); of variances: "
        f"{np.mean(spread):+.2f}, {np.std(spread):.2f}"
    )


def simulated_bound(sample: GapSample) -> float:
    """Cantelli's bound from simulated moments."""
    return cantelli(sample.mean, sample.variance)


def _draw(pairs: dict[Sharing, list[Pair]]) -> Figure:
    fig, axes = style.figure(columns=3, rows=2, width=3.1, height=2.8)
    for column, sharing in enumerate(SHARINGS):
        lucky = [pair for pair in pairs[sharing] if pair.has_luck]
        _scatter(
            axes[0][column],
            np.array([pair.gap.mean for pair in lucky]),
            np.array([(pair.sample.mean, *pair.sample.mean_interval) for pair in lucky]),
        )
        _scatter(
            axes[1][column],
            np.array([pair.gap.variance for pair in lucky]),
            np.array([(pair.sample.variance, *pair.sample.variance_interval) for pair in lucky]),
        )
        axes[0][column].set_title(f"{WORDS[sharing]}")
        axes[0][column].set_xlabel("computed mean of the gap")
        axes[1][column].set_xlabel("computed variance of the gap")
    axes[0][0].set_ylabel("simulated mean")
    axes[1][0].set_ylabel("simulated variance")
    return fig


def _scatter(ax: Axes, computed: Floats, simulated: Floats) -> None:
    middle, lower, upper = simulated.T
    ends = (min(computed.min(), lower.min()), max(computed.max(), upper.max()))
    ax.plot(ends, ends, color=style.GREY, linewidth=1)
    bars = np.maximum([middle - lower, upper - middle], 0)
    ax.errorbar(computed, middle, yerr=bars, fmt="o", markersize=3, linewidth=0.8, color=style.PALETTE[1], alpha=0.8)


def run_tightness(pairs: dict[Sharing, list[Pair]]) -> FigureResult:
    """The paper's ECDF of P̂(G ≤ 0)/Cantelli, with computed and with simulated moments in the denominator."""
    rows = [
        {
            "sharing": sharing,
            "state": pair.gap.state,
            "action": pair.gap.action,
            "other": pair.gap.other,
            "ratio_computed": computed,
            "ratio_simulated": simulated,
        }
        for sharing in SHARINGS
        for pair, computed, simulated in _ratios(pairs[sharing])
    ]
    statements = "\n".join(f"- {WORDS[sharing]}: {_tightness(pairs[sharing])}" for sharing in SHARINGS)
    text = (
        "How much of Cantelli's bound on P(G ≤ 0) the simulated frequency uses up, over all states and alternatives "
        "with a positive mean gap and some luck in it. At 1 the bound is tight; far below it two moments say little. "
        "No ratio may pass 1 by more than the noise of the simulation.\n\n" + statements + "\n\n"
        "The two curves differ only by the noise of simulated moments: what is loose is the bound, not the moments. "
        "Ties (G = 0) count as not better, and there are many: two branches that meet are one from then on."
    )
    return FigureResult("tightness", "How tight Cantelli's bound is", text, rows, lambda: _draw_tightness(pairs))


def _ratios(pairs: list[Pair]) -> list[tuple[Pair, float, float]]:
    chosen = [pair for pair in pairs if pair.has_luck and pair.gap.mean > pair.gap.mean_error]
    return [
        (
            pair,
            float(np.mean(pair.sample.gaps <= 0)) / pair.gap.inferiority_bound,
            float(np.mean(pair.sample.gaps <= 0)) / simulated_bound(pair.sample),
        )
        for pair in chosen
    ]


def _tightness(pairs: list[Pair]) -> str:
    ratios = [computed for _, computed, _ in _ratios(pairs)]
    return f"{len(ratios)} gaps, median ratio {np.median(ratios):.2f}, largest {max(ratios):.2f}"


def _draw_tightness(pairs: dict[Sharing, list[Pair]]) -> Figure:
    fig, axes = style.figure(columns=3, rows=1, width=3.1, height=2.8)
    for ax, sharing in zip(np.ravel(axes), SHARINGS, strict=True):
        found = _ratios(pairs[sharing])
        for i, (values, words) in enumerate(
            (([c for _, c, _ in found], "computed moments"), ([s for _, _, s in found], "simulated moments"))
        ):
            ordered = np.concatenate([[0], np.sort(values), [1.05]])
            height = np.concatenate([[0], np.arange(1, len(values) + 1) / len(values), [1]])
            ax.step(ordered, height, where="post", color=style.PALETTE[i + 1], linestyle=style.LINES[i], label=words)
        ax.axvline(1, color=style.GREY, linewidth=1)
        ax.set_xlim(0, 1.05)
        ax.set_title(f"{WORDS[sharing]}")
        ax.set_xlabel("simulated P(gap ≤ 0) / Cantelli's bound")
    np.ravel(axes)[0].set_ylabel("fraction of gaps at or below")
    np.ravel(axes)[1].legend(loc="lower center")
    return fig
