"""Random generators of every kind: those of the whole program, those that an object hides, and how to start them.

The kinds are NumPy's generators and legacy states, Python's `random.Random`, PyTorch's generators, and JAX keys, which
are values that can be replaced and not seeded. PyTorch and JAX are used where somebody has imported them, never
imported here.
"""

import builtins
import contextvars
import gc
import io
import os
import pickle
import random
import re
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from jointmdp.simulation.simulators import fingerprints
from jointmdp.simulation.simulators.fingerprints import CLOSED, is_generator, path_text, safe_fingerprint, walk
from jointmdp.simulation.simulators.noise import Noise

MOST_OBJECTS = 5_000  # a search that has entered this many has left the simulator for libraries
DEPTH = 16  # attributes of attributes that are searched
KEY_NAMES = ("key", "rng", "random", "prng")


class _Global(NamedTuple):
    """A generator of the whole program."""

    state: Callable[[], Any]
    restore: Callable[[Any], Any]
    seed: Callable[[int], Any]


def _globals() -> dict[str, _Global]:
    """By the names of their modules; asked themselves, so that whoever watches a module's functions sees nothing."""
    plain, legacy = random._inst, np.random.mtrand._rand
    torch: Any = sys.modules.get("torch")
    found = {
        "random": _Global(plain.getstate, plain.setstate, plain.seed),
        "numpy.random": _Global(legacy.get_state, legacy.set_state, legacy.seed),
    }
    if hasattr(torch, "get_rng_state"):  # half-imported, it has none yet
        # torch.manual_seed also moves the generators of GPUs.
        seed = getattr(torch, "default_generator", torch).manual_seed
        found["torch"] = _Global(torch.get_rng_state, torch.set_rng_state, seed)
    return found


def global_states() -> dict[str, bytes]:
    """Where the global generators stand, by the names of their modules."""
    return {name: _as_bytes(each.state()) for name, each in _globals().items()}


def seed_globals(seed: int, *names: str) -> None:
    """Seed the named global generators, all when none is named."""
    for name, each in _globals().items():
        if not names or name in names:
            each.seed(seed)


@contextmanager
def kept_globals(seed: int | None = None) -> Iterator[None]:
    """Afterwards the user's global generators are where they were before; with a seed they begin there."""
    kept = [(each.restore, each.state()) for each in _globals().values()]
    if seed is not None:
        seed_globals(seed)
    try:
        yield
    finally:
        for restore, state in kept:
            restore(state)


def is_global(value: Any) -> bool:
    """Whether a generator is one of the whole program."""
    torch = getattr(sys.modules.get("torch"), "default_generator", 0)
    return any(value is one for one in (random._inst, np.random.mtrand._rand, torch))


def is_key(name: str, value: Any) -> bool:
    """Whether a value is a JAX key: typed ones are known by their type, old ones by a name that says it."""
    jax = sys.modules.get("jax")
    if not isinstance(value, np.ndarray if jax is None else np.ndarray | jax.Array):
        return False  # also what only has the shape of a key
    is_old = value.dtype == np.uint32 and value.shape in ((2,), (4,))
    return _is_typed_key(value) or (is_old and re.split(r"[._]", name.lower())[-1] in KEY_NAMES)


def _is_typed_key(value: Any) -> bool:
    return str(value.dtype).startswith("key<")


def state_of(rng: Any) -> Any:
    """Where a generator of any kind stands."""
    if isinstance(rng, random.Random):
        return rng.getstate()
    if isinstance(rng, np.random.RandomState):
        return rng.get_state(legacy=False)
    if hasattr(rng, "manual_seed"):  # PyTorch's
        return rng.get_state()
    return getattr(rng, "bit_generator", rng).state


def standing(rng: Any) -> bytes:
    """The same as bytes, also for a JAX key."""
    if hasattr(rng, "dtype"):
        data = sys.modules["jax"].random.key_data(rng) if _is_typed_key(rng) else rng
        return np.asarray(data).tobytes()
    return _as_bytes(state_of(rng))


def _as_bytes(state: Any) -> bytes:
    return state.numpy().tobytes() if hasattr(state, "numpy") else pickle.dumps(state)


def fresh(old: Any, noise: Noise, name: str) -> Any:
    """A source like `old` from the beginning of a draw; None where `old` can only be seeded."""
    if old is None or isinstance(old, np.random.Generator):
        return noise[name]
    if isinstance(old, np.random.RandomState):
        return np.random.RandomState(noise[name].bit_generator)
    own = Noise(noise.source(name), name)
    if isinstance(old, random.Random):
        return random.Random(int.from_bytes(own.address, "little"))
    if is_key(name, old):
        jax, key = sys.modules["jax"], own.key
        return key if _is_typed_key(old) else jax.device_put(np.resize(jax.random.key_data(key), old.shape))
    if is_generator(old):  # PyTorch's
        new = type(old)(device=old.device)
        seed(new, own)
        return new
    return None


def seed(source: Any, noise: Noise) -> None:
    """Start a source at the beginning of a draw, where it is."""
    number = int.from_bytes(noise.address, "little")
    if isinstance(source, np.random.Generator):
        source.bit_generator.state = type(source.bit_generator)(number).state
    elif isinstance(source, random.Random):
        source.seed(number)
    elif is_generator(source) and not isinstance(source, np.random.RandomState):
        source.manual_seed(number % 2**63)
    else:
        source.seed(noise.seed)


def hidden_generators(root: Any, name: str, is_noise_listed: bool = True) -> dict[str, bytes]:
    """Every generator that can be reached from `root`, by its path, with where it stands.

    Variables that functions close over, module-level names that they use and the variables of running Python
    generators are reached too. Generators inside of a `Noise` never are: they are what the simulator was given. Those
    that it hands out can be left out; all of them, and few others, are counter-based.
    """
    found: dict[str, Any] = {}
    for path, _, value in walk([root], lambda value: not isinstance(value, (*CLOSED, Noise)), DEPTH, MOST_OBJECTS):
        if isinstance(value, np.random.BitGenerator) or is_generator(value) or is_key(str(path[-1].name), value):
            is_noise = isinstance(getattr(value, "bit_generator", None), np.random.Philox)
            if is_noise_listed or not is_noise:
                found[path_text(path[1:], name)] = standing(value)
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
    for _, _, value in walk([root], _is_searched, DEPTH, MOST_OBJECTS):
        found |= {where: part for where, part in _kept_by(value) if not isinstance(part, Noise | types.ModuleType)}
    found["os.environ"] = dict(os.environ)
    return {path: safe_fingerprint(_content(value)) for path, value in found.items()}


def _is_searched(value: Any) -> bool:
    return not isinstance(value, (*CLOSED, Noise)) and not is_generator(value)


def _kept_by(value: Any) -> Iterator[tuple[str, Any]]:
    """What a function or a class keeps, by where it lives."""
    if isinstance(value, types.FunctionType) and fingerprints.is_own(value.__module__):
        used = f"which {value.__name__} uses,"
        yield from ((f"{part}, {used}", held) for (kind, part), held in fingerprints.held(value) if kind == "closure")
        yield from ((str(part[1]), held) for (kind, part), held in fingerprints.held(value) if kind == "default")
        yield from ((f"{value.__name__}.{part}", held) for part, held in vars(value).items())
        for module, part, held in fingerprints.named_globals(value):
            if not isinstance(held, types.FunctionType | types.BuiltinFunctionType | type):
                is_cache = hasattr(held, "cache_info")
                yield f"{'the cache of ' * is_cache}{part} of the module {module}, {used}", held
    elif isinstance(value, type) and fingerprints.is_own(value.__module__):
        parts = [(part, held) for part, held in vars(value).items() if not part.startswith("__")]
        yield from ((f"{value.__name__}.{part}", held) for part, held in parts if not hasattr(held, "__get__"))
        yield from ((f"{value.__name__}.{part}", held) for part, held in parts if hasattr(held, "cache_info"))


def _content(value: Any) -> Any:
    """What is hashed of a kept value: what is in a cache, the value of a context variable."""
    if callable(getattr(value, "cache_info", None)):
        held = gc.get_referents(value)  # results, and where there is no limit a dictionary of them
        cached = [list(part.values()) if isinstance(part, dict) else part for part in held if not callable(part)]
        return value.cache_info()[1:], [part for part in cached if "lru" not in repr(part)[:40]]  # hits change nothing
    return value.get(None) if isinstance(value, contextvars.ContextVar) else value


@contextmanager
def opened_files() -> Iterator[list[str]]:
    """The names of the files that this thread opens inside."""
    found: list[str] = []
    plain, thread = builtins.open, threading.get_ident()

    def watched(file: Any, *args: Any, **settings: Any) -> Any:
        if threading.get_ident() == thread and isinstance(file, str | bytes | os.PathLike):
            found.append(os.fsdecode(file))
        return plain(file, *args, **settings)

    builtins.open = io.open = watched
    try:
        yield found
    finally:
        builtins.open = io.open = plain


def changed(before: dict[str, bytes], after: dict[str, bytes]) -> list[str]:
    """The paths in both whose values differ."""
    return [path for path, value in before.items() if path in after and after[path] != value]
