"""States that the Atari experiment asks about, and what the emulator says there.

A walk under the policy warms up for 60 steps; then a state is taken every 20 to 60 steps, ten in a walk, each with two
different actions. What was measured lies in a folder, a file for some roots, so that a measurement goes on.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointmdp.ground import archives
from jointmdp.ground.errors import ModelError
from jointmdp.ground.progress import Meter
from jointmdp.simulation.executors import Executor
from jointmdp.simulation.simulators.atari_simulator import AtariSimulator, AtariState
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.simulator import as_agent
from jointmdp_experiments.atari_pairs import PairPaths, pair_paths

POLICY = "uniform"
WARM_UP = 60
BETWEEN = (20, 60)
WALK = 10  # roots of a walk
KIND = "pairs of branches"
PART = 10  # roots of a file


class Root(NamedTuple):
    """A state and two actions."""

    number: int
    state: AtariState
    actions: tuple[int, int]


def roots_of(simulator: AtariSimulator, count: int, seed: int) -> list[Root]:
    """Roots of several walks."""
    return [root for walk in range(-(-count // WALK)) for root in _walk(simulator, walk, seed)][:count]


def _walk(simulator: AtariSimulator, walk: int, seed: int) -> list[Root]:
    agent, rng = as_agent(POLICY, simulator), np.random.default_rng([seed, walk])
    assert simulator.action_names is not None
    found: list[Root] = []
    state, left = simulator.start(Noise("roots", seed, walk)), WARM_UP
    for t in range(1, 100 * WALK * BETWEEN[1]):
        (outcome,) = simulator.query(
            state, [agent(state, Noise("roots policy", seed, walk, t))], Noise("roots", seed, walk, t)
        )
        state, left = outcome.state, left - 1
        if state.is_over:
            state, left = simulator.start(Noise("roots", seed, walk, t)), WARM_UP
        elif left <= 0:
            one, other = rng.choice(len(simulator.action_names), size=2, replace=False)
            found.append(Root(walk * WALK + len(found), state, (int(one), int(other))))
            left = int(rng.integers(BETWEEN[0], BETWEEN[1] + 1))
        if len(found) == WALK:
            return found
    raise ModelError(f"episodes of {simulator.name} end before a state can be taken")


class Measurement:
    """Pairs of branches at one root; the same in every process."""

    def __init__(self, simulator: AtariSimulator, pairs: int, steps: int, seed: int) -> None:
        self.simulator, self.pairs, self.steps, self.seed = simulator, pairs, steps, seed

    def __call__(self, root: Root) -> PairPaths:
        seed = self.seed + root.number
        return pair_paths(self.simulator, POLICY, root.state, root.actions, self.pairs, self.steps, seed)


def measured(measurement: Measurement, roots: list[Root], folder: str, executor: Executor) -> list[PairPaths]:
    """Pairs of branches at all roots, from files where they were measured before."""
    os.makedirs(folder, exist_ok=True)
    found: list[PairPaths] = []
    with Meter(f"pairs of branches in {measurement.simulator.game}") as meter:
        for i in range(0, len(roots), PART):
            some, path = roots[i : i + PART], os.path.join(folder, f"pairs-{i // PART:02}.jointmdp")
            found += _measured(measurement, some, path, executor)
            meter.update(len(found) / len(roots), f"{len(found)} of {len(roots)} roots")
    return found


def _measured(measurement: Measurement, roots: list[Root], path: str, executor: Executor) -> list[PairPaths]:
    run = {
        "game": measurement.simulator.game,
        "stickiness": measurement.simulator.stickiness,
        "pairs": measurement.pairs,
        "steps": measurement.steps,
        "seed": measurement.seed,
        "roots": [[root.number, *root.actions, measurement.simulator.identity(root.state).hex()] for root in roots],
    }
    if os.path.exists(path):
        _, arrays = archives.read_checkpoint(path, KIND, run)
        archives.check_arrays(path, arrays, PairPaths._fields)
        columns = [_unpacked(array, measurement.steps) for array in arrays.values()]
        return [PairPaths(*each) for each in zip(*columns, strict=True)]
    found = list(executor.map(measurement, roots))
    stacked = PairPaths(*(np.stack(each) for each in zip(*found, strict=True)))
    archives.write_checkpoint(path, KIND, run, [], {name: _packed(a) for name, a in stacked._asdict().items()})
    return found


def _packed(array: NDArray[Any]) -> NDArray[Any]:
    """Bits in bytes; rewards are signs."""
    return np.packbits(array, axis=-1) if array.dtype == bool else array


def _unpacked(array: NDArray[Any], steps: int) -> NDArray[Any]:
    return np.unpackbits(array, axis=-1, count=steps).astype(bool) if array.dtype == np.uint8 else array
