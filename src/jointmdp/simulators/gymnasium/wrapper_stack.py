"""A Gymnasium environment as a stack of levels: the environment itself, then each wrapper around it.

State may sit in every level (a time limit counts steps, a frame stack keeps frames), so what is kept of an environment
is kept level by level.
"""

import contextlib
import copy
import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Env, Space, wrappers
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.ezpickle import EzPickle

from jointmdp.errors import ModelError
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.simulators import object_graph
from jointmdp.simulators.fingerprints import fingerprint
from jointmdp.simulators.object_graph import CLOSED, FUNCTIONS, LIBRARIES, PLAIN, Path, path_text, walk

Memo = dict[int, Any]

# They check the calls, write down what happened or show it. None changes the outcome of a step, and the wall clock and
# the sums that some of them keep would make equal states look different.
BYSTANDERS = tuple(
    getattr(wrappers, name)
    for name in (
        "Autoreset",
        "HumanRendering",
        "OrderEnforcing",
        "PassiveEnvChecker",
        "RecordEpisodeStatistics",
        "RecordVideo",
        "RenderCollection",
    )
    if hasattr(wrappers, name)
)
# Attributes that are no state: how the environment was made, and what every episode has in common.
_SETUP_OF_ENVS = ("spec", "metadata", "render_mode", "action_space", "observation_space", "_np_random_seed")
_SETUP_OF_WRAPPERS = ("env", "_cached_spec", "_metadata", "_action_space", "_observation_space", "_saved_kwargs")
REACH, MOST_OBJECTS = 5, 5_000  # how deep and how far functions are searched for
SETUP = frozenset((*_SETUP_OF_ENVS, *_SETUP_OF_WRAPPERS, "_ezpickle_args", "_ezpickle_kwargs"))


def levels(env: Env[Any, Any]) -> list[Env[Any, Any]]:
    """The environment inside, then the wrappers around it from the inside out."""
    found = [env]
    while isinstance(found[-1], gymnasium.Wrapper):
        found.append(found[-1].env)
    return found[::-1]


def taken_over(env: Any, time_limit: bool) -> Env[Any, Any]:
    """The environment with the wrappers that matter, in a stack of its own."""
    if not isinstance(env, Env):
        is_old = any(base.__module__.split(".")[0] == "gym" for base in type(env).__mro__)
        raise ModelError(
            f"{type(env).__name__} is no gymnasium.Env; "
            + (
                "it is an environment of the older gym package: wrap it (pip install shimmy; "
                "shimmy.GymV26CompatibilityV0(env=env), GymV21CompatibilityV0 where step returns four values)"
                if is_old
                else "give an environment or its id, a single one (not a vector)"
            )
        )
    inner, *outer = levels(env)
    dropped = BYSTANDERS if time_limit else (*BYSTANDERS, wrappers.TimeLimit)
    successor: Memo = {}  # by the level that was, the one that stands in its place
    for level in outer:
        if not isinstance(level, dropped):
            own: Any = level
            if has_plain_state(type(level)):  # type: ignore[arg-type]
                own = object.__new__(type(level))
                vars(own).update(vars(level))
            # A wrapper may know a level by a name of its own beside `env`, or through a function.
            successor[id(level)] = own
            for name, value in vars(own).items():
                vars(own)[name] = successor.get(id(value), rebound(value, successor))
            own.env = inner
            inner = own
        successor[id(level)] = inner
    return inner


@functools.cache
def has_plain_state(kind: Any) -> bool:
    """Whether the attributes of an object are all there is to copy, as far as its class says."""
    # `EzPickle` says otherwise and is not believed: its copies are new objects from the constructor's arguments,
    # without the state.
    return bool(
        not hasattr(kind, "__deepcopy__")
        and kind.__reduce_ex__ is object.__reduce_ex__
        and kind.__reduce__ is object.__reduce__
        and kind.__getstate__ in (object.__getstate__, EzPickle.__getstate__)
        and not any(base.__dict__.get("__slots__") for base in kind.__mro__)
    )


def constants(env: Env[Any, Any]) -> Memo:
    """What all copies of an environment may share, as the memo of a deep copy."""
    found: Memo = {}
    for level in levels(env):
        for name, value in vars(level).items():
            is_fixed = isinstance(value, np.ndarray) and not value.flags.writeable
            is_table = name == "P" and isinstance(value, dict) and hasattr(level, "s")  # as toy-text has it
            is_setup = name in SETUP and name != "env"
            if is_fixed or is_table or is_setup or isinstance(value, Space | EnvSpec | JointMDP):
                found[id(value)] = value
    return found


def copied(env: Env[Any, Any], shared: Memo) -> Env[Any, Any]:
    """A deep copy of all levels, except for what the memo `shared` says."""
    stack = levels(env)
    # All are known before the first is filled, since levels may point to each other.
    plain = {id(level): object.__new__(type(level)) for level in stack if has_plain_state(type(level))}  # type: ignore[arg-type]
    memo = shared | plain
    functions = []
    for level in stack:
        if id(level) not in plain:
            memo[id(level)] = copy.deepcopy(level, memo)
            continue
        held = vars(plain[id(level)])
        held.update(vars(level))
        for name, value in vars(level).items():
            kind = type(value)
            if kind in PLAIN:
                continue
            held[name] = copied_value(value, memo)
            if kind is types.FunctionType and value.__closure__:
                functions.append((held, name))
    for held, name in functions:  # when all that they may close over is copied
        held[name] = rebound(held[name], memo)
    return memo[id(env)]


def rebound(value: Any, successor: Memo) -> Any:
    """A function that closes over parts of an environment, closing over their successors; anything else as it is.

    Gymnasium's own wrappers hold such functions: ``lambda obs: flatten(env.observation_space, obs)``.
    """
    if type(value) is not types.FunctionType or not value.__closure__:
        return value
    held = {link.name: part for link, part in object_graph.held(value) if link.kind == "closure"}
    if not any(id(part) in successor for part in held.values()):
        return value
    cells = [
        types.CellType(successor.get(id(held[name]), held[name])) if name in held else cell
        for name, cell in zip(value.__code__.co_freevars, value.__closure__, strict=True)
    ]
    found = types.FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, tuple(cells))
    found.__kwdefaults__, found.__qualname__ = value.__kwdefaults__, value.__qualname__
    return found


def copied_value(value: Any, memo: Memo) -> Any:
    """A deep copy, with the short way for what most attributes are."""
    kind = type(value)
    if kind in PLAIN:
        return value
    found = memo.get(id(value))
    if found is not None:
        return found
    if kind is np.ndarray and value.dtype.kind != "O":
        found = memo[id(value)] = value.copy(order="K")
        return found
    return copy.deepcopy(value, memo)


def state_of(level: Any, skipped: frozenset[str], shared: Memo) -> dict[str, Any]:
    """The attributes of a level that may be state, copied, except for what the memo `shared` says."""
    return _copies({name: value for name, value in vars(level).items() if name not in skipped}, shared)


def set_state_of(level: Any, state: dict[str, Any], skipped: frozenset[str], shared: Memo) -> None:
    """Give a level the attributes that `state_of` took, and no others."""
    held = vars(level)
    for name in [name for name in held if name not in state and name not in skipped]:
        del held[name]
    held.update(_copies(state, shared))


def _copies(state: dict[str, Any], shared: Memo) -> dict[str, Any]:
    if all(type(value) in PLAIN for value in state.values()):  # as in most wrappers
        return state.copy()
    memo = dict(shared)
    return {name: copied_value(value, memo) for name, value in state.items()}


class Scored(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Pays what weights or a function of the user make of a reward of several numbers."""

    def __init__(self, env: Env[Any, Any], reward: Callable[[Any], float] | Sequence[float]) -> None:
        super().__init__(env)
        self.reward: Any = reward if callable(reward) else np.asarray(reward, dtype=np.float64)

    def step(self, action: Any) -> Any:
        found: Any = self.env.step(action)
        observation, reward, *rest = found
        if callable(self.reward):
            return observation, self.reward(reward), *rest
        if np.shape(reward) != self.reward.shape:
            raise ModelError(f"reward= has {self.reward.size} weights, but what it pays is {reward!r}")
        return observation, float(self.reward @ np.asarray(reward)), *rest


def wrapped_observation(env: Env[Any, Any], observation: Any) -> Any:
    """What the observation wrappers make of an observation of the environment inside."""
    for level in levels(env)[1:]:
        if isinstance(level, gymnasium.ObservationWrapper):
            observation = level.observation(observation)
    return copied_value(observation, {})


def copy_fault(env: Env[Any, Any]) -> str | None:
    """Why a copy of an environment would do harm to the original, or is not like it, or None."""
    closing = _closing_part(env)
    if closing is not None:
        return f"{closing} has a __del__, which would run for every copy that is given up"
    tied = _tied_function(env)
    if tied is not None:
        return f"the function {tied} holds on to the environment itself, and its copy would act on the original"
    lost = _lost_part(env)
    if lost is not None:
        return f"a copy has another {lost} than the original"
    return None


def _closing_part(env: Env[Any, Any]) -> str | None:
    """A part with a ``__del__`` of its own, which may close what the original goes on using, or None."""
    stack = levels(env)
    for path, _, value in walk(stack, _is_copied, REACH, MOST_OBJECTS):
        has_own = isinstance(getattr(type(value), "__del__", None), types.FunctionType)
        if has_own and type(value).__module__.split(".")[0] not in (*LIBRARIES, "gymnasium"):
            return path_text(path[1:], type(stack[path[0].name]).__name__)
    return None


def _tied_function(env: Env[Any, Any]) -> str | None:
    """An attribute whose function or weak reference points back into the environment, or None.

    Deep copies take functions as they are, so that those of a copy would act on the original.
    """
    stack = levels(env)
    inside: set[int] = set()
    functions: list[tuple[Path, Any]] = []
    for path, _, value in walk(stack, _is_copied, REACH, MOST_OBJECTS):
        if isinstance(value, FUNCTIONS):
            functions.append((path, value))
        elif _is_copied(value) and not isinstance(value, tuple):  # Python has one empty tuple for all
            inside.add(id(value))
    for path, function in functions:
        is_rebound = len(path) == 2 and has_plain_state(type(stack[path[0].name]))  # type: ignore[arg-type]
        held = list(object_graph.held(function))
        parts = [part for link, part in held if not (is_rebound and link.kind == "closure" and id(part) in inside)]
        reached = walk(parts, lambda value: isinstance(value, (*FUNCTIONS, types.MethodType, tuple, dict)), 3)
        if any(id(value) in inside for _, _, value in reached):
            return path_text(path[1:], type(stack[path[0].name]).__name__)
    return None


def _lost_part(env: Env[Any, Any]) -> str | None:
    """An attribute that a copy has otherwise, where a class says itself how it is copied, or None.

    All copies may be wrong in the same way, so that comparing them with each other shows nothing. What a copy does not
    have at all was left out on purpose: a viewer, a window.
    """
    numbers = [i for i, level in enumerate(levels(env)) if not has_plain_state(type(level))]  # type: ignore[arg-type]
    with contextlib.suppress(Exception):  # whatever copying raises is said where a copy is needed
        stack, others = levels(env), levels(copied(env, constants(env))) if numbers else []
        for number in numbers:
            kept, found = vars(stack[number]), vars(others[number])
            for name in sorted(kept.keys() - SETUP):
                if found.get(name) is not None and fingerprint(kept[name]) != fingerprint(found[name]):
                    return f"{type(stack[number]).__name__}.{name}"
    return None


def _is_copied(value: Any) -> bool:
    # What says itself how it is copied (a data frame) is believed.
    has_own = hasattr(type(value), "__deepcopy__") and not isinstance(value, Env)
    return not (has_own or isinstance(value, (*CLOSED, *FUNCTIONS, type, Space, EnvSpec)))
