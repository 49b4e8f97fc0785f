"""States as users hold them, and what else they hand over: the live environment, and things taken for a state."""

import textwrap
from dataclasses import dataclass, field
from typing import Any

import gymnasium
from gymnasium import Env
from gymnasium.wrappers import TimeLimit

from jointmdp.errors import ModelError
from jointmdp.simulators.gymnasium.wrapper_stack import Scored, constants, copied, levels, wrapped_observation
from jointmdp.simulators.simulator import Outcome

# What environments call their method that returns the present observation.
OBSERVING = ("_get_obs", "_get_ob", "_get_observation", "get_observation", "gen_obs")


@dataclass(frozen=True, slots=True, eq=False)
class EnvState:
    """A moment of an environment: what restores it, and what it showed when it was reached."""

    kept: Any = field(repr=False)
    observation: Any
    is_over: bool
    available: tuple[int, ...] | None = field(default=None, repr=False)
    """The actions that the environment's mask allows; None where it gives no mask."""


class Unseen:
    """The observation of a captured environment that was not given and cannot be read."""


def present_observation(env: Env[Any, Any]) -> Any:
    """The present observation of a live environment, read from a copy of it; `Unseen` where it does not tell."""
    simple = (gymnasium.ObservationWrapper, gymnasium.ActionWrapper, gymnasium.RewardWrapper, TimeLimit, Scored)
    if not all(isinstance(level, simple) for level in levels(env)[1:]):
        return Unseen
    try:
        twin = copied(env, constants(env))
        inner: Any = twin.unwrapped
        if hasattr(inner, "P") and hasattr(inner, "s"):
            return wrapped_observation(twin, int(inner.s))
        method = next(getattr(inner, name) for name in OBSERVING if callable(getattr(inner, name, None)))
        found = wrapped_observation(twin, method())
    except Exception:  # a method of somebody else's, which may want something or fail in any way
        return Unseen
    return found if env.observation_space.contains(found) else Unseen


def check_same(env: Env[Any, Any], own: Env[Any, Any], name: str) -> None:
    """Whether a live environment is of the same kind as a simulator's own."""
    theirs, ours = (" in ".join(type(level).__name__ for level in levels(one)) for one in (env, own))
    if theirs != ours or env.action_space != own.action_space:
        raise ModelError(
            f"this is another environment than that of {name}: {theirs} with actions {env.action_space}, not {ours} "
            f"with {own.action_space}"
        )


def mistaken_for(state: Any, env: Env[Any, Any], name: str) -> str:
    """What was given instead of a state of an environment, as far as one can tell."""
    if isinstance(state, Env):
        return "this is an environment, not a state of it; simulator.capture(env) takes its present state"
    if isinstance(state, Outcome):
        return "this is an outcome of a query; its state is outcome.state"
    is_reset = isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict)
    try:
        is_seen = env.observation_space.contains(state[0] if is_reset else state)
    except Exception:  # spaces may ask anything of what they are given
        is_seen = False
    said = textwrap.shorten(repr(state), 80, placeholder=" …")
    if is_seen:
        return f"{said} is an observation of {name}, which does not tell the whole state"
    return f"{said} is no state of {name}"
