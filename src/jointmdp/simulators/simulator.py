"""The simulator protocol: snapshots of states, and queries of several actions under one draw of the noise.

Everything that samples (pair Monte Carlo, `compare`, the auditor, the incremental methods) asks a simulator through
these few methods, and a tabular `JointMDP` is one of its implementations. A query with one action is the paper's
1-JSTM, with two the 2-JSTM, with m the m-JSTM.

Branches in the same state share their luck under ``sharing="state"``, so a simulator has to say which states are the
same: `Simulator.identity`, by default a hash of the whole snapshot. That states of continuous models never meet again
is normal; then only ``sharing="time"``, the same noise for every branch at the same time, keeps the luck shared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jointmdp import checks
from jointmdp.arrays import Floats
from jointmdp.checks import Sharing
from jointmdp.errors import ModelError
from jointmdp.intervals import Interval
from jointmdp.simulators.agents import Action as Action
from jointmdp.simulators.agents import Snapshot as Snapshot
from jointmdp.simulators.agents import as_agent
from jointmdp.simulators.fingerprints import fingerprint
from jointmdp.simulators.noise import Noise


class Outcome(NamedTuple):
    """What one action brought: its reward and the state it led to."""

    reward: float
    state: Snapshot


class Draws(NamedTuple):
    """Samples of a query: what several actions bring under the same noise."""

    rewards: Floats  # [N, m]
    states: list[tuple[Snapshot, ...]]  # N rows of m


class Simulator(ABC):
    """A simulator that can be asked what several actions bring in one state under the same luck.

    A subclass writes `start` and `step`; the rest has defaults. Snapshots are opaque values: no method may change one.
    """

    name: str = "simulator"
    discount: float = 1.0
    sharing: Sharing = "time"
    action_names: tuple[str, ...] | None = None
    """One name per action for actions 0, 1, 2, …; None where actions are not numbered (continuous ones)."""
    reward_bounds: Interval | None = None
    """What every reward is claimed to lie in."""
    reseeds: bool = True
    """Whether each step takes its noise from what it is given alone, so that draws of earlier steps shift nothing."""

    @abstractmethod
    def start(self, noise: Noise) -> Snapshot:
        """A state to begin in."""

    @abstractmethod
    def step(self, state: Snapshot, action: Action, noise: Noise) -> Outcome:
        """What `action` brings in `state`, with all randomness taken from `noise`; never called where `is_over`."""

    def query(self, state: Snapshot, actions: Sequence[Action], noise: Noise) -> list[Outcome]:
        """What each of `actions` brings in `state` under the same noise; a state that is over stays and pays 0."""
        if self.is_over(state):
            return [Outcome(0.0, state) for _ in actions]
        return [self.step(state, self.action_index(action), noise.fresh()) for action in actions]

    def observe(self, state: Snapshot) -> Any:
        """What a policy sees of `state`."""
        return state

    def is_over(self, state: Snapshot) -> bool:
        """Whether the episode has ended in `state`: nothing is paid from there on."""
        return False

    def identity(self, state: Snapshot) -> Hashable:
        """Equal for states that are the same."""
        return fingerprint(state)

    def available(self, state: Snapshot) -> Sequence[Action]:
        """The actions that can be taken in `state`."""
        if self.action_names is None:
            raise ModelError(f"the actions of {self.name} are not numbered; name those that you want to compare")
        return range(len(self.action_names))

    def policy_draw(self, noise: Noise) -> Any:
        """What a policy ``f(observation, rng)`` draws its action from."""
        return noise.rng

    # -- what follows from the protocol --------------------------------------------------------------------------

    def reset(self, seed: int = 0) -> Snapshot:
        """The starting state of a seed."""
        return self.start(Noise("start", checks.as_count("seed", seed, 0)))

    def snapshot(self, state: Any) -> Snapshot:
        """A snapshot from what a user calls a state: one of `reset`, `walk` or `at`, or what `at` takes."""
        at = getattr(self, "at", None)
        return state if at is None else at(state)

    def sample(self, state: Snapshot, actions: Sequence[Action], num_samples: int, seed: int = 0) -> Draws:
        """Independent samples of a query."""
        count = checks.as_count("num_samples", num_samples)
        seed = checks.as_count("seed", seed, 0)
        place = self.snapshot(state)
        rows = [self.query(place, actions, Noise("query", seed, i)) for i in range(count)]
        rewards = np.array([[outcome.reward for outcome in row] for row in rows], dtype=np.float64)
        return Draws(rewards, [tuple(outcome.state for outcome in row) for row in rows])

    def walk(self, policy: Any, steps: int, seed: int = 0) -> Snapshot:
        """The state after `steps` steps under a policy from the start; earlier where the episode ends."""
        choose = as_agent(policy, self)
        state = self.reset(seed)
        for t in range(checks.as_count("steps", steps, 0)):
            if self.is_over(state):
                break
            action = choose(state, Noise("walk policy", seed, t))
            (outcome,) = self.query(state, [action], Noise("walk", seed, t))
            state = outcome.state
        return state

    def action_label(self, action: Action) -> str:
        """How to call `action`."""
        if self.action_names is not None and isinstance(action, int | np.integer):
            return self.action_names[int(action)]
        return str(action)

    def action_index(self, action: Action, state: Snapshot | None = None) -> Action:
        """A numbered action from its number or name, checked; other actions as they are."""
        if self.action_names is None:
            return action
        found = checks.as_index("action", action, self.action_names, len(self.action_names))
        if state is not None and found not in self.available(state):
            raise ModelError(f"{self.action_label(found)} is not available in this state of {self.name}")
        return found


def default_action_names(count: int) -> tuple[str, ...]:
    """Names of actions that have none."""
    return tuple(f"action {a}" for a in range(count))
