"""Draws from a simulator: where walkers go, and the joint outcome of the coordinates that they list.

A *lane* is one list of coordinates of one replica; walkers move it along. Which randomness is shared stands in the
addresses of the noise alone: luck is addressed by the step and lane under ``"time"``, by the state too under
``"state"``, by the coordinate under ``"none"``; next actions always by the coordinate. So a coordinate that is listed
twice has one outcome and one next action, and every walker can be followed without the others: tasks may be done
anywhere, and a walker is found again from the step at which it last began.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from jointmdp.checks import Floats, Ints
from jointmdp.errors import ModelError
from jointmdp.incremental.worlds import Choice
from jointmdp.simulators.agents import Agent
from jointmdp.simulators.fingerprints import fingerprint
from jointmdp.simulators.noise import Noise
from jointmdp.simulators.simulator import Action, Outcome, Simulator, Snapshot

KEY = 16  # bytes that name a state
NOWHERE = -1  # the action of a state that is over


class Place(NamedTuple):
    """A coordinate: a state with the bytes that name it, and an action."""

    state: Snapshot
    key: bytes
    action: Action


class Walker(NamedTuple):
    """Where a walker stands, and the step at which it began."""

    since: int
    places: tuple[Place, ...]


class Part(NamedTuple):
    """What one walker adds to a list: coordinates, their rewards and next coordinates, and where it stands then."""

    places: list[Place]
    rewards: list[float]
    nexts: list[Place]
    walker: Walker | None


class Picks(NamedTuple):
    """How many coordinates were known when a stretch began, and those of them that a task will ask for."""

    size: int
    chosen: Mapping[int, Place]


@dataclass(frozen=True)
class Stretch:
    """A task: some steps of some lanes, numbered through all replicas."""

    first: int
    count: int
    lanes: range
    walkers: Sequence[Sequence[Walker | None]]
    picks: Picks = field(default_factory=lambda: Picks(0, {}))

    def __repr__(self) -> str:
        steps = f"steps {self.first} to {self.first + self.count - 1}"
        return f"{steps} of lists {self.lanes.start} to {self.lanes.stop - 1}"


class Steps(NamedTuple):
    """What a stretch brought, ``[T, L, m]``; the second half of each last axis but that of rewards are the nexts."""

    keys: Ints  # [T, L, 2m, 2]: 16 bytes as two numbers
    actions: Ints  # [T, L, 2m]
    rewards: Floats  # [T, L, m]
    walkers: list[list[Walker | None]]


class Walks:
    """Stretches of walks on a simulator; the same whoever calls it."""

    def __init__(self, simulator: Simulator, agent: Agent, choice: Choice, seed: int, restart: float) -> None:
        self.simulator, self.agent, self.choice = simulator, agent, choice
        self.seed, self.restart = seed, restart
        self.walkers = 1 if choice == "pairs" else 2  # of a lane

    @property
    def length(self) -> int:
        """m, how many coordinates a list names."""
        assert self.simulator.action_names is not None
        return 2 * len(self.simulator.action_names) if self.choice == "trajectory" else 2

    def __call__(self, stretch: Stretch) -> Steps:
        shape, m = (stretch.count, len(stretch.lanes)), self.length
        names = bytearray()
        actions, rewards = np.zeros((*shape, 2 * m), dtype=np.int64), np.zeros((*shape, m))
        standing = [list(walkers) for walkers in stretch.walkers]
        for t in range(stretch.count):
            for i, lane in enumerate(stretch.lanes):
                step = stretch.first + t
                parts = [self.part(step, lane, w, standing[i][w], stretch.picks) for w in range(self.walkers)]
                standing[i] = [part.walker for part in parts]
                places = [place for part in parts for place in part.places]
                places += [place for part in parts for place in part.nexts]
                names += b"".join(place.key for place in places)
                actions[t, i] = [place.action for place in places]
                rewards[t, i] = [reward for part in parts for reward in part.rewards]
        keys = np.frombuffer(bytes(names), dtype="<i8").reshape(*shape, 2 * m, 2)
        return Steps(keys, actions, rewards, standing)

    def found_again(self, lane: int, w: int, since: int, step: int) -> Walker | None:
        """A walker that began at the step `since`, as it stands before `step`."""
        walker = None
        for k in range(since, step):
            walker = self.part(k, lane, w, walker).walker
        return walker

    # -- one walker, one step ------------------------------------------------------------------------------------

    def part(self, step: int, lane: int, w: int, walker: Walker | None, picks: Picks | None = None) -> Part:
        """What walker w of a lane adds to the list of a step, and where it stands then."""
        if self.choice == "uniform":
            number = self.pick(step, lane, w, 0 if picks is None else picks.size)
            place = self._begun(step, lane, w, 1)[0] if picks is None or number < 0 else picks.chosen[number]
            return self._drawn(step, lane, [place], None)
        if walker is None or self._noise("restart", step, lane, w).uniform < self.restart:
            walker = Walker(step, self._begun(step, lane, w, 2 if self.choice == "pairs" else 1))
        if self.choice == "pairs":
            part = self._drawn(step, lane, list(walker.places), walker)
            # One branch goes on alone where the other is over.
            alive = [place for place in part.nexts if place.action != NOWHERE]
            return part._replace(walker=Walker(walker.since, (alive[0], alive[-1])) if alive else None)
        (here,) = walker.places
        actions = [int(action) for action in self.simulator.available(here.state)]
        chosen = self.agent(here.state, self._noise("taken", step, lane, w))
        taken = actions.index(int(self.simulator.action_index(chosen, here.state)))
        part = self._drawn(step, lane, [here._replace(action=action) for action in actions], walker)
        there = part.nexts[taken]
        after = None if there.action == NOWHERE else Walker(walker.since, (there,))
        # Lists have one length: where an action is not available the first one stands again.
        missing = self.length // 2 - len(actions)
        padded = [each + each[:1] * missing for each in (part.places, part.rewards, part.nexts)]
        return Part(padded[0], padded[1], padded[2], after)  # type: ignore[arg-type]

    def pick(self, step: int, lane: int, w: int, size: int) -> int:
        """Which of `size` known coordinates a uniform choice falls on; −1: one of a starting state."""
        if size == 0 or self._noise("restart", step, lane, w).uniform < self.restart:
            return -1
        return int(self._noise("pick", step, lane, w).uniform * size)

    def _begun(self, step: int, lane: int, w: int, count: int) -> tuple[Place, ...]:
        """Coordinates of one starting state."""
        state = self.started(step, lane, w)
        if self.simulator.is_over(state):
            raise ModelError(f"{self.simulator.name} starts in a state that is over; there is nothing to learn")
        actions, key = self.simulator.available(state), state_key(self.simulator, state)
        uniforms = [self._noise("first", step, lane, w, branch).uniform for branch in range(count)]
        return tuple(Place(state, key, int(actions[int(uniform * len(actions))])) for uniform in uniforms)

    def started(self, step: int, lane: int, w: int) -> Snapshot:
        """The starting state of a walker that begins."""
        return self.simulator.start(self._noise("start", step, lane, w))

    def outcomes(self, step: int, lane: int, state: Snapshot, key: bytes, actions: Sequence[Action]) -> list[Outcome]:
        """What actions bring in a state at a step: the luck that the model's sharing says."""
        sharing = self.simulator.sharing
        if sharing == "none":
            noises = [self._noise("noise", step, lane, key, action) for action in actions]
            return [self.simulator.query(state, [a], noise)[0] for a, noise in zip(actions, noises, strict=True)]
        noise = self._noise("noise", step, lane) if sharing == "time" else self._noise("noise", step, lane, key)
        return self.simulator.query(state, actions, noise)

    def _drawn(self, step: int, lane: int, places: list[Place], walker: Walker | None) -> Part:
        """The joint outcome of coordinates, and where it leads: one draw for what is one."""
        found: dict[tuple[bytes, Action], tuple[float, Place]] = {}
        states: dict[bytes, Snapshot] = {}
        for place in places:
            states.setdefault(place.key, place.state)
        for key, state in states.items():
            actions = list(dict.fromkeys(place.action for place in places if place.key == key))
            for action, outcome in zip(actions, self.outcomes(step, lane, state, key, actions), strict=True):
                after = self._next(outcome.state, self._noise("policy", step, lane, key, action))
                found[key, action] = float(outcome.reward), after
        drawn = [found[place.key, place.action] for place in places]
        return Part(places, [reward for reward, _ in drawn], [after for _, after in drawn], walker)

    def _next(self, state: Snapshot, noise: Noise) -> Place:
        if self.simulator.is_over(state):
            return Place(state, bytes(KEY), NOWHERE)
        return Place(state, state_key(self.simulator, state), int(self.agent(state, noise)))

    def _noise(self, word: str, *where: int | bytes) -> Noise:
        return Noise("incremental", word, self.seed, *where)


def state_key(simulator: Simulator, state: Snapshot) -> bytes:
    """16 bytes that name a state; identities may be anything that can be hashed."""
    return fingerprint(simulator.identity(state))
