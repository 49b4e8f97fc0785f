"""The engine of joint simulation for any simulator: the rules of `compiled_branches`, one query at a time.

Replication i depends on the seed and i alone, so any part of a simulation can be made anywhere.

Which states are the same is asked only where it matters, since hashing a state can cost more than stepping it. Under
``sharing="state"`` it always does. Under ``"time"`` all branches have the same noise, and two are one when agent,
action and state agree: the state is asked last, of branches that look the same to their agent. Under ``"none"`` no two
branches ever become one.
"""

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import ModelError
from jointmdp.simulation.montecarlo.samples import BranchPath, Replications, last_step
from jointmdp.simulation.simulators.fingerprints import fingerprint
from jointmdp.simulation.simulators.noise import AS_IT_WAS, POLICY, START, Noise, Redraw
from jointmdp.simulation.simulators.simulator import Action, Agent, Outcome, Simulator, Snapshot

STEP_LIMIT = 100_000  # an episode longer than this was probably never meant to end
TAIL = 1e-4  # discount weight at which an endless future is cut; what is left out is part of the intervals

OnEvent = Callable[[str, int, int, Any], None]
"""Called with what was asked ("start", "policy", "outcome", "observation"), the step, the branch and the answer."""

Made = TypeVar("Made")

Moment = tuple[list[Snapshot], list[Action], list[float]]
"""Where all branches stand, after which actions and rewards."""


@dataclass(frozen=True)
class QuerySampler:
    """What is simulated: m alternatives of one simulator, each a first action (or none) and an agent to follow."""

    simulator: Simulator
    agents: tuple[Agent, ...]
    """One per alternative; alternatives that share an agent can become one branch."""
    actions: tuple[Action, ...] | None
    """First actions; without them each agent chooses its first action too."""
    state: Snapshot | None
    """Where all alternatives begin; without it each replication begins in a starting state of its own."""
    seed: int
    discount: float
    horizon: int | None
    until_merged: bool = False
    """Stop when all branches are one: their gaps are final, their returns are not."""
    labels: tuple[str, ...] = ()
    """What messages call the alternatives."""
    numbers: tuple[int, ...] = ()
    """Which each was, where these are some of more: noise of their own has their number in its address."""
    redraw: Redraw = AS_IT_WAS
    """Which sources of noise draw other numbers; starts and policies have one each."""

    def __call__(self, first: int, count: int, sharing: Sharing) -> Replications:
        """Replications `first`, …, ``first + count − 1``."""
        return Replications.joined([Replication(self, i, sharing).made() for i in range(first, first + count)])

    def only(self, places: tuple[int, ...]) -> "QuerySampler":
        """The same replications of some of the alternatives."""
        actions = None if self.actions is None else tuple(self.actions[j] for j in places)
        labels = tuple(self.labels[j] for j in places) if self.labels else ()
        return replace(
            self, agents=tuple(self.agents[j] for j in places), actions=actions, labels=labels, numbers=places
        )

    def replay(self, index: int, sharing: Sharing, on_event: OnEvent, *, is_backwards: bool) -> Replications:
        """One replication under the eyes of `on_event`; backwards, its branches are asked in the opposite order."""
        return Replication(self, index, sharing, on_event, is_backwards).made()

    def traced(self, index: int, sharing: Sharing, branch: int, total: float) -> BranchPath:
        """What one branch of a replication did, whose return is `total`."""
        replication = Replication(self, index, sharing)
        replication.moments = []
        replication.made()
        states = [states[branch] for states, _, _ in replication.moments]
        actions, rewards = ([moment[k][branch] for moment in replication.moments[1:]] for k in (1, 2))
        return BranchPath.of(states, actions, rewards, [self.simulator.is_over(state) for state in states], total)

    @property
    def last(self) -> int | None:
        """Steps after which an endless replication is cut."""
        return last_step(self.horizon, self.discount, TAIL)


class Replication:
    """One replication under way."""

    def __init__(
        self,
        sampler: QuerySampler,
        index: int,
        sharing: Sharing,
        on_event: OnEvent | None = None,
        is_backwards: bool = False,
    ) -> None:
        self.sampler, self.index, self.sharing, self.on_event = sampler, index, sharing, on_event
        self.simulator, m = sampler.simulator, len(sampler.agents)
        self.order, self.numbers = -1 if is_backwards else 1, sampler.numbers or range(m)
        self.leader = list(range(m))  # for each branch the first one that it is one with
        self.heads = list(range(m))  # the branches that lead
        self.states: list[Snapshot] = [sampler.state] * m
        self.names: list[Any] = [None] * m  # of states, under "state"; all begin in the same one
        self.actions: list[Action] = [None] * m if sampler.actions is None else list(sampler.actions)
        self.t = 0
        self.asked: tuple[str, list[int]] = ("the start", [])  # whose answer is waited for, and for which branches
        self.noise = Noise("start", sampler.seed, index, *self._anew(START))
        self.moments: list[Moment] | None = None

    def made(self) -> Replications:
        """The replication."""
        return self.guarded(self._made)

    def guarded(self, run: Callable[[], Made]) -> Made:
        """What `run` gives; whatever a simulator or policy raises comes out as one error that names the place."""
        try:
            return run()
        except ModelError:
            raise
        except Exception as error:
            who, branches = self.asked
            # Which of several that were asked together cannot be asked alone?
            guilty = [j for j in branches if len(branches) > 1 and not self._is_answered(j)] or branches
            whose = [self.sampler.labels[j] for j in guilty] if self.sampler.labels else []
            place = f"step {self.t} of replication {self.index}" + (f" ({' or '.join(whose)})" if whose else "")
            raise ModelError(
                f"{who} of {self.simulator.name} raised {type(error).__name__} in {place}: {error}"
            ) from error

    def _made(self) -> Replications:
        sampler, simulator, m = self.sampler, self.simulator, len(self.leader)
        if sampler.state is None:
            self.states = [simulator.start(self.noise)] * m
        if self.moments is not None:
            self.moments.append((list(self.states), [], []))
        if self.on_event is not None:
            self.on_event("start", self.t, 0, simulator.observe(self.states[0]))
        if sampler.actions is None:
            self._choose()
        # In one state at the beginning.
        self._unite((id(sampler.agents[j]), _hashable(self.actions[j])) for j in range(m))
        # Plain numbers: arrays of so few take ten times as long.
        total, lead, size, weight = 0.0, [0.0] * m, [0.0] * m, 1.0
        last, is_open = sampler.last, not simulator.is_over(self.states[0])
        is_open = is_open and not (sampler.until_merged and len(self.heads) == 1)
        while self.t != last and is_open:
            if self.t >= STEP_LIMIT:
                raise ModelError(
                    f"replication {self.index} of {simulator.name} has not ended after {STEP_LIMIT:,} steps; give a "
                    "horizon, or a discount below 1 and the simulator's reward_bounds"
                )
            taken = self.actions
            rewards = self._step()
            if self.moments is not None:
                self.moments.append((list(self.states), list(taken), rewards))
            total += weight * rewards[0]
            for j in range(1, m):
                more = weight * (rewards[j] - rewards[0])
                lead[j] += more
                size[j] += abs(more)
            weight *= sampler.discount
            self.t += 1
            if self.t != sampler.horizon:  # after it nobody acts: a policy in time may have nothing to say there
                self._choose()
                self._merge()
            is_open = not all(map(self._is_over, self.heads)) and not (sampler.until_merged and len(self.heads) == 1)
        is_cut = is_open and sampler.horizon is None
        left_out = weight if is_cut else 0.0
        row = map(np.array, ([total], [lead], [size], [self.t], [self.leader], [left_out]))
        return Replications.of_sums(*row, is_whole=np.array([False]) if sampler.until_merged else None)

    def _step(self) -> list[float]:
        """One step of all branches; under "state" those in the same state are one query."""
        simulator, sharing, t = self.simulator, self.sharing, self.t
        queries = [[j] for j in self.heads]
        if sharing == "state" or (sharing == "time" and t == 0):
            together: dict[Hashable, list[int]] = {}
            for j in self.heads:
                together.setdefault(self.names[j], []).append(j)
            queries = list(together.values())
        outcomes: dict[int, Outcome] = {}
        for members in queries[:: self.order]:
            state = self.states[members[0]]
            if simulator.is_over(state):
                outcomes.update({j: Outcome(0.0, self.states[j]) for j in members})
                continue
            where = ("noise", self.sampler.seed, self.index, t)
            redraw, number = self.sampler.redraw, 0 if sharing == "time" else self.numbers[members[0]]
            self.noise = Noise(*where, number).redrawn(redraw)
            if sharing == "state":
                self.noise.with_clock(Noise(*where, "clock").redrawn(redraw))
            self.asked = ("a step", members)
            outcomes.update(self._answers(state, members[:: self.order]))
        rewards = [float(outcomes[first].reward) for first in self.leader]
        if not all(map(math.isfinite, rewards)):
            place = f"step {t} of replication {self.index} of {simulator.name}"
            raise ModelError(f"{place} paid {rewards}; rewards must be finite numbers")
        self.states = [outcomes[first].state for first in self.leader]
        if sharing == "state":
            self.asked = ("identity", [])
            names = {j: None if self._is_over(j) else simulator.identity(self.states[j]) for j in self.heads}
            self.names = [names[first] for first in self.leader]
        return rewards

    def _answers(self, state: Snapshot, members: list[int]) -> dict[int, Outcome]:
        """What the actions of branches in one state give."""
        simulator = self.simulator
        found = simulator.query(state, [self.actions[j] for j in members], self.noise)
        outcomes = dict(zip(members, found, strict=True))
        if self.on_event is not None:
            for j, outcome in outcomes.items():
                self.on_event("outcome", self.t, j, (float(outcome.reward), simulator.is_over(outcome.state)))
                self.on_event("observation", self.t, j, simulator.observe(outcome.state))
        return outcomes

    def _choose(self) -> None:
        """The next action of each branch that is its own; those that are one with another follow it."""
        for j in self.heads[:: self.order]:
            if not self._is_over(j):
                self.asked = ("the policy in a state", [j])
                place = self.index, self.t, self.numbers[j]
                noise = Noise("policy", self.sampler.seed, *place, *self._anew(POLICY))
                self.actions[j] = self.sampler.agents[j](self.states[j], noise)
                if self.on_event is not None:
                    self.on_event("policy", self.t, j, self.actions[j])
        self.actions = [self.actions[first] for first in self.leader]

    def _anew(self, source: str) -> tuple[str, ...]:
        """What is added to the address of a source that draws other numbers."""
        return ("redrawn",) if self.sampler.redraw.holds(source) else ()

    def _merge(self) -> None:
        """Branches with the same agent, action and state are one from now on, and so are all that are over."""
        if self.sharing == "none" or len(self.heads) == 1:
            return
        going = {j for j in self.heads if not self._is_over(j)}
        keys: dict[int, tuple[Hashable, ...]] = {j: (id(self.sampler.agents[j]), j not in going) for j in self.heads}
        keys |= {j: (*keys[j], _hashable(self.actions[j])) for j in going}
        if self.sharing == "state":
            keys = {j: (*key, self.names[j]) for j, key in keys.items()}
        else:
            # The hash of a whole state last, where all that is cheaper agrees.
            looks = {"observe": lambda state: _look(self.simulator.observe(state)), "identity": self.simulator.identity}
            for asked, look in looks.items():
                self.asked, seen = (asked, []), list(keys.values())
                alike = [j for j in self.heads if j in going and seen.count(keys[j]) > 1]
                keys |= {j: (*keys[j], look(self.states[j])) for j in alike}
        self._unite(keys[first] for first in self.leader)

    def _unite(self, keys: Iterable[Hashable]) -> None:
        """Branches with equal keys are one, led by the first."""
        first: dict[Hashable, int] = {}
        self.leader = [first.setdefault(key, j) for j, key in enumerate(keys)]
        self.heads = list(first.values())

    def _is_over(self, j: int) -> bool:
        return self.simulator.is_over(self.states[j])

    def _is_answered(self, j: int) -> bool:
        try:
            self.simulator.query(self.states[j], [self.actions[j]], self.noise)
        except Exception:
            return False
        return True


def _hashable(action: Action) -> Any:
    """An action as something that can be compared by value."""
    return action if action is None or isinstance(action, int | float | str) else fingerprint(action)


def _look(observation: Any) -> bytes | None:
    """A hash of an observation; None for what has none, which then tells nothing."""
    try:
        return fingerprint(observation)
    except ValueError:
        return None
