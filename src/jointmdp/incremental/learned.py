"""What has been learned so far, with its errors: an answer at any time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointmdp import checks
from jointmdp.arrays import Floats, Ints
from jointmdp.bellman.tuple_moments import Tuples
from jointmdp.checks import Sharing
from jointmdp.errors import ModelError
from jointmdp.incremental.replicas import Estimate, LearnedGap, LearnedMoments, Replicas, gap
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.tables import ActionLike, StateLike
from jointmdp.moments.certificates import norm_weight

RARE = 30  # fewer visits than this say little, whatever the step sizes


class BlockVisits(NamedTuple):
    """How often the coordinates of one kind were updated, over all replicas; the theorem asks for infinitely often."""

    kind: str
    coordinates: int
    never: int
    """Coordinates that some replica never updated."""
    rarely: int
    """Coordinates updated, but in some replica fewer than 30 times."""
    fewest: int
    median: float
    examples: tuple[str, ...]
    """Some of the never and rarely visited."""

    def __str__(self) -> str:
        seen = f"{self.kind}: {self.coordinates:,} coordinates, updated {self.fewest:,} times at least, median "
        seen += f"{self.median:,.0f}"
        if self.never or self.rarely:
            seen += f"; never {self.never:,}, rarely {self.rarely:,} ({', '.join(self.examples)}, …)"
        return seen


@dataclass(frozen=True, eq=False, repr=False)
class RunSummary:
    """How an answer came about."""

    order: int
    sharing: Sharing
    replicas: int
    seed: int
    steps: int
    updates: int
    """Coordinate updates, over all replicas."""
    log: tuple[dict[str, Any], ...] = field(default=())
    """One row per report: step, updates, seconds and the error at that time."""

    def _words(self) -> str:
        return f"order {self.order}, {self.steps:,} steps, {self.replicas} replicas, {self.updates:.3g} updates"


class PairAnswers(RunSummary, ABC):
    """What is answered alike whether states have numbers or were discovered."""

    @abstractmethod
    def _mean(self, state: Any, action: Any) -> Replicas:
        """The mean of one coordinate."""

    @abstractmethod
    def _pair(self, state: Any, action: Any, other: Any) -> tuple[LearnedMoments, int, int]:
        """Moments that hold two coordinates of a state, and their numbers among these."""

    @abstractmethod
    def _labels(self, state: Any, *actions: Any) -> list[str]:
        """The actions in words."""

    def mean_at(self, state: Any, action: Any) -> Estimate:
        """E Z(state, action)."""
        return self._mean(state, action).estimate

    def second_moment_at(self, state: Any, action: Any, other: Any) -> Estimate:
        """E[Z(state, action) Z(state, other)]."""
        moments, x, y = self._pair(state, action, other)
        return moments.at(1, 1, x, y).estimate

    def covariance_at(self, state: Any, action: Any, other: Any) -> Estimate:
        """Cov(Z(state, action), Z(state, other))."""
        moments, x, y = self._pair(state, action, other)
        return moments.covariance(x, y).estimate

    def gap(self, state: Any, action: Any, other: Any) -> LearnedGap:
        """``Z(state, action) − Z(state, other)``: mean and variance with their errors."""
        first, second = self._labels(state, action, other)
        return gap((first, second), *self._pair(state, action, other))


@dataclass(frozen=True, eq=False, repr=False)
class Learned(PairAnswers):
    """Moments of one and two returns of a model in tables, as learned from samples."""

    model: JointMDP = field(kw_only=True)
    _moments: LearnedMoments = field(kw_only=True)  # on available coordinates, in turn
    _visits: tuple[Ints, Ints] | None = field(kw_only=True)  # [R, X], [R, X, X]; None: all of them in every step

    def __repr__(self) -> str:
        return f"Learned({self.model!r}, {self._words()}, error {self.error:.3g})"

    @property
    def mean(self) -> Floats:
        """E Z(s,a), ``[S, A]``; NaN where an action is unavailable."""
        return self._table(self._moments.mean.mean)

    @property
    def mean_error(self) -> Floats:
        """Errors of the means, ``[S, A]``, each by itself: half of a 95 % interval, and what is left of the start."""
        return self._table(self._moments.mean.error)

    @property
    def second_moment(self) -> Floats:
        """E[Z(s,a) Z(s,b)], ``[S, A, A]``."""
        return self.moment(1, 1)

    @property
    def second_moment_error(self) -> Floats:
        """Errors of the second moments, ``[S, A, A]``."""
        return self.moment_error(1, 1)

    @property
    def covariance(self) -> Floats:
        """Cov(Z(s,a), Z(s,b)), ``[S, A, A]``."""
        return self._blocks(self._moments.covariance(*self._pairs).mean)

    @property
    def covariance_error(self) -> Floats:
        """Errors of the covariances, ``[S, A, A]``."""
        return self._blocks(self._moments.covariance(*self._pairs).error)

    def moment(self, i: int, j: int) -> Floats:
        """E[Z(s,a)ⁱ Z(s,b)ʲ], ``[S, A, A]``, for i, j ≥ 1 and i + j up to the order learned."""
        return self._blocks(self._moments.at(i, j, *self._pairs).mean)

    def moment_error(self, i: int, j: int) -> Floats:
        """Errors of `moment`, ``[S, A, A]``."""
        return self._blocks(self._moments.at(i, j, *self._pairs).error)

    def second_moment_between(self, s: StateLike, a: ActionLike, t: StateLike, b: ActionLike) -> Estimate:
        """E[Z(s,a) Z(t,b)] for any two coordinates."""
        return self._moments.at(1, 1, self._number(s, a), self._number(t, b)).estimate

    def covariance_between(self, s: StateLike, a: ActionLike, t: StateLike, b: ActionLike) -> Estimate:
        """Cov(Z(s,a), Z(t,b)) for any two coordinates."""
        return self._moments.covariance(self._number(s, a), self._number(t, b)).estimate

    @property
    def error(self) -> float:
        """The largest error, in the norm ‖·‖_λ of the paper: means as they are, second moments over λ, and so on.

        A coordinate that was never updated has all of its range as its error; `visits` tells which they are.
        """
        return self._moments.largest_error(norm_weight(self.model.reward_bound, self.model.discount))

    @property
    def visits(self) -> list[BlockVisits]:
        """How often coordinates were updated, by kind: means, diagonal, same state, distinct states."""
        size = len(self._moments.mean.doubt)
        mean, pair = self._visits or (np.full((1, size), self.steps), np.full((1, size, size), self.steps))
        states = self._places[0]
        alike, same = states[:, None] == states[None, :], np.eye(size, dtype=bool)
        kinds = {"diagonal": same, "same state": alike & ~same, "distinct states": ~alike}
        fewest = pair.min(axis=0)
        found = [block_visits("mean", mean.min(axis=0), np.arange(size)[:, None], self._label)]
        for kind, mask in kinds.items():
            if mask.any():
                found.append(block_visits(kind, fewest[mask], np.argwhere(mask), self._label))
        return found

    def _mean(self, state: StateLike, action: ActionLike) -> Replicas:
        return self._moments.mean[self._number(state, action)]

    def _pair(self, state: StateLike, action: ActionLike, other: ActionLike) -> tuple[LearnedMoments, int, int]:
        return self._moments, self._number(state, action), self._number(state, other)

    def _labels(self, state: StateLike, *actions: ActionLike) -> list[str]:
        s = self.model.state_index(state)
        return [self.model.action_label(self.model.action_index(action, s)) for action in actions]

    def _label(self, x: int) -> str:
        states, actions = self._places
        return f"({self.model.state_label(int(states[x]))}, {self.model.action_label(int(actions[x]))})"

    @cached_property
    def _places(self) -> tuple[NDArray[np.intp], ...]:
        return np.nonzero(self.model.available)

    @cached_property
    def _pairs(self) -> tuple[NDArray[np.intp], ...]:
        """Pairs of coordinates in the same state."""
        states = self._places[0]
        return np.nonzero(states[:, None] == states[None, :])

    def _number(self, s: StateLike, a: ActionLike) -> int:
        state = self.model.state_index(s)
        action = self.model.action_index(a, state)
        return int(np.flatnonzero((self._places[0] == state) & (self._places[1] == action))[0])

    def _table(self, values: Floats) -> Floats:
        found = np.full(self.model.available.shape, np.nan)
        found[self._places] = values
        return found

    def _blocks(self, values: Floats) -> Floats:
        """Numbers of same-state pairs, ``[S, A, A]``."""
        (states, actions), (x, y) = self._places, self._pairs
        block = np.full((*self.model.available.shape, self.model.num_actions), np.nan)
        block[states[x], actions[x], actions[y]] = values
        return block


@dataclass(frozen=True, eq=False, repr=False)
class LearnedJoint(RunSummary):
    """Moments of any coordinates of a small model in tables, as learned from samples."""

    model: JointMDP = field(kw_only=True)
    _tuples: Tuples = field(kw_only=True)
    _values: Replicas = field(kw_only=True)  # [N], the empty tuple first

    def __repr__(self) -> str:
        return f"LearnedJoint({self.model!r}, {self._words()}, error {self.error:.3g})"

    @property
    def error(self) -> float:
        """The largest error, in the norm ‖·‖_λ of the paper."""
        weight = norm_weight(self.model.reward_bound, self.model.discount)
        half = self._at(np.arange(len(self._values.doubt))).error
        orders = range(1, self.order + 1)
        return float(max(np.max(half[self._tuples.of_degree(k)]) / weight ** (k - 1) for k in orders))

    def moment(self, *coordinates: tuple[StateLike, ActionLike]) -> Estimate:
        """``E Π_i Z(s_i,a_i)`` for coordinates given as ``(state, action)``; repeats are powers."""
        if not 1 <= len(coordinates) <= self.order:
            raise ModelError(f"{len(coordinates)} coordinates asked for, but moments are of order 1 to {self.order}")
        place = np.cumsum(self.model.available).reshape(self.model.available.shape) - 1
        found = 0
        for state, action in coordinates:
            s = self.model.state_index(state)
            found = int(self._tuples.insert[found, place[s, self.model.action_index(action, s)]])
        return self._at(np.array([found]))[0].estimate

    def __getitem__(self, order: int) -> Floats:
        """The moments of one order on sorted tuples of available coordinates, as `tuples` lists them."""
        k = checks.as_count("order", order, most=self.order)
        return self._order(k).mean

    def errors(self, order: int) -> Floats:
        """Errors of the moments of one order."""
        k = checks.as_count("order", order, most=self.order)
        return self._order(k).error

    def _order(self, k: int) -> Replicas:
        return self._at(np.arange(self._tuples.starts[k], self._tuples.starts[k + 1]))

    def _at(self, ids: Ints) -> Replicas:
        """The moments of tuples; where coordinates are independent, products over those of each."""
        found = self._values[ids]
        if self.sharing != "none":
            return found
        stems = self._tuples.stem[ids]
        several = stems > 0
        if several.any():
            product = self._at(stems[several]).times(self._values[self._tuples.runs[ids[several]]])
            found.values[:, several], found.doubt[several] = product.values, product.doubt
        return found

    def tuples(self, order: int) -> Ints:
        """The coordinates, numbered in turn, of the tuples of one order, ``[N, order]``."""
        k = checks.as_count("order", order, most=self.order)
        return self._tuples.labels()[self._tuples.of_degree(k), :k].astype(np.int64)


def block_visits(kind: str, counts: Ints, places: NDArray[Any], label: Any) -> BlockVisits:
    """A row of the table of visits: counts, and the coordinates that they belong to."""
    never, rarely = counts == 0, (counts > 0) & (counts < RARE)
    worst = places[np.flatnonzero(never | rarely)[:3]]
    examples = tuple("×".join(label(int(x)) for x in np.atleast_1d(place)) for place in worst)
    median = float(np.median(counts)) if counts.size else 0.0
    least = int(counts.min()) if counts.size else 0
    return BlockVisits(kind, counts.size, int(never.sum()), int(rarely.sum()), least, median, examples)
