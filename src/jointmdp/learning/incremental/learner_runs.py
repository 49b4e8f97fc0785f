"""Running a learner: to the end, or with a stop at every report and what is known by then."""

import contextlib
import dataclasses
import math
import time
from collections.abc import Generator
from itertools import count
from typing import Any

from numpy.typing import ArrayLike

from jointmdp.ground import checks
from jointmdp.ground.errors import ModelError
from jointmdp.ground.progress import Meter
from jointmdp.learning.incremental.base_learner import LogRows
from jointmdp.learning.incremental.learned import Learned, LearnedJoint, LearnedStates
from jointmdp.learning.incremental.settings import LearnOptions, default_steps
from jointmdp.learning.incremental.simulator_learner import SimulatorLearner
from jointmdp.learning.incremental.table_learner import TableLearner
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.simulation.executors import Executor, Serial, opened
from jointmdp.simulation.simulators.registry import as_simulator

REPORTS = 6  # in every power of ten of steps
PORTION = 0.5  # seconds between two looks at the clock

AnyLearner = Any  # TableLearner, SimulatorLearner, or one of another room with the same methods


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
    return last_answer(reports(TableLearner(model, policy, options, is_joint=True), steps, seconds), tolerance)


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
        return reports(TableLearner(source, policy, options), steps, seconds)
    if isinstance(source, tuple):
        raise ModelError("the source is a tuple; built-in models come with a policy: learn(*jointmdp.envs.inventory())")
    return reports(SimulatorLearner(as_simulator(source), policy, options), steps, seconds, executor)


def last_answer(found: Generator[Any, None, None], tolerance: float | None) -> Any:
    """The first answer whose error is below the tolerance, or the last one."""
    aim = None if tolerance is None else checks.as_positive("tolerance", tolerance)
    answer = None
    with contextlib.closing(found):
        for answer in found:
            if aim is not None and answer.error <= aim:
                break
    assert answer is not None
    return answer


def reports(
    learner: AnyLearner, steps: int | None, seconds: float | None, executor: Executor | str | None = None
) -> Generator[Any, None, None]:
    """The answers of a learner at its reports; limits are checked at once, not at the first answer."""
    most = default_steps(learner.discount) if steps is None else checks.as_count("steps", steps, most=2**31 - 1)
    limit = None if seconds is None else checks.as_positive("seconds", seconds)
    return _run(learner, most, limit, executor)


def _run(
    learner: AnyLearner, steps: int, seconds: float | None, executor: Executor | str | None
) -> Generator[Any, None, None]:
    with opened(executor) as workers, Meter("learning from samples") as meter:
        if not isinstance(learner, TableLearner):
            learner.executor = workers
        state, log = learner.resume()
        begun = time.monotonic()
        before = log[-1]["seconds"] if log else 0.0
        saved, portion, done = begun, 1, int(state.step)
        is_saving = learner.options.checkpoint is not None
        if done >= steps:
            yield learner.answer(state, tuple(log))
        while done < steps:
            goal = min(steps, _next_report(done, getattr(learner, "reports", REPORTS)))
            looked = time.monotonic()
            state = learner.advance(state, min(portion, goal - done))
            done = int(state.step)  # waits for the computation
            now = time.monotonic()
            # Bits do not depend on portions, so they may follow the clock.
            portion = max(1, int(portion * min(4.0, max(0.25, PORTION / max(now - looked, 1e-9)))))
            if is_saving and now - saved >= learner.options.checkpoint_seconds:
                learner.save(state, log)
                saved = time.monotonic()
            meter.update(done / steps, f"step {done:,} of {steps:,}" + _last_error(log))
            is_late = seconds is not None and now - begun >= seconds
            if done < goal and not is_late:
                continue
            answer = learner.answer(state)
            row = {
                "step": done,
                "updates": answer.updates,
                "seconds": before + time.monotonic() - begun,
                "error": _known(answer.error) if answer.replicas > 1 else None,
            }
            if done >= goal:
                log.append(row)
            if is_saving and (done >= steps or is_late):
                learner.save(state, log)
            try:
                yield dataclasses.replace(answer, log=tuple(log if done >= goal else [*log, row]))
            except GeneratorExit:  # an early answer was enough
                if is_saving:
                    learner.save(state, log)
                raise
            if is_late:
                return


def _last_error(log: LogRows) -> str:
    if not log:
        return ""
    error = log[-1]["error"]
    return ", error not known" if error is None else f", error {error:.2g}"


def _known(error: float) -> float | None:
    """An error that is a number: a file of JSON holds no infinity."""
    return error if math.isfinite(error) else None


def _next_report(done: int, each: int) -> int:
    """The next of the steps 10^(k/each), rounded, from 10 on."""
    return next(step for k in count(each) if (step := round(10 ** (k / each))) > done)
