"""Which action is best under shared noise, and how often: several actions compared at once.

With ``Z(s,a)`` the returns of the chosen actions and ``M = max_a Z(s,a)``, for every action

    alone(a) = P(Z(s,a) = M, no other does)        tied(a) = P(Z(s,a) = M, some other does too)
    probability(a) = E[ 1{Z(s,a) = M} / #{b: Z(s,b) = M} ],     tie = 1 − Σ_a alone(a)

so that the probabilities sum to 1. Two actions have a certified law of their difference; more are simulated jointly.

A simulation ends after finitely many steps in float64, the returns do not. Two branches that are one, or can never
differ again, keep the order they have; all others may still move by what is left of the future. Wherever that leaves
an order open, a sample counts as both: the fewest samples for which a statement is certain make its lower end, the
most for which it is possible its upper end. The unknown true counts lie between, so nothing is lost of the guarantee.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from jointmdp import checks
from jointmdp.errors import ModelError, NotKnownError
from jointmdp.executors import Executor
from jointmdp.intervals import Interval
from jointmdp.law.solution_laws import Laws, Limits
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.policies import as_policy
from jointmdp.model.tables import ActionLike, StateLike
from jointmdp.montecarlo import confidence_intervals
from jointmdp.montecarlo.alternatives import SimulationSettings
from jointmdp.montecarlo.table_winners import simulate_tally
from jointmdp.montecarlo.winner_counts import best_interval
from jointmdp.report import aligned
from jointmdp.solution.gap import MEMORY_LIMIT, SECONDS, TOLERANCE

LIMITS = Limits(MEMORY_LIMIT, SECONDS)
SUM_SLACK = 2.0**-50  # rounding when one probability is 1 less others


@dataclass(frozen=True, eq=False, repr=False)
class BestAction:
    """How probably each action has the highest return of all, with intervals."""

    state: str
    actions: tuple[str, ...]
    probability: list[float]
    """P(highest return); equal firsts share it equally, so that the sum is 1."""
    intervals: list[Interval]
    """Of `probability`."""
    alone: list[float]
    """P(higher than all others)."""
    alone_intervals: list[Interval]
    tied: list[float]
    """P(highest, together with at least one other)."""
    tied_intervals: list[Interval]
    tie: float
    """P(the highest return belongs to more than one action)."""
    tie_interval: Interval
    mean: list[float]
    """Mean returns: simulated, or exact where a solution was at hand."""
    is_certified: bool
    """Whether the intervals are guaranteed bounds; otherwise they hold together with probability `confidence`."""
    confidence: float
    """1 where certified."""
    method: str
    num_samples: int = 0
    """0 where nothing was simulated."""
    seed: int | None = None
    undecided: float = 0.0
    """Fraction of samples in which the end of the simulation leaves open who is first; the intervals allow for it."""

    def table(self) -> list[dict[str, Any]]:
        """One row per action."""
        names = ("action", "probability", "interval", "alone", "alone_interval", "tied", "tied_interval", "mean")
        columns = (self.actions, self.probability, self.intervals, self.alone, self.alone_intervals)
        rows = zip(*columns, self.tied, self.tied_intervals, self.mean, strict=True)
        return [dict(zip(names, row, strict=True)) for row in rows]

    def __repr__(self) -> str:
        unit = 10_000 if self.is_certified else 1_000

        def both(value: float, found: Interval) -> str:
            # Ends are rounded outwards: the interval printed holds the one found.
            numbers = (value, math.floor(found.lower * unit) / unit, math.ceil(found.upper * unit) / unit)
            return "{} [{}, {}]".format(*(f"{x:.{len(str(unit)) - 1}f}" for x in numbers))

        rows = [["action", "best", "alone", "tied", "mean"]]
        for r in self.table():
            cells = [both(r["probability"], r["interval"]), both(r["alone"], r["alone_interval"])]
            rows.append([r["action"], *cells, both(r["tied"], r["tied_interval"]), f"{r['mean']:.6g}"])
        title = f"Which action gives most in {self.state}? (best = alone, or tied and the first place shared equally)"
        tie = f"More than one is first with probability {both(self.tie, self.tie_interval)}."
        return "\n".join([title, *aligned(rows), tie, f"{self.method}."])


def best_action(  # many parameters: a front door, one keyword for each setting
    model: JointMDP,
    policy: ArrayLike,
    state: StateLike,
    actions: Sequence[ActionLike] | None = None,
    *,
    num_samples: int = 10_000,
    seed: int = 0,
    horizon: int | None = None,
    confidence: float = 0.95,
    executor: Executor | str | None = None,
) -> BestAction:
    """Which of the actions (by default all available ones) has the highest return, by joint simulation.

    All intervals together hold with probability at least `confidence`, for any number of samples.
    """
    s, chosen = _chosen(model, state, actions)
    law = as_policy(model, policy)
    num_samples = checks.as_count("num_samples", num_samples, least=2)
    confidence = checks.as_fraction("confidence", confidence)
    tally, run = simulate_tally(model, law, s, chosen, num_samples, SimulationSettings(seed, horizon=horizon), executor)
    steps, mean, m = int(run.steps.max()), run.returns.mean(axis=0), len(chosen)
    error = (1 - confidence) / (4 * m + 1)
    alone, tied = (
        [confidence_intervals.proportion(row, num_samples, error) for row in counts.T] for counts in tally.counts[:2]
    )
    shares = [best_interval(tally, i, error) for i in range(m)]
    *alone, tie = _sum_to_one([*alone, confidence_intervals.proportion(tally.tie, num_samples, error)])
    method = (
        f"All intervals hold together with probability at least {confidence:g}: {num_samples:,} joint simulations of "
        f"{steps:,} steps (seed {seed}), Clopper–Pearson and, for shared first places, empirical Bernstein intervals "
        f"at {error:.2g} each"
    )
    if m == 1:
        alone, shares, tied, tie = [Interval(1.0, 1.0)], [Interval(1.0, 1.0)], [Interval(0.0, 0.0)], Interval(0.0, 0.0)
        method = "The only action is the best one, for certain"
    share, is_alone, is_tied = tally.likeliest.tolist()
    return BestAction(
        model.state_label(s),
        tuple(model.action_label(a) for a in chosen),
        *(share, _sum_to_one(shares), is_alone, alone, is_tied, tied),
        tie=tally.is_tie,
        tie_interval=tie,
        mean=mean.tolist(),
        is_certified=m == 1,
        confidence=1.0 if m == 1 else confidence,
        method=method,
        num_samples=num_samples,
        seed=seed,
        undecided=tally.undecided,
    )


def certified_best(
    laws: Laws,
    state: StateLike,
    action: ActionLike,
    other: ActionLike,
    *,
    tolerance: float = TOLERANCE,
    limits: Limits = LIMITS,
) -> BestAction:
    """Which of two actions has the higher return, from the certified law of their gap ``G``.

    The first is best with probability ``P(G>0) + P(G=0)/2``. Intervals are guaranteed; they are at most `tolerance`
    wide where memory and the model allow it.
    """
    model = laws.branches.model
    s, (a, b) = _chosen(model, state, (action, other))
    tolerance = checks.as_positive("tolerance", tolerance)
    law = laws.gap_law((s, a, b), lambda law: max(law.superiority().width, law.tie().width), tolerance, limits)
    signs = _sum_to_one([law.superiority(), law.tie(), law.inferiority()])
    above, level, below = _point(signs)
    share = _split(*signs)
    return BestAction(
        model.state_label(s),
        (model.action_label(a), model.action_label(b)),
        *([above + level / 2, below + level / 2], [share, Interval(1 - share.upper, 1 - share.lower)]),
        *([above, below], [signs[0], signs[2]], [level, level], [signs[1], signs[1]]),
        tie=level,
        tie_interval=signs[1],
        mean=laws.mean[s, [a, b]].tolist(),
        is_certified=True,
        confidence=1.0,
        method=f"Every interval is guaranteed: certified law of the difference, on {law.pairs:,} pairs of states",
    )


def best_of(
    laws: Laws,
    state: StateLike,
    actions: Sequence[ActionLike] | None = None,
    *,
    tolerance: float = TOLERANCE,
    limits: Limits = LIMITS,
    num_samples: int = 10_000,
    seed: int = 0,
    confidence: float = 0.95,
) -> BestAction:
    """Which action is best, given a solution's laws: certified for two actions where that is sharp, else simulated.

    A certified answer counts as sharp when its intervals are no wider than `tolerance`, or than ``1/√N``, about what N
    samples would leave. Means are the solution's. The laws keep what they have computed for the next question.
    """
    model = laws.branches.model
    s, chosen = _chosen(model, state, actions)
    if len(chosen) == 2:
        sharp = max(tolerance, 1 / math.sqrt(checks.as_count("num_samples", num_samples, least=2)))
        with suppress(NotKnownError):
            found = certified_best(laws, s, chosen[0], chosen[1], tolerance=tolerance, limits=limits)
            if max(found.alone_intervals[0].width, found.tie_interval.width) <= sharp:
                return found
    settings: dict[str, Any] = {"num_samples": num_samples, "seed": seed, "confidence": confidence}
    found = best_action(model, laws.branches.first, s, chosen, horizon=laws.horizon, **settings)
    return replace(found, mean=laws.mean[s, chosen].tolist())


def _chosen(model: JointMDP, state: StateLike, actions: Sequence[ActionLike] | None) -> tuple[int, list[int]]:
    s = model.state_index(state)
    if actions is None:
        return s, [int(a) for a in np.flatnonzero(model.available[s])]
    if isinstance(actions, str) or not isinstance(actions, Sequence | np.ndarray) or len(actions) == 0:
        raise ModelError(f"actions must be a sequence of at least one action, not {actions!r}")
    chosen = [model.action_index(action, s) for action in actions]
    for i, a in enumerate(chosen):
        if a in chosen[:i]:
            raise ModelError(f"{model.action_label(a)} is asked for twice; an action always ties with itself")
    return s, chosen


def _within(found: Interval, lower: float, upper: float) -> Interval:
    return Interval(max(found.lower, lower), min(found.upper, upper))


def _sum_to_one(found: list[Interval]) -> list[Interval]:
    """What is left of each interval when the numbers in them sum to 1."""
    low, high = sum(x.lower for x in found), sum(x.upper for x in found)
    return [_within(x, 1 - (high - x.upper) - SUM_SLACK, 1 - (low - x.lower) + SUM_SLACK) for x in found]


def _point(found: list[Interval]) -> list[float]:
    """One number in each interval, with sum 1."""
    left, room = 1 - sum(x.lower for x in found), sum(x.width for x in found)
    return [x.lower + (left * x.width / room if room > 0 else 0.0) for x in found]


def _split(above: Interval, level: Interval, below: Interval) -> Interval:
    """The range of P(G>0) + P(G=0)/2: a linear program, whose dual has three vertices at either end."""

    def most(up: Interval, down: Interval) -> float:
        return min(up.upper + level.upper / 2, (1 + up.upper - down.lower) / 2, 1 - down.lower - level.lower / 2)

    return _within(Interval(0.0, 1.0), 1 - most(below, above) - SUM_SLACK, most(above, below) + SUM_SLACK)
