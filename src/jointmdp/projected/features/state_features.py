"""Features of states as features of coordinates: a copy for each action, or shared with an indicator for each."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from jointmdp.arrays import Bools, Floats, Ints
from jointmdp.errors import ModelError
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.projected.features.feature_forms import (
    FeatureRows,
    Features,
    FeatureTable,
    action_words,
    as_numbers,
    check_count,
    count_actions,
    first_observation,
    used_columns,
)
from jointmdp.simulators.simulator import Simulator


def _none(support: Bools) -> Sequence[int]:
    return ()


class StateColumns(NamedTuple):
    """Features of N states."""

    values: Floats  # [N, k]
    names: tuple[str, ...]  # k
    spare: Callable[[Bools], Sequence[int]] = _none  # columns that others make up for in the states of a mask [N]

    def on(self, support: Bools) -> "StateColumns":
        """The columns that matter in the states of a mask."""
        kept = np.delete(np.arange(len(self.names)), self.spare(support))
        return StateColumns(self.values[:, kept], tuple(self.names[k] for k in kept))


class ObservedColumns(NamedTuple):
    """Features of what a simulator shows."""

    values: Callable[[Sequence[Any]], Floats]  # [N, k] of N observations
    names: tuple[str, ...]  # k


@dataclass(frozen=True)
class StateFeatures(Features):
    """Features that look at the state alone, for each action apart or shared by all."""

    by_action: bool

    def __post_init__(self) -> None:
        if not isinstance(self.by_action, bool | np.bool_):
            raise ModelError(f"by_action must be True or False, not {self.by_action!r}")

    @abstractmethod
    def model_columns(self, model: JointMDP) -> StateColumns:
        """Features of every state of a model."""

    @abstractmethod
    def simulator_columns(self, simulator: Simulator) -> ObservedColumns:
        """Features of observations of a simulator."""

    def for_model(self, model: JointMDP) -> FeatureTable:
        """Copies for each action, or shared features and indicators of all actions but the first that there is."""
        columns, words = self.model_columns(model), action_words(model.action_names, model.num_actions)
        return used_columns(self._table(columns, model.available, words), model.available)

    def _table(self, columns: StateColumns, available: Bools, words: list[str]) -> FeatureTable:
        S, A = available.shape
        if not self.by_action:
            shared = columns.on(np.ones(S, dtype=bool))
            present = np.flatnonzero(available.any(axis=0))[1:]
            count = len(shared.names) + len(present)
            check_count(count, "sharing by all actions", "take fewer features of the state", S * A)
            own = np.broadcast_to(np.eye(A)[None, :, present], (S, A, len(present)))
            copies = np.broadcast_to(shared.values[:, None, :], (S, A, len(shared.names)))
            values = np.concatenate([copies, own], axis=2) * available[:, :, None]
            return FeatureTable(values, shared.names + tuple(words[a] for a in present))
        on = {mask.tobytes(): columns.on(mask) for mask in np.unique(available.T, axis=0)}
        parts = [on[available[:, a].tobytes()] for a in range(A)]
        count = sum(len(part.names) for part in parts)
        advice = "take fewer features of the state, or by_action=False"
        check_count(count, f"a copy for each of {A} actions", advice, S * A)
        values, end = np.zeros((S, A, count)), 0
        for a, part in enumerate(parts):
            values[available[:, a], a, end : end + len(part.names)] = part.values[available[:, a]]
            end += len(part.names)
        return FeatureTable(values, tuple(f"{words[a]}: {name}" for a, part in enumerate(parts) for name in part.names))

    def for_simulator(self, simulator: Simulator) -> FeatureRows:
        """The same for what a simulator shows."""
        return _StateRows(self.simulator_columns(simulator), self.by_action, simulator)


class _StateRows(FeatureRows):
    """Features of observations, copied for each action or shared."""

    is_reducible = True

    def __init__(self, columns: ObservedColumns, by_action: bool, simulator: Simulator) -> None:
        self._values, self._by_action, self._num_actions = columns.values, by_action, count_actions(simulator)
        self._values([first_observation(simulator)[0]])  # what does not fit shows itself at once
        own = columns.names
        words = action_words(simulator.action_names, self._num_actions)
        if by_action:
            A, advice = self._num_actions, "take fewer features of the state, or by_action=False"
            check_count(len(own) * A, f"a copy for each of {A} actions", advice)
            self.names = tuple(f"{word}: {name}" for word in words for name in own)
        else:
            self.names = own + tuple(words[1:])

    def __call__(self, observations: Sequence[Any], actions: Ints) -> Floats:
        N, A = len(observations), self._num_actions
        numbers = as_numbers(actions, N, A)
        if N == 0:
            return np.zeros((0, len(self.names)))
        values = self._values(observations)
        if not self._by_action:
            return np.concatenate([values, np.eye(A)[numbers, 1:]], axis=1)
        copies = np.zeros((N, A, values.shape[1]))
        copies[np.arange(N), numbers] = values
        return copies.reshape(N, -1)
