"""A joint MDP as a simulator: the tabular implementation of the protocol."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from jointmdp.ground.intervals import Interval
from jointmdp.model.gumbel_max import warn_of_draws
from jointmdp.model.inverse_sampling import drawn, interval_ends
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.tables import ActionLike, StateLike, start_law, terminal_states
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.simulator import Outcome, Simulator


class TableSimulator(Simulator):
    """A `JointMDP` behind the simulator protocol; snapshots and observations are state indices.

    One uniform a step picks the scenario, so every action of a query sees the same one, and under ``sharing="time"``
    every branch does. Episodes begin as in `JointMDP.as_gymnasium`, and are over in terminal states.
    """

    def __init__(self, model: JointMDP, start: ArrayLike | None = None) -> None:
        warn_of_draws(model)
        self.model = model
        self.name = f"table of {model.num_states} states"
        self.discount, self.sharing = model.discount, model.sharing
        self.action_names = tuple(model.action_label(a) for a in range(model.num_actions))
        rewards = model.rewards[model.is_possible]
        self.reward_bounds = Interval(float(rewards.min()), float(rewards.max()))
        self._is_terminal = terminal_states(model)
        self.start_law = start_law(model, start)  # [S]
        self._start_ends = interval_ends(self.start_law)
        self._ends = interval_ends(model.probabilities)

    def at(self, state: StateLike) -> int:
        """The snapshot of a state given by name or index."""
        return self.model.state_index(state)

    def start(self, noise: Noise) -> int:
        """A starting state."""
        return drawn(self._start_ends, noise.uniform)

    def step(self, state: int, action: ActionLike, noise: Noise) -> Outcome:
        """What one action gives in the scenario that the noise picks."""
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
