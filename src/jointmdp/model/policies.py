"""Policies as ``[S, A]`` arrays of action probabilities, and those that depend on time as ``[T, S, A]``."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from jointmdp.ground import checks
from jointmdp.ground.arrays import Floats, refuse_traced
from jointmdp.ground.errors import ModelError
from jointmdp.model.tables import ModelTables


def checked_policy(model: ModelTables, policy: Any, example: str) -> Floats:
    """The policy as ``[S, A]`` and the model as one; `example` shows how a built-in model comes with a policy."""
    if not isinstance(model, ModelTables):
        raise ModelError(
            f"the model must be a JointMDP, not {type(model).__name__}; built-in models come with a policy, as in "
            f"{example}"
        )
    return as_policy(model, policy)


def as_policy(model: ModelTables, policy: Any) -> Floats:
    """A checked ``[S, A]`` policy.

    Given as probabilities ``[S, A]``; as one action per state ``[S]``, by index or name; as ``"uniform"``, or the name
    or number of one action that is taken everywhere; as ``{state: action}`` or ``{state: {action: probability}}``; or
    as a function of the state's index that gives an action or probabilities.
    """
    if depends_on_time(policy):
        raise ModelError(
            "the policy depends on time: an array [T, S, A], or a function of two things, time and state; such "
            "policies are for evaluate(model, policy, horizon=T), simulate and compare with a horizon, and "
            "hindsight(other_policy=…)"
        )
    if isinstance(policy, str):
        if policy == "uniform" and policy not in (model.action_names or ()):
            return uniform_policy(model)
        policy = [policy] * model.num_states
    if isinstance(policy, int | np.integer) and not isinstance(policy, bool):
        policy = np.full(model.num_states, policy)
    if isinstance(policy, Mapping):
        return _rows_of(model, _by_state(model, policy))
    if callable(policy):
        return _rows_of(model, _asked(model, policy))
    if isinstance(policy, list | tuple) and any(_is_name(model, action) for action in policy):
        return _rows_of(model, policy)
    try:
        raw = np.asarray(policy)
    except (TypeError, ValueError) as error:
        refuse_traced("the policy", error)
        raise ModelError(f"the policy must be an [S, A] or [S] array: {error}") from None
    if raw.dtype.kind in "OUS":
        if raw.ndim == 1 and all(isinstance(action, str | int) for action in raw.tolist()):
            return _rows_of(model, raw.tolist())
        raise ModelError(
            f"the policy is {policy!r}; give an [S, A] array of probabilities, one action per state by index or name, "
            'a dictionary {state: action}, a function of the state, or "uniform"'
        )
    if raw.ndim == 1:
        return deterministic_policy(model, policy)
    rows = checks.as_floats("the policy", policy, "[S, A] or [S]", 2)
    checks.check_shape("the policy", rows, model.available.shape, "[S, A]")
    rows = checks.normalised("action probabilities", rows, "state", "action")
    if at := checks.first_place((rows > 0) & ~model.available):
        state, action = at
        raise ModelError(
            f"the policy takes {model.action_label(action)} in {model.state_label(state)} with probability "
            f"{rows[at]:g}, but it is not available there"
        )
    return rows


def depends_on_time(policy: Any) -> bool:
    """Whether this is an array ``[T, S, A]``, or a function that must be given two things, the time and the state."""
    if not callable(policy):
        try:
            return not isinstance(policy, str | Mapping) and np.ndim(policy) == 3
        except (TypeError, ValueError):  # rows of several lengths
            return False
    return checks.takes_two(policy)


def as_timed_policy(model: ModelTables, policy: Any, steps: int, then: Floats) -> Floats:
    """A checked ``[T, S, A]`` policy of so many steps, from an array or a function that `depends_on_time`.

    An array with more rows than steps is cut. At steps after its last row `then` is followed, ``[S, A]``.
    """
    count = steps if callable(policy) else min(len(policy), steps)

    def at(t: int) -> Any:
        return (lambda state: policy(t, state)) if callable(policy) else policy[t]

    found = np.empty((steps, *then.shape))
    for t in range(steps):
        try:
            found[t] = as_policy(model, at(t)) if t < count else then
        except ModelError as error:
            raise ModelError(f"at step {t}: {error}") from None
    return found


def looks_timed(policy: Any) -> bool:
    """Whether this is a function of two things that are called like a time and a state.

    Simulators know such functions by these names alone: those of an observation and a generator take two things, too.
    """
    if not callable(policy) or not depends_on_time(policy):
        return False
    first, second, *_ = inspect.signature(policy).parameters
    if second in ("rng", "key", "generator") or first.startswith("obs"):
        return False
    return first in ("t", "time", "step", "day") or second in ("s", "state")


def timed_policy(model: ModelTables, policy: Any, horizon: int) -> Floats:
    """A policy that depends on time, ``[T, S, A]``, for T steps: an array, or a function of (time, state)."""
    steps = checks.as_count("horizon", horizon)
    if not depends_on_time(policy):
        return np.tile(as_policy(model, policy), (steps, 1, 1))
    if not callable(policy) and len(policy) != steps:
        raise ModelError(f"the policy has rows for {len(policy)} steps, and the horizon is {steps}")
    return as_timed_policy(model, policy, steps, uniform_policy(model))


def at_time(policy: Floats, t: int) -> Floats:
    """What a policy ``[S, A]`` or ``[T, S, A]`` does at step t."""
    return policy if policy.ndim == 2 else policy[t]


def _by_state(model: ModelTables, given: Mapping[Any, Any]) -> list[Any]:
    """What a dictionary says of each state."""
    found: list[Any] = [None] * model.num_states
    for state, choice in given.items():
        found[model.state_index(state)] = choice
    if missing := [s for s, choice in enumerate(found) if choice is None]:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ModelError(
            f"the policy says nothing of {model.state_label(missing[0])}{more}; give an action for each state"
        )
    return found


def _asked(model: ModelTables, policy: Callable[..., Any]) -> list[Any]:
    """What a function says of each state."""
    form = "it is called with the state's index alone and gives an action or probabilities, one for each action"
    state = 0
    with checks.blamed(lambda: f"the policy failed in {model.state_label(state)}", form):
        return [policy(state := s) for s in range(model.num_states)]


def _rows_of(model: ModelTables, choices: Sequence[Any]) -> Floats:
    """The policy whose choice in each state is an action, or probabilities of actions: all or by name."""
    _check_count(model, len(choices))
    rows = np.zeros(model.available.shape)
    for s, choice in enumerate(choices):
        where = model.state_label(s)
        if not (isinstance(choice, Mapping) or _is_name(model, choice) or np.ndim(choice) == 0):
            chances = checks.as_floats(f"the policy in {where}", choice, "[A]", 1)
            checks.check_shape(f"the policy in {where}", chances, rows.shape[1:], "[A]")
            rows[s] = chances
            continue
        choice = choice.item() if isinstance(choice, np.ndarray | np.generic) else choice
        is_law = isinstance(choice, Mapping)
        for action, chance in choice.items() if is_law else [(choice, 1.0)]:
            try:
                index = model.action_index(action, None if is_law else s)
                rows[s, index] += checks.as_number("a probability", chance)
            except ModelError as error:
                raise ModelError(f"the policy's action in {where}: {error}") from None
    return as_policy(model, rows)


def _is_name(model: ModelTables, action: Any) -> bool:
    """Whether this is the name of an action that is no text, such as a tuple."""
    plain = isinstance(action, str | int | float | np.generic | np.ndarray | Mapping)
    return not plain and action in (model.action_names or ())


def deterministic_policy(model: ModelTables, actions: ArrayLike) -> Floats:
    """The policy that takes ``actions[s]`` in state ``s``."""
    if np.asarray(actions).dtype == bool:
        raise ModelError("the policy holds booleans; give one action per state, or an [S, A] array of probabilities")
    chosen = checks.as_floats("the policy", actions, "[S, A] or [S]", 1)
    _check_count(model, len(chosen))
    if at := checks.first_place(~((chosen == np.floor(chosen)) & (chosen >= 0) & (chosen < model.num_actions))):
        raise ModelError(
            f"the policy's action in {model.state_label(at[0])} is {chosen[at]:g}; actions are whole numbers "
            f"0..{model.num_actions - 1} (for action probabilities give an [S, A] array)"
        )
    found = chosen.astype(np.int64)
    if at := checks.first_place(~model.available[np.arange(len(found)), found]):
        model.action_index(int(found[at]), at[0])  # which raises
    return np.eye(model.num_actions)[found]


def _check_count(model: ModelTables, count: int) -> None:
    if count != model.num_states:
        raise ModelError(f"the policy has {count} actions for {model.num_states} states; give one for each state")


def uniform_policy(model: ModelTables) -> Floats:
    """Every available action with the same probability."""
    return model.available / model.available.sum(axis=1, keepdims=True)
