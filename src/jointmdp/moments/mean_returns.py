"""Mean returns alone: one sparse solve, and how true it is."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from jointmdp.arrays import UNIT, Floats
from jointmdp.errors import ModelError
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.policies import as_policy
from jointmdp.moments.single_branch import discounted_solver, fills_in

FEW = 4  # entries of a row, on average


class MeanReturns(NamedTuple):
    """E Z(s,a) under a policy."""

    mean: Floats  # [S, A]; NaN where an action is not available
    error: float
    """Guaranteed bound on the error of each."""


def mean_returns(model: JointMDP, policy: Any) -> MeanReturns:
    """The mean return of every action, followed by `policy`; nothing of how returns go together.

    For a discount below 1. `evaluate` gives the same means, and all that this library is for.
    """
    g, chosen = model.discount, as_policy(model, policy)
    if g == 1:
        raise ModelError("discount is 1: evaluate(...).mean knows the means where every return comes to an end")
    ordinary = model.marginal_mdp()
    available = None if model.available.all() else model.available
    gains = ordinary.rewards if available is None else np.where(available, ordinary.rewards, 0.0)
    r = np.einsum("sa,sa->s", chosen, gains)
    kernel = _under(ordinary.kernel, chosen)
    # Looking for a good order costs as much as eliminating in a matrix with few entries.
    v = discounted_solver(kernel, g, kernel.nnz > FEW * len(r) and fills_in(kernel))(r)
    mean = gains + g * (ordinary.kernel @ v).reshape(gains.shape)
    size = model.reward_bound + float(np.abs(v).max())
    rounding = 4 * (2 * model.num_scenarios + model.num_actions + 8) * UNIT * size
    left = float(np.max(np.abs(np.einsum("sa,sa->s", chosen, mean) - v))) + rounding
    if available is not None:
        mean[~available] = np.nan
    return MeanReturns(mean, g * left / (1 - g) + rounding)


def _under(kernel: sp.csr_array, policy: Floats) -> sp.csr_array:
    """P(s'|s) under a policy, from P(s'|s,a) in rows s·A + a."""
    rows = np.flatnonzero(policy)
    if len(rows) == len(policy):  # one action in each state; SciPy's own choice of rows takes longer in small models
        begins, lengths = kernel.indptr[rows], kernel.indptr[rows + 1] - kernel.indptr[rows]
        first = np.concatenate([[0], np.cumsum(lengths)])
        places = np.arange(first[-1]) + np.repeat(begins - first[:-1], lengths)
        return sp.csr_array((kernel.data[places], kernel.indices[places], first), shape=(len(policy), kernel.shape[1]))
    states = rows // policy.shape[1]
    weights = sp.csr_array((policy.ravel()[rows], (states, rows)), shape=(len(policy), kernel.shape[0]))
    return weights @ kernel
