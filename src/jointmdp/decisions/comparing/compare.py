"""Which action, policy or decision is best under common random numbers, sampled until that is shown.

``print(compare(simulator, policy, state))`` samples replications in which all alternatives share their noise, and says
how sure the answer is and what the sharing has saved.

**When sampling stops.** A look computes ordinary fixed-sample intervals from all replications so far, and their spread
and means decide how many more to draw. That is a temptation: a sample that looks promising is stopped soon, before its
noise evens out, and an interval at a size that followed the data misses more often than one at a fixed size. There are
two cures.

- `AdaptiveSchedule`: at most four looks, each 1.5 to 10 times as large as the one before (the last as large as need
  be). Their common level is set for the worst rule that anyone could choose the sizes by. With ``Z`` the standardised
  error after a look and ``u = n/n'`` the ratio of two sizes, the chance that a rule can make some later look miss is

      V_k(z) = max_u E[ V_{k+1}(√u z + √(1−u) ξ) ],    V_k(z) = 1 where z > c,    ξ normal,

  and c is such that E[V_1(ξ)], doubled for two sides, is the error allowed. It rests on the central limit theorem.
- `FixedSchedule`: sizes fixed in advance, with a part of the error for each. It holds for whatever intervals hold at
  fixed sizes, at the price of more of them: for bounded returns, where nothing is approximate.

At 95 % and one gap, c is 2.65 against 1.96 for a single look of known size; a boundary that holds at every size from
200 to 100,000 needs 3.16 (`benchmarks/coverage.py` has what that means in replications).

**What is promised.** Two families of intervals come out, each of which holds as a whole: those of all pairs' mean gaps,
which decide when to stop; and all others, of mean returns, variances, P(better), P(tie), P(best).

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
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Never

import numpy as np
import scipy

from jointmdp.decisions.comparing.comparison import Alternative, Comparison, PairedGap, Verdict, varies
from jointmdp.ground import checks
from jointmdp.ground.arrays import Floats
from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import ModelError
from jointmdp.ground.intervals import Interval
from jointmdp.ground.progress import Meter
from jointmdp.simulation.executors import Executor, opened
from jointmdp.simulation.montecarlo import confidence_intervals
from jointmdp.simulation.montecarlo.alternatives import (
    Alternatives,
    SimulationSettings,
    decisions_of,
    first_actions,
    whole_policies,
)
from jointmdp.simulation.montecarlo.best_action import Tally, best_interval, check_distinct, count
from jointmdp.simulation.montecarlo.confidence_intervals import Tails
from jointmdp.simulation.montecarlo.noise_checks import NoiseChecks
from jointmdp.simulation.montecarlo.replications import samples
from jointmdp.simulation.montecarlo.samples import ROUNDING_UNITS, Replications, Sampler

LOOKS = 4
LEAST_GROWTH = 1.5
MOST_GROWTH = 10.0  # a pilot knows little of how many replications it takes; the next look knows more
SAFETY = 1.05  # on sizes that must suffice: the spread seen at one look is not quite that of the next
POWER = 0.84  # standard errors added, so that a look planned for a gap as seen succeeds four times in five
FAR = 8.0  # standard deviations at which a normal variable ends


@dataclass(frozen=True)
class AdaptiveSchedule:
    """Sizes that may follow the data in any way, within the growth stated above."""

    pilot: int
    most: int

    @property
    def first(self) -> int:
        """The size of the first look; all that is allowed where that leaves no room for another."""
        return self.pilot if self.pilot * LEAST_GROWTH <= self.most else self.most

    def error(self, error: float) -> float:
        """What each look may miss with, for all looks together to miss with probability `error`."""
        return worst_case_error(error, LOOKS if self.first < self.most else 1)

    def after(self, look: int, size: int, wanted: float, enough: float) -> int | None:
        """The size of the look after look number `look` (from 1): `wanted`, or on the last look `enough`.

        None when there is no other look.
        """
        if size >= self.most or look >= LOOKS:
            return None
        is_last = look == LOOKS - 1
        planned = max(enough if is_last else min(wanted, MOST_GROWTH * size), LEAST_GROWTH * size)
        # A rest too small for another look is taken along.
        return self.most if planned * LEAST_GROWTH > self.most else math.ceil(planned)


@dataclass(frozen=True)
class FixedSchedule:
    """Sizes fixed in advance, each 1.5 times the one before."""

    pilot: int
    most: int

    @property
    def sizes(self) -> list[int]:
        """All sizes at which a look may be taken."""
        found = [min(self.pilot, self.most)]
        while found[-1] < self.most:
            found.append(min(math.ceil(found[-1] * LEAST_GROWTH), self.most))
        return found

    @property
    def first(self) -> int:
        """The size of the first look."""
        return self.sizes[0]

    def error(self, error: float) -> float:
        """What each look may miss with: an equal part for every size, visited or not."""
        return error / len(self.sizes)

    def after(self, look: int, size: int, wanted: float, enough: float) -> int | None:
        """The first of the sizes that is as large as `wanted`; None when there is no larger one."""
        later = [n for n in self.sizes if n > size]
        return next((n for n in later if n >= wanted), later[-1]) if later else None


@lru_cache(maxsize=256)
def worst_case_error(error: float, looks: int = LOOKS) -> float:
    """The two-sided error of each look, with which the worst rule of choosing sizes makes any miss with `error`."""
    if looks == 1:
        return error

    def excess(critical: float) -> float:
        return math.log(2 * worst_case(critical, looks) / error)

    start = -float(scipy.special.ndtri(error / 2))
    critical = float(scipy.optimize.brentq(excess, start, start + 2, xtol=1e-4))
    return 2 * float(scipy.special.ndtr(-critical))


def worst_case(critical: float, looks: int = LOOKS) -> float:
    """The largest probability, over all rules of choosing sizes, that at some look Z exceeds `critical`."""
    chance = None  # V after the look in question, on a grid of z
    grid = np.concatenate([np.linspace(-FAR / 2, 0, 41)[:-1], np.linspace(0, critical, 81)])
    for later in range(1, looks):  # looks that are still to come
        least = 0.0 if later == 1 else 1 / MOST_GROWTH
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


BESIDE = 5  # pilots, at most, that the other kinds of sharing are looked at with
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
    tails: Tails = "any"
    """What intervals allow for that no replication has shown."""

    def size_in_time(self, made: int, before: int) -> int:
        """How many of the replications made when the time was up may be looked at, after a look at `before`.

        The one that was being made is finished, so that the number made is a stopping time. The level of a look is
        known where it comes late enough after the one before, or, with bounds, at a size that was fixed in advance.
        Otherwise the look before counts.
        """
        return made if before == 0 or (self.bounds is None and made >= LEAST_GROWTH * before) else before


class _Sample(NamedTuple):
    """All replications so far, those of them whose returns are whole, and the largest return where it is known."""

    run: Replications
    whole: Replications
    reach: float
    return_bound: float | None
    tails: Tails = "any"

    def mirrored(self) -> "_Sample":
        """The same with the signs of all returns changed."""
        return self._replace(run=self.run.mirrored(), whole=self.whole.mirrored())

    @property
    def left_out(self) -> Floats:
        """What the end of each replication can add to a return, ``[n]``."""
        largest = float(np.abs(self.run.returns).max()) if self.return_bound is None else self.return_bound
        return self.run.left_out * largest


def decide(
    found: Alternatives,
    rules: Rules = Rules(),  # noqa: B008 - a value that never changes
    *,
    seed: int | None = None,
    executor: Executor | str | None = None,
) -> Comparison:
    """Sample until one alternative is shown best or every gap is known to `half_width`, and report."""
    labels, sharing = found.labels, found.sharing
    if len(labels) < 2:
        raise ModelError(f"only {labels[0]} was given; comparing takes at least two alternatives")
    check_distinct(labels)
    if rules.bounds is not None and found.return_bound is None:
        found = found._replace(return_bound=max(map(abs, rules.bounds)))  # what is left out is a return like the others
    began = time.monotonic()
    schedule = (AdaptiveSchedule if rules.bounds is None else FixedSchedule)(rules.pilot, rules.max_replications)
    pairs = list(itertools.combinations(range(len(labels)), 2))
    error = schedule.error((1 - rules.confidence) / len(pairs))
    run, whole, size, look = None, None, schedule.first, 0
    indifference = rules.indifference or 0.0
    is_late = False
    bounds = -rules.bounds if rules.minimise and rules.bounds is not None else rules.bounds
    with Meter("comparing under common random numbers") as meter, opened(executor) as workers:
        checked = NoiseChecks(found, size, workers)
        while True:
            before = 0 if run is None else len(run.leads)
            run, look = _grown(found.sampler, run, size, sharing, meter, workers, began, rules.seconds), look + 1
            is_late = time.monotonic() - began > rules.seconds
            if len(run.leads) < size:
                size = rules.size_in_time(len(run.leads), before)
                run = run.rows(slice(size))
            # A look at a few more returns than last time is not among those whose level is known.
            if whole is None or len(run.whole.leads) >= LEAST_GROWTH * len(whole.leads):
                whole = run.whole
            sample = _Sample(run, whole, found.reach(run), found.return_bound, rules.tails)
            _check(sample, labels, rules.bounds)
            sample = sample.mirrored() if rules.minimise else sample
            if rules.indifference is None and indifference == 0:
                indifference = default_indifference(sample)
            intervals = {pair: gap_interval(sample, pair, error, bounds) for pair in pairs}
            verdict, wanted, enough = _judge(
                sample.run.leads, intervals, rules.half_width, indifference, rules.indifference
            )
            least = 0 if rules.bounds is not None else _least_size(sample, pairs, rules)
            if verdict is not None and size < min(least, rules.max_replications):
                verdict, wanted, enough = None, least, least
            following = None if verdict is not None or is_late else schedule.after(look, size, wanted, enough)
            if following is None:
                break
            size = following
    warned = checked.finish(run)
    beside: dict[Sharing, Replications] = {sharing: run}
    for other in ("state", "time"):
        if rules.other_sharing and other in found.can_share and other not in beside:
            beside[other] = found.sampler(0, min(size, BESIDE * rules.pilot), other)
    second = schedule.error((1 - rules.confidence) / (4 * len(pairs) + 4 * len(labels)))
    tally, gaps = count(sample.run, 2 * sample.left_out), []
    for i, j in pairs:
        unpaired = math.hypot(*(_return_std(sample, k) for k in (i, j)))
        gaps.append(
            PairedGap(
                **run.gap(*checks.subtracted(i, j, rules.minimise), found.return_bound)._asdict(),
                action=labels[i],
                other=labels[j],
                reach=sample.reach,
                seed=seed,
                confidence=1 - second,
                tails=rules.tails,
                within=None if rules.bounds is None else Interval(-rules.bounds.width, rules.bounds.width),
                decided=intervals[i, j],
                minimise=rules.minimise,
                independent_variance=unpaired**2,
                std_state=_gap_std(beside.get("state"), i, j),
                std_time=_gap_std(beside.get("time"), i, j),
                half_width_unpaired=_unpaired_half(unpaired, size, error, rules.bounds),
            )
        )
    return Comparison(
        title=found.title,
        alternatives=tuple(
            _alternative(sample, tally, labels[i], i, second, bounds, rules.minimise) for i in range(len(labels))
        ),
        gaps=tuple(gaps),
        status=verdict or (Verdict.TIME if is_late else Verdict.UNDECIDED),
        num_replications=size,
        looks=look,
        sharing=sharing,
        confidence=rules.confidence,
        half_width=rules.half_width,
        indifference=None if rules.half_width is not None and rules.indifference is None else indifference,
        is_exact=rules.bounds is not None,
        seconds=time.monotonic() - began,
        seed=seed,
        beside=min(size, BESIDE * rules.pilot) if len(beside) > 1 else 0,
        remark=found.remark,
        warnings=tuple(warned),
        values=() if found.actions else found.values,
        numbers=found.values if found.actions else (),
        minimise=rules.minimise,
        returns=whole.returns,
        whole=np.arange(size) if run.is_whole is None else np.flatnonzero(run.is_whole)[: len(whole.leads)],
    )


def _grown(
    sampler: Sampler,
    run: Replications | None,
    size: int,
    sharing: Sharing,
    meter: Meter,
    executor: Executor,
    began: float,
    seconds: float,
) -> Replications:
    """The replications so far and more, up to `size`; fewer, but at least two, where the time is up before."""
    made = 0 if run is None else len(run.leads)
    parts = [] if run is None else [run]
    a_second = made / (time.monotonic() - began) if made else math.inf
    for part in samples(sampler, made, size - made, sharing, executor, largest=a_second):
        parts.append(part)
        made += len(part.leads)
        spent = time.monotonic() - began
        meter.update(max(made / size, spent / seconds), f"{made:,} of {size:,} replications")
        if spent > seconds and made >= 2:
            break
    return Replications.joined(parts)


def _check(sample: _Sample, labels: Sequence[str], bounds: Interval | None) -> None:
    returns = sample.run.returns  # also those that are not whole
    bad = np.argwhere(~np.isfinite(returns))
    if len(bad):
        i, j = bad[0]
        raise ModelError(f"replication {i} of {labels[j]} returned {returns[i, j]}, no finite number")
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


def default_indifference(sample: _Sample) -> float:
    """5 % of the median standard deviation of the returns; without any spread, of the smallest gap or the return."""
    returns, leads = sample.whole.returns, sample.run.leads
    spreads = np.array([spread for column in returns.T if (spread := _std(column)) > 0])
    if len(spreads) == 0:
        spreads = np.diff(np.unique(leads.mean(axis=0)))
    largest = float(np.abs(returns).max())
    return RELATIVE_INDIFFERENCE * (float(np.median(spreads)) if len(spreads) else largest)


def gap_interval(sample: _Sample, pair: tuple[int, int], error: float, bounds: Interval | None) -> Interval:
    """The mean gap of one pair, missed with probability `error`."""
    gaps, slack, *_ = sample.run.gap(*pair, sample.return_bound)
    if bounds is not None:
        found = confidence_intervals.mean_within(gaps, Interval(-bounds.width, bounds.width), error)
    else:
        found = confidence_intervals.careful_mean(gaps, -sample.reach, sample.reach, error, sample.tails)
    return found.widened(float(slack.mean())).of(float(gaps.mean()))


def _mean_return(sample: _Sample, i: int, error: float) -> tuple[float, Interval]:
    run, whole = sample.run, sample.whole
    if run.apart is None or whole.apart is None or run.followed is None:
        return _mean_part(whole.returns, i, sample.reach, error)
    if not run.followed.any():
        return _mean_part(run.apart, i, sample.reach, error)
    before, early = _mean_part(run.apart, i, sample.reach, error / 2)
    after, late = _mean_part(whole.returns - whole.apart, i, sample.reach, error / 2)
    return before + after, Interval(early.lower + late.lower, early.upper + late.upper)


def _mean_part(returns: Floats, i: int, reach: float, error: float) -> tuple[float, Interval]:
    least, most = float(returns.min()), float(returns.max())
    has_varied = most - least > ROUNDING_UNITS * 2.0**-52 * max(abs(least), abs(most))
    missing, values = 0.0 if has_varied else reach, returns[:, i]  # what the range has in addition
    return float(values.mean()), confidence_intervals.careful_mean(values, least - missing, most + missing, error)


def _return_std(sample: _Sample, i: int) -> float:
    """The standard deviation of one return: that of whole ones, with the part that is known of all put in its place."""
    found = _std(sample.whole.returns[:, i])
    if sample.run.apart is None or sample.whole.apart is None:
        return found
    return math.sqrt(max(0.0, found**2 + _std(sample.run.apart[:, i]) ** 2 - _std(sample.whole.apart[:, i]) ** 2))


def _least_size(sample: _Sample, pairs: list[tuple[int, int]], rules: Rules) -> int:
    """How many replications a verdict takes: until 30 differ from the rest, or ten pilots."""
    run, n = sample.run, len(sample.run.leads)
    best = int(run.leads.mean(axis=0).argmax())
    fewest = min(
        confidence_intervals.usual_and_differing(run.leads[:, i] - run.leads[:, j], -sample.reach, sample.reach)[1]
        for i, j in pairs
        if rules.half_width is not None or best in (i, j)
    )
    if fewest >= confidence_intervals.FEW:
        return 0
    aim = n * LEAST_GROWTH * confidence_intervals.FEW / max(fewest, 1)
    return min(math.ceil(aim), math.ceil(MOST_GROWTH * rules.pilot))


def _alternative(
    sample: _Sample, tally: Tally, label: str, i: int, error: float, bounds: Interval | None, minimise: bool
) -> Alternative:
    """Mean return and probability of being best, where equal firsts share the first place."""
    if bounds is None:
        mean, found = _mean_return(sample, i, error)
    else:
        values = sample.whole.returns[:, i]
        mean, found = float(values.mean()), confidence_intervals.mean_within(values, bounds, error)
    found, best = found.widened(float(sample.left_out.max())).of(mean), float(tally.likeliest[0, i])
    return Alternative(
        label,
        -mean if minimise else mean,
        -found if minimise else found,
        _return_std(sample, i),
        best,
        best_interval(tally, i, error).of(best),
    )


def _gap_std(run: Replications | None, i: int, j: int) -> float | None:
    return None if run is None else _std(run.leads[:, i] - run.leads[:, j], run.rounding[:, i] + run.rounding[:, j])


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
    intervals: dict[tuple[int, int], Interval],
    half_width: float | None,
    indifference: float,
    asked: float | None,
) -> tuple[Verdict | None, float, float]:
    """The verdict, if there is one; else how many replications it may take, and how many it takes at most."""
    n, means = len(leads), leads.mean(axis=0)
    best = int(means.argmax())
    wanted = enough = float(n)
    is_known, verdict = True, Verdict.BEST
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
        if lower <= 0:
            verdict = Verdict.CLOSE
        if lower < -indifference:
            is_known = False
            wanted = max(wanted, n * _more((lead - lower) * (1 + POWER / 3), lead + indifference, has_differed))
            enough = max(enough, n * SAFETY * _more(half, indifference, has_differed))
    if not is_known:
        return None, min(wanted, enough), enough
    return (verdict if half_width is None else Verdict.PRECISE), wanted, enough


def _more(now: float, then: float, has_differed: bool) -> float:
    """How many times more replications bring an interval's end from `now` to `then` from its middle."""
    if then <= 0:
        return math.inf
    return (now / then) ** 2 if has_differed else now / then


def compare(  # many parameters: a front door, one keyword for each setting
    simulator: Any,
    policy: Any = None,
    state: Any = None,
    actions: Sequence[Any] | None = None,
    *,
    policies: Mapping[str, Any] | Sequence[Any] | None = None,
    decisions: Mapping[str, Any] | Sequence[Any] | None = None,
    half_width: float | None = None,
    indifference: float | None = None,
    confidence: float = 0.95,
    sharing: Sharing | None = None,
    horizon: int | None = None,
    discount: float | None = None,
    pilot: int = 200,
    max_replications: int = 100_000,
    seconds: float | None = None,
    bounds: tuple[float, float] | None = None,
    other_sharing: bool = False,
    minimise: bool = False,
    tails: Literal["any", "light"] = "any",
    seed: int = 0,
    executor: Executor | str | None = None,
    **unknown: Never,
) -> Comparison:
    """Which alternative gives most under common random numbers, sampled until that is shown.

    That the noise is common is checked first: replications are run again, with the alternatives in the opposite order.
    What does not give the same again is refused; see `jointmdp.audit` for a thorough look.

    Args:
        simulator: a `JointMDP`, a simulator, or a function ``run(decision, seed) -> outcome``; where its second
            parameter is called `noise` it is given a `Noise` with named streams, ``noise["demand"]``, instead.
        policy, state, actions: compares first `actions` (by default all) in `state`, after which `policy` is followed.
            Without a state, each replication begins in a starting state of its own, the same for all alternatives.
        policies: compares whole policies instead, ``{"name": policy, …}``.
        decisions: compares decisions of a function instead.
        half_width: go on until the gap of every pair is known to ± this. By default sampling stops as soon as one
            alternative is shown best.
        indifference: a lead of the true best up to this does not matter; by default 5 % of the standard deviation of
            the returns (the median one). Given together with `half_width`, both must be reached.
        confidence: with which all intervals of gaps hold together, and all others together.
        sharing: which branches share their noise; by default as the simulator says itself.
        horizon, discount: of the returns; by default as the simulator says itself.
        pilot: replications before the first look.
        max_replications: stop here at the latest; the status then says that nothing was shown.
        seconds: stop sampling after about this long; the status then says that the time was up. The replications under
            way are finished, and the compiled engine makes 2,048 at a time.
        bounds: between which every return lies. The intervals then hold for every number of replications, and are
            wider; otherwise they rest on the central limit theorem.
        other_sharing: also sample the other kind of sharing, up to five pilots, for the standard deviation of its gaps.
        minimise: returns are costs, and the lowest is the best. Mean returns stay costs; a gap is an advantage, how
            much less the first alternative costs, so that positive always means better.
        tails: ``"any"`` allows for events that no replication has shown: one kind, as rare as so many replications can
            miss (about 1 in a third of them), whose gap is twice as far from the median as the farthest one seen; no
            winner is declared within what these could change. ``"light"`` says that the replications show all there
            is, as normal noise does: narrower intervals from the central limit theorem alone.
        seed: replication i depends on the seed and i alone.
        executor: where replications are made: here, ``"processes:4"``, ``"ray:ADDRESS"``; the result is the same.
    """
    checks.refuse_keywords(unknown, compare)
    if decisions is not None:
        if any(given is not None for given in (policy, state, actions, policies, discount, horizon)):
            raise ModelError(
                "decisions are tried by a function run(decision, seed): leave policy, state and so on to it"
            )
        found = decisions_of(simulator, decisions, seed, sharing)
    else:
        settings = SimulationSettings(seed, sharing, discount, horizon, some_whole=True)
        if policies is None:
            found = first_actions(simulator, policy, state, actions, settings)
        elif policy is None and actions is None:
            found = whole_policies(simulator, policies, state, settings)
        else:
            raise ModelError("give either policies to compare, or one policy and the first actions to compare")
    most = checks.as_count("max_replications", max_replications, least=2)
    rules = Rules(
        None if half_width is None else checks.as_positive("half_width", half_width),
        None if indifference is None else checks.as_amount("indifference", indifference),
        checks.as_fraction("confidence", confidence),
        min(checks.as_count("pilot", pilot, least=2), most),
        most,
        None if bounds is None else _as_bounds(bounds),
        math.inf if seconds is None else checks.as_positive("seconds", seconds),
        bool(other_sharing),
        bool(minimise),
        _as_tails(tails),
    )
    return decide(found, rules, seed=int(seed), executor=executor)


def _as_tails(tails: Any) -> Tails:
    if tails not in ("any", "light"):
        raise ModelError(f"tails must be 'any' or 'light', not {tails!r}")
    return "light" if tails == "light" else "any"


def _as_bounds(bounds: tuple[float, float]) -> Interval:
    try:
        lower, upper = (checks.as_number("bounds", end) for end in bounds)
    except (TypeError, ValueError):
        raise ModelError(f"bounds must be two numbers, the least and the largest return, not {bounds!r}") from None
    if not -math.inf < lower <= upper < math.inf:
        raise ModelError(f"bounds are ({lower:g}, {upper:g}); give the least and the largest return, both finite")
    return Interval(lower, upper)
