"""Simulators from JAX packages: gymnax and its like (craftax), and mdpax.

gymnax's `step_env` takes an explicit key and does not begin a new episode by itself. Problems of mdpax are simulators
where their outcomes are too many to list: a table of one state at a time.
"""

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jointmdp.ground.arrays import random_key, users_calls
from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import ModelError
from jointmdp.model.from_mdpax import ListedProblem, labels
from jointmdp.simulation.simulators.jax_programs import used_inputs
from jointmdp.simulation.simulators.jax_simulator import JaxSimulator, JaxState


class Seen(NamedTuple):
    """The state of an environment whose observations are not a function of it: the last one belongs to it."""

    state: Any
    observation: Any


@users_calls()
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
        environment: ``"CartPole-v1"``, what ``gymnax.make`` returned, or an environment of the same form.
        params: the environment's parameters; by default its own.
        time_limit: whether an episode is over at the environment's limit of steps (``is_truncated``), or only where
            it ends by itself. Without the limit an endless task needs a discount below 1 or a horizon.
        options: for ``gymnax.make``, where a name is given.
        discount, sharing, reward_bounds: as in `Simulator`.
    """
    env, given = _made(environment, options)
    needed = ["reset_env", "step_env", "action_space", *["default_params"] * (params is None and given is None)]
    missing = [part for part in needed if not hasattr(env, part)]
    if missing:
        many = " (it has several agents, and a simulator has one)" * hasattr(env, "agents")
        raise ModelError(
            f"{type(env).__name__} is no environment of gymnax's form: it has no {', no '.join(missing)}{many}; give "
            "its functions to JaxSimulator(step, reset, actions=…)"
        )
    settings = params if params is not None else given if given is not None else env.default_params
    space = env.action_space(settings)
    count = getattr(space, "n", None)
    look = _look(env, settings)
    is_cut = callable(getattr(env, "is_truncated", None))
    if not is_cut and not time_limit:
        raise ModelError(f"{env.name} does not tell its limit of steps from an end, so it cannot be taken away")

    def held(state: Any, observation: Any) -> Any:
        return Seen(state, observation) if look is None else state

    def reset(key: Array) -> Any:
        observation, state = env.reset_env(key, settings)
        return held(state, observation)

    def step(key: Array, state: Any, action: Any) -> tuple[Any, Any, Any]:
        before = state.state if look is None else state
        observation, after, reward, is_over, _ = env.step_env(key, before, action, settings)
        if time_limit and is_cut:
            is_over = jnp.logical_or(is_over, env.is_truncated(after, settings))
        return reward, held(after, observation), is_over

    def observe(state: Any) -> Any:
        return state.observation if look is None else look(random_key(0), None, state)

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


def _look(env: Any, settings: Any) -> Callable[[Any, Any, Any], Any] | None:
    """What shows a state, from a key, an action and the state; None where it depends on more than the state."""
    key = random_key(0)
    state = jax.eval_shape(lambda k: env.reset_env(k, settings)[1], key)
    action = jax.eval_shape(env.action_space(settings).sample, key)
    # gymnax itself, and environments written for older versions of it (craftax).
    looks = (lambda k, a, s: env.observe(k, s, a, settings), lambda k, a, s: env.get_obs(s))
    for look in looks:
        try:
            traced = jax.make_jaxpr(look)(key, action, state)
        except Exception:
            # Whatever an environment without a usable function raises; its steps still show an observation.
            continue
        is_of_state = not any(used_inputs(traced)[: 1 + len(jax.tree.leaves(action))])
        return look if is_of_state else None
    return None


class MdpaxSimulator(JaxSimulator):
    """A `JaxSimulator` whose states are vectors, which may also be given as tuples or lists."""

    def at(self, state: Any) -> JaxState:
        """The snapshot of a state."""
        return super().at(state if isinstance(state, JaxState) else np.asarray(state))


@users_calls()
def mdpax_simulator(
    problem: Any,
    discount: float,
    sharing: Sharing = "time",
    *,
    start: Any = None,
    reward_bounds: tuple[float, float] | None = None,
) -> JaxSimulator:
    """A simulator from an mdpax problem.

    A step draws one uniform and takes the first event whose cumulative chance exceeds it, so actions are coupled as by
    the comonotone coupling of `from_mdpax`. Snapshots hold state vectors, as in ``simulator.at((4, 0, 4, 0))``. A
    policy sees the state's number: what `mdpax_policy` gives is one, and so are arrays ``[S]`` or ``[S, A]`` over the
    problem's states.

    Args:
        problem: for example ``mdpax.problems.HendrixTwoProductPerishable()``.
        discount, sharing, reward_bounds: as in `Simulator`.
        start: the state vector that episodes begin in; by default the problem's first.
    """
    listed = ListedProblem(problem)
    actions, events = jnp.asarray(listed.actions), jnp.asarray(listed.events)
    begin = listed.states[0 if start is None else int(listed.state_numbers(start)[0])]

    def step(key: Array, state: Any, action: Any) -> tuple[Any, Any]:
        act = actions[action]
        chances = jax.vmap(problem.random_event_probability, (None, None, 0))(state, act, events).reshape(-1)
        ends = jnp.cumsum(chances)
        place = jnp.sum(ends <= jax.random.uniform(key, dtype=ends.dtype) * ends[-1])
        # A product that is rounded up to the whole sum lies behind the last possible event.
        last = len(chances) - 1 - jnp.argmax(chances[::-1] > 0)
        after, reward = problem.transition(state, act, events[jnp.minimum(place, last)])
        return jnp.reshape(reward, ()), jnp.reshape(after, state.shape)

    return MdpaxSimulator(
        step,
        np.asarray(begin),
        actions=labels(listed.actions),
        observe=lambda state: jnp.asarray(problem.state_to_index(state)).reshape(()),
        discount=discount,
        sharing=sharing,
        reward_bounds=reward_bounds,
        name=f"mdpax:{getattr(problem, 'name', type(problem).__name__)}",
    )
