"""Means and second moments in the space of features.

With features ``φ(x)`` a mean is ``φ(x)ᵀθ`` and a covariance or second moment ``φ(x)ᵀΘφ(y)`` with a symmetric Θ. The
projection of a target onto them in the norm of weights ν and ξ minimises a quadratic form, and the target depends on
Θ by one step of the pair process. So all that is needed of model, policy and weights are a few sums:

    mean      A = Σ ν φ φᵀ            N = Σ ν φ E[φ(X')]ᵀ          r = Σ ν φ E[R]             Aθ = r + γNθ
    pairs     H = Σ ξ u uᵀ            G = Σ ξ u E[u']ᵀ             g = Σ ξ u t                u = svec(φ(x) φ(y)ᵀ)

A function of that kind is smooth: it says that neighbouring states vary together. So a second moment may have *parts*,
each with a matrix of its own, all positive semidefinite:

    φ(x)ᵀΘφ(y)  +  1[same state] φ(x)ᵀΘ₁φ(y)  +  1[x = y] φ(x)ᵀΘ₂φ(y)

Then u is made of as many vectors, and the sums of blocks. The block of two parts looks at pairs that both stand for.

Here ``u'`` is ``u`` at the next pair, and the source ``t(x,y)`` is what one step adds when the means are known:

    covariance      t = Cov(R + γ m(X'), R̃ + γ m(Y'))
    second moment   t = E[R R̃ + γ R m(Y') + γ R̃ m(X')]

both over one scenario or two, as the sharing says, and independent next actions; for x = y over one of each. Under
``"none"`` distinct coordinates are independent: no G there, t = 0, and ``E[R + γ m(X')] E[R̃ + γ m(Y')]``.

On the host: sums over tables of any shape, and K²×K² matrices. Nothing would be compiled twice.
"""

from itertools import pairwise
from typing import Literal, NamedTuple, get_args

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int
from numpy import ndarray

from jointmdp.exact.bellman.pair_step import coordinate_kernel, coordinate_kernels
from jointmdp.ground.arrays import Floats, summed
from jointmdp.model.joint_mdp import JointMDP

ROWS = 2**22  # numbers in a block of rows of products


PairPart = Literal["all", "same_state", "same_action"]
PARTS: tuple[PairPart, ...] = get_args(PairPart)  # each stands for some of the pairs that the one before it stands for


class PairWeights(NamedTuple):
    """ξ: in the same state on pairs of actions, in distinct states on nodes, each a state with a law of its action."""

    same: Float[ndarray, "S A A"]
    cross: Float[ndarray, "N N"]
    node_state: Int[ndarray, " N"]
    node_choice: Float[ndarray, "N A"]

    def of(self, part: PairPart) -> "PairWeights":
        """Those of the pairs that a part stands for."""
        if part == "all":
            return self
        same = self.same if part == "same_state" else self.same * np.eye(self.same.shape[1])
        return self._replace(same=same, cross=np.zeros_like(self.cross))


class PairMatrices(NamedTuple):
    """The matrices of the three parts; 0 where there is none."""

    all: Float[ndarray, "K K"]
    same_state: Float[ndarray, "K K"]
    same_action: Float[ndarray, "K K"]

    @property
    def total(self) -> Float[ndarray, "K K"]:
        """Of a coordinate with itself."""
        return self.all + self.same_state + self.same_action

    def in_state(self, phi: Float[ndarray, "*N A K"]) -> Float[ndarray, "*N A A"]:
        """Of all pairs of actions of a state, or of many."""
        own = self.own(phi, self.same_action)
        return phi @ (self.all + self.same_state) @ phi.swapaxes(-1, -2) + own[..., None] * np.eye(phi.shape[-2])

    def of_gap(self, one: Float[ndarray, " K"], other: Float[ndarray, " K"]) -> float:
        """The variance of the gap of two actions of a state."""
        d = one - other
        own = sum(float(x @ self.same_action @ x) for x in (one, other))
        return float(d @ (self.all + self.same_state) @ d) + own

    @staticmethod
    def own(phi: Float[ndarray, "*N A K"], matrix: Float[ndarray, "K K"]) -> Float[ndarray, "*N A"]:
        """φᵀΘφ of each action."""
        return np.sum((phi @ matrix) * phi, axis=-1)


class FeatureModel:
    """A model, a policy and features, as the sums read them."""

    def __init__(self, model: JointMDP, policy: Floats, features: Float[ndarray, "S A K"]) -> None:
        self.model, self.policy, self.features = model, policy, features
        self.chances = np.where(model.is_possible, model.probabilities[:, :, None], 0.0)  # [S, W, A]
        self.rewards = model.paid_rewards
        self.state_features = np.einsum("sa,sak->sk", policy, features)
        S, A, K = features.shape
        self.kernel = coordinate_kernel(model)  # P(s'|s,a)
        self.kernels = coordinate_kernels(model)  # of two coordinates in distinct states, with chances
        self.next_features = (self.kernel @ self.state_features).reshape(S, A, K)

    def mean_system(self, nu: Float[ndarray, "S A"]) -> tuple[Float[ndarray, "K K"], Float[ndarray, " K"]]:
        """N and r."""
        weighted = nu[:, :, None] * self.features
        return (
            np.einsum("sai,saj->ij", weighted, self.next_features),
            np.einsum("sai,sa->i", weighted, self._expected(self.rewards)),
        )

    def gram(self, weights: PairWeights) -> Float[ndarray, "n n"]:
        """H, as the matrix ``Σ ξ(x,y) (φφᵀ)(x) (φφᵀ)(y)ᵀ`` of vectors ``i ≤ j`` without factors."""
        rows, columns = np.triu_indices(self.features.shape[2])
        own = self.features[:, :, rows] * self.features[:, :, columns]  # [S, A, n]
        nodes = np.einsum("na,nai->ni", weights.node_choice, own[weights.node_state])
        found = nodes.T @ (weights.cross @ nodes)
        paired = np.einsum("sab,sbi->sai", weights.same, own)
        return found + np.einsum("sai,saj->ij", own, paired, optimize=True)

    def next_gram(self, weights: PairWeights) -> Float[ndarray, "Q Q"]:
        """The part of G from pairs of distinct coordinates, on vectors ``φ_i(x) φ_k(X')`` of all i and k."""
        model, phi = self.model, self.features
        S, A, K = phi.shape
        found = np.zeros((K * K, K * K))
        if model.sharing == "none":
            return found
        if weights.cross.any():
            for chance, kernel in self.kernels:
                nodes = _by_node(weights, phi, (kernel @ self.state_features).reshape(S, A, K))
                found += chance * (nodes.T @ (weights.cross @ nodes))
        off = weights.same * (1 - np.eye(A))
        # Where all actions of a state lead together, each case once: states, successors [n, A] and chances.
        states = np.flatnonzero(off.any(axis=(1, 2)))
        cases = np.column_stack([np.repeat(states, model.num_scenarios), model.successors[states].reshape(-1, A)])
        distinct, kind = np.unique(cases, axis=0, return_inverse=True)
        at, successors = distinct[:, 0], distinct[:, 1:]
        chances = summed(kind.ravel(), model.probabilities[states].ravel(), len(distinct))
        step = max(1, ROWS // (A * K * K))
        for some in (slice(i, i + step) for i in range(0, len(at), step)):
            later = self.state_features[successors[some]]
            rows = (phi[at[some]][:, :, :, None] * later[:, :, None, :]).reshape(-1, A, K * K)
            shared = chances[some, None, None] * off[at[some]]
            found += np.tensordot(rows, np.einsum("sab,sbq->saq", shared, rows, optimize=True), ((0, 1), (0, 1)))
        return found

    def meetings(self, weights: PairWeights) -> Float[ndarray, "S K K"]:
        """``Σ ξ(x,y) P(both go to s') φ(x) φ(y)ᵀ`` for every state s', of pairs of distinct coordinates."""
        model, phi = self.model, self.features
        S, A, K = phi.shape
        found = np.zeros((S, K * K))
        if model.sharing == "none":
            return found.reshape(S, K, K)
        n, off = model.successors, weights.same * (1 - np.eye(A))
        for a, b in zip(*np.nonzero(np.triu(off.any(axis=0))), strict=True):
            s, w = np.nonzero(n[:, :, a] == n[:, :, b])
            chances = model.probabilities[s, w] * off[s, a, b]
            together = sp.csr_array((chances, (n[s, w, a], s)), shape=(S, S))
            both = (phi[:, a, :, None] * phi[:, b, None, :] + phi[:, b, :, None] * phi[:, a, None, :]).reshape(S, -1)
            found += together @ both
        found = found.reshape(S, K, K)
        if weights.cross.any():
            rows = np.repeat(np.arange(len(weights.node_state)), A)
            columns = (weights.node_state[:, None] * A + np.arange(A)).ravel()
            drawn = sp.csc_array((weights.node_choice.ravel(), (rows, columns)), shape=(len(weights.cross), S * A))
            flat = phi.reshape(S * A, K)
            for chance, kernel in self.kernels:
                entered = kernel.tocsc()
                for to, (begin, end) in enumerate(pairwise(entered.indptr)):
                    places, shares = entered.indices[begin:end], entered.data[begin:end]
                    some = drawn[:, places]
                    seen = np.unique(some.indices)  # the nodes that lead there: few
                    nodes = some.tocsr()[seen] @ (shares[:, None] * flat[places])
                    found[to] += chance * (nodes.T @ weights.cross[np.ix_(seen, seen)] @ nodes)
        return found

    def met_features(self) -> tuple[Float[ndarray, "S K K"], Float[ndarray, "S K K"]]:
        """E[φ(X') φ(Y')ᵀ] of two branches that enter a state, and the part of it where they draw the same action."""
        v = self.state_features
        squares = np.einsum("sa,sai,saj->sij", self.policy**2, self.features, self.features, optimize=True)
        return v[:, :, None] * v[:, None, :], squares

    def next_squares(self) -> Float[ndarray, "S A K K"]:
        """E[φ(X') φ(X')ᵀ] of one branch."""
        each = np.einsum("sa,sai,saj->sij", self.policy, self.features, self.features)
        S, A, K = self.features.shape
        return (self.kernel @ each.reshape(S, K * K)).reshape(S, A, K, K)

    def next_means(self, m: Float[ndarray, "S A"]) -> Float[ndarray, "S A"]:
        """``E[R + γ m(X')]``, one backup of the means."""
        return self._expected(self.rewards + self._later(m))

    def source(self, weights: PairWeights, m: Float[ndarray, "S A"], is_centred: bool) -> Float[ndarray, "K K"]:
        """``Σ ξ φ(x) φ(y)ᵀ t(x,y)``, given the means of all coordinates."""
        phi = self.features
        found = np.einsum("sab,sai,sbj->ij", weights.same * self.one_step(m, is_centred), phi, phi, optimize=True)
        for chance, *factors in self._cross_products(m, is_centred) if weights.cross.any() else []:
            left, right = (_by_node(weights, phi, each[:, :, None]) for each in factors)
            found = found + chance * (left.T @ (weights.cross @ right))
        return found

    def one_step(self, m: Float[ndarray, "S A"], is_centred: bool) -> Float[ndarray, "S A A"]:
        """t(x,y) for all pairs of one state."""
        products = self._products(m, is_centred)
        diagonal = self.step_variance(m) if is_centred else sum(self._expected(x * y) for x, y in products)
        shared = np.zeros((*m.shape, m.shape[1]))
        if self.model.sharing != "none":
            for left, right in products:
                shared += np.einsum("sw,swa,swb->sab", self.model.probabilities, left, right, optimize=True)
        else:  # as in distinct states
            for chance, left, right in self._cross_products(m, is_centred):
                shared += chance * left[:, :, None] * right[:, None, :]
        return np.where(np.eye(m.shape[1], dtype=bool), np.asarray(diagonal)[:, :, None], shared)

    def _products(self, m: Float[ndarray, "S A"], is_centred: bool) -> list[tuple[Floats, Floats]]:
        """t(x,y) in one scenario as a sum of products of what each branch gives, ``[S, W, A]``."""
        if is_centred:
            noise = self.noise(m)
            return [(noise, noise)]
        paid, later = self.rewards, self._later(m)
        return [(paid, paid + later), (later, paid)]

    def _cross_products(self, m: Float[ndarray, "S A"], is_centred: bool) -> list[tuple[float, Floats, Floats]]:
        """t(x,y) in distinct states: chances of what both see, and products of what each branch then gives."""
        sharing = self.model.sharing
        if is_centred and sharing != "time":
            return []  # independent scenarios
        if sharing == "none":
            backed = self.next_means(m)
            return [(1.0, backed, backed)]
        products = self._products(m, is_centred)
        if sharing == "state":
            return [(1.0, self._expected(left), self._expected(right)) for left, right in products]
        chances = [(w, float(chance)) for w, chance in enumerate(self.model.probabilities[0]) if chance > 0]
        return [(chance, left[:, w], right[:, w]) for w, chance in chances for left, right in products]

    def noise(self, m: Float[ndarray, "S A"]) -> Float[ndarray, "S W A"]:
        """``R + γ v(S')`` less its mean over the scenarios."""
        outcome = self.rewards + self._later(m)
        return np.where(self.model.is_possible, outcome - self._expected(outcome)[:, None, :], 0.0)

    def step_variance(self, m: Float[ndarray, "S A"]) -> Float[ndarray, "S A"]:
        """The variance of ``R + γ m(X')`` over scenario and next action."""
        v = np.sum(self.policy * m, axis=1)
        spread = np.sum(self.policy * (m - v[:, None]) ** 2, axis=1)
        values = self.noise(m) ** 2 + self.model.discount**2 * spread[self.model.successors]
        return self._expected(values)

    def entered(self, matrices: PairMatrices) -> tuple[Float[ndarray, "S S"], Float[ndarray, " S"]]:
        """A second moment at the states that are entered, actions still to be drawn: of two branches, and of one."""
        phi, v, own = self.features, self.state_features, matrices.own
        met = own(v, matrices.same_state) + np.sum(self.policy**2 * own(phi, matrices.same_action), axis=1)
        one = np.sum(self.policy * own(phi, matrices.total), axis=1)
        return v @ matrices.all @ v.T + np.diag(met), one

    def same_backup(self, m: Float[ndarray, "S A"], matrices: PairMatrices, is_centred: bool) -> Floats:
        """The operator's value at all pairs of one state, ``[S, A, A]``."""
        model, g, n = self.model, self.model.discount, self.model.successors
        found, (both, one) = self.one_step(m, is_centred), self.entered(matrices)
        squares = (self.kernel @ one).reshape(m.shape)
        later = np.zeros_like(found)
        if model.sharing != "none":
            later = np.einsum("sw,swab->sab", model.probabilities, both[n[:, :, :, None], n[:, :, None, :]])
        return found + g**2 * np.where(np.eye(m.shape[1], dtype=bool), squares[:, :, None], later)

    def cross_backup(  # many parameters: which coordinates, and a candidate
        self,
        one: Int[ndarray, " N"],
        other: Int[ndarray, " M"],
        m: Float[ndarray, "S A"],
        matrices: PairMatrices,
        is_centred: bool,
    ) -> Float[ndarray, "N A M A"]:
        """The operator's value at all coordinates of some states and of others, all pairs taken as distinct states."""
        g, A = self.model.discount, m.shape[1]
        found = np.zeros((len(one), A, len(other), A))
        for chance, left, right in self._cross_products(m, is_centred):
            found += chance * left[one][:, :, None, None] * right[other]
        two, _ = self.entered(matrices)
        rows, columns = ((states[:, None] * A + np.arange(A)).ravel() for states in (one, other))
        for chance, kernel in self.kernels:
            found += g**2 * chance * (kernel[columns] @ (kernel[rows] @ two).T).T.reshape(found.shape)
        return found

    def _expected(self, values: Float[ndarray, "S W A"]) -> Float[ndarray, "S A"]:
        """The mean over the scenarios."""
        return np.einsum("swa,swa->sa", self.chances, values)

    def _later(self, m: Float[ndarray, "S A"]) -> Float[ndarray, "S W A"]:
        """γ v(S') where it can happen."""
        v = np.sum(self.policy * m, axis=1)
        return np.where(self.model.is_possible, self.model.discount * v[self.model.successors], 0.0)


def _by_node(
    weights: PairWeights, phi: Float[ndarray, "S A K"], values: Float[ndarray, "S A L"]
) -> Float[ndarray, "N KL"]:
    """Σ_a choice(a) φ_i(s,a) f_l(s,a) for each node, the policy's mean of products."""
    states = weights.node_state
    found = np.einsum("na,nai,nal->nil", weights.node_choice, phi[states], values[states], optimize=True)
    return found.reshape(len(states), -1)
