"""The Atari experiment as one page: the table of ratios, what networks see, and the curves of training."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jointmdp.learning.neural.settings import BLOCKS
from jointmdp.show.plots import style
from jointmdp_experiments.atari_coins import VARIANTS, WORDS
from jointmdp_experiments.atari_runs import PAPER_GAMES, QUICK, AtariPlan, GameResult, run
from jointmdp_experiments.atari_scores import PredictedGaps, Truth, rows_of, score
from jointmdp_experiments.result import FigureResult, draw_agreement, save_all

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Coupled Atari: neural JIPE-2 beside the emulator"
NETWORKS = {
    "parts": "parts",
    "gram": "gram (the paper's)",
    "blind": "sees nothing",
    "drawn coins": "parts, coins drawn",
}
CURVES = {
    "squared": "squared TD error",
    "signed": "signed TD error, moving average",
    "double": "product of two draws' errors",
}
SMOOTH = 5  # portions of a moving average


def reproduce(
    folder: Path, announce: Callable[[str], None] = lambda _: None, is_quick: bool = False
) -> list[FigureResult]:
    """Run or continue the experiment in ``folder/runs``, and write tables, figures and one page."""
    plan = QUICK if is_quick else AtariPlan()
    results = list(run(plan, str(folder / ("quick_runs" if is_quick else "runs")), announce))
    announce("figures")
    title = f"{TITLE} (a quick run: its networks know nothing yet)" if is_quick else TITLE
    return save_all(folder, title, [ratios(results, plan), sight(results), *curves(results)])


# -- the table ---------------------------------------------------------------------------------------------------


def ratios(results: Sequence[GameResult], plan: AtariPlan) -> FigureResult:
    """Predicted over simulated variances."""
    rows = [row for result in results for row in rows_of(result)]
    text = (
        f"Sums over {plan.roots} roots of predicted variances, divided by those of {plan.pairs} simulated pairs at "
        f"each root; {len(plan.seeds)} seeds with {plan.lists:,} recorded queries each, and a network for each that "
        "learned from those of the others. In brackets 95 % intervals that hold seeds, roots and Monte-Carlo error. "
        "*Coupled* is the variance of the gap, *Marginal* that of single returns, *Independent* the gap's if branches "
        "had nothing in common: by the network, and simulated. A network that sees nothing is the best constant that "
        "the same training finds. *gram* is the paper's form `⟨v, v⟩`, which has no room for noise that states do not "
        "share. Rewards are given by their expectations over coins, except where it says that coins are drawn.\n\n"
        + "\n\n".join(_table(rows, variant) for variant in VARIANTS)
    )
    return FigureResult("ratios", "Variances of gaps, predicted over simulated", text, rows, lambda: _draw_ratios(rows))


def _table(rows: list[dict[str, Any]], variant: str) -> str:
    head = "| game | network | Coupled / MC | Marginal / MC | Independent / MC | Independent simulated / MC |"
    lines = [f"**{WORDS[variant]}**", "", head, "|---|---|---|---|---|---|"]
    for row in rows:
        if row["variant"] == variant:
            found = [str(score(row, name)) for name in ("coupled", "marginal", "independent", "independent_simulated")]
            game = row["game"] + ("" if row["game"] in PAPER_GAMES else " (further)")
            lines.append(f"| {' | '.join([game, NETWORKS[row['network']], *found])} |")
    return "\n".join(lines)


def _draw_ratios(rows: list[dict[str, Any]]) -> Figure:
    games, kinds = (list(dict.fromkeys(row[name] for row in rows)) for name in ("game", "network"))
    figure, axes = style.figure(len(VARIANTS), 2, height=1.2 + 0.45 * len(games))
    for i, (name, words) in enumerate((("coupled", "variance of the gap"), ("marginal", "variance of a return"))):
        for j, variant in enumerate(VARIANTS):
            panel = axes[i, j]
            panel.axvspan(0.9, 1.1, color="0.92", zorder=0)
            panel.axvline(1.0, color="grey", linewidth=0.8)
            for k, kind in enumerate(kinds):
                chosen = [row for row in rows if (row["variant"], row["network"]) == (variant, kind)]
                y = [games.index(row["game"]) + 0.16 * (k - (len(kinds) - 1) / 2) for row in chosen]
                x = np.array([row[name] for row in chosen])
                ends = np.array([[row[f"{name}_{end}"] for row in chosen] for end in ("lower", "upper")]).reshape(2, -1)
                off = np.where(np.isfinite(ends), np.abs(ends - x), 0.0)
                panel.errorbar(
                    x, y, xerr=off, fmt=style.MARKERS[k], elinewidth=1, label=NETWORKS[kind], color=style.PALETTE[k]
                )
            panel.set_yticks(range(len(games)), games if j == 0 else [""] * len(games))
            panel.set_ylim(len(games) - 0.5, -0.5)
            panel.set_xscale("log")
            panel.set_xticks([0.25, 0.5, 1, 2, 4], ["¼", "½", "1", "2", "4"])
            panel.minorticks_off()
            panel.set_title(f"{words}, variant {variant}")
    for panel in axes[1]:
        panel.set_xlabel("predicted / simulated; grey: within 10 %")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(kinds))
    return figure


# -- does it look at the screen ----------------------------------------------------------------------------------


def sight(results: Sequence[GameResult]) -> FigureResult:
    """Gap means and the emulator's own part of gap variances, root by root."""
    rows, lines = [], []
    for result in results:
        scored = {(row["variant"], row["network"]): row for row in rows_of(result)}
        for variant, coins in VARIANTS.items():
            truth = Truth.of(result.paths, coins)
            gaps = PredictedGaps.of(
                [p for p in result.predictions if (p.task.variant, p.task.row) == (variant, "parts")]
            )
            found = scored[variant, "parts"]
            means = str(score(found, "mean_r_squared"))
            own = "" if coins.shared else str(score(found, "own_variance_r_squared"))
            lines.append(f"| {result.game} | {variant} | {means} | {own} |")
            rows += [
                {
                    "game": result.game,
                    "variant": variant,
                    "root": i,
                    "predicted_mean": float(gaps.mean[:, i].mean()),
                    "simulated_mean": float(truth.mean[i]),
                    "simulated_mean_error": float(truth.mean_error[i]),
                    "predicted_own_variance": float(gaps.gap[:, i].mean() - truth.coins[i]),
                    "simulated_own_variance": float(truth.own[i]),
                    "simulated_own_variance_error": float(truth.own_error[i]),
                }
                for i in range(len(truth.mean))
            ]
    text = (
        "R² over roots, with 95 % intervals that hold seeds, roots and Monte-Carlo error: how much of what differs "
        "from root to root the networks predict. The best constant in hindsight has 0, below it a network would do "
        "better not to look; Monte-Carlo errors are taken out of both sums, and *nan* says that roots differ by no "
        "more than these. The emulator's own part of a variance is what is left without the coins. In A and B it is a "
        "few hundredths of the whole, a network that learns the whole cannot tell it apart, and no number is given: "
        "variances add up, so D learns it alone.\n\n"
        "| game | variant | R² of gap means | R² of own parts of gap variances |\n|---|---|---|---|\n"
        + "\n".join(lines)
    )
    title = "What networks see: gaps root by root"
    return FigureResult("roots", title, text, rows, lambda: _draw_roots(rows, "D"))


def _draw_roots(rows: list[dict[str, Any]], variant: str) -> Figure:
    games = list(dict.fromkeys(row["game"] for row in rows))
    figure, axes = style.figure(len(games), 2, width=2.8)
    axes = axes.reshape(2, -1)
    for j, game in enumerate(games):
        chosen = [row for row in rows if (row["game"], row["variant"]) == (game, variant)]
        for i, (name, words) in enumerate((("mean", "mean"), ("own_variance", "variance"))):
            x, y, error = (
                np.array([row[f"{kind}_{name}{end}"] for row in chosen])
                for kind, end in (("predicted", ""), ("simulated", ""), ("simulated", "_error"))
            )
            draw_agreement(axes[i, j], x, y, error, words)
            axes[i, j].set_title(game if i == 0 else "")
    axes[0, 0].legend()
    figure.suptitle(f"Variant {variant}: points are roots")
    return figure


# -- curves of training ------------------------------------------------------------------------------------------


def curves(results: Sequence[GameResult]) -> list[FigureResult]:
    """TD errors of every block, for each variant."""
    return [_curves(results, variant) for variant in VARIANTS]


def _curves(results: Sequence[GameResult], variant: str) -> FigureResult:
    rows = [
        {"game": result.game, "variant": variant, "seed": p.task.seed, **row}
        for result in results
        for p in result.predictions
        if (p.task.variant, p.task.row) == (variant, "parts")
        for row in p.log
    ]
    text = (
        "Three views of the TD errors of each block, in units of the standard deviation of a return, means over seeds. "
        "A squared error has the variance of its target as a floor. The signed error shows a bias that is left. The "
        "product of the errors of two independent draws is an unbiased estimate of the squared Bellman residual, and "
        "goes to zero; where noise makes it negative there is a hole in the curve."
    )
    title = f"Curves of training, variant {WORDS[variant]}"
    return FigureResult(f"curves_{variant}", title, text, rows, lambda: _draw_curves(rows))


def _draw_curves(rows: list[dict[str, Any]]) -> Figure:
    games = list(dict.fromkeys(row["game"] for row in rows))
    figure, axes = style.figure(len(BLOCKS), 3, width=2.8, height=2.2)
    for j, block in enumerate(BLOCKS):
        for i, (kind, words) in enumerate(CURVES.items()):
            panel = axes[i, j]
            for k, game in enumerate(games):
                steps, values = _averaged([row for row in rows if row["game"] == game], f"{block}_{kind}")
                shown = values if kind == "signed" else np.where(values > 0, values, math.nan)
                panel.plot(steps, shown, label=game, **{**style.line(k), "marker": "."})
            if kind == "signed":
                panel.axhline(0.0, color="grey", linewidth=0.8)
            else:
                panel.set_yscale("log")
            if i == 0:
                panel.set_title(block)
            if i == 2:
                panel.set_xlabel("step")
            if j == 0:
                panel.set_ylabel(words)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(games))
    return figure


def _averaged(rows: list[dict[str, Any]], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Means over seeds, then over neighbouring portions."""
    steps = sorted({row["step"] for row in rows})
    values = np.array([np.mean([row[name] for row in rows if row["step"] == step]) for step in steps])
    kept = min(SMOOTH, 1 + len(values) // SMOOTH)
    return np.array(steps[kept - 1 :]), np.convolve(values, np.full(kept, 1 / kept), "valid")
