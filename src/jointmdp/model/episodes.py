"""How episodes of a table begin and end."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from jointmdp import checks
from jointmdp.arrays import Bools, Floats
from jointmdp.model.tables import ModelTables


def terminal_states(model: ModelTables) -> Bools:
    """States that are absorbing with zero reward under every available action and possible scenario, ``[S]``."""
    possible = (model.probabilities > 0)[:, :, None] & model.available[:, None, :]
    stays = model.successors == np.arange(model.num_states)[:, None, None]
    found: Bools = (~possible | (stays & (model.rewards == 0))).all(axis=(1, 2))
    return found


def start_law(model: ModelTables, start: ArrayLike | None) -> Floats:
    """Where episodes begin, ``[S]``: in a state, by a law, or by default uniformly where they are not over yet."""
    count = model.num_states
    law: Floats
    if start is None:
        is_terminal = terminal_states(model)
        law = np.ones(count) if is_terminal.all() else np.where(is_terminal, 0.0, 1.0)
        return law / np.sum(law)
    if isinstance(start, str | int | np.integer):
        law = np.zeros(count)
        law[model.state_index(start if isinstance(start, str) else int(start))] = 1.0
        return law
    law = checks.as_floats("start", start, "[S], or a state,", 1)
    checks.check_shape("start", law, (count,), "[S]")
    law = checks.normalised("start probabilities", law[None, :], "row", "state")[0]
    return law
