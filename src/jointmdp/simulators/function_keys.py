"""Functions that do the same are one key of a compiled program: a lambda written anew in a loop compiles once.

Two functions are the same if their code is and if all that the code can read is: closures, defaults, and the globals it
names. Values are taken as they are now, so a variable that has changed since makes another key. Where something is read
that could change unseen (an object with attributes), the key is the function itself.
"""

import functools
import hashlib
import types
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

LIBRARIES = {"jax", "numpy", "math", "functools", "operator", "itertools", "jointmdp", "builtins", "typing"}
PLAIN = (int, str, bytes, type(None), type(Ellipsis), np.dtype)
LARGEST = 2**24  # bytes of a NumPy array that are compared
LARGE = 2**16  # bytes of an array of JAX: these never change, and large ones are seldom made twice


class _OpaqueError(Exception):
    """Something that could change unseen."""


def function_key(function: Callable[..., Any]) -> Hashable:
    """Equal for functions that do the same."""
    try:
        return _of(function, ())
    except _OpaqueError:
        # A method of a callable can be hashed whatever the callable is, and is equal if the objects are one.
        return function.__call__  # type: ignore[operator]


def value_key(value: Any) -> Hashable:
    """Equal for values that are the same, functions included; a value that could change unseen is itself."""
    try:
        return _of(value, ())
    except _OpaqueError:
        return _Itself(value)


class _Itself:
    """An object as its own key; it is kept, so that no other can take its place in memory."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def _of(value: Any, above: tuple[Any, ...]) -> Hashable:
    """The key of a value; `above` are the functions that it was met in."""
    if isinstance(value, PLAIN):
        return type(value), value
    if isinstance(value, float | complex | np.generic):
        return type(value), repr(value)  # told apart: 0.0 and −0.0; and NaN is itself
    if isinstance(value, types.FunctionType):
        return _of_function(value, above)
    if isinstance(value, functools.partial):
        return "partial", _of((value.func, value.args, value.keywords), above)
    if isinstance(value, tuple | list | set | frozenset):
        return type(value), tuple(_of(each, above) for each in value)
    if isinstance(value, dict):
        return type(value), tuple((_of(key, above), _of(each, above)) for key, each in value.items())
    if isinstance(value, np.ndarray | jax.Array):
        return _of_array(value)
    module = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None) or ""
    is_fixed = isinstance(value, types.ModuleType | types.BuiltinFunctionType | type) or callable(value)
    if is_fixed and module.partition(".")[0] in LIBRARIES:
        return _Itself(value)
    raise _OpaqueError


def _of_array(value: Any) -> Hashable:
    if isinstance(value, np.ndarray):
        if value.dtype == object or value.nbytes > LARGEST:
            raise _OpaqueError
    elif jnp.issubdtype(value.dtype, jax.dtypes.extended) or value.nbytes > LARGE:
        return _Itself(value)
    content = hashlib.blake2b(np.ascontiguousarray(value).tobytes(), digest_size=16).digest()
    return type(value), str(value.dtype), value.shape, content


def _of_function(function: types.FunctionType, above: tuple[Any, ...]) -> Hashable:
    if function in above:
        return "above", above.index(function)
    if (function.__module__ or "").partition(".")[0] in LIBRARIES:
        return _Itself(function)
    met = (*above, function)
    try:
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # a name that has no value yet
        raise _OpaqueError from None
    spaces = function.__globals__
    read = {name: spaces[name] for name in _names(function.__code__) if name in spaces}
    parts = (cells, function.__defaults__, function.__kwdefaults__, function.__dict__, dict(sorted(read.items())))
    return function.__code__, _of(parts, met)


def _names(code: types.CodeType) -> Iterator[str]:
    """All names that a code may look up, those of functions inside of it included."""
    yield from code.co_names
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from _names(part)
