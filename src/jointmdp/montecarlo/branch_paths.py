"""What the branches of one replication did, step by step."""

from __future__ import annotations

from typing import NamedTuple

from jointmdp.arrays import Bools, Floats
from jointmdp.simulators.simulator import Action, Snapshot


class BranchPath(NamedTuple):
    """One branch of one replication, of T steps."""

    states: tuple[Snapshot, ...]  # T + 1 of them
    actions: tuple[Action, ...]  # T
    rewards: Floats  # [T]
    ended: bool
    """Whether the episode ended; otherwise it was cut, by the horizon or where too little was left."""
    total: float
    """Its return, discounted: that of the sample, to the last bit."""


class BranchSteps(NamedTuple):
    """All m branches of one replication; one that is over stays where it is."""

    states: list[list[Snapshot]]  # [T + 1][m]
    actions: list[list[Action]]  # [T][m]
    rewards: Floats  # [T, m]
    is_over: Bools  # [T + 1, m]

    def path(self, branch: int, total: float) -> BranchPath:
        """One branch, until it is over."""
        over = self.is_over[:, branch]
        steps = int(over.argmax()) if over.any() else len(self.actions)
        return BranchPath(
            tuple(row[branch] for row in self.states[: steps + 1]),
            tuple(row[branch] for row in self.actions[:steps]),
            self.rewards[:steps, branch],
            bool(over.any()),
            total,
        )
