"""The random generators of the whole program: `random` and `numpy.random`."""

import pickle
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


def global_states() -> dict[str, bytes]:
    """Where the global generators stand, by the names of their modules."""
    return {"random": pickle.dumps(random.getstate()), "numpy.random": pickle.dumps(np.random.get_state())}  # noqa: NPY002


def seed_globals(seed: int, *names: str) -> None:
    """Seed the named global generators, all when none is named."""
    if not names or "random" in names:
        random.seed(seed)
    if not names or "numpy.random" in names:
        np.random.seed(seed)  # noqa: NPY002


@contextmanager
def kept_globals(seed: int | None = None) -> Iterator[None]:
    """Afterwards the user's global generators are where they were before; with a seed they begin there."""
    plain, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002
    if seed is not None:
        seed_globals(seed)
    try:
        yield
    finally:
        random.setstate(plain)
        np.random.set_state(legacy)  # noqa: NPY002
