"""What the numbered actions of an environment are called: its page, or the environment itself, may say."""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

import gymnasium
from gymnasium import Env

from jointmdp.model.importers import TOY_TEXT_ACTIONS
from jointmdp.simulators.gymnasium.wrapper_stack import levels

# The names that the environments' own pages give to their actions, by class.
ACTION_NAMES: dict[str, tuple[str, ...]] = {
    **TOY_TEXT_ACTIONS,
    "AcrobotEnv": ("torque −1", "no torque", "torque +1"),
    "BlackjackEnv": ("stick", "hit"),
    "CarRacing": ("nothing", "steer right", "steer left", "gas", "brake"),
    "CartPoleEnv": ("left", "right"),
    "LunarLander": ("nothing", "left engine", "main engine", "right engine"),
    "MountainCarEnv": ("left", "coast", "right"),
}
# Where environments keep the names of their actions, as attributes of the environment or of its module.
PLACES = ("get_action_meanings", "action_meanings", "action_names", "actions", "action_type.actions", "Actions")
TABLES = ("ACTION_NAMES", "ACTION_LOOKUP", "ACTION_MEANING", "ACTIONS")


def known_names(env: Env[Any, Any], count: int) -> tuple[str, ...] | None:
    """The names of `count` actions, as the environment or its page gives them; None where neither does."""
    # Behind an action wrapper the numbers mean something else.
    if any(isinstance(level, gymnasium.ActionWrapper) for level in levels(env)):
        return None
    for found in (ACTION_NAMES.get(type(env.unwrapped).__name__), *_listed(env.unwrapped)):
        names = _names(found, count)
        if len(names) == count == len(set(names)):
            return names
    return None


def _listed(inner: Any) -> Iterator[Any]:
    """What may be a list of names; a property or a method of somebody else's may fail in any way."""
    for place in (*PLACES, *TABLES):
        found = inner
        try:
            for part in place.split("."):
                found = getattr(found, part)
            is_asked = callable(found) and not isinstance(found, type)
            yield found() if is_asked else found
        except Exception:
            continue


def _names(found: Any, count: int) -> tuple[str, ...]:
    """The names in a list, or of the first numbers in a dict or an `Enum`; none where it is no such."""
    if isinstance(found, type) and issubclass(found, Enum):
        found = {member.value: member.name for member in found}
    if isinstance(found, Mapping):
        found = [found.get(number) for number in range(count)]
    if not isinstance(found, list | tuple):
        return ()
    words = [word.name if isinstance(word, Enum) else word for word in found]
    return tuple(word.lower().replace("_", " ") for word in words) if all(type(w) is str for w in words) else ()
