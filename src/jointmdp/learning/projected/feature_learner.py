"""Projected JIPE-2 from samples of a simulator: sums of features along the pair process, then their fixed point.

The operator is estimated in the space of features, and the projection iterated with it. (Solving first and projecting
once at the end would be another fixed point where the constraint matters.) For state spaces too large to list, or
continuous: memory depends on the number of features alone.

Walkers go in pairs from two actions of a starting state, and begin anew with a fixed probability in every step: they
visit pairs as the restart weighting weighs them. Each visit draws the outcome of both coordinates *twice*,
independently: half the product of the differences of two draws is a covariance without bias, whatever its mean. The
first draw is also where the walkers go on. Coordinates whose episode is over have features and rewards of 0. Under
``"none"`` two branches are looked at as a pair in the first step only: later pairs are independent, and nothing refers
to them.

Every visit adds to the sums of `bellman.feature_moments`. With ``u`` and ``u'`` the products of features of a pair and
of the next one, and Δ the difference of two independent draws:

    H += u uᵀ        G += u u'ᵀ        covariance source  ½ (ΔR + γθᵀΔφ')(ΔR̃ + γθᵀΔφ̃')

and as many vectors u, one after the other, as covariances have parts, each 0 at pairs that its part does not stand for.
The source is a polynomial of degree 2 in θ, which is not known before the end: three sums hold its coefficients. Where
theory says that two branches are independent, their covariance is 0 and not estimated.

The point estimate is the fixed point of all samples together. Its error comes from the jackknife: the fixed points that
leave out one replica each say how far samples move it (half of a 95 % interval by Student's law). That is the error of
*sampling*; how well the features can do at all is another matter, which only other features or simulated gaps show.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from jointmdp.exact.bellman.feature_moments import PARTS, PairMatrices, PairPart
from jointmdp.exact.moments.certificates import Status
from jointmdp.ground.arrays import Floats, Ints
from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import ModelError, NotKnownError
from jointmdp.learning.estimates import Estimate, RunSummary, StateAnswers, student_factor
from jointmdp.learning.projected.feature_forms import (
    FeatureRows,
    as_feature_rows,
    as_feature_table,
    check_rank,
    dependent_columns,
)
from jointmdp.learning.projected.fixed_point import (
    FeatureMatrices,
    FeatureSystem,
    FixedPoint,
    congruence,
    products,
    smat,
    solve_fixed_point,
    svec,
)
from jointmdp.learning.projected.projecting import ProjectionSettings, centred
from jointmdp.learning.projected.weighting import continuation
from jointmdp.learning.runs import Learner
from jointmdp.learning.walks import (
    STEPS_AHEAD,
    Coordinate,
    Lanes,
    PairWalks,
    Standing,
    WalkTask,
    check_learnable,
    run_of,
    state_key,
)
from jointmdp.simulation.simulators.simulator import Simulator
from jointmdp.simulation.simulators.table_simulator import TableSimulator


class PairKind:
    """How two coordinates of a visit belong together; a part of a covariance stands for its number and those above."""

    APART, SAME_STATE, ONE, NO_PAIR = 0, 1, 2, 3


class FeatureSamples(NamedTuple):
    """Visits ``[T, L]`` of lanes L in steps T: two coordinates each, and two draws of what each gives."""

    kinds: NDArray[Any]  # [T, L]
    features: Floats  # [T, L, 2, K]
    rewards: Floats  # [T, L, 2 draws, 2]
    next_features: Floats  # [T, L, 2 draws, 2, K]
    next_kinds: NDArray[Any]  # [T, L, 2 draws]


class FeatureWalks(PairWalks):
    """Walks that give features; a task gives the same in every process."""

    def __init__(self, simulator: Simulator, policy: Any, seed: int, restart: float, rows: FeatureRows) -> None:
        super().__init__(simulator, policy, seed, restart)
        self.rows = rows

    def __call__(self, task: WalkTask) -> tuple[FeatureSamples, Standing]:
        shape, K, simulator = (len(task.steps), len(task.lanes)), len(self.rows.names), self.simulator
        kinds = np.zeros(shape, dtype=np.int8)
        rewards, next_kinds = np.zeros((*shape, 2, 2)), np.zeros((*shape, 2), dtype=np.int8)
        listed: list[Coordinate] = []
        standing = [list(walkers) for walkers in task.walkers]
        for at, ((walker,), (draws,)) in zip(np.ndindex(shape), self.visits(task, standing), strict=True):
            here = walker.places[0], walker.places[-1]  # one branch stands for both
            both = [[each[0], each[-1]] for each in draws]
            nexts = [[each.after for each in two] for two in both]
            is_later = simulator.sharing == "none" and task.steps[at[0]] > walker.since
            is_pair = len(walker.places) == 1 or not (is_later or any(place.is_over for place in here))
            kinds[at] = _pair_kind(*here) if is_pair else PairKind.NO_PAIR
            rewards[at] = [[each.reward for each in two] for two in both]
            next_kinds[at] = [_pair_kind(*two) for two in nexts]
            listed += [*here, *nexts[0], *nexts[1]]
        alive = np.flatnonzero([not place.is_over for place in listed])  # features are 0 where it is over
        found = np.zeros((len(listed), K))
        if len(alive):
            actions: Ints = np.array([listed[i].action for i in alive], dtype=np.int64)
            found[alive] = self.rows([simulator.observe(listed[i].state) for i in alive], actions)
        features = found.reshape(*shape, 3, 2, K)
        return FeatureSamples(kinds, features[:, :, 0], rewards, features[:, :, 1:], next_kinds), standing


def _pair_kind(one: Coordinate, other: Coordinate) -> int:
    """Of two coordinates, whichever branches stand there."""
    if one.key != other.key:
        return PairKind.APART
    return PairKind.ONE if one.action == other.action else PairKind.SAME_STATE


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


def solve_sums(
    sums: Sums, kept: Ints, discount: float, method: ProjectionSettings
) -> tuple[Floats, Floats, FixedPoint]:
    """The fixed point of sums of visits: θ ``[K]`` and matrices ``[P, K, K]``, 0 at features that are not `kept`."""
    size, parts = len(sums.gram), range(len(sums.source))
    rows, columns = np.triu_indices(size)
    places = np.flatnonzero(np.isin(rows, kept) & np.isin(columns, kept))
    some, both = np.ix_(kept, kept), np.ix_(places, places)
    visits, pairs = (max(float(each), 1.0) for each in (sums.coordinates, sums.pairs))
    gram = sums.gram[some] / visits
    held = RIDGE * np.trace(gram) / max(len(kept), 1) * np.eye(len(kept))
    inverse = scipy.linalg.solve_triangular(np.linalg.cholesky(gram + held), np.eye(len(kept)), lower=True)
    turn = congruence(inverse)

    def turned(block: Floats) -> Floats:
        return turn @ (block[both] / pairs) @ turn.T

    def source(theta: Floats) -> Floats:
        own = inverse.T @ theta
        found = sums.source[:, places] + sums.source_linear[:, places][:, :, kept] @ own
        found = found + sums.source_square[:, places][:, :, places] @ svec(np.outer(own, own))
        return ((found / pairs) @ turn.T).ravel()

    grams = [turned(each) for each in sums.pair_gram]
    H = np.block([[grams[max(i, j)] for j in parts] for i in parts])
    # Directions that hardly any visit sees are held at 0, by far less than the noise of N visits.
    H = (H + H.T) / 2 + np.trace(H) / pairs**2 * np.eye(len(H))
    G = np.block([[turned(sums.pair_next[i, :, j]) for j in parts] for i in parts])
    N, r = inverse @ (sums.next_gram[some] / visits) @ inverse.T, inverse @ (sums.reward[kept] / visits)
    system = FeatureSystem(discount, len(parts), N, r, H, G, source)
    found = solve_fixed_point(system, method.constraint is not None, method.tolerance, method.max_steps)
    theta, matrices = np.zeros(size), np.zeros((len(parts), size, size))
    theta[kept] = inverse.T @ found.theta
    for whole, matrix in zip(matrices, smat(found.matrix.reshape(len(parts), -1)), strict=True):
        whole[some] = inverse.T @ matrix @ inverse
    return theta, matrices, found


SEEN = 1e-20  # of the largest mean square of a feature: below it a feature was never other than 0
ENOUGH = 2  # visited pairs for each unknown, below which nothing is said of the error of a run
DEPENDENT = 1e-12  # least eigenvalue of the products of features of length 1: rounding makes 1e-16 of a 0
FOLLOWS = 1e-4  # of a feature: √DEPENDENT is what a spare one is off on average, √N of that at one of N = 10⁴ visits
RARE = 2  # replicas in which a feature must have been seen


@dataclass(frozen=True)
class FeaturePlace:
    """A coordinate and its features."""

    key: bytes
    action: int
    features: Floats = field(compare=False)


class FittedMoments(NamedTuple):
    """θ and Ψ of all features."""

    theta: Floats
    covariances: PairMatrices

    def mean(self, x: FeaturePlace) -> float:
        """φᵀθ."""
        return float(x.features @ self.theta)

    def covariance(self, x: FeaturePlace, y: FeaturePlace) -> float:
        """φᵀΨφ, with the parts that two coordinates have."""
        matrix = self.covariances.all
        if x.key == y.key:
            matrix = matrix + self.covariances.same_state
        if x == y:
            matrix = matrix + self.covariances.same_action
        return float(x.features @ matrix @ y.features)


@dataclass(frozen=True, eq=False, repr=False)
class LearnedFeatures(FeatureMatrices, RunSummary, StateAnswers):
    """Means and covariances as linear functions of features, for every state of a simulator, visited or not."""

    simulator: Simulator = field(kw_only=True)
    rows: FeatureRows = field(kw_only=True)
    part_names: tuple[PairPart, ...] = field(kw_only=True)
    method: ProjectionSettings = field(kw_only=True)
    _sums: Sums = field(kw_only=True)  # of every replica

    def __repr__(self) -> str:
        kept, every = len(self.kept), len(self.rows.names)
        count = f"{every} features" if kept == every else f"{kept} of {every} features"
        told = f"LearnedFeatures({self.simulator.name}, {count}, {self._words()}"
        if not self._is_known():
            words = "the features are dependent where the samples came, see `fixed_point`"
            return f"{told}; {words})"
        found = self.fixed_point
        return (
            f"{told}, error of sampling {self.error:.3g}, what the features cannot fit not included: compare some gaps "
            f"with simulate; contraction of means {found.mean_contraction:.4g}, pairs {found.pair_contraction:.4g})"
        )

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
        while self.rows.is_reducible and (spare := dependent_columns(self._roots(kept), [""] * len(kept))):
            kept = np.delete(kept, [each.column for each in spare])
        return kept

    def _solved(self, without: int | None = None) -> tuple[FittedMoments, FixedPoint]:
        theta, matrices, found = solve_sums(self._summed(without), self.kept, self.simulator.discount, self.method)
        named, none = dict(zip(self.part_names, matrices, strict=True)), np.zeros_like(matrices[0])
        parts = PairMatrices(*(named.get(name, none) for name in PARTS))
        return FittedMoments(theta, centred(theta, parts, self.method.is_centred)), found

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
    def covariances(self) -> PairMatrices:
        """Ψ in its parts, 0 where there is none."""
        return self._whole[0].covariances

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

    def _coordinate(self, state: Any, action: Any) -> tuple[FeaturePlace, str]:
        place = self.simulator.snapshot(state)
        a = self.simulator.action_index(action, place)
        found = FeaturePlace(state_key(self.simulator, place), int(a), self.features_at(state, action))
        return found, self.simulator.action_label(a)

    def _mean(self, x: FeaturePlace) -> Estimate:
        return self._estimate(lambda fit: fit.mean(x))

    def _second_moment(self, x: FeaturePlace, y: FeaturePlace) -> Estimate:
        return self._estimate(lambda fit: fit.covariance(x, y) + fit.mean(x) * fit.mean(y))

    def _covariance(self, x: FeaturePlace, y: FeaturePlace) -> Estimate:
        return self._estimate(lambda fit: fit.covariance(x, y))

    def _difference(self, x: FeaturePlace, y: FeaturePlace) -> tuple[Estimate, Estimate]:
        mean = self._estimate(lambda fit: float((x.features - y.features) @ fit.theta))
        return mean, self._estimate(lambda fit: fit.covariances.of_gap(x.features, y.features))

    def table(self) -> list[dict[str, Any]]:
        """One row per feature: its part in the mean, with its error, and how often it was seen."""
        counts = np.einsum("rkk->k", self._sums.gram) / self._sums.coordinates.sum()
        rows = []
        for k, name in enumerate(self.rows.names):
            value, error = self._estimate(lambda fit, k=k: float(fit.theta[k]))  # type: ignore[misc]
            rows.append({"feature": name, "theta": value, "theta_error": error, "mean_square": float(counts[k])})
        return rows


class FeatureState(NamedTuple):
    """A run between two steps."""

    step: NDArray[np.int64]
    sums: Sums


class FeatureLearner(Learner):
    """``state = learner.init()``, then ``state = learner.advance(state, steps)`` and ``learner.answer(state)``."""

    reports = 1  # in every power of ten of steps: each solves for the fixed point once, and once without each replica

    def __init__(self, simulator: Simulator, policy: Any, method: ProjectionSettings) -> None:
        check_learnable(simulator, "have no features", "a projection contracts only below")
        if method.weighting != "restart" or method.states is not None:
            raise ModelError(
                "samples come from pairs that begin in the simulator's starting states: the weighting is "
                '"restart"; let the simulator start in the states that you ask about'
            )
        self.simulator = simulator
        if isinstance(simulator, TableSimulator):  # observations are numbers of states
            table, names = as_feature_table(method.features, simulator.model)
            coordinates = int(np.any(table != 0, axis=2).sum())
            self.rows = FeatureRows(names, lambda s, a: table[np.asarray(s, dtype=np.int64), a], coordinates)
        else:
            self.rows = as_feature_rows(method.features, simulator)
        restart = 1 - continuation(simulator.discount, method.c)
        parts = method.parts_of(simulator.sharing, len(self.rows.names), self.rows.coordinates)
        described = run_of(simulator, policy, method) | {
            "features": list(self.rows.names),
            "constraint": method.constraint,
            "parts": list(parts),
            **{name: getattr(method, name) for name in ("batch", "replicas", "seed")},
            "restart": restart,
        }
        super().__init__(method, simulator.discount, described)
        self.walks = FeatureWalks(simulator, policy, method.seed, restart, self.rows)
        self.rules = VisitRules(simulator.discount, simulator.sharing, method.is_centred, parts)
        self._lanes = Lanes(self.walks, method.replicas * method.batch)

    def init(self) -> FeatureState:
        """Before the first step."""
        K, R, P = len(self.rows.names), self.method.replicas, len(self.rules.parts)
        n = K * (K + 1) // 2
        needed = 8 * (R + 6) * (2 * P + P**2) * n**2  # and what a solve makes of the sums
        if needed > self.method.memory_limit:
            raise ModelError(
                f"{K:,} features need about {needed / 2**30:.2g} GiB for {R} replicas, above memory_limit; use "
                "fewer features"
            )
        self._lanes = Lanes(self.walks, R * self.method.batch)
        shapes = ((), (), (K, K), (K, K), (K,), (P, n, n), (P, n, P, n), (P, n), (P, n, K), (P, n, n))
        return FeatureState(np.array(0, dtype=np.int64), Sums(*(np.zeros((R, *shape)) for shape in shapes)))

    def advance(self, state: FeatureState, count: int) -> FeatureState:
        """`count` steps at once, each a mini-batch of visits for every replica."""
        step, goal = int(state.step), int(state.step) + count
        sums = Sums(*(np.array(part) for part in state.sums))
        while step < goal:
            some = min(goal - step, STEPS_AHEAD)
            samples = self._sampled(step, some)
            # One step after the other: sums of floats must not depend on how many were drawn at once.
            for t, r in np.ndindex(some, self.method.replicas):
                own = slice(r * self.method.batch, (r + 1) * self.method.batch)
                add(sums, r, FeatureSamples(*(part[t, own] for part in samples)), self.rules)
            step += some
        return FeatureState(np.array(step, dtype=np.int64), sums)

    def _sampled(self, step: int, count: int) -> FeatureSamples:
        """Visits ``[T, L]`` of the next steps."""
        return FeatureSamples(*self._lanes.sampled(self.executor, step, count))

    def answer(self, state: FeatureState, log: tuple[dict[str, Any], ...] = ()) -> LearnedFeatures:
        """What has been learned so far; updates are the pairs visited."""
        method, sums = self.method, Sums(*map(np.asarray, state.sums))
        return LearnedFeatures(
            2,
            self.simulator.sharing,
            method.replicas,
            method.seed,
            int(state.step),
            int(sums.pairs.sum()),
            log,
            simulator=self.simulator,
            rows=self.rows,
            part_names=self.rules.parts,
            method=method,
            _sums=sums,
        )

    def _extra(self, state: FeatureState) -> dict[str, NDArray[Any]]:
        return {"since": self._lanes.since(int(state.step))}

    def _restore(self, step: int, arrays: Mapping[str, Ints]) -> None:
        self._lanes.restore(self.executor, step, arrays["since"])
