"""The random generators of the whole program: `random`, `numpy.random`, and `torch` where it is loaded."""

import pickle
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


def global_states() -> dict[str, bytes]:
    """Where the global generators stand, by the names of their modules."""
    found = {"random": pickle.dumps(random.getstate()), "numpy.random": pickle.dumps(np.random.get_state())}  # noqa: NPY002
    torch = _torch()
    return found if torch is None else found | {"torch": torch.get_rng_state().numpy().tobytes()}


def seed_globals(seed: int, *names: str) -> None:
    """Seed the named global generators, all when none is named."""
    torch = _torch()
    if not names or "random" in names:
        random.seed(seed)
    if not names or "numpy.random" in names:
        np.random.seed(seed)  # noqa: NPY002
    if torch is not None and (not names or "torch" in names):
        getattr(torch, "default_generator", torch).manual_seed(seed)  # torch.manual_seed also moves those of GPUs


@contextmanager
def kept_globals(seed: int | None = None) -> Iterator[None]:
    """Afterwards the user's global generators are where they were before; with a seed they begin there."""
    torch = _torch()
    plain, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002
    tensor = None if torch is None else torch.get_rng_state()
    if seed is not None:
        seed_globals(seed)
    try:
        yield
    finally:
        random.setstate(plain)
        np.random.set_state(legacy)  # noqa: NPY002
        if torch is not None:
            torch.set_rng_state(tensor)


def is_global(value: Any) -> bool:
    """Whether a generator is one of the whole program."""
    return any(
        value is one for one in (random._inst, np.random.mtrand._rand, getattr(_torch(), "default_generator", 0))
    )


def _torch() -> Any:
    """PyTorch, if somebody has imported it; it is never imported here."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "get_rng_state") else None  # half-imported, it has none yet
