"""Rows of packages that speak Gymnasium's language."""

import importlib
from collections.abc import Callable
from typing import Any

from wild.configuration import Configuration


def made(module: str, id: str, *wrappers: Any, **settings: Any) -> Callable[[], Any]:
    """``gymnasium.make`` after importing what registers the id; a wrapper is ``module:Class``, or that and settings."""

    def make() -> Any:
        import gymnasium

        gymnasium.register_envs(importlib.import_module(module))
        env = gymnasium.make(id, disable_env_checker=True, **settings)
        for wrapper in wrappers:
            place, given = wrapper if isinstance(wrapper, tuple) else (wrapper, {})
            where, name = place.split(":")
            env = getattr(importlib.import_module(where), name)(env, **given)
        return env

    return make


def minigrid(id: str, *wrappers: str, **settings: Any) -> Callable[[], Any]:
    """An environment of MiniGrid in its own wrappers; the settings are those of the last."""
    places = [f"minigrid.wrappers:{name}" for name in wrappers]
    last = [(places.pop(), settings)] if settings else []
    return made("minigrid", f"MiniGrid-{id}", *places, *last)


def weighted(id: str, *weights: float) -> Callable[[], Any]:
    """An environment of several objectives, whose reward is their weighted sum; without weights the vector itself."""

    def make() -> Any:
        import mo_gymnasium
        import numpy as np

        env = mo_gymnasium.make(id)
        return mo_gymnasium.wrappers.LinearReward(env, weight=np.array(weights)) if weights else env

    return make


def prices() -> Any:
    """A year of made-up prices."""
    import numpy as np
    import pandas as pd

    close = 100 * np.exp(np.cumsum(np.random.default_rng(1).normal(0, 0.01, 400)))
    frame = pd.DataFrame({"open": close, "high": close * 1.01, "low": close * 0.99, "close": close, "volume": 1.0})
    frame.index = pd.date_range("2020-01-01", periods=400)
    frame["feature_return"] = frame["close"].pct_change().fillna(0.0)
    return frame


def trading() -> Any:
    import gym_trading_env  # noqa: F401  registers
    import gymnasium

    return gymnasium.make("TradingEnv", df=prices(), positions=[-1, 0, 1], verbose=0, max_episode_duration=50)


def metaworld(task: str) -> Callable[[], Any]:
    def make() -> Any:
        import gymnasium
        import metaworld  # noqa: F401  registers

        return gymnasium.make("Meta-World/MT1", env_name=task, seed=1)

    return make


def tetris() -> Any:
    import gymnasium
    from tetris_gymnasium.envs import Tetris  # noqa: F401  registers

    return gymnasium.make("tetris_gymnasium/Tetris")


def minatar(name: str) -> Callable[[], Any]:
    def make() -> Any:
        import gymnasium
        from minatar.gym import register_envs

        register_envs()
        return gymnasium.make(f"MinAtar/{name}-v1")

    return make


def electric(id: str) -> Callable[[], Any]:
    def make() -> Any:
        import gym_electric_motor

        return gym_electric_motor.make(id)

    return make


def row(package: str, name: str, make: Callable[[], Any], reason: str, **expected: Any) -> Configuration:
    return Configuration(package, name, make, reason, **expected)


def grid(name: str, make: Callable[[], Any], reason: str) -> Configuration:
    return Configuration("minigrid", name, make, reason)


def road(id: str, reason: str, **expected: Any) -> Configuration:
    return Configuration("highway-env", id, made("highway_env", id), reason, **expected)


def robot(id: str, reason: str) -> Configuration:
    return Configuration("gymnasium-robotics", id, made("gymnasium_robotics", id), reason)


MINIGRID = (
    grid("Empty-5x5", minigrid("Empty-5x5-v0"), "Steps draw nothing, and the start is always the same."),
    grid(
        "DoorKey-5x5",
        minigrid("DoorKey-5x5-v0"),
        "Door and key are placed by np_random in the reset; steps draw nothing.",
    ),
    grid(
        "Dynamic-Obstacles-5x5",
        minigrid("Dynamic-Obstacles-5x5-v0"),
        "Each step moves the balls by np_random. A place that is taken is drawn again, so the agent's place can shift "
        "later draws of the step: a warning at most.",
    ),
    grid(
        "Dynamic-Obstacles-Random-5x5, FullyObs",
        minigrid("Dynamic-Obstacles-Random-5x5-v0", "FullyObsWrapper"),
        "The wrapper redraws the grid from the state; the noise is the inner environment's.",
    ),
    grid(
        "Fetch-5x5-N2, ImgObs",
        minigrid("Fetch-5x5-N2-v0", "ImgObsWrapper"),
        "Objects and mission are drawn in the reset; the wrapper takes the picture out of the observation.",
    ),
    grid(
        "LavaGapS5, OneHotPartialObs",
        minigrid("LavaGapS5-v0", "OneHotPartialObsWrapper"),
        "The gap is drawn in the reset; the wrapper encodes the view and keeps nothing.",
    ),
    grid(
        "Empty-5x5, RGBImgPartialObs, ImgObs",
        minigrid("Empty-5x5-v0", "RGBImgPartialObsWrapper", "ImgObsWrapper"),
        "Pictures are drawn from the state; tiles are cached in the class, which changes no picture.",
    ),
    grid(
        "GoToDoor-5x5, FlatObs",
        minigrid("GoToDoor-5x5-v0", "FlatObsWrapper"),
        "The wrapper caches the encoded mission, a function of the mission alone.",
    ),
    grid(
        "Empty-Random-5x5, StochasticAction",
        minigrid("Empty-Random-5x5-v0", "StochasticActionWrapper", prob=0.7),
        "The wrapper draws from np_random of the environment inside: once, and again where the action is replaced.",
    ),
    grid(
        "Empty-5x5, PositionBonus",
        minigrid("Empty-5x5-v0", "PositionBonus"),
        "The wrapper counts visits over all episodes and pays by them: state of the wrapper, copied with it.",
    ),
    grid(
        "BabyAI-GoToObj",
        made("minigrid", "BabyAI-GoToObj-v0"),
        "Room and mission are drawn in the reset; steps draw nothing.",
    ),
)

ROADS = (
    road("highway-fast-v0", "Traffic is drawn in the reset and then follows car-following models that draw nothing."),
    road("merge-v0", "As highway-fast-v0; the start is jittered by np_random."),
    road(
        "roundabout-v0",
        "Starts and destinations are drawn in the reset; a step may choose a route, by the road's np_random, which is "
        "the same generator.",
    ),
    road("intersection-v0", "Each step may let a new vehicle in, drawn from np_random: noise that all actions share."),
    road(
        "parking-v0",
        "Goal and heading are drawn in the reset; the car's motion draws nothing. Rewards are of a goal environment.",
    ),
    road("racetrack-v0", "Lanes and vehicles are drawn in the reset; steps draw nothing."),
    road(
        "racetrack-oval-v0",
        "_make_road makes an unseeded default_rng() in every reset, but draws from it only for settings that are off "
        "by default.",
    ),
    road("two-way-v0", "Oncoming traffic is drawn in the reset; steps draw nothing."),
)

OBJECTIVES = (
    row(
        "mo-gymnasium",
        "deep-sea-treasure-v0",
        weighted("deep-sea-treasure-v0"),
        "The reward is a vector of two, and a gap is of one number: the message says so and names what to do.",
        verdict="refused",
        says=("reward", "2"),
    ),
    row(
        "mo-gymnasium",
        "deep-sea-treasure-v0, LinearReward",
        weighted("deep-sea-treasure-v0", 0.9, 0.1),
        "Draws nothing at all.",
    ),
    row(
        "mo-gymnasium",
        "resource-gathering-v0, LinearReward",
        weighted("resource-gathering-v0", 0.2, 0.4, 0.4),
        "An enemy's cell kills with probability 0.1, by np_random; elsewhere nothing is drawn.",
    ),
    row(
        "mo-gymnasium",
        "fishwood-v0, LinearReward",
        weighted("fishwood-v0", 0.5, 0.5),
        "One draw from np_random decides whether fish or wood is found, whichever place the action leads to.",
    ),
    row(
        "mo-gymnasium",
        "minecart-v0, LinearReward",
        weighted("minecart-v0", 0.4, 0.4, 0.2),
        "Ore comes from frozen SciPy distributions, whose generator is numpy.random unless it is found in them and "
        "given the step's noise: the adapter does so.",
    ),
    row(
        "mo-gymnasium",
        "water-reservoir-v0, LinearReward",
        weighted("water-reservoir-v0", 0.5, 0.5),
        "The inflow of each step is one draw from np_random.",
    ),
)

ROBOTS = (
    row(
        "panda-gym",
        "PandaReach-v3",
        made("panda_gym", "PandaReach-v3"),
        "The goal is drawn in the reset; physics draws nothing. The state lives in a PyBullet server that no copy "
        "holds, so it is replayed.",
    ),
    row(
        "panda-gym",
        "PandaPush-v3",
        made("panda_gym", "PandaPush-v3"),
        "The reset moves the bodies back but leaves PyBullet its contacts: after another episode the same seed and "
        "actions move the object otherwise, which a script without us shows too.",
        verdict="failed",
        says=("state not restored",),
        compares=False,
    ),
    robot("FetchReach-v4", "The goal is drawn in the reset; MuJoCo draws nothing."),
    robot(
        "FetchPush-v4",
        "As FetchReach-v4, with an object. Contacts are solved from the last solution, which a state must hold.",
    ),
    robot("PointMaze_UMaze-v3", "Start and goal are jittered in the reset; a step draws nothing."),
    robot("AdroitHandDoor-v1", "The door is placed in the reset; a step draws nothing."),
    robot("HandReach-v3", "The goal is drawn in the reset; a step draws nothing."),
    row(
        "metaworld",
        "MT1 reach-v3",
        metaworld("reach-v3"),
        "The reset ignores its seed, but draws the task from np_random, which is given the noise; a step draws "
        "nothing. A deep copy leaves the arm hanging loose, so histories are replayed in the original.",
    ),
)

MARKETS = (
    row(
        "gym-trading-env",
        "TradingEnv",
        trading,
        "The reset draws position and day from the global numpy.random, so a seed does not give the same start again.",
        verdict="failed",
        says=("global numpy.random",),
    ),
    row(
        "gym-anytrading",
        "stocks-v0",
        made("gym_anytrading", "stocks-v0"),
        "Prices are data; the reset draws only to seed the action space.",
    ),
    row("gym-anytrading", "forex-v0", made("gym_anytrading", "forex-v0"), "As stocks-v0, with other data."),
)

GAMES = (
    row(
        "ale-py",
        "Breakout-v5",
        made("ale_py", "ALE/Breakout-v5"),
        "Sticky actions are drawn inside the emulator, from a seed that is set in the reset: no step can be given "
        "other noise, and a replay has one future.",
        verdict="failed",
        says=("frozen",),
        compares=False,
    ),
    row(
        "ale-py",
        "Pong-v5, no sticky actions",
        made("ale_py", "ALE/Pong-v5", repeat_action_probability=0.0),
        "With repeat_action_probability=0 the emulator draws nothing; the history is replayed.",
    ),
    row(
        "minatar",
        "Breakout-v1",
        minatar("Breakout"),
        "Sticky actions and the ball's side are drawn from one RandomState, held in two places.",
    ),
    row(
        "minatar",
        "Asterix-v1",
        minatar("Asterix"),
        "Sticky actions and what appears are drawn from one RandomState, when a timer says so.",
    ),
    row("minatar", "SpaceInvaders-v1", minatar("SpaceInvaders"), "Sticky actions only."),
    row(
        "flappy-bird-gymnasium",
        "FlappyBird-v0",
        made("flappy_bird_gymnasium", "FlappyBird-v0", use_lidar=False),
        "A new pipe is drawn from np_random when the old one leaves, whatever the bird does.",
    ),
    row(
        "flappy-bird-gymnasium",
        "FlappyBird-v0, lidar",
        made("flappy_bird_gymnasium", "FlappyBird-v0", use_lidar=True),
        "The lidar is computed from the state.",
    ),
    row(
        "gymnasium-2048",
        "TwentyFortyEight-v0",
        made("gymnasium_2048", "gymnasium_2048/TwentyFortyEight-v0"),
        "A legal move draws a place and a value from np_random, an illegal one nothing; the next step begins anew.",
    ),
    row(
        "tetris-gymnasium",
        "Tetris",
        tetris,
        "Pieces come from a shuffled bag with a generator of its own, found as a stream.",
    ),
)

MEMORY = (
    row(
        "popgym",
        "CountRecallEasy",
        made("popgym", "popgym-CountRecallEasy-v0"),
        "Both decks are shuffled by np_random in the reset; the method that uses numpy.random is never called.",
    ),
    row(
        "popgym",
        "MultiarmedBanditEasy",
        made("popgym", "popgym-MultiarmedBanditEasy-v0"),
        "One draw from np_random pays every arm: shared.",
    ),
    row(
        "popgym",
        "HigherLowerEasy",
        made("popgym", "popgym-HigherLowerEasy-v0"),
        "The deck is shuffled in the reset; a step draws nothing.",
    ),
    row(
        "popgym",
        "NoisyPositionOnlyCartPoleEasy",
        made("popgym", "popgym-NoisyPositionOnlyCartPoleEasy-v0"),
        "What is seen is blurred by np_random in every step.",
    ),
)

MOTORS = (
    row(
        "gym-electric-motor",
        "Finite-CC-PermExDc-v0",
        electric("Finite-CC-PermExDc-v0"),
        "The reference is a Wiener process drawn some steps ahead; each part has a generator, all found. A plot holds "
        "the environment, so it is replayed.",
    ),
    row(
        "gym-electric-motor",
        "Cont-SC-PermExDc-v0",
        electric("Cont-SC-PermExDc-v0"),
        "As Finite-CC-PermExDc-v0, with a continuous voltage.",
    ),
)

CASES = (*MINIGRID, *ROADS, *OBJECTIVES, *ROBOTS, *MARKETS, *GAMES, *MEMORY, *MOTORS)
