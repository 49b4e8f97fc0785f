"""Error bounds of answers held on states, as local as the errors themselves.

The error of a mean obeys ``|e(s)| ≤ ρ(s) + γ (P|e|)(s)``, where ρ is residual plus rounding. Any δ with
``δ ≥ ρ + γPδ`` therefore bounds it (a supersolution; the uniform bound max ρ/(1−γ) is one of them). Two branches each
move by the kernel P whoever shares the luck, so if ``g ≥ ρ̃ + γ²Pg`` and a pair's own error is at most ρ̃(s) + ρ̃(t),
then the covariance of two branches is off by at most ``g(s) + g(t)``, and the variance of one by ``2g(s)``. States
where nothing is left to chance, such as an absorbing goal, then add nothing, however near 1 the discount is.

A mean that is off by δ changes a one-step covariance by at most γ(σ_x d_y + σ_y d_x) + γ² d_x d_y, where σ is the
standard deviation of one step and d bounds that of the error at the successors; the means' inequality splits that
between x and y. Supersolutions are found by a linear solve and then *checked*, so they do not lean on it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax import Array

from jointmdp.arrays import UNIT, Floats
from jointmdp.bellman import second_moments
from jointmdp.bellman.second_moments import PairKernel, Tables
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.moments.certificates import Certificate, mean_operations, norm_weight, pair_operations
from jointmdp.moments.single_branch import SingleBranch, Solver
from jointmdp.moments.transition_kernels import shifted_rewards

# Room left in a supersolution, relative to its own source and to the largest source: it pays for checking in float64.
ROOM = 1e-3
LEAST_SOURCE = 1e-6


class StateErrors:
    """Bounds for moments that are one backup of ``(m, C, B)``; `branch` holds m and B, relative to its offset."""

    def __init__(self, model: JointMDP, policy: Floats, branch: SingleBranch) -> None:
        self.model = model
        self.policy = policy
        self.offset = branch.offset
        self.kernel = branch.kernel
        self.solve_squared = branch.solve_squared
        p, n, g = model.probabilities, model.successors, model.discount
        support = int((policy > 0).sum(axis=1).max())
        self.relative = pair_operations(model.num_scenarios, support) * UNIT
        operations = mean_operations(model.num_scenarios, support) * UNIT

        def expect(table: Floats) -> Floats:
            return np.einsum("sw,swa->sa", p, table)

        def average(rows: Floats) -> Floats:
            return np.sum(policy * rows, axis=1)

        m, B = branch.mean, branch.variance
        v = average(m)
        R = shifted_rewards(model, branch.shift)
        b = R + g * v[n]
        self.mean = expect(b)  # [S, A] one backup of m
        rounding = operations * expect(np.abs(R) + g * np.abs(v[n]))
        r_mean = np.abs(self.mean - m)
        self.rounding_mean = rounding
        delta = supersolution(self.kernel, g, branch.solve, average(r_mean + rounding), self.relative)
        self.mean_errors = rounding + g * expect(delta[n])  # [S, A] of the backup

        spread = expect((b - self.mean[:, None, :]) ** 2)
        sigma = (1 + ROOM) * np.sqrt(spread) + rounding
        # A value that is off by the same at every successor changes no covariance: what counts is the deviation of the
        # error from that at the likeliest scenario's successor. A rounded b is a value that is off, too.
        likeliest = np.argmax(p, axis=1)
        usual = n[np.arange(model.num_states), likeliest][:, None, :]  # [S, 1, A]
        apart = np.where(n == usual, 0.0, delta[n] + delta[usual]) ** 2
        off = g * np.sqrt(np.minimum(expect(delta[n] ** 2), expect(apart))) + rounding  # d(x)
        by_mean = np.zeros_like(off)
        if off.max() > 0:  # then sigma is positive too: both carry the rounding
            ratio = float(off.max() / sigma.max())
            by_mean = off**2 / 2 + (ratio * sigma**2 + off**2 / ratio) / 2
        self.local = by_mean + self.relative * sigma**2  # [S, A] share of one pair step, without C

        # The variance over the first action sees how far the error of m differs between actions: where they lead to the
        # same place under the same scenario it does not.
        first = np.argmax(policy, axis=1)[:, None, None]
        there = np.take_along_axis(n, first, axis=2)  # [S, W, 1]
        parted = expect(np.where(n == there, 0.0, delta[n] + delta[there]))
        own = r_mean + rounding
        differ = own + np.take_along_axis(own, first[:, :, 0], axis=1) + g * parted
        differ = np.where(np.arange(model.num_actions) == first[:, :, 0], 0.0, differ)
        choice = (1 + ROOM) * np.sqrt(average((m - v[:, None]) ** 2))
        choice_off = np.sqrt(average(differ**2))
        by_mean_branch = 2 * choice * choice_off + choice_off**2 + (operations * average(np.abs(m))) ** 2
        by_mean_branch = by_mean_branch + average(2 * sigma * off + off**2 + self.relative * sigma**2)
        after = average((m - v[:, None]) ** 2 + spread + g**2 * expect(B[n]))
        next_choice = average((self.mean - average(self.mean)[:, None]) ** 2) - average((m - v[:, None]) ** 2)
        self.r_next_branch = float(np.max(np.abs(after + next_choice - B)))
        self.branch = np.abs(after - B) + by_mean_branch + self.relative * (choice**2 + self.kernel @ B)  # [S]
        self.step_mean = float(np.max(np.abs(average(self.mean) - v)))
        variances = spread + g**2 * expect(B[n])
        self.largest_variance = float(max(np.max(variances, where=model.available, initial=0.0), B.max()))
        self.B = B
        self.expect = expect
        self.average = average

    @property
    def floor(self) -> float:
        """What float64 and the mean leave of a pair's residual however long one iterates; for stopping."""
        return float(np.max(self.average(self.local)) + self.relative * np.max(self.B))

    def certificate(self, rows: Floats, residual_rows: Floats) -> Certificate:
        """The certificate; `rows` and `residual_rows` hold max_t |C(s,t)| and max_t |C'−C|(s,t) for each s."""
        model, g = self.model, self.model.discount
        sizes = self.expect((rows + self.B)[model.successors])  # [S, A]
        pair = residual_rows / 2 + self.average(self.local + self.relative * sizes / 2)
        shares = supersolution(self.kernel, g**2, self.solve_squared, np.maximum(pair, self.branch / 2), self.relative)
        covariance = self.local + self.relative * sizes / 2 + g**2 * self.expect(shares[model.successors])

        exists = model.available
        top = float(np.max(covariance[exists]))
        largest = float(np.max(np.abs(self.mean))) + abs(self.offset)
        mean_errors = self.mean_errors + 4 * UNIT * largest
        mean_error = float(np.max(mean_errors[exists]))
        variance = float(max(np.max(rows), np.max(self.B)))
        rounded = 16 * UNIT * (largest**2 + variance)
        second = 2 * top + (2 * largest + mean_error) * mean_error + rounded
        residual = self._residual(float(np.max(residual_rows)), largest, rounded, variance)
        return Certificate(residual, mean_error, second, 2 * top, mean_errors, covariance)

    def _residual(self, r_pair: float, largest: float, rounded: float, variance: float) -> float:
        """Note 2.6 with V = C + vvᵀ and the one-branch second moment B + v²: no array over coordinate pairs."""
        g, bound = self.model.discount, self.model.reward_bound
        rounding = float(np.max(self.rounding_mean))
        wobble = 2 * float(np.max(self.local)) + self.relative * variance
        step = self.step_mean + 2 * rounding
        step_second = max(r_pair, self.r_next_branch) + 2 * wobble + step * (2 * largest + step)
        of_second = 2 * g * bound * step + g**2 * step_second + 2 * (wobble + rounded)
        return max(g * step + 2 * rounding + 8 * UNIT * largest, of_second / norm_weight(bound, g))


def supersolution(kernel: sp.csr_array, factor: float, solve: Solver, source: Floats, relative: float) -> Floats:
    """Some δ with ``δ ≥ source + factor·Pδ``, as small as can be had.

    `solve` proposes it, and the inequality is checked; `relative` is the rounding of one product.
    """
    top = float(source.max())
    if top == 0:
        return np.zeros_like(source)
    source = np.maximum(source, LEAST_SOURCE * top)
    uniform = np.full_like(source, (1 + ROOM) * top / (1 - factor))
    found = np.minimum((1 + ROOM) * solve(source), uniform)
    room = found - factor * (kernel @ found) - source
    return found if np.all(room >= relative * uniform) else uniform


@jax.jit
def _row_norms(tables: Tables, kernel: PairKernel, m: Array, C: Array, B: Array) -> tuple[Array, Array]:
    added = second_moments.source(tables, kernel, second_moments.state_mean(tables, m), B)
    step = second_moments.sweep(kernel, added, tables.discount, C) - C

    def rows(values: Array) -> Array:
        # Rounding need not respect symmetry; the split between s and t does.
        return jnp.maximum(jnp.max(jnp.abs(values), axis=0), jnp.max(jnp.abs(values), axis=1))

    return rows(C), rows(step)


def row_norms(tables: Tables, kernel: PairKernel, m: Array, C: Array, B: Array) -> tuple[Floats, Floats]:
    """max_t |C(s,t)| and max_t |C'(s,t) − C(s,t)| for each s, by one sweep; zero where nothing is shared."""
    if kernel.chances.shape[0] == 0:
        return np.zeros(B.shape[0]), np.zeros(B.shape[0])
    rows, residual_rows = _row_norms(tables, kernel, m, C, B)
    return np.asarray(rows), np.asarray(residual_rows)
