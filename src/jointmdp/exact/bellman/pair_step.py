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

- **as moves of listed pairs**, in NumPy, in this file: `PairStep`. `pair_walk` lists the pairs that moves lead to,
  `PairPush` carries weights forward along them;
- **as an operator on arrays over pairs of states**, in JAX: `pair_sweep`. Its products are those of `sparse_products`,
  which has its compiled twin in `pallas_kernels` on a GPU; `numba_sweeps` is its compiled twin on a CPU.

`tests/test_pair_step.py` holds all forms against each other.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float
from numpy import ndarray
from numpy.typing import NDArray

from jointmdp.ground.arrays import Floats, Ints, summed
from jointmdp.model.joint_mdp import JointMDP

# What a positive probability is at least. A bound may count an event as likelier than it is; products of two such
# numbers do not underflow, so no event is lost.
RAREST = 1e-150


def positive(weight: Floats) -> Floats:
    """Probabilities of what can happen, none of them 0."""
    return np.maximum(weight, RAREST)


def expand(starts: Ints, which: Ints) -> tuple[Ints, Ints]:
    """The entries of the chosen lists in turn: whose they are (a position in `which`), and where they stand."""
    lengths = (starts[which + 1] - starts[which]).astype(np.int64)
    owner = np.repeat(np.arange(len(which)), lengths)
    offsets = starts[which] - np.cumsum(lengths) + lengths
    return owner, np.arange(len(owner)) + offsets[owner]


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
    order = np.lexsort((rewards, to, rows) if has_rewards else (to, rows))
    rows, weights, rewards, to = rows[order], weights[order], rewards[order], to[order]
    is_new = np.ones(len(rows), dtype=bool)
    is_new[1:] = (np.diff(rows) != 0) | (np.diff(to) != 0) | (rewards[1:] != rewards[:-1])
    total = summed(np.cumsum(is_new) - 1, weights, int(is_new.sum()))
    starts = np.append(0, np.cumsum(np.bincount(rows[is_new], minlength=some.shape[0] * some.shape[1])))
    return BranchLists(chances, starts, total, rewards[is_new], to[is_new])


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


class PairStep:
    """One step of any two branches of a model, listed move by move."""

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
        own = branch_lists(model, policy, has_rewards)
        is_one = other is None or other is policy
        self.branches = own, own if is_one else branch_lists(model, self.policies[1], has_rewards)
        self._scenarios = _lists_of(model.probabilities > 0)
        self._actions = [_lists_of(each > 0) for each in self.policies]

    def is_together(self, s: Ints, t: Ints) -> NDArray[np.bool_]:
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
        paid = (one.rewards[x], two.rewards[y]) if self.has_rewards else (np.zeros(len(x)), np.zeros(len(x)))
        return Moves(row, weight, *paid, one.successors[x], two.successors[y])

    def together(self, s: Ints) -> Moves:
        """Two branches in each of the states s, where they share the scenario; what makes them one is left out."""
        model, (one, two) = self.model, self.policies
        (firsts, a), (seconds, b), (starts, w) = *self._actions, self._scenarios
        i, x = expand(firsts, s)
        j, y = expand(seconds, s[i])
        row, a, b = i[j], a[x[j]], b[y]
        if self.can_merge:
            row, a, b = (each[a != b] for each in (row, a, b))
        chance = positive(one[s[row], a] * two[s[row], b])
        k, z = expand(starts, s[row])
        row, a, b, w, chance = row[k], a[k], b[k], w[z], chance[k]
        at = s[row], w
        rewards, to = (model.rewards[(*at, a)], model.rewards[(*at, b)]), model.successors
        return Moves(row, model.probabilities[at] * chance, *rewards, to[(*at, a)], to[(*at, b)])

    def ties(self, s: Ints) -> Floats:
        """The probability that two branches in one state become one."""
        return np.sum(self.policies[0][s] ** 2, axis=1)

    def alone(self, branch: int, s: Ints) -> tuple[Ints, Floats, Floats, Ints]:
        """One of the branches moves, where they share nothing: which move, their weights, rewards and successors."""
        lists = self.branches[branch]
        i, x = expand(lists.starts, s)
        return i, lists.weights[x], lists.rewards[x], lists.successors[x]


def _lists_of(mask: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """The columns that are set in each row, as lists: starts and columns."""
    return np.append(0, np.cumsum(mask.sum(axis=1))), np.nonzero(mask)[1]


def coordinate_kernel(model: JointMDP) -> sp.csr_array:
    """P(s'|s,a), ``[S·A, S]``; nothing where an action is not available."""
    S, A = model.num_states, model.num_actions
    places = np.broadcast_to(np.arange(S * A).reshape(S, 1, A), model.successors.shape)
    chances = np.where(model.is_possible, model.probabilities[:, :, None], 0.0)
    return sp.csr_array((chances.ravel(), (places.ravel(), model.successors.ravel())), shape=(S * A, S))


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
