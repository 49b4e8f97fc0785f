"""The front door: `learn` runs to the end, `answers` stops at every report and hands out what is known by then."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from jointmdp import checks
from jointmdp.errors import ModelError
from jointmdp.executors.interface import Executor, Serial, opened
from jointmdp.incremental.discovered_states import LearnedStates
from jointmdp.incremental.learned import Learned, LearnedJoint
from jointmdp.incremental.options import Options, default_steps
from jointmdp.incremental.simulator_learner import SimulatorLearner
from jointmdp.incremental.table_learner import TableLearner
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.progress import Meter

REPORTS = 6  # in every power of ten of steps
PORTION = 0.5  # seconds between two looks at the clock

Answer = Learned | LearnedJoint | LearnedStates


def learn(
    source: Any,
    policy: Any,
    *,
    steps: int | None = None,
    tolerance: float | None = None,
    seconds: float | None = None,
    executor: Executor | str | None = None,
    **options: Any,
) -> Any:
    """Joint moments of returns learned from samples: the paper's incremental JIPE-2, and JIPE-n of higher order.

    Args:
        source: a `JointMDP`, or a simulator whose states are discovered on the way.
        policy: as in `evaluate`; for a simulator as in `simulate_gap`.
        steps: steps of each replica; a step of a sweep updates every coordinate once. By default 100/(1 − γ).
        tolerance: stop earlier, at the first report whose `error` is below it.
        seconds: stop earlier, after about so many seconds.
        executor: where a simulator is sampled, ``"processes"``, ``"ray"`` and so on; the result is the same to the last
            bit. Draws from tables are part of the compiled recursion and have none.
        options: see `Options`: order, collection, coordinates, batch, schedule, averaging, burn_in, replicas, start,
            restart, reward_bound, seed, checkpoint, checkpoint_seconds, memory_limit.

    Returns:
        `Learned`, `LearnedJoint` for ``collection="joint"``, or `LearnedStates` for a simulator. With a checkpoint a
        run that was killed, or that ended before, is taken up where it was.
    """
    found = None
    for found in answers(source, policy, steps=steps, seconds=seconds, executor=executor, **options):
        if tolerance is not None and found.error <= checks.as_positive("tolerance", tolerance):
            break
    assert found is not None
    return found


def answers(
    source: Any,
    policy: Any,
    *,
    steps: int | None = None,
    seconds: float | None = None,
    executor: Executor | str | None = None,
    **options: Any,
) -> Iterator[Answer]:
    """Early answers of `learn`, at about six reports in every power of ten of steps; stop whenever one is enough."""
    limit = None if seconds is None else checks.as_positive("seconds", seconds)
    most = None if steps is None else checks.as_count("steps", steps, most=2**31 - 1)
    learner = _learner(source, policy, Options.of(options))
    if isinstance(learner, TableLearner) and executor not in (None, "serial") and not isinstance(executor, Serial):
        raise ModelError(
            "executor is for simulators: draws from tables are part of the compiled recursion, in this process"
        )
    return _answers(learner, default_steps(learner.discount) if most is None else most, limit, executor)


def _learner(source: Any, policy: Any, options: Options) -> TableLearner | SimulatorLearner:
    if isinstance(source, JointMDP):
        return TableLearner.of(source, policy, options)
    if isinstance(source, tuple):
        raise ModelError("the source is a tuple; built-in models come with a policy: learn(*jointmdp.inventory())")
    from jointmdp.envs.registry import as_simulator

    return SimulatorLearner.of(as_simulator(source), policy, options)


def _answers(
    learner: TableLearner | SimulatorLearner, steps: int, seconds: float | None, executor: Executor | str | None
) -> Iterator[Answer]:
    with opened(executor) as workers:
        if isinstance(learner, SimulatorLearner):
            learner.executor = workers
        yield from _reports(learner, steps, seconds)


def _reports(learner: TableLearner | SimulatorLearner, steps: int, seconds: float | None) -> Iterator[Answer]:
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
            yield learner.answer(state, tuple(log if done >= goal else [*log, row]))
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
