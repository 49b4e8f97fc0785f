"""One face for every kind of gap: the same questions, answers of the same types, and one truth behind them.

The market stall of the README has a gap in closed form. Staying pays 1 more than moving on the first day; after that
the town pays 1 less than the coast on a fine day (chance 0.6) and 2 more on a rainy one, the same day for both:

    G = 1 + Σ_{t≥1} 0.9ᵗ Dₜ,   E D = 0.2, Var D = 2.16,   −8 ≤ G ≤ 19,   P(G = 0) = 0 (the law has no atoms).

Intervals of sampled and learned kinds are asked for at a confidence of 1 − 1e-6 each, here held against the truth 24
times: had the seeds not been fixed, a correct program would raise a false alarm with probability at most 3e-5.
"""

import dataclasses
import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from scipy.stats import norm, t

import jointmdp as jm

SURE = 1 - 1e-6
MEAN, VARIANCE = 2.8, 2.16 * 0.81 / 0.19
SEPARATE = 2.16 / 0.19 + 2.16 + 8.64 * 0.81 / 0.19  # Var of staying, 3 or 0 a day, and of moving to 4 or −2 a day
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
ROOM = 1e-9  # rounding of sampled gaps, and of numbers written in decimals
QUESTION = ("town", "stay", "move")
POLICY = ["stay", "stay"]
REPLICAS = 8

MODEL = jm.JointMDP(
    probabilities=[[0.6, 0.4], [0.6, 0.4]],
    rewards=[[[3, 2], [0, -1]], [[4, 3], [-2, -1]]],
    successors=[[[0, 1], [0, 1]], [[1, 0], [1, 0]]],
    discount=0.9,
    sharing="time",
    state_names=["town", "coast"],
    action_names=["stay", "move"],
)


@cache
def exact() -> jm.results.Gap:
    return jm.evaluate(MODEL, POLICY).gap(*QUESTION)


def law() -> jm.results.GapLaw:
    return exact().law()


def sampled() -> jm.results.GapSample:
    state, *pair = QUESTION
    return jm.simulate(MODEL, POLICY, state, pair, num_samples=20_000, seed=1, gaps_only=True).gap(*pair)


def compared() -> jm.results.PairedGap:
    return jm.compare(MODEL, POLICY, "town", half_width=0.5, confidence=SURE, seed=1).gap("stay", "move")


def learned_of_a_table() -> jm.results.LearnedGap:
    return jm.learn(MODEL, POLICY, jm.Incremental(replicas=REPLICAS, seed=1)).gap(*QUESTION)


def learned_of_a_simulator() -> jm.results.LearnedGap:
    simulator = jm.simulators.TableSimulator(MODEL)
    found = jm.learn(simulator, POLICY, jm.Incremental(replicas=REPLICAS, batch=4, seed=1), steps=300)
    return found.gap(simulator.at("town"), "stay", "move")


def projected() -> jm.results.Gap:
    """One feature for each coordinate: nothing is lost."""
    return jm.evaluate(MODEL, POLICY, jm.Projected(jm.features.one_hot())).gap(*QUESTION)


KINDS: dict[Callable[[], jm.results.GapLike], type] = {
    exact: jm.results.Gap,
    law: jm.results.GapLaw,
    projected: jm.results.Gap,
    sampled: jm.results.GapSample,
    compared: jm.results.PairedGap,
    learned_of_a_table: jm.results.LearnedGap,
    learned_of_a_simulator: jm.results.LearnedGap,
}
CERTIFIED = (jm.results.Gap, jm.results.GapLaw)
of_every_kind = pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)


@cache
def made(make: Callable[[], jm.results.GapLike]) -> jm.results.GapLike:
    return make()


def meet(one: jm.Interval, other: jm.Interval) -> bool:
    return max(one.lower, other.lower) <= min(one.upper, other.upper)


def surely(gap: jm.results.GapLike) -> jm.results.GapLike:
    """The same gap with intervals that miss once in a million; certified ones never do."""
    if isinstance(gap, jm.results.GapSample):
        return dataclasses.replace(gap, confidence=SURE)
    if isinstance(gap, jm.results.LearnedGap):
        # Half widths are Student's at 95 %, and a bound on the bias that the factor makes only larger.
        factor = t.ppf((1 + SURE) / 2, REPLICAS - 1) / t.ppf(0.975, REPLICAS - 1)
        return dataclasses.replace(gap, mean_error=factor * gap.mean_error, variance_error=factor * gap.variance_error)
    return gap


@of_every_kind
def test_every_kind_has_the_face(make: Callable[[], jm.results.GapLike]) -> None:
    gap = made(make)
    assert type(gap) is KINDS[make]
    assert isinstance(gap, jm.results.GapLike)
    assert repr(gap).startswith(f"{type(gap).__name__}(")
    for number in (gap.mean, gap.variance, gap.std):
        assert isinstance(number, float)
    for interval, number in ((gap.mean_interval, gap.mean), (gap.variance_interval, gap.variance)):
        assert isinstance(interval, jm.Interval)
        assert interval.lower <= interval.upper
        assert interval.estimate == pytest.approx(number, rel=1e-12)
    assert gap.mean in gap.mean_interval
    assert gap.variance in gap.variance_interval
    assert gap.variance_interval.lower >= 0
    assert gap.std == math.sqrt(gap.variance)
    # Answers, not excuses: the mean is known to a part of the standard deviation.
    assert gap.mean_interval.width < gap.std


@of_every_kind
def test_every_kind_answers_or_names_one_that_can(make: Callable[[], jm.results.GapLike]) -> None:
    gap = made(make)
    if isinstance(gap, jm.results.LearnedGap):
        for ask in (gap.superiority, gap.tie, gap.inferiority, lambda: gap.quantile(0.05), lambda: gap.cvar(0.05)):
            with pytest.raises(jm.NotKnownError, match=r"not known.*evaluate\(.*simulate"):
                ask()
        return
    better, tie, worse = gap.superiority(), gap.tie(), gap.inferiority()
    quantiles, tails = [gap.quantile(q) for q in LEVELS], [gap.cvar(q) for q in LEVELS]
    for interval in (better, tie, worse, *quantiles, *tails):
        assert isinstance(interval, jm.Interval)
        assert interval.lower <= interval.estimate <= interval.upper
    assert better.estimate + tie.estimate + worse.estimate == pytest.approx(1, abs=0.01)
    for chance in (better, tie, worse):
        assert chance.lower >= 0
        assert chance.upper <= 1
    for amounts in (quantiles, tails):
        for ends in zip(*amounts, strict=True):
            assert list(ends) == sorted(ends)
    for quantile in quantiles:
        assert quantile.lower >= -8 - ROOM
        assert quantile.upper <= 19 + ROOM
    for tail, quantile in zip(tails, quantiles, strict=True):
        # Each interval of a sample holds by itself; only certified ones bound each other.
        assert tail.upper <= quantile.upper or (tail.lower <= quantile.upper and not isinstance(gap, CERTIFIED))
        assert tail.lower <= gap.mean_interval.upper
    with pytest.raises(jm.ModelError, match=r"q is 1\.5"):
        gap.quantile(1.5)
    with pytest.raises(jm.ModelError, match="alpha is 0"):
        gap.cvar(0.0)


@of_every_kind
def test_every_kind_says_how_many_pairs_it_takes(make: Callable[[], jm.results.GapLike]) -> None:
    """By the normal approximation: z²·Var/h² for a half width of h, and z²·Var/mean² to select."""
    gap, sure = made(make), norm.ppf(0.95)
    needed, select = gap.replications(half_width=0.5), gap.replications_to_select(0.95)
    assert needed.paired == math.ceil(norm.ppf(0.975) ** 2 * gap.variance / 0.5**2)
    assert select.paired == math.ceil(sure**2 * gap.variance / gap.mean**2)
    if make is sampled:  # its replications stopped where the branches had merged
        assert math.isnan(needed.unpaired)
    else:
        assert needed.unpaired == pytest.approx(norm.ppf(0.975) ** 2 * SEPARATE / 0.5**2, rel=0.2)
    assert gap.replications(half_width=0.05).paired == pytest.approx(100 * needed.paired, abs=100)


@of_every_kind
def test_all_kinds_tell_the_truth(make: Callable[[], jm.results.GapLike]) -> None:
    """Certified intervals hold it; those of samples hold it at a million to one."""
    gap = surely(made(make))
    room = ROOM if isinstance(gap, CERTIFIED) else 0.0
    if make is projected:  # where entries of a matrix are not seen, its fixed point is known to the root of rounding
        room = 1e-8
    assert MEAN in gap.mean_interval.widened(room)
    assert VARIANCE in gap.variance_interval.widened(room)
    if isinstance(gap, CERTIFIED):
        assert gap.mean == pytest.approx(MEAN, abs=room)
        assert gap.variance == pytest.approx(VARIANCE, abs=room)


@pytest.mark.parametrize("make", [law, projected, sampled, compared], ids=lambda make: make.__name__)
def test_all_kinds_agree_on_the_law(make: Callable[[], jm.results.GapLike]) -> None:
    """What is certified holds the truth, what is sampled does at a million to one: two such intervals meet."""
    gap, certified = surely(made(make)), exact()
    assert 0.0 in gap.tie()
    assert meet(gap.superiority(), certified.superiority())
    for level in LEVELS[::2]:
        assert meet(gap.quantile(level), certified.quantile(level))
        assert meet(gap.cvar(level), certified.cvar(level))
    if isinstance(gap, jm.results.GapSample):
        # Sharp enough to tell: the truth of the gap seen from the other side is far outside.
        back = jm.evaluate(MODEL, POLICY).gap("town", "move", "stay")
        assert not meet(gap.superiority(), back.superiority())
        assert not meet(gap.quantile(0.5), back.quantile(0.5))
        assert -MEAN not in gap.mean_interval


def test_a_gap_seen_from_the_other_side() -> None:
    for gap in (made(sampled), made(compared)):
        back = gap.reversed()
        assert type(back) is type(gap)
        assert (back.action, back.other) == (gap.other, gap.action)
        assert back.mean == -gap.mean
        assert back.variance == pytest.approx(gap.variance, rel=1e-12)
        assert back.mean_interval == pytest.approx(-gap.mean_interval, rel=1e-6)
        assert back.superiority() == gap.inferiority()
        assert back.tie() == gap.tie()
        assert not np.signbit(back.gaps[gap.gaps == 0]).any()  # or a table shows "-0"
        for level in LEVELS:
            # P(−G ≤ x) ≥ q where P(G < −x) ≤ 1 − q: the same order statistics, counted from the other end.
            assert meet(back.quantile(level), -gap.quantile(1 - level))
