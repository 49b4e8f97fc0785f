"""Simulators with one planted fault each, and their healthy twins.

A lever stands at -3 … 3 and a spring at -2 … 2. A step pulls the lever down, leaves it, or pushes it up, but with
probability 1/4 the machine repeats the pull before (sticky actions); a shock moves the spring. The episode is over when
the lever is at an end. Most faults are a method of `Lever`, the healthy simulator, done wrong.
"""

from __future__ import annotations

import copy
import random
import time
from typing import Any

import numpy as np

from jointmdp.ground.intervals import Interval
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.simulator import Outcome, Simulator

MODULE_RNG = np.random.default_rng(5)


class Machine:
    """The live object that a simulator restores and steps."""

    def __init__(self) -> None:
        self.lever, self.spring, self.previous = 0, 0, 1

    def step(self, action: int, rng: Any) -> float:
        """One pull; how many numbers are drawn does not depend on it."""
        if rng.random() < 0.25:
            action = self.previous
        self.spring = int(np.clip(self.spring + int(3 * rng.random()) - 1, -2, 2))
        self.lever += action - 1
        self.previous = action
        return self.lever + 0.5 * self.spring - 0.1 * action


class Lever(Simulator):
    """Healthy: snapshots are tuples, and each step restores the live machine from one."""

    name = "lever"
    action_names = ("down", "leave", "up")
    reward_bounds = Interval(-4.2, 4.0)

    def __init__(self) -> None:
        self.live = Machine()

    def start(self, noise: Noise) -> Any:
        return int(noise.rng.integers(-1, 2)), 0, 1

    def restore(self, state: Any) -> None:
        self.live.lever, self.live.spring, self.live.previous = state

    def snapshot(self) -> Any:
        return self.live.lever, self.live.spring, self.live.previous

    def step(self, state: Any, action: int, noise: Noise) -> Outcome:
        self.restore(state)
        return Outcome(self.live.step(action, self.generator(noise)), self.snapshot())

    def generator(self, noise: Noise) -> Any:
        return noise.rng

    def is_over(self, state: Any) -> bool:
        return abs(state[0]) >= 3


class ContinuousLever(Lever):
    """Healthy, with a spring that never comes back to the same place, and observations of its own."""

    name = "continuous lever"
    reward_bounds = None

    def step(self, state: Any, action: int, noise: Noise) -> Outcome:
        reward, (lever, spring, previous) = super().step(state, action, noise)
        return Outcome(reward, (lever, spring + noise["wind"].normal(), previous))

    def observe(self, state: Any) -> Any:
        return np.array(state[:2], dtype=np.float32)


class SeededLegacy(Lever):
    """Healthy: old code that draws from numpy.random, seeded from the noise in each step."""

    name = "seeded legacy"

    def generator(self, noise: Noise) -> Any:
        np.random.seed(noise.seed)  # noqa: NPY002
        return np.random.mtrand._rand


class NamedStreams(Lever):
    """Healthy: a source that draws more for one action has a stream of its own."""

    name = "named streams"

    def step(self, state: Any, action: int, noise: Noise) -> Outcome:
        bonus = 0.01 * sum(noise["lottery"].random(action))
        reward, state = super().step(state, action, noise)
        return Outcome(min(reward + bonus, 4.0), state)


class Quiet(Lever):
    """Healthy and deterministic, without an end."""

    name = "quiet"

    def step(self, state: Any, action: int, noise: Noise) -> Outcome:
        return Outcome(float(action), ((state[0] + action) % 7, 0, 1))

    def is_over(self, state: Any) -> bool:
        return False


HEALTHY = [Lever, ContinuousLever, SeededLegacy, NamedStreams, Quiet]


# -- chance that is not the noise ----------------------------------------------------------------------------------


class OwnGenerator(Lever):
    """The generator is made once and restored by nobody."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = np.random.default_rng(3)

    def generator(self, noise: Noise) -> Any:
        return self.rng


class ModuleGenerator(Lever):
    """The generator is a module's."""

    def generator(self, noise: Noise) -> Any:
        return MODULE_RNG


class UnseenGenerator(Lever):
    """The generator hides where nobody finds it, in a running Python generator."""

    def __init__(self) -> None:
        super().__init__()

        def stream() -> Any:
            rng = np.random.default_rng(4)
            while True:
                yield np.random.default_rng(int(rng.integers(2**32)))

        self.stream = stream()

    def generator(self, noise: Noise) -> Any:
        return next(self.stream)


class GlobalNumpy(Lever):
    def generator(self, noise: Noise) -> Any:
        return np.random.mtrand._rand


class GlobalRandom(Lever):
    def step(self, state: Any, action: int, noise: Noise) -> Outcome:
        reward, state = super().step(state, action, noise)
        return Outcome(min(reward + random.choice([0, 1]), 4.0), state)


class RareGlobal(Lever):
    """A global generator that moves and decides nothing that could be seen."""

    def step(self, state: Any, action: int, noise: Noise) -> Outcome:
        random.random()
        return super().step(state, action, noise)


class GlobalStart(Lever):
    """Only the start is drawn from the global generator."""

    def start(self, noise: Noise) -> Any:
        return int(np.random.randint(-2, 3)), int(np.random.randint(-2, 3)), 1  # noqa: NPY002


class RunningStart(Lever):
    """The start is drawn from a generator that runs on."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = np.random.default_rng(3)

    def start(self, noise: Noise) -> Any:
        return int(self.rng.integers(-2, 3)), int(self.rng.integers(-2, 3)), 1


class FrozenGenerator(Lever):
    """The snapshot carries a generator, copies it faithfully, and never gives it new noise."""

    def start(self, noise: Noise) -> Any:
        return *super().start(noise), np.random.default_rng(noise.seed)

    def step(self, state: Any, action: int, noise: Noise) -> Outcome:
        self.restore(state[:3])
        rng = copy.deepcopy(state[3])
        return Outcome(self.live.step(action, rng), (*self.snapshot(), rng))


class WallClock(Lever):
    def step(self, state: Any, action: int, noise: Noise) -> Outcome:
        reward, state = super().step(state, action, noise)
        return Outcome(min(reward, 3.0) + time.perf_counter() % 1, state)


class Counter(Lever):
    """Every fifth call pays more, whoever calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def step(self, state: Any, action: int, noise: Noise) -> Outcome:
        self.calls += 1
        reward, state = super().step(state, action, noise)
        return Outcome(min(reward, 3.0) + (self.calls % 5 == 0), state)


# -- state that is not in the snapshot, or is in too many places -------------------------------------------------


class DroppedPrevious(Lever):
    """Sticky actions, and the previous action stays in the live machine alone."""

    def restore(self, state: Any) -> None:
        self.live.lever, self.live.spring = state[:2]

    def snapshot(self) -> Any:
        return self.live.lever, self.live.spring


class PartialRestore(Lever):
    """The spring is forgotten when restoring."""

    def restore(self, state: Any) -> None:
        self.live.lever, self.live.previous = state[0], state[2]


class KeptSpeed(Lever):
    """The step pays for where the machine stood last, which no snapshot holds."""

    def __init__(self) -> None:
        super().__init__()
        self.stood = 0

    def step(self, state: Any, action: int, noise: Noise) -> Outcome:
        reward, state = super().step(state, action, noise)
        stood, self.stood = self.stood, state[0]
        return Outcome(float(np.clip(reward + 0.1 * stood, -4, 4)), state)


class StaleObservation(Lever):
    def observe(self, state: Any) -> Any:
        return np.array([self.live.lever, self.live.spring])


class ObservationBuffer(Lever):
    """Every observation is the same array."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = np.zeros(2)

    def observe(self, state: Any) -> Any:
        self.buffer[:] = state[:2]
        return self.buffer


class LateObservation(Lever):
    """The snapshot is made with the observation of before the step; the environment's own step is right."""

    def start(self, noise: Noise) -> Any:
        lever, spring, previous = super().start(noise)
        return lever, spring, previous, (lever, spring)

    def step(self, state: Any, action: int, noise: Noise) -> Outcome:
        reward, found = super().step(state[:3], action, noise)
        return Outcome(reward, (*found, state[:2]))

    def plain_step(self, state: Any, action: int, rng: np.random.Generator) -> Outcome:
        self.restore(state[:3])
        reward = self.live.step(action, rng)
        return Outcome(reward, (*self.snapshot(), (self.live.lever, self.live.spring)))

    def observe(self, state: Any) -> Any:
        return np.array(state[3])


class MutatingQuery(Lever):
    """The snapshot is a machine, and the step works on it."""

    def start(self, noise: Noise) -> Any:
        return Machine()

    def step(self, state: Any, action: int, noise: Noise) -> Outcome:
        reward = state.step(action, noise.rng)
        return Outcome(reward, copy.copy(state))

    def is_over(self, state: Any) -> bool:
        return bool(abs(state.lever) >= 3)


class SharedSnapshot(MutatingQuery):
    """The step works on the live machine, as it should, and hands it out as the snapshot."""

    def step(self, state: Any, action: int, noise: Noise) -> Outcome:
        self.live.__dict__.update(state.__dict__)
        return Outcome(self.live.step(action, noise.rng), self.live)


class CachingSnapshot(MutatingQuery):
    """Not quite a fault: the snapshot remembers how often it was asked, and nothing depends on that."""

    def step(self, state: Any, action: int, noise: Noise) -> Outcome:
        state.asked = getattr(state, "asked", 0) + 1
        following = Machine()
        following.lever, following.spring, following.previous = state.lever, state.spring, state.previous
        return Outcome(following.step(action, noise.rng), following)

    def identity(self, state: Any) -> Any:
        return state.lever, state.spring, state.previous

    def observe(self, state: Any) -> Any:
        return state.lever, state.spring


class IdentityIgnores(Lever):
    """The previous action matters and does not count."""

    def identity(self, state: Any) -> Any:
        return state[:2]


class IdentityOfObject(Lever):
    def identity(self, state: Any) -> Any:
        return id(state)

    def snapshot(self) -> Any:
        return [self.live.lever, self.live.spring, self.live.previous]


class LookAlikes(Lever):
    """Two states with one identity are observed differently."""

    def identity(self, state: Any) -> Any:
        return state[0], state[2]


# -- queries -----------------------------------------------------------------------------------------------------


class OutOfStep(Lever):
    """Pushing up buys a lottery ticket before the shock is drawn."""

    def step(self, state: Any, action: int, noise: Noise) -> Outcome:
        if action == 2:
            noise.rng.random()
        return super().step(state, action, noise)


class RunningOutOfStep(OutOfStep):
    """The same, where the noise runs on from step to step."""

    reseeds = False


class OwnStreams(Lever):
    """Every action draws from a stream of its own name."""

    def step(self, state: Any, action: int, noise: Noise) -> Outcome:
        self.restore(state)
        return Outcome(self.live.step(action, noise[f"action {action}"]), self.snapshot())


class OrderDependent(Lever):
    """The lever is restored for the first action of a query only."""

    def query(self, state: Any, actions: Any, noise: Noise) -> list[Outcome]:
        if self.is_over(state):
            return [Outcome(0.0, state) for _ in actions]
        found: list[Outcome] = []
        for action in actions:
            lever = found[-1].state[0] if found else state[0]
            found.append(self.step((lever, *state[1:]), action, noise.fresh()))
        return found


class PositionShock(Lever):
    """Every place in the query has noise of its own."""

    def query(self, state: Any, actions: Any, noise: Noise) -> list[Outcome]:
        if self.is_over(state):
            return [Outcome(0.0, state) for _ in actions]
        return [self.step(state, action, Noise(noise.address, i)) for i, action in enumerate(actions)]


class RunningNoise(PositionShock):
    """The actions of a query share one generator that runs on."""

    def query(self, state: Any, actions: Any, noise: Noise) -> list[Outcome]:
        if self.is_over(state):
            return [Outcome(0.0, state) for _ in actions]
        return [self.step(state, action, noise) for action in actions]


class Company(Lever):
    """The first action earns more when others are asked along with it."""

    def query(self, state: Any, actions: Any, noise: Noise) -> list[Outcome]:
        found = super().query(state, actions, noise)
        return found if len(actions) < 2 else [Outcome(o.reward * 0.5, o.state) for o in found]


class ClippedReward(Lever):
    def query(self, state: Any, actions: Any, noise: Noise) -> list[Outcome]:
        return [Outcome(float(np.clip(o.reward, -1, 1)), o.state) for o in super().query(state, actions, noise)]


class ScaledReward(Lever):
    def query(self, state: Any, actions: Any, noise: Noise) -> list[Outcome]:
        return [Outcome(0.5 * o.reward, o.state) for o in super().query(state, actions, noise)]


class OtherEnds(Lever):
    """The environment's own step ends episodes at random as well."""

    def plain_step(self, state: Any, action: int, rng: np.random.Generator) -> Outcome:
        self.restore(state)
        reward = self.live.step(action, rng)
        return Outcome(reward, (9, *self.snapshot()[1:]) if rng.random() < 0.5 else self.snapshot())

    def observe(self, state: Any) -> Any:
        return None


class OtherShock(Lever):
    """The environment's own step shakes the spring otherwise."""

    def plain_step(self, state: Any, action: int, rng: np.random.Generator) -> Outcome:
        reward, (lever, spring, previous) = self.step(state, action, Noise(int(rng.integers(2**32))))
        return Outcome(reward, (lever, -spring + 1, previous))


class WrongAbsorbing(Lever):
    """A state that is over is stepped on from."""

    def query(self, state: Any, actions: Any, noise: Noise) -> list[Outcome]:
        return [self.step(state, action, noise.fresh()) for action in actions]


class Restarting(Lever):
    """A state that is over begins again by itself."""

    def query(self, state: Any, actions: Any, noise: Noise) -> list[Outcome]:
        if self.is_over(state):
            return [Outcome(0.0, (0, 0, 1)) for _ in actions]
        return super().query(state, actions, noise)


# -- numbers and answers -----------------------------------------------------------------------------------------


class NarrowBounds(Lever):
    reward_bounds = Interval(-1.0, 1.0)


class NanObservation(Lever):
    def observe(self, state: Any) -> Any:
        return np.array([state[0], np.nan if state[1] > 0 else state[1]])


class InfiniteReward(Lever):
    reward_bounds = None

    def step(self, state: Any, action: int, noise: Noise) -> Outcome:
        reward, state = super().step(state, action, noise)
        return Outcome(-np.inf if state[1] == -2 else reward, state)


class InfiniteObservation(Lever):
    def observe(self, state: Any) -> Any:
        return np.array([state[0], np.inf])


class Raising(Lever):
    def step(self, state: Any, action: int, noise: Noise) -> Outcome:
        if action == 2:
            raise KeyError("up")
        return super().step(state, action, noise)


class TooFew(Lever):
    def query(self, state: Any, actions: Any, noise: Noise) -> list[Outcome]:
        return super().query(state, actions, noise)[:1]


class Rounded(Lever):
    """The first action of a query is computed in another way, which rounds differently."""

    def query(self, state: Any, actions: Any, noise: Noise) -> list[Outcome]:
        found = super().query(state, actions, noise)
        return [Outcome(found[0].reward * (1 + 2**-51), found[0].state), *found[1:]]


class RoundedAlone(Lever):
    """Healthy: an action alone is computed in another way, which rounds differently."""

    name = "rounded alone"

    def query(self, state: Any, actions: Any, noise: Noise) -> list[Outcome]:
        found = super().query(state, actions, noise)
        return [Outcome(o.reward * (1 + 2**-51), o.state) for o in found] if len(actions) == 1 else found


HEALTHY.append(RoundedAlone)

# The check that must speak up, how loudly, and the name it must give the fault.
FAULTS: list[tuple[type[Lever], str, str, str]] = [
    (OwnGenerator, "restore", "fail", "generator not restored"),
    (ModuleGenerator, "restore", "fail", "generator not restored"),
    (UnseenGenerator, "restore", "fail", "generator not restored"),
    (RunningStart, "restore", "fail", "start not reproducible"),
    (WallClock, "restore", "fail", "wall clock"),
    (Counter, "restore", "fail", "hidden state not restored"),
    (PartialRestore, "restore", "fail", "hidden state not restored"),
    (GlobalNumpy, "globals", "fail", "global numpy.random"),
    (GlobalRandom, "globals", "fail", "global random"),
    (GlobalStart, "globals", "fail", "global numpy.random"),
    (RareGlobal, "globals", "warn", "global random"),
    (FrozenGenerator, "noise", "fail", "frozen generator"),
    (OutOfStep, "noise", "warn", "draws out of step"),
    (OwnStreams, "noise", "fail", "noise not shared"),
    (RunningOutOfStep, "noise", "fail", "draws out of step"),
    (DroppedPrevious, "history", "fail", "dropped previous action"),
    (KeptSpeed, "history", "fail", "state not restored in full"),
    (StaleObservation, "observation", "fail", "stale observation"),
    (ObservationBuffer, "observation", "fail", "shared observation buffer"),
    (LateObservation, "law", "fail", "stale observation"),
    (MutatingQuery, "untouched", "fail", "mutating query"),
    (SharedSnapshot, "untouched", "fail", "shared snapshot"),
    (CachingSnapshot, "untouched", "warn", "snapshot changes"),
    (IdentityIgnores, "identity", "fail", "identity ignores part of the state"),
    (LookAlikes, "identity", "fail", "identity ignores part of the state"),
    (IdentityOfObject, "identity", "warn", "identity of the object"),
    (OrderDependent, "order", "fail", "order-dependent query"),
    (PositionShock, "order", "fail", "shock tied to the query position"),
    (RunningNoise, "order", "fail", "shock tied to the query position"),
    (Company, "order", "fail", "outcome depends on the company"),
    (ClippedReward, "law", "fail", "clipped reward"),
    (ScaledReward, "law", "fail", "law of the reward"),
    (OtherEnds, "law", "fail", "law of the termination"),
    (OtherShock, "law", "fail", "law of the observation"),
    (WrongAbsorbing, "over", "fail", "over state does not absorb"),
    (Restarting, "over", "fail", "over state does not absorb"),
    (NarrowBounds, "rewards", "fail", "reward outside its bounds"),
    (NanObservation, "finite", "fail", "number that is not finite"),
    (InfiniteReward, "finite", "fail", "number that is not finite"),
    (InfiniteObservation, "finite", "warn", "number that is not finite"),
    (Raising, "answers", "fail", "query not answered"),
    (TooFew, "answers", "fail", "query not answered"),
    (Rounded, "order", "warn", "rounding"),
]
