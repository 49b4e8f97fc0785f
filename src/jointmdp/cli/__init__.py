"""The command line. Heavy imports wait until a command needs them, so that ``--help`` answers at once."""

import click

from jointmdp.cli import model_commands, simulator_commands


@click.group()
@click.version_option(package_name="jointmdp")
def main() -> None:
    """What would the other actions have brought, under the same luck?"""


for command in (
    simulator_commands.audit,
    simulator_commands.compare,
    model_commands.demo,
    model_commands.evaluate,
    model_commands.list_models,
    model_commands.report,
    model_commands.reproduce,
):
    main.add_command(command)
