"""The model as the log leaves it: what any action would have led to at each step, and courses of the other branch.

At time t a branch in state s meets noise of the law

    q_t(w|s) = Σ_x P(x_t = x | log) q_t(w|x)        where it shares the noise of the seen branch in x,

and the prior p(w|s) elsewhere, so that ``P(s' | t, s, a, log) = Σ_w q_t(w|s) 1[S'(s,w,a) = s']``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jointmdp.exact.hindsight.other_branch import OtherBranch
from jointmdp.exact.hindsight.scenario_posteriors import SeenPaths
from jointmdp.exact.hindsight.trajectory import Trajectory
from jointmdp.ground.answers import ResultFace
from jointmdp.ground.arrays import Bools, Floats, Ints
from jointmdp.ground.errors import ModelError
from jointmdp.model.episodes import terminal_states
from jointmdp.model.joint_mdp import JointMDP

MOST_ENTRIES = 2**27  # of a kernel, a gigabyte


def kernel_at(model: JointMDP, paths: SeenPaths, chances: Floats, t: int) -> Floats:
    """``P(s' | t, s, a, log)``, ``[S, A, S]``, for one trajectory and the chances of its places; 0 for no action."""
    S, A = model.num_states, model.num_actions
    step, found = paths.steps[t], np.zeros((S * A, S))
    law = model.probabilities
    if model.sharing == "time":
        law = np.broadcast_to(chances @ step.posterior, law.shape)
    elif model.sharing == "state":
        law = law.copy()
        law[step.state] += chances[:, None] * (step.posterior - law[step.state])
    state, w = np.nonzero(law > 0)
    for a in range(A):
        may = model.available[state, a]
        s, u = state[may], w[may]
        np.add.at(found, (s * A + a, model.successors[s, u, a]), law[s, u])
    return found.reshape(S, A, S)


def check_size(model: JointMDP, steps: int) -> None:
    """Refuse a kernel of all steps that is too large."""
    if steps * model.num_states**2 * model.num_actions > MOST_ENTRIES:
        raise ModelError(
            f"the kernel of {steps} steps, {model.num_states:,} states and {model.num_actions} actions takes more than "
            f"{MOST_ENTRIES:,} numbers; ask for one step at a time: kernel(step)"
        )


@dataclass(frozen=True, eq=False)
class OtherCourses(ResultFace, Sequence[Trajectory]):
    """Courses of the other branch, drawn at random given the log: a sequence of trajectories."""

    model: JointMDP = field(repr=False)
    states: Ints = field(repr=False)  # [N, n+1]
    actions: Ints = field(repr=False)  # [N, n]
    rewards: Floats = field(repr=False)  # [N, n]
    start: int
    """The step of the log at which they begin."""

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        model = self.model
        states = [s if model.state_names is None else model.state_names[s] for s in self.states[i].tolist()]
        actions = [a if model.action_names is None else model.action_names[a] for a in self.actions[i].tolist()]
        ended = bool(terminal_states(model)[self.states[i, -1]])
        return Trajectory(states, actions, self.rewards[i].tolist(), ended=ended)

    def __len__(self) -> int:
        return len(self.states)

    def __iter__(self) -> Iterator[Trajectory]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        steps = self.actions.shape[1]
        return f"OtherCourses({len(self):,} of {steps} steps, mean return {self.returns.mean():.6g} over these)"

    @property
    def returns(self) -> Floats:
        """What each course was paid at the steps of the log, discounted, ``[N]``."""
        return np.asarray(self.rewards @ self.model.discount ** np.arange(self.rewards.shape[1]))

    def table(self) -> list[dict[str, Any]]:
        """One row for each course and step, the last state among them."""
        model, rows = self.model, []
        for i in range(len(self)):
            for t in range(self.states.shape[1]):
                is_step = t < self.actions.shape[1]
                row: dict[str, Any] = {"episode": i, "step": self.start + t}
                row["state"] = model.state_label(int(self.states[i, t]))
                row["action"] = model.action_label(int(self.actions[i, t])) if is_step else ""
                row["reward"] = float(self.rewards[i, t]) if is_step else np.nan
                rows.append(row)
        return rows


def drawn_courses(  # many parameters: what was seen, what is done instead, and how many are drawn
    model: JointMDP, paths: SeenPaths, branch: OtherBranch, steps: int, count: int, rng: np.random.Generator, start: int
) -> OtherCourses:
    """The other branch beside the seen one, scenario by scenario, for one trajectory."""
    place = np.zeros(count, dtype=np.int64)
    y, is_one = np.full(count, paths.states[0][0]), np.zeros(count, dtype=bool)
    kept = np.full(count, branch.kept)
    states, actions, rewards = [y], [], []
    for t, step in enumerate(paths.steps[:steps]):
        x, a = step.state[place], step.action[place]
        if branch.plan is None:
            rows = (branch if t else branch.first).policy[y]
        else:
            rows, kept = branch.plan(t, place, y, kept)
        b = np.where(is_one, a, _drawn(rng, rows))
        w = _by_kind(rng, step.posterior, place)
        shares = is_one | {"time": np.ones(count, dtype=bool), "state": x == y, "none": is_one}[model.sharing]
        met = np.where(shares, w, _by_kind(rng, model.probabilities, y))
        if branch.can_merge and branch.plan is None and model.sharing != "none":
            is_one = is_one | ((x == y) & (a == b))
        actions.append(b)
        rewards.append(model.rewards[y, met, b])
        y, place = model.successors[y, met, b].astype(np.int64), step.after[place, w]
        states.append(y)
    return OtherCourses(model, np.stack(states, 1), np.stack(actions, 1), np.stack(rewards, 1), start)


def _drawn(rng: np.random.Generator, rows: Floats) -> Ints:
    """One entry by each row, never one of probability 0."""
    ends = np.cumsum(rows, axis=1)
    u = rng.random(len(rows)) * ends[:, -1]
    found: Bools = ends > u[:, None]
    return np.argmax(found, axis=1)


def _by_kind(rng: np.random.Generator, laws: Floats, kind: Ints) -> Ints:
    """One entry by the law of each kind."""
    found = np.empty(len(kind), dtype=np.int64)
    for k in np.unique(kind).tolist():
        mine = np.flatnonzero(kind == k)
        ends = np.cumsum(laws[k])
        found[mine] = np.searchsorted(ends, rng.random(len(mine)) * ends[-1], side="right")
    return found
