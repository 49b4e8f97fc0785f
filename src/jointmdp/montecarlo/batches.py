"""Thousands of replications at once: what `rollouts` does one query at a time, for worlds that JAX can compile.

JAX simulators with traceable policies, and tables, run in the engine of `branches`. A JAX environment computes in the
precision that JAX is set to, and its returns are added up in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jointmdp.arrays import float64
from jointmdp.checks import Sharing
from jointmdp.errors import ModelError
from jointmdp.model.policies import as_policy, uniform_policy
from jointmdp.montecarlo import branch_engine
from jointmdp.montecarlo.branch_engine import Block, Branches, States, World
from jointmdp.montecarlo.query_engine import Replications
from jointmdp.simulators.agents import as_agent
from jointmdp.simulators.jax_policies import NO_ACTION, Chooser, as_chooser
from jointmdp.simulators.jax_simulator import JaxSimulator, JaxState
from jointmdp.simulators.noise import Noise
from jointmdp.simulators.simulator import Action, Simulator
from jointmdp.simulators.table_simulator import TableSimulator, terminal_states

STEP_LIMIT = 20_000  # an episode longer than this was probably never meant to end, and a block waits for its longest
KEPT = 4  # blocks remembered: whoever asks for a few replications at a time asks for the same block again


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["discount", "data"],
    meta_fields=["simulator", "choosers", "columns", "kinds", "action_type", "is_wide"],
)
@dataclass(frozen=True)
class JaxWorld:
    """A JAX simulator and the policies of its branches."""

    discount: Array
    data: tuple[Any, ...]  # of each policy: its array, where it is one
    simulator: JaxSimulator
    choosers: tuple[Chooser, ...]
    columns: tuple[tuple[int, ...], ...]  # which branches follow each policy
    kinds: tuple[int, ...] | None
    action_type: tuple[tuple[int, ...], Any]  # shape and type of one action
    is_wide: bool  # whether the user's JAX computes in float64

    def draw(self, key: Array, shape: tuple[int, int], owner: Array | None) -> Array:
        """A key for each branch ``[N, m]``; for each sample ``[N]`` where all its branches share it."""
        if owner is None:
            return jax.random.split(key, shape[0])
        return _of_leaders(jax.random.split(key, shape), owner)

    def step(self, state: States, action: Any, noise: Array) -> tuple[Array, States, Array]:
        """The environment's own step, mapped over samples and branches."""
        keyed = None if noise.ndim == 1 else 0
        is_known = jnp.ones(action.shape[:2], dtype=bool)
        if self.simulator.action_names is not None:
            is_known = action != NO_ACTION
            action = jnp.maximum(action, 0)
        with jax.enable_x64(self.is_wide):
            mapped = jax.vmap(jax.vmap(self.simulator.step_one, (keyed, 0, 0)))
            reward, after, ended = mapped(noise, state, action)
        return jnp.where(is_known, reward.astype(jnp.float64), jnp.nan), after, ended | ~is_known

    def choose(self, state: States, key: Array, leader: Array) -> Any:
        """Each branch's policy on what it observes; the draws are those of its leader."""
        uniform = jax.random.uniform(key, leader.shape, dtype=jnp.float64)
        own = jnp.take_along_axis(uniform, leader, axis=1)
        # Another key than the uniforms': a key is consumed once.
        keys = _of_leaders(jax.random.split(jax.random.fold_in(key, 1), leader.shape), leader)
        parts = []
        for chooser, data, columns in zip(self.choosers, self.data, self.columns, strict=True):
            of = np.asarray(columns)
            given = jax.tree.map(lambda leaf, of=of: leaf[:, of], (state, keys, own))
            parts.append(jax.vmap(jax.vmap(partial(self._choice, chooser, data)))(*given))
        order = np.argsort(np.concatenate(self.columns))
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=1)[:, order]

    def _choice(self, chooser: Chooser, data: Any, state: Any, key: Array, uniform: Array) -> Array:
        # Only what the user wrote runs in the user's precision; draws by inversion are in float64.
        with jax.enable_x64(self.is_wide):
            seen = self.simulator.observe_one(state)
            said = chooser.ask(seen, key)
        found = jnp.asarray(chooser.decide(data, seen, said, uniform))
        shape, dtype = self.action_type
        if found.shape != shape:
            raise ModelError(
                f"the policy's actions in {self.simulator.name} have shape {found.shape}, the first actions {shape}"
            )
        return found.astype(dtype)


def _of_leaders(keys: Array, leader: Array) -> Array:
    """Each branch's leader's key, ``[N, m]``."""
    data = jnp.take_along_axis(jax.random.key_data(keys), leader[:, :, None], axis=1)
    return jax.random.wrap_key_data(data)


@dataclass(frozen=True, eq=False)
class BatchRollout:
    """A `rollouts.Sampler` that simulates whole blocks; the block last seen is remembered."""

    name: str
    world: World
    begin: Callable[[Sharing, Array, int], Branches]
    seed: int
    horizon: int | None
    until_merged: bool
    _kept: dict[tuple[int, Sharing], Block] = field(default_factory=dict, repr=False)

    portion: ClassVar[int] = branch_engine.BLOCK
    """Replications that are made together; asking for fewer makes the rest as well."""

    def __call__(self, first: int, count: int, sharing: Sharing) -> Replications:
        """Replications `first`, …, ``first + count − 1``."""
        parts = [self._block(block, sharing).rows(rows) for block, rows in branch_engine.rows_of_blocks(first, count)]
        return Replications(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def _block(self, block: int, sharing: Sharing) -> Block:
        found = self._kept.get((block, sharing))
        if found is None:
            found = self._simulated(block, sharing)
            while len(self._kept) >= KEPT:
                self._kept.pop(next(iter(self._kept)))
            self._kept[block, sharing] = found
        return found

    def _simulated(self, block: int, sharing: Sharing) -> Block:
        with float64():
            found = branch_engine.simulate_block(
                self.world,
                partial(self.begin, sharing),
                block,
                seed=self.seed,
                sharing=sharing,
                horizon=self.horizon,
                until_merged=self.until_merged,
                step_limit=STEP_LIMIT,
            )
        if not (np.isfinite(found.total).all() and np.isfinite(found.lead).all()):
            raise ModelError(
                f"a return of {self.name} is not a finite number: either a reward is not, or the policy gave an action "
                "that does not exist or probabilities that do not sum to 1; did it return values or logits?"
            )
        if self.horizon is None and not found.is_closed:
            raise ModelError(
                f"replications of {self.name} have not ended after {STEP_LIMIT:,} steps; give a horizon, or a discount "
                "below 1"
            )
        return found


def batch_rollout(
    simulator: Simulator,
    policies: tuple[Any, ...],
    actions: tuple[Action, ...] | None,
    state: Any,
    *,
    seed: int,
    discount: float,
    horizon: int | None,
    until_merged: bool = False,
) -> BatchRollout | None:
    """The batch engine for what `rollouts.Rollout` would simulate, with one policy for each alternative.

    None where it is not made for the simulator; an `UntraceableError` says why it is not for a policy.
    """
    made: Made | None = None
    if isinstance(simulator, JaxSimulator):
        made = _jax_rollout(simulator, policies, actions, state, discount)
    elif isinstance(simulator, TableSimulator):
        made = _table_rollout(simulator, policies, actions, state, discount)
    return None if made is None else BatchRollout(simulator.name, *made, seed, horizon, until_merged)


Made = tuple[World, Callable[[Sharing, Array, int], Branches]]


def _jax_rollout(
    simulator: JaxSimulator, policies: tuple[Any, ...], actions: tuple[Action, ...] | None, state: Any, discount: float
) -> Made:
    is_wide = jax.dtypes.canonicalize_dtype(np.float64) == np.float64
    distinct: list[Any] = []
    for policy in policies:
        if not any(policy is other for other in distinct):
            distinct.append(policy)
    kinds = tuple(next(i for i, other in enumerate(distinct) if other is policy) for policy in policies)
    made = [as_chooser(policy, simulator) for policy in distinct]
    first = None if actions is None else jnp.asarray(simulator.as_actions(actions))
    like = _action_like(simulator, first)
    simulator.types(like)
    place = None if state is None else simulator.at(state)
    _check_policies(simulator, distinct, place)
    with float64():
        world = JaxWorld(
            jnp.asarray(discount, dtype=jnp.float64),
            tuple(None if data is None else jnp.asarray(data) for _, data in made),
            simulator,
            tuple(chooser for chooser, _ in made),
            tuple(tuple(j for j, kind in enumerate(kinds) if kind == i) for i in range(len(distinct))),
            kinds if len(distinct) > 1 else None,
            (tuple(like.shape), like.dtype),
            is_wide,
        )
    return world, lambda sharing, key, count: _begin(world, place, first, key, count, len(policies), sharing)


def _action_like(simulator: JaxSimulator, first: Any) -> Any:
    if first is not None:
        return first[0]
    if simulator.action_names is not None:
        return jnp.int32(0)
    if simulator._random is None:
        raise ModelError(f"the actions of {simulator.name} are not numbered; give random_action, or first actions")
    return jax.eval_shape(simulator._random, jax.random.key(0))


def _check_policies(simulator: JaxSimulator, policies: list[Any], place: JaxState | None) -> None:
    """Mistakes that show in the first state are told by name, before they are NaNs among thousands."""
    first = simulator.reset() if place is None else place
    for policy in policies:
        if callable(policy) and as_chooser(policy, simulator)[0].form != "keyed":
            as_agent(policy, simulator)(first, Noise("check"))


@partial(jax.jit, static_argnames=("count", "m", "sharing"))
def _begin(
    world: JaxWorld, place: JaxState | None, first: Any, key: Array, count: int, m: int, sharing: Sharing
) -> Branches:
    """A block's branches before their first step."""
    shape = (count, m)
    start_key, policy_key = jax.random.split(key)
    with jax.enable_x64(world.is_wide):
        if place is None:
            one = jax.vmap(world.simulator.reset_one)(jax.random.split(start_key, count))
        else:
            one = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *jnp.shape(leaf))), place)
        both = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:, None], (*shape, *leaf.shape[1:])), one)
    if first is None:
        action = world.choose(both.state, policy_key, jnp.broadcast_to(jnp.arange(m), shape))
    else:
        action = jnp.broadcast_to(first, (count, *first.shape))
    return branch_engine.begin(both.state, action, both.is_over, sharing, world.kinds)


def _table_rollout(
    simulator: TableSimulator,
    policies: tuple[Any, ...],
    actions: tuple[Action, ...] | None,
    state: Any,
    discount: float,
) -> Made | None:
    """Tables under one policy in an array, from one state; the rest is for `rollouts`."""
    model, policy = simulator.model.with_discount(discount), policies[0]
    if isinstance(policy, str) and policy == "uniform" and policy not in (simulator.action_names or ()):
        policy = uniform_policy(model)
    elif isinstance(policy, str | int | np.integer):
        action = model.action_index(policy if isinstance(policy, str) else int(policy))
        policy = np.full(model.num_states, action) if model.available[:, action].all() else None
    is_array = isinstance(policy, np.ndarray | list | tuple)
    if not is_array or actions is None or state is None or any(other is not policies[0] for other in policies):
        return None
    is_terminal, s = terminal_states(model), simulator.at(state)
    first = [model.action_index(action, s) for action in actions]
    with float64():
        world = branch_engine.table_world(model, as_policy(model, policy), is_terminal)
    return world, lambda sharing, key, count: branch_engine.start(s, first, count, sharing, bool(is_terminal[s]))
