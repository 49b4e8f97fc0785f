"""What a model keeps from call to call, and whether its results are the same without it.

A cache that was full before anybody looked gives the same again and again. So each memory is made as if nothing had
been kept there, for one call in a copy of this process. What the call fills again is a memory, all else are data of the
model; whatever a memory holds may save time, and must change nothing.
"""

import copy
import dis
import functools
import types
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from jointmdp.simulation.simulators import fingerprints
from jointmdp.simulation.simulators.fingerprints import CACHE, CLOSED, Path, is_generator, is_own, walk
from jointmdp.simulation.simulators.noise import Noise

MOST_OBJECTS = 5_000
MOST_KEYS = 8  # of a container that are asked one by one
MAKERS = {"__init__", "__post_init__", "__new__", "__setstate__"}  # what they write is there before any call
LARGEST_ARRAY = 1_000_000


class Memory(NamedTuple):
    """A place where something is kept; what is done to it is done in a copy of the process."""

    where: str
    forget: Callable[[], Any]
    is_filled: Callable[[], bool]
    instead: tuple["Memory", ...] = ()  # where a call failed without it
    give_back: Callable[[], Any] = lambda: None  # all but what was filled again


def _in_dict(where: str, kept: dict[Any, Any]) -> Memory:
    """All of it, or each key alone."""
    before = copy.copy(kept)

    def give_back() -> None:
        filled = list(kept)
        kept.update(before)
        for key in filled:
            del kept[key]

    def one(key: Any) -> Memory:
        return Memory(where, lambda: kept.pop(key), lambda: key in kept, (), lambda: kept.pop(key))

    return Memory(where, kept.clear, lambda: bool(kept), tuple(map(one, list(kept)[:MOST_KEYS])), give_back)


def _in_container(where: str, kept: list[Any] | deque[Any] | set[Any]) -> Memory:
    """All of it; a list with places for what will be known may be needed in its length."""
    instead: tuple[Memory, ...] = ()
    if not isinstance(kept, set):
        size = len(kept)
        forget = lambda: [kept.__setitem__(i, None) for i in range(size)]  # noqa: E731
        instead = (Memory(where, forget, lambda: any(part is not None for part in kept), (), forget),)
    return Memory(where, kept.clear, lambda: bool(kept), instead, kept.clear)


def _in_array(where: str, kept: np.ndarray) -> Memory:
    """A table whose unknown entries are NaN, or 0."""
    empty = lambda: kept.fill(0)  # noqa: E731
    zeros = Memory(where, empty, lambda: bool(np.any(kept != 0)), (), empty)
    if kept.dtype.kind not in "fc":
        return zeros
    unknown = lambda: kept.fill(np.nan)  # noqa: E731
    return Memory(where, unknown, lambda: not bool(np.all(np.isnan(kept))), (zeros,), unknown)


class _Slot(NamedTuple):
    """A name that a call may bind anew: of an attribute, a module or a variable that a function closes over."""

    where: str
    holder: Any
    name: str

    def read(self) -> Any:
        """What is there; None where nothing is."""
        if isinstance(self.holder, dict):
            return self.holder.get(self.name)
        try:
            return getattr(self.holder, self.name, None)
        except ValueError:  # a variable without a value
            return None

    def write(self, value: Any) -> None:
        """Bind it."""
        if isinstance(self.holder, dict):
            self.holder[self.name] = value
        else:
            setattr(self.holder, self.name, value)

    def delete(self) -> None:
        """As if it had never been bound."""
        if isinstance(self.holder, dict):
            self.holder.pop(self.name, None)
        else:
            with suppress(AttributeError):
                delattr(self.holder, self.name)

    def memory(self) -> Memory:
        """None stands there, or nothing."""
        empty, is_filled = lambda: self.write(None), lambda: self.read() is not None
        return Memory(
            self.where, empty, is_filled, (Memory(self.where, self.delete, is_filled, (), self.delete),), empty
        )


def memories(root: Any) -> Iterator[Memory]:
    """Every place where calls of a model may have left something, functions with caches first."""
    found = _reached(root)
    functions = [value for _, _, value in found if isinstance(value, types.FunctionType) and is_own(value.__module__)]
    written = _Written(functions)
    for path, owner, value in found:
        if isinstance(value, CACHE) and value.cache_info().currsize:
            name = f"the cache of {_words(path, owner)}"
            is_filled = functools.partial(lambda kept: bool(kept.cache_info().currsize), value)
            yield Memory(name, value.cache_clear, is_filled, (), value.cache_clear)
    data = set[int]()  # rows of tables, and what libraries hold
    for path, owner, value in found:
        is_row = isinstance(owner, dict | list | tuple) and (id(owner) in data or len(owner) > MOST_KEYS)
        if is_row or not _may_hold(type(owner)):
            data.add(id(value))
            continue
        where = _words(path, owner)
        if isinstance(value, dict) and value:
            yield _in_dict(where, value)
        elif isinstance(value, list | deque | set) and value:
            yield _in_container(where, value)
        elif isinstance(value, np.ndarray) and written.items and _may_be_table(value):
            yield _in_array(where, value)
    for slot in _slots(found, functions, written):
        if slot.read() is not None and not isinstance(slot.read(), types.FunctionType | types.ModuleType):
            yield slot.memory()


def _may_hold(kind: type) -> bool:
    """Whether what objects of this class hold may be a model's own."""
    module = str(getattr(kind, "__module__", "")).partition(".")[0]
    return module == "builtins" or module not in (*fingerprints.LIBRARIES, *fingerprints.OTHER_LIBRARIES)


def _may_be_table(value: np.ndarray) -> bool:
    return value.flags.writeable and value.dtype.kind in "fciub" and 0 < value.size <= LARGEST_ARRAY


class _Written:
    """Which names the functions of a model bind when they are called."""

    def __init__(self, functions: list[types.FunctionType]) -> None:
        self.attributes, self.any_attribute, self.items = set[str](), False, False
        self.of: dict[int, tuple[set[str], set[str]]] = {}  # globals and closed-over variables of each function
        for function in functions:
            if function.__name__ in MAKERS:
                continue
            names, cells = set[str](), set[str]()
            for code in _codes(function.__code__):
                self.any_attribute |= bool({"setattr", "__dict__", "vars"} & set(code.co_names))
                for step in dis.get_instructions(code):
                    if step.opname == "STORE_ATTR":
                        self.attributes.add(step.argval)
                    elif step.opname == "STORE_GLOBAL":
                        names.add(step.argval)
                    elif step.opname == "STORE_DEREF":
                        cells.add(step.argval)
                    self.items |= step.opname == "STORE_SUBSCR" or step.argval in ("put", "copyto", "fill")
            self.of[id(function)] = names, cells


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from _codes(part)


Found = list[tuple[Path, Any, Any]]


def _reached(root: Any) -> Found:
    """All that a model holds or names, each object once."""
    found, seen = list[tuple[Path, Any, Any]](), set[int]()
    roots: Found = [((), None, root)]
    is_entered = lambda value: not (isinstance(value, (*CLOSED, Noise)) or is_generator(value))  # noqa: E731
    for first, holder, start in roots:
        for path, owner, value in walk([start], is_entered, fingerprints.DEEP, MOST_OBJECTS):
            if id(value) in seen or len(seen) > MOST_OBJECTS:
                continue
            seen.add(id(value))
            found.append((path[1:] or first, owner if path[1:] else holder, value))
            if isinstance(value, type) and is_own(getattr(value, "__module__", "builtins")):
                parts = [(n, p) for n, p in vars(value).items() if not (n.startswith("__") or hasattr(p, "__get__"))]
                roots += [((fingerprints.Link("attribute", name),), value, part) for name, part in parts]
            if isinstance(value, types.FunctionType):
                for module, name, part in fingerprints.named_globals(value):
                    is_code = isinstance(part, (*fingerprints.PLAIN, types.FunctionType, types.ModuleType, type))
                    if not (is_code or is_generator(part) or id(part) in seen):
                        roots.append(((fingerprints.Link("named", f"{name} of the module {module}"),), value, part))
    return found


def _slots(found: Found, functions: list[types.FunctionType], written: _Written) -> Iterator[_Slot]:
    for function in functions:
        names, cells = written.of.get(id(function), (set(), set()))
        for name in sorted(names & set(function.__globals__)):
            where = f"{name} of the module {function.__module__}, which {function.__name__} writes,"
            yield _Slot(where, function.__globals__, name)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if name in cells:
                yield _Slot(f"{name}, which {function.__name__} writes,", cell, "cell_contents")
    for _, _, value in found:
        kind = value if isinstance(value, type) else type(value)
        held = fingerprints.attributes(value) if _may_hold(kind) else {}
        for name, part in held.items():
            is_written = written.any_attribute or name in written.attributes
            is_written |= isinstance(getattr(kind, name, None), functools.cached_property)
            if is_written and not name.startswith("__") and not hasattr(part, "__get__"):
                yield _Slot(f"{getattr(value, '__name__', kind.__name__)}.{name}", value, name)


def _words(path: Path, owner: Any) -> str:
    if not path:
        return "the model"
    kind, name = path[-1]
    holder = getattr(owner, "__name__", type(owner).__name__)
    words = {"attribute": f"{holder}.{name}", "item": f"an item of {fingerprints.path_text(path[:-1], 'the model')}"}
    if kind == "default":
        return str(name[1])
    return words.get(kind, f"{name}, which {holder} uses,")


def without(memory: Memory, as_it_is: Any, call: Callable[[], Any], differ: Callable[[Any, Any], Any]) -> bool | None:
    """Whether a call fills a memory again, and gives something else; None where it fails. The memory is spoilt."""
    memory.forget()
    try:
        found = call()
        if not (memory.is_filled() and differ(as_it_is, found)):
            return False
        memory.give_back()  # of a dictionary with data and a memory in it
        return bool(differ(as_it_is, call()))
    except Exception:  # data of the model that it cannot do without
        return None
