"""Which pairs of states two branches can come to, found breadth first from a few, and the recursion on their list.

A node is a pair of states or, where branches that are apart share nothing, a pair whose second branch has moved
already: moving one after the other makes a pair cost the sum, not the product, of what its branches can do. How nodes
move on is `pair_step`'s to say. `PairWalk` finds the nodes; what is kept of their moves is the caller's: `pair_list`
keeps weights, for moments, and `law.pair_graph` what each move pays, for laws.

**Lists for moments.** D(s,t) = D(t,s), so a pair stands once, smaller index first. Pairs whose gap is exactly zero are
left out: branches that have become one, or that are paid nothing any more. Where the list is too long, pairs of little
weight stay outside, and so do those with the outside of a part: what is known of them is
``|√B(s) − √B(t)| ≤ √D(s,t) ≤ √B(s) + √B(t)``.

Everything runs on the host and compiles nothing.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from jointmdp.exact.bellman.pair_step import Moves, PairStep
from jointmdp.ground.arrays import Bools, Floats, Ints, distinct, summed
from jointmdp.model.joint_mdp import JointMDP

NOTHING = -1  # the child where two branches are one
TABLE = 10**8  # codes up to which a table of all of them says which are known


class NodeMoves(NamedTuple):
    """Moves from nodes to nodes, each known by its code."""

    parent: Ints
    weight: Floats
    gain: Floats
    loss: Floats
    is_whole: Bools  # else the second branch alone has moved, and time has not
    child: Ints


class PairWalk:
    """The pair process node by node. Codes below size² are pairs, those from there on pairs with one branch moved."""

    def __init__(
        self, step: PairStep, *, has_halves: bool, is_ordered: bool, block: int, waiting_reward: float = 0.0
    ) -> None:
        """`block` moves are formed at once; a branch that waits is paid `waiting_reward`."""
        self.step, self.size, self.has_halves, self.is_ordered = step, step.size, has_halves, is_ordered
        self.block, self.waiting_reward = block, waiting_reward

    def code(self, s: Ints, t: Ints, is_half: bool = False) -> Ints:
        """The number of a node."""
        if is_half:
            return (self.size + s) * self.size + t
        return s * self.size + t if self.is_ordered else np.minimum(s, t) * self.size + np.maximum(s, t)

    def parts(self, codes: Ints) -> tuple[Bools, Ints, Ints]:
        """Whether the second branch has moved already, and the states of both."""
        rest, t = np.divmod(codes, self.size)
        return rest >= self.size, rest % self.size, t

    def explore(self, first: Ints, keep: Callable[[NodeMoves], Ints]) -> Ints:
        """All nodes that can be reached from `first`, sorted; `keep` is given moves, and says which nodes to follow."""
        seen = _Seen(2 * self.size**2)
        fresh = seen.added(first)
        while len(fresh):
            reached = [keep(self.moves(block)) for block in self._blocks(fresh)]
            fresh = seen.added(np.concatenate(reached))
        return seen.all()

    def _blocks(self, codes: Ints) -> Iterator[Ints]:
        is_half, s, t = self.parts(codes)
        counts = self.step.counts(s, t)
        if self.has_halves:
            one, two = (branch.lengths[0] for branch in self.step.branches)
            counts = np.where(is_half, one[s], np.where(self.step.is_together(s, t), counts, two[t]))
        ends = np.cumsum(counts)
        cuts = np.unique(np.concatenate([[0], np.searchsorted(ends, np.arange(0, ends[-1], self.block)), [len(codes)]]))
        return (codes[a:b] for a, b in pairwise(cuts))

    def moves(self, codes: Ints) -> NodeMoves:
        """All moves of some nodes."""
        is_half, s, t = self.parts(codes)
        is_together = ~is_half & self.step.is_together(s, t)
        apart = ~is_half & ~is_together
        found = [self._whole(codes[is_together], self.step.together(s[is_together]))]
        if self.step.can_merge:
            tied, zero = codes[is_together], np.zeros(int(is_together.sum()))
            one = np.full(len(tied), NOTHING)
            found.append(NodeMoves(tied, self.step.ties(s[is_together]), zero, zero, np.ones(len(tied), bool), one))
        if self.has_halves:
            i, weight, reward, to = self.step.alone(1, t[apart])
            common = np.full(len(i), self.waiting_reward)
            child = self.code(s[apart][i], to, is_half=True)
            found.append(NodeMoves(codes[apart][i], weight, common, reward, np.zeros(len(i), bool), child))
            i, weight, reward, to = self.step.alone(0, s[is_half])
            common = np.full(len(i), self.waiting_reward)
            child = self.code(to, t[is_half][i])
            found.append(NodeMoves(codes[is_half][i], weight, reward, common, np.ones(len(i), bool), child))
        else:
            found.append(self._whole(codes[apart], self.step.apart(s[apart], t[apart])))
        return NodeMoves._make(np.concatenate(column) for column in zip(*found, strict=True))

    def _whole(self, codes: Ints, moves: Moves) -> NodeMoves:
        row, weight, gain, loss, first, second = moves
        return NodeMoves(codes[row], weight, gain, loss, np.ones(len(row), bool), self.code(first, second))


class _Seen:
    """A set of codes below a size: a table of bits where that is small, and a sorted list elsewhere."""

    def __init__(self, size: int) -> None:
        self.table = np.zeros(size, dtype=bool) if size <= TABLE else None
        self.codes = np.zeros(0, dtype=np.int64)

    def added(self, codes: Ints) -> Ints:
        """Add codes; those that are new, in order and once each."""
        codes = distinct(codes)
        if self.table is not None:
            codes = codes[~self.table[codes]]
            self.table[codes] = True
            return codes
        codes = codes[place(self.codes, codes) < 0]
        self.codes = np.sort(np.concatenate([self.codes, codes]), kind="stable")  # merges two runs
        return codes

    def all(self) -> Ints:
        """All codes, in order."""
        return self.codes if self.table is None else np.flatnonzero(self.table)


def place(codes: Ints, asked: Ints) -> Ints:
    """Where codes stand among others that are in order; −1 where they do not."""
    if not len(codes):
        return np.full(asked.shape, -1)
    at = np.minimum(np.searchsorted(codes, asked), len(codes) - 1)
    return np.where(codes[at] == asked, at, -1)


# -- lists of pairs for moments --------------------------------------------------------------------------------------

BLOCK = 2_000_000  # moves formed at once


class PairList(NamedTuple):
    """Pairs ``s ≤ t`` with their codes ``s·size + t`` in increasing order, and how they move on."""

    size: int
    codes: Ints  # [k]
    later: Callable[[Floats], Floats]  # x [k] ↦ E x(S', T'), with zero for pairs that are not listed
    left: Callable[[Callable[[Ints, Ints], Floats]], Floats]  # f ↦ E f(S', T') over pairs that are not listed [k]
    num_moves: int
    is_settled: Callable[[Ints, Ints], Bools]  # whether the gap of a pair is exactly zero

    @property
    def pairs(self) -> tuple[Ints, Ints]:
        """s and t, ``[k]`` each."""
        s, t = np.divmod(self.codes, self.size)
        return s, t

    def place(self, s: Ints, t: Ints) -> Ints:
        """Where pairs stand in the list; −1 where they do not."""
        return place(self.codes, np.minimum(s, t) * self.size + np.maximum(s, t))


class _TooManyError(Exception):
    """A list would take more moves than there is room for."""


class PairLister:
    """Lists of pairs of a model under a policy."""

    def __init__(self, model: JointMDP, policy: Floats, idle: Bools, outside: int | None = None) -> None:
        self.idle, self.is_single = idle, (policy > 0).sum(axis=1) == 1
        if outside is not None:  # stands for many states: two branches there are not in one place
            self.is_single[outside] = False
        step = PairStep(model, policy, has_rewards=False)
        self.walk = PairWalk(step, has_halves=model.sharing != "time", is_ordered=False, block=BLOCK)
        self.size = step.size

    def is_settled(self, s: Ints, t: Ints) -> Bools:
        """Whether the gap is exactly zero: nothing is paid any more, or both take the one action there is."""
        return (self.idle[s] & self.idle[t]) | ((s == t) & self.is_single[s])

    def opened(self, codes: Ints) -> Ints:
        """The pairs among codes whose gap is not settled, in order and once each."""
        codes = distinct(codes)
        return codes[~self.is_settled(*np.divmod(codes, self.size))]

    def reached(self, first: Ints, most_moves: int) -> PairList | None:
        """The list of all pairs that can be reached from those with the codes `first`; None beyond `most_moves`."""
        return self._listed(self.opened(first), most_moves, is_closed=False)

    def listed(self, codes: Ints, most_moves: int) -> PairList | None:
        """The list of these pairs alone, settled ones left out; None beyond `most_moves`."""
        return self._listed(self.opened(codes), most_moves, is_closed=True)

    def _listed(self, first: Ints, most_moves: int, is_closed: bool) -> PairList | None:
        parts: list[tuple[Ints, Ints, Floats]] = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))]
        pairs, count = self.size**2, 0

        def keep(moves: NodeMoves) -> Ints:
            nonlocal count
            # Moves of one branch differ already; those of two may lead to the same pair.
            is_alone = ~moves.is_whole | (moves.parent >= pairs)
            of_two = ~is_alone & (moves.child >= 0)
            merged = _merged(moves.parent[of_two], moves.child[of_two], moves.weight[of_two])
            parts.extend([(moves.parent[is_alone], moves.child[is_alone], moves.weight[is_alone]), merged])
            count += len(merged[0]) + int(is_alone.sum())
            if count > most_moves:
                raise _TooManyError
            child = distinct(np.append(moves.child[is_alone], merged[1]))
            halves = child[child >= pairs]
            return halves if is_closed else np.append(self.opened(child[child < pairs]), halves)

        try:
            known = self.walk.explore(first, keep)
        except _TooManyError:
            return None
        parent, child, weight = (np.concatenate(column) for column in zip(*parts, strict=True))
        return self._assembled(known, parent, child, weight)

    def _assembled(self, known: Ints, parent: Ints, child: Ints, weight: Floats) -> PairList:
        count = int(np.searchsorted(known, self.size**2))  # pairs; the others have one branch moved
        parent, to = np.searchsorted(known, parent), place(known, child)
        is_in, is_out = to >= 0, np.flatnonzero(to < 0)
        shape = (len(known), len(known))
        matrix = sp.csr_array((weight[is_in], (parent[is_in], to[is_in])), shape=shape)
        at_once, to_halves, from_halves = matrix[:count, :count], matrix[:count, count:], matrix[count:, :count]
        out_parent, out_weight = parent[is_out], weight[is_out]
        out_pairs = np.divmod(child[is_out], self.size)

        def later(x: Floats) -> Floats:
            return np.asarray(to_halves @ (from_halves @ x) + at_once @ x)

        def left(f: Callable[[Ints, Ints], Floats]) -> Floats:
            values = np.where(self.is_settled(*out_pairs), 0.0, f(*out_pairs))
            each = summed(out_parent, out_weight * values, len(known))
            return np.asarray(to_halves @ each[count:] + each[:count])

        return PairList(self.size, known[:count], later, left, len(parent), self.is_settled)


def _merged(parent: Ints, child: Ints, weight: Floats) -> tuple[Ints, Ints, Floats]:
    """Equal moves of one parent counted once."""
    if not len(parent):
        return parent, child, weight
    order = np.lexsort((child, parent))
    parent, child = parent[order], child[order]
    is_new = np.append(True, (np.diff(parent) != 0) | (np.diff(child) != 0))
    return parent[is_new], child[is_new], summed(np.cumsum(is_new) - 1, weight[order], int(is_new.sum()))
