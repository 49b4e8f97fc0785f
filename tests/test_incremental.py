"""Learning from samples: it converges, at the stated rate, with honest errors; wrong rules do not."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from oracle_incremental import RULES, loop, shared_draws
from zoo import SHARINGS, build, daily, random_model, slow_or_long

import jointmdp as jm
from benchmarks import incremental as benchmark
from jointmdp.exact.bellman.sample_backups import MeansAndPairs, Sample, powers
from jointmdp.ground.arrays import float64
from jointmdp.learning.estimates import Replicas
from jointmdp.learning.incremental import recursion as engine
from jointmdp.learning.incremental.learned import Learned
from jointmdp.learning.incremental.learners import TableLearner
from jointmdp.learning.learn import learn

Polynomial = jm.Incremental.Polynomial

pytestmark = pytest.mark.usefixtures("quick_compilation")

# Each combination compiles programs of its own, so that a few stand for all of them every day.
DAILY = {"gridworld state", "long chain time", "random none", "uniform none", "trajectory time", "pairs state"}


def with_sharing(names: list[str]) -> list:
    """All combinations of a name and a kind of sharing; every name and every kind are among the slow tests."""
    slow, long = pytest.mark.slow, pytest.mark.long
    return [
        pytest.param(
            name,
            sharing,
            marks=() if f"{name} {sharing}" in DAILY else long if (i + k) % 3 else slow,
            id=f"{name}-{sharing}",
        )
        for i, name in enumerate(names)
        for k, sharing in enumerate(SHARINGS)
    ]


CHOSEN = ("trajectory", "uniform")
TRUTH = 1e-7  # to which the truth itself is iterated
FAMILY = 1e-6  # false alarms of one test that looks at all coordinates of a run


def case(seed: int, sharing: str, discount: float = 0.6, shape: tuple[int, int, int] = (3, 3, 2)):  # type: ignore[no-untyped-def]
    """A random asymmetric model with negative rewards, where the policy has a choice everywhere."""
    found = random_model(np.random.default_rng(seed), *shape, discount=discount, sharing=sharing)
    policy = np.random.default_rng(seed + 1).dirichlet(np.ones(shape[2]) * 3, size=shape[0])
    return found._replace(policy=policy)


def check_all(found: Replicas, truth: np.ndarray) -> None:
    """Every number lies within its interval, at the level of the family of all of them."""
    count = len(found.values)
    noise = found.values.std(axis=0, ddof=1) / np.sqrt(count)
    most = scipy.stats.t.ppf(1 - FAMILY / 2 / truth.size, count - 1) * noise + found.bias_bound
    most += TRUTH * (1 + np.abs(truth))
    off = np.abs(found.mean - truth)
    assert np.all(off <= most), f"{np.mean(off > most):.1%} are off, the worst by {np.max(off / most):.1f} intervals"


def pairs(learned: Learned, i: int = 1, j: int = 1) -> Replicas:
    """E[Z(x)ⁱ Z(y)ʲ] of all pairs."""
    size = len(learned._moments.mean.bias_bound)
    return learned._moments.at(i, j, *np.indices((size, size)))


def exact(model: jm.JointMDP, policy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means ``[X]`` and second moments ``[X, X]`` of available coordinates."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jm.errors.ConvergenceWarning)
        solution = jm.evaluate(model, policy, jm.Iterate(tolerance=TRUTH))
    size = model.num_states * model.num_actions
    keep = np.flatnonzero(model.available)
    return solution.mean.ravel()[keep], solution.moments.second.reshape(size, size)[np.ix_(keep, keep)]


# -- step sizes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "condition"),
    [
        (0.1, "Σ α² = ∞"),
        (lambda n: 0.1 + 0 * n, "Σ α² = ∞"),
        (lambda n: 0.1, "Σ α² = ∞"),
        (lambda n: 1 / n**0.5, "Σ α² = ∞"),
        (lambda n: 1 / n**1.1, "Σ α < ∞"),
        (lambda n: 2.0**-n, r"step sizes lie in \(0, 1\]"),  # underflows to 0
        (lambda n: 2 / n, r"α\(1\) = 2"),
        (lambda n: -1 / n, r"α\(1\) = -1"),
        (lambda n: [1 / k for k in n.tolist()], "jax.numpy"),
        ("fast", "must be Incremental.Polynomial"),
    ],
)
def test_schedules_that_break_a_condition_are_refused_by_its_name(schedule: object, condition: str) -> None:
    model, policy = jm.envs.coupled_reward_chain(3)
    with pytest.raises(jm.ModelError, match=condition):
        TableLearner(model, policy, jm.Incremental(schedule=schedule))


@pytest.mark.parametrize(("power", "condition"), [(0.5, "Σ α² = ∞"), (0.0, "Σ α² = ∞"), (1.01, "Σ α < ∞")])
def test_powers_outside_of_robbins_and_monro_are_refused(power: float, condition: str) -> None:
    with pytest.raises(jm.ModelError, match=condition):
        Polynomial(power)


@pytest.mark.parametrize(
    "schedule", daily([lambda n: 1 / n, lambda n: 1 / (1 + n) ** 0.51, lambda n: 5 / (9 + n) ** 0.8])
)
def test_functions_that_meet_the_conditions_are_taken(schedule: Callable[[int], float]) -> None:
    model, policy = jm.envs.coupled_reward_chain(3)
    learner = TableLearner(model, policy, jm.Incremental(schedule=schedule))
    first = learner.init()
    sample = learner.draw(first)
    after, _ = learner.step(first, sample)
    assert isinstance(after.values, MeansAndPairs)
    # From zero the first step goes the share α(1) of the way to the rewards: one product, rounded twice at most.
    np.testing.assert_allclose(
        after.values.mean, schedule(1) * np.asarray(sample.rewards), rtol=4 * np.finfo(float).eps
    )


def test_the_default_schedule_in_numbers() -> None:
    """Near 1 for ten effective horizons, then n^(−0.65)."""
    schedule = Polynomial.for_discount(0.9)
    n = np.array([1, 100, 10**8, 2 * 10**8])
    np.testing.assert_allclose(schedule(n), (100 / (100 + n)) ** 0.65)
    assert np.log2(schedule(n)[2] / schedule(n)[3]) == pytest.approx(0.65, abs=1e-5)


@pytest.mark.slow
def test_a_users_function_is_what_is_used() -> None:
    model, policy = jm.envs.coupled_reward_chain(3)

    def values(schedule: Any) -> np.ndarray:
        return learn(model, policy, jm.Incremental(schedule=schedule, replicas=4), steps=20)._moments.pair.values

    polynomial = values(Polynomial(0.8, 5.0, 2.0))
    np.testing.assert_allclose(polynomial, values(lambda n: jnp.minimum(1.0, 2 / (5 + n) ** 0.8)), rtol=1e-12)
    assert not np.allclose(polynomial, values(Polynomial.for_discount(0.99)))


# -- the recursion against plain loops ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sharing", "order"), [("state", 2), ("none", 4), pytest.param("time", 3, marks=pytest.mark.slow)]
)
def test_sweeps_are_the_recursion_written_out(sharing: str, order: int) -> None:
    """Three steps by plain loops over coordinates, from the samples that the learner draws."""
    found = case(0, sharing, shape=(2, 2, 2))
    schedule = Polynomial(0.7, 4.0)
    options = jm.Incremental(order=order, schedule=schedule, replicas=8, averaging=1.0, burn_in=0)
    learner = TableLearner(build(found), found.policy, options)
    state = learner.init()
    X, held = 4, powers(order)
    mean = np.asarray(state.values.mean[3]).copy()
    pair = {power: np.asarray(state.values.pair[3, k]).reshape(X, X).copy() for k, power in enumerate(held)}
    average = {power: np.zeros((X, X)) for power in held}
    for n in (1, 2, 3):
        sample = learner.draw(state)
        r, to = np.asarray(sample.rewards[3]), np.asarray(sample.nexts[3])
        state, info = learner.step(state, sample)
        alpha, share = float(schedule(n)), 2 / (n + 1)
        old = {power: values.copy() for power, values in pair.items()}
        before = mean.copy()
        for x in range(X):
            mean[x] += alpha * (r[x] + found.discount * before[to[x]] - mean[x])
            for y in range(X):
                for i, j in held:
                    draw = (r[x], r[y], to[x], to[y])
                    target = loop(order, sharing, found.discount, before, old, x, y, draw, i, j)
                    pair[i, j][x, y] += alpha * (target - pair[i, j][x, y])
                    average[i, j][x, y] += share * (pair[i, j][x, y] - average[i, j][x, y])
        assert info.step == n
        assert info.updated == 8 * (X + len(held) * X * X)
    for k, power in enumerate(held):
        np.testing.assert_allclose(state.values.pair[3, k].reshape(X, X), pair[power], rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(state.averages.pair[3, k].reshape(X, X), average[power], rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(state.values.mean[3], mean, rtol=1e-12)


def test_coordinates_named_several_times_are_updated_once_with_the_mean() -> None:
    """Lists (x,y), (x,y), (y,x) and (x,x), with counts so far that differ; against the sentence of the docs."""
    model, policy = jm.envs.coupled_reward_chain(3, discount=0.9)
    schedule = Polynomial(0.7, 4.0)
    options = jm.Incremental(coordinates="uniform", batch=4, replicas=1, schedule=schedule, averaging=0.0, burn_in=0)
    learner = TableLearner(model, policy, options)
    state, X = learner.init(), 6
    rng = np.random.default_rng(0)
    values = state.values._replace(mean=rng.normal(size=(1, X)), pair=rng.normal(size=(1, 1, X * X)))
    visits = engine.Visits(np.full((1, X), 2, dtype=np.int32), rng.integers(5, size=(1, X * X), dtype=np.int32))
    state = state._replace(values=values, averages=values, visits=visits)
    x, y = 1, 4
    lists = [(x, y), (x, y), (y, x), (x, x)]
    outcomes = [((1.0, 2.0), (3, 5)), ((-1.0, 0.5), (0, 0)), ((0.25, 4.0), (2, 1)), ((7.0, 7.0), (5, 5))]
    sample = Sample(
        np.array([lists], dtype=np.int32),
        np.array([[rewards for rewards, _ in outcomes]]),
        np.array([[nexts for _, nexts in outcomes]], dtype=np.int32),
    )
    after, info = learner.step(state, sample)
    m, M, g = values.mean[0], values.pair[0, 0].reshape(X, X), 0.9
    goals: dict[tuple[int, int], list[float]] = {}
    means: dict[int, list[float]] = {}
    for pair, (r, to) in zip(lists, outcomes, strict=True):
        for p in range(2):
            means.setdefault(pair[p], []).append(r[p] + g * m[to[p]])
            for q in range(2):
                target = r[p] * r[q] + g * (r[p] * m[to[q]] + r[q] * m[to[p]]) + g * g * M[to[p], to[q]]
                goals.setdefault((pair[p], pair[q]), []).append(target)
    expected, expected_mean = M.copy(), m.copy()
    for z, targets in goals.items():
        alpha = float(schedule(visits.pair[0].reshape(X, X)[z] + 1))
        expected[z] += alpha * (np.mean(targets) - M[z])
    for z, targets in means.items():
        expected_mean[z] += float(schedule(3)) * (np.mean(targets) - m[z])
    np.testing.assert_allclose(after.values.pair[0, 0].reshape(X, X), expected, rtol=1e-12)
    np.testing.assert_allclose(after.values.mean[0], expected_mean, rtol=1e-12)
    grown = np.asarray(after.visits.pair[0]).reshape(X, X) - visits.pair[0].reshape(X, X)
    assert {tuple(map(int, z)) for z in np.argwhere(grown == 1)} == set(goals)
    assert grown.sum() == len(goals)
    assert info.updated == len(goals) + 2


@pytest.mark.slow
def test_lists_do_the_work_of_the_loops_that_they_are_timed_against() -> None:
    """Values, averages, bias bounds and counts after four steps of the benchmark's loop, fed with the same numbers."""
    model, policy = jm.envs.coupled_reward_chain(3, discount=0.99)
    X, R, batch, steps = 6, 2, 12, 4
    options = jm.Incremental(coordinates="uniform", batch=batch, replicas=R, seed=3, averaging=2.0, burn_in=0)
    learner = TableLearner(model, policy, options)
    first = learner.init()
    numbers = []
    with float64():
        for k in range(steps):
            scenario, action, coordinate = engine._uniforms(learner._settings, learner._source, first, k)
            numbers.append(np.concatenate([coordinate, scenario, action], axis=2))

    class Scripted:
        left = np.ravel(numbers).tolist()

        def random(self) -> float:
            return self.left.pop(0)

    most = model.reward_bound / (1 - 0.99)
    means, pairs = np.zeros((R, X, 4)), np.zeros((R, X, X, 4))
    means[..., 2:], pairs[..., 2:] = most, most**2
    visits = np.zeros((R, X), dtype=int), np.zeros((R, X, X), dtype=int)
    benchmark.listed(benchmark.tables_of(model, policy), means, pairs, visits, batch, steps, Scripted())
    assert not Scripted.left
    state = learner.advance(first, steps)
    # A place is named at most 2 · 12 times in a step, and each time costs less than ten roundings.
    rounding = steps * 2 * batch * 10 * np.finfo(float).eps
    for k, part in enumerate((state.values, state.averages, state.bias_bounds, state.average_bias_bounds)):
        scale = most if k >= 2 else np.abs(means[..., k]).max()
        np.testing.assert_allclose(part.mean, means[..., k], rtol=0, atol=rounding * scale)
        scale = most**2 if k >= 2 else np.abs(pairs[..., k]).max()
        np.testing.assert_allclose(part.pair.reshape(R, X, X), pairs[..., k], rtol=0, atol=rounding * scale)
    np.testing.assert_array_equal(state.visits.mean, visits[0])
    np.testing.assert_array_equal(state.visits.pair.reshape(R, X, X), visits[1])


@pytest.mark.parametrize("choice", ["sweep", "trajectory"])
@pytest.mark.slow
def test_steps_one_by_one_are_the_compiled_loop(choice: str) -> None:
    """Up to rounding, as the two are compiled apart; the loop itself does not depend on how it is portioned."""
    found = case(3, "state")
    learner = TableLearner(build(found), found.policy, jm.Incremental(coordinates=choice, batch=3, replicas=4, seed=5))
    state = learner.init()
    for _ in range(7):
        state, _ = learner.step(state, learner.draw(state))
    whole = learner.advance(learner.init(), 7)
    pieces = learner.advance(learner.advance(learner.init(), 3), 4)
    for one, two, three in zip(*map(jax.tree.leaves, (state, whole, pieces)), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(two, three)


# -- it converges ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "sharing"), with_sharing(["gridworld", "chain", "long chain", "random"]))
@pytest.mark.slow
def test_sweeps_converge_to_the_exact_moments(name: str, sharing: str) -> None:
    """All means and all pairs, distinct states included, within the intervals; false alarm 1e-6 a model."""
    if name == "random":
        found = case(8, sharing, shape=(4, 3, 3))
        model, policy = build(found), found.policy
    else:
        makers = {"gridworld": (jm.envs.windy_gridworld, 3), "chain": (jm.envs.coupled_reward_chain, 5)}
        make, size = makers.get(name, (jm.envs.coupled_reward_chain, 25))
        model, policy = make(size, discount=0.9)
        model = model.with_sharing(sharing)
    learned = learn(model, policy, jm.Incremental(replicas=32, seed=2), steps=600)
    mean, second = exact(model, policy)
    check_all(learned._moments.mean, mean)
    check_all(pairs(learned), second)
    # The intervals are narrow: small against the spread of returns.
    assert np.nanmax(learned.mean_error) < 0.1 * np.sqrt(np.nanmax(learned.covariance))


@pytest.mark.parametrize(("choice", "sharing"), with_sharing(["uniform", "trajectory", "pairs"]))
@pytest.mark.slow
def test_other_choices_of_coordinates_converge_where_they_go(choice: str, sharing: str) -> None:
    found = case(4, sharing)
    model = build(found)
    options = jm.Incremental(coordinates=choice, batch=8, replicas=16, seed=1, restart=0.3)
    learned = learn(model, found.policy, options, steps=1500)
    mean, second = exact(model, found.policy)
    check_all(learned._moments.mean, mean)
    check_all(pairs(learned), second)
    # Whatever the choice, coordinates of one state are updated often, and little of the start is left in them.
    x, y = np.nonzero(np.kron(np.eye(3), np.ones((2, 2))))
    assert np.all(learned._visits[1][:, x, y] >= 200)
    assert np.all(learned._moments.pair.bias_bound[0][x, y] < 0.02 * np.abs(second).max())


@pytest.mark.parametrize("sharing", slow_or_long(SHARINGS, 1))
@pytest.mark.slow
def test_third_order_of_pairs_and_of_all_triples(sharing: str) -> None:
    """Pairs against the exact evaluation, all triples against the iteration of T₃."""
    found = case(6, sharing, shape=(2, 3, 2))
    model = build(found)
    options = jm.Incremental(order=3, replicas=32)
    learned = learn(model, found.policy, options, steps=1500)
    solution = jm.evaluate(model, found.policy, order=3)
    x, y = np.nonzero(np.kron(np.eye(2), np.ones((2, 2))))
    for i, j in powers(3):
        check_all(pairs(learned, i, j)[x, y], solution.moment(i, j)[x // 2, x % 2, y % 2])
    joint: Any = learn(model, found.policy, replace(options, joint=True), steps=1500)
    truth = jm.joint_moments(model, found.policy, 3)
    for k in (1, 2, 3):
        labels = [tuple((x // 2, x % 2) for x in row) for row in joint.tuples(k).tolist()]
        check_all(joint._order(k), np.array([truth.moment(*label) for label in labels]))
    estimate = joint.moment((0, 0), (0, 1), (1, 0))
    assert estimate.value == pytest.approx(joint[3][[set(label) for label in labels].index({(0, 0), (0, 1), (1, 0)})])


@pytest.mark.slow
@pytest.mark.parametrize("sharing", slow_or_long(SHARINGS, 1))
@pytest.mark.optimised
def test_error_after_a_stated_number_of_updates(sharing: str) -> None:
    """docs/incremental.md: the 3×3 gridworld at γ = 0.99, 10,000 sweeps of 8 replicas, 1.07e8 updates."""
    model, policy = jm.envs.windy_gridworld(3)
    model = model.with_sharing(sharing)
    mean, second = exact(model, policy)
    for seed in range(3):
        learned = learn(model, policy, jm.Incremental(seed=seed), steps=10_000)
        assert learned.updates == 8 * 10_000 * (36 + 36**2)
        assert np.max(np.abs(learned._moments.mean.mean - mean)) < 0.05
        assert np.max(np.abs(pairs(learned).mean - second)) < 10.0
        assert learned.error < 0.05


# -- at the stated rate ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("averaging", [True, False])
@pytest.mark.slow
@pytest.mark.optimised
def test_the_error_falls_with_the_stated_exponent(averaging: bool) -> None:
    """n^(−1/2) for averaged iterates, √α(n) for the last one, over 256 independent runs.

    A root mean square over 256 independent runs has a relative standard deviation of at most 1/√512, whatever the
    correlation of coordinates (that of χ² with 256 degrees of freedom; errors are close to normal after so many steps).
    Two of them, however dependent, move the slope by at most 4 · 2/√512 / log 32 in four standard deviations: 0.10.
    """
    found = case(9, "state", discount=0.5, shape=(2, 2, 2))
    model = build(found)
    learner = TableLearner(model, found.policy, jm.Incremental(replicas=256, averaging=averaging, seed=4))
    mean, second = exact(model, found.policy)
    early, late = 400, 12_800
    sizes, state = [], learner.init()
    for n in (early, late):
        state = learner.advance(state, n - int(state.step))
        got = learner.answer(state)._moments
        off = got.mean.values - mean, got.pair.values[:, 0] - second
        sizes.append([np.sqrt(np.mean(part**2)) for part in off])
    slopes = np.log(np.divide(sizes[1], sizes[0])) / np.log(late / early)
    alpha = Polynomial.for_discount(0.5)(np.array([early, late]))
    expected = -0.5 if averaging else np.log(alpha[1] / alpha[0]) / 2 / np.log(late / early)
    band = 4 * 2 / np.sqrt(512) / np.log(late / early)
    assert band < 0.11
    assert np.all(np.abs(slopes - expected) < band), slopes
    if not averaging:
        assert np.all(slopes > -0.45)  # different from the averaged rate


@pytest.mark.slow
def test_one_over_n_is_as_slow_as_the_docs_say() -> None:
    """With α(n) = 1/n and no noise at all, a start is forgotten like n^(−(1−γ))."""
    model = jm.JointMDP([[1.0]], [[[1.0]]], [[[0]]], 0.9)
    learner = TableLearner(model, [[1.0]], jm.Incremental(replicas=1, averaging=False, schedule=Polynomial(1.0)))
    errors, state = [], learner.init()
    for n in (1000, 4000):
        state = learner.advance(state, n - int(state.step))
        errors.append(10 - float(learner.answer(state).mean[0, 0]))
    # Π (1 − (1−γ)/k) = Γ(n+γ)/(Γ(γ)Γ(n+1)) ~ n^(−(1−γ)), up to a relative O(1/n).
    assert np.log(errors[0] / errors[1]) / np.log(4) == pytest.approx(0.1, abs=1e-3)


# -- with honest errors ------------------------------------------------------------------------------------------


def coverage_at(model: jm.JointMDP, policy: np.ndarray, times: list[int], with_bias: bool = True) -> list[np.ndarray]:
    """The fraction of 256 runs of 8 replicas whose intervals hold the truth, for all coordinates at each time."""
    runs = 256
    learner = TableLearner(model, policy, jm.Incremental(replicas=8 * runs, seed=11))
    state = learner.init()
    mean, second = exact(model, policy)
    truth = np.concatenate([mean, second.ravel()])
    found = []
    for n in times:
        state = learner.advance(state, n - int(state.step))
        held = learner.answer(state)._moments
        values = np.concatenate([held.mean.values, held.pair.values[:, 0].reshape(8 * runs, -1)], axis=1)
        bias = np.concatenate([held.mean.bias_bound, held.pair.bias_bound[0].ravel()])
        split = np.moveaxis(values.reshape(runs, 8, -1), 1, 0)
        each = Replicas(split, np.broadcast_to(bias * with_bias, split.shape[1:]))
        found.append(np.mean(np.abs(each.mean - truth) <= each.error + 1e-12 * np.abs(truth), axis=0))
    return found


@pytest.mark.slow
@pytest.mark.optimised
def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """95 % at every coordinate, less four standard deviations of 256 runs; early, in between and late."""
    found = case(5, "state", discount=0.9, shape=(2, 2, 2))
    low = 0.95 - 4 * np.sqrt(0.95 * 0.05 / 256)
    for coverage in coverage_at(build(found), found.policy, [3, 30, 300, 3000]):
        assert np.all(coverage >= low), coverage
    # Late intervals are not too wide either: they miss now and then.
    assert np.mean(coverage) < 0.98


@pytest.mark.slow
def test_without_the_bias_bound_early_intervals_would_lie() -> None:
    """The guard of the test above: replicas that start alike agree long before they are right."""
    model, policy = jm.envs.windy_gridworld(2, discount=0.9)
    with_bias, without = (coverage_at(model, policy, [20], bias)[0] for bias in (True, False))
    assert np.all(with_bias > 0.89)
    assert np.mean(without) < 0.5


@pytest.mark.parametrize("choice", ["sweep", "uniform"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.slow
def test_without_noise_the_bias_bound_is_what_is_missing(choice: str, sign: float) -> None:
    """The worst case, a reward that is always R_max: the start is as far away as it can be, and all error is bias."""
    model = jm.JointMDP([[1.0]], [[[sign]]], [[[0]]], 0.9)
    learner = TableLearner(model, [[1.0]], jm.Incremental(replicas=2, coordinates=choice, order=4, batch=1))
    state = learner.init()
    # Rounding in the bound: at most 49 units of 10⁴ for each of the 4 times that a list names the place, 100 times.
    for n in (1, 2, 10, 100):
        state = learner.advance(state, n - int(state.step))
        answer = learner.answer(state)
        np.testing.assert_allclose(sign * 10 - answer.mean[0, 0], sign * answer.mean_error[0, 0], rtol=1e-9, atol=1e-9)
        for i, j in powers(4):
            missing = abs(sign ** (i + j) * 10 ** (i + j) - answer.moment(i, j)[0, 0, 0])
            assert missing == pytest.approx(answer.moment_error(i, j)[0, 0, 0], rel=1e-9, abs=1e-7)


@pytest.mark.slow
def test_the_bias_bound_of_lists_is_that_of_their_own_rewards() -> None:
    """Where rewards are mostly small, what each coordinate knows of its own is less than the bound for all."""
    model = jm.JointMDP([[1.0], [1.0]], [[[1.0]], [[0.0]]], [[[1]], [[1]]], 0.9)
    learned = learn(model, [[1.0], [1.0]], jm.Incremental(coordinates="uniform", replicas=2), steps=30)
    sweeps = learn(model, [[1.0], [1.0]], jm.Incremental(replicas=2), steps=30)
    assert np.all(learned._moments.pair.bias_bound < sweeps._moments.pair.bias_bound)
    assert np.all(np.abs(learned.mean[:, 0] - [1.0, 0.0]) <= learned.mean_error[:, 0] + 1e-12)


@pytest.mark.slow
def test_products_are_unbiased_and_their_spread_is_right() -> None:
    """Jackknifed products of two means of 8 normals: on average the product, at 95 % coverage; 4,000 trials.

    The standard error of a coverage over 4,000 trials is 0.0034; the plain product of noisy squares is off by 1/8.
    """
    rng = np.random.default_rng(0)
    u = 2.0 + rng.normal(size=(8, 4000))
    v = 3.0 + 0.5 * u + rng.normal(size=(8, 4000))
    found = Replicas(u, np.zeros(4000)).times(Replicas(v, np.zeros(4000)))
    truth = 2.0 * 4.0
    error = np.std(found.mean) / np.sqrt(4000)
    assert abs(np.mean(found.mean) - truth) < 4 * error
    assert abs(np.mean(u.mean(axis=0) * v.mean(axis=0)) - truth - 0.5 / 8) < 4 * error
    assert np.mean(np.abs(found.mean - truth) <= found.error) == pytest.approx(0.95, abs=0.015)


# -- wrong rules do not ------------------------------------------------------------------------------------------


def played(rule: str, discount: float) -> tuple[Replicas, np.ndarray]:
    """Second moments ``[X, X]`` of the chain with three states after 1,500 steps of samples drawn by a rule."""
    model, policy = jm.envs.coupled_reward_chain(3, discount=discount)
    learner = TableLearner(model, policy, jm.Incremental(coordinates="uniform", batch=36, replicas=8))
    state = learner.init()
    xs = [(s, a) for s in range(3) for a in range(2)]
    both = [(x, y) for x in range(6) for y in range(6)]
    shared = [shared_draws(_table(model, policy), [xs[x], xs[y]], rule) for x, y in both]
    owner = np.array([[[names.index(name) for name in names] for names in pair] for pair in shared])  # [36, 2, 2]
    lists = np.array(both, dtype=np.int32)
    rng = np.random.default_rng(3)
    s, a = lists // 2, lists % 2
    for _ in range(1500):
        uniform = np.take_along_axis(rng.random((8, 36, 2)), owner[None, :, 0].repeat(8, 0), axis=2)
        choice = np.take_along_axis(rng.random((8, 36, 2)), owner[None, :, 1].repeat(8, 0), axis=2)
        w = (uniform >= 0.5).astype(int)
        nexts = 2 * model.successors[s, w, a] + (choice >= 0.5)
        sample = Sample(np.broadcast_to(lists, nexts.shape), model.rewards[s, w, a], nexts.astype(np.int32))
        state, _ = learner.step(state, jax.tree.map(np.ascontiguousarray, sample))
    return pairs(learner.answer(state)), exact(model, policy)[1]


def _table(model: jm.JointMDP, policy: np.ndarray):  # type: ignore[no-untyped-def]
    found = case(0, "state")
    return found._replace(probabilities=model.probabilities, rewards=model.rewards, policy=policy)


@pytest.mark.parametrize("rule", RULES[:3])
@pytest.mark.slow
@pytest.mark.optimised
def test_wrong_rules_converge_to_something_else(rule: str) -> None:
    """The chain pays ±1 by a coin: independent next actions on the diagonal, or one coin for all states, are seen."""
    values, second = played(rule, 0.8)
    if rule == "right":
        check_all(values, second)
    else:
        with pytest.raises(AssertionError):
            check_all(values, second)


# -- what a person sees ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_visits_list_what_was_never_or_rarely_updated() -> None:
    model, policy = jm.envs.coupled_reward_chain(4)
    sweeps = {row.kind: row for row in learn(model, policy, jm.Incremental(replicas=4), steps=40).visits}
    assert {kind: (row.coordinates, row.never, row.fewest) for kind, row in sweeps.items()} == {
        "mean": (8, 0, 40),
        "diagonal": (8, 0, 40),
        "same state": (8, 0, 40),
        "distinct states": (48, 0, 40),
    }
    learned = learn(model, policy, jm.Incremental(replicas=4, coordinates="pairs", batch=4, start=2), steps=40)
    rows = {row.kind: row for row in learned.visits}
    # On the chain branches that began together stay together, and nobody goes back to the first two states.
    assert rows["distinct states"].never == 48
    assert rows["mean"].never == 4
    assert "(s0, a1)" in str(rows["mean"])
    # Of what was never visited nothing is known: all of its range is its error.
    np.testing.assert_allclose(learned.mean_error[:2], 100.0)
    assert np.all(learned.mean_error[2:] < 105.0)  # the range and the spread
    assert np.all(learned.mean_error[3] < 95.0)
    assert learned.error == np.max(learned.mean_error)


def test_early_answers_tolerance_and_log() -> None:
    model, policy = jm.envs.coupled_reward_chain(3, discount=0.8)
    seen = [(answer.steps, answer.error) for answer in jm.Incremental(replicas=8).answers(model, policy, steps=200)]
    assert [steps for steps, _ in seen] == [10, 15, 22, 32, 46, 68, 100, 147, 200]
    assert seen[-1][1] < seen[0][1]
    tolerance = seen[5][1] * 1.0001
    early = learn(model, policy, steps=200, tolerance=tolerance)
    assert early.steps == next(steps for steps, error in seen if error <= tolerance) < 200
    assert [row["step"] for row in early.log] == [steps for steps, _ in seen if steps <= early.steps]
    assert [row["error"] for row in early.log] == [error for steps, error in seen if steps <= early.steps]
    assert learn(model, policy, steps=10**9, seconds=0.2).steps < 10**9
    assert "order 2" in repr(early)
    gap = early.gap(0, 0, 1)
    assert gap.mean_interval.width == pytest.approx(2 * gap.mean_error)
    assert gap.variance_interval == pytest.approx(
        (max(0.0, gap.variance - gap.variance_error), gap.variance + gap.variance_error)
    )
    none = early.gap(0, 0, 0)
    assert (none.variance, none.variance_error) == (0.0, 0.0)
    # Numbers 0 and 3 are the coordinates (0, 0) and (1, 1).
    product = early.second_moment_between(0, 0, 1, 1)
    assert product.value == pytest.approx(float(early._moments.pair.values[:, 0, 0, 3].mean()))


@pytest.mark.parametrize(
    "sharing", ["state", *(pytest.param(each, marks=pytest.mark.slow) for each in ("time", "none"))]
)
def test_answers_at_a_place_are_those_of_the_arrays(sharing: str) -> None:
    """Means, second moments, covariances and gaps of one state, asked for one by one or all at once.

    Both come from the same four replicas and differ in the order of sums: fewer than a hundred roundings of numbers no
    larger than the square of the largest return.
    """
    found = random_model(np.random.default_rng(3), 3, 2, 3, discount=0.5, sharing=sharing, unavailable=True)
    model = build(found)
    learned = learn(model, found.policy, jm.Incremental(replicas=4), steps=20)
    rounding = 100 * np.finfo(float).eps * (1 + model.reward_bound / (1 - model.discount)) ** 2

    def check(answer: tuple[float, float], value: float, error: float) -> None:
        np.testing.assert_allclose(answer, (value, error), rtol=0, atol=rounding)

    C = learned.covariance
    for s in range(3):
        for a in np.flatnonzero(model.available[s]).tolist():
            check(learned.mean_at(s, a), learned.mean[s, a], learned.mean_error[s, a])
            for b in np.flatnonzero(model.available[s]).tolist():
                second = learned.second_moment_at(s, a, b)
                check(second, learned.second_moment[s, a, b], learned.second_moment_error[s, a, b])
                assert second == learned.second_moment_between(s, a, s, b)
                covariance = learned.covariance_at(s, a, b)
                check(covariance, C[s, a, b], learned.covariance_error[s, a, b])
                assert covariance == learned.covariance_between(s, a, s, b)
                gap = learned.gap(s, a, b)
                assert isinstance(gap, jm.results.LearnedGap)
                assert abs(gap.mean - (learned.mean[s, a] - learned.mean[s, b])) <= rounding
                # Products by the jackknife are linear in each factor, so this holds for estimates too.
                assert abs(gap.variance - (C[s, a, a] + C[s, b, b] - C[s, a, b] - C[s, b, a])) <= 4 * rounding
                assert gap.std == np.sqrt(max(0.0, gap.variance))


def test_every_source_has_its_type_of_answer() -> None:
    model, policy = jm.envs.coupled_reward_chain(3, discount=0.5)
    options = jm.Incremental(batch=2)
    tables = learn(model, policy, options, steps=10)
    states = learn(jm.simulators.TableSimulator(model), policy, options, steps=10)
    joint: Any = learn(model, policy, replace(options, joint=True), steps=10)
    assert (type(tables), type(states), type(joint)) == (
        jm.results.Learned,
        jm.results.LearnedStates,
        jm.results.LearnedJoint,
    )
    assert [type(answer) for answer in options.answers(model, policy, steps=10)] == [jm.results.Learned]
    # Sweeps of one seed draw the same for pairs and for all tuples: the moments agree up to the order of sums.
    np.testing.assert_allclose(joint[1], tables.mean.ravel(), rtol=1e-12, atol=1e-12)
    assert joint.moment((0, 0), (0, 1)).value == pytest.approx(tables.second_moment[0, 0, 1], rel=1e-12, abs=1e-12)


def test_two_moments_say_what_they_do_not_know() -> None:
    model, policy = jm.envs.coupled_reward_chain(3, discount=0.5)
    gap = learn(model, policy, steps=10).gap(0, 1, 0)
    assert isinstance(gap, jm.results.GapLike)
    assert (gap.action, gap.other) == ("a2", "a1")
    for ask, words in (
        (gap.superiority, "P(better)"),
        (gap.tie, "P(tie)"),
        (lambda: gap.quantile(0.1), "the 0.1-quantile"),
        (lambda: gap.cvar(0.25), "the mean of the lowest 25%"),
    ):
        with pytest.raises(jm.NotKnownError) as caught:
            ask()
        assert str(caught.value).startswith(f"{words} of a2 − a1 is not known")


@pytest.mark.slow
def test_unavailable_actions_are_left_out() -> None:
    found = random_model(np.random.default_rng(3), 3, 2, 3, discount=0.5, unavailable=True)
    model = build(found)
    learned = learn(model, found.policy, jm.Incremental(replicas=32), steps=300)
    solution = jm.evaluate(model, found.policy)
    np.testing.assert_array_equal(np.isnan(learned.mean), ~found.available)
    np.testing.assert_array_equal(np.isnan(learned.second_moment), np.isnan(solution.second_moment))
    mean, second = exact(model, found.policy)
    check_all(learned._moments.mean, mean)
    check_all(pairs(learned), second)
    options = jm.Incremental(replicas=16, coordinates="trajectory", batch=8)
    check_all(learn(model, found.policy, options, steps=500)._moments.mean, mean)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"order": 1}, "order is 1"),
        ({"replicas": 0}, "replicas is 0"),
        ({"coordinates": "random"}, '"uniform"'),
        ({"averaging": -1.0}, "averaging is -1"),
        ({"restart": 2.0}, "restart"),
        ({"memory_limit": 100.0}, "memory_limit"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], words: str) -> None:
    for joint in (False, True):
        with pytest.raises(jm.ModelError, match=words):
            learn(*jm.envs.coupled_reward_chain(3), jm.Incremental(**options, joint=joint))


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"steps": 0}, "steps is 0"),
        ({"tolerance": 0.0}, "tolerance is 0"),
        ({"seconds": -1.0}, "seconds is -1"),
    ],
)
def test_bad_limits_are_refused(limits: dict[str, Any], words: str) -> None:
    for joint in (False, True):
        with pytest.raises(jm.ModelError, match=words):
            learn(*jm.envs.coupled_reward_chain(3), jm.Incremental(joint=joint), **limits)


@pytest.mark.parametrize("method", [{"replicas": 2}, {}, 3, "sweep", jm.Incremental, jm.Solve()])
def test_methods_of_another_type_are_refused(method: Any) -> None:
    words = r"method must be jointmdp\.Incremental\(\.\.\.\), .*, not |Solve\(…\) solves equations of tables"
    with pytest.raises(jm.ModelError, match=words):
        learn(*jm.envs.coupled_reward_chain(3), method)


def test_misspelt_options_are_refused() -> None:
    model, policy = jm.envs.coupled_reward_chain(3)
    with pytest.raises(TypeError, match="stepps"):
        learn(model, policy, stepps=3)
    with pytest.raises(TypeError, match="stepps"):
        jm.Incremental(stepps=3)


def test_joint_moments_are_learned_in_sweeps_of_tables() -> None:
    model, policy = jm.envs.coupled_reward_chain(3)
    with pytest.raises(jm.ModelError, match='in sweeps, not coordinates="pairs"'):
        learn(model, policy, jm.Incremental(coordinates="pairs", joint=True))
    with pytest.raises(jm.ModelError, match="must be a JointMDP, not"):
        learn(jm.simulators.TableSimulator(model), policy, jm.Incremental(joint=True))


def test_bad_models_are_refused() -> None:
    model, policy = jm.envs.coupled_reward_chain(3)
    with pytest.raises(jm.ModelError, match="discount is 1"):
        learn(model.with_discount(1.0), policy)
    with pytest.raises(jm.ModelError, match="come with a policy"):
        learn((model, policy), policy)
    with pytest.raises(jm.ModelError, match="held are"):
        learn(model, policy, steps=1).moment(2, 1)


def test_a_single_replica_has_no_error() -> None:
    learned = learn(*jm.envs.coupled_reward_chain(3), jm.Incremental(replicas=1), steps=10)
    assert np.all(np.isinf(learned.mean_error))
    assert learned.error == np.inf
    assert learned.log[-1]["error"] is None


@pytest.mark.slow
def test_new_numbers_compile_nothing() -> None:
    """Another model of the same shape, another discount, seed, schedule and number of steps: the same programs."""

    def work(seed: int) -> None:
        found = case(seed, "state", discount=0.5 + seed / 50, shape=(3, 2, 2))
        options = jm.Incremental(seed=seed, replicas=4, batch=4)
        sweeps = replace(options, schedule=Polynomial(0.6 + seed / 100, 1.0), averaging=1.0 + seed)
        lists = replace(options, coordinates="pairs", restart=0.1 + seed / 100)
        for each in (sweeps, lists):
            learn(build(found), found.policy, each, steps=20 + seed)

    work(0)
    sizes = engine.advance._cache_size()
    assert sizes > 0
    for seed in range(1, 4):
        work(seed)
    assert engine.advance._cache_size() == sizes


@pytest.mark.slow
@pytest.mark.parametrize("choice", slow_or_long(["trajectory", "pairs", "uniform"], 1))
@pytest.mark.optimised
def test_walkers_leave_no_bias(choice: str) -> None:
    """The mean of many replicas is as far from the truth as its own noise and bias bound say, at every coordinate.

    If walkers followed the draws of the updates, means would be off by a standard deviation of one replica, 8 of the
    errors of the mean of 64.
    """
    model, policy = jm.envs.windy_gridworld(3, discount=0.9)
    learned = learn(model, policy, jm.Incremental(coordinates=choice, batch=8, replicas=64, seed=1), steps=1000)
    mean, second = exact(model, policy)
    check_all(learned._moments.mean, mean)
    assert learned._visits is not None
    seen = (learned._visits[1] > 0).all(axis=0)
    check_all(learned._moments.pair[0, seen], second[seen])


@pytest.mark.parametrize("choice", ["sweep", pytest.param("pairs", marks=pytest.mark.slow)])
def test_where_nothing_is_random_rounding_is_the_error(choice: str) -> None:
    """Replicas agree to the last bit and the start is forgotten: the error is not zero, and the truth is within it."""
    model = jm.JointMDP([[1.0]], [[[0.7, -0.3]]], [[[0, 0]]], discount=0.5)
    learned = learn(model, [0], jm.Incremental(coordinates=choice, batch=1, replicas=2, averaging=False), steps=4000)
    truth = np.array([1.4, 0.4])  # 0.7/(1 − 0.5), and −0.3 + 0.5 · 1.4
    assert np.all(np.ptp(learned._moments.mean.values, axis=0) < 1e-14)
    # 16 roundings of 1.4 a step, of which 1/(α (1 − γ)) steps are remembered; α(4000) = (20/4020)^0.65 = 0.032.
    assert np.all(learned.mean_error[0] < 2 * 16 * 2**-53 * 1.4 / (0.032 * 0.5))
    assert np.all(np.abs(learned.mean[0] - truth) <= learned.mean_error[0])
    assert np.all(np.abs(learned.second_moment[0] - np.outer(truth, truth)) <= learned.second_moment_error[0])


@pytest.mark.slow
def test_rewards_that_were_not_seen_are_allowed_for() -> None:
    """A reward of 1 once in 500: 800 updates see it 1.6 times, and 0.2 of the runs never; the interval holds it.

    Of 30 runs more than 9 misses have probability below 1e-5 at 95 %. Where all is certain nothing is added.
    """
    model = jm.JointMDP([[0.002, 0.998]], [[[1, 0], [0, 0]]], [[[0, 0], [0, 0]]], discount=0.5, sharing="time")
    missed = 0
    for seed in range(30):
        gap = jm.learn(model, [0], jm.Incremental(seed=seed), steps=100).gap(0, 0, 1)
        missed += 0.002 not in gap.mean_interval
        assert gap.mean_error > 0
        assert gap.variance_error > 0
    assert missed <= 9
    certain = jm.JointMDP([[1.0]], [[[1, 0]]], [[[0, 0]]], discount=0.5, sharing="time")
    assert jm.learn(certain, [0], steps=100).gap(0, 0, 1).mean_error < 1e-6
