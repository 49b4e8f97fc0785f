"""Means and standard deviations of all nodes of a graph.

Bounds of stop-loss functions ``Π(u) = E(G − u)⁺``, for every node of a graph: laws in convex order.

One move takes Π of the child to ``scale · Π((u − shift)/scale)``. From above Π is known at the points of a node, the
chord between two points lies above it: each value is spread over its neighbours, keeping the mean. From below it is
known by lines ``V_j + (D_j − 1)(u − y_j)``, and a move takes the higher of the two beside u to a line again. Which is
higher once chosen, all this is linear, so in a cycle the bounds solve a linear system, and what its solution misses by
is given away on the safe side: a step multiplies an error by at most γ, hence a residual ε costs at most 2ε/(1−γ).
"""

import math
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from jointmdp.exact.bellman.pair_step import RAREST
from jointmdp.exact.law.gap_law import (
    POSITIVE,
    Candidates,
    NodeLaws,
    candidates,
    chosen,
    count_below,
    filled,
    masses_of,
    room_for,
)
from jointmdp.exact.law.one_sided import Moves, Side, laws_over
from jointmdp.exact.law.shared_points import SharedPoints, common_points, fixed_point, is_shared
from jointmdp.ground.arrays import UNIT, Floats, Ints, summed
from jointmdp.ground.limits import IsOver, within_time


class NodeMeans(NamedTuple):
    """The mean of every node within a certified error, and about how far its values lie from it."""

    mean: Floats
    error: float
    spread: Floats


def node_means(side: Side) -> NodeMeans:
    """Means and standard deviations of all nodes; infinite errors where a cycle is not discounted."""
    e, size = side.graph.edges, side.graph.num_nodes
    some = e.child >= 0

    def step(scale: Floats) -> sp.csr_array:
        return sp.csr_array((e.weight[some] * scale[some], (e.parent[some], e.child[some])), shape=(size, size))

    chain = step(side.scale)
    mean = fixed_point(chain, summed(e.parent, e.weight * e.shift, size))
    after = e.shift + side.scale * np.where(some, mean[e.child], 0.0)
    missed = np.abs(summed(e.parent, e.weight * after, size) - mean)
    sizes = summed(e.parent, e.weight * (np.abs(after) + np.abs(e.shift) - e.counter - e.shift), size)
    missed += 4 * side.rounding * (sizes + np.abs(mean))
    is_rare = e.weight <= 2 * RAREST  # these may be far less likely still
    missed += summed(e.parent[is_rare], (e.weight * np.abs(after))[is_rare], size)
    error = side.patience * float(missed.max())
    error = math.inf if math.isnan(error) else error
    squares = summed(e.parent, e.weight * (after - mean[e.parent]) ** 2, size)
    variance = fixed_point(step(side.scale**2), squares)
    return NodeMeans(mean, error, np.sqrt(np.maximum(variance, 0.0)))


SPREAD = 5.0  # standard deviations over which the first points of a cycle are placed
NEAREST = 1e-7  # two points nearer than this part of the core would make slopes of rounding errors
ROUNDS, SOLVED, SWEEPS, PAYING = 100, 2, 8, 0.95  # of the lines; a round must narrow the bounds to this share to pay

UPPER, V, D = 0, 1, 2  # fields of the laws
OF_NOTHING = (0.0, 0.0, 1.0)

Lines = tuple[Floats, Floats]  # values at the points, and slopes + 1


class Known(NamedTuple):
    """What is known of all nodes before their bounds are."""

    least: Floats
    largest: Floats
    means: NodeMeans
    old: NodeLaws | None
    """Of a coarser level."""

    def lines_at(self, nodes: Ints, node: Ints, points: Floats) -> Lines:
        """From below: by the mean, and by the old laws."""
        mean = self.means.mean[nodes][node]
        lowest = mean - self.means.error - points - 4 * UNIT * (np.abs(mean) + self.means.error + np.abs(points))
        lines = np.maximum(lowest, 0.0), (lowest <= 0).astype(float)
        return lines if self.old is None else _better(lines, _lines_at(self.old, nodes, node, points))

    def chords_at(self, nodes: Ints, node: Ints, points: Floats) -> Floats:
        """From above: by the old laws, or by the largest values."""
        if self.old is not None:
            return np.maximum(_chords_at(self.old, nodes, node, points), 0.0)
        return np.nextafter(np.maximum(self.largest[nodes][node] - points, 0.0), np.inf)


class StepMaps(NamedTuple):
    """One move of some nodes: how bounds at their points follow from those at the points of all nodes of a cycle.

    The last seven are entries: each asks two lines of one point (or one line twice) how high they are there.
    """

    chord: sp.csr_array
    constant: Floats  # [3, M]
    slack: Floats  # [M]
    row: Ints
    left: Ints
    right: Ints
    scaled: Floats  # weight times scale
    weight: Floats  # of the slope
    from_left: Floats
    from_right: Floats


def stop_loss_bounds(
    up: Side, down: Side, most: Ints, node_means: NodeMeans, old: NodeLaws | None, is_over: IsOver
) -> NodeLaws:
    """Bounds at about ``most[node]`` points of every node; in cycles the points are placed by an old law, moved."""
    laws = NodeLaws(up.graph.num_nodes, OF_NOTHING, room_for(most))
    known = Known(up.least, -down.least, node_means, old)
    for nodes, is_cyclic in within_time(*up.work(most), is_over):
        if is_cyclic and is_shared(up, nodes, most):
            _on_shared(up, nodes, most, laws, known, is_over)
        elif is_cyclic:
            _again(up, nodes, most, laws, known, is_over)
        else:
            _once(up, nodes, most, laws, laws)
    return laws


def stop_loss_over(side: Side, most: Ints, horizon: int, is_over: IsOver) -> NodeLaws:
    """The same over a horizon."""
    return laws_over(side, most, horizon, OF_NOTHING, _once, is_over)


def _once(side: Side, nodes: Ints, most: Ints, laws: NodeLaws, into: NodeLaws) -> None:
    """Nodes whose children are known."""
    moves = side.moves(nodes)
    node, points = _points(moves, laws, None, most[nodes])
    begin = into.put(nodes, np.bincount(node, minlength=len(nodes)), points, 0.0)
    maps = _maps(nodes, moves, laws, into, begin)
    reach = (_of_last(node, points) - _of_first(node, points))[node]
    into.values[:, begin:] = _booked(maps, reach, side.rounding)


def _booked(maps: StepMaps, reach: Floats, rounding: float) -> Floats:
    """Bounds with all rounding given away; a line that is negative where it is asked about is that of 0."""
    upper, lower, slope = maps.constant
    off = maps.slack + 4 * rounding * (np.abs(upper) + reach)
    lower = lower - off
    is_nothing = ~(lower > 0)
    return np.stack([upper + off, np.where(is_nothing, 0.0, lower), np.where(is_nothing, 1.0, np.clip(slope, 0, 1))])


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
    upper, start = known.chords_at(nodes, node, points), known.lines_at(nodes, node, points)
    if not math.isfinite(side.patience):  # undiscounted: no residual says how far off a solution is
        laws.values[:, begin:] = np.stack([np.where(points >= largest[node], 0.0, upper), *start])
        return
    maps = _maps(nodes, moves, laws, laws, begin)
    found = _solved(side, maps, (largest - least)[node], start, is_over)
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
        values = np.stack([known.chords_at(some, node, z), *known.lines_at(some, node, z)])
        return values.reshape(3, len(some), count)

    found = shared.solved(before(shared.pairs), is_over)
    is_half = side.graph.is_half[nodes]
    place = np.searchsorted(shared.pairs, nodes[~is_half])
    for some, values in ((nodes[~is_half], found[:, place]), (nodes[is_half], shared.halves(found, nodes[is_half]))):
        was = before(some)
        upper = np.where(points >= known.largest[some][:, None], 0.0, np.minimum(values[UPPER], was[UPPER]))
        lines = _better((values[V], values[D]), (was[V], was[D]))
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


def _maps(nodes: Ints, moves: Moves, laws: NodeLaws, into: NodeLaws, begin: int) -> StepMaps:
    """One move of `nodes`, whose points begin at `begin` of `into`, from the children's laws."""
    size = into.used - begin
    asked, row = into.spread(nodes[moves.parent])
    y, shift, scale = into.points[row], moves.shift[asked], moves.scale[asked]
    u = (y - shift) / scale
    which, place = laws.spread(moves.child)
    count = count_below(which, laws.points[place], asked, u)
    child, weight = moves.child[asked], moves.weight[asked]
    row = row - begin
    # Shifts and thresholds are rounded; Π is nowhere steeper than 1.
    off = (-moves.counter[asked] - shift) + 4 * UNIT * (np.abs(y) + np.abs(shift))
    slack = summed(row, weight * off, size)
    is_below, is_beyond = count == 0, count == laws.size[child]
    constant = np.zeros((3, size))
    constant[D] = summed(row[is_beyond], weight[is_beyond], size)
    first = laws.begin[child]
    short = np.where(is_below, laws.points[first] - u, 0.0) * weight * scale
    constant[UPPER] = constant[V] = summed(row, short, size)
    # Left of all points the value at the first counts, and a slope of −1; between two points both do.
    asks = ~is_beyond
    row, u, weight, scaled = row[asks], u[asks], weight[asks], (weight * scale)[asks]
    left = np.where(is_below, first, first + count - 1)[asks]
    right = np.where(is_below[asks], left, left + 1)
    is_below = is_below[asks]
    width = np.where(is_below, 1.0, laws.points[right] - laws.points[left])
    from_left, from_right = (np.where(is_below, 0.0, u - laws.points[at]) for at in (left, right))
    weight = np.where(is_below, 0.0, weight)
    # Both shares are computed apart: one less a share that is nearly 1 would have no digits.
    shares = np.where(is_below, 1.0, np.clip(-from_right / width, 0.0, 1.0)), np.clip(from_left / width, 0.0, 1.0)
    known = left < begin if into is laws else np.ones(len(left), dtype=bool)
    for share, at in zip(shares, (left, right), strict=True):
        values = (scaled * share)[known] * laws.values[UPPER, at[known]]
        constant[UPPER] += summed(row[known], values, size)
    of_known = (
        row[known],
        left[known],
        right[known],
        scaled[known],
        weight[known],
        from_left[known],
        from_right[known],
    )
    constant[V:] += _moved_lines(of_known, laws.values[V], laws.values[D], size)
    some = ~known
    entries = np.concatenate([(scaled * share)[some] for share in shares])
    at = np.tile(row[some], 2), np.concatenate([left[some], right[some]]) - begin
    chord = sp.coo_array((entries, at), shape=(size, size)).tocsr()
    open_ = (row[some], left[some] - begin, right[some] - begin, scaled[some], weight[some])
    return StepMaps(chord, constant, slack, *open_, from_left[some], from_right[some])


Entries = tuple[Ints, Ints, Ints, Floats, Floats, Floats, Floats]


def _heights(entries: Entries, lower: Floats, slope: Floats) -> tuple[Floats, Floats]:
    """How high the two lines are that each entry asks."""
    _, left, right, _, _, from_left, from_right = entries
    return lower[left] + (slope[left] - 1) * from_left, lower[right] + (slope[right] - 1) * from_right


def _moved_lines(entries: Entries, lower: Floats, slope: Floats, size: int) -> tuple[Floats, Floats]:
    """What the higher lines become by a move."""
    row, left, right, scaled, weight, _, _ = entries
    one, two = _heights(entries, lower, slope)
    value = summed(row, scaled * np.maximum(one, two), size)
    return value, summed(row, weight * slope[np.where(two > one, right, left)], size)


def _solved(side: Side, maps: StepMaps, reach: Floats, start: Lines, is_over: IsOver) -> Floats:
    """Valid bounds at all points of a cycle, ``[3, M]``."""
    upper = fixed_point(maps.chord, maps.constant[UPPER], is_over=is_over)
    off = maps.slack + 4 * side.rounding * (np.abs(upper) + reach)
    with np.errstate(invalid="ignore", over="ignore"):
        over = np.max(maps.chord @ upper + maps.constant[UPPER] - upper + off)
        upper = np.maximum(upper + side.patience * max(over, 0.0), 0.0)
    lines, width = _better(start, _solved_lines(side, maps, reach, off, None, is_over)), np.inf
    for turn in range(ROUNDS):
        if turn < SOLVED:
            lines = _better(lines, _solved_lines(side, maps, reach, off, lines, is_over))
        for _ in range(SWEEPS):
            value, slope = _moved_lines(maps[3:], lines[0], lines[1], len(off))
            lines = _better(lines, (value + maps.constant[V] - off, np.clip(slope + maps.constant[D], 0.0, 1.0)))
        before, width = width, float(np.mean(upper - lines[0]))
        if not width <= PAYING * before or is_over():
            break
    return np.stack([upper, *lines])


def _solved_lines(side: Side, maps: StepMaps, reach: Floats, off: Floats, now: Lines | None, is_over: IsOver) -> Lines:
    """Lines that a move gives back, lowered by what they miss that by, at the point and by their slope elsewhere.

    Of each two lines the one is taken that is higher `now`, or without that their mixture in the chord's proportion.
    """
    size = len(off)
    if now is None:
        width = maps.from_left - maps.from_right
        share = np.where(width > 0, -maps.from_right / np.where(width > 0, width, 1.0), 1.0)
        share = np.clip(share, 0.0, 1.0)
    else:
        one, two = _heights(maps[3:], *now)
        share = (one >= two).astype(float)

    def matrix(weight: Floats, from_left: Floats | float, from_right: Floats | float) -> sp.csr_array:
        entries = np.concatenate([weight * share * from_left, weight * (1 - share) * from_right])
        at = np.tile(maps.row, 2), np.concatenate([maps.left, maps.right])
        return sp.coo_array((entries, at), shape=(size, size)).tocsr()

    values, slopes = matrix(maps.scaled, 1.0, 1.0), matrix(maps.weight, 1.0, 1.0)
    slope = np.clip(fixed_point(slopes, maps.constant[D], is_over=is_over), 0.0, 1.0)
    constant = maps.constant[V] + matrix(maps.scaled, maps.from_left, maps.from_right) @ (slope - 1)
    lower = fixed_point(values, constant, is_over=is_over)
    with np.errstate(invalid="ignore", over="ignore"):
        missed = lower - values @ lower - constant + np.abs(slopes @ slope + maps.constant[D] - slope) * reach + off
        lower = lower - side.patience * max(float(np.max(missed)), 0.0)
    return np.where(np.isfinite(lower), lower, -np.inf), slope


def _chords_at(old: NodeLaws, nodes: Ints, node: Ints, points: Floats) -> Floats:
    """What old upper bounds say at new points: chords, and the slope −1 to the left of all."""
    which, place = old.spread(nodes)
    count = count_below(which, old.points[place], node, points)
    first, size = old.begin[nodes][node], old.size[nodes][node]
    left, right = first + np.maximum(count - 1, 0), first + np.minimum(count, size - 1)
    y, upper = old.points, old.values[UPPER]
    width = np.where(right > left, y[right] - y[left], 1.0)
    share = np.where(right > left, np.clip((points - y[left]) / width, 0.0, 1.0), 0.0)
    chord = (1 - share) * upper[left] + share * upper[right]
    value = np.where(count == 0, upper[first] + (y[first] - points), np.where(count == size, 0.0, chord))
    return value + 8 * UNIT * (np.abs(value) + np.abs(points) + np.abs(upper[left]))


def _lines_at(old: NodeLaws, nodes: Ints, node: Ints, points: Floats) -> Lines:
    """The higher of the two old lines beside each new point."""
    which, place = old.spread(nodes)
    count = count_below(which, old.points[place], node, points)
    first, last = old.begin[nodes][node], (old.begin + old.size - 1)[nodes][node]
    left, right = np.clip(first + count - 1, first, last), np.clip(first + count, first, last)
    lines = []
    for i in (left, right):
        fall = (old.values[D, i] - 1) * (points - old.points[i])
        room = 4 * UNIT * (np.abs(old.values[V, i]) + np.abs(fall) + np.abs(points))
        lines.append((old.values[V, i] + fall - room, old.values[D, i]))
    return _better(lines[0], lines[1])


def _better(one: Lines, other: Lines) -> Lines:
    is_higher = other[0] > one[0]
    return np.where(is_higher, other[0], one[0]), np.where(is_higher, other[1], one[1])
