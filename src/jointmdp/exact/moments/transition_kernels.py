"""From a model and a policy on the host to the arrays that the equations read."""

import hashlib
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from jointmdp.exact.bellman.second_moments import PairKernel, Tables
from jointmdp.ground.arrays import Floats, Ints, on_device, summed
from jointmdp.ground.errors import ModelError
from jointmdp.model.episodes import policy_kernel
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.policies import as_policy

# A gathered row entry costs about as much as this many entries of a matrix product (`benchmarks/sweep.py`).
GATHER_COST = 32
# Dense kernels are for small models; above this many numbers the row form is taken whatever its speed.
DENSE_LIMIT = 30_000_000


def checked_policy(model: JointMDP, policy: ArrayLike, example: str) -> Floats:
    """The policy as ``[S, A]``; `example` shows how a built-in model comes with one."""
    if not isinstance(model, JointMDP):
        raise ModelError(
            f"the model must be a JointMDP, not {type(model).__name__}; built-in models come with a policy, as in "
            f"{example}"
        )
    return as_policy(model, policy)


def paid_rewards(model: JointMDP) -> Floats:
    """Rewards where they can ever be paid, and zero elsewhere."""
    return np.where(model.is_possible, model.rewards, 0.0)


def tables(model: JointMDP, policy: Floats, rewards: Floats | None = None) -> Tables:
    """The model's arrays on the device; `rewards` stand in place of its own where they are given."""
    return Tables(
        on_device(model.probabilities),
        on_device(paid_rewards(model) if rewards is None else rewards),
        on_device(model.successors.astype(np.int32)),
        on_device(policy),
        on_device(model.discount),
    )


def digest(model: JointMDP, policy: Floats) -> str:
    """A digest of a model and a policy, so that no checkpoint is continued with another."""
    found = hashlib.sha256(f"{model.discount!r} {model.sharing}".encode())
    for array in (model.probabilities, model.rewards, model.successors, model.available, policy):
        found.update(f"{array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def pair_kernel(
    model: JointMDP,
    policy: Floats,
    other: Floats | None = None,
    *,
    may_be_dense: bool = True,
    may_merge: bool = True,
) -> PairKernel:
    """How two branches move on under the model's sharing; `other` is the policy of the second, if it has its own.

    Scenarios that lead to the same places are merged where `may_merge`: not for moments that multiply what a scenario
    pays by what follows it.
    """
    policies = [policy] if other is None else [policy, other]
    support, _ = policy_support(np.sum(policies, axis=0))
    choices = [np.take_along_axis(each, support, axis=1) for each in policies]
    successors = np.take_along_axis(model.successors, support[:, None, :], axis=2)  # [S, W, M]
    columns: Ints | None = None
    if model.sharing == "none":
        chances, weights = np.empty(0), [np.empty((0, model.num_states, 1))] * len(policies)
    elif model.sharing == "time":
        chances, columns = model.probabilities[0], np.moveaxis(successors, 1, 0)
        if may_merge:
            chances, columns = _scenario_groups(chances, columns)
        weights = [np.broadcast_to(choice, columns.shape) for choice in choices]
    else:
        chances = np.ones(1)
        # Two kernels in one: their places are those of both.
        kernels = [policy_kernel(model, each) for each in policies]
        entries, columns = _rows(kernels[0] if other is None else kernels[0] + 1j * kernels[1])
        weights = [entries.real, entries.imag][: len(policies)]
    if columns is not None and may_be_dense:
        groups, states, width = columns.shape
        if width * GATHER_COST >= states and groups * states * states <= DENSE_LIMIT:
            places = (np.arange(groups)[:, None, None], np.arange(states)[None, :, None], columns)
            weights, columns = [_dense((groups, states, states), places, each) for each in weights], None
    return PairKernel(
        on_device(chances),
        on_device(np.ascontiguousarray(weights[0])),
        None if columns is None else on_device(columns.astype(np.int32)),
        on_device(model.probabilities),
        on_device(successors.astype(np.int32)),
        on_device(choices[0]),
        None if other is None else on_device(np.ascontiguousarray(weights[1])),
        None if other is None else on_device(choices[1]),
    )


def _scenario_groups(chances: Floats, columns: Ints) -> tuple[Floats, Ints]:
    """Scenarios ``[W]``, ``[W, S, M]`` that lead to the same places, merged; at least two, where there are two."""
    _, first, group = np.unique(columns.reshape(len(columns), -1), axis=0, return_index=True, return_inverse=True)
    if len(first) == len(chances):
        return chances, columns
    merged, kept = summed(group.ravel(), chances, len(first)), columns[first]
    if len(first) == 1:  # one group alone would stand for branches that share nothing
        merged, kept = np.append(merged, 0.0), np.concatenate([kept, kept])
    return merged, kept


def _dense(shape: tuple[int, int, int], places: tuple[Ints, ...], weights: Floats) -> Floats:
    found = np.zeros(shape)
    np.add.at(found, places, weights)
    return found


def policy_support(policy: Floats) -> tuple[Ints, Floats]:
    """The actions that the policy may take, padded with probability 0 to the longest list, ``[S, M]`` each."""
    longest = int((policy > 0).sum(axis=1).max())
    support = np.argsort(policy == 0, axis=1, kind="stable")[:, :longest]
    return support, np.take_along_axis(policy, support, axis=1)


def _rows(kernel: sp.csr_array) -> tuple[NDArray[Any], Ints]:
    """A sparse matrix as padded rows, ``[1, S, K]``: values and columns."""
    lengths = np.diff(kernel.indptr)
    width = int(lengths.max())
    inside = np.arange(width)[None, :] < lengths[:, None]
    weights = np.zeros((1, *inside.shape), dtype=kernel.dtype)
    columns = np.zeros((1, *inside.shape), dtype=np.int64)
    weights[0][inside] = kernel.data
    columns[0][inside] = kernel.indices
    return weights, columns
