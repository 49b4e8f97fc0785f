"""The engine of joint simulation for any simulator: the rules of `compiled_branches`, one snapshot and query at a time.

Replication i depends on the seed and i alone, so any part of a simulation can be made anywhere.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from jointmdp.arrays import Floats
from jointmdp.checks import Sharing
from jointmdp.errors import ModelError
from jointmdp.montecarlo.samples import ROUNDING_UNITS, Replications
from jointmdp.simulators.fingerprints import fingerprint
from jointmdp.simulators.noise import Noise
from jointmdp.simulators.simulator import Action, Agent, Outcome, Simulator, Snapshot

STEP_LIMIT = 100_000  # an episode longer than this was probably never meant to end
TAIL = 1e-4  # discount weight at which an endless future is cut; what is left out is part of the intervals


@dataclass(frozen=True)
class QuerySampler:
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
        return Replications.joined([self._one(i, sharing) for i in range(first, first + count)])

    def _one(self, index: int, sharing: Sharing) -> Replications:
        """One replication."""
        simulator, m = self.simulator, len(self.agents)
        root = simulator.start(Noise("start", self.seed, index)) if self.state is None else self.state
        states: list[Snapshot] = [root] * m
        names: list[Any] = [simulator.identity(root)] * m
        leader = list(range(m))
        actions: list[Action] = [None] * m if self.actions is None else list(self.actions)
        if self.actions is None:
            self._choose(index, 0, states, leader, actions)
        leader = self._leaders(names, actions)
        total, lead, size, weight, meetings, t = 0.0, np.zeros(m), np.zeros(m), 1.0, 0, 0
        last, is_open = self._last, not all(simulator.is_over(states[j]) for j in set(leader))
        is_open = is_open and not (self.until_merged and not any(leader))
        while t != last and is_open:
            if t >= STEP_LIMIT:
                raise ModelError(
                    f"replication {index} of {simulator.name} has not ended after {STEP_LIMIT:,} steps; give a "
                    "horizon, or a discount below 1 and the simulator's reward_bounds"
                )
            rewards = self._step(index, t, states, names, leader, actions, sharing)
            total += weight * rewards[0]
            more = weight * (rewards - rewards[0])
            lead, size = lead + more, size + np.abs(more)
            weight *= self.discount
            t += 1
            self._choose(index, t, states, leader, actions)
            if sharing != "none":
                leader = self._leaders(names, actions)
            going = [j for j in set(leader) if not simulator.is_over(states[j])]
            is_open = bool(going) and not (self.until_merged and not any(leader))
            meetings += is_open and sharing != "none" and len({names[j] for j in going}) < len(going)
        is_cut = is_open and self.horizon is None
        return Replications(
            returns=(total + lead)[None],
            leads=lead[None],
            rounding=((t + ROUNDING_UNITS) * 2.0**-52 * size)[None],
            steps=np.array([t]),
            meetings=np.array([meetings]),
            leaders=np.array([leader]),
            left_out=np.array([weight if is_cut else 0.0]),
        )

    @property
    def _last(self) -> int | None:
        """Steps after which an endless replication is cut."""
        if self.horizon is not None or self.discount >= 1:
            return self.horizon
        return max(1, math.ceil(math.log(TAIL) / math.log(self.discount))) if self.discount > 0 else 1

    def _step(
        self,
        index: int,
        t: int,
        states: list[Snapshot],
        names: list[Any],
        leader: list[int],
        actions: list[Action],
        sharing: Sharing,
    ) -> Floats:
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
        rewards = np.array([float(outcomes[first].reward) for first in leader])
        if not np.isfinite(rewards).all():
            place = f"step {t} of replication {index} of {simulator.name}"
            raise ModelError(f"{place} paid {rewards.tolist()}; rewards must be finite numbers")
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
