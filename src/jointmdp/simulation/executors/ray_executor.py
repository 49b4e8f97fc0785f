"""A Ray cluster: tasks on any of its nodes; what dies with a worker or a node is done again elsewhere."""

import concurrent.futures
import importlib
import os
import socket
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from jointmdp.ground import checks
from jointmdp.ground.errors import ModelError
from jointmdp.simulation.executors.executor import (
    AHEAD,
    Executor,
    Job,
    OnProgress,
    Parcel,
    Result,
    Task,
    WorkerError,
    in_order,
)
from jointmdp.simulation.executors.processes import thread_settings
from jointmdp.simulation.executors.worker import Call, answer

KNOCK = 10.0  # seconds in which a cluster must take a connection


class RayExecutor(Executor):
    """Workers of a Ray cluster, on which `jointmdp` has to be installed too.

    Args:
        address: of a running cluster, such as ``"10.0.0.1:6379"`` or ``"auto"``. Without it the one that RAY_ADDRESS
            names, or else a new one on this machine. Where ``ray.init`` was called before, that connection is used
            and left open.
        cpus: of the cluster that one task takes.
        threads: of BLAS and XLA in each worker.
        retries: how often a task whose worker or node died is done again.
    """

    def __init__(self, address: str | None = None, *, cpus: float = 1.0, threads: int = 1, retries: int = 3) -> None:
        self._ray = ray = _ray()
        self.cpus, self.retries = checks.as_number("cpus", cpus), checks.as_count("retries", retries, 0)
        if not self.cpus > 0:
            raise ModelError(f"cpus is {cpus}; a task must take some of the cluster, or all would run at once")
        environment = thread_settings(checks.as_count("threads", threads))
        self._is_closed = False
        self._futures: weakref.WeakSet[concurrent.futures.Future[bytes]] = weakref.WeakSet()
        self._is_owner = not ray.is_initialized()
        if self._is_owner:
            _connect(ray, address)
        elif address not in (None, "auto", ray.get_runtime_context().gcs_address):
            raise ModelError(f"Ray is already connected to {ray.get_runtime_context().gcs_address}, not to {address}")
        self._answer = ray.remote(_answer).options(
            num_cpus=self.cpus,
            max_retries=self.retries,
            retry_exceptions=False,
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": environment},
        )

    def map(
        self, function: Callable[[Task], Result], tasks: Iterable[Task], *, progress: OnProgress | None = None
    ) -> Iterator[Result]:
        """``function(task)`` for each task, in the order of tasks."""
        self._check_open("the function")
        parcel = Parcel(function)
        # In a list Ray hands on the reference, and a worker that knows the function fetches nothing.
        held = [self._ray.put(parcel.data)]
        slots = max(1, int(self._ray.cluster_resources().get("CPU", 1) / self.cpus))

        def reply(name: str, future: concurrent.futures.Future[bytes]) -> bytes:
            try:
                return future.result()
            except self._ray.exceptions.RayError as error:
                raise WorkerError(f"{name} was lost by Ray, after {self.retries} retries at most: {error}") from error
            except concurrent.futures.CancelledError:
                raise WorkerError(f"{name} was not finished: its executor was closed") from None

        def submit(name: str, task: bytes) -> Job:
            self._check_open(name)
            reference = self._answer.remote(parcel.call, task, held)
            future: concurrent.futures.Future[bytes] = reference.future()
            self._futures.add(future)
            # A task that has not begun never does; one that has is interrupted.
            cancel = lambda: self._ray.is_initialized() and self._ray.cancel(reference)  # noqa: E731
            return Job(future, lambda: reply(name, future), cancel)

        return in_order(submit, tasks, AHEAD * slots, progress)

    def close(self) -> None:
        """Let go of the cluster, and end it where it was started here."""
        if self._is_closed:
            return
        self._is_closed = True
        for future in list(self._futures):
            future.cancel()  # a thread that waits for it would wait for ever
        if self._is_owner:
            self._ray.shutdown()

    def _check_open(self, what: str) -> None:
        # Ray would start a new cluster by itself.
        if self._is_closed:
            raise WorkerError(f"{what} was given to an executor that is closed")


def _answer(call: Call, task: bytes, held: list[Any]) -> bytes:
    return answer(call, task, lambda: _ray().get(held[0]))


def _connect(ray: Any, address: str | None) -> None:
    where = address or os.environ.get("RAY_ADDRESS") or "local"
    given: dict[str, Any] = {"address": where, "log_to_driver": False, "logging_level": "error"}
    if where == "local":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        given["include_dashboard"] = False
    host, _, port = where.rpartition(":")
    try:
        if host and port.isdecimal() and "://" not in host:
            # An `OSError` where nobody listens: Ray itself tries for minutes, and then ends the process.
            socket.create_connection((host.strip("[]"), int(port)), KNOCK).close()
        with warnings.catch_warnings():
            # Ray starts its own processes by fork and exec; nothing of JAX runs in between.
            warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
            ray.init(**given)
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelError(f"there is no Ray cluster at {where}: {error}") from error


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ImportError("RayExecutor needs Ray: pip install 'jointmdp[ray]'") from error
