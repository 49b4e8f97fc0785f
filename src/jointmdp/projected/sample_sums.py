"""The sums of `bellman.feature_moments`, estimated from visited pairs.

Every visit adds to sums of fixed size, so that memory does not depend on the number of states. With ``u`` and ``u'``
the products of features of a pair and of the next one, and Δ the difference of two independent draws:

    H += u uᵀ        G += u u'ᵀ        covariance source  ½ (ΔR + γθᵀΔφ')(ΔR̃ + γθᵀΔφ̃')

The source is a polynomial of degree 2 in θ, which is not known before the end: three sums hold its coefficients. Where
theory says that two branches are independent, their covariance is 0 and not estimated.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg

from jointmdp.arrays import Floats, Ints
from jointmdp.checks import Sharing
from jointmdp.projected.feature_walks import FeatureSamples, PairKind
from jointmdp.projected.fixed_point import FeatureSums
from jointmdp.projected.symmetric_matrices import congruence, products, smat, svec

RIDGE = 1e-13  # of the mean square of the features: directions that were hardly visited are held at 0


class Sums(NamedTuple):
    """Sums over visits, of R replicas at once or of one."""

    coordinates: Floats  # how many were visited
    pairs: Floats
    gram: Floats  # [K, K] φφᵀ
    next_gram: Floats  # [K, K] φ φ'ᵀ
    reward: Floats  # [K]
    pair_gram: Floats  # [n, n]
    pair_next: Floats  # [n, n]
    source: Floats  # [n] of the source without θ
    source_linear: Floats  # [n, K]
    source_square: Floats  # [n, n]


def empty_sums(replicas: int, features: int) -> Sums:
    """Before the first visit."""
    K, n = features, features * (features + 1) // 2
    shapes = ((), (), (K, K), (K, K), (K,), (n, n), (n, n), (n,), (n, K), (n, n))
    return Sums(*(np.zeros((replicas, *shape)) for shape in shapes))


def add(sums: Sums, r: int, samples: FeatureSamples, discount: float, sharing: Sharing, is_centred: bool) -> None:
    """Add visits ``[N]`` to the sums of replica r, in place."""
    phi, later, rewards = samples.features, samples.next_features, samples.rewards
    x = phi.reshape(-1, phi.shape[-1])
    sums.coordinates[r] += len(x)
    sums.gram[r] += x.T @ x
    sums.next_gram[r] += x.T @ later.mean(axis=1).reshape(x.shape)
    sums.reward[r] += x.T @ rewards.mean(axis=1).reshape(-1)
    pair = samples.kinds != PairKind.NO_PAIR
    kinds, phi, later, rewards = samples.kinds[pair], phi[pair], later[pair], rewards[pair]
    u = products(phi[:, 0], phi[:, 1])
    is_one = kinds == PairKind.ONE
    goes_on = is_one | (sharing != "none")
    after = _next_products(later)
    sums.pairs[r] += len(u)
    sums.pair_gram[r] += u.T @ u
    sums.pair_next[r] += np.where(goes_on[:, None], u, 0.0).T @ after
    if is_centred:
        is_shared = is_one | (sharing == "time") | ((kinds == PairKind.SAME_STATE) & (sharing == "state"))
        u = np.where(is_shared[:, None], u, 0.0)
        constant, linear, square = _spread(rewards, later, discount)
    else:
        constant, linear = _raw(rewards, later, discount)
        square = np.where(goes_on[:, None], 0.0, discount**2 * after)  # of a product of two means
    sums.source[r] += u.T @ constant
    sums.source_linear[r] += u.T @ linear
    sums.source_square[r] += u.T @ square


def _next_products(later: Floats) -> Floats:
    """The mean of ``u'`` over the two draws."""
    return (products(later[:, 0, 0], later[:, 0, 1]) + products(later[:, 1, 0], later[:, 1, 1])) / 2


def _spread(rewards: Floats, later: Floats, g: float) -> tuple[Floats, Floats, Floats]:
    """½ (ΔR + γθᵀΔφ')(ΔR̃ + γθᵀΔφ̃'), by powers of θ."""
    r, f = rewards[:, 0] - rewards[:, 1], later[:, 0] - later[:, 1]  # [N, 2], [N, 2, K]
    linear = (g / 2) * (r[:, :1] * f[:, 1] + r[:, 1:] * f[:, 0])
    return r[:, 0] * r[:, 1] / 2, linear, (g**2 / 2) * products(f[:, 0], f[:, 1])


def _raw(rewards: Floats, later: Floats, g: float) -> tuple[Floats, Floats]:
    """R R̃ + γ R m(Y') + γ R̃ m(X'), by powers of θ."""
    constant = np.mean(rewards[:, :, 0] * rewards[:, :, 1], axis=1)
    return constant, g * np.mean(rewards[:, :, :1] * later[:, :, 1] + rewards[:, :, 1:] * later[:, :, 0], axis=1)


class SampleSums(FeatureSums):
    """`FeatureSums` from visits."""

    def __init__(self, sums: Sums, discount: float, kept: Ints) -> None:
        """`kept` are the features that were ever seen to be other than 0."""
        self.discount, self.kept = discount, kept
        size = len(sums.gram)
        chosen = np.zeros((size, size), dtype=bool)
        chosen[np.ix_(kept, kept)] = True
        rows, columns = np.triu_indices(size)
        self.places = np.flatnonzero(chosen[rows, columns])
        self.sums = sums
        gram = sums.gram[np.ix_(kept, kept)] / max(float(sums.coordinates), 1.0)
        held = RIDGE * np.trace(gram) / max(len(kept), 1)
        self.lower = np.linalg.cholesky(gram + held * np.eye(len(kept)))
        self._inverse = scipy.linalg.solve_triangular(self.lower, np.eye(len(kept)), lower=True)
        self._turn = congruence(self._inverse)

    def mean_system(self) -> tuple[Floats, Floats]:
        """N and r."""
        sums, kept, inverse = self.sums, self.kept, self._inverse
        count = max(float(sums.coordinates), 1.0)
        return inverse @ (sums.next_gram[np.ix_(kept, kept)] / count) @ inverse.T, inverse @ (sums.reward[kept] / count)

    def pair_system(self) -> tuple[Floats, Floats]:
        """H and G."""
        count, places, turn = max(float(self.sums.pairs), 1.0), np.ix_(self.places, self.places), self._turn
        H, G = (turn @ (each[places] / count) @ turn.T for each in (self.sums.pair_gram, self.sums.pair_next))
        # Directions that hardly any visit sees are held at 0, by far less than the noise of N visits.
        return (H + H.T) / 2 + np.trace(H) / count**2 * np.eye(len(H)), G

    def source(self, theta: Floats) -> Floats:
        """g, given the mean."""
        own, count = self._inverse.T @ theta, max(float(self.sums.pairs), 1.0)
        found = self.sums.source[self.places] + self.sums.source_linear[np.ix_(self.places, self.kept)] @ own
        found = found + self.sums.source_square[np.ix_(self.places, self.places)] @ svec(np.outer(own, own))
        return self._turn @ (found / count)

    def unwhitened(self, theta: Floats, matrix: Floats) -> tuple[Floats, Floats]:
        """Parameters of all features; those never seen have 0."""
        size = len(self.sums.gram)
        whole, square = np.zeros(size), np.zeros((size, size))
        whole[self.kept] = self._inverse.T @ theta
        square[np.ix_(self.kept, self.kept)] = self._inverse.T @ smat(matrix) @ self._inverse
        return whole, square
