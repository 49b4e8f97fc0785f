"""Draws with explicit keys: `noise_key` for the scenario that all actions see, `policy_key` for the actions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jointmdp.arrays import Floats, Ints, float64, on_device
from jointmdp.model.inversion import drawn_rows, interval_ends
from jointmdp.model.tables import ModelTables


class Query(NamedTuple):
    """Samples of the m-JSTM: what the queried actions bring under the same scenario."""

    scenario: Ints  # [N]
    rewards: Floats  # [N, m]
    successors: Ints  # [N, m]


class Transition(NamedTuple):
    """Samples of the STM: one executed action per sample."""

    state: Ints  # [N]
    action: Ints  # [N]
    reward: Floats  # [N]
    successor: Ints  # [N]


@partial(jax.jit, static_argnames="num_samples")
def _draw(ends: Array, key: Array, rows: Array, num_samples: int) -> Array:
    uniform = jax.random.uniform(key, (num_samples,), dtype=jnp.float64)
    return drawn_rows(ends, jnp.broadcast_to(rows, (num_samples,)), uniform)


def _choose(rows: Floats, key: Array, at: Ints | int, num_samples: int) -> Ints:
    with float64():
        where = on_device(np.asarray(at, dtype=np.int32))
        return np.asarray(_draw(on_device(interval_ends(rows)), key, where, num_samples)).astype(np.int64)


def sample_query(model: ModelTables, noise_key: Array, state: int, actions: Sequence[int], num_samples: int) -> Query:
    """One scenario per sample, seen by all the queried actions."""
    scenario = _choose(model.probabilities, noise_key, state, num_samples)
    columns = list(actions)
    rewards = model.rewards[state][scenario][:, columns]
    return Query(scenario, rewards, model.successors[state][scenario][:, columns])


def sample_transitions(
    model: ModelTables, noise_key: Array, policy_key: Array, policy: Floats, start: Floats, num_samples: int
) -> Transition:
    """States from `start`, actions from `policy`, and the outcome of the executed action."""
    start_key, scenario_key = jax.random.split(noise_key)
    state = _choose(start[None, :], start_key, 0, num_samples)
    action = _choose(policy, policy_key, state, num_samples)
    scenario = _choose(model.probabilities, scenario_key, state, num_samples)
    where = (state, scenario, action)
    return Transition(state, action, model.rewards[where], model.successors[where])
