"""The front door of simulation: joint samples of the returns of several actions, of a table or any simulator.

The noise of a replication has an address, the seed and the replication's number, so nothing of it needs to be stored,
and a sample can be asked again: for other first actions and policies on the very same noise, or for what was done step
by step. An alternative that is added comes after those that are there, whose draws it leaves as they are: all numbers
are those of a simulation that had it from the start.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Never

import numpy as np

from jointmdp.ground import checks
from jointmdp.ground.answers import SavedFace, as_dataset, words
from jointmdp.ground.arrays import Floats
from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import ModelError, NotKnownError
from jointmdp.simulation.executors import Executor, opened
from jointmdp.simulation.montecarlo.alternatives import (
    Alternatives,
    SimulationSettings,
    first_actions,
    first_actions_and_policies,
)
from jointmdp.simulation.montecarlo.samples import BranchPath, GapSample, Replications, sample
from jointmdp.simulation.simulators.function_simulator import as_named
from jointmdp.simulation.simulators.simulator import Action

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

    from jointmdp.exact.solution.solution import BestAction

SHOWN_ACTIONS = 8  # in a line
ROUNDING = 1e-9  # relative: two runs on several threads may add in another order
CAUSE = ": the simulator, the policy or the state has changed since, or draws from noise that is not the replication's"


def simulate(  # many parameters: a front door, one keyword for each setting
    source: Any,
    policy: Any,
    state: Any = None,
    actions: Sequence[Action] | None = None,
    *,
    num_samples: int = 10_000,
    seed: int = 0,
    horizon: int | None = None,
    sharing: Sharing | None = None,
    executor: Executor | str | None = None,
    gaps_only: bool = False,
    minimise: bool = False,
    **unknown: Never,
) -> ReturnSample:
    """Independent samples of the returns of several actions under shared noise: every pair of them at once.

    Args:
        source: a `JointMDP`, a simulator, or a Gymnasium environment.
        policy: what all branches follow after the first action: an array, or any form of `as_agent`. Over a horizon of
            a table also an array ``[T, S, A]``, which says what is done at each step.
        state: a state by name or index, or a simulator's snapshot; None: each replication begins in a starting state
            of its own.
        actions: the first actions of the branches; by default all available ones.
        num_samples, seed: replication i depends on the seed and i alone.
        horizon: simulate the first `horizon` steps only. Otherwise a replication stops when it is over, or when what
            is left of it is too little to matter; the intervals allow for that.
        sharing: ``"time"``, ``"state"`` or ``"none"``; by default what the model or simulator says.
        executor: where replications are simulated: here, ``"processes:4"``, ``"ray:ADDRESS"``; the result is the same.
        gaps_only: stop each replication where its branches have merged, which can be a hundred times as quick in an
            endless task. Gaps are final there, returns are not: the sample then answers for gaps alone.
        minimise: returns are costs, and the lowest is the best. Returns stay as they are; a gap is how much less an
            action costs.
    """
    checks.refuse_keywords(unknown, simulate)
    settings = SimulationSettings(seed, sharing=sharing, horizon=horizon, until_merged=gaps_only)
    return _sampled(first_actions(source, policy, state, actions, settings), num_samples, executor, bool(minimise))


def _sampled(found: Alternatives, num_samples: int, executor: Executor | str | None, minimise: bool) -> ReturnSample:
    """Replications of some alternatives, after a check that their noise is shared."""
    from jointmdp.simulation.montecarlo.noise_checks import NoiseChecks  # takes JAX along

    count = checks.as_count("num_samples", num_samples, least=2)
    with opened(executor) as workers:
        checked = NoiseChecks(found, count, workers)
        run = sample(found.sampler, 0, count, found.sharing, workers, title="simulating returns")
    checked.finish(run)
    seed = int(found.settings.seed)
    known = found.return_bound, found.reach(run), seed, found.values, minimise
    return ReturnSample(found.labels, run, *known, origin=found)


@dataclass(frozen=True, eq=False, repr=False)
class ReturnSample(SavedFace):
    """Joint samples of the returns of several actions in one state."""

    actions: tuple[str, ...]
    """What the first actions are called."""
    replications: Replications
    return_bound: float | None
    """Largest absolute return, where it is known."""
    reach: float
    """How far apart two returns can be, as far as seen: what a gap that has not been seen yet may be."""
    seed: int
    values: tuple[Action, ...] = field(default=(), compare=False)
    """The first actions as the environment calls them: their numbers, where they are numbered."""
    minimise: bool = False
    """Whether returns are costs: gaps say how much less an action costs."""
    origin: Alternatives | None = field(default=None, compare=False)
    """What was sampled; None for a sample that comes from a file."""

    def __repr__(self) -> str:
        run, said = self.replications, words(self.minimise)
        text = f"ReturnSample({len(run.leads):,} replications, seed {self.seed}; mean {said.amount}s "
        if run.is_whole is not None:
            return f"{text}not known, gaps alone: {', '.join(self.actions)})"
        means = [f"{name} {mean:.6g}" for name, mean in zip(self.actions, self.mean, strict=True)]
        return f"{text}{', '.join(means[:SHOWN_ACTIONS])}{', …' * (len(means) > SHOWN_ACTIONS)})"

    @property
    def returns(self) -> Floats:
        """Returns, ``[N, m]``."""
        if self.replications.is_whole is not None:
            raise NotKnownError(
                "these replications stopped where their branches had merged: gaps are known, returns are not; "
                "simulate(…) without gaps_only=True knows both"
            )
        return self.replications.returns

    @property
    def steps(self) -> int:
        """Steps of the longest replication."""
        return int(self.replications.steps.max())

    @property
    def truncation_bound(self) -> float:
        """Every return is within this of its untruncated value; without known rewards, as far as the sample tells."""
        seen = float(np.abs(self.returns).max())
        largest = seen if self.return_bound is None else self.return_bound
        return float(self.replications.left_out.max()) * largest

    @property
    def mean(self) -> Floats:
        """Sample means, ``[m]``."""
        return self.returns.mean(axis=0)

    @property
    def covariance(self) -> Floats:
        """Sample covariance, ``[m, m]``."""
        return np.atleast_2d(np.cov(self.returns, rowvar=False))

    def gap(self, action: Action, other: Action) -> GapSample:
        """How much more one action gives than another, or costs less: each by name, or as its environment calls it."""
        i, j = (checks.as_called("simulated action", each, self.actions, self.values) for each in (action, other))
        return self._gap(i, j)

    def gaps(self) -> list[GapSample]:
        """The gaps of all pairs, the earlier action first."""
        return [self._gap(i, j) for i, j in itertools.combinations(range(len(self.actions)), 2)]

    def best_action(self, *, confidence: float = 0.95, executor: Executor | str | None = None) -> BestAction:
        """Which action has the highest return (the lowest cost), how often, and how often several do.

        All intervals together hold with probability at least `confidence`, for any number of samples. Where the end of
        a table's simulation leaves open who is first, its replications are simulated once more, for longer.
        """
        from jointmdp.simulation.montecarlo.best_action import best_of_sample  # takes JAX along

        return best_of_sample(self, confidence, executor)

    def again(self, actions: Any = None, *, policy: Any = None, executor: Any = None) -> ReturnSample:
        """The same replications, on the same noise, with more alternatives: after those that are here already.

        Every number is what it would have been with them from the start.

        Args:
            actions: other first actions, or one; by default those that were simulated, for another policy.
            policy: another policy to follow after them; by default the one that was simulated.
            executor: as in `simulate`.
        """
        origin = self._origin
        if actions is None and policy is None:
            raise ModelError("what is to be asked again? give other first actions, or another policy")
        found, _ = _with(origin, self.values if actions is None else actions, policy)
        known = self.replications.returns
        sampled = _sampled(found, len(known), executor, self.minimise)
        # The compiled engine may go on for longer with another branch, and rounds as its program is made.
        same = sampled.replications.returns[:, : len(self.actions)]
        if hasattr(found.sampler, "replay") and not _are_close(known, same):
            raise ModelError(f"{origin.name} gave other returns when it was asked again{CAUSE}")
        return sampled

    def replay(self, index: int, action: Action, *, policy: Any = None) -> BranchPath:
        """What `action` does in one replication, step by step, whether it was simulated at first or not.

        Nothing is stored: the replication is run once more on its noise. One that was simulated must do again what it
        did.
        """
        known, origin = self.returns, self._origin
        i = checks.as_count("index", index, 0, len(known) - 1)
        found, (j,) = _with(origin, [action], policy)
        sampler: Any = found.sampler  # all samplers of first actions can be traced
        total = float(sampler(i, 1, found.sharing).returns[0, j])
        path: BranchPath = sampler.traced(i, found.sharing, j, total)
        sums = [float(found.discount ** np.arange(len(path.rewards)) @ path.rewards)]
        if j < len(self.actions):
            sums.append(float(known[i, j]))
        # Returns are held as that of branch 0 and a lead over it: they are off by rounding of the larger of the two.
        if not _are_close(sums, total, float(np.abs(known).max())):
            place = f"replication {i} of {origin.name} ({found.labels[j]})"
            raise ModelError(f"{place} gave {sums[-1]:.9g} at first and {total:.9g} when it was run again{CAUSE}")
        assert origin.simulator is not None
        return path._replace(actions=tuple(map(origin.simulator.action_value, path.actions)))

    def table(self) -> list[dict[str, Any]]:
        """One row per unordered pair of simulated actions: estimates with 95 % intervals."""
        return [gap.row() for gap in self.gaps()]

    def to_xarray(self) -> xarray.Dataset:
        """The returns as a labelled dataset with dimensions replication and action."""
        return as_dataset(
            {"returns": (("replication", "action"), self.returns)},
            {"action": list(self.actions)},
            {"seed": self.seed, "truncation_bound": self.truncation_bound, "direction": self.direction},
        )

    def figure(self) -> Figure:
        """The distribution of each action's return."""
        return self._drawn("returns")

    @property
    def _origin(self) -> Alternatives:
        if self.origin is None:
            raise ModelError("this sample comes from a file, which does not hold the simulator; call simulate(…) again")
        return self.origin

    def _gap(self, i: int, j: int) -> GapSample:
        found = self.replications.gap(*checks.subtracted(i, j, self.minimise), self.return_bound)
        whole = self.replications.whole.returns[:, [i, j]]
        alone = float(whole.var(axis=0, ddof=1).sum()) if len(whole) > 1 else math.nan
        a, b = self.actions[i], self.actions[j]
        return GapSample(a, b, *found, self.reach, self.seed, independent_variance=alone, minimise=self.minimise)


def _with(origin: Alternatives, actions: Any, policy: Any) -> tuple[Alternatives, list[int]]:
    """The same alternatives with more, as far as they are not there yet, and where those asked for stand.

    `actions` are several, or one; where actions are not numbered an array is one.
    """
    simulator, follows = origin.simulator, origin.policies[0] if policy is None else policy
    assert simulator is not None
    several = (list, tuple, range) if simulator.action_names is None else (list, tuple, range, np.ndarray)
    (label,) = as_named("policies", [follows], least=1)
    label = "another policy" if label.startswith("number ") else label
    then = "" if follows is origin.policies[0] else f", then {label}"
    branches, labels, places = list(zip(origin.actions, origin.policies, strict=True)), list(origin.labels), []
    for action in actions if isinstance(actions, several) else [actions]:
        chosen = simulator.action_index(action, origin.state)
        known = (j for j, (first, then) in enumerate(branches) if then is follows and np.array_equal(first, chosen))
        places.append(next(known, len(branches)))
        if places[-1] == len(branches):
            branches.append((chosen, follows))
            labels.append(simulator.action_label(chosen) + then)
    return first_actions_and_policies(simulator, branches, tuple(labels), origin.state, origin.settings), places


def _are_close(one: Any, other: Any, scale: float = 0.0) -> bool:
    return bool(np.allclose(one, other, rtol=ROUNDING, atol=ROUNDING * scale))
