"""Where the variance of a gap comes from, by step or by state, as a result to look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from jointmdp.arrays import Floats
from jointmdp.report.plots import result_plots, style
from jointmdp.report.result_face import ResultFace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 3  # parts in the text


@dataclass(frozen=True)
class VarianceSplit(ResultFace):
    """Parts that sum to the variance of a gap. ``np.asarray(split)`` is `values`."""

    gap: str
    """Which gap."""
    by: str
    """``"step"`` or ``"state"``."""
    names: tuple[str, ...] = field(repr=False)
    values: Floats = field(repr=False)
    """One part for each name. That of a state is negative where sharing takes away more than arises there."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values, dtype=dtype)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        rows = sorted(self.table(), key=lambda row: -abs(row["variance"]))[:SHOWN]
        parts = ", ".join(f"{row[self.by]} {row['share']:.0%}" for row in rows if row["variance"])
        return f"VarianceSplit({self.gap} by {self.by}: {self.total:.6g}; {parts or 'nothing'})"

    @property
    def total(self) -> float:
        """The variance of the gap."""
        return float(self.values.sum())

    def table(self) -> list[dict[str, Any]]:
        """Name, part and share of the whole: steps in order, states with the largest part first."""
        order = np.arange(len(self.values)) if self.by == "step" else np.argsort(-np.abs(self.values), kind="stable")
        whole = self.total or 1.0
        return [
            {self.by: self.names[i], "variance": float(self.values[i]), "share": float(self.values[i]) / whole}
            for i in order.tolist()
        ]

    def figure(self) -> Figure:
        """Bars: of the first steps, or of the states with the largest parts."""
        draw = result_plots.variance_over_time if self.by == "step" else result_plots.variance_over_states
        return style.figure_of(draw(self))
