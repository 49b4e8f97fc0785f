"""Which action, policy or decision is best under the same luck: the question, and an answer that explains itself.

``print(compare(simulator, policy, state))`` samples replications in which all alternatives have the same luck, until
one is shown to be the best, and says how sure that is and what sharing the luck has saved.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jointmdp import checks
from jointmdp.checks import Sharing
from jointmdp.errors import ModelError
from jointmdp.intervals import Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from jointmdp.executors import Executor


class Verdict(enum.Enum):
    """How a comparison ended; the value is the sentence a person reads."""

    BEST = "one alternative is shown to be the best"
    CLOSE = "one alternative is shown to be the best, or within the indifference of it"
    PRECISE = "every gap is known to within the half width"
    UNDECIDED = "stopped at the most replications allowed before anything was shown"

    @property
    def is_success(self) -> bool:
        """Whether what was asked for was reached."""
        return self is not Verdict.UNDECIDED


@dataclass(frozen=True)
class Alternative:
    """One of the things compared, by itself."""

    label: str
    mean: float
    """Mean return."""
    interval: Interval
    """Of `mean`."""
    std: float
    """Standard deviation of one return."""
    best: float
    """Fraction of replications in which it has the highest return; equal firsts share it equally."""
    best_interval: Interval
    """Of P(best)."""


@dataclass(frozen=True)
class PairedGap:
    """What one alternative brings more than another under the same luck."""

    label: str
    other: str
    mean: float
    interval: Interval
    """Of the mean gap."""
    std: float
    """Of one gap, under the sharing that was sampled."""
    std_unpaired: float
    """If each had luck of its own: the root of the sum of the two variances."""
    std_state: float | None
    """With luck shared while in the same state; None where that cannot be sampled."""
    std_time: float | None
    """With luck shared at the same time; None where that cannot be sampled."""
    superiority: float
    """Fraction of replications in which it brings more."""
    superiority_interval: Interval
    tie: float
    """Fraction in which both bring exactly the same."""
    tie_interval: Interval
    inferiority: float
    """Fraction in which it brings less."""
    inferiority_interval: Interval
    replications: int
    half_width_unpaired: float
    """To what as many replications with luck of their own would have brought the mean gap."""

    @property
    def half_width(self) -> float:
        """The mean gap is known to ± this."""
        return max(self.interval.upper - self.mean, self.mean - self.interval.lower)

    @property
    def replications_unpaired(self) -> float:
        """About how many replications the same precision takes with luck of their own: the ratio of variances."""
        if self.std == 0:
            return math.inf if self.std_unpaired > 0 else float(self.replications)
        return self.replications * (self.std_unpaired / self.std) ** 2

    def reversed(self) -> PairedGap:
        """The same gap seen from the other alternative."""
        return dataclasses.replace(
            self,
            label=self.other,
            other=self.label,
            mean=-self.mean,
            interval=Interval(-self.interval.upper, -self.interval.lower),
            superiority=self.inferiority,
            superiority_interval=self.inferiority_interval,
            inferiority=self.superiority,
            inferiority_interval=self.superiority_interval,
        )


@dataclass(frozen=True, repr=False)
class Comparison:
    """Alternatives compared under the same luck."""

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

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the alternatives."""
        return tuple(each.label for each in self.alternatives)

    @property
    def best(self) -> str:
        """The alternative with the highest mean; `status` says whether that is shown."""
        return self.labels[self.best_index]

    @property
    def best_index(self) -> int:
        """Its place among the alternatives."""
        return max(range(len(self.alternatives)), key=self._lead)

    def gap(self, label: str | int, other: str | int) -> PairedGap:
        """What one alternative, by name or place, brings more than another."""
        i, j = (self._place(each) for each in (label, other))
        if i == j:
            raise ModelError(f"{self.labels[i]} is compared with itself; the gap is zero")
        low, high = min(i, j), max(i, j)
        before = low * len(self.labels) - low * (low + 1) // 2  # pairs whose first comes earlier
        found = self.gaps[before + high - low - 1]
        return found if i < j else found.reversed()

    def table(self) -> list[dict[str, Any]]:
        """One row for each pair, with everything known of it."""
        return [
            {
                **{field.name: getattr(gap, field.name) for field in dataclasses.fields(gap)},
                "replications_unpaired": gap.replications_unpaired,
            }
            for gap in self.gaps
        ]

    def to_json(self) -> str:
        """One strict JSON object; what is infinite is null."""
        row = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        row["status"], row["sentence"] = self.status.name.lower(), self.status.value
        row["best"], row["guarantee"] = self.best, self.guarantee
        row["alternatives"] = [dataclasses.asdict(each) for each in self.alternatives]
        row["gaps"] = self.table()
        row["replications_unpaired"] = self.replications_unpaired
        return json.dumps(_strict(row), indent=2, ensure_ascii=False, allow_nan=False)

    @property
    def replications_unpaired(self) -> float:
        """About how many replications the same answer would have taken, had every alternative had luck of its own."""
        best = self.best
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

    @property
    def guarantee(self) -> str:
        """What is promised of the intervals."""
        from jointmdp.comparing.comparison_text import guarantee

        return guarantee(self)

    def __repr__(self) -> str:
        from jointmdp.comparing.comparison_text import as_text

        return as_text(self)

    def figure(self) -> Figure:
        """Gaps to the best alternative with their intervals, paired and unpaired, and who is best how often."""
        from jointmdp.comparing.comparison_figure import draw

        return draw(self)

    def _place(self, label: str | int) -> int:
        """By name, also where names are numbers; else by place."""
        named = str(label) if str(label) in self.labels else label
        return checks.as_index("alternative", named, self.labels, len(self.labels))

    def _lead(self, i: int) -> float:
        """Mean lead over the first alternative: exact where returns themselves would round."""
        return 0.0 if i == 0 else -self.gaps[i - 1].mean


def compare(
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
    bounds: tuple[float, float] | None = None,
    seed: int = 0,
    executor: Executor | str | None = None,
) -> Comparison:
    """Which alternative brings most under the same luck, sampled until that is shown.

    Args:
        simulator: a `JointMDP`, a simulator, or a function ``run(decision, seed) -> outcome``.
        policy, state, actions: compares first `actions` (by default all) in `state`, after which `policy` is followed.
            Without a state, each replication begins in a starting state of its own, the same for all alternatives.
        policies: compares whole policies instead, ``{"name": policy, …}``.
        decisions: compares decisions of a function instead.
        half_width: go on until the gap of every pair is known to ± this. By default sampling stops as soon as one
            alternative is shown best.
        indifference: a lead of the true best up to this does not matter; by default 5 % of the standard deviation of
            the returns (the median one). Given together with `half_width`, both must be reached.
        confidence: with which all intervals of gaps hold together, and all others together.
        sharing: who shares the luck; by default as the simulator says itself.
        horizon, discount: of the returns; by default as the simulator says itself.
        pilot: replications before the first look.
        max_replications: stop here at the latest; the status then says that nothing was shown.
        bounds: between which every return lies. The intervals then hold for every number of replications, and are
            wider; otherwise they rest on the central limit theorem.
        seed: replication i depends on the seed and i alone.
        executor: where replications are made: here, ``"processes:4"``, ``"ray:ADDRESS"``; the result is the same.
    """
    from jointmdp.comparing.deciding import Rules, decide
    from jointmdp.montecarlo.simulate import alternatives

    most = checks.as_count("max_replications", max_replications, least=2)
    rules = Rules(
        None if half_width is None else checks.as_positive("half_width", half_width),
        None if indifference is None else checks.as_amount("indifference", indifference),
        checks.as_fraction("confidence", confidence),
        min(checks.as_count("pilot", pilot, least=2), most),
        most,
        None if bounds is None else _as_bounds(bounds),
    )
    given: dict[str, Any] = {"policies": policies, "decisions": decisions, "seed": seed, "sharing": sharing}
    found = alternatives(simulator, policy, state, actions, horizon=horizon, discount=discount, **given)
    return decide(
        found.sampler,
        found.labels,
        rules._replace(cut=found.cut, return_bound=found.return_bound),
        sharing=found.sharing,
        can_share=found.can_share,
        title=found.title,
        seed=int(seed),
        remark=found.remark,
        executor=executor,
    )


def _as_bounds(bounds: tuple[float, float]) -> Interval:
    try:
        lower, upper = (checks.as_number("bounds", end) for end in bounds)
    except (TypeError, ValueError):
        raise ModelError(f"bounds must be two numbers, the least and the largest return, not {bounds!r}") from None
    if not -math.inf < lower <= upper < math.inf:
        raise ModelError(f"bounds are ({lower:g}, {upper:g}); give the least and the largest return, both finite")
    return Interval(lower, upper)


def _strict(value: Any) -> Any:
    """The same for JSON: intervals as objects, infinities as null."""
    if isinstance(value, Interval):
        return {name: _strict(end) for name, end in value._asdict().items()}
    if isinstance(value, dict):
        return {name: _strict(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
