"""A run on frames of an Atari game from recorded queries, how many steps a second it takes, and what limits them.

``python -m benchmarks.atari_frames record FOLDER`` needs the emulator. ``python -m benchmarks.atari_frames train FOLDER
[STEPS] [BATCH]`` does not, and runs on whatever device JAX finds. Frames repeat: compressed, the folder is small.

Beside the steps stand what the compiler counts for one, in operations and in bytes, and what the device does of each in
a large product of matrices and in a large copy: the part of these that training reaches says what limits it. Then what
the networks predict at states that were not recorded is compared with simulated pairs of branches, as in the Atari
experiment; networks differ in their seed, and have one recording.
"""

from __future__ import annotations

import lzma
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jointmdp_experiments.atari_coins import VARIANTS, with_coins

from jointmdp.ground.arrays import float32
from jointmdp.learning.learn import Neural
from jointmdp.learning.neural.queries import RecordedQueries, record_queries
from jointmdp.learning.neural.settings import BLOCKS
from jointmdp.learning.neural.trainer import Trainer, TrainState

GAME, VARIANT, LISTS, LANE = "Boxing", "A", 24_000, 600
CONFIG: dict[str, Any] = {
    "networks": 3,
    "batch": 256,
    "hidden": (256,),
    "rank": 8,
    "own_rank": 4,
    "action_rank": 2,
    "learning_rate": 3e-4,
    "target_rate": 0.2,
    "averaging": 0.99,
    "weight_decay": 1.0,
}
SIDE = {"cpu": 2048, "gpu": 16384}  # of the matrices that are multiplied and copied, to see what a device can do


def record(folder: Path, count: int = LISTS) -> None:
    """Queries that carry frames, compressed, and the roots of the Atari experiment with what the emulator says."""
    from jointmdp_experiments.atari_roots import POLICY, Measurement, measured, roots_of
    from jointmdp_experiments.atari_runs import AtariPlan
    from jointmdp_experiments.atari_table import Truth

    from jointmdp.simulation.executors import as_executor
    from jointmdp.simulation.simulators.atari_simulator import AtariSimulator

    folder.mkdir(exist_ok=True)
    plan, simulator = AtariPlan(), AtariSimulator(GAME, observation="frames")
    with as_executor("processes") as workers:
        queries = record_queries(
            simulator, POLICY, count, restart=plan.restart, episode_restart=0.0, lane=LANE, executor=workers
        )
        plain = AtariSimulator(GAME)
        measurement = Measurement(plain, plan.pairs, plan.horizon, plan.asked)
        paths = measured(measurement, roots_of(plain, plan.roots, plan.asked), str(folder / "pairs"), workers)
    truth, roots = Truth.of(paths, VARIANTS[VARIANT]), roots_of(simulator, plan.roots, plan.asked)
    np.savez(
        folder / "roots.npz",
        frames=np.stack([simulator.observe(root.state) for root in roots]),
        actions=np.array([root.actions for root in roots]),
        gap=truth.gap,
        marginal=truth.marginal,
    )
    with tempfile.TemporaryDirectory() as place:
        saved = Path(place) / "queries"
        queries.save(saved)
        with open(saved, "rb") as source, lzma.open(folder / "queries.xz", "wb", preset=1) as target:
            shutil.copyfileobj(source, target, 2**22)
    print(queries, f"in {(folder / 'queries.xz').stat().st_size / 2**20:.1f} MiB")


def train(folder: Path, steps: int = 5000, batch: int = CONFIG["batch"]) -> None:
    """Steps a second, what limits them, residuals of each block, and predicted over simulated variances."""
    with tempfile.TemporaryDirectory() as place:
        saved = Path(place) / "queries"
        with lzma.open(folder / "queries.xz", "rb") as source, open(saved, "wb") as target:
            shutil.copyfileobj(source, target, 2**22)
        queries = with_coins(RecordedQueries.load(saved), VARIANTS[VARIANT])
    with float32():
        trainer = Trainer(queries, Neural(**{**CONFIG, "batch": batch}), steps)
        state, rows = trainer.init(), []
        portion = trainer._portion.lower(trainer._data, state).compile()
        costs = portion.cost_analysis()  # of one turn of its loop
        costs["bytes accessed"] -= 2 * trainer._data[0].nbytes  # it counts picking frames as reading all of them
        peaks = _peaks()
        while int(state.step) < trainer.steps:
            started, before = time.perf_counter(), int(state.step)
            state, metrics = portion(trainer._data, state)
            jax.block_until_ready(state)
            rate = (int(state.step) - before) / (time.perf_counter() - started)
            rows.append((rate, np.asarray(metrics.double).mean(axis=0), np.asarray(metrics.squared).mean(axis=0)))
        rate = float(np.median([row[0] for row in rows]))
        print(queries)
        print(
            f"{jax.devices()[0].device_kind}: {rate:.3g} steps/s of {CONFIG['networks']} networks, {batch} lists each"
        )
        for name, word, peak in (("flops", "operations", peaks[0]), ("bytes accessed", "bytes", peaks[1])):
            took = costs[name] * rate
            print(f"  {costs[name]:.3g} {word} a step: {took:.3g} a second, of {peak:.3g} alone: {took / peak:.0%}")
        for word, (_, double, squared) in (("first", rows[0]), ("last", rows[-1])):
            print(word, *(f"{b} {d:.2g} of {s:.2g}" for b, d, s in zip(BLOCKS, double, squared, strict=True)), sep="  ")
        _print_ratios(trainer, state, folder)


def _print_ratios(trainer: Trainer, state: TrainState, folder: Path) -> None:
    """Sums over roots of predicted variances over simulated ones, network by network."""
    with np.load(folder / "roots.npz") as roots:
        frames, actions, gap, marginal = (roots[name] for name in ("frames", "actions", "gap", "marginal"))
    heads = jax.jit(jax.vmap(trainer.heads, in_axes=(0, None)))(state.average, trainer.encoding.stored(frames))
    row = np.arange(len(frames))
    (v, w, d), size = (np.asarray(part, np.float64) for part in heads[1:]), trainer.encoding.units.deviation
    one, other = (
        (v[:, row, actions[:, k]], w[:, row, actions[:, k]], d[:, row, actions[:, k]]) for k in range(2)
    )  # [networks, roots, …]
    own = [(part[0] ** 2).sum(-1) + (part[1] ** 2).sum(-1) + part[2] for part in (one, other)]
    between = (one[0] * other[0]).sum(-1) + (one[1] * other[1]).sum(-1)
    single = size**2 * (own[0] + own[1])
    coupled = single - 2 * size**2 * between
    for word, predicted, simulated in (("Coupled", coupled, gap), ("Marginal", single, marginal)):
        print(f"{word}/MC", *(f"{each:.3f}" for each in predicted.sum(axis=1) / simulated.sum()))


def _peaks() -> tuple[float, float]:
    """Operations a second of a product of matrices, bytes read and written a second of a copy; the best of five."""
    side = SIDE["cpu" if jax.default_backend() == "cpu" else "gpu"]
    matrix = jax.random.normal(jax.random.key(0), (side, side), np.float32)

    def least(f: Callable[[jax.Array], jax.Array]) -> float:
        jax.block_until_ready(f(matrix))
        times = []
        for _ in range(5):
            started = time.perf_counter()
            jax.block_until_ready(f(matrix))
            times.append(time.perf_counter() - started)
        return min(times)

    return 2 * side**3 / least(jax.jit(lambda x: x @ x)), 8 * side**2 / least(jax.jit(lambda x: x + 1))


if __name__ == "__main__":
    verb, place, *numbers = sys.argv[1:]
    {"record": record, "train": train}[verb](Path(place), *map(int, numbers))
