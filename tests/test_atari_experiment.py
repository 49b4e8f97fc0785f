"""The Atari experiment: coins by their law are coins that are drawn, scores find what was put in, runs go on."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from zoo import build, cases

import jointmdp as jm

pytest.importorskip("ale_py")

from jointmdp_experiments import atari_coins, atari_pairs, atari_roots, atari_runs, atari_scores

from jointmdp.exact.bellman.network_backups import backup
from jointmdp.ground.arrays import float64, on_device
from jointmdp.ground.errors import ModelError
from jointmdp.learning.neural.queries import OVER
from jointmdp.show.cli import main
from jointmdp.simulation.executors import as_executor

pytestmark = pytest.mark.optimised

SURE = 5.0  # standard errors
CASE = next(case for case in cases(16, 9, discounts=(0.9,)) if case.sharing == "state" and case.rewards.shape[0] > 2)


@pytest.fixture(scope="module")
def queries() -> jm.results.RecordedQueries:
    return jm.simulators.record_queries(build(CASE), CASE.policy, 20_000, restart=0.2)


@pytest.mark.parametrize("variant", ["A", "B"])
def test_targets_with_known_coins_are_the_mean_of_those_with_drawn_ones(
    queries: jm.results.RecordedQueries, variant: str
) -> None:
    coins = atari_coins.VARIANTS[variant]
    known, drawn = (
        atari_coins.with_coins(queries, coins),
        atari_coins.with_drawn_coins(queries, coins, seed=1),
    )
    assert known.discount == drawn.discount == coins.discount
    alive = queries.lists.actions != OVER
    with float64():
        means, covariances = np.zeros((len(queries), 2, 3)), np.zeros((len(queries), 2, 3, 3))
        one, other = (
            backup(
                on_device(means[:, 0]),
                on_device(each.lists.rewards),
                on_device(means),
                on_device(covariances),
                coins.discount,
                on_device(each.lists.reward_covariances),
            )
            for each in (known, drawn)
        )
    off = np.asarray(one.covariance - other.covariance) * (alive[:, :, None] & alive[:, None, :])
    error = off.std(axis=0) / np.sqrt(len(off))
    assert (np.abs(off.mean(axis=0)) < SURE * error + 1e-12).all()
    mean_off = np.asarray(one.mean - other.mean) * alive
    assert (np.abs(mean_off.mean(axis=0)) < SURE * mean_off.std(axis=0) / np.sqrt(len(off)) + 1e-12).all()
    assert off.std() > 0.1  # drawn coins do make noise


def test_rewards_of_another_shape_are_refused(queries: jm.results.RecordedQueries) -> None:
    with pytest.raises(ModelError, match="covariances have the shape"):
        queries.with_rewards(queries.lists.rewards, np.zeros((len(queries), 3)))
    with pytest.raises(ModelError, match="not finite"):
        queries.with_rewards(queries.lists.rewards, np.full((len(queries), 3, 3), np.nan))


def test_blind_queries_keep_everything_but_what_is_seen(queries: jm.results.RecordedQueries) -> None:
    none = atari_coins.blind(queries)
    assert len(none.observations) == 1
    assert (none.lists.observed == 0).all()
    assert (none.lists.states == queries.lists.states).all()


def test_ratios_have_intervals_that_hold_the_truth() -> None:
    """Roots, simulated errors and seeds are all random here; the ratio of the expectations is 1.1."""
    rng, held, runs = np.random.default_rng(0), 0, 200
    for _ in range(runs):
        truth = rng.gamma(4.0, 1.0, 40)
        simulated = truth * rng.gamma(20.0, 1 / 20, 40)
        # Seeds of a jackknife leave one of three parts out: their errors have two parts in common.
        parts = 0.05 * rng.standard_normal(3)
        of_seeds = 1 + (parts.sum() - parts) / 2
        found = atari_scores.ratio(1.1 * truth * of_seeds[:, None], simulated)
        held += found.lower <= 1.1 <= found.upper
    assert held >= 0.9 * runs


def test_a_game_in_which_nothing_happens_has_no_ratio() -> None:
    assert np.isnan(atari_scores.ratio(np.ones((2, 5)), np.zeros(5)).value)


@pytest.mark.slow
def test_monte_carlo_errors_are_taken_out_of_r_squared() -> None:
    rng = np.random.default_rng(0)
    truth = rng.standard_normal(4000)
    halves = truth + 2**0.5 * rng.standard_normal((1, 2, 4000))
    # Both sums have a relative error of some 4 %; three of these.
    assert atari_scores.r_squared(truth[None], halves).value == pytest.approx(1.0, abs=0.12)
    assert atari_scores.r_squared(np.zeros((1, 4000)), halves).value == pytest.approx(0.0, abs=0.02)
    halfway = truth + 0.5**0.5 * rng.standard_normal(4000)
    assert atari_scores.r_squared(halfway[None], halves).value == pytest.approx(0.5, abs=0.12)
    assert np.isnan(atari_scores.r_squared(np.zeros((1, 30)), np.zeros((1, 2, 30))).value)


def test_halves_are_halves() -> None:
    numbers = np.arange(6.0, dtype=np.float32)
    flags = np.zeros((6, 2, 1), dtype=bool)
    paths = atari_pairs.PairPaths(np.tile(numbers[:, None, None], (1, 2, 1)), flags, flags[:, 0], flags[:, 0])
    for one, other in paths.halved(3):
        assert sorted([*one.rewards[:, 0, 0], *other.rewards[:, 0, 0]]) == list(numbers)
        assert len(one.rewards) == len(other.rewards) == 3


def test_roots_lie_where_the_notes_say_and_do_not_depend_on_their_number() -> None:
    pong = jm.AtariSimulator("Pong")
    roots = atari_roots.roots_of(pong, 2, seed=3)
    again = atari_roots.roots_of(pong, 1, seed=3)
    assert roots[0] == again[0]._replace(state=roots[0].state)
    assert pong.identity(roots[0].state) == pong.identity(again[0].state)
    assert all(one != other for one, other in (root.actions for root in roots))
    assert pong.identity(roots[0].state) != pong.identity(atari_roots.roots_of(pong, 1, seed=4)[0].state)


def test_measured_pairs_come_back_from_their_files(tmp_path: Path) -> None:
    pong = jm.AtariSimulator("Pong")
    roots = atari_roots.roots_of(pong, 2, seed=3)
    measurement = atari_roots.Measurement(pong, 2, 5, seed=3)
    with as_executor(None) as here:
        first = atari_roots.measured(measurement, roots, str(tmp_path), here)
        second = atari_roots.measured(measurement, roots, str(tmp_path), here)
        for one, other in zip(first, second, strict=True):
            assert all((a == b).all() and a.dtype == b.dtype for a, b in zip(one, other, strict=True))
        with pytest.raises(ModelError, match="another run"):
            atari_roots.measured(atari_roots.Measurement(pong, 2, 5, seed=4), roots, str(tmp_path), here)


def test_a_network_does_not_learn_from_its_own_recording(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs = atari_runs.GameRuns("Pong", atari_runs.AtariPlan(seeds=(0, 1, 2)), str(tmp_path), [])
    asked = []

    def recorded(seed: int) -> jm.results.RecordedQueries:
        asked.append(seed)
        return jm.simulators.record_queries(build(CASE), CASE.policy, 20, seed=seed)

    monkeypatch.setattr(runs, "recorded", recorded)
    assert len(runs.learned_from(1)) == 40
    assert asked == [0, 2]


@pytest.mark.slow
def test_the_quick_command_writes_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = {**atari_runs.QUICK.settings, "steps": 100}
    plan = atari_runs.AtariPlan(
        ("Pong",), (0,), lists=60, lane=30, roots=2, pairs=4, horizon=10, settings=settings, rows=("parts",)
    )
    monkeypatch.setattr("jointmdp_experiments.atari_figures.QUICK", plan)
    for variant in "BC":  # with coins, and without, are enough
        monkeypatch.delitem(atari_coins.VARIANTS, variant)
    for _ in range(2):  # the second time from files
        result = CliRunner().invoke(main, ["reproduce", "atari", "--quick"])
        assert result.exit_code == 0, result.output
    folder = tmp_path / "results" / "atari"
    names = {"ratios", "roots", *(f"curves_{variant}" for variant in "AD")}
    assert {path.stem for path in folder.glob("*.png")} == names
    page = (folder / "README.md").read_text(encoding="utf-8")
    assert "quick run" in page
    assert all(f"{name}.png" in page for name in names)
    with open(folder / "ratios.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["variant"], row["network"]) for row in rows] == [(variant, "parts") for variant in "AD"]
    assert float(rows[0]["coupled"]) > 0


def test_the_page_shows_what_the_run_wrote() -> None:
    """Every number of the two tables of docs/atari.md is that of docs/atari/ratios.csv."""
    docs = Path(__file__).parents[1] / "docs"
    with open(docs / "atari" / "ratios.csv", newline="", encoding="utf-8") as file:
        rows = {(row["game"], row["variant"], row["network"]): row for row in csv.DictReader(file)}
    shown = [line.strip("| ").split(" | ") for line in (docs / "atari.md").read_text().splitlines() if "|" in line]
    tables = [[cell.strip() for cell in row] for row in shown if (row[0].strip(), "A", "parts") in rows]
    assert len(tables) == 12
    columns = [("A", "parts", "coupled"), ("A", "parts", "marginal"), ("B", "parts", "coupled")]
    columns += [("B", "parts", "marginal"), ("A", "gram", "coupled"), ("B", "gram", "coupled")]
    columns += [("A", "blind", "coupled"), ("B", "blind", "coupled")]
    for game, *cells in tables[:6]:
        assert cells == [f"{float(rows[game, variant, kind][name]):.2f}" for variant, kind, name in columns]
    seen = [(name, variant) for name in ("mean", "own_variance") for variant in "CD"]
    for game, *cells in tables[6:]:
        scores = [
            atari_scores.score(as_numbers(rows[game, variant, "parts"]), f"{name}_r_squared") for name, variant in seen
        ]
        assert cells == [str(score) for score in scores]


def as_numbers(row: dict[str, str]) -> dict[str, float]:
    return {name: float(value) for name, value in row.items() if name not in ("game", "variant", "network")}
