"""One small interface, its plain implementation, and what the others have in common."""

import concurrent.futures
import hashlib
import reprlib
import time
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Self, TypeVar

from jointmdp.simulation.executors import worker
from jointmdp.simulation.executors.worker import Call, Reply

Task = TypeVar("Task")
Result = TypeVar("Result")

OnProgress = Callable[[int], None]  # called in the caller's thread with the number of tasks that are done

AHEAD = 2  # tasks under way for each worker: one that it does and one that waits for it
SHORT = reprlib.Repr()
SHORT.maxother = SHORT.maxstring = 80
LOOK = 1.0  # seconds after which a wait is taken up again: some systems deliver an interrupt only then


class WorkerError(RuntimeError):
    """A worker, or the machine that it ran on, was lost too often; the message names the task."""


class Executor(ABC):
    """Does tasks somewhere. Used as a context manager, it leaves nothing running behind."""

    @abstractmethod
    def map(
        self, function: Callable[[Task], Result], tasks: Iterable[Task], *, progress: OnProgress | None = None
    ) -> Iterator[Result]:
        """``function(task)`` for each task, in the order of tasks.

        Tasks are taken from `tasks` a few at a time, so there may be endlessly many, and a caller that stops early
        wastes few. `function` must give the same in every process: all randomness comes from the task. An error of
        the function is raised here, that of the first task that has one, with a note that names the task.
        """

    def close(self) -> None:  # noqa: B027 - there may be nothing to end
        """End all workers, those in the middle of a task too."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Serial(Executor):
    """Does each task here, when its result is asked for."""

    def map(
        self, function: Callable[[Task], Result], tasks: Iterable[Task], *, progress: OnProgress | None = None
    ) -> Iterator[Result]:
        """``function(task)`` for each task."""
        for i, task in enumerate(tasks):
            try:
                result = function(task)
            except Exception as error:
                error.add_note(f"in {title(i, task)}")
                raise
            if progress is not None:
                progress(i + 1)
            yield result


class Job(NamedTuple):
    """A task under way."""

    future: concurrent.futures.Future[bytes]  # done when the reply is there
    reply: Callable[[], bytes]  # raises `WorkerError` where there is none
    cancel: Callable[[], object]  # called when nobody wants the reply any more


class Parcel:
    """A function on its way to workers; functions of the same bytes have the same token."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.data = worker.dumps(function, f"the function {getattr(function, '__name__', type(function).__name__)}")
        self.call = Call(hashlib.blake2b(self.data, digest_size=16).digest(), worker.jax_settings())


def in_order(
    submit: Callable[[str, bytes], Job],
    tasks: Iterable[Any],
    ahead: int,
    progress: OnProgress | None,
    look: Callable[[], None] = lambda: None,
) -> Iterator[Any]:
    """The results in the order of tasks, with `ahead` tasks under way; those not wanted any more are cancelled.

    `look` is called about once a second while a result is waited for.
    """
    numbered = enumerate(tasks)
    under_way: deque[tuple[str, Job]] = deque()
    shown: dict[Any, Any] = {}  # the warnings that were passed on
    given = reported = 0
    looked = time.monotonic()
    try:
        while True:
            while len(under_way) < ahead and (pair := next(numbered, None)) is not None:
                name = title(*pair)
                under_way.append((name, submit(name, worker.dumps(pair[1], name))))
            if not under_way:
                return
            while True:
                done = given + sum(job.future.done() for _, job in under_way)
                if progress is not None and done > reported:
                    progress(done)
                    reported = done
                if under_way[0][1].future.done():
                    break
                unfinished = [job.future for _, job in under_way if not job.future.done()]
                concurrent.futures.wait(unfinished, LOOK, concurrent.futures.FIRST_COMPLETED)
                if time.monotonic() - looked >= LOOK:
                    look()
                    looked = time.monotonic()
            name, job = under_way.popleft()
            given += 1
            yield _opened(worker.loads(job.reply()), name, shown)
    finally:
        for _, job in under_way:
            job.cancel()


def _opened(reply: Reply, name: str, shown: dict[Any, Any]) -> Any:
    for heard in reply.heard:
        warnings.warn_explicit(*heard, registry=shown)
    if reply.error is None:
        return reply.result
    reply.error.add_note(f"in {name}")
    raise reply.error from _Remote(f"in the worker\n{reply.trace}")


class _Remote(Exception):
    """Shows the traceback that an error had in its worker."""


def title(index: int, task: Any) -> str:
    """How messages call a task."""
    return f"task {index} ({SHORT.repr(task)})"
