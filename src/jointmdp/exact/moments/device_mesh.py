"""All devices of all processes in one row, and numbers on which the processes agree.

Every process runs the same program on its own part of the arrays. Whatever decides how the program goes on must be the
same number everywhere, to the last bit, or some would wait for ever for a step that the others do not take.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from jointmdp.ground.arrays import Floats
from jointmdp.ground.errors import ModelError

AXIS = "columns"
EVERYWHERE, BY_ROW, BY_COLUMN = PartitionSpec(), PartitionSpec(AXIS), PartitionSpec(None, AXIS)  # type: ignore[no-untyped-call]

Found = TypeVar("Found")
Numbers = TypeVar("Numbers")


def all_devices() -> Mesh:
    """The devices of JAX, of this process alone or of all that `jax.distributed` has joined."""
    devices = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
    return Mesh(np.array(devices), (AXIS,))


def total(values: Array) -> Array:
    """The sum over all devices; to be called on each of them, as is `largest`."""
    return jax.lax.psum(values, AXIS)  # type: ignore[no-untyped-call]


def largest(values: Array) -> Array:
    """The largest of all devices."""
    return jax.lax.pmax(values, AXIS)  # type: ignore[no-untyped-call]


def everywhere(mesh: Mesh, values: NDArray[Any]) -> Array:
    """Numbers that every process has, on every device."""
    return jax.make_array_from_callback(values.shape, NamedSharding(mesh, EVERYWHERE), lambda index: values[index])


def own_rows(mesh: Mesh, values: Floats) -> Array:
    """This process's numbers ``[k]`` as the rows of its devices in an array ``[devices, k]``."""
    shape = (mesh.size, len(values))
    return jax.make_array_from_callback(shape, NamedSharding(mesh, BY_ROW), lambda _: values[None, :])


def gathered(mesh: Mesh, values: Floats) -> Floats:
    """The numbers ``[k]`` of each process, ``[processes, k]``."""
    rows = np.asarray(_copied(own_rows(mesh, values), mesh=mesh).addressable_data(0))
    owners = [device.process_index for device in mesh.devices]
    return rows[[owners.index(process) for process in range(max(owners) + 1)]]


@partial(jax.jit, static_argnames="mesh")
def _copied(values: Array, mesh: Mesh) -> Array:
    return jax.lax.with_sharding_constraint(values, NamedSharding(mesh, EVERYWHERE))  # type: ignore[no-untyped-call]


def whole(mesh: Mesh, values: Array) -> Floats:
    """A sharded array on the host of every process."""
    return np.asarray(_copied(values, mesh=mesh).addressable_data(0))


def from_first(mesh: Mesh, tree: Numbers) -> Numbers:
    """`tree` with the floats and arrays of floats of process 0 in place of everybody's own.

    Libraries of linear algebra round as suits the processor they run on.
    """
    if mesh.is_multi_process:
        leaves, structure = jax.tree.flatten(tree)
        places = [i for i, leaf in enumerate(leaves) if np.asarray(leaf).dtype == np.float64]
        sizes = [np.size(leaves[i]) for i in places]
        flat = np.concatenate([np.ravel(leaves[i]) for i in places])
        found = np.asarray(_first_row(own_rows(mesh, flat), mesh=mesh).addressable_data(0))
        for i, part in zip(places, np.split(found, np.cumsum(sizes)[:-1]), strict=True):
            own = leaves[i]
            leaves[i] = part.reshape(own.shape) if isinstance(own, np.ndarray) else float(part[0])
        tree = jax.tree.unflatten(structure, leaves)
    return tree


@partial(jax.jit, static_argnames="mesh")
def _first_row(rows: Array, mesh: Mesh) -> Array:
    def pick(row: Array) -> Array:
        is_first = jax.lax.axis_index(AXIS) == 0
        return total(jnp.where(is_first, row[0], 0.0))

    return jax.shard_map(pick, mesh=mesh, in_specs=BY_ROW, out_specs=EVERYWHERE)(rows)


def together(mesh: Mesh, action: Callable[[], Found]) -> Found:
    """Do something in every process, after which either all go on or all raise."""
    result, error = None, None
    try:
        result = action()
    except ModelError as found:
        error = found
    failed = gathered(mesh, np.array([float(error is not None)]))[:, 0]
    if error is not None:
        raise error
    if np.any(failed):
        others = ", ".join(str(process) for process in np.flatnonzero(failed))
        raise ModelError(f"process {others} of {len(failed)} could not go on; its own message says why")
    return result  # type: ignore[return-value]
