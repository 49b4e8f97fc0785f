"""Pairs of branches simulated at scale: pairs × steps a second, on JAX's default device and over worker processes.

All are whole calls of `simulate(…, gaps_only=True)`, the second of two, so that compilation is left out and all else
counts: the draws, merging, the running sums and the answer. A pair that has merged takes no more steps but is counted
as if it did, since that is what a user is saved.
"""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp

import jointmdp as jm

HORIZON = 200


def shop() -> jm.JaxSimulator:
    """A shop with Poisson demand, by inversion of one uniform."""

    def day(key: jax.Array, stock: jax.Array, order: jax.Array) -> tuple[jax.Array, jax.Array]:
        u = jax.random.uniform(key)
        demand = jnp.sum(u > jax.scipy.stats.poisson.cdf(jnp.arange(12), 3.0))
        sold = jnp.minimum(stock + order, demand)
        return 5.0 * sold - 2.0 * order - 0.5 * (stock + order - sold), stock + order - sold

    return jm.JaxSimulator(day, lambda key: 4, actions=6, available=lambda s: jnp.arange(6) <= 8 - s, discount=0.99)


def measure(name: str, pairs: int, run: Callable[[int, int], object]) -> None:
    run(pairs, 0)
    start = time.perf_counter()
    run(pairs, 1)
    seconds = time.perf_counter() - start
    print(f"{name:<46}{pairs:>10,}{seconds:>10.2f} s{pairs * HORIZON / seconds / 1e6:>12.1f}", flush=True)


def main() -> None:
    device = jax.devices()[0].device_kind
    print(f"\nPairs simulated for {HORIZON} steps on {device}")
    print(f"{'model':<46}{'pairs':>10}{'time':>12}{'million pairs × steps a second':>32}")
    model, policy = jm.envs.windy_gridworld(50)
    simulator = shop()
    many = 1_000_000 if jax.default_backend() == "gpu" else 20_000
    for size in (many // 10, many):
        measure(
            "table: windy gridworld 50×50",
            size,
            lambda n, seed: jm.simulate(
                model, policy, 0, [0, 1], num_samples=n, seed=seed, horizon=HORIZON, gaps_only=True
            ).gap(0, 1),
        )
        measure(
            "JAX: a shop",
            size,
            lambda n, seed: jm.simulate(
                simulator, "uniform", 4, [3, 1], num_samples=n, seed=seed, horizon=HORIZON, gaps_only=True
            ).gap(3, 1),
        )
    if jax.default_backend() != "gpu":
        measure(
            "JAX: a shop, two worker processes",
            many,
            lambda n, seed: jm.simulate(
                simulator,
                "uniform",
                4,
                [3, 1],
                num_samples=n,
                seed=seed,
                horizon=HORIZON,
                executor="processes",
                gaps_only=True,
            ).gap(3, 1),
        )
