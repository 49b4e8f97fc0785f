"""The answer of a projection: moments in features, and what the theory says of their distance to the truth.

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
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from jointmdp.arrays import Floats
from jointmdp.bellman.feature_moments import PARTS, PairMatrices, PairPart
from jointmdp.errors import ModelError, Status
from jointmdp.model.tables import ActionLike, StateLike
from jointmdp.moments.certificates import Certificate
from jointmdp.moments.gap_backup import GapEstimate
from jointmdp.projected.fixed_point import FixedPoint
from jointmdp.projected.psd_least_squares import QuadraticForm, fit_psd
from jointmdp.projected.table_sums import TableSums
from jointmdp.projected.weighting import PairWeighting
from jointmdp.solution.solution import Solution

# How near a fit comes to the best one. Distances to the truth are the sides of a right angle: the best is then known to
CLOSE = 1e-4  # 1e-8 of itself, if this is a part of the distance that is left without the constraint
CLOSEST = 1e-7  # and to 1e-14 of the size of the fit, where that is less


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
class ProjectedSolution(Solution):
    """Joint moments fitted by features, with the same face as exact ones; errors are bounds from the theory."""

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
    def _held(self) -> ProjectedMoments:
        assert isinstance(self.moments, ProjectedMoments)
        return self.moments

    @property
    def features(self) -> Floats:
        """φ(s,a), ``[S, A, K]``; zero in states where nothing is ever paid any more."""
        return self._held.features

    @property
    def theta(self) -> Floats:
        """θ: means are ``φᵀθ``."""
        return self._held.theta

    @property
    def second_moment_matrix(self) -> Floats:
        """Θ: second moments are ``φᵀΘφ``, and more in the same state where there are `parts`."""
        return self.covariance_matrix + np.outer(self.theta, self.theta)

    @property
    def covariance_matrix(self) -> Floats:
        """Ψ = Θ − θθᵀ: covariances are ``φᵀΨφ``, and more in the same state where there are `parts`."""
        return self._held.centred.all

    @property
    def parts(self) -> dict[PairPart, Floats]:
        """The matrices that covariances are made of: for all pairs, for the same state, for the same action there."""
        return {name: getattr(self._held.centred, name) for name in PARTS if name in ("all", *self.sums.names)}

    @property
    def mean_contraction(self) -> Contraction:
        """Of the projected mean operator, in the weights of means."""
        c = self.weighting.mean_constant
        return Contraction(self.model.discount / math.sqrt(c) if c > 0 else math.inf, self.fixed_point.mean_contraction)

    @property
    def pair_contraction(self) -> Contraction:
        """Of the projected operator of covariances or second moments, in the weights of pairs."""
        return Contraction(_pair_bound(self.sums), self.fixed_point.pair_contraction)

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
        return self._held.combined_error(((1.0, one if (i, a) == (j, b) else one + other),))

    def projection_errors(self, exact: Solution) -> ProjectionErrors:
        """How well these features could do, given the exact solution of the same model and policy."""
        if exact.model != self.model or not np.array_equal(exact.policy, self.policy):
            raise ModelError("the exact solution belongs to another model or policy")
        sums, weighting = self.sums, self.weighting
        mu = np.where(self.model.available, exact.moments.mean, 0.0)
        truth = pair_table(exact, self._held.is_centred)
        phi = sums.equations.features
        best = np.einsum("sai,sa,sa->i", phi, weighting.mean, mu)
        mean_projection = _mean_norm(weighting, phi @ best - mu)
        mean_error = _mean_norm(weighting, self._held.mean - mu)
        H, _ = sums.pair_system()
        form = QuadraticForm(H, sums.parts)
        q = sums.weighted(truth)
        fitted = form.back(form.into(q))
        if self.method != "Projected, unconstrained":
            near = max(CLOSE * sums.distance(truth, fitted), CLOSEST * form.size(fitted), 1e-300)
            fitted = fit_psd(form, q, fitted, near).vector
        best_distance, own_distance = (
            sums.distance(truth, vector) for vector in (fitted, sums.whitened(self._held.matrices))
        )
        kappa, kappa_pair = self.mean_contraction.bound, self.pair_contraction.bound
        mean_bound = mean_projection / (1 - kappa) if kappa < 1 else math.inf
        b = source_constant(sums, self._held.mean, self.certificate.mean_error, mu)
        pair_bound = (best_distance + b * mean_error) / (1 - kappa_pair) if kappa_pair < 1 else math.inf
        return ProjectionErrors(mean_projection, mean_bound, mean_error, best_distance, pair_bound, own_distance)


def centred(theta: Floats, matrices: PairMatrices, is_centred: bool) -> PairMatrices:
    """Matrices of covariances, from those of covariances or of second moments."""
    return matrices if is_centred else matrices._replace(all=matrices.all - np.outer(theta, theta))


def _mean_norm(weighting: PairWeighting, values: Floats) -> float:
    return math.sqrt(float(np.sum(weighting.mean * values**2)))


def _pair_bound(sums: TableSums) -> float:
    c = sums.weighting.pair_constant
    return sums.discount**2 / math.sqrt(c) if c > 0 else math.inf


def pair_table(exact: Solution, is_centred: bool) -> Floats:
    """Covariances or second moments of all pairs of coordinates, ``[S, A, S, A]``, from an exact solution."""
    model, here = exact.model, np.arange(exact.model.num_states)
    can = model.available
    table = np.where(can[:, :, None, None] & can, exact.moments.across(), 0.0)
    table[here, :, here, :] = np.where(np.isfinite(exact.covariance), exact.covariance, 0.0)
    if is_centred:
        return table
    mu = np.where(model.available, exact.moments.mean, 0.0)
    return table + mu[:, :, None, None] * mu


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
    sigma = math.sqrt(float(np.max(sums.equations.step_variance(m))))
    if mu is None:
        # At most half of what R + γ μ(X') can vary by, and what the error adds to the spread under m.
        true = min(_reward_range(sums) / (2 * (1 - g)), sigma + g * largest)
    else:
        true = math.sqrt(float(np.max(sums.equations.step_variance(mu))))
    return g * (sigma + true) / math.sqrt(c)


def _reward_range(sums: TableSums) -> float:
    rewards = sums.equations.rewards
    return float(rewards.max() - rewards.min())
