"""Joint laws of one step: the outcomes of several actions in one state under the same scenario."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jointmdp.arrays import Floats, Ints
from jointmdp.model.tables import ModelTables

# A joint probability this close to the product of its marginals counts as independent: rounding of products in float64.
# Products formed in single precision are off by more and count as coupled; the witness's discrepancy shows it.
INDEPENDENCE_TOLERANCE = 1e-12


class QueryLaw(NamedTuple):
    """A finite joint law of one-step outcomes, distinct rows only."""

    actions: tuple[int, ...]
    probabilities: Floats  # [L]
    rewards: Floats  # [L, m]
    successors: Ints  # [L, m]


class Query(NamedTuple):
    """Samples of the m-JSTM: outcomes of the queried actions under the same scenario."""

    scenario: Ints  # [N]
    rewards: Floats  # [N, m]
    successors: Ints  # [N, m]


class Transition(NamedTuple):
    """Samples of the STM: one executed action per sample."""

    state: Ints  # [N]
    action: Ints  # [N]
    reward: Floats  # [N]
    successor: Ints  # [N]


class Witness(NamedTuple):
    """Actions whose outcomes depend on each other in a state, and by how much a joint probability is off."""

    state: int
    actions: tuple[int, ...]
    discrepancy: float


def query_law(model: ModelTables, state: int, actions: Sequence[int]) -> QueryLaw:
    """The law of ``((R_i, S'_i))_i`` for the queried actions; a repeated action repeats its column."""
    columns = list(actions)
    chances = model.probabilities[state]
    rows = np.concatenate(
        [model.rewards[state][:, columns], model.successors[state][:, columns].astype(np.float64)], axis=1
    )
    rows, chances = rows[chances > 0], chances[chances > 0]
    distinct, label = np.unique(rows, axis=0, return_inverse=True)
    weights: Floats = np.zeros(len(distinct))
    np.add.at(weights, label.ravel(), chances)
    m = len(columns)
    return QueryLaw(tuple(columns), weights, distinct[:, :m], distinct[:, m:].astype(np.int64))


def coupling_witness(model: ModelTables) -> Witness | None:
    """Pairs first; then growing sets of actions, since pairwise independent outcomes can still be dependent."""
    for is_pair in (True, False):
        for state in range(model.num_states):
            labels, chances = _outcome_labels(model, state)
            actions = np.flatnonzero(model.available[state]).tolist()
            growing = (actions[:count] for count in range(3, len(actions) + 1))
            for *others, last in itertools.combinations(actions, 2) if is_pair else growing:
                if _dependence(labels, others, last, chances) > INDEPENDENCE_TOLERANCE:
                    return _fewest(labels, chances, state, others, last)
    return None


def _fewest(labels: Ints, chances: Floats, state: int, others: list[int], last: int) -> Witness:
    """Drops every action without which the rest still depend on the last one."""
    for action in list(others):
        fewer = [a for a in others if a != action]
        if fewer and _dependence(labels, fewer, last, chances) > INDEPENDENCE_TOLERANCE:
            others = fewer
    return Witness(state, (*others, last), _dependence(labels, others, last, chances))


def _outcome_labels(model: ModelTables, state: int) -> tuple[Ints, Floats]:
    """Each action's outcome ``(R, S')`` as a small whole number per scenario that can happen, ``[W', A]``."""
    possible = model.probabilities[state] > 0
    chances = model.probabilities[state][possible]
    labels = np.empty((len(chances), model.num_actions), dtype=np.int64)
    for action in range(model.num_actions):
        pairs = np.stack([model.rewards[state, possible, action], model.successors[state, possible, action]], axis=1)
        labels[:, action] = np.unique(pairs, axis=0, return_inverse=True)[1].ravel()
    return labels, chances


def _dependence(labels: Ints, others: list[int], last: int, chances: Floats) -> float:
    """The largest ``|P(i,j) − P(i)P(j)|`` over the joint outcomes ``i`` of several actions and ``j`` of one more."""
    first = labels[:, others[0]]
    if len(others) > 1:
        first = np.unique(labels[:, others], axis=0, return_inverse=True)[1].ravel()
    joint = np.zeros((first.max() + 1, labels[:, last].max() + 1))
    np.add.at(joint, (first, labels[:, last]), chances)
    return float(np.max(np.abs(joint - joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True))))
