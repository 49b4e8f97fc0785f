"""When sampling is looked at, and how much each look may miss, whatever the sizes follow.

A look computes ordinary fixed-sample intervals from all replications so far, and their spread and means decide how many
more to draw. That is a temptation: a sample that looks promising is stopped soon, before its noise evens out, and an
interval at a size that followed the data misses more often than one at a fixed size. There are two cures.

- Sizes that follow the data: a few looks, each 1.5 to 10 times as large as the one before (the last as large as need
  be). Their common level is set for the worst rule that anyone could choose the sizes by. With ``Z`` the standardised
  error after a look and ``u = n/n'`` the ratio of two sizes, the chance that a rule can make some later look miss is

      V_k(z) = max_u E[ V_{k+1}(√u z + √(1−u) ξ) ],    V_k(z) = 1 where z > c,    ξ normal,

  and c is such that E[V_1(ξ)], doubled for two sides, is the error allowed. It rests on the central limit theorem.
- Sizes fixed in advance, each 1.5 times the one before, with a part of the error for each. It holds for whatever
  intervals hold at fixed sizes, at the price of more of them: for bounded returns, where nothing is approximate.

At 95 % and one gap, c is 2.65 against 1.96 for a single look of known size; a boundary that holds at every size from
200 to 100,000 needs 3.16 (`benchmarks/coverage.py` has what that means in replications).

**Going on** after the last look opens another series of looks. The k-th such series has the error ``ε/2ᵏ`` of its own:
its level is that at which none of all looks, the earlier ones included, would miss with more than that, and its sizes
may grow freely. So whoever stops after whichever series, for whichever reason, is wrong with at most ``ε(2 − 2⁻ᵏ)``.

**Who is still sampled.** All that may be better than the leader by more than the indifference. Why dropping the others
keeps the promise: each pair (i, j) has a part of the error, under which its interval holds at all looks at once,
whatever the sizes of the looks follow. To sample a pair no more is one of these rules. It may also follow what other
pairs show: replications are independent, so what was seen of whomever says nothing
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
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy

from jointmdp.ground.arrays import Floats
from jointmdp.ground.errors import ModelError
from jointmdp.ground.progress import Meter
from jointmdp.simulation.executors import Executor
from jointmdp.simulation.montecarlo.alternatives import Alternatives
from jointmdp.simulation.montecarlo.samples import WIDE, Replications, Sampler, samples

LOOKS = 4
RACE = 6  # looks where alternatives drop out: more of them cost 6 % more at the end, and save several times that
LEAST_GROWTH = 1.5
MOST_GROWTH = 10.0  # a pilot knows little of how many replications it takes; the next look knows more
FAR = 8.0  # standard deviations at which a normal variable ends


@lru_cache(maxsize=256)
def worst_case_error(error: float, looks: int = LOOKS, is_free: bool = False) -> float:
    """The two-sided error of each look, with which the worst rule of choosing sizes makes any miss with `error`."""
    if looks == 1:
        return error

    def excess(critical: float) -> float:
        return math.log(2 * worst_case(critical, looks, is_free) / error)

    start = -float(scipy.special.ndtri(error / 2))
    critical = float(scipy.optimize.brentq(excess, start, start + 2, xtol=1e-4))
    return 2 * float(scipy.special.ndtr(-critical))


def worst_case(critical: float, looks: int = LOOKS, is_free: bool = False) -> float:
    """The largest probability, over all rules of choosing sizes, that at some look Z exceeds `critical`.

    Free sizes may grow by any factor above the least one, not only the last.
    """
    chance = None  # V after the look in question, on a grid of z
    grid = np.concatenate([np.linspace(-FAR / 2, 0, 41)[:-1], np.linspace(0, critical, 81)])
    for later in range(1, looks):  # looks that are still to come
        least = 0.0 if later == 1 or is_free else 1 / MOST_GROWTH
        u = np.linspace(least, 1 / LEAST_GROWTH, 41)
        middle, spread = np.sqrt(u) * grid[:, None], np.sqrt(1 - u)  # [z, u]
        value = scipy.special.ndtr((middle - critical) / spread)
        if chance is not None:
            value = value + _expected(grid, chance, middle, spread, critical)
        chance = value.max(axis=1)
    crossed = float(scipy.special.ndtr(-critical))
    if chance is None:
        return crossed
    return crossed + float(_expected(grid, chance, np.zeros(1), np.ones(1), critical)[0])


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


def _expected(grid: np.ndarray, chance: np.ndarray, middle: np.ndarray, spread: np.ndarray, end: float) -> np.ndarray:
    """E[V(Z); Z < end] for Z normal with the given means and standard deviations."""
    total = np.zeros(np.broadcast_shapes(middle.shape, spread.shape))
    lower, upper = middle - FAR * spread, np.minimum(middle + FAR * spread, end)
    half = np.maximum(upper - lower, 0.0) / 4
    for part in (1, 3):  # two halves, as the integrand is steep at one end
        z = (lower + part * half)[..., None] + half[..., None] * _NODES
        distance = (z - middle[..., None]) / spread[..., None]
        weight = np.exp(-(distance**2) / 2) / (math.sqrt(2 * math.pi) * spread[..., None])
        total += half * ((np.interp(z, grid, chance) * weight) @ _WEIGHTS)
    return total


class Stage(NamedTuple):
    """When the replications of a comparison are looked at, and how far the looks have come: what a file can hold."""

    pilot: int
    most: int
    is_fixed: bool = False
    """Whether sizes are fixed in advance."""
    looks: int = LOOKS
    """That the present series may have, where they are not."""
    look: int = 0
    """That it has had."""
    series: int = 0
    before: int = 0
    """Looks of earlier series."""

    @property
    def sizes(self) -> list[int]:
        """All sizes at which a look may be taken, where these are fixed."""
        found = [min(self.pilot, self.most)]
        while found[-1] < self.most:
            found.append(min(math.ceil(found[-1] * LEAST_GROWTH), self.most))
        return found

    @property
    def first(self) -> int:
        """The size of the first look; all that is allowed where that leaves no room for another."""
        if self.is_fixed:
            return self.sizes[0]
        return self.pilot if self.pilot * LEAST_GROWTH <= self.most else self.most

    def error(self, error: float) -> float:
        """What each look may miss with, for all looks together to miss with an `error`, less in later series."""
        error /= 2**self.series
        if self.is_fixed:
            return error / len(self.sizes)  # an equal part for every size, visited or not
        return worst_case_error(error, self.before + (self.looks if self.first < self.most else 1), self.before > 0)

    def after(self, size: int, wanted: float, enough: float) -> int | None:
        """The size of the next look: `wanted`, or on the last look `enough`; None when there is no other look."""
        if size >= self.most or (not self.is_fixed and self.look >= self.looks):
            return None
        if self.is_fixed:
            return next((n for n in self.sizes if n > size and n >= wanted), self.most)
        is_last = self.look == self.looks - 1
        planned = max(enough if is_last else min(wanted, MOST_GROWTH * size), LEAST_GROWTH * size)
        # A rest too small for another look is taken along.
        return self.most if planned * LEAST_GROWTH > self.most else math.ceil(planned)

    def resumed(self, size: int, most: int, looks: int) -> Stage:
        """Going on after `size` replications, up to `most`: with the looks that are left, or with a new series."""
        if self.is_fixed:
            if size >= self.most or most > self.most:
                raise ModelError(
                    f"with bounds the sizes of looks are fixed in advance, here up to {self.most:,} replications, of "
                    f"which {size:,} are made; compare again with a larger max_replications"
                )
            return self
        if most < LEAST_GROWTH * size:
            raise ModelError(
                f"{size:,} replications are made, and the next look is after {math.ceil(LEAST_GROWTH * size):,} at the "
                f"earliest; {most:,} are allowed"
            )
        if self.look < self.looks and self.first < self.most:
            return self._replace(most=most)
        return Stage(size, most, False, looks, 0, self.series + 1, self.before + self.look)


# -- who is still sampled ----------------------------------------------------------------------------------------------


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
