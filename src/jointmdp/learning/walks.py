"""The walker: lanes along a policy, what each step of a lane lists, and joint draws of what the lists give.

This is its Python half, for any simulator; `table_walks` is the compiled half, for tables. Three kinds of walks are
made of it. `ListWalks` choose the lists of incremental updates, `PairWalks` follow pairs of branches for features, and
`TrunkWalks` let pairs begin where a policy plays, for networks.

Lists are numbered through all replicas; those with one number, step after step, are a *lane*. One or two *walkers* of a
lane move through the states of the simulator, and where they stand is what its next list names.

Which randomness is shared stands in the addresses of the noise alone: that of an outcome is addressed by the step and
lane under ``"time"``, by the state too under ``"state"``, by the coordinate under ``"none"``; that of next actions
always by the coordinate. So a coordinate that is listed twice has one outcome and one next action, and every walker can
be followed without the others: tasks may be done anywhere, and a walker is found again from the step at which it last
began.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointmdp.ground.arrays import Floats, Ints
from jointmdp.ground.errors import ModelError
from jointmdp.simulation.executors.executor import Executor
from jointmdp.simulation.simulators.fingerprints import fingerprint
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.simulator import Action, Outcome, Simulator, Snapshot, as_agent, policy_form

if TYPE_CHECKING:
    from jointmdp.learning.runs import Method  # which loads JAX: workers that only sample do without

KEY = 16  # bytes that name a state
NOWHERE = -1  # the action of a state that is over
STEPS_AHEAD = 64  # steps drawn at once at most
LANES = 16  # lanes in a task: at 0.1 ms a query a task takes 0.2 s
TWICE = ("", "again ")  # the words that make the noise of two draws different
APART = 0.1  # of new pairs along a trunk: one branch begins, the other goes on
PROBES, PROBED_STEPS, PROBED_ACTIONS = 16, 4, 4  # of what a simulator and a policy do

Choice = Literal["sweep", "uniform", "trajectory", "pairs"]


class Coordinate(NamedTuple):
    """A coordinate: a state with the bytes that name it, and an action."""

    state: Snapshot
    key: bytes
    action: Action

    @property
    def is_over(self) -> bool:
        """Whether the episode is over there."""
        return self.action == NOWHERE


class Walker(NamedTuple):
    """Where a walker stands, with the actions that it will take, and the step at which it began."""

    since: int
    places: tuple[Coordinate, ...]
    trunk: Snapshot | None = None  # the state of the trunk that pairs begin at


class DrawnOutcome(NamedTuple):
    """What a coordinate gave."""

    place: Coordinate
    reward: float
    after: Coordinate


Standing = list[list[Walker | None]]  # the walkers of lanes; None begins anew
Visit = tuple[list[Walker], list[list[list[DrawnOutcome]]]]  # the walkers of a lane, and each one's draws


@dataclass(frozen=True)
class WalkTask:
    """Some steps of some lanes."""

    steps: range
    lanes: range
    walkers: Sequence[Sequence[Walker | None]]

    def __repr__(self) -> str:
        steps, lanes = self.steps, self.lanes
        return f"steps {steps.start} to {steps.stop - 1} of lists {lanes.start} to {lanes.stop - 1}"


class Walks(ABC):
    """Walks on a simulator; a task gives the same in every process."""

    walkers = 1  # of a lane
    words: ClassVar[tuple[str, ...]] = TWICE  # one for each draw of a list

    def __init__(self, simulator: Simulator, policy: Any, seed: int, restart: float) -> None:
        """A walker begins anew with probability `restart` in every step."""
        self.simulator, self.agent = simulator, as_agent(policy, simulator)
        self.seed, self.restart = seed, restart

    @abstractmethod
    def _begun(self, step: int, lane: int, w: int) -> tuple[Coordinate, ...]:
        """Where walker w of a lane begins."""

    @abstractmethod
    def _moved(self, step: int, lane: int, w: int, walker: Walker, drawn: list[DrawnOutcome] | None) -> Walker | None:
        """Where a walker comes to, given the first draw of its list if that is known; None where it is over."""

    def here(self, step: int, lane: int, w: int, walker: Walker | None) -> Walker:
        """Where walker w of a lane stands in a step: where it came to, or at a new beginning."""
        if walker is None or self._noise("restart", step, lane, w).uniform < self.restart:
            return Walker(step, self._begun(step, lane, w))
        return walker

    def drawn(self, word: str, step: int, lane: int, walker: Walker) -> list[DrawnOutcome]:
        """One draw of what a walker adds to the list of a step: where it stands."""
        return self.outcome(word, step, lane, walker.places)

    def visits(self, task: WalkTask, standing: Standing) -> Iterator[Visit]:
        """The visits of a task, lane after lane in every step; `standing` is moved along."""
        for step in task.steps:
            for i, lane in enumerate(task.lanes):
                here = [self.here(step, lane, w, each) for w, each in enumerate(standing[i])]
                draws = [[self.drawn(word, step, lane, walker) for word in self.words] for walker in here]
                yield here, draws
                standing[i] = [self._moved(step, lane, w, walker, draws[w][0]) for w, walker in enumerate(here)]

    def found_again(self, lane: int, w: int, since: int, step: int) -> Walker | None:
        """A walker that began at the step `since`, as it stands before `step`."""
        walker = None
        for k in range(since, step):
            walker = self._moved(k, lane, w, self.here(k, lane, w, walker), None)
        return walker

    def started(self, step: int, lane: int, w: int) -> Snapshot:
        """The starting state of a walker that begins."""
        return self._alive(self.simulator.start(self._noise("start", step, lane, w)))

    def _alive(self, state: Snapshot) -> Snapshot:
        if self.simulator.is_over(state):
            raise ModelError(f"{self.simulator.name} starts in a state that is over; there is nothing to learn")
        return state

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

    def outcome(self, word: str, step: int, lane: int, places: Sequence[Coordinate]) -> list[DrawnOutcome]:
        """The joint outcome of coordinates: one draw for equal ones; what is over stays and pays nothing."""
        groups: dict[bytes, list[Coordinate]] = {}
        found: dict[tuple[bytes, Action], tuple[float, Coordinate]] = {}
        for place in places:
            if place.action == NOWHERE:
                found[place.key, NOWHERE] = 0.0, place
            else:
                groups.setdefault(place.key, []).append(place)
        for key, group in groups.items():
            state, actions = group[0].state, list(dict.fromkeys(place.action for place in group))
            for action, outcome in zip(actions, self.outcomes(word, step, lane, state, key, actions), strict=True):
                after = self._next(outcome.state, self._noise(word + "policy", step, lane, key, action))
                found[key, action] = float(outcome.reward), after
        return [DrawnOutcome(place, *found[place.key, place.action]) for place in places]

    def _two_actions(self, step: int, lane: int, w: int, branches: int = 2) -> tuple[Coordinate, ...]:
        """Coordinates of one starting state, each with an action at random."""
        state = self.started(step, lane, w)
        actions, key = self.simulator.available(state), state_key(self.simulator, state)
        uniforms = [self._noise("first", step, lane, w, branch).uniform for branch in range(branches)]
        return tuple(Coordinate(state, key, int(actions[int(uniform * len(actions))])) for uniform in uniforms)

    def _next(self, state: Snapshot, noise: Noise) -> Coordinate:
        if self.simulator.is_over(state):
            return Coordinate(state, bytes(KEY), NOWHERE)
        return Coordinate(state, state_key(self.simulator, state), int(self.agent(state, noise)))

    def _noise(self, word: str, *where: int | bytes) -> Noise:
        return Noise("incremental", word, self.seed, *where)


class ListResult(NamedTuple):
    """Lists of T steps of L lanes; m coordinates come first, then the m next ones."""

    keys: NDArray[np.void]  # [T, L, 2m]: the bytes that name the states
    actions: Ints  # [T, L, 2m]
    rewards: Floats  # [T, L, m]


class ListWalks(Walks):
    """Lists of coordinates, chosen as `Choice` says.

    Walkers move by draws of their own. If they followed those that the updates use, which coordinates come next would
    depend on the noise, and all replicas would be off in the same direction.
    """

    words = ("",)

    def __init__(self, simulator: Simulator, policy: Any, choice: Choice, seed: int, restart: float) -> None:
        super().__init__(simulator, policy, seed, restart)
        self.choice = choice
        self.known: list[Coordinate] = []  # that a uniform choice picks among
        self.walkers = 1 if choice == "pairs" else 2

    @property
    def length(self) -> int:
        """m, how many coordinates a list names."""
        assert self.simulator.action_names is not None
        return 2 * len(self.simulator.action_names) if self.choice == "trajectory" else 2

    def __call__(self, task: WalkTask) -> tuple[ListResult, Standing]:
        shape, m = (len(task.steps), len(task.lanes)), self.length
        standing = [list(walkers) for walkers in task.walkers]
        names = bytearray()
        actions, rewards = np.zeros((*shape, 2 * m), dtype=np.int64), np.zeros((*shape, m))
        for at, (_, draws) in zip(np.ndindex(shape), self.visits(task, standing), strict=True):
            drawn = [each for walker in draws for each in walker[0]]
            places = [each.place for each in drawn] + [each.after for each in drawn]
            names += b"".join(place.key for place in places)
            actions[at] = [place.action for place in places]
            rewards[at] = [each.reward for each in drawn]
        keys = np.frombuffer(bytes(names), dtype=f"V{KEY}").reshape(*shape, 2 * m)
        return ListResult(keys, actions, rewards), standing

    def here(self, step: int, lane: int, w: int, walker: Walker | None) -> Walker:
        """Where a walker stands; a uniform choice picks among what is known."""
        if self.choice != "uniform":
            return super().here(step, lane, w, walker)
        picked = self.pick(step, lane, w)
        return Walker(step, self._begun(step, lane, w) if picked is None else (picked,))

    def drawn(self, word: str, step: int, lane: int, walker: Walker) -> list[DrawnOutcome]:
        """What a walker adds to the list of a step: where it stands, with all actions along a trajectory."""
        if self.choice != "trajectory":
            return super().drawn(word, step, lane, walker)
        (here,) = walker.places
        actions = self.simulator.available(here.state)
        drawn = self.outcome(word, step, lane, [here._replace(action=int(action)) for action in actions])
        # Lists have one length: where an action is not available the first one stands again.
        return drawn + drawn[:1] * (self.length // 2 - len(actions))

    def _moved(self, step: int, lane: int, w: int, walker: Walker, drawn: list[DrawnOutcome] | None) -> Walker | None:
        if self.choice == "uniform":
            return None
        if self.choice == "pairs":
            return _going_on(walker, [each.after for each in self.outcome("move ", step, lane, walker.places)])
        (here,) = walker.places
        (outcome,) = self.simulator.query(here.state, [here.action], self._noise("move", step, lane, w))
        there = self._next(outcome.state, self._noise("move policy", step, lane, w))
        return None if there.is_over else walker._replace(places=(there,))

    def pick(self, step: int, lane: int, w: int) -> Coordinate | None:
        """Which of the known coordinates a uniform choice falls on; None: one of a starting state."""
        if not self.known or self._noise("restart", step, lane, w).uniform < self.restart:
            return None
        return self.known[int(self._noise("pick", step, lane, w).uniform * len(self.known))]

    def _begun(self, step: int, lane: int, w: int) -> tuple[Coordinate, ...]:
        if self.choice == "trajectory":
            return (self._next(self.started(step, lane, w), self._noise("first", step, lane, w)),)
        return self._two_actions(step, lane, w, 2 if self.choice == "pairs" else 1)


class PairWalks(Walks):
    """Pairs of branches from two actions of a starting state, which go where the first of two draws leads.

    One branch has one place: two that stand at the same coordinate are one from there on, unless they share no noise.
    What is over stays where it is until both are.
    """

    def _begun(self, step: int, lane: int, w: int) -> tuple[Coordinate, ...]:
        return _one_if_same(self._two_actions(step, lane, w))

    def _moved(self, step: int, lane: int, w: int, walker: Walker, drawn: list[DrawnOutcome] | None) -> Walker | None:
        found = self.drawn(self.words[0], step, lane, walker) if drawn is None else drawn
        nexts = tuple(each.after for each in found)
        if all(place.is_over for place in nexts):
            return None
        # Without shared noise branches that meet stay two.
        return walker._replace(places=nexts if self.simulator.sharing == "none" else _one_if_same(nexts))


class TrunkWalks(Walks):
    """Pairs of branches that begin where a policy plays.

    In every lane a *trunk* follows the policy, episode after episode. A pair of branches begins at the trunk's state
    with two different actions, and goes on for a geometric number of steps. In each of them three coordinates are
    listed, those of both branches and another action in the state of the first, and their joint outcome is drawn twice.
    So both pairs of one state and the pairs that these lead to are seen, in the proportion in which questions refer to
    them. Some pairs are of a new branch and one of the pair before: covariances of states that lie far apart are asked
    for, too.
    """

    def __init__(self, simulator: Simulator, policy: Any, seed: int, restart: float, episode_restart: float) -> None:
        super().__init__(simulator, policy, seed, restart)
        self.episode_restart = episode_restart

    def here(self, step: int, lane: int, w: int, walker: Walker | None) -> Walker:
        """The trunk, and the listed coordinates: one branch, another action of its state, the other branch."""
        since, places, trunk = walker or Walker(step, ())
        if trunk is None or self._own("episode", lane, step).uniform < self.episode_restart:
            trunk = self._alive(self.simulator.start(self._own("start", lane, step)))
        if not places or self._own("restart", lane, step).uniform < self.restart:
            since, places = step, self._pair(step, lane, trunk, places)
        return Walker(since, (places[0], self._other("other", step, lane, places[0]), places[1]), trunk)

    def _pair(self, step: int, lane: int, state: Snapshot, before: tuple[Coordinate, ...]) -> tuple[Coordinate, ...]:
        """Two actions of a state, different ones if there are; or one of it, beside a branch of the pair before."""
        actions = list(self.simulator.available(state))
        first = Coordinate(state, state_key(self.simulator, state), int(self._picked("first", step, lane, actions)))
        if before and self._own("apart", lane, step).uniform < APART:
            return before[0], first
        return first, self._other("second", step, lane, first)

    def _begun(self, step: int, lane: int, w: int) -> tuple[Coordinate, ...]:
        return ()  # at the trunk, in `here`

    def _moved(self, step: int, lane: int, w: int, walker: Walker, drawn: list[DrawnOutcome] | None) -> Walker | None:
        assert drawn is not None  # a lane is one task
        action = self.agent(walker.trunk, self._own("trunk policy", lane, step))
        (outcome,) = self.simulator.query(walker.trunk, [action], self._own("trunk", lane, step))
        trunk = None if self.simulator.is_over(outcome.state) else outcome.state
        after = _going_on(walker, [drawn[0].after, drawn[2].after]) or Walker(step, ())
        return after._replace(trunk=trunk)

    def _other(self, word: str, step: int, lane: int, place: Coordinate) -> Coordinate:
        """Another action of a state."""
        others = [action for action in self.simulator.available(place.state) if action != place.action]
        return place._replace(action=int(self._picked(word, step, lane, others))) if others else place

    def _picked(self, word: str, step: int, lane: int, actions: list[Any]) -> Any:
        return actions[int(self._own(word, lane, step).uniform * len(actions))]

    def _own(self, word: str, *where: int) -> Noise:
        return Noise("recording", word, self.seed, *where)


def _going_on(walker: Walker, nexts: Sequence[Coordinate]) -> Walker | None:
    """Both branches of a pair; one goes on with itself where the other is over."""
    alive = [place for place in nexts if not place.is_over]
    return walker._replace(places=(alive[0], alive[-1])) if alive else None


def _one_if_same(places: tuple[Coordinate, ...]) -> tuple[Coordinate, ...]:
    """One branch where both stand at one coordinate."""
    return places[:1] if len(places) == 2 and places[0][1:] == places[1][1:] else places


class Lanes:
    """Where all lanes stand; `sampled` draws their next steps, in tasks that an executor's workers do."""

    def __init__(self, walks: Any, count: int) -> None:
        """`walks` called with a task gives arrays ``[T, L, …]`` and where the walkers came to."""
        self.walks, self.count, self.step = walks, count, 0
        self._standing: Standing = [[None] * walks.walkers for _ in range(count)]

    def sampled(self, executor: Executor, step: int, count: int) -> tuple[NDArray[Any], ...]:
        """The arrays of some steps of all lanes."""
        if step != self.step:
            raise ModelError(f"samples can be drawn for step {self.step} only, where the walkers are, not for {step}")
        steps, cut = range(step, step + count), range(0, self.count, LANES)
        lanes = [range(i, min(i + LANES, self.count)) for i in cut]
        tasks = [WalkTask(steps, each, self._standing[each.start : each.stop]) for each in lanes]
        found = list(executor.map(self.walks, tasks))
        self._standing = [walkers for _, standing in found for walkers in standing]
        self.step = step + count
        return tuple(np.concatenate(parts, axis=1) for parts in zip(*(arrays for arrays, _ in found), strict=True))

    def since(self, step: int) -> Ints:
        """When each walker began, ``[L, walkers]``: snapshots cannot be saved, but the way to them can."""
        assert step == self.step, "walkers are ahead of the state"
        began = [[step if each is None else each.since for each in walkers] for walkers in self._standing]
        return np.array(began, dtype=np.int64)

    def restore(self, executor: Executor, step: int, since: Ints) -> None:
        """Go again where walkers stood before a step, given when they began."""
        self.step, walks = step, self.walks
        tasks = [(lane, w, int(began), step) for (lane, w), began in np.ndenumerate(since)]
        found = list(executor.map(lambda task: walks.found_again(*task), tasks))
        self._standing = [found[i : i + walks.walkers] for i in range(0, len(found), walks.walkers)]


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


def run_of(simulator: Simulator, policy: Any, method: Method) -> dict[str, Any]:
    """What must be the same for a run on a simulator to be continued; where nothing is saved nobody looks closely."""
    digest = behaviour(simulator, policy) if method.checkpoint else ""
    told = {name: getattr(simulator, name) for name in ("name", "discount", "sharing")}
    return {"simulator": told.pop("name"), **told, "digest": digest}


def check_learnable(simulator: Simulator, numbered: str, below: str) -> None:
    """Raise unless actions are numbered and the discount is below 1; the words say why that is needed."""
    if simulator.action_names is None:
        raise ModelError(f"the actions of {simulator.name} are not numbered, so its coordinates {numbered}")
    if simulator.discount >= 1:
        raise ModelError(f"the discount of {simulator.name} is 1: {below}")
