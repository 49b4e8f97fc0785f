"""Environments by their ids, and what to write where an id is not known."""

import sys
import warnings
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any

import gymnasium
from gymnasium import Env

from jointmdp.errors import ModelError
from jointmdp.simulators.gymnasium.foreign_errors import error_text

EVERYDAY = ("env", "envs", "gym", "gymnasium", "py", "rl")  # parts of packages' names that say nothing


def made(env: Env[Any, Any] | str, settings: Mapping[str, Any] | None) -> Any:
    """The environment of an id, ``"CartPole-v1"`` or ``"package:id"``; one that is made already as it is."""
    if not isinstance(env, str):
        if settings is not None:
            raise ModelError("settings are for environments given by their id; this one is made already")
        return env
    try:
        with warnings.catch_warnings():
            # Importing Box2D warns of its binding's age; made an error, that warning crashes the interpreter.
            warnings.simplefilter("ignore", DeprecationWarning)
            return gymnasium.make(env, disable_env_checker=True, **(settings or {}))
    except Exception as error:  # whatever a constructor raises
        is_unknown = isinstance(error, gymnasium.error.UnregisteredEnv | ImportError)
        cause = str(error) if isinstance(error, gymnasium.error.Error | ImportError) else error_text(error)
        hint = _hint(env) if is_unknown and "Did you mean" not in cause else ""
        raise ModelError(f"gymnasium does not make {env!r}: {cause.rstrip('.') if hint else cause}{hint}") from error


def _hint(name: str) -> str:
    """Which package an unknown id may belong to."""
    if ":" in name:
        return f"; is the package {name.partition(':')[0]} installed, and does importing it register the environment?"
    found = sorted(set(_packages(name.lower())))
    if found and all(package in sys.modules for package in found):
        return f"; {' and '.join(found)}, already imported, did not register it: is it spelt as there?"
    if found:
        names = " or ".join(f"{package}:{name}" for package in found)
        return f"; did you mean {names}, which imports the package first?"
    return f"; an id of another package is written with the package to import, package:{name}"


def _packages(name: str) -> Iterator[str]:
    """Installed packages whose name begins as an id does: ``minigrid`` for ``minigrid-empty-5x5-v0``."""
    for package in metadata.packages_distributions():
        parts = [part for part in package.lower().replace("-", "_").split("_") if part and part not in EVERYDAY]
        if parts and len(parts[0]) > 2 and name.startswith(parts[0]) and not package.startswith("_"):
            yield package
