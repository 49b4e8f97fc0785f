"""Laws of numbers that are never above a gap: bounds that hold path by path, for every node of a graph.

One move takes a number z of the child to ``shift + scale·z``, rounded down to a point of the parent. The distribution
function F of the rounded law, an upper bound of that of the gap, obeys

    F(z_j) = Σ_edges weight · F_child(last point that the move takes below z_{j+1}),

and what it says is ``P(G < z_{j+1}) ≤ F(z_j)``. Nodes that cannot come back to themselves need this once. In cycles it
is repeated, from what the stop-loss functions know: every repetition leaves a valid bound. The other side comes from
the same with all signs changed.
"""

import numpy as np
import scipy.sparse as sp

from jointmdp.exact.bellman.pair_step import RAREST
from jointmdp.exact.law.gap_law import Candidates, NodeLaws, candidates, chosen, count_below, filled, moved, room_for
from jointmdp.exact.law.one_sided import Moves, Side, laws_over
from jointmdp.exact.law.shared_points import is_shared
from jointmdp.ground.arrays import Floats, Ints, summed
from jointmdp.ground.limits import IsOver, within_time

SWEEPS = 20_000
SETTLED = 1e-9  # probability that a repetition must still move
OF_NOTHING = (1.0,)
LOOK = 16  # repetitions between two looks at the watch


def rounded_law(side: Side, most: Ints, guide: NodeLaws, old: NodeLaws | None, is_over: IsOver) -> NodeLaws:
    """The law of every node, rounded down to about ``most[node]`` points, no worse than an `old` one.

    `guide` has an estimate of every law, with masses for values, and upper bounds of the probability of being at most
    at each point. In cycles the points are placed by it.
    """
    laws = NodeLaws(side.graph.num_nodes, OF_NOTHING, room_for(most))
    for nodes, is_cyclic in within_time(*side.work(most), is_over):
        if is_cyclic and is_shared(side, nodes, most):
            _read_off(nodes, laws, guide, old)
        elif is_cyclic:
            _again(side, nodes, most, laws, guide, old, is_over)
        else:
            _once(side, nodes, most, laws, laws)
    return laws


def rounded_law_over(side: Side, most: Ints, horizon: int, is_over: IsOver) -> NodeLaws:
    """The same over a horizon."""
    return laws_over(side, most, horizon, OF_NOTHING, _once, is_over)


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


def _again(
    side: Side, nodes: Ints, most: Ints, laws: NodeLaws, guide: NodeLaws, old: NodeLaws | None, is_over: IsOver
) -> None:
    """Nodes that can come back to themselves."""
    moves = side.moves(nodes)
    found = filled(_candidates(moves, guide, side.least[nodes]), most[nodes])
    is_point = chosen(found, most[nodes])
    node, points = found.node[is_point], found.value[is_point]
    begin = laws.put(nodes, np.bincount(node, minlength=len(nodes)), points, 1.0)
    matrix, constant = _operator(nodes, moves, laws, laws, begin)
    F = _from_above(guide, nodes, node, points)
    if old is not None:
        F = np.minimum(F, _from_below(old, nodes, node, points))
    F, is_last = _not_lost(F), _is_last(node)
    F[is_last] = 1.0
    for sweep in range(SWEEPS):
        after = _not_lost(np.minimum(F, (matrix @ F + constant) * (1 + side.rounding)))
        after[is_last] = 1.0
        change = float(np.max(F - after))
        F = after
        if change <= SETTLED or (sweep % LOOK == LOOK - 1 and is_over()):
            break
    laws.values[0, begin:] = F


def _read_off(nodes: Ints, laws: NodeLaws, guide: NodeLaws, old: NodeLaws | None) -> None:
    """Nodes whose guide has so many points that its slopes say more than rounding at every move would."""
    node, place = guide.spread(nodes)
    points = guide.points[place]
    F = _from_above(guide, nodes, node, points)
    if old is not None:
        F = np.minimum(F, _from_below(old, nodes, node, points))
    F = _not_lost(np.where(_is_last(node), 1.0, F))
    laws.put(nodes, guide.size[nodes], points, F)


def _not_lost(F: Floats) -> Floats:
    """Probabilities that are not 0, and so small that products would be, made larger."""
    return np.where(F > 0, np.maximum(F, RAREST), 0.0)


def _is_last(node: Ints) -> Floats:
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


def _following(node: Ints, points: Floats) -> Floats:
    return np.where(_is_last(node), np.inf, np.append(points[1:], np.inf))


def _from_below(old: NodeLaws, nodes: Ints, node: Ints, points: Floats) -> Floats:
    """What an old law knows at new points."""
    which, place = old.spread(nodes)
    count = count_below(which, old.points[place], node, _following(node, points))
    return np.where(count > 0, old.values[0, np.maximum(old.begin[nodes][node] + count - 1, 0)], 0.0)


def _from_above(guide: NodeLaws, nodes: Ints, node: Ints, points: Floats) -> Floats:
    """What the guide's bounds at its next points say."""
    which, place = guide.spread(nodes)
    count = count_below(which, guide.points[place], node, _following(node, points))
    is_beyond = count == guide.size[nodes][node]
    at = np.where(is_beyond, 0, guide.begin[nodes][node] + count)
    return np.where(is_beyond, 1.0, guide.values[1, at])
