"""The commands about models: ``jointmdp demo``, ``evaluate``, ``list`` and ``report``."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jointmdp.ground.errors import ConvergenceWarning, ModelError
from jointmdp.ground.limits import Limits
from jointmdp.show.cli.command_parts import (
    in_one_line,
    minimise_option,
    model_and_policy,
    model_options,
    named_or_numbered,
)
from jointmdp.show.cli.joined_processes import Joined, joined, process_options

if TYPE_CHECKING:
    from jointmdp.exact.moments.column_blocks import Sharded
    from jointmdp.exact.solution.solution import Solution


@click.command()
@click.option("--stock", default=4, show_default=True, help="Units on the shelf this morning.")
@click.option("--out", default="results/demo", show_default=True, type=click.Path(path_type=Path), help="For figures.")
@click.option("--json", is_flag=True, help="Print the table as JSON, and draw nothing.")
@in_one_line
def demo(stock: int, out: Path, json: bool) -> None:
    """How much to order today: one decision of an inventory, compared under three kinds of sharing.

    \b
    Examples:
      jointmdp demo
      jointmdp demo --stock 7 --out figures
      jointmdp demo --json
    """
    from jointmdp.show.cli.demo import compare_orders, print_comparison, save_figure, to_json

    comparison = compare_orders(stock)
    if json:
        click.echo(to_json(comparison))
    else:
        print_comparison(comparison)
        click.echo(save_figure(comparison, out))


@click.command("list")
@click.option("--json", is_flag=True, help="Print names, descriptions and settings as JSON.")
def list_models(json: bool) -> None:
    """The built-in models and their settings.

    \b
    Examples:
      jointmdp list
      jointmdp list --json
    """
    from jointmdp.ground.files import to_json
    from jointmdp.show.report.terminal_tables import print_models
    from jointmdp.simulation.simulators.registry import MODELS

    models = [
        {"name": name, "description": entry.description, "settings": entry.settings} for name, entry in MODELS.items()
    ]
    if json:
        click.echo(to_json({"models": models}))
    else:
        print_models(models)


@click.command()
@model_options
@click.option("--state", multiple=True, help="Name or index of a state to show; may be repeated. [the first]")
@click.option("--law", is_flag=True, help="Also the law of the differences: P(better), quantile, worst 5 %.")
@minimise_option
@click.option("--json", is_flag=True, help="Print one JSON object; infinite numbers are null.")
@process_options
@in_one_line
def evaluate(model: str, state: tuple[str, ...], law: bool, json: bool, processes: Joined, **changes: Any) -> None:
    """What each action gives in a state, and how sure one can be of the differences.

    MODEL is a built-in model with optional settings (see: jointmdp list), or a file that jointmdp.save has
    written: a model, or a solution, which is shown as it is.

    \b
    Examples:
      jointmdp evaluate inventory --state "stock 4" --law
      jointmdp evaluate inventory:max_stock=10,sharing=state --state 0 --state 5
      jointmdp evaluate windy-gridworld:size=3 --policy uniform --sharing time
      jointmdp evaluate shared-successors:flipped=true --policy a1,a2 --json
      jointmdp evaluate coupled-reward-chain --discount 1 --horizon 10
      jointmdp evaluate mine.npz --policy policy.csv
      srun -n 16 jointmdp evaluate mine.npz --distributed --checkpoint saved
    """
    from jointmdp.ground.files import to_json
    from jointmdp.show.report.terminal_tables import action_table, print_solution

    changes = {key: value for key, value in changes.items() if value is not None}
    with warnings.catch_warnings(record=True) as caught, joined(processes):
        warnings.simplefilter("always", ConvergenceWarning)
        solution, remarks = _evaluated(model, changes, processes.method())
    if not processes.is_first:
        return
    shown = solution.model
    asked = (named_or_numbered(text, shown.state_names, shown.state_index) for text in state)
    chosen = list(dict.fromkeys(asked)) or [0]
    if not state and shown.num_states > 1:
        remarks.append(f"Shown: {shown.state_label(0)}, the first state; others by --state.")
    for note in caught:
        click.echo(f"Warning: {note.message}", err=True)
    policy = changes.get("policy", "default")
    found = action_table(solution, chosen, law, remarks, model=model, policy=policy)
    if json:
        click.echo(to_json(found))
    else:
        print_solution(found)


@click.command()
@model_options
@click.option(
    "-o", "--out", default="report.html", show_default=True, type=click.Path(path_type=Path), help="The page to write."
)
@click.option("--title", help="Its first line. [the model]")
@click.option("--grid", help="States are the cells of a grid, row by row: 8x8. [seen from names like (x,y)]")
@click.option(
    "--seconds", default=30.0, show_default=True, help="What the laws of gaps may take; the rest shows moments."
)
@minimise_option
@click.option("--json", is_flag=True, help="Print where the page is as JSON.")
@in_one_line
def report(
    model: str, out: Path, title: str | None, grid: str | None, seconds: float, json: bool, **changes: Any
) -> None:
    """One page to open in a browser: pick a state and two actions, and see what their difference is like.

    MODEL is a built-in model with optional settings (see: jointmdp list), or a file that jointmdp.save has written.

    \b
    Examples:
      jointmdp report inventory --sharing time -o inventory.html
      jointmdp report windy-gridworld:size=5 --seconds 60
      jointmdp report lake.npz --policy policy.csv --grid 8x8
    """
    from jointmdp.ground.files import to_json

    shape = None if grid is None else _grid(grid)
    solution, remarks = _evaluated(model, {key: value for key, value in changes.items() if value is not None})
    for remark in remarks:
        click.echo(remark, err=True)
    written = solution.report(out, title=model if title is None else title, grid=shape, limits=Limits(seconds=seconds))
    if json:
        click.echo(to_json({"page": str(written), "bytes": Path(written).stat().st_size, "remarks": remarks}))
    else:
        click.echo(f"{written}: open it in a browser")


def _grid(text: str) -> tuple[int, int]:
    rows, _, columns = text.lower().partition("x")
    if not (rows.isdecimal() and columns.isdecimal()):
        raise ModelError(f"grid is {text!r}; write rows and columns, as in 8x8")
    return int(rows), int(columns)


def _evaluated(text: str, changes: dict[str, Any], method: Sharded | None = None) -> tuple[Solution, list[str]]:
    """The solution that the arguments ask for, and remarks on how it came about."""
    from jointmdp.exact.solution.evaluate import evaluate
    from jointmdp.model.joint_mdp import JointMDP

    settings = {**changes, "distributed": True} if method is not None else changes
    found, policy, remark = model_and_policy(text, settings)
    if not isinstance(found, JointMDP):
        return found, [remark]
    assert policy is not None
    minimise = bool(changes.get("minimise"))
    return evaluate(found, policy, method, horizon=changes.get("horizon"), minimise=minimise), [remark]
