"""What is wrong with the streams of noise of several decisions, each stream by itself.

Decisions were run with the same seeds, and every draw was recorded. A stream that two of them make from the same seed
must be drawn from in step: as far as both draw, by the same methods, from the same place of the stream, for the same
purpose. A longer tail of draws is no fault, since a decision may simulate for longer.

**The same purpose.** A purpose is where in the program a draw is made, by which calls. Two draws at different places
may still have one purpose, as ``rng.normal(1)`` and ``rng.normal(2)`` in the two arms of an ``if``. Follow both paths
to the instruction where they part. If one place can be reached from the other without going round a loop, the draws
come one after the other, and have two purposes. If not, they exclude each other: two ways to do one thing, or the two
kinds of events in a loop over events. These differ in who decides: what a decision does instead has the same order
under every seed, or one draw each time; the order of events is up to the noise.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from jointmdp.ground.watchdog import LIBRARY_FOLDERS
from jointmdp.simulation.simulators.generators import COMPILED
from jointmdp.simulation.watching.hidden_state import OpenedFile
from jointmdp.simulation.watching.patched_functions import Path, follow_each_other, place_text, places_text
from jointmdp.simulation.watching.recorded_draws import (
    NOISE,
    OF_PROGRAM,
    SAME_NUMBERS,
    UNSEEN,
    Draw,
    DrawLog,
    Stream,
)

# Methods that take more or fewer numbers from a generator as their parameters say, or as what they drew before says.
VARYING = {"poisson", "gamma", "standard_gamma", "beta", "binomial", "negative_binomial", "geometric", "dirichlet"}
VARYING |= {"hypergeometric", "logseries", "vonmises", "wald", "zipf", "chisquare", "f", "noncentral_chisquare"}
VARYING |= {"gammavariate", "betavariate", "vonmisesvariate", "randrange", "randint", "sample", "choices", "shuffle"}
VARYING |= {"multinomial", "permutation", "integers", "standard_t", "multivariate_hypergeometric", "choice"}
# Seeds that differ by one of these are one seed to a simulator that cuts seeds down: modulo 2 … 16, powers of ten,
# powers of two, a few primes; 1 for those that divide.
FOLDS = (720_720, 10**6, 2**24, 97 * 101 * 997, 1)
FOLD_SEEDS = 24  # two outcomes that agree every other time agree 24 times in a row with probability 6e-8
SMALL, SEVERAL = 2**20, 8  # one seed of 32 bits in 4,096 is below, and eight of eight are in none of 10²⁸ cases
OUT_OF_STEP = "draws out of step"
UNSHARED, COINCIDE, FIXED = "noise not shared", "seeds that coincide", "frozen generator"
TWICE, EARLY = "one stream for two sources", "draws before seeding"

_CURE = (
    "give each source a generator of its own, default_rng([seed, 1]), default_rng([seed, 2]), or draw from streams by "
    'name, noise["arrivals"], noise["service", k]'
)
CAUSES = {
    OUT_OF_STEP: "a decision draws more or otherwise from this stream than another, and all draws after that shift: "
    + _CURE,
    UNSHARED: "the seed depends on the decision: make the generator from the run's seed alone, and name streams by "
    "their source",
    COINCIDE: "the seed is cut down (seed % 10, a hash of few bits) before a generator is made from it; use all of it, "
    "default_rng(seed)",
    FIXED: "a fixed seed gives the same numbers in every replication; make it from the run's seed, unless it stands "
    "for a fixed instance",
    TWICE: "two sources draw the same numbers, so that they are not independent of each other; if that is not meant, "
    "give each a seed of its own, default_rng([seed, 1]), default_rng([seed, 2])",
    EARLY: "seed the generator before the first draw, at the beginning of the run",
}


class RecordedRun(NamedTuple):
    """One decision under one draw of the noise, and the streams that it touched."""

    decision: str
    replication: str
    log: DrawLog
    state: str = ""
    """Where a simulator was asked; a function of a decision has no states."""
    files: Sequence[OpenedFile] = ()

    @property
    def where(self) -> str:
        """The noise, for people."""
        return f"{self.state}, {self.replication}" if self.state else self.replication


class StreamFault(NamedTuple):
    """What is wrong with a stream."""

    fault: str
    status: Literal["fail", "warn"]
    text: str
    cause: str


def _fault(fault: str, text: str, status: Literal["fail", "warn"] = "fail", cause: str = "") -> StreamFault:
    return StreamFault(fault, status, text, cause or CAUSES[fault])


def judged(runs: Sequence[RecordedRun], known: Collection[Hashable] = ()) -> list[StreamFault]:
    """All faults, at most one of each kind for a stream; those first that explain others.

    Streams of the `known` kinds and seeds are made before the noise comes in, as a replay does.
    """
    found = [
        *early(runs),
        *(list(coinciding(runs, known)) or cut_down(runs, known)),
        *unshared(runs),
        *out_of_step(runs),
        *twice(runs),
        *eaten(runs),
    ]
    found += keys_out_of_step(runs)
    return sorted(found, key=lambda fault: fault.status != "fail")


def _named(stream: Stream) -> str:
    """A stream and where it is made."""
    if stream.kind in OF_PROGRAM and OF_PROGRAM[stream.kind] in COMPILED:
        return f"the generator of {OF_PROGRAM[stream.kind]}"
    return f"{stream}, made at {place_text(stream.path)}," if stream.kind != NOISE else str(stream)


def _grouped(runs: Sequence[RecordedRun], by: Literal["replication", "decision"]) -> list[list[RecordedRun]]:
    found: dict[Hashable, list[RecordedRun]] = {}
    for run in runs:
        found.setdefault((run.state, getattr(run, by)), []).append(run)
    return list(found.values())


def _seeded(run: RecordedRun) -> list[Stream]:
    return [stream for stream in run.log.drawn if stream.seed is not None and not stream.is_kept]


# -- in step ---------------------------------------------------------------------------------------------------------


def out_of_step(runs: Sequence[RecordedRun]) -> Iterator[StreamFault]:
    """Streams with the same seed from which two decisions do not draw in step."""
    told: set[Hashable] = set()
    is_by_design, owners = cache(partial(_is_by_design, runs)), cache(_owners)
    for group in _grouped(runs, "replication"):
        longest: dict[Hashable, tuple[RecordedRun, Stream]] = {}
        for run in group:
            for key, stream in _keyed(run.log).items():
                one, first = longest.setdefault(key, (run, stream))
                if first is not stream and stream.group not in told and first.draws and stream.draws:
                    fault = _difference(one, first, run, stream, is_by_design)
                    fault = fault or _other_turn((one, run), (first, stream), owners)
                    if fault is not None:
                        told.add(stream.group)
                        yield fault
                if len(stream.draws) > len(first.draws):
                    longest[key] = run, stream


def eaten(runs: Sequence[RecordedRun]) -> Iterator[StreamFault]:
    """Streams that are drawn from by what is not written down, more by one decision than by another."""
    told: set[Hashable] = set()
    for group in _grouped(runs, "replication"):
        first: dict[Hashable, tuple[RecordedRun, Stream]] = {}
        for run in group:
            for key, stream in _keyed(run.log).items():
                if stream.end is None or stream.group in told:
                    continue
                one, other = first.setdefault(key, (run, stream))
                is_unseen = (stream.is_eaten or other.is_eaten) and len(stream.draws) == len(other.draws)
                if is_unseen and stream.end != other.end:
                    told.add(stream.group)
                    text = f"{_named(stream)} is drawn from by code that cannot be followed (compiled, perhaps), which"
                    text += f" leaves it elsewhere for {run.decision} than for {one.decision} ({run.where})"
                    words = "unless these draws are the last ones from it, all that come after shift: "
                    yield _fault(OUT_OF_STEP, text, "warn", f"{words}{_CURE}")


def keys_out_of_step(runs: Sequence[RecordedRun]) -> Iterator[StreamFault]:
    """Keys of JAX that two decisions use for different purposes."""
    by_design = cache(lambda: _is_by_design(runs, None))
    for group in _grouped(runs, "replication"):
        first: dict[int, tuple[RecordedRun, Draw]] = {}
        places = {id(run): {draw.path for draw in run.log.keys} for run in group}
        for run in group:
            for draw in run.log.keys:
                one, known = first.setdefault(draw.standing, (run, draw))
                is_elsewhere = known.path in places[id(run)] or draw.path in places[id(one)]
                if one is run or known.path == draw.path or not is_elsewhere:
                    continue
                if follow_each_other(known.path, draw.path) or not by_design():
                    at = places_text(known.path, draw.path)
                    text = f"one key goes into jax.random.{known.method}() at {at[0]} for {one.decision}, and into "
                    text += f"jax.random.{draw.method}() at {at[1]} for {run.decision} ({run.where})"
                    words = "a decision splits a key more often than another, and all keys after that shift: make the "
                    words += "keys of each source from its name, fold_in(key, 1), or split for all sources at once"
                    yield _fault(OUT_OF_STEP, text, cause=words)
                    return


def unseen_keys(logs: Sequence[DrawLog]) -> str:
    """What makes keys that only compiled code uses, in words; empty where Python sees them used."""
    return " and ".join(sorted({kind for log in logs for kind in log.roots.values()}))


def _keyed(log: DrawLog) -> dict[Hashable, Stream]:
    """Streams by how they are made, and the how-manieth of those that are made alike each is."""
    found: dict[Hashable, Stream] = {}
    count: Counter[Hashable] = Counter()
    for stream in log.drawn:
        if stream.seed is not None or stream.kind in OF_PROGRAM:
            made = stream.kind, stream.seed
            found[made, count[made]] = stream
            count[made] += 1
    return found


def _difference(
    one: RecordedRun, first: Stream, other: RecordedRun, second: Stream, is_by_design: Callable[[str], bool]
) -> StreamFault | None:
    """The first draw that is not in step."""
    x, y = first.draws, second.draws
    where = f"({one.where})"
    if max(len(stream.threads - {stream.log.thread}) for stream in (first, second)) > 1:
        text = f"several threads draw from {_named(first)} and which of them comes first is left to chance {where}"
        return _fault(OUT_OF_STEP, text)
    if x[0].standing != y[0].standing and first.is_kept:
        return None  # nobody knows what it was set to
    places = {draw.path for draw in x}, {draw.path for draw in y}
    is_one_source = _is_one_source(one, first, second)
    for i, j, is_met in _meetings(x, y):
        a, b = x[i], y[j]
        if is_met and a.method == b.method and (a.path == b.path or is_one_source):
            if a.rows and b.rows and a.rows != b.rows:
                shapes = [f"{draw.rows} for {run.decision}" for draw, run in ((a, one), (b, other))]
                text = f"draw {i + 1} from {_named(first)} is {a.method}() at {place_text(a.path)}, which fills rows of"
                text += " shape"
                words = "an array is filled row by row, so that all rows after the first get other numbers: put the "
                words += f"size that the decision changes first, size=(servers, days), or {_CURE}"
                return _fault(OUT_OF_STEP, f"{text} {shapes[0]} and {shapes[1]} {where}", cause=words)
            if a.arguments != b.arguments and _is_subset(a) and _is_subset(b):
                text = f"draw {i + 1} from {_named(first)} is {a.method}() at {place_text(a.path)} of other sizes for "
                text += f"{one.decision} and {other.decision} {where}"
                words = "a larger subset does not contain the smaller one: order all of them once for every decision, "
                words += "rng.permutation(n)[:k]"
                return _fault(OUT_OF_STEP, text, "warn", words)
            continue
        names = [f"{draw.method}() at {place}" for draw, place in zip((a, b), places_text(a.path, b.path), strict=True)]
        text = f"draw {i + 1} from {_named(first)} is {names[0]} for {one.decision}, and"
        text += f"{f' draw {j + 1}' if i != j else ''} {names[1]} for {other.decision}"
        is_elsewhere = a.path != b.path and (a.path in places[1] or b.path in places[0])
        is_other_purpose = is_elsewhere and (follow_each_other(a.path, b.path) or not is_by_design(first.group))
        if a.method != b.method or is_other_purpose:
            return _fault(OUT_OF_STEP, f"{text} {where}")
        if not is_met:
            before = y[j - 1].method if j else ""
            eater = f"{before}()" if j else "something that is not seen"
            words = f"{eater} before it took more numbers for one than for the other: {_CURE}"
            if before in VARYING:
                words = f"{before}() takes a number of draws that depends on its parameters: draw by inverse transform"
                words += f", scipy.stats…ppf(rng.random(), …), or {_CURE}"
            return _fault(OUT_OF_STEP, f"{text}, which begins elsewhere in the stream {where}", cause=words)
    count = min(len(x), len(y))
    given = [[(draw.method, draw.arguments) for draw in draws[:count]] for draws in (x, y)]
    if given[0] != given[1] and Counter(given[0]) == Counter(given[1]):
        words = f"the draws from {_named(first)} have the same parameters for {one.decision} and {other.decision}, in"
        # In one line of the program that may be meant: what a decision orders has parameters in another order.
        is_one_line = [draw.path for draw in x[:count]] == [draw.path for draw in y[:count]]
        return _fault(OUT_OF_STEP, f"{words} another order {where}", "warn" if is_one_line else "fail")
    return None


def _is_subset(draw: Draw) -> bool:
    """Whether it takes some of several things, none twice."""
    given = draw.arguments if isinstance(draw.arguments, tuple) else ()
    return draw.method == "sample" or (
        draw.method == "choice" and (("replace", False) in given or given[2:3] == (False,))
    )


def _other_turn(
    runs: tuple[RecordedRun, RecordedRun],
    streams: tuple[Stream, Stream],
    owners_of: Callable[[DrawLog, str], Counter[Hashable]],
) -> StreamFault | None:
    """The first draw that is somebody else's, where that one draws earlier or later: in one line, so in step."""
    (one, other), first = runs, streams[0]
    turns = [list(zip(stream.draws, stream.turns, strict=False)) for stream in streams]
    owners = [owners_of(run.log, first.group) for run in runs]
    for i, ((a, mine), (b, others)) in enumerate(zip(*turns, strict=False)):
        if a.standing != b.standing or a.path != b.path:
            return None
        names = [name for name, _ in mine]
        if mine == others or not mine or names != [name for name, _ in others]:
            continue
        if all(each[a.path, turn] == 1 for each in owners for turn in (mine, others)):
            apart = [k for k in range(len(mine)) if mine[k] != others[k]]
            whose = [" and ".join(f"{turn[k][0]} = {turn[k][1]}" for k in apart) for turn in (mine, others)]
            text = f"draw {i + 1} from {_named(first)} is {a.method}() at {place_text(a.path)} for {whose[0]} with "
            text += f"{one.decision}, and for {whose[1]} with {other.decision} ({one.where})"
            words = "who draws next depends on the decision, so that each gets what was another's: give each a stream "
            words += 'of its own, noise["service", k], or draw for all in one order'
            return _fault(OUT_OF_STEP, text, "warn", words)
    return None


def _owners(log: DrawLog, group: str) -> Counter[Hashable]:
    """How often something is drawn in each turn, from all streams that are made in one place."""
    streams = [stream for stream in log.drawn if stream.group == group]
    return Counter((draw.path, turn) for s in streams for draw, turn in zip(s.draws, s.turns, strict=False))


def _is_one_source(run: RecordedRun, first: Stream, second: Stream) -> bool:
    """Whether it is the stream that says what is drawn: the law of a queue's service, in an object that a library asks.

    Then all its draws are one draw again and again, in a line that draws from other streams as well, for a library.
    """

    def kinds(stream: Stream) -> set[Hashable]:
        return {(draw.path[:2], draw.method, draw.arguments) for draw in stream.draws}

    callers = {code for draw in (*first.draws, *second.draws) for code in draw.path[2:4:2]}
    if len(kinds(first) | kinds(second)) > 1 or not all(
        code.co_filename.startswith(LIBRARY_FOLDERS) for code in callers
    ):
        return False
    lines = [{draw.path[:2] for draw in each.draws} for each in run.log.drawn if each is not first]
    return any(first.draws[0].path[:2] in line for line in lines)


def _meetings(x: Sequence[Draw], y: Sequence[Draw]) -> Iterator[tuple[int, int, bool]]:
    """Draws that stand for one another, and whether they begin in the same place of the stream.

    Between two places where both begin a draw, one may take in few calls what the other takes in many.
    """
    i = j = 0
    if x[0].standing != y[0].standing:
        yield 0, 0, False
        return
    while True:
        yield i, j, True
        if i + 1 == len(x) or j + 1 == len(y):
            return
        if x[i + 1].standing == y[j + 1].standing:
            i, j = i + 1, j + 1
            continue
        later = {draw.standing: k for k, draw in reversed(list(enumerate(y[j + 1 :], j + 1)))}
        after = next(((k, later[d.standing]) for k, d in enumerate(x[i + 1 :], i + 1) if d.standing in later), None)
        end, other_end = (len(x), len(y)) if after is None else after
        between = {(draw.method, draw.path) for draw in (*x[i:end], *y[j:other_end])}
        if len(between) > 1 or x[i].method in VARYING:
            yield i + 1, j + 1, False
            return
        if after is None:
            return
        i, j = after


def _is_by_design(runs: Sequence[RecordedRun], group: str | None) -> bool:
    """Whether the order of draws that exclude each other is the decision's own doing, and not that of the noise.

    Without a group the same for keys.
    """
    orders = []
    for same in _grouped(runs, "decision"):
        drawn = [[stream.draws for stream in run.log.drawn if stream.group == group] for run in same]
        drawn = [[run.log.keys] for run in same] if group is None else drawn
        paths = [tuple(draw.path for draws in several for draw in draws) for several in drawn]
        orders.append([order for order in paths if order])
    is_fixed = all(len(set(same)) == 1 for same in orders if same) and any(len(same) > 1 for same in orders)
    every = list(itertools.chain.from_iterable(orders))
    is_one_each = len(set(map(len, every))) == 1  # where one draws more often, all draws of others shift
    return is_one_each and (is_fixed or len({frozenset(Counter(order).items()) for order in every}) > 1)


# -- seeds -----------------------------------------------------------------------------------------------------------

Sites = defaultdict[Path, set[tuple[str, str]]]


def _sites(run: RecordedRun) -> Sites:
    """The seeds from which streams are made, place by place."""
    found: Sites = defaultdict(set)
    for stream in _seeded(run):
        found[stream.path].add((stream.kind, str(stream.seed)))
    return found


def _beginnings(run: RecordedRun) -> dict[Hashable, int]:
    """Where the first draw from the streams of a seed begins: elsewhere where somebody has set the state by hand."""
    return {(each.kind, str(each.seed)): each.draws[0].standing for each in reversed(_seeded(run)) if each.draws}


def _made(kind: str, seed: str) -> str:
    return str(Stream(kind, seed, (), DrawLog()))


def unshared(runs: Sequence[RecordedRun]) -> Iterator[StreamFault]:
    """Streams whose seeds depend on the decision."""
    told: set[str] = set()
    own = _own_instances(runs)
    for group in _grouped(runs, "replication"):
        sites = [(run, _sites(run)) for run in group]
        for (one, x), (other, y) in itertools.combinations(sites, 2):
            for p, q in _counterparts(x, y):
                place = place_text(p)
                are_instances = {(one.decision, p), (other.decision, q)} <= own
                if place not in told and not x[p] & y[q] and not are_instances:
                    told.add(place)
                    names = [f"{run.decision} draws from {_made(*min(s))}" for run, s in ((one, x[p]), (other, y[q]))]
                    yield _fault(UNSHARED, f"{names[0]} and {names[1]}, made at {place} ({one.where})")
    yield from _reordered(runs)


def _own_instances(runs: Sequence[RecordedRun]) -> set[tuple[str, Path]]:
    """Decisions, and places where each makes its streams from the same seeds in all replications.

    What is drawn there is a part of the decision (a random design by its number) and no noise.
    """
    found = set()
    for group in _grouped(runs, "decision"):
        sites = [_sites(run) for run in group]
        for path in dict.fromkeys(path for each in sites for path in each):
            seeds = [each[path] for each in sites if path in each]
            if len(seeds) > 1 and all(each == seeds[0] for each in seeds) and all(k != NOISE for k, _ in seeds[0]):
                found.add((group[0].decision, path))
    return found


def _reordered(runs: Sequence[RecordedRun]) -> Iterator[StreamFault]:
    """Children of one seed, which have no names but their order, that go to other sources for another decision."""
    told: set[str] = set()
    for group in _grouped(runs, "replication"):
        first: dict[Path, tuple[RecordedRun, list[Stream]]] = {}
        for run in group:
            made: dict[Path, list[Stream]] = {}
            for stream in _seeded(run):
                if stream.is_child:
                    made.setdefault(stream.path, []).append(stream)
            for path, streams in made.items():
                one, known = first.setdefault(path, (run, streams))
                if known is not streams and _serve_as_before(known, streams):
                    told.add(place_text(path))
                place, how = place_text(path), _handed_out_otherwise(known, streams)
                if how and place not in told:
                    told.add(place)
                    words = f"the children of a seed that are made at {place} are drawn from {how}"
                    text = f"{words} for {run.decision} than for {one.decision} ({run.where})"
                    cause = "a child has no name but its place in the order: make the children in one order for all; "
                    cause += "where each child serves the same source whatever the decision, this is as it should be"
                    yield _fault(UNSHARED, text, "warn", cause)


def _serve_as_before(known: Sequence[Stream], streams: Sequence[Stream]) -> bool:
    """Whether each child of a seed is seen to draw for those that it drew for before, and each for others."""
    before, now = ({str(each.seed): frozenset(each.turns) for each in both} for both in (known, streams))
    are_told_apart = all(now.values()) and len(set(now.values())) == len(now) > 1
    return are_told_apart and all(turns == before.get(seed, turns) for seed, turns in now.items())


def _handed_out_otherwise(known: Sequence[Stream], streams: Sequence[Stream]) -> str:
    """How the children of a seed are seen to go to other sources than before; empty where they are not.

    The order in which they are first drawn from tells only where all draw alike: if each draws what it drew before,
    and not what the others did whose turn it takes, it is the turns that have changed.
    """
    used, uses = (
        {each.seed: frozenset((draw.method, draw.arguments) for draw in each.draws) for each in both}
        for both in (known, streams)
    )
    if uses != used and uses.keys() == used.keys() and Counter(uses.values()) == Counter(used.values()):
        return "for other sources"
    turns = [sorted(range(len(both)), key=lambda i: both[i].began) for both in (known, streams)]
    threads = set().union(*(each.threads for each in (*known, *streams)))
    if len(turns[0]) != len(turns[1]) or turns[0] == turns[1] or len(threads) > 1:
        return ""
    before, now = ([uses.get(both[i].seed) for i in turn] for both, turn in zip((known, streams), turns, strict=True))
    return "" if uses == used and before != now else "in another order"


def _counterparts(x: Sites, y: Sites) -> Iterator[tuple[Path, Path]]:
    """Places that stand for one another: the same, or two that exclude each other; all where nothing is in common."""
    own, others = [p for p in x if p not in y], [q for q in y if q not in x]
    for path in x:
        if path in y:
            yield path, path
    has_nothing = bool(x and y) and not set().union(*x.values()) & set().union(*y.values())
    for p, q in itertools.product(own, others):
        if has_nothing or (len(own) == len(others) == 1 and not follow_each_other(p, q)):
            yield p, q


def coinciding(runs: Sequence[RecordedRun], known: Collection[Hashable] = ()) -> Iterator[StreamFault]:
    """Seeds that are the same in some replications, or in all of them."""
    told: set[str] = set()
    for group in _grouped(runs, "decision"):
        sites = [(run, _sites(run)) for run in group]
        for path in dict.fromkeys(path for _, found in sites for path in found):
            seeds = [(run, found[path].difference(known)) for run, found in sites if path in found]
            place = place_text(path)
            if len(seeds) < 2 or place in told or all(kind == NOISE for _, s in seeds for kind, _ in s):
                continue
            begin = {id(run): _beginnings(run) for run, _ in seeds}
            pairs = [
                ((a, b), {made for made in x & y if begin[id(a)].get(made) == begin[id(b)].get(made)})
                for (a, x), (b, y) in itertools.combinations(seeds, 2)
            ]
            common = [(both, shared) for both, shared in pairs if shared]
            if not common:
                continue
            told.add(place)
            (one, other), shared = common[0]
            made = _made(*min(shared))
            if len(common) == len(pairs):
                text = f"{made}, made at {place}, draws the same numbers in all {len(seeds)} replications"
                yield _fault(FIXED, text, "warn")
            else:
                text = f"{made}, made at {place}, is the same for {one.replication} and {other.replication}"
                yield _fault(COINCIDE, text)


def cut_down(runs: Sequence[RecordedRun], known: Collection[Hashable] = ()) -> Iterator[StreamFault]:
    """Seeds that differ from replication to replication, and are small whole numbers in all of them."""
    found: dict[str, dict[Hashable, set[tuple[str, Any]]]] = defaultdict(lambda: defaultdict(set))
    for run in runs:
        for path, made in _sites(run).items():
            found[place_text(path)][run.state, run.decision] |= {
                each for each in made.difference(known) if each[0] != NOISE
            }
    for place, groups in found.items():
        made = set().union(*groups.values())
        if len(made) < SEVERAL or max(map(_as_number, made)) >= SMALL:
            continue
        if any(len(group) > 1 for group in groups.values()):  # otherwise the state is the seed
            kinds = " and ".join(sorted({kind for kind, _ in made}))
            text = f"{kinds}, made at {place}, has no seed above {max(map(_as_number, made)):,} in {len(made)} tried"
            yield _fault(COINCIDE, f"{text}, so that replications come again and again")


def _as_number(made: tuple[str, Any]) -> float:
    """The seed of a generator that is made from one whole number."""
    return int(made[1]) if str(made[1]).isdecimal() else np.inf


Seen = TypeVar("Seen")


def fold_of(
    outcomes: Callable[[int], Seen],
    is_same: Callable[[Seen, Seen], bool],
    timed: Callable[[Iterable[int]], Iterator[int]] = iter,
) -> int | None:
    """A difference of seeds that changes no outcome, where seeds matter; None also where there was no time to tell."""
    seeds = [int(seed) for seed in np.random.default_rng(0).integers(2**31, size=FOLD_SEEDS)]
    first = [outcomes(seed) for seed in timed(seeds[:6])]
    equal = [is_same(x, y) for x, y in itertools.combinations(first, 2)]
    if sum(equal) > len(equal) / 2:  # too few different outcomes to tell
        return None
    for apart in FOLDS:
        alike = itertools.takewhile(lambda s: is_same(outcomes(s), outcomes(s + apart)), timed(seeds))  # noqa: B023
        if len(list(alike)) == FOLD_SEEDS:
            return apart
    return None


def twice(runs: Sequence[RecordedRun]) -> Iterator[StreamFault]:
    """Two generators of one run with the same seed, or one that is set back: their sources draw the same numbers."""
    told: set[Hashable] = set()
    for run in runs:
        made: dict[Hashable, Stream] = {}
        named = [stream for stream in _seeded(run) if stream.kind != NOISE and stream.kind not in UNSEEN]
        passed = {draw.standing: stream for stream in reversed(named) for draw in stream.draws}
        for stream in _seeded(run):
            back = None if stream.group in told else _set_back(stream)
            if back is not None:
                told.add(stream.group)
                text = f"{_named(stream)} is set back, so that {back.method}() at {place_text(back.path)} draws numbers"
                yield _fault(TWICE, f"{text} that were drawn before ({run.decision}, {run.where})", "warn")
            if stream.kind == NOISE or stream.kind in UNSEEN:
                continue
            # Where it begins is what counts: NumPy makes the same of seed and of [seed, 0].
            begins = stream.draws[0].standing if stream.draws else None
            first = made.setdefault(begins or (SAME_NUMBERS.get(stream.kind, stream.kind), stream.seed), stream)
            if first is stream:  # or a copy of one that went on from there
                first = passed.get(begins or 0, stream)
            key = place_text(first.path), place_text(stream.path)
            if key in told or first is stream or not (first.draws and stream.draws):
                continue
            # A function that makes a generator and draws from it may only be asked again, from another place.
            both = (first, stream)
            inside = all(d.path[2:] == s.path[2:] and d.path[:1] == s.path[:1] for s in both for d in s.draws)
            x, y = ([(draw.method, draw.arguments) for draw in each.draws] for each in both)
            is_again = first.path[:2] == stream.path[:2] and first.path != stream.path and inside and x == y
            if not is_again:
                told.add(key)
                where = f"at {key[0]} and at {key[1]}" if key[0] != key[1] else f"twice at {key[0]}"
                as_well = "" if first.seed == stream.seed else f" as {stream.seed}, which is the same numbers"
                text = f"{first} is made {where}{as_well}, and drawn from both times ({run.decision}, {run.where})"
                yield _fault(TWICE, text, "warn")


def _set_back(stream: Stream) -> Draw | None:
    """The first draw that begins where another did, though the generator had moved on in between."""
    seen: set[int] = set()
    for before, draw in itertools.pairwise(stream.draws):
        if draw.standing in seen and before.standing != draw.standing:
            return draw
        seen.add(before.standing)
    return stream.set_back


def early(runs: Sequence[RecordedRun]) -> Iterator[StreamFault]:
    """Generators of the whole program that are drawn from before they are seeded."""
    told: set[str] = set()
    for run in runs:
        for kind, name in OF_PROGRAM.items():
            streams = [stream for stream in run.log.streams if stream.kind == kind]
            before = [stream for stream in streams if stream.seed is None and stream.draws]
            after = [stream for stream in streams if stream.seed is not None]
            if before and after and name not in told:
                told.add(name)
                drawn: Draw = before[0].draws[0]
                at = f"{name}.{drawn.method}() at {place_text(drawn.path)}"
                words = f"{at} draws before {kind}() at {place_text(after[0].path)}"
                yield _fault(EARLY, f"{words} ({run.decision}, {run.where})")


def unseeded(runs: Sequence[RecordedRun]) -> Iterator[StreamFault]:
    """Draws from a generator of the whole program that nobody has seeded."""
    told: set[str] = set()
    for run in runs:
        for stream in run.log.streams:
            name = OF_PROGRAM.get(stream.kind, "")
            is_seeded = any(each.kind == stream.kind and each.seed is not None for each in run.log.streams)
            if name and stream.seed is None and stream.draws and not is_seeded and name not in told:
                told.add(name)
                draw = stream.draws[0]
                text = (
                    f"{name}.{draw.method}() at {place_text(draw.path)} draws from the generator of the whole program"
                )
                cause = f"nobody seeds {name} from the noise; draw from the noise instead"
                yield _fault(f"global {name}", f"{text} ({run.decision}, {run.where})", "warn", cause)


def fixed_at_start(logs: Sequence[DrawLog]) -> str:
    """What starts under several seeds all draw from the same seed, in words; empty where there is none."""
    drawn = [{str(each) for each in log.drawn if each.kind != NOISE and each.seed is not None} for log in logs]
    fixed = set.intersection(*drawn) if drawn else set()
    return f"{min(fixed)} is made and drawn from at the start, whatever the seed" if fixed else ""


def drawn_in_steps(logs: Sequence[DrawLog], known: Collection[Hashable]) -> str:
    """A draw that a step makes from a stream that only a reset has made, in words; empty where there is none."""
    for stream in itertools.chain.from_iterable(log.drawn for log in logs):
        for draw in stream.draws if (stream.kind, str(stream.seed)) in known else ():
            names = {code.co_name for code in draw.path[::2]}
            if "step" in names and "reset" not in names:
                return f"{draw.method}() at {place_text(draw.path)}"
    return ""


def files_handed_on(runs: Sequence[RecordedRun]) -> Iterator[StreamFault]:
    """A file that one run writes and that another, with another decision, reads before it has written it itself."""
    writers: dict[str, RecordedRun] = {}
    for run in runs:
        own: set[str] = set()
        for name, is_written in run.files:
            writer = writers.get(name, run)
            if not is_written and name not in own and writer.decision != run.decision:
                text = (
                    f"{run.decision} reads what a run of {writer.decision} wrote into {name}: unless that follows from "
                )
                text += "the seed alone, the decision must be in the file's name"
                yield StreamFault("hidden state", "warn", text, f"the file {name} changes with each decision")
                return
            if is_written:
                own.add(name)
                writers[name] = run


def made_otherwise(one: DrawLog, other: DrawLog) -> str:
    """What two logs of the same call make from different seeds; empty where they make the same."""
    unseeded = [stream for stream in one.drawn if stream.seed is None and stream.kind not in OF_PROGRAM]
    # What the system draws to name things matters only where nothing else does.
    for stream in sorted(unseeded, key=lambda stream: stream.kind in UNSEEN):
        return f"{_named(stream)} has no seed that the noise could set"
    for x, y in zip(one.drawn, other.drawn, strict=False):
        if (x.kind, x.seed) != (y.kind, y.seed):
            return f"{_named(x)} is drawn from in a step, and {y} when the same question is asked again"
    return ""
