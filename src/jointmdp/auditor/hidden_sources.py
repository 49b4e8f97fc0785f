"""Where to look for a fault: generators and attributes that a simulator keeps, and the clock."""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from jointmdp.auditor.observed_outcomes import safe_fingerprint
from jointmdp.simulators import object_graph
from jointmdp.simulators.noise import Noise
from jointmdp.simulators.object_graph import CLOSED, GENERATORS, path_text, walk

MOST_OBJECTS = 5_000  # a search that has entered this many has left the simulator for libraries
DEPTH = 16


def generators(root: Any, name: str, is_noise_listed: bool = True) -> dict[str, bytes]:
    """Every generator that can be reached from `root`, by its path, with a digest of where it stands.

    Variables that functions close over and module-level names that they use are reached too. Generators inside of a
    `Noise` never are: they are what the simulator was given. Those that it hands out can be left out; all of them, and
    few others, are counter-based.
    """
    reached = walk([root], lambda value: not isinstance(value, (*CLOSED, Noise)), DEPTH, MOST_OBJECTS)
    found = {path_text(path[1:], name): value for path, _, value in reached if isinstance(value, GENERATORS)}
    of_noise = [path for path, rng in found.items() if isinstance(getattr(rng, "bit_generator", 0), np.random.Philox)]
    return {path: _standing(rng) for path, rng in found.items() if is_noise_listed or path not in of_noise}


def attributes(root: Any, name: str) -> dict[str, bytes]:
    """What a simulator keeps, two levels deep, by its path, with a digest each."""
    found: dict[str, bytes] = {}
    for key, value in object_graph.attributes(root).items():
        inner = {} if isinstance(value, (*CLOSED, type, Noise)) else object_graph.attributes(value)
        if inner:
            found.update({f"{name}.{key}.{part}": safe_fingerprint(held) for part, held in inner.items()})
        else:
            found[f"{name}.{key}"] = safe_fingerprint(value)
    return found


def changed(before: dict[str, bytes], after: dict[str, bytes]) -> list[str]:
    """The paths in both whose digests differ."""
    return [path for path, digest in before.items() if path in after and after[path] != digest]


def _standing(rng: Any) -> bytes:
    if isinstance(rng, random.Random):
        return safe_fingerprint(rng.getstate())
    is_old = isinstance(rng, np.random.RandomState)
    return safe_fingerprint(rng.get_state(legacy=False) if is_old else rng.bit_generator.state)


@contextmanager
def stopped_clock() -> Iterator[None]:
    """The clock of the `time` module stands still."""
    held = {name: getattr(time, name)() for name in ("time", "monotonic", "perf_counter")}
    fixed = held | {f"{name}_ns": int(value * 1e9) for name, value in held.items()}
    stopped: dict[str, Any] = {name: lambda value=value: value for name, value in fixed.items()}
    with mock.patch.multiple(time, **stopped):
        yield
