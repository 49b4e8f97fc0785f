"""Which actions are available in which state; what a table says of the others is ignored."""

import numpy as np
from numpy.typing import ArrayLike

from jointmdp import checks
from jointmdp.arrays import Bools
from jointmdp.errors import ModelError


def as_available(values: ArrayLike | None, num_states: int, num_actions: int) -> Bools:
    """Which actions exist in which state."""
    if values is None:
        return np.ones((num_states, num_actions), dtype=bool)
    try:
        raw = np.asarray(values)
    except ValueError as error:
        raise ModelError(f"available must be an [S, A] array of booleans: {error}") from None
    if raw.dtype.kind not in "bui" or not np.isin(raw, (0, 1)).all():
        raise ModelError("available must hold booleans, one for each state and action")
    checks.check_shape("available", raw, (num_states, num_actions), "[S, A]")
    exists = raw.astype(bool)
    if at := checks.first_place(~exists.any(axis=1)):
        raise ModelError(f"{checks.place(at, 'state')} has no available action")
    return exists
