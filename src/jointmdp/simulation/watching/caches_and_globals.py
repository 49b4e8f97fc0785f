"""What a model keeps from call to call, and whether its results are the same without it.

A cache that was full before anybody looked gives the same again and again. So each memory is made as if nothing had
been kept there, for one call in a copy of this process. What the call fills again is a memory, all else are data of the
model; whatever a memory holds may save time, and must change nothing.
"""

import dis
import functools
import sys
import types
from collections import deque
from collections.abc import Callable, Collection, Iterator
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
    before = dict(dict.items(kept))  # not a copy of its class, which may refuse keys that are not there yet

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


def memories(root: Any, ran: Collection[types.CodeType] = ()) -> Iterator[Memory]:
    """Every place where calls of a model may have left something, functions with caches first.

    Where it is known what `ran` in a call, only what that code names is given: a memory is read before all else.
    """
    code = _Code(ran)
    found = _reached([root, *_defined_in(code.files)], code)
    code.read([value for _, _, value in found if isinstance(value, types.FunctionType)])
    for path, owner, value in found:
        if isinstance(value, CACHE) and value.cache_info().currsize:
            name = f"the cache of {_words(path, owner)}"
            is_filled = functools.partial(lambda kept: bool(kept.cache_info().currsize), value)
            yield Memory(name, value.cache_clear, is_filled, (), value.cache_clear)
    data, held = set[int](), list[Any]()  # rows of tables, and what libraries hold
    for path, owner, value in found:
        if id(owner) in data or (isinstance(owner, dict | list | tuple) and len(owner) > MOST_KEYS):
            data.add(id(value))
            continue
        held.append(value)
        if not _may_hold(type(owner)) or not code.names(path, owner):
            continue
        where = _words(path, owner)
        with suppress(Exception):  # what derives from a dictionary or a list may refuse whatever these do
            if isinstance(value, dict) and value:
                yield _in_dict(where, value)
            elif isinstance(value, list | deque | set) and value:
                yield _in_container(where, value)
            elif isinstance(value, np.ndarray) and code.writes_items and _may_be_table(value):
                yield _in_array(where, value)
    for slot in code.slots(held):
        if slot.read() is not None and not isinstance(slot.read(), types.FunctionType | types.ModuleType | type):
            yield slot.memory()


def _may_hold(kind: type) -> bool:
    """Whether what objects of this class hold may be a model's own."""
    module = str(getattr(kind, "__module__", "")).partition(".")[0]
    return module == "builtins" or module not in (*fingerprints.LIBRARIES, *fingerprints.OTHER_LIBRARIES)


def _may_be_table(value: np.ndarray) -> bool:
    return value.flags.writeable and value.dtype.kind in "fciub" and 0 < value.size <= LARGEST_ARRAY


class _Code:
    """What the code of a model names, and what it writes when it is called."""

    def __init__(self, ran: Collection[types.CodeType]) -> None:
        self.files = {code.co_filename for code in ran}
        self._used = set[str]()
        for code in ran:
            texts = (part for part in code.co_consts if isinstance(part, str))
            self._used |= {*code.co_names, *code.co_freevars, *texts}
        self._functions: list[types.FunctionType] = []
        self._attributes, self._of_classes, self._bound = set[str](), set[str](), dict[int, set[str]]()
        self._sets_any = self.writes_items = False

    def is_near(self, function: types.FunctionType) -> bool:
        """Whether it stands where what ran stands: it may run when nothing is kept any more."""
        return not self.files or function.__code__.co_filename in self.files

    def uses(self, name: str) -> bool:
        """Whether what ran names it."""
        return not self.files or name in self._used

    def names(self, path: Path, owner: Any) -> bool:
        """Whether what ran names the end of a path, or what holds it."""
        while path and path[-1].kind == "item":
            path = path[:-1]
        if not path or path[-1].kind in ("default", "variable") or isinstance(owner, functools.partial):
            return True
        return self.uses(str(path[-1].name).partition(" ")[0])

    def read(self, functions: list[types.FunctionType]) -> None:
        """Note what these write, those left out that only make objects."""
        self._functions = [f for f in functions if is_own(f.__module__) and self.is_near(f)]
        for function in self._functions:
            if function.__name__ in MAKERS:
                continue
            bound = self._bound[id(function)] = set[str]()
            for code in _codes(function.__code__):
                self._sets_any |= bool({"setattr", "__dict__", "vars"} & set(code.co_names))
                before: Any = None
                for step in dis.get_instructions(code):
                    if step.opname == "STORE_ATTR":
                        self._attributes.add(step.argval)
                        names = before.argval if isinstance(before.argval, tuple) else (before.argval,)
                        if names[-1] == "cls" or names[-1] not in code.co_varnames[:1]:  # not self.name = …
                            self._of_classes.add(step.argval)
                    elif step.opname in ("STORE_GLOBAL", "STORE_DEREF"):
                        bound.add(step.argval)
                    self.writes_items |= step.opname == "STORE_SUBSCR" or step.argval in ("put", "copyto", "fill")
                    before = step

    def slots(self, held: list[Any]) -> Iterator[_Slot]:
        """Names that calls bind anew: of modules, closures, and of the objects that are held."""
        for function in self._functions:
            bound, by = self._bound.get(id(function), set()), function.__name__
            for name in sorted(bound & set(function.__globals__)):
                if self.uses(name):
                    where = f"{name} of the module {function.__module__}, which {by} writes,"
                    yield _Slot(where, function.__globals__, name)
            for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
                if name in bound:
                    yield _Slot(f"{name}, which {by} writes,", cell, "cell_contents")
        for value in held:
            kind = value if isinstance(value, type) else type(value)
            is_code = isinstance(value, types.ModuleType | types.FunctionType) and value not in self._functions
            written = self._of_classes if isinstance(value, type) else self._attributes
            parts = {} if is_code or not _may_hold(kind) else fingerprints.attributes(value)
            for name, part in parts.items():
                is_written = self._sets_any or name in written
                is_written |= isinstance(getattr(kind, name, None), functools.cached_property)
                if is_written and self.uses(name) and not name.startswith("__") and not hasattr(part, "__get__"):
                    yield _Slot(f"{getattr(value, '__name__', kind.__name__)}.{name}", value, name)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from _codes(part)


Found = list[tuple[Path, Any, Any]]


def _defined_in(files: Collection[str]) -> Iterator[Any]:
    """Functions and classes of the model's own modules that lie in these files."""
    modules = {
        name: vars(module) for name, module in [*sys.modules.items()] if getattr(module, "__file__", "") in files
    }
    for name, space in modules.items():
        for part in [*space.values()] if is_own(name) else ():
            if isinstance(part, types.FunctionType | type) and part.__module__ == name:
                yield part


def _reached(starts: list[Any], code: _Code) -> Found:
    """All that a model holds or names, each object once."""
    found, seen = list[tuple[Path, Any, Any]](), set[int]()
    roots: Found = [((), None, start) for start in starts]

    def is_entered(value: Any) -> bool:
        if isinstance(value, (*CLOSED, Noise)) or is_generator(value):
            return False
        return not isinstance(value, types.FunctionType) or code.is_near(value)

    for first, holder, start in roots:
        for path, owner, value in walk([start], is_entered, fingerprints.DEEP, MOST_OBJECTS):
            if id(value) in seen or len(seen) > MOST_OBJECTS:
                continue
            seen.add(id(value))
            found.append((path[1:] or first, owner if path[1:] else holder, value))
            if isinstance(value, type) and is_own(getattr(value, "__module__", "builtins")):
                parts = [(n, p) for n, p in vars(value).items() if not (n.startswith("__") or hasattr(p, "__get__"))]
                roots += [((fingerprints.Link("attribute", name),), value, part) for name, part in parts]
            if isinstance(value, types.FunctionType) and code.is_near(value):
                for module, name, part in fingerprints.named_globals(value):
                    is_code = isinstance(part, (*fingerprints.PLAIN, types.FunctionType, types.ModuleType, type))
                    if code.uses(name) and not (is_code or is_generator(part) or id(part) in seen):
                        roots.append(((fingerprints.Link("named", f"{name} of the module {module}"),), value, part))
    return found


def _words(path: Path, owner: Any) -> str:
    if not path:
        return "the model"
    kind, name = path[-1]
    holder = getattr(owner, "__name__", type(owner).__name__)
    words = {"attribute": f"{holder}.{name}", "item": f"an item of {fingerprints.path_text(path[:-1], 'the model')}"}
    if kind == "default":
        return str(name[1])
    return words.get(kind, f"{name}, which {holder} uses,")


def refilled(memory: Memory, fill: Callable[[], Any], call: Callable[[], Any]) -> Any:
    """What a call gives after other calls have filled a place that was emptied. It is spoilt."""
    memory.forget()
    fill()
    return (call(),)


def without(
    group: list[Memory], as_it_is: Any, call: Callable[[], Any], differ: Callable[[Any, Any], Any]
) -> bool | None:
    """Whether a call fills one of them again, and gives something else; None where it fails. They are spoilt."""
    for memory in group:
        memory.forget()
    try:
        found = call()
        if not (any(memory.is_filled() for memory in group) and differ(as_it_is, found)):
            return False
        if len(group) > 1:
            return True
        group[0].give_back()  # of a dictionary with data and a memory in it
        return bool(differ(as_it_is, call()))
    except Exception:  # data of the model that it cannot do without
        return None
