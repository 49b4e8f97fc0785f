"""Draws by inversion: the first entry of a law whose cumulative probability exceeds a uniform number.

One uniform a draw, whatever the law, so that two branches which share the uniform share the draw. The rule is that of
Gymnasium's toy-text games. Entries after the last possible one are never drawn, whatever rounding does to the sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jointmdp.ground.arrays import Floats, Ints, float64, on_device, typed_key

if TYPE_CHECKING:
    from jax import Array

FEW = 32  # entries of a row that are compared all at once; a bisection is a loop, and loops are slow to start


def interval_ends(chances: Floats) -> Floats:
    """Where each entry's interval of the uniform ends, ``[..., W]``; from the last possible one on there is no end."""
    count = chances.shape[-1]
    last = count - 1 - np.argmax(chances[..., ::-1] > 0, axis=-1)
    return np.where(np.arange(count) >= last[..., None], np.inf, np.cumsum(chances, axis=-1))


def drawn(ends: Floats, uniform: float) -> int:
    """The entry that a uniform falls on."""
    return int(np.searchsorted(ends, uniform, side="right"))


def drawn_from(chances: Sequence[float], uniform: float) -> int:
    """The same for one short row, of which some entry is possible; NumPy would take ten times as long."""
    end = 0.0
    for entry, chance in enumerate(chances):
        end += chance
        if end > uniform:
            return entry
    return max(entry for entry, chance in enumerate(chances) if chance > 0)


def drawn_rows(ends: Array, row: Array, uniform: Array) -> Array:
    """The entries of chosen rows that uniforms fall on, where JAX traces; `ends` are `interval_ends`, ``[S, W]``."""
    import jax
    import jax.numpy as jnp

    count = ends.shape[1]
    if count <= FEW:
        return jnp.sum(ends[row] <= uniform[..., None], axis=-1, dtype=jnp.int32)

    def halve(_: int, span: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = span
        middle = (low + high) // 2
        is_above = ends[row, middle] > uniform
        return jnp.where(is_above, low, middle + 1), jnp.where(is_above, middle, high)

    start = (jnp.zeros_like(row), jnp.full_like(row, count - 1))
    return jax.lax.fori_loop(0, math.ceil(math.log2(count)), halve, start)[0]


def drawn_traced(chances: Any, uniform: Array) -> Array:
    """The entry that a uniform falls on, for a law ``[W]`` that JAX traces; its sum need not be 1 to the last bit."""
    import jax.numpy as jnp

    ends = jnp.cumsum(chances)
    last = len(chances) - 1 - jnp.argmax(chances[::-1] > 0)
    return jnp.minimum(jnp.sum(ends <= uniform * ends[-1]), last).astype(jnp.int32)


def drawn_samples(chances: Floats, key: Array, row: Ints | int, num_samples: int) -> Ints:
    """Entries of chosen rows of a table of laws ``[S, W]``, one for each sample, drawn with a JAX key."""
    import jax

    key = typed_key(key)
    with float64():
        uniform = jax.random.uniform(key, (num_samples,), dtype=np.float64)
        rows = on_device(np.broadcast_to(np.asarray(row, dtype=np.int32), (num_samples,)))
        return np.asarray(jax.jit(drawn_rows)(on_device(interval_ends(chances)), rows, uniform)).astype(np.int64)
