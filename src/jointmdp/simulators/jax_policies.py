"""Policies that JAX can trace, for simulating thousands of branches at once; others go through `agents`, one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jointmdp.errors import ModelError
from jointmdp.model.inversion import drawn_traced
from jointmdp.simulators.agents import SUM_TOLERANCE, arity
from jointmdp.simulators.jax_simulator import JaxSimulator

NO_ACTION = -1  # what the policy's mistakes come to: a step with it pays NaN, and the engine's caller says so


Form = Literal["constant", "uniform", "random", "table", "row", "action", "probabilities", "keyed"]


class UntraceableError(ModelError):
    """The policy works on one observation at a time only; simulate it with `rollouts`."""


class Same:
    """A function that is equal to itself only, so that any callable can name a compiled program."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.function is other.function

    def __hash__(self) -> int:
        return id(self.function)


@dataclass(frozen=True)
class Chooser:
    """A policy of one observation: its form, and the function it is made of where there is one."""

    form: Form
    num_actions: int | None
    function: Same | None = None

    def ask(self, observation: Any, key: Array) -> Any:
        """What the user's function says, in the user's precision; None where there is no function."""
        if self.function is None:
            return None
        if self.form == "random":
            return self.function.function(key)
        return self.function.function(observation, key) if self.form == "keyed" else self.function.function(observation)

    def decide(self, data: Any, observation: Any, said: Any, uniform: Array) -> Array:
        """The action, given what `ask` returned; `data` is the policy's array or constant, where it is one."""
        if self.form == "constant":
            return data
        if self.form == "uniform":
            assert self.num_actions is not None
            return jnp.minimum(jnp.floor(uniform * self.num_actions), self.num_actions - 1).astype(jnp.int32)
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
    """An action by inversion, as `agents` does it for one observation; `NO_ACTION` where these are no probabilities."""
    row = jnp.asarray(chances).reshape(-1).astype(uniform.dtype)
    is_law = jnp.all(row >= 0) & (jnp.abs(jnp.sum(row) - 1) <= SUM_TOLERANCE)
    return jnp.where(is_law, drawn_traced(row, uniform), NO_ACTION)


def as_chooser(policy: Any, simulator: JaxSimulator) -> tuple[Chooser, Any]:
    """A policy in one of the forms of `agents` as a traceable function, with its data; or an `UntraceableError`."""
    names = simulator.action_names
    count = None if names is None else len(names)
    if isinstance(policy, str) and policy == "uniform" and policy not in (names or ()):
        if count is not None:
            return Chooser("uniform", count), None
        if simulator._random is None:
            raise ModelError(f"the actions of {simulator.name} are not numbered, so a uniform policy is not defined")
        return Chooser("random", None, Same(simulator._random)), None
    if isinstance(policy, str | int | np.integer) and not isinstance(policy, bool):
        return Chooser("constant", count), np.asarray(simulator.action_index(policy))
    if callable(getattr(policy, "predict", None)):
        raise UntraceableError("a policy with predict() is asked for one observation at a time")
    if callable(policy):
        return _traced(policy, simulator, count), None
    array = np.asarray(policy)
    if count is not None and array.dtype.kind in "fiu" and array.ndim in (1, 2):
        return _tabular(array, simulator, count)
    raise UntraceableError(f"JAX cannot trace a policy of the kind {type(policy).__name__}")


def _observation(simulator: JaxSimulator) -> Any:
    key = jax.random.key(0)
    return jax.eval_shape(lambda k: simulator.observe_one(simulator.reset_one(k).state), key)


def _traced(policy: Callable[..., Any], simulator: JaxSimulator, count: int | None) -> Chooser:
    is_keyed = arity(policy) >= 2
    given = (_observation(simulator), jax.random.key(0)) if is_keyed else (_observation(simulator),)
    try:
        found = jax.eval_shape(policy, *given)
        (leaf,) = jax.tree.leaves(found)
    except Exception as error:
        # Whatever a function does to a tracer that it was not written for: the host engine will tell real mistakes.
        raise UntraceableError(
            f"JAX cannot trace the policy {getattr(policy, '__name__', policy)!r} ({type(error).__name__}); "
            "written with jax.numpy, as f(observation) or f(observation, key), it would run thousands at once"
        ) from error
    if is_keyed:
        return Chooser("keyed", count, Same(policy))
    if count is None or (leaf.size == 1 and leaf.ndim == 0):
        return Chooser("action", count, Same(policy))
    if leaf.size != count:
        raise ModelError(f"the policy gave {leaf.size} probabilities for the {count} actions of {simulator.name}")
    return Chooser("probabilities", count, Same(policy))


def _tabular(array: Any, simulator: JaxSimulator, count: int) -> tuple[Chooser, Any]:
    seen = _observation(simulator)
    leaves = jax.tree.leaves(seen)
    if len(leaves) != 1 or leaves[0].shape != () or not jnp.issubdtype(leaves[0].dtype, jnp.integer):
        raise ModelError(
            f"the policy is an array, but observations of {simulator.name} are no state numbers; give a function of "
            "the observation"
        )
    if array.ndim == 2 and array.shape[1] != count:
        raise ModelError(f"the policy has {array.shape[1]} columns for the {count} actions of {simulator.name}")
    return Chooser("table" if array.ndim == 2 else "row", count), array
