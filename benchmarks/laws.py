"""Certified laws: seconds to a width, beside the simulation that would reach the same width with 99 % confidence."""

import math
import sys
import time
import warnings
from collections.abc import Callable
from statistics import NormalDist

import numpy as np

import jointmdp as jm

CONFIDENCE = 0.99
Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
TOLERANCE = 1e-3
TRIAL = 20_000  # simulated pairs of the trial run whose speed is measured


def samples_for(width: float, chance: float) -> float:
    """Simulated pairs for an interval of this width around a probability (normal approximation)."""
    return max(chance * (1 - chance), width / 4) * (2 * Z / width) ** 2


def grid(discount: float) -> None:
    """All same-state pairs of the 10×10 gridworld."""
    model, policy = jm.envs.windy_gridworld(10, discount=discount)
    solution = jm.evaluate(model, policy)
    start = time.perf_counter()
    signs = solution.signs(tolerance=TOLERANCE)
    seconds = time.perf_counter() - start
    lower, upper = signs.better
    pairs = [(s, a, b) for s in range(model.num_states) for a in range(4) for b in range(a + 1, 4)]
    jm.simulate(model, policy, 0, [0, 1], num_samples=TRIAL, gaps_only=True).gap(0, 1)
    begin = time.perf_counter()
    jm.simulate(model, policy, 0, [0, 1], num_samples=TRIAL, gaps_only=True).gap(0, 1)
    each = (time.perf_counter() - begin) / TRIAL
    needed = sum(samples_for(TOLERANCE, (lower[p] + upper[p]) / 2) for p in pairs)
    aim = ", aim 30 s" if discount == 0.95 else ""
    print(
        f"10×10 gridworld, γ={discount}, all {len(pairs)} pairs: {seconds:.1f} s{aim}; "
        f"widest P(better) {signs.width:.1e}. Simulating each to a width of {TOLERANCE:g} with {CONFIDENCE:.0%} "
        f"confidence: {needed:.1e} pairs, about "
        f"{needed * each:,.0f} s, {needed * each / seconds:,.0f} times as long",
        flush=True,
    )


def patternless(seed: int, S: int, sharing: str) -> tuple[jm.JointMDP, np.ndarray]:
    """A model whose rewards have no lattice, three scenarios and three actions, and a policy that draws."""
    rng = np.random.default_rng(seed)
    chances = rng.dirichlet(np.ones(3), size=S)
    if sharing == "time":
        chances = np.broadcast_to(chances[0], chances.shape)
    model = jm.JointMDP(chances, rng.normal(size=(S, 3, 3)), rng.integers(0, S, (S, 3, 3)), 0.9, sharing)
    return model, rng.dirichlet(np.ones(3), size=S)


def scattered(seed: int, sharing: str) -> None:
    """One gap of a model whose rewards have no lattice."""
    model, policy = patternless(seed, 25, sharing)
    gap = jm.evaluate(model, policy).gap(0, 0, 1)
    start = time.perf_counter()
    better = gap.superiority(tolerance=0.01)
    tail = gap.cvar(0.05, tolerance=1e-3)
    seconds = time.perf_counter() - start
    jm.simulate(model, policy, 0, [0, 1], num_samples=TRIAL, gaps_only=True).gap(0, 1)
    begin = time.perf_counter()
    sample = jm.simulate(model, policy, 0, [0, 1], num_samples=TRIAL, gaps_only=True).gap(0, 1)
    each = (time.perf_counter() - begin) / TRIAL
    # The mean of the lowest 5 % varies like the mean of max(q − G, 0)/5 %.
    q = np.quantile(sample.gaps, 0.05)
    spread = float(np.std(np.maximum(q - sample.gaps, 0)) / 0.05)
    for_tail = (2 * Z * spread / max(tail.width, 1e-12)) ** 2
    needed = max(samples_for(better.width, better.middle), for_tail)
    print(
        f'random S=25, W=3, A=3, γ=0.9, "{sharing}": {seconds:.1f} s (aim 60); P(better) {better.width:.4f} wide (aim '
        f"0.01), CVaR 5 % {tail.width / gap.std:.5f} standard deviations (aim 0.001); simulating to these widths with "
        f"{CONFIDENCE:.0%} confidence: {needed:.1e} pairs, about {needed * each:,.0f} s, "
        f"{needed * each / seconds:,.0f} times as long",
        flush=True,
    )


def lead_time_shop() -> tuple[jm.JointMDP, np.ndarray]:
    """Up to 13 in stock, up to 4 on their way, 0 to 10 asked for a day; order up to 8."""
    stock, way, demand, orders = np.ogrid[:14, :5, :11, :5]
    have = np.minimum(stock + way, 13)
    sold = np.minimum(have, demand)
    left = have - sold
    rewards = np.broadcast_to(5.0 * sold - left - 2.0 * orders - 4.0 * (demand - sold), (14, 5, 11, 5))
    successors = np.broadcast_to(left * 5 + orders, (14, 5, 11, 5))
    chances = np.array([2, 5, 10, 15, 18, 18, 14, 9, 5, 3, 1]) / 100
    model = jm.JointMDP(
        np.tile(chances, (70, 1)), rewards.reshape(70, 11, 5), successors.reshape(70, 11, 5), 0.95, "time"
    )
    return model, np.clip(8 - (stock + way).ravel(), 0, 4)


def die(sharing: str) -> tuple[jm.JointMDP, list[int]]:
    """Knuth's and Yao's die from coins: 15 states; the two actions read the coin in opposite ways."""
    tosses = [[1, 2], [3, 4], [5, 6], [1, 7], [8, 9], [10, 11], [12, 2]]
    successors = np.tile(np.arange(15)[:, None, None], (1, 2, 2))
    for s, pair in enumerate(tosses):
        successors[s, :, 0], successors[s, :, 1] = pair, pair[::-1]
    rewards = np.zeros((15, 2, 2))
    rewards[7:13], successors[7:13] = np.arange(1, 7)[:, None, None], 13
    return jm.JointMDP(np.full((15, 2), 0.5), rewards, successors, 0.99, sharing), [0] * 15


def lot_sizes(states: int, discount: float) -> tuple[jm.JointMDP, np.ndarray]:
    """Lots of 10, up to ten of them a day; five are ordered below 8, so that sales are missed now and then."""
    stock, demand, lots = np.ogrid[:states, :21, :11]
    chances = np.array([8.0**d / math.factorial(d) for d in range(21)])
    have = np.minimum(stock + 10 * lots, states - 1)
    sold = np.minimum(have, demand)
    rewards = 5.0 * sold - 0.1 * (have - sold) - 10.0 * (lots > 0) - 2.0 * (have - stock) - (demand - sold)
    chances = np.tile(chances / chances.sum(), (states, 1))
    return jm.JointMDP(chances, rewards, have - sold, discount, "time"), 5 * (np.arange(states) < 8)


def lead_times(discount: float) -> tuple[jm.JointMDP, np.ndarray]:
    """1,316 states: up to 93 in stock and 13 on their way; 13 are ordered where both are below 12."""
    stock, way, demand, orders = np.ogrid[:94, :14, :17, :14]
    chances = np.array([6.0**d / math.factorial(d) for d in range(17)])
    have = np.minimum(stock + way, 93)
    sold = np.minimum(have, demand)
    left = have - sold
    rewards = 5.0 * sold - 0.5 * left - 2.0 * orders - 3.0 * (orders > 0) - 4.0 * (demand - sold)
    rewards, successors = (
        np.broadcast_to(x, (94, 14, 17, 14)).reshape(1316, 17, 14) for x in (rewards, left * 14 + orders)
    )
    model = jm.JointMDP(np.tile(chances / chances.sum(), (1316, 1)), rewards, successors, discount, "time")
    return model, np.where((stock + way).ravel() < 12, 13, 0)


def inventories() -> None:
    """First and second question about inventories, beside simulation to the width of the first answer."""
    for name, made, place in (
        ("lot sizes, 200 states, γ=0.95", lot_sizes(200, 0.95), (50, 3, 0)),
        ("lot sizes, 200 states, γ=0.99", lot_sizes(200, 0.99), (50, 3, 0)),
        ("lead times, 1,316 states, γ=0.95", lead_times(0.95), (423, 8, 2)),
        ("lead times, 1,316 states, γ=0.99", lead_times(0.99), (423, 8, 2)),
    ):
        gap = jm.evaluate(*made).gap(*place)
        times = [time.perf_counter()]
        found = gap.superiority()
        times.append(time.perf_counter())
        tail, tie = gap.cvar(0.05), gap.tie()
        times.append(time.perf_counter())
        model, policy = made
        jm.simulate(model, policy, place[0], place[1:], num_samples=TRIAL, gaps_only=True).gap(*place[1:])
        begin = time.perf_counter()
        sample = jm.simulate(model, policy, place[0], place[1:], num_samples=TRIAL, gaps_only=True).gap(*place[1:])
        each = (time.perf_counter() - begin) / TRIAL
        simulated = samples_for(max(found.width, 1e-6), found.middle) * each
        first, second = np.diff(times)
        print(
            f"{name}: P(better) {found:.4f} in {first:.1f} s, simulated {sample.superiority():.4f} (95 %); simulating "
            f"to that width with {CONFIDENCE:.0%} confidence {simulated:.1f} s. Then CVaR 5 % {tail:.3f} "
            f"({tail.width / gap.std:.4f} standard deviations wide) and a tie {tie:.4f} in {second:.1f} s",
            flush=True,
        )


def first_calls() -> None:
    """Seconds of first calls, each on a solution of its own."""
    shop = jm.evaluate(*lead_time_shop())
    coins = {sharing: jm.evaluate(*die(sharing)) for sharing in ("state", "time", "none")}
    windy, orders = jm.evaluate(*jm.envs.windy_gridworld(5, discount=0.95)), jm.evaluate(*jm.envs.inventory())
    calls: list[tuple[str, float | None, Callable[[], object]]] = [
        ("lead-time shop, superiority to 0.01", 3, lambda: shop.gap(30, 3, 1).superiority()),
        ("lead-time shop, signs of all 70 states", 60, shop.signs),
        *((f"die, {name}", 3, lambda coin=coin: coin.gap(0, 0, 1).superiority()) for name, coin in coins.items()),
        ("law of the page on laws, windy 5×5", None, windy.gap("(0,0)", "R", "U").law),
        (
            "laws of the demo, order 4 against four others",
            None,
            lambda: [orders.gap(4, 4, b).law() for b in (0, 1, 2, 3)],
        ),
    ]
    for name, aim, call in calls:
        start = time.perf_counter()
        call()
        print(f"{name}: {time.perf_counter() - start:.2f} s" + (f" (aim {aim})" if aim else ""), flush=True)


def layered(width: int, layers: int = 10) -> jm.JointMDP:
    """`layers` layers of `width` states, one after the other: width² · layers pairs under independent noise."""
    rng = np.random.default_rng(width)
    size = 1 + layers * width
    first = 1 + np.minimum(np.arange(size + width - 1) // width, layers - 1)[width - 1 :] * width
    successors = first[:, None, None] + rng.integers(0, width, (size, 2, 2))
    return jm.JointMDP(np.full((size, 2), 0.5), rng.normal(size=(size, 2, 2)), successors, 0.9, "state")


def by_pairs() -> None:
    """Cost against reached pairs, and beside simulation to the same width, in one run."""
    rows = []
    for width in (5, 16, 50, 280):
        model = layered(width)
        solution = jm.evaluate(model, [0] * model.num_states)
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", jm.errors.ConvergenceWarning)
            law = solution.gap(0, 0, 1).law(tolerance=0.05, limits=jm.Limits(seconds=120, memory=2**32))
        seconds = time.perf_counter() - start
        jm.simulate(model, solution.policy, 0, [0, 1], num_samples=TRIAL, gaps_only=True).gap(0, 1)
        begin = time.perf_counter()
        jm.simulate(model, solution.policy, 0, [0, 1], num_samples=TRIAL, gaps_only=True).gap(0, 1)
        each = (time.perf_counter() - begin) / TRIAL
        found = law.superiority()
        simulated = samples_for(max(found.width, 1e-9), found.middle) * each
        rows.append((law.pairs, seconds, simulated))
        print(
            f"{law.pairs:,} pairs: {seconds:.2f} s, P(better) {found.width:.1e} wide; simulating to that width takes "
            f"{simulated / seconds:.2g} times as long",
            flush=True,
        )
    if "--figure" in sys.argv:
        draw(rows, sys.argv[sys.argv.index("--figure") + 1])


def draw(rows: list[tuple[int, float, float]], path: str) -> None:
    """Seconds against pairs."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    pairs, seconds, simulated = zip(*rows, strict=True)
    axes.loglog(pairs, seconds, "o-", label="certified law")
    axes.loglog(pairs, simulated, "x:", label=f"simulating to the same width, {CONFIDENCE:.0%} confidence")
    axes.set(xlabel="reached pairs of states", ylabel="seconds", title="P(better) in layers of random rewards")
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=120, metadata={"Software": None})


def main() -> None:
    print("\nCertified laws of gaps")
    first_calls()
    inventories()
    by_pairs()
    for discount in (0.95, 0.99):
        grid(discount)
    for i, sharing in enumerate(("state", "time", "none")):
        scattered(i, sharing)
