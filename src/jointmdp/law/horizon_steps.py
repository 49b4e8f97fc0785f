"""Laws over a horizon: one step after the other, from the end."""

from collections.abc import Callable, Iterator

import numpy as np

from jointmdp.arrays import Ints
from jointmdp.law.gap_sides import Side
from jointmdp.law.node_grids import NodeLaws, room_for
from jointmdp.law.time_limit import IsOver, within_time

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
