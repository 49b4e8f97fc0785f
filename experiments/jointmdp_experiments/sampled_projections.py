"""Projections from samples: do they come to the fixed point at the promised rate, and are their gaps calibrated?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import jointmdp as jm
from jointmdp.ground.arrays import Floats
from jointmdp.learning.projected.feature_learner import FeatureState, Sums
from jointmdp.show.plots import style
from jointmdp_experiments.cartpole_scenarios import ScenarioReturns
from jointmdp_experiments.result import FigureResult, draw_agreement

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEPS = (25, 50, 100, 200, 400, 800)
LARGEST_STOCK = 12.0
ORDERS = (0.0, 3.0, 6.0)
GUSTS = (0.3, 1.0)  # how often they come, and their size
RESAMPLED = 2000  # bootstrap samples of an R²
QUESTIONS = 50  # states that are asked about
ASKED = 10_000  # the first seed of a state: features were chosen by looking at others


def run_convergence(
    model: jm.JointMDP, policy: Floats, features: jm.features.Features, steps: Sequence[int] = STEPS, replicas: int = 16
) -> FigureResult:
    """The distance of single replicas from the fixed point of the tables, over the number of visited pairs."""
    method = jm.Projected(features, replicas=replicas, batch=8, seed=1)
    exact, learner = jm.evaluate(model, policy, method), method.learner(model, policy)
    state, rows = learner.init(), []
    open_states = np.flatnonzero(np.abs(exact.mean).max(axis=1) > 0)
    gaps = exact.covariance[open_states]
    scale = float(np.sqrt(np.mean(np.einsum("saa->sa", gaps))))
    for count in steps:
        state = learner.advance(state, count - int(state.step))
        whole = learner.answer(state)
        answers = [replace(whole, replicas=1, _sums=_alone(state, r)) for r in range(replicas)]
        means = np.array([exact.features @ each.theta for each in answers])  # type: ignore[attr-defined]
        phi = exact.features[open_states]  # type: ignore[attr-defined]
        covariances = np.array([each.covariances.in_state(phi) for each in answers])
        rows.append(
            {
                "pairs": whole.updates // replicas,
                "mean_error": float(np.sqrt(np.mean((means[:, open_states] - exact.mean[open_states]) ** 2))),
                "covariance_error": float(np.sqrt(np.mean((covariances - gaps) ** 2))) / scale,
            }
        )
    sizes = np.log([row["pairs"] for row in rows])
    half = len(rows) // 2
    slopes = {
        name: float(np.polyfit(sizes[half:], np.log([row[name] for row in rows[half:]]), 1)[0])
        for name in ("mean_error", "covariance_error")
    }
    text = (
        "Each point is the root mean square distance of one run's estimate from the fixed point of the tables, over "
        f"{replicas} runs and all states. Theory: the error falls like the root of the number of visited pairs, a "
        f"slope of −0.5. Seen over the later half: {slopes['mean_error']:.2f} for means and "
        f"{slopes['covariance_error']:.2f} for covariances (in standard deviations of returns)."
    )
    return FigureResult(
        "sample_convergence", "Samples come to the projected fixed point", text, rows, lambda: _draw_rate(rows)
    )


def _alone(state: FeatureState, r: int) -> Sums:
    """The sums of one replica."""
    return Sums(*(np.asarray(part)[r : r + 1] for part in state.sums))


@dataclass(frozen=True)
class CalibrationCase:
    """A simulator with a policy, features, and the two actions that are compared."""

    name: str
    title: str
    simulator: jm.Simulator
    policy: Any
    method: jm.Projected
    action: Any
    other: Any
    walk: int
    """Longest walk from the start to a state that is asked about."""
    steps: int
    """Of learning."""


def _sell(stock: float, order: float, demand: float) -> tuple[float, float]:
    level = min(stock + order, LARGEST_STOCK)
    sold = min(level, demand)
    return 4.0 * sold - order - 0.3 * (level - sold), level - sold


def _order_by_stock(stock: float) -> Floats:
    """Orders of 0, 3 or 6, likely enough to come near a stock of 8."""
    chances = np.exp(-((stock + np.array(ORDERS) - 8.0) ** 2) / 4.0)
    return chances / chances.sum()


def _shelf_features(stock: float, action: int) -> list[float]:
    """Cosines of the stock after the order, on which the future depends, and the order, which is paid."""
    order = ORDERS[action]
    level = min(stock + order, LARGEST_STOCK) / LARGEST_STOCK
    return [*(math.cos(math.pi * k * level) for k in range(7)), order]


def real_inventory() -> CalibrationCase:
    """An inventory with real stock and gamma demand: no state comes twice."""
    simulator = jm.FunctionSimulator(
        _sell,
        lambda rng: rng.gamma(4.0, 1.0),
        start=lambda rng: rng.uniform(0.0, LARGEST_STOCK),
        actions={f"order {order:g}": order for order in ORDERS},
        discount=0.9,
        reward_bounds=(-10.0, 48.0),
        name="inventory with real stock",
    )
    return CalibrationCase(
        "calibration_inventory",
        "Inventory with real stock",
        simulator,
        _order_by_stock,
        jm.Projected(_shelf_features),
        "order 3",
        "order 6",
        10,
        1000,
    )


def windy_cartpole() -> CalibrationCase:
    """CartPole in strong gusts, discounted so that the future within reach matters."""
    discount = 0.9
    simulator, policy = jm.envs.gusty_cartpole(*GUSTS, max_steps=500, discount=discount)
    # Gusts move all states alike, so that covariances are smooth in what the scenarios say: no parts are needed.
    method = jm.Projected(ScenarioReturns(*GUSTS, discount), parts=["all"])
    return CalibrationCase(
        "calibration_cartpole", "CartPole in gusts", simulator, policy, method, "left", "right", 40, 400
    )


def run_calibration(
    case: CalibrationCase, steps: int | None = None, questions: int = QUESTIONS, num_samples: int = 400
) -> FigureResult:
    """Gaps predicted from features beside those of pair Monte Carlo, at states along the policy's way."""
    answer = jm.learn(
        case.simulator,
        case.policy,
        replace(case.method, batch=16, seed=1),
        steps=steps or case.steps,
        executor="processes",
    )
    rows: list[dict[str, Any]] = []
    for seed in range(ASKED, ASKED + 50 * questions):
        if len(rows) == questions:
            break
        state = case.simulator.walk(case.policy, seed % (case.walk + 1), seed=seed)
        if case.simulator.is_over(state):
            continue
        try:
            gap = answer.gap(state, case.action, case.other)
        except jm.NotKnownError:  # beyond what the samples reached
            continue
        sample = jm.simulate(
            case.simulator,
            case.policy,
            state,
            [case.action, case.other],
            num_samples=num_samples,
            seed=seed,
            gaps_only=True,
        ).gap(case.action, case.other)
        rows.append(
            {
                "state": np.array2string(np.asarray(case.simulator.observe(state)), precision=4),
                "predicted_mean": gap.mean,
                "predicted_mean_error": gap.mean_error,
                "simulated_mean": sample.mean,
                "simulated_mean_lower": sample.mean_interval.lower,
                "simulated_mean_upper": sample.mean_interval.upper,
                "predicted_std": gap.std,
                "simulated_std": math.sqrt(sample.variance),
                "simulated_std_lower": math.sqrt(sample.variance_interval.lower),
                "simulated_std_upper": math.sqrt(sample.variance_interval.upper),
            }
        )
    statements = [_statement(rows, name) for name in ("mean", "std")]
    text = (
        f"{len(rows)} states along the policy's way, {answer.updates:,} visited pairs, {len(answer.rows.names)} "
        f"features; {num_samples} simulated pairs a state. " + " ".join(statements)
    )
    title = f"{case.title}: gaps predicted from features, and simulated"
    return FigureResult(case.name, title, text, rows, lambda: _draw_calibration(rows, case.title))


def _statement(rows: list[dict[str, Any]], name: str) -> str:
    predicted, simulated = (np.array([row[f"{kind}_{name}"] for row in rows]) for kind in ("predicted", "simulated"))
    rng = np.random.default_rng(0)
    picks = rng.integers(0, len(rows), size=(RESAMPLED, len(rows)))
    spread = [r_squared(predicted[each], simulated[each]) for each in picks]
    low, high = np.quantile(spread, [0.025, 0.975])
    off = float(np.sqrt(np.mean((predicted - simulated) ** 2)))
    constant = float(np.std(simulated))
    word = "Means" if name == "mean" else "Standard deviations"
    return (
        f"{word}: R² = {r_squared(predicted, simulated):.2f} (95 % over states [{low:.2f}, {high:.2f}]), root mean "
        f"square error {off:.3g}; the best constant misses by {constant:.3g}."
    )


def r_squared(predicted: Floats, simulated: Floats) -> float:
    """How much of the spread of the simulated numbers is predicted; the best constant has 0."""
    total = float(np.sum((simulated - simulated.mean()) ** 2))
    return 1 - float(np.sum((predicted - simulated) ** 2)) / total if total > 0 else math.nan


def _draw_rate(rows: list[dict[str, Any]]) -> Figure:
    from matplotlib.ticker import NullLocator, StrMethodFormatter

    figure, axes = style.figure(width=6, height=4)
    pairs = np.array([row["pairs"] for row in rows], dtype=np.float64)
    for name, words in (("mean_error", "means"), ("covariance_error", "covariances, in standard deviations")):
        axes.loglog(pairs, [row[name] for row in rows], "o-", label=words)
    start = rows[0]["mean_error"]
    axes.loglog(pairs, start * np.sqrt(pairs[0] / pairs), "--", color="grey", label="root of the number of pairs")
    axes.set_xticks(pairs, [f"{count:,.0f}" for count in pairs])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(StrMethodFormatter("{x:g}"))
    axes.set_xlabel("pairs visited by a run")
    axes.set_ylabel("distance from the fixed point")
    axes.legend()
    return figure


def _draw_calibration(rows: list[dict[str, Any]], title: str) -> Figure:
    figure, both = style.figure(2, width=4.5, height=4)
    for axes, name, words in zip(both, ("mean", "std"), ("mean", "standard deviation"), strict=True):
        x, y = (np.array([row[f"{kind}_{name}"] for row in rows]) for kind in ("predicted", "simulated"))
        ends = np.array([[row[f"simulated_{name}_{end}"] for row in rows] for end in ("lower", "upper")])
        draw_agreement(axes, x, y, np.maximum(np.abs(ends - y), 0.0), words)
        axes.legend()
    figure.suptitle(title)
    return figure


CASES: tuple[Callable[[], CalibrationCase], ...] = (real_inventory, windy_cartpole)
