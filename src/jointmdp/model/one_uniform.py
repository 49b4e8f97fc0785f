"""Scenario tables in which every action of a state reads one uniform through its inverse distribution function.

The scenarios of a state are the intervals between all break points ``F_a(i)`` of its actions. All states are done at
once: break points are sorted within each state, and what an action gets in an interval is the number of its own break
points up to there.
"""

import numpy as np

from jointmdp.arrays import Floats, Ints
from jointmdp.errors import ModelError
from jointmdp.model.action_laws import ActionLaws

# Break points this close are one: 1/3 + 1/3 and 2/3 differ by a rounding, and a scenario as thin as that is
# not part of the model. Outcomes less likely than this can be lost; no probability is off by more than twice it.
SAME_POINT = 16 * float(np.finfo(np.float64).eps)
ScenarioTables = tuple[Floats, Floats, Ints]  # the first three arguments of JointMDP


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
    if common:
        edges = common_edges(ends)
        counts = np.full(S, len(edges) - 1)
        edge = np.searchsorted(edges, ends, side="right") - 1
    else:
        kept, edge, counts = _kept_points(ends, laws.starts[::A])
    width = int(counts.max())
    check_size(laws, width, coupling, max_entries)
    if common:
        chances = np.tile(np.diff(edges), (S, 1))
    else:
        grid = np.ones((S, width + 1))
        grid[:, 0] = 0.0
        grid[states[kept], edge[kept]] = ends[kept]
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


def common_edges(ends: Floats) -> Floats:
    """All break points from 0 to 1, those closer than `SAME_POINT` taken as one."""
    points = np.unique(ends)
    edges = [0.0]
    for point in points[points < 1 - SAME_POINT].tolist():
        if point - edges[-1] > SAME_POINT:
            edges.append(point)
    return np.array([*edges, 1.0])


def _kept_points(ends: Floats, starts: Ints) -> tuple[Ints, Ints, Ints]:
    """The break points of each state by itself, those that are too close left out.

    `starts` ``[S + 1]`` says where the break points of a state begin. Returns the places of those that are kept, how
    many of its state are kept up to each one ``[N]``, and how many intervals each state has ``[S]``.
    """
    sizes = np.diff(starts)
    edge = np.zeros(len(ends), dtype=np.int64)
    is_kept = np.zeros(len(ends), dtype=bool)
    counts = np.ones(len(sizes), dtype=np.int64)
    # States with about as many points together, so that rows are at most doubled by what fills them up.
    rooms = 2 ** np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64)
    for room in np.unique(rooms).tolist():
        chosen = np.flatnonzero(rooms == room)
        is_point = np.arange(room) < sizes[chosen, None]
        place = np.where(is_point, starts[chosen, None] + np.arange(room), 0)
        points = np.where(is_point, ends[place], np.inf)
        order = points.argsort(axis=1)
        points = np.take_along_axis(points, order, axis=1)
        place = np.take_along_axis(place, order, axis=1)
        last = np.zeros(len(chosen))
        kept = np.zeros(points.shape, dtype=bool)
        for i in range(room):
            kept[:, i] = (points[:, i] < 1 - SAME_POINT) & (points[:, i] - last > SAME_POINT)
            last = np.where(kept[:, i], points[:, i], last)
        so_far = kept.cumsum(axis=1)
        is_point = np.isfinite(points)
        edge[place[is_point]], is_kept[place[is_point]] = so_far[is_point], kept[is_point]
        counts[chosen] = so_far[:, -1] + 1
    return np.flatnonzero(is_kept), edge, counts


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
