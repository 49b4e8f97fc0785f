"""A run on disk: the state between two steps, and what the run was asked to do.

Written as a `sealed_archive`: a plain zip of arrays and JSON with a checksum, in a temporary file that is synced and
renamed, so that a run killed at any moment finds its last checkpoint whole. A run that goes on from it is bit for bit
the run that was never killed, because each step draws from the seed and its own number alone.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from jointmdp.arrays import Floats, float64, on_device
from jointmdp.errors import ModelError
from jointmdp.files import sealed_archive
from jointmdp.files.atomic_write import Path, path_name
from jointmdp.files.library_version import __version__
from jointmdp.incremental.recursion import State
from jointmdp.model.joint_mdp import JointMDP

KEYS = {"format", "version", "library", "kind", "run", "log"}


def described(model: JointMDP, policy: Floats) -> str:
    """A digest of what a run learns from, so that a checkpoint is not taken up with another model or policy."""
    digest = hashlib.sha256(f"{model.discount!r} {model.sharing}".encode())
    for array in (model.probabilities, model.rewards, model.successors, model.available, policy):
        digest.update(f"{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def save(
    path: Path,
    run: Mapping[str, Any],
    log: list[dict[str, Any]],
    state: State,
    more: Mapping[str, NDArray[Any]] | None = None,
) -> None:
    """Write a state, the settings of its run and its log; `more` are arrays that the caller wants back."""
    leaves = jax.tree.leaves(state)
    arrays = {f"part{i}": _plain(np.asarray(leaf)) for i, leaf in enumerate(leaves)}
    arrays |= {name: _plain(np.asarray(array)) for name, array in (more or {}).items()}
    page = {"format": "jointmdp", "version": 1, "library": __version__, "kind": "learning", "run": run, "log": log}
    sealed_archive.write(path, page, arrays)


def load(
    path: Path, run: Mapping[str, Any], like: State, more: tuple[str, ...] = (), is_growing: bool = False
) -> tuple[State, list[dict[str, Any]], dict[str, NDArray[Any]]] | None:
    """What `save` wrote for the same run, shaped like the state `like`; None where there is no file yet.

    Where the run discovers its states its arrays grow, and only their number of axes is compared.
    """
    if not os.path.exists(path_name(path)):
        return None
    page, arrays = sealed_archive.read(path)
    name = path_name(path)
    if page.get("kind") != "learning" or page.keys() != KEYS or not isinstance(page["log"], list):
        raise ModelError(f"{name!r} is not a checkpoint of learning; give another path")
    other = [key for key in run if page["run"].get(key) != run[key]]
    if other or page["run"].keys() != run.keys():
        key = other[0] if other else "settings"
        theirs, ours = page["run"].get(key), run.get(key)
        known = "" if key == "digest" else f" ({theirs!r} there, {ours!r} here)"
        what = "model or policy" if key == "digest" else key
        raise ModelError(
            f"the checkpoint {name!r} belongs to another run: its {what} differs{known}; delete it to start anew, or "
            "give another path"
        )
    leaves, tree = jax.tree.flatten(like)
    names = [f"part{i}" for i in range(len(leaves))]
    if list(arrays) != [*names, *more]:
        raise ModelError(f"cannot load {name!r}: it is damaged: it holds other arrays than a checkpoint")
    found = []
    with float64():
        for part, leaf in zip(names, leaves, strict=True):
            array = arrays[part]
            fits = array.ndim == leaf.ndim if is_growing else array.shape == leaf.shape
            if not fits or (array.dtype.kind != np.dtype(leaf.dtype).kind):
                raise ModelError(f"cannot load {name!r}: it is damaged: {part} does not fit")
            found.append(on_device(array.astype(leaf.dtype)))
        return jax.tree.unflatten(tree, found), page["log"], {key: arrays[key] for key in more}


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """Integers and floats as the archive stores them."""
    return np.array(array, dtype="<f8" if array.dtype.kind == "f" else "<i8", order="C")
