"""Time while a simulator is probed: a clock that stands still for one thread.

A clock that stood still for ever would keep a step waiting that waits for it, so it moves on when it has been read very
often, in the same way each time. Whoever waits in another way (a lock, a socket, an event loop) sees the real time, and
is ended by the watchdog when the time of the probe is over.
"""

from __future__ import annotations

import datetime
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from jointmdp.ground.watchdog import WAITING
from jointmdp.simulation.watching.patched_functions import Disguise, Twins

PATIENT_READS = 1_000  # of one question, before the clock moves on
DAY = 90_061.0  # seconds by which a clock is moved on: a day, an hour, a minute and a second
TICK = 1e-3  # seconds by which it then moves at each read: waiting for a minute takes 60,000 of them
# Whose waiting goes by the real time: it would never end otherwise; and so does whoever probes.
REAL = WAITING | {"jointmdp"}
CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")


class StoppedClock:
    """A clock as one thread sees it; it begins anew with each question."""

    def __init__(self) -> None:
        self._began = {name: getattr(time, name)() for name in CLOCKS}
        self.ahead = 0.0  # seconds by which it is later of the day than it is
        self.rewind()

    def rewind(self) -> None:
        """Back to where it was stopped."""
        self._reads, self.slept = 0, 0.0

    def read(self, name: str) -> float:
        """The seconds of a clock of `time`."""
        self._reads += 1
        ahead = self.slept + self.ahead * (name == "time")  # whoever measures or waits is told nothing of it
        return float(self._began[name] + ahead + TICK * max(0, self._reads - PATIENT_READS))


_mine = threading.local()  # the clock that is stopped for a thread


def _stopped() -> StoppedClock | None:
    """The clock for the caller of whoever asks; None where that one sees the real time."""
    clock: StoppedClock | None = getattr(_mine, "clock", None)
    if clock is None or str(sys._getframe(2).f_globals.get("__name__", "")).partition(".")[0] in REAL:
        return None
    return clock


def _reading(name: str, plain: Callable[[], Any], is_whole: bool) -> Callable[[], Any]:
    def read() -> Any:
        clock = _stopped()
        if clock is None:
            return plain()
        seconds = clock.read(name)
        return int(seconds * 1e9) if is_whole else seconds

    return read


def _told(plain: Callable[..., Any]) -> Callable[..., Any]:
    """What says the time in words or parts, unless it is given one."""

    def read(*given: Any) -> Any:
        clock = _stopped()
        return plain(*given) if clock is None or given else plain(clock.read("time"))

    return read


def _sleep(seconds: float) -> None:
    clock = _stopped()
    _plain_sleep(seconds)
    if clock is not None:
        clock.slept += seconds


_plain_sleep, _plain_date = time.sleep, datetime.datetime


class _Date(_plain_date, metaclass=Disguise):  # type: ignore[misc, valid-type]
    is_twin = True

    def __new__(cls, *args: Any, **settings: Any) -> Any:
        return _plain_date(*args, **settings)

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        clock = _stopped()
        return _plain_date.now(tz) if clock is None else _plain_date.fromtimestamp(clock.read("time"), tz)

    @classmethod
    def utcnow(cls) -> Any:
        clock = _stopped()
        found = time.time() if clock is None else clock.read("time")
        return _plain_date.fromtimestamp(found, datetime.UTC).replace(tzinfo=None)

    today = now


_TWINS: list[tuple[Any, Any]] = [
    (plain, _reading(name.removesuffix("_ns"), plain, name.endswith("_ns")))
    for name, plain in vars(time).items()
    if name.removesuffix("_ns") in CLOCKS
]
_TWINS += [(plain, _told(plain)) for plain in (time.localtime, time.gmtime, time.ctime)]
_TWINS += [(time.sleep, _sleep), (datetime.datetime, _Date)]
_twins = Twins(lambda: _TWINS)


@contextmanager
def stopped_clock() -> Iterator[StoppedClock]:
    """The clocks of `time` and `datetime` stand still for this thread, wherever a module holds them."""
    clock = StoppedClock()
    with _twins:
        before, _mine.clock = getattr(_mine, "clock", None), clock
        try:
            yield clock
        finally:
            _mine.clock = before
