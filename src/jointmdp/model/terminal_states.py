"""Where episodes of a table end and begin: terminal states, starts, and which states a policy can come to."""

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.sparse import csgraph

from jointmdp.ground import checks
from jointmdp.ground.arrays import Bools, Floats, Ints, distinct
from jointmdp.model.tables import ModelTables, possible


def terminal_states(model: ModelTables) -> Bools:
    """States that are absorbing with zero reward under every available action and possible scenario, ``[S]``."""
    stays = model.successors == np.arange(model.num_states)[:, None, None]
    found: Bools = (~model.is_possible | (stays & (model.rewards == 0))).all(axis=(1, 2))
    return found


def start_law(model: ModelTables, start: ArrayLike | None) -> Floats:
    """Where episodes begin, ``[S]``: in a state, by a law, or by default uniformly where they are not over yet."""
    count = model.num_states
    if start is None:
        is_open = ~terminal_states(model)
        return is_open / is_open.sum() if is_open.any() else np.full(count, 1 / count)
    if isinstance(start, str | int | np.integer) or (isinstance(start, tuple) and start in (model.state_names or ())):
        state = model.state_index(start)
        return np.where(np.arange(count) == state, 1.0, 0.0)
    law = checks.as_floats("start", start, "[S], or a state,", 1)
    checks.check_shape("start", law, (count,), "[S]")
    return checks.as_law("start probabilities", "state", np.arange(count), law)


def policy_kernel(model: ModelTables, policy: Floats) -> sp.csr_array:
    """P(s'|s) under the policy, ``[S, S]`` sparse; chances too small for a float stand there as zeros."""
    weights = model.probabilities[:, :, None] * policy[:, None, :]
    rows = np.broadcast_to(np.arange(model.num_states)[:, None, None], weights.shape)
    taken = possible(model.probabilities, policy > 0)
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


def idle_states(model: ModelTables, policy: Floats, kernel: sp.csr_array | None = None) -> Bools:
    """States from which nothing is ever paid any more under the policy, ``[S]``; `kernel` is the policy's, if known."""
    kernel = policy_kernel(model, policy) if kernel is None else kernel
    pays = (model.rewards != 0) & possible(model.probabilities, policy > 0)
    return ~_reached(kernel.T.tocsr(), np.flatnonzero(pays.any(axis=(1, 2))))


def steady_states(model: ModelTables, policy: Floats) -> tuple[Bools, Bools]:
    """States and actions from which the policy is surely paid one and the same course of rewards, ``[S]``, ``[S, A]``.

    States are told apart by what they pay and by what states they lead to, again and again until no more differ.
    """
    rewards, to, taken = model.rewards, model.successors, possible(model.probabilities, policy > 0)
    kind, told = np.zeros(model.num_states, dtype=np.int64), (0, 0)
    while True:  # each round tells more states apart, or is the last
        _, outcome = np.unique(np.stack([rewards.ravel(), kind[to].ravel()]), axis=1, return_inverse=True)
        outcome = outcome.reshape(rewards.shape)
        none, some = outcome.max() + 1, kind[to] >= 0

        def alike(shown: Bools, axes: tuple[int, ...], outcome: Ints = outcome, none: int = none) -> tuple[Bools, Ints]:
            first = np.where(shown, outcome, none).min(axis=axes)
            return first == np.where(shown, outcome, -1).max(axis=axes), first

        same, first = alike(taken, (1, 2))
        is_steady = same & (some | ~taken).all(axis=(1, 2)) & (kind >= 0)
        _, found = np.unique(np.stack([kind, first]), axis=1, return_inverse=True)
        kind = np.where(is_steady, found.ravel(), -1)
        # Fewer are steady, or as many and more kinds of them: either is so, or nothing has changed.
        if (now := (int(is_steady.sum()), len(np.unique(kind[is_steady])))) == told:
            return is_steady, alike(model.is_possible, (1,))[0] & (some | ~model.is_possible).all(axis=1)
        told = now


def paying_state(kernel: sp.csr_array, idle: Bools) -> int | None:
    """A state from which the policy may go on being paid for ever; None if every return surely comes to an end."""
    if not idle.any():
        return 0
    ends = _reached(kernel.T.tocsr(), np.flatnonzero(idle))
    found = np.flatnonzero(~ends)
    return int(found[0]) if len(found) else None


def _reached(kernel: sp.csr_array, start: ArrayLike) -> Bools:
    size, first = kernel.shape[0], distinct(np.asarray(start, dtype=np.int64))
    # One more node leads to where it starts. All weights are 1: explicit zeros are steps too.
    indices = np.concatenate([kernel.indices, first])
    indptr = np.append(kernel.indptr, len(indices))
    links = sp.csr_array((np.ones(len(indices)), indices, indptr), shape=(size + 1, size + 1))
    seen = np.zeros(size + 1, dtype=bool)
    seen[csgraph.breadth_first_order(links, size, return_predecessors=False)] = True
    return seen[:size]
