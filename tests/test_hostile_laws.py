"""Laws where numbers of very different size meet, γ is near 1, and events are rare: intervals hold, limits too.

The truth is exact: enumeration in rationals where futures end, and where they do not, enumeration of the first steps
with all that can follow given away.
"""

import itertools
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from oracle import RandomModel
from oracle_law import Ending, ExactLaw, exact_law
from test_laws import Stoppable, check
from zoo import SHARINGS, build, padded, slow_or_long

import jointmdp as jm
from jointmdp.exact.law import gap_law, refinement
from jointmdp.exact.law.gap_law import LawStatus

pytestmark = pytest.mark.optimised

RARE = 1e-6


def signs_of(gap: jm.results.Gap, **limits: Any) -> list[jm.Interval]:
    """P(G > 0), P(G = 0) and P(G < 0), without a word about what was not reached."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jm.errors.ConvergenceWarning)
        return [gap.superiority(**limits), gap.tie(**limits), gap.inferiority(**limits)]


def gamble(stake: float, base: float, discount: float, *, loss: float = 0.0) -> jm.results.Solution:
    """State 0: bet or not. A bet pays base ± stake (or base, with probability 0.1), no bet base; then base for ever.

    With a `loss`, another state that is reached with a probability of 10⁻⁶ pays minus the loss to either.
    """
    chances = np.array([[0.45 * (1 - RARE), 0.45 * (1 - RARE), 0.1 * (1 - RARE), RARE]] * 3)
    rewards = np.full((3, 4, 2), base)
    rewards[0, :3, 0] = base + stake, base - stake, base
    rewards[2] = base - loss
    successors = np.ones((3, 4, 2), int)
    successors[0, 3], successors[1, 3] = 2, 2 if loss else 1
    return jm.evaluate(jm.JointMDP(chances, rewards, successors, discount), [0, 0, 0])


@pytest.mark.parametrize(
    ("stake", "base", "discount", "loss"),
    [(0.05, 0.0, 0.9999, 1e7), (1e-7, 1.0, 0.999999, 0.0), (1e-10, 1.0, 0.999, 0.0)],
)
def test_small_games_are_not_ties(stake: float, base: float, discount: float, loss: float) -> None:
    """The chance of a tie is 0.1 (and the rare event), whatever is paid beside it."""
    gap = gamble(stake, base, discount, loss=loss).gap(0, 0, 1)
    for found, truth in zip(signs_of(gap), (0.45, 0.1, 0.45), strict=True):
        assert found.width <= 0.01
        assert found.lower - RARE <= truth <= found.upper + RARE
    mean, variance = gap.mean_interval, gap.variance_interval
    law = gap.law()
    assert max(law.mean_interval.lower, mean.lower) <= min(law.mean_interval.upper, mean.upper)
    paid = np.array([base + stake, base - stake, base]) - base
    truth = 0.45 * (1 - RARE) * float(paid @ paid)  # but for the square of the mean, 10⁻¹² of it
    assert variance.lower * (1 - 1e-9) <= truth <= variance.upper * (1 + 1e-9)


def test_a_large_penalty_hides_nothing() -> None:
    """1e-4 more for one action, and for both 1e9 less with probability 1e-6: it is better, for certain."""
    rewards = np.array([[[1e-4, 0.0], [1e-4 - 1e9, -1e9]], [[0.0, 0.0]] * 2])
    model = jm.JointMDP([[1 - RARE, RARE]] * 2, rewards, np.ones((2, 2, 2), int), 0.99)
    gap = jm.evaluate(model, [0, 0]).gap(0, 0, 1)
    assert [tuple(found) for found in signs_of(gap, tolerance=1e-15)] == [(1, 1), (0, 0), (0, 0)]
    # The same apart: each branch has its own bad luck, and a common one is then 10⁻¹² likely.
    for found, truth in zip(
        signs_of(jm.evaluate(model.with_sharing("none"), [0, 0]).gap(0, 0, 1)), (1, 0, 0), strict=True
    ):
        assert found.lower - 2 * RARE <= truth <= found.upper + 2 * RARE


def test_products_of_rare_events_do_not_vanish() -> None:
    """Scenario and action of probability 1e-200 each: no certain tie."""
    chances, policy = [[1.0, 1e-200]] * 4, [[1.0, 0.0], [1.0, 1e-200], [1.0, 0.0], [1.0, 0.0]]
    rewards, successors = np.zeros((4, 2, 2)), np.full((4, 2, 2), 3)
    successors[0] = [1, 2]
    rewards[1, 1, 1] = 1.0
    for sharing in ("state", "none"):
        gap = jm.evaluate(jm.JointMDP(chances, rewards, successors, 0.9, sharing), policy).gap(0, 0, 1)
        better, tie, worse = signs_of(gap)
        assert better.upper > 0
        assert better.upper < 1e-100
        assert tie.upper == 1
        assert tie.lower >= 1 - 1e-15
        assert worse == (0, 0)


def test_the_answer_does_not_depend_on_what_was_asked_before() -> None:
    rng = np.random.default_rng(4)
    chances, rewards = rng.dirichlet(np.ones(3), size=4), rng.normal(size=(4, 3, 2))
    model = jm.JointMDP(chances, rewards, rng.integers(0, 4, (4, 3, 2)), 0.8, "none")
    policy = rng.dirichlet(np.ones(2), size=4)
    plain = jm.evaluate(model, policy).gap(0, 0, 1).superiority(tolerance=0.05)
    solution = jm.evaluate(model, policy)
    gap = solution.gap(0, 0, 1)
    gap.cvar(0.05, tolerance=0.05)
    gap.law(tolerance=0.05)
    solution.gap(1, 0, 1).tie(tolerance=0.1)
    again = gap.superiority(tolerance=0.05)
    assert again == plain
    assert again.status is plain.status is LawStatus.REACHED


@pytest.mark.slow
def test_threads_that_ask_at_once_get_the_same_answers() -> None:
    rng = np.random.default_rng(5)
    chances, rewards = rng.dirichlet(np.ones(3), size=4), rng.normal(size=(4, 3, 2))
    model = jm.JointMDP(chances, rewards, rng.integers(0, 4, (4, 3, 2)), 0.9, "state")
    policy = rng.dirichlet(np.ones(2), size=4)
    asks: list[Callable[[jm.results.Gap], jm.Interval]] = [
        jm.results.Gap.superiority,
        jm.results.Gap.tie,
        jm.results.Gap.inferiority,
    ]
    plain = [ask(jm.evaluate(model, policy).gap(0, 0, 1)) for ask in asks]
    gap = jm.evaluate(model, policy).gap(0, 0, 1)
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda ask: ask(gap), asks)) == plain


def test_an_interrupted_law_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    chances, rewards = rng.dirichlet(np.ones(3), size=4), rng.normal(size=(4, 3, 2))
    model = jm.JointMDP(chances, rewards, rng.integers(0, 4, (4, 3, 2)), 0.9, "state")
    policy = rng.dirichlet(np.ones(2), size=4)
    plain = jm.evaluate(model, policy).gap(0, 0, 1).superiority(tolerance=0.05)
    gap = jm.evaluate(model, policy).gap(0, 0, 1)
    rounded = refinement.rounded_law
    for calls in (0, 3):  # that succeed: the first is made between the two bounds of a level

        def interrupted(*given: Any, left: Iterator[None]) -> Any:
            if next(left, StopIteration) is StopIteration:
                raise KeyboardInterrupt
            return rounded(*given)

        monkeypatch.setattr(refinement, "rounded_law", partial(interrupted, left=itertools.repeat(None, calls)))
        with pytest.raises(KeyboardInterrupt):
            gap.superiority(tolerance=1e-6)
    monkeypatch.setattr(refinement, "rounded_law", rounded)
    assert gap.superiority(tolerance=0.05) == plain


def test_what_limits_have_ended_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    chances, rewards = rng.dirichlet(np.ones(3), size=4), rng.normal(size=(4, 3, 2))
    model = jm.JointMDP(chances, rewards, rng.integers(0, 4, (4, 3, 2)), 0.99, "none")
    policy = rng.dirichlet(np.ones(2), size=4)
    gap, other = (jm.evaluate(model, policy).gap(0, 0, 1) for _ in range(2))
    brief, none = jm.Limits(seconds=1e-3), jm.Limits(memory=2**20)
    with pytest.warns(jm.errors.ConvergenceWarning):
        first = gap.superiority(tolerance=1e-6, limits=brief)
    with pytest.raises(jm.ModelError, match="even 64 points"):
        other.law(limits=none)

    def refused(*_: Any) -> None:
        raise AssertionError("the same work again")

    monkeypatch.setattr(gap_law.Refinement, "refine", refused)
    monkeypatch.setattr(gap_law, "reached_pairs", refused)
    with pytest.raises(jm.ModelError, match="even 64 points"):
        other.law(limits=none)
    for ask, most in (
        (gap.superiority, first.width),
        (gap.tie, 1.0),
        (lambda **how: gap.cvar(0.05, **how), 1e3),
        (lambda **how: gap.quantile(0.05, **how), 1e3),
    ):
        with pytest.warns(jm.errors.ConvergenceWarning):
            assert ask(tolerance=1e-6, limits=brief).width <= most
    with pytest.raises(AssertionError, match="the same work again"):
        gap.superiority(tolerance=1e-6, limits=jm.Limits(seconds=1.0))


@pytest.mark.slow
def test_limits_are_kept_and_said() -> None:
    rng = np.random.default_rng(5)
    chances, rewards = rng.dirichlet(np.ones(3), size=4), rng.normal(size=(4, 3, 2))
    model = jm.JointMDP(chances, rewards, rng.integers(0, 4, (4, 3, 2)), 0.99, "none")
    solution = jm.evaluate(model, rng.dirichlet(np.ones(2), size=4))
    gap = solution.gap(0, 0, 1)
    with pytest.warns(jm.errors.ConvergenceWarning, match="a finer law would pass a limit"):
        small = gap.superiority(tolerance=1e-4, limits=jm.Limits(memory=2**23))
    assert small.status is LawStatus.LIMIT
    with pytest.warns(jm.errors.ConvergenceWarning, match="wide"):
        brief = gap.superiority(tolerance=1e-4, limits=jm.Limits(seconds=1e-3))
    assert brief.status is LawStatus.LIMIT
    with pytest.warns(jm.errors.ConvergenceWarning, match="wide"):
        assert (
            gap.superiority(tolerance=1e-4, limits=jm.Limits(memory=2**23)) == small
        )  # what was cut short is not kept
    with pytest.raises(jm.ModelError, match=r"pairs of states; even 64 points to each take [\d,]+ bytes"):
        gap.law(limits=jm.Limits(memory=2**20))
    with pytest.raises(jm.ModelError, match="moves of pairs of states"):
        jm.evaluate(model, solution.policy).gap(0, 0, 1).law(limits=jm.Limits(memory=2**12))
    with pytest.warns(jm.errors.ConvergenceWarning, match="wide"):
        found = gap.superiority(tolerance=1e-4, simulate=True, limits=jm.Limits(memory=2**23))
    assert found.simulated is not None
    assert found.simulated.lower <= found.simulated.upper
    assert max(found.simulated.lower, found.lower) <= min(found.simulated.upper, found.upper)


@pytest.mark.parametrize("horizon", [pytest.param(None, marks=pytest.mark.slow), 6])
def test_where_time_is_over_at_once_moments_answer(horizon: int | None) -> None:
    rng = np.random.default_rng(5)
    rewards, successors = rng.normal(size=(4, 3, 2)), rng.integers(0, 4, (4, 3, 2))
    model = jm.JointMDP(rng.dirichlet(np.ones(3), size=4), rewards, successors, 0.9, "none")
    solution = jm.evaluate(model, np.full((4, 2), 0.5), horizon=horizon)
    gap = solution.gap(0, 0, 1)
    with pytest.warns(jm.errors.ConvergenceWarning, match="the time that was given"):
        brief = gap.superiority(limits=jm.Limits(seconds=1e-9))
    below = gap.moment_bounds().cdf(0.0)
    assert (brief.lower, brief.upper, brief.status) == (1 - below.upper, 1 - below.lower, LawStatus.LIMIT)
    for ask in (gap.law, solution.signs):
        with pytest.raises(jm.ModelError, match="the time that was given; bounds from moments need no law"):
            ask(limits=jm.Limits(seconds=1e-9))
    found = gap.superiority(tolerance=0.05)  # more time finds nothing coarse in its way
    assert found.status is LawStatus.REACHED
    assert brief.lower <= found.lower <= found.upper <= brief.upper
    again = gap.law(tolerance=0.99, limits=jm.Limits(seconds=1e-9))  # and less time what is there
    assert again.superiority().width <= 0.99
    assert solution.best_action(0, limits=jm.Limits(seconds=1e-9)).confidence in (0.95, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", slow_or_long(["layers", "cycle", "horizon"], 1))
def test_time_limits_are_kept(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an eighth of the time is given that a law takes, no more than half of it is taken."""
    monkeypatch.setattr(refinement, "WAVES", 1)
    rng = np.random.default_rng(0)
    size, width, memory = (61, 6, 28) if kind == "layers" else (30, 30, 29)
    first = 1 + np.minimum(np.arange(size) // width, size // width - 1) * width if kind == "layers" else np.zeros(size)
    successors = first.astype(int)[:, None, None] + rng.integers(0, width, (size, 3, 2))
    successors = np.minimum(successors, size - 1)
    model = jm.JointMDP(np.full((size, 3), 1 / 3), rng.normal(size=(size, 3, 2)), successors, 0.9, "none")
    solution = jm.evaluate(model, np.full((size, 2), 0.5), horizon=6 if kind == "horizon" else None)

    def seconds(limit: float | None) -> float:
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", jm.errors.ConvergenceWarning)
            replace(solution).gap(0, 0, 1).superiority(
                tolerance=1e-9, limits=jm.Limits(seconds=limit, memory=2**memory)
            )
        return time.perf_counter() - begin

    whole = seconds(None)
    assert seconds(whole / 8) <= whole / 2


@pytest.mark.slow
def test_near_one_windy() -> None:
    """The sign of who arrives first does not depend on the discount, and the answer takes no longer."""
    near, far = (
        signs_of(jm.evaluate(*jm.envs.windy_gridworld(5, discount=g)).gap("(0,0)", "R", "U")) for g in (0.9999, 0.95)
    )
    for one, other in zip(near, far, strict=True):
        assert one.width < 1e-6
        assert max(one.lower, other.lower) <= min(one.upper, other.upper) + 1e-12


MEMORY = """
import pathlib, re, sys, warnings
import numpy as np, jointmdp as jm
warnings.simplefilter("ignore")


def resident(name):
    return int(re.search(name + r":\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1]) * 1024


rng = np.random.default_rng(0)
model = jm.JointMDP(rng.dirichlet(np.ones(3), size=8), rng.normal(size=(8, 3, 2)),
                    rng.integers(0, 8, (8, 3, 2)), float(sys.argv[2]), sys.argv[3])
gap = jm.evaluate(model, rng.dirichlet(np.ones(2), size=8)).gap(0, 0, 1)
pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
before = resident("VmRSS")
gap.superiority(tolerance=1e-9, limits=jm.Limits(seconds=None, memory=int(sys.argv[1])))
print(resident("VmHWM") - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="resident memory is read from /proc")
@pytest.mark.parametrize(
    ("limit", "discount", "sharing"),
    [
        pytest.param(2**24, 0.99999, "none", marks=pytest.mark.slow),
        pytest.param(2**26, 0.99999, "none", marks=pytest.mark.long),
        pytest.param(2**26, 0.9, "state", marks=pytest.mark.slow),
        pytest.param(2**29, 0.9, "none", marks=pytest.mark.long),
    ],
)
def test_memory_limits_are_kept(limit: int, discount: float, sharing: str) -> None:
    """Resident memory of a process of its own, beyond what it had before: at most the limit and 10 %."""
    run = [sys.executable, "-c", MEMORY, str(limit), str(discount), sharing]
    found = subprocess.run(run, capture_output=True, text=True, check=True)
    assert int(found.stdout) <= 1.1 * limit


# -- many hostile models ---------------------------------------------------------------------------------------


def hostile_amounts(rng: np.random.Generator) -> np.ndarray:
    """Amounts to draw rewards from, of one of several kinds."""
    size = 10.0 ** rng.uniform(-10, 10)
    kind = rng.integers(5)
    if kind == 0:
        return rng.choice([-1, 1], 8) * 10.0 ** rng.uniform(-10, 10, 8)
    if kind == 1:  # at the edge of rounding
        return size * np.array([1.0, 1 + 2.0**-52, 1 - 2.0**-53, 1 + 1e-10, 1.0])
    if kind == 2:  # one large loss
        return np.array([0.0, 0.0, 0.05, -0.05, 0.0, -(10.0 ** rng.uniform(5, 10))])
    if kind == 3:  # near 0
        return np.array([0.0, 0.0, 0.0, 5e-324, 1e-300, -1e-300, size, -size])
    return size * rng.integers(-2, 3, 6)


def hostile_row(rng: np.random.Generator, size: int) -> np.ndarray:
    """Probabilities, some of them tiny."""
    row = rng.dirichlet(np.ones(size))
    row[1:] *= np.where(rng.random(size - 1) < 0.4, 10.0 ** rng.uniform(-300, 0, size - 1), 1.0)
    row[1:] *= rng.random(size - 1) < 0.8
    return row / row.sum()


def hostile_model(rng: np.random.Generator) -> Ending:
    """State 0, a layer of two states (or two layers), and two or three that stay for ever."""
    layers, pays, scenarios, actions = int(rng.integers(1, 3)), int(rng.integers(2, 4)), int(rng.integers(2, 4)), 2
    size, sharing = 1 + 2 * layers + pays, SHARINGS[rng.integers(3)]
    stays = range(size - pays, size)
    p = np.stack([hostile_row(rng, scenarios) for _ in range(size)])
    p = p[np.zeros(size, int)] if sharing == "time" else p
    amounts = hostile_amounts(rng)
    R, N = rng.choice(amounts, size=(size, scenarios, actions)), np.zeros((size, scenarios, actions), int)
    for s in range(stays.start):
        first = 1 if s == 0 else 3 if s < 3 else 5
        N[s] = rng.integers(first, min(first + 3, size) if first < stays.start else size, size=N[s].shape)
    R[0, 0, 0] = amounts[-1]  # a model whose every reward is about 1e-300 is refused, and told to be rescaled
    paid = rng.choice(np.append(amounts, np.zeros(4)), pays)
    for s, c in zip(stays, paid, strict=True):
        N[s], R[s] = s, c
    pi = np.stack([hostile_row(rng, actions) for _ in range(size)])
    g = rng.choice([0.5, 0.9, 0.999, 1 - 1e-6, 1 - 1e-9])
    case = RandomModel(p, R, N, float(g), pi, sharing, None)
    return Ending(case, layers + 1, dict(zip(stays, map(float, paid), strict=True)))


def check_hostile(made: Ending, *, asks: bool = True) -> None:
    """Laws and moments hold the truth, and where one `asks` so do the answers made of both, which take longest."""
    case = made.case
    shaped = padded(case, 8, 3, 2)  # one shape is compiled for once
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jm.errors.ConvergenceWarning)  # moments so wide are certified all the same
        solution = jm.evaluate(build(shaped), shaped.policy)
    truth = exact_law(case, 0, 0, 1, made.steps, made.pay)
    gap = Stoppable(build(case), case.policy)
    for points in (8, 64):
        law = gap.on(points)
        check(law, truth, merges=points == 64)
        found = replace(law, mean_interval=solution.gap(0, 0, 1).mean_interval)
        for alpha in (0.05, 0.5):
            assert found.cvar(alpha).lower <= truth.cvar(alpha) <= found.cvar(alpha).upper
    known = solution.gap(0, 0, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jm.errors.ConvergenceWarning)
        answers = [*signs_of(known), known.quantile(0.5), known.cvar(0.1)] if asks else []
    exact = [*truth.signs, truth.quantile(0.5), truth.cvar(0.1)]
    for found, value in zip(answers, exact if asks else [], strict=True):
        assert found.lower <= value <= found.upper, (found, float(value))
    variance = sum((z - truth.mean) ** 2 * p for z, p in zip(truth.values, truth.chances, strict=True))
    assert known.mean_interval.lower <= truth.mean <= known.mean_interval.upper
    assert known.variance_interval.lower <= variance <= known.variance_interval.upper


@pytest.mark.parametrize("seed", range(3))
def test_some_hostile_models(seed: int) -> None:
    check_hostile(hostile_model(np.random.default_rng(seed)))


@pytest.mark.slow
@pytest.mark.parametrize("block", slow_or_long(range(20), 1))
def test_a_thousand_hostile_models(block: int) -> None:
    for seed in range(50 * block, 50 * (block + 1)):
        check_hostile(hostile_model(np.random.default_rng(1000 + seed)), asks=seed % 10 == 0)


# -- futures that never end ------------------------------------------------------------------------------------


def first_steps(case: RandomModel, steps: int) -> tuple[ExactLaw, Fraction]:
    """The law of what the first steps pay, and how much what follows can change it."""
    paid = case.rewards[np.broadcast_to(case.probabilities[:, :, None] > 0, case.rewards.shape)]
    g, most = Fraction(case.discount), Fraction(float(paid.max())) - Fraction(float(paid.min()))
    return exact_law(case, 0, 0, 1, steps), g**steps * most / (1 - g)


def check_recurrent(rng: np.random.Generator) -> None:
    sharing = SHARINGS[rng.integers(3)]
    p = np.stack([hostile_row(rng, 2) for _ in range(3)])
    p = p[np.zeros(3, int)] if sharing == "time" else p
    pi = np.eye(2)[rng.integers(2, size=3)] if rng.random() < 0.5 else np.stack([hostile_row(rng, 2) for _ in range(3)])
    R, N = rng.choice(hostile_amounts(rng), size=(3, 2, 2)), rng.integers(0, 3, (3, 2, 2))
    case = RandomModel(p, R, N, float(rng.choice([0.1, 0.25])), pi, sharing, None)
    truth, off = first_steps(case, 3 if sharing == "none" else 5)
    gap = Stoppable(build(case), case.policy)
    for points in (8, 64, 200):
        law = gap.on(points)
        for t in [0.0, *(float(truth.values[i]) for i in np.linspace(0, len(truth.values) - 1, 7).astype(int))]:
            found = law.cdf(t)
            assert found.lower <= truth.cdf(Fraction(t) + off)
            assert found.upper >= truth.below(Fraction(t) - off)
            loss = law.stop_loss(t)
            assert loss.lower <= truth.stop_loss(t) + off
            assert loss.upper >= truth.stop_loss(t) - off
        for q in (0.05, 0.5, 0.9):
            assert law.quantile(q).lower <= truth.quantile(q) + off
            assert law.quantile(q).upper >= truth.quantile(q) - off
            assert law.cvar(q).lower <= truth.cvar(q) + off
            assert law.cvar(q).upper >= truth.cvar(q) - off
        assert law.superiority().lower <= (1 - truth.below(-off) if off else 1 - truth.cdf(0))
        assert law.superiority().upper >= 1 - truth.cdf(off)
        assert law.support.lower <= truth.values[0] + off
        assert law.support.upper >= truth.values[-1] - off


@pytest.mark.parametrize("seed", range(4))
def test_some_hostile_futures_that_never_end(seed: int) -> None:
    check_recurrent(np.random.default_rng(seed))


@pytest.mark.long
@pytest.mark.parametrize("block", range(6))
def test_many_hostile_futures_that_never_end(block: int) -> None:
    for seed in range(30 * block, 30 * (block + 1)):
        check_recurrent(np.random.default_rng(1000 + seed))
