"""How far slow work is: a bar where a person is watching, a plain line now and then where nobody is.

Both go to the standard error, so that what a command prints for scripts stays as it is. ``JOINTMDP_PROGRESS=0`` turns
both off; ``JOINTMDP_PROGRESS=30`` gives a line every 30 seconds where there is no terminal.
"""

from __future__ import annotations

import math
import os
import sys
import time
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from rich.progress import Progress

PATIENCE = 2.0  # seconds of silence before the bar appears
FIRST_LINE = 10.0  # seconds before the first line of a log,
GROWTH = 1.5  # each pause as many times the one before,
LONGEST = 60.0  # up to this


class Meter:
    """``with Meter("solving") as meter: meter.update(0.3, "error 1e-5")``; costs next to nothing.

    A meter inside of another one that shows something is silent: a terminal has room for one. Work that ends after
    `seconds` whatever is done until then says so to the meters inside of it too.
    """

    _shown: ClassVar[Meter | None] = None
    _open: ClassVar[list[Meter]] = []

    def __init__(self, title: str, seconds: float = math.inf) -> None:
        self.title = title
        self.started = time.monotonic()
        self.deadline = self.started + seconds
        self.pause = line_pause()
        self.is_watched = sys.stderr.isatty() and self.pause > 0
        self._bar: Progress | None = None
        self._next = self.started + min(self.pause, FIRST_LINE)

    def __enter__(self) -> Meter:
        Meter._open.append(self)
        return self

    def update(self, fraction: float, text: str = "") -> None:
        """Report the fraction done so far and what it means; the time left is estimated from it."""
        now = time.monotonic()
        if Meter._shown not in (None, self) or self.pause == 0 or not self.title:
            return
        if self.is_watched:
            if now - self.started >= PATIENCE:
                self._show(fraction, self._told(now, fraction, text))
        elif now >= self._next:
            Meter._shown = self
            told = self._told(now, fraction, text)
            print(f"{self.title}: {told}, {duration(now - self.started)} so far", file=sys.stderr, flush=True)
            self._next = now + min(self.pause, max(FIRST_LINE, (GROWTH - 1) * (now - self.started)))

    def _told(self, now: float, fraction: float, text: str) -> str:
        """What is done, and how long the rest takes; never longer than somebody is willing to wait."""
        done = min(max(fraction, 0.0), 1.0)
        until = min(meter.deadline for meter in [*Meter._open, self])
        if now >= until:
            return f"{text}{', ' * bool(text)}the time is up: what is under way is finished"
        left = min((now - self.started) * (1 - done) / done if done > 0 else math.inf, until - now)
        return f"{text}{', ' * bool(text)}{duration(left)} left" if math.isfinite(left) else text

    def _show(self, fraction: float, text: str) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"))
            self._bar = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
            Meter._shown = self
            self._bar.start()
            self._bar.add_task(self.title, total=1.0, text="")
        self._bar.update(self._bar.task_ids[0], completed=min(max(fraction, 0.0), 1.0), text=text)

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        if Meter._shown is self:
            Meter._shown = None
        if self in Meter._open:
            Meter._open.remove(self)


def line_pause() -> float:
    """Seconds between two lines of a log, at most; 0: no progress is shown at all."""
    said = os.environ.get("JOINTMDP_PROGRESS", "").strip().lower()
    if said in ("0", "no", "off", "false"):
        return 0.0
    try:
        return max(float(said), 0.0)
    except ValueError:
        return LONGEST


def duration(seconds: float) -> str:
    """A time in words of a watch: 45 s, 12 min, 3.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
