"""How much of a sampled gap's variance each stream of noise makes: the sampled twin of `Gap.variance_by_step`.

A gap is a function of independent sources of noise, f(x₁, …, x_d), and its variance is the sum of what each does alone
and of what several do together (Sobol', Sensitivity estimates for nonlinear mathematical models, 1993). Each
replication is run again with one source drawn anew, with all the others, and with all: a = f(x), b = f(x'),
aᵤ = f(x'ᵤ, x₋ᵤ) and bᵤ = f(xᵤ, x'₋ᵤ). With Dᵤ = a − aᵤ and Eᵤ = bᵤ − b, which differ only in the other sources,

    alone      Vᵤ = E[Dᵤ Eᵤ] / 2                (Owen, Better estimation of small Sobol' sensitivity indices, 2013)
    in all     Tᵤ = E[Dᵤ² + Eᵤ²] / 4            (Jansen, Analysis of variance designs for model output, 1999)
    whole      V  = (1 − d/4) E(a − b)² / 2 + Σᵤ E(aᵤ − bᵤ)² / 8

No mean is subtracted, so a source without effect gets exactly 0, and where nothing acts together ``V − Σ Vᵤ`` is
exactly 0 too: products of two sources cancel in these weights. Janon's form, which correlates a with bᵤ, has 0.6 to 1.3
times their mean squared error for large shares and 3 to 3,000 times for small ones, Saltelli's 3 to 2,000 times for
large ones and 0.8 to 30 times for small ones (`python -m benchmarks streams`).
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jointmdp.exact.solution.gap import VarianceSplit
from jointmdp.ground import checks
from jointmdp.ground.answers import aligned
from jointmdp.ground.arrays import Floats
from jointmdp.ground.errors import ModelError, NotKnownError
from jointmdp.ground.intervals import Interval
from jointmdp.ground.progress import Meter
from jointmdp.simulation.executors import Executor, opened
from jointmdp.simulation.montecarlo import confidence_intervals
from jointmdp.simulation.montecarlo.alternatives import Alternatives, RunSampler
from jointmdp.simulation.montecarlo.samples import sample
from jointmdp.simulation.simulators.noise import POLICY, START, Redraw, family, watcher
from jointmdp.simulation.watching.recorded_draws import Sources, twins_installed

NOTHING, ALL = Redraw(frozenset({""})), Redraw(is_rest=True)  # no source is called ""
PILOT = 30  # replications in which sources are looked for; fewer say nothing of a variance
LOOKING = 0.1  # of the time, for that
FEW_RUNS = 5  # that tell whether one source is seeded from another
MOST_STREAMS = 8  # that are told apart
LEAST = 100  # replications that must fit in the time for each
SPLIT = 6  # generators made in one place that are sources of their own; more are one
SURE = 0.9999  # with which something must be shown to vary that no stream moves
BOTH, TOGETHER, UNSEEN = "both", "together", "not followed"


@dataclass(frozen=True, repr=False)
class StreamSplit(VarianceSplit):
    """Parts of the variance of a sampled gap, by stream of noise; ``print(split)`` explains it."""

    shares: tuple[Interval, ...] = ()
    """Of each part, as a fraction of the whole."""
    totals: tuple[Interval | None, ...] = ()
    """Of what a stream does alone and together with others; None for what is no stream."""
    num_replications: int = 0
    confidence: float = 0.95
    """With which each interval holds, by itself."""
    notes: tuple[str, ...] = ()

    def table(self) -> list[dict[str, Any]]:
        """Name, part, share of the whole, and share with all that it does together with others: largest first, and
        what streams do together after them.
        """
        rows = []
        for i in sorted(range(len(self)), key=lambda i: math.inf if self.totals[i] is None else -self.values[i]):
            share, total = self.shares[i], self.totals[i]
            row = {self.by: self.names[i], "variance": float(self.values[i])}
            row |= {"share": share.estimate, "share_interval": share}
            rows.append({**row, "with_others": math.nan if total is None else total.estimate})
            rows[-1] |= {"with_others_interval": Interval(math.nan, math.nan) if total is None else total}
        return rows

    def __repr__(self) -> str:
        if not self.names:
            return f"{self.gap}: no stream of noise was drawn from"
        n = self.num_replications
        lines = [f"{self.gap}: where a variance of {self.total:.4g} arises, by stream, from {n:,} replications", ""]
        cells = [["", "alone", "", "with others", ""]]
        for row in self.table():
            is_nothing = math.isnan(row["with_others"]) and row["share_interval"] == (0.0, 0.0)
            if is_nothing and row[self.by] != BOTH:
                continue
            parts = [(row["share"], row["share_interval"]), (row["with_others"], row["with_others_interval"])]
            shown = [("", "") if math.isnan(share) else (f"{share:.0%}", _ends(held)) for share, held in parts]
            cells.append([row[self.by], *itertools.chain.from_iterable(shown)])
        short = cells if len(self.names) > 1 else [row[:3] for row in cells]
        promise = f"Each interval holds with {self.confidence:.0%}, {confidence_intervals.caveat(n)}."
        return "\n".join([*lines, *aligned(short), "", *self.notes, promise])

    __str__ = __repr__


def _ends(interval: Interval) -> str:
    """Percentages rounded outwards."""
    return f"[{math.floor(100 * interval.lower + 1e-9)}%, {math.ceil(100 * interval.upper - 1e-9)}%]"


def variance_by_stream(  # many parameters: a front door, one keyword for each setting
    found: Alternatives,
    pair: tuple[int, int],
    gap: str,
    *,
    place: int = 0,
    replications: int = 1000,
    seconds: float = 60.0,
    confidence: float = 0.95,
    executor: Executor | str | None = None,
) -> StreamSplit:
    """Split the variance of the gap of two alternatives, of the `place`-th result of a run."""
    checks.as_count("replications", replications, PILOT)
    until = time.monotonic() + checks.as_positive("seconds", seconds)
    if pair[0] == pair[1]:
        raise ModelError(f"{found.labels[pair[0]]} is compared with itself; the gap is 0 and has no variance to split")
    if not hasattr(found.sampler, "redraw"):
        raise NotKnownError(
            f"{found.name} runs in the compiled engine, whose noise is one key that is not split into streams; for "
            "tables evaluate(model, policy).gap(…) has variance_by_step() and variance_by_state()"
        )
    title, is_run = "the variance of a gap by stream", isinstance(found.sampler, RunSampler)
    recording = twins_installed() if is_run else nullcontext()
    with Meter(title, seconds) as meter, opened(executor) as workers, recording:
        runs = _Runs(found, pair, place, workers)
        sources, notes = _sources(runs, until)
        names = list(sources)
        designs = _designs([sources[name] for name in names])
        distinct = list(dict.fromkeys(designs.values()))
        known: dict[Redraw, list[Floats]] = {each: [] for each in distinct}
        done = 0
        while done < replications and (done < PILOT or time.monotonic() < until):
            count = min(replications - done, max(4, done // 2))
            for each in distinct:
                known[each].append(runs.gaps(each, done, count))
            done += count
            meter.update(done / replications, f"{done:,} of {replications:,} replications, {len(distinct)} runs each")
    if done < replications:
        notes.append(f"The time was up after {done:,} of {replications:,} replications.")
    met = (
        runs.watching.seeds.keys() - {raw.split(" #")[0] for group in sources.values() for raw in group} - runs.left_out
    )
    late = sorted(runs.watching.titles.get(name, name) for name in met)
    if late:
        notes.append(f"First drawn from later, and not told apart: {', '.join(late)}.")
    columns = {key: np.concatenate(known[each]) for key, each in designs.items()}
    return answer(gap, names, columns, confidence, notes, 2 * runs.rounding)


class _Runs:
    """The gaps of two alternatives, with some sources drawn anew."""

    def __init__(self, found: Alternatives, pair: tuple[int, int], place: int, workers: Executor) -> None:
        self.found, self.pair, self.place, self.workers = found, pair, place, workers
        self.sampler: Any = found.sampler
        self.watching, self.left_out, self.rounding = Sources(), set[str](), 0.0

    def gaps(self, redraw: Redraw, first: int, count: int) -> Floats:
        """Replications `first`, …, ``first + count − 1``."""
        sampler = replace(self.sampler.only(self.pair), redraw=redraw)
        with _watched(self.watching):
            run = sample(sampler, first, count, self.found.sharing, self.workers)
        of = slice(2 * self.place, 2 * self.place + 2)
        self.rounding = max(self.rounding, float(run.rounding[:, of].sum(axis=1).max()))
        return np.asarray(-np.diff(run.leads[:, of])[:, 0])

    def met(self, redraw: Redraw, count: int, alternative: int) -> Sources:
        """The sources that one alternative draws from in the first replications."""
        seen = Sources()
        with _watched(seen):
            replace(self.sampler.only((alternative,)), redraw=redraw)(0, count, self.found.sharing)
        return seen


@contextmanager
def _watched(sources: Sources) -> Iterator[None]:
    token = watcher.set(sources)
    try:
        yield
    finally:
        watcher.reset(token)


def _sources(runs: _Runs, until: float) -> tuple[dict[str, frozenset[str]], list[str]]:
    """The sources that are told apart, by title, each with the names that its streams go by; and what is to be said."""
    begun = time.monotonic()
    runs.gaps(NOTHING, 0, 1)
    pace = max(time.monotonic() - begun, 1e-9)  # seconds a replication of both
    count = max(FEW_RUNS, min(PILOT, int(LOOKING * (until - begun) / (2 * pace))))
    each = [[runs.met(redraw, count, j) for redraw in (NOTHING, ALL)] for j in runs.pair]
    met: dict[str, list[list[str]]] = {}
    titles: dict[str, str] = {}
    fixed: dict[str, bool] = {}
    for seen in itertools.chain.from_iterable(each):
        titles = seen.titles | titles
        for name, seeds in seen.seeds.items():
            met.setdefault(name, []).extend(seeds)
            fixed[name] = fixed.get(name, True) and len(seeds) > 1 and all(one == seeds[0] for one in seeds)
    known = getattr(runs.found.simulator, "streams", None)
    # A replay seeds the start again, which no step does; and what always has one seed is a fixed instance.
    own = met if known is None else {START, POLICY, *map(family, known)}
    runs.left_out = {name for name in met if fixed[name] or name not in own}
    groups = _joined(runs, {name: seeds for name, seeds in met.items() if name not in runs.left_out})
    notes, sources = list[str](), dict[str, frozenset[str]]()
    for group in groups:
        first = next(iter(group))
        sources[titles.get(first, first)] = frozenset(group)
        if len(group) > 1:
            others = ", ".join(titles.get(name, name) for name in group[1:])
            notes.append(f"{titles.get(first, first)} seeds {others}, which count as one with it.")
    for j, other in (runs.pair, runs.pair[::-1]):
        has = [set().union(*(seen.seeds for seen in each[runs.pair.index(k)])) for k in (j, other)]
        alone = [title for title, group in sources.items() if not _held(group, has[1]) and _held(group, has[0])]
        if alone:
            notes.append(f"Only {runs.found.labels[j]} draws from {', '.join(alone)}.")
    return _few(runs, sources, notes, (until - time.monotonic()) / (2 * LEAST * pace) - 1), notes


def _held(group: frozenset[str], met: set[str]) -> bool:
    return any(name.split(" #")[0] in met for name in group)


def _joined(runs: _Runs, met: Mapping[str, list[list[str]]]) -> list[tuple[str, ...]]:
    """Sources, each with those that it seeds: drawn anew, it would change them too."""
    names = list[str]()
    for name, seeds in met.items():
        counts = {len(each) for each in seeds}
        most = max(counts, default=1)
        is_split = len(counts) == 1 and 1 < most <= SPLIT
        names += [f"{name} #{k + 1}" for k in range(most)] if is_split else [name]
    seeded: dict[str, str] = {}
    if any(met.values()):
        plain = {j: _first_seeds(runs.met(NOTHING, FEW_RUNS, j), names) for j in runs.pair}
        for name in names:
            redraw = Redraw(frozenset({name}))
            for j in runs.pair:
                for other, first in _first_seeds(runs.met(redraw, FEW_RUNS, j), names).items():
                    if other != name and not plain[j].get(other, first) & first:
                        seeded.setdefault(other, name)
    roots = [name for name in names if name not in seeded]
    return [(root, *(name for name in names if name != root and _root(seeded, name) == root)) for root in roots]


def _root(seeded: Mapping[str, str], name: str) -> str:
    for _ in seeded:
        name = seeded.get(name, name)
    return name


def _first_seeds(seen: Sources, names: Sequence[str]) -> dict[str, set[str]]:
    """The seeds of the first generator of each source, in all runs."""
    found = {}
    for name in names:
        group, _, number = name.partition(" #")
        runs = seen.seeds.get(group, [])
        found[name] = {seeds[int(number or 1) - 1] for seeds in runs if len(seeds) >= int(number or 1)}
    return {name: seeds for name, seeds in found.items() if seeds}


def _few(runs: _Runs, sources: dict[str, frozenset[str]], notes: list[str], fit: float) -> dict[str, frozenset[str]]:
    """As many sources as can be told apart, by what a few replications say; the rest are one."""
    room = max(2, min(MOST_STREAMS, math.floor(fit)))
    if len(sources) <= room:
        return sources
    plain = runs.gaps(NOTHING, 0, PILOT)
    moved = {title: ((plain - runs.gaps(Redraw(group), 0, PILOT)) ** 2).mean() for title, group in sources.items()}
    ranked = sorted(sources, key=lambda title: -moved[title])
    rest = ranked[room - 1 :]
    why = f"{MOST_STREAMS} streams at most are told apart" if room == MOST_STREAMS else "for more there is no time"
    notes.append(f"{why[:1].upper()}{why[1:]}; counted as one, by {PILOT} replications: {', '.join(rest)}.")
    kept = {title: sources[title] for title in sources if title not in rest}
    return {**kept, f"{len(rest)} others": frozenset().union(*(sources[title] for title in rest))}


Key = tuple[str, int]  # "a" or "b", and the number of the source; −1 for none of them


def _designs(groups: Sequence[frozenset[str]]) -> dict[Key, Redraw]:
    """What is drawn anew in each run; of two sources, one of them anew is all but the other."""
    found: dict[Key, Redraw] = {("a", -1): NOTHING, ("b", -1): ALL}
    for u, group in enumerate(groups):
        found["a", u], found["b", u] = Redraw(group), Redraw(group, is_rest=True)
    if len(groups) == 1:
        found["a", 0], found["b", 0] = ALL, NOTHING
    if len(groups) == 2:
        found["a", 0], found["a", 1] = found["b", 1], found["b", 0]
    return found


def answer(
    gap: str,
    names: Sequence[str],
    runs: Mapping[Key, Floats],
    confidence: float,
    notes: Sequence[str],
    rounding: float = 0.0,
) -> StreamSplit:
    """Parts, each the mean of one number a replication, and their shares of the whole."""

    def less(x: Floats, y: Floats) -> Floats:
        return np.where(np.abs(x - y) > rounding, x - y, 0.0)

    d, a, b = len(names), runs["a", -1], runs["b", -1]
    alone, in_all = [], []
    whole = (1 - d / 4) * less(a, b) ** 2 / 2
    for u in range(d):
        one, other = less(a, runs["a", u]), less(runs["b", u], b)
        alone.append(one * other / 2)
        in_all.append((one**2 + other**2) / 4)
        whole = whole + less(runs["a", u], runs["b", u]) ** 2 / 8
    parts, labels = [*alone], [*names]
    if d == 3:
        for u, v in itertools.combinations(range(3), 2):
            (w,) = {0, 1, 2} - {u, v}
            near = less(less(a, runs["a", u]), less(runs["a", v], runs["b", w]))
            parts.append(near * less(less(runs["a", w], runs["b", v]), less(runs["b", u], b)) / 4)
            labels.append(f"{names[u]} and {names[v]}")
    if d >= 2:
        parts.append(whole - sum(parts))
        labels.append(BOTH if d == 2 else "all three" if d == 3 else TOGETHER)
    common = (a - a.mean()) * (b - b.mean()) * len(a) / (len(a) - 1)
    is_varying = np.ptp(a) > rounding
    if is_varying and (d == 0 or confidence_intervals.mean_interval(common, SURE).lower > 0):
        parts, whole = [*parts, common], whole + common
        labels.append(UNSEEN)
        notes = [*notes, _unfollowed(d)]
    if not is_varying and not whole.any() and d > 0:
        notes = [*notes, f"The gap never varied in {len(a):,} replications, whatever was drawn anew."]
    return StreamSplit(
        gap,
        "stream",
        tuple(labels),
        np.array([part.mean() for part in parts]),
        tuple(_share(part, whole, confidence) for part in parts),
        (*(_share(total, whole, confidence) for total in in_all), *(None for _ in labels[d:])),
        len(a),
        confidence,
        tuple(notes),
    )


def _unfollowed(d: int) -> str:
    what = "No stream" if d == 0 else "None of these streams"
    return (
        f"{what} moves the part {UNSEEN!r}: it comes from an engine in another language, the seed used as a number, or "
        "a state that nobody restores; jointmdp.audit looks for it."
    )


def _share(part: Floats, whole: Floats, confidence: float) -> Interval:
    """A ratio of two means: of ``part − share · whole``, whose mean is zero, the interval of a mean."""
    size = float(whole.mean())
    if not size > 0:
        return Interval(0.0, 1.0, math.nan)
    share = float(part.mean()) / size
    if np.array_equal(part, whole):
        return Interval(1.0, 1.0)
    values = (part - share * whole) / size
    most = confidence_intervals.FARTHER * float(np.abs(values).max())
    off = confidence_intervals.careful_mean(values, -most, most, 1 - confidence)
    return Interval(max(0.0, share + off.lower), min(1.0, share + off.upper)).of(share)
