"""Bounds by the characteristic function: its sums against their definitions, its chains against exact laws, its twins.

That whole laws hold exact ones stands in `test_laws`.
"""

import itertools
from typing import Any

import numpy as np
import pytest
from oracle_law import exact_law
from test_laws import LATTICE, MEMORY, SPARSE, Stoppable, check, continuous, ending
from zoo import SHARINGS, build

import jointmdp as jm
from jointmdp.exact.bellman.pair_sweep import has_numba
from jointmdp.exact.law import characteristic
from jointmdp.exact.law.pair_graph import GapBranches, reached_pairs
from jointmdp.exact.law.refinement import Refinement
from jointmdp.ground.limits import OutOfTimeError, never

pytestmark = pytest.mark.optimised


@pytest.mark.parametrize(("discount", "highest", "window"), [(0.95, 30.0, 8.0), (0.5, 10.0, 3.0), (0.99, 90.0, 5.0)])
def test_the_sums_bound_what_they_stand_for(discount: float, highest: float, window: float) -> None:
    """Beurling's inequality and Jensen's at points of their own, between those of the grid too."""
    rate = -np.log(discount)
    chains = int(np.ceil(characteristic.FINEST * window * highest * rate / np.pi))
    steps = int(np.ceil(np.log(highest * window / characteristic.FIRST) / rate))
    kernel = characteristic._kernel(discount, chains, steps, highest * window)
    rng = np.random.default_rng(0)
    x = np.sort(np.append(rng.uniform(0, highest * window, 4000), rng.exponential(3.0, 4000) % (highest * window)))
    waves = np.exp(1j * np.outer(x, kernel.frequencies))
    H, K = waves.imag @ kernel.odd + kernel.slope * x, waves.real @ kernel.even
    assert np.all(np.abs(1 - H) <= K + 2 * kernel.miss)
    assert np.all(np.abs(-1 + H) <= K + 2 * kernel.miss)  # the other side: H is odd, K is even
    assert kernel.miss < 2e-3
    np.testing.assert_allclose(K, np.sinc(x / (2 * np.pi)) ** 2, rtol=0, atol=4e-3)
    away = kernel.constant + kernel.square * x**2 - waves.real @ kernel.bent
    starts, excess = kernel.excess
    over = excess[np.searchsorted(starts, x, side="right") - 1]
    assert np.all(x - kernel.lack <= away)
    assert np.all(away <= x + over)
    assert np.all(np.diff(excess) <= 0)
    y = np.arange(0.0005, 2000, 0.001)  # the density of Bohman's law, up to a factor
    density = (np.cos(y / 2) / (np.pi**2 - y**2)) ** 2
    assert kernel.constant - kernel.bent.sum() == pytest.approx(density @ y / density.sum(), abs=2e-3)


@pytest.mark.parametrize("sharing", SHARINGS)
def test_it_is_that_of_the_exact_law(sharing: str) -> None:
    for place, discount in enumerate((0.3, 0.9, 0.99)):
        made = ending(200 + place, sharing, discount, continuous(place))
        truth = exact_law(made.case, 0, 0, 1, made.steps, made.pay)
        values, chances = (np.array([float(x) for x in column]) for column in (truth.values, truth.chances))
        chains = Stoppable(build(made.case), made.case.policy).refinement.chains
        kernel, [phi], off = chains.spectrum(20.0, 5.0, never, lambda _: None)
        exact = np.exp(1j * np.outer(20.0 * kernel.frequencies, values)) @ chances
        assert np.all(np.abs(phi - exact) <= off + 1e-12)
        assert off.max() < 1e-3
        lam, logs = chains.exponents(never)
        for log, sign in zip(logs[:, 0], (1, -1), strict=True):
            bound = np.log(np.exp(sign * np.outer(lam, values)) @ chances)
            assert np.all(log >= bound - 1e-12)
            assert np.min(log - bound) < 0.1
        square = float(chances @ values**2)
        assert abs(chains.squares[0] - square) <= chains.square_error + 1e-12 * square
        [still] = chains.unchanged(never)
        assert still.lower <= truth.level <= still.upper


def endless(seed: int, sharing: str, outcomes: int, discount: float = 0.9) -> tuple[jm.JointMDP, np.ndarray]:
    """Five states that go on for ever, and a policy that draws."""
    rng = np.random.default_rng(seed)
    chances = rng.dirichlet(np.ones(outcomes), size=5)
    if sharing == "time":
        chances = np.broadcast_to(chances[0], chances.shape)
    model = jm.JointMDP(
        chances, rng.normal(size=(5, outcomes, 2)), rng.integers(0, 5, (5, outcomes, 2)), discount, sharing
    )
    return model, rng.dirichlet(np.ones(2), size=5)


@pytest.mark.parametrize("outcomes", [2, 7])  # with 7, pairs without shared noise move one branch after the other
@pytest.mark.parametrize("sharing", SHARINGS)
def test_points_and_frequencies_agree(sharing: str, outcomes: int) -> None:
    """Two ways to bounds that share no step; both hold the truth, so they meet everywhere, and neither says nothing."""
    gap = Stoppable(*endless(3, sharing, outcomes))
    assert gap.refinement.graph.is_half.any() == (sharing != "time" and outcomes == 7)
    points, waves = gap.on(64), gap.up_to(40)
    mean, spread = gap.refinement.means.mean[0], gap.refinement.means.spread[0]
    asks = [(f"cdf {t}", lambda law, t=t: law.cdf(t), 0.2) for t in mean + spread * np.linspace(-4, 4, 33)]
    asks += [(f"quantile {q}", lambda law, q=q: law.quantile(q), spread) for q in (0.02, 0.5, 0.9)]
    asks += [(f"cvar {a}", lambda law, a=a: law.cvar(a), 0.1 * spread) for a in (0.02, 0.3, 0.95)]
    for name, ask, widest in asks:
        one, other = ask(points), ask(waves)
        assert max(one.lower, other.lower) <= min(one.upper, other.upper), (name, one, other)
        assert other.width <= widest, (name, other)


@pytest.mark.skipif(not has_numba(), reason="there is no Numba")
@pytest.mark.parametrize("sharing", ["none", "state"])
def test_compiled_products_are_those_of_the_others(sharing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chains = Stoppable(*endless(4, sharing, 7)).refinement.chains
    found = []
    for worth in (10**30, 0):
        monkeypatch.setattr(characteristic, "WORTH_COMPILING", worth)
        found.append([chains.spectrum(30.0, 9.0, never, lambda _: None)[1], *chains.exponents(never)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-11)


def test_a_mean_that_is_large_beside_the_spread() -> None:
    """Exponentials of it vanish; what stands for them must stay an upper bound."""
    model, policy = endless(5, "state", 2, 0.01)
    far = jm.JointMDP(model.probabilities, model.rewards * 1e-3 - np.array([0.0, 1e6]), model.successors, 0.01, "state")
    law = Stoppable(far, policy).up_to(10)
    low, high = law.support
    for t in np.linspace(low - 1, high + 1, 41).tolist():
        found = law.cdf(t)
        assert found.lower <= float(t >= low) or t >= low
        assert found.upper >= float(t >= high)
    assert law.superiority() == (1.0, 1.0)


def test_time_may_end_while_it_is_computed() -> None:
    model, policy = endless(6, "state", 3)
    law = np.asarray(policy)
    graph = reached_pairs(GapBranches(model, law, law, can_merge=True), [(0, 0, 1)], MEMORY, never)
    refinement, clock = Refinement(graph, None), itertools.count()

    def is_over() -> bool:
        return next(clock) >= 50

    with pytest.raises(OutOfTimeError):
        refinement.transform(30, is_over, lambda _: None)
    whole, other = (each.transform(30, never, lambda _: None) for each in (refinement, Refinement(graph, None)))
    assert np.array_equal(whole[0].phi, other[0].phi)


def lot_sizes(states: int = 60, discount: float = 0.95) -> tuple[jm.JointMDP, Any]:
    """Orders come in lots of 20, up to two a day, and are placed below 15; sales that are missed are lost."""
    stock, demand, lots = np.ogrid[:states, :12, :3]
    chances = np.exp(-((np.arange(12) - 5.0) ** 2) / 8)
    have = np.minimum(stock + 20 * lots, states - 1)
    sold = np.minimum(have, demand)
    rewards = 5.0 * sold - 0.1 * (have - sold) - 10.0 * (lots > 0) - 2.0 * (have - stock) - (demand - sold)
    return jm.JointMDP(np.tile(chances / chances.sum(), (states, 1)), rewards, have - sold, discount, "time"), 2 * (
        np.arange(states) < 15
    )


@pytest.mark.slow
def test_questions_about_an_inventory_share_their_work() -> None:
    gap = jm.evaluate(*lot_sizes()).gap(30, 1, 0)
    found = gap.superiority(simulate=True)
    assert found.status.is_success
    assert found.width <= 0.01
    assert max(found.lower, found.simulated.lower) <= min(found.upper, found.simulated.upper)
    law = gap.law()
    assert law.status.is_success
    assert law.frequencies > 0
    assert law.estimate.probabilities @ law.estimate.values == pytest.approx(law.mean)
    tail = gap.cvar(0.05, simulate=True)
    assert tail.width <= 0.01 * gap.std
    assert max(tail.lower, tail.simulated.lower) <= min(tail.upper, tail.simulated.upper)


def hold_exact_laws(seeds: range) -> int:
    """Random models with futures that end, of all scales and discounts: how many levels held their exact laws."""
    levels = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        discount, sharing = float(rng.choice([0.01, 0.1, 0.5, 0.9, 0.99, 0.999])), SHARINGS[seed % 3]
        scattered = rng.normal(size=60) * 10.0 ** rng.integers(-3, 4, 60)
        amounts = (LATTICE, SPARSE, scattered)[rng.integers(3)]
        scale = 2.0 ** int(rng.integers(-40, 40))
        pays = ((0.0, 0.0), (0.0, 1.0), (-1.0, 1.0), (2.0, 2.0))[rng.integers(4)]
        scaled, plain = tuple(pay * scale for pay in pays), bool(rng.integers(2))
        made = ending(seed, sharing, discount, amounts * scale, pays=scaled, deterministic=plain)
        truth = exact_law(made.case, 0, 0, 1, made.steps, made.pay)
        gap = Stoppable(build(made.case), made.case.policy)
        size = float(max(abs(truth.values[0]), abs(truth.values[-1])))
        if len(truth.values) > 20_000 or not gap.refinement.means.spread[0] > 1e-9 * size:
            continue
        for highest in (8, 30, 100):
            check(gap.up_to(highest), truth)
            levels += 1
    return levels


@pytest.mark.parametrize(
    "block", [pytest.param(i, marks=pytest.mark.long if i else pytest.mark.slow) for i in range(100)]
)
def test_exact_laws_are_held(block: int) -> None:
    assert hold_exact_laws(range(24 * block, 24 * (block + 1))) > 10
