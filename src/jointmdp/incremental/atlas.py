"""What is known of a simulator's states: those discovered so far, and what has been learned of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jointmdp.certificates import norm_weight
from jointmdp.checks import Ints
from jointmdp.errors import ModelError
from jointmdp.incremental.answers import BlockVisits, Progress, block_visits
from jointmdp.incremental.backups import powers
from jointmdp.incremental.replicas import Estimate, Held, LearnedGap, Replicas, gap
from jointmdp.simulators.fingerprints import fingerprint
from jointmdp.simulators.simulator import Simulator, Snapshot

OVER = 0  # number of the coordinate that pays nothing any more, and of every pair with it


@dataclass
class Atlas:
    """What has been discovered: states by the fingerprint of their identity, coordinates, and pairs of these."""

    states: dict[bytes, int] = field(default_factory=dict)
    coordinates: dict[tuple[int, int], int] = field(default_factory=dict)  # (state, action) → number, from 1
    pairs: dict[tuple[int, int], int] = field(default_factory=dict)  # coordinates → place, from 1

    def state(self, simulator: Simulator, state: Snapshot) -> int:
        """The number of a state, a new one for a new state."""
        return self.states.setdefault(state_key(simulator, state), len(self.states))

    def coordinate(self, state: int, action: int) -> int:
        """The number of a coordinate, a new one for a new coordinate."""
        return self.coordinates.setdefault((state, int(action)), len(self.coordinates) + 1)

    def copy(self) -> Atlas:
        """As it is now."""
        return Atlas(dict(self.states), dict(self.coordinates), dict(self.pairs))

    def pair(self, x: int, y: int) -> int:
        """The place of a pair of coordinates, a new one for a new pair."""
        if x == OVER or y == OVER:
            return OVER
        return self.pairs.setdefault((x, y), len(self.pairs) + 1)

    def arrays(self) -> dict[str, Ints]:
        """As arrays of whole numbers, in order of discovery."""
        keys = np.frombuffer(b"".join(self.states), dtype="<i8").reshape(-1, 2)
        return {
            "states": keys.astype(np.int64),
            "coordinates": np.array(list(self.coordinates), dtype=np.int64).reshape(-1, 2),
            "pairs": np.array(list(self.pairs), dtype=np.int64).reshape(-1, 2),
        }

    @classmethod
    def of(cls, arrays: dict[str, Any]) -> Atlas:
        """From `arrays`."""
        keys = [row.astype("<i8").tobytes() for row in arrays["states"]]
        return cls(
            {key: i for i, key in enumerate(keys)},
            {(int(s), int(a)): i + 1 for i, (s, a) in enumerate(arrays["coordinates"])},
            {(int(x), int(y)): i + 1 for i, (x, y) in enumerate(arrays["pairs"])},
        )


def state_key(simulator: Simulator, state: Snapshot) -> bytes:
    """16 bytes that name a state; identities may be anything that can be hashed."""
    return fingerprint(simulator.identity(state))


@dataclass(frozen=True, eq=False, repr=False)
class LearnedStates(Progress):
    """Moments of the returns of the states of a simulator that were discovered."""

    simulator: Simulator = field(kw_only=True)
    reward_bound: float = field(kw_only=True)
    _atlas: Atlas = field(kw_only=True)
    _mean: Replicas = field(kw_only=True)  # [coordinates]
    _pair: Replicas = field(kw_only=True)  # [K, pairs]
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
        found = [0.0, *self._mean[seen[0]].error]
        for k, (i, j) in enumerate(powers(self.order)):
            found += list(self._pair[k, seen[1]].error / weight ** (i + j - 1))
        return float(max(found))

    def mean(self, state: Snapshot, action: Any) -> Estimate:
        """E Z of an action in a discovered state, given as a snapshot."""
        return self._mean[self._number(state, action)].estimate

    def second_moment(self, state: Snapshot, action: Any, other: Any) -> Estimate:
        """E[Z(state, action) Z(state, other)]."""
        held, x, y = self._local(state, action, other)
        return held.at(1, 1, x, y).estimate

    def gap(self, state: Snapshot, action: Any, other: Any) -> LearnedGap:
        """``Z(state, action) − Z(state, other)``: mean and variance with their errors."""
        a, b = (self.simulator.action_index(each, state) for each in (action, other))
        labels = (self.simulator.action_label(a), self.simulator.action_label(b))
        return gap(labels, *self._local(state, action, other))

    def _local(self, state: Snapshot, action: Any, other: Any) -> tuple[Held, int, int]:
        """The moments of two coordinates by themselves, and their numbers among these."""
        numbers = [self._number(state, each) for each in (action, other)]
        distinct = list(dict.fromkeys(numbers))
        places = np.array([[self._place(x, y) for y in distinct] for x in distinct])
        held = Held(self.order, self.sharing, self._mean[np.array(distinct)], self._pair[:, places])
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
        for x, y in self._atlas.pairs:
            kinds["diagonal" if x == y else "same state" if home[x] == home[y] else "distinct states"].append((x, y))
        for kind, members in kinds.items():
            if members:
                places = np.array([self._atlas.pairs[member] for member in members])
                found.append(block_visits(kind, pair[places], np.array(members), names.__getitem__))
        return found

    def _number(self, state: Snapshot, action: Any) -> int:
        a = self.simulator.action_index(action, state)
        s = self._atlas.states.get(state_key(self.simulator, state))
        number = None if s is None else self._atlas.coordinates.get((s, int(a)))
        if number is None:
            raise ModelError(
                f"{self.simulator.action_label(a)} in this state of {self.simulator.name} has not been visited; "
                f"{self.num_states:,} states were"
            )
        return number

    def _place(self, x: int, y: int) -> int:
        place = self._atlas.pairs.get((x, y))
        if place is None:
            raise ModelError(f"this pair of coordinates of {self.simulator.name} has not been visited")
        return place
