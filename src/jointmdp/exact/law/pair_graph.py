"""What one branch can do in each state, as lists: weights, rewards and successors.

Sums and products of arrays that are never above (or never below) the exact result, and exact where that is.

The rounding error of a sum is a number itself and can be computed (Knuth's TwoSum); so can that of a product (Dekker's
TwoProduct). A result is moved to its neighbour only where the error has the wrong sign, so exact results stay exact.

Moves that come before two branches are an ordinary pair, as where the past of one of them is known.

The pairs of states that two branches can come to from the gaps asked about, as a graph.

A node is a gap: of two actions in a state or of two policies (a root), of two branches in states s and t, or of such a
pair whose second branch has moved already. Its law is a mixture over its edges,

    G = shift + scale · G(child),        scale = γ, or 1 for the first half of a step,

and where two branches have become one, the child is nothing and G is the shift alone. Pairs whose gap is 0 whatever
happens count as that: nothing they can come to ever differs, by exact comparison of the table's own numbers.

Where branches draw independently, moving one after the other makes a pair cost the sum, not the product, of their
outcomes. The reward that is paid most often is then subtracted from all, which changes no gap: what it leaves is mostly
0, and 0 is never rounded.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse import csgraph

from jointmdp.ground.arrays import UNIT, Bools, Floats, Ints, summed
from jointmdp.ground.errors import NotKnownError
from jointmdp.ground.limits import IsOver, OutOfTimeError, never
from jointmdp.model.joint_mdp import JointMDP

# What a positive probability is at least. A bound may count an event as likelier than it is; products of two such
# numbers do not underflow, so no event is lost.
RAREST = 1e-150


class Outcomes(NamedTuple):
    """What a branch can do in a state, given the noise that two branches share; lists are padded with weight 0."""

    chances: Floats  # [G] of the shared noise
    weights: Floats  # [G, S, O]
    rewards: Floats  # [G, S, O]
    successors: Ints  # [G, S, O]


def positive(weight: Floats) -> Floats:
    """Probabilities of what can happen, none of them 0."""
    return np.maximum(weight, RAREST)


def branch_outcomes(model: JointMDP, policy: Floats) -> Outcomes:
    """Lists of what a branch can do in each state, equal outcomes counted once."""
    p, r, n = model.probabilities, model.rewards, model.successors
    if model.sharing == "time":
        scenarios = np.flatnonzero(p[0])
        chances, lists = p[0, scenarios], [_listed(policy, r[:, w], n[:, w]) for w in scenarios]
    else:
        flat = (model.num_states, -1)
        possible = (p > 0)[:, :, None] & (policy > 0)[:, None, :]
        weights = np.where(possible, positive(p[:, :, None] * policy[:, None, :]), 0.0)
        chances, lists = np.ones(1), [_listed(weights.reshape(flat), r.reshape(flat), n.reshape(flat))]
    longest = max(found[0].shape[1] for found in lists)
    padded = [[np.pad(x, ((0, 0), (0, longest - x.shape[1]))) for x in found] for found in lists]
    return Outcomes(chances, *(np.stack(columns) for columns in zip(*padded, strict=True)))


def _listed(weights: Floats, rewards: Floats, to: Ints) -> tuple[Floats, Floats, Ints]:
    """One padded list per state: weights, rewards and successors ``[S, O]``."""
    size, some = len(weights), weights > 0
    rows, weights, rewards, to = np.nonzero(some)[0], weights[some], rewards[some], to[some]
    order = np.lexsort((rewards, to, rows))
    rows, weights, rewards, to = rows[order], weights[order], rewards[order], to[order]
    is_new = np.ones(len(rows), dtype=bool)
    is_new[1:] = (np.diff(rows) != 0) | (np.diff(to) != 0) | (rewards[1:] != rewards[:-1])
    total = np.bincount(np.cumsum(is_new) - 1, weights)
    rows, rewards, to = rows[is_new], rewards[is_new], to[is_new]
    position = np.arange(len(rows)) - np.searchsorted(rows, rows)
    shape = (size, int(position.max()) + 1)
    found = np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=np.int64)
    for array, values in zip(found, (total, rewards, to), strict=True):
        array[rows, position] = values
    return found


def commonest_reward(out: Outcomes) -> float:
    """The reward that is paid most often."""
    values, which = np.unique(out.rewards.ravel(), return_inverse=True)
    weights = out.chances[:, None, None] * out.weights
    return float(values[np.argmax(np.bincount(which.ravel(), weights.ravel()))])


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


NOTHING = -1  # the child where two branches are one
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
    codes, which = np.unique(builder.code(0, s, t), return_inverse=True)
    known = builder.explore(codes)
    edges, size = builder.collected(), len(known)
    parent, child = (np.searchsorted(known, codes) for codes in (edges.parent, np.maximum(edges.child, 0)))
    child = np.where(edges.child >= 0, child, NOTHING)
    is_live = _from(_links(child, parent, size), builder.differing(known))
    return ~is_live[np.searchsorted(known, codes)][which]


class _Builder:
    """Finds the nodes breadth first. Until all are found a node is known by a code; roots have negative ones."""

    def __init__(self, branches: GapBranches, most_edges: int, is_pruned: bool, is_over: IsOver) -> None:
        self.is_over, self.model, self.policies = is_over, branches.model, (branches.first, branches.second)
        self.can_merge = branches.can_merge and self.model.sharing != "none"
        self.most_edges, self.is_pruned = most_edges, is_pruned
        self.size = self.model.num_states
        own = branch_outcomes(self.model, branches.first)
        self.out = own, own if branches.second is branches.first else branch_outcomes(self.model, branches.second)
        self.common = commonest_reward(own)
        lengths = [(out.weights > 0).sum(axis=2) for out in self.out]
        self.halves = len(own.chances) == 1 and float(np.mean(lengths)) > WORTH_HALVING
        shared = len(own.chances)
        self.longest = shared * int(lengths[0].max()) * (1 if self.halves else int(lengths[1].max()))
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
        fresh = known = codes
        while len(fresh):
            reached = []
            for block in np.array_split(fresh, len(fresh) * self.longest // BLOCK + 1):
                found = self._add(self._moves(block))
                reached.append(np.unique(found.child[found.child >= 0]))
            fresh = np.setdiff1d(np.unique(np.concatenate(reached)), known, assume_unique=True)
            known = np.union1d(known, fresh)
        return known

    def collected(self) -> Edges:
        """All moves added so far."""
        edges = _joined([_no_edges(), *self.parts])
        self.parts.clear()
        return edges

    def _add(self, edges: Edges) -> Edges:
        self.most_terms = max(self.most_terms, int(np.bincount(np.unique(edges.parent, return_inverse=True)[1]).max()))
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

    def code(self, is_half: int, s: Ints, t: Ints) -> Ints:
        """The number of a node until all are known."""
        return (is_half * self.size + s) * self.size + t

    def _parts_of(self, codes: Ints) -> tuple[Bools, Ints, Ints]:
        rest, t = np.divmod(codes, self.size)
        return rest >= self.size, rest % self.size, t

    def _of_roots(self, queries: Sequence[GapStart]) -> Edges:
        """First steps: the actions are given, or what the policies draw in the first state."""
        model, found, opened = self.model, [], self.opened
        for number, query in enumerate(queries):
            if isinstance(query, Opening):
                found.append(self._of_opening(query, number - len(queries), opened))
                opened += query.moves.num_nodes
                continue
            s, a, b = query
            if a == NOTHING:
                moves = self._moves(self.code(0, np.array([s]), np.array([s])))
                found.append(moves._replace(parent=np.full(len(moves.parent), number - len(queries))))
                continue
            w = np.flatnonzero(model.probabilities[s])
            first, second = (x.ravel() for x in np.meshgrid(w, w)) if model.sharing == "none" else (w, w)
            weight = model.probabilities[s, w]
            if model.sharing == "none":
                weight = model.probabilities[s, first] * model.probabilities[s, second]
            rewards = model.rewards[s, first, a], model.rewards[s, second, b]
            to = self.code(0, model.successors[s, first, a], model.successors[s, second, b])
            found.append(_edges(np.full(len(first), number - len(queries)), weight, *rewards, to))
        return _joined(found)

    def _of_opening(self, opening: Opening, root: int, opened: int) -> Edges:
        """The moves of an opening, all at once; its nodes have codes of their own."""
        moves = opening.moves
        self.more_terms = max(self.more_terms, moves.num_terms)
        pair = np.where(moves.first >= 0, self.code(0, moves.first, moves.second), NOTHING)
        child = np.where(moves.node >= 0, opened + moves.node, pair)
        return _edges(
            np.where(moves.parent == 0, root, opened + moves.parent), moves.weight, moves.gain, moves.loss, child
        )

    def _moves(self, codes: Ints) -> Edges:
        is_half, s, t = self._parts_of(codes)
        is_together = ~is_half & (s == t) & (self.model.sharing != "none")
        apart = ~is_half & ~is_together
        found = [self._meetings(codes[is_together], s[is_together])]
        if self.halves:
            found.append(self._second_moves(codes[apart], s[apart], t[apart]))
            found.append(self._first_moves(codes[is_half], s[is_half], t[is_half]))
        else:
            found.append(self._both_move(codes[apart], s[apart], t[apart]))
        return _joined(found)

    def _meetings(self, codes: Ints, s: Ints) -> Edges:
        """Two branches in one state share their scenario; if they draw the same action they may be one."""
        model, found = self.model, [_no_edges()]
        for code, state in zip(codes.tolist(), s.tolist(), strict=True):
            one, two = self.policies[0][state], self.policies[1][state]
            a, b = (x.ravel() for x in np.meshgrid(np.flatnonzero(one), np.flatnonzero(two)))
            is_apart = (a != b) | ~np.array(self.can_merge)
            a, b = a[is_apart], b[is_apart]
            w = np.flatnonzero(model.probabilities[state])[:, None]
            weight = model.probabilities[state, w] * positive(one[a] * two[b])
            rewards = model.rewards[state, w, a], model.rewards[state, w, b]
            to = self.code(0, model.successors[state, w, a], model.successors[state, w, b])
            found.append(_edges(np.full(weight.size, code), weight, *rewards, to))
            if self.can_merge:
                tie, zero = np.array([np.sum(one[one > 0] ** 2)]), np.zeros(1)
                found.append(_edges(np.array([code]), tie, zero, zero, np.array([NOTHING])))
        return _joined(found)

    def _both_move(self, codes: Ints, s: Ints, t: Ints) -> Edges:
        """A whole step of pairs in which both draw, given the shared noise."""
        found, (one, two) = [_no_edges()], self.out
        for g, chance in enumerate(one.chances):
            i, o, q = np.nonzero((one.weights[g][s] > 0)[:, :, None] & (two.weights[g][t] > 0)[:, None, :])
            x, y = (g, s[i], o), (g, t[i], q)
            weight = chance * positive(one.weights[x] * two.weights[y])
            to = self.code(0, one.successors[x], two.successors[y])
            found.append(_edges(codes[i], weight, one.rewards[x], two.rewards[y], to))
        return _joined(found)

    def _second_moves(self, codes: Ints, s: Ints, t: Ints) -> Edges:
        """The first half of a step."""
        w, r, n = (part[0] for part in self.out[1][1:])
        i, o = np.nonzero(w[t] > 0)
        y = t[i]
        common = np.full(len(i), self.common)
        found = _edges(codes[i], w[y, o], common, r[y, o], self.code(1, s[i], n[y, o]))
        return found._replace(is_discounted=np.zeros(len(i), dtype=bool))

    def _first_moves(self, codes: Ints, s: Ints, t: Ints) -> Edges:
        """The second half."""
        w, r, n = (part[0] for part in self.out[0][1:])
        i, o = np.nonzero(w[s] > 0)
        x = s[i]
        return _edges(codes[i], w[x, o], r[x, o], np.full(len(i), self.common), self.code(0, n[x, o], t[i]))

    def _assembled(self, num_roots: int, codes: Ints) -> PairGraph:
        """All nodes that matter, numbered: the roots first, the others by code."""
        self._check_time()
        edges = self.collected()
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
        states = (np.where(is_opening, NOTHING, part) for part in self._parts_of(codes)[1:])
        first, second = (np.append(np.full(num_roots, NOTHING), part)[is_kept] for part in states)
        is_together = (first == second) & (first != NOTHING) & ~is_half & (self.model.sharing != "none")
        rows = 4 * (self.model.num_scenarios + self.model.num_actions)
        terms = 2 * self.most_terms + self.model.num_scenarios * self.model.num_actions + rows + 24 + self.more_terms
        return PairGraph(
            edges,
            int(is_kept.sum()),
            int((first != NOTHING).sum()) - int(is_half.sum()),
            *_levels(links[is_kept][:, is_kept]),
            is_half,
            first,
            second,
            is_together,
            self.out,
            self.common,
            num_roots,
            self.model.discount,
            2 * UNIT * terms,
            self.count * EDGE_BYTES,
        )

    def differing(self, codes: Ints) -> Bools:
        """Pairs whose next rewards can differ, by the table's own numbers; half steps are left to their pairs."""
        is_half, s, t = self._parts_of(codes)
        found = np.zeros(len(codes), dtype=bool)
        for g in range(len(self.out[0].chances)):
            ends = []
            for out in self.out:
                w, r = out.weights[g], out.rewards[g]
                ends.append((np.where(w > 0, r, np.inf).min(axis=1), np.where(w > 0, r, -np.inf).max(axis=1)))
            (least, most), (other_least, other_most) = ends
            found |= np.maximum(most[s], other_most[t]) > np.minimum(least[s], other_least[t])
        found &= ~is_half
        if self.model.sharing == "none":
            return found
        # GapBranches in one state share their scenario too, and differ only by their actions.
        for i in np.flatnonzero(~is_half & (s == t)):
            taken = (self.policies[0][s[i]] > 0) | (self.policies[1][s[i]] > 0)
            rewards = self.model.rewards[s[i]][self.model.probabilities[s[i]] > 0][:, taken]
            found[i] = bool(np.any(rewards.max(axis=1) > rewards.min(axis=1)))
        return found


def _edges(parent: Ints, weight: Floats, gain: Floats, loss: Floats, child: Ints) -> Edges:
    """Whole steps that pay ``gain − loss``."""
    shift, counter = sum_down(gain, -loss), sum_down(loss, -gain)
    columns = (parent, positive(weight), shift, counter, np.ones(child.shape, bool), child)
    return Edges._make(np.asarray(column).ravel() for column in columns)


def _no_edges() -> Edges:
    none = np.zeros(0, dtype=np.int64)
    return _edges(none, none.astype(float), none.astype(float), none.astype(float), none)


def _joined(parts: list[Edges]) -> Edges:
    return Edges._make(np.concatenate(column) for column in zip(*parts, strict=True))


def _merged(edges: Edges) -> Edges:
    """Sorted by parent, equal moves counted once."""
    order = np.lexsort((edges.counter, edges.shift, edges.child, edges.parent))
    edges = Edges._make(column[order] for column in edges)
    is_new = np.ones(len(order), dtype=bool)
    is_new[1:] = (np.diff(edges.parent) != 0) | (np.diff(edges.child) != 0)
    is_new[1:] |= (edges.shift[1:] != edges.shift[:-1]) | (edges.counter[1:] != edges.counter[:-1])
    total = summed(np.cumsum(is_new) - 1, edges.weight, int(is_new.sum()))
    return Edges._make(column[is_new] for column in edges)._replace(weight=total)


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
