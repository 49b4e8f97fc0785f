"""Bounds on the mean gap in hindsight over every coupling of an ordinary MDP.

A row is a state and an action. At some step the seen row has got one of some outcomes, whose probability is m. Of
another row with the law p each outcome j goes with that in a share ``m·x_j`` of its probability, and x_j is its own
probability given what was seen:

    max(0, 1 − Σ_{k≠j} min(1, p_k/m)) ≤ x_j ≤ min(1, p_j/m),      Σ x_j = 1.

Any such x, one for each row, belong to one coupling: given whether what was seen comes, draw all other rows
independently of each other. So, backward over the steps of the log, the other branch's mean by its state y is at most

    u_t(y) = Σ_b π_t(b|y) max { Σ_j x_j (R_j + γ u_{t+1}(S'_j)) : x in the intervals of row (y, b) },

where each row has its most valuable outcomes first, and at least the same with min. Under ``sharing="time"`` every row
is coupled with the seen one, under ``"state"`` those of the seen state; in other states the other branch has noise of
its own. Where it does what was done in the same state it gets what was got, and if it follows the log's policy after a
first action it is then one with the seen branch. After the last step means do not depend on the coupling.

The bounds are attained by a coupling of each step by itself. One coupling for all steps may not attain them; under
``"state"`` it does where no state is seen twice while both branches can still be there together.

An assumption narrows the intervals. Let i be the seen successor, and q the law of the seen row, so that ``m = q_i``:

- stable (Oberst and Sontag, 2019): an outcome k of the seen row goes with j ≠ k only where ``p_j/q_j > p_k/q_k``. So
  ``x_j = 0`` for j ≠ i with ``p_j/q_j ≤ p_i/q_i``. And those k in a set U of the largest ratios go with U alone, so
  that ``Σ_U m·x_j ≤ Σ_U (p_j − q_j)`` for an i of a lower ratio. Such sets contain each other: the first in order
  still have as much as they can, and where ratios differ Hall's theorem makes a table of it that is stable throughout.
- monotone (after Lally, Kazemi and Paoletti, 2025): ``x_j = 0`` as before, ``x_i ≥ p_i``, and ``x_j ≤ p_j`` for j ≠ i
  with ``q_j > 0``. Rows that have no successor in common with the seen one are free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypedDict, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike

from jointmdp.exact.hindsight.logged_trajectories import (
    UNSEEN,
    SeenSteps,
    Trajectory,
    given_trajectories,
    named_trajectory,
    seen_steps,
    until,
)
from jointmdp.exact.hindsight.other_branch import as_changes, as_logged, not_available
from jointmdp.exact.hindsight.scenario_posteriors import REWARD_TOLERANCE, same_rewards, seen_paths
from jointmdp.exact.moments.default_solver import PolicyBranch
from jointmdp.exact.solution.evaluate import check_ends
from jointmdp.ground import checks
from jointmdp.ground.arrays import UNIT, Bools, Floats, Ints, counted_once
from jointmdp.ground.errors import ModelError
from jointmdp.ground.intervals import Interval
from jointmdp.model.action_laws import ActionLaws
from jointmdp.model.couplings import GumbelMax
from jointmdp.model.from_mdp import ordinary_model
from jointmdp.model.gumbel_max import GumbelModel, ends_of
from jointmdp.model.policies import as_policy, as_timed_policy, depends_on_time
from jointmdp.model.tables import ActionLike

Assumption = Literal["stable", "monotone"]
EQUAL = 8 * UNIT  # ratios of probabilities that differ by less, relatively, differ by rounding alone


class Rows(NamedTuple):
    """The laws of all actions, row s·A + a, equal outcomes once; what fills a row up has probability 0."""

    chances: Floats  # [R, K]
    rewards: Floats  # [R, K]
    successors: Ints  # [R, K]
    num_actions: int

    @classmethod
    def of(cls, laws: ActionLaws) -> Rows:
        """From a list of outcomes."""
        owner = np.repeat(np.arange(len(laws.sizes)), laws.sizes)
        first, chance = counted_once((owner, laws.successors, laws.rewards), laws.probabilities)
        first, chance = first[chance > 0], chance[chance > 0]
        row = owner[first]
        place = np.arange(len(row)) - np.searchsorted(row, row)
        shape = len(laws.sizes), int(place.max(initial=0)) + 1
        chances, rewards, successors = np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=np.int64)
        chances[row, place], rewards[row, place] = chance, laws.rewards[first]
        successors[row, place] = laws.successors[first]
        return cls(chances, rewards, successors, laws.num_actions)

    @property
    def num_states(self) -> int:
        """S."""
        return len(self.chances) // self.num_actions

    @property
    def roundings(self) -> int:
        """Of one step, about: sums over outcomes and actions, and quotients."""
        return self.chances.shape[1] + self.num_actions + 16

    def means(self, later: Floats, discount: float) -> Floats:
        """``E[R + γ later(S')]`` of every action, ``[S, A]``."""
        values = self.rewards + discount * later[self.successors]
        return np.sum(self.chances * values, axis=1).reshape(-1, self.num_actions)


class IntervalStep(NamedTuple):
    """One step of a log: between which ends the probability of each outcome lies, given what was seen."""

    rows: Rows
    numbers: Ints  # [n] rows that matter
    seen: Floats  # [K] of the outcomes of the seen row
    paid: float  # E R of the seen row
    least: Floats  # [n, K]
    most: Floats  # [n, K]
    ratios: Floats  # [n, K] p_j/q_j
    caps: Floats  # [n, K] what all outcomes with such a ratio or a larger one can have together, given what was seen

    @property
    def successors(self) -> Ints:
        """Of the rows that matter, ``[n, K]``."""
        return self.rows.successors[self.numbers]

    def backup(self, later: Floats, discount: float, sign: int) -> Floats:
        """The largest (1) or the least (−1) ``E[R + γ later(S')]`` by row, ``[S, A]``; 0 where it does not matter."""
        values = self.rows.rewards[self.numbers] + discount * later[self.successors]
        order = np.argsort(-sign * values, axis=1, kind="stable")
        shares = self._free(order) if np.all(np.isinf(self.caps)) else self._capped(order)
        total = shares.sum(axis=1)
        found = np.zeros(len(self.rows.chances))
        found[self.numbers] = np.sum(shares * values, axis=1) / np.where(total > 0, total, 1.0)
        return found.reshape(-1, self.rows.num_actions)

    def _free(self, order: Ints) -> Floats:
        """Probabilities where the first in order have as much as they can."""
        least, room = (np.take_along_axis(each, order, axis=1) for each in (self.least, self.most - self.least))
        left = 1 - least.sum(axis=1, keepdims=True)
        shares, found = np.diff(np.minimum(np.cumsum(room, axis=1), left), axis=1, prepend=0.0), self.least.copy()
        np.put_along_axis(found, order, least + shares, axis=1)
        return found

    def _capped(self, order: Ints) -> Floats:
        """The same under caps: sets of outcomes with a cap contain each other or have nothing in common."""
        found, caps, left, n = np.zeros(order.shape), self.caps.copy(), np.ones(len(order)), np.arange(len(order))
        for j in order.T:
            within = self.ratios <= self.ratios[n, j][:, None]
            most = np.minimum(self.most[n, j], np.min(caps, axis=1, where=within, initial=np.inf))
            found[n, j] = np.maximum(np.minimum(most, left), 0.0)
            left = left - found[n, j]
            caps -= found[n, j][:, None] * within
        return found


def interval_step(  # many parameters: the model, the log, and what is assumed
    rows: Rows,
    numbers: Ints,
    seen: SeenSteps,
    t: int,
    over: Bools,
    tolerance: float,
    sharing: str,
    assume: Assumption | None,
) -> IntervalStep:
    """Some rows at step t of a log whose states are known, but perhaps the last."""
    A, state, action, after = rows.num_actions, *(int(x) for x in (seen.states[t], seen.actions[t], seen.states[t + 1]))
    row = state * A + action
    p, paid, to = rows.chances[row], rows.rewards[row], rows.successors[row]
    possible = (p > 0) & ((to == after) | (after == UNSEEN))
    if seen.ended and t + 1 == len(seen.actions):
        possible &= over[to]
    most_paid = np.max(np.abs(paid), where=p > 0, initial=0.0)
    rewards = paid[None, :], seen.rewards[[t]], possible[None, :]
    fits = same_rewards(*rewards, tolerance, np.zeros(1, np.int64), np.array([most_paid]))[0]
    chance = float(p[fits].sum())
    own = np.where(fits, p, 0.0) / chance
    here = rows.chances[numbers]
    shares = (numbers // A == state) | (sharing == "time")
    least = np.where(shares[:, None], 0.0, here)
    most = np.where(shares[:, None], np.minimum(here / chance, 1.0), here)
    ratios, caps = np.full((2, *here.shape), np.inf)
    if assume is not None:
        known = np.where(p > 0, to, UNSEEN), p, np.flatnonzero(fits)
        ratios, caps = _assumed(here, rows.successors[numbers], *known, t, shares, least, most, assume == "monotone")
    least[numbers == row] = most[numbers == row] = own
    caps[(numbers == row) | ~shares] = np.inf
    return IntervalStep(rows, numbers, own, float(own @ paid), least, most, ratios, caps)


def _assumed(  # many parameters: rows, the seen row and its outcome, and the ends that are narrowed
    chances: Floats,
    to: Ints,
    seen_to: Ints,
    seen_chances: Floats,
    fits: Ints,
    t: int,
    shares: Bools,
    least: Floats,
    most: Floats,
    is_monotone: bool,
) -> tuple[Floats, Floats]:
    """Ratios and caps."""
    if len(fits) != 1:
        raise ModelError(f"assume needs to know which outcome step {t} had, and {len(fits)} fit what was seen")
    several = (to[:, 1:] == to[:, :-1]) & (chances[:, 1:] > 0)  # rows are sorted
    twice = (seen_to[1:] == seen_to[:-1]) & (seen_to[1:] != UNSEEN)
    if np.any(several[shares]) or np.any(twice):
        raise ModelError(
            "assume compares successors, and one of them comes with several rewards of one action; make the reward a "
            "part of the state"
        )
    seen = np.zeros(int(max(to.max(), seen_to.max())) + 1)
    seen[seen_to[seen_to != UNSEEN]] = seen_chances[seen_to != UNSEEN]
    i, exists = int(seen_to[fits[0]]), chances > 0
    is_seen = (to == i) & exists
    p_i = np.sum(chances * is_seen, axis=1, keepdims=True)
    one, other = p_i * seen[to], chances * seen[i]
    both = exists & ~is_seen & (seen[to] > 0) & shares[:, None]
    is_less = both & (other <= one * (1 + EQUAL))
    most[is_less] = 0.0
    with np.errstate(over="ignore"):
        ratios = np.where(
            exists, np.divide(chances, seen[to], out=np.full_like(chances, np.inf), where=seen[to] > 0), -1
        )
    caps = np.full_like(chances, np.inf)
    if is_monotone:
        meets = np.any(exists & (seen[to] > 0), axis=1) & shares
        least[meets] = np.where(is_seen, p_i, least)[meets]
        most[both] = np.minimum(most, chances)[both]
        return ratios, caps
    # What a set of the largest ratios has more than the seen row gives it: rounded up, and only where that counts.
    order = np.argsort(-ratios, axis=1, kind="stable")
    more = np.cumsum(np.take_along_axis(chances - seen[to] * exists, order, axis=1), axis=1)
    sorted_ratios = np.take_along_axis(ratios, order, axis=1)
    for k in range(more.shape[1] - 2, -1, -1):  # equal ratios are in one set
        more[:, k] = np.where(sorted_ratios[:, k] == sorted_ratios[:, k + 1], more[:, k + 1], more[:, k])
    np.put_along_axis(caps, order, np.maximum(more, 0.0) + 4 * more.shape[1] * UNIT, axis=1)
    return ratios, np.where(exists & ~is_seen & ~is_less, caps / seen[i], np.inf)


MAX_ENTRIES = 20_000_000


class Mean(NamedTuple):
    """Mean returns by state, and a bound on their errors."""

    values: Floats  # [S]
    error: float


class LoggedMDP:
    """An ordinary MDP, and how logs of it are read."""

    def __init__(  # many parameters: those of `from_mdp`, and how a log is read
        self,
        transitions: Any,
        rewards: Any,
        discount: float,
        available: ArrayLike | None,
        state_names: Sequence[Any] | None,
        action_names: Sequence[Any] | None,
        sharing: str,
        assume: Assumption | None,
        reward_tolerance: float,
        horizon: int | None,
    ) -> None:
        if sharing not in ("state", "time"):
            raise ModelError(f'sharing is {sharing!r}; bounds over all couplings are for "time" and "state"')
        if assume not in (None, "stable", "monotone"):
            raise ModelError(f'assume is {assume!r}; it must be None, "stable" or "monotone"')
        found = ordinary_model(transitions, rewards, available, state_names, action_names)
        # Of all couplings this one keeps the laws alone: whether a log can happen does not depend on it.
        how = {"has_common_grid": False, "max_entries": MAX_ENTRIES, **found.names_and_actions()}
        self.base = GumbelModel(found.laws, GumbelMax(), discount, "none", **how)
        self.rows, self.over, self.discount = Rows.of(found.laws), ends_of(self.base), self.base.discount
        self.sharing, self.assume = sharing, assume
        self.tolerance = checks.as_positive("reward_tolerance", reward_tolerance)
        self.horizon = None if horizon is None else checks.as_count("horizon", horizon)
        self._after: dict[tuple[int, int | None], Mean] = {}

    def seen(self, trajectory: Trajectory, start: int) -> SeenSteps:
        """What was seen from `start` on; that it can happen is checked."""
        if trajectory.scenarios is not None:
            raise ModelError("bounds over all couplings know no scenarios; leave them out of the trajectory")
        whole = seen_steps(self.base, trajectory, self.over)
        start = checks.as_count("start", start, least=0)
        if start >= len(whole.actions):
            raise ModelError(f"the trajectory has no action at step {start}")
        if self.horizon is not None and self.horizon < len(whole.actions):
            raise ModelError(f"the trajectory has {len(whole.actions)} steps, more than the horizon of {self.horizon}")
        seen = whole.cut(start)
        if np.any(seen.states[:-1] == UNSEEN):
            raise ModelError("bounds over all couplings need all states but the last")
        seen_paths(self.base, [whole], self.tolerance)
        return seen

    def steps(self, seen: SeenSteps, takes: Bools) -> tuple[list[IntervalStep], Bools]:
        """The steps of the log, and where a branch can be that may take these actions, ``[T, S, A]`` and ``[T, S]``."""
        steps, found = [], np.zeros(takes.shape[:2], dtype=bool)
        found[0, seen.states[0]] = True
        for t in range(len(takes)):
            numbers = np.flatnonzero(found[t][:, None] & takes[t])
            how = self.over, self.tolerance, self.sharing, self.assume
            steps.append(interval_step(self.rows, numbers, seen, t, *how))
            if t + 1 < len(takes):
                found[t + 1, steps[-1].successors[steps[-1].most > 0]] = True
        return steps, found

    def after(self, policy: Floats | None, seen: SeenSteps, start: int) -> Mean:
        """What a policy gives after the last step; nothing without one."""
        if policy is None:
            return Mean(np.zeros(self.rows.num_states), 0.0)
        left = None if self.horizon is None else self.horizon - start - len(seen.actions)
        if (id(policy), left) not in self._after:
            self._after[id(policy), left] = self._followed(policy, left)
        return self._after[id(policy), left]

    def _followed(self, policy: Floats, left: int | None) -> Mean:
        if left is None:
            check_ends(self.base.alone, policy)
            branch = PolicyBranch(self.base.alone, policy)
            # Its table has the laws but for rounding: sums of up to K terms, and K·A intervals between them.
            K, spread = self.rows.chances.shape[1], 2 * self.base.reward_bound + float(np.ptp(branch.mean))
            off = K * (K + self.rows.num_actions + 8) * UNIT * spread * branch.single.state.span
            return Mean(branch.mean, float(branch.mean_errors.max()) + off)
        v = np.zeros(self.rows.num_states)
        for _ in range(left):
            v = np.sum(policy * self.rows.means(v, self.discount), axis=1)
        return Mean(v, 4 * left * self.rows.roundings * UNIT * self.base.reward_bound * left)

    def room(self, steps: int, *ends: Mean) -> float:
        """How far a mean gap may be off."""
        size = self.base.reward_bound * steps + max(float(np.abs(end.values).max()) for end in ends)
        known = sum(end.error for end in ends) * self.discount**steps
        return known + 8 * steps * (self.rows.roundings + steps) * UNIT * size


class Options(TypedDict, total=False):
    """Settings of `hindsight_bounds`."""

    other_policy: Any
    but: Mapping[int, ActionLike] | None
    start: int
    horizon: int | None
    sharing: Literal["state", "time"]
    assume: Assumption | None
    available: ArrayLike | None
    state_names: Sequence[Any] | None
    action_names: Sequence[Any] | None
    reward_tolerance: float


@overload
def hindsight_bounds(
    transitions: Any,
    rewards: Any,
    discount: float,
    policy: Any,
    trajectory: Trajectory,
    action: ActionLike | None = ...,
    **options: Unpack[Options],
) -> Interval: ...


@overload
def hindsight_bounds(
    transitions: Any,
    rewards: Any,
    discount: float,
    policy: Any,
    trajectory: Sequence[Trajectory],
    action: ActionLike | None = ...,
    **options: Unpack[Options],
) -> list[Interval]: ...


def hindsight_bounds(  # many parameters: those of `from_mdp`, and of `hindsight`
    transitions: Any,
    rewards: Any,
    discount: float,
    policy: Any,
    trajectory: Trajectory | Sequence[Trajectory],
    action: ActionLike | None = None,
    *,
    other_policy: Any = None,
    but: Mapping[int, ActionLike] | None = None,
    start: int = 0,
    horizon: int | None = None,
    sharing: Literal["state", "time"] = "state",
    assume: Assumption | None = None,
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
        action, other_policy, but: what is done instead from `start` on, as in `hindsight`.
        start, horizon, reward_tolerance: as in `hindsight`.
        sharing: where the other branch meets the noise of the seen one: in the same state, or always (``"time"``).
        assume: ``"stable"`` or ``"monotone"`` couplings alone, see docs/hindsight.md.
    """
    given = given_trajectories(trajectory)
    if sum(each is not None for each in (action, other_policy, but)) != 1:
        raise ModelError("give one of action, other_policy and but: what is done instead")
    names = available, state_names, action_names
    mdp = LoggedMDP(transitions, rewards, discount, *names, sharing, assume, reward_tolerance, horizon)
    chosen, bounds = as_policy(mdp.base, policy), []
    is_planned = but is not None or depends_on_time(other_policy)
    follows = chosen if action is not None or is_planned else as_policy(mdp.base, other_policy)
    for n, each in enumerate(given):
        with named_trajectory(n, len(given), each.episode):
            seen = mdp.seen(each, start)
            if horizon is not None and depends_on_time(other_policy):  # it is followed also where the seen one is over
                seen = until(mdp.base, seen, horizon - start, mdp.over)
            ends = mdp.after(chosen, seen, start), mdp.after(follows, seen, start)
            steps = len(seen.actions)
            rows, lost = np.tile(follows, (steps, 1, 1)), None
            if but is not None:
                does = seen.actions.copy()
                changes = as_changes(mdp.base, but, steps, start)
                does[list(changes)] = list(changes.values())
                acts = as_logged(mdp.base, does, mdp.over)
                rows, lost = np.eye(mdp.base.num_actions)[acts] * (acts >= 0)[:, :, None], acts < 0
            elif is_planned:
                rows = as_timed_policy(mdp.base, other_policy, start + steps, chosen)[start:]
            if action is not None:
                first = mdp.base.action_index(action, int(seen.states[0]))
                rows[0] = np.eye(mdp.base.num_actions)[first]
            known, possible = mdp.steps(seen, rows > 0)
            if lost is not None and (at := checks.first_place(possible & lost)):
                raise not_available(mdp.base, at[1], start + at[0], int(does[at[0]]))
            least, most = _mean_gaps(mdp, seen, known, rows, *ends, merges=action is not None)
            room = mdp.room(steps, *ends)
            bounds.append(Interval(least - room, most + room))
    return bounds[0] if isinstance(trajectory, Trajectory) else bounds


def _mean_gaps(  # many parameters: the log, what the other branch does, and what follows
    mdp: LoggedMDP,
    seen: SeenSteps,
    steps: list[IntervalStep],
    rows: Floats,
    end: Mean,
    other_end: Mean,
    *,
    merges: bool,
) -> tuple[float, float]:
    """The least and the largest mean of the other branch's return minus the seen one's: backward in time."""
    g, others, paid = mdp.discount, [other_end.values, other_end.values], 0.0
    for t in range(len(seen.actions) - 1, -1, -1):
        step, state, action = steps[t], int(seen.states[t]), int(seen.actions[t])
        later = paid
        if t == len(seen.actions) - 1:
            to = mdp.rows.successors[state * mdp.rows.num_actions + action]
            later = float(step.seen @ end.values[to])
        paid = step.paid + g * later
        for k, sign in enumerate((-1, 1)):
            means = step.backup(others[k], g, sign)
            if merges:
                means[state, action] = paid
            others[k] = np.sum(rows[t] * means, axis=1)
    least, most = (float(each[seen.states[0]] - paid) for each in others)
    return least, most
