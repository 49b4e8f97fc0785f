"""One sweep on a GPU against a copy of the array: ``python -m benchmarks gpu``, on a machine that has one.

The model is the windy gridworld with 10 % exploration, so that every state has up to eight successors. The copy is into
existing memory. "XLA" is the same sweep by gathers of rows and columns, as on CPUs. Bytes count one array read and one
written for each copy that a sweep is worth.
"""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import jointmdp as jm
from jointmdp.exact.bellman import pair_sweep, sparse_products
from jointmdp.exact.bellman.pair_sweep import PairProblem, Source
from jointmdp.ground.arrays import float64

SIZES = {"float64": (100, 141, 200), "float32": (200, 316)}  # cells along a side


def exploring(size: int, sharing: str, discount: float = 0.99) -> tuple[jm.JointMDP, np.ndarray]:
    """The windy gridworld, whose policy takes any action with probability 10 %."""
    model, policy = jm.envs.windy_gridworld(size, discount=discount, sharing=sharing)  # type: ignore[arg-type]
    return model, 0.9 * policy + 0.1 / model.num_actions


def seconds_of(run: Callable[[], jax.Array], repeats: int = 3) -> float:
    jax.block_until_ready(run())
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(run())
        taken.append(time.perf_counter() - start)
    return min(taken)


def main() -> None:
    if jax.default_backend() != "gpu":
        print("\nOne sweep on a GPU: JAX has none here")
        return
    print(
        f"\nOne sweep on {jax.devices()[0].device_kind}, 8 successors (aims at 40,000 states: 5 copies, twice for time)"
    )
    print(f"{'states':>8} {'numbers':<9}{'an array':>10}{'copy':>10}{'bandwidth':>12}", end="")
    print(f"{'state':>10}{'/copy':>8}{'time':>10}{'/copy':>8}{'XLA':>10}{'/copy':>8}")
    with float64():
        for dtype, sides in SIZES.items():
            for side in sides:
                measure(side, jnp.dtype(dtype))
    solves()


def solves() -> None:
    """Whole evaluations, compilation included, and the certified error relative to the largest covariance."""
    print("\nWhole evaluations")
    print(f"{'states':>8} {'sharing':<8}{'numbers':<8}{'seconds':>9}{'sweeps':>8}{'error / largest':>17}{'peak':>14}")
    for side, sharing, method in (
        (100, "state", jm.Solve()),
        (200, "state", jm.Solve()),
        (200, "time", jm.Solve(relative_tolerance=1e-4)),
        (316, "state", jm.Solve(precision="single", relative_tolerance=1e-3)),
    ):
        model, policy = exploring(side, sharing)
        start = time.perf_counter()
        solution = jm.evaluate(model, policy, method)
        taken = time.perf_counter() - start
        error = solution.certificate.covariance_error / float(np.nanmax(solution.variance))
        peak = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0)
        print(
            f"{side**2:>8,} {sharing:<8}{method.precision:<8}{taken:>9.1f}{solution.steps:>8}{error:>17.1e}"
            f"{peak / 2**30:>10.1f} GiB  {solution.status.name}",
            flush=True,
        )


def measure(side: int, dtype: jnp.dtype) -> None:
    states = side**2
    D = jnp.ones((states, states), dtype)
    copy = seconds_of(lambda: negative(D), 5)
    line = f"{states:>8,} {dtype.name:<9}{D.nbytes / 1e9:>7.1f} GB{copy * 1e3:>7.1f} ms"
    line += f"{2 * D.nbytes / copy / 1e12:>7.2f} TB/s"
    for sharing in ("state", "time"):
        problem = as_problem(side, sharing, dtype)
        if sharing == "time" and D.nbytes > 20e9:
            line += f"{'':>18}"
            continue
        taken = seconds_of(lambda problem=problem: one_sweep(problem, D))
        line += f"{taken * 1e3:>7.1f} ms{taken / copy:>8.2f}"
    problem = as_problem(side, "state", dtype)
    if D.nbytes < 20e9:
        rows = (problem.kernel.weights[0], problem.kernel.columns[0])
        taken = seconds_of(lambda: gathered(*rows, D))
        line += f"{taken * 1e3:>7.1f} ms{taken / copy:>8.2f}"
    print(line, flush=True)


def as_problem(side: int, sharing: str, dtype: jnp.dtype) -> PairProblem:
    model, policy = exploring(side, sharing)
    kernel = pair_sweep.pair_kernel(model, policy)
    kernel = jax.tree.map(lambda x: x.astype(dtype) if x.dtype == jnp.float64 else x, kernel)
    sides = jnp.ones(model.num_states, dtype)
    return PairProblem(kernel, Source(sides, None, sides), jnp.asarray(0.99, dtype))


negative = jax.jit(lambda D: -D)
one_sweep = jax.jit(lambda problem, D: pair_sweep.sweep(problem, D, is_symmetric=True))
gathered = jax.jit(lambda weights, columns, D: sparse_products._gathered(weights, weights, columns, D))
