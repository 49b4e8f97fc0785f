"""The paper's iteration M ← TM, stopped by its own certificate, and JIPE-2: that iteration on pairs of coordinates."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import jax
import numpy as np
from numpy.typing import ArrayLike

from jointmdp.exact.bellman import second_moments
from jointmdp.exact.bellman.second_moments import Moments
from jointmdp.exact.moments.certificates import Status, assess_pairs
from jointmdp.exact.moments.stored_moments import FoundMoments, PairMoments
from jointmdp.ground import checks
from jointmdp.ground.arrays import Floats, on_device
from jointmdp.ground.errors import ModelError
from jointmdp.ground.progress import Meter
from jointmdp.model.joint_mdp import JointMDP

PATIENCE = 100  # residuals without a new low after which what is left is rounding

LARGEST = 1e100  # rewards and starting values whose squares floats can hold with room to spare

MOMENT_LIMIT = 2**28  # coordinate pairs that `Iterate` agrees to form: 2 GiB a collection


MomentsT = TypeVar("MomentsT")

BoundsT = TypeVar("BoundsT")

_backup = partial(jax.jit, static_argnames="sharing")(second_moments.moment_backup)


def iterate(
    backup: Callable[[MomentsT], MomentsT],
    assess: Callable[[MomentsT, MomentsT], tuple[float, float, BoundsT]],
    start: MomentsT,
    tolerance: float | None,
    max_steps: int,
    title: str,
) -> tuple[MomentsT, BoundsT, Status, int, Floats]:
    """M ← TM until the certified error is at most `tolerance`; without one, exactly `max_steps` times.

    ``assess(M, TM)`` gives the residual as computed, the largest certified error, and all bounds. The answer ends with
    the status, the steps taken, and the residuals as computed, of the start and after each step.
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
                return M, bounds, status, steps, np.array(history)
            M, steps = after, steps + 1
            meter.update(steps / max_steps, f"step {steps}, certified error {worst:.1e}")


@dataclass(frozen=True)
class Iterate:
    """The paper's JIPE-2: M ← T₂M on all pairs of coordinates, with its residual history."""

    tolerance: float | None = 1e-8
    """Bound on the certified error of means and second moments; None takes exactly `max_steps` steps."""
    max_steps: int = 100_000
    start: tuple[ArrayLike, ArrayLike] | None = None
    """First collection: means ``[S, A]`` and second moments ``[S, A, S, A]``; zero by default."""
    throw: bool = False


def solve_iterate(model: JointMDP, policy: Floats, method: Iterate) -> FoundMoments[PairMoments]:
    """`Iterate` from its first collection on."""
    if method.tolerance is not None:
        checks.as_positive("tolerance", method.tolerance)
    max_steps = checks.as_count("max_steps", method.max_steps, least=0)
    tables = second_moments.model_tables(model, policy)
    backup, assess = partial(_backup, tables, sharing=model.sharing), partial(assess_pairs, model, tables)
    first = _first_collection(model, method)
    M, certificate, status, steps, history = iterate(backup, assess, first, method.tolerance, max_steps, "T₂")
    moments = PairMoments(np.asarray(M.mean), np.asarray(M.second))
    return FoundMoments(moments, certificate, status, steps, history)


def _first_collection(model: JointMDP, method: Iterate) -> Moments:
    S, A = model.num_states, model.num_actions
    if (S * A) ** 2 > MOMENT_LIMIT:
        raise ModelError(
            f"Iterate forms all {(S * A) ** 2:,} pairs of state-action coordinates, "
            f"{(S * A) ** 2 * 8 / 2**30:.1f} GiB a collection; the default method needs only pairs of states"
        )
    if method.start is None:
        return Moments(on_device(np.zeros((S, A))), on_device(np.zeros((S, A, S, A))))
    mean = checks.as_floats("start means", method.start[0], "[S, A]", 2)
    second = checks.as_floats("start second moments", method.start[1], "[S, A, S, A]", 4)
    checks.check_shape("start means", mean, (S, A), "[S, A]")
    checks.check_shape("start second moments", second, (S, A, S, A), "[S, A, S, A]")
    checks.check_finite("start mean", mean, "state", "action")
    checks.check_finite("start second moment", second, "state", "action", "state", "action")
    if np.max(np.abs(mean)) > LARGEST or np.max(np.abs(second)) > LARGEST:
        raise ModelError(f"the starting collection has entries above {LARGEST:g}, whose squares floats cannot hold")
    return Moments(on_device(mean), on_device(second))
