"""Plots as functions: each takes a result and, if you like, Matplotlib axes, and returns the axes.

They need Matplotlib (the extra ``plots``). docs/gallery.md shows them all.
"""

from jointmdp.report.plots.diagrams import draw_chain, draw_gridworld
from jointmdp.report.plots.hindsight_plots import hindsight_path, hindsight_starts
from jointmdp.report.plots.method_plots import (
    learning_curve,
    predicted_against_simulated,
    residuals,
    returns,
    training_curves,
)
from jointmdp.report.plots.result_plots import (
    bound_ladder,
    correlation_grid,
    correlation_matrix,
    correlations,
    gap_law,
    means,
    variance_over_states,
    variance_over_time,
)
from jointmdp.report.plots.style import save

__all__ = [
    "bound_ladder",
    "correlation_grid",
    "correlation_matrix",
    "correlations",
    "draw_chain",
    "draw_gridworld",
    "gap_law",
    "hindsight_path",
    "hindsight_starts",
    "learning_curve",
    "means",
    "predicted_against_simulated",
    "residuals",
    "returns",
    "save",
    "training_curves",
    "variance_over_states",
    "variance_over_time",
]
