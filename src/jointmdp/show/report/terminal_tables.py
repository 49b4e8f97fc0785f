"""Tables for a terminal, and the plain rows behind them, which are also what ``--json`` prints."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from jointmdp.exact.bounds.moment_bounds import cantelli
from jointmdp.ground.answers import COSTS, words
from jointmdp.ground.intervals import Interval
from jointmdp.model.policies import at_time

if TYPE_CHECKING:
    from jointmdp.exact.solution.gap import Gap
    from jointmdp.exact.solution.solution import Solution

CERTIFIED = ("residual", "mean_error", "covariance_error", "second_moment_error")
SELECTION = 0.95  # probability with which the planned replications find the better action


def action_rows(solution: Solution, state: int, with_law: bool = False) -> dict[str, Any]:
    """Every available action of a state: its return, and its gap over the policy's most likely action."""
    model = solution.model
    actions = [int(a) for a in np.flatnonzero(model.available[state])]
    policy = at_time(solution.policy, 0)
    baseline = max(actions, key=lambda a: policy[state, a])
    variances = np.diagonal(solution.covariance_of([state], actions)[0])
    rows = [
        {
            "action": model.action_label(a),
            "index": a,
            "probability": float(policy[state, a]),
            "mean": float(solution.mean[state, a]),
            "std": math.sqrt(max(0.0, float(variance))),
            "gap": None if a == baseline else gap_row(solution.gap(state, a, baseline), with_law),
        }
        for a, variance in zip(actions, variances, strict=True)
    ]
    return {
        "state": model.state_label(state),
        "index": state,
        "baseline": model.action_label(baseline),
        "actions": rows,
    }


def gap_row(gap: Gap, with_law: bool = False) -> dict[str, Any]:
    """The numbers of one gap; those of its law take longer."""
    runs, inferiority = gap.replications_to_select(SELECTION), gap.moment_bounds().cdf(0.0)
    found = {
        "over": gap.other,
        "mean": gap.mean,
        "std": gap.std,
        "independent_std": math.sqrt(gap.independent_variance),
        "mean_error": gap.mean_error,
        "variance_error": gap.variance_error,
        "inferiority_bound": gap.inferiority_bound,
        "superiority": Interval(1 - inferiority.upper, 1 - inferiority.lower),
        # Cantelli's bound for whichever action has the higher mean: P(the other one does at least as well).
        "reversal_bound": cantelli(abs(gap.mean) - gap.mean_error, gap.variance + gap.variance_error),
        "replications_paired": runs.paired,
        "replications_unpaired": runs.unpaired,
    }
    if with_law:
        found |= {"superiority": gap.superiority(), "tie": gap.tie()}
        found |= {"quantile_05": gap.quantile(0.05), "cvar_05": gap.cvar(0.05)}
    return found


def action_table(
    solution: Solution, states: Sequence[int], with_law: bool = False, remarks: Sequence[str] = (), **more: Any
) -> dict[str, Any]:
    """The actions of some states, with all that says how true the numbers are."""
    certificate, model = solution.certificate, solution.model
    over = f"the first {solution.horizon} steps" if solution.horizon is not None else "an endless future"
    return {
        **more,
        "remarks": [f'{model.sizes}; discount {model.discount:g}, sharing "{model.sharing}", {over}', *remarks],
        "sharing": model.sharing,
        "discount": model.discount,
        "horizon": solution.horizon,
        "direction": solution.direction,
        "method": solution.method,
        "status": solution.status,
        "is_success": solution.status.is_success,
        "sentence": f"{solution.status.value} ({certificate})",
        "certificate": {name: getattr(certificate, name) for name in CERTIFIED},
        "selection_probability": SELECTION,
        "states": [action_rows(solution, state, with_law) for state in states],
    }


def _console() -> Console:
    """As wide as the terminal; where nobody watches, wide enough that no column is cut."""
    console = Console(highlight=False, markup=False)
    return console if console.is_terminal else Console(highlight=False, markup=False, width=max(console.width, 120))


def print_solution(found: Mapping[str, Any]) -> None:
    """A table for each state, what its columns mean, and how true it is; `found` is what `action_table` gives."""
    console, said = _console(), words(found["direction"] == COSTS.direction)
    for remark in found["remarks"]:
        console.print(remark)
    with_law = False
    for state in found["states"]:
        console.print(f"\nIn {state['state']}, each action against {state['baseline']}:\n", style="bold")
        console.print(_table(state["actions"], said.more))
        with_law = any(row["gap"] is not None and "tie" in row["gap"] for row in state["actions"])
        if with_law:
            console.print(f"\nThe law of how much {said.more} each {said.gives}:\n")
            console.print(_law_table(state["actions"]))
    console.print(
        f"\nmean ± std: the {said.amount} of the action. {said.more}: how much {said.more} it {said.gives} than the "
        "policy's most likely action, whose row is marked *; ±: the standard deviation of that difference, with the "
        "noise shared as the model says and if the two were independent. reversed: Cantelli's bound on the probability "
        "that the action with the worse mean does at least as well: a guarantee, not an estimate. runs: about how many "
        "pairs of simulated futures it takes until the better action has the better average with "
        f"{found['selection_probability']:.0%} probability (normal approximation)."
    )
    if with_law:
        console.print(
            f"\nbetter, equal: the probability that the action {said.gives} {said.more} than, or exactly as much as, "
            "the one marked *. 5 % quantile, worst 5 %: of the difference, and the mean of its lowest 5 %. Where "
            "digits are not certain, both ends of an interval that certainly holds the number are shown."
        )
    console.print(f"\nComputed, not simulated: {found['sentence']}.")


def plain_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Words in the first column, numbers in the others."""
    table = Table(box=None, pad_edge=False)
    for i, title in enumerate(titles):
        table.add_column(title, justify="right" if i else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _table(rows: list[dict[str, Any]], more: str) -> Table:
    titles = ["action", "mean", "± std", more, "± shared", "± indep.", "reversed", "runs,\nshared", "runs,\nindep."]
    gaps = [row["gap"] for row in rows]
    columns = [
        [row["action"] + (" *" if row["gap"] is None else "") for row in rows],
        _aligned([row["mean"] for row in rows]),
        _aligned([row["std"] for row in rows]),
        *(_aligned([gap and gap[key] for gap in gaps]) for key in ("mean", "std", "independent_std")),
        ["" if gap is None else _probability(gap["reversal_bound"]) for gap in gaps],
        *(["" if gap is None else count(gap[f"replications_{key}"]) for gap in gaps] for key in ("paired", "unpaired")),
    ]
    return plain_table(titles, zip(*columns, strict=True))


def _law_table(rows: list[dict[str, Any]]) -> Table:
    decimals = {"superiority": 3, "tie": 3, "quantile_05": 2, "cvar_05": 2}
    cells = [
        [row["action"], *(interval(row["gap"][key], n) for key, n in decimals.items())]
        for row in rows
        if row["gap"] is not None
    ]
    return plain_table(["action", "better", "equal", "5 % quantile", "worst 5 %"], cells)


def interval(found: Interval, decimals: int) -> str:
    """One number where both ends round to it, else both."""
    ends = [found.estimate] if found.width < 10.0**-decimals else found
    return " … ".join(f"{round(end, decimals) + 0.0:.{decimals}f}" for end in ends)


def _aligned(values: Sequence[float | None]) -> list[str]:
    """Numbers of one column with one count of decimals: four figures of the largest, two decimals below a thousand."""
    size = max((abs(value) for value in values if value is not None), default=0.0)
    if size != 0 and not 1e-3 <= size < 1e7:
        return ["" if value is None else f"{value:.2e}" for value in values]
    least = 2 if size < 1000 else 0
    decimals = max(least, 3 - math.floor(math.log10(size))) if size else 2
    # Adding 0 turns a rounded −0.00 into 0.00.
    return ["" if value is None else f"{round(value, decimals) + 0.0:,.{decimals}f}" for value in values]


def _probability(value: float) -> str:
    return "< 0.001" if 0 < value < 0.001 else f"{value:.3f}"


def count(runs: float) -> str:
    """How many runs, in words."""
    if math.isinf(runs):
        return "never"
    return f"{runs:,.0f}" if runs < 1e9 else f"{runs:.1e}"


def print_models(models: Sequence[dict[str, Any]]) -> None:
    """The built-in models with their settings."""
    console = Console(highlight=False, markup=False)
    for model in models:
        console.print(model["name"], style="bold", end="")
        console.print(f": {model['description']}")
        settings = ", ".join(
            f"{key}={str(value).lower() if isinstance(value, bool | None) else value}"
            for key, value in model["settings"].items()
        )
        console.print(Padding(settings, (0, 0, 0, 4), expand=False))
    console.print("\nFor instance:  jointmdp evaluate inventory:max_stock=10,sharing=state --state 4")


def print_hindsight(rows: Sequence[Mapping[str, Any]], title: str, sentences: Sequence[str]) -> None:
    """What was seen step by step, where the other branch would have been, and what that comes to."""
    console = _console()
    console.print(f"{title}\n", style="bold")
    cells = [
        [
            f"{row['step']}  {row['seen_state'] or '?'}",
            row["seen_action"],
            "" if math.isnan(row["seen_reward"]) else f"{row['seen_reward']:.4g}",
            row["other_state"],
            _probability(row["probability"]),
            _probability(row["one"]),
            ""
            if math.isnan(row["noise_known"])
            else f"{row['noise_known']:.2f} of {row['noise_known'] + row['noise_open']:.2f}",
        ]
        for row in rows
    ]
    titles = ["step, seen", "action", "reward", "other is in", "probability", "one by then", "bits of noise known"]
    console.print(plain_table(titles, cells))
    for sentence in sentences:
        console.print(f"\n{sentence}")


def print_hindsights(rows: Sequence[Mapping[str, Any]], sentences: Sequence[str]) -> None:
    """A row a trajectory or a start."""
    console = _console()
    columns = [
        *([str(row[key]) for row in rows] for key in ("trajectory", "start", "state", "action", "seen")),
        *(_aligned([row[key] for row in rows]) for key in ("mean", "std", "other_return", "seen_return")),
    ]
    titles = ["trajectory", "start", "state", "instead", "of", "gap", "± std", "other gives", "seen gives"]
    console.print(plain_table(titles, zip(*columns, strict=True)))
    for sentence in sentences:
        console.print(f"\n{sentence}")
