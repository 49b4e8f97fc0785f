"""Laws on points of their own, one list for each node of the graph, and where the points are placed.

A law that is rounded down holds numbers that are never above the gap. Points follow the mass: what the children's
points become by a move are the candidates, and if they are few all are kept, so that laws with few values are exact.
Otherwise heavy values stay, and the others are thinned out by mass and by distance. A value never crosses 0: one that
is positive and smaller than the least positive point becomes `POSITIVE`, known to be above 0 and nothing else. So
waiting under a discount, which shrinks a gap but never turns it, leaves its sign exact.

What stop-loss bounds say of the law itself: masses at points, and bounds of its distribution function.

The certified law of one gap: distribution bands, sign probabilities, quantiles and tail means, all as intervals.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from jointmdp.exact.law.pair_graph import product_down, sum_down
from jointmdp.ground.arrays import UNIT, Bools, Floats, Ints, summed
from jointmdp.ground.checks import as_finite, as_fraction
from jointmdp.ground.errors import LawStatus, NotKnownError
from jointmdp.ground.intervals import Interval

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


def masses(points: Floats, upper: Floats) -> Floats:
    """The law that upper bounds of one node are stop-loss values of."""
    return masses_of(np.zeros(len(points), dtype=np.int64), points, upper)


def masses_of(which: Ints, points: Floats, upper: Floats) -> Floats:
    """Of groups of points: second differences of the upper bounds."""
    is_last = np.append(which[1:] != which[:-1], True)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        slope = np.clip(np.nan_to_num(np.append(np.diff(upper) / np.diff(points), 0.0)), -1.0, 0.0)
    # The probability of being at most at a point; bounds that cross by rounding must not make it fall.
    count = np.cumsum(np.append(True, is_last[:-1]))
    F = np.maximum.accumulate(2 * count + 1 + np.where(is_last, 0.0, slope)) - 2 * count
    return np.clip(F - np.where(np.append(True, is_last[:-1]), 0.0, np.append(0.0, F[:-1])), 0.0, 1.0)


CUTS = 60  # lines that are tried for a tail mean
BAND = 2000  # thresholds of the band, about

Line = tuple[float, float, float]  # a threshold, the line's value there, and its slope + 1


class Atoms(NamedTuple):
    """A law on finitely many values."""

    values: Floats  # [N] ascending
    probabilities: Floats  # [N]


class RoundedLaw(NamedTuple):
    """A law that is never above the variable: ``P(X < points[j+1]) ≤ F[j]``; `POSITIVE` stands for all above 0."""

    points: Floats
    F: Floats

    def at_most(self, t: Floats) -> Floats:
        """Upper bounds of P(X ≤ t)."""
        return self._read(np.searchsorted(self.points, t, side="right"))

    def below(self, t: Floats) -> Floats:
        """Upper bounds of P(X < t)."""
        # A value may lie between 0 and the least number, which is what stands for all above 0.
        return self._read(np.searchsorted(self.points, np.where(t == POSITIVE, 2 * POSITIVE, t), side="left"))

    def _read(self, count: Ints) -> Floats:
        return np.where(count > 0, self.F[np.maximum(count - 1, 0)], 0.0)

    def quantile(self, q: float) -> float:
        """A number that the q-quantile is not below."""
        return self._amount(int(np.flatnonzero(q <= self.F)[0]))

    def counter_quantile(self, q: float) -> float:
        """A number that the (1−q)-quantile of −X is not above minus: P(X < it) ≤ 1 − q."""
        enough = np.flatnonzero(sum_down(np.ones(len(self.F)), -self.F) >= q)
        return self._amount(int(enough[-1]) + 1 if len(enough) else 0)

    def _amount(self, i: int) -> float:
        value = float(self.points[i])
        return 0.0 if value == POSITIVE else value

    def lowest(self, alpha: float) -> float:
        """A number that the mean of the lowest `alpha` fraction is not below."""
        return self._mean(np.diff(np.minimum(self._falling, alpha), prepend=0.0), alpha)

    def highest(self, alpha: float) -> float:
        """A number that the mean of the highest `alpha` fraction is not below."""
        return self._mean(np.diff(np.maximum(self._falling, 1 - alpha), prepend=1 - alpha), alpha)

    @property
    def _falling(self) -> Floats:
        """F, no larger than any F to the right."""
        return np.minimum.accumulate(self.F[::-1])[::-1]

    def _mean(self, mass: Floats, alpha: float) -> float:
        values = np.where(self.points == POSITIVE, 0.0, self.points)
        parts = mass * values
        cut = np.max(np.abs(values), where=mass > 0, initial=0.0)
        off = 4 * UNIT * (len(parts) * np.sum(np.abs(parts)) + cut)
        return _rounded(float(np.sum(parts) - off) / alpha, -1) if off > 0 else 0.0  # all values are 0, exactly


class RootBounds(NamedTuple):
    """All that was found of one gap."""

    up: RoundedLaw
    """Of G."""
    down: RoundedLaw
    """Of −G."""
    points: Floats
    """At which stop-loss values are bounded."""
    upper: Floats
    lower: Floats
    slope: Floats
    """Of the line through the lower bound, which lies below all of the stop-loss function; plus 1."""


@dataclass(frozen=True, eq=False)
class GapLaw:
    """Bounds on the law of ``G = Z(state, action) − Z(state, other)``; every interval holds the true value."""

    name: str
    mean_interval: Interval
    """E G, from the moments and their certified error."""
    pairs: int
    """Pairs of states that the two branches can come to while their future still differs."""
    points: int
    """Values that the law of each of them has at most, about."""
    status: LawStatus
    """Whether the tolerance that was asked for was reached, and if not, why."""
    _found: RootBounds
    _merging: Callable[[], Interval]
    known_variance: Interval | None = None
    """Var G, where the moments were at hand."""

    @property
    def mean(self) -> float:
        """E G."""
        return self.mean_interval.middle

    @property
    def variance_interval(self) -> Interval:
        """Certified bounds of Var G."""
        if self.known_variance is None:
            raise NotKnownError("this law was asked for without moments; evaluate(...).gap(...) knows the variance")
        return self.known_variance

    @property
    def variance(self) -> float:
        """Var G."""
        return self.variance_interval.middle

    @property
    def std(self) -> float:
        """Standard deviation of G."""
        return math.sqrt(self.variance)

    def __repr__(self) -> str:
        return (
            f"GapLaw({self.name}: better {self.superiority():.4f}, equal {self.tie():.4f}, worse "
            f"{self.inferiority():.4f}; 5 % quantile {self.quantile(0.05)}, mean of the lowest 5 % "
            f"{self.cvar(0.05)}; {self.pairs:,} pairs of states, {self.points:,} points: {self.status.value})"
        )

    @cached_property
    def merge(self) -> Interval:
        """The probability that the two branches become one."""
        return self._merging()

    @property
    def support(self) -> Interval:
        """G lies in it."""
        low, high = (0.0 if x == POSITIVE else float(x) for x in (self._found.up.points[0], self._found.down.points[0]))
        return Interval(low, 0.0 - high)

    @cached_property
    def _signs(self) -> tuple[float, float, float, float]:
        """Upper bounds on P(G ≤ 0), P(G < 0), P(G ≥ 0) and P(G > 0)."""
        zero = np.zeros(1)
        above, below = (float(found[0]) for found in self._slopes(zero))
        up, down = self._found.up, self._found.down
        sides = (up.at_most, 1 - above), (up.below, 1 - above), (down.at_most, 1 - below), (down.below, 1 - below)
        at_most, less, at_least, more = (min(float(bound(zero)[0]), other) for bound, other in sides)
        return at_most, less, at_least, more

    def superiority(self) -> Interval:
        """P(G > 0)."""
        at_most, _, _, more = self._signs
        return _probability(_less(1.0, at_most), more)

    def tie(self) -> Interval:
        """P(G = 0)."""
        at_most, less, at_least, more = self._signs
        return _probability(_less(_less(1.0, less), more), -_less(_less(1.0, at_most), at_least))

    def inferiority(self) -> Interval:
        """P(G < 0)."""
        _, less, at_least, _ = self._signs
        return _probability(_less(1.0, at_least), less)

    def cdf(self, t: float) -> Interval:
        """P(G ≤ t)."""
        lower, upper = self._band(np.array([as_finite("t", t)]))
        return _probability(float(lower[0]), float(upper[0]))

    @cached_property
    def band(self) -> tuple[Floats, Floats, Floats]:
        """Thresholds with lower and upper bounds of P(G ≤ t) at each, for plots."""
        found = self._found
        parts = (found.up.points, -found.down.points, found.points)
        thin = (x[np.linspace(0, len(x) - 1, min(len(x), BAND // 3)).astype(int)] for x in parts)
        t = np.unique(np.concatenate([*thin, [0.0, *self.support]]) + 0.0)
        lower, upper = self._band(t)
        lower, upper = np.maximum.accumulate(lower), np.minimum.accumulate(upper[::-1])[::-1]
        return t, np.clip(lower, 0, 1), np.clip(upper, 0, 1)

    def _band(self, t: Floats) -> tuple[Floats, Floats]:
        """Lower and upper bounds of P(G ≤ t): by rounded laws and by slopes."""
        above, below = self._slopes(t)
        lower = sum_down(np.ones(len(t)), -self._found.down.below(-t))
        return np.maximum(lower, below), np.minimum(self._found.up.at_most(t), 1 - above)

    def quantile(self, q: float) -> Interval:
        """The q-quantile, inf{t: P(G ≤ t) ≥ q}."""
        q = as_fraction("q", q)
        found = self._found
        low, high = found.up.quantile(q), 0.0 - found.down.counter_quantile(q)
        above, below = self._slopes(found.points)
        low = float(np.max(found.points[1 - above < q], initial=low))
        high = float(np.min(found.points[below >= q], initial=high))
        return Interval(low, math.inf) & Interval(-math.inf, high)

    def stop_loss(self, t: float) -> Interval:
        """E(G − t)⁺."""
        at = np.array([as_finite("t", t)])
        return Interval(float(self._lower(at)[0]), float(self._upper(at)[0]))

    def cvar(self, alpha: float) -> Interval:
        """The mean of the lowest `alpha` fraction: max over t of t − E(t−G)⁺/α."""
        alpha = as_fraction("alpha", alpha)
        found, mean = self._found, self.mean_interval
        parts = (alpha - 1) * found.points, np.full(len(found.points), mean.lower), -found.upper
        size = sum(np.abs(part) for part in parts)
        low = float(np.max(sum(parts) - 4 * UNIT * size)) / alpha
        low = max(_rounded(low, -1), found.up.lowest(alpha), self.support.lower)
        high = min(_rounded(self._highest_tail(alpha), 1), -found.down.highest(alpha), mean.upper)
        return Interval(low, math.inf) & Interval(-math.inf, high)

    @cached_property
    def estimate(self) -> Atoms:
        """A law between the bounds, with the mean kept: the one whose stop-loss function is the upper bound."""
        found = self._found
        mass = masses(found.points, found.upper)
        return Atoms(found.points[mass > 0], mass[mass > 0] / mass.sum())

    def _place(self, t: Floats) -> tuple[Ints, Ints, Ints]:
        """The points beside each threshold, and how many lie below it."""
        count = np.searchsorted(self._found.points, t, side="left")
        last = len(self._found.points) - 1
        return np.clip(count - 1, 0, last), np.clip(count, 0, last), count

    def _upper(self, t: Floats) -> Floats:
        """Upper bounds of E(G − t)⁺: chords, and the mean to the left of all points."""
        y, upper = self._found.points, self._found.upper
        i, k, count = self._place(t)
        width = np.where(k > i, y[k] - y[i], 1.0)
        chord = np.where(k > i, (y[k] - t) / width * upper[i] + (t - y[i]) / width * upper[k], upper[k])
        value = np.where(count == 0, upper[0] + (y[0] - t), np.where(count == len(y), 0.0, chord))
        return np.maximum(value, 0.0) + 8 * UNIT * (np.abs(t) + np.abs(value))

    def _lines(self, t: Floats) -> tuple[Floats, Floats]:
        """For each threshold the value there, and the slope + 1, of a line that lies below u ↦ E(G − u)⁺ everywhere."""
        y, value, slope = self._found.points, self._found.lower, self._found.slope
        i, k, _ = self._place(t)
        lines = [value[j] + (slope[j] - 1) * (t - y[j]) for j in (i, k)]
        room = 4 * UNIT * (np.abs(t) + np.maximum(np.abs(lines[0]), np.abs(lines[1])))
        return np.maximum(*lines) - room, np.where(lines[0] >= lines[1], slope[i], slope[k])

    def _lower(self, t: Floats) -> Floats:
        """Lower bounds of E(G − t)⁺."""
        plain = self.mean_interval.lower - t
        return np.maximum(np.maximum(self._lines(t)[0], plain - 4 * UNIT * np.abs(t)), 0.0)

    def _slopes(self, t: Floats) -> tuple[Floats, Floats]:
        """Lower bounds of P(G > t) and P(G < t): −Π' is at least the slope of any chord to the right."""
        y, upper, lower = self._found.points, self._found.upper, self._lower(t)
        left, right, _ = self._place(t)
        above, below = np.zeros(len(t)), np.zeros(len(t))
        away, last = 0, len(y) - 1
        while away <= last:
            k, i = np.minimum(right + away, last), np.maximum(left - away, 0)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                to_right = np.where(y[k] > t, (lower - upper[k]) / (y[k] - t), 0.0)
                to_left = np.where(y[i] < t, 1 - (upper[i] - lower) / (t - y[i]), 0.0)
            above, below = np.fmax(above, to_right), np.fmax(below, to_left)
            away = 2 * away + 1
        return np.clip(above - 8 * UNIT, 0.0, 1.0), np.clip(below - 8 * UNIT, 0.0, 1.0)

    def _highest_tail(self, alpha: float) -> float:
        """An upper bound of max over t of t − E(t−G)⁺/α.

        Between two lines below the stop-loss function, one with slope + 1 at most α and one with at least α, the
        maximum is at most the value where they cross. The line that is highest there takes the place of one of them.
        """
        y, value, slope = self._found.points, self._found.lower, self._found.slope
        a, b = (0.0, self.mean_interval.lower, 0.0), (0.0, 0.0, 1.0)  # E(G−u)⁺ ≥ E G − u, and ≥ 0
        best, reach = math.inf, max(map(abs, self.support))
        for _ in range(CUTS):
            t, found = _crossing(alpha, a, b, reach)
            best = min(best, found)
            i = int(np.argmax(value + (slope - 1) * (t - y)))
            line = (float(y[i]), float(value[i]), float(slope[i]))
            if line in (a, b):
                break
            a, b = (line, b) if line[2] <= alpha else (a, line)
        upper = self.mean_interval.upper
        return (best + upper + 4 * UNIT * (abs(best) + abs(upper))) / alpha


def _crossing(alpha: float, a: Line, b: Line, reach: float) -> tuple[float, float]:
    """Where two lines cross, and the largest ``(α−1)t − max(line a, line b)(t)``, rounded up.

    α lies between the two values of slope + 1. A mixture of the lines with slope + 1 = α lies below their maximum, and
    touches it where they cross.
    """
    (s, p, x), (t, q, y) = a, b
    if y <= x:  # both have slope + 1 = α
        share, at = 1.0, s
    else:
        share, at = (y - alpha) / (y - x), (p - (x - 1) * s - q + (y - 1) * t) / (y - x)
    parts = share * p, share * (1 - x) * s, (1 - share) * q, (1 - share) * (1 - y) * t
    # A share that is rounded tilts the line by that much, as far as G reaches.
    tilt = abs(p) + abs(q) + abs(s) + abs(t) + reach
    return at, -sum(parts) + 16 * UNIT * (sum(map(abs, parts)) + tilt)


def _less(a: float, b: float) -> float:
    """``a − b``, rounded down."""
    return float(sum_down(np.array([a]), np.array([-b]))[0])


def _rounded(x: float, way: int) -> float:
    return math.nextafter(math.nextafter(x, way * math.inf), way * math.inf)


def _probability(lower: float, upper: float) -> Interval:
    return Interval(max(lower, 0.0), 1.0) & Interval(0.0, min(upper, 1.0) + 0.0)  # no minus 0
