"""The law of a gap as a graph: the pairs of states that two branches can come to from the gaps asked about.

A node is a gap: of two actions in a state or of two policies (a root), of two branches in states s and t, or of such a
pair whose second branch has moved already. Its law is a mixture over its edges,

    G = shift + scale · G(child),        scale = γ, or 1 for the first half of a step,

and where two branches have become one, the child is nothing and G is the shift alone. Pairs whose gap is 0 whatever
happens count as that: nothing they can come to ever differs, by exact comparison of the table's own numbers. The nodes
and their moves are those of `PairWalk`; a root may also begin with an `Opening`, moves of its own that come before two
branches are an ordinary pair, as where the past of one of them is known.

Where branches move one after the other, the reward that is paid most often is subtracted from all, which changes no
gap: what it leaves is mostly 0, and 0 is never rounded.

Shifts are sums that are never above the exact result, and exact where that is a number: the rounding error of a sum is
a number itself and can be computed (Knuth's TwoSum), and so can that of a product (Dekker's TwoProduct). A result is
moved to its neighbour only where the error has the wrong sign.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse import csgraph

from jointmdp.exact.bellman.pair_step import NOTHING as NOTHING
from jointmdp.exact.bellman.pair_step import (
    NodeMoves,
    Outcomes,
    PairWalk,
    padded_lists,
    pair_step,
    positive,
)
from jointmdp.ground.arrays import UNIT, Bools, Floats, Ints, counted_once
from jointmdp.ground.errors import NotKnownError
from jointmdp.ground.limits import IsOver, OutOfTimeError, never
from jointmdp.model.joint_mdp import JointMDP

SPLITTER = 2.0**27 + 1
SAFE = 2.0**-960, 2.0**990  # products whose parts neither underflow nor overflow when split


def sum_down(a: Floats, b: Floats) -> Floats:
    """The largest number that is not above ``a + b``."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = a + b
        virtual = total - a
        error = (a - (total - virtual)) + (b - virtual)
    return np.where(~(error >= 0), np.nextafter(total, -np.inf), total)


def product_down(a: Floats, b: Floats) -> Floats:
    """A number that is not above ``a · b``, and equal to it where that is a number; for ``0 ≤ b ≤ 1``."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        found = a * b
        high_a, high_b = _high(a), _high(b)
        low_a, low_b = a - high_a, b - high_b
        error = low_a * low_b - (((found - high_a * high_b) - low_a * high_b) - high_a * low_b)
    is_safe = (np.abs(found) > SAFE[0]) & (np.abs(a) < SAFE[1]) & (b > 0)
    is_exact = (b == 1) | (a == 0) | (is_safe & (error >= 0))
    # What is not negative stays so, and larger numbers have no smaller products.
    return np.where(
        is_exact, found, np.where(a > 0, np.maximum(np.nextafter(found, -np.inf), 0.0), np.nextafter(found, -np.inf))
    )


def _high(x: Floats) -> Floats:
    """The upper half of the digits."""
    moved = SPLITTER * x
    return moved - (moved - x)


class OpeningMoves(NamedTuple):
    """Moves of nodes 0, 1, …; node 0 is where the gap begins, and all lead to later nodes or to pairs of states."""

    parent: Ints
    weight: Floats
    gain: Floats
    loss: Floats
    node: Ints  # that a move leads to; negative where it leads to a pair, or where both branches are one
    first: Ints  # states of the pair; negative where both are one
    second: Ints
    num_nodes: int
    num_terms: int  # sums and products that weights went through


class Opening:
    """A gap that begins with moves of its own; they are made when they are asked for."""

    def __init__(self, make: Callable[[], OpeningMoves]) -> None:
        self._make = make

    @cached_property
    def moves(self) -> OpeningMoves:
        return self._make()


WORTH_HALVING = 5.0  # outcomes of a branch, on average, from which half steps save work
BLOCK = 2**18  # moves that are listed at once
EDGE_BYTES = 400  # that an edge takes while the graph is made

# State, action, other; a state and twice NOTHING where two policies start there. Or moves that come before all that.
GapQuery = tuple[int, int, int]
GapStart = GapQuery | Opening


class GapBranches(NamedTuple):
    """Two branches of a model, and the policies they follow once they have moved."""

    model: JointMDP
    first: Floats  # [S, A]
    second: Floats
    can_merge: bool
    """Whether branches that draw the same action in the same state under the same noise are one from then on."""


class Edges(NamedTuple):
    """Moves of gaps, sorted by parent."""

    parent: Ints
    weight: Floats
    shift: Floats  # not above the exact one
    counter: Floats  # not above minus the exact one
    is_discounted: Bools
    child: Ints


class PairGraph(NamedTuple):
    """Gaps and how they move on; the first nodes are the roots."""

    edges: Edges
    num_nodes: int
    num_pairs: int
    """Pairs of states among the nodes; those that are 0 whatever happens are left out."""
    component: Ints  # [K] nodes that can come to each other have one number
    level: Ints  # [K] children have lower levels, but for those in one cycle with their parents
    is_cyclic: Bools  # [K] whether a node can come back to itself
    is_half: Bools  # [K] one branch has moved, the other has not
    first: Ints  # [K] states of the two branches; NOTHING for roots
    second: Ints
    is_together: Bools  # [K] in one state, where they share their scenario
    is_factored: bool  # whether other pairs move one branch after the other, given the noise of `outcomes`
    outcomes: tuple[Outcomes, Outcomes]  # of the two branches, where they are not together
    common: float  # the reward that is subtracted from all where they move one after the other
    num_roots: int
    discount: float
    rounding: float
    """Of weights, relatively: the sums of rounded products that they are, and rows that sum to 1 by rounding alone."""
    bytes_made: int
    """That it took to make the graph."""


def reached_pairs(
    branches: GapBranches, queries: Sequence[GapStart], memory: int, is_over: IsOver, is_pruned: bool = True
) -> PairGraph:
    """The graph below the gaps of `queries`, made in at most `memory` bytes; unpruned, equal pairs stay in."""
    return _Builder(branches, memory // EDGE_BYTES, is_pruned, is_over).graph(queries)


def equal_pairs(branches: GapBranches, s: Ints, t: Ints, most_edges: int) -> Bools:
    """Which pairs of branches that stand in s and t pay the same for ever, whatever happens."""
    builder = _Builder(branches, most_edges, is_pruned=True, is_over=never)
    codes, which = np.unique(builder.walk.code(s, t), return_inverse=True)
    known = builder.explore(codes)
    if not len(known):
        return np.zeros(0, dtype=bool)
    edges, size = _joined(builder.parts), len(known)
    parent, child = (np.searchsorted(known, codes) for codes in (edges.parent, np.maximum(edges.child, 0)))
    child = np.where(edges.child >= 0, child, NOTHING)
    is_live = _from(_links(child, parent, size), builder.differing(known))
    return ~is_live[np.searchsorted(known, codes)][which]


class _Builder:
    """Until all nodes are found a node is known by its code; roots have negative ones."""

    def __init__(self, branches: GapBranches, most_edges: int, is_pruned: bool, is_over: IsOver) -> None:
        self.is_over, self.model, self.size = is_over, branches.model, branches.model.num_states
        self.most_edges, self.is_pruned = most_edges, is_pruned
        self.step = pair_step(branches.model, branches.first, branches.second, can_merge=branches.can_merge)
        own, other = self.step.branches
        values, which = np.unique(own.rewards, return_inverse=True)
        often = np.bincount(which.ravel(), np.repeat(own.chances, own.lengths.sum(axis=1)) * own.weights)
        self.common = float(values[np.argmax(often)])
        halves = (
            self.step.is_factored
            and len(own.chances) == 1
            and float(np.mean([own.lengths, other.lengths])) > WORTH_HALVING
        )
        self.walk = PairWalk(self.step, has_halves=halves, is_ordered=True, block=BLOCK, waiting_reward=self.common)
        self.parts: list[Edges] = []
        self.count = self.most_terms = self.more_terms = 0
        self.opened = 2 * self.size**2  # codes from here on are nodes of openings

    def graph(self, queries: Sequence[GapStart]) -> PairGraph:
        first = self._add(self._of_roots(queries))
        reached = np.unique(first.child[first.child >= 0])
        is_pair = reached < self.opened
        pairs = self.explore(reached[is_pair])
        found = self._assembled(len(queries), np.append(pairs, reached[~is_pair]))
        self._check_time()
        return found

    def explore(self, codes: Ints) -> Ints:
        """Add the moves of all nodes that can be reached from these; all their codes, sorted."""

        def keep(moves: NodeMoves) -> Ints:
            found = self._add(_as_edges(moves))
            return found.child[found.child >= 0]

        return self.walk.explore(codes, keep)

    def _add(self, edges: Edges) -> Edges:
        self.most_terms = max(self.most_terms, int(np.bincount(np.unique(edges.parent, return_inverse=True)[1]).max()))
        if not self.model.discount:  # what follows a step counts nothing
            child = np.where(edges.is_discounted, NOTHING, edges.child)
            edges = edges._replace(child=child, is_discounted=np.zeros_like(edges.is_discounted))
        merged = _merged(edges)
        self.parts.append(merged)
        self.count += len(merged.parent)
        if self.count > self.most_edges:
            raise NotKnownError(
                f"the law of this gap lives on more than {self.count:,} moves of pairs of states, which take more than "
                f"the limit of memory allows ({self.most_edges * EDGE_BYTES:,} bytes); bounds from moments need no law"
            )
        self._check_time()
        return merged

    def _check_time(self) -> None:
        if self.is_over():
            raise OutOfTimeError(
                f"the law of this gap lives on {self.count:,} moves of pairs of states or more, and listing them took "
                "all the time that was given; bounds from moments need no law"
            )

    def _of_roots(self, queries: Sequence[GapStart]) -> Edges:
        """First steps: the actions are given, or what the policies draw in the first state."""
        found, opened = [], self.opened
        for number, query in enumerate(queries):
            root = number - len(queries)
            if isinstance(query, Opening):
                known = query.moves  # whose nodes have codes of their own
                self.more_terms = max(self.more_terms, known.num_terms)
                pair = np.where(known.first >= 0, self.walk.code(known.first, known.second), NOTHING)
                child = np.where(known.node >= 0, opened + known.node, pair)
                parent = np.where(known.parent == 0, root, opened + known.parent)
                found.append(_edges(parent, known.weight, known.gain, known.loss, child))
                opened += known.num_nodes
                continue
            s, a, b = query
            if a == NOTHING:
                edges = _as_edges(self.walk.moves(self.walk.code(np.array([s]), np.array([s]))))
                found.append(edges._replace(parent=np.full(len(edges.parent), root)))
                continue
            moves = self.step.by_actions(np.array([s]), np.array([a]), np.array([b]))
            to = self.walk.code(moves.first, moves.second)
            found.append(_edges(np.full(len(to), root), moves.weight + moves.off, moves.gain, moves.loss, to))
        return _joined(found)

    def _assembled(self, num_roots: int, codes: Ints) -> PairGraph:
        """All nodes that matter, numbered: the roots first, the others by code."""
        self._check_time()
        edges = _joined(self.parts)
        self.parts.clear()
        is_pair, is_opening = codes < self.size**2, codes >= self.opened
        parent = np.where(edges.parent < 0, edges.parent + num_roots, np.searchsorted(codes, edges.parent) + num_roots)
        child = np.where(edges.child < 0, NOTHING, np.searchsorted(codes, edges.child) + num_roots)
        size = num_roots + len(codes)
        if self.is_pruned:
            differs = np.zeros(size, dtype=bool)
            differs[num_roots:] = self.differing(np.where(is_opening, 0, codes)) & ~is_opening
            is_live = _from(_links(child, parent, size), differs)
            is_live[num_roots:] |= ~is_pair  # half a step, or a known one, may differ although what follows does not
            child = np.where((child >= 0) & is_live[child], child, NOTHING)
        links = _links(parent, child, size)
        is_kept = _from(links, np.arange(size) < num_roots)
        number = np.cumsum(is_kept) - 1
        kept = is_kept[parent]
        edges = Edges(number[parent], *edges[1:5], np.where(child >= 0, number[child], NOTHING))
        edges = _merged(Edges._make(column[kept] for column in edges))
        is_half = np.append(np.zeros(num_roots, dtype=bool), ~is_pair & ~is_opening)[is_kept]
        states = (np.where(is_opening, NOTHING, part) for part in self.walk.parts(codes)[1:])
        first, second = (np.append(np.full(num_roots, NOTHING), part)[is_kept] for part in states)
        is_together = (first == second) & (first != NOTHING) & ~is_half & (self.model.sharing != "none")
        own, other = self.step.branches
        out = padded_lists(own)
        terms = 2 * self.most_terms + self.step.roundings + 4 * self.model.num_actions + 24 + self.more_terms
        return PairGraph(
            edges,
            int(is_kept.sum()),
            int((first != NOTHING).sum()) - int(is_half.sum()),
            *_levels(links[is_kept][:, is_kept]),
            is_half,
            first,
            second,
            is_together,
            self.step.is_factored,
            (out, out if other is own else padded_lists(other)),
            self.common,
            num_roots,
            self.model.discount,
            2 * UNIT * terms,
            self.count * EDGE_BYTES,
        )

    def differing(self, codes: Ints) -> Bools:
        """Pairs whose next rewards can differ, by the table's own numbers; half steps are left to their pairs."""
        is_half, s, t = self.walk.parts(codes)
        found = np.zeros(len(codes), dtype=bool)
        (least, most), (other_least, other_most) = (
            [end.reduceat(lists.rewards, lists.starts[:-1]).reshape(-1, self.size) for end in (np.minimum, np.maximum)]
            for lists in self.step.branches
        )
        for g in range(len(least)):
            found |= np.maximum(most[g, s], other_most[g, t]) > np.minimum(least[g, s], other_least[g, t])
        found &= ~is_half
        # Branches in one state share their scenario too, and differ only by their actions.
        together = np.flatnonzero(~is_half & self.step.is_together(s, t))
        found[together] = self.step.differs_together(s[together])
        return found


def _edges(parent: Ints, weight: Floats, gain: Floats, loss: Floats, child: Ints) -> Edges:
    """Whole steps that pay ``gain − loss``."""
    shift, counter = sum_down(gain, -loss), sum_down(loss, -gain)
    columns = (parent, positive(weight), shift, counter, np.ones(child.shape, bool), child)
    return Edges._make(np.asarray(column).ravel() for column in columns)


def _as_edges(moves: NodeMoves) -> Edges:
    parent, weight, gain, loss, is_whole, child = moves
    return _edges(parent, weight, gain, loss, child)._replace(is_discounted=is_whole)


def _joined(parts: list[Edges]) -> Edges:
    return Edges._make(np.concatenate(column) for column in zip(*parts, strict=True))


def _merged(edges: Edges) -> Edges:
    """Sorted by parent, equal moves counted once."""
    first, total = counted_once((edges.parent, edges.child, edges.shift, edges.counter), edges.weight)
    return Edges._make(column[first] for column in edges)._replace(weight=total)


def _links(parent: Ints, child: Ints, size: int) -> sp.csr_array:
    some = (parent >= 0) & (child >= 0)
    return sp.csr_array((np.ones(some.sum(), dtype=bool), (parent[some], child[some])), shape=(size, size))


def _from(links: sp.csr_array, begin: Bools) -> Bools:
    """Nodes that can be reached from these."""
    found, fresh = begin.copy(), np.flatnonzero(begin)
    while len(fresh):
        after = np.unique(links[fresh].indices)
        fresh = after[~found[after]]
        found[fresh] = True
    return found


def _levels(links: sp.csr_array) -> tuple[Ints, Ints, Bools]:
    """Strong components, heights in their graph, and whether a node lies on a cycle."""
    count, label = csgraph.connected_components(links, connection="strong")
    links = links.tocoo()
    parent, child = label[links.row], label[links.col]
    loops = np.bincount(label, minlength=count) > 1
    loops[parent[parent == child]] = True
    crossing = np.unique(np.stack([child, parent])[:, parent != child], axis=1)
    starts = np.searchsorted(crossing[0], np.arange(count + 1))
    waiting = np.bincount(crossing[1], minlength=count)
    level, ready, height = np.zeros(count, dtype=np.int64), np.flatnonzero(waiting == 0), 0
    while len(ready):
        level[ready] = height
        above = np.concatenate([crossing[1, starts[c] : starts[c + 1]] for c in ready])
        np.subtract.at(waiting, above, 1)
        above = np.unique(above)
        ready, height = above[waiting[above] == 0], height + 1
    return label.astype(np.int64), level[label], loops[label]
