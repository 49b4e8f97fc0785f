"""The front door of everything that learns from samples."""

from typing import Any, TypedDict, Unpack, overload

from jointmdp.learning.incremental.learned import Learned, LearnedStates
from jointmdp.learning.incremental.learner_runs import answers, last_answer, reports
from jointmdp.learning.incremental.settings import LearnOptions
from jointmdp.learning.projected.feature_learner import FeatureLearner, LearnedFeatures
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.simulation.executors import Executor
from jointmdp.simulation.simulators.any_simulator import as_simulator


class LearnLimits(TypedDict, total=False):
    """When `learn` stops, and where it runs."""

    steps: int | None
    tolerance: float | None
    seconds: float | None
    executor: Executor | str | None


@overload
def learn(
    source: JointMDP,
    policy: Any,
    options: LearnOptions | None = ...,
    *,
    features: None = ...,
    **limits: Unpack[LearnLimits],
) -> Learned: ...


@overload
def learn(
    source: Any, policy: Any, options: LearnOptions | None = ..., *, features: None = ..., **limits: Unpack[LearnLimits]
) -> LearnedStates: ...


@overload
def learn(
    source: Any, policy: Any, options: LearnOptions | None = ..., *, features: Any, **limits: Unpack[LearnLimits]
) -> LearnedFeatures: ...


def learn(
    source: Any,
    policy: Any,
    options: LearnOptions | None = None,
    *,
    features: Any = None,
    steps: int | None = None,
    tolerance: float | None = None,
    seconds: float | None = None,
    executor: Executor | str | None = None,
) -> Learned | LearnedStates | LearnedFeatures:
    """Joint moments of returns learned from samples.

    Without features: the paper's incremental JIPE-2 and higher moments of pairs, one number for each coordinate and
    pair. With features: projected JIPE-2, for state spaces too large to list or continuous.

    Args:
        source: a `JointMDP`, or a simulator whose states are discovered on the way.
        policy: as in `evaluate`; for a simulator as in `simulate_gap`.
        options: order, coordinates, replicas, seed, checkpoint and the rest: see `LearnOptions`.
        features: `jointmdp.features.…`, a function ``f(observation, action) -> [K]``, for a model also an array
            ``[S, A, K]``; or `Projected(features, constraint=…)` with settings of its own.
        steps: steps of each replica; a step of a sweep updates every coordinate once, any other visits a batch of
            pairs. By default 100/(1 − γ).
        tolerance: stop earlier, at the first report whose `error` is below it.
        seconds: stop earlier, after about so many seconds.
        executor: where a simulator is sampled, ``"processes"``, ``"ray"`` and so on; the result is the same to the last
            bit. Draws from tables are part of the compiled recursion and have none, unless features are learned.

    Returns:
        `Learned` for a model, `LearnedStates` for a simulator, `LearnedFeatures` with features. With a checkpoint a run
        that was killed, or that ended before, is continued.
    """
    if features is None:
        return last_answer(answers(source, policy, options, steps=steps, seconds=seconds, executor=executor), tolerance)
    learner = FeatureLearner(as_simulator(source), policy, features, options)
    return last_answer(reports(learner, steps, seconds, executor), tolerance)
