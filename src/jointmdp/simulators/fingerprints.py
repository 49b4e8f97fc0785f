"""A hash of what an object holds, for telling whether two states are the same.

Numbers, texts, arrays, containers and the attributes of objects count, with types and shapes; functions and classes
count by their names. What is not state does not count: random generators (each step has its own noise) and modules.
Two objects that hold the same are the same, wherever they were made; the bytes of a pickle would also depend on which
parts are shared.
"""

import hashlib
import struct
import types
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from jointmdp.simulators.object_graph import GENERATORS, attributes

_IGNORED = (*GENERATORS, np.random.BitGenerator, types.ModuleType)
DEPTH = 50  # nesting beyond which an object cannot be meant as a state


def fingerprint(value: Any, ignored: frozenset[str] = frozenset()) -> bytes:
    """16 bytes that are equal for values that hold the same; attributes named in `ignored` do not count."""
    digest = hashlib.blake2b(digest_size=16)
    _feed(digest, value, ignored, {})
    return digest.digest()


def _feed(digest: Any, value: Any, ignored: frozenset[str], seen: dict[int, int]) -> None:
    """Write a value into the digest; `seen` are the objects that hold it, with their depth."""
    if isinstance(value, np.integer | np.bool_ | np.float64):
        value = value.item()
    if value is None or isinstance(value, bool | int | str | bytes):
        digest.update(f"{type(value).__name__}:{value!r};".encode())
        return
    if isinstance(value, float):
        digest.update(b"float:" + struct.pack("<d", value + 0.0))  # −0 is 0
        return
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType | types.MethodType | type) or (
        callable(value) and hasattr(value, "__wrapped__")  # compiled or decorated
    ):
        digest.update(f"code:{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')};".encode())
        return
    if isinstance(value, _IGNORED):
        return
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind != "O":
        array = np.ascontiguousarray(value)
        array = array + 0.0 if array.dtype.kind == "f" else array  # −0 is 0
        digest.update(f"array:{array.dtype.str}{array.shape};".encode())
        digest.update(array.tobytes())
        return
    # A cycle is written as the place where it began, so that it ends and still tells structures apart.
    if id(value) in seen:
        digest.update(f"again:{seen[id(value)]};".encode())
        return
    if len(seen) > DEPTH:
        raise ValueError(f"a state nested more than {DEPTH} deep cannot be hashed; give an identity function")
    seen[id(value)] = len(seen)
    digest.update(f"{type(value).__qualname__}(".encode())
    for part in _parts(value, ignored):
        _feed(digest, part, ignored, seen)
    digest.update(b")")
    del seen[id(value)]


def _parts(value: Any, ignored: frozenset[str]) -> Iterator[Any]:
    """What a value holds: its items, then its attributes by name."""
    if hasattr(value, "__array__") and not isinstance(value, np.ndarray):
        yield np.asarray(value)
        return
    held = attributes(value)
    if isinstance(value, dict | types.MappingProxyType):
        for pair in sorted(value.items(), key=lambda pair: repr(pair[0])):
            yield from pair
    elif isinstance(value, set | frozenset):
        yield from sorted(fingerprint(part, ignored) for part in value)
    elif isinstance(value, list | tuple | deque | np.ndarray):
        yield from value
    elif not held and not callable(value):
        yield from _reduced(value)
    for name in sorted(held):
        if name not in ignored:
            yield name
            yield held[name]


def _reduced(value: Any) -> Iterable[Any]:
    """What an object without attributes would be rebuilt from: dates, decimals, queues, objects of other languages."""
    try:
        _, arguments, *rest = value.__reduce_ex__(4)
    except TypeError as error:
        kind = type(value).__qualname__
        raise ValueError(f"a state that holds a {kind} cannot be hashed ({error}); give an identity function") from None
    return [arguments, *(list(part) if hasattr(part, "__next__") else part for part in rest)]
