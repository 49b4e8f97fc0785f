"""One small interface, its plain implementation, and what the others have in common."""

from __future__ import annotations

import concurrent.futures
import hashlib
import reprlib
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from jointmdp.executors import codec
from jointmdp.executors.worker import Call, Reply

Task = TypeVar("Task")
Result = TypeVar("Result")

OnProgress = Callable[[int], None]
"""Told how many tasks are done, in the caller's thread."""

AHEAD = 2  # tasks under way for each worker: one that it does and one that waits for it
_SHORT = reprlib.Repr()
_SHORT.maxother = _SHORT.maxstring = 80
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

        Tasks are taken from `tasks` a few at a time, so there may be endlessly many, and whoever stops early wastes
        few. `function` must give the same whoever calls it: all randomness comes from the task. An error of the
        function is raised here, that of the first task that has one, with a note that names the task.
        """

    def close(self) -> None:  # noqa: B027 - there may be nothing to end
        """End all workers, those in the middle of a task too."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
                error.add_note(_note(title(i, task)))
                raise
            if progress is not None:
                progress(i + 1)
            yield result


# -- what executors with workers share ---------------------------------------------------------------------------


class Job(Protocol):
    """A task under way."""

    @property
    def future(self) -> concurrent.futures.Future[bytes]:
        """Done when the reply is there."""

    def reply(self) -> bytes:
        """The reply; a `WorkerError` where there is none."""

    def cancel(self) -> None:
        """Nobody wants the reply any more."""


class Parcel:
    """A function on its way to workers: called the same by all that is sent, whenever it is the same bytes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.data = codec.dumps(function, f"the function {getattr(function, '__name__', type(function).__name__)}")
        self.call = Call(hashlib.blake2b(self.data, digest_size=16).digest(), codec.jax_settings())


def in_order(
    submit: Callable[[str, bytes], Job], tasks: Iterable[Any], ahead: int, progress: OnProgress | None
) -> Iterator[Any]:
    """The results in the order of tasks, with `ahead` tasks under way; those not wanted any more are cancelled."""
    numbered = enumerate(tasks)
    under_way: deque[tuple[str, Job]] = deque()
    shown: dict[Any, Any] = {}  # the warnings that were passed on
    given = told = 0
    try:
        while True:
            while len(under_way) < ahead and (pair := next(numbered, None)) is not None:
                name = title(*pair)
                under_way.append((name, submit(name, codec.dumps(pair[1], name))))
            if not under_way:
                return
            while True:
                done = given + sum(job.future.done() for _, job in under_way)
                if progress is not None and done > told:
                    progress(done)
                    told = done
                if under_way[0][1].future.done():
                    break
                unfinished = [job.future for _, job in under_way if not job.future.done()]
                concurrent.futures.wait(unfinished, LOOK, concurrent.futures.FIRST_COMPLETED)
            name, job = under_way.popleft()
            given += 1
            yield _opened(codec.loads(job.reply()), name, shown)
    finally:
        for _, job in under_way:
            job.cancel()


def _opened(reply: Reply, name: str, shown: dict[Any, Any]) -> Any:
    for heard in reply.heard:
        warnings.warn_explicit(heard.message, heard.category, heard.filename, heard.lineno, registry=shown)
    if reply.error is None:
        return reply.result
    reply.error.add_note(_note(name))
    raise reply.error from _Remote(reply.trace)


class _Remote(Exception):
    """Shows the traceback that an error had in its worker."""

    def __str__(self) -> str:
        return f"in the worker\n{self.args[0]}"


def title(index: int, task: Any) -> str:
    """How to call a task."""
    return f"task {index} ({_SHORT.repr(task)})"


def _note(name: str) -> str:
    return f"in {name}"
