"""The oracle against itself, in ways that share as little as possible with how it computes."""

import math
from collections import defaultdict
from fractions import Fraction
from itertools import product
from math import prod

import numpy as np
import pytest
from flint import fmpq
from oracle import (
    RandomModel,
    backup,
    exact_moments,
    finite_horizon_law,
    max_abs_error,
    nearest_float,
    random_model,
    rational,
)

SHARINGS = ("state", "time", "none")
VARIANTS = [
    {},
    {"deterministic": True},
    {"negative": False, "absorbing": True},
    {"unavailable": True},
    {"unavailable": True, "deterministic": True, "absorbing": True},
    {"dtype": np.float32, "unavailable": True},
]


def chain(length: int, policy: list[float]) -> RandomModel:
    """The coupled-reward chain: a shared fair coin pays one action +1 and the other -1; both move right."""
    rewards = np.zeros((length, 2, 2))
    rewards[:-1] = [[1.0, -1.0], [-1.0, 1.0]]
    successors = np.zeros((length, 2, 2), int) + np.minimum(np.arange(length) + 1, length - 1)[:, None, None]
    return RandomModel(
        np.full((length, 2), 0.5), rewards, successors, 0.99, np.tile(policy, (length, 1)), "state", None
    )


def field_law(model: RandomModel, horizon: int) -> dict[tuple, dict[tuple, Fraction]]:
    """The joint law of every pair of returns, by enumerating one random field that drives all coordinates.

    The field holds a scenario for each (time, state), or for each time, and a next action for each
    (time, coordinate).  Coordinates that meet read the same entries, so merging needs no rule of its own.
    """
    states, scenarios, actions = model.rewards.shape
    xs, g = list(np.ndindex(states, actions)), Fraction(model.discount)
    p = [[Fraction(v) / sum(map(Fraction, row)) for v in row] for row in model.probabilities.tolist()]
    pi = [[Fraction(v) / sum(map(Fraction, row)) for v in row] for row in model.policy.tolist()]
    sites = list(product(range(horizon), range(states) if model.sharing == "state" else [0]))
    action_sites = list(product(range(horizon - 1), xs))
    laws: dict[tuple, dict[tuple, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    for chosen in product(range(scenarios), repeat=len(sites)):
        draw = dict(zip(sites, chosen, strict=True))
        scenario = {
            (t, s): draw[t, s if model.sharing == "state" else 0] for t, s in product(range(horizon), range(states))
        }
        successor = {(t, x): int(model.successors[x[0], scenario[t, x[0]], x[1]]) for t in range(horizon) for x in xs}
        scenario_chance = prod(p[s][w] for (_, s), w in draw.items())
        for choice in product(range(actions), repeat=len(action_sites)):
            action = dict(zip(action_sites, choice, strict=True))
            chance = scenario_chance * prod(pi[successor[site]][b] for site, b in action.items())
            if chance == 0:
                continue
            value = dict.fromkeys(xs, Fraction(0))
            for t in reversed(range(horizon)):
                value = {
                    x: Fraction(float(model.rewards[x[0], scenario[t, x[0]], x[1]]))
                    + (g * value[successor[t, x], action[t, x]] if t < horizon - 1 else 0)
                    for x in xs
                }
            for x, y in product(xs, xs):
                laws[x, y][value[x], value[y]] += chance
    return laws


@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("options", VARIANTS)
def test_backup_leaves_exact_moments_in_place(options: dict, sharing: str) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        model = random_model(rng, 3, 3, 3, discount=0.9, sharing=sharing, **options)
        exact = exact_moments(*model)
        start = exact.mean_float(), exact.second_float()
        mean, second = backup(*model[:6], *start, available=model.available)
        scale = np.nanmax(np.abs(start[1])) + 1.0
        assert max_abs_error(mean, exact.mean) < 1e-14 * scale
        assert max_abs_error(second, exact.second) < 1e-14 * scale
        if model.available is not None:
            assert np.array_equal(np.isnan(mean), ~model.available)


@pytest.mark.parametrize("sharing", SHARINGS)
def test_backups_converge_to_exact_moments_from_any_start(sharing: str) -> None:
    rng = np.random.default_rng(7)
    model = random_model(rng, 3, 2, 2, discount=0.5, sharing=sharing)
    exact = exact_moments(*model)
    mean, second = rng.normal(size=(3, 2)), rng.normal(size=(3, 2, 3, 2))
    for _ in range(60):
        mean, second = backup(*model[:6], mean, second)
    assert max_abs_error(mean, exact.mean) < 1e-14
    assert max_abs_error(second, exact.second) < 1e-13


def test_backup_keeps_the_order_of_a_pair() -> None:
    """States 0 and 1 move to 2 and 3 without reward, so the pair (0, 1) reads the pair (2, 3), not (3, 2)."""
    second = np.arange(16.0).reshape(4, 1, 4, 1)
    still = (
        np.ones((4, 1)),
        np.zeros((4, 1, 1)),
        np.array([2, 3, 2, 3]).reshape(4, 1, 1),
        0.5,
        np.ones((4, 1)),
    )
    for sharing in ("state", "time"):
        _, new = backup(*still, sharing, np.zeros((4, 1)), second)
        assert new[0, 0, 1, 0] == 0.25 * second[2, 0, 3, 0]
        assert new[1, 0, 0, 0] == 0.25 * second[3, 0, 2, 0]


@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("options", [{}, {"deterministic": True}, {"unavailable": True}])
def test_moments_of_finite_laws_are_backups_from_zero(options: dict, sharing: str) -> None:
    model = random_model(np.random.default_rng(3), 2, 2, 2, discount=0.75, sharing=sharing, **options)
    mean, second = np.zeros((2, 2)), np.zeros((2, 2, 2, 2))
    xs = [x for x in np.ndindex(2, 2) if model.available is None or model.available[x]]
    for horizon in range(1, 4):
        mean, second = backup(*model[:6], mean, second, available=model.available)
        for x, y in product(xs, xs):
            law = finite_horizon_law(*model[:6], x, y, horizon)
            assert sum(law.values()) == 1
            assert mean[x] == pytest.approx(float(sum(c * z for (z, _), c in law.items())), abs=1e-14)
            moment = float(sum(c * z * u for (z, u), c in law.items()))
            assert second[x + y] == pytest.approx(moment, abs=1e-14)


@pytest.mark.parametrize("sharing", ["state", "time"])
def test_finite_laws_come_from_one_random_field(sharing: str) -> None:
    for seed, horizon in [(0, 2), (1, 2), (2, 2), (3, 3)]:
        model = random_model(np.random.default_rng(seed), 2, 2, 2, discount=0.75, sharing=sharing)
        for (x, y), law in field_law(model, horizon).items():
            assert law == finite_horizon_law(*model[:6], x, y, horizon)


def test_none_is_the_product_of_the_marginals() -> None:
    model = random_model(np.random.default_rng(5), 2, 2, 2, discount=0.75, sharing="none")
    tied = field_law(model._replace(sharing="state"), 2)
    for x, y in product(np.ndindex(2, 2), repeat=2):
        expected = tied[x, x]
        if x != y:
            ends = product(tied[x, x].items(), tied[y, y].items())
            expected = {(z, u): c * d for ((z, _), c), ((u, _), d) in ends}
        assert finite_horizon_law(*model[:6], x, y, 2) == expected


def test_marginals_do_not_depend_on_sharing_but_joint_moments_do() -> None:
    model = random_model(np.random.default_rng(1), 3, 3, 3, discount=0.9, sharing="time")
    state, time, none = (exact_moments(*model._replace(sharing=sharing)) for sharing in SHARINGS)
    for x in np.ndindex(3, 3):
        assert state.mean[x] == time.mean[x] == none.mean[x]
        assert state.second[x + x] == time.second[x + x] == none.second[x + x]
    for one, other in [(state, time), (time, none), (none, state)]:
        assert np.max(np.abs(one.second_float() - other.second_float())) > 0.01


def test_symmetry_and_positive_covariance() -> None:
    for seed, sharing in product(range(3), SHARINGS):
        exact = exact_moments(*random_model(np.random.default_rng(seed), 3, 3, 3, discount=0.9, sharing=sharing))
        second, mean = exact.second_float().reshape(9, 9), exact.mean_float().reshape(9)
        assert np.array_equal(second, second.T)
        for block in exact.covariance_blocks_float():
            assert np.linalg.eigvalsh(block).min() > -1e-12
        assert np.linalg.eigvalsh(second - np.outer(mean, mean)).min() > -1e-12


@pytest.mark.parametrize("policy", [[0.5, 0.5], [1.0, 0.0]])
def test_coupled_reward_chain_in_closed_form(policy: list[float]) -> None:
    """Tied branches earn the same, parted ones the opposite; uniform actions stay parted half of the time."""
    exact = exact_moments(*chain(25, policy))
    square, stay = rational(0.99) ** 2, fmpq(1, 2) if policy[1] else fmpq(0)
    variance = sum((square**t for t in range(24)), fmpq(0))
    covariance = sum((square**t * (1 - 2 * stay**t) for t in range(24)), fmpq(0))
    assert exact.covariance(0, 0, 0, 0) == exact.covariance(0, 1, 0, 1) == variance
    assert exact.covariance(0, 0, 0, 1) == covariance
    assert nearest_float(variance) == pytest.approx(19.2317, abs=5e-5)
    assert nearest_float(covariance / variance) == pytest.approx(0.7961 if policy[1] else 0.8960, abs=5e-5)


def independent_on_the_diagonal(model: RandomModel, sweeps: int) -> np.ndarray:
    """The fixed point under the wrong rule: a repeated coordinate draws its next action twice."""
    p, rewards, successors, g, pi = model[:5]
    mean, second = np.zeros(pi.shape), np.zeros(pi.shape * 2)
    for _ in range(sweeps):
        v = (pi * mean).sum(axis=1)
        pair = np.einsum("sa,satb,tb->st", pi, second, pi)
        mean, second = backup(*model[:6], mean, second)
        for s, a in np.ndindex(pi.shape):
            r, n = rewards[s, :, a], successors[s, :, a]
            second[s, a, s, a] = p[s] @ (r**2 + 2 * g * r * v[n] + g**2 * pair[n, n])
    return second


def test_independent_next_actions_on_the_diagonal_are_another_answer() -> None:
    model = chain(6, [0.5, 0.5])
    right, wrong = exact_moments(*model), independent_on_the_diagonal(model, 6)
    assert wrong[0, 0, 0] == pytest.approx([1.0, -1.0])  # means are zero: variance 1, correlation -1
    assert right.covariance_blocks_float()[0, 0, 0] == pytest.approx(sum(0.99 ** (2 * t) for t in range(5)))
    assert right.covariance_blocks_float()[0, 0, 1] > 0
    for deterministic in (False, True):
        model = random_model(np.random.default_rng(2), 3, 2, 2, discount=0.5, deterministic=deterministic)
        error = max_abs_error(independent_on_the_diagonal(model, 60), exact_moments(*model).second)
        assert error < 1e-13 if deterministic else error > 1e-3


def test_two_absorbing_states_in_closed_form() -> None:
    """One action, a fair coin of ±1 for ever: distinct states share it under "time" alone."""
    rewards = np.array([[[1.0], [-1.0]], [[2.0], [-2.0]]])
    successors = np.array([[[0], [0]], [[1], [1]]])
    for sharing in SHARINGS:
        exact = exact_moments([[0.5, 0.5]] * 2, rewards, successors, 0.5, np.ones((2, 1)), sharing)
        assert exact.covariance(0, 0, 0, 0) == fmpq(4, 3)
        assert exact.covariance(1, 0, 1, 0) == fmpq(16, 3)
        assert exact.covariance(0, 0, 1, 0) == (fmpq(8, 3) if sharing == "time" else 0)


def test_weights_are_normalised_exactly_and_float32_is_read_exactly() -> None:
    model = random_model(np.random.default_rng(4), 2, 3, 2, discount=0.9, dtype=np.float32)
    exact = exact_moments(*model)
    wide = model._replace(probabilities=model.probabilities.astype(np.float64) * 3, rewards=model.rewards.astype(float))
    assert (exact_moments(*wide).second == exact.second).all()
    thirds = exact_moments([[1, 1, 1]], [[[1], [0], [0]]], [[[0], [0], [0]]], 0.5, [[7]])
    assert thirds.mean[0, 0] == fmpq(2, 3)
    assert exact_moments([1, 1, 1], [[[1], [0], [0]]], [[[0], [0], [0]]], 0, [[1]]).mean[0, 0] == fmpq(1, 3)


def test_floats_are_nearest_and_errors_are_rounded_up() -> None:
    truth = np.array([fmpq(1, 3), None, fmpq(-2)], dtype=object)
    assert nearest_float(fmpq(1, 3)) == 1 / 3
    error = max_abs_error([1 / 3, math.nan, -2.0], truth)
    gap = abs(rational(1 / 3) - fmpq(1, 3))
    assert 0 < gap <= rational(error) <= gap * (1 + fmpq(1, 2**50))
    assert max_abs_error([1 / 3, math.nan, -2.5], truth) == 0.5
    assert max_abs_error([1 / 3, 0.0, -2.0], truth) == math.inf
    assert max_abs_error([1 / 3, math.nan, math.nan], truth) == math.inf
    model = random_model(np.random.default_rng(6), 3, 2, 2, discount=0.9)
    exact = exact_moments(*model)
    for s, a, b in np.ndindex(3, 2, 2):
        assert exact.covariance_blocks_float()[s, a, b] == nearest_float(exact.covariance(s, a, s, b))


def test_random_models_show_what_they_promise() -> None:
    models = [
        random_model(np.random.default_rng(seed), 3, 3, 3, discount=0.9, sharing=sharing, unavailable=True)
        for seed, sharing in product(range(20), SHARINGS)
    ]
    for model in models:
        assert model.available is not None
        assert not model.available.all()
        assert model.available.any(axis=1).all()
        assert (model.policy[~model.available] == 0).all()
        assert np.allclose(model.probabilities.sum(axis=1), 1)
        assert np.allclose(model.policy.sum(axis=1), 1)
        assert model.sharing != "time" or (model.probabilities == model.probabilities[0]).all()
    assert any((model.probabilities == 0).any() for model in models)
    assert any((model.policy[model.available] == 0).any() for model in models)
    assert any((model.rewards < 0).any() for model in models)
    last = [random_model(np.random.default_rng(seed), 3, 2, 2, discount=0.9, absorbing=True) for seed in range(20)]
    assert all((model.successors[-1] == 2).all() for model in last)
    assert 0 < sum((model.rewards[-1] == 0).all() for model in last) < 20
    certain = random_model(np.random.default_rng(0), 3, 2, 2, discount=0.9, deterministic=True)
    assert ((certain.policy == 0) | (certain.policy == 1)).all()
