"""Learning from a simulator whose states are discovered on the way.

Walkers start in the simulator's starting states and go where `walks` leads them. A state is new when its identity is; a
coordinate gets a number when it is first seen, and so does a pair of coordinates, so memory grows with
what is visited and not with all possible pairs. Episodes that are over pay nothing more: moments of 0.

Walks do not depend on what was learned. So they are drawn some steps ahead, by an executor's workers if there are any,
and the updates of these steps are one compiled call. Snapshots cannot be saved; a checkpoint holds how each was
reached, and the run that continues goes there again.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from jointmdp.exact.bellman import sample_backups
from jointmdp.exact.bellman.sample_backups import Sample
from jointmdp.ground import checks
from jointmdp.ground.arrays import Floats, Ints, float64, on_device
from jointmdp.ground.errors import ModelError
from jointmdp.learning.incremental import recursion
from jointmdp.learning.incremental.learned import (
    OVER,
    DiscoveredMoments,
    DiscoveredStates,
    KnownCoordinates,
    LearnedStates,
)
from jointmdp.learning.incremental.recursion import Info, ListTables, RecursionLearner, State
from jointmdp.learning.incremental.settings import IncrementalSettings, RunSettings
from jointmdp.learning.walks import STEPS_AHEAD, Lanes, ListWalks, behaviour
from jointmdp.simulation.simulators.simulator import Simulator

FIRST = 256  # coordinates and pairs for which there is room at first; four times as much when needed: shapes compile

DrawnSteps = tuple[Sample, Array, Array]  # samples, places of their pairs, and of the pairs of their next coordinates


@jax.jit
def _apply(settings: RunSettings, state: State, drawn: DrawnSteps, count: Array) -> State:
    """The state after the first `count` steps that were drawn."""
    assert state.visits is not None
    size = state.visits.mean.shape[1]

    def body(t: Any, tables: ListTables) -> ListTables:
        sample, slots, later = jax.tree.map(lambda each: each[t], drawn)
        return recursion.update(settings, tables, size, sample, slots, later)

    tables = jax.lax.fori_loop(0, count, body, recursion.packed(state))
    return recursion.unpacked(state, tables)._replace(step=state.step + count)


class SimulatorLearner(RecursionLearner):
    """Incremental JIPE on any simulator with numbered actions.

    ``state = learner.init()``, then ``state, info = learner.step(state, learner.draw(state))`` again and again, or
    ``learner.advance(state, 1000)``. Unlike a table's it goes one way: samples are drawn for its latest state alone.
    """

    may_grow = True

    def __init__(self, simulator: Simulator, policy: Any, method: IncrementalSettings) -> None:
        self.simulator = simulator
        if simulator.action_names is None:
            raise ModelError(f"the actions of {simulator.name} are not numbered, so its coordinates cannot be listed")
        if simulator.discount >= 1:
            raise ModelError(f"the discount of {simulator.name} is 1: returns over an endless future need one below 1")
        choice = method.coordinates or "pairs"
        if choice == "sweep":
            raise ModelError(
                'the states of a simulator are discovered on the way: coordinates must be "pairs", "trajectory" or '
                '"uniform"; for a sweep make tables first (from_gymnasium, from_noise, from_sampler)'
            )
        if method.start is not None:
            raise ModelError("a simulator begins where its start says; leave start out")
        bound = self._reward_bound(method.reward_bound)
        described = {
            "simulator": simulator.name,
            "discount": simulator.discount,
            "sharing": simulator.sharing,
            "reward_bound": bound,
            "digest": behaviour(simulator, policy) if method.checkpoint else "",
        }
        super().__init__(simulator, method, choice, bound, described)
        # Updates are the same for all lists, however they were chosen: one program.
        self._settings = replace(self._settings, choice="pairs")
        self.walks = ListWalks(simulator, policy, choice, method.seed, self.restart)
        self._begin(DiscoveredStates())

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

    def _begin(self, discovered: DiscoveredStates) -> None:
        """Before the first step."""
        self.discovered = discovered
        self._lanes = Lanes(self.walks, self.method.replicas * self.method.batch)
        self._known = KnownCoordinates(self.walks)
        self._pending: tuple[int, Sample] | None = None

    def init(self) -> State:
        """The state before the first step: nothing is discovered yet."""
        self._begin(DiscoveredStates())
        return self._blank(FIRST, FIRST)

    def _blank(self, coordinates: int, pairs: int) -> State:
        """A state with room for so many coordinates and pairs; what is over has no bias."""
        self._check_memory(pairs)
        state = recursion.list_start(self._settings, self.method.replicas, coordinates, pairs, batch=0)
        with float64():
            bounds = jax.tree.map(lambda part: part.at[..., OVER].set(0.0), state.bias_bounds)
        return state._replace(bias_bounds=bounds, average_bias_bounds=bounds)

    def draw(self, state: State) -> Sample:
        """The sample of the next step, ``[R, B, m]``: every list, its rewards and its next coordinates."""
        step = int(state.step)
        if self._pending is None or self._pending[0] != step:
            found = self._sampled(step, 1)
            with float64():
                self._pending = step, Sample(*(on_device(part[0]) for part in found))
        return self._pending[1]

    def _sampled(self, step: int, count: int) -> tuple[NDArray[np.int32], Floats, NDArray[np.int32]]:
        """Coordinates, rewards and nexts of some steps up to a multiple of `STEPS_AHEAD`, ``[T, R, B, m]``."""
        is_uniform = self.walks.choice == "uniform"
        if is_uniform and step % STEPS_AHEAD == 0:  # new states join in uniform choices
            self._known.open(list(self.discovered.states))
        keys, actions, rewards = self._lanes.sampled(self.executor, step, count, self._known.picks)
        largest = float(np.max(np.abs(rewards)))
        if largest > self.reward_bound * (1 + 1e-9):
            raise ModelError(
                f"{self.simulator.name} paid {largest:g} in size, above its bound {self.reward_bound:g}; give "
                "reward_bound=…"
            )
        numbers, news = self.discovered.number(keys, actions)
        if is_uniform:
            self._known.note(self.discovered, step, keys, actions, news)
        m, shape = self.walks.length, (count, self.method.replicas, self.method.batch)
        both = numbers.reshape(*shape, 2 * m)
        return both[..., :m], rewards.reshape(*shape, m), both[..., m:]

    def _drawn(self, x: NDArray[np.int32], rewards: Floats, nexts: NDArray[np.int32]) -> DrawnSteps:
        """With the places of all pairs of each list, ``[T, R, B, …]``, padded to `STEPS_AHEAD` steps."""
        numbers = np.stack([x, nexts], axis=3)  # [T, R, B, 2, m]
        places = self.discovered.places(numbers[..., :, None], numbers[..., None, :]).astype(np.int32)
        parts = x, rewards, nexts, places[..., 0, :, :], places[..., 1, :, :]

        def padded(part: NDArray[Any]) -> Array:
            return on_device(np.concatenate([part, np.zeros((STEPS_AHEAD - len(part), *part.shape[1:]), part.dtype)]))

        with float64():
            arrays = [padded(part) for part in parts]
            return Sample(*arrays[:3]), arrays[3], arrays[4]

    def step(self, state: State, sample: Sample) -> tuple[State, Info]:
        """The state after a sample of `draw`."""
        x, rewards, nexts = (np.asarray(part)[None] for part in sample)
        after, before = self._applied(state, self._drawn(x, rewards, nexts), 1)
        return after, recursion.info(self._settings, before, after)

    def _applied(self, state: State, drawn: DrawnSteps, count: int) -> tuple[State, State]:
        """The state after some steps, and the state before with room for what they discovered."""
        before = self._grown(state)
        with float64():
            return _apply(self._settings, before, drawn, jnp.asarray(count)), before

    def advance(self, state: State, count: int) -> State:
        """`count` steps at once."""
        step, goal = int(state.step), int(state.step) + count
        while step < goal:
            some = min(goal, (step // STEPS_AHEAD + 1) * STEPS_AHEAD) - step
            if self._pending is not None and self._pending[0] == step:  # drawn, and not yet used
                state, some = self.step(state, self._pending[1])[0], 1
            else:
                state, _ = self._applied(state, self._drawn(*self._sampled(step, some)), some)
            step += some
        return state

    def _grown(self, state: State) -> State:
        """Room for all that was discovered, in few sizes, so that few shapes are compiled."""
        have = [part.shape[1] for part in jax.tree.leaves(state.visits)]
        need = [len(self.discovered.coordinates) + 1, len(self.discovered.pairs) + 1]
        if all(old >= new for old, new in zip(have, need, strict=True)):
            return state
        bigger = self._blank(*map(_enough, have, need))
        with float64():
            return jax.tree.map(lambda new, old: new.at[tuple(map(slice, old.shape))].set(old), bigger, state)

    def _check_memory(self, pairs: int) -> None:
        states = len(self.discovered.states)
        needed = 8 * 10 * self.method.replicas * pairs * len(sample_backups.powers(self.method.order))
        if needed > self.method.memory_limit:
            raise ModelError(
                f"{states:,} states discovered so far, and {pairs:,} pairs of coordinates need about "
                f"{needed / 2**30:.2g} GiB, above memory_limit; states of continuous models never come back: give the "
                "simulator a coarser identity"
            )

    def answer(self, state: State, log: tuple[dict[str, Any], ...] = ()) -> LearnedStates:
        """What has been learned so far."""
        state = self._grown(state)
        averages, bounds, counts = map(jax.tree.leaves, (state.averages, state.average_bias_bounds, state.visits))
        degrees = 1, [[i + j] for i, j in sample_backups.powers(self.method.order)]
        mean, pair = (
            self._replicas(average, np.asarray(bound).mean(axis=0), np.asarray(count).sum(axis=0), degree)
            for average, bound, count, degree in zip(averages, bounds, counts, degrees, strict=True)
        )
        how = (self.method.order, self.simulator.sharing, mean, pair)
        return LearnedStates(
            *self._summary(state, log),
            simulator=self.simulator,
            reward_bound=self.reward_bound,
            _moments=DiscoveredMoments(*how, self.simulator.name, self.discovered.copy()),
            _visits=(np.asarray(counts[0], dtype=np.int64), np.asarray(counts[1], dtype=np.int64)),
        )

    def _extra(self, state: State) -> dict[str, NDArray[Any]]:
        return {**self.discovered.arrays(), "since": self._lanes.since(int(state.step)), **self._known.arrays()}

    def _restore(self, step: int, arrays: Mapping[str, Ints]) -> None:
        self._begin(DiscoveredStates.of(arrays))
        self._known = KnownCoordinates.of(self.walks, arrays, list(self.discovered.states))
        self._lanes.restore(self.executor, step, arrays["since"])


def _enough(have: int, needed: int) -> int:
    while have < needed:
        have *= 4
    return have
