"""The tables of the command line, from plain rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table


def _console() -> Console:
    """As wide as the terminal; where nobody watches, wide enough that no column is cut."""
    console = Console(highlight=False, markup=False)
    return console if console.is_terminal else Console(highlight=False, markup=False, width=max(console.width, 120))


def print_solution(found: Mapping[str, Any]) -> None:
    """A table for each state, what its columns mean, and how true it is; `found` is what `action_table` gives."""
    console = _console()
    for remark in found["remarks"]:
        console.print(remark)
    with_law = False
    for state in found["states"]:
        console.print(f"\nIn {state['state']}, each action against {state['baseline']}:\n", style="bold")
        console.print(_table(state["actions"]))
        with_law = any(row["gap"] is not None and "tie" in row["gap"] for row in state["actions"])
        if with_law:
            console.print("\nThe law of how much more each gives:\n")
            console.print(_law_table(state["actions"]))
    console.print(
        "\nmean ± std: the return of the action. more: how much more it gives than the policy's most likely action, "
        "whose row is marked *; ±: the standard deviation of that difference, with the noise shared as the model says "
        "and if the two were independent. reversed: Cantelli's bound on the probability that the action with the lower "
        "mean does at least as well: a guarantee, not an estimate. runs: about how many pairs of simulated futures it "
        f"takes until the better action has the higher average with {found['selection_probability']:.0%} probability "
        "(normal approximation)."
    )
    if with_law:
        console.print(
            "\nbetter, equal: the probability that the action gives more than, or exactly as much as, the one marked "
            "*. 5 % quantile, worst 5 %: of the difference, and the mean of its lowest 5 %. Where digits are not "
            "certain, both ends of an interval that certainly holds the number are shown."
        )
    console.print(f"\nComputed, not simulated: {found['sentence']}.")


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
            cells = [interval(gap[key].lower, gap[key].upper, n) for key, n in decimals.items()]
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
