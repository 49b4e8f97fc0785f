"""How true an answer is: error bounds computed from the answer alone, whatever method produced it.

A certificate applies the exact operator once to what is to be certified and turns the residual into an error bound by
contraction. Writing δ for the bound on the mean's error and σ for the largest one-step standard deviation:

    mean         e_μ ≤ r_μ / (1−γ)
    covariance   e_C ≤ (r_C + 2σγδ + γ²δ²) / (1−γ²)
    raw second   e_Σ ≤ (r_Σ + 2γ R_max e_μ) / (1−γ²)
    the paper's  ‖M − M*‖_λ ≤ ‖M − T₂M‖_λ / (1−γ),   λ = 2 R_max/(1−γ)

Residuals are themselves computed in float64, so each carries a rounding term: a sum of n products in any order is off
by at most n·u·Σ|terms| with u = 2⁻⁵³ (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). Without
it a stagnated iteration, whose computed residual is exactly zero, would be certified as exact. The counts also cover
probabilities that sum to 1 only up to rounding.

**Answers held on states** have bounds as local as the errors themselves. The error of a mean obeys
``|e(s)| ≤ ρ(s) + γ (P|e|)(s)``, where ρ is residual plus rounding. Any δ with ``δ ≥ ρ + γPδ`` therefore bounds it (a
supersolution; the uniform bound max ρ/(1−γ) is one of them). Covariances see how errors of values differ between
states, see `ValueErrors`, and gaps how errors of pairs die out where branches meet, see `pair_solver`.

A mean that is off by δ changes a one-step covariance by at most γ(σ_x d_y + σ_y d_x) + γ² d_x d_y, where σ is the
standard deviation of one step and d bounds that of the error at the successors; the means' inequality splits that
between x and y. Supersolutions are found by a linear solve and then *checked*, so they do not lean on it.
"""

import enum
import math
import warnings
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax import Array

from jointmdp.exact.bellman import pair_sweep, second_moments
from jointmdp.exact.bellman.pair_sweep import PairProblem
from jointmdp.exact.bellman.second_moments import Moments, Tables
from jointmdp.exact.moments.single_branch import (
    IDLE,
    MIXED,
    OUTSIDE,
    BranchMean,
    SingleBranch,
    Solver,
    discounted_solver,
    restricted,
)
from jointmdp.ground.arrays import UNIT, Floats, Ints
from jointmdp.ground.errors import ConvergenceError, ConvergenceWarning
from jointmdp.model.joint_mdp import JointMDP

# Room left in a supersolution, relative to its own source and to what checking rounds: the first that passes is taken.
CHECK_ROOM = 1e-3
CHECK_ROOMS = (8, 64, 4096)
# Products below the range of floats vanish; a step is taken to lose this much of what stands there, and of 1.
UNDERFLOW = 1e-300


class Status(enum.Enum):
    """How a solve ended; the value is the sentence a person reads."""

    CONVERGED = "the certified error is within the tolerance"
    STEP_LIMIT = "stopped at the step limit before the certified error met the tolerance"
    TIME_LIMIT = "stopped at the time limit before the certified error met the tolerance"
    STAGNATED = "the residual is at the rounding floor of float64 and the tolerance lies below it"
    COMPLETED = "every requested step was taken"

    @property
    def is_success(self) -> bool:
        """Whether what was asked for was reached."""
        return self in (Status.CONVERGED, Status.COMPLETED)


def report_missed(status: Status, bounds: str, throw: bool) -> None:
    """Raise or warn, in the name of the caller's caller, where a method did not reach its tolerance."""
    if status.is_success:
        return
    message = f"{status.value} ({bounds})"
    if throw:
        raise ConvergenceError(message)
    warnings.warn(message, ConvergenceWarning, stacklevel=3)


def supersolution(kernel: sp.csr_array, factor: float, solve: Solver, source: Floats, relative: float) -> Floats:
    """Some δ with ``δ ≥ source + factor·Pδ``, as small as can be had; infinite where none is found.

    `solve` proposes it, and the inequality is checked row by row: all terms of a row are non-negative, so it is rounded
    by at most `relative` times what stands in it, and that much is added to the source before solving.
    """
    top = float(source.max())
    if top == 0:
        return np.zeros_like(source)
    uniform = np.full_like(source, (1 + CHECK_ROOM) * top / (1 - factor) if factor < 1 else np.inf)
    first = np.maximum(solve(source), 0.0)
    for room in CHECK_ROOMS:
        found = np.minimum(solve((1 + CHECK_ROOM) * source + room * relative * first), uniform)
        later = factor * (kernel @ found)
        if np.all(found >= 0) and np.all(found - later - source >= 2 * relative * (found + later + source)):
            return found
    return uniform


class ValueErrors(NamedTuple):
    """Bounds on the errors of a value function, and on how far those of two states can differ."""

    alone: Floats  # [S] |e(s)|
    apart: Floats  # [S] |e(s) − e(s₀)|, s₀ the reference of the class of s
    label: Ints  # [S] the class, or MIXED
    offset: Floats  # [S] what the values are stored relative to

    @classmethod
    def uniform(cls, size: int, error: float) -> "ValueErrors":
        """The same for every state."""
        return cls(np.full(size, error), np.full(size, np.inf), np.full(size, MIXED), np.zeros(size))

    def between(self, s: Ints, t: Ints) -> Floats:
        """Bounds on |e(s) − e(t)| for arrays of states."""
        by_class = np.where(self.label[s] == self.label[t], self.apart[s] + self.apart[t], np.inf)
        is_one = (s == t) & (self.label[s] != OUTSIDE)
        return np.where(is_one, 0.0, np.minimum(self.alone[s] + self.alone[t], by_class))

    def with_outside(self, outside: int) -> "ValueErrors":
        """Where a state stands for many, none of its class can be compared with it."""
        with_it = self.label == self.label[outside]
        label = np.where(with_it, MIXED, self.label)
        label[outside] = OUTSIDE
        return self._replace(apart=np.where(with_it, np.inf, self.apart), label=label)


def deviations(state: BranchMean, discount: float, source: Floats, delta: Floats, relative: float) -> Floats:
    """Bounds η on |e(s) − e(s₀)|, the error of a value against that of its class's reference.

    With |(1−γ) e(s₀)| ≤ κ the difference obeys |f| ≤ ρ + κ + γP|f| and vanishes in s₀, so it is enough that
    η ≥ ρ + κ + γPη with the column of s₀ left out: how soon s₀ is reached takes the place of 1/(1−γ).
    """
    classes = state.classes
    is_sure = classes.label > IDLE
    if not is_sure.any():
        return np.where(classes.label == IDLE, delta, np.inf)
    kernel = restricted(state.kernel, is_sure, is_sure & ~classes.references)
    by_reference = (1 - discount) * delta[classes.reference]
    added = np.where(is_sure, source + (1 + CHECK_ROOM) * by_reference, 0.0)
    solve = discounted_solver(kernel, discount, state.is_dense)
    found = supersolution(kernel, discount, solve, added, relative)
    return np.where(is_sure, found, np.where(classes.label == IDLE, delta, np.inf))


OUTWARD = 1 + 64 * UNIT  # pays for the few operations that make a bound of its parts


@dataclass(frozen=True)
class Certificate:
    """Guaranteed bounds on the distance between an answer and the truth; all absolute."""

    residual: float
    """Upper bound of ‖M − T₂M‖_λ, the paper's Bellman residual. Over a horizon: the rounding of one sweep."""
    mean_error: float
    """Bound on every mean."""
    second_moment_error: float
    """Bound on every raw second moment."""
    covariance_error: float
    """Bound on every covariance and variance, from the centred recursion."""
    mean_errors: Floats = field(repr=False)  # [S, A]
    """Bound on each mean by itself."""
    covariance_shares: Floats = field(repr=False)  # [S, A]
    """Each coordinate's share e(x): the covariance of Z(x) and Z(y) is off by at most e(x) + e(y)."""

    def __str__(self) -> str:
        return (
            f"mean ± {self.mean_error:.1e}, covariance ± {self.covariance_error:.1e}, "
            f"second moment ± {self.second_moment_error:.1e}, residual ≤ {self.residual:.1e}"
        )


def _uniform(shape: tuple[int, ...], residual: float, mean: float, second: float, covariance: float) -> Certificate:
    """A certificate that says the same of every coordinate."""
    return Certificate(residual, mean, second, covariance, np.full(shape, mean), np.full(shape, covariance / 2))


def norm_weight(reward_bound: float, discount: float) -> float:
    """λ = 2 R_max / (1−γ); any positive weight serves when all rewards are zero."""
    return 2 * reward_bound / (1 - discount) if reward_bound > 0 else 1.0


def contraction_gap(discount: float, k: int) -> float:
    """1 − γᵏ from below: (1−γ)(1 + γ + … + γᵏ⁻¹), which subtracts no power that is rounded."""
    return (1 - discount) * math.fsum(discount**j for j in range(k)) * (1 - (4 * k + 8) * UNIT)


def mean_operations(scenarios: int, actions: int) -> int:
    """Rounding errors in one mean backup: half for its sums, half for rows of n entries that sum to 1 ± 2n·u only."""
    return 4 * scenarios + 4 * actions + 8


def pair_operations(scenarios: int, actions: int) -> int:
    """Rounding errors in one second-order backup."""
    return 4 * scenarios * actions + 8 * scenarios + 8 * actions + 16


def _top(values: Array) -> Array:
    return jnp.max(jnp.abs(values))


@jax.jit
def _pair_norms(tables: Tables, M: Moments, after: Moments) -> Array:
    """Sizes of ``M`` and ``after``, in one array: fetching each by itself takes longer than a step of a small model."""

    def centred(N: Moments) -> Array:
        return N.second - N.mean[:, :, None, None] * N.mean[None, None]

    v = second_moments.state_mean(tables, M.mean)
    spread = second_moments.variance(tables, v, second_moments.action_variance(tables, M.mean))
    off = (after.mean - M.mean, after.second - M.second, centred(after) - centred(M))
    sizes = (jnp.maximum(_top(M.mean), _top(after.mean)), jnp.maximum(_top(M.second), _top(after.second)))
    return jnp.stack([*map(_top, off), *sizes, jnp.sqrt(jnp.max(spread)), _top(tables.rewards)])


def assess_pairs(model: JointMDP, tables: Tables, M: Moments, after: Moments) -> tuple[float, float, Certificate]:
    """Of a raw collection ``M`` with ``after = T₂M``: the residual as computed, the largest error, the certificate."""
    off_mean, off_second, off_centred, top_mean, top_second, sigma, reward = _pair_norms(tables, M, after).tolist()
    g, reward_bound = model.discount, model.reward_bound
    scenarios, actions = model.num_scenarios, model.num_actions
    outcome = reward + g * top_mean
    mean_rounding = mean_operations(scenarios, actions) * UNIT * outcome
    pair_rounding = pair_operations(scenarios, actions) * UNIT * (outcome**2 + top_second)
    weight = norm_weight(reward_bound, g)

    r_mean, r_second = off_mean + mean_rounding, off_second + pair_rounding
    residual = max(r_mean, r_second / weight)
    delta = r_mean / contraction_gap(g, 1)
    second = (r_second + 2 * g * reward_bound * delta) / contraction_gap(g, 2)
    if model.sharing == "none":
        # Entries of distinct coordinates are products of means; their error does not go through the recursion.
        second = max(second, r_second + (2 * top_mean + 2 * mean_rounding + g * delta) * g * delta)
    else:
        second = min(second, weight * residual / contraction_gap(g, 1))
    rounded = 4 * UNIT * (top_second + top_mean**2)
    plain = second + (2 * top_mean + delta) * delta
    by_mean = 2 * (sigma + mean_rounding) * g * delta + (g * delta) ** 2
    centred = (off_centred + pair_rounding + rounded + by_mean) / contraction_gap(g, 2)
    bounds = (residual, delta, second, min(plain, centred) + rounded)
    found = _uniform(model.available.shape, *(OUTWARD * each for each in bounds))
    return max(off_mean, off_second / weight), OUTWARD * max(delta, second), found


@jax.jit
def _sizes(tables: Tables, v: Array, D: Array, B: Array) -> Array:
    """How large outcomes, the noise of a step by one action and by the policy, variances and means of an answer are.

    The step comes before an answer on states, ``(v, D, B)``; D is a gap's variance, at most 4B.
    """
    m, zero = second_moments.mean(tables, v), jnp.zeros_like(B)
    outcome = _top(tables.rewards) + tables.discount * _top(v)
    sigma = jnp.sqrt(jnp.max(second_moments.variance(tables, v, zero)))
    noise = second_moments.state_mean(tables, second_moments.variance(tables, v, zero))
    sigma_branch = jnp.sqrt(jnp.max(second_moments.action_variance(tables, m) + noise))
    return jnp.stack([outcome, sigma, sigma_branch, jnp.maximum(_top(D) / 4, _top(B)), _top(m)])


class HorizonErrors:
    """Accumulates the rounding of backward sweeps: nothing else stands between a horizon and the truth."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        # Of means, of the variance of one branch and a quarter of that of a gap; and the same one sweep before.
        self.mean = self.variance = self.rounding = self.top = 0.0
        self.before = (0.0, 0.0)
        self.size = 0.0  # of means, noise and variances, squared

    def step(self, tables: Tables, v: Array, D: Array, B: Array) -> None:
        """One more sweep of these tables, made from this answer with the errors so far."""
        outcome, sigma_alone, sigma_branch, variance, self.top = _sizes(tables, v, D, B).tolist()
        _, scenarios, actions = tables.rewards.shape
        g = float(tables.discount)
        rounding = mean_operations(scenarios, actions) * UNIT * outcome
        delta, sigma = self.mean + rounding, sigma_alone + sigma_branch + rounding
        relative = pair_operations(scenarios, actions) * UNIT
        here = 2 * sigma * rounding + rounding**2 + relative * (sigma**2 + variance)
        self.before = (self.mean, self.variance)
        self.variance = g**2 * self.variance + 3 * sigma * delta + 2 * delta**2 + here
        self.mean = g * self.mean + rounding
        self.rounding = max(self.rounding, rounding, here)
        self.size = self.top**2 + variance + sigma_alone**2

    def certificate(self) -> Certificate:
        """The bounds after the last sweep."""
        rounded = 16 * UNIT * self.size
        covariance = 3 * self.variance + rounded  # (B + B − D)/2
        second = covariance + (2 * self.top + self.mean) * self.mean + rounded
        return _uniform(self.tables.policy.shape, self.rounding, self.mean, second, covariance)


class StateErrors:
    """Bounds for moments that are one backup of ``(m, C, B)``; `branch` holds m and B, relative to its offset."""

    def __init__(
        self,
        model: JointMDP,
        policy: Floats,
        branch: SingleBranch,
        outside: int | None = None,
        value_error: float = 0.0,
    ) -> None:
        """One state may be the `outside` of a part of a model: a value there is off by up to `value_error`."""
        self.model, self.single = model, branch
        p, n, g = model.probabilities, model.successors, model.discount
        support = int((policy > 0).sum(axis=1).max())
        self.relative = pair_operations(model.num_scenarios, support) * UNIT
        operations = mean_operations(model.num_scenarios, support) * UNIT

        def expect(table: Floats) -> Floats:
            return np.einsum("sw,swa->sa", p, table)

        def average(rows: Floats) -> Floats:
            return np.sum(policy * rows, axis=1)

        m, D = branch.mean, branch.excess
        v = average(m)
        self.v = v  # [S] relative to the offset
        state = branch.state
        b = state.rewards + g * v[n]
        self.mean = expect(b)  # [S, A] one backup of m
        sizes = state.sizes + g * np.abs(v[n])
        rounding = operations * expect(sizes) + UNDERFLOW * (1 + np.max(sizes))
        rough = rounding + 4 * UNIT * np.sqrt(expect(sizes**2))  # of b, in the mean square
        r_mean = np.abs(self.mean - m)
        self.rounding_mean = rounding
        source = average(r_mean + rounding)
        if outside is not None:  # |e| ≤ (1−γ)·error + γ|e| says that |e| ≤ error
            source[outside] += (1 + CHECK_ROOM) * (1 - g) * value_error
        delta = supersolution(state.kernel, g, state.solve, np.where(state.idle, 0.0, source), self.relative)
        self.values = ValueErrors(
            delta, deviations(state, g, source, delta, self.relative), state.classes.label, state.offset
        )
        if outside is not None:
            self.values = self.values.with_outside(outside)
        self.mean_errors = rounding + g * expect(delta[n])  # [S, A] of the backup

        spread = expect((b - self.mean[:, None, :]) ** 2)
        sigma = (1 + CHECK_ROOM) * np.sqrt(spread) + rough
        # A value that is off by the same at every successor changes no covariance: what counts is the deviation of the
        # error from that at the likeliest scenario's successor. A rounded b is a value that is off, too.
        likeliest = np.argmax(p, axis=1)
        usual = n[np.arange(model.num_states), likeliest][:, None, :]  # [S, 1, A]
        apart = self.values.between(n, usual) ** 2
        off = g * np.sqrt(np.minimum(expect(delta[n] ** 2), expect(apart))) + rough  # d(x)
        self.off, self.sigma = off, sigma
        self.local = self.step_shares(self.relative, off.max(), sigma.max())

        # The variance over the first action sees how far the error of m differs between actions: where they lead to the
        # same place under the same scenario it does not.
        first = np.argmax(policy, axis=1)[:, None, None]
        there = np.take_along_axis(n, first, axis=2)  # [S, W, 1]
        parted = expect(self.values.between(n, there))
        own = r_mean + rounding
        differ = own + np.take_along_axis(own, first[:, :, 0], axis=1) + g * parted
        differ = np.where(np.arange(model.num_actions) == first[:, :, 0], 0.0, differ)
        choice = (1 + CHECK_ROOM) * np.sqrt(average((m - v[:, None]) ** 2))
        choice_off = np.sqrt(average(differ**2))
        by_mean_branch = 2 * choice * choice_off + choice_off**2 + (operations * average(np.abs(m))) ** 2
        by_mean_branch = by_mean_branch + average(2 * sigma * off + off**2 + self.relative * sigma**2)
        variances = spread + g**2 * expect(branch.variance[n])
        self.variances = variances  # [S, A] one backup of B
        added = average((m - v[:, None]) ** 2 + spread)
        next_choice = average((self.mean - average(self.mean)[:, None]) ** 2) - average((m - v[:, None]) ** 2)
        change = added - branch.drift + g**2 * (state.kernel @ D) - D
        self.r_next_branch = float(np.max(np.abs(change + next_choice)))
        size = choice**2 + np.abs(branch.drift) + np.abs(D) + state.kernel @ np.abs(D)
        self.branch = np.where(state.idle, 0.0, np.abs(change) + by_mean_branch + self.relative * size)  # [S]
        if outside is not None:
            self.branch[outside] += (1 + CHECK_ROOM) * (1 - g) * (1 + g) * value_error**2
        self.step_mean = float(np.max(np.abs(average(self.mean) - v)))

        # The gap of two branches sees how the error varies over scenarios and actions together, and that of two
        # branches in one state how it varies over actions within a scenario.
        every = np.take_along_axis(usual, first, axis=2)  # [S, 1, 1]
        joint = np.minimum(delta[n] ** 2, self.values.between(n, every) ** 2)
        root = 4 * UNIT * np.sqrt(average(expect(sizes**2)))
        gap_off = g * np.sqrt(average(expect(joint))) + average(rounding) + root
        is_single = (policy > 0).sum(axis=1) == 1
        choice_off = g * np.sqrt(average(expect(self.values.between(n, there) ** 2))) + average(rounding) + root
        self.gap_step = (gap_off, np.where(is_single, 0.0, choice_off), state.idle, is_single)
        self.floor_of_mean = float(np.max(np.sqrt(added) * gap_off))
        self.variance_steps = 2 * sigma * off + off**2 + 2 * self.relative * variances  # [S, A]
        largest = np.max(variances, where=model.available, initial=0.0)
        self.largest_variance = float(max(largest, branch.variance.max()))
        self.expect, self.average = expect, average

    def step_shares(self, relative: float, off: float, sigma: float) -> Floats:
        """Shares of one pair step, without C, ``[S, A]``; `off` and `sigma` are the largest of both branches."""
        by_mean = np.zeros_like(self.off)
        if off > 0:  # then sigma is positive too: both carry the rounding
            by_mean = self.off**2 / 2 + (off / sigma * self.sigma**2 + self.off**2 * sigma / off) / 2
        return by_mean + relative * self.sigma**2

    @cached_property
    def variance_errors(self) -> Floats:
        """Of the variance of one branch, ``[S]``."""
        kernel, g = self.single.state.kernel, self.model.discount
        found = supersolution(kernel, g**2, self.single.solve_squared, self.branch, self.relative)
        return found + 4 * UNIT * self.single.variance

    def pair_shares(self, other: "StateErrors", rows: Floats, residual_rows: Floats, relative: float) -> Floats:
        """This branch's shares ``[S]`` of the errors of its covariances with a branch of another policy.

        `rows` and `residual_rows` are as in `certificate`, of this branch; `relative` is the rounding of both.
        """
        state, g = self.single.state, self.model.discount
        largest = (
            max(float(one.max()), float(two.max())) for one, two in ((self.off, other.off), (self.sigma, other.sigma))
        )
        local = self.step_shares(relative, *largest) + relative * self.expect(rows[self.model.successors]) / 2
        source = np.where(state.idle, 0.0, residual_rows / 2 + self.average(local))
        return supersolution(state.kernel, g**2, self.single.solve_squared, source, relative)

    @property
    def floor(self) -> float:
        """What float64 and the mean leave of a pair's residual however long one iterates; for stopping."""
        return float(np.max(self.average(self.local)) + self.relative * np.max(self.single.variance))

    def certificate(self, pair_errors: Floats, pair_residual: float) -> Certificate:
        """The certificate, from the errors ``[S, S]`` of the variances of gaps and the residual of their recursion."""
        model, single, g = self.model, self.single, self.model.discount
        n, variances = model.successors, self.variances
        # Of the variance of each coordinate, and of each one's share of the variance of a gap between two; a
        # covariance is half of what the variances leave of it.
        alone = self.variance_steps + g**2 * self.expect(self.variance_errors[n])
        ratio = float(np.max(self.off) / np.max(self.sigma)) if np.max(self.off) > 0 else 1.0
        by_mean = 2 * self.sigma * self.off + ratio * self.sigma**2 + self.off**2 / ratio + 2 * self.off**2
        later = np.broadcast_to(np.max(pair_errors, axis=1), model.num_states)
        between = by_mean + 4 * self.relative * variances + g**2 * self.expect(later[n]) / 2
        covariance = alone / 2 if model.sharing == "none" else (alone + between) / 2

        exists = model.available
        top = float(np.max(covariance[exists]))
        largest = float(np.max(np.abs(self.mean)) + np.max(np.abs(single.state.offset)))
        mean_errors = self.mean_errors + 4 * UNIT * largest
        mean_error = float(np.max(mean_errors[exists]))
        rounded = 16 * UNIT * (largest**2 + self.largest_variance)
        second = 2 * top + (2 * largest + mean_error) * mean_error + rounded
        residual = self._residual(self.r_next_branch + pair_residual / 2, largest, rounded, self.largest_variance)
        return Certificate(residual, mean_error, second, 2 * top, mean_errors, covariance)

    def _residual(self, r_pair: float, largest: float, rounded: float, variance: float) -> float:
        """Note 2.6 with V = C + vvᵀ and the one-branch second moment B + v²: no array over coordinate pairs."""
        g, bound = self.model.discount, self.model.reward_bound
        rounding = float(np.max(self.rounding_mean))
        unsure = 2 * float(np.max(self.local)) + self.relative * variance
        step = self.step_mean + 2 * rounding
        step_second = max(r_pair, self.r_next_branch) + 2 * unsure + step * (2 * largest + step)
        of_second = 2 * g * bound * step + g**2 * step_second + 2 * (unsure + rounded)
        # With the discount 1 the steps that a return takes stand for 1/(1−γ).
        weight = norm_weight(bound, g if g < 1 else 1 - 1 / self.single.state.span)
        return max(g * step + 2 * rounding + 8 * UNIT * largest, of_second / weight)


@jax.jit
def side_norms(problem: PairProblem, C: Array) -> tuple[Array, Array]:
    """max |C| and max |C' − C|, ``[2, S]`` each, by the state of the first branch and by that of the second."""

    def sides(values: Array) -> Array:
        return jnp.stack([jnp.max(jnp.abs(values), axis=axis) for axis in (1, 0)])

    return sides(C), sides(pair_sweep.sweep(problem, C) - C)
