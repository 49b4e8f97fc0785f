"""Large models of which few states matter: orders that arrive later, from a start under a base-stock policy.

A shop sells what it has, up to the demand of the day; what is asked for beyond that is lost. An order arrives after two
more days, so a state is the stock and the two orders on their way. The order brings the position (stock and orders)
up to `BASE_STOCK`, which keeps the shop among 56 states however large stock and orders may be.
"""

import subprocess
import sys
import time
from typing import Any

import numpy as np
from scipy.special import gammaln

import jointmdp as jm
from benchmarks.solve import peak_memory
from jointmdp.ground.arrays import Ints

BASE_STOCK = 5
START = (2, 1, 1)
MEAN_DEMAND = 1.2
LIMITS = {2_000: (40, 6), 5_000: (61, 8), 50_000: (413, 10)}  # by size: the largest stock and the largest order


def lead_time_inventory(size: int) -> tuple[jm.JointMDP, Ints, tuple[int, int, int]]:
    """The model with about `size` states, the base-stock policy ``[S]``, and a start."""
    largest_stock, largest_order = LIMITS[size]
    demand = np.arange(11)
    chances = np.exp(demand * np.log(MEAN_DEMAND) - MEAN_DEMAND - gammaln(demand + 1.0))

    def successor(state: Any, order: Any, asked: Any) -> tuple[Any, Any, Any]:
        stock, arrives, on_its_way = state
        return np.minimum(np.maximum(stock - asked, 0) + arrives, largest_stock), on_its_way, order

    def reward(state: Any, order: Any, asked: Any) -> Any:
        stock, _, _ = state
        sold = np.minimum(stock, asked)
        return 5.0 * sold - 2.0 * order - 0.1 * (stock - sold)

    model = jm.from_start(
        reward,
        successor,
        demand,
        chances / chances.sum(),
        START,
        actions=largest_order + 1,
        discount=0.95,
        sharing="time",
        action_names=[f"order {order}" for order in range(largest_order + 1)],
        is_vectorised=True,
    )
    position = np.array(model.state_names).sum(axis=1)
    return model, np.clip(BASE_STOCK - position, 0, largest_order), START


def cost_gridworld(size: int, discount: float = 0.95) -> tuple[jm.JointMDP, np.ndarray]:
    """The windy gridworld with a cost in every cell that depends on it, no reward, and 10 % exploration."""
    y, x = np.divmod(np.arange(size**2), size)
    moved_x = np.clip(x[:, None] + np.array([0, 1, 0, -1]), 0, size - 1)
    moved_y = np.clip(y[:, None] + np.array([1, 0, -1, 0]), 0, size - 1)
    successors = np.stack([moved_y * size + moved_x, moved_y * size + np.maximum(moved_x - 1, 0)], axis=1)
    successors[-1] = size**2 - 1
    costs = np.random.default_rng(0).uniform(0.5, 1.5, size**2)
    costs[-1] = 0.0
    rewards = np.broadcast_to(-costs[:, None, None], successors.shape)
    model = jm.JointMDP(np.tile([0.8, 0.2], (size**2, 1)), rewards, successors, discount)
    policy = np.full((size**2, 4), 0.025)
    policy[np.arange(size**2), np.where(x < size - 1, 1, 0)] += 0.9
    return model, policy


def inventories() -> None:
    print("\nLead-time inventory: built from a start, and the gap of one state of it (aim: 10 s, the same gap)")
    print(
        f"{'states':>8}{'table entries':>16}{'built in':>12}{'evaluated in':>14}{'pairs':>8}{'gap':>12}{'variance':>12}"
    )
    for size in LIMITS:
        started = time.perf_counter()
        model, policy, start = lead_time_inventory(size)
        built = time.perf_counter()
        gap = jm.evaluate(model, policy, states=[start]).gap(start, "order 2", "order 3")
        done = time.perf_counter()
        print(
            f"{model.num_states:>8,}{model.rewards.size:>16,}{built - started:>10.2f} s{done - built:>12.2f} s"
            f"{jm.reach(model, policy, [start]).pairs:>8,}{gap.mean:>12.8f}{gap.variance:>12.8f}",
            flush=True,
        )


def million() -> None:
    """Ten states across a grid of a million, in a process of its own so that the peak of memory is theirs alone."""
    started = time.perf_counter()
    model, policy = cost_gridworld(1000)
    built = time.perf_counter()
    across = np.linspace(50, 949, 10).astype(int)
    states = [int(y * 1000 + x) for x, y in zip(across, np.random.default_rng(1).permutation(across), strict=True)]
    solution = jm.evaluate(model, policy, jm.Solve(relative_tolerance=1e-3), states=states)
    done = time.perf_counter()
    gaps = [solution.gap(s, a, b) for s in states for a in range(4) for b in range(a)]
    worst = max(gap.variance_error / gap.variance for gap in gaps)
    reached = jm.reach(model, policy, states, 1e-3)
    print(
        f"\n1,000×1,000 gridworld, 60 gaps of ten states: built in {built - started:.1f} s, evaluated in "
        f"{done - built:.1f} s (aim: 30), worst certified error {worst:.1e} of the gap's variance (aim: 1e-3), "
        f"peak memory {peak_memory():.1f} GiB (aim: 4)\n{reached}"
    )


def perishables() -> None:
    """Problems of mdpax at 14,641 states; ``PYTHONPATH`` needs the package."""
    try:
        from mdpax.problems.perishable_inventory.de_moor_single_product import DeMoorSingleProductPerishable
    except ImportError:
        print("\nmdpax is not installed: De Moor's problem is left out")
        return
    problem = DeMoorSingleProductPerishable(max_useful_life=3, lead_time=2)
    started = time.perf_counter()
    model = jm.envs.from_mdpax(problem, 0.99)
    built = time.perf_counter()
    position = np.asarray(problem.state_space).sum(axis=1)
    policy = np.clip(8 - position, 0, model.num_actions - 1)
    state = model.state_names[0] if model.state_names else 0
    gap = jm.evaluate(model, policy, states=[state]).gap(state, 5, 6)
    done = time.perf_counter()
    print(
        f"\nDe Moor's problem of mdpax, {model.num_states:,} states: built in {built - started:.1f} s, one state "
        f"evaluated in {done - built:.1f} s\n{gap}, certified to {gap.variance_error:.1e}"
        f"\n{jm.reach(model, policy, [state])}",
        flush=True,
    )


def hendrix() -> None:
    """Its default size has 7.8·10⁸ outcomes: too many for a table, so the gap of one state is simulated."""
    try:
        from mdpax.problems.perishable_inventory.hendrix_two_product import HendrixTwoProductPerishable
    except ImportError:
        return
    problem = HendrixTwoProductPerishable()
    started = time.perf_counter()
    try:
        jm.envs.from_mdpax(problem, 0.95)
    except jm.ModelError as error:
        print(f"\nHendrix' problem of mdpax: {error}")
    states = np.asarray(problem.state_space)
    actions = {tuple(action): number for number, action in enumerate(np.asarray(problem.action_space).tolist())}
    lacking = np.clip(8 - np.stack([states[:, :2].sum(axis=1), states[:, 2:].sum(axis=1)], axis=1), 0, 10)
    policy = jm.envs.mdpax_policy(problem, [actions[tuple(pair)] for pair in lacking.tolist()])
    simulator = jm.simulators.mdpax_simulator(problem, 0.95)
    gap = jm.simulate(
        simulator, policy, (4, 0, 4, 0), [actions[6, 6], actions[5, 5]], num_samples=20_000, seed=0, gaps_only=True
    ).gap(actions[6, 6], actions[5, 5])
    print(f"simulated in {time.perf_counter() - started:.1f} s: {gap}", flush=True)


def main() -> None:
    inventories()
    subprocess.run([sys.executable, "-c", "from benchmarks.large_models import million; million()"], check=True)
    perishables()
    hendrix()
