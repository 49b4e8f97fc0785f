"""Moments of order above two: of one branch, of the gap between two, and of two together.

Every order is one linear solve (or one backward sweep) with the pair kernel at factor γᵏ; what it adds comes from the
orders below. Gap moments have their own recursion, about a potential near the values, so nothing large is subtracted
where shared noise leaves little of a gap.
"""

import math
import warnings
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from jax import Array

from jointmdp.arrays import UNIT, Floats, on_device
from jointmdp.bellman import second_moments
from jointmdp.bellman.second_moments import PairProblem, Tables
from jointmdp.errors import ConvergenceWarning, ModelError, Status
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.moments import pair_solver
from jointmdp.moments.certificates import StateErrors, mean_operations
from jointmdp.moments.gap_variances import pair_bounds
from jointmdp.moments.local_errors import supersolution
from jointmdp.moments.pair_solver import Solve
from jointmdp.moments.power_steps import ROOM, Layout, Step
from jointmdp.moments.single_branch import Solver, discounted_solver
from jointmdp.progress import Meter

AMPLE = 4.0  # as in `gap_variances`; errors of one order go into all that follow
HIGHER_RESIDUAL_SHARE = 1e-4  # of the tolerance: sweeps are cheap, so answers are better than what is promised


@dataclass(frozen=True, eq=False)
class HigherMoments:
    """Moments on states up to `order`, about the values v."""

    order: int
    branch: Floats  # [n+1, S] c_i(s), one branch
    gaps: Floats  # [n+1, P, P] h_k(s,t), two branches; P is 1 where distinct coordinates are independent
    errors: Floats  # [n+1, S, P] of h_k(s,t); where P is 1, of c_k(s)
    horizon: int | None = None


class PairFixedPoint(NamedTuple):
    """A moment that solves its recursion on pairs of states."""

    values: Floats  # [S, S]
    residual: Floats  # [S, S]
    sweeps: int
    is_reached: bool


def _solve_order(
    layout: Layout,
    problem: PairProblem,
    k: int,
    parity: int,
    method: Solve,
    meter: Meter,
    scale: float = 0.0,
    start: Floats | None = None,
) -> PairFixedPoint:
    """The moment of order k, to a residual relative to what is added and to `scale`, or to what rounding leaves."""
    assert problem.added.cross is not None
    factor = layout.discount**k
    values = np.array(problem.added.cross)
    np.fill_diagonal(values, problem.added.same)
    size = float(np.max(np.abs(values)))
    values = values if start is None else start
    share = HIGHER_RESIDUAL_SHARE * method.relative_tolerance * max(size, scale) * (1 - factor)
    floor = pair_solver.FLOOR_SHARE * layout.relative
    # The answer is at most size/(1−γᵏ), and rounding is relative to it: a first aim, until its size is known.
    aims = (lambda _: floor * size * (1 + 1 / (1 - factor)), lambda top: floor * (size + top))
    done, target = 0, 0.0
    residual = np.full_like(values, np.inf)
    for aim in aims:
        target = max(share, aim(float(np.max(np.abs(values)))))
        if np.max(residual) > target and done < method.max_sweeps:
            left, first = method.max_sweeps - done, on_device(values)
            found, taken = pair_solver.solve_pairs(problem, target, left, method.is_accelerated, meter, first, parity)
            done += taken
            values = np.asarray(found)
            residual = np.abs(_swept(problem, values) - values)
    return PairFixedPoint(values, residual, done, bool(np.max(residual) <= 2 * target))


def _swept(problem: PairProblem, values: Floats) -> Floats:
    """One sweep of a recursion."""
    return np.asarray(pair_solver.sweeps(problem, on_device(values), 1)[0])


def solve_higher(
    errors: StateErrors, tables: Tables, v: Array, D: Array, order: int, method: Solve
) -> tuple[HigherMoments, int, bool]:
    """Moments of one branch and of gaps up to `order`; how many sweeps they took, and whether all came as far as asked.

    `errors` are those of the values v, and `D` holds the variances of gaps.
    """
    model, state = errors.model, errors.single.state
    layout = Layout(model, tables, order, state.sizes)
    values = np.asarray(v)
    step = Step(layout, values, values)
    factors = [layout.discount**i for i in range(3, order + 1)]
    solvers = [errors.single.solve_squared, *(discounted_solver(state.kernel, f, state.is_dense) for f in factors)]
    # v was averaged over actions once more, on the device.
    means = np.sum(np.asarray(tables.policy) * np.abs(errors.single.mean), axis=1)
    again = mean_operations(model.num_scenarios, model.num_actions) * UNIT * means
    c, branch_errors = _solve_branch(layout, step, state.kernel, solvers, errors.values.alone + again)
    if not layout.is_shared:
        return HigherMoments(order, c, np.zeros((order + 1, 1, 1)), branch_errors[:, :, None]), 0, True
    size, here = model.num_states, np.arange(model.num_states)
    H, off = np.zeros((2, order + 1, size, size))
    H[0] = 1.0
    off[1] = errors.values.between(here[:, None], here[None, :]) + again[:, None] + again[None, :]
    np.fill_diagonal(off[1], 0.0)
    sweeps, is_reached = 0, True
    start = np.asarray(D)
    scale = float(np.max(np.abs(start)))
    with Meter("higher moments") as meter:
        for k in range(2, order + 1):
            problem, near = step.gap(k, H), start if k == 2 else None
            found = _solve_order(layout, problem, k, -1 if k % 2 else 1, method, meter, scale ** (k / 2), near)
            H[k] = found.values
            # Rounding need not respect symmetry.
            local = step.gap_error(k, off, H) + np.maximum(found.residual, found.residual.T)
            rho, solver = on_device((1 + ROOM) * np.maximum(local, local.T)), solvers[k - 2]
            off[k] = pair_bounds(problem, rho, errors, solver, layout.relative, found.sweeps, method, meter, AMPLE)
            sweeps += found.sweeps
            is_reached &= found.is_reached
    return HigherMoments(order, c, H, off), sweeps, is_reached


def _solve_branch(
    layout: Layout, step: Step, P: sp.csr_array, solvers: list[Solver], first_errors: Floats
) -> tuple[Floats, Floats]:
    """c_i = source + γⁱ P c_i for i = 2, …, n, and bounds on their errors."""
    order, g = layout.order, layout.discount
    c, errors = np.zeros((2, order + 1, len(first_errors)))
    c[0], errors[1] = 1.0, first_errors
    for i in range(2, order + 1):
        solver = solvers[i - 2]
        added = step.branch(i, c, i - 1, layout.chance)
        c[i] = solver(added)
        c[i] += solver(added + g**i * (P @ c[i]) - c[i])
        local = step.branch_error(i, errors, c) + np.abs(added + g**i * (P @ c[i]) - c[i])
        errors[i] = (1 + ROOM) * supersolution(P, g**i, solver, local, layout.relative)
    return c, errors


class BackwardSweeps:
    """Backward sweeps of all orders, one step at a time."""

    def __init__(self, model: JointMDP, tables: Tables, order: int) -> None:
        self.layout = Layout(model, tables, order)
        size = model.num_states
        pairs = size if self.layout.is_shared else 1
        self.c, self.errors = np.zeros((order + 1, size)), np.zeros((order + 1, size, pairs))
        self.c[0] = 1.0
        self.H = np.zeros((order + 1, pairs, pairs))
        self.H[0] = 1.0

    def step(self, v: Floats, now: Floats, value_error: float) -> None:
        """One more step in front: values go from v to `now`, which are off by at most `value_error`."""
        layout, order = self.layout, self.layout.order
        step = Step(layout, v, now)
        errors = np.zeros_like(self.errors)
        if layout.is_shared:
            after = [self.H[0], self.H[1]]
            errors[1] = 2 * value_error
            for k in range(2, order + 1):
                after.append(_swept(step.gap(k, self.H), self.H[k]))
                errors[k] = (1 + ROOM) * step.gap_error(k, self.errors, self.H)
            self.H = np.stack(after)
        else:
            errors[1] = value_error
            for k in range(2, order + 1):
                errors[k, :, 0] = (1 + ROOM) * step.branch_error(k, self.errors[:, :, 0], self.c)
        self.c, self.errors = step.branch_before(self.c), errors

    def finished(self, horizon: int) -> HigherMoments:
        """The moments before the last sweep, which is the action-level backup."""
        return HigherMoments(self.layout.order, self.c, self.H, self.errors, horizon)


class JointPowers:
    """c_ij = E[(Z(s,A)−v(s))ⁱ (Z(t,B)−v(t))ʲ] for two branches anywhere, each computed when first asked for."""

    def __init__(
        self, model: JointMDP, tables: Tables, v: Array, C: Array, higher: HigherMoments, method: Solve
    ) -> None:
        self.model, self.tables, self.higher, self.method = model, tables, higher, method
        self.v = np.asarray(v)
        self.layout = Layout(model, tables, higher.order)
        self.found: dict[tuple[int, int], Floats] = {(1, 1): np.asarray(C)}

    def __call__(self, i: int, j: int) -> Floats:
        """c_ij, ``[S, S]``."""
        if min(i, j) > 0 and (min(i, j), max(i, j)) not in self.found:
            self._check_size(i, j)
            if self.higher.horizon is None:
                self._solve(min(i, j), max(i, j))
            else:
                self._sweep_back(self.higher.horizon)
        return _held(i, j, self.higher.branch, self.found)

    def _check_size(self, i: int, j: int) -> None:
        arrays = i * j if self.higher.horizon is None else self.higher.order**2 // 2
        size = self.model.num_states
        if arrays * size**2 > pair_solver.PAIR_LIMIT:
            raise ModelError(
                f"moments of order {i} and {j} of two returns take {arrays} arrays of {size:,}² numbers"
                f", more than the {pair_solver.PAIR_LIMIT:,} numbers that fit; gaps have moments of the same order"
            )

    def _solve(self, i: int, j: int) -> None:
        # Asks for those of lower order, which are solved first.
        problem = Step(self.layout, self.v, self.v).joint(i, j, self.higher.branch, self)
        with Meter(f"joint moments of order {i} and {j}") as meter:
            found = _solve_order(self.layout, problem, i + j, 1 if i == j else 0, self.method, meter)
        if not found.is_reached:
            warnings.warn(Status.STEP_LIMIT.value, ConvergenceWarning, stacklevel=5)
        self.found[i, j] = found.values

    def _sweep_back(self, horizon: int) -> None:
        """All c_ij over the horizon; they need the values of every step on the way."""
        order, size = self.higher.order, self.model.num_states
        asked = [(i, total - i) for total in range(2, order + 1) for i in range(1, total // 2 + 1)]
        c = np.zeros((order + 1, size))
        c[0] = 1.0
        found = {key: np.zeros((size, size)) for key in asked}
        v = np.zeros(size)
        with Meter("joint moments") as meter:
            for done in range(horizon - 1):
                now = np.asarray(second_moments.state_mean(self.tables, second_moments.mean(self.tables, on_device(v))))
                step = Step(self.layout, v, now)
                held = partial(_held, c=c, found=found)
                found = {key: _swept(step.joint(*key, c, held), found[key]) for key in asked}
                c, v = step.branch_before(c), now
                meter.update((done + 1) / horizon, f"step {done + 1} of {horizon}")
        self.found = found

    def central(self, i: int, j: int) -> Floats:
        """E[(Z(s,a)−m(s,a))ⁱ (Z(s,b)−m(s,b))ʲ], ``[S, A, A]``: one backup of the moments on states."""
        model, g = self.model, self.model.discount
        p, n, branch = model.probabilities, model.successors, self.higher.branch
        outcome = np.asarray(self.tables.rewards) + g * self.v[n]
        surplus = outcome - np.einsum("sw,swa->sa", p, outcome)[:, None, :]

        def alone(k: int) -> Floats:
            terms = (math.comb(k, m) * g**m * surplus ** (k - m) * branch[m][n] for m in range(k + 1))
            return np.einsum("sw,swa->sa", p, sum(terms))

        if not self.layout.is_shared or i == 0 or j == 0:
            blocks = alone(i)[:, :, None] * alone(j)[:, None, :]
        else:
            blocks = np.zeros((model.num_states, model.num_actions, model.num_actions))
            for k in range(i + 1):
                for m in range(j + 1):
                    if k + m == 1:
                        continue
                    factor, c = math.comb(i, k) * math.comb(j, m) * g ** (k + m), self(k, m)
                    for w in range(model.num_scenarios):
                        powers = surplus[:, w, :, None] ** (i - k) * surplus[:, w, None, :] ** (j - m)
                        later = c[n[:, w, :, None], n[:, w, None, :]]
                        blocks += factor * p[:, w, None, None] * powers * later
        actions = np.arange(model.num_actions)
        blocks[:, actions, actions] = alone(i + j)
        return blocks


def _held(i: int, j: int, c: Floats, found: dict[tuple[int, int], Floats]) -> Floats:
    """c_ij from what is held: moments of one branch, and of two with i ≤ j."""
    if i > j:
        return _held(j, i, c, found).T
    return np.broadcast_to(c[j], (c.shape[1],) * 2) if i == 0 else found[i, j]
