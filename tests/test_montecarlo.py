"""Pair simulation against exact laws and exact moments.

Statistical tests use fixed seeds and computed standard errors. With a limit of 4.5 standard errors a correct program
fails one comparison with probability 7e-6 (normal), so the about 300 comparisons here give a false alarm with
probability below 0.3 % had the seeds not been fixed.

A new shape, number of samples or number of actions compiles for more than a second: nearly all models have three
states, scenarios and actions here.
"""

import dataclasses
import math

import jax
import numpy as np
import oracle
import pytest
from scipy.stats import binom, chi2
from zoo import SHARINGS, STATE_AND_SLOW, build, cases, daily_rows, padded

import jointmdp as jm
from jointmdp.ground.arrays import Floats
from jointmdp.simulation.montecarlo import compiled_branches, confidence_intervals
from jointmdp.simulation.montecarlo.compiled_branches import BLOCK, BlockSampler
from jointmdp.simulation.montecarlo.samples import GapSample
from jointmdp.simulation.montecarlo.table_dynamics import table_dynamics

pytestmark = pytest.mark.optimised

LIMIT = 4.5
SAMPLES = 20_000


def random_case(sharing: str) -> oracle.RandomModel:
    """A model in which branches of different actions meet and merge, and no state absorbs."""
    return oracle.random_model(np.random.default_rng(1), 3, 3, 3, discount=0.9, sharing=sharing)


@pytest.mark.parametrize(("sharing", "count"), daily_rows([("state", 3), *((sharing, 6) for sharing in SHARINGS)]))
def test_gap_moments_agree_with_exact_ones(sharing: str, count: int) -> None:
    for seed, case in enumerate(cases(11, count, shapes=((3, 3, 3),), discounts=(0.5, 0.9), sharings=(sharing,))):
        model = build(case)
        solution = jm.evaluate(model, case.policy)
        for state in range(model.num_states):
            actions = np.flatnonzero(model.available[state])
            if len(actions) < 2:
                continue
            a, b = actions[0], actions[-1]
            sample = jm.simulate(model, case.policy, state, [a, b], num_samples=SAMPLES, seed=seed, gaps_only=True).gap(
                a, b
            )
            gap = solution.gap(state, a, b)
            room = sample.truncation_bound + 1e-12
            assert abs(sample.mean - gap.mean) <= LIMIT * sample.mean_standard_error + room
            # The variance's standard error is itself estimated from few rare values; the exact one bounds it below.
            assert abs(sample.variance - gap.variance) <= LIMIT * sample.variance_standard_error + 4 * room * gap.std


def three_steps(sharing: str, seed: int) -> tuple[dict[float, float], GapSample]:
    """The gap of the first three steps of a model: its atoms with their chances, and a sample of it."""
    case = oracle.random_model(np.random.default_rng(seed), 2, 2, 2, discount=0.5, sharing=sharing)
    exact: dict[float, float] = {}
    for (z, y), p in oracle.finite_horizon_law(*case[:6], (0, 0), (0, 1), 3).items():
        key = round(float(z - y), 9)
        exact[key] = exact.get(key, 0.0) + float(p)
    same = padded(case, 3, 3, 3)
    return exact, jm.simulate(
        build(same), same.policy, 0, [0, 1], num_samples=SAMPLES, seed=seed, horizon=3, gaps_only=True
    ).gap(0, 1)


@pytest.mark.parametrize("sharing", SHARINGS)
def test_gap_law_agrees_with_the_enumerated_law(sharing: str) -> None:
    """Chi-square over all atoms of the gap of the first three steps; merges, ties and shared luck all show there."""
    for seed in range(3):
        exact, sample = three_steps(sharing, seed)
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


@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
def test_all_actions_at_once_agree_with_exact_covariances(sharing: str) -> None:
    case = next(cases(17, 1, shapes=((3, 3, 3),), discounts=(0.9,), sharings=(sharing,)))
    case = case._replace(available=np.ones_like(case.available))
    model = build(case)
    solution = jm.evaluate(model, case.policy)
    sample = jm.simulate(model, case.policy, 1, num_samples=SAMPLES, seed=1)
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
    found = jm.simulate(model, case.policy, 1, [2, 0, 1], num_samples=SAMPLES, seed=2, gaps_only=True)
    pairs = [(2, 0), (2, 1), (0, 1)]
    for (a, b), sample in zip(pairs, found.gaps(), strict=True):
        assert np.array_equal(sample.gaps, found.gap(a, b).gaps)
        assert np.array_equal(sample.gaps, -found.gap(f"action {b}", f"action {a}").gaps)
        gap = solution.gap(1, a, b)
        assert abs(sample.mean - gap.mean) <= LIMIT * gap.std / np.sqrt(SAMPLES) + sample.truncation_bound
        assert abs(sample.variance - gap.variance) <= LIMIT * sample.variance_standard_error
    everything = jm.simulate(model, case.policy, 1, num_samples=SAMPLES, gaps_only=True)
    assert everything.values == (0, 1, 2)
    with pytest.raises(jm.ModelError, match="3 is none of the simulated actions action 0, action 1, action 2"):
        everything.gap(0, 3)


def test_gaps_alone_do_not_tell_returns() -> None:
    case = random_case("state")
    how = {"num_samples": 50, "seed": 2}
    whole = jm.simulate(build(case), case.policy, 1, horizon=9, **how)
    alone = jm.simulate(build(case), case.policy, 1, horizon=9, gaps_only=True, **how)
    assert np.array_equal(alone.gap(2, 0).gaps, whole.gap(2, 0).gaps)
    assert alone.again([0, 1]).actions == alone.actions
    for ask in ("returns", "mean", "covariance", "truncation_bound"):
        with pytest.raises(jm.NotKnownError, match="without gaps_only=True"):
            getattr(alone, ask)
    for call in (alone.best_action, alone.to_xarray, lambda: alone.replay(0, 1)):
        with pytest.raises(jm.NotKnownError, match="without gaps_only=True"):
            call()


def test_wrong_rules_are_caught() -> None:
    """The chain: sharing luck or merging wrongly changes the variance by far more than the test's limit."""
    model, policy = jm.envs.coupled_reward_chain(25)
    sample = jm.simulate(model, policy, 0, [0, 1], num_samples=SAMPLES, seed=0, gaps_only=True).gap(0, 1)
    exact = jm.evaluate(model, policy).gap(0, 0, 1)
    assert abs(sample.variance - exact.variance) <= LIMIT * sample.variance_standard_error
    never_merging = jm.evaluate(model.with_sharing("none"), policy).gap(0, 0, 1)
    assert abs(sample.variance - never_merging.variance) > 20 * sample.variance_standard_error


def test_same_action_twice_is_one_branch() -> None:
    for sharing in SHARINGS:
        case = random_case(sharing)
        sample = jm.simulate(build(case), case.policy, 1, [2, 2], num_samples=SAMPLES, gaps_only=True).gaps()[0]
        assert not sample.gaps.any()
        assert (sample.superiority().estimate, sample.tie().estimate, sample.inferiority().estimate) == (0.0, 1.0, 0.0)
        assert sample.mean_interval == sample.variance_interval == (0, 0)
        assert "mean in [0, 0]" in repr(sample)
        # Each interval is missed with 5 %: that of a chance of which nothing was seen on one side, with 2.5 %.
        unseen = 1 - 0.025 ** (1 / SAMPLES)
        assert sample.tie() == pytest.approx((1 - unseen, 1), abs=1e-12)
        assert sample.superiority() == sample.inferiority() == pytest.approx((0, unseen), abs=1e-12)


def test_deterministic_model_has_exact_gaps() -> None:
    """No luck at all: every sample is the same number, and it is the exact gap."""
    rewards, successors = np.array([[[1.0, 0.0]], [[0.0, 3.0]]]), np.array([[[0, 1]], [[1, 1]]])
    case = oracle.RandomModel(np.ones((2, 1)), rewards, successors, 0.5, np.eye(2), "state", None)
    same = padded(case, 3, 3, 3)
    sample = jm.simulate(build(same), same.policy, 0, [0, 1], num_samples=SAMPLES, gaps_only=True).gap(0, 1)
    assert np.ptp(sample.gaps) == 0
    # 1 for ever against 0 and then 3 for ever: 1/(1 − γ) − 3γ/(1 − γ) = −1.
    assert sample.mean == pytest.approx(-1, abs=sample.truncation_bound + 1e-14)
    assert sample.variance == 0


def test_a_sample_prints_what_it_found() -> None:
    case = random_case("state")
    found = jm.simulate(build(case), case.policy, 0, [1, 0], num_samples=SAMPLES, gaps_only=True).gap(1, 0)
    assert "from 20,000 pairs, mean in [" in repr(found)


def test_reproducible_by_seed() -> None:
    case = random_case("state")
    first, same, other = (
        jm.simulate(build(case), case.policy, 0, [0, 1], num_samples=SAMPLES, seed=seed, gaps_only=True).gap(0, 1).gaps
        for seed in (5, 5, 6)
    )
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)


@pytest.mark.slow
@pytest.mark.parametrize("sharing", ["state", "time"])
def test_blocks_that_go_together_are_what_they_are_alone(sharing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: three at once and one that goes on; some end early, and some go on to their end."""
    model, policy = jm.envs.windy_gridworld(3, discount=0.9)
    how = {"num_samples": 3 * BLOCK + 100, "seed": 4, "sharing": sharing}
    alone = [
        jm.simulate(model, policy, 0, [0, 1], **how),
        jm.simulate(model, policy, 0, [0, 1], **how, gaps_only=True).gap(0, 1),
    ]
    monkeypatch.setattr(compiled_branches, "AT_ONCE", 3)
    monkeypatch.setattr(BlockSampler, "together", 3)
    advanced, sizes = compiled_branches._advanced, []
    monkeypatch.setattr(
        compiled_branches, "_advanced", lambda *args: sizes.append(len(args[1][0].step)) or advanced(*args)
    )
    again = [
        jm.simulate(model, policy, 0, [0, 1], **how),
        jm.simulate(model, policy, 0, [0, 1], **how, gaps_only=True).gap(0, 1),
    ]
    assert set(sizes) == {3}
    assert again[0].returns.tobytes() == alone[0].returns.tobytes()
    assert again[1].gaps.tobytes() == alone[1].gaps.tobytes()
    assert again[1].mean_interval == alone[1].mean_interval


def test_blocks_go_together_on_gpus_where_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    model, policy = jm.envs.windy_gridworld(3)

    def sampler() -> BlockSampler:
        dynamics = table_dynamics(model, [policy], [0, 0], [0, 1], np.eye(9)[0])
        return BlockSampler("grid", dynamics, seed=0, horizon=3, return_bound=None)

    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert sampler().together == 1
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert sampler().together == compiled_branches.AT_ONCE
    # Each branch has 29 bytes (state, action, leader 4, its end 1, lead and size 8), both together 20 (two sums of 8,
    # a count of 4): 78.
    monkeypatch.setattr(compiled_branches, "MOST_BYTES", 79 * BLOCK * compiled_branches.AT_ONCE)
    assert sampler().together == compiled_branches.AT_ONCE
    monkeypatch.setattr(compiled_branches, "MOST_BYTES", 78 * BLOCK * compiled_branches.AT_ONCE)
    assert sampler().together == 1


@pytest.mark.slow
def test_tail_is_below_the_standard_error() -> None:
    case = random_case("none")
    sample = jm.simulate(build(case), case.policy, 1, [2, 0], num_samples=SAMPLES, gaps_only=True).gap(2, 0)
    assert 0 < sample.truncation_bound <= 0.02 * sample.mean_standard_error
    case = random_case("time")
    assert (
        jm.simulate(build(case), case.policy, 1, [2, 0], num_samples=SAMPLES, gaps_only=True).gap(2, 0).truncation_bound
        == 0
    )
    # Returns go on after the branches have merged, and are cut; their gaps are complete.
    returns = jm.simulate(build(case), case.policy, 1, num_samples=SAMPLES)
    assert returns.truncation_bound > 0
    assert [gap.truncation_bound for gap in returns.gaps()] == [0, 0, 0]


# -- intervals of a gap ------------------------------------------------------------------------------------------


def sample_of(gaps: Floats, slack: Floats | None = None, confidence: float = 0.95) -> GapSample:
    return GapSample("a", "b", gaps, np.zeros(len(gaps)) if slack is None else slack, 0.0, 1, 10.0, 0, confidence)


def lowest_mean(law: dict[float, float], alpha: float) -> float:
    """The mean of the lowest `alpha` fraction, from the lowest atom up."""
    left, total = alpha, 0.0
    for value, chance in sorted(law.items()):
        total += min(chance, left) * value
        left -= min(chance, left)
    return total / alpha


@pytest.mark.parametrize("sharing", SHARINGS)
def test_intervals_hold_what_the_enumerated_law_says(sharing: str) -> None:
    """With 1 − 1e-6 each, and narrow enough to tell neighbouring numbers apart."""
    for seed in range(3):
        law, sample = three_steps(sharing, seed)
        sample = dataclasses.replace(sample, confidence=1 - 1e-6)
        chances = [sum(p for value, p in law.items() if np.sign(value) == sign) for sign in (1, 0, -1)]
        found = sample.superiority(), sample.tie(), sample.inferiority()
        # Gaps of three steps are settled: what is left is the noise, at most 5 standard deviations of a coin.
        for chance, interval in zip(chances, found, strict=True):
            assert chance in interval
            assert interval.estimate in interval
            assert interval.width <= 2 * 5.1 * 0.5 / math.sqrt(SAMPLES)
        assert sum(p * value for value, p in law.items()) in sample.mean_interval
        atoms = np.array(sorted(law))
        ends = np.cumsum([law[value] for value in atoms])
        for q in (0.05, 0.3, 0.5, 0.9):
            # Keys of the law are rounded to nine digits, and so is where its quantiles are.
            quantile = float(atoms[np.searchsorted(ends, q - 1e-12)])
            assert sample.quantile(q).lower - 1e-9 <= quantile <= sample.quantile(q).upper + 1e-9
            cvar = sample.cvar(q)
            assert cvar.lower - 1e-9 <= lowest_mean(law, q) <= cvar.upper + 1e-9
            assert cvar.width < 0.2 * np.ptp(atoms)


@pytest.mark.parametrize("confidence", [0.95, 0.6])
def test_a_quantile_lies_between_its_ranks_for_every_law(confidence: float) -> None:
    """All counts of values below the quantile, with their binomial chances: no law matters, and no rank is wasted."""
    n, side = 23, (1 - confidence) / 2
    counts = np.arange(n + 1)
    for q in (0.02, 0.1, 0.5, 0.77, 0.99):
        # With K values below the quantile, which is 0, and n − K above it.
        rows = [np.append(-1.0 - np.arange(k), 1.0 + np.arange(n - k)) for k in counts]
        found = [confidence_intervals.quantile_interval(row, q, confidence) for row in rows]
        chances = binom.pmf(counts, n, q)
        above = np.array([interval.lower > 0 for interval in found])
        below = np.array([interval.upper < 0 for interval in found])
        assert chances[above].sum() <= side + 1e-12
        assert chances[below].sum() <= side + 1e-12
        # The next rank on either side would miss too often, or would be no rank at all.
        assert chances[counts <= np.count_nonzero(above)].sum() > side
        assert chances[counts >= n - np.count_nonzero(below)].sum() > side
    # Where too few values were seen, there is no end.
    assert confidence_intervals.quantile_interval(np.arange(5.0), 0.01, confidence).lower == -math.inf
    assert confidence_intervals.quantile_interval(np.arange(5.0), 0.99, confidence).upper == math.inf


def test_a_quantile_of_a_law_with_ties_is_covered_too() -> None:
    """Two values, whose lower one has any chance: the quantile jumps where that chance is q."""
    n, q = 30, 0.3
    counts = np.arange(n + 1)
    found = [sample_of(np.repeat([0.0, 1.0], [k, n - k])).quantile(q) for k in counts]
    for chance in (0.05, 0.2, 0.29, 0.3, 0.31, 0.5, 0.9):
        quantile = 0.0 if chance >= q else 1.0
        covered = np.array([quantile in interval for interval in found])
        assert binom.pmf(counts, n, chance)[covered].sum() >= 0.95


def test_chances_are_covered_for_every_count() -> None:
    """Clopper and Pearson's promise, over all counts of better samples; ties and losses share the rest."""
    n = 25
    counts = np.arange(n + 1)
    rows = [np.repeat([1.0, 0.0, -1.0], [k, (n - k) // 2, n - k - (n - k) // 2]) for k in counts]
    found = [sample_of(row).superiority() for row in rows]
    assert [sample_of(row).reversed().inferiority() for row in rows] == found
    assert [sample_of(row).superiority().estimate for row in rows] == pytest.approx(counts / n)
    for chance in np.linspace(0.01, 0.99, 33):
        mass = binom.pmf(counts, n, chance)
        assert mass[[interval.lower > chance for interval in found]].sum() <= 0.025 + 1e-12
        assert mass[[interval.upper < chance for interval in found]].sum() <= 0.025 + 1e-12


def test_what_a_slack_leaves_open_counts_for_every_sign() -> None:
    """Of twelve samples some are better for certain, some possibly; a gap as large as its slack may be none at all."""
    gaps = np.array([3.0, 2, 0.1, -0.1, 0.2, -0.2, 0, 0, 0, -2, -3, -4])
    slack = np.array([0.5, 0.5, 0.2, 0.2, 0.2, 0.2, 0.2, 0, 0, 0.5, 0.5, 0.5])
    sample = sample_of(gaps, slack)

    def between(certain: int, possible: int) -> object:
        return pytest.approx(confidence_intervals.proportion(np.array([certain, possible]), 12, 0.05), rel=1e-12)

    assert sample.superiority() == between(2, 6)  # 0.1, −0.1 and 0 within 0.2, and 0.2 itself
    assert sample.inferiority() == between(3, 7)
    assert sample.tie() == between(2, 7)
    # A mean moves by the mean slack, a quantile and a tail by no more than the largest.
    sure = sample_of(gaps)
    assert sample.mean_interval == pytest.approx(sure.mean_interval.widened(float(slack.mean())))
    assert sample.cvar(0.5) == pytest.approx(sure.cvar(0.5).widened(0.5))
    quantile = sample.quantile(0.5)
    assert sure.quantile(0.5).lower - 0.5 <= quantile.lower < sure.quantile(0.5).lower
    assert sure.quantile(0.5).upper < quantile.upper <= sure.quantile(0.5).upper + 0.5
    for wrong in (0.0, 1.0, -0.5, math.nan):
        with pytest.raises(jm.ModelError, match="q is"):
            sample.quantile(wrong)
        with pytest.raises(jm.ModelError, match="alpha is"):
            sample.cvar(wrong)


def rare_losses(rng: np.random.Generator, n: int) -> Floats:
    return -rng.exponential(size=n) * (rng.random(n) < 0.1)


# name: a law, and its mean of the lowest fraction α. An exponential above t is t and another exponential, and below t
# it has the mean (1 − (1 + t) e⁻ᵗ) / (1 − e⁻ᵗ).
TAILS = {
    "long tail below": (lambda rng, n: -rng.exponential(size=n), lambda a: math.log(a) - 1),
    "long tail above": (lambda rng, n: rng.exponential(size=n), lambda a: (1 - (1 - math.log(1 - a)) * (1 - a)) / a),
    "rare losses": (rare_losses, lambda a: math.log(a / 0.1) - 1 if a <= 0.1 else -0.1 / a),
}
SETS = 800
# Had the interval its coverage of 0.95, it would cover this often or less with probability 1e-6.
LEAST = int(binom.ppf(1e-6, SETS, 0.95))


# With 400 values in the tail the central limit theorem is used alone; with fewer, unseen values are allowed for.
@pytest.mark.parametrize(
    ("name", "alpha", "size"),
    [
        pytest.param("long tail below", 0.25, 2000, marks=pytest.mark.slow),
        pytest.param("long tail above", 0.25, 2000, marks=pytest.mark.slow),
        pytest.param("rare losses", 0.25, 4000, marks=pytest.mark.slow),
        *(
            pytest.param(name, 0.1, 1000, marks=pytest.mark.long if i else pytest.mark.slow)
            for i, name in enumerate(TAILS)
        ),
    ],
)
def test_the_mean_of_the_tail_is_covered(name: str, alpha: float, size: int) -> None:
    draw, mean = TAILS[name]
    rng = np.random.default_rng(1)
    rows, truth = [draw(rng, size) for _ in range(SETS)], mean(alpha)
    found = [confidence_intervals.cvar_interval(row, alpha, -30, 30, 0.05) for row in rows]
    assert sum(truth in interval for interval in found) > LEAST
    # Not by being wide: at 50 % it misses. P(|Z| < 1.28) = 0.8: at most twice as wide as the normal law says.
    half = [confidence_intervals.cvar_interval(row, alpha, -30, 30, 0.5) for row in rows]
    assert sum(truth in interval for interval in half) < 0.8 * SETS
    # Nor by looking elsewhere: the estimates themselves are around the truth.
    lowest = np.array([np.sort(row)[: round(alpha * size)].mean() for row in rows])
    assert abs(lowest.mean() - truth) <= LIMIT * lowest.std() / math.sqrt(SETS) + 1e-3


# -- queries and bad requests ------------------------------------------------------------------------------------


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
    model, policy = jm.envs.windy_gridworld(3)
    with pytest.raises(jm.ModelError, match=message):
        jm.simulate(model, policy, 0, [0, 1], **arguments)
    with pytest.raises(jm.ModelError, match="unknown action 9"):
        jm.simulate(model, policy, 0, [0, 9])


def test_sharing_can_be_said_when_sampling() -> None:
    model, policy = jm.envs.coupled_reward_chain(3, discount=0.5, sharing="time")
    asked = (policy, "s0", ["a1", "a2"])
    for sharing in ("state", "none"):
        one = jm.simulate(model, *asked, num_samples=50, seed=1, sharing=sharing)
        other = jm.simulate(model.with_sharing(sharing), *asked, num_samples=50, seed=1)
        assert np.array_equal(one.returns, other.returns)
    with pytest.raises(jm.ModelError, match="sharing"):
        jm.simulate(model, *asked, num_samples=50, sharing="luck")
