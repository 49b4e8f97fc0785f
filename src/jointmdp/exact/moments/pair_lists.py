"""Pairs of states that can be reached from a few first steps, as a list, and the recursion on it.

D(s,t) = D(t,s), so a pair stands once, smaller index first. Pairs whose gap is exactly zero are left out: branches that
have become one, or that are paid nothing any more. Where the list is too long, pairs of little weight stay outside, and
so do those with the outside of a part: what is known of them is ``|√B(s) − √B(t)| ≤ √D(s,t) ≤ √B(s) + √B(t)``.

Two branches in distinct states that move independently are moved one after the other, which takes 2K moves instead of
K² for K successors. Everything runs on the host and compiles nothing.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from jointmdp.ground.arrays import Bools, Floats, Ints, distinct, summed
from jointmdp.model.episodes import policy_kernel
from jointmdp.model.joint_mdp import JointMDP

BLOCK = 2_000_000  # moves formed at once
TABLE = 10**8  # pairs up to which a table of all of them says which are known


class PairMoves(NamedTuple):
    """Steps from nodes to nodes, each known by its code."""

    parent: Ints
    child: Ints
    weight: Floats


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
        return _place(self.codes, code(self.size, s, t))


def code(size: int, s: Ints, t: Ints) -> Ints:
    """The number of an unordered pair."""
    return np.minimum(s, t) * size + np.maximum(s, t)


def _place(codes: Ints, asked: Ints) -> Ints:
    if not len(codes):
        return np.full(asked.shape, -1)
    at = np.minimum(np.searchsorted(codes, asked), len(codes) - 1)
    return np.where(codes[at] == asked, at, -1)


class _Seen:
    """A set of codes below ``size²``: a table of bits where that is small, and a sorted list elsewhere."""

    def __init__(self, size: int) -> None:
        self.table = np.zeros(size**2, dtype=bool) if size**2 <= TABLE else None
        self.codes = np.zeros(0, dtype=np.int64)

    def added(self, codes: Ints) -> Ints:
        """Add codes; those that are new, in order and once each."""
        codes = distinct(codes)
        if self.table is not None:
            codes = codes[~self.table[codes]]
            self.table[codes] = True
            return codes
        codes = codes[_place(self.codes, codes) < 0]
        self.codes = np.sort(np.concatenate([self.codes, codes]), kind="stable")  # merges two runs
        return codes

    def all(self) -> Ints:
        """All codes, in order."""
        return self.codes if self.table is None else np.flatnonzero(self.table)


class _Steps:
    """PairMoves as they are found: whole steps, and first and second halves of steps."""

    def __init__(self, size: int) -> None:
        self.parts: dict[str, list[PairMoves]] = {"whole": [], "first": [], "second": []}
        self.halves, self.count = _Seen(size), 0
        self._children: list[Ints] = []

    def add(self, kind: str, moves: PairMoves) -> None:
        self.parts[kind].append(moves)
        self.count += len(moves.weight)
        if kind != "first":
            self._children.append(moves.child)

    def taken(self) -> Ints:
        """The pairs that moves led to since the last call."""
        children, self._children = self._children, []
        return np.concatenate([np.zeros(0, dtype=np.int64), *children])


class PairWalk:
    """The pair process of a model under a policy, node by node."""

    def __init__(self, model: JointMDP, policy: Floats, idle: Bools, outside: int | None = None) -> None:
        self.model, self.policy, self.idle, self.size = model, policy, idle, model.num_states
        self.is_single = (policy > 0).sum(axis=1) == 1
        if outside is not None:  # stands for many states: two branches there are not in one place
            self.is_single[outside] = False
        self.kernel = policy_kernel(model, policy)

    def is_settled(self, s: Ints, t: Ints) -> Bools:
        """Whether the gap is exactly zero: nothing is paid any more, or both take the one action there is."""
        return (self.idle[s] & self.idle[t]) | ((s == t) & self.is_single[s])

    def reached(self, first: Ints, most_moves: int) -> PairList | None:
        """The list of all pairs that can be reached from those with the codes `first`; None beyond `most_moves`."""
        steps, pairs = _Steps(self.size), _Seen(self.size)
        fresh = pairs.added(first)
        while len(fresh):
            for block in np.array_split(fresh, len(fresh) * 16 // BLOCK + 1):
                self._move(block, steps)
                if steps.count > most_moves:
                    return None
            fresh = pairs.added(self._open(steps.taken()))
        return self._assembled(pairs.all(), steps)

    def listed(self, codes: Ints, most_moves: int) -> PairList | None:
        """The list of these pairs alone, settled ones left out; None beyond `most_moves`."""
        steps, known = _Steps(self.size), self._open(codes)
        for block in np.array_split(known, len(known) * 16 // BLOCK + 1):
            self._move(block, steps)
            steps.taken()
            if steps.count > most_moves:
                return None
        return self._assembled(known, steps)

    def _open(self, codes: Ints) -> Ints:
        """Those whose gap is not settled, in order and once each."""
        codes = distinct(codes)
        return codes[~self.is_settled(*np.divmod(codes, self.size))]

    def _move(self, block: Ints, steps: "_Steps") -> None:
        s, t = np.divmod(block, self.size)
        apart = s != t
        steps.add("whole", self._together(block[~apart], s[~apart]))
        if self.model.sharing == "time":
            steps.add("whole", self._scenario_moves(block[apart], s[apart], t[apart]))
            return
        half = self._moved(block[apart], s[apart], t[apart])
        steps.add("first", half)
        fresh = steps.halves.added(half.child)
        moved, waiting = np.divmod(fresh, self.size)
        second = self._moved(fresh, waiting, moved)
        steps.add("second", second._replace(child=code(self.size, *np.divmod(second.child, self.size))))

    def _moved(self, codes: Ints, moving: Ints, waiting: Ints) -> PairMoves:
        """One branch of each node moves by the policy's kernel; children are coded (moved, waiting)."""
        rows, entries = _row_entries(self.kernel, moving)
        child = self.kernel.indices[entries].astype(np.int64) * self.size + waiting[rows]
        return PairMoves(codes[rows], child, self.kernel.data[entries])

    def _scenario_moves(self, codes: Ints, s: Ints, t: Ints) -> PairMoves:
        """Both branches move by the same scenario, and by actions of their own."""
        model, policy = self.model, self.policy
        found = []
        first, second = (np.flatnonzero(policy[each].max(axis=0, initial=0.0)) for each in (s, t))
        for a, b in itertools.product(first.tolist(), second.tolist()):
            weight = policy[s, a] * policy[t, b]
            i = np.flatnonzero(weight)
            w = np.flatnonzero(model.probabilities[0])
            to = code(self.size, model.successors[s[i]][:, w, a], model.successors[t[i]][:, w, b])
            chances = weight[i, None] * model.probabilities[0, w]
            found.append(_merged(PairMoves(np.repeat(codes[i], len(w)), to.ravel(), chances.ravel())))
        return _joined(found)

    def _together(self, codes: Ints, s: Ints) -> PairMoves:
        """Two branches of one state share the scenario; they stay apart if their actions differ."""
        model, policy, found = self.model, self.policy, []
        for a, b in zip(*np.triu_indices(policy.shape[1], 1), strict=True):
            weight = 2 * policy[s, a] * policy[s, b]
            i = np.flatnonzero(weight)
            if len(i):
                to = code(self.size, model.successors[s[i]][:, :, a], model.successors[s[i]][:, :, b])
                chances = weight[i, None] * model.probabilities[s[i]]
                found.append(_merged(PairMoves(np.repeat(codes[i], to.shape[1]), to.ravel(), chances.ravel())))
        return _joined(found)

    def _assembled(self, known: Ints, steps: "_Steps") -> PairList:
        halves = steps.halves.all()
        whole, first, second = (_joined(steps.parts[kind]) for kind in ("whole", "first", "second"))
        through = PairMoves(np.searchsorted(known, first.parent), np.searchsorted(halves, first.child), first.weight)
        rest = PairMoves(np.searchsorted(halves, second.parent), _place(known, second.child), second.weight)
        direct = PairMoves(np.searchsorted(known, whole.parent), _place(known, whole.child), whole.weight)
        to_halves = _matrix(through, (len(known), len(halves)))
        from_halves = _matrix(rest, (len(halves), len(known)))
        at_once = _matrix(direct, (len(known), len(known)))

        def later(x: Floats) -> Floats:
            return np.asarray(to_halves @ (from_halves @ x) + at_once @ x)

        def left(f: Callable[[Ints, Ints], Floats]) -> Floats:
            def outside(moves: PairMoves, child: Ints, size: int) -> Floats:
                is_out = moves.child < 0
                s, t = np.divmod(child[is_out], self.size)
                values = np.where(self.is_settled(s, t), 0.0, f(s, t))
                return summed(moves.parent[is_out], moves.weight[is_out] * values, size)

            found = to_halves @ outside(rest, second.child, len(halves)) + outside(direct, whole.child, len(known))
            return np.asarray(found)

        return PairList(self.size, known, later, left, steps.count, self.is_settled)


def _row_entries(kernel: sp.csr_array, rows: Ints) -> tuple[Ints, Ints]:
    """For each entry of the chosen rows: the place of its row among `rows`, and its own place."""
    starts, ends = kernel.indptr[rows].astype(np.int64), kernel.indptr[rows + 1].astype(np.int64)
    lengths = ends - starts
    which = np.repeat(np.arange(len(rows)), lengths)
    before = np.cumsum(lengths) - lengths
    return which, np.arange(lengths.sum()) - before[which] + starts[which]


def _joined(parts: list[PairMoves]) -> PairMoves:
    none = np.zeros(0, dtype=np.int64)
    return PairMoves(*(np.concatenate(part) for part in zip(PairMoves(none, none, np.zeros(0)), *parts, strict=True)))


def _merged(moves: PairMoves) -> PairMoves:
    """Equal moves of one parent counted once, where the parents come in order."""
    if not len(moves.parent):
        return moves
    order = np.lexsort((moves.child, moves.parent))
    parent, child = moves.parent[order], moves.child[order]
    is_new = np.append(True, (np.diff(parent) != 0) | (np.diff(child) != 0))
    return PairMoves(
        parent[is_new], child[is_new], summed(np.cumsum(is_new) - 1, moves.weight[order], int(is_new.sum()))
    )


def _matrix(moves: PairMoves, shape: tuple[int, int]) -> sp.csr_array:
    inside = moves.child >= 0
    return sp.csr_array((moves.weight[inside], (moves.parent[inside], moves.child[inside])), shape=shape)
