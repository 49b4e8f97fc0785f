"""The front door of everything that learns from samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

from jointmdp.ground.errors import ModelError
from jointmdp.learning.incremental.method import Incremental
from jointmdp.learning.runs import Method
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.simulation.executors import Executor

if TYPE_CHECKING:
    from jointmdp.learning.incremental.learned import Learned, LearnedStates
    from jointmdp.learning.neural.method import Neural
    from jointmdp.learning.neural.training import TrainedMoments
    from jointmdp.learning.projected.feature_learner import LearnedFeatures
    from jointmdp.learning.projected.projecting import Projected


class LearnLimits(TypedDict, total=False):
    """When `learn` stops, and where it runs."""

    steps: int | None
    tolerance: float | None
    seconds: float | None
    executor: Executor | str | None


@overload
def learn(
    source: JointMDP, policy: Any, method: Incremental | None = ..., **limits: Unpack[LearnLimits]
) -> Learned: ...
@overload
def learn(source: Any, policy: Any, method: Projected, **limits: Unpack[LearnLimits]) -> LearnedFeatures: ...
@overload
def learn(source: Any, policy: Any, method: Neural, **limits: Unpack[LearnLimits]) -> TrainedMoments: ...
@overload
def learn(
    source: Any, policy: Any, method: Incremental | None = ..., **limits: Unpack[LearnLimits]
) -> LearnedStates: ...


def learn(
    source: Any,
    policy: Any,
    method: Method | None = None,
    *,
    steps: int | None = None,
    tolerance: float | None = None,
    seconds: float | None = None,
    executor: Executor | str | None = None,
) -> Any:
    """Joint moments of returns learned from samples.

    Args:
        source: a `JointMDP`, or a simulator; one whose states are to be learned one by one discovers them on the way.
        policy: as in `evaluate`; for a simulator as in `simulate_gap`.
        method: `Incremental(...)` by default, the paper's incremental JIPE-2 and higher moments of pairs, one number
            for each coordinate and pair. `Projected(features, ...)`, projected JIPE-2, and `Neural(...)`, neural
            JIPE-2, are for state spaces too large to list, or continuous.
        steps: steps of each replica; a step of a sweep updates every coordinate once, any other visits a batch of
            pairs. By default 100/(1 − γ). Of networks: steps of the optimiser, by default 20,000.
        tolerance: stop earlier, at the first report whose `error` is below it.
        seconds: stop earlier, after about so many seconds.
        executor: where a simulator is sampled, ``"processes"``, ``"ray"`` and so on; the result is the same to the last
            bit. Incremental draws from tables are part of the compiled recursion and have none.

    Returns:
        `Learned` for a model, `LearnedStates` for a simulator, `LearnedJoint` with ``Incremental(joint=True)``,
        `LearnedFeatures` with features, `TrainedMoments` with networks. With a checkpoint a run that was killed, or
        that ended before, is continued. ``method.answers(source, policy)`` gives the answers on the way, too.
    """
    if method is not None and not isinstance(method, Method):
        raise ModelError(
            "method must be jointmdp.Incremental(...), jointmdp.Projected(features) or jointmdp.Neural(...), not "
            f"{method!r:.80}"
        )
    method = Incremental() if method is None else method
    return method.learn(source, policy, tolerance=tolerance, steps=steps, seconds=seconds, executor=executor)
