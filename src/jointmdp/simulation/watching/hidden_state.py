"""What a simulator and its snapshots hold out of sight: generators, variables of functions, caches, files.

All of it is found by walking from object to object (`fingerprints.walk`), and given by its path in words.
"""

import builtins
import contextvars
import copy
import gc
import io
import os
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from jointmdp.simulation.simulators import fingerprints
from jointmdp.simulation.simulators.fingerprints import CLOSED, is_generator, safe_fingerprint, walk
from jointmdp.simulation.simulators.generators import is_key, standing
from jointmdp.simulation.simulators.noise import Noise

MOST_OBJECTS = 5_000  # a search that has entered this many has left the simulator for libraries


def hidden_generators(root: Any, name: str, is_noise_listed: bool = True) -> dict[str, bytes]:
    """Every generator that can be reached from `root`, by its path, with where it stands.

    Variables that functions close over, module-level names that they use and the variables of running Python
    generators are reached too. Generators inside of a `Noise` never are: they are what the simulator was given. Those
    that it hands out can be left out; all of them, and few others, are counter-based.
    """
    found: dict[str, Any] = {}
    for path, _, value in walk(
        [root], lambda value: not isinstance(value, (*CLOSED, Noise)), fingerprints.DEEP, MOST_OBJECTS
    ):
        if isinstance(value, np.random.BitGenerator) or is_generator(value) or is_key(str(path[-1].name), value):
            is_noise = isinstance(getattr(value, "bit_generator", None), np.random.Philox)
            if is_noise_listed or not is_noise:
                found[fingerprints.path_text(path[1:], name)] = standing(value)
    return found


def kept_values(root: Any, name: str) -> dict[str, bytes]:
    """What a model keeps beside its snapshots, by where it lives, with a digest each.

    Attributes two levels deep, and of whatever functions and classes of its own it reaches: variables that they close
    over, defaults, attributes, names of modules, caches, context variables; and the environment of the process.
    """
    found: dict[str, Any] = {}
    for key, value in fingerprints.attributes(root).items():
        inner = {} if isinstance(value, (*CLOSED, type, Noise, types.FunctionType)) else fingerprints.attributes(value)
        found |= {f"{name}.{key}.{part}": held for part, held in inner.items()} or {f"{name}.{key}": value}
    found |= _kept(root)
    found["os.environ"] = dict(os.environ)
    for path, value in found.items():
        if callable(getattr(value, "cache_info", None)):
            held = gc.get_referents(value)  # results, and where there is no limit a dictionary of them
            cached = [list(part.values()) if isinstance(part, dict) else part for part in held if not callable(part)]
            # Hits change nothing.
            found[path] = value.cache_info()[1:], [part for part in cached if "lru" not in repr(part)[:40]]
        elif isinstance(value, contextvars.ContextVar):
            found[path] = value.get(None)
    return {path: safe_fingerprint(value) for path, value in found.items()}


def _kept(root: Any) -> dict[str, Any]:
    """What functions and classes of a model's own keep, by where it lives."""
    found: dict[str, Any] = {}
    closed = (*CLOSED, Noise)
    for _, _, value in walk(
        [root], lambda v: not isinstance(v, closed) and not is_generator(v), fingerprints.DEEP, MOST_OBJECTS
    ):
        found |= {where: part for where, part in _kept_by(value) if not isinstance(part, Noise | types.ModuleType)}
    return found


def plain_parts(state: Any) -> dict[str, bytes]:
    """The numbers, texts and arrays that a snapshot holds, by their paths, with a digest each; no generators."""
    is_entered = lambda value: not (isinstance(value, (*CLOSED, type, Noise)) or is_generator(value))  # noqa: E731
    return {
        fingerprints.path_text(path[1:], "state"): safe_fingerprint(value)
        for path, _, value in walk([state], is_entered, fingerprints.DEEP, MOST_OBJECTS)
        if isinstance(value, (*fingerprints.PLAIN, np.ndarray, np.generic)) and not isinstance(value, type)
    }


def _kept_by(value: Any) -> Iterator[tuple[str, Any]]:
    """What a function or a class keeps, by where it lives."""
    if isinstance(value, types.FunctionType) and fingerprints.is_own(value.__module__):
        used = f"which {value.__name__} uses,"
        for (kind, part), held in fingerprints.held(value):
            if kind in ("closure", "default"):
                yield (f"{part}, {used}" if kind == "closure" else str(part[1])), held
        yield from ((f"{value.__name__}.{part}", held) for part, held in vars(value).items())
        for module, part, held in fingerprints.named_globals(value):
            if not isinstance(held, types.FunctionType | types.BuiltinFunctionType | type):
                is_cache = hasattr(held, "cache_info")
                yield f"{'the cache of ' * is_cache}{part} of the module {module}, {used}", held
    elif isinstance(value, type) and fingerprints.is_own(value.__module__):
        for part, held in sorted(vars(value).items(), key=lambda pair: hasattr(pair[1], "cache_info")):
            if not part.startswith("__") and (not hasattr(held, "__get__") or hasattr(held, "cache_info")):
                yield f"{value.__name__}.{part}", held


class OpenedFile(NamedTuple):
    """A file as somebody opens it."""

    name: str
    is_written: bool


@contextmanager
def opened_files() -> Iterator[list[OpenedFile]]:
    """The files that this thread opens inside, in their order."""
    found: list[OpenedFile] = []
    plain, thread = builtins.open, threading.get_ident()

    def watched(file: Any, *args: Any, **settings: Any) -> Any:
        if threading.get_ident() == thread and isinstance(file, str | bytes | os.PathLike):
            mode = str(args[0] if args else settings.get("mode", "r"))
            found.append(OpenedFile(os.fsdecode(file), bool(set(mode) & set("wax+"))))
        return plain(file, *args, **settings)

    builtins.open = io.open = watched
    try:
        yield found
    finally:
        builtins.open = io.open = plain


def changed(before: dict[str, bytes], after: dict[str, bytes]) -> list[str]:
    """The paths in both whose values differ."""
    return [path for path, value in before.items() if path in after and after[path] != value]


def faithful_copy(value: Any) -> Any:
    """A copy that holds the same, or None.

    Some classes copy their settings instead of their state (`EzPickle`), and some close what the original still needs
    when a copy is thrown away: those are not copied at all.
    """
    for _, _, part in walk([value], lambda held: not isinstance(held, (*CLOSED, type)), 6, 2_000):
        if hasattr(type(part), "__del__") and str(type(part).__module__).split(".")[0] not in fingerprints.LIBRARIES:
            return None
    before = content(value)
    try:
        found = copy.deepcopy(value)
    except Exception:  # much cannot be copied
        return None
    return found if content(found) == before else None


def content(state: Any) -> bytes:
    """A digest of all that a snapshot holds, and of where its generators stand."""
    found = hidden_generators(state, "state", False).items()
    held = sorted((path, standing) for path, standing in found if " closes over " not in path)  # not its own
    return safe_fingerprint((safe_fingerprint(state), held))
