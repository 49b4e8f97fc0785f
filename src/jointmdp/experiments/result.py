"""What an experiment hands back: a figure, the numbers behind it, and what is seen in it."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jointmdp.checks import Sharing
from jointmdp.errors import ModelError
from jointmdp.report import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARINGS: tuple[Sharing, ...] = ("state", "time", "none")
WORDS: dict[Sharing, str] = {
    "state": "luck shared in the same state",
    "time": "luck shared at all times",
    "none": "luck of their own",
}


@dataclass(frozen=True)
class Result:
    """One figure of the paper, redone."""

    name: str
    title: str
    text: str
    """What is seen, in a few sentences."""
    rows: list[dict[str, Any]]
    draw: Callable[[], Figure]

    def save(self, folder: Path) -> None:
        """Write ``name.png``, ``name.csv`` and ``name.md``."""
        with style.context():
            figure = self.draw()
        style.save(figure, folder / f"{self.name}.png")
        table = io.StringIO()
        writer = csv.DictWriter(table, fieldnames=list(self.rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        write_text(folder / f"{self.name}.csv", table.getvalue())
        picture = f"![{self.title}]({self.name}.png)"
        write_text(folder / f"{self.name}.md", f"# {self.title}\n\n{picture}\n\n{self.text}\n")


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise ModelError(f"cannot write {path}: {error.strerror}") from None
