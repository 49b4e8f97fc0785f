"""The demonstration: how much to order today, and how sure one can be of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console

from jointmdp.exact.law.gap_law import GapLaw
from jointmdp.exact.moments.certificates import Certificate
from jointmdp.exact.solution.evaluate import evaluate
from jointmdp.exact.solution.gap import Gap
from jointmdp.ground import files
from jointmdp.ground.checks import SHARING_WORDS, Sharing
from jointmdp.ground.errors import ModelError
from jointmdp.model.built_in_models import inventory
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.show.plots import style
from jointmdp.show.report.terminal_tables import count, interval, plain_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REGIMES: tuple[Sharing, ...] = ("none", "state", "time")
CONFIDENCE = 0.95
TAIL = 0.05


@dataclass(frozen=True)
class OrderComparison:
    """Each order against the policy's, under each kind of sharing."""

    model: JointMDP
    stock: int
    chosen: str  # the policy's order
    gaps: dict[str, dict[Sharing, Gap]]  # other order → sharing, as in `REGIMES` → gap of the policy's order over it
    laws: dict[str, GapLaw]  # other order → law of the gap when the same demand comes to all
    certificate: Certificate


def compare_orders(stock: int = 4) -> OrderComparison:
    """Evaluate the inventory model under the three kinds of sharing and collect the gaps of one state."""
    model, policy = inventory()
    s = model.state_index(stock)
    solutions = {sharing: evaluate(model.with_sharing(sharing), policy) for sharing in REGIMES}
    best = int(np.argmax(policy[s]))
    others = [int(a) for a in np.flatnonzero(model.available[s]) if a != best]
    if not others:
        raise ModelError(f"{model.action_label(best)} is the only order that fits with {stock} units in stock")
    gaps = {
        model.action_label(other): {sharing: solutions[sharing].gap(s, best, other) for sharing in REGIMES}
        for other in others
    }
    laws = {other: by["time"].law() for other, by in gaps.items()}
    return OrderComparison(model, stock, model.action_label(best), gaps, laws, solutions["time"].certificate)


def print_comparison(comparison: OrderComparison) -> None:
    """A table for people, and one sentence that says what to do."""
    chosen, gaps, laws = comparison.chosen, comparison.gaps, comparison.laws
    console = Console(highlight=False)
    console.print(
        f"\n[bold]How much to order today?[/bold] There are {comparison.stock} units in stock, and from tomorrow on "
        f"the shop follows its rule. The rule says [bold]{chosen}[/bold]. How much more would that have given than the "
        "other orders, on the same days?\n"
    )
    titles = ["gives\nmore", "± own\nnoise", "± same\nstate", "± same\ndemand"]
    titles += [f"runs,\n{words}" for words in ("own", "state", "demand")]
    cells = []
    for other, by in gaps.items():
        spreads, runs = [f"{gap.std:.2f}" for gap in by.values()], [count(_runs(gap)) for gap in by.values()]
        cells.append([other, f"{by['time'].mean:.2f}", *spreads, *runs])
    console.print(plain_table([f"{chosen}\ninstead of", *titles], cells))
    console.print(f"\nAnd the law of how much more {chosen} gives, with the same demand for both:\n")
    titles = ["P(better)", "5 %\nquantile", "worst\n5 %", "Cantelli\nbound"]
    cells = []
    for other, law in laws.items():
        known = [interval(law.superiority(), 3), interval(law.quantile(TAIL), 1), interval(law.cvar(TAIL), 2)]
        cells.append([other, *known, f"{gaps[other]['time'].inferiority_bound:.2f}"])
    console.print(plain_table([f"{chosen}\ninstead of", *titles], cells))
    console.print(
        "\n± is the standard deviation of the difference in discounted profit: when every future has noise of its own, "
        "when two futures share their noise while in the same state, and when the same demand comes to all on the same "
        "day. Runs are about how many pairs of simulated futures it takes until the better order has the higher "
        f"average with {CONFIDENCE:.0%} probability (normal approximation). P(better) is the probability that {chosen} "
        "gives more, worst 5 % the mean of the lowest 5 % of how much more it gives: certified, not simulated; where "
        "digits are not certain, both ends are shown. Cantelli's bound is what mean and variance alone guarantee: the "
        f"probability that {chosen} does not give more is at most that."
    )
    nearest, by = min(gaps.items(), key=lambda item: abs(item[1]["time"].mean))
    gap, certificate = by["time"], comparison.certificate
    better, other = (chosen, nearest) if gap.mean > 0 else (nearest, chosen)
    console.print(
        f"\n[bold]{better.capitalize()}.[/bold] Its closest rival, {other}, gives {abs(gap.mean):.2f} less on "
        f"average. With the same demand for both, {count(_runs(gap))} simulated pairs tell the two apart; with noise "
        f"of their own it takes {count(_runs(by['none']))}. Means and variances are computed, not simulated, and "
        f"certified to ± {certificate.mean_error:.0e} and ± {certificate.covariance_error:.0e}."
    )
    rare = [other for other, by in gaps.items() if by["time"].mean > 0 and laws[other].superiority().upper < 0.5]
    if rare:
        console.print(
            f"\nBeing better on average is not being better most of the time: {chosen} beats {rare[0]} in only "
            f"{laws[rare[0]].superiority().estimate:.0%} of all futures. It mostly loses a little, and now and then it "
            "wins much."
        )
    console.print(
        "\nNext: your own model. [bold]jointmdp.JointMDP(probabilities, rewards, successors, discount)[/bold] takes "
        "the tables, [bold]jointmdp.evaluate(model, policy).gap(state, action, other)[/bold] compares two actions, "
        "and its [bold].law()[/bold] gives every probability of the difference. Your own simulator: "
        "[bold]jointmdp compare[/bold] decides between its actions under the same noise, [bold]jointmdp audit[/bold] "
        "tells whether the noise is the same.\n"
    )


def save_figure(comparison: OrderComparison, folder: Path) -> str:
    """Draw the comparison into `folder`; says in one line where, or what is missing."""
    try:
        with style.context():
            figure = draw(comparison)
    except ImportError as error:
        return f"No figure: {error}"
    return f"Figure: {style.save(figure, folder / 'how-much-to-order.png')}"


def draw(comparison: OrderComparison) -> Figure:
    """Two panels: the spread of each gap, and the runs it takes to see it, by kind of sharing."""
    fig, (left, right) = style.figure(columns=2, rows=1, width=4.6, height=3.4)
    orders = list(comparison.gaps)
    words = {**SHARING_WORDS, "time": "same demand every day"}
    for i, sharing in enumerate(REGIMES):
        place = np.arange(len(orders)) + 0.25 * (i - 1)
        gaps = [comparison.gaps[order][sharing] for order in orders]
        look = style.line(i) | {"linestyle": "none"}
        deviations = [gap.std for gap in gaps]
        left.errorbar(place, [gap.mean for gap in gaps], yerr=deviations, label=words[sharing], capsize=2, **look)
        right.plot(place, [_runs(gap) for gap in gaps], **look)
    left.axhline(0, color=style.GREY, linewidth=1)
    left.set_ylabel(f"profit of {comparison.chosen} less that of the other\n(mean ± one standard deviation)")
    right.set_yscale("log")
    right.set_ylabel("simulated pairs to tell the two apart")
    for ax in (left, right):
        ax.set_xticks(range(len(orders)), [order.removeprefix("order ") for order in orders])
        ax.set_xlabel("units ordered instead")
    fig.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return fig


def _runs(gap: Gap) -> float:
    return gap.replications_to_select(CONFIDENCE).paired


def to_json(comparison: OrderComparison) -> str:
    """The same numbers for scripts."""
    rows = [
        {
            "action": comparison.chosen,
            "other": other,
            "mean": by["time"].mean,
            **{f"std_{sharing}": by[sharing].std for sharing in REGIMES},
            "inferiority_bound": by["time"].inferiority_bound,
            "superiority": comparison.laws[other].superiority(),
            "quantile_05": comparison.laws[other].quantile(TAIL),
            "cvar_05": comparison.laws[other].cvar(TAIL),
            **{f"replications_{sharing}": _runs(by[sharing]) for sharing in REGIMES},
        }
        for other, by in comparison.gaps.items()
    ]
    return files.to_json({"state": comparison.model.state_label(comparison.stock), "gaps": rows})
