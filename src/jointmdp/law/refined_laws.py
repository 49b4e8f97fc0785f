"""Laws of some gaps, refined level by level, each made from the one before: 64 points to a node, then three times more.

What a level takes is known before it is begun: the edges are counted, and every one of them moves all points of its
child. Levels do not depend on what is asked of them, so neither do answers.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from jointmdp.arrays import Ints
from jointmdp.errors import NotKnownError
from jointmdp.law.convex_bounds import stop_loss_bounds, stop_loss_over
from jointmdp.law.distribution_bounds import distribution_bounds
from jointmdp.law.gap_law import RootBounds, RoundedLaw
from jointmdp.law.gap_sides import Side
from jointmdp.law.node_grids import NodeLaws, room_for
from jointmdp.law.node_means import node_means
from jointmdp.law.pathwise_bounds import rounded_law, rounded_law_over
from jointmdp.law.reached_pairs import PairGraph
from jointmdp.law.shared_points import bytes_for_shared, is_shared
from jointmdp.law.time_limit import IsOver, OutOfTimeError

FEWEST, FACTOR = 64, 3
POINT_BYTES = 260  # that a point of a node takes: laws of two levels, and what guides them
ENTRY_BYTES = 300  # that a point takes which an edge moves
NODE_BYTES = 600
BASE_BYTES = 2**20


class Level(NamedTuple):
    """What was found of all roots with so many points to a node."""

    points: int
    pairs: int
    roots: list[RootBounds]
    bytes_needed: int
    seconds: float
    is_cut: bool
    """Whether time ended before it was done; its bounds hold all the same."""


class Refinement:
    """The laws of one graph at the finest level made so far."""

    def __init__(self, graph: PairGraph, horizon: int | None) -> None:
        self.graph, self.horizon = graph, horizon
        self.up, self.down = (Side(graph, sign, horizon is None) for sign in (1, -1))
        if horizon is None and not all(np.all(np.isfinite(side.least)) for side in (self.up, self.down)):
            raise NotKnownError(
                "the law of this gap is not known: without a discount, a branch can be paid again and again, and no "
                "amount bounds the gap; give a discount below 1 or a horizon, or estimate: simulate_gap and "
                "compare(policies=…)"
            )
        self.means = node_means(self.up) if horizon is None else None
        self.convex: NodeLaws | None = None
        self.both: list[NodeLaws | None] = [None, None]

    def most(self, points: int) -> Ints:
        """Points of each node; those that have only few values will have fewer."""
        return np.full(self.graph.num_nodes, points)

    def bytes_for(self, points: int) -> int:
        """What a level takes at most."""
        most = self.most(points)
        sizes = self.up.sizes(most)
        largest = 0
        for nodes, is_cyclic in self.up.batches(most):
            if is_cyclic and self.horizon is None and is_shared(self.up, nodes, most):
                largest = max(largest, bytes_for_shared(self.graph, nodes, points))
            else:
                largest = max(largest, ENTRY_BYTES * int(sizes[nodes].sum()))
        fixed = BASE_BYTES + NODE_BYTES * self.graph.num_nodes + 100 * len(self.graph.edges.parent)
        return max(self.graph.bytes_made, fixed + POINT_BYTES * room_for(most) + largest)

    def refine(self, points: int, is_over: IsOver, report: Callable[[float], None]) -> list[RootBounds]:
        """The next level; an error where time ends long before it is done."""
        most = self.most(points)
        if self.horizon is not None:
            self.convex = stop_loss_over(self.up, most, self.horizon, is_over)
            report(1 / 3)
            for i, side in enumerate((self.up, self.down)):
                self.both[i] = rounded_law_over(side, most, self.horizon, is_over)
                report((i + 2) / 3)
        else:
            assert self.means is not None
            self.convex = stop_loss_bounds(self.up, self.down, most, self.means, self.convex, is_over)
            report(1 / 3)
            with suppress(OutOfTimeError):  # then what a coarser level knows stays, or the least values
                self._round(most, is_over, report)
        return [self._root(number) for number in range(self.graph.num_roots)]

    def _round(self, most: Ints, is_over: IsOver, report: Callable[[float], None]) -> None:
        assert self.convex is not None
        if is_over():
            return
        for i, (side, guide) in enumerate(zip((self.up, self.down), distribution_bounds(self.convex), strict=True)):
            self.both[i] = rounded_law(side, most, guide, self.both[i], is_over)
            report((i + 2) / 3)

    def _root(self, number: int) -> RootBounds:
        assert self.convex is not None
        rounded = []
        for side, laws in zip((self.up, self.down), self.both, strict=True):
            z, (F,) = (side.least[[number]], np.ones((1, 1))) if laws is None else laws.of(number)
            rounded.append(RoundedLaw(z, F))
        y, (upper, lower, slope) = self.convex.of(number)
        up, down = rounded
        return RootBounds(up, down, y, upper, lower, slope)
