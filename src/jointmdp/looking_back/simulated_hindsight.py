"""The front door of hindsight in simulators: a logged run, and the noise that explains it."""

from typing import Any

import numpy as np

from jointmdp import checks
from jointmdp.checks import Sharing
from jointmdp.errors import ModelError
from jointmdp.executors import Executor, opened
from jointmdp.looking_back.logged_runs import OTHER, SEEN, HindsightSampler, Infer, LoggedStep
from jointmdp.looking_back.trajectory import Trajectory
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.montecarlo.alternatives import MAX_SEED, Alternatives
from jointmdp.montecarlo.replications import sample
from jointmdp.montecarlo.samples import GapSample
from jointmdp.simulators.function_simulator import FunctionSimulator
from jointmdp.simulators.simulator import Action, as_agent
from jointmdp.simulators.table_simulator import TableSimulator


def simulate_hindsight(  # many parameters: a front door, one keyword for each setting
    simulator: FunctionSimulator,
    policy: Any,
    trajectory: Trajectory,
    action: Action,
    *,
    infer: Infer | None = None,
    start: int = 0,
    num_samples: int = 10_000,
    seed: int = 0,
    horizon: int | None = None,
    sharing: Sharing | None = None,
    tolerance: float = 1e-6,
    executor: Executor | str | None = None,
) -> GapSample:
    """Samples of what `action` would have given more than what was done, under the noise of the logged run itself.

    The gap is ``Z(action) − Z(seen)`` given the log: noise that the log gives away is the same in all samples, the rest
    is drawn from its law given the log, and what comes after the log is open. Branches in the same state that take the
    same action are one from then on.

    Args:
        simulator: a `FunctionSimulator` whose noise are values, ``noise=draw`` or ``{"demand": draw}``.
        policy: what the other branch follows after `action`, and both follow after the log.
        trajectory: the logged run. Its states and rewards are checked against the simulator; those that were not logged
            are the simulator's.
        action: what is done instead in ``trajectory.states[start]``.
        infer: ``infer(state, action, reward, next_state, rng)`` returns the noise of a step, given what was seen of it:
            the known one, or one drawn by `rng` from its law. It is given None for what was not logged. Without it
            ``trajectory.scenarios`` are the noise.
        start: the step at which the other branch begins; returns count from there.
        num_samples, seed: sample i depends on the seed and i alone.
        horizon: how many steps count in all, from step 0 of the trajectory, which is not longer; None for all.
        sharing, executor: as in `simulate_gap`.
        tolerance: by how much numbers in the log may differ from the simulator's, relative to 1 or more.
    """
    known = _opened(simulator)
    if not isinstance(trajectory, Trajectory):
        raise ModelError(f"the trajectory must be one jointmdp.Trajectory(states, actions, …), not {trajectory!r}")
    chosen: Sharing = known.sharing if sharing is None else checks.as_sharing(sharing)
    count = checks.as_count("num_samples", num_samples, least=2)
    if infer is None and trajectory.scenarios is None:
        raise ModelError(
            "the noise of the log is not known: give infer(state, action, reward, next_state, rng), which returns that "
            "of a step, or a trajectory with the noise of each step as its scenarios"
        )
    logged = _logged(known, trajectory)
    log = logged[checks.as_count("start", start, 0, len(logged) - 1) :]
    sampler = HindsightSampler(
        known,
        as_agent(policy, known),
        log,
        known.action_index(action, known.at(log[0].state)),
        infer,
        checks.as_count("seed", seed, 0, MAX_SEED),
        None if horizon is None else checks.as_count("horizon", horizon, least=len(logged)) - start,
        checks.as_amount("tolerance", tolerance),
    )
    sampler.check_log()
    return _gap(sampler, chosen, count, executor)


def _gap(sampler: HindsightSampler, sharing: Sharing, count: int, executor: Executor | str | None) -> GapSample:
    simulator = sampler.simulator
    if not np.array_equal(sampler(0, 1, sharing).leads, sampler(0, 1, sharing).leads):
        raise ModelError(
            f"replication 0 of {simulator.name} gave something else when it was run again: step, policy and infer must "
            "draw from what they are given alone, and leave states as they are; see jointmdp.audit"
        )
    with opened(executor) as workers:
        run = sample(sampler, 0, count, sharing, workers, title="simulating hindsight")
    labels = tuple(simulator.action_label(a) for a in (sampler.log[0].action, sampler.action))
    bounds, discount = simulator.reward_bounds, simulator.discount
    return_bound = None if bounds is None or discount >= 1 else max(map(abs, bounds)) / (1 - discount)
    spread = None if bounds is None else bounds.width
    both = Alternatives(sampler, labels, "", sharing, (sharing,), return_bound, spread, discount=discount)
    return GapSample(labels[OTHER], labels[SEEN], *run.gap(OTHER, SEEN, return_bound), both.reach(run), sampler.seed)


def _opened(simulator: Any) -> FunctionSimulator:
    if isinstance(simulator, JointMDP | TableSimulator):
        raise ModelError("hindsight in a table is exact: jointmdp.hindsight(model, policy, trajectory, action)")
    if not isinstance(simulator, FunctionSimulator):
        raise ModelError(
            f"the noise of {simulator!r} cannot be set to what was inferred; write the model as a FunctionSimulator, "
            "or record the run when it is made: simulate_returns(…, record=True)"
        )
    if simulator.sources is None:
        raise ModelError(
            f"{simulator.name} draws from its noise by itself, so that no value can be inferred; give the "
            'FunctionSimulator a sampler for each source, noise={"demand": draw}'
        )
    return simulator


def _logged(simulator: FunctionSimulator, trajectory: Trajectory) -> tuple[LoggedStep, ...]:
    """The steps of a trajectory."""
    steps = len(trajectory.actions)
    if not steps:
        raise ModelError("the trajectory has no action, so there is nothing that could have been done instead")
    if unseen := [t for t in range(steps) if trajectory.states[t] is None or trajectory.actions[t] is None]:
        raise ModelError(
            f"the state or action of step {unseen[0]} was not seen; a simulator needs all but the last state, and "
            "jointmdp.hindsight answers for a model in tables"
        )
    states = [None if state is None else simulator.at(state).state for state in trajectory.states]
    states += [None] * (steps + 1 - len(states))
    rewards, scenarios = (
        [None] * steps if each is None else each for each in (trajectory.rewards, trajectory.scenarios)
    )
    return tuple(
        LoggedStep(
            t,
            states[t],
            simulator.action_index(trajectory.actions[t], simulator.at(states[t])),
            rewards[t],
            states[t + 1],
            False if t < steps - 1 else trajectory.ended or None,
            scenarios[t],
        )
        for t in range(steps)
    )
