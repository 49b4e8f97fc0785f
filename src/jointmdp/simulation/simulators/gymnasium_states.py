"""Ways to keep the state of a Gymnasium environment, so that it can be stepped from any earlier moment.

- `LiveKeeper`: one environment, and its state is written into it: what there is to read and write is known of toy-text
  tables (`TableState`) and MuJoCo's physics (`PhysicsState`), or the user says it.
- `CopyKeeper`: a state is a deep copy of the environment, or an earlier copy and the few steps since.
- `ReplayKeeper`: a state is the history that led to it; for environments that can be neither written nor copied.
"""

from __future__ import annotations

import copy
import inspect
import sys
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Env, Space
from gymnasium.envs.registration import EnvSpec

from jointmdp.ground.arrays import Floats
from jointmdp.ground.errors import ModelError
from jointmdp.ground.intervals import Interval
from jointmdp.simulation.simulators import gymnasium_wrappers
from jointmdp.simulation.simulators.fingerprints import PLAIN, READERS, Proxy, fingerprint
from jointmdp.simulation.simulators.gymnasium_noise import Streams, repeated
from jointmdp.simulation.simulators.gymnasium_wrappers import SETUP, copied_value, levels, set_state_of, state_of
from jointmdp.simulation.simulators.noise import Noise, digest

Kept = Any
TakenSteps = tuple[tuple[Any, Noise], ...]  # actions and their noise
OLD_API = "; an environment of the older gym package needs a wrapper (pip install shimmy)"
LARGEST_SEED = 2**31 - 1  # that every engine takes
NOWHERE = b""  # where an environment stands between two states
POOL = 4  # live environments of a `ReplayKeeper`: a pair's two branches, and what is asked in between


class Arrival(NamedTuple):
    """A state that was reached, and what the environment said when it was."""

    kept: Kept
    observation: Any
    reward: float
    is_over: bool
    info: dict[str, Any]

    @classmethod
    def begun(cls, env: Env[Any, Any], seed: int | None) -> Arrival:
        """A reset of an environment, which then stands in the state.

        Some engines take seeds below 2³¹ alone, and raise whatever they like for others: those are cut down to that.
        """
        try:
            found: Any = env.reset(seed=seed)
        except Exception:
            if seed is None or seed <= LARGEST_SEED:
                raise
            found = env.reset(seed=seed & LARGEST_SEED)
        if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[1], dict):
            raise ModelError(f"its reset returned {_shape(found)}, not (observation, info) of Gymnasium's API{OLD_API}")
        return cls(env, copied_value(found[0], {}), 0.0, False, found[1])


def moved(env: Env[Any, Any], action: Any) -> Arrival:
    """A step of an environment, which then stands in the new state."""
    found: Any = env.step(action)
    if not isinstance(found, tuple) or len(found) != 5:
        raise ModelError(f"its step returned {_shape(found)}, not the five values of Gymnasium's API{OLD_API}")
    observation, reward, terminated, truncated, info = found
    # Environments may hand out one buffer again and again.
    return Arrival(env, copied_value(observation, {}), as_number(reward), bool(terminated or truncated), info)


def as_number(reward: Any) -> float:
    """A reward as one number."""
    try:
        return float(reward)
    except (TypeError, ValueError):
        size = np.size(reward)
    if reward is None or isinstance(reward, str | dict) or size == 0:
        raise ModelError(f"its step paid {reward!r}, which is no number")
    if size > 1:
        raise ModelError(
            f"its reward is {size} numbers, {reward!r}, and a gap is of one; say how much each counts, "
            f"reward={[1.0] * size}, or give a function of them, reward=min"
        )
    return float(np.reshape(reward, ()))


def _shape(found: Any) -> str:
    return f"{len(found)} values" if isinstance(found, tuple) else f"one {type(found).__name__}"


def moved_under(streams: Streams, env: Env[Any, Any], action: Any, noise: Noise) -> Arrival:
    """The same with all streams started from the noise."""
    streams.reseed(env, noise)
    return moved(env, action)


class Keeper(ABC):
    """Starts and steps an environment from kept states, none of which it changes."""

    kind: str

    def __init__(self, env: Env[Any, Any], streams: Streams) -> None:
        self.env, self.streams = env, streams

    @abstractmethod
    def start(self, noise: Noise) -> Arrival:
        """A new episode."""

    @abstractmethod
    def step(self, kept: Kept, action: Any, noise: Noise) -> Arrival:
        """One step from a kept state."""

    @abstractmethod
    def identity(self, kept: Kept) -> Hashable:
        """Equal for states that are the same."""

    def hold(self, kept: Kept) -> None:  # noqa: B027 - most have nothing to do
        """A state that will be gone on from more than once."""

    def told(self, kept: Kept) -> Any:
        """What a user's own function of a state is given."""
        return kept

    def capture_from(self, env: Env[Any, Any]) -> Kept:
        """The state of another environment with the same levels, which stays as it is."""
        raise ModelError("states are kept as histories since the start, and a live environment does not tell its own")

    def live(self, env: Env[Any, Any], start: Noise, steps: TakenSteps) -> Iterator[Arrival]:
        """A start and steps of an environment that is never restored."""
        yield self._reset(env, start)
        for action, noise in steps:
            yield moved_under(self.streams, env, action, noise)

    def _reset(self, env: Env[Any, Any], noise: Noise) -> Arrival:
        # The seed reaches the generators that `reset` makes; those that it leaves alone are re-seeded.
        self.streams.reseed(env, noise)
        return Arrival.begun(env, noise.seed)


class LiveKeeper(Keeper):
    """One live environment; a state is what `get` reads from it, and the wrappers' own state."""

    def __init__(
        self,
        env: Env[Any, Any],
        streams: Streams,
        kind: str,
        get: Callable[[Env[Any, Any]], Any],
        put: Callable[[Env[Any, Any], Any], None],
        name: Callable[[Any], Hashable] = fingerprint,
    ) -> None:
        super().__init__(env, streams)
        self.kind, self._get, self._put, self._name = kind, get, put, name
        sources = [path[:2] for paths in streams.places.values() for path in paths if len(path) == 2]
        outer = list(enumerate(levels(env)))[1:]
        self._wrappers = [(level, SETUP | {name for (_, i), (_, name) in sources if i == n}) for n, level in outer]
        # A wrapper that knows another level by a name of its own goes on knowing it.
        self._levels = {id(level): level for level in levels(env)}
        self._new = [state_of(level, skipped, self._levels) for level, skipped in self._wrappers]
        env.reset(seed=0)  # some have nothing to read before

    def start(self, noise: Noise) -> Arrival:
        return self._reset(self.env, noise)._replace(kept=self.capture())

    def _reset(self, env: Env[Any, Any], noise: Noise) -> Arrival:
        # A start must not depend on earlier episodes, of which some wrappers keep a memory (running means).
        self._put_around(self._new)
        return super()._reset(env, noise)

    def step(self, kept: Kept, action: Any, noise: Noise) -> Arrival:
        self.restore(kept)
        _, *rest = moved_under(self.streams, self.env, action, noise)
        return Arrival(self.capture(), *rest)

    def restore(self, kept: Kept) -> None:
        """Put the live environment into a state."""
        value, around = kept
        self._put(self.env, value)
        self._put_around(around)

    def _put_around(self, states: Iterable[dict[str, Any]]) -> None:
        for (level, skipped), state in zip(self._wrappers, states, strict=True):
            set_state_of(level, state, skipped, self._levels)

    def told(self, kept: Kept) -> Any:
        return kept[0]

    def capture(self) -> Kept:
        """The live environment's state."""
        around = tuple(state_of(level, skipped, self._levels) for level, skipped in self._wrappers)
        return self._get(self.env), around

    def capture_from(self, env: Env[Any, Any]) -> Kept:
        others = levels(env)
        names = {id(other): level for other, level in zip(others, levels(self.env), strict=True)}
        wrappers = zip(others[1:], self._wrappers, strict=True)
        return self._get(env), tuple(state_of(other, skipped, names) for other, (_, skipped) in wrappers)

    def identity(self, kept: Kept) -> Hashable:
        value, around = kept
        name = self._name(value)
        return (name, fingerprint(around)) if around else name


class Place(Proxy):
    """A state by an environment that stood `steps` before it and is only ever copied, or, without steps, stands there.

    `live` stands there too, if it was not moved on since. Most states are left by one step and never asked again; they
    cost no copy.
    """

    __slots__ = ("base", "keeper", "live", "steps")

    def __init__(
        self, keeper: CopyKeeper, base: Env[Any, Any], steps: TakenSteps = (), live: Env[Any, Any] | None = None
    ) -> None:
        self.keeper, self.base, self.steps, self.live = keeper, base, steps, live

    def target(self) -> Env[Any, Any]:
        return self.keeper.told(self)

    def __deepcopy__(self, memo: Any) -> Place:
        return self.keeper.capture_from(self.keeper.told(self))

    def __reduce__(self) -> Any:
        return Place, (self.keeper, self.keeper.pinned(self))


class CopyKeeper(Keeper):
    """A state is a copy of the environment, or an earlier copy and the few steps since."""

    kind = "copy"

    def __init__(self, env: Env[Any, Any], streams: Streams) -> None:
        super().__init__(env, streams)
        self.most_steps = 0  # to be taken again at most; none before it is known that they go the same way
        self._shared = gymnasium_wrappers.constants(env)
        self._attributes = [vars(level) for level in levels(env)]
        self._hashes: dict[tuple[int, str], bytes | None] = {}
        self._ignored = streams.attributes | {"spec", "_np_random_seed"}

    def start(self, noise: Noise) -> Arrival:
        env = gymnasium_wrappers.copied(self.env, self._shared | self.streams.kept(self.env))
        return self._reset(env, noise)._replace(kept=Place(self, env))

    def step(self, kept: Place, action: Any, noise: Noise) -> Arrival:
        own = copied_value(action, {})  # the environment may write into what it is given
        steps = kept.steps
        if kept.live is not None and len(steps) < self.most_steps:
            env, kept.live = kept.live, None
            self.streams.reseed(env, noise)
        else:
            env, steps = self.copied_under(self.pinned(kept), noise), ()
        kept_now = Place(self, kept.base, (*steps, (own, repeated(noise))), env)
        return moved(env, action)._replace(kept=kept_now)

    def hold(self, kept: Place) -> None:
        self.pinned(kept)

    def told(self, kept: Place) -> Env[Any, Any]:
        return kept.live or self.pinned(kept)

    def pinned(self, kept: Place) -> Env[Any, Any]:
        """An environment that stands in a state, and stays there."""
        if kept.steps:
            env = kept.live
            if env is None:
                (action, noise), *rest = kept.steps
                env = self.copied_under(kept.base, noise.fresh())
                moved(env, copied_value(action, {}))
                for action, noise in rest:
                    moved_under(self.streams, env, copied_value(action, {}), noise.fresh())
            kept.base, kept.steps, kept.live = env, (), None
        return kept.base

    def copied_under(self, env: Env[Any, Any], noise: Noise) -> Env[Any, Any]:
        """A copy with all streams started from the noise."""
        renewed = self.streams.renewed(levels(env), noise)
        # The new sources take the place of the old ones while copying, wherever else the environment holds them.
        sources = {id(old): new for _, old, new in renewed if old is not None and new is not None}
        found = gymnasium_wrappers.copied(env, self._shared | sources)
        self.streams.put(levels(found), renewed, noise)
        return found

    def capture_from(self, env: Env[Any, Any]) -> Place:
        # How it was made is the same for all, so that it need not be copied at every step. Not None, numbers and words:
        # what is one object in the whole program may be state elsewhere.
        setup = {
            id(value): vars(own)[name]
            for other, own in zip(levels(env), levels(self.env), strict=True)
            for name, value in vars(other).items()
            if name in SETUP
            and isinstance(value, Space | EnvSpec | dict)
            and isinstance(vars(own).get(name), type(value))
        }
        return Place(self, gymnasium_wrappers.copied(env, gymnasium_wrappers.constants(env) | setup))

    def identity(self, kept: Place) -> Hashable:
        # A state is what differs from the environment that all copies come from; most attributes are the very same.
        changed = []
        env = self.told(kept)
        for number, (level, common) in enumerate(zip(levels(env), self._attributes, strict=True)):
            for name, value in vars(level).items():
                if value is common.get(name, self) or name in SETUP or name in self._ignored:
                    continue
                place = number, name
                if place not in self._hashes:  # as all copies have it at first
                    self._hashes[place] = fingerprint(common[name], self._ignored) if name in common else None
                found = fingerprint(value, self._ignored)
                if found != self._hashes[place]:
                    changed.append((number, name, found))
        return tuple(changed)


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """How a state was reached: the noise of the start, then each action with its noise."""

    start: Noise
    steps: TakenSteps
    names: tuple[bytes, ...]
    """One hash for each beginning of the history."""


class ReplayKeeper(Keeper):
    """A state is its history, and restoring replays it: the cost of a step grows with its time.

    A few live environments stay where they last were, so that branches which go on step by step replay nothing. Where
    further environments can be made, every replay begins in a new one: some (BipedalWalker) do not start from the same
    place after an episode as they do when new.
    """

    kind = "replay"

    def __init__(self, env: Env[Any, Any], streams: Streams, make: Callable[[], Env[Any, Any]] | None = None) -> None:
        super().__init__(env, streams)
        self.make = make
        # By the histories that they stand at the end of; the one longest unused comes first.
        self._live = {} if make else {NOWHERE: env}

    def start(self, noise: Noise) -> Arrival:
        history = History(repeated(noise), (), (noise.address,))
        found = self._begun(history)
        self._live[noise.address] = self._live.pop(NOWHERE)
        return found._replace(kept=history)

    def step(self, kept: History, action: Any, noise: Noise) -> Arrival:
        depth = next((t for t in reversed(range(len(kept.names))) if kept.names[t] in self._live), -1)
        if depth < 0:
            self._begun(kept)
        else:
            self._live[NOWHERE] = self._live.pop(kept.names[depth])  # where it stays, should a step fail
        env = self._live[NOWHERE]
        for earlier, its_noise in kept.steps[max(depth, 0) :]:
            moved_under(self.streams, env, copied_value(earlier, {}), its_noise.fresh())
        own = copied_value(action, {})  # the environment may write into what it is given
        name = digest(kept.names[-1] + fingerprint(action) + noise.address)
        found = moved_under(self.streams, env, action, noise)
        self._live[name] = self._live.pop(NOWHERE)
        return found._replace(kept=History(kept.start, (*kept.steps, (own, repeated(noise))), (*kept.names, name)))

    def identity(self, kept: History) -> Hashable:
        return kept.names[-1]

    def _begun(self, history: History) -> Arrival:
        """The start of a history, in one more environment while there is room, else in the one longest unused."""
        if self.make is None or len(self._live) >= POOL:
            env = self._live.pop(next(iter(self._live)))
        self._live[NOWHERE] = env = env if self.make is None else self.make()
        return self._reset(env, history.start.fresh())


# What an environment remembers only in order to draw it.
DRAWING = frozenset(("s", "lastaction", "taxi_orientation", "window", "window_surface", "clock"))


class TableState:
    """Toy-text environments: the state is its number ``s``, and for other classes every plain attribute besides.

    In Gymnasium's own classes nothing else changes, except for a taxi's passenger who may change its mind.
    """

    def __init__(self, env: Env[Any, Any]) -> None:
        inner: Any = env.unwrapped
        if not (hasattr(inner, "P") and hasattr(inner, "s")):
            raise ModelError(f'{type(inner).__name__} has no table P and state s; state="table" needs both')
        self.table = inner.P
        if is_stock_table(env):
            self._names: tuple[str, ...] = ("fickle_step",) if getattr(inner, "fickle_passenger", False) else ()
        else:
            held = vars(inner).items()
            self._names = tuple(n for n, v in held if type(v) in PLAIN and n not in SETUP and n not in DRAWING)

    def get(self, env: Env[Any, Any]) -> Any:
        inner: Any = env.unwrapped
        return (int(inner.s), *(getattr(inner, name) for name in self._names)) if self._names else int(inner.s)

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
    return type(inner).__module__.startswith("gymnasium.envs.toy_text") and hasattr(inner, "P")


class PhysicsState:
    """MuJoCo environments: the whole of ``MjData``, since positions that a step reads first lag behind ``qpos``.

    Making an ``MjData`` takes a hundred times as long as filling one, so those of dead states are used again.
    """

    def __init__(self, env: Env[Any, Any]) -> None:
        self._mujoco = import_module("mujoco")
        self._spare: deque[Any] = deque(maxlen=64)
        self._model: Any = env.unwrapped.model  # type: ignore[attr-defined]
        self._skipped = SETUP | {"model", "data", "mujoco_renderer", "_np_random"}

    def get(self, env: Env[Any, Any]) -> _Physics:
        inner: Any = env.unwrapped
        if self._spare:
            data = self._spare.pop()
            self._mujoco.mj_copyData(data, self._model, inner.data)
        else:
            data = copy.copy(inner.data)
        found = _Physics(data, state_of(inner, self._skipped, {}))
        weakref.finalize(found, self._spare.append, data).atexit = False
        return found

    def put(self, env: Env[Any, Any], value: _Physics) -> None:
        inner: Any = env.unwrapped
        self._mujoco.mj_copyData(inner.data, self._model, value.data)
        set_state_of(inner, value.attributes, self._skipped, {})

    def name(self, value: _Physics) -> Hashable:
        return fingerprint((physics_vector(value.data), value.attributes))


class _Physics:
    """A kept ``MjData`` and the environment's own attributes; of these, unlike tuples, one can see when they die."""

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
