"""Where to look for a fault: generators and attributes that a simulator keeps, and the clock."""

import datetime
import random
import sys
import time
import types
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np

from jointmdp.decisions.auditor.observed_outcomes import safe_fingerprint
from jointmdp.simulation.simulators import fingerprints
from jointmdp.simulation.simulators.fingerprints import CLOSED, GENERATORS, path_text, walk
from jointmdp.simulation.simulators.noise import Noise

MOST_OBJECTS = 5_000  # a search that has entered this many has left the simulator for libraries
DEPTH = 16
KEY_NAMES = ("key", "rng", "random", "prng", "rng_key", "prng_key")


def generators(root: Any, name: str, is_noise_listed: bool = True) -> dict[str, bytes]:
    """Every generator that can be reached from `root`, by its path, with a digest of where it stands.

    Variables that functions close over, module-level names that they use and the variables of running Python
    generators are reached too. Generators inside of a `Noise` never are: they are what the simulator was given. Those
    that it hands out can be left out; all of them, and few others, are counter-based.
    """
    found = _sources(root, name, 0)
    of_noise = [path for path, rng in found.items() if isinstance(getattr(rng, "bit_generator", 0), np.random.Philox)]
    return {path: _standing(rng) for path, rng in found.items() if is_noise_listed or path not in of_noise}


def _sources(root: Any, name: str, depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    reached = walk([root], lambda value: not isinstance(value, (*CLOSED, Noise)), DEPTH, MOST_OBJECTS)
    for path, _, value in reached:
        if isinstance(value, (*GENERATORS, np.random.BitGenerator)) or _is_torch(value) or _is_key(path, value):
            found[path_text(path[1:], name)] = value
        elif isinstance(value, types.GeneratorType) and value.gi_frame is not None and depth < 3:
            held = path_text(path[1:], name)
            for variable, inner in value.gi_frame.f_locals.items():
                found |= _sources(inner, f"{held}, its variable {variable}", depth + 1)
    return found


def _is_torch(value: Any) -> bool:
    kind = type(value)
    return kind.__name__ == "Generator" and str(kind.__module__).split(".")[0] == "torch"


def _is_key(path: fingerprints.Path, value: Any) -> bool:
    """JAX keys are known by their type, old ones by two words under a name that says it."""
    jax = sys.modules.get("jax")
    if not isinstance(value, np.ndarray if jax is None else np.ndarray | jax.Array):
        return False  # also what only has the shape of a key
    dtype = value.dtype
    is_old = dtype == np.uint32 and getattr(value, "shape", ()) == (2,)
    return str(dtype).startswith("key<") or (is_old and str(path[-1].name).lower() in KEY_NAMES)


def attributes(root: Any, name: str) -> dict[str, bytes]:
    """What a simulator keeps, two levels deep, by its path, with a digest each; what functions close over too."""
    found: dict[str, bytes] = {}
    for key, value in fingerprints.attributes(root).items():
        inner = {} if isinstance(value, (*CLOSED, type, Noise)) else fingerprints.attributes(value)
        if isinstance(value, types.FunctionType):
            cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
            inner = {variable: _contents(cell) for variable, cell in cells}
            names = [n for n in value.__code__.co_names if n in value.__globals__]
            inner |= {n: value.__globals__[n] for n in names if not _is_code(value.__globals__[n])}
            used = f"which {value.__name__} uses"
            found.update({f"{part}, {used},": safe_fingerprint(held) for part, held in inner.items()})
        elif inner:
            found.update({f"{name}.{key}.{part}": safe_fingerprint(held) for part, held in inner.items()})
        else:
            found[f"{name}.{key}"] = safe_fingerprint(value)
    return found


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _is_code(value: Any) -> bool:
    return callable(value) or isinstance(value, types.ModuleType)


def changed(before: dict[str, bytes], after: dict[str, bytes]) -> list[str]:
    """The paths in both whose digests differ."""
    return [path for path, digest in before.items() if path in after and after[path] != digest]


def _standing(rng: Any) -> bytes:
    if isinstance(rng, random.Random):
        return safe_fingerprint(rng.getstate())
    if isinstance(rng, np.random.RandomState):
        return safe_fingerprint(rng.get_state(legacy=False))
    if isinstance(rng, np.random.Generator | np.random.BitGenerator):
        source: Any = getattr(rng, "bit_generator", rng)
        return safe_fingerprint(source.state)
    if _is_torch(rng):
        return bytes(rng.get_state().numpy())
    jax = sys.modules.get("jax")
    return np.asarray(jax.random.key_data(rng) if jax and str(rng.dtype).startswith("key<") else rng).tobytes()


@contextmanager
def stopped_clock() -> Iterator[None]:
    """The clocks of the `time` and `datetime` modules stand still, wherever a module holds them."""
    held = {name: getattr(time, name)() for name in ("time", "monotonic", "perf_counter", "process_time")}
    fixed = held | {f"{name}_ns": int(value * 1e9) for name, value in held.items()}
    stopped: dict[int, Any] = {id(getattr(time, n)): lambda value=value: value for n, value in fixed.items()}
    now = datetime.datetime.now()

    class Stopped(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return now if tz is None else now.astimezone(tz)

        utcnow = today = now

    stopped[id(datetime.datetime)] = Stopped
    with ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if module is None or name.split(".")[0] in ("jointmdp", "numpy", "jax", "jaxlib"):
                continue
            found = getattr(module, "__dict__", {})
            patches = {key: stopped[id(value)] for key, value in list(found.items()) if id(value) in stopped}
            if patches:
                stack.enter_context(mock.patch.dict(found, patches))
        yield
