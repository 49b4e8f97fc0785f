"""The figures about linear features: numbers agree with direct calls, and every file is written."""

import csv
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from click.testing import CliRunner
from jointmdp_experiments import feature_counts, projected_figures
from jointmdp_experiments.cartpole_scenarios import ScenarioReturns
from jointmdp_experiments.feature_counts import ProjectionSetting, ergodic_gridworld
from zoo import STATE_AND_SLOW

import jointmdp as jm
from jointmdp.exact.bellman.feature_moments import PARTS
from jointmdp.ground.checks import Sharing
from jointmdp.show.cli import main
from jointmdp.simulation.simulators.gusty_cartpole import GAINS


@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
def test_the_gridworld_comes_back_to_every_cell(sharing: Sharing) -> None:
    model, policy = ergodic_gridworld(3, sharing)
    assert np.allclose(model.probabilities.sum(axis=1), 1)
    kernel = np.zeros((9, 9))
    for s, w, a in np.ndindex(*model.successors.shape):
        kernel[s, model.successors[s, w, a]] += model.probabilities[s, w] * policy[s, a]
    assert (np.linalg.matrix_power(kernel, 20) > 0).all()
    assert np.allclose(kernel[8], np.where(np.arange(9) % 3 == 0, 1 / 3, 0))  # from the goal to the left column
    assert model.rewards[8].min() == 1
    assert model.rewards[:8].max() == 0
    ending, _ = jm.envs.windy_gridworld(3, feature_counts.DISCOUNT)
    calm = model.probabilities[0, :3].sum()
    assert calm == pytest.approx(ending.probabilities[0, 0])
    assert (model.successors[:8, 0] == ending.successors[:8, 0]).all()


@pytest.mark.slow
def test_points_agree_with_direct_calls() -> None:
    setting = ProjectionSetting(3, "state", "restart", "covariance", PARTS, 1)
    (point,) = feature_counts.points([setting])
    model, policy = ergodic_gridworld(3)
    exact = jm.evaluate(model, policy)
    fitted = jm.evaluate(model, policy, jm.Projected(jm.features.polynomial(1), tolerance=feature_counts.TOLERANCE))
    assert isinstance(fitted, jm.results.ProjectedSolution)
    assert point.features == fitted.features.shape[2] == 12
    off, size, alone = [], [], []
    for s in range(9):
        for a in range(4):
            for b in range(a):
                truth = exact.gap(s, a, b).variance
                off.append(fitted.gap(s, a, b).variance - truth)
                alone.append(exact.gap(s, a, b).independent_variance - truth)
                size.append(truth)
    expected = np.sqrt(np.mean(np.square(off)) / np.mean(np.square(size)))
    assert point.errors.gap_variance == pytest.approx(expected, rel=1e-6)
    assert point.independent == pytest.approx(np.sqrt(np.mean(np.square(alone)) / np.mean(np.square(size))), rel=1e-6)


def test_errors_of_the_exact_solution_are_zero() -> None:
    exact = jm.evaluate(*ergodic_gridworld(3))
    assert feature_counts.measured(exact, exact) == (0.0, 0.0, 0.0)
    assert feature_counts.relative_error(np.zeros(3), np.ones(3)) == 1


@pytest.mark.slow
def test_the_command_writes_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projected_figures, "QUICK_SIZES", (3,))
    monkeypatch.setattr(projected_figures, "QUICK_DEGREES", (0, 1))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["reproduce", "projected", "--quick"])
    assert result.exit_code == 0, result.output
    folder = tmp_path / "results" / "projected"
    assert {path.stem for path in folder.glob("*.png")} == {
        "weightings",
        "constraints",
        "sample_convergence",
        "calibration_inventory",
    }
    counts = {
        "weightings": 2 * 3 * 2,
        "constraints": 2 * 3 * 2,
        "sample_convergence": 3,
        "calibration_inventory": 6,
    }
    for name, count in counts.items():
        assert f"{name}.png" in (folder / "README.md").read_text(encoding="utf-8")
        with open(folder / f"{name}.csv", newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == count
        positive = {"sample_convergence": "mean_error", "calibration_inventory": "predicted_std"}
        assert all(float(row[positive.get(name, "gap_variance_error")]) > 0 for row in rows)
    for result_text in ("noise shared in the same state", "noise shared at the same time"):
        assert result_text in result.output


@pytest.mark.slow
def test_what_the_figures_say() -> None:
    """Only with pairs that are seen, and parts of their own for them, do gaps come out better than independent ones.

    Second moments are the wrong thing to fit.
    """
    weightings = feature_counts.run_weightings((6,), (2,))
    found = {(row["sharing"], row["weighting"], row["parts"]): row for row in weightings.rows}
    for sharing in ("state", "time"):
        restart, stationary = found[sharing, "restart", 3], found[sharing, "stationary", 1]
        assert restart["gap_variance_error"] < 0.6 * stationary["gap_variance_error"]
        assert restart["gap_variance_error"] < 0.6 * restart["independent_error"]
        assert restart["gap_variance_error"] < 0.6 * found[sharing, "restart", 1]["gap_variance_error"]
        assert stationary["variance_error"] < restart["variance_error"] < 0.1
    (second,) = feature_counts.points([ProjectionSetting(6, "state", "restart", "second_moment", PARTS, 2)])
    assert second.errors.gap_variance > 2 * found["state", "restart", 3]["gap_variance_error"]


def test_second_moments_make_variance_out_of_errors_of_the_mean() -> None:
    """Nothing is random here, and features miss the mean; the page on linear features shows the same model."""
    ring = jm.JointMDP(
        probabilities=[[1.0]] * 4,
        rewards=[[[0, 1]], [[0, 2]], [[0, -1]], [[5, 0]]],
        successors=[[[1, 2]], [[2, 3]], [[3, 0]], [[0, 1]]],
        discount=0.9,
    )
    features = jm.features.polynomial(1)
    for constraint in ("covariance", None):
        centred = jm.evaluate(ring, [0, 1, 0, 1], jm.Projected(features, constraint=constraint))
        assert np.abs(centred.variance).max() <= 1e-12
    paper = jm.evaluate(ring, [0, 1, 0, 1], jm.Projected(features, constraint="second_moment"))
    assert isinstance(paper, jm.results.ProjectedSolution)
    assert paper.mean_residual > 0.5
    assert paper.variance.max() > 50
    assert paper.variance.min() < -20


def test_the_stationary_weighting_sees_no_gap() -> None:
    model, policy = ergodic_gridworld(3)
    seen = {
        weighting: jm.evaluate(model, policy, jm.Projected(jm.features.polynomial(1), weighting)).weighting  # type: ignore[attr-defined]
        for weighting in ("restart", "stationary")
    }
    off = ~np.eye(4, dtype=bool)
    assert (seen["restart"].same > 0).all()
    assert (seen["stationary"].same[:, off] == 0).all()
    assert seen["stationary"].cross.sum() == 0
    assert np.einsum("saa->", seen["stationary"].same) == pytest.approx(1)


def test_scenarios_of_cartpole_are_its_games() -> None:
    """Gymnasium's own cart, pushed by the same gusts and then to the side to which the pole falls."""
    features = ScenarioReturns(0.4, 1.5, 0.9, count=3)
    env: Any = gymnasium.make("CartPole-v1")
    rng = np.random.default_rng(0)
    for action in (0, 1):
        start = rng.uniform(-1, 1, size=4) * [1.5, 1.0, 0.15, 1.0]
        expected = [1.0]
        for gusts in features.gusts:
            env.reset()
            env.unwrapped.state, total, chosen = start.copy(), 0.0, action
            for t, gust in enumerate(gusts):
                x, speed, angle, turn = env.unwrapped.state
                env.unwrapped.state = np.array([x, speed + gust, angle, turn])
                _, reward, is_over, _, _ = env.unwrapped.step(chosen)
                total += 0.9**t * reward
                if is_over:
                    break
                chosen = int(GAINS @ np.asarray(env.unwrapped.state) > 0)
            expected.append(0.1 * total)
        assert features(start, action) == pytest.approx(expected, rel=1e-12)
        assert len(set(expected)) > 2  # gusts matter, and the pole falls
