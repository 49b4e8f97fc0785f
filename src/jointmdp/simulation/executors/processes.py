"""Other processes of this machine, each a fresh interpreter with pipes: never a fork, since JAX has threads.

Every worker has a thread here that hands it one task at a time and waits for the reply. A pipe that ends says that the
worker died, and which task it was doing: another worker is started for it. One that was stopped (SIGSTOP, a debugger)
would be waited for without end: the system says so, and after a while it is ended too. A worker that runs is never
ended, however long it takes: nobody can tell a slow model from one that hangs.

The standard library's pool ends as a whole instead, cannot tell the task, runs the user's script again in every worker,
and sets no environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import NamedTuple

from jointmdp.ground import checks
from jointmdp.ground.limits import cores
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
from jointmdp.simulation.executors.worker import MISSING, read_frame, write_frame

# The path comes first: the worker must find the packages that the caller found.
START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from jointmdp.simulation.executors.worker import main; main()"
)
PATIENCE = 5.0  # seconds that an idle worker may take to end by itself
STOPPED_SAID, STOPPED_ENDED = 10, 120  # looks, a second apart, at a stopped worker: then it is said, then it is ended
LAST_WORDS = 2000  # characters of what a crashed worker said that are shown
HEARD = 20_000  # bytes of it that are looked at: a crash ends with a long list of modules

THREAD_COUNTS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "NPROC")


def thread_settings(threads: int) -> dict[str, str]:
    """The environment in which BLAS and XLA (NPROC) keep to so many threads."""
    # Workers that each take three quarters of a graphics card at once would leave nothing for the second.
    return {**dict.fromkeys(THREAD_COUNTS, str(threads)), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


class Processes(Executor):
    """Worker processes on this machine, started when they are first needed.

    Args:
        workers: how many; by default as many as there are cores to run on.
        threads: of BLAS and XLA in each worker. The default does not depend on the number of workers, since the last
            bits of a large matrix product may depend on it.
        retries: how often a task whose worker died is done again. A worker that somebody has stopped (SIGSTOP) is
            named in a warning after 10 seconds, and ended after 120, where the system can tell (Linux).
    """

    def __init__(self, workers: int | None = None, *, threads: int = 1, retries: int = 2) -> None:
        self.workers = checks.as_count("workers", cores() if workers is None else workers)
        self.threads = checks.as_count("threads", threads)
        self.retries = checks.as_count("retries", retries, 0)
        self._pool: _Pool | None = None

    def map(
        self, function: Callable[[Task], Result], tasks: Iterable[Task], *, progress: OnProgress | None = None
    ) -> Iterator[Result]:
        """``function(task)`` for each task, in the order of tasks."""
        parcel = Parcel(function)
        if self._pool is None:
            self._pool = _Pool(self.workers, thread_settings(self.threads), self.retries)
            # The threads know the pool but not this object: an executor that nobody closes ends with it.
            self._end = weakref.finalize(self, self._pool.close)
        pool = self._pool
        return in_order(
            lambda name, task: pool.submit(parcel, name, task), tasks, AHEAD * self.workers, progress, pool.look
        )

    def close(self) -> None:
        """End all workers, those in the middle of a task too."""
        if self._pool is not None:
            self._end()
            self._pool = None

    def __repr__(self) -> str:
        return f"Processes({self.workers})"


class _QueuedTask(NamedTuple):
    """A task in the queue."""

    parcel: Parcel
    name: str
    task: bytes
    future: Future[bytes]


class _Pool:
    """Threads with a worker each."""

    def __init__(self, workers: int, environment: dict[str, str], retries: int) -> None:
        self.environment, self.retries = environment, retries
        self.queue: queue.SimpleQueue[_QueuedTask | None] = queue.SimpleQueue()
        self.lock = threading.Lock()
        self.is_closed = False
        self.busy: dict[int, _Worker] = {}  # by thread: the worker that it waits for
        self.threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(workers)]
        for thread in self.threads:
            thread.start()

    def submit(self, parcel: Parcel, name: str, task: bytes) -> Job:
        """Put a task in the queue. Cancelled after it has begun, it is finished for nobody."""
        future: Future[bytes] = Future()
        with self.lock:
            if self.is_closed:
                raise WorkerError(f"{name} was given to an executor that is closed")
            self.queue.put(_QueuedTask(parcel, name, task, future))
        return Job(future, future.result, future.cancel)

    def close(self) -> None:
        """End all workers and wait until they are gone."""
        with self.lock:
            self.is_closed = True
            for worker in self.busy.values():
                worker.process.kill()
        for _ in self.threads:
            self.queue.put(None)
        for thread in self.threads:
            thread.join()

    def look(self) -> None:
        """Count how often the workers that are waited for were seen stopped, and end one that stays so.

        Looks are counted instead of seconds: a job manager may stop this process too, and wake all up again.
        """
        with self.lock:
            for worker in self.busy.values():
                worker.stops = worker.stops + 1 if worker.is_stopped else 0
                if worker.stops == STOPPED_SAID:
                    warnings.warn(
                        f"worker {worker.process.pid} has been stopped for {STOPPED_SAID} s (SIGSTOP? a debugger?) in "
                        f"{worker.task}; in {STOPPED_ENDED - STOPPED_SAID} s it is ended, and another does its task; "
                        f"kill -CONT {worker.process.pid} wakes it up",
                        RuntimeWarning,
                        stacklevel=2,
                    )
                elif worker.stops == STOPPED_ENDED:
                    worker.process.kill()  # then its pipe ends, as that of any worker that dies

    def _serve(self) -> None:
        worker: _Worker | None = None
        while (queued := self.queue.get()) is not None:
            if queued.future.set_running_or_notify_cancel():
                try:
                    worker, reply = self._done(queued, worker)
                    queued.future.set_result(reply)
                except BaseException as error:  # only the thread that waits for the reply can raise it
                    worker = None
                    queued.future.set_exception(error)
            del queued  # a thread that waits for the next one holds on to nothing
        if worker is not None:
            worker.gone()

    def _done(self, queued: _QueuedTask, worker: _Worker | None) -> tuple[_Worker, bytes]:
        """The worker that did a task without dying, and its reply."""
        fate = ""
        for _ in range(self.retries + 1):
            with self.lock:
                if self.is_closed:
                    break
                worker = worker or _Worker(self.environment)
                self.busy[threading.get_ident()] = worker
            try:
                return worker, worker.ask(queued)
            except (EOFError, OSError):
                fate, worker = worker.gone(), None
            except BaseException:
                worker.gone()
                raise
            finally:
                with self.lock:
                    del self.busy[threading.get_ident()]
        if self.is_closed:
            if worker is not None:
                worker.gone()
            raise WorkerError(f"{queued.name} was not finished: its executor was closed")
        raise WorkerError(f"{queued.name} lost its worker {self.retries + 1} times; the last one {fate}")


class _Worker:
    """A process that answers tasks."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.said = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the worker is gone
        self.process = subprocess.Popen(
            [sys.executable, "-c", START, json.dumps([path or os.getcwd() for path in sys.path])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
            env={**os.environ, **environment},
            # Ctrl-C reaches the caller alone, which then ends its workers.
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.inlet, self.outlet = self.process.stdin, self.process.stdout
        self.task, self.stops = "", 0  # what it does; how often in a row it was seen stopped

    @property
    def is_stopped(self) -> bool:
        """Whether somebody has stopped it, where the system can tell; asking changes nothing."""
        if not hasattr(os, "waitid"):
            return False
        try:
            return os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # it is gone, and somebody has heard of it
            return False

    def ask(self, queued: _QueuedTask) -> bytes:
        """The reply to a task; `EOFError` or `OSError` where the worker dies of it."""
        self.task, self.stops = queued.name, 0
        write_frame(self.inlet, pickle.dumps((queued.parcel.call, queued.task)))
        reply = read_frame(self.outlet)
        if reply == MISSING:
            write_frame(self.inlet, queued.parcel.data)
            reply = read_frame(self.outlet)
        return reply

    def gone(self) -> str:
        """End a worker, by itself where it is idle; how it died, in words."""
        for pipe in (self.inlet, self.outlet):
            with contextlib.suppress(OSError):  # of what could not be written any more
                pipe.close()
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        with self.said as said:
            said.seek(max(0, said.seek(0, os.SEEK_END) - HEARD))
            lines = said.read().decode(errors="replace").splitlines()
        words = "\n".join(line for line in lines if not line.startswith("Extension modules:")).strip()[-LAST_WORDS:]
        how = f"ended with exit code {code}"
        if code < 0:
            names = {each.value: each.name for each in signal.Signals}
            guess = f" (it was stopped for {self.stops} s)" if self.stops else " (out of memory?)" if code == -9 else ""
            how = f"was killed by {names.get(-code, f'signal {-code}')}{guess}"
        return f"{how}; it said\n{words}" if words else how
