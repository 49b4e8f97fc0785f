"""How fast moments are learned from samples: the error over the number of sweeps, against the line n^(−1/2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import jointmdp as jm
from jointmdp.ground.arrays import Floats
from jointmdp.ground.checks import SHARING_WORDS, SHARINGS, Sharing
from jointmdp.show.plots import style
from jointmdp_experiments.result import FigureResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEPS = 30_000
REPLICAS = 8
GRID, CHAIN = "3×3 windy gridworld, order 2", "25-state coupled-reward chain, order 2"
HIGHER = "5-state chain, by order"


class Curve(NamedTuple):
    """The error of one kind of moment over the sweeps."""

    panel: str
    label: str
    sharing: Sharing
    order: int
    steps: list[int]
    errors: list[float]
    """Root mean square error of the moments of this order in one state, over that of the returns to the same power."""
    claimed: list[float]
    """The same of the errors that the answer itself gives."""


def run(steps: int = STEPS) -> FigureResult:
    """Sweeps on the paper's two models under all kinds of sharing, and moments up to order 4 on a short chain."""
    curves = []
    for panel, (model, policy) in {GRID: jm.envs.windy_gridworld(3), CHAIN: jm.envs.coupled_reward_chain(25)}.items():
        for sharing in SHARINGS:
            curves += _learned(panel, model.with_sharing(sharing), policy, {2: SHARING_WORDS[sharing]}, steps)
    curves += _learned(HIGHER, *jm.envs.coupled_reward_chain(5), {k: f"order {k}" for k in (2, 3, 4)}, steps)
    rows = [
        {"panel": c.panel, "sharing": c.sharing, "order": c.order, "step": n, "error": error, "claimed": claimed}
        for c in curves
        for n, error, claimed in zip(c.steps, c.errors, c.claimed, strict=True)
    ]
    return FigureResult("incremental", "Learning from samples", _words(curves), rows, lambda: _draw(curves))


def _learned(panel: str, model: jm.JointMDP, policy: Floats, labels: dict[int, str], steps: int) -> list[Curve]:
    """A curve for each order that has a label."""
    order = max(labels)
    solution = jm.evaluate(model, policy, order=order)
    learner = jm.Incremental(order=order, replicas=REPLICAS, seed=1).learner(model, policy)
    scale = float(np.sqrt(np.nanmean(np.diagonal(solution.second_moment, axis1=1, axis2=2))))
    curves = [Curve(panel, label, model.sharing, k, [], [], []) for k, label in labels.items()]
    state = learner.init()
    for n in np.unique(np.geomspace(30, steps, 25).astype(int)).tolist():
        state = learner.advance(state, n - int(state.step))
        answer = learner.answer(state)
        assert isinstance(answer, jm.results.Learned)
        for curve in curves:
            powers = [(i, curve.order - i) for i in range(1, curve.order)]
            off = [answer.moment(i, j) - solution.moment(i, j) for i, j in powers]
            curve.steps.append(n)
            curve.errors.append(_size(off) / scale**curve.order)
            curve.claimed.append(_size([answer.moment_error(i, j) for i, j in powers]) / scale**curve.order)
    return curves


def _size(parts: list[Floats]) -> float:
    return float(np.sqrt(np.nanmean(np.stack(parts) ** 2)))


def _slope(curve: Curve) -> float:
    """The exponent over the last power of ten of sweeps."""
    n, error = np.log(curve.steps), np.log(curve.errors)
    last = n >= n[-1] - np.log(10.0)
    return float(np.polyfit(n[last], error[last], 1)[0])


def _words(curves: list[Curve]) -> str:
    slopes = [_slope(curve) for curve in curves]
    grid, chain = (next(c for c in curves if c.panel == panel) for panel in (GRID, CHAIN))
    claims = [c.claimed[-1] / c.errors[-1] for c in curves if c.order == 2]
    return (
        "Incremental JIPE in sweeps: every step draws one outcome for each coordinate and updates all pairs from it; "
        f"{REPLICAS} replicas are averaged, γ = 0.99. For the first thousand sweeps, ten times 1/(1 − γ), step sizes "
        "stay near 1 and the start from zero is forgotten; then averaging begins (at order 4 after two thousand). What "
        "is left is noise, and it falls like n^(−1/2), as averaged iterates should: over the last power of ten the "
        f"exponents of single runs scatter from {min(slopes):.2f} to {max(slopes):.2f}; over 256 runs the tests find "
        f"−1/2. After {grid.steps[-1]:,} sweeps the second moments of the gridworld are off by {grid.errors[-1]:.0e} "
        f"of the mean square of the returns, those of the chain by {chain.errors[-1]:.0e}.\n\n"
        "Dotted: the error that the answer claims for itself, half a 95 % interval over the replicas plus a bound on "
        f"what can be left of the start. At the end, order 2, it is {min(claims):.1f} to {max(claims):.1f} times the "
        "true one. Early on the bound on the start leads. It must hold for models whose returns are as large as "
        "rewards and discount allow, as on the gridworld, where it is tight; the returns of the chains are far smaller."
    )


def _draw(curves: list[Curve]) -> Figure:
    fig, axes = style.figure(columns=3, rows=1, width=3.7, height=3.2)
    for ax, panel in zip(axes, (GRID, CHAIN, HIGHER), strict=True):
        shown = [curve for curve in curves if curve.panel == panel]
        for i, curve in enumerate(shown):
            look: dict[str, Any] = {"color": style.PALETTE[i]}
            ax.loglog(curve.steps, curve.errors, label=curve.label, linestyle=style.LINES[i % 3], **look)
            ax.loglog(curve.steps, curve.claimed, linestyle=":", linewidth=1, **look)
        last = shown[0]
        n = np.array([last.steps[-1] / 30, last.steps[-1]])
        ax.loglog(n, 0.4 * last.errors[-1] * (n / n[-1]) ** -0.5, color=style.GREY, linewidth=2, label="slope −1/2")
        ax.plot([], [], linestyle=":", linewidth=1, color=style.PALETTE[0], label="error as stated")
        ax.set(title=panel, xlabel="sweeps n")
        if panel == GRID:
            ax.set_ylim(bottom=ax.get_ylim()[0] / 300)  # room for the legend
        if panel != CHAIN:  # its lines are those of the gridworld beside it
            ax.legend(loc="lower left" if panel == GRID else "upper right", fontsize="small")
    axes[0].set_ylabel("error / (root mean square return)ᵏ")
    return fig
