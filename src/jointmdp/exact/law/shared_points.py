"""Stop-loss bounds of a cycle in which nearly every two of its states meet, all on one list of points.

Given the noise they share, branches move independently. Where all pairs have the same points, what one branch does is
one small matrix for all states of the other: a step costs the sum of the branches' outcomes for every pair, the
matrices hardly any memory, and far more points can be had than where every pair has its own. The lines from below are
mixed in the chord's proportion, which is linear: with f the place of a threshold within its cell,

    line = chord of V − f(1−f)·width·(D_{i+1} − D_i),        slope + 1 = chord of D.

As everywhere, what a solution misses by is given away on the safe side.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator

from jointmdp.exact.bellman.pair_step import Outcomes
from jointmdp.exact.law.node_laws import (
    CORE,
    LinearStep,
    Side,
    certified_above,
    certified_lines,
    fixed_point,
)
from jointmdp.exact.law.pair_graph import NOTHING, PairGraph
from jointmdp.ground.arrays import UNIT, Bools, Floats, Ints, summed
from jointmdp.ground.limits import IsOver

MANY_EDGES, MANY_MOVED = 256, 2**17  # edges of a cycle, and points they move, from which sharing them pays
BUSY = 0.25  # chance of a move that pays: where moves hardly ever do, points of their own keep laws exact
WASTE = 4.0  # moves of all pairs of the states, reached or not, may outnumber those of the cycle so many times
NEAR = 1e-9  # of the constant, what a solution may miss; it is given away
BINS, LEAST_DENSITY = 400, 1e-4  # how mass is measured before points are placed
VECTOR_BYTES = 30 * 8  # of all arrays that have one number for a point of a pair
ENTRY_BYTES = 80  # of the matrices, for a point of an outcome


class BranchMoves(NamedTuple):
    """What one branch does, for each value of the shared noise; rows and columns are points of states."""

    chord: list[sp.csr_array]
    bend: list[sp.csr_array]
    below: list[Floats]  # what Π gains left of all points
    beyond: list[Floats]  # the probability of being right of all points


def is_shared(side: Side, nodes: Ints, most: Ints) -> bool:
    """Whether the nodes of a cycle are better off with shared points."""
    graph, edges = side.graph, int((side.starts[nodes + 1] - side.starts[nodes]).sum())
    if edges < MANY_EDGES or edges * int(most[nodes].max()) <= MANY_MOVED or not math.isfinite(side.patience):
        return False
    moves = side.moves(nodes)
    if float(moves.weight[moves.shift != 0].sum()) < BUSY * len(nodes):
        return False
    pairs = _pairs(graph, nodes)
    if np.any(graph.first[nodes] == NOTHING) or not graph.is_factored:  # nodes of an opening are no pairs of states
        return False
    first, second = (np.unique(states[pairs]) for states in (graph.first, graph.second))
    outcomes = sum(float((out.weights > 0).sum()) / out.weights.shape[1] for out in graph.outcomes)
    return len(first) * len(second) * outcomes <= WASTE * edges


@np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore")  # then points are placed evenly
def common_points(  # many parameters: whose points, and what is known of them
    side: Side, nodes: Ints, value: Floats, mass: Floats, ends: tuple[Floats, Floats], count: int
) -> Floats:
    """Points for the pairs of a cycle: finer where there is more mass, by a guess of values and masses.

    A cell of width h that holds density f costs about f·h²; for a given number of cells the sum is least when h is
    proportional to f^(−1/3). Where there is hardly any mass, cells grow with the distance.
    """
    graph = side.graph
    pairs = _pairs(graph, nodes)
    shift = np.concatenate([(out.rewards - graph.common)[out.weights > 0] for out in graph.outcomes])
    low, high = float(ends[0][pairs].min()), float(ends[1][pairs].max())
    # Half of a step reaches no farther than this.
    most = float(np.abs(shift).max())
    low, high = min(low, graph.discount * low - most, 0.0), max(high, graph.discount * high + most, 0.0)
    if not low < high:
        return np.array([-1.0, 0.0, 1.0])
    value, which = np.unique(value, return_inverse=True)
    below = np.cumsum(np.bincount(which, mass))
    core = np.interp(np.array([CORE, 1 - CORE]) * below[-1], below, value)
    middle, half = float(core.mean()), max(float(core[1] - core[0]) / 2, 1e-9 * (high - low))
    edges = np.sinh(np.linspace(np.arcsinh((low - middle) / half), np.arcsinh((high - middle) / half), BINS + 1))
    edges = np.unique(middle + half * edges)
    width = np.diff(edges)
    density = np.diff(np.interp(edges, value, below)) / width
    far = np.abs((edges[1:] + edges[:-1]) / 2 - middle) / half
    density = np.maximum(density, LEAST_DENSITY * (density.max() or 1.0) / (1 + far**3))
    total = np.append(0.0, np.cumsum(width * np.cbrt(density)))
    points = np.interp(np.linspace(0, 1, count), total / total[-1], edges)
    points = points if np.all(np.isfinite(points)) else np.linspace(low, high, count)
    room = 1e-9 * (high - low)  # 0 lies between the two, so this is far more than they can be rounded by
    return np.unique(np.concatenate([points[1:-1], [0.0, low - room, high + room]]))


def bytes_for_shared(graph: PairGraph, nodes: Ints, points: int) -> int:
    """What solving on so many points takes."""
    pairs = _pairs(graph, nodes)
    size = (len(np.unique(graph.first[pairs])) + 1) * (len(np.unique(graph.second[pairs])) + 1)
    entries = sum(int((out.weights > 0).sum()) for out in graph.outcomes)
    entries += int(graph.is_together[graph.edges.parent].sum())
    return points * (VECTOR_BYTES * size + ENTRY_BYTES * entries)


def _pairs(graph: PairGraph, nodes: Ints) -> Ints:
    """The pairs of a cycle, and those below it."""
    is_pair = (graph.first != NOTHING) & ~graph.is_half
    return np.flatnonzero(is_pair & (graph.level <= graph.level[nodes].max()))


class SharedPoints:
    """The pairs of a cycle, and those below it, on one list of points beyond which no gap reaches."""

    def __init__(self, side: Side, nodes: Ints, points: Floats) -> None:
        graph, self.side, self.z = side.graph, side, points
        self.pairs = _pairs(graph, nodes)
        # One more place stands for states of which no pair is left: their gaps are 0.
        first, s = np.unique(graph.first[self.pairs], return_inverse=True)
        second, t = np.unique(graph.second[self.pairs], return_inverse=True)
        self.s, self.t, self.states = s, t, (first, second)
        self.shape = len(first) + 1, len(points), len(second) + 1
        own, other = graph.outcomes
        g = graph.discount
        self.chances = own.chances
        self.first = _moves(own, first, own.rewards - graph.common, g, points)
        self.second = _moves(other, second, graph.common - other.rewards, 1.0, points)
        self.is_open = np.zeros((self.shape[0], self.shape[2]), dtype=bool)
        self.is_open[s, t] = True
        self._meet(graph)
        rewards = max(float(np.abs(out.rewards).max()) for out in graph.outcomes) + abs(graph.common)
        self.reach = float(points[-1] - points[0])
        self.size = float(np.abs(points).max()) + rewards
        terms = own.weights.shape[0] + own.weights.shape[2] + other.weights.shape[2] + 16
        self.rounding = side.rounding + 8 * UNIT * terms

    def _meet(self, graph: PairGraph) -> None:
        """Pairs in one state, which share their scenario: their own moves, point by point."""
        together = np.flatnonzero(graph.is_together[self.pairs])
        place = np.full(graph.num_nodes, NOTHING)
        place[self.pairs] = np.arange(len(self.pairs))
        row = np.full(graph.num_nodes, NOTHING)
        row[self.pairs[together]] = np.arange(len(together))
        e, (_, count, width) = graph.edges, self.shape
        mine = np.flatnonzero(row[e.parent] >= 0)
        child = place[np.where(e.child[mine] >= 0, e.child[mine], 0)]
        child = np.where(e.child[mine] >= 0, child, NOTHING)
        cells = _cells(self.z, e.shift[mine], np.full(len(mine), graph.discount))
        # Nothing is the last place of both.
        s = np.where(child >= 0, self.s[child], self.shape[0] - 1)
        t = np.where(child >= 0, self.t[child], self.shape[2] - 1)
        size = self.shape[0] * count * width

        def column(point: Ints) -> Ints:
            return (s[:, None] * count + point) * width + t[:, None]

        found = _matrices(cells, e.weight[mine], row[e.parent[mine]], column, (len(together), count), size)
        self.together = (self.s[together], self.t[together])
        self.met = BranchMoves(*([part] for part in found))

    def _step(self, X: Floats, scale: float, more: tuple[list[Floats], list[Floats], Floats] | None = None) -> Floats:
        """The chords of one step, with `more` added to each half of it and to pairs in one state.

        Values are scaled by γ, slopes by 1. Those are pinned at the ends, beyond which no gap reaches.
        """
        states, count, others = self.shape
        total = np.zeros((others * count, states))
        for g, chance in enumerate(self.chances):
            half = self.first.chord[g] @ X.reshape(-1, others)
            if more is not None:
                half += more[0][g]
            half = np.ascontiguousarray(half.reshape(states, count, others).transpose(2, 1, 0))
            if scale == 1:
                _pin(half, 0.0 if more is None else 1.0)
            half = self.second.chord[g] @ (scale * half).reshape(-1, states)
            if more is not None:
                half += more[1][g]
            total += chance * half
        out = np.ascontiguousarray(total.reshape(others, count, states).transpose(2, 1, 0))
        met = self.met.chord[0] @ X.ravel()
        s, t = self.together
        out[s, :, t] = scale * (met if more is None else met + more[2]).reshape(len(s), count)
        if scale == 1:
            _pin(out, 0.0 if more is None else 1.0)
        return out * self.is_open[:, None, :]

    def _of_nothing(self, values: Floats) -> Floats:
        """An array of all pairs that has these values where the gap is 0, and 0 elsewhere."""
        return np.where(self.is_open[:, None, :], 0.0, values[None, :, None])

    @np.errstate(over="ignore", invalid="ignore")  # what overflows bounds nothing
    def solved(self, start: Floats, is_over: IsOver) -> Floats:
        """Valid bounds of all pairs, ``[3, pairs, N]``: above, and lines from below; `start` has guesses of them."""
        z, g = self.z, self.side.graph.discount
        begin = np.zeros((3, *self.shape))
        begin[:, self.s, :, self.t] = start.transpose(1, 0, 2)
        short = np.maximum(-z, 0.0)
        gains = [x[:, None] for x in self.first.below], [x[:, None] for x in self.second.below], self.met.below[0]
        chances = [x[:, None] for x in self.first.beyond], [x[:, None] for x in self.second.beyond], self.met.beyond[0]

        def solve(step: LinearStep, constant: Floats, which: int) -> Floats:
            return fixed_point(step, constant, NEAR, begin[which].ravel(), is_over)

        def line_constant(slope: Floats) -> Floats:
            bent = self._bent(slope.reshape(self.shape), gains, chances[0])
            return self._step(self._of_nothing(short), g, bent).ravel()

        size, patience = (math.prod(self.shape),) * 2, self.side.patience
        values, slopes = (
            LinearOperator(size, lambda x, scale=scale: self._step(x.reshape(self.shape), scale).ravel(), dtype=float)
            for scale in (g, 1.0)
        )
        constant = self._step(self._of_nothing(short), g, gains).ravel()
        of_slopes = self._step(self._of_nothing((z >= 0).astype(float)), 1.0, chances).ravel()
        upper = solve(values, constant, 0)
        off = np.where(self.is_open[:, None, :], self._off(upper.reshape(self.shape)), 0.0).ravel()
        upper = certified_above(values, constant, upper, off, patience)
        lower, slope = certified_lines(values, slopes, of_slopes, line_constant, off, self.reach, patience, solve)
        found = _bounds(*(each.reshape(self.shape) for each in (upper, lower, slope)))
        return np.stack([values[self.s, :, self.t] for values in found])

    def _off(self, upper: Floats) -> Floats:
        """What a step may be off by: thresholds are rounded three times in each half, Π is nowhere steeper than 1."""
        return 16 * UNIT * self.size + 4 * self.rounding * (np.abs(upper) + self.reach)

    def _bent(
        self, slope: Floats, gains: tuple[list[Floats], list[Floats], Floats], beyond: list[Floats]
    ) -> tuple[list[Floats], list[Floats], Floats]:
        """What lines gain left of all points, less what mixtures lie below the chord."""
        states, count, others = self.shape
        D = slope + self._of_nothing((self.z >= 0).astype(float))
        halves: tuple[list[Floats], list[Floats]] = [], []
        for g in range(len(self.chances)):
            rows = D.reshape(-1, others)
            halves[0].append(gains[0][g] - self.first.bend[g] @ rows)
            half = (self.first.chord[g] @ rows + beyond[g]).reshape(states, count, others)
            half = np.ascontiguousarray(half.transpose(2, 1, 0))
            _pin(half, 1.0)
            halves[1].append(gains[1][g] - self.second.bend[g] @ half.reshape(-1, states))
        return halves[0], halves[1], gains[2] - self.met.bend[0] @ D.ravel()

    @np.errstate(over="ignore", invalid="ignore")
    def halves(self, found: Floats, nodes: Ints) -> Floats:
        """The bounds of nodes whose second branch has moved, from those of all pairs; where no noise is shared."""
        graph, g, others = self.side.graph, self.side.graph.discount, self.shape[2]
        short = np.maximum(-self.z, 0.0)
        parts = []
        for values, nothing in zip(found, (short, short, (self.z >= 0).astype(float)), strict=True):
            X = self._of_nothing(nothing)
            X[self.s, :, self.t] = values
            parts.append(X.reshape(-1, others))
        moves = self.first
        upper = g * (moves.chord[0] @ parts[0] + moves.below[0][:, None])
        lower = g * (moves.chord[0] @ parts[1] + moves.below[0][:, None] - moves.bend[0] @ parts[2])
        slope = moves.chord[0] @ parts[2] + moves.beyond[0][:, None]
        off = self._off(upper)
        s, t = (
            np.searchsorted(*each) for each in zip(self.states, (graph.first[nodes], graph.second[nodes]), strict=True)
        )
        slope = np.clip(slope, 0.0, 1.0).reshape(self.shape)
        _pin(slope, 1.0)
        rows = _bounds((upper + off).reshape(self.shape), (lower - off).reshape(self.shape), slope)
        return np.stack([row[s, :, t] for row in rows])


def _bounds(upper: Floats, lower: Floats, slope: Floats) -> tuple[Floats, Floats, Floats]:
    """Bounds that hold where numbers overflowed, too."""
    is_known = np.isfinite(lower) & np.isfinite(slope)
    return np.where(np.isfinite(upper), upper, np.inf), np.where(is_known, lower, -np.inf), np.nan_to_num(slope)


def _pin(slope: Floats, last: float) -> None:
    """Slopes + 1 at the first and last of the points ``[_, N, _]``, which lie beyond all that can happen."""
    slope[:, 0], slope[:, -1] = 0.0, last


class Cells(NamedTuple):
    """Where the thresholds ``(z − shift)/scale`` lie, for each move ``[M, N]``."""

    left: Ints
    share: Floats  # of the point to the right
    bend: Floats  # f(1−f)·width
    below: Floats  # how far left of all points, times the scale's inverse
    is_beyond: Bools


def _cells(z: Floats, shift: Floats, scale: Floats) -> Cells:
    u = (z[None, :] - shift[:, None]) / scale[:, None]
    left = np.clip(np.searchsorted(z, u, side="right") - 1, 0, len(z) - 2)
    width = z[left + 1] - z[left]
    share = np.clip((u - z[left]) / width, 0.0, 1.0)
    is_beyond = u >= z[-1]
    return Cells(left, share, share * (1 - share) * width, np.maximum(z[0] - u, 0.0), is_beyond)


def _matrices(  # many parameters: what the entries are and where they stand
    cells: Cells, weight: Floats, row: Ints, column: Callable[[Ints], Ints], rows: tuple[int, int], size: int
) -> tuple[sp.csr_array, sp.csr_array, Floats, Floats]:
    """Chords, bends, and what lies beyond the points, of moves that belong to rows ``[R, N]``."""
    count = rows[1]
    at = (row[:, None] * count + np.arange(count)).ravel()
    w = np.broadcast_to(weight[:, None], cells.left.shape)
    some = ~cells.is_beyond.ravel()
    columns = np.concatenate([column(cells.left).ravel()[some], column(cells.left + 1).ravel()[some]])
    both = np.tile(at[some], 2)
    shape = (rows[0] * count, size)

    def matrix(left: Floats, right: Floats) -> sp.csr_array:
        entries = np.concatenate([(w * left).ravel()[some], (w * right).ravel()[some]])
        return sp.coo_array((entries, (both, columns)), shape=shape).tocsr()

    below, beyond = (summed(at, (w * part).ravel(), shape[0]) for part in (cells.below, cells.is_beyond))
    return matrix(1 - cells.share, cells.share), matrix(-cells.bend, cells.bend), below, beyond


def _moves(out: Outcomes, states: Ints, shifts: Floats, scale: float, z: Floats) -> BranchMoves:
    """The moves of one branch in some states; states that are not among them are the last place."""
    found, count = [], len(states) + 1
    for weights, shift, successors in zip(out.weights, shifts, out.successors, strict=True):
        i, o = np.nonzero(weights[states] > 0)
        s = states[i]
        to = np.searchsorted(states, successors[s, o])
        is_among = states[np.minimum(to, len(states) - 1)] == successors[s, o]
        to = np.where(is_among, to, len(states))
        cells = _cells(z, shift[s, o], np.full(len(i), scale))

        def column(point: Ints, to: Ints = to) -> Ints:
            return to[:, None] * len(z) + point

        found.append(_matrices(cells, weights[s, o], i, column, (count, len(z)), count * len(z)))
    return BranchMoves(*(list(part) for part in zip(*found, strict=True)))
