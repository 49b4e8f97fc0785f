"""A simulator from what people have: a simulator, a joint MDP, an environment, or the name of one."""

import inspect
import re
from collections.abc import Callable
from typing import Any

from jointmdp.ground.errors import ModelError
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.simulation.simulators.simulator import Simulator
from jointmdp.simulation.simulators.table_simulator import TableSimulator

KINDS = ("gymnasium", "gymnax", "atari")


def as_simulator(source: Any) -> Simulator:
    """A simulator, a `JointMDP`, a Gymnasium environment, or a name: ``gymnasium:FrozenLake-v1,map_name=8x8``."""
    if isinstance(source, Simulator):
        return source
    if isinstance(source, JointMDP):
        return TableSimulator(source)
    if isinstance(source, str) and is_environment(source):
        return named_simulator(source)
    if (
        not isinstance(source, str)
        and callable(getattr(source, "step", None))
        and callable(getattr(source, "reset", None))
    ):
        from jointmdp.simulation.simulators.gymnasium_simulator import GymnasiumSimulator

        return GymnasiumSimulator(source)
    if isinstance(source, tuple) and source and isinstance(source[0], JointMDP):
        raise ModelError("this is a model with its policy; give the model, and the policy after it")
    hint = f"; built-in models by name: jointmdp.as_simulator({source!r})" if isinstance(source, str) else ""
    raise ModelError(
        f"{source!r} is no simulator; give a Simulator, a JointMDP, a Gymnasium environment, or a name such as "
        f"gymnasium:FrozenLake-v1{hint}"
    )


def is_environment(text: str) -> bool:
    """Whether a name is one of an environment: ``gymnasium:ID``, ``atari:Pong``, ``minigrid:ID``, or ``ID-v3``."""
    kind, _, rest = text.partition(":")
    return kind in KINDS or re.search(r"-v\d+$", (rest or kind).split(",")[0]) is not None


def named_simulator(text: str) -> Simulator:
    """The environment of a name: ``gymnasium:ID,setting=value``, ``gymnax:ID``, ``atari:Pong``, an id of Gymnasium."""
    kind, _, rest = text.partition(":")
    if kind not in KINDS:
        kind, rest = "gymnasium", text
    name, *parts = rest.split(",")
    given = settings_of(text, parts, f"{kind}:{name},setting=value")
    settings = {key: _guessed(value) for key, value in given.items()}
    if kind == "atari":
        from jointmdp.simulation.simulators.atari_simulator import AtariSimulator

        return named_settings(AtariSimulator, text, name, settings)
    if kind == "gymnax":
        from jointmdp.simulation.simulators.jax_adapters import gymnax_simulator

        return gymnax_simulator(name, **settings)
    from jointmdp.simulation.simulators.gymnasium_simulator import GymnasiumSimulator

    return GymnasiumSimulator(name, settings=settings)


def named_settings(make: Callable[..., Simulator], text: str, name: str, settings: dict[str, Any]) -> Simulator:
    """A simulator of its name and settings; a setting that it does not have is named."""
    known = list(inspect.signature(make).parameters)[1:]
    for key in settings:
        if key not in known:
            raise ModelError(f"{key!r} in {text!r} is no setting; there are {', '.join(known)}")
    return make(name, **settings)


def settings_of(text: str, parts: list[str], form: str) -> dict[str, str]:
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


def _guessed(text: str) -> Any:
    """A setting of an environment that declares no types: a truth value, a number, or a text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
