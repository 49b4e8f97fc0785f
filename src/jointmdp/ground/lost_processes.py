"""What a process says when another one of its distributed run is gone.

The others learn of it in one of two ways. A collective fails, and JAX raises an error whose words are those of its
transport: `Survivor` says instead what was saved and how to go on. Or JAX's own watch over the processes ends the
program without a word from Python (no heartbeat for 100 seconds, or process 0 is gone). For that case a small process
waits at the end of a pipe, and speaks when the pipe breaks: `LastWords`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Self

from jointmdp.ground.errors import LostProcessError, ModelError
from jointmdp.ground.files import cause

# Lines replace each other; the last one is printed at the end, if it is not empty.
WAIT = """
import signal, sys
for each in (signal.SIGINT, signal.SIGTERM):
    signal.signal(each, signal.SIG_IGN)
last = b""
for last in sys.stdin.buffer: pass
sys.stderr.buffer.write(last.strip() and last)
"""
# What JAX raises where a collective fails begins with a code of its transport. RESOURCE_EXHAUSTED is our own memory.
TRANSPORT = re.compile(r"(ABORTED|CANCELLED|DEADLINE_EXCEEDED|FAILED_PRECONDITION|INTERNAL|UNAVAILABLE|UNKNOWN):")


class LastWords:
    """A line on standard error at the end of this process, however it ends; nothing after ``tell("")``."""

    def __init__(self, words: str) -> None:
        command = [sys.executable, "-I", "-S", "-c", WAIT]
        self._watch: subprocess.Popen[bytes] | None = subprocess.Popen(command, stdin=subprocess.PIPE)
        self.tell(words)

    def tell(self, words: str) -> None:
        """Other words instead."""
        if self._watch is not None and self._watch.stdin is not None:
            try:
                self._watch.stdin.write(" ".join(words.split()).encode() + b"\n")
                self._watch.stdin.flush()
            except OSError:  # somebody has ended it
                self._watch = None

    def speak(self) -> None:
        """Say it now, and not again."""
        if self._watch is not None:
            self._watch.communicate()
            self._watch = None


ARMED: list[LastWords] = []  # of those who have lost a process


def speak() -> None:
    """Say now what was to be said at the end of this process."""
    while ARMED:
        ARMED.pop().speak()


class Survivor:
    """Around the part of a run in which processes wait for each other."""

    def __init__(self, process: int, processes: int, saved: Callable[[], str]) -> None:
        """`saved` says what was saved so far."""
        self.process, self.processes, self.saved = process, processes, saved
        self._words: LastWords | None = None

    def __enter__(self) -> Self:
        self._words = LastWords(self._killed()) if self.processes > 1 else None
        return self

    def update(self) -> None:
        """Something was saved."""
        if self._words is not None:
            self._words.tell(self._killed())

    def _killed(self) -> str:
        here = f"process {self.process} of {self.processes} was ended in the middle of a distributed run"
        return f"Error: {here}, by a signal, or by JAX because another process is gone: {self._advice()}"

    def _advice(self) -> str:
        return f"{self.saved()}. Start all {self.processes} processes again with the same command to go on from there."

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._words is None:
            return
        is_transport = isinstance(error, RuntimeError | ValueError) and TRANSPORT.match(str(error)) is not None
        if not is_transport or isinstance(error, ModelError):
            self._words.tell("")  # what there is to say is said by Python
            self._words.speak()
            return
        assert isinstance(error, Exception)
        words = (
            f"process {self.process} of {self.processes} lost another process of the distributed run "
            f"({cause(error)}): {self._advice()}"
        )
        self._words.tell(f"Error: {words}")  # JAX may end this process at any moment from now on
        ARMED.append(self._words)
        raise LostProcessError(words) from error
