"""Executors by name: ``"serial"``, ``"processes:4"``, ``"ray:ADDRESS"``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from jointmdp import checks
from jointmdp.errors import ModelError
from jointmdp.executors.interface import Executor, Serial
from jointmdp.executors.processes import Processes
from jointmdp.executors.ray_executor import RayExecutor


def as_executor(given: Executor | str | None) -> Executor:
    """An executor from ``"serial"``, ``"processes"``, ``"processes:4"``, ``"ray"``, ``"ray:ADDRESS"`` or one itself."""
    if isinstance(given, Executor):
        return given
    name, colon, rest = ("serial" if given is None else str(given)).partition(":")
    if name == "processes" and (rest.isdecimal() or not colon):
        return Processes(checks.as_count("workers", int(rest)) if colon else None)
    if name == "ray" and (rest or not colon):
        return RayExecutor(rest or None)
    if name == "serial" and not colon:
        return Serial()
    raise ModelError(
        f"{given!r} is no executor; give serial, processes, processes:4 (workers), ray, ray:ADDRESS, or an Executor"
    )


@contextlib.contextmanager
def opened(given: Executor | str | None) -> Iterator[Executor]:
    """The executor that was given, left open for its owner; one made from a name is closed at the end."""
    if isinstance(given, Executor):
        yield given
        return
    with as_executor(given) as executor:
        yield executor
