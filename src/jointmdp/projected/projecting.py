"""`Projected`, the method: settings, and the way from a model to its projected solution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from jointmdp import checks
from jointmdp.arrays import UNIT, Bools, Floats
from jointmdp.bellman.feature_moments import PARTS, PairPart
from jointmdp.checks import Sharing
from jointmdp.errors import ModelError
from jointmdp.model.episodes import terminal_states
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.tables import StateLike
from jointmdp.moments.certificates import Certificate, mean_operations, norm_weight, pair_operations
from jointmdp.projected.features import FeatureTable, as_feature_table, check_rank
from jointmdp.projected.fixed_point import FixedPoint, solve_fixed_point
from jointmdp.projected.projected_solution import ProjectedMoments, ProjectedSolution, centred, source_constant
from jointmdp.projected.table_sums import TableSums
from jointmdp.projected.weighting import (
    PairWeighting,
    own_weighting,
    restart_weighting,
    stationary_weighting,
)

Constraint = Literal["covariance", "second_moment"]
WEIGHTINGS = ("restart", "stationary")
MEMORY_LIMIT = 4 * 2**30  # bytes of the matrices of pairs of features
LARGEST = 1e50  # features whose products with each other and with moments floats can hold
EVERY_PAIR = 4096  # coordinates up to which the equations are looked at on every pair


@dataclass(frozen=True, eq=False)
class Projected:
    """Projected JIPE-2: means and covariances as linear functions of features, at the fixed point of the projection."""

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
        _check_parts(self.parts)
        checks.as_positive("tolerance", self.tolerance)
        checks.as_count("max_steps", self.max_steps)

    def parts_of(
        self, sharing: Sharing, features: int, coordinates: float, weighting: PairWeighting | None = None
    ) -> tuple[PairPart, ...]:
        """The parts: as asked for, else all that are of use.

        One is enough where there is a feature for every coordinate, and where returns of distinct coordinates are
        independent. A part that stands for the same of the seen pairs as the one before it adds nothing.
        """
        if self.parts is not None:
            return tuple(name for name in PARTS if name in self.parts)
        if features >= coordinates or self.constraint == "second_moment":
            return PARTS[:1]
        if sharing == "none":
            return PARTS[2:]
        if weighting is None:
            return PARTS
        two_actions = weighting.same * (1 - np.eye(weighting.same.shape[1]))
        is_of_use = (True, weighting.cross.any(), two_actions.any())
        return tuple(name for name, is_kept in zip(PARTS, is_of_use, strict=True) if is_kept)

    def weighting_of(self, model: JointMDP, policy: Floats) -> PairWeighting:
        """The weights of pairs and of means."""
        if not isinstance(self.weighting, str):
            return own_weighting(model, policy, self.weighting, self.states)
        if self.weighting == "stationary":
            return stationary_weighting(model, policy)
        return restart_weighting(model, policy, self.c, self.states)


def project(model: JointMDP, policy: Floats, method: Projected) -> ProjectedSolution:
    """The projected fixed point of a model under a policy."""
    if model.discount == 1:
        raise ModelError("a projection contracts only below discount 1; the default method evaluates discount 1")
    is_over = terminal_states(model)
    if is_over.all():
        raise ModelError("nothing is ever paid in this model: all returns are 0, and there is nothing to fit")
    given = _open_features(as_feature_table(method.features, model), is_over)
    features = given.values
    check_memory(features.shape[2], 1)
    _check_sizes(given)
    weighting = method.weighting_of(model, policy)
    coordinates = int(np.count_nonzero(weighting.mean))
    names = method.parts_of(model.sharing, features.shape[2], coordinates, weighting)
    check_memory(features.shape[2], len(names))
    _check_columns(weighting, features, given.names, method)
    is_centred = method.constraint != "second_moment"
    sums = TableSums(model, policy, features, weighting, is_centred, names)
    found = solve_fixed_point(sums, method.constraint is not None, method.tolerance, method.max_steps)
    return _answer(sums, found, features, policy, method)


def _open_features(given: FeatureTable, is_over: Bools) -> FeatureTable:
    """Features that are zero in states where nothing is paid any more, less those that were of such states alone."""
    values = np.where(is_over[:, None, None], 0.0, given.values)
    kept = np.flatnonzero(values.any(axis=(0, 1)) | ~given.values.any(axis=(0, 1)))
    return FeatureTable(values[:, :, kept], tuple(given.names[k] for k in kept))


def _check_sizes(given: FeatureTable) -> None:
    largest = np.abs(given.values).max(axis=(0, 1))
    if at := checks.first_place((largest > LARGEST) | ((largest > 0) & (largest < 1 / LARGEST))):
        raise ModelError(
            f"feature {given.names[at[0]]!r} is at most {largest[at]:g} in size, and products of features leave the "
            "range of floats; rescale it to a size near 1"
        )


def _check_parts(parts: Sequence[PairPart] | None) -> None:
    if parts is None:
        return
    known = ", ".join(f'"{name}"' for name in PARTS)
    if isinstance(parts, str) or not len(parts) or any(name not in PARTS for name in parts):
        raise ModelError(f"parts are {parts!r}; name one or several of {known}, as in parts=[{known}]")


def check_memory(features: int, parts: int) -> None:
    """Matrices of pairs of features: H, G and their factors, and the products that G is made of."""
    needed = 8 * (4 * (parts * features * (features + 1) // 2) ** 2 + 2 * features**4)
    if needed > MEMORY_LIMIT:
        raise ModelError(
            f"{features:,} features have {features * (features + 1) // 2:,} products, and their matrices need about "
            f"{needed / 2**30:.2g} GiB, above {MEMORY_LIMIT / 2**30:.2g}; use fewer features"
        )


def _check_columns(weighting: PairWeighting, features: Floats, names: tuple[str, ...], method: Projected) -> None:
    seen = weighting.mean > 0
    check_rank(np.sqrt(weighting.mean[seen])[:, None] * features[seen], names, f"the {weighting.name} weighting")
    if method.constraint is None:
        return
    diagonal = np.einsum("saa->sa", weighting.same)
    seen = diagonal > 0
    try:
        check_rank(np.sqrt(diagonal[seen])[:, None] * features[seen], names, "pairs (x, x)")
    except ModelError as error:
        raise ModelError(
            "with a constraint there may be no best matrix: nothing holds variances back where the weighting has no "
            f"weight on pairs (x, x), a coordinate with itself; give these weight, or constraint=None ({error})"
        ) from None


def _answer(
    sums: TableSums, found: FixedPoint, features: Floats, policy: Floats, method: Projected
) -> ProjectedSolution:
    weighting, model, g = sums.weighting, sums.model, sums.discount
    theta, matrices = sums.unwhitened(found.theta, found.matrix)
    m = sums.equations.features @ found.theta
    # Sums of n products are off by n units of their size.
    size = model.reward_bound + float(np.max(np.abs(features) @ np.abs(theta), initial=0.0))
    operations = mean_operations(model.num_scenarios, model.num_actions) + 4 * len(theta)
    local = np.abs(sums.mean_residual(found.theta)) + operations * UNIT * size
    mean_residual = math.sqrt(float(np.sum(weighting.mean * local**2)))
    mean_error = _over(mean_residual, g, weighting.mean_constant)
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
    pair_error = _over(pair_residual + b * mean_error, g**2, weighting.pair_constant)

    in_white = centred(found.theta, sums.matrices(found.matrix), sums.is_centred)
    largest = anywhere = math.inf
    if model.num_states * model.num_actions <= EVERY_PAIR:
        delta, sigma = float(mean_errors.max()), math.sqrt(float(np.max(sums.equations.step_variance(m))))
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


def _over(residual: float, factor: float, constant: float) -> float:
    """A residual through the contraction: ``residual / (1 − factor/√c)``, infinite where nothing contracts."""
    kappa = factor / math.sqrt(constant) if constant > 0 else math.inf
    return residual / (1 - kappa) if kappa < 1 else math.inf
