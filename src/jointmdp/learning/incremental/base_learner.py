"""What learners from tables and from simulators share: settings, counts of updates, and the run on disk.

A checkpoint holds the state between two steps and what the run was asked to do. It is a `sealed_archive`: a plain zip
of arrays and JSON with a checksum, in a temporary file that is synced and renamed, so that a run killed at any moment
finds its last checkpoint whole. The run that continues from it is bit for bit the run that was never killed, because
each step draws from the seed and its own number alone.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from jointmdp.exact.bellman.sample_backups import MeansAndPairs, powers
from jointmdp.ground import archives
from jointmdp.ground.arrays import Ints, float64, on_device
from jointmdp.ground.files import path_name
from jointmdp.learning.incremental.recursion import State
from jointmdp.learning.incremental.settings import Choice, LearnOptions
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.simulation.simulators.simulator import Simulator

KIND = "learning"

LogRows = list[dict[str, Any]]


class BaseLearner(ABC):
    """A run with its settings; subclasses draw the samples and form the answers."""

    def __init__(
        self,
        source: JointMDP | Simulator,
        options: LearnOptions,
        choice: Choice,
        reward_bound: float,
        described: Mapping[str, Any],
    ) -> None:
        """`described` is what must be the same for a run to be continued, beside the options."""
        self.options, self.discount = options, source.discount
        self.restart = 1 - source.discount if options.restart is None else options.restart
        with float64():
            self._settings = options.settings(source.discount, reward_bound, source.sharing, choice)
        self._run = {**described, **options.described(), "coordinates": choice, "restart": self.restart}

    @abstractmethod
    def init(self) -> State:
        """The state before the first step."""

    def updates(self, state: State) -> int:
        """Coordinate updates so far, over all replicas."""
        if state.visits is None:
            empty = 0 if isinstance(state.values, MeansAndPairs) else len(state.values)  # moments of the empty tuple
            return int(state.step) * (sum(part.size for part in jax.tree.leaves(state.values)) - empty)
        mean, pair = (int(np.asarray(part).sum(dtype=np.int64)) for part in state.visits)
        return mean + len(powers(self.options.order)) * pair

    def _summary(self, state: State, log: tuple[dict[str, Any], ...]) -> tuple[Any, ...]:
        """The fields of a `RunSummary`."""
        options, sharing = self.options, self._settings.sharing
        return options.order, sharing, options.replicas, options.seed, int(state.step), self.updates(state), log

    def save(self, state: State, log: LogRows) -> None:
        """Write the checkpoint of the options."""
        assert self.options.checkpoint is not None
        arrays = {f"part{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
        arrays |= self._extra(state)
        plain = {
            name: np.array(array, dtype="<f8" if array.dtype.kind == "f" else "<i8", order="C")
            for name, array in arrays.items()
        }
        archives.write_checkpoint(self.options.checkpoint, KIND, self._run, log, plain)

    def resume(self) -> tuple[State, LogRows]:
        """The state and log of the checkpoint, or those before the first step."""
        first, path = self.init(), self.options.checkpoint
        if path is None or not os.path.exists(path_name(path)):
            return first, []
        log, arrays = archives.read_checkpoint(path, KIND, self._run)
        (leaves, tree), extra = jax.tree.flatten(first), self._extra(first)
        names = [f"part{i}" for i in range(len(leaves))]
        archives.check_arrays(path, arrays, [*names, *extra])
        with float64():
            found = [
                on_device(archives.fitted(path, name, arrays[name], leaf, may_grow=bool(extra)))
                for name, leaf in zip(names, leaves, strict=True)
            ]
            state = jax.tree.unflatten(tree, found)
        self._restore(int(state.step), arrays)
        return state, log

    def _extra(self, state: State) -> dict[str, NDArray[Any]]:
        """What a checkpoint holds beside the state; where there is any, the arrays of the state may grow."""
        return {}

    def _restore(self, step: int, arrays: Mapping[str, Ints]) -> None:
        """Continue from the `_extra` arrays of a checkpoint."""
        return
