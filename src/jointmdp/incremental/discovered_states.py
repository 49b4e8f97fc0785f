"""What has been discovered of a simulator: its states, their coordinates and pairs of these, and how to get back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jointmdp.arrays import Ints
from jointmdp.incremental.simulator_walks import NOWHERE, Coordinate, Picks, Walks, state_key
from jointmdp.simulators.simulator import Snapshot

OVER = 0  # number of the coordinate that pays nothing any more, and of every pair with it
BITS = 31  # of the number of a coordinate
MASK = (1 << BITS) - 1
BEGINNING = -1  # in place of a number: the starting state of this walker at this step


@dataclass
class DiscoveredStates:
    """What has been discovered: states by the fingerprint of their identity, coordinates, and pairs of these.

    Numbers are given in the order of discovery, so that they do not depend on how many steps are looked at together.
    """

    states: dict[bytes, int] = field(default_factory=dict)
    coordinates: dict[tuple[int, int], int] = field(default_factory=dict)  # (state, action) → number, from 1
    pairs: dict[int, int] = field(default_factory=dict)  # two coordinates as one number → place, from 1

    def number(self, keys: NDArray[Any], actions: Ints) -> tuple[NDArray[np.int32], list[int]]:
        """The numbers of coordinates given as names of states and actions, NOWHERE where it is over.

        Beside them, at which of them each new state was first seen.
        """
        numbers, news = [], []
        for i, (key, action) in enumerate(zip(keys.ravel().tolist(), actions.ravel().tolist(), strict=True)):
            if action == NOWHERE:
                numbers.append(OVER)
                continue
            if key not in self.states:
                self.states[key] = len(self.states)
                news.append(i)
            numbers.append(self.coordinates.setdefault((self.states[key], action), len(self.coordinates) + 1))
        return np.array(numbers, dtype=np.int32), news

    def places(self, x: NDArray[Any], y: NDArray[Any]) -> Ints:
        """Where pairs of coordinates are stored; the two arrays are broadcast."""
        every = _code(x, y)
        codes, first, where = np.unique(every, return_index=True, return_inverse=True)
        is_over = ((codes >> BITS) == OVER) | ((codes & MASK) == OVER)
        found = np.full(len(codes), OVER, dtype=np.int64)
        for i in np.argsort(first):
            if not is_over[i]:
                found[i] = self.pairs.setdefault(int(codes[i]), len(self.pairs) + 1)
        return found[where.reshape(every.shape)]

    def place(self, x: int, y: int) -> int | None:
        """Where a pair of coordinates is stored, if it was seen."""
        return self.pairs.get((x << BITS) | y)

    def seen_pairs(self) -> Ints:
        """All pairs that were seen, ``[N, 2]``, in the order of their places."""
        codes = np.array(list(self.pairs), dtype=np.int64)
        return np.stack([codes >> BITS, codes & MASK], axis=1)

    def copy(self) -> DiscoveredStates:
        """As it is now."""
        return DiscoveredStates(dict(self.states), dict(self.coordinates), dict(self.pairs))

    def arrays(self) -> dict[str, Ints]:
        """As arrays of whole numbers, in order of discovery."""
        return {
            "states": np.frombuffer(b"".join(self.states), dtype="<i8").reshape(-1, 2).astype(np.int64),
            "coordinates": np.array(list(self.coordinates), dtype=np.int64).reshape(-1, 2),
            "pairs": self.seen_pairs(),
        }

    @classmethod
    def of(cls, arrays: Mapping[str, Any]) -> DiscoveredStates:
        """From `arrays`."""
        codes = _code(arrays["pairs"][:, 0], arrays["pairs"][:, 1])
        return cls(
            {row.astype("<i8").tobytes(): i for i, row in enumerate(arrays["states"])},
            {(int(s), int(a)): i + 1 for i, (s, a) in enumerate(arrays["coordinates"])},
            {int(code): i + 1 for i, code in enumerate(codes)},
        )


def _code(x: NDArray[Any], y: NDArray[Any]) -> Ints:
    return (x.astype(np.int64) << BITS) | y.astype(np.int64)


class KnownCoordinates:
    """The coordinates among which a uniform choice picks: all actions of the states that are known.

    A checkpoint holds how each state was first reached, not its snapshot. The noise of every step has an address, so
    one query makes the snapshot again, in this process or in the one that continues the run. Other choices leave it
    empty.
    """

    def __init__(self, walks: Walks) -> None:
        self.walks = walks
        self.known = 0  # states that are open to choice
        # Parent state or BEGINNING, action or NOWHERE (the parent itself), and the step, lane and walker of the move.
        self.origins: list[tuple[int, int, int, int, int]] = []
        self._snapshots: list[Snapshot] = []
        self._places: list[Coordinate] = []

    def open(self, keys: Sequence[bytes]) -> None:
        """Let the states with these names, in the order of discovery, be chosen from now on."""
        self.known = len(keys)
        for number, key in enumerate(keys[len(self._snapshots) :], len(self._snapshots)):
            state = self._made(number)
            self._snapshots.append(state)
            self._places += [Coordinate(state, key, int(a)) for a in self.walks.simulator.available(state)]

    def _made(self, number: int) -> Snapshot:
        parent, action, step, lane, w = self.origins[number]
        state = self.walks.started(step, lane, w) if parent == BEGINNING else self._snapshots[parent]
        if action == NOWHERE:
            return state
        (outcome,) = self.walks.outcomes("", step, lane, state, state_key(self.walks.simulator, state), [action])
        return outcome.state

    def picks(self, steps: range, lanes: range) -> Picks:
        """What a task will pick; starting states are left out."""
        size = len(self._places)
        if not size:
            return {}
        asked = [(step, lane, w) for step in steps for lane in lanes for w in range(self.walks.walkers)]
        return {at: self._places[i] for at in asked if (i := self.walks.pick(*at, size)) >= 0}

    def note(self, found: DiscoveredStates, first: int, keys: NDArray[Any], actions: Ints, news: list[int]) -> None:
        """Where the states that some steps discovered came from; `news` are their places in ``actions[T, L, 2m]``."""
        for t, lane, p in zip(*np.unravel_index(np.array(news, dtype=np.intp), actions.shape), strict=True):
            w, step = int(p) % self.walks.length, first + int(t)  # each walker lists one coordinate
            # Snapshots of one identity may differ: a walker that began stood at its own, not at that of the number.
            has_begun = self.walks.pick(step, int(lane), w, len(self._places)) < 0
            parent = BEGINNING if has_begun else found.states[keys[t, lane, w].tobytes()]
            action = int(actions[t, lane, w]) if p >= self.walks.length else NOWHERE
            self.origins.append((parent, action, step, int(lane), w))

    def arrays(self) -> dict[str, Ints]:
        """As arrays of whole numbers."""
        origins = np.array(self.origins, dtype=np.int64).reshape(-1, 5)
        return {"origins": origins, "known": np.array([self.known], dtype=np.int64)}

    @classmethod
    def of(cls, walks: Walks, arrays: Mapping[str, Ints], keys: Sequence[bytes]) -> KnownCoordinates:
        """From `arrays`; `keys` name the states."""
        found = cls(walks)
        found.origins = [(p, a, step, lane, w) for p, a, step, lane, w in arrays["origins"].tolist()]
        found.open(keys[: int(arrays["known"][0])])
        return found
