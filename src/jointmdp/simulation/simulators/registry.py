"""A simulator from what people have: a simulator, a joint MDP, an environment, or the name of one.

Names are those of the command line: an environment (``gymnasium:FrozenLake-v1,map_name=8x8``, ``gymnax:CartPole-v1``,
``atari:Pong``), or a built-in model with its settings, ``inventory:max_stock=10``.
"""

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from jointmdp.ground.arrays import Floats
from jointmdp.ground.errors import ModelError
from jointmdp.model import built_in_models as built_in
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.simulation.simulators.simulator import Simulator
from jointmdp.simulation.simulators.table_simulator import TableSimulator

KINDS = ("gymnasium", "gymnax", "atari")
CARTPOLE = "gusty-cartpole"
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


DESCRIPTIONS: dict[Callable[..., tuple[JointMDP, Floats]], str] = {
    built_in.windy_gridworld: "A grid in which one gust blows every branch to the left.",
    built_in.coupled_reward_chain: "A chain whose coin pays one action and charges the other.",
    built_in.inventory: "How much to order, under the same demand.",
    built_in.machine_replacement: "Keep, repair or replace, under the same shocks.",
    built_in.anticorrelated_rewards: "The paper's Example 1: rewards U and 1 − U.",
    built_in.shared_successors: "The paper's Example 2: next states U and U, or U and 1 − U.",
}
MODELS = {made.__name__.replace("_", "-"): Entry(made, text) for made, text in DESCRIPTIONS.items()}


def as_simulator(source: Any) -> Simulator:
    """A simulator from a simulator, a joint MDP, a Gymnasium environment, or a name that `open_named` knows."""
    if isinstance(source, Simulator):
        return source
    if isinstance(source, JointMDP):
        return TableSimulator(source)
    if isinstance(source, str):
        return open_named(source)[0]
    if callable(getattr(source, "step", None)) and callable(getattr(source, "reset", None)):
        from jointmdp.simulation.simulators.gymnasium_simulator import GymnasiumSimulator

        return GymnasiumSimulator(source)
    if isinstance(source, tuple) and source and isinstance(source[0], JointMDP):
        raise ModelError("this is a model with its policy; give the model, and the policy after it")
    raise ModelError(
        f"{source!r} is no simulator; give a Simulator, a JointMDP, a Gymnasium environment, or a name such as "
        "gymnasium:FrozenLake-v1"
    )


def open_named(text: str) -> tuple[Simulator, Any]:
    """The simulator of a name, and a policy for it: its own, or ``"uniform"``.

    ``gymnasium:FrozenLake-v1``, ``gymnasium:FrozenLake-v1,map_name=8x8``, ``gymnax:CartPole-v1``, ``gusty-cartpole``,
    ``minigrid:MiniGrid-Empty-5x5-v0`` (a package to import, and an id), or a built-in model such as
    ``inventory:max_stock=10``.
    """
    kind, _, rest = text.partition(":")
    if text == CARTPOLE:
        from jointmdp.simulation.simulators.gusty_cartpole import gusty_cartpole

        return gusty_cartpole()
    if kind in KINDS or re.search(r"-v\d+$", (rest or kind).split(",")[0]):
        return _environment(text), "uniform"
    if kind not in MODELS:
        known = f"known: {', '.join(MODELS)}, {CARTPOLE}, gymnasium:ID, gymnax:ID"
        close = difflib.get_close_matches(kind, [*MODELS, CARTPOLE, "gymnasium", "gymnax"], n=1)
        raise ModelError(f"unknown simulator {text!r}; {f'did you mean {close[0]}?' if close else known}")
    name, settings = parse(text)
    model, policy = make_model(name, **settings)
    simulator = TableSimulator(model)
    simulator.name = name
    return simulator, policy


def _environment(text: str) -> Simulator:
    """The environment of a name: ``gymnasium:ID,setting=value``, ``gymnax:ID``, ``atari:Pong``, an id of Gymnasium."""
    kind, _, rest = text.partition(":")
    if kind not in KINDS:
        kind, rest = "gymnasium", text
    name, *parts = rest.split(",")
    given = _settings(text, parts, f"{kind}:{name},setting=value")
    if kind == "atari":
        from jointmdp.simulation.simulators.atari_simulator import AtariSimulator

        return AtariSimulator(name, **_typed(kind, given, AtariSimulator.__init__, 2))
    settings = {key: _guessed(value) for key, value in given.items()}
    if kind == "gymnax":
        from jointmdp.simulation.simulators.jax_adapters import gymnax_simulator

        return gymnax_simulator(name, **settings)
    from jointmdp.simulation.simulators.gymnasium_simulator import GymnasiumSimulator

    return GymnasiumSimulator(name, settings=settings)


def make_model(name: str, **settings: Any) -> tuple[JointMDP, Floats]:
    """The built-in model `name` and its policy; ``make_model("inventory", max_stock=10)``."""
    if name not in MODELS:
        raise ModelError(f"unknown model {name!r}; built in: {', '.join(MODELS)}")
    _check_settings(name, settings, MODELS[name].settings)
    return MODELS[name].function(**settings)


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """Name and settings of ``"inventory:max_stock=10,sharing=state"``, each value of the type its function wants."""
    name, colon, rest = text.partition(":")
    if name not in MODELS:
        raise ModelError(f"unknown model {name!r}; built in: {', '.join(MODELS)}")
    given = _settings(text, rest.split(",") if colon else [], f"{name}:setting=value,setting=value")
    return name, _typed(name, given, MODELS[name].function)


def _typed(name: str, given: Mapping[str, str], function: Callable[..., Any], first: int = 0) -> dict[str, Any]:
    """Settings as the values that a function wants, from its `first` parameter on."""
    _check_settings(name, given, list(inspect.signature(function).parameters)[first:])
    hints = get_type_hints(function)
    return {key: _read(f"{key} of {name}", value, hints[key]) for key, value in given.items()}


def _check_settings(name: str, given: Iterable[str], known: Iterable[str]) -> None:
    for key in given:
        if key not in known:
            raise ModelError(f"{name} has no setting {key!r}; its settings: {', '.join(known)}")


def _settings(text: str, parts: list[str], form: str) -> dict[str, str]:
    """The `parts` of a name that are settings, ``key=value``."""
    settings: dict[str, str] = {}
    for part in parts:
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not (key and equals and value):
            raise ModelError(f"{part!r} in {text!r} is not a setting; write {form}")
        if key in settings:
            raise ModelError(f"{key} is set twice in {text!r}")
        settings[key] = value
    return settings


def _read(what: str, text: str, wanted: Any) -> Any:
    """`text` as a value of the annotated type: int, float, bool, a choice, one of these or None; else a guess."""
    kinds = get_args(wanted) or (wanted,)
    if NoneType in kinds and text.lower() == "none":
        return None
    if get_origin(wanted) is Literal:
        read, words = dict(zip(kinds, kinds, strict=True)).__getitem__, f"one of {', '.join(kinds)}"
    else:
        read, words = READERS.get(kinds[0], (_guessed, ""))
    try:
        return read(text)
    except (ValueError, KeyError):
        raise ModelError(f"{what} is {text!r}; it must be {words}") from None


def _guessed(text: str) -> Any:
    """A setting of an environment that declares no types: a truth value, a number, or a text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text
