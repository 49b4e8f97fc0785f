"""The certified law of a gap: every interval holds the truth, at any stopping point and on any grid.

The truth comes from exact laws in rationals (futures that end), from linear equations of who arrives first (the windy
gridworld) and, for futures that never end, from simulation inside bands of stated false-alarm rate.
"""

import itertools
import math
import time
from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from oracle import RandomModel, random_model
from oracle_law import Ending, ExactLaw, ending_model, exact_law, first_arrivals
from zoo import SHARINGS, STATE_AND_SLOW, build, daily, slow_or_long

import jointmdp as jm
from jointmdp.exact.law import shared_points
from jointmdp.exact.law.gap_law import GapLaw, Laws, LawStatus
from jointmdp.exact.law.pair_equations import merge_probability
from jointmdp.exact.law.pair_graph import GapBranches, GapQuery, reached_pairs
from jointmdp.exact.law.refinement import Refinement
from jointmdp.ground.intervals import Interval
from jointmdp.ground.limits import Limits, OutOfTimeError, never
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.policies import as_policy

pytestmark = pytest.mark.optimised

LEVELS = (0.001, 0.05, 0.5, 0.95)
FALSE_ALARM = 1e-6
MEMORY = 2**30
LATTICE = np.array([-2.0, -1.0, 0.0, 1.0, 3.0])
SPARSE = np.array([0.0] * 6 + [1.0, -0.7])


def laws_of(model: JointMDP, policy: Any, horizon: int | None = None) -> Laws:
    """All laws of a model under a policy."""
    solution = jm.evaluate(model, policy) if horizon is None else jm.evaluate(model, policy, horizon=horizon)
    return solution.laws


class Stoppable:
    """The law of one gap on as many points as one likes, from where it stood before, with little time or enough."""

    def __init__(
        self,
        model: JointMDP,
        policy: Any,
        query: GapQuery = (0, 0, 1),
        *,
        horizon: int | None = None,
        mean: Interval | None = None,
    ) -> None:
        law = as_policy(model, policy)
        self.branches, self.query, self.horizon = GapBranches(model, law, law, can_merge=True), query, horizon
        self.refinement = Refinement(reached_pairs(self.branches, [query], MEMORY, never), horizon)
        self.mean = mean
        if mean is None:
            assert self.refinement.means is not None
            means = self.refinement.means
            self.mean = Interval(float(means.mean[0]) - means.error, float(means.mean[0]) + means.error)

    def on(self, points: int, looks: int | None = None) -> GapLaw:
        """The law on the next points; time is over when the clock is looked at for this time."""
        clock = itertools.count(1)
        [root] = self.refinement.refine(points, lambda: looks is not None and next(clock) >= looks, lambda _: None)
        pairs = self.refinement.graph.num_pairs
        return GapLaw("gap", self.mean, pairs, points, LawStatus.REACHED, root, self.merging)

    def up_to(self, size: int) -> GapLaw:
        """What the characteristic function alone says, up to so many times the inverse of the standard deviation."""
        spectra = self.refinement.transform(size, never, lambda _: None)
        root = self.refinement.ends()[0]._replace(spectrum=spectra[0])
        return GapLaw("gap", self.mean, self.refinement.graph.num_pairs, 2, LawStatus.REACHED, root, self.merging)

    def merging(self) -> Interval:
        return merge_probability(self.branches, self.query, MEMORY, self.horizon)


def near(value: Fraction) -> Interval:
    """The floats around a number."""
    return Interval(math.nextafter(float(value), -math.inf), math.nextafter(float(value), math.inf))


def check(law: GapLaw, truth: ExactLaw, *, merges: bool = True) -> None:
    """Every interval of the law holds the exact value, at atoms, beside and between them, near 0 and far outside."""
    size = max(abs(truth.values[0]), abs(truth.values[-1]), Fraction(1, 10**300))
    atoms = [float(truth.values[i]) for i in np.linspace(0, len(truth.values) - 1, 9).astype(int)]
    between = [(x + y) / 2 for x, y in itertools.pairwise(atoms)]
    beside = [math.nextafter(t, way) for t in atoms if t != 0 for way in (-math.inf, math.inf)]
    small = [0.0, 1e-9, -1e-9, 1e-9 * float(size), -1e-9 * float(size)]
    far = [way * float(size) * times for way in (-1, 1) for times in (1 + 1e-9, 2.0, 1e9)]
    for t in atoms + between + beside + small + far:
        found = law.cdf(t)
        assert 0 <= found.lower <= found.upper <= 1
        assert found.lower <= truth.cdf(t) <= found.upper, f"P(G ≤ {t!r}) = {float(truth.cdf(t))} not in {found}"
    for t in atoms + between + beside + small:
        found = law.stop_loss(t)
        assert found.lower <= truth.stop_loss(t) <= found.upper, f"E(G − {t!r})⁺ not in {found}"
    for found, chance in zip((law.superiority(), law.tie(), law.inferiority()), truth.signs, strict=True):
        assert 0 <= found.lower <= chance <= found.upper <= 1
    for q in (*LEVELS, 0.25, 0.75):
        found = law.quantile(q)
        assert found.lower <= truth.quantile(q) <= found.upper, (
            f"quantile {q} is {float(truth.quantile(q))}, not {found}"
        )
    for alpha in LEVELS:
        found = law.cvar(alpha)
        assert found.lower <= truth.cvar(alpha) <= found.upper, f"tail mean {alpha} not in {found}"
    assert law.mean_interval.lower <= truth.mean <= law.mean_interval.upper
    assert law.support.lower <= truth.values[0] <= truth.values[-1] <= law.support.upper
    if merges:
        assert law.merge.lower <= truth.merge <= law.merge.upper
    t, lower, upper = law.band
    assert np.all(lower <= upper)
    for i in range(0, len(t), max(1, len(t) // 50)):
        assert lower[i] <= truth.cdf(t[i]) <= upper[i]
    assert law.estimate.probabilities.sum() == pytest.approx(1, abs=1e-9)
    assert np.all(law.estimate.probabilities > 0)


def check_everywhere(ending: Ending, points: tuple[int, ...] = (8, 24, 64)) -> None:
    """The bounds of an ending model at several levels, cut short and not, and those of the mirrored gap."""
    case = ending.case
    truth = exact_law(case, 0, 0, 1, ending.steps, ending.pay)
    gap, hurried, mirrored = (Stoppable(build(case), case.policy, query) for query in ((0, 0, 1), (0, 0, 1), (0, 1, 0)))
    for looks, count in enumerate(points, 4):
        with suppress(OutOfTimeError):
            check(hurried.on(count, looks), truth, merges=False)
        law = gap.on(count)
        check(law, truth)
        check_mirrored(law, mirrored.on(count))
    spread = gap.refinement.means.spread[0]
    if spread > 0:
        for size in (10, 40):
            law = gap.up_to(size)
            check(law, truth)
            check_mirrored(law, mirrored.up_to(size))


@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
@pytest.mark.parametrize("horizon", daily([None, 6]))
def test_time_may_end_anywhere(sharing: str, horizon: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever time ends there is no law, or one that holds what the whole law knows."""
    monkeypatch.setattr(shared_points, "MANY_MOVED", 2**13)  # the second level shares its points
    rng = np.random.default_rng(1)
    chances = np.broadcast_to(rng.dirichlet(np.ones(2)), (8, 2)) if sharing == "time" else rng.dirichlet(np.ones(2), 8)
    model = jm.JointMDP(chances, rng.normal(size=(8, 2, 2)), rng.integers(0, 8, (8, 2, 2)), 0.6, sharing)
    policy = rng.dirichlet(np.ones(2), size=8)
    mean = jm.evaluate(model, policy, horizon=horizon).gap(0, 0, 1).mean_interval
    whole = Stoppable(model, policy, horizon=horizon, mean=mean)
    truth = [whole.on(points) for points in (32, 96)][-1]
    cut = 0
    for looks in (2, 3, 4, 7, 20):
        hurried = Stoppable(model, policy, horizon=horizon, mean=mean)
        for points in (32, 96):
            with suppress(OutOfTimeError):
                law = hurried.on(points, looks)
                cut += 1
                for t in truth.band[0][::20]:
                    for one, other in ((law.cdf(t), truth.cdf(t)), (law.stop_loss(t), truth.stop_loss(t))):
                        assert max(one.lower, other.lower) <= min(one.upper, other.upper)
                assert law.support.lower <= truth.support.upper
    assert cut > 0


def check_mirrored(law: GapLaw, back: GapLaw) -> None:
    """G(b,a) = −G(a,b): intervals of one and the same number meet."""
    same = [
        (law.superiority(), back.inferiority()),
        (law.tie(), back.tie()),
        (law.merge, back.merge),
        (law.mean_interval, -back.mean_interval),
        (law.support, -back.support),
        (law.quantile(0.5), -back.quantile(0.5)),
    ]
    for alpha in LEVELS:  # the mean is what the lowest α and the highest 1−α bring together
        high = -back.cvar(1 - alpha)
        low = law.cvar(alpha)
        whole = Interval(alpha * low.lower + (1 - alpha) * high.lower, alpha * low.upper + (1 - alpha) * high.upper)
        same.append((law.mean_interval, Interval(whole.lower - 1e-12, whole.upper + 1e-12)))
    for one, other in same:
        assert max(one.lower, other.lower) <= min(one.upper, other.upper), (one, other)
    for t in law.band[0][:: max(1, len(law.band[0]) // 20)]:
        here, there = law.cdf(float(t)), back.cdf(math.nextafter(-float(t), -math.inf))
        # P(G ≤ t) = 1 − P(−G < −t), and P(−G ≤ u) is at most that for u < −t
        assert here.lower <= 1 - there.lower + 1e-15


def ending(seed: int, sharing: str, discount: float, amounts: np.ndarray, **options: Any) -> Ending:
    """A random model whose futures end in two states of different pay, or as the options say."""
    options = {"pays": (0.0, 1.0)} | options
    return ending_model(np.random.default_rng(seed), discount=discount, sharing=sharing, amounts=amounts, **options)


def continuous(seed: int) -> np.ndarray:
    """Amounts without any pattern."""
    return np.random.default_rng(seed).normal(size=60)


# -- exact laws of endless futures -----------------------------------------------------------------------------


@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("kind", ["lattice", "sparse", "continuous"])
def test_bounds_hold_exact_laws_of_many_kinds(sharing: str, kind: str) -> None:
    amounts = {"lattice": LATTICE, "sparse": SPARSE, "continuous": continuous(3)}[kind]
    place = 3 * SHARINGS.index(sharing) + ["lattice", "sparse", "continuous"].index(kind)
    discount = (0.1, 0.5, 0.9, 0.99)[place % 4]
    # Multiples of a power of 2 are exact, so that equal sums of lattice amounts are equal.
    scale = (1.0, 1e-6 if kind == "continuous" else 2.0**-20, 1e6)[SHARINGS.index(sharing)]
    pays = ((0.0, 0.0), (0.0, 1.0), (-1.0, 1.0, 0.0), (2.0,))[place % 4]
    scaled = tuple(pay * scale for pay in pays)
    made = ending(100 + place, sharing, discount, amounts * scale, pays=scaled, deterministic=place % 2 == 1)
    check_everywhere(made)


def test_scales_do_not_matter() -> None:
    # A factor of 2ᵏ changes no rounding: the same probabilities to the last bit.
    made = ending(5, "state", 0.9, continuous(1))
    found = []
    for factor in (1.0, 2.0**-20, 2.0**20):
        case = made.case._replace(rewards=made.case.rewards * factor)
        pay = {s: c * factor for s, c in made.pay.items()}
        law = Stoppable(build(case), case.policy).on(16)
        truth = exact_law(case, 0, 0, 1, made.steps, pay)
        check(law, truth)
        found.append((law.superiority(), law.tie(), law.cdf(0.25 * factor)))
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=0, atol=1e-9)
    for t in (-1e15, -1e12, 1e12):  # so far out that t itself is rounded by more than the law is known to
        interval = law.stop_loss(t)
        assert interval.lower <= truth.stop_loss(t) <= interval.upper


# -- horizons --------------------------------------------------------------------------------------------------


def horizon_case(seed: int, sharing: str, discount: float, amounts: np.ndarray, **options: Any) -> RandomModel:
    """A random model of three states with rewards among `amounts`."""
    rng = np.random.default_rng(seed)
    case = random_model(rng, 3, 2, 2, discount=discount, sharing=sharing, **options)
    return case._replace(rewards=rng.choice(amounts, size=case.rewards.shape))


def check_horizon(case: RandomModel, steps: int, points: tuple[int, ...]) -> None:
    """Every level holds the exact law over a horizon."""
    truth = exact_law(case, 0, 0, 1, steps)
    gap = Stoppable(build(case), case.policy, horizon=steps, mean=near(truth.mean))
    # Branches that draw the same action after the last step have become one too late.
    merge = exact_law(case, 0, 0, 1, steps - 1).merge if steps > 1 else 0
    for count in points:
        law = gap.on(count)
        check(law, truth, merges=False)
        assert law.merge.lower <= merge <= law.merge.upper


@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
def test_bounds_hold_exact_laws_over_many_horizons(sharing: str) -> None:
    kinds = (LATTICE, SPARSE, continuous(6), LATTICE * 1e6, continuous(7) * 1e-6)
    for place, (amounts, discount) in enumerate(zip(kinds, (1.0, 0.99, 0.9, 0.5, 0.1), strict=True)):
        is_plain = place % 2 == 0
        case = horizon_case(50 + place, sharing, discount, amounts, deterministic=is_plain, absorbing=not is_plain)
        for steps in (1, 4):
            check_horizon(case, steps, (8, 40))


def test_support_over_a_horizon_counts_the_steps_that_are_left() -> None:
    # One branch is paid nothing and the other 1 at each of the T−1 steps after the first.
    rewards, successors = [[[0, 0]], [[0, 0]], [[1, 1]]], [[[1, 2]], [[1, 1]], [[2, 2]]]
    model = JointMDP([[1.0]] * 3, rewards, successors, 1.0)
    law = Stoppable(model, [0, 0, 0], horizon=3, mean=near(Fraction(-2))).on(16)
    assert -2.0 in law.support
    assert law.cdf(-2.001).upper < 1e-9
    assert law.cdf(-1.999).lower > 1 - 1e-9
    assert law.quantile(0.5).lower <= -2 <= law.quantile(0.5).upper


@pytest.mark.slow
def test_a_long_horizon_on_few_points() -> None:
    rng = np.random.default_rng(3)
    case = random_model(rng, 3, 2, 2, discount=1.0, sharing="state")
    case = case._replace(rewards=rng.choice([-1.0, 0.0, 1.0], size=case.rewards.shape))
    mean = jm.evaluate(build(case), case.policy, horizon=60).gap(0, 0, 1).mean_interval
    gap = Stoppable(build(case), case.policy, horizon=60, mean=mean)
    check_simulated(gap.on(16), build(case), case.policy, horizon=60)


# -- simulation ------------------------------------------------------------------------------------------------


def check_simulated(law: GapLaw, model: JointMDP, policy: Any, *, horizon: int | None = None, seed: int = 1) -> None:
    """The empirical distribution lies in the band, widened by the Dvoretzky–Kiefer–Wolfowitz–Massart ε.

    P(sup |F_n − F| > ε) ≤ 2 exp(−2nε²) (Massart, The tight constant in the DKW inequality, 1990). Samples are off by
    up to the truncation bound, so thresholds are moved by it to the safe side.
    """
    sample = jm.simulate(model, policy, 0, [0, 1], num_samples=20_000, seed=seed, horizon=horizon, gaps_only=True).gap(
        0, 1
    )
    gaps, off = np.sort(sample.gaps), sample.truncation_bound + 1e-12 * max(1.0, float(np.max(np.abs(sample.gaps))))
    epsilon = math.sqrt(math.log(2 / FALSE_ALARM) / (2 * len(gaps)))
    t, lower, upper = law.band
    at_least = np.searchsorted(gaps, t - off, side="left") / len(gaps)
    at_most = np.searchsorted(gaps, t + off, side="right") / len(gaps)
    assert np.all(lower <= upper)
    assert np.all(lower <= at_most + epsilon)
    assert np.all(upper >= at_least - epsilon)
    # E(G−u)⁺ is an integral of 1 − F over the support, so it is off by at most ε times its length.
    room = epsilon * (law.support.width + 2 * off) + off
    for u in t[:: max(1, len(t) // 20)]:
        found, guess = law.stop_loss(float(u)), float(np.mean(np.maximum(gaps - u, 0)))
        assert found.lower <= found.upper
        assert found.lower - room <= guess <= found.upper + room
    for alpha in (0.05, 0.5):
        found = law.cvar(alpha)
        guess = float(gaps[: int(alpha * len(gaps))].mean())
        assert found.lower - room / alpha <= guess <= found.upper + room / alpha


def in_step(sharing: str) -> tuple[JointMDP, list[int]]:
    """Two branches that are both paid about 100 at every second step, and small amounts that differ in between."""
    rewards, successors = np.zeros((5, 4, 2)), np.zeros((5, 4, 2), int)
    rewards[1], rewards[2] = np.array([[97.0], [98], [99], [100]]), np.array([[101.0], [96], [95], [102]])
    rewards[3], rewards[4] = np.array([[0.0], [0], [10], [-10]]), np.array([[0.0], [0], [-10], [10]])
    successors[0], successors[1], successors[2], successors[3], successors[4] = [1, 2], 3, 4, 1, 2
    return JointMDP(np.full((5, 4), 0.25), rewards, successors, 0.5, sharing), [0] * 5


def test_large_amounts_that_both_branches_are_paid_cancel() -> None:
    model, policy = in_step("state")
    law = Stoppable(model, policy).on(400)
    t, lower, upper = law.band
    assert np.all(lower <= upper)
    assert all(law.stop_loss(float(u)).width >= 0 for u in t[::20])
    assert law.superiority().width < 0.1
    assert law.cvar(0.05).width < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("sharing", slow_or_long(SHARINGS, 1))
def test_simulated_gaps_lie_in_the_band(sharing: str) -> None:
    model, policy = in_step(sharing)
    check_simulated(Stoppable(model, policy).on(400), model, policy)
    case = random_model(np.random.default_rng(1), 5, 3, 3, discount=0.9, sharing=sharing, unavailable=True)
    assert case.available is not None
    case.available[0, :2] = True
    model = build(case)
    laws = laws_of(model, case.policy)
    gap = Stoppable(model, case.policy)
    for count in (16, 32, 300):
        law = gap.on(count)
        check_simulated(law, model, case.policy)
    signs = laws.signs(0.1, Limits(None, MEMORY))
    exists = case.available[:, :, None] & case.available[:, None, :]
    for (lower, upper), found in ((signs.better, law.superiority()), (signs.equal, law.tie())):
        assert np.array_equal(np.isfinite(lower), exists)
        assert np.all(lower[exists] <= upper[exists])
        assert max(lower[0, 0, 1], found.lower) <= min(upper[0, 0, 1], found.upper)


# -- ties and corners ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def corners() -> dict[str, GapLaw]:
    """Laws of small parts of one model without chance but for one coin, by name."""
    start = {"for ever 0": 0, "for ever 0.3": 3, "some paths": 6, "late": 10}
    size = 14
    rewards, successors = np.zeros((size, 2, 2)), np.tile(np.arange(size)[:, None, None], (1, 2, 2))
    successors[0] = [1, 2]  # two states that pay nothing for ever, and never meet
    successors[3], rewards[4], rewards[5] = [4, 5], 0.3, 0.1 + 0.2
    successors[6] = [7, 8]  # equal pay for heads, unequal for tails, then states that pay nothing
    rewards[7], rewards[8] = [[1, 1], [2, 2]], [[1, 1], [2.5, 2.5]]
    successors[7], successors[8] = 9, 1
    successors[10] = [11, 12]  # the same amount, a step later: equal only before discounting
    rewards[11], successors[11] = 1.0, 2
    successors[12], rewards[13], successors[13] = 13, 1.0, 2
    model = JointMDP(np.tile([0.25, 0.75], (size, 1)), rewards, successors, 0.9, "time")
    return {name: Stoppable(model, [0] * size, (s, 0, 1)).on(64) for name, s in start.items()}


def test_ties_that_never_merge_are_exact(corners: dict[str, GapLaw]) -> None:
    law = corners["for ever 0"]
    assert law.tie() == (1, 1)
    assert law.superiority() == law.inferiority() == law.merge == law.quantile(0.5) == (0, 0)
    assert law.cvar(0.05).lower > -1e-300


def test_amounts_are_equal_exactly_or_not_at_all(corners: dict[str, GapLaw]) -> None:
    # 0.1 + 0.2 is more than 0.3 in the table, however little.
    law = corners["for ever 0.3"]
    assert law.inferiority() == (1, 1)
    assert law.tie() == (0, 0)
    assert law.quantile(0.5).upper < 0


def test_ties_along_some_paths_only(corners: dict[str, GapLaw]) -> None:
    law = corners["some paths"]  # equal for heads, then two states that pay nothing for ever
    for bound in law.tie():
        assert bound == pytest.approx(0.25, abs=1e-9)
    assert law.inferiority().lower == pytest.approx(0.75, abs=1e-9)
    assert law.merge.upper < 1e-9
    law = corners["late"]
    assert law.superiority().lower > 1 - 1e-9
    assert law.quantile(0.5).lower <= 0.9 - 0.81 <= law.quantile(0.5).upper


def test_ties_by_cancellation_are_not_claimed_to_be_something_else() -> None:
    # +1 now and −1 later without discount: G = 0 in half of the cases, by way of differences.
    case = RandomModel(
        np.full((3, 2), 0.5),
        np.array([[[1.0, 0], [0, 0]], [[0.0, 0], [0, 0]], [[1.0, 1], [1, 1]]]),
        np.array([[[1, 2], [1, 1]], [[1, 1], [1, 1]], [[1, 1], [1, 1]]]),
        1.0,
        np.array([[1.0, 0]] * 3),
        "state",
        None,
    )
    truth = exact_law(case, 0, 0, 1, 2)
    law = Stoppable(build(case), case.policy, horizon=2, mean=near(truth.mean)).on(16)
    assert truth.signs == (0, 1, 0)
    assert truth.level == Fraction(1, 2)
    check(law, truth, merges=False)
    assert law.tie() == (1, 1)


@pytest.mark.parametrize("reward", [5.0, 0.0])
def test_one_state_that_never_parts_the_branches(reward: float) -> None:
    # Rewards differ between scenarios, never between branches: the reach of all gaps is 0.
    model = JointMDP([[0.6, 0.4]], [[[0.0, 0.0], [reward, reward]]], [[[0, 0], [0, 0]]], 0.9)
    gap = Stoppable(model, [0])
    for law in (gap.on(16), gap.on(32)):
        assert law.tie().lower > 1 - 1e-9
        assert law.merge.lower > 1 - 1e-9
        assert abs(law.cvar(0.05).lower) < 1e-9 > abs(law.cvar(0.05).upper)
        assert law.cdf(5e-324).upper == 1


def test_amounts_nobody_is_paid_do_not_blur_those_that_are() -> None:
    # A forbidden move costs 10⁹, and the policy never makes it.
    rewards = [[[0, 0]], [[0.05, -1e9]], [[0.0, -1e9]], [[0, 0]]]
    model = JointMDP([[1.0]] * 4, rewards, [[[1, 2]], [[3, 3]], [[3, 3]], [[3, 3]]], 0.99)
    law = Stoppable(model, [0] * 4).on(16)
    assert law.superiority() == (1, 1)
    assert law.tie() == (0, 0)
    assert law.quantile(0.5).lower <= 0.99 * 0.05 <= law.quantile(0.5).upper
    assert law.cvar(0.5).lower <= 0.99 * 0.05 <= law.cvar(0.5).upper


# -- one list of points for all pairs ---------------------------------------------------------------------------


@pytest.fixture
def always_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cycle is solved on shared points, however small it is."""
    for name, value in (("MANY_EDGES", 0), ("MANY_MOVED", -1), ("BUSY", 0.0), ("WASTE", math.inf)):
        monkeypatch.setattr(shared_points, name, value)


@pytest.mark.usefixtures("always_shared")
@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("amounts", [LATTICE, continuous(3) * 1e6], ids=["lattice", "continuous"])
def test_bounds_on_shared_points_hold(sharing: str, amounts: np.ndarray) -> None:
    size = float(np.abs(amounts).max())
    check_everywhere(ending(106, sharing, 0.9, amounts, pays=(-size, size, 0.0), deterministic=False))


@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
def test_shared_points_and_own_points_agree(sharing: str, request: pytest.FixtureRequest) -> None:
    """Two ways to bounds of one law: they meet, and a model with many outcomes (half steps) is no exception."""
    case = random_model(np.random.default_rng(4), 5, 3, 3, discount=0.8, sharing=sharing)
    own = Stoppable(build(case), case.policy)
    laws = [own.on(24), own.on(96)]
    request.getfixturevalue("always_shared")
    shared = Stoppable(build(case), case.policy)
    laws += [shared.on(24), shared.on(96)]
    assert laws[3].superiority().width < 0.1
    for t in (*np.linspace(*laws[0].support, 9), 0.0):
        for read in (GapLaw.cdf, GapLaw.stop_loss):
            found = [read(law, float(t)) for law in laws]
            assert max(x.lower for x in found) <= min(x.upper for x in found)
    check_simulated(laws[3], build(case), case.policy)


# -- the windy gridworld ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
def test_who_arrives_first_in_the_windy_gridworld(sharing: str) -> None:
    model, policy = jm.envs.windy_gridworld(5, discount=0.95, sharing=sharing)
    truth = first_arrivals(model.successors, 0.2, policy, 24, sharing)
    signs = laws_of(model, policy).signs(1e-6, Limits(None, MEMORY))
    for (lower, upper), exact in zip((signs.better, signs.equal), truth, strict=True):
        assert np.max(upper - lower) < 1e-6
        assert np.all(lower <= exact + 1e-12)
        assert np.all(exact - 1e-12 <= upper)


# -- how narrow ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("sharing", slow_or_long(SHARINGS, 1))
def test_tail_means_of_patternless_models_are_sharp(sharing: str) -> None:
    case = random_model(np.random.default_rng(9), 25, 3, 3, discount=0.9, sharing=sharing)
    model = build(case)
    solution = jm.evaluate(model, case.policy)
    std, laws = solution.gap(0, 0, 1).std, laws_of(model, case.policy)
    begin = time.perf_counter()

    def width(law: GapLaw) -> float:
        return max(law.superiority().width / 0.01, law.cvar(0.05).width / (1e-3 * std))

    law = laws.gap_law((0, 0, 1), width, 0.99, Limits(None, MEMORY))
    print(f"{sharing}: {law.points} points in {time.perf_counter() - begin:.0f} s, {law}")
    assert law.superiority().width < 0.01
    assert law.cvar(0.05).width < 1e-3 * std
    check_simulated(law, model, case.policy)


# -- without a discount ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
def test_gamblers_ruin_without_a_discount(sharing: str) -> None:
    """Begin with 4 or with 2, then stake 1 until 0 or 8, where 1 is paid: closed forms of the ruin problem."""
    top, start, win = 8, 3, 0.45
    successors, rewards = np.zeros((top + 2, 2, 2), int), np.zeros((top + 2, 2, 2))
    successors[1:top, 0], successors[1:top, 1] = (np.arange(1, top)[:, None] + step for step in (1, -1))
    successors[top + 1], rewards[top] = [start + 1, start - 1], 1.0
    model = jm.JointMDP([[win, 1 - win]] * (top + 2), rewards, successors, 1.0, sharing)
    gap = jm.evaluate(model, [0] * (top + 2)).gap(top + 1, 0, 1)
    ratio = (1 - win) / win

    def wins(s: int) -> float:
        return float((1 - ratio**s) / (1 - ratio**top))

    up, down = wins(start + 1), wins(start - 1)
    # They start 2 apart and cannot pass each other unseen: who shares luck in one state or in time stays ahead.
    truth = (up * (1 - down), down * (1 - up)) if sharing == "none" else (up - down, 0.0)
    law = gap.law(tolerance=1e-6)
    for found, exact in zip((law.superiority(), law.inferiority()), truth, strict=True):
        assert found.lower - 1e-12 <= exact <= found.upper + 1e-12
        assert found.width <= 1e-6
    assert law.support == ((-1, 1) if sharing == "none" else (0, 1))


def test_without_a_discount_and_a_bound_nothing_is_claimed() -> None:
    """Every step costs 1 until the end: no amount bounds the gap, and an interval that wide says why."""
    model = jm.JointMDP([[0.5, 0.5]] * 2, [[[-1.0, -2.0]] * 2, [[0.0, 0.0]] * 2], [[[0, 1], [1, 0]], [[1, 1]] * 2], 1.0)
    gap = jm.evaluate(model, [0, 0]).gap(0, 0, 1)
    with pytest.raises(jm.NotKnownError, match="no amount bounds the gap"):
        gap.law()
    with pytest.warns(jm.errors.ConvergenceWarning, match=r"wide, 0\.01 was asked for.*no amount bounds the gap"):
        found = gap.superiority()
    assert found.width > 0.01
    assert found.status is LawStatus.LIMIT
