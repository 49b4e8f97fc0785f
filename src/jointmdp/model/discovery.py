"""Models whose states are found from a start: the user writes natural states, and those that are reached are numbered.

States are looked at in the order in which they are found. A state's outcomes are asked for all its actions, or, beyond
the start and where a policy is given, for the policy's own actions alone: then the model holds just what is needed to
evaluate that policy after any first action in a start state.
"""

import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from jointmdp import checks
from jointmdp.arrays import Bools, Floats, Ints
from jointmdp.checks import Sharing
from jointmdp.errors import ModelError
from jointmdp.model.importers import MAX_ENTRIES, NoiseFunction, noise_law
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.state_spaces import NamedStates, NoiseModel, StateSpace, VectorStates
from jointmdp.progress import Meter

BATCH = 2**20  # outcomes that are asked for at a time


def from_start(  # many parameters: the parts of a model
    reward: NoiseFunction,
    successor: NoiseFunction,
    noise: Sequence[Any],
    probabilities: ArrayLike,
    start: Any,
    *,
    actions: Sequence[Any] | int,
    discount: float,
    sharing: Sharing = "state",
    policy: Any = None,
    available: Callable[[Any, Any], Any] | None = None,
    action_names: Sequence[Any] | None = None,
    is_vectorised: bool = False,
    max_entries: int = MAX_ENTRIES,
) -> JointMDP:
    """A joint MDP of all states that can be reached from `start`: ``R = reward(s, a, u)``, ``S' = successor(s, a, u)``.

    States are tuples, text or other fixed values, and become the names of the model's states, in the order in which
    they are found. Whole numbers must turn out to be 0, 1, 2, … without gaps, since a number is an index.

    Args:
        reward, successor: functions of a state, an action and a noise value.
        noise, probabilities: the values of the noise and their chances, as in `from_noise`.
        start: a state, or a list of states.
        actions: their values, or how many there are. As for states, numbers must be 0, 1, 2, …
        discount, sharing, action_names: as in `JointMDP`.
        policy: without one, all actions are followed everywhere. With one, all actions are followed in the start
            states and the policy's own afterwards; others are unavailable there, since what they lead to is not known.
            A function of the state, or a dictionary, that gives an action, ``{action: probability}`` or ``[A]``
            probabilities.
        available: ``available(s, a)`` says whether an action exists in a state; a state without any is over.
        is_vectorised: states are whole numbers or tuples of them, and functions get arrays that broadcast: states and
            actions ``[n, 1]``, noise ``[1, W]``, those that are tuples as tuples of arrays. `reward` gives ``[n, W]``
            and `successor` the same for each component. `available` gets ``[n, 1]`` and ``[1, A]``. A policy that is a
            function gets states ``[n]`` and gives actions ``[n]`` or probabilities ``[n, A]``.
        max_entries: the largest table ``S·W·A`` to build.
    """
    values, chances = noise_law(noise, probabilities)
    values, chances = [u for u, p in zip(values, chances, strict=True) if p > 0], chances[chances > 0]
    choices = _action_values(actions)
    named = checks.as_names("action", action_names, len(choices))
    if named is None and choices != list(range(len(choices))):
        named = checks.as_names("action", choices, len(choices))
    if policy is not None and not (callable(policy) or isinstance(policy, Mapping)):
        raise ModelError(
            f"the policy must be a function of the state or a dictionary {{state: action}}, not {policy!r}"
        )
    functions = NoiseModel(reward, successor, values, choices, policy, available, named)
    space: StateSpace = (VectorStates if is_vectorised else NamedStates)(functions)
    space.begin(start)
    limit = checks.as_count("max_entries", max_entries)
    gains, targets, exists = explored(space, limit)
    order, names = space.named()
    if order is not None:  # states that are their own numbers: the table in their order
        rank = order.argsort()
        gains, targets, exists = gains[order], rank[targets[order]], exists[order]
    law = np.broadcast_to(chances, gains.shape[:2])
    return JointMDP(law, gains, targets, discount, sharing, available=exists, state_names=names, action_names=named)


def _action_values(actions: Sequence[Any] | int) -> list[Any]:
    """What the functions are called with for each action."""
    if isinstance(actions, int | np.integer):
        return list(range(checks.as_count("actions", actions)))
    values = [] if isinstance(actions, str) else [checks.as_fixed(action) for action in actions]
    if not values:
        raise ModelError(f"actions must be a list of at least one action, or how many there are, not {actions!r}")
    if any(isinstance(a, int | float | np.number) for a in values) and values != list(range(len(values))):
        raise ModelError(
            f"actions that are numbers must be 0, 1, 2, …, since a number is an index, not {reprlib.repr(values)}; "
            "make them tuples or text, or let the functions compute the quantity from the number"
        )
    return values


def explored(space: StateSpace, limit: int) -> tuple[Floats, Ints, Bools]:
    """Rewards and successors ``[S, W, A]`` of all states that are reached, and which actions are known, ``[S, A]``."""
    shape = space.table_shape
    num_start, done = len(space), 0
    parts: list[tuple[Bools, Floats, Ints]] = []
    step, most = max(1, BATCH // int(np.prod(shape))), limit // int(np.prod(shape))
    with Meter("discovering states") as meter:
        while done < len(space):
            if len(space) > most:
                raise _too_many(space, done, limit)
            last = min(done + step, num_start if done < num_start else len(space))
            legal = space.available(done, last)
            taken = space.chosen(done, legal) if done >= num_start and space.has_policy else legal
            state, action = np.nonzero(taken)
            parts.append((taken, *space.outcomes(state + done, action)))
            done = last
            meter.update(done / len(space), f"{len(space):,} states, {done:,} of them looked at")
    exists = np.concatenate([taken for taken, _, _ in parts])
    targets = np.tile(np.arange(len(exists))[:, None, None], (1, *shape))
    gains = np.zeros(targets.shape)
    state, action = np.nonzero(exists)
    gains[state, :, action] = np.concatenate([gain for _, gain, _ in parts])
    targets[state, :, action] = np.concatenate([target for _, _, target in parts])
    exists[~exists.any(axis=1)] = True  # states without actions are over: they stay, and nothing is paid
    return gains, targets, exists


def _too_many(space: StateSpace, done: int, limit: int) -> ModelError:
    num_scenarios, num_actions = space.table_shape
    policy = "" if space.has_policy else "give a policy, so that only its own actions are followed after the start; "
    return ModelError(
        f"{len(space):,} states are found and only {done:,} of them have been looked at; with {num_scenarios} noise "
        f"values and {num_actions} actions they make more than max_entries = {limit:,} table entries. {policy}bound "
        "the state (clip what grows); raise max_entries; or simulate without a table: FunctionSimulator or "
        "JaxSimulator with simulate_gap"
    )
