"""Projections from samples: the same fixed point as from tables, whatever draws them, with errors that hold."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import t
from zoo import daily

import jointmdp as jm
from jointmdp.learning.estimates import Estimate
from jointmdp.learning.projected.feature_learner import PairKind

pytestmark = pytest.mark.optimised

S, A, W, K, REPLICAS = 4, 2, 3, 3, 8
# Errors are half widths at 95 %; a test looks at some 20 numbers and shall raise a false alarm once in 50,000 seeds.
SURE = t.ppf(1 - 5e-7, REPLICAS - 1) / t.ppf(0.975, REPLICAS - 1)
FEATURES = np.random.default_rng(5).normal(size=(S, A, K))
STEPS = 40
OPTIONS: Any = {"replicas": REPLICAS, "batch": 8, "seed": 1}


def small_model(sharing: Any, seed: int = 3, has_end: bool = False) -> tuple[jm.JointMDP, np.ndarray]:
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.ones(W), size=S)
    rewards, successors = rng.normal(size=(S, W, A)), rng.integers(0, S, size=(S, W, A))
    if sharing == "time":
        probabilities[:] = probabilities[0]
    if has_end:
        rewards[S - 1], successors[S - 1] = 0.0, S - 1
    return jm.JointMDP(probabilities, rewards, successors, 0.8, sharing), rng.dirichlet(np.ones(A), size=S)


def agree(found: Estimate, truth: float) -> None:
    assert abs(found.value - truth) <= SURE * found.error + 1e-12
    assert found.error < 2  # an error that says something: the numbers are of this size


@pytest.mark.parametrize(
    ("sharing", "constraint"),
    [
        ("state", "covariance"),
        pytest.param("time", "covariance", marks=pytest.mark.slow),
        pytest.param("none", "covariance", marks=pytest.mark.slow),
        pytest.param("time", "second_moment", marks=pytest.mark.slow),
        pytest.param("none", "second_moment", marks=pytest.mark.slow),
        pytest.param("state", None, marks=pytest.mark.slow),
    ],
)
def test_samples_come_to_the_fixed_point_of_the_tables(sharing: Any, constraint: Any) -> None:
    model, policy = small_model(sharing)
    method = jm.Projected(FEATURES, constraint=constraint, **OPTIONS)
    exact, found = jm.evaluate(model, policy, method), jm.learn(model, policy, method, steps=STEPS)
    assert isinstance(exact, jm.results.ProjectedSolution)
    for s in range(S):
        for a in range(A):
            agree(found.mean_at(s, a), exact.mean[s, a])
            for b in range(a + 1):
                agree(found.covariance_at(s, a, b), exact.covariance[s, a, b])
                agree(found.second_moment_at(s, a, b), exact.second_moment[s, a, b])
        gap, truth = found.gap(s, 0, 1), exact.gap(s, 0, 1)
        assert isinstance(gap, jm.results.LearnedGap)
        agree(Estimate(gap.mean, gap.mean_error), truth.mean)
        agree(Estimate(gap.variance, gap.variance_error), truth.variance)
    agree(found.covariance_between(0, 1, 2, 0), exact.covariance_between(0, 1, 2, 0))
    assert found.updates > 0
    if constraint == "covariance":
        assert np.linalg.eigvalsh(found.covariance_matrix)[0] > -1e-10
    if constraint == "second_moment":
        assert np.linalg.eigvalsh(found.second_moment_matrix)[0] > -1e-10


@pytest.mark.slow
def test_episodes_that_end_are_worth_nothing_there() -> None:
    model, policy = small_model("time", has_end=True)
    exact, found = (
        jm.evaluate(model, policy, jm.Projected(FEATURES)),
        jm.learn(model, policy, jm.Projected(FEATURES, **OPTIONS), steps=STEPS),
    )
    for s in range(S - 1):
        agree(found.mean_at(s, 0), exact.mean[s, 0])
        agree(found.covariance_at(s, 0, 1), exact.covariance[s, 0, 1])
    assert found.mean_at(S - 1, 0) == (0.0, 0.0)
    assert exact.mean[S - 1, 0] == 0.0


def test_pairs_are_visited_as_the_restart_weighting_weighs_them() -> None:
    """Shares of visits against ξ; walks that begin anew are independent, and count as one visit each."""
    model, policy = small_model("state")
    exact = jm.evaluate(model, policy, jm.Projected(FEATURES))
    assert isinstance(exact, jm.results.ProjectedSolution)
    learner = jm.Projected(jm.features.one_hot(), **OPTIONS).learner(model, policy)
    samples = learner._sampled(0, 64)
    kinds = samples.kinds
    assert set(np.unique(kinds)) <= {PairKind.APART, PairKind.SAME_STATE, PairKind.ONE}
    weights = exact.weighting
    one = float(np.einsum("saa->", weights.same))
    shares = {
        PairKind.ONE: one,
        PairKind.SAME_STATE: float(weights.same.sum()) - one,
        PairKind.APART: float(weights.cross.sum()),
    }
    assert math.isclose(sum(shares.values()), 1.0, rel_tol=1e-9)
    walks = kinds.size * (1 - model.discount)  # excursions that begin anew, each 1/(1 − c) steps long
    for kind, share in shares.items():
        seen = float(np.mean(kinds == kind))
        assert abs(seen - share) < 5 * math.sqrt(2 * share * (1 - share) / walks)


@pytest.mark.slow
def test_errors_fall_like_the_root_of_the_samples() -> None:
    model, policy = small_model("time")
    few, many = (jm.learn(model, policy, jm.Projected(FEATURES, **OPTIONS), steps=steps) for steps in (20, 320))
    ratio = few.error / many.error  # 4 in theory; each error comes from 7 degrees of freedom and several numbers
    assert 2 < ratio < 8


@pytest.mark.parametrize("executor", daily(["serial", "processes"]))
@pytest.mark.slow
def test_a_run_is_continued_bit_for_bit_on_any_executor(executor: str, tmp_path: Any) -> None:
    model, policy = small_model("state")
    simulator = jm.simulators.TableSimulator(model)
    method = jm.Projected(FEATURES, replicas=2, batch=4, seed=3)
    whole = jm.learn(simulator, policy, method, steps=12)
    path = tmp_path / "run"
    kept = replace(method, checkpoint=path)
    jm.learn(simulator, policy, kept, steps=5)
    continued = jm.learn(simulator, policy, kept, steps=12)
    spread = jm.learn(simulator, policy, method, steps=12, executor=executor)
    for other in (continued, spread):
        for mine, theirs in zip(whole._sums, other._sums, strict=True):
            assert np.array_equal(mine, theirs)
        assert np.array_equal(whole.theta, other.theta)
    with pytest.raises(jm.ModelError, match="not the same features"):
        jm.learn(simulator, policy, replace(kept, features=FEATURES[:, :, :2]), steps=12)


def continuous_inventory(stock: float, order: float, demand: float) -> tuple[float, float]:
    level = min(stock + order, 12.0)
    sold = min(level, demand)
    return 4.0 * sold - order - 0.3 * (level - sold), level - sold


@pytest.mark.slow
def test_states_that_never_come_twice() -> None:
    """Real stock: memory depends on the features alone, and gaps come out near those of pair Monte Carlo."""
    simulator = jm.FunctionSimulator(
        continuous_inventory,
        lambda rng: rng.gamma(4.0, 1.0),
        start=lambda rng: rng.uniform(0, 12),
        actions=[0, 4],
        discount=0.8,
        reward_bounds=(-8, 48),
    )

    def policy(stock: float) -> list[float]:
        return [0.1, 0.9] if stock < 4 else [0.9, 0.1]

    features = jm.features.polynomial(2, low=0, high=12)
    found = jm.learn(simulator, policy, jm.Projected(features, **OPTIONS), steps=60)
    assert found._sums.pair_gram.shape == (REPLICAS, 3, 21, 21)
    for stock in (1.0, 5.0, 10.0):
        gap = found.gap(stock, 0, 4)
        sample = jm.simulate(simulator, policy, stock, [0, 4], num_samples=400, seed=2, gaps_only=True).gap(0, 4)
        # Quadratics are no perfect fit: half a standard deviation of the gap is what they miss at most here.
        assert abs(gap.mean - sample.mean) < 0.5 * math.sqrt(sample.variance)
        assert 0.5 < gap.std / math.sqrt(sample.variance) < 2
    assert len(found.table()) == 6
    assert "features" in repr(found)


def test_features_that_depend_on_each_other_are_named_and_not_solved() -> None:
    """A flag equals its square: found by a stranger, whose gaps came out with variances of exactly 0."""
    model, policy = small_model("time")
    flag = np.arange(S) % 2
    dependent = np.stack([np.broadcast_to(each[:, None], (S, A)) for each in (np.ones(S), flag, flag**2)], axis=2)
    found = jm.learn(model, policy, jm.Projected(dependent.astype(float), **OPTIONS), steps=12)
    assert found.error == math.inf
    assert "dependent where the samples came" in repr(found)
    for ask in (lambda: found.mean_at(0, 0), lambda: found.gap(0, 0, 1), lambda: found.theta):
        with pytest.raises(jm.ModelError, match=r"1 of 3 features depend.*is a multiple of"):
            ask()


@pytest.mark.slow
def test_a_family_leaves_out_what_samples_do_not_tell_apart() -> None:
    """A flag is its own square wherever samples come: the answer is that of features without the square."""
    flags = [0.0, 1.0, 0.0, 1.0, 1.0, 0.0]
    simulator = jm.FunctionSimulator(
        lambda place, action, noise: (noise + action * flags[place], (place + action + int(noise > 0)) % 6),
        lambda rng: float(rng.normal()),
        start=lambda rng: int(rng.integers(6)),
        actions=2,
        discount=0.8,
        observe=lambda place: (place, flags[place]),
    )
    family = jm.features.polynomial(2, by_action=False, low=[0, 0], high=[5, 1])
    own = jm.features.polynomial(
        1, coordinates=lambda o: [o[0], o[0] ** 2, o[1], o[0] * o[1]], by_action=False, low=0, high=25
    )
    found, plain = (
        jm.learn(simulator, lambda o: [0.3, 0.7], jm.Projected(each, **OPTIONS), steps=12) for each in (family, own)
    )
    assert "6 of 7 features" in repr(found)
    assert found.mean_at(1, 0).value == pytest.approx(plain.mean_at(1, 0).value, rel=1e-6)
    assert found.gap(3, 0, 1).variance == pytest.approx(plain.gap(3, 0, 1).variance, rel=1e-6)
    flags[3] = 0.5
    with pytest.raises(jm.NotKnownError, match="what other features say"):
        found.mean_at(3, 0)


def test_settings_that_do_not_fit_are_named() -> None:
    model, policy = small_model("state")

    def learn(source: Any = model, features: Any = FEATURES, **settings: Any) -> None:
        jm.learn(source, policy, jm.Projected(features, **{**OPTIONS, **settings}), steps=2)

    with pytest.raises(jm.ModelError, match=r"c is 0\.1; a restart weighting needs c between"):
        learn(c=0.1)
    with pytest.raises(jm.ModelError, match='the weighting is "restart"'):
        learn(weighting="stationary")
    with pytest.raises(jm.ModelError, match='the weighting is "restart"'):
        learn(states=[0])
    with pytest.raises(jm.ModelError, match="above memory_limit"):
        learn(memory_limit=1000)
    ended = jm.FunctionSimulator(continuous_inventory, lambda rng: 1.0, start=1.0, actions=[0, 4], discount=1.0)
    with pytest.raises(jm.ModelError, match="a projection contracts only below"):
        learn(ended, jm.features.polynomial(1, low=0, high=12))
    found = jm.learn(model, policy, jm.Projected(FEATURES, replicas=1), steps=2)
    assert found.error == math.inf
    unseen = np.zeros((S, A, 2))
    unseen[..., 0] = 1.0
    started = jm.simulators.TableSimulator(model, start=0)
    unseen[np.setdiff1d(range(S), model.successors[0])[:1], :, 1] = 1.0
    if unseen[..., 1].any():
        learner = jm.Projected(unseen, replicas=2, batch=1, c=0.7).learner(started, policy)
        answer = learner.answer(learner.advance(learner.init(), 1))
        state = int(np.flatnonzero(unseen[:, 0, 1])[0])
        with pytest.raises(jm.ModelError, match="was 0 wherever the samples came"):
            answer.mean_at(state, 0)


def test_a_checkpoint_of_another_policy_or_simulator_is_refused(tmp_path: Any) -> None:
    """Found by a stranger: functions have no content to compare, and the old numbers came back as new ones."""

    def simulator(scale: float) -> jm.FunctionSimulator:
        return jm.FunctionSimulator(
            lambda x, a, noise: (scale * (a - 1) + noise, 0.5 * x + 0.1 * a),
            lambda rng: float(rng.normal()),
            start=lambda rng: float(rng.uniform()),
            actions=3,
            discount=0.8,
        )

    families = jm.Projected(jm.features.polynomial(1, low=0, high=1)), jm.Incremental(reward_bound=9.0)
    for n, family in enumerate(families):
        method: Any = replace(family, replicas=2, batch=2, checkpoint=tmp_path / f"{n}.jmdp")

        def run(scale: float, policy: Any) -> Any:
            return jm.learn(simulator(scale), policy, method, steps=2)  # noqa: B023

        first = run(1.0, lambda x: [1, 0, 0])
        assert run(1.0, lambda x: [1, 0, 0]).updates == first.updates
        for scale, policy in ((1.0, lambda x: [0, 1, 0]), (1.0, 0), (5.0, lambda x: [1, 0, 0])):
            with pytest.raises(jm.ModelError, match="not the same model, simulator or policy"):
                run(scale, policy)


def test_a_policy_that_takes_what_is_not_available_is_refused() -> None:
    simulator = jm.FunctionSimulator(
        lambda x, a, noise: (noise, x), lambda rng: float(rng.normal()), start=0.1, actions=3, discount=0.8,
        available=lambda x: [0, 1],
    )  # fmt: skip
    for policy in (lambda x: [0, 0, 1], lambda x: 2, 2):
        with pytest.raises(jm.ModelError, match="chose action 2, which is not available"):
            jm.simulate(simulator, policy, 0.1, [0, 1], num_samples=4, gaps_only=True).gap(0, 1)
    with pytest.raises(jm.ModelError, match="not available"):
        jm.learn(simulator, lambda x: [0, 0, 1], jm.Projected(jm.features.polynomial(1, low=0, high=1)), steps=2)
