"""What one branch can do in each state, as lists: weights, rewards and successors."""

from typing import NamedTuple

import numpy as np

from jointmdp.arrays import Floats, Ints
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
