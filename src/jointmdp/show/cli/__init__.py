"""The command line. Heavy imports wait until a command needs them, so that ``--help`` answers at once."""

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


for command in (
    simulator_commands.audit,
    simulator_commands.compare,
    model_commands.demo,
    model_commands.evaluate,
    simulator_commands.hindsight,
    model_commands.list_models,
    completion,
    model_commands.report,
    model_commands.reproduce,
):
    main.add_command(command)
