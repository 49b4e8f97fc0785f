"""One look at one result of all replications so far: its intervals, what they show, and how many more it takes.

Gaps are known where branches become one, long before returns are. So the compiled engine simulates few replications to
their end. A mean return is what all replications gave until then plus what those few gave later, which is the same for
all alternatives; a look at the few is as rare as one at all.

Of events that no replication has shown, the intervals allow for one kind, as rare as n replications can miss and twice
as far from the median gap as the farthest one seen (`confidence_intervals`); ``tails="light"`` does without.

Gaps under common random numbers are often exactly equal in nearly all replications and large now and then. Where fewer
than 30 replications differ from the rest, nothing is known of how large a difference can be; the interval then allows
for unseen ones as large as the whole range of the returns. Where no return has varied at all, they may be as large as
the return itself; and where all are zero nothing is known, as the one reward that matters may still be to come. Nor is
there a verdict at the pilot then: sampling goes on until 30 replications differ, or to ten times the pilot.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy

from jointmdp.decisions.comparing.comparison import Alternative, PairedGap, Verdict, varies
from jointmdp.decisions.comparing.elimination import Race, closed
from jointmdp.decisions.comparing.schedules import LEAST_GROWTH, LOOKS, MOST_GROWTH, RACE
from jointmdp.ground.arrays import Floats
from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import ModelError
from jointmdp.ground.intervals import Interval
from jointmdp.simulation.montecarlo import confidence_intervals
from jointmdp.simulation.montecarlo.best_action import Tally, best_interval, count
from jointmdp.simulation.montecarlo.confidence_intervals import Tails
from jointmdp.simulation.montecarlo.samples import ROUNDING_UNITS, Gaps, Replications

SAFETY = 1.05  # on sizes that must suffice: the spread seen at one look is not quite that of the next
POWER = 0.84  # standard errors added, so that a look planned for a gap as seen succeeds four times in five
# By default, of the median standard deviation of the returns: too little to be seen in any one return, and yet even
# ties with independent noise, whose gap has √2 times that deviation, end after some 8,000 replications.
RELATIVE_INDIFFERENCE = 0.05


class Rules(NamedTuple):
    """When to stop, and how sure to be."""

    half_width: float | None = None
    indifference: float | None = None
    confidence: float = 0.95
    pilot: int = 200
    max_replications: int = 100_000
    bounds: Interval | None = None
    """What every return lies in, where that is known: intervals then hold for every number of replications."""
    seconds: float = math.inf
    """After which sampling ends, in the middle of a look if need be."""
    other_sharing: bool = False
    """Whether to look at the other kinds of sharing too."""
    minimise: bool = False
    """Whether the lowest return is the best: the judgement is of returns with their signs changed."""
    eliminate: bool = True
    """Whether alternatives that are shown to be worse than another are sampled no more."""
    by_result: Mapping[str, Mapping[str, Any]] = {}
    """Rules for one of several results a run, by its name."""
    decide_on: tuple[str, ...] = ()
    """Which of several results must be decided; by default all."""
    tails: Tails = "any"
    """What intervals allow for that no replication has shown."""

    def of(self, result: str) -> "Rules":
        """The rules for one result."""
        return self._replace(**self.by_result.get(result, {}))

    @property
    def is_exact(self) -> bool:
        """Whether bounds of the returns are known, of any result."""
        return self.bounds is not None or any("bounds" in each for each in self.by_result.values())

    def looks(self, alternatives: int) -> int:
        """How many looks a series has: more where that lets alternatives drop out sooner."""
        return RACE if self.eliminate and self.half_width is None and alternatives > 2 else LOOKS

    def size_in_time(self, made: int, before: int) -> int:
        """How many of the replications made when the time was up may be looked at, after a look at `before`.

        The one that was being made is finished, so that the number made is a stopping time. The level of a look is
        known where it comes late enough after the one before, or, with bounds, at a size that was fixed in advance.
        Otherwise the look before counts.
        """
        return made if before == 0 or (not self.is_exact and made >= LEAST_GROWTH * before) else before


class Sample(NamedTuple):
    """All replications so far, and those of them whose returns are whole."""

    run: Replications
    whole: Replications
    reach: float
    largest: float
    """What a return can be, as far as known or seen."""
    made: tuple[int, ...]
    """Replications of each alternative."""
    alike: float
    """Replications up to which all alternatives were simulated, so that their ends are of one kind."""
    tails: Tails = "any"

    def mirrored(self) -> "Sample":
        """The same with the signs of all returns changed."""
        return self._replace(run=self.run.mirrored(), whole=self.whole.mirrored())

    @property
    def left_out(self) -> Floats:
        """What the end of each replication can add to a return, ``[n]``."""
        return self.run.left_out * self.largest

    def gap(self, i: int, j: int) -> Gaps:
        """Gaps of a pair, in the replications that both are in."""
        return self.run.rows(slice(min(self.made[i], self.made[j]))).gap(i, j, self.largest)

    def of(self, i: int) -> tuple[Replications, Replications]:
        """The replications that tell of the returns of one alternative: all, and those that are whole."""
        size = self.made[i] if self.run.apart is None else int(min(self.made[i], self.alike))
        run = self.run.rows(slice(size))
        return run, self.whole.rows(slice(len(run.whole.leads)))


@dataclass
class Judge:
    """What is asked of one of the results of a run, and how far it is answered."""

    rules: Rules
    place: int = 0
    """Which of the results it is."""
    room: float = 0.0
    """The indifference."""
    num_whole: int = 0
    sample: Any = None  # the last `Sample` that was looked at
    verdict: Verdict | None = None
    wanted: float = 0.0
    enough: float = 0.0
    lower: Floats = field(default_factory=lambda: np.empty((0, 0)))
    """Lower ends of all differences that were looked at, each at its last look, ``[m, m]``."""
    best: int = 0
    """Who leads: the highest mean of those that all dropped alternatives could be dropped for."""
    covered: set[int] = field(default_factory=set)
    """Which alternatives are shown to be better than the leader by no more than the indifference, if at all."""

    def __post_init__(self) -> None:
        bounds = self.rules.bounds
        self.bounds = -bounds if self.rules.minimise and bounds is not None else bounds
        self.room = self.rules.indifference or self.room

    def look(self, race: Race, error: float) -> None:
        """Judge by all replications so far, each interval with an error of `error`."""
        found, rules, m, racing = race.found, self.rules, len(race.made), race.racing
        assert race.run is not None
        run = result_of(race.run, self.place, m)
        # A look at a few more returns than last time is not among those whose level is known.
        if len(run.whole.leads) >= LEAST_GROWTH * self.num_whole:
            self.num_whole = len(run.whole.leads)
        whole = run.whole.rows(slice(self.num_whole))
        bound = found.return_bound
        largest = float(np.nanmax(np.abs(run.returns))) if bound is None else bound
        sample = Sample(run, whole, found.reach(run), largest, tuple(race.made), race.alike, rules.tails)
        _check(sample, found.labels, rules.bounds, racing)
        self.sample = sample = sample.mirrored() if rules.minimise else sample
        if rules.indifference is None and self.room == 0:
            self.room = default_indifference(sample)
        if len(self.lower) == 0:
            self.lower = np.where(np.eye(m, dtype=bool), 0.0, -math.inf)
        dropped, known = [j for j in range(m) if j not in racing], closed(self.lower)
        leaders = [j for j in racing if (known[j, dropped] >= -self.room).all()] or racing
        self.best = best = leaders[int(sample.run.leads[:, leaders].mean(axis=0).argmax())]
        pairs = [pair for pair in itertools.combinations(racing, 2) if rules.half_width is not None or best in pair]
        intervals = {pair: gap_interval(sample, pair, error, self.bounds) for pair in pairs}
        for (i, j), interval in intervals.items():
            self.lower[i, j], self.lower[j, i] = interval.lower, -interval.upper
        known = closed(self.lower)
        is_race = rules.eliminate and rules.half_width is None and m > 2
        self.verdict, self.wanted, self.enough = _judge(
            sample.run.leads, best, known[best], intervals, rules.half_width, self.room, rules.indifference, is_race
        )
        least = {pair: 0 if rules.bounds is not None else _least_size(sample, pair, rules) for pair in pairs}
        size, needed = len(run.leads), max(least.values())
        if self.verdict is not None and size < min(needed, rules.max_replications):
            self.verdict, self.wanted, self.enough = None, needed, needed
        rivals = {i + j - best: least[i, j] for i, j in pairs if best in (i, j)}
        self.covered = {j for j, least in rivals.items() if is_race and known[best, j] >= -self.room and size >= least}


def result_of(run: Replications, place: int, m: int) -> Replications:
    """One of several results a run: m columns of all."""
    wide, of = ("returns", "leads", "rounding", "leaders", "apart"), slice(place * m, place * m + m)
    if run.leads.shape[1] == m:
        return run
    return run._replace(**{name: part[:, of] for name in wide if (part := getattr(run, name)) is not None})


def _check(sample: Sample, labels: Sequence[str], bounds: Interval | None, racing: list[int]) -> None:
    returns = sample.run.returns[:, racing]  # also those that are not whole
    bad = np.argwhere(~np.isfinite(returns))
    if len(bad):
        i, j = bad[0]
        raise ModelError(f"replication {i} of {labels[racing[j]]} returned {returns[i, j]}, no finite number")
    if bounds is None:
        return
    # A return that was cut lacks its end, which is as large as the bounds allow, times the weight of the cut.
    returns = sample.whole.returns
    room = float(sample.whole.left_out.max()) * max(abs(bounds.lower), abs(bounds.upper))
    outside = np.argwhere((returns < bounds.lower - room) | (returns > bounds.upper + room))
    if len(outside):
        i, j = outside[0]
        raise ModelError(
            f"replication {i} of {labels[j]} returned {returns[i, j]:.6g}, outside the bounds {bounds}; bounds "
            "are of the whole return, not of one reward"
        )


def default_indifference(sample: Sample) -> float:
    """5 % of the median standard deviation of the returns; without any spread, of the smallest gap or the return."""
    returns, leads = sample.whole.returns, sample.run.leads
    spreads = np.array([spread for column in returns.T if (spread := _std(column)) > 0])
    if len(spreads) == 0:
        spreads = np.diff(np.unique(leads.mean(axis=0)))
    largest = float(np.abs(returns).max())
    return RELATIVE_INDIFFERENCE * (float(np.median(spreads)) if len(spreads) else largest)


def gap_interval(sample: Sample, pair: tuple[int, int], error: float, bounds: Interval | None) -> Interval:
    """The mean gap of one pair, missed with probability `error`."""
    gaps, slack, *_ = sample.gap(*pair)
    if bounds is not None:
        found = confidence_intervals.mean_within(gaps, Interval(-bounds.width, bounds.width), error)
    else:
        found = confidence_intervals.careful_mean(gaps, -sample.reach, sample.reach, error, sample.tails)
    return found.widened(float(slack.mean())).of(float(gaps.mean()))


def _mean_return(sample: Sample, i: int, error: float) -> tuple[float, Interval]:
    run, whole = sample.of(i)
    if run.apart is None or whole.apart is None or run.followed is None:
        return _mean_part(whole.returns, i, sample.reach, error)
    if not run.followed.any():
        return _mean_part(run.apart, i, sample.reach, error)
    before, early = _mean_part(run.apart, i, sample.reach, error / 2)
    after, late = _mean_part(whole.returns - whole.apart, i, sample.reach, error / 2)
    return before + after, Interval(early.lower + late.lower, early.upper + late.upper)


def _mean_part(returns: Floats, i: int, reach: float, error: float) -> tuple[float, Interval]:
    least, most = float(np.nanmin(returns)), float(np.nanmax(returns))
    has_varied = most - least > ROUNDING_UNITS * 2.0**-52 * max(abs(least), abs(most))
    missing, values = 0.0 if has_varied else reach, returns[:, i]  # what the range has in addition
    return float(values.mean()), confidence_intervals.careful_mean(values, least - missing, most + missing, error)


def _return_std(sample: Sample, i: int) -> float:
    """The standard deviation of one return: that of whole ones, with the part that is known of all put in its place."""
    run, whole = sample.of(i)
    found = _std(whole.returns[:, i])
    if run.apart is None or whole.apart is None:
        return found
    return math.sqrt(max(0.0, found**2 + _std(run.apart[:, i]) ** 2 - _std(whole.apart[:, i]) ** 2))


def _least_size(sample: Sample, pair: tuple[int, int], rules: Rules) -> int:
    """How many replications a verdict on a pair takes: until 30 differ from the rest, or ten pilots."""
    gaps = sample.gap(*pair).gaps
    differing = confidence_intervals.usual_and_differing(gaps, -sample.reach, sample.reach)[1]
    if differing >= confidence_intervals.FEW:
        return 0
    aim = len(gaps) * LEAST_GROWTH * confidence_intervals.FEW / max(differing, 1)
    return min(math.ceil(aim), math.ceil(MOST_GROWTH * rules.pilot))


def _alternative(judge: Judge, race: Race, tally: Tally, i: int, error: float) -> Alternative:
    """Mean return and probability of being best, where equal firsts share the first place."""
    sample, minimise, labels = judge.sample, judge.rules.minimise, race.found.labels
    if judge.bounds is None:
        mean, found = _mean_return(sample, i, error)
    else:
        values = sample.of(i)[1].returns[:, i]
        mean, found = float(values.mean()), confidence_intervals.mean_within(values, judge.bounds, error)
    found, best = found.widened(float(sample.left_out.max())).of(mean), float(tally.likeliest[0, i])
    return Alternative(
        labels[i],
        -mean if minimise else mean,
        -found if minimise else found,
        _return_std(sample, i),
        best,
        best_interval(tally, i, error).of(best),
        race.made[i],
        labels[race.dropped[i]] if i in race.dropped else None,
    )


def _unpaired_half(std: float, n: int, error: float, bounds: Interval | None) -> float:
    """The half width that a spread of `std` gives, by the rule that the intervals are made by."""
    if bounds is None:
        return -float(scipy.special.stdtrit(n - 1, error / 2)) * std / math.sqrt(n)
    log = math.log(4 / error)
    return std * math.sqrt(2 * log / n) + 2 * bounds.width * 7 * log / (3 * (n - 1))


def _std(values: Floats, rounding: Floats | None = None) -> float:
    """The standard deviation; 0 where it is rounding, by default that of the values themselves."""
    slack = ROUNDING_UNITS * 2.0**-52 * np.abs(values) if rounding is None else rounding
    return float(values.std(ddof=1)) if varies(values, slack) else 0.0


def _judge(
    leads: Floats,
    best: int,
    lowest: Floats,
    intervals: dict[tuple[int, int], Interval],
    half_width: float | None,
    indifference: float,
    asked: float | None,
    is_race: bool,
) -> tuple[Verdict | None, float, float]:
    """The verdict, if there is one; else how many replications it may take, and how many it takes at most.

    `lowest` are lower ends of the lead of the best over each alternative, dropped ones included. In a race the next
    look is for the easier half of the rivals: it costs the others little to wait until these have dropped out.
    """
    n, means = len(leads), leads.mean(axis=0)
    wanted = enough = float(n)
    is_shown = np.delete(lowest, best) > 0
    is_known, verdict, wants = True, Verdict.BEST if is_shown.all() else Verdict.CLOSE, list[float]()
    if half_width is None or asked is not None:
        is_known = bool((lowest >= -indifference).all())
    for (i, j), interval in intervals.items():
        mean = float(means[i] - means[j])
        half = max(interval.upper - mean, mean - interval.lower)
        has_differed = bool(np.any(leads[:, i] != leads[:, j]))
        if half_width is not None and half > half_width:
            is_known = False
            wanted = max(wanted, n * SAFETY * _more(half, half_width, has_differed))
            enough = max(enough, n * SAFETY * _more(half, half_width, has_differed))
        if best not in (i, j) or (half_width is not None and asked is None):
            continue
        lower, lead = (interval.lower, mean) if i == best else (-interval.upper, -mean)
        if lowest[i + j - best] < -indifference:
            power = 0.0 if is_race else POWER / 3  # a rival that just stays is one of few that do
            wants.append(n * _more((lead - lower) * (1 + power), lead + indifference, has_differed))
            enough = max(enough, n * SAFETY * _more(half, indifference, has_differed))
    if wants:
        wanted = max(wanted, float(np.median(np.minimum(wants, enough))) if is_race else max(wants))
    if not is_known:
        return None, min(wanted, enough), enough
    return (verdict if half_width is None else Verdict.PRECISE), wanted, enough


def _more(now: float, then: float, has_differed: bool) -> float:
    """How many times more replications bring an interval's end from `now` to `then` from its middle."""
    if then <= 0:
        return math.inf
    return (now / then) ** 2 if has_differed else now / then


def found_by(
    judge: Judge,
    race: Race,
    level: Callable[[int], float],
    beside: Mapping[Sharing, Replications],
    seed: int | None,
) -> dict[str, Any]:
    """The alternatives and the gaps of all pairs, as a `Comparison` has them."""
    sample, rules, labels, m = judge.sample, judge.rules, race.found.labels, len(race.made)
    pairs = list(itertools.combinations(range(m), 2))
    error, second = level(len(pairs)), level(4 * len(pairs) + 4 * m)
    intervals = {pair: gap_interval(sample, pair, error, judge.bounds) for pair in pairs}
    if race.dropped:
        _narrow(intervals, judge.lower, race.racing)
    gaps, alone = [], [_return_std(sample, k) for k in range(m)]
    for (i, j), interval in intervals.items():
        unpaired = math.hypot(alone[i], alone[j])
        plain = sample.gap(i, j)
        kinds = {kind: result_of(run, judge.place, m) for kind, run in beside.items()}
        kinds[race.found.sharing] = sample.run.rows(slice(len(plain.gaps)))
        stds = {
            kind: _std(of.leads[:, i] - of.leads[:, j], of.rounding[:, i] + of.rounding[:, j])
            for kind, of in kinds.items()
        }
        gaps.append(
            PairedGap(
                **plain._asdict(),
                action=labels[i],
                other=labels[j],
                reach=sample.reach,
                seed=seed,
                confidence=1 - second,
                tails=rules.tails,
                within=None if rules.bounds is None else Interval(-rules.bounds.width, rules.bounds.width),
                decided=interval,
                minimise=rules.minimise,
                independent_variance=unpaired**2,
                std_state=stds.get("state"),
                std_time=stds.get("time"),
                half_width_unpaired=_unpaired_half(unpaired, len(plain.gaps), error, rules.bounds),
            )
        )
    common = slice(min(race.made))
    tally = count(sample.run.rows(common), 2 * sample.left_out[common])
    run = sample.mirrored().run if rules.minimise else sample.run
    return {
        "alternatives": tuple(_alternative(judge, race, tally, i, second) for i in range(m)),
        "gaps": tuple(gaps),
        "best_index": judge.best,
        "replications": run,
        "whole": np.arange(len(run.leads)) if run.is_whole is None else np.flatnonzero(run.is_whole)[: judge.num_whole],
    }


def _narrow(intervals: dict[tuple[int, int], Interval], lower: Floats, racing: list[int]) -> None:
    """Intervals of pairs that are not sampled any more, as narrow as all others make them."""
    lower = lower.copy()
    for (i, j), interval in intervals.items():
        lower[i, j], lower[j, i] = max(lower[i, j], interval.lower), max(lower[j, i], -interval.upper)
    known = closed(lower)
    for i, j in intervals:
        if (i not in racing or j not in racing) and known[i, j] <= -known[j, i]:
            intervals[i, j] = Interval(float(known[i, j]), -float(known[j, i])).of(intervals[i, j].estimate)
