"""Array types, the precision of exact methods, and the way from the host to the device.

JAX is imported inside the functions: whoever needs the types alone does not wait for it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from jax import Array

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

UNIT = 2.0**-53  # unit roundoff of float64


def float64() -> AbstractContextManager[Any]:
    """Inside, JAX computes in float64; the user's own setting is untouched outside."""
    import jax

    return jax.enable_x64(True)


def on_device(values: ArrayLike | Array) -> Array:
    """An array of the host where JAX computes. `jax.numpy.asarray` compiles a program for every new shape to do so."""
    import jax

    return jax.device_put(values if isinstance(values, jax.Array) else np.asarray(values))
