"""The outcomes of every action in every state, all in one list, checked a whole list at a time."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from jointmdp import checks
from jointmdp.arrays import Bools, Floats, Ints
from jointmdp.errors import ModelError


class ActionLaw(NamedTuple):
    """The possible outcomes of one action in one state, in listed order; none where it is unavailable."""

    probabilities: Floats  # [K]
    rewards: Floats  # [K]
    successors: Ints  # [K]


class ActionLaws(NamedTuple):
    """The laws of all actions, one after the other: law ``l = s·A + a`` is that of action ``a`` in state ``s``.

    Its outcomes are those from ``starts[l]`` to ``starts[l+1] − 1``.
    """

    starts: Ints  # [S·A + 1]
    probabilities: Floats  # [N]
    rewards: Floats  # [N]
    successors: Ints  # [N]
    num_actions: int

    @property
    def num_states(self) -> int:
        """S."""
        return (len(self.starts) - 1) // self.num_actions

    @property
    def sizes(self) -> Ints:
        """How many outcomes each law has, ``[S·A]``."""
        return np.diff(self.starts)

    def law(self, number: int) -> ActionLaw:
        """One law by its number ``s·A + a``."""
        part = slice(self.starts[number], self.starts[number + 1])
        return ActionLaw(self.probabilities[part], self.rewards[part], self.successors[part])

    def of_state(self, state: int) -> list[ActionLaw]:
        """The laws of a state's actions."""
        return [self.law(state * self.num_actions + a) for a in range(self.num_actions)]

    def by_size(self) -> Iterator[Ints]:
        """Places of outcomes, ``[n, K]``, for the laws with K outcomes each.

        Sums and cumulative sums over such rows round as those of single laws do, which padded rows would not.
        """
        sizes = self.sizes
        for size in np.unique(sizes[sizes > 0]).tolist():
            yield self.starts[:-1][sizes == size, None] + np.arange(size)


def laws_from_entries(
    owners: Ints, chances: Floats, gains: Floats, targets: Ints, exists: Bools, where: Callable[[int, int], str]
) -> ActionLaws:
    """The checked laws of outcomes that are listed one by one, those of a law in their order.

    `owners` ``[N]`` says which law ``s·A + a`` an outcome belongs to, `exists` ``[S, A]`` which actions there are, and
    `where` names a state and action for a message.
    """
    order = np.argsort(owners, kind="stable")
    sizes = np.bincount(owners, minlength=exists.size)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    laws = ActionLaws(starts, chances[order], gains[order], targets[order], exists.shape[1])
    sums = np.where(exists.ravel(), 0.0, 1.0)
    scaled = laws.probabilities.copy()
    for places in laws.by_size():
        rows = laws.probabilities[places]
        totals = rows.sum(axis=1)
        sums[np.searchsorted(starts, places[:, 0], side="right") - 1] = totals
        with np.errstate(invalid="ignore", divide="ignore"):
            scaled[places] = checks.rescaled(rows, totals)
    is_wrong = ~(np.isfinite(laws.probabilities) & (laws.probabilities >= 0) & np.isfinite(laws.rewards))
    wrong = np.concatenate([np.flatnonzero(np.abs(sums - 1) > checks.SUM_TOLERANCE), np.sort(owners)[is_wrong]])
    if len(wrong):
        state, action = divmod(int(wrong.min()), laws.num_actions)
        _refuse(where(state, action), laws.law(int(wrong.min())))
    return laws._replace(probabilities=scaled)


def _refuse(where: str, law: ActionLaw) -> None:
    """Raise what is wrong with one law."""
    chances, gains, targets = law
    checks.as_law(f"transition probabilities of {where}", "successor", targets, chances)
    (at, *_) = checks.first_place(~np.isfinite(gains))
    cure = "; if the action does not exist there, say so with available=" if gains[at] == -np.inf else ""
    raise ModelError(f"reward of {where}, successor {targets[at]} is {gains[at]}, not a finite number{cure}")
