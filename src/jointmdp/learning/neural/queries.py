"""Recorded queries: which coordinates were listed together, two draws of what they gave, and how networks read them.

A list names three coordinates: two actions of one state, and where the other branch of a pair stands. What is observed
lies in a pool, and lists point into it: most states are named more than once. What networks read, and in which units
they answer, follows from the recorded queries alone.

`walks.TrunkWalks` says which lists are recorded. All randomness is addressed by lane and step: lanes can be recorded
anywhere, and give the same. Lanes of a table are stepped together, by the compiled walker.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from jointmdp.ground import archives, checks
from jointmdp.ground.archives import check_run
from jointmdp.ground.arrays import Bools, Floats, Ints, float64, on_device, random_key
from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import ModelError, NotKnownError
from jointmdp.ground.files import FilePath, make_folder, path_name
from jointmdp.ground.progress import Meter
from jointmdp.learning.table_walks import draw_tables, trunk_step
from jointmdp.learning.walks import Coordinate, TrunkWalks, WalkTask, behaviour
from jointmdp.model.policies import as_policy
from jointmdp.simulation.executors import Executor, opened
from jointmdp.simulation.simulators.fingerprints import fingerprint
from jointmdp.simulation.simulators.registry import as_simulator
from jointmdp.simulation.simulators.simulator import Simulator, Snapshot
from jointmdp.simulation.simulators.table_simulator import TableSimulator

LISTED = 3  # m, coordinates of a list
OVER = -1  # the action of a coordinate whose episode is over
KIND = "queries"


class Lists(NamedTuple):
    """V lists: observations by their number in the pool, actions, and numbers that tell states of a list apart."""

    observed: NDArray[Any]  # [V, m], int32
    actions: NDArray[Any]  # [V, m], int16
    states: NDArray[Any]  # [V, m], int16
    rewards: NDArray[Any]  # [V, 2, m]
    next_observed: NDArray[Any]  # [V, 2, m], int32
    next_actions: NDArray[Any]  # [V, 2, m], int16
    next_states: NDArray[Any]  # [V, 2, m], int16
    reward_covariances: NDArray[Any]  # [V, m, m], of what the rewards leave out; 0 where they were drawn

    @property
    def is_alive(self) -> Bools:
        """Where there is a coordinate: not where its episode was over, ``[V, m]``."""
        return np.asarray(self.actions != OVER)


@dataclass(frozen=True, eq=False)
class RecordedQueries:
    """Queries of a simulator under a policy, as `record_queries` makes them; `jointmdp.Neural` learns from them."""

    simulator: str
    discount: float
    sharing: Sharing
    action_names: tuple[str, ...]
    observations: NDArray[Any]
    """The pool, ``[N, …]``."""
    lists: Lists
    behaviour: str = ""
    """A digest of what the simulator and the policy do; empty where rewards were changed afterwards."""

    def __post_init__(self) -> None:
        if self.observations.dtype.kind not in "fiub":
            raise ModelError(f"observations of {self.simulator} are no numbers: {self.observations.dtype}")
        object.__setattr__(self, "observations", _held(self.observations))
        if self.observations.dtype.kind == "f" and not np.isfinite(self.observations).all():
            raise ModelError(f"an observation of {self.simulator} is not finite")
        if not (np.isfinite(self.lists.rewards).all() and np.isfinite(self.lists.reward_covariances).all()):
            raise ModelError(f"a reward of {self.simulator} is not finite")

    def __len__(self) -> int:
        return len(self.lists.actions)

    def __repr__(self) -> str:
        size = sum(part.nbytes for part in (self.observations, *self.lists))
        return (
            f"RecordedQueries({self.simulator}, {len(self):,} lists of {LISTED} coordinates, "
            f"{len(self.observations):,} observations {list(self.observations.shape[1:])}, {size / 2**20:.3g} MiB)"
        )

    def with_rewards(
        self, rewards: Floats, covariances: Floats | None = None, *, discount: float | None = None
    ) -> RecordedQueries:
        """The same queries with other rewards ``[V, 2, m]``: those that do not change where a state leads.

        Noise in rewards that is known in law need not be drawn: give the expectations of rewards, and with
        `covariances` ``[V, m, m]`` what the noise of listed coordinates has in common.
        """
        old = self.lists
        none = np.zeros_like(old.reward_covariances)
        given = [np.asarray(each, np.float64) for each in (rewards, none if covariances is None else covariances)]
        for name, new, like in zip(("rewards", "covariances"), given, (old.rewards, none), strict=True):
            if new.shape != like.shape:
                raise ModelError(f"{name} have the shape {list(new.shape)}, not {list(like.shape)}")
        factor = self.discount if discount is None else checks.as_discount(discount)
        lists = old._replace(rewards=given[0], reward_covariances=given[1])
        return RecordedQueries(self.simulator, factor, self.sharing, self.action_names, self.observations, lists)

    def save(self, path: FilePath, run: Mapping[str, Any] | None = None) -> None:
        """Write to a file, with what was asked of the run that they belong to."""
        arrays = {"observations": self.observations, **self.lists._asdict()}
        page = {
            **archives.HEAD,
            "kind": KIND,
            "simulator": self.simulator,
            "discount": self.discount,
            "sharing": self.sharing,
            "action_names": list(self.action_names),
            "behaviour": self.behaviour,
            "run": dict(run or {}),
        }
        archives.write(path, page, {name: _plain(array) for name, array in arrays.items()})

    @classmethod
    def load(cls, path: FilePath, run: Mapping[str, Any] | None = None) -> RecordedQueries:
        """Read from a file; that of another run than a given one is refused."""
        page, arrays = archives.read(path)
        if page.get("kind") != KIND or list(arrays) != ["observations", *Lists._fields]:
            raise ModelError(f"{path_name(path)!r} holds no recorded queries")
        if run is not None:
            check_run(path_name(path), page.get("run", {}), run)
        pool, names = arrays.pop("observations"), tuple(page["action_names"])
        told = (page["simulator"], page["discount"], page["sharing"], names)
        return cls(*told, pool, Lists(**arrays), page["behaviour"])

    def digest(self) -> str:
        """Of everything that a network learns from."""
        return fingerprint([self.discount, self.sharing, self.observations, *self.lists]).hex()


def _held(observations: NDArray[Any]) -> NDArray[Any]:
    """In a type that files know, so that what is loaded is what was recorded: flags are read as numbers, 0 and 1."""
    if observations.dtype.kind == "b":
        return observations.astype(np.float32)
    plain = _plain(observations)
    return plain.astype(plain.dtype.newbyteorder("="), copy=False)


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """As files hold it: bytes, and whole numbers and floats of at least 16 and 32 bits, little-endian."""
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind in "ub" and size == 1:
        return np.ascontiguousarray(array).view(np.uint8)
    bits = {"f": max(size, 4), "i": max(size, 2)}.get(kind, 8)
    return np.ascontiguousarray(array, dtype=f"<{'f' if kind == 'f' else 'i'}{min(8, bits)}")


def joined(parts: list[tuple[NDArray[Any], Lists]]) -> tuple[NDArray[Any], Lists]:
    """Pools and lists one after the other."""
    shapes = list(dict.fromkeys(pool.shape[1:] for pool, _ in parts))
    if len(shapes) > 1:
        raise _shapes_differ("", *shapes[:2])
    starts = np.cumsum([0, *(len(pool) for pool, _ in parts)])[:-1].tolist()
    moved = [
        lists._replace(observed=lists.observed + start, next_observed=lists.next_observed + start)
        for (_, lists), start in zip(parts, starts, strict=True)
    ]
    columns: list[NDArray[Any]] = [np.concatenate(each) for each in zip(*moved, strict=True)]
    return np.concatenate([pool for pool, _ in parts]), Lists(*columns)


InputKind = Literal["number", "vector", "bytes", "frames"]
LEAST_SIDE = 36  # pixels of a frame that the convolutions leave something of
CONSTANT = 1e-6  # of the largest spread: what varies less is taken as constant
REACH = 3.0  # spreads that a number may be from its centre; what lies beyond is read as this far
SAMPLE = 100_000  # observations that centres and spreads come from
SHIFTING = 0.1  # of what states differ in, in squares: about what comes into returns as states change
MOST_NUMBERS = 20_000  # names of states that a network has an input for
FAR = 100.0  # times their spread: rewards that lie so far from 0 are centred first, since float32 has seven digits
SELDOM = 1e-4  # a bit that differs from the others in less of the observations is taken as constant


class Units(NamedTuple):
    """Of returns: where means lie, how far they spread, and the standard deviation of a return, roughly."""

    offset: float
    mean: float
    deviation: float
    reward: float = 0.0
    """What is taken from every reward first, and given back to means."""


class Encoding(NamedTuple):
    """How observations of one kind become the input of a network."""

    kind: InputKind
    shape: tuple[int, ...]  # of an input
    centre: NDArray[np.float32]
    spread: NDArray[np.float32]
    bits: NDArray[np.int64]  # of bytes: those that vary, numbered from the highest of the first byte
    numbers: NDArray[np.int64]  # the names of states that were recorded
    units: Units

    @classmethod
    def of(cls, queries: RecordedQueries) -> Encoding:
        """What fits the queries: whole numbers are names of states, images are frames, all else is a vector.

        Vectors of bytes, as the memory of a game, are read twice: as numbers, and bit by bit. Bytes hold flags and
        patterns as often as sizes.
        """
        pool, units = queries.observations, units_of(queries)
        none, one, bits = np.zeros(1, np.float32), np.ones(1, np.float32), np.zeros(0, np.int64)
        if pool.ndim == 1 and pool.dtype.kind in "iu" and pool.size:
            numbers = np.unique(pool).astype(np.int64)
            if len(numbers) > MOST_NUMBERS:
                raise ModelError(
                    f"observations of {queries.simulator} are whole numbers, which are taken for names of states, and "
                    f"{len(numbers):,} different ones were recorded; observe a float, as in float(stock), to have them "
                    "read as amounts"
                )
            return cls("number", (len(numbers),), none, one, bits, numbers, units)
        if pool.ndim == 4 and min(pool.shape[1:3]) >= LEAST_SIDE:
            largest = 255.0 if pool.dtype == np.uint8 else max(1.0, float(np.abs(pool[:: len(pool) // 100 + 1]).max()))
            return cls("frames", pool.shape[1:], none, np.float32(largest) * one, bits, bits, units)
        some = pool[:: max(1, len(pool) // SAMPLE)].reshape(-1, math.prod(pool.shape[1:]))
        flat = some.astype(np.float64)
        if not flat.shape[1]:
            raise ModelError(f"observations of {queries.simulator} are empty")
        spread = flat.std(axis=0)
        # What never varied stays out: where it does vary later, nothing is known of what that means.
        varies = spread > CONSTANT * max(float(spread.max()), np.finfo(float).tiny)
        inverse = np.where(varies, spread, np.inf)
        centre, width = flat.mean(axis=0).astype(np.float32), flat.shape[1]
        if pool.dtype != np.uint8:
            return cls("vector", (width,), centre, inverse.astype(np.float32), bits, bits, units)
        share = np.concatenate([np.unpackbits(byte[:, None], axis=1).mean(axis=0) for byte in some.T])
        seen = np.flatnonzero((share > SELDOM) & (share < 1 - SELDOM))
        return cls("bytes", (width + len(seen),), centre, inverse.astype(np.float32), seen, bits, units)

    def stored(self, observations: NDArray[Any]) -> NDArray[Any]:
        """Observations as the training loop holds them: small."""
        if self.kind == "number":
            return np.searchsorted(self.numbers, observations).astype(np.int32)
        if self.kind == "bytes":
            return observations.reshape(len(observations), -1).astype(np.uint8)
        if self.kind == "frames":
            return observations.reshape(len(observations), *self.shape)
        return ((observations.reshape(len(observations), -1) - self.centre) / self.spread).astype(np.float32)

    def inputs(self, stored: Array) -> Array:
        """The input of a network, ``[…, *shape]``."""
        if self.kind == "number":
            return jax.nn.one_hot(stored, self.shape[0], dtype=jnp.float32)
        if self.kind == "vector":
            return jnp.clip(stored, -REACH, REACH)
        numbers = (stored.astype(jnp.float32) - self.centre) / self.spread
        if self.kind == "frames":
            return numbers
        byte, place = self.bits // 8, (7 - self.bits % 8).astype(np.uint8)
        signs = 2.0 * ((stored[..., byte] >> place) & 1).astype(jnp.float32) - 1
        return jnp.concatenate([jnp.clip(numbers, -REACH, REACH), signs], axis=-1)

    def one(self, observation: NDArray[Any]) -> NDArray[Any]:
        """A single observation as stored, checked."""
        if not np.isfinite(observation).all():
            raise ModelError("the observation is not finite")
        if self.kind == "number":
            if observation.ndim or not np.isin(observation, self.numbers):
                raise NotKnownError(f"the state {observation} was not among the recorded ones: nothing is known of it")
        elif observation.size != math.prod(self.shape) - len(self.bits):
            raise ModelError(
                f"the observation has {observation.size} numbers, and the network reads "
                f"{math.prod(self.shape) - len(self.bits)}"
            )
        return self.stored(observation[None])[0]


def units_of(queries: RecordedQueries) -> Units:
    """Rough sizes from rewards: two draws of one coordinate tell noise from what differs between coordinates."""
    lists, discount = queries.lists, queries.discount
    alive = lists.is_alive
    if not alive.any():
        raise ModelError(f"every recorded coordinate of {queries.simulator} is over")
    first, second = (lists.rewards[:, k][alive] for k in range(2))
    goes_on = float((lists.next_actions != OVER).transpose(0, 2, 1)[alive].mean())
    offset = float(lists.rewards.transpose(0, 2, 1)[alive].mean())
    known = float(np.einsum("vii->vi", lists.reward_covariances)[alive].mean())
    noise = 0.5 * float(np.mean((first - second) ** 2)) + known
    between = max(0.0, float(np.mean((first - offset) * (second - offset))))
    longest = 1 / (1 - discount * goes_on)
    # What states differ in passes as they change: sums of it grow like a random walk, not like their length.
    centre, spread = offset * longest, math.sqrt(between * longest)
    # Where rewards are certain or nearly so, what is random is when they come.
    random = max(noise, SHIFTING * between) if noise else between
    deviation = math.sqrt(random / (1 - discount**2 * goes_on)) or abs(centre) or 1.0
    if goes_on == 1 and offset**2 > FAR**2 * (noise + between) > 0:
        return Units(0.0, max(spread, deviation / 10), deviation, offset)
    return Units(centre, max(spread, deviation / 10), deviation)


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
        restart: the chance that a pair of branches restarts in a step; 1 − γ by default.
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
            f"the discount of {source.name} is 1, so that branches and episodes would never restart; give `restart` "
            "and `episode_restart`, and for training a discount below 1"
        )
    pair = leave if restart is None else checks.as_probability("restart", restart)
    episode = leave if episode_restart is None else checks.as_probability("episode_restart", episode_restart)
    steps = range(min(lane, count))
    tasks = [WalkTask(steps, range(i, i + 1), [[None]]) for i in range(-(-count // lane))]
    some = len(tasks) if isinstance(source, TableSimulator) else PART
    digest, told = behaviour(source, policy), (source.name, source.discount, source.sharing, source.action_names)
    # What must be the same for a recording to be continued.
    asked: dict[str, Any] = {"simulator": source.name, "discount": source.discount, "sharing": source.sharing}
    asked |= {"queries": count, "lane": lane, "seed": seed, "restart": pair, "episode_restart": episode}
    asked |= {"digest": digest}
    if folder is not None:
        make_folder(folder)
    parts: list[tuple[NDArray[Any], Lists]] = []
    with opened(executor) as workers, Meter("recording queries") as meter:
        for i in range(0, len(tasks), some):
            path = None if folder is None else os.path.join(path_name(folder), f"queries-{len(parts):04}.jointmdp")
            if path is not None and os.path.exists(path):
                part = RecordedQueries.load(path, asked)
            else:
                if isinstance(source, TableSimulator):
                    found = table_lists(source, policy, count, seed, pair, episode)
                else:
                    recorder = Recorder(source, policy, seed, pair, episode)
                    found = joined(list(workers.map(recorder, tasks[i : i + some])))
                part = RecordedQueries(*told, *found, digest)
                if path is not None:
                    part.save(path, asked)
            parts.append((part.observations, part.lists))
            meter.update((i + some) / len(tasks), f"{(i + some) * lane:,} lists")
    return RecordedQueries(*told, *joined(parts), digest)


def as_source_policy(source: Simulator, policy: Any) -> Any:
    """A policy of a table in any of its forms as probabilities ``[S, A]``; those of other simulators as they are."""
    return as_policy(source.model, policy) if isinstance(source, TableSimulator) else policy


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
    s, a = np.argwhere(model.available).T

    def columns(x: NDArray[np.int32]) -> tuple[NDArray[Any], ...]:
        """States, actions, and numbers that are equal for equal states of a list."""
        states = s[x]
        numbered = np.argmax(states[..., :, None] == states[..., None, :], axis=-1)
        actions = np.where(is_over[states], OVER, a[x])
        return states.astype(np.int32), actions.astype(np.int16), numbered.astype(np.int16)

    found: list[NDArray[Any]] = [*columns(listed), rewards, *columns(nexts), np.zeros((len(listed), LISTED, LISTED))]
    return np.arange(model.num_states), Lists(*found)


class Recorder(TrunkWalks):
    """Records lanes of a simulator; a lane is the same in every process."""

    def __call__(self, task: WalkTask) -> tuple[NDArray[Any], Lists]:
        simulator, numbers = self.simulator, dict[bytes, int]()  # of states, in the pool
        pool: list[NDArray[Any]] = []
        rows: list[tuple[Any, ...]] = []

        def observed(place: Coordinate) -> int:
            if place.is_over:
                return 0
            if place.key not in numbers:
                seen = as_numbers(simulator, place.state)
                if pool and seen.shape != pool[0].shape:
                    raise _shapes_differ(f" of {simulator.name}", pool[0].shape, seen.shape)
                numbers[place.key] = len(pool)
                pool.append(seen)
            return numbers[place.key]

        def columns(places: Sequence[Coordinate]) -> tuple[list[int], ...]:
            """Observations by their number in the pool, actions, and numbers that are equal for equal states."""
            same = dict[bytes, int]()
            return (
                [observed(place) for place in places],
                [place.action for place in places],
                [same.setdefault(place.key, len(same)) for place in places],
            )

        for (walker,), (draws,) in self.visits(task, [list(walkers) for walkers in task.walkers]):
            for place, reward, _ in (each for draw in draws for each in draw):
                if not math.isfinite(reward):
                    action, seen = simulator.action_label(place.action), simulator.observe(place.state)
                    raise ModelError(f"{simulator.name} gave a reward of {reward} for {action} in {seen!r:.60}")
            here, rewards = columns(walker.places), [[each.reward for each in draw] for draw in draws]
            nexts = [columns([each.after for each in draw]) for draw in draws]
            rows.append((*here, rewards, *zip(*nexts, strict=True)))
        kinds = (np.int32, np.int16, np.int16, np.float64, np.int32, np.int16, np.int16)
        found = [np.array(column, dtype=kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
        found.append(np.zeros((len(rows), LISTED, LISTED)))
        return np.array(pool), Lists(*found)


def _shapes_differ(whose: str, one: Sequence[int], other: Sequence[int]) -> ModelError:
    return ModelError(f"observations{whose} have different shapes, {list(one)} and {list(other)}; a network needs one")


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
