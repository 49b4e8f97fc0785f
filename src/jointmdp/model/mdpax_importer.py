"""Problems of mdpax as joint models: the random event that its transitions are functions of is the noise.

An mdpax problem lists its states, actions and random events, and the outcome of each event for each action. Where the
chances of events depend on the action (a forest that is cut does not burn), actions do not see the same event, and
are coupled by inversion: one uniform runs through each action's events in listed order.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jointmdp import checks
from jointmdp.arrays import Floats, Ints, users_calls
from jointmdp.checks import Sharing
from jointmdp.errors import ModelError
from jointmdp.model.action_laws import laws_from_entries
from jointmdp.model.couplings import Coupling, coupled_tables, words
from jointmdp.model.importers import MAX_ENTRIES
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.one_uniform import ScenarioTables

SUM_TOLERANCE = 1e-4  # mdpax computes in single precision by default, and allows its own matrices this much
SAME_CHANCE = 4 * float(np.finfo(np.float32).eps)  # chances closer than this differ by rounding, not by what they say


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
    chances, rewards, successors = _enumerated(problem, states, actions, events)
    is_same_for_actions, is_same_everywhere = (
        float(np.max(np.ptp(chances, axis=axes))) <= SAME_CHANCE for axes in ((1,), (0, 1))
    )
    tables: ScenarioTables
    if is_same_everywhere or (is_same_for_actions and share != "time"):
        rows = np.broadcast_to(chances[:1, 0], chances[:, 0].shape) if is_same_everywhere else chances[:, 0]
        possible = (rows > 0).any(axis=0)
        rows = rows[:, possible]
        by_event = (np.swapaxes(part, 1, 2)[:, possible] for part in (rewards, successors))
        tables = (rows / rows.sum(axis=1, keepdims=True), *by_event)
    else:
        is_entry = chances > 0
        at, act, _ = np.nonzero(is_entry)
        scaled = chances / chances.sum(axis=2, keepdims=True)
        laws = laws_from_entries(
            at * len(actions) + act,
            scaled[is_entry],
            rewards[is_entry],
            successors[is_entry],
            np.any(is_entry, axis=2, keepdims=False),
            lambda s, a: checks.place((s, a), "state", "action"),
        )
        tables = coupled_tables(laws, coupling, share == "time", limit)
    return JointMDP(
        *tables,
        discount,
        share,
        state_names=_labels(states) if state_names is None else state_names,
        action_names=_labels(actions) if action_names is None else action_names,
    )


@users_calls()
def _enumerated(problem: Any, states: Any, actions: Any, events: Any) -> tuple[Floats, Floats, Ints]:
    """Probability, reward and successor of every event of every action in every state, ``[S, A, E]``, checked."""

    def outcome(state: Any, action: Any, event: Any) -> Any:
        after, reward = problem.transition(state, action, event)
        chance = problem.random_event_probability(state, action, event)
        return after, reward, chance, problem.state_to_index(after)

    mapped = jax.vmap(jax.vmap(outcome, (None, None, 0)), (None, 0, None))
    try:
        # State by state, so that no more than one state's outcomes are in memory with all that leads to them.
        parts = jax.jit(lambda rows: jax.lax.map(lambda state: mapped(state, actions, events), rows))(states)
    except Exception as error:
        raise ModelError(f"the problem's functions failed: {words(error)}") from error
    after, reward, chance, index = (np.asarray(part) for part in parts)
    shape = (len(states), len(actions), len(events))
    chances, rewards = (part.reshape(shape).astype(np.float64) for part in (chance, reward))
    successors = index.reshape(shape).astype(np.int64)
    axes = ("state", "action", "event")
    if at := checks.first_place(~(np.isfinite(chances) & (chances >= 0))):
        raise ModelError(f"the probability of {checks.place(at, *axes)} is {chances[at]:g}, negative or not finite")
    sums = chances.sum(axis=2)
    if at := checks.first_place(np.abs(sums - 1) > SUM_TOLERANCE):
        raise ModelError(f"event probabilities of {checks.place(at, *axes[:2])} sum to {sums[at]:.6g}, not 1")
    possible = chances > 0
    if at := checks.first_place(possible & ~np.isfinite(rewards)):
        raise ModelError(f"the reward of {checks.place(at, *axes)} is {rewards[at]}, not a finite number")
    inside = (successors >= 0) & (successors < len(states))
    # An index that was clipped into range points to another state than the one that the transition made.
    is_there = (states[np.where(inside, successors, 0)] == after.reshape(*shape, -1)).all(axis=-1)
    if at := checks.first_place(possible & ~(inside & is_there)):
        (label,) = _labels(after[at].reshape(1, -1))
        raise ModelError(
            f"{checks.place(at, *axes)} leads to {label}, which state_to_index calls {successors[at]}, but the state "
            "space has no such state there"
        )
    return chances, np.where(possible, rewards, 0.0), np.where(inside, successors, 0)


def _labels(vectors: Any) -> list[str]:
    rows = np.asarray(vectors).tolist()
    return [str(row[0]) if len(row) == 1 else f"({', '.join(map(str, row))})" for row in rows]
