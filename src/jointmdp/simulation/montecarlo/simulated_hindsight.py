"""Two branches from one logged run: what was seen, and another action under the noise inferred from it.

In replication i the noise of each logged step is inferred: drawn from its law given what was seen of the step, or just
known. The *seen* branch takes the logged steps; the *other* one begins in the same state with another action, follows
the policy, and meets the inferred noise while it shares it. After the log both go on under fresh noise. As everywhere,
branches in the same state that take the same action are one from then on.

The front door of hindsight in simulators: a logged run, and the noise that explains it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from jointmdp.exact.hindsight.trajectory import Trajectory
from jointmdp.ground import checks
from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import ModelError
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.simulation.executors import Executor, opened
from jointmdp.simulation.montecarlo.alternatives import MAX_SEED, Alternatives
from jointmdp.simulation.montecarlo.replications import sample
from jointmdp.simulation.montecarlo.samples import ROUNDING_UNITS, GapSample, Replications
from jointmdp.simulation.montecarlo.simulator_branches import STEP_LIMIT, TAIL
from jointmdp.simulation.simulators.function_simulator import FunctionSimulator, FunctionState
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.simulator import Action, Agent, Outcome, as_agent
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


class _Seen(NamedTuple):
    """A step of the seen branch: its noise, and what it gave."""

    noise: Any
    outcome: Outcome


@dataclass(frozen=True, eq=False)
class HindsightSampler:
    """Replications by number: the returns of the seen branch and of the other one."""

    simulator: FunctionSimulator
    agent: Agent
    log: tuple[LoggedStep, ...]
    action: Action
    infer: Infer | None
    seed: int
    horizon: int | None
    tolerance: float

    def __call__(self, first: int, count: int, sharing: Sharing) -> Replications:
        """Replications `first`, …, ``first + count − 1``."""
        return Replications.joined([self._replication(i, sharing) for i in range(first, first + count)])

    def check_log(self) -> None:
        """Raise unless the noise inferred in replication 0 explains every logged step."""
        for t in range(len(self.log)):
            self._logged(0, t)

    @property
    def last(self) -> int | None:
        """Steps after which an endless future is cut."""
        discount = self.simulator.discount
        if self.horizon is not None or discount >= 1:
            return self.horizon
        return max(1, math.ceil(math.log(TAIL) / math.log(discount))) if discount > 0 else 1

    def _replication(self, index: int, sharing: Sharing) -> Replications:
        simulator, last, steps = self.simulator, self.last, len(self.log)
        states = [simulator.at(self.log[0].state)] * 2
        actions = [self.log[0].action, self.action]
        total, lead, size, weight, t = 0.0, 0.0, 0.0, 1.0, 0
        is_same = True  # whether both are in one state
        while not (is_done := self._are_one(states, actions, is_same, sharing)) and t != last:
            if t >= STEP_LIMIT:
                raise ModelError(
                    f"replication {index} of {simulator.name} has not ended after {STEP_LIMIT:,} steps; give a "
                    "horizon, or a discount below 1"
                )
            seen = self._logged(index, t) if t < steps else self._fresh(states[SEEN], actions[SEEN], index, t)
            is_shared = sharing == "time" or (sharing == "state" and is_same)
            other = self._other(states[OTHER], actions[OTHER], seen if is_shared else None, index, t)
            more = weight * (other.reward - seen.outcome.reward)
            total, lead, size = total + weight * seen.outcome.reward, lead + more, size + abs(more)
            weight, t = weight * simulator.discount, t + 1
            states = [seen.outcome.state, other.state]
            is_same = self._is_same(*states, is_seen=t <= steps)
            if is_same and sharing != "none":
                states[OTHER] = states[SEEN]  # a log may be rounded
            for j in (SEEN, OTHER):
                if not simulator.is_over(states[j]):
                    is_logged = j == SEEN and t < steps
                    actions[j] = self.log[t].action if is_logged else self._chosen(states[j], index, t, j)
        return Replications(
            returns=np.array([[total, total + lead]]),
            leads=np.array([[0.0, lead]]),
            rounding=np.array([[0.0, (t + ROUNDING_UNITS) * 2.0**-52 * size]]),
            steps=np.array([t]),
            leaders=np.array([[SEEN, SEEN if is_done else OTHER]]),
            left_out=np.array([0.0 if is_done or self.horizon is not None else weight]),
            is_whole=np.array([False]),
        )

    def _are_one(self, states: list[FunctionState], actions: list[Action], is_same: bool, sharing: Sharing) -> bool:
        """Whether nothing can differ from here on."""
        if all(map(self.simulator.is_over, states)):
            return True
        return sharing != "none" and is_same and np.array_equal(actions[SEEN], actions[OTHER])

    def _is_same(self, one: FunctionState, other: FunctionState, *, is_seen: bool) -> bool:
        """Whether two branches are in one state; a state that was logged may be rounded."""
        simulator = self.simulator
        if simulator.is_over(one) or simulator.is_over(other):
            return False
        return simulator.identity(one) == simulator.identity(other) or (
            is_seen and are_close(one.state, other.state, self.tolerance)
        )

    def _fresh(self, state: FunctionState, action: Action, index: int, t: int) -> _Seen:
        """A step of the seen branch after the log, or where it stays after its end."""
        noise = self.simulator.draw(Noise("noise", self.seed, index, t, SEEN))
        if self.simulator.is_over(state):
            return _Seen(noise, Outcome(0.0, state))
        return _Seen(noise, self._stepped(state, action, noise, index, t))

    def _other(self, state: FunctionState, action: Action, seen: _Seen | None, index: int, t: int) -> Outcome:
        """A step of the other branch, under the noise of the seen one where it is given."""
        if self.simulator.is_over(state):
            return Outcome(0.0, state)
        if seen is not None:
            return self._stepped(state, action, seen.noise, index, t)
        return self._stepped(state, action, self.simulator.draw(Noise("noise", self.seed, index, t, OTHER)), index, t)

    def _chosen(self, state: FunctionState, index: int, t: int, branch: int) -> Action:
        return self._asked("the policy", index, t, self.agent, state, Noise("policy", self.seed, index, t, branch))

    def _stepped(self, state: FunctionState, action: Action, noise: Any, index: int, t: int) -> Outcome:
        found: Outcome = self._asked("a step", index, t, self.simulator.step_given, state, action, noise)
        if not math.isfinite(found.reward):
            place = f"step {t} of replication {index} of {self.simulator.name}"
            raise ModelError(f"{place} paid {found.reward}; rewards must be finite numbers")
        return found

    def _asked(self, who: str, index: int, t: int, function: Callable[..., Any], *given: Any) -> Any:
        """What a function of the user's answers; whatever it raises names the place."""
        try:
            return function(*given)
        except ModelError:
            raise
        except Exception as error:
            place = f"step {t} of replication {index}"
            raise ModelError(
                f"{who} of {self.simulator.name} raised {type(error).__name__} in {place}: {error}"
            ) from error

    def _logged(self, index: int, t: int) -> _Seen:
        """A logged step under the noise inferred for it, which must do what was seen."""
        simulator, step = self.simulator, self.log[t]
        noise, names = step.noise, simulator.sources
        if self.infer is not None:
            value, rng = simulator.action_value(step.action), Noise("infer", self.seed, index, t).rng
            noise = self._asked(
                "infer", index, step.number, self.infer, step.state, value, step.reward, step.next_state, rng
            )
        if names and not (isinstance(noise, Mapping) and set(noise) == set(names)):
            raise ModelError(
                f"the noise of step {step.number} of the log is {noise!r}; {simulator.name} has several sources, and "
                f"takes a dictionary of {', '.join(names)}"
            )
        found = self._stepped(simulator.at(step.state), step.action, noise, index, t)
        after: FunctionState = found.state
        seen = [("pays", step.reward, found.reward), ("leads to", step.next_state, after.state)]
        for what, logged, given in seen:
            if logged is not None and not are_close(logged, given, self.tolerance):
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
        return _Seen(noise, Outcome(found.reward, state))


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
