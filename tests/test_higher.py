"""Moments of order above two against rational arithmetic, closed forms, enumerated laws and simulation."""

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import oracle
import pytest
from oracle import rational
from oracle_pairs import PairOracle
from zoo import SHARINGS, STATE_AND_SLOW, build, cases, daily, slow_or_long

import jointmdp as jm
from jointmdp.exact.solution import evaluate as methods
from jointmdp.exact.solution.solution import Solution

QUIET = pytest.mark.filterwarnings("ignore::jointmdp.errors.ConvergenceWarning")


def gaps(solution: Solution) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """All ordered pairs of distinct available actions in one state, as coordinates."""
    for s in range(solution.model.num_states):
        actions = np.flatnonzero(solution.model.available[s]).tolist()
        yield from (((s, a), (s, b)) for a in actions for b in actions if a != b)


def assert_gaps_are_true(solution: Solution, exact: PairOracle, relative: float | None = 1e-8) -> list[float]:
    """Every gap moment within its certified error and within `relative` of σᵏ; how far the bounds reach beyond σᵏ.

    Where there is no variance, what rounding leaves is compared with a deviation of 1e-8 of the largest return.
    """
    reach = []
    least = 1e-8 * max(float(exact.moment(x, x, 2, 0)) for x in exact.model.coordinates) ** 0.5
    for x, y in gaps(solution):
        gap = solution.gap(x[0], x[1], y[1])
        std = float(exact.central_gap(x, y, 2)) ** 0.5
        for k in range(exact.order + 1):
            truth = exact.central_gap(x, y, k)
            error = abs(rational(gap.central_moment(k)) - truth)
            assert error <= rational(gap.central_moment_error(k)), (x, y, k)
            assert abs(rational(gap.moment(k)) - exact.gap(x, y, k)) <= rational(gap.moment_error(k)), (x, y, k)
            if relative is not None:
                assert float(error) <= relative * max(abs(float(truth)), (std + least) ** k), (x, y, k)
            if std > 0 and k >= 2:
                reach.append(gap.central_moment_error(k) / std**k)
    return reach


def assert_pairs_are_true(solution: Solution, exact: PairOracle, orders: Iterator[tuple[int, int]]) -> None:
    """`moment` and `central_moment` to 1e-8 of the largest of their order, and NaN just where they should be."""
    model = solution.model
    exists = model.available[:, :, None] & model.available[:, None, :]
    for i, j in orders:
        for found, truth in ((solution.moment(i, j), exact.moment), (solution.central_moment(i, j), exact.central)):
            assert found.shape == exists.shape
            assert np.array_equal(np.isfinite(found), exists)
            # The natural size of a moment of order i + j: that of even order above, of one return.
            even = i + j + (i + j) % 2
            size = 1.0
            if i + j > 0:
                even = min(even, exact.order - exact.order % 2)
                tops = [abs(float(truth(x, x, even, 0))) for x in exact.model.coordinates]
                size = max(tops) ** ((i + j) / even)
            # Where nothing is left to chance, what remains is the rounding of each return, to that power.
            rounding = (4 * 2.0**-53 * model.reward_bound / (1 - min(model.discount, 0.999))) ** (i + j)
            for s, a, b in np.argwhere(exists).tolist():
                assert abs(found[s, a, b] - float(truth((s, a), (s, b), i, j))) <= 1e-8 * size + rounding


def orders_up_to(n: int) -> Iterator[tuple[int, int]]:
    return ((i, j) for i in range(n + 1) for j in range(n + 1 - i))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_order_six_agrees_with_rational_arithmetic(seed: int) -> None:
    """Tiny models of every kind, γ from 0.1 to 0.99: gaps, raw and central moments of all pairs up to order 6."""
    for case in cases(200 + seed, 3, shapes=((2, 2, 2),)):
        exact = PairOracle(case, 6)
        solution = jm.evaluate(build(case), case.policy, order=6)
        assert solution.order == 6
        assert solution.status is jm.errors.Status.CONVERGED
        assert_gaps_are_true(solution, exact)
        assert_pairs_are_true(solution, exact, orders_up_to(6))


def coarse(case: oracle.RandomModel) -> oracle.RandomModel:
    """The model in sixteenths: rationals stay short, and exact arithmetic quick."""

    def rows(weights: np.ndarray) -> np.ndarray:
        counts = np.round(16 * weights.astype(np.float64))
        counts[np.arange(len(counts)), counts.argmax(axis=1)] += 16 - counts.sum(axis=1)
        return counts / 16

    rewards = np.round(16 * case.rewards.astype(np.float64)) / 16
    return case._replace(probabilities=rows(case.probabilities), policy=rows(case.policy), rewards=rewards)


@pytest.mark.slow
@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
def test_order_four_agrees_with_rational_arithmetic(sharing: str) -> None:
    """Three states, scenarios and actions."""
    rng = np.random.default_rng(9)
    for discount in (0.5, 0.9375):
        case = coarse(oracle.random_model(rng, 3, 3, 3, discount=discount, sharing=sharing))
        case = case._replace(policy=np.array([[8, 4, 4], [4, 4, 8], [1, 12, 3]]) / 16)
        exact = PairOracle(case, 4)
        solution = jm.evaluate(build(case), case.policy, order=4)
        assert_gaps_are_true(solution, exact)
        assert_pairs_are_true(solution, exact, iter([(3, 0), (1, 2), (2, 2), (3, 1)]))


@pytest.mark.parametrize("alike", [(1, 2), pytest.param((1,), marks=pytest.mark.slow)])
def test_scenarios_that_lead_alike_and_pay_differently(alike: tuple[int, ...]) -> None:
    """They may be merged where only what follows counts, and never where what they pay goes with it."""
    case = coarse(oracle.random_model(np.random.default_rng(9), 3, 3, 3, discount=0.5, sharing="time"))
    successors = case.successors.copy()
    for scenario in alike:
        successors[:, scenario] = successors[:, 0]
    case = case._replace(successors=successors, policy=np.array([[8, 4, 4], [4, 4, 8], [1, 12, 3]]) / 16)
    solution = jm.evaluate(build(case), case.policy, order=4)
    assert_gaps_are_true(solution, PairOracle(case, 4))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_many_models_agree_with_rational_arithmetic(seed: int) -> None:
    """60 more, 36 of them in the slow tests, some with γ = 0.999."""
    discounts = (0.1, 0.5, 0.9, 0.99, 0.999)
    for case in cases(400 + seed, 12, shapes=((2, 2, 2), (3, 3, 3)), discounts=discounts):
        order = 6 if len(case.policy) == 2 else 5
        exact = PairOracle(case, order)
        solution = jm.evaluate(build(case), case.policy, order=order)
        assert_gaps_are_true(solution, exact)
        assert_pairs_are_true(solution, exact, orders_up_to(order))


@pytest.mark.slow
@QUIET
@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
def test_bounds_hold_on_awkward_scales_and_stopped_early(sharing: str) -> None:
    """Rewards that are tiny, huge, mixed, or large and nearly equal; and solves stopped after a few sweeps."""
    rng = np.random.default_rng(4)
    changes = (
        lambda R: R * 1e-8,
        lambda R: R * 1e8,
        lambda R: R * 10.0 ** rng.integers(-6, 7, R.shape),
        lambda R: 1e6 + R,
    )
    for discount in (0.5, 0.9, 0.999):
        case = oracle.random_model(rng, 2, 2, 2, discount=discount, sharing=sharing)
        case = case._replace(policy=np.array([[0.5, 0.5], [0.25, 0.75]]))
        for change in changes:
            odd = case._replace(rewards=np.asarray(change(case.rewards), dtype=np.float64))
            assert_gaps_are_true(jm.evaluate(build(odd), odd.policy, order=4), PairOracle(odd, 4), relative=None)
        exact = PairOracle(case, 4)
        for sweeps in (1, 3):
            early = jm.evaluate(build(case), case.policy, jm.Solve(max_sweeps=sweeps), order=4)
            assert_gaps_are_true(early, exact, relative=None)


@pytest.mark.slow
def test_bounds_are_not_vacuous() -> None:
    """In the median over models and gaps with γ ≤ 0.9, a bound of order 4 and below is under 1e-10 of σᵏ."""
    reach: list[float] = []
    for case in cases(17, 24, shapes=((2, 2, 2),), discounts=(0.5, 0.9)):
        solution = jm.evaluate(build(case), case.policy, order=4)
        reach += assert_gaps_are_true(solution, PairOracle(case, 4))
    assert len(reach) > 40
    assert np.median(reach) < 1e-10


def test_stopping_early_shows_in_the_bounds_and_the_status() -> None:
    case = oracle.random_model(np.random.default_rng(2), 2, 2, 2, discount=0.9)
    model, policy = build(case), np.full((2, 2), 0.5)
    with pytest.warns(jm.errors.ConvergenceWarning, match="step limit"):
        early = jm.evaluate(model, policy, jm.Solve(max_sweeps=2), order=4)
    assert early.status is jm.errors.Status.STEP_LIMIT
    late = jm.evaluate(model, policy, order=4)
    first, second = early.gap(0, 0, 1), late.gap(0, 0, 1)
    assert first.central_moment_error(4) > 1e6 * second.central_moment_error(4)
    assert abs(first.central_moment(4) - second.central_moment(4)) <= first.central_moment_error(4)


# -- closed forms ----------------------------------------------------------------------------------------------


def coin_moments(sizes: np.ndarray, order: int) -> np.ndarray:
    """E(Σ_t c_t ξ_t)ᵏ for fair ±1 coins ξ, k = 0, …, order: one coin added at a time."""
    found = np.zeros(order + 1)
    found[0] = 1.0
    for c in sizes:
        found = np.array(
            [sum(math.comb(k, j) * c**j * found[k - j] for j in range(0, k + 1, 2)) for k in range(order + 1)]
        )
    return found


@pytest.mark.parametrize("is_deterministic", daily([False, True]))
@pytest.mark.slow
def test_chain_closed_form(is_deterministic: bool) -> None:
    """A return is Σ_{t<24} γᵗ ξ_t. Two branches earn opposite coins until they draw the same action and are one.

    Under the uniform policy that is after n steps with probability 2⁻ⁿ (2⁻²³ at the end of the chain); under a
    deterministic one after the first step.
    """
    order, length = 8, 24
    discounts = 0.99 ** np.arange(length)
    chances = np.append(0.5 ** np.arange(1, length), 0.5 ** (length - 1))
    uniform = sum(p * coin_moments(2 * discounts[:n], order) for n, p in enumerate(chances, start=1))
    deterministic = coin_moments(np.array([2.0]), order)
    alone = coin_moments(discounts, order)
    expected = deterministic if is_deterministic else uniform
    model, policy = jm.envs.coupled_reward_chain(25, deterministic=is_deterministic)
    solution = jm.evaluate(model, policy, order=order)
    gap = solution.gap(0, 0, 1)
    for k in range(order + 1):
        assert gap.moment(k) == pytest.approx(expected[k], rel=1e-11, abs=1e-11)
        assert abs(gap.central_moment(k) - expected[k]) <= gap.central_moment_error(k) + 1e-13 * expected[k]
    assert gap.skewness == pytest.approx(0, abs=1e-12)
    assert gap.excess_kurtosis == pytest.approx(expected[4] / expected[2] ** 2 - 3, rel=1e-10)
    for k in (3, 4, 6):
        assert solution.central_moment(k, 0)[0, 0, 1] == pytest.approx(alone[k], rel=1e-11, abs=1e-11)
        assert solution.central_moment(k - 2, 2)[0, 1, 1] == pytest.approx(alone[k], rel=1e-11, abs=1e-11)


def test_a_gap_that_is_a_coin() -> None:
    """One step, then nothing: G is 3 with probability 0.2 and 0 otherwise."""
    model = jm.JointMDP([[0.8, 0.2], [1, 0]], [[[0.0, 0], [3, 0]], [[0, 0], [0, 0]]], np.ones((2, 2, 2), int), 0.9)
    gap = jm.evaluate(model, [0, 0], order=5).gap(0, 0, 1)
    for k in range(1, 6):
        assert gap.moment(k) == pytest.approx(0.2 * 3**k, rel=1e-13)
    # A Bernoulli variable: skewness (1−2p)/√(p(1−p)), excess kurtosis (1−6p(1−p))/(p(1−p)).
    assert gap.skewness == pytest.approx(0.6 / 0.4, rel=1e-12)
    assert gap.excess_kurtosis == pytest.approx(0.04 / 0.16, rel=1e-11)


# -- strong sharing --------------------------------------------------------------------------------------------


def shocked(size: float) -> oracle.RandomModel:
    """Common random numbers that pay everyone the same large shock, and a little more that depends on the action."""
    case = oracle.random_model(np.random.default_rng(8), 3, 3, 3, discount=0.9, sharing="time")
    shock = np.array([1.0, -0.5, 0.25])[None, :, None]
    return case._replace(rewards=case.rewards + size * shock, policy=np.full((3, 3), 1 / 3))


@pytest.mark.slow
def test_nothing_large_is_subtracted_where_noise_is_shared() -> None:
    """A shock 10⁵ times the gap: covariances lose ten digits of the gap's variance, its own recursion keeps nine."""
    case = shocked(1e5)
    model, exact = build(case), PairOracle(case, 4)
    solution, second = jm.evaluate(model, case.policy, order=4), jm.evaluate(model, case.policy)
    lost = 0.0
    for x, y in gaps(solution):
        gap, plain = solution.gap(x[0], x[1], y[1]), second.gap(x[0], x[1], y[1])
        variance = float(exact.central_gap(x, y, 2))
        for k in (2, 3, 4):
            truth = exact.central_gap(x, y, k)
            assert abs(float(rational(gap.central_moment(k)) - truth)) <= 1e-9 * (
                variance ** (k / 2) + abs(float(truth))
            )
        assert gap.variance_error < 1e-2 * plain.variance_error
        lost = max(lost, abs(plain.variance - variance) / variance)
    assert lost > 1e-9


@pytest.mark.slow
def test_both_routes_to_the_variance_agree() -> None:
    """The gap's own recursion against C(a,a) + C(b,b) − 2C(a,b), within the errors of both."""
    model, policy = jm.envs.inventory()  # common random numbers
    own, plain = jm.evaluate(model, policy, order=3), jm.evaluate(model, policy)
    for b in (0, 3, 5):
        one, other = own.gap(4, 4, b), plain.gap(4, 4, b)
        assert abs(one.variance - other.variance) <= one.variance_error + other.variance_error
        assert one.variance_error <= other.variance_error
    assert np.array_equal(own.covariance, plain.covariance, equal_nan=True)
    assert np.array_equal(own.mean, plain.mean, equal_nan=True)


# -- a horizon -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
@pytest.mark.parametrize("discount", [0.7, 1.0])
def test_horizon_equals_the_enumerated_law(sharing: str, discount: float) -> None:
    for seed in range(2):
        case = oracle.random_model(np.random.default_rng(seed), 2, 2, 2, discount=0.5, sharing=sharing)
        case = case._replace(discount=discount)
        for horizon in (1, 2, 3):
            solution = jm.evaluate(build(case), case.policy, horizon=horizon, order=4)
            for s in (0, 1):
                law = oracle.finite_horizon_law(*case[:6], (s, 0), (s, 1), horizon)
                gap = solution.gap(s, 0, 1)
                mean = sum((p * (x - y) for (x, y), p in law.items()), Fraction(0))
                for k in range(5):
                    raw = sum((p * (x - y) ** k for (x, y), p in law.items()), Fraction(0))
                    central = sum((p * (x - y - mean) ** k for (x, y), p in law.items()), Fraction(0))
                    assert abs(Fraction(gap.moment(k)) - raw) <= gap.moment_error(k)
                    assert abs(Fraction(gap.central_moment(k)) - central) <= gap.central_moment_error(k)
                    assert gap.central_moment_error(k) <= 1e-10
                for i, j in ((1, 1), (2, 1), (1, 3), (2, 2), (0, 3)):
                    joint = sum((p * x**i * y**j for (x, y), p in law.items()), Fraction(0))
                    assert solution.moment(i, j)[s, 0, 1] == pytest.approx(float(joint), rel=1e-12, abs=1e-12)


@pytest.mark.slow
def test_long_horizon_approaches_the_endless_future() -> None:
    """What lies beyond T moves a gap by at most 2γᵀb, b = R_max/(1−γ), and so E(G−μ)ᵏ by at most k·4γᵀb·(8b)^{k−1}."""
    case = oracle.random_model(np.random.default_rng(3), 3, 3, 3, discount=0.8)
    model = build(case)
    endless, long = (jm.evaluate(model, case.policy, order=4, horizon=horizon) for horizon in (None, 250))
    bound = model.reward_bound / (1 - 0.8)
    for k in (2, 3, 4):
        one, other = endless.gap(0, 0, 1), long.gap(0, 0, 1)
        tail = k * 4 * 0.8**250 * bound * (8 * bound) ** (k - 1)
        errors = one.central_moment_error(k) + other.central_moment_error(k)
        assert abs(one.central_moment(k) - other.central_moment(k)) <= tail + errors


# -- simulation ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("sharing", slow_or_long(SHARINGS, 2))
def test_simulation_agrees_up_to_order_eight(sharing: str) -> None:
    """Sample means of (G−μ)ᵏ within five standard errors, whose exact values come from moments of order 2k.

    A normal approximation gives a false alarm of 6e-7 for each of the 21 comparisons, Chebyshev's inequality at most
    4 %; the seed is fixed.
    """
    case = oracle.random_model(np.random.default_rng(6), 3, 3, 3, discount=0.7, sharing=sharing)
    model, policy = build(case), np.full((3, 3), 1 / 3)
    gap = jm.evaluate(model, policy, order=16).gap(1, 0, 2)
    samples = 40_000
    sample = jm.simulate(model, policy, 1, [0, 2], num_samples=samples, seed=3, gaps_only=True).gap(0, 2)
    deviations = sample.gaps - gap.mean
    top = float(np.max(np.abs(deviations))) + sample.truncation_bound
    for k in range(2, 9):
        spread = gap.central_moment(2 * k) - gap.central_moment(k) ** 2
        cut = k * sample.truncation_bound * top ** (k - 1)
        assert abs(np.mean(deviations**k) - gap.central_moment(k)) <= 5 * math.sqrt(spread / samples) + cut


# -- what holds for every gap ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_gap_turned_around_changes_the_sign_of_odd_moments() -> None:
    for sharing in SHARINGS:
        case = oracle.random_model(np.random.default_rng(5), 3, 3, 3, discount=0.9, sharing=sharing)
        solution = jm.evaluate(build(case), np.full((3, 3), 1 / 3), order=4)
        one, other = solution.gap(1, 0, 2), solution.gap(1, 2, 0)
        for k in range(5):
            assert one.moment(k) == pytest.approx((-1) ** k * other.moment(k), rel=1e-9)
            assert one.central_moment(k) == pytest.approx((-1) ** k * other.central_moment(k), rel=1e-9)
        assert abs(one.skewness) > 1e-3
        assert one.skewness == pytest.approx(-other.skewness, rel=1e-9)
        itself = solution.gap(1, 2, 2)
        assert [itself.moment(k) for k in range(5)] == [1, 0, 0, 0, 0]
        assert all(itself.moment_error(k) == 0 for k in range(5))
        assert math.isnan(itself.skewness)
        assert math.isnan(itself.excess_kurtosis)


@pytest.mark.slow
@pytest.mark.parametrize("sharing", ["state", "time"])
def test_acceleration_keeps_odd_orders_odd(sharing: str) -> None:
    """A slowly mixing ring, where acceleration is taken and would let the symmetry go."""
    size, rng = 24, np.random.default_rng(3)
    here = np.arange(size)
    successors = np.stack([np.stack([(here + 1) % size, here], 1), np.stack([(here - 1) % size, here], 1)], 1)
    model = jm.JointMDP(np.full((size, 2), 0.5), rng.normal(size=(size, 2, 2)), successors, 0.995, sharing)
    policy = np.full((size, 2), 0.5)
    fast, plain = (jm.evaluate(model, policy, jm.Solve(is_accelerated=is_fast), order=3) for is_fast in (True, False))
    if sharing == "state":
        assert fast.steps < plain.steps / 4  # an odd order made even would have to be solved again
    third = fast.moments.higher.gaps[1]
    np.testing.assert_allclose(third, -third.T, rtol=0, atol=1e-12 * np.max(np.abs(third)))
    for s in (0, 7):
        one, other = fast.gap(s, 0, 1), plain.gap(s, 0, 1)
        errors = one.central_moment_error(3) + other.central_moment_error(3)
        assert abs(one.central_moment(3) - other.central_moment(3)) <= errors


def test_order_two_answers_the_same_questions() -> None:
    case = oracle.random_model(np.random.default_rng(1), 3, 3, 3, discount=0.8)
    for method in (jm.Solve(), jm.Iterate(tolerance=1e-6)):
        solution = jm.evaluate(build(case), np.full((3, 3), 1 / 3), method)
        assert solution.order == 2
        np.testing.assert_allclose(solution.moment(1, 1), solution.second_moment, rtol=1e-13)
        np.testing.assert_allclose(solution.moment(0, 1)[:, 0, :], solution.mean, rtol=1e-13)
        np.testing.assert_array_equal(solution.central_moment(2, 0)[:, :, 0], solution.variance)
        assert (solution.moment(0, 0) == 1).all()
        gap = solution.gap(0, 0, 1)
        assert gap.order == 2
        assert gap.central_moment(2) == gap.variance
        for ask in (
            lambda s=solution: s.moment(2, 1),
            lambda s=solution: s.central_moment(3),
            lambda g=gap: g.moment(3),
        ):
            with pytest.raises(jm.ModelError, match=r"up to order 2.*order=3"):
                ask()
        with pytest.raises(jm.ModelError, match="moment 4"):
            _ = gap.excess_kurtosis


def test_answers_do_not_hand_out_their_own_arrays() -> None:
    case = oracle.random_model(np.random.default_rng(1), 3, 3, 3, discount=0.8)
    solution = jm.evaluate(build(case), np.full((3, 3), 1 / 3), order=4)
    solution.central_moment(1, 2)[:] = 0
    solution.moment(1, 1)[:] = 0
    assert solution.central_moment(1, 2).any()
    assert solution.covariance.any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"order": 0}, "order is 0; it must be at least 1"),
        ({"order": 2.5}, "order must be a whole number"),
        ({"order": 99}, "at most"),
        ({"order": 3, "method": jm.Iterate()}, "joint_moments"),
    ],
)
def test_bad_orders(arguments: dict, message: str) -> None:
    model, policy = jm.envs.windy_gridworld(3)
    with pytest.raises(jm.ModelError, match=message):
        jm.evaluate(model, policy, **arguments)


def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model, policy = jm.envs.windy_gridworld(3)
    large = jm.JointMDP(model.probabilities, model.rewards * 1e60, model.successors, 0.9)
    jm.evaluate(large, policy)
    with pytest.raises(jm.ModelError, match=r"powers of order 4.*rescale"):
        jm.evaluate(large, policy, order=4)
    monkeypatch.setattr(methods, "PAIR_LIMIT", 200)
    jm.evaluate(model, policy)
    with pytest.raises(jm.ModelError, match="81 pairs, in each of 5 arrays for moments up to order 4"):
        jm.evaluate(model, policy, order=4)
    jm.evaluate(model.with_sharing("none"), policy, order=4)


@pytest.mark.parametrize("sharing", ["state", pytest.param("time", marks=pytest.mark.slow)])
def test_new_numbers_compile_nothing(sharing: str, compilations: list[str]) -> None:
    def work(seed: int) -> None:
        case = oracle.random_model(np.random.default_rng(seed), 4, 3, 3, discount=0.5 + seed / 100, sharing=sharing)
        model, policy = build(case), np.full((4, 3), 1 / 3)
        solution = jm.evaluate(model, policy, order=3)
        solution.gap(0, 0, 1)
        solution.moment(2, 1)
        jm.evaluate(model, policy, horizon=3, order=3).moment(1, 2)

    work(0)
    first = len(compilations)
    assert first > 0  # the listener hears
    for seed in range(1, 4):
        work(seed)
    assert len(compilations) == first
