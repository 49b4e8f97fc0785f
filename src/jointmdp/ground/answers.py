"""What every answer can do: rows, a data frame, CSV, JSON, a table in a notebook, and doors to the floors above.

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
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jointmdp.ground import files
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

    def difference(self, first: str, second: str) -> str:
        """The gap of two alternatives as what is subtracted from what."""
        return f"{first} − {second}" if self == RETURNS else f"cost of {second} − cost of {first}"

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
    """A result that has a `table`: one dictionary a row, whose intervals become two columns."""

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
    """A row whose intervals are two numbers: ``mean_interval`` becomes ``mean_lower`` and ``mean_upper``."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Interval):
            stem = name.removesuffix("_interval")
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
