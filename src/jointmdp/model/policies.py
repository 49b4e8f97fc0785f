"""Policies as ``[S, A]`` arrays of action probabilities."""

import numpy as np
from numpy.typing import ArrayLike

from jointmdp import checks
from jointmdp.arrays import Floats
from jointmdp.errors import ModelError
from jointmdp.model.tables import ActionLike, ModelTables


def as_policy(model: ModelTables, policy: ArrayLike) -> Floats:
    """A checked ``[S, A]`` policy from probabilities ``[S, A]`` or from one action per state ``[S]``."""
    try:
        raw = np.asarray(policy)
    except ValueError as error:
        raise ModelError(f"the policy must be an [S, A] or [S] array: {error}") from None
    if raw.dtype.kind in "OUS":
        if raw.ndim == 1 and all(isinstance(action, str | int) for action in raw.tolist()):
            return deterministic_policy(model, [_named(model, s, action) for s, action in enumerate(raw.tolist())])
        raise ModelError(
            f"the policy is {policy!r}; give an [S, A] array of probabilities or one action per state, by index or "
            "name (jointmdp.uniform_policy(model) makes the uniform one)"
        )
    if raw.ndim == 1:
        return deterministic_policy(model, policy)
    rows = checks.as_floats("the policy", policy, "[S, A] or [S]", 2)
    checks.check_shape("the policy", rows, model.available.shape, "[S, A]")
    rows = checks.normalised("action probabilities", rows, "state", "action")
    if at := checks.first_place((rows > 0) & ~model.available):
        state, action = at
        raise ModelError(
            f"the policy takes {model.action_label(action)} in {model.state_label(state)} with probability "
            f"{rows[at]:g}, but it is not available there"
        )
    return rows


def _named(model: ModelTables, state: int, action: ActionLike) -> int:
    try:
        return model.action_index(action)
    except ModelError as error:
        raise ModelError(f"the policy's action in {model.state_label(state)}: {error}") from None


def deterministic_policy(model: ModelTables, actions: ArrayLike) -> Floats:
    """The policy that takes ``actions[s]`` in state ``s``."""
    if np.asarray(actions).dtype == bool:
        raise ModelError("the policy holds booleans; give one action per state, or an [S, A] array of probabilities")
    chosen = checks.as_floats("the policy", actions, "[S, A] or [S]", 1)
    if len(chosen) != model.num_states:
        raise ModelError(f"the policy has {len(chosen)} actions for {model.num_states} states; give one for each state")
    for state, action in enumerate(chosen):
        if not (action == np.floor(action) and 0 <= action < model.num_actions):
            raise ModelError(
                f"the policy's action in {model.state_label(state)} is {action:g}; actions are whole numbers "
                f"0..{model.num_actions - 1} (for action probabilities give an [S, A] array)"
            )
        model.action_index(int(action), state)
    return np.eye(model.num_actions)[chosen.astype(np.int64)]


def uniform_policy(model: ModelTables) -> Floats:
    """Every available action with the same probability."""
    return model.available / model.available.sum(axis=1, keepdims=True)
