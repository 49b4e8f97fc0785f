"""The joint MDP: a finite kernel over outcome tables, one row of luck for all actions.

In state ``s`` nature draws a scenario ``w`` with probability ``p(w|s)``. The scenario fixes, for every action
``a`` at once, the reward ``R(s,w,a)`` and the successor ``S'(s,w,a)``. An ordinary MDP keeps only what each
column does by itself; the rows say how the outcomes of different actions go together.

``sharing`` says who else sees the same row:

- ``"state"``: branches in the same state at the same time; branches in different states have luck of their own
  (the one-step coupling regime of the paper);
- ``"time"``: every branch at that time, wherever it is (common random numbers); scenario probabilities must then
  be the same in every state;
- ``"none"``: nobody. Returns of distinct state-action pairs are independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from jointmdp import checks
from jointmdp.arrays import Bools, Floats, Ints
from jointmdp.checks import Sharing
from jointmdp.errors import ModelError

if TYPE_CHECKING:
    import gymnasium
    import jax

    from jointmdp.model.query_laws import QueryLaw, Witness
    from jointmdp.model.query_samples import Query, Transition

StateLike = int | str
ActionLike = int | str


class MarginalMDP(NamedTuple):
    """What is left of a joint MDP when every action is looked at by itself: an ordinary MDP."""

    kernel: sp.csr_array  # [S·A, S] transition probabilities, row s·A + a
    rewards: Floats  # [S, A] mean rewards
    discount: float

    @property
    def transitions(self) -> Floats:
        """The transition probabilities as a dense ``[S, A, S]`` array."""
        return self.kernel.toarray().reshape(*self.rewards.shape, -1)


class JointMDP:
    """A finite joint MDP: scenario probabilities and, for each scenario, the outcome of every action.

    Args:
        probabilities: ``[S, W]``, the probability of each scenario in each state.
        rewards: ``[S, W, A]``, any finite numbers (costs are negative rewards).
        successors: ``[S, W, A]``, state indices.
        discount: in (0, 1); exactly 1 is allowed when only finite horizons are evaluated.
        sharing: ``"state"``, ``"time"`` or ``"none"``; see the module's text.
        available: ``[S, A]`` booleans where the action set depends on the state. Entries of the tables that
            belong to unavailable actions are ignored.
        state_names, action_names: optional names, accepted wherever a state or action is asked for.

    The arrays are copied, checked and read-only. A model never changes; ``with_sharing`` and ``with_discount``
    make new ones.
    """

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
        num_states, num_scenarios = chances.shape
        num_actions = table.shape[2]
        for word, count in (("state", num_states), ("scenario", num_scenarios), ("action", num_actions)):
            if count == 0:
                raise ModelError(f"the model has no {word}s; it needs at least one {word}")
        shape = (num_states, num_scenarios, num_actions)
        is_swapped = table.shape[:1] + table.shape[2:] == (num_states, num_scenarios) != table.shape[:2]
        if is_swapped and targets.shape == table.shape:
            raise ModelError(
                f"rewards has shape {table.shape} where probabilities has {chances.shape}; rewards are [S, W, A], "
                "scenarios before actions: are the last two axes swapped?"
            )
        checks.check_shape("rewards", table, shape, "[S, W, A]")
        exists = checks.as_available(available, num_states, num_actions)
        missing = np.broadcast_to(~exists[:, None, :], shape)
        table[missing] = 0.0
        checks.check_finite("reward", table, "state", "scenario", "action")
        checks.check_shape("successors", targets, shape, "[S, W, A]")
        targets[missing] = np.broadcast_to(np.arange(num_states)[:, None, None], shape)[missing]

        self.probabilities = checks.normalised("scenario probabilities", chances, "state", "scenario")
        self.rewards = table
        self.successors = checks.as_successors(targets, num_states)
        self.available = exists
        self.discount = checks.as_discount(discount)
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

    # -- sizes and names ---------------------------------------------------------------------------------------

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

    @property
    def reward_bound(self) -> float:
        """R_max, the largest ``|R|`` among outcomes that can happen."""
        return float(np.max(np.abs(self.rewards), where=self.is_possible, initial=0.0))

    @property
    def is_possible(self) -> Bools:
        """Which entries of the tables can ever matter, ``[S, W, A]``: available actions in possible scenarios."""
        return (self.probabilities > 0)[:, :, None] & self.available[:, None, :]

    def state_index(self, state: StateLike) -> int:
        """The index of a state given by index or name."""
        return checks.as_index("state", state, self.state_names, self.num_states)

    def action_index(self, action: ActionLike, state: int | None = None) -> int:
        """The index of an action given by index or name; with a state, it must be available there."""
        index = checks.as_index("action", action, self.action_names, self.num_actions)
        if state is not None and not self.available[state, index]:
            raise ModelError(f"{self.action_label(index)} is not available in {self.state_label(state)}")
        return index

    def state_label(self, state: int) -> str:
        """The state in words."""
        return f"state {state}" if self.state_names is None else self.state_names[state]

    def action_label(self, action: int) -> str:
        """The action in words."""
        return f"action {action}" if self.action_names is None else self.action_names[action]

    def __repr__(self) -> str:
        return (
            f"JointMDP({_counted(self.num_states, 'state')}, {_counted(self.num_scenarios, 'scenario')}, "
            f"{_counted(self.num_actions, 'action')}, "
            f'discount {self.discount:g}, sharing="{self.sharing}")'
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, JointMDP):
            return NotImplemented
        mine, theirs = self._parts(), other._parts()
        return all(np.array_equal(mine[key], theirs[key]) for key in mine)

    __hash__ = None  # type: ignore[assignment]

    def _parts(self) -> dict[str, Any]:
        return {
            "probabilities": self.probabilities,
            "rewards": self.rewards,
            "successors": self.successors,
            "discount": self.discount,
            "sharing": self.sharing,
            "available": self.available,
            "state_names": self.state_names,
            "action_names": self.action_names,
        }

    # -- variations --------------------------------------------------------------------------------------------

    def with_sharing(self, sharing: Sharing) -> JointMDP:
        """The same tables with another answer to who shares the luck."""
        return JointMDP(**{**self._parts(), "sharing": sharing})

    def with_discount(self, discount: float) -> JointMDP:
        """The same tables with another discount."""
        return JointMDP(**{**self._parts(), "discount": discount})

    # -- what one step does ------------------------------------------------------------------------------------

    def marginal_mdp(self) -> MarginalMDP:
        """The ordinary MDP that each action sees by itself (the 1-JSTMs)."""
        shape = (self.num_states * self.num_actions, self.num_states)
        rows = np.arange(shape[0]).reshape(self.num_states, 1, self.num_actions)
        weights = np.broadcast_to(self.probabilities[:, :, None], self.successors.shape)
        places = (np.broadcast_to(rows, self.successors.shape).ravel(), self.successors.ravel())
        kernel = sp.csr_array((weights.ravel(), places), shape=shape)
        kernel.sum_duplicates()
        kernel.eliminate_zeros()
        return MarginalMDP(kernel, np.einsum("sw,swa->sa", self.probabilities, self.rewards), self.discount)

    def query_law(self, state: StateLike, actions: Sequence[ActionLike]) -> QueryLaw:
        """The m-JSTM: the joint law of the outcomes of `actions` in `state`, as a finite list."""
        from jointmdp.model.query_laws import query_law

        s, chosen = self._query_indices(state, actions)
        return query_law(self, s, chosen)

    def sample_query(
        self, noise_key: jax.Array, state: StateLike, actions: Sequence[ActionLike], num_samples: int = 1
    ) -> Query:
        """Draws from the m-JSTM: one scenario per sample, seen by all the queried actions."""
        from jointmdp.model.query_samples import sample_query

        s, chosen = self._query_indices(state, actions)
        return sample_query(self, noise_key, s, chosen, checks.as_count("num_samples", num_samples))

    def sample_transitions(
        self,
        noise_key: jax.Array,
        policy_key: jax.Array,
        policy: ArrayLike,
        start: ArrayLike | None = None,
        num_samples: int = 1,
    ) -> Transition:
        """Draws from the STM: state from `start` (uniform by default), action from `policy`, one executed step."""
        from jointmdp.model.policies import as_policy
        from jointmdp.model.query_samples import sample_transitions

        if start is None:
            start = np.full(self.num_states, 1 / self.num_states)
        law = checks.as_floats("start", start, "[S]", 1)
        checks.check_shape("start", law, (self.num_states,), "[S]")
        law = checks.normalised("start probabilities", law[None, :], "row", "state")[0]
        chosen = as_policy(self, policy)
        return sample_transitions(self, noise_key, policy_key, chosen, law, checks.as_count("num_samples", num_samples))

    def _query_indices(self, state: StateLike, actions: Sequence[ActionLike]) -> tuple[int, tuple[int, ...]]:
        s = self.state_index(state)
        if isinstance(actions, str) or not isinstance(actions, Sequence | np.ndarray) or len(actions) == 0:
            raise ModelError(f"actions must be a sequence of at least one action, not {actions!r}")
        return s, tuple(self.action_index(action, s) for action in actions)

    # -- is there anything to couple? --------------------------------------------------------------------------

    @property
    def is_coupled(self) -> bool:
        """Whether some query is not the product of its marginals."""
        return self.coupling_witness() is not None

    def coupling_witness(self) -> Witness | None:
        """A state and the fewest actions whose outcomes depend on each other there; None if there are none."""
        from jointmdp.model.query_laws import coupling_witness

        return coupling_witness(self)

    def as_gymnasium(self, start: ArrayLike | None = None, max_steps: int | None = None) -> gymnasium.Env[Any, Any]:
        """The model as a Gymnasium environment that executes one branch and shows the table in ``info``."""
        from jointmdp.model.gymnasium_view import JointEnv

        return JointEnv(self, start=start, max_steps=max_steps)


def _counted(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
