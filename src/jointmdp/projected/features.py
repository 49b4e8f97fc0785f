"""Linear features of states and actions: what an estimator projects onto.

Every constructor gives `Features`, which fit any model in tables or, but for `one_hot`, any simulator. With
``by_action=True`` each action has its own copy of the features of the state. With ``by_action=False`` all actions
share them, and every action but the first has an indicator of its own, so that actions differ by the same amount in
every state. In tables, features that are zero at every available coordinate are left out.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jointmdp import checks
from jointmdp.arrays import Floats, Ints
from jointmdp.errors import ModelError
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.projected.column_ranks import DependentColumn, check_rank, dependent_columns
from jointmdp.projected.feature_forms import (
    FeatureRows,
    Features,
    FeatureTable,
    action_words,
    as_feature_rows,
    as_feature_table,
    asked,
    check_count,
    own_state,
    shortened,
    state_words,
)
from jointmdp.projected.state_features import StateColumns, StateFeatures
from jointmdp.simulators.simulator import Simulator

__all__ = [
    "DependentColumn",
    "FeatureRows",
    "FeatureTable",
    "Features",
    "aggregation",
    "as_feature_rows",
    "as_feature_table",
    "check_rank",
    "dependent_columns",
    "one_hot",
]

Groups = Sequence[Hashable] | Callable[[Any], Hashable]


def one_hot() -> Features:
    """One feature for each available coordinate of a model in tables: the projection then changes nothing."""
    return _OneHot()


def aggregation(groups: Groups, by_action: bool = True, *, num_groups: int | None = None) -> Features:
    """One feature for each group of states.

    Args:
        groups: for a model the label of every state, ``[S]``, or a function of the state that gives it; labels are any
            values that can be looked up. For a simulator a function of the observation that gives a number in
            ``range(num_groups)``.
        by_action: whether each action has groups of its own.
        num_groups: how many groups there are; simulators need it. With it, labels of a model are such numbers too.
    """
    if isinstance(groups, str | bytes | dict) or not (callable(groups) or np.iterable(groups)):
        raise ModelError(f"groups must be a label for each state, or a function state -> label, not {groups!r}")
    given = groups if callable(groups) else tuple(_plain(label) for label in groups)
    return _Aggregation(by_action, given, None if num_groups is None else checks.as_count("num_groups", num_groups))


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) or (hasattr(label, "item") and np.ndim(label) == 0) else label


@dataclass(frozen=True)
class _OneHot(Features):
    """An indicator of every available coordinate."""

    def for_model(self, model: JointMDP) -> FeatureTable:
        places = np.argwhere(model.available)
        check_count(len(places), "one_hot()", "put states into groups: features.aggregation(groups)")
        values = np.zeros((*model.available.shape, len(places)))
        values[places[:, 0], places[:, 1], np.arange(len(places))] = 1.0
        actions = action_words(model.action_names, model.num_actions)
        return FeatureTable(values, tuple(f"{actions[a]}: {model.state_label(s)}" for s, a in places))

    def for_simulator(self, simulator: Simulator) -> FeatureRows:
        raise ModelError(
            f"one_hot() counts the states of a table, and {simulator.name} does not list its own; use "
            "features.aggregation(function, num_groups=...) for groups of observations, "
            "aggregation(lambda s: s, num_groups=S) where they are state numbers, or features.tiles(...) where they "
            "are vectors"
        )


@dataclass(frozen=True)
class _Aggregation(StateFeatures):
    """Indicators of groups of states."""

    groups: tuple[Any, ...] | Callable[[Any], Any]
    num_groups: int | None

    def model_columns(self, model: JointMDP) -> StateColumns:
        labels = [self._state_label(model, s) for s in range(model.num_states)]
        if self.num_groups is None:
            known = {label: i for i, label in enumerate(dict.fromkeys(labels))}
        else:
            known = {i: i for i in range(self.num_groups)}
        check_count(len(known), "aggregation", "take larger groups")
        return _indicators(np.array([known[label] for label in labels]), [repr(label) for label in known])

    def _state_label(self, model: JointMDP, state: int) -> Any:
        where, what = state_words(model, state), "the function of groups"
        if callable(self.groups):
            label = _plain(asked(self.groups, what, where, own_state(model, state)))
        elif len(self.groups) != model.num_states:
            raise ModelError(f"groups has {len(self.groups)} labels for {model.num_states} states; give one for each")
        else:
            label = self.groups[state]
        if self.num_groups is not None:
            return _as_group(label, self.num_groups, where)
        try:
            hash(label)
        except TypeError:
            hint = "; give a tuple" if isinstance(label, list | np.ndarray) else ""
            raise ModelError(f"the group of {where} is {shortened(label)}, which cannot be looked up{hint}") from None
        return label

    def simulator_columns(self, simulator: Simulator) -> Callable[[Sequence[Any]], StateColumns]:
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

        def columns(observations: Sequence[Any]) -> StateColumns:
            labels = []
            for observation in observations:
                where = f"observation {shortened(observation)}"
                label = asked(groups, "the function of groups", where, observation)
                labels.append(_as_group(_plain(label), count, where))
            return _indicators(np.array(labels, dtype=np.int64), list(map(str, range(count))))

        return columns


def _as_group(label: Any, count: int, where: str) -> int:
    number = checks.as_count(f"with num_groups={count} the group of {where}", label, -(2**62))
    if not 0 <= number < count:
        hint = "; groups count from 0" if number == count else ""
        raise ModelError(f"the group of {where} is {number}, outside 0..{count - 1} of num_groups={count}{hint}")
    return number


def _indicators(places: Ints, labels: Sequence[str]) -> StateColumns:
    values: Floats = np.zeros((len(places), len(labels)))
    values[np.arange(len(places)), places] = 1.0
    return StateColumns(values, tuple(f"group {label}" for label in labels))
