"""JAX environments with explicit keys: the key is the noise, so a query is one `vmap` over actions with one key."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jointmdp import checks
from jointmdp.arrays import Floats
from jointmdp.checks import Sharing
from jointmdp.errors import ModelError
from jointmdp.intervals import Interval
from jointmdp.simulators import pytrees
from jointmdp.simulators.noise import Noise
from jointmdp.simulators.simulator import Action, Draws, Outcome, Simulator, default_action_names

StepFunction = Callable[[Array, Any, Any], tuple[Any, ...]]


class JaxState(NamedTuple):
    """A snapshot: the environment's own state, and whether the episode has ended there."""

    state: Any  # a pytree of arrays
    is_over: Any


class JaxSimulator(Simulator):
    """A simulator from ``step(key, state, action) -> (reward, next_state)``, a function that JAX can trace.

    Args:
        step: a pure function; it may return ``(reward, next_state, is_over)`` where episodes end. All its randomness
            comes from the key. It must not begin a new episode by itself.
        reset: a function ``reset(key) -> state``, or the state to begin in.
        actions: their names, or how many there are; None for actions that are not numbered (arrays of one shape).
        observe: what a policy sees of a state; by default all of it.
        is_over: a function of the state, for steps that do not say it themselves.
        random_action: ``random_action(key) -> action`` where actions are not numbered: the uniform policy.
        discount, sharing, reward_bounds: as in `Simulator`.

    It computes in the precision that JAX is set to. States may be any pytree of arrays; those of a query come back as
    NumPy arrays, wrapped with the end of the episode in a `JaxState`. `at` wraps a state of your own.
    """

    def __init__(
        self,
        step: StepFunction,
        reset: Any,
        *,
        actions: Sequence[str] | int | None,
        observe: Callable[[Any], Any] | None = None,
        is_over: Callable[[Any], Any] | None = None,
        random_action: Callable[[Array], Any] | None = None,
        discount: float = 1.0,
        sharing: Sharing = "time",
        reward_bounds: tuple[float, float] | None = None,
        name: str | None = None,
    ) -> None:
        if not callable(step):
            raise ModelError(f"step must be a function (key, state, action) -> (reward, next_state), not {step!r}")
        self._user_step, self._user_reset, self._user_is_over = step, reset, is_over
        self._user_observe, self._random = observe, random_action
        self.name = name or str(getattr(step, "__name__", "JAX environment"))
        if isinstance(actions, int | np.integer):
            self.action_names = default_action_names(checks.as_count("actions", actions))
        elif actions is not None:
            self.action_names = checks.as_names("action", actions, len(actions))
        self.discount = checks.as_discount(discount)
        self.sharing = checks.as_sharing(sharing)
        self.reward_bounds = None if reward_bounds is None else Interval(*map(float, reward_bounds))
        self._types: Any = None
        # Bound once: each has its own cache of compiled programs.
        self._reset, self._look = jax.jit(self.reset_one), jax.jit(self.observe_one)
        self._query, self._queries = jax.jit(self._query_one), jax.jit(self._query_many)
        if self.action_names is not None:
            self.types(jnp.int32(0))

    # -- pure functions of one state, for whoever maps them ----------------------------------------------------

    def reset_one(self, key: Array) -> JaxState:
        """A starting state, traceable."""
        state = self._user_reset(key) if callable(self._user_reset) else self._user_reset
        state = jax.tree.map(jnp.asarray, state) if self._types is None else self._typed(state)
        ended = False if self._user_is_over is None else self._user_is_over(state)
        return JaxState(state, pytrees.as_flag(ended))

    def step_one(self, key: Array, state: Any, action: Any) -> tuple[Array, Any, Array]:
        """Reward, next state and whether it is over, traceable; the next state has the types of the first."""
        reward, after, ended = self._stepped(key, state, action)
        reward, after = jnp.asarray(reward), self._typed(after)
        if reward.shape != ():
            raise ModelError(f"the reward of {self.name} has shape {reward.shape}; it must be one number")
        if self._user_is_over is not None:
            ended = jnp.logical_or(pytrees.as_flag(ended), pytrees.as_flag(self._user_is_over(after)))
        return reward, after, pytrees.as_flag(ended)

    def _stepped(self, key: Array, state: Any, action: Any) -> tuple[Any, Any, Any]:
        found = self._user_step(key, state, action)
        if not isinstance(found, tuple) or len(found) not in (2, 3):
            raise ModelError(
                f"{self.name} must return (reward, next_state) or (reward, next_state, is_over), not {found!r}"
            )
        return found[0], found[1], found[2] if len(found) == 3 else False

    def observe_one(self, state: Any) -> Any:
        """What a policy sees of a state, traceable."""
        return state if self._user_observe is None else self._user_observe(state)

    # -- the protocol ------------------------------------------------------------------------------------------

    def at(self, state: Any) -> JaxState:
        """The snapshot of a state."""
        if isinstance(state, JaxState):
            return state
        ended = False if self._user_is_over is None else bool(self._user_is_over(state))
        return JaxState(pytrees.on_host(self._typed(state) if self._types is not None else state), np.asarray(ended))

    def start(self, noise: Noise) -> JaxState:
        """A state to begin in."""
        return pytrees.on_host(self._reset(noise.key))

    def step(self, state: Any, action: Action, noise: Noise) -> Outcome:
        """A query of one action."""
        return self.query(state, [action], noise)[0]

    def query(self, state: Any, actions: Sequence[Action], noise: Noise) -> list[Outcome]:
        """All actions under one key; compiled once for each number of actions."""
        place = self.at(state)
        if place.is_over:
            return [Outcome(0.0, place) for _ in actions]
        chosen = self.as_actions(actions)
        self.types(chosen[0])
        rewards, after = jax.tree.map(pytrees.fetched, self._query(noise.key, place.state, chosen))
        split = (jax.tree.map(lambda leaf, i=i: leaf[i], after) for i in range(len(chosen)))
        return [Outcome(float(reward), each) for reward, each in zip(rewards, split, strict=True)]

    def query_batch(self, keys: Array, states: JaxState, actions: Sequence[Action]) -> tuple[Array, JaxState]:
        """N queries at once: `keys` ``[N]``, snapshots stacked to ``[N, …]``, and m actions, the same for all, ``[m]``.

        Returns rewards ``[N, m]`` and snapshots ``[N, m, …]``, on the device.
        """
        chosen = self.as_actions(actions)
        self.types(chosen[0])
        rewards, after = self._queries(keys, states, chosen)
        return rewards, after

    def sample(self, state: Any, actions: Sequence[Action], num_samples: int, seed: int = 0) -> Draws:
        """Independent samples of a query, the i-th under the noise of the i-th query of the protocol."""
        count, seed = checks.as_count("num_samples", num_samples), checks.as_count("seed", seed, 0)
        place = self.at(state)
        if place.is_over:
            return super().sample(place, actions, count, seed)
        keys = jnp.stack([Noise("query", seed, i).key for i in range(count)])
        states = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *jnp.shape(leaf))), place)
        rewards, after = jax.tree.map(pytrees.fetched, self.query_batch(keys, states, actions))
        rows = [
            tuple(jax.tree.map(lambda leaf, i=i, j=j: leaf[i, j], after) for j in range(len(actions)))
            for i in range(count)
        ]
        found: Floats = np.asarray(rewards, dtype=np.float64)
        return Draws(found, rows)

    def observe(self, state: Any) -> Any:
        """What a policy sees, as NumPy arrays."""
        return pytrees.on_host(self._look(self.at(state).state))

    def is_over(self, state: Any) -> bool:
        """Whether the step that led here said so."""
        return bool(self.at(state).is_over)

    def identity(self, state: Any) -> Hashable:
        """The bytes of all leaves."""
        return b"".join(map(pytrees.leaf_bytes, jax.tree.leaves(self.at(state))))

    def random_action(self, rng: np.random.Generator) -> Action:
        """An action of the uniform policy, where actions are not numbered."""
        if self._random is None:
            raise ModelError(f"the actions of {self.name} are not numbered, so a uniform policy is not defined")
        return np.asarray(self._random(jax.random.key(int(rng.integers(2**63)))))

    def policy_draw(self, noise: Noise) -> Array:
        """A key, so that a policy is the same function for one observation and for thousands at once."""
        return noise.key

    def as_actions(self, actions: Sequence[Action]) -> Any:
        """Actions stacked along a new first axis, as the environment takes them."""
        if self.action_names is not None:
            return np.array([self.action_index(action) for action in actions], dtype=np.int32)
        try:
            return jnp.asarray(np.stack([np.asarray(action) for action in actions]))
        except (TypeError, ValueError) as error:
            raise ModelError(f"actions of {self.name} must be arrays of one shape: {error}") from None

    # -- types and shapes --------------------------------------------------------------------------------------

    def types(self, action: Any) -> Any:
        """The shapes and types of a state's leaves: those that a step leads from and to."""
        if self._types is None:
            self._types = self._found_types(action)
        return self._types

    def _found_types(self, action: Any) -> Any:
        key = jax.random.key(0)

        def moved(state: Any) -> Any:
            return jax.eval_shape(lambda k, s, a: self._stepped(k, s, a)[1], key, state, action)

        first = jax.eval_shape(lambda k: self.reset_one(k).state, key)
        # A counter that starts as a whole number may go on as a fraction: the second step has the final types.
        wide = pytrees.joined_types(first, moved(first), self.name)
        return pytrees.joined_types(wide, moved(wide), self.name)

    def _typed(self, state: Any) -> Any:
        """`state` with the types of all states."""
        if self._types is None:
            return state
        try:
            return jax.tree.map(lambda leaf, like: jnp.asarray(leaf, dtype=like.dtype), state, self._types)
        except (TypeError, ValueError) as error:
            raise ModelError(f"a state of {self.name} has another structure than those it begins in: {error}") from None

    # -- what is compiled --------------------------------------------------------------------------------------

    def _query_one(self, key: Array, state: Any, actions: Array) -> tuple[Array, JaxState]:
        reward, after, ended = jax.vmap(self.step_one, (None, None, 0))(key, state, actions)
        return reward, JaxState(after, ended)

    def _query_many(self, keys: Array, states: JaxState, actions: Array) -> tuple[Array, JaxState]:
        reward, after = jax.vmap(self._query_one, (0, 0, None))(keys, states.state, actions)
        over = jnp.broadcast_to(states.is_over[:, None], reward.shape)
        stays = jax.tree.map(partial(pytrees.kept, over), states.state, after.state)
        return jnp.where(over, 0, reward), JaxState(stays, over | after.is_over)
