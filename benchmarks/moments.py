"""Moments of higher order: what all pairs up to order 4 cost, beside order 2, and how the cost grows."""

import time

import numpy as np

import jointmdp as jm
from benchmarks.timing import medians


def main() -> None:
    print("\nMoments of higher order (aim: at 50×50 order 4 for all pairs within 6 times order 2)")
    print(f"{'model':<22}{'order 2':>10}{'order 4':>10}{'ratio':>8}{'sweeps':>14}{'certified / σ⁴':>18}")
    for size in (30, 50):
        model, policy = jm.envs.windy_gridworld(size)
        for sharing in ("state", "time"):
            measure(model.with_sharing(sharing), policy, f"{size}×{size} {sharing}", 5 if size < 50 else 1)
    model, policy = jm.envs.inventory()
    print(f"{'inventory, order':<22}" + "".join(f"{order:>10}" for order in (2, 4, 6, 8, 12)))
    line = ""
    for order in (2, 4, 6, 8, 12):
        jm.evaluate(model, policy, order=order)
        start = time.perf_counter()
        jm.evaluate(model, policy, order=order)
        line += f"{time.perf_counter() - start:>9.2f}s"
    print(f"{'':<22}{line}", flush=True)


def measure(model: jm.JointMDP, policy: np.ndarray, name: str, repeats: int) -> None:
    """One line: interleaved medians of both orders, and the worst bound among the gaps of the first column."""
    solved: dict[int, jm.results.Solution] = {}

    def solve(order: int) -> None:
        solved[order] = jm.evaluate(model, policy, order=order)

    found = medians(repeats, second=lambda: solve(2), fourth=lambda: solve(4))
    second, fourth = solved[2], solved[4]
    size = int(model.num_states**0.5)
    gaps = [fourth.gap(s, 0, 1) for s in range(0, model.num_states, size)]
    std = max(gap.std for gap in gaps)
    worst = max(gap.central_moment_error(4) for gap in gaps) / std**4 if std > 0 else float("nan")
    print(
        f"{name:<22}{found['second']:>9.2f}s{found['fourth']:>9.2f}s{found['fourth'] / found['second']:>7.1f}×"
        f"{f'{second.steps}, {fourth.steps}':>14}{worst:>18.1e}",
        flush=True,
    )
