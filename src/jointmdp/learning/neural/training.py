"""A log that TensorBoard reads, where a folder for it is given.

Means and covariances of returns as trained networks say them, at any state of the simulator.

Every number is the mean over the networks, and its error half the width of Student's 95 % interval of that mean: how
far another set of networks, trained on the same queries, may be off. It is not the error of the queries, nor what
networks of this size cannot learn: `jointmdp.simulate` at some states shows those.

`train`: record queries, train networks on them, keep both on disk.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from jointmdp.exact.bellman.network_backups import MomentHeads
from jointmdp.ground import archives
from jointmdp.ground.answers import ResultFace
from jointmdp.ground.arrays import Floats, float32, on_device
from jointmdp.ground.errors import ModelError
from jointmdp.ground.files import FilePath, make_folder, path_name
from jointmdp.ground.progress import Meter
from jointmdp.learning.incremental.replicas import Estimate, LearnedGap, student_factor
from jointmdp.learning.incremental.simulator_walks import behaviour, state_key
from jointmdp.learning.neural.queries import RecordedQueries
from jointmdp.learning.neural.recording import as_numbers, as_source_policy, record_queries
from jointmdp.learning.neural.settings import BLOCKS, TrainConfig
from jointmdp.learning.neural.trainer import Metrics, Trainer, TrainState
from jointmdp.simulation.executors import Executor
from jointmdp.simulation.simulators.registry import as_simulator
from jointmdp.simulation.simulators.simulator import Simulator


class EventLog:
    """``with EventLog(folder) as events: events.add({"step": 100, "mean_loss": 0.3})``; nothing without a folder."""

    def __init__(self, folder: FilePath | None) -> None:
        self._writer: Any = None
        if folder is None:
            return
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise ImportError(
                "log= needs tensorboardX, which is not installed: pip install 'jointmdp[neural]'"
            ) from error
        self._writer = SummaryWriter(path_name(folder))

    def add(self, row: Mapping[str, Any]) -> None:
        """One row at its step; ``mean_loss`` is drawn as ``mean/loss``."""
        if self._writer is not None:
            for name, value in row.items():
                if name != "step":
                    self._writer.add_scalar(name.replace("_", "/", 1), value, row["step"])

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *error: object) -> None:
        if self._writer is not None:
            self._writer.close()


@dataclass(frozen=True, eq=False, repr=False)
class TrainedMoments(ResultFace):
    """What `train` gives: ``mean_at``, ``covariance_at``, ``gap`` and more, at a state."""

    simulator: Simulator
    trainer: Trainer
    state: TrainState
    log: tuple[dict[str, Any], ...]
    """One row for each portion of steps: TD errors of every block."""
    _seen: dict[bytes, MomentHeads] = field(default_factory=dict)

    def __repr__(self) -> str:
        config = self.trainer.config
        return (
            f"TrainedMoments({self.simulator.name}, {config.networks} networks, {self.steps:,} of {config.steps:,} "
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

    def mean_at(self, state: Any, action: Any) -> Estimate:
        """E Z(state, action)."""
        a = self._action(state, action)
        return _estimate(np.asarray(self.heads(state).mean)[:, a])

    def covariance_at(self, state: Any, action: Any, other: Any) -> Estimate:
        """Cov(Z(state, action), Z(state, other))."""
        return _estimate(self._covariances(state)[:, self._action(state, action), self._action(state, other)])

    def second_moment_at(self, state: Any, action: Any, other: Any) -> Estimate:
        """E[Z(state, action) Z(state, other)]."""
        a, b = self._action(state, action), self._action(state, other)
        mean = np.asarray(self.heads(state).mean)
        return _estimate(self._covariances(state)[:, a, b] + mean[:, a] * mean[:, b])

    def covariance_between(self, s: Any, a: Any, t: Any, b: Any) -> Estimate:
        """Cov(Z(s, a), Z(t, b)) of any two coordinates."""
        one, other = (state_key(self.simulator, self.simulator.snapshot(each)) for each in (s, t))
        if one == other:
            return self.covariance_at(s, a, b)
        v, u = self.heads(s).v[:, self._action(s, a)], self.heads(t).v[:, self._action(t, b)]
        return _estimate(np.einsum("rk,rk->r", v, u))

    def gap(self, state: Any, action: Any, other: Any) -> LearnedGap:
        """``Z(state, action) − Z(state, other)``: mean and variance, with the spread of the networks."""
        a, b = self._action(state, action), self._action(state, other)
        label = self.simulator.action_label
        if a == b:
            return LearnedGap(label(a), label(b), 0.0, 0.0, 0.0, 0.0)
        mean, both = np.asarray(self.heads(state).mean), self._covariances(state)
        variance = both[:, a, a] + both[:, b, b] - 2 * both[:, a, b]
        return LearnedGap(label(a), label(b), *_estimate(mean[:, a] - mean[:, b]), *_estimate(variance))

    def table(self) -> list[dict[str, Any]]:
        """The log."""
        return list(self.log)

    def _covariances(self, state: Any) -> Floats:
        """Of all actions at a state, ``[networks, A, A]``."""
        heads = self.heads(state)
        found = np.einsum("rak,rbk->rab", heads.v, heads.v) + np.einsum("rak,rbk->rab", heads.w, heads.w)
        return found + np.einsum("ra,ab->rab", heads.d, np.eye(heads.d.shape[1]))

    def _action(self, state: Any, action: Any) -> int:
        return int(self.simulator.action_index(action, self.simulator.snapshot(state)))


def _estimate(values: Floats) -> Estimate:
    """The mean over networks, and its error."""
    count = len(values)
    if count == 1:
        return Estimate(float(values[0]), math.inf)
    return Estimate(float(values.mean()), student_factor(count) * float(values.std(ddof=1)) / math.sqrt(count))


KIND = "training"
WEIGHTS = "weights.jointmdp"  # a file of a checkpoint, beside the recorded queries
UNITS = "units"  # what the weights answer in


def train(
    simulator: Any,
    policy: Any,
    config: TrainConfig | None = None,
    *,
    queries: RecordedQueries | None = None,
    executor: Executor | str | None = None,
) -> TrainedMoments:
    """Networks for the means and covariances of returns under a policy: the paper's neural JIPE-2.

    Args:
        simulator: a simulator, or what `jointmdp.as_simulator` makes one of.
        policy: as for `jointmdp.compare`.
        config: settings, `TrainConfig`.
        queries: recorded ones to train on; by default ``config.queries`` are recorded first.
        executor: where queries are recorded.

    Returns:
        `TrainedMoments`. With a checkpoint a run that was killed, or that ended before, is continued.
    """
    source, config = as_simulator(simulator), TrainConfig() if config is None else config
    if not isinstance(config, TrainConfig):
        raise ModelError(f"config is {config!r:.80}; give a TrainConfig")
    if source.discount >= 1:
        raise ModelError(
            f"the discount of {source.name} is 1: backups contract only below. Give the simulator one, as in "
            "discount=0.99"
        )
    policy = as_source_policy(source, policy)
    for folder in (config.checkpoint, config.log):  # before queries are recorded for nothing
        if folder is not None:
            make_folder(folder)
    if queries is not None:
        queries = _checked(queries, source, policy)
    run = _described(source, policy, config, queries)
    if config.checkpoint is not None and os.path.exists(_weights(config)):
        archives.read_checkpoint(_weights(config), KIND, run)  # before queries are recorded for nothing
    if queries is None:
        queries = record_queries(
            source,
            policy,
            config.queries,
            restart=config.restart,
            episode_restart=config.episode_restart,
            seed=config.seed,
            executor=executor,
            folder=config.checkpoint,
        )
    with float32():
        return _trained(source, Trainer(queries, config), run)


def _described(source: Simulator, policy: Any, config: TrainConfig, queries: RecordedQueries | None) -> dict[str, Any]:
    if config.checkpoint is None:
        return {}
    found = {"simulator": source.name, "discount": source.discount, "sharing": source.sharing}
    recorded = "" if queries is None else queries.digest()
    return {**found, **config.described(), "recorded": recorded, "digest": behaviour(source, policy)}


def _checked(queries: RecordedQueries, source: Simulator, policy: Any) -> RecordedQueries:
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


def _trained(source: Simulator, trainer: Trainer, run: Mapping[str, Any]) -> TrainedMoments:
    config = trainer.config
    state, log = _resumed(trainer, run)
    saved = time.monotonic()
    with Meter("training") as meter, EventLog(config.log) as events:
        while not trainer.is_done(state):
            last = int(state.step)
            new, metrics = trainer.advance(state)
            row = _row(new, metrics)
            _check_finite(row, last, config)
            state = new
            log.append(row)
            events.add(row)
            meter.update(
                row["step"] / config.steps, f"step {row['step']:,}, residual of means {row['mean_double']:.2g}"
            )
            if config.checkpoint is not None and (
                trainer.is_done(state) or time.monotonic() - saved >= config.checkpoint_seconds
            ):
                _save(trainer, state, log, run)
                saved = time.monotonic()
    return TrainedMoments(source, trainer, state, tuple(log))


def _row(state: TrainState, metrics: Metrics) -> dict[str, Any]:
    """Means over the networks."""
    found = {name: np.asarray(part, dtype=np.float64).mean(axis=0) for name, part in metrics._asdict().items()}
    row: dict[str, Any] = {"step": int(state.step)}
    for i, block in enumerate(BLOCKS):
        row |= {f"{block}_{name}": float(part[i]) for name, part in found.items()}
    return row


def _check_finite(row: Mapping[str, Any], last: int, config: TrainConfig) -> None:
    bad = [block for block in BLOCKS if not math.isfinite(row[f"{block}_loss"])]
    if not bad:
        return
    kept = "" if config.checkpoint is None else "; the last checkpoint is as it was"
    raise ModelError(
        f"the loss of the block {bad[0]!r} is no number any more, between step {last:,} and {row['step']:,}{kept}. "
        f"Try a smaller learning_rate than {config.learning_rate:g}"
    )


def _weights(config: TrainConfig) -> str:
    assert config.checkpoint is not None
    return os.path.join(path_name(config.checkpoint), WEIGHTS)


def _save(trainer: Trainer, state: TrainState, log: list[dict[str, Any]], run: Mapping[str, Any]) -> None:
    leaves: dict[str, NDArray[Any]] = {f"part{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(state))}
    archives.write_checkpoint(
        _weights(trainer.config), KIND, run, log, {**leaves, UNITS: np.array(trainer.encoding.units)}
    )


def _resumed(trainer: Trainer, run: Mapping[str, Any]) -> tuple[TrainState, list[dict[str, Any]]]:
    first = trainer.init()
    if trainer.config.checkpoint is None or not os.path.exists(_weights(trainer.config)):
        return first, []
    path = _weights(trainer.config)
    log, arrays = archives.read_checkpoint(path, KIND, run)
    leaves, tree = jax.tree.flatten(first)
    archives.check_arrays(path, arrays, [*(f"part{i}" for i in range(len(leaves))), UNITS])
    units, here = arrays.pop(UNITS), np.array(trainer.encoding.units)
    if not np.array_equal(units, here):
        raise ModelError(
            f"{path} was trained in other units, {units.tolist()} there and {here.tolist()} here: by another version, "
            "whose weights would be read wrongly; remove it to train anew"
        )
    found = [archives.fitted(path, *part, leaf) for part, leaf in zip(arrays.items(), leaves, strict=True)]
    return jax.tree.unflatten(tree, [on_device(each) for each in found]), log
