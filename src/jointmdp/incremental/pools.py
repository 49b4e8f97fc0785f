"""The coordinates among which a uniform choice picks: all actions of the states that are known.

Of a state only its number is written down, and where it came from: a starting state, or what an action brought in a
state known before. The noise of every step has an address, so the snapshot can be made again by one query, by this
process or by the one that takes the run up.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from jointmdp.checks import Ints
from jointmdp.incremental.atlas import Atlas, name
from jointmdp.incremental.walks import Picks, Place, Steps, Walks
from jointmdp.simulators.simulator import Snapshot

BEGINNING = -1  # in place of the state that a starting state came from


class Pool:
    """Known coordinates; empty, and without a cost, where coordinates are not chosen uniformly."""

    def __init__(self, walk: Walks) -> None:
        self.walks = walk
        self.known = 0  # states that are open to choice
        self.origins: list[tuple[int, int, int, int]] = []  # of each state: parent, action or walker, step, lane
        self._keys: list[bytes] = []
        self._snapshots: list[Snapshot] = []
        self._places: list[Place] = []

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
            self._places += [Place(state, key, int(action)) for action in simulator.available(state)]

    def _made(self, number: int) -> Snapshot:
        parent, action, step, lane = self.origins[number]
        if parent == BEGINNING:
            return self.walks.started(step, lane, action)
        (outcome,) = self.walks.outcomes("", step, lane, self._snapshots[parent], self._keys[parent], [action])
        return outcome.state

    def asked(self, first: int, count: int, lanes: range) -> Picks:
        """What a task will ask for."""
        size = len(self._places)
        if not size:
            return Picks(0, {})
        steps = range(first, first + count)
        picks = {self.walks.pick(k, lane, w, size) for k in steps for lane in lanes for w in range(self.walks.walkers)}
        return Picks(size, {i: self._places[i] for i in sorted(picks) if i >= 0})

    def note(self, atlas: Atlas, first: int, steps: Steps, news: list[int]) -> None:
        """Where the states that these steps discovered came from; `news` are their places in ``steps.actions``."""
        if not self._is_used:
            return
        m = self.walks.length
        for t, lane, p in zip(*np.unravel_index(np.array(news, dtype=np.intp), steps.actions.shape), strict=True):
            if p < m:  # a list names what is known, or else starting states
                self.origins.append((BEGINNING, int(p), first + int(t), int(lane)))
            else:
                parent = atlas.states[name(steps.keys[t, lane, p - m])]
                self.origins.append((parent, int(steps.actions[t, lane, p - m]), first + int(t), int(lane)))
            self._keys.append(name(steps.keys[t, lane, p]))

    def arrays(self) -> dict[str, Ints]:
        """As arrays of whole numbers."""
        origins = np.array(self.origins, dtype=np.int64).reshape(-1, 4)
        return {"origins": origins, "known": np.array([self.known], dtype=np.int64)}

    @classmethod
    def of(cls, walk: Walks, arrays: Mapping[str, Ints], keys: list[bytes]) -> Pool:
        """From `arrays`; `keys` name the states."""
        found = cls(walk)
        found.origins = [tuple(row) for row in arrays["origins"].tolist()]
        found._keys = keys[: len(found.origins)]
        found.open(int(arrays["known"][0]))
        return found
