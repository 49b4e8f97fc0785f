"""The sums of `bellman.feature_moments`, estimated from visited pairs.

Every visit adds to sums of fixed size, so that memory does not depend on the number of states. With ``u`` and ``u'``
the products of features of a pair and of the next one, and Δ the difference of two independent draws:

    H += u uᵀ        G += u u'ᵀ        covariance source  ½ (ΔR + γθᵀΔφ')(ΔR̃ + γθᵀΔφ̃')

and as many vectors u, one after the other, as covariances have parts, each 0 at pairs that its part does not stand for.
The source is a polynomial of degree 2 in θ, which is not known before the end: three sums hold its coefficients. Where
theory says that two branches are independent, their covariance is 0 and not estimated.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg

from jointmdp.arrays import Floats, Ints
from jointmdp.bellman.feature_moments import PARTS, PairPart
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
    pair_gram: Floats  # [P, n, n] over the pairs that a part stands for
    pair_next: Floats  # [P, n, P, n]
    source: Floats  # [P, n] of the source without θ
    source_linear: Floats  # [P, n, K]
    source_square: Floats  # [P, n, n]


def empty_sums(replicas: int, features: int, parts: int) -> Sums:
    """Before the first visit."""
    K, n, P = features, features * (features + 1) // 2, parts
    shapes = ((), (), (K, K), (K, K), (K,), (P, n, n), (P, n, P, n), (P, n), (P, n, K), (P, n, n))
    return Sums(*(np.zeros((replicas, *shape)) for shape in shapes))


def size_of_sums(replicas: int, features: int, parts: int) -> int:
    """Bytes of all sums, and of what a solve makes of them."""
    return 8 * (replicas + 6) * (2 * parts + parts**2) * (features * (features + 1) // 2) ** 2


class VisitRules(NamedTuple):
    """What the sums of visits depend on."""

    discount: float
    sharing: Sharing
    is_centred: bool
    parts: tuple[PairPart, ...]


def add(sums: Sums, r: int, samples: FeatureSamples, rules: VisitRules) -> None:
    """Add visits ``[N]`` to the sums of replica r, in place."""
    discount, sharing = rules.discount, rules.sharing
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
    each = [products(later[:, d, 0], later[:, d, 1]) for d in (0, 1)]
    after = (each[0] + each[1]) / 2
    if rules.is_centred:
        is_shared = is_one | (sharing == "time") | ((kinds == PairKind.SAME_STATE) & (sharing == "state"))
        constant, linear, square = _spread(rewards, later, discount)
    else:
        is_shared = np.ones(len(u), dtype=bool)
        constant, linear = _raw(rewards, later, discount)
        square = np.where(goes_on[:, None], 0.0, discount**2 * after)  # of a product of two means
    levels = [PARTS.index(part) for part in rules.parts]
    kinds_after = samples.next_kinds[pair][:, :, None]  # [N, 2 draws, 1]
    nexts = [sum(np.where(kinds_after[:, d] >= k, each[d], 0.0) for d in (0, 1)) / 2 for k in levels]
    sums.pairs[r] += len(u)
    for i, k in enumerate(levels):
        own = np.where(kinds[:, None] >= k, u, 0.0)
        going, shared = np.where(goes_on[:, None], own, 0.0), np.where(is_shared[:, None], own, 0.0)
        sums.pair_gram[r, i] += own.T @ own
        for j, following in enumerate(nexts):
            sums.pair_next[r, i, :, j] += going.T @ following
        sums.source[r, i] += shared.T @ constant
        sums.source_linear[r, i] += shared.T @ linear
        sums.source_square[r, i] += shared.T @ square


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
        self.discount, self.kept, self.parts = discount, kept, len(sums.source)
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
        count, some, every = max(float(self.sums.pairs), 1.0), np.ix_(self.places, self.places), range(self.parts)

        def turned(block: Floats) -> Floats:
            return self._turn @ (block[some] / count) @ self._turn.T

        grams = [turned(each) for each in self.sums.pair_gram]
        H = np.block([[grams[max(i, j)] for j in every] for i in every])
        G = np.block([[turned(self.sums.pair_next[i, :, j]) for j in every] for i in every])
        # Directions that hardly any visit sees are held at 0, by far less than the noise of N visits.
        return (H + H.T) / 2 + np.trace(H) / count**2 * np.eye(len(H)), G

    def source(self, theta: Floats) -> Floats:
        """g, given the mean."""
        own, count = self._inverse.T @ theta, max(float(self.sums.pairs), 1.0)
        sums, places = self.sums, self.places
        found = sums.source[:, places] + sums.source_linear[:, places][:, :, self.kept] @ own
        found = found + sums.source_square[:, places][:, :, places] @ svec(np.outer(own, own))
        return ((found / count) @ self._turn.T).ravel()

    def unwhitened(self, theta: Floats, vector: Floats) -> tuple[Floats, Floats]:
        """Parameters of all features, matrices ``[P, K, K]``; those never seen have 0."""
        size = len(self.sums.gram)
        whole, found = np.zeros(size), np.zeros((self.parts, size, size))
        whole[self.kept] = self._inverse.T @ theta
        for k, matrix in enumerate(smat(vector.reshape(self.parts, -1))):
            found[k][np.ix_(self.kept, self.kept)] = self._inverse.T @ matrix @ self._inverse
        return whole, found
