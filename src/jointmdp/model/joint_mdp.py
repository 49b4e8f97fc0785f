"""The joint MDP: a finite kernel over outcome tables, one scenario for all actions.

In state ``s`` nature draws a scenario ``w`` with probability ``p(w|s)``. The scenario fixes, for every action
``a`` at once, the reward ``R(s,w,a)`` and the successor ``S'(s,w,a)``. An ordinary MDP keeps only what each
column does by itself; the rows say how the outcomes of different actions go together.

``sharing`` says which branches see the same row:

- ``"state"``: branches in the same state at the same time; branches in different states have independent scenarios
  (the one-step coupling regime of the paper);
- ``"time"``: every branch at that time, wherever it is (common random numbers); scenario probabilities must then
  be the same in every state;
- ``"none"``: none. Returns of distinct state-action pairs are independent.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from jointmdp.ground import checks
from jointmdp.ground.arrays import Floats, Ints, float64, summed, typed_key
from jointmdp.ground.checks import Sharing
from jointmdp.model.inverse_sampling import drawn_samples
from jointmdp.model.policies import as_policy
from jointmdp.model.tables import ActionLike, ModelTables, StateLike, start_law

if TYPE_CHECKING:
    import gymnasium
    import jax

# A joint probability this close to the product of its marginals counts as independent: rounding of products in float64.
# Products formed in single precision are off by more and count as coupled; the witness's discrepancy shows it.
INDEPENDENCE_TOLERANCE = 1e-12


class QueryLaw(NamedTuple):
    """A finite joint law of one-step outcomes, distinct rows only."""

    actions: tuple[int, ...]
    probabilities: Floats  # [L]
    rewards: Floats  # [L, m]
    successors: Ints  # [L, m]


class Query(NamedTuple):
    """Samples of the m-JSTM: outcomes of the queried actions under the same scenario."""

    scenario: Ints  # [N]
    rewards: Floats  # [N, m]
    successors: Ints  # [N, m]


class Transition(NamedTuple):
    """Samples of the STM: one executed action per sample."""

    state: Ints  # [N]
    action: Ints  # [N]
    reward: Floats  # [N]
    successor: Ints  # [N]


class Witness(NamedTuple):
    """Actions whose outcomes depend on each other in a state, and by how much a joint probability is off."""

    state: int
    actions: tuple[int, ...]
    discrepancy: float


def _outcome_labels(model: ModelTables, state: int) -> tuple[Ints, Floats]:
    """Each action's outcome ``(R, S')`` as a small whole number per scenario that can happen, ``[W', A]``."""
    possible = model.probabilities[state] > 0
    chances = model.probabilities[state][possible]
    labels = np.empty((len(chances), model.num_actions), dtype=np.int64)
    for action in range(model.num_actions):
        pairs = np.stack([model.rewards[state, possible, action], model.successors[state, possible, action]], axis=1)
        labels[:, action] = np.unique(pairs, axis=0, return_inverse=True)[1].ravel()
    return labels, chances


def _dependence(labels: Ints, others: list[int], last: int, chances: Floats) -> float:
    """The largest ``|P(i,j) − P(i)P(j)|`` over the joint outcomes ``i`` of several actions and ``j`` of one more."""
    first = labels[:, others[0]]
    if len(others) > 1:
        first = np.unique(labels[:, others], axis=0, return_inverse=True)[1].ravel()
    joint = np.zeros((first.max() + 1, labels[:, last].max() + 1))
    np.add.at(joint, (first, labels[:, last]), chances)
    return float(np.max(np.abs(joint - joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True))))


class MarginalMDP(NamedTuple):
    """What is left of a joint MDP when every action is looked at by itself: an ordinary MDP."""

    kernel: sp.csr_array  # [S·A, S] transition probabilities, row s·A + a
    rewards: Floats  # [S, A] mean rewards
    discount: float

    @property
    def transitions(self) -> Floats:
        """The transition probabilities as a dense ``[S, A, S]`` array."""
        return self.kernel.toarray().reshape(*self.rewards.shape, -1)


class JointMDP(ModelTables):
    """A finite joint MDP: scenario probabilities and, for each scenario, the outcome of every action.

    Args:
        probabilities: ``[S, W]``, the probability of each scenario in each state.
        rewards: ``[S, W, A]``, any finite numbers (costs are negative rewards).
        successors: ``[S, W, A]``, state indices.
        discount: in [0, 1), 0 where the first step alone counts; exactly 1 is for horizons, and for policies under
            which every return comes to an end.
        sharing: ``"state"``, ``"time"`` or ``"none"``; see the module's text.
        available: ``[S, A]`` booleans where the action set depends on the state. Entries of the tables that
            belong to unavailable actions are ignored.
        state_names, action_names: optional names, accepted wherever a state or action is asked for.

    The arrays are copied, checked and read-only. A model never changes; ``with_sharing`` and ``with_discount`` make
    new ones.
    """

    def with_sharing(self, sharing: Sharing) -> JointMDP:
        """The same tables with another kind of sharing."""
        return JointMDP(**{**self._parts(), "sharing": sharing})

    def with_discount(self, discount: float) -> JointMDP:
        """The same tables with another discount."""
        return JointMDP(**{**self._parts(), "discount": discount})

    def with_opposite_rewards(self) -> JointMDP:
        """The same tables with rewards for costs, or costs for rewards: every return changes its sign."""
        return JointMDP(**{**self._parts(), "rewards": -self.rewards})

    def marginal_mdp(self) -> MarginalMDP:
        """The ordinary MDP that each action sees by itself (the 1-JSTMs); made once, and not to be changed."""
        return self._marginal

    @cached_property
    def _marginal(self) -> MarginalMDP:
        shape = (self.num_states * self.num_actions, self.num_states)
        rows = np.arange(shape[0]).reshape(self.num_states, 1, self.num_actions)
        weights = np.broadcast_to(self.probabilities[:, :, None], self.successors.shape)
        places = (np.broadcast_to(rows, self.successors.shape).ravel(), self.successors.ravel())
        kernel = sp.csr_array((weights.ravel(), places), shape=shape)
        kernel.sum_duplicates()
        kernel.eliminate_zeros()
        rewards = np.einsum("sw,swa->sa", self.probabilities, self.rewards)
        for array in (rewards, kernel.data, kernel.indices, kernel.indptr):
            array.setflags(write=False)
        return MarginalMDP(kernel, rewards, self.discount)

    def query_law(self, state: StateLike, actions: Sequence[ActionLike]) -> QueryLaw:
        """The m-JSTM: the joint law of the outcomes of `actions` in `state`, as a finite list."""
        s, columns = self.query_indices(state, actions)
        chances = self.probabilities[s]
        rows = np.concatenate([self.rewards[s][:, columns], self.successors[s][:, columns]], axis=1)
        distinct, label = np.unique(rows[chances > 0], axis=0, return_inverse=True)
        weights = summed(label.ravel(), chances[chances > 0], len(distinct))
        m = len(columns)
        return QueryLaw(columns, weights, distinct[:, :m], distinct[:, m:].astype(np.int64))

    def sample_query(
        self, noise_key: jax.Array, state: StateLike, actions: Sequence[ActionLike], num_samples: int = 1
    ) -> Query:
        """Draws from the m-JSTM: one scenario per sample, seen by all the queried actions."""
        s, columns = self.query_indices(state, actions)
        scenario = drawn_samples(self.probabilities, noise_key, s, checks.as_count("num_samples", num_samples))
        return Query(scenario, self.rewards[s][scenario][:, columns], self.successors[s][scenario][:, columns])

    def sample_transitions(
        self,
        noise_key: jax.Array,
        policy_key: jax.Array,
        policy: ArrayLike,
        start: ArrayLike | None = None,
        num_samples: int = 1,
    ) -> Transition:
        """Draws from the STM: state from `start` (uniform by default), action from `policy`, one executed step."""
        from jax.random import split

        count = checks.as_count("num_samples", num_samples)
        law = np.full(self.num_states, 1 / self.num_states) if start is None else start_law(self, start)
        noise_key = typed_key(noise_key)
        with float64():
            start_key, scenario_key = split(noise_key)
        state = drawn_samples(law[None, :], start_key, 0, count)
        action = drawn_samples(as_policy(self, policy), policy_key, state, count)
        where = (state, drawn_samples(self.probabilities, scenario_key, state, count), action)
        return Transition(state, action, self.rewards[where], self.successors[where])

    @property
    def is_coupled(self) -> bool:
        """Whether some query is not the product of its marginals."""
        return self.coupling_witness() is not None

    def coupling_witness(self) -> Witness | None:
        """A state and the fewest actions whose outcomes depend on each other there; None if there are none.

        Pairs first; then growing sets of actions, since pairwise independent outcomes can still be dependent.
        """
        for is_pair in (True, False):
            for state in range(self.num_states):
                labels, chances = _outcome_labels(self, state)
                actions = np.flatnonzero(self.available[state]).tolist()
                growing = (actions[:count] for count in range(3, len(actions) + 1))
                for *others, last in itertools.combinations(actions, 2) if is_pair else growing:
                    if _dependence(labels, others, last, chances) <= INDEPENDENCE_TOLERANCE:
                        continue
                    for action in list(others):  # drop every one without which the rest still depend on the last one
                        fewer = [a for a in others if a != action]
                        if fewer and _dependence(labels, fewer, last, chances) > INDEPENDENCE_TOLERANCE:
                            others = fewer
                    return Witness(state, (*others, last), _dependence(labels, others, last, chances))
        return None

    def as_gymnasium(self, start: ArrayLike | None = None, max_steps: int | None = None) -> gymnasium.Env[Any, Any]:
        """The model as a Gymnasium environment that executes one branch and shows the table in ``info``."""
        from jointmdp.model.gymnasium_env import JointEnv

        return JointEnv(self, start=start, max_steps=max_steps)


def digest(model: JointMDP, policy: Floats) -> str:
    """A digest of a model and a policy, so that no checkpoint is continued with another."""
    found = hashlib.sha256(f"{model.discount!r} {model.sharing}".encode())
    for array in (model.probabilities, model.rewards, model.successors, model.available, policy):
        found.update(f"{array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()
