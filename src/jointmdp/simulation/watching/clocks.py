"""Time while a simulator is probed: a clock that stands still for one thread, and an end to calls that do not return.

A clock that stood still for ever would keep a step waiting that waits for it, so it moves on when it has been read very
often, in the same way each time. Whoever waits in another way (a lock, a socket, an event loop) sees the real time, and
is ended by the `Watchdog` when the time of the probe is over.
"""

from __future__ import annotations

import ctypes
import datetime
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NamedTuple

from jointmdp.ground.errors import ModelError
from jointmdp.ground.progress import FIRST_LINE, LONGEST, duration, line_pause
from jointmdp.simulation.watching.twins import LIBRARIES, Disguise, Twins

PATIENT_READS = 1_000  # of one question, before the clock moves on
DAY = 90_061.0  # seconds by which a clock is moved on: a day, an hour, a minute and a second
TICK = 1e-3  # seconds by which it then moves at each read: waiting for a minute takes 60,000 of them
# Whose waiting goes by the real time: it would never end otherwise; and so does whoever probes.
WAITING = {"asyncio", "concurrent", "multiprocessing", "queue", "sched", "selectors", "subprocess", "threading"}
REAL = WAITING | {"jointmdp"}
CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
STUCK = 2.0  # seconds in one place, after which somebody is told that it is waited for
INSISTENCE = 0.25  # seconds after which a call that goes on all the same is told again
MOMENT = 1e-3  # seconds, where it is told as soon as possible


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


class OutOfTime(BaseException):
    """The time for a check was over before it had seen enough; no `Exception`, since steps may catch those."""


class LateCall(NamedTuple):
    """A call that had not returned when the time was over."""

    where: object
    seconds: float  # that it had taken so far


class Watchdog:
    """Raises `OutOfTime` in a call that is under way when the time is over, and in no other code.

    In the main thread a signal interrupts whatever waits there; where that has another owner, and in other threads, it
    is an exception that Python raises as soon as its own code runs again.
    """

    def __init__(self, seconds: float = float("inf")) -> None:
        self.end = time.monotonic() + seconds
        self.late: LateCall | None = None
        self.slowest = 0.0  # seconds of a call that returned
        self._where: object = None
        self._since = 0.0
        self._lock, self._is_done = threading.Lock(), threading.Event()
        self._thread = 0  # that is watched from another one

    @property
    def left(self) -> float:
        """Seconds until calls are ended."""
        return self.end - time.monotonic()

    def __enter__(self) -> Watchdog:
        is_main = threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")
        if is_main and not signal.getitimer(signal.ITIMER_REAL)[0]:
            self._handler = signal.signal(signal.SIGALRM, self._rung)
            signal.setitimer(signal.ITIMER_REAL, max(self.left, MOMENT))
        else:
            self._thread = threading.get_ident()
            threading.Thread(target=self._guard, daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._thread:
            is_over = False
            while not is_over:  # again where what was raised is met on the way
                with suppress(OutOfTime):
                    self._where = None
                    self._is_done.set()
                    self._meet()
                    is_over = True
        else:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, self._handler)

    def begin(self, where: object) -> tuple[object, float]:
        """A call begins; what was under way before."""
        before = self._where, self._since
        self._since = time.monotonic()
        self._where = where
        return before

    def finish(self, before: tuple[object, float]) -> None:
        """It has ended."""
        self.slowest = max(self.slowest, time.monotonic() - self._since) if self.late is None else self.slowest
        self._where, self._since = before
        if self._thread and self._where is None:
            self._meet()

    def _meet(self) -> None:
        """What was raised for this thread and has not met it meets it here, where nothing is under way.

        It could be taken back instead, but CPython 3.11 then goes on looking for it, and hangs as soon as a profiler or
        a debugger watches.
        """
        with suppress(OutOfTime):
            with self._lock:  # whoever was about to raise has done so
                pass
            for _ in range(9):  # a loop is where it is met
                pass

    def _rung(self, _: int, frame: FrameType | None) -> None:
        # Each ring sets the next: a timer that rings by itself interrupts its own handler where a process hardly runs.
        # What is raised in a callback of the garbage collector is swallowed, with a complaint: that one is let go by.
        swallowing, is_swallowed = {getattr(f, "__code__", None) for f in gc.callbacks}, False
        while frame is not None and not is_swallowed:
            is_swallowed, frame = frame.f_code in swallowing, frame.f_back
        signal.setitimer(signal.ITIMER_REAL, MOMENT if is_swallowed else INSISTENCE)
        if not is_swallowed:
            self._bark()

    def _bark(self) -> None:
        if self._where is None:
            return
        self.late = self.late or LateCall(self._where, time.monotonic() - self._since)
        if not self._thread:
            raise OutOfTime
        _raise_in(self._thread, OutOfTime)

    def _guard(self) -> None:
        while not self._is_done.wait(min(max(self.left, INSISTENCE), threading.TIMEOUT_MAX)):
            with self._lock:
                if self.left <= 0:
                    self._bark()


@contextmanager
def limited(seconds: float, message: str, where: object = "a call") -> Iterator[None]:
    """A call that has not returned after so long ends in a `ModelError`; None as its place: it may take its time."""
    with Watchdog(seconds) as watchdog:
        before = watchdog.begin(where)
        try:
            yield
        except OutOfTime:
            raise ModelError(message) from None
        finally:
            watchdog.finish(before)


@contextmanager
def told_late(title: str) -> Iterator[None]:
    """A line, now and then, on the user's call in which this thread stays for long, with its place."""
    is_done, thread = threading.Event(), threading.get_ident()

    def watch() -> None:
        pause, waited = line_pause() and FIRST_LINE, 0.0
        while pause and not is_done.wait(pause):
            one = _users_call(thread)
            is_stuck = one is not None and not is_done.wait(STUCK) and _users_call(thread) == one
            waited += pause + STUCK
            if is_stuck and one is not None:
                print(f"{title}: still waiting for {one[1]} after {duration(waited)}", file=sys.stderr, flush=True)
            pause = min(2 * pause, LONGEST)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_done.set()


def _users_call(thread: int) -> tuple[Any, str] | None:
    """The innermost frame of a user's code in a thread, and where it stands; None where there is none."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        code, module = frame.f_code, str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if module not in REAL and not code.co_filename.startswith((*LIBRARIES, "<frozen")):
            name = os.path.basename(code.co_filename)
            return (id(frame), frame.f_lasti), f"{code.co_name}() at {name}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def _raise_in(thread: int, error: type[BaseException]) -> None:
    """Raise an error in another thread."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))
