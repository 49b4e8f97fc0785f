"""JAX environments with explicit keys: the key is the noise, so a query is one `vmap` over actions with one key."""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jointmdp import checks
from jointmdp.checks import Sharing
from jointmdp.errors import ModelError
from jointmdp.simulators.noise import Noise
from jointmdp.simulators.simulator import Action, Draws, Outcome, Simulator, as_action_names, as_step

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

    def __init__(  # many parameters: a front door, one keyword for each setting
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
        self.action_names = as_action_names(actions)
        self._describe(name or str(getattr(step, "__name__", "JAX environment")), discount, sharing, reward_bounds)
        self._types: Any = None
        # Bound once: each has its own cache of compiled programs.
        self._reset, self._look = jax.jit(self.reset_one), jax.jit(self.observe_one)
        self._query, self._queries = jax.jit(self._query_one), jax.jit(self._query_many)
        if self.action_names is not None:
            self.types(jnp.int32(0))

    def reset_one(self, key: Array) -> JaxState:
        """A starting state, traceable."""
        state = self._user_reset(key) if callable(self._user_reset) else self._user_reset
        state = self._typed(jax.tree.map(jnp.asarray, state))
        ended = False if self._user_is_over is None else self._user_is_over(state)
        return JaxState(state, _as_flag(ended))

    def step_one(self, key: Array, state: Any, action: Any) -> tuple[Array, Any, Array]:
        """Reward, next state and whether it is over, traceable; the next state has the types of the first."""
        reward, after, ended = as_step(self._user_step(key, state, action), self.name)
        reward, after = jnp.asarray(reward), self._typed(after)
        if reward.shape != ():
            raise ModelError(f"the reward of {self.name} has shape {reward.shape}; it must be one number")
        if self._user_is_over is not None:
            ended = jnp.logical_or(_as_flag(ended), _as_flag(self._user_is_over(after)))
        return reward, after, _as_flag(ended)

    def observe_one(self, state: Any) -> Any:
        """What a policy sees of a state, traceable."""
        return state if self._user_observe is None else self._user_observe(state)

    def at(self, state: Any) -> JaxState:
        """The snapshot of a state."""
        if isinstance(state, JaxState):
            return state
        ended = False if self._user_is_over is None else bool(self._user_is_over(state))
        return JaxState(on_host(self._typed(state)), np.asarray(ended))

    def start(self, noise: Noise) -> JaxState:
        """A state to begin in."""
        return on_host(self._reset(noise.key))

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
        rewards, after = on_host(self._query(noise.key, place.state, chosen))
        split = (jax.tree.map(lambda leaf, i=i: leaf[i], after) for i in range(len(chosen)))
        return [Outcome(float(reward), each) for reward, each in zip(rewards, split, strict=True)]

    def query_batch(self, keys: Array, states: JaxState, actions: Sequence[Action]) -> tuple[Array, JaxState]:
        """N queries at once: `keys` ``[N]``, snapshots stacked to ``[N, …]``, and m actions, the same for all, ``[m]``.

        Returns rewards ``[N, m]`` and snapshots ``[N, m, …]``, on the device.
        """
        chosen = self.as_actions(actions)
        self.types(chosen[0])
        return self._queries(keys, states, chosen)

    def sample(self, state: Any, actions: Sequence[Action], num_samples: int, seed: int = 0) -> Draws:
        """Independent samples of a query, the i-th under the noise of the i-th query of the protocol."""
        count, seed = checks.as_count("num_samples", num_samples), checks.as_count("seed", seed, 0)
        place = self.at(state)
        if place.is_over:
            return super().sample(place, actions, count, seed)
        keys = jnp.stack([Noise("query", seed, i).key for i in range(count)])
        states = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *jnp.shape(leaf))), place)
        rewards, after = on_host(self.query_batch(keys, states, actions))
        rows = [
            tuple(jax.tree.map(lambda leaf, i=i, j=j: leaf[i, j], after) for j in range(len(actions)))
            for i in range(count)
        ]
        return Draws(np.asarray(rewards, dtype=np.float64), rows)

    def observe(self, state: Any) -> Any:
        """What a policy sees, as NumPy arrays."""
        return on_host(self._look(self.at(state).state))

    def is_over(self, state: Any) -> bool:
        """Whether the step that led here said so."""
        return bool(self.at(state).is_over)

    def identity(self, state: Any) -> Hashable:
        """The bytes of all leaves."""
        return b"".join(map(_leaf_bytes, jax.tree.leaves(self.at(state))))

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

    def types(self, action: Any) -> Any:
        """The shapes and types of a state's leaves: those that a step leads from and to."""
        if self._types is None:
            key = jax.random.key(0)
            found = jax.eval_shape(lambda k: self.reset_one(k).state, key)
            # A counter that starts as a whole number may go on as a fraction: the second step has the final types.
            for _ in range(2):
                moved = jax.eval_shape(
                    lambda k, s, a: as_step(self._user_step(k, s, a), self.name)[1], key, found, action
                )
                found = _joined_types(found, moved, self.name)
            self._types = found
        return self._types

    def _typed(self, state: Any) -> Any:
        """`state` with the types of all states."""
        if self._types is None:
            return state
        try:
            return jax.tree.map(lambda leaf, like: jnp.asarray(leaf, dtype=like.dtype), state, self._types)
        except (TypeError, ValueError) as error:
            raise ModelError(f"a state of {self.name} has another structure than those it begins in: {error}") from None

    def _query_one(self, key: Array, state: Any, actions: Array) -> tuple[Array, JaxState]:
        reward, after, ended = jax.vmap(self.step_one, (None, None, 0))(key, state, actions)
        return reward, JaxState(after, ended)

    def _query_many(self, keys: Array, states: JaxState, actions: Array) -> tuple[Array, JaxState]:
        reward, after = jax.vmap(self._query_one, (0, 0, None))(keys, states.state, actions)
        over = jnp.broadcast_to(states.is_over[:, None], reward.shape)
        stays = jax.tree.map(partial(_kept, over), states.state, after.state)
        return jnp.where(over, 0, reward), JaxState(stays, over | after.is_over)


def _kept(over: Array, old: Array, new: Array) -> Array:
    """Leaves ``[N, m, …]`` of a batch of queries; queries in states that are over stay there."""
    return jnp.where(over.reshape(*over.shape, *[1] * (new.ndim - 2)), old[:, None], new)


def _as_flag(value: Any) -> Array:
    """A truth value as an array."""
    return jnp.asarray(value).astype(bool)


def _joined_types(first: Any, second: Any, name: str) -> Any:
    """The types that hold both states, leaf by leaf."""
    before, after = (str(jax.tree.structure(state)) for state in (first, second))
    if before != after:
        raise ModelError(f"a step of {name} changes the structure of the state from {before} to {after}")

    def join(path: Any, one: Any, other: Any) -> Any:
        if one.shape != other.shape:
            where = jax.tree_util.keystr(path) or "the state"
            raise ModelError(f"a step of {name} changes the shape of {where} from {one.shape} to {other.shape}")
        # Keys inside of a state have a type that cannot be promoted, and need not be.
        dtype = one.dtype if one.dtype == other.dtype else jnp.promote_types(one.dtype, other.dtype)
        return jax.ShapeDtypeStruct(one.shape, dtype)  # type: ignore[no-untyped-call]

    return jax.tree_util.tree_map_with_path(join, first, second)


def on_host(tree: Any) -> Any:
    """All leaves as NumPy arrays; keys inside of states have no such form and stay as they are."""
    return jax.tree.map(lambda leaf: leaf if _is_key(leaf) else np.asarray(leaf), tree)


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _leaf_bytes(leaf: Any) -> bytes:
    """What a leaf holds, for telling states apart."""
    array = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
    # 0.0 and −0.0 are one number, as they are to the batch engine.
    return (array + 0.0 if array.dtype.kind == "f" else array).tobytes()
