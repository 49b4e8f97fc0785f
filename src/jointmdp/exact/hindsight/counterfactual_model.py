"""The model as the log leaves it: what any action would have led to at each step, and courses of the other branch.

At time t a branch in state s meets noise of the law

    q_t(w|s) = Σ_x P(x_t = x | log) q_t(w|x)        where it shares the noise of the seen branch in x,

and the prior p(w|s) elsewhere, so that ``P(s' | t, s, a, log) = Σ_w q_t(w|s) 1[S'(s,w,a) = s']``. Under Gumbel noise it
meets the law of its own outcome, given each that the seen branch may have got. Both are the moves of `other_branch`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from jointmdp.exact.hindsight.logged_trajectories import Trajectory
from jointmdp.exact.hindsight.other_branch import ONE, OtherBranch, all_cells, node_moves, seen_moves
from jointmdp.exact.hindsight.scenario_posteriors import SeenPaths, SeenStep
from jointmdp.ground.answers import ResultFace
from jointmdp.ground.arrays import Bools, Floats, Ints, summed
from jointmdp.ground.errors import ModelError
from jointmdp.model.gumbel_max import GumbelModel, ends_of
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.policies import uniform_policy

MOST_ENTRIES = 2**27  # of a kernel, a gigabyte


def kernel_of(model: JointMDP, paths: SeenPaths, chances: Sequence[Floats], times: Iterable[int]) -> Floats:
    """``P(s' | t, s, a, log)``, ``[n, S, A, S]``, for one trajectory and the chances of its places; 0 for no action."""
    S, A = model.num_states, model.num_actions
    branch, found = _any_action(model), []
    state, action = np.nonzero(model.available)
    rows, apart = np.eye(A)[action], np.zeros(len(state), dtype=bool)
    for t in times:
        step, weight, at_step = paths.steps[t], chances[t], np.zeros(S * A * S)
        if model.sharing == "time" and not isinstance(model, GumbelModel):
            step, weight = _as_one_place(step, weight), np.ones(1)
        own = seen_moves(step)
        for place, chance in _beside(model, step, weight):
            some = np.flatnonzero(chance[state])
            who = state[some]
            moves = node_moves(some, place[who], who, rows[some], apart[some], step, own, branch)
            code = (state * A + action)[moves.parent] * S + moves.child % S
            at_step += summed(code, chance[state[moves.parent]] * moves.weight, len(at_step))
        found.append(at_step.reshape(S, A, S))
    return np.stack(found)


def _as_one_place(step: SeenStep, chances: Floats) -> SeenStep:
    """All places as one: where everything meets the same scenarios, what is known of these is their average."""
    mean = (chances @ step.posterior)[None]
    which, state, action = step.which[:1], step.state[:1], step.action[:1]
    after = np.zeros(mean.shape, dtype=np.int64)
    return SeenStep(which, state, action, step.prior[:1], np.zeros_like(mean), mean, after)


def _beside(model: JointMDP, step: SeenStep, chances: Floats) -> Iterator[tuple[Ints, Floats]]:
    """Places of the seen branch that stand for all: one for each state, and how much it counts there, ``[S]`` each."""
    places = np.flatnonzero(chances)
    if model.sharing == "time":
        for k in places.tolist():
            yield np.full(model.num_states, k), np.full(model.num_states, chances[k])
        return
    # In all other states noise is its own, whichever place that is beside.
    here, apart = np.zeros(model.num_states, dtype=np.int64), np.ones(model.num_states)
    here[step.state[places]] = np.arange(len(places))
    apart[step.state[places]] = np.maximum(1.0 - chances[places], 0.0)
    yield places[here], 1.0 - apart
    yield places[(here + 1) % len(places)], apart


def _any_action(model: JointMDP) -> OtherBranch:
    """A branch of which every node takes an action of its own: the number that it keeps."""

    def plan(t: int, place: Ints, state: Ints, kept: Ints) -> tuple[Floats, Ints]:
        return np.eye(model.num_actions)[kept], kept

    return OtherBranch(model, uniform_policy(model), None, can_merge=False, plan=plan, known=all_cells(model))


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
        ended = bool(self._over[self.states[i, -1]])
        return Trajectory(states, actions, self.rewards[i].tolist(), ended=ended)

    @cached_property
    def _over(self) -> Bools:
        return ends_of(self.model)

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
    """The other branch beside the seen one, move by move, for one trajectory."""
    can_be_one = branch.plan is None and branch.can_merge
    drawing = replace(_any_action(model), can_merge=can_be_one)
    place, y = np.zeros(count, dtype=np.int64), np.full(count, paths.states[0][0])
    kept, is_one = np.full(count, branch.kept), np.zeros(count, dtype=bool)
    states, actions, rewards = [y], [], []
    for t, step in enumerate(paths.steps[:steps]):
        own = seen_moves(step)
        if branch.plan is None:
            rows = (branch if t else branch.first).policy[y]
        else:
            rows, kept = branch.plan(t, place, y, kept)
        b = np.where(is_one, step.action[place], _drawn(rng, rows))
        # Courses that are alike up to here have the same moves.
        codes, kind = np.unique((place * model.num_states + y) * model.num_actions + b, return_inverse=True)
        pair, does = np.divmod(codes, model.num_actions)
        k, at = np.divmod(pair, model.num_states)
        final, chosen = np.full(len(codes), can_be_one), np.eye(model.num_actions)[does]
        moves = node_moves(np.arange(len(codes)), k, at, chosen, final, step, own, drawing)
        move = _entry(rng, np.searchsorted(moves.parent, np.arange(len(codes) + 1)), moves.weight, kind)
        actions.append(b)
        rewards.append(moves.gain[move])
        is_one, place = moves.child[move] == ONE, moves.place[move]
        y = np.where(is_one, paths.states[t + 1][place], moves.child[move] % model.num_states)
        states.append(y)
    return OtherCourses(model, np.stack(states, 1), np.stack(actions, 1), np.stack(rewards, 1), start)


def _drawn(rng: np.random.Generator, rows: Floats) -> Ints:
    """One entry by each row, never one of probability 0."""
    ends = np.cumsum(rows, axis=1)
    u = rng.random(len(rows)) * ends[:, -1]
    found: Bools = ends > u[:, None]
    return np.argmax(found, axis=1)


def _entry(rng: np.random.Generator, starts: Ints, weight: Floats, kind: Ints) -> Ints:
    """One entry of each kind, by weights that are listed kind by kind; never one of probability 0."""
    ends = np.append(0.0, np.cumsum(weight))
    low, high = ends[starts[kind]], ends[starts[kind + 1]]
    found = np.searchsorted(ends, low + rng.random(len(kind)) * (high - low), side="right") - 1
    return np.clip(found, starts[kind], starts[kind + 1] - 1)
