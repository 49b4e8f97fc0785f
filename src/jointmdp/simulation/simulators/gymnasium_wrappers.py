"""A Gymnasium environment as a stack of levels: the environment itself, then each wrapper around it.

State may sit in every level (a time limit counts steps, a frame stack keeps frames), so an environment is copied level
by level, and what may go wrong with a copy is looked for level by level. Beside it stands what users hand over: ids of
environments, names of actions, live environments, and things taken for a state. Whatever somebody else's environment
raises becomes one error that says whose it is.
"""

import contextlib
import copy
import functools
import sys
import textwrap
import traceback
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from importlib import metadata
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Env, Space, wrappers
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.ezpickle import EzPickle
from gymnasium.wrappers import TimeLimit

from jointmdp.ground.errors import ModelError
from jointmdp.model.from_mdp import TOY_TEXT_ACTIONS
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.simulation.simulators import fingerprints
from jointmdp.simulation.simulators.fingerprints import FUNCTIONS, PLAIN, fingerprint, walk
from jointmdp.simulation.simulators.simulator import Outcome

WHOSE = (
    "does it do so by itself, without a simulator? If not, its state is not restored as it should be: "
    'try state="replay", or give get_state= and set_state='
)


TRIAL = "a trial (a reset and some random steps)"
CONSTRAINED = (
    "if it takes only some of its actions in this state, say which: info['action_mask'] of reset and step, with a 1 "
    "for each action that it takes (a wrapper can add it). Otherwise: "
)


def named_error(error: Exception, name: str, moment: str) -> ModelError:
    """An error that says which environment it comes from, and what that was doing."""
    if isinstance(error, ModelError):
        return ModelError(f"{name}, {moment}: {error}")
    frames = [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]
    advice = CONSTRAINED * (moment == TRIAL and "step" in frames)
    return ModelError(f"{name} failed in {moment}: {error_text(error)}; {advice}{WHOSE}")


@contextmanager
def named_errors(name: str, moment: str) -> Iterator[None]:
    """The same for all errors that are raised inside."""
    try:
        yield
    except Exception as error:
        raise named_error(error, name, moment) from error


def error_text(error: Exception) -> str:
    """An error's kind and message."""
    return f"{type(error).__name__}: {error}".rstrip(": ")


def attempt(call: Callable[[], Any]) -> Any:
    """What a call returns; None if it fails, as copying may in any way that an environment's author left open."""
    try:
        return call()
    except Exception:
        return None


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


def twin(env: Env[Any, Any]) -> Env[Any, Any]:
    """A deep copy of all levels that shares what all copies may share."""
    return copied(env, constants(env))


def rebound(value: Any, successor: Memo) -> Any:
    """A function that closes over parts of an environment, closing over their successors; anything else as it is.

    Gymnasium's own wrappers hold such functions: ``lambda obs: flatten(env.observation_space, obs)``.
    """
    if type(value) is not types.FunctionType or not value.__closure__:
        return value
    held = {link.name: part for link, part in fingerprints.held(value) if link.kind == "closure"}
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
    """Why a copy of an environment would do harm to the original, or is not like it, or None.

    A part with a ``__del__`` of its own may close what the original goes on using. Deep copies take functions and weak
    references as they are, so that those of a copy which point back into the environment would act on the original.
    """
    stack = levels(env)
    inside: set[int] = set()
    functions: list[tuple[fingerprints.Path, Any]] = []

    def called(path: fingerprints.Path) -> str:
        return fingerprints.path_text(path[1:], type(stack[path[0].name]).__name__)

    for path, _, value in walk(stack, _is_copied, REACH, MOST_OBJECTS):
        has_own = isinstance(getattr(type(value), "__del__", None), types.FunctionType)
        if has_own and type(value).__module__.split(".")[0] not in (*fingerprints.LIBRARIES, "gymnasium"):
            return f"{called(path)} has a __del__, which would run for every copy that is given up"
        if isinstance(value, FUNCTIONS):
            functions.append((path, value))
        elif _is_copied(value) and not isinstance(value, tuple):  # Python has one empty tuple for all
            inside.add(id(value))
    for path, function in functions:
        is_rebound = len(path) == 2 and has_plain_state(type(stack[path[0].name]))  # type: ignore[arg-type]
        held = list(fingerprints.held(function))
        parts = [part for link, part in held if not (is_rebound and link.kind == "closure" and id(part) in inside)]
        reached = walk(parts, lambda value: isinstance(value, (*FUNCTIONS, types.MethodType, tuple, dict)), 3)
        if any(id(value) in inside for _, _, value in reached):
            itself = f"the function {called(path)} holds on to the environment itself"
            return f"{itself}, and its copy would act on the original"
    # All copies may be wrong in the same way where a class says itself how it is copied, so that comparing them with
    # each other shows nothing. What a copy does not have at all was left out on purpose: a viewer, a window.
    numbers = [i for i, level in enumerate(stack) if not has_plain_state(type(level))]  # type: ignore[arg-type]
    with contextlib.suppress(Exception):  # whatever copying raises is said where a copy is needed
        others = levels(twin(env)) if numbers else []
        for number in numbers:
            kept, found = vars(stack[number]), vars(others[number])
            for name in sorted(kept.keys() - SETUP):
                if found.get(name) is not None and fingerprint(kept[name]) != fingerprint(found[name]):
                    return f"a copy has another {type(stack[number]).__name__}.{name} than the original"
    return None


def _is_copied(value: Any) -> bool:
    # What says itself how it is copied (a data frame) is believed.
    has_own = hasattr(type(value), "__deepcopy__") and not isinstance(value, Env)
    return not (has_own or isinstance(value, (*fingerprints.CLOSED, *FUNCTIONS, type, Space, EnvSpec)))


# The names that the environments' own pages give to their actions, by class.
ACTION_NAMES: dict[str, tuple[str, ...]] = {
    **TOY_TEXT_ACTIONS,
    "AcrobotEnv": ("torque −1", "no torque", "torque +1"),
    "BlackjackEnv": ("stick", "hit"),
    "CarRacing": ("nothing", "steer right", "steer left", "gas", "brake"),
    "CartPoleEnv": ("left", "right"),
    "LunarLander": ("nothing", "left engine", "main engine", "right engine"),
    "MountainCarEnv": ("left", "coast", "right"),
}
# Where environments keep the names of their actions, as attributes of the environment or of its module.
PLACES = ("get_action_meanings", "action_meanings", "action_names", "actions", "action_type.actions", "Actions")
TABLES = ("ACTION_NAMES", "ACTION_LOOKUP", "ACTION_MEANING", "ACTIONS")


def known_names(env: Env[Any, Any], count: int) -> tuple[str, ...] | None:
    """The names of `count` actions, as the environment or its page gives them; None where neither does.

    A list of names, names by number, or an `Enum`; a property or a method of somebody else's may fail in any way.
    """
    # Behind an action wrapper the numbers mean something else.
    if any(isinstance(level, gymnasium.ActionWrapper) for level in levels(env)):
        return None
    for place in (None, *PLACES, *TABLES):
        found: Any = ACTION_NAMES.get(type(env.unwrapped).__name__) if place is None else env.unwrapped
        with contextlib.suppress(Exception):
            for part in place.split(".") if place else ():
                found = getattr(found, part)
            found = found() if callable(found) and not isinstance(found, type) else found
            if isinstance(found, type) and issubclass(found, Enum):
                found = {member.value: member.name for member in found}
            if isinstance(found, Mapping):
                found = [found.get(number) for number in range(count)]
            listed = found if isinstance(found, list | tuple) else ()
            words = [word.name if isinstance(word, Enum) else word for word in listed]
            names = tuple(word.lower().replace("_", " ") for word in words if type(word) is str)
            if len(words) == len(names) == count == len(set(names)):
                return names
    return None


EVERYDAY = ("env", "envs", "gym", "gymnasium", "py", "rl")  # parts of packages' names that say nothing


def made(env: Env[Any, Any] | str, settings: Mapping[str, Any] | None) -> Any:
    """The environment of an id, ``"CartPole-v1"`` or ``"package:id"``; an environment object as it is."""
    if not isinstance(env, str):
        if settings is not None:
            raise ModelError(
                "settings= goes with an environment's id; for an environment object give them to gymnasium.make"
            )
        return env
    try:
        with warnings.catch_warnings():
            # Importing Box2D warns of its binding's age; made an error, that warning crashes the interpreter.
            warnings.simplefilter("ignore", DeprecationWarning)
            return gymnasium.make(env, disable_env_checker=True, **(settings or {}))
    except Exception as error:  # whatever a constructor raises
        is_unknown = isinstance(error, gymnasium.error.UnregisteredEnv | ImportError)
        cause = str(error) if isinstance(error, gymnasium.error.Error | ImportError) else error_text(error)
        hint = _hint(env) if is_unknown and "Did you mean" not in cause else ""
        raise ModelError(f"gymnasium does not make {env!r}: {cause.rstrip('.') if hint else cause}{hint}") from error


def _hint(name: str) -> str:
    """Which package an unknown id may belong to: one whose name begins as it does, ``minigrid``."""
    if ":" in name:
        return f"; is the package {name.partition(':')[0]} installed, and does importing it register the environment?"
    found = set()
    for package in metadata.packages_distributions():
        parts = [part for part in package.lower().replace("-", "_").split("_") if part and part not in EVERYDAY]
        if parts and len(parts[0]) > 2 and name.lower().startswith(parts[0]) and not package.startswith("_"):
            found.add(package)
    if found and found <= sys.modules.keys():
        return f"; {' and '.join(sorted(found))}, already imported, did not register it: is it spelt as there?"
    if found:
        names = " or ".join(f"{package}:{name}" for package in sorted(found))
        return f"; did you mean {names}, which imports the package first?"
    return f"; an id of another package is written with the package to import, package:{name}"


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
        copy_of_it = twin(env)
        inner: Any = copy_of_it.unwrapped
        if hasattr(inner, "P") and hasattr(inner, "s"):
            return wrapped_observation(copy_of_it, int(inner.s))
        method = next(getattr(inner, name) for name in OBSERVING if callable(getattr(inner, name, None)))
        found = wrapped_observation(copy_of_it, method())
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
