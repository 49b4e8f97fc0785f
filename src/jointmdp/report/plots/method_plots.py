"""Pictures of methods: samples beside what was computed, and how iterating, learning and training went."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jointmdp.arrays import Floats
from jointmdp.errors import ModelError
from jointmdp.report.plots import style
from jointmdp.report.plots.style import axes_or_own, in_our_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_CURVES = 7
CURVES = {
    "squared": "squared TD error",
    "signed": "signed TD error",
    "double": "squared Bellman residual, by two draws",
}


@in_our_style
def returns(sample: Any, ax: Axes | None = None) -> Axes:
    """P(return ≤ x) of each simulated action.

    Args:
        sample: of `jointmdp.simulate_returns`.
        ax: where to draw.
    """
    names, values = sample.actions, sample.returns
    if len(names) > MOST_CURVES:
        raise ModelError(f"{len(names)} curves cannot be told apart; draw at most {MOST_CURVES}")
    ax = axes_or_own(ax, 4.6, 3.2)
    levels = np.arange(1, len(values) + 1) / len(values)
    for i, name in enumerate(names):
        kind = {key: value for key, value in style.line(i).items() if key != "marker"}
        ax.step(np.sort(values[:, i]), levels, where="post", label=name, **kind)
    ax.set_xlabel(f"x, the return; {len(values):,} samples")
    ax.set_ylabel("P(return ≤ x)")
    ax.legend(loc="lower right")
    return ax


@in_our_style
def predicted_against_simulated(
    predicted: Iterable[Any], simulated: Iterable[Any], of: str = "variance", ax: Axes | None = None
) -> Axes:
    """Gaps by two methods, a point for each, with the interval of the second; on the line both agree.

    Intervals that reach far beyond the points are cut.

    Args:
        predicted: gaps of any method.
        simulated: the same gaps of another one, which has intervals.
        of: ``"mean"``, ``"variance"`` or ``"std"``.
        ax: where to draw.
    """
    one, other = list(predicted), list(simulated)
    if of not in ("mean", "variance", "std") or len(one) != len(other) or not one:
        raise ModelError(f"give as many gaps twice, and of= mean, variance or std: {len(one)}, {len(other)}, {of!r}")
    x, y = (np.array([getattr(gap, of) for gap in gaps], dtype=float) for gaps in (one, other))
    ends = np.array([getattr(gap, "variance_interval" if of == "std" else f"{of}_interval") for gap in other])
    ends = np.sqrt(np.maximum(ends, 0)) if of == "std" else ends
    off = np.abs(ends.T - y)
    ax = axes_or_own(ax, 3.6, 3.2)
    span = [float(np.min([x, y])), float(np.max([x, y]))]
    ax.plot(span, span, color=style.GREY, linewidth=1, label="both agree")
    look: dict[str, Any] = {"color": style.PALETTE[1], "linestyle": "none", "elinewidth": 1, "markersize": 3}
    ax.errorbar(x, y, yerr=np.where(np.isfinite(off), off, 0.0), marker="o", label=f"{len(x)} gaps", **look)
    words = {"std": "standard deviation"}.get(of, of)
    ax.set_xlabel(f"predicted {words} of the gap")
    ax.set_ylabel(f"simulated {words}\nwith its interval")
    margin = 0.08 * (span[1] - span[0]) or 1.0
    ax.set_ylim(span[0] - margin, span[1] + margin)
    ax.legend(loc="lower right")
    return ax


@in_our_style
def residuals(solution: Any, ax: Axes | None = None) -> Axes:
    """How the Bellman residual of the paper's iteration falls, beside powers of the discount.

    Args:
        solution: of ``jointmdp.evaluate(model, policy, jointmdp.Iterate())``.
        ax: where to draw.
    """
    history = np.asarray(getattr(solution, "history", ()), dtype=float)
    if not len(history):
        raise ModelError("no residuals were kept; evaluate(model, policy, Iterate()) keeps them")
    ax = axes_or_own(ax, 4.6, 3.0)
    steps, discount = np.arange(len(history)), solution.model.discount
    ax.semilogy(history[0] * discount**steps, color=style.GREY, linewidth=1, label="first residual × discountᵏ")
    ax.semilogy(np.where(history > 0, history, math.nan), **{**style.line(1), "marker": ""}, label="Bellman residual")
    ax.set_xlabel("step k")
    ax.set_ylabel("Bellman residual")
    ax.legend()
    return ax


@in_our_style
def learning_curve(learned: Any, ax: Axes | None = None) -> Axes:
    """How the error of learning fell with the updates.

    Args:
        learned: of `jointmdp.learn`.
        ax: where to draw.
    """
    kept = [row for row in learned.log if row.get("error") is not None]
    rows = [row for row in kept if np.isfinite(row["error"]) and row["error"] > 0]
    if not rows:
        raise ModelError("no error was reported: one replica has none, and neither has a run before its first report")
    ax = axes_or_own(ax, 4.2, 2.7)
    ax.loglog([row["updates"] for row in rows], [row["error"] for row in rows], **style.line(1))
    ax.minorticks_off()
    ax.set_xlabel("updates of coordinates, all replicas")
    ax.set_ylabel("largest error")
    return ax


@in_our_style
def training_curves(trained: Any, of: str = "double", ax: Axes | None = None) -> Axes:
    """TD errors of every block as networks learn.

    Args:
        trained: of `jointmdp.train`.
        of: ``"double"``, ``"squared"`` or ``"signed"``; docs/neural.md says what each shows.
        ax: where to draw.
    """
    if of not in CURVES:
        raise ModelError(f"of={of!r}; choose from {', '.join(CURVES)}")
    log: Sequence[Mapping[str, Any]] = trained.log
    blocks = [name.removesuffix(f"_{of}") for name in (log[0] if log else ()) if name.endswith(f"_{of}")]
    if not blocks:
        raise ModelError("nothing was logged: give what train(…) returned")
    ax = axes_or_own(ax, 4.6, 3.2)
    steps = [row["step"] for row in log]
    for i, block in enumerate(blocks):
        values: Floats = np.array([row[f"{block}_{of}"] for row in log])
        shown = values if of == "signed" else np.where(values > 0, values, math.nan)
        ax.plot(steps, shown, label=block, **{**style.line(i), "marker": "." if len(log) > 1 else style.MARKERS[i]})
    if of == "signed":
        ax.axhline(0, color=style.GREY, linewidth=1)
    else:
        ax.set_yscale("log")
    ax.set_xlabel("step")
    ax.set_ylabel(CURVES[of])
    ax.legend(ncols=2)
    return ax
