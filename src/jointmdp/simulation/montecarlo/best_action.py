"""Which action is best under shared noise, and how often: several actions compared at once.

With ``Z(s,a)`` the returns of the chosen actions and ``M = max_a Z(s,a)``, for every action

    alone(a) = P(Z(s,a) = M, no other does)        tied(a) = P(Z(s,a) = M, some other does too)
    probability(a) = E[ 1{Z(s,a) = M} / #{b: Z(s,b) = M} ],     tie = 1 − Σ_a alone(a)

so that the probabilities sum to 1; of costs, ``M`` is the lowest. Two actions have a certified law of their difference;
more are simulated jointly.

A simulation ends after finitely many steps in float64, the returns do not. Two branches that are one, or can never
differ again, keep the order they have; all others may still move by what is left of the future. Wherever that leaves
an order open, a sample counts as both: the fewest samples for which a statement is certain make its lower end, the
most for which it is possible its upper end. The unknown true counts lie between, so nothing is lost of the guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from jointmdp.exact.law.gap_law import Laws
from jointmdp.exact.law.pair_graph import GapBranches, equal_pairs
from jointmdp.exact.solution.gap import TOLERANCE
from jointmdp.exact.solution.solution import BestAction
from jointmdp.ground import checks
from jointmdp.ground.arrays import Bools, Floats, Ints
from jointmdp.ground.errors import ModelError, NotKnownError
from jointmdp.ground.intervals import Interval
from jointmdp.ground.limits import DEFAULT_LIMITS, Limits
from jointmdp.model.gumbel_max import GumbelModel
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.tables import ActionLike, StateLike
from jointmdp.simulation.executors import Executor, opened
from jointmdp.simulation.montecarlo import confidence_intervals
from jointmdp.simulation.montecarlo.alternatives import Alternatives, SimulationSettings, first_actions
from jointmdp.simulation.montecarlo.compiled_branches import BlockSampler
from jointmdp.simulation.montecarlo.samples import Replications
from jointmdp.simulation.montecarlo.samples import sample as sampled
from jointmdp.simulation.montecarlo.table_dynamics import as_table_policy
from jointmdp.simulation.simulators.table_simulator import TableSimulator

BLOCK = 2**22  # comparisons of two branches made at once


class Tally(NamedTuple):
    """Where each statement holds; axes of length 2 are (for certain, possibly)."""

    counts: Ints  # [3, 2, m] alone, tied, either
    tie: Ints  # [2]
    shares: Floats  # [2, m, N] bounds of 1{first} / #firsts
    likeliest: Floats  # [3, m] share, alone and tied on the average, ignoring the rest of the future and all rounding
    is_tie: float  # the same
    undecided: float


def count(run: Replications, ahead: Floats, never_differs: Callable[[slice], Bools] | None = None) -> Tally:
    """Compare all branches of all samples.

    Two of them are apart by their leads' difference, give or take their rounding and, unless they are one, are over or
    can never differ again (`never_differs` of some samples, ``[n, m, m]``), what is `ahead` of them, ``[N]``. Leads of
    branches that never differed agree to the last bit.
    """
    # Replications last: NumPy adds up long axes many times as quickly as short ones.
    lead, rounding, leaders = (np.ascontiguousarray(part.T) for part in (run.leads, run.rounding, run.leaders))
    m, n = lead.shape
    size, same = max(1, BLOCK // m**2), np.eye(m, dtype=bool)[:, :, None]
    parts: list[tuple[Bools, Bools, Bools, Floats]] = []
    for block in (slice(begin, begin + size) for begin in range(0, n, size)):
        gap = lead[:, None, block] - lead[None, :, block]
        closed = (leaders[:, None, block] == leaders[None, :, block]) | (run.left_out[block] == 0)
        closed = closed if never_differs is None else closed | np.moveaxis(never_differs(block), 0, 2)
        level = closed & (gap == 0)
        rounded = rounding[:, None, block] + rounding[None, :, block]
        room = np.where(level, 0.0, np.where(closed, rounded, rounded + ahead[block]))
        near = np.abs(gap) <= room
        alone = np.stack([((gap > room) | same).all(axis=1), ((gap > -room) | same).all(axis=1)])
        first = np.stack([((gap > room) | level).all(axis=1), (gap >= -room).all(axis=1)])
        tied = first & np.stack([(level & ~same).any(axis=1), (near & ~same).any(axis=1)])
        parts.append((alone, tied, first, first / np.stack([near.sum(axis=1), level.sum(axis=1)])))
    alone, tied, first, shares = (np.concatenate(part, axis=2) for part in zip(*parts, strict=True))
    top = lead >= lead.max(axis=0) - rounding.max(axis=0)
    firsts = top.sum(axis=0)
    return Tally(
        np.stack([alone.sum(axis=2), tied.sum(axis=2), first.sum(axis=2)]),
        tied.any(axis=1).sum(axis=1),
        shares,
        np.stack([top / firsts, top & (firsts == 1), top & (firsts > 1)]).mean(axis=2),
        float(np.mean(firsts > 1)),
        float(np.mean((shares[0] != shares[1]).any(axis=0))),
    )


def best_interval(tally: Tally, i: int, error: float) -> Interval:
    """Confidence interval of P(the i-th is first), where equal firsts share the first place; missed with `error`."""
    n = tally.shares.shape[2]
    alone, first = (confidence_intervals.proportion(tally.counts[kind, :, i], n, error) for kind in (0, 2))
    found = confidence_intervals.bounded_mean(tally.shares[:, i], error)
    return Interval(max(found.lower, alone.lower), min(found.upper, first.upper))


PAIR_LIMIT = 2**21  # moves of pairs of states, up to which every pair that can never differ is found


@dataclass(frozen=True)
class Orders:
    """The order of branches of a table's replications."""

    model: JointMDP
    policy: Floats
    minimise: bool = False

    @classmethod
    def of(cls, found: Alternatives, minimise: bool = False) -> Orders | None:
        """Those of first actions of a table that follow one policy; None for all else."""
        one, simulator = found.policies[0], found.simulator
        if not isinstance(found.sampler, BlockSampler) or not isinstance(simulator, TableSimulator):
            return None
        policy = None
        if all(each is one for each in found.policies):
            policy = as_table_policy(simulator.model, one, found.settings.horizon)
        return None if policy is None else cls(simulator.model, policy, minimise)

    def simulated(self, found: Alternatives, num_samples: int, executor: Executor | str | None) -> Replications:
        """Replications, each block of which goes on while a sample in it is open."""
        assert isinstance(found.sampler, BlockSampler)
        sampler = replace(found.sampler, is_enough=self.are_decided)
        with opened(executor) as workers:
            return sampled(sampler, 0, num_samples, found.sharing, workers, title="simulating who is best")

    def are_decided(self, run: Replications) -> bool:
        """Whether no sample is open."""
        return self.tally(run).undecided == 0

    def tally(self, run: Replications) -> Tally:
        """Compare all branches of all samples."""
        run = run.mirrored() if self.minimise else run
        g, paid = self.model.discount, self.model.rewards[self.model.is_possible]
        # What is left of two futures differs by at most so much.
        ahead = run.left_out * float(np.ptp(paid)) / (1 - g) if g < 1 else run.left_out
        # Pairs of branches that pay the same for ever whatever happens are found where what is left of the futures has
        # few enough states; otherwise they stay open.
        model, leader, state = self.model, run.leaders, run.states
        assert state is not None
        is_open = (leader != leader[:, :1]).any(axis=1) & (run.left_out > 0)
        size, m = model.num_states, state.shape[1]
        codes = np.unique(state[is_open][:, :, None] * size + state[is_open][:, None, :]) if m else np.zeros(0, int)
        if len(codes) == 0:
            return count(run, ahead)
        both = GapBranches(model, self.policy, self.policy, True)
        try:
            equal = codes[equal_pairs(both, *np.divmod(codes, size), PAIR_LIMIT)]
        except ModelError:
            return count(run, ahead)

        def never_differs(block: slice) -> Bools:
            at = state[block]
            return np.isin(at[:, :, None] * size + at[:, None, :], equal)

        return count(run, ahead, never_differs)


SUM_SLACK = 2.0**-50  # rounding when one probability is 1 less others


def best_of_sample(sample: Any, confidence: float, executor: Executor | str | None = None) -> BestAction:
    """Which branch of a `ReturnSample` has the highest return, or the lowest cost, by joint simulation.

    All intervals together hold with probability at least `confidence`, for any number of samples. Of a table, whose
    `origin` says what was sampled, the replications are simulated for longer while an order is open.
    """
    confidence, origin, minimise = checks.as_fraction("confidence", confidence), sample.origin, sample.minimise
    check_distinct(sample.actions)
    run = sample.replications._replace(returns=sample.returns)  # raises where these are not known
    orders, place = None if origin is None else Orders.of(origin, minimise), "the state that was simulated"
    if orders is None or origin is None:
        largest = float(np.abs(run.returns).max()) if sample.return_bound is None else sample.return_bound
        tally = count(run.mirrored() if minimise else run, 2 * run.left_out * largest)
    else:
        tally = orders.tally(run)
        if tally.undecided > 0:
            run = orders.simulated(origin, len(run.leads), executor)
            tally = orders.tally(run)
    if origin is not None and origin.state is None:
        place = f"a starting state of {origin.name}"
    elif origin is not None:
        table = origin.simulator
        place = table.model.state_label(origin.state) if isinstance(table, TableSimulator) else origin.name
    return _best(tally, run, sample.actions, place, sample.seed, confidence, minimise)


def _best(
    tally: Tally, run: Replications, labels: tuple[str, ...], place: str, seed: int, confidence: float, minimise: bool
) -> BestAction:
    """The answer that a simulation gives."""
    (num_samples, m), steps = run.leads.shape, int(run.steps.max())
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
        place,
        labels,
        *(share, _about(share, _sum_to_one(shares))),
        *(is_alone, _about(is_alone, alone), is_tied, _about(is_tied, tied)),
        tie=tally.is_tie,
        tie_interval=tie.of(tally.is_tie),
        mean=run.returns.mean(axis=0).tolist(),
        is_certified=m == 1,
        confidence=1.0 if m == 1 else confidence,
        method=method,
        num_samples=num_samples,
        seed=seed,
        undecided=tally.undecided,
        minimise=minimise,
    )


def _about(estimates: list[float], intervals: list[Interval]) -> list[Interval]:
    return [interval.of(estimate) for estimate, interval in zip(estimates, intervals, strict=True)]


def certified_best(
    laws: Laws,
    state: StateLike,
    action: ActionLike,
    other: ActionLike,
    *,
    tolerance: float = TOLERANCE,
    limits: Limits = DEFAULT_LIMITS,
    minimise: bool = False,
) -> BestAction:
    """Which of two actions has the higher return (lower cost), from the certified law of their gap ``G``.

    The first is best with probability ``P(G>0) + P(G=0)/2``. Intervals are guaranteed; they are at most `tolerance`
    wide where memory and the model allow it.
    """
    model = laws.branches.model
    s, (a, b) = _chosen(model, state, (action, other))
    tolerance = checks.as_positive("tolerance", tolerance)
    query = (s, *checks.subtracted(a, b, minimise))
    law = laws.gap_law(query, lambda law: max(law.superiority().width, law.tie().width), tolerance, limits)
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
        minimise=minimise,
    )


def best_of(  # many parameters: those of `Solution.best_action`
    laws: Laws,
    state: StateLike,
    actions: Sequence[ActionLike] | None = None,
    *,
    tolerance: float = TOLERANCE,
    limits: Limits = DEFAULT_LIMITS,
    num_samples: int = 10_000,
    seed: int = 0,
    confidence: float = 0.95,
    minimise: bool = False,
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
            best = certified_best(laws, s, chosen[0], chosen[1], tolerance=tolerance, limits=limits, minimise=minimise)
            if max(best.alone_intervals[0].width, best.tie_interval.width) <= sharp:
                return best
    found = first_actions(model, laws.branches.first, s, chosen, SimulationSettings(seed, horizon=laws.horizon))
    orders = Orders.of(found, minimise)
    assert orders is not None, "a solution has a table and a policy"
    run = orders.simulated(found, checks.as_count("num_samples", num_samples, least=2), None)
    confidence = checks.as_fraction("confidence", confidence)
    best = _best(orders.tally(run), run, found.labels, model.state_label(s), seed, confidence, minimise)
    is_drawn = isinstance(model, GumbelModel) and not model.has_exact_tables
    method = best.method + "; of a table that was drawn for Gumbel noise" * is_drawn
    return replace(best, mean=laws.mean[s, chosen].tolist(), method=method)


def _chosen(model: JointMDP, state: StateLike, actions: Sequence[ActionLike] | None) -> tuple[int, list[int]]:
    s = model.state_index(state)
    if actions is None:
        return s, [int(a) for a in np.flatnonzero(model.available[s])]
    if isinstance(actions, str) or not isinstance(actions, Sequence | np.ndarray) or len(actions) == 0:
        raise ModelError(f"actions must be a sequence of at least one action, not {actions!r}")
    chosen = [model.action_index(action, s) for action in actions]
    check_distinct([model.action_label(a) for a in chosen])
    return s, chosen


def check_distinct(labels: Sequence[str]) -> None:
    """Raise where an alternative is there twice."""
    for i, label in enumerate(labels):
        if label in labels[:i]:
            raise ModelError(f"{label} is asked for twice; an alternative always ties with itself")


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
