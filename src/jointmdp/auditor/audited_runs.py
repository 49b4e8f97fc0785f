"""Functions of a decision and a seed, to be audited."""

import types
from collections.abc import Mapping, Sequence
from typing import Any

from jointmdp.auditor.probe import WatchedNoise
from jointmdp.envs.registry import as_simulator
from jointmdp.errors import ModelError
from jointmdp.simulators.function_simulator import RunSimulator, WithNoise
from jointmdp.simulators.noise import Noise
from jointmdp.simulators.simulator import Action, Outcome, Simulator, Snapshot

SEEDS = 8  # tried on a run function, to see whether its outcome changes with the seed


class AuditedRun(RunSimulator):
    """A function of a decision and a seed; whether its numbers are finite is left to the checks."""

    least_decisions = 1

    def outcome(self, action: int, seed: int) -> float:
        return self.number(self.run(self.decisions[action], seed), action)

    def step(self, state: Snapshot, action: Action, noise: Noise) -> Outcome:
        """One call of the function; what it draws from a noise of named streams is written down."""
        if isinstance(self.run, WithNoise) and isinstance(noise, WatchedNoise):
            given = noise.moved_to(self.run.noise(noise.seed).address)
            return Outcome(self.number(self.run.run(self.decisions[action], given), action), True)
        return super().step(state, action, noise)

    @property
    def ignores_seed(self) -> bool:
        """Whether no decision's outcome changes with the seed."""
        seeds = [Noise("seed", i).seed for i in range(SEEDS)]
        return all(len({self.outcome(a, seed) for seed in seeds}) == 1 for a in range(len(self.decisions)))


def audited(given: Any, decisions: Mapping[str, Any] | Sequence[Any] | None) -> Simulator:
    """The simulator to audit, from what a user has."""
    if isinstance(given, Simulator):
        return given
    if decisions is not None:
        return AuditedRun(given, decisions)
    if isinstance(given, types.FunctionType | types.MethodType):
        raise ModelError(
            f"{given.__name__} is a function; give decisions=[…] to run it with, or make it a FunctionSimulator"
        )
    return as_simulator(given)
