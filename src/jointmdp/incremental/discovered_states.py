"""What is known of a simulator's states: those discovered so far, and what has been learned of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jointmdp.arrays import Ints
from jointmdp.bellman.sample_backups import powers
from jointmdp.errors import ModelError
from jointmdp.incremental.learned import BlockVisits, PairAnswers, block_visits
from jointmdp.incremental.replicas import LearnedMoments, Replicas
from jointmdp.incremental.simulator_walks import NOWHERE, state_key
from jointmdp.moments.certificates import norm_weight
from jointmdp.simulators.simulator import Simulator, Snapshot

OVER = 0  # number of the coordinate that pays nothing any more, and of every pair with it
BITS = 31  # of the number of a coordinate
MASK = (1 << BITS) - 1


@dataclass
class DiscoveredStates:
    """What has been discovered: states by the fingerprint of their identity, coordinates, and pairs of these.

    Numbers are given in the order of discovery, so that they do not depend on how many steps are looked at together.
    """

    states: dict[bytes, int] = field(default_factory=dict)
    coordinates: dict[tuple[int, int], int] = field(default_factory=dict)  # (state, action) → number, from 1
    pairs: dict[int, int] = field(default_factory=dict)  # two coordinates as one number → place, from 1

    def number(self, keys: Ints, actions: Ints) -> tuple[Ints, list[int]]:
        """The numbers of coordinates given as ``[N, 2]`` names of states and ``[N]`` actions, NOWHERE where it is over.

        Beside them, at which of the N each new state was first seen.
        """
        known = len(self.states)
        rows = np.concatenate([keys, actions[:, None]], axis=1)
        kinds, first, where = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        numbers, news = np.zeros(len(kinds), dtype=np.int64), list[int]()
        for i in np.argsort(first):
            action = int(kinds[i, 2])
            if action == NOWHERE:
                numbers[i] = OVER
                continue
            state = self.states.setdefault(name(kinds[i, :2]), len(self.states))
            if state == len(news) + known:
                news.append(int(first[i]))
            numbers[i] = self.coordinates.setdefault((state, action), len(self.coordinates) + 1)
        return numbers[where.reshape(-1)], news

    def places(self, x: Ints, y: Ints) -> Ints:
        """Where pairs of coordinates ``[N]`` are stored."""
        codes, first, where = np.unique(_code(x, y), return_index=True, return_inverse=True)
        is_over = ((codes >> BITS) == OVER) | ((codes & MASK) == OVER)
        found = np.zeros(len(codes), dtype=np.int64)
        for i in np.argsort(first):
            found[i] = OVER if is_over[i] else self.pairs.setdefault(int(codes[i]), len(self.pairs) + 1)
        return found[where.reshape(-1)]

    def place(self, x: int, y: int) -> int | None:
        """Where a pair of coordinates is stored, if it was seen."""
        return self.pairs.get((x << BITS) | y)

    def seen_pairs(self) -> list[tuple[int, int]]:
        """All pairs that were seen, in the order of their places."""
        return [(code >> BITS, code & MASK) for code in self.pairs]

    def copy(self) -> DiscoveredStates:
        """As it is now."""
        return DiscoveredStates(dict(self.states), dict(self.coordinates), dict(self.pairs))

    def arrays(self) -> dict[str, Ints]:
        """As arrays of whole numbers, in order of discovery."""
        keys = np.frombuffer(b"".join(self.states), dtype="<i8").reshape(-1, 2)
        return {
            "states": keys.astype(np.int64),
            "coordinates": np.array(list(self.coordinates), dtype=np.int64).reshape(-1, 2),
            "pairs": np.array(self.seen_pairs(), dtype=np.int64).reshape(-1, 2),
        }

    @classmethod
    def of(cls, arrays: Mapping[str, Any]) -> DiscoveredStates:
        """From `arrays`."""
        keys = [name(row) for row in arrays["states"]]
        codes = _code(arrays["pairs"][:, 0], arrays["pairs"][:, 1])
        return cls(
            {key: i for i, key in enumerate(keys)},
            {(int(s), int(a)): i + 1 for i, (s, a) in enumerate(arrays["coordinates"])},
            {int(code): i + 1 for i, code in enumerate(codes)},
        )


def name(key: Ints) -> bytes:
    """The 16 bytes of a state, from two numbers."""
    return key.astype("<i8").tobytes()


def _code(x: Ints, y: Ints) -> Ints:
    return (x.astype(np.int64) << BITS) | y.astype(np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class LearnedStates(PairAnswers):
    """Moments of the returns of the states of a simulator that were discovered."""

    simulator: Simulator = field(kw_only=True)
    reward_bound: float = field(kw_only=True)
    _atlas: DiscoveredStates = field(kw_only=True)
    _means: Replicas = field(kw_only=True)  # [coordinates]
    _pairs: Replicas = field(kw_only=True)  # [K, pairs]
    _visits: tuple[Ints, Ints] = field(kw_only=True)

    def __repr__(self) -> str:
        found = f"{len(self._atlas.states):,} states discovered"
        return f"LearnedStates({self.simulator.name}, {found}, {self._words()}, error {self.error:.3g})"

    @property
    def num_states(self) -> int:
        """How many states were discovered."""
        return len(self._atlas.states)

    @property
    def error(self) -> float:
        """The largest error among coordinates that every replica has updated, in the norm ‖·‖_λ."""
        weight = norm_weight(self.reward_bound, self.simulator.discount)
        seen = [(part > 0).all(axis=0) for part in self._visits]
        found = [0.0, *self._means[seen[0]].error]
        for k, (i, j) in enumerate(powers(self.order)):
            found += list(self._pairs[k, seen[1]].error / weight ** (i + j - 1))
        return float(max(found))

    def _mean(self, state: Snapshot, action: Any) -> Replicas:
        return self._means[self._number(state, action)]

    def _labels(self, state: Snapshot, *actions: Any) -> list[str]:
        place = self.simulator.snapshot(state)
        return [self.simulator.action_label(self.simulator.action_index(action, place)) for action in actions]

    def _pair(self, state: Snapshot, action: Any, other: Any) -> tuple[LearnedMoments, int, int]:
        numbers = [self._number(state, each) for each in (action, other)]
        distinct = list(dict.fromkeys(numbers))
        places = np.array([[self._place(x, y) for y in distinct] for x in distinct])
        held = LearnedMoments(self.order, self.sharing, self._means[np.array(distinct)], self._pairs[:, places])
        return held, 0, distinct.index(numbers[1])

    @property
    def visits(self) -> list[BlockVisits]:
        """How often discovered coordinates were updated, by kind; pairs are those that some branches were seen at."""
        mean, pair = (part.min(axis=0) for part in self._visits)
        numbers = np.array(list(self._atlas.coordinates.values()), dtype=np.int64)
        label = self.simulator.action_label
        names = {number: f"(state {s}, {label(a)})" for (s, a), number in self._atlas.coordinates.items()}
        home = {number: s for (s, _), number in self._atlas.coordinates.items()}
        found = [block_visits("mean", mean[numbers], numbers[:, None], names.__getitem__)]
        kinds: dict[str, list[tuple[int, int]]] = {"diagonal": [], "same state": [], "distinct states": []}
        for x, y in self._atlas.seen_pairs():
            kinds["diagonal" if x == y else "same state" if home[x] == home[y] else "distinct states"].append((x, y))
        for kind, members in kinds.items():
            if members:
                places = np.array([self._atlas.place(*member) for member in members])
                found.append(block_visits(kind, pair[places], np.array(members), names.__getitem__))
        return found

    def _number(self, state: Snapshot, action: Any) -> int:
        place = self.simulator.snapshot(state)
        a = self.simulator.action_index(action, place)
        s = self._atlas.states.get(state_key(self.simulator, place))
        number = None if s is None else self._atlas.coordinates.get((s, int(a)))
        if number is None:
            raise ModelError(
                f"{self.simulator.action_label(a)} in this state of {self.simulator.name} has not been visited; "
                f"{self.num_states:,} states were"
            )
        return number

    def _place(self, x: int, y: int) -> int:
        place = self._atlas.place(x, y)
        if place is None:
            raise ModelError(f"this pair of coordinates of {self.simulator.name} has not been visited")
        return place
