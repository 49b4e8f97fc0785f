"""Ways to keep the state of a Gymnasium environment, so that it can be stepped from any earlier moment.

- `LiveKeeper`: one environment, brought back by writing its state into it (tables, MuJoCo, the user's own hooks).
- `CopyKeeper`: every state is a deep copy of the environment that is never stepped itself.
- `ReplayKeeper`: a state is the history that led to it; for environments that can be neither written nor copied.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

from gymnasium import Env

from jointmdp.simulators.fingerprints import fingerprint
from jointmdp.simulators.gymnasium.known_states import readable
from jointmdp.simulators.gymnasium.random_streams import Luck, PlainLuck, Streams
from jointmdp.simulators.gymnasium.wrapper_stack import (
    SETUP,
    constants,
    copied,
    copied_value,
    levels,
    set_state_of,
    state_of,
)
from jointmdp.simulators.noise import Noise

Kept = Any
POOL = 4  # live environments of a `ReplayKeeper`: a pair's two branches, and what is asked in between


class Arrival(NamedTuple):
    """A state that was reached, and what the environment said when it was."""

    kept: Kept
    observation: Any
    reward: float
    is_over: bool
    info: dict[str, Any]


class Keeper(ABC):
    """Starts and steps an environment from kept states, none of which it changes."""

    kind: str

    def __init__(self, env: Env[Any, Any], streams: Streams) -> None:
        self.env, self.streams = env, streams

    @abstractmethod
    def start(self, noise: Noise) -> Arrival:
        """A new episode."""

    @abstractmethod
    def step(self, kept: Kept, action: Any, luck: Luck) -> Arrival:
        """One step from a kept state."""

    @abstractmethod
    def identity(self, kept: Kept) -> Hashable:
        """Equal for states that are the same."""

    def _reset(self, env: Env[Any, Any], noise: Noise) -> tuple[Any, dict[str, Any]]:
        # The seed reaches the generators that `reset` makes; those that it leaves alone are re-seeded.
        self.streams.reseed(env, noise)
        return env.reset(seed=noise.seed)

    def _step(self, env: Env[Any, Any], action: Any) -> tuple[Any, float, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = env.step(action)
        return observation, float(reward), bool(terminated or truncated), info


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
        outer = list(enumerate(levels(env)))[1:]
        self._wrappers = [(level, SETUP | streams.held_by(number)) for number, level in outer]
        # A wrapper that knows another level by a name of its own goes on knowing it.
        self._levels = {id(level): level for level in levels(env)}
        self._new = [state_of(level, skipped, self._levels) for level, skipped in self._wrappers]
        env.reset(seed=0)  # some have nothing to read before

    def start(self, noise: Noise) -> Arrival:
        # A start must not depend on earlier episodes, of which some wrappers keep a memory (running means).
        for (level, skipped), state in zip(self._wrappers, self._new, strict=True):
            set_state_of(level, state, skipped, self._levels)
        observation, info = self._reset(self.env, noise)
        return Arrival(self.capture(), copied_value(observation, {}), 0.0, False, info)

    def step(self, kept: Kept, action: Any, luck: Luck) -> Arrival:
        self.restore(kept)
        self.streams.reseed(self.env, luck)
        observation, reward, is_over, info = self._step(self.env, action)
        # Environments may hand out one buffer again and again.
        return Arrival(self.capture(), copied_value(observation, {}), reward, is_over, info)

    def capture(self) -> Kept:
        """The live environment's state."""
        around = tuple(state_of(level, skipped, self._levels) for level, skipped in self._wrappers)
        return self._get(self.env), around

    def restore(self, kept: Kept) -> None:
        """Bring the live environment into a state."""
        value, around = kept
        self._put(self.env, value)
        for (level, skipped), state in zip(self._wrappers, around, strict=True):
            set_state_of(level, state, skipped, self._levels)

    def identity(self, kept: Kept) -> Hashable:
        value, around = kept
        name = self._name(value)
        return (name, fingerprint(around)) if around else name


class CopyKeeper(Keeper):
    """Every state is an environment of its own, which is only ever copied."""

    kind = "copy"

    def __init__(self, env: Env[Any, Any], streams: Streams) -> None:
        super().__init__(env, streams)
        self._shared = constants(env)
        self._attributes = [vars(level) for level in levels(env)]
        self._hashes: dict[tuple[int, str], bytes | None] = {}
        self._ignored = streams.attributes | {"spec", "_np_random_seed"}

    def start(self, noise: Noise) -> Arrival:
        env = copied(self.env, self._shared | self.streams.kept(self.env))
        observation, info = self._reset(env, noise)
        return Arrival(env, copied_value(observation, {}), 0.0, False, info)

    def step(self, kept: Kept, action: Any, luck: Luck) -> Arrival:
        renewed = self.streams.renewed(kept, luck)
        # The new sources take the place of the old ones while copying, wherever else the environment holds them.
        sources = {id(old): new for _, old, new in renewed if old is not None and new is not None}
        env = copied(kept, self._shared | sources)
        self.streams.put(env, renewed, luck)
        observation, reward, is_over, info = self._step(env, action)
        return Arrival(env, copied_value(observation, {}), reward, is_over, info)

    def identity(self, kept: Kept) -> Hashable:
        # A state is what differs from the environment that all copies come from; most attributes are the very same.
        changed = []
        for number, (level, common) in enumerate(zip(levels(kept), self._attributes, strict=True)):
            for name, value in vars(level).items():
                if value is common.get(name, self) or name in SETUP or name in self._ignored:
                    continue
                found = fingerprint(readable(value), self._ignored)
                if found != self._common(number, name):
                    changed.append((number, name, found))
        return tuple(changed)

    def _common(self, number: int, name: str) -> bytes | None:
        """The hash of an attribute as all copies have it at first."""
        if (number, name) not in self._hashes:
            held = self._attributes[number]
            found = fingerprint(readable(held[name]), self._ignored) if name in held else None
            self._hashes[number, name] = found
        return self._hashes[number, name]


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """How a state was reached: the noise of the start, then each action with its noise."""

    start: bytes
    steps: tuple[tuple[Any, bytes | int], ...]
    names: tuple[bytes, ...]
    """One hash for each beginning of the history."""


class _Live:
    """An environment and where it stands."""

    def __init__(self, env: Env[Any, Any]) -> None:
        self.env, self.depth, self.name, self.used = env, 0, b"", 0

    def is_on_the_way(self, history: History) -> bool:
        return self.depth < len(history.names) and history.names[self.depth] == self.name


class ReplayKeeper(Keeper):
    """A state is its history, and restoring replays it: the cost of a step grows with its time.

    A few live environments stay where they last were, so that branches which go on step by step replay nothing. Where
    further environments can be made, every replay begins in a new one: some (BipedalWalker) do not start from the same
    place after an episode as they do when new.
    """

    kind = "replay"

    def __init__(self, env: Env[Any, Any], streams: Streams, make: Callable[[], Env[Any, Any]] | None = None) -> None:
        super().__init__(env, streams)
        self._make, self._clock = make, 0
        self._pool = [] if make else [_Live(env)]

    def start(self, noise: Noise) -> Arrival:
        history = History(noise.address, (), (noise.address,))
        live = self._spare()
        observation, info = self._restart(live, history)
        return Arrival(history, copied_value(observation, {}), 0.0, False, info)

    def step(self, kept: History, action: Any, luck: Luck) -> Arrival:
        live = self._at(kept)
        own = copied_value(action, {})  # the environment may write into what it is given
        name = hashlib.blake2b(kept.names[-1] + fingerprint(action) + luck.address, digest_size=16).digest()
        again = luck.seed if isinstance(luck, PlainLuck) else luck.address
        self.streams.reseed(live.env, luck)
        live.name = b""  # nowhere, should the step fail
        observation, reward, is_over, info = self._step(live.env, action)
        live.depth, live.name = live.depth + 1, name
        history = History(kept.start, (*kept.steps, (own, again)), (*kept.names, name))
        return Arrival(history, copied_value(observation, {}), reward, is_over, info)

    def identity(self, kept: History) -> Hashable:
        return kept.names[-1]

    def _at(self, history: History) -> _Live:
        """A live environment in the state of a history."""
        ready = [live for live in self._pool if live.is_on_the_way(history)]
        live = max(ready, key=lambda live: live.depth) if ready else self._spare()
        if not ready:
            self._restart(live, history)
        live.name = b""
        for action, again in history.steps[live.depth :]:
            self.streams.reseed(live.env, PlainLuck(again) if isinstance(again, int) else Noise.at(again))
            live.env.step(copied_value(action, {}))
        self._clock += 1
        live.depth, live.name, live.used = len(history.steps), history.names[-1], self._clock
        return live

    def _restart(self, live: _Live, history: History) -> tuple[Any, dict[str, Any]]:
        if self._make is not None:
            live.env = self._make()
        found = self._reset(live.env, Noise.at(history.start))
        self._clock += 1
        live.depth, live.name, live.used = 0, history.start, self._clock
        return found

    def _spare(self) -> _Live:
        """An environment that may be started anew: one more while there is room, else the one longest unused."""
        if self._make is not None and len(self._pool) < POOL:
            self._pool.append(_Live(self.env))
            return self._pool[-1]
        return min(self._pool, key=lambda live: live.used)
