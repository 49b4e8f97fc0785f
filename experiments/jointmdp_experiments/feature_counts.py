"""How good projected variances are over the number of features: weightings, parts, constraints, exact references."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import jointmdp as jm
from jointmdp.exact.bellman.feature_moments import PARTS, PairPart
from jointmdp.ground.arrays import Floats
from jointmdp.ground.checks import SHARING_WORDS, Sharing
from jointmdp.learning.projected.projecting import Constraint
from jointmdp.show.plots import style
from jointmdp_experiments.result import FigureResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DISCOUNT = 0.95
EXPLORATION = 0.1
STARTS = 4  # cells of the left column to begin again in
TOLERANCE = 1e-6  # of the fixed point: far less than can be seen
MOST_STEPS = 3
DEGREES = (0, 1, 2, 3)
ONE_MATRIX: tuple[PairPart, ...] = ("all",)
CURVES: dict[tuple[str, tuple[PairPart, ...]], str] = {
    ("restart", PARTS): "restart weighting, matrices in three parts",
    ("restart", ONE_MATRIX): "restart weighting, one matrix for all pairs",
    ("stationary", ONE_MATRIX): "stationary weighting (the paper's)",
}
CONSTRAINTS: dict[Constraint | None, str] = {
    "covariance": "covariances kept valid",
    "second_moment": "second moments kept valid (the paper's)",
    None: "no constraint",
}
INDEPENDENT, ZERO = "independent returns, exact variances", "no variance at all"
REFERENCES = {INDEPENDENT: style.LINES[3], ZERO: style.LINES[1]}


class VarianceErrors(NamedTuple):
    """Root mean square errors over all states, relative to the root mean square of what is estimated."""

    gap_variance: float
    """Over all pairs of actions."""
    variance: float
    """Over all actions."""
    mean: float


class ProjectionSetting(NamedTuple):
    """A gridworld and how it is projected."""

    size: int
    sharing: Sharing
    weighting: str
    constraint: Constraint | None
    parts: tuple[PairPart, ...]
    degree: int


class ProjectedPoint(NamedTuple):
    """One projection and how far it is from the exact solution."""

    setting: ProjectionSetting
    features: int
    errors: VarianceErrors
    independent: float
    """The error of gap variances when returns are taken to be independent and each variance is exact."""


def ergodic_gridworld(size: int, sharing: Sharing = "state") -> tuple[jm.JointMDP, Floats]:
    """The windy gridworld without an end: a step from the goal leads to one of four cells of the left column.

    These are evenly spaced, from corner to corner, and equally likely. The policy is that of `windy_gridworld`, right
    and then up, but takes any action at random in one step of ten. So every cell is visited again and again, and a
    stationary law exists.
    """
    ending, policy = jm.envs.windy_gridworld(size, DISCOUNT)
    # A scenario is a gust or none, and the row to begin in: the same everywhere, as sharing at the same time needs it.
    rows = np.unique(np.linspace(0, size - 1, STARTS).round().astype(int))
    chances, rewards, successors = (
        np.repeat(table, len(rows), axis=1) for table in (ending.probabilities, ending.rewards, ending.successors)
    )
    successors[-1] = size * np.tile(rows, 2)[:, None]
    names: dict[str, Any] = {"state_names": ending.state_names, "action_names": ending.action_names}
    model = jm.JointMDP(chances / len(rows), rewards, successors, DISCOUNT, sharing, **names)
    return model, (1 - EXPLORATION) * policy + EXPLORATION / model.num_actions


def gap_variances(solution: jm.results.Solution) -> Floats:
    """Of all pairs of distinct actions in every state, ``[S, n]``."""
    covariance = solution.covariance
    own = np.einsum("saa->sa", covariance)
    one, other = np.triu_indices(covariance.shape[1], 1)
    return own[:, one] + own[:, other] - 2 * covariance[:, one, other]


def measured(solution: jm.results.Solution, exact: jm.results.Solution) -> VarianceErrors:
    """How far a solution is from the exact one."""
    return VarianceErrors(
        relative_error(gap_variances(solution), gap_variances(exact)),
        relative_error(solution.variance, exact.variance),
        relative_error(solution.mean, exact.mean),
    )


def relative_error(found: Floats, truth: Floats) -> float:
    """Root mean square of the difference, over that of the truth."""
    return float(np.sqrt(np.mean((found - truth) ** 2) / np.mean(truth**2)))


def points(settings: Sequence[ProjectionSetting]) -> list[ProjectedPoint]:
    """Every setting projected, and compared with the exact solution of its model."""
    kinds = dict.fromkeys((each.size, each.sharing) for each in settings)
    solved = {kind: jm.evaluate(*ergodic_gridworld(*kind)) for kind in kinds}
    found = []
    for each in settings:
        truth = solved[each.size, each.sharing]
        method = jm.Projected(
            jm.features.polynomial(each.degree), each.weighting, each.constraint, parts=each.parts,
            tolerance=TOLERANCE, max_steps=MOST_STEPS,
        )  # fmt: skip
        with warnings.catch_warnings():
            # Stopped early, it is still one of the points of the curve.
            warnings.simplefilter("ignore", jm.errors.ConvergenceWarning)
            solution = jm.evaluate(truth.model, truth.policy, method)
        own = truth.variance
        one, other = np.triu_indices(own.shape[1], 1)
        independent = relative_error(own[:, one] + own[:, other], gap_variances(truth))
        features = (each.degree + 1) * (each.degree + 2) // 2 * own.shape[1]
        found.append(ProjectedPoint(each, features, measured(solution, truth), independent))
    return found


def run_weightings(sizes: Sequence[int] = (10, 20), degrees: Sequence[int] = DEGREES) -> FigureResult:
    """The collapse of μ₂: gap variances and variances, restart and stationary weighting side by side."""
    found = points(
        [
            ProjectionSetting(size, sharing, weighting, "covariance", parts, degree)
            for size in sizes
            for sharing in ("state", "time")
            for weighting, parts in CURVES
            for degree in degrees
        ]
    )
    title = "Which pairs a projection must see"
    return FigureResult("weightings", title, _weighting_words(found), _rows(found), lambda: _draw_weightings(found))


def run_constraints(size: int = 10, degrees: Sequence[int] = DEGREES) -> FigureResult:
    """Second moments or covariances: the same features under three constraints."""
    found = points(
        [
            ProjectionSetting(size, sharing, "restart", constraint, PARTS, degree)
            for sharing in ("state", "time")
            for constraint in CONSTRAINTS
            for degree in degrees
        ]
    )
    title = "Second moments or covariances"
    return FigureResult("constraints", title, _constraint_words(found), _rows(found), lambda: _draw_constraints(found))


def _rows(found: list[ProjectedPoint]) -> list[dict[str, Any]]:
    return [
        {
            "grid": f"{p.setting.size}×{p.setting.size}",
            "sharing": p.setting.sharing,
            "weighting": p.setting.weighting,
            "constraint": p.setting.constraint or "none",
            "parts": len(p.setting.parts),
            "degree": p.setting.degree,
            "features": p.features,
            "gap_variance_error": p.errors.gap_variance,
            "variance_error": p.errors.variance,
            "mean_error": p.errors.mean,
            "independent_error": p.independent,
        }
        for p in found
    ]


def _best(found: list[ProjectedPoint], **wanted: Any) -> ProjectedPoint:
    """Of the points with these settings the one with the most features."""
    chosen = [p for p in found if all(getattr(p.setting, name) == value for name, value in wanted.items())]
    return max(chosen, key=lambda p: p.features)


def _weighting_words(found: list[ProjectedPoint]) -> str:
    def line(size: int, sharing: Sharing) -> str:
        restart, one_matrix, stationary = (
            _best(found, size=size, sharing=sharing, weighting=name, parts=parts) for name, parts in CURVES
        )
        return (
            f"- {size}×{size}, {SHARING_WORDS[sharing]}, {restart.features} features: gap variances are off by "
            f"{restart.errors.gap_variance:.2f} with the restart weighting ({one_matrix.errors.gap_variance:.2f} with "
            f"one matrix for all pairs), {stationary.errors.gap_variance:.2f} with the stationary one and "
            f"{restart.independent:.2f} if returns are taken to be independent; variances by "
            f"{restart.errors.variance:.2f}, {one_matrix.errors.variance:.2f} and {stationary.errors.variance:.2f}."
        )

    kinds = dict.fromkeys((p.setting.size, p.setting.sharing) for p in found)
    return (
        "A windy gridworld that never ends: a step from the goal leads to one of four cells of the left column, and "
        f"the policy takes any action at random in one step of ten; γ = {DISCOUNT}. Features are polynomials of the "
        "place, up to a degree, for each action. Errors are root mean squares over all states and all pairs of "
        "actions, over the root mean square of the exact values.\n\n"
        "Two branches that meet with the same action are one for ever. So the paper's stationary weighting of pairs, "
        "μ₂, sees nothing but pairs of a coordinate with itself. Variances of single returns are what it fits, and it "
        "fits them well. What two actions have in common it never sees, and more features do not help: gap variances "
        "come out as the features happen to continue them: with enough features about as if returns were independent. "
        "The restart weighting sees these pairs.\n\n"
        "To see them is not enough. One matrix for all pairs is a smooth function: it cannot say that neighbouring "
        "cells are almost independent and each varies much by itself. So it fits neither well, and loses to the "
        "assumption of independent returns. A part of its own for two actions of the same cell, and one for a "
        "coordinate with itself, can say so.\n\n" + "\n".join(line(*kind) for kind in kinds)
    )


def _constraint_words(found: list[ProjectedPoint]) -> str:
    def line(sharing: Sharing) -> str:
        best = [_best(found, sharing=sharing, constraint=name) for name in CONSTRAINTS]
        values = ", ".join(
            f"{p.errors.gap_variance:.3f} ({word})" for p, word in zip(best, CONSTRAINTS.values(), strict=True)
        )
        return f"- {SHARING_WORDS[sharing]}, {best[0].features} features: {values}."

    kinds = dict.fromkeys(p.setting.sharing for p in found)
    return (
        "The same gridworld and the restart weighting. Errors of gap variances over the number of features: with "
        "covariances kept positive semidefinite (the default), with second moments kept so (the paper's), and with "
        "nothing kept. Only the first gives a valid covariance for certain: the others may give negative variances.\n\n"
        + "\n".join(line(kind) for kind in kinds)
    )


def _curve(
    ax: Any, chosen: list[ProjectedPoint], value: Callable[[VarianceErrors], float], number: int, label: str
) -> None:
    ax.plot([p.features for p in chosen], [value(p.errors) for p in chosen], label=label, **style.line(number))


def _draw_weightings(found: list[ProjectedPoint]) -> Figure:
    sizes = sorted({p.setting.size for p in found})
    fig, axes = style.figure(columns=3, rows=len(sizes), width=3.4, height=3.4)
    for row, size in zip(np.atleast_2d(axes), sizes, strict=True):
        here = [p for p in found if p.setting.size == size]
        panels: list[tuple[str, Sharing, Callable[[VarianceErrors], float]]] = [
            ("gap variances", "state", lambda e: e.gap_variance),
            ("gap variances", "time", lambda e: e.gap_variance),
            ("variances\nof single returns", "state", lambda e: e.variance),
        ]
        for ax, (what, sharing, value) in zip(row, panels, strict=True):
            shown = [p for p in here if p.setting.sharing == sharing]
            for number, (kind, words) in enumerate(CURVES.items(), 1):
                chosen = [p for p in shown if (p.setting.weighting, p.setting.parts) == kind]
                _curve(ax, chosen, value, number, words)
            if what == "gap variances":
                _reference(ax, shown[0].independent, INDEPENDENT)
            _reference(ax, 1.0, ZERO)
            note = "" if what != "gap variances" else f",\n{SHARING_WORDS[sharing]}"
            ax.set(title=f"{size}×{size} grid: {what}{note}", xlabel="number of features K", yscale="log")
            _plain_ticks(ax, shown)
        row[0].set_ylabel("relative error\n(root mean square)")
    fig.legend(*np.atleast_2d(axes)[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return fig


def _draw_constraints(found: list[ProjectedPoint]) -> Figure:
    kinds = list(dict.fromkeys(p.setting.sharing for p in found))
    fig, axes = style.figure(columns=len(kinds), rows=1, width=3.8, height=3.4)
    for ax, sharing in zip(np.atleast_1d(axes), kinds, strict=True):
        shown = [p for p in found if p.setting.sharing == sharing]
        for number, (name, words) in enumerate(CONSTRAINTS.items(), 1):
            _curve(ax, [p for p in shown if p.setting.constraint == name], lambda e: e.gap_variance, number, words)
        _reference(ax, shown[0].independent, INDEPENDENT)
        _reference(ax, 1.0, ZERO)
        size = shown[0].setting.size
        ax.set(title=f"{size}×{size} grid, {SHARING_WORDS[sharing]}", xlabel="number of features K", yscale="log")
        _plain_ticks(ax, shown)
    first = np.atleast_1d(axes)[0]
    first.set_ylabel("relative error of gap variances\n(root mean square)")
    fig.legend(*first.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return fig


def _reference(ax: Any, height: float, words: str) -> None:
    ax.axhline(height, color=style.GREY, linewidth=1.2, linestyle=REFERENCES[words], label=words)


def _plain_ticks(ax: Any, shown: list[ProjectedPoint]) -> None:
    """Numbers such as 0.5 on the logarithmic axis, not powers of ten, and the numbers of features that were tried."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    counts = sorted({p.features for p in shown})
    ax.set_xticks(counts, [str(count) for count in counts])
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
