"""Training networks as a run: queries are recorded first, and trained networks answer at any state of a simulator.

Every number is the mean over the networks, and its error half the width of Student's 95 % interval of that mean: how
far another set of networks, trained on the same queries, may be off. It is not the error of the queries, nor what
networks of this size cannot learn: `jointmdp.simulate` at some states shows those.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from jointmdp.exact.bellman.network_backups import MomentHeads
from jointmdp.ground import archives
from jointmdp.ground.arrays import Floats, float32, on_device
from jointmdp.ground.errors import ModelError
from jointmdp.ground.files import FilePath, make_folder, path_name
from jointmdp.learning.estimates import Estimate, Replicas, StateAnswers
from jointmdp.learning.neural.queries import RecordedQueries, as_numbers, as_source_policy, record_queries
from jointmdp.learning.neural.settings import BLOCKS, NeuralSettings
from jointmdp.learning.neural.trainer import PORTION, Trainer, TrainState
from jointmdp.learning.runs import KIND, Learner, LogRows
from jointmdp.learning.walks import behaviour, run_of, state_key
from jointmdp.simulation.simulators.simulator import Simulator

WEIGHTS = "weights.jointmdp"  # a file of a checkpoint, beside the recorded queries
UNITS = "units"  # what the weights answer in


def event_writer(folder: FilePath | None) -> Any:
    """What writes the log that TensorBoard reads, where a folder for it is given."""
    if folder is None:
        return None
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise ImportError("log= needs tensorboardX, which is not installed: pip install 'jointmdp[neural]'") from error
    return SummaryWriter(path_name(folder))


@dataclass(frozen=True)
class NetworkPlace:
    """A coordinate, and what each network says of it."""

    key: bytes
    action: int
    mean: Floats = field(compare=False)  # [R]
    v: Floats = field(compare=False)  # [R, rank]
    w: Floats = field(compare=False)
    d: Floats = field(compare=False)  # [R]

    def covariance(self, other: NetworkPlace) -> Floats:
        """With another coordinate, ``[R]``."""
        found: Floats = np.einsum("rk,rk->r", self.v, other.v)
        if self.key == other.key:
            found = found + np.einsum("rk,rk->r", self.w, other.w)
        return found + self.d if self == other else found


@dataclass(frozen=True, eq=False, repr=False)
class TrainedMoments(StateAnswers):
    """What networks say after training: ``mean_at``, ``covariance_at``, ``gap`` and more, at a state."""

    simulator: Simulator
    trainer: Trainer
    state: TrainState
    log: tuple[dict[str, Any], ...]
    """One row for each portion of steps: TD errors of every block."""
    _seen: dict[bytes, MomentHeads] = field(default_factory=dict)

    def __repr__(self) -> str:
        networks, most = self.trainer.method.networks, self.trainer.steps
        return (
            f"TrainedMoments({self.simulator.name}, {networks} networks, {self.steps:,} of {most:,} "
            f"steps on {len(self.trainer.queries):,} recorded lists; errors are the spread of the networks: compare "
            "some gaps with simulate)"
        )

    @property
    def steps(self) -> int:
        """Steps taken."""
        return int(self.state.step)

    @cached_property
    def _heads(self) -> Callable[[Any, Any], Any]:
        return jax.jit(jax.vmap(self.trainer.heads, in_axes=(0, None)))

    def heads(self, state: Any) -> MomentHeads:
        """What each network says of all actions at a state, ``[networks, A]``, in units of rewards."""
        place = self.simulator.snapshot(state)
        key = state_key(self.simulator, place)
        if key not in self._seen:
            stored = self.trainer.encoding.one(as_numbers(self.simulator, place))
            with float32():
                found = self._heads(self.state.average, on_device(stored))
            mean, v, w, d = (np.asarray(part, dtype=np.float64) for part in found)
            size, alive = self.trainer.encoding.units.deviation, not self.simulator.is_over(place)
            mean = mean * size + self.trainer.encoding.units.reward / (1 - self.trainer.queries.discount)
            self._seen[key] = MomentHeads(mean * alive, v * size * alive, w * size * alive, d * size**2 * alive)  # type: ignore[arg-type]
        return self._seen[key]

    def _coordinate(self, state: Any, action: Any) -> tuple[NetworkPlace, str]:
        place = self.simulator.snapshot(state)
        a = int(self.simulator.action_index(action, place))
        parts: Any = (np.asarray(part)[:, a] for part in self.heads(state))
        return NetworkPlace(state_key(self.simulator, place), a, *parts), self.simulator.action_label(a)

    def _mean(self, x: NetworkPlace) -> Estimate:
        return _estimate(x.mean)

    def _second_moment(self, x: NetworkPlace, y: NetworkPlace) -> Estimate:
        return _estimate(x.covariance(y) + x.mean * y.mean)

    def _covariance(self, x: NetworkPlace, y: NetworkPlace) -> Estimate:
        return _estimate(x.covariance(y))

    def _difference(self, x: NetworkPlace, y: NetworkPlace) -> tuple[Estimate, Estimate]:
        return _estimate(x.mean - y.mean), _estimate(x.covariance(x) + y.covariance(y) - 2 * x.covariance(y))

    def table(self) -> list[dict[str, Any]]:
        """The log."""
        return list(self.log)


def _estimate(values: Floats) -> Estimate:
    """The mean over networks, and its error."""
    return Replicas(values, np.zeros(())).estimate


class NetworkLearner(Learner):
    """Records queries when it is prepared, and trains networks on them."""

    title = "training"
    default_steps = 20_000
    precision = staticmethod(float32)

    def __init__(self, simulator: Simulator, policy: Any, method: NeuralSettings) -> None:
        if simulator.discount >= 1:
            raise ModelError(
                f"the discount of {simulator.name} is 1: backups contract only below. Give the simulator one, as in "
                "discount=0.99"
            )
        self.simulator, self.policy = simulator, as_source_policy(simulator, policy)
        for folder in (method.checkpoint, method.log):  # before queries are recorded for nothing
            if folder is not None:
                make_folder(folder)
        given = method.queries
        self.queries = None if isinstance(given, int) else _checked(given, simulator, self.policy)
        described: dict[str, Any] = {}
        if method.checkpoint is not None:
            recorded = given if self.queries is None else self.queries.digest()
            described = run_of(simulator, self.policy, method) | method.described() | {"recorded": recorded}
        super().__init__(method, simulator.discount, described)
        self._events = event_writer(method.log)

    @property
    def path(self) -> FilePath | None:
        """The weights, in the folder of the checkpoint."""
        folder = self.method.checkpoint
        return None if folder is None else os.path.join(path_name(folder), WEIGHTS)

    def prepare(self, steps: int) -> None:
        """Record queries, if there are none, for a training of so many steps: the learning rate falls with them."""
        self.described |= {"steps": steps} if self.described else {}
        if self.path is not None and os.path.exists(path_name(self.path)):
            archives.read_checkpoint(self.path, KIND, self.described)  # before queries are recorded for nothing
        if self.queries is None:
            self.queries = record_queries(
                self.simulator,
                self.policy,
                self.method.queries,
                restart=self.method.restart,
                episode_restart=self.method.episode_restart,
                seed=self.method.seed,
                executor=self.executor,
                folder=self.method.checkpoint,
            )
        with float32():
            self.trainer = Trainer(self.queries, self.method, steps)

    def close(self) -> None:
        """Write what is left of the log of events."""
        if self._events is not None:
            self._events.close()

    def init(self) -> TrainState:
        """Before the first step."""
        with float32():
            return self.trainer.init()

    def next_report(self, done: int) -> int:
        """After every portion of the compiled loop."""
        return done + PORTION

    def portion(self, now: int, took: float) -> int:
        """As the compiled loop has it: metrics are means over portions."""
        return PORTION

    def advance(self, state: TrainState, count: int = PORTION) -> TrainState:
        """The next portion; one whose loss is no number is refused."""
        with float32():
            new, metrics = self.trainer.advance(state)
        # Means over the networks.
        found = {name: np.asarray(part, dtype=np.float64).mean(axis=0) for name, part in metrics._asdict().items()}
        self._row = {"step": int(new.step)} | {
            f"{block}_{name}": float(part[i]) for i, block in enumerate(BLOCKS) for name, part in found.items()
        }
        bad = next((block for block in BLOCKS if not math.isfinite(self._row[f"{block}_loss"])), None)
        if bad is not None:
            kept = "" if self.path is None else "; the last checkpoint is as it was"
            raise ModelError(
                f"the loss of the block {bad!r} is no number any more, between step {int(state.step):,} and "
                f"{self._row['step']:,}{kept}. Try a smaller learning_rate than {self.method.learning_rate:g}"
            )
        return new

    def answer(self, state: TrainState, log: tuple[dict[str, Any], ...] = ()) -> TrainedMoments:
        """What the networks say by now."""
        return TrainedMoments(self.simulator, self.trainer, state, log)

    def row(self, answer: TrainedMoments, seconds: float) -> dict[str, Any]:
        """TD errors of every block."""
        for name, value in self._row.items():
            if self._events is not None and name != "step":  # ``mean_loss`` is drawn as ``mean/loss``
                self._events.add_scalar(name.replace("_", "/", 1), value, self._row["step"])
        return self._row

    def words(self, log: LogRows) -> str:
        """How far means are from their equations."""
        return f", residual of means {log[-1]['mean_double']:.2g}" if log else ""

    def _extra(self, state: TrainState) -> dict[str, NDArray[Any]]:
        return {UNITS: np.array(self.trainer.encoding.units)}

    def _restore(self, step: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        units, here = arrays[UNITS], np.array(self.trainer.encoding.units)
        if not np.array_equal(units, here):
            raise ModelError(
                f"{self.path} was trained in other units, {units.tolist()} there and {here.tolist()} here: by another "
                "version, whose weights would be read wrongly; remove it to train from the beginning"
            )


def _checked(queries: Any, source: Simulator, policy: Any) -> RecordedQueries:
    if not isinstance(queries, RecordedQueries):
        raise ModelError(f"queries is {queries!r:.80}; give RecordedQueries, of a file by RecordedQueries.load(path)")
    theirs = (queries.simulator, queries.action_names, queries.discount, queries.sharing)
    ours = (source.name, source.action_names, source.discount, source.sharing)
    for name, one, other in zip(("simulator", "actions", "discount", "sharing"), theirs, ours, strict=True):
        if one != other:
            raise ModelError(f"the queries were recorded with another {name}: {one} there, {other} here")
    if queries.behaviour and queries.behaviour != behaviour(source, policy):
        raise ModelError(f"the queries were recorded with another policy, or {source.name} does something else now")
    return queries
