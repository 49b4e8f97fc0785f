"""The tables of the command line: what each action brings in a state, for people and as strict JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from jointmdp.bounds import cantelli

if TYPE_CHECKING:
    from jointmdp.solution.gap import Gap
    from jointmdp.solution.solution import Solution

SELECTION = 0.95  # probability with which the planned replications find the better action


def action_rows(solution: Solution, state: int, with_law: bool = False) -> dict[str, Any]:
    """Every available action of a state: its return, and its gap over the policy's most likely action."""
    model = solution.model
    actions = [int(a) for a in np.flatnonzero(model.available[state])]
    baseline = max(actions, key=lambda a: solution.policy[state, a])
    variances = np.diagonal(solution.covariance_of([state], actions)[0])
    rows = []
    for a, variance in zip(actions, variances, strict=True):
        rows.append(
            {
                "action": model.action_label(a),
                "index": a,
                "probability": float(solution.policy[state, a]),
                "mean": float(solution.mean[state, a]),
                "std": math.sqrt(max(0.0, float(variance))),
                "gap": None if a == baseline else gap_row(solution.gap(state, a, baseline), with_law),
            }
        )
    return {
        "state": model.state_label(state),
        "index": state,
        "baseline": model.action_label(baseline),
        "actions": rows,
    }


def gap_row(gap: Gap, with_law: bool = False) -> dict[str, Any]:
    """The numbers of one gap; those of its law take longer."""
    runs, inferiority = gap.replications_to_select(SELECTION), gap.moment_bounds().cdf(0.0)
    law = {}
    if with_law:
        law = {
            "superiority": gap.superiority()._asdict(),
            "tie": gap.tie()._asdict(),
            "quantile_05": gap.quantile(0.05)._asdict(),
            "cvar_05": gap.cvar(0.05)._asdict(),
        }
    return {
        "over": gap.other,
        "mean": gap.mean,
        "std": gap.std,
        "independent_std": math.sqrt(gap.independent_variance),
        "mean_error": gap.mean_error,
        "variance_error": gap.variance_error,
        "inferiority_bound": gap.inferiority_bound,
        "superiority": {"lower": 1 - inferiority.upper, "upper": 1 - inferiority.lower},
        # Cantelli's bound for whichever action has the higher mean: P(the other one does at least as well).
        "reversal_bound": cantelli(abs(gap.mean) - gap.mean_error, gap.variance + gap.variance_error),
        "replications_paired": runs.paired,
        "replications_unpaired": runs.unpaired,
        **law,
    }


def solution_json(solution: Solution, states: Sequence[int], with_law: bool = False, **more: Any) -> str:
    """One strict JSON object; what is infinite or not a number is null."""
    certificate = solution.certificate
    found = {
        **more,
        "sharing": solution.model.sharing,
        "discount": solution.model.discount,
        "horizon": solution.horizon,
        "method": solution.method,
        "status": solution.status.name.lower(),
        "is_success": solution.status.is_success,
        "certificate": {
            "residual": certificate.residual,
            "mean_error": certificate.mean_error,
            "covariance_error": certificate.covariance_error,
            "second_moment_error": certificate.second_moment_error,
        },
        "selection_probability": SELECTION,
        "states": [action_rows(solution, state, with_law) for state in states],
    }
    return json.dumps(_strict(found), indent=2, ensure_ascii=False, allow_nan=False)


def _strict(thing: Any) -> Any:
    if isinstance(thing, dict):
        return {key: _strict(value) for key, value in thing.items()}
    if isinstance(thing, list):
        return [_strict(value) for value in thing]
    return None if isinstance(thing, float) and not math.isfinite(thing) else thing


def _console() -> Console:
    """As wide as the terminal; where nobody watches, wide enough that no column is cut."""
    console = Console(highlight=False, markup=False)
    return console if console.is_terminal else Console(highlight=False, markup=False, width=max(console.width, 120))


def print_solution(solution: Solution, states: Sequence[int], remarks: Sequence[str], with_law: bool = False) -> None:
    """A table for each state, what its columns mean, and how true it is."""
    console = _console()
    model = solution.model
    over = f"the first {solution.horizon} steps" if solution.horizon is not None else "an endless future"
    sizes = ", ".join(
        f"{count} {word}{'' if count == 1 else 's'}"
        for count, word in zip(model.rewards.shape, ("state", "scenario", "action"), strict=True)
    )
    console.print(f'{sizes}; discount {model.discount:g}, sharing "{model.sharing}", {over}')
    for remark in remarks:
        console.print(remark)
    for state in states:
        found = action_rows(solution, state, with_law)
        console.print(f"\nIn {found['state']}, each action against {found['baseline']}:\n", style="bold")
        console.print(_table(found["actions"]))
        if with_law:
            console.print("\nThe law of what each brings more:\n")
            console.print(_law_table(found["actions"]))
    console.print(
        "\nmean ± std: the return of the action. more: what it brings more than the policy's most likely action, whose "
        "row is marked *; ±: the standard deviation of that difference, with the luck shared as the model says and if "
        "the two were independent. reversed: Cantelli's bound on the probability that the action with the lower mean "
        "does at least as well: a guarantee, not an estimate. runs: about how many pairs of simulated futures it takes "
        f"until the better action has the higher average with {SELECTION:.0%} probability (normal approximation)."
    )
    if with_law:
        console.print(
            "\nbetter, equal: the probability that the action brings more than, or exactly as much as, the one marked "
            "*. 5 % quantile, worst 5 %: of the difference, and the mean of its lowest 5 %. Where digits are not "
            "certain, both ends of an interval that certainly holds the number are shown."
        )
    console.print(f"\nComputed, not simulated: {solution.status.value} ({solution.certificate}).")


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("action", no_wrap=True)
    titles = ["mean", "± std", "more", "± shared", "± indep.", "reversed", "runs,\nshared", "runs,\nindep."]
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    gaps = [row["gap"] for row in rows]
    columns = [
        _aligned([row["mean"] for row in rows]),
        _aligned([row["std"] for row in rows]),
        *(_aligned([gap and gap[key] for gap in gaps]) for key in ("mean", "std", "independent_std")),
        ["" if gap is None else _bound(gap["reversal_bound"]) for gap in gaps],
        *(
            ["" if gap is None else _count(gap[f"replications_{key}"]) for gap in gaps]
            for key in ("paired", "unpaired")
        ),
    ]
    for i, row in enumerate(rows):
        mark = " *" if row["gap"] is None else ""
        table.add_row(row["action"] + mark, *(column[i] for column in columns))
    return table


def _law_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("action", no_wrap=True)
    for title in ("better", "equal", "5 % quantile", "worst 5 %"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        gap = row["gap"]
        if gap is not None:
            decimals = {"superiority": 3, "tie": 3, "quantile_05": 2, "cvar_05": 2}
            cells = [interval(gap[key]["lower"], gap[key]["upper"], n) for key, n in decimals.items()]
            table.add_row(row["action"], *cells)
    return table


def interval(lower: float, upper: float, decimals: int) -> str:
    """One number where both ends round to it, else both."""
    low, high = (f"{round(end, decimals) + 0.0:.{decimals}f}" for end in (lower, upper))
    if upper - lower < 10.0**-decimals:
        return f"{round((lower + upper) / 2, decimals) + 0.0:.{decimals}f}"
    return f"{low} … {high}"


def _aligned(values: Sequence[float | None]) -> list[str]:
    """Numbers of one column with one count of decimals: four figures of the largest, two decimals below a thousand."""
    size = max((abs(value) for value in values if value is not None), default=0.0)
    if size != 0 and not 1e-3 <= size < 1e7:
        return ["" if value is None else f"{value:.2e}" for value in values]
    least = 2 if size < 1000 else 0
    decimals = max(least, 3 - math.floor(math.log10(size))) if size else 2
    # Adding 0 turns a rounded −0.00 into 0.00.
    return ["" if value is None else f"{round(value, decimals) + 0.0:,.{decimals}f}" for value in values]


def _bound(value: float) -> str:
    return "< 0.001" if 0 < value < 0.001 else f"{value:.3f}"


def _count(runs: float) -> str:
    if math.isinf(runs):
        return "never"
    return f"{runs:,.0f}" if runs < 1e9 else f"{runs:.1e}"


def print_models(models: Sequence[dict[str, Any]]) -> None:
    """The built-in models with their settings."""
    console = Console(highlight=False, markup=False)
    for model in models:
        console.print(model["name"], style="bold", end="")
        console.print(f": {model['description']}")
        settings = ", ".join(f"{key}={_plain(value)}" for key, value in model["settings"].items())
        console.print(Padding(settings, (0, 0, 0, 4), expand=False))
    console.print("\nFor instance:  jointmdp evaluate inventory:max_stock=10,sharing=state --state 4")


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool | None) else f"{value}"
