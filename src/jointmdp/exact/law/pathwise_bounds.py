"""Laws of numbers that are never above a gap: bounds that hold path by path, for every node of a graph.

One move takes a number z of the child to ``shift + scale·z``, rounded down to a point of the parent. The distribution
function F of the rounded law, an upper bound of that of the gap, obeys

    F(z_j) = Σ_edges weight · F_child(last point that the move takes below z_{j+1}),

and what it says is ``P(G < z_{j+1}) ≤ F(z_j)``. Nodes that cannot come back to themselves need this once. In cycles it
is repeated, from what the stop-loss functions know: every repetition leaves a valid bound. The other side comes from
the same with all signs changed.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from jointmdp.exact.law.node_laws import (
    Candidates,
    Moves,
    NodeLaws,
    Side,
    candidates,
    chosen,
    count_below,
    filled,
    moved,
    node_laws,
)
from jointmdp.exact.bellman.pair_step import RAREST
from jointmdp.exact.law.shared_points import is_shared
from jointmdp.ground.arrays import Bools, Floats, Ints, summed
from jointmdp.ground.limits import IsOver

SWEEPS = 20_000
SETTLED = 1e-9  # probability that a repetition must still move
OF_NOTHING = (1.0,)
LOOK = 16  # repetitions between two looks at the watch


class Known(NamedTuple):
    """What is known of all nodes before they are rounded."""

    guide: NodeLaws
    """An estimate of every law, with masses for values, and upper bounds of the probability of being at most there."""
    old: NodeLaws | None
    """The rounded laws of a coarser level."""

    def at(self, nodes: Ints, node: Ints, points: Floats) -> Floats:
        """Bounds of distribution functions at new points: those of the guide's next points, and of the old laws."""
        following = np.where(_is_last(node), np.inf, np.append(points[1:], np.inf))
        which, place = self.guide.spread(nodes)
        count = count_below(which, self.guide.points[place], node, following)
        is_beyond = count == self.guide.size[nodes][node]
        F = self.guide.values[1, np.where(is_beyond, 0, self.guide.begin[nodes][node] + count)]
        F = np.where(is_beyond | _is_last(node), 1.0, F)
        if self.old is not None:
            which, place = self.old.spread(nodes)
            count = count_below(which, self.old.points[place], node, following)
            before = self.old.values[0, np.maximum(self.old.begin[nodes][node] + count - 1, 0)]
            F = np.minimum(F, np.where(count > 0, before, 0.0))
        return np.where(_is_last(node), 1.0, _not_lost(F))


def rounded_law(  # many parameters: of what, how fine, and what is known already
    side: Side, most: Ints, horizon: int | None, guide: NodeLaws | None, old: NodeLaws | None, is_over: IsOver
) -> NodeLaws:
    """The law of every node, rounded down to about ``most[node]`` points, no worse than an `old` one.

    In cycles the points are placed by the guide; where it has very many, its slopes say more than rounding would.
    """

    def cycle(nodes: Ints, laws: NodeLaws) -> None:
        assert guide is not None
        known = Known(guide, old)
        if is_shared(side, nodes, most):
            node, place = guide.spread(nodes)
            points = guide.points[place]
            laws.put(nodes, guide.size[nodes], points, known.at(nodes, node, points))
        else:
            _again(side, nodes, most, laws, known, is_over)

    return node_laws(side, most, horizon, OF_NOTHING, _once, cycle, is_over)


def _once(side: Side, nodes: Ints, most: Ints, laws: NodeLaws, into: NodeLaws) -> None:
    """Nodes whose children are known."""
    moves = side.moves(nodes)
    found = _candidates(moves, laws, None)
    is_point = chosen(found, most[nodes])
    node, points = found.node[is_point], found.value[is_point]
    begin = into.put(nodes, np.bincount(node, minlength=len(nodes)), points, 1.0)
    _, constant = _operator(nodes, moves, laws, into, begin)
    F = _not_lost(np.minimum(constant * (1 + side.rounding), 1.0))
    F[_is_last(node)] = 1.0
    into.values[0, begin:] = F


def _again(side: Side, nodes: Ints, most: Ints, laws: NodeLaws, known: Known, is_over: IsOver) -> None:
    """Nodes that can come back to themselves."""
    moves = side.moves(nodes)
    found = filled(_candidates(moves, known.guide, side.least[nodes]), most[nodes])
    is_point = chosen(found, most[nodes])
    node, points = found.node[is_point], found.value[is_point]
    begin = laws.put(nodes, np.bincount(node, minlength=len(nodes)), points, 1.0)
    matrix, constant = _operator(nodes, moves, laws, laws, begin)
    F, is_last = known.at(nodes, node, points), _is_last(node)
    for sweep in range(SWEEPS):
        after = _not_lost(np.minimum(F, (matrix @ F + constant) * (1 + side.rounding)))
        after[is_last] = 1.0
        change = float(np.max(F - after))
        F = after
        if change <= SETTLED or (sweep % LOOK == LOOK - 1 and is_over()):
            break
    laws.values[0, begin:] = F


def _not_lost(F: Floats) -> Floats:
    """Probabilities that are not 0, and so small that products would be, made larger."""
    return np.where(F > 0, np.maximum(F, RAREST), 0.0)


def _is_last(node: Ints) -> Bools:
    """Whether a point is the last of its node."""
    return np.append(node[1:] != node[:-1], True)


def _candidates(moves: Moves, laws: NodeLaws, least: Floats | None) -> Candidates:
    """Where moves take the points of known laws, and with what mass; the least of them are needed if not given.

    Without least values the laws are distribution functions, else guides.
    """
    which, place = laws.spread(moves.child)
    value = moved(laws.points[place], moves.shift[which], moves.scale[which])
    node, mass = moves.parent[which], laws.values[0, place]
    if least is None:
        is_first = np.append(True, which[1:] != which[:-1])
        mass = np.maximum(mass - np.where(is_first, 0.0, laws.values[0, place - 1]), 0.0)
        least = np.minimum.reduceat(value, np.flatnonzero(np.append(True, node[1:] != node[:-1])))
    some = value >= least[node]
    return candidates(node[some], value[some], (moves.weight[which] * mass)[some], least)


def _operator(nodes: Ints, moves: Moves, laws: NodeLaws, into: NodeLaws, begin: int) -> tuple[sp.csr_array, Floats]:
    """One move of all `nodes`, whose points begin at `begin` of `into`: ``F ↦ matrix·F + constant``."""
    size = into.used - begin
    asked, row = into.spread(nodes[moves.parent])
    is_last = np.append(asked[1:] != asked[:-1], True)
    following = np.where(is_last, np.inf, into.points[np.minimum(row + 1, into.used - 1)])
    which, place = laws.spread(moves.child)
    value = moved(laws.points[place], moves.shift[which], moves.scale[which])
    count = count_below(which, value, asked, following)
    some = count > 0
    asked, row, count = asked[some], row[some] - begin, count[some]
    child, weight = moves.child[asked], moves.weight[asked]
    column = laws.begin[child] + count - 1
    is_full = count == laws.size[child]
    is_known = is_full | (column < begin) if into is laws else np.ones(len(column), dtype=bool)
    known = np.where(is_full, 1.0, laws.values[0, column]) * weight
    constant = summed(row[is_known], known[is_known], size)
    entries = (weight[~is_known], (row[~is_known], column[~is_known] - begin))
    return sp.coo_array(entries, shape=(size, size)).tocsr(), constant
