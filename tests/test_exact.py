"""The exact methods against brute force, against each other and against closed forms."""

from collections.abc import Iterator

import numpy as np
import oracle
import pytest
from zoo import SHARINGS, STATE_AND_SLOW, build, cases, repeated, slow_or_long

import jointmdp as jm
from jointmdp.exact.moments.certificates import Status


def brute_force(case: oracle.RandomModel) -> tuple[np.ndarray, np.ndarray]:
    """T₂ enumerated on coordinate pairs in plain NumPy and iterated until γᵏ is far below the tolerance."""
    exists = case.available
    mean = np.where(exists, 0.0, np.nan)
    second = np.where(exists[:, :, None, None] & exists[None, None], 0.0, np.nan)
    steps = int(np.log(1e-13) / np.log(case.discount)) + 2
    backup = oracle.Backup(*case[:6], available=exists)
    for _ in range(steps):
        mean, second = backup(mean, second)
    return mean, second


@pytest.mark.parametrize("seed", repeated(12))
def test_solve_agrees_with_enumeration(seed: int) -> None:
    """Small models of every kind against the enumeration of T₂ on X², 1e-9 relative."""
    for case in cases(seed, 3, shapes=((3, 3, 3),), discounts=(0.1, 0.5, 0.8)):
        mean, second = brute_force(case)
        solution = jm.evaluate(build(case), case.policy)
        np.testing.assert_allclose(solution.mean, mean, rtol=1e-9, atol=1e-9 * np.nanmax(np.abs(mean)))
        blocks = np.stack([second[s, :, s, :] for s in range(len(mean))])
        scale = np.nanmax(np.abs(second))
        np.testing.assert_allclose(solution.second_moment, blocks, rtol=1e-9, atol=1e-9 * scale)


@pytest.mark.parametrize("seed", range(30))
def test_every_coordinate_pair_agrees_with_rational_arithmetic(seed: int) -> None:
    """All of X², cross-state pairs included, γ up to 0.99, to 1e-9 of the largest moment."""
    for case in cases(1000 + seed, 2, shapes=((2, 2, 2), (3, 3, 3))):
        exact = oracle.exact_moments(*case)
        mean, second = exact.mean_float(), exact.second_float()
        solution = jm.evaluate(build(case), case.policy)
        assert solution.status is Status.CONVERGED
        scale = np.nanmax(np.abs(second)) + 1e-300
        for s, a, t, b in np.argwhere(np.isfinite(second)):
            found = solution.covariance_between(s, a, t, b) + solution.mean[s, a] * solution.mean[t, b]
            assert abs(found - second[s, a, t, b]) <= 1e-9 * scale
        np.testing.assert_allclose(solution.mean, mean, rtol=0, atol=1e-9 * np.nanmax(np.abs(mean)) + 1e-300)


@pytest.mark.slow
@pytest.mark.parametrize("sharing", SHARINGS)
def test_larger_models_agree_with_rational_arithmetic(sharing: str) -> None:
    """The largest shape that brute force reaches: S = 6, W = 4, A = 4."""
    for case in cases(77, 8, shapes=((6, 4, 4),), sharings=(sharing,)):
        exact = oracle.exact_moments(*case)
        solution = jm.evaluate(build(case), case.policy)
        scale = np.nanmax(np.abs(exact.covariance_blocks_float()))
        assert oracle.max_abs_error(solution.covariance, exact.covariance_blocks()) <= 1e-9 * scale
        known = np.argwhere(np.isfinite(exact.second_float()))
        between = solution.moments.across()
        for s, a, t, b in known[known[:, 0] != known[:, 2]]:
            found = oracle.rational(between[s, a, t, b])
            assert abs(float(found - exact.covariance(s, a, t, b))) <= 1e-9 * scale


@pytest.mark.parametrize("sharing", SHARINGS)
def test_all_pairs_at_once_are_those_one_by_one(sharing: str) -> None:
    """Of moments on states and of moments on pairs of coordinates."""
    case = next(cases(78, 1, shapes=((3, 3, 3),), sharings=(sharing,)))
    model = build(case)
    places = [(s, a) for s in range(3) for a in range(3) if model.available[s, a]]
    for method in (jm.Solve(), jm.Iterate(tolerance=1e-6)):
        solution = jm.evaluate(model, case.policy, method)
        found, scale = solution.moments.across(), np.nanmax(solution.variance)
        for s, a in places:
            for t, b in places:
                if s != t:
                    one = solution.covariance_between(s, a, t, b)
                    assert found[s, a, t, b] == pytest.approx(one, abs=1e-14 * scale)


@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
def test_iterate_and_solve_agree_within_their_certificates(sharing: str) -> None:
    for case in cases(5, 6, sharings=(sharing,)):
        model = build(case)
        solve = jm.evaluate(model, case.policy)
        iterate = jm.evaluate(model, case.policy, jm.Iterate(tolerance=1e-6))
        assert iterate.status is Status.CONVERGED
        both = solve.certificate.covariance_error + iterate.certificate.covariance_error
        assert np.nanmax(np.abs(solve.covariance - iterate.covariance)) <= both
        assert np.array_equal(np.isnan(solve.covariance), np.isnan(iterate.covariance))


@pytest.mark.slow
@pytest.mark.parametrize("is_accelerated", [True, False])
@pytest.mark.parametrize("sharing", slow_or_long(["state", "time"], 1))
def test_acceleration_changes_nothing_but_time(sharing: str, is_accelerated: bool) -> None:
    """A slowly mixing ring, where plain sweeps need thousands of steps and acceleration is taken."""
    size, rng = 40, np.random.default_rng(3)
    here = np.arange(size)
    successors = np.stack([np.stack([(here + 1) % size, here], 1), np.stack([(here - 1) % size, here], 1)], 1)
    model = jm.JointMDP(np.full((size, 2), 0.5), rng.normal(size=(size, 2, 2)), successors, 0.999, sharing)
    solution = jm.evaluate(model, np.full((size, 2), 0.5), jm.Solve(is_accelerated=is_accelerated))
    reference = jm.evaluate(model, np.full((size, 2), 0.5), jm.Solve(is_accelerated=False))
    assert solution.status is Status.CONVERGED
    limit = solution.certificate.covariance_error + reference.certificate.covariance_error
    assert np.max(np.abs(solution.covariance - reference.covariance)) <= limit
    if is_accelerated and sharing == "state":
        assert solution.steps < reference.steps / 2


@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("discount", [0.7, 1.0])
def test_horizon_equals_the_enumerated_law(sharing: str, discount: float) -> None:
    """Moments of the first T steps against the exact joint law of the two returns."""
    for seed in range(3):
        case = oracle.random_model(np.random.default_rng(seed), 2, 2, 2, discount=0.5, sharing=sharing)
        case = case._replace(discount=discount)
        for horizon in (1, 2, 3):
            solution = jm.evaluate(build(case), case.policy, horizon=horizon)
            for (s, a), (t, b) in (((0, 0), (0, 1)), ((0, 1), (1, 1)), ((1, 0), (1, 0))):
                law = oracle.finite_horizon_law(*case[:6], (s, a), (t, b), horizon)
                first = float(sum(p * z for (z, _), p in law.items()))
                other = float(sum(p * z for (_, z), p in law.items()))
                second = float(sum(p * z * y for (z, y), p in law.items()))
                assert solution.mean[s, a] == pytest.approx(first, abs=1e-12)
                found = solution.covariance_between(s, a, t, b)
                assert abs(found - (second - first * other)) <= solution.certificate.covariance_error + 1e-15


@pytest.mark.slow
def test_long_horizon_approaches_the_endless_future() -> None:
    model, policy = jm.envs.inventory()
    endless = jm.evaluate(model, policy)
    long = jm.evaluate(model, policy, horizon=800)
    # What lies beyond T is worth at most γᵀ·b, b = R_max/(1−γ) bounds every return, and so a covariance moves by 4bγᵀb.
    bound = model.reward_bound / (1 - model.discount)
    tail = model.discount**800 * bound
    first, second = endless.certificate, long.certificate
    assert np.nanmax(np.abs(endless.mean - long.mean)) <= tail + first.mean_error + second.mean_error
    limit = 4 * bound * tail + first.covariance_error + second.covariance_error
    assert np.nanmax(np.abs(long.covariance - endless.covariance)) <= limit


def test_chain_closed_form_uniform_and_deterministic() -> None:
    """Var Z(s₀,a) = Σ_{t<24} γ^{2t}; branches take the same action half of the time after the first step."""
    g, t = 0.99, np.arange(24)
    variance = np.sum(g ** (2 * t))
    # At step t branches of the uniform policy are still apart, and then opposed, with probability 2⁻ᵗ.
    uniform = np.sum(g ** (2 * t) * (1 - 2 * 0.5**t))
    for deterministic, covariance in ((False, uniform), (True, variance - 2)):
        solution = jm.evaluate(*jm.envs.coupled_reward_chain(25, deterministic=deterministic))
        assert solution.covariance[0, 0, 0] == pytest.approx(variance, abs=1e-10)
        assert solution.covariance[0, 1, 1] == pytest.approx(variance, abs=1e-10)
        assert solution.covariance[0, 0, 1] == pytest.approx(covariance, abs=1e-10)
        assert solution.correlation[0, 0, 1] == pytest.approx(0.8960 if deterministic else 0.7961, abs=5e-5)
        assert np.isnan(solution.correlation[24]).all()
    assert variance == pytest.approx(19.2317, abs=5e-5)


def test_variances_keep_nine_digits_near_discount_one() -> None:
    for seed in range(4):
        case = oracle.random_model(np.random.default_rng(seed), 3, 3, 3, discount=0.999)
        case = case._replace(rewards=case.rewards + 5.0)  # large, nearly equal values: where cancellation bites
        exact = oracle.exact_moments(*case)
        solution = jm.evaluate(build(case), case.policy)
        blocks = exact.covariance_blocks_float()
        np.testing.assert_allclose(np.diagonal(solution.covariance, 0, 1, 2), np.diagonal(blocks, 0, 1, 2), rtol=1e-9)


def test_wrong_tie_rule_is_told_apart() -> None:
    """Independent next actions on the diagonal would make the chain's correlation −1; ours must not be that."""
    solution = jm.evaluate(*jm.envs.coupled_reward_chain(25))
    assert solution.correlation[0, 0, 1] > 0.5


def test_zero_rewards() -> None:
    model, policy = jm.envs.windy_gridworld(3)
    silent = jm.JointMDP(model.probabilities, np.zeros_like(model.rewards), model.successors, 0.99)
    for method in (jm.Solve(), jm.Iterate()):
        solution = jm.evaluate(silent, policy, method)
        assert solution.status is Status.CONVERGED
        assert not solution.mean.any()
        assert not solution.covariance.any()
        assert solution.certificate.covariance_error <= 1e-12
        assert solution.gap(0, 0, 1).inferiority_bound == 1.0


def test_step_limits_are_visible() -> None:
    model, policy = jm.envs.windy_gridworld(3)
    with pytest.warns(jm.errors.ConvergenceWarning, match="step limit"):
        solution = jm.evaluate(model, policy, jm.Iterate(max_steps=3))
    assert solution.status is Status.STEP_LIMIT
    assert "step limit" in repr(solution)
    assert len(solution.history) == 4
    with pytest.raises(jm.errors.ConvergenceError, match="step limit"):
        jm.evaluate(model, policy, jm.Iterate(max_steps=3, throw=True))
    ring = jm.JointMDP(
        np.full((3, 2), 0.5), [[[0.0, 1], [2, 0]]] * 3, [[[1, 2], [2, 1]], [[2, 0], [0, 2]], [[0, 1], [1, 0]]], 0.9
    )
    with pytest.warns(jm.errors.ConvergenceWarning, match="step limit"):
        limited = jm.evaluate(ring, jm.envs.uniform_policy(ring), jm.Solve(max_sweeps=2))
    assert limited.status is Status.STEP_LIMIT
    free = jm.evaluate(model, policy, jm.Iterate(tolerance=None, max_steps=5))
    assert free.status is Status.COMPLETED
    assert free.steps == 5


def test_iterate_says_when_rounding_stands_in_the_way() -> None:
    case = oracle.random_model(np.random.default_rng(0), 2, 2, 2, discount=0.9)
    with pytest.warns(jm.errors.ConvergenceWarning, match="rounding"):
        solution = jm.evaluate(build(case), case.policy, jm.Iterate(tolerance=1e-18))
    assert solution.status is Status.STAGNATED


def test_iterate_starts_anywhere() -> None:
    case = oracle.random_model(np.random.default_rng(1), 3, 3, 3, discount=0.8)
    model, rng = build(case), np.random.default_rng(2)
    start = (rng.normal(size=(3, 3)) * 10, rng.normal(size=(3, 3, 3, 3)) * 100)
    found = jm.evaluate(model, case.policy, jm.Iterate(start=start))
    reference = jm.evaluate(model, case.policy)
    assert np.max(np.abs(found.mean - reference.mean)) <= 1e-8
    assert np.max(np.abs(found.second_moment - reference.second_moment)) <= 2e-8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"order": 0}, "order is 0"),
        ({"order": 1, "horizon": 3}, "order=1 gives the means of an endless future"),
        ({"horizon": 0}, "horizon is 0"),
        ({"horizon": 2.5}, "whole number"),
        ({"horizon": 3, "method": jm.Solve()}, "leave method=None"),
        ({"method": "solve"}, "method must be"),
        ({"method": jm.Solve(relative_tolerance=0)}, "relative_tolerance"),
        ({"method": jm.Iterate(tolerance=-1)}, "tolerance"),
        ({"method": jm.Iterate(start=(np.zeros((2, 2)), np.zeros((2, 2, 2, 2))))}, "start means"),
    ],
)
def test_bad_requests(arguments: dict, message: str) -> None:
    model, policy = jm.envs.windy_gridworld(3)
    with pytest.raises(jm.ModelError, match=message):
        jm.evaluate(model, policy, **arguments)


def ending_cases(seed: int, count: int, discount: float = 1.0) -> Iterator[oracle.RandomModel]:
    """Models whose last state is over, and whose likeliest scenario leads there from anywhere."""
    for case in cases(seed, count, shapes=((3, 3, 3), (2, 2, 2))):
        rewards, successors = case.rewards.copy(), case.successors.copy()
        last = len(rewards) - 1
        rewards[last], successors[last] = 0, last
        for s, row in enumerate(case.probabilities):
            successors[s, np.argmax(row)] = last
        yield case._replace(rewards=rewards, successors=successors, discount=discount)


@pytest.mark.parametrize("discount", [1.0, 1 - 2**-40])
def test_models_that_surely_end_need_no_discount(discount: float) -> None:
    """Every covariance within its certificate of exact arithmetic, and the certificate small; 1/(1−γ) is 1e12."""
    for case in ending_cases(5, 12, discount):
        solution = jm.evaluate(build(case), case.policy)
        exact = oracle.exact_moments(*case)
        assert solution.status is Status.CONVERGED
        assert oracle.max_abs_error(solution.mean, exact.mean) <= solution.certificate.mean_error < 1e-10
        off = oracle.max_abs_error(solution.covariance, exact.covariance_blocks())
        assert off <= solution.certificate.covariance_error < 1e-8
        assert solution.certificate.residual < 1e-8


def test_long_episodes_without_a_discount() -> None:
    """Rewards of 1 until it is over, with probability q a step: mean 1/q and variance (1−q)/q²."""
    q = 2.0**-10
    model = jm.JointMDP([[1 - q, q]] * 2, [[[1.0], [1.0]], [[0.0], [0.0]]], [[[0], [1]], [[1], [1]]], 1.0)
    solution = jm.evaluate(model, [0, 0])
    assert abs(solution.mean[0, 0] - 1 / q) <= solution.certificate.mean_error < 1e-6
    assert abs(solution.variance[0, 0] - (1 - q) / q**2) <= solution.certificate.covariance_error < 1e-1
    with pytest.raises(jm.ModelError, match="order above 2 needs a discount below 1"):
        jm.evaluate(model, [0, 0], order=3)
    with pytest.raises(jm.ModelError, match="Iterate needs a discount below 1"):
        jm.evaluate(model, [0, 0], jm.Iterate())


def test_what_is_known_of_gaps_without_a_discount() -> None:
    """Returns have no bound here, so laws are left to samples; moments and what follows from them are there."""
    coin = jm.JointMDP([[0.5, 0.5]] * 2, [[[1, 3], [1, 2]], [[0, 0], [0, 0]]], [[[0, 1], [1, 1]], [[1, 1], [1, 1]]], 1)
    solution = jm.evaluate(coin, [0, 0])
    gap = solution.gap(0, 1, 0)
    assert gap.mean == pytest.approx(0.5)
    with pytest.warns(jm.errors.ConvergenceWarning, match="no amount bounds the gap"):
        assert 0 <= gap.superiority().lower <= gap.superiority().upper <= 1
    with pytest.raises(jm.NotKnownError, match=r"simulate\(…\) and compare\(policies"):
        gap.law()
    with pytest.raises(jm.NotKnownError, match=r"simulate\("):
        solution.signs()
    assert not solution.best_action(0, num_samples=100).is_certified


def test_discount_one_needs_an_end_or_a_horizon() -> None:
    model, policy = jm.envs.windy_gridworld(3, discount=1.0)
    with pytest.raises(jm.ModelError, match=r"from \(0,0\) on rewards may come for ever.*horizon"):
        jm.evaluate(model, policy)
    with pytest.raises(jm.ModelError, match="horizon"):
        jm.simulate(model, policy, 0, [0, 1], gaps_only=True).gap(0, 1)
    assert jm.evaluate(model, policy, horizon=4).mean[8, 0] == 4.0


def test_iterate_refuses_what_does_not_fit() -> None:
    model, policy = jm.envs.windy_gridworld(70)
    with pytest.raises(jm.ModelError, match="GiB"):
        jm.evaluate(model, policy, jm.Iterate())


def test_user_settings_are_left_alone() -> None:
    import jax
    import jax.numpy as jnp

    model, policy = jm.envs.windy_gridworld(3)
    solution = jm.evaluate(model, policy)
    jm.simulate(model, policy, 0, [0, 1], num_samples=10, gaps_only=True).gap(0, 1)
    assert solution.covariance.dtype == np.float64
    assert jax.config.jax_enable_x64 is False
    assert jnp.ones(2).dtype == jnp.float32


def test_a_policy_without_noise_of_its_own() -> None:
    """ "Always replace" has no variance; the gap of "keep" over it has, and sets the scale of the tolerance."""
    chances = [[0.8, 0.2]] * 4
    rewards = [[[10 - 2 * s, 4], [7 - 2 * s, 4]] for s in range(4)]
    successors = [[[s, 0], [min(s + 1, 3), 0]] for s in range(4)]
    model = jm.JointMDP(chances, rewards, successors, 0.9, "time", action_names=["keep", "replace"])
    solution = jm.evaluate(model, ["replace"] * 4, jm.Solve(throw=True))
    gap = solution.gap(1, "keep", "replace")
    assert gap.mean == pytest.approx(3.4)
    assert gap.std == pytest.approx(1.2)  # 3·√(0.8·0.2); the successors of "keep" return at once


def test_model_and_policy_in_one_argument() -> None:
    with pytest.raises(jm.ModelError, match=r"evaluate\(\*jointmdp.envs.inventory"):
        jm.evaluate(jm.envs.inventory(), 0)


@pytest.mark.parametrize("seed", range(3))
def test_means_alone_are_those_of_evaluate(seed: int) -> None:
    """For sparse and dense kernels, stochastic and deterministic policies, within both certificates."""
    rng = np.random.default_rng(seed)
    size = 40
    available = rng.random((size, 3)) < 0.8
    available[:, 0] = True
    successors = rng.integers(0, size, (size, 4, 3)) if seed else (np.arange(size)[:, None, None] + [0, 1, 2]) % size
    successors = np.broadcast_to(successors, (size, 4, 3))
    model = jm.JointMDP(
        rng.dirichlet(np.ones(4), size), rng.normal(size=(size, 4, 3)), successors, 0.95, available=available
    )
    for policy in ("uniform", np.zeros(size, dtype=int)):
        found, whole = jm.evaluate(model, policy, order=1), jm.evaluate(model, policy)
        np.testing.assert_array_equal(np.isnan(found.mean), ~model.available)
        off = np.nanmax(np.abs(found.mean - whole.mean))
        assert off <= found.error + whole.certificate.mean_error
        assert found.error < 1e-10
    with pytest.raises(jm.ModelError, match="discount is 1"):
        jm.evaluate(model.with_discount(1.0), "uniform", order=1)
