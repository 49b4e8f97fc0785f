"""The sums of a model in tables, in whitened features, and how far an answer is from the equations."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.linalg

from jointmdp.arrays import Floats, Ints
from jointmdp.bellman.feature_moments import FeatureModel, PairWeights
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.projected.fixed_point import FeatureSums
from jointmdp.projected.symmetric_matrices import as_map, smat, svec
from jointmdp.projected.weighting import PairWeighting

BLOCK = 2**22  # pairs of coordinates looked at together


class TableSums(FeatureSums):
    """`FeatureSums` of a model, a policy, features and a weighting."""

    def __init__(
        self, model: JointMDP, policy: Floats, features: Floats, weighting: PairWeighting, is_centred: bool
    ) -> None:
        self.model, self.discount, self.is_centred = model, model.discount, is_centred
        self.weighting = weighting
        self.weights = PairWeights(weighting.same, weighting.cross, weighting.node_state, weighting.node_choice)
        seen = weighting.mean > 0
        # A = L Lᵀ; by QR, because forming A would square how nearly dependent features are.
        triangle = scipy.linalg.qr(np.sqrt(weighting.mean[seen])[:, None] * features[seen], mode="r")[0]
        self.lower = np.ascontiguousarray(triangle[: features.shape[2]].T)
        flat = scipy.linalg.solve_triangular(self.lower, features.reshape(-1, features.shape[2]).T, lower=True)
        self.equations = FeatureModel(model, policy, np.ascontiguousarray(flat.T).reshape(features.shape))

    def mean_system(self) -> tuple[Floats, Floats]:
        """N and r."""
        _, later, reward = self.equations.means(self.weighting.mean)
        return later, reward

    def pair_system(self) -> tuple[Floats, Floats]:
        """H and G."""
        phi = self.equations.features
        K = phi.shape[2]
        packed = np.zeros((K, K), dtype=np.int64)
        rows, columns = np.triu_indices(K)
        packed[rows, columns] = packed[columns, rows] = np.arange(len(rows))
        H = as_map(self.equations.gram(self.weights), packed)
        G = as_map(self.equations.next_gram(self.weights), np.arange(K * K).reshape(K, K))
        here = np.einsum("saa->sa", self.weights.same).reshape(-1, 1)
        now = svec(phi[..., :, None] * phi[..., None, :]).reshape(len(here), -1)
        later = svec(self.equations.next_squares()).reshape(len(here), -1)
        return H, G + now.T @ (here * later)

    def source(self, theta: Floats) -> Floats:
        """g, of covariances or of second moments."""
        return svec(self.equations.source(self.weights, self.equations.features @ theta, self.is_centred))

    def unwhitened(self, theta: Floats, matrix: Floats) -> tuple[Floats, Floats]:
        """Parameters of the user's own features."""
        back = scipy.linalg.solve_triangular(self.lower, np.eye(len(self.lower)), lower=True)  # L⁻¹
        return back.T @ theta, back.T @ smat(matrix) @ back

    def mean_residual(self, theta: Floats) -> Floats:
        """``m − E[R + γ m(X')]`` at every coordinate, ``[S, A]``."""
        m = self.equations.features @ theta
        return m - self.equations.next_means(m)

    def pair_residual(self, theta: Floats, matrix: Floats) -> float:
        """The norm of ``M − TM`` in the weights of pairs, the means being given."""
        equations, weights, Theta = self.equations, self.weights, smat(matrix)
        m, phi = equations.features @ theta, equations.features
        fit = np.einsum("sai,ij,sbj->sab", phi, Theta, phi, optimize=True)
        total = float(np.sum(weights.same * (fit - equations.same_backup(m, Theta, self.is_centred)) ** 2))
        states = weights.node_state
        for shares, some in self._cross_shares():
            target = equations.cross_backup(states[some], states, m, Theta, self.is_centred)
            fit = np.einsum("nai,ij,mbj->namb", phi[states[some]], Theta, phi[states], optimize=True)
            total += float(np.sum(shares * (fit - target) ** 2))
        return float(np.sqrt(total))

    def largest_residual(self, m: Floats, centred: Floats) -> float:
        """The largest ``|C − TC|`` of covariances over all pairs of available coordinates."""
        equations, phi = self.equations, self.equations.features
        exists, states = self.model.available, np.arange(len(phi))
        both = exists[:, :, None] & exists[:, None, :]
        fit = np.einsum("sai,ij,sbj->sab", phi, centred, phi, optimize=True)
        off = np.abs(fit - equations.same_backup(m, centred, is_centred=True))
        largest = float(np.max(off, where=both, initial=0.0))
        step = max(1, BLOCK // (exists.size * exists.shape[1]))
        for i in range(0, len(states), step):
            some = states[i : i + step]
            fit = np.einsum("nai,ij,mbj->namb", phi[some], centred, phi, optimize=True)
            off = np.abs(fit - equations.cross_backup(some, states, m, centred, is_centred=True))
            other = exists[some][:, :, None, None] & exists & (some[:, None, None, None] != states[:, None])
            largest = max(largest, float(np.max(off, where=other, initial=0.0)))
        return largest

    def weighted(self, table: Floats) -> Floats:
        """``Σ ξ φ(x) φ(y)ᵀ t(x,y)`` of numbers given for all pairs of coordinates, ``[S, A, S, A]``."""
        phi, weights = self.equations.features, self.weights
        here = np.arange(len(phi))
        found = np.einsum("sab,sai,sbj->ij", weights.same * table[here, :, here, :], phi, phi, optimize=True)
        for shares, some in self._cross_shares():
            states = weights.node_state
            chosen = shares * table[states[some]][:, :, states]
            found = found + np.einsum("namb,nai,mbj->ij", chosen, phi[states[some]], phi[states], optimize=True)
        return found

    def distance(self, table: Floats, matrix: Floats) -> float:
        """``‖φᵀΘφ − t‖`` in the weights of pairs, of numbers given for all pairs of coordinates, ``[S, A, S, A]``."""
        phi, Theta, states = self.equations.features, smat(matrix), self.weights.node_state
        here = np.arange(len(phi))
        off = np.einsum("sai,ij,sbj->sab", phi, Theta, phi, optimize=True) - table[here, :, here, :]
        total = float(np.sum(self.weights.same * off**2))
        for shares, some in self._cross_shares():
            fit = np.einsum("nai,ij,mbj->namb", phi[states[some]], Theta, phi[states], optimize=True)
            total += float(np.sum(shares * (fit - table[states[some]][:, :, states]) ** 2))
        return float(np.sqrt(total))

    def _cross_shares(self) -> Iterator[tuple[Floats, Ints]]:
        """ξ of pairs in distinct states, ``[n, A, N, A]`` for some nodes at a time."""
        weights = self.weights
        choice, rows = weights.node_choice, np.flatnonzero(weights.cross.any(axis=1))
        step = max(1, BLOCK // (len(choice) * choice.shape[1] ** 2))
        for i in range(0, len(rows), step):
            some = rows[i : i + step]
            yield choice[some][:, :, None, None] * choice * weights.cross[some][:, None, :, None], some
