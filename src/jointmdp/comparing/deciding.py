"""Sampling until it is clear which alternative is best, or how far apart they are.

Everything is done on a `Sampler`: ``sampler(first, count, sharing)`` gives the returns of m alternatives in
replications that share their luck. Two families of intervals come out, each of which holds as a whole:

- of all pairs' mean gaps, which decide when to stop;
- of all that is told beside them: mean returns, P(better), P(tie), P(best).

`stopping` says why they hold at whatever size the sampling ends.

Gaps under shared luck are often exactly equal in nearly all replications and large now and then. Where fewer than 30
replications differ from the rest, nothing is known of how large a difference can be; the interval then allows for
unseen ones as large as the whole range of the returns. Where no return has varied at all, they may be as large as the
return itself; and where all are zero nothing is known, as the one reward that matters may still be to come.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.stats

from jointmdp.arrays import Floats
from jointmdp.checks import Sharing
from jointmdp.comparing.comparison import Alternative, Comparison, PairedGap, Verdict
from jointmdp.comparing.stopping import POWER, SAFETY, Ladder, Looks
from jointmdp.errors import ModelError
from jointmdp.executors import Executor, opened, samples
from jointmdp.intervals import Interval
from jointmdp.montecarlo import confidence_intervals
from jointmdp.montecarlo.query_engine import Sampler
from jointmdp.progress import Meter

FEW = 30  # differing replications below which the size of a difference is unknown
BESIDE = 5  # pilots, at most, that the other kinds of sharing are looked at with
MANY = 300  # differing replications from which on the usual intervals need no help
JITTER = 1e-3  # of the range of returns: gaps closer together than this say nothing of how large one can be
ROUNDING = 1e-12  # gaps that differ by less, relative to the largest return, are the same
# By default, of the median standard deviation of the returns: too little to be seen in any one return, and yet even
# ties with luck of their own, whose gap has √2 times that deviation, end after some 8,000 replications.
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
    cut: float = 0.0
    """Discount weight of what is left out at the end of each return; intervals allow for it."""
    return_bound: float | None = None
    """The largest absolute return, where that is known; otherwise what is left out is judged by the returns seen."""


class _Sample(NamedTuple):
    returns: Floats  # [n, m]
    leads: Floats  # [n, m]

    @property
    def range(self) -> float:
        """How far apart two returns can be, as far as seen: infinite before any reward."""
        seen, largest = float(np.ptp(self.returns)), float(np.abs(self.returns).max())
        return seen if seen > ROUNDING * largest else largest or math.inf


def decide(
    sampler: Sampler,
    labels: Sequence[str],
    rules: Rules = Rules(),  # noqa: B008 - a value that never changes
    *,
    sharing: Sharing = "time",
    can_share: Sequence[Sharing] = ("state", "time", "none"),
    title: str = "alternatives",
    seed: int | None = None,
    remark: str = "",
    executor: Executor | str | None = None,
) -> Comparison:
    """Sample until one alternative is shown best or every gap is known to `half_width`, and report."""
    if len(labels) < 2:
        raise ModelError(f"there is only {labels[0]} to choose; comparing takes at least two alternatives")
    twice = [label for i, label in enumerate(labels) if label in labels[:i]]
    if twice:
        raise ModelError(f"{twice[0]} is asked for twice; an alternative always ties with itself")
    began = time.monotonic()
    looks = (Looks if rules.bounds is None else Ladder)(rules.pilot, rules.max_replications)
    pairs = list(itertools.combinations(range(len(labels)), 2))
    error = looks.error((1 - rules.confidence) / len(pairs))
    sample, size, look = _Sample(np.empty((0, len(labels))), np.empty((0, len(labels)))), looks.first, 0
    indifference = rules.indifference or 0.0
    with Meter("comparing under the same luck") as meter, opened(executor) as workers:
        while True:
            sample, look = _grown(sampler, sample, size, sharing, meter, workers), look + 1
            _check(sample, labels, rules)
            if rules.indifference is None and indifference == 0:
                indifference = default_indifference(sample.leads, sample.returns)
            intervals = {pair: gap_interval(sample, pair, error, rules) for pair in pairs}
            verdict, wanted, enough = _judge(sample, intervals, rules.half_width, indifference, rules.indifference)
            following = None if verdict is not None else looks.after(look, size, wanted, enough)
            if following is None:
                break
            size = following
    beside: dict[Sharing, Floats] = {sharing: sample.leads}
    for other in ("state", "time"):
        if other in can_share and other not in beside:
            beside[other] = sampler(0, min(size, BESIDE * rules.pilot), other).leads
    second = looks.error((1 - rules.confidence) / (3 * len(pairs) + 4 * len(labels)))
    return Comparison(
        title=title,
        alternatives=tuple(_alternative(sample, labels, i, second, rules) for i in range(len(labels))),
        gaps=tuple(_gap(sample, labels, pair, intervals[pair], beside, error, second, rules) for pair in pairs),
        status=verdict or Verdict.UNDECIDED,
        replications=size,
        looks=look,
        sharing=sharing,
        confidence=rules.confidence,
        half_width=rules.half_width,
        indifference=None if rules.half_width is not None and rules.indifference is None else indifference,
        is_exact=rules.bounds is not None,
        seconds=time.monotonic() - began,
        seed=seed,
        beside=min(size, BESIDE * rules.pilot) if len(beside) > 1 else 0,
        remark=remark,
    )


def _grown(sampler: Sampler, sample: _Sample, size: int, sharing: Sharing, meter: Meter, executor: Executor) -> _Sample:
    began, before = time.monotonic(), len(sample.leads)
    parts: list[tuple[Floats, Floats]] = [sample]
    made = before
    for found in samples(sampler, before, size - before, sharing, executor):
        parts.append((found.returns, found.leads))
        made += len(found.leads)
        left = (time.monotonic() - began) / (made - before) * (size - made)
        meter.update(made / size, f"{made:,} of {size:,} replications, {left:,.0f} s left")
    return _Sample(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _check(sample: _Sample, labels: Sequence[str], rules: Rules) -> None:
    bad = np.argwhere(~np.isfinite(sample.returns))
    if len(bad):
        i, j = bad[0]
        raise ModelError(f"replication {i} of {labels[j]} returned {sample.returns[i, j]}, no finite number")
    bounds = rules.bounds
    if bounds is None:
        return
    # A return that was cut lacks its end, which is as large as the bounds allow, times the weight of the cut.
    room = rules.cut * max(abs(bounds.lower), abs(bounds.upper))
    outside = np.argwhere((sample.returns < bounds.lower - room) | (sample.returns > bounds.upper + room))
    if len(outside):
        i, j = outside[0]
        raise ModelError(
            f"replication {i} of {labels[j]} returned {sample.returns[i, j]:.6g}, outside the bounds {bounds}; bounds "
            "are of the whole return, not of one reward"
        )


def default_indifference(leads: Floats, returns: Floats) -> float:
    """5 % of the median standard deviation of the returns; without any spread, of the smallest gap or the return."""
    spreads, largest = returns.std(axis=0), float(np.abs(returns).max())
    spreads = spreads[spreads > ROUNDING * largest]
    if len(spreads) == 0:
        spreads = np.diff(np.unique(leads.mean(axis=0)))
    return RELATIVE_INDIFFERENCE * (float(np.median(spreads)) if len(spreads) else largest)


# -- intervals -------------------------------------------------------------------------------------------------


def gap_interval(sample: _Sample, pair: tuple[int, int], error: float, rules: Rules) -> Interval:
    """The mean gap of one pair, missed with probability `error`."""
    gaps, spread = sample.leads[:, pair[0]] - sample.leads[:, pair[1]], sample.range
    found = mean_of(gaps, -spread, spread, error)
    if rules.bounds is not None:
        width = rules.bounds.width
        found = _bounded(gaps, Interval(-width, width), error)
    left_out = _left_out(rules, spread if rules.bounds is None else rules.bounds.width, 2)
    return Interval(found.lower - left_out, found.upper + left_out)


def _left_out(rules: Rules, seen: float, returns: int) -> float:
    """What the cut can add to a sum or difference of so many returns."""
    if rules.cut == 0:
        return 0.0
    return rules.cut * (seen if rules.return_bound is None else returns * rules.return_bound)


def mean_of(values: Floats, lowest: float, highest: float, error: float) -> Interval:
    """The mean of values that may nearly all be the same; unseen ones may reach from `lowest` to `highest`."""
    if not math.isfinite(highest - lowest):
        return Interval(-math.inf, math.inf)
    usual = float(np.median(values))
    # A little jitter must not make a gap that is nearly constant look like one whose size is known.
    differing = int(np.count_nonzero(np.abs(values - usual) > JITTER * (highest - lowest)))
    values = np.where(np.abs(values - usual) <= ROUNDING * max(abs(lowest), abs(highest)), usual, values)
    if differing < FEW:
        return confidence_intervals.unseen_interval(values, lowest, highest, 1 - error)
    found = confidence_intervals.mean_interval(values, 1 - error)
    if differing < MANY:
        seen = confidence_intervals.unseen_interval(values, float(values.min()), float(values.max()), 1 - error)
        found = Interval(min(found.lower, seen.lower), max(found.upper, seen.upper))
    return found


def _mean_return(sample: _Sample, i: int, error: float) -> Interval:
    least, most = float(sample.returns.min()), float(sample.returns.max())
    missing = sample.range - (most - least)  # what the range has in addition where returns have not varied
    return mean_of(sample.returns[:, i], least - missing, most + missing, error)


def _bounded(values: Floats, within: Interval, error: float) -> Interval:
    if within.width == 0:
        return within
    scaled = np.clip((values - within.lower) / within.width, 0.0, 1.0)
    found = confidence_intervals.bounded_mean(np.stack([scaled, scaled]), error)
    return Interval(within.lower + within.width * found.lower, within.lower + within.width * found.upper)


def _alternative(sample: _Sample, labels: Sequence[str], i: int, error: float, rules: Rules) -> Alternative:
    """Mean return and probability of being best, where equal firsts share the first place."""
    values, n = sample.returns[:, i], len(sample.returns)
    found = _mean_return(sample, i, error) if rules.bounds is None else _bounded(values, rules.bounds, error)
    left_out = _left_out(rules, float(np.abs(sample.returns).max()), 1)
    behind = sample.leads.max(axis=1, keepdims=True) - sample.leads
    is_first = behind <= ROUNDING * float(np.abs(sample.returns).max())
    firsts = is_first.sum(axis=1)
    share = is_first[:, i] / firsts
    alone, first = (
        confidence_intervals.proportion(np.array([count, count]), n, error)
        for count in (np.count_nonzero(share == 1), np.count_nonzero(is_first[:, i]))
    )
    mean_share = confidence_intervals.bounded_mean(np.stack([share, share]), error)
    return Alternative(
        labels[i],
        float(values.mean()),
        Interval(found.lower - left_out, found.upper + left_out),
        _std(values, ROUNDING * float(np.abs(sample.returns).max())),
        float(share.mean()),
        Interval(max(mean_share.lower, alone.lower), min(mean_share.upper, first.upper)),
    )


def _gap(
    sample: _Sample,
    labels: Sequence[str],
    pair: tuple[int, int],
    interval: Interval,
    beside: dict[Sharing, Floats],
    gap_error: float,
    error: float,
    rules: Rules,
) -> PairedGap:
    i, j = pair
    n, least = len(sample.leads), ROUNDING * float(np.abs(sample.returns).max())
    gaps = _without_rounding(sample.leads[:, i] - sample.leads[:, j], least)
    deviations = {kind: _std(leads[:, i] - leads[:, j], least) for kind, leads in beside.items()}
    unpaired = math.hypot(_std(sample.returns[:, i], least), _std(sample.returns[:, j], least))
    # What is left out can turn these round.
    open_ = (gaps != 0) & (np.abs(gaps) <= rules.cut * sample.range) if rules.cut > 0 else np.zeros(n, dtype=bool)
    signs = [gaps > 0, gaps == 0, gaps < 0]
    counts = [int(np.count_nonzero(sign)) for sign in signs]
    better, tie, worse = (
        confidence_intervals.proportion(
            np.array([np.count_nonzero(sign & ~open_), np.count_nonzero(sign | open_)]), n, error
        )
        for sign in signs
    )
    return PairedGap(
        labels[i],
        labels[j],
        mean=float(gaps.mean()),
        interval=interval,
        std=_std(gaps, least),
        std_unpaired=unpaired,
        std_state=deviations.get("state"),
        std_time=deviations.get("time"),
        superiority=counts[0] / n,
        superiority_interval=better,
        tie=counts[1] / n,
        tie_interval=tie,
        inferiority=counts[2] / n,
        inferiority_interval=worse,
        replications=n,
        half_width_unpaired=_unpaired_half(unpaired, n, gap_error, rules.bounds),
    )


def _unpaired_half(std: float, n: int, error: float, bounds: Interval | None) -> float:
    """The half width that a spread of `std` gives, by the rule that the intervals are made by."""
    if bounds is None:
        return float(scipy.stats.t.isf(error / 2, n - 1)) * std / math.sqrt(n)
    log = math.log(4 / error)
    return std * math.sqrt(2 * log / n) + 2 * bounds.width * 7 * log / (3 * (n - 1))


def _without_rounding(gaps: Floats, least: float) -> Floats:
    """Gaps with those that are rounding alone set to 0: the same sums in another order are a tie."""
    return np.where(np.abs(gaps) <= least, 0.0, gaps)


def _std(values: Floats, least: float) -> float:
    """The standard deviation; 0 where it is rounding."""
    found = float(values.std(ddof=1))
    return found if found > least else 0.0


# -- stopping --------------------------------------------------------------------------------------------------


def _judge(
    sample: _Sample,
    intervals: dict[tuple[int, int], Interval],
    half_width: float | None,
    indifference: float,
    asked: float | None,
) -> tuple[Verdict | None, float, float]:
    """The verdict, if there is one; else how many replications it may take, and how many it takes at most."""
    n, means = len(sample.leads), sample.leads.mean(axis=0)
    best = int(means.argmax())
    wanted = enough = float(n)
    is_known, verdict = True, Verdict.BEST
    for (i, j), interval in intervals.items():
        mean = float(means[i] - means[j])
        half = max(interval.upper - mean, mean - interval.lower)
        has_differed = bool(np.any(sample.leads[:, i] != sample.leads[:, j]))
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
