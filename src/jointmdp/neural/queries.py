"""Recorded queries: which coordinates were listed together, and two draws of what they gave.

A list names three coordinates: two actions of one state, and where the other branch of a pair stands. What is observed
lies in a pool, and lists point into it: most states are named more than once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointmdp import checks
from jointmdp.arrays import Bools, Floats
from jointmdp.checks import Sharing
from jointmdp.errors import ModelError
from jointmdp.files import sealed_archive
from jointmdp.files.atomic_write import FilePath, path_name
from jointmdp.files.run_checkpoint import check_run
from jointmdp.simulators.fingerprints import fingerprint

LISTED = 3  # m, coordinates of a list
DRAWS = 2
OVER = -1  # the action of a coordinate whose episode is over
KIND = "queries"


class Lists(NamedTuple):
    """V lists: observations by their number in the pool, actions, and numbers that tell states of a list apart."""

    observed: NDArray[Any]  # [V, m], int32
    actions: NDArray[Any]  # [V, m], int16
    states: NDArray[Any]  # [V, m], int16
    rewards: NDArray[Any]  # [V, 2, m]
    next_observed: NDArray[Any]  # [V, 2, m], int32
    next_actions: NDArray[Any]  # [V, 2, m], int16
    next_states: NDArray[Any]  # [V, 2, m], int16
    reward_covariances: NDArray[Any]  # [V, m, m], of what the rewards leave out; 0 where they were drawn

    @property
    def is_alive(self) -> Bools:
        """Where there is a coordinate: not where its episode was over, ``[V, m]``."""
        return np.asarray(self.actions != OVER)

    def shifted(self, by: int) -> Lists:
        """The same lists, for a pool that has so many observations in front."""
        return self._replace(observed=self.observed + by, next_observed=self.next_observed + by)


@dataclass(frozen=True, eq=False)
class RecordedQueries:
    """Queries of a simulator under a policy, as `record_queries` makes them; `jointmdp.train` learns from them."""

    simulator: str
    discount: float
    sharing: Sharing
    action_names: tuple[str, ...]
    observations: NDArray[Any]
    """The pool, ``[N, …]``."""
    lists: Lists
    behaviour: str = ""
    """A digest of what the simulator and the policy do; empty where rewards were changed afterwards."""

    def __post_init__(self) -> None:
        if self.observations.dtype.kind not in "fiub":
            raise ModelError(f"observations of {self.simulator} are no numbers: {self.observations.dtype}")
        object.__setattr__(self, "observations", _held(self.observations))
        if self.observations.dtype.kind == "f" and not np.isfinite(self.observations).all():
            raise ModelError(f"an observation of {self.simulator} is not finite")
        if not (np.isfinite(self.lists.rewards).all() and np.isfinite(self.lists.reward_covariances).all()):
            raise ModelError(f"a reward of {self.simulator} is not finite")

    def __len__(self) -> int:
        return len(self.lists.actions)

    def __repr__(self) -> str:
        size = sum(part.nbytes for part in (self.observations, *self.lists))
        return (
            f"RecordedQueries({self.simulator}, {len(self):,} lists of {LISTED} coordinates, "
            f"{len(self.observations):,} observations {list(self.observations.shape[1:])}, {size / 2**20:.3g} MiB)"
        )

    def with_rewards(
        self, rewards: Floats, covariances: Floats | None = None, *, discount: float | None = None
    ) -> RecordedQueries:
        """The same queries with other rewards ``[V, 2, m]``: those that do not change where a state leads.

        Noise in rewards that is known in law need not be drawn: give the expectations of rewards, and with
        `covariances` ``[V, m, m]`` what the noise of listed coordinates has in common.
        """
        old = self.lists
        none = np.zeros_like(old.reward_covariances)
        given = [np.asarray(each, np.float64) for each in (rewards, none if covariances is None else covariances)]
        for name, new, like in zip(("rewards", "covariances"), given, (old.rewards, none), strict=True):
            if new.shape != like.shape:
                raise ModelError(f"{name} have the shape {list(new.shape)}, not {list(like.shape)}")
        factor = self.discount if discount is None else checks.as_discount(discount)
        lists = old._replace(rewards=given[0], reward_covariances=given[1])
        return RecordedQueries(self.simulator, factor, self.sharing, self.action_names, self.observations, lists)

    def save(self, path: FilePath, run: Mapping[str, Any] | None = None) -> None:
        """Write to a file, with what was asked of the run that they belong to."""
        arrays = {"observations": self.observations, **self.lists._asdict()}
        page = {
            **sealed_archive.HEAD,
            "kind": KIND,
            "simulator": self.simulator,
            "discount": self.discount,
            "sharing": self.sharing,
            "action_names": list(self.action_names),
            "behaviour": self.behaviour,
            "run": dict(run or {}),
        }
        sealed_archive.write(path, page, {name: _plain(array) for name, array in arrays.items()})

    @classmethod
    def load(cls, path: FilePath, run: Mapping[str, Any] | None = None) -> RecordedQueries:
        """Read from a file; that of another run than a given one is refused."""
        page, arrays = sealed_archive.read(path)
        if page.get("kind") != KIND or list(arrays) != ["observations", *Lists._fields]:
            raise ModelError(f"{path_name(path)!r} holds no recorded queries")
        if run is not None:
            check_run(path_name(path), page.get("run", {}), run)
        pool, names = arrays.pop("observations"), tuple(page["action_names"])
        told = (page["simulator"], page["discount"], page["sharing"], names)
        return cls(*told, pool, Lists(**arrays), page["behaviour"])

    def digest(self) -> str:
        """Of everything that a network learns from."""
        return fingerprint([self.discount, self.sharing, self.observations, *self.lists]).hex()


def _held(observations: NDArray[Any]) -> NDArray[Any]:
    """In a type that files know, so that what is loaded is what was recorded: flags are read as numbers, 0 and 1."""
    kind, size = observations.dtype.kind, observations.dtype.itemsize
    if kind == "b":
        return observations.astype(np.float32)
    return (
        observations
        if observations.dtype == np.uint8
        else _plain(observations).astype(f"={'f' if kind == 'f' else 'i'}{_size(kind, size)}", copy=False)
    )


def _size(kind: str, size: int) -> int:
    return min(8, {"f": max(size, 4), "i": max(size, 2)}.get(kind, 8))


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """As files hold it: bytes, and whole numbers and floats of at least 16 and 32 bits, little-endian."""
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind in "ub" and size == 1:
        return np.ascontiguousarray(array).view(np.uint8)
    return np.ascontiguousarray(array, dtype=f"<{'f' if kind == 'f' else 'i'}{_size(kind, size)}")


def no_covariances(count: int) -> Floats:
    """Of rewards that were drawn."""
    return np.zeros((count, LISTED, LISTED))


def joined(parts: list[tuple[NDArray[Any], Lists]]) -> tuple[NDArray[Any], Lists]:
    """Pools and lists one after the other."""
    shapes = list(dict.fromkeys(pool.shape[1:] for pool, _ in parts))
    if len(shapes) > 1:
        raise ModelError(
            f"observations have different shapes, {list(shapes[0])} and {list(shapes[1])}; a network needs one"
        )
    starts = np.cumsum([0, *(len(pool) for pool, _ in parts)])
    moved = [lists.shifted(int(start)) for (_, lists), start in zip(parts, starts[:-1], strict=True)]
    columns: list[NDArray[Any]] = [np.concatenate(each) for each in zip(*moved, strict=True)]
    return np.concatenate([pool for pool, _ in parts]), Lists(*columns)
