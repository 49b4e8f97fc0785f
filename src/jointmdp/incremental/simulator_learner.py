"""Learning from a simulator whose states are discovered on the way.

Walkers go where `walks` leads them, from the simulator's starting states. A state is new when its identity is; a
coordinate gets a number when it is first seen, and so does a pair of coordinates, so memory grows with what is visited
and not with all pairs that there might be. Episodes that are over pay nothing more: moments of 0.

Walks do not depend on what was learned. So they are drawn some steps ahead, by an executor's workers if there are any,
and the updates of these steps are one compiled call. Snapshots cannot be saved; a checkpoint holds how each was
reached, and the run that takes it up goes there again.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from jointmdp import checks
from jointmdp.arrays import Floats, Ints, float64, on_device
from jointmdp.bellman import sample_backups
from jointmdp.bellman.sample_backups import Pairs, Sample
from jointmdp.errors import ModelError
from jointmdp.executors.interface import Executor, Serial
from jointmdp.incremental import checkpoints, recursion
from jointmdp.incremental.discovered_states import OVER, DiscoveredStates, LearnedStates
from jointmdp.incremental.known_coordinates import KnownCoordinates
from jointmdp.incremental.list_updates import ListTables
from jointmdp.incremental.options import LearnOptions, as_options
from jointmdp.incremental.recursion import Info, MomentArrays, Rule, RunNumbers, State, Visits
from jointmdp.incremental.replicas import Replicas
from jointmdp.incremental.simulator_walks import Stretch, Walker, Walks
from jointmdp.simulators.agents import as_agent
from jointmdp.simulators.simulator import Simulator

STRETCH = 64  # steps that are drawn ahead at most; in uniform choices new states join in between two of them
LANES = 16  # lists in a task: at 0.1 ms a query a task takes 0.2 s
FIRST = 256  # coordinates and pairs for which there is room at first; four times as much when needed: shapes compile


class Drawn(NamedTuple):
    """Samples of some steps and the places of their pairs, ``[T, R, B, …]``; T is padded to a whole stretch."""

    sample: Sample
    slots: Array
    later: Array


@partial(jax.jit, static_argnames="rule")
def _apply(rule: Rule, discount: Array, settings: RunNumbers, state: State, drawn: Drawn, count: Array) -> State:
    """The state after the first `count` steps that were drawn."""
    assert state.visits is not None
    size = state.visits.mean.shape[1]

    def body(t: Any, tables: ListTables) -> ListTables:
        sample, slots, later = jax.tree.map(lambda each: each[t], drawn)
        return recursion.update_lists(rule, discount, settings, tables, size, sample, slots, later)

    tables = jax.lax.fori_loop(0, count, body, recursion.packed(state))
    return recursion.unpacked(state, tables)._replace(step=state.step + count)


_changes = jax.jit(recursion.changes, static_argnames="rule")


class SimulatorLearner:
    """Incremental JIPE on any simulator with numbered actions.

    ``state = learner.init()``, then ``state, info = learner.step(state, learner.draw(state))`` again and again, or
    ``learner.advance(state, 1000)``. Unlike a table's it goes one way: samples are drawn for its latest state alone.
    """

    def __init__(
        self,
        simulator: Simulator,
        policy: Any,
        options: LearnOptions | None = None,
        executor: Executor | None = None,
    ) -> None:
        self.options = options = as_options(options)
        self.simulator, self.executor = simulator, executor or Serial()
        if simulator.action_names is None:
            raise ModelError(f"the actions of {simulator.name} are not numbered, so its coordinates cannot be listed")
        if simulator.discount >= 1:
            raise ModelError(f"the discount of {simulator.name} is 1: returns over an endless future need one below 1")
        choice = options.coordinates or "pairs"
        if choice == "sweep":
            raise ModelError(
                'the states of a simulator are discovered on the way: coordinates must be "pairs", "trajectory" or '
                '"uniform"; for a sweep make tables first (from_gymnasium, from_noise, from_sampler)'
            )
        if options.start is not None:
            raise ModelError("a simulator begins where its start says; leave start out")
        self.bound = self._reward_bound(options.reward_bound)
        restart = 1 - simulator.discount if options.restart is None else options.restart
        self.walks = Walks(simulator, as_agent(policy, simulator), choice, options.seed, restart)
        self._begin(DiscoveredStates())
        with float64():
            self._settings, function = options.settings(simulator.discount, self.bound)
        # Updates are the same for all lists, whoever chose them: one program.
        self._rule = Rule(options.order, simulator.sharing, "pairs", function)
        self._run = {
            **options.described(),
            "coordinates": choice,
            "restart": restart,
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

    @property
    def _lanes(self) -> int:
        return self.options.replicas * self.options.batch

    def _begin(self, atlas: DiscoveredStates) -> None:
        """Before the first step."""
        self.atlas, self._step = atlas, 0
        self._walkers: list[list[Walker | None]] = [[None] * self.walks.walkers for _ in range(self._lanes)]
        self._pool = KnownCoordinates(self.walks)
        self._pending: tuple[int, Sample] | None = None

    def init(self) -> State:
        """The state before the first step: nothing is discovered yet."""
        self._begin(DiscoveredStates())
        self._check_memory(FIRST)
        replicas = self.options.replicas
        with float64():
            values, doubts = self._start(FIRST, FIRST)
            visits = Visits(*(jnp.zeros((replicas, FIRST), dtype=jnp.int32) for _ in range(2)))
            none = jnp.zeros((replicas, 0, 2), dtype=jnp.int32)
            return State(jnp.asarray(0, dtype=jnp.int64), values, values, doubts, doubts, visits, none)

    def _start(self, coordinates: int, pairs: int) -> tuple[Pairs, Pairs]:
        """Values and doubts of so many new coordinates and pairs; of what is over there is no doubt."""
        order, replicas = self.options.order, self.options.replicas
        most = recursion.bounds(order, self.bound, self.simulator.discount)
        doubts = recursion.filled(most, replicas, coordinates, pairs)
        doubts = Pairs(doubts.mean.at[:, OVER].set(0.0), doubts.pair.at[:, :, OVER].set(0.0))
        return recursion.filled([0.0] * (order + 1), replicas, coordinates, pairs), doubts

    # -- draws ---------------------------------------------------------------------------------------------------

    def draw(self, state: State) -> Sample:
        """The sample of the next step, ``[R, B, m]``: every list, its rewards and its next coordinates."""
        step = int(state.step)
        if self._pending is None or self._pending[0] != step:
            found = self._sampled(step, 1)
            with float64():
                self._pending = step, Sample(*(on_device(part[0]) for part in found))
        return self._pending[1]

    def _sampled(self, step: int, count: int) -> tuple[NDArray[np.int32], Floats, NDArray[np.int32]]:
        """Coordinates, rewards and nexts of some steps within one stretch, ``[T, R, B, m]``."""
        if step != self._step:
            raise ModelError(f"samples can be drawn for step {self._step} only, where the walkers are, not for {step}")
        if step % STRETCH == 0:
            self._pool.open(len(self.atlas.states))
        cut = [range(i, min(i + LANES, self._lanes)) for i in range(0, self._lanes, LANES)]
        tasks = [
            Stretch(step, count, lanes, self._walkers[lanes.start : lanes.stop], self._pool.asked(step, count, lanes))
            for lanes in cut
        ]
        found = list(self.executor.map(self.walks, tasks))
        self._walkers = [walkers for each in found for walkers in each.walkers]
        self._step = step + count
        keys, actions, rewards = (np.concatenate(parts, axis=1) for parts in zip(*(f[:3] for f in found), strict=True))
        largest = float(np.max(np.abs(rewards)))
        if largest > self.bound * (1 + 1e-9):
            raise ModelError(
                f"{self.simulator.name} paid {largest:g} in size, above its bound {self.bound:g}; give reward_bound=…"
            )
        found_numbers, news = self.atlas.number(keys.reshape(-1, 2), actions.reshape(-1))
        self._pool.note(self.atlas, step, keys, actions, news)
        m, shape = self.walks.length, (count, self.options.replicas, self.options.batch)
        numbers = found_numbers.astype(np.int32).reshape(*shape, 2 * m)
        return numbers[..., :m], rewards.reshape(*shape, m), numbers[..., m:]

    def _drawn(self, x: NDArray[np.int32], rewards: Floats, nexts: NDArray[np.int32]) -> Drawn:
        """With the places of all pairs of each list, padded to a whole stretch."""
        numbers = np.stack([x, nexts], axis=3)  # [T, R, B, 2, m]
        both = np.broadcast_arrays(numbers[..., :, None], numbers[..., None, :])
        places = self.atlas.places(both[0].reshape(-1), both[1].reshape(-1)).astype(np.int32).reshape(both[0].shape)
        parts = x, rewards, nexts, places[..., 0, :, :], places[..., 1, :, :]

        def padded(part: NDArray[Any]) -> Array:
            return on_device(np.concatenate([part, np.zeros((STRETCH - len(part), *part.shape[1:]), part.dtype)]))

        with float64():
            arrays = [padded(part) for part in parts]
            return Drawn(Sample(*arrays[:3]), *arrays[3:])

    # -- updates -------------------------------------------------------------------------------------------------

    def step(self, state: State, sample: Sample) -> tuple[State, Info]:
        """The state after a sample of `draw`."""
        x, rewards, nexts = (np.asarray(part)[None] for part in sample)
        after, before = self._applied(state, self._drawn(x, rewards, nexts), 1)
        with float64():
            count, surprise = _changes(self._rule, self._settings, before, after)
            return after, Info(int(after.step), int(count), float(surprise))

    def _applied(self, state: State, drawn: Drawn, count: int) -> tuple[State, State]:
        """The state after some steps, and the state before with room for what they discovered."""
        before = self._grown(state)
        with float64():
            discount = jnp.asarray(self.simulator.discount)
            return _apply(self._rule, discount, self._settings, before, drawn, jnp.asarray(count)), before

    def advance(self, state: State, count: int) -> State:
        """`count` steps at once."""
        step, goal = int(state.step), int(state.step) + count
        while step < goal:
            some = min(goal, (step // STRETCH + 1) * STRETCH) - step
            if self._pending is not None and self._pending[0] == step:  # drawn, and not yet used
                state, step = self.step(state, self._pending[1])[0], step + 1
                continue
            state, _ = self._applied(state, self._drawn(*self._sampled(step, some)), some)
            step += some
        return state

    def _grown(self, state: State) -> State:
        """Room for all that was discovered, in few sizes, so that few shapes are compiled."""
        assert isinstance(state.values, Pairs)
        assert state.visits is not None
        coordinates, pairs = len(self.atlas.coordinates) + 1, len(self.atlas.pairs) + 1
        have = state.values.mean.shape[1], state.values.pair.shape[2]
        if coordinates <= have[0] and pairs <= have[1]:
            return state
        room, need = _enough(have[0], coordinates), _enough(have[1], pairs)
        self._check_memory(need)
        with float64():
            zero, full = self._start(room, need)
            olds = (state.values, state.averages, state.doubts, state.doubt_averages)
            parts = [_wider(new, old) for new, old in zip((zero, zero, full, full), olds, strict=True)]
            counts = [
                jnp.zeros((old.shape[0], size), dtype=jnp.int32).at[:, : old.shape[1]].set(old)
                for old, size in zip(state.visits, (room, need), strict=True)
            ]
            return State(state.step, parts[0], parts[1], parts[2], parts[3], Visits(*counts), state.walkers)

    def _check_memory(self, pairs: int) -> None:
        needed = 8 * 10 * self.options.replicas * pairs * len(sample_backups.powers(self.options.order))
        if needed > self.options.memory_limit:
            raise ModelError(
                f"{len(self.atlas.states):,} states discovered so far, and {pairs:,} pairs of coordinates need about "
                f"{needed / 2**30:.2g} GiB, above memory_limit; states of continuous models never come back: give the "
                "simulator a coarser identity"
            )

    def answer(self, state: State, log: tuple[dict[str, Any], ...] = ()) -> LearnedStates:
        """What has been learned so far."""
        state = self._grown(state)
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
            _means=mean,
            _pairs=pair,
            _visits=(counts[0], counts[1]),
        )

    def updates(self, state: State) -> int:
        """Coordinate updates so far, over all replicas."""
        assert state.visits is not None
        mean, pair = (int(np.asarray(part).sum(dtype=np.int64)) for part in state.visits)
        return mean + len(sample_backups.powers(self.options.order)) * pair

    # -- on disk -------------------------------------------------------------------------------------------------

    def save(self, state: State, log: list[dict[str, Any]]) -> None:
        """Write the checkpoint of the options."""
        assert self.options.checkpoint is not None
        assert int(state.step) == self._step, "walkers are ahead of the state"
        since = [[self._step if each is None else each.since for each in walkers] for walkers in self._walkers]
        more = {**self.atlas.arrays(), "since": np.array(since, dtype=np.int64), **self._pool.arrays()}
        checkpoints.save(self.options.checkpoint, self._run, log, state, more)

    def resume(self) -> tuple[State, list[dict[str, Any]]]:
        """The state and log of the checkpoint, or those before the first step."""
        first = self.init()
        if self.options.checkpoint is None:
            return first, []
        names = ("states", "coordinates", "pairs", "since", "origins", "known")
        found = checkpoints.load(self.options.checkpoint, self._run, first, names, is_growing=True)
        if found is None:
            return first, []
        state, log, arrays = found
        self._take_up(int(state.step), arrays)
        return state, log

    def _take_up(self, step: int, arrays: Mapping[str, Ints]) -> None:
        self._begin(DiscoveredStates.of(arrays))
        self._step = step
        self._pool = KnownCoordinates.of(self.walks, arrays, list(self.atlas.states))
        tasks = [(lane, w, int(since), step) for (lane, w), since in np.ndenumerate(arrays["since"])]
        walks = self.walks
        found = list(self.executor.map(lambda task: walks.found_again(*task), tasks))
        self._walkers = [found[i : i + walks.walkers] for i in range(0, len(found), walks.walkers)]


def _wider(new: Pairs, old: MomentArrays) -> Pairs:
    """New arrays with the old ones in front."""
    assert isinstance(old, Pairs)
    size, places = old.mean.shape[1], old.pair.shape[2]
    return Pairs(new.mean.at[:, :size].set(old.mean), new.pair.at[:, :, :places].set(old.pair))


def _enough(have: int, needed: int) -> int:
    while have < needed:
        have *= 4
    return have
