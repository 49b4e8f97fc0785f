"""Samples of pairs and their features, drawn from a simulator along the pair process with restarts.

Walkers go in pairs from two actions of a starting state, and begin anew with a fixed probability in every step: they
visit pairs as the restart weighting weighs them. Each visit draws the outcome of both coordinates *twice*,
independently: half the product of the differences of two draws is a covariance without bias, whatever its mean. The
first draw is also where the walkers go on.

Coordinates whose episode is over have features and rewards of 0. Under ``"none"`` two branches are looked at as a pair
in the first step only: later pairs are independent, and nothing refers to them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from jointmdp.arrays import Floats, Ints
from jointmdp.incremental.simulator_walks import NOWHERE, Coordinate, DrawnOutcome, Walker, Walks, WalkTask
from jointmdp.projected.features import FeatureRows

T = TypeVar("T")

DRAWS = ("", "again ")  # the words that make the noise of the two draws different


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


class FeatureWalkResult(NamedTuple):
    """What a task gives."""

    samples: FeatureSamples
    walkers: list[list[Walker | None]]


class FeatureWalks:
    """Walks that give features; a task gives the same in every process."""

    def __init__(self, walks: Walks, rows: FeatureRows) -> None:
        self.walks, self.rows = walks, rows

    def __call__(self, task: WalkTask) -> FeatureWalkResult:
        shape, K = (len(task.steps), len(task.lanes)), len(self.rows.names)
        kinds = np.zeros(shape, dtype=np.int8)
        rewards, next_kinds = np.zeros((*shape, 2, 2)), np.zeros((*shape, 2), dtype=np.int8)
        listed: list[Coordinate] = []
        standing = [list(walkers) for walkers in task.walkers]
        for t, i in np.ndindex(shape):
            step, lane = task.steps[t], task.lanes[i]
            walker = self._here(step, lane, standing[i][0])
            kinds[t, i] = self._kind(step, walker)
            drawn = [self._outcomes(word, step, lane, walker) for word in DRAWS]
            standing[i] = [self._after(walker, drawn[0])]
            rewards[t, i] = [[reward for _, reward, _ in each] for each in drawn]
            nexts = [[after for _, _, after in each] for each in drawn]
            next_kinds[t, i] = [_pair_kind(*each) for each in nexts]
            listed += [*_two(walker.places), *nexts[0], *nexts[1]]
        features = self._features(listed).reshape(*shape, 3, 2, K)
        samples = FeatureSamples(kinds, features[:, :, 0], rewards, features[:, :, 1:], next_kinds)
        return FeatureWalkResult(samples, standing)

    def found_again(self, lane: int, since: int, step: int) -> Walker | None:
        """A walker that began at the step `since`, as it stands before `step`."""
        walker = None
        for k in range(since, step):
            here = self._here(k, lane, walker)
            walker = self._after(here, self._outcomes(DRAWS[0], k, lane, here))
        return walker

    def _here(self, step: int, lane: int, walker: Walker | None) -> Walker:
        """Where a pair stands; one branch has one place."""
        here = self.walks.here(step, lane, 0, walker, {})
        return _one_if_same(here) if here.since == step else here

    def _outcomes(self, word: str, step: int, lane: int, walker: Walker) -> list[DrawnOutcome]:
        """What both coordinates give; those that are over stay and pay nothing."""
        alive = [place for place in walker.places if place.action != NOWHERE]
        found = {id(each[0]): each for each in self.walks.drawn(word, step, lane, alive)}
        return _two([found.get(id(place), (place, 0.0, place)) for place in walker.places])

    def _after(self, walker: Walker, drawn: list[DrawnOutcome]) -> Walker | None:
        """Where both go on; None where both are over."""
        nexts = tuple(after for _, _, after in drawn[: len(walker.places)])
        if all(place.action == NOWHERE for place in nexts):
            return None
        after = Walker(walker.since, nexts)
        # Without shared noise branches that meet stay two.
        return after if self.walks.simulator.sharing == "none" else _one_if_same(after)

    def _kind(self, step: int, walker: Walker) -> int:
        if len(walker.places) == 1:
            return PairKind.ONE
        one, other = walker.places
        is_later = self.walks.simulator.sharing == "none" and step > walker.since
        if is_later or NOWHERE in (one.action, other.action):
            return PairKind.NO_PAIR
        return PairKind.SAME_STATE if one.key == other.key else PairKind.APART

    def _features(self, places: list[Coordinate]) -> Floats:
        """The features of coordinates, 0 where they are over."""
        alive = np.flatnonzero([place.action != NOWHERE for place in places])
        found = np.zeros((len(places), len(self.rows.names)))
        if len(alive):
            observe = self.walks.simulator.observe
            actions: Ints = np.array([places[i].action for i in alive], dtype=np.int64)
            found[alive] = self.rows([observe(places[i].state) for i in alive], actions)
        return found


def _pair_kind(one: Coordinate, other: Coordinate) -> int:
    """Of two coordinates, whichever branches stand there."""
    if one.key != other.key:
        return PairKind.APART
    return PairKind.ONE if one.action == other.action else PairKind.SAME_STATE


def _one_if_same(walker: Walker) -> Walker:
    """One branch where both stand at one coordinate."""
    if len(walker.places) == 2 and walker.places[0][1:] == walker.places[1][1:]:
        return walker._replace(places=walker.places[:1])
    return walker


def _two(places: Sequence[T]) -> list[T]:
    """Both of a pair; one branch stands for both."""
    return [places[0], places[-1]]
