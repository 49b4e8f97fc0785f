"""Draws from a simulator: where walkers go, and the joint outcome of the coordinates that they list.

A *lane* is one list of coordinates of one replica; walkers move it along. Which randomness is shared stands in the
addresses of the noise alone: luck is addressed by the step and lane under ``"time"``, by the state too under
``"state"``, by the coordinate under ``"none"``; next actions always by the coordinate. So a coordinate that is listed
twice has one outcome and one next action, and every walker can be followed without the others: tasks may be done
anywhere, and a walker is found again from the step at which it last began.

Walkers move by draws of their own. If they followed those that the updates use, which coordinates come next would
depend on the noise, and all replicas would be off in the same direction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from jointmdp.arrays import Floats, Ints
from jointmdp.errors import ModelError
from jointmdp.incremental.table_draws import Choice
from jointmdp.simulators.agents import Agent
from jointmdp.simulators.fingerprints import fingerprint
from jointmdp.simulators.noise import Noise
from jointmdp.simulators.simulator import Action, Outcome, Simulator, Snapshot

KEY = 16  # bytes that name a state
NOWHERE = -1  # the action of a state that is over


class Coordinate(NamedTuple):
    """A coordinate: a state with the bytes that name it, and an action."""

    state: Snapshot
    key: bytes
    action: Action


class Walker(NamedTuple):
    """Where a walker stands, with the actions that it will take, and the step at which it began."""

    since: int
    places: tuple[Coordinate, ...]


class Part(NamedTuple):
    """What one walker adds to a list: coordinates, their rewards and next coordinates."""

    places: list[Coordinate]
    rewards: list[float]
    nexts: list[Coordinate]


class Picks(NamedTuple):
    """How many coordinates were known when a stretch began, and those of them that a task will ask for."""

    size: int
    chosen: Mapping[int, Coordinate]


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


class Walked(NamedTuple):
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

    def __call__(self, stretch: Stretch) -> Walked:
        shape, m = (stretch.count, len(stretch.lanes)), self.length
        names = bytearray()
        actions, rewards = np.zeros((*shape, 2 * m), dtype=np.int64), np.zeros((*shape, m))
        standing = [list(walkers) for walkers in stretch.walkers]
        for t in range(stretch.count):
            for i, lane in enumerate(stretch.lanes):
                step = stretch.first + t
                here = [self.here(step, lane, w, standing[i][w], stretch.picks) for w in range(self.walkers)]
                parts = [self._part(step, lane, walker) for walker in here]
                standing[i] = [self._moved(step, lane, w, walker) for w, walker in enumerate(here)]
                places = [place for part in parts for place in part.places]
                places += [place for part in parts for place in part.nexts]
                names += b"".join(place.key for place in places)
                actions[t, i] = [place.action for place in places]
                rewards[t, i] = [reward for part in parts for reward in part.rewards]
        keys = np.frombuffer(bytes(names), dtype="<i8").reshape(*shape, 2 * m, 2)
        return Walked(keys, actions, rewards, standing)

    def found_again(self, lane: int, w: int, since: int, step: int) -> Walker | None:
        """A walker that began at the step `since`, as it stands before `step`."""
        walker = None
        for k in range(since, step):
            walker = self._moved(k, lane, w, self.here(k, lane, w, walker))
        return walker

    # -- one walker, one step ------------------------------------------------------------------------------------

    def here(self, step: int, lane: int, w: int, walker: Walker | None, picks: Picks | None = None) -> Walker:
        """Where walker w of a lane stands in a step: where it came to, or at a new beginning."""
        if self.choice == "uniform":
            number = -1 if picks is None else self.pick(step, lane, w, picks.size)
            return Walker(
                step, self._begun(step, lane, w, 1) if number < 0 or picks is None else (picks.chosen[number],)
            )
        if walker is None or self._noise("restart", step, lane, w).uniform < self.restart:
            return Walker(step, self._begun(step, lane, w, 2 if self.choice == "pairs" else 1))
        return walker

    def _part(self, step: int, lane: int, walker: Walker) -> Part:
        """What a walker adds to the list of a step: where it stands, with all actions along a trajectory."""
        if self.choice != "trajectory":
            return self._drawn("", step, lane, list(walker.places))
        (here,) = walker.places
        actions = self.simulator.available(here.state)
        part = self._drawn("", step, lane, [here._replace(action=int(action)) for action in actions])
        # Lists have one length: where an action is not available the first one stands again.
        missing = self.length // 2 - len(actions)
        return Part(
            part.places + part.places[:1] * missing,
            part.rewards + part.rewards[:1] * missing,
            part.nexts + part.nexts[:1] * missing,
        )

    def _moved(self, step: int, lane: int, w: int, walker: Walker) -> Walker | None:
        """Where a walker comes to; None where its episode is over."""
        if self.choice == "uniform":
            return None
        if self.choice == "pairs":
            nexts = self._drawn("move ", step, lane, list(walker.places)).nexts
            # One branch goes on alone where the other is over.
            alive = [place for place in nexts if place.action != NOWHERE]
            return Walker(walker.since, (alive[0], alive[-1])) if alive else None
        (here,) = walker.places
        (outcome,) = self.simulator.query(here.state, [here.action], self._noise("move", step, lane, w))
        there = self._next(outcome.state, self._noise("move policy", step, lane, w))
        return None if there.action == NOWHERE else Walker(walker.since, (there,))

    def pick(self, step: int, lane: int, w: int, size: int) -> int:
        """Which of `size` known coordinates a uniform choice falls on; −1: one of a starting state."""
        if size == 0 or self._noise("restart", step, lane, w).uniform < self.restart:
            return -1
        return int(self._noise("pick", step, lane, w).uniform * size)

    def _begun(self, step: int, lane: int, w: int, count: int) -> tuple[Coordinate, ...]:
        """Coordinates of one starting state."""
        state = self.started(step, lane, w)
        if self.simulator.is_over(state):
            raise ModelError(f"{self.simulator.name} starts in a state that is over; there is nothing to learn")
        if self.choice == "trajectory":
            return (self._next(state, self._noise("first", step, lane, w)),)
        actions, key = self.simulator.available(state), state_key(self.simulator, state)
        uniforms = [self._noise("first", step, lane, w, branch).uniform for branch in range(count)]
        return tuple(Coordinate(state, key, int(actions[int(uniform * len(actions))])) for uniform in uniforms)

    def started(self, step: int, lane: int, w: int) -> Snapshot:
        """The starting state of a walker that begins."""
        return self.simulator.start(self._noise("start", step, lane, w))

    def outcomes(
        self, word: str, step: int, lane: int, state: Snapshot, key: bytes, actions: Sequence[Action]
    ) -> list[Outcome]:
        """What actions bring in a state at a step: the luck that the model's sharing says."""
        simulator, sharing, word = self.simulator, self.simulator.sharing, word + "noise"
        if sharing == "none":
            noises = [self._noise(word, step, lane, key, action) for action in actions]
            return [simulator.query(state, [action], noise)[0] for action, noise in zip(actions, noises, strict=True)]
        noise = self._noise(word, step, lane) if sharing == "time" else self._noise(word, step, lane, key)
        return simulator.query(state, actions, noise)

    def _drawn(self, word: str, step: int, lane: int, places: list[Coordinate]) -> Part:
        """The joint outcome of coordinates, and where it leads: one draw for what is one. `word` tells draws apart."""
        found: dict[tuple[bytes, Action], tuple[float, Coordinate]] = {}
        states: dict[bytes, Snapshot] = {}
        for place in places:
            states.setdefault(place.key, place.state)
        for key, state in states.items():
            actions = list(dict.fromkeys(place.action for place in places if place.key == key))
            for action, outcome in zip(actions, self.outcomes(word, step, lane, state, key, actions), strict=True):
                after = self._next(outcome.state, self._noise(word + "policy", step, lane, key, action))
                found[key, action] = float(outcome.reward), after
        drawn = [found[place.key, place.action] for place in places]
        return Part(places, [reward for reward, _ in drawn], [after for _, after in drawn])

    def _next(self, state: Snapshot, noise: Noise) -> Coordinate:
        if self.simulator.is_over(state):
            return Coordinate(state, bytes(KEY), NOWHERE)
        return Coordinate(state, state_key(self.simulator, state), int(self.agent(state, noise)))

    def _noise(self, word: str, *where: int | bytes) -> Noise:
        return Noise("incremental", word, self.seed, *where)


def state_key(simulator: Simulator, state: Snapshot) -> bytes:
    """16 bytes that name a state; identities may be anything that can be hashed."""
    return fingerprint(simulator.identity(state))
