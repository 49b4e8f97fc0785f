"""The gap of two actions of a state, by one backup of what is known of its successors."""

import math
from typing import NamedTuple

import numpy as np

from jointmdp.exact.moments.certificates import UNDERFLOW, ValueErrors, mean_operations, pair_operations
from jointmdp.exact.moments.higher_orders import ROOM
from jointmdp.exact.moments.single_branch import MIXED
from jointmdp.ground.arrays import UNIT, Floats
from jointmdp.model.joint_mdp import JointMDP


class GapEstimate(NamedTuple):
    """Mean and variance of a gap, and bounds on their errors."""

    mean: float
    variance: float
    mean_error: float
    variance_error: float


# many parameters: a model, what is known of its values, which gap, and what is known of pairs
def gap_backup(
    model: JointMDP,
    rewards: Floats,
    v: Floats,
    values: ValueErrors,
    gap: tuple[int, int, int],
    later: tuple[float, float],
) -> GapEstimate:
    """E_w[(d − E d)² + γ² D(S'_a,S'_b)], where d = R_a − R_b + γ (v(S'_a) − v(S'_b)), of the gap (s, a, b).

    What both actions share, successors and digits of values, is left out before anything is rounded. `rewards`
    ``[W, A]`` are those of the state, relative to the offset of `values` as `v` is; `later` is E_w D(S'_a,S'_b) with a
    bound on its error.
    """
    s, a, b = gap
    g, p, n = model.discount, model.probabilities[s], model.successors[s]
    parted = n[:, a] != n[:, b]
    after = g * np.where(parted, v[n[:, a]] - v[n[:, b]], 0.0)
    d = np.where(p > 0, rewards[:, a] - rewards[:, b] + after, 0.0)
    mean = float(p @ d)
    sizes = np.where(parted, g * (np.abs(v[n[:, a]]) + np.abs(v[n[:, b]])), 0.0)
    sizes = sizes + reward_sizes(model, rewards, values, s, a) + reward_sizes(model, rewards, values, s, b)
    sizes = np.where(p > 0, sizes, 0.0)
    apart = g * np.where(p > 0, values.between(n[:, a], n[:, b]), 0.0)
    rounding = mean_operations(model.num_scenarios, 2) * UNIT * float(p @ sizes) + UNDERFLOW * (1 + float(sizes.max()))
    mean_error = float(p @ apart) + rounding
    spread = float(p @ (d - mean) ** 2)
    variance = spread + g**2 * later[0]
    off = math.sqrt(float(p @ apart**2)) + 4 * UNIT * math.sqrt(float(p @ sizes**2)) + rounding
    error = 2 * math.sqrt(spread) * off + off**2 + g**2 * later[1]
    relative = pair_operations(model.num_scenarios, 2) * UNIT
    return GapEstimate(mean, variance, mean_error, (1 + ROOM) * error + relative * variance + UNDERFLOW)


def reward_sizes(model: JointMDP, rewards: Floats, values: ValueErrors, s: int, a: int) -> Floats:
    """How large the numbers are that the rewards ``[W, A]`` of an action of state s were made of, ``[W]``."""
    to = model.successors[s, :, a]
    # Those of steps that change the class hold its offset.
    changes = (values.label[to] != values.label[s]) | (values.label[s] == MIXED)
    offsets = np.where(changes, abs(values.offset[s]) + np.abs(values.offset[to]), 0.0)
    return np.abs(rewards[:, a]) + offsets
