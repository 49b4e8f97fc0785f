"""What has been learned so far, with its errors: an answer at any time.

Of a simulator that is also what has been discovered: states, their coordinates and pairs of these, and how to get back
to each.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointmdp.exact.bellman.sample_backups import powers
from jointmdp.exact.bellman.tuple_moments import Tuples
from jointmdp.exact.moments.certificates import norm_weight
from jointmdp.ground import checks
from jointmdp.ground.answers import SHOWN, SHOWN_STATES, as_dataset
from jointmdp.ground.arrays import Floats, Ints
from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import ModelError
from jointmdp.learning.estimates import Estimate, Replicas, RunSummary, StateAnswers
from jointmdp.learning.walks import NOWHERE, Coordinate, ListWalks, state_key
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.tables import ActionLike, StateLike
from jointmdp.simulation.simulators.simulator import Simulator, Snapshot

if TYPE_CHECKING:
    import xarray

OVER = 0  # number of the coordinate that pays nothing any more, and of every pair with it
BITS = 31  # of the number of a coordinate
MASK = (1 << BITS) - 1
BEGINNING = -1  # in place of a number: the starting state of this walker at this step


@dataclass
class DiscoveredStates:
    """What has been discovered: states by the fingerprint of their identity, coordinates, and pairs of these.

    Numbers are given in the order of discovery, so that they do not depend on how many steps are looked at together.
    """

    states: dict[bytes, int] = field(default_factory=dict)
    coordinates: dict[tuple[int, int], int] = field(default_factory=dict)  # (state, action) → number, from 1
    pairs: dict[int, int] = field(default_factory=dict)  # two coordinates as one number → place, from 1

    def number(self, keys: NDArray[Any], actions: Ints) -> tuple[NDArray[np.int32], list[int]]:
        """The numbers of coordinates given as names of states and actions, NOWHERE where it is over.

        Beside them, at which of them each new state was first seen.
        """
        numbers, news = [], []
        for i, (key, action) in enumerate(zip(keys.ravel().tolist(), actions.ravel().tolist(), strict=True)):
            if action == NOWHERE:
                numbers.append(OVER)
                continue
            if key not in self.states:
                self.states[key] = len(self.states)
                news.append(i)
            numbers.append(self.coordinates.setdefault((self.states[key], action), len(self.coordinates) + 1))
        return np.array(numbers, dtype=np.int32), news

    def places(self, x: NDArray[Any], y: NDArray[Any]) -> Ints:
        """Where pairs of coordinates are stored; the two arrays are broadcast."""
        every = _code(x, y)
        codes, first, where = np.unique(every, return_index=True, return_inverse=True)
        is_over = ((codes >> BITS) == OVER) | ((codes & MASK) == OVER)
        found = np.full(len(codes), OVER, dtype=np.int64)
        for i in np.argsort(first):
            if not is_over[i]:
                found[i] = self.pairs.setdefault(int(codes[i]), len(self.pairs) + 1)
        return found[where.reshape(every.shape)]

    def place(self, x: int, y: int) -> int | None:
        """Where a pair of coordinates is stored, if it was seen."""
        return self.pairs.get((x << BITS) | y)

    def seen_pairs(self) -> Ints:
        """All pairs that were seen, ``[N, 2]``, in the order of their places."""
        codes = np.array(list(self.pairs), dtype=np.int64)
        return np.stack([codes >> BITS, codes & MASK], axis=1)

    def copy(self) -> DiscoveredStates:
        """As it is now."""
        return DiscoveredStates(dict(self.states), dict(self.coordinates), dict(self.pairs))

    def arrays(self) -> dict[str, Ints]:
        """As arrays of whole numbers, in order of discovery."""
        return {
            "states": np.frombuffer(b"".join(self.states), dtype="<i8").reshape(-1, 2).astype(np.int64),
            "coordinates": np.array(list(self.coordinates), dtype=np.int64).reshape(-1, 2),
            "pairs": self.seen_pairs(),
        }

    @classmethod
    def of(cls, arrays: Mapping[str, Any]) -> DiscoveredStates:
        """From `arrays`."""
        codes = _code(arrays["pairs"][:, 0], arrays["pairs"][:, 1])
        return cls(
            {row.astype("<i8").tobytes(): i for i, row in enumerate(arrays["states"])},
            {(int(s), int(a)): i + 1 for i, (s, a) in enumerate(arrays["coordinates"])},
            {int(code): i + 1 for i, code in enumerate(codes)},
        )


def _code(x: NDArray[Any], y: NDArray[Any]) -> Ints:
    return (x.astype(np.int64) << BITS) | y.astype(np.int64)


class KnownCoordinates:
    """The coordinates among which a uniform choice picks: all actions of the states that are known.

    A checkpoint holds how each state was first reached, not its snapshot. The noise of every step has an address, so
    one query makes the snapshot again, in this process or in the one that continues the run. Other choices leave it
    empty.
    """

    def __init__(self, walks: ListWalks) -> None:
        self.walks = walks
        self.known = 0  # states that are open to choice
        # Parent state or BEGINNING, action or NOWHERE (the parent itself), and the step, lane and walker of the move.
        self.origins: list[tuple[int, int, int, int, int]] = []
        self._snapshots: list[Snapshot] = []
        walks.known = []

    def open(self, keys: Sequence[bytes]) -> None:
        """Let the states with these names, in the order of discovery, be chosen from now on."""
        self.known = len(keys)
        for number, key in enumerate(keys[len(self._snapshots) :], len(self._snapshots)):
            state = self._made(number)
            self._snapshots.append(state)
            self.walks.known += [Coordinate(state, key, int(a)) for a in self.walks.simulator.available(state)]

    def _made(self, number: int) -> Snapshot:
        parent, action, step, lane, w = self.origins[number]
        state = self.walks.started(step, lane, w) if parent == BEGINNING else self._snapshots[parent]
        if action == NOWHERE:
            return state
        (outcome,) = self.walks.outcomes("", step, lane, state, state_key(self.walks.simulator, state), [action])
        return outcome.state

    def note(self, found: DiscoveredStates, first: int, keys: NDArray[Any], actions: Ints, news: list[int]) -> None:
        """Where the states that some steps discovered came from; `news` are their places in ``actions[T, L, 2m]``."""
        for t, lane, p in zip(*np.unravel_index(np.array(news, dtype=np.intp), actions.shape), strict=True):
            w, step = int(p) % self.walks.length, first + int(t)  # each walker lists one coordinate
            # Snapshots of one identity may differ: a walker that began stood at its own, not at that of the number.
            has_begun = self.walks.pick(step, int(lane), w) is None
            parent = BEGINNING if has_begun else found.states[keys[t, lane, w].tobytes()]
            action = int(actions[t, lane, w]) if p >= self.walks.length else NOWHERE
            self.origins.append((parent, action, step, int(lane), w))

    def arrays(self) -> dict[str, Ints]:
        """As arrays of whole numbers."""
        origins = np.array(self.origins, dtype=np.int64).reshape(-1, 5)
        return {"origins": origins, "known": np.array([self.known], dtype=np.int64)}

    @classmethod
    def of(cls, walks: ListWalks, arrays: Mapping[str, Ints], keys: Sequence[bytes]) -> KnownCoordinates:
        """From `arrays`; `keys` name the states."""
        found = cls(walks)
        found.origins = [(p, a, step, lane, w) for p, a, step, lane, w in arrays["origins"].tolist()]
        found.open(keys[: int(arrays["known"][0])])
        return found


RARE = 30  # fewer visits than this say little, whatever the step sizes


class BlockVisits(NamedTuple):
    """How often the coordinates of one kind were updated, over all replicas; the theorem asks for infinitely often."""

    kind: str
    coordinates: int
    never: int
    """Coordinates that some replica never updated."""
    rarely: int
    """Coordinates updated, but in some replica fewer than 30 times."""
    fewest: int
    median: float
    examples: tuple[str, ...]
    """Some of the never and rarely visited."""

    def __str__(self) -> str:
        seen = f"{self.kind}: {self.coordinates:,} coordinates, updated {self.fewest:,} times at least, median "
        seen += f"{self.median:,.0f}"
        if self.never or self.rarely:
            seen += f"; never {self.never:,}, rarely {self.rarely:,} ({', '.join(self.examples)}, …)"
        return seen


@dataclass(frozen=True, eq=False)
class LearnedMoments:
    """Moments of one and two coordinates as learned; `at` gives those of given coordinates."""

    order: int
    sharing: Sharing
    mean: Replicas  # [X]
    pair: Replicas  # [K, X, X], or [K, N] of the N pairs that were seen
    place: Callable[[Any, Any], tuple[Any, ...]]
    """Where pairs of coordinates are held, behind the axis of the powers."""

    def single(self, k: int, x: Any) -> Replicas:
        """E[Z(x)ᵏ] for arrays of coordinates."""
        return self.mean[x] if k == 1 else self.pair[powers(self.order).index((k - 1, 1)), *self.place(x, x)]

    def at(self, i: int, j: int, x: Any, y: Any) -> Replicas:
        """E[Z(x)ⁱ Z(y)ʲ] for arrays of coordinates."""
        held = powers(self.order)
        if (i, j) not in held:
            raise ModelError(f"powers {i!r}, {j!r} asked for; held are i, j ≥ 1 with i + j up to {self.order}")
        found = self.pair[held.index((i, j)), *self.place(x, y)]
        if self.sharing != "none":
            return found
        # Distinct coordinates are independent: nothing has to be learned but the moments of each.
        product = self.single(i, x).times(self.single(j, y))
        same = np.asarray(x) == np.asarray(y)
        bounds = np.where(same, found.bias_bound, product.bias_bound)
        return Replicas(
            np.where(same, found.values, product.values), bounds, np.where(same, found.unseen, product.unseen)
        )

    def covariance(self, x: Any, y: Any) -> Replicas:
        """Cov(Z(x), Z(y)) for arrays of coordinates."""
        return self.at(1, 1, x, y).plus(self.mean[x].times(self.mean[y]), -1.0)


@dataclass(frozen=True, eq=False, repr=False)
class PairAnswers(RunSummary, StateAnswers):
    """What is answered alike whether states have numbers or were discovered; coordinates are numbers."""

    _moments: LearnedMoments = field(kw_only=True)

    def _mean(self, x: int) -> Estimate:
        return self._moments.mean[x].estimate

    def _second_moment(self, x: int, y: int) -> Estimate:
        return self._moments.at(1, 1, x, y).estimate

    def _covariance(self, x: int, y: int) -> Estimate:
        return self._moments.covariance(x, y).estimate

    def _difference(self, x: int, y: int) -> tuple[Estimate, Estimate]:
        moments = self._moments
        means = moments.mean[x].plus(moments.mean[y], -1.0)
        second = moments.at(1, 1, x, x).plus(moments.at(1, 1, y, y))
        second = second.plus(moments.at(1, 1, x, y), -1.0).plus(moments.at(1, 1, y, x), -1.0)
        return means.estimate, second.plus(means.times(means), -1.0).estimate

    def _largest_error(self, weight: float, mean: Replicas, pair: Callable[[int, int], Replicas]) -> float:
        """In the norm ‖·‖_λ: the error of order k counts over λ^{k−1}; `pair` gives the moments of powers (i, j)."""
        errors = [mean.error, *(pair(i, j).error / weight ** (i + j - 1) for i, j in powers(self.order))]
        return float(max(part.max() if part.size else np.inf for part in errors))  # of nothing, nothing is known


@dataclass(frozen=True, eq=False, repr=False)
class Learned(PairAnswers):
    """Moments of one and two returns of a model in tables, as learned from samples."""

    model: JointMDP = field(kw_only=True)
    _visits: tuple[Ints, Ints] | None = field(kw_only=True)  # [R, X], [R, X, X]; None: all of them in every step

    def __repr__(self) -> str:
        return f"Learned({self.model!r}, {self._words()}, error {self.error:.3g})"

    @property
    def mean(self) -> Floats:
        """E Z(s,a), ``[S, A]``; NaN where an action is unavailable."""
        return np.where(self.model.available, self._moments.mean.mean[self._numbers], np.nan)

    @property
    def mean_error(self) -> Floats:
        """Errors of the means, ``[S, A]``, each by itself: half of a 95 % interval, and what is left of the start."""
        return np.where(self.model.available, self._moments.mean.error[self._numbers], np.nan)

    @property
    def second_moment(self) -> Floats:
        """E[Z(s,a) Z(s,b)], ``[S, A, A]``."""
        return self.moment(1, 1)

    @property
    def second_moment_error(self) -> Floats:
        """Errors of the second moments, ``[S, A, A]``."""
        return self.moment_error(1, 1)

    @property
    def covariance(self) -> Floats:
        """Cov(Z(s,a), Z(s,b)), ``[S, A, A]``."""
        return self._blocks(self._moments.covariance(*self._same_state()).mean)

    @property
    def covariance_error(self) -> Floats:
        """Errors of the covariances, ``[S, A, A]``."""
        return self._blocks(self._moments.covariance(*self._same_state()).error)

    def moment(self, i: int, j: int) -> Floats:
        """E[Z(s,a)ⁱ Z(s,b)ʲ], ``[S, A, A]``, for i, j ≥ 1 and i + j up to the order learned."""
        return self._blocks(self._moments.at(i, j, *self._same_state()).mean)

    def moment_error(self, i: int, j: int) -> Floats:
        """Errors of `moment`, ``[S, A, A]``."""
        return self._blocks(self._moments.at(i, j, *self._same_state()).error)

    @property
    def error(self) -> float:
        """The largest error, in the norm ‖·‖_λ of the paper: means as they are, second moments over λ, and so on.

        A coordinate that was never updated has all of its range as its error; `visits` tells which they are.
        """
        weight, size = norm_weight(self.model.reward_bound, self.model.discount), int(self.model.available.sum())
        x, y = np.indices((size, size))
        return self._largest_error(weight, self._moments.mean, lambda i, j: self._moments.at(i, j, x, y))

    def table(self, states: Iterable[StateLike] | None = None) -> list[dict[str, Any]]:
        """One row per state and unordered pair of available actions: gaps with their intervals."""
        rows, model = [], self.model
        for s in (model.state_index(state) for state in (range(model.num_states) if states is None else states)):
            for a, b in itertools.combinations(np.flatnonzero(model.available[s]).tolist(), 2):
                rows.append({"state": model.state_label(s), **self.gap(s, a, b).table()[0]})
        return rows

    def _shown(self) -> list[dict[str, Any]]:
        return self.table(range(min(self.model.num_states, SHOWN_STATES)))[:SHOWN]

    def to_xarray(self) -> xarray.Dataset:
        """The moments as a labelled dataset with dimensions state, action and other."""
        model, two, three = self.model, ("state", "action"), ("state", "action", "other")
        actions = [model.action_label(a) for a in range(model.num_actions)]
        return as_dataset(
            {
                "mean": (two, self.mean),
                "mean_error": (two, self.mean_error),
                "covariance": (three, self.covariance),
                "covariance_error": (three, self.covariance_error),
            },
            {"state": [model.state_label(s) for s in range(model.num_states)], "action": actions, "other": actions},
            {"steps": self.steps, "replicas": self.replicas, "seed": self.seed},
        )

    @property
    def visits(self) -> list[BlockVisits]:
        """How often coordinates were updated, by kind: means, diagonal, same state, distinct states."""
        states, actions = np.nonzero(self.model.available)
        size, label = len(states), self.model.action_label
        mean, pair = self._visits or (np.full((1, size), self.steps), np.full((1, size, size), self.steps))
        names = [f"({self.model.state_label(int(s))}, {label(int(a))})" for s, a in zip(states, actions, strict=True)]
        pairs = np.indices((size, size)).reshape(2, -1).T
        return _block_visits(mean.min(axis=0), pair.min(axis=0).reshape(-1), pairs, states, names)

    def _coordinate(self, state: StateLike, action: ActionLike) -> tuple[int, str]:
        s = self.model.state_index(state)
        a = self.model.action_index(action, s)
        return int(self._numbers[s, a]), self.model.action_label(a)

    @cached_property
    def _numbers(self) -> Ints:
        """Numbers of the coordinates, ``[S, A]``; some other's where an action is unavailable."""
        available = self.model.available
        return np.maximum(np.cumsum(available).reshape(available.shape) - 1, 0)

    def _same_state(self) -> tuple[Ints, Ints]:
        """Pairs of coordinates in the same state, ``[S, A, A]`` when broadcast."""
        return self._numbers[:, :, None], self._numbers[:, None, :]

    def _blocks(self, values: Floats) -> Floats:
        """Numbers of same-state pairs, NaN where an action is unavailable."""
        available = self.model.available
        return np.where(available[:, :, None] & available[:, None, :], values, np.nan)


@dataclass(frozen=True, eq=False, repr=False)
class LearnedStates(PairAnswers):
    """Moments of the returns of the states of a simulator that were discovered."""

    simulator: Simulator = field(kw_only=True)
    reward_bound: float = field(kw_only=True)
    discovered: DiscoveredStates = field(kw_only=True)
    _visits: tuple[Ints, Ints] = field(kw_only=True)

    def __repr__(self) -> str:
        found = f"{self.num_states:,} states discovered"
        return f"LearnedStates({self.simulator.name}, {found}, {self._words()}, error {self.error:.3g})"

    @property
    def num_states(self) -> int:
        """How many states were discovered."""
        return len(self.discovered.states)

    @property
    def error(self) -> float:
        """The largest error among coordinates that every replica has updated, in the norm ‖·‖_λ; else infinite."""
        weight, held = norm_weight(self.reward_bound, self.simulator.discount), powers(self.order)
        mean, pair = ((part > 0).all(axis=0) for part in self._visits)
        return self._largest_error(
            weight, self._moments.mean[mean], lambda i, j: self._moments.pair[held.index((i, j)), pair]
        )

    def table(self) -> list[dict[str, Any]]:
        """One row per state, in the order of discovery, and action: the mean, its error, and how often it was seen."""
        mean, counts = self._moments.mean, self._visits[0].sum(axis=0)
        values, errors = mean.mean, mean.error
        return [
            {
                "state": s,
                "action": self.simulator.action_label(a),
                "mean": float(values[x]),
                "mean_error": float(errors[x]),
                "updates": int(counts[x]),
            }
            for (s, a), x in self.discovered.coordinates.items()
        ]

    @property
    def visits(self) -> list[BlockVisits]:
        """How often discovered coordinates were updated, by kind; pairs are those that some branches were seen at."""
        known, label = self.discovered, self.simulator.action_label
        mean, pair = (part.min(axis=0)[1:] for part in self._visits)
        states = np.array([s for s, _ in known.coordinates], dtype=np.int64)
        names = [f"(state {s}, {label(a)})" for s, a in known.coordinates]
        return _block_visits(mean[: len(states)], pair[: len(known.pairs)], known.seen_pairs() - 1, states, names)

    def _coordinate(self, state: Snapshot, action: Any) -> tuple[int, str]:
        place, known = self.simulator.snapshot(state), self.discovered
        a = self.simulator.action_index(action, place)
        s = known.states.get(state_key(self.simulator, place))
        number = None if s is None else known.coordinates.get((s, int(a)))
        if number is None:
            raise ModelError(
                f"{self.simulator.action_label(a)} in this state of {self.simulator.name} has not been visited; "
                f"{self.num_states:,} states were"
            )
        return number, self.simulator.action_label(a)


@dataclass(frozen=True, eq=False, repr=False)
class LearnedJoint(RunSummary):
    """Moments of any coordinates of a small model in tables, as learned from samples."""

    model: JointMDP = field(kw_only=True)
    _tuples: Tuples = field(kw_only=True)
    _values: Replicas = field(kw_only=True)  # [N], the empty tuple first

    def __repr__(self) -> str:
        return f"LearnedJoint({self.model!r}, {self._words()}, error {self.error:.3g})"

    @property
    def error(self) -> float:
        """The largest error, in the norm ‖·‖_λ of the paper."""
        weight = norm_weight(self.model.reward_bound, self.model.discount)
        return float(max(np.max(self._order(k).error) / weight ** (k - 1) for k in range(1, self.order + 1)))

    def table(self) -> list[dict[str, Any]]:
        """One row per order."""
        orders = [self._order(k) for k in range(1, self.order + 1)]
        return [
            {"order": k, "moments": found.mean.size, "largest_error": float(np.max(found.error))}
            for k, found in enumerate(orders, 1)
        ]

    def moment(self, *coordinates: tuple[StateLike, ActionLike]) -> Estimate:
        """``E Π_i Z(s_i,a_i)`` for coordinates given as ``(state, action)``; repeats are powers."""
        return self._at(np.array([self._tuples.number(self.model, coordinates)]))[0].estimate

    def __getitem__(self, order: int) -> Floats:
        """The moments of one order on sorted tuples of available coordinates, as `tuples` lists them."""
        return self._order(order).mean

    def errors(self, order: int) -> Floats:
        """Errors of the moments of one order."""
        return self._order(order).error

    def tuples(self, order: int) -> Ints:
        """The coordinates, numbered in turn, of the tuples of one order, ``[N, order]``."""
        k = checks.as_count("order", order, most=self.order)
        return self._tuples.labels()[self._tuples.of_degree(k), :k].astype(np.int64)

    def _order(self, order: int) -> Replicas:
        k = checks.as_count("order", order, most=self.order)
        return self._at(np.arange(self._tuples.starts[k], self._tuples.starts[k + 1]))

    def _at(self, ids: Ints) -> Replicas:
        """The moments of tuples; where coordinates are independent, products over those of each."""
        found = self._values[ids]
        if self.sharing != "none":
            return found
        stems = self._tuples.stem[ids]
        several = stems > 0
        if several.any():
            product = self._at(stems[several]).times(self._values[self._tuples.runs[ids[several]]])
            unseen = np.array(found.unseen)
            found.values[:, several], found.bias_bound[several] = product.values, product.bias_bound
            unseen[several] = product.unseen
            found = Replicas(found.values, found.bias_bound, unseen)
        return found


def _block_visits(mean: Ints, pair: Ints, pairs: Ints, states: NDArray[Any], names: list[str]) -> list[BlockVisits]:
    """The table of visits: counts of coordinates, counts of pairs and who they are, and each coordinate's state."""

    def row(kind: str, counts: Ints, places: NDArray[Any]) -> BlockVisits:
        never, rarely = counts == 0, (counts > 0) & (counts < RARE)
        examples = tuple("×".join(names[x] for x in place) for place in places[np.flatnonzero(never | rarely)[:3]])
        median = float(np.median(counts)) if counts.size else 0.0
        fewest = int(counts.min()) if counts.size else 0
        return BlockVisits(kind, counts.size, int(never.sum()), int(rarely.sum()), fewest, median, examples)

    x, y = pairs.T
    same, alike = x == y, states[x] == states[y]
    kinds = {"diagonal": same, "same state": alike & ~same, "distinct states": ~alike}
    found = [row("mean", mean, np.arange(len(mean))[:, None])]
    return found + [row(kind, pair[mask], pairs[mask]) for kind, mask in kinds.items() if mask.any()]
