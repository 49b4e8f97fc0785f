"""States of JAX environments: pytrees of arrays, on the device and on the host."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jointmdp.errors import ModelError


def kept(over: Array, old: Array, new: Array) -> Array:
    """Leaves ``[N, m, …]`` of a batch of queries; queries in states that are over stay there."""
    return jnp.where(over.reshape(*over.shape, *[1] * (new.ndim - 2)), old[:, None], new)


def as_flag(value: Any) -> Array:
    """A truth value as an array."""
    return jnp.asarray(value).astype(bool)


def joined_types(first: Any, second: Any, name: str) -> Any:
    """The types that hold both states, leaf by leaf."""
    before, after = (str(jax.tree.structure(state)) for state in (first, second))
    if before != after:
        raise ModelError(f"a step of {name} changes the structure of the state from {before} to {after}")

    def join(path: Any, one: Any, other: Any) -> Any:
        if one.shape != other.shape:
            where = jax.tree_util.keystr(path) or "the state"
            raise ModelError(f"a step of {name} changes the shape of {where} from {one.shape} to {other.shape}")
        # Keys inside of a state have a type that cannot be promoted, and need not be.
        dtype = one.dtype if one.dtype == other.dtype else jnp.promote_types(one.dtype, other.dtype)
        return jax.ShapeDtypeStruct(one.shape, dtype)  # type: ignore[no-untyped-call]

    return jax.tree_util.tree_map_with_path(join, first, second)


def fetched(leaf: Any) -> Any:
    """A leaf on the host; keys inside of states have no NumPy form and stay as they are."""
    is_key = hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return leaf if is_key else np.asarray(leaf)


def on_host(state: Any) -> Any:
    """All leaves on the host."""
    return jax.tree.map(fetched, state)


def leaf_bytes(leaf: Any) -> bytes:
    """What a leaf holds, for telling states apart."""
    if not isinstance(leaf, np.ndarray | np.generic) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    array = np.asarray(leaf)
    # 0.0 and −0.0 are one number, as they are to the batch engine.
    return (array + 0.0 if array.dtype.kind == "f" else array).tobytes()
