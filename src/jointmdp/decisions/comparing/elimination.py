"""Which alternatives are still sampled: all that may be better than the leader by more than the indifference.

**Why dropping keeps the promise.** Each pair (i, j) has a part of the error, under which its interval holds at all
looks at once, whatever the sizes of the looks follow (`look_schedules`). To sample a pair no more is one of these
rules. It may also follow what other pairs show: replications are independent, so what was seen of whomever says nothing
of the next ones. Let all intervals of all looks hold, which they do with the promised probability. Then so do all lower
bounds ``L[i, j] ≤ μ_i − μ_j`` that follow from them by ``L[i, k] + L[k, j] ≤ μ_i − μ_j`` (`closed`).

With an indifference of δ, a *leader* b has ``L[b, j] ≥ −δ`` for every j that was dropped, and at each look those i with
``L[b, i] ≥ −δ`` are dropped. There is always a leader: the last one stays, as nobody is dropped for himself. Where all
others are dropped it is the answer, no worse than δ below the best of all; nobody pays for dropping. Without care for
who drops whom a chain of drops, each within δ, could lead away from the best by several δ: a leader that another one
beats may be dropped only for one that has all that were dropped within δ, too, be it through the beaten one.

**Same replications.** Replication i of those that remain is replication i: their common random numbers are the seed's
and the number's (under ``"state"``, and for policies that draw, the draws may be others, of the same law). The compiled
engine makes blocks: what is made already is not made again, so fewer branches are simulated from the next block on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from jointmdp.ground.arrays import Floats
from jointmdp.ground.progress import Meter
from jointmdp.simulation.executors import Executor
from jointmdp.simulation.montecarlo.alternatives import Alternatives
from jointmdp.simulation.montecarlo.replications import samples
from jointmdp.simulation.montecarlo.samples import WIDE, Replications, Sampler


class Race:
    """Replications of m alternatives, some of which are sampled no more.

    A run has a column for each alternative (of several results a run, m columns for each), NaN after it was dropped.
    """

    def __init__(self, found: Alternatives, run: Replications | None = None, made: list[int] | None = None) -> None:
        self.found, self.run = found, run
        self.made = [0] * len(found.labels) if made is None else made  # replications of each
        self.racing = list(range(len(self.made)))
        self.dropped: dict[int, int] = {}  # the others, and for whom each was dropped
        self._samplers: dict[tuple[int, ...], Sampler] = {tuple(range(len(found.labels))): found.sampler}

    @property
    def size(self) -> int:
        """Replications so far."""
        return 0 if self.run is None else len(self.run.leads)

    def grow(self, size: int, meter: Meter, executor: Executor, began: float, seconds: float) -> None:
        """More replications, up to `size`; fewer, but at least two, where the time is up before."""
        parts, made = [] if self.run is None else [self.run], self.size
        if made >= 2 and time.monotonic() - began > seconds:
            return
        a_second = made / (time.monotonic() - began) if made else math.inf
        for part in self._more(made, size, executor, a_second):
            parts.append(part)
            made += len(part.leads)
            spent = time.monotonic() - began
            meter.update(max(made / size, spent / seconds), f"{made:,} of {size:,} replications")
            if spent > seconds and made >= 2:
                break
        self.run = Replications.joined(parts)
        self.cut(made)

    def cut(self, size: int) -> None:
        """Keep the first `size` replications."""
        assert self.run is not None
        self.run = self.run.rows(slice(size))
        for j in self.racing:
            self.made[j] = size

    @property
    def whole_rows(self) -> Replications:
        """The replications that all alternatives are in."""
        assert self.run is not None
        return self.run.rows(slice(min(self.made)))

    @property
    def alike(self) -> float:
        """Replications up to which all alternatives were simulated, those that are not looked at included."""
        return min(self._ends)

    @property
    def _ends(self) -> list[float]:
        """Replications up to which each is simulated: to the end of the block that the last one is in."""
        unit = getattr(self.found.sampler, "portion", 1)
        return [math.inf if j in self.racing else -(-count // unit) * unit for j, count in enumerate(self.made)]

    def drop(self, leaders: Mapping[int, int]) -> None:
        """Sample some alternatives no more, each for the one that leads."""
        self.dropped |= leaders
        self.racing = [j for j in self.racing if j not in leaders]

    def _more(self, first: int, last: int, executor: Executor, largest: float) -> Iterator[Replications]:
        """Replications `first`, …, `last` − 1, cut where fewer alternatives go on."""
        ends = self._ends
        while first < last:
            # A sampler that knows no way to make some alone makes all.
            places = tuple(j for j, end in enumerate(ends) if end > first or not hasattr(self.found.sampler, "only"))
            until = int(min(last, *(end for end in ends if end > first)))
            for part in samples(
                self._only(places), first, until - first, self.found.sharing, executor, largest=largest
            ):
                yield self._placed(part, places)
            first = until

    def _only(self, places: tuple[int, ...]) -> Sampler:
        """What samples some alternatives: the same object every time, as it may remember what it made."""
        if places not in self._samplers:
            self._samplers[places] = self.found.sampler.only(places)  # type: ignore[attr-defined]
        return self._samplers[places]

    def _placed(self, part: Replications, places: tuple[int, ...]) -> Replications:
        """Each column in its place; those of alternatives that were dropped are not looked at any more."""
        m, shape = len(self.made), part.leads.shape
        part = part._replace(states=None)
        if len(self.racing) == m:
            return part
        columns = np.add.outer(m * np.arange(shape[1] // len(places)), places).ravel()
        kept = np.isin(columns % m, self.racing)

        def spread(values: Floats | None) -> Floats | None:
            if values is None:
                return None
            found = np.full((shape[0], shape[1] // len(places) * m), np.nan)
            found[:, columns[kept]] = values[:, kept]
            return found

        leaders = np.tile(np.arange(shape[1] // len(places) * m), (shape[0], 1))
        leaders[:, columns] = columns[part.leaders]
        wide: Any = {name: spread(getattr(part, name)) for name in WIDE}
        return part._replace(**{**wide, "leaders": leaders})


def closed(lower: Floats) -> Floats:
    """Lower bounds ``[m, m]`` of all differences μ_i − μ_j, each as high as the others imply."""
    found = lower.copy()
    for k in range(len(found)):
        np.maximum(found, found[:, k, None] + found[None, k, :], out=found)
    return found
