"""Learning from samples: coordinate updates per second, beside plain Python loops and Numba loops.

All work on the same model with the same schedule and averaging. An update is one entry of M that moves in a step;
bias bounds are carried along and never counted. The library runs 8 replicas; their updates all count, as their mean is
the answer.

- Sweeps update every mean and every pair once from one field of outcomes. The loops beside them do the same.
- Lists name two coordinates at random, draw for both, and update their two means and four pairs; an entry that a step
  names several times moves once, with the mean of its targets. "Lists" loops do the same with the same bias bounds,
  replicas and batches (`tests/test_incremental.py` feeds both the same numbers). "One" loops choose one pair at a time
  and move that alone, the paper's recursion as it is written: no means, no replicas; with bias bounds or without.

The last lines learn from a simulator whose steps take half a millisecond, in this process and by two workers.

Numba is no dependency: where it is not installed its columns are left out.
"""

import time
from collections.abc import Callable
from types import FunctionType
from typing import Any

import jax
import numpy as np

import jointmdp as jm
from benchmarks.timing import medians
from jointmdp.learning.incremental.learners import SimulatorLearner, TableLearner
from jointmdp.simulation.executors import Processes
from jointmdp.simulation.simulators.function_simulator import FunctionSimulator

Tables = tuple[Any, ...]


def sweep(
    tables: Tables, scenario: Any, choice: Any, m: Any, M: Any, out: Any, average: Any, alpha: float, w: float
) -> None:
    """One sweep of the recursion, coordinate by coordinate; plain Python, which Numba compiles as it stands."""
    ends, cut, rewards, successors, states, discount = tables
    X, W, A = len(states), ends.shape[1], cut.shape[1]
    r, to = np.empty(X), np.empty(X, np.int64)
    for x in range(X):
        s, k, b = states[x], 0, 0
        while k < W - 1 and scenario[s] >= ends[s, k]:
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
        scenario, choice = rng.random(tables[0].shape[0]), rng.random(len(m))
        sweep(tables, scenario, choice, m, M, out, average, (1000 / (1000 + n)) ** 0.65, 3 / (n + 2))
        M, out = out, M
    return M


def singles(
    tables: Tables, m: Any, M: Any, average: Any, biases: Any, visits: Any, has_bias: bool, count: int, rng: Any
) -> Any:
    """Some updates of one pair at a time, each with draws of its own: the paper's recursion as it is written."""
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
        alpha, share = (1000 / (1000 + n)) ** 0.65, 3 / (n + 2)
        M[x, y] += alpha * (target - M[x, y])
        average[x, y] += share * (M[x, y] - average[x, y])
        if has_bias:
            target = discount * (abs(r) + abs(q)) * 1000 + discount * discount * biases[to, fro, 0]
            biases[x, y, 0] += alpha * (target - biases[x, y, 0])
            biases[x, y, 1] += share * (biases[x, y, 0] - biases[x, y, 1])
    return M


def nudge(row: Any, total: Any, n: int) -> None:
    """The n-th update of value, average, bias bound and its average, with the mean of the targets in `total`."""
    alpha, share = (1000 / (1000 + n)) ** 0.65, 3 / (n + 2)
    for i in range(2):
        row[2 * i] += alpha * (total[i] / total[2] - row[2 * i])
        row[2 * i + 1] += share * (row[2 * i] - row[2 * i + 1])
        total[i] = 0
    total[2] = 0


def listed(tables: Tables, means: Any, pairs: Any, visits: tuple[Any, Any], batch: int, count: int, rng: Any) -> None:
    """Steps of lists of two coordinates for all replicas: means ``[R, X, 4]`` and pairs ``[R, X, X, 4]``."""
    ends, cut, rewards, successors, states, g = tables
    X, W, A = len(states), ends.shape[1], cut.shape[1]
    mean_total, pair_total = np.zeros((X, 3)), np.zeros((X, X, 3))
    lists, r, to = np.empty((batch, 2), np.int64), np.empty(2), np.empty(2, np.int64)
    for _ in range(count):
        for replica in range(len(means)):
            m, M = means[replica], pairs[replica]
            for x in lists:
                x[0], x[1] = int(rng.random() * X), int(rng.random() * X)
                scenario, other, choice, another = rng.random(), rng.random(), rng.random(), rng.random()
                for p in range(2):
                    if p == 1 and states[x[1]] != states[x[0]]:
                        scenario = other
                    if p == 1 and x[1] != x[0]:
                        choice = another
                    k, b = 0, 0
                    while k < W - 1 and scenario >= ends[states[x[p]], k]:
                        k += 1
                    t = successors[x[p], k]
                    while b < A - 1 and choice >= cut[t, b]:
                        b += 1
                    r[p], to[p] = rewards[x[p], k], t * A + b
                for p in range(2):
                    total, one = mean_total[x[p]], m[to[p]]
                    total[0] += r[p] + g * one[0]
                    total[1] += g * one[2]
                    total[2] += 1
                    for q in range(2):
                        total, two, both = pair_total[x[p], x[q]], m[to[q]], M[to[p], to[q]]
                        total[0] += r[p] * r[q] + g * (r[p] * two[0] + r[q] * one[0]) + g * g * both[0]
                        total[1] += g * (abs(r[p]) * two[2] + abs(r[q]) * one[2]) + g * g * both[2]
                        total[2] += 1
            for x in lists:
                for p in range(2):
                    if mean_total[x[p], 2] > 0:
                        visits[0][replica, x[p]] += 1
                        nudge(m[x[p]], mean_total[x[p]], visits[0][replica, x[p]])
                    for q in range(2):
                        if pair_total[x[p], x[q], 2] > 0:
                            visits[1][replica, x[p], x[q]] += 1
                            nudge(M[x[p], x[q]], pair_total[x[p], x[q]], visits[1][replica, x[p], x[q]])


def tables_of(model: jm.JointMDP, policy: np.ndarray) -> Tables:
    states = np.repeat(np.arange(model.num_states), model.num_actions)
    rewards = np.moveaxis(model.rewards, 1, 2).reshape(len(states), -1).copy()
    successors = np.moveaxis(model.successors, 1, 2).reshape(len(states), -1).copy()
    ends, cut = np.cumsum(model.probabilities, axis=1), np.cumsum(policy, axis=1)
    return ends, cut, rewards, successors, states, model.discount


def compiled() -> tuple[Callable[..., Any], ...] | None:
    """The same loops under Numba, if it is there: sweeps, one by one, lists."""
    try:
        import numba
    except ImportError:
        return None

    def with_inner(outer: Any, inner: Any) -> Callable[..., Any]:
        namespace = {**outer.__globals__, inner.__name__: numba.njit(inner)}
        fast: Callable[..., Any] = numba.njit(FunctionType(outer.__code__, namespace))
        return fast

    return with_inner(sweeps, sweep), numba.njit(singles), with_inner(listed, nudge)


def measure_sweeps(name: str, model: jm.JointMDP, policy: np.ndarray) -> None:
    tables = tables_of(model, policy)
    X = len(tables[4])
    steps = max(20, int(2e7 / (8 * X * X)))
    learner = TableLearner(model, policy, jm.Incremental())
    state = learner.init()

    def zeros() -> tuple[Any, ...]:
        return np.zeros(X), np.zeros((X, X)), np.zeros((X, X)), np.zeros((X, X))

    python_steps = max(1, int(40_000 / X**2))
    start = time.perf_counter()
    sweeps(tables, *zeros(), python_steps, np.random.default_rng(0))
    others = {"python": python_steps * (X * X + X) / (time.perf_counter() - start), "one": plain_one(tables)}
    runs: dict[str, Callable[[], object]] = {"ours": lambda: learner.advance(state, steps)}
    loops, count = compiled(), 8 * steps
    if loops is not None:
        fast = loops[0]
        runs["numba"] = lambda: fast(tables, *zeros(), count, np.random.default_rng(0))
    found = medians(5, **runs)
    ours = 8 * steps * (X * X + X) / found["ours"]
    if loops is not None:
        others["numba"] = count * (X * X + X) / found["numba"]
    print(f"{name:<20}{X:>5}{'':>7}{ours / 1e6:>9,.1f}" + _beside(ours, others), flush=True)


def blank(X: int) -> tuple[Any, ...]:
    """Room for `singles`."""
    return np.zeros(X), np.zeros((X, X)), np.zeros((X, X)), np.zeros((X, X, 2)), np.zeros((X, X), np.int64)


def plain_one(tables: Tables) -> float:
    start = time.perf_counter()
    singles(tables, *blank(len(tables[4])), has_bias=False, count=10_000, rng=np.random.default_rng(0))
    return 10_000 / (time.perf_counter() - start)


def measure_lists(name: str, model: jm.JointMDP, policy: np.ndarray, batch: int) -> None:
    tables = tables_of(model, policy)
    X = len(tables[4])
    steps, ones = 100 * 1024 // batch, 200_000
    learner = TableLearner(model, policy, jm.Incremental(coordinates="uniform", batch=batch))
    state = learner.init()
    rows = np.zeros((8, X, 4)), np.zeros((8, X, X, 4)), (np.zeros((8, X), np.int32), np.zeros((8, X, X), np.int32))
    others = {"python": plain_one(tables)}
    runs: dict[str, Callable[[], object]] = {"ours": lambda: learner.advance(state, steps)}
    loops = compiled()
    if loops is not None:
        one, many = loops[1:]
        runs["numba"] = lambda: many(tables, *rows, batch, steps, np.random.default_rng(0))
        runs["with bounds"] = lambda: one(tables, *blank(X), True, ones, np.random.default_rng(0))
        runs["bare"] = lambda: one(tables, *blank(X), False, ones, np.random.default_rng(0))
    found = medians(5, **runs)
    updates = learner.updates(learner.advance(state, steps))
    ours = updates / found["ours"]
    if loops is not None:
        # As many lists of the same law: the same number of updates, up to chance.
        others |= {
            "numba": updates / found["numba"],
            "with bounds": ones / found["with bounds"],
            "bare": ones / found["bare"],
        }
    print(f"{name:<20}{X:>5}{batch:>7}{ours / 1e6:>9,.1f}" + _beside(ours, others), flush=True)


def _beside(ours: float, others: dict[str, float]) -> str:
    return "".join(f"{speed / 1e6:>9,.2f}{ours / speed:>9,.1f}×" for speed in others.values())


def measure_workers() -> None:
    def step(place: int, move: int, rain: float) -> tuple[float, int]:
        until = time.perf_counter() + 5e-4
        while time.perf_counter() < until:
            pass
        return rain - move / 10, (place + move + (rain > 0.5)) % 10

    simulator = FunctionSimulator(
        step, lambda rng: rng.random(), start=0, actions=2, discount=0.9, reward_bounds=(-1, 1)
    )
    seconds: dict[Processes | None, float] = {}
    with Processes(2) as workers:
        for executor in (None, None, workers, workers):  # each a second time: compiled, and with workers that are up
            learner = SimulatorLearner(simulator, "uniform", jm.Incremental(batch=8))
            learner.executor = executor
            state, begun = learner.init(), time.perf_counter()
            jax.block_until_ready(learner.advance(state, 32))
            seconds[executor] = time.perf_counter() - begun
    here, there = seconds.values()
    print(
        f"simulator, 0.5 ms a step, 32 steps of 64 lists: {here:.1f} s, two workers {there:.1f} s, {here / there:.1f}×"
    )


MODELS = {
    "gridworld 3×3": lambda: jm.envs.windy_gridworld(3),
    "chain of 25": lambda: jm.envs.coupled_reward_chain(25),
    "gridworld 5×5": lambda: jm.envs.windy_gridworld(5),
    "gridworld 10×10": lambda: jm.envs.windy_gridworld(10),
}


def main() -> None:
    print("\nLearning from samples, million coordinate updates a second (aims: 1,000 × plain Python, 1 × Numba)")
    has_numba = compiled() is not None
    if not has_numba:
        print("Numba is not installed here: its columns are left out")
    head = f"{'X':>5}{'batch':>7}{'ours':>9}"
    print(f"{'sweeps':<20}{head}{'Python':>9}{'':>10}{'Py., one':>9}{'':>10}" + ("    Numba" if has_numba else ""))
    for name, make in MODELS.items():
        measure_sweeps(name, *make())
    words = f"{'Numba':>9}{'':>10}{'one + b.':>9}{'':>10}{'one':>9}" if has_numba else ""
    print(f"{'lists':<20}{head}{'Py., one':>9}{'':>10}{words}")
    for name, make in MODELS.items():
        for batch in (32, 1024):
            measure_lists(name, *make(), batch)
    measure_workers()
