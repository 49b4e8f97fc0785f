"""For people: pictures and tables. Needs Matplotlib for pictures (the extra ``plots``)."""

from jointmdp.report.pictures import draw_chain, draw_gridworld

__all__ = ["draw_chain", "draw_gridworld"]
