"""Which outcome each scenario gives a branch, state by state: scenarios that lead alike count as one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jointmdp.arrays import Floats, Ints
from jointmdp.model.joint_mdp import JointMDP


class StateCells(NamedTuple):
    """Outcomes of one state."""

    cells: Ints  # [W, B]
    actions: Ints  # [B]
    chances: Floats  # [B]
    rewards: Floats  # [O]
    successors: Ints  # [O]


class CellTable(NamedTuple):
    """Outcomes of some states, numbered within each state."""

    cells: Ints  # [n, W, B] the outcome of each scenario and each action that the policy takes
    actions: Ints  # [n, B] these actions, padded with the first
    chances: Floats  # [n, B] of them; 0 for padding
    rewards: Floats  # [n, O]
    successors: Ints  # [n, O]


class OutcomeCells:
    """Made for a state when it is first asked for, and kept."""

    def __init__(self, model: JointMDP, policy: Floats) -> None:
        self.model, self.policy = model, policy
        self.most = int((policy > 0).sum(axis=1).max())
        self._known: dict[int, StateCells] = {}

    def of(self, states: Ints) -> CellTable:
        """Of these states, in this order."""
        found = [self._of_state(state) for state in states.tolist()]
        most = max(len(each.rewards) for each in found)
        rewards, successors = np.zeros((len(found), most)), np.zeros((len(found), most), dtype=np.int64)
        for i, each in enumerate(found):
            rewards[i, : len(each.rewards)], successors[i, : len(each.rewards)] = each.rewards, each.successors
        cells, actions = np.stack([each.cells for each in found]), np.stack([each.actions for each in found])
        return CellTable(cells, actions, np.stack([each.chances for each in found]), rewards, successors)

    def _of_state(self, state: int) -> StateCells:
        if state not in self._known:
            self._known[state] = self._made(state)
        return self._known[state]

    def _made(self, state: int) -> StateCells:
        taken = np.flatnonzero(self.policy[state])
        actions = np.append(taken, np.full(self.most - len(taken), taken[0]))
        chances = np.append(self.policy[state, taken], np.zeros(self.most - len(taken)))
        paid, to = (table[state][:, actions].ravel() for table in (self.model.rewards, self.model.successors))
        order = np.lexsort((paid, to))
        is_new = np.append(True, (np.diff(to[order]) != 0) | (np.diff(paid[order]) != 0))
        cells = np.empty(len(order), dtype=np.int64)
        cells[order] = np.cumsum(is_new) - 1
        kept = order[is_new]
        return StateCells(cells.reshape(-1, self.most), actions, chances, paid[kept], to[kept])
