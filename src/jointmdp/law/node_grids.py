"""Laws on points of their own, one list for each node of the graph, and where the points are placed.

A law that is rounded down holds numbers that are never above the gap. Points follow the mass: what the children's
points become by a move are the candidates, and if they are few all are kept, so that laws with few values are exact.
Otherwise heavy values stay, and the others are thinned out by mass and by distance. A value never crosses 0: one that
is positive and smaller than the least positive point becomes `POSITIVE`, known to be above 0 and nothing else. So
waiting under a discount, which shrinks a gap but never turns it, leaves its sign exact.
"""

from typing import NamedTuple

import numpy as np

from jointmdp.arrays import Bools, Floats, Ints, summed
from jointmdp.law.directed_rounding import product_down, sum_down

POSITIVE = np.nextafter(0.0, 1.0)  # any amount above 0, however small
BY_MASS = 0.6  # share of the points that are placed by mass; the others by distance
CORE = 1e-3  # mass on either side of the part within which points are placed evenly
THINNEST = 1e-12  # relative width of a cell that is not divided
FARTHEST = 1e12  # in units of that part


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
        sizes = self.size[nodes]
        which = np.repeat(np.arange(len(nodes)), sizes)
        within = np.arange(len(which)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return which, within + self.begin[nodes][which]


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
    cell = np.repeat(np.arange(len(count)), count)
    place = np.arange(len(cell)) - np.repeat(np.cumsum(count) - count, count) + 1
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
