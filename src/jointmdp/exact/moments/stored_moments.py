"""Joint moments as the methods leave them: on states, where actions are one backup away, or on pairs of coordinates.

Of many states only what actions of one state need is kept of all pairs of states: S·A² numbers of S².
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import scipy.sparse as sp

from jointmdp.exact.bellman.pair_step import coordinate_kernels
from jointmdp.exact.moments.certificates import (
    UNDERFLOW,
    Certificate,
    Status,
    ValueErrors,
    mean_operations,
    pair_operations,
)
from jointmdp.exact.moments.higher_orders import ROOM, HigherMoments, JointPowers, Layout, power_operations
from jointmdp.exact.moments.pair_solver import Solve
from jointmdp.exact.moments.single_branch import MIXED
from jointmdp.ground.arrays import UNIT, Floats, Ints, float64
from jointmdp.ground.errors import NotKnownError
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.policies import at_time


class GapEstimate(NamedTuple):
    """Mean and variance of a gap, and bounds on their errors."""

    mean: float
    variance: float
    mean_error: float
    variance_error: float


MomentsT = TypeVar("MomentsT")


class FoundMoments(NamedTuple, Generic[MomentsT]):
    """Moments as a method found them, and how true they are."""

    moments: MomentsT
    certificate: Certificate
    status: Status
    steps: int
    history: Floats = np.empty(0)  # of an iteration: residuals as computed, of the start and after each step


class StoredMoments(Protocol):
    """Joint moments as a method leaves them."""

    @property
    def mean(self) -> Floats: ...  # [S, A]

    def blocks(self, states: Sequence[int], actions: Sequence[int]) -> Floats:
        """Covariances of the chosen actions in each chosen state, ``[n, m, m]``."""

    def between(self, s: int, a: int, t: int, b: int) -> float:
        """Covariance of two coordinates in distinct states."""

    def across(self) -> Floats:
        """Covariances of all coordinates in distinct states, ``[S, A, S, A]``; of one state it says nothing."""

    def difference(self, s: int, a: int, b: int, certificate: Certificate) -> GapEstimate:
        """Z(s,a) − Z(s,b), two distinct actions."""


def gap_backup(  # many parameters: a model, what is known of its values, which gap, and what is known of pairs
    model: JointMDP,
    rewards: Floats,
    v: Floats,
    values: ValueErrors,
    gap: tuple[int, int, int],
    later: tuple[float, float],
    alone: tuple[float, float] | None = None,
) -> GapEstimate:
    """E_w[(d − E d)² + γ² D(S'_a,S'_b)], where d = R_a − R_b + γ (v(S'_a) − v(S'_b)), of the gap (s, a, b).

    What both actions share, successors and digits of values, is left out before anything is rounded. `rewards`
    ``[W, A]`` are those of the state, relative to the offset of `values` as `v` is; `later` is E_w D(S'_a,S'_b) with a
    bound on its error. Where branches share nothing `alone` holds the sum of their variances, with a bound.
    """
    s, a, b = gap
    g, p, n = model.discount, model.probabilities[s], model.successors[s]
    parted = n[:, a] != n[:, b]
    after = g * np.where(parted, v[n[:, a]] - v[n[:, b]], 0.0)
    d = np.where(p > 0, rewards[:, a] - rewards[:, b] + after, 0.0)
    mean = float(p @ d)
    sizes = np.where(parted, g * (np.abs(v[n[:, a]]) + np.abs(v[n[:, b]])), 0.0)
    sizes = sizes + reward_sizes(model, rewards, values, s, a) + reward_sizes(model, rewards, values, s, b)
    sizes = np.where(p > 0, sizes, 0.0)
    apart = g * np.where(p > 0, values.between(n[:, a], n[:, b]), 0.0)
    rounding = mean_operations(model.num_scenarios, 2) * UNIT * float(p @ sizes) + UNDERFLOW * (1 + float(sizes.max()))
    mean_error = float(p @ apart) + rounding
    if alone is not None:
        return GapEstimate(mean, alone[0], mean_error, alone[1] + 4 * UNIT * alone[0])
    spread = float(p @ (d - mean) ** 2)
    variance = spread + g**2 * later[0]
    off = math.sqrt(float(p @ apart**2)) + 4 * UNIT * math.sqrt(float(p @ sizes**2)) + rounding
    error = 2 * math.sqrt(spread) * off + off**2 + g**2 * later[1]
    relative = pair_operations(model.num_scenarios, 2) * UNIT
    return GapEstimate(mean, variance, mean_error, (1 + ROOM) * error + relative * variance + UNDERFLOW)


def reward_sizes(model: JointMDP, rewards: Floats, values: ValueErrors, s: int, a: int) -> Floats:
    """How large the numbers are that the rewards ``[W, A]`` of an action of state s were made of, ``[W]``."""
    to = model.successors[s, :, a]
    # Those of steps that change the class hold its offset.
    changes = (values.label[to] != values.label[s]) | (values.label[s] == MIXED)
    offsets = np.where(changes, abs(values.offset[s]) + np.abs(values.offset[to]), 0.0)
    return np.abs(rewards[:, a]) + offsets


class GapErrors(NamedTuple):
    """What the errors of gaps are made of."""

    values: ValueErrors
    pairs: Floats  # [S, S] of the variance of the gap of two branches; one zero where they are independent


@dataclass(frozen=True, eq=False, repr=False)
class StateMoments:
    """Moments held on states; those of actions are one backup away."""

    model: JointMDP
    policy: Floats  # [S, A]; [T, S, A] where it depends on time
    rewards: Floats  # [S, W, A] relative to the offset of the value errors
    v: Floats  # [S] as well
    D: Floats  # [S, S] variance of the gap of two branches
    B: Floats  # [S] variance of one
    mean: Floats  # [S, A] of the model's own rewards
    errors: GapErrors
    higher: HigherMoments | None = None
    method: Solve = Solve()  # noqa: RUF009 - frozen; of moments that are solved for when first asked for

    def parts(self) -> dict[str, Floats]:
        """What a file keeps beside the mean; `restored` reads it back."""
        parts: dict[str, Floats] = {
            "shifted_rewards": self.rewards,
            "state_mean": self.v,
            "gap_variance": self.D,
            "branch_variance": self.B,
            "gap_errors": self.errors.pairs,
            "value_errors": np.stack(self.errors.values),  # [4, S]
        }
        if self.higher is not None:
            higher = self.higher
            parts |= {"branch_moments": higher.branch, "gap_moments": higher.gaps[2:], "higher_errors": higher.errors}
        return parts

    @classmethod
    def restored(
        cls, model: JointMDP, policy: Floats, parts: Mapping[str, Floats], order: int = 2, horizon: int | None = None
    ) -> StateMoments:
        """The moments whose ``parts`` and ``mean`` are given: nothing is computed again, so every bit is the same."""
        higher = None
        if order > 2:
            gaps = np.zeros((order + 1, *parts["gap_moments"].shape[1:]))
            gaps[0], gaps[2:] = 1.0, parts["gap_moments"]
            higher = HigherMoments(order, parts["branch_moments"], gaps, parts["higher_errors"], horizon)
        held = ("shifted_rewards", "state_mean", "gap_variance", "branch_variance")
        rewards, v, D, B = (parts[name] for name in held)
        alone, apart, label, offset = parts["value_errors"]
        errors = GapErrors(ValueErrors(alone, apart, label.astype(np.int64), offset), parts["gap_errors"])
        return cls(model, policy, rewards, v, D, B, parts["mean"], errors, higher)

    @cached_property
    def C(self) -> Floats:
        """Covariance of two branches, ``[S, S]``."""
        return (self.B[:, None] + self.B[None, :] - self.D) / 2

    def _noise(self, states: Ints) -> Floats:
        """b − E b of all actions of some states, ``[n, W, A]``; see `bellman.second_moments`."""
        b = self.rewards[states] + self.model.discount * self.v[self.model.successors[states]]
        return b - np.einsum("sw,swa->sa", self.model.probabilities[states], b)[:, None, :]

    def difference(self, s: int, a: int, b: int, certificate: Certificate) -> GapEstimate:
        later, alone = (0.0, 0.0), None
        if self.model.sharing == "none":
            shares = certificate.covariance_shares[s]
            alone = float(np.sum(self.blocks([s], [a, b])[0].diagonal())), float(2 * (shares[a] + shares[b]))
        else:
            later = self._later(s, a, b)
        return gap_backup(self.model, self.rewards[s], self.v, self.errors.values, (s, a, b), later, alone)

    def _later(self, s: int, a: int, b: int) -> tuple[float, float]:
        """E_w D(S'_a, S'_b), and a bound on its error."""
        p, n = self.model.probabilities[s], self.model.successors[s]
        return float(p @ self.D[n[:, a], n[:, b]]), float(p @ self.errors.pairs[n[:, a], n[:, b]])

    def _among(self, states: Ints, actions: Ints) -> Floats:
        """E_w D(S'_a, S'_b) where a ≠ b, ``[n, m, m]``."""
        n = self.model.successors[states][:, :, actions]
        later = self.D[n[:, :, :, None], n[:, :, None, :]]
        found: Floats = np.einsum("sw,swab->sab", self.model.probabilities[states], later)
        return np.where(np.eye(len(actions), dtype=bool), 0.0, found)

    def blocks(self, states: Sequence[int], actions: Sequence[int]) -> Floats:
        """By one backup: Cov_w(b_a, b_b) + γ² E_w [B(S'_a) + B(S'_b) − D(S'_a, S'_b)] / 2, without D where a = b."""
        rows, columns = np.asarray(states), np.asarray(actions)
        p, n = self.model.probabilities[rows], self.model.successors[rows][:, :, columns]
        x, B = self._noise(rows)[:, :, columns], np.einsum("sw,swa->sa", p, self.B[n])
        if self.model.sharing == "none":
            alone = np.einsum("sw,swa->sa", p, x**2) + self.model.discount**2 * B
            return alone[:, :, None] * np.eye(len(columns))
        later = (B[:, :, None] + B[:, None, :] - self._among(rows, columns)) / 2
        return np.einsum("sw,swa,swb->sab", p, x, x) + self.model.discount**2 * later

    @cached_property
    def _kernels(self) -> list[tuple[float, sp.csr_array]]:
        return coordinate_kernels(self.model)

    def _apart(self, one: Ints, other: Ints) -> Floats:
        """Covariances of coordinates s·A + a in distinct states: of independent scenarios, or one that drives both."""
        model, C, A = self.model, self.C, self.model.num_actions
        found = np.zeros((len(one), len(other)))
        for chance, kernel in self._kernels:
            found += chance * model.discount**2 * (kernel[other] @ (kernel[one] @ C).T).T
        if model.sharing == "time":
            left, right = (self._noise(x // A)[np.arange(len(x)), :, x % A] for x in (one, other))
            found += (left * model.probabilities[0]) @ right.T
        return found

    def between(self, s: int, a: int, t: int, b: int) -> float:
        x, y = (np.array([state * self.model.num_actions + action]) for state, action in ((s, a), (t, b)))
        return float(self._apart(x, y)[0, 0])

    def across(self) -> Floats:
        every = np.arange(self.model.available.size)
        return self._apart(every, every).reshape(self.model.available.shape * 2)

    def gap_moments(self, s: int, a: int, b: int, mean_errors: Floats, gap_error: float) -> KnownMoments:
        """Central moments of Z(s,a) − Z(s,b) up to the order held, by one backup.

        `mean_errors` are those of a and of b, `gap_error` is that of the mean of their gap.

        E(G−μ)ᵏ = Σ_j C(k,j) γʲ E_w[(ε_a−ε_b)^{k−j} h_j(S'_a,S'_b)],  ε_a = R_a + γ v(S'_a) − m(s,a).
        """
        model, higher = self.model, self.higher
        assert higher is not None
        g, p = model.discount, model.probabilities[s]
        rewards = self.rewards[s][:, [a, b]]  # [W, 2]
        to = model.successors[s][:, [a, b]]
        later = g * self.v[to]
        relative = power_operations(model.num_scenarios, 2, higher.order) * UNIT
        # Reward and value are off by roundings of their own, and so is the mean that is subtracted.
        sizes = np.stack([reward_sizes(model, self.rewards[s], self.errors.values, s, each) for each in (a, b)], axis=1)
        off = (relative + 8 * UNIT) * np.max(sizes + np.abs(later), axis=0, where=p[:, None] > 0, initial=0.0)
        if model.sharing == "none":
            known = []
            for i in range(2):
                after = KnownMoments(higher.branch[:, to[:, i]], higher.errors[:, to[:, i], 0])
                known.append(_backed_up(p, rewards[:, i] + later[:, i], after, off[i], relative, g, mean_errors[i]))
            found = difference_of(*known)
        else:
            d = rewards[:, 0] - rewards[:, 1] + (later[:, 0] - later[:, 1])
            after = KnownMoments(*(each[:, to[:, 0], to[:, 1]] for each in (higher.gaps, higher.errors)))
            found = _backed_up(p, d, after, float(off.sum()), relative, g, gap_error)
        return about_mean(found, float(mean_errors.sum()) if model.sharing == "none" else gap_error)

    @cached_property
    def _joint(self) -> JointPowers:
        assert self.higher is not None
        layout = Layout(self.model, at_time(self.policy, 0), self.rewards, self.higher.order)
        return JointPowers(layout, self.policy, self.v, self.C, self.higher, self.method)

    def central(self, i: int, j: int) -> Floats:
        """E[(Z(s,a)−m(s,a))ⁱ (Z(s,b)−m(s,b))ʲ], ``[S, A, A]``."""
        with float64():
            return self._joint.central(i, j)


@dataclass(frozen=True, eq=False, repr=False)
class PairMoments:
    """Raw moments held on all pairs of coordinates."""

    mean: Floats  # [S, A]
    second: Floats  # [S, A, S, A]

    def parts(self) -> dict[str, Floats]:
        """What a file keeps beside the mean."""
        return {"second_moment": self.second}

    def blocks(self, states: Sequence[int], actions: Sequence[int]) -> Floats:
        s = np.asarray(states)[:, None, None]
        a, b = np.asarray(actions)[None, :, None], np.asarray(actions)[None, None, :]
        return self.second[s, a, s, b] - self.mean[s, a] * self.mean[s, b]

    def between(self, s: int, a: int, t: int, b: int) -> float:
        return float(self.second[s, a, t, b] - self.mean[s, a] * self.mean[t, b])

    def across(self) -> Floats:
        return self.second - self.mean[:, :, None, None] * self.mean

    def difference(self, s: int, a: int, b: int, certificate: Certificate) -> GapEstimate:
        c, shares, off = self.blocks([s], [a, b])[0], certificate.covariance_shares[s], certificate.mean_errors[s]
        variance = max(0.0, float(c[0, 0] + c[1, 1] - 2 * c[0, 1]))
        # Two variances and twice a covariance, each off by the shares of its two coordinates.
        error = float(4 * (shares[a] + shares[b]) + 8 * UNIT * (c[0, 0] + c[1, 1]))
        mean = float(self.mean[s, a] - self.mean[s, b])
        return GapEstimate(mean, variance, float(off[a] + off[b]) + 2 * UNIT * abs(mean), error)


# The bounds are those of `higher_orders.Step`, for the outcomes of one state.


class KnownMoments(NamedTuple):
    """Moments 0, 1, … of a random variable about a reference, and bounds on their errors."""

    values: Floats
    errors: Floats


def _backed_up(
    chances: Floats, d: Floats, later: KnownMoments, off: float, relative: float, discount: float, first_error: float
) -> KnownMoments:
    """Moments of d − E d + γX, given d [W] and the moments of X, ``later`` [n+1, W].

    d − E d is off by at most `off`. The mean is zero but for `first_error`, and the first moment is taken to be zero.
    """
    order, size = len(later.values) - 1, np.abs(later.values)
    d = np.where(chances > 0, d - chances @ d, 0.0)
    powers = d[None, :] ** np.arange(order + 1)[:, None]  # [n+1, W]
    sizes = (np.abs(d) + off)[None, :] ** np.arange(order + 1)[:, None]

    def backup(k: int, powers: Floats, moments: Floats) -> float:
        averages = (float(np.sum(chances * powers[k - j] * moments[j])) for j in range(k + 1))
        return math.fsum(math.comb(k, j) * discount**j * average for j, average in enumerate(averages))

    unsure = later.errors + relative * size
    values, off_by = np.zeros((2, order + 1))
    values[0], off_by[1] = 1.0, first_error
    for k in range(2, order + 1):
        values[k] = backup(k, powers, later.values)
        off_by[k] = (1 + ROOM) * (backup(k, sizes, unsure) + k * off * backup(k - 1, sizes, size))
    return KnownMoments(values, off_by)


def difference_of(one: KnownMoments, other: KnownMoments) -> KnownMoments:
    """Moments of X − Y for independent X and Y."""
    order = len(one.values) - 1
    values, errors = np.zeros((2, *one.values.shape))
    for k in range(order + 1):
        for j in range(k + 1):
            x, y, dx, dy = one.values[k - j], other.values[j], one.errors[k - j], other.errors[j]
            values[k] += math.comb(k, j) * (-1) ** j * x * y
            rounding = (2 * k + 8) * UNIT * np.abs(x * y)
            errors[k] += math.comb(k, j) * (np.abs(x) * dy + np.abs(y) * dx + dx * dy + rounding)
    return KnownMoments(values, (1 + ROOM) * errors)


def about_mean(known: KnownMoments, mean_error: float) -> KnownMoments:
    """Central moments, from moments about a reference that is off the mean by at most `mean_error`."""
    order = len(known.values) - 1
    even = [abs(value) + error for value, error in zip(known.values, known.errors, strict=True)]
    size = [even[i] if i % 2 == 0 else math.sqrt(even[i - 1] * even[i + 1]) for i in range(order)]  # E|X|ⁱ
    values, errors = known.values.copy(), known.errors.copy()
    values[1] = errors[0] = errors[1] = 0.0
    values[2::2] = np.maximum(values[2::2], 0.0)
    for k in range(2, order + 1):
        moved = sum(math.comb(k, i) * mean_error**i * size[k - i] for i in range(1, k + 1))
        errors[k] = (1 + ROOM) * (errors[k] + moved)
    return KnownMoments(values, errors)


@dataclass(frozen=True, eq=False, repr=False)
class SameStateMoments(StateMoments):
    """Moments where `D` is E_w D(S'_a, S'_b), ``[S, A, A]``, and `errors.pairs` the share of each state, ``[S, 1]``."""

    @property
    def C(self) -> Floats:
        """Not kept."""
        raise NotKnownError(
            "covariances of distinct states are not kept: of so many states only the pairs are that actions of one "
            "state need; gaps and covariances of actions of one state are known"
        )

    def _later(self, s: int, a: int, b: int) -> tuple[float, float]:
        p, n, shares = self.model.probabilities[s], self.model.successors[s], self.errors.pairs[:, 0]
        return float(self.D[s, a, b]), float(p @ (shares[n[:, a]] + shares[n[:, b]]))

    def _among(self, states: Ints, actions: Ints) -> Floats:
        return self.D[states[:, None, None], actions[:, None], actions[None, :]]
