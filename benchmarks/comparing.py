"""What `compare` costs beside what anyone would write: `simulate` in the compiled engine, a plain script elsewhere.

Both sides make as many replications and stop them where their branches have become one. `compare` also makes a few
whole returns, and all its intervals; those of `simulate(…, gaps_only=True)` wait until somebody asks for them. Returns
of all replications, by `simulate` itself, stand beside them for scale. The plain script copies the environment for
every replication and action, reseeds it from the replication's number, and follows the policy to the end.
"""

import copy
import importlib.util
from typing import Any

import numpy as np

import jointmdp as jm
from benchmarks.simulators import balance, order_up, shop_step
from benchmarks.timing import medians
from jointmdp.simulation.simulators.jax_adapters import gymnax_simulator
from jointmdp.simulation.simulators.jax_simulator import JaxSimulator

COUNT = 10_000  # replications of the compiled engine: as many as `simulate` makes by itself
REPEATS = 5
# Replications by hand, and the environment: one with noise in every step, one whose episodes are long.
GRIDS = {"MiniGrid-Dynamic-Obstacles-6x6-v0": 200, "MiniGrid-Empty-6x6-v0": 40}


def main() -> None:
    print(f"\ncompare beside simulate(…, gaps_only=True), {COUNT:,} replications of two actions (aim: at most 2 times)")
    print(f"{'source':<34}{'compare':>10}{'gap':>10}{'ratio':>8}{'returns':>10}{'ratio':>8}")
    model, policy = jm.envs.inventory()
    grid, walk = jm.envs.windy_gridworld()
    shop = JaxSimulator(shop_step, 4, actions=8, discount=0.95, reward_bounds=(-200.0, 200.0))
    compiled("table: inventory, time", model, policy, "stock 4", (0, 4))
    compiled("table: inventory, state", model.with_sharing("state"), policy, "stock 4", (0, 4))
    compiled("table: inventory, none", model.with_sharing("none"), policy, "stock 4", (0, 4))
    compiled("table: gridworld", grid, walk, 0, (0, 1))
    compiled("table: gridworld, time", grid.with_sharing("time"), walk, 0, (0, 1))
    compiled("table: never one", *apart(), 0, (0, 1))
    compiled("JAX: shop", shop, order_up, None, (0, 4))
    compiled("gymnax: CartPole-v1", gymnax_simulator("CartPole-v1"), balance, None, (0, 1))
    print("\ncompare beside a plain script, all first actions, then uniform moves (aim: at most 1.5 times)")
    if importlib.util.find_spec("minigrid") is None:
        print("MiniGrid is not installed: skipped")
        return
    print(f"{'environment':<40}{'compare':>10}{'script':>10}{'ratio':>8}")
    for name, count in GRIDS.items():
        by_hand(name, count)


def apart() -> tuple[jm.JointMDP, np.ndarray]:
    """Two rings of ten states, entered by the first action: branches on different rings never become one."""
    rng, n = np.random.default_rng(0), 20
    ring = np.arange(n) // 10 * 10
    successors = (ring[:, None, None] + (np.arange(n)[:, None, None] + np.arange(1, 3)[:, None]) % 10) * np.ones(2, int)
    successors[0, :, 1] += 10
    model = jm.JointMDP(np.full((n, 2), 0.5), rng.normal(size=(n, 2, 2)), successors, 0.95, "time")
    return model, np.full((n, 2), 0.5)


def compiled(name: str, source: Any, policy: Any, state: Any, actions: tuple[Any, Any]) -> None:
    found = medians(
        REPEATS,
        compare=lambda: (
            jm.compare(source, policy, state, actions, pilot=COUNT, max_replications=COUNT).num_replications
        ),
        gap=lambda: jm.simulate(source, policy, state, actions, num_samples=COUNT, gaps_only=True).replications,
        returns=lambda: jm.simulate(source, policy, state, actions, num_samples=COUNT).returns,
    )
    ours, gap, returns = found["compare"], found["gap"], found["returns"]
    print(f"{name:<34}{ours:>9.3f}s{gap:>9.3f}s{ours / gap:>7.1f}×{returns:>9.3f}s{ours / returns:>7.1f}×", flush=True)


def moves(seen: Any, rng: np.random.Generator) -> int:
    """Turn left, turn right or go on."""
    return int(rng.integers(3))


def by_hand(name: str, count: int) -> None:
    import gymnasium
    import minigrid

    assert minigrid, "imported, its environments are known"
    env = gymnasium.make(name)
    env.reset(seed=0)
    simulator = jm.GymnasiumSimulator(name)
    state = simulator.reset(0)

    def script() -> object:
        returns = np.zeros((count, env.action_space.n))  # type: ignore[attr-defined]
        for i in range(count):
            for first in range(returns.shape[1]):
                own = copy.deepcopy(env)
                own.unwrapped.np_random = np.random.default_rng([0, i])
                rng, action, is_over = np.random.default_rng([1, i]), first, False
                while not is_over:
                    seen, reward, terminated, truncated, _ = own.step(action)
                    returns[i, first] += float(reward)
                    action, is_over = moves(seen, rng), terminated or truncated
        return returns

    def compare() -> object:
        return jm.compare(simulator, moves, state, pilot=count, max_replications=count).num_replications

    found = medians(REPEATS, compare=compare, script=script)
    ours, bare = found["compare"], found["script"]
    print(f"{name:<40}{ours:>9.2f}s{bare:>9.2f}s{ours / bare:>7.2f}×", flush=True)
