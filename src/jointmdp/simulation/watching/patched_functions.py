"""The functions of a program: what stands in for them while somebody watches, and from where they are called.

A twin stands in for a function or class wherever modules hold it. It does what the plain one does for everybody but the
thread (to be exact, the context) that watches, so that nobody else notices. What was replaced is put back when the last
watcher leaves, however that ends.
"""

import copy
import dis
import inspect
import itertools
import linecache
import operator
import os
import random
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache, partial
from types import CellType, CodeType, FunctionType
from typing import Any

import numpy as np

from jointmdp.ground.watchdog import LIBRARY_FOLDERS


class Twins:
    """Pairs of a plain function or class and its twin, and who is watching.

    Modules in `spared` packages keep the plain ones, but for those named in `others`. What classes hold is given as
    `attributes`: holder, name, plain and twin.
    """

    def __init__(
        self,
        pairs: Callable[[], Iterable[tuple[Any, Any]]],
        spared: tuple[str, ...] = ("jointmdp",),
        others: tuple[str, ...] = (),
        attributes: tuple[tuple[Any, str, Any, Any], ...] = (),
    ) -> None:
        self._pairs, self._spared, self._others, self._attributes = pairs, spared, others, attributes
        self._lock, self._watchers = threading.RLock(), 0
        self._sought: frozenset[int] = frozenset()
        self._known: dict[str, tuple[Any, dict[str, Any], int, list[str]]] = {}  # which names of a library hold any
        self._modules: list[Any] = []  # when they were last looked through
        self._held: list[dict[str, Any]] = []  # by libraries among them
        self._sizes: list[int] = []
        self._open: list[tuple[dict[str, Any], list[str] | None]] = []  # that hold any, or may come to

    def __enter__(self) -> None:
        with self._lock:
            if not self._watchers:
                self._replace({id(plain): twin for plain, twin in self._pairs()})
                for holder, name, _, twin in self._attributes:
                    setattr(holder, name, twin)
            self._watchers += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._watchers -= 1
            if not self._watchers:
                self._replace({id(twin): plain for plain, twin in self._pairs()})
                for holder, name, plain, _ in self._attributes:
                    setattr(holder, name, plain)

    def _replace(self, others: Mapping[int, Any]) -> None:
        """Wherever a module holds one of these: users import them by name, too.

        All names of all modules are many, and libraries do not come to hold another function under an old name: in
        those that are as long as when they were last looked through, only the names found then are looked at.
        """
        sought = frozenset(others) | frozenset(map(id, others.values()))
        if sought != self._sought:
            self._sought, self._known, self._modules = sought, {}, []
        modules = list(sys.modules.values())
        is_same = len(modules) == len(self._modules) and all(map(operator.is_, modules, self._modules))
        if not is_same or list(map(len, self._held)) != self._sizes:
            self._look_through()
        for held, names in self._open:
            for key in list(held) if names is None else names:
                if id(held.get(key)) in others:
                    held[key] = others[id(held[key])]

    def _look_through(self) -> None:
        """Which names of modules hold any; of libraries only those that are new, or longer than before."""
        listed, self._open = list(sys.modules.items()), []
        for name, module in listed:
            known = self._known.get(name)
            if known is None or known[0] is not module or len(known[1]) != known[2]:
                held = getattr(module, "__dict__", {})
                is_spared = name.partition(".")[0] in self._spared and name not in self._others
                if not is_spared and not str(getattr(module, "__file__", None)).startswith(LIBRARY_FOLDERS):
                    self._open.append((held, None))
                    continue
                names = [] if is_spared else [key for key, value in list(held.items()) if id(value) in self._sought]
                known = self._known[name] = module, held, len(held), names
            if known[3]:
                self._open.append((known[1], known[3]))
        self._modules = [module for _, module in listed]
        found = [self._known[name] for name, module in listed if name in self._known]
        self._held, self._sizes = [held for _, held, _, _ in found], [size for _, _, size, _ in found]


class Disguise(type):
    """Of a class that stands in for its base: what is an instance of that one is an instance of this one."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, cls.__mro__[1]) if "is_twin" in vars(cls) else super().__instancecheck__(value)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, cls.__mro__[1]) if "is_twin" in vars(cls) else super().__subclasscheck__(kind)


def with_twins(run: Any, twins: Mapping[int, Any]) -> Any:
    """A partial, or a function with defaults and a closure, that holds twins in place of what they stand in for."""

    def other(value: Any) -> Any:
        return twins.get(id(value), value)

    def holds_any(cell: CellType) -> bool:
        return cell != CellType() and id(cell.cell_contents) in twins  # one that is not filled yet holds nothing

    if type(run) is partial:
        named = {name: other(value) for name, value in run.keywords.items()}
        return partial(with_twins(run.func, twins), *map(other, run.args), **named)
    if not isinstance(run, FunctionType):
        return run
    defaults, named, cells = run.__defaults__ or (), run.__kwdefaults__ or {}, run.__closure__ or ()
    if not any(id(value) in twins for value in (*defaults, *named.values())) and not any(map(holds_any, cells)):
        return run
    closure = tuple(CellType(other(cell.cell_contents)) if holds_any(cell) else cell for cell in cells)
    found = FunctionType(run.__code__, run.__globals__, run.__name__, tuple(map(other, defaults)), closure)
    found.__kwdefaults__ = {name: other(value) for name, value in named.items()}
    return found


# -- where in the program --------------------------------------------------------------------------------------------

_NO_WAY_ON = {"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE"}
_NO_WAY_ON |= {"RAISE_VARARGS", "RERAISE", "RETURN_VALUE", "RETURN_CONST"}
DEEPEST = 64  # calls within calls that a draw's path holds
Path = tuple[Any, ...]  # code and place in it, of the draw and of the calls that led to it: innermost first

_HERE = os.path.dirname(os.path.abspath(__file__))
_ADAPTERS = os.path.join(os.path.dirname(_HERE), "simulators")
PACKAGE = os.path.dirname(os.path.dirname(_HERE)) + os.sep
_NUMPY = os.path.dirname(os.path.abspath(np.__file__))
_GENERATORS = {*map(os.path.abspath, (copy.__file__, random.__file__)), os.path.join(_ADAPTERS, "noise.py")}
_GENERATORS |= {os.path.join(_HERE, "recorded_draws.py")}
_HARNESS = {os.path.join(_ADAPTERS, "function_simulator.py"), os.path.join(_ADAPTERS, "simulator.py")}
_HARNESS |= {os.path.join(_HERE, "probe.py")}


@cache
def _kind_of_file(name: str) -> int:
    """0 the user's, 1 that of a generator, 2 that of whoever runs the user's."""
    if name in _GENERATORS or name.startswith(_NUMPY) or f"{os.sep}scipy{os.sep}" in name:
        return 1
    return 2 * (name in _HARNESS)


def path_here(skipped: int) -> Path:
    """How the program came to a draw: each call on the way, as its code and the place in it."""
    frame: Any = sys._getframe(skipped)
    while frame is not None and _kind_of_file(frame.f_code.co_filename) == 1:
        frame = frame.f_back
    found: list[Any] = []
    while frame is not None and len(found) < 2 * DEEPEST:
        code = frame.f_code
        if _kind_of_file(code.co_filename) == 2:
            break
        found += (code, frame.f_lasti)
        frame = frame.f_back
    return tuple(found)


def turns_here(path: Path) -> tuple[tuple[str, Any], ...]:
    """Whose turn it is: variables of the loops that led to a draw, and what processes (generators) were given."""
    frame: Any = sys._getframe(1)
    found, codes = list[tuple[str, Any]](), path[::2]
    while frame is not None and codes:
        if frame.f_code is codes[0]:
            codes = codes[1:]
            names = _turning(frame.f_code)
            values = frame.f_locals if names else {}
            found += [(name, values[name]) for name in names if type(values.get(name)) in (int, str)]
        frame = frame.f_back
    return tuple(found)


@lru_cache(maxsize=4096)
def _turning(code: CodeType) -> tuple[str, ...]:
    listed, found = list(dis.get_instructions(code)), list[str]()
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        found += code.co_varnames[: code.co_argcount]
    for k, each in enumerate(listed):
        count = 1 if each.opname == "FOR_ITER" else 0
        for later in listed[k + 1 :] if count else ():
            if later.opname == "UNPACK_SEQUENCE":
                count += later.arg or 0
            elif later.opname in ("STORE_FAST", "STORE_DEREF"):
                found.append(later.argval)
            elif later.opname == "STORE_FAST_STORE_FAST":  # of newer Pythons
                found += later.argval
                count -= 1
            else:
                break
            count -= 1
            if count <= 0:
                break
    read = {each.argval for each in listed if each.opname.startswith("LOAD_")}
    read |= set().union(*(each.argval for each in listed if each.opname == "LOAD_FAST_LOAD_FAST"))
    return tuple(name for name in dict.fromkeys(found) if name in read)  # the others only count


@lru_cache(maxsize=4096)
def position(code: CodeType, place: int) -> tuple[int, int]:
    """Line and column of an instruction."""
    for at, (line, _, column, _) in zip(range(0, place + 1, 2), code.co_positions(), strict=False):
        if at == place:
            return line or code.co_firstlineno, column or 0
    return code.co_firstlineno, 0


def place_text(path: Path) -> str:
    """File and line of a path, and what stands there is the column where a line makes several generators."""
    if not path:
        return "somewhere"
    line, column = position(path[0], path[1])
    others = linecache.getline(path[0].co_filename, line).count("rng(")
    return f"{os.path.basename(path[0].co_filename)}:{line}" + (f":{column + 1}" if others > 1 else "")


# -- two places in a program ------------------------------------------------------------------------------------------


def follow_each_other(one: Path, other: Path) -> bool:
    """Whether one place comes after the other in a single pass through the code where their paths part."""
    for (code, at), (again, at_again) in zip(_outside_in(one), _outside_in(other), strict=False):
        if code is not again:
            return False
        if position(code, at) != position(code, at_again):
            return _reaches(code, at, at_again) or _reaches(code, at_again, at)
    return False


def places_text(one: Path, other: Path) -> list[str]:
    """Both places in words, with the calls in which they part where the draws are in one line."""
    texts = [place_text(one), place_text(other)]
    if texts[0] == texts[1]:
        for x, y in zip(_outside_in(one), _outside_in(other), strict=False):
            calls = [place_text(x), place_text(y)]
            if calls[0] != calls[1]:
                return [f"{text}, called at {call}," for text, call in zip(texts, calls, strict=True)]
    return texts


def _outside_in(path: Path) -> Iterator[tuple[CodeType, int]]:
    yield from zip(path[-2::-2], path[::-2], strict=True)


@lru_cache(maxsize=4096)
def _reaches(code: CodeType, start: int, end: int) -> bool:
    """Whether the program can come from one instruction to another without going back."""
    following = _following(code)
    # A call is as long as its cache.
    start, end = (max(at for at in following if at <= place) for place in (start, end))
    seen, ahead = {start}, [start]
    while ahead:
        new = set(following.get(ahead.pop(), ())) - seen
        seen |= new
        ahead += new
    return end in seen


@lru_cache(maxsize=256)
def _following(code: CodeType) -> dict[int, list[int]]:
    """The instructions that come next after each, further down."""
    found: dict[int, list[int]] = {}
    listed = list(dis.get_instructions(code))
    exits = {each.offset: each.argval for each in listed if each.opname == "FOR_ITER"}
    for here, later in itertools.zip_longest(listed, listed[1:]):
        ahead = [] if later is None or here.opname in _NO_WAY_ON else [later.offset]
        if here.opcode in dis.hasjrel or here.opcode in dis.hasjabs:
            ahead.append(here.argval)
            if here.argval in exits:  # back to the head of a loop, which may be over
                ahead.append(exits[here.argval])
        found[here.offset] = [offset for offset in ahead if offset > here.offset]
    return found
