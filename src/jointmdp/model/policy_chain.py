"""The chain of states that a policy makes of a model: its kernel, where it can come to, and whether it ends."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from jointmdp.arrays import Bools, Floats, Ints
from jointmdp.model.episodes import terminal_states
from jointmdp.model.tables import ModelTables


def policy_kernel(model: ModelTables, policy: Floats) -> sp.csr_array:
    """P(s'|s) under the policy, ``[S, S]`` sparse."""
    weights = model.probabilities[:, :, None] * policy[:, None, :]
    rows = np.broadcast_to(np.arange(model.num_states)[:, None, None], weights.shape)
    taken = weights > 0
    shape = (model.num_states, model.num_states)
    kernel = sp.csr_array((weights[taken], (rows[taken], model.successors[taken])), shape=shape)
    kernel.sum_duplicates()
    return kernel


def reachable(kernel: sp.csr_array, start: ArrayLike) -> Ints:
    """The states that a chain can come to from `start`, themselves included, in order."""
    return np.flatnonzero(_reached(kernel, start))


def endless_state(model: ModelTables, policy: Floats, start: ArrayLike) -> int | None:
    """A state that an episode from `start` can come to, and from which it never ends; None if it surely ends."""
    kernel = policy_kernel(model, policy)
    ends = _reached(kernel.T.tocsr(), np.flatnonzero(terminal_states(model)))
    found = np.flatnonzero(_reached(kernel, start) & ~ends)
    return int(found[0]) if len(found) else None


def _reached(kernel: sp.csr_array, start: ArrayLike) -> Bools:
    seen = np.zeros(kernel.shape[0], dtype=bool)
    front = np.unique(np.asarray(start, dtype=np.int64))
    while len(front):
        seen[front] = True
        reached = np.unique(kernel[front].nonzero()[1])
        front = reached[~seen[reached]]
    return seen
