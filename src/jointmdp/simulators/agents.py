"""Policies for simulators: whatever a user calls a policy, as one function of a state and a draw of noise."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from jointmdp import checks
from jointmdp.errors import ModelError
from jointmdp.model.inversion import drawn, interval_ends
from jointmdp.simulators.noise import Noise

Snapshot = Any
Action = Any
Agent = Callable[[Snapshot, Noise], Action]

SUM_TOLERANCE = 1e-6  # single-precision networks sum their probabilities this badly
FORMS = (
    "a function f(observation) -> probabilities or f(observation, rng) -> action, an array [S, A] or [S] indexed by "
    'the observation, an object with predict(observation), "uniform", or one action to take for ever'
)


class Asked(Protocol):
    """What a policy asks of a simulator: all of it is part of `Simulator`."""

    name: str
    action_names: tuple[str, ...] | None

    def observe(self, state: Snapshot) -> Any:
        """What a policy sees of `state`."""

    def available(self, state: Snapshot) -> Sequence[Action]:
        """The actions that can be taken in `state`."""

    def action_index(self, action: Action) -> Action:
        """A numbered action from its number or name."""

    def policy_draw(self, noise: Noise) -> Any:
        """What a policy ``f(observation, rng)`` draws its action from."""


def as_agent(policy: Any, simulator: Asked) -> Agent:
    """A policy in any of its forms as ``choose(state, noise) -> action``.

    What it sees is ``simulator.observe(state)``.

    - ``f(observation) -> probabilities``; where it returns one action instead, that is taken.
    - ``f(observation, rng) -> action`` draws by itself from the generator that it is given; for JAX simulators that
      is a key.
    - An array: ``[S, A]`` probabilities or ``[S]`` actions, for observations that are state numbers.
    - An object with ``predict`` (the habit of Stable-Baselines3), asked for its deterministic action. For its
      stochastic ones wrap it, and let it draw from the generator: its own would break the pairing.
    - ``"uniform"``, or the name or number of one action to take for ever.
    """
    if isinstance(policy, str):
        return _named(policy, simulator)
    if isinstance(policy, int | np.integer) and not isinstance(policy, bool):
        return _constant(simulator.action_index(int(policy)))
    if callable(getattr(policy, "predict", None)):
        return _predicting(policy, simulator)
    if callable(policy):
        return _calling(policy, simulator)
    try:
        array = np.asarray(policy)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind in "US" and array.ndim == 1:
        array = np.array([simulator.action_index(name) for name in array.tolist()])
    if array.dtype.kind in "fiub" and array.ndim in (1, 2) and simulator.action_names is not None:
        return _tabular(array, simulator)
    raise ModelError(f"the policy is {policy!r}; give {FORMS}")


def _named(policy: str, simulator: Asked) -> Agent:
    names = simulator.action_names
    if policy in (names or ()):
        return _constant(simulator.action_index(policy))
    if policy != "uniform":
        raise ModelError(f"the policy is {policy!r}; give {FORMS}")
    if names is None:
        draw = getattr(simulator, "random_action", None)
        if draw is None:
            raise ModelError(f"the actions of {simulator.name} are not numbered, so a uniform policy is not defined")
        return lambda state, noise: draw(noise.rng)

    def choose(state: Snapshot, noise: Noise) -> Action:
        actions = simulator.available(state)
        return actions[int(noise.uniform * len(actions))]

    return choose


def _constant(action: Action) -> Agent:
    return lambda state, noise: action


def _predicting(policy: Any, simulator: Asked) -> Agent:
    accepts = _accepts(policy.predict, "deterministic")

    def choose(state: Snapshot, noise: Noise) -> Action:
        observation = simulator.observe(state)
        found = policy.predict(observation, deterministic=True) if accepts else policy.predict(observation)
        action = found[0] if isinstance(found, tuple) else found
        return _checked(action, simulator)

    return choose


def _calling(policy: Callable[..., Any], simulator: Asked) -> Agent:
    if arity(policy) >= 2:
        return lambda state, noise: _checked(policy(simulator.observe(state), simulator.policy_draw(noise)), simulator)

    def choose(state: Snapshot, noise: Noise) -> Action:
        observation = simulator.observe(state)
        found = policy(observation)
        if simulator.action_names is None or np.ndim(found) == 0:
            return _checked(found, simulator)
        return _drawn(found, simulator, noise)

    return choose


def _tabular(array: NDArray[Any], simulator: Asked) -> Agent:
    def choose(state: Snapshot, noise: Noise) -> Action:
        observation = simulator.observe(state)
        if np.ndim(observation) != 0 or np.asarray(observation).dtype.kind not in "iu":
            raise ModelError(
                f"the policy is an array, but observations of {simulator.name} are no state numbers (here "
                f"{observation!r}); give a function of the observation"
            )
        if not 0 <= observation < len(array):
            raise ModelError(f"the policy has {len(array)} rows, but the observation is {observation}")
        row = array[int(observation)]
        return _checked(row, simulator) if array.ndim == 1 else _drawn(row, simulator, noise)

    return choose


def _drawn(chances: Any, simulator: Asked, noise: Noise) -> Action:
    """An action by inversion: one uniform a decision, whatever the probabilities."""
    names = simulator.action_names
    assert names is not None
    row = np.asarray(chances, dtype=np.float64).reshape(-1)
    if len(row) != len(names):
        raise ModelError(f"the policy gave {len(row)} probabilities for the {len(names)} actions of {simulator.name}")
    total = float(row.sum())
    if not (row >= 0).all() or not abs(total - 1) <= SUM_TOLERANCE:
        raise ModelError(
            f"the policy gave {np.array2string(row, precision=4, threshold=8)} with sum {total:.6g}, no probabilities; "
            "did you return values or logits?"
        )
    likely = int(row.argmax())
    if row[likely] >= 1:
        return likely
    return drawn(interval_ends(row), noise.uniform * total)


def _checked(action: Any, simulator: Asked) -> Action:
    if simulator.action_names is None:
        return action
    scalar = action.item() if isinstance(action, np.ndarray | np.generic) or hasattr(action, "item") else action
    if isinstance(scalar, float) and scalar.is_integer():
        scalar = int(scalar)
    try:
        return checks.as_index("action", scalar, simulator.action_names, len(simulator.action_names))
    except ModelError as error:
        raise ModelError(f"the policy chose {action!r}: {error}") from None


def _accepts(function: Callable[..., Any], name: str) -> bool:
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def arity(function: Callable[..., Any]) -> int:
    """How many positional arguments a function must be given."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    # An rng with a default is still meant to be given: without it draws would not be reproducible.
    return sum(p.kind in positional and (p.default is p.empty or p.name in ("rng", "key")) for p in parameters)
