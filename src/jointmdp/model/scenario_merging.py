"""Scenarios that give every action the same outcome are one scenario, with the sum of their chances: exactly so."""

import numpy as np

from jointmdp.arrays import Floats, Ints
from jointmdp.model.one_uniform import ScenarioTables


def merged_by_state(tables: ScenarioTables) -> ScenarioTables:
    """Merged within each state, and impossible ones left out; rows are filled up with scenarios of chance zero."""
    chances, rewards, successors = tables
    S, W, A = rewards.shape
    first = _first_alike(rewards, successors)
    places = (np.arange(S)[:, None] * W + first).ravel()
    totals = np.bincount(places, chances.ravel(), minlength=S * W).reshape(S, W)
    state, scenario = np.nonzero(totals > 0)
    counts = np.bincount(state, minlength=S)
    column = np.arange(len(state)) - np.repeat(np.cumsum(counts) - counts, counts)
    shape = (S, int(counts.max()), A)
    law, gains = np.zeros(shape[:2]), np.zeros(shape)
    targets = np.tile(np.arange(S)[:, None, None], (1, *shape[1:]))
    law[state, column] = totals[state, scenario]
    gains[state, column], targets[state, column] = rewards[state, scenario], successors[state, scenario]
    return law, gains, targets


def merged_everywhere(tables: ScenarioTables) -> ScenarioTables:
    """Those that are alike in all states merged, as ``sharing="time"`` needs it; chances are the same in all states."""
    chances, rewards, successors = tables
    S, W, A = rewards.shape
    across = (1, W, S * A)
    (first,) = _first_alike(rewards.swapaxes(0, 1).reshape(across), successors.swapaxes(0, 1).reshape(across))
    totals = np.bincount(first, chances[0], minlength=W)
    kept = totals > 0
    if kept.all():
        return tables
    return np.tile(totals[kept], (S, 1)), rewards[:, kept], successors[:, kept]


def _first_alike(rewards: Floats, successors: Ints) -> Ints:
    """For each scenario ``[S, W]`` the first one of its state with the same outcomes of all actions."""
    S, W, A = rewards.shape
    # Equal rows have equal keys. Rows with equal keys that differ after all are told apart below.
    factors = np.random.default_rng(0).integers(0, 2**63, (2, A), dtype=np.uint64) * 2 + 1
    bits = np.ascontiguousarray(rewards + 0.0).view(np.uint64)  # + 0.0: zero has one sign
    bits ^= bits >> 32  # low bits of whole numbers are all zero, and products keep zeros on the right
    keys = (bits * factors[0] + successors.astype(np.uint64) * factors[1]).sum(axis=2, dtype=np.uint64)
    order = keys.argsort(axis=1, kind="stable")
    ranked = np.take_along_axis(keys, order, axis=1)
    begins = np.ones((S, W), dtype=bool)
    begins[:, 1:] = ranked[:, 1:] != ranked[:, :-1]
    leader = np.maximum.accumulate(np.where(begins, np.arange(W), 0), axis=1)
    first = np.empty((S, W), dtype=np.int64)
    np.put_along_axis(first, order, np.take_along_axis(order, leader, axis=1), axis=1)
    at = np.arange(S)[:, None]
    is_alike = ((rewards == rewards[at, first]) & (successors == successors[at, first])).all(axis=2)
    return np.where(is_alike, first, np.arange(W))
