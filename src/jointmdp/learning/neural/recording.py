"""Recording queries along branches that begin where a policy plays: `walks` says how.

All randomness is addressed by lane and step: lanes can be recorded anywhere, and give the same. Lanes of a table are
stepped together, by the compiled walker.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from jointmdp.ground import checks
from jointmdp.ground.arrays import Bools, Floats, Ints, float64, on_device, random_key
from jointmdp.ground.errors import ModelError
from jointmdp.ground.files import FilePath, make_folder, path_name
from jointmdp.ground.progress import Meter
from jointmdp.learning.neural.queries import OVER, Lists, RecordedQueries, joined, no_covariances
from jointmdp.learning.table_walks import draw_tables, trunk_step
from jointmdp.learning.walks import Coordinate, DrawnOutcome, TrunkWalks, WalkTask, behaviour
from jointmdp.model.policies import as_policy
from jointmdp.simulation.executors import Executor, opened
from jointmdp.simulation.simulators.registry import as_simulator
from jointmdp.simulation.simulators.simulator import Simulator, Snapshot
from jointmdp.simulation.simulators.table_simulator import TableSimulator

TOGETHER = 4096  # lanes of a table that are stepped together
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
    """Queries of a simulator under a policy, for `jointmdp.Neural`.

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
    pair = leave if restart is None else checks.as_probability("restart", restart)
    episode = leave if episode_restart is None else checks.as_probability("episode_restart", episode_restart)
    steps = range(min(lane, count))
    tasks = [WalkTask(steps, range(i, i + 1), [[None]]) for i in range(-(-count // lane))]
    some = len(tasks) if isinstance(source, TableSimulator) else PART
    digest = behaviour(source, policy)
    kept = _Kept(
        folder, _asked(source, digest, queries=count, lane=lane, seed=seed, restart=pair, episode_restart=episode)
    )
    parts: list[tuple[NDArray[Any], Lists]] = []
    with opened(executor) as workers, Meter("recording queries") as meter:
        for i in range(0, len(tasks), some):
            found = kept.read(len(parts))
            if found is None:
                if isinstance(source, TableSimulator):
                    found = table_lists(source, policy, count, seed, pair, episode)
                else:
                    found = joined(
                        list(workers.map(Recorder(source, policy, seed, pair, episode), tasks[i : i + some]))
                    )
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


def _asked(source: Simulator, digest: str, **settings: Any) -> dict[str, Any]:
    """What must be the same for a recording to be continued."""
    told = {"simulator": source.name, "discount": source.discount, "sharing": source.sharing}
    return {**told, **settings, "digest": digest}


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


def table_lists(
    source: TableSimulator, policy: Floats, count: int, seed: int, restart: float, episode_restart: float
) -> tuple[Ints, Lists]:
    """Numbers of states as the pool, and lists."""
    model, lanes = source.model, min(TOGETHER, count)
    is_over = np.array([source.is_over(s) for s in range(model.num_states)])
    parts = []
    with float64():
        tables = draw_tables(model, policy, source.start_law, restart)
        over, key = on_device(is_over), random_key(seed)
        walkers = on_device(np.full((lanes, 3), -1, dtype=np.int32))
        for t in range(-(-count // lanes)):
            step = trunk_step(
                tables, walkers, jax.random.fold_in(key, t), on_device(episode_restart), over, source.sharing
            )
            walkers = step.walkers
            parts.append([np.asarray(part) for part in step[1:]])
    listed, rewards, nexts = (np.concatenate(each) for each in zip(*parts, strict=True))
    return np.arange(model.num_states), _as_lists(np.argwhere(model.available), is_over, listed, rewards, nexts)


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


class Recorder(TrunkWalks):
    """Records lanes of a simulator; a lane is the same in every process."""

    def __call__(self, task: WalkTask) -> tuple[NDArray[Any], Lists]:
        book = _Book(self.simulator)
        for (walker,), (draws,) in self.visits(task, [list(walkers) for walkers in task.walkers]):
            book.add(walker.places, draws)
        return book.lists()


class _Book:
    """The lists of a lane, and their pool."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self.pool: list[Any] = []
        self.numbers: dict[bytes, int] = {}
        self.rows: list[tuple[Any, ...]] = []

    def add(self, listed: Sequence[Coordinate], draws: list[list[DrawnOutcome]]) -> None:
        for each in draws:
            for place, reward, _ in each:
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

    def _observed(self, places: Sequence[Coordinate]) -> list[int]:
        return [0 if place.is_over else self._number(place) for place in places]

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
