"""``jointmdp hindsight``: what another action would have given on the very noise of a log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jointmdp.cli.command_parts import in_one_line, named_or_numbered
from jointmdp.cli.models_from_text import model_and_policy, model_options, policy_from
from jointmdp.errors import ModelError

if TYPE_CHECKING:
    from jointmdp.looking_back.hindsight_results import Hindsight, Hindsights


MEANING = (
    "other is in: the most likely course of the other branch, with the probability of that state at that step. one by "
    "then: how likely both branches are one. bits of noise known: what the data say about the scenario of the step, of "
    "all that there was to know. ±: what is not known, as a standard deviation."
)
COMPUTED = "Computed, not simulated."


@click.command()
@model_options
@click.option("--trajectory", required=True, type=click.Path(), help="A CSV file: state, action, reward; see below.")
@click.option("--action", help="What is done instead, first; then the policy.")
@click.option("--other-policy", help="A whole policy instead, given like --policy.")
@click.option("--start", default="0", show_default=True, help="The step at which it is done, or each.")
@click.option("--ended", is_flag=True, help="The episodes were over after their last action.")
@click.option("--out", type=click.Path(path_type=Path), help="A PNG file for the figure. [none is drawn]")
@click.option("--json", is_flag=True, help="Print one JSON object.")
@in_one_line
def hindsight(  # many parameters: one for each option
    model: str,
    trajectory: str,
    action: str | None,
    other_policy: str | None,
    start: str,
    ended: bool,
    out: Path | None,
    json: bool,
    **changes: Any,
) -> None:
    """What another action would have given, on the very noise that was seen.

    The file has a row for each step, in the order of time, with the columns state, action and, where known, reward and
    scenario. A last row without an action holds the last state. A column episode tells several trajectories apart.

    \b
    Examples:
      jointmdp hindsight inventory --trajectory log.csv --action "order 5"
      jointmdp hindsight inventory --trajectory log.csv --action "order 5" --start each --out switch.png
      jointmdp hindsight mine.npz --trajectory log.csv --other-policy careful.csv --json
    """
    from jointmdp.files.strict_json import to_json
    from jointmdp.looking_back.hindsight import hindsight as look_back
    from jointmdp.looking_back.trajectory_files import read_trajectories
    from jointmdp.model.joint_mdp import JointMDP

    changes = {key: value for key, value in changes.items() if value is not None}
    found, policy, remark = model_and_policy(model, changes)
    solution = None
    if not isinstance(found, JointMDP):
        solution, policy, found = found, found.policy, found.model
    seen = read_trajectories(found, trajectory, ended=ended)
    if start != "each" and not start.isdecimal():
        raise ModelError(f"--start is {start!r}; give the number of a step, or each")
    other = None if other_policy is None else policy_from(found, other_policy)
    answer = look_back(
        found,
        policy,
        seen[0] if len(seen) == 1 else seen,
        None if action is None else named_or_numbered(action, found.action_names, found.action_index),
        other_policy=other,
        start="each" if start == "each" else int(start),
        horizon=changes.get("horizon"),
        solution=solution,
    )
    if json:
        shown = {"gaps": _rows(answer)} if isinstance(answer, Sequence) else _one(answer)
        click.echo(to_json({"model": model, "remarks": [remark], **shown}))
    else:
        _print(answer, remark)
    if out is not None:
        click.echo(f"{_draw(answer, out)}: the figure", err=json)


def _rows(answer: Hindsights) -> list[dict[str, Any]]:
    from jointmdp.report.result_face import flat

    return [flat(row) for row in answer.table()]


def _one(answer: Hindsight) -> dict[str, Any]:
    from jointmdp.report.result_face import flat

    gap = answer.gap
    better = gap.superiority()
    return {
        "steps": answer.table(),
        "gap": {
            **flat(gap.table()[0]),
            "better_lower": better.lower,
            "better_upper": better.upper,
            "other_return": answer.other_return.mean,
            "seen_return": answer.seen_return.mean,
        },
    }


def _print(answer: Hindsight | Hindsights, remark: str) -> None:
    from jointmdp.report.command_tables import interval, print_hindsight, print_hindsights

    if isinstance(answer, Sequence):
        print_hindsights(answer.table(), [f"{answer!r}", remark, COMPUTED])
        return
    gap = answer.gap
    title = f"{gap.action} instead of {gap.other} at step {answer.start}, in {gap.state}"
    words = (
        f"Gap, other minus seen: {gap.mean:.6g} ± {gap.std:.6g}; more with probability "
        f"{interval(gap.superiority(), 3)}, the same with {interval(gap.tie(), 3)}. The other gives "
        f"{answer.other_return.mean:.6g}, the seen one {answer.seen_return.mean:.6g}, with what is still to come."
    )
    print_hindsight(answer.table(), title, [words, MEANING, remark, COMPUTED])


def _draw(answer: Any, out: Path) -> Path:
    from jointmdp.report.plots import hindsight_path, hindsight_starts, save

    return save(hindsight_starts(answer) if isinstance(answer, Sequence) else hindsight_path(answer), out)
