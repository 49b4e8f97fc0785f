"""What should have been done, where nobody knows the coupling: the plan whose mean is largest in the worst case.

With y the state of the other branch, l how many changes are left, and the intervals of the log (`all_couplings`),

    Q_t(y, b, l) = min { E_x[R + γ V_{t+1}(S', l)] : x in the intervals of row (y, b) },
    V_t(y, l)    = max { Q_t(y, a_t, l), Q_t(y, b, l − 1) for b ≠ a_t },

a robust dynamic program: rows are free of each other. V is what the plan gives at least under every coupling. Without a
limit no plan has a larger least mean. With one, a plan may come to a state with different numbers of changes left, and
then the coupling may be another one for each number: no plan has a larger least mean against such couplings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike

from jointmdp.exact.hindsight.all_couplings import Assumption, IntervalStep, LoggedMDP, Mean
from jointmdp.exact.hindsight.logged_trajectories import (
    SeenSteps,
    Trajectory,
    given_trajectories,
    named_trajectory,
)
from jointmdp.exact.hindsight.other_branch import as_logged
from jointmdp.exact.hindsight.scenario_posteriors import REWARD_TOLERANCE
from jointmdp.ground import checks
from jointmdp.ground.answers import ResultFace
from jointmdp.ground.arrays import Bools, Floats, Ints
from jointmdp.ground.errors import ModelError, NotKnownError
from jointmdp.ground.intervals import Interval
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.policies import as_policy
from jointmdp.model.tables import StateLike, terminal_states

SHOWN = 2  # decisions in the text


@dataclass(frozen=True, eq=False)
class BestWorstCase(ResultFace):
    """A plan, and between which ends its mean gap to what was seen lies, whatever the coupling."""

    gap: Interval
    """The plan minus what was seen: certified ends of the mean; the plan is the best one by its lower end."""
    changes: int | None
    """How many actions may be unlike the logged ones; None for any number."""
    loss_bound: float
    """How much larger the worst case of any other plan can be: rounding."""
    actions: Ints = field(repr=False)
    """``[T, S, L]``, the action by step, state and number of changes left; −1 where no plan goes on. Without a limit
    there is one column."""
    model: JointMDP = field(repr=False)
    """The ordinary MDP, as laws of its actions; the coupling does not matter."""
    seen: SeenSteps = field(repr=False)
    possible: Bools = field(repr=False)
    """``[T, S, L]``, where the plan can come to under some coupling."""

    def action(self, step: int, state: StateLike, changes_left: int | None = None) -> str:
        """What the plan does."""
        t = checks.as_count("step", step, least=0, most=len(self.actions) - 1)
        most = self.actions.shape[2] - 1
        column = most if changes_left is None else checks.as_count("changes_left", changes_left, least=0)
        action = int(self.actions[t, self.model.state_index(state), min(column, most)])
        if action < 0:
            raise NotKnownError("no plan goes on there: the logged action is not available, and no change is left")
        return self.model.action_label(action)

    @property
    def policy(self) -> Floats:
        """The plan as a policy ``[T, S, A]``, where changes have no limit."""
        if self.changes is not None:
            raise NotKnownError("what is done depends on how many changes are left: ask action(step, state, left)")
        return np.eye(self.model.num_actions)[self.actions[:, :, 0]]

    def table(self) -> list[dict[str, Any]]:
        """What is done unlike the log, by step, state and number of changes left, wherever the plan can come to."""
        rows, lives = [], ~terminal_states(self.model)[:, None]
        is_other = self.actions != self.seen.actions[:, None, None]
        for t, s, left in np.argwhere(self.possible & lives & is_other).tolist():
            row = {"step": t, "state": self.model.state_label(s), "changes_left": left}
            done, better = int(self.seen.actions[t]), int(self.actions[t, s, left])
            rows.append(row | {"logged": self.model.action_label(done), "better": self.model.action_label(better)})
            if self.changes is None:
                del rows[-1]["changes_left"]
        return rows

    def __repr__(self) -> str:
        few = "any changes" if self.changes is None else f"at most {self.changes} change{'s' * (self.changes != 1)}"
        rows = self.table()
        lower, upper = (0.0 if abs(end) <= self.loss_bound else end for end in self.gap)
        told = ", ".join(
            f"{r['better']} instead of {r['logged']} at step {r['step']} in {r['state']}" for r in rows[:2]
        )
        told = f"{told}{', …' if len(rows) > SHOWN else ''}" if rows else "the log itself"
        return f"BestWorstCase({few}: {lower:+.6g} to {upper:+.6g} under every coupling; {told})"


class Options(TypedDict, total=False):
    """Settings of `best_worst_case`."""

    policy: Any
    horizon: int | None
    sharing: Literal["state", "time"]
    assume: Assumption | None
    available: ArrayLike | None
    state_names: Sequence[Any] | None
    action_names: Sequence[Any] | None
    reward_tolerance: float


@overload
def best_worst_case(
    transitions: Any,
    rewards: Any,
    discount: float,
    trajectory: Trajectory,
    changes: int | None = ...,
    **options: Unpack[Options],
) -> BestWorstCase: ...


@overload
def best_worst_case(
    transitions: Any,
    rewards: Any,
    discount: float,
    trajectory: Sequence[Trajectory],
    changes: int | None = ...,
    **options: Unpack[Options],
) -> list[BestWorstCase]: ...


def best_worst_case(  # many parameters: those of `from_mdp`, and of `best_in_hindsight`
    transitions: Any,
    rewards: Any,
    discount: float,
    trajectory: Trajectory | Sequence[Trajectory],
    changes: int | None = 1,
    *,
    policy: Any = None,
    horizon: int | None = None,
    sharing: Literal["state", "time"] = "state",
    assume: Assumption | None = None,
    available: ArrayLike | None = None,
    state_names: Sequence[Any] | None = None,
    action_names: Sequence[Any] | None = None,
    reward_tolerance: float = REWARD_TOLERANCE,
) -> BestWorstCase | list[BestWorstCase]:
    """What should have been done, if nobody knows the coupling: the plan whose mean is the largest in the worst case.

    Args:
        transitions, rewards, discount, available, state_names, action_names: as in `from_mdp`.
        trajectory: what was seen, with all states but perhaps the last; several of them have an answer each.
        changes: how many actions may differ from the logged ones of the same steps, whatever happens; None for any
            number. Where an episode is over nothing is done, and nothing counts.
        policy: what both branches follow after the last step; None where nothing counts after it.
        horizon: how many steps count in all, with a policy; None for an endless future.
        sharing, assume: as in `hindsight_bounds`.
        reward_tolerance: as in `hindsight`.
    """
    given = given_trajectories(trajectory)
    changes = None if changes is None else checks.as_count("changes", changes, least=0)
    if policy is None and horizon is not None:
        raise ModelError("after the last step of the log nothing counts without a policy; give one with a horizon")
    names = available, state_names, action_names
    mdp = LoggedMDP(transitions, rewards, discount, *names, sharing, assume, reward_tolerance, horizon)
    chosen, found = None if policy is None else as_policy(mdp.base, policy), []
    for n, each in enumerate(given):
        with named_trajectory(n, len(given), each.episode):
            seen = mdp.seen(each, 0)
            found.append(_best(mdp, seen, mdp.after(chosen, seen, 0), changes))
    return found[0] if isinstance(trajectory, Trajectory) else found


def _best(mdp: LoggedMDP, seen: SeenSteps, end: Mean, changes: int | None) -> BestWorstCase:
    base, steps, g = mdp.base, len(seen.actions), mdp.discount
    S, A, count = base.num_states, base.num_actions, 1 if changes is None else min(changes, steps) + 1
    logged = as_logged(base, seen.actions, mdp.over)  # [T, S]
    margin, here = mdp.room(steps, end), np.arange(S)
    least, most = (np.tile(end.values, (count, 1)) for _ in range(2))  # [L, S]
    stuck, actions = np.zeros((count, S), dtype=bool), np.full((steps, S, count), -1)
    later = end.values[mdp.rows.successors[int(seen.states[-2]) * A + int(seen.actions[-1])]]
    may = np.where(mdp.over[:, None], np.arange(A) == logged[:, :, None], base.available)  # [T, S, A]
    known, paid = mdp.steps(seen, may)[0], 0.0
    for t in range(steps - 1, -1, -1):
        step = known[t]
        paid = step.paid + g * (float(step.seen @ later) if t == steps - 1 else paid)
        Q, R = (np.stack([step.backup(v, g, sign) for v in each]) for each, sign in ((least, -1), (most, 1)))
        is_logged = np.arange(A) == logged[t][:, None]  # [S, A]
        goes_on = ~_can_come(step, stuck)
        before = least, most, stuck
        least, most, stuck = (np.zeros_like(each) for each in before)
        for left in range(count):
            after = left if changes is None else left - 1
            worth = np.where(is_logged & may[t] & goes_on[left], Q[left], -np.inf)
            kept = worth.max(axis=1)
            if after >= 0:
                worth = np.where(~is_logged & may[t] & goes_on[after], Q[after], worth)
            best = np.argmax(worth, axis=1)
            is_change = (worth[here, best] > kept + margin) & np.isfinite(worth[here, best])
            taken = np.where(is_change, best, np.maximum(logged[t], 0))
            stuck[left] = ~is_change & ~np.isfinite(kept)
            column = np.where(is_change, after, left)
            least[left], most[left] = (np.where(stuck[left], 0.0, each[column, here, taken]) for each in (Q, R))
            actions[t, :, left] = np.where(stuck[left], -1, taken)
    first = int(seen.states[0])
    if stuck[-1, first]:
        raise ModelError(
            f"at most {changes} change{'' if changes == 1 else 's'} may not be enough: the other branch can come to a "
            "state where the logged action is not available; allow more changes"
        )
    gap = Interval(float(least[-1, first] - paid) - margin, float(most[-1, first] - paid) + margin)
    possible = _possible(known, seen, actions, logged, changes)
    return BestWorstCase(gap, changes, (steps + 2) * margin, actions, base, seen, possible)


def _can_come(step: IntervalStep, where: Bools) -> Bools:
    """Whether an action can lead to such states under some coupling, ``[L, S, A]``."""
    found = np.zeros((len(where), len(step.rows.chances)), dtype=bool)
    found[:, step.numbers] = np.any((step.most > 0) & where[:, step.successors], axis=2)
    return found.reshape(*where.shape, -1)


def _possible(steps: list[IntervalStep], seen: SeenSteps, actions: Ints, logged: Ints, changes: int | None) -> Bools:
    """Where the plan can come to, ``[T, S, L]``."""
    found, A = np.zeros(actions.shape, dtype=bool), steps[0].rows.num_actions
    found[0, seen.states[0], -1] = True
    for t, step in enumerate(steps[:-1]):
        for s, left in np.argwhere(found[t]).tolist():
            action = int(actions[t, s, left])
            row, spent = int(np.searchsorted(step.numbers, s * A + action)), action != logged[t, s]
            to = step.successors[row][step.most[row] > 0]
            found[t + 1, to, left - (spent and changes is not None)] = True
    return found
