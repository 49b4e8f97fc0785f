"""A model that is one function ``run(decision, seed) -> outcome``: its decisions, called and checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from jointmdp.errors import ModelError
from jointmdp.simulators.noise import Noise
from jointmdp.simulators.simulator import Action, Outcome, Simulator, Snapshot


def is_run_function(source: Any) -> bool:
    """Whether `source` is such a function."""
    return callable(source) and not isinstance(source, type) and not hasattr(source, "step")


class RunSimulator(Simulator):
    """Decisions of a function as actions: one step, and the episode is over."""

    def __init__(self, run: Callable[[Any, int], Any], decisions: Mapping[str, Any] | Sequence[Any]) -> None:
        if not is_run_function(run):
            raise ModelError(f"decisions are tried by a function run(decision, seed) -> outcome, not by {run!r}")
        named = as_named("decisions", decisions)
        self.run, self.decisions = run, tuple(named.values())
        self.name = str(getattr(run, "__name__", "run"))
        self.action_names = tuple(named)

    def outcome(self, action: int, seed: int) -> float:
        """What a decision gives with a seed."""
        found = self.run(self.decisions[action], seed)
        try:
            value = float(found)
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            decision = self.decisions[action]
            raise ModelError(f"run({decision!r}, seed) returned {found!r}; it must return one finite number")
        return value

    def start(self, noise: Noise) -> Snapshot:
        """Before the decision."""
        return False

    def step(self, state: Snapshot, action: Action, noise: Noise) -> Outcome:
        """One call of the function."""
        return Outcome(self.outcome(action, noise.seed), True)

    def is_over(self, state: Snapshot) -> bool:
        """After the decision."""
        return bool(state)

    def identity(self, state: Snapshot) -> Hashable:
        """There are two states."""
        return bool(state)


def as_named(what: str, given: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """Alternatives by name: those of a dictionary, or the values themselves in words."""
    if isinstance(given, Mapping):
        named = {str(name): value for name, value in given.items()}
    elif isinstance(given, Sequence | np.ndarray) and not isinstance(given, str):
        named = {_label(value, i): value for i, value in enumerate(given)}
    else:
        raise ModelError(f"{what} must be a sequence, or a dictionary with their names, not {given!r}")
    if len(given) < 2:
        raise ModelError(f"comparing takes at least two {what}, not {len(given)}")
    if len(named) < len(given):
        raise ModelError(f"two {what} have the same name; give a dictionary with names of their own, {{name: value}}")
    return named


def _label(value: Any, place: int) -> str:
    if isinstance(value, int | float | str | np.generic | tuple):
        return str(value)
    return str(getattr(value, "__name__", f"number {place + 1}"))
