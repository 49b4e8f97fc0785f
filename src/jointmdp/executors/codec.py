"""What travels between processes: functions and values as bytes, and the settings of JAX that decide their numbers."""

import enum
import io
import os
import pickle
import sys
from collections.abc import Callable
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from jointmdp.arrays import float64
from jointmdp.errors import ModelError

JAX_SETTINGS = (
    "jax_enable_x64",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_default_matmul_precision",
    "jax_platforms",
)

JaxSettings = dict[str, Any]
loads = pickle.loads


def dumps(value: Any, what: str) -> bytes:
    """`value` as bytes; closures and functions of ``__main__`` travel by value. Errors speak of it as `what`."""
    buffer = io.BytesIO()
    try:
        _Pickler(buffer, protocol=5).dump(value)
    except Exception as error:  # objects refuse with whatever their authors thought of
        raise ModelError(
            f"{what} cannot be sent to another process: {error}; does it hold an open file, a lock, a generator or a "
            'window? make that inside the function, or use executor="serial"'
        ) from error
    return buffer.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Cloudpickle, with arrays of JAX that keep their precision.

    JAX rebuilds an array in the precision that it is set to at that moment: float64 would silently become float32.
    """

    def reducer_override(self, value: Any) -> Any:
        jax = sys.modules.get("jax")
        # A random key holds an ordinary array of integers, which comes by here again.
        if jax is None or not isinstance(value, jax.Array) or jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            return super().reducer_override(value)
        return _rebuilt, value.__reduce__()[:2]


def _rebuilt(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    with float64():
        return function(*arguments)


def jax_settings() -> JaxSettings:
    """The settings that the caller's JAX has now, contexts such as ``jax.enable_x64`` included."""
    config = getattr(sys.modules.get("jax"), "config", None)
    return {name: _plain(getattr(config, name)) for name in JAX_SETTINGS if hasattr(config, name)}


def apply_jax_settings(settings: JaxSettings) -> None:
    """Give this process the caller's settings, whether JAX is here already or will be imported later."""
    jax = sys.modules.get("jax")
    for name, value in settings.items():
        if value is None:
            os.environ.pop(name.upper(), None)
        else:
            os.environ[name.upper()] = str(int(value) if isinstance(value, bool) else value)
        if jax is not None and _plain(getattr(jax.config, name)) != value:
            jax.config.update(name, value)


def _plain(value: Any) -> Any:
    """A setting as its word: sent as JAX's own type it would import JAX in every worker."""
    return value.value if isinstance(value, enum.Enum) else value
