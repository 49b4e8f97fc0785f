"""Queries of a table, many lanes in one step; the same rules as `recording`.

Queries along branches that begin where a policy plays.

In every lane a *trunk* follows the policy, episode after episode. A pair of branches begins at the trunk's state with
two different actions, and goes on for a geometric number of steps. In each of them three coordinates are listed, those
of both branches and another action in the state of the first, and their joint outcome is drawn twice. So both pairs of
one state and the pairs that these lead to are seen, in the proportion in which questions refer to them. Some pairs are
of a new branch and one of the pair before: covariances of states that lie far apart are asked for, too.

All randomness is addressed by lane and step: lanes can be recorded anywhere, and give the same.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

from jointmdp.ground import checks
from jointmdp.ground.arrays import Bools, Floats, Ints, float64, on_device, random_key
from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import ModelError
from jointmdp.ground.files import FilePath, make_folder, path_name
from jointmdp.ground.progress import Meter
from jointmdp.learning.incremental.simulator_walks import Coordinate, DrawnOutcome, Walks, behaviour, state_key
from jointmdp.learning.incremental.table_draws import DrawTables, draw_lists, draw_tables, uniforms
from jointmdp.learning.neural.queries import LISTED, OVER, Lists, RecordedQueries, joined, no_covariances
from jointmdp.model.inverse_sampling import drawn_rows
from jointmdp.model.policies import as_policy
from jointmdp.simulation.executors import Executor, opened
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.registry import as_simulator
from jointmdp.simulation.simulators.simulator import Simulator, Snapshot, as_agent
from jointmdp.simulation.simulators.table_simulator import TableSimulator

LANES = 4096  # stepped together
APART = 0.1  # of new pairs: one branch begins, the other goes on
BEGIN, DRAW, MOVE = 7, 4 * LISTED, 2  # uniform numbers of a lane in a step


class Restarts(NamedTuple):
    """The chances that a pair, and that an episode, begins anew in a step."""

    pair: float
    episode: float


class TableStep(NamedTuple):
    """A step of L lanes."""

    walkers: Int[Array, "L 3"]  # the trunk's state and two coordinates; −1 where something new must begin
    listed: Int[Array, "L m"]
    rewards: Float[Array, "L 2 m"]
    nexts: Int[Array, "L 2 m"]


def table_lists(
    source: TableSimulator, policy: Floats, count: int, restarts: Restarts, seed: int
) -> tuple[Ints, Lists]:
    """Numbers of states as the pool, and lists."""
    model, lanes = source.model, min(LANES, count)
    is_over = np.array([source.is_over(s) for s in range(model.num_states)])
    parts = []
    with float64():
        tables = draw_tables(model, policy, source.start_law, restarts.pair)
        over, key = on_device(is_over), random_key(seed)
        walkers = on_device(np.full((lanes, 3), -1, dtype=np.int32))
        for t in range(-(-count // lanes)):
            step = _step(tables, walkers, jax.random.fold_in(key, t), on_device(restarts.episode), over, source.sharing)
            walkers = step.walkers
            parts.append([np.asarray(part) for part in step[1:]])
    listed, rewards, nexts = (np.concatenate(each) for each in zip(*parts, strict=True))
    return np.arange(model.num_states), _as_lists(np.argwhere(model.available), is_over, listed, rewards, nexts)


@partial(jax.jit, static_argnames="sharing")
def _step(
    tables: DrawTables,
    walkers: Int[Array, "L 3"],
    key: Array,
    episode_restart: Float[Array, ""],
    is_over: Bool[Array, " S"],
    sharing: Sharing,
) -> TableStep:
    drawn = uniforms(key, (walkers.shape[0], BEGIN + DRAW + MOVE))
    begin, draw, move = jnp.split(drawn, [BEGIN, BEGIN + DRAW], axis=1)
    trunk, x, y = walkers.T
    first = drawn_rows(tables.start_ends, jnp.zeros_like(trunk), begin[:, 0])
    trunk = jnp.where((trunk < 0) | (begin[:, 1] < episode_restart), first, trunk)
    new = tables.packed[trunk, (begin[:, 3] * tables.counts[trunk]).astype(jnp.int32)]
    is_new = (x < 0) | (begin[:, 2] < tables.restart)
    is_apart = (x >= 0) & (begin[:, 6] < APART)
    second = jnp.where(is_apart, new, _other(tables, new, begin[:, 4]))
    x, y = jnp.where(is_new & ~is_apart, new, x), jnp.where(is_new, second, y)
    listed = jnp.stack([x, _other(tables, x, begin[:, 5]), y], axis=1)
    found = [
        draw_lists(tables, each[:, :LISTED], each[:, LISTED:], listed, sharing) for each in jnp.split(draw, 2, axis=1)
    ]
    rewards, nexts = (jnp.stack([getattr(each, name) for each in found], axis=1) for name in ("rewards", "nexts"))
    one, other = nexts[:, 0, 0], nexts[:, 0, 2]
    one_over, other_over = is_over[tables.states[one]], is_over[tables.states[other]]
    one, other = jnp.where(one_over, other, one), jnp.where(other_over, one, other)
    ends = one_over & other_over
    taken = tables.place[trunk, drawn_rows(tables.action_ends, trunk, move[:, 0])]
    trunk = tables.successors[taken, drawn_rows(tables.scenario_ends, trunk, move[:, 1])]
    after = [jnp.where(is_over[trunk], -1, trunk), jnp.where(ends, -1, one), jnp.where(ends, -1, other)]
    return TableStep(jnp.stack(after, axis=1).astype(jnp.int32), listed, rewards, nexts)


def _other(tables: DrawTables, x: Int[Array, " L"], uniform: Float[Array, " L"]) -> Int[Array, " L"]:
    """Another action of the same state; the same one where there is no other."""
    state = tables.states[x]
    first, count = tables.packed[state, 0], tables.counts[state]  # coordinates of a state follow each other
    return first + (x - first + 1 + (uniform * (count - 1)).astype(jnp.int32)) % count


def _as_lists(
    coordinates: Ints, is_over: Bools, listed: NDArray[np.int32], rewards: Floats, nexts: NDArray[np.int32]
) -> Lists:
    s, a = coordinates.T

    def numbered(x: NDArray[np.int32]) -> NDArray[np.int16]:
        states = s[x]
        return np.argmax(states[..., :, None] == states[..., None, :], axis=-1).astype(np.int16)

    def actions(x: NDArray[np.int32]) -> NDArray[np.int16]:
        return np.where(is_over[s[x]], OVER, a[x]).astype(np.int16)

    seen, seen_next = s[listed].astype(np.int32), s[nexts].astype(np.int32)
    here, there = (seen, actions(listed), numbered(listed)), (seen_next, actions(nexts), numbered(nexts))
    return Lists(*here, rewards, *there, no_covariances(len(listed)))


WORDS = ("", "again ")  # that make the noise of the two draws different
LANE = 1000  # lists of a lane
PART = 20  # lanes in a file


def record_queries(
    simulator: Any,
    policy: Any,
    count: int = 100_000,
    *,
    restart: float | None = None,
    episode_restart: float | None = None,
    lane: int = LANE,
    seed: int = 0,
    executor: Executor | str | None = None,
    folder: FilePath | None = None,
) -> RecordedQueries:  # many parameters: the settings of a recording, all but three by name
    """Queries of a simulator under a policy, for `jointmdp.train`.

    Args:
        simulator: a simulator, or what `jointmdp.as_simulator` makes one of.
        policy: as for `jointmdp.compare`.
        count: lists of coordinates; rounded up to whole lanes.
        restart: the chance that a pair of branches begins anew in a step; 1 − γ by default.
        episode_restart: the chance that the trunk begins a new episode in a step; 1 − γ by default. 0 for long games
            that are to be seen to their end.
        lane: lists one after the other in an episode.
        seed, executor: as for `jointmdp.compare`.
        folder: where finished parts are kept; a recording that was killed goes on from them.
    """
    source = as_simulator(simulator)
    policy = as_source_policy(source, policy)
    if source.action_names is None:
        raise ModelError(f"the actions of {source.name} are not numbered, and networks have one head for each")
    seed, count, lane = checks.as_count("seed", seed, 0), checks.as_count("count", count), checks.as_count("lane", lane)
    leave = 1 - source.discount
    if leave == 0 and None in (restart, episode_restart):
        raise ModelError(
            f"the discount of {source.name} is 1, so that branches and episodes would never begin anew; give `restart` "
            "and `episode_restart`, and for training a discount below 1"
        )
    chances = Restarts(
        leave if restart is None else checks.as_probability("restart", restart),
        leave if episode_restart is None else checks.as_probability("episode_restart", episode_restart),
    )
    tasks = [RecordTask(i, min(lane, count)) for i in range(-(-count // lane))]
    some = len(tasks) if isinstance(source, TableSimulator) else PART
    digest = behaviour(source, policy)
    kept = _Kept(folder, _asked(source, (count, lane, seed), chances, digest))
    parts: list[tuple[NDArray[Any], Lists]] = []
    with opened(executor) as workers, Meter("recording queries") as meter:
        for i in range(0, len(tasks), some):
            found = kept.read(len(parts))
            if found is None:
                if isinstance(source, TableSimulator):
                    found = table_lists(source, policy, count, chances, seed)
                else:
                    found = joined(list(workers.map(Recorder(source, policy, chances, seed), tasks[i : i + some])))
                kept.write(len(parts), _as_queries(source, found, digest))
            parts.append(found)
            meter.update((i + some) / len(tasks), f"{(i + some) * lane:,} lists")
    return _as_queries(source, joined(parts), digest)


def as_source_policy(source: Simulator, policy: Any) -> Any:
    """A policy of a table in any of its forms as probabilities ``[S, A]``; those of other simulators as they are."""
    return as_policy(source.model, policy) if isinstance(source, TableSimulator) else policy


def _as_queries(source: Simulator, found: tuple[NDArray[Any], Lists], digest: str) -> RecordedQueries:
    assert source.action_names is not None
    return RecordedQueries(source.name, source.discount, source.sharing, source.action_names, *found, digest)


def _asked(source: Simulator, sizes: tuple[int, int, int], chances: Restarts, digest: str) -> dict[str, Any]:
    """What must be the same for a recording to be continued."""
    told = {"simulator": source.name, "discount": source.discount, "sharing": source.sharing}
    named = dict(zip(("queries", "lane", "seed"), sizes, strict=True))
    return {**told, **named, "restart": chances.pair, "episode_restart": chances.episode, "digest": digest}


class _Kept:
    """Parts of a recording in a folder, if there is one."""

    def __init__(self, folder: FilePath | None, asked: dict[str, Any]) -> None:
        self.folder, self.asked = None if folder is None else path_name(folder), asked
        if self.folder is not None:
            make_folder(self.folder)

    def _path(self, number: int) -> str | None:
        return None if self.folder is None else os.path.join(self.folder, f"queries-{number:04}.jointmdp")

    def read(self, number: int) -> tuple[NDArray[Any], Lists] | None:
        path = self._path(number)
        if path is None or not os.path.exists(path):
            return None
        found = RecordedQueries.load(path, self.asked)
        return found.observations, found.lists

    def write(self, number: int, part: RecordedQueries) -> None:
        path = self._path(number)
        if path is not None:
            part.save(path, self.asked)


class RecordTask(NamedTuple):
    """A lane, and how many lists it has."""

    lane: int
    steps: int


class Recorder:
    """Records lanes of a simulator; a lane is the same in every process."""

    def __init__(self, simulator: Simulator, policy: Any, restarts: Restarts, seed: int) -> None:
        self.simulator, self.agent = simulator, as_agent(policy, simulator)
        self.restarts, self.seed = restarts, seed
        self.walks = Walks(simulator, self.agent, "pairs", seed, restarts.pair)

    def __call__(self, task: RecordTask) -> tuple[NDArray[Any], Lists]:
        book, trunk, pair = _Book(self.simulator), None, None
        for t in range(task.steps):
            trunk = self._trunk(t, task.lane, trunk)
            if pair is None or self._noise("restart", task.lane, t).uniform < self.restarts.pair:
                pair = self._begun(t, task.lane, trunk, pair)
            listed = [pair[0], self._other(t, task.lane, pair[0]), pair[1]]
            draws = [self.walks.drawn(word, t, task.lane, listed) for word in WORDS]
            book.add(listed, draws)
            one, _, other = (after for _, _, after in draws[0])
            # One branch goes on with itself where the other is over.
            alive = [place for place in (one, other) if place.action != OVER]
            pair = (alive[0], alive[-1]) if alive else None
            trunk = self._moved(t, task.lane, trunk)
        return book.lists()

    def _trunk(self, t: int, lane: int, state: Snapshot | None) -> Snapshot:
        if state is not None and self._noise("episode", lane, t).uniform >= self.restarts.episode:
            return state
        begun = self.simulator.start(self._noise("start", lane, t))
        if self.simulator.is_over(begun):
            raise ModelError(f"{self.simulator.name} starts in a state that is over; there is nothing to learn")
        return begun

    def _moved(self, t: int, lane: int, state: Snapshot) -> Snapshot | None:
        action = self.agent(state, self._noise("trunk policy", lane, t))
        (outcome,) = self.simulator.query(state, [action], self._noise("trunk", lane, t))
        return None if self.simulator.is_over(outcome.state) else outcome.state

    def _begun(
        self, t: int, lane: int, state: Snapshot, pair: tuple[Coordinate, Coordinate] | None
    ) -> tuple[Coordinate, Coordinate]:
        """Two actions of a state, different ones if there are; or one of it, beside a branch of the pair before."""
        actions = list(self.simulator.available(state))
        first = Coordinate(state, state_key(self.simulator, state), int(self._picked("first", t, lane, actions)))
        if pair is not None and self._noise("apart", lane, t).uniform < APART:
            return pair[0], first
        return first, self._other(t, lane, first, "second")

    def _other(self, t: int, lane: int, place: Coordinate, word: str = "other") -> Coordinate:
        """Another action of a state."""
        others = [action for action in self.simulator.available(place.state) if action != place.action]
        return place._replace(action=int(self._picked(word, t, lane, others))) if others else place

    def _picked(self, word: str, t: int, lane: int, actions: list[Any]) -> Any:
        return actions[int(self._noise(word, lane, t).uniform * len(actions))]

    def _noise(self, word: str, *where: int) -> Noise:
        return Noise("recording", word, self.seed, *where)


class _Book:
    """The lists of a lane, and their pool."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self.pool: list[Any] = []
        self.numbers: dict[bytes, int] = {}
        self.rows: list[tuple[Any, ...]] = []

    def add(self, listed: list[Coordinate], draws: list[list[DrawnOutcome]]) -> None:
        for each in draws:
            for place, (_, reward, _) in zip(listed, each, strict=True):
                if not math.isfinite(reward):
                    action, seen = self.simulator.action_label(place.action), self.simulator.observe(place.state)
                    raise ModelError(f"{self.simulator.name} gave a reward of {reward} for {action} in {seen!r:.60}")
        nexts = [[after for _, _, after in each] for each in draws]
        self.rows.append(
            (
                self._observed(listed),
                [place.action for place in listed],
                _numbered(listed),
                [[reward for _, reward, _ in each] for each in draws],
                [self._observed(each) for each in nexts],
                [[place.action for place in each] for each in nexts],
                [_numbered(each) for each in nexts],
            )
        )

    def _observed(self, places: list[Coordinate]) -> list[int]:
        return [0 if place.action == OVER else self._number(place) for place in places]

    def _number(self, place: Coordinate) -> int:
        found = self.numbers.get(place.key)
        if found is None:
            found = self.numbers[place.key] = len(self.pool)
            seen = as_numbers(self.simulator, place.state)
            if self.pool and seen.shape != self.pool[0].shape:
                raise ModelError(
                    f"observations of {self.simulator.name} have different shapes, {list(self.pool[0].shape)} and "
                    f"{list(seen.shape)}; a network needs one"
                )
            self.pool.append(seen)
        return found

    def lists(self) -> tuple[NDArray[Any], Lists]:
        kinds = (np.int32, np.int16, np.int16, np.float64, np.int32, np.int16, np.int16)
        columns: list[NDArray[Any]] = [
            np.array(column, dtype=kind) for column, kind in zip(zip(*self.rows, strict=True), kinds, strict=True)
        ]
        columns.append(no_covariances(len(self.rows)))
        return np.array(self.pool), Lists(*columns)


def as_numbers(simulator: Simulator, state: Snapshot) -> NDArray[Any]:
    """What is observed of a state as an array of numbers; dictionaries and tuples are laid end to end."""
    seen = simulator.observe(state)
    try:
        if isinstance(seen, dict | tuple | list):
            leaves = [np.ravel(leaf) for leaf in jax.tree.leaves(seen)]
            found = np.concatenate(leaves) if leaves else np.zeros(0)
        else:
            found = np.asarray(seen)
        if found.dtype.kind in "fiub":
            return found
    except (TypeError, ValueError):
        pass
    raise ModelError(f"the observation {seen!r:.80} of {simulator.name} is no array of numbers, which a network needs")


def _numbered(places: Iterable[Coordinate]) -> list[int]:
    """Numbers that are equal for equal states."""
    numbers: dict[bytes, int] = {}
    return [numbers.setdefault(place.key, len(numbers)) for place in places]
