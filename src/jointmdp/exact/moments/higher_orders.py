"""One step of one branch or two, in powers: what it adds to moments of any order, and to their errors.

The moments h_k of a gap about a potential obey h_k = Σ_j C(k,j) γʲ E[d^{k−j} h_j], where d is the difference of two
surpluses (see `bellman.higher_moments`). What is computed misses the truth by e_k with

    e_k ≤ r_k + ρ_k + Σ_{1≤j<k} C(k,j) γʲ E[|d|^{k−j} e_j] + γᵏ E[e_k],

pair by pair: r_k is the residual, e_1 comes from the means, whose values the potential takes, and ρ_k is the rounding
of one backup in float64. There d is itself off by at most η, which moves the backup by kη times that of order k−1 in
absolute values, and sums of n products are off by n·u·Σ|terms|. Every function that satisfies the inequality with "≥"
bounds the error, pair by pair. Moments of one branch obey the same with d its surplus.

Moments of order above two: of one branch, of the gap between two, and of two together.

Every order is one linear solve (or one backward sweep) with the pair kernel at factor γᵏ; what it adds comes from the
orders below. Gap moments have their own recursion, about a potential near the values, so nothing large is subtracted
where shared noise leaves little of a gap.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax import Array

from jointmdp.exact.bellman import higher_moments, pair_sweep
from jointmdp.exact.bellman.higher_moments import Steps
from jointmdp.exact.bellman.pair_sweep import PairKernel, PairProblem, Source
from jointmdp.exact.moments import pair_solver
from jointmdp.exact.moments.certificates import StateErrors, Status, pair_operations, supersolution
from jointmdp.exact.moments.pair_solver import Solve, pair_bounds
from jointmdp.exact.moments.single_branch import Solver, discounted_solver
from jointmdp.ground.arrays import UNIT, Floats, Ints, on_device
from jointmdp.ground.errors import ConvergenceWarning, ModelError
from jointmdp.ground.progress import Meter
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.policies import at_time
from jointmdp.model.tables import policy_kernel

ROOM = 1e-6  # relative room that pays for computing the bounds themselves in float64

_gap_apart = jax.jit(higher_moments.gap_apart)
_parted = jax.jit(pair_sweep.parted)


@jax.jit
def _weighted(kernel: PairKernel, steps: Steps, left: Array, right: Array, C: Array) -> Array:
    """Σ_g p(g) P_g⁽ˡ⁾ C P_g⁽ʳ⁾ᵀ for kernels weighted by the factors `left` and `right`."""
    one, other = (higher_moments.weigh(kernel, steps, factor) for factor in (left, right))
    return pair_sweep.between(kernel, one, other, C)


def power_operations(scenarios: int, actions: int, order: int) -> int:
    """Rounding errors in one backup of a moment: its sums, its powers, and the terms of the binomial theorem."""
    return pair_operations(scenarios, actions) + 4 * (order + 1) ** 2


class Layout:
    """A model and a policy, as steps of one branch and of two read them."""

    def __init__(
        self, model: JointMDP, policy: Floats, rewards: Floats, order: int, reward_sizes: Floats | None = None
    ) -> None:
        sizes = np.abs(rewards) if reward_sizes is None else reward_sizes
        self.model, self.policy, self.paid, self.order, self.discount = model, policy, rewards, order, model.discount
        self.is_shared = model.sharing != "none"
        actions, choice = pair_sweep.policy_support(policy)
        # Of the actions that the policy may take, [S, W, M] each.
        self.rewards, self.reward_sizes, self.successors = (
            np.take_along_axis(each, actions[:, None, :], axis=2) for each in (rewards, sizes, model.successors)
        )
        self.kernel = pair_sweep.pair_kernel(model, policy, may_merge=False)
        self.groups = self.kernel.chances.shape[0]
        self.matrix = policy_kernel(model, policy)
        self.chance: Floats = model.probabilities[:, :, None] * choice[:, None, :]  # [S, W, M]
        self.ties: Floats = self.chance * choice[:, None, :]
        self.relative = power_operations(model.num_scenarios, choice.shape[1], order) * UNIT
        if self.is_shared:
            given = np.broadcast_to(choice[:, None, :], self.chance.shape) if self.groups > 1 else self.chance
            self.steps = Steps(on_device(given), on_device(self._places(model).astype(np.int32)))

    def at(self, policy: Floats, t: int) -> "Layout":
        """That of step t, where the policy depends on time."""
        return self if policy.ndim == 2 else Layout(self.model, policy[t], self.paid, self.order)

    @property
    def both(self) -> tuple[Ints, Ints]:
        """Where two branches in one state go, ``[S, W, M, M]``."""
        return self.successors[:, :, :, None], self.successors[:, :, None, :]

    def problem(self, same: Floats, cross: Floats, k: int) -> PairProblem:
        """The recursion of a moment of order k: the unknown is multiplied by γᵏ, and this is added."""
        added = Source(on_device(same), on_device(cross))
        return PairProblem(self.kernel, added, jnp.asarray(math.sqrt(self.discount**k)))

    def _places(self, model: JointMDP) -> Ints:
        """Where the rows of the pair kernel hold each successor."""
        if self.kernel.columns is None:
            return self.successors
        if model.sharing == "time":
            return np.broadcast_to(np.arange(self.successors.shape[2]), self.successors.shape)
        size, rows = model.num_states, np.arange(model.num_states)[:, None, None]
        held = np.repeat(np.arange(size), np.diff(self.matrix.indptr)) * size + self.matrix.indices
        found = np.searchsorted(held, rows * size + self.successors) - self.matrix.indptr[rows]
        return np.where(self.chance > 0, found, 0)  # outcomes that never happen have no place, and no weight


class Step:
    """One step about potentials: v after it, and `now` before it."""

    def __init__(self, layout: Layout, v: Floats, now: Floats) -> None:
        self.layout = layout
        later, here = layout.discount * v[layout.successors], now[:, None, None]
        e = np.where(layout.chance > 0, layout.rewards + later - here, 0.0)
        exponents = np.arange(layout.order + 1)[:, None, None, None]
        self.powers: Floats = e[None] ** exponents  # [n+1, S, W, M]
        size = np.where(layout.chance > 0, layout.reward_sizes + np.abs(later) + np.abs(here), 0.0)
        self.off: Floats = 4 * UNIT * np.max(size, axis=(1, 2))  # [S] η(s), by which rounding moves e
        self.sizes: Floats = (np.abs(e) + self.off[:, None, None])[None] ** exponents

    def _coefficients(self, k: int) -> Floats:
        """C(k,j) γʲ, ``[n+1]``."""
        return np.array([math.comb(k, j) * self.layout.discount**j for j in range(self.layout.order + 1)])

    def _branch(self, k: int, x: Floats, powers: Floats, weights: Floats, top: int) -> Floats:
        """Σ_{j≤top} C(k,j) γʲ E[f^{k−j} x_j(S')], with powers of f and outcomes weighted as given, ``[S]``."""
        to, factors = self.layout.successors, self._coefficients(k)[: top + 1]
        terms = (f * np.einsum("swm,swm->s", weights, powers[k - j] * x[j][to]) for j, f in enumerate(factors))
        return sum(terms, np.zeros(x.shape[1]))

    def branch(self, k: int, c: Floats, top: int) -> Floats:
        """What the moments of one branch up to order `top` add to c_k one step earlier, ``[S]``."""
        return self._branch(k, c, self.powers, self.layout.chance, top)

    def branch_error(self, k: int, errors: Floats, c: Floats) -> Floats:
        """What errors of the moments ``c`` and one backup's rounding make of the error of c_k, ``[S]``."""
        size, chance = np.abs(c), self.layout.chance
        later = self._branch(k, errors + self.layout.relative * size, self.sizes, chance, k)
        return later + k * self.off * self._branch(k - 1, size, self.sizes, chance, k - 1)

    def branch_before(self, c: Floats) -> Floats:
        """The moments ``c`` of one branch, one step earlier."""
        return np.stack([c[0], c[1], *(self.branch(k, c, k) for k in range(2, len(c)))])

    def _gap(self, k: int, coefficients: Floats, X: Floats, is_size: bool) -> tuple[Floats, Floats]:
        """Σ_{j≤k} c_j E[d^{k−j} X_j(S',T')] of branches in distinct states, ``[S, S]``, and in one, ``[S]``.

        X_j(t,s) is (−1)ʲ X_j(s,t), and d is e − ẽ; with `is_size` X_j(t,s) is X_j(s,t), and d is |e − ẽ| + 2η. Branches
        that are independent have (e−ẽ)ᵐ = Σ_l C(m,l) eˡ (−ẽ)^{m−l}, where the terms l and m−l are each other's
        transposes but for the sign (−1)ᵐ; there |d| is |e| + |ẽ| + 2η, so that rounding is covered too.
        """
        layout, e, sign = self.layout, self.powers[1], 1 if is_size else -1
        if layout.groups > 1:
            half = np.asarray(_gap_apart(layout.kernel, e, self.off if is_size else None, coefficients, X, k)) / 2
        else:
            half, powers = np.zeros(X.shape[1:]), self.sizes if is_size else self.powers
            for j in np.flatnonzero(coefficients[: k + 1] * X[: k + 1].any(axis=(1, 2))).tolist():
                m = k - j
                for low in range(m // 2 + 1):
                    factor = coefficients[j] * math.comb(m, low) * sign ** (m - low) * (0.5 if 2 * low == m else 1.0)
                    half += factor * np.asarray(
                        _weighted(layout.kernel, layout.steps, powers[low], powers[m - low], X[j])
                    )
        d = e[:, :, :, None] - e[:, :, None, :]
        d = np.abs(d) + 2 * self.off[:, None, None, None] if is_size else d
        met = np.zeros_like(d)
        for j in range(k + 1):
            met = met * d + coefficients[j] * X[j][layout.both]
        return half + sign**k * half.T, np.asarray(_parted(layout.kernel, met))

    def gap(self, k: int, H: Floats) -> PairProblem:
        """The recursion of h_k, given H = (h_0, h_1, …), ``[n+1, S, S]``."""
        coefficients = self._coefficients(k)
        coefficients[k] = 0.0  # the unknown itself
        apart, met = self._gap(k, coefficients, H, is_size=False)
        # Odd powers of a difference of two that are alike have mean zero.
        return self.layout.problem(np.zeros_like(met) if k % 2 else met, apart, k)

    def gap_size(self, k: int, X: Floats) -> Floats:
        """Σ_{j≤k} C(k,j) γʲ E[(|d|+2η)^{k−j} X_j(S',T')] for symmetric X ≥ 0, ``[S, S]``."""
        apart, met = self._gap(k, self._coefficients(k), X, is_size=True)
        np.fill_diagonal(apart, met)
        return apart

    def gap_error(self, k: int, errors: Floats, H: Floats) -> Floats:
        """What errors of H and one backup's rounding make of the error of h_k, ``[S, S]``."""
        size = np.abs(H)
        size = np.maximum(size, np.swapaxes(size, 1, 2))
        by_off = k * (self.off[:, None] + self.off[None, :])
        return self.gap_size(k, errors + self.layout.relative * size) + by_off * self.gap_size(k - 1, size)

    def joint(self, i: int, j: int, c: Floats, held: Callable[[int, int], Floats]) -> PairProblem:
        """The recursion of c_ij, given one-branch moments ``c`` and the c_kl of lower order."""
        layout, powers = self.layout, self.powers
        states = c.shape[1]
        cross, same = np.zeros((states, states)), self._branch(i + j, c, powers, layout.ties, i + j)
        for k in range(i + 1):
            for m in range(j + 1):
                if k + m in (1, i + j):
                    continue  # means vanish about the values, and c_ij itself is the unknown
                factor = math.comb(i, k) * math.comb(j, m) * layout.discount ** (k + m)
                left, right, C = powers[i - k], powers[j - m], held(k, m)
                cross += factor * np.asarray(_weighted(layout.kernel, layout.steps, left, right, C))
                met = left[:, :, :, None] * right[:, :, None, :] * C[layout.both]
                same += factor * np.asarray(_parted(layout.kernel, met))
        return layout.problem(same, cross, i + j)


AMPLE = 4.0  # as in `pair_solver`; errors of one order go into all that follow
HIGHER_RESIDUAL_SHARE = 1e-4  # of the tolerance: sweeps are cheap, so answers are better than what is promised


@dataclass(frozen=True, eq=False)
class HigherMoments:
    """Moments on states up to `order`, about the values v."""

    order: int
    branch: Floats  # [n+1, S] c_i(s), one branch
    gaps: Floats  # [n+1, P, P] h_k(s,t), two branches; P is 1 where distinct coordinates are independent
    errors: Floats  # [n+1, S, P] of h_k(s,t); where P is 1, of c_k(s)
    horizon: int | None = None


def _solve_order(  # many parameters: a recursion of some order, and how to solve it
    layout: Layout,
    problem: PairProblem,
    k: int,
    parity: int,
    method: Solve,
    meter: Meter,
    scale: float = 0.0,
    start: Floats | None = None,
) -> tuple[Floats, Floats, int, bool]:
    """The moment of order k, its residual, ``[S, S]`` each, the sweeps taken, and whether they were enough.

    It is solved to a residual relative to what is added and to `scale`, or to what rounding leaves.
    """
    factor, added = layout.discount**k, np.array(problem.added.cross)
    np.fill_diagonal(added, problem.added.same)
    size = float(np.max(np.abs(added)))
    share = HIGHER_RESIDUAL_SHARE * method.relative_tolerance * max(size, scale) * (1 - factor)

    def aim(largest: float) -> float:
        return max(share, pair_solver.FLOOR_SHARE * layout.relative * (size + largest))

    first, most = on_device(added if start is None else start), size / (1 - factor)
    found, done = pair_solver.solve_to_rounding(problem, first, most, aim, method, meter, parity)
    values = np.asarray(found)
    residual = np.abs(_swept(problem, values) - values)
    return values, residual, done, bool(np.max(residual) <= 2 * aim(float(np.max(np.abs(values)))))


def _swept(problem: PairProblem, values: Floats) -> Floats:
    """One sweep of a recursion."""
    return np.asarray(pair_solver.sweeps(problem, on_device(values), 1)[0])


def solve_higher(
    errors: StateErrors, policy: Floats, D: Floats, order: int, method: Solve
) -> tuple[HigherMoments, int, bool]:
    """Moments of one branch and of gaps up to `order`; how many sweeps they took, and whether all came as far as asked.

    `D` holds the variances of gaps.
    """
    model, state = errors.model, errors.single.state
    layout = Layout(model, policy, state.rewards, order, state.sizes)
    step = Step(layout, errors.v, errors.v)
    factors = [layout.discount**i for i in range(3, order + 1)]
    solvers = [errors.single.solve_squared, *(discounted_solver(state.kernel, f, state.is_dense) for f in factors)]
    c, branch_errors = _solve_branch(layout, step, state.kernel, solvers, errors.values.alone)
    if not layout.is_shared:
        return HigherMoments(order, c, np.zeros((order + 1, 1, 1)), branch_errors[:, :, None]), 0, True
    size, here = model.num_states, np.arange(model.num_states)
    H, off = np.zeros((2, order + 1, size, size))
    H[0] = 1.0
    off[1] = errors.values.between(here[:, None], here[None, :])
    np.fill_diagonal(off[1], 0.0)
    sweeps, is_reached = 0, True
    scale = float(np.max(np.abs(D)))
    with Meter("higher moments") as meter:
        for k in range(2, order + 1):
            problem, near = step.gap(k, H), D if k == 2 else None
            parity = -1 if k % 2 else 1
            H[k], residual, taken, is_done = _solve_order(
                layout, problem, k, parity, method, meter, scale ** (k / 2), near
            )
            # Rounding need not respect symmetry.
            local = step.gap_error(k, off, H) + np.maximum(residual, residual.T)
            rho, solver = on_device((1 + ROOM) * np.maximum(local, local.T)), solvers[k - 2]
            off[k] = pair_bounds(problem, rho, errors, solver, layout.relative, taken, method, meter, AMPLE)
            sweeps, is_reached = sweeps + taken, is_reached and is_done
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
        added = step.branch(i, c, i - 1)
        c[i] = solver(added)
        c[i] += solver(added + g**i * (P @ c[i]) - c[i])
        local = step.branch_error(i, errors, c) + np.abs(added + g**i * (P @ c[i]) - c[i])
        errors[i] = (1 + ROOM) * supersolution(P, g**i, solver, local, layout.relative)
    return c, errors


class BackwardSweeps:
    """Backward sweeps of all orders, one step at a time."""

    def __init__(self, model: JointMDP, policy: Floats, order: int) -> None:
        self.policy, self.layout = policy, Layout(model, at_time(policy, 0), model.paid_rewards, order)
        size = model.num_states
        pairs = size if self.layout.is_shared else 1
        self.c, self.errors = np.zeros((order + 1, size)), np.zeros((order + 1, size, pairs))
        self.c[0] = 1.0
        self.H = np.zeros((order + 1, pairs, pairs))
        self.H[0] = 1.0

    def step(self, t: int, v: Floats, now: Floats, value_error: float) -> None:
        """One more step in front, at time t: values go from v to `now`, which are off by at most `value_error`."""
        self.layout = layout = self.layout.at(self.policy, t)
        order = layout.order
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

    def __init__(  # many parameters: a model and a policy, by time or not, and what is held
        self, layout: Layout, policy: Floats, v: Floats, C: Floats, higher: HigherMoments, method: Solve
    ) -> None:
        self.layout, self.model, self.v, self.higher, self.method = layout, layout.model, v, higher, method
        self.policy = policy
        self.found: dict[tuple[int, int], Floats] = {(1, 1): C}

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
            parity = 1 if i == j else 0
            self.found[i, j], _, _, is_reached = _solve_order(self.layout, problem, i + j, parity, self.method, meter)
        if not is_reached:
            warnings.warn(Status.STEP_LIMIT.value, ConvergenceWarning, stacklevel=5)

    def _sweep_back(self, horizon: int) -> None:
        """All c_ij over the horizon; they need the values of every step on the way."""
        layout, order, size = self.layout, self.higher.order, self.model.num_states
        asked = [(i, total - i) for total in range(2, order + 1) for i in range(1, total // 2 + 1)]
        c = np.zeros((order + 1, size))
        c[0] = 1.0
        found = {key: np.zeros((size, size)) for key in asked}
        v = np.zeros(size)
        with Meter("joint moments") as meter:
            for done in range(horizon - 1):
                layout = layout.at(self.policy, horizon - 1 - done)
                b = layout.paid + layout.discount * v[self.model.successors]
                now = np.sum(layout.policy * np.einsum("sw,swa->sa", self.model.probabilities, b), axis=1)
                step = Step(layout, v, now)
                held = partial(_held, c=c, found=found)
                found = {key: _swept(step.joint(*key, c, held), found[key]) for key in asked}
                c, v = step.branch_before(c), now
                meter.update((done + 1) / horizon, f"step {done + 1} of {horizon}")
        self.found = found

    def central(self, i: int, j: int) -> Floats:
        """E[(Z(s,a)−m(s,a))ⁱ (Z(s,b)−m(s,b))ʲ], ``[S, A, A]``: one backup of the moments on states."""
        model, g = self.model, self.model.discount
        p, n, branch = model.probabilities, model.successors, self.higher.branch
        outcome = self.layout.paid + g * self.v[n]
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
                    factor = math.comb(i, k) * math.comb(j, m) * g ** (k + m)
                    later = self(k, m)[n[:, :, :, None], n[:, :, None, :]]
                    powers = surplus ** (i - k), surplus ** (j - m)
                    blocks += factor * np.einsum("sw,swa,swb,swab->sab", p, *powers, later)
        actions = np.arange(model.num_actions)
        blocks[:, actions, actions] = alone(i + j)
        return blocks


def _held(i: int, j: int, c: Floats, found: dict[tuple[int, int], Floats]) -> Floats:
    """c_ij from what is held: moments of one branch, and of two with i ≤ j."""
    if i > j:
        return _held(j, i, c, found).T
    return np.broadcast_to(c[j], (c.shape[1],) * 2) if i == 0 else found[i, j]
