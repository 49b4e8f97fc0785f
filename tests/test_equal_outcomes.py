"""The couplings that make equal outcomes coincide: "maximal" and "gumbel-max"."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from zoo import daily

import jointmdp as jm
from jointmdp.model.action_laws import NumberedLaw, numbered_laws
from jointmdp.model.couplings import gumbel_scenarios
from jointmdp.model.from_mdp import ordinary_model
from tests.test_couplings import joint_of_pair, random_mdp


def one_state(*laws: list[float]) -> np.ndarray:
    """Transitions in which state 0 has these laws of its actions and the other states are absorbing."""
    size = len(laws[0])
    kernel = np.tile(np.eye(size)[:, None, :], (1, len(laws), 1))
    kernel[0] = laws
    return kernel


def joint(kernel: np.ndarray, coupling: Any, a: int = 0, b: int = 1, rewards: Any = None) -> np.ndarray:
    gains = np.zeros(kernel.shape[:2]) if rewards is None else rewards
    return joint_of_pair(jm.from_mdp(kernel, gains, 0.9, coupling), 0, a, b)


# -- maximal ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_two_actions_coincide_as_often_as_any_coupling_allows(seed: int) -> None:
    kernel, rewards = random_mdp(seed, S=5, A=2)
    model = jm.from_mdp(kernel, rewards, 0.9, "maximal")
    for s in range(5):
        found = joint_of_pair(model, s, 0, 1)
        np.testing.assert_allclose(np.diagonal(found), kernel[s].min(axis=0), rtol=0, atol=1e-14)
        # What is left of the two laws has no outcome in common, and is joined in listed order: no pair crosses another.
        rest = found - np.diag(np.diagonal(found))
        pairs = np.argwhere(rest > 1e-14)
        assert np.all(np.diff(pairs[:, 1]) >= 0)


@pytest.mark.parametrize("seed", range(4))
def test_many_actions_coincide_with_the_first_and_all_at_once(seed: int) -> None:
    kernel, rewards = random_mdp(seed, S=5, A=4)
    model = jm.from_mdp(kernel, rewards, 0.9, "maximal")
    for s in range(5):
        for a in range(1, 4):
            same = np.trace(joint_of_pair(model, s, 0, a))
            assert same == pytest.approx(np.minimum(kernel[s, 0], kernel[s, a]).sum(), abs=1e-14)
        is_one = (model.successors[s] == model.successors[s, :, :1]).all(axis=1)
        assert model.probabilities[s] @ is_one == pytest.approx(kernel[s].min(axis=0).sum(), abs=1e-14)


def test_a_pair_can_have_less_than_its_own_maximum() -> None:
    """Pairs (0, 1), (0, 2) have theirs; actions 1 and 2 have one outcome in common that both need elsewhere."""
    kernel = one_state([0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [0.0, 0.5, 0.5])
    found = joint(kernel, "maximal", 1, 2)
    assert np.trace(found) == pytest.approx(0.0)
    assert np.minimum(kernel[0, 1], kernel[0, 2]).sum() == 0.5


def test_second_choices_are_met() -> None:
    """Actions 1 and 2 are alike and have nothing in common with action 0: they coincide always."""
    kernel = one_state([0.0, 1.0, 0.0, 0.0], [0.5, 0.0, 0.3, 0.2], [0.5, 0.0, 0.3, 0.2])
    np.testing.assert_allclose(joint(kernel, "maximal", 1, 2), np.diag([0.5, 0.0, 0.3, 0.2]), rtol=0, atol=1e-15)


def test_scenarios_stay_few() -> None:
    kernel, rewards = random_mdp(0, S=30, A=6)
    model = jm.from_mdp(kernel, rewards, 0.9, "maximal")
    assert model.num_scenarios <= 2 * 6 * 30
    assert jm.from_mdp(np.tile(kernel[:, :1], (1, 6, 1)), rewards, 0.9, "maximal").num_scenarios <= 30


# -- Gumbel-max ------------------------------------------------------------------------------------------------


def exact_pair(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """``P(argmin_k E_k/p_k = i, argmin_k E_k/q_k = j)`` in closed form, with independent exponential E.

    With ``E_i = x`` and ``E_j = r x``, the others exceed ``x max(p_k/p_i, r q_k/q_j)``; over x this leaves an integral
    of ``1/c(r)²``, where ``c(r) = 1 + r + Σ_k max(p_k/p_i, r q_k/q_j)`` is linear between break points.
    """
    size = len(p)
    found = np.zeros((size, size))
    for i, j in np.ndindex(size, size):
        if p[i] == 0 or q[j] == 0:
            continue
        if i == j:
            found[i, i] = 1 / np.maximum(p / p[i], q / q[i]).sum()
            continue
        low = p[j] / p[i]
        high = q[j] / q[i] if q[i] > 0 else np.inf
        others = [k for k in range(size) if k not in (i, j)]
        alpha, beta = p[others] / p[i], q[others] / q[j]
        with np.errstate(divide="ignore", invalid="ignore"):
            breaks = alpha / beta
        edges = [low, *sorted(x for x in breaks if low < x < high), high]
        for left, right in itertools.pairwise(edges):
            if right > left:
                middle = 2 * left + 1 if right == np.inf else (left + right) / 2
                is_second = beta * middle > alpha
                constant, slope = 1 + alpha[~is_second].sum(), 1 + beta[is_second].sum()
                upper = 0.0 if right == np.inf else 1 / (slope * (constant + slope * right))
                found[i, j] += 1 / (slope * (constant + slope * left)) - upper
    return found


@pytest.mark.parametrize("seed", range(3))
def test_the_closed_form_has_the_right_marginals(seed: int) -> None:
    kernel, _ = random_mdp(seed, S=5, A=2)
    for p, q in kernel:
        found = exact_pair(p, q)
        np.testing.assert_allclose(found.sum(axis=1), p, rtol=0, atol=1e-14)
        np.testing.assert_allclose(found.sum(axis=0), q, rtol=0, atol=1e-14)


@pytest.mark.parametrize("seed", range(3))
def test_two_actions_agree_with_the_closed_form(seed: int) -> None:
    """Within 5 standard errors of the draws: 150 entries, a false alarm in fewer than 1 of 10,000 such tests."""
    kernel, rewards = random_mdp(seed, S=5, A=2)
    draws = 20_000
    model = jm.from_mdp(kernel, rewards, 0.9, jm.GumbelMax(draws, seed=seed))
    for s in range(5):
        expected = exact_pair(*kernel[s])
        room = 5 * np.sqrt(expected * (1 - expected) / draws) + 1 / draws
        assert np.all(np.abs(joint_of_pair(model, s, 0, 1) - expected) <= room)


@pytest.mark.parametrize("sharing", daily(["state", "time"]))
def test_three_actions_agree_with_gumbel_noise(sharing: Any) -> None:
    """Whole rows of outcomes, against ``argmax(log p + g)`` with other noise."""
    kernel, rewards = random_mdp(3, S=4, A=3)
    draws, trials = 4000, 100_000
    model = jm.from_mdp(kernel, rewards, 0.9, jm.GumbelMax(draws), sharing)
    noise = np.random.default_rng(99).gumbel(size=(trials, 4))
    with np.errstate(divide="ignore"):
        outcomes = np.argmax(np.log(kernel)[None] + noise[:, None, None, :], axis=3)  # [trials, S, A]
    for s in range(4):
        for row in itertools.product(range(4), repeat=3):
            expected = np.mean((outcomes[:, s] == row).all(axis=1))
            found = model.probabilities[s] @ (model.successors[s] == row).all(axis=1)
            assert abs(found - expected) <= 5 * np.sqrt(expected * (1 - expected) * 1.1 / draws) + 3 / draws
    if sharing == "time":  # the noise of a successor is the same in all states
        both = np.mean(outcomes[:, 0, 0] == outcomes[:, 1, 1])
        got = model.probabilities[0] @ (model.successors[0, :, 0] == model.successors[1, :, 1])
        apart = kernel[0, 0] @ kernel[1, 1]
        assert abs(got - both) <= 5 * np.sqrt(both / draws) < abs(both - apart)


@pytest.mark.parametrize("seed", range(6))
def test_counterfactual_stability(seed: int) -> None:
    """Seen outcome i of a, b gets another outcome j only if j became more likely relative to i."""
    kernel, rewards = random_mdp(seed, S=5, A=3)
    model = jm.from_mdp(kernel, rewards, 0.9, jm.GumbelMax(500, seed))
    count = 0
    for s, (a, b) in itertools.product(range(5), itertools.permutations(range(3), 2)):
        p, q = kernel[s, a], kernel[s, b]
        for i, j in np.argwhere(joint_of_pair(model, s, a, b) > 0).tolist():
            if i != j:
                assert q[j] * p[i] > q[i] * p[j]
                count += 1
    assert count > 100
    other = jm.from_mdp(kernel, rewards, 0.9, "independent")  # the guard: others are not stable
    assert any(
        joint_of_pair(other, s, 0, 1)[i, j] * kernel[s, 0, j] * kernel[s, 1, i] > 0
        for s in range(5)
        for i, j in itertools.permutations(range(5), 2)
    )


def test_draws_and_seed_are_settings() -> None:
    kernel, rewards = random_mdp(1)
    make = lambda coupling: jm.from_mdp(kernel, rewards, 0.9, coupling)  # noqa: E731
    assert make("gumbel-max") == make(jm.GumbelMax()) == make(jm.GumbelMax(draws=1000, seed=0))
    assert make(jm.GumbelMax(seed=1)) != make("gumbel-max") != make(jm.GumbelMax(draws=999))


def test_rare_outcomes_have_scenarios_of_their_own() -> None:
    kernel = one_state([1 - 3e-7, 1e-7, 2e-7, 0], [0.25, 0.25, 0.25, 0.25], [1e-12, 0, 0, 1 - 1e-12])
    model = jm.from_mdp(kernel, np.zeros((4, 3)), 0.9, "gumbel-max")
    np.testing.assert_allclose(model.marginal_mdp().transitions, kernel, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("draws", [2, 1000])
def test_laws_that_no_draw_tells_apart(draws: int) -> None:
    """The draws admit no weights with both marginals: what is missing gets scenarios of its own."""
    kernel = one_state([0.5, 0.5], [0.5 + 1e-6, 0.5 - 1e-6])
    found = joint(kernel, jm.GumbelMax(draws))
    np.testing.assert_allclose(found, [[0.5, 0], [1e-6, 0.5 - 1e-6]], rtol=0, atol=2e-12)


def test_a_state_gets_more_draws_where_its_laws_need_them() -> None:
    rng = np.random.default_rng(0)
    alike = (2 * rng.dirichlet(np.ones(12)) + rng.dirichlet(np.ones(12), 6)) / 3  # few draws tell these laws apart
    laws = [NumberedLaw(np.arange(12), law, np.arange(12)) for law in alike]
    with pytest.raises(jm.ModelError, match="take more draws"):
        gumbel_scenarios(laws, 40, np.random.default_rng(0), attempts=1)
    chances, choices = gumbel_scenarios(laws, 40, np.random.default_rng(0), attempts=3)
    for a, law in enumerate(laws):
        found = np.bincount(choices[:, a], chances, minlength=len(law.numbers))
        np.testing.assert_allclose(found, law.probabilities, rtol=0, atol=1e-13)


# -- both ------------------------------------------------------------------------------------------------------

BOTH = ["maximal", "gumbel-max"]


@pytest.mark.parametrize("coupling", BOTH)
def test_equal_laws_never_part(coupling: Any) -> None:
    law = [0.2, 0.5, 0.0, 0.3]
    kernel, rewards = one_state(law, law, law), np.arange(12.0).reshape(4, 3)
    for a, b in itertools.combinations(range(3), 2):
        np.testing.assert_allclose(joint(kernel, coupling, a, b, rewards), np.diag(law), rtol=0, atol=1e-14)


@pytest.mark.parametrize("coupling", BOTH)
def test_deterministic_actions_and_absorbing_states(coupling: Any) -> None:
    kernel = one_state([0, 1, 0], [0.5, 0.25, 0.25], [0, 0, 1])
    model = jm.from_mdp(kernel, np.ones((3, 3)), 0.9, coupling)
    np.testing.assert_allclose(model.marginal_mdp().transitions, kernel, rtol=0, atol=1e-14)
    assert np.all(model.successors[0, model.probabilities[0] > 0, 2] == 2)
    assert np.all(model.successors[1] == 1)


@pytest.mark.parametrize("coupling", BOTH)
@pytest.mark.parametrize("sharing", ["state", "time"])
def test_the_first_action_may_be_unavailable(coupling: Any, sharing: Any) -> None:
    kernel, rewards = random_mdp(4, S=4, A=3)
    available = np.array([[0, 1, 1], [1, 1, 1], [0, 0, 1], [1, 0, 1]], dtype=bool)
    broken = np.where(available[:, :, None], kernel, np.nan)
    model = jm.from_mdp(broken, rewards, 0.9, coupling, sharing, available=available)
    transitions = model.marginal_mdp().transitions[available]
    np.testing.assert_allclose(transitions, kernel[available], rtol=0, atol=1e-12)
    if coupling == "maximal":
        assert np.trace(joint_of_pair(model, 0, 1, 2)) == pytest.approx(kernel[0, 1:].min(axis=0).sum())


def test_outcomes_are_told_apart_by_rewards_where_a_successor_has_several() -> None:
    """One action reaches "b" with either of two rewards: only the same reward there is the same outcome."""
    table = {
        "a": {
            "x": [(0.3, "b", 1.0), (0.3, "b", 2.0), (0.4, "a", 0.0)],
            "y": [(0.5, "b", 2.0), (0.2, "a", 7.0), (0.3, "a", 7.0)],
        },
        "b": {},
    }
    rows = ordinary_model(table, None, None, None, None).laws.of_state(0)
    x, y = numbered_laws([rows])
    assert x.numbers.tolist() == [0, 1, 2]
    assert y.numbers.tolist() == [1, 2]  # with another reward, but the same in every outcome with that successor
    assert y.places.tolist() == [0, 1]
    np.testing.assert_allclose(y.probabilities, [0.5, 0.5])
    model = jm.from_mdp(table, None, 0.9, "maximal")
    law = model.query_law(0, [0, 1])
    is_equal = (law.rewards[:, 0] == 2.0) & (law.rewards[:, 1] == 2.0)
    assert law.probabilities[is_equal].sum() == pytest.approx(0.3)
    assert law.probabilities[(law.successors == 0).all(axis=1)].sum() == pytest.approx(0.4)


@pytest.mark.parametrize("coupling", [*BOTH, jm.GumbelMax(300)])
@pytest.mark.parametrize("sharing", ["state", "time"])
def test_a_gymnasium_table(coupling: Any, sharing: Any) -> None:
    gymnasium = pytest.importorskip("gymnasium")
    lake = gymnasium.make("FrozenLake-v1")
    model = jm.from_gymnasium(lake, 0.9, coupling, sharing)
    expected = jm.from_gymnasium(lake, 0.9)
    found, wanted = model.marginal_mdp(), expected.marginal_mdp()
    np.testing.assert_allclose(found.transitions, wanted.transitions, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.rewards, wanted.rewards, rtol=0, atol=1e-12)
