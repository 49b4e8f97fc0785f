"""Where tasks run: in this process, in other processes of this machine, or on a Ray cluster.

All that is heavy and falls apart into tasks takes an executor, and its results are the same to the last bit whichever
it is: a task's randomness comes from what the task is, never from who does it, and results come in the order of tasks.
"""

from __future__ import annotations

from jointmdp.executors.interface import Executor, Serial, WorkerError, as_executor, opened
from jointmdp.executors.processes import Processes
from jointmdp.executors.ray_executor import RayExecutor
from jointmdp.montecarlo.replications import Portion, portions_of, sample, samples

__all__ = [
    "Executor",
    "Portion",
    "Processes",
    "RayExecutor",
    "Serial",
    "WorkerError",
    "as_executor",
    "opened",
    "portions_of",
    "sample",
    "samples",
]
