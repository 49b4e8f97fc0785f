"""The tables of a joint MDP, checked and read-only: what everything else reads of a model.

Tables ``[S, W, A]`` have an entry for every action and scenario, also where the action does not exist in the state, or
the scenario only fills up its row. There it pays 0 and stays where it is: nothing that is computed from it matters.

Here is also where episodes end and begin: terminal states, starts, and which states a policy can come to.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from jointmdp.ground import checks
from jointmdp.ground.arrays import Bools, Floats, Ints, distinct
from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import ModelError

if TYPE_CHECKING:
    import scipy.sparse as sp

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


# -- states in which everything is over --------------------------------------------------------------------------------


def terminal_states(model: ModelTables) -> Bools:
    """States that are absorbing with zero reward under every available action and possible scenario, ``[S]``."""
    stays = model.successors == np.arange(model.num_states)[:, None, None]
    found: Bools = (~model.is_possible | (stays & (model.rewards == 0))).all(axis=(1, 2))
    return found


def start_law(model: ModelTables, start: ArrayLike | None) -> Floats:
    """Where episodes begin, ``[S]``: in a state, by a law, or by default uniformly where they are not over yet."""
    count = model.num_states
    if start is None:
        is_open = ~terminal_states(model)
        return is_open / is_open.sum() if is_open.any() else np.full(count, 1 / count)
    if isinstance(start, str | int | np.integer) or (isinstance(start, tuple) and start in (model.state_names or ())):
        state = model.state_index(start)
        return np.where(np.arange(count) == state, 1.0, 0.0)
    law = checks.as_floats("start", start, "[S], or a state,", 1)
    checks.check_shape("start", law, (count,), "[S]")
    return checks.as_law("start probabilities", "state", np.arange(count), law)


def policy_kernel(model: ModelTables, policy: Floats) -> sp.csr_array:
    """P(s'|s) under the policy, ``[S, S]`` sparse; chances too small for a float stand there as zeros."""
    weights = model.probabilities[:, :, None] * policy[:, None, :]
    rows = np.broadcast_to(np.arange(model.num_states)[:, None, None], weights.shape)
    taken = possible(model.probabilities, policy > 0)
    shape = (model.num_states, model.num_states)
    import scipy.sparse as sp  # not where samples are drawn: it takes a while

    kernel = sp.csr_array((weights[taken], (rows[taken], model.successors[taken])), shape=shape)
    kernel.sum_duplicates()
    return kernel


def reachable(kernel: sp.csr_array, start: ArrayLike) -> Ints:
    """The states that a chain can come to from `start`, themselves included, in order."""
    return np.flatnonzero(_reached(kernel, start))


def endless_state(model: ModelTables, policy: Floats, start: ArrayLike) -> int | None:
    """A state that an episode from `start` can come to, and from which it never ends; None if it surely ends."""
    kernel = policy_kernel(model, policy)
    ends = _reached(kernel.T.tocsr(), np.flatnonzero(terminal_states(model)))
    found = np.flatnonzero(_reached(kernel, start) & ~ends)
    return int(found[0]) if len(found) else None


def idle_states(model: ModelTables, policy: Floats, kernel: sp.csr_array | None = None) -> Bools:
    """States from which nothing is ever paid any more under the policy, ``[S]``; `kernel` is the policy's, if known."""
    kernel = policy_kernel(model, policy) if kernel is None else kernel
    pays = (model.rewards != 0) & possible(model.probabilities, policy > 0)
    return ~_reached(kernel.T.tocsr(), np.flatnonzero(pays.any(axis=(1, 2))))


def steady_states(model: ModelTables, policy: Floats) -> tuple[Bools, Bools]:
    """States and actions from which the policy is surely paid one and the same course of rewards, ``[S]``, ``[S, A]``.

    States are told apart by what they pay and by what states they lead to, again and again until no more differ.
    """
    rewards, to, taken = model.rewards, model.successors, possible(model.probabilities, policy > 0)
    kind, told = np.zeros(model.num_states, dtype=np.int64), (0, 0)
    while True:  # each round tells more states apart, or is the last
        _, outcome = np.unique(np.stack([rewards.ravel(), kind[to].ravel()]), axis=1, return_inverse=True)
        outcome = outcome.reshape(rewards.shape)
        none, some = outcome.max() + 1, kind[to] >= 0

        def alike(shown: Bools, axes: tuple[int, ...], outcome: Ints = outcome, none: int = none) -> tuple[Bools, Ints]:
            first = np.where(shown, outcome, none).min(axis=axes)
            return first == np.where(shown, outcome, -1).max(axis=axes), first

        same, first = alike(taken, (1, 2))
        is_steady = same & (some | ~taken).all(axis=(1, 2)) & (kind >= 0)
        _, found = np.unique(np.stack([kind, first]), axis=1, return_inverse=True)
        kind = np.where(is_steady, found.ravel(), -1)
        # Fewer are steady, or as many and more kinds of them: either is so, or nothing has changed.
        if (now := (int(is_steady.sum()), len(np.unique(kind[is_steady])))) == told:
            return is_steady, alike(model.is_possible, (1,))[0] & (some | ~model.is_possible).all(axis=1)
        told = now


def paying_state(kernel: sp.csr_array, idle: Bools) -> int | None:
    """A state from which the policy may go on being paid for ever; None if every return surely comes to an end."""
    if not idle.any():
        return 0
    ends = _reached(kernel.T.tocsr(), np.flatnonzero(idle))
    found = np.flatnonzero(~ends)
    return int(found[0]) if len(found) else None


def _reached(kernel: sp.csr_array, start: ArrayLike) -> Bools:
    size, first = kernel.shape[0], distinct(np.asarray(start, dtype=np.int64))
    # One more node leads to where it starts. All weights are 1: explicit zeros are steps too.
    indices = np.concatenate([kernel.indices, first])
    indptr = np.append(kernel.indptr, len(indices))
    import scipy.sparse as sp
    from scipy.sparse import csgraph

    links = sp.csr_array((np.ones(len(indices)), indices, indptr), shape=(size + 1, size + 1))
    seen = np.zeros(size + 1, dtype=bool)
    seen[csgraph.breadth_first_order(links, size, return_predecessors=False)] = True
    return seen[:size]
