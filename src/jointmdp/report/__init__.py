"""For people: pictures and tables. Needs Matplotlib for pictures (the extra ``plots``)."""

from collections.abc import Sequence

from jointmdp.report.pictures import draw_chain, draw_gridworld

__all__ = ["draw_chain", "draw_gridworld"]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of left-aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
