"""What every answer can do: rows, a data frame, CSV, JSON, a table in a notebook, and doors to the floors above.

And the face that every kind of gap shares, whatever method it comes from.

**One meaning of better.** A gap is an advantage: positive always says that the first alternative is the better one.
It is ``Z(first) − Z(second)`` where returns are to be high, and ``Z(second) − Z(first)``, what the first costs less,
where they are costs (``minimise=True``). Whatever is said of the gap (mean, quantiles, worst cases, P(better)) follows
from that order of the two, which `checks.subtracted` alone decides; returns themselves keep the user's units.

Answers stand on low floors, their pictures, pages and samples are made on higher ones, and imports run one way. So an
answer asks for these by name, when somebody wants one (`upstairs`), as pandas loads its plots.
"""

from __future__ import annotations

import dataclasses
import html
import importlib
import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from jointmdp.ground import checks, files
from jointmdp.ground.errors import ModelError
from jointmdp.ground.files import FilePath, write_csv
from jointmdp.ground.intervals import Interval

if TYPE_CHECKING:
    import pandas
    import xarray
    from matplotlib.figure import Figure

SHOWN = 30  # rows of a table in a notebook
SHOWN_STATES = 5  # and states, where each has many rows


class Words(NamedTuple):
    """How one speaks of returns, or of costs."""

    direction: str = "higher is better"
    gives: str = "gives"
    more: str = "more"
    most: str = "gives most"
    highest: str = "highest"
    amount: str = "return"

    def told(self, first: str, second: str, mean: float, spread: float, place: str = "") -> str:
        """The gap of two alternatives in a line; where costs could be read either way, in words."""
        if self == RETURNS:
            return f"{first} − {second}{place}: {mean:.6g} ± {spread:.6g}"
        less = "less" if mean >= 0 else "more"
        return f"{first} costs {abs(mean):.6g} ± {spread:.6g} {less} than {second}{place}"


RETURNS = Words()
COSTS = Words("lower is better", "costs", "less", "costs least", "lowest", "cost")


def words(minimise: bool) -> Words:
    """Those of costs, or of returns."""
    return COSTS if minimise else RETURNS


def upstairs(module: str, name: str) -> Any:
    """What a module of a higher floor offers under `name`: the only way up."""
    return getattr(importlib.import_module(f"jointmdp.{module}"), name)


class ResultFace:
    """A result that has a `table`: one dictionary a row, whose intervals become columns (`flat`)."""

    def table(self) -> list[dict[str, Any]]:
        """The rows."""
        raise NotImplementedError

    @property
    def direction(self) -> str:
        """``"higher is better"``, or ``"lower is better"`` of costs; gaps are advantages either way."""
        return words(getattr(self, "minimise", False)).direction

    def to_pandas(self) -> pandas.DataFrame:
        """`table` as a data frame."""
        try:
            import pandas
        except ImportError:
            raise ImportError("to_pandas needs pandas: pip install pandas") from None
        return pandas.DataFrame([flat(row) for row in self.table()])

    def to_csv(self, path: FilePath) -> None:
        """Write `table` as a CSV file, whole or not at all."""
        write_csv(path, [flat(row) for row in self.table()])

    def to_json(self) -> str:
        """`table` as strict JSON; what is infinite is null."""
        return files.to_json(self.table())

    def _drawn(self, plot: str) -> Figure:
        """The figure of one of `jointmdp.plots`."""
        figure: Figure = upstairs("plots", plot)(self).figure
        return figure

    def _shown(self) -> list[dict[str, Any]]:
        """What a notebook shows; the text itself where it has several lines."""
        return self.table()[:SHOWN]

    def _repr_html_(self) -> str:
        text = str(self)
        if "\n" in text:
            return f"<pre>{html.escape(text)}</pre>"
        return f"<p>{html.escape(text)}</p>{html_table(self._shown())}"


class SavedFace(ResultFace):
    """A dataclass that files hold: equal to another where all is equal that a file would keep, arrays and NaN too."""

    def __eq__(self, other: object) -> bool:
        return _are_same(self, other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        plain = (getattr(self, each.name) for each in dataclasses.fields(self) if each.compare)  # type: ignore[arg-type]
        return hash((type(self), *(value for value in plain if isinstance(value, str | int))))


def _are_same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        is_float = one.dtype.kind == "f"
        return isinstance(other, np.ndarray) and np.array_equal(one, other, equal_nan=is_float)
    if type(one) is not type(other):
        return False
    if dataclasses.is_dataclass(one):
        names = (each.name for each in dataclasses.fields(one) if each.compare)
        return all(_are_same(getattr(one, name), getattr(other, name)) for name in names)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(_are_same, one, other))
    return bool(one == other or (one != one and other != other))


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row whose intervals are numbers: ``tie`` becomes ``tie_estimate``, ``tie_lower`` and ``tie_upper``.

    A ``mean_interval`` that stands beside the ``mean`` itself becomes ``mean_lower`` and ``mean_upper``.
    """
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Interval):
            stem = name.removesuffix("_interval")
            if stem == name or stem not in row:
                found[f"{stem}_estimate"] = value.estimate
            found |= {f"{stem}_lower": value.lower, f"{stem}_upper": value.upper}
        else:
            found[name] = value
    return found


def html_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as HTML."""
    if not rows:
        return ""

    def line(cells: Sequence[str], kind: str) -> str:
        return "<tr>" + "".join(f"<{kind}>{html.escape(cell)}</{kind}>" for cell in cells) + "</tr>"

    body = [line([f"{x:.6g}" if isinstance(x, float) else str(x) for x in row.values()], "td") for row in rows]
    return f"<table>{line(list(rows[0]), 'th')}{''.join(body)}</table>"


def as_dataset(variables: Mapping[str, Any], coords: Mapping[str, Any], attrs: Mapping[str, Any]) -> xarray.Dataset:
    """A labelled dataset; settings that are None are left out, as files of datasets do not know them."""
    try:
        import xarray
    except ImportError:
        raise ImportError("to_xarray needs xarray: pip install 'jointmdp[xarray]'") from None
    return xarray.Dataset(variables, coords, {name: value for name, value in attrs.items() if value is not None})


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of left-aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


class ReplicationsNeeded(NamedTuple):
    """Pairs needed when branches share their noise as they do, and when they do not (NaN where that is not known)."""

    paired: float  # a whole number, or infinity
    unpaired: float

    @property
    def saved(self) -> float:
        """How many times fewer replications sharing needs."""
        return self.unpaired / self.paired


class PlannedGap:
    """How many simulated pairs it takes to know a gap, from its mean and variance; a part of every kind of gap."""

    if TYPE_CHECKING:  # fields of some kinds, properties of others

        @property
        def mean(self) -> float: ...
        @property
        def variance(self) -> float: ...
        @property
        def independent_variance(self) -> float: ...

    def replications(self, half_width: float, confidence: float = 0.95) -> ReplicationsNeeded:
        """Pairs for a confidence interval of the mean gap of this half width (normal approximation)."""
        z = NormalDist().inv_cdf((1 + checks.as_fraction("confidence", confidence)) / 2)
        return self._counts(z / checks.as_positive("half_width", half_width))

    def replications_to_select(self, probability: float = 0.95) -> ReplicationsNeeded:
        """Pairs for the better of the two to have the higher sample mean with this probability.

        Normal approximation, for the mean and the variance that are known of the gap; infinite for a mean of 0.
        """
        probability, mean = checks.as_fraction("probability", probability), self._planned_mean
        if probability <= 0.5:
            raise ModelError(f"probability is {probability:g}; tossing a coin selects correctly with 0.5")
        if mean == 0:
            return ReplicationsNeeded(math.inf, math.inf)
        return self._counts(NormalDist().inv_cdf(probability) / mean)

    @property
    def _planned_mean(self) -> float:
        """The mean, or 0 where it cannot be told from it."""
        return self.mean

    def _counts(self, per_std: float) -> ReplicationsNeeded:
        roots = (per_std * math.sqrt(variance) for variance in (self.variance, self.independent_variance))
        counts = [root * root for root in roots]
        return ReplicationsNeeded(*(max(1, math.ceil(count)) if math.isfinite(count) else count for count in counts))


@runtime_checkable
class GapLike(Protocol):
    """How much better one alternative is than another: ``G``, one random number, what it gives more or costs less.

    Intervals are certified bounds where the gap was computed and confidence intervals where it was sampled or learned;
    docs/gaps.md has a table. A kind that cannot answer raises `NotKnownError` and names one that can.
    """

    @property
    def mean(self) -> float:
        """E G."""

    @property
    def mean_interval(self) -> Interval:
        """Where E G lies."""

    @property
    def variance(self) -> float:
        """Var G."""

    @property
    def variance_interval(self) -> Interval:
        """Where Var G lies."""

    @property
    def std(self) -> float:
        """Standard deviation of G."""

    def superiority(self) -> Interval:
        """P(G > 0)."""

    def tie(self) -> Interval:
        """P(G = 0)."""

    def inferiority(self) -> Interval:
        """P(G < 0)."""

    def quantile(self, q: float) -> Interval:
        """The q-quantile of G."""

    def cvar(self, alpha: float) -> Interval:
        """The mean of the lowest `alpha` fraction of G."""

    def replications(self, half_width: float, confidence: float = 0.95) -> ReplicationsNeeded:
        """Pairs for an interval of E G of this half width."""

    def replications_to_select(self, probability: float = 0.95) -> ReplicationsNeeded:
        """Pairs for the better of the two to have the higher sample mean with this probability."""
