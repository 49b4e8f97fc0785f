"""The front door of everything that learns from samples, and its three methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Never, TypedDict, Unpack, overload

from jointmdp.exact.moments.column_blocks import Sharded
from jointmdp.exact.moments.iteration import Iterate
from jointmdp.exact.moments.pair_solver import Solve
from jointmdp.ground import checks
from jointmdp.ground.arrays import Floats
from jointmdp.ground.errors import ModelError
from jointmdp.learning.incremental.settings import IncrementalSettings
from jointmdp.learning.neural.settings import NeuralSettings
from jointmdp.learning.projected.projecting import ProjectedSolution, ProjectionSettings, project
from jointmdp.learning.runs import Method
from jointmdp.model.gumbel_max import warn_of_draws
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.simulation.executors import Executor
from jointmdp.simulation.simulators.registry import as_simulator

if TYPE_CHECKING:
    from jointmdp.learning.incremental.learned import Learned, LearnedStates
    from jointmdp.learning.incremental.learners import SimulatorLearner, TableLearner
    from jointmdp.learning.neural.training import NetworkLearner, TrainedMoments
    from jointmdp.learning.projected.feature_learner import FeatureLearner, LearnedFeatures


@dataclass(frozen=True, eq=False)
class Incremental(IncrementalSettings):
    """The paper's incremental JIPE-2 and JIPE-n: one number for each coordinate and pair, in tables or discovered."""

    def learner(self, source: Any, policy: Any) -> TableLearner | SimulatorLearner:
        """The recursion itself, to be made step by step."""
        from jointmdp.learning.incremental.learners import SimulatorLearner, TableLearner

        if isinstance(source, JointMDP):
            warn_of_draws(source)
            return TableLearner(source, policy, self)
        if self.joint:
            raise ModelError(f"with joint=True the source must be a JointMDP, not {type(source).__name__}")
        return SimulatorLearner(as_simulator(source), policy, self)


@dataclass(frozen=True, eq=False)
class Projected(ProjectionSettings):
    """Projected JIPE-2: means and covariances as linear functions of features, at the fixed point of the projection.

    `jointmdp.evaluate` projects a model in tables, and `jointmdp.learn` finds the same fixed point from samples, which
    the settings of samples belong to: `replicas`, `batch`, `seed`, `checkpoint`, `memory_limit`.
    """

    def solution(self, model: JointMDP, policy: Floats) -> ProjectedSolution:
        """What `evaluate` gives with this method."""
        return project(model, policy, self)

    def learner(self, source: Any, policy: Any) -> FeatureLearner:
        """The sums of a run, to be made step by step."""
        from jointmdp.learning.projected.feature_learner import FeatureLearner

        return FeatureLearner(as_simulator(source), policy, self)


@dataclass(frozen=True, eq=False, kw_only=True)
class Neural(NeuralSettings):
    """The paper's neural JIPE-2: networks for means and covariances at any state. The checkpoint is a folder."""

    def learner(self, source: Any, policy: Any) -> NetworkLearner:
        """The training, to be made step by step after `prepare`."""
        from jointmdp.learning.neural.training import NetworkLearner

        return NetworkLearner(as_simulator(source), policy, self)

    def learn(self, source: Any, policy: Any, *, tolerance: float | None = None, **limits: Any) -> Any:
        """What networks say after all steps."""
        if tolerance is not None:
            raise ModelError("the error of networks is not known as they are trained; leave tolerance out")
        return super().learn(source, policy, **limits)


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
    method: Any = None,
    *,
    steps: int | None = None,
    tolerance: float | None = None,
    seconds: float | None = None,
    executor: Executor | str | None = None,
    **unknown: Never,
) -> Any:
    """Joint moments of returns learned from samples.

    Args:
        source: a `JointMDP`, or a simulator; one whose states are to be learned one by one discovers them on the way.
        policy: as in `evaluate`; for a simulator as in `simulate`.
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
    checks.refuse_keywords(unknown, learn)
    if method is not None and not isinstance(method, Method):
        name = type(method).__name__
        if isinstance(method, Solve | Sharded | Iterate):
            raise ModelError(f"{name}(…) solves equations of tables: evaluate(model, policy, {name}(…)); learn samples")
        raise ModelError(
            "method must be jointmdp.Incremental(...), jointmdp.Projected(features) or jointmdp.Neural(...), not "
            f"{method!r:.80}"
        )
    method = Incremental() if method is None else method
    return method.learn(source, policy, tolerance=tolerance, steps=steps, seconds=seconds, executor=executor)
