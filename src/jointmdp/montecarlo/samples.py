"""Recursive-pair simulation: the judge of everything that is computed.

Branches start in one state with different actions. At every step branches that share their luck (same state, or
always under ``sharing="time"``) see the same scenario; each branch draws its next action by itself; branches whose
state and action coincide are one branch from then on (never under ``"none"``).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike

from jointmdp import checks
from jointmdp.arrays import Floats, float64
from jointmdp.errors import ModelError
from jointmdp.intervals import Interval
from jointmdp.model.joint_mdp import ActionLike, JointMDP, StateLike
from jointmdp.model.policies import as_policy
from jointmdp.montecarlo import branch_engine, confidence_intervals
from jointmdp.progress import Meter


@dataclass(frozen=True, eq=False)
class ReturnSample:
    """Joint samples of the returns of several actions in one state."""

    actions: tuple[str, ...]
    returns: Floats = field(repr=False)  # [N, m]
    truncation_bound: float
    """Every return is within this of its untruncated value."""
    steps: int
    seed: int
    leads: Floats = field(repr=False)  # [N, m] returns minus those of the first action

    @property
    def mean(self) -> Floats:
        """Sample means, ``[m]``."""
        return self.returns.mean(axis=0)

    @property
    def covariance(self) -> Floats:
        """Sample covariance, ``[m, m]``."""
        return np.atleast_2d(np.cov(self.returns, rowvar=False))

    def gap(self, i: int, j: int) -> GapSample:
        """The samples of the gap between the i-th and the j-th of the simulated actions."""
        gaps = self.leads[:, i] - self.leads[:, j]
        return GapSample(self.actions[i], self.actions[j], gaps, 2 * self.truncation_bound, self.steps, self.seed)

    def table(self) -> list[dict[str, Any]]:
        """One row per unordered pair of simulated actions: means and variances with 95 % intervals."""
        pairs = itertools.combinations(range(len(self.actions)), 2)
        return [
            {
                "action": gap.action,
                "other": gap.other,
                "mean": gap.mean,
                "mean_interval": gap.mean_interval,
                "variance": gap.variance,
                "variance_interval": gap.variance_interval,
                "superiority": gap.superiority,
                "tie": gap.tie,
            }
            for gap in (self.gap(i, j) for i, j in pairs)
        ]


@dataclass(frozen=True, eq=False)
class GapSample:
    """Samples of ``Z(state, action) − Z(state, other)``."""

    action: str
    other: str
    gaps: Floats = field(repr=False)  # [N]
    truncation_bound: float
    """Every sample is within this of its untruncated value; intervals are widened by it."""
    steps: int
    seed: int
    method: str = field(default=confidence_intervals.METHOD, repr=False)

    def __repr__(self) -> str:
        return (
            f"GapSample({self.action} − {self.other}: {self.mean:.6g} ± {self.std:.6g} from {len(self.gaps):,} pairs, "
            f"mean in {self.mean_interval})"
        )

    @property
    def mean(self) -> float:
        """Sample mean."""
        return float(self.gaps.mean())

    @property
    def variance(self) -> float:
        """Unbiased sample variance."""
        return float(self.gaps.var(ddof=1))

    @property
    def std(self) -> float:
        """Sample standard deviation."""
        return math.sqrt(self.variance)

    @property
    def mean_standard_error(self) -> float:
        """Standard error of `mean`."""
        return self.std / math.sqrt(len(self.gaps))

    @property
    def variance_standard_error(self) -> float:
        """Standard error of `variance`, from the fourth central moment."""
        n = len(self.gaps)
        squares = (self.gaps - self.gaps.mean()) ** 2
        return float(math.sqrt(max(squares.var() + 2 * squares.mean() ** 2 / (n - 1), 0.0) / n))

    @property
    def mean_interval(self) -> Interval:
        """95 % confidence interval of the mean."""
        found = confidence_intervals.mean_interval(self.gaps)
        return Interval(found.lower - self.truncation_bound, found.upper + self.truncation_bound)

    @property
    def variance_interval(self) -> Interval:
        """95 % confidence interval of the variance."""
        found = confidence_intervals.variance_interval(self.gaps)
        # A shift of every sample by at most t moves a standard deviation by at most t.
        low, high = (math.sqrt(end) for end in found)
        bound = self.truncation_bound
        return Interval(max(0.0, low - bound) ** 2, (high + bound) ** 2)

    @property
    def superiority(self) -> float:
        """Fraction of samples above 0."""
        return float(np.mean(self.gaps > 0))

    @property
    def tie(self) -> float:
        """Fraction of samples that are exactly 0."""
        return float(np.mean(self.gaps == 0))


def simulate_gap(
    model: JointMDP,
    policy: ArrayLike,
    state: StateLike,
    action: ActionLike,
    other: ActionLike,
    *,
    num_samples: int = 10_000,
    seed: int = 0,
    horizon: int | None = None,
) -> GapSample:
    """Independent samples of the gap between two actions; stops early once every pair has merged."""
    run = _simulate(model, policy, state, (action, other), num_samples, seed, horizon, until_merged=True)
    return run.gap(0, 1)


def simulate_gaps(
    model: JointMDP,
    policy: ArrayLike,
    state: StateLike,
    actions: Sequence[ActionLike] | None = None,
    *,
    num_samples: int = 10_000,
    seed: int = 0,
    horizon: int | None = None,
) -> dict[tuple[int, int], GapSample]:
    """Samples of the gaps of all pairs of actions of a state, from one joint simulation; keys are action indices."""
    s = model.state_index(state)
    chosen = _available(model, s) if actions is None else [model.action_index(action, s) for action in actions]
    run = _simulate(model, policy, state, chosen, num_samples, seed, horizon, until_merged=True)
    pairs = itertools.combinations(range(len(chosen)), 2)
    return {(chosen[i], chosen[j]): run.gap(i, j) for i, j in pairs}


def _available(model: JointMDP, state: int) -> list[int]:
    return [int(action) for action in np.flatnonzero(model.available[state])]


def simulate_returns(
    model: JointMDP,
    policy: ArrayLike,
    state: StateLike,
    actions: Sequence[ActionLike] | None = None,
    *,
    num_samples: int = 10_000,
    seed: int = 0,
    horizon: int | None = None,
) -> ReturnSample:
    """Joint samples of the returns of several actions (by default all available ones): every pair at once."""
    if actions is None:
        actions = _available(model, model.state_index(state))
    return _simulate(model, policy, state, actions, num_samples, seed, horizon, until_merged=False)


def _simulate(
    model: JointMDP,
    policy: ArrayLike,
    state: StateLike,
    actions: Sequence[ActionLike],
    num_samples: int,
    seed: int,
    horizon: int | None,
    until_merged: bool,
) -> ReturnSample:
    chosen = as_policy(model, policy)
    s = model.state_index(state)
    first = [model.action_index(action, s) for action in actions]
    if not first:
        raise ModelError("no actions to simulate")
    num_samples = checks.as_count("num_samples", num_samples, least=2)
    seed = checks.as_count("seed", seed, least=0, most=2**63 - 1)
    limit = None if horizon is None else checks.as_count("horizon", horizon)
    if limit is None and model.discount >= 1:
        raise ModelError("discount is 1: simulating an endless future needs a discount below 1, or a horizon")
    with float64(), Meter("simulating pairs") as meter:
        world = branch_engine.table_world(model, chosen)
        found = branch_engine.start(s, first, num_samples, model.sharing)
        noise_key, policy_key = jax.random.split(jax.random.key(seed))
        bounds = (model.discount, model.reward_bound)
        done = 0
        while True:
            count = branch_engine.CHUNK if limit is None else min(branch_engine.CHUNK, limit - done)
            found, is_closed = branch_engine.advance(
                world, found, noise_key, policy_key, count, model.sharing, until_merged
            )
            done += count
            if bool(is_closed) or done == limit:
                tail = 0.0
                break
            if limit is None:
                tail, least = (
                    branch_engine.tail(*bounds, done),
                    branch_engine.LEAST_TAIL * branch_engine.tail(*bounds, 0),
                )
                meter.update(0.0, f"step {done}")
                if tail <= max(branch_engine.TAIL_FRACTION * branch_engine.least_error(found, until_merged), least):
                    break
        lead = np.asarray(found.lead)
        total = np.asarray(found.total)
    return ReturnSample(
        tuple(model.action_label(a) for a in first),
        total[:, None] + lead,
        tail,
        int(found.step),
        seed,
        lead,
    )
