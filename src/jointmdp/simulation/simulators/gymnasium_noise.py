"""The random streams of an environment: found by name, and re-seeded from a draw of noise before each step.

Every source of randomness has a stream of its own, so that one which draws more often does not shift the others.
NumPy's generators become counter-based ones made by `Noise`, whose draws can be counted; a source whose holder cannot
be changed (a tuple, a closure, a function's default) is seeded where it is.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from gymnasium import Env, Space

from jointmdp.ground.errors import ModelError
from jointmdp.simulation.simulators import fingerprints
from jointmdp.simulation.simulators.fingerprints import Link, Path, found_at, is_generator, walk
from jointmdp.simulation.simulators.generators import fresh, is_global, is_key, seed
from jointmdp.simulation.simulators.gymnasium_wrappers import Memo, levels
from jointmdp.simulation.simulators.noise import Noise, StreamName, words_taken

MAIN = "np_random"  # the stream that Gymnasium gives every environment
MAIN_PATH = (Link("item", 0), Link("attribute", "_np_random"))  # paths begin with the number of the level
GONE = (AttributeError, LookupError, TypeError)  # what a path raises whose objects are not there for now

Renewed = tuple[str, Any, Any]  # a stream's name, the source that was, the source that comes


class PlainNoise(Noise):
    """Ordinary generators from a seed, as somebody has them who steps an environment by hand."""

    __slots__ = ()

    def __init__(self, number: int) -> None:
        self._address, self._streams = b"plain%d" % number, {}

    def __getitem__(self, name: StreamName) -> np.random.Generator:
        return np.random.default_rng([int(self.address.removeprefix(b"plain")), *str(name).encode()])


class SeedNoise(Noise):
    """The noise of a start whose reset is given the user's own seed."""

    __slots__ = ("_number",)

    def __init__(self, number: int) -> None:
        super().__init__("reset", number)
        self._number = number

    @property
    def seed(self) -> int:
        return self._number

    def fresh(self) -> SeedNoise:
        return SeedNoise(self._number)


def repeated(noise: Noise) -> Noise:
    """The same draw from its beginning, free of whoever watches the one that was given."""
    return noise.fresh() if isinstance(noise, PlainNoise | SeedNoise) else Noise.at(noise.address)


class Streams:
    """The named streams of an environment, each held in one or several places of its stack of levels.

    Those in `fixed` cannot be replaced there, only seeded.
    """

    def __init__(self, places: dict[str, tuple[Path, ...]], fixed: frozenset[str] = frozenset()) -> None:
        self.places = {MAIN: (MAIN_PATH,)} | places
        self.fixed = fixed
        self._paths = [path for paths in self.places.values() for path in paths]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the streams."""
        return tuple(self.places)

    @property
    def attributes(self) -> frozenset[str]:
        """The attributes that hold sources: no part of a state, since every step is given its own."""
        return frozenset(path[-1].name for path in self._paths if path[-1].kind == "attribute")

    def joined(self, others: Streams) -> Streams:
        """These streams, and those of the others that are held elsewhere."""
        more = {name: paths for name, paths in others.places.items() if not set(self._paths) & set(paths)}
        return Streams(self.places | more, self.fixed | (others.fixed & more.keys()))

    def reseed(self, env: Env[Any, Any], noise: Noise) -> None:
        """Start every stream at the beginning of `noise`."""
        stack = levels(env)
        self.put(stack, self.renewed(stack, noise), noise)

    def renewed(self, stack: Sequence[Any], noise: Noise) -> list[Renewed]:
        """For each stream the source that an environment's levels hold now, and one like it from `noise`."""
        found = self._sources(stack)
        return [(name, old, None if name in self.fixed else fresh(old, noise, name)) for name, old in found]

    def put(self, stack: Sequence[Any], renewed: Iterable[Renewed], noise: Noise) -> None:
        """Put new sources in their places; those that can only be seeded are seeded there."""
        for name, _, new in renewed:
            if new is None:
                held = _first_held(stack, self.places[name])
                if held is not None:  # a reset may make it, or what holds it
                    seed(held, Noise(noise.source(name), name))
                continue
            for path in self.places[name]:
                # A second holder may have nothing before the reset, and asks for nothing then.
                if path[-1] == MAIN_PATH[-1] or _first_held(stack, [path]) is not None:
                    with suppress(*(() if path == MAIN_PATH else GONE)):
                        fingerprints.put_at(stack, path, new)

    def kept(self, env: Env[Any, Any]) -> Memo:
        """The sources that will be replaced, as the memo of a deep copy that shares them."""
        found = self._sources(levels(env))
        return {id(source): source for name, source in found if name not in self.fixed and _is_source(name, source)}

    def _sources(self, stack: Sequence[Any]) -> Iterator[tuple[str, Any]]:
        """The streams that are there for now; ``np_random`` always is, since Gymnasium makes it when it is asked."""
        for name, paths in self.places.items():
            found = _first_held(stack, paths)
            if found is not None or any(path[-1] == MAIN_PATH[-1] for path in paths):
                yield name, found


def _first_held(stack: Sequence[Any], paths: Sequence[Path]) -> Any:
    """What is at the end of a path; None where the objects that held it are gone for now."""
    for path in paths:
        try:
            found = found_at(stack, path)
        except GONE:
            continue
        if found is not None:
            return found
    return None


def named(env: Env[Any, Any], names: Iterable[str]) -> Streams:
    """The streams that a user names by their attributes, ``"arrivals.rng"``."""
    if isinstance(names, str):
        raise ModelError(f"streams must be a list of names, not the text {names!r}")
    stack = levels(env)
    places: dict[str, tuple[Path, ...]] = {}
    fixed = set()
    for name in names:
        if name == MAIN:
            continue
        links = [Link("attribute", part) for part in str(name).split(".")]
        for number in reversed(range(len(stack))):
            path = (Link("item", number), *links)
            try:
                source = found_at(stack, path)
            except AttributeError:
                continue
            if not (_is_source(name, source) or callable(getattr(source, "seed", None))):
                raise ModelError(
                    f"the stream {name!r} is a {type(source).__name__}, no random generator; name a numpy or random "
                    "generator, or an object with seed(number)"
                )
            places[name] = (path,)
            if not (_is_source(name, source) and _is_replaceable(stack, path, source)):
                fixed.add(name)
            break
        else:
            known = ", ".join(map(repr, discovered(env).names))
            raise ModelError(f"the environment has no attribute {name!r} for a stream; found by looking: {known}")
    return Streams(places, frozenset(fixed))


def discovered(env: Env[Any, Any], spaces: dict[str, Path] | None = None) -> Streams:
    """The streams found in the attributes of all levels and of the objects that they hold."""
    stack = levels(env)
    by_source: dict[int, list[tuple[Path, Any]]] = {}
    closed = (*fingerprints.CLOSED, weakref.ref, type, Space)
    for path, owner, source in walk(
        stack, lambda value: not (isinstance(value, closed) or is_generator(value)), fingerprints.DEEP
    ):
        # What is in a set has no place, and what a module holds is not the environment's own.
        is_placed = not isinstance(owner, set | frozenset) and path[-1].kind != "named"
        if is_placed and _is_source(str(path[-1].name), source):
            by_source.setdefault(id(source), []).append((path, source))
    places: dict[str, tuple[Path, ...]] = {}
    fixed = set()
    for group in by_source.values():
        first, source = group[0]
        is_fixed = not all(_is_replaceable(stack, path, source) for path, _ in group)
        # A key is a value, which can only be replaced; and the generators of the whole program are not seeded here.
        if is_fixed and (not is_generator(source) or is_global(source)):
            continue
        name = MAIN if first == MAIN_PATH else _name(first)
        if name in places:
            name = f"{type(stack[first[0].name]).__name__}.{name}"
        places[name] = tuple(path for path, _ in group)
        if is_fixed:
            fixed.add(name)
    return Streams(places | {name: (path,) for name, path in (spaces or {}).items()}, frozenset(fixed))


def _is_replaceable(stack: Sequence[Any], path: Path, source: Any) -> bool:
    """Whether the holder takes another source: a tuple, a frozen object and a closure do not."""
    try:
        fingerprints.put_at(stack, path, source)
    except Exception:  # whatever the `__setattr__` of some class raises
        return False
    return True


class SpaceWatch:
    """Finds out whether an environment draws from the generators of its spaces, as few do."""

    def __init__(self, env: Env[Any, Any]) -> None:
        self._stack = levels(env)
        self._watched: dict[str, tuple[Path, Any]] = {}
        for path, owner, source in walk(self._stack, lambda value: isinstance(value, Space | dict | tuple), 12):
            if isinstance(owner, Space) and path[-1].name == "_np_random":
                self._watched.setdefault(_name(path), (path, source))
        for name, (path, _) in self._watched.items():
            fingerprints.put_at(self._stack, path, Noise("watch")[name])

    def used(self) -> dict[str, Path]:
        """The generators that were drawn from since; the others are put back."""
        found = {}
        for name, (path, before) in self._watched.items():
            source = _first_held(self._stack, [path])
            if source is None:  # the reset made another space, which nobody has drawn from
                continue
            if isinstance(source.bit_generator, np.random.Philox) and not words_taken(source):
                fingerprints.put_at(self._stack, path, before)
            else:
                found[name] = path
        return found


def _name(path: Path) -> str:
    return fingerprints.path_text(path[1:]).removeprefix(".")


def _is_source(name: str, value: Any) -> bool:
    return is_generator(value) or (not isinstance(value, np.ndarray) and is_key(name, value))
