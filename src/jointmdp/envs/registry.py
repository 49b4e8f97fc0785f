"""Models and simulators by name, for the command line and for anything that goes over all built-in ones."""

import difflib
import inspect
from collections.abc import Callable
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from jointmdp.arrays import Floats
from jointmdp.envs.tabular_models import coupled_reward_chain, inventory, windy_gridworld
from jointmdp.envs.textbook_models import anticorrelated_rewards, machine_replacement, shared_successors
from jointmdp.errors import ModelError
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.simulators import any_simulator
from jointmdp.simulators.simulator import Simulator
from jointmdp.simulators.table_simulator import TableSimulator

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
        from jointmdp.envs.gusty_cartpole import gusty_cartpole

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
