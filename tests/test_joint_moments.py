"""T_n on tuples of coordinates: against enumeration, one random field, closed forms and the pair methods."""

import itertools
import tracemalloc
from math import comb
from typing import Any

import numpy as np
import oracle
import oracle_joint
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle import RandomModel
from zoo import SHARINGS, build, cases

import jointmdp as jm
from jointmdp.exact.bellman import tuple_moments
from jointmdp.exact.bellman.tuple_moments import Collection, JointOperator
from jointmdp.exact.moments import certificates
from jointmdp.exact.moments import joint_moments as solver
from jointmdp.exact.moments.certificates import Status
from jointmdp.exact.moments.joint_moments import JointMoments, joint_moments
from jointmdp.ground.errors import ConvergenceError, ConvergenceWarning, ModelError
from jointmdp.model.policies import as_policy

Exact = dict[tuple[tuple[int, int], ...], Any]


def tiny(seed: int, count: int, sharing: str, discounts: tuple[float, ...] = (0.1, 0.5, 0.8)) -> list[RandomModel]:
    """Two states, two scenarios, two actions, of every kind: merges, unavailable actions, absorbing states."""
    return list(cases(seed, count, shapes=((2, 2, 2),), discounts=discounts, sharings=(sharing,)))


def true_errors(found: JointMoments, exact: Exact) -> list[float]:
    """The largest error of each order, subtracted exactly."""
    worst = [0.0] * found.order
    tensors = [found[k] for k in range(1, found.order + 1)]
    for x, truth in exact.items():
        value = tensors[len(x) - 1][tuple(itertools.chain(*x))]
        worst[len(x) - 1] = max(worst[len(x) - 1], float(abs(oracle.rational(value) - truth)))
    return worst


def random_collection(operator: JointOperator, rng: np.random.Generator, scale: float) -> Collection:
    return [rng.normal(size=m.shape) * scale**k for k, m in enumerate(operator.zero(), 1)]


def norm(M: Collection, N: Collection, weight: float) -> float:
    """‖M − N‖_λ with λ_k = weight^{k−1}."""
    return max(float(np.max(np.abs(m - n))) / weight**k for k, (m, n) in enumerate(zip(M, N, strict=True)))


def clipped(operator: JointOperator, M: Collection, bound: float) -> Collection:
    """Entries of one repeated coordinate cut to |M_k(x … x)| ≤ boundᵏ."""
    parts = [operator.tuples.stem[operator.tuples.of_degree(k)] == 0 for k in range(1, len(M) + 1)]
    return [
        np.where(alone, np.clip(m, -(bound**k), bound**k), m)
        for k, (m, alone) in enumerate(zip(M, parts, strict=True), 1)
    ]


# -- against enumeration ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("sharing", SHARINGS)
def test_four_orders_agree_with_rational_arithmetic(sharing: str) -> None:
    """Every tuple of up to four coordinates, to 1e-8 and to the certified errors."""
    kinds = set()
    for case in tiny(2, 8, sharing):
        kinds.add((bool(case.available.all()), bool((case.policy.max(axis=1) < 1).any())))
        found = joint_moments(build(case), case.policy, 4)
        assert found.status is Status.CONVERGED
        exact = oracle_joint.exact_joint_moments(case, 4)
        off = true_errors(found, exact)
        assert max(off) <= 1e-8
        assert np.all(off <= found.errors)
        assert found.errors.max() <= 1e-8
    assert len(kinds) == 4  # all actions available or not, policies with a choice or without


@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("shape", [(2, 2, 3), pytest.param((3, 3, 3), marks=pytest.mark.slow)])
def test_three_actions_in_a_state(sharing: str, shape: tuple[int, int, int]) -> None:
    """Three distinct coordinates in one state, or one in each of three; order 3."""
    for case in cases(8, 2, shapes=(shape,), discounts=(0.6,), sharings=(sharing,)):
        found = joint_moments(build(case), case.policy, 3)
        off = true_errors(found, oracle_joint.exact_joint_moments(case, 3))
        assert np.all(off <= found.errors)
        assert found.errors.max() <= 1e-8


@pytest.mark.parametrize("sharing", SHARINGS)
def test_operator_equals_enumeration_on_any_collection(sharing: str) -> None:
    """One application to random moments that belong to no model; the sums have a few hundred terms of size ≤ 50."""
    for seed, case in enumerate(tiny(21, 3, sharing)):
        operator = JointOperator(build(case), as_policy(build(case), case.policy), 4)
        M = random_collection(operator, np.random.default_rng(seed), 1.5)
        labels, (states, actions) = operator.tuples.labels(), operator.coordinates
        names = [tuple(sorted((int(states[i]), int(actions[i])) for i in row if i >= 0)) for row in labels[1:]]
        values = dict(zip(names, np.concatenate(M).tolist(), strict=True))
        after = np.concatenate(operator(M))
        for name, value in zip(names, after.tolist(), strict=True):
            assert value == pytest.approx(oracle_joint.backup(case, name, values), abs=1e-11)


@pytest.mark.parametrize("sharing", ["state", "time"])
def test_steps_from_zero_are_moments_of_a_random_field(sharing: str) -> None:
    """T_n ᵏ 0 holds the moments of the first k steps; the field knows no rule for repeated or merging coordinates."""
    for seed in range(2):
        case = oracle.random_model(np.random.default_rng(seed), 2, 2, 2, discount=0.7, sharing=sharing)
        for horizon in (1, 2, 3 if seed == 0 else 2):
            found = joint_moments(build(case), case.policy, 4, tolerance=None, max_steps=horizon)
            fields = oracle_joint.field_moments(case, 4, horizon)
            for k in range(1, 5):
                # At most 2¹⁴ fields with moments of size ≤ 4.5⁴ and weights that sum to 1.
                np.testing.assert_allclose(found[k].reshape((4,) * k), fields[k - 1], rtol=0, atol=1e-9)


def independent_repeats(tuples: Any, walkers: Any, chances: Any) -> list[Any]:
    """The wrong rule: a coordinate that stands j times in a tuple draws j next actions."""
    right = RIGHT_AVERAGES(tuples, walkers, chances)
    S = int(tuples.states.max()) + 1
    apart = np.zeros(len(walkers), dtype=np.int64)
    for u, labels in enumerate(walkers.labels()):
        for label in labels[labels >= 0]:
            for _ in range(label // S + 1):
                apart[u] = walkers.insert[apart[u], label % S]
    rows = [apart[walkers.of_degree(k)] - walkers.starts[k] for k in range(tuples.order + 1)]
    return [matrix[chosen] for matrix, chosen in zip(right, rows, strict=True)]


RIGHT_AVERAGES = tuple_moments._averages


def test_a_wrong_rule_for_repeated_coordinates_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    case = oracle.random_model(np.random.default_rng(1), 2, 2, 2, discount=0.7, sharing="state")
    exact = oracle_joint.exact_joint_moments(case, 4)
    assert max(true_errors(joint_moments(build(case), case.policy, 4), exact)) <= 1e-8
    monkeypatch.setattr(tuple_moments, "_averages", independent_repeats)
    wrong = true_errors(joint_moments(build(case), case.policy, 4), exact)
    assert wrong[0] <= 1e-8
    assert min(wrong[1:]) > 1e-3


# -- the operator ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**32 - 1),
    discount=st.floats(0.05, 0.999),
    scale=st.sampled_from([1e-3, 1.0, 50.0]),
    sharing=st.sampled_from(SHARINGS),
    deterministic=st.booleans(),
    shape=st.sampled_from([(2, 2, 2), (2, 3, 3)]),
)
def test_contraction(
    seed: int, discount: float, scale: float, sharing: str, deterministic: bool, shape: tuple[int, int, int]
) -> None:
    """‖T_n M − T_n N‖_λ ≤ γ ‖M − N‖_λ, λ_k = (2R_max/(1−γ))^{k−1}; under "none" on a set that T_n keeps."""
    rng = np.random.default_rng(seed)
    case = oracle.random_model(rng, *shape, discount=discount, sharing=sharing, deterministic=deterministic)
    model = build(case._replace(rewards=case.rewards * scale))
    operator = JointOperator(model, as_policy(model, case.policy), 4)
    weight = certificates.norm_weight(model.reward_bound, discount)
    M, N = (random_collection(operator, rng, rng.choice([1.0, weight])) for _ in range(2))
    if sharing == "none":
        M, N = (clipped(operator, K, weight / 2) for K in (M, N))
    TM, TN = operator(M), operator(N)
    assert norm(TM, TN, weight) <= discount * norm(M, N, weight) * (1 + 1e-12)
    if sharing == "none":
        for k, (once, again) in enumerate(zip(TM, clipped(operator, TM, weight / 2), strict=True), 1):
            assert np.max(np.abs(once - again)) <= 1e-12 * (weight / 2) ** k


def test_contraction_is_sharp_and_needs_its_bounds() -> None:
    """Order 1 attains γ; with the range of rewards for R_max, or products outside the set, the lemma fails."""
    model = jm.JointMDP(np.ones((2, 1)), np.full((2, 1, 1), 10.0), [[[0]], [[1]]], 0.9)
    for sharing, weight, least, most in (
        ("state", 200.0, 0.9 * (1 - 1e-12), 0.9 * (1 + 1e-12)),
        ("state", 1.0, 5.0, np.inf),
        ("none", 200.0, 2.0, np.inf),
    ):
        operator = JointOperator(model.with_sharing(sharing), np.ones((2, 1)), 3)
        M, N = operator.zero(), operator.zero()
        M[0] += 500.0 if sharing == "none" else 0.0
        N[0] += M[0] + 1.0
        ratio = norm(operator(M), operator(N), weight) / norm(M, N, weight)
        assert least <= ratio <= most


# -- other ways to the same numbers ----------------------------------------------------------------------------


@pytest.mark.parametrize("sharing", SHARINGS)
def test_order_two_equals_evaluate(sharing: str) -> None:
    for case in cases(31, 3, shapes=((3, 3, 3),), discounts=(0.5, 0.9), sharings=(sharing,)):
        solution = jm.evaluate(build(case), case.policy)
        found = joint_moments(build(case), case.policy, 2)
        limit = found.errors[1] + solution.certificate.second_moment_error
        second, mean = found[2], found[1]
        blocks = np.stack([second[s, :, s, :] for s in range(3)])
        assert np.array_equal(np.isnan(blocks), np.isnan(solution.second_moment))
        assert np.nanmax(np.abs(blocks - solution.second_moment)) <= limit
        assert np.nanmax(np.abs(mean - solution.mean)) <= found.errors[0] + solution.certificate.mean_error
        # μ(x)μ(y) is off by at most 2|μ|e + e² on top of the raw moment.
        size = np.nanmax(np.abs(mean)) + 1e-8
        for s, a, t, b in np.argwhere(np.isfinite(second)):
            covariance = second[s, a, t, b] - mean[s, a] * mean[t, b]
            allowed = (
                found.errors[1] + 3 * size * found.errors[0] + solution.certificate.covariance_error + 1e-14 * size**2
            )
            assert abs(covariance - solution.covariance_between(s, a, t, b)) <= allowed


def chain_moments(length: int, g: float) -> dict[str, float]:
    """Mixed moments of the two returns in the chain's first state, by the time at which the two branches meet.

    Until then the rewards of the two are opposed, afterwards equal: Z_a = V + U and Z_b = V − U, where U and V are
    sums of independent signs. They meet at step τ ≥ 1 with probability 2^{−τ}.
    """
    steps = length - 1
    found = dict.fromkeys(("aa", "ab", "aaaa", "aaab", "aabb"), 0.0)
    for tau in range(1, steps + 1):
        chance = 0.5**tau if tau < steps else 0.5 ** (steps - 1)
        apart, together = ([g ** (2 * t) for t in times] for times in (range(tau), range(tau, steps)))
        u2, v2 = sum(apart), sum(together)
        u4, v4 = (3 * sum(part) ** 2 - 2 * sum(x**2 for x in part) for part in (apart, together))
        found["aa"] += chance * (v2 + u2)
        found["ab"] += chance * (v2 - u2)
        found["aaaa"] += chance * (v4 + 6 * u2 * v2 + u4)
        found["aaab"] += chance * (v4 - u4)
        found["aabb"] += chance * (v4 - 2 * u2 * v2 + u4)
    return found


@pytest.mark.parametrize("sharing", ["state", "time"])
def test_chain_has_closed_forms(sharing: str) -> None:
    length, g = 5, 0.9
    found = joint_moments(*jm.envs.coupled_reward_chain(length, g, sharing=sharing), 4)
    expected = chain_moments(length, g)
    index = {"a": ("s0", "a1"), "b": ("s0", "a2")}
    for letters, value in expected.items():
        assert found.moment(*(index[letter] for letter in letters)) == pytest.approx(value, abs=1e-8)
    assert found.moment(index["a"], index["a"], index["b"]) == pytest.approx(0, abs=1e-8)
    # On [0, 1] every return is (Z + c)/2 with c the discounted number of steps, and the third moments show.
    shifted = joint_moments(*jm.envs.coupled_reward_chain(length, g, sharing=sharing, shifted=True), 3)
    c = sum(g**t for t in range(length - 1))
    third = (c * expected["aa"] + 2 * c * expected["ab"] + c**3) / 8
    assert shifted.moment(index["a"], index["b"], index["a"]) == pytest.approx(third, abs=1e-8)


def test_three_actions_that_depend_only_as_three() -> None:
    """Two coins and their product: pairwise independent, and E[Z Z' Z''] = 1 all the same; with noise apart it is 0."""
    coins = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]], dtype=float)
    rewards = np.stack([coins, np.zeros((4, 3))])
    model = jm.JointMDP(np.full((2, 4), 0.25), rewards, np.ones((2, 4, 3)), 0.9)
    for sharing, third in (("state", 1.0), ("time", 1.0), ("none", 0.0)):
        found = joint_moments(model.with_sharing(sharing), [0, 0], 3)
        np.testing.assert_allclose(found[2][0, :, 0, :], np.eye(3), rtol=0, atol=1e-12)
        assert found.moment((0, 0), (0, 1), (0, 2)) == pytest.approx(third, abs=1e-12)
        assert found.moment((0, 0), (0, 0), (0, 2)) == pytest.approx(0, abs=1e-12)


def test_a_constant_return_has_powers_for_moments() -> None:
    model = jm.JointMDP(np.ones((1, 1)), np.full((1, 1, 2), -1.0), np.zeros((1, 1, 2)), 0.5)
    found = joint_moments(model, [0], 8)
    for k in range(1, 9):
        assert np.max(np.abs(found[k] - (-2.0) ** k)) <= found.errors[k - 1] <= 1e-8


# -- certificates ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sharing", SHARINGS)
def test_certified_errors_hold_wherever_the_iteration_stops(sharing: str) -> None:
    """From zero and from random starts; and the bound is at most (1+γ)/(1−γ) times the error, where T_n is affine."""
    for seed, case in enumerate(tiny(41, 4, sharing, discounts=(0.5, 0.9))):
        model, g = build(case), case.discount
        exact = oracle_joint.exact_joint_moments(case, 4)
        weights = certificates.norm_weight(model.reward_bound, g) ** np.arange(4)
        rng = np.random.default_rng(seed)
        vector = rng.normal(size=model.available.shape) * 20
        start = [prod_tensor(vector, k) for k in range(1, 5)]
        for first, steps in itertools.product((None, start), (0, 1, 3, 10, 60)):
            found = joint_moments(model, case.policy, 4, tolerance=None, max_steps=steps, start=first)
            assert (found.status, found.steps, len(found.history)) == (Status.COMPLETED, steps, steps + 1)
            off = np.array(true_errors(found, exact))
            assert np.all(off <= found.errors)
            assert found.history[-1] <= found.residual
            if sharing != "none":
                loose = (1 + g) / (1 - g) * np.max(off / weights)
                rounding = (found.residual - found.history[-1]) * 2 / (1 - g)
                assert np.max(found.errors / weights) <= loose * (1 + 1e-9) + rounding
                assert np.all(found.history[1:] <= g * found.history[:-1] * (1 + 1e-12) + rounding)


def prod_tensor(vector: np.ndarray, k: int) -> np.ndarray:
    """v ⊗ … ⊗ v."""
    found = np.array(1.0)
    for _ in range(k):
        found = np.multiply.outer(found, vector)
    return found


def test_products_need_a_bound_of_their_own() -> None:
    """Two returns of exactly 2; under "none" a mean off by h gives a product off by h² that leaves no residual."""
    model = jm.JointMDP(np.ones((2, 1)), np.ones((2, 1, 1)), [[[0]], [[1]]], 0.5, "none")
    h = 1000.0
    mean, product, square = 2 + h, (2 + h / 2) ** 2, (3 + h) / 0.75  # T₂ keeps the square and the product
    second = np.array([[square, product], [product, square]]).reshape(2, 1, 2, 1)
    start = [np.full((2, 1), mean), second]
    found = joint_moments(model, [0, 0], 2, tolerance=None, max_steps=0, start=start)
    assert found.history[0] == pytest.approx(h / 2)  # of the mean alone
    assert product - 4 > (0 + 2 * 0.5 * h) / 0.75  # what the affine recursion would allow
    assert found.errors[1] >= product - 4
    assert found.errors[0] == pytest.approx(h)


@pytest.mark.parametrize("sharing", SHARINGS)
def test_what_rounding_leaves_is_certified(sharing: str) -> None:
    """At rest the computed residual is (almost) zero, the answer is still off, and the bound still holds."""
    seen = 0.0
    for case in tiny(51, 3, sharing, discounts=(0.9,)):
        with pytest.warns(ConvergenceWarning, match="rounding floor"):
            found = joint_moments(build(case), case.policy, 4, tolerance=1e-16)
        assert found.status is Status.STAGNATED
        off = np.array(true_errors(found, oracle_joint.exact_joint_moments(case, 4)))
        assert np.all(off <= found.errors)
        seen = max(seen, off.max())
    assert seen > 0


def test_missing_the_tolerance_warns_or_raises() -> None:
    model, policy = jm.envs.coupled_reward_chain(3, 0.9)
    with pytest.warns(ConvergenceWarning, match="step limit.*orders 1 to 2 ±"):
        found = joint_moments(model, policy, 2, max_steps=1)
    assert (found.status, found.steps) == (Status.STEP_LIMIT, 1)
    with pytest.raises(ConvergenceError, match="step limit"):
        joint_moments(model, policy, 2, max_steps=1, throw=True)


def test_no_rewards_is_exact_at_once() -> None:
    model = jm.JointMDP(np.ones((1, 1)), np.zeros((1, 1, 2)), np.zeros((1, 1, 2)), 0.9)
    found = joint_moments(model, [0], 3)
    assert found.residual == 0
    assert not found.errors.any()
    assert not found[3].any()


# -- the answer as an object -----------------------------------------------------------------------------------


def test_tensors_entries_and_names() -> None:
    case = next(c for c in tiny(3, 8, "state") if not c.available.all())
    model = build(case)
    found = joint_moments(model, case.policy, 4)
    for k in range(1, 5):
        tensor = found[k]
        assert tensor.shape == (2, 2) * k
        for place in np.ndindex(tensor.shape):
            x = list(zip(place[::2], place[1::2], strict=True))
            if all(case.available[y] for y in x):
                assert found.moment(*x) == tensor[place]
                assert found.moment(*reversed(x)) == tensor[place]
            else:
                assert np.isnan(tensor[place])
    gone = tuple(map(int, np.argwhere(~case.available)[0]))
    with pytest.raises(ModelError, match="not available"):
        found.moment(gone)
    again = joint_moments(model, case.policy, 4, start=[found[k] for k in range(1, 5)])
    assert again.steps == 0
    assert "order 4: the certified error is within the tolerance; orders 1 to 4 ± " in repr(found)


@pytest.mark.parametrize(
    ("sharing", "shape", "order"),
    [("state", (9, 2, 4), 3), ("time", (9, 2, 4), 3), ("none", (9, 2, 4), 3), ("state", (2, 20, 6), 4)],
)
def test_memory_estimate_covers_what_is_used(sharing: str, shape: tuple[int, int, int], order: int) -> None:
    rng = np.random.default_rng(0)
    case = oracle.random_model(rng, *shape, discount=0.5, sharing=sharing)
    model, policy = build(case), as_policy(build(case), case.policy)
    tracemalloc.start()
    joint_moments(model, policy, order, tolerance=None, max_steps=2)
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    estimate = solver._memory(model, policy, order)
    assert used <= estimate <= 20 * used


def test_too_large_is_refused_before_it_starts() -> None:
    model, policy = jm.envs.inventory()
    with pytest.raises(ModelError, match=r"order 6 on 140 coordinates has [\d,]+ sorted tuples.*order \d would fit"):
        joint_moments(model, policy, 6)
    small, choice = jm.envs.coupled_reward_chain(3, 0.9)
    with pytest.raises(ModelError, match=r"209 sorted tuples.*not even order 1.*evaluate\(model, policy, order=4\)"):
        joint_moments(small, choice, 4, memory_limit=1000)
    found = joint_moments(small, choice, 4, memory_limit=6_000_000)
    object.__setattr__(found, "memory_limit", 20_000.0)
    assert found[3].shape == (3, 2) * 3
    with pytest.raises(ModelError, match="1,296 entries"):
        found[4]


def bad_start(**changes: Any) -> list[np.ndarray]:
    start = [np.zeros((3, 2) * k) for k in (1, 2)]
    for name, value in changes.items():
        start[int(name[-1]) - 1] = value
    return start


LOPSIDED = np.zeros((3, 2, 3, 2))
LOPSIDED[1, 0, 2, 1] = 1.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"order": 0}, "order is 0; it must be at least 1"),
        ({"order": 2.5}, "order must be a whole number, not 2.5"),
        ({"order": True}, "order must be a whole number, not True"),
        ({"order": 65}, "order is 65; it must be at most 64"),
        ({"tolerance": 0}, "tolerance is 0; it must be positive"),
        ({"max_steps": -1}, "max_steps is -1; it must be at least 0"),
        ({"memory_limit": 0}, "memory_limit is 0; it must be positive"),
        (
            {"start": [np.zeros((3, 2))]},
            "start must be a sequence of 2 tensors, one for each order 1 to 2, not 1 tensors",
        ),
        ({"start": 1.0}, "start must be a sequence of 2 tensors.*not 1.0"),
        (
            {"start": bad_start(m2=np.zeros((6, 6)))},
            r"start of order 2 must have shape \[S, A, S, A\], but it has 2 axes",
        ),
        ({"start": bad_start(m1=np.zeros((2, 3)))}, r"start of order 1 has shape \(2, 3\).*axes in another order"),
        ({"start": bad_start(m1=np.full((3, 2), np.nan))}, r"start of order 1 at \(s0, a1\) is nan"),
        ({"start": bad_start(m1=np.full((3, 2), 1e100))}, r"start of order 1 at \(s0, a1\) is 1e\+100.*at most 1e\+75"),
        ({"start": bad_start(m2=LOPSIDED)}, r"order 2 is not symmetric.*\(s1, a1\), \(s2, a2\) changes it by 1"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    model, policy = jm.envs.coupled_reward_chain(3, 0.9)
    order = settings.pop("order", 2)
    with pytest.raises(ModelError, match=message):
        joint_moments(model, policy, order, **settings)


def test_bad_models_and_questions() -> None:
    model, policy = jm.envs.coupled_reward_chain(3, 0.9)
    with pytest.raises(ModelError, match="the model must be a JointMDP, not tuple"):
        joint_moments((model, policy), policy, 2)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="discount is 1"):
        joint_moments(model.with_discount(1.0), policy, 2)
    large = jm.envs.coupled_reward_chain(3, 0.9, reward=1e40)[0]
    assert joint_moments(large, policy, 3, tolerance=None, max_steps=2).errors.max() < 1e125
    with pytest.raises(ModelError, match=r"rewards up to 1e\+40 at discount 0.9 have moments of order 4 beyond"):
        joint_moments(large, policy, 4)
    found = joint_moments(model, policy, 2)
    with pytest.raises(ModelError, match="order is 0"):
        found[0]
    with pytest.raises(ModelError, match="order is 3; it must be at most 2"):
        found[3]
    with pytest.raises(ModelError, match="0 coordinates asked for"):
        found.moment()
    with pytest.raises(ModelError, match="3 coordinates asked for, but the moments are of order 1 to 2"):
        found.moment(*[(0, 0)] * 3)
    with pytest.raises(ModelError, match=r"a coordinate is a pair \(state, action\), not 's0'"):
        found.moment("s0", "a1")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="unknown action 'a3'"):
        found.moment(("s0", "a3"))


@pytest.mark.slow
@pytest.mark.parametrize("sharing", ["state", "time"])
def test_gridworld_to_order_four(sharing: str) -> None:
    """36 coordinates, 91,389 tuples: the fourth moment of one return against a recursion of its own."""
    model, policy = jm.envs.windy_gridworld(3, 0.9, sharing=sharing)
    found = joint_moments(model, policy, 4, tolerance=1e-6)
    raw = [np.ones(9)]
    kernel = model.marginal_mdp().transitions
    reward = model.rewards[:, 0, :]  # the same in every scenario
    for k in range(1, 5):
        # E(R + γZ')ᵏ is linear in the k-th moments of Z'; solved directly.
        known = sum(comb(k, j) * 0.9**j * reward ** (k - j) * (kernel @ raw[j]) for j in range(k))
        step = np.einsum("sa,sat->st", policy, kernel)
        raw.append(np.linalg.solve(np.eye(9) - 0.9**k * step, np.sum(policy * known, axis=1)))
        alone = known + 0.9**k * (kernel @ raw[k])
        for s, a in np.ndindex(9, 4):
            assert found.moment(*[(s, a)] * k) == pytest.approx(alone[s, a], abs=1e-6)
