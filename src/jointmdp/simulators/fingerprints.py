"""A hash of what an object holds, for telling whether two states are the same.

Numbers, texts, arrays, containers and the attributes of objects count, with types and shapes; functions and classes
count by their names. What is not state does not count: random generators (each step has its own noise) and modules.
Two objects that hold the same are the same, wherever they were made; the bytes of a pickle would also depend on which
parts are shared.
"""

import functools
import hashlib
import struct
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from jointmdp.simulators.object_graph import Stand, attributes, is_generator

_IGNORED = (np.random.BitGenerator, types.ModuleType)
DEPTH = 150  # nesting beyond which an object cannot be meant as a state
MOST_VISITS = 20_000  # of objects that point to each other, before a path to one stands for all paths to it
READERS: dict[str, Callable[[Any], Any]] = {}
"""By the name of a class whose objects do not show what they hold, or show more than that: what to hash instead."""


def fingerprint(value: Any, ignored: frozenset[str] = frozenset()) -> bytes:
    """16 bytes that are equal for values that hold the same; attributes named in `ignored` do not count."""
    found = _flat(value)
    if found is not None:
        return _digest(found)
    try:
        found = _Writer(ignored, False).written(value)
    except _TooManyPaths:
        found = _Writer(ignored, True).written(value)
    return _digest(found)


def _flat(value: Any) -> bytes | None:
    """A number, a text, or a tuple of such, as `_Writer` writes it; None for anything else.

    States and observations of many simulators are no more than that, and are hashed in every step.
    """
    kind = type(value)
    if kind in _SCALARS:
        return _SCALARS[kind](value)
    if not issubclass(kind, tuple) or not _is_plain(kind):
        return None
    parts = [_SCALARS[type(part)](part) for part in value if type(part) in _SCALARS]
    return _digest(f"{kind.__qualname__}(".encode() + b"".join(parts)) if len(parts) == len(value) else None


@functools.cache
def _is_plain(kind: type) -> bool:
    """Whether tuples of a class hold their items and nothing else."""
    has_more = kind.__dictoffset__ or any(vars(base).get("__slots__") for base in kind.__mro__)
    return not (has_more or issubclass(kind, Stand) or hasattr(kind, "__array__") or kind.__name__ in READERS)


def _word(value: object) -> bytes:
    return f"{type(value).__name__}:{value!r};".encode()


def _fraction(value: float) -> bytes:
    return b"float:" + struct.pack("<d", value + 0.0)  # −0 is 0


_SCALARS: dict[type, Callable[[Any], bytes]] = {
    str: _word,
    int: _word,
    bool: _word,
    type(None): _word,
    float: _fraction,
}


class _TooManyPaths(Exception):
    """Objects that all point to each other are reached along more paths than can be followed."""


class _Writer:
    """Writes values as bytes; an object that is met again is written once.

    What an object is written as depends on the path to it only where it is part of a cycle. Such objects are written
    anew on every path, so that equal structures are written alike, unless there are too many paths (`is_brief`).
    """

    def __init__(self, ignored: frozenset[str], is_brief: bool) -> None:
        self._ignored, self._is_brief = ignored, is_brief
        self._path: dict[int, int] = {}  # the objects that hold the value at hand, with their depth
        self._known: dict[int, tuple[Any, bytes]] = {}  # with the object, so that its number stays its own
        self._visits = 0
        self._lowest = DEPTH  # depth of the outermost object that something points back to

    def written(self, value: Any) -> bytes:
        scalar = _SCALARS.get(type(value))
        if scalar is not None:  # most of what there is
            return scalar(value)
        if isinstance(value, np.integer | np.bool_ | np.float64):
            value = value.item()
        if isinstance(value, bool | int | str | bytes):
            return _word(value)
        if isinstance(value, float):
            return _fraction(value)
        if isinstance(value, types.FunctionType | types.BuiltinFunctionType | types.MethodType | type) or (
            callable(value) and hasattr(value, "__wrapped__")  # compiled or decorated
        ):
            return f"code:{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')};".encode()
        if isinstance(value, _IGNORED) or is_generator(value):
            return b""
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind != "O":
            array = np.ascontiguousarray(value)
            array = array + 0.0 if array.dtype.kind == "f" else array  # −0 is 0
            return f"array:{array.dtype.str}{array.shape};".encode() + array.tobytes()
        return self._composite(value)

    def _composite(self, value: Any) -> bytes:
        known, depth = self._known.get(id(value)), len(self._path)
        if known is not None:
            return known[1]
        # A cycle is written as how far back it began, so that it ends and still tells structures apart.
        if id(value) in self._path:
            began = self._path[id(value)]
            self._lowest = min(self._lowest, began)
            return f"again:{depth - began};".encode()
        if depth > DEPTH:
            raise ValueError(f"a state nested more than {DEPTH} deep cannot be hashed; give an identity function")
        self._visits += 1
        if self._visits > MOST_VISITS and not self._is_brief:
            raise _TooManyPaths
        outer, self._lowest = self._lowest, DEPTH
        self._path[id(value)] = depth
        found = _digest(f"{type(value).__qualname__}(".encode() + b"".join(map(self.written, self._parts(value))))
        del self._path[id(value)]
        if self._lowest >= depth or self._is_brief:
            self._known[id(value)] = value, found
            self._lowest = DEPTH
        self._lowest = min(outer, self._lowest)
        return found

    def _parts(self, value: Any) -> Iterator[Any]:
        """What a value holds: its items, then its attributes by name."""
        read = READERS.get(type(value).__name__)
        if read is not None or (hasattr(value, "__array__") and not isinstance(value, np.ndarray)):
            yield np.asarray(value) if read is None else read(value)
            return
        held = attributes(value)
        if isinstance(value, dict | types.MappingProxyType):
            for pair in sorted(value.items(), key=lambda pair: repr(pair[0])):
                yield from pair
        elif isinstance(value, set | frozenset):
            yield from sorted(map(self.written, value))
        elif isinstance(value, np.ndarray):
            yield value.shape
            yield from value.flat
        elif isinstance(value, list | tuple | deque):
            yield from value
        elif not held and not callable(value):
            yield from _reduced(value)
        for name in sorted(held):
            if name not in self._ignored:
                yield name
                yield held[name]


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _reduced(value: Any) -> Iterable[Any]:
    """What an object without attributes would be rebuilt from: dates, decimals, queues, objects of other languages."""
    try:
        _, arguments, *rest = value.__reduce_ex__(4)
    except TypeError as error:
        kind = type(value).__qualname__
        raise ValueError(f"a state that holds a {kind} cannot be hashed ({error}); give an identity function") from None
    return [arguments, *(list(part) if hasattr(part, "__next__") else part for part in rest)]
