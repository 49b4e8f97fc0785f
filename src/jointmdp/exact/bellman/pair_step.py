"""How two branches step: from states (s, t) to (S', T'), by the noise that they share.

Scenario ``w`` of state ``s`` has probability ``p(w|s)`` and leads action ``a`` to ``S'(s,w,a)``; each branch draws its
action from its own policy, independently of the other. What they share is the scenario:

    ==========  =========================  ==================================================================
    sharing     both in one state          in distinct states
    ==========  =========================  ==================================================================
    ``state``   one scenario               a scenario each: no common noise, one value of ``g``
    ``time``    one scenario               one scenario: the common noise is ``g = w``
    ``none``    a scenario each            a scenario each; distinct coordinates have nothing in common
    ==========  =========================  ==================================================================

Given the common noise ``g``, branches in distinct states move independently, each by its policy's kernel ``P_g``.
Branches of *one* policy that are in one state and draw the same action are one from then on: nothing is left of their
gap. Branches of two policies never become one. A branch never takes an action that its policy gives no probability;
unavailable actions are among these, and what stands in the tables there is not looked at.

The step stands here in two forms, and everything that solves, lists, shards or weighs pairs is made of them:

- **as moves of listed pairs**, in NumPy, in this file: `PairStep`. `PairWalk` finds the pairs that moves lead to,
  `PairLister` lists them for moments, `PairPush` carries weights forward along them. Under Gumbel noise, which has no
  scenarios, the moves come from the law of two actions: `GumbelStep`;
- **as an operator on arrays over pairs of states**, in JAX: `pair_sweep`. Its products are those of `sparse_products`,
  which has its compiled twin in `pallas_kernels` on a GPU; `numba_sweeps` is its compiled twin on a CPU.

`tests/test_pair_step.py` holds all forms against each other.
"""

import math
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float
from numpy import ndarray

from jointmdp.ground.arrays import UNIT, Bools, Floats, Ints, counted_once, distinct, expand, summed
from jointmdp.ground.limits import OutOfTimeError, is_time_over
from jointmdp.model.gumbel_max import GumbelModel
from jointmdp.model.gumbel_pair_law import relative_error
from jointmdp.model.joint_mdp import JointMDP

# What a positive probability is at least. A bound may count an event as likelier than it is; products of two such
# numbers do not underflow, so no event is lost.
RAREST = 1e-150
NOTHING = -1  # the child where two branches are one
TABLE = 10**8  # codes up to which a table of all of them says which are known
BLOCK = 2_000_000  # moves of a list that are formed at once


def positive(weight: Floats) -> Floats:
    """Probabilities of what can happen, none of them 0."""
    return np.maximum(weight, RAREST)


class BranchLists(NamedTuple):
    """What a branch can do in each state, given the noise that two branches share: one list after another."""

    chances: Floats  # [G] of the shared noise
    starts: Ints  # [G·S + 1] where the list of noise g and state s begins, at g·S + s
    weights: Floats
    rewards: Floats  # zeros where they do not matter
    successors: Ints

    @property
    def lengths(self) -> Ints:
        """Of the lists, ``[G, S]``."""
        return np.diff(self.starts).reshape(len(self.chances), -1)


class Outcomes(NamedTuple):
    """`BranchLists` as arrays; lists are padded with weight 0."""

    chances: Floats  # [G] of the shared noise
    weights: Floats  # [G, S, O]
    rewards: Floats  # [G, S, O]
    successors: Ints  # [G, S, O]


def branch_lists(model: JointMDP, policy: Floats, has_rewards: bool = True) -> BranchLists:
    """Lists of what a branch can do in each state, equal outcomes counted once."""
    p, r, n = model.probabilities, model.rewards, model.successors
    if model.sharing == "time":
        scenarios = np.flatnonzero(p[0])
        chances, rewards, to = p[0, scenarios], r[:, scenarios].swapaxes(0, 1), n[:, scenarios].swapaxes(0, 1)
        weights = np.broadcast_to(policy, to.shape)  # [G, S, A]
    else:
        chances, shape = np.ones(1), (1, model.num_states, -1)
        possible = (p > 0)[:, :, None] & (policy > 0)[:, None, :]
        weights = np.where(possible, positive(p[:, :, None] * policy[:, None, :]), 0.0).reshape(shape)
        rewards, to = r.reshape(shape), n.reshape(shape)
    some = weights > 0
    rows = (np.arange(some.shape[0] * some.shape[1]).reshape(*some.shape[:2], 1) + np.zeros_like(to))[some]
    weights, to = weights[some], to[some]
    rewards = rewards[some] if has_rewards else np.zeros(len(rows))
    first, total = counted_once((rows, to, rewards) if has_rewards else (rows, to), weights)
    starts = np.append(0, np.cumsum(np.bincount(rows[first], minlength=some.shape[0] * some.shape[1])))
    return BranchLists(chances, starts, total, rewards[first], to[first])


def lists_of_laws(model: GumbelModel, policy: Floats) -> BranchLists:
    """The same of a model that has laws of actions instead of tables: noise is one's own."""
    state, weight, paid, to = model.outcomes.alone(np.arange(model.num_states), policy)
    return BranchLists(np.ones(1), np.searchsorted(state, np.arange(model.num_states + 1)), weight, paid, to)


def branch_outcomes(model: JointMDP, policy: Floats) -> Outcomes:
    """What a branch can do in each state, as padded arrays."""
    return padded_lists(branch_lists(model, policy))


def padded_lists(lists: BranchLists) -> Outcomes:
    """Lists as arrays."""
    lengths = lists.lengths
    inside = np.arange(lengths.max()) < lengths[:, :, None]
    found = (np.zeros(inside.shape), np.zeros(inside.shape), np.zeros(inside.shape, dtype=np.int64))
    for array, values in zip(found, lists[2:], strict=True):
        array[inside] = values
    return Outcomes(lists.chances, *found)


class Moves(NamedTuple):
    """Moves of listed pairs: their probabilities, what each branch is paid, and where they lead."""

    row: Ints  # which of the pairs moves
    weight: Floats
    gain: Floats
    loss: Floats
    first: Ints
    second: Ints
    off: Floats  # the weight is off by so much at most, beside rounding of its own size


class PairStep:
    """One step of any two branches of a model, listed move by move."""

    is_factored = True
    """Whether pairs that are not together move one branch after the other, given the noise of `branches`."""

    def __init__(
        self,
        model: JointMDP,
        policy: Floats,
        other: Floats | None = None,
        *,
        can_merge: bool = True,
        has_rewards: bool = True,
    ) -> None:
        """`other` is the policy of the second branch; `can_merge` says whether they can become one."""
        self.model, self.size = model, model.num_states
        self.policies = policy, policy if other is None else other
        self.is_shared = model.sharing != "none"
        self.can_merge, self.has_rewards = can_merge and self.is_shared, has_rewards
        self._actions = [_lists_of(each > 0) for each in self.policies]

    @cached_property
    def branches(self) -> tuple[BranchLists, BranchLists]:
        """What each branch can do, given the noise that they share."""
        return self._of_both(self._lists)

    @cached_property
    def single_branches(self) -> tuple[BranchLists, BranchLists]:
        """What each branch can do by itself, over all noise."""
        if self.model.sharing != "time":
            return self.branches
        alone = self.model.with_sharing("none")
        return self._of_both(lambda policy: branch_lists(alone, policy, self.has_rewards))

    def _of_both(self, lists: Callable[[Floats], BranchLists]) -> tuple[BranchLists, BranchLists]:
        own, (one, two) = lists(self.policies[0]), self.policies
        return own, own if two is one else lists(two)

    def _lists(self, policy: Floats) -> BranchLists:
        return branch_lists(self.model, policy, self.has_rewards)

    @cached_property
    def _scenarios(self) -> tuple[Ints, Ints]:
        return _lists_of(self.model.probabilities > 0)

    @property
    def width(self) -> int:
        """What an action can get, at most."""
        return self.model.num_scenarios

    @property
    def roundings(self) -> int:
        """That weights of moves go through, and by which those of a step may sum to something else than 1."""
        return self.model.num_scenarios * (self.model.num_actions + 4)

    def is_together(self, s: Ints, t: Ints) -> Bools:
        """Whether branches step by one scenario because they are in one state."""
        return (s == t) & self.is_shared

    def counts(self, s: Ints, t: Ints) -> Ints:
        """How many moves each pair has, at most."""
        one, two = (branch.lengths for branch in self.branches)
        (scenarios, _), (mine, _), (theirs, _) = self._scenarios, *self._actions
        together = np.diff(scenarios)[s] * np.diff(mine)[s] * np.diff(theirs)[t]
        return np.where(self.is_together(s, t), together, np.sum(one[:, s] * two[:, t], axis=0))

    def apart(self, s: Ints, t: Ints) -> Moves:
        """Pairs that are not together: given the noise that they share, each branch draws by itself."""
        one, two = self.branches
        group = np.repeat(np.arange(len(one.chances)), len(s))
        rows, others = (group * self.size + np.tile(each, len(one.chances)) for each in (s, t))
        i, x = expand(one.starts, rows)
        j, y = expand(two.starts, others[i])
        i, x = i[j], x[j]
        weight = one.chances[group[i]] * positive(one.weights[x] * two.weights[y])
        row = i % max(len(s), 1)
        nothing = np.zeros(len(x))
        gain, loss = (one.rewards[x], two.rewards[y]) if self.has_rewards else (nothing, nothing)
        return Moves(row, weight, gain, loss, one.successors[x], two.successors[y], nothing)

    def together(self, s: Ints) -> Moves:
        """Two branches in each of the states s, where they share the scenario; what makes them one is left out."""
        row, a, b, chance = self._drawn(s, s)
        if self.can_merge:
            row, a, b, chance = (each[a != b] for each in (row, a, b, chance))
        found = self.by_actions(s[row], a, b)
        return found._replace(row=row[found.row], weight=found.weight * chance[found.row])

    def _drawn(self, s: Ints, t: Ints) -> tuple[Ints, Ints, Ints, Floats]:
        """The actions that branches in s and t draw: whose they are, both actions, and how probable they are."""
        (firsts, a), (seconds, b), (one, two) = *self._actions, self.policies
        i, x = expand(firsts, s)
        j, y = expand(seconds, t[i])
        row, a, b = i[j], a[x[j]], b[y]
        return row, a, b, positive(one[s[row], a] * two[t[row], b])

    def by_actions(self, s: Ints, a: Ints, b: Ints) -> Moves:
        """Two branches in each of the states s take these actions, on one scenario if they share it."""
        model, (starts, w) = self.model, self._scenarios
        p, r, to = model.probabilities, model.rewards, model.successors
        row, z = expand(starts, s)
        other, chance = z, np.ones(len(z))
        if not self.is_shared:
            i, other = expand(starts, s[row])
            row, z = row[i], z[i]
            chance = p[s[row], w[other]]
        weight, one, two = p[s[row], w[z]] * chance, (s[row], w[z], a[row]), (s[row], w[other], b[row])
        return Moves(row, weight, r[one], r[two], to[one], to[two], np.zeros(len(row)))

    def differs_together(self, s: Ints) -> Bools:
        """Whether two branches in one state may be paid differently, by the table's own numbers."""
        one, two = self.policies
        found = np.zeros(len(s), dtype=bool)
        for i, state in enumerate(s.tolist()):
            taken = (one[state] > 0) | (two[state] > 0)
            rewards = self.model.rewards[state][self.model.probabilities[state] > 0][:, taken]
            found[i] = bool(np.any(rewards.max(axis=1) > rewards.min(axis=1)))
        return found

    def ties(self, s: Ints) -> Floats:
        """The probability that two branches in one state become one."""
        return np.sum(self.policies[0][s] ** 2, axis=1)

    def alone(self, branch: int, s: Ints) -> tuple[Ints, Floats, Floats, Ints]:
        """One of the branches moves, where they share nothing: which move, their weights, rewards and successors."""
        lists = self.branches[branch]
        i, x = expand(lists.starts, s)
        return i, lists.weights[x], lists.rewards[x], lists.successors[x]


class GumbelStep(PairStep):
    """The same under Gumbel noise, of which the law of every two actions is known (`model.couplings`).

    Branches that share the noise of outcomes in time meet it in distinct states, too; nothing that two actions share
    makes them independent given it, so all that both can get is listed.
    """

    model: GumbelModel

    def _lists(self, policy: Floats) -> BranchLists:
        return lists_of_laws(self.model, policy)

    @property
    def single_branches(self) -> tuple[BranchLists, BranchLists]:
        return self.branches

    @property
    def is_factored(self) -> bool:  # type: ignore[override]
        return self.model.sharing != "time"

    @property
    def width(self) -> int:
        return self.model.outcomes.width

    @property
    def roundings(self) -> int:
        return math.ceil(2 * relative_error(2 * self.model.outcomes.width) / UNIT)

    def counts(self, s: Ints, t: Ints) -> Ints:
        one, two = (branch.lengths[0] for branch in self.branches)
        sizes = np.zeros((self.size, self.model.num_actions), dtype=np.int64)
        sizes.ravel()[:] = np.diff(self.model.outcomes.starts)
        mine, theirs = (np.sum(sizes * (policy > 0), axis=1) for policy in self.policies)
        is_met = self.is_together(s, t) | (not self.is_factored)
        return np.where(is_met, mine[s] * theirs[t], one[s] * two[t])

    def apart(self, s: Ints, t: Ints) -> Moves:
        if self.is_factored:
            return super().apart(s, t)
        row, a, b, chance = self._drawn(s, t)
        return self._met(s[row], a, t[row], b, row, chance)

    def by_actions(self, s: Ints, a: Ints, b: Ints) -> Moves:
        if self.is_shared:
            return self._met(s, a, s, b, np.arange(len(s)), np.ones(len(s)))
        laws, size = self.model.outcomes, self.model.num_actions
        row, one = expand(laws.starts, s * size + a)
        i, two = expand(laws.starts, (s * size + b)[row])
        row, one, p, to = row[i], one[i], laws.probabilities, laws.successors
        return Moves(row, p[one] * p[two], laws.rewards[one], laws.rewards[two], to[one], to[two], np.zeros(len(i)))

    def differs_together(self, s: Ints) -> Bools:
        moves, found = self.together(s), np.zeros(len(s), dtype=bool)
        found[moves.row[moves.gain != moves.loss]] = True
        return found

    def _met(  # many parameters: where both branches are, what they do, whose moves these are, and how probable
        self, s: Ints, a: Ints, t: Ints, b: Ints, row: Ints, chance: Floats
    ) -> Moves:
        """All that two actions can get together."""
        laws = self.model.outcomes
        one, two = s * self.model.num_actions + a, t * self.model.num_actions + b
        asked, which = np.unique(one * (len(laws.starts) - 1) + two, return_inverse=True)
        first, second = np.divmod(asked, len(laws.starts) - 1)
        pair, got = expand(laws.starts, first)
        i, other, weight, off = laws.given(first[pair], got - laws.starts[first][pair], second[pair])
        order = np.argsort(pair[i], kind="stable")
        pair, got, other, p = pair[i][order], got[i][order], other[order], laws.probabilities[got[i][order]]
        n, m = expand(np.searchsorted(pair, np.arange(len(asked) + 1)), which)
        weight, off = (p * weight[order])[m] * chance[n], (p * off[order])[m] * chance[n]
        r, to = laws.rewards, laws.successors
        return Moves(row[n], weight, r[got[m]], r[other[m]], to[got[m]], to[other[m]], off)


def pair_step(
    model: JointMDP, policy: Floats, other: Floats | None = None, *, can_merge: bool = True, has_rewards: bool = True
) -> PairStep:
    """The step of a model: from its tables, or under Gumbel noise from the laws of its actions."""
    kind = GumbelStep if isinstance(model, GumbelModel) else PairStep
    return kind(model, policy, other, can_merge=can_merge, has_rewards=has_rewards)


def _lists_of(mask: Bools) -> tuple[Ints, Ints]:
    """The columns that are set in each row, as lists: starts and columns."""
    return np.append(0, np.cumsum(mask.sum(axis=1))), np.nonzero(mask)[1]


def coordinate_kernel(model: JointMDP) -> sp.csr_array:
    """P(s'|s,a), ``[S·A, S]``; nothing where an action is not available."""
    kernel, available = model.marginal_mdp().kernel, model.available.ravel()
    return kernel if available.all() else sp.csr_array(sp.diags_array(available.astype(float)) @ kernel)


def coordinate_kernels(model: JointMDP) -> list[tuple[float, sp.csr_array]]:
    """How two coordinates in distinct states move: chances of their common noise, and the kernels given it."""
    if model.sharing == "none":
        return []
    if model.sharing == "state":
        return [(1.0, coordinate_kernel(model))]
    S, A = model.num_states, model.num_actions
    to, ones, rows = model.successors.swapaxes(1, 2).reshape(S * A, -1), np.ones(S * A), np.arange(S * A)
    return [
        (float(chance), sp.csr_array((ones, (rows, to[:, w])), shape=(S * A, S)))
        for w, chance in enumerate(model.probabilities[0])
        if chance > 0
    ]


# -- where steps lead ------------------------------------------------------------------------------------------------
#
# A node is a pair of states or, where branches that are apart share nothing, a pair whose second branch has moved
# already: moving one after the other makes a pair cost the sum, not the product, of what its branches can do. What is
# kept of the moves is the caller's: `PairLister` keeps weights, for moments, `law.pair_graph` what each pays, for laws.


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
        return (codes[some] for some in stretches(counts, self.block))

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
        row, weight, gain, loss, first, second, off = moves
        # A law may count an event as likelier than it is.
        return NodeMoves(codes[row], weight + off, gain, loss, np.ones(len(row), bool), self.code(first, second))


def stretches(sizes: Ints, most: int) -> list[slice]:
    """Consecutive stretches whose sizes add up to about `most`."""
    ends = np.cumsum(sizes, dtype=np.int64)
    marks = np.arange(0, int(sizes.sum(dtype=np.int64)), most)
    cuts = np.unique(np.append(np.searchsorted(ends, marks), [0, len(ends)]))
    return [slice(int(a), int(b)) for a, b in pairwise(cuts)]


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
#
# D(s,t) = D(t,s), so a pair stands once, smaller index first. Pairs whose gap is exactly zero are left out: branches
# that have become one, or that are paid nothing any more. Where the list is too long, pairs of little weight stay
# outside, and so do those with the outside of a part: what is known of them is
# |√B(s) − √B(t)| ≤ √D(s,t) ≤ √B(s) + √B(t).


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

    def listed(self, codes: Ints, most_moves: int, is_closed: bool = True) -> PairList | None:
        """The list of these pairs, or of all that they lead to, settled ones left out; None beyond `most_moves`."""
        parts: list[tuple[Ints, Ints, Floats]] = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))]
        pairs, count = self.size**2, 0

        def keep(moves: NodeMoves) -> Ints:
            nonlocal count
            # Moves of one branch differ already; those of two may lead to the same pair.
            is_alone = ~moves.is_whole | (moves.parent >= pairs)
            of_two = ~is_alone & (moves.child >= 0)
            parent, child = moves.parent[of_two], moves.child[of_two]
            first, weight = counted_once((parent, child), moves.weight[of_two])
            parts.append((moves.parent[is_alone], moves.child[is_alone], moves.weight[is_alone]))
            parts.append((parent[first], child[first], weight))
            count += len(first) + int(is_alone.sum())
            if count > most_moves:
                raise _TooManyError
            if is_time_over():
                raise OutOfTimeError(
                    f"{count:,} moves of pairs of states or more are needed, and listing them took all the time that "
                    "was given; Solve(...).reach(model, policy, states) counts them"
                )
            child = distinct(np.append(moves.child[is_alone], child[first]))
            halves = child[child >= pairs]
            return halves if is_closed else np.append(self.opened(child[child < pairs]), halves)

        try:
            known = self.walk.explore(self.opened(codes), keep)
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


# -- the step carries weights forward --------------------------------------------------------------------------------


class StateWeights(NamedTuple):
    """Weights of branches whose actions are still to be drawn."""

    two: Float[ndarray, "S S"]  # two branches in s and t
    one: Float[ndarray, " S"]  # one branch


class PairPush:
    """Where weights ``ξ(x, y)`` on pairs of coordinates go in one step of the pair process.

    Weights are symmetric and not negative. One branch, the diagonal ``x = y``, stays one branch. After a step the
    actions are the policy's, so the weights live on *states*, with
    ``ξ((s,a),(t,b)) = two(s,t) π(a|s) π(b|t) + [s = t, a = b] one(s) π(a|s)``: two branches in one state that draw the
    same action are one from then on. Under ``"none"`` the moments of distinct coordinates do not look at any later
    pair, and their weight goes nowhere.
    """

    def __init__(self, model: JointMDP, policy: Floats) -> None:
        self.model, self.policy = model, policy
        self.kernel = coordinate_kernel(model)
        self._coordinates = coordinate_kernels(model)
        starts, actions = _lists_of(policy > 0)
        rows = np.repeat(np.arange(len(policy)), np.diff(starts))
        places = (rows, rows * policy.shape[1] + actions)
        drawn = sp.csr_array((policy[rows, actions], places), shape=(len(policy), policy.size))
        self.groups = [(chance, (drawn @ kernel).tocsr()) for chance, kernel in self._coordinates]

    def of_coordinates(
        self, same: Float[ndarray, "S A A"], apart: Float[ndarray, "S A S A"] | None = None
    ) -> StateWeights:
        """The weights after one step from ``ξ``, given in the same state and, where there are any, in distinct ones."""
        S, A, _ = same.shape
        one = self.kernel.T @ np.einsum("saa->sa", same).ravel()
        two = np.zeros(S * S)
        n, p = self.model.successors, self.model.probabilities
        off = same * (1 - np.eye(A)) * (self.model.sharing != "none")
        for a, b in zip(*np.nonzero(off.any(axis=0)), strict=True):
            two += np.bincount((n[:, :, a] * S + n[:, :, b]).ravel(), (p * off[:, a, b, None]).ravel(), S * S)
        two = two.reshape(S, S)
        if apart is not None:
            for chance, kernel in self._coordinates:
                two = two + chance * (kernel.T @ (kernel.T @ apart.reshape(S * A, S * A)).T).T
        return StateWeights(two, np.asarray(one))

    def of_states(self, weights: StateWeights) -> StateWeights:
        """The weights after one more step."""
        here = np.einsum("ss->s", weights.two)
        # Two branches in one state that draw the same action go on as one.
        alone = here[:, None] * self.policy**2 + weights.one[:, None] * self.policy
        one = self.kernel.T @ alone.ravel()
        two = (self._meetings @ here).reshape(weights.two.shape)
        away = weights.two - np.diag(here)
        for chance, kernel in self.groups:
            two = two + chance * (kernel.T @ (kernel.T @ away).T).T
        return StateWeights(two, np.asarray(one))

    @cached_property
    def _meetings(self) -> sp.csr_array:
        """Where two branches of one state go whose actions are drawn and differ: pairs of states × states."""
        S = self.model.num_states
        if self.model.sharing == "none":
            return sp.csr_array((S * S, S))
        moves = PairStep(self.model, self.policy, has_rewards=False).together(np.arange(S))
        places = (moves.first * S + moves.second, moves.row)
        return sp.csr_array((moves.weight, places), shape=(S * S, S))


def on_coordinates(policy: Float[ndarray, "S A"], weights: StateWeights) -> Float[ndarray, "S A A"]:
    """``ξ((s,a),(s,b))`` of weights on states: all pairs of one state."""
    here = np.einsum("ss->s", weights.two)
    both = here[:, None, None] * policy[:, :, None] * policy[:, None, :]
    return both + (weights.one[:, None] * policy)[:, :, None] * np.eye(policy.shape[1])
