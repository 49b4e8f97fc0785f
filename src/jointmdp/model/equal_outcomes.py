"""Which outcomes of different actions are the same one: couplings that make outcomes coincide ask this."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jointmdp.arrays import Floats, Ints
from jointmdp.model.action_laws import ActionLaw


class NumberedLaw(NamedTuple):
    """The law of one action by numbers of outcomes; equal outcomes of different actions have equal numbers."""

    numbers: Ints  # [K] in listed order, each once
    probabilities: Floats  # [K]
    places: Ints  # [K] where the action lists the outcome first; empty where the action is unavailable


def numbered_laws(rows: Sequence[Sequence[ActionLaw]]) -> list[NumberedLaw]:
    """The laws of the actions of some states, one state after the other.

    Outcomes are equal when they have the same successor. Where an action of a state may reach a successor with several
    rewards, equal outcomes of that state have the same reward, too: a reward that the action and the successor fix is
    no part of the outcome.
    """
    numbers: dict[tuple[int, float | None], int] = {}
    found = []
    for row in rows:
        several = {t for law in row for t in _with_several_rewards(law)}
        for law in row:
            chances: dict[int, float] = {}
            places: dict[int, int] = {}
            listed = zip(law.probabilities.tolist(), law.rewards.tolist(), law.successors.tolist(), strict=True)
            for place, (p, r, t) in enumerate(listed):
                if p > 0:
                    number = numbers.setdefault((t, r if t in several else None), len(numbers))
                    chances[number] = chances.get(number, 0.0) + p
                    places.setdefault(number, place)
            entries = (list(chances), list(places.values()))
            which, where = (np.array(each, dtype=np.int64) for each in entries)
            found.append(NumberedLaw(which, np.array(list(chances.values())), where))
    return found


def _with_several_rewards(law: ActionLaw) -> set[int]:
    """The successors that one action may reach with different rewards."""
    targets = law.successors[law.probabilities > 0].tolist()
    if len(set(targets)) == len(targets):
        return set()
    pairs = set(zip(targets, law.rewards[law.probabilities > 0].tolist(), strict=True))
    return {t for t in set(targets) if sum(other == t for other, _ in pairs) > 1}
