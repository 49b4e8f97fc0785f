"""Small Gymnasium environments of our own, and episodes of any environment through snapshots and without."""

from __future__ import annotations

import random
import threading
from collections import deque
from typing import Any

import numpy as np
from gymnasium import Env, spaces
from gymnasium.utils import EzPickle

from jointmdp.simulation.simulators.fingerprints import fingerprint
from jointmdp.simulation.simulators.gymnasium_simulator import GymnasiumSimulator
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.simulator import Outcome


def seen(simulator: GymnasiumSimulator, outcomes: list[Outcome]) -> list[Any]:
    """All that can be seen of outcomes."""
    return [
        (o.reward, fingerprint(simulator.observe(o.state)), simulator.is_over(o.state), simulator.identity(o.state))
        for o in outcomes
    ]


def actions_of(simulator: GymnasiumSimulator, count: int, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [simulator.random_action(rng) for _ in range(count)]


def by_hand(env: Env[Any, Any], seed: int, actions: list[Any]) -> list[tuple[float, bytes, bool]]:
    """The start of a seed and steps from it, with ``np_random`` set before each: no simulator involved."""
    observation, _ = env.reset(seed=seed)
    rows = [(0.0, fingerprint(np.array(observation)), False)]
    for t, action in enumerate(actions):
        env.unwrapped.np_random = Noise("step", seed, t)["np_random"]
        observation, reward, terminated, truncated, _ = env.step(action)
        rows.append((float(reward), fingerprint(np.array(observation)), bool(terminated or truncated)))
        if rows[-1][2]:
            break
    return rows


def by_simulator(
    simulator: GymnasiumSimulator, seed: int, actions: list[Any], disturb: bool = True
) -> list[tuple[float, bytes, bool]]:
    """The same through snapshots, with other queries and other episodes in between."""
    other = simulator.reset(seed + 1)
    state = simulator.reset(seed)
    rows = [(0.0, fingerprint(np.array(simulator.observe(state))), False)]
    for t, action in enumerate(actions):
        if disturb:
            simulator.query(state, actions[:2], Noise("elsewhere", t))
            (outcome,) = simulator.query(other, [actions[-1]], Noise("other", t))
            other = outcome.state
        (outcome,) = simulator.query(state, [action], Noise("step", seed, t))
        state = outcome.state
        rows.append((outcome.reward, fingerprint(np.array(simulator.observe(state))), simulator.is_over(state)))
        if rows[-1][2]:
            break
    return rows


class Source:
    """Something that an environment holds, with a generator of its own."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng()
        self.old = np.random.RandomState()
        self.plain = random.Random()


class Shop(Env[Any, Any]):
    """A queue with several sources of noise; ``draws`` says how often the first source is asked."""

    def __init__(self, num_actions: int = 2, start: int = 0) -> None:
        self.action_space = spaces.Discrete(num_actions, start=start)
        self.observation_space = spaces.Box(-np.inf, np.inf, (4,))
        self.source = Source()
        self.many = [np.random.default_rng(), np.random.default_rng()]
        self.queue: deque[float] = deque([0.0])
        self.draws = 1
        self.buffer = np.zeros(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.same = self.np_random
        self.queue = deque([self.np_random.random()])
        return np.zeros(4), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        for _ in range(self.draws):
            self.source.rng.random()
        self.queue.append(float(action) + self.same.random())
        self.buffer[:] = (
            self.source.old.normal(),
            self.source.plain.gauss(0, 1),
            self.many[1].random(),
            sum(self.queue),
        )
        return self.buffer, float(action), len(self.queue) > 50, False, {}


class Uncopied(Shop):
    """Holds a lock, which cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.steps = 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return super().step(action)


class Remade(Shop, EzPickle):
    """Copies of it are made anew by the constructor: without the state, if `deepcopy` is believed."""

    def __init__(self) -> None:
        Shop.__init__(self)
        EzPickle.__init__(self)


def cartpole_get(env: Any) -> Any:
    return env.unwrapped.state


def cartpole_set(env: Any, value: Any) -> None:
    env.unwrapped.state = value
    env.unwrapped.steps_beyond_terminated = None
