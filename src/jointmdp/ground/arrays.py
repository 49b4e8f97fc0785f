"""Array types, what our programs need JAX to be set to, and the way from the host to the device.

JAX is imported inside the functions: whoever needs the types alone does not wait for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointmdp.ground.errors import ModelError

if TYPE_CHECKING:
    from jax import Array

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
P = ParamSpec("P")
R = TypeVar("R")

UNIT = 2.0**-53  # unit roundoff of float64
HOST_ONLY = (
    "is a value inside of jax.jit, vmap or grad, where there is no number yet; jointmdp's calls run on the host: call "
    "them outside, with numbers, and hand in what they return"
)
FORKED = (
    "this process was forked from one in which JAX had already computed: JAX's threads do not exist here, and any "
    'program would wait for them without end; start processes afresh, by multiprocessing.get_context("spawn") or '
    '"forkserver", or fork before the first call'
)
TRACER_ERRORS = {
    "TracerArrayConversionError",
    "TracerBoolConversionError",
    "TracerIntegerConversionError",
    "ConcretizationTypeError",
    "UnexpectedTracerError",
}

# Settings of JAX: what they are set to, and what else is as good. Their context managers have the names without jax_.
ARITHMETIC: dict[str, tuple[Any, ...]] = {
    "jax_enable_x64": (True,),
    "jax_numpy_dtype_promotion": ("standard",),
    "jax_numpy_rank_promotion": ("allow",),
    "jax_default_matmul_precision": (None,),
}
CALLS: dict[str, tuple[Any, ...]] = {
    "jax_default_prng_impl": ("threefry2x32",),
    "jax_threefry_partitionable": (True,),
    "jax_transfer_guard_host_to_device": ("allow", None),
    "jax_transfer_guard_device_to_host": ("allow", None),
    "jax_transfer_guard_device_to_device": ("allow", None),
    "jax_debug_key_reuse": (False,),  # the actions of a query share their key on purpose
    "jax_no_tracing": (False,),
    "jax_no_execution": (False,),
}
DEBUGGING: dict[str, tuple[Any, ...]] = {  # our programs mark mistakes by NaN, and loop in Python without jit
    "jax_debug_nans": (False,),
    "jax_debug_infs": (False,),
    "jax_check_tracer_leaks": (False,),
    "jax_disable_jit": (False,),
}
OURS = {**ARITHMETIC, **CALLS, **DEBUGGING}

Arithmetic = tuple[tuple[str, Any], ...]


def summed(places: Ints, values: Floats, size: int) -> Floats:
    """Sums of the values at each of the places ``0, …, size − 1``."""
    return np.asarray(np.bincount(places, values, minlength=size), dtype=np.float64)


def expand(starts: NDArray[Any], which: NDArray[Any]) -> tuple[Ints, Ints]:
    """The entries of the chosen lists in turn: whose they are (a position in `which`), and where they stand."""
    return listed(starts[which], starts[which + 1] - starts[which])


def listed(begins: NDArray[Any] | int, lengths: NDArray[Any]) -> tuple[Ints, Ints]:
    """The entries in turn of lists that begin there and are so long: whose they are, and where they stand."""
    owner = np.repeat(np.arange(len(lengths)), lengths)
    return owner, np.arange(len(owner)) + (begins - np.cumsum(lengths, dtype=np.int64) + lengths)[owner]


def grouped(*keys: NDArray[Any]) -> tuple[Ints, Ints]:
    """An order by the keys, the first before the others, and for each entry in that order the number of its kind."""
    order = np.lexsort(keys[::-1])
    is_new = np.zeros(len(order), dtype=bool)
    for key in keys:
        ordered = key[order]
        is_new[1:] |= ordered[1:] != ordered[:-1]
    return order, np.cumsum(is_new)


def counted_once(keys: tuple[NDArray[Any], ...], weight: Floats) -> tuple[Ints, Floats]:
    """Rows in the order of their keys, equal ones once: where the first of each stands, and what all of it weigh."""
    order, number = grouped(*keys)
    kept = order[np.diff(number, prepend=-1) > 0]
    return kept, summed(number, weight[order], len(kept))


def distinct(values: Ints) -> Ints:
    """The different values, in order. Sorting them is many times as fast as `numpy.unique`, which hashes."""
    values = np.sort(values, axis=None)
    is_new = np.ones(len(values), dtype=bool)
    is_new[1:] = values[1:] != values[:-1]
    return values[is_new]


class JaxContext:
    """JAX set as `wanted` inside; only what differs is entered, since this stands around every query."""

    __slots__ = ("_entered", "_is_host", "_wanted")
    is_forked: ClassVar[bool] = False  # after JAX has started its threads

    def __init__(self, wanted: Mapping[str, tuple[Any, ...]], *, is_host: bool = True) -> None:
        self._wanted, self._is_host = wanted, is_host

    def __enter__(self) -> None:
        import jax

        if JaxContext.is_forked:
            raise ModelError(FORKED)
        config = jax.config
        self._entered = [
            getattr(jax, name[4:])(values[0])
            for name, values in self._wanted.items()
            if getattr(config, name) not in values
        ]
        if self._is_host:  # inside of somebody's jit we compute at once, as NumPy does, and are no part of the program
            self._entered.append(jax.core.eval_context())
        for context in self._entered:
            context.__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        for context in reversed(self._entered):
            context.__exit__(None, None, None)
        if self._is_host:
            refuse_traced("something handed in", error)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """A function that always runs inside."""

        @wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            with JaxContext(self._wanted, is_host=self._is_host):
                return function(*args, **kwargs)

        return called


def _after_fork() -> None:
    bridge = sys.modules.get("jax._src.xla_bridge")  # where the threads begin; `jax` by itself has none
    JaxContext.is_forked = bridge is not None and bridge.backends_are_initialized()


if hasattr(os, "register_at_fork"):  # no Windows
    os.register_at_fork(after_in_child=_after_fork)


def float64() -> JaxContext:
    """Inside, JAX computes in float64 and as our programs need it; the user's settings are untouched outside."""
    return JaxContext(OURS)


def float32() -> JaxContext:
    """Inside, JAX computes in float32, as networks do, and as our programs need it otherwise."""
    return JaxContext({**OURS, "jax_enable_x64": (False,)})


def users_calls() -> JaxContext:
    """Around calls on the host that run a user's functions: these compute, and are debugged, as the user has set JAX.

    Random numbers come as they do in the engine, so that samples of a seed do not depend on any setting.
    """
    return JaxContext(CALLS)


def users_arithmetic() -> Arithmetic:
    """How the user's functions compute; hashable, so that it can be a static part of a program."""
    import jax

    return tuple((name, getattr(jax.config, name)) for name in ARITHMETIC)


def restored(arithmetic: Arithmetic) -> JaxContext:
    """Around a user's function inside of our programs: it computes as the user has set JAX."""
    return JaxContext({name: (value,) for name, value in arithmetic}, is_host=False)


def random_key(seed: int) -> Array:
    """``jax.random.key(seed)`` of one kind in float64, whatever JAX's kind, precision and offset of seeds are."""
    import jax

    words = np.array([seed >> 32, seed & 0xFFFFFFFF], dtype=np.uint32)
    return jax.random.wrap_key_data(jax.device_put(words), impl="threefry2x32")


def typed_key(key: Array) -> Array:
    """A user's key, of whichever kind; an old one is of the kind that the user has set."""
    import jax

    return key if jax.numpy.issubdtype(key.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(key)


def refuse_traced(name: str, value: Any) -> None:
    """Raise where a value, or the error that it led to, comes from inside of a JAX transformation."""
    jax = sys.modules.get("jax")  # not imported to find out
    if jax is None or value is None:
        return
    if isinstance(value, jax.core.Tracer) or type(value).__name__ in TRACER_ERRORS:
        raise ModelError(f"{name} {HOST_ONLY}") from None


def on_device(values: ArrayLike | Array) -> Array:
    """An array of the host where JAX computes. `jax.numpy.asarray` compiles a program for every new shape to do so."""
    import jax

    return jax.device_put(values if isinstance(values, jax.Array) else np.asarray(values))
