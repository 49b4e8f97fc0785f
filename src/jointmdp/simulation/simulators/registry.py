"""CartPole in gusts of wind: "would the other action have been better here?" where no state comes twice.

Models and simulators by name, for the command line and for anything that goes over all built-in ones.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from jointmdp.ground import checks
from jointmdp.ground.arrays import Floats
from jointmdp.ground.checks import Sharing
from jointmdp.simulation.simulators.gymnasium_simulator import GymnasiumSimulator

import gymnasium  # isort: skip  # after the module that says what to install when it is missing
import difflib
import inspect
from types import NoneType
from typing import Literal, NamedTuple, get_args, get_origin, get_type_hints

from jointmdp.ground.errors import ModelError
from jointmdp.model.built_in_models import (
    anticorrelated_rewards,
    coupled_reward_chain,
    inventory,
    machine_replacement,
    shared_successors,
    windy_gridworld,
)
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.simulation.simulators import any_simulator
from jointmdp.simulation.simulators.simulator import Simulator
from jointmdp.simulation.simulators.table_simulator import TableSimulator

# Push the cart to the side to which the pole falls: angle and its speed first, then move the cart back. The gains are
# those of a linear regulator for the cart-pole, rounded; balancing does not depend on their last digit.
GAINS = np.array([0.1, 0.3, 3.0, 1.0])  # position, speed, angle, angular speed


class Gusts(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Before each step a gust may push the cart, its change of speed drawn from the environment's ``np_random``."""

    def __init__(self, env: gymnasium.Env[Any, Any], probability: float, size: float) -> None:
        super().__init__(env)
        self.probability, self.size = probability, size

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        inner: Any = self.env.unwrapped
        # Two draws whatever comes of them, so that the later draws of a step never shift.
        comes, push = inner.np_random.random(), inner.np_random.standard_normal()
        if comes < self.probability:
            x, speed, angle, turn = inner.state
            inner.state = np.array([x, speed + self.size * push, angle, turn], dtype=np.float64)
        return super().step(action)


def gusty_cartpole(
    probability: float = 0.2,
    size: float = 0.5,
    *,
    max_steps: int = 200,
    discount: float = 1.0,
    sharing: Sharing = "time",
) -> tuple[GymnasiumSimulator, Callable[[Floats], Floats]]:
    """CartPole with a random push on the cart, with the actions "left" and "right", and a policy that balances it.

    Args:
        probability: how often a gust comes, each step.
        size: the standard deviation of the change of the cart's speed by a gust, in metres a second; the cart's own
            motor changes it by about 0.2 a step.
        max_steps: where the episode ends if the pole still stands.

    Rewards are 1 a step until the pole falls or the cart leaves the track.
    """
    env = Gusts(
        gymnasium.make("CartPole-v1", max_episode_steps=checks.as_count("max_steps", max_steps)),
        checks.as_probability("probability", probability),
        checks.as_amount("size", size),
    )
    found = GymnasiumSimulator(env, discount=discount, sharing=sharing, reward_bounds=(0.0, 1.0))
    found.name = "gusty CartPole"
    return found, balancing_policy


def balancing_policy(observation: Floats) -> Floats:
    """Probabilities of "left" and "right" that balance the pole: nearly certain unless it is close to upright."""
    tendency = float(GAINS @ np.asarray(observation, dtype=np.float64))
    right = 1 / (1 + math.exp(-max(-50.0, min(50.0, 20 * tendency))))
    return np.array([1 - right, right])


TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
READERS: dict[Any, tuple[Callable[[str], Any], str]] = {
    int: (int, "a whole number"),
    float: (float, "a number"),
    bool: (lambda text: TRUTHS[text.lower()], "true or false"),
}


class Entry(NamedTuple):
    """A built-in model: the function that makes it and its policy, and what it is in one line."""

    function: Callable[..., tuple[JointMDP, Floats]]
    description: str

    @property
    def settings(self) -> dict[str, Any]:
        """The function's settings with their defaults."""
        return {name: p.default for name, p in inspect.signature(self.function).parameters.items()}


MODELS: dict[str, Entry] = {
    "windy-gridworld": Entry(windy_gridworld, "A grid in which one gust blows every branch to the left."),
    "coupled-reward-chain": Entry(coupled_reward_chain, "A chain whose coin pays one action and charges the other."),
    "inventory": Entry(inventory, "How much to order, under the same demand."),
    "machine-replacement": Entry(machine_replacement, "Keep, repair or replace, under the same shocks."),
    "anticorrelated-rewards": Entry(anticorrelated_rewards, "The paper's Example 1: rewards U and 1 − U."),
    "shared-successors": Entry(shared_successors, "The paper's Example 2: next states U and U, or U and 1 − U."),
}


def make_model(name: str, **settings: Any) -> tuple[JointMDP, Floats]:
    """The built-in model `name` and its policy; ``make_model("inventory", max_stock=10)``."""
    return _entry(name, settings).function(**settings)


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """Name and settings of ``"inventory:max_stock=10,sharing=state"``, each value of the type its function wants."""
    name, colon, rest = text.partition(":")
    form = f"{name}:setting=value,setting=value"
    given = any_simulator.settings_of(text, rest.split(",") if colon else [], form)
    hints = get_type_hints(_entry(name, given).function)
    return name, {key: _converted(f"{key} of {name}", value, hints[key]) for key, value in given.items()}


def as_simulator(source: Any) -> Simulator:
    """A simulator from a simulator, a joint MDP, a Gymnasium environment, or a name that `open_named` knows."""
    return open_named(source)[0] if isinstance(source, str) else any_simulator.as_simulator(source)


def open_named(text: str) -> tuple[Simulator, Any]:
    """The simulator of a name, and a policy for it: its own, or ``"uniform"``.

    ``gymnasium:FrozenLake-v1``, ``gymnasium:FrozenLake-v1,map_name=8x8``, ``gymnax:CartPole-v1``, ``gusty-cartpole``,
    ``minigrid:MiniGrid-Empty-5x5-v0`` (a package to import, and an id), or a built-in model such as
    ``inventory:max_stock=10``.
    """
    kind = text.partition(":")[0]
    if text == "gusty-cartpole":
        # MERGED

        return gusty_cartpole()
    if any_simulator.is_environment(text):
        return any_simulator.named_simulator(text), "uniform"
    if kind not in MODELS:
        known = f"known: {', '.join(MODELS)}, gusty-cartpole, gymnasium:ID, gymnax:ID"
        close = difflib.get_close_matches(kind, [*MODELS, "gusty-cartpole", "gymnasium", "gymnax"], n=1)
        raise ModelError(f"unknown simulator {text!r}; {f'did you mean {close[0]}?' if close else known}")
    name, settings = parse(text)
    model, policy = make_model(name, **settings)
    simulator = TableSimulator(model)
    simulator.name = name
    return simulator, policy


def _entry(name: str, settings: dict[str, Any]) -> Entry:
    """The model of this name, which must have these settings."""
    if name not in MODELS:
        raise ModelError(f"unknown model {name!r}; built in: {', '.join(MODELS)}")
    known = MODELS[name].settings
    for key in settings:
        if key not in known:
            raise ModelError(f"{name} has no setting {key!r}; its settings: {', '.join(known)}")
    return MODELS[name]


def _converted(what: str, text: str, wanted: Any) -> Any:
    """`text` as a value of the annotated type: int, float, bool, a choice, or one of these or None."""
    kinds = get_args(wanted) or (wanted,)
    if NoneType in kinds and text.lower() == "none":
        return None
    if get_origin(wanted) is Literal:
        read, words = dict(zip(kinds, kinds, strict=True)).__getitem__, f"one of {', '.join(kinds)}"
    else:
        read, words = READERS[kinds[0]]
    try:
        return read(text)
    except (ValueError, KeyError):
        raise ModelError(f"{what} is {text!r}; it must be {words}") from None
