"""Runs in a copy of this whole process, which leave no trace here.

What is tried out is the simulator itself, with all that it points to, and not a copy that somebody's code made. Only
threads do not come along, so nothing that computes with JAX is run this way.
"""

from __future__ import annotations

import gc
import io
import os
import pickle
import select
import signal
import socket
import subprocess
import time
import warnings
from collections.abc import Callable
from typing import Any

from jointmdp.simulators.object_graph import CLOSED, walk

_HANDLES = (socket.socket, subprocess.Popen, io.FileIO)  # what both processes would go on using


class ForkedRun:
    """A call under way in a copy of this process."""

    def __init__(self, call: Callable[[], Any]) -> None:
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # threads do not come along, and nothing here needs them
            self._pid = os.fork()
        if self._pid == 0:
            _answer(call, reading, writing)
        os.close(writing)
        self._reading = reading

    def __del__(self) -> None:
        if getattr(self, "_pid", 0):
            self.result(0.0)

    def result(self, seconds: float) -> Any:
        """What the call returned; None where it failed or took longer."""
        deadline = time.monotonic() + seconds
        parts: list[bytes] = []
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._reading], [], [], left)[0]:
                os.kill(self._pid, signal.SIGKILL)
                parts.clear()
                break
            part = os.read(self._reading, 1 << 16)
            if not part:
                break
            parts.append(part)
        os.close(self._reading)
        os.waitpid(self._pid, 0)
        self._pid = 0
        return pickle.loads(b"".join(parts)) if parts else None


def _answer(call: Callable[[], Any], reading: int, writing: int) -> None:
    """The life of the copy: it never returns."""
    try:
        gc.disable()
        os.close(reading)
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        data = pickle.dumps(call())
        with os.fdopen(writing, "wb") as file:
            file.write(data)
    finally:
        os._exit(0)


def begun(simulator: Any, call: Callable[[], Any]) -> ForkedRun | None:
    """The call under way in a copy of this process; None where such a copy is no independent one."""
    if not hasattr(os, "fork") or hasattr(simulator, "query_batch"):
        return None
    reached = walk([simulator], lambda value: not isinstance(value, CLOSED), 8, 5_000)
    if any(isinstance(value, _HANDLES) for _, _, value in reached):
        return None
    return ForkedRun(call)
