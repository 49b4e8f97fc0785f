"""Two branches from one logged run: what was seen, and another action under the noise inferred from it.

In replication i the noise of each logged step is inferred: drawn from its law given what was seen of the step, or just
known. The *seen* branch takes the logged steps; the *other* one begins in the same state with another action, follows
the policy, and meets the inferred noise while it shares it. After the log both go on under fresh noise. As everywhere,
branches in the same state that take the same action are one from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from jointmdp.exact.hindsight.logged_trajectories import Trajectory
from jointmdp.ground import checks
from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import ModelError
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.simulation.executors import Executor, opened
from jointmdp.simulation.montecarlo.alternatives import MAX_SEED, Alternatives
from jointmdp.simulation.montecarlo.samples import GapSample, Replications, sample
from jointmdp.simulation.montecarlo.simulator_branches import QuerySampler, Replication
from jointmdp.simulation.simulators.function_simulator import FunctionSimulator, FunctionState
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.simulator import Action, Outcome, as_agent
from jointmdp.simulation.simulators.table_simulator import TableSimulator

Infer = Callable[[Any, Any, float | None, Any, np.random.Generator], Any]
"""``infer(state, action, reward, next_state, rng)``: the noise of a step, given what was seen of it."""

SEEN, OTHER = 0, 1


class LoggedStep(NamedTuple):
    """What was seen of one step; None for what was not."""

    number: int
    state: Any
    action: Action
    reward: float | None
    next_state: Any
    ended: bool | None
    noise: Any
    """Counts where there is no function that infers it."""


@dataclass(frozen=True)
class HindsightSampler(QuerySampler):
    """Replications by number: the returns of the seen branch and of the other one."""

    log: tuple[LoggedStep, ...] = ()
    infer: Infer | None = None
    tolerance: float = 0.0

    def __call__(self, first: int, count: int, sharing: Sharing) -> Replications:
        """Replications `first`, …, ``first + count − 1``."""
        return Replications.joined([_LoggedReplication(self, i, sharing).made() for i in range(first, first + count)])

    def check_log(self) -> None:
        """Raise unless the noise inferred in replication 0 explains every logged step."""
        replication = _LoggedReplication(self, 0, "none")

        def explain_all() -> None:
            for t in range(len(self.log)):
                replication.t = t
                replication.explain()

        replication.guarded(explain_all)


class _LoggedReplication(Replication):
    """A replication whose first branch takes the logged steps, under the noise inferred for them."""

    sampler: HindsightSampler
    simulator: FunctionSimulator
    inferred: Any = None
    """The noise of the step under way."""
    seen: Outcome
    """What the logged step under way gave."""

    def _answers(self, state: FunctionState, members: list[int]) -> dict[int, Outcome]:
        """As always after the log; before its end the other branch meets the inferred noise where it shares it."""
        if self.t >= len(self.sampler.log):
            return super()._answers(state, members)
        found = {}
        for j in members:  # the seen branch is the first
            if j == SEEN:
                self.explain()
                found[j] = self.seen
                continue
            shares = self.sharing == "time" or SEEN in members
            self.asked = ("a step", [j])
            outcome = self.simulator.step_given(
                state, self.actions[j], self.inferred if shares else self.simulator.draw(self.noise)
            )
            after, there = outcome.state, self.seen.state
            is_going = not (after.is_over or there.is_over)
            if self.sharing != "none" and is_going and are_close(there.state, after.state, self.sampler.tolerance):
                outcome = Outcome(outcome.reward, there)  # a log may be rounded
            found[j] = outcome
        return found

    def _choose(self) -> None:
        log, heads = self.sampler.log, self.heads
        if self.t < len(log):
            self.heads = [j for j in heads if j != SEEN]
        super()._choose()
        self.heads = heads
        if self.t < len(log):
            self.actions[SEEN] = log[self.t].action

    def explain(self) -> None:
        """A logged step under the noise inferred for it, which must do what was seen."""
        sampler, simulator, step = self.sampler, self.simulator, self.sampler.log[self.t]
        noise, names = step.noise, simulator.sources
        if sampler.infer is not None:
            self.asked = ("infer", [])
            value, rng = simulator.given_action(step.action), Noise("infer", sampler.seed, self.index, self.t).rng
            noise = sampler.infer(step.state, value, step.reward, step.next_state, rng)
        if names and not (isinstance(noise, Mapping) and set(noise) == set(names)):
            raise ModelError(
                f"the noise of step {step.number} of the log is {noise!r}; {simulator.name} has several sources, and "
                f"takes a dictionary of {', '.join(names)}"
            )
        self.asked = ("a step", [])
        found = simulator.step_given(simulator.at(step.state), step.action, noise)
        after: FunctionState = found.state
        seen = [("pays", step.reward, found.reward), ("leads to", step.next_state, after.state)]
        for what, logged, given in seen:
            if logged is not None and not are_close(logged, given, sampler.tolerance):
                raise ModelError(
                    f"step {step.number} of the log cannot have had the noise {noise!r}: with it "
                    f"{simulator.action_label(step.action)} {what} {given!r}, and {logged!r} was seen. Infer the noise "
                    "from what was seen, or raise the tolerance if the log is rounded"
                )
        if step.ended is not None and step.ended != after.is_over:
            says = ("goes on", "is over")
            raise ModelError(
                f"after step {step.number} of the log the episode {says[step.ended]}, but {simulator.name} says that "
                f"it {says[after.is_over]}; a log that was only cut has ended=False"
            )
        # The simulator's own reward: the other branch is paid by the same arithmetic, so that ties are ties.
        state = after if step.next_state is None else FunctionState(step.next_state, after.is_over)
        self.inferred, self.seen = noise, Outcome(found.reward, state)


def are_close(one: Any, other: Any, tolerance: float) -> bool:
    """Whether two values hold the same; numbers with a fraction may differ by `tolerance`, relative to 1 or more."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return set(one) == set(other) and all(are_close(one[key], other[key], tolerance) for key in one)
    if _is_row(one) and _is_row(other):
        return len(one) == len(other) and all(are_close(x, y, tolerance) for x, y in zip(one, other, strict=True))
    try:
        x, y = np.asarray(one), np.asarray(other)
    except (TypeError, ValueError):
        return bool(one == other)
    if "f" not in (x.dtype.kind, y.dtype.kind) or not {x.dtype.kind, y.dtype.kind} <= set("fiub"):
        return x.shape == y.shape and bool(np.all(x == y))
    return x.shape == y.shape and bool((np.abs(x - y) <= tolerance * np.maximum(1.0, np.abs(x))).all())


def _is_row(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


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
        sharing, executor: as in `simulate`.
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
    begin, agent = known.at(log[0].state), as_agent(policy, known)
    sampler = HindsightSampler(
        known,
        (agent, agent),
        (log[0].action, known.action_index(action, begin)),
        begin,
        checks.as_count("seed", seed, 0, MAX_SEED),
        known.discount,
        None if horizon is None else checks.as_count("horizon", horizon, least=len(logged)) - start,
        until_merged=True,
        log=log,
        infer=infer,
        tolerance=checks.as_amount("tolerance", tolerance),
    )
    sampler.check_log()
    if not np.array_equal(sampler(0, 1, chosen).leads, sampler(0, 1, chosen).leads):
        raise ModelError(
            f"replication 0 of {known.name} gave something else when it was run again: step, policy and infer must "
            "draw from what they are given alone, and leave states as they are; see jointmdp.audit"
        )
    with opened(executor) as workers:
        run = sample(sampler, 0, count, chosen, workers, title="simulating hindsight")
    labels, bounds = tuple(map(known.action_label, sampler.actions or ())), known.reward_bounds
    return_bound = None if bounds is None or known.discount >= 1 else max(map(abs, bounds)) / (1 - known.discount)
    both = Alternatives(sampler, labels, "", chosen, (chosen,), return_bound, discount=known.discount)
    reach = both._replace(spread=None if bounds is None else bounds.width).reach(run)
    return GapSample(labels[OTHER], labels[SEEN], *run.gap(OTHER, SEEN, return_bound), reach, sampler.seed)


def _opened(simulator: Any) -> FunctionSimulator:
    if isinstance(simulator, JointMDP | TableSimulator):
        raise ModelError("hindsight in a table is exact: jointmdp.hindsight(model, policy, trajectory, action)")
    if not isinstance(simulator, FunctionSimulator):
        raise ModelError(
            f"the noise of {simulator!r} cannot be set to what was inferred; write the model as a FunctionSimulator, "
            "or simulate the run itself: the sample of simulate(…) can be asked again"
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
