"""Which actions are available in which state: masks ``[S, A]``, and what tables hold where an action is not.

Tables ``[S, W, A]`` have an entry for every action and scenario, also where the action does not exist in the state, or
the scenario only fills up its row. There it pays 0 and stays where it is: nothing that is computed from it matters.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from jointmdp.ground import checks
from jointmdp.ground.arrays import Bools, Floats, Ints
from jointmdp.ground.errors import ModelError

ScenarioTables = tuple[Floats, Floats, Ints]  # probabilities [S, W], rewards and successors [S, W, A]


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


def without_unavailable(table: Floats, available: Bools, instead: Any) -> None:
    """Put something else, in place, where an action is not available; ``[S, W, A]``."""
    if not available.all():
        np.copyto(table, instead, where=~available[:, None, :])


def blank_tables(num_states: int, num_scenarios: int, num_actions: int) -> ScenarioTables:
    """Tables to be filled in: nothing is possible, paid or left yet."""
    shape = (num_states, num_scenarios, num_actions)
    stays = np.tile(np.arange(num_states)[:, None, None], (1, *shape[1:]))
    return np.zeros(shape[:2]), np.zeros(shape), stays
