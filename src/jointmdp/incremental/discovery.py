"""Learning from a simulator whose states are discovered on the way.

Walkers follow pairs of branches: they begin in a starting state of the simulator with two actions at random (or one
action twice) and go where the draws lead, under the rules of the simulator's ``sharing``. A state is new when its
identity is; a coordinate gets a number when it is first seen, and so does a pair of coordinates, so memory grows with
what is visited and not with all pairs that there might be. Episodes that are over pay nothing more: moments of 0.

Snapshots cannot be saved. So all walkers begin again every `STRETCH` steps, runs end with a whole stretch, and
checkpoints are written between two of them: all that goes on is numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from jointmdp import checks, kernels
from jointmdp.errors import ModelError
from jointmdp.incremental import backups, checkpoints, learner
from jointmdp.incremental.atlas import OVER, Atlas, LearnedStates
from jointmdp.incremental.backups import Pairs, Sample
from jointmdp.incremental.learner import Collection, Info, Rule, Settings, State, Visits
from jointmdp.incremental.replicas import Replicas
from jointmdp.incremental.settings import Options
from jointmdp.simulators.agents import as_agent
from jointmdp.simulators.noise import Noise
from jointmdp.simulators.simulator import Action, Outcome, Simulator, Snapshot

STRETCH = 64  # steps between two times at which all walkers begin again
FIRST = 64  # coordinates and pairs for which there is room at first; doubled when needed


class Place(NamedTuple):
    """Where a walker is: a state with its number, an action, and the coordinate's number."""

    state: Snapshot
    number: int
    action: Action
    coordinate: int


@partial(jax.jit, static_argnames="rule")
def _apply(
    rule: Rule, discount: Array, settings: Settings, state: State, sample: Sample, slots: Array, later: Array
) -> tuple[State, Array, Array]:
    assert state.visits is not None
    scratch = jnp.zeros(state.visits.pair.shape, dtype=jnp.int32)
    after, _ = learner.apply_lists(rule, discount, settings, state, sample, slots, later, scratch)
    return after, *learner.changes(rule, settings, state, after)


class SimulatorLearner:
    """Incremental JIPE on any simulator with numbered actions."""

    def __init__(self, simulator: Simulator, policy: Any, options: Options) -> None:
        self.simulator, self.options = simulator, options
        if simulator.action_names is None:
            raise ModelError(f"the actions of {simulator.name} are not numbered, so its coordinates cannot be listed")
        if simulator.discount >= 1:
            raise ModelError(f"the discount of {simulator.name} is 1: returns over an endless future need one below 1")
        if options.coordinates not in (None, "pairs") or options.collection != "pairs":
            raise ModelError(
                'the states of a simulator are discovered along pairs of branches: coordinates="pairs", '
                'collection="pairs"; for the others make tables first (from_gymnasium, from_noise, from_sampler)'
            )
        if options.start is not None:
            raise ModelError("a simulator begins where its start says; leave start out")
        self.bound = self._reward_bound(options.reward_bound)
        self.restart = 1 - simulator.discount if options.restart is None else options.restart
        self.agent = as_agent(policy, simulator)
        self.atlas = Atlas()
        self._walkers: list[list[tuple[Place, Place] | None]] = []
        with kernels.float64():
            self._settings, function = options.settings(simulator.discount, self.bound)
        self._rule = Rule(options.order, simulator.sharing, "pairs", function)
        self._run = {
            **options.described(),
            "coordinates": "pairs",
            "restart": self.restart,
            "simulator": simulator.name,
            "discount": simulator.discount,
            "sharing": simulator.sharing,
            "reward_bound": self.bound,
        }

    def _reward_bound(self, given: float | None) -> float:
        if given is not None:
            return checks.as_amount("reward_bound", given)
        bounds = self.simulator.reward_bounds
        if bounds is None or not np.isfinite(bounds).all():
            raise ModelError(
                f"{self.simulator.name} does not say how large its rewards can be; give reward_bound=… (without "
                "it nothing could be said of what is not yet forgotten)"
            )
        return max(map(abs, bounds))

    @property
    def discount(self) -> float:
        """γ."""
        return self.simulator.discount

    def init(self) -> State:
        """The state before the first step: nothing is discovered yet."""
        self.atlas = Atlas()
        self._walkers = []
        self._check_memory(FIRST)
        replicas = self.options.replicas
        with kernels.float64():
            values, doubts = self._start(FIRST, FIRST)
            visits = Visits(*(jnp.zeros((replicas, FIRST), dtype=jnp.int32) for _ in range(2)))
            none = jnp.zeros((replicas, 0, 2), dtype=jnp.int32)
            return State(jnp.asarray(0, dtype=jnp.int64), values, values, doubts, doubts, visits, none)

    def _start(self, coordinates: int, pairs: int) -> tuple[Pairs, Pairs]:
        """Values and doubts of so many new coordinates and pairs; of what is over there is no doubt."""
        order, replicas = self.options.order, self.options.replicas
        most = learner.bounds(order, self.bound, self.simulator.discount)
        doubts = learner.filled(most, replicas, coordinates, pairs)
        doubts = Pairs(doubts.mean.at[:, OVER].set(0.0), doubts.pair.at[:, :, OVER].set(0.0))
        return learner.filled([0.0] * (order + 1), replicas, coordinates, pairs), doubts

    def draw(self, state: State) -> Sample:
        """The sample of the next step, ``[R, B, 2]``: every walker's pair, its rewards and its next coordinates."""
        step, shape = int(state.step), (self.options.replicas, self.options.batch)
        if step % STRETCH == 0 or not self._walkers:
            self._walkers = [[None] * shape[1] for _ in range(shape[0])]
        x, nexts = (np.zeros((*shape, 2), dtype=np.int32) for _ in range(2))
        rewards = np.zeros((*shape, 2))
        for lane in np.ndindex(*shape):
            begun = self._begun(step, lane)
            outcomes, after = self._drawn(step, lane, begun)
            x[lane] = [place.coordinate for place in begun]
            nexts[lane] = [place.coordinate for place in after]
            rewards[lane] = [outcome.reward for outcome in outcomes]
            self._walkers[lane[0]][lane[1]] = self._going(after)
        largest = float(np.max(np.abs(rewards)))
        if largest > self.bound * (1 + 1e-9):
            raise ModelError(
                f"{self.simulator.name} paid {largest:g} in size, above its bound {self.bound:g}; give reward_bound=…"
            )
        with kernels.float64():
            return Sample(jnp.asarray(x), jnp.asarray(rewards), jnp.asarray(nexts))

    def step(self, state: State, sample: Sample) -> tuple[State, Info]:
        """The state after a sample of `draw`."""
        x, nexts = np.asarray(sample.coordinates), np.asarray(sample.nexts)
        slots, later = self._places(x), self._places(nexts)
        state = self._grown(state)
        with kernels.float64():
            discount = jnp.asarray(self.simulator.discount)
            places = jnp.asarray(slots), jnp.asarray(later)
            after, count, surprise = _apply(self._rule, discount, self._settings, state, sample, *places)
            return after, Info(int(after.step), int(count), float(surprise))

    def _places(self, x: NDArray[Any]) -> NDArray[np.int32]:
        """Where all pairs of each list are stored, ``[R, B, m, m]``."""
        found = np.zeros((*x.shape, x.shape[-1]), dtype=np.int32)
        for lane in np.ndindex(*x.shape[:-1]):
            numbers = x[lane].tolist()
            found[lane] = [[self.atlas.pair(one, two) for two in numbers] for one in numbers]
        return found

    def advance(self, state: State, count: int) -> State:
        """At least `count` steps: a stretch that was begun is always finished."""
        goal = int(state.step) + count
        while int(state.step) < goal or int(state.step) % STRETCH:
            state, _ = self.step(state, self.draw(state))
        return state

    def _noise(self, word: str, step: int, lane: Sequence[int], branch: int = 0) -> Noise:
        return Noise("incremental", word, self.options.seed, step, *map(int, lane), branch)

    def _begun(self, step: int, lane: Sequence[int]) -> tuple[Place, Place]:
        """The pair that a walker stands at, or a new one."""
        found = self._walkers[lane[0]][lane[1]]
        if found is not None and self._noise("restart", step, lane).uniform >= self.restart:
            return found
        state = self.simulator.start(self._noise("start", step, lane))
        if self.simulator.is_over(state):
            raise ModelError(f"{self.simulator.name} starts in a state that is over; there is nothing to learn")
        actions = self.simulator.available(state)
        number = self.atlas.state(self.simulator, state)
        places = []
        for branch in range(2):
            action = actions[int(self._noise("first", step, lane, branch).uniform * len(actions))]
            places.append(Place(state, number, action, self.atlas.coordinate(number, action)))
        return places[0], places[1]

    def _drawn(
        self, step: int, lane: Sequence[int], places: tuple[Place, Place]
    ) -> tuple[tuple[Outcome, Outcome], tuple[Place, Place]]:
        """A joint outcome of two coordinates, and where it leads: one draw for what is one, shared luck where it is."""
        simulator, sharing, (one, two) = self.simulator, self.simulator.sharing, places
        noise = self._noise("noise", step, lane)
        if one.coordinate == two.coordinate:
            (outcome,) = simulator.query(one.state, [one.action], noise)
            place = self._next(outcome.state, self._noise("policy", step, lane))
            return (outcome, outcome), (place, place)
        if one.number == two.number and sharing != "none":
            both = simulator.query(one.state, [one.action, two.action], noise)
        else:
            other = noise.fresh() if sharing == "time" else self._noise("noise", step, lane, 1)
            both = [simulator.query(one.state, [one.action], noise)[0]]
            both += simulator.query(two.state, [two.action], other)
        after = [self._next(each.state, self._noise("policy", step, lane, i)) for i, each in enumerate(both)]
        return (both[0], both[1]), (after[0], after[1])

    def _next(self, state: Snapshot, noise: Noise) -> Place:
        if self.simulator.is_over(state):
            return Place(state, -1, None, OVER)
        action, number = self.agent(state, noise), self.atlas.state(self.simulator, state)
        return Place(state, number, action, self.atlas.coordinate(number, action))

    def _going(self, places: tuple[Place, Place]) -> tuple[Place, Place] | None:
        """Where the pair stands next: one branch alone where the other is over, nowhere where both are."""
        alive = [place for place in places if place.coordinate != OVER]
        return (alive[0], alive[-1]) if alive else None

    def _grown(self, state: State) -> State:
        """Room for all that was discovered: doubled, so that few shapes are compiled."""
        assert isinstance(state.values, Pairs)
        assert state.visits is not None
        coordinates, pairs = len(self.atlas.coordinates) + 1, len(self.atlas.pairs) + 1
        have = state.values.mean.shape[1], state.values.pair.shape[2]
        if coordinates <= have[0] and pairs <= have[1]:
            return state
        # Never fewer pairs than coordinates: the scratch space serves both.
        room = _doubled(have[0], coordinates)
        need = _doubled(have[1], max(pairs, room))
        self._check_memory(need)
        with kernels.float64():
            zero, full = self._start(room, need)
            olds = (state.values, state.averages, state.doubts, state.doubt_averages)
            parts = [_wider(new, old) for new, old in zip((zero, zero, full, full), olds, strict=True)]
            counts = [
                jnp.zeros((old.shape[0], size), dtype=jnp.int32).at[:, : old.shape[1]].set(old)
                for old, size in zip(state.visits, (room, need), strict=True)
            ]
            return State(state.step, parts[0], parts[1], parts[2], parts[3], Visits(*counts), state.walkers)

    def _check_memory(self, pairs: int) -> None:
        needed = 8 * 10 * self.options.replicas * pairs * len(backups.powers(self.options.order))
        if needed > self.options.memory_limit:
            raise ModelError(
                f"{len(self.atlas.states):,} states discovered so far, and {pairs:,} pairs of coordinates need about "
                f"{needed / 2**30:.2g} GiB, above memory_limit; states of continuous models never come back: give the "
                "simulator a coarser identity"
            )

    def answer(self, state: State, log: tuple[dict[str, Any], ...] = ()) -> LearnedStates:
        """What has been learned so far."""
        assert isinstance(state.averages, Pairs)
        assert isinstance(state.doubt_averages, Pairs)
        assert state.visits is not None
        mean, pair = (
            Replicas(np.asarray(values), np.asarray(doubts).mean(axis=0))
            for values, doubts in zip(state.averages, state.doubt_averages, strict=True)
        )
        counts = tuple(np.asarray(part).astype(np.int64) for part in state.visits)
        how = (self.options.order, self.simulator.sharing, self.options.replicas, self.options.seed, int(state.step))
        atlas = self.atlas.copy()
        return LearnedStates(
            *how,
            self.updates(state),
            log,
            simulator=self.simulator,
            reward_bound=self.bound,
            _atlas=atlas,
            _mean=mean,
            _pair=pair,
            _visits=(counts[0], counts[1]),
        )

    def updates(self, state: State) -> int:
        """Coordinate updates so far, over all replicas."""
        assert state.visits is not None
        mean, pair = (int(np.asarray(part).sum(dtype=np.int64)) for part in state.visits)
        return mean + len(backups.powers(self.options.order)) * pair

    def save(self, state: State, log: list[dict[str, Any]]) -> None:
        """Write the checkpoint of the options."""
        assert self.options.checkpoint is not None
        assert int(state.step) % STRETCH == 0
        checkpoints.save(self.options.checkpoint, self._run, log, state, self.atlas.arrays())

    def resume(self) -> tuple[State, list[dict[str, Any]]]:
        """The state and log of the checkpoint, or those before the first step."""
        first = self.init()
        if self.options.checkpoint is None:
            return first, []
        names = ("states", "coordinates", "pairs")
        found = checkpoints.load(self.options.checkpoint, self._run, first, names, is_growing=True)
        if found is None:
            return first, []
        self.atlas = Atlas.of(found[2])
        return found[:2]


def _wider(new: Pairs, old: Collection) -> Pairs:
    """New arrays with the old ones in front."""
    assert isinstance(old, Pairs)
    size, places = old.mean.shape[1], old.pair.shape[2]
    return Pairs(new.mean.at[:, :size].set(old.mean), new.pair.at[:, :, :places].set(old.pair))


def _doubled(have: int, needed: int) -> int:
    while have < needed:
        have *= 2
    return have
