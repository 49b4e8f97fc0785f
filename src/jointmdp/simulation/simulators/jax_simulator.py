"""JAX environments with explicit keys: the key is the noise, so a query is one `vmap` over actions with one key.

A `Chooser` is a policy that JAX can trace, for simulating thousands of branches at once; `as_agent` is for one branch
at a time.
"""

import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jointmdp.ground import checks
from jointmdp.ground.arrays import random_key, refuse_traced, users_calls
from jointmdp.ground.checks import SUM_TOLERANCE, Sharing
from jointmdp.ground.errors import ModelError
from jointmdp.model.inverse_sampling import drawn_traced
from jointmdp.simulation.simulators.jax_functions import (
    Guarded,
    as_arrays,
    check_like,
    function_key,
    joined_types,
    policy_guess,
    step_guess,
    value_key,
)
from jointmdp.simulation.simulators.jax_programs import StepProgram, frozen_start
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.simulator import (
    Action,
    Draws,
    Outcome,
    Simulator,
    as_action_names,
    policy_form,
    takes_rng,
)

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
        available: a function of the state, ``bool[A]``: which actions are legal there; by default all.
        random_action: ``random_action(key) -> action`` where actions are not numbered: the uniform policy.
        discount, sharing, reward_bounds: as in `Simulator`.

    It computes in the precision that JAX is set to. States may be any pytree of arrays; those of a query come back as
    NumPy arrays, wrapped with the end of the episode in a `JaxState`. `at` wraps a state of your own. Where noise of a
    step does not come from its key, a warning says so, and `frozen_noise` keeps it.
    """

    frozen_start = ""
    """How a start draws without its key, in a sentence; empty where it does not."""
    key_faults: Sequence[tuple[str, str]] = ()
    """What is wrong with the keys of a step, by name and in words, as its program shows."""
    calls_back = False
    """Whether a step calls back into Python, where noise may come from anywhere."""

    @users_calls()
    def __init__(  # many parameters: a front door, one keyword for each setting
        self,
        step: StepFunction,
        reset: Any,
        *,
        actions: Sequence[str] | int | None,
        observe: Callable[[Any], Any] | None = None,
        is_over: Callable[[Any], Any] | None = None,
        available: Callable[[Any], Any] | None = None,
        random_action: Callable[[Array], Any] | None = None,
        discount: float = 1.0,
        sharing: Sharing = "time",
        reward_bounds: tuple[float, float] | None = None,
        name: str | None = None,
    ) -> None:
        if not callable(step):
            raise ModelError(f"step must be a function (key, state, action) -> (reward, next_state), not {step!r}")
        if isinstance(actions, Sequence) and any(isinstance(name, int | float) for name in actions):
            raise ModelError(
                f"actions={list(actions)}: step is given numbers from 0, in the order of the list, and these would be "
                "names that mean others; say how many there are, actions=3, or give names that are texts"
            )
        self.action_names = as_action_names(actions)
        if available is not None and self.action_names is None:
            raise ModelError("available= is for numbered actions; give their names, or how many there are")
        own = str(getattr(step, "__name__", "step"))
        known = "the JAX environment" if own in ("step", "<lambda>") else own
        self._describe(name or known, discount, sharing, reward_bounds)
        self._user_step = Guarded(step, f"step of {self.name}", ("key", "state", "action"), step_guess)
        self._user_step.check_order()
        self._start = reset if not callable(reset) else Guarded(reset, f"reset of {self.name}", ("key",))
        self._user_is_over, self._user_observe, self._user_available = (
            None if given is None else Guarded(given, f"{role} of {self.name}", ("state",))
            for given, role in ((is_over, "is_over"), (observe, "observe"), (available, "available"))
        )
        self._random = (
            None if random_action is None else Guarded(random_action, f"random_action of {self.name}", ("key",))
        )
        made_of = (step, reset, is_over, observe, available, random_action, self.action_names)
        self.program_key = value_key(made_of)
        """Equal for simulators that are made of the same functions: they share their compiled programs."""
        self._types: Any = None
        # Bound once: each has its own cache of compiled programs.
        self._reset, self._look, self._legal = map(jax.jit, (self.reset_one, self.observe_one, self.available_one))
        self._query, self._queries = jax.jit(self.step_one), jax.jit(self._query_many)
        if self.action_names is not None:
            self.types(jnp.int32(0))
        elif self._random is not None:
            self.types(jax.eval_shape(self._random, random_key(0)))

    def reset_one(self, key: Array) -> JaxState:
        """A starting state, traceable."""
        state = self._start(key) if callable(self._start) else self._start
        state = self._typed(as_arrays(state, f"the state that {self.name} begins in"))
        return JaxState(state, self._ended(False, state))

    def step_one(self, key: Array, state: Any, action: Any) -> tuple[Array, Any, Array]:
        """Reward, next state and whether it is over, traceable; the next state has the types of the first."""
        reward, after, ended = self._moved(key, state, action)
        after = self._typed(after)
        return reward, after, self._ended(ended, after)

    def _moved(self, key: Array, state: Any, action: Any) -> tuple[Array, Any, Any]:
        """What the user's step says, as arrays."""
        found = self._user_step(key, state, action)
        if not isinstance(found, tuple) or len(found) not in (2, 3):
            many = f"{len(found)} values" if isinstance(found, tuple | list) else f"a {type(found).__name__}"
            hint = "; of (observation, state, reward, done, info) return (reward, state, done)" * (many[0] in "45")
            forms = "(reward, next_state) or (reward, next_state, is_over)"
            raise ModelError(f"step of {self.name} must return {forms}, not {many}{hint}")
        after = as_arrays(found[1], f"the state after a step of {self.name}")
        reward = as_arrays(found[0], f"the reward of {self.name}")
        if not hasattr(reward, "shape") or reward.shape != ():
            shape = jax.tree.map(jnp.shape, reward)
            swapped = len(jax.tree.leaves(after)) == 1 and jnp.shape(jax.tree.leaves(after)[0]) == ()
            hint = "; does step return (next_state, reward)? it must be (reward, next_state)" if swapped else ""
            raise ModelError(f"the reward of {self.name} has shape {shape}; it must be one number{hint}")
        return reward, after, found[2] if len(found) == 3 else False

    def _ended(self, said: Any, state: Any) -> Array:
        """Whether the episode is over in `state`, by what its step said or by the state itself."""
        flag = jnp.asarray(said).astype(bool)
        if self._user_is_over is not None:
            flag = jnp.logical_or(flag, jnp.asarray(self._user_is_over(state)).astype(bool))
        if flag.shape != ():
            raise ModelError(f"is_over of {self.name} has shape {flag.shape}; it must be one truth value")
        return flag

    def observe_one(self, state: Any) -> Any:
        """What a policy sees of a state, traceable."""
        return state if self._user_observe is None else self._user_observe(state)

    def available_one(self, state: Any) -> Array | None:
        """Which actions are legal, ``bool[A]``, traceable; None where all are."""
        if self._user_available is None or self.action_names is None:
            return None
        found = jnp.asarray(self._user_available(state))
        if found.shape != (len(self.action_names),) or found.dtype != bool:
            raise ModelError(
                f"available of {self.name} gives {found.dtype}{list(found.shape)}; it must be one truth value for each "
                f"of the {len(self.action_names)} actions"
            )
        return found

    @users_calls()
    def at(self, state: Any) -> JaxState:
        """The snapshot of a state."""
        if isinstance(state, JaxState):
            return state
        for leaf in jax.tree.leaves(state):
            refuse_traced(f"a state of {self.name}", leaf)
        given = as_arrays(state, f"this state of {self.name}")
        if self._types is not None:
            check_like(given, self._types, lambda: jax.eval_shape(self.observe_one, self._types), self.name)
        given = self._typed(given)
        return JaxState(on_host(given), np.asarray(self._ended(False, given)))

    @users_calls()
    def start(self, noise: Noise) -> JaxState:
        """A state to begin in."""
        return on_host(self._reset(noise.key))

    def step(self, state: Any, action: Action, noise: Noise) -> Outcome:
        """A query of one action."""
        return self.query(state, [action], noise)[0]

    @users_calls()
    def query(self, state: Any, actions: Sequence[Action], noise: Noise) -> list[Outcome]:
        """All actions under one key, one after the other: a program for several at once may round otherwise."""
        place = self.at(state)
        if place.is_over:
            return [Outcome(0.0, place) for _ in actions]
        chosen = self.as_actions(actions)
        self.types(chosen[0])
        self._check_legal(place, chosen)
        key, found = noise.key, []
        for i in range(len(chosen)):
            reward, after, ended = self._query(key, place.state, chosen[i])
            found.append((reward, JaxState(after, ended)))
        return [Outcome(float(reward), after) for reward, after in on_host(found)]

    @users_calls()
    def query_batch(self, keys: Array, states: JaxState, actions: Sequence[Action]) -> tuple[Array, JaxState]:
        """N queries at once: `keys` ``[N]``, snapshots stacked to ``[N, …]``, and m actions, the same for all, ``[m]``.

        Returns rewards ``[N, m]`` and snapshots ``[N, m, …]``, on the device.
        """
        chosen = self.as_actions(actions)
        self.types(chosen[0])
        return self._queries(keys, states, chosen)

    @users_calls()
    def sample(self, state: Any, actions: Sequence[Action], num_samples: int, seed: int = 0) -> Draws:
        """Independent samples of a query, the i-th under the noise of the i-th query of the protocol."""
        count, seed = checks.as_count("num_samples", num_samples), checks.as_count("seed", seed, 0)
        place = self.at(state)
        if place.is_over:
            return super().sample(place, actions, count, seed)
        self._check_legal(place, self.as_actions(actions))
        keys = jnp.stack([Noise("query", seed, i).key for i in range(count)])
        states = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *jnp.shape(leaf))), place)
        rewards, after = on_host(self.query_batch(keys, states, actions))
        rows = [
            tuple(jax.tree.map(lambda leaf, i=i, j=j: leaf[i, j], after) for j in range(len(actions)))
            for i in range(count)
        ]
        return Draws(np.asarray(rewards, dtype=np.float64), rows)

    @users_calls()
    def observe(self, state: Any) -> Any:
        """What a policy sees, as NumPy arrays."""
        return on_host(self._look(self.at(state).state))

    def is_over(self, state: Any) -> bool:
        """Whether the step that led here said so."""
        return bool(self.at(state).is_over)

    @users_calls()
    def identity(self, state: Any) -> Hashable:
        """The bytes of all leaves."""
        leaves = jax.tree.leaves(self.at(state))
        arrays = [np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf) for leaf in leaves]
        # 0.0 and −0.0 are one number, as they are to the batch engine.
        return b"".join((each + 0.0 if each.dtype.kind == "f" else each).tobytes() for each in arrays)

    @users_calls()
    def available(self, state: Any) -> Sequence[Action]:
        """The actions that can be taken in `state`; all of them where the episode is over."""
        place = self.at(state)
        if self._user_available is None or place.is_over:
            return super().available(state)
        found: list[Action] = np.flatnonzero(self._legal(place.state)).tolist()
        if not found:
            raise ModelError(f"available of {self.name} allows no action in a state that is not over")
        return found

    def _check_legal(self, place: JaxState, chosen: Any) -> None:
        if self._user_available is not None:
            for action in chosen:
                self._numbered(action, place)

    @users_calls()
    def random_action(self, rng: np.random.Generator) -> Action:
        """An action of the uniform policy."""
        if self._random is None or self.action_names is not None:
            return super().random_action(rng)
        return np.asarray(self._random(random_key(int(rng.integers(2**63)))))

    def policy_draw(self, noise: Noise) -> Array:
        """A key, so that a policy is the same function for one observation and for thousands at once."""
        return noise.key

    def as_actions(self, actions: Sequence[Action]) -> Any:
        """Actions stacked along a new first axis, as the environment takes them."""
        if self.action_names is not None:
            return np.array([self._numbered(action) for action in actions], dtype=np.int32)
        try:
            with users_calls():
                return jnp.asarray(np.stack([np.asarray(action) for action in actions]))
        except (TypeError, ValueError) as error:
            raise ModelError(f"actions of {self.name} must be arrays of one shape: {error}") from None

    def types(self, action: Any) -> Any:
        """The shapes and types of a state's leaves: those that a step leads from and to."""
        if self._types is None:
            try:
                with users_calls():
                    self._types = self._looked_at(action)
            except ModelError as error:
                raise ModelError(str(error)) from None  # without what JAX notes on errors that pass through it
            if self.frozen_noise:
                warnings.warn(self.frozen_noise, stacklevel=3)
        return self._types

    def _looked_at(self, action: Any) -> Any:
        """The types of states; on the way, which noise is not the key's, and what is wrong with keys."""
        key = random_key(0)
        found = jax.eval_shape(lambda k: self.reset_one(k).state, key)
        # A counter that starts as a whole number may go on as a fraction: the second step has the final types.
        first = StepProgram(self._moved, key, found, action, self.name)
        found = joined_types(found, first.types, self.name)
        second = StepProgram(self._moved, key, found, action, self.name)
        found = joined_types(found, second.types, self.name)
        first.check_constants(second)
        if hasattr(action, "shape") and not isinstance(action, jax.ShapeDtypeStruct):
            state = jax.tree.map(lambda leaf, like: jnp.asarray(leaf, like.dtype), self.reset_one(key).state, found)
            second.check_callbacks(lambda: self._moved(key, state, action))
        self.frozen_noise, self.key_faults = second.frozen_noise(), second.key_faults()
        self.frozen_start = frozen_start(self.reset_one, key, self.name)
        self.calls_back = second.calls_back
        return found

    def _typed(self, state: Any) -> Any:
        """`state` with the types of all states."""
        if self._types is None:
            return state
        return jax.tree.map(lambda leaf, like: jnp.asarray(leaf, dtype=like.dtype), state, self._types)

    def _query_many(self, keys: Array, states: JaxState, actions: Array) -> tuple[Array, JaxState]:
        each = jax.vmap(jax.vmap(self.step_one, (None, None, 0)), (0, 0, None))
        reward, new, ended = each(keys, states.state, actions)
        over = jnp.broadcast_to(states.is_over[:, None], reward.shape)

        def kept(old: Array, new: Array) -> Array:
            """Leaves ``[N, m, …]``; queries in states that are over stay there."""
            return jnp.where(over.reshape(*over.shape, *[1] * (new.ndim - 2)), old[:, None], new)

        return jnp.where(over, 0, reward), JaxState(jax.tree.map(kept, states.state, new), over | ended)


def on_host(tree: Any) -> Any:
    """All leaves as NumPy arrays; keys inside of states have no such form and stay as they are."""
    return jax.tree.map(lambda leaf: leaf if _is_key(leaf) else np.asarray(leaf), tree)


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


NO_ACTION = -1  # what the policy's mistakes come to: a step with it pays NaN, and the engine's caller says so
Form = Literal["constant", "uniform", "random", "table", "row", "action", "probabilities", "keyed"]


class UntraceableError(ModelError):
    """The policy works on one observation at a time only; simulate it with `rollouts`."""


@dataclass(frozen=True)
class Chooser:
    """A policy of one observation: its form, and the function it is made of where there is one."""

    form: Form
    num_actions: int | None
    key: Hashable = None
    """Equal for functions that do the same: they share a compiled program."""
    function: Callable[..., Any] | None = field(default=None, compare=False)

    def ask(self, observation: Any, key: Array) -> Any:
        """What the user's function says, in the user's precision; None where there is no function."""
        if self.function is None:
            return None
        given = {"random": (key,), "keyed": (observation, key)}.get(self.form, (observation,))
        return self.function(*given)

    def decide(self, data: Any, observation: Any, said: Any, uniform: Array, legal: Array | None) -> Array:
        """The action, given what `ask` returned; `data` is the policy's array or constant, where it is one."""
        if self.form == "constant":
            return data
        if self.form == "uniform":
            assert self.num_actions is not None
            allowed = jnp.ones(self.num_actions, dtype=bool) if legal is None else legal
            count = jnp.sum(allowed)
            place = jnp.minimum(jnp.floor(uniform * count), count - 1).astype(jnp.int32)
            return jnp.argmax(jnp.cumsum(allowed) > place).astype(jnp.int32)
        if self.form in ("table", "row"):
            is_inside = (observation >= 0) & (observation < len(data))
            row = data[jnp.clip(observation, 0, len(data) - 1)]
            found = inverted(row, uniform) if self.form == "table" else self._checked(row)
            return jnp.where(is_inside, found, NO_ACTION)
        return inverted(said, uniform) if self.form == "probabilities" else self._checked(said)

    def _checked(self, action: Any) -> Array:
        found = jnp.asarray(action)
        if self.num_actions is None:
            return found
        is_known = (found >= 0) & (found < self.num_actions) & (found == jnp.round(found))
        return jnp.where(is_known, found, NO_ACTION).astype(jnp.int32).reshape(())


def inverted(chances: Any, uniform: Array) -> Array:
    """An action by inversion, as in `as_agent`; `NO_ACTION` where these are no probabilities."""
    row = jnp.asarray(chances).reshape(-1).astype(uniform.dtype)
    is_law = jnp.all(row >= 0) & (jnp.abs(jnp.sum(row) - 1) <= SUM_TOLERANCE)
    return jnp.where(is_law, drawn_traced(row, uniform), NO_ACTION)


def as_chooser(policy: Any, simulator: JaxSimulator) -> tuple[Chooser, Any]:
    """A policy in one of the forms of `as_agent` as a traceable function, with its data; or an `UntraceableError`."""
    count = None if simulator.action_names is None else len(simulator.action_names)
    form, value = policy_form(policy, simulator)
    if form == "constant":
        return Chooser("constant", count), np.asarray(value)
    if form == "uniform" and count is not None:
        return Chooser("uniform", count), None
    if form == "uniform":
        draw = simulator._random
        if draw is None:
            return simulator.random_action(np.random.default_rng(0))  # which says that there is none
        return Chooser("random", None, function_key(draw.function), draw), None
    if form == "predicting":
        raise UntraceableError("a policy with predict(), or in time, is asked for one observation at a time")
    seen = jax.eval_shape(lambda key: simulator.observe_one(simulator.reset_one(key).state), random_key(0))
    if form == "function":
        return _traced(value, seen, simulator, count), None
    if form != "table" or value.dtype.kind == "b" or count is None:
        raise UntraceableError(f"JAX cannot trace a policy of the kind {type(policy).__name__}")
    leaves = jax.tree.leaves(seen)
    if len(leaves) != 1 or leaves[0].shape != () or not jnp.issubdtype(leaves[0].dtype, jnp.integer):
        raise ModelError(
            f"the policy is an array, but observations of {simulator.name} are no state numbers; give a function of "
            "the observation"
        )
    if value.ndim == 2 and value.shape[1] != count:
        raise ModelError(f"the policy has {value.shape[1]} columns for the {count} actions of {simulator.name}")
    return Chooser("table" if value.ndim == 2 else "row", count), value


def _traced(policy: Callable[..., Any], seen: Any, simulator: JaxSimulator, count: int | None) -> Chooser:
    is_keyed = takes_rng(policy)
    parts = ("observation", "key") if is_keyed else ("observation",)
    told = getattr(policy, "__name__", type(policy).__name__)
    asked = Guarded(policy, f"policy {told!r}", parts, policy_guess)
    asked.check_order()
    try:
        (leaf,) = jax.tree.leaves(jax.eval_shape(policy, *(seen, random_key(0))[: len(parts)]))
    except Exception as error:
        # Whatever a function does to a tracer that it was not written for; it may work on one observation at a time.
        asked(*(simulator.observe(simulator.reset()), Noise("check").key)[: len(parts)])
        raise UntraceableError(
            f"JAX cannot trace the policy {told!r} ({type(error).__name__}); "
            "written with jax.numpy, as f(observation) or f(observation, key), it would run thousands at once"
        ) from error
    gives_action = count is None or (leaf.size == 1 and leaf.ndim == 0)
    if not (is_keyed or gives_action) and leaf.size != count:
        raise ModelError(f"the policy gave {leaf.size} probabilities for the {count} actions of {simulator.name}")
    form: Form = "keyed" if is_keyed else "action" if gives_action else "probabilities"
    return Chooser(form, count, function_key(policy), asked)
