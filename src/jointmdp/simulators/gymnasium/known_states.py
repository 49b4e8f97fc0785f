"""What there is to read and write in environments whose state is known: toy-text tables and MuJoCo's physics."""

from __future__ import annotations

import copy
import inspect
import sys
import weakref
from collections.abc import Hashable
from importlib import import_module
from typing import Any

import numpy as np
from gymnasium import Env

from jointmdp.arrays import Floats
from jointmdp.errors import ModelError
from jointmdp.intervals import Interval
from jointmdp.simulators.fingerprints import READERS, fingerprint
from jointmdp.simulators.gymnasium.wrapper_stack import SETUP, set_state_of, state_of
from jointmdp.simulators.object_graph import PLAIN

STOCK_TABLES = "gymnasium.envs.toy_text"
# What an environment remembers only in order to draw it.
DRAWING = frozenset(("s", "lastaction", "taxi_orientation", "window", "window_surface", "clock"))


class TableState:
    """Toy-text environments: the state is its number ``s``, and for other classes every plain attribute besides.

    In Gymnasium's own classes nothing else changes, except for a taxi's passenger who may change its mind.
    """

    def __init__(self, env: Env[Any, Any]) -> None:
        inner = env.unwrapped
        if not (hasattr(inner, "P") and hasattr(inner, "s")):
            raise ModelError(f'{type(inner).__name__} has no table P and state s; state="table" needs both')
        self.table: Any = inner.P
        if is_stock_table(env):
            self._names: tuple[str, ...] = ("fickle_step",) if getattr(inner, "fickle_passenger", False) else ()
        else:
            held = vars(inner).items()
            self._names = tuple(n for n, v in held if type(v) in PLAIN and n not in SETUP and n not in DRAWING)

    def get(self, env: Env[Any, Any]) -> Any:
        inner: Any = env.unwrapped
        if not self._names:
            return int(inner.s)
        return int(inner.s), *(getattr(inner, name) for name in self._names)

    def put(self, env: Env[Any, Any], value: Any) -> None:
        inner: Any = env.unwrapped
        if not self._names:
            inner.s = value
            return
        inner.s, *rest = value
        for name, part in zip(self._names, rest, strict=True):
            setattr(inner, name, part)

    def is_terminal(self, state: int) -> bool:
        """Whether every action stays in a state, pays nothing and ends the episode."""
        row = self.table[state].values()
        return all(t == state and r == 0 and end for outcomes in row for p, t, r, end in outcomes if p)

    @property
    def reward_bounds(self) -> Interval:
        """The least and the greatest reward of the table."""
        rewards = [r for row in self.table.values() for outcomes in row.values() for p, _, r, _ in outcomes if p]
        return Interval(float(min(rewards)), float(max(rewards)))


def is_stock_table(env: Env[Any, Any]) -> bool:
    """Whether an environment is one of Gymnasium's own with a table."""
    inner = env.unwrapped
    return type(inner).__module__.startswith(STOCK_TABLES) and hasattr(inner, "P")


class PhysicsState:
    """MuJoCo environments: the whole of ``MjData``, since positions that a step reads first lag behind ``qpos``.

    Making an ``MjData`` takes a hundred times as long as filling one, so those of dead states are used again.
    """

    SPARE = 64  # kept for later

    def __init__(self, env: Env[Any, Any]) -> None:
        self._mujoco = import_module("mujoco")
        self._spare: list[Any] = []
        self._model: Any = env.unwrapped.model  # type: ignore[attr-defined]
        self._skipped = SETUP | {"model", "data", "mujoco_renderer", "_np_random"}

    def get(self, env: Env[Any, Any]) -> _Physics:
        inner: Any = env.unwrapped
        try:
            data = self._spare.pop()
        except IndexError:
            data = copy.copy(inner.data)
        else:
            self._mujoco.mj_copyData(data, self._model, inner.data)
        found = _Physics(data, state_of(inner, self._skipped, {}))
        weakref.finalize(found, self._recycle, data).atexit = False
        return found

    def _recycle(self, data: Any) -> None:
        if len(self._spare) < self.SPARE:
            self._spare.append(data)

    def put(self, env: Env[Any, Any], value: _Physics) -> None:
        inner: Any = env.unwrapped
        self._mujoco.mj_copyData(inner.data, self._model, value.data)
        set_state_of(inner, value.attributes, self._skipped, {})

    def name(self, value: _Physics) -> Hashable:
        return fingerprint((physics_vector(value.data), value.attributes))


class _Physics:
    """A kept ``MjData`` and the environment's own attributes."""

    def __init__(self, data: Any, attributes: dict[str, Any]) -> None:
        self.data, self.attributes = data, attributes


def is_physics(env: Env[Any, Any]) -> bool:
    """Whether an environment is a MuJoCo one in Gymnasium's manner."""
    module = sys.modules.get("gymnasium.envs.mujoco.mujoco_env")
    return module is not None and isinstance(env.unwrapped, module.MujocoEnv)


def physics_vector(data: Any) -> Floats:
    """Everything that MuJoCo's physics goes on from, time and warm start included."""
    mujoco = import_module("mujoco")
    what = mujoco.mjtState.mjSTATE_INTEGRATION
    found = np.empty(mujoco.mj_stateSize(data.model, what))
    mujoco.mj_getState(data.model, data, found, what)
    return found


def model_bytes(model: Any) -> bytes:
    """A hash of a MuJoCo model, to tell whether a reset changes it."""
    mujoco = import_module("mujoco")
    buffer = np.empty(mujoco.mj_sizeModel(model), dtype=np.uint8)
    mujoco.mj_saveModel(model, None, buffer)
    return fingerprint(buffer)


def clone(env: Env[Any, Any]) -> Any:
    """The state of an environment that has ``clone_state``, as Atari's have: with its generator, if it has a say."""
    method = env.unwrapped.clone_state  # type: ignore[attr-defined]
    has_say = "include_rng" in inspect.signature(method).parameters
    return method(include_rng=True) if has_say else method()


def restore(env: Env[Any, Any], state: Any) -> None:
    """Back to what `clone` took."""
    env.unwrapped.restore_state(state)  # type: ignore[attr-defined]


READERS.update(MjData=physics_vector, MjModel=model_bytes, MujocoRenderer=lambda value: None)
