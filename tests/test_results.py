"""What every result can do: rows as a data frame and in a notebook, datasets, pictures, and files."""

import dataclasses
import itertools
import math
from pathlib import Path

import numpy as np
import pytest

import jointmdp as jm
from jointmdp.ground import archives
from jointmdp.show.plots import style

MODEL, POLICY = jm.envs.coupled_reward_chain(3, discount=0.5)


def season(order: int, noise: jm.Noise) -> float:
    demand = noise["demand"].poisson(20)
    return 5.0 * min(order, demand) - 3.0 * order


def results() -> dict[str, object]:
    solution = jm.evaluate(MODEL, POLICY)
    learned = jm.learn(MODEL, POLICY, jm.Incremental(replicas=4), steps=40)
    compared = jm.compare(season, decisions=[10, 20], seed=1)
    returns = jm.simulate(MODEL, POLICY, "s0", num_samples=50)
    found = (solution, solution.gap("s0", "a1", "a2"), learned, learned.gap("s0", "a1", "a2"), compared)
    simulator = jm.simulators.TableSimulator(MODEL)
    states = jm.learn(simulator, POLICY, jm.Incremental(replicas=2, batch=4), steps=20)
    report = jm.audit(simulator, policy=POLICY, num_samples=50)
    review = jm.simulators.review_agent(simulator, POLICY, ["s0"], max_replications=50)
    others = (*compared.gaps, returns, returns.gap(0, 1), states, report, review)
    named = {type(each).__name__: each for each in (*found, *others)}
    return named


@pytest.fixture(scope="module")
def made() -> dict[str, object]:
    return results()


KINDS = {
    "Solution": ("figure", "to_xarray"),
    "Gap": ("figure",),
    "Learned": ("figure", "to_xarray"),
    "LearnedStates": ("figure",),
    "LearnedGap": (),
    "Comparison": ("figure", "to_xarray"),
    "PairedGap": ("figure", "to_xarray"),
    "ReturnSample": ("figure", "to_xarray"),
    "GapSample": ("figure", "to_xarray"),
    "AuditReport": (),
    "AgentReview": ("figure",),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_result_shows_itself(made: dict[str, object], kind: str, tmp_path: Path) -> None:
    result: object = made[kind]
    rows = result.table()  # type: ignore[attr-defined]
    frame = result.to_pandas()  # type: ignore[attr-defined]
    assert len(frame) == len(rows) > 0
    assert not any(isinstance(value, jm.Interval) for value in frame.iloc[0])
    result.to_csv(tmp_path / "rows.csv")  # type: ignore[attr-defined]
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == len(rows) + 1
    shown = result._repr_html_()  # type: ignore[attr-defined]
    assert shown.startswith(("<pre>", "<p>"))
    assert "<script" not in shown
    for way in ("figure", "to_xarray"):
        assert hasattr(result, way) == (way in KINDS[kind])
    if "figure" in KINDS[kind]:
        assert style.save(result.figure(), tmp_path / "picture.png").stat().st_size > 5000  # type: ignore[attr-defined]
    if "to_xarray" in KINDS[kind]:
        assert len(result.to_xarray().data_vars) > 0  # type: ignore[attr-defined]


def test_names_cannot_break_out_of_a_notebook() -> None:
    found = jm.compare(season, decisions={"<script>": 10, "b": 20})
    assert "<script>" not in found._repr_html_()


def test_datasets_hold_the_samples(made: dict[str, object]) -> None:
    compared, returns = made["Comparison"], made["ReturnSample"]
    assert isinstance(compared, jm.results.Comparison)
    assert isinstance(returns, jm.results.ReturnSample)
    assert (compared.to_xarray().returns.values == compared.returns).all()
    assert compared.returns.shape == (compared.num_replications, 2)
    assert (compared.returns[:, 0] - compared.returns[:, 1] == compared.gaps[0].gaps).all()
    assert (returns.to_xarray().returns.sel(action="a1").values == returns.returns[:, 0]).all()


@pytest.mark.parametrize("kind", ["Comparison", "ReturnSample", "GapSample"])
def test_results_come_back_from_disk(made: dict[str, object], kind: str, tmp_path: Path) -> None:
    thing, path = made[kind], tmp_path / "result"
    jm.save(thing, path)  # type: ignore[arg-type]
    again = jm.load(path)
    assert type(again) is type(thing)
    assert str(again) == str(thing)
    assert again == thing
    assert hash(again) == hash(thing)
    assert again.table() == thing.table()  # type: ignore[attr-defined, union-attr]
    if isinstance(again, jm.results.Comparison):
        assert again.best == 20
        assert again.to_json() == thing.to_json()  # type: ignore[attr-defined]
    jm.save(again, tmp_path / "twice")
    assert (tmp_path / "twice").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("kind", ["Comparison", "ReturnSample", "GapSample"])
def test_forged_results_are_refused(made: dict[str, object], kind: str, tmp_path: Path) -> None:
    """Every entry of the page replaced by something else, and every array cut, is one error that names the file."""
    path = tmp_path / "result"
    jm.save(made[kind], path)  # type: ignore[arg-type]
    page, arrays = archives.read(path)
    page.pop("arrays", None)
    for name in page.keys() - {"format", "version", "library"}:
        for wrong in ([[[]]], {"a": 1}):
            archives.write(path, {**page, name: wrong}, arrays)
            with pytest.raises(jm.ModelError, match="cannot load"):
                jm.load(path)
    for name, array in arrays.items():
        archives.write(path, page, {**arrays, name: np.ascontiguousarray(array[1:])})
        with pytest.raises(jm.ModelError, match="cannot load"):
            jm.load(path)


def test_infinite_intervals_come_back_too(tmp_path: Path) -> None:
    with pytest.warns(jm.errors.NoiseWarning, match="all 50 replications"):
        nothing = jm.compare(lambda decision, seed: 0.0, decisions=[1, 2], max_replications=50)
    jm.save(nothing, tmp_path / "nothing")
    again = jm.load(tmp_path / "nothing")
    assert isinstance(again, jm.results.Comparison)
    assert again.gaps[0].mean_interval == (-math.inf, math.inf)
    assert again.warnings == nothing.warnings
    assert len(again.warnings) == 1


def test_masks_come_back_as_masks(made: dict[str, object], tmp_path: Path) -> None:
    """As numbers they would choose the first two replications, again and again."""
    sample = made["ReturnSample"]
    assert isinstance(sample, jm.results.ReturnSample)
    is_whole = np.arange(len(sample.returns)) % 3 == 1
    jm.save(
        dataclasses.replace(sample, replications=sample.replications._replace(is_whole=is_whole)), tmp_path / "some"
    )
    again = jm.load(tmp_path / "some")
    assert isinstance(again, jm.results.ReturnSample)
    assert np.array_equal(again.replications.whole.returns, sample.returns[is_whole])


def test_what_cannot_be_saved_is_named(made: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(jm.ModelError, match="not LearnedGap"):
        jm.save(made["LearnedGap"], tmp_path / "x")  # type: ignore[arg-type]


# -- functions of a decision ------------------------------------------------------------------------------------


def test_noise_by_name_keeps_draws_in_step() -> None:
    """A decision that draws more often shifts nothing: demands are the same numbers for both decisions."""

    def run(extra: int, noise: jm.Noise) -> float:
        for k in range(extra):
            noise["repairs", k].random()
        return float(noise["demand"].random() + noise["service", 3].random())

    found = jm.compare(run, decisions=[0, 5], max_replications=50, indifference=0.1)
    assert (found.returns[:, 0] == found.returns[:, 1]).all()
    assert len(np.unique(found.returns[:, 0])) == 50


def test_streams_have_numbers_beside_names() -> None:
    noise = jm.Noise(1)
    drawn = [noise[name].random() for name in ("service", ("service", 0), ("service", 1), ("service", "1"))]
    assert len(set(drawn)) == 4
    assert jm.Noise(1)["service", np.int64(1)].random() == drawn[2]


@pytest.mark.slow
def test_the_answer_keeps_the_users_values() -> None:
    found = jm.compare(season, decisions=[10, 20])
    assert found.best == 20
    assert isinstance(found.best, int)
    assert found.best_label == "20"
    assert found.gap(20, 10).mean == found.gap("20", "10").mean
    few, many = {"order": 10}, {"order": 20}
    objects = jm.compare(lambda plan, noise: season(plan["order"], noise), decisions=[few, many])
    assert objects.best is many
    assert objects.gap(many, few).mean > 0
    assert jm.compare(season, decisions={"few": 10, "many": 20}).best == "many"


def test_costs_are_returns_with_the_other_sign() -> None:
    """Whatever is said of a gap is the same for costs as for returns: an advantage. Mean costs are costs."""
    gains = jm.compare(season, decisions=[15, 18, 25], seed=3)
    costs = jm.compare(lambda q, noise: -season(q, noise), decisions=[15, 18, 25], seed=3, minimise=True)
    assert costs.best == gains.best
    assert costs.status is gains.status
    assert (costs.returns == -gains.returns).all()
    for pair in itertools.permutations([15, 18, 25], 2):
        cost, gain = costs.gap(*pair), gains.gap(*pair)
        assert (cost.gaps == gain.gaps).all()
        assert cost.row() | {"direction": 0} == gain.row() | {"direction": 0}
        assert (cost.quantile(0.1), cost.cvar(0.1)) == (gain.quantile(0.1), gain.cvar(0.1))
    assert costs.gap(costs.best, 25).mean_interval.lower > 0
    for cost_of, gain_of in zip(costs.alternatives, gains.alternatives, strict=True):
        assert cost_of.mean_interval == -gain_of.mean_interval
        assert cost_of.best == gain_of.best
    text = " ".join(str(costs).split())
    assert "Which costs least?" in text
    assert "costs less" in text
    assert "gives" not in text.replace("gives its", "")
    assert "highest" not in text
    coin = lambda q, seed: q / 10 + np.random.default_rng(seed).integers(2)  # noqa: E731
    bounded = jm.compare(coin, decisions=[1, 5], minimise=True, bounds=(0, 2))
    assert bounded.best == 1
    with pytest.raises(jm.ModelError, match=r"returned 2.5, outside the bounds \[0, 2\]"):
        jm.compare(lambda q, seed: 2.5, decisions=[1, 5], minimise=True, bounds=(0, 2))
