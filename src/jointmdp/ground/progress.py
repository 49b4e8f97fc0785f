"""A progress bar that appears only when a person is watching and the work is slow."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from rich.progress import Progress

PATIENCE = 2.0  # seconds of silence before the bar appears


class Meter:
    """``with Meter("solving") as meter: meter.update(0.3, "error 1e-5")``; costs nothing when nobody watches.

    A meter inside of another one that shows a bar is silent: a terminal has room for one.
    """

    _shown: ClassVar[Meter | None] = None

    def __init__(self, title: str) -> None:
        self.title = title
        self.started = time.monotonic()
        self.is_watched = sys.stderr.isatty()
        self._bar: Progress | None = None

    def __enter__(self) -> Meter:
        return self

    def update(self, fraction: float, text: str = "") -> None:
        """Report the fraction done so far and what it means; the time left is estimated from it."""
        is_hidden = Meter._shown not in (None, self)
        if not self.is_watched or is_hidden or time.monotonic() - self.started < PATIENCE:
            return
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"))
            self._bar = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
            Meter._shown = self
            self._bar.start()
            self._bar.add_task(self.title, total=1.0, text="")
        done = min(max(fraction, 0.0), 1.0)
        if done > 0:
            text = f"{text}{', ' * bool(text)}{duration((time.monotonic() - self.started) * (1 - done) / done)} left"
        self._bar.update(self._bar.task_ids[0], completed=done, text=text)

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            Meter._shown = None


def duration(seconds: float) -> str:
    """A time in words of a watch: 45 s, 12 min, 3.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
