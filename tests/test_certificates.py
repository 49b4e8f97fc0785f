"""Certificates are never violated, and are not vacuous: every claim against rational arithmetic."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import oracle
import pytest
from zoo import SHARINGS, STATE_AND_SLOW, build, cases, padded, slow_or_long

import jointmdp as jm
from jointmdp.exact.moments.certificates import norm_weight
from jointmdp.exact.solution.solution import Solution

QUIET = pytest.mark.filterwarnings("ignore::jointmdp.errors.ConvergenceWarning")


class Judged(NamedTuple):
    """True errors of a solution, as exact as floats can hold them (rounded up)."""

    mean: float
    second: float
    covariance: float


def judge(solution: Solution, exact: oracle.ExactMoments) -> Judged:
    second = exact.second
    blocks = np.stack([second[s, :, s, :] for s in range(len(second))])
    return Judged(
        oracle.max_abs_error(solution.mean, exact.mean),
        oracle.max_abs_error(solution.second_moment, blocks),
        oracle.max_abs_error(solution.covariance, exact.covariance_blocks()),
    )


def assert_sound(solution: Solution, exact: oracle.ExactMoments) -> Judged:
    true, claimed = judge(solution, exact), solution.certificate
    assert true.mean <= claimed.mean_error
    assert true.second <= claimed.second_moment_error
    assert true.covariance <= claimed.covariance_error
    # Each coordinate's own share, across states too.
    shares, model = claimed.covariance_shares, solution.model
    for s, a in np.argwhere(model.available):
        for t, b in np.argwhere(model.available):
            truth = exact.covariance(s, a, t, b)
            found = oracle.rational(solution.covariance_between(s, a, t, b))
            assert abs(float(found - truth)) <= (shares[s, a] + shares[t, b]) * (1 + 1e-12)
    for s in range(model.num_states):
        a, *others = np.flatnonzero(model.available[s])
        for b in others[:1]:
            gap = solution.gap(s, a, b)
            variance = exact.covariance(s, a, s, a) + exact.covariance(s, b, s, b) - 2 * exact.covariance(s, a, s, b)
            assert abs(float(oracle.rational(gap.variance) - variance)) <= gap.variance_error
            mean = exact.mean[s, a] - exact.mean[s, b]
            assert abs(float(oracle.rational(gap.mean) - mean)) <= gap.mean_error
    return true


def methods(rng: np.random.Generator, discount: float) -> Iterator[jm.Iterate | jm.Solve]:
    """The default, an early stop, a late one, and iteration far past stagnation."""
    yield jm.Solve()
    yield jm.Iterate(tolerance=None, max_steps=int(rng.integers(0, 40)))
    yield jm.Iterate(tolerance=None, max_steps=int(40 / (1 - discount) if discount < 0.95 else rng.integers(40, 400)))


def check_random_models(seed: int, count: int, is_daily: bool = False) -> None:
    """By day in one shape, that of many other tests."""
    shapes = ((3, 3, 3),) if is_daily else ((2, 2, 2), (3, 3, 3))
    rng = np.random.default_rng(seed)
    for case in cases(seed, count, shapes=shapes, discounts=(0.1, 0.5, 0.9, 0.99, 0.999)):
        exact = oracle.exact_moments(*case)
        model = build(case)
        for method in methods(rng, case.discount):
            assert_sound(jm.evaluate(model, case.policy, method), exact)


@QUIET
@pytest.mark.optimised
@pytest.mark.parametrize("seed", slow_or_long(range(10), 1))
def test_never_violated(seed: int) -> None:
    """50 random models × three stopping points, 5 of them in the everyday tests and 15 in the slow ones."""
    check_random_models(seed, 5, is_daily=seed == 0)


@QUIET
@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 125))
def test_never_violated_many(seed: int) -> None:
    """1,000 more, 40 of them in the slow tests."""
    check_random_models(seed, 40)


@QUIET
@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
def test_never_violated_on_awkward_scales(sharing: str) -> None:
    """Rewards that are tiny, huge, mixed, or large and nearly equal."""
    rng = np.random.default_rng(4)
    for case in cases(4, 4, shapes=((3, 3, 3),), sharings=(sharing,)):
        for change in (
            lambda R: R * 1e-8,
            lambda R: R * 1e8,
            lambda R: R * 10.0 ** rng.integers(-6, 7, R.shape),
            lambda R: 1e6 + R,
        ):
            odd = case._replace(rewards=np.asarray(change(case.rewards), dtype=np.float64))
            assert_sound(jm.evaluate(build(odd), odd.policy), oracle.exact_moments(*odd))


@pytest.mark.slow
def test_stagnated_iteration_has_zero_residual_and_a_positive_bound() -> None:
    """Where float iteration stands still its residual is exactly zero; only the rounding term keeps the claim true."""
    stagnated = violated_without = 0
    for case in cases(21, 12, shapes=((2, 2, 2), (3, 3, 3)), discounts=(0.5, 0.9)):
        solution = jm.evaluate(build(case), case.policy, jm.Iterate(tolerance=None, max_steps=900))
        true = assert_sound(solution, oracle.exact_moments(*case))
        if solution.history[-1] == 0:
            stagnated += 1
            violated_without += max(true.mean, true.second) > 0
    assert stagnated >= 3
    assert violated_without >= 1


@pytest.mark.parametrize("sharing", SHARINGS)
def test_horizon_certificate(sharing: str) -> None:
    """Rounding over T sweeps, against T exact backups from zero."""
    for seed in range(4):
        case = oracle.random_model(np.random.default_rng(seed), 2, 2, 2, discount=0.9, sharing=sharing)
        solution = jm.evaluate(build(case), case.policy, horizon=3)
        law = oracle.finite_horizon_law(*case[:6], (0, 0), (0, 1), 3)
        first, other = (sum(p * z[i] for z, p in law.items()) for i in (0, 1))
        covariance = sum(p * z * y for (z, y), p in law.items()) - first * other
        assert abs(float(oracle.rational(float(solution.mean[0, 0])) - oracle.rational(first))) <= (
            solution.certificate.mean_error
        )
        off = oracle.rational(float(solution.covariance[0, 0, 1])) - oracle.rational(covariance)
        assert abs(float(off)) <= solution.certificate.covariance_error


@QUIET
def test_true_residual_is_within_the_theorems_factor() -> None:
    """With the residual on all of X², bound/error ≤ (1+γ)/(1−γ) in ‖·‖_λ as long as rounding is negligible."""
    checked = 0
    for case in cases(31, 30, shapes=((3, 3, 3),), discounts=(0.5, 0.9, 0.99), sharings=("state", "time")):
        model, g = build(case), case.discount
        if not model.available.all():
            continue  # the exact residual runs over unavailable coordinates too
        solution = jm.evaluate(model, case.policy, jm.Iterate(tolerance=None, max_steps=10))
        exact = oracle.exact_moments(*case)
        weight = norm_weight(model.reward_bound, g)
        second = oracle.max_abs_error(solution.moments.second, exact.second)
        error = max(oracle.max_abs_error(solution.mean, exact.mean), second / weight)
        if error < 1e-9:
            continue
        assert solution.certificate.residual / (1 - g) <= (1 + g) / (1 - g) * error * (1 + 1e-6)
        checked += 1
    assert checked >= 10


@pytest.mark.slow
def test_state_level_bound_is_not_vacuous() -> None:
    """Certified over true covariance error of solutions stopped early: median and worst; the median must not grow."""
    factors = []
    for case in cases(41, 60, shapes=((3, 3, 3),), discounts=(0.5, 0.9, 0.99), sharings=("state", "time")):
        with pytest.warns(jm.errors.ConvergenceWarning):
            solution = jm.evaluate(build(case), case.policy, jm.Solve(max_sweeps=1, relative_tolerance=1e-14))
        true = judge(solution, oracle.exact_moments(*case)).covariance
        if true > 1e-10:
            factors.append(solution.certificate.covariance_error / true)
    print(f"state-level bound over true error: median {np.median(factors):.1f}, worst {max(factors):.0f}")
    assert len(factors) >= 20
    assert np.median(factors) < 25


def test_local_bounds_stay_small_near_discount_one() -> None:
    """An absorbing goal adds no error: the certificate of the gridworld hardly depends on the discount."""
    errors = []
    for discount in (0.9, 0.99, 0.999, 0.9999):
        solution = jm.evaluate(*jm.envs.windy_gridworld(5, discount=discount))
        errors.append(solution.certificate.covariance_error / np.max(solution.variance))
    assert max(errors) < 1e-9


def test_rows_that_almost_sum_to_one() -> None:
    """A policy row over many actions may be off by many roundings; the bound counts those that matter."""
    actions = 1000
    successors = np.zeros((2, 1, actions), dtype=int)
    successors[:, :, 1] = 1
    rewards = np.zeros((2, 1, actions))
    rewards[0] = 1.0
    policy = np.zeros((2, actions))
    policy[:, 0], policy[:, 1] = 0.5, 0.5 + actions * 2**-52 * 0.9
    for discount in (0.5, 0.99):
        model = jm.JointMDP(np.ones((2, 1)), rewards, successors, discount)
        solution = jm.evaluate(model, policy)
        exact = oracle.exact_moments(np.ones((2, 1)), rewards[:, :, :2], successors[:, :, :2], discount, policy[:, :2])
        assert oracle.max_abs_error(solution.mean[:, :2], exact.mean) <= solution.certificate.mean_error
        found = solution.covariance_of(range(2), [0, 1])
        assert oracle.max_abs_error(found, exact.covariance_blocks()) <= solution.certificate.covariance_error


def test_common_scenarios_are_one_law() -> None:
    """Rows that differ by rounding become the first one, for means and pairs alike."""
    rows = np.array([[0.5, 0.5], [0.5 + 4e-13, 0.5 - 4e-13]])
    model = jm.JointMDP(rows, [[[1.0, 2], [3, 5]]] * 2, [[[0, 1], [1, 0]]] * 2, 0.9, "time")
    assert np.array_equal(model.probabilities, [[0.5, 0.5]] * 2)


@QUIET
def test_impossible_rewards_do_not_matter() -> None:
    """A reward of 1e12 in a scenario of probability 0 changes neither answer nor certificate."""
    case = padded(oracle.random_model(np.random.default_rng(2), 3, 2, 3, discount=0.9), 3, 3, 3)
    assert not case.probabilities[:, 2].any()
    plain, decoy = case.rewards.copy(), case.rewards.copy()
    plain[:, 2], decoy[:, 2] = 0, 1e12
    for arguments in ({}, {"method": jm.Iterate()}, {"horizon": 5}):
        found, reference = (
            jm.evaluate(build(case._replace(rewards=rewards)), case.policy, **arguments) for rewards in (decoy, plain)
        )
        np.testing.assert_allclose(found.covariance, reference.covariance, rtol=1e-12)
        assert found.certificate.covariance_error <= 10 * reference.certificate.covariance_error


def test_several_classes_near_discount_one() -> None:
    """Two absorbing classes with different values: one offset centres only one, and errors stay local all the same."""
    rewards = np.array([[[1.0, 1.0]], [[3.0, 3.0]], [[0.0, 0.5]]])
    successors = np.array([[[0, 0]], [[1, 1]], [[0, 1]]])
    for policy in (np.full((3, 2), 0.5), np.eye(2)[[0, 1, 1]]):
        case = padded(oracle.RandomModel(np.ones((3, 1)), rewards, successors, 0.999, policy, "state", None), 3, 3, 3)
        solution = jm.evaluate(build(case), case.policy)
        assert solution.status.is_success


NEAR_ONE = (1 - 1e-3, 1 - 1e-6, 1 - 1e-9)


def hostile(seed: int, count: int) -> Iterator[oracle.RandomModel]:
    """Random models near γ = 1: cycles, periodic chains, several classes, states that pay nothing, wide rewards."""
    rng = np.random.default_rng(seed)
    s = np.arange(4)[:, None, None]
    for i in range(count):
        case = oracle.random_model(
            rng, 4, 3, 2, discount=NEAR_ONE[i % 3], sharing=SHARINGS[i // 3 % 3], deterministic=bool(rng.integers(2))
        )
        N, R = case.successors, case.rewards.copy()
        kinds = (
            (s + 1 + 0 * N) % 4,
            (s + 1 + 2 * (N % 2)) % 4,
            N % 2 + 2 * (s >= 2),
            np.where(s >= 2, s, N),
            np.where(s == 3, 3, N),
        )
        N = kinds[i % len(kinds)]
        R[3] *= rng.integers(2)
        R = R * 10.0 ** rng.integers(-6, 7, R.shape) if rng.integers(2) else R
        yield case._replace(successors=N, rewards=R, available=np.ones((4, 2), dtype=bool))


@QUIET
@pytest.mark.parametrize("seed", slow_or_long(range(12), 1))
@pytest.mark.slow
def test_never_violated_near_discount_one(seed: int) -> None:
    """γ up to 1 − 1e-9, every pair and gap against rational arithmetic; 8 models by day, 90 slow, 240 long."""
    for case in hostile(300 + seed, 30 if seed else 8):
        assert_sound(jm.evaluate(build(case), case.policy), oracle.exact_moments(*case))


@pytest.mark.slow
def test_certified_errors_of_gaps_do_not_know_the_discount() -> None:
    """Geometric stopping beside a state that pays for ever, and a ring: no cliff, and no 1/(1−γ)."""
    size = 4
    here, rng = np.arange(size)[:, None, None], np.random.default_rng(0)
    ring = (here + np.array([[1, 2], [-1, 0]])) % size
    coins = rng.normal(size=(size, 2, 2))
    stop = np.where(here == 3, 3, np.where(here == 0, np.array([[0, 0], [1, 1]]), 1))
    paid = np.where(here == 0, coins, 1.0 * (here == 3))
    for successors, rewards in ((ring, coins), (stop, paid)):
        for discount in NEAR_ONE:
            model = jm.JointMDP(np.full((size, 2), 0.5), rewards, successors, discount)
            gap = jm.evaluate(model, jm.envs.uniform_policy(model), order=4).gap(0, 0, 1)
            assert gap.mean_error < 1e-12 * gap.std
            assert all(gap.central_moment_error(k) < 1e-9 * gap.std**k for k in (2, 3, 4))


def test_chances_below_the_range_of_floats() -> None:
    """A step of probability 1e-200 · 1e-200 leads to a large reward: no state counts as one where nothing is paid."""
    rewards, successors = np.zeros((2, 2, 2)), np.zeros((2, 2, 2), dtype=int)
    successors[0, 1, 1] = successors[1] = 1
    rewards[1] = 1e99
    case = oracle.RandomModel(
        np.array([[1.0, 1e-200]] * 2), rewards, successors, 0.5, np.array([[1.0, 1e-200]] * 2), "state", None
    )
    case = case._replace(available=np.ones((2, 2), dtype=bool))
    assert_sound(jm.evaluate(build(case), case.policy), oracle.exact_moments(*case))
