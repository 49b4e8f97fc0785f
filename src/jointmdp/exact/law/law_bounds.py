"""Bounds of the laws of all nodes of a graph, of two kinds: in convex order, and path by path.

In convex order, of stop-loss functions ``Π(u) = E(G − u)⁺``: one move takes Π of the child to
``scale · Π((u − shift)/scale)``. From above Π is known at the points of a node, and the chord between two points lies
above it: each value is spread over its neighbours, keeping the mean. From below it is known by lines
``V_j + (D_j − 1)(u − y_j)``, and a move takes the higher of the two beside u to a line again. Which is higher once
chosen, all this is linear, so in a cycle the bounds solve a linear system, and what its solution misses by is given
away on the safe side: a step multiplies an error by at most γ, hence a residual ε costs at most 2ε/(1−γ).

Path by path, of numbers that are never above a gap: one move takes a number z of the child to ``shift + scale·z``,
rounded down to a point of the parent. The distribution function F of the rounded law, an upper bound of that of the
gap, obeys

    F(z_j) = Σ_edges weight · F_child(last point that the move takes below z_{j+1}),

and what it says is ``P(G < z_{j+1}) ≤ F(z_j)``. Nodes that cannot come back to themselves need this once. In cycles it
is repeated, from what the stop-loss functions know: every repetition leaves a valid bound. The other side comes from
the same with all signs changed.
"""

import math
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from jointmdp.exact.bellman.pair_step import RAREST
from jointmdp.exact.law.node_laws import (
    POSITIVE,
    Candidates,
    Lines,
    Moves,
    NodeLaws,
    NodeMeans,
    Side,
    candidates,
    certified_above,
    certified_lines,
    chords_above,
    chosen,
    count_below,
    filled,
    fixed_point,
    higher,
    lines_below,
    masses_of,
    moved,
    node_laws,
)
from jointmdp.exact.law.shared_points import SharedPoints, common_points, is_shared
from jointmdp.ground.arrays import UNIT, Bools, Floats, Ints, summed
from jointmdp.ground.limits import IsOver

SPREAD = 5.0  # standard deviations over which the first points of a cycle are placed
NEAREST = 1e-7  # two points nearer than this part of the core would make slopes of rounding errors
ROUNDS, SOLVED, SWEEPS, PAYING = 100, 2, 8, 0.95  # of the lines; a round must narrow the bounds to this share to pay

UPPER, V, D = 0, 1, 2  # fields of the laws
OF_NOTHING = (0.0, 0.0, 1.0)


class Known(NamedTuple):
    """What is known of all nodes before their bounds are."""

    least: Floats
    largest: Floats
    means: NodeMeans
    old: NodeLaws | None
    """Of a coarser level."""

    def at(self, nodes: Ints, node: Ints, points: Floats) -> tuple[Floats, Lines]:
        """Bounds from above and from below: by the old laws, by the largest values and by the mean."""
        mean = self.means.mean[nodes][node]
        lowest = mean - self.means.error - points - 4 * UNIT * (np.abs(mean) + self.means.error + np.abs(points))
        lines = np.maximum(lowest, 0.0), (lowest <= 0).astype(float)
        if self.old is None:
            return np.nextafter(np.maximum(self.largest[nodes][node] - points, 0.0), np.inf), lines
        upper, below = read(self.old, self.old.beside(nodes, node, points), points)
        return upper, higher(lines, below)


def read(laws: NodeLaws, beside: tuple[Ints, Ints, Ints], t: Floats) -> tuple[Floats, Lines]:
    """Bounds of stop-loss values at t from above, and lines from below."""
    upper, value, slope = laws.values
    return chords_above(laws.points, upper, *beside, t), lines_below(laws.points, value, slope, *beside, t)


def stop_loss_bounds(  # many parameters: of what, how fine, and what is known already
    up: Side,
    down: Side,
    most: Ints,
    horizon: int | None,
    means: NodeMeans | None,
    old: NodeLaws | None,
    is_over: IsOver,
) -> NodeLaws:
    """Bounds at about ``most[node]`` points of every node; in cycles the points are placed by an old law, moved."""

    def cycle(nodes: Ints, laws: NodeLaws) -> None:
        assert means is not None
        solve = _on_shared if is_shared(up, nodes, most) else _again
        solve(up, nodes, most, laws, Known(up.least, -down.least, means, old), is_over)

    return node_laws(up, most, horizon, OF_NOTHING, _once, cycle, is_over)


def _once(side: Side, nodes: Ints, most: Ints, laws: NodeLaws, into: NodeLaws) -> None:
    """Nodes whose children are known; a line that is negative where it is asked about is that of 0."""
    moves = side.moves(nodes)
    node, points = _points(moves, laws, None, most[nodes])
    begin = into.put(nodes, np.bincount(node, minlength=len(nodes)), points, 0.0)
    edge, row = into.spread(nodes[moves.parent])
    upper, lower, slope, off = _after(moves, edge, row - begin, into.points[row], laws, len(points))
    reach = (_of_last(node, points) - _of_first(node, points))[node]
    off += 4 * side.rounding * (np.abs(upper) + reach)
    lower -= off
    is_nothing = ~(lower > 0)
    lines = np.where(is_nothing, 0.0, lower), np.where(is_nothing, 1.0, np.clip(slope, 0, 1))
    into.values[:, begin:] = np.stack([upper + off, *lines])


def _after(  # many parameters: the moves, the points that ask them, and the laws that are asked
    moves: Moves, edge: Ints, row: Ints, y: Floats, laws: NodeLaws, size: int
) -> Floats:
    """What bounds of known laws become by a move of each `edge`, summed at every row; and how far off they may be.

    Shifts and thresholds are rounded; Π is nowhere steeper than 1.
    """
    shift, scale, weight = (column[edge] for column in (moves.shift, moves.scale, moves.weight))
    u = (y - shift) / scale
    upper, (value, slope) = read(laws, laws.beside(moves.child, edge, u), u)
    off = (-moves.counter[edge] - shift) + 4 * UNIT * (np.abs(y) + np.abs(shift))
    return np.stack([summed(row, weight * part, size) for part in (scale * upper, scale * value, slope, off)])


def _of_first(node: Ints, values: Floats) -> Floats:
    return values[np.append(True, node[1:] != node[:-1])]


def _of_last(node: Ints, values: Floats) -> Floats:
    return values[np.append(node[1:] != node[:-1], True)]


def _again(side: Side, nodes: Ints, most: Ints, laws: NodeLaws, known: Known, is_over: IsOver) -> None:
    """Nodes that can come back to themselves."""
    moves = side.moves(nodes)
    least, largest = known.least[nodes], known.largest[nodes]
    if known.old is None:
        means = known.means.mean[nodes], known.means.spread[nodes]
        node, points = _thinned(_around(moves, least, largest, *means, int(most[nodes].max())), most[nodes])
    else:
        node, points = _points(moves, known.old, (least, largest), most[nodes])
    begin = laws.put(nodes, np.bincount(node, minlength=len(nodes)), points, 0.0)
    upper, start = known.at(nodes, node, points)
    if not math.isfinite(side.patience):  # undiscounted: no residual says how far off a solution is
        laws.values[:, begin:] = np.stack([np.where(points >= largest[node], 0.0, upper), *start])
        return
    found = OwnPoints(side, nodes, moves, laws, begin, (largest - least)[node]).solved(start, is_over)
    if is_over():  # then the solution may be worse than what was known
        found[UPPER] = np.minimum(found[UPPER], upper)
    laws.values[:, begin:] = found


def _on_shared(side: Side, nodes: Ints, most: Ints, laws: NodeLaws, known: Known, is_over: IsOver) -> None:
    """Nodes of which nearly every two states meet, on points that all share."""
    guess = _normal(known.means, nodes) if known.old is None else _of_laws(known.old, nodes)
    points = common_points(side, nodes, *guess, (known.least, known.largest), int(most[nodes].max()))
    shared, count = SharedPoints(side, nodes, points), len(points)

    def before(some: Ints) -> Floats:
        """What is known already, ``[3, nodes, N]``."""
        node, z = np.repeat(np.arange(len(some)), count), np.tile(points, len(some))
        upper, lines = known.at(some, node, z)
        return np.stack([upper, *lines]).reshape(3, len(some), count)

    found = shared.solved(before(shared.pairs), is_over)
    is_half = side.graph.is_half[nodes]
    place = np.searchsorted(shared.pairs, nodes[~is_half])
    for some, values in ((nodes[~is_half], found[:, place]), (nodes[is_half], shared.halves(found, nodes[is_half]))):
        was = before(some)
        upper = np.where(points >= known.largest[some][:, None], 0.0, np.minimum(values[UPPER], was[UPPER]))
        lines = higher((values[V], values[D]), (was[V], was[D]))
        values = np.stack([upper, *lines]).reshape(3, -1)
        laws.put(some, np.full(len(some), count), np.tile(points, len(some)), values)


def _of_laws(old: NodeLaws, nodes: Ints) -> tuple[Floats, Floats]:
    """Values and masses of known laws."""
    which, place = old.spread(nodes)
    return old.points[place], masses_of(which, old.points[place], old.values[UPPER, place])


def _normal(known: NodeMeans, nodes: Ints) -> tuple[Floats, Floats]:
    """The same where only means and standard deviations are known."""
    at = np.linspace(-SPREAD, SPREAD, 41)
    value = known.mean[nodes][:, None] + known.spread[nodes][:, None] * at
    return value.ravel(), np.tile(np.exp(-(at**2) / 2), len(nodes))


def _points(moves: Moves, known: NodeLaws, ends: tuple[Floats, Floats] | None, most: Ints) -> tuple[Ints, Floats]:
    """Where moves take the points of known laws, thinned out."""
    which, place = known.spread(moves.child)
    node = moves.parent[which]
    value = moves.shift[which] + moves.scale[which] * known.points[place]
    is_cyclic = ends is not None
    if ends is None:
        starts = np.flatnonzero(np.append(True, node[1:] != node[:-1]))
        ends = np.minimum.reduceat(value, starts), np.maximum.reduceat(value, starts)
        room = 4 * UNIT * (np.abs(ends[0]) + np.abs(ends[1]) + np.maximum.reduceat(np.abs(moves.shift[which]), starts))
        ends = ends[0] - room, ends[1] + room
    mass = masses_of(which, known.points[place], known.values[UPPER, place])
    found = _within(node, value, moves.weight[which] * mass, *ends)
    found = filled(found, most) if is_cyclic else found
    return _thinned(found, most)


def _thinned(found: Candidates, most: Ints) -> tuple[Ints, Floats]:
    """Points among the candidates; what stands for all above 0 is none, unless it is an end."""
    is_inside = np.append(False, found.node[1:] == found.node[:-1]) & np.append(
        found.node[1:] == found.node[:-1], False
    )
    is_point = chosen(found, most, NEAREST) & ~(is_inside & (found.value == POSITIVE))
    return found.node[is_point], found.value[is_point]


def _within(node: Ints, value: Floats, mass: Floats, least: Floats, largest: Floats) -> Candidates:
    """Candidates between the ends, which are points too."""
    count = len(least)
    node, value = np.append(node, np.arange(count)), np.append(value, largest)
    value = np.clip(value, least[node], largest[node])
    found = candidates(node, value, np.append(mass, np.zeros(count)), least)
    inside = found.value <= largest[found.node]
    found = Candidates._make(column[inside] for column in found)
    return found._replace(is_needed=found.is_needed | (found.value == largest[found.node]))


def _around(moves: Moves, least: Floats, largest: Floats, centre: Floats, spread: Floats, most: int) -> Candidates:
    """Points around the mean, what one move alone can pay, and the way to the ends."""
    around = centre[:, None] + spread[:, None] * np.linspace(-SPREAD, SPREAD, most)
    reach = np.maximum(np.abs(largest - centre), np.abs(least - centre))
    unit = np.maximum(SPREAD * spread, 1e-12 * reach)
    ratio = np.maximum(reach / np.maximum(unit, 1e-300), 1.0)[:, None] ** np.linspace(0, 1, most // 2)
    far = unit[:, None] * ratio
    down, above = centre[:, None] - far, centre[:, None] + far
    value = np.concatenate([around, down, above], axis=1)
    node = np.repeat(np.arange(len(least)), value.shape[1])
    mass = np.full(value.size, 1.0 / most)
    parts = np.append(node, moves.parent), np.append(value, moves.shift), np.append(mass, moves.weight)
    return _within(*parts, least, largest)


class OwnPoints:
    """The nodes of a cycle, each on points of its own: what a move makes of the bounds at all points, ``[M]``.

    An entry asks one child, whose bounds are not known yet, for the two lines beside a threshold; left of all points
    for the first one twice, with a slope of −1; right of all points nothing is left.
    """

    def __init__(  # many parameters: the cycle, and where its points stand
        self, side: Side, nodes: Ints, moves: Moves, laws: NodeLaws, begin: int, reach: Floats
    ) -> None:
        self.side, self.reach, size = side, reach, len(reach)
        edge, row = laws.spread(nodes[moves.parent])
        y, row = laws.points[row], row - begin
        is_known = (laws.begin[moves.child] < begin)[edge]
        self.constant = _after(moves, edge[is_known], row[is_known], y[is_known], laws, size)
        edge, row, y = edge[~is_known], row[~is_known], y[~is_known]
        shift, scale, weight = (column[edge] for column in (moves.shift, moves.scale, moves.weight))
        off = (-moves.counter[edge] - shift) + 4 * UNIT * (np.abs(y) + np.abs(shift))
        self.constant[-1] += summed(row, weight * off, size)
        u = (y - shift) / scale
        first, length, count = laws.beside(moves.child, edge, u)
        is_below, is_inside = count == 0, count < length
        self.constant[D] += summed(row[~is_inside], weight[~is_inside], size)
        short = np.where(is_below, laws.points[first] - u, 0.0) * weight * scale
        self.constant[: V + 1] += summed(row, short, size)
        self.row, u, is_below = row[is_inside], u[is_inside], is_below[is_inside]
        left = (first + np.maximum(count - 1, 0))[is_inside]
        right = np.where(is_below, left, left + 1)
        self.from_left, self.from_right = (np.where(is_below, 0.0, u - laws.points[at]) for at in (left, right))
        self.scaled, self.weight = (weight * scale)[is_inside], np.where(is_below, 0.0, weight[is_inside])
        self.left, self.right = left - begin, right - begin

    def _matrix(self, of_left: Floats, of_right: Floats) -> sp.csr_array:
        """A number from the line to the left, and one from that to the right."""
        at = np.tile(self.row, 2), np.concatenate([self.left, self.right])
        return sp.coo_array((np.concatenate([of_left, of_right]), at), shape=(len(self.reach),) * 2).tocsr()

    def _heights(self, lines: Lines) -> tuple[Floats, Floats]:
        """How high the two lines are that each entry asks."""
        lower, slope = lines
        left = lower[self.left] + (slope[self.left] - 1) * self.from_left
        return left, lower[self.right] + (slope[self.right] - 1) * self.from_right

    def solved(self, lines: Lines, is_over: IsOver) -> Floats:
        """Valid bounds at all points, ``[3, M]``, from lines that hold already."""
        constant, size, patience = self.constant, len(self.reach), self.side.patience
        # Both shares are computed apart: one less a share that is nearly 1 would have no digits.
        cell = np.where(self.from_left > self.from_right, self.from_left - self.from_right, 1.0)
        is_once = self.left == self.right
        shares = np.where(is_once, 1.0, np.clip(-self.from_right / cell, 0, 1)), np.clip(self.from_left / cell, 0, 1)
        chord = self._matrix(self.scaled * shares[0], self.scaled * shares[1])
        upper = fixed_point(chord, constant[UPPER], is_over=is_over)
        off = constant[-1] + 4 * self.side.rounding * (np.abs(upper) + self.reach)
        upper = np.maximum(certified_above(chord, constant[UPPER], upper, off, patience), 0.0)
        lines, width = higher(lines, self._solved_lines(shares[0], off, is_over)), np.inf
        for turn in range(ROUNDS):
            if turn < SOLVED:
                one, two = self._heights(lines)
                lines = higher(lines, self._solved_lines((one >= two).astype(float), off, is_over))
            for _ in range(SWEEPS):
                one, two = self._heights(lines)
                slope = self.weight * lines[1][np.where(two > one, self.right, self.left)]
                value = summed(self.row, self.scaled * np.maximum(one, two), size) + constant[V] - off
                lines = higher(lines, (value, np.clip(summed(self.row, slope, size) + constant[D], 0.0, 1.0)))
            before, width = width, float(np.mean(upper - lines[0]))
            if not width <= PAYING * before or is_over():
                break
        return np.stack([upper, *lines])

    def _solved_lines(self, share: Floats, off: Floats, is_over: IsOver) -> Lines:
        """Certified lines, where of each two the left one has this share in what a move makes of them."""
        parts = share, 1 - share
        fall = self._matrix(
            *(self.scaled * x * far for x, far in zip(parts, (self.from_left, self.from_right), strict=True))
        )
        lower, slope = certified_lines(
            self._matrix(*(self.scaled * x for x in parts)),
            self._matrix(*(self.weight * x for x in parts)),
            self.constant[D],
            lambda slope: self.constant[V] + fall @ (slope - 1),
            off,
            self.reach,
            self.side.patience,
            lambda step, constant, _: fixed_point(step, constant, is_over=is_over),
        )
        return np.where(np.isfinite(lower), lower, -np.inf), slope


def distribution_bounds(laws: NodeLaws) -> tuple[NodeLaws, NodeLaws]:
    """What the bounds say of G and of −G: masses, and upper bounds of the probability of being at most at each point.

    P(G > y) is at least the slope of any chord of Π from y to the right, P(G < y) one less that of one to the left.
    """
    which, place = laws.spread(np.arange(len(laws.size)))
    order = np.argsort(place)
    which, points, (upper, lower, _) = which[order], laws.points, laws.values
    above, below = np.zeros(len(points)), np.zeros(len(points))
    step = 1
    while step < int(laws.size.max()):
        i = np.flatnonzero(which[step:] == which[:-step])
        k = i + step
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            width = points[k] - points[i]
            right = np.nan_to_num((lower[i] - upper[k]) / width, nan=0.0, posinf=0.0, neginf=0.0)
            left = np.nan_to_num(1 - (upper[i] - lower[k]) / width, nan=0.0, posinf=0.0, neginf=0.0)
        above[i], below[k] = np.maximum(above[i], right), np.maximum(below[k], left)
        step *= 2
    mass = masses_of(which, points, upper)
    at_most, at_least = (np.clip(1 - found + 8 * UNIT, 0.0, 1.0) for found in (above, below))
    return laws.with_values(np.stack([mass, at_most]), False), laws.with_values(np.stack([mass, at_least]), True)


REPETITIONS = 20_000
SETTLED = 1e-9  # probability that a repetition must still move
ROUNDED_NOTHING = (1.0,)
LOOK = 16  # repetitions between two looks at the watch


def rounded_law(  # many parameters: of what, how fine, and what is known already
    side: Side, most: Ints, horizon: int | None, guide: NodeLaws | None, old: NodeLaws | None, is_over: IsOver
) -> NodeLaws:
    """The law of every node, rounded down to about ``most[node]`` points, no worse than an `old` one.

    The `guide` has an estimate of every law, with masses for values, and upper bounds of the probability of being at
    most there. In cycles it places the points; where it has very many, its slopes say more than rounding would.
    """

    def once(side: Side, nodes: Ints, most: Ints, laws: NodeLaws, into: NodeLaws) -> None:
        """Nodes whose children are known."""
        moves = side.moves(nodes)
        found = _rounded_candidates(moves, laws, None)
        is_point = chosen(found, most[nodes])
        node, points = found.node[is_point], found.value[is_point]
        begin = into.put(nodes, np.bincount(node, minlength=len(nodes)), points, 1.0)
        _, constant = _rounding(nodes, moves, laws, into, begin)
        into.values[0, begin:] = _not_lost(np.minimum(constant * (1 + side.rounding), 1.0), node)

    def cycle(nodes: Ints, laws: NodeLaws) -> None:
        """Nodes that can come back to themselves."""
        assert guide is not None
        if is_shared(side, nodes, most):
            node, place = guide.spread(nodes)
            points = guide.points[place]
            laws.put(nodes, guide.size[nodes], points, _guided(guide, old, nodes, node, points))
            return
        moves = side.moves(nodes)
        found = filled(_rounded_candidates(moves, guide, side.least[nodes]), most[nodes])
        is_point = chosen(found, most[nodes])
        node, points = found.node[is_point], found.value[is_point]
        begin = laws.put(nodes, np.bincount(node, minlength=len(nodes)), points, 1.0)
        matrix, constant = _rounding(nodes, moves, laws, laws, begin)
        F = _guided(guide, old, nodes, node, points)
        for sweep in range(REPETITIONS):
            after = _not_lost(np.minimum(F, (matrix @ F + constant) * (1 + side.rounding)), node)
            change, F = float(np.max(F - after)), after
            if change <= SETTLED or (sweep % LOOK == LOOK - 1 and is_over()):
                break
        laws.values[0, begin:] = F

    return node_laws(side, most, horizon, ROUNDED_NOTHING, once, cycle, is_over)


def _guided(guide: NodeLaws, old: NodeLaws | None, nodes: Ints, node: Ints, points: Floats) -> Floats:
    """Bounds of distribution functions at new points: those of the guide's next points, and of the old laws."""
    following = np.where(_is_last(node), np.inf, np.append(points[1:], np.inf))
    first, size, count = guide.beside(nodes, node, following)
    is_beyond = count == size
    F = np.where(is_beyond, 1.0, guide.values[1, np.where(is_beyond, 0, first + count)])
    if old is not None:
        first, _, count = old.beside(nodes, node, following)
        F = np.minimum(F, np.where(count > 0, old.values[0, np.maximum(first + count - 1, 0)], 0.0))
    return _not_lost(F, node)


def _not_lost(F: Floats, node: Ints) -> Floats:
    """Probabilities that are not 0, and so small that products would be, made larger; the last of each node is 1."""
    return np.where(_is_last(node), 1.0, np.where(F > 0, np.maximum(F, RAREST), 0.0))


def _is_last(node: Ints) -> Bools:
    """Whether a point is the last of its node."""
    return np.append(node[1:] != node[:-1], True)


def _rounded_candidates(moves: Moves, laws: NodeLaws, least: Floats | None) -> Candidates:
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


def _rounding(nodes: Ints, moves: Moves, laws: NodeLaws, into: NodeLaws, begin: int) -> tuple[sp.csr_array, Floats]:
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
