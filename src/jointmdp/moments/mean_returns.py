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
    gains = np.where(model.available, ordinary.rewards, 0.0)
    r = np.einsum("sa,sa->s", chosen, gains)
    kernel = _under(ordinary.kernel, chosen)
    # Looking for a good order costs as much as eliminating in a matrix with few entries.
    v = discounted_solver(kernel, g, kernel.nnz > FEW * len(r) and fills_in(kernel))(r)
    mean = gains + g * (ordinary.kernel @ v).reshape(gains.shape)
    size = model.reward_bound + float(np.abs(v).max())
    rounding = 4 * (2 * model.num_scenarios + model.num_actions + 8) * UNIT * size
    left = float(np.max(np.abs(r + g * (kernel @ v) - v))) + rounding
    return MeanReturns(np.where(model.available, mean, np.nan), g * left / (1 - g) + rounding)


def _under(kernel: sp.csr_array, policy: Floats) -> sp.csr_array:
    """P(s'|s) under a policy, from P(s'|s,a) in rows s·A + a."""
    if np.count_nonzero(policy) == len(policy):
        return kernel[np.arange(len(policy)) * policy.shape[1] + np.argmax(policy, axis=1)]
    states, actions = np.nonzero(policy)
    rows = states * policy.shape[1] + actions
    weights = sp.csr_array((policy[states, actions], (states, rows)), shape=(len(policy), kernel.shape[0]))
    return weights @ kernel
