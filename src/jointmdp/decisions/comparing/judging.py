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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy

from jointmdp.decisions.comparing.comparison import Alternative, PairedGap, Verdict, varies
from jointmdp.decisions.comparing.sequential import LEAST_GROWTH, LOOKS, MOST_GROWTH, RACE, Race, closed
from jointmdp.ground.arrays import Floats
from jointmdp.ground.checks import Sharing, first_place
from jointmdp.ground.errors import ModelError
from jointmdp.ground.intervals import Interval
from jointmdp.simulation.montecarlo import confidence_intervals
from jointmdp.simulation.montecarlo.best_action import best_interval, count
from jointmdp.simulation.montecarlo.confidence_intervals import Tails
from jointmdp.simulation.montecarlo.samples import ROUNDING_UNITS, Gaps, Replications

SAFETY = 1.05  # on sizes that must suffice: the spread seen at one look is not quite that of the next
POWER = 0.84  # standard errors added, so that a look planned for a gap as seen succeeds four times in five
# By default, of the median standard deviation of the returns: too little to be seen in any one return, and yet even
# ties with independent noise, whose gap has √2 times that deviation, end after some 8,000 replications.
RELATIVE_INDIFFERENCE = 0.05


class Rules(NamedTuple):
    """When to stop, and how sure to be: the keywords of `compare`, where each is explained."""

    half_width: float | None = None
    indifference: float | None = None
    confidence: float = 0.95
    pilot: int = 200
    max_replications: int = 100_000
    bounds: Interval | None = None
    seconds: float = math.inf
    other_sharing: bool = False
    minimise: bool = False
    eliminate: bool = True
    by_result: Mapping[str, Mapping[str, Any]] = {}
    """Rules for one of several results a run, by its name."""
    decide_on: tuple[str, ...] = ()
    tails: Tails = "any"

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


@dataclass
class Judge:
    """What is asked of one of the results of a run, and how far it is answered."""

    rules: Rules
    place: int = 0
    """Which of the results it is."""
    room: float = 0.0
    """The indifference."""
    num_whole: int = 0
    verdict: Verdict | None = None
    wanted: float = 0.0
    """How many replications a verdict may take,"""
    enough: float = 0.0
    """and how many it takes at most."""
    lower: Floats = field(default_factory=lambda: np.empty((0, 0)))
    """Lower ends of all differences that were looked at, each at its last look, ``[m, m]``."""
    best: int = 0
    """Who leads: the highest mean of those that all dropped alternatives could be dropped for."""
    covered: set[int] = field(default_factory=set)
    """Which alternatives are shown to be better than the leader by no more than the indifference, if at all."""
    run: Any = None  # all `Replications` at the last look; of costs with their signs changed, like all that follows
    whole: Any = None  # those of them whose returns are whole
    reach: float = 0.0
    largest: float = 0.0
    """What a return can be, as far as known or seen."""

    def __post_init__(self) -> None:
        bounds = self.rules.bounds
        self.bounds = -bounds if self.rules.minimise and bounds is not None else bounds
        self.room = self.rules.indifference or self.room

    def look(self, race: Race, error: float) -> None:
        """Judge by all replications so far, each interval with an error of `error`."""
        rules, m, racing = self.rules, len(race.made), race.racing
        assert race.run is not None
        run = result_of(race.run, self.place, m)
        # A look at a few more returns than last time is not among those whose level is known.
        if len(run.whole.leads) >= LEAST_GROWTH * self.num_whole:
            self.num_whole = len(run.whole.leads)
        whole, bound = run.whole.rows(slice(self.num_whole)), race.found.return_bound
        _check(run, whole, race, rules.bounds)
        self.reach = race.found.reach(run)
        self.largest = float(np.nanmax(np.abs(run.returns))) if bound is None else bound
        self.run, self.whole = (part.mirrored() if rules.minimise else part for part in (run, whole))
        if rules.indifference is None and self.room == 0:
            self.room = self._default_indifference()
        if len(self.lower) == 0:
            self.lower = np.where(np.eye(m, dtype=bool), 0.0, -math.inf)
        dropped, known = [j for j in range(m) if j not in racing], closed(self.lower)
        leaders = [j for j in racing if (known[j, dropped] >= -self.room).all()] or racing
        self.best = best = leaders[int(self.run.leads[:, leaders].mean(axis=0).argmax())]
        pairs = [pair for pair in itertools.combinations(racing, 2) if rules.half_width is not None or best in pair]
        intervals = {pair: self._gap_interval(race, pair, error) for pair in pairs}
        for (i, j), interval in intervals.items():
            self.lower[i, j], self.lower[j, i] = interval.lower, -interval.upper
        lowest = closed(self.lower)[best]  # lower ends of its lead over each alternative, dropped ones included
        is_race = rules.eliminate and rules.half_width is None and m > 2
        self._judge(intervals, lowest, is_race)
        least = {pair: 0 if rules.bounds is not None else self._least_size(race, pair) for pair in pairs}
        size, needed = len(run.leads), max(least.values())
        if self.verdict is not None and size < min(needed, rules.max_replications):
            self.verdict, self.wanted, self.enough = None, needed, needed
        rivals = {i + j - best: least[i, j] for i, j in pairs if best in (i, j)}
        self.covered = {j for j, least in rivals.items() if is_race and lowest[j] >= -self.room and size >= least}

    def _judge(self, intervals: dict[tuple[int, int], Interval], lowest: Floats, is_race: bool) -> None:
        """The verdict, if there is one; else how many replications it takes.

        In a race the next look is for the easier half of the rivals: it costs the others little to wait until these
        have dropped out.
        """
        leads, best, half_width, asked = self.run.leads, self.best, self.rules.half_width, self.rules.indifference
        n, means = len(leads), leads.mean(axis=0)
        wanted = enough = float(n)
        is_shown = np.delete(lowest, best) > 0
        is_known, wants = True, list[float]()
        if half_width is None or asked is not None:
            is_known = bool((lowest >= -self.room).all())
        for (i, j), interval in intervals.items():
            mean = float(means[i] - means[j])
            half = max(interval.upper - mean, mean - interval.lower)
            has_differed = bool(np.any(leads[:, i] != leads[:, j]))
            if half_width is not None and half > half_width:
                is_known = False
                needed = n * SAFETY * _more(half, half_width, has_differed)
                wanted, enough = max(wanted, needed), max(enough, needed)
            if best not in (i, j) or (half_width is not None and asked is None):
                continue
            lower, lead = (interval.lower, mean) if i == best else (-interval.upper, -mean)
            if lowest[i + j - best] < -self.room:
                power = 0.0 if is_race else POWER / 3  # a rival that just stays is one of few that do
                wants.append(n * _more((lead - lower) * (1 + power), lead + self.room, has_differed))
                enough = max(enough, n * SAFETY * _more(half, self.room, has_differed))
        if wants:
            wanted = max(wanted, float(np.median(np.minimum(wants, enough))) if is_race else max(wants))
        shown = Verdict.PRECISE if half_width is not None else Verdict.BEST if is_shown.all() else Verdict.CLOSE
        self.verdict = shown if is_known else None
        self.wanted, self.enough = min(wanted, enough), enough

    def _default_indifference(self) -> float:
        """5 % of the median standard deviation of the returns; without any spread, of the smallest gap or return."""
        returns = self.whole.returns
        spreads = np.array([spread for column in returns.T if (spread := _std(column)) > 0])
        if len(spreads) == 0:
            spreads = np.diff(np.unique(self.run.leads.mean(axis=0)))
        return RELATIVE_INDIFFERENCE * float(np.median(spreads) if len(spreads) else np.abs(returns).max())

    def _gap(self, race: Race, i: int, j: int) -> Gaps:
        """Gaps of a pair, in the replications that both are in."""
        found: Gaps = self.run.rows(slice(min(race.made[i], race.made[j]))).gap(i, j, self.largest)
        return found

    def _gap_interval(self, race: Race, pair: tuple[int, int], error: float) -> Interval:
        """The mean gap of one pair, missed with probability `error`."""
        gaps, slack, *_ = self._gap(race, *pair)
        if (within := self.within) is not None:
            found = confidence_intervals.mean_within(gaps, within, error)
        else:
            found = confidence_intervals.careful_mean(gaps, -self.reach, self.reach, error, self.rules.tails)
        return found.widened(float(slack.mean())).of(float(gaps.mean()))

    @property
    def within(self) -> Interval | None:
        """Between which every gap lies, where bounds are known."""
        return None if self.bounds is None else Interval(-self.bounds.width, self.bounds.width)

    def _least_size(self, race: Race, pair: tuple[int, int]) -> int:
        """How many replications a verdict on a pair takes: until 30 differ from the rest, or ten pilots."""
        gaps = self._gap(race, *pair).gaps
        differing = confidence_intervals.usual_and_differing(gaps, -self.reach, self.reach)[1]
        if differing >= confidence_intervals.FEW:
            return 0
        aim = len(gaps) * LEAST_GROWTH * confidence_intervals.FEW / max(differing, 1)
        return min(math.ceil(aim), math.ceil(MOST_GROWTH * self.rules.pilot))

    def _of(self, race: Race, i: int) -> tuple[Replications, Replications]:
        """The replications that tell of the returns of one alternative: all, and those that are whole."""
        size = race.made[i] if self.run.apart is None else int(min(race.made[i], race.alike))
        run = self.run.rows(slice(size))
        return run, self.whole.rows(slice(len(run.whole.leads)))

    def _mean_return(self, race: Race, i: int, error: float) -> tuple[float, Interval]:
        run, whole = self._of(race, i)
        if self.bounds is not None:
            values = whole.returns[:, i]
            return float(values.mean()), confidence_intervals.mean_within(values, self.bounds, error)
        parts = [whole.returns]
        if run.apart is not None and whole.apart is not None and run.followed is not None:
            parts = [run.apart, whole.returns - whole.apart] if run.followed.any() else [run.apart]
        total, ends = 0.0, Interval(0.0, 0.0)
        for returns in parts:
            least, most = float(np.nanmin(returns)), float(np.nanmax(returns))
            has_varied = most - least > ROUNDING_UNITS * 2.0**-52 * max(abs(least), abs(most))
            missing, values = 0.0 if has_varied else self.reach, returns[:, i]  # what the range has in addition
            found = confidence_intervals.careful_mean(values, least - missing, most + missing, error / len(parts))
            total, ends = total + float(values.mean()), Interval(ends.lower + found.lower, ends.upper + found.upper)
        return total, ends

    def _return_std(self, race: Race, i: int) -> float:
        """The standard deviation of one return: of whole ones, with the part that is known of all put in its place."""
        run, whole = self._of(race, i)
        found = _std(whole.returns[:, i])
        if run.apart is None or whole.apart is None:
            return found
        return math.sqrt(max(0.0, found**2 + _std(run.apart[:, i]) ** 2 - _std(whole.apart[:, i]) ** 2))

    def answer(
        self, race: Race, level: Callable[[int], float], beside: Mapping[Sharing, Replications], seed: int | None
    ) -> dict[str, Any]:
        """The alternatives and the gaps of all pairs, as a `Comparison` has them."""
        labels, m, minimise = race.found.labels, len(race.made), self.rules.minimise
        pairs = list(itertools.combinations(range(m), 2))
        error, second = level(len(pairs)), level(4 * len(pairs) + 4 * m)
        intervals = {pair: self._gap_interval(race, pair, error) for pair in pairs}
        if race.dropped:
            _narrow(intervals, self.lower, race.racing)
        gaps, alone = [], [self._return_std(race, k) for k in range(m)]
        for (i, j), interval in intervals.items():
            plain, unpaired = self._gap(race, i, j), math.hypot(alone[i], alone[j])
            kinds = {kind: result_of(run, self.place, m) for kind, run in beside.items()}
            kinds[race.found.sharing] = self.run.rows(slice(len(plain.gaps)))
            stds = {
                kind: _std(of.leads[:, i] - of.leads[:, j], of.rounding[:, i] + of.rounding[:, j])
                for kind, of in kinds.items()
            }
            gaps.append(
                PairedGap(
                    **plain._asdict(),
                    action=labels[i],
                    other=labels[j],
                    reach=self.reach,
                    seed=seed,
                    confidence=1 - second,
                    tails=self.rules.tails,
                    within=self.within,
                    decided=interval,
                    minimise=minimise,
                    independent_variance=unpaired**2,
                    std_state=stds.get("state"),
                    std_time=stds.get("time"),
                    half_width_unpaired=_unpaired_half(unpaired, len(plain.gaps), error, self.bounds),
                )
            )
        common, left_out = slice(min(race.made)), self.run.left_out * self.largest  # what the end can add to a return
        tally, alternatives = count(self.run.rows(common), 2 * left_out[common]), list[Alternative]()
        for i, label in enumerate(labels):
            mean, found = self._mean_return(race, i, second)
            found, best = found.widened(float(left_out.max())).of(mean), float(tally.likeliest[0, i])
            alternatives.append(
                Alternative(
                    label,
                    *((-mean, -found) if minimise else (mean, found)),
                    alone[i],
                    best,
                    best_interval(tally, i, second).of(best),
                    race.made[i],
                    labels[race.dropped[i]] if i in race.dropped else None,
                )
            )
        run = self.run.mirrored() if minimise else self.run
        ends = np.arange(len(run.leads)) if run.is_whole is None else np.flatnonzero(run.is_whole)[: self.num_whole]
        found_by = {"alternatives": tuple(alternatives), "gaps": tuple(gaps), "best_index": self.best}
        return {**found_by, "replications": run, "whole": ends}


def result_of(run: Replications, place: int, m: int) -> Replications:
    """One of several results a run: m columns of all."""
    return run if run.leads.shape[1] == m else run.columns(slice(place * m, place * m + m))


def _check(run: Replications, whole: Replications, race: Race, bounds: Interval | None) -> None:
    returns, labels = run.returns[:, race.racing], race.found.labels  # also those that are not whole
    if bad := first_place(~np.isfinite(returns)):
        i, j = bad
        raise ModelError(f"replication {i} of {labels[race.racing[j]]} returned {returns[i, j]}, no finite number")
    if bounds is None:
        return
    # A return that was cut lacks its end, which is as large as the bounds allow, times the weight of the cut.
    returns = whole.returns
    room = float(whole.left_out.max()) * max(abs(bounds.lower), abs(bounds.upper))
    if outside := first_place((returns < bounds.lower - room) | (returns > bounds.upper + room)):
        i, j = outside
        raise ModelError(
            f"replication {i} of {labels[j]} returned {returns[i, j]:.6g}, outside the bounds {bounds}; bounds "
            "are of the whole return, not of one reward"
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


def _more(now: float, then: float, has_differed: bool) -> float:
    """How many times more replications bring an interval's end from `now` to `then` from its middle."""
    if then <= 0:
        return math.inf
    return (now / then) ** 2 if has_differed else now / then


def _narrow(intervals: dict[tuple[int, int], Interval], lower: Floats, racing: list[int]) -> None:
    """Intervals of pairs that are not sampled any more, as narrow as all others make them."""
    lower = lower.copy()
    for (i, j), interval in intervals.items():
        lower[i, j], lower[j, i] = max(lower[i, j], interval.lower), max(lower[j, i], -interval.upper)
    known = closed(lower)
    for i, j in intervals:
        if (i not in racing or j not in racing) and known[i, j] <= -known[j, i]:
            intervals[i, j] = Interval(float(known[i, j]), -float(known[j, i])).of(intervals[i, j].estimate)
