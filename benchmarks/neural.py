"""Networks against exact solutions, block by block, and how quickly they train.

Errors are root mean squares over all states and actions, in the size of their block: means at least in standard
deviations of a return, covariances of two actions at least in variances. Aims: 1 % with one-hot inputs and no hidden
layer, 5 % with hidden layers. ``python -m benchmarks neural --small`` runs one model for a few seconds.
"""

from __future__ import annotations

import math
import sys
import time
from typing import Any

import jax
import numpy as np

import jointmdp as jm

SIZES: dict[str, dict[str, Any]] = {
    "one-hot": {"hidden": (), "learning_rate": 1e-2, "target_rate": 0.05, "rank": 32},
    "hidden": {"hidden": (256, 256), "learning_rate": 1e-3, "target_rate": 0.05, "rank": 32},
}
RUN = {"batch": 1024, "networks": 3}
SMALL = {"batch": 256, "networks": 2}


def random_model(seed: int, sharing: Any) -> tuple[jm.JointMDP, np.ndarray]:
    """Six states, four actions and scenarios, negative rewards, branches that meet, a stochastic policy."""
    rng = np.random.default_rng(seed)
    chances = rng.dirichlet(np.ones(4), size=6)
    chances = np.repeat(chances[:1], 6, axis=0) if sharing == "time" else chances
    rewards, successors = rng.uniform(-1.5, 1.5, (6, 4, 4)), rng.integers(6, size=(6, 4, 4))
    successors = np.where(rng.random((6, 4, 1)) < 0.3, successors[:, :, :1], successors)
    return jm.JointMDP(chances, rewards, successors, 0.9, sharing), rng.dirichlet(np.ones(4), size=6)


def models() -> dict[str, tuple[Any, Any]]:
    """What is trained on: the paper's two models, and random ones of every sharing."""
    found = {
        f"random {seed}, {sharing}": random_model(seed, sharing)
        for sharing in ("state", "time", "none")
        for seed in (0, 1)
    }
    return {
        **found,
        "coupled-reward chain": jm.envs.coupled_reward_chain(),
        "windy gridworld 5×5": jm.envs.windy_gridworld(5),
    }


def block_errors(solution: Any, exact: jm.results.Solution) -> dict[str, float]:
    """Errors of means, variances, covariances in a state, and variances of gaps, each in the size of its block."""
    found, truth = _blocks(solution, exact.model), _blocks(exact, exact.model)
    variance = float(np.mean(truth["variance"]))
    least = {"mean": math.sqrt(variance), "same": variance}
    sizes = {name: math.sqrt(float(np.mean(value**2))) for name, value in truth.items()}
    off = {name: math.sqrt(float(np.mean((found[name] - value) ** 2))) for name, value in truth.items()}
    return {name: off[name] / max(sizes[name], least.get(name, 0.0)) for name in truth}


def _blocks(solution: Any, model: jm.JointMDP) -> dict[str, np.ndarray]:
    source = jm.simulators.TableSimulator(model)
    places = [(s, a) for s, a in np.argwhere(model.available).tolist() if not source.is_over(s)]
    pairs = [(s, a, b) for s, a in places for b in range(a) if model.available[s, b]]

    def mean(s: int, a: int) -> float:
        return solution.mean[s, a] if isinstance(solution, jm.results.Solution) else solution.mean_at(s, a).value

    def covariance(s: int, a: int, b: int) -> float:
        return (
            solution.covariance[s, a, b]
            if isinstance(solution, jm.results.Solution)
            else solution.covariance_at(s, a, b).value
        )

    return {
        "mean": np.array([mean(*place) for place in places]),
        "variance": np.array([covariance(s, a, a) for s, a in places]),
        "same": np.array([covariance(*pair) for pair in pairs]),
        "gap": np.array([solution.gap(*pair).variance for pair in pairs]),
    }


def main() -> None:
    """Print a table of errors."""
    is_small = "--small" in sys.argv
    chosen = dict(list(models().items())[:1]) if is_small else models()
    count, steps, run = (200_000, 2000, SMALL) if is_small else (4_000_000, 40_000, RUN)
    print(f"neural JIPE-2 on {jax.devices()[0].device_kind}: errors in the size of each block")
    for name, (model, policy) in chosen.items():
        exact = jm.evaluate(model, policy)
        queries = jm.simulators.record_queries(model, policy, count, restart=0.1, episode_restart=0.1)
        for inputs, size in SIZES.items():
            begun = time.perf_counter()
            trained = jm.learn(model, policy, jm.Neural(**size, **run, queries=queries), steps=steps)
            took = time.perf_counter() - begun
            errors = "  ".join(f"{block} {error:6.2%}" for block, error in block_errors(trained, exact).items())
            print(f"{name:22} {inputs:8} {errors}   {trained.steps / took:6.0f} steps/s", flush=True)
