"""Moments of gaps and returns given what was seen: backward steps from the end, no linear solve.

After the last step that was seen both branches go on as an ordinary pair, whose moments come from a solution, or from
the moves of the walk (`pair_recursion`). Before it they are backed up along the walk (`known_returns`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from jointmdp.exact.hindsight.logged_trajectories import UNSEEN, SeenSteps
from jointmdp.exact.hindsight.other_branch import ONE, OtherBranch, Walk
from jointmdp.exact.hindsight.scenario_posteriors import SeenPaths
from jointmdp.exact.moments.certificates import Status, report_missed
from jointmdp.exact.moments.default_solver import PolicyBranch, policies_gap, shared_pairs, solve_horizon
from jointmdp.exact.moments.known_returns import KnownReturns, Moves, PairEnds, backed_up
from jointmdp.exact.moments.pair_recursion import PairsAhead
from jointmdp.exact.moments.pair_solver import Solve
from jointmdp.exact.moments.stored_moments import KnownMoments, StateMoments, about_mean, difference_of
from jointmdp.exact.solution.evaluate import check_ends, evaluate
from jointmdp.exact.solution.solution import Solution
from jointmdp.ground import checks
from jointmdp.ground.arrays import UNIT, Bools, Floats, Ints, float64
from jointmdp.ground.errors import ModelError
from jointmdp.model.gumbel_max import GumbelModel
from jointmdp.model.joint_mdp import JointMDP


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
            self.moments = None if isinstance(model, GumbelModel) else moments_of_pairs(solution)
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

    @cached_property
    def ahead(self) -> PairsAhead:
        """Pairs by the moves of the walk."""
        return PairsAhead(self.model, self.policy, self.other.policy, self.other.can_merge, self.order)

    def _solved(self, left: int | None, is_over: bool) -> PairEnds:
        """What follows where so many steps are `left`; `is_over` where the seen branch is paid nothing any more."""
        model, policy, order = self.model, self.policy, self.order
        if left == 0:  # the last step was the last that counts
            return nothing_follows(order)
        whole = not self.other.can_merge
        if isinstance(model, GumbelModel) or (whole and left is not None):
            return self.ahead.ends(left)
        if left is None and is_over:  # only the other branch goes on, and no pair has to be solved for
            check_ends(model, self.other.policy)
            other = _alone(PolicyBranch(model, self.other.policy))
            return PairEnds(2, lambda y, x: other(y), other, _alone(PolicyBranch(model, policy)))
        if whole and order > 2:
            raise ModelError("whole policies are compared to order 2; leave order out")
        if whole:
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


def backward(model: JointMDP, paths: SeenPaths, steps: Walk, ends: list[PairEnds]) -> tuple[KnownReturns, KnownReturns]:
    """At time 0: of the gaps at all nodes; and of the other branch's returns there, then of the seen one's."""
    last, sums = len(paths.steps), paths.sums
    for t in range(last, -1, -1):
        nodes = steps.nodes[t]
        size, total = len(nodes.place), len(nodes.place) + len(paths.states[t])
        if t == last:
            gaps, returns = KnownReturns.zeros(ends[0].order, size), KnownReturns.zeros(2, total)
        else:
            of_gaps, of_returns = moves_at(paths, steps, t)
            gaps = backed_up(of_gaps, size, gaps, model.discount, sums[t])
            returns = backed_up(of_returns, total, returns, model.discount, sums[t])
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


def moves_at(paths: SeenPaths, steps: Walk, t: int) -> tuple[Moves, Moves]:
    """Of the gaps, which are 0 where both branches are one; and of the returns of the other branch and the seen one."""
    moves, own, gain, loss = steps.moves[t], steps.seen[t], steps.moves[t].gain, steps.moves[t].loss
    size, after = len(steps.nodes[t].place), len(steps.nodes[t + 1].place)
    gaps = Moves(moves.parent, moves.weight, gain - loss, np.abs(gain) + np.abs(loss), moves.child, moves.off)
    places = np.repeat(np.flatnonzero(~paths.is_last(t)), np.diff(own.start))
    paid = np.concatenate([gain, own.reward])
    child = np.where(moves.child == ONE, after + moves.place, moves.child)
    parent, child = np.concatenate([moves.parent, size + places]), np.concatenate([child, after + own.place])
    weight, off = np.concatenate([moves.weight, own.weight]), np.append(moves.off, np.zeros(len(own.weight)))
    return gaps, Moves(parent, weight, paid, np.abs(paid), child, off)


def of_node(known: KnownReturns, i: int) -> tuple[float, float, KnownMoments]:
    """The mean of one node, its error, and the moments about the true mean."""
    error = float(known.mean_error[i])
    return float(known.mean[i]), error, about_mean(KnownMoments(known.moments[:, i], known.errors[:, i]), error)
