"""What should have been done: the front door and its answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, overload

import numpy as np

from jointmdp.exact.hindsight.backward_moments import Ends, nothing_follows
from jointmdp.exact.hindsight.best_plan import BestPlan
from jointmdp.exact.hindsight.hindsight import Hindsight, Hindsights, Question, answered, laws_after
from jointmdp.exact.hindsight.logged_trajectories import Trajectory, given_trajectories, named_trajectory, seen_steps
from jointmdp.exact.hindsight.other_branch import OtherBranch, all_cells
from jointmdp.exact.hindsight.scenario_posteriors import REWARD_TOLERANCE
from jointmdp.exact.law.gap_law import Laws
from jointmdp.exact.solution.solution import Solution
from jointmdp.ground import checks
from jointmdp.ground.answers import ResultFace
from jointmdp.ground.errors import ModelError
from jointmdp.ground.progress import Meter
from jointmdp.model.gumbel_max import ends_of
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.policies import as_policy, uniform_policy

SHOWN = 3  # decisions in the text
SURE = 0.9995  # a probability that prints as 1


class Decision(NamedTuple):
    """An action that should have been another one."""

    step: int
    state: str
    """Where the other branch is."""
    done: str
    """What the log did at this step."""
    better: str
    probability: float
    """That the other branch comes to this decision, given what was seen."""
    gain: float
    """What it adds to the mean return, with the log after it and all earlier changes before it."""

    def __str__(self) -> str:
        sure = "" if self.probability > SURE else f", with probability {self.probability:.3g}"
        return f"{self.better} instead of {self.done} at step {self.step}, in {self.state}{sure}"


@dataclass(frozen=True, eq=False, repr=False)
class BestActions(ResultFace):
    """What is best in hindsight wherever the other branch can come to: call it with a step and a state."""

    question: Question
    plan: BestPlan

    def __call__(self, step: int, state: Any, changes_left: int | None = None, seen_state: Any = None) -> str:
        """The action by name.

        Args:
            step, state: where the other branch is, and when.
            changes_left: how many changes are still allowed; by default all of them.
            seen_state: where the seen branch is, if that was not seen.
        """
        model, paths = self.question.model, self.question.paths
        step = checks.as_count("step", step, least=0, most=len(paths.steps) - 1)
        y, places = model.state_index(state), paths.states[step]
        if seen_state is not None:
            places = places[places == model.state_index(seen_state)]
        if len(places) != 1:
            several = "several may be true; say where it was" if len(places) else "it cannot have been there"
            raise ModelError(f"seen_state: of the state of the seen branch at step {step}, {several}")
        place = np.flatnonzero(paths.states[step] == places[0])
        top = self.plan.columns - 1
        left = top
        if changes_left is not None and self.plan.changes is not None:
            left = min(checks.as_count("changes_left", changes_left, least=0), top)
        stage, at = self.plan.stages[step], int(self.plan.at(step, place, np.array([y]))[0])
        if at == len(stage.code) or stage.code[at] != place[0] * model.num_states + y:
            raise ModelError(f"the other branch cannot come to {model.state_label(y)} at step {step}")
        action = int(stage.action[at, left])
        if action < 0:
            raise ModelError(f"nothing can be done in {model.state_label(y)} at step {step} with {left} changes left")
        return model.action_label(action)

    def __repr__(self) -> str:
        return f"BestActions({len(self.plan.stages)} steps, {sum(len(s.code) for s in self.plan.stages):,} nodes)"

    def table(self) -> list[dict[str, Any]]:
        """One row for each step, place of the seen branch, state of the other and number of changes left."""
        model, rows = self.question.model, []
        for t, stage in enumerate(self.plan.stages):
            place, state = np.divmod(stage.code, model.num_states)
            for i, (k, y) in enumerate(zip(place.tolist(), state.tolist(), strict=True)):
                for left, action in enumerate(stage.action[i, :-1].tolist()):
                    row: dict[str, Any] = {"step": t}
                    row["seen_state"] = model.state_label(int(self.question.paths.states[t][k]))
                    row["state"] = model.state_label(y)
                    is_any = self.plan.changes is None
                    row["changes_left"] = ("none", "any")[left] if is_any else left
                    row["action"] = "" if action < 0 else model.action_label(action)
                    row["changed"] = action != int(stage.logged[i])
                    rows.append(row)
        return rows


@dataclass(frozen=True, eq=False, repr=False)
class BestInHindsight(Hindsight):
    """One trajectory, and the best that could have been done on the same noise with a limited number of changes.

    The `gap` is that of the best plan and what was seen.
    """

    plan: BestPlan = field(repr=False)
    decisions: tuple[Decision, ...]
    """The actions that should have been others, in the order of steps.

    Where the other branch shares the noise of the seen one, their gains sum to the mean gap.
    """

    @property
    def changes(self) -> int | None:
        """How many actions may differ from the logged ones; None for any number."""
        return self.plan.changes

    @property
    def loss_bound(self) -> float:
        """Certified bound on how much more another plan with as many changes can give on average."""
        return self.plan.loss_bound

    @property
    def policy(self) -> BestActions:
        """What is best at each step: ``policy(step, state)``; `table` has all of it."""
        return BestActions(self.question, self.plan)

    @property
    def turning(self) -> Decision | None:
        """The decision that is worth most, on which it turned; None where what was done was best."""
        return max(self.decisions, key=lambda each: each.gain, default=None)

    def __repr__(self) -> str:
        count, turning = self.changes, self.turning
        limit = "" if count is None else f" with at most {_changes(count)}"
        if turning is None:
            return (
                f"BestInHindsight(nothing else{limit} gives more on average than what was done; {self.num_steps} steps)"
            )
        spread = 0.0 if self.gap.variance <= self.gap.variance_error else self.gap.std
        better = "more" if self.gap.mean >= 0 else "less"  # noise of its own may be worse
        more = f"{abs(self.gap.mean):.6g} {better} on the same noise, ± {spread:.6g} of what is not known"
        if count == 1 and len(self.decisions) == 1:
            return f"BestInHindsight(it turned on one decision: {turning} would have given {more})"
        most = sorted(self.decisions, key=lambda each: -each.gain)
        shown = "; ".join(f"{each} ({each.gain:+.6g})" for each in most[:SHOWN])
        rest = f"; and {len(most) - SHOWN} more" if len(most) > SHOWN else ""
        return f"BestInHindsight({more}{limit}: {shown}{rest})"

    def table(self) -> list[dict[str, Any]]:
        """One row a step: what was done, what would have been better, and by how much.

        `better` is what the plan most likely does instead, `changed` how likely it does anything else, `gain` what that
        adds to the mean return. `instead` is the best other action where all before was as logged, and `instead_gain`
        what it and the best changes after it would give more on average than the log. The rest is as in `Hindsight`.
        """
        rows = super().table()
        for t, row in enumerate(rows):
            mine = [each for each in self.decisions if each.step == t]
            is_step = t < self.num_steps
            row["better"] = max(mine, key=lambda each: each.probability).better if mine else ""
            row["changed"] = sum(each.probability for each in mine) if is_step else np.nan
            row["gain"] = sum(each.gain for each in mine) if is_step else np.nan
            stage = self.plan.stages[t] if is_step else None
            has_other = stage is not None and np.isfinite(stage.instead_worth)
            row["instead"] = self.model.action_label(stage.instead) if stage is not None and has_other else ""
            row["instead_gain"] = stage.instead_worth if stage is not None and has_other else np.nan
        return rows


def _decisions(question: Question, plan: BestPlan) -> tuple[Decision, ...]:
    """What the plan does unlike the log, wherever the other branch comes to."""
    model, found = question.model, []
    for t, stage in enumerate(plan.stages):
        nodes, logged = question.walk.nodes[t], int(question.seen.actions[t])
        at = plan.at(t, nodes.place, nodes.state)
        action = stage.action[at, nodes.kept]
        worth = model.discount**t * nodes.chance * stage.worth[at, nodes.kept]
        is_change = action != stage.logged[at]
        for y, b in np.unique(np.stack([nodes.state, action])[:, is_change], axis=1).T.tolist():
            mine = is_change & (nodes.state == y) & (action == b)
            labels = model.state_label(y), model.action_label(logged), model.action_label(b)
            found.append(Decision(t, *labels, float(nodes.chance[mine].sum()), float(worth[mine].sum())))
    return tuple(found)


def _changes(count: int) -> str:
    return f"{count} change{'' if count == 1 else 's'}"


@dataclass(frozen=True, eq=False, repr=False)
class BestInHindsights(Hindsights):
    """Several trajectories, in the order given."""

    results: tuple[BestInHindsight, ...]

    def __repr__(self) -> str:
        first = self.results[0]
        limit = "any number of changes" if first.changes is None else f"at most {_changes(first.changes)} each"
        most = self.decisions()
        text = f"BestInHindsights({len(self):,} answers; {self.mean.sum():.6g} more in all with {limit}"
        if not most:
            return f"{text})"
        row = most[0]
        return (
            f"{text}; {row['gain']:.6g} of it by {row['better']} instead of {row['done']} in {row['state']}, in "
            f"{row['episodes']:,} of them)"
        )

    def decisions(self) -> list[dict[str, Any]]:
        """Which decisions cost most: one row for each state, what was done there and what is better, summed."""
        found: dict[tuple[str, str, str], dict[str, Any]] = {}
        for each in self.results:
            kinds = set()
            for decision in each.decisions:
                kind = decision[1:4]
                empty = {"episodes": 0, "times": 0.0, "gain": 0.0}
                row = found.setdefault(kind, dict(zip(("state", "done", "better"), kind, strict=True)) | empty)
                row["episodes"] += kind not in kinds
                row["times"] += decision.probability
                row["gain"] += decision.gain
                kinds.add(kind)
        return sorted(found.values(), key=lambda row: -row["gain"])

    def table(self) -> list[dict[str, Any]]:
        """One row a trajectory, with the decision on which it turned."""
        rows = []
        for each, row in zip(self.results, super().table(), strict=True):
            turning = each.turning
            named = (None,) * 4 if turning is None else turning[:4]
            row |= dict(zip(("turning_step", "turning_state", "done", "better"), named, strict=True))
            row["turning_gain"] = 0.0 if turning is None else turning.gain
            rows.append(row)
        return rows


@overload
def best_in_hindsight(
    model: JointMDP,
    trajectory: Trajectory,
    changes: int | None = ...,
    *,
    policy: Any = ...,
    horizon: int | None = ...,
    solution: Solution | None = ...,
    reward_tolerance: float = ...,
) -> BestInHindsight: ...


@overload
def best_in_hindsight(
    model: JointMDP,
    trajectory: Sequence[Trajectory],
    changes: int | None = ...,
    *,
    policy: Any = ...,
    horizon: int | None = ...,
    solution: Solution | None = ...,
    reward_tolerance: float = ...,
) -> BestInHindsights: ...


def best_in_hindsight(
    model: JointMDP,
    trajectory: Trajectory | Sequence[Trajectory],
    changes: int | None = 1,
    *,
    policy: Any = None,
    horizon: int | None = None,
    solution: Solution | None = None,
    reward_tolerance: float = REWARD_TOLERANCE,
) -> BestInHindsight | BestInHindsights:
    """What should have been done: the best actions on the noise that was seen, with at most `changes` unlike the log's.

    Best on average given the log, among all plans that know the states of both branches, also states of the seen branch
    that the log does not show, but not the noise to come. With ``changes=1``, the decision on which it turned.

    Args:
        model: the joint MDP; its ``sharing`` says where the other branch meets the noise of the seen one.
        trajectory: what was seen, or several trajectories of one model.
        changes: how many actions may differ from the logged ones of the same steps, whatever happens; None for any
            number. Where an episode is over nothing is done, and nothing counts.
        policy: what both branches follow after the last step of the log; None where nothing counts after it.
        horizon: how many steps count in all, with a policy; None for an endless future.
        solution: of `evaluate(model, policy)`, where it is at hand.
        reward_tolerance: as in `hindsight`.
    """
    if not isinstance(model, JointMDP):
        raise ModelError(f"the model must be a JointMDP, not {type(model).__name__}")
    changes = None if changes is None else checks.as_count("changes", changes, least=0)
    given, over = given_trajectories(trajectory), ends_of(model)
    if policy is None and (horizon is not None or solution is not None):
        raise ModelError("after the last step of the log nothing counts without a policy; give one with a horizon")
    chosen = uniform_policy(model) if policy is None else as_policy(model, policy)
    tolerance = checks.as_positive("reward_tolerance", reward_tolerance)
    after = OtherBranch(model, chosen, None, can_merge=True, known=all_cells(model))
    ends = Ends(model, chosen, after, 2, horizon, solution, over)
    laws: dict[int | None, Laws] = {}
    words = "the best actions" if changes is None else f"the best {_changes(changes)}"
    found = []
    with Meter("best in hindsight") as meter:
        for n, each in enumerate(given):
            with named_trajectory(n, len(given), each.episode):
                seen = seen_steps(model, each, over)
                steps = len(seen.actions)
                if not steps:
                    raise ModelError("the trajectory has no action, so there is nothing that could have been done")
                span = steps if policy is None else ends.steps_from(0, steps)
                if span not in laws:
                    laws[span] = laws_after(after, chosen, span)
                plan = BestPlan(model, seen.actions, changes, over)
                branch = replace(after, plan=plan, kept=plan.columns - 1)
                name = "the trajectory" if len(given) == 1 and each.episode is None else "it"
                how = branch, words, tolerance, laws[span], 0, n, name, each.episode
                question = Question(model, seen, seen, *how)
                end = nothing_follows(2) if span == steps else ends.after(seen, span)
                plan.find(question.paths, branch, end)
                (answer,) = answered([question], [end])
                parts = answer.question, answer.gap, answer.other_return, answer.seen_return
                found.append(BestInHindsight(*parts, plan, _decisions(question, plan)))
                if len(given) > 1:
                    question.forget()
            meter.update((n + 1) / len(given), f"{n + 1:,} of {len(given):,} trajectories")
    return found[0] if isinstance(trajectory, Trajectory) else BestInHindsights(tuple(found))
