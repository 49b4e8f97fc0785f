"""A joint MDP as a Gymnasium environment: one branch is executed, the whole outcome table is shown."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jointmdp.ground import checks
from jointmdp.ground.errors import ModelError
from jointmdp.model.inverse_sampling import drawn, interval_ends
from jointmdp.model.tables import ModelTables, start_law, terminal_states

try:
    import gymnasium
except ImportError as error:
    raise ImportError(
        "JointMDP.as_gymnasium needs gymnasium, which is not installed: pip install 'jointmdp[gymnasium]'"
    ) from error


class JointEnv(gymnasium.Env[Any, Any]):
    """The executed branch of a joint MDP, with the outcomes of the other actions in ``info``.

    Observations are state indices, actions are action indices or names. Each step draws one uniform from
    ``np_random``, picks the scenario by it and follows the chosen action. ``info`` holds

    - ``"scenario"``: the scenario's index;
    - ``"rewards"``, ``"successors"``: ``[A]``, the outcome of every action in that scenario. Actions that were
      unavailable have placeholders there, reward 0 and the state itself;
    - ``"action_mask"``: ``[A]`` of int8, the actions available in the state just entered, in the form that
      ``action_space.sample(mask)`` takes. `reset` returns it too.

    Args:
        model: the joint MDP.
        start: where episodes begin: a state, or a law ``[S]``; by default uniform over the states that are not
            terminal. `reset` takes ``options={"state": ...}`` to begin somewhere else once.
        max_steps: episodes are truncated after this many steps; never by default.

    An episode is terminated when it enters one of the `tables`.
    """

    def __init__(self, model: ModelTables, start: ArrayLike | None = None, max_steps: int | None = None) -> None:
        self.model = model
        self.max_steps = None if max_steps is None else checks.as_count("max_steps", max_steps)
        self.observation_space = gymnasium.spaces.Discrete(model.num_states)
        self.action_space = gymnasium.spaces.Discrete(model.num_actions)
        self.is_terminal = terminal_states(model)  # [S]
        self._start_ends = interval_ends(start_law(model, start))
        self._scenario_ends = interval_ends(model.probabilities)
        self._state: int | None = None
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Begin an episode, in ``options["state"]`` if that is given."""
        super().reset(seed=seed)
        wishes = dict(options or {})
        if "state" in wishes:
            state = self.model.state_index(wishes.pop("state"))
        else:
            state = drawn(self._start_ends, self.np_random.random())
        if wishes:
            raise ModelError(f'unknown reset options: {", ".join(map(repr, wishes))}; known: "state"')
        self._state, self._steps = state, 0
        return state, {"action_mask": self._mask(state)}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Execute one action; an unavailable one is a `ModelError`."""
        if self._state is None:
            raise gymnasium.error.ResetNeeded("call reset before step")
        state, model = self._state, self.model
        chosen = model.action_index(action, state)
        scenario = drawn(self._scenario_ends[state], self.np_random.random())
        entered = int(model.successors[state, scenario, chosen])
        self._state, self._steps = entered, self._steps + 1
        info = {
            "scenario": scenario,
            "rewards": model.rewards[state, scenario].copy(),
            "successors": model.successors[state, scenario].copy(),
            "action_mask": self._mask(entered),
        }
        is_truncated = self.max_steps is not None and self._steps >= self.max_steps
        reward = float(model.rewards[state, scenario, chosen])
        return entered, reward, bool(self.is_terminal[entered]), is_truncated, info

    def _mask(self, state: int) -> NDArray[np.int8]:
        return np.array(self.model.available[state], dtype=np.int8)
