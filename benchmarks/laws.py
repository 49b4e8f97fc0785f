"""Certified laws: seconds to a width, beside the simulation that would reach the same width with 99 % confidence."""

import time
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
    model, policy = jm.windy_gridworld(10, discount=discount)
    solution = jm.evaluate(model, policy)
    start = time.perf_counter()
    signs = solution.signs(tolerance=TOLERANCE)
    seconds = time.perf_counter() - start
    lower, upper = signs.better
    pairs = [(s, a, b) for s in range(model.num_states) for a in range(4) for b in range(a + 1, 4)]
    jm.simulate_gap(model, policy, 0, 0, 1, num_samples=TRIAL)
    begin = time.perf_counter()
    jm.simulate_gap(model, policy, 0, 0, 1, num_samples=TRIAL)
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


def scattered(seed: int, sharing: str) -> None:
    """One gap of a model whose rewards have no lattice."""
    rng = np.random.default_rng(seed)
    S, W, A = 25, 3, 3
    chances = rng.dirichlet(np.ones(W), size=S)
    if sharing == "time":
        chances = np.broadcast_to(chances[0], chances.shape)
    model = jm.JointMDP(chances, rng.normal(size=(S, W, A)), rng.integers(0, S, (S, W, A)), 0.9, sharing)
    policy = rng.dirichlet(np.ones(A), size=S)
    gap = jm.evaluate(model, policy).gap(0, 0, 1)
    start = time.perf_counter()
    better = gap.superiority(tolerance=0.01)
    tail = gap.cvar(0.05, tolerance=1e-3)
    seconds = time.perf_counter() - start
    jm.simulate_gap(model, policy, 0, 0, 1, num_samples=TRIAL)
    begin = time.perf_counter()
    sample = jm.simulate_gap(model, policy, 0, 0, 1, num_samples=TRIAL)
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


def main() -> None:
    print("\nCertified laws of gaps, compilation included")
    for discount in (0.95, 0.99):
        grid(discount)
    for i, sharing in enumerate(("state", "time", "none")):
        scattered(i, sharing)
