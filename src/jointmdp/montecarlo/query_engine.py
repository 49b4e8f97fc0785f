"""Pair simulation on any simulator: the same rules as for tables, one snapshot and one query at a time.

Branches start in one state with different actions. At every step the branches that share their luck (same state, or
always under ``sharing="time"``) are given the same noise; each branch draws its next action by itself; branches whose
state and action coincide are one branch from then on (never under ``"none"``, and never for different policies).
Replication i depends on the seed and i alone, so any part of a simulation can be made anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from jointmdp.arrays import Floats, Ints
from jointmdp.checks import Sharing
from jointmdp.errors import ModelError
from jointmdp.simulators.agents import Agent
from jointmdp.simulators.fingerprints import fingerprint
from jointmdp.simulators.noise import Noise
from jointmdp.simulators.simulator import Action, Outcome, Simulator, Snapshot

STEP_LIMIT = 100_000  # an episode longer than this was probably never meant to end
LEAST_TAIL = 1e-10  # what is left out of an endless return, as a fraction of the largest possible one


class Replications(NamedTuple):
    """Joint samples of the returns of m alternatives."""

    returns: Floats  # [n, m]
    leads: Floats  # [n, m] returns minus those of the first alternative: exactly 0 where nothing ever differed
    steps: Ints  # [n] steps taken
    meetings: Ints  # [n] steps, after the first, at which two branches that are not one were in the same state


Sampler = Callable[[int, int, Sharing], Replications]


@dataclass(frozen=True)
class Rollout:
    """What is simulated: m alternatives of one simulator, each a first action (or none) and an agent to follow."""

    simulator: Simulator
    agents: tuple[Agent, ...]
    """One per alternative; alternatives that share an agent can become one branch."""
    actions: tuple[Action, ...] | None
    """First actions; without them each agent chooses its first action too."""
    state: Snapshot | None
    """Where all alternatives begin; without it each replication begins in a starting state of its own."""
    seed: int
    discount: float
    horizon: int | None
    until_merged: bool = False
    """Stop when all branches are one: their gaps are final, their returns are not."""

    def __call__(self, first: int, count: int, sharing: Sharing) -> Replications:
        """Replications `first`, …, ``first + count − 1``."""
        rows = [self._one(i, sharing) for i in range(first, first + count)]
        returns, leads = (np.array([row[k] for row in rows], dtype=np.float64) for k in (0, 1))
        return Replications(returns, leads, *(np.array([row[k] for row in rows], dtype=np.int64) for k in (2, 3)))

    def _one(self, index: int, sharing: Sharing) -> tuple[list[float], list[float], int, int]:
        """Returns and leads of one replication, its steps, and how often branches met."""
        simulator, m = self.simulator, len(self.agents)
        root = simulator.start(Noise("start", self.seed, index)) if self.state is None else self.state
        states: list[Snapshot] = [root] * m
        names: list[Any] = [simulator.identity(root)] * m
        leader = list(range(m))
        actions: list[Action] = [None] * m if self.actions is None else list(self.actions)
        if self.actions is None:
            self._choose(index, 0, states, leader, actions)
        leader = self._leaders(names, actions)
        total, lead, weight, meetings, t = 0.0, [0.0] * m, 1.0, 0, 0
        while t != self.horizon and not all(simulator.is_over(states[j]) for j in set(leader)):
            if t >= STEP_LIMIT:
                raise ModelError(
                    f"replication {index} of {simulator.name} has not ended after {STEP_LIMIT:,} steps; give a "
                    "horizon, or a discount below 1 and the simulator's reward_bounds"
                )
            rewards = self._step(index, t, states, names, leader, actions, sharing)
            total += weight * rewards[0]
            lead = [x + weight * (reward - rewards[0]) for x, reward in zip(lead, rewards, strict=True)]
            weight *= self.discount
            t += 1
            self._choose(index, t, states, leader, actions)
            if sharing != "none":
                leader = self._leaders(names, actions)
            if self.until_merged and not any(leader):
                break
            going = [j for j in set(leader) if not simulator.is_over(states[j])]
            meetings += sharing != "none" and len({names[j] for j in going}) < len(going)
        return [total + x for x in lead], lead, t, meetings

    def _step(
        self,
        index: int,
        t: int,
        states: list[Snapshot],
        names: list[Any],
        leader: list[int],
        actions: list[Action],
        sharing: Sharing,
    ) -> list[float]:
        """One step of all branches, in place; branches in the same state under the same noise are one query."""
        simulator = self.simulator
        queries: dict[Any, list[int]] = {}
        for j in sorted(set(leader)):
            queries.setdefault(j if sharing == "none" else names[j], []).append(j)
        outcomes: dict[int, Outcome] = {}
        for members in queries.values():
            state = states[members[0]]
            if simulator.is_over(state):
                outcomes.update({j: Outcome(0.0, state) for j in members})
                continue
            noise = Noise("noise", self.seed, index, t, 0 if sharing == "time" else members[0])
            found = simulator.query(state, [actions[j] for j in members], noise)
            outcomes.update(zip(members, found, strict=True))
        labels = {j: simulator.identity(outcome.state) for j, outcome in outcomes.items()}
        for j, first in enumerate(leader):
            states[j], names[j] = outcomes[first].state, labels[first]
        rewards = [float(outcomes[first].reward) for first in leader]
        if not all(map(math.isfinite, rewards)):
            place = f"step {t} of replication {index} of {simulator.name}"
            raise ModelError(f"{place} paid {rewards}; rewards must be finite numbers")
        return rewards

    def _choose(self, index: int, t: int, states: list[Snapshot], leader: list[int], actions: list[Action]) -> None:
        """The next action of each branch that is its own, in place; those that are one with another follow it."""
        for j, first in enumerate(leader):
            if j != first:
                actions[j] = actions[first]
            elif not self.simulator.is_over(states[j]):
                actions[j] = self.agents[j](states[j], Noise("policy", self.seed, index, t, j))

    def _leaders(self, names: list[Any], actions: list[Action]) -> list[int]:
        """For each branch the first one that it is one with: same state, same action, same agent."""
        first: dict[Any, int] = {}
        keys = zip(names, map(_hashable, actions), map(id, self.agents), strict=True)
        return [first.setdefault(key, j) for j, key in enumerate(keys)]


def _hashable(action: Action) -> Any:
    """An action as something that can be compared by value."""
    return action if action is None or isinstance(action, int | float | str) else fingerprint(action)
