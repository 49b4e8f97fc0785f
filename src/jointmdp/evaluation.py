"""Exact evaluation: one front door, two methods, and a certificate with every answer.

`Solve` (the default) solves the mean and the one-branch variance directly and iterates the centred recursion on pairs
of *states*: |S|² numbers, contraction γ² or better. `Iterate` is the paper's iteration M ← T₂M on pairs of
state-action *coordinates*, for small models, teaching and checking.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from jointmdp import checks
from jointmdp.arrays import Floats, float64, on_device
from jointmdp.bellman import second_moments
from jointmdp.bellman.second_moments import Moments, PairKernel, Source, Tables
from jointmdp.errors import ConvergenceError, ConvergenceWarning, ModelError, Status
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.policies import as_policy
from jointmdp.moments import certificates, higher_solver, single_branch, transition_kernels
from jointmdp.moments.certificates import Certificate, HorizonErrors
from jointmdp.moments.iteration import iterate
from jointmdp.moments.pair_solver import FLOOR_SHARE, PAIR_LIMIT, solve_pairs
from jointmdp.moments.state_certificates import StateErrors, row_norms
from jointmdp.moments.stored_moments import PairMoments, StateMoments
from jointmdp.progress import Meter
from jointmdp.solution.solution import Solution

RESIDUAL_SHARE = 1e-5  # of the tolerance: sweeps are cheap, so answers are better than what is promised
LEAST_STD = 1e-8  # of the spread of possible returns: smaller deviations may be rounding, and count as this
LARGEST = 1e100  # rewards and starting values whose squares floats can hold with room to spare
MOMENT_LIMIT = 2**28  # coordinate pairs that `Iterate` agrees to form: 2 GiB a collection
MAX_ORDER = 30  # beyond it binomial coefficients amplify rounding until no digit is left


@dataclass(frozen=True)
class Solve:
    """Linear solves and the centred state-level recursion: the fast default.

    Plain sweeps come first; when their measured rate predicts many more, BiCGStab takes over from where they are.
    Every residual is recomputed from the equations, so acceleration cannot spoil an answer.
    """

    relative_tolerance: float = 1e-6
    """Bound on the certified covariance error, relative to the largest variance of a return; usually far exceeded."""
    max_sweeps: int = 100_000
    is_accelerated: bool = True
    throw: bool = False
    """Raise `ConvergenceError` instead of warning when the tolerance is missed."""


@dataclass(frozen=True)
class Iterate:
    """The paper's JIPE-2: M ← T₂M on all pairs of coordinates, with its residual history."""

    tolerance: float | None = 1e-8
    """Bound on the certified error of means and second moments; None takes exactly `max_steps` steps."""
    max_steps: int = 100_000
    start: tuple[ArrayLike, ArrayLike] | None = None
    """First collection: means ``[S, A]`` and second moments ``[S, A, S, A]``; zero by default."""
    throw: bool = False


Method = Solve | Iterate


def evaluate(
    model: JointMDP,
    policy: ArrayLike,
    method: Method | None = None,
    *,
    order: int = 2,
    horizon: int | None = None,
) -> Solution:
    """The joint moments of the returns of all actions under `policy`.

    Args:
        model: the joint MDP; its ``sharing`` says which branches share their luck.
        policy: action probabilities ``[S, A]``, or one action per state ``[S]``, by index or name.
        method: `Solve()` by default, or `Iterate()`.
        order: highest moment; 2, or more for the skewness, kurtosis and further moments of gaps and pairs.
        horizon: evaluate the first `horizon` steps only, exactly; the discount may then be 1.

    Returns:
        A `Solution` that carries its certificate and status.
    """
    if not isinstance(model, JointMDP):
        raise ModelError(
            f"the model must be a JointMDP, not {type(model).__name__}; built-in models come with a policy, as in "
            "evaluate(*jointmdp.inventory())"
        )
    chosen = as_policy(model, policy)
    order = checks.as_count("order", order, least=2, most=MAX_ORDER)
    if order > 2 and isinstance(method, Iterate):
        raise ModelError(
            f"Iterate evaluates moments of order 2, not {order}; joint_moments(model, policy, {order}) iterates the "
            "operator of higher order, and the default method gives the moments of pairs"
        )
    _check_size(model, order)
    if horizon is not None:
        if method is not None:
            raise ModelError("a horizon is evaluated by backward sweeps; leave method=None")
        with float64():
            return _evaluate_horizon(model, chosen, checks.as_count("horizon", horizon), order)
    if model.discount >= 1:
        raise ModelError("discount is 1: returns over an endless future need a discount below 1, or a horizon")
    method = Solve() if method is None else method
    with float64():
        if isinstance(method, Solve):
            solution = _solve(model, chosen, method, order)
        elif isinstance(method, Iterate):
            solution = _iterate(model, chosen, method)
        else:
            raise ModelError(f"method must be jointmdp.Solve(...) or jointmdp.Iterate(...), not {method!r}")
    if not solution.status.is_success:
        message = f"{solution.status.value} ({solution.certificate})"
        if method.throw:
            raise ConvergenceError(message)
        warnings.warn(message, ConvergenceWarning, stacklevel=2)
    return solution


def _check_size(model: JointMDP, order: int) -> None:
    bound, largest = model.reward_bound, LARGEST ** (2 / order)
    if bound > largest or 0 < bound < 1 / largest:
        powers = "squares" if order == 2 else f"powers of order {order}"
        raise ModelError(
            f"rewards up to {bound:g} have {powers} beyond the range of floats; rescale them to a size near 1"
        )
    pairs, held = model.num_states**2, 1 if order == 2 else order + 1
    if model.sharing != "none" and pairs * held > PAIR_LIMIT:
        each = "" if order == 2 else f", in each of {held} arrays for moments up to order {order}"
        raise ModelError(
            f"{model.num_states:,} states make {pairs:,} pairs{each}, more than the {PAIR_LIMIT:,} numbers that fit"
        )


# -- Solve -----------------------------------------------------------------------------------------------------


def _solve(model: JointMDP, policy: Floats, method: Solve, order: int) -> Solution:
    tolerance = checks.as_positive("relative_tolerance", method.relative_tolerance)
    max_sweeps = checks.as_count("max_sweeps", method.max_sweeps)
    branch = single_branch.solve_single_branch(model, policy)
    tables = transition_kernels.tables(model, policy, branch.shift)
    kernel = transition_kernels.pair_kernel(model, policy)
    m, B = on_device(branch.mean), on_device(branch.variance)
    errors = StateErrors(model, policy, branch)
    largest = errors.largest_variance
    target = max(RESIDUAL_SHARE * tolerance * largest * (1 - model.discount**2), FLOOR_SHARE * errors.floor)
    C, sweeps = _no_pairs(), 0
    if model.sharing != "none":
        added = _source(tables, kernel, m, B)
        with Meter("joint moments") as meter:
            C, sweeps = solve_pairs(kernel, added, tables.discount, target, max_sweeps, method.is_accelerated, meter)
    certificate = errors.certificate(*row_norms(tables, kernel, m, C, B))
    status = Status.CONVERGED
    paid = float(np.max(np.abs(transition_kernels.shifted_rewards(model, branch.shift))))
    scale = max(largest, (LEAST_STD * paid / (1 - model.discount)) ** 2)
    if certificate.covariance_error > tolerance * scale:
        status = Status.STEP_LIMIT if sweeps >= max_sweeps else Status.STAGNATED
    above, effort = None, higher_solver.Effort(tolerance, max_sweeps, method.is_accelerated)
    if order > 2:
        v = second_moments.state_mean(tables, m)
        above, more, is_reached = higher_solver.solve(model, tables, v, (C, B), certificate.mean_errors, order, effort)
        sweeps += more
        if not is_reached:
            status = Status.STEP_LIMIT
    moments = StateMoments(model, tables, m, C, B, branch.offset, above, effort)
    return Solution(model, policy, moments, certificate, status, method="Solve", steps=sweeps)


@jax.jit
def _source(tables: Tables, kernel: PairKernel, m: Array, B: Array) -> Source:
    return second_moments.source(tables, kernel, second_moments.state_mean(tables, m), B)


def _no_pairs() -> Array:
    """What stands for C when distinct coordinates are independent: the equations then never read it."""
    return jnp.zeros((1, 1))


# -- a horizon -------------------------------------------------------------------------------------------------


@jax.jit
def _backward(tables: Tables, kernel: PairKernel, m: Array, C: Array, B: Array) -> tuple[Array, Array, Array]:
    v = second_moments.state_mean(tables, m)
    m2 = second_moments.mean(tables, v)
    added = second_moments.source(tables, kernel, v, B)
    # One more step in front: the variance over the first action is that of the new means.
    later = second_moments.state_mean(tables, second_moments.variance(tables, v, B))
    B2 = second_moments.action_variance(tables, m2) + later
    return m2, second_moments.sweep(kernel, added, tables.discount, C), B2


def _evaluate_horizon(model: JointMDP, policy: Floats, horizon: int, order: int) -> Solution:
    """T backward sweeps from zero; the last one is the action-level backup of the answer itself."""
    tables = transition_kernels.tables(model, policy)
    kernel = transition_kernels.pair_kernel(model, policy)
    size = model.num_states
    m, B = jnp.zeros((size, model.num_actions)), jnp.zeros(size)
    C = jnp.zeros((size, size)) if model.sharing != "none" else _no_pairs()
    errors = HorizonErrors(tables)
    above = higher_solver.Backward(model, tables, order) if order > 2 else None
    with Meter("backward sweeps") as meter:
        for step in range(horizon):
            errors.step(certificates.sizes(tables, m, C, B))
            if step + 1 < horizon:
                before = m
                m, C, B = _backward(tables, kernel, m, C, B)
                if above is not None:
                    v, now = (np.asarray(second_moments.state_mean(tables, each)) for each in (before, m))
                    above.step(v, now, errors.mean)
            meter.update((step + 1) / horizon, f"step {step + 1} of {horizon}")
    moments = StateMoments(model, tables, m, C, B, 0.0, None if above is None else above.finished(horizon))
    return Solution(
        model, policy, moments, errors.certificate(), Status.COMPLETED, method="horizon", steps=horizon, horizon=horizon
    )


# -- Iterate ---------------------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames="sharing")
def _backup(tables: Tables, M: Moments, sharing: Literal["state", "time", "none"]) -> Moments:
    return second_moments.moment_backup(tables, M, sharing)


def _iterate(model: JointMDP, policy: Floats, method: Iterate) -> Solution:
    if method.tolerance is not None:
        checks.as_positive("tolerance", method.tolerance)
    max_steps = checks.as_count("max_steps", method.max_steps, least=0)
    tables = transition_kernels.tables(model, policy)
    weight = certificates.norm_weight(model.reward_bound, model.discount)

    def assess(M: Moments, after: Moments) -> tuple[float, float, Certificate]:
        found = certificates.pair_norms(tables, M, after)
        bounds = certificates.certify_pairs(tables, found, model.reward_bound, model.discount, model.sharing)
        residual = max(float(found["r_mean"]), float(found["r_second"]) / weight)
        return residual, max(bounds.mean_error, bounds.second_moment_error), bounds

    start = _first_collection(model, method)
    run = iterate(partial(_backup, tables, sharing=model.sharing), assess, start, method.tolerance, max_steps, "T₂")
    moments = PairMoments(np.asarray(run.moments.mean), np.asarray(run.moments.second))
    return Solution(model, policy, moments, run.bounds, run.status, "Iterate", run.steps, history=run.history)


def _first_collection(model: JointMDP, method: Iterate) -> Moments:
    S, A = model.num_states, model.num_actions
    if (S * A) ** 2 > MOMENT_LIMIT:
        raise ModelError(
            f"Iterate forms all {(S * A) ** 2:,} pairs of state-action coordinates, "
            f"{(S * A) ** 2 * 8 / 2**30:.1f} GiB a collection; the default method needs only pairs of states"
        )
    if method.start is None:
        return Moments(jnp.zeros((S, A)), jnp.zeros((S, A, S, A)))
    mean = checks.as_floats("start means", method.start[0], "[S, A]", 2)
    second = checks.as_floats("start second moments", method.start[1], "[S, A, S, A]", 4)
    checks.check_shape("start means", mean, (S, A), "[S, A]")
    checks.check_shape("start second moments", second, (S, A, S, A), "[S, A, S, A]")
    checks.check_finite("start mean", mean, "state", "action")
    checks.check_finite("start second moment", second, "state", "action", "state", "action")
    if np.max(np.abs(mean)) > LARGEST or np.max(np.abs(second)) > LARGEST:
        raise ModelError(f"the starting collection has entries above {LARGEST:g}, whose squares floats cannot hold")
    return Moments(on_device(mean), on_device(second))
