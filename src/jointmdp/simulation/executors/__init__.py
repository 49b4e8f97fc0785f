"""Where tasks run: in this process, in other processes of this machine, or on a Ray cluster.

All heavy work that falls apart into tasks takes an executor, and its results are the same to the last bit whichever it
is: a task's randomness comes from what the task is, never from the worker, and results come in the order of tasks.
"""

import contextlib

from jointmdp.ground import checks
from jointmdp.ground.errors import ModelError
from jointmdp.simulation.executors.executor import Executor, Serial, WorkerError
from jointmdp.simulation.executors.processes import Processes
from jointmdp.simulation.executors.ray_executor import RayExecutor

__all__ = ["Executor", "Processes", "RayExecutor", "Serial", "WorkerError", "as_executor", "opened"]


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


def opened(given: Executor | str | None) -> contextlib.AbstractContextManager[Executor]:
    """The executor that was given, left open for its owner; one made from a name is closed at the end."""
    return contextlib.nullcontext(given) if isinstance(given, Executor) else as_executor(given)
