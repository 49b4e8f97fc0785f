"""Problems of mdpax as joint models: the random event that its transitions are functions of is the luck.

An mdpax problem lists its states, actions and random events, and says what each event brings each action. Where the
chances of events depend on the action (a forest that is cut does not burn), actions do not see the same event, and
are coupled by inversion: one uniform runs through each action's events in listed order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jointmdp import checks
from jointmdp.arrays import Floats, Ints
from jointmdp.checks import Sharing
from jointmdp.errors import ModelError
from jointmdp.model.couplings import ActionLaw, ActionLaws, Coupling, coupled_tables, words
from jointmdp.model.importers import MAX_ENTRIES
from jointmdp.model.joint_mdp import JointMDP

SUM_TOLERANCE = 1e-4  # mdpax computes in single precision by default, and allows its own matrices this much
SAME_CHANCE = 4 * float(np.finfo(np.float32).eps)  # chances closer than this differ by rounding, not by what they say


class _Events(NamedTuple):
    """A problem written out."""

    chances: Floats  # [S, A, E]
    rewards: Floats  # [S, A, E]
    successors: Ints  # [S, A, E]


def from_mdpax(
    problem: Any,
    discount: float,
    sharing: Sharing = "time",
    coupling: Coupling = "comonotone",
    *,
    state_names: Sequence[Any] | None = None,
    action_names: Sequence[Any] | None = None,
    max_entries: int = MAX_ENTRIES,
) -> JointMDP:
    """A joint MDP from an mdpax problem (any object with its methods): states, actions and events are enumerated.

    Each event is a scenario where its chance depends neither on the action nor, under ``sharing="time"``, on the
    state: then the model is exact without a choice of ours. Elsewhere `coupling` says how the actions' events go
    together, as in `from_mdp`; under ``sharing="time"`` all states are put on one grid.

    Args:
        problem: for example ``mdpax.problems.Forest()``.
        discount, sharing: as in `JointMDP`.
        coupling: as in `from_mdp`, over the events of each action in the problem's order.
        state_names, action_names: by default the problem's vectors, as ``"(2, 0)"``.
        max_entries: the largest table, of events or of scenarios, to build.
    """
    for name in ("state_space", "action_space", "random_event_space", "transition", "random_event_probability"):
        if not hasattr(problem, name):
            raise ModelError(f"{problem!r} is no mdpax problem: it has no {name}")
    limit = checks.as_count("max_entries", max_entries)
    share = checks.as_sharing(sharing)
    states, actions, events = (
        np.asarray(space) for space in (problem.state_space, problem.action_space, problem.random_event_space)
    )
    entries = len(states) * len(actions) * len(events)
    if entries > limit:
        raise ModelError(
            f"the problem has S·A·E = {len(states)}·{len(actions)}·{len(events)} = {entries} outcomes, more than "
            f"max_entries = {limit}"
        )
    found = _enumerated(problem, states, actions, events)
    is_same_for_actions = _spread(found.chances, (1,)) <= SAME_CHANCE
    is_same_everywhere = _spread(found.chances, (0, 1)) <= SAME_CHANCE
    if is_same_everywhere or (is_same_for_actions and share != "time"):
        chances = np.broadcast_to(
            found.chances[:1, :1] if is_same_everywhere else found.chances[:, :1], found.chances.shape
        )
        possible = (chances[:, 0] > 0).any(axis=0)
        rows = chances[:, 0, possible]
        tables = (
            rows / rows.sum(axis=1, keepdims=True),
            np.swapaxes(found.rewards, 1, 2)[:, possible],
            np.swapaxes(found.successors, 1, 2)[:, possible],
        )
    else:
        tables = coupled_tables(_laws(found), coupling, share == "time", limit)
    return JointMDP(
        *tables,
        discount,
        share,
        state_names=_labels(states) if state_names is None else state_names,
        action_names=_labels(actions) if action_names is None else action_names,
    )


def _spread(chances: Floats, axes: tuple[int, ...]) -> float:
    return float(np.max(np.ptp(chances, axis=axes)))


def _laws(found: _Events) -> ActionLaws:
    """Each action's possible events in listed order."""
    laws: ActionLaws = []
    for chances, rewards, successors in zip(*found, strict=True):
        row: list[ActionLaw | None] = []
        for p, r, t in zip(chances, rewards, successors, strict=True):
            possible = p > 0
            row.append(ActionLaw(p[possible] / p.sum(), r[possible], t[possible]))
        laws.append(row)
    return laws


def _enumerated(problem: Any, states: Any, actions: Any, events: Any) -> _Events:
    """Every event of every action in every state, checked."""

    def outcome(state: Any, action: Any, event: Any) -> Any:
        after, reward = problem.transition(state, action, event)
        chance = problem.random_event_probability(state, action, event)
        return after, reward, chance, problem.state_to_index(after)

    mapped = jax.vmap(jax.vmap(outcome, (None, None, 0)), (None, 0, None))
    try:
        # State by state, so that no more than one state's outcomes are in memory with all that leads to them.
        parts = jax.jit(lambda all_states: jax.lax.map(lambda state: mapped(state, actions, events), all_states))(
            states
        )
    except Exception as error:
        raise ModelError(f"the problem's functions failed: {words(error)}") from error
    after, reward, chance, index = (np.asarray(part) for part in parts)
    shape = (len(states), len(actions), len(events))
    chances, rewards = (part.reshape(shape).astype(np.float64) for part in (chance, reward))
    successors = index.reshape(shape).astype(np.int64)
    _check_chances(chances)
    possible = chances > 0
    bad = np.argwhere(possible & ~np.isfinite(rewards))
    if len(bad):
        where = checks.place(bad[0], "state", "action", "event")
        raise ModelError(f"the reward of {where} is {rewards[tuple(bad[0])]}, not a finite number")
    inside = (successors >= 0) & (successors < len(states))
    # An index that was clipped into range points to another state than the one that the transition made.
    is_there = (states[np.where(inside, successors, 0)] == after.reshape(*shape, -1)).all(axis=-1)
    bad = np.argwhere(possible & ~(inside & is_there))
    if len(bad):
        s, a, e = bad[0]
        (label,) = _labels(after[s, a, e].reshape(1, -1))
        raise ModelError(
            f"{checks.place((s, a, e), 'state', 'action', 'event')} leads to {label}, which state_to_index calls "
            f"{successors[s, a, e]}, but the state space has no such state there"
        )
    return _Events(chances, np.where(possible, rewards, 0.0), np.where(inside, successors, 0))


def _check_chances(chances: Floats) -> None:
    bad = np.argwhere(~(np.isfinite(chances) & (chances >= 0)))
    if len(bad):
        where = checks.place(bad[0], "state", "action", "event")
        raise ModelError(f"the probability of {where} is {chances[tuple(bad[0])]:g}, negative or not finite")
    sums = chances.sum(axis=2)
    bad = np.argwhere(np.abs(sums - 1) > SUM_TOLERANCE)
    if len(bad):
        where = checks.place(bad[0], "state", "action")
        raise ModelError(f"event probabilities of {where} sum to {sums[tuple(bad[0])]:.6g}, not 1")


def _labels(vectors: Any) -> list[str]:
    rows = np.asarray(vectors).tolist()
    return [str(row[0]) if len(row) == 1 else f"({', '.join(map(str, row))})" for row in rows]
