"""A JAX environment and the policies of its branches, as the compiled engine simulates them.

The environment computes in the precision that JAX is set to; returns are added up in float64.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jointmdp.ground.arrays import Arithmetic, float64, random_key, restored, users_arithmetic, users_calls
from jointmdp.ground.errors import ModelError
from jointmdp.simulation.montecarlo.compiled_branches import States, columns_of, of_branches
from jointmdp.simulation.simulators.jax_simulator import NO_ACTION, Chooser, JaxSimulator, JaxState, as_chooser, on_host
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.simulator import Action, as_agent


@dataclass(frozen=True)
class Program:
    """A simulator as a part of what is compiled: those made of the same functions are one."""

    key: Hashable
    simulator: JaxSimulator = field(compare=False)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["discount", "kinds", "data", "place", "first"],
    meta_fields=["program", "choosers", "columns", "action_type", "arithmetic"],
)
@dataclass(frozen=True)
class JaxDynamics:
    """A JAX simulator and the policies of its branches."""

    discount: Array
    kinds: Array  # [m]
    data: tuple[Any, ...]  # of each policy: its array, where it is one
    place: JaxState | None  # where all begin; None: in starting states of their own
    first: Any  # [m, …] first actions; None: the policies choose them too
    program: Program
    choosers: tuple[Chooser, ...]
    columns: tuple[tuple[int, ...], ...]  # which branches follow each policy
    action_type: tuple[tuple[int, ...], Any]  # shape and type of one action
    arithmetic: Arithmetic  # as the user has set JAX

    @property
    def simulator(self) -> JaxSimulator:
        """What is simulated."""
        return self.program.simulator

    def start(self, key: Array, shape: tuple[int, int]) -> tuple[States, Array]:
        """All branches of a replication in one state."""
        with restored(self.arithmetic):
            if self.place is not None:
                both = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*shape, *jnp.shape(leaf))), self.place)
            else:
                one = jax.vmap(self.simulator.reset_one)(jax.random.split(key, shape[0]))
                both = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:, None], (*shape, *leaf.shape[1:])), one)
        return both.state, both.is_over

    @property
    def drawn_together(self) -> int:
        """Their steps take longer than their draws, and their programs too long to compile already."""
        return 1

    def draw(self, key: Array, shape: tuple[int, ...]) -> Array:
        """A key for each branch ``[N, m]``, or for each sample ``[N]``."""
        return jax.random.split(key, shape) if len(shape) == 1 else columns_of(jax.random.split, key, shape)

    def step(self, state: States, action: Any, noise: Array) -> tuple[Array, States, Array]:
        """The environment's own step, mapped over samples and branches."""
        keyed = None if noise.ndim == 1 else 0
        is_known = jnp.ones(action.shape[:2], dtype=bool)
        if self.simulator.action_names is not None:
            is_known = action != NO_ACTION
            action = jnp.maximum(action, 0)
            with restored(self.arithmetic):
                legal = jax.vmap(jax.vmap(self.simulator.available_one))(state)
            if legal is not None:
                is_known &= jnp.take_along_axis(legal, action[:, :, None], axis=2)[:, :, 0]
        with restored(self.arithmetic):
            mapped = jax.vmap(jax.vmap(self.simulator.step_one, (keyed, 0, 0)))
            reward, after, ended = mapped(noise, state, action)
        return jnp.where(is_known, reward.astype(jnp.float64), jnp.nan), after, ended | ~is_known

    def chances(self, key: Array, shape: tuple[int, int]) -> tuple[Array, Array]:
        """A uniform and a key for each branch."""
        # Another key than the uniforms': a key is consumed once.
        keys = columns_of(jax.random.split, jax.random.fold_in(key, 1), shape)
        return columns_of(partial(jax.random.uniform, dtype=jnp.float64), key, shape), keys

    def choose(self, state: States, chances: tuple[Array, Array], leader: Array, time: Array) -> Any:
        """Each branch's policy on what it observes; the draws are those of its leader."""
        own, keys = jnp.take_along_axis(chances[0], leader, axis=1), of_branches(chances[1], leader)
        parts = []
        for chooser, data, columns in zip(self.choosers, self.data, self.columns, strict=True):
            of = np.asarray(columns)
            given = jax.tree.map(lambda leaf, of=of: leaf[:, of], (state, keys, own))
            parts.append(jax.vmap(jax.vmap(partial(self._choice, chooser, data)))(*given))
        order = np.argsort(np.concatenate(self.columns))
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=1)[:, order]

    def mistake(self, state: States, action: Any, column: int) -> str:
        """The policy's, the state's or the reward's."""
        simulator = self.simulator
        begun = ""
        if self.first is not None:
            begun = f"which began with {simulator.action_label(on_host(self.first)[column])}, "
        if simulator.action_names is not None and action == NO_ACTION:
            return (
                f"{begun}the policy gave an action that does not exist or probabilities that do not sum to 1; did it "
                "return values or logits?"
            )
        label = simulator.action_label(on_host(action)[()])
        legal = simulator.available_one(state)
        if legal is not None and not legal[action]:
            return f"{begun}{label} is taken, which is not available in its state"
        for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]:
            if jnp.issubdtype(leaf.dtype, jnp.inexact) and not jnp.isfinite(leaf).all():
                where = jax.tree_util.keystr(path) or "its only leaf"
                return f"{begun}the state before the step is not finite at {where}"
        return f"{begun}the reward of {label} is not finite"

    def only(self, places: tuple[int, ...]) -> "JaxDynamics":
        """Those of some branches, and of the policies that these follow."""
        columns = [tuple(i for i, j in enumerate(places) if j in own) for own in self.columns]
        kept = [k for k, own in enumerate(columns) if own]
        first = None if self.first is None else self.first[np.asarray(places)]
        policies = {
            "data": tuple(self.data[k] for k in kept),
            "choosers": tuple(self.choosers[k] for k in kept),
            "columns": tuple(columns[k] for k in kept),
        }
        return replace(self, kinds=self.kinds[np.asarray(places)], first=first, **policies)  # type: ignore[arg-type]

    def snapshot(self, state: States, is_over: Array) -> JaxState:
        """The environment's own state, on the host."""
        return JaxState(on_host(state), np.asarray(is_over))

    def _choice(self, chooser: Chooser, data: Any, state: Any, key: Array, uniform: Array) -> Array:
        # Only what the user wrote runs in the user's precision; draws by inversion are in float64.
        with restored(self.arithmetic):
            seen = self.simulator.observe_one(state)
            said, legal = chooser.ask(seen, key), self.simulator.available_one(state)
        found = jnp.asarray(chooser.decide(data, seen, said, uniform, legal))
        shape, dtype = self.action_type
        if found.shape != shape:
            raise ModelError(
                f"the policy's actions in {self.simulator.name} have shape {found.shape}, the first actions {shape}"
            )
        return found.astype(dtype)


@users_calls()
def jax_dynamics(
    simulator: JaxSimulator,
    policies: Sequence[Any],
    kinds: Sequence[int],
    actions: Sequence[Action] | None,
    state: Any,
    discount: float,
) -> JaxDynamics:
    """Branches that follow ``policies[kinds[j]]``; an `UntraceableError` says why JAX cannot follow a policy."""
    arithmetic = users_arithmetic()
    made = [as_chooser(policy, simulator) for policy in policies]
    first = None if actions is None else jnp.asarray(simulator.as_actions(actions))
    if first is not None:
        like = first[0]
    elif simulator.action_names is not None:
        like = jnp.int32(0)
    elif simulator._random is None:
        raise ModelError(f"the actions of {simulator.name} are not numbered; give random_action, or first actions")
    else:
        like = jax.eval_shape(simulator._random, random_key(0))
    simulator.types(like)
    place = None if state is None else simulator.at(state)
    if place is not None:  # it may be older than the first action, which the types of states depend on
        place = place._replace(state=on_host(simulator._typed(place.state)))
    # Mistakes that show in the first state get their own message, before they are NaNs among thousands.
    begin = simulator.reset() if place is None else place
    for policy, (chooser, _) in zip(policies, made, strict=True):
        if callable(policy) and chooser.form != "keyed":
            as_agent(policy, simulator)(begin, Noise("check"))
    with float64():
        return JaxDynamics(
            jnp.asarray(discount, dtype=jnp.float64),
            jnp.asarray(kinds, dtype=jnp.int32),
            tuple(None if data is None else jnp.asarray(data) for _, data in made),
            place,
            first,
            Program(simulator.program_key, simulator),
            tuple(chooser for chooser, _ in made),
            tuple(tuple(j for j, kind in enumerate(kinds) if kind == i) for i in range(len(policies))),
            (tuple(like.shape), like.dtype),
            arithmetic,
        )
