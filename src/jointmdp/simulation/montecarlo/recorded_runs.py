"""Samples of returns that can be asked again: other first actions and policies on the very same noise.

The noise of a replication has an address, the seed and the replication's number, so nothing of it needs to be stored.
An alternative that is added comes after those that are there, whose draws it leaves as they are: all numbers are those
of a simulation that had it from the start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jointmdp.ground import checks
from jointmdp.ground.errors import ModelError
from jointmdp.simulation.executors import Executor, opened
from jointmdp.simulation.montecarlo.alternatives import Alternatives, SimulationSettings, first_actions_and_policies
from jointmdp.simulation.montecarlo.noise_checks import NoiseChecks
from jointmdp.simulation.montecarlo.replications import sample
from jointmdp.simulation.montecarlo.samples import BranchPath, Replications, ReturnSample
from jointmdp.simulation.simulators.function_simulator import as_named
from jointmdp.simulation.simulators.simulator import Action, Simulator, Snapshot

ROUNDING = 1e-9  # relative: two runs on several threads may add in another order
CAUSE = ": the simulator, the policy or the state has changed since, or draws from noise that is not the replication's"

Branch = tuple[Action, Any]
"""A first action, and the policy that is followed after it."""


def sampled_returns(
    found: Alternatives, seed: int, num_samples: int, executor: Executor | str | None = None
) -> ReturnSample:
    """Replications of some alternatives, after a look whether their noise is shared."""
    count = checks.as_count("num_samples", num_samples, least=2)
    with opened(executor) as workers:
        checked = NoiseChecks(found, count, workers)
        run = sample(found.sampler, 0, count, found.sharing, workers, title="simulating pairs")
    checked.finish(run)
    return ReturnSample(found.labels, run, found.return_bound, found.reach(run), int(seed))


def recorded(
    sampled: ReturnSample, found: Alternatives, policy: Any, state: Any, settings: SimulationSettings
) -> ReturnSample:
    """A sample with what it was made from: first actions after which `policy` is followed."""
    simulator = found.simulator
    assert simulator is not None
    place = None if state is None else simulator.snapshot(state)
    branches = tuple((action, policy) for action in found.actions)
    kept = RecordedRun(simulator, place, settings, branches, sampled.actions, sampled.replications)
    return replace(sampled, recording=kept)


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """What a sample of returns was made from, and its replications."""

    simulator: Simulator
    state: Snapshot | None
    settings: SimulationSettings
    branches: tuple[Branch, ...]
    labels: tuple[str, ...]
    replications: Replications

    def again(self, actions: Any, policy: Any, executor: Executor | str | None) -> ReturnSample:
        """The same replications with more alternatives."""
        if actions is None and policy is None:
            raise ModelError("what is to be asked again? give other first actions, or another policy")
        asked = [action for action, _ in self.branches] if actions is None else self._listed(actions)
        longer = self._with([(action, policy) for action in asked])
        found, run = longer._alternatives(), self.replications
        sampled = sampled_returns(found, self.settings.seed, len(run.returns), executor)
        now = sampled.replications
        # The compiled engine may go on for longer with another branch, and rounds as its program is made.
        if hasattr(found.sampler, "replay") and not _are_close(run.returns, now.returns[:, : len(self.branches)]):
            raise ModelError(f"{self.simulator.name} gave other returns when it was asked again{CAUSE}")
        return replace(sampled, recording=replace(longer, replications=now))

    def replay(self, index: int, action: Action, policy: Any) -> BranchPath:
        """What one alternative does in one replication; one that was simulated must do again what it did."""
        i = checks.as_count("index", index, 0, len(self.replications.returns) - 1)
        longer = self._with([(action, policy)])
        found, j = longer._alternatives(), longer._place(action, policy)
        sampler: Any = found.sampler  # all samplers of first actions can be traced
        total = float(sampler(i, 1, found.sharing).returns[0, j])
        path: BranchPath = sampler.traced(i, found.sharing).path(j, total)
        sums = [float(found.discount ** np.arange(len(path.rewards)) @ path.rewards)]
        if j < len(self.branches):
            sums.append(float(self.replications.returns[i, j]))
        # Returns are held as that of branch 0 and a lead over it: they are off by rounding of the larger of the two.
        if not _are_close(sums, total, float(np.abs(self.replications.returns).max())):
            place = f"replication {i} of {self.simulator.name} ({longer.labels[j]})"
            raise ModelError(f"{place} gave {sums[-1]:.9g} at first and {total:.9g} when it was run again{CAUSE}")
        return path

    def _with(self, more: Sequence[Branch]) -> RecordedRun:
        """The same with more branches, as far as they are not there yet."""
        longer = self
        for action, policy in more:
            chosen = self.simulator.action_index(action, self.state)
            if longer._place(chosen, policy) < 0:
                follows = self.branches[0][1] if policy is None else policy
                then = "" if follows is self.branches[0][1] else f", then {_policy_label(follows)}"
                label = self.simulator.action_label(chosen) + then
                longer = replace(longer, branches=(*longer.branches, (chosen, follows)), labels=(*longer.labels, label))
        return longer

    def _place(self, action: Action, policy: Any) -> int:
        """Which branch begins with `action` and follows `policy`; −1: none."""
        chosen, follows = self.simulator.action_index(action), self.branches[0][1] if policy is None else policy
        found = (j for j, each in enumerate(self.branches) if each[1] is follows and np.array_equal(each[0], chosen))
        return next(found, -1)

    def _listed(self, actions: Any) -> list[Action]:
        """Several actions, or one; where actions are not numbered an array is one."""
        kinds = (list, tuple, range) if self.simulator.action_names is None else (list, tuple, range, np.ndarray)
        return list(actions) if isinstance(actions, kinds) else [actions]

    def _alternatives(self) -> Alternatives:
        return first_actions_and_policies(self.simulator, self.branches, self.labels, self.state, self.settings)


def _policy_label(policy: Any) -> str:
    (label,) = as_named("policies", [policy], least=1)
    return "another policy" if label.startswith("number ") else label


def _are_close(one: Any, other: Any, scale: float = 0.0) -> bool:
    return bool(np.allclose(one, other, rtol=ROUNDING, atol=ROUNDING * scale))
