"""Checkpoints of runs: arrays, a log, and what the run was asked to do, so that no other run goes on from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointmdp.errors import ModelError
from jointmdp.files import sealed_archive
from jointmdp.files.atomic_write import FilePath, path_name

DIGESTS = {"digest": "model, simulator or policy", "recorded": "recorded queries"}  # whose values say nothing
KEYS = {"format", "version", "library", "kind", "run", "log"}


def write(
    path: FilePath, kind: str, run: Mapping[str, Any], log: Sequence[Any], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Write a checkpoint, whole or not at all."""
    page = {**sealed_archive.HEAD, "kind": kind, "run": dict(run), "log": list(log)}
    sealed_archive.write(path, page, arrays)


def read(path: FilePath, kind: str, run: Mapping[str, Any]) -> tuple[list[Any], dict[str, NDArray[Any]]]:
    """The log and the arrays of the checkpoint of a run."""
    page, arrays = sealed_archive.read(path)
    check_page(path, page, kind, run)
    return page["log"], arrays


def check_page(path: FilePath, page: Mapping[str, Any], kind: str, run: Mapping[str, Any]) -> None:
    """Refuse the page of something else than a checkpoint of this kind and this run."""
    name = path_name(path)
    if page.get("kind") != kind or page.keys() != KEYS or not isinstance(page["log"], list):
        raise ModelError(f"{name!r} is not a checkpoint of {kind}; give another path")
    check_run(name, page["run"], run)


def check_run(name: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Refuse to go on with what another run has left."""
    other = [key for key in ours if theirs.get(key) != ours[key]]
    if not other and theirs.keys() == ours.keys():
        return
    key = other[0] if other else "settings"
    known = "" if key in DIGESTS else f" ({theirs.get(key)!r} there, {ours.get(key)!r} here)"
    what = DIGESTS.get(key, key)
    raise ModelError(
        f"the checkpoint {name!r} belongs to another run: not the same {what}{known}; delete it to start anew, or give "
        "another path"
    )


def check_arrays(path: FilePath, arrays: Mapping[str, NDArray[Any]], names: Sequence[str]) -> None:
    """Refuse a checkpoint that holds other arrays."""
    if list(arrays) != list(names):
        raise ModelError(f"cannot load {path_name(path)!r}: it is damaged: it holds other arrays than a checkpoint")


def fitted(path: FilePath, part: str, array: NDArray[Any], leaf: Any, *, may_grow: bool = False) -> NDArray[Any]:
    """An array of a checkpoint as that of a run, whose shape and kind it must have."""
    fits = array.ndim == leaf.ndim if may_grow else array.shape == leaf.shape
    if not fits or array.dtype.kind != np.dtype(leaf.dtype).kind:
        raise ModelError(f"cannot load {path_name(path)!r}: it is damaged: {part} does not fit")
    return array.astype(leaf.dtype)
