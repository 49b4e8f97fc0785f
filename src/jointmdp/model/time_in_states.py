"""A model with time in its states: what depends on time over a horizon is stationary there."""

from __future__ import annotations

import numpy as np

from jointmdp.ground.arrays import Floats
from jointmdp.model.joint_mdp import JointMDP


def with_time(model: JointMDP, policy: Floats) -> tuple[JointMDP, Floats]:
    """The model over the T steps of a policy ``[T, S, A]``, and that policy.

    State s at step t has the index t · S + s; after the last step comes one more state, where nothing is paid.
    """
    horizon, (S, W, A) = len(policy), model.rewards.shape
    end = horizon * S
    later = np.arange(1, horizon)[:, None, None, None] * S + model.successors
    successors = np.concatenate([later.reshape(-1, W, A), np.full((S + 1, W, A), end)])
    chances, rewards, available = (
        np.concatenate([np.tile(table, (horizon, *[1] * (table.ndim - 1))), last])
        for table, last in (
            (model.probabilities, model.probabilities[:1]),
            (model.rewards, np.zeros((1, W, A))),
            (model.available, np.ones((1, A), dtype=bool)),
        )
    )
    names = [model.state_label(s) for s in range(S)]
    whole = JointMDP(
        chances,
        rewards,
        successors,
        model.discount,
        model.sharing,
        available=available,
        state_names=[*names, *(f"{name} at step {t}" for t in range(1, horizon) for name in names), "the end"],
        action_names=[model.action_label(a) for a in range(A)],
    )
    return whole, np.concatenate([policy.reshape(-1, A), np.full((1, A), 1 / A)])
