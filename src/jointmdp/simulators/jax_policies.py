"""Policies that JAX can trace, for simulating thousands of branches at once; `as_agent` is for one branch at a time."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jointmdp.arrays import random_key
from jointmdp.checks import SUM_TOLERANCE
from jointmdp.errors import ModelError
from jointmdp.model.inverse_sampling import drawn_traced
from jointmdp.simulators.function_keys import function_key
from jointmdp.simulators.jax_simulator import JaxSimulator
from jointmdp.simulators.jax_tracing import Guarded, policy_guess
from jointmdp.simulators.noise import Noise
from jointmdp.simulators.simulator import policy_form, takes_rng

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
        if simulator._random is None:
            raise ModelError(f"the actions of {simulator.name} are not numbered, so a uniform policy is not defined")
        return Chooser("random", None, function_key(simulator._random.function), simulator._random), None
    if form == "predicting":
        raise UntraceableError("a policy with predict() is asked for one observation at a time")
    if form == "function":
        return _traced(value, simulator, count), None
    if form == "table" and value.dtype.kind != "b" and count is not None:
        return _tabular(value, simulator, count)
    raise UntraceableError(f"JAX cannot trace a policy of the kind {type(policy).__name__}")


def _observation(simulator: JaxSimulator) -> Any:
    key = random_key(0)
    return jax.eval_shape(lambda k: simulator.observe_one(simulator.reset_one(k).state), key)


def _traced(policy: Callable[..., Any], simulator: JaxSimulator, count: int | None) -> Chooser:
    is_keyed = takes_rng(policy)
    parts = ("observation", "key") if is_keyed else ("observation",)
    told = getattr(policy, "__name__", type(policy).__name__)
    asked = Guarded(policy, f"policy {told!r}", parts, policy_guess(policy))
    asked.check_order()
    seen = _observation(simulator)
    try:
        found = jax.eval_shape(policy, *(seen, random_key(0))[: len(parts)])
        (leaf,) = jax.tree.leaves(found)
    except Exception as error:
        # Whatever a function does to a tracer that it was not written for; it may work on one observation at a time.
        asked(*(simulator.observe(simulator.reset()), Noise("check").key)[: len(parts)])
        raise UntraceableError(
            f"JAX cannot trace the policy {told!r} ({type(error).__name__}); "
            "written with jax.numpy, as f(observation) or f(observation, key), it would run thousands at once"
        ) from error
    key = function_key(policy)
    if is_keyed:
        return Chooser("keyed", count, key, asked)
    if count is None or (leaf.size == 1 and leaf.ndim == 0):
        return Chooser("action", count, key, asked)
    if leaf.size != count:
        raise ModelError(f"the policy gave {leaf.size} probabilities for the {count} actions of {simulator.name}")
    return Chooser("probabilities", count, key, asked)


def _tabular(array: Any, simulator: JaxSimulator, count: int) -> tuple[Chooser, Any]:
    leaves = jax.tree.leaves(_observation(simulator))
    if len(leaves) != 1 or leaves[0].shape != () or not jnp.issubdtype(leaves[0].dtype, jnp.integer):
        raise ModelError(
            f"the policy is an array, but observations of {simulator.name} are no state numbers; give a function of "
            "the observation"
        )
    if array.ndim == 2 and array.shape[1] != count:
        raise ModelError(f"the policy has {array.shape[1]} columns for the {count} actions of {simulator.name}")
    return Chooser("table" if array.ndim == 2 else "row", count), array
