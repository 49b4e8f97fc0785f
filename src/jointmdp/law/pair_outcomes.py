"""What the branches of a pair can do in one step, as lists of outcomes with shaped rewards: the gap's own tables.

A gap does not change when both branches lose the same amount per step, nor when a potential Φ is paid out,
``e = R + γΦ(S') − Φ(s)``, as long as it is accounted for at the start: two branches in one state start level. Three
choices make most rewards exactly 0, and what is exactly 0 is never rounded: the commonest reward is subtracted
everywhere; where the return is no longer left to chance, Φ is that return, so that nothing happens there any more
(an absorbing goal that pays for ever pays once, on arrival); everywhere else Φ = 0.
"""

import math
from itertools import permutations
from typing import NamedTuple

import numpy as np

from jointmdp.arrays import Bools, Floats, Ints
from jointmdp.checks import Sharing
from jointmdp.model.joint_mdp import JointMDP

RESOLUTION = 1e-12  # amounts that differ by less than this fraction of the largest reward are one amount


class BranchOutcomes(NamedTuple):
    """Every way a branch can move, given the noise that two branches share; lists are padded with weight 0."""

    chances: Floats  # [G] law of the shared noise
    weights: Floats  # [G, S, O]
    rewards: Floats  # [G, S, O] shaped
    successors: Ints  # [G, S, O]


class Meetings(NamedTuple):
    """Every way two branches in one state can move on when they draw different actions."""

    weights: Floats  # [Q]
    state: Ints  # [Q]
    rewards: Floats  # [Q] shaped, first minus second
    left: Ints  # [Q] successor of the first branch
    right: Ints  # [Q]
    ties: Floats  # [S] Σ_a π(a|s)², the probability that they draw the same


class PairTables(NamedTuple):
    """A model as the law of its gaps reads it, on the states that can be reached."""

    states: Ints  # [S] indices in the model
    place: Ints  # [states of the model] position in `states`, −1 where absent
    outcomes: BranchOutcomes
    meetings: Meetings | None  # None where branches never share
    mean: Floats  # [S] E Z(s,A) − Φ(s)
    discount: float
    steps: float  # Σ γᵗ over all steps, or the horizon if that is less
    resolution: float  # amounts closer than this are equal
    error: float  # how far gaps can be off because of that
    shaped: Floats  # [states of the model, W, A]


def pair_tables(model: JointMDP, policy: Floats, mean: Floats, states: Ints, horizon: int | None) -> PairTables:
    """The tables of all pairs of `states`, which must be closed under the policy; `mean` is E Z(s,a), ``[S, A]``."""
    g = model.discount
    v = np.sum(np.where(policy > 0, policy * mean, 0.0), axis=1)
    steps = min(math.inf if horizon is None else horizon, 1 / (1 - g) if g < 1 else math.inf)
    taken = (policy > 0)[:, None, :] & (model.probabilities > 0)[:, :, None]
    bound = float(np.max(np.abs(model.rewards[states]), where=taken[states], initial=0.0))
    resolution = RESOLUTION * max(bound, np.finfo(float).tiny)
    common = _commonest(model, policy, states)
    shaped = np.where(model.is_possible, model.rewards - common, 0.0)
    potential = np.zeros(model.num_states)
    dropped = offset = 0.0
    if horizon is None:
        # Values are sums of so many rewards, and so is their rounding.
        settled = _settled(model, taken, v, resolution * steps)
        offset = common * steps
        potential[settled] = v[settled] - common / (1 - g)
        shaped = shaped + g * potential[model.successors] - potential[:, None, None]
        done = settled[:, None, None] & taken
        dropped = float(np.max(np.abs(shaped), where=done, initial=0.0))
        shaped[done] = 0.0
    shaped[np.abs(shaped) <= resolution] = 0.0
    place = np.full(model.num_states, -1)
    place[states] = np.arange(len(states))
    p, pi, e, n = model.probabilities[states], policy[states], shaped[states], place[model.successors[states]]
    outcomes = _outcomes(model.sharing, p, pi, e, n)
    meetings = None if model.sharing == "none" else _meetings(p, pi, e, n)
    left = (v - offset - potential)[states]
    error = 2 * (dropped + resolution) * steps
    return PairTables(states, place, outcomes, meetings, left, g, steps, resolution, error, shaped)


def _commonest(model: JointMDP, policy: Floats, states: Ints) -> float:
    """The reward that is paid most often, counted over states with the policy's probabilities."""
    weights = model.probabilities[states][:, :, None] * policy[states][:, None, :]
    values, which = np.unique(model.rewards[states].ravel(), return_inverse=True)
    return float(values[np.argmax(np.bincount(which.ravel(), weights.ravel()))])


def _settled(model: JointMDP, taken: Bools, v: Floats, resolution: float) -> Bools:
    """States whose return is certain: every outcome is worth v(s), and so on for ever."""
    worth = model.rewards + model.discount * v[model.successors]
    settled = np.all((np.abs(worth - v[:, None, None]) <= resolution) | ~taken, axis=(1, 2))
    while True:
        stays = settled & np.all(settled[model.successors] | ~taken, axis=(1, 2))
        if np.array_equal(stays, settled):
            return settled
        settled = stays


def _outcomes(sharing: Sharing, p: Floats, pi: Floats, e: Floats, n: Ints) -> BranchOutcomes:
    """From probabilities, policy, shaped rewards and successors of the states."""
    if sharing == "time":
        scenarios = np.flatnonzero(p[0])
        chances, lists = p[0, scenarios], [_merged(pi, e[:, w], n[:, w]) for w in scenarios]
    else:
        flat = (len(p), -1)
        weights = p[:, :, None] * pi[:, None, :]
        chances, lists = np.ones(1), [_merged(weights.reshape(flat), e.reshape(flat), n.reshape(flat))]
    longest = max(found[0].shape[1] for found in lists)
    padded = [[np.pad(x, ((0, 0), (0, longest - x.shape[1]))) for x in found] for found in lists]
    return BranchOutcomes(chances / chances.sum(), *(np.stack(columns) for columns in zip(*padded, strict=True)))


def _merged(weights: Floats, rewards: Floats, to: Ints) -> tuple[Floats, Floats, Ints]:
    """One padded list per state, equal outcomes counted once: weights, rewards and successors ``[S, O]``."""
    size, some = len(weights), weights > 0
    rows, weights, rewards, to = np.nonzero(some)[0], weights[some], rewards[some], to[some]
    order = np.lexsort((rewards, to, rows))
    rows, weights, rewards, to = rows[order], weights[order], rewards[order], to[order]
    is_new = np.ones(len(rows), dtype=bool)
    is_new[1:] = (np.diff(rows) != 0) | (np.diff(to) != 0) | (np.diff(rewards) != 0)
    total = np.bincount(np.cumsum(is_new) - 1, weights)
    rows, rewards, to = rows[is_new], rewards[is_new], to[is_new]
    position = np.arange(len(rows)) - np.searchsorted(rows, rows)
    shape = (size, int(position.max()) + 1)
    found = np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=np.int64)
    for array, values in zip(found, (total, rewards, to), strict=True):
        array[rows, position] = values
    return found


def _meetings(p: Floats, pi: Floats, e: Floats, n: Ints) -> Meetings:
    """From probabilities, policy, shaped rewards and successors of the states."""
    parts: list[tuple[Ints, Floats, Floats, Ints, Ints]] = []
    for s in range(len(p)):
        pairs = np.array(list(permutations(np.flatnonzero(pi[s]), 2)), dtype=int)
        a, b = pairs.reshape(-1, 2).T
        w = np.flatnonzero(p[s])[:, None]
        weights = p[s, w] * (pi[s, a] * pi[s, b])
        found = (weights, e[s, w, a] - e[s, w, b], n[s, w, a], n[s, w, b])
        parts.append((np.full(weights.size, s), *(x.ravel() for x in found)))
    state, weight, reward, left, right = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Meetings(weight, state, reward, left, right, np.sum(pi**2, axis=1))
