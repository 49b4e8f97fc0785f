"""Optimal transport between two finite laws, with a bound that does not lean on the solver.

Among all joint laws w of outcomes i and j with marginals p and q, the one with the largest gain ``Σ w_ij g_ij``. By
weak duality any u and z with ``u_i + z_j ≥ g_ij`` bound it by ``Σ p_i u_i + Σ q_j z_j``. The solver's own u serves,
whatever it is: with ``z_j = max_i (g_ij − u_i)`` no inequality is broken. In the code costs ``max g − g`` stand for
gains.
"""

import importlib
from typing import Any, NamedTuple

import numpy as np

from jointmdp.arrays import UNIT, Floats, Ints

MOST_STEPS = 10_000_000  # of the network simplex method


class Transport(NamedTuple):
    """A joint law of the outcomes of two actions."""

    rows: Ints  # [n] outcomes of the first
    columns: Ints  # [n] outcomes of the second
    masses: Floats  # [n]
    value: float  # it gains at least this, rounding included
    bound: float  # no joint law gains more, rounding included


def solver() -> Any:
    """The package with the network simplex method."""
    try:
        return importlib.import_module("ot")
    except ImportError as error:
        raise ImportError(
            "coupling_bounds needs POT for optimal transport, which is not installed: pip install 'jointmdp[transport]'"
        ) from error


def best_transport(p: Floats, q: Floats, gain: Floats) -> Transport:
    """The joint law with marginals p and q that gains most; `gain` is ``[K, L]``."""
    # A constant changes no plan. Without it numbers are as large as they differ, and so is rounding.
    base = float(gain.max())
    cost = np.ascontiguousarray(base - gain)
    scale = float(cost.max())
    if len(p) == 1 or len(q) == 1 or scale == 0:
        plan = np.outer(p, q)
        u = np.zeros(len(p)) if len(p) > 1 else cost.min(axis=1)
        u = cost[:, 0] if len(q) == 1 else u
    else:
        plan, log = solver().emd(p / p.sum(), q / q.sum(), cost / scale, numItermax=MOST_STEPS, log=True)
        u = scale * log["u"]
    z = np.min(cost - u[:, None], axis=0)
    u = np.min(cost - z, axis=1)
    rows, columns = np.nonzero(plan)
    masses = plan[rows, columns]
    sizes = abs(base) + scale + float(np.max(np.abs(u))) + float(np.max(np.abs(z)))
    rounding = 4 * (len(p) + len(q) + 16) * UNIT * sizes
    value = base - float(masses @ cost[rows, columns]) - rounding
    return Transport(rows, columns, masses, value, base - float(p @ u + q @ z) + rounding)
