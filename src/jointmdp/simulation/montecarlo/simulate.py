"""Front doors of simulation: samples of gaps and returns of a table or any simulator, under its sharing."""

import itertools
from collections.abc import Sequence
from typing import Any

from jointmdp.ground.checks import Sharing
from jointmdp.simulation.executors import Executor
from jointmdp.simulation.montecarlo.alternatives import SimulationSettings, first_actions
from jointmdp.simulation.montecarlo.recorded_runs import recorded, sampled_returns
from jointmdp.simulation.montecarlo.samples import GapSample, ReturnSample
from jointmdp.simulation.simulators.registry import as_simulator
from jointmdp.simulation.simulators.simulator import Action


def simulate_gap(  # many parameters: a front door, one keyword for each setting
    source: Any,
    policy: Any,
    state: Any,
    action: Action,
    other: Action,
    *,
    num_samples: int = 10_000,
    seed: int = 0,
    horizon: int | None = None,
    sharing: Sharing | None = None,
    executor: Executor | str | None = None,
) -> GapSample:
    """Independent samples of the gap between two actions of a model or simulator.

    Args:
        source: a `JointMDP`, a simulator, or a Gymnasium environment.
        policy: what both branches follow after the first action: an array, or any form of `as_agent`.
        state: a state by name or index, or a simulator's snapshot; None: each pair begins in a starting state of its
            own.
        action, other: the first actions of the two branches.
        num_samples, seed: pair i depends on the seed and i alone.
        horizon: simulate the first `horizon` steps only. Otherwise a pair stops when it has merged or is over, or when
            what is left of it is too little to matter; the intervals allow for that.
        sharing: ``"time"``, ``"state"`` or ``"none"``; by default what the model or simulator says.
        executor: where pairs are simulated: here, ``"processes:4"``, ``"ray:ADDRESS"``; the result is the same.
    """
    how = SimulationSettings(seed, sharing=sharing, horizon=horizon, until_merged=True)
    return _sampled(source, policy, state, (action, other), how, num_samples, executor)[0].gap(0, 1)


def simulate_gaps(  # many parameters: as above
    source: Any,
    policy: Any,
    state: Any,
    actions: Sequence[Action] | None = None,
    *,
    num_samples: int = 10_000,
    seed: int = 0,
    horizon: int | None = None,
    sharing: Sharing | None = None,
    executor: Executor | str | None = None,
) -> dict[tuple[int, int], GapSample]:
    """Samples of the gaps of all pairs of actions, from one joint simulation; the settings are those of `simulate_gap`.

    Keys are the actions' numbers; their places in `actions` where they are not numbered.
    """
    how = SimulationSettings(seed, sharing=sharing, horizon=horizon, until_merged=True)
    run, keys = _sampled(source, policy, state, actions, how, num_samples, executor)
    return {(keys[i], keys[j]): run.gap(i, j) for i, j in itertools.combinations(range(len(keys)), 2)}


def simulate_returns(  # many parameters: as above
    source: Any,
    policy: Any,
    state: Any,
    actions: Sequence[Action] | None = None,
    *,
    num_samples: int = 10_000,
    seed: int = 0,
    horizon: int | None = None,
    sharing: Sharing | None = None,
    executor: Executor | str | None = None,
    record: bool = False,
) -> ReturnSample:
    """Joint samples of the returns of several actions (by default all available ones): every pair at once.

    The other settings are those of `simulate_gap`.

    Args:
        record: keep the simulator, the policy and the state with the sample. It can then be asked for other actions and
            policies on the same noise, `ReturnSample.again`, and for what was done step by step,
            `ReturnSample.replay`. That takes no memory for steps: the seed and a replication's number give its noise.
    """
    how = SimulationSettings(seed, sharing=sharing, horizon=horizon)
    simulator = as_simulator(source)
    found = first_actions(simulator, policy, state, actions, how)
    sampled = sampled_returns(found, how.seed, num_samples, executor)
    return recorded(sampled, found, policy, state, how) if record else sampled


def _sampled(
    source: Any,
    policy: Any,
    state: Any,
    actions: Sequence[Action] | None,
    how: SimulationSettings,
    num_samples: int,
    executor: Executor | str | None,
) -> tuple[ReturnSample, Sequence[int]]:
    """The sample, and the numbers of the first actions; their places where they are not numbered."""
    simulator = as_simulator(source)
    found = first_actions(simulator, policy, state, actions, how)
    sampled = sampled_returns(found, how.seed, num_samples, executor)
    numbers = range(len(found.actions)) if simulator.action_names is None else found.actions
    return sampled, numbers
