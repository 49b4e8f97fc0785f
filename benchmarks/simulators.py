"""What asking several actions under the same luck costs over bare steps, on JAX environments and on Gymnasium's.

Bare is what the environment itself offers: its step function mapped over as many lanes as there are branches, or as
many calls of ``env.step``. Alternatives run in turn in one process, so that their ratio means something on a noisy
machine. The compiled engine is set beside a bare `scan` that draws actions from the same policy and adds up rewards,
for branches that know nothing of each other: what is left is the price of shared luck, merging and exact gaps.

A query draws its noise once for all its actions and bare lanes draw it each for itself, so ratios below 1 are what
sharing saves. CartPole draws nothing in a step: its ratio is the overhead alone, and part of it is paid once a call, so
that it is larger for fewer queries at once; both sizes are shown.

Decisions are whole calls of `compare` and `audit`, each once, from the making of the environment to the answer: what a
person waits for.
"""

import importlib.util
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

import jointmdp as jm
from benchmarks.timing import medians
from jointmdp.simulation.montecarlo.alternatives import SimulationSettings, first_actions
from jointmdp.simulation.montecarlo.compiled_branches import BLOCK, BlockSampler
from jointmdp.simulation.simulators.gymnasium_simulator import GymnasiumSimulator
from jointmdp.simulation.simulators.jax_adapters import gymnax_simulator
from jointmdp.simulation.simulators.jax_simulator import JaxSimulator
from jointmdp.simulation.simulators.noise import Noise

SIZES = (4096, 16_384)  # queries at once
HORIZON = 200
REPEATS = 15
CALLS = 300  # of a Gymnasium environment, for one timing


def shop_step(key: jax.Array, stock: jax.Array, order: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Poisson demand, lost sales: an endless task with luck in every step."""
    demand = jax.random.poisson(key, 4.0)
    offered = jnp.minimum(stock + order, 20)
    sold = jnp.minimum(offered, demand)
    return 10.0 * sold - 4.0 * order - 0.2 * (offered - sold) - 5.0 * (demand - sold), offered - sold


def balance(seen: jax.Array) -> jax.Array:
    """Keeps CartPole up, so that no lane ends before the horizon."""
    return (seen[2] + seen[3] > 0).astype(jnp.int32)


def order_up(stock: jax.Array) -> jax.Array:
    return jnp.clip(8 - stock, 0, 7)


def main() -> None:
    cases: list[tuple[str, JaxSimulator, Any]] = [
        ("gymnax CartPole-v1", gymnax_simulator("CartPole-v1", time_limit=False), balance),
        ("gymnax FrozenLake-misc", gymnax_simulator("FrozenLake-misc", time_limit=False), "uniform"),
        ("gymnax Asterix-MinAtar", gymnax_simulator("Asterix-MinAtar", time_limit=False), "uniform"),
        ("shop, Poisson demand", JaxSimulator(shop_step, 4, actions=8), order_up),
    ]
    print("\nQueries of JAX environments (aim: at most 1.3 times bare steps)")
    print(
        f"{'environment':<26}{'at once':>9}{'actions':>8}{'query':>10}{'bare':>10}{'ratio':>8}{'steps per second':>20}"
    )
    for name, simulator, _ in cases:
        for size in SIZES:
            queries(name, simulator, size, 2)
        if len(simulator.action_names or ()) > 2:
            queries(name, simulator, SIZES[0], len(simulator.action_names or ()))
    print(f"\nPairs in the compiled engine, {BLOCK:,} at once, beside a bare scan of as many branches")
    print(f"{'environment':<26}{'sharing':>8}{'engine':>10}{'bare':>10}{'ratio':>8}{'pairs × steps per second':>26}")
    for name, simulator, policy in cases:
        if policy != "uniform":
            for sharing in ("time", "state"):
                pairs(name, simulator, policy, sharing)
    print("\nQueries of Gymnasium environments, two actions, one after the other; µs for both (reported, no aim)")
    print(f"{'environment':<26}{'state':>8}{'query':>10}{'bare':>10}{'ratio':>8}{'steps per second':>20}")
    for name in ("CartPole-v1", "FrozenLake-v1"):
        for kind in ("copy", None):
            live(name, kind)
    print("\nDecisions of one process, from the making of the environment to the answer (aim: under a minute)")
    print(f"{'decision':<46}{'seconds':>9}  answer")
    decision("gusty CartPole: left or right? (40 steps)", lambda: gusty(40, indifference=1.0))
    decision("gusty CartPole: left or right? (200 steps)", lambda: gusty(200))
    if importlib.util.find_spec("Box2D") is None:  # there are no wheels of it for every machine
        print("LunarLander is left out: Box2D is not installed here")
        return
    decision("LunarLander: which engine? (60 steps)", engines)
    decision("LunarLander: audit", lambda: jm.audit(GymnasiumSimulator("LunarLander-v3")))


def queries(name: str, simulator: JaxSimulator, size: int, count: int) -> None:
    keys = jax.random.split(jax.random.key(0), size)
    states = jax.jit(jax.vmap(simulator.reset_one))(keys)
    actions = np.arange(count, dtype=np.int32)
    # Every lane of the bare step has its own key, state and action, laid out before the clock starts.
    lanes = jax.tree.map(lambda leaf: jnp.repeat(leaf, count, axis=0), (keys, states.state))
    chosen = jnp.tile(jnp.asarray(actions), size)
    bare = jax.jit(jax.vmap(simulator._user_step))
    found = medians(
        REPEATS, query=lambda: simulator.query_batch(keys, states, actions), bare=lambda: bare(*lanes, chosen)
    )
    report(f"{name:<26}{size:>9,}", str(count), found["query"], found["bare"], size * count, 1e3, "ms")


def pairs(name: str, simulator: JaxSimulator, policy: Callable[[Any], Any], sharing: Any) -> None:
    start = simulator.reset(0)
    actions = (0, 1)
    how = SimulationSettings(discount=0.99, horizon=HORIZON)
    sampler = first_actions(simulator, policy, start, actions, how).sampler
    assert isinstance(sampler, BlockSampler)
    lanes = 2 * BLOCK
    states = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (lanes, *jnp.shape(leaf))), start.state)
    first = jnp.tile(jnp.asarray(actions, dtype=jnp.int32), BLOCK)

    @jax.jit
    def bare(key: jax.Array) -> jax.Array:
        def step(carry: Any, t: Any) -> tuple[Any, None]:
            state, action, total = carry
            found = jax.vmap(simulator._user_step)(jax.random.split(jax.random.fold_in(key, t), lanes), state, action)
            after = jax.tree.map(lambda new, old: new.astype(old.dtype), found[1], state)
            chosen = jax.vmap(lambda s: policy(simulator.observe_one(s)))(after)
            return (after, chosen.astype(jnp.int32), total + 0.99**t * found[0]), None

        return jax.lax.scan(step, (states, first, jnp.zeros(lanes)), jnp.arange(HORIZON))[0][2]

    def engine() -> object:
        sampler._kept.clear()
        return sampler(0, BLOCK, sharing)

    found = medians(REPEATS, engine=engine, bare=lambda: bare(jax.random.key(0)))
    report(name, sharing, found["engine"], found["bare"], BLOCK * HORIZON, 1e3, "ms", 26)


def live(name: str, kind: Any) -> None:
    simulator = GymnasiumSimulator(name, state=kind)
    env = gymnasium.make(name)
    state = simulator.reset(0)

    def query() -> None:
        for i in range(CALLS):
            simulator.query(state, [0, 1], Noise("bench", i))

    def resets() -> None:
        for _ in range(0, CALLS, 4):
            env.reset(seed=0)

    def bare() -> None:
        for i in range(CALLS):
            if i % 4 == 0:
                env.reset(seed=0)
            env.step(0)
            env.step(1)

    found = medians(9, query=query, bare=bare, resets=resets)
    # Episodes end, so the bare steps need resets among them; their time is measured beside and taken off.
    steps = found["bare"] - found["resets"]
    report(name, kind or "own", found["query"] / CALLS, steps / CALLS, 2, 1e6, "µs")


def gusty(max_steps: int, **options: Any) -> jm.results.Comparison:
    """Would the other action have been better here? With the settings of docs/comparing.md, or the default ones."""
    cart, policy = jm.envs.gusty_cartpole(max_steps=max_steps)
    return jm.compare(cart, policy, cart.walk(policy, 6, seed=5), **options)


def engines() -> jm.results.Comparison:
    """All four first actions at the start of a descent, after which a uniform policy follows."""
    lander = GymnasiumSimulator("LunarLander-v3", discount=0.99)
    return jm.compare(lander, "uniform", lander.reset(0), horizon=60)


def decision(name: str, run: Callable[[], jm.results.Comparison | jm.results.AuditReport]) -> None:
    """One line: how long the answer took, and what it was."""
    start = time.perf_counter()
    found = run()
    seconds = time.perf_counter() - start
    if isinstance(found, jm.results.Comparison):
        answer = f"{found.num_replications:,} replications: {found.status.value}"
    else:
        answer = str(found).partition("\n")[0].partition(": ")[2]
    print(f"{name:<46}{seconds:>8.1f}s  {answer}", flush=True)


def report(
    name: str, what: str, ours: float, bare: float, steps: int, scale: float, unit: str, width: int = 20
) -> None:
    """One line: seconds of both, their ratio, and what ours comes to in a second."""
    print(
        f"{name:<26}{what:>8}{ours * scale:>8.2f}{unit}{bare * scale:>8.2f}{unit}{ours / bare:>7.2f}×"
        f"{steps / ours:>{width},.0f}",
        flush=True,
    )
