"""Random generators of every kind: those of the whole program, what each one is, and how to start it.

The kinds are NumPy's generators and legacy states, Python's `random.Random`, PyTorch's generators, and JAX keys, which
are values that can be replaced and not seeded. PyTorch and JAX are used where somebody has imported them, never
imported here.
"""

import pickle
import random
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from jointmdp.simulation.simulators.fingerprints import is_generator
from jointmdp.simulation.simulators.noise import Noise, digest

KEY_NAMES = ("key", "rng", "random", "prng")


def _globals() -> dict[str, Any]:
    """Those of the whole program, by the names of their modules; who watches the modules' functions sees nothing."""
    found = {"random": random._inst, "numpy.random": np.random.mtrand._rand}
    torch: Any = sys.modules.get("torch")
    if hasattr(torch, "default_generator"):  # half-imported, it has none yet
        found["torch"] = torch.default_generator  # torch.manual_seed would also move those of GPUs
    return found | _compiled()


class _Compiled:
    """A generator of functions that Numba compiles: one for its `numpy.random` and one for its `random`."""

    def __init__(self, helpers: Any, kind: str) -> None:
        self._helpers, self._place = helpers, getattr(helpers, f"rnd_get_{kind}_state_ptr")()

    def get_state(self) -> Any:
        """Where it stands."""
        return self._helpers.rnd_get_state(self._place)

    def set_state(self, state: Any) -> None:
        """Put it where it stood."""
        self._helpers.rnd_set_state(self._place, state)

    def seed(self, seed: int) -> None:
        """Start it."""
        self._helpers.rnd_seed(self._place, seed)


COMPILED = {"numpy.random in Numba": "np", "random in Numba": "py"}


def _compiled() -> dict[str, _Compiled]:
    """The generators of compiled functions, in this thread, where there are any."""
    helpers: Any = sys.modules.get("numba._helperlib")
    if not hasattr(helpers, "rnd_get_state"):
        return {}
    return {name: _Compiled(helpers, kind) for name, kind in COMPILED.items()}


def compiled_states() -> dict[str, bytes]:
    """Where the generators of compiled functions stand."""
    return {name: standing(rng) for name, rng in _compiled().items()}


def global_states() -> dict[str, bytes]:
    """Where the global generators stand, by the names of their modules."""
    return {name: standing(rng) for name, rng in _globals().items()}


def seed_globals(seed: int, *names: str) -> None:
    """Seed the named global generators, all when none is named."""
    for name, rng in _globals().items():
        if not names or name in names:
            (rng.manual_seed if hasattr(rng, "manual_seed") else rng.seed)(seed)


@contextmanager
def kept_globals(seed: int | None = None) -> Iterator[None]:
    """Afterwards the user's global generators are where they were before; with a seed they begin there."""
    kept = [(rng, state_of(rng)) for rng in _globals().values()]
    if seed is not None:
        seed_globals(seed)
    try:
        yield
    finally:
        for rng, state in kept:
            put_state(rng, state)


def is_global(value: Any) -> bool:
    """Whether a generator is one of the whole program."""
    return any(value is rng for rng in _globals().values())


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
    if hasattr(rng, "manual_seed") or isinstance(rng, _Compiled):  # PyTorch's
        return rng.get_state()
    return getattr(rng, "bit_generator", rng).state


def put_state(rng: Any, state: Any) -> Any:
    """Put a generator back where `state_of` found one of its kind."""
    if isinstance(rng, random.Random):
        rng.setstate(state)
    elif isinstance(rng, np.random.BitGenerator):
        rng.state = state
    else:
        rng.set_state(state)
    return rng


def standing(rng: Any) -> bytes:
    """The same as bytes, also for a JAX key."""
    if hasattr(rng, "dtype"):
        data = sys.modules["jax"].random.key_data(rng) if _is_typed_key(rng) else rng
        return np.asarray(data).tobytes()
    state = state_of(rng)
    return state.numpy().tobytes() if hasattr(state, "numpy") else pickle.dumps(state)


def place_of(rng: Any) -> str:
    """The same in a few letters, where nobody knows a seed."""
    return f"state {digest(standing(rng)).hex()[:8]}"


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
