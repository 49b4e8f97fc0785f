"""The commands about models: ``jointmdp demo``, ``evaluate``, ``list`` and ``report``.

With ``evaluate --distributed`` every process runs the same command, and they solve one model together.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jointmdp.ground import lost_processes
from jointmdp.ground.errors import ConvergenceWarning, LostProcessError, ModelError
from jointmdp.ground.limits import Limits
from jointmdp.show.cli.command_parts import (
    in_one_line,
    minimise_option,
    model_and_policy,
    model_options,
    named_or_numbered,
)

if TYPE_CHECKING:
    from jointmdp.exact.moments.column_blocks import Sharded
    from jointmdp.exact.solution.solution import Solution


LAUNCHERS = "Slurm, Open MPI, TPU and Kubernetes are recognised"
HEARTBEAT = 100  # seconds without a sign of life after which a process counts as gone; JAX's own default


@dataclass
class Joined:
    """What the options say of the processes."""

    distributed: bool
    coordinator: str | None
    processes: int | None
    process: int | None
    checkpoint: str | None
    checkpoint_seconds: float
    is_first: bool = True

    def method(self) -> Sharded | None:
        """How the processes solve; None for the default method of one."""
        if not self.distributed:
            return None
        from jointmdp.exact.moments.column_blocks import Sharded

        return Sharded(checkpoint=self.checkpoint, checkpoint_seconds=self.checkpoint_seconds)


def process_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of several processes, which the command gets as one `Joined`."""

    @functools.wraps(command)
    def wrapped(**options: Any) -> None:
        ours = {each.name: options.pop(each.name) for each in fields(Joined) if each.name in options}
        command(processes=Joined(**ours), **options)

    options = (
        click.option(
            "--distributed", is_flag=True, help="One of several processes that solve together; see several-hosts.md."
        ),
        click.option("--coordinator", metavar="HOST:PORT", help="Where process 0 is met. [as the launcher says]"),
        click.option("--processes", type=click.IntRange(1), help="How many there are. [as the launcher says]"),
        click.option("--process", type=click.IntRange(0), help="Which one this is, from 0. [as the launcher says]"),
        click.option("--checkpoint", type=click.Path(), help="A folder to save the run in and to go on from."),
        click.option("--checkpoint-seconds", default=300.0, show_default=True, help="Seconds between two savings."),
    )
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped


@contextlib.contextmanager
def joined(options: Joined) -> Iterator[None]:
    """Joins the other processes, and leaves them at the end; without ``--distributed``, nothing.

    A process that cannot go on ends at once: at Python's ordinary end JAX would wait for the others, and these for it.
    """
    if not options.distributed:
        for name in ("coordinator", "processes", "process", "checkpoint"):
            if getattr(options, name) is not None:
                raise ModelError(f"--{name} is for --distributed")
        yield
        return
    import jax

    with _quiet_output():
        _initialize(options)
        options.is_first = jax.process_index() == 0
        try:
            yield
            jax.distributed.shutdown()  # type: ignore[no-untyped-call]
        except ModelError:  # all processes have it, or none
            jax.distributed.shutdown()  # type: ignore[no-untyped-call]
            raise
        except LostProcessError:
            _end()
        except BaseException:
            click.echo(traceback.format_exc(), err=True)
            _end()


def _initialize(options: Joined) -> None:
    import jax

    settings: dict[str, Any] = {"jax_cpu_collectives_implementation": "gloo"}
    if hasattr(jax.config, "jax_enable_preemption_service"):
        settings["jax_enable_preemption_service"] = False  # it would keep SIGTERM from ending the process
    for name, value in settings.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call]
    # JAX ends the program where the others do not come.
    words = lost_processes.LastWords(
        "Error: the other processes of the distributed run did not come; start all of them, with the same "
        "--coordinator and --processes, each with a --process of its own"
    )
    try:
        jax.distributed.initialize(
            options.coordinator, options.processes, options.process, heartbeat_timeout_seconds=HEARTBEAT
        )
    except (RuntimeError, ValueError, TypeError) as error:
        raise ModelError(
            f"the processes cannot be joined ({error}). {LAUNCHERS}; elsewhere give --coordinator HOST:PORT, "
            "--processes N and --process I, or the variables JOINTMDP_EVALUATE_COORDINATOR and so on"
        ) from None
    finally:
        words.tell("")
        words.speak()


def _end() -> None:
    lost_processes.speak()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


@contextlib.contextmanager
def _quiet_output() -> Iterator[None]:
    """Inside, what libraries print on standard output goes to standard error: standard output is for the answer."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


# -- the commands ---------------------------------------------------------------------------------------------------


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
