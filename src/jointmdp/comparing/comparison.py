"""The answer of `compare`: numbers that explain themselves in words, as JSON and as a picture."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from jointmdp.comparing.comparison_page import comparison_data
from jointmdp.comparing.comparison_text import as_text, guarantee
from jointmdp.comparing.paired_gaps import Compared
from jointmdp.files.atomic_write import FilePath
from jointmdp.files.strict_json import to_json
from jointmdp.report.page import write_page

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Comparison(Compared):
    """Alternatives compared under common random numbers; ``print(comparison)`` explains it."""

    @property
    def guarantee(self) -> str:
        """What is promised of the intervals."""
        return guarantee(self)

    def __repr__(self) -> str:
        return as_text(self)

    def figure(self) -> Figure:
        """Gaps to the best alternative with their intervals, paired and unpaired, and who is best how often."""
        from jointmdp.comparing.comparison_figure import draw  # here, because Matplotlib is an extra

        return draw(self)

    def report(self, path: FilePath = "report.html", *, title: str | None = None) -> Path:
        """Write one HTML file that needs nothing else: pick two alternatives, and see what their difference is like."""
        return write_page(comparison_data(self, self.title if title is None else title), path)

    def to_json(self) -> str:
        """One strict JSON object; what is infinite is null."""
        left = {"returns", "whole", "values"}  # raw numbers are in `save`, and values may be anything
        row = {each.name: getattr(self, each.name) for each in dataclasses.fields(self) if each.name not in left}
        more = {"sentence": self.status.value, "best": self.best_label, "guarantee": self.guarantee}
        tables = {"alternatives": [dataclasses.asdict(each) for each in self.alternatives], "gaps": self.table()}
        return to_json({**row, **more, **tables, "replications_unpaired": self.replications_unpaired})
