"""A graph of gaps as the law of G sees it, or that of −G: moves, order, least values and rounding.

Laws over a horizon: one step after the other, from the end.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from jointmdp.exact.law.gap_law import NodeLaws, moved, room_for
from jointmdp.exact.law.pair_graph import PairGraph
from jointmdp.ground.arrays import UNIT, Floats, Ints
from jointmdp.ground.limits import IsOver, within_time

POLICIES = 100  # that are tried for the least values in a cycle
ROUNDS = 10_000  # of an undiscounted cycle until it counts as one that costs for ever
STILL = 1e-9  # relative change of the guessed least values at which they are good enough
BATCH = 2**19  # points of children that are moved at once, where nodes may be taken apart


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
        """Nodes to be solved together, children first, and whether they can come back to themselves."""
        return split(self.graph, self.order, self.sizes(most))

    def work(self, most: Ints) -> tuple[list[tuple[tuple[Ints, bool], int]], int]:
        """The same with their sizes, and the sum of these."""
        sizes = self.sizes(most)
        return [((nodes, is_cyclic), int(sizes[nodes].sum())) for nodes, is_cyclic in self.batches(most)], int(
            sizes.sum()
        )

    def parts(self, nodes: Ints, most: Ints) -> list[Ints]:
        """Some nodes, in parts of limited size."""
        total = np.cumsum(self.sizes(most)[nodes])
        return np.split(nodes, np.flatnonzero(np.diff(total // BATCH)) + 1) if len(nodes) else []

    def sizes(self, most: Ints) -> Ints:
        """Points that the moves of each node look at, about."""
        return np.diff(self.starts) * most

    def moves(self, nodes: Ints) -> Moves:
        """The edges of some nodes."""
        counts = self.starts[nodes + 1] - self.starts[nodes]
        parent = np.repeat(np.arange(len(nodes)), counts)
        edges = np.arange(len(parent)) - np.repeat(np.cumsum(counts) - counts, counts) + self.starts[nodes][parent]
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


def split(graph: PairGraph, order: Ints, sizes: Ints) -> list[tuple[Ints, bool]]:
    """Runs of nodes of one level, each up to `BATCH` in size unless one component is larger."""
    level, component = graph.level[order], graph.component[order]
    starts = np.flatnonzero(np.append(True, (component[1:] != component[:-1]) | (level[1:] != level[:-1])))
    kinds = zip(level[starts].tolist(), graph.is_cyclic[order][starts].tolist(), strict=True)
    found: list[tuple[Ints, bool]] = []
    begin, total, last = 0, 0, (-1, False)
    for start, kind, size in zip(starts.tolist(), kinds, np.add.reduceat(sizes[order], starts).tolist(), strict=True):
        if start > begin and (kind != last or total + size > BATCH):
            found.append((order[begin:start], last[1]))
            begin, total = start, 0
        total, last = total + size, kind
    return [*found, (order[begin:], last[1])]


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


def laws_over(  # many parameters: what is moved, how, how often and how long
    side: Side, most: Ints, horizon: int, of_nothing: tuple[float, ...], once: Once, is_over: IsOver
) -> NodeLaws:
    """The laws of the roots after `horizon` steps, the first of which is theirs."""
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
