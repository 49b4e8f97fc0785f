"""What two branches bring from pairs of states on, by the moves of these pairs themselves.

The pairs of states that can come are listed with their moves (`pair_step`). Over a horizon they are backed up as often
as steps are left. Without one, moments of order k about a mean obey ``h = c + γᵏ K h`` with
``K`` the moves to other pairs. Where ``w − γᵏ K w ≥ ½`` for some w, any h, whatever it was found by, is off by at most
``2 r w``, where r is how far one step, with all rounding and the error of lower orders, moves it. So laws of pairs that
no table holds, those of Gumbel noise, are certified as they are, and two policies are compared over a horizon.
`solve_gaps` is what `evaluate` asks then: of every two actions of a state the first steps, and pairs after them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from jointmdp.exact.bellman.pair_step import NOTHING as ONE
from jointmdp.exact.bellman.pair_step import RAREST, pair_step, stretches
from jointmdp.exact.moments.certificates import Certificate, Status, norm_weight
from jointmdp.exact.moments.default_solver import LEAST_SCALE, LEAST_STD
from jointmdp.exact.moments.known_returns import KnownReturns, Moves, PairEnds, backed_up
from jointmdp.exact.moments.stored_moments import FoundMoments, GapEstimate, KnownMoments, about_mean
from jointmdp.ground.arrays import UNIT, Bools, Floats, Ints, expand, grouped, summed
from jointmdp.ground.errors import ModelError, NotKnownError
from jointmdp.model.gumbel_max import ends_of
from jointmdp.model.joint_mdp import JointMDP

MOST_MOVES = 20_000_000
AT_ONCE = 2_000_000  # numbers that moves of some pairs are formed from
LONGER = 1e-9  # relative: what rounding may make of a step
SETTLED = 8 * UNIT  # a relative change of moments that is rounding
STEPS = 100_000
SWEPT = 2_000_000  # moves that are backed up at once


class TooManyMovesError(ModelError):
    """Pairs have more moves than can be listed."""


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
        self._over = ends_of(model)
        self._end = np.where(self._over, int(np.argmax(self._over)), np.arange(self.size))

    def ends(self, left: int | None) -> PairEnds:
        """What so many steps bring; None: all that come."""

        def alone(branch: int) -> Callable[[Ints], KnownReturns]:
            return lambda states: self._alone(left)[branch].at(states)

        return PairEnds(self.order, lambda y, x: self._gap(y, x, left), alone(0), alone(1))

    def _gap(self, y: Ints, x: Ints, left: int | None) -> KnownReturns:
        if not len(y) or left == 0:
            return KnownReturns.zeros(self.order, len(y))
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
        for lists in self.step.single_branches:
            state = np.repeat(np.arange(self.size), np.diff(lists.starts))
            off = self.rounding * lists.weights
            found.append(Moves(state, lists.weights, lists.rewards, np.abs(lists.rewards), lists.successors, off))
        return found

    @property
    def rounding(self) -> float:
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
        is_over = self._over[x]
        rest, y, x = codes[~is_over], y[~is_over], x[~is_over]
        blocks = [rest[some] for some in stretches(self.step.counts(y, x), AT_ONCE)] if len(rest) else []
        made = itertools.chain([self._one_is_over(codes[is_over])], map(self._moves, blocks))
        for part in made:
            parts.append(_counted_once(part, self.rounding))
            count += len(parts[-1].parent)
            if count > MOST_MOVES:
                raise TooManyMovesError(
                    f"two branches can come to so many pairs of states that these have more than {MOST_MOVES:,} moves; "
                    "ask about fewer states, or in hindsight give a horizon that ends with the log, or whole episodes"
                )
        self._store = PairMoves._make(np.concatenate(column) for column in zip(*parts, strict=True))
        self._made = np.union1d(self._made, codes)

    def _moves(self, codes: Ints) -> PairMoves:
        """One step of each pair, neither of which is over; both are named by codes."""
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
        return PairMoves._make(np.concatenate(column) for column in zip(*parts, strict=True))

    def _one_is_over(self, codes: Ints) -> PairMoves:
        """The seen branch stays where it is and is paid nothing: the other goes on alone."""
        x, y = np.divmod(codes, self.size)
        lists = self.step.single_branches[0]
        i, e = expand(lists.starts, y)
        zero, child = np.zeros(len(e)), self.code(lists.successors[e], x[i])
        return PairMoves(codes[i], lists.weights[e], lists.rewards[e], zero, child, zero)


def _counted_once(moves: PairMoves, rounding: float) -> PairMoves:
    """Sorted by parent, equal moves as one; with what the sums of their weights are off by."""
    order, number = grouped(moves.parent, moves.child, moves.gain, moves.loss)
    kept = order[np.diff(number, prepend=-1) > 0]
    # What cannot be told from 0 counts as possible.
    raised = moves.off + np.where(moves.weight <= RAREST, moves.weight, 0.0)
    weight, off = (summed(number, each[order], len(kept)) for each in (moves.weight, raised))
    off += (rounding + (np.bincount(number) + 8) * UNIT) * weight
    return PairMoves(moves.parent[kept], weight, moves.gain[kept], moves.loss[kept], moves.child[kept], off)


def endless(moves: Moves, count: int, discount: float, order: int, guess: Floats) -> KnownReturns:
    """What follows for ever; `guess` is where the search for the means begins."""
    matters = _that_matter(moves.parent, moves.child, moves.size > 0, count)
    moves = moves._replace(child=np.where((moves.child >= 0) & matters[moves.child], moves.child, ONE))
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
    for part in (moments[1:], errors[1:], found.mean_error[None]):  # where nothing is paid any more
        part[:, ~matters] = 0.0
    return found._replace(mean=np.where(matters, found.mean, 0.0))


def _numbered(known: Ints, codes: Ints) -> Ints:
    """Where codes stand among those that are known, in order; ONE where they do not."""
    place = np.minimum(np.searchsorted(known, codes), len(known) - 1)
    return np.where(known[place] == codes, place, ONE)


def _that_matter(parent: Ints, child: Ints, differs: Bools, count: int) -> Bools:
    """Nodes but those after which nothing is paid any more that `differs`: what follows them is 0."""
    matters = np.zeros(count, dtype=bool)
    matters[parent[differs]] = True
    goes, fresh = child >= 0, np.flatnonzero(matters)
    back = sp.csr_array((np.ones(int(goes.sum())), (child[goes], parent[goes])), shape=(count, count))
    while len(fresh):
        before = np.unique(back[fresh].indices)
        fresh = before[~matters[before]]
        matters[fresh] = True
    return matters


@dataclass(frozen=True, eq=False, repr=False)
class ActionGaps:
    """Moments of all actions of some states, from their first steps and the pairs that come after these."""

    asked: Ints
    mean: Floats  # [S, A], NaN in states that were not asked about
    variance: Floats  # [S, A]
    gaps: dict[tuple[int, int, int], tuple[float, float, KnownMoments]]
    """Of every two actions of a state, the lower index first: the mean, its error, and moments about the true mean."""
    order: int

    def gap_moments(self, s: int, a: int, b: int, mean_errors: Floats, gap_error: float) -> KnownMoments:
        """Central moments of Z(s,a) − Z(s,b)."""
        known = self._gap(s, min(a, b), max(a, b))[2]
        sign = np.where((np.arange(self.order + 1) % 2 == 1) & (a > b), -1.0, 1.0)
        return KnownMoments(sign * known.values, known.errors)

    def _gap(self, s: int, a: int, b: int) -> tuple[float, float, KnownMoments]:
        if (s, a, b) not in self.gaps:
            raise NotKnownError("this state was not among those asked about; evaluate(..., states=[…]) with it")
        return self.gaps[s, a, b]

    def difference(self, s: int, a: int, b: int, certificate: Certificate) -> GapEstimate:
        mean, mean_error, known = self._gap(s, min(a, b), max(a, b))
        variance, error = float(known.values[2]), float(known.errors[2])
        return GapEstimate(mean if a < b else -mean, variance, mean_error, error)

    def blocks(self, states: Sequence[int], actions: Sequence[int]) -> Floats:
        found = np.full((len(states), len(actions), len(actions)), np.nan)
        for i, s in enumerate(states):
            for (j, a), (k, b) in itertools.product(enumerate(actions), repeat=2):
                if a == b:
                    found[i, j, k] = self.variance[s, a]
                elif (s, min(a, b), max(a, b)) in self.gaps:
                    apart = float(self.gaps[s, min(a, b), max(a, b)][2].values[2])
                    found[i, j, k] = (self.variance[s, a] + self.variance[s, b] - apart) / 2
        return found

    def between(self, s: int, a: int, t: int, b: int) -> float:
        raise NotKnownError(NOT_BETWEEN)

    def across(self) -> Floats:
        raise NotKnownError(NOT_BETWEEN)


NOT_BETWEEN = (
    "under Gumbel noise covariances of distinct states are not kept; gaps and covariances of actions of one state are"
)


def solve_gaps(
    model: JointMDP, policy: Floats, asked: Ints, order: int, horizon: int | None, tolerance: float
) -> FoundMoments[ActionGaps]:
    """All actions of the asked states, then `policy`."""
    pairs = PairsAhead(model, policy, policy, True, order)
    ends = pairs.ends(None if horizon is None else horizon - 1)
    shape = model.num_states, model.num_actions
    mean, variance, mean_errors, shares = np.full((4, *shape), np.nan)
    available = model.available[asked]
    i, a = np.nonzero(available)
    s = asked[i]
    single = _first_steps(pairs, s, a, a, lambda y, x: ends.other(y), is_gap=False)
    mean[s, a], mean_errors[s, a] = single.mean, single.mean_error
    known = [
        about_mean(KnownMoments(single.moments[:, n], single.errors[:, n]), single.mean_error[n]) for n in range(len(s))
    ]
    variance[s, a] = [each.values[2] for each in known]
    shares[s, a] = [each.errors[2] / 2 for each in known]
    errors = 2 * shares
    i, a, b = np.nonzero(available[:, :, None] & available[:, None, :] & np.triu(np.ones(shape[1:] * 2, bool), 1))
    s = asked[i]
    gaps = dict[tuple[int, int, int], tuple[float, float, KnownMoments]]()
    found = _first_steps(pairs, s, a, b, ends.gap, is_gap=True) if len(s) else KnownReturns.zeros(order, 0)
    for n, (state, one, two) in enumerate(zip(s.tolist(), a.tolist(), b.tolist(), strict=True)):
        error = float(found.mean_error[n])
        moments = about_mean(KnownMoments(found.moments[:, n], found.errors[:, n]), error)
        gaps[state, one, two] = float(found.mean[n]), error, moments
        off = float(moments.errors[2])
        both = float(variance[state, one] + variance[state, two])
        for each in (one, two):
            shares[state, each] = max(shares[state, each], errors[state, each] / 2 + off / 4 + 8 * UNIT * both)
    moments_found = ActionGaps(asked, mean, variance, gaps, order)
    certificate = _certificate(model, mean, variance, mean_errors, shares)
    paid = max(model.reward_bound, float(np.nanmax(np.abs(mean), initial=0.0)))
    largest = max(float(np.nanmax(variance, initial=0.0)), (LEAST_STD * paid) ** 2, LEAST_SCALE)
    status = Status.CONVERGED if certificate.covariance_error <= tolerance * largest else Status.STAGNATED
    return FoundMoments(moments_found, certificate, status, 0)


def first_states(found: FoundMoments[ActionGaps], count: int) -> FoundMoments[ActionGaps]:
    """The same of the first states of a model alone, as of one whose later states are later times."""
    moments, bounds = found.moments, found.certificate
    moments = replace(moments, mean=moments.mean[:count], variance=moments.variance[:count])
    errors, shares = bounds.mean_errors[:count], bounds.covariance_shares[:count]
    return found._replace(moments=moments, certificate=replace(bounds, mean_errors=errors, covariance_shares=shares))


def _first_steps(  # many parameters: the pairs, where and what is done first, and what follows
    pairs: PairsAhead, s: Ints, a: Ints, b: Ints, after: Callable[[Ints, Ints], KnownReturns], *, is_gap: bool
) -> KnownReturns:
    """Backed up over the steps in which both branches take a given action; of the first branch alone, or of the gap."""
    step, size, parts = pairs.step, pairs.size, []
    for some in stretches(np.full(len(s), step.width**2), AT_ONCE):
        moves = step.by_actions(s[some], a[some], b[some])
        codes, child = np.unique(moves.first * size + moves.second * is_gap, return_inverse=True)
        later = after(*np.divmod(codes, size))
        loss = moves.loss * is_gap
        sizes = np.abs(moves.gain) + np.abs(loss)
        off = moves.off + pairs.rounding * moves.weight
        count = some.stop - some.start
        parts.append(
            backed_up(
                Moves(moves.row, moves.weight, moves.gain - loss, sizes, child, off),
                count,
                later,
                pairs.model.discount,
                0.0,
            )
        )
    return KnownReturns._make(np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))


def _certificate(model: JointMDP, mean: Floats, variance: Floats, mean_errors: Floats, shares: Floats) -> Certificate:
    """What was not asked about has no bound."""

    def top(values: Floats) -> float:
        return float(np.nanmax(np.abs(values), initial=0.0))

    g, reward = model.discount, model.reward_bound
    off, largest, covariance = top(mean_errors), top(mean), 2 * top(shares)
    second = covariance + (2 * largest + off) * off + 16 * UNIT * (largest**2 + top(variance))
    # One step moves an answer by no more than twice what it is off by, and means enter second moments by rewards.
    residual = (1 + g) * off
    if g < 1:
        residual = max(residual, ((1 + g**2) * second + 2 * g * reward * off) / norm_weight(reward, g))
    bounds = (np.where(np.isnan(each), np.inf, each) for each in (mean_errors, shares))
    return Certificate(residual, off, second, covariance, *bounds)


class FollowedBranch(NamedTuple):
    """The return of one policy, by its first state, with certified errors; ``[S]`` each but the policy."""

    policy: Floats
    mean: Floats
    mean_errors: Floats
    variance: Floats
    variance_errors: Floats

    @classmethod
    def of(cls, model: JointMDP, policy: Floats, left: int | None) -> FollowedBranch:
        """Over so many steps; None: over all that come."""
        found = PairsAhead(model, policy, policy, False, 2).ends(left).other(np.arange(model.num_states))
        # The moment about a mean that is off by δ is larger than the variance by δ².
        return cls(policy, found.mean, found.mean_error, found.moments[2], found.errors[2] + found.mean_error**2)


def followed_gap(  # many parameters: a model, how many steps, two policies and where they start
    model: JointMDP, left: int | None, first: Floats, second: Floats, s: int
) -> tuple[float, float, float, float]:
    """Mean and variance of the gap of two policies, each before a bound on its error."""
    at = np.array([s])
    found = PairsAhead(model, second, first, False, 2).ends(left).gap(at, at)
    error = float(found.mean_error[0])
    known = about_mean(KnownMoments(found.moments[:, 0], found.errors[:, 0]), error)
    return float(found.mean[0]), error, float(known.values[2]), float(known.errors[2])
