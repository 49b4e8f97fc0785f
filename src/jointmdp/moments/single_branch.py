"""The two linear solves on the host: the mean, and the variance of one branch."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import scipy.sparse.csgraph
import scipy.sparse.linalg

from jointmdp.arrays import Bools, Floats
from jointmdp.model.episodes import idle_states, paying_state, policy_kernel
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.moments.transition_kernels import shifted_rewards

# Sparse elimination works within the bandwidth. Where that is a large part of the matrix, as in random graphs, it fills
# in and dense elimination is faster.
DENSE_BANDWIDTH = 0.25
LONG_RUN = 1 - 1e-7  # discount whose occupancy stands for the long run

Solver = Callable[[Floats], Floats]


class BranchMean(NamedTuple):
    """Mean returns of one branch by state, stored relative to `offset`, and what the solve was made with."""

    values: Floats  # [S], v − offset
    offset: float
    shift: float  # (1−γ)·offset, what the rewards lose
    kernel: sp.csr_array  # [S, S] the policy's P, between states that are not idle
    solve: Solver  # (I − γP)⁻¹
    is_dense: bool
    idle: Bools  # [S] where nothing is paid any more and values are exactly 0; none unless every return surely ends
    span: float  # 1/(1−γ); where the discount is 1, the largest expected number of steps before all is paid


class SingleBranch(NamedTuple):
    """Mean and variance of one branch, with the means stored relative to the offset of `state`."""

    state: BranchMean
    mean: Floats  # [S, A], m − offset
    variance: Floats  # [S], B(s) = Var Z(s, A)
    solve_squared: Solver  # (I − γ²P)⁻¹


def solve_mean(model: JointMDP, policy: Floats) -> BranchMean:
    """v = r̄ + γPv.

    Covariances see the value function only up to a constant. Working with values relative to their long-run mean
    keeps digits at γ near 1, where values are large and nearly equal. Where every return surely comes to an end, as it
    must with the discount 1, states where nothing is paid any more leave the equations, and what remains is regular.
    """
    g, size = model.discount, model.num_states
    kernel, idle = policy_kernel(model, policy), np.zeros(size, dtype=bool)
    is_ending = paying_state(model, policy) is None
    if is_ending:
        idle = idle_states(model, policy)
        alive = sp.diags_array((~idle).astype(np.float64))
        kernel = (alive @ kernel @ alive).tocsr()
        kernel.eliminate_zeros()
    is_dense = fills_in(kernel)
    solve = discounted_solver(kernel, g, is_dense)
    v = solve(_policy_mean(model, policy, shifted_rewards(model)))
    shift = offset = 0.0
    if not is_ending:
        # Long-run average: where branches end up, relative values are then near zero and so is their rounding.
        occupancy = discounted_solver(kernel.T.tocsr(), LONG_RUN, is_dense)(np.full(size, 1 / size))
        shift = float((1 - g) * (occupancy @ v) / occupancy.sum())
        offset = shift / (1 - g)
    reward = _policy_mean(model, policy, shifted_rewards(model, shift))
    h = v - offset
    for _ in range(2):
        h = h + solve(reward + g * (kernel @ h) - h)
    span = 1 / (1 - g) if g < 1 else float(np.max(solve(np.ones(size))))
    return BranchMean(np.where(idle, 0.0, h), offset, shift, kernel, solve, is_dense, idle, span)


def solve_single_branch(model: JointMDP, policy: Floats) -> SingleBranch:
    """The mean of every coordinate, and B = u + Σ_a π Var_w b + γ²PB."""
    p, g, state = model.probabilities, model.discount, solve_mean(model, policy)
    b = shifted_rewards(model, state.shift) + g * state.values[model.successors]
    mean = np.einsum("sw,swa->sa", p, b)
    spread = np.einsum("sw,swa->sa", p, (b - mean[:, None, :]) ** 2)
    centre = np.sum(policy * mean, axis=1, keepdims=True)
    added = np.sum(policy * ((mean - centre) ** 2 + spread), axis=1)
    solve_squared = state.solve if g == 1 else discounted_solver(state.kernel, g**2, state.is_dense)
    variance = solve_squared(added)
    variance = variance + solve_squared(added + g**2 * (state.kernel @ variance) - variance)
    variance = np.where(state.idle, 0.0, np.maximum(variance, 0.0))
    return SingleBranch(state, mean, variance, solve_squared)


def _policy_mean(model: JointMDP, policy: Floats, table: Floats) -> Floats:
    """Σ_w p(w|s) Σ_a π(a|s) f(s,w,a), ``[S]``."""
    return np.einsum("sw,swa,sa->s", model.probabilities, table, policy, optimize=True)


def fills_in(kernel: sp.csr_array) -> bool:
    """Whether elimination would make the matrix dense, judged by its bandwidth in a good order."""
    if kernel.nnz == 0:
        return False
    order = scipy.sparse.csgraph.reverse_cuthill_mckee(kernel)
    position = np.argsort(order)
    rows, columns = kernel.nonzero()
    return bool(np.max(np.abs(position[rows] - position[columns])) > DENSE_BANDWIDTH * kernel.shape[0])


def discounted_solver(kernel: sp.csr_array, factor: float, is_dense: bool) -> Solver:
    """``x ↦ (I − factor·P)⁻¹ x``, factorised once."""
    size = kernel.shape[0]
    if is_dense:
        factors = scipy.linalg.lu_factor(np.eye(size) - factor * kernel.toarray())
        return lambda right: scipy.linalg.lu_solve(factors, right)
    matrix = sp.eye_array(size, format="csc") - factor * kernel.tocsc()
    return scipy.sparse.linalg.splu(matrix.tocsc()).solve
