"""Policies that depend on time: every answer is that of the model with time in its states, and that of enumeration."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from zoo import daily

import jointmdp as jm
from jointmdp.ground.checks import Sharing

Floats = NDArray[np.float64]
T, S, A, W = 3, 3, 2, 2


def models(count: int, sharing: str, seed: int = 0) -> list[tuple[jm.JointMDP, Floats]]:
    """Random models and policies `[T, S, A]`; every action is taken somewhere."""
    found = []
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        chances = rng.dirichlet(np.ones(W), size=S)
        if sharing == "time":
            chances = np.tile(chances[:1], (S, 1))
        rewards, to = rng.integers(-3, 4, (S, W, A)).astype(float), rng.integers(0, S, (S, W, A))
        discount = float(rng.choice([0.5, 0.9, 1.0]))
        found.append((jm.JointMDP(chances, rewards, to, discount, sharing), rng.dirichlet(np.ones(A), size=(T, S))))
    return found


def with_time(model: jm.JointMDP, policy: Floats) -> tuple[jm.JointMDP, Floats]:
    """State s at step t is t·S + s, by loops."""
    size = T * S + 1
    chances, rewards, to = np.zeros((size, W)), np.zeros((size, W, A)), np.full((size, W, A), size - 1)
    rows = np.full((size, A), 1 / A)
    for t, s in itertools.product(range(T), range(S)):
        at = t * S + s
        chances[at], rewards[at], rows[at] = model.probabilities[s], model.rewards[s], policy[t, s]
        if t + 1 < T:
            to[at] = (t + 1) * S + model.successors[s]
    chances[-1] = model.probabilities[0]
    return jm.JointMDP(chances, rewards, to, model.discount, model.sharing), rows


def gap_law(model: jm.JointMDP, policy: Floats, s: int, a: int, b: int) -> dict[float, float]:
    """P(gap) by enumerating the scenarios and actions of both branches."""
    found: dict[float, float] = {}

    def go(t: int, x: int, y: int, i: int, j: int, chance: float, gap: float, one: bool) -> None:
        if t == T or one:
            found[round(gap, 9)] = found.get(round(gap, 9), 0.0) + chance
            return
        shares = model.sharing == "time" or (model.sharing == "state" and x == y)
        for w, u in itertools.product(range(W), range(W)):
            if shares and w != u:
                continue
            p = chance * model.probabilities[x, w] * (1.0 if shares else model.probabilities[y, u])
            more = gap + model.discount**t * (model.rewards[x, w, i] - model.rewards[y, u, j])
            x2, y2 = int(model.successors[x, w, i]), int(model.successors[y, u, j])
            for k, m in itertools.product(range(A), range(A)):
                if t + 1 == T:
                    go(T, x2, y2, 0, 0, p / A**2, more, False)
                elif x2 == y2 and model.sharing != "none":  # in one state: who draws the same is one
                    q = policy[t + 1, x2, k] * policy[t + 1, y2, m]
                    go(t + 1, x2, y2, k, m, p * q, more, k == m)
                else:
                    go(t + 1, x2, y2, k, m, p * policy[t + 1, x2, k] * policy[t + 1, y2, m], more, False)

    go(0, s, s, a, b, 1.0, 0.0, a == b)
    return found


@pytest.mark.slow  # a long compilation, and enumeration says the same every day
@pytest.mark.parametrize("sharing", ["time", "state", "none"])
def test_moments_of_all_orders_are_those_of_the_model_with_time(sharing: str) -> None:
    for model, policy in models(3, sharing):
        whole, rows = with_time(model, policy)
        found = jm.evaluate(model, policy, order=3, horizon=T)
        true = jm.evaluate(whole, rows, order=3, horizon=T)
        assert found.mean == pytest.approx(true.mean[:S], abs=1e-12)
        assert found.covariance == pytest.approx(true.covariance[:S], abs=1e-11)
        assert found.central_moment(1, 2) == pytest.approx(true.central_moment(1, 2)[:S], abs=1e-10)
        for s in range(S):
            gap, other = found.gap(s, 0, 1), true.gap(s, 0, 1)
            for k in range(1, 4):
                off = gap.moment_error(k) + other.moment_error(k)
                assert abs(gap.moment(k) - other.moment(k)) <= off < 1e-8, (s, k)
        assert found.covariance_between(0, 0, 1, 1) == pytest.approx(true.covariance_between(0, 0, 1, 1), abs=1e-11)


@pytest.mark.parametrize("sharing", daily(["state", "time", "none"]))
def test_moments_and_laws_are_those_of_enumeration(sharing: str) -> None:
    for model, policy in models(3, sharing, seed=1):
        found = jm.evaluate(model, policy, order=3, horizon=T)
        for s in range(S):
            gap, law = found.gap(s, 0, 1), gap_law(model, policy, s, 0, 1)
            values, chances = np.array(list(law)), np.array(list(law.values()))
            assert chances.sum() == pytest.approx(1)
            for k in range(1, 4):
                assert gap.moment(k) == pytest.approx(chances @ values**k, abs=1e-9)
            assert gap.superiority().lower - 1e-12 <= chances[values > 1e-9].sum() <= gap.superiority().upper + 1e-12
            assert gap.tie().lower - 1e-12 <= chances[np.abs(values) <= 1e-9].sum() <= gap.tie().upper + 1e-12
            assert gap.variance_by_step().values.sum() == pytest.approx(gap.variance, abs=1e-9)
            assert gap.variance_by_state().values.sum() == pytest.approx(gap.variance, abs=1e-9)


def test_a_policy_that_is_the_same_at_all_times_is_that_policy() -> None:
    for model, policy in models(2, "state", seed=2):
        same = np.tile(policy[0], (T, 1, 1))
        one, two = (jm.evaluate(model, each, order=3, horizon=T) for each in (policy[0], same))
        assert np.array_equal(one.mean, two.mean)
        assert np.array_equal(one.covariance, two.covariance)
        assert one.gap(0, 0, 1).central_moment(3) == two.gap(0, 0, 1).central_moment(3)
        signs, others = one.signs(), two.signs()
        assert signs.better[0] == pytest.approx(others.better[0])
        assert signs.better[0].shape == (S, A, A)


def test_functions_names_files_and_reports(tmp_path: Path) -> None:
    shop, _ = jm.envs.inventory()
    found = jm.evaluate(shop, lambda day, stock: max((5 if day < 2 else 7) - stock, 0), horizon=T)
    rows = jm.envs.timed_policy(shop, lambda day, stock: max((5 if day < 2 else 7) - stock, 0), T)
    assert found.policy.shape == rows.shape == (T, shop.num_states, shop.num_actions)
    assert np.array_equal(found.policy, rows)
    jm.save(found, tmp_path / "found.npz")
    again = jm.load(tmp_path / "found.npz")
    assert np.array_equal(again.policy, found.policy)
    assert np.array_equal(again.covariance, found.covariance, equal_nan=True)
    assert again.horizon == T
    assert found.to_xarray().policy.dims == ("step", "state", "action")
    best = found.best_action("stock 4", ["order 0", "order 3", "order 5"], num_samples=2000)
    assert best.mean == pytest.approx([found.mean[4, a] for a in (0, 3, 5)])


@pytest.mark.parametrize("sharing", daily(["time", "state", "none"]))
def test_simulations_follow_the_policy_of_each_step(sharing: str) -> None:
    (model, policy), *_ = models(1, sharing, seed=5)
    found = jm.evaluate(model, policy, horizon=T)
    run = jm.simulate(model, policy, 0, [0, 1], horizon=T, num_samples=20_000)
    # Five standard errors: one false alarm in a million.
    gap, sampled = found.gap(0, 0, 1), run.gap(0, 1)
    assert np.all(np.abs(run.mean - found.mean[0]) <= 5 * np.sqrt(found.variance[0] / 20_000))
    assert abs(sampled.mean - gap.mean) <= 5 * gap.std / np.sqrt(20_000)
    assert np.var(run.returns[:, 0] - run.returns[:, 1]) == pytest.approx(gap.variance, rel=0.1)
    asked = jm.simulate(model, lambda t, s: policy[t, s], 0, [0, 1], horizon=T, num_samples=20_000)
    assert np.array_equal(run.returns, asked.returns)
    whole, rows = with_time(model, policy)
    same = jm.simulate(whole, rows, 0, [0, 1], horizon=T, num_samples=20_000)
    assert run.returns == pytest.approx(same.returns, abs=1e-12)


@pytest.mark.slow
def test_policies_by_time_are_compared() -> None:
    (model, policy), *_ = models(1, "time", seed=6)
    found = jm.compare(
        model, policies={"early": policy, "always": policy[0]}, state=0, horizon=T, max_replications=4096
    )
    whole, rows = with_time(model, policy)
    means = [
        float(each[0, 0] @ jm.evaluate(whole, np.concatenate([each.reshape(-1, A), rows[-1:]]), horizon=T).mean[0])
        for each in (policy, np.tile(policy[:1], (T, 1, 1)))
    ]
    gap = found.gap("early", "always")
    assert gap.mean_interval.lower <= means[0] - means[1] <= gap.mean_interval.upper


@pytest.mark.filterwarnings("ignore:Pairing saves nothing")  # that is so in this random model
@pytest.mark.parametrize("sharing", daily(["time", "state"]))
@pytest.mark.slow
def test_simulators_keep_the_time(sharing: Sharing) -> None:
    """A function of (time, observation), an array and the exact answer of the same model."""
    (model, policy), *_ = models(1, sharing, seed=9)

    def step(s: int, action: int, u: float) -> tuple[float, int]:
        w = int(u >= model.probabilities[s, 0])
        return float(model.rewards[s, w, action]), int(model.successors[s, w, action])

    game = jm.FunctionSimulator(
        step, lambda rng: rng.random(), start=0, actions=A, discount=model.discount, sharing=sharing
    )
    exact = jm.evaluate(model, policy, horizon=T).gap(0, 0, 1)
    by_array, by_function = (
        jm.simulate(game, each, None, [0, 1], horizon=T, num_samples=2000)
        for each in (policy, lambda t, s: policy[t, s])
    )
    assert np.array_equal(by_array.returns, by_function.returns)
    assert abs(by_array.gap(0, 1).mean - exact.mean) <= 5 * exact.std / np.sqrt(2000)  # one false alarm in a million
    seen: list[tuple[int, int]] = []
    late = {"late": lambda time, s: seen.append((time, s)) or int(time == 2), "never": lambda s: 0}
    jm.compare(game, policies=late, horizon=T, max_replications=64)
    assert {time for time, _ in seen} == {0, 1, 2}  # and not the end
    with pytest.raises(jm.ModelError, match="horizon of at most"):
        jm.simulate(game, policy, None, horizon=T + 1)
    with pytest.raises(jm.ModelError, match="horizon of at most"):
        jm.simulate(game, policy, None)
    with pytest.raises(jm.ModelError, match="nothing here keeps that"):
        game.walk(lambda t, s: 0, 3)


def test_what_has_no_horizon_is_refused() -> None:
    (model, policy), *_ = models(1, "state", seed=7)
    with pytest.raises(jm.ModelError, match="depends on time"):
        jm.evaluate(model, policy)
    with pytest.raises(jm.ModelError, match="depends on time"):
        jm.evaluate(model, lambda t, s: 0)
    with pytest.raises(jm.ModelError, match="rows for 3 steps, and the horizon is 4"):
        jm.evaluate(model, policy, horizon=4)
    with pytest.raises(jm.ModelError, match="needs a horizon"):
        jm.simulate(model, policy, 0)
    with pytest.raises(jm.ModelError, match="depends on time"):
        jm.evaluate(model, {"a": policy, "b": policy[0]})
    assert jm.simulate(model, lambda seen, rng: rng.integers(A), 0, horizon=T, num_samples=4).steps == T
    with pytest.raises(jm.ModelError, match="at step 1: "):
        jm.evaluate(model, np.where(np.arange(T)[:, None, None] == 1, 2 * policy, policy), horizon=T)
