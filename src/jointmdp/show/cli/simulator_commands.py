"""The commands about simulators and logs: ``jointmdp audit``, ``compare`` and ``hindsight``."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jointmdp.ground.errors import ModelError, NoiseWarning
from jointmdp.show.cli.command_parts import (
    complete_model,
    in_one_line,
    minimise_option,
    model_and_policy,
    model_options,
    named_or_numbered,
    policy_from,
    sharing_option,
)

if TYPE_CHECKING:
    from jointmdp.exact.hindsight.hindsight import Hindsight, Hindsights
    from jointmdp.simulation.simulators.simulator import Simulator

SIMULATORS = (
    "SIMULATOR is gymnasium:ID, gymnax:ID or atari:GAME, with settings after commas "
    "(gymnasium:FrozenLake-v1,map_name=8x8), or a built-in model (see: jointmdp list)."
)


@click.command(epilog=SIMULATORS, short_help="Whether a simulator's common random numbers are common.")
@click.argument("simulator", shell_complete=complete_model)
@click.option("--seed", default=0, show_default=True, help="Of all that is drawn.")
@click.option("--json", is_flag=True, help="Print the report as JSON.")
@click.option("--strict", is_flag=True, help="Warnings count as failures.")
@click.option("--seconds", default=60.0, show_default=True, help="Time that the audit may take.")
@click.pass_context
def audit(context: click.Context, simulator: str, seed: int, json: bool, strict: bool, seconds: float) -> None:
    """Whether a simulator can be asked for several actions under the same noise.

    The exit status is 0 if it passed, 1 if it failed, and 2 if it, or part of it, could not be audited.

    \b
    Examples:
      jointmdp audit gymnasium:FrozenLake-v1
      jointmdp audit gymnasium:LunarLander-v3 --json
      jointmdp audit gymnax:Catch-bsuite --strict
      jointmdp audit gymnasium:Humanoid-v5 --seconds 20
    """
    from jointmdp.decisions.auditor import audit as run
    from jointmdp.ground.files import to_json
    from jointmdp.simulation.simulators.registry import open_named

    try:
        opened, policy = open_named(simulator)
        report = run(opened, policy=policy, seed=seed, seconds=seconds)
    except Exception as error:  # whatever an environment raises while it is made
        is_ours = isinstance(error, ModelError | ImportError | OSError)
        words = " ".join((str(error) if is_ours else f"{type(error).__name__}: {error}").split())
        found = {"simulator": simulator, "is_ok": None, "error": words}
        click.echo(to_json(found) if json else f"Error: {words}", err=not json)
        context.exit(2)
    click.echo(report.to_json() if json else str(report))
    context.exit(report.exit_status(strict))


@click.command(epilog=SIMULATORS, short_help="Which first action gives more, and how sure.")
@click.argument("simulator", shell_complete=complete_model)
@click.option("--policy", help="After the first action: default (the model's own), uniform, or one action for ever.")
@click.option("--state", help="Name or number of a state, where states have them. [where a seed begins]")
@click.option("--after", type=int, default=0, help="Begin after this many steps under the policy instead.")
@click.option("--actions", help="First actions to compare, by name or number: left,right. [all that are available]")
@sharing_option("as it says itself")
@click.option("--discount", type=float, help="[as it says itself; 1 for environments]")
@click.option("--horizon", type=int, help="The first T steps only. [until the episode ends]")
@click.option("--half-width", type=float, help="Go on until every difference is known to ± this.")
@click.option("--indifference", type=float, help="Differences up to this do not matter.")
@click.option("--confidence", default=0.95, show_default=True, help="Of all intervals together.")
@click.option("--max-replications", default=100_000, show_default=True, help="Stop here at the latest.")
@click.option("--seconds", type=float, help="Stop after about this long.")
@minimise_option
@click.option("--other-sharing", is_flag=True, help="Sample the other kind of sharing too, for its deviations.")
@click.option("--seed", default=0, show_default=True, help="Of all that is drawn.")
@click.option("--executor", help="Where replications are made: serial, processes:4, ray. [serial]")
@click.option("--address", help="Of the Ray cluster, with --executor ray.")
@click.option("--figure", type=click.Path(path_type=Path), help="Draw the comparison into this file.")
@click.option("--json", is_flag=True, help="Print the comparison as JSON.")
@in_one_line
def compare(  # many parameters: one for each option of the command
    simulator: str,
    policy: str | None,
    state: str | None,
    after: int,
    actions: str | None,
    seed: int,
    executor: str | None,
    address: str | None,
    figure: Path | None,
    json: bool,
    **settings: Any,
) -> None:
    """Which first action gives more here, under the same noise, and how sure one can be.

    \b
    Examples:
      jointmdp compare inventory --state "stock 4" --actions "order 0,order 4,order 5"
      jointmdp compare gymnasium:FrozenLake-v1 --state 14 --actions down,right
      jointmdp compare gusty-cartpole --after 10 --executor processes
    """
    from jointmdp.decisions.comparing.compare import compare as run
    from jointmdp.simulation.simulators.registry import open_named

    opened, default = open_named(simulator)
    followed: Any = default
    if policy not in (None, "default"):
        followed = policy if policy == "uniform" else _action(opened, policy)
    if state is not None and after:
        raise ModelError("--state and --after both say where to begin; give one of them")
    begin = opened.walk(followed, after, seed) if state is None else _state(opened, state)
    if opened.is_over(begin):
        raise ModelError(f"the episode is over in this state of {opened.name}; begin earlier (--after) or elsewhere")
    chosen = None if actions is None else [_action(opened, text.strip()) for text in actions.split(",")]
    if address is not None:
        if executor != "ray":
            raise ModelError("--address is that of a Ray cluster; give --executor ray with it")
        executor = f"ray:{address}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoiseWarning)  # they stand in the answer
        settings["minimise"] = bool(settings["minimise"])
        found = run(opened, followed, begin, chosen, seed=seed, executor=executor, **settings)
    click.echo(found.to_json() if json else str(found))
    if figure is not None:
        from jointmdp.show.plots import style

        click.echo(f"Figure: {style.save(found.figure(), figure)}", err=json)


def _action(simulator: Simulator, text: str) -> Any:
    """An action as `compare` takes it: by its name, or by what the environment calls it."""
    return simulator.action_value(named_or_numbered(text, simulator.action_names, simulator.action_index))


def _state(simulator: Simulator, text: str) -> Any:
    at = getattr(simulator, "at", None)
    if at is None:
        raise ModelError(
            f"the states of {simulator.name} have no names; begin where a --seed does, or --after some steps"
        )
    return named_or_numbered(text, getattr(getattr(simulator, "model", None), "state_names", None), at)


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
@click.option(
    "--but", multiple=True, metavar="STEP=ACTION", help="The log but for an action at a step; may be repeated."
)
@click.option("--best", is_flag=True, help="What should have been done?")
@click.option("--changes", help="With --best: how many actions may be unlike the log's, or any. [1]")
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
    but: tuple[str, ...],
    best: bool,
    changes: str | None,
    start: str,
    ended: bool,
    out: Path | None,
    json: bool,
    **settings: Any,
) -> None:
    """What another action would have given, on the very noise that was seen, or what should have been done.

    The file has a row for each step, in the order of time, with the columns state, action and, where known, reward and
    scenario. A last row without an action holds the last state. A column episode tells several trajectories apart.

    \b
    Examples:
      jointmdp hindsight inventory --trajectory log.csv --action "order 5"
      jointmdp hindsight inventory --trajectory log.csv --action "order 5" --start each --out switch.png
      jointmdp hindsight mine.npz --trajectory log.csv --other-policy careful.csv --json
      jointmdp hindsight inventory --trajectory log.csv --but "1=order 5" --but "2=order 4"
      jointmdp hindsight inventory --trajectory log.csv --best --changes 2
    """
    from jointmdp.exact.hindsight.best_in_hindsight import best_in_hindsight
    from jointmdp.exact.hindsight.hindsight import Hindsights
    from jointmdp.exact.hindsight.hindsight import hindsight as look_back
    from jointmdp.exact.hindsight.logged_trajectories import Trajectory
    from jointmdp.ground.files import to_json
    from jointmdp.model.joint_mdp import JointMDP
    from jointmdp.show.report.terminal_tables import interval, print_hindsight, print_hindsights

    settings = {key: value for key, value in settings.items() if value is not None}
    if best and (action is not None or other_policy is not None or but or start != "0"):
        raise ModelError(
            "--best finds what should have been done; leave --action, --other-policy, --but and --start out"
        )
    if changes is not None and not best:
        raise ModelError("--changes says how many actions may be unlike the log's, and goes with --best")
    if changes is not None and changes != "any" and not changes.isdecimal():
        raise ModelError(f"--changes is {changes!r}; give a number, or any")
    found, policy, remark = model_and_policy(model, settings)
    solution = None
    if not isinstance(found, JointMDP):
        solution, policy, found = found, found.policy, found.model
    seen = Trajectory.read(trajectory, found, ended=ended)
    if start != "each" and not start.isdecimal():
        raise ModelError(f"--start is {start!r}; give the number of a step, or each")
    other = None if other_policy is None else policy_from(found, other_policy)

    def index(text: str) -> Any:
        return named_or_numbered(text, found.action_names, found.action_index)

    asked, horizon = seen[0] if len(seen) == 1 else seen, settings.get("horizon")
    answer: Any
    if best:
        most = None if changes == "any" else int(changes or 1)
        answer = best_in_hindsight(found, asked, most, policy=policy, horizon=horizon, solution=solution)
    else:
        answer = look_back(
            found,
            policy,
            asked,
            None if action is None else index(action),
            other_policy=other,
            but={step: index(instead) for step, instead in map(_step_and_action, but)} or None,
            start="each" if start == "each" else int(start),
            horizon=horizon,
            solution=solution,
        )
    if json:
        click.echo(to_json({"model": model, "remarks": [remark], **_as_rows(answer)}))
    elif isinstance(answer, Hindsights):
        print_hindsights(answer.table(), [f"{answer!r}", remark, COMPUTED])
    else:
        gap = answer.gap
        words = (
            f"Gap, other minus seen: {gap.mean:.6g} ± {gap.std:.6g}; more with probability "
            f"{interval(gap.superiority(), 3)}, the same with {interval(gap.tie(), 3)}. The other gives "
            f"{answer.other_return.mean:.6g}, the seen one {answer.seen_return.mean:.6g}, with what is still to come."
        )
        title = f"{gap.action} instead of {gap.other} at step {answer.start}, in {gap.state}"
        said = [f"{answer!r}"] if best else []
        print_hindsight(answer.table(), title, [*said, words, MEANING, remark, COMPUTED])
    if out is not None:
        from jointmdp.show.plots import result_plots, style

        draw = result_plots.hindsight_starts if isinstance(answer, Sequence) else result_plots.hindsight_path
        click.echo(f"{style.save(draw(answer), out)}: the figure", err=json)


def _step_and_action(text: str) -> tuple[int, str]:
    step, is_said, action = text.partition("=")
    if not is_said or not step.strip().isdecimal():
        raise ModelError(f'--but is {text!r}; give a step and an action, such as "1=order 5"')
    return int(step), action.strip()


def _as_rows(answer: Hindsight | Hindsights) -> dict[str, Any]:
    """What ``--json`` prints."""
    from jointmdp.ground.answers import flat

    if isinstance(answer, Sequence):
        return {"gaps": [flat(row) for row in answer.table()]}
    better = answer.gap.superiority()
    more = {
        "better_lower": better.lower,
        "better_upper": better.upper,
        "other_return": answer.other_return.mean,
        "seen_return": answer.seen_return.mean,
    }
    return {"steps": answer.table(), "gap": {**flat(answer.gap.table()[0]), **more}}
