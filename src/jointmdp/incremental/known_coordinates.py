"""The coordinates among which a uniform choice picks: all actions of the states that are known.

Of a state only its number is written down, and where it came from: a starting state, or what an action brought there or
in a state known before. The noise of every step has an address, so the snapshot can be made again by one query, by this
process or by the one that takes the run up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from jointmdp.arrays import Ints
from jointmdp.incremental.discovered_states import DiscoveredStates, name
from jointmdp.incremental.simulator_walks import NOWHERE, Coordinate, Picks, Walks, state_key
from jointmdp.simulators.simulator import Snapshot

BEGINNING = -1  # in place of a number: the starting state of this walker at this step


class Origin(NamedTuple):
    """How a state was first reached: what `action` brought in a state, at a step of a lane's walker."""

    parent: int
    action: int  # NOWHERE: it is the parent itself
    step: int
    lane: int
    walker: int


class KnownCoordinates:
    """Known coordinates; empty, and without a cost, where coordinates are not chosen uniformly."""

    def __init__(self, walk: Walks) -> None:
        self.walks = walk
        self.known = 0  # states that are open to choice
        self.origins: list[Origin] = []
        self._keys: list[bytes] = []
        self._snapshots: list[Snapshot] = []
        self._places: list[Coordinate] = []

    @property
    def _is_used(self) -> bool:
        return self.walks.choice == "uniform"

    def open(self, states: int) -> None:
        """Let the first so many states be chosen from now on."""
        if not self._is_used:
            return
        self.known = states
        simulator = self.walks.simulator
        for number in range(len(self._snapshots), states):
            state, key = self._made(number), self._keys[number]
            self._snapshots.append(state)
            self._places += [Coordinate(state, key, int(action)) for action in simulator.available(state)]

    def _made(self, number: int) -> Snapshot:
        parent, action, step, lane, w = self.origins[number]
        state = self.walks.started(step, lane, w) if parent == BEGINNING else self._snapshots[parent]
        if action == NOWHERE:
            return state
        (outcome,) = self.walks.outcomes("", step, lane, state, state_key(self.walks.simulator, state), [action])
        return outcome.state

    def asked(self, first: int, count: int, lanes: range) -> Picks:
        """What a task will ask for."""
        size = len(self._places)
        if not size:
            return Picks(0, {})
        steps = range(first, first + count)
        picks = {self.walks.pick(k, lane, w, size) for k in steps for lane in lanes for w in range(self.walks.walkers)}
        return Picks(size, {i: self._places[i] for i in sorted(picks) if i >= 0})

    def note(self, atlas: DiscoveredStates, first: int, keys: Ints, actions: Ints, news: list[int]) -> None:
        """Where the states that some steps discovered came from; `news` are their places in ``actions[T, L, 2m]``."""
        if not self._is_used:
            return
        for t, lane, p in zip(*np.unravel_index(np.array(news, dtype=np.intp), actions.shape), strict=True):
            w, step = int(p) % self.walks.length, first + int(t)  # each walker lists one coordinate
            # Snapshots of one identity may differ: a walker that began stood at its own, not at that of the number.
            has_begun = self.walks.pick(step, int(lane), w, len(self._places)) < 0
            parent = BEGINNING if has_begun else atlas.states[name(keys[t, lane, w])]
            action = int(actions[t, lane, w]) if p >= self.walks.length else NOWHERE
            self.origins.append(Origin(parent, action, step, int(lane), w))
            self._keys.append(name(keys[t, lane, p]))

    def arrays(self) -> dict[str, Ints]:
        """As arrays of whole numbers."""
        origins = np.array(self.origins, dtype=np.int64).reshape(-1, len(Origin._fields))
        return {"origins": origins, "known": np.array([self.known], dtype=np.int64)}

    @classmethod
    def of(cls, walk: Walks, arrays: Mapping[str, Ints], keys: list[bytes]) -> KnownCoordinates:
        """From `arrays`; `keys` name the states."""
        found = cls(walk)
        found.origins = [Origin(*row) for row in arrays["origins"].tolist()]
        found._keys = keys[: len(found.origins)]
        found.open(int(arrays["known"][0]))
        return found
