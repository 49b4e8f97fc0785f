"""Moments as functions of features, as learned from samples, with their errors.

The point estimate is the fixed point of all samples together. Its error comes from the jackknife: the fixed points that
leave out one replica each say how far samples move it (half of a 95 % interval by Student's law). That is the error of
*sampling*; how well the features can do at all is another matter, which only other features or simulated gaps show.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from jointmdp.arrays import Floats, Ints
from jointmdp.bellman.feature_moments import PARTS, PairMatrices, PairPart
from jointmdp.errors import ModelError, NotKnownError, Status
from jointmdp.incremental.learned import RunSummary
from jointmdp.incremental.replicas import Estimate, LearnedGap, student_factor
from jointmdp.incremental.simulator_walks import state_key
from jointmdp.projected.features import FeatureRows, check_rank, dependent_columns
from jointmdp.projected.fixed_point import FixedPoint, solve_fixed_point
from jointmdp.projected.projected_solution import centred
from jointmdp.projected.sample_sums import SampleSums, Sums
from jointmdp.simulators.simulator import Simulator

SEEN = 1e-20  # of the largest mean square of a feature: below it a feature was never other than 0
ENOUGH = 2  # visited pairs for each unknown, below which nothing is said of the error of a run
DEPENDENT = 1e-12  # least eigenvalue of the products of features of length 1: rounding makes 1e-16 of a 0
FOLLOWS = 1e-4  # of a feature: √DEPENDENT is what a spare one is off on average, √N of that at one of N = 10⁴ visits
RARE = 2  # replicas in which a feature must have been seen


class FittedMoments(NamedTuple):
    """θ and Ψ of all features."""

    theta: Floats
    covariances: PairMatrices

    def covariance(self, x: Floats, y: Floats, is_same: bool) -> float:
        """Of two actions of a state."""
        matrix = self.covariances.all + self.covariances.same_state
        return float(x @ (matrix + self.covariances.same_action if is_same else matrix) @ y)


@dataclass(frozen=True, eq=False, repr=False)
class LearnedFeatures(RunSummary):
    """Means and covariances as linear functions of features, for every state of a simulator, visited or not."""

    simulator: Simulator = field(kw_only=True)
    rows: FeatureRows = field(kw_only=True)
    is_centred: bool = field(kw_only=True)
    part_names: tuple[PairPart, ...] = field(kw_only=True)
    is_psd: bool = field(kw_only=True)
    tolerance: float = field(kw_only=True)
    max_steps: int = field(kw_only=True)
    _sums: Sums = field(kw_only=True)  # of every replica

    def __repr__(self) -> str:
        if not self._is_known():
            words = "the features are dependent where the samples came, see `fixed_point`"
            return f"LearnedFeatures({self.simulator.name}, {self._count()}, {self._words()}; {words})"
        found = self.fixed_point
        return (
            f"LearnedFeatures({self.simulator.name}, {self._count()}, {self._words()}, error of "
            f"sampling {self.error:.3g}, what the features cannot fit not included: compare some gaps with "
            f"simulate_gap; contraction of means {found.mean_contraction:.4g}, pairs {found.pair_contraction:.4g})"
        )

    def _count(self) -> str:
        kept, all_ = len(self.kept), len(self.rows.names)
        return f"{all_} features" if kept == all_ else f"{kept} of {all_} features"

    @cached_property
    def kept(self) -> Ints:
        """The features that were seen to be other than 0, in two replicas at least where there are two.

        Of features that depend on each other there, as a flag and its square do, some are left out if they come from
        a family such as `polynomial`: what the others can fit is the same. Features of the user's own are all kept.
        """
        squares = np.einsum("rkk->rk", self._sums.gram)
        seen = squares > SEEN * max(float(squares.max()), np.finfo(float).tiny)
        kept = np.flatnonzero(seen.sum(axis=0) >= min(RARE, len(squares)))
        if not len(kept):
            raise ModelError("every feature was 0 wherever the samples came; nothing was learned")
        while self.rows.is_reducible and (spare := self._spare(kept)):
            kept = np.delete(kept, spare)
        return kept

    def _spare(self, kept: Ints) -> list[int]:
        """Which of the kept features the others make up for."""
        return [each.column for each in dependent_columns(self._roots(kept), [""] * len(kept))]

    def _solved(self, without: int | None = None) -> tuple[FittedMoments, FixedPoint]:
        sums = self._summed(without)
        system = SampleSums(sums, self.simulator.discount, self.kept)
        found = solve_fixed_point(system, self.is_psd, self.tolerance, self.max_steps)
        theta, matrices = system.unwhitened(found.theta, found.matrix)
        named, none = dict(zip(self.part_names, matrices, strict=True)), np.zeros_like(matrices[0])
        parts = PairMatrices(*(named.get(name, none) for name in PARTS))
        return FittedMoments(theta, centred(theta, parts, self.is_centred)), found

    def _summed(self, without: int | None = None) -> Sums:
        keep = np.arange(self.replicas) != (-1 if without is None else without)
        return Sums(*(part[keep].sum(axis=0) for part in self._sums))

    def _roots(self, kept: Ints, without: int | None = None) -> Floats:
        """Rows ``[K, K]`` with the products of the visited features: what depends there, depends here."""
        gram = self._summed(without).gram[np.ix_(kept, kept)]
        size = np.sqrt(np.diag(gram))
        size = np.where(size > 0, size, 1.0)
        values, vectors = np.linalg.eigh(gram / np.outer(size, size))
        return np.sqrt(np.where(values > DEPENDENT, values, 0.0))[:, None] * vectors.T

    def _is_known(self, without: int | None = None) -> bool:
        """Whether the features are independent where the samples came."""
        return bool((np.abs(self._roots(self.kept, without)).max(axis=1) > 0).all())

    @cached_property
    def _whole(self) -> tuple[FittedMoments, FixedPoint]:
        if not self._is_known():
            names = tuple(self.rows.names[k] for k in self.kept)
            check_rank(self._roots(self.kept), names, f"{self.updates:,} visited pairs")
        return self._solved()

    @cached_property
    def _without(self) -> list[FittedMoments]:
        """The fixed points without one replica each; none where one replica alone knows some of the features."""
        if self.replicas == 1 or not all(self._is_known(r) for r in range(self.replicas)):
            return []
        return [self._solved(r)[0] for r in range(self.replicas)]

    @property
    def fixed_point(self) -> FixedPoint:
        """How the fixed point was found."""
        return self._whole[1]

    @property
    def status(self) -> Status:
        """Whether the fixed point of the samples was found to its tolerance."""
        return self.fixed_point.status

    @property
    def theta(self) -> Floats:
        """θ: means are ``φᵀθ``, ``[K]``."""
        return self._whole[0].theta

    @property
    def covariance_matrix(self) -> Floats:
        """Ψ: covariances are ``φᵀΨφ``, ``[K, K]``, and more in the same state where there are `parts`."""
        return self.covariances.all

    @property
    def covariances(self) -> PairMatrices:
        """Ψ in its parts, 0 where there is none."""
        return self._whole[0].covariances

    @property
    def parts(self) -> dict[PairPart, Floats]:
        """The matrices that covariances are made of: for all pairs, for the same state, for the same action there."""
        return {name: getattr(self.covariances, name) for name in PARTS if name in ("all", *self.part_names)}

    @property
    def second_moment_matrix(self) -> Floats:
        """Θ = Ψ + θθᵀ: second moments are ``φᵀΘφ``, ``[K, K]``."""
        return self.covariance_matrix + np.outer(self.theta, self.theta)

    @cached_property
    def error(self) -> float:
        """Root mean square error of means, or of covariances in standard deviations: the larger, where samples came."""
        few = self.updates < ENOUGH * len(self.kept) * (len(self.kept) + 1)
        if few or not self._is_known() or not self._without:
            return math.inf
        gram = self._sums.gram.sum(axis=0) / self._sums.coordinates.sum()
        mean = np.array([each.theta for each in self._without])
        spread = float(np.sqrt(np.einsum("ri,ij,rj->", mean - mean.mean(axis=0), gram, mean - mean.mean(axis=0))))
        matrices = np.array([each.covariances.total for each in self._without])
        off = matrices - matrices.mean(axis=0)
        # In the product norm, ‖A^½ Ψ A^½‖: what two independent coordinates would make of it.
        pairs = math.sqrt(max(0.0, float(np.einsum("rij,jk,rkl,li->", off, gram, off, gram, optimize=True))))
        size = math.sqrt(max(float(np.trace(gram @ self.covariances.total)), np.finfo(float).tiny))
        factor = student_factor(self.replicas) * math.sqrt((self.replicas - 1) / self.replicas)
        return factor * max(spread, pairs / (2 * size))

    def _estimate(self, read: Callable[[FittedMoments], float]) -> Estimate:
        """A number of the fixed point with its error."""
        value = float(read(self._whole[0]))
        if not self._without:
            return Estimate(value, math.inf)
        others = np.array([read(each) for each in self._without])
        spread = math.sqrt((self.replicas - 1) / self.replicas * float(np.sum((others - others.mean()) ** 2)))
        return Estimate(value, student_factor(self.replicas) * spread)

    def features_at(self, state: Any, action: Any) -> Floats:
        """φ(state, action), ``[K]``; 0 where the episode is over."""
        place = self.simulator.snapshot(state)
        if self.simulator.is_over(place):
            return np.zeros(len(self.rows.names))
        a = self.simulator.action_index(action, place)
        found = self.rows([self.simulator.observe(place)], np.array([a]))[0]
        others, follows, usual = self._left_out
        expected, size = found[self.kept] @ follows, np.maximum(np.abs(found[others]), usual)
        off = np.abs(found[others] - expected) > FOLLOWS * size
        if off.any():
            k = int(np.flatnonzero(off)[0])
            was = "0" if not follows[:, k].any() else f"what other features say, here {expected[k]:.4g},"
            raise NotKnownError(
                f"{self.rows.names[others[k]]} is {found[others[k]]:.4g} there, and was {was} wherever the samples "
                "came: nothing is known of it; draw more samples, or use features that reach further"
            )
        return found

    @cached_property
    def _left_out(self) -> tuple[Ints, Floats, Floats]:
        """The features that are not kept, how they follow from those that are, ``[kept, others]``, and their size."""
        sums, kept = self._summed(), self.kept
        gram = sums.gram / sums.coordinates
        size = np.sqrt(np.diag(gram))
        others = np.setdiff1d(np.arange(len(gram)), kept)
        scaled = gram[np.ix_(kept, kept)] / np.outer(size[kept], size[kept])
        follows = np.linalg.lstsq(scaled, gram[np.ix_(kept, others)] / size[kept, None])[0] / size[kept, None]
        return others, follows, size[others]

    def mean_at(self, state: Any, action: Any) -> Estimate:
        """E Z(state, action)."""
        x = self.features_at(state, action)
        return self._estimate(lambda fit: float(x @ fit.theta))

    def covariance_at(self, state: Any, action: Any, other: Any) -> Estimate:
        """Cov(Z(state, action), Z(state, other))."""
        x, y, is_same = self._pair_at(state, action, other)
        return self._estimate(lambda fit: fit.covariance(x, y, is_same))

    def second_moment_at(self, state: Any, action: Any, other: Any) -> Estimate:
        """E[Z(state, action) Z(state, other)]."""
        x, y, is_same = self._pair_at(state, action, other)
        return self._estimate(lambda fit: fit.covariance(x, y, is_same) + float(x @ fit.theta) * float(y @ fit.theta))

    def _pair_at(self, state: Any, action: Any, other: Any) -> tuple[Floats, Floats, bool]:
        place = self.simulator.snapshot(state)
        a, b = (self.simulator.action_index(each, place) for each in (action, other))
        return self.features_at(state, a), self.features_at(state, b), a == b

    def covariance_between(self, s: Any, a: Any, t: Any, b: Any) -> Estimate:
        """Cov(Z(s, a), Z(t, b)) of any two coordinates."""
        if state_key(self.simulator, self.simulator.snapshot(s)) == state_key(
            self.simulator, self.simulator.snapshot(t)
        ):
            return self.covariance_at(s, a, b)
        x, y = self.features_at(s, a), self.features_at(t, b)
        return self._estimate(lambda fit: float(x @ fit.covariances.all @ y))

    def gap(self, state: Any, action: Any, other: Any) -> LearnedGap:
        """``Z(state, action) − Z(state, other)``: mean and variance with their errors of sampling."""
        place, label = self.simulator.snapshot(state), self.simulator.action_label
        a, b = (self.simulator.action_index(each, place) for each in (action, other))
        x, y = self.features_at(state, a), self.features_at(state, b)
        if a == b:
            return LearnedGap(label(a), label(b), 0.0, 0.0, 0.0, 0.0)
        mean = self._estimate(lambda fit: float((x - y) @ fit.theta))
        variance = self._estimate(lambda fit: fit.covariances.of_gap(x, y))
        return LearnedGap(label(a), label(b), *mean, max(0.0, variance.value), variance.error)

    def table(self) -> list[dict[str, Any]]:
        """One row per feature: its part in the mean, with its error, and how often it was seen."""
        counts = np.einsum("rkk->k", self._sums.gram) / self._sums.coordinates.sum()
        rows = []
        for k, name in enumerate(self.rows.names):
            value, error = self._estimate(lambda fit, k=k: float(fit.theta[k]))  # type: ignore[misc]
            rows.append({"feature": name, "theta": value, "theta_error": error, "mean_square": float(counts[k])})
        return rows
