"""The paper's iteration M ← TM, stopped by its own certificate, and what is said when that misses the tolerance."""

import warnings
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from jointmdp.arrays import Floats
from jointmdp.errors import ConvergenceError, ConvergenceWarning, Status
from jointmdp.progress import Meter

PATIENCE = 100  # residuals without a new low after which what is left is rounding

MomentsT = TypeVar("MomentsT")
BoundsT = TypeVar("BoundsT")


class Iterated(NamedTuple, Generic[MomentsT, BoundsT]):
    """Where an iteration ended."""

    moments: MomentsT
    bounds: BoundsT
    status: Status
    steps: int
    history: Floats  # residuals as computed, of the start and after each step


def iterate(
    backup: Callable[[MomentsT], MomentsT],
    assess: Callable[[MomentsT, MomentsT], tuple[float, float, BoundsT]],
    start: MomentsT,
    tolerance: float | None,
    max_steps: int,
    title: str,
) -> Iterated[MomentsT, BoundsT]:
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


def report_missed(status: Status, bounds: str, throw: bool) -> None:
    """Raise or warn, in the name of the caller's caller, where a method did not reach its tolerance."""
    if status.is_success:
        return
    message = f"{status.value} ({bounds})"
    if throw:
        raise ConvergenceError(message)
    warnings.warn(message, ConvergenceWarning, stacklevel=3)
