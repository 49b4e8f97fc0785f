"""Who is best: closed forms, exact enumeration of joint returns, coverage, certified laws, and unfinished futures.

Simulated answers are compared at a confidence of 1 − 1e-6 for all their intervals together, so each of the about 20
comparisons gives a false alarm with probability below 1e-6 had the seeds not been fixed. The coverage test states its
own.

A new shape, number of samples or number of actions compiles for more than a second, so models are padded to one shape
and sampled equally often.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache

import numpy as np
import oracle
import pytest
from scipy.optimize import linprog
from scipy.stats import binom, multinomial
from zoo import SHARINGS, STATE_AND_SLOW, build, daily, padded

import jointmdp as jm
from jointmdp.exact.law.gap_law import Laws
from jointmdp.exact.solution.solution import BestAction
from jointmdp.ground.limits import Limits
from jointmdp.simulation.montecarlo import best_action as rankings
from jointmdp.simulation.montecarlo import confidence_intervals
from jointmdp.simulation.montecarlo.best_action import best_of, certified_best
from jointmdp.simulation.montecarlo.samples import Replications

pytestmark = pytest.mark.optimised

SURE = 1 - 1e-6
SAMPLES = 20_000


def fitted(case: oracle.RandomModel, action_names: list[str] | None = None) -> tuple[jm.JointMDP, np.ndarray]:
    """A case as a model of five states, four scenarios and three actions, and its policy."""
    p, R, N, g, pi, sharing, available = padded(case, 5, 4, 3)
    return jm.JointMDP(p, R, N, g, sharing, available=available, action_names=action_names), pi


def agrees(found: BestAction, share, alone, tied, tie) -> bool:
    """Whether every interval holds its exact value; the slack is the rounding of the expected numbers."""

    def holds(interval: jm.Interval, value) -> bool:
        return interval.lower - 1e-14 <= float(value) <= interval.upper + 1e-14

    lists = ((found.intervals, share), (found.alone_intervals, alone), (found.tied_intervals, tied))
    return holds(found.tie_interval, tie) and all(
        holds(interval, value) for intervals, values in lists for interval, value in zip(intervals, values, strict=True)
    )


def is_consistent(found: BestAction) -> None:
    """What must hold of every answer, whatever the model."""
    assert sum(found.probability) == pytest.approx(1, abs=1e-12)
    assert sum(found.alone) + found.tie == pytest.approx(1, abs=1e-12)
    assert agrees(found, found.probability, found.alone, found.tied, found.tie)
    for row in found.table():
        assert row["alone"] - 1e-12 <= row["probability"] <= row["alone"] + row["tied"] / 2 + 1e-12
        assert all(
            0 <= row[key].lower <= row[key].upper <= 1 for key in ("interval", "alone_interval", "tied_interval")
        )


def truth(law: dict[tuple[Fraction, ...], Fraction]) -> tuple[list, list, list, Fraction]:
    """Shares, alone, tied and tie of an exact joint law of returns."""
    m = len(next(iter(law)))
    share, alone, tied, tie = ([Fraction(0)] * m for _ in range(4))
    for values, chance in law.items():
        firsts = [i for i in range(m) if values[i] == max(values)]
        for i in firsts:
            share[i] += chance / len(firsts)
            (alone if len(firsts) == 1 else tied)[i] += chance
        tie[0] += chance if len(firsts) > 1 else 0
    return share, alone, tied, tie[0]


def joint_law(case: oracle.RandomModel, state: int, actions: Sequence[int], horizon: int, merges: bool = True) -> dict:
    """The exact joint law of the returns of some actions of a state over a horizon, by listing every way to go on.

    Branches with equal coordinates are one, unless they wrongly are not to merge. Under "none" returns are independent.
    """
    p, R, N, g, pi, sharing = case[:6]
    if sharing == "none" and len(actions) > 1:
        law = Counter()
        for draws in itertools.product(*(joint_law(case, state, [a], horizon).items() for a in actions)):
            law[tuple(z for (z,), _ in draws)] += math.prod((chance for _, chance in draws), start=Fraction(1))
        return law
    ways = {(tuple((state, a) for a in actions), (Fraction(0),) * len(actions)): Fraction(1)}
    for step in range(horizon):
        after: Counter = Counter()
        for (at, totals), chance in ways.items():
            noise = [0 if sharing == "time" else s for s, _ in at]  # branches with equal keys see the same scenario
            branch = list(at) if merges else list(range(len(at)))  # and draw the same action
            rows = {key: p[at[noise.index(key)][0]] for key in noise}
            for scenario, c in draws_of(rows):
                moved = [(s, scenario[key], a) for key, (s, a) in zip(noise, at, strict=True)]
                paid = tuple(t + Fraction(g) ** step * Fraction(R[x]) for t, x in zip(totals, moved, strict=True))
                to = [int(N[x]) for x in moved]
                for action, d in draws_of({key: pi[to[branch.index(key)]] for key in branch}):
                    after[tuple((t, action[key]) for t, key in zip(to, branch, strict=True)), paid] += chance * c * d
        ways = after
    law = Counter()
    for (_, totals), chance in ways.items():
        law[totals] += chance
    return law


def draws_of(rows: dict) -> Iterator[tuple[dict, Fraction]]:
    """Independent draws from rows of probabilities, one for each key, with their chance."""
    for draw in itertools.product(*(np.flatnonzero(row).tolist() for row in rows.values())):
        chances = (Fraction(row[i]) for row, i in zip(rows.values(), draw, strict=True))
        yield dict(zip(rows, draw, strict=True)), math.prod(chances, start=Fraction(1))


@cache
def dyadic_truth(seed: int, sharing: str, merges: bool = True) -> tuple[list, list, list, Fraction]:
    """Of the three actions of state 0 over three steps."""
    law = joint_law(dyadic_case(seed, sharing), 0, range(3), 3, merges)
    assert sum(law.values()) == 1
    return truth(law)


def dyadic_case(seed: int, sharing: str, actions: int = 3) -> oracle.RandomModel:
    """Small whole rewards and discount 1/2, so that sums are exact in float64 and ties are frequent."""
    rng = np.random.default_rng(seed)
    p = np.array([[0.625, 0.375], [0.625, 0.375]])
    R = rng.integers(0, 3, size=(2, 2, actions)).astype(float)
    N = rng.integers(2, size=(2, 2, actions))
    pi = np.array([[0.5, 0.5, 0.0], [0.25, 0.0, 0.75]])[:, :actions]
    return oracle.RandomModel(p, R, N, 0.5, pi / pi.sum(axis=1, keepdims=True), sharing, None)


# -- models with known answers ---------------------------------------------------------------------------------

ONE_STEP = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 1, 2]], dtype=float)  # [scenario, action], then the end
CHANCES = np.array([0.4, 0.3, 0.2, 0.1])


def one_step(sharing: str, ends: bool = True) -> tuple[jm.JointMDP, np.ndarray]:
    """One step that pays, then the end; or two states that are left for each other for ever and pay nothing."""
    rewards = np.stack([ONE_STEP, np.zeros((4, 3)), np.zeros((4, 3))])
    successors = np.broadcast_to(np.array([1, 1 if ends else 2, 1])[:, None, None], rewards.shape)
    case = oracle.RandomModel(np.array([CHANCES] * 3), rewards, successors, 0.9, np.eye(3)[[0] * 3], sharing, None)
    return fitted(case, ["left", "middle", "right"])


def race(hit: float, discount: float, sharing: str) -> tuple[jm.JointMDP, np.ndarray]:
    """Each action sends its own runner, who arrives with probability `hit` a step and is paid 1, once."""
    rewards, successors = np.zeros((5, 2, 3)), np.full((5, 2, 3), 4)
    rewards[1:4, 0] = 1
    successors[0] = [1, 2, 3]
    successors[1:4, 1] = np.array([1, 2, 3])[:, None]
    chances, policy = np.array([[hit, 1 - hit]] * 5), np.eye(3)[[0] * 5]
    return fitted(oracle.RandomModel(chances, rewards, successors, discount, policy, sharing, None))


def draw_apart(sharing: str) -> tuple[jm.JointMDP, np.ndarray]:
    """Both actions lead to one state, where the policy's own draw decides on which side of a coin the branch stands."""
    rewards = np.zeros((3, 2, 2))
    rewards[1] = [[1, -1], [-1, 1]]
    successors = np.full((3, 2, 2), 2)
    successors[0] = 1
    chances, policy = np.array([[0.8, 0.2]] * 3), np.array([[0.7, 0.3]] * 3)
    return fitted(oracle.RandomModel(chances, rewards, successors, 0.9, policy, sharing, None))


@pytest.mark.parametrize("ends", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
def test_three_actions_for_one_step(sharing: str, ends: bool) -> None:
    model, policy = one_step(sharing, ends)
    found = jm.simulate(model, policy, 0, num_samples=SAMPLES).best_action(confidence=SURE)
    law: Counter = Counter()
    for draw in itertools.product(range(4), repeat=3):
        if sharing == "none" or len(set(draw)) == 1:
            chance = np.prod(CHANCES[list(draw)]) if sharing == "none" else CHANCES[draw[0]]
            law[tuple(ONE_STEP[w, a] for a, w in enumerate(draw))] += chance
    assert agrees(found, *truth(law))
    if sharing != "none":
        third = 0.2 / 3
        assert agrees(found, [0.55 + third, 0.15 + third, 0.1 + third], [0.4, 0, 0.1], [0.5, 0.5, 0.2], 0.5)
        assert found.tied[2] < 0.25 < 0.4 < found.tied[1]
    assert found.undecided == 0  # no branch is left that could still differ, merged or not
    is_consistent(found)


@pytest.mark.parametrize("sharing", ["state", pytest.param("none", marks=pytest.mark.slow)])
def test_a_race_of_three(sharing: str) -> None:
    """With runners who arrive independently, the first step in which anyone arrives decides."""
    q = 0.25
    some = 1 - (1 - q) ** 3
    one, two, three = q * (1 - q) ** 2 / some, q**2 * (1 - q) / some, q**3 / some
    model, policy = race(q, 0.5, sharing)
    found = jm.simulate(model, policy, 0, num_samples=SAMPLES, seed=3).best_action(confidence=SURE)
    assert agrees(found, [1 / 3] * 3, [one] * 3, [2 * two + three] * 3, 3 * two + three)
    is_consistent(found)
    pair = jm.simulate(model, policy, 0, [2, 0], num_samples=SAMPLES, seed=3).best_action(confidence=SURE)
    assert pair.actions == ("action 2", "action 0")
    assert agrees(pair, [0.5] * 2, [3 / 7] * 2, [1 / 7] * 2, 1 / 7)


@pytest.mark.slow
def test_runners_who_share_the_clock_always_tie() -> None:
    """They are in different states until the end, and yet nothing ever differs: no need to wait for it."""
    model, policy = race(0.001, 0.5, "time")
    found = jm.simulate(model, policy, 0, num_samples=SAMPLES).best_action()
    assert found.undecided == 0
    assert found.tied == [1, 1, 1]
    assert found.probability == pytest.approx([1 / 3] * 3)
    assert found.tie_interval.lower > 0.98


@pytest.mark.parametrize("sharing", SHARINGS)
def test_branches_that_merge_tie(sharing: str) -> None:
    model, policy = draw_apart(sharing)
    found = jm.simulate(model, policy, 0, num_samples=SAMPLES).best_action(confidence=SURE)
    shared, own = ((0.21, 0.58), (0.62 * 0.38, 0.62**2 + 0.38**2))
    (alone, tie), (wrong_alone, wrong_tie) = (own, shared) if sharing == "none" else (shared, own)
    assert agrees(found, [0.5] * 2, [alone] * 2, [tie] * 2, tie)
    assert not agrees(found, [0.5] * 2, [wrong_alone] * 2, [wrong_tie] * 2, wrong_tie)
    is_consistent(found)


@pytest.mark.slow
def test_identical_actions_share_the_first_place() -> None:
    pays = np.array([[[1.0, 1], [0, 0]]] * 2)
    case = oracle.RandomModel(np.array([[0.3, 0.7]] * 2), pays, pays.astype(int), 0.9, np.eye(2)[[0, 0]], "state", None)
    model, policy = fitted(case)
    found = jm.simulate(model, policy, 0, num_samples=SAMPLES).best_action()
    assert found.probability == [0.5, 0.5]
    assert found.tie == 1
    certified = best_of(laws_of(jm.evaluate(model, policy)), 0)
    assert certified.is_certified
    assert certified.probability == pytest.approx([0.5, 0.5], abs=1e-9)
    assert all(0.5 in interval and interval.width < 1e-9 for interval in certified.intervals)


# -- exact enumeration -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
@pytest.mark.parametrize("seed", daily([0, 1]))
def test_agrees_with_every_way_listed(sharing: str, seed: int) -> None:
    model, policy = fitted(dyadic_case(seed, sharing))
    found = jm.simulate(model, policy, 0, horizon=3, num_samples=SAMPLES, seed=seed).best_action(confidence=SURE)
    assert agrees(found, *dyadic_truth(seed, sharing))
    assert found.undecided == 0
    is_consistent(found)


def test_the_listing_is_that_of_the_oracle() -> None:
    """For two actions the oracle of the other tests lists the same law in its own way."""
    for sharing in SHARINGS:
        case = dyadic_case(4, sharing, actions=2)
        assert joint_law(case, 1, [0, 1], 3) == oracle.finite_horizon_law(*case[:6], (1, 0), (1, 1), 3)


@pytest.mark.slow
def test_wrong_rules_are_told_apart() -> None:
    """The samples suffice to see another sharing, and branches that should merge and do not."""
    for sharing in SHARINGS:
        model, policy = fitted(dyadic_case(0, sharing))
        found = jm.simulate(model, policy, 0, horizon=3, num_samples=SAMPLES).best_action(confidence=SURE)
        wrong = [dyadic_truth(0, other) for other in SHARINGS if other != sharing]
        if sharing != "none":
            wrong.append(dyadic_truth(0, sharing, merges=False))
        assert not any(agrees(found, *law) for law in wrong)


def test_counts_are_those_of_the_joint_simulation() -> None:
    """The same seed gives the same samples as the returns that are seen."""
    model, policy = fitted(dyadic_case(1, "state"))
    found = jm.simulate(model, policy, 0, horizon=3, num_samples=SAMPLES, seed=7).best_action()
    returns = jm.simulate(model, policy, 0, horizon=3, num_samples=SAMPLES, seed=7).returns
    firsts = returns == returns.max(axis=1, keepdims=True)
    assert found.probability == pytest.approx((firsts / firsts.sum(axis=1, keepdims=True)).mean(axis=0), abs=1e-15)
    assert found.mean == pytest.approx(returns.mean(axis=0), abs=1e-13)
    assert found.alone == (firsts & (firsts.sum(axis=1, keepdims=True) == 1)).mean(axis=0).tolist()


# -- intervals -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_simultaneous_coverage() -> None:
    """Of 300 seeds at confidence 0.8, more misses than the bound have probability 1e-6 if the promise is kept.

    All 4·3 + 1 intervals count as one. Were each made at 0.8 by itself, most seeds would miss. At next to no
    confidence about 17 % of the seeds miss; that at most 10 of 200 do has probability 1e-6.
    """
    case = dyadic_case(1, "state")
    model, exact = build(case), dyadic_truth(1, "state")
    runs = [
        jm.simulate(model, case.policy, 0, horizon=3, num_samples=150, seed=k).best_action(confidence=0.8)
        for k in range(300)
    ]
    misses = sum(not agrees(run, *exact) for run in runs)
    assert misses <= binom.isf(1e-6, 300, 0.2)
    assert max(interval.width for run in runs for interval in run.intervals) < 0.5
    loose = [
        jm.simulate(model, case.policy, 0, horizon=3, num_samples=150, seed=k).best_action(confidence=1e-3)
        for k in range(200)
    ]
    assert sum(not agrees(run, *exact) for run in loose) > 10


def test_proportions_cover_exactly() -> None:
    """The chance to cover is a finite sum; it is at least what is promised, and not 1, at every probability."""
    n, error = 30, 0.1
    found = [confidence_intervals.proportion(np.array([k, k]), n, error) for k in range(n + 1)]
    covered = [
        sum(binom.pmf(k, n, p) for k in range(n + 1) if p in found[k]) for p in np.linspace(0.005, 0.995, 100).tolist()
    ]
    assert 1 - error <= min(covered) < 1 - error / 4
    wide = confidence_intervals.proportion(np.array([5, 9]), n, error)
    assert wide == (found[5].lower, found[9].upper)
    assert (found[0].lower, found[n].upper) == (0, 1)


def test_means_of_shares_cover_exactly() -> None:
    """Shares 0, 1/2 and 1: the chance to cover, summed over all samples of 60."""
    n, error = 60, 0.2
    counts = np.array([(a, b, n - a - b) for a in range(n + 1) for b in range(n + 1 - a)])
    found = [
        confidence_intervals.bounded_mean(np.repeat([[0.0, 0.5, 1.0]], c, axis=1).repeat(2, axis=0), error)
        for c in counts.tolist()
    ]
    for p in ([0.1, 0.2, 0.7], [0.02, 0.96, 0.02], [0.9, 0.02, 0.08]):
        mean = p[1] / 2 + p[2]
        covers = np.array([mean in interval for interval in found])
        assert multinomial.pmf(counts, n, p) @ covers >= 1 - error
    assert min(interval.width for interval in found) < 0.4


def test_open_shares_widen_the_interval() -> None:
    """Whatever the values between the ends are, their own interval lies inside."""
    rng = np.random.default_rng(0)
    for trial in range(50):
        low = rng.random(400) * (rng.random(400) < 0.5)
        high = np.where(rng.random(400) < 0.1, rng.uniform(low, 1), low)
        if trial == 0:  # a few values that move a constant: the spread grows faster than the mean
            low, high = np.full(400, 0.5), np.where(np.arange(400) < 2, 1.0, 0.5)
        outer = confidence_intervals.bounded_mean(np.stack([low, high]), 0.1)
        for values in (low, high, rng.uniform(low, high), np.where(rng.random(400) < 0.5, low, high)):
            inner = confidence_intervals.bounded_mean(np.stack([values, values]), 0.1)
            assert outer.lower <= inner.lower + 1e-15
            assert inner.upper <= outer.upper + 1e-15


# -- certified -------------------------------------------------------------------------------------------------


def laws_of(solution: jm.results.Solution) -> Laws:
    return solution.laws


@pytest.mark.parametrize("sharing", SHARINGS)
def test_certified_is_the_enumerated_answer(sharing: str) -> None:
    case = oracle.random_model(np.random.default_rng(1), 2, 2, 2, discount=0.5, sharing=sharing)
    share, alone, tied, tie = truth(oracle.finite_horizon_law(*case[:6], (0, 0), (0, 1), 3))
    laws = laws_of(jm.evaluate(build(case), case.policy, horizon=3))
    found = certified_best(laws, 0, 0, 1, tolerance=0.02)
    assert found.is_certified
    assert agrees(found, share, alone, tied, tie)
    assert max(interval.width for interval in found.intervals) <= 0.02
    is_consistent(found)
    swapped = certified_best(laws, 0, 1, 0, tolerance=0.02)
    assert agrees(swapped, share[::-1], alone[::-1], tied[::-1], tie)


def test_certified_where_differences_cancel() -> None:
    """Ties that come about by cancelling amounts cannot be resolved by a law on a grid: wide, and true."""
    case = dyadic_case(4, "state", actions=2)
    exact = truth(oracle.finite_horizon_law(*case[:6], (0, 0), (0, 1), 3))
    laws = laws_of(jm.evaluate(build(case), case.policy, horizon=3))
    found = certified_best(laws, 0, 0, 1, tolerance=0.2)
    assert agrees(found, *exact)
    is_consistent(found)


@pytest.mark.slow
def test_certified_race_and_simulation_agree() -> None:
    """Two endless futures, whose answer is 3/7, 1/7, 3/7; three actions, or no memory, are simulated."""
    model, policy = race(0.25, 0.5, "state")
    solution = jm.evaluate(model, policy)
    laws = laws_of(solution)
    found = best_of(laws, 0, [0, 1])
    assert found.is_certified
    assert found.confidence == 1
    assert agrees(found, [0.5] * 2, [3 / 7] * 2, [1 / 7] * 2, 1 / 7)
    assert found.tie_interval.width <= 0.01
    assert found.mean == solution.mean[0, :2].tolist()
    assert "guaranteed" in str(found)
    simulated = best_of(laws, 0, [0, 1], limits=Limits(None, 1), num_samples=SAMPLES, confidence=SURE, seed=3)
    assert not simulated.is_certified
    assert agrees(simulated, [0.5] * 2, [3 / 7] * 2, [1 / 7] * 2, 1 / 7)
    three = best_of(laws, 0, num_samples=SAMPLES)
    assert not three.is_certified
    assert three.mean == solution.mean[0].tolist()


def test_a_vague_certificate_gives_way_to_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    model, policy = race(0.25, 0.5, "state")
    solution = jm.evaluate(model, policy)
    monkeypatch.setattr(rankings.Laws, "gap_law", lambda *_, **__: Vague())
    laws = laws_of(solution)
    found = best_of(laws, 0, [0, 1], num_samples=SAMPLES)
    assert not found.is_certified
    assert best_of(laws, 0, [0, 1], num_samples=9).is_certified
    vague = certified_best(laws, 0, 0, 1)
    assert vague.tie_interval.upper == pytest.approx(0.25)  # what the others leave
    assert vague.intervals[0] == pytest.approx((0.45, 0.6), abs=1e-14)
    is_consistent(vague)


class Vague:
    """A law that knows little: P(G>0) ≥ 0.4, P(G=0) ≥ 0.1, P(G<0) ≥ 0.35."""

    pairs = 64

    def superiority(self) -> jm.Interval:
        return jm.Interval(0.4, 0.55)

    def tie(self) -> jm.Interval:
        return jm.Interval(0.1, 0.3)

    def inferiority(self) -> jm.Interval:
        return jm.Interval(0.35, 0.5)


def test_the_split_is_a_linear_program() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        inside = rng.dirichlet([1, 1, 1])
        ends = [(x * rng.random(), x + (1 - x) * rng.random()) for x in inside]
        found = rankings._split(*(jm.Interval(*end) for end in ends))
        problem = {"A_eq": [[1, 1, 1]], "b_eq": [1], "bounds": ends}
        assert found.lower == pytest.approx(linprog([1, 0.5, 0], **problem).fun, abs=1e-9)
        assert found.upper == pytest.approx(-linprog([-1, -0.5, 0], **problem).fun, abs=1e-9)


# -- unfinished futures ----------------------------------------------------------------------------------------


def test_leads_that_the_future_can_turn_are_counted_both_ways() -> None:
    """Three branches, the first two of which are one: 0.03 ahead or behind, with up to 0.02 or 0.04 still to come."""
    lead = np.array([[0.0, 0.0, 0.03], [0.0, 0.0, -0.03], [0.0, 0.01, -0.5]])
    none, leaders = np.zeros(3, dtype=np.int64), np.array([[0, 0, 2]] * 3)
    run = Replications(lead, lead, np.full(lead.shape, 1e-12), none, leaders, np.ones(3))
    sure, open_ = (rankings.count(run, np.full(3, ahead)) for ahead in (0.02, 0.04))
    for counts in sure.counts.transpose(1, 0, 2):
        assert counts.tolist() == [[0, 1, 1], [1, 1, 0], [1, 2, 1]]  # alone, tied, either
    assert sure.undecided == 0
    assert open_.counts[0].tolist() == [[0, 1, 0], [0, 1, 2]]
    assert open_.counts[1].tolist() == [[0, 0, 0], [2, 2, 2]]
    assert open_.counts[2].tolist() == [[0, 1, 0], [2, 3, 2]]
    assert open_.tie.tolist() == [0, 2]
    assert open_.shares[:, :, 0].tolist() == [[0, 0, 0], [0.5, 0.5, 1]]
    assert open_.undecided == pytest.approx(2 / 3)


@pytest.mark.slow
def test_a_tie_so_far_is_no_tie() -> None:
    """Runners who arrive once in a thousand steps: most samples end before anyone has, and nearly none is a tie."""
    q = 0.001
    model, policy = race(q, 0.5, "state")
    found = jm.simulate(model, policy, 0, [0, 1], num_samples=SAMPLES).best_action(confidence=SURE)
    tie, alone = q / (2 - q), (1 - q) / (2 - q)
    assert found.undecided > 0.5
    assert found.tie > 0.5  # what the samples show, unfinished as they are
    assert agrees(found, [0.5] * 2, [alone] * 2, [tie] * 2, tie)
    assert found.alone_intervals[0].upper > 0.9
    is_consistent(found)


def test_the_end_of_a_horizon_is_no_open_future() -> None:
    """Over 20 steps those who have not arrived by then tie."""
    q, steps = 0.001, 20
    model, policy = race(q, 0.5, "state")
    found = jm.simulate(model, policy, 0, [0, 1], num_samples=SAMPLES, horizon=steps).best_action(confidence=SURE)
    nobody = (1 - q) ** (2 * (steps - 1))
    alone = (1 - nobody) * (1 - q) / (2 - q)
    assert found.undecided == 0
    assert agrees(found, [0.5] * 2, [alone] * 2, [1 - 2 * alone] * 2, 1 - 2 * alone)


def test_leads_within_rounding_are_counted_both_ways() -> None:
    """1.9 now against 1.9/0.9 a step later, discounted by 0.9: float64 cannot tell which is more.

    With 1.9 the two differ in the last bit, whether or not product and sum are rounded together.
    """
    rewards, successors = np.zeros((4, 1, 2)), np.full((4, 1, 2), 3)
    rewards[0, 0, 0], successors[0, 0] = 1.9, [1, 2]
    case = oracle.RandomModel(np.ones((4, 1)), rewards, successors, 0.9, np.eye(2)[[0] * 4], "state", None)
    for last, leaves_open in ((1.9 / 0.9, 1), (1.9 / 0.9 + 1e-9, 0)):
        rewards[2, 0] = last
        model, policy = fitted(case)
        found = jm.simulate(model, policy, 0, num_samples=SAMPLES).best_action()
        assert found.undecided == leaves_open
        assert (found.tie_interval == (0, 1)) == bool(leaves_open)
        assert found.probability == ([0.5, 0.5] if leaves_open else [0, 1])


@pytest.mark.slow
def test_a_small_lead_of_merged_branches_is_certain() -> None:
    """The lead is far below what the common future still brings, but that comes to both."""
    rewards = np.array([[[1e-9, 0.0]] * 2, [[1.0, 1.0], [-1.0, -1.0]]])
    chances, policy = np.full((2, 2), 0.5), np.eye(2)[[0, 0]]
    case = oracle.RandomModel(chances, rewards, np.ones((2, 2, 2), int), 0.99, policy, "state", None)
    model, policy = fitted(case)
    found = jm.simulate(
        model, policy, 0, num_samples=100
    ).best_action()  # a long future: more samples take longer than compiling
    assert model.discount**64 * 100 > 1e-9
    assert found.undecided == 0
    assert found.alone == [1, 0]


@pytest.mark.slow
def test_many_states_leave_ends_open_at_worst(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pairs of states are too many, branches that never merge stay open: wider, never wrong."""
    model, policy = one_step("none", ends=False)
    exact = jm.simulate(model, policy, 0, num_samples=SAMPLES).best_action()
    monkeypatch.setattr(rankings, "PAIR_LIMIT", 0)
    careful = jm.simulate(model, policy, 0, num_samples=SAMPLES).best_action()
    assert careful.undecided > 0
    assert careful.tie_interval.lower == 0
    assert careful.tie_interval.upper == pytest.approx(exact.tie_interval.upper, abs=1e-12)
    for wide, narrow in zip(careful.intervals, exact.intervals, strict=True):
        assert wide.lower <= narrow.lower
        assert narrow.upper <= wide.upper


@pytest.mark.slow
def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    model, policy = race(0.25, 0.5, "state")
    whole = jm.simulate(model, policy, 0, num_samples=SAMPLES).best_action()
    monkeypatch.setattr(rankings, "BLOCK", 9 * 700)
    assert SAMPLES % 700
    assert jm.simulate(model, policy, 0, num_samples=SAMPLES).best_action().table() == whole.table()


# -- asking ----------------------------------------------------------------------------------------------------


def test_one_action_is_the_best_one() -> None:
    model, policy = one_step("state")
    found = jm.simulate(model, policy, 0, ["right"], num_samples=1000).best_action()
    assert (found.probability, found.alone, found.tied, found.tie) == ([1], [1], [0], 0)
    assert found.intervals == [(1, 1)]
    assert found.is_certified
    assert found.mean == pytest.approx([0.2], abs=0.1)
    assert "The only action" in repr(found)


def test_it_explains_itself() -> None:
    model, policy = one_step("state")
    found = jm.simulate(model, policy, 0, num_samples=SAMPLES, seed=5).best_action(confidence=0.9)
    text = str(found).splitlines()
    assert text[0].startswith("Which action gives most in state 0?")
    assert [line.split()[0] for line in text[1:5]] == ["action", "left", "middle", "right"]
    assert "hold together with probability at least 0.9: 20,000 joint simulations" in text[-1]
    assert "seed 5" in text[-1]
    assert (found.num_samples, found.seed, found.confidence, found.is_certified) == (SAMPLES, 5, 0.9, False)
    assert [row["action"] for row in found.table()] == ["left", "middle", "right"]


@pytest.mark.parametrize(
    ("state", "actions", "settings", "message"),
    [
        (0, ["left", "left"], {}, "left is asked for twice"),
        (0, ["left", 0], {}, "left is asked for twice"),
        (0, ["lft"], {}, "did you mean 'left'"),
        (0, [7], {}, "unknown action 7"),
        (0, [], {}, "at least one action"),
        (0, "left", {}, "sequence of at least one action"),
        (0, 3, {}, "sequence of at least one action"),
        (9, None, {}, "unknown state 9"),
        (0, None, {"num_samples": 1}, "num_samples is 1"),
        (0, None, {"seed": -1}, "seed is -1"),
        (0, None, {"horizon": 0}, "horizon is 0"),
    ],
)
def test_bad_requests(state, actions, settings: dict, message: str) -> None:
    model, policy = one_step("state")
    with pytest.raises(jm.ModelError, match=message):
        jm.simulate(model, policy, state, actions, **{"num_samples": 2, **settings}).best_action()
    with pytest.raises(jm.ModelError, match="confidence is 1"):
        jm.simulate(model, policy, 0, num_samples=2).best_action(confidence=1)


def test_more_bad_requests() -> None:
    model = jm.JointMDP(np.ones((1, 1)), np.ones((1, 1, 2)), np.zeros((1, 1, 2), int), 1.0, available=[[1, 0]])
    with pytest.raises(jm.ModelError, match="action 1 is not available in this state of table"):
        jm.simulate(model, [0], 0, [0, 1], horizon=3).best_action()
    with pytest.raises(jm.ModelError, match="needs a discount below 1, or a horizon"):
        jm.simulate(model, [0], 0).best_action()
    solution = jm.evaluate(*one_step("state"))
    with pytest.raises(jm.ModelError, match="asked for twice"):
        certified_best(laws_of(solution), 0, 1, 1)
    with pytest.raises(jm.ModelError, match="tolerance"):
        best_of(laws_of(solution), 0, [0, 1], tolerance=0)
