"""What two branches bring after the last step that was seen, by the moves of the walk itself.

The pairs of states that can come are listed with their moves: those of a step of which nothing was seen. Over a horizon
they are backed up as often as steps are left. Without one, moments of order k about a mean obey ``h = c + γᵏ K h`` with
``K`` the moves to other pairs. Where ``w − γᵏ K w ≥ ½`` for some w, any h, whatever it was found by, is off by at most
``2 r w``, where r is how far one step, with all rounding and the error of lower orders, moves it. So laws of pairs that
no table holds, those of Gumbel noise, are certified as they are, and two policies are compared over a horizon.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from jointmdp.exact.hindsight.known_returns import KnownReturns, Moves, PairEnds, backed_up
from jointmdp.exact.hindsight.other_branch import ONE, Nodes, OtherBranch, paired_moves, seen_moves
from jointmdp.exact.hindsight.scenario_posteriors import SeenStep, rows_of
from jointmdp.exact.hindsight.trajectory import UNSEEN
from jointmdp.ground.arrays import UNIT, Floats, Ints, grouped, summed
from jointmdp.ground.errors import ModelError
from jointmdp.model.gumbel_max import GumbelModel

MOST_MOVES = 20_000_000
AT_ONCE = 4_000_000  # numbers that moves of some pairs are formed from
LONGER = 1e-9  # relative: what rounding may make of a step
SETTLED = 8 * UNIT  # a relative change of moments that is rounding
STEPS = 100_000


class PairsAhead:
    """Pairs of the seen branch, which follows `policy`, and another one."""

    def __init__(self, other: OtherBranch, policy: Floats, order: int) -> None:
        self.other, self.policy, self.order = other, policy, order
        self.model, self.size = other.model, other.model.num_states
        self._pairs: dict[int | None, tuple[Ints, KnownReturns]] = {}
        self._branches: dict[int | None, tuple[KnownReturns, KnownReturns]] = {}

    def ends(self, left: int | None) -> PairEnds:
        """What so many steps bring; None: all that come."""

        def alone(branch: int) -> Callable[[Ints], KnownReturns]:
            return lambda states: self._alone(left)[branch].at(states)

        return PairEnds(self.order, lambda y, x: self._gap(y, x, left), alone(0), alone(1))

    def _gap(self, y: Ints, x: Ints, left: int | None) -> KnownReturns:
        codes = x * self.size + y
        known, values = self._pairs.get(left, (np.zeros(0, dtype=np.int64), None))
        if values is None or not np.isin(codes, known).all():
            known, moves = self._listed(np.union1d(known, codes), left)
            values = self._solved(moves, len(known), left, self.order, lambda: self._means(known))
            self._pairs[left] = known, values
        return values.at(np.searchsorted(known, codes))

    def _means(self, codes: Ints) -> Floats:
        other, seen = self._alone(None)
        x, y = np.divmod(codes, self.size)
        return np.asarray(other.mean[y] - seen.mean[x])

    def _alone(self, left: int | None) -> tuple[KnownReturns, KnownReturns]:
        """The returns of the other branch and of the seen one, by state."""
        if left not in self._branches:
            found = []
            for policy in (self.other.policy, self.policy):
                states, actions = np.nonzero(policy)
                rows = rows_of(self.model, states, actions)
                i, w = np.nonzero(rows.chances)
                paid = rows.rewards[i, w]
                weight = rows.chances[i, w] * policy[states[i], actions[i]]
                moves = Moves(states[i], weight, paid, np.abs(paid), rows.successors[i, w], np.zeros(len(i)))
                found.append(self._solved(moves, self.size, left, 2, lambda: np.zeros(self.size)))
            self._branches[left] = found[0], found[1]
        return self._branches[left]

    def _solved(
        self, moves: Moves, count: int, left: int | None, order: int, guess: Callable[[], Floats]
    ) -> KnownReturns:
        if left is None:
            return endless(moves, count, self.model.discount, order, guess())
        found = KnownReturns.zeros(order, count)
        for _ in range(left):
            found = backed_up(moves, count, found, self.model.discount)
        return found

    def _listed(self, codes: Ints, left: int | None) -> tuple[Ints, Moves]:
        """The pairs that come from these within so many steps, and their moves; those of the last ones are left out."""
        known, fresh, parts, count, step = codes, codes, [], 0, 0
        while len(fresh) and (left is None or step < left):
            for some in np.array_split(fresh, 1 + len(fresh) // self._at_once):
                parts.append(self._moves(some))
                count += len(parts[-1].parent)
                if count > MOST_MOVES:
                    raise ModelError(
                        f"after the last step of the log two branches can come to {len(known):,} pairs of states with "
                        f"more than {MOST_MOVES:,} moves; give a horizon that ends with the log, or logs of whole "
                        "episodes"
                    )
            reached = np.concatenate([part.child for part in parts])
            fresh = np.setdiff1d(reached[reached >= 0], known)
            known, step = np.union1d(known, fresh), step + 1
        moves = Moves._make(np.concatenate(column) for column in zip(*parts, strict=True))
        child = np.where(moves.child >= 0, np.searchsorted(known, moves.child), ONE)
        return known, moves._replace(parent=np.searchsorted(known, moves.parent), child=child)

    @property
    def _at_once(self) -> int:
        model = self.model
        width = model.outcomes.width if isinstance(model, GumbelModel) else model.num_scenarios
        return max(1, AT_ONCE // width**2)

    def _moves(self, codes: Ints) -> Moves:
        """One step of each pair; both are named by codes."""
        x, y = np.divmod(codes, self.size)
        here = np.unique(x)
        drawn, action = np.nonzero(self.policy[here])
        rows = rows_of(self.model, here[drawn], action)
        after = np.where(rows.chances > 0, rows.successors, UNSEEN)
        step = SeenStep(np.zeros_like(drawn), here[drawn], action, rows.chances, rows.rewards, rows.chances, after)
        # A node for each action that the seen branch may draw.
        pair, place = np.nonzero(np.searchsorted(here, x)[:, None] == drawn)
        nodes = Nodes(place, y[pair], np.ones(len(pair)))
        found = paired_moves(nodes, np.arange(len(drawn)), step, seen_moves(step), self.other)
        chance = self.policy[here[drawn], action][place][found.parent]
        parent = pair[found.parent]
        order, number = grouped(parent, found.child, found.gain, found.loss)
        kept = order[np.diff(number, prepend=-1) > 0]
        weight, off = (summed(number, (chance * each)[order], len(kept)) for each in (found.weight, found.off))
        gain, loss = found.gain[kept], found.loss[kept]
        size = np.abs(gain) + np.abs(loss)
        return Moves(codes[parent[kept]], weight, gain - loss, size, found.child[kept], off)


def endless(moves: Moves, count: int, discount: float, order: int, guess: Floats) -> KnownReturns:
    """What follows for ever; `guess` is where the search for the means begins."""
    moves = _paying(moves, count)
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
        raise ModelError(
            "what follows the last step of the log hardly ever comes to an end; give a horizon, or a smaller discount"
        )

    mean = settled(guess, summed(moves.parent, moves.weight * moves.paid, count), discount)
    found = KnownReturns.zeros(order, count)._replace(mean=mean)
    step = backed_up(moves, count, found, discount)
    error = float(np.max(np.abs(step.mean - mean) + step.mean_error, initial=0.0)) * steps(discount)
    moments, errors = found.moments, found.errors
    errors[1] = error
    found = found._replace(mean_error=error)
    for k in range(2, order + 1):
        rate = discount**k
        moments[k] = settled(moments[k], backed_up(moves, count, found, discount).moments[k], rate)
        step = backed_up(moves, count, found, discount)
        # From moments about the mean that one step gives to those about the mean that is kept.
        shift = np.abs(step.mean - mean)
        turned = sum(math.comb(k, i) * shift ** (k - i) * (np.abs(step.moments[i]) + step.errors[i]) for i in range(k))
        worst = float(np.max(np.abs(step.moments[k] - moments[k]) + step.errors[k] + turned, initial=0.0))
        errors[k] = worst * steps(rate)
    return found


def _paying(moves: Moves, count: int) -> Moves:
    """Moves to nodes after which nothing can be paid any more end there: what follows is 0."""
    pays = np.zeros(count, dtype=bool)
    pays[moves.parent[moves.size > 0]] = True
    fresh = np.flatnonzero(pays)
    goes = moves.child >= 0
    back = sp.csr_array((np.ones(int(goes.sum())), (moves.child[goes], moves.parent[goes])), shape=(count, count))
    while len(fresh):
        before = np.unique(back[fresh].indices)
        fresh = before[~pays[before]]
        pays[fresh] = True
    return moves._replace(child=np.where(goes & pays[moves.child], moves.child, ONE))
