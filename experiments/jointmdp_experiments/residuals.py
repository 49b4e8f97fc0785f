"""How fast the paper's iteration converges: ‖M_k − T₂M_k‖_λ over k, against the line γᵏ."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

import jointmdp as jm
from jointmdp.ground.arrays import Floats
from jointmdp.ground.checks import SHARING_WORDS, SHARINGS, Sharing
from jointmdp.show.plots import style
from jointmdp_experiments.result import FigureResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEPS = 250
TOLERANCE = 1e-8
GRID, CHAIN = "5×5 windy gridworld", "25-state coupled-reward chain"


def models() -> dict[str, tuple[jm.JointMDP, Floats]]:
    """The two models of the paper's figure, in our settings."""
    return {GRID: jm.envs.windy_gridworld(5), CHAIN: jm.envs.coupled_reward_chain(25)}


def run() -> FigureResult:
    """250 steps from zero on both models and all kinds of sharing."""
    method = jm.Iterate(tolerance=None, max_steps=STEPS)
    histories = {
        (name, sharing): jm.evaluate(model.with_sharing(sharing), policy, method).history
        for name, (model, policy) in models().items()
        for sharing in SHARINGS
    }
    rows = [
        {"model": name, "sharing": sharing, "step": step, "residual": float(value)}
        for (name, sharing), history in histories.items()
        for step, value in enumerate(history)
    ]
    title = "Residual of the paper's iteration"
    return FigureResult("residuals", title, _words(histories), rows, lambda: _draw(histories))


def _words(histories: dict[tuple[str, Sharing], Floats]) -> str:
    grid, chain = histories[GRID, "state"], histories[CHAIN, "state"]
    errors = " and ".join(
        f"{jm.evaluate(*given).certificate.covariance_error:.0e} ({name})" for name, given in models().items()
    )
    rate = (grid[STEPS] / grid[STEPS // 2]) ** (1 / (STEPS - STEPS // 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jm.errors.ConvergenceWarning)  # the sentence says what the warning would
        last = jm.evaluate(*models()[GRID], jm.Iterate(tolerance=TOLERANCE))
    run_on = f"Run on, its second moments are certified to {TOLERANCE:.0e} after {last.steps:,} steps."
    if not last.status.is_success:
        run_on = (
            f"Run on, it stands still before step {last.steps:,} with second moments certified to "
            f"{last.certificate.second_moment_error:.1e}, not to the {TOLERANCE:.0e} asked for: raw moments reach "
            f"{np.max(last.second_moment):,.0f} here, and float64 rounds them."
        )
    return (
        f"On the gridworld the residual falls by a factor of {rate:.4f} a step, the discount itself: the goal pays 1 "
        f"for ever, and the sum of that series is what the iteration waits for. After {STEPS} steps it stands at "
        f"{grid[STEPS]:.1e}. {run_on} On the chain every return is over after 24 steps, and the residual is exactly "
        f"{chain[30]:.0f} from then on.\n\n"
        "The kind of sharing changes the covariances, not the rate: the curves of the three kinds of sharing lie on or "
        "near each other, because the mean's residual leads.\n\n"
        "The default method does not iterate the mean at all. It solves for it, and certifies covariances to "
        f"{errors}."
    )


def _draw(histories: dict[tuple[str, Sharing], Floats]) -> Figure:
    fig, axes = style.figure(columns=2, rows=1, width=4.6, height=3.2)
    for ax, (name, (model, _)) in zip(axes, models().items(), strict=True):
        start = histories[name, "state"][0]
        line = start * model.discount ** np.arange(STEPS + 1)
        ax.semilogy(line, color=style.GREY, linewidth=1, label="first residual × discountᵏ")
        for i, sharing in enumerate(SHARINGS):
            history = histories[name, sharing]
            shown = np.where(history > 0, history, np.nan)
            # The curves may coincide: the first is drawn widest, so that all of them show.
            look = style.line(i) | {"marker": "", "linewidth": 4 - 1.2 * i}
            ax.semilogy(shown, label=SHARING_WORDS[sharing], **look)
        ax.set(title=name, xlabel="step k", ylabel="Bellman residual")
        if history[-1] == 0:
            last = int(np.flatnonzero(history)[-1])
            ax.annotate(
                f"exactly zero from step {last + 1} on",
                xy=(last, history[last]),
                xytext=(last + 30, history[last] * 0.95),
                arrowprops={"arrowstyle": "->", "color": style.GREY},
            )
    axes[0].legend(loc="lower left")
    return fig
