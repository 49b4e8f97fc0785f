"""One sweep of the centred recursion on states, against the straightforward one on coordinates and a memory copy.

The straightforward sweep is the paper's T₂ with SciPy: the policy's kernel on X = S·A coordinates as a sparse matrix,
applied from both sides to the dense |X|² array of second moments. Only those two products are timed; everything else
that T₂ asks for would come on top. Ours is timed as the solver runs it, several sweeps to a call, and in the growing
models also as JAX makes them: by tiles where Numba is installed and there are enough states. The copy is into existing
memory, by one thread.
"""

import math

import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

import jointmdp as jm
from benchmarks.timing import medians
from jointmdp.exact.bellman import pair_sweep, second_moments
from jointmdp.exact.bellman.pair_sweep import PairProblem
from jointmdp.exact.moments import pair_solver
from jointmdp.exact.moments.single_branch import solve_single_branch
from jointmdp.ground.arrays import float64


def coordinate_kernel(model: jm.JointMDP, policy: np.ndarray) -> sp.csr_array:
    """P((s',a')|(s,a)), ``[S·A, S·A]`` sparse."""
    S, A = policy.shape
    rows, columns = np.nonzero(policy)
    choose = sp.csr_array((policy[rows, columns], (rows, rows * A + columns)), shape=(S, S * A))
    return (model.marginal_mdp().kernel @ choose).tocsr()


def growth() -> None:
    """Sweeps with eight successors as the model grows."""
    print("\nOne sweep with 8 successors (aim: at most 5 copies at 6,400 states)")
    print(f"{'states':>8}{'copy':>10}{'state':>12}{'/copy':>8}{'JAX':>8}{'time':>12}{'/copy':>8}{'JAX':>8}")
    taken: dict[str, list[float]] = {"state": [], "time": []}
    sizes = (20, 40, 80, 100)
    for size in sizes:
        model, policy = jm.envs.windy_gridworld(size)
        line = ""
        for sharing, seconds in taken.items():
            found = timed(model.with_sharing(sharing), 0.9 * policy + 0.1 / 4)  # type: ignore[arg-type]
            seconds.append(found["ours"])
            line += f"{found['ours'] * 1e3:>9.1f} ms{found['ours'] / found['copy']:>8.1f}"
            line += f"{found['jax'] / found['copy']:>8.1f}"
        print(f"{size**2:>8,}{found['copy'] * 1e3:>7.1f} ms{line}", flush=True)
    for sharing, seconds in taken.items():
        for first in (0, 1):  # from 1,600 states on all are made by tiles
            exponent = math.log(seconds[-1] / seconds[first]) / math.log(sizes[-1] ** 2 / sizes[first] ** 2)
            between = f"{sizes[first] ** 2:,} to {sizes[-1] ** 2:,} states"
            print(f'"{sharing}": a sweep takes time like |S|^{exponent:.2f}, {between}')


def main() -> None:
    print("\nOne sweep (aims: at 50×50 at least 50 times faster than SciPy on X², at most 10 copies of the |S|² array)")
    print(f"{'model':<22}{'ours':>10}{'SciPy X²':>12}{'copy |S|²':>12}{'SciPy/ours':>13}{'ours/copy':>12}")
    for size in (30, 50):
        model, policy = jm.envs.windy_gridworld(size)
        for sharing in ("state", "time"):
            measure(model.with_sharing(sharing), policy, f"{size}×{size} {sharing}", with_scipy=sharing == "state")
    growth()


def timed(model: jm.JointMDP, policy: np.ndarray) -> dict[str, float]:
    """Seconds of one sweep, and of a copy of its array."""
    with float64():
        branch = solve_single_branch(model, policy)
        tables = second_moments.model_tables(model, policy, branch.state.rewards)
        kernel = pair_sweep.pair_kernel(model, policy)
        v = second_moments.state_mean(tables, jnp.asarray(branch.mean))
        added = second_moments.gap_source(tables, kernel, v).stored()
        problem = PairProblem(kernel, added, tables.discount)
        C = jnp.asarray(np.random.default_rng(0).normal(size=(model.num_states,) * 2))
        C = (C + C.T) / 2
        host, room = np.asarray(C).copy(), np.zeros(C.shape)
        count = pair_solver.CHUNK
        few, repeats = (count, 9) if model.num_states < 5000 else (2, 3)
        plain = pair_solver.plain_sweeps(problem, C, is_symmetric=True)
        found = medians(
            repeats,
            ours=lambda: plain.run(count),
            jax=lambda: pair_solver.sweeps(problem, C, few, True),
            copy=lambda: np.copyto(room, host),
        )
    return found | {"ours": found["ours"] / count, "jax": found["jax"] / few}


def measure(model: jm.JointMDP, policy: np.ndarray, name: str, with_scipy: bool) -> None:
    found = timed(model, policy)
    line = f"{name:<22}{found['ours'] * 1e3:>8.1f}ms"
    if with_scipy:
        P = coordinate_kernel(model, policy)
        M = np.random.default_rng(0).normal(size=P.shape)
        slow = medians(1, scipy=lambda: P @ (P @ M).T)["scipy"]
        line += f"{slow * 1e3:>10.0f}ms{found['copy'] * 1e3:>10.1f}ms{slow / found['ours']:>12.0f}×"
    else:
        line += f"{'':>12}{found['copy'] * 1e3:>10.1f}ms{'':>13}"
    print(line + f"{found['ours'] / found['copy']:>11.1f}×", flush=True)
