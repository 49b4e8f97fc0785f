"""A model and a policy as they are handed in: checked, and told apart from others."""

import hashlib

import numpy as np
from numpy.typing import ArrayLike

from jointmdp.ground.arrays import Floats
from jointmdp.ground.errors import ModelError
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.policies import as_policy


def checked_policy(model: JointMDP, policy: ArrayLike, example: str) -> Floats:
    """The policy as ``[S, A]``; `example` shows how a built-in model comes with one."""
    if not isinstance(model, JointMDP):
        raise ModelError(
            f"the model must be a JointMDP, not {type(model).__name__}; built-in models come with a policy, as in "
            f"{example}"
        )
    return as_policy(model, policy)


def digest(model: JointMDP, policy: Floats) -> str:
    """A digest of a model and a policy, so that no checkpoint is continued with another."""
    found = hashlib.sha256(f"{model.discount!r} {model.sharing}".encode())
    for array in (model.probabilities, model.rewards, model.successors, model.available, policy):
        found.update(f"{array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()
