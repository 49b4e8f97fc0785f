"""Laws of all nodes of a graph of gaps, each on points of its own: the graph as G sees it or −G, and where points go.

A law that is rounded down holds numbers that are never above the gap. Points follow the mass: what the children's
points become by a move are the candidates, and if they are few all are kept, so that laws with few values are exact.
Otherwise heavy values stay, and the others are thinned out by mass and by distance. A value never crosses 0: one that
is positive and smaller than the least positive point becomes `POSITIVE`, known to be above 0 and nothing else. So
waiting under a discount, which shrinks a gap but never turns it, leaves its sign exact.

Nodes that cannot come back to themselves follow from their children, once. Those that can are solved for together. Over
a horizon there are no cycles: step after step, from the end.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from jointmdp.exact.bellman.pair_step import RAREST
from jointmdp.exact.law.pair_graph import PairGraph, product_down, sum_down
from jointmdp.ground.arrays import UNIT, Bools, Floats, Ints, expand, listed, summed
from jointmdp.ground.limits import IsOver, within_time

POSITIVE = np.nextafter(0.0, 1.0)  # any amount above 0, however small
BY_MASS = 0.6  # share of the points that are placed by mass; the others by distance
CORE = 1e-3  # mass on either side of the part within which points are placed evenly
THINNEST = 1e-12  # relative width of a cell that is not divided
FARTHEST = 1e12  # in units of that part
POLICIES = 100  # that are tried for the least values in a cycle
ROUNDS = 10_000  # of an undiscounted cycle until it counts as one that costs for ever
STILL = 1e-9  # relative change of the guessed least values at which they are good enough
BATCH = 2**19  # points of children that are moved at once, where nodes may be taken apart
ITERATIONS, RELATIVE = 400, 1e-13  # of BiCGSTAB, and what it may leave of the constant

Lines = tuple[Floats, Floats]  # heights at some places, and slopes + 1


class NodeLaws:
    """For every node the points of a law with some numbers at each; node K is nothing, with one point at 0."""

    def __init__(self, num_nodes: int, of_nothing: tuple[float, ...], room: int) -> None:
        """Room for so many points is set aside; memory that is not used is not taken."""
        self.begin: Ints = np.zeros(num_nodes + 1, dtype=np.int64)
        self.size: Ints = np.zeros(num_nodes + 1, dtype=np.int64)
        self._points: Floats = np.empty(room + 1)
        self._values: Floats = np.empty((len(of_nothing), room + 1))
        self._points[0], self._values[:, 0], self.size[-1], self.used = 0.0, of_nothing, 1, 1

    @property
    def points(self) -> Floats:
        """Of all nodes, one after the other."""
        return self._points[: self.used]

    @property
    def values(self) -> Floats:
        """At every point, ``[fields, M]``."""
        return self._values[:, : self.used]

    def put(self, nodes: Ints, sizes: Ints, points: Floats, values: Floats | float) -> int:
        """Laws of further nodes, one after the other; says where they begin."""
        begin = self.used
        self.used += len(points)
        self.begin[nodes] = begin + np.cumsum(sizes) - sizes
        self.size[nodes] = sizes
        self._points[begin : self.used] = points
        self._values[:, begin : self.used] = values
        return begin

    def of(self, node: int) -> tuple[Floats, Floats]:
        """Points and values of one node."""
        part = slice(self.begin[node], self.begin[node] + self.size[node])
        return self.points[part].copy(), self.values[:, part].copy()

    def with_values(self, values: Floats, is_mirrored: bool) -> "NodeLaws":
        """The same points, or those of the negatives, with other values ``[fields, M]``."""
        nodes = np.flatnonzero(self.size[:-1] > 0)
        found = NodeLaws(len(self.size) - 1, tuple(values[:, 0]), self.used - 1)
        which, place = self.spread(nodes)
        if is_mirrored:
            place = (2 * self.begin + self.size - 1)[nodes][which] - place
        found.put(nodes, self.size[nodes], (-1 if is_mirrored else 1) * self.points[place], values[:, place])
        return found

    def spread(self, nodes: Ints) -> tuple[Ints, Ints]:
        """Every point of every one of `nodes`: which of them it belongs to, and where it stands."""
        return listed(self.begin[nodes], self.size[nodes])

    def beside(self, nodes: Ints, which: Ints, t: Floats) -> tuple[Ints, Ints, Ints]:
        """Where the points of each ``nodes[which]`` begin, how many they are, and how many of them are below t."""
        owner, place = self.spread(nodes)
        count = count_below(owner, self.points[place], which, t)
        return self.begin[nodes][which], self.size[nodes][which], count


def room_for(most: Ints) -> int:
    """Points that laws of about ``most[node]`` points may have in all: some more are needed at each."""
    return int(np.sum(most + 8))


class Candidates(NamedTuple):
    """Possible points of some nodes: sorted by node, then by value, each value once."""

    node: Ints  # position in the list of nodes
    value: Floats
    mass: Floats
    is_needed: Bools


def moved(z: Floats, shift: Floats, scale: Floats) -> Floats:
    """A number that is not above ``shift + scale·z``, and positive if z is and nothing is added."""
    found = sum_down(shift, product_down(np.where(z == POSITIVE, 0.0, z), scale))
    return np.where((shift == 0) & (z > 0), np.maximum(found, POSITIVE), found)


def candidates(node: Ints, value: Floats, mass: Floats, least: Floats) -> Candidates:
    """Candidates of nodes ``0, …``, with the `least` value of each and 0, which are needed always."""
    count = len(least)
    own = np.arange(count)
    needed = np.stack([least, np.zeros(count), np.full(count, POSITIVE)])
    kept = needed >= least
    node = np.concatenate([node, *(own[keep] for keep in kept)])
    value = np.concatenate([value, *(row[keep] for row, keep in zip(needed, kept, strict=True))])
    mass = np.concatenate([mass, np.zeros(int(kept.sum()))])
    order = _order(node, value)
    node, value = node[order], value[order]
    is_new = np.ones(len(node), dtype=bool)
    is_new[1:] = (node[1:] != node[:-1]) | (value[1:] != value[:-1])
    total = summed(np.cumsum(is_new) - 1, mass[order], int(is_new.sum()))
    node, value = node[is_new], value[is_new]
    is_needed = (value == least[node]) | (value == 0) | (value == POSITIVE)
    return Candidates(node, value, total, is_needed)


def _order(node: Ints, value: Floats) -> Ints:
    """By node, then by value. Few nodes are sorted by counting, which with a plain sort of values beats `lexsort`."""
    if len(node) == 0 or node.max() >= 2**16:
        return np.lexsort((value, node))
    order = np.argsort(value)
    return order[np.argsort(node[order].astype(np.uint16), kind="stable")]


def chosen(found: Candidates, most: Ints, nearest: float = 0.0) -> Bools:
    """Which candidates become points, about ``most[node]`` of each node.

    Points nearer to each other than `nearest`, as a part of the node's core, are one.
    """
    node, value, mass, is_needed = found
    count = len(most)
    starts = np.searchsorted(node, np.arange(count + 1))
    below = np.concatenate([[0.0], np.cumsum(mass)])
    total = below[starts[1:]] - below[starts[:-1]]
    share = (below[1:] - below[starts[:-1]][node]) / np.maximum(total, 1e-300)[node]
    place = node + np.clip(share, 0.0, 1.0) * (1 - 1e-9)
    last = starts[1:] - 1
    low = value[np.minimum(np.searchsorted(place, np.arange(count) + CORE), last)]
    high = value[np.minimum(np.searchsorted(place, np.arange(count) + 1 - CORE), last)]
    # Evenly in the core, by ratios outside.
    middle, half = (low + high)[node] / 2, np.maximum((high - low)[node] / 2, 1e-300)
    with np.errstate(invalid="ignore", over="ignore"):
        far = np.arcsinh(np.clip((value - middle) / half, -FARTHEST, FARTHEST))
    near = far[starts[:-1]][node]
    across = (far - near) / np.maximum(far[last][node] - near, 1e-300)
    step = np.floor((BY_MASS * share + (1 - BY_MASS) * across) * most[node])
    is_end = np.zeros(len(node), dtype=bool)
    is_end[starts[:-1]] = is_end[last] = True
    crosses = np.concatenate([[True], step[1:] > step[:-1]])
    is_small = (np.diff(starts) <= most)[node]
    if nearest:
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            cell = np.floor(np.clip((value - middle) / (half * nearest), -(2.0**62), 2.0**62))
        is_apart = np.append(True, (cell[1:] != cell[:-1]) | (node[1:] != node[:-1]))
        is_small, crosses = is_small & is_apart, crosses & is_apart
    return is_end | is_needed | is_small | crosses


def filled(found: Candidates, most: Ints) -> Candidates:
    """The candidates and, where a node has fewer than it may have, some more between those that hold much mass.

    In a cycle, points that are only what points become by a move need not grow in number.
    """
    node, value, mass, _ = found
    width = np.where(node[1:] == node[:-1], np.diff(value), 0.0)
    size = np.maximum(np.abs(value[1:]), np.abs(value[:-1]))
    # The error of a cell of mass p and width w in n parts is about p·w²/n².
    starts = np.searchsorted(node, np.arange(len(most) + 1))
    reach = value[starts[1:] - 1] - value[starts[:-1]]
    part = np.where(width > THINNEST * size, width / np.maximum(reach[node[1:]], 1e-300), 0.0)
    score = np.cbrt(part**2 * (mass[1:] + mass[:-1]))
    total = summed(node[1:], score, len(most))
    left = np.maximum(most - np.diff(starts), 0)
    count = np.floor((left / np.maximum(total, 1e-300))[node[1:]] * score).astype(np.int64)
    cell, place = listed(1, count)
    more = value[cell] + width[cell] * (place / (count[cell] + 1))
    node, value = np.append(node, node[cell]), np.append(value, more)
    order = _order(node, value)
    columns = node, value, np.append(mass, np.zeros(len(cell))), np.append(found.is_needed, np.zeros(len(cell), bool))
    return Candidates._make(column[order] for column in columns)


def count_below(group: Ints, value: Floats, asked_group: Ints, asked: Floats) -> Ints:
    """For each number that is asked about: how many values of its group are below it. Values are sorted in each group.

    All are searched at once, by halving: several times faster than sorting both together.
    """
    starts = np.searchsorted(group, np.arange(int(asked_group.max(initial=-1)) + 2))
    first, size = starts[asked_group], np.diff(starts)[asked_group]
    found = np.zeros(len(asked), dtype=np.int64)
    step = 1 << int(size.max(initial=0)).bit_length() >> 1
    while step:
        probe = found + step
        is_inside = probe <= size
        is_below = value[np.where(is_inside, first + probe - 1, 0)] < asked
        found = np.where(is_inside & is_below, probe, found)
        step >>= 1
    return found


def masses_of(which: Ints, points: Floats, upper: Floats) -> Floats:
    """Of groups of points: second differences of the upper bounds."""
    is_last = np.append(which[1:] != which[:-1], True)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        slope = np.clip(np.nan_to_num(np.append(np.diff(upper) / np.diff(points), 0.0)), -1.0, 0.0)
    # The probability of being at most at a point; bounds that cross by rounding must not make it fall.
    count = np.cumsum(np.append(True, is_last[:-1]))
    F = np.maximum.accumulate(2 * count + 1 + np.where(is_last, 0.0, slope)) - 2 * count
    return np.clip(F - np.where(np.append(True, is_last[:-1]), 0.0, np.append(0.0, F[:-1])), 0.0, 1.0)


def chords_above(y: Floats, upper: Floats, first: Ints, size: Ints, count: Ints, t: Floats) -> Floats:
    """Bounds of stop-loss values at t: chords between points of a law, and the slope −1 to the left of all.

    Its points are `size` ones from `first` on, and `count` of them are below t.
    """
    left, right = first + np.maximum(count - 1, 0), first + np.minimum(count, size - 1)
    width = np.where(right > left, y[right] - y[left], 1.0)
    share = np.where(right > left, np.clip((t - y[left]) / width, 0.0, 1.0), 0.0)
    chord = (1 - share) * upper[left] + share * upper[right]
    value = np.where(count == 0, upper[first] + (y[first] - t), np.where(count == size, 0.0, chord))
    return np.asarray(np.maximum(value + 8 * UNIT * (np.abs(value) + np.abs(t) + np.abs(upper[left])), 0.0))


def lines_below(  # many parameters: the lines, and which of them are beside t
    y: Floats, value: Floats, slope: Floats, first: Ints, size: Ints, count: Ints, t: Floats
) -> Lines:
    """The higher of the two lines beside t, of points as above: its height there, and its slope + 1.

    G is nowhere below the first point, nor above the last one.
    """
    left, right = first + np.maximum(count - 1, 0), first + np.minimum(count, size - 1)
    is_left, is_right = count == 0, count == size
    tilts = np.where(is_left, 0.0, slope[left]), np.where(is_left, 0.0, slope[right])
    lines = []
    for i, tilt in zip((left, right), tilts, strict=True):
        fall = (tilt - 1) * (t - y[i])
        room = 4 * UNIT * (np.abs(value[i]) + np.abs(fall) + np.abs(t))
        lines.append((value[i] + fall - room, tilt))
    height, tilt = higher(lines[0], lines[1])
    return np.where(is_right, 0.0, height), np.where(is_right, 1.0, tilt)


def higher(one: Lines, other: Lines) -> Lines:
    """Of two lines at each place the one that is higher there."""
    is_higher = other[0] > one[0]
    return np.where(is_higher, other[0], one[0]), np.where(is_higher, other[1], one[1])


class Moves(NamedTuple):
    """The edges of some nodes, seen from one side."""

    parent: Ints  # position among the nodes
    child: Ints  # node; K for nothing
    weight: Floats
    shift: Floats
    counter: Floats
    scale: Floats


class Side:
    """One side of a graph; least values are known unless all that is asked about is a horizon."""

    def __init__(self, graph: PairGraph, sign: int, is_endless: bool = True) -> None:
        self.graph, self.sign = graph, sign
        e = graph.edges
        self.shift, self.counter = (e.shift, e.counter) if sign > 0 else (e.counter, e.shift)
        self.scale = np.where(e.is_discounted, graph.discount, 1.0)
        self.child = np.where(e.child < 0, graph.num_nodes, e.child)
        self.starts = np.searchsorted(e.parent, np.arange(graph.num_nodes + 1))
        self.rounding = graph.rounding + 2 * UNIT * (int(np.diff(self.starts).max()) + 16)
        # A residual ε of bounds costs at most so many ε: an error shrinks by γ in two half steps at the latest.
        gap = 1 - graph.discount * (1 + 2 * self.rounding) - 2 * self.rounding
        self.patience = 2 / gap + 1 if gap > 0 else math.inf
        # By level; within a level, nodes that can come to each other stand together.
        self.order = np.lexsort((graph.component, graph.is_cyclic, graph.level))
        self.least = self._least() if is_endless else np.full(graph.num_nodes + 1, -math.inf)

    def batches(self, most: Ints) -> list[tuple[Ints, bool]]:
        """Nodes to be solved together, children first, and whether they can come back to themselves.

        Runs of nodes of one level, each up to `BATCH` in size unless one component is larger.
        """
        graph, order, sizes = self.graph, self.order, self.sizes(most)[self.order]
        level, component = graph.level[order], graph.component[order]
        starts = np.flatnonzero(np.append(True, (component[1:] != component[:-1]) | (level[1:] != level[:-1])))
        kinds = zip(level[starts].tolist(), graph.is_cyclic[order][starts].tolist(), strict=True)
        found: list[tuple[Ints, bool]] = []
        begin, total, last = 0, 0, (-1, False)
        for start, kind, size in zip(starts.tolist(), kinds, np.add.reduceat(sizes, starts).tolist(), strict=True):
            if start > begin and (kind != last or total + size > BATCH):
                found.append((order[begin:start], last[1]))
                begin, total = start, 0
            total, last = total + size, kind
        return [*found, (order[begin:], last[1])]

    def parts(self, nodes: Ints, most: Ints) -> list[Ints]:
        """Some nodes, in parts of limited size."""
        total = np.cumsum(self.sizes(most)[nodes])
        return np.split(nodes, np.flatnonzero(np.diff(total // BATCH)) + 1) if len(nodes) else []

    def sizes(self, most: Ints) -> Ints:
        """Points that the moves of each node look at, about."""
        return np.diff(self.starts) * most

    def moves(self, nodes: Ints) -> Moves:
        """The edges of some nodes."""
        parent, edges = expand(self.starts, nodes)
        weight = self.graph.edges.weight[edges]
        return Moves(parent, self.child[edges], weight, self.shift[edges], self.counter[edges], self.scale[edges])

    def _least(self) -> Floats:
        """A value that each gap is never below; minus infinity where a cycle can cost for ever. Nothing is 0."""
        least = np.zeros(self.graph.num_nodes + 1)
        for nodes, is_cyclic in self.batches(np.ones(self.graph.num_nodes, dtype=np.int64)):
            if not is_cyclic:
                least[nodes] = _lowest(self.moves(nodes), least)
            elif self.graph.discount < 1:
                self._bound_cycles(nodes, least)
            else:
                self._bound_paths(nodes, least)
        return least

    def _bound_paths(self, nodes: Ints, least: Floats) -> None:
        """The least sum of an undiscounted path that leaves the cycles, if every round of them pays nothing or more.

        What is never above any move away from it is never above a path that ends, and all do: Bellman's and Ford's
        search. A round that costs, if only by rounding, lowers the values for ever.
        """
        moves = self.moves(nodes)
        starts = np.searchsorted(moves.parent, np.arange(len(nodes)))
        least[nodes] = math.inf
        for _ in range(min(len(nodes), ROUNDS) + 1):
            before = least[moves.child]
            after = np.where(np.isinf(before), before, moved(before, moves.shift, moves.scale))
            lowest = np.minimum.reduceat(after, starts)
            if np.array_equal(lowest, least[nodes]):
                break
            least[nodes] = lowest
        else:
            least[nodes] = -math.inf
        least[nodes] = np.where(np.isfinite(least[nodes]), least[nodes], -math.inf)

    def _bound_cycles(self, nodes: Ints, least: Floats) -> None:
        """A guess of the least values by policy iteration, lowered until one move, rounded down, confirms it."""
        moves, g = self.moves(nodes), self.graph.discount
        place = np.full(len(least), -1)
        place[nodes] = np.arange(len(nodes))
        inside = place[moves.child]
        known = np.where(inside >= 0, 0.0, least[moves.child])
        offset, scale = moves.shift + moves.scale * known, np.where(inside >= 0, moves.scale, 0.0)
        starts = np.searchsorted(moves.parent, np.arange(len(nodes)))
        # Each component has a scale of its own.
        _, component = np.unique(self.graph.component[nodes], return_inverse=True)
        largest = np.zeros(int(component.max()) + 1)
        np.maximum.at(largest, component[moves.parent], np.abs(moves.shift) + np.abs(offset))
        floor = -4 * largest[component] / (1 - g)
        guess = floor
        for _ in range(POLICIES):
            after = offset + scale * guess[inside]
            lowest = np.minimum.reduceat(after, starts)
            best = np.flatnonzero(after == lowest[moves.parent])
            best = best[np.searchsorted(moves.parent[best], np.arange(len(nodes)))]
            found = _along(offset[best], scale[best], np.maximum(inside[best], 0))
            is_still = np.allclose(found, guess, rtol=STILL, atol=0)
            guess = found
            if is_still:
                break
        size = np.zeros(len(largest))
        np.maximum.at(size, component, np.abs(guess))
        size += largest
        # Pairs need more room than half steps, whose undiscounted moves lead there; all that is booked by a move.
        part = np.where(self.graph.is_half[nodes], (1 + g) / 2, 1.0) / (1 - g)
        margin = 16 * UNIT
        while margin < 1:
            least[nodes] = guess - margin * part * size[component]
            if np.all(least[nodes] <= _lowest(moves, least)):
                return
            margin *= 8
        least[nodes] = floor


def _lowest(moves: Moves, least: Floats) -> Floats:
    """The least value after one move, rounded down."""
    after = moved(least[moves.child], moves.shift, moves.scale)
    return np.minimum.reduceat(after, np.flatnonzero(np.append(True, np.diff(moves.parent) != 0)))


def _along(offset: Floats, scale: Floats, following: Ints) -> Floats:
    """What is collected for ever where every node has one move, by doubling the number of moves."""
    while scale.max() > UNIT**2:
        offset, scale, following = offset + scale * offset[following], scale * scale[following], following[following]
    return offset


Once = Callable[[Side, Ints, Ints, NodeLaws, NodeLaws], None]
"""Makes the laws of some nodes, of so many points, from laws of their children, and puts them into others."""
Cycle = Callable[[Ints, NodeLaws], None]
"""Adds the laws of nodes that can come back to themselves."""


def node_laws(  # many parameters: what is moved, how, how often and how long
    side: Side,
    most: Ints,
    horizon: int | None,
    of_nothing: tuple[float, ...],
    once: Once,
    cycle: Cycle,
    is_over: IsOver,
) -> NodeLaws:
    """The laws of all nodes; over a horizon those of the roots, whose own step is the first."""
    if horizon is not None:
        return _over_horizon(side, most, horizon, of_nothing, once, is_over)
    laws = NodeLaws(side.graph.num_nodes, of_nothing, room_for(most))
    sizes = side.sizes(most)
    work = ((part, int(sizes[part[0]].sum())) for part in side.batches(most))
    for nodes, is_cyclic in within_time(work, int(sizes.sum()), is_over):
        if is_cyclic:
            cycle(nodes, laws)
        else:
            once(side, nodes, most, laws, laws)
    return laws


def _over_horizon(  # many parameters: those of `node_laws`
    side: Side, most: Ints, horizon: int, of_nothing: tuple[float, ...], once: Once, is_over: IsOver
) -> NodeLaws:
    graph = side.graph
    number = np.arange(graph.num_nodes)
    roots, halves = number[: graph.num_roots], number[graph.is_half]
    pairs = number[graph.num_roots :][~graph.is_half[graph.num_roots :]]
    sizes = side.sizes(most)
    now = NodeLaws(graph.num_nodes, of_nothing, room_for(most))
    now.put(pairs, np.ones(len(pairs), dtype=np.int64), np.zeros(len(pairs)), np.array(of_nothing)[:, None])
    after = now

    def parts() -> Iterator[tuple[tuple[Ints, bool], int]]:
        """Half steps stay in the laws of a step, whole ones lead to those of the next."""
        nonlocal now, after
        for step in range(horizon):
            for nodes in side.parts(halves, most):
                yield (nodes, True), int(sizes[nodes].sum())
            after = NodeLaws(graph.num_nodes, of_nothing, room_for(most))
            for nodes in side.parts(roots if step == horizon - 1 else pairs, most):
                yield (nodes, False), int(sizes[nodes].sum())
            now = after

    total = horizon * int(sizes[halves].sum()) + (horizon - 1) * int(sizes[pairs].sum()) + int(sizes[roots].sum())
    for nodes, is_half in within_time(parts(), total, is_over):
        once(side, nodes, most, now, now if is_half else after)
    return now


# -- equations of nodes that can come back to themselves -------------------------------------------------------------


class LinearStep(Protocol):
    """A matrix, or what acts like one."""

    def __matmul__(self, x: Floats) -> Floats: ...


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # a guess that overflows ends the search
def fixed_point(
    matrix: LinearStep,
    constant: Floats,
    relative: float = RELATIVE,
    start: Floats | None = None,
    is_over: IsOver | None = None,
) -> Floats:
    """A guess of x = matrix·x + constant, which the caller certifies.

    By BiCGSTAB from a `start` or from x = constant, for as long as time allows. Not SciPy's: its dot products run in
    threads, which on a busy machine take a thousand times as long as here.
    """
    # Half steps alternate between two kinds of nodes, and two moves at once are a plain step.
    x = constant.copy() if start is None else start
    constant = constant + matrix @ constant

    def apply(x: Floats) -> Floats:
        return x - matrix @ (matrix @ x)

    r = constant - apply(x)
    shadow, p, v = r.copy(), np.zeros_like(r), np.zeros_like(r)
    rho = alpha = omega = 1.0
    target = relative * float(np.abs(constant).max(initial=0.0))
    best, least = x, float(np.abs(r).max(initial=0.0))
    for _ in range(ITERATIONS):
        if least <= target or (is_over is not None and is_over()):
            break
        rho, before = _dot(shadow, r), rho
        if rho == 0 or omega == 0:
            break
        p = r + rho / before * alpha / omega * (p - omega * v)
        v = apply(p)
        slope = _dot(shadow, v)
        if slope == 0:
            break
        alpha = rho / slope
        s = r - alpha * v
        t = apply(s)
        size = _dot(t, t)
        omega = _dot(t, s) / size if size > 0 else 0.0
        x = x + alpha * p + omega * s
        r = s - omega * t
        left = float(np.abs(r).max())
        if not np.isfinite(left):
            break
        if left < least:
            best, least = x, left
    return best


def _dot(a: Floats, b: Floats) -> float:
    return float(np.einsum("i,i->", a, b))


Solve = Callable[[LinearStep, Floats, int], Floats]
"""Guesses the fixed point of a step and a constant: of the upper bounds (0), of the lower ones (1) or of slopes (2)."""


@np.errstate(invalid="ignore", over="ignore")  # what overflows bounds nothing
def certified_above(values: LinearStep, constant: Floats, upper: Floats, off: Floats, patience: float) -> Floats:
    """A guess of the fixed point, raised by what it misses at most."""
    return upper + patience * max(float(np.max(values @ upper + constant - upper + off)), 0.0)


@np.errstate(invalid="ignore", over="ignore")
def certified_lines(  # many parameters: how lines in a cycle follow from themselves, and how to solve for them
    values: LinearStep,
    slopes: LinearStep,
    slope_constant: Floats,
    line_constant: Callable[[Floats], Floats],
    off: Floats,
    reach: Floats | float,
    patience: float,
    solve: Solve,
) -> tuple[Floats, Floats]:
    """Lines that a move gives back, lowered by what they miss that by, at the point and by their slope elsewhere.

    `line_constant` is that of lines with these slopes + 1; rounding may put a value `off`, and G is at most `reach`
    from a point. A residual counts `patience` times.
    """
    slope = np.clip(solve(slopes, slope_constant, 2), 0.0, 1.0)
    constant = line_constant(slope)
    lower = solve(values, constant, 1)
    tilt = np.abs(slopes @ slope + slope_constant - slope) * reach
    missed = lower - values @ lower - constant + tilt + off
    return lower - patience * max(float(np.max(missed)), 0.0), slope


def chain(graph: PairGraph, scale: Floats | float) -> sp.csr_array:
    """What a node has to expect of a number of its children, where a move multiplies it by `scale`."""
    e, some = graph.edges, graph.edges.child >= 0
    weight = (e.weight * scale)[some]
    return sp.csr_array((weight, (e.parent[some], e.child[some])), shape=(graph.num_nodes,) * 2)


class NodeMeans(NamedTuple):
    """The mean of every node within a certified error, and about how far its values lie from it."""

    mean: Floats
    error: float
    spread: Floats


def node_means(side: Side) -> NodeMeans:
    """Means and standard deviations of all nodes; infinite errors where a cycle is not discounted."""
    e, size = side.graph.edges, side.graph.num_nodes
    mean = fixed_point(chain(side.graph, side.scale), summed(e.parent, e.weight * e.shift, size))
    after = e.shift + side.scale * np.where(e.child >= 0, mean[e.child], 0.0)
    missed = np.abs(summed(e.parent, e.weight * after, size) - mean)
    sizes = summed(e.parent, e.weight * (np.abs(after) + np.abs(e.shift) - e.counter - e.shift), size)
    missed += 4 * side.rounding * (sizes + np.abs(mean))
    is_rare = e.weight <= 2 * RAREST  # these may be far less likely still
    missed += summed(e.parent[is_rare], (e.weight * np.abs(after))[is_rare], size)
    error = side.patience * float(missed.max())
    error = math.inf if math.isnan(error) else error
    squares = summed(e.parent, e.weight * (after - mean[e.parent]) ** 2, size)
    variance = fixed_point(chain(side.graph, side.scale**2), squares)
    return NodeMeans(mean, error, np.sqrt(np.maximum(variance, 0.0)))
