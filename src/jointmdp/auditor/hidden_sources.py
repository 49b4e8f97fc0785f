"""Where to look for a fault: generators and attributes that a simulator keeps, global generators, and the clock."""

from __future__ import annotations

import hashlib
import random
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from jointmdp.auditor.observed_outcomes import safe_fingerprint
from jointmdp.simulators.noise import Noise

MOST_OBJECTS = 5_000  # a search that has seen this many has left the simulator and is wandering through libraries
DEPTH = 12
GENERATORS = (np.random.Generator, np.random.RandomState, random.Random)
_PLAIN = (dict, list, tuple, set, frozenset, types.FunctionType, types.MethodType)
_LIBRARIES = ("builtins", "abc", "numpy", "scipy", "jax", "jaxlib", "Box2D", "pygame", "mujoco")
_CLOSED = (str, bytes, int, float, bool, complex, type(None), np.ndarray, np.generic, type, types.ModuleType, Noise)


def own_generators(root: Any, name: str) -> dict[str, bytes]:
    """Those of the `generators` that cannot have been given by a `Noise`, which makes counter-based ones."""
    return {path: _standing(held) for path, held in _reached(root, name) if _is_own(held)}


def _is_own(held: Any) -> bool:
    if isinstance(held, np.random.Generator):
        return not isinstance(held.bit_generator, np.random.Philox)
    return isinstance(held, GENERATORS)


def generators(root: Any, name: str) -> dict[str, bytes]:
    """Every generator that can be reached from `root`, by its path, with a digest of where it stands.

    Variables that functions close over and module-level names that they use are reached too. Generators of a `Noise`
    are not listed: they are the luck that the simulator was given.
    """
    return {path: _standing(held) for path, held in _reached(root, name) if isinstance(held, GENERATORS)}


def attributes(root: Any, name: str) -> dict[str, bytes]:
    """The plain values a simulator keeps, two levels deep, by their path, with a digest each."""
    found: dict[str, bytes] = {}
    for key, value in vars(root).items() if hasattr(root, "__dict__") else ():
        inner = {} if isinstance(value, _CLOSED) else getattr(value, "__dict__", {})
        if inner:
            found.update({f"{name}.{key}.{part}": safe_fingerprint(held) for part, held in inner.items()})
        else:
            found[f"{name}.{key}"] = safe_fingerprint(value)
    return found


def changed(before: dict[str, bytes], after: dict[str, bytes]) -> list[str]:
    """The paths in both whose digests differ."""
    return [path for path, digest in before.items() if path in after and after[path] != digest]


def _reached(root: Any, name: str) -> Iterator[tuple[str, Any]]:
    waiting = [(name, root, 0)]
    seen: set[int] = set()
    for path, value, depth in waiting:
        if id(value) in seen or isinstance(value, _CLOSED):
            continue
        seen.add(id(value))
        if len(seen) > MOST_OBJECTS:
            return
        yield path, value
        if depth < DEPTH and not isinstance(value, GENERATORS):
            waiting.extend((way, part, depth + 1) for way, part in _held(path, value))
            if type(value) not in _PLAIN and id(type(value)) not in seen:
                seen.add(id(type(value)))
                waiting.extend((way, part, depth + 1) for way, part in _methods(type(value)))


def _held(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What a value holds. Properties are never asked: they may do things."""
    if isinstance(value, types.MethodType):
        yield path, value.__self__
        yield path, value.__func__
    elif isinstance(value, types.FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            yield f"{path} closes over {name}", cell.cell_contents if _is_filled(cell) else None
        for name in value.__code__.co_names:
            if isinstance(value.__globals__.get(name), GENERATORS):
                yield f"{name} of the module {value.__module__}", value.__globals__[name]
    elif isinstance(value, dict):
        yield from ((f"{path}[{key!r}]", part) for key, part in list(value.items()))
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"{path}[{i}]", part) for i, part in enumerate(value))
    else:
        yield from ((f"{path}.{slot}", getattr(value, slot)) for slot in _slots(type(value)) if hasattr(value, slot))
        yield from ((f"{path}.{name}", part) for name, part in list(getattr(value, "__dict__", {}).items()))


def _slots(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if isinstance(vars(base).get(slot), types.MemberDescriptorType):
                yield slot


def _methods(kind: type) -> Iterator[tuple[str, Any]]:
    """The functions of a class, which may use generators of their module; libraries of arrays are left out."""
    for base in kind.__mro__:
        if str(getattr(base, "__module__", "")).split(".")[0] not in _LIBRARIES:
            functions = ((name, part) for name, part in vars(base).items() if isinstance(part, types.FunctionType))
            yield from ((f"{base.__name__}.{name}", part) for name, part in functions)


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _standing(rng: Any) -> bytes:
    if isinstance(rng, np.random.Generator):
        state: Any = rng.bit_generator.state
    elif isinstance(rng, np.random.RandomState):
        state = rng.get_state(legacy=False)
    else:
        state = rng.getstate()
    return safe_fingerprint(state)


# -- the generators of whole programs, and the clock --------------------------------------------------------------

GLOBALS = ("random", "numpy.random")


def global_states() -> dict[str, bytes]:
    """Where the global generators stand."""
    kind, keys, position, has_gauss, gauss = np.random.get_state()  # noqa: NPY002
    legacy = repr((kind, position, has_gauss, gauss)).encode() + np.asarray(keys).tobytes()
    return {
        "random": hashlib.blake2b(repr(random.getstate()).encode()).digest(),
        "numpy.random": hashlib.blake2b(legacy).digest(),
    }


def seed_globals(seed: int, *names: str) -> None:
    """Seed the named global generators, all when none is named."""
    if not names or "random" in names:
        random.seed(seed)
    if not names or "numpy.random" in names:
        np.random.seed(seed)  # noqa: NPY002


@contextmanager
def kept_globals() -> Iterator[None]:
    """The user's global generators are after the audit where they were before."""
    plain, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(plain)
        np.random.set_state(legacy)  # noqa: NPY002


@contextmanager
def stopped_clock() -> Iterator[None]:
    """The clock stands still for whoever asks the `time` module."""
    names = ("time", "monotonic", "perf_counter")
    held = {name: getattr(time, name)() for name in names}
    fixed = {f"{name}_ns": int(value * 1e9) for name, value in held.items()} | held
    with mock.patch.multiple(time, **{name: _constant(value) for name, value in fixed.items()}):
        yield


def _constant(value: Any) -> Any:
    return lambda: value
