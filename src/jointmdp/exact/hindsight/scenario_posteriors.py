"""What a trajectory says about the noise of each step.

Scenarios of distinct steps are independent given the states. Where some states were not seen, the branch may have been
in one of several *places*; ``β_t(x)``, the probability of all that was seen later given that it was in x, weighs them:

    q_t(w|x) ∝ p(w|x) · 1[R(x,w,a_t) = r_t] · β_{t+1}(S'(x,w,a_t)).

Under Gumbel-max, where only laws of actions are kept, w is the outcome of the action that was taken: what another
action gets is known given that (`model.gumbel_max`).

A logged reward is one of the model's if it is equal to it, in whichever place the branch may have been. Where none is,
it is one that it may be a rounding of: closer than `reward_tolerance`, relative to the reward itself, or than double
precision leaves of a sum of the rewards that are possible there. Of several of these the nearest counts, and any that
is less than `AMBIGUOUS` times as far: rounding cannot tell them apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from jointmdp.exact.hindsight.logged_trajectories import UNSEEN, SeenSteps
from jointmdp.ground.arrays import Bools, Floats, Ints
from jointmdp.ground.errors import ModelError
from jointmdp.model.gumbel_max import GumbelModel, ends_of
from jointmdp.model.joint_mdp import JointMDP

REWARD_TOLERANCE = 1e-6  # of the reward itself: logs are often in single precision
SUM_ROUNDING = 2.0**-44  # of the largest reward that is possible: what a sum in double precision is off by
AMBIGUOUS = 4.0  # times as far as the nearest one


class SeenStep(NamedTuple):
    """Where the seen branches can have been at one time, and what the noise of that step was."""

    which: Ints  # [K] number of the trajectory, increasing
    state: Ints  # [K]
    action: Ints  # [K] that was taken there
    prior: Floats  # [K, W] before anything was seen but the state
    rewards: Floats  # [K, W] that each scenario pays
    posterior: Floats  # [K, W]
    after: Ints  # [K, W] the place at the next time that each scenario led to; UNSEEN where it is impossible


class Rows(NamedTuple):
    """What actions can bring in some states, by scenario; under Gumbel noise by the outcome of the action itself."""

    chances: Floats  # [K, W]
    rewards: Floats  # [K, W]
    successors: Ints  # [K, W]


def rows_of(model: JointMDP, state: Ints, action: Ints) -> Rows:
    """Of one action in each of the states."""
    if isinstance(model, GumbelModel):
        return Rows(*model.outcomes.rows(state * model.num_actions + action))
    return Rows(model.probabilities[state], model.rewards[state, :, action], model.successors[state, :, action])


class SeenPaths(NamedTuple):
    """Several trajectories, step by step; shorter ones are over sooner."""

    steps: tuple[SeenStep, ...]
    which: tuple[Ints, ...]  # of the places at every time 0..T, those of ended trajectories among them
    states: tuple[Ints, ...]
    lengths: Ints  # [N]

    @property
    def sums(self) -> Floats:
        """How many roundings a posterior, and a sum of it over scenarios, have gone through at each time.

        A total over W scenarios has W, and so has each β that weighs it, back from where one place is known, which has
        β = 1; a posterior is a quotient of two of these.
        """
        found = np.array([step.posterior.shape[1] + 8.0 for step in self.steps])
        for t in range(len(found) - 2, -1, -1):
            is_known = len(np.unique(self.which[t + 1])) == len(self.which[t + 1])
            found[t] += 0.0 if is_known else found[t + 1]
        return 3 * found

    def is_last(self, t: int) -> Bools:
        """Which places at time t are the last of their trajectory."""
        return np.asarray(self.lengths[self.which[t]] == t)


def seen_paths(
    model: JointMDP, seen: Sequence[SeenSteps], reward_tolerance: float, names: Sequence[tuple[str, int]] = ()
) -> SeenPaths:
    """The posterior of every step; an error names the step that the model cannot produce.

    `names` says how each trajectory is called, and at which step of it `seen` begins.
    """
    names = names or [("the trajectory", 0)] * len(seen)
    lengths = np.array([len(each.actions) for each in seen])
    which, state = np.arange(len(seen)), np.array([each.states[0] for each in seen])
    over = ends_of(model)
    places, steps = [(which, state)], []
    for t in range(int(lengths.max())):
        goes_on = lengths[which] > t
        which, state = which[goes_on], state[goes_on]
        action = np.array([seen[n].actions[t] for n in which.tolist()])
        rows = rows_of(model, state, action)
        *_, (_, fits) = _agreeing(
            model, rows, [seen[n] for n in which.tolist()], which, state, t, reward_tolerance, over
        )
        lost = np.setdiff1d(which, which[fits.any(axis=1)])
        if len(lost):
            n = int(lost[0])
            name, start = names[n]
            here = state[which == n]
            came = f"at step {start + t}, {model.action_label(int(seen[n].actions[t]))} in {_one_of(model, here)}"
            why = _why_not(model, seen[n], here, t, reward_tolerance, over)
            raise ModelError(f"{name} cannot happen in the model: {came} {why}")
        code = np.where(fits, which[:, None] * model.num_states + rows.successors, UNSEEN)
        known = np.unique(code[fits])
        after = np.where(fits, np.searchsorted(known, code), UNSEEN)
        steps.append(SeenStep(which, state, action, rows.chances, rows.rewards, rows.chances * fits, after))
        which, state = np.divmod(known, model.num_states)
        places.append((which, state))
    which_at, state_at = zip(*places, strict=True)
    # A backward pass of β, which is 1 at the end and scaled at every step.
    later = np.ones(len(state_at[-1]))
    for t in range(len(steps) - 1, -1, -1):
        step, which = steps[t], which_at[t]
        weights = step.posterior * np.where(step.after >= 0, later[step.after], 0.0)
        total = weights.sum(axis=1)
        posterior = weights / np.where(total > 0, total, 1.0)[:, None]
        steps[t] = step._replace(posterior=posterior, after=np.where(posterior > 0, step.after, UNSEEN))
        top = np.zeros(len(lengths))
        np.maximum.at(top, step.which, total)
        later = np.ones(len(which))
        later[lengths[which] > t] = total / top[step.which]
    return SeenPaths(tuple(steps), which_at, state_at, lengths)


def _agreeing(  # many parameters: what the model can bring, what was seen where, and how rewards are compared
    model: JointMDP,
    rows: Rows,
    seen: Sequence[SeenSteps],
    which: Ints,
    state: Ints,
    t: int,
    tolerance: float,
    over: Bools,
) -> Iterator[tuple[str, Bools]]:
    """Which scenarios agree with what was seen of step t, ``[K, W]``: with one part of it after the other, by name."""
    action, reward, scenario, after = (
        np.array(column)
        for column in zip(*((x.actions[t], x.rewards[t], x.scenarios[t], x.states[t + 1]) for x in seen), strict=True)
    )
    to = rows.successors
    found = (rows.chances > 0) & model.available[state, action][:, None]
    yield "action", found
    found = found & ((scenario[:, None] == UNSEEN) | (np.arange(to.shape[1]) == scenario[:, None]))
    yield "scenario", found
    found = found & ((after[:, None] == UNSEEN) | (to == after[:, None]))
    yield "state", found
    ends = np.array([each.ended and len(each.actions) == t + 1 for each in seen])
    found = found & (~ends[:, None] | over[to])
    yield "end", found
    paid = np.max(np.abs(rows.rewards), axis=1, where=rows.chances > 0, initial=0.0)
    yield "reward", same_rewards(rows.rewards, reward, found, tolerance, which, paid)


def same_rewards(  # many parameters: a table, what was seen where, and how they are compared
    table: Floats, seen: Floats, possible: Bools, tolerance: float, which: Ints, paid: Floats
) -> Bools:
    """Which entries of the rows of `table` are the rewards that were seen, ``[K, W]``; NaN was not seen.

    What is `paid` there at most, whatever follows, says how far off a sum can be that is zero but for rounding.
    Rows of one trajectory, which have the same number in `which`, are places where it may have been: a reward that is
    equal in one of them is not another one in the rest.
    """
    count = int(which.max()) + 1

    def over_places(values: Floats, start: float) -> Floats:
        found = np.full(count, start)
        (np.maximum if start <= 0 else np.minimum).at(found, which, values)
        return found[which][:, None]

    is_open = np.isnan(seen)[:, None]
    value = np.where(is_open, 0.0, seen[:, None])
    largest = over_places(paid, 0.0)
    distance = np.abs(table - value)
    room = np.maximum(tolerance * np.maximum(np.abs(table), np.abs(value)), SUM_ROUNDING * largest)
    near = np.where(possible & (distance <= room), distance, np.inf)
    nearest = over_places(near.min(axis=1, initial=np.inf), np.inf)
    return np.where(is_open, possible, (near <= AMBIGUOUS * nearest) & np.isfinite(near))


def _why_not(model: JointMDP, seen: SeenSteps, here: Ints, t: int, tolerance: float, over: Bools) -> str:
    """What was seen of step t that cannot be, and what the model would allow instead."""
    action, after, scenario = int(seen.actions[t]), int(seen.states[t + 1]), int(seen.scenarios[t])
    rows = rows_of(model, here, np.full(len(here), action))
    agreeing = list(_agreeing(model, rows, [seen] * len(here), np.zeros_like(here), here, t, tolerance, over))
    first = next(i for i, (_, found) in enumerate(agreeing) if not found.any())
    part, possible = agreeing[first][0], agreeing[first - 1][1]
    given = "" if scenario == UNSEEN else f" in scenario {scenario}, which was recorded"
    if part == "action":
        return "is not available"
    if part == "scenario":
        return f"never meets scenario {scenario}, which has probability 0 there"
    if part == "state":
        leads = _one_of(model, np.unique(rows.successors[possible]))
        return f"never leads to {model.state_label(after)}{given}; it leads to {leads}"
    if part == "end":
        return f"never ends the episode{given}"
    and_then = "" if after == UNSEEN else f" and leads to {model.state_label(after)}"
    if seen.ended and t + 1 == len(seen.actions):
        and_then = " and ends the episode"
    values = np.unique(rows.rewards[possible])
    some = ", ".join(f"{value:.6g}" for value in values[:5]) + (", …" if len(values) > 5 else "")
    return (
        f"never pays {seen.rewards[t]:.10g}{and_then}{given}; it pays {some} (reward_tolerance says how close rewards "
        "must be to count as the same)"
    )


def _one_of(model: JointMDP, states: Ints) -> str:
    labels = [model.state_label(int(s)) for s in states[:4]]
    return labels[0] if len(states) == 1 else f"one of {', '.join(labels)}{', …' if len(states) > 4 else ''}"
