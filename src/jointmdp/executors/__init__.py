"""Where tasks run: in this process, in other processes of this machine, or on a Ray cluster.

All heavy work that falls apart into tasks takes an executor, and its results are the same to the last bit whichever it
is: a task's randomness comes from what the task is, never from who does it, and results come in the order of tasks.
"""

from jointmdp.executors.interface import Executor, Serial, WorkerError
from jointmdp.executors.named_executors import as_executor, opened
from jointmdp.executors.processes import Processes
from jointmdp.executors.ray_executor import RayExecutor

__all__ = ["Executor", "Processes", "RayExecutor", "Serial", "WorkerError", "as_executor", "opened"]
