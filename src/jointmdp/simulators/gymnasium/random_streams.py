"""The random streams of an environment: found by name, and re-seeded from a draw of noise before each step.

Every source of randomness has a stream of its own, so that one which draws more often does not shift the others.
NumPy's generators become counter-based ones made by `Noise`, whose draws can be counted.
"""

from __future__ import annotations

import random
import re
import sys
import types
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium import Env, Space

from jointmdp.errors import ModelError
from jointmdp.simulators.gymnasium.wrapper_stack import Memo, levels, spaces_of
from jointmdp.simulators.noise import Noise, words_taken

MAIN = "np_random"  # the stream that Gymnasium gives every environment
DEPTH = 4  # attributes of attributes that are searched
MOST_OBJECTS = 20_000  # objects searched before it is taken that data begins

Renewed = tuple[str, Any, Any]  # a stream's name, the source that was, the source that comes
Key = tuple[bool, Any]  # an attribute (True, name) or an item (False, index or key)


class StreamPlace(NamedTuple):
    """Where a source of randomness is held: a level of the wrapper stack, and the way from there."""

    level: int
    path: tuple[Key, ...]

    def holder(self, stack: Sequence[Any]) -> Any:
        """The object that holds the source."""
        found = stack[self.level]
        for key in self.path[:-1]:
            found = _get(found, key)
        return found

    def get(self, stack: Sequence[Any]) -> Any:
        """The source."""
        return _get(self.holder(stack), self.path[-1])

    def set(self, stack: Sequence[Any], source: Any) -> None:
        """Put another source there."""
        holder, (is_attribute, key) = self.holder(stack), self.path[-1]
        if is_attribute:
            setattr(holder, key, source)
        else:
            holder[key] = source

    def __str__(self) -> str:
        text = "".join(f".{key}" if is_attribute else f"[{key!r}]" for is_attribute, key in self.path)
        return text.removeprefix(".")


class Luck(Protocol):
    """Where new sources come from: a `Noise`, or anything that gives generators by name."""

    @property
    def address(self) -> bytes: ...

    def __getitem__(self, name: str) -> np.random.Generator: ...


class PlainLuck:
    """Ordinary generators from a seed: the luck of somebody who steps an environment by hand."""

    def __init__(self, seed: int) -> None:
        self.seed, self.address = seed, b"plain%d" % seed

    def __getitem__(self, name: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, *name.encode()])


class Streams:
    """The named streams of an environment, each held in one or several places."""

    def __init__(self, places: dict[str, tuple[StreamPlace, ...]]) -> None:
        self.places = {MAIN: (StreamPlace(0, ((True, "_np_random"),)),)} | places

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the streams."""
        return tuple(self.places)

    @property
    def attributes(self) -> frozenset[str]:
        """The attributes that hold sources: no part of a state, since every step is given its own."""
        return frozenset(place.path[-1][1] for places in self.places.values() for place in places if place.path[-1][0])

    def joined(self, others: Streams) -> Streams:
        """These streams, and those of the others that are held elsewhere."""
        known = {place for places in self.places.values() for place in places}
        more = {name: places for name, places in others.places.items() if not known & set(places)}
        return Streams(self.places | more)

    def held_by(self, level: int) -> frozenset[str]:
        """The attributes of one level that are sources."""
        found = (place for places in self.places.values() for place in places)
        return frozenset(place.path[0][1] for place in found if place.level == level and len(place.path) == 1)

    def reseed(self, env: Env[Any, Any], luck: Luck) -> None:
        """Start every stream at the beginning of `luck`."""
        self.put(env, self.renewed(env, luck), luck)

    def renewed(self, env: Env[Any, Any], luck: Luck) -> list[Renewed]:
        """For each stream the source that the environment holds now, and one like it from the beginning of `luck`."""
        stack = levels(env)
        return [(name, old, _fresh(old, luck, name)) for name, old in self._sources(stack)]

    def put(self, env: Env[Any, Any], renewed: Iterable[Renewed], luck: Luck) -> None:
        """Put new sources in their places; those that can only be seeded are seeded there."""
        stack = levels(env)
        for name, _, new in renewed:
            for place in self.places[name]:
                if new is None:
                    place.get(stack).seed(Noise(luck.address, name).seed)
                else:
                    place.set(stack, new)

    def kept(self, env: Env[Any, Any]) -> Memo:
        """The sources as they are, as the memo of a deep copy that shares them."""
        return {id(source): source for name, source in self._sources(levels(env)) if _is_source(name, source)}

    def _sources(self, stack: Sequence[Any]) -> Iterator[tuple[str, Any]]:
        for name, places in self.places.items():
            try:
                yield name, places[0].get(stack)
            except (AttributeError, LookupError, TypeError):
                continue  # the object that held it is gone for now


def named(env: Env[Any, Any], names: Iterable[str]) -> Streams:
    """The streams that a user names by their attributes, ``"arrivals.rng"``."""
    if isinstance(names, str):
        raise ModelError(f"streams must be a list of names, not the text {names!r}")
    stack = levels(env)
    places: dict[str, tuple[StreamPlace, ...]] = {}
    for name in names:
        if name == MAIN:
            continue
        path = tuple((True, part) for part in str(name).split("."))
        for number in reversed(range(len(stack))):
            place = StreamPlace(number, path)
            try:
                source = place.get(stack)
            except AttributeError:
                continue
            if not (_is_source(name, source) or callable(getattr(source, "seed", None))):
                raise ModelError(
                    f"the stream {name!r} is a {type(source).__name__}, no random generator; name a numpy or random "
                    "generator, or an object with seed(number)"
                )
            places[name] = (place,)
            break
        else:
            known = ", ".join(map(repr, discovered(env).names))
            raise ModelError(f"the environment has no attribute {name!r} for a stream; found by looking: {known}")
    return Streams(places)


def discovered(env: Env[Any, Any], spaces: dict[str, StreamPlace] | None = None) -> Streams:
    """The streams found in the attributes of all levels and of the objects that they hold."""
    stack = levels(env)
    by_source: dict[int, list[StreamPlace]] = {}
    for place, source in _search(stack):
        by_source.setdefault(id(source), []).append(place)
    places: dict[str, tuple[StreamPlace, ...]] = {}
    for group in by_source.values():
        name = MAIN if group[0] == StreamPlace(0, ((True, "_np_random"),)) else str(group[0])
        if name in places:
            name = f"{type(stack[group[0].level]).__name__}.{name}"
        places[name] = tuple(group)
    return Streams(places | {name: (place,) for name, place in (spaces or {}).items()})


class SpaceWatch:
    """Finds out whether an environment draws from the generators of its spaces, as few do."""

    def __init__(self, env: Env[Any, Any]) -> None:
        self._env = env
        self._watched: dict[str, tuple[StreamPlace, Any]] = {}
        stack = levels(env)
        for number, attribute, space in spaces_of(env):
            for path in _subspaces(space, ((True, attribute),)):
                place = StreamPlace(number, (*path, (True, "_np_random")))
                self._watched.setdefault(str(place), (place, place.get(stack)))
        for name, (place, _) in self._watched.items():
            place.set(stack, Noise("watch")[name])

    def used(self) -> dict[str, StreamPlace]:
        """The generators that were drawn from since; the others are put back."""
        stack = levels(self._env)
        found = {}
        for name, (place, before) in self._watched.items():
            source = place.get(stack)
            if isinstance(source.bit_generator, np.random.Philox) and not words_taken(source):
                place.set(stack, before)
            else:
                found[name] = place
        return found


def _subspaces(space: Any, path: tuple[Key, ...]) -> Iterator[tuple[Key, ...]]:
    yield path
    inside = getattr(space, "spaces", None)
    items: Iterable[Any] = inside.items() if isinstance(inside, dict) else enumerate(inside or ())
    for key, part in items:
        yield from _subspaces(part, (*path, (True, "spaces"), (False, key)))


def _search(stack: Sequence[Any]) -> Iterator[tuple[StreamPlace, Any]]:
    """Every source of randomness, nearest first, with its place."""
    seen = {id(level) for level in stack}
    queue = [StreamPlace(number, ()) for number in range(len(stack))]
    for _ in range(DEPTH):
        found, queue = queue, []
        for place in found:
            owner = place.get(stack) if place.path else stack[place.level]
            for key, value in _parts(owner):
                inner = StreamPlace(place.level, (*place.path, key))
                if _is_source(str(key[1]), value):
                    if not isinstance(owner, tuple):
                        yield inner, value
                elif _is_searched(value) and id(value) not in seen and len(seen) < MOST_OBJECTS:
                    seen.add(id(value))
                    queue.append(inner)


def _parts(owner: Any) -> Iterator[tuple[Key, Any]]:
    if isinstance(owner, dict):
        return (((False, key), value) for key, value in owner.items())
    if isinstance(owner, list | tuple | deque):
        return (((False, i), value) for i, value in enumerate(owner))
    return (((True, name), value) for name, value in vars(owner).items())


def _is_searched(value: Any) -> bool:
    skipped = (Env, Space, type, types.ModuleType, types.FunctionType, np.ndarray)
    return not isinstance(value, skipped) and (
        isinstance(value, dict | list | tuple | deque) or hasattr(value, "__dict__")
    )


def _is_source(name: str, value: Any) -> bool:
    if isinstance(value, np.random.Generator | np.random.RandomState | random.Random):
        return True
    return _is_jax_key(name, value)


def _is_jax_key(name: str, value: Any) -> bool:
    """Typed keys are known by their type, old ones by two words under a name that says it."""
    jax = sys.modules.get("jax")
    if jax is None or not isinstance(value, jax.Array):
        return False
    if _is_typed_key(value):
        return True
    return value.dtype == np.uint32 and value.shape == (2,) and re.split(r"[._]", name)[-1] in ("rng", "key", "random")


def _is_typed_key(value: Any) -> bool:
    dtypes = sys.modules["jax"].dtypes
    return bool(dtypes.issubdtype(value.dtype, dtypes.prng_key))


def _fresh(old: Any, luck: Luck, name: str) -> Any:
    """A source like `old` from the beginning of a draw; None where `old` can only be seeded."""
    if old is None or isinstance(old, np.random.Generator):
        return luck[name]
    if isinstance(old, np.random.RandomState):
        return np.random.RandomState(luck[name].bit_generator)
    if isinstance(old, random.Random):
        return random.Random(int.from_bytes(Noise(luck.address, name).address, "little"))
    if _is_jax_key(name, old):
        key = Noise(luck.address, name).key
        return key if _is_typed_key(old) else sys.modules["jax"].random.key_data(key)
    return None


def _get(owner: Any, key: Key) -> Any:
    return getattr(owner, key[1]) if key[0] else owner[key[1]]
