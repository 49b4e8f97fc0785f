"""The paper's iteration M ← TM, stopped by its own certificate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from jointmdp.arrays import Floats
from jointmdp.errors import Status
from jointmdp.progress import Meter

PATIENCE = 100  # residuals without a new low after which what is left is rounding

Moments = TypeVar("Moments")
Bounds = TypeVar("Bounds")


class Iterated(NamedTuple, Generic[Moments, Bounds]):
    """Where an iteration ended."""

    moments: Moments
    bounds: Bounds
    status: Status
    steps: int
    history: Floats  # residuals as computed, of the start and after each step


def iterate(
    backup: Callable[[Moments], Moments],
    assess: Callable[[Moments, Moments], tuple[float, float, Bounds]],
    start: Moments,
    tolerance: float | None,
    max_steps: int,
    title: str,
) -> Iterated[Moments, Bounds]:
    """M ← TM until the certified error is at most `tolerance`; without one, exactly `max_steps` times.

    ``assess(M, TM)`` gives the residual as computed, the largest certified error, and all bounds.
    """
    M, history, low, steps = start, list[float](), 0, 0
    with Meter(title) as meter:
        while True:
            after = backup(M)
            residual, worst, bounds = assess(M, after)
            history.append(residual)
            low = steps if residual < history[low] else low
            status = None
            if tolerance is not None and worst <= tolerance:
                status = Status.CONVERGED
            elif tolerance is not None and (residual == 0 or (steps - low >= PATIENCE and steps >= 2 * PATIENCE)):
                status = Status.STAGNATED
            elif steps == max_steps:
                status = Status.COMPLETED if tolerance is None else Status.STEP_LIMIT
            if status is not None:
                return Iterated(M, bounds, status, steps, np.array(history))
            M, steps = after, steps + 1
            meter.update(steps / max_steps, f"step {steps}, certified error {worst:.1e}")
