"""The laws of the actions of a model: the outcomes of every action in every state, in one list, and scenarios of them.

Couplings that make outcomes coincide ask which outcomes of different actions are the same one (`numbered_laws`). Those
in which every action of a state reads one uniform through its inverse distribution function are made here, for all
states at once (`one_uniform_tables`): the scenarios of a state are the intervals between all break points ``F_a(i)`` of
its actions, and what an action gets in an interval is the number of its own break points up to there. Scenarios that
give every action the same outcome are one scenario, with the sum of their chances (`merged_by_state`).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from jointmdp.ground import checks
from jointmdp.ground.arrays import Bools, Floats, Ints, listed
from jointmdp.ground.errors import ModelError
from jointmdp.model.tables import ScenarioTables, blank_tables


class ActionLaw(NamedTuple):
    """The possible outcomes of one action in one state, in listed order; none where it is unavailable."""

    probabilities: Floats  # [K]
    rewards: Floats  # [K]
    successors: Ints  # [K]


class ActionLaws(NamedTuple):
    """The laws of all actions, one after the other: law ``l = s·A + a`` is that of action ``a`` in state ``s``.

    Its outcomes are those from ``starts[l]`` to ``starts[l+1] − 1``.
    """

    starts: Ints  # [S·A + 1]
    probabilities: Floats  # [N]
    rewards: Floats  # [N]
    successors: Ints  # [N]
    num_actions: int

    @property
    def num_states(self) -> int:
        """S."""
        return (len(self.starts) - 1) // self.num_actions

    @property
    def sizes(self) -> Ints:
        """How many outcomes each law has, ``[S·A]``."""
        return np.diff(self.starts)

    def law(self, number: int) -> ActionLaw:
        """One law by its number ``s·A + a``."""
        part = slice(self.starts[number], self.starts[number + 1])
        return ActionLaw(self.probabilities[part], self.rewards[part], self.successors[part])

    def of_state(self, state: int) -> list[ActionLaw]:
        """The laws of a state's actions."""
        return [self.law(state * self.num_actions + a) for a in range(self.num_actions)]

    def by_size(self) -> Iterator[Ints]:
        """Places of outcomes, ``[n, K]``, for the laws with K outcomes each.

        Sums and cumulative sums over such rows round as those of single laws do, which padded rows would not.
        """
        sizes = self.sizes
        for size in np.unique(sizes[sizes > 0]).tolist():
            yield self.starts[:-1][sizes == size, None] + np.arange(size)


def laws_from_entries(
    owners: Ints, chances: Floats, gains: Floats, targets: Ints, exists: Bools, where: Callable[[int, int], str]
) -> ActionLaws:
    """The checked laws of outcomes that are listed one by one, those of a law in their order.

    `owners` ``[N]`` says which law ``s·A + a`` an outcome belongs to, `exists` ``[S, A]`` which actions there are, and
    `where` names a state and action for a message.
    """
    order = np.argsort(owners, kind="stable")
    sizes = np.bincount(owners, minlength=exists.size)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    laws = ActionLaws(starts, chances[order], gains[order], targets[order], exists.shape[1])
    sums = np.where(exists.ravel(), 0.0, 1.0)
    scaled = laws.probabilities.copy()
    for places in laws.by_size():
        rows = laws.probabilities[places]
        totals = rows.sum(axis=1)
        sums[np.searchsorted(starts, places[:, 0], side="right") - 1] = totals
        with np.errstate(invalid="ignore", divide="ignore"):
            scaled[places] = checks.rescaled(rows, totals)
    is_wrong = ~(np.isfinite(laws.probabilities) & (laws.probabilities >= 0) & np.isfinite(laws.rewards))
    wrong = np.concatenate([np.flatnonzero(np.abs(sums - 1) > checks.SUM_TOLERANCE), np.sort(owners)[is_wrong]])
    if len(wrong):
        state, action = divmod(int(wrong.min()), laws.num_actions)
        _refuse(where(state, action), laws.law(int(wrong.min())))
    return laws._replace(probabilities=scaled)


def _refuse(where: str, law: ActionLaw) -> None:
    """Raise what is wrong with one law."""
    chances, gains, targets = law
    checks.as_law(f"transition probabilities of {where}", "successor", targets, chances)
    (at, *_) = checks.first_place(~np.isfinite(gains))
    cure = "; if the action does not exist there, say so with available=" if gains[at] == -np.inf else ""
    raise ModelError(f"reward of {where}, successor {targets[at]} is {gains[at]}, not a finite number{cure}")


class NumberedLaw(NamedTuple):
    """The law of one action by numbers of outcomes; equal outcomes of different actions have equal numbers."""

    numbers: Ints  # [K] in listed order, each once
    probabilities: Floats  # [K]
    places: Ints  # [K] where the action lists the outcome first; empty where the action is unavailable


def numbered_laws(rows: Sequence[Sequence[ActionLaw]]) -> list[NumberedLaw]:
    """The laws of the actions of some states, one state after the other.

    Outcomes are equal when they have the same successor. Where an action of a state may reach a successor with several
    rewards, equal outcomes of that state have the same reward, too: a reward that the action and the successor fix is
    no part of the outcome.
    """
    numbers: dict[tuple[int, float | None], int] = {}
    found = []
    for row in rows:
        several = {t for law in row for t in _with_several_rewards(law)}
        for law in row:
            chances: dict[int, float] = {}
            places: dict[int, int] = {}
            listed = zip(law.probabilities.tolist(), law.rewards.tolist(), law.successors.tolist(), strict=True)
            for place, (p, r, t) in enumerate(listed):
                if p > 0:
                    number = numbers.setdefault((t, r if t in several else None), len(numbers))
                    chances[number] = chances.get(number, 0.0) + p
                    places.setdefault(number, place)
            entries = (list(chances), list(places.values()))
            which, where = (np.array(each, dtype=np.int64) for each in entries)
            found.append(NumberedLaw(which, np.array(list(chances.values())), where))
    return found


def _with_several_rewards(law: ActionLaw) -> set[int]:
    """The successors that one action may reach with different rewards."""
    is_possible = law.probabilities > 0
    pairs = set(zip(law.successors[is_possible].tolist(), law.rewards[is_possible].tolist(), strict=True))
    return {t for t, count in Counter(t for t, _ in pairs).items() if count > 1}


# Break points this close are one: 1/3 + 1/3 and 2/3 differ by a rounding, and a scenario as thin as that is
# not part of the model. Outcomes less likely than this can be lost; no probability is off by more than twice it.
SAME_POINT = 16 * float(np.finfo(np.float64).eps)


def one_uniform_tables(laws: ActionLaws, coupling: str, common: bool, max_entries: int) -> ScenarioTables:
    """The tables of the comonotone or antithetic coupling; with `common` all states have the same break points."""
    S, A = laws.num_states, laws.num_actions
    # 1 − u through a law is u through the law listed backwards.
    is_backwards = (np.arange(S * A) % A % 2 == 1) & (coupling == "antithetic")
    owners = np.repeat(np.arange(S * A), laws.sizes)
    places = np.arange(len(owners))
    mirrored = laws.starts[owners] + laws.starts[owners + 1] - 1 - places
    reading = np.where(is_backwards[owners], mirrored, places)
    ends = np.empty(len(owners))
    for rows in laws.by_size():
        ends[rows] = laws.probabilities[reading[rows]].cumsum(axis=1)
    states = owners // A
    kept, edge = _kept_points(ends, np.zeros_like(states) if common else states)
    counts = 1 + (np.full(S, np.count_nonzero(kept)) if common else np.bincount(states[kept], minlength=S))
    width = int(counts.max())
    check_size(laws, width, coupling, max_entries)
    grid = np.ones((S, width + 1))
    grid[:, 0] = 0.0
    grid[slice(None) if common else states[kept], edge[kept]] = ends[kept]
    chances = np.diff(grid, axis=1)
    # The last outcome of a law, and what is only a rounding away from 1, has no break point of its own.
    counted = (ends < 1 - SAME_POINT) & (places + 1 < laws.starts[owners + 1])
    steps = np.bincount(owners[counted] * width + edge[counted], minlength=S * A * width)
    choice = steps.reshape(S * A, width).cumsum(axis=1)
    is_cell = (laws.sizes > 0)[:, None] & (np.arange(width) < np.repeat(counts, A)[:, None])
    found = reading[np.where(is_cell, laws.starts[:-1, None] + choice, 0)]
    own = np.repeat(np.arange(S), A)[:, None]
    gains = np.where(is_cell, laws.rewards[found], 0.0)
    targets = np.where(is_cell, laws.successors[found], own)
    rewards, successors = (part.reshape(S, A, width).swapaxes(1, 2) for part in (gains, targets))
    return chances, rewards, successors


def common_edges(points: Floats) -> Floats:
    """All break points from 0 to 1, those closer than `SAME_POINT` taken as one."""
    kept, _ = _kept_points(points, np.zeros(len(points), dtype=np.int64))
    return np.concatenate([[0.0], np.sort(points[kept]), [1.0]])


def _kept_points(points: Floats, owners: Ints) -> tuple[Bools, Ints]:
    """Which break points inside of (0, 1) are kept, and how many of the same owner are kept up to each one.

    From the left, those are kept that are far enough from the last one kept.
    """
    order = np.lexsort((points, owners))
    x, owner = points[order], owners[order]
    begins = np.diff(owner, prepend=-1) > 0
    is_kept = (x < 1 - SAME_POINT) & (x - np.where(begins, 0.0, np.roll(x, 1)) > SAME_POINT)
    while True:  # where several points are close, one after the other, the first that is far enough from the last kept
        before = np.maximum.accumulate(np.where(is_kept | begins, np.arange(len(x)), 0))
        distance = x - np.where(is_kept[before], x[before], 0.0)
        far = np.flatnonzero(~is_kept & (x < 1 - SAME_POINT) & (distance > SAME_POINT))
        if not len(far):
            break
        is_kept[far[np.diff(before[far], prepend=-1) > 0]] = True
    so_far = np.cumsum(is_kept, dtype=np.int64)
    so_far -= np.maximum.accumulate(np.where(begins, so_far - is_kept, 0))
    kept, counts = np.empty(len(x), dtype=bool), np.empty(len(x), dtype=np.int64)
    kept[order], counts[order] = is_kept, so_far
    return kept, counts


def check_size(laws: ActionLaws, num_scenarios: int, coupling: str, max_entries: int) -> None:
    """Raise where the tables would have more than `max_entries` entries."""
    S, A = laws.num_states, laws.num_actions
    entries = S * num_scenarios * A
    if entries > max_entries:
        hints = {
            "independent": '; coupling="comonotone" needs far fewer scenarios',
            "gumbel-max": "; fewer draws, as in GumbelMax(draws=200), need fewer scenarios",
        }
        hint = hints.get(coupling, "")
        raise ModelError(
            f"the {coupling} coupling has {num_scenarios} scenarios, S·W·A = {S}·{num_scenarios}·{A} = {entries} table "
            f"entries, more than max_entries = {max_entries}{hint}"
        )


def merged_by_state(tables: ScenarioTables) -> ScenarioTables:
    """Merged within each state, and impossible ones left out; rows are filled up with scenarios of chance zero."""
    chances, rewards, successors = tables
    S, W, A = rewards.shape
    first = _first_alike(rewards, successors)
    places = (np.arange(S)[:, None] * W + first).ravel()
    totals = np.bincount(places, chances.ravel(), minlength=S * W).reshape(S, W)
    state, scenario = np.nonzero(totals > 0)
    counts = np.bincount(state, minlength=S)
    column = listed(0, counts)[1]
    law, gains, targets = blank_tables(S, int(counts.max()), A)
    law[state, column] = totals[state, scenario]
    gains[state, column], targets[state, column] = rewards[state, scenario], successors[state, scenario]
    return law, gains, targets


def merged_everywhere(tables: ScenarioTables) -> ScenarioTables:
    """Those that are alike in all states merged, as ``sharing="time"`` needs it; chances are the same in all states."""
    chances, rewards, successors = tables
    S, W, A = rewards.shape
    across = (1, W, S * A)
    (first,) = _first_alike(rewards.swapaxes(0, 1).reshape(across), successors.swapaxes(0, 1).reshape(across))
    totals = np.bincount(first, chances[0], minlength=W)
    kept = totals > 0
    if kept.all():
        return tables
    return np.tile(totals[kept], (S, 1)), rewards[:, kept], successors[:, kept]


def _first_alike(rewards: Floats, successors: Ints) -> Ints:
    """For each scenario ``[S, W]`` the first one of its state with the same outcomes of all actions."""
    S, W, A = rewards.shape
    # Equal rows have equal keys. Rows with equal keys that differ after all are told apart below.
    factors = np.random.default_rng(0).integers(0, 2**63, (2, A), dtype=np.uint64) * 2 + 1
    bits = np.ascontiguousarray(rewards + 0.0).view(np.uint64)  # + 0.0: zero has one sign
    bits ^= bits >> 32  # low bits of whole numbers are all zero, and products keep zeros on the right
    keys = (bits * factors[0] + successors.astype(np.uint64) * factors[1]).sum(axis=2, dtype=np.uint64)
    order = keys.argsort(axis=1, kind="stable")
    ranked = np.take_along_axis(keys, order, axis=1)
    begins = np.ones((S, W), dtype=bool)
    begins[:, 1:] = ranked[:, 1:] != ranked[:, :-1]
    leader = np.maximum.accumulate(np.where(begins, np.arange(W), 0), axis=1)
    first = np.empty((S, W), dtype=np.int64)
    np.put_along_axis(first, order, np.take_along_axis(order, leader, axis=1), axis=1)
    at = np.arange(S)[:, None]
    is_alike = ((rewards == rewards[at, first]) & (successors == successors[at, first])).all(axis=2)
    return np.where(is_alike, first, np.arange(W))
