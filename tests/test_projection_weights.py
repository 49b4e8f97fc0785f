"""Weights of pairs: the library's against sums of powers of the matrix of all pairs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from oracle import random_model
from oracle_projected import PairChain
from projected_models import chains, ring
from zoo import SHARINGS, build, daily

from jointmdp.ground.checks import Sharing
from jointmdp.learning.projected.weighting import PairWeighting, own_weighting, restart_weighting, stationary_weighting


def check_weights(chain: PairChain, found: PairWeighting, nu: np.ndarray, xi: np.ndarray, c: float) -> None:
    room = 1e-12 + (2e-13 / (1 - c) if c < 1 else 0)  # a step may still change 1e-13, and all later ones with it
    assert chain.table(found.mean) == pytest.approx(nu, abs=room)
    assert chain.weights(found) == pytest.approx(xi, abs=room)
    assert found.mean.sum() == pytest.approx(nu.sum())
    for weights, matrix in ((xi, chain.P2), (nu, chain.P)):
        assert (weights @ matrix <= weights / c + 1e-14).all()
    assert (found.mean_constant, found.pair_constant) == (c, c)
    seen = np.zeros(found.same.shape, bool)
    for (i, (s, a)), (j, (t, b)) in itertools.product(enumerate(chain.xs), enumerate(chain.xs)):
        if s == t:
            seen[s, a, b] = xi[i * chain.size + j] > 1e-300
    assert np.array_equal(found.is_seen, seen)


@pytest.mark.parametrize("seed", daily(range(6), 2))
def test_restart_weights_are_sums_of_powers_of_the_pair_chain(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for chain in chains(seed, 20):
        g = chain.discount
        for given in (None, g**2 + 1e-9, 0.5 * (g**2 + 1), 0.9995):
            states = [None, sorted({s for s, _ in chain.xs})[: rng.integers(1, 3)]][rng.integers(2)]
            found = restart_weighting(chain.model, chain.policy, given, states)
            c = g if given is None else given
            check_weights(chain, found, chain.restart_mean(c, states), chain.restart(c, states), c)


@pytest.mark.parametrize("sharing", SHARINGS)
def test_stationary_weights_are_those_of_one_branch(sharing: Sharing) -> None:
    for seed in range(8):
        case = random_model(np.random.default_rng(seed), 4, 3, 2, discount=0.9, sharing=sharing)
        case.successors[:, 0] = (np.arange(4)[:, None] + 1) % 4
        case.successors[0, 1] = 0
        case.probabilities[:] = (case.probabilities + 0.1) / 1.3
        chain = PairChain(build(case), case.policy / case.policy.sum(axis=1, keepdims=True))
        nu = chain.long_run(chain.P, np.full(chain.size, 1 / chain.size))
        found = stationary_weighting(chain.model, chain.policy)
        check_weights(chain, found, nu, np.diag(nu).ravel(), 1.0)
        assert "sees none of the 4 pairs" in found.words(chain.model) or (chain.policy == 0).any()


@pytest.mark.parametrize(
    ("sharing", "steps", "choice", "apart"),
    [
        ("state", (1, 1), (1.0, 0.0), True),  # round and round: branches that part stay apart
        ("state", (1, 1), (0.5, 0.5), False),  # at an odd distance they would never meet, but they part by even ones
        ("state", (1, 2), (0.5, 0.5), False),
        ("time", (1, 2), (1.0, 0.0), True),  # all move alike: the diagonal is not reached
        ("time", (1, 2), (0.5, 0.5), False),
        ("none", (1, 1), (1.0, 0.0), False),
    ],
)
def test_stationary_weights_of_periodic_chains(
    sharing: Sharing, steps: tuple[int, int], choice: tuple[float, float], apart: bool
) -> None:
    chain = PairChain(ring(sharing, steps), np.tile(choice, (6, 1)))
    found = stationary_weighting(chain.model, chain.policy)
    xi, nu = chain.weights(found), chain.table(found.mean)
    assert nu == pytest.approx(np.tile(choice, 6) / 6)
    assert xi @ chain.P2 == pytest.approx(xi, abs=1e-12)
    assert xi.reshape(12, 12).sum(axis=1) == pytest.approx(nu, abs=1e-12)
    if sharing != "none":
        assert xi == pytest.approx(chain.long_run(chain.P2, chain.start()), abs=1e-9)
    assert xi.reshape(12, 12)[~np.eye(12, dtype=bool)].any() == apart


@pytest.mark.parametrize("sharing", SHARINGS)
def test_own_weights_and_their_constants(sharing: Sharing) -> None:
    rng, below_one, zero = np.random.default_rng(5), 0, 0
    for chain in chains(8, 24, sharings=(sharing,)):
        shape = chain.model.available.shape * 2
        given = rng.random(shape) * (rng.random(shape) < rng.choice([0.5, 1.0, 1.0]))
        full = chain.table(given).reshape(chain.size, -1)
        if not full.any():
            continue
        xi = ((full + full.T) / (2 * full.sum())).ravel()
        nu = xi.reshape(chain.size, -1).sum(axis=1)
        found = own_weighting(chain.model, chain.policy, given, None)
        assert chain.weights(found) == pytest.approx(xi)
        assert chain.table(found.mean) == pytest.approx(nu)
        for weights, matrix, c in ((nu, chain.P, found.mean_constant), (xi, chain.P2, found.pair_constant)):
            after = weights @ matrix
            some = after > 0
            assert c == pytest.approx(min(1.0, np.min(weights[some] / after[some], initial=1.0)))
            below_one, zero = below_one + (0 < c < 1), zero + (c == 0)
    assert below_one > 5
    assert zero > 0
