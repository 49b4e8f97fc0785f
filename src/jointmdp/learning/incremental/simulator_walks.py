"""Draws from a simulator: where walkers go, and the joint outcome of the coordinates that they list.

Each step of each replica draws `batch` lists of coordinates. Lists are numbered through all replicas; those with one
number, step after step, are a *lane*. One or two *walkers* of a lane move through the states of the simulator, and
where they stand is what its next list names.

Which randomness is shared stands in the addresses of the noise alone: that of an outcome is addressed by the step and
lane under ``"time"``, by the state too under ``"state"``, by the coordinate under ``"none"``; that of next actions
always by the coordinate. So a coordinate that is listed twice has one outcome and one next action, and every walker can
be followed without the others: tasks may be done anywhere, and a walker is found again from the step at which it last
began.

Walkers move by draws of their own. If they followed those that the updates use, which coordinates come next would
depend on the noise, and all replicas would be off in the same direction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointmdp.ground.arrays import Floats, Ints
from jointmdp.ground.errors import ModelError
from jointmdp.simulation.simulators.fingerprints import fingerprint
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.simulator import Action, Agent, Outcome, Simulator, Snapshot, as_agent, policy_form

if TYPE_CHECKING:
    from jointmdp.learning.incremental.settings import Choice

KEY = 16  # bytes that name a state
PROBES, PROBED_STEPS, PROBED_ACTIONS = 16, 4, 4  # of what a simulator and a policy do
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


Picks = Mapping[tuple[int, int, int], Coordinate]  # what a uniform choice picks at a step, lane and walker
DrawnOutcome = tuple[Coordinate, float, Coordinate]  # a coordinate, its reward and next coordinate


@dataclass(frozen=True)
class WalkTask:
    """Some steps of some lanes."""

    steps: range
    lanes: range
    walkers: Sequence[Sequence[Walker | None]]
    picks: Picks = field(default_factory=dict)

    def __repr__(self) -> str:
        steps, lanes = self.steps, self.lanes
        return f"steps {steps.start} to {steps.stop - 1} of lists {lanes.start} to {lanes.stop - 1}"


class WalkResult(NamedTuple):
    """What a task gives for T steps of L lanes; m coordinates come first, then the m next ones."""

    keys: NDArray[np.void]  # [T, L, 2m]: the bytes that name the states
    actions: Ints  # [T, L, 2m]
    rewards: Floats  # [T, L, m]
    walkers: list[list[Walker | None]]


class Walks:
    """Walks on a simulator; a task gives the same in every process."""

    def __init__(self, simulator: Simulator, agent: Agent, choice: Choice, seed: int, restart: float) -> None:
        self.simulator, self.agent, self.choice = simulator, agent, choice
        self.seed, self.restart = seed, restart
        self.walkers = 1 if choice == "pairs" else 2  # of a lane

    @property
    def length(self) -> int:
        """m, how many coordinates a list names."""
        assert self.simulator.action_names is not None
        return 2 * len(self.simulator.action_names) if self.choice == "trajectory" else 2

    def __call__(self, task: WalkTask) -> WalkResult:
        shape, m = (len(task.steps), len(task.lanes)), self.length
        names = bytearray()
        actions, rewards = np.zeros((*shape, 2 * m), dtype=np.int64), np.zeros((*shape, m))
        standing = [list(walkers) for walkers in task.walkers]
        for t, i in np.ndindex(shape):
            step, lane = task.steps[t], task.lanes[i]
            here = [self.here(step, lane, w, standing[i][w], task.picks) for w in range(self.walkers)]
            drawn = [each for walker in here for each in self._listed(step, lane, walker)]
            standing[i] = [self._moved(step, lane, w, walker) for w, walker in enumerate(here)]
            places = [place for place, _, _ in drawn] + [after for _, _, after in drawn]
            names += b"".join(place.key for place in places)
            actions[t, i] = [place.action for place in places]
            rewards[t, i] = [reward for _, reward, _ in drawn]
        keys = np.frombuffer(bytes(names), dtype=f"V{KEY}").reshape(*shape, 2 * m)
        return WalkResult(keys, actions, rewards, standing)

    def found_again(self, lane: int, w: int, since: int, step: int) -> Walker | None:
        """A walker that began at the step `since`, as it stands before `step`."""
        walker = None
        for k in range(since, step):
            walker = self._moved(k, lane, w, self.here(k, lane, w, walker, {}))
        return walker

    def here(self, step: int, lane: int, w: int, walker: Walker | None, picks: Picks) -> Walker:
        """Where walker w of a lane stands in a step: where it came to, or at a new beginning."""
        if self.choice == "uniform":
            picked = picks.get((step, lane, w))
            return Walker(step, self._begun(step, lane, w) if picked is None else (picked,))
        if walker is None or self._noise("restart", step, lane, w).uniform < self.restart:
            return Walker(step, self._begun(step, lane, w))
        return walker

    def _listed(self, step: int, lane: int, walker: Walker) -> list[DrawnOutcome]:
        """What a walker adds to the list of a step: where it stands, with all actions along a trajectory."""
        if self.choice != "trajectory":
            return self.drawn("", step, lane, walker.places)
        (here,) = walker.places
        actions = self.simulator.available(here.state)
        drawn = self.drawn("", step, lane, [here._replace(action=int(action)) for action in actions])
        # Lists have one length: where an action is not available the first one stands again.
        return drawn + drawn[:1] * (self.length // 2 - len(actions))

    def _moved(self, step: int, lane: int, w: int, walker: Walker) -> Walker | None:
        """Where a walker comes to; None where its episode is over."""
        if self.choice == "uniform":
            return None
        if self.choice == "pairs":
            nexts = [after for _, _, after in self.drawn("move ", step, lane, walker.places)]
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

    def _begun(self, step: int, lane: int, w: int) -> tuple[Coordinate, ...]:
        """Coordinates of one starting state: two branches of a pair, else one."""
        state = self.started(step, lane, w)
        if self.simulator.is_over(state):
            raise ModelError(f"{self.simulator.name} starts in a state that is over; there is nothing to learn")
        if self.choice == "trajectory":
            return (self._next(state, self._noise("first", step, lane, w)),)
        actions, key = self.simulator.available(state), state_key(self.simulator, state)
        branches = range(2 if self.choice == "pairs" else 1)
        uniforms = [self._noise("first", step, lane, w, branch).uniform for branch in branches]
        return tuple(Coordinate(state, key, int(actions[int(uniform * len(actions))])) for uniform in uniforms)

    def started(self, step: int, lane: int, w: int) -> Snapshot:
        """The starting state of a walker that begins."""
        return self.simulator.start(self._noise("start", step, lane, w))

    def outcomes(
        self, word: str, step: int, lane: int, state: Snapshot, key: bytes, actions: Sequence[Action]
    ) -> list[Outcome]:
        """The outcomes of actions in a state at a step, under the noise that the model's sharing says."""
        simulator, sharing, word = self.simulator, self.simulator.sharing, word + "noise"
        if sharing == "none":
            noises = [self._noise(word, step, lane, key, action) for action in actions]
            return [simulator.query(state, [action], noise)[0] for action, noise in zip(actions, noises, strict=True)]
        noise = self._noise(word, step, lane)
        if sharing == "state":
            noise = self._noise(word, step, lane, key).with_clock(noise)
        return simulator.query(state, actions, noise)

    def drawn(self, word: str, step: int, lane: int, places: Sequence[Coordinate]) -> list[DrawnOutcome]:
        """The joint outcome of coordinates: one draw for equal ones. `word` makes the draws of moves different."""
        groups: dict[bytes, list[Coordinate]] = {}
        for place in places:
            groups.setdefault(place.key, []).append(place)
        found: dict[tuple[bytes, Action], tuple[float, Coordinate]] = {}
        for key, group in groups.items():
            state, actions = group[0].state, list(dict.fromkeys(place.action for place in group))
            for action, outcome in zip(actions, self.outcomes(word, step, lane, state, key, actions), strict=True):
                after = self._next(outcome.state, self._noise(word + "policy", step, lane, key, action))
                found[key, action] = float(outcome.reward), after
        return [(place, *found[place.key, place.action]) for place in places]

    def _next(self, state: Snapshot, noise: Noise) -> Coordinate:
        if self.simulator.is_over(state):
            return Coordinate(state, bytes(KEY), NOWHERE)
        return Coordinate(state, state_key(self.simulator, state), int(self.agent(state, noise)))

    def _noise(self, word: str, *where: int | bytes) -> Noise:
        return Noise("incremental", word, self.seed, *where)


def state_key(simulator: Simulator, state: Snapshot) -> bytes:
    """16 bytes that name a state; identities may be anything that can be hashed."""
    return fingerprint(simulator.identity(state))


def behaviour(simulator: Simulator, policy: Any) -> str:
    """A digest of what a simulator and a policy do on a few short walks.

    Neither can be compared as such: both may be any function. What they do is what a run learns from.
    """
    agent, (form, value) = as_agent(policy, simulator), policy_form(policy, simulator)
    seen: list[Any] = [value if form in ("constant", "table") else form]
    for walk in range(PROBES):
        state = simulator.start(Noise("behaviour", walk))
        for t in range(PROBED_STEPS):
            if simulator.is_over(state):
                break
            actions, action = list(simulator.available(state))[:PROBED_ACTIONS], agent(state, Noise("choice", walk, t))
            found = simulator.query(state, [action, *actions], Noise("behaviour", walk, t))
            seen += [int(action), [float(each.reward) for each in found], state_key(simulator, found[0].state)]
            state = found[0].state
    return fingerprint(seen).hex()
