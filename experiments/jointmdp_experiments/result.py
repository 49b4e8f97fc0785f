"""What an experiment hands back: a figure, the numbers behind it, and what is seen in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jointmdp.ground.checks import SHARING_WORDS, SHARINGS, Sharing
from jointmdp.ground.errors import ModelError
from jointmdp.ground.files import write_csv, write_text
from jointmdp.show.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class FigureResult:
    """One figure of the paper, redone, or one beside them."""

    name: str
    title: str
    text: str
    """What is seen, in a few sentences."""
    rows: list[dict[str, Any]]
    draw: Callable[[], Figure]

    @property
    def page(self) -> str:
        """The picture and the text, in Markdown."""
        return f"{self.title}\n\n![{self.title}]({self.name}.png)\n\n{self.text}\n"

    def save(self, folder: Path) -> None:
        """Write ``name.png``, ``name.csv`` and ``name.md``."""
        with style.context():
            figure = self.draw()
        style.save(figure, folder / f"{self.name}.png")
        write_csv(folder / f"{self.name}.csv", self.rows)
        write_text(folder / f"{self.name}.md", f"# {self.page}")


def by_sharing(statement: Callable[[Sharing], str]) -> str:
    """A list with one statement for each kind of sharing."""
    return "\n".join(f"- {SHARING_WORDS[sharing]}: {statement(sharing)}" for sharing in SHARINGS)


def draw_agreement(ax: Axes, predicted: Any, simulated: Any, off: Any, words: str) -> None:
    """Points with the intervals of what was simulated, the line on which both agree, and the best constant."""
    ax.errorbar(predicted, simulated, off, fmt="o", markersize=3, elinewidth=0.7)
    span = [min(predicted.min(), simulated.min()), max(predicted.max(), simulated.max())]
    ax.plot(span, span, "--", color=style.GREY, linewidth=1, label="perfect")
    ax.axhline(float(simulated.mean()), color=style.GREY, linewidth=0.8, linestyle=":", label="best constant")
    ax.set(xlabel=f"predicted {words} of the gap", ylabel=f"simulated {words}, 95 % interval")


def save_all(folder: Path, title: str, results: Iterable[FigureResult]) -> list[FigureResult]:
    """Write every figure, its numbers and its text into `folder`, with one page that holds them all."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(f"cannot make the folder {folder}: {error.strerror}") from None
    done = []
    for result in results:
        result.save(folder)
        done.append(result)
    parts = [f"## {each.page}\nNumbers: [{each.name}.csv]({each.name}.csv)" for each in done]
    write_text(folder / "README.md", "\n\n".join([f"# {title}", *parts]) + "\n")
    return done
