"""Bounds on the mean gap in hindsight over every coupling of an ordinary MDP, under ``sharing="state"``.

The seen branch took action a in s and its outcome has probability m. Of another action b in the same state, each
outcome i goes with what was seen in a share ``x_i`` of its probability: ``0 ≤ x_i ≤ p_i``, ``Σ x_i = m``, and any such
shares belong to a coupling. So given what was seen the mean of b is at most

    max { Σ x_i (R_i + γ u(S'_i)) / m },

which fills the most valuable outcomes first, where u is the same bound one step later. In other states the other branch
has noise of its own. After the last step, and where both are one, means do not depend on the coupling.

A bound may choose another coupling each time a state is seen, which one coupling cannot. Where no state is seen twice
while both branches can still be there together, it is attained.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from jointmdp.exact.hindsight.scenario_posteriors import REWARD_TOLERANCE, same_rewards, seen_paths
from jointmdp.exact.hindsight.trajectory import UNSEEN, SeenSteps, Trajectory, seen_steps
from jointmdp.exact.moments.default_solver import PolicyBranch
from jointmdp.ground import checks
from jointmdp.ground.arrays import UNIT, Floats, Ints
from jointmdp.ground.errors import ModelError
from jointmdp.ground.intervals import Interval
from jointmdp.model.action_laws import ActionLaws
from jointmdp.model.couplings import coupled_tables
from jointmdp.model.episodes import terminal_states
from jointmdp.model.from_mdp import ordinary_model
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.policies import as_policy
from jointmdp.model.tables import ActionLike

MAX_ENTRIES = 20_000_000


def hindsight_bounds(  # many parameters: those of `from_mdp`, and of `hindsight`
    transitions: Any,
    rewards: Any,
    discount: float,
    policy: ArrayLike,
    trajectory: Trajectory,
    action: ActionLike,
    *,
    start: int = 0,
    available: ArrayLike | None = None,
    state_names: Sequence[Any] | None = None,
    action_names: Sequence[Any] | None = None,
    reward_tolerance: float = REWARD_TOLERANCE,
) -> Interval:
    """Between which ends the mean gap of `hindsight` lies, whatever the coupling of the actions is.

    Args:
        transitions, rewards, discount, available, state_names, action_names: as in `from_mdp`.
        policy: what is followed after the first action, and after the last step.
        trajectory: what was seen, with all states but perhaps the last.
        action: what is done instead at `start`.
        start, reward_tolerance: as in `hindsight`.
    """
    found = ordinary_model(transitions, rewards, available, state_names, action_names)
    laws = found.laws
    base = JointMDP(*coupled_tables(laws, "comonotone", False, MAX_ENTRIES), discount, **found.names_and_actions())
    chosen = as_policy(base, policy)
    seen = seen_steps(base, trajectory.cut(start), terminal_states(base))
    if not len(seen.actions):
        raise ModelError(f"the trajectory has no action at step {start}")
    if np.any(seen.states[:-1] == UNSEEN) or np.any(seen.scenarios != UNSEEN):
        raise ModelError("bounds over all couplings need all states but the last, and know no scenarios")
    tolerance = checks.as_positive("reward_tolerance", reward_tolerance)
    seen_paths(base, [seen], tolerance)  # that it can happen does not depend on the coupling
    first = base.action_index(action, int(seen.states[0]))
    branch = PolicyBranch(base.with_sharing("none"), chosen)
    ends = [_Recursion(base, laws, chosen, seen, tolerance, sign).gap(first, branch.mean) for sign in (-1, 1)]
    steps = len(seen.actions)
    size = base.reward_bound * steps + float(np.abs(branch.mean).max())
    terms = base.num_scenarios * base.num_actions + steps + 16
    room = 2 * float(branch.mean_errors.max()) * base.discount**steps + 8 * terms * steps * UNIT * size
    return Interval(ends[0] - room, ends[1] + room)


class _Recursion:
    """Backward over the seen steps, for the largest (1) or the least (−1) mean."""

    def __init__(  # many parameters: the model in its forms, and what was seen
        self, model: JointMDP, laws: ActionLaws, policy: Floats, seen: SeenSteps, tolerance: float, sign: int
    ) -> None:
        self.model, self.laws, self.policy, self.seen, self.sign = model, laws, policy, seen, sign
        self.tolerance = tolerance
        self.owners = np.repeat(np.arange(len(laws.sizes)), laws.sizes)

    def gap(self, first: int, v: Floats) -> float:
        """Of the other branch's return minus the seen one's, both from the first step on."""
        other, seen, steps = v, None, len(self.seen.actions)
        for t in range(steps - 1, -1, -1):
            chance, paid, later = self._seen_outcome(t, v if seen is None else None)
            seen = paid + self.model.discount * (later if seen is None else seen)
            rows = np.zeros(self.model.num_actions)
            if t == 0:
                rows[first] = 1.0
            else:
                rows = self.policy[self.seen.states[t]]
            other = self._before(t, other, rows, chance, seen)
        assert seen is not None
        return float(other[self.seen.states[0]] - seen)

    def _outcomes(self, state: int, action: int) -> tuple[Floats, Floats, Ints]:
        return self.laws.law(state * self.model.num_actions + action)

    def _seen_outcome(self, t: int, v: Floats | None) -> tuple[float, float, float]:
        """How likely what was seen was, what it paid, and what is expected after it, where that is the last step."""
        p, paid, to = self._outcomes(int(self.seen.states[t]), int(self.seen.actions[t]))
        after, reward = self.seen.states[t + 1], self.seen.rewards[t]
        fits = np.full(len(p), True) if after == UNSEEN else to == after
        fits = same_rewards(paid[None, :], np.array([reward]), fits[None, :] & (p > 0), self.tolerance)[0]
        weights = np.where(fits, p, 0.0)
        chance = float(weights.sum())
        return chance, float(weights @ paid) / chance, 0.0 if v is None else float(weights @ v[to]) / chance

    def _before(self, t: int, after: Floats, rows: Floats, chance: float, seen: float) -> Floats:
        """The bound one step earlier, for each state of the other branch."""
        returns = self.laws.rewards + self.model.discount * after[self.laws.successors]
        own = np.bincount(self.owners, self.laws.probabilities * returns, len(self.laws.sizes))
        found = np.sum(self.policy * own.reshape(self.policy.shape), axis=1)
        state, action = int(self.seen.states[t]), int(self.seen.actions[t])
        total = 0.0
        for b in np.flatnonzero(rows):
            if b == action:
                total += rows[b] * seen
                continue
            p, paid, to = self._outcomes(state, int(b))
            values = paid + self.model.discount * after[to]
            total += rows[b] * self._filled(p, values, chance)
        found[state] = total
        return np.asarray(found)

    def _filled(self, p: Floats, values: Floats, chance: float) -> float:
        """The mean of the most (or least) valuable outcomes, whose probabilities sum to `chance`."""
        order = np.argsort(-self.sign * values, kind="stable")
        shares = np.diff(np.minimum(np.cumsum(p[order]), chance), prepend=0.0)
        return float(shares @ values[order]) / float(shares.sum())
