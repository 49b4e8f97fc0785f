"""After the last step that was seen both branches go on as an ordinary pair: its moments, from a solution."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jointmdp.arrays import UNIT, Floats, Ints, float64
from jointmdp.errors import ModelError, Status
from jointmdp.evaluation import check_ends, evaluate
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.moments.iteration import report_missed
from jointmdp.moments.pair_solver import Solve
from jointmdp.moments.policy_pairs import PolicyBranch, shared_pairs
from jointmdp.moments.solving import solve_horizon
from jointmdp.moments.stored_moments import KnownMoments, StateMoments, difference_of
from jointmdp.solution.solution import Solution


class KnownReturns(NamedTuple):
    """A mean to count from, its certified error, and moments 0, 1, … about it with theirs; the first is taken as 0."""

    mean: Floats  # [m]
    mean_error: Floats  # [m]
    moments: Floats  # [order+1, m]
    errors: Floats  # [order+1, m]


class PairEnds(NamedTuple):
    """What follows the last step that was seen."""

    order: int
    gap: Callable[[Ints, Ints], KnownReturns]
    """Of the other branch in the first states and the seen one in the second."""
    other: Callable[[Ints], KnownReturns]
    """Of the other branch alone, to order 2."""
    seen: Callable[[Ints], KnownReturns]
    """Of the seen branch alone, to order 2."""


def _known(mean: Floats, mean_error: Floats, variance: Floats, variance_error: Floats) -> KnownReturns:
    one, none = np.ones_like(mean), np.zeros_like(mean)
    # The moment about a mean that is off by δ is larger than the variance by δ².
    errors = np.stack([none, mean_error, variance_error + mean_error**2])
    return KnownReturns(mean, mean_error, np.stack([one, none, np.maximum(variance, 0.0)]), errors)


def _alone(branch: PolicyBranch) -> Callable[[Ints], KnownReturns]:
    return lambda s: _known(branch.mean[s], branch.mean_errors[s], branch.variance[s], branch.variance_errors[s])


def moments_of_pairs(solution: Solution) -> StateMoments:
    """Those of all pairs of states, where the solution holds them."""
    if type(solution.moments) is not StateMoments:
        raise ModelError(
            f"hindsight needs the moments of all pairs of states, and of {solution.model.num_states:,} states these "
            "are not kept; give a smaller model, such as the part that can be reached (jointmdp.from_start)"
        )
    return solution.moments


def same_policy(model: JointMDP, policy: Floats, order: int, known: StateMoments | None) -> PairEnds:
    """Both branches follow one policy for ever, and may become one; `known` is of a solution that is at hand."""
    if known is None:
        known = moments_of_pairs(evaluate(model, policy, order=order))
    branch = PolicyBranch(model, policy)
    alone = _alone(branch)
    return PairEnds(order, _gap_of(known, branch.variance, branch.variance_errors), alone, alone)


def seen_is_over(model: JointMDP, other: Floats, policy: Floats) -> PairEnds:
    """The seen branch is paid nothing any more: only the other one goes on, and no pair has to be solved for."""
    check_ends(model, other)
    alone = _alone(PolicyBranch(model, other))
    return PairEnds(2, lambda y, x: alone(y), alone, _alone(PolicyBranch(model, policy)))


def nothing_follows(order: int) -> PairEnds:
    """The last step was the last that counts."""

    def zeros(s: Ints, order: int = 2) -> KnownReturns:
        none = np.zeros((2, order + 1, len(s)))
        none[0, 0] = 1.0
        return KnownReturns(np.zeros(len(s)), np.zeros(len(s)), *none)

    return PairEnds(order, lambda y, x: zeros(y, order), zeros, zeros)


def over_horizon(model: JointMDP, policy: Floats, order: int, left: int) -> PairEnds:
    """Both follow one policy for so many steps more."""
    with float64():
        found = solve_horizon(model, policy, left + 1, order).moments  # which holds what follows the first of them
    v, B = np.asarray(found.v), np.asarray(found.B)
    off = found.errors.values.alone
    variance_off = np.full(len(v), float(found.errors.pairs.max()))

    def alone(s: Ints) -> KnownReturns:
        return _known(v[s], off[s], B[s], variance_off[s])

    return PairEnds(order, _gap_of(found, B, variance_off), alone, alone)


def _gap_of(known: StateMoments, B: Floats, B_errors: Floats) -> Callable[[Ints, Ints], KnownReturns]:
    values, v, D = known.errors.values, np.asarray(known.v), np.asarray(known.D)
    is_shared = known.model.sharing != "none"

    def gap(y: Ints, x: Ints) -> KnownReturns:
        offset = values.offset[y] - values.offset[x]
        size = np.abs(v[y]) + np.abs(v[x]) + np.abs(values.offset[y]) + np.abs(values.offset[x])
        mean = np.where(y == x, 0.0, v[y] - v[x] + offset)
        error = values.between(y, x) + np.where(y == x, 0.0, 4 * UNIT * size)
        if known.higher is not None:
            higher = known.higher
            if is_shared:
                moments, errors = higher.gaps[:, y, x].copy(), higher.errors[:, y, x].copy()
            else:
                one, two = (KnownMoments(higher.branch[:, s], higher.errors[:, s, 0]) for s in (y, x))
                moments, errors = difference_of(one, two)
            moments[0], moments[1], errors[0], errors[1] = 1.0, 0.0, 0.0, error
            return KnownReturns(mean, error, moments, errors)
        if is_shared:
            return _known(mean, error, D[y, x], known.errors.pairs[y, x])
        total = B[y] + B[x]
        return _known(mean, error, total, B_errors[y] + B_errors[x] + 4 * UNIT * total)

    return gap


def two_policies(model: JointMDP, other: Floats, seen: Floats, method: Solve) -> PairEnds:
    """The branches follow a policy each, draw their actions independently and never become one."""
    for policy in (other, seen):
        check_ends(model, policy)
    one, two = PolicyBranch(model, other), PolicyBranch(model, seen)
    shared = shared_pairs(one, two, method)
    if not shared.is_reached:
        report_missed(Status.STEP_LIMIT, "two policies", method.throw)

    def gap(y: Ints, x: Ints) -> KnownReturns:
        offset = one.single.state.offset[y] - two.single.state.offset[x]
        mean = one.relative_mean[y] - two.relative_mean[x] + offset
        apart = one.variance[y] + two.variance[x]
        covariance = np.zeros(len(y)) if model.sharing == "none" else shared.covariance[y, x]
        off = shared.shares[0][y] + shared.shares[1][x]
        error = one.variance_errors[y] + two.variance_errors[x] + 2 * off + 8 * UNIT * (apart + 2 * np.abs(covariance))
        return _known(mean, one.mean_errors[y] + two.mean_errors[x], apart - 2 * covariance, error)

    return PairEnds(2, gap, _alone(one), _alone(two))
