"""A Gymnasium environment as a stack of levels: the environment itself, then each wrapper around it.

State may sit in every level (a time limit counts steps, a frame stack keeps frames), so what is kept of an environment
is kept level by level.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import types
import weakref
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Env, Space, wrappers
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.ezpickle import EzPickle

from jointmdp.errors import ModelError
from jointmdp.model.joint_mdp import JointMDP

Memo = dict[int, Any]

# They check the calls, write down what happened or show it. None changes what a step brings, and the wall clock and the
# sums that some of them keep would make equal states look different.
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
PLAIN = (int, float, bool, str, bytes, complex, types.NoneType)  # values that cannot change
# Attributes that are no state: how the environment was made, and what every episode has in common.
_SETUP_OF_ENVS = ("spec", "metadata", "render_mode", "action_space", "observation_space", "_np_random_seed")
_SETUP_OF_WRAPPERS = ("env", "_cached_spec", "_metadata", "_action_space", "_observation_space", "_saved_kwargs")
REACH, MOST_OBJECTS = 4, 5_000  # how deep and how far functions are searched for
SETUP = frozenset((*_SETUP_OF_ENVS, *_SETUP_OF_WRAPPERS, "_ezpickle_args", "_ezpickle_kwargs"))


def levels(env: Env[Any, Any]) -> list[Env[Any, Any]]:
    """The environment inside, then the wrappers around it from the inside out."""
    found = [env]
    while isinstance(found[-1], gymnasium.Wrapper):
        found.append(found[-1].env)
    return found[::-1]


def taken_over(env: Any, time_limit: bool) -> Env[Any, Any]:
    """The environment with the wrappers that matter, in a stack of its own; it shows nothing any more."""
    if not isinstance(env, Env):
        raise ModelError(
            f"{type(env).__name__} is no gymnasium.Env; give an environment or its id, a single one (not a vector)"
        )
    inner, *outer = levels(env)
    inner.render_mode = None
    dropped = BYSTANDERS if time_limit else (*BYSTANDERS, wrappers.TimeLimit)
    successor: Memo = {}  # by the level that was, the one that stands in its place
    for level in outer:
        if not isinstance(level, dropped):
            own: Any = level
            if has_plain_state(level):
                own = object.__new__(type(level))
                vars(own).update(vars(level))
            # A wrapper may know a level by a name of its own beside `env`.
            for name, value in vars(own).items():
                if id(value) in successor:
                    vars(own)[name] = successor[id(value)]
            own.env = inner
            inner = own
        successor[id(level)] = inner
    return inner


def has_plain_state(level: Any) -> bool:
    """Whether an object's attributes are all there is to copy, as far as its class says."""
    kind: Any = type(level)
    return _has_plain_state(kind)


@functools.cache
def _has_plain_state(kind: Any) -> bool:
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
    memo = dict(shared)
    stack = levels(env)
    plain = [has_plain_state(level) for level in stack]
    for level, is_plain in zip(stack, plain, strict=True):
        if is_plain:  # known before the first is filled, since levels may point to each other
            memo[id(level)] = object.__new__(type(level))
    for level, is_plain in zip(stack, plain, strict=True):
        if is_plain:
            copy_attributes(level, memo[id(level)], memo)
        else:
            memo[id(level)] = copy.deepcopy(level, memo)
    return memo[id(env)]


def copy_attributes(source: Any, target: Any, memo: Memo) -> None:
    """Deep copies of the attributes of one object as the attributes of another."""
    held = vars(target)
    for name, value in vars(source).items():
        held[name] = copied_value(value, memo)


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


def state_of(level: Any, skipped: frozenset[str] = SETUP, shared: Memo | None = None) -> dict[str, Any]:
    """The attributes of a level that may be state, copied, except for what the memo `shared` says."""
    memo: Memo = dict(shared or {})
    return {name: copied_value(value, memo) for name, value in vars(level).items() if name not in skipped}


def set_state_of(
    level: Any, state: dict[str, Any], skipped: frozenset[str] = SETUP, shared: Memo | None = None
) -> None:
    """Give a level the attributes that `state_of` took, and no others."""
    memo: Memo = dict(shared or {})
    held = vars(level)
    for name in held.keys() - state.keys() - skipped:
        del held[name]
    for name, value in state.items():
        held[name] = copied_value(value, memo)


def tied_function(env: Env[Any, Any]) -> str | None:
    """An attribute whose function or weak reference points back into the environment, or None.

    Deep copies take functions as they are, so that those of a copy would act on the original.
    """
    stack = levels(env)
    own = {id(level) for level in stack}
    queue: list[tuple[str, Any, int]] = [(type(level).__name__, level, 0) for level in stack]
    held: list[tuple[str, Any]] = []
    seen = set(own)
    for where, owner, depth in queue:
        items = owner.items() if isinstance(owner, dict) else vars(owner).items() if hasattr(owner, "__dict__") else ()
        items = enumerate(owner) if isinstance(owner, list | tuple) else items
        for name, value in items:
            place = f"{where}.{name}"
            if isinstance(value, types.FunctionType | functools.partial | weakref.ref):
                held.append((place, value))
                continue
            is_data = isinstance(value, (*PLAIN, np.ndarray, Space, EnvSpec, type, types.ModuleType))
            if not is_data and id(value) not in seen and depth < REACH and len(seen) < MOST_OBJECTS:
                seen.add(id(value))
                queue.append((place, value, depth + 1))
    return next((place for place, value in held if any(id(each) in seen for each in _reached(value))), None)


def _reached(value: Any) -> Iterator[Any]:
    """What a function or weak reference holds on to."""
    if isinstance(value, weakref.ref):
        yield value()
    elif isinstance(value, functools.partial):
        yield from (*value.args, *value.keywords.values())
        yield getattr(value.func, "__self__", None)
    else:
        for cell in value.__closure__ or ():
            with contextlib.suppress(ValueError):  # a cell that is not filled yet
                yield cell.cell_contents
        yield from value.__defaults__ or ()


def spaces_of(env: Env[Any, Any]) -> Iterator[tuple[int, str, Space[Any]]]:
    """The spaces that the levels hold, with the level's number and the attribute's name."""
    for number, level in enumerate(levels(env)):
        for name, value in vars(level).items():
            if isinstance(value, Space):
                yield number, name, value
