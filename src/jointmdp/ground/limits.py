"""What an answer may take: seconds and bytes."""

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TypeVar

from jointmdp.ground import checks
from jointmdp.ground.errors import ModelError, NotKnownError

LITTLE = 1 / 8  # of the work: if no more is left when time ends, it is done all the same

IsOver = Callable[[], bool]  # whether the time that was given is over
Part = TypeVar("Part")


@dataclass(frozen=True)
class Limits:
    """What an answer may take. Where that is not enough, it is as narrow as it got, and says so."""

    seconds: float | None = 60.0
    """That it may take; None takes all the time there is."""
    memory: int = 2 * 2**30
    """Bytes."""

    def __post_init__(self) -> None:
        if self.seconds is not None:
            checks.as_positive("seconds", self.seconds)
        checks.as_count("memory", self.memory)

    def are_within(self, other: "Limits") -> bool:
        """Whether they allow no more than others do."""
        mine, theirs = (math.inf if each.seconds is None else each.seconds for each in (self, other))
        return mine <= theirs and self.memory <= other.memory

    def until(self, end: "TimeLimit", least: float = 0.0) -> "Limits":
        """The same memory, and the seconds that are left; at least so many."""
        return self if self.seconds is None else replace(self, seconds=max(end.left, least))


DEFAULT_LIMITS = Limits()


def check_limits(limits: object) -> None:
    """Raise for a bare number."""
    if not isinstance(limits, Limits):
        raise ModelError(f"limits must be jointmdp.Limits(seconds=…, memory=…), not {limits!r}")


class OutOfTimeError(NotKnownError):
    """Time ended long before the work was done."""


class TimeLimit:
    """So many seconds from now; without a number, all the time there is."""

    def __init__(self, seconds: float | None) -> None:
        self.end = math.inf if seconds is None else time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.end - time.monotonic()

    def is_over(self) -> bool:
        """Whether none are."""
        return self.left < 0


def never() -> bool:
    """For work that takes as long as it takes."""
    return False


_END = ContextVar("_END", default=math.inf)  # when the time is over
_ROOM = ContextVar("_ROOM", default=math.inf)


@contextmanager
def kept(limits: Limits | None) -> Iterator[None]:
    """Within this, solvers end in time, whatever their bounds say by then, and take no more memory."""
    if limits is None:
        yield
        return
    check_limits(limits)
    end, room = _END.set(TimeLimit(limits.seconds).end), _ROOM.set(float(limits.memory))
    try:
        yield
    finally:
        _END.reset(end)
        _ROOM.reset(room)


def is_time_over() -> bool:
    """Whether the time of the limits that are kept is over."""
    return time.monotonic() > _END.get()


def ends() -> bool:
    """Whether time is limited at all."""
    return _END.get() < math.inf


def room_left(most: float = math.inf) -> float:
    """Bytes that may be taken under the limits that are kept, and `most`."""
    return min(_ROOM.get(), most)


def within_time(parts: Iterable[tuple[Part, int]], total: int, is_over: IsOver) -> Iterator[Part]:
    """The parts of a work, each given with its size; an error when time ends and more than a little of it is left."""
    done = 0
    for part, size in parts:
        if total - done > LITTLE * total and is_over():
            raise OutOfTimeError(f"{done / total:.0%} were done")
        yield part
        done += size


def cores() -> int:
    """How many this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS and Windows do not say
        return os.cpu_count() or 1
