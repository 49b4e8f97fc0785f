"""Plans for the steps of a log: a policy that depends on time, and the log itself but for some steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jointmdp.exact.hindsight.logged_trajectories import SeenSteps
from jointmdp.exact.hindsight.other_branch import Plan
from jointmdp.ground import checks
from jointmdp.ground.arrays import Bools, Floats, Ints
from jointmdp.ground.errors import ModelError
from jointmdp.model.joint_mdp import JointMDP


class TimedPlan(NamedTuple):
    """A policy that depends on time."""

    rows: Floats  # [T, S, A]

    def __call__(self, t: int, place: Ints, state: Ints, kept: Ints) -> tuple[Floats, Ints]:
        return self.rows[t, state], kept


def as_logged(model: JointMDP, logged: Ints, over: Bools) -> Ints:
    """What a branch does at each step and in each state that does what the log did, ``[T, S]``; −1 where it cannot.

    In states that are over nothing can be done, and any action stands for that.
    """
    can = model.available[:, logged].T
    return np.where(over, np.argmax(model.available, axis=1), np.where(can, logged[:, None], -1))


def but_plan(
    model: JointMDP, seen: SeenSteps, changes: Mapping[int, int], then: Floats, over: Bools, start: int
) -> Plan:
    """The logged actions but at some steps, which count from `start`; after them `then`, ``[S, A]``."""
    does = seen.actions.copy()
    does[list(changes)] = list(changes.values())
    acts = as_logged(model, does, over)

    def plan(t: int, place: Ints, state: Ints, kept: Ints) -> tuple[Floats, Ints]:
        if t >= len(does):  # an episode that is over
            return then[state], kept
        action = acts[t, state]
        if at := checks.first_place(action < 0):
            raise not_available(model, int(state[at]), start + t, int(does[t]))
        return np.eye(model.num_actions)[action], kept

    return plan


def not_available(model: JointMDP, state: int, t: int, action: int) -> ModelError:
    """The log cannot be followed."""
    return ModelError(
        f"the other branch can come to {model.state_label(state)} at step {t}, where {model.action_label(action)} is "
        "not available; give other_policy as a function of time and state, which says what is done there"
    )


def as_changes(model: JointMDP, but: Any, steps: int, start: int) -> dict[int, int]:
    """A dictionary {step: action}, whose steps count from the beginning of the log, by numbers from `start` on."""
    if not isinstance(but, Mapping) or not but:
        raise ModelError(f"but is {but!r}; give what is done instead, and when: {{step: action}}")
    found = {}
    for step, action in but.items():
        t = checks.as_count("a step of but", step, least=start, most=start + steps - 1)
        found[t - start] = model.action_index(action)
    return found


def told(model: JointMDP, changes: Mapping[int, int], start: int) -> str:
    """The log but for these steps, in words."""
    parts = [f"{model.action_label(action)} at step {start + t}" for t, action in sorted(changes.items())]
    return f"the log but {', '.join(parts[:3])}{', …' if len(parts) > 3 else ''}"
