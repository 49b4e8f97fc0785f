"""`train`: record queries, train networks on them, keep both on disk."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from jointmdp.arrays import float32, on_device
from jointmdp.errors import ModelError
from jointmdp.executors import Executor
from jointmdp.files import run_checkpoint
from jointmdp.files.atomic_write import make_folder, path_name
from jointmdp.incremental.simulator_walks import behaviour
from jointmdp.neural.config import BLOCKS, TrainConfig
from jointmdp.neural.event_log import EventLog
from jointmdp.neural.queries import RecordedQueries
from jointmdp.neural.recording import as_source_policy, record_queries
from jointmdp.neural.trained import TrainedMoments
from jointmdp.neural.trainer import Metrics, Trainer, TrainState
from jointmdp.progress import Meter
from jointmdp.simulators.any_simulator import as_simulator
from jointmdp.simulators.simulator import Simulator

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
        run_checkpoint.read(_weights(config), KIND, run)  # before queries are recorded for nothing
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
    run_checkpoint.write(_weights(trainer.config), KIND, run, log, {**leaves, UNITS: np.array(trainer.encoding.units)})


def _resumed(trainer: Trainer, run: Mapping[str, Any]) -> tuple[TrainState, list[dict[str, Any]]]:
    first = trainer.init()
    if trainer.config.checkpoint is None or not os.path.exists(_weights(trainer.config)):
        return first, []
    path = _weights(trainer.config)
    log, arrays = run_checkpoint.read(path, KIND, run)
    leaves, tree = jax.tree.flatten(first)
    run_checkpoint.check_arrays(path, arrays, [*(f"part{i}" for i in range(len(leaves))), UNITS])
    units, here = arrays.pop(UNITS), np.array(trainer.encoding.units)
    if not np.array_equal(units, here):
        raise ModelError(
            f"{path} was trained in other units, {units.tolist()} there and {here.tolist()} here: by another version, "
            "whose weights would be read wrongly; remove it to train anew"
        )
    found = [run_checkpoint.fitted(path, *part, leaf) for part, leaf in zip(arrays.items(), leaves, strict=True)]
    return jax.tree.unflatten(tree, [on_device(each) for each in found]), log
