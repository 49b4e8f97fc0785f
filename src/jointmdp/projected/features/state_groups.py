"""Features that tell states, or groups of states, apart: an indicator for each."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jointmdp import checks
from jointmdp.arrays import Floats
from jointmdp.errors import ModelError
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.projected.features.feature_forms import (
    FeatureRows,
    Features,
    FeatureTable,
    Shown,
    action_words,
    asked,
    check_count,
    own_state,
    shortened,
    state_words,
)
from jointmdp.projected.features.state_features import ObservedColumns, StateColumns, StateFeatures
from jointmdp.simulators.simulator import Simulator


def plain(label: Any) -> Any:
    """A label without its NumPy type, so that equal labels look the same."""
    return label.item() if isinstance(label, np.generic) or (hasattr(label, "item") and np.ndim(label) == 0) else label


@dataclass(frozen=True)
class OneHot(Features):
    """An indicator of every available coordinate."""

    def for_model(self, model: JointMDP) -> FeatureTable:
        """The unit vectors."""
        places = np.argwhere(model.available)
        check_count(
            len(places), "one_hot()", "put states into groups: features.aggregation(groups)", model.available.size
        )
        values = np.zeros((*model.available.shape, len(places)))
        values[places[:, 0], places[:, 1], np.arange(len(places))] = 1.0
        actions = action_words(model.action_names, model.num_actions)
        return FeatureTable(values, tuple(f"{actions[a]}: {model.state_label(s)}" for s, a in places))

    def for_simulator(self, simulator: Simulator) -> FeatureRows:
        """Not possible: nobody lists the states."""
        raise ModelError(
            f"one_hot() counts the states of a table, and {simulator.name} does not list its own; use "
            "features.aggregation(function, num_groups=...) for groups of observations, "
            "aggregation(lambda s: s, num_groups=S) where they are state numbers, or features.tiles(...) where they "
            "are vectors"
        )


@dataclass(frozen=True)
class Aggregation(StateFeatures):
    """Indicators of groups of states."""

    groups: tuple[Any, ...] | Callable[[Any], Any]
    num_groups: int | None

    def model_columns(self, model: JointMDP) -> StateColumns:
        """One column for each label, in the order they appear; with `num_groups` one for each number."""
        check_count(self.num_groups or 0, "aggregation", "take larger groups")
        labels = [self._state_label(model, s) for s in range(model.num_states)]
        if self.num_groups is None:
            known = {label: i for i, label in enumerate(dict.fromkeys(labels))}
        else:
            known = {i: i for i in range(self.num_groups)}
        check_count(len(known), "aggregation", "take larger groups")
        return StateColumns(np.eye(len(known))[[known[label] for label in labels]], _group_names(known))

    def _state_label(self, model: JointMDP, state: int) -> Any:
        where, what = state_words(model, state), "the function of groups"
        if callable(self.groups):
            label = plain(asked(self.groups, what, where, own_state(model, state)))
        elif len(self.groups) != model.num_states:
            raise ModelError(f"groups has {len(self.groups)} labels for {model.num_states} states; give one for each")
        else:
            label = self.groups[state]
        if self.num_groups is not None:
            return _as_group(label, self.num_groups, where)
        if isinstance(label, float) and math.isnan(label):
            raise ModelError(f"the group of {where} is nan, which is equal to no other group")
        try:
            hash(label)
        except TypeError:
            hint = "; give a tuple" if isinstance(label, list | np.ndarray) else ""
            raise ModelError(f"the group of {where} is {shortened(label)}, which cannot be looked up{hint}") from None
        return label

    def simulator_columns(self, simulator: Simulator) -> ObservedColumns:
        """One column for each number of a group."""
        groups, count = self.groups, self.num_groups
        if not callable(groups):
            raise ModelError(
                f"groups is a list of labels, which is for models in tables; for {simulator.name} give a function "
                "observation -> number of the group, and num_groups="
            )
        if count is None:
            raise ModelError(
                f"aggregation needs num_groups= for {simulator.name}: what a simulator may show is not listed, so "
                "groups are numbers from 0 to num_groups - 1"
            )
        check_count(count, "aggregation", "take larger groups")

        def values(observations: Sequence[Any]) -> Floats:
            found = np.zeros((len(observations), count))
            for n, observation in enumerate(observations):
                where = Shown(observation)
                label = asked(groups, "the function of groups", where, observation)
                found[n, _as_group(plain(label), count, where)] = 1.0
            return found

        return ObservedColumns(values, _group_names(range(count)))


def _as_group(label: Any, count: int, where: object) -> int:
    if isinstance(label, int) and 0 <= label < count:
        return int(label)  # truth values tell two groups apart
    number = checks.as_count(f"with num_groups={count} the group of {where}", label, -(2**62))
    if not 0 <= number < count:
        hint = "; groups count from 0" if number == count else ""
        raise ModelError(f"the group of {where} is {number}, outside 0..{count - 1} of num_groups={count}{hint}")
    return number


def _group_names(labels: Iterable[Any]) -> tuple[str, ...]:
    return tuple(f"group {label!r}" for label in labels)
