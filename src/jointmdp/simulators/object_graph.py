"""What objects hold, and a walk from object to object.

Hashes of states, the search for random generators and the search for functions that point back into an environment all
use this one notion. Properties are never asked: they may do things.
"""

import functools
import random
import sys
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

GENERATORS = (np.random.Generator, np.random.RandomState, random.Random)
PLAIN = (int, float, bool, str, bytes, complex, types.NoneType)  # values that cannot change
CLOSED = (*PLAIN, np.ndarray, np.generic, types.ModuleType)  # nothing to look for inside
FUNCTIONS = (types.FunctionType, functools.partial, weakref.ref)  # a deep copy points to what the original points to
SEQUENCES = (list, tuple, deque, set, frozenset)
LIBRARIES = ("builtins", "abc", "numpy", "scipy", "jax", "jaxlib", "Box2D", "pygame", "mujoco")
MOST_OBJECTS = 20_000  # a walk that has entered this many is in the middle of data


class Link(NamedTuple):
    """How an object holds another: a closure holds variables, and what a module or class holds has its own name."""

    kind: Literal["attribute", "item", "closure", "default", "named"]
    name: Any


Path = tuple[Link, ...]


def walk(
    roots: Sequence[Any], is_entered: Callable[[Any], bool], depth: int, most: int = MOST_OBJECTS
) -> Iterator[tuple[Path, Any, Any]]:
    """Path, owner and value of the roots and of all that can be reached from them in `depth` links, nearest first.

    A path begins with the number of its root. What is held in two places is given twice and entered once.
    """
    waiting: list[tuple[Path, Any, Any]] = [((Link("item", i),), roots, root) for i, root in enumerate(roots)]
    yield from waiting
    seen = {id(root) for root in roots}
    for path, _, owner in waiting:
        for link, value in held(owner):
            found = ((*path, link), owner, value)
            yield found
            if len(path) < depth and len(seen) < most and id(value) not in seen and is_entered(value):
                seen.add(id(value))
                waiting.append(found)


def is_generator(value: Any) -> bool:
    """Whether a value is a random generator: NumPy's, Python's, or PyTorch's where that is loaded."""
    torch = sys.modules.get("torch")
    # PyTorch's own way of `isinstance` takes ten times as long.
    return isinstance(value, GENERATORS) or (torch is not None and torch.Generator in type(value).__mro__)


def held(value: Any) -> Iterator[tuple[Link, Any]]:
    """What a value holds: items, attributes, what functions close over, and the functions and generators of classes."""
    if isinstance(value, dict):
        yield from ((Link("item", key), part) for key, part in list(value.items()))
    elif isinstance(value, SEQUENCES):
        yield from ((Link("item", i), part) for i, part in enumerate(value))
    elif isinstance(value, types.FunctionType):
        yield from _held_by_function(value)
    elif isinstance(value, types.GeneratorType):
        yield from _variables(value)
    elif isinstance(value, types.BuiltinMethodType):
        yield Link("closure", "__self__"), value.__self__
    elif isinstance(value, types.MethodType | functools.partial):
        names = ("__self__", "__func__") if isinstance(value, types.MethodType) else ("func", "args", "keywords")
        yield from ((Link("attribute", name), getattr(value, name)) for name in names)
    elif isinstance(value, weakref.ref):
        yield Link("attribute", "referent"), value()
    elif isinstance(value, type):
        for base in value.__mro__:
            if str(getattr(base, "__module__", "")).split(".")[0] not in LIBRARIES:
                parts = [(n, p) for n, p in vars(base).items() if isinstance(p, types.FunctionType) or is_generator(p)]
                yield from ((Link("named", f"{base.__name__}.{name}"), part) for name, part in parts)
        return
    yield from ((Link("attribute", name), part) for name, part in attributes(value).items())
    yield Link("named", type(value).__name__), type(value)


def _held_by_function(function: types.FunctionType) -> Iterator[tuple[Link, Any]]:
    """The variables that it closes over, its defaults, and the generators of its module that it names."""
    yield from _variables(function)
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if is_generator(value):
            yield Link("named", f"{name} of the module {function.__module__}"), value


def _variables(code: Any) -> Iterator[tuple[Link, Any]]:
    """The variables that a function closes over and its defaults, or those of a running generator."""
    if isinstance(code, types.GeneratorType):
        frame = code.gi_frame
        yield from ((Link("closure", name), value) for name, value in (frame.f_locals if frame else {}).items())
        return
    for name, cell in zip(code.__code__.co_freevars, code.__closure__ or (), strict=True):
        try:
            yield Link("closure", name), cell.cell_contents
        except ValueError:  # not filled yet
            continue
    for i, value in enumerate((*(code.__defaults__ or ()), *(code.__kwdefaults__ or {}).values())):
        yield Link("default", (i, f"a default of {code.__qualname__}")), value


class Stand:
    """An object that stands for another one, and is searched and hashed as if it were that."""

    __slots__ = ()

    def stands_for(self) -> Any:
        """The other one."""
        raise NotImplementedError


def attributes(value: Any) -> dict[str, Any]:
    """The attributes of an object, those in slots too."""
    if isinstance(value, Stand):
        return {"content": value.stands_for()}
    found = dict(getattr(value, "__dict__", {}))
    found.update({slot: getattr(value, slot) for slot in _slots(type(value)) if hasattr(value, slot)})  # type: ignore[arg-type]
    return found


@functools.cache
def _slots(kind: type) -> tuple[str, ...]:
    rows = [vars(base).get("__slots__", ()) for base in kind.__mro__]
    names = [name for row in rows for name in ((row,) if isinstance(row, str) else row)]
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


def found_at(root: Any, path: Path) -> Any:
    """The object at the end of a path of items, attributes and variables of functions."""
    for link in path:
        if link.kind == "attribute" or link.name == "__self__":
            root = getattr(root, link.name)
        else:
            root = root[link.name] if link.kind == "item" else dict(_variables(root))[link]
    return root


def put_at(root: Any, path: Path, value: Any) -> None:
    """Put another object at the end of a path; a `TypeError` or `AttributeError` where the holder cannot be changed."""
    holder, (kind, name) = found_at(root, path[:-1]), path[-1]
    if kind == "attribute":
        setattr(holder, name, value)
    elif kind == "item":
        holder[name] = value
    else:
        raise TypeError("what a function holds cannot be replaced")


def path_text(path: Path, root: str = "") -> str:
    """A path in words, from a name for where it begins."""
    for kind, name in path:
        if kind in ("default", "named"):
            root = str(name[1] if kind == "default" else name)
        else:
            root += {"attribute": f".{name}", "item": f"[{name!r}]", "closure": f" closes over {name}"}[kind]
    return root
