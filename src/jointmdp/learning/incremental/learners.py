"""Runs of the recursion: on a model in tables, and on a simulator whose states are discovered on the way.

A table is sampled inside the compiled loop. On a simulator walkers start in its starting states and go where `walks`
leads them. A state is new when its identity is; a coordinate gets a number when it is first seen, and so does a pair of
coordinates, so memory grows with what is visited and not with all possible pairs. Episodes that are over pay nothing
more: moments of 0.

Walks do not depend on what was learned. So they are drawn some steps ahead, by an executor's workers if there are any,
and the updates of these steps are one compiled call. Snapshots cannot be saved; a checkpoint holds how each was
reached, and the run that continues goes there again.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from jointmdp.exact.bellman import sample_backups
from jointmdp.exact.bellman.sample_backups import MeansAndPairs, Sample
from jointmdp.exact.bellman.tuple_moments import Tuples
from jointmdp.ground import checks
from jointmdp.ground.arrays import Floats, Ints, float64, on_device
from jointmdp.ground.errors import ModelError
from jointmdp.learning import table_walks
from jointmdp.learning.estimates import CONFIDENCE, Replicas
from jointmdp.learning.incremental import recursion
from jointmdp.learning.incremental.learned import (
    OVER,
    DiscoveredStates,
    KnownCoordinates,
    Learned,
    LearnedJoint,
    LearnedMoments,
    LearnedStates,
)
from jointmdp.learning.incremental.recursion import Info, ListTables, State
from jointmdp.learning.incremental.settings import IncrementalSettings, RunSettings
from jointmdp.learning.runs import Learner
from jointmdp.learning.walks import STEPS_AHEAD, Choice, Lanes, ListWalks, check_learnable, run_of
from jointmdp.model.joint_mdp import JointMDP, digest
from jointmdp.model.policies import as_policy
from jointmdp.model.tables import start_law
from jointmdp.simulation.simulators.simulator import Simulator

FIRST = 256  # coordinates and pairs for which there is room at first; four times as much when needed: shapes compile

DrawnSteps = tuple[Sample, Array, Array]  # samples, places of their pairs, and of the pairs of their next coordinates


class RecursionLearner(Learner):
    """A run of the recursion; subclasses draw the samples and form the answers."""

    def __init__(
        self,
        source: JointMDP | Simulator,
        method: IncrementalSettings,
        choice: Choice,
        reward_bound: float,
        described: Mapping[str, Any],
    ) -> None:
        """`described` is what must be the same for a run to be continued, beside the settings."""
        self.restart = 1 - source.discount if method.restart is None else method.restart
        with float64():
            self._settings = method.settings(source.discount, reward_bound, source.sharing, choice)
        self.reward_bound = reward_bound
        run = {**described, **method.described(), "coordinates": choice, "restart": self.restart}
        super().__init__(method, source.discount, run)

    def updates(self, state: State) -> int:
        """Coordinate updates so far, over all replicas."""
        if state.visits is None:
            empty = 0 if isinstance(state.values, MeansAndPairs) else len(state.values)  # moments of the empty tuple
            return int(state.step) * (sum(part.size for part in jax.tree.leaves(state.values)) - empty)
        mean, pair = (int(np.asarray(part).sum(dtype=np.int64)) for part in state.visits)
        return mean + len(sample_backups.powers(self.method.order)) * pair

    def _summary(self, state: State, log: tuple[dict[str, Any], ...]) -> tuple[Any, ...]:
        """The fields of a `RunSummary`."""
        method, sharing = self.method, self._settings.sharing
        return method.order, sharing, method.replicas, method.seed, int(state.step), self.updates(state), log

    def _learned(self, state: State, shape: tuple[int, ...], place: Callable[..., tuple[Any, ...]]) -> LearnedMoments:
        """The moments of a state; those of pairs have this shape, and stand where `place` says."""
        mean, pair = (np.asarray(part) for part in state.averages)
        order, pair = self.method.order, pair.reshape(*pair.shape[:2], *shape)
        degrees = np.reshape([i + j for i, j in sample_backups.powers(order)], (-1, *[1] * len(shape)))
        if state.visits is None:  # all coordinates are alike
            by_order, count = np.asarray(state.average_bias_bounds), np.array(int(state.step) * self.method.replicas)
            bounds = np.full(mean.shape[1], by_order[1]), np.broadcast_to(by_order[degrees], pair.shape[1:])
            counts = count, count
        else:
            of_mean, of_pair = (np.asarray(part).mean(axis=0) for part in state.average_bias_bounds)
            bounds = of_mean, of_pair.reshape(pair.shape[1:])
            of_mean, of_pair = (np.asarray(part).sum(axis=0) for part in state.visits)
            counts = of_mean, of_pair.reshape(shape)
        means, pairs = map(self._replicas, (mean, pair), bounds, counts, (1, degrees))
        return LearnedMoments(order, self._settings.sharing, means, pairs, place)

    def _rare_mass(self, chance: Floats) -> Floats:
        """The probability, in any state, of all that is rarer than this."""
        return chance

    def _replicas(self, averages: Any, bias_bound: Floats, updates: Any, degrees: Any) -> Replicas:
        """Moments of these degrees, with what so many updates of all replicas together may not have shown."""
        # What so many updates have not shown is rarer than this; what was never updated has its bias bound instead.
        counts, powers = np.asarray(updates), np.asarray(degrees, dtype=np.float64)
        chance = np.where(counts > 0, -np.expm1(math.log((1 - CONFIDENCE) / 2) / np.maximum(counts, 1)), 0.0)
        most: Floats = (self.reward_bound / (1 - self.discount)) ** powers * (powers > 0)
        change = np.minimum(self._rare_mass(chance) / (1 - self.discount), 1.0) * 2 * most
        # Together with the bias of the start never more than `most`: of what was hardly updated nothing is known.
        return Replicas(np.asarray(averages), bias_bound, np.minimum(change, np.maximum(most - bias_bound, 0.0)))


class TableLearner(RecursionLearner):
    """Incremental JIPE on a model in tables.

    ``state = learner.init()``, then ``state, info = learner.step(state, learner.draw(state))`` again and again;
    ``learner.advance(state, 1000)`` does the same in one compiled loop, and ``learner.answer(state)`` says what has
    been learned so far. States are values: nothing is changed in place.
    """

    is_compiled = True

    def __init__(self, model: JointMDP, policy: ArrayLike, method: IncrementalSettings) -> None:
        if model.discount >= 1:
            raise ModelError("discount is 1: returns over an endless future need a discount below 1")
        if method.reward_bound is not None:
            raise ModelError("a model in tables knows its rewards; leave reward_bound out")
        self.model, self.policy = model, as_policy(model, policy)
        choice = method.coordinates or "sweep"
        if method.joint and choice != "sweep":
            raise ModelError(f'moments of several returns are learned in sweeps, not coordinates="{choice}"')
        _check_memory(int(model.available.sum()), method)
        count = model.num_states
        start = np.full(count, 1 / count) if method.start is None else start_law(model, method.start)
        kind = "joint" if method.joint else "pairs"
        described = {"digest": digest(model, self.policy), "kind": kind, "start": start.tolist()}
        super().__init__(model, method, choice, model.reward_bound, described)
        self._tuples = Tuples(np.nonzero(model.available)[0], method.order) if method.joint else None
        with float64():
            links = None if self._tuples is None else sample_backups.links(self._tuples)
            self._source = table_walks.draw_tables(model, self.policy, start, self.restart)._replace(links=links)

    def init(self) -> State:
        """The state before the first step."""
        replicas, size = self.method.replicas, self._source.size
        if self._settings.choice == "sweep":
            return recursion.sweep_start(self._settings, self._source, replicas)
        return recursion.list_start(self._settings, replicas, size, size * size, self.method.batch)

    def draw(self, state: State) -> Sample:
        """The sample of the next step, ``[R, …, m]``; it depends on the seed, the step's number and the walkers."""
        with float64():
            return recursion.draw(self._settings, self._source, state)

    def step(self, state: State, sample: Sample) -> tuple[State, Info]:
        """The state after a sample: the one of `draw`, or one of your own with the same shape."""
        with float64():
            after = recursion.step(self._settings, self._source, state, sample)
            return after, recursion.info(self._settings, state, after)

    def advance(self, state: State, count: int) -> State:
        """`count` steps at once."""
        with float64():
            return recursion.advance(self._settings, self._source, state, jnp.asarray(count))

    def answer(self, state: State, log: tuple[dict[str, Any], ...] = ()) -> Learned | LearnedJoint:
        """What has been learned so far."""
        summary = self._summary(state, log)
        if self._tuples is not None:
            degrees = np.repeat(np.arange(self.method.order + 1), np.diff(self._tuples.starts))
            updates = int(state.step) * self.method.replicas
            held = self._replicas(state.averages, np.asarray(state.average_bias_bounds)[degrees], updates, degrees)
            return LearnedJoint(*summary, model=self.model, _tuples=self._tuples, _values=held)
        visits, size = None, self._source.size
        if state.visits is not None:
            mean, pair = (np.asarray(part).astype(np.int64) for part in state.visits)
            visits = mean, pair.reshape(*mean.shape, size)
        moments = self._learned(state, (size, size), lambda x, y: (x, y))
        return Learned(*summary, model=self.model, _moments=moments, _visits=visits)

    def _rare_mass(self, chance: Floats) -> Floats:
        """The probability, in any state, of all that is rarer than this: the tables tell what may be unseen."""
        chances, most = self._masses
        count = self.model.num_scenarios * self.model.num_actions
        return np.minimum(most[np.searchsorted(chances, chance)], chance * count)

    @cached_property
    def _masses(self) -> tuple[Floats, Floats]:
        """The chances that occur, and before each of them what all smaller ones add up to in some state."""
        each = np.sort((self.model.probabilities[:, :, None] * self.policy[:, None, :]).reshape(len(self.policy), -1))
        rarest = np.unique(each[each > 0])
        together = np.cumsum(each, axis=1)
        found = [np.searchsorted(row, rarest, side="right") for row in each]
        most = np.max([np.append(0.0, row)[i] for row, i in zip(together, found, strict=True)], axis=0)
        return rarest, np.append(0.0, most)


def _check_memory(size: int, method: IncrementalSettings) -> None:
    """Values, averages, their successors in a step, and what is gathered on the way."""
    if method.joint:
        entries = math.comb(size + method.order, method.order)
        words = f"sorted tuples of up to {method.order} of {size} coordinates"
    else:
        entries = size * size * len(sample_backups.powers(method.order))
        words = f"moments of pairs of {size} coordinates"
    each = 6 if method.coordinates in (None, "sweep") else 10  # beside the values their bias bounds
    needed = 8 * each * method.replicas * entries
    if needed > method.memory_limit:
        raise ModelError(
            f"{entries:,} {words} in {method.replicas} replicas need about {needed / 2**30:.2g} GiB, above "
            f"memory_limit = {method.memory_limit / 2**30:.2g} GiB; take fewer replicas, a smaller order, or evaluate"
        )


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
        check_learnable(simulator, "cannot be listed", "returns over an endless future need one below 1")
        choice = method.coordinates or "pairs"
        if choice == "sweep":
            raise ModelError(
                'the states of a simulator are discovered on the way: coordinates must be "pairs", "trajectory" or '
                '"uniform"; for a sweep make tables first (from_gymnasium, from_noise, from_sampler)'
            )
        if method.start is not None:
            raise ModelError("a simulator begins where its start says; leave start out")
        bounds, bound = simulator.reward_bounds, method.reward_bound
        if bound is not None:
            bound = checks.as_amount("reward_bound", bound)
        elif bounds is not None and np.isfinite(bounds).all():
            bound = max(map(abs, bounds))
        else:
            raise ModelError(
                f"{simulator.name} does not say how large its rewards can be; give reward_bound=… (without it nothing "
                "could be said of what is not yet forgotten)"
            )
        described = run_of(simulator, policy, method) | {"reward_bound": bound}
        super().__init__(simulator, method, choice, bound, described)
        # Updates are the same for all lists, however they were chosen: one program.
        self._settings = replace(self._settings, choice="pairs")
        self.walks = ListWalks(simulator, policy, choice, method.seed, self.restart)
        self._begin(DiscoveredStates())

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
        needed = 8 * 10 * self.method.replicas * pairs * len(sample_backups.powers(self.method.order))
        if needed > self.method.memory_limit:
            raise ModelError(
                f"{len(self.discovered.states):,} states discovered so far, and {pairs:,} pairs of coordinates need "
                f"about {needed / 2**30:.2g} GiB, above memory_limit; states of continuous models never come back: "
                "give the simulator a coarser identity"
            )
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
        keys, actions, rewards = self._lanes.sampled(self.executor, step, count)
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

    def answer(self, state: State, log: tuple[dict[str, Any], ...] = ()) -> LearnedStates:
        """What has been learned so far."""
        state = self._grown(state)
        known = self.discovered.copy()

        def place(x: int, y: int) -> tuple[int]:
            found = known.place(x, y)
            if found is None:
                raise ModelError(f"this pair of coordinates of {self.simulator.name} has not been visited")
            return (found,)

        assert state.visits is not None
        mean, pair = (np.asarray(part, dtype=np.int64) for part in state.visits)
        return LearnedStates(
            *self._summary(state, log),
            simulator=self.simulator,
            reward_bound=self.reward_bound,
            discovered=known,
            _moments=self._learned(state, pair.shape[1:], place),
            _visits=(mean, pair),
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
