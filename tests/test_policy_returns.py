"""Gaps of whole policies: exact arithmetic, joint simulation, closed forms, and what a user meets."""

import itertools
import math
from collections import defaultdict
from fractions import Fraction
from functools import cache

import numpy as np
import oracle
import pytest
from oracle_law import ending_model
from oracle_policies import policy_gap
from test_exact import ending_cases
from zoo import SHARINGS, build, cases, repeated, slow_or_long

import jointmdp as jm
from jointmdp.exact.bellman import pair_sweep
from jointmdp.ground.errors import ModelError

pytestmark = pytest.mark.optimised


def another_policy(case: oracle.RandomModel, rng: np.random.Generator) -> np.ndarray:
    """A random policy on the same actions, deterministic half of the time."""
    return oracle._random_rows(rng, case.available, drop=float(rng.integers(2)))


def check_against_rationals(case: oracle.RandomModel, other: np.ndarray, tightness: float) -> None:
    found = jm.evaluate(build(case), {"one": case.policy, "two": other})
    for s in range(len(other)):
        gap = found.gap("one", "two", s)
        mean, variance = policy_gap(case, other, s)
        assert abs(oracle.rational(gap.mean) - mean) <= oracle.rational(gap.mean_error)
        assert abs(oracle.rational(gap.variance) - variance) <= oracle.rational(gap.variance_error)
        scale = gap.independent_variance + gap.mean**2 + 1
        assert gap.mean_error + gap.variance_error <= tightness * scale


@pytest.mark.optimised
@pytest.mark.parametrize("seed", repeated(20))
def test_every_gap_is_within_its_certificate_of_exact_arithmetic(seed: int) -> None:
    """All sharings, both kinds of policies, absorbing states, unavailable actions, γ up to 0.99."""
    rng = np.random.default_rng(seed)
    for case in cases(700 + seed, 6, shapes=((3, 3, 2),), sharings=SHARINGS):
        check_against_rationals(case, another_policy(case, rng), 1e-7)


@pytest.mark.parametrize("discount", [1.0, 1 - 2**-30])
@pytest.mark.slow
def test_models_that_surely_end(discount: float) -> None:
    rng = np.random.default_rng(3)
    for case in ending_cases(8, 6, discount):
        check_against_rationals(case, another_policy(case, rng), 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("sharing", slow_or_long(SHARINGS, 1))
def test_joint_simulation_agrees(sharing: str) -> None:
    """Means and variances of 40,000 pairs within 5 standard errors: six comparisons, false alarms at most 4e-6."""
    model, policy = jm.envs.inventory()
    model = model.with_sharing(sharing)
    exact = jm.evaluate(model, {"given": policy, "uniform": "uniform"}).gap("given", "uniform", "stock 4")
    found = jm.compare(
        model, policies={"given": policy, "uniform": "uniform"}, state="stock 4", half_width=1e-9, seed=2,
        max_replications=40_000, pilot=40_000,
    ).gap("given", "uniform")  # fmt: skip
    assert abs(found.mean - exact.mean) <= 5 * exact.std / math.sqrt(40_000)
    # The gap is a sum of many bounded parts: its fourth moment is at most twice the normal one, Var s² ≤ 5σ⁴/n.
    assert abs(found.variance - exact.variance) <= 5 * math.sqrt(5 / 40_000) * exact.variance


def test_two_actions_in_one_state() -> None:
    """Coins that pay ±1 to one action and ∓1 to the other, for ever: G = 2 Σ γᵗ X where the coin is shared."""
    loop = jm.JointMDP([[0.5, 0.5]], [[[1, -1], [-1, 1]]], np.zeros((1, 2, 2)), 0.5)
    for sharing, variance in (("state", 4.0), ("time", 4.0), ("none", 2.0)):
        gap = jm.evaluate(loop.with_sharing(sharing), {"a": [0], "b": [1]}).gap("a", "b")
        assert gap.mean == 0
        assert abs(gap.variance - variance / (1 - 0.25)) <= gap.variance_error < 1e-12
        assert gap.independent_variance == pytest.approx(2 / 0.75)
    # A policy that tosses a coin of its own, against itself: its actions are drawn twice, so the gap is not zero.
    twice = jm.evaluate(loop, {"one": "uniform", "two": "uniform"}).gap("one", "two")
    assert twice.variance == pytest.approx(2 / 0.75)
    same = jm.evaluate(loop, {"one": [0], "two": [0]}).gap("one", "two")
    assert same.variance <= same.variance_error < 1e-12


def test_gathered_rows_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large models hold kernels as rows, not as matrices."""
    monkeypatch.setattr(pair_sweep, "DENSE_LIMIT", 0)
    rng = np.random.default_rng(1)
    for case in cases(41, 2, shapes=((3, 3, 2),), sharings=("state", "time")):
        check_against_rationals(case, another_policy(case, rng), 1e-7)


def test_the_face() -> None:
    model, policy = jm.envs.inventory(max_stock=6, max_order=3)
    returns = jm.evaluate(model, {"given": policy, "best": jm.optimal_policy(model), "uniform": "uniform"})
    gap = returns.gap("given", "uniform", "stock 2")
    assert isinstance(gap, jm.results.GapLike)
    back = returns.gap("uniform", "given", "stock 2")
    assert (back.mean, back.variance) == (-gap.mean, gap.variance)
    assert 1 - gap.inferiority_bound - 1e-12 <= gap.superiority(tolerance=0.5).lower <= 1
    assert gap.quantile(0.5, tolerance=2).lower <= gap.mean + gap.std
    assert returns.gap("best", "best").is_identical
    assert gap.independent_variance == pytest.approx(returns.variance[[0, 2], 2].sum())
    assert np.all(returns.mean[1] >= returns.mean - 1e-9)
    alone = jm.evaluate(model, policy)
    assert returns.mean[0] == pytest.approx(np.nansum(alone.policy * alone.mean, axis=1), rel=1e-12)
    assert "given − uniform in stock 2" in repr(gap)
    assert repr(returns).startswith("PolicyReturns(given, best, uniform in JointMDP(7 states")
    with pytest.raises(ModelError, match="unknown policy 'worst'"):
        returns.gap("worst", "best")


def test_tables_and_files(tmp_path) -> None:
    model, policy = jm.envs.inventory(max_stock=6, max_order=3)
    returns = jm.evaluate(model, {"given": policy, "any": "uniform"})
    rows = returns.table(["stock 1", 2])
    assert [row["state"] for row in rows] == ["stock 1", "stock 2"]
    assert len(returns.table()) == model.num_states
    returns.to_csv(tmp_path / "gaps.csv", [0])
    assert (tmp_path / "gaps.csv").read_text(encoding="utf-8").startswith("state,policy,other,mean,std")


@pytest.mark.slow
def test_bad_requests() -> None:
    model, policy = jm.envs.inventory(max_stock=6, max_order=3)
    for policies, message in (
        ({}, "no policy"),
        ({"stock 1": 0, "any": "uniform"}, "'stock 1' is a state of the model and 'any' is not"),
        ({"odd": "nothing", "any": "uniform"}, "odd: .*unknown action 'nothing'"),
        ({"odd": "uniform"}, "unknown state 'odd'"),
    ):
        with pytest.raises(ModelError, match=message):
            jm.evaluate(model, policies)
    with pytest.raises(ModelError, match="given: discount is 1"):
        jm.evaluate(model.with_discount(1), {"given": policy, "any": "uniform"})
    with pytest.raises(ModelError, match="Solve"):
        jm.evaluate(model, {"given": policy, "any": "uniform"}, jm.Iterate())
    returns = jm.evaluate(model.with_sharing("state"), {"given": policy, "any": "uniform"}, jm.Solve(max_sweeps=1))
    with pytest.warns(jm.errors.ConvergenceWarning, match="step limit"):
        gap = returns.gap("given", "any")
    exact = jm.evaluate(model.with_sharing("state"), {"given": policy, "any": "uniform"}).gap("given", "any")
    assert abs(gap.variance - exact.variance) <= gap.variance_error + exact.variance_error


@pytest.mark.parametrize("sharing", SHARINGS)
def test_laws_of_policies_are_those_of_enumeration(sharing: str) -> None:
    """Two policies in a model whose futures end: every scenario and every two actions, in rationals."""
    for seed in range(2):
        rng = np.random.default_rng(seed)
        made = ending_model(rng, discount=0.9, sharing=sharing, amounts=np.arange(-2.0, 3.0), pays=(0.0, 1.0))
        case, other = made.case, rng.dirichlet(np.ones(2), size=len(made.case.policy))
        model = jm.JointMDP(*case[:4], sharing=sharing)
        gap = jm.evaluate(model, {"one": case.policy, "two": other}).gap("one", "two")
        truth = _enumerated(model, (case.policy, other), made.steps, made.pay)
        signs = [sum(p for z, p in truth.items() if is_it(z)) for is_it in (lambda z: z > 0, lambda z: z == 0)]
        law = gap.law(tolerance=0.05)
        for found, value in zip((law.superiority(), law.tie()), signs, strict=True):
            assert found.lower <= value <= found.upper
        assert sum(z * p for z, p in truth.items()) in law.mean_interval.widened(1e-12)
        for t in sorted(truth)[:: max(1, len(truth) // 9)]:
            assert law.cdf(float(t)).lower - 1e-12 <= sum(p for z, p in truth.items() if z <= Fraction(float(t)))
            assert law.cdf(float(t)).upper + 1e-12 >= sum(p for z, p in truth.items() if z <= Fraction(float(t)))
        assert law.merge == (0, 0)


def _enumerated(model: jm.JointMDP, policies: tuple, steps: int, pay: dict[int, float]) -> dict[Fraction, Fraction]:
    """The law of the gap of two policies from state 0; rows of probabilities are divided by their exact sums."""
    rows = [[Fraction(float(p)) for p in row] for row in model.probabilities]
    rows = [[p / sum(row) for p in row] for row in rows]
    drawn = [[[Fraction(float(p)) for p in row] for row in policy] for policy in policies]
    drawn = [[[p / sum(row) for p in row] for row in policy] for policy in drawn]
    g = Fraction(model.discount)

    @cache
    def law(s: int, t: int, left: int) -> dict[Fraction, Fraction]:
        if left == 0:
            return {(Fraction(pay[s]) - Fraction(pay[t])) / (1 - g): Fraction(1)}
        found: dict[Fraction, Fraction] = defaultdict(Fraction)
        is_shared = model.sharing == "time" or (model.sharing == "state" and s == t)
        for w, v in itertools.product(range(model.num_scenarios), repeat=2):
            if is_shared and w != v:
                continue
            chance = rows[s][w] * (1 if is_shared else rows[t][v])
            for a, b in itertools.product(range(model.num_actions), repeat=2):
                weight = chance * drawn[0][s][a] * drawn[1][t][b]
                if weight:
                    now = Fraction(float(model.rewards[s, w, a])) - Fraction(float(model.rewards[t, v, b]))
                    after = law(int(model.successors[s, w, a]), int(model.successors[t, v, b]), left - 1)
                    for z, p in after.items():
                        found[now + g * z] += weight * p
        return found

    return law(0, 0, steps)


def law_over(model: jm.JointMDP, policies: tuple[np.ndarray, np.ndarray], start: int) -> dict[float, float]:
    """The law of a gap over the steps of two policies ``[T, S, A]``, by all that can happen."""
    one, two = policies
    p, r, to, g = model.probabilities, model.rewards, model.successors, model.discount
    found = {(start, start, 0.0): 1.0}
    for step in range(len(one)):
        after: dict[tuple[int, int, float], float] = defaultdict(float)
        for (s, t, gap), weight in found.items():
            is_shared = model.sharing == "time" or (model.sharing == "state" and s == t)
            for w, x in itertools.product(range(model.num_scenarios), repeat=2):
                if is_shared and w != x:
                    continue
                chance = weight * p[s, w] * (1.0 if is_shared else p[t, x])
                for a, b in itertools.product(range(model.num_actions), repeat=2):
                    here = chance * one[step, s, a] * two[step, t, b]
                    if here > 0:
                        paid = gap + g**step * (r[s, w, a] - r[t, x, b])
                        after[int(to[s, w, a]), int(to[t, x, b]), round(paid, 12)] += here
        found = after
    law: dict[float, float] = defaultdict(float)
    for (_, _, gap), weight in found.items():
        law[gap] += weight
    return law


@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("is_timed", [False, True])
def test_a_horizon_is_the_sum_over_all_that_can_happen(sharing: str, is_timed: bool) -> None:
    rng = np.random.default_rng(5)
    for case in cases(900, 3, shapes=((3, 2, 2),), sharings=(sharing,)):
        model = build(case)
        rows = [np.stack([another_policy(case, rng) for _ in range(3)]) for _ in range(2)]
        rows = rows if is_timed else [np.stack([each[0]] * 3) for each in rows]
        given = rows if is_timed else [each[0] for each in rows]
        found = jm.evaluate(model, {"one": given[0], "two": given[1]}, horizon=3)
        for s in range(model.num_states):
            law = law_over(model, (rows[0], rows[1]), s)
            mean = sum(x * w for x, w in law.items())
            variance = sum((x - mean) ** 2 * w for x, w in law.items())
            gap, size = found.gap("one", "two", s), max(abs(x) for x in law)
            assert abs(gap.mean - mean) <= gap.mean_error + 1e-11 * size
            assert abs(gap.variance - variance) <= gap.variance_error + 1e-11 * size**2
            assert gap.mean_error + gap.variance_error <= 1e-10 * (1 + size) ** 2
            better, away = gap.superiority(), sum(w for x, w in law.items() if abs(x) > 1e-9 * size)
            above = sum(w for x, w in law.items() if x > 1e-9 * size)
            assert better.lower - 1e-9 <= above <= better.upper + 1e-9 + (1 - away)
        assert found.mean.shape == (2, model.num_states)
        assert found.table()[0]["state"] == model.state_label(0)
