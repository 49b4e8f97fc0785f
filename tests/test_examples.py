"""The paper's examples and the machine have the answers that their docstrings derive."""

from __future__ import annotations

from math import comb
from typing import Any

import numpy as np
import pytest

import jointmdp as jm
from jointmdp.model.joint_mdp import JointMDP

pytestmark = pytest.mark.optimised

EXACT = {"rel": 0, "abs": 1e-10}


def marginal(model: JointMDP, s: int, a: int) -> np.ndarray:
    """Law of reward and successor of one action by itself, [distinct rows]."""
    law: dict[tuple[float, int], float] = {}
    for w, p in enumerate(model.probabilities[s]):
        outcome = (float(model.rewards[s, w, a]), int(model.successors[s, w, a]))
        law[outcome] = law.get(outcome, 0.0) + p
    return np.array(sorted((*outcome, p) for outcome, p in law.items()))


def assert_simulation_agrees(model: JointMDP, policy: Any, state: Any, action: Any, other: Any) -> None:
    """Mean and variance of simulated gaps lie within five standard errors (and the truncated tail) of the exact ones.

    At five standard errors a false alarm has probability 6e-7 for each comparison over seeds; the seed is fixed.
    """
    gap = jm.evaluate(model, policy).gap(state, action, other)
    sample = jm.simulate(model, policy, state, [action, other], num_samples=20_000, seed=3, gaps_only=True).gap(
        action, other
    )
    tail = sample.truncation_bound
    assert abs(sample.mean - gap.mean) <= 5 * sample.mean_standard_error + tail
    assert abs(sample.variance - gap.variance) <= 5 * sample.variance_standard_error + 2 * tail * (gap.std + tail)
    assert sample.variance_standard_error < 0.05 * gap.variance  # the comparison can fail


# -- Example 1 -------------------------------------------------------------------------------------------------


def test_example_1_is_the_paper_s() -> None:
    model, policy = jm.envs.anticorrelated_rewards()
    assert policy.tolist() == [[0.5, 0.5]]
    law = model.query_law(0, ["a1", "a2"])
    assert np.array_equal(marginal(model, 0, 0), marginal(model, 0, 1))
    rewards, p = model.rewards[0], model.probabilities[0]
    assert p @ (rewards[:, 0] * rewards[:, 1]) == 0
    assert p @ (rewards[:, 0] > rewards[:, 1]) == 0.5
    assert np.array_equal(rewards.sum(axis=1), [1, 1])
    assert len(law.probabilities) == 2
    assert model.is_coupled


@pytest.mark.parametrize("discount", [0.1, 0.9, 0.99])
@pytest.mark.parametrize("q", [0.5, 0.3, 1.0])
@pytest.mark.parametrize("sharing", ["state", "time", "none"])
def test_example_1_closed_forms(discount: float, q: float, sharing: Any) -> None:
    model, policy = jm.envs.anticorrelated_rewards(discount, sharing)
    solution = jm.evaluate(model, [[q, 1 - q]])
    g, d = discount**2, 2 * q * (1 - q)
    variance = 1 / (4 * (1 - g))
    assert solution.mean == pytest.approx(np.full((1, 2), 1 / (2 * (1 - discount))), **EXACT)
    assert solution.variance == pytest.approx(np.full((1, 2), variance), **EXACT)
    gap = solution.gap("s", "a1", "a2")
    expected = 2 * variance if sharing == "none" else 1 / (1 - d * g)
    assert gap.mean == pytest.approx(0, **EXACT)
    assert gap.variance == pytest.approx(expected, **EXACT)
    if q == 0.5 and sharing != "none":
        rho = jm.evaluate(model, policy).correlation[0, 0, 1]
        assert rho == pytest.approx((3 * g - 2) / (2 - g), **EXACT)


def test_example_1_correlation_changes_its_sign() -> None:
    def rho(g: float) -> float:
        return float(jm.evaluate(*jm.envs.anticorrelated_rewards(g**0.5)).correlation[0, 0, 1])

    assert rho(2 / 3) == pytest.approx(0, abs=1e-10)
    assert rho(0.5) < -0.3 < 0.3 < rho(0.8)


@pytest.mark.slow
def test_example_1_simulated() -> None:
    assert_simulation_agrees(jm.envs.anticorrelated_rewards()[0], [[0.3, 0.7]], "s", "a1", "a2")


# -- Example 2 -------------------------------------------------------------------------------------------------


def test_example_2_variants_differ_in_their_joint_law_only() -> None:
    together, flipped = jm.envs.shared_successors()[0], jm.envs.shared_successors(flipped=True)[0]
    for s, a in np.ndindex(2, 2):
        assert np.array_equal(marginal(together, s, a), marginal(flipped, s, a))
        assert marginal(together, s, a).tolist() == [[s, 0, 0.5], [s, 1, 0.5]]
    assert np.array_equal(together.successors[..., 0], together.successors[..., 1])
    assert np.array_equal(flipped.successors[..., 0], 1 - flipped.successors[..., 1])


@pytest.mark.parametrize("discount", [0.5, 0.9])
@pytest.mark.parametrize("q", [0.5, 0.3, 1.0])
@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("sharing", ["state", "time", "none"])
def test_example_2_closed_forms(discount: float, q: float, flipped: bool, sharing: Any) -> None:
    model, _ = jm.envs.shared_successors(flipped, discount, sharing)
    solution = jm.evaluate(model, [[q, 1 - q]] * 2)
    g, d = discount**2, 2 * q * (1 - q)
    meets = 0.5 if sharing == "state" else 1 - d
    expected = g / (2 * (1 - g)) if sharing == "none" else flipped * g / (1 - (1 - meets) * g - meets * d * g**2)
    for s in (0, 1):
        assert solution.mean[s] == pytest.approx(np.full(2, s + discount / (2 * (1 - discount))), **EXACT)
        assert solution.variance[s] == pytest.approx(np.full(2, g / (4 * (1 - g))), **EXACT)
        gap = solution.gap(s, "a1", "a2")
        assert gap.mean == pytest.approx(0, **EXACT)
        assert gap.variance == pytest.approx(expected, **EXACT)
        if flipped and q == 0.5 and sharing != "none":
            assert gap.variance == pytest.approx(4 * g / (4 - 2 * g - g**2), **EXACT)


@pytest.mark.parametrize("sharing", ["state", "time"])
def test_example_2_simulated(sharing: Any) -> None:
    model, _ = jm.envs.shared_successors(True, sharing=sharing)
    assert_simulation_agrees(model, [[0.9, 0.1]] * 2, "state 1", "a1", "a2")


def test_example_2_1_never_differs() -> None:
    model, policy = jm.envs.shared_successors()
    assert np.all(jm.simulate(model, policy, 0, [0, 1], num_samples=100, seed=0, gaps_only=True).gap(0, 1).gaps == 0)


def test_flipped_must_be_a_truth_value() -> None:
    with pytest.raises(jm.ModelError, match="flipped must be True or False, not 'no'"):
        jm.envs.shared_successors("no")  # type: ignore[arg-type]


# -- machine replacement ---------------------------------------------------------------------------------------


def test_machine_against_the_rules_told_one_by_one() -> None:
    model, policy = jm.envs.machine_replacement(5, shocks=2, shock_probability=0.25, repair_levels=2, replace_at=4)
    assert model.state_names == ("wear 0", "wear 1", "wear 2", "wear 3", "wear 4", "broken")
    assert model.action_names == ("keep", "repair", "replace")
    assert np.array_equal(model.available, [[True] * 3] * 5 + [[False, False, True]])
    binomial = [comb(2, d) * 0.25**d * 0.75 ** (2 - d) for d in range(3)]
    np.testing.assert_allclose(model.probabilities, [binomial] * 6, rtol=1e-14)
    for x, d, a in np.argwhere(model.is_possible):
        started = {"keep": x, "repair": max(x - 2, 0), "replace": 0}[model.action_label(a)]
        cost = {"keep": 0.0, "repair": 4.0, "replace": 9.0}[model.action_label(a)]
        ended = min(started + d, 5)
        assert model.successors[x, d, a] == ended
        assert model.rewards[x, d, a] == pytest.approx(10 - 0.5 * ended - 8 * (ended == 5) - cost)
    assert policy.argmax(axis=1).tolist() == [0, 0, 0, 1, 2, 2]


def test_machine_policy_is_optimal_by_default() -> None:
    model, policy = jm.envs.machine_replacement()
    assert (model.sharing, model.discount) == ("time", 0.95)
    assert policy.argmax(axis=1).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    q = jm.evaluate(model, policy).mean
    best = np.nanmax(q, axis=1)
    assert np.all(best - q[policy == 1] <= 1e-9)
    # The choice is close where the thresholds lie, so that it takes common random numbers to see it in a simulation.
    gap = jm.evaluate(model, policy).gap("wear 2", "keep", "repair")
    assert 0 < gap.mean < 1
    assert gap.replications_to_select().saved > 10


def test_machine_thresholds_beyond_the_wear_never_apply() -> None:
    assert jm.envs.machine_replacement(3, repair_at=9, replace_at=9)[1].argmax(axis=1).tolist() == [0, 0, 0, 2]
    assert jm.envs.machine_replacement(3, repair_at=0, replace_at=2)[1].argmax(axis=1).tolist() == [1, 1, 2, 2]


def test_machines_in_the_same_condition_differ_by_a_price() -> None:
    solution = jm.evaluate(*jm.envs.machine_replacement())
    gap = solution.gap("wear 3", "repair", "replace")
    assert gap.mean == pytest.approx(5, **EXACT)
    assert gap.variance == pytest.approx(0, **EXACT)
    # Across states: one return is the other minus a price, so covariance and variances are one number.
    for (x, a), (y, b), price in [
        (("wear 5", "repair"), ("wear 2", "keep"), 4),
        (("broken", "replace"), ("wear 0", "keep"), 9),
    ]:
        i, j = solution.model.state_index(x), solution.model.state_index(y)
        k, m = solution.model.action_index(a), solution.model.action_index(b)
        assert solution.mean[j, m] - solution.mean[i, k] == pytest.approx(price, **EXACT)
        assert solution.covariance_between(x, a, y, b) == pytest.approx(solution.variance[i, k], **EXACT)
        assert solution.variance[i, k] == pytest.approx(solution.variance[j, m], **EXACT)


def test_machine_that_breaks_at_once_has_a_closed_form() -> None:
    model, policy = jm.envs.machine_replacement(1, discount=0.9)
    solution = jm.evaluate(model, policy)
    p = 1 - 0.7**3
    price = 0.5 + 8 + 0.9 * 9
    assert solution.mean[0, 0] == pytest.approx((10 - p * price) / 0.1, **EXACT)
    assert solution.variance[0, 0] == pytest.approx(p * (1 - p) * price**2 / (1 - 0.81), **EXACT)


def test_machine_without_shocks_is_certain() -> None:
    solution = jm.evaluate(*jm.envs.machine_replacement(shock_probability=0.0))
    assert solution.mean[0, 0] == pytest.approx(10 / 0.05, **EXACT)
    assert np.nanmax(solution.variance) == pytest.approx(0, **EXACT)


@pytest.mark.slow
def test_machine_simulated() -> None:
    assert_simulation_agrees(*jm.envs.machine_replacement(), "wear 2", "keep", "repair")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_wear": 0}, "max_wear is 0; it must be at least 1"),
        ({"shocks": 1.5}, "shocks must be a whole number"),
        ({"shock_probability": 1.2}, "shock_probability is 1.2; a probability lies between 0 and 1"),
        ({"repair_cost": -1}, "repair_cost is -1; it must be finite and not negative"),
        ({"repair_levels": 0}, "repair_levels is 0"),
        ({"replace_at": -1}, "replace_at is -1"),
        ({"sharing": "all"}, "sharing is 'all'"),
    ],
)
def test_machine_settings_that_make_no_sense(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(jm.ModelError, match=message):
        jm.envs.machine_replacement(**settings)
