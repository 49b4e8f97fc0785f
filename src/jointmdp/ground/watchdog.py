"""An end to calls that do not return, or a word about them while they are waited for."""

from __future__ import annotations

import _weakrefset
import ctypes
import gc
import os
import signal
import sys
import sysconfig
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NamedTuple

from jointmdp.ground.errors import ModelError
from jointmdp.ground.progress import FIRST_LINE, LONGEST, duration, line_pause

LIBRARY_FOLDERS = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
# Modules of the standard library in which a thread waits.
WAITING = {"asyncio", "concurrent", "multiprocessing", "queue", "sched", "selectors", "subprocess", "threading"}
OWN_FOLDERS = (*LIBRARY_FOLDERS, os.path.dirname(os.path.dirname(__file__)))
OF_WEAK_REFERENCES = (weakref.__file__, _weakrefset.__file__)
STUCK = 2.0  # seconds in one place, after which somebody is told that it is waited for
INSISTENCE = 0.25  # seconds after which a call that goes on all the same is told again
MOMENT = 1e-3  # seconds, where it is told as soon as possible


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
        # What is raised in a callback of the garbage collector or of a weak reference, or in a library's `__del__`, is
        # swallowed, with a complaint: those are let go by.
        swallowing, is_swallowed = {getattr(f, "__code__", None) for f in gc.callbacks}, False
        while frame is not None and not is_swallowed:
            file = frame.f_code.co_filename
            is_del = frame.f_code.co_name == "__del__" and file.startswith(OWN_FOLDERS)
            is_swallowed = is_del or frame.f_code in swallowing or file in OF_WEAK_REFERENCES
            frame = frame.f_back
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
            if watchdog.late is None:  # of somebody else's time
                raise
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
    """The innermost frame of a user's code in a thread, and where it stands; None where nobody calls any."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        code, module = frame.f_code, str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if module == "jointmdp":  # who compiles or solves
            return None
        if module not in WAITING and not code.co_filename.startswith((*LIBRARY_FOLDERS, "<frozen")):
            name = os.path.basename(code.co_filename)
            return (id(frame), frame.f_lasti), f"{code.co_name}() at {name}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def _raise_in(thread: int, error: type[BaseException]) -> None:
    """Raise an error in another thread."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))
