"""``jointmdp reproduce``: every experiment writes a folder, and says what is seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jointmdp.ground.files import to_json
from jointmdp.show.cli.command_parts import in_one_line

if TYPE_CHECKING:
    from jointmdp_experiments.result import FigureResult

Command = Callable[..., None]


@click.group()
def reproduce() -> None:
    """The paper's experiments: figures, the numbers behind them, and what is seen."""


def _command(name: str, quick: str = "", folder: str = "") -> Callable[[Command], click.Command]:
    """A command with the options that all of them have; `quick` says what the short run of one that has it is."""
    folder = folder or f"results/{name}"
    options = [
        click.option(
            "--out", default=folder, show_default=True, type=click.Path(path_type=Path), help="Folder to write."
        ),
        *([click.option("--quick", is_flag=True, help=quick)] if quick else []),
        click.option("--json", is_flag=True, help="Print what was written as JSON."),
    ]

    def made(run: Command) -> click.Command:
        wrapped = in_one_line(run)
        for option in reversed(options):
            wrapped = option(wrapped)
        return reproduce.command(name)(wrapped)

    return made


@_command("tabular")
def tabular(out: Path, json: bool) -> None:
    """Every tabular figure of the paper, and what lies beyond them, under all three kinds of sharing: a few minutes.

    \b
    Examples:
      jointmdp reproduce tabular
      jointmdp reproduce tabular --out figures --json
    """
    from jointmdp_experiments.tabular_figures import reproduce as run

    _told(run(out, _announce), out, json)


@_command("projected", "Small grids and few features: a minute instead of half an hour.")
def projected(out: Path, quick: bool, json: bool) -> None:
    """Projected JIPE-2 on gridworlds: which weighting and which constraint, over the number of features.

    \b
    Examples:
      jointmdp reproduce projected --quick
      jointmdp reproduce projected --out figures --json
    """
    from jointmdp_experiments.projected_figures import reproduce as run

    _told(run(out, _announce, quick), out, json)


@_command("atari", "One game, few queries: two minutes that show that everything works.")
def atari(out: Path, quick: bool, json: bool) -> None:
    """Neural JIPE-2 on Atari games beside the emulator: about two hours on two cores.

    What is recorded, simulated and trained is kept in the folder: a run that was stopped goes on from there.

    \b
    Examples:
      jointmdp reproduce atari --quick
      jointmdp reproduce atari --out atari
    """
    from jointmdp_experiments.atari_figures import reproduce as run

    _told(run(out, _announce, quick), out, json)


@_command("all", "Quick runs of linear features and of Atari.", folder="results")
def everything(out: Path, quick: bool, json: bool) -> None:
    """All of the paper: the tabular figures, linear features, and Atari, each in a folder of its own.

    \b
    Examples:
      jointmdp reproduce all --quick
    """
    for name, settings in (("tabular", {}), ("projected", {"quick": quick}), ("atari", {"quick": quick})):
        click.get_current_context().invoke(reproduce.commands[name], out=out / name, json=json, **settings)


def _announce(words: str) -> None:
    click.echo(f"{words} …", err=True)


def _told(done: Sequence[FigureResult], out: Path, json: bool) -> None:
    if json:
        rows: list[dict[str, Any]] = [
            {"name": r.name, "title": r.title, "text": r.text, "rows": len(r.rows)} for r in done
        ]
        click.echo(to_json({"folder": str(out), "figures": rows}))
        return
    for result in done:
        click.echo(f"\n{result.title}\n\n{result.text}")
    click.echo(f"\nFigures, numbers and one page with all of it: {out / 'README.md'}")
