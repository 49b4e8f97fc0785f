"""Rows of packages with older interfaces: the first Gym, dm_env, and worlds of several agents."""

import importlib
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from wild.configuration import Configuration


class OldGym(gymnasium.Env[Any, Any]):
    """An environment of the first Gym: `reset()` gives an observation, `step` four values or five."""

    def __init__(
        self, inner: Any, seed: Callable[[Any, int], Any] | None = None, act: Any = lambda action: action
    ) -> None:
        self.inner, self._seed_inner, self._act = inner, seed, act
        self.action_space = as_space(inner.action_space)
        self.observation_space = as_space(inner.observation_space)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if self._seed_inner is not None:
            self._seed_inner(self.inner, int(self.np_random.integers(2**31 - 1)))
        found = self.inner.reset()
        return (found[0] if isinstance(found, tuple) else found), {}

    def step(self, action: Any) -> Any:
        observation, reward, ended, *rest = self.inner.step(self._act(action))
        return observation, reward, bool(ended), bool(rest[0]) if len(rest) == 2 else False, {}


def as_space(space: Any) -> Any:
    """A space of the first Gym as one of Gymnasium."""
    kind = type(space).__name__
    if kind == "Discrete":
        return spaces.Discrete(int(space.n))
    if kind == "Box":
        return spaces.Box(space.low, space.high, space.shape, space.dtype.type)
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(space.nvec)
    if kind == "Dict":
        return spaces.Dict({name: as_space(part) for name, part in space.spaces.items()})
    raise TypeError(kind)


class DeepMindEnv(gymnasium.Env[Any, Any]):
    """An environment of dm_env with numbered actions."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.action_space = spaces.Discrete(inner.action_spec().num_values)
        shape = inner.observation_spec().shape
        self.observation_space = spaces.Box(-np.inf, np.inf, shape, np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.inner.reset().observation, {}

    def step(self, action: Any) -> Any:
        found = self.inner.step(action)
        return found.observation, float(found.reward), found.last(), False, {}


def crafter() -> Any:
    import crafter

    def seed(env: Any, number: int) -> None:
        env._seed = number

    return OldGym(crafter.Env(area=(32, 32), length=200, seed=1), seed)


def or_gym(id: str, **settings: Any) -> Callable[[], Any]:
    def make() -> Any:
        from or_gym.utils import create_env

        return OldGym(create_env(id)(), **settings)

    return make


def bsuite(id: str) -> Callable[[], Any]:
    def make() -> Any:
        import bsuite

        return DeepMindEnv(bsuite.load_from_id(id))

    return make


def memory(module: str, name: str, **settings: Any) -> Callable[[], Any]:
    def make() -> Any:
        return OldGym(getattr(importlib.import_module(f"memory_gym.{module}"), name)(), **settings)

    return make


class Glucose(gymnasium.Env[Any, Any]):
    """A patient of simglucose with three rates of insulin."""

    def __init__(self) -> None:
        self.action_space = spaces.Discrete(3)
        self.observation_space = spaces.Box(0.0, 1000.0, (1,), np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        from datetime import datetime

        from simglucose.actuator.pump import InsulinPump
        from simglucose.patient.t1dpatient import T1DPatient
        from simglucose.sensor.cgm import CGMSensor
        from simglucose.simulation.env import T1DSimEnv
        from simglucose.simulation.scenario_gen import RandomScenario

        super().reset(seed=seed)
        seeds = [int(number) for number in self.np_random.integers(2**31 - 1, size=3)]
        patient = T1DPatient.withName("adolescent#002", random_init_bg=True, seed=seeds[0])
        sensor = CGMSensor.withName("Dexcom", seed=seeds[1])
        scenario = RandomScenario(start_time=datetime(2018, 1, 1), seed=seeds[2])
        self.inner = T1DSimEnv(patient, sensor, InsulinPump.withName("Insulet"), scenario)
        return np.array([self.inner.reset().observation.CGM]), {}

    def step(self, action: Any) -> Any:
        from simglucose.controller.base import Action

        found = self.inner.step(Action(basal=(0.0, 0.01, 0.05)[action], bolus=0.0))
        return np.array([found.observation.CGM]), float(found.reward), bool(found.done), False, {}


def simglucose() -> Any:
    import simglucose.simulation.env  # noqa: F401  says whether it is there

    return Glucose()


def pettingzoo(module: str, parallel: bool) -> Callable[[], Any]:
    def make() -> Any:
        found = importlib.import_module(f"pettingzoo.{module}")
        return found.parallel_env() if parallel else found.env()

    return make


def sokoban() -> Any:
    from gym_sokoban.envs import SokobanEnv

    return OldGym(SokobanEnv(dim_room=(6, 6), num_boxes=1))


def miniworld() -> Any:
    import miniworld  # noqa: F401  registers

    return gymnasium.make("MiniWorld-OneRoom-v0")


CASES = (
    Configuration(
        "crafter",
        "Env",
        crafter,
        "All objects draw from the world's RandomState, found once and held by all. Some actions draw once more than "
        "others (a sapling), which shifts the draws of that step.",
    ),
    Configuration(
        "or-gym", "Knapsack-v0", or_gym("Knapsack-v0"), "Items are drawn when it is made; a step draws nothing."
    ),
    Configuration(
        "or-gym",
        "Knapsack-v3 (online)",
        or_gym("Knapsack-v3"),
        "Every step draws the next item from the global numpy.random.",
        verdict="failed",
        says=("global numpy.random",),
        compares=False,
    ),
    Configuration(
        "or-gym",
        "Newsvendor-v0",
        or_gym("Newsvendor-v0", act=lambda order: order.item()),
        "Every step draws the demand from the global numpy.random, and the reset all prices.",
        verdict="failed",
        says=("global numpy.random",),
        compares=False,
    ),
    Configuration(
        "or-gym",
        "InvManagement-v1",
        or_gym("InvManagement-v1"),
        "Its reset uses np.Inf, which NumPy 2 does not have: the environment fails by itself, and the message says so.",
        verdict="refused",
        says=("np.Inf",),
    ),
    Configuration(
        "or-gym",
        "TSP-v1",
        or_gym("TSP-v1"),
        "The reset draws the first city from the global numpy.random; a step draws nothing.",
        verdict="failed",
        says=("global numpy.random",),
    ),
    Configuration(
        "memory-gym",
        "MortarMayhem-Grid",
        memory("mortar_mayhem_grid", "GridMortarMayhemEnv", act=lambda action: [action]),
        "Commands are drawn in the reset; a step draws nothing. A pygame clock cannot be copied, so it is replayed.",
    ),
    Configuration(
        "memory-gym",
        "SearingSpotlights",
        memory("searing_spotlights", "SearingSpotlightsEnv"),
        "The reset paints the spotlights of the last episode into its first picture, so the same seed does not show "
        "the same start; later pictures are right.",
        verdict="failed",
        says=("not restored",),
        compares=False,
    ),
    Configuration(
        "bsuite",
        "catch/0",
        bsuite("catch/0"),
        "The ball's column is drawn in the reset, from a RandomState found as a stream.",
    ),
    Configuration(
        "bsuite",
        "bandit_noise/0",
        bsuite("bandit_noise/0"),
        "A wrapper of bsuite adds noise to the reward from a RandomState of its own. Its __getattr__ makes a deep copy "
        "endless, so it is replayed.",
    ),
    Configuration(
        "bsuite",
        "deep_sea_stochastic/0",
        bsuite("deep_sea_stochastic/0"),
        "Moves fail and ends pay by one RandomState, found as a stream.",
    ),
    Configuration(
        "bsuite",
        "cartpole_noise/0",
        bsuite("cartpole_noise/0"),
        "The start is drawn and the reward is noisy, each from a RandomState found as a stream.",
    ),
    Configuration(
        "simglucose",
        "T1DSimEnv",
        simglucose,
        "simglucose 0.2.2 reads a row of pandas by position, which pandas 3 no longer allows: the environment's reset "
        "fails by itself, and the message says so.",
        verdict="refused",
        says=("KeyError",),
    ),
    Configuration(
        "pettingzoo",
        "tictactoe_v3",
        pettingzoo("classic.tictactoe_v3", False),
        "A world of several agents that take turns: no single observation, action and reward of a step.",
        verdict="refused",
        says=("no gymnasium.Env",),
    ),
    Configuration(
        "pettingzoo",
        "rps_v2, parallel",
        pettingzoo("classic.rps_v2", True),
        "A world of several agents that act at once: a step takes and gives dictionaries.",
        verdict="refused",
        says=("no gymnasium.Env",),
    ),
    Configuration(
        "gym-sokoban",
        "SokobanEnv",
        sokoban,
        "The reset builds a room by the modules random and numpy.random; a step draws nothing.",
        verdict="failed",
        says=("global",),
    ),
    Configuration(
        "miniworld",
        "OneRoom-v0",
        miniworld,
        "The start is drawn in the reset; a step draws nothing. Its pictures need OpenGL.",
        needs="a display",
    ),
)
