"""A projection, from its settings to its answer: moments in features, and what theory says of their distance to truth.

Writing m̂ and M̂ for the fixed point, μ and M for the truth, c and c₂ for the constants of the weights of means and of
pairs, κ₁ = γ/√c and κ₂ = γ²/√c₂:

    before          ‖m̂ − μ‖ ≤ ‖Πμ − μ‖ / (1 − κ₁)       ‖M̂ − M‖ ≤ (‖ΠM − M‖ + b ‖m̂ − μ‖) / (1 − κ₂)
    afterwards      ‖m̂ − μ‖ ≤ ‖m̂ − Tm̂‖ / (1 − κ₁)      ‖M̂ − M‖ ≤ (‖M̂ − TM̂‖ + b ‖m̂ − μ‖) / (1 − κ₂)

in the norms of the weights. The first line needs the truth, the second only one step of the exact operator, so it comes
with every answer. docs/projected.md derives b:

    covariances      b = γ (σ̂ + σ) / √c,  the largest standard deviations of one step under m̂ and under μ
    second moments   b = 2γ R_max / √c,   and under "none" that of the product of two means

A number that is a sum ``Σ k_z M(z)`` over pairs is off by at most ``‖M̂ − M‖ √(Σ k_z²/ξ(z))``; two coordinates that are
distinct make two pairs, and the weights of both count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Number
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from jointmdp.exact.bellman.feature_moments import PARTS, FeatureModel, PairMatrices, PairPart, PairWeights
from jointmdp.exact.moments.certificates import Certificate, Status, mean_operations, norm_weight, pair_operations
from jointmdp.exact.moments.stored_moments import GapEstimate
from jointmdp.exact.solution.solution import Solution
from jointmdp.ground import checks
from jointmdp.ground.arrays import UNIT, Floats, Ints
from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import ModelError
from jointmdp.learning.projected.feature_forms import as_feature_table, check_rank
from jointmdp.learning.projected.fixed_point import (
    FeatureMatrices,
    FeatureSystem,
    FixedPoint,
    QuadraticForm,
    as_map,
    fit_psd,
    smat,
    solve_fixed_point,
    svec,
)
from jointmdp.learning.projected.weighting import PairWeighting, own_weighting, restart_weighting, stationary_weighting
from jointmdp.learning.runs import SamplingMethod
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.tables import ActionLike, StateLike, terminal_states

BLOCK = 2**22  # pairs of coordinates looked at together
# How near a fit comes to the best one. Distances to the truth are the sides of a right angle: the best is then known to
CLOSE = 1e-4  # 1e-8 of itself, if this is a part of the distance that is left without the constraint
CLOSEST = 1e-7  # and to 1e-14 of the size of the fit, where that is less


class TableSums:
    """What a model, a policy, features and a weighting make of a `FeatureSystem`, and of its answer."""

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

    @property
    def system(self) -> FeatureSystem:
        """What the fixed point needs."""
        N, r = self.equations.mean_system(self.weighting.mean)
        G = np.block([self._next_grams(name) for name in self.names])
        return FeatureSystem(self.discount, self.parts, N, r, self.gram, G, self._source)

    @cached_property
    def gram(self) -> Floats:
        """H: of every two parts ``Σ ξ u uᵀ`` over the pairs that both stand for."""
        K = self.equations.features.shape[2]
        packed = np.zeros((K, K), dtype=np.int64)
        rows, columns = np.triu_indices(K)
        packed[rows, columns] = packed[columns, rows] = np.arange(len(rows))
        grams = [as_map(self.equations.gram(self.weights.of(name)), packed) for name in self.names]
        return np.block([[grams[max(i, j)] for j in range(self.parts)] for i in range(self.parts)])

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

    def _source(self, theta: Floats) -> Floats:
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


class Contraction(NamedTuple):
    """A factor by which one step of the projected operator shrinks distances."""

    bound: float
    """What the theory promises."""
    seen: float
    """What it is in these features, without the constraint."""

    def __str__(self) -> str:
        return f"{self.seen:.4g} (theory: at most {self.bound:.4g})"


class ProjectionErrors(NamedTuple):
    """Distances in the norms of the weights: how well the features could do, what that promises, and what came out."""

    mean_projection: float
    """‖Πμ − μ‖."""
    mean_bound: float
    """‖Πμ − μ‖ / (1 − κ₁)."""
    mean_error: float
    """‖m̂ − μ‖."""
    pair_projection: float
    """‖ΠM − M‖, of covariances or second moments, as projected."""
    pair_bound: float
    """(‖ΠM − M‖ + b ‖m̂ − μ‖) / (1 − κ₂)."""
    pair_error: float
    """‖M̂ − M‖."""


@dataclass(frozen=True, eq=False, repr=False)
class ProjectedMoments:
    """Means ``φᵀθ`` and covariances ``φᵀΨφ``, or second moments ``φᵀΘφ``, each in parts."""

    features: Floats  # [S, A, K]
    theta: Floats  # [K]
    matrices: PairMatrices
    is_centred: bool
    mean_errors: Floats  # [S, A] pointwise
    pair_error: float  # in the norm of the weights
    weighting: PairWeighting
    covariance_error: float  # of every covariance

    @cached_property
    def mean(self) -> Floats:
        """E Z(s,a), ``[S, A]``."""
        return self.features @ self.theta

    @cached_property
    def centred(self) -> PairMatrices:
        """Ψ, whose part for all pairs is that of Θ less θθᵀ."""
        return centred(self.theta, self.matrices, self.is_centred)

    def blocks(self, states: Sequence[int], actions: Sequence[int]) -> Floats:
        """Covariances of the chosen actions in each chosen state, ``[n, m, m]``."""
        phi = self.features[np.asarray(states)][:, np.asarray(actions)]
        return self.centred.in_state(phi)

    def between(self, s: int, a: int, t: int, b: int) -> float:
        """Covariance of two coordinates in distinct states."""
        return float(self.features[s, a] @ self.centred.all @ self.features[t, b])

    def across(self) -> Floats:
        """Covariances of all coordinates in distinct states, ``[S, A, S, A]``."""
        return np.einsum("sai,ij,tbj->satb", self.features, self.centred.all, self.features, optimize=True)

    def difference(self, s: int, a: int, b: int, certificate: Certificate) -> GapEstimate:
        """Z(s,a) − Z(s,b), from the difference of their features."""
        d = self.features[s, a] - self.features[s, b]
        mean = float(d @ self.theta)
        variance = self.centred.of_gap(self.features[s, a], self.features[s, b]) if a != b else 0.0
        mean_error = float(self.mean_errors[s, a] + self.mean_errors[s, b])
        return GapEstimate(mean, max(0.0, variance), mean_error, self.gap_error(s, a, b))

    def gap_error(self, s: int, a: int, b: int) -> float:
        """Bound on the error of the variance of a gap."""
        xi = self.weighting.same[s]
        error = self.combined_error(((1.0, xi[a, a]), (1.0, xi[b, b]), (-2.0, xi[a, b] + xi[b, a])))
        if not self.is_centred:  # second moments less the square of the mean gap
            off = float(self.mean_errors[s, a] + self.mean_errors[s, b])
            error += 2 * abs(float(self.mean[s, a] - self.mean[s, b])) * off + off**2
        return min(error, 4 * self.covariance_error)

    def combined_error(self, parts: Sequence[tuple[float, float]]) -> float:
        """Bound on the error of ``Σ k M(z)``, given factors k and the weights of the pairs z."""
        if any(weight <= 0 for factor, weight in parts if factor):
            return math.inf
        return self.pair_error * math.sqrt(math.fsum(factor**2 / weight for factor, weight in parts if factor))


@dataclass(frozen=True, eq=False, repr=False)
class ProjectedSolution(FeatureMatrices, Solution):
    """Joint moments fitted by features, with the same face as exact ones; errors are bounds from the theory."""

    moments: ProjectedMoments = field(repr=False)
    weighting: PairWeighting = field(kw_only=True)
    fixed_point: FixedPoint = field(kw_only=True)
    mean_residual: float = field(kw_only=True)
    """‖m̂ − Tm̂‖ in the weights of means."""
    pair_residual: float = field(kw_only=True)
    """‖M̂ − TM̂‖ in the weights of pairs."""
    mean_norm_error: float = field(kw_only=True)
    """Bound on ‖m̂ − μ‖ in the weights of means."""
    pair_norm_error: float = field(kw_only=True)
    """Bound on ‖M̂ − M‖ in the weights of pairs."""
    sums: TableSums = field(kw_only=True)

    @property
    def summary(self) -> str:
        """How true it is, in a few words."""
        return str(self)

    def __repr__(self) -> str:
        count = self.features.shape[2]
        features = "1 feature" if count == 1 else f"{count} features"
        reached = "at the fixed point" if self.status is Status.CONVERGED else self.status.value
        if self.status is not Status.CONVERGED and self.pair_contraction.seen >= 1:
            reached += "; with these weights nothing contracts, and there may be no fixed point"
        return (
            f"ProjectedSolution({self.model!r}, {features}: {reached}; contraction of means "
            f"{self.mean_contraction}, of pairs {self.pair_contraction}; {self.coverage})"
        )

    @property
    def features(self) -> Floats:
        """φ(s,a), ``[S, A, K]``; zero in states where nothing is ever paid any more."""
        return self.moments.features

    @property
    def theta(self) -> Floats:
        """θ: means are ``φᵀθ``."""
        return self.moments.theta

    @property
    def covariances(self) -> PairMatrices:
        """Ψ in its parts, 0 where there is none."""
        return self.moments.centred

    @property
    def part_names(self) -> tuple[PairPart, ...]:
        """Which parts there are."""
        return self.sums.names

    @property
    def mean_contraction(self) -> Contraction:
        """Of the projected mean operator, in the weights of means."""
        bound = _factor(self.model.discount, self.weighting.mean_constant)
        return Contraction(bound, self.fixed_point.mean_contraction)

    @property
    def pair_contraction(self) -> Contraction:
        """Of the projected operator of covariances or second moments, in the weights of pairs."""
        bound = _factor(self.model.discount**2, self.weighting.pair_constant)
        return Contraction(bound, self.fixed_point.pair_contraction)

    @property
    def coverage(self) -> str:
        """Which pairs the weighting sees, in words."""
        return self.weighting.words(self.model)

    def covers(self, state: StateLike, action: ActionLike, other: ActionLike) -> bool:
        """Whether the weighting sees the two actions of a state together, and each by itself."""
        s = self.model.state_index(state)
        a, b = self.model.action_index(action, s), self.model.action_index(other, s)
        return bool(self.weighting.is_seen[s][np.ix_([a, b], [a, b])].all())

    def pair_error(self, s: StateLike, a: ActionLike, t: StateLike, b: ActionLike) -> float:
        """Bound on the error of the covariance (or second moment, as projected) of two coordinates; else infinite."""
        i, j = self.model.state_index(s), self.model.state_index(t)
        a, b = self.model.action_index(a, i), self.model.action_index(b, j)
        one, other = self.weighting.weight(i, a, j, b), self.weighting.weight(j, b, i, a)
        return self.moments.combined_error(((1.0, one if (i, a) == (j, b) else one + other),))

    def projection_errors(self, exact: Solution) -> ProjectionErrors:
        """How well these features could do, given the exact solution of the same model and policy."""
        if exact.model != self.model or not np.array_equal(exact.policy, self.policy):
            raise ModelError("the exact solution belongs to another model or policy")
        sums, weighting = self.sums, self.weighting
        mu = np.where(self.model.available, exact.moments.mean, 0.0)
        # Of all pairs of coordinates, [S, A, S, A].
        can, here = self.model.available, np.arange(self.model.num_states)
        truth = np.where(can[:, :, None, None] & can, exact.moments.across(), 0.0)
        truth[here, :, here, :] = np.where(np.isfinite(exact.covariance), exact.covariance, 0.0)
        if not self.moments.is_centred:
            truth += mu[:, :, None, None] * mu
        phi = sums.equations.features
        best = np.einsum("sai,sa,sa->i", phi, weighting.mean, mu)
        mean_projection = _mean_norm(weighting, phi @ best - mu)
        mean_error = _mean_norm(weighting, self.moments.mean - mu)
        form = QuadraticForm(sums.gram, sums.parts)
        q = sums.weighted(truth)
        fitted = form.back(form.into(q))
        if self.method != "Projected, unconstrained":
            near = max(CLOSE * sums.distance(truth, fitted), CLOSEST * form.size(fitted), 1e-300)
            fitted = fit_psd(form, q, fitted, near).vector
        best_distance, own_distance = (
            sums.distance(truth, vector) for vector in (fitted, sums.whitened(self.moments.matrices))
        )
        best_distance = min(best_distance, own_distance)  # the fit ends near the nearest, and may end farther than this
        mean_bound = _through(mean_projection, self.mean_contraction.bound)
        b = source_constant(sums, self.moments.mean, self.certificate.mean_error, mu)
        pair_bound = _through(best_distance + b * mean_error, self.pair_contraction.bound)
        return ProjectionErrors(mean_projection, mean_bound, mean_error, best_distance, pair_bound, own_distance)


def centred(theta: Floats, matrices: PairMatrices, is_centred: bool) -> PairMatrices:
    """Matrices of covariances, from those of covariances or of second moments."""
    return matrices if is_centred else matrices._replace(all=matrices.all - np.outer(theta, theta))


def _mean_norm(weighting: PairWeighting, values: Floats) -> float:
    return math.sqrt(float(np.sum(weighting.mean * values**2)))


def _factor(discount: float, constant: float) -> float:
    """κ, given γ or γ² and the constant of the weights; infinite where these see less than where the process goes."""
    return discount / math.sqrt(constant) if constant > 0 else math.inf


def _through(distance: float, factor: float) -> float:
    """What a distance of one step says of the distance to the fixed point; nothing where κ is not below 1."""
    return distance / (1 - factor) if factor < 1 else math.inf


def _largest_deviation(sums: TableSums, m: Floats) -> float:
    """The largest standard deviation of one step, given the means."""
    return math.sqrt(float(np.max(sums.equations.step_variance(m))))


def source_constant(sums: TableSums, m: Floats, largest: float, mu: Floats | None = None) -> float:
    """b: how much an error of the means, in their norm, changes what one step adds.

    `largest` bounds the error of every mean; `mu` are the means, where they are known.
    """
    model, g = sums.model, sums.discount
    c = sums.weighting.mean_constant
    if c <= 0:
        return math.inf
    bound = model.reward_bound
    if not sums.is_centred:
        if model.sharing != "none":
            return 2 * g * bound / math.sqrt(c)
        most = float(np.max(np.abs(sums.equations.next_means(m)))) + bound / (1 - g)
        return g * max(2 * bound, most) / math.sqrt(c)
    sigma = _largest_deviation(sums, m)
    if mu is None:
        # At most half of what R + γ μ(X') can vary by, and what the error adds to the spread under m.
        true = min(float(np.ptp(sums.equations.rewards)) / (2 * (1 - g)), sigma + g * largest)
    else:
        true = _largest_deviation(sums, mu)
    return g * (sigma + true) / math.sqrt(c)


Constraint = Literal["covariance", "second_moment"]
WEIGHTINGS = ("restart", "stationary")
MEMORY_LIMIT = 4 * 2**30  # bytes of the matrices of pairs of features
LARGEST = 1e50  # features whose products with each other and with moments floats can hold
EVERY_PAIR = 4096  # coordinates up to which the equations are looked at on every pair


@dataclass(frozen=True, eq=False)
class ProjectionSettings(SamplingMethod):
    """What the user of `jointmdp.Projected` chooses, checked."""

    features: Any
    """`jointmdp.features.…`, an array ``[S, A, K]``, or a function of state and action that gives K numbers."""
    weighting: str | ArrayLike = "restart"
    """``"restart"``, ``"stationary"`` (the paper's), or weights of pairs ``[S, A, S, A]``."""
    constraint: Constraint | None = "covariance"
    """What is kept positive semidefinite: the covariances, the ``"second_moment"`` (the paper's), or nothing."""
    states: Sequence[StateLike] | None = None
    """The states that are asked about, all by default: a restart begins there, and own weights must see them."""
    parts: Sequence[PairPart] | None = None
    """What covariances are made of: ``"all"``, ``"same_state"``, ``"same_action"``, see docs/projected.md."""
    c: float | None = None
    """How likely a restart goes on, between γ² and 1; γ by default."""
    tolerance: float = 1e-9
    """Of the fixed point, relative to its size."""
    max_steps: int = 10_000
    """Steps of the iteration where the constraint matters; with Newton's steps in between, few are needed."""
    throw: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        is_array = not isinstance(self.weighting, str | Number | None)
        if not is_array and self.weighting not in WEIGHTINGS:
            known = ", ".join(f'"{name}"' for name in WEIGHTINGS)
            raise ModelError(f"weighting is {self.weighting!r}; known are {known}, or give weights [S, A, S, A]")
        if self.constraint is not None and self.constraint not in get_args(Constraint):
            known = ", ".join(f'"{name}"' for name in get_args(Constraint))
            raise ModelError(f"constraint is {self.constraint!r}; known are {known} and None")
        if self.c is not None and not (isinstance(self.weighting, str) and self.weighting == "restart"):
            raise ModelError("c belongs to the restart weighting; leave it out")
        if self.states is not None and isinstance(self.weighting, str) and self.weighting == "stationary":
            raise ModelError("states do not change the stationary weighting; leave them out, or use another weighting")
        if self.parts is not None:
            known = ", ".join(f'"{name}"' for name in PARTS)
            if isinstance(self.parts, str) or not len(self.parts) or any(name not in PARTS for name in self.parts):
                raise ModelError(f"parts are {self.parts!r}; name one or several of {known}, as in parts=[{known}]")
        checks.as_positive("tolerance", self.tolerance)
        checks.as_count("max_steps", self.max_steps)

    @property
    def is_centred(self) -> bool:
        """Whether covariances are projected, not second moments."""
        return self.constraint != "second_moment"

    def parts_of(
        self, sharing: Sharing, features: int, coordinates: float, weighting: PairWeighting | None = None
    ) -> tuple[PairPart, ...]:
        """The parts: as asked for, else all that are of use.

        One is enough where there is a feature for every coordinate, and where returns of distinct coordinates are
        independent. A part that stands for the same of the seen pairs as the one before it adds nothing.
        """
        if self.parts is not None:
            return tuple(name for name in PARTS if name in self.parts)
        if features >= coordinates or not self.is_centred:
            return PARTS[:1]
        if sharing == "none":
            return PARTS[2:]
        if weighting is None:
            return PARTS
        two_actions = weighting.same * (1 - np.eye(weighting.same.shape[1]))
        is_of_use = (True, weighting.cross.any(), two_actions.any())
        return tuple(name for name, is_kept in zip(PARTS, is_of_use, strict=True) if is_kept)


def project(model: JointMDP, policy: Floats, method: ProjectionSettings) -> ProjectedSolution:
    """The projected fixed point of a model under a policy."""
    if model.discount == 1:
        raise ModelError("a projection contracts only below discount 1; the default method evaluates discount 1")
    is_over = terminal_states(model)
    if is_over.all():
        raise ModelError("nothing is ever paid in this model: all returns are 0, and there is nothing to fit")
    given = as_feature_table(method.features, model)
    # Features are zero in states where nothing is paid any more; those that were of such states alone are left out.
    values = np.where(is_over[:, None, None], 0.0, given.values)
    kept = np.flatnonzero(values.any(axis=(0, 1)) | ~given.values.any(axis=(0, 1)))
    features, feature_names = values[:, :, kept], tuple(given.names[k] for k in kept)
    check_memory(len(kept), 1)
    largest = np.abs(features).max(axis=(0, 1))
    if at := checks.first_place((largest > LARGEST) | ((largest > 0) & (largest < 1 / LARGEST))):
        raise ModelError(
            f"feature {feature_names[at[0]]!r} is at most {largest[at]:g} in size, and products of features leave the "
            "range of floats; rescale it to a size near 1"
        )
    if not isinstance(method.weighting, str):
        weighting = own_weighting(model, policy, method.weighting, method.states)
    elif method.weighting == "stationary":
        weighting = stationary_weighting(model, policy)
    else:
        weighting = restart_weighting(model, policy, method.c, method.states)
    names = method.parts_of(model.sharing, len(kept), int(np.count_nonzero(weighting.mean)), weighting)
    check_memory(len(kept), len(names))
    _check_columns(weighting, features, feature_names, method)
    sums = TableSums(model, policy, features, weighting, method.is_centred, names)
    found = solve_fixed_point(sums.system, method.constraint is not None, method.tolerance, method.max_steps)
    return _answer(sums, found, features, policy, method)


def check_memory(features: int, parts: int) -> None:
    """Matrices of pairs of features: H, G and their factors, and the products that G is made of."""
    needed = 8 * (4 * (parts * features * (features + 1) // 2) ** 2 + 2 * features**4)
    if needed > MEMORY_LIMIT:
        raise ModelError(
            f"{features:,} features have {features * (features + 1) // 2:,} products, and their matrices need about "
            f"{needed / 2**30:.2g} GiB, above {MEMORY_LIMIT / 2**30:.2g}; use fewer features"
        )


def _check_columns(
    weighting: PairWeighting, features: Floats, names: tuple[str, ...], method: ProjectionSettings
) -> None:
    def check(weights: Floats, what: str) -> None:
        seen = weights > 0
        check_rank(np.sqrt(weights[seen])[:, None] * features[seen], names, what)

    check(weighting.mean, f"the {weighting.name} weighting")
    if method.constraint is None:
        return
    try:
        check(np.einsum("saa->sa", weighting.same), "pairs (x, x)")
    except ModelError as error:
        raise ModelError(
            "with a constraint there may be no best matrix: nothing holds variances back where the weighting has no "
            f"weight on pairs (x, x), a coordinate with itself; give these weight, or constraint=None ({error})"
        ) from None


def _answer(
    sums: TableSums, found: FixedPoint, features: Floats, policy: Floats, method: ProjectionSettings
) -> ProjectedSolution:
    weighting, model, g = sums.weighting, sums.model, sums.discount
    theta, matrices = sums.unwhitened(found.theta, found.matrix)
    m = sums.equations.features @ found.theta
    # Sums of n products are off by n units of their size.
    size = model.reward_bound + float(np.max(np.abs(features) @ np.abs(theta), initial=0.0))
    operations = mean_operations(model.num_scenarios, model.num_actions) + 4 * len(theta)
    local = np.abs(m - sums.equations.next_means(m)) + operations * UNIT * size
    mean_residual = _mean_norm(weighting, local)
    mean_error = _through(mean_residual, _factor(g, weighting.mean_constant))
    with np.errstate(divide="ignore", invalid="ignore"):
        pointwise = np.where(weighting.mean > 0, mean_error / np.sqrt(weighting.mean), np.inf)
    largest_local = float(np.max(local, where=model.available, initial=0.0))
    everywhere = largest_local / (1 - g)
    mean_errors = np.where(terminal_states(model)[:, None], 0.0, np.minimum(pointwise, everywhere))

    pair_size = (operations + pair_operations(model.num_scenarios, model.num_actions)) * UNIT
    squares = matrices.own(np.abs(features), np.abs(np.array(matrices)).sum(axis=0))
    rounding = pair_size * (size**2 + float(squares.max(initial=0.0)))
    total = math.sqrt(float(weighting.same.sum() + weighting.cross.sum()))
    pair_residual = sums.pair_residual(found.theta, found.matrix) + rounding * total
    b = source_constant(sums, m, everywhere)
    pair_error = _through(pair_residual + b * mean_error, _factor(g**2, weighting.pair_constant))

    in_white = centred(found.theta, sums.matrices(found.matrix), sums.is_centred)
    largest = anywhere = math.inf
    if model.num_states * model.num_actions <= EVERY_PAIR:
        delta, sigma = float(mean_errors.max()), _largest_deviation(sums, m)
        largest = sums.largest_residual(m, in_white) + rounding
        anywhere = (largest + 2 * sigma * g * delta + g**2 * delta**2) / (1 - g**2)
    moments = ProjectedMoments(
        features, theta, matrices, sums.is_centred, mean_errors, pair_error, weighting, covariance_error=anywhere
    )
    mean_bound = float(np.max(mean_errors, where=model.available, initial=0.0))
    scale = float(np.max(np.abs(m)))
    second = anywhere + 2 * scale * mean_bound + mean_bound**2
    # Σ − TΣ is C − TC and m mᵀ less that of one backup of m.
    raw = largest + 2 * scale * largest_local + largest_local**2
    certificate = Certificate(
        residual=max(largest_local, raw / norm_weight(model.reward_bound, g)),
        mean_error=mean_bound,
        second_moment_error=second,
        covariance_error=anywhere,
        mean_errors=mean_errors,
        covariance_shares=np.full(m.shape, anywhere / 2),
    )
    kind = "unconstrained" if method.constraint is None else f"{method.constraint.replace('_', ' ')} ⪰ 0"
    return ProjectedSolution(
        model,
        policy,
        moments,
        certificate,
        found.status,
        f"Projected, {kind}",
        found.steps,
        history=found.history,
        weighting=weighting,
        fixed_point=found,
        mean_residual=mean_residual,
        pair_residual=pair_residual,
        mean_norm_error=mean_error,
        pair_norm_error=pair_error,
        sums=sums,
    )
