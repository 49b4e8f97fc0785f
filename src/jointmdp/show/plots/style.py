"""How every picture looks: sizes, colours and lines that stay distinct in grey and for colour-blind eyes.

Figures are made with matplotlib's objects and the Agg canvas, never through pyplot: nothing global changes, nothing
needs a display, and no figure stays in memory after its last reference.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

from jointmdp.ground.files import make_folder, write_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Drawing = TypeVar("Drawing", bound=Callable[..., Any])

# Okabe and Ito's palette, black first; the pale yellow, invisible on white, is left out.
PALETTE = ["#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"]
# One line style and one marker per colour, so that curves differ in more than their colour.
LINES: list[Any] = ["-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (1, 1))]
MARKERS = ["o", "s", "^", "D", "v", "P", "X"]
GREY = "#767676"  # for grids, notes and what is not the point
PAPER = "#F2F2F2"  # a light ground

DPI = 200
FONT_SIZE = 9.0
SMALL = 8.0
WIDTH, HEIGHT = 3.4, 2.6  # inches for one panel: about one column of a two-column page
SETTINGS: dict[Any, Any] = {
    "font.size": FONT_SIZE,
    "axes.titlesize": FONT_SIZE,
    "axes.labelsize": FONT_SIZE,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
}


def context() -> AbstractContextManager[None]:
    """Our sizes and fonts, for as long as the block lasts: draw inside, as matplotlib reads most of them late.

    ``with style.context(): fig, ax = style.figure(); ax.plot(...); ax.legend()``
    """
    try:
        import matplotlib
    except ImportError:
        raise ImportError(
            "pictures need matplotlib, which is not installed: pip install 'jointmdp[plots]' (the extra plots)"
        ) from None
    return matplotlib.rc_context(SETTINGS)


def line(i: int) -> dict[str, Any]:
    """Colour, line style and marker of the i-th curve, as keyword arguments of ``axes.plot``."""
    n = i % len(PALETTE)
    return {"color": PALETTE[n], "linestyle": LINES[n], "marker": MARKERS[n]}


def points(i: int) -> dict[str, Any]:
    """The i-th series of points, as keyword arguments of ``axes.errorbar``."""
    return {**line(i), "linestyle": "none", "capsize": 3}


def figure(columns: int = 1, rows: int = 1, width: float = WIDTH, height: float = HEIGHT) -> tuple[Figure, Any]:
    """A figure of ``rows × columns`` panels, each `width` by `height` inches.

    Returns:
        The figure, and its axes: one `Axes` when there is one panel, else an array as ``Figure.subplots`` gives it.
    """
    with context():
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        fig = Figure(figsize=(columns * width, rows * height), layout="constrained", facecolor="white")
        FigureCanvasAgg(fig)
        axes = fig.subplots(rows, columns)
    return fig, axes


def in_our_style(draw: Drawing) -> Drawing:
    """Our fonts and lines while a function draws, whoever made the axes."""

    @wraps(draw)
    def drawn(*given: Any, **named: Any) -> Any:
        with context():
            return draw(*given, **named)

    return cast("Drawing", drawn)


def axes_or_own(ax: Axes | None, width: float, height: float) -> Axes:
    """The axes given, or those of a new figure."""
    return figure(width=width, height=height)[1] if ax is None else ax


def save(fig: Figure | Axes, path: str | os.PathLike[str]) -> Path:
    """Write a figure, or the one that axes are part of, as a PNG of 200 dots per inch.

    A reader finds the old file or the new one, never a part; a disk that is full is a `ModelError` that says so. A
    figure's own ``savefig`` is matplotlib's, with its errors and whatever it has written until then.
    """
    target, drawn = Path(path), cast("Figure", getattr(fig, "figure", fig))
    make_folder(target.parent)

    def fill(file: IO[bytes]) -> None:
        # Without the version of matplotlib in it, the same picture is the same file.
        with context():
            drawn.savefig(file, format="png", dpi=DPI, metadata={"Software": None})

    write_file(target, fill)
    return target
