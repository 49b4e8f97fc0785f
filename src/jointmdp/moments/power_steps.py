"""One step of one branch or two, in powers: what it adds to moments of any order, and to their errors.

The moments h_k of a gap about a potential obey h_k = Σ_j C(k,j) γʲ E[d^{k−j} h_j], where d is the difference of two
surpluses (see `bellman.higher_moments`). What is computed misses the truth by e_k with

    e_k ≤ r_k + ρ_k + Σ_{1≤j<k} C(k,j) γʲ E[|d|^{k−j} e_j] + γᵏ E[e_k],

pair by pair: r_k is the residual, e_1 comes from the means, whose values the potential takes, and ρ_k is the rounding
of one backup in float64. There d is itself off by at most η, which moves the backup by kη times that of order k−1 in
absolute values, and sums of n products are off by n·u·Σ|terms|. Every function that satisfies the inequality with "≥"
bounds the error, pair by pair. Moments of one branch obey the same with d its surplus.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jointmdp.arrays import UNIT, Floats, Ints, on_device
from jointmdp.bellman import higher_moments, second_moments
from jointmdp.bellman.higher_moments import Steps
from jointmdp.bellman.second_moments import PairKernel, PairProblem, Source, Tables
from jointmdp.model.episodes import policy_kernel
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.moments import transition_kernels
from jointmdp.moments.certificates import pair_operations

ROOM = 1e-6  # relative room that pays for computing the bounds themselves in float64

_gap_apart = jax.jit(higher_moments.gap_apart)
_gap_apart_size = jax.jit(higher_moments.gap_apart_size)


@jax.jit
def _weighted(kernel: PairKernel, steps: Steps, left: Array, right: Array, C: Array) -> Array:
    """Σ_g p(g) P_g⁽ˡ⁾ C P_g⁽ʳ⁾ᵀ for kernels weighted by the factors `left` and `right`."""
    one, other = (higher_moments.weigh(kernel, steps, factor) for factor in (left, right))
    return second_moments.between(kernel, one, other, C)


def power_operations(scenarios: int, actions: int, order: int) -> int:
    """Rounding errors in one backup of a moment: its sums, its powers, and the terms of the binomial theorem."""
    return pair_operations(scenarios, actions) + 4 * (order + 1) ** 2


class Layout:
    """A model and a policy, as steps of one branch and of two read them."""

    def __init__(self, model: JointMDP, tables: Tables, order: int, reward_sizes: Floats | None = None) -> None:
        sizes = np.abs(np.asarray(tables.rewards)) if reward_sizes is None else reward_sizes
        self.order, self.tables, self.discount = order, tables, model.discount
        self.is_shared = model.sharing != "none"
        policy = np.asarray(tables.policy)
        self.actions, choice = transition_kernels.policy_support(policy)
        self.choice: Floats = choice  # [S, M]
        self.reward_sizes = np.take_along_axis(sizes, self.actions[:, None, :], axis=2)  # [S, W, M]
        self.kernel = transition_kernels.pair_kernel(model, policy, may_merge=False)
        self.groups = self.kernel.chances.shape[0]
        self.matrix = policy_kernel(model, policy)
        self.successors: Ints = np.take_along_axis(model.successors, self.actions[:, None, :], axis=2)  # [S, W, M]
        self.chance: Floats = model.probabilities[:, :, None] * choice[:, None, :]  # [S, W, M]
        self.ties: Floats = self.chance * choice[:, None, :]
        self.relative = power_operations(model.num_scenarios, choice.shape[1], order) * UNIT
        if self.is_shared:
            given = np.broadcast_to(choice[:, None, :], self.chance.shape) if self.groups > 1 else self.chance
            self.steps = Steps(on_device(given), on_device(self._places(model).astype(np.int32)))

    @property
    def both(self) -> tuple[Ints, Ints]:
        """Where two branches in one state go, ``[S, W, M, M]``."""
        return self.successors[:, :, :, None], self.successors[:, :, None, :]

    def parted(self, values: Floats) -> Floats:
        """Σ_w p(w|s) Σ_{a≠b} π(a|s) π(b|s) f(s,w,a,b): two branches in s that draw different actions."""
        apart = 1 - np.eye(self.choice.shape[1])
        return np.einsum("swa,sb,ab,swab->s", self.chance, self.choice, apart, values, optimize=True)

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
        rewards = np.take_along_axis(np.asarray(layout.tables.rewards), layout.actions[:, None, :], axis=2)
        later, here = layout.discount * v[layout.successors], now[:, None, None]
        e = np.where(layout.chance > 0, rewards + later - here, 0.0)
        exponents = np.arange(layout.order + 1)[:, None, None, None]
        self.powers: Floats = e[None] ** exponents  # [n+1, S, W, M]
        size = np.where(layout.chance > 0, layout.reward_sizes + np.abs(later) + np.abs(here), 0.0)
        self.off: Floats = 4 * UNIT * np.max(size, axis=(1, 2))  # [S] η(s), by which rounding moves e
        self.sizes: Floats = (np.abs(e) + self.off[:, None, None])[None] ** exponents

    def branch(self, i: int, c: Floats, top: int, weights: Floats) -> Floats:
        """Σ_{j≤top} C(i,j) γʲ E[e^{i−j} c_j(S')] with outcomes weighted as given."""
        layout = self.layout
        total = np.zeros(c.shape[1])
        for j in range(top + 1):
            terms = self.powers[i - j] * c[j][layout.successors]
            total += math.comb(i, j) * layout.discount**j * np.einsum("swm,swm->s", weights, terms)
        return total

    def branch_size(self, k: int, x: Floats) -> Floats:
        """Σ_{j≤k} C(k,j) γʲ E[(|e|+η)^{k−j} x_j(S')], ``[S]``."""
        terms = (factor * self._weighted_size(k - j, x[j]) for j, factor in enumerate(self._coefficients(k)[: k + 1]))
        return sum(terms, np.zeros(x.shape[1]))

    def branch_error(self, k: int, errors: Floats, c: Floats) -> Floats:
        """What errors of the moments ``c`` and one backup's rounding make of the error of c_k, ``[S]``."""
        size = np.abs(c)
        by_off = k * self.off * self.branch_size(k - 1, size)
        return self.branch_size(k, errors + self.layout.relative * size) + by_off

    def branch_before(self, c: Floats) -> Floats:
        """The moments ``c`` of one branch, one step earlier."""
        orders = range(2, len(c))
        return np.stack([c[0], c[1], *(self.branch(i, c, i, self.layout.chance) for i in orders)])

    def _weighted_size(self, m: int, x: Floats) -> Floats:
        """E[(|e|+η)ᵐ x(S')]."""
        return np.einsum("swm,swm,swm->s", self.layout.chance, self.sizes[m], x[self.layout.successors])

    def gap(self, k: int, H: Floats) -> PairProblem:
        """The recursion of h_k, given H = (h_0, h_1, …), ``[n+1, S, S]``."""
        layout, coefficients = self.layout, self._coefficients(k)
        sign = -1 if k % 2 else 1
        if layout.groups > 1:
            half = np.asarray(_gap_apart(layout.kernel, self.powers[1], coefficients, H, k)) / 2
        else:
            half = self._gap_products(k, coefficients, H)
        same = np.zeros(half.shape[0])
        if sign == 1:  # odd powers of a difference of two that are alike have mean zero
            same = self._gap_met(k, coefficients, H)
        return layout.problem(same, half + sign * half.T, k)

    def _coefficients(self, k: int) -> Floats:
        """C(k,j) γʲ, ``[n+1]``."""
        return np.array([math.comb(k, j) * self.layout.discount**j for j in range(self.layout.order + 1)])

    def _gap_products(self, k: int, coefficients: Floats, H: Floats) -> Floats:
        """Half of E[Σ_{j<k} c_j (e−ẽ)^{k−j} H_j] for branches that are independent; its transpose gives the rest.

        (e−ẽ)ᵐ = Σ_l C(m,l) eˡ (−ẽ)^{m−l}; the terms l and m−l are each other's transposes but for the sign (−1)ᵏ.
        """
        layout, powers = self.layout, self.powers
        averages = np.einsum("iswm,swm->is", powers[: k + 1], layout.chance)  # E eⁱ
        signs = np.array([math.comb(k, i) * (-1.0) ** (k - i) / 2 for i in range(k + 1)])
        half: Floats = (averages.T * signs) @ averages[::-1]
        for j in range(2, k):
            m = k - j
            for low in range(m // 2 + 1):
                factor = coefficients[j] * math.comb(m, low) * (-1) ** (m - low) * (0.5 if 2 * low == m else 1.0)
                half += factor * np.asarray(_weighted(layout.kernel, layout.steps, powers[low], powers[m - low], H[j]))
        return half

    def _gap_met(self, k: int, coefficients: Floats, H: Floats) -> Floats:
        """Σ_w p(w|s) Σ_{a≠b} π_a π_b Σ_{j<k} c_j (e_a−e_b)^{k−j} H_j(S'_a,S'_b): both branches in s."""
        d = self.powers[1][:, :, :, None] - self.powers[1][:, :, None, :]
        value = np.zeros_like(d)
        for j in range(k):
            value = value * d + coefficients[j] * H[j][self.layout.both]
        return self.layout.parted(value * d)

    def gap_size(self, k: int, X: Floats) -> Floats:
        """Σ_{j≤k} C(k,j) γʲ E[(|d|+η)^{k−j} X_j(S',T')] for symmetric X ≥ 0, ``[S, S]``.

        Where e and ẽ are raised to their powers apart, |d| is |e| + |ẽ|, so that rounding is covered too.
        """
        layout, coefficients = self.layout, self._coefficients(k)
        if layout.groups > 1:
            half = np.asarray(_gap_apart_size(layout.kernel, self.powers[1], self.off, coefficients, X, k)) / 2
        else:
            half = np.zeros(X.shape[1:])
            for j in range(k + 1):
                for low in range((k - j) // 2 + 1):
                    factor = coefficients[j] * math.comb(k - j, low) * (0.5 if 2 * low == k - j else 1.0)
                    left, right = self.sizes[low], self.sizes[k - j - low]
                    if X[j].any():
                        half += factor * np.asarray(_weighted(layout.kernel, layout.steps, left, right, X[j]))
        both = half + half.T
        d = np.abs(self.powers[1][:, :, :, None] - self.powers[1][:, :, None, :]) + 2 * self.off[:, None, None, None]
        value = np.zeros_like(d)
        for j in range(k + 1):
            value = value * d + coefficients[j] * X[j][layout.both]
        here = np.arange(X.shape[1])
        both[here, here] = layout.parted(value)
        return both

    def gap_error(self, k: int, errors: Floats, H: Floats) -> Floats:
        """What errors of H and one backup's rounding make of the error of h_k, ``[S, S]``."""
        size = np.abs(H)
        size = np.maximum(size, np.swapaxes(size, 1, 2))
        by_off = k * (self.off[:, None] + self.off[None, :])
        unsure = errors + self.layout.relative * size
        return self.gap_size(k, unsure) + by_off * self.gap_size(k - 1, size)

    def joint(self, i: int, j: int, c: Floats, held: Callable[[int, int], Floats]) -> PairProblem:
        """The recursion of c_ij, given one-branch moments ``c`` and the c_kl of lower order."""
        layout, powers = self.layout, self.powers
        states = c.shape[1]
        cross, same = np.zeros((states, states)), self.branch(i + j, c, i + j, layout.ties)
        for k in range(i + 1):
            for m in range(j + 1):
                if k + m in (1, i + j):
                    continue  # means vanish about the values, and c_ij itself is the unknown
                factor = math.comb(i, k) * math.comb(j, m) * layout.discount ** (k + m)
                left, right, C = powers[i - k], powers[j - m], held(k, m)
                cross += factor * np.asarray(_weighted(layout.kernel, layout.steps, left, right, C))
                same += factor * layout.parted(left[:, :, :, None] * right[:, :, None, :] * C[layout.both])
        return layout.problem(same, cross, i + j)
