"""The front door: `learn` runs to the end, `answers` stops at every report and hands out what is known by then."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator
from typing import Any, TypeVar, overload

from numpy.typing import ArrayLike

from jointmdp import checks
from jointmdp.errors import ModelError
from jointmdp.executors import Executor, Serial, opened
from jointmdp.incremental.discovered_states import LearnedStates
from jointmdp.incremental.learned import Learned, LearnedJoint
from jointmdp.incremental.options import LearnOptions, default_steps
from jointmdp.incremental.simulator_learner import SimulatorLearner
from jointmdp.incremental.table_learner import TableLearner
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.progress import Meter
from jointmdp.simulators.any_simulator import as_simulator

REPORTS = 6  # in every power of ten of steps
PORTION = 0.5  # seconds between two looks at the clock

Answer = Learned | LearnedJoint | LearnedStates
AnyAnswer = TypeVar("AnyAnswer", bound=Answer)


@overload
def learn(
    source: JointMDP,
    policy: Any,
    options: LearnOptions | None = ...,
    *,
    steps: int | None = ...,
    tolerance: float | None = ...,
    seconds: float | None = ...,
    executor: Executor | str | None = ...,
) -> Learned: ...


@overload
def learn(
    source: Any,
    policy: Any,
    options: LearnOptions | None = ...,
    *,
    steps: int | None = ...,
    tolerance: float | None = ...,
    seconds: float | None = ...,
    executor: Executor | str | None = ...,
) -> LearnedStates: ...


def learn(
    source: Any,
    policy: Any,
    options: LearnOptions | None = None,
    *,
    steps: int | None = None,
    tolerance: float | None = None,
    seconds: float | None = None,
    executor: Executor | str | None = None,
) -> Learned | LearnedStates:
    """Joint moments of returns learned from samples: the paper's incremental JIPE-2, and higher moments of pairs.

    Args:
        source: a `JointMDP`, or a simulator whose states are discovered on the way.
        policy: as in `evaluate`; for a simulator as in `simulate_gap`.
        options: order, coordinates, replicas, seed, checkpoint and the rest: see `LearnOptions`.
        steps: steps of each replica; a step of a sweep updates every coordinate once. By default 100/(1 − γ).
        tolerance: stop earlier, at the first report whose `error` is below it.
        seconds: stop earlier, after about so many seconds.
        executor: where a simulator is sampled, ``"processes"``, ``"ray"`` and so on; the result is the same to the last
            bit. Draws from tables are part of the compiled recursion and have none.

    Returns:
        `Learned` for a model, `LearnedStates` for a simulator. With a checkpoint a run that was killed, or that ended
        before, is continued.
    """
    return _last(answers(source, policy, options, steps=steps, seconds=seconds, executor=executor), tolerance)


def learn_joint_moments(
    model: JointMDP,
    policy: ArrayLike,
    options: LearnOptions | None = None,
    *,
    steps: int | None = None,
    tolerance: float | None = None,
    seconds: float | None = None,
) -> LearnedJoint:
    """The moments of any number of returns up to ``options.order``, learned: the paper's incremental JIPE-n.

    For small models: there is one number for every multiset of coordinates. The arguments are those of `learn`.
    """
    if not isinstance(model, JointMDP):
        raise ModelError(f"the model must be a JointMDP, not {type(model).__name__}")
    learner = TableLearner(model, policy, options, is_joint=True)
    found = _last(_reports(learner, *_limits(learner.discount, steps, seconds)), tolerance)
    assert isinstance(found, LearnedJoint)
    return found


def answers(
    source: Any,
    policy: Any,
    options: LearnOptions | None = None,
    *,
    steps: int | None = None,
    seconds: float | None = None,
    executor: Executor | str | None = None,
) -> Generator[Learned | LearnedStates, None, None]:
    """Early answers of `learn`, at about six reports in every power of ten of steps; stop whenever one is enough."""
    if isinstance(source, JointMDP):
        if executor not in (None, "serial") and not isinstance(executor, Serial):
            raise ModelError(
                "executor is for simulators: draws from tables are part of the compiled recursion, in this process"
            )
        learner = TableLearner(source, policy, options)
        return _reports(learner, *_limits(learner.discount, steps, seconds))  # type: ignore[return-value]
    if isinstance(source, tuple):
        raise ModelError("the source is a tuple; built-in models come with a policy: learn(*jointmdp.inventory())")
    walker = SimulatorLearner(as_simulator(source), policy, options)
    return _sampled(walker, *_limits(walker.discount, steps, seconds), executor)


def _limits(discount: float, steps: int | None, seconds: float | None) -> tuple[int, float | None]:
    most = default_steps(discount) if steps is None else checks.as_count("steps", steps, most=2**31 - 1)
    return most, None if seconds is None else checks.as_positive("seconds", seconds)


def _last(found: Generator[AnyAnswer, None, None], tolerance: float | None) -> AnyAnswer:
    """The first answer whose error is below the tolerance, or the last one."""
    aim = None if tolerance is None else checks.as_positive("tolerance", tolerance)
    answer = None
    with contextlib.closing(found):
        for answer in found:
            if aim is not None and answer.error <= aim:
                break
    assert answer is not None
    return answer


def _sampled(
    learner: SimulatorLearner, steps: int, seconds: float | None, executor: Executor | str | None
) -> Generator[LearnedStates, None, None]:
    with opened(executor) as workers:
        learner.executor = workers
        yield from _reports(learner, steps, seconds)  # type: ignore[misc]


def _reports(
    learner: TableLearner | SimulatorLearner, steps: int, seconds: float | None
) -> Generator[Answer, None, None]:
    state, log = learner.resume()
    begun = time.monotonic()
    before = log[-1]["seconds"] if log else 0.0
    saved, portion, done = begun, 1, int(state.step)
    is_saving = learner.options.checkpoint is not None
    with Meter("learning from samples") as meter:
        if done >= steps:
            yield learner.answer(state, tuple(log))
            return
        while done < steps:
            goal = min(steps, _next_report(done))
            is_late = False
            while done < goal and not is_late:
                looked = time.monotonic()
                state = learner.advance(state, min(portion, goal - done))
                done = int(state.step)  # waits for the computation
                now = time.monotonic()
                # Bits do not depend on portions, so they may follow the clock.
                portion = max(1, int(portion * min(4.0, max(0.25, PORTION / max(now - looked, 1e-9)))))
                if is_saving and now - saved >= learner.options.checkpoint_seconds:
                    learner.save(state, log)
                    saved = time.monotonic()
                meter.update(done / steps, f"step {done:,} of {steps:,}" + (f", {_error(log)}" if log else ""))
                is_late = seconds is not None and now - begun >= seconds
            answer = learner.answer(state, tuple(log))
            row = {
                "step": done,
                "updates": answer.updates,
                "seconds": before + time.monotonic() - begun,
                "error": answer.error if answer.replicas > 1 else None,
            }
            if done >= goal:
                log.append(row)
            if is_saving and (done >= steps or is_late):
                learner.save(state, log)
            try:
                yield learner.answer(state, tuple(log if done >= goal else [*log, row]))
            except GeneratorExit:  # an early answer was enough
                if is_saving:
                    learner.save(state, log)
                raise
            if is_late:
                return


def _error(log: list[dict[str, Any]]) -> str:
    error = log[-1]["error"]
    return "one replica, no error" if error is None else f"error {error:.2g}"


def _next_report(done: int) -> int:
    """The next of the steps 10^(k/6), rounded, from 10 on."""
    k = 6
    while round(10 ** (k / REPORTS)) <= done:
        k += 1
    return round(10 ** (k / REPORTS))
