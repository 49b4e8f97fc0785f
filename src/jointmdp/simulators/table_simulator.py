"""A joint MDP as a simulator: the tabular implementation of the protocol, and how episodes of a table begin and end."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from jointmdp import checks
from jointmdp.arrays import Bools, Floats
from jointmdp.intervals import Interval
from jointmdp.model.joint_mdp import ActionLike, JointMDP, StateLike
from jointmdp.simulators.noise import Noise
from jointmdp.simulators.simulator import Outcome, Simulator


class TableSimulator(Simulator):
    """A `JointMDP` behind the simulator protocol; snapshots and observations are state indices.

    One uniform a step picks the scenario, so every action of a query sees the same one, and under ``sharing="time"``
    every branch does. Episodes begin as in `JointMDP.as_gymnasium`, and are over in terminal states.
    """

    def __init__(self, model: JointMDP, start: ArrayLike | None = None) -> None:
        self.model = model
        self.name = f"table of {model.num_states} states"
        self.discount, self.sharing = model.discount, model.sharing
        self.action_names = tuple(model.action_label(a) for a in range(model.num_actions))
        rewards = model.rewards[model.is_possible]
        self.reward_bounds = Interval(float(rewards.min()), float(rewards.max()))
        self._is_terminal = terminal_states(model)
        self._start_ends = interval_ends(start_law(model, start))
        self._ends = interval_ends(model.probabilities)

    def at(self, state: StateLike) -> int:
        """The snapshot of a state given by name or index."""
        return self.model.state_index(state)

    def start(self, noise: Noise) -> int:
        """A starting state."""
        return drawn(self._start_ends, noise.uniform)

    def step(self, state: int, action: ActionLike, noise: Noise) -> Outcome:
        """What one action brings in the scenario that the noise picks."""
        return self.query(state, [action], noise)[0]

    def query(self, state: int, actions: Sequence[ActionLike], noise: Noise) -> list[Outcome]:
        """A row of the table: the scenario is picked once."""
        model, w = self.model, drawn(self._ends[state], noise.uniform)
        chosen = [model.action_index(action, state) for action in actions]
        return [Outcome(float(model.rewards[state, w, a]), int(model.successors[state, w, a])) for a in chosen]

    def is_over(self, state: int) -> bool:
        """Whether nothing can be paid any more."""
        return bool(self._is_terminal[state])

    def identity(self, state: int) -> Hashable:
        """The state's index."""
        return state

    def available(self, state: int) -> Sequence[Any]:
        """The actions that the model allows in `state`."""
        return [int(a) for a in np.flatnonzero(self.model.available[state])]


def terminal_states(model: JointMDP) -> Bools:
    """States that are absorbing with zero reward under every available action and possible scenario, ``[S]``."""
    possible = (model.probabilities > 0)[:, :, None] & model.available[:, None, :]
    stays = model.successors == np.arange(model.num_states)[:, None, None]
    found: Bools = (~possible | (stays & (model.rewards == 0))).all(axis=(1, 2))
    return found


def start_law(model: JointMDP, start: ArrayLike | None) -> Floats:
    """Where episodes begin, ``[S]``: in a state, by a law, or by default uniformly where they are not over yet."""
    count = model.num_states
    law: Floats
    if start is None:
        is_terminal = terminal_states(model)
        law = np.ones(count) if is_terminal.all() else np.where(is_terminal, 0.0, 1.0)
        return law / np.sum(law)
    if isinstance(start, str | int | np.integer):
        law = np.zeros(count)
        law[model.state_index(start if isinstance(start, str) else int(start))] = 1.0
        return law
    law = checks.as_floats("start", start, "[S], or a state,", 1)
    checks.check_shape("start", law, (count,), "[S]")
    law = checks.normalised("start probabilities", law[None, :], "row", "state")[0]
    return law


def interval_ends(chances: Floats) -> Floats:
    """Where each outcome's interval of the uniform ends; from the last possible one on there is no end."""
    ends = np.cumsum(chances, axis=-1)
    # Rounding may leave the last sum below 1, and a uniform above it must not pick an impossible outcome.
    ends[np.cumsum(chances[..., ::-1], axis=-1)[..., ::-1] <= chances] = np.inf
    return ends


def drawn(ends: Floats, uniform: float) -> int:
    """The first outcome whose cumulative probability exceeds a uniform, as in Gymnasium's toy-text games."""
    return int(np.searchsorted(ends, uniform, side="right"))
