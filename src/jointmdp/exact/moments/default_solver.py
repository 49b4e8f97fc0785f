"""Two branches of two policies from the same start: one branch by itself, and the covariance of two.

``C(s,t) = Cov(Z^π(s), Z^π'(t))`` obeys the centred recursion on pairs of states with one policy for each branch; see
`bellman.pair_sweep.sweep`. The branches share scenarios as the model says, draw their actions independently, and
never become one. The certificate splits an error between the branches: each moves by a kernel of its own whatever they
share, so if ``g ≥ ρ + γ²Pg`` and ``g' ≥ ρ' + γ²P'g'``, the covariance is off by at most ``g(s) + g'(t)``.

The default method: means and variances of one branch directly, and the centred recursion on pairs of states.
"""

from typing import NamedTuple

import jax
import numpy as np
from jax import Array

from jointmdp.exact.bellman import pair_sweep, second_moments
from jointmdp.exact.bellman.pair_sweep import PairKernel, PairProblem
from jointmdp.exact.bellman.second_moments import Tables
from jointmdp.exact.moments.certificates import (
    Certificate,
    HorizonErrors,
    StateErrors,
    Status,
    ValueErrors,
    pair_operations,
    side_norms,
)
from jointmdp.exact.moments.higher_orders import BackwardSweeps, solve_higher
from jointmdp.exact.moments.pair_solver import FLOOR_SHARE, Solve, solve_gap_variances, solve_pairs
from jointmdp.exact.moments.single_branch import solve_single_branch
from jointmdp.exact.moments.stored_moments import FoundMoments, GapErrors, StateMoments
from jointmdp.ground import checks
from jointmdp.ground.arrays import UNIT, Floats, Ints, float64, on_device
from jointmdp.ground.limits import OutOfTimeError, is_time_over
from jointmdp.ground.progress import Meter
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.policies import at_time

RESIDUAL_SHARE = 1e-5  # of the tolerance: sweeps are cheap, so answers are better than what is promised


class PolicyBranch:
    """The return of one policy, by its first state, with certified errors; ``[S]`` each."""

    def __init__(self, model: JointMDP, policy: Floats) -> None:
        self.model, self.policy = model, policy
        self.single = solve_single_branch(model, policy)
        self.errors = StateErrors(model, policy, self.single)
        with float64():
            self.tables = second_moments.model_tables(model, policy, self.single.state.rewards)
        self.mean = self.errors.v + self.single.state.offset + 0.0
        size = np.abs(self.errors.v) + np.abs(self.single.state.offset)
        self.mean_errors = self.errors.values.alone + 4 * UNIT * size
        self.variance = self.single.variance
        self.variance_errors = self.errors.variance_errors


class SharedPairs(NamedTuple):
    """``Cov(Z^π(s), Z^π'(t))`` of all pairs of states."""

    covariance: Floats  # [S, S]; one zero where branches share nothing
    shares: tuple[Floats, Floats]  # [S] each: the covariance of s and t is off by at most the sum of both
    is_reached: bool  # whether sweeps ended before their limit


_source = jax.jit(second_moments.policies_source)


def shared_pairs(one: PolicyBranch, other: PolicyBranch, method: Solve) -> SharedPairs:
    """What two policies have in common, from any two states."""
    model, size = one.model, one.model.num_states
    if model.sharing == "none":
        return SharedPairs(np.zeros((1, 1)), (np.zeros(size), np.zeros(size)), True)
    floor = max(each.errors.floor for each in (one, other))
    target = residual_target([one.errors, other.errors], method.relative_tolerance)
    with float64(), Meter("two policies") as meter:
        kernel = pair_sweep.pair_kernel(model, one.policy, other.policy)
        values = (on_device(each.errors.v) for each in (one, other))
        problem = PairProblem(kernel, _source(one.tables, other.tables, kernel, *values), one.tables.discount)
        target = max(target, FLOOR_SHARE * floor)
        C, sweeps = solve_pairs(problem, target, method.max_sweeps, method.is_accelerated, meter, parity=0)
        sides, residuals = (np.asarray(part) for part in side_norms(problem, C))
        covariance = np.asarray(C)
    relative = pair_operations(model.num_scenarios, kernel.choice.shape[1]) * UNIT
    mine = one.errors.pair_shares(other.errors, sides[0], residuals[0], relative)
    theirs = other.errors.pair_shares(one.errors, sides[1], residuals[1], relative)
    return SharedPairs(covariance, (mine, theirs), sweeps < method.max_sweeps)


def policies_gap(  # many parameters: two branches, where they start, and what they have in common
    one: PolicyBranch, other: PolicyBranch, s: int | Ints, t: int | Ints, covariance: Floats, off: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Mean and variance of ``Z^π(s) − Z^π'(t)``, each before a bound on its error; the covariance is off by `off`."""
    # Means are subtracted before their offsets are added: digits that both share do not round.
    mean = one.errors.v[s] - other.errors.v[t] + (one.single.state.offset[s] - other.single.state.offset[t])
    apart = one.variance[s] + other.variance[t]
    error = one.variance_errors[s] + other.variance_errors[t] + 2 * off + 8 * UNIT * (apart + 2 * np.abs(covariance))
    return mean, one.mean_errors[s] + other.mean_errors[t], np.maximum(apart - 2 * covariance, 0.0), error


LEAST_STD = 1e-8  # of the spread of possible returns: smaller deviations may be rounding, and count as this
LEAST_SCALE = 1e-280  # of a variance, where no reward varies at all


def solve(model: JointMDP, policy: Floats, method: Solve, order: int = 2) -> FoundMoments[StateMoments]:
    """All moments of an endless future, on pairs of states."""
    tolerance = checks.as_positive("relative_tolerance", method.relative_tolerance)
    max_sweeps = checks.as_count("max_sweeps", method.max_sweeps)
    branch = solve_single_branch(model, policy)
    errors = StateErrors(model, policy, branch)
    D, pair_errors, residual, sweeps = np.zeros((1, 1)), np.zeros((1, 1)), 0.0, 0  # where branches are independent
    if model.sharing != "none":
        tables = second_moments.model_tables(model, policy, branch.state.rewards)
        kernel = pair_sweep.pair_kernel(model, policy)
        problem = PairProblem(kernel, _gap_source(tables, kernel, on_device(errors.v)), tables.discount)
        target = residual_target([errors], tolerance)
        D, pair_errors, residual, sweeps = solve_gap_variances(problem, errors, target, method)
    certificate = errors.certificate(pair_errors, residual)
    status = reached(certificate, errors, tolerance, sweeps >= max_sweeps)
    higher = None
    if order > 2:
        higher, more, is_reached = solve_higher(errors, policy, D, order, method)
        sweeps += more
        if not is_reached:
            status = Status.TIME_LIMIT if is_time_over() else Status.STEP_LIMIT
    held = (branch.state.rewards, errors.v, D, branch.variance, errors.mean + branch.state.offset[:, None])
    moments = StateMoments(model, policy, *held, GapErrors(errors.values, pair_errors), higher, method)
    return FoundMoments(moments, certificate, status, sweeps)


def residual_target(branches: list[StateErrors], tolerance: float) -> float:
    """The residual of pairs with which the certified error is far below the relative tolerance."""
    largest = max(each.largest_variance for each in branches)
    span = max(each.single.state.span for each in branches)
    return RESIDUAL_SHARE * tolerance * largest * (1 + branches[0].model.discount) / span


def reached(certificate: Certificate, errors: StateErrors, tolerance: float, is_at_limit: bool) -> Status:
    """Whether the certified error is within the relative tolerance, and if not, why."""
    state = errors.single.state
    paid = float(np.max(np.abs(state.rewards)))
    scale = max(errors.largest_variance, (LEAST_STD * paid * state.span) ** 2, LEAST_SCALE)
    if certificate.covariance_error <= tolerance * scale:
        return Status.CONVERGED
    if is_time_over():
        return Status.TIME_LIMIT
    return Status.STEP_LIMIT if is_at_limit else Status.STAGNATED


_gap_source = jax.jit(lambda *given: second_moments.gap_source(*given).stored())


@jax.jit
def _backward(tables: Tables, kernel: PairKernel, v: Array, D: Array, B: Array) -> tuple[Array, Array, Array]:
    m = second_moments.mean(tables, v)
    problem = PairProblem(kernel, second_moments.gap_source(tables, kernel, v), tables.discount)
    # One more step in front: the variance over the first action is that of the new means.
    later = second_moments.state_mean(tables, second_moments.variance(tables, v, B))
    B2 = second_moments.action_variance(tables, m) + later
    return second_moments.state_mean(tables, m), pair_sweep.sweep(problem, D), B2


def solve_horizon(model: JointMDP, policy: Floats, horizon: int, order: int = 2) -> FoundMoments[StateMoments]:
    """T backward sweeps from zero; the last one is the action-level backup of the answer itself.

    A policy ``[T, S, A]`` does at step t what its row t says; that of step 0 is not followed.
    """
    tables = second_moments.model_tables(model, at_time(policy, 0))
    kernel = pair_sweep.pair_kernel(model, at_time(policy, 0))
    size = model.num_states
    pairs = (1, 1) if model.sharing == "none" else (size, size)
    v, B, D = (on_device(np.zeros(shape)) for shape in (size, size, pairs))
    errors = HorizonErrors(tables)
    above = BackwardSweeps(model, policy, order) if order > 2 else None
    with Meter("backward sweeps") as meter:
        for step in range(horizon):
            t = horizon - 1 - step  # when this one is taken
            if is_time_over():
                raise OutOfTimeError(
                    f"{step:,} of {horizon:,} backward sweeps were made in the time that was given, and what comes "
                    "before them is not known"
                )
            if policy.ndim == 3 and t > 0:
                tables = tables._replace(policy=on_device(policy[t]))
                kernel = pair_sweep.pair_kernel(model, policy[t])
            errors.step(tables, v, D, B)
            if t > 0:
                before = v
                v, D, B = _backward(tables, kernel, v, D, B)
                if above is not None:
                    above.step(t, np.asarray(before), np.asarray(v), errors.mean)
            meter.update((step + 1) / horizon, f"step {step + 1} of {horizon}")
    mean = np.asarray(second_moments.mean(tables, v)) + 0.0  # no negative zeros
    rewards, values, gaps, alone = (np.asarray(each) for each in (tables.rewards, v, D, B))
    value_error, variance_error = errors.before
    known = GapErrors(ValueErrors.uniform(size, value_error), np.full(D.shape, 4 * variance_error))
    higher = None if above is None else above.finished(horizon)
    moments = StateMoments(model, policy, rewards, values, gaps, alone, mean, known, higher)
    return FoundMoments(moments, errors.certificate(), Status.COMPLETED, horizon)
