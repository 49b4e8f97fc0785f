"""What a comparison found, as numbers: each alternative, the gap of each pair, and how it ended."""

from __future__ import annotations

import dataclasses
import enum
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from jointmdp import checks
from jointmdp.arrays import Floats, Ints
from jointmdp.checks import Sharing
from jointmdp.errors import ModelError
from jointmdp.intervals import Interval
from jointmdp.montecarlo.samples import GapSample
from jointmdp.report.result_face import ResultFace, as_dataset

if TYPE_CHECKING:
    import xarray


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
    """Of P(best)."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PairedGap(GapSample):
    """How much more one alternative gives than another under common random numbers.

    The intervals of all pairs' means hold together, and so do those of variances and probabilities of a comparison;
    quantiles and tails hold one by one.
    """

    decided: Interval
    """The interval of the mean that decided when to stop."""
    std_unpaired: float
    """If each had independent noise: the root of the sum of the two variances."""
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
    def replications(self) -> int:
        """How many gaps were sampled."""
        return len(self.gaps)

    @property
    def half_width(self) -> float:
        """The mean gap is known to ± this."""
        return max(self.mean_interval.upper - self.mean, self.mean - self.mean_interval.lower)

    @property
    def replications_unpaired(self) -> float:
        """About how many replications the same precision takes with independent noise: the ratio of variances."""
        if self.std == 0:
            return math.inf if self.std_unpaired > 0 else float(self.replications)
        return self.replications * (self.std_unpaired / self.std) ** 2

    def reversed(self) -> PairedGap:
        """The same gap seen from the other alternative."""
        found = super().reversed()
        assert isinstance(found, PairedGap)
        return dataclasses.replace(found, decided=-self.mean_interval)

    def row(self) -> dict[str, Any]:
        """Everything known of it, for tables."""
        plain = (
            "label other mean mean_interval variance variance_interval std std_unpaired std_state std_time better tied"
        )
        more = "worse replications half_width_unpaired replications_unpaired"
        signs = {"superiority": self.superiority(), "tie": self.tie(), "inferiority": self.inferiority()}
        return {**{name: getattr(self, name) for name in f"{plain} {more}".split()}, **signs}


@dataclass(frozen=True, repr=False, eq=False)
class Compared(ResultFace):
    """Alternatives compared under common random numbers."""

    title: str
    """What is compared, in words."""
    alternatives: tuple[Alternative, ...]
    gaps: tuple[PairedGap, ...]
    """One for each pair, the earlier alternative first: those of the first alternative come first."""
    status: Verdict
    replications: int
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
    values: tuple[Any, ...] = ()
    """The alternatives as the user calls them; empty where that is by their labels."""
    minimise: bool = False
    """Whether returns are costs, and the lowest is the best; gaps have the sign of the costs all the same."""
    returns: Floats = field(default_factory=lambda: np.empty((0, 0)))  # [n, m]
    """Returns, as they were given, of the replications that were simulated to their end."""
    whole: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Which replications these are. Gaps are known from all: branches that are one differ no more."""

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
    def best_index(self) -> int:
        """Its place among the alternatives."""
        return (min if self.minimise else max)(range(len(self.alternatives)), key=self._lead)

    @property
    def others(self) -> list[str]:
        """The labels of all alternatives but the best."""
        return [label for label in self.labels if label != self.best_label]

    def advantage(self, other: str) -> PairedGap:
        """By how much the best alternative is better than another: gives more, or costs less."""
        return self.gap(other, self.best_label) if self.minimise else self.gap(self.best_label, other)

    def gap(self, label: Any, other: Any) -> PairedGap:
        """How much more one alternative, by name, value or place, gives (or costs) than another."""
        i, j = (self._place(each) for each in (label, other))
        if i == j:
            raise ModelError(f"{self.labels[i]} is compared with itself; the gap is zero")
        low, high = min(i, j), max(i, j)
        before = low * len(self.labels) - low * (low + 1) // 2  # pairs whose first comes earlier
        found = self.gaps[before + high - low - 1]
        return found if i < j else found.reversed()

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
            {"title": self.title, "status": self.status.value, "best": self.best_label, "seed": self.seed},
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
            return float(self.replications)
        if paired == 0:
            return math.inf
        return self.replications * (unpaired / paired) ** 2

    def _place(self, label: Any) -> int:
        """By value; by name, also where names are numbers; else by place."""
        for i, value in enumerate(self.values):
            if value is label:
                return i
        named = str(label) if str(label) in self.labels else label
        return checks.as_index("alternative", named, self.labels, len(self.labels))

    def _lead(self, i: int) -> float:
        """Mean lead over the first alternative: exact where returns themselves would round."""
        return 0.0 if i == 0 else -self.gaps[i - 1].mean
