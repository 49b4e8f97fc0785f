"""The sums of a model in tables, in whitened features, and how far an answer is from the equations."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import scipy.linalg

from jointmdp.exact.bellman.feature_moments import PARTS, FeatureModel, PairMatrices, PairPart, PairWeights
from jointmdp.ground.arrays import Floats, Ints
from jointmdp.learning.projected.fixed_point import FeatureSums, as_map, smat, svec
from jointmdp.learning.projected.weighting import PairWeighting
from jointmdp.model.joint_mdp import JointMDP

BLOCK = 2**22  # pairs of coordinates looked at together


class TableSums(FeatureSums):
    """`FeatureSums` of a model, a policy, features and a weighting."""

    def __init__(  # many parameters: all that the sums depend on
        self,
        model: JointMDP,
        policy: Floats,
        features: Floats,
        weighting: PairWeighting,
        is_centred: bool,
        names: tuple[PairPart, ...],
    ) -> None:
        self.model, self.discount, self.is_centred = model, model.discount, is_centred
        self.weighting, self.names, self.parts = weighting, names, len(names)
        self.weights = PairWeights(weighting.same, weighting.cross, weighting.node_state, weighting.node_choice)
        seen = weighting.mean > 0
        # A = L Lᵀ; by QR, because forming A would square how nearly dependent features are.
        triangle = scipy.linalg.qr(np.sqrt(weighting.mean[seen])[:, None] * features[seen], mode="r")[0]
        self.lower = np.ascontiguousarray(triangle[: features.shape[2]].T)
        flat = scipy.linalg.solve_triangular(self.lower, features.reshape(-1, features.shape[2]).T, lower=True)
        self.equations = FeatureModel(model, policy, np.ascontiguousarray(flat.T).reshape(features.shape))

    def mean_system(self) -> tuple[Floats, Floats]:
        """N and r."""
        return self.equations.mean_system(self.weighting.mean)

    def pair_system(self) -> tuple[Floats, Floats]:
        """H and G."""
        grams = [self._gram(name) for name in self.names]
        H = np.block([[grams[max(i, j)] for j in range(self.parts)] for i in range(self.parts)])
        return H, np.block([self._next_grams(name) for name in self.names])

    def _gram(self, name: PairPart) -> Floats:
        """``Σ ξ u uᵀ`` over the pairs that a part stands for."""
        K = self.equations.features.shape[2]
        packed = np.zeros((K, K), dtype=np.int64)
        rows, columns = np.triu_indices(K)
        packed[rows, columns] = packed[columns, rows] = np.arange(len(rows))
        return as_map(self.equations.gram(self.weights.of(name)), packed)

    def _next_grams(self, name: PairPart) -> list[Floats]:
        """``Σ ξ u E[u']ᵀ`` over the pairs that a part stands for, of every part at the next pair."""
        equations, weights = self.equations, self.weights.of(name)
        phi, K = equations.features, equations.features.shape[2]
        here = np.einsum("saa->sa", weights.same).reshape(-1, 1)
        now = svec(phi[..., :, None] * phi[..., None, :]).reshape(len(here), -1)
        one = now.T @ (here * svec(equations.next_squares()).reshape(len(here), -1))  # one branch stays one
        if name == "same_action":
            return [one] * self.parts
        found = {"all": as_map(equations.next_gram(weights), np.arange(K * K).reshape(K, K))}
        if self.parts > 1:
            meetings = svec(equations.meetings(weights))
            found |= dict(zip(PARTS[1:], (meetings.T @ svec(each) for each in equations.met_features()), strict=True))
        return [one + found[each] for each in self.names]

    def source(self, theta: Floats) -> Floats:
        """g, of covariances or of second moments."""
        m = self.equations.features @ theta
        found = [self.equations.source(self.weights.of(name), m, self.is_centred) for name in self.names]
        return np.concatenate([svec(each) for each in found])

    def unwhitened(self, theta: Floats, vector: Floats) -> tuple[Floats, PairMatrices]:
        """Parameters of the user's own features."""
        back = scipy.linalg.solve_triangular(self.lower, np.eye(len(self.lower)), lower=True)  # L⁻¹
        return back.T @ theta, PairMatrices(*(back.T @ each @ back for each in self.matrices(vector)))

    def whitened(self, matrices: PairMatrices) -> Floats:
        """The vector of matrices of the user's own features."""
        return np.concatenate([svec(self.lower.T @ getattr(matrices, name) @ self.lower) for name in self.names])

    def matrices(self, vector: Floats) -> PairMatrices:
        """All parts of a vector."""
        found = dict(zip(self.names, smat(vector.reshape(self.parts, -1)), strict=True))
        none = np.zeros_like(self.lower)
        return PairMatrices(*(found.get(name, none) for name in PARTS))

    def mean_residual(self, theta: Floats) -> Floats:
        """``m − E[R + γ m(X')]`` at every coordinate, ``[S, A]``."""
        m = self.equations.features @ theta
        return m - self.equations.next_means(m)

    def pair_residual(self, theta: Floats, vector: Floats) -> float:
        """The norm of ``M − TM`` in the weights of pairs, the means being given."""
        equations, matrices, every = self.equations, self.matrices(vector), self.weights.node_state
        m = equations.features @ theta
        return self._norm_off(
            matrices,
            equations.same_backup(m, matrices, self.is_centred),
            lambda states: equations.cross_backup(states, every, m, matrices, self.is_centred),
        )

    def largest_residual(self, m: Floats, centred: PairMatrices) -> float:
        """The largest ``|C − TC|`` of covariances over all pairs of available coordinates."""
        equations, phi = self.equations, self.equations.features
        exists, states = self.model.available, np.arange(len(phi))
        both = exists[:, :, None] & exists[:, None, :]
        off = np.abs(centred.in_state(phi) - equations.same_backup(m, centred, is_centred=True))
        largest = float(np.max(off, where=both, initial=0.0))
        step = max(1, BLOCK // (exists.size * exists.shape[1]))
        for i in range(0, len(states), step):
            some = states[i : i + step]
            off = np.abs(
                self._cross_fit(centred, some, states)
                - equations.cross_backup(some, states, m, centred, is_centred=True)
            )
            other = exists[some][:, :, None, None] & exists & (some[:, None, None, None] != states[:, None])
            largest = max(largest, float(np.max(off, where=other, initial=0.0)))
        return largest

    def weighted(self, table: Floats) -> Floats:
        """``Σ ξ u t(x,y)`` of numbers given for all pairs of coordinates, ``[S, A, S, A]``."""
        phi, states = self.equations.features, self.weights.node_state
        here = np.arange(len(phi))
        found = []
        for name in self.names:
            shares = self.weights.of(name).same * table[here, :, here, :]
            found.append(np.einsum("sab,sai,sbj->ij", shares, phi, phi, optimize=True))
        if "all" in self.names:
            for shares, some in self._cross_shares():
                chosen = shares * table[states[some]][:, :, states]
                found[0] += np.einsum("namb,nai,mbj->ij", chosen, phi[states[some]], phi[states], optimize=True)
        return np.concatenate([svec(each) for each in found])

    def distance(self, table: Floats, vector: Floats) -> float:
        """``‖M − t‖`` in the weights of pairs, of numbers given for all pairs of coordinates, ``[S, A, S, A]``."""
        here, every = np.arange(len(table)), self.weights.node_state
        matrices = self.matrices(vector)
        return self._norm_off(matrices, table[here, :, here, :], lambda states: table[states][:, :, every])

    def _norm_off(self, matrices: PairMatrices, same: Floats, cross: Callable[[Ints], Floats]) -> float:
        """The norm of M less targets: ``[S, A, A]``, and as a function of n states ``[n, A, N, A]`` with all nodes."""
        nodes = self.weights.node_state
        total = float(np.sum(self.weights.same * (matrices.in_state(self.equations.features) - same) ** 2))
        for shares, some in self._cross_shares():
            off = self._cross_fit(matrices, nodes[some], nodes) - cross(nodes[some])
            total += float(np.sum(shares * off**2))
        return float(np.sqrt(total))

    def _cross_fit(self, matrices: PairMatrices, states: Ints, others: Ints) -> Floats:
        """M at coordinates of states and of others, all pairs taken as distinct states, ``[n, A, m, A]``."""
        phi = self.equations.features
        return np.einsum("nai,ij,mbj->namb", phi[states], matrices.all, phi[others], optimize=True)

    def _cross_shares(self) -> Iterator[tuple[Floats, Ints]]:
        """ξ of pairs in distinct states, ``[n, A, N, A]`` for some nodes at a time."""
        weights = self.weights
        choice, rows = weights.node_choice, np.flatnonzero(weights.cross.any(axis=1))
        step = max(1, BLOCK // (len(choice) * choice.shape[1] ** 2))
        for i in range(0, len(rows), step):
            some = rows[i : i + step]
            yield choice[some][:, :, None, None] * choice * weights.cross[some][:, None, :, None], some
