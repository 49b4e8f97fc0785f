"""Joint laws of one step: what several actions in one state bring under the same scenario."""

from __future__ import annotations

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
    for state in range(model.num_states):
        labels, chances = _outcome_labels(model, state)
        actions = np.flatnonzero(model.available[state])
        for a, b in itertools.combinations(actions, 2):
            gap = _dependence(labels[:, a], labels[:, b], chances)
            if gap > INDEPENDENCE_TOLERANCE:
                return Witness(state, (int(a), int(b)), gap)
    for state in range(model.num_states):
        labels, chances = _outcome_labels(model, state)
        actions = np.flatnonzero(model.available[state])
        for count in range(2, len(actions)):
            gap = _dependence(_together(labels[:, actions[:count]]), labels[:, actions[count]], chances)
            if gap > INDEPENDENCE_TOLERANCE:
                return _fewest(labels, chances, state, [int(a) for a in actions[: count + 1]])
    return None


def _fewest(labels: Ints, chances: Floats, state: int, actions: list[int]) -> Witness:
    """Drops every action without which the rest still depend on the last one."""
    *others, last = actions
    for action in list(others):
        fewer = [a for a in others if a != action]
        if fewer and _dependence(_together(labels[:, fewer]), labels[:, last], chances) > INDEPENDENCE_TOLERANCE:
            others = fewer
    gap = _dependence(_together(labels[:, others]), labels[:, last], chances)
    return Witness(state, (*others, last), gap)


def _together(labels: Ints) -> Ints:
    """Several actions' outcomes as one."""
    return np.unique(labels, axis=0, return_inverse=True)[1].ravel()


def _outcome_labels(model: ModelTables, state: int) -> tuple[Ints, Floats]:
    """Each action's outcome ``(R, S')`` as a small whole number per scenario that can happen, ``[W', A]``."""
    possible = model.probabilities[state] > 0
    chances = model.probabilities[state][possible]
    labels = np.empty((len(chances), model.num_actions), dtype=np.int64)
    for action in range(model.num_actions):
        pairs = np.stack([model.rewards[state, possible, action], model.successors[state, possible, action]], axis=1)
        labels[:, action] = np.unique(pairs, axis=0, return_inverse=True)[1].ravel()
    return labels, chances


def _dependence(first: Ints, second: Ints, chances: Floats) -> float:
    """The largest ``|P(i,j) − P(i)P(j)|``."""
    joint = np.zeros((first.max() + 1, second.max() + 1))
    np.add.at(joint, (first, second), chances)
    return float(np.max(np.abs(joint - joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True))))
