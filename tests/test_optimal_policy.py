"""Optimal policies against brute force, a linear programme and exact arithmetic; their bounds on what is missing."""

import itertools

import numpy as np
import oracle
import pytest
from scipy.optimize import linprog
from zoo import build, cases

import jointmdp as jm
from jointmdp.ground.errors import ModelError


def exact_values(case: oracle.RandomModel, actions: tuple[int, ...]) -> list[oracle.fmpq]:
    """Mean returns of a deterministic policy, in rationals."""
    policy = np.eye(case.policy.shape[1])[list(actions)]
    mean = oracle.exact_moments(*case._replace(policy=policy, sharing="none")).mean
    return [mean[s, a] for s, a in enumerate(actions)]


def policies(case: oracle.RandomModel) -> itertools.product:
    """Every deterministic policy."""
    return itertools.product(*(np.flatnonzero(row).tolist() for row in case.available))


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 12))])
def test_nothing_is_better_than_the_bound_allows(seed: int) -> None:
    """Against all deterministic policies, in exact arithmetic; unavailable actions, absorbing states, γ up to 0.999."""
    for case in cases(500 + seed, 3, shapes=((3, 3, 2), (2, 2, 3)), discounts=(0.5, 0.9, 0.999), sharings=("none",)):
        found = jm.optimal_policy(build(case))
        assert all(case.available[s, a] for s, a in enumerate(found.actions))
        mine = exact_values(case, tuple(found.actions.tolist()))
        for actions in policies(case):
            for s, value in enumerate(exact_values(case, actions)):
                assert value - mine[s] <= oracle.rational(float(found.loss_bounds[s]))
        scale = max(abs(oracle.nearest_float(value)) for value in mine) + 1
        assert found.loss_bound <= 1e-9 * scale
        np.testing.assert_allclose(found.values, [oracle.nearest_float(v) for v in mine], rtol=0, atol=1e-10 * scale)


@pytest.mark.parametrize("make", [jm.envs.inventory, jm.envs.machine_replacement])
def test_the_linear_programme_has_the_same_values(make: object) -> None:
    """min Σ v subject to v(s) ≥ r(s,a) + γ P v; HiGHS meets constraints to 1e-7."""
    model, policy = make()
    mdp = model.marginal_mdp()
    exists = model.available.ravel()
    own = np.repeat(np.eye(model.num_states), model.num_actions, axis=0)
    A, b = (own - mdp.discount * mdp.kernel.toarray())[exists], mdp.rewards.ravel()[exists]
    best = linprog(np.ones(model.num_states), A_ub=-A, b_ub=-b, bounds=(None, None))
    found = jm.optimal_policy(model)
    np.testing.assert_allclose(found.values, best.x, rtol=0, atol=1e-6 / (1 - mdp.discount))
    given = jm.evaluate(model.with_sharing("none"), policy)
    assert np.all(found.values >= np.nansum(given.policy * given.mean, axis=1) - 1e-9)


def maze(discount: float, step: float = -1.0) -> jm.JointMDP:
    """The windy gridworld with a price for every step, over at the goal."""
    grid, _ = jm.envs.windy_gridworld(4)
    rewards = np.where(np.arange(16)[:, None, None] == 15, 0.0, step) * np.ones(grid.rewards.shape)
    return jm.JointMDP(grid.probabilities, rewards, grid.successors, discount, action_names=grid.action_names)


def test_shortest_paths_without_a_discount() -> None:
    """Running into the wall for ever is allowed and costs more than any amount: the bound holds all the same."""
    found = jm.optimal_policy(maze(1.0))
    assert found.loss_bound < 1e-11
    v, mdp = np.zeros(16), maze(1.0).marginal_mdp()
    for _ in range(2000):  # value iteration: the walk to the goal forgets its start geometrically
        v = np.max(mdp.rewards + (mdp.kernel @ v).reshape(16, 4), axis=1)
    np.testing.assert_allclose(found.values, v, rtol=1e-12, atol=1e-12)


def test_bounds_stay_small_near_discount_one() -> None:
    """1/(1−γ) is 1e8 here; where episodes end it does not count."""
    assert jm.optimal_policy(maze(1 - 1e-8)).loss_bound < 1e-11


def test_what_cannot_be_certified_or_does_not_end() -> None:
    free = jm.optimal_policy(maze(1.0, step=0.0))
    assert free.loss_bound == 0  # nothing is ever paid: nothing can be missing
    with pytest.raises(ModelError, match="state 0 on it is better never to end"):
        jm.optimal_policy(maze(1.0, step=1.0))
    with pytest.raises(ModelError, match="rewards come for ever whatever is done"):
        jm.optimal_policy(jm.envs.inventory()[0].with_discount(1))
    circles = jm.JointMDP([[1.0]] * 3, [[[0, 0]], [[0, 1]], [[0, 0]]], [[[1, 1]], [[0, 2]], [[2, 2]]], 1.0)
    found = jm.optimal_policy(circles)
    assert found.values.tolist() == [1, 1, 0]
    assert found.loss_bound == np.inf  # going round between the first two states costs nothing
    assert "not certified" in repr(found)


@pytest.mark.slow
def test_it_serves_wherever_a_policy_does() -> None:
    model, policy = jm.envs.inventory(max_stock=6, max_order=3)
    best = jm.optimal_policy(model)
    assert np.array_equal(np.asarray(best), np.eye(model.num_actions)[best.actions])
    assert jm.evaluate(model, best).status.is_success
    assert len(jm.simulate(model, best, 0, [1, 0], num_samples=10, gaps_only=True).gap(1, 0).gaps) == 10
    assert "best" in repr(jm.compare(model, policies={"best": best, "given": policy}, state=0, max_replications=50))
    assert repr(best).startswith("OptimalPolicy(stock 0: order ")
    assert "and 1 more; mean returns at most" in repr(best)
    with pytest.raises(ModelError, match="must be a JointMDP"):
        jm.optimal_policy((model, policy))


def test_ties_stay_as_they_are() -> None:
    """Two actions that are the same: the first is taken and kept, although rounding may favour the other."""
    for case in cases(9, 4, shapes=((3, 3, 2),), discounts=(0.9, 0.99)):
        twice = build(case._replace(available=np.ones((3, 2), bool), rewards=case.rewards[:, :, :1].repeat(2, axis=2),
                                    successors=case.successors[:, :, :1].repeat(2, axis=2)))  # fmt: skip
        assert jm.optimal_policy(twice).actions.tolist() == [0, 0, 0]
