"""Environments of gymnax: their `step_env` takes an explicit key and does not begin a new episode by itself."""

import importlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jointmdp.checks import Sharing
from jointmdp.errors import ModelError
from jointmdp.simulators.jax_simulator import JaxSimulator


class Seen(NamedTuple):
    """The state of an environment whose observations are not a function of it: the last one belongs to it."""

    state: Any
    observation: Any


def gymnax_simulator(
    environment: Any,
    params: Any = None,
    *,
    time_limit: bool = True,
    discount: float = 1.0,
    sharing: Sharing = "time",
    reward_bounds: tuple[float, float] | None = None,
    **options: Any,
) -> JaxSimulator:
    """A simulator from the name of a gymnax environment, from an environment, or from its pair with parameters.

    Args:
        environment: ``"CartPole-v1"``, or what ``gymnax.make`` returned.
        params: the environment's parameters; by default its own.
        time_limit: whether an episode is over at the environment's limit of steps (``is_truncated``), or only where
            it ends by itself. Without the limit an endless task needs a discount below 1 or a horizon.
        options: for ``gymnax.make``, where a name is given.
        discount, sharing, reward_bounds: as in `Simulator`.
    """
    env, given = _made(environment, options)
    settings = params if params is not None else given if given is not None else env.default_params
    space = env.action_space(settings)
    count = getattr(space, "n", None)
    is_carried = _needs_more_than_state(env, settings)

    def held(state: Any, observation: Any) -> Any:
        return Seen(state, observation) if is_carried else state

    def reset(key: Array) -> Any:
        observation, state = env.reset_env(key, settings)
        return held(state, observation)

    def step(key: Array, state: Any, action: Any) -> tuple[Any, Any, Any]:
        before = state.state if is_carried else state
        observation, after, reward, is_over, _ = env.step_env(key, before, action, settings)
        if time_limit:
            is_over = jnp.logical_or(is_over, env.is_truncated(after, settings))
        return reward, held(after, observation), is_over

    def observe(state: Any) -> Any:
        return state.observation if is_carried else env.observe(jax.random.key(0), state, None, settings)

    return JaxSimulator(
        step,
        reset,
        actions=None if count is None else int(count),
        observe=observe,
        random_action=space.sample,
        discount=discount,
        sharing=sharing,
        reward_bounds=reward_bounds,
        name=f"gymnax:{env.name}",
    )


def _made(environment: Any, options: dict[str, Any]) -> tuple[Any, Any]:
    if isinstance(environment, str):
        try:
            gymnax = importlib.import_module("gymnax")
        except ImportError as error:
            raise ImportError("environments of gymnax need it installed: pip install 'jointmdp[gymnax]'") from error
        try:
            env, params = gymnax.make(environment.removeprefix("gymnax:"), **options)
        except ValueError as error:
            known = ", ".join(gymnax.registered_envs)
            raise ModelError(f"gymnax cannot make {environment!r}: {error} It knows {known}.") from None
        return env, params
    if options:
        raise ModelError(f"options such as {next(iter(options))} are for environments given by name")
    env, params = environment if isinstance(environment, tuple) else (environment, None)
    if not callable(getattr(env, "step_env", None)):
        raise ModelError(f"{env!r} is no gymnax environment: it has no step_env")
    return env, params


def _needs_more_than_state(env: Any, settings: Any) -> bool:
    """Whether observations depend on a key or an action, or can only be had from a step."""
    key = jax.random.key(0)
    state = jax.eval_shape(lambda k: env.reset_env(k, settings)[1], key)
    action = jax.eval_shape(env.action_space(settings).sample, key)
    try:
        traced = jax.make_jaxpr(lambda k, a, s: env.observe(k, s, a, settings))(key, action, state)
    except Exception:
        # Whatever an environment without a usable `observe` raises; its steps still show an observation.
        return True
    # What depends on the key or the action: every result of an operation that reads something that does.
    reached = set(traced.jaxpr.invars[: 1 + len(jax.tree.leaves(action))])
    for operation in traced.jaxpr.eqns:
        if any(_is_in(read, reached) for read in operation.invars):
            reached.update(operation.outvars)
    return any(_is_in(shown, reached) for shown in traced.jaxpr.outvars)


def _is_in(atom: Any, found: set[Any]) -> bool:
    return not hasattr(atom, "val") and atom in found  # literals have a value and no name
