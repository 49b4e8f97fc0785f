"""What objects hold: a walk from object to object, and a hash for telling whether two states are the same.

Hashes of states, the search for random generators and the search for functions that point back into an environment all
use this one notion. Properties are never asked: they may do things.

In a hash, numbers, texts, arrays, containers and the attributes of objects count, with types and shapes; functions and
classes count by their names. What is not state does not count: random generators (each step has its own noise) and
modules. Two objects that hold the same are the same, wherever they were made; the bytes of a pickle would also depend
on which parts are shared.
"""

import functools
import random
import struct
import sys
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from jointmdp.simulation.simulators.noise import digest

CACHE = type(functools.lru_cache(int))
GENERATORS = (np.random.Generator, np.random.RandomState, random.Random)
PLAIN = (int, float, bool, str, bytes, complex, types.NoneType)  # values that cannot change
CLOSED = (*PLAIN, np.ndarray, np.generic, types.ModuleType)  # nothing to look for inside
FUNCTIONS = (types.FunctionType, functools.partial, weakref.ref)  # a deep copy points to what the original points to
SEQUENCES = (list, tuple, deque, set, frozenset)
LIBRARIES = ("builtins", "abc", "numpy", "scipy", "jax", "jaxlib", "Box2D", "pygame", "mujoco")
OTHER_LIBRARIES = {
    "jointmdp",
    "gymnasium",
    "gymnax",
    "torch",
    "tensorflow",
    "pandas",
    "matplotlib",
    "numba",
    "sklearn",
    "networkx",
}
MOST_STREAMS = 64  # in a container of them
DEEP = 16  # links that a search for generators follows
MOST_OBJECTS = 20_000  # a walk that has entered this many is in the middle of data


class Link(NamedTuple):
    """How an object holds another: closures and running generators hold variables; a module's or class's has a name."""

    kind: Literal["attribute", "item", "closure", "default", "variable", "named"]
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
    """What a value holds: items, attributes, what functions close over and name, and functions of classes."""
    if isinstance(value, dict):
        yield from ((Link("item", key), part) for key, part in list(value.items()))
    elif isinstance(value, SEQUENCES):
        yield from ((Link("item", i), part) for i, part in enumerate(value))
    elif isinstance(value, types.FunctionType | types.GeneratorType):
        yield from _variables(value)
        for module, name, part in named_globals(value) if isinstance(value, types.FunctionType) else ():
            is_code = isinstance(part, types.FunctionType | type) and is_own(part.__module__)
            if is_generator(part) or is_code or _keeps_generator(part):
                yield Link("named", f"{name} of the module {module}"), part
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
                named = [(name, plain_function(part)) for name, part in vars(base).items()]
                parts = [(n, p) for n, p in named if isinstance(p, types.FunctionType | CACHE) or is_generator(p)]
                yield from ((Link("named", f"{base.__name__}.{name}"), part) for name, part in parts)
        return
    yield from ((Link("attribute", name), part) for name, part in attributes(value).items())
    yield Link("named", type(value).__name__), type(value)


def _keeps_generator(value: Any) -> bool:
    """Whether a generator lies in a small container or in an attribute: a table of streams, a space that is sampled."""
    if isinstance(value, (*CLOSED, type)) or str(type(value).__module__).split(".")[0] == "jointmdp":
        return False
    if isinstance(value, dict | list | tuple):
        parts = list(value.values() if isinstance(value, dict) else value) if len(value) <= MOST_STREAMS else []
    else:
        parts = list(attributes(value).values())
    return any(is_generator(part) for part in parts)


def plain_function(part: Any) -> Any:
    """What a property, a static or a class method calls; anything else as it is."""
    for name in ("fget", "func", "__func__"):
        if isinstance(part, property | functools.cached_property | staticmethod | classmethod) and hasattr(part, name):
            return getattr(part, name)
    return part


def named_globals(function: types.FunctionType) -> Iterator[tuple[str, str, Any]]:
    """What a function of the model's own names in its module and in others of the model: module, name, value."""
    if not is_own(function.__module__):
        return
    names, spaces = tuple(named_in(function.__code__)), [(function.__module__, function.__globals__)]
    for name in names:
        value = function.__globals__.get(name)
        if isinstance(value, types.ModuleType) and is_own(value.__name__):
            spaces.append((value.__name__, vars(value)))
    for module, space in spaces:
        yield from ((module, name, space[name]) for name in names if name in space)


def named_in(code: types.CodeType) -> Iterator[str]:
    """All names that a code may look up, those of functions inside of it included."""
    yield from code.co_names
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from named_in(part)


@functools.cache
def is_own(module: str | None) -> bool:
    """Whether a module is part of somebody's model, and not of a library."""
    top = str(module or "").partition(".")[0]
    return not (top in LIBRARIES or top in OTHER_LIBRARIES or (top in sys.stdlib_module_names and top != "__main__"))


def _variables(code: Any) -> Iterator[tuple[Link, Any]]:
    """The variables that a function closes over and its defaults, or those of a running generator."""
    if isinstance(code, types.GeneratorType):
        frame = code.gi_frame
        yield from ((Link("variable", name), value) for name, value in (frame.f_locals if frame else {}).items())
        return
    for name, cell in zip(code.__code__.co_freevars, code.__closure__ or (), strict=True):
        try:
            yield Link("closure", name), cell.cell_contents
        except ValueError:  # not filled yet
            continue
    for i, value in enumerate((*(code.__defaults__ or ()), *(code.__kwdefaults__ or {}).values())):
        yield Link("default", (i, f"a default of {code.__qualname__}")), value


class Proxy:
    """An object that is searched and hashed as if it were another one."""

    __slots__ = ()

    def target(self) -> Any:
        """The other one."""
        raise NotImplementedError


def attributes(value: Any) -> dict[str, Any]:
    """The attributes of an object, those in slots too."""
    if isinstance(value, Proxy):
        return {"content": value.target()}
    held = getattr(value, "__dict__", None)  # of some objects any name gives a function, as of Numba's libraries
    found = dict(held) if isinstance(held, dict | types.MappingProxyType) else {}
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
            words = {"attribute": f".{name}", "item": f"[{name!r}]", "closure": f" closes over {name}"}
            root += words.get(kind, f", its variable {name}")
    return root


_IGNORED = (np.random.BitGenerator, types.ModuleType)
DEPTH = 150  # nesting beyond which an object cannot be meant as a state
MOST_VISITS = 20_000  # of objects that point to each other, before a path to one stands for all paths to it
READERS: dict[str, Callable[[Any], Any]] = {}
"""By the name of a class whose objects do not show what they hold, or show more than that: what to hash instead."""


def fingerprint(value: Any, ignored: frozenset[str] = frozenset()) -> bytes:
    """16 bytes that are equal for values that hold the same; attributes named in `ignored` do not count."""
    found = _flat(value)
    if found is not None:
        return digest(found)
    try:
        found = _Writer(ignored, False).written(value)
    except _TooManyPaths:
        found = _Writer(ignored, True).written(value)
    return digest(found)


def safe_fingerprint(value: Any) -> bytes:
    """A fingerprint, or the text of a value that has none."""
    try:
        return fingerprint(value)
    except (ValueError, TypeError, RuntimeError):
        return repr(value).encode()


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
    return digest(f"{kind.__qualname__}(".encode() + b"".join(parts)) if len(parts) == len(value) else None


@functools.cache
def _is_plain(kind: type) -> bool:
    """Whether tuples of a class hold their items and nothing else."""
    has_more = kind.__dictoffset__ or any(vars(base).get("__slots__") for base in kind.__mro__)
    return not (has_more or issubclass(kind, Proxy) or hasattr(kind, "__array__") or kind.__name__ in READERS)


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
        found = digest(f"{type(value).__qualname__}(".encode() + b"".join(map(self.written, self._parts(value))))
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
        elif isinstance(value, functools.partial):
            yield from (value.func, value.args, value.keywords)
        elif not held and not callable(value):  # dates, decimals, queues, objects of other languages
            try:
                _, arguments, *rest = value.__reduce_ex__(4)  # what it would be rebuilt from
            except TypeError as error:
                kind = type(value).__qualname__
                words = f"a state that holds a {kind} cannot be hashed ({error}); give an identity function"
                raise ValueError(words) from None
            yield from (arguments, *(list(part) if hasattr(part, "__next__") else part for part in rest))
        for name in sorted(held):
            if name not in self._ignored:
                yield name
                yield held[name]
