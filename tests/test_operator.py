"""The paper's operator: enumeration, contraction, residual theorem, and the norm for rewards beyond [0, 1]."""

import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from zoo import SHARINGS, build, cases

from jointmdp.exact.bellman import second_moments
from jointmdp.exact.bellman.second_moments import Moments
from jointmdp.exact.moments import certificates
from jointmdp.ground.arrays import float64
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.policies import as_policy

S, W, A = 3, 3, 3


def collection(rng: np.random.Generator, scale: float) -> Moments:
    return Moments(jnp.asarray(rng.normal(size=(S, A)) * scale), jnp.asarray(rng.normal(size=(S, A, S, A)) * scale**2))


def moment_norm(M: Moments, scale: float) -> float:
    """‖M‖_λ = max(‖M_μ‖∞, ‖M_Σ‖∞ / λ)."""
    return max(float(jnp.max(jnp.abs(M.mean))), float(jnp.max(jnp.abs(M.second))) / scale)


def apply(model: JointMDP, policy: np.ndarray, M: Moments) -> Moments:
    from jointmdp.exact.moments.iteration import _backup

    return _backup(second_moments.model_tables(model, as_policy(model, policy)), M, model.sharing)


@pytest.mark.parametrize("sharing", SHARINGS)
def test_operator_equals_enumeration(sharing: str) -> None:
    """On arbitrary, not even symmetric, collections."""
    for seed, case in enumerate(cases(3, 4, shapes=((S, W, A),), sharings=(sharing,))):
        case = case._replace(available=None)
        model = build(case)
        policy = as_policy(model, case.policy)
        rng = np.random.default_rng(seed)
        with float64():
            M = collection(rng, 2.0)
            found = apply(model, policy, M)
        tables = (model.probabilities, model.rewards, model.successors, model.discount, policy, sharing)
        mean, second = oracle.backup(*tables, np.asarray(M.mean), np.asarray(M.second))
        np.testing.assert_allclose(found.mean, mean, rtol=0, atol=1e-12)
        np.testing.assert_allclose(found.second, second, rtol=0, atol=1e-11)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**32 - 1),
    discount=st.floats(0.05, 0.999),
    scale=st.sampled_from([1e-3, 1.0, 50.0]),
    sharing=st.sampled_from(SHARINGS),
    deterministic=st.booleans(),
)
def test_contraction(seed: int, discount: float, scale: float, sharing: str, deterministic: bool) -> None:
    """‖T₂M − T₂N‖_λ ≤ γ ‖M − N‖_λ with λ = 2R_max/(1−γ), any rewards.

    Under "none" entries are products of means, and the lemma holds on the ball ‖M_μ‖ ≤ R_max/(1−γ), which T₂ keeps.
    """
    rng = np.random.default_rng(seed)
    case = oracle.random_model(rng, S, W, A, discount=discount, sharing=sharing, deterministic=deterministic)
    case = case._replace(rewards=case.rewards * scale)
    model = build(case)
    bound = model.reward_bound
    weight = certificates.norm_weight(bound, discount)
    with float64():
        M, N = collection(rng, 10 * scale), collection(rng, 10 * scale)
        if sharing == "none":
            limit = bound / (1 - discount)
            M, N = (Moments(jnp.clip(K.mean, -limit, limit), K.second) for K in (M, N))
        before = moment_norm(Moments(M.mean - N.mean, M.second - N.second), weight)
        TM, TN = apply(model, case.policy, M), apply(model, case.policy, N)
        after = moment_norm(Moments(TM.mean - TN.mean, TM.second - TN.second), weight)
    assert after <= discount * before * (1 + 1e-12)


def test_range_instead_of_bound_would_not_contract() -> None:
    """The weight needs max |R|, not the range: with the range of nearly equal large rewards the lemma fails."""
    model = JointMDP(np.ones((1, 1)), np.full((1, 1, 1), 10.0), np.zeros((1, 1, 1)), 0.9)
    policy, spread = np.ones((1, 1)), 0.1  # any rewards within 10 ± 0.05 have this range
    with float64():
        M, N = (Moments(jnp.full((1, 1), x), jnp.zeros((1, 1, 1, 1))) for x in (0.0, 1.0))
        TM, TN = apply(model, policy, M), apply(model, policy, N)
        difference = Moments(TM.mean - TN.mean, TM.second - TN.second)
        assert moment_norm(difference, certificates.norm_weight(10.0, 0.9)) <= 0.9 * (1 + 1e-12)
        assert moment_norm(difference, certificates.norm_weight(spread, 0.9)) > 5


@pytest.mark.parametrize("sharing", SHARINGS)
def test_residual_theorem(sharing: str) -> None:
    """‖M − M*‖_λ ≤ ‖M − T₂M‖_λ/(1−γ), against rational arithmetic, and the factor is at most (1+γ)/(1−γ)."""
    for seed, case in enumerate(cases(9, 6, shapes=((S, W, A),), sharings=(sharing,))):
        exact = oracle.exact_moments(*case)
        model, g = build(case), case.discount
        weight = certificates.norm_weight(model.reward_bound, g)
        rng = np.random.default_rng(seed)
        with float64():
            M = collection(rng, 1.0)
            if sharing == "none":
                limit = model.reward_bound / (1 - g)
                M = Moments(jnp.clip(M.mean, -limit, limit), M.second)
            after = apply(model, case.policy, M)
        exists = case.available
        both = exists[:, :, None, None] & exists[None, None]
        mean_off = np.where(exists, np.asarray(M.mean) - exact.mean_float(), 0)
        second_off = np.where(both, np.asarray(M.second) - exact.second_float(), 0)
        error = max(np.max(np.abs(mean_off)), np.max(np.abs(second_off)) / weight)
        mean_step = np.where(exists, np.asarray(M.mean - after.mean), 0)
        second_step = np.where(both, np.asarray(M.second - after.second), 0)
        residual = max(np.max(np.abs(mean_step)), np.max(np.abs(second_step)) / weight)
        assert error <= residual / (1 - g) * (1 + 1e-12)
        assert residual / (1 - g) <= (1 + g) / (1 - g) * error * (1 + 1e-12)
