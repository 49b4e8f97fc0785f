"""Moments of order above two: of one branch, and of the gap between two.

Every order is one linear solve (or one backward sweep) with the pair kernel of `bellman` at factor γᵏ; what it adds
comes from the orders below. Gap moments have a recursion of their own, about a potential near the values, so nothing
large is subtracted where shared luck leaves little of a gap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from jointmdp.arrays import UNIT, Floats, on_device
from jointmdp.bellman import second_moments
from jointmdp.bellman.second_moments import Source, Tables
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.moments import pair_solver, single_branch
from jointmdp.moments.certificates import mean_operations
from jointmdp.moments.higher_errors import ROOM, Known, about_mean, backed_up, difference, operations
from jointmdp.moments.power_steps import Layout, Step
from jointmdp.moments.state_certificates import supersolution
from jointmdp.progress import Meter

RESIDUAL_SHARE = 1e-4  # of the tolerance: sweeps are cheap, so answers are better than what is promised
WORTHWHILE = 0.75  # sweeps go on while a chunk of them makes a bound smaller by this factor


class Effort(NamedTuple):
    """How far a solve goes."""

    tolerance: float = 1e-6
    max_sweeps: int = 100_000
    is_accelerated: bool = True


@dataclass(frozen=True, eq=False)
class Higher:
    """Moments on states up to `order`, about the values v."""

    order: int
    branch: Floats  # [n+1, S] c_i(s), one branch
    gaps: Floats  # [n−1, P, P] h_k(s,t), two branches, k = 2, …, n; P is 1 where distinct coordinates are independent
    errors: (
        Floats  # [n+1, S] h_k(s,t) is off by at most the mean of those of s and t; P = 1: c_k(s) by at most that of s
    )
    horizon: int | None = None

    @cached_property
    def stack(self) -> Floats:
        """h_0 = 1, h_1 = 0, h_2, …, ``[n+1, P, P]``."""
        first = np.zeros((2, *self.gaps.shape[1:]))
        first[0] = 1.0
        return np.concatenate([first, self.gaps])


# -- an endless future -----------------------------------------------------------------------------------------


class Solved(NamedTuple):
    """A fixed point on pairs of states."""

    values: Floats  # [S, S]
    residual: Floats  # [S, S]
    sweeps: int
    is_reached: bool


def solve_order(
    layout: Layout,
    added: Source,
    k: int,
    parity: int,
    effort: Effort,
    meter: Meter,
    scale: float = 0.0,
    start: Floats | None = None,
) -> Solved:
    """h = source + γᵏ·(pair kernel) h, to a residual relative to source and `scale`, or to what rounding leaves."""
    assert added.cross is not None
    factor = layout.discount**k
    values = np.array(added.cross)
    np.fill_diagonal(values, added.same)
    size = float(np.max(np.abs(values)))
    values = values if start is None else start
    share, floor = (
        RESIDUAL_SHARE * effort.tolerance * max(size, scale) * (1 - factor),
        pair_solver.FLOOR_SHARE * layout.relative,
    )
    # The answer is at most size/(1−γᵏ), and rounding is relative to it: a first aim, until its size is known.
    aims = (lambda _: floor * size * (1 + 1 / (1 - factor)), lambda top: floor * (size + top))
    done, target = 0, 0.0
    residual = np.full_like(values, np.inf)
    for aim in aims:
        target = max(share, aim(float(np.max(np.abs(values)))))
        if np.max(residual) > target and done < effort.max_sweeps:
            left, root, first = effort.max_sweeps - done, _root(factor), on_device(values)
            found, taken = pair_solver.solve_pairs(
                layout.kernel, added, root, target, left, effort.is_accelerated, meter, first, parity
            )
            done += taken
            values = np.asarray(found)
            residual = np.abs(swept(layout, added, k, values) - values)
    return Solved(values, residual, done, bool(np.max(residual) <= 2 * target))


def _root(factor: float) -> Array:
    """What `bellman.sweep` takes for a discount, where the unknown is to be multiplied by `factor`."""
    return jnp.asarray(math.sqrt(factor))


def swept(layout: Layout, added: Source, k: int, values: Floats) -> Floats:
    """One sweep of the recursion of order k."""
    return np.asarray(pair_solver.sweeps(layout.kernel, added, _root(layout.discount**k), on_device(values), 1)[0])


def solve(
    model: JointMDP, tables: Tables, v: Array, CB: tuple[Array, Array], mean_errors: Floats, order: int, effort: Effort
) -> tuple[Higher, int, bool]:
    """Moments of one branch and of gaps up to `order`; how many sweeps they took, and whether all came as far as asked.

    `CB` holds the covariances of two branches and the variances of one, `mean_errors` [S, A] bounds the errors of one
    backup of v.
    """
    layout = Layout(model, tables, order)
    values = np.asarray(v)
    step = Step(layout, values, values)
    is_dense = single_branch.fills_in(layout.matrix)
    solvers = [
        single_branch.discounted_solver(layout.matrix, layout.discount**i, is_dense) for i in range(order + 1)[2:]
    ]
    first_errors = _value_errors(model, tables, values, mean_errors)
    c, branch_errors = _solve_branch(layout, step, solvers, first_errors)
    if not layout.is_shared:
        return Higher(order, c, np.zeros((order - 1, 1, 1)), branch_errors), 0, True
    size = model.num_states
    H = np.zeros((order + 1, size, size))
    H[0] = 1.0
    bounds = Bounds(step)
    bounds.errors[1] = 2 * first_errors
    sweeps, is_reached = 0, True
    C, B = (np.asarray(each) for each in CB)
    start = B[:, None] + B[None, :] - 2 * C
    scale = float(np.max(np.abs(start)))
    with Meter("higher moments") as meter:
        for k in range(2, order + 1):
            added = step.gap(k, H)
            near = start if k == 2 else None
            found = solve_order(layout, added, k, -1 if k % 2 else 1, effort, meter, scale ** (k / 2), near)
            H[k] = found.values
            bounds.add(k, found, solvers[k - 2])
            sweeps += found.sweeps
            is_reached &= found.is_reached
    return Higher(order, c, H[2:], bounds.errors), sweeps, is_reached


def _value_errors(model: JointMDP, tables: Tables, v: Floats, mean_errors: Floats) -> Floats:
    """Bounds on |v(s) − v*(s)|, through one backup of v."""
    m = np.asarray(second_moments.mean(tables, on_device(v)))
    policy = np.asarray(tables.policy)
    rounding = mean_operations(model.num_scenarios, model.num_actions) * UNIT * np.sum(policy * np.abs(m), axis=1)
    return np.abs(np.sum(policy * m, axis=1) - v) + np.sum(policy * mean_errors, axis=1) + rounding


def _solve_branch(
    layout: Layout, step: Step, solvers: list[single_branch.Solver], first_errors: Floats
) -> tuple[Floats, Floats]:
    """c_i = source + γⁱ P c_i for i = 2, …, n, and bounds on their errors."""
    order, g, P = layout.order, layout.discount, layout.matrix
    c, errors = np.zeros((2, order + 1, len(first_errors)))
    c[0], errors[1] = 1.0, first_errors
    for i in range(2, order + 1):
        solver = solvers[i - 2]
        added = step.branch(i, c, i - 1, layout.chance)
        c[i] = solver(added)
        c[i] += solver(added + g**i * (P @ c[i]) - c[i])
        size = np.abs(c)
        local = step.branch_size(i, errors + layout.relative * size)
        local += i * step.off * step.branch_size(i - 1, size)
        local += np.abs(added + g**i * (P @ c[i]) - c[i])
        errors[i] = (1 + ROOM) * supersolution(P, g**i, solver, local, layout.relative)
    return c, errors


class Bounds:
    """Errors of gap moments, order by order, as one number a state."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.errors = np.zeros((step.layout.order + 1, step.off.size))
        self.norms = np.zeros_like(self.errors)  # max_t |h_k(s,t)|
        self.norms[0] = 1.0

    def local(self, k: int) -> Floats:
        """What the errors so far and one backup's rounding make of the error of h_k, ``[S, S]``."""
        step, off = self.step, self.step.off
        unsure = self.errors + step.layout.relative * self.norms
        by_off = k * (off[:, None] + off[None, :])
        return step.gap_size(k, unsure) + by_off * step.gap_size(k - 1, self.norms)

    def add(self, k: int, found: Solved, solver: single_branch.Solver) -> None:
        """Bound the error of a solution of the recursion of order k."""
        layout = self.step.layout
        self.norms[k] = _rows(found.values)
        # Rounding need not respect symmetry; the split between s and t does.
        local = self.local(k) + np.maximum(found.residual, found.residual.T)
        factor = layout.discount**k
        shares = supersolution(layout.matrix, factor, solver, np.max(local, axis=1) / 2, layout.relative)
        # Branches that meet are one, which the shares of single states do not know and sweeps over pairs do.
        bound, kernel = on_device(shares[:, None] + shares[None, :]), layout.kernel
        added = Source(jnp.zeros((layout.groups, len(shares))), on_device(np.diagonal(local)), on_device(local))
        top, root = 2 * float(np.max(shares)), _root(factor)
        for _ in range(found.sweeps // (2 * pair_solver.CHUNK)):
            bound, _ = pair_solver.sweeps(kernel, added, root, bound, pair_solver.CHUNK)
            before, top = top, float(np.max(np.asarray(bound)))
            if top > WORTHWHILE * before:
                break
        self.errors[k] = (1 + ROOM) * _rows(np.asarray(bound))


def _rows(values: Floats) -> Floats:
    """max_t |f(s,t)| and max_t |f(t,s)|, whichever is larger, ``[S]``."""
    size = np.abs(values)
    return np.maximum(size.max(axis=0), size.max(axis=1))


# -- a horizon -------------------------------------------------------------------------------------------------


class Backward:
    """Backward sweeps of all orders, one step at a time."""

    def __init__(self, model: JointMDP, tables: Tables, order: int) -> None:
        self.layout = Layout(model, tables, order)
        size = model.num_states
        self.c, self.errors = np.zeros((2, order + 1, size))
        self.c[0] = 1.0
        self.H = np.zeros((order + 1, size, size) if self.layout.is_shared else (order + 1, 1, 1))
        self.H[0] = 1.0

    def step(self, v: Floats, now: Floats, value_error: float) -> None:
        """One more step in front: values go from v to `now`, which are off by at most `value_error`."""
        layout, order = self.layout, self.layout.order
        step = Step(layout, v, now)
        errors = np.zeros_like(self.errors)
        if layout.is_shared:
            bounds = Bounds(step)
            bounds.errors, bounds.norms = self.errors, np.stack([_rows(h) for h in self.H])
            after = [self.H[0], self.H[1]]
            errors[1] = 2 * value_error
            for k in range(2, order + 1):
                after.append(swept(layout, step.gap(k, self.H), k, self.H[k]))
                errors[k] = (1 + ROOM) * _rows(bounds.local(k))
            self.H = np.stack(after)
        else:
            size = np.abs(self.c)
            errors[1] = value_error
            for k in range(2, order + 1):
                by_off = k * step.off * step.branch_size(k - 1, size)
                errors[k] = (1 + ROOM) * (step.branch_size(k, self.errors + layout.relative * size) + by_off)
        moments = [step.branch(i, self.c, i, layout.chance) for i in range(2, order + 1)]
        self.c, self.errors = np.stack([self.c[0], self.c[1], *moments]), errors

    def finished(self, horizon: int) -> Higher:
        """The moments before the last sweep, which is the action-level backup."""
        return Higher(self.layout.order, self.c, self.H[2:], self.errors, horizon)


# -- the gap of two actions ------------------------------------------------------------------------------------


def gap_moments(
    model: JointMDP, tables: Tables, v: Floats, higher: Higher, gap: tuple[int, int, int], mean_errors: Floats
) -> Known:
    """Central moments of Z(s,a) − Z(s,b) for ``gap = (s, a, b)``: one backup of h; `mean_errors` are those of a and b.

    E(G−μ)ᵏ = Σ_j C(k,j) γʲ E_w[(ε_a−ε_b)^{k−j} h_j(S'_a,S'_b)],  ε_a = R_a + γ v(S'_a) − m(s,a).
    """
    s, *actions = gap
    g, p = model.discount, model.probabilities[s]
    rewards = np.asarray(tables.rewards[s])[:, actions]  # [W, 2]
    to = model.successors[s][:, actions]
    later = g * v[to]
    relative = operations(model.num_scenarios, 2, higher.order) * UNIT
    # Reward and value are off by roundings of their own, and so is the mean that is subtracted.
    off = (relative + 8 * UNIT) * np.max(np.abs(rewards) + np.abs(later), axis=0, where=p[:, None] > 0, initial=0.0)
    if model.sharing == "none":
        known = []
        for i in range(2):
            d = rewards[:, i] + later[:, i]
            d = np.where(p > 0, d - p @ d, 0.0)
            moments = higher.branch[:, to[:, i]]
            errors = higher.errors[:, to[:, i]]
            known.append(backed_up(p, d, moments, errors, off[i], relative, g, mean_errors[i]))
        found = difference(*known)
    else:
        d = rewards[:, 0] - rewards[:, 1] + (later[:, 0] - later[:, 1])
        d = np.where(p > 0, d - p @ d, 0.0)
        moments = higher.stack[:, to[:, 0], to[:, 1]]
        errors = (higher.errors[:, to[:, 0]] + higher.errors[:, to[:, 1]]) / 2
        found = backed_up(p, d, moments, errors, float(off.sum()), relative, g, float(mean_errors.sum()))
    return about_mean(found, float(mean_errors.sum()))
