"""From a model and a policy on the host to the arrays that the equations read."""

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from jointmdp.arrays import Floats, Ints, on_device
from jointmdp.bellman.second_moments import PairKernel, Tables
from jointmdp.errors import ModelError
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


def shifted_rewards(model: JointMDP, shift: float = 0.0) -> Floats:
    """Rewards less `shift` where they can ever be paid, and zero elsewhere."""
    return np.where(model.is_possible, model.rewards - shift, 0.0)


def tables(model: JointMDP, policy: Floats, shift: float = 0.0) -> Tables:
    """The model's arrays on the device; `shift` is subtracted from every reward."""
    return Tables(
        on_device(model.probabilities),
        on_device(shifted_rewards(model, shift)),
        on_device(model.successors.astype(np.int32)),
        on_device(policy),
        on_device(model.discount),
    )


def pair_kernel(model: JointMDP, policy: Floats) -> PairKernel:
    """How two branches move on under the model's sharing; see `PairKernel`."""
    support, choice = policy_support(policy)
    successors = np.take_along_axis(model.successors, support[:, None, :], axis=2)  # [S, W, M]
    if model.sharing == "none":
        chances, weights, columns = np.empty(0), np.empty((0, model.num_states, 1)), None
    elif model.sharing == "time":
        chances = model.probabilities[0]
        columns = np.moveaxis(successors, 1, 0)
        weights = np.broadcast_to(choice, columns.shape)
    else:
        chances = np.ones(1)
        weights, columns = _rows(policy_kernel(model, policy))
    if columns is not None:
        groups, states, width = columns.shape
        if width * GATHER_COST >= states and groups * states * states <= DENSE_LIMIT:
            dense = np.zeros((groups, states, states))
            np.add.at(dense, (np.arange(groups)[:, None, None], np.arange(states)[None, :, None], columns), weights)
            weights, columns = dense, None
    return PairKernel(
        on_device(chances),
        on_device(weights),
        None if columns is None else on_device(columns.astype(np.int32)),
        on_device(model.probabilities),
        on_device(successors.astype(np.int32)),
        on_device(choice),
    )


def policy_support(policy: Floats) -> tuple[Ints, Floats]:
    """The actions that the policy may take, padded with probability 0 to the longest list, ``[S, M]`` each."""
    longest = int((policy > 0).sum(axis=1).max())
    support = np.argsort(policy == 0, axis=1, kind="stable")[:, :longest]
    return support, np.take_along_axis(policy, support, axis=1)


def _rows(kernel: sp.csr_array) -> tuple[Floats, Ints]:
    """A sparse matrix as padded rows, ``[1, S, K]``: values and columns."""
    lengths = np.diff(kernel.indptr)
    width = int(lengths.max())
    inside = np.arange(width)[None, :] < lengths[:, None]
    weights = np.zeros((1, *inside.shape))
    columns = np.zeros((1, *inside.shape), dtype=np.int64)
    weights[0][inside] = kernel.data
    columns[0][inside] = kernel.indices
    return weights, columns
