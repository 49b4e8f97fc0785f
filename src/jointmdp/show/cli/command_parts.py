"""What all commands share: failing in one line, options, and models, policies, states and actions from text."""

from __future__ import annotations

import csv
import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from jointmdp.ground.errors import ModelError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from jointmdp.exact.solution.solution import Solution
    from jointmdp.model.joint_mdp import JointMDP


def in_one_line(command: Callable[..., None]) -> Callable[..., None]:
    """Bad input, missing files and missing extras are one line and exit code 1, not a traceback."""

    @functools.wraps(command)
    def wrapped(*args: Any, **options: Any) -> None:
        try:
            command(*args, **options)
        except (ModelError, ImportError) as error:
            raise click.ClickException(" ".join(str(error).split())) from None
        except OSError as error:
            words = f"{error.filename}: {error.strerror}" if error.filename else f"{error}"
            raise click.ClickException(words) from None

    return wrapped


def complete_model(context: click.Context, parameter: click.Parameter, text: str) -> list[CompletionItem]:
    """The names of built-in models that begin like this; a file if there is none."""
    from jointmdp.simulation.simulators.registry import MODELS

    found = [CompletionItem(name, help=entry.description) for name, entry in MODELS.items() if name.startswith(text)]
    return found or [CompletionItem(text, type="file")]


def sharing_option(default: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option ``--sharing``."""
    kinds = click.Choice(["state", "time", "none"])
    return click.option("--sharing", type=kinds, help=f"Which branches share the noise. [{default}]")


def minimise_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option ``--minimise``."""
    words = "Rewards are costs: lower is better, and a difference says how much less an action costs."
    return click.option("--minimise", is_flag=True, default=None, help=words)(command)


def named_or_numbered(text: str, names: tuple[Any, ...] | None, index: Callable[[Any], Any]) -> Any:
    """`index` of a name, or else of a number; a state called "3" is meant before the state with that index."""
    is_number = text not in (names or ()) and text.removeprefix("-").isdecimal() and len(text) < 19
    return index(int(text) if is_number else text)


def model_options(command: Callable[..., None]) -> Callable[..., None]:
    """A model, and how it is evaluated."""
    options = (
        click.argument("model", shell_complete=complete_model),
        click.option(
            "--policy",
            help="default (the model's own), uniform, a .npy or .csv file, or one action per state: 0,1,1. "
            "Files hold [S, A] probabilities or [S] actions. A model from a file has no policy of its own: uniform.",
        ),
        sharing_option("as in the model"),
        click.option("--discount", type=float, help="Another discount; the policy stays. [as in the model]"),
        click.option(
            "--horizon", type=int, help="The first T steps only; the discount may then be 1. [an endless future]"
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def model_and_policy(text: str, changes: dict[str, Any]) -> tuple[JointMDP | Solution, ArrayLike | None, str]:
    """What the arguments name, and a remark on the policy; a solution from a file has its own."""
    from jointmdp.model.joint_mdp import JointMDP
    from jointmdp.model.policies import uniform_policy
    from jointmdp.show.saving import load
    from jointmdp.simulation.simulators import registry

    default: ArrayLike | None = None
    if text.partition(":")[0] in registry.MODELS:
        name, settings = registry.parse(text)
        model, default = registry.make_model(name, **settings)
    elif Path(text).is_file():
        found = load(text)
        if not isinstance(found, JointMDP):
            if changes:
                given = ", ".join(f"--{key}" for key in changes)
                raise ModelError(f"{text} holds a solution, which is evaluated already; {given} would need a model")
            from jointmdp.exact.solution.solution import Solution

            if not isinstance(found, Solution):
                raise ModelError(f"{text} holds a {type(found).__name__}; a model or a solution is needed")
            return found, None, "Policy: the one in the file."
        model = found
    else:
        names = ", ".join(registry.MODELS)
        raise ModelError(f"{text!r} is neither a built-in model nor a file; built in: {names}")
    if "sharing" in changes:
        model = model.with_sharing(changes["sharing"])
    if "discount" in changes:
        model = model.with_discount(changes["discount"])
    wanted = changes.get("policy", "default")
    policy, remark = default, "the model's own"
    if wanted not in ("default", "uniform"):
        policy, remark = policy_from(model, wanted), wanted
    elif wanted == "uniform" or default is None:
        policy, remark = uniform_policy(model), "uniform" if wanted == "uniform" else "uniform, as the file holds none"
    return model, policy, f"Policy: {remark}."


def policy_from(model: JointMDP, text: str) -> ArrayLike:
    """A policy from a file or from one action per state, by index or name."""
    import numpy as np

    if text.endswith(".npy"):
        try:
            array: ArrayLike = np.load(text, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise ModelError(f"{text} is not an array that can be read: {error}") from None
        return array
    if text.endswith(".csv"):
        try:
            with open(text, newline="", encoding="utf-8") as file:
                rows = [[entry.strip() for entry in row] for row in csv.reader(file) if row]
        except (UnicodeDecodeError, csv.Error) as error:
            raise ModelError(f"{text} is not a table that can be read: {error}") from None
        if not rows or len({len(row) for row in rows}) > 1:
            raise ModelError(f"{text} must hold rows of equal length: [S, A] probabilities, or one action per state")
        if len(rows[0]) > 1 and (len(rows) > 1 or model.num_states == 1):
            try:
                return [[float(entry) for entry in row] for row in rows]
            except ValueError as error:
                raise ModelError(f"{text} must hold numbers, [S, A] probabilities: {error}") from None
        entries = [entry for row in rows for entry in row]
    else:
        entries = [entry.strip() for entry in text.split(",")]
        if len(entries) == 1 and model.num_states > 1:
            raise ModelError(f"policy {text!r} is not default, uniform, a .npy or .csv file or one action per state")
    return [named_or_numbered(entry, model.action_names, model.action_index) for entry in entries]
