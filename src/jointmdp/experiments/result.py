"""What an experiment hands back: a figure, the numbers behind it, and what is seen in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jointmdp.checks import Sharing
from jointmdp.files.atomic_write import write_csv, write_text
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
class FigureResult:
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
        write_csv(folder / f"{self.name}.csv", self.rows)
        picture = f"![{self.title}]({self.name}.png)"
        write_text(folder / f"{self.name}.md", f"# {self.title}\n\n{picture}\n\n{self.text}\n")
