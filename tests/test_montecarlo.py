"""Pair simulation against exact laws and exact moments.

Statistical tests use fixed seeds and computed standard errors. With a limit of 4.5 standard errors a correct program
fails one comparison with probability 7e-6 (normal), so the about 300 comparisons here give a false alarm with
probability below 0.3 % had the seeds not been fixed.

A new shape, number of samples or number of actions compiles for more than a second: nearly all models have three
states, scenarios and actions here.
"""

import jax
import numpy as np
import oracle
import pytest
from scipy.stats import chi2
from zoo import SHARINGS, build, cases, padded

import jointmdp as jm

LIMIT = 4.5
SAMPLES = 20_000


def random_case(sharing: str) -> oracle.RandomModel:
    """A model in which branches of different actions meet and merge, and no state absorbs."""
    return oracle.random_model(np.random.default_rng(1), 3, 3, 3, discount=0.9, sharing=sharing)


@pytest.mark.parametrize("sharing", SHARINGS)
def test_gap_moments_agree_with_exact_ones(sharing: str) -> None:
    for seed, case in enumerate(cases(11, 6, shapes=((3, 3, 3),), discounts=(0.5, 0.9), sharings=(sharing,))):
        model = build(case)
        solution = jm.evaluate(model, case.policy)
        for state in range(model.num_states):
            actions = np.flatnonzero(model.available[state])
            if len(actions) < 2:
                continue
            a, b = actions[0], actions[-1]
            sample = jm.simulate_gap(model, case.policy, state, a, b, num_samples=SAMPLES, seed=seed)
            gap = solution.gap(state, a, b)
            room = sample.truncation_bound + 1e-12
            assert abs(sample.mean - gap.mean) <= LIMIT * sample.mean_standard_error + room
            # The variance's standard error is itself estimated from few rare values; the exact one bounds it below.
            assert abs(sample.variance - gap.variance) <= LIMIT * sample.variance_standard_error + 4 * room * gap.std


@pytest.mark.parametrize("sharing", SHARINGS)
def test_gap_law_agrees_with_the_enumerated_law(sharing: str) -> None:
    """Chi-square over all atoms of the gap of the first three steps; merges, ties and shared luck all show there."""
    for seed in range(3):
        case = oracle.random_model(np.random.default_rng(seed), 2, 2, 2, discount=0.5, sharing=sharing)
        exact: dict[float, float] = {}
        for (z, y), p in oracle.finite_horizon_law(*case[:6], (0, 0), (0, 1), 3).items():
            key = round(float(z - y), 9)
            exact[key] = exact.get(key, 0.0) + float(p)
        same = padded(case, 3, 3, 3)
        sample = jm.simulate_gap(build(same), same.policy, 0, 0, 1, num_samples=SAMPLES, seed=seed, horizon=3)
        found, counts = np.unique(np.round(sample.gaps, 9), return_counts=True)
        assert set(found) <= set(exact)
        observed = dict(zip(found, counts, strict=True))
        expected = {key: p * SAMPLES for key, p in exact.items()}
        rare = sum(e for e in expected.values() if e < 5)
        rare_observed = sum(observed.get(key, 0) for key, e in expected.items() if e < 5)
        terms = [(observed.get(key, 0) - e) ** 2 / e for key, e in expected.items() if e >= 5]
        if rare >= 1:
            terms.append((rare_observed - rare) ** 2 / rare)
        assert sum(terms) <= chi2.ppf(1 - 1e-5, max(len(terms) - 1, 1))


@pytest.mark.parametrize("sharing", SHARINGS)
def test_all_actions_at_once_agree_with_exact_covariances(sharing: str) -> None:
    case = next(cases(17, 1, shapes=((3, 3, 3),), discounts=(0.9,), sharings=(sharing,)))
    case = case._replace(available=np.ones_like(case.available))
    model = build(case)
    solution = jm.evaluate(model, case.policy)
    sample = jm.simulate_returns(model, case.policy, 1, num_samples=SAMPLES, seed=1)
    centred = sample.returns - sample.returns.mean(axis=0)
    for i in range(3):
        error = sample.returns[:, i].std() / np.sqrt(SAMPLES)
        assert abs(sample.mean[i] - solution.mean[1, i]) <= LIMIT * error + sample.truncation_bound
        for j in range(3):
            error = np.std(centred[:, i] * centred[:, j]) / np.sqrt(SAMPLES)
            # Returns off by at most t move a covariance by at most t(σ_i + σ_j) + t².
            t = sample.truncation_bound
            room = t * (centred[:, i].std() + centred[:, j].std()) + t**2 + 1e-12
            assert abs(sample.covariance[i, j] - solution.covariance[1, i, j]) <= LIMIT * error + room
    assert len(sample.table()) == 3
    assert sample.table()[0]["mean_interval"].width > 0


def test_all_gaps_at_once() -> None:
    """One joint simulation gives every pair; each agrees with its exact moments."""
    case = random_case("state")
    model = build(case)
    solution = jm.evaluate(model, case.policy)
    found = jm.simulate_gaps(model, case.policy, 1, [2, 0, 1], num_samples=SAMPLES, seed=2)
    assert set(found) == {(2, 0), (2, 1), (0, 1)}
    for (a, b), sample in found.items():
        gap = solution.gap(1, a, b)
        assert abs(sample.mean - gap.mean) <= LIMIT * gap.std / np.sqrt(SAMPLES) + sample.truncation_bound
        assert abs(sample.variance - gap.variance) <= LIMIT * sample.variance_standard_error
    assert set(jm.simulate_gaps(model, case.policy, 1, num_samples=SAMPLES)) == {(0, 1), (0, 2), (1, 2)}


def test_wrong_rules_are_caught() -> None:
    """The chain: sharing luck or merging wrongly changes the variance by far more than the test's limit."""
    model, policy = jm.coupled_reward_chain(25)
    sample = jm.simulate_gap(model, policy, 0, 0, 1, num_samples=SAMPLES, seed=0)
    exact = jm.evaluate(model, policy).gap(0, 0, 1)
    assert abs(sample.variance - exact.variance) <= LIMIT * sample.variance_standard_error
    never_merging = jm.evaluate(model.with_sharing("none"), policy).gap(0, 0, 1)
    assert abs(sample.variance - never_merging.variance) > 20 * sample.variance_standard_error


def test_same_action_twice_is_one_branch() -> None:
    for sharing in SHARINGS:
        case = random_case(sharing)
        sample = jm.simulate_gap(build(case), case.policy, 1, 2, 2, num_samples=SAMPLES)
        assert not sample.gaps.any()
        assert sample.tie == 1.0


def test_deterministic_model_has_exact_gaps() -> None:
    """No luck at all: every sample is the same number, and it is the exact gap."""
    rewards, successors = np.array([[[1.0, 0.0]], [[0.0, 3.0]]]), np.array([[[0, 1]], [[1, 1]]])
    case = oracle.RandomModel(np.ones((2, 1)), rewards, successors, 0.5, np.eye(2), "state", None)
    same = padded(case, 3, 3, 3)
    sample = jm.simulate_gap(build(same), same.policy, 0, 0, 1, num_samples=SAMPLES)
    assert np.ptp(sample.gaps) == 0
    # 1 for ever against 0 and then 3 for ever: 1/(1 − γ) − 3γ/(1 − γ) = −1.
    assert sample.mean == pytest.approx(-1, abs=sample.truncation_bound + 1e-14)
    assert sample.variance == 0


def test_a_sample_prints_what_it_found() -> None:
    case = random_case("state")
    found = jm.simulate_gap(build(case), case.policy, 0, 1, 0, num_samples=SAMPLES)
    assert "from 20,000 pairs, mean in [" in repr(found)


def test_reproducible_by_seed() -> None:
    case = random_case("state")
    first, same, other = (
        jm.simulate_gap(build(case), case.policy, 0, 0, 1, num_samples=SAMPLES, seed=seed).gaps for seed in (5, 5, 6)
    )
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)


def test_tail_is_below_the_standard_error() -> None:
    case = random_case("none")
    sample = jm.simulate_gap(build(case), case.policy, 1, 2, 0, num_samples=SAMPLES)
    assert 0 < sample.truncation_bound <= 0.02 * sample.mean_standard_error
    case = random_case("time")
    assert jm.simulate_gap(build(case), case.policy, 1, 2, 0, num_samples=SAMPLES).truncation_bound == 0


def test_queries_and_transitions_follow_their_laws() -> None:
    """Empirical frequencies of the m-JSTM and the STM with explicit keys, chi-square at 1e-5."""
    case = oracle.random_model(np.random.default_rng(3), 3, 3, 3, discount=0.9)
    model = build(case)
    query = model.sample_query(jax.random.key(1), 1, [2, 0], SAMPLES)
    law = model.query_law(1, [2, 0])
    rows = np.concatenate([law.rewards, law.successors], axis=1)
    seen = np.concatenate([query.rewards, query.successors], axis=1)
    counts = np.array([(seen == row).all(axis=1).sum() for row in rows])
    assert counts.sum() == SAMPLES
    statistic = np.sum((counts - SAMPLES * law.probabilities) ** 2 / (SAMPLES * law.probabilities))
    assert statistic <= chi2.ppf(1 - 1e-5, len(rows))
    start = np.array([0.5, 0.0, 0.5])
    moves = model.sample_transitions(jax.random.key(1), jax.random.key(2), case.policy, start, SAMPLES)
    assert set(np.unique(moves.state)) == {0, 2}
    mdp = model.marginal_mdp()
    expected = start[:, None, None] * case.policy[:, :, None] * mdp.transitions
    counts = np.zeros_like(expected)
    np.add.at(counts, (moves.state, moves.action, moves.successor), 1)
    possible = expected > 1e-12
    assert counts[~possible].sum() == 0
    statistic = np.sum((counts[possible] - SAMPLES * expected[possible]) ** 2 / (SAMPLES * expected[possible]))
    assert statistic <= chi2.ppf(1 - 1e-5, possible.sum())
    again = model.sample_query(jax.random.key(1), 1, [2, 0], SAMPLES)
    assert np.array_equal(query.scenario, again.scenario)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_samples": 1}, "num_samples is 1"),
        ({"num_samples": 2.5}, "whole number"),
        ({"seed": -1}, "seed is -1"),
        ({"horizon": 0}, "horizon is 0"),
    ],
)
def test_bad_requests(arguments: dict, message: str) -> None:
    model, policy = jm.windy_gridworld(3)
    with pytest.raises(jm.ModelError, match=message):
        jm.simulate_gap(model, policy, 0, 0, 1, **arguments)
    with pytest.raises(jm.ModelError, match="unknown action 9"):
        jm.simulate_gap(model, policy, 0, 0, 9)
