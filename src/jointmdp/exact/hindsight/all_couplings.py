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
from typing import Any, TypedDict, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike

from jointmdp.exact.hindsight.logged_trajectories import (
    UNSEEN,
    SeenSteps,
    Trajectory,
    given_trajectories,
    named_trajectory,
    seen_steps,
)
from jointmdp.exact.hindsight.scenario_posteriors import REWARD_TOLERANCE, same_rewards, seen_paths
from jointmdp.exact.moments.default_solver import PolicyBranch
from jointmdp.ground import checks
from jointmdp.ground.arrays import UNIT, Floats
from jointmdp.ground.errors import ModelError
from jointmdp.ground.intervals import Interval
from jointmdp.model.action_laws import ActionLaws
from jointmdp.model.couplings import coupled_tables
from jointmdp.model.from_mdp import ordinary_model
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.policies import as_policy
from jointmdp.model.tables import ActionLike
from jointmdp.model.terminal_states import terminal_states

MAX_ENTRIES = 20_000_000


class Options(TypedDict, total=False):
    """Settings of `hindsight_bounds`."""

    start: int
    available: ArrayLike | None
    state_names: Sequence[Any] | None
    action_names: Sequence[Any] | None
    reward_tolerance: float


@overload
def hindsight_bounds(
    transitions: Any,
    rewards: Any,
    discount: float,
    policy: ArrayLike,
    trajectory: Trajectory,
    action: ActionLike,
    **options: Unpack[Options],
) -> Interval: ...


@overload
def hindsight_bounds(
    transitions: Any,
    rewards: Any,
    discount: float,
    policy: ArrayLike,
    trajectory: Sequence[Trajectory],
    action: ActionLike,
    **options: Unpack[Options],
) -> list[Interval]: ...


def hindsight_bounds(  # many parameters: those of `from_mdp`, and of `hindsight`
    transitions: Any,
    rewards: Any,
    discount: float,
    policy: ArrayLike,
    trajectory: Trajectory | Sequence[Trajectory],
    action: ActionLike,
    *,
    start: int = 0,
    available: ArrayLike | None = None,
    state_names: Sequence[Any] | None = None,
    action_names: Sequence[Any] | None = None,
    reward_tolerance: float = REWARD_TOLERANCE,
) -> Interval | list[Interval]:
    """Between which ends the mean gap of `hindsight` lies, whatever the coupling of the actions is.

    Args:
        transitions, rewards, discount, available, state_names, action_names: as in `from_mdp`.
        policy: what is followed after the first action, and after the last step.
        trajectory: what was seen, with all states but perhaps the last; several of them have an interval each.
        action: what is done instead at `start`.
        start, reward_tolerance: as in `hindsight`.
    """
    found = ordinary_model(transitions, rewards, available, state_names, action_names)
    laws = found.laws
    base = JointMDP(*coupled_tables(laws, "comonotone", False, MAX_ENTRIES), discount, **found.names_and_actions())
    chosen = as_policy(base, policy)
    tolerance = checks.as_positive("reward_tolerance", reward_tolerance)
    branch, given, bounds = PolicyBranch(base.with_sharing("none"), chosen), given_trajectories(trajectory), []
    for n, each in enumerate(given):
        with named_trajectory(n, len(given)):
            seen = _seen(base, each, start, tolerance)
            first = base.action_index(action, int(seen.states[0]))
            ends = [
                _mean_gap(laws, base.discount, chosen, branch.mean, seen, first, tolerance, sign) for sign in (-1, 1)
            ]
        steps = len(seen.actions)
        size = base.reward_bound * steps + float(np.abs(branch.mean).max())
        terms = base.num_scenarios * base.num_actions + steps + 16
        room = 2 * float(branch.mean_errors.max()) * base.discount**steps + 8 * terms * steps * UNIT * size
        bounds.append(Interval(ends[0] - room, ends[1] + room))
    return bounds[0] if isinstance(trajectory, Trajectory) else bounds


def _seen(base: JointMDP, trajectory: Trajectory, start: int, tolerance: float) -> SeenSteps:
    """What was seen from `start` on; that it can happen does not depend on the coupling."""
    whole = seen_steps(base, trajectory, terminal_states(base))
    start = checks.as_count("start", start, least=0)
    if start >= len(whole.actions):
        raise ModelError(f"the trajectory has no action at step {start}")
    seen = whole.cut(start)
    if np.any(seen.states[:-1] == UNSEEN) or np.any(seen.scenarios != UNSEEN):
        raise ModelError("bounds over all couplings need all states but the last, and know no scenarios")
    seen_paths(base, [whole], tolerance)
    return seen


def _mean_gap(  # many parameters: the ordinary MDP, what follows, and what was seen
    laws: ActionLaws, g: float, policy: Floats, v: Floats, seen: SeenSteps, first: int, tolerance: float, sign: int
) -> float:
    """The largest (1) or the least (−1) mean of the other branch's return minus the seen one's: backward in time."""
    A, steps = laws.num_actions, len(seen.actions)
    owners = np.repeat(np.arange(len(laws.sizes)), laws.sizes)
    other, seen_return = v, 0.0
    for t in range(steps - 1, -1, -1):
        state, action, after = int(seen.states[t]), int(seen.actions[t]), int(seen.states[t + 1])
        # How likely what was seen was, what it paid, and what is expected after it, where that is the last step.
        p, paid, to = laws.law(state * A + action)
        possible = (p > 0) & ((to == after) | (after == UNSEEN))
        fits = same_rewards(paid[None, :], seen.rewards[[t]], possible[None, :], tolerance, np.zeros(1, np.int64))[0]
        weights = np.where(fits, p, 0.0)
        chance = float(weights.sum())
        later = float(weights @ v[to]) / chance if t == steps - 1 else seen_return
        seen_return = float(weights @ paid) / chance + g * later
        # The other branch, by its state; in that of the seen one its outcomes go with what was seen as is best (worst).
        own = np.bincount(owners, laws.probabilities * (laws.rewards + g * other[laws.successors]), len(laws.sizes))
        before, total = np.sum(policy * own.reshape(policy.shape), axis=1), 0.0
        chosen = policy[state] if t else (np.arange(A) == first).astype(np.float64)
        for b in np.flatnonzero(chosen).tolist():
            mean = seen_return
            if b != action:
                p, paid, to = laws.law(state * A + b)
                values = paid + g * other[to]
                order = np.argsort(-sign * values, kind="stable")
                shares = np.diff(np.minimum(np.cumsum(p[order]), chance), prepend=0.0)
                mean = float(shares @ values[order]) / float(shares.sum())
            total += chosen[b] * mean
        before[state] = total
        other = before
    return float(other[seen.states[0]] - seen_return)
