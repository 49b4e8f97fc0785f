"""Moments of gaps and returns given what was seen: backward steps from the end, no linear solve.

After the last step that was seen both branches go on as an ordinary pair, whose moments come from a solution. Before
it, with ``d = R − r + γ m(child) − m(node)``, the moments about the mean m of a node are

    h_k = Σ_moves weight · Σ_j C(k,j) d^{k−j} γʲ h_j(child),        h_0 = 1,  h_1 = 0,

and where both branches are one, the gap is 0 and ``h_j`` with it. Errors go the same way: those of what follows by the
same weights, and rounding by the size of what is added.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jointmdp.exact.hindsight.other_branch import ONE, OtherBranch, Walk
from jointmdp.exact.hindsight.scenario_posteriors import SeenPaths
from jointmdp.exact.hindsight.trajectory import UNSEEN, SeenSteps
from jointmdp.exact.moments.certificates import Status, report_missed
from jointmdp.exact.moments.default_solver import PolicyBranch, policies_gap, shared_pairs, solve_horizon
from jointmdp.exact.moments.higher_orders import ROOM
from jointmdp.exact.moments.pair_solver import Solve
from jointmdp.exact.moments.stored_moments import KnownMoments, StateMoments, about_mean, difference_of
from jointmdp.exact.solution.evaluate import check_ends, evaluate
from jointmdp.exact.solution.solution import Solution
from jointmdp.ground import checks
from jointmdp.ground.arrays import UNIT, Bools, Floats, Ints, float64, summed
from jointmdp.ground.errors import ModelError
from jointmdp.model.joint_mdp import JointMDP


class KnownReturns(NamedTuple):
    """A mean to count from, its certified error, and moments 0, 1, … about it with theirs; the first is taken as 0."""

    mean: Floats  # [m]
    mean_error: Floats  # [m]
    moments: Floats  # [order+1, m]
    errors: Floats  # [order+1, m]

    @classmethod
    def zeros(cls, order: int, count: int) -> KnownReturns:
        """Nothing is paid any more."""
        moments = np.zeros((order + 1, count))
        moments[0] = 1.0
        return cls(np.zeros(count), np.zeros(count), moments, np.zeros((order + 1, count)))

    def put(self, at: Ints, known: KnownReturns) -> None:
        """What is known of some nodes, to the order that is held here."""
        for mine, theirs in zip(self, known, strict=True):
            mine[..., at] = theirs if theirs.ndim == 1 else theirs[: len(mine)]


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


class Ends:
    """What follows the last step, for each number of steps that are left."""

    def __init__(  # many parameters: those of the front door
        self,
        model: JointMDP,
        policy: Floats,
        other: OtherBranch,
        order: int,
        horizon: int | None,
        solution: Solution | None,
        over: Bools,
    ) -> None:
        self.model, self.policy, self.other, self.order = model, policy, other, order
        self.horizon = None if horizon is None else checks.as_count("horizon", horizon)
        self.moments: StateMoments | None = None
        if solution is not None:
            fits = solution.model == model and np.array_equal(solution.policy, policy)
            if not fits or solution.horizon is not None or solution.order < order:
                raise ModelError("the solution is not one of evaluate(model, policy) for this model, policy and order")
            self.moments = moments_of_pairs(solution)
        self._is_terminal = over
        self._made: dict[tuple[int | None, bool], PairEnds] = {}

    def steps_from(self, start: int, seen: int) -> int | None:
        """How many steps count from step `start` on, where so many were `seen` in all; None for an endless future."""
        if self.horizon is None:
            return None
        if self.horizon < seen:
            raise ModelError(f"the trajectory has {seen} steps, more than the horizon of {self.horizon}")
        return self.horizon - start

    def after(self, known: SeenSteps, span: int | None) -> PairEnds:
        """What follows the last known step of a trajectory, of which `span` steps count."""
        last, left = int(known.states[-1]), None if span is None else span - len(known.actions)
        is_over = left is None and last != UNSEEN and bool(self._is_terminal[last]) and self.order == 2
        if (left, is_over) not in self._made:
            self._made[left, is_over] = self._solved(left, is_over)
        return self._made[left, is_over]

    def _solved(self, left: int | None, is_over: bool) -> PairEnds:
        """What follows where so many steps are `left`; `is_over` where the seen branch is paid nothing any more."""
        model, policy, order = self.model, self.policy, self.order
        if left == 0:  # the last step was the last that counts
            return nothing_follows(order)
        if left is None and is_over:  # only the other branch goes on, and no pair has to be solved for
            check_ends(model, self.other.policy)
            other = _alone(PolicyBranch(model, self.other.policy))
            return PairEnds(2, lambda y, x: other(y), other, _alone(PolicyBranch(model, policy)))
        if not self.other.can_merge:
            if order > 2:
                raise ModelError("whole policies are compared to order 2; leave order out")
            if left is not None:
                raise ModelError(
                    f"whole policies are compared over a horizon only where it ends with the trajectory or its "
                    f"episode, and {left} steps would follow; give that horizon, or none"
                )
            return two_policies(model, self.other.policy, policy, Solve())
        if left is not None:
            with float64():
                after = solve_horizon(model, policy, left + 1, order).moments  # what follows the first of these steps
            v, B, off = np.asarray(after.v), np.asarray(after.B), after.errors.values.alone
            variance_off = np.full(len(v), float(after.errors.pairs.max()))

            def alone(s: Ints) -> KnownReturns:
                return _known(v[s], off[s], B[s], variance_off[s])

            return PairEnds(order, _gap_of(after, B, variance_off), alone, alone)
        known = moments_of_pairs(evaluate(model, policy, order=order)) if self.moments is None else self.moments
        branch = PolicyBranch(model, policy)  # both follow one policy for ever, and may become one
        return PairEnds(order, _gap_of(known, branch.variance, branch.variance_errors), _alone(branch), _alone(branch))


def nothing_follows(order: int) -> PairEnds:
    """The last step that was seen is the last that counts."""

    def none(s: Ints) -> KnownReturns:
        return KnownReturns.zeros(2, len(s))

    return PairEnds(order, lambda y, x: KnownReturns.zeros(order, len(y)), none, none)


def two_policies(model: JointMDP, other: Floats, seen: Floats, method: Solve) -> PairEnds:
    """The branches follow a policy each, draw their actions independently and never become one."""
    for policy in (other, seen):
        check_ends(model, policy)
    one, two = PolicyBranch(model, other), PolicyBranch(model, seen)
    shared = shared_pairs(one, two, method)
    if not shared.is_reached:
        report_missed(Status.STEP_LIMIT, "two policies", method.throw)

    def gap(y: Ints, x: Ints) -> KnownReturns:
        covariance = np.zeros(len(y)) if model.sharing == "none" else shared.covariance[y, x]
        return _known(*policies_gap(one, two, y, x, covariance, shared.shares[0][y] + shared.shares[1][x]))

    return PairEnds(2, gap, _alone(one), _alone(two))


class Moves(NamedTuple):
    """How nodes of one time move on, as columns."""

    parent: Ints
    weight: Floats
    paid: Floats
    size: Floats  # of the numbers that `paid` was made of
    child: Ints  # negative where nothing follows


def backed_up(moves: Moves, count: int, later: KnownReturns, discount: float) -> KnownReturns:
    """What is known of `count` nodes, from what is known of those that they lead to."""
    order = len(later.moments) - 1
    goes = moves.child >= 0

    def of_child(values: Floats) -> Floats:
        if not values.shape[-1]:  # both branches are one in all of them
            return np.zeros((*values.shape[:-1], len(goes)))
        return np.where(goes, values[..., moves.child], 0.0)

    def total(values: Floats) -> Floats:
        return summed(moves.parent, moves.weight * values, count)

    m = discount * of_child(later.mean)
    mean = total(moves.paid + m)
    terms = np.bincount(moves.parent, minlength=count)
    relative = (terms + 16) * UNIT  # sums, products, and weights that are rounded themselves
    sizes = moves.size + np.abs(m)
    rounding = relative * total(sizes)
    mean_error = (1 + ROOM) * (total(discount * of_child(later.mean_error)) + rounding)
    d = moves.paid + m - mean[moves.parent]
    off = (8 * UNIT) * (sizes + np.abs(mean[moves.parent]))
    h, e = of_child(later.moments), of_child(later.errors)
    h[0] = 1.0
    unsure = e + (relative[moves.parent] + (2 * order + 8) * UNIT) * np.abs(h)
    moments, errors = np.zeros((2, order + 1, count))
    moments[0], errors[1] = 1.0, mean_error

    def power(k: int, base: Floats, values: Floats) -> Floats:
        """Of every move: Σ_j C(k,j) baseᵏ⁻ʲ γʲ values_j."""
        return np.sum([math.comb(k, j) * base ** (k - j) * discount**j * values[j] for j in range(k + 1)], axis=0)

    wide = np.abs(d) + off
    for k in range(2, order + 1):
        moments[k] = total(power(k, d, h))
        # The derivative of the k-th power by d is k times the one before.
        moved = total(power(k, wide, unsure)) + k * total(off * power(k - 1, wide, np.abs(h)))
        errors[k] = (1 + ROOM) * moved
    return KnownReturns(mean, mean_error, moments, errors)


def backward(model: JointMDP, paths: SeenPaths, steps: Walk, ends: list[PairEnds]) -> tuple[KnownReturns, KnownReturns]:
    """At time 0: of the gaps at all nodes; and of the other branch's returns there, then of the seen one's."""
    last = len(paths.steps)
    for t in range(last, -1, -1):
        nodes = steps.nodes[t]
        size, total = len(nodes.place), len(nodes.place) + len(paths.states[t])
        if t == last:
            gaps, returns = KnownReturns.zeros(ends[0].order, size), KnownReturns.zeros(2, total)
        else:
            of_gaps, of_returns = _moves(paths, steps, t)
            gaps = backed_up(of_gaps, size, gaps, model.discount)
            returns = backed_up(of_returns, total, returns, model.discount)
        # What follows the last step of a trajectory; most often one solution serves all.
        for end in {id(end): end for end in ends}.values():
            is_mine = paths.is_last(t) & np.array([each is end for each in ends])[paths.which[t]]
            if not is_mine.any():
                continue
            i, k = np.flatnonzero(is_mine[nodes.place]), np.flatnonzero(is_mine)
            x, y = paths.states[t], nodes.state[i]
            gaps.put(i, end.gap(y, x[nodes.place[i]]))
            returns.put(i, end.other(y))
            returns.put(size + k, end.seen(x[k]))
    return gaps, returns


def _moves(paths: SeenPaths, steps: Walk, t: int) -> tuple[Moves, Moves]:
    """Of the gaps, which are 0 where both branches are one; and of the returns of the other branch and the seen one."""
    moves, own, gain, loss = steps.moves[t], steps.seen[t], steps.moves[t].gain, steps.moves[t].loss
    size, after = len(steps.nodes[t].place), len(steps.nodes[t + 1].place)
    gaps = Moves(moves.parent, moves.weight, gain - loss, np.abs(gain) + np.abs(loss), moves.child)
    places = np.repeat(np.flatnonzero(~paths.is_last(t)), np.diff(own.start))
    paid = np.concatenate([gain, own.reward])
    child = np.where(moves.child == ONE, after + moves.place, moves.child)
    parent, child = np.concatenate([moves.parent, size + places]), np.concatenate([child, after + own.place])
    return gaps, Moves(parent, np.concatenate([moves.weight, own.weight]), paid, np.abs(paid), child)


def of_node(known: KnownReturns, i: int) -> tuple[float, float, KnownMoments]:
    """The mean of one node, its error, and the moments about the true mean."""
    error = float(known.mean_error[i])
    return float(known.mean[i]), error, about_mean(KnownMoments(known.moments[:, i], known.errors[:, i]), error)
