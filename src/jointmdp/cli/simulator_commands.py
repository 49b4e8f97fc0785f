"""The commands that ask simulators: ``jointmdp audit`` and ``jointmdp compare``."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jointmdp.cli.command_parts import complete_model, in_one_line, named_or_numbered, sharing_option
from jointmdp.errors import ModelError, NoiseWarning

if TYPE_CHECKING:
    from jointmdp.simulators.simulator import Simulator

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

    The exit status is 0 if it passed, 1 if it failed, and 2 if it could not be audited.

    \b
    Examples:
      jointmdp audit gymnasium:FrozenLake-v1
      jointmdp audit gymnasium:LunarLander-v3 --json
      jointmdp audit gymnax:Catch-bsuite --strict
      jointmdp audit gymnasium:Humanoid-v5 --seconds 20
    """
    from jointmdp.auditor import audit as run
    from jointmdp.envs.registry import open_named
    from jointmdp.files.strict_json import to_json

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
    from jointmdp.comparing.compare import compare as run
    from jointmdp.envs.registry import open_named

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
        found = run(opened, followed, begin, chosen, seed=seed, executor=executor, **settings)
    click.echo(found.to_json() if json else str(found))
    if figure is not None:
        from jointmdp.report.plots import style

        click.echo(f"Figure: {style.save(found.figure(), figure)}", err=json)


def _action(simulator: Simulator, text: str) -> Any:
    return named_or_numbered(text, simulator.action_names, simulator.action_index)


def _state(simulator: Simulator, text: str) -> Any:
    at = getattr(simulator, "at", None)
    if at is None:
        raise ModelError(
            f"the states of {simulator.name} have no names; begin where a --seed does, or --after some steps"
        )
    return named_or_numbered(text, getattr(getattr(simulator, "model", None), "state_names", None), at)
