"""Pictures of results, one function for each question. Every one takes `ax`, where to draw, and returns it.

Without `ax` a figure of its own is made, ``ax.figure`` of what is returned. Whatever has the same face can be drawn: a
gap that was computed, simulated or compared. Answers come first, then how iterating, learning and training went.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from jointmdp.decisions.comparing.agent_review import AgentReview
from jointmdp.decisions.comparing.comparison import Comparison, PairedGap
from jointmdp.ground import checks
from jointmdp.ground.answers import words
from jointmdp.ground.arrays import Floats
from jointmdp.ground.checks import SHARING_WORDS
from jointmdp.ground.errors import ModelError
from jointmdp.show.plots import style
from jointmdp.show.plots.style import axes_or_own, in_our_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEAST = 0.005  # probability of a state at some time from which it is shown
MOST_STATES = 30
MOST_LABELS = 12


@in_our_style
def hindsight_path(found: Any, ax: Axes | None = None) -> Axes:
    """The seen path, and how likely the other branch would have been in each state at each time.

    `found`: of `jointmdp.hindsight(…)`.
    """
    seen = found.question.seen.states
    # States that were seen or would have been likely, in the order of their numbers.
    known, likely = np.unique(seen[seen >= 0]), found.path.max(axis=0)
    rest = np.setdiff1d(np.flatnonzero(likely > LEAST), known)
    states = np.union1d(known, rest[np.argsort(-likely[rest])][: max(MOST_STATES - len(known), 0)])
    times = found.start + np.arange(len(seen))
    ax = axes_or_own(ax, max(4.6, min(0.45 * len(seen) + 2, 9)), max(2.6, min(0.22 * len(states) + 1.2, 6)))
    image = ax.imshow(
        found.path[:, states].T,
        cmap="Blues",
        vmin=0,
        vmax=1,
        aspect="auto",
        origin="lower",
        extent=(times[0] - 0.5, times[-1] + 0.5, -0.5, len(states) - 0.5),
    )
    rows = np.where(seen >= 0, np.searchsorted(states, seen), np.nan)
    ax.plot(times, rows, color=style.PALETTE[2], marker=style.MARKERS[0], label="seen")
    ax.figure.colorbar(image, ax=ax, fraction=0.05, label=f"P(other is there): {found.question.words}")
    ax.set(xlabel="step", ylabel="state")
    every = max(1, -(-len(states) // MOST_LABELS))
    places = np.arange(0, len(states), every)
    ax.set_yticks(places, [found.model.state_label(int(s)) for s in states[places]])
    ax.locator_params(axis="x", integer=True)
    ax.grid(visible=False)
    ax.legend(loc="best", frameon=True)
    ax.set_title(
        f"{found.question.words} instead of {found.gap.other}: {found.gap.mean:+.4g} ± {found.gap.std:.3g}", loc="left"
    )
    return ax


@in_our_style
def hindsight_starts(found: Any, ax: Axes | None = None) -> Axes:
    """The gap for each step at which the branches could have parted: mean, and one standard deviation.

    `found`: of `jointmdp.hindsight(…, start="each")`.
    """
    ax = axes_or_own(ax, 4.6, 2.8)
    starts = [each.start for each in found]
    spread = np.sqrt(found.variance)
    ax.axhline(0, color=style.GREY, linewidth=1)
    ax.errorbar(starts, found.mean, yerr=spread, capsize=3, **style.line(1), label="mean ± standard deviation")
    ax.set(xlabel="step of the switch", ylabel="gap to what was seen")
    ax.locator_params(axis="x", integer=True)
    ax.legend(loc="best")
    ax.set_title(f"{found[0].question.words} instead, on the same noise", loc="left")
    return ax


@in_our_style
def hindsight_study(study: Any, ax: Axes | None = None) -> Axes:
    """What an episode gives on average, by each estimate, with its interval over episodes; sampled.

    `study`: of ``jointmdp.hindsight(…).study()``, many logs.
    """
    rows = [each for each in study.estimates if np.isfinite(each.mean) and each.what != "gap"]
    ax = axes_or_own(ax, 5.6, 0.42 * len(rows) + 1.3)
    places = np.arange(len(rows))[::-1]
    means, ends = np.array([each.mean for each in rows]), np.array([tuple(each.interval) for each in rows])
    around = np.nan_to_num(np.abs(ends.T - means))
    ax.errorbar(means, places, xerr=around, **style.points(0))
    ax.set_yticks(places, [each.what for each in rows])
    ax.set(xlabel=f"mean return; {study.confidence:.0%} of resamples of {len(study):,} episodes")
    ax.set_ylim(-0.6, len(rows) - 0.4)
    ax.set_title(f"{study.words} instead of what was done", loc="left")
    return ax


MOST_CURVES = 7
CURVES = {
    "squared": "squared TD error",
    "signed": "signed TD error",
    "double": "squared Bellman residual, by two draws",
}


@in_our_style
def returns(sample: Any, ax: Axes | None = None) -> Axes:
    """P(return ≤ x) of each simulated action. `sample`: of `jointmdp.simulate`."""
    names, values = sample.actions, sample.returns
    if len(names) > MOST_CURVES:
        raise ModelError(f"{len(names)} curves cannot be told apart; draw at most {MOST_CURVES}")
    ax = axes_or_own(ax, 4.6, 3.2)
    levels = np.arange(1, len(values) + 1) / len(values)
    for i, name in enumerate(names):
        kind = {key: value for key, value in style.line(i).items() if key != "marker"}
        ax.step(np.sort(values[:, i]), levels, where="post", label=name, **kind)
    amount = words(getattr(sample, "minimise", False)).amount
    ax.set(xlabel=f"x, the {amount}; {len(values):,} samples", ylabel=f"P({amount} ≤ x)")
    ax.legend(loc="lower right")
    return ax


@in_our_style
def predicted_against_simulated(
    predicted: Iterable[Any], simulated: Iterable[Any], of: str = "variance", ax: Axes | None = None
) -> Axes:
    """Gaps by two methods, a point for each, with the interval of the second; on the line both agree.

    Intervals that reach far beyond the points are cut.

    `predicted`: gaps of any method. `simulated`: the same gaps of another one, which has intervals. `of`:
    ``"mean"``, ``"variance"`` or ``"std"``.
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
    ax.set(xlabel=f"predicted {words} of the gap", ylabel=f"simulated {words}\nwith its interval")
    margin = 0.08 * (span[1] - span[0]) or 1.0
    ax.set_ylim(span[0] - margin, span[1] + margin)
    ax.legend(loc="lower right")
    return ax


@in_our_style
def residuals(solution: Any, ax: Axes | None = None) -> Axes:
    """How the Bellman residual of the paper's iteration falls, beside powers of the discount.

    `solution`: of ``jointmdp.evaluate(model, policy, jointmdp.Iterate())``.
    """
    history = np.asarray(getattr(solution, "history", ()), dtype=float)
    if not len(history):
        raise ModelError("no residuals were kept; evaluate(model, policy, Iterate()) keeps them")
    ax = axes_or_own(ax, 4.6, 3.0)
    steps, discount = np.arange(len(history)), solution.model.discount
    ax.semilogy(history[0] * discount**steps, color=style.GREY, linewidth=1, label="first residual × discountᵏ")
    ax.semilogy(np.where(history > 0, history, math.nan), **{**style.line(1), "marker": ""}, label="Bellman residual")
    ax.set(xlabel="step k", ylabel="Bellman residual")
    ax.legend()
    return ax


@in_our_style
def learning_curve(learned: Any, ax: Axes | None = None) -> Axes:
    """How the error of learning fell with the updates. `learned`: of `jointmdp.learn`."""
    kept = [row for row in learned.log if row.get("error") is not None]
    rows = [row for row in kept if np.isfinite(row["error"]) and row["error"] > 0]
    if not rows:
        raise ModelError("no error was reported: one replica has none, and neither has a run before its first report")
    ax = axes_or_own(ax, 4.2, 2.7)
    ax.loglog([row["updates"] for row in rows], [row["error"] for row in rows], **style.line(1))
    ax.minorticks_off()
    ax.set(xlabel="updates of coordinates, all replicas", ylabel="largest error")
    return ax


@in_our_style
def training_curves(trained: Any, of: str = "double", ax: Axes | None = None) -> Axes:
    """TD errors of every block as networks learn.

    `trained`: what `learn` gives with `jointmdp.Neural`. `of`: ``"double"``, ``"squared"`` or ``"signed"``;
    docs/neural.md says what each shows.
    """
    if of not in CURVES:
        raise ModelError(f"of={of!r}; choose from {', '.join(CURVES)}")
    log: Sequence[Mapping[str, Any]] = trained.log
    blocks = [name.removesuffix(f"_{of}") for name in (log[0] if log else ()) if name.endswith(f"_{of}")]
    if not blocks:
        raise ModelError("nothing was logged: give what learn(…, Neural(…)) returned")
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
    ax.set(xlabel="step", ylabel=CURVES[of])
    ax.legend(ncols=2)
    return ax


MOST_ROWS = 60
MOST_BARS = 20
MOST_STEPS = 60  # bars beside each other
LEAST_BAR = 5e-4  # of the whole: less cannot be seen
MOST_NUMBERS = 12  # actions of a matrix whose numbers are written into it


# -- how actions go together ---------------------------------------------------------------------------------------


@in_our_style
def correlation_matrix(
    matrix: ArrayLike, labels: Sequence[str], ax: Axes | None = None, *, digits: int = 2, title: str = ""
) -> Axes:
    """Correlations ``[A, A]``: orange above 0, violet below, a cross where an action has no variance."""
    values = np.asarray(matrix, dtype=float)
    if values.shape != (len(labels), len(labels)):
        raise ModelError(f"the matrix has the shape {list(values.shape)}, and there are {len(labels)} labels")
    side = 1.1 + 0.42 * len(labels)
    ax = axes_or_own(ax, side + 0.6, side)
    ax.imshow(values, vmin=-1, vmax=1, cmap="PuOr_r")
    if len(labels) <= MOST_NUMBERS:
        for (i, j), value in np.ndenumerate(values):
            color = "0.6" if np.isnan(value) else "white" if abs(value) > 0.7 else "black"
            number = "×" if np.isnan(value) else f"{value:.{digits}f}"
            ax.text(j, i, number, ha="center", va="center", fontsize=style.SMALL, color=color)
    upright = max(map(len, labels)) <= 3
    ax.set_xticks(range(len(labels)), labels, rotation=0 if upright else 90)
    ax.set_yticks(range(len(labels)), labels)
    ax.tick_params(length=0)
    ax.grid(visible=False)
    ax.set_title(title, fontsize=style.FONT_SIZE)
    return ax


def correlations(solution: Any, state: Any, ax: Axes | None = None) -> Axes:
    """How the returns of the actions of a state go together: their correlation matrix.

    `solution`: of `jointmdp.evaluate`. `state`: by name or number.
    """
    model = solution.model
    s = model.state_index(state)
    chosen = np.flatnonzero(model.available[s]).tolist()
    labels = [model.action_label(a) for a in chosen]
    title = f"correlation of returns in {model.state_label(s)}"
    return correlation_matrix(solution.correlation_of([s], chosen)[0], labels, ax, title=title)


def correlation_grid(solution: Any, states: Iterable[Any], columns: int = 4, axes: Any = None) -> Any:
    """The correlation matrices of several states side by side.

    Args:
        solution: of `jointmdp.evaluate`.
        states: by name or number.
        columns: matrices in a row.
        axes: an array of at least as many axes as there are states; those left over are hidden.

    Returns:
        The array of axes, ``[rows, columns]`` if it was made here.
    """
    model, places = solution.model, [solution.model.state_index(state) for state in states]
    if not places:
        raise ModelError("choose at least one state")
    if axes is None:
        side = 0.9 + 0.42 * model.num_actions
        shape = (-(-len(places) // columns), min(columns, len(places)))
        axes = np.reshape(style.figure(shape[1], shape[0], width=side, height=side)[1], shape)
    panels = np.ravel(axes)
    if len(panels) < len(places):
        raise ModelError(f"{len(panels)} axes for {len(places)} states")
    for panel, s in zip(panels, places, strict=False):
        correlations(solution, s, panel).set_title(model.state_label(s))
    for panel in panels[len(places) :]:
        panel.set_axis_off()
    return axes


@in_our_style
def means(solution: Any, ax: Axes | None = None) -> Axes:
    """The mean return of each action in each state, the best of each state marked.

    `solution`: of `jointmdp.evaluate`.
    """
    model, values = solution.model, solution.mean
    states = [model.state_label(s) for s in range(model.num_states)]
    actions = [model.action_label(a) for a in range(model.num_actions)]
    if len(states) > MOST_ROWS:
        raise ModelError(f"{len(states):,} states do not fit in a picture; at most {MOST_ROWS} do")
    ax = axes_or_own(ax, max(3.2, 1.6 + 0.5 * len(actions)), 1.2 + 0.2 * len(states))
    image = ax.imshow(values, aspect="auto", cmap="cividis")
    ax.grid(visible=False)
    least = getattr(solution, "minimise", False)
    best = np.argmax(np.where(np.isnan(values), -np.inf, -values if least else values), axis=1)
    ax.plot(best, range(len(states)), linestyle="none", marker="o", color="white", markeredgecolor="black")
    ax.set_yticks(range(len(states)), states)
    ax.set_xticks(range(len(actions)), actions, rotation=90 if max(map(len, actions)) > 3 else 0)
    ax.set_title(f"mean {words(least).amount}; ○ the best action", loc="left")
    ax.figure.colorbar(image, ax=ax)
    return ax


def _difference(gap: Any) -> str:
    return checks.difference(gap.action, gap.other, getattr(gap, "minimise", False))


# -- one gap ---------------------------------------------------------------------------------------------------------


@in_our_style
def gap_law(gap: Any, ax: Axes | None = None) -> Axes:
    """The distribution of a gap: P(gap ≤ x) lies between two curves, certified or at a confidence.

    `gap`: of `jointmdp.evaluate(…)`, its law, or one that was simulated or compared.
    """
    law = gap.law() if hasattr(gap, "law") else gap
    if not hasattr(law, "band"):
        raise ModelError(f"a {type(gap).__name__} knows no distribution; those of evaluate and simulate do")
    x, low, high = law.band
    known = f"{law.confidence:.4g} band, {len(law.gaps):,} samples" if hasattr(law, "gaps") else "certified"
    mean = gap.mean_interval
    ax = axes_or_own(ax, 4.6, 3.2)
    ax.fill_between(x, low, high, step="post", color=style.PALETTE[5], alpha=0.5, linewidth=0, label=known)
    for curve in (low, high):
        ax.step(x, curve, where="post", color=style.PALETTE[1], linewidth=0.8)
    ax.axvline(0, color=style.GREY, linewidth=1)
    ax.errorbar(
        [mean.estimate],
        [0.5],
        xerr=[[mean.estimate - mean.lower], [mean.upper - mean.estimate]],
        **style.points(2),
        label=f"mean {mean.estimate:.4g}" if mean.width < 1e-3 * abs(mean.estimate) else f"mean {mean:.4g}",
    )
    ax.set_xlabel(
        f"x, the gap {checks.difference(gap.action, gap.other, getattr(gap, 'minimise', False))}"
        if hasattr(gap, "action")
        else "x, the gap"
    )
    ax.set(ylabel="P(gap ≤ x)", ylim=(-0.02, 1.02))
    ax.legend(loc="lower right")
    state = getattr(gap, "state", "")
    ax.set_title(f"distribution of the gap{f' in {state}' if state else ''}", loc="left")
    return ax


@in_our_style
def bound_ladder(gap: Any, at: float = 0.0, ax: Axes | None = None) -> Axes:
    """What more and more moments say of P(gap ≤ `at`), down to the law: an interval for each.

    `gap`: of ``jointmdp.evaluate(…, order=n)``; moments up to n are used. `at`: the threshold.
    """
    if not hasattr(gap, "moment_bounds"):
        raise ModelError(f"a {type(gap).__name__} holds no moments to bound with; gaps of evaluate(…, order=n) do")
    orders = range(2, gap.order + 1, 2)
    rungs = {f"{k} moments": gap.moment_bounds(order=k).cdf(at) for k in orders}
    rungs["certified law"] = gap.law().cdf(at)
    ax = axes_or_own(ax, 4.6, 1.1 + 0.3 * len(rungs))
    for i, (name, found) in enumerate(rungs.items()):
        colour = style.PALETTE[2 if name == "certified law" else 1]
        ax.plot([found.lower, found.upper], [i, i], color=colour, linewidth=6, solid_capstyle="butt", alpha=0.6)
        ax.plot([found.lower, found.upper], [i, i], color=colour, marker="|", markersize=10, linestyle="none")
        ends = f"{found.estimate:.3f}" if found.width < 1e-3 else f"{found.lower:.2f} to {found.upper:.2f}"
        ax.annotate(ends, (1.03, i), va="center", fontsize=style.SMALL, annotation_clip=False)
    ax.set_yticks(range(len(rungs)), list(rungs))
    ax.set(ylim=(len(rungs) - 0.5, -0.5), xlim=(-0.02, 1.25))
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1])
    ax.grid(visible=False, axis="y")
    ax.set_xlabel(
        f"P({checks.difference(gap.action, gap.other, getattr(gap, 'minimise', False))} ≤ {at:g}) in {gap.state}"
    )
    ax.set_title("what is known from …", loc="left")
    return ax


@in_our_style
def variance_over_time(gap: Any, ax: Axes | None = None) -> Axes:
    """How much of the variance of a gap arises at each step, and how much until then.

    `gap`: of `jointmdp.evaluate(…)`, or its ``variance_by_step()``.
    """
    split = gap.variance_by_step() if hasattr(gap, "variance_by_step") else gap
    shares = 100 * np.asarray(split) / (split.total or 1.0)
    seen = np.flatnonzero(np.abs(shares) >= 100 * LEAST_BAR)
    count = min(MOST_STEPS, int(seen[-1]) + 1 if len(seen) else 1)
    ax = axes_or_own(ax, 4.6, 2.9)
    ax.bar(range(count), shares[:count], color=style.PALETTE[1], label="at this step")
    look = style.line(2) | {"marker": "." if count > 20 else style.MARKERS[2]}
    ax.plot(range(count), np.cumsum(shares)[:count], label="until then", **look)
    ax.set_xlabel(
        "step" + (f"; {len(shares) - count:,} more: {shares[count:].sum():.1f} %" if count < len(shares) else "")
    )
    ax.set_ylabel("% of the variance")
    ax.locator_params(axis="x", integer=True)
    ax.set_title(f"{split.gap}: variance {split.total:.4g}", loc="left")
    ax.legend()
    return ax


@in_our_style
def variance_over_states(gap: Any, ax: Axes | None = None) -> Axes:
    """In which states the variance of a gap arises, those with the largest part first.

    `gap`: of `jointmdp.evaluate(…)`, or its ``variance_by_state()``.
    """
    split = gap.variance_by_state() if hasattr(gap, "variance_by_state") else gap
    rows = split.table()
    names, shares = [row[split.by] for row in rows], np.array([row["share"] for row in rows])
    seen = np.flatnonzero(np.abs(shares) >= LEAST_BAR)
    count = min(MOST_BARS, int(seen[-1]) + 1 if len(seen) else 1)
    ax = axes_or_own(ax, 4.6, 1.1 + 0.18 * count)
    ax.barh(range(count), 100 * shares[:count], color=style.PALETTE[1])
    ax.axvline(0, color=style.GREY, linewidth=1)
    ax.set_yticks(range(count), names[:count])
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")
    more = f"; the other {len(names) - count:,}: {shares[count:].sum():.1%}" if len(names) > count else ""
    ax.set_xlabel(f"% of the variance, by {split.by}{more}")
    ax.set_title(f"{split.gap}: where a variance of {split.total:.4g} arises", loc="left")
    return ax


ROW = 0.42  # inches for one alternative


def comparison(found: Comparison) -> Figure:
    """Left: how much more the best alternative gives than each other one. Right: P(best)."""
    with style.context():
        height = 1.5 + ROW * len(found.alternatives)
        fig, (left, right) = style.figure(columns=2, rows=1, width=4.4, height=height)
        best, others = found.best_label, found.others
        gaps = [found.gap(best, other) for other in others]
        places = list(range(len(gaps)))
        alone = [gap.half_width_unpaired for gap in gaps]
        below, above = ([abs(end - gap.mean) for gap, end in zip(gaps, ends, strict=True)] for ends in _gap_ends(gaps))
        for shift, reach, label, i in (
            (-0.14, [below, above], f"{SHARING_WORDS[found.sharing]}, {found.num_replications:,} replications", 1),
            (0.14, [alone, alone], "independent noise, as many replications", 0),
        ):
            left.errorbar(
                [gap.mean for gap in gaps],
                [place + shift for place in places],
                xerr=reach,
                label=label,
                **style.points(i),
            )
        left.axvline(0, color=style.GREY, linewidth=1)
        if found.indifference:
            left.axvspan(-found.indifference, 0, color="#DDDDDD", zorder=0, label="too little to matter")
        left.set_yticks(places, others)
        left.set_ylim(len(gaps) - 0.5, -0.5)
        said = words(found.minimise)
        left.set_title(f"How much {said.more} {best} {said.gives} than …", loc="left")
        left.set_xlabel(f"mean gap; all intervals hold together at {found.confidence:.0%}")
        _best_bars(found, right)
        fig.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return fig


@in_our_style
def review(found: AgentReview, ax: Axes | None = None) -> Axes:
    """By how much the agent's action is better than the best of the others, in every state; below 0 it is worse."""
    gaps = [state.gap for state in found.states]
    ax = axes_or_own(ax, max(4.6, min(0.3 * len(gaps) + 2, 9)), 3.0)
    ends = _gap_ends(gaps)
    looks = {"chosen": (1, "shown better"), "other": (2, "another is shown better"), "": (0, "not shown, or too close")}
    for shown, (i, label) in looks.items():
        places = [k for k, state in enumerate(found.states) if (state.shown if state.shown in looks else "") == shown]
        if places:
            ax.errorbar(
                [found.states[k].step for k in places],
                [gaps[k].mean for k in places],
                yerr=[[abs(each[k] - gaps[k].mean) for k in places] for each in ends],
                label=label,
                **style.points(i),
            )
    ax.axhline(0, color=style.GREY, linewidth=1)
    ax.set(xlabel="state" if found.length is None else "step of the episode", ylabel="better than the best other")
    ax.set_title(f"The agent's action; all intervals hold together at {found.confidence:.0%}", loc="left")
    ax.legend()
    return ax


def _gap_ends(gaps: list[PairedGap]) -> tuple[list[float], list[float]]:
    """Both ends; the mean where an end is not known, as a picture has no room for infinity."""
    pairs = [gap.mean_interval if math.isfinite(gap.half_width) else (gap.mean, gap.mean) for gap in gaps]
    return [lower for lower, _ in pairs], [upper for _, upper in pairs]


def _best_bars(found: Comparison, ax: Axes) -> None:
    for i, each in enumerate(found.alternatives):
        colour = style.PALETTE[1] if each.label == found.best_label else style.GREY
        ax.barh(i, each.best, color=colour, height=0.55, alpha=0.85)
        ends = [[max(0.0, each.best - each.best_interval.lower)], [max(0.0, each.best_interval.upper - each.best)]]
        ax.errorbar([each.best], [i], xerr=ends, color="black", capsize=3, linewidth=1)
        ax.text(min(each.best_interval.upper, 1.0) + 0.02, i, f"{each.best:.3f}", va="center", fontsize=style.SMALL)
    ax.set_yticks(range(len(found.alternatives)), list(found.labels))
    ax.set(ylim=(len(found.alternatives) - 0.5, -0.5), xlim=(0, 1.2))
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1])
    said, common = words(found.minimise), min(each.num_replications for each in found.alternatives)
    ax.set_title(f"How often each has the {said.highest} {said.amount}", loc="left")
    ax.set_xlabel(f"P(best), from {common:,} replications; equal firsts share")
