"""What everything that learns has in common: settings, reports, stops, progress, and the run on disk.

A `Method` holds settings and makes a `Learner`, which draws samples and forms answers. Here learners are run: to the
end, or with a stop at every report and what is known by then.

A checkpoint holds the state between two steps and what the run was asked to do. It is a sealed archive: a plain zip of
arrays and JSON with a checksum, in a temporary file that is synced and renamed, so that a run killed at any moment
finds its last checkpoint whole. The run that continues from it is bit for bit the run that was never killed, because
each step draws from the seed and its own number alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar

import jax
import numpy as np
from numpy.typing import NDArray

from jointmdp.ground import archives, checks
from jointmdp.ground.arrays import float64, on_device
from jointmdp.ground.errors import ModelError
from jointmdp.ground.files import FilePath, path_name
from jointmdp.ground.progress import Meter
from jointmdp.simulation.executors import Executor, Serial, opened

KIND = "learning"
REPORTS = 6  # in every power of ten of steps
PORTION = 0.5  # seconds between two looks at the clock
RUN = 100.0  # effective horizons 1/(1−γ) of a run whose length is not given
LEAST = 1000  # steps of such a run at least

LogRows = list[dict[str, Any]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Method(ABC):
    """A way to learn, with its settings."""

    seed: int = 0
    checkpoint: FilePath | None = None
    """Where the run is saved now and then, and continued from."""
    checkpoint_seconds: float = 10.0
    """Seconds between two savings."""

    def __post_init__(self) -> None:
        self._keep("seed", checks.as_count, 0, 2**63 - 1)
        self._keep("checkpoint_seconds", checks.as_amount)

    def _keep(self, name: str, check: Callable[..., Any], *limits: int) -> None:
        """Hold a setting as its check gives it back; None stays None where it is the default."""
        value = getattr(self, name)
        if value is not None or self.__dataclass_fields__[name].default is not None:
            object.__setattr__(self, name, check(name, value, *limits))

    @abstractmethod
    def learner(self, source: Any, policy: Any) -> Learner:
        """A run, to be made step by step: `init`, `advance`, `answer`."""

    def answers(
        self,
        source: Any,
        policy: Any,
        *,
        steps: int | None = None,
        seconds: float | None = None,
        executor: Executor | str | None = None,
    ) -> Generator[Any, None, None]:
        """Early answers of `jointmdp.learn`, one at every report; stop whenever one is enough."""
        if isinstance(source, tuple):
            raise ModelError(
                "the source is a tuple; built-in models come with a policy: learn(*jointmdp.envs.inventory())"
            )
        learner = self.learner(source, policy)
        most = learner.default_steps if steps is None else checks.as_count("steps", steps, most=2**31 - 1)
        limit = None if seconds is None else checks.as_positive("seconds", seconds)
        if learner.is_compiled and executor not in (None, "serial") and not isinstance(executor, Serial):
            raise ModelError(
                "executor is for simulators: draws from tables are part of the compiled recursion, in this process"
            )
        return _run(learner, most, limit, executor)

    def learn(self, source: Any, policy: Any, *, tolerance: float | None = None, **limits: Any) -> Any:
        """The first answer whose error is below the tolerance, or the last one."""
        aim = None if tolerance is None else checks.as_positive("tolerance", tolerance)
        answer = None
        with contextlib.closing(self.answers(source, policy, **limits)) as found:
            for answer in found:
                if aim is not None and answer.error <= aim:
                    break
        assert answer is not None
        return answer


@dataclass(frozen=True, eq=False, kw_only=True)
class SamplingMethod(Method):
    """A way to learn from mini-batches of samples, by several independent runs."""

    replicas: int = 8
    """Independent runs, whose disagreement gives the error; 1 for no error."""
    batch: int = 32
    """Lists of coordinates in one step of one replica; a sweep is one list of all."""
    memory_limit: float = 2 * 2**30
    """Bytes that what is learned may take."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep("replicas", checks.as_count)
        self._keep("batch", checks.as_count)
        self._keep("memory_limit", checks.as_positive)


class Learner(ABC):
    """A run with its settings: ``state = learner.init()``, ``learner.advance(state, 100)``, ``learner.answer(state)``.

    States are values, and all that the next step needs.
    """

    title: ClassVar[str] = "learning from samples"
    reports: ClassVar[int] = REPORTS
    is_compiled: ClassVar[bool] = False  # samples are drawn inside the compiled recursion, so there is no executor
    may_grow: ClassVar[bool] = False  # whether the arrays of a state may become larger
    precision: ClassVar[Any] = staticmethod(float64)

    def __init__(self, method: Any, discount: float, described: Mapping[str, Any]) -> None:
        """`described` is what must be the same for a run to be continued."""
        self.method, self.discount, self.described = method, discount, dict(described)
        self.executor: Executor = Serial()

    @property
    def default_steps(self) -> int:
        """Steps of a run whose length is not given."""
        return max(LEAST, whole(RUN / (1 - self.discount)))

    @property
    def path(self) -> FilePath | None:
        """Where the checkpoint is."""
        path: FilePath | None = self.method.checkpoint
        return path

    def prepare(self, steps: int) -> None:  # noqa: B027 - there may be nothing to prepare
        """Called before the first of so many steps, when there is an executor."""

    def close(self) -> None:  # noqa: B027 - there may be nothing to close
        """Called after the last."""

    @abstractmethod
    def init(self) -> Any:
        """The state before the first step."""

    @abstractmethod
    def advance(self, state: Any, count: int) -> Any:
        """`count` steps at once."""

    @abstractmethod
    def answer(self, state: Any, log: tuple[dict[str, Any], ...] = ()) -> Any:
        """What has been learned so far."""

    def next_report(self, done: int) -> int:
        """The next of the steps 10^(k/reports), rounded, from 10 on."""
        return next(step for k in count(self.reports) if (step := round(10 ** (k / self.reports))) > done)

    def portion(self, now: int, took: float) -> int:
        """Steps until the next look at the clock; bits do not depend on portions, so they may follow it."""
        return max(1, int(now * min(4.0, max(0.25, PORTION / max(took, 1e-9)))))

    def row(self, answer: Any, seconds: float) -> dict[str, Any]:
        """What the log says of a report; a file of JSON holds no infinity."""
        error = answer.error if answer.replicas > 1 else math.inf
        known = error if math.isfinite(error) else None
        return {"step": answer.steps, "updates": answer.updates, "seconds": seconds, "error": known}

    def words(self, log: LogRows) -> str:
        """What the last report says, for the line that shows the progress."""
        if not log:
            return ""
        error = log[-1]["error"]
        return ", error not known" if error is None else f", error {error:.2g}"

    def save(self, state: Any, log: LogRows) -> None:
        """Write the checkpoint."""
        assert self.path is not None
        arrays = {f"part{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))} | self._extra(state)
        plain = {name: np.array(array, dtype=_file_type(array), order="C") for name, array in arrays.items()}
        archives.write_checkpoint(self.path, KIND, self.described, log, plain)

    def resume(self) -> tuple[Any, LogRows]:
        """The state and log of the checkpoint, or those before the first step."""
        first, path = self.init(), self.path
        if path is None or not os.path.exists(path_name(path)):
            return first, []
        log, arrays = archives.read_checkpoint(path, KIND, self.described)
        leaves, tree = jax.tree.flatten(first)
        names = [f"part{i}" for i in range(len(leaves))]
        archives.check_arrays(path, arrays, [*names, *self._extra(first)])
        with self.precision():
            found = [
                on_device(archives.fitted(path, name, arrays[name], leaf, may_grow=self.may_grow))
                for name, leaf in zip(names, leaves, strict=True)
            ]
            state = jax.tree.unflatten(tree, found)
        self._restore(int(state.step), arrays)
        return state, log

    def _extra(self, state: Any) -> dict[str, NDArray[Any]]:
        """What a checkpoint holds beside the state."""
        return {}

    def _restore(self, step: int, arrays: Mapping[str, NDArray[Any]]) -> None:  # noqa: B027 - there may be nothing
        """Continue from the `_extra` arrays of a checkpoint."""


def _file_type(array: NDArray[Any]) -> str:
    return "<i8" if array.dtype.kind != "f" else "<f4" if array.dtype == np.float32 else "<f8"


def _run(
    learner: Learner, steps: int, seconds: float | None, executor: Executor | str | None
) -> Generator[Any, None, None]:
    with opened(executor) as learner.executor, contextlib.closing(learner):
        learner.prepare(steps)
        with Meter(learner.title) as meter:
            yield from _reports(learner, steps, seconds, meter)


def _reports(learner: Learner, steps: int, seconds: float | None, meter: Meter) -> Generator[Any, None, None]:
    state, log = learner.resume()
    begun = saved = time.monotonic()
    before = log[-1].get("seconds", 0.0) if log else 0.0
    portion, done, is_late = learner.portion(1, PORTION), int(state.step), False
    is_saving = learner.path is not None
    if done >= steps:
        yield learner.answer(state, tuple(log))
    while done < steps and not is_late:
        goal = min(steps, learner.next_report(done))
        looked = time.monotonic()
        state = learner.advance(state, min(portion, goal - done))
        done = int(state.step)  # waits for the computation
        now = time.monotonic()
        portion = learner.portion(portion, now - looked)
        is_late = seconds is not None and now - begun >= seconds
        is_report, answer = done >= goal, None
        if is_report or is_late:
            answer = learner.answer(state)
            row = learner.row(answer, before + time.monotonic() - begun)
            log += [row] * is_report
        if is_saving and (done >= steps or is_late or now - saved >= learner.method.checkpoint_seconds):
            learner.save(state, log)
            saved = time.monotonic()
        meter.update(done / steps, f"step {done:,} of {steps:,}" + learner.words(log))
        if answer is None:
            continue
        try:
            yield dataclasses.replace(answer, log=tuple(log if is_report else [*log, row]))
        except GeneratorExit:  # an early answer was enough
            if is_saving:
                learner.save(state, log)
            raise


def whole(number: float) -> int:
    """Rounded up, except for what is rounding already."""
    return math.ceil(number * (1 - 1e-12))
