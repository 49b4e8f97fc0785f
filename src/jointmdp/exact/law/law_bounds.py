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
    StopLossSteps,
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

    def lines_at(self, nodes: Ints, node: Ints, points: Floats) -> Lines:
        """From below: by the mean, and by the old laws."""
        mean = self.means.mean[nodes][node]
        lowest = mean - self.means.error - points - 4 * UNIT * (np.abs(mean) + self.means.error + np.abs(points))
        lines = np.maximum(lowest, 0.0), (lowest <= 0).astype(float)
        if self.old is None:
            return lines
        _, value, slope = self.old.values
        return higher(lines, lines_below(self.old.points, value, slope, *self._beside(nodes, node, points), points))

    def chords_at(self, nodes: Ints, node: Ints, points: Floats) -> Floats:
        """From above: by the old laws, or by the largest values."""
        if self.old is None:
            return np.nextafter(np.maximum(self.largest[nodes][node] - points, 0.0), np.inf)
        return chords_above(self.old.points, self.old.values[UPPER], *self._beside(nodes, node, points), points)

    def _beside(self, nodes: Ints, node: Ints, points: Floats) -> tuple[Ints, Ints, Ints]:
        """Where the old points of each node begin, how many they are, and how many lie below each new one."""
        assert self.old is not None
        which, place = self.old.spread(nodes)
        count = count_below(which, self.old.points[place], node, points)
        return self.old.begin[nodes][node], self.old.size[nodes][node], count


class Entries(NamedTuple):
    """What lines of the children become by a move: each entry asks two lines of one child (or one twice)."""

    row: Ints
    left: Ints
    right: Ints
    scaled: Floats  # weight times scale
    weight: Floats  # of the slope
    from_left: Floats
    from_right: Floats

    def those(self, some: Bools, begin: int = 0) -> "Entries":
        """Some of them, with points counted from `begin`."""
        found = Entries._make(column[some] for column in self)
        return found._replace(left=found.left - begin, right=found.right - begin)

    def heights(self, lower: Floats, slope: Floats) -> tuple[Floats, Floats]:
        """How high the two lines are that each entry asks."""
        left, right = self.left, self.right
        return lower[left] + (slope[left] - 1) * self.from_left, lower[right] + (slope[right] - 1) * self.from_right

    def moved(self, lower: Floats, slope: Floats, size: int) -> Lines:
        """What the higher lines become."""
        one, two = self.heights(lower, slope)
        value = summed(self.row, self.scaled * np.maximum(one, two), size)
        return value, summed(self.row, self.weight * slope[np.where(two > one, self.right, self.left)], size)


class StepMaps(NamedTuple):
    """One move of some nodes: how bounds at their points follow from those at the points of all nodes of a cycle."""

    chord: sp.csr_array
    constant: Floats  # [3, M]
    slack: Floats  # [M]
    lines: Entries


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
    entries = Entries(row, left, right, scaled, weight, from_left, from_right)
    constant[V:] += entries.those(known).moved(laws.values[V], laws.values[D], size)
    some = ~known
    shared = np.concatenate([(scaled * share)[some] for share in shares])
    at = np.tile(row[some], 2), np.concatenate([left[some], right[some]]) - begin
    chord = sp.coo_array((shared, at), shape=(size, size)).tocsr()
    return StepMaps(chord, constant, slack, entries.those(some, begin))


def _solved(side: Side, maps: StepMaps, reach: Floats, start: Lines, is_over: IsOver) -> Floats:
    """Valid bounds at all points of a cycle, ``[3, M]``."""
    upper = fixed_point(maps.chord, maps.constant[UPPER], is_over=is_over)
    off = maps.slack + 4 * side.rounding * (np.abs(upper) + reach)
    upper = np.maximum(certified_above(maps.chord, maps.constant[UPPER], upper, off, side.patience), 0.0)
    lines, width = higher(start, _solved_lines(side, maps, reach, off, None, is_over)), np.inf
    for turn in range(ROUNDS):
        if turn < SOLVED:
            lines = higher(lines, _solved_lines(side, maps, reach, off, lines, is_over))
        for _ in range(SWEEPS):
            value, slope = maps.lines.moved(*lines, len(off))
            lines = higher(lines, (value + maps.constant[V] - off, np.clip(slope + maps.constant[D], 0.0, 1.0)))
        before, width = width, float(np.mean(upper - lines[0]))
        if not width <= PAYING * before or is_over():
            break
    return np.stack([upper, *lines])


def _solved_lines(side: Side, maps: StepMaps, reach: Floats, off: Floats, now: Lines | None, is_over: IsOver) -> Lines:
    """Certified lines: of each two the one that is higher `now`, or without that their mixture as in the chord."""
    entries, size = maps.lines, len(off)
    if now is None:
        width = entries.from_left - entries.from_right
        share = np.where(width > 0, -entries.from_right / np.where(width > 0, width, 1.0), 1.0)
        share = np.clip(share, 0.0, 1.0)
    else:
        one, two = entries.heights(*now)
        share = (one >= two).astype(float)

    def matrix(weight: Floats, from_left: Floats | float, from_right: Floats | float) -> sp.csr_array:
        values = np.concatenate([weight * share * from_left, weight * (1 - share) * from_right])
        at = np.tile(entries.row, 2), np.concatenate([entries.left, entries.right])
        return sp.coo_array((values, at), shape=(size, size)).tocsr()

    fall = matrix(entries.scaled, entries.from_left, entries.from_right)
    steps = StopLossSteps(
        matrix(entries.scaled, 1.0, 1.0),
        matrix(entries.weight, 1.0, 1.0),
        maps.constant[D],
        lambda slope: maps.constant[V] + fall @ (slope - 1),
        off,
        reach,
        side.patience,
    )
    lower, slope = certified_lines(steps, lambda step, constant, _: fixed_point(step, constant, is_over=is_over))
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


class Guides(NamedTuple):
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
        known = Guides(guide, old)
        if is_shared(side, nodes, most):
            node, place = guide.spread(nodes)
            points = guide.points[place]
            laws.put(nodes, guide.size[nodes], points, known.at(nodes, node, points))
        else:
            _round_again(side, nodes, most, laws, known, is_over)

    return node_laws(side, most, horizon, ROUNDED_NOTHING, _round_once, cycle, is_over)


def _round_once(side: Side, nodes: Ints, most: Ints, laws: NodeLaws, into: NodeLaws) -> None:
    """Nodes whose children are known."""
    moves = side.moves(nodes)
    found = _rounded_candidates(moves, laws, None)
    is_point = chosen(found, most[nodes])
    node, points = found.node[is_point], found.value[is_point]
    begin = into.put(nodes, np.bincount(node, minlength=len(nodes)), points, 1.0)
    _, constant = _rounding(nodes, moves, laws, into, begin)
    F = _not_lost(np.minimum(constant * (1 + side.rounding), 1.0))
    F[_is_last(node)] = 1.0
    into.values[0, begin:] = F


def _round_again(side: Side, nodes: Ints, most: Ints, laws: NodeLaws, known: Guides, is_over: IsOver) -> None:
    """Nodes that can come back to themselves."""
    moves = side.moves(nodes)
    found = filled(_rounded_candidates(moves, known.guide, side.least[nodes]), most[nodes])
    is_point = chosen(found, most[nodes])
    node, points = found.node[is_point], found.value[is_point]
    begin = laws.put(nodes, np.bincount(node, minlength=len(nodes)), points, 1.0)
    matrix, constant = _rounding(nodes, moves, laws, laws, begin)
    F, is_last = known.at(nodes, node, points), _is_last(node)
    for sweep in range(REPETITIONS):
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
