"""The command line. Heavy imports wait until a command needs them, so that ``--help`` answers at once."""

import importlib

import click
from click.shell_completion import get_completion_class

from jointmdp.show.cli import model_commands, simulator_commands

SHELLS = ("bash", "zsh", "fish")


@click.group(context_settings={"auto_envvar_prefix": "JOINTMDP", "help_option_names": ["-h", "--help"]})
@click.version_option(package_name="jointmdp")
def main() -> None:
    """What would the other actions have brought, under the same luck?

    \b
    Examples:
      jointmdp demo
      jointmdp evaluate inventory --state "stock 4"
      jointmdp compare gymnasium:FrozenLake-v1 --state 14

    Every option can be given as a variable: JOINTMDP_COMPARE_SEED=7 is compare --seed 7.
    """


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that completes commands, options and names of models in a shell.

    \b
    Examples:
      eval "$(jointmdp completion bash)"
      jointmdp completion fish > ~/.config/fish/completions/jointmdp.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(main, {}, "jointmdp", "_JOINTMDP_COMPLETE").source())


class Experiments(click.Group):
    """The commands of `jointmdp_experiments`, a package that is installed apart and loaded when one is asked for."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Their names."""
        return _experiments().list_commands(context)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """One of them."""
        return _experiments().get_command(context, name)


def _experiments() -> click.Group:
    try:
        found: click.Group = importlib.import_module("jointmdp_experiments.commands").reproduce
    except ModuleNotFoundError as error:
        if error.name not in ("jointmdp_experiments", "jointmdp_experiments.commands"):
            raise click.ClickException(str(error)) from None
        raise click.ClickException(
            "the paper's experiments are a package of their own, which is not installed: pip install "
            "'jointmdp[experiments]', or ./experiments in a copy of the repository"
        ) from None
    return found


@click.group(cls=Experiments)
def reproduce() -> None:
    """The paper's experiments: figures, the numbers behind them, and what is seen.

    \b
    Examples:
      jointmdp reproduce tabular
      jointmdp reproduce all --quick
    """


for command in (
    simulator_commands.audit,
    simulator_commands.compare,
    model_commands.demo,
    model_commands.evaluate,
    simulator_commands.hindsight,
    model_commands.list_models,
    completion,
    model_commands.report,
    reproduce,
):
    main.add_command(command)
