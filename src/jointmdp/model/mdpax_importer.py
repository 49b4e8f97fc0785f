"""Problems of mdpax as joint models: the random event that its transitions are functions of is the noise.

An mdpax problem lists its states, actions and random events, and the outcome of each event for each action. Where the
chances of events depend on the action (a forest that is cut does not burn), actions do not see the same event, and
are coupled by inversion: one uniform runs through each action's events in listed order.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jointmdp import checks
from jointmdp.arrays import Bools, Floats, Ints
from jointmdp.checks import Sharing
from jointmdp.errors import ModelError
from jointmdp.model.action_laws import laws_from_entries
from jointmdp.model.couplings import Coupling, coupled_tables
from jointmdp.model.importers import MAX_ENTRIES
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.mdpax_outcomes import EventOutcomes, ListedProblem, labels, reached_outcomes
from jointmdp.model.one_uniform import ScenarioTables
from jointmdp.model.scenario_merging import merged_by_state, merged_everywhere

SAME_CHANCE = 4 * float(np.finfo(np.float32).eps)  # chances closer than this differ by rounding, not by what they say
BLOCK = 2**22  # table entries that are made and merged at a time


def from_mdpax(  # many parameters: the parts of a model, and which of it is needed
    problem: Any,
    discount: float,
    sharing: Sharing = "time",
    coupling: Coupling = "comonotone",
    *,
    start: Any = None,
    policy: Any = None,
    state_names: Sequence[Any] | None = None,
    action_names: Sequence[Any] | None = None,
    max_entries: int = MAX_ENTRIES,
) -> JointMDP:
    """A joint MDP from an mdpax problem (any object with its methods): states, actions and events are enumerated.

    Each event is a scenario where its chance depends neither on the action nor, under ``sharing="time"``, on the
    state: then the model is exact without a choice of ours. Elsewhere `coupling` says how the actions' events go
    together, as in `from_mdp`; under ``sharing="time"`` all states are put on one grid. Scenarios that give all actions
    the same outcome are merged, which changes nothing: those of a state, under ``sharing="time"`` those that are alike
    in all states.

    Args:
        problem: for example ``mdpax.problems.Forest()``.
        discount, sharing: as in `JointMDP`.
        coupling: as in `from_mdp`, over the events of each action in the problem's order.
        start: a state vector, or a list of them; then the model has only the states that are reached from there.
        policy: with a start, all actions are followed in the start states and the policy's own afterwards; others are
            unavailable there. A solver's ``policy`` ``[S, d]``, action numbers ``[S]``, or a function or dictionary of
            state vectors that gives an action's vector. `mdpax_policy` makes of it a policy for `evaluate`.
        state_names, action_names: by default the problem's vectors, as ``"(2, 0)"``.
        max_entries: the largest table, of events or of scenarios, to build.
    """
    listed = ListedProblem(problem)
    limit, share = checks.as_count("max_entries", max_entries), checks.as_sharing(sharing)
    if policy is not None and start is None:
        raise ModelError("a policy needs a start: which states does it begin in?")
    everyone, num_actions, num_events = len(listed.states), len(listed.actions), len(listed.events)
    if start is None:
        entries = everyone * num_actions * num_events
        if entries > limit:
            raise ModelError(
                f"the problem has S·A·E = {everyone}·{num_actions}·{num_events} = {entries} outcomes, more than "
                f"max_entries = {limit}; {_advice(share, start, policy)}"
            )
        states = np.arange(everyone)
        found = listed.outcomes(np.repeat(states, num_actions), np.tile(np.arange(num_actions), everyone))
    else:
        states, found, is_complete = reached_outcomes(listed, start, policy, limit)
        if not is_complete:
            raise ModelError(
                f"{len(states)} states are found so far from the start, with more than max_entries = {limit} outcomes; "
                f"{_advice(share, start, policy)}"
            )
    rank = np.cumsum(np.isin(np.arange(everyone), states)) - 1
    found = found._replace(states=rank[found.states], successors=rank[found.successors])
    exists = np.zeros((len(states), num_actions), dtype=bool)
    exists[found.states, found.actions] = True
    try:
        tables = _tables(found, exists, num_events, share, coupling, limit)
    except ModelError as error:
        if "max_entries" not in str(error):
            raise
        raise ModelError(f"{error}; {_advice(share, start, policy)}") from None
    return JointMDP(
        *tables,
        discount,
        share,
        available=exists,
        state_names=labels(listed.states[states]) if state_names is None else state_names,
        action_names=labels(listed.actions) if action_names is None else action_names,
    )


def mdpax_policy(problem: Any, policy: Any, model: JointMDP | None = None) -> Ints:
    """The number of a policy's action in each state ``[S]``: of an mdpax problem, or of a model made of it.

    The policy is given as in `from_mdpax`. Without a model it is one for `mdpax_simulator`.
    """
    listed = ListedProblem(problem)
    if model is None:
        return listed.policy_actions(policy, np.arange(len(listed.states)))
    places: dict[Any, int] = {label: i for i, label in enumerate(labels(listed.states))}
    names: Sequence[Any] = range(model.num_states) if model.state_names is None else model.state_names
    if unknown := [name for name in names if name not in places]:
        raise ModelError(f"state {unknown[0]!r} of the model is not named after a state of the problem")
    return listed.policy_actions(policy, np.array([places[name] for name in names]))


def _advice(share: Sharing, start: Any, policy: Any) -> str:
    """What to do about a model that is too large."""
    said = []
    if start is None or policy is None:
        said.append("give start= and policy=, so that only what the policy reaches from there is enumerated")
    if share == "time":
        said.append('sharing="state" needs fewer scenarios where the chances of events depend on the state')
    return "; ".join([*said, "raise max_entries; or simulate without a table: mdpax_simulator with simulate_gap"])


def _tables(
    found: EventOutcomes, exists: Bools, num_events: int, share: Sharing, coupling: Coupling, limit: int
) -> ScenarioTables:
    """Merged scenario tables, a block of states at a time where states have scenarios of their own."""
    S, A = exists.shape
    pairs = np.searchsorted(found.states, np.arange(S + 1))  # where the pairs of a state begin
    step = max(1, BLOCK // (num_events * A))
    blocks = [(at, min(at + step, S)) for at in range(0, S, step)]
    is_same_for_actions, is_same_everywhere = _sameness(found, pairs, blocks, num_events)
    if share == "time" and is_same_everywhere:
        law = _dense(found, 0, 1, num_events)[0][0]
        possible = law > 0
        _check_entries(S, int(possible.sum()), A, limit)
        parts = [_event_tables(found, pairs, block, exists, num_events) for block in blocks]
        rewards, successors = (np.concatenate([part[i][:, possible] for part in parts]) for i in (1, 2))
        whole = (np.tile(law[possible] / law[possible].sum(), (S, 1)), rewards, successors)
        return merged_everywhere(whole)
    if share == "time" or callable(coupling):  # one grid for all states, or a function that is told the state's number
        tables = coupled_tables(_laws(found, 0, S, pairs, exists), coupling, share == "time", limit)
        return merged_everywhere(tables) if share == "time" else merged_by_state(tables)
    made = []
    for first, last in blocks:
        if is_same_for_actions:
            made.append(merged_by_state(_event_tables(found, pairs, (first, last), exists, num_events)))
        else:
            laws = _laws(found, first, last, pairs, exists[first:last])
            made.append(merged_by_state(coupled_tables(laws, coupling, False, max(limit, BLOCK))))
        # Inside of a block, scenarios of chance zero stay in the block's own states.
        made[-1] = (*made[-1][:2], np.where(made[-1][0][:, :, None] > 0, made[-1][2], 0))
        _check_entries(S, max(part[0].shape[1] for part in made), A, limit)
    return _stacked(made, S, A)


def _stacked(made: list[ScenarioTables], S: int, A: int) -> ScenarioTables:
    """Blocks of states below each other, filled up to the largest number of scenarios."""
    width = max(part[0].shape[1] for part in made)
    chances, rewards = np.zeros((S, width)), np.zeros((S, width, A))
    successors = np.zeros((S, width, A), dtype=np.int64)
    at = 0
    for law, gains, targets in made:
        rows, columns = slice(at, at + len(law)), slice(0, law.shape[1])
        chances[rows, columns], rewards[rows, columns], successors[rows, columns] = law, gains, targets
        at += len(law)
    successors = np.where(chances[:, :, None] > 0, successors, np.arange(S)[:, None, None])
    return chances / chances.sum(axis=1, keepdims=True), rewards, successors


def _sameness(found: EventOutcomes, pairs: Ints, blocks: list[tuple[int, int]], num_events: int) -> tuple[bool, bool]:
    """Whether the chances of events do not depend on the action, and on the state either."""
    low, high, spread = np.full(num_events, np.inf), np.full(num_events, -np.inf), 0.0
    for first, last in blocks:
        begin, end = int(pairs[first]), int(pairs[last])
        chances = _dense(found, begin, end, num_events)[0]
        low, high = np.minimum(low, chances.min(axis=0)), np.maximum(high, chances.max(axis=0))
        rows = pairs[first:last] - begin
        spread = max(spread, float(np.max(np.maximum.reduceat(chances, rows) - np.minimum.reduceat(chances, rows))))
    return spread <= SAME_CHANCE, bool(np.max(high - low) <= SAME_CHANCE)


def _dense(found: EventOutcomes, begin: int, end: int, num_events: int) -> tuple[Floats, Floats, Ints]:
    """Chances, rewards and successors ``[m, E]`` of the pairs from `begin` to `end`, by event; others have none."""
    part = slice(found.starts[begin], found.starts[end])
    row = np.repeat(np.arange(end - begin), np.diff(found.starts[begin : end + 1]))
    chances, rewards = np.zeros((2, end - begin, num_events))
    successors = np.zeros((end - begin, num_events), dtype=np.int64)
    at = (row, found.events[part])
    chances[at], rewards[at], successors[at] = found.chances[part], found.rewards[part], found.successors[part]
    return chances, rewards, successors


def _event_tables(
    found: EventOutcomes, pairs: Ints, block: tuple[int, int], exists: Bools, num_events: int
) -> ScenarioTables:
    """The tables of a block of states with one scenario for each event; chances are those of the first action."""
    first, last = block
    begin, end = int(pairs[first]), int(pairs[last])
    chances, gains, targets = _dense(found, begin, end, num_events)
    shape = (last - first, num_events, exists.shape[1])
    rewards, successors = np.zeros(shape), np.zeros(shape, dtype=np.int64)
    at = (found.states[begin:end] - first, slice(None), found.actions[begin:end])
    rewards[at], successors[at] = gains, targets
    return chances[pairs[first:last] - begin], rewards, successors


def _laws(found: EventOutcomes, first: int, last: int, pairs: Ints, exists: Bools) -> Any:
    """The laws of a block of states."""
    begin, end = int(pairs[first]), int(pairs[last])
    part = slice(found.starts[begin], found.starts[end])
    owners = found.owners[part]
    A = exists.shape[1]
    sums = np.bincount(owners - begin, found.chances[part])
    return laws_from_entries(
        (found.states[owners] - first) * A + found.actions[owners],
        found.chances[part] / sums[owners - begin],
        found.rewards[part],
        found.successors[part],
        exists,
        lambda s, a: checks.place((first + s, a), "state", "action"),
    )


def _check_entries(S: int, W: int, A: int, limit: int) -> None:
    if limit < S * W * A:
        raise ModelError(f"S·W·A = {S}·{W}·{A} = {S * W * A} table entries, more than max_entries = {limit}")
