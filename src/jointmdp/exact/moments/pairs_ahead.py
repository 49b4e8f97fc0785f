"""What two branches bring from pairs of states on, by the moves of these pairs themselves.

The pairs of states that can come are listed with their moves (`pair_step`). Over a horizon they are backed up as often
as steps are left. Without one, moments of order k about a mean obey ``h = c + γᵏ K h`` with
``K`` the moves to other pairs. Where ``w − γᵏ K w ≥ ½`` for some w, any h, whatever it was found by, is off by at most
``2 r w``, where r is how far one step, with all rounding and the error of lower orders, moves it. So laws of pairs that
no table holds, those of Gumbel noise, are certified as they are, and two policies are compared over a horizon.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from jointmdp.exact.bellman.pair_step import NOTHING as ONE
from jointmdp.exact.bellman.pair_step import RAREST, pair_step, stretches
from jointmdp.exact.moments.known_returns import KnownReturns, Moves, PairEnds, backed_up
from jointmdp.ground.arrays import UNIT, Bools, Floats, Ints, counted_once, grouped, summed
from jointmdp.ground.errors import ModelError
from jointmdp.model.gumbel_max import ends_of
from jointmdp.model.joint_mdp import JointMDP

MOST_MOVES = 20_000_000
AT_ONCE = 2_000_000  # numbers that moves of some pairs are formed from
LONGER = 1e-9  # relative: what rounding may make of a step
SETTLED = 8 * UNIT  # a relative change of moments that is rounding
STEPS = 100_000
SWEPT = 2_000_000  # moves that are backed up at once


class PairMoves(NamedTuple):
    """How pairs move on, as columns."""

    parent: Ints
    weight: Floats
    gain: Floats  # what the other branch is paid
    loss: Floats
    child: Ints  # ONE where the branches are one
    off: Floats  # the weight is off by so much at most, beside rounding of its own size


class Sweeps:
    """Steps backward from the end of a horizon, as many as were asked for; moves are sorted by parent."""

    def __init__(self, codes: Ints, moves: Moves, discount: float, order: int) -> None:
        self.codes, self._moves, self._discount = codes, moves, discount
        self._found = {0: KnownReturns.zeros(order, len(codes))}
        ends = np.append(0, np.searchsorted(moves.parent, np.arange(len(codes)), side="right"))
        firsts = np.flatnonzero(np.diff(ends // SWEPT, prepend=-1)[:-1])
        self._parts = list(itertools.pairwise([*firsts.tolist(), len(codes)]))
        self._ends = ends

    def after(self, steps: int) -> KnownReturns:
        """What so many steps bring."""
        done = max(step for step in self._found if step <= steps)
        found = self._found[done]
        for _ in range(done, steps):
            parts = [self._swept(first, last, found) for first, last in self._parts]
            found = KnownReturns._make(np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
        self._found[steps] = found
        return found

    def _swept(self, first: int, last: int, later: KnownReturns) -> KnownReturns:
        """One step of some of them."""
        moves = Moves._make(column[self._ends[first] : self._ends[last]] for column in self._moves)
        return backed_up(moves._replace(parent=moves.parent - first), last - first, later, self._discount, 0.0)


class PairsAhead:
    """Pairs of a branch that follows `policy`, and one that follows `other`; the gap is the other's."""

    def __init__(self, model: JointMDP, policy: Floats, other: Floats, can_merge: bool, order: int) -> None:
        self.step = pair_step(model, other, policy, can_merge=can_merge)
        self.model, self.size, self.order = model, model.num_states, order
        self._pairs: dict[int | None, tuple[Ints, KnownReturns]] = {}
        self._branches: dict[None, tuple[KnownReturns, KnownReturns]] = {}
        self._closed: Sweeps | None = None
        nothing, none = np.zeros(0), np.zeros(0, dtype=np.int64)
        self._made, self._store = none, PairMoves(none, nothing, nothing, nothing, none, nothing)
        over = ends_of(model)
        self._end = np.where(over, int(np.argmax(over)), np.arange(self.size))

    def ends(self, left: int | None) -> PairEnds:
        """What so many steps bring; None: all that come."""

        def alone(branch: int) -> Callable[[Ints], KnownReturns]:
            return lambda states: self._alone(left)[branch].at(states)

        return PairEnds(self.order, lambda y, x: self._gap(y, x, left), alone(0), alone(1))

    def _gap(self, y: Ints, x: Ints, left: int | None) -> KnownReturns:
        if not len(y):
            return KnownReturns.zeros(self.order, 0)
        codes = self.code(y, x)
        if self._closed is not None and left is not None and np.isin(codes, self._closed.codes).all():
            return self._closed.after(left).at(np.searchsorted(self._closed.codes, codes))
        known, values = self._pairs.get(left, (np.zeros(0, dtype=np.int64), None))
        if values is None or not np.isin(codes, known).all():
            known, found, is_closed = self._found(np.union1d(known, codes), left)
            size = np.abs(found.gain) + np.abs(found.loss)
            moves = Moves(found.parent, found.weight, found.gain - found.loss, size, found.child, found.off)
            if left is None:
                values = endless(moves, len(known), self.model.discount, self.order, self._means(known))
            else:
                sweeps = Sweeps(known, moves, self.model.discount, self.order)
                self._closed = sweeps if is_closed else self._closed
                values = sweeps.after(left)
            self._pairs[left] = known, values
        return values.at(np.searchsorted(known, codes))

    def code(self, other: Ints, seen: Ints) -> Ints:
        """The number of a pair; where the seen branch is over it does not matter in which state."""
        return self._end[seen] * self.size + other

    def _means(self, codes: Ints) -> Floats:
        other, seen = self._alone(None)
        x, y = np.divmod(codes, self.size)
        return np.asarray(other.mean[y] - seen.mean[x])

    def _alone(self, left: int | None) -> tuple[KnownReturns, KnownReturns]:
        """The returns of the other branch and of the seen one, by state."""
        if left is not None:
            one, two = (sweeps.after(left) for sweeps in self._sweeps)
            return one, two
        if None not in self._branches:
            nothing = np.zeros(self.size)
            one, two = (endless(moves, self.size, self.model.discount, 2, nothing) for moves in self._of_branches)
            self._branches[None] = one, two
        return self._branches[None]

    @cached_property
    def _sweeps(self) -> list[Sweeps]:
        return [Sweeps(np.arange(self.size), moves, self.model.discount, 2) for moves in self._of_branches]

    @cached_property
    def _of_branches(self) -> list[Moves]:
        """How the other branch moves by itself, and the seen one."""
        found = []
        for lists in self.step.branches:
            row = np.repeat(np.arange(len(lists.starts) - 1), np.diff(lists.starts))
            group, state = np.divmod(row, self.size)
            to, paid = lists.successors, lists.rewards
            first, weight = counted_once((state, to, paid), lists.chances[group] * lists.weights)
            state, to, paid = state[first], to[first], paid[first]
            found.append(Moves(state, weight, paid, np.abs(paid), to, self._rounding * weight))
        return found

    @property
    def _rounding(self) -> float:
        """Of weights that were added up, relatively."""
        return (self.step.roundings + self.model.num_actions + 8) * UNIT

    def _found(self, codes: Ints, left: int | None) -> tuple[Ints, PairMoves, bool]:
        """The pairs that come from these within so many steps, and their moves; whether others come later, too."""
        known, fresh, step = codes, codes, 0
        while len(fresh) and (left is None or step < left):
            self._make(np.setdiff1d(fresh, self._made))
            reached = self._store.child[np.isin(self._store.parent, fresh)]
            fresh = np.setdiff1d(reached[reached >= 0], known)
            known, step = np.union1d(known, fresh), step + 1
        is_closed = not len(fresh)
        known = np.setdiff1d(known, fresh)  # those that come with the last step bring nothing
        is_mine = np.isin(self._store.parent, known)
        order = np.argsort(self._store.parent[is_mine], kind="stable")
        moves = PairMoves._make(column[is_mine][order] for column in self._store)
        parent, child = np.searchsorted(known, moves.parent), _numbered(known, moves.child)
        return known, moves._replace(parent=parent, child=child), is_closed

    def _make(self, codes: Ints) -> None:
        """Add the moves of these pairs to those that are known."""
        if not len(codes):
            return
        parts, count = [self._store], len(self._store.parent)
        x, y = np.divmod(codes, self.size)
        for some in (codes[part] for part in stretches(self.step.counts(y, x), AT_ONCE)):
            parts.append(self._moves(some))
            count += len(parts[-1].parent)
            if count > MOST_MOVES:
                raise ModelError(
                    f"two branches can come to so many pairs of states that these have more than {MOST_MOVES:,} moves; "
                    "ask about fewer states, or in hindsight give a horizon that ends with the log, or whole episodes"
                )
        self._store = PairMoves._make(np.concatenate(column) for column in zip(*parts, strict=True))
        self._made = np.union1d(self._made, codes)

    def _moves(self, codes: Ints) -> PairMoves:
        """One step of each pair; both are named by codes."""
        x, y = np.divmod(codes, self.size)
        is_together = self.step.is_together(y, x)
        met, rest = codes[is_together], codes[~is_together]
        parts = []
        for pairs, moves in (
            (rest, self.step.apart(y[~is_together], x[~is_together])),
            (met, self.step.together(x[is_together])),
        ):
            child = self.code(moves.first, moves.second)
            parts.append(PairMoves(pairs[moves.row], moves.weight, moves.gain, moves.loss, child, moves.off))
        if self.step.can_merge:  # and nothing is left of their gap
            zero, one = np.zeros(len(met)), np.full(len(met), ONE)
            parts.append(PairMoves(met, self.step.ties(x[is_together]), zero, zero, one, zero))
        found = PairMoves._make(np.concatenate(column) for column in zip(*parts, strict=True))
        order, number = grouped(found.parent, found.child, found.gain, found.loss)
        kept = order[np.diff(number, prepend=-1) > 0]
        # What cannot be told from 0 counts as possible.
        raised = found.off + np.where(found.weight <= RAREST, found.weight, 0.0)
        weight, off = (summed(number, each[order], len(kept)) for each in (found.weight, raised))
        off += (self._rounding + (np.bincount(number) + 8) * UNIT) * weight
        return PairMoves(found.parent[kept], weight, found.gain[kept], found.loss[kept], found.child[kept], off)


def endless(moves: Moves, count: int, discount: float, order: int, guess: Floats) -> KnownReturns:
    """What follows for ever; `guess` is where the search for the means begins."""
    moves = moves._replace(child=_that_matter(moves.parent, moves.child, moves.size > 0, count))
    goes = moves.child >= 0
    places = moves.parent[goes], moves.child[goes]
    kernel = sp.csr_array((moves.weight[goes], places), shape=(count, count))
    longer = sp.csr_array(((1 + LONGER) * (moves.weight + moves.off)[goes], places), shape=(count, count))

    def settled(values: Floats, source: Floats, rate: float) -> Floats:
        for _ in range(STEPS):
            after = source + rate * (kernel @ values)
            change = np.max(np.abs(after - values), initial=0.0)
            values = after
            if change <= SETTLED * np.max(np.abs(values), initial=0.0):
                break
        return values

    def steps(rate: float) -> Floats:
        """Some w with ``w − K w ≥ ½``: what each step is off by adds up to twice that, times w, at most."""
        found = np.ones(count)
        for _ in range(STEPS):
            after = 1 + rate * (longer @ found)
            if np.all(found - rate * (longer @ found) >= 0.5):
                return 2 * (1 + LONGER) * found
            found = after
        raise ModelError("what two branches come to hardly ever comes to an end; give a horizon, or a smaller discount")

    mean = settled(guess, summed(moves.parent, moves.weight * moves.paid, count), discount)
    found = KnownReturns.zeros(order, count)._replace(mean=mean)
    step = backed_up(moves, count, found, discount, 0.0)
    error = float(np.max(np.abs(step.mean - mean) + step.mean_error, initial=0.0)) * steps(discount)
    moments, errors = found.moments, found.errors
    errors[1] = error
    found = found._replace(mean_error=error)
    for k in range(2, order + 1):
        rate = discount**k
        moments[k] = settled(moments[k], backed_up(moves, count, found, discount, 0.0).moments[k], rate)
        step = backed_up(moves, count, found, discount, 0.0)
        # From moments about the mean that one step gives to those about the mean that is kept.
        shift = np.abs(step.mean - mean)
        turned = sum(math.comb(k, i) * shift ** (k - i) * (np.abs(step.moments[i]) + step.errors[i]) for i in range(k))
        worst = float(np.max(np.abs(step.moments[k] - moments[k]) + step.errors[k] + turned, initial=0.0))
        errors[k] = worst * steps(rate)
    return found


def _numbered(known: Ints, codes: Ints) -> Ints:
    """Where codes stand among those that are known, in order; ONE where they do not."""
    place = np.minimum(np.searchsorted(known, codes), len(known) - 1)
    return np.where(known[place] == codes, place, ONE)


def _that_matter(parent: Ints, child: Ints, differs: Bools, count: int) -> Ints:
    """Children, but those after which nothing is paid any more that `differs`: what follows them is 0."""
    matters = np.zeros(count, dtype=bool)
    matters[parent[differs]] = True
    goes, fresh = child >= 0, np.flatnonzero(matters)
    back = sp.csr_array((np.ones(int(goes.sum())), (child[goes], parent[goes])), shape=(count, count))
    while len(fresh):
        before = np.unique(back[fresh].indices)
        fresh = before[~matters[before]]
        matters[fresh] = True
    return np.where(goes & matters[child], child, ONE)
