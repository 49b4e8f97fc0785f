"""Two branches of two policies from the same start: one branch by itself, and the covariance of two.

``C(s,t) = Cov(Z^π(s), Z^π'(t))`` obeys the centred recursion on pairs of states with one policy for each branch; see
`bellman.second_moments.sweep`. The branches share scenarios as the model says, draw their actions independently, and
never become one. The certificate splits an error between the branches: each moves by a kernel of its own whatever they
share, so if ``g ≥ ρ + γ²Pg`` and ``g' ≥ ρ' + γ²P'g'``, the covariance is off by at most ``g(s) + g'(t)``.
"""

from typing import NamedTuple

import jax
import numpy as np
from jax import Array

from jointmdp.arrays import UNIT, Floats, float64, on_device
from jointmdp.bellman import second_moments
from jointmdp.bellman.second_moments import PairKernel, PairProblem, Source, Tables
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.moments import transition_kernels
from jointmdp.moments.certificates import StateErrors, pair_operations, side_norms
from jointmdp.moments.pair_solver import FLOOR_SHARE, Solve, solve_pairs
from jointmdp.moments.single_branch import solve_single_branch
from jointmdp.progress import Meter

RESIDUAL_SHARE = 1e-5  # of the tolerance: sweeps are cheap, so answers are better than what is promised


class PolicyBranch:
    """The return of one policy, by its first state, with certified errors; ``[S]`` each."""

    def __init__(self, model: JointMDP, policy: Floats) -> None:
        self.model, self.policy = model, policy
        self.single = solve_single_branch(model, policy)
        self.errors = StateErrors(model, policy, self.single)
        with float64():
            self.tables = transition_kernels.tables(model, policy, self.single.state.rewards)
        self.relative_mean = np.sum(policy * self.single.mean, axis=1)
        self.mean = self.relative_mean + self.single.state.offset + 0.0
        size = np.abs(self.relative_mean) + np.abs(self.single.state.offset)
        self.mean_errors = self.errors.values.alone + 4 * UNIT * size
        self.variance = self.single.variance
        self.variance_errors = self.errors.variance_errors


class SharedPart(NamedTuple):
    """``Cov(Z^π(s), Z^π'(s))`` by state."""

    covariance: Floats  # [S]
    errors: Floats  # [S]
    is_reached: bool  # whether sweeps ended before their limit


class SharedPairs(NamedTuple):
    """``Cov(Z^π(s), Z^π'(t))`` of all pairs of states."""

    covariance: Floats  # [S, S]; one zero where branches share nothing
    shares: tuple[Floats, Floats]  # [S] each: the covariance of s and t is off by at most the sum of both
    is_reached: bool


@jax.jit
def _source(one: Tables, other: Tables, kernel: PairKernel, v: Array, v_other: Array) -> Source:
    return second_moments.policies_source(one, other, kernel, v, v_other)


def shared_part(one: PolicyBranch, other: PolicyBranch, method: Solve) -> SharedPart:
    """What two policies have in common when both start in the same state."""
    found = shared_pairs(one, other, method)
    one_share, other_share = found.shares
    return SharedPart(found.covariance.diagonal() + 0.0 * one_share, one_share + other_share, found.is_reached)


def shared_pairs(one: PolicyBranch, other: PolicyBranch, method: Solve) -> SharedPairs:
    """What two policies have in common, from any two states."""
    model, size = one.model, one.model.num_states
    if model.sharing == "none":
        return SharedPairs(np.zeros((1, 1)), (np.zeros(size), np.zeros(size)), True)
    largest = max(each.errors.largest_variance for each in (one, other))
    span = max(each.single.state.span for each in (one, other))
    floor = max(each.errors.floor for each in (one, other))
    target = RESIDUAL_SHARE * method.relative_tolerance * largest * (1 + model.discount) / span
    with float64(), Meter("two policies") as meter:
        kernel = transition_kernels.pair_kernel(model, one.policy, other.policy)
        values = (on_device(each.relative_mean) for each in (one, other))
        problem = PairProblem(kernel, _source(one.tables, other.tables, kernel, *values), one.tables.discount)
        target = max(target, FLOOR_SHARE * floor)
        C, sweeps = solve_pairs(problem, target, method.max_sweeps, method.is_accelerated, meter, parity=0)
        sides, residuals = (np.asarray(part) for part in side_norms(problem, C))
        covariance = np.asarray(C)
    relative = pair_operations(model.num_scenarios, kernel.choice.shape[1]) * UNIT
    mine_and_theirs = (
        mine.pair_shares(theirs, rows, left, relative)
        for mine, theirs, rows, left in zip(
            (one.errors, other.errors), (other.errors, one.errors), sides, residuals, strict=True
        )
    )
    return SharedPairs(covariance, (next(mine_and_theirs), next(mine_and_theirs)), sweeps < method.max_sweeps)
