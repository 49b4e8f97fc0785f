"""What a simulation gives: replications, what their branches did, and samples of gaps with confidence intervals.

Each sample may be off by a *slack* of its own: what the end of the simulation left out, and rounding. Amounts are
widened by it; a gap within its slack of 0 counts for and against every sign, so that the intervals stay true. A gap of
exactly 0 is one in which nothing ever differed, and has no slack when nothing more can come.

Replications are made in portions, each of them a task for an executor.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jointmdp.ground import checks
from jointmdp.ground.answers import PlannedGap, SavedFace, as_dataset, words
from jointmdp.ground.arrays import Bools, Floats, Ints
from jointmdp.ground.checks import Sharing
from jointmdp.ground.intervals import Interval
from jointmdp.ground.progress import Meter
from jointmdp.simulation.executors.executor import Executor, Serial
from jointmdp.simulation.montecarlo import confidence_intervals
from jointmdp.simulation.montecarlo.confidence_intervals import Tails
from jointmdp.simulation.simulators.simulator import Action, Snapshot

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

TASKS = 128  # about how many a simulation is cut into: enough for dozens of workers, few enough to cost nothing
LARGEST = 1024  # replications, so that early stops, progress and retries of long simulations stay cheap


class BranchPath(NamedTuple):
    """One branch of one replication, of T steps."""

    states: tuple[Snapshot, ...]  # T + 1 of them
    actions: tuple[Action, ...]  # T
    rewards: Floats  # [T]
    ended: bool
    """Whether the episode ended; otherwise it was cut, by the horizon or where too little was left."""
    total: float
    """Its return, discounted: that of the sample, to the last bit."""

    @classmethod
    def of(
        cls,
        states: Sequence[Snapshot],
        actions: Sequence[Action],
        rewards: Sequence[float],
        is_over: list[bool],
        total: float,
    ) -> BranchPath:
        """The path until it is over, of a branch that then stays where it is."""
        steps = is_over.index(True) if True in is_over else len(actions)
        paid = np.array(rewards[:steps], dtype=np.float64)
        return cls(tuple(states[: steps + 1]), tuple(actions[:steps]), paid, True in is_over, total)


CONFIDENCE = 0.95
ROUNDING_UNITS = 64  # rounding errors in one discounted reward, most of them in the power of the discount


def last_step(horizon: int | None, discount: float, tail: float) -> int | None:
    """Steps after which a replication is cut: the horizon, or where rewards weigh no more than `tail`; None: never."""
    if horizon is not None or discount >= 1:
        return horizon
    return max(1, math.ceil(math.log(tail) / math.log(discount))) if discount > 0 else 1


class Gaps(NamedTuple):
    """Gaps between two alternatives, replication by replication."""

    gaps: Floats  # [n]
    slack: Floats  # [n] how far each may be from the gap of the complete returns
    truncation_bound: float
    """The largest part of a slack that comes from the end of the simulation."""
    steps: int


WIDE = ("returns", "leads", "rounding", "leaders", "apart")
"""What `Replications` have of each alternative, beside the states."""


class Replications(NamedTuple):
    """Raw joint samples of the returns of m alternatives."""

    returns: Floats  # [n, m]; NaN, like all of it, from where on an alternative was not sampled any more
    leads: Floats  # [n, m] returns minus those of the first alternative: exactly 0 where nothing ever differed
    rounding: Floats  # [n, m] how far each lead may be off by rounding
    steps: Ints  # [n] steps taken
    leaders: Ints  # [n, m] the first branch that each one is one with at the end
    left_out: Floats  # [n] discount weight of the first step left out; 0 where nothing more could come
    states: Ints | None = None  # [n, m] final states, where they are numbered
    is_whole: Bools | None = None  # [n] whose returns are not cut where branches became one; None: all
    apart: Floats | None = None  # [n, m] returns until all branches were one, where they were cut there
    followed: Bools | None = None  # [n] whether anything could follow that

    @classmethod
    def of_sums(
        cls, total: Floats, leads: Floats, size: Floats, steps: Ints, leaders: Ints, left_out: Floats, **more: Any
    ) -> Replications:
        """From the returns of branch 0 ``[n]``, leads over it, and how large the amounts are that each adds up."""
        rounding = (steps[:, None] + ROUNDING_UNITS) * 2.0**-52 * size
        return cls(total[:, None] + leads, leads, rounding, steps, leaders, left_out, **more)

    def rows(self, rows: slice | Bools) -> Replications:
        """Some of the replications."""
        return Replications(*(None if part is None else part[rows] for part in self))  # type: ignore[arg-type]

    def columns(self, columns: slice) -> Replications:
        """Some of the alternatives."""
        wide: Any = {name: part[:, columns] for name in WIDE if (part := getattr(self, name)) is not None}
        return self._replace(**wide)

    @classmethod
    def joined(cls, parts: Sequence[Replications]) -> Replications:
        """Several runs of replications as one."""
        columns = zip(*parts, strict=True)
        joined = (None if column[0] is None else np.concatenate(column) for column in columns)
        return cls(*joined)  # type: ignore[arg-type]

    def mirrored(self) -> Replications:
        """The same with the signs of all returns changed."""
        apart = None if self.apart is None else -self.apart
        return self._replace(returns=-self.returns, leads=-self.leads, apart=apart)

    @property
    def whole(self) -> Replications:
        """Those that were simulated to their end."""
        return self if self.is_whole is None else self.rows(self.is_whole)

    @property
    def reach(self) -> float:
        """How far apart two returns can be, as far as seen: infinite before any reward."""
        least, most = float(np.nanmin(self.returns)), float(np.nanmax(self.returns))
        seen, largest = most - least, max(abs(least), abs(most))
        return seen if seen > ROUNDING_UNITS * 2.0**-52 * largest else largest or math.inf

    def gap(self, i: int, j: int, return_bound: float | None) -> Gaps:
        """Gaps between the i-th and the j-th alternative.

        What follows the cut is a return like the others, with the weight of the cut; where the largest is not known,
        the largest that was seen stands for it.
        """
        gaps = self.leads[:, i] - self.leads[:, j]
        largest = float(np.abs(self.returns).max()) if return_bound is None else return_bound
        ahead = np.where(self.leaders[:, i] == self.leaders[:, j], 0.0, 2 * self.left_out * largest)
        rounding = np.where(gaps == 0, 0.0, self.rounding[:, i] + self.rounding[:, j])
        return Gaps(gaps, ahead + rounding, float(ahead.max()), int(self.steps.max()))


Sampler = Callable[[int, int, Sharing], Replications]
"""``sampler(first, count, sharing)``: replications by number, always the same ones."""


@dataclass(frozen=True, eq=False)
class GapSample(SavedFace, PlannedGap):
    """Samples of how much more `action` gives than `other`, or costs less; intervals hold at `confidence` each."""

    action: str
    other: str
    gaps: Floats = field(repr=False)  # [N]
    slack: Floats = field(repr=False)  # [N]
    """How far each sample may be from the gap of the complete returns, rounding included."""
    truncation_bound: float
    """How far the end of the simulation moved a sample at most; intervals are widened by the slack."""
    steps: int
    reach: float = field(repr=False)
    """What a gap that has not been seen yet may be."""
    seed: int | None
    confidence: float = CONFIDENCE
    within: Interval | None = None
    """Between which every gap lies, where that is known for sure: intervals then hold for every number of samples."""
    independent_variance: float = math.nan
    """Variance if each had independent noise: the sum of the two returns' variances; NaN where these are not known."""
    tails: Tails = "any"
    """``"light"``: the samples show all there is. ``"any"``: there may be values as rare as the sample can hide, and
    twice as far out as the farthest one seen; intervals of means, variances and tails allow for it."""
    minimise: bool = False
    """Whether returns are costs; gaps are then how much less `action` costs."""

    def __repr__(self) -> str:
        told = words(self.minimise).told(self.action, self.other, self.mean, self.std)
        known = f"mean in {self.mean_interval:.6g}{', ' * bool(self.caveat)}{self.caveat}"
        return f"{type(self).__name__}({told} from {len(self.gaps):,} pairs, {known})"

    def row(self) -> dict[str, Any]:
        """Everything known of it, for tables."""
        plain = "action other mean mean_interval variance variance_interval"
        signs = {"superiority": self.superiority(), "tie": self.tie()}
        return {**{name: getattr(self, name) for name in plain.split()}, **signs, "direction": self.direction}

    def table(self) -> list[dict[str, Any]]:
        """One row."""
        return [self.row()]

    def to_xarray(self) -> xarray.Dataset:
        """The samples as a dataset with the dimension replication."""
        return as_dataset(
            {"gap": ("replication", self.gaps), "slack": ("replication", self.slack)},
            {},
            {"action": self.action, "other": self.other, "seed": self.seed, "direction": self.direction},
        )

    def figure(self) -> Figure:
        """The distribution of the gap: between the two curves it holds everywhere at once, at its confidence."""
        return self._drawn("gap_law")

    @property
    def band(self) -> tuple[Floats, Floats, Floats]:
        """Thresholds with lower and upper bounds of P(G ≤ t) at each, which hold together at the confidence.

        The band is that of Dvoretzky, Kiefer and Wolfowitz, the samples widened by their slack.
        """
        n, q = len(self.gaps), 1 - self.confidence
        half = math.sqrt(math.log(2 / q) / (2 * n))
        x = np.unique(np.concatenate([self.gaps - self.slack, self.gaps + self.slack]))
        x = np.concatenate([[x[0] - 0.03 * (np.ptp(x) or 1.0)], x, [x[-1] + 0.03 * (np.ptp(x) or 1.0)]])
        ends = [np.searchsorted(np.sort(self.gaps + sign * self.slack), x, "right") / n for sign in (1, -1)]
        return x, np.clip(ends[0] - half, 0, 1), np.clip(ends[1] + half, 0, 1)

    def reversed(self) -> GapSample:
        """The gap seen from the other side."""
        within = None if self.within is None else -self.within
        return dataclasses.replace(self, action=self.other, other=self.action, gaps=0.0 - self.gaps, within=within)

    @cached_property
    def mean(self) -> float:
        """Sample mean."""
        return float(self.gaps.mean())

    @cached_property
    def variance(self) -> float:
        """Unbiased sample variance."""
        # Rounding of the mean must not make equal samples vary.
        return float(self.gaps.var(ddof=1)) if np.ptp(self.gaps) > 0 else 0.0

    @property
    def num_replications(self) -> int:
        """How many gaps were sampled."""
        return len(self.gaps)

    @property
    def std(self) -> float:
        """Sample standard deviation."""
        return math.sqrt(self.variance)

    @property
    def mean_standard_error(self) -> float:
        """Standard error of `mean`."""
        return self.std / math.sqrt(len(self.gaps))

    @property
    def variance_standard_error(self) -> float:
        """Standard error of `variance`, from the fourth central moment."""
        n = len(self.gaps)
        squares = (self.gaps - self.mean) ** 2
        return float(math.sqrt(max(squares.var() + 2 * squares.mean() ** 2 / (n - 1), 0.0) / n))

    @cached_property
    def mean_interval(self) -> Interval:
        """Confidence interval of the mean."""
        if self.within is not None:
            found = confidence_intervals.mean_within(self.gaps, self.within, 1 - self.confidence)
        else:
            found = confidence_intervals.careful_mean(self.gaps, *self._unseen)
        return found.widened(float(self.slack.mean())).of(self.mean)

    @cached_property
    def variance_interval(self) -> Interval:
        """Confidence interval of the variance."""
        if self.within is not None:
            found = confidence_intervals.bounded_variance(self.gaps, self.within, 1 - self.confidence)
        else:
            found = confidence_intervals.careful_variance(self.gaps, *self._unseen)
        # Samples off by e change a standard deviation by at most the root mean square of e.
        off = math.sqrt(float(np.mean(self.slack**2)))
        low, high = (math.sqrt(end) for end in found)
        return Interval(max(0.0, low - off) ** 2, (high + off) ** 2).of(self.variance)

    @property
    def _unseen(self) -> tuple[float, float, float, Tails]:
        """What intervals of amounts are to allow for: the range of a gap, an error, and which tails."""
        return -self.reach, self.reach, 1 - self.confidence, self.tails

    @property
    def unseen_rate(self) -> float:
        """Events of at least this probability are among the samples with 95 %; of rarer ones they say nothing."""
        return confidence_intervals.unseen_rate(len(self.gaps))

    @property
    def caveat(self) -> str:
        """What the intervals of amounts hold unless, in words; nothing where every gap lies within known bounds.

        Those of probabilities and quantiles hold for every law.
        """
        return "" if self.within is not None else confidence_intervals.caveat(len(self.gaps))

    @property
    def differing(self) -> int:
        """In how many samples the gap is not what it usually is; few say little of how large a gap can be."""
        return confidence_intervals.usual_and_differing(self.gaps, -self.reach, self.reach)[1]

    def superiority(self) -> Interval:
        """Confidence interval of P(G > 0); the estimate is the fraction above 0 by more than its slack."""
        return self._above(self.gaps)

    def tie(self) -> Interval:
        """Confidence interval of P(G = 0); the estimate is the fraction within its slack of 0."""
        near = np.abs(self.gaps) <= self.slack
        return self._proportion((self.gaps == 0) & (self.slack == 0), near).of(float(np.mean(near)))

    def inferiority(self) -> Interval:
        """Confidence interval of P(G < 0); the estimate is the fraction below 0 by more than its slack."""
        return self._above(-self.gaps)

    def _above(self, gaps: Floats) -> Interval:
        is_above = gaps > self.slack
        return self._proportion(is_above, gaps + self.slack > 0).of(float(np.mean(is_above)))

    def _proportion(self, certain: Bools, possible: Bools) -> Interval:
        counts = np.array([np.count_nonzero(certain), np.count_nonzero(possible)])
        return confidence_intervals.proportion(counts, len(self.gaps), 1 - self.confidence)

    def quantile(self, q: float) -> Interval:
        """Confidence interval of the q-quantile of G, from order statistics: it holds for every law of G.

        The estimate is the sample quantile, the least value that a fraction q of the samples does not exceed.
        """
        q = checks.as_fraction("q", q)
        low = confidence_intervals.quantile_interval(self.gaps - self.slack, q, self.confidence).lower
        high = confidence_intervals.quantile_interval(self.gaps + self.slack, q, self.confidence).upper
        return Interval(low, high, confidence_intervals.sample_quantile(self.gaps, q))

    def cvar(self, alpha: float) -> Interval:
        """Confidence interval of the mean of the lowest `alpha` fraction of G; the estimate is that of the samples."""
        alpha = checks.as_fraction("alpha", alpha)
        if self.within is not None:
            found = confidence_intervals.bounded_cvar(self.gaps, alpha, self.within, 1 - self.confidence)
        else:
            found = confidence_intervals.cvar_interval(self.gaps, alpha, *self._unseen)
        return found.widened(float(self.slack.max())).of(confidence_intervals.sample_cvar(self.gaps, alpha))


# -- replications in portions ------------------------------------------------------------------------------------------


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
