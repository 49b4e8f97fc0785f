"""The joint model itself: one-step laws, marginals, is there a coupling, names, equality, variations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from oracle import random_model

import jointmdp as jm
from jointmdp.model.joint_mdp import JointMDP, QueryLaw
from jointmdp.model.policies import as_policy, uniform_policy
from jointmdp.model.tables import start_law

BITS = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])


def one_state(rewards: Any, probabilities: Any = None, **options: Any) -> JointMDP:
    """A single absorbing state with the given reward table ``[W, A]``."""
    table = np.asarray(rewards, dtype=float)[None]
    if probabilities is None:
        probabilities = np.full(table.shape[1], 1 / table.shape[1])
    return JointMDP([probabilities], table, np.zeros(table.shape), 0.9, **options)


def coin_successors(other: int) -> JointMDP:
    """Examples 2.1 (``other=0``) and 2.2 (``other=1``) of the paper: the second coin is U or 1 − U."""
    successors = np.tile([[0, other], [1, 1 - other]], (2, 1, 1))
    return JointMDP(np.full((2, 2), 0.5), np.zeros((2, 2, 2)), successors, 0.9)


def as_dict(law: QueryLaw) -> dict[tuple[float, ...], float]:
    """``(R_1, …, R_m, S'_1, …, S'_m) -> probability``."""
    rows = np.hstack([law.rewards, law.successors])
    return {tuple(row): float(p) for row, p in zip(rows.tolist(), law.probabilities, strict=True)}


# -- the paper's examples --------------------------------------------------------------------------------------


def test_example_1_opposite_rewards() -> None:
    model = one_state([[0, 1], [1, 0]])
    law = model.query_law(0, [0, 1])
    assert as_dict(law) == {(0, 1, 0, 0): 0.5, (1, 0, 0, 0): 0.5}
    assert as_dict(model.query_law(0, [0])) == as_dict(model.query_law(0, [1])) == {(0, 0): 0.5, (1, 0): 0.5}
    assert law.probabilities @ law.rewards.prod(axis=1) == 0
    assert law.probabilities @ (law.rewards[:, 0] > law.rewards[:, 1]) == 0.5


@pytest.mark.parametrize("state", [0, 1])
def test_example_2_same_marginals_two_couplings(state: int) -> None:
    together, apart = coin_successors(0), coin_successors(1)
    assert np.array_equal(together.marginal_mdp().transitions, apart.marginal_mdp().transitions)
    assert np.all(together.marginal_mdp().transitions == 0.5)
    assert as_dict(together.query_law(state, [0, 1])) == {(0, 0, 0, 0): 0.5, (0, 0, 1, 1): 0.5}
    assert as_dict(apart.query_law(state, [0, 1])) == {(0, 0, 0, 1): 0.5, (0, 0, 1, 0): 0.5}
    assert together.is_coupled
    assert apart.is_coupled


# -- one-step laws ---------------------------------------------------------------------------------------------


def test_query_law_merges_equal_rows_and_drops_impossible_ones() -> None:
    model = one_state([[1, 2], [3, 4], [1, 2], [5, 6]], [0.25, 0.5, 0.25, 0.0])
    assert as_dict(model.query_law(0, [0, 1])) == {(1, 2, 0, 0): 0.5, (3, 4, 0, 0): 0.5}


def test_query_law_keeps_the_asked_order_and_repeats() -> None:
    model = one_state([[1, 2], [3, 4]], [0.25, 0.75])
    law = model.query_law(0, [1, 0, 1])
    assert law.actions == (1, 0, 1)
    assert as_dict(law) == {(2, 1, 2, 0, 0, 0): 0.25, (4, 3, 4, 0, 0, 0): 0.75}


@pytest.mark.parametrize("seed", range(5))
def test_marginals_and_queries_against_loops(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p, R, N, discount, _, sharing, available = random_model(rng, 4, 5, 3, discount=0.8, unavailable=True)
    model = JointMDP(p, R, N, discount, sharing, available=available)
    kernel, gains = np.zeros((4, 3, 4)), np.zeros((4, 3))
    for s, w, a in np.ndindex(4, 5, 3):
        target, gain = (N[s, w, a], R[s, w, a]) if available[s, a] else (s, 0.0)
        kernel[s, a, target] += p[s, w]
        gains[s, a] += p[s, w] * gain
    marginal = model.marginal_mdp()
    np.testing.assert_allclose(marginal.transitions, kernel, rtol=0, atol=1e-15)
    np.testing.assert_allclose(marginal.rewards, gains, rtol=0, atol=1e-15)
    assert marginal.discount == 0.8
    for s in range(4):
        actions = np.flatnonzero(available[s]).tolist()
        law = as_dict(model.query_law(s, actions))
        expected: dict[tuple[float, ...], float] = {}
        for w in np.flatnonzero(p[s]):
            row = (*R[s, w, actions].tolist(), *N[s, w, actions].tolist())
            expected[row] = expected.get(row, 0.0) + p[s, w]
        assert law == pytest.approx(expected, rel=0, abs=1e-15)


# -- is there anything to couple? ------------------------------------------------------------------------------


def test_product_tables_are_not_coupled() -> None:
    model = one_state(BITS)
    assert model.coupling_witness() is None
    assert not model.is_coupled


def test_biased_product_tables_are_not_coupled() -> None:
    # 0.3 · 0.7 and the like are rounded, so this also shows that rounding does not count as dependence.
    p = np.outer([0.1, 0.9], [0.3, 0.7]).ravel()
    assert not one_state(BITS, p).is_coupled


def test_a_tiny_dependence_is_seen() -> None:
    model = one_state(BITS, [0.25 + 1e-9, 0.25 - 1e-9, 0.25 - 1e-9, 0.25 + 1e-9])
    witness = model.coupling_witness()
    assert witness is not None
    assert witness.actions == (0, 1)
    assert witness.discrepancy == pytest.approx(1e-9, rel=1e-6)


def test_pairs_independent_triple_not() -> None:
    table = np.column_stack([BITS, BITS[:, 0] ^ BITS[:, 1]])
    model = one_state(table)
    for pair in ([0, 1], [0, 2], [1, 2]):
        assert not one_state(table[:, pair]).is_coupled
    witness = model.coupling_witness()
    assert witness is not None
    assert (witness.state, witness.actions) == (0, (0, 1, 2))
    assert witness.discrepancy == pytest.approx(1 / 8)  # each of four rows has 1/4 instead of 1/8


def test_witness_names_the_state() -> None:
    rewards = np.stack([np.zeros((4, 2)), BITS, BITS[[0, 0, 3, 3]]])
    model = JointMDP(np.full((3, 4), 0.25), rewards, np.zeros((3, 4, 2)), 0.9)
    witness = model.coupling_witness()
    assert witness is not None
    assert (witness.state, witness.actions) == (2, (0, 1))


def test_impossible_scenarios_and_unavailable_actions_do_not_couple() -> None:
    assert not one_state([[0, 0], [1, 1]], [1.0, 0.0]).is_coupled
    assert one_state([[0, 0], [1, 1]]).is_coupled
    assert not one_state([[0, 0], [1, 1]], available=[[True, False]]).is_coupled


def test_an_action_alone_is_not_coupled() -> None:
    assert not one_state([[0], [1]]).is_coupled


# -- what a model is made of -----------------------------------------------------------------------------------


def test_arrays_are_copies_and_read_only() -> None:
    p, R, N = np.full((1, 2), 0.5), np.zeros((1, 2, 1)), np.zeros((1, 2, 1), dtype=np.int64)
    model = JointMDP(p, R, N, 0.9)
    p[:], R[:], N[:] = 7, 7, 7
    assert model.probabilities.tolist() == [[0.5, 0.5]]
    assert model.reward_bound == 0
    assert model.successors.max() == 0
    for array in (model.probabilities, model.rewards, model.successors, model.available):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 1


def test_single_precision_tables_are_rescaled() -> None:
    p = np.array([[0.1, 0.2, 0.7]], dtype=np.float32)
    assert p.astype(np.float64).sum() != 1
    model = JointMDP(p, np.float32([[[0.5], [1.5], [-2.5]]]), np.zeros((1, 3, 1), dtype=np.int8), 0.9)
    assert abs(model.probabilities.sum() - 1) <= 3 * np.finfo(np.float64).eps
    assert model.probabilities.dtype == model.rewards.dtype == np.float64
    assert model.successors.dtype == np.int64
    assert model.reward_bound == 2.5


def test_double_precision_rows_stay_bit_for_bit() -> None:
    p = np.array([0.7, 0.2, 0.1])
    assert p.sum() != 1
    assert np.array_equal(one_state(np.zeros((3, 1)), p).probabilities, [p])


def test_successors_may_be_whole_floats() -> None:
    assert coin_successors(1) == JointMDP(
        np.full((2, 2), 0.5), np.zeros((2, 2, 2)), coin_successors(1).successors.astype(np.float32), 0.9
    )


def test_reward_bound_counts_only_what_can_happen() -> None:
    model = one_state([[1, 50], [-3, 60], [9, 70]], [0.5, 0.5, 0.0], available=[[True, False]])
    assert model.reward_bound == 3


def test_entries_of_unavailable_actions_are_ignored() -> None:
    rewards, successors = np.full((2, 1, 2), np.nan), np.full((2, 1, 2), -5)
    rewards[:, :, 0], successors[:, :, 0] = 1.0, 0
    model = JointMDP([[1.0]] * 2, rewards, successors, 0.9, available=[[True, False]] * 2)
    assert model.rewards[1, 0].tolist() == [1.0, 0.0]
    assert model.successors[1, 0].tolist() == [0, 1]
    assert model.marginal_mdp().transitions[1].tolist() == [[1, 0], [0, 1]]


# -- names, equality, variations -------------------------------------------------------------------------------


def named(**options: Any) -> JointMDP:
    """Example 2.2 with names."""
    plain = coin_successors(1)
    settings = {"state_names": ["low", "high"], "action_names": [1, 2]} | options
    return JointMDP(plain.probabilities, plain.rewards, plain.successors, 0.9, **settings)


def test_names_are_accepted_wherever_indices_are() -> None:
    model = named()
    assert model.state_index("high") == model.state_index(np.int32(1)) == model.state_index(1.0) == 1
    assert model.action_index("2") == 1  # names are text, whatever they were given as
    assert as_dict(model.query_law("high", ["2", "1"])) == as_dict(model.query_law(1, [1, 0]))
    assert (model.state_label(1), model.action_label(0)) == ("high", "1")
    assert (coin_successors(0).state_label(1), coin_successors(0).action_label(0)) == ("state 1", "action 0")
    assert np.array_equal(as_policy(model, ["1", "2"]), [[1, 0], [0, 1]])


def test_equality_looks_at_everything() -> None:
    assert named() == named()
    assert named() != named(state_names=["low", "top"])
    assert named() != named(action_names=None)
    assert named() != named(sharing="time")
    assert named() != named().with_discount(0.8)
    assert named() != named(available=[[True, True], [True, False]])
    assert coin_successors(0) != coin_successors(1)
    assert coin_successors(0) != one_state([[0, 0], [0, 0]])
    assert named() != "named"
    with pytest.raises(TypeError, match="unhashable"):
        hash(named())


def test_with_sharing_and_with_discount_keep_the_rest() -> None:
    model = named(available=[[True, True], [True, False]])
    varied = model.with_sharing("time").with_discount(0.5)
    assert (varied.sharing, varied.discount) == ("time", 0.5)
    assert (model.sharing, model.discount) == ("state", 0.9)
    assert varied.with_sharing("state").with_discount(0.9) == model
    assert varied.state_names == ("low", "high")
    assert varied.available.tolist() == [[True, True], [True, False]]


def test_discount_one_is_allowed_for_horizons() -> None:
    assert named().with_discount(1).discount == 1


def test_repr_tells_the_sizes() -> None:
    text = repr(named())
    assert text == 'JointMDP(2 states, 2 scenarios, 2 actions, discount 0.9, sharing="state")'


# -- policies --------------------------------------------------------------------------------------------------


def test_policies_by_action_and_by_probability() -> None:
    model = named(available=[[True, True], [True, False]])
    assert as_policy(model, [1, 0]).tolist() == [[0, 1], [1, 0]]
    assert as_policy(model, [[0.25, 0.75], [1, 0]]).tolist() == [[0.25, 0.75], [1, 0]]
    assert uniform_policy(model).tolist() == [[0.5, 0.5], [1, 0]]
    single = as_policy(model, np.float32([[0.1, 0.9], [1, 0]]))
    assert np.abs(single.sum(axis=1) - 1).max() <= 2 * np.finfo(np.float64).eps


def test_policies_by_name_dictionary_and_function() -> None:
    model = named(available=[[True, True], [True, False]])
    same = [[0, 1], [1, 0]]
    assert as_policy(model, {"low": "2", "high": "1"}).tolist() == same
    assert as_policy(model, {1: 0, 0: {"2": 1.0}}).tolist() == same
    assert as_policy(model, lambda s: 1 - s).tolist() == same
    assert as_policy(model, lambda s: ["2", "1"][s]).tolist() == same
    assert as_policy(model, lambda s: np.array(same)[s]).tolist() == same
    assert as_policy(model, "uniform").tolist() == [[0.5, 0.5], [1, 0]]
    assert as_policy(model, "1").tolist() == [[1, 0], [1, 0]]
    mixed = as_policy(model, {"low": {"1": 0.25, "2": 0.75}, "high": [1, 0]})
    assert mixed.tolist() == [[0.25, 0.75], [1, 0]]


def test_names_stay_what_they_are() -> None:
    model = named(state_names=[(0, 1), [np.int64(2), 3]], action_names=[("go", 1.5), frozenset({1})])
    assert model.state_names == ((0, 1), (2, 3))
    assert all(type(part) is int for name in model.state_names for part in name)
    assert model.state_index((2, 3)) == model.state_index([2, 3]) == model.state_index("(2, 3)") == 1
    assert model.action_index(frozenset({1})) == 1
    assert (model.state_label(1), model.action_label(0)) == ("(2, 3)", "('go', 1.5)")
    assert as_policy(model, [("go", 1.5), frozenset({1})]).tolist() == [[1, 0], [0, 1]]
    assert as_policy(model, {(0, 1): ("go", 1.5), (2, 3): frozenset({1})}).tolist() == [[1, 0], [0, 1]]
    assert as_policy(model, lambda s: model.action_names[s]).tolist() == [[1, 0], [0, 1]]
    assert start_law(model, (2, 3)).tolist() == [0, 1]
    assert start_law(model, (0.5, 0.5)).tolist() == [0.5, 0.5]
    with pytest.raises(ValueError, match=r"unknown state \(2, 4\); did you mean '\(2, 3\)'"):
        model.state_index((2, 4))
    with pytest.raises(ValueError, match=r"state name '\(0, 1\)' is used twice"):
        named(state_names=[(0, 1), "(0, 1)"])
    with pytest.raises(ValueError, match="cannot be looked up"):
        named(state_names=[{1}, {2}])


def test_policies_have_the_same_forms_for_every_method() -> None:
    model, _ = jm.envs.coupled_reward_chain(3, discount=0.5)
    by_name = {"s0": "a1", "s1": "a2", "s2": "a1"}
    assert np.array_equal(as_policy(model, by_name), as_policy(model, [0, 1, 0]))
    assert np.array_equal(as_policy(model, 1), as_policy(model, "a2"))
    for one, other in ((by_name, [0, 1, 0]), (1, "a2")):
        samples = [
            jm.simulate(model, each, "s0", ["a1", "a2"], num_samples=20, seed=1, gaps_only=True).gap("a1", "a2").gaps
            for each in (one, other)
        ]
        assert np.array_equal(*samples)
    found = [jm.compare(model, each, "s0", pilot=30, max_replications=30).returns for each in (by_name, [0, 1, 0])]
    assert np.array_equal(*found)
