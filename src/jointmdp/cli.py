"""The command line. Heavy imports wait until a command needs them, so that ``--help`` answers at once."""

import click

from jointmdp import __version__


@click.group()
@click.version_option(__version__, prog_name="jointmdp")
def main() -> None:
    """What would the other actions have brought, under the same luck?"""


@main.command()
@click.option("--stock", default=4, show_default=True, help="Units on the shelf this morning.")
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")
def demo(stock: int, as_json: bool) -> None:
    """How much to order today: one decision of an inventory, compared under three kinds of luck."""
    from jointmdp.demo import compare_orders, print_comparison, to_json
    from jointmdp.errors import ModelError

    try:
        comparison = compare_orders(stock)
    except ModelError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(to_json(comparison))
    else:
        print_comparison(comparison)


if __name__ == "__main__":
    main()
