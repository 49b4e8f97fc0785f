"""Projection by brute force, from the definitions: every pair of coordinates, every outcome, one matrix of pairs.

Coordinates are the available ones in states where something may still be paid. A pair of them is a row of the matrix
``P₂``; its outcomes are listed by plain loops. Weights are sums of powers of that matrix, fixed points are dense linear
solves over all pairs, projections are least squares, onto positive semidefinite matrices by plain gradient steps or
Clarabel. Nothing is centred in advance or lives on states: no step is shared with the library.
"""

from __future__ import annotations

import warnings
from functools import cached_property
from itertools import product
from typing import Any

import cvxpy as cp
import numpy as np

Array = np.ndarray


class PairChain:
    """All pairs of coordinates of a model under a policy."""

    def __init__(self, model: Any, policy: Array) -> None:
        self.model, self.policy, self.discount = model, np.asarray(policy), model.discount
        self.p, self.R, self.N = model.probabilities, model.rewards, model.successors
        self.over = [self._is_over(s) for s in range(model.num_states)]
        self.xs = [(s, a) for s, a in np.argwhere(model.available).tolist() if not self.over[s]]
        self.place = {x: i for i, x in enumerate(self.xs)}
        self.size = len(self.xs)
        self.diagonal = np.arange(self.size) * (self.size + 1)

    def _is_over(self, s: int) -> bool:
        outcomes = product(np.flatnonzero(self.p[s] > 0), np.flatnonzero(self.model.available[s]))
        return all(self.N[s, w, a] == s and self.R[s, w, a] == 0 for w, a in outcomes)

    def _next(self, state: int) -> list[tuple[float, int | None]]:
        """The coordinates a branch that comes to a state may be in; None where nothing is paid any more."""
        if self.over[state]:
            return [(1.0, None)]
        return [(float(q), self.place[state, a]) for a, q in enumerate(self.policy[state]) if q > 0]

    def outcomes(self, i: int, j: int) -> list[tuple[float, float, float, int | None, int | None]]:
        """Chance, both rewards and both next coordinates."""
        (s, a), (t, b) = self.xs[i], self.xs[j]
        found = []
        if i == j:
            for w, chance in enumerate(self.p[s]):
                for q, after in self._next(self.N[s, w, a]) if chance > 0 else []:
                    found.append((chance * q, self.R[s, w, a], self.R[s, w, a], after, after))
            return found
        is_shared = self.model.sharing == "time" or (s == t and self.model.sharing == "state")
        for (w, one), (u, other) in product(enumerate(self.p[s]), enumerate(self.p[t])):
            chance = (one if w == u else 0.0) if is_shared else one * other
            if chance > 0:
                for (q, x), (r, y) in product(self._next(self.N[s, w, a]), self._next(self.N[t, u, b])):
                    found.append((chance * q * r, self.R[s, w, a], self.R[t, u, b], x, y))
        return found

    @cached_property
    def _flat(self) -> tuple[Array, ...]:
        """All outcomes of all pairs as columns; a coordinate that is over has the number n."""
        n, rows = self.size, []
        for i, j in product(range(n), range(n)):
            for chance, r, k, x, y in self.outcomes(i, j):
                rows.append((i * n + j, chance, r, k, n if x is None else x, n if y is None else y))
        pair, chance, r, k, x, y = (np.array(column) for column in zip(*rows, strict=True))
        return pair, chance, r, k, x, y

    @cached_property
    def P(self) -> Array:
        """One branch, ``[n, n]``."""
        P = np.zeros((self.size, self.size))
        for i in range(self.size):
            for chance, _, _, x, _ in self.outcomes(i, i):
                if x is not None:
                    P[i, x] += chance
        return P

    @cached_property
    def reward(self) -> Array:
        """E R, ``[n]``."""
        return np.array([sum(c * r for c, r, *_ in self.outcomes(i, i)) for i in range(self.size)])

    @cached_property
    def P2(self) -> Array:
        """Pairs to pairs, ``[n², n²]``; under "none" distinct coordinates lead nowhere."""
        n = self.size
        pair, chance, _, _, x, y = self._flat
        kept = (x < n) & (y < n)
        if self.model.sharing == "none":
            kept &= np.isin(pair, self.diagonal)
        P2 = np.zeros((n * n, n * n))
        np.add.at(P2, (pair[kept], x[kept] * n + y[kept]), chance[kept])
        return P2

    def backed_mean(self, m: Array) -> Array:
        """E[R + γ m(X')], ``[n]``."""
        return self.reward + self.discount * self.P @ m

    def source(self, m: Array, is_centred: bool) -> Array:
        """What a step adds to covariances or second moments, ``[n²]``."""
        n, g = self.size, self.discount
        pair, chance, r, k, x, y = self._flat
        m = np.append(m, 0.0)

        def mean(values: Array) -> Array:
            return np.bincount(pair, chance * values, n * n)

        one, other = r + g * m[x], k + g * m[y]
        if is_centred:
            found = mean((one - mean(one)[pair]) * (other - mean(other)[pair]))
        else:
            found = mean(r * k + g * r * m[y] + g * k * m[x])
        if self.model.sharing == "none":
            apart = np.ones(n * n, bool)
            apart[self.diagonal] = False
            later = self.backed_mean(m[:n])
            found[apart] = 0.0 if is_centred else np.outer(later, later).ravel()[apart]
        return found

    @cached_property
    def mean(self) -> Array:
        """μ, ``[n]``."""
        return np.linalg.solve(np.eye(self.size) - self.discount * self.P, self.reward)

    def pairs(self, is_centred: bool) -> Array:
        """The true covariances or second moments, ``[n²]``."""
        matrix = np.eye(self.size**2) - self.discount**2 * self.P2
        return np.linalg.solve(matrix, self.source(self.mean, is_centred))

    # Weights

    def start(self, states: Any = None) -> Array:
        """ρ: uniform over the states asked about, then over all pairs of actions, ``[n²]``."""
        here = sorted({s for s, _ in self.xs}) if states is None else [s for s in states if not self.over[s]]
        rho = np.zeros((self.size, self.size))
        for s in here:
            members = [i for i, x in enumerate(self.xs) if x[0] == s]
            rho[np.ix_(members, members)] = 1 / (len(here) * len(members) ** 2)
        return rho.ravel()

    def restart(self, c: float, states: Any = None) -> Array:
        """(1−c) Σ cᵏ ρ P₂ᵏ, by doubling the number of terms until there is nothing to add."""
        return (1 - c) * _geometric(self.start(states), c * self.P2)

    def restart_mean(self, c: float, states: Any = None) -> Array:
        """(1−c) Σ cᵏ ρ₁ Pᵏ."""
        first = self.start(states).reshape(self.size, -1).sum(axis=1)
        return (1 - c) * _geometric(first, c * self.P)

    def long_run(self, matrix: Array, first: Array) -> Array:
        """Where a chain that waits half of the time comes to."""
        lazy = (np.eye(len(matrix)) + matrix) / 2
        for _ in range(40):
            lazy = lazy @ lazy
            lazy /= lazy.sum(axis=1, keepdims=True)
        return first @ lazy

    def table(self, values: Array) -> Array:
        """The library's numbers of all coordinates as this oracle lists them, ``[n]`` or ``[n²]``."""
        s, a = np.array(self.xs).T
        return values[s, a] if values.ndim == 2 else values[s, a][:, s, a].ravel()

    def weights(self, weighting: Any) -> Array:
        """The library's ξ, pair by pair, ``[n²]``."""
        return np.array([weighting.weight(*x, *y) for x, y in product(self.xs, self.xs)])


def stands_for(chain: PairChain, part: str) -> Array:
    """Which pairs a part of a second moment stands for, ``[n, n]``."""
    states = np.array([s for s, _ in chain.xs])
    masks = {
        "all": np.ones((chain.size,) * 2),
        "same_state": states[:, None] == states,
        "same_action": np.eye(chain.size),
    }
    return masks[part].astype(float)


class Projector:
    """Best fits in features of the coordinates of a chain, in the norms of weights ``ν [n]`` and ``ξ [n²]``.

    A second moment is ``ΦΘΦᵀ``, or a sum of such functions, each at the pairs that its part stands for.
    """

    def __init__(self, chain: PairChain, phi: Array, nu: Array, xi: Array, parts: tuple[str, ...] = ("all",)) -> None:
        self.phi, self.nu, self.xi, self.count = phi, nu, xi, len(parts)
        n, K = phi.shape
        # Any basis of the features spans the same functions, and the same positive semidefinite ones.
        basis = phi @ np.linalg.inv(np.linalg.qr(np.sqrt(nu)[:, None] * phi, mode="r"))
        U = (basis[:, None, :, None] * basis[None, :, None, :]).reshape(n * n, K * K)
        self.U = np.hstack([stands_for(chain, part).reshape(-1, 1) * U for part in parts])

    def mean(self, target: Array) -> Array:
        """Πf, at all coordinates."""
        root = np.sqrt(self.nu)
        return self.phi @ np.linalg.lstsq(root[:, None] * self.phi, root * target, rcond=None)[0]

    def pair(self, target: Array, is_psd: bool) -> Array:
        """ΠM, at all pairs; targets and weights are symmetric."""
        root = np.sqrt(self.xi)
        if not is_psd:
            return self.U @ np.linalg.lstsq(root[:, None] * self.U, root * target, rcond=None)[0]
        return self.U @ by_gradients(root[:, None] * self.U, root * target, self.count)

    def slope(self, target: Array, values: Array) -> tuple[float, float]:
        """How far a fit that is ΦΘΦᵀ with Θ ⪰ 0 is from the best one: ``⟨Q, Θ⟩`` and ``λ_min(Q)``, of the gradient Q.

        Both are 0 at the best fit and nowhere else (Karush, Kuhn and Tucker), the second where Θ is not definite.
        """
        K = self.phi.shape[1]
        gradient = (self.U.T @ (self.xi * (values - target))).reshape(self.count, K, K)
        product = float(np.sum(self.xi * (values - target) * values))  # whatever Θ the values come from
        return product, float(np.linalg.eigvalsh(gradient + gradient.swapaxes(1, 2)).min() / 2)

    def mean_size(self, f: Array) -> float:
        """‖f‖_ν."""
        return float(np.sqrt(self.nu @ f**2))

    def pair_size(self, h: Array) -> float:
        """‖h‖_ξ."""
        return float(np.sqrt(self.xi @ h**2))


def by_gradients(rows: Array, targets: Array, parts: int) -> Array:
    """The Θ ⪰ 0, or several, that minimise ``‖rows · vec Θ − targets‖``, by plain accelerated gradient steps."""
    K = int(np.sqrt(rows.shape[1] // parts))
    H, q = rows.T @ rows, rows.T @ targets
    step = 1 / np.linalg.norm(H, 2)
    x = y = np.zeros(parts * K * K)
    t = 1.0
    for _ in range(100_000):
        z = (y - step * (H @ y - q)).reshape(parts, K, K)
        values, vectors = np.linalg.eigh((z + z.swapaxes(1, 2)) / 2)
        after = ((vectors * np.maximum(values, 0)[:, None]) @ vectors.swapaxes(1, 2)).ravel()
        if np.abs(after - y).max() <= 1e-13 * np.abs(after).max():
            break
        if (y - after) @ (after - x) > 0:
            t = 1.0
        t, before = (1 + np.sqrt(1 + 4 * t * t)) / 2, t
        x, y = after, after + (before - 1) / t * (after - x)
    return after


def clarabel(rows: Array, targets: Array, parts: int = 1) -> Array:
    """The same by Clarabel, ``[parts, K, K]``; problems are scaled to size 1."""
    K = int(np.sqrt(rows.shape[1] // parts))
    size = max(float(np.linalg.norm(targets)), 1e-300)
    thetas = [cp.Variable((K, K), PSD=True) for _ in range(parts)]
    vector = cp.hstack([cp.vec(theta, order="C") for theta in thetas])
    problem = cp.Problem(cp.Minimize(cp.sum_squares(rows @ vector - targets / size)))
    with warnings.catch_warnings(action="ignore"):  # it asks for more than floats hold, and says so
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-14, tol_gap_rel=1e-14, tol_feas=1e-14)
    return size * np.array([theta.value for theta in thetas])


def _geometric(first: Array, matrix: Array) -> Array:
    """first · Σ_k matrixᵏ."""
    total, power = first, matrix
    while np.abs(power).max(initial=0.0) > 1e-18:
        total, power = total + total @ power, power @ power
    return total
