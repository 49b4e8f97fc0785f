"""A run on frames of an Atari game from recorded queries, and how many steps a second it takes.

``python -m benchmarks.atari_frames record FILE`` needs the emulator; ``python -m benchmarks.atari_frames train FILE``
does not, and runs on whatever device JAX finds. The file is compressed, since frames repeat: some megabytes.
"""

from __future__ import annotations

import gzip
import shutil
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

from jointmdp.arrays import float32
from jointmdp.experiments.atari_coins import VARIANTS, with_coins
from jointmdp.neural.config import BLOCKS, TrainConfig
from jointmdp.neural.queries import RecordedQueries
from jointmdp.neural.recording import record_queries
from jointmdp.neural.trainer import Trainer

GAME, LISTS, LANE = "Boxing", 6000, 150
CONFIG = {
    "networks": 3,
    "batch": 256,
    "hidden": (256,),
    "rank": 8,
    "own_rank": 4,
    "target_rate": 0.2,
    "averaging": 0.99,
}


def record(path: str, count: int) -> None:
    """Queries that carry frames, into a compressed file."""
    from jointmdp.simulators.atari_simulator import AtariSimulator

    simulator = AtariSimulator(GAME, observation="frames")
    queries = record_queries(
        simulator, "uniform", count, restart=0.03, episode_restart=0.0, lane=LANE, seed=1, executor="processes"
    )
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "queries"
        queries.save(plain)
        with open(plain, "rb") as source, gzip.open(path, "wb", compresslevel=6) as target:
            shutil.copyfileobj(source, target)
    print(queries, f"in {Path(path).stat().st_size / 2**20:.1f} MiB")


def train(path: str, steps: int) -> None:
    """Steps a second, and the residuals of each block at the beginning and the end."""
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "queries"
        with gzip.open(path, "rb") as source, open(plain, "wb") as target:
            shutil.copyfileobj(source, target)
        queries = with_coins(RecordedQueries.load(plain), VARIANTS["A"])
    with float32():
        trainer = Trainer(queries, TrainConfig(**CONFIG, steps=steps))  # type: ignore[arg-type]
        state, rows = trainer.init(), []
        while not trainer.is_done(state):
            started, before = time.perf_counter(), int(state.step)
            state, metrics = trainer.advance(state)
            jax.block_until_ready(state)
            rate = (int(state.step) - before) / (time.perf_counter() - started)
            rows.append((rate, np.asarray(metrics.double).mean(axis=0), np.asarray(metrics.squared).mean(axis=0)))
    rates = [rate for rate, _, _ in rows[1:]] or [rows[0][0]]  # the first portion compiles
    kind = jax.devices()[0].device_kind
    print(queries)
    print(f"{kind}: {np.median(rates):.1f} steps/s of {CONFIG['networks']} networks, {CONFIG['batch']} lists each")
    for name, (_, double, squared) in (("first", rows[0]), ("last", rows[-1])):
        print(name, *(f"{b} {d:.2g} of {s:.2g}" for b, d, s in zip(BLOCKS, double, squared, strict=True)), sep="  ")


if __name__ == "__main__":
    verb, path, *count = sys.argv[1:]
    {"record": record, "train": train}[verb](path, int(count[0]) if count else {"record": LISTS, "train": 3000}[verb])
