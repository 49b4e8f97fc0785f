"""Learning from samples: coordinate updates per second, beside a plain Python loop and a Numba loop.

All do the same work on the same model: sweeps update every mean and every pair of coordinates once from one field of
outcomes, with averaging; loops "one" choose a pair at a time and draw for each, as the paper writes it, and so do
"lists" of the library, 1,024 in a step, which carry their doubts besides. An update is one entry of M. The library runs
8 replicas; their updates all count, as their mean is the answer. Numba is no dependency: where it is not
installed its columns are left out.
"""

import time
from collections.abc import Callable
from types import FunctionType
from typing import Any

import jax
import numpy as np

import jointmdp as jm
from benchmarks.timing import medians
from jointmdp.incremental import TableLearner

Tables = tuple[Any, ...]


def sweep(
    tables: Tables, luck: Any, choice: Any, m: Any, M: Any, out: Any, average: Any, alpha: float, w: float
) -> None:
    """One sweep of the recursion, coordinate by coordinate; plain Python, which Numba compiles as it stands."""
    ends, cut, rewards, successors, states, discount = tables
    X, W, A = len(states), ends.shape[1], cut.shape[1]
    r, to = np.empty(X), np.empty(X, np.int64)
    for x in range(X):
        s, k, b = states[x], 0, 0
        while k < W - 1 and luck[s] >= ends[s, k]:
            k += 1
        t = successors[x, k]
        while b < A - 1 and choice[x] >= cut[t, b]:
            b += 1
        r[x], to[x] = rewards[x, k], t * A + b
    for x in range(X):
        for y in range(X):
            target = r[x] * r[y] + discount * (r[x] * m[to[y]] + r[y] * m[to[x]])
            target += discount * discount * M[to[x], to[y]]
            new = M[x, y] + alpha * (target - M[x, y])
            out[x, y] = new
            average[x, y] += w * (new - average[x, y])
    old = m.copy()
    for x in range(X):
        m[x] += alpha * (r[x] + discount * old[to[x]] - old[x])


def sweeps(tables: Tables, m: Any, M: Any, out: Any, average: Any, count: int, rng: Any) -> Any:
    """Some sweeps with the library's schedule at γ = 0.99."""
    for n in range(1, count + 1):
        luck, choice = rng.random(tables[0].shape[0]), rng.random(len(m))
        sweep(tables, luck, choice, m, M, out, average, (1000 / (1000 + n)) ** 0.65, 3 / (n + 2))
        M, out = out, M
    return M


def singles(tables: Tables, m: Any, M: Any, average: Any, visits: Any, count: int, rng: Any) -> Any:
    """As many updates of one pair at a time, each with draws of its own: the paper's recursion as it is written."""
    ends, cut, rewards, successors, states, discount = tables
    X, W, A = len(states), ends.shape[1], cut.shape[1]
    for _ in range(count):
        x, y = int(rng.random() * X), int(rng.random() * X)
        shared, u = rng.random(), rng.random()
        if states[x] == states[y]:
            u = shared
        k, j, b, c = 0, 0, 0, 0
        while k < W - 1 and shared >= ends[states[x], k]:
            k += 1
        while j < W - 1 and u >= ends[states[y], j]:
            j += 1
        s, t = successors[x, k], successors[y, j]
        one, two = rng.random(), rng.random()
        if x == y:
            two = one
        while b < A - 1 and one >= cut[s, b]:
            b += 1
        while c < A - 1 and two >= cut[t, c]:
            c += 1
        r, q, to, fro = rewards[x, k], rewards[y, j], s * A + b, t * A + c
        target = r * q + discount * (r * m[fro] + q * m[to]) + discount * discount * M[to, fro]
        visits[x, y] += 1
        n = visits[x, y]
        M[x, y] += (1000 / (1000 + n)) ** 0.65 * (target - M[x, y])
        average[x, y] += 3 / (n + 2) * (M[x, y] - average[x, y])
    return M


def tables_of(model: jm.JointMDP, policy: np.ndarray) -> Tables:
    states = np.repeat(np.arange(model.num_states), model.num_actions)
    rewards = np.moveaxis(model.rewards, 1, 2).reshape(len(states), -1).copy()
    successors = np.moveaxis(model.successors, 1, 2).reshape(len(states), -1).copy()
    ends, cut = np.cumsum(model.probabilities, axis=1), np.cumsum(policy, axis=1)
    return ends, cut, rewards, successors, states, model.discount


def compiled() -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    """The same loops under Numba, if it is there."""
    try:
        import numba
    except ImportError:
        return None
    inner = numba.njit(sweep)
    namespace = {**sweeps.__globals__, "sweep": inner}
    return numba.njit(FunctionType(sweeps.__code__, namespace)), numba.njit(singles)


def measure(name: str, model: jm.JointMDP, policy: np.ndarray) -> None:
    tables = tables_of(model, policy)
    X = len(tables[4])
    steps = max(20, int(2e7 / (8 * X * X)))
    learner = TableLearner(model, policy)
    state = learner.init()
    walking = TableLearner(model, policy, coordinates="uniform", batch=1024)
    begun = walking.init()
    lists = 50

    def zeros() -> tuple[Any, ...]:
        return np.zeros(X), np.zeros((X, X)), np.zeros((X, X)), np.zeros((X, X))

    python_steps = max(1, int(40_000 / X**2))
    start = time.perf_counter()
    sweeps(tables, *zeros(), python_steps, np.random.default_rng(0))
    plain = python_steps * (X * X + X) / (time.perf_counter() - start)
    start = time.perf_counter()
    singles(tables, *zeros()[:3], np.zeros((X, X), np.int64), 10_000, np.random.default_rng(0))
    plain_one = 10_000 / (time.perf_counter() - start)

    runs: dict[str, Callable[[], object]] = {
        "ours": lambda: jax.block_until_ready(learner.advance(state, steps)),
        "lists": lambda: jax.block_until_ready(walking.advance(begun, lists)),
    }
    loops, count = compiled(), 8 * steps
    if loops is not None:
        fast, one = loops
        runs["numba"] = lambda: fast(tables, *zeros(), count, np.random.default_rng(0))
        runs["numba_one"] = lambda: one(
            tables, *zeros()[:3], np.zeros((X, X), np.int64), 200_000, np.random.default_rng(0)
        )
    found = medians(5, **runs)
    ours = 8 * steps * (X * X + X) / found["ours"]
    updates = walking.updates(walking.advance(begun, lists))
    line = f"{name:<20}{X:>5}{ours / 1e6:>9,.0f}"
    others = {"plain_one": plain_one, "plain": plain}
    if loops is not None:
        others["numba_one"] = 200_000 / found["numba_one"]
        others["numba"] = count * (X * X + X) / found["numba"]
    for speed in others.values():
        line += f"{speed / 1e6:>10,.2f}{ours / speed:>8,.1f}×"
    print(line + f"{updates / found['lists'] / 1e6:>10.1f}", flush=True)


def main() -> None:
    print("\nLearning from samples, million coordinate updates a second (aims: 1,000 × plain Python, 1 × Numba)")
    head = f"{'model, γ = 0.99':<20}{'X':>5}{'sweeps':>9}{'Python, one':>10}{'':>8}{'sweeps':>10}{'':>9}"
    if compiled() is not None:
        head += f"{'Numba, one':>10}{'':>9}{'sweeps':>10}{'':>9}"
    else:
        print("Numba is not installed here: its columns are left out")
    print(head + f"{'lists':>10}")
    for name, (model, policy) in {
        "gridworld 3×3": jm.windy_gridworld(3),
        "chain of 25": jm.coupled_reward_chain(25),
        "gridworld 5×5": jm.windy_gridworld(5),
        "gridworld 10×10": jm.windy_gridworld(10),
    }.items():
        measure(name, model, policy)
