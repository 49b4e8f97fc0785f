"""The default method: means and variances of one branch directly, and the centred recursion on pairs of states."""

from typing import NamedTuple

import jax
import numpy as np
from jax import Array

from jointmdp import checks
from jointmdp.arrays import Floats, on_device
from jointmdp.bellman import second_moments
from jointmdp.bellman.second_moments import PairKernel, PairProblem, Tables
from jointmdp.errors import Status
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.moments import transition_kernels
from jointmdp.moments.certificates import Certificate, HorizonErrors, StateErrors
from jointmdp.moments.gap_variances import GapVariances, solve_gap_variances
from jointmdp.moments.higher_solver import BackwardSweeps, solve_higher
from jointmdp.moments.local_errors import ValueErrors
from jointmdp.moments.pair_solver import Solve
from jointmdp.moments.policy_pairs import RESIDUAL_SHARE
from jointmdp.moments.single_branch import solve_single_branch
from jointmdp.moments.stored_moments import GapErrors, StateMoments
from jointmdp.progress import Meter

LEAST_STD = 1e-8  # of the spread of possible returns: smaller deviations may be rounding, and count as this
LEAST_SCALE = 1e-280  # of a variance, where no reward varies at all


class FoundMoments(NamedTuple):
    """Moments, and how true they are."""

    moments: StateMoments
    certificate: Certificate
    status: Status
    steps: int


def solve(model: JointMDP, policy: Floats, method: Solve, order: int = 2) -> FoundMoments:
    """All moments of an endless future, on pairs of states."""
    tolerance = checks.as_positive("relative_tolerance", method.relative_tolerance)
    max_sweeps = checks.as_count("max_sweeps", method.max_sweeps)
    branch = solve_single_branch(model, policy)
    tables = transition_kernels.tables(model, policy, branch.state.rewards)
    kernel = transition_kernels.pair_kernel(model, policy)
    m, B = on_device(branch.mean), on_device(branch.variance)
    errors = StateErrors(model, policy, branch)
    target = residual_target(errors, tolerance)
    v, nothing = second_moments.state_mean(tables, m), np.zeros((1, 1))
    pairs = GapVariances(on_device(nothing), nothing, 0.0, 0)  # under "none" distinct branches are independent
    if model.sharing != "none":
        problem = PairProblem(kernel, _gap_source(tables, kernel, v), tables.discount)
        pairs = solve_gap_variances(problem, errors, target, method)
    sweeps = pairs.sweeps
    certificate = errors.certificate(pairs.errors, pairs.residual)
    status = reached(certificate, errors, tolerance, sweeps >= max_sweeps)
    higher = None
    if order > 2:
        higher, more, is_reached = solve_higher(errors, tables, v, pairs.values, order, method)
        sweeps += more
        if not is_reached:
            status = Status.STEP_LIMIT
    mean = np.asarray(second_moments.mean(tables, v)) + branch.state.offset[:, None]
    known = GapErrors(errors.values, pairs.errors)
    moments = StateMoments(model, tables, v, pairs.values, B, mean, known, higher, method)
    return FoundMoments(moments, certificate, status, sweeps)


def residual_target(errors: StateErrors, tolerance: float) -> float:
    """The residual of pairs with which the certified error is far below the relative tolerance."""
    span = errors.single.state.span
    return RESIDUAL_SHARE * tolerance * errors.largest_variance * (1 + errors.model.discount) / span


def reached(certificate: Certificate, errors: StateErrors, tolerance: float, is_at_limit: bool) -> Status:
    """Whether the certified error is within the relative tolerance, and if not, why."""
    state = errors.single.state
    paid = float(np.max(np.abs(state.rewards)))
    scale = max(errors.largest_variance, (LEAST_STD * paid * state.span) ** 2, LEAST_SCALE)
    if certificate.covariance_error <= tolerance * scale:
        return Status.CONVERGED
    return Status.STEP_LIMIT if is_at_limit else Status.STAGNATED


_gap_source = jax.jit(second_moments.gap_source)


@jax.jit
def _backward(tables: Tables, kernel: PairKernel, m: Array, D: Array, B: Array) -> tuple[Array, Array, Array]:
    v = second_moments.state_mean(tables, m)
    m2 = second_moments.mean(tables, v)
    problem = PairProblem(kernel, second_moments.gap_source(tables, kernel, v), tables.discount)
    # One more step in front: the variance over the first action is that of the new means.
    later = second_moments.state_mean(tables, second_moments.variance(tables, v, B))
    B2 = second_moments.action_variance(tables, m2) + later
    return m2, second_moments.sweep(problem, D), B2


def solve_horizon(model: JointMDP, policy: Floats, horizon: int, order: int = 2) -> FoundMoments:
    """T backward sweeps from zero; the last one is the action-level backup of the answer itself."""
    tables = transition_kernels.tables(model, policy)
    kernel = transition_kernels.pair_kernel(model, policy)
    size = model.num_states
    pairs = (1, 1) if model.sharing == "none" else (size, size)
    m, B, D = (on_device(np.zeros(shape)) for shape in ((size, model.num_actions), size, pairs))
    errors = HorizonErrors(tables)
    above = BackwardSweeps(model, tables, order) if order > 2 else None
    with Meter("backward sweeps") as meter:
        for step in range(horizon):
            errors.step(m, D, B)
            if step + 1 < horizon:
                before = m
                m, D, B = _backward(tables, kernel, m, D, B)
                if above is not None:
                    later, now = (np.asarray(second_moments.state_mean(tables, each)) for each in (before, m))
                    above.step(later, now, errors.mean)
            meter.update((step + 1) / horizon, f"step {step + 1} of {horizon}")
    v = second_moments.state_mean(tables, m)
    mean = np.asarray(second_moments.mean(tables, v)) + 0.0  # no negative zeros
    value_error, variance_error = errors.before
    known = GapErrors(ValueErrors.uniform(size, value_error), np.full(D.shape, 4 * variance_error))
    moments = StateMoments(model, tables, v, D, B, mean, known, None if above is None else above.finished(horizon))
    return FoundMoments(moments, errors.certificate(), Status.COMPLETED, horizon)
