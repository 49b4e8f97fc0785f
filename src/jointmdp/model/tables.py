"""The tables of a joint MDP, checked and read-only: what everything else reads of a model.

Tables ``[S, W, A]`` have an entry for every action and scenario, also where the action does not exist in the state, or
the scenario only fills up its row. There it pays 0 and stays where it is: nothing that is computed from it matters.
"""

import contextlib
import inspect
from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from jointmdp.ground import checks
from jointmdp.ground.arrays import Bools, Floats, Ints
from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import ModelError

StateLike = Hashable  # an index, or a name: text, a tuple or any other fixed value
ActionLike = Hashable
ScenarioTables = tuple[Floats, Floats, Ints]  # probabilities [S, W], rewards and successors [S, W, A]


def as_available(values: ArrayLike | None, num_states: int, num_actions: int) -> Bools:
    """Which actions exist in which state."""
    if values is None:
        return np.ones((num_states, num_actions), dtype=bool)
    try:
        raw = np.asarray(values)
    except ValueError as error:
        raise ModelError(f"available must be an [S, A] array of booleans: {error}") from None
    if raw.dtype.kind not in "bui" or not np.isin(raw, (0, 1)).all():
        raise ModelError("available must hold booleans, one for each state and action")
    checks.check_shape("available", raw, (num_states, num_actions), "[S, A]")
    exists = raw.astype(bool)
    if at := checks.first_place(~exists.any(axis=1)):
        raise ModelError(f"{checks.place(at, 'state')} has no available action")
    return exists


def blank_tables(num_states: int, num_scenarios: int, num_actions: int) -> ScenarioTables:
    """Tables to be filled in: nothing is possible, paid or left yet."""
    shape = (num_states, num_scenarios, num_actions)
    stays = np.tile(np.arange(num_states)[:, None, None], (1, *shape[1:]))
    return np.zeros(shape[:2]), np.zeros(shape), stays


def possible(probabilities: Floats, taken: Bools) -> Bools:
    """Which entries can ever matter, ``[S, W, A]``: of actions that are available, or taken, in possible scenarios."""
    return (probabilities > 0)[:, :, None] & taken[:, None, :]


class ModelTables:
    """Scenario probabilities and, for each scenario, the outcome of every action; `JointMDP` explains the arguments."""

    probabilities: Floats  # [S, W]
    rewards: Floats  # [S, W, A]
    successors: Ints  # [S, W, A]
    available: Bools  # [S, A]

    def __init__(
        self,
        probabilities: ArrayLike,
        rewards: ArrayLike,
        successors: ArrayLike,
        discount: float,
        sharing: Sharing = "state",
        *,
        available: ArrayLike | None = None,
        state_names: Sequence[Any] | None = None,
        action_names: Sequence[Any] | None = None,
    ) -> None:
        chances = checks.as_floats("probabilities", probabilities, "[S, W]", 2)
        table = checks.as_floats("rewards", rewards, "[S, W, A]", 3)
        targets = checks.as_floats("successors", successors, "[S, W, A]", 3)
        shape = (*chances.shape, table.shape[2])
        num_states, num_scenarios, num_actions = shape
        if at := checks.first_place(np.array(shape) == 0):
            word = ("state", "scenario", "action")[at[0]]
            raise ModelError(f"the model has no {word}s; it needs at least one {word}")
        is_swapped = table.shape[:1] + table.shape[2:] == (num_states, num_scenarios) != table.shape[:2]
        if is_swapped and targets.shape == table.shape:
            raise ModelError(
                f"rewards has shape {table.shape} where probabilities has {chances.shape}; rewards are [S, W, A], "
                "scenarios before actions: are the last two axes swapped?"
            )
        checks.check_shape("rewards", table, shape, "[S, W, A]")
        exists = as_available(available, num_states, num_actions)
        is_missing = np.broadcast_to(~exists[:, None, :], shape)
        np.copyto(table, 0.0, where=is_missing)
        checks.check_finite("reward", table, "state", "scenario", "action")
        checks.check_shape("successors", targets, shape, "[S, W, A]")
        np.copyto(targets, np.arange(num_states)[:, None, None], where=is_missing)

        self.probabilities = checks.normalised("scenario probabilities", chances, "state", "scenario")
        self.rewards = table
        self.successors = checks.as_successors(targets, num_states)
        self.available = exists
        self.discount = checks.as_discount(discount, may_be_zero=True)
        self.sharing: Sharing = checks.as_sharing(sharing)
        self.state_names = checks.as_names("state", state_names, num_states)
        self.action_names = checks.as_names("action", action_names, num_actions)
        for array in (self.probabilities, self.rewards, self.successors, self.available):
            array.flags.writeable = False
        if self.sharing == "time":
            self._check_common_scenarios()

    def _check_common_scenarios(self) -> None:
        spread = np.abs(self.probabilities - self.probabilities[0])
        if spread.max() > 1e-12:
            state, scenario = np.unravel_index(np.argmax(spread), spread.shape)
            raise ModelError(
                'sharing="time" needs scenario probabilities that do not depend on the state, but scenario '
                f"{scenario} has probability {self.probabilities[0, scenario]:.6g} in state 0 and "
                f"{self.probabilities[state, scenario]:.6g} in state {state}; put all states on one scenario grid "
                "(jointmdp.from_noise, from_mdp and from_gymnasium do that)"
            )
        # One law for all: rows that differ by rounding would be one law to means and another to pairs.
        self.probabilities = np.broadcast_to(self.probabilities[0], self.probabilities.shape)

    @property
    def num_states(self) -> int:
        """S."""
        return self.rewards.shape[0]

    @property
    def num_scenarios(self) -> int:
        """W."""
        return self.rewards.shape[1]

    @property
    def num_actions(self) -> int:
        """A."""
        return self.rewards.shape[2]

    @cached_property
    def reward_bound(self) -> float:
        """R_max, the largest ``|R|`` among outcomes that can happen."""
        return float(np.max(np.abs(self.rewards), where=self.is_possible, initial=0.0))

    @property
    def is_possible(self) -> Bools:
        """Which entries of the tables can ever matter, ``[S, W, A]``: available actions in possible scenarios."""
        return possible(self.probabilities, self.available)

    @property
    def paid_rewards(self) -> Floats:
        """Rewards where they can ever be paid, and zero elsewhere, ``[S, W, A]``."""
        return np.where(self.is_possible, self.rewards, 0.0)

    @cached_property
    def _state_places(self) -> dict[Any, int]:
        """Indices by name: a search through a million names for each of a million states would never end."""
        return {name: i for i, name in enumerate(self.state_names or ())}

    def state_index(self, state: StateLike) -> int:
        """The index of a state given by index or name."""
        with contextlib.suppress(TypeError, KeyError):  # what cannot be looked up, or only as an index or in words
            if isinstance(state, str | tuple):
                return self._state_places[state]
        return checks.as_index("state", state, self.state_names, self.num_states)

    def action_index(self, action: ActionLike, state: int | None = None) -> int:
        """The index of an action given by index or name; with a state, it must be available there."""
        index = checks.as_index("action", action, self.action_names, self.num_actions)
        if state is not None and not self.available[state, index]:
            raise ModelError(f"{self.action_label(index)} is not available in {self.state_label(state)}")
        return index

    def state_label(self, state: int) -> str:
        """The state in words."""
        return f"state {state}" if self.state_names is None else str(self.state_names[state])

    def action_label(self, action: int) -> str:
        """The action in words."""
        return f"action {action}" if self.action_names is None else str(self.action_names[action])

    @property
    def sizes(self) -> str:
        """How many states, scenarios and actions there are, in words."""
        counts = zip(self.rewards.shape, ("state", "scenario", "action"), strict=True)
        return ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts)

    def __repr__(self) -> str:
        return f'{type(self).__name__}({self.sizes}, discount {self.discount:g}, sharing="{self.sharing}")'

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ModelTables):
            return NotImplemented
        mine, theirs = self._parts(), other._parts()
        return all(
            np.array_equal(part, theirs[key]) if isinstance(part, np.ndarray) else part == theirs[key]
            for key, part in mine.items()
        )

    __hash__ = None  # type: ignore[assignment]

    def _parts(self) -> dict[str, Any]:
        """What the model was made of, as arguments for another one."""
        return {name: getattr(self, name) for name in inspect.signature(ModelTables).parameters}

    def query_indices(self, state: StateLike, actions: Sequence[ActionLike]) -> tuple[int, tuple[int, ...]]:
        """The indices of a state and of the actions asked about there."""
        s = self.state_index(state)
        if isinstance(actions, str) or not isinstance(actions, Sequence | np.ndarray) or len(actions) == 0:
            raise ModelError(f"actions must be a sequence of at least one action, not {actions!r}")
        return s, tuple(self.action_index(action, s) for action in actions)
