"""What a person reads: solutions, gaps, exports."""

import copy
import csv
import json
import math
import pickle

import numpy as np
import oracle
import pytest
from zoo import build, slow_or_long

import jointmdp as jm
from jointmdp import bounds
from jointmdp.exact.solution.gap import Gap
from jointmdp.ground.answers import flat
from jointmdp.ground.files import to_json


@pytest.fixture(scope="module")
def shop() -> jm.results.Solution:
    return jm.evaluate(*jm.envs.inventory())


def test_gap_is_made_of_moments(shop: jm.results.Solution) -> None:
    gap = shop.gap("stock 4", "order 4", "order 0")
    c = shop.covariance[4]
    assert gap.mean == pytest.approx(shop.mean[4, 4] - shop.mean[4, 0])
    assert gap.variance == pytest.approx(c[4, 4] + c[0, 0] - 2 * c[4, 0])
    assert gap.std == pytest.approx(math.sqrt(gap.variance))
    assert gap.independent_variance == pytest.approx(c[4, 4] + c[0, 0])
    assert gap.variance_reduction == pytest.approx(gap.independent_variance / gap.variance)
    assert gap.moment(0) == 1
    assert gap.moment(1) == gap.mean
    assert gap.moment(2) == pytest.approx(gap.variance + gap.mean**2)
    assert gap.inferiority_bound == pytest.approx(gap.variance / (gap.variance + gap.mean**2), rel=1e-6)
    mirrored = shop.gap(4, 0, 4)
    assert mirrored.mean == -gap.mean
    assert mirrored.variance == pytest.approx(gap.variance)
    assert mirrored.inferiority_bound == 1.0
    with pytest.raises(jm.ModelError, match="moment 3"):
        gap.moment(3)


def test_sharing_orders_the_deviations(shop: jm.results.Solution) -> None:
    """The notes' point: common random numbers help far more than sharing in the same state."""
    deviations = [
        jm.evaluate(shop.model.with_sharing(sharing), shop.policy).gap(4, 4, 5).std
        for sharing in ("none", "state", "time")
    ]
    assert deviations[0] > 1.5 * deviations[1] > 10 * deviations[2]


def test_gap_of_an_action_with_itself(shop: jm.results.Solution) -> None:
    gap = shop.gap(4, 2, 2)
    assert gap.mean == gap.variance == gap.variance_error == 0
    assert gap.superiority() == (0.0, 0.0)
    assert gap.inferiority_bound == 1.0
    assert math.isnan(gap.variance_reduction)
    assert shop.covariance_between(4, 2, 4, 2) == shop.covariance[4, 2, 2]


def test_replications() -> None:
    gap = Gap("s", "a", "b", mean=0.5, variance=4.0, independent_variance=36.0, mean_error=0.0, variance_error=0.0)
    plan = gap.replications(0.1)
    assert plan.paired == math.ceil((1.959963984540054 / 0.1) ** 2 * 4)
    assert plan.unpaired == math.ceil((1.959963984540054 / 0.1) ** 2 * 36)
    assert plan.saved == pytest.approx(9, rel=0.01)
    assert gap.replications_to_select(0.95).paired == math.ceil((1.6448536269514722 / 0.5) ** 2 * 4)
    tied = Gap("s", "a", "b", 0.0, 4.0, 36.0, 0.0, 0.0)
    assert tied.replications_to_select().paired == math.inf
    for bad in (lambda: gap.replications(0), lambda: gap.replications(0.1, 1), lambda: gap.replications_to_select(0.4)):
        with pytest.raises(jm.ModelError):
            bad()


def test_replications_deliver_what_they_promise(shop: jm.results.Solution) -> None:
    """Simulated selection with the planned number of pairs: 0.95 correct within 4.5 standard errors of 400 trials."""
    gap = shop.gap(4, 4, 1)
    count = gap.replications_to_select(0.95).paired
    trials = 400
    sample = jm.simulate(shop.model, shop.policy, 4, [4, 1], num_samples=count * trials, seed=8, gaps_only=True).gap(
        4, 1
    )
    correct = np.mean(sample.gaps.reshape(trials, count).mean(axis=1) > 0)
    assert abs(correct - 0.95) <= 4.5 * math.sqrt(0.95 * 0.05 / trials)


@pytest.mark.parametrize("sharing", slow_or_long(["time", "state", "none"], 2))
@pytest.mark.slow
def test_gap_statements_hold_for_exact_laws(sharing: str) -> None:
    """P(G > 0), quantiles and CVaR of enumerated three-step laws lie within the certified intervals."""
    for seed in range(5):
        case = oracle.random_model(np.random.default_rng(seed), 2, 2, 2, discount=0.5, sharing=sharing)
        gap = jm.evaluate(build(case), case.policy, horizon=3).gap(0, 0, 1)
        law = oracle.finite_horizon_law(*case[:6], (0, 0), (0, 1), 3)
        atoms = sorted((float(z - y), float(p)) for (z, y), p in law.items())
        values, chances = np.array(atoms).T
        assert chances[values <= 0].sum() <= gap.inferiority_bound + 1e-12
        above = chances[values > 0].sum()
        assert gap.superiority().lower - 1e-12 <= above <= gap.superiority().upper + 1e-12
        ends = np.cumsum(chances)
        for q in (0.05, 0.3, 0.5, 0.9):
            quantile = values[np.searchsorted(ends, q - 1e-12)]
            assert gap.quantile(q).lower - 1e-9 <= quantile <= gap.quantile(q).upper + 1e-9
            weights = np.diff(np.minimum(np.concatenate([[0], ends]), q))
            cvar = np.sum(weights * values) / q
            assert gap.cvar(q).lower - 1e-9 <= cvar <= gap.cvar(q).upper + 1e-9


def test_two_moment_bounds_are_attained() -> None:
    """The two-point law with mass q at μ − σ√((1−q)/q) reaches each bound, so none could be tighter."""
    mean, std, q = 0.7, 1.3, 0.2
    low, high = mean - std * math.sqrt((1 - q) / q), mean + std * math.sqrt(q / (1 - q))
    assert q * low + (1 - q) * high == pytest.approx(mean)
    assert q * (low - mean) ** 2 + (1 - q) * (high - mean) ** 2 == pytest.approx(std**2)
    two = bounds.MomentBounds([mean, mean**2 + std**2])
    assert two.cvar(q).lower == pytest.approx(low)
    assert two.quantile(q).lower == pytest.approx(low)
    chance = std**2 / (std**2 + mean**2)  # two points, one of them at 0
    assert bounds.cantelli(mean, std**2) == pytest.approx(chance)
    assert bounds.MomentBounds([0.0, 1.0]).cvar(0.05).lower == pytest.approx(-4.3589, abs=1e-4)


def test_unavailable_actions_are_nan_and_refused(shop: jm.results.Solution) -> None:
    assert np.isnan(shop.mean[20, 1:]).all()
    assert np.isnan(shop.covariance[20, 0, 1])
    with pytest.raises(jm.ModelError, match="not available"):
        shop.gap(20, 0, 1)
    with pytest.raises(jm.ModelError, match="unknown state"):
        shop.gap("stock 99", 0, 1)


def test_chosen_states_and_actions(shop: jm.results.Solution) -> None:
    few = shop.covariance_of([3, "stock 5"], ["order 1", 2])
    assert few.shape == (2, 2, 2)
    np.testing.assert_allclose(few[1], shop.covariance[5][1:3, 1:3], rtol=1e-12)
    np.testing.assert_allclose(shop.correlation_of([5], [1, 2])[0], shop.correlation[5][1:3, 1:3], rtol=1e-12)
    with pytest.raises(jm.ModelError, match="at least one state"):
        shop.covariance_of([])


def test_covariances_are_symmetric_and_positive_semidefinite(shop: jm.results.Solution) -> None:
    for sharing in ("state", "time", "none"):
        solution = jm.evaluate(shop.model.with_sharing(sharing), shop.policy)
        for block in solution.covariance[:14]:  # all eight orders fit
            np.testing.assert_allclose(block, block.T, rtol=1e-12)
            # Rounding moves eigenvalues by at most the entries' error times their number.
            assert np.linalg.eigvalsh(block).min() >= -8 * solution.certificate.covariance_error
        assert np.nanmax(np.abs(solution.correlation)) <= 1


def test_marginals_do_not_depend_on_sharing(shop: jm.results.Solution) -> None:
    for sharing in ("state", "none"):
        other = jm.evaluate(shop.model.with_sharing(sharing), shop.policy)
        np.testing.assert_allclose(other.mean, shop.mean, rtol=1e-12)
        np.testing.assert_allclose(other.variance, shop.variance, rtol=1e-12)


def test_exports(shop: jm.results.Solution, tmp_path) -> None:
    data = shop.to_xarray()
    assert float(data["mean"].sel(state="stock 4", action="order 4")) == shop.mean[4, 4]
    assert float(data["covariance"].sel(state="stock 4", action="order 4", other="order 0")) == shop.covariance[4, 4, 0]
    assert data.attrs["sharing"] == "time"
    rows = shop.table(["stock 19"])
    assert len(rows) == 1
    assert rows[0]["state"] == "stock 19"
    shop.to_csv(tmp_path / "gaps.csv", [4])
    with open(tmp_path / "gaps.csv", newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    assert len(read) == 28
    assert float(read[0]["mean"]) == shop.gap(4, 0, 1).mean


def test_words(shop: jm.results.Solution) -> None:
    assert "order 4 − order 0 in stock 4" in repr(shop.gap(4, 4, 0))
    assert "within the tolerance" in repr(shop)
    assert str(jm.Interval(0.25, 0.5)) == "[0.25, 0.5]"
    assert 0.3 in jm.Interval(0.25, 0.5)
    assert 0.6 not in jm.Interval(0.25, 0.5)
    assert jm.Interval(0.25, 0.5).middle == jm.Interval(0.25, 0.5).estimate == 0.375


def test_intervals_keep_their_estimates() -> None:
    found = jm.Interval(-3.0, 5.0, -2.0)
    lower, upper = found
    assert (lower, upper, found.estimate, found.middle) == (-3, 5, -2, 1)
    assert (str(found), repr(found), f"{found:.1f}") == ("-2 [-3, 5]", "-2 [-3, 5]", "[-3.0, 5.0]")
    assert (-found, found.widened(1).estimate) == (jm.Interval(-5.0, 3.0, 2.0), -2)
    assert found & jm.Interval(-1.0, 9.0) == jm.Interval(-1.0, 9.0) & found == jm.Interval(-1.0, 5.0, -1.0)
    assert found == (-3, 5)
    assert found != jm.Interval(-3.0, 5.0)
    assert found != jm.Interval(-3.0, 4.0, -2.0)
    assert jm.Interval(-3.0, 5.0) == jm.Interval(-3.0, 5.0, 1.0)
    assert len({found, jm.Interval(-3.0, 5.0)}) == 2
    for copied in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
        assert copied == found
    assert math.isnan(jm.Interval(0.0, math.inf).estimate)
    assert json.loads(to_json(found)) == {"estimate": -2, "lower": -3, "upper": 5}
    row = {"mean": 1.0, "mean_interval": jm.Interval(0.0, 3.0), "tie": found}
    assert flat(row) == {
        "mean": 1.0,
        "mean_lower": 0.0,
        "mean_upper": 3.0,
        "tie_estimate": -2.0,
        "tie_lower": -3.0,
        "tie_upper": 5.0,
    }


def test_large_action_sets_stay_off_the_full_blocks() -> None:
    """300 actions: one gap is read without forming S·A² numbers."""
    rng = np.random.default_rng(0)
    S, W, A = 40, 2, 300
    tables = (rng.dirichlet(np.ones(W), S), rng.normal(size=(S, W, A)), rng.integers(0, S, (S, W, A)))
    model = jm.JointMDP(*tables, 0.9)
    solution = jm.evaluate(model, np.zeros(S, dtype=int))
    gap = solution.gap(3, 7, 250)
    assert "covariance" not in solution.__dict__
    block = solution.covariance_of([3], [7, 250])[0]
    assert gap.variance == pytest.approx(block.trace() - 2 * block[0, 1])


@pytest.mark.parametrize("sharing", ["state", "none"])
def test_an_action_asked_for_twice_is_one_coordinate(shop: jm.results.Solution, sharing: str) -> None:
    solution = jm.evaluate(shop.model.with_sharing(sharing), shop.policy)
    block = solution.covariance_of([4], [2, 2, 0])[0]
    assert block[0, 1] == block[0, 0] == solution.covariance[4, 2, 2]
    assert solution.correlation_of([4], [2, 2])[0, 0, 1] == pytest.approx(1)


def test_numbers_out_of_range() -> None:
    """Squares that floats cannot hold are refused; bounds and plans stay calm."""
    model, policy = jm.envs.windy_gridworld(3)
    for factor in (1e-150, 1e150):
        scaled = jm.JointMDP(model.probabilities, model.rewards * factor, model.successors, 0.9)
        with pytest.raises(jm.ModelError, match="rescale"):
            jm.evaluate(scaled, policy)
    with pytest.raises(jm.ModelError, match="starting collection"):
        jm.evaluate(model, policy, jm.Iterate(start=(np.full((9, 4), 1e160), np.zeros((9, 4, 9, 4)))))
    assert bounds.cantelli(1e-170, 0.0) == 0.0
    assert bounds.cantelli(1e170, 1.0) == 0.0
    gap = Gap("s", "a", "b", 1.0, 1.0, 2.0, 0.0, 0.0)
    assert gap.replications(1e-200).paired == math.inf
    with pytest.raises(jm.ModelError, match="seed"):
        jm.simulate(model, policy, 0, [0, 1], seed=2**63, gaps_only=True).gap(0, 1)


def test_variance_reduction_is_infinite_only_when_certain() -> None:
    certain = Gap("s", "a", "b", 1.0, 0.0, 4.0, 0.0, 1e-12)
    assert certain.variance_reduction == math.inf
    unsure = Gap("s", "a", "b", 1.0, 1.8, 8.3, 0.0, 2.7)
    assert unsure.variance_reduction == pytest.approx(8.3 / 1.8)
    nothing_known = Gap("s", "a", "b", 1.0, 1.8, 8.3, 0.0, 9.0)
    assert math.isnan(nothing_known.variance_reduction)


def test_correlation_of_an_unavailable_action_is_nan(shop: jm.results.Solution) -> None:
    assert np.isnan(shop.correlation_of([20], [7])).all()


def test_interval_holds_every_kind_of_number() -> None:
    assert np.int64(3) in jm.Interval(0.0, 5.0)
    assert np.float32(3) in jm.Interval(0.0, 5.0)
    assert "3" not in jm.Interval(0.0, 5.0)
