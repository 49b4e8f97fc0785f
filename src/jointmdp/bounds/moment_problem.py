"""How large E f(Y) can be, over all laws with given moments, for f of two straight pieces.

The largest value is attained on a canonical representation: a quadrature rule for the moments with few nodes, found
from the Jacobi matrix of `MomentSequence` with its last diagonal entry free (Krein and Nudelman, The Markov Moment
Problem and Extremal Problems, 1977; Karlin and Studden, Tchebycheff Systems, 1966).

- f jumps at t, or bends down there: the representation has a node at t (Chebyshev, Markov, Stieltjes).
- f bends up at t: among all representations the one whose nodes all touch. Each is named by one of its nodes ξ, and as
  ξ moves from t to the next node of t's representation, every representation is passed once.

No node is trusted. A polynomial p that touches f at the nodes is checked to lie above f on the support, by the roots of
its derivative, and is lifted where it does not; then ``E f ≤ E p`` for every law, whatever led to p.
"""

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy
from numpy.polynomial.polynomial import polysub

from jointmdp.arrays import Bools, Floats
from jointmdp.bounds.moment_sequences import Long, Longs, MomentSequence, Orthogonal
from jointmdp.bounds.polynomials import divided, hermite, least

# A node this many standard deviations away carries no visible mass; with it the Jacobi matrix loses all digits.
FAR = 1e9
# A bound this close to what its own representation attains is not improved by looking at fewer moments.
SHARP = 1e-11
# Where a node is looked for first: fractions of the way between two others, and distances outside all of them.
TRIALS = np.array([1e-10, 1e-3, 0.1, 0.5, 0.9, 1 - 1e-3, 1 - 1e-10])
REACHES = np.array([1e-9, 1e-3, 0.03, 0.3, 1, 3, 10, 100, 1e4, 1e8])


class Pieces(NamedTuple):
    """f(y) = left[0] + left[1]·y below `at` and right[0] + right[1]·y above; at `at`, the larger of both."""

    at: float
    left: tuple[float, float]
    right: tuple[float, float]

    def __neg__(self) -> "Pieces":
        return Pieces(self.at, (-self.left[0], -self.left[1]), (-self.right[0], -self.right[1]))

    def values(self, nodes: Floats) -> Longs:
        """f at the nodes."""
        y = nodes.astype(Long)
        low, high = self.left[0] + self.left[1] * y, self.right[0] + self.right[1] * y
        return np.where(nodes < self.at, low, np.where(nodes > self.at, high, np.maximum(low, high)))

    def slopes(self, nodes: Floats) -> Longs:
        """f′ at the nodes."""
        return np.where(nodes < self.at, Long(self.left[1]), Long(self.right[1]))

    @property
    def kink(self) -> float:
        """By how much the slope grows at `at`; where it does, no polynomial above f can touch it there."""
        return self.right[1] - self.left[1]


class Representation(NamedTuple):
    """A quadrature rule for the moments, or for L_φ: sorted nodes and their weights."""

    nodes: Floats
    weights: Floats


class MomentProblem:
    """Best possible bounds on E f(Y) from the moments of a sequence."""

    def __init__(self, sequence: MomentSequence) -> None:
        self.sequence = sequence
        # Rounded outwards: a slightly larger support keeps every bound true.
        self.lo = round_down(sequence.ends["a"]) if "a" in sequence.ends else -math.inf
        self.hi = round_up(sequence.ends["b"]) if "b" in sequence.ends else math.inf
        self._families = {order: self._canonical_families(order) for order in range(1, sequence.order + 1)}
        # The orders that add something: where the errors drown a norm, more moments change nothing.
        lowest: dict[tuple[tuple[str, int], ...], int] = {}
        for order, families in self._families.items():
            lowest.setdefault(tuple((family.ends, _known_size(family, size)) for family, size in families), order)
        self._orders = sorted(lowest.values(), reverse=True)

    def lower(self, f: Pieces) -> float:
        """A number that E f(Y) is certainly not below."""
        return -self.upper(-f) + 0.0  # no negative zero

    @np.errstate(all="ignore")  # what overflows proves nothing and is passed over
    def upper(self, f: Pieces) -> float:
        """A number that E f(Y) is certainly not above: the best over all orders."""
        best = math.inf
        for order in self._orders:
            attained, here, error = -math.inf, math.inf, 0.0
            for rule, polynomial in self._touching(f, order):
                bound, cost = self._certified(polynomial, f)
                if bound < here:
                    here, error = bound, cost
                if self._is_feasible(rule):
                    attained = max(attained, float(np.sum(rule.weights * f.values(rule.nodes))))
                if here < math.inf and here - attained <= SHARP * (1 + abs(here)) + 2 * error:
                    break  # as good as this order gets
            best = min(best, here)
            if best < math.inf and best - attained <= SHARP * (1 + abs(best)):
                break
        return best

    def canonical(self, order: int, node: float) -> Representation | None:
        """The canonical representation of the moments up to `order` that has the given node."""
        found = None
        for family, size in self._families[order]:
            if all(float(z) != node for z in family.zeros):
                found = self.rule(family, _with_node(family, size, node), node)
                if self._is_feasible(found):
                    break
        return found

    def _canonical_families(self, order: int) -> list[tuple[Orthogonal, int]]:
        """The families, and how many nodes beside the zeros of φ, that a canonical representation can have."""
        half = (order + 1) // 2
        if order % 2 == 0:
            return self._known([("", half + 1), ("ab", half)])
        return self._known([("a", half), ("b", half)] if len(self.sequence.ends) == 2 else [("ab", half), ("", half)])

    def principal(self, order: int) -> Iterator[Representation]:
        """The two representations with one node fewer, which bound the others."""
        half, is_odd = divmod(order, 2)
        pair = [("", half + 1), ("ab", half)] if is_odd else [("a", half), ("b", half)]
        for family, size in self._known(pair):
            if size:
                yield self.rule(family, gauss(family, size))

    def _known(self, wanted: list[tuple[str, int]]) -> list[tuple[Orthogonal, int]]:
        """Families by the ends where φ vanishes, of which the infinite ones are left out; the first of two alike."""
        sizes: dict[str, int] = {}
        for ends, size in wanted:
            sizes.setdefault("".join(end for end in ends if end in self.sequence.ends), size)
        families = self.sequence.orthogonal
        return [(families[ends], size) for ends, size in sizes.items() if ends in families]

    def rule(self, family: Orthogonal, inner: Representation, node: float | None = None) -> Representation:
        """A rule for L_φ as one for the moments: weights divided by φ, and the rest of the mass on the zeros of φ."""
        nodes, weights = inner
        keep = np.abs(nodes) <= FAR
        if node is not None:
            nearest = np.argmin(np.abs(nodes - node))
            nodes[nearest], keep[nearest] = node, True
        nodes, weights = nodes[keep], weights[keep]
        if not family.ends:
            return Representation(nodes, weights)
        with np.errstate(all="ignore"):  # a node on an end makes weights that are not feasible
            if "a" in family.ends:
                weights = weights / (nodes - self.lo)
            if "b" in family.ends:
                weights = weights / (self.hi - nodes)
            rest = 1 - np.sum(weights)
            more = [rest]
            if family.ends == "ab":  # the mean divides the rest between the ends
                mean = float(self.sequence.moments[1])
                top = (mean - np.sum(weights * nodes) - rest * self.lo) / (self.hi - self.lo)
                more = [rest - top, top]
        nodes = np.append(nodes, [self.lo if end == "a" else self.hi for end in family.ends])
        order = np.argsort(nodes)
        return Representation(nodes[order], np.append(weights, more)[order])

    def _is_feasible(self, rule: Representation) -> bool:
        width = 1e-9 * (1 + np.max(np.abs(rule.nodes), initial=0.0))
        inside = bool(np.all((rule.nodes >= self.lo - width) & (rule.nodes <= self.hi + width)))
        return inside and bool(np.all(rule.weights >= -1e-9))

    def _touching(self, f: Pieces, order: int) -> Iterator[tuple[Representation, Longs]]:
        """Candidates of degree at most `order`, with the representation each belongs to."""
        if order == 1 and f.kink < 0:  # both lines lie above f, and the constant law attains one of them
            constant = Representation(np.array([float(self.sequence.moments[1])]), np.ones(1))
            yield from ((constant, np.array(line, dtype=Long)) for line in (f.left, f.right))
            return
        if f.kink <= 0:
            rule = self.canonical(order, f.at)
            if rule is not None:
                yield rule, self._touch(rule, f, f.at)
            return
        if order == 1:
            yield from self._lines(f)
            return
        if order == 2:
            yield self._parabola(f)
        for rule in self.principal(order):
            if f.at not in rule.nodes:
                yield rule, self._touch(rule, f)
        for node, rule in self._straddling(f, order):
            yield rule, self._touch(rule, f, node)

    def _touch(self, rule: Representation, f: Pieces, simple: float | None = None) -> Longs:
        """The polynomial that meets f at the nodes and has its slope at those inside, except at the node `simple`."""
        nodes, is_double = self._contacts(rule, simple)
        return hermite(nodes, f.values(nodes), f.slopes(nodes), is_double)

    def _contacts(self, rule: Representation, simple: float | None) -> tuple[Floats, Bools]:
        """The distinct nodes, moved into the support, and which of them are touched and not only met."""
        nodes = np.clip(rule.nodes, self.lo, self.hi)
        if simple is not None:
            nodes[rule.nodes == simple] = simple
        is_double = ~((nodes <= self.lo) | (nodes >= self.hi) | (nodes == simple))
        keep = np.ones(len(nodes), dtype=bool)
        keep[1:] = nodes[1:] > nodes[:-1]
        return nodes[keep], is_double[keep]

    def _lines(self, f: Pieces) -> Iterator[tuple[Representation, Longs]]:
        """The lowest straight line above a convex f at every mean."""
        ends = np.array([y for y in (self.lo, self.hi) if not math.isinf(y)])
        if not len(ends):
            return
        slope = f.right[1] if math.isinf(self.hi) else f.left[1]  # where one end is open, the slope out there
        line = hermite(ends, f.values(ends), np.full(len(ends), Long(slope)), np.full(len(ends), len(ends) == 1))
        mean = float(self.sequence.moments[1])
        right = (mean - ends[0]) / (ends[-1] - ends[0]) if len(ends) == 2 else 1.0
        weights = np.array([1 - right, right][-len(ends) :])
        yield Representation(ends, weights), line

    def _parabola(self, f: Pieces) -> tuple[Representation, Longs]:
        """``(y−t)⁺ ≤ (y−t+d)²/4d``, and the law on t ± d that shows it to be best without a support."""
        t = Long(f.at)
        square, error = self.sequence.expectation(np.array([t * t, -2 * t, Long(1)]))
        d = Long(max(math.sqrt(max(square, 0.0) + error), 1e-150))
        p = np.array([(d - t) ** 2, 2 * (d - t), Long(1)]) * f.kink / (4 * d)
        p[:2] += np.array(f.left)
        lean = (float(self.sequence.moments[1]) - f.at) / float(d)
        nodes, weights = np.array([f.at - float(d), f.at + float(d)]), np.array([1 - lean, 1 + lean]) / 2
        return Representation(nodes, weights), p

    def _straddling(self, f: Pieces, order: int) -> Iterator[tuple[float, Representation]]:
        """The representation all of whose nodes touch f, with one of its nodes; again for each of its nodes.

        The polynomial that meets f in value at ξ, and in slope too at the other nodes, has slope ``f′(ξ) + mismatch``
        at ξ, and ``dE f/dξ = −(weight of ξ)·mismatch``. As ξ moves from one node of t's representation to the next, E f
        rises from its least value to its largest and falls back. Any two neighbours will do, unless the law is nearly
        known: then most nodes are stuck at its atoms, and only the arc in which the light one moves shows anything.
        """
        around = self.canonical(order, f.at)
        if around is None:
            return
        ends = max(self.lo, -FAR), min(self.hi, FAR)
        nodes = np.unique(np.clip(np.append(around.nodes, np.array(ends)), *ends))
        arcs = [(float(a), float(b)) for a, b in pairwise(nodes)]
        # An arc that ends inside the support is a full turn; the others are parts of one.
        arcs.sort(key=lambda arc: (arc[0] == ends[0] or arc[1] == ends[1], min(abs(arc[0] - f.at), abs(arc[1] - f.at))))

        def mismatch(node: float) -> float:
            rule = self.canonical(order, node)
            if rule is None:
                return math.nan
            if np.all(rule.nodes > f.at):  # f is one straight line to this rule: E f has not begun to rise
                return -1.0
            if np.all(rule.nodes < f.at):
                return 1.0
            nodes, is_double = self._contacts(rule, node)
            is_double |= nodes == node
            values, slopes = f.values(nodes).astype(np.float64), f.slopes(nodes).astype(np.float64)
            points, factors = divided(nodes.tolist(), values.tolist(), slopes.tolist(), is_double.tolist())
            return -factors[-1] * math.prod(node - y for y in points if y != node)

        for start, end in arcs:
            # Next to a heavy atom the sign of the mismatch is lost in rounding, so the arc is looked at inside as well.
            trials = start + (end - start) * TRIALS
            if start == -FAR or end == FAR:
                trials = start + REACHES if end == FAR else end - REACHES[::-1]
            signs = [mismatch(float(y)) for y in trials]
            for i in range(len(trials) - 1):
                if signs[i] < 0 < signs[i + 1]:
                    node = float(
                        scipy.optimize.brentq(mismatch, trials[i], trials[i + 1], xtol=1e-10, rtol=1e-10, disp=False)
                    )
                    rule = self.canonical(order, node)
                    if rule is not None:
                        yield node, rule

    def _certified(self, p: Longs, f: Pieces) -> tuple[float, float]:
        """The bound that p proves, E p(Y) lifted by as much as p lies below f; and how much of it the errors cost."""
        if not np.all(np.isfinite(p)):
            return math.inf, 0.0
        left = least(polysub(p, f.left), self.lo, min(f.at, self.hi))
        right = least(polysub(p, f.right), max(f.at, self.lo), self.hi)
        value, error = self.sequence.expectation(p)
        return value + error + max(0.0, -left, -right), error


def gauss(family: Orthogonal, size: int) -> Representation:
    """Gauss nodes and weights of L_φ: eigenvalues of the Jacobi matrix and squared first entries of its vectors."""
    size = min(size, family.rank, len(family.alpha))
    if size == 0:
        return Representation(np.zeros(0), np.zeros(0))
    return _eigen(family.alpha[:size], family.beta[:size])


def _known_size(family: Orthogonal, size: int) -> int:
    """How many nodes of a rule with `size` nodes the moments fix once one is chosen."""
    return min(size - 1, family.rank, len(family.alpha), len(family.beta) - 1)


def _with_node(family: Orthogonal, size: int, node: float) -> Representation:
    """The rule of `size` nodes for L_φ with one at the given place: the last diagonal entry makes it an eigenvalue."""
    last = _known_size(family, size)
    pivot = 1.0  # of the elimination of J − node·I
    for k in range(last):
        pivot = family.alpha[k] - node - (family.beta[k] / pivot if k else 0.0)
        if abs(pivot) < 1e-200:
            pivot = 1e-200
    corner = node + (family.beta[last] / pivot if last else 0.0)
    if last and abs(corner) > FAR * (1 + abs(node)):  # the node is a Gauss node, and the free one is at infinity
        return gauss(family, last)
    return _eigen(np.append(family.alpha[:last], corner), family.beta[: last + 1])


def _eigen(alpha: Floats, beta: Floats) -> Representation:
    # The lower triangle is all that eigh reads.
    nodes, vectors = np.linalg.eigh(np.diag(alpha) + np.diag(np.sqrt(beta[1:]), -1))
    return Representation(nodes, beta[0] * vectors[0] ** 2)


def round_down(value: Fraction) -> float:
    """The largest float not above."""
    near = float(value)
    return near if Fraction(near) <= value else math.nextafter(near, -math.inf)


def round_up(value: Fraction) -> float:
    """The smallest float not below."""
    return -round_down(-value) + 0.0
