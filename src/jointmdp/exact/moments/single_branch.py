"""Where branches end up: the classes that are never left, and the states from which one of them is sure.

The two linear solves on the host: the mean, and the variance of one branch.

Mean returns alone: one sparse solve, and how true it is.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import scipy.sparse.csgraph
import scipy.sparse.linalg

from jointmdp.ground.arrays import UNIT, Bools, Floats, Ints
from jointmdp.ground.errors import ModelError
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.policies import as_policy
from jointmdp.model.tables import idle_states, paying_state, policy_kernel

# Labels: the outside of a part, which stands for many states; several classes may come; nothing is paid any more. Other
# classes count from 1.
OUTSIDE, MIXED, IDLE = -2, -1, 0


class LongRun(NamedTuple):
    """The classes of a chain, by state."""

    label: Ints  # [S] the one class that surely comes, or MIXED
    is_closed: Bools  # [S] whether the state lies in a class that is never left
    reference: Ints  # [S] where a branch of this class is most of the time; itself where there is no such state

    @property
    def references(self) -> Bools:
        """Whether a state is the reference of its class, ``[S]``."""
        return (self.reference == np.arange(len(self.label))) & (self.label > IDLE)

    def average(self, weights: Floats, values: Floats) -> Floats:
        """The weighted mean of `values` over each class, for the states that surely come to it; zero elsewhere."""
        inside = np.where(self.is_closed & (self.label > IDLE), weights, 0.0)
        total, mass = (np.bincount(self.label + 1, each) for each in (inside * values, inside))
        return np.divide(total, mass, out=np.zeros_like(total), where=mass > 0)[self.label + 1]


def find_long_run(kernel: sp.csr_array, idle: Bools, occupancy: Floats) -> LongRun:
    """The classes of `kernel`, whose explicit zeros count as steps; `occupancy` says where a reference is good."""
    size = kernel.shape[0]
    ones = np.ones(len(kernel.indices))
    back = sp.csr_array((ones, kernel.indices, kernel.indptr), shape=kernel.shape).T.tocsr()
    rows = np.repeat(np.arange(size), np.diff(kernel.indptr))
    component = scipy.sparse.csgraph.connected_components(back, connection="strong")[1]
    is_closed = np.ones(component.max() + 1, dtype=bool)
    is_closed[component[rows[component[rows] != component[kernel.indices]]]] = False
    ends = np.flatnonzero(is_closed[component])
    # One class that may come, for each state; where a step changes it two may come.
    likely = np.full(component.max() + 1, IDLE)
    paying = np.unique(component[ends[~idle[ends]]])
    likely[paying] = 1 + np.arange(len(paying))
    nearest = _nearest(back, ends)
    label = likely[component[nearest]]
    changes = np.unique(rows[label[rows] != label[kernel.indices]])
    if len(changes):
        label = np.where(_nearest(back, changes) >= 0, MIXED, label)
    # The last of each class by occupancy.
    reference = np.arange(size)
    inside = ends[~idle[ends]]
    inside = inside[np.lexsort((occupancy[inside], label[inside]))]
    chosen = np.zeros(len(paying) + 1, dtype=np.int64)
    chosen[label[inside]] = inside
    is_sure = label > IDLE
    reference[is_sure] = chosen[label[is_sure]]
    return LongRun(label, is_closed[component], reference)


def _nearest(back: sp.csr_array, targets: Ints) -> Ints:
    """The nearest of `targets` that each state can come to, ``[S]``, or −1."""
    steps, _, source = scipy.sparse.csgraph.dijkstra(
        back, indices=targets, min_only=True, unweighted=True, return_predecessors=True
    )
    return np.where(np.isfinite(steps), source, -1)


# Sparse elimination works within the bandwidth. Where that is a large part of the matrix, as in random graphs, it fills
# in and dense elimination is faster.
DENSE_BANDWIDTH = 0.25
BANDED = 1.5  # times √S: no order is much better than that of the states
LONG_RUN = 1 - 1e-7  # discount whose occupancy stands for the long run

Solver = Callable[[Floats], Floats]


class BranchMean(NamedTuple):
    """Mean returns of one branch by state, stored relative to `offset`, and what the solve was made with."""

    values: Floats  # [S], v − offset
    offset: Floats  # [S], one number for each class that is never left; zero where nothing is paid or several may come
    rewards: Floats  # [S, W, A] that the stored values are returns of: R + γ·offset(S') − offset(s)
    sizes: Floats  # [S, W, A] how large the numbers are that these were made of
    kernel: sp.csr_array  # [S, S] the policy's P, between states that are not idle
    solve: Solver  # (I − γP)⁻¹
    is_dense: bool
    idle: Bools  # [S] where nothing is paid any more and values are exactly 0
    classes: LongRun
    occupancy: Floats  # [S] where branches are in the long run, not normalised
    span: float  # 1/(1−γ); where the discount is 1, the largest expected number of steps before all is paid


class SingleBranch(NamedTuple):
    """Mean and variance of one branch, with the means stored relative to the offset of `state`."""

    state: BranchMean
    mean: Floats  # [S, A], m − offset
    variance: Floats  # [S], B(s) = Var Z(s, A)
    excess: Floats  # [S], B − level
    level: Floats  # [S] as the offset of the mean
    drift: Floats  # [S], (1−γ²)·level in a class; what the step to a class brings where several may come
    solve_squared: Solver  # (I − γ²P)⁻¹


def solve_mean(model: JointMDP, policy: Floats) -> BranchMean:
    """v = r̄ + γPv.

    Covariances see the value function only up to a constant. Working with values relative to the long-run mean of
    their class keeps digits at γ near 1, where values are large and nearly equal. States where nothing is paid any more
    leave the equations, and what remains is regular also where the discount is 1 and every return comes to an end.
    """
    g, size = model.discount, model.num_states
    whole = policy_kernel(model, policy)
    idle = idle_states(model, policy, whole)
    kernel = restricted(whole, ~idle, ~idle)
    is_dense = fills_in(kernel)
    solve = discounted_solver(kernel, g, is_dense)
    occupancy = np.zeros(size)
    if paying_state(whole, idle) is not None:
        occupancy = discounted_solver(kernel.T.tocsr(), LONG_RUN, is_dense)(np.full(size, 1 / size))
    classes = find_long_run(whole, idle, occupancy)
    chances = model.probabilities[:, :, None] * policy[:, None, :]

    def expect(table: Floats) -> Floats:
        return np.einsum("swa,swa->s", chances, table)

    v = solve(expect(model.paid_rewards))
    shift, h = np.zeros(size), v
    for _ in range(3):  # the first values may have few digits, and so may their mean
        shift = shift + (1 - g) * classes.average(occupancy, h)
        rewards, sizes, offset = _relative_rewards(model, classes, shift)
        reward = expect(rewards)
        h = v - offset
        for _ in range(2):
            h = h + solve(reward + g * (kernel @ h) - h)
        h = np.where(idle, 0.0, h)
        v = h + offset
        if not np.any(shift):
            break
    span = 1 / (1 - g) if g < 1 else float(np.max(solve(np.ones(size))))
    return BranchMean(h, offset, rewards, sizes, kernel, solve, is_dense, idle, classes, occupancy, span)


def _relative_rewards(model: JointMDP, classes: LongRun, shift: Floats) -> tuple[Floats, Floats, Floats]:
    """Rewards of values relative to an offset with ``(1−γ)·offset = shift`` in each class, their sizes, the offset."""
    g, n, paid = model.discount, model.successors, model.paid_rewards
    offset = np.divide(shift, 1 - g, out=np.zeros_like(shift), where=shift != 0)
    label = classes.label
    stays = (label[n] == label[:, None, None]) & (label != MIXED)[:, None, None]
    moved = g * offset[n] - offset[:, None, None]
    rewards = np.where(stays, paid - shift[:, None, None], paid + moved)
    sizes = np.abs(rewards) + np.where(stays, 0.0, np.abs(offset[n]) + np.abs(offset[:, None, None]))
    return np.where(model.is_possible, rewards, 0.0), np.where(model.is_possible, sizes, 0.0), offset


def solve_single_branch(model: JointMDP, policy: Floats) -> SingleBranch:
    """The mean of every coordinate, and B = u + Σ_a π Var_w b + γ²PB."""
    p, g, state = model.probabilities, model.discount, solve_mean(model, policy)
    b = state.rewards + g * state.values[model.successors]
    mean = np.einsum("sw,swa->sa", p, b)
    spread = np.einsum("sw,swa->sa", p, (b - mean[:, None, :]) ** 2)
    centre = np.sum(policy * mean, axis=1, keepdims=True)
    added = np.sum(policy * ((mean - centre) ** 2 + spread), axis=1)
    solve_squared = state.solve if g == 1 else discounted_solver(state.kernel, g**2, state.is_dense)
    B = excess = solve_squared(added)
    fall = np.zeros_like(added)
    is_sure = state.classes.label != MIXED
    for _ in range(3):
        fall = fall + (1 - g) * (1 + g) * state.classes.average(state.occupancy, excess)
        level = np.divide(fall, (1 - g) * (1 + g), out=np.zeros_like(fall), where=fall != 0)
        drift = np.where(is_sure, fall, -(g**2) * (state.kernel @ level))
        excess = B - level
        for _ in range(2):
            excess = excess + solve_squared(added - drift + g**2 * (state.kernel @ excess) - excess)
        excess = np.where(state.idle, 0.0, np.maximum(excess, -level))
        B = excess + level
        if not np.any(fall):
            break
    return SingleBranch(state, mean, B, excess, level, drift, solve_squared)


def fills_in(kernel: sp.csr_array) -> bool:
    """Whether elimination would make the matrix dense, judged by its bandwidth in a good order."""
    if kernel.nnz == 0:
        return False
    rows, columns = entry_rows(kernel), kernel.indices
    widest = DENSE_BANDWIDTH * kernel.shape[0]
    if np.max(np.abs(rows - columns)) <= widest:  # a good order already
        return False
    position = np.argsort(scipy.sparse.csgraph.reverse_cuthill_mckee(kernel))
    return bool(np.max(np.abs(position[rows] - position[columns])) > widest)


def entry_rows(kernel: sp.csr_array) -> Ints:
    """The row of each entry."""
    return np.repeat(np.arange(kernel.shape[0]), np.diff(kernel.indptr))


def restricted(kernel: sp.csr_array, rows: Bools, columns: Bools) -> sp.csr_array:
    """The entries in chosen rows and columns that are not zero, in an array of the same shape."""
    # By hand: products with diagonal arrays take ten times as long in a small one.
    own, size = entry_rows(kernel), kernel.shape[0]
    kept = rows[own] & columns[kernel.indices] & (kernel.data != 0)
    first = np.append(0, np.cumsum(np.bincount(own[kept], minlength=size)))
    return sp.csr_array((kernel.data[kept], kernel.indices[kept], first), shape=kernel.shape)


def discounted_solver(kernel: sp.csr_array, factor: float, is_dense: bool) -> Solver:
    """``x ↦ (I − factor·P)⁻¹ x``, factorised once."""
    size = kernel.shape[0]
    if is_dense:
        factors = scipy.linalg.lu_factor(np.eye(size) - factor * kernel.toarray())
        return lambda right: scipy.linalg.lu_solve(factors, right)
    # The rows of P are the columns of its transpose. By hand, a 1 before the entries of each, which SciPy adds up: its
    # own sum of two sparse arrays takes as long as eliminating in a small one.
    rows, first = entry_rows(kernel), kernel.indptr + np.arange(size + 1)
    data, indices = np.ones(kernel.nnz + size), np.empty(kernel.nnz + size, dtype=kernel.indices.dtype)
    places = np.arange(kernel.nnz) + rows + 1
    data[places], indices[places], indices[first[:-1]] = -factor * kernel.data, kernel.indices, np.arange(size)
    matrix = sp.csc_array((data, indices, first), shape=(size, size))
    matrix.sum_duplicates()
    is_banded = np.max(np.abs(kernel.indices - rows), initial=0) <= BANDED * math.sqrt(size)
    # Rows have few entries: looking for columns that are alike costs more than it saves (`benchmarks/alternatives.py`).
    order = "NATURAL" if is_banded else "COLAMD"
    factorised = scipy.sparse.linalg.splu(matrix, permc_spec=order, relax=1, panel_size=8)
    return lambda right: factorised.solve(right, trans="T")


FEW = 4  # entries of a row, on average


class MeanReturns(NamedTuple):
    """E Z(s,a) under a policy."""

    mean: Floats  # [S, A]; NaN where an action is not available
    error: float
    """Guaranteed bound on the error of each."""


def mean_returns(model: JointMDP, policy: Any) -> MeanReturns:
    """The mean return of every action, followed by `policy`; nothing of how returns go together.

    For a discount below 1. `evaluate` gives the same means, and all that this library is for.
    """
    g, chosen = model.discount, as_policy(model, policy)
    if g == 1:
        raise ModelError("discount is 1: evaluate(...).mean knows the means where every return comes to an end")
    ordinary = model.marginal_mdp()
    available = None if model.available.all() else model.available
    gains = ordinary.rewards if available is None else np.where(available, ordinary.rewards, 0.0)
    r = np.einsum("sa,sa->s", chosen, gains)
    kernel = _under(ordinary.kernel, chosen)
    # Looking for a good order costs as much as eliminating in a matrix with few entries.
    v = discounted_solver(kernel, g, kernel.nnz > FEW * len(r) and fills_in(kernel))(r)
    mean = gains + g * (ordinary.kernel @ v).reshape(gains.shape)
    size = model.reward_bound + float(np.abs(v).max())
    rounding = 4 * (2 * model.num_scenarios + model.num_actions + 8) * UNIT * size
    left = float(np.max(np.abs(np.einsum("sa,sa->s", chosen, mean) - v))) + rounding
    if available is not None:
        mean[~available] = np.nan
    return MeanReturns(mean, g * left / (1 - g) + rounding)


def _under(kernel: sp.csr_array, policy: Floats) -> sp.csr_array:
    """P(s'|s) under a policy, from P(s'|s,a) in rows s·A + a."""
    rows = np.flatnonzero(policy)
    if len(rows) == len(policy):  # one action in each state; SciPy's own choice of rows takes longer in small models
        begins, lengths = kernel.indptr[rows], kernel.indptr[rows + 1] - kernel.indptr[rows]
        first = np.concatenate([[0], np.cumsum(lengths)])
        places = np.arange(first[-1]) + np.repeat(begins - first[:-1], lengths)
        return sp.csr_array((kernel.data[places], kernel.indices[places], first), shape=(len(policy), kernel.shape[1]))
    states = rows // policy.shape[1]
    weights = sp.csr_array((policy.ravel()[rows], (states, rows)), shape=(len(policy), kernel.shape[0]))
    return weights @ kernel
