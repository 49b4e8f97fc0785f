"""What a comparison found: each alternative, the gap of each pair, how it ended, and all of it in words.

The words are the verdict, an aligned table of the alternatives and one of the gaps, and what is promised.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jointmdp.decisions.comparing.sequential import Stage
from jointmdp.ground import checks
from jointmdp.ground.answers import SavedFace, aligned, as_dataset, upstairs, words
from jointmdp.ground.arrays import Floats, Ints
from jointmdp.ground.checks import SHARING_WORDS, Sharing
from jointmdp.ground.errors import ModelError
from jointmdp.ground.files import FilePath, to_json
from jointmdp.ground.intervals import Interval
from jointmdp.simulation.montecarlo import confidence_intervals
from jointmdp.simulation.montecarlo.confidence_intervals import FEW, caveat, unseen_rate
from jointmdp.simulation.montecarlo.samples import GapSample, Replications

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

    from jointmdp.simulation.montecarlo.stream_variances import StreamSplit

NOT_BEGUN = Stage(0, 0)
_NONE, _NUMBERS = np.empty((0, 0)), np.empty((0, 0), dtype=np.int64)
NO_REPLICATIONS = Replications(_NONE, _NONE, _NONE, _NUMBERS.ravel(), _NUMBERS, _NONE.ravel())
KINDS = {"decisions": "decision", "policies": "policy", "first actions": "action"}  # by how titles begin


def varies(values: Floats, slack: Floats) -> bool:
    """Whether some of the values differ from the usual one by more than each may be off: more than rounding."""
    middle = len(values) // 2
    usual = int(np.argpartition(values, middle)[middle])
    return bool(np.any(np.abs(values - values[usual]) > slack + slack[usual]))


class Verdict(enum.Enum):
    """How a comparison ended; the value is the sentence a person reads."""

    BEST = "one alternative is shown to be the best"
    CLOSE = "one alternative is shown to be the best, or within the indifference of it"
    PRECISE = "every gap is known to within the half width"
    CONSTANT = "nothing random was seen: all replications gave exactly the same"
    UNDECIDED = "stopped at the most replications allowed before anything was shown"
    TIME = "stopped by the time limit before anything was shown"

    @property
    def is_success(self) -> bool:
        """Whether what was asked for was reached."""
        return self not in (Verdict.UNDECIDED, Verdict.TIME)


@dataclass(frozen=True)
class Alternative:
    """One of the things compared, by itself."""

    label: str
    mean: float
    """Mean return."""
    mean_interval: Interval
    """Of `mean`."""
    std: float
    """Standard deviation of one return."""
    best: float
    """Fraction of replications in which it has the highest return; equal firsts share it equally."""
    best_interval: Interval
    """Of P(best), from the replications that all alternatives are in."""
    num_replications: int = 0
    """How many it was sampled in."""
    dropped_for: str | None = None
    """After so many it was not sampled any more, as it cannot be better than this one by more than the indifference;
    None: it always was sampled."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PairedGap(GapSample):
    """How much more one alternative gives than another, or costs less, under common random numbers.

    The intervals of all pairs' means hold together, and so do those of variances and probabilities of a comparison;
    quantiles and tails hold one by one.
    """

    decided: Interval
    """The interval of the mean that decided when to stop."""
    std_state: float | None
    """With noise shared while in the same state; None where that was not sampled."""
    std_time: float | None
    """With noise shared at the same time; None where that was not sampled."""
    half_width_unpaired: float
    """The half width that as many replications with independent noise would have reached."""

    @property
    def label(self) -> str:
        """The alternative that the gap is of."""
        return self.action

    @property
    def mean_interval(self) -> Interval:
        """Confidence interval of the mean."""
        return self.decided

    @property
    def variance(self) -> float:
        """Sample variance of one gap, under the sharing that was sampled; 0 where it is rounding."""
        return super().variance if varies(self.gaps, self.slack) else 0.0

    @property
    def std_unpaired(self) -> float:
        """If each had independent noise: the root of the sum of the two variances."""
        return math.sqrt(self.independent_variance)

    @property
    def half_width(self) -> float:
        """The mean gap is known to ± this."""
        return max(self.mean_interval.upper - self.mean, self.mean - self.mean_interval.lower)

    @property
    def replications_unpaired(self) -> float:
        """About how many replications the same precision takes with independent noise: the ratio of variances."""
        if self.std == 0:
            return math.inf if self.std_unpaired > 0 else float(self.num_replications)
        return self.num_replications * (self.std_unpaired / self.std) ** 2

    def reversed(self) -> PairedGap:
        """The same gap seen from the other alternative."""
        found = super().reversed()
        assert isinstance(found, PairedGap)
        return dataclasses.replace(found, decided=-self.mean_interval)

    def row(self) -> dict[str, Any]:
        """Everything known of it, for tables."""
        plain = "label other mean mean_interval variance variance_interval std std_unpaired std_state std_time"
        more = "num_replications half_width_unpaired replications_unpaired"
        signs = {"superiority": self.superiority(), "tie": self.tie(), "inferiority": self.inferiority()}
        found = {name: getattr(self, name) for name in f"{plain} {more}".split()}
        return {**found, **signs, "direction": self.direction}


@dataclass(frozen=True, repr=False, eq=False)
class Comparison(SavedFace):
    """Alternatives compared under common random numbers; ``print(comparison)`` explains it."""

    title: str
    """What is compared, in words."""
    alternatives: tuple[Alternative, ...]
    gaps: tuple[PairedGap, ...]
    """One for each pair, the earlier alternative first: those of the first alternative come first."""
    best_index: int
    """The place of the one with the highest mean (the lowest cost), of those that any other was dropped for."""
    status: Verdict
    num_replications: int
    looks: int
    """How often the intervals were looked at; each look has its part of the error allowed."""
    sharing: Sharing
    confidence: float
    half_width: float | None
    indifference: float | None
    """Differences up to this did not matter; None where only `half_width` was asked for."""
    is_exact: bool
    """Whether the intervals hold for every number of replications, from known bounds of the returns."""
    seconds: float
    seed: int | None = None
    beside: int = 0
    """Replications from which the standard deviations under other kinds of sharing are."""
    remark: str = ""
    warnings: tuple[str, ...] = ()
    """What was odd about the noise; each was a `NoiseWarning` too."""
    values: tuple[Any, ...] = field(default=(), compare=False)
    """The alternatives as the user calls them; empty where that is by their labels."""
    numbers: tuple[Any, ...] = field(default=(), compare=False)
    """First actions as the environment calls them."""
    minimise: bool = False
    """Whether returns are costs, and the lowest is the best; gaps are advantages all the same."""
    stage: Stage = NOT_BEGUN
    """How far the looks have come: what it takes to go on."""
    bounds: Interval | None = None
    """Between which every return lies, where that was given."""
    origin: Any = field(default=None, repr=False, compare=False)
    """What was sampled; None for a comparison that comes from a file."""
    replications: Replications = NO_REPLICATIONS
    """All of them, with NaN from where on an alternative was not sampled any more."""
    whole: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Which of them were simulated to their end. Gaps are known from all: branches that are one differ no more."""

    @property
    def returns(self) -> Floats:
        """Returns of the replications that were simulated to their end, as they were given, ``[n, m]``."""
        return self.replications.returns[self.whole]

    @property
    def results(self) -> dict[str, Comparison]:
        """Itself, the only result of a run, which has no name."""
        return {"": self}

    @property
    def promised(self) -> float:
        """The probability with which all intervals of gaps hold together: `confidence`, less after new looks.

        Each new series of looks may miss with half the error of the one before.
        """
        return 1 - (1 - self.confidence) * (2 - 0.5**self.stage.series)

    def resume(
        self,
        replications: int | None = None,
        *,
        half_width: float | None = None,
        indifference: float | None = None,
        max_replications: int = 100_000,
        seconds: float | None = None,
        executor: Any = None,
    ) -> Comparison:
        """Go on with the same stream of replications: nothing is sampled twice, and those that were dropped stay out.

        The looks that the first call has left over cost nothing. After the last of them a new series of looks begins,
        which may miss with half the error of the one before: see `promised`.

        Args:
            replications: go on to so many in all, at least 1.5 times those that there are, whatever is shown before.
            half_width, indifference: what is asked for from now on; by default as before.
            max_replications, seconds, executor: as in `compare`.
        """
        settings = {"half_width": half_width, "indifference": indifference, "max_replications": max_replications}
        go_on = upstairs("decisions.comparing.compare", "resumed")
        found: dict[str, Comparison] = go_on(self.results, replications, executor, seconds=seconds, **settings)
        return found[""]

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the alternatives."""
        return tuple(each.label for each in self.alternatives)

    @property
    def best(self) -> Any:
        """The alternative with the highest mean (the lowest cost), as it was given; `status` says if that is shown."""
        return self.values[self.best_index] if self.values else self.best_label

    @property
    def best_label(self) -> str:
        """The same in words."""
        return self.labels[self.best_index]

    @property
    def others(self) -> list[str]:
        """The labels of all alternatives but the best."""
        return [label for label in self.labels if label != self.best_label]

    def gap(self, label: Any, other: Any) -> PairedGap:
        """How much more one alternative gives than another, or costs less: each by its name, or as it is called.

        A number is a decision, a policy's key, or what the environment calls an action, never a place in the list.
        """
        i, j = (self._place(each) for each in (label, other))
        if i == j:
            raise ModelError(f"{self.labels[i]} is compared with itself; the gap is zero")
        low, high = min(i, j), max(i, j)
        before = low * len(self.labels) - low * (low + 1) // 2  # pairs whose first comes earlier
        found = self.gaps[before + high - low - 1]
        return found if i < j else found.reversed()

    def variance_by_stream(
        self,
        label: Any,
        other: Any,
        *,
        replications: int = 1000,
        seconds: float = 60.0,
        confidence: float = 0.95,
        executor: Any = None,
    ) -> StreamSplit:
        """How much of the variance of a gap each stream of noise makes: each is drawn anew while all others are kept.

        A stream is ``noise["arrivals"]`` (with every ``noise["arrivals", k]``), a generator of an environment, or one
        that a function ``run(decision, seed)`` seeds, called by its name and line; what the start and the policy draw
        are streams too. For d of them, at most eight, each replication is run 2 d + 2 times.

        Args:
            label, other: the two alternatives, as in `gap`.
            replications: how many are run.
            seconds: begin no more after about this long, once there are 30.
            confidence: of each interval by itself.
            executor: as in `compare`.
        """
        from jointmdp.simulation.montecarlo.stream_variances import variance_by_stream  # loads the exact side

        if self.origin is None:
            raise ModelError("this comparison comes from a file, which does not hold the simulator; compare again")
        i, j = self._place(label), self._place(other)
        gap = checks.difference(self.labels[i], self.labels[j], self.minimise)
        names = getattr(self.origin.simulator, "results", None) or ("",)
        place = next((k for k, name in enumerate(names) if self.title == f"{name}: {self.origin.title}"), 0)
        settings = {"replications": replications, "seconds": seconds, "confidence": confidence, "executor": executor}
        return variance_by_stream(self.origin, (i, j), gap, place=place, **settings)

    def table(self) -> list[dict[str, Any]]:
        """One row for each pair, with everything known of it."""
        return [gap.row() for gap in self.gaps]

    def to_xarray(self) -> xarray.Dataset:
        """Whole returns as a labelled dataset, and what was found of each alternative."""
        each, one = self.alternatives, ("alternative",)
        return as_dataset(
            {
                "returns": (("replication", "alternative"), self.returns),
                "mean": (one, [row.mean for row in each]),
                "std": (one, [row.std for row in each]),
                "best": (one, [row.best for row in each]),
            },
            {"replication": self.whole, "alternative": list(self.labels)},
            {
                "title": self.title,
                "status": self.status.value,
                "best": self.best_label,
                "seed": self.seed,
                "direction": self.direction,
            },
        )

    def figure(self) -> Figure:
        """Gaps to the best alternative with their intervals, paired and unpaired, and who is best how often."""
        drawn: Figure = upstairs("show.plots.result_plots", "comparison")(self)
        return drawn

    def report(self, path: FilePath = "report.html", *, title: str | None = None) -> Path:
        """Write one HTML file that needs nothing else: pick two alternatives, and see what their difference is like."""
        write = upstairs("show.report.report_page", "write_comparison")
        written: Path = write(self, path, self.title if title is None else title)
        return written

    def to_json(self) -> str:
        """One strict JSON object; what is infinite is null."""
        left = {"replications", "whole", "values", "numbers", "origin", "stage"}  # raw numbers are in `save`
        row = {each.name: getattr(self, each.name) for each in dataclasses.fields(self) if each.name not in left}
        more = {"sentence": self.status.value, "best": self.best_label, "guarantee": self.guarantee}
        more["direction"] = self.direction
        tables = {"alternatives": [vars(each) for each in self.alternatives], "gaps": self.table()}
        return to_json({**row, **more, **tables, "replications_unpaired": self.replications_unpaired})

    def __repr__(self) -> str:
        said = words(self.minimise)
        head = [
            _paragraph(_in_short(self.warnings) + verdict(self)),
            f"Which {said.most}? {self.title[:1].upper()}{self.title[1:]}, {SHARING_WORDS[self.sharing]}.",
            *(_paragraph(f"Careful: {text}") for text in self.warnings),
            *map(_paragraph, [*_never_differed(self), *_rarely(self)]),
        ]
        often, best = max(self.alternatives, key=lambda each: each.best), self.alternatives[self.best_index]
        notes = [_legend(self), cost(self), self.guarantee, *([self.remark] if self.remark else [])]
        tables = ["", *aligned(_alternative_rows(self)), "", *aligned(_gap_rows(self)), ""]
        if often.best_interval.lower > best.best_interval.upper:
            text = (
                f"Best on average is not best most of the time: {often.label} has the {said.highest} {said.amount} in "
                f"{often.best:.0%} of the replications, {best.label} in {best.best:.0%}."
            )
            tables += [_paragraph(text), ""]
        return "\n".join([*head, *tables, *map(_paragraph, notes)])

    @property
    def guarantee(self) -> str:
        """What is promised of the intervals."""
        text = (
            f"Promised: all intervals of gaps hold together with probability {self.promised:g}, and so do all others "
            "together, whenever sampling stops; "
        )
        if self.stage.series:
            text += (
                f"that is {self.confidence:g} for the first looks, and half the error for each time new ones began; "
            )
        if self.is_exact:
            return text + "for every number of replications, from the bounds given on the returns."
        allowed = "the intervals allow for one kind of event, twice as far out as the farthest gap seen"
        if self.gaps[0].tails == "light":
            allowed = 'the intervals allow for nothing, as tails="light" says'
        return text + (
            f"approximately, and {caveat(self.num_replications)}: what is as frequent as that was seen with 95 %; of "
            f"what is rarer {allowed}. Where fewer than 30 replications differ, it is assumed that no unseen "
            "gap is larger than the range of the returns."
        )

    @property
    def replications_unpaired(self) -> float:
        """About how many replications the same answer would have taken with independent noise."""
        best = self.best_label
        paired = unpaired = 0.0
        for gap in self.gaps:
            aim = math.inf if self.half_width is None else self.half_width
            if self.indifference is not None and best in (gap.label, gap.other):
                aim = min(aim, abs(gap.mean) + self.indifference)
            if aim > 0:  # the pair that is farthest from its aim sets the number, now as then
                paired = max(paired, gap.std / aim)
                unpaired = max(unpaired, gap.std_unpaired / aim)
        if not math.isfinite(paired) or unpaired == 0:
            return float(self.num_replications)
        if paired == 0:
            return math.inf
        return self.num_replications * (unpaired / paired) ** 2

    def _place(self, label: Any) -> int:
        kind = KINDS.get(self.title.partition(" in ")[0], "alternative")
        return checks.as_called(kind, label, self.labels, self.values or self.numbers or self.labels)


NAMED = 6  # alternatives that a sentence names
WIDTH = 110  # of paragraphs; tables are as wide as they are
PERCENT = 0.01  # precision of probabilities, which gives them three digits
SHOWN_PAIRS = 3  # of those that never differed


def verdict(found: Comparison) -> str:
    """The answer in a sentence or two."""
    best, n, said = found.best_label, found.num_replications, words(found.minimise)
    gives, more, room = said.gives, said.more, found.indifference or 0.0
    gaps = [found.gap(best, other) for other in found.others]
    least = min(gaps, key=lambda gap: gap.mean_interval.lower)
    lead = least.mean_interval.lower
    if found.status is Verdict.CONSTANT:  # which is never to say that there is nothing random
        least = min(gaps, key=lambda gap: gap.mean)
        text = f"{best} {gives} {_number(least.mean, 0.0)} {more} than {least.other}"
        if least.mean == 0:
            text = f"{best} and {least.other} {gives[:-1]} the same"
        return (
            f"Nothing random was seen: all {n} replications, each with a seed of its own, gave exactly the same. "
            f"{text}. Another outcome has a probability of at most {1 - 0.05 ** (1 / n):.0%} (95 %); "
            "resume(replications=…) tries more."
        )
    if all(not gap.gaps.any() for gap in gaps):
        text = f"No difference: all gave the same in every one of {n:,} replications. "
        text += _may_differ(max(gaps, key=lambda gap: float(gap.slack.max())))
        if not math.isfinite(least.half_width):
            text += " All returns were zero, so nothing is known of how large a difference can be."
        return text
    if found.status is Verdict.PRECISE:
        width = max(gap.half_width for gap in found.gaps if gap.num_replications == n)
        shown = "and is shown best" if lead > 0 else f"but {least.other} may be as good"
        return f"Every gap is known to ± {_number(width, width)}. {best} has the {said.highest} mean, {shown}."
    if found.status is Verdict.BEST:
        costs = "costs " if found.minimise else ""
        return f"{best} is the best: {costs}on average at least {_number(lead, lead)} {more}."
    if found.status is Verdict.CLOSE:
        lost = max(0.0, -lead)
        return (
            f"{best} will do: whichever is the best, it {gives} at most {_number(lost, lost)} {more} on average, and "
            f"{_number(room, room)} did not matter."
        )
    is_late = found.status is Verdict.TIME
    text = f"Undecided {'when the time was up, ' * is_late}after {n:,} replications: {best}"
    allow = f"Allow more {'time' if is_late else 'replications'}"
    if lead > 0:  # too few replications differ for that to count
        return (
            f"{text} {gives} on average at least {_number(lead, least.half_width)} {more} by what was seen, but fewer "
            f"than {FEW} replications differ from the rest, and what is rarer may decide. {allow}."
        )
    close = [gap.other for gap in gaps if gap.mean_interval.lower <= -room] or [least.other]
    return (
        f"{text} has the {said.highest} mean, but {_list(close)} may {gives[:-1]} up to "
        f"{_number(-lead, least.half_width)} {more}. {allow}, or a larger half width or indifference."
    )


def _in_short(warned: Sequence[str]) -> str:
    """What a reader must know before the answer, from the beginnings of all warnings."""
    starts = [re.split(r"[:;.] ", text, maxsplit=1)[0].rstrip(".") for text in warned]
    return f"Careful, {'; '.join(start[:1].lower() + start[1:] for start in dict.fromkeys(starts))}. " if starts else ""


def _may_differ(gap: PairedGap) -> str:
    """How often two that never differed may do so, by more than what the end of a simulation may add."""
    n, room = gap.num_replications, float(gap.slack.max())
    often = 1 - confidence_intervals.proportion(np.array([n, n]), n, 1 - gap.confidence).lower
    more = f" by more than {room:.1g}" if room > 0 else ""
    return f"They differ{more} with a probability of at most {often:.2g}."


def _never_differed(found: Comparison) -> list[str]:
    """Pairs that were the same in every replication, where others differ."""
    same = [gap for gap in found.gaps if not gap.gaps.any()]
    if len(same) == len(found.gaps):
        return []
    begins = f"never differed in {found.num_replications:,} replications"
    told = [f"{gap.label} and {gap.other} {begins}. {_may_differ(gap)}" for gap in same[:SHOWN_PAIRS]]
    return [*told, *([f"{len(same) - SHOWN_PAIRS} more pairs {begins}."] if len(same) > SHOWN_PAIRS else [])]


def _rarely(found: Comparison) -> list[str]:
    """A word of warning where hardly anything differed: what has not been seen may decide."""
    least = min((found.gap(found.best_label, other) for other in found.others), key=lambda gap: gap.differing)
    if found.is_exact or least.differing >= FEW or found.status is Verdict.CONSTANT:
        return []
    n = least.num_replications
    seen = f"these are only {n:,} replications"
    if 2 * least.differing <= n:
        usual = _number(float(np.median(least.gaps)), 0.0)
        seen = f"the gap to {least.other} was {usual} in all but {least.differing} of {n:,} replications"
    rare = f"An event rarer than 1 in {1 / unseen_rate(n):,.0f} may well not have occurred (with 5 %), and may decide."
    return [f"Rare events may be missing: {seen}. {rare}"]


def cost(found: Comparison) -> str:
    """What was sampled, and what sharing the noise saved."""
    text = f"Sampled: {found.num_replications:,} replications of {_sampled(found)} in {found.seconds:.1f} s"
    text += f", seed {found.seed}." if found.seed is not None else "."
    if len(found.whole) < found.num_replications:
        text += (
            f" {len(found.whole):,} of them went on after their branches had become one, for what returns have in "
            "common from there on; what is rarer than in one of them may be missing from mean returns."
        )
    alone = found.replications_unpaired
    if found.sharing == "none" or all(gap.std_unpaired == 0 for gap in found.gaps):
        return text
    if math.isinf(alone):
        return f"{text} With independent noise no number of replications would reach the same precision."
    share = 1 - found.num_replications / alone
    if share > 0:
        return (
            f"{text} With independent noise the same answer would take about {_round(alone):,}: sharing the noise "
            f"saved {share:.1%}."
        )
    return f"{text} Sharing the noise did not pay here: with independent noise about {_round(alone):,} would do."


def _sampled(found: Comparison) -> str:
    """Who was in all replications, and who dropped out when."""
    parts = []
    for count in sorted({each.num_replications for each in found.alternatives}, reverse=True):
        labels = [each.label for each in found.alternatives if each.num_replications == count]
        named = _list(labels) if len(labels) <= NAMED else f"{len(labels)} others"
        parts.append(named if count == found.num_replications else f"{count:,} of {named}")
    return "each" if len(parts) == 1 else _list(parts)


def _legend(found: Comparison) -> str:
    sharings = {"std_state": "with noise shared in the same state", "std_time": "with noise shared at the same time"}
    kinds = [text for name, text in sharings.items() if any(getattr(gap, name) is not None for gap in found.gaps)]
    said, n = words(found.minimise), found.num_replications
    common = min(each.num_replications for each in found.alternatives)
    beside = f" (what was not sampled itself: from {found.beside:,} replications)" if 0 < found.beside < n else ""
    return (
        f"± is the standard deviation of one {said.amount} or one gap: {_list(['with independent noise', *kinds])}"
        f"{beside}. P(better) counts replications in which it {said.gives} {said.more}, P(tie) those in which both "
        "give exactly the same; P(best) shares equal firsts equally"
        f"{f', and is of the {common:,} replications that all are in' if common < n else ''}."
    )


def _alternative_rows(found: Comparison) -> list[list[str]]:
    rows = [["", f"mean {words(found.minimise).amount}", "± one run", "P(best)"]]
    for each in found.alternatives:
        best = f"{each.best:.3f} {_ends(each.best_interval, PERCENT)}"
        rows.append([each.label, number_in(each.mean, each.mean_interval), _number(each.std, each.std), best])
    return rows


def _gap_rows(found: Comparison) -> list[list[str]]:
    """The best alternative against each other one; every pair is in `table()`."""
    said = words(found.minimise)
    gaps = [found.gap(found.best_label, other) for other in found.others]
    kinds = {"± independent": "std_unpaired", "± same state": "std_state", "± same time": "std_time"}
    kinds = {title: name for title, name in kinds.items() if any(getattr(gap, name) is not None for gap in gaps)}
    rows = [[f"{found.best_label} instead of", f"{said.gives} {said.more}", *kinds, "P(better)", "P(tie)"]]
    for gap in gaps:
        deviations = [getattr(gap, name) for name in kinds.values()]
        certain, possible = float(np.mean((gap.gaps == 0) & (gap.slack == 0))), gap.tie().estimate
        tie = "0" if certain == 0 else f"{certain:.3f}"
        if certain != possible:  # the rest are too close to tell: rounding, or an end that was cut
            tie = f"{certain:.3f} to {possible:.3f}"
        rows.append(
            [
                gap.other,
                f"{_number(gap.mean, gap.half_width)} {_ends(gap.mean_interval, gap.half_width)}",
                *("" if value is None else _number(value, value) for value in deviations),
                f"{gap.superiority().estimate:.3f} {_ends(gap.superiority(), PERCENT)}",
                tie,
            ]
        )
    return rows


def _paragraph(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _number(value: float, precision: float) -> str:
    """`value` with two digits of `precision`."""
    if value == 0:
        return "0"
    if not math.isfinite(value) or not math.isfinite(precision) or precision <= 0:
        return f"{value + 0.0:.6g}"
    digits = 1 - math.floor(math.log10(precision))
    found = f"{value:.{min(max(digits, 0), 12)}f}" if abs(value) < 1e9 else f"{value:.6g}"
    return found if float(found) != 0 else f"{value:.1g}"  # what is not zero does not look like it


def _ends(interval: Interval, precision: float) -> str:
    """An interval rounded outwards: what is printed holds what was found."""
    if not precision > 0 or not math.isfinite(precision):
        return f"[{interval.lower + 0.0:.6g}, {interval.upper + 0.0:.6g}]"
    digits = min(max(1 - math.floor(math.log10(precision)), 0), 12)
    lower, upper = math.floor(interval.lower * 10**digits), math.ceil(interval.upper * 10**digits)
    return f"[{lower / 10**digits:.{digits}f}, {upper / 10**digits:.{digits}f}]"


def number_in(value: float, interval: Interval) -> str:
    """A number and its interval, as precise as that is wide."""
    scale = interval.width / 2
    return f"{_number(value, scale)} {_ends(interval, scale)}"


def _round(count: float) -> int:
    """Two digits of a number that is not known better."""
    scale = 10 ** max(0, math.floor(math.log10(max(count, 1.0))) - 1)
    return round(count / scale) * scale


def _list(labels: list[str]) -> str:
    return labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} and {labels[-1]}"
