"""Replications in portions: how a simulation is cut into tasks for an executor."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from jointmdp.ground import checks
from jointmdp.ground.checks import Sharing
from jointmdp.ground.progress import Meter
from jointmdp.simulation.executors.executor import Executor, Serial
from jointmdp.simulation.montecarlo.samples import Replications, Sampler

TASKS = 128  # about how many a simulation is cut into: enough for dozens of workers, few enough to cost nothing
LARGEST = 1024  # replications, so that early stops, progress and retries of long simulations stay cheap


@dataclass(frozen=True)
class Portion:
    """Replications `first`, …, ``first + count − 1``."""

    first: int
    count: int
    sharing: Sharing

    def __repr__(self) -> str:
        return f"replications {self.first} to {self.first + self.count - 1}"


def portions_of(
    first: int, count: int, sharing: Sharing, unit: int = 1, largest: float = math.inf, together: int = 1
) -> Iterator[Portion]:
    """``first, …, first + count − 1`` cut at multiples of a size that depends on the other settings alone.

    A sampler that makes whole blocks of `unit` replications is asked for whole blocks, for as many as it makes
    `together`.
    """
    wanted = max(1, int(min(LARGEST, largest, 2 ** max(0, (count // TASKS).bit_length() - 1))))
    if together > 1:
        wanted = int(min(largest, unit * together))
    size, last = unit * max(1, wanted // unit), first + count
    while first < last:
        end = min(last, (first // size + 1) * size)
        yield Portion(first, end - first, sharing)
        first = end


def samples(
    sampler: Sampler,
    first: int,
    count: int,
    sharing: Sharing,
    executor: Executor | None = None,
    *,
    title: str = "",
    largest: float = math.inf,
) -> Iterator[Replications]:
    """Replications `first`, …, ``first + count − 1``, portion by portion in order; stopping early wastes few.

    With a `title` a progress bar shows the portions that all workers have done. No portion is larger than `largest`
    where the sampler can make as few.
    """
    count, unit = checks.as_count("count", count), getattr(sampler, "portion", 1)
    workers = executor or Serial()
    together = getattr(sampler, "together", 1) if isinstance(workers, Serial) else 1
    cut = list(portions_of(checks.as_count("first", first, 0), count, sharing, unit, largest, together))
    with Meter(title) as meter:

        def progress(done: int) -> None:
            if title:
                made = min(count, round(done / len(cut) * count))
                meter.update(done / len(cut), f"{made:,} of {count:,}")

        yield from workers.map(partial(_made, sampler), cut, progress=progress)


def _made(sampler: Sampler, portion: Portion) -> Replications:
    return sampler(portion.first, portion.count, portion.sharing)


def sample(
    sampler: Sampler, first: int, count: int, sharing: Sharing, executor: Executor | None = None, *, title: str = ""
) -> Replications:
    """All of `samples` in one, bit for bit ``sampler(first, count, sharing)``."""
    return Replications.joined(list(samples(sampler, first, count, sharing, executor, title=title)))
