"""Ordinary models made joint: an MDP or a noise model, plus a statement of which noise the actions share.

An ordinary MDP gives each action its outcomes ``(probability, reward, successor)`` and does not say how the outcomes of
different actions go together; `from_mdp` and `from_gymnasium` take a coupling that says it. Where the noise itself is
known, `from_noise` and `from_sampler` take the functions of it directly.
"""

import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NotRequired, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from jointmdp import checks
from jointmdp.arrays import Floats, Ints
from jointmdp.checks import Sharing
from jointmdp.errors import ModelError
from jointmdp.model.available_actions import as_available
from jointmdp.model.couplings import NO_LAW, ActionLaw, ActionLaws, Coupling, coupled_tables, words
from jointmdp.model.joint_mdp import JointMDP

NoiseFunction = Callable[[int, int, Any], Any]

MAX_ENTRIES = 20_000_000


def from_mdp(  # many parameters: the parts of a model, and how to couple them
    transitions: ArrayLike,
    rewards: ArrayLike,
    discount: float,
    coupling: Coupling = "comonotone",
    sharing: Sharing = "state",
    *,
    available: ArrayLike | None = None,
    state_names: Sequence[Any] | None = None,
    action_names: Sequence[Any] | None = None,
    common_grid: bool | None = None,
    max_entries: int = MAX_ENTRIES,
) -> JointMDP:
    """A joint MDP whose marginals are the given ordinary MDP.

    Args:
        transitions: ``[S, A, S]`` probabilities; an action's outcomes are its possible successors by index.
        rewards: ``[S, A]``, or ``[S, A, S]`` by successor (those of impossible successors are ignored).
        discount, sharing, state_names, action_names: as in `JointMDP`.
        coupling: ``"comonotone"``, ``"antithetic"``, ``"independent"`` (product scenarios), or a function
            ``(state, laws) -> (probabilities [W], choices [W, A])``: ``laws[a]`` has the probability of each
            outcome of action ``a`` (none where it is unavailable), ``choices`` the outcome each action gets.
        available: ``[S, A]`` booleans; rows of unavailable actions are ignored.
        common_grid: one scenario grid for all states; by default under ``sharing="time"`` only. A coupling
            function chooses its own grid.
        max_entries: the largest table ``S·W·A`` to build.
    """
    kernel = checks.as_floats("transitions", transitions, "[S, A, S]", 3)
    num_states, num_actions = kernel.shape[:2]
    if not num_states or not num_actions:
        raise ModelError("transitions are empty; the model needs at least one state and one action")
    if kernel.shape[1] == kernel.shape[2] != kernel.shape[0]:
        raise ModelError(
            f"transitions has shape {kernel.shape}, which looks like [A, S, S]; give [S, A, S], for example by "
            "transitions.transpose(1, 0, 2)"
        )
    checks.check_shape("transitions", kernel, (num_states, num_actions, num_states), "[S, A, S]")
    gains = checks.as_floats("rewards", rewards, "[S, A] or [S, A, S]", 2, 3)
    checks.check_shape("rewards", gains, kernel.shape[: gains.ndim], "[S, A, S]" if gains.ndim == 3 else "[S, A]")
    gains = gains if gains.ndim == 3 else np.broadcast_to(gains[:, :, None], kernel.shape)
    exists = as_available(available, num_states, num_actions)
    laws: ActionLaws = [[NO_LAW] * num_actions for _ in range(num_states)]
    for s, a in np.argwhere(exists).tolist():
        targets = np.flatnonzero(kernel[s, a])
        laws[s][a] = _outcomes(s, a, kernel[s, a, targets], gains[s, a, targets], targets)
    common = checks.as_sharing(sharing) == "time" if common_grid is None else common_grid
    tables = coupled_tables(laws, coupling, common, checks.as_count("max_entries", max_entries))
    return JointMDP(*tables, discount, sharing, available=exists, state_names=state_names, action_names=action_names)


def from_gymnasium(
    table: Any,
    discount: float,
    coupling: Coupling = "comonotone",
    sharing: Sharing = "state",
    *,
    state_names: Sequence[Any] | None = None,
    action_names: Sequence[Any] | None = None,
) -> JointMDP:
    """A joint MDP from a Gymnasium toy-text environment, or from its table ``P``.

    The table is ``{state: {action: [(probability, successor, reward, terminated), …]}}``. Outcomes stay in listed
    order, so the comonotone coupling is the one of the live environment, which draws one uniform a step and takes the
    first outcome whose cumulative probability exceeds it. All states have one scenario grid, so every ``sharing``
    works. An action that a state does not list is unavailable there.

    A terminated transition ends the episode. It goes to its successor when that state is absorbing with zero
    reward (FrozenLake), and otherwise to one more state, ``"terminated"``, which is (CliffWalking, Taxi).
    """
    environment = getattr(table, "unwrapped", table)
    if getattr(environment, "fickle_passenger", False):
        raise ModelError("the fickle passenger changes its mind outside of the table P, so P is not the model")
    rows = _table_rows(getattr(environment, "P", environment))
    num_states, num_actions = len(rows), 1 + max(max(row) for row in rows)
    absorbs = [
        all(t == s and r == 0 for outcomes in row.values() for p, t, r, _ in outcomes if p != 0)
        for s, row in enumerate(rows)
    ]
    laws: ActionLaws = [[NO_LAW] * num_actions for _ in rows]
    for s, row in enumerate(rows):
        for a, outcomes in row.items():
            targets = [num_states if end and not absorbs[t] else t for _, t, _, end in outcomes]
            numbers = np.array([(p, r) for p, _, r, _ in outcomes]).reshape(-1, 2)
            laws[s][a] = _outcomes(s, a, numbers[:, 0], numbers[:, 1], np.array(targets, dtype=np.int64))
    if any((law.successors == num_states).any() for row in laws for law in row):
        # Checked before the extra name joins them, so that the message counts the user's states.
        names = checks.as_names("state", state_names, num_states)
        state_names = [*(names or [f"state {s}" for s in range(num_states)]), "terminated"]
        laws.append([ActionLaw(np.ones(1), np.zeros(1), np.array([num_states]))] * num_actions)
    exists = np.array([[len(law.successors) > 0 for law in row] for row in laws])
    tables = coupled_tables(laws, coupling, True, MAX_ENTRIES)
    return JointMDP(*tables, discount, sharing, available=exists, state_names=state_names, action_names=action_names)


def from_noise(  # many parameters: the parts of a model
    reward: NoiseFunction,
    successor: NoiseFunction,
    noise: Sequence[Any],
    probabilities: ArrayLike,
    *,
    num_states: int,
    num_actions: int,
    discount: float,
    sharing: Sharing = "state",
    available: ArrayLike | None = None,
    state_names: Sequence[Any] | None = None,
    action_names: Sequence[Any] | None = None,
) -> JointMDP:
    """A joint MDP from functions of exogenous noise: ``R = reward(s, a, u)``, ``S' = successor(s, a, u)``.

    Each value ``u`` of ``noise`` is a scenario with its entry of ``probabilities``, the same in every state,
    so every ``sharing`` works. The functions are called once for each state, available action and value; the
    successor is a state's index or name.
    """
    S, A = checks.as_count("num_states", num_states), checks.as_count("num_actions", num_actions)
    values = list(noise)
    if not values:
        raise ModelError("the noise has no values; it needs at least one")
    chances = checks.as_floats("probabilities", probabilities, "[W]", 1)
    checks.check_shape("probabilities", chances, (len(values),), "one for each noise value")
    chances = checks.as_law("noise probabilities", "value", np.arange(len(values)), chances)
    exists = as_available(available, S, A)
    names = checks.as_names("state", state_names, S)
    gains = np.zeros((S, len(values), A))
    targets = np.zeros((S, len(values), A), dtype=np.int64)
    for s, a in np.argwhere(exists).tolist():
        for w, u in enumerate(values):
            asked = "reward"
            try:
                gains[s, w, a] = reward(s, a, u)
                asked = "successor"
                targets[s, w, a] = checks.as_index("state", successor(s, a, u), names, S)
            except Exception as error:
                where = f"state {s}, action {a}, noise {reprlib.repr(u)}"
                raise ModelError(f"the {asked} of {where} failed: {words(error)}") from error
    if at := checks.first_place(~np.isfinite(gains)):
        where = f"state {at[0]}, action {at[2]}, noise {reprlib.repr(values[at[1]])}"
        raise ModelError(f"the reward of {where} is {gains[at]}, not a finite number")
    tables = (np.tile(chances, (S, 1)), gains, targets)
    return JointMDP(*tables, discount, sharing, available=exists, state_names=names, action_names=action_names)


class NoiseModelSettings(TypedDict):
    """The settings that `from_sampler` hands on to `from_noise`."""

    num_states: int
    num_actions: int
    discount: float
    sharing: NotRequired[Sharing]
    available: NotRequired[ArrayLike | None]
    state_names: NotRequired[Sequence[Any] | None]
    action_names: NotRequired[Sequence[Any] | None]


def from_sampler(
    reward: NoiseFunction,
    successor: NoiseFunction,
    sampler: Callable[[np.random.Generator], Any],
    num_scenarios: int,
    *,
    seed: int,
    **settings: Unpack[NoiseModelSettings],
) -> JointMDP:
    """A joint MDP from functions of noise that can only be sampled, continuous noise for example.

    ``sampler(rng)`` is called ``num_scenarios`` times, once and for all; the values drawn are the scenarios, with equal
    weights. The other settings are those of `from_noise`. What is computed from the model is exact for the sample
    drawn, and an approximation for the noise itself whose error falls like ``1/√num_scenarios``: try several seeds.
    """
    count = checks.as_count("num_scenarios", num_scenarios)
    rng = np.random.default_rng(checks.as_count("seed", seed, 0))
    values = []
    for draw in range(count):
        try:
            values.append(sampler(rng))
        except Exception as error:
            raise ModelError(f"the sampler failed on draw {draw}: {words(error)}") from error
    return from_noise(reward, successor, values, np.full(count, 1 / count), **settings)


def _outcomes(state: int, action: int, chances: Floats, gains: Floats, targets: Ints) -> ActionLaw:
    where = checks.place((state, action), "state", "action")
    chances = checks.as_law(f"transition probabilities of {where}", "successor", targets, chances)
    if at := checks.first_place(~np.isfinite(gains)):
        raise ModelError(f"reward of {where}, successor {targets[at]} is {gains[at]}, not a finite number")
    return ActionLaw(chances, gains, targets)


def _table_rows(table: Any) -> list[dict[int, list[tuple[float, int, float, bool]]]]:
    """A toy-text table as one dictionary for each state."""
    if not isinstance(table, Mapping) or set(table) != set(range(len(table))) or not table:
        raise ModelError(
            "expected an environment with a transition table P, or a table {state: {action: outcomes}} whose "
            f"states are 0, 1, 2, …; got {reprlib.repr(table)}"
        )
    rows = []
    for s in range(len(table)):
        if not isinstance(table[s], Mapping) or not table[s]:
            raise ModelError(f"state {s} of the table lists no actions")
        row = {}
        for a, outcomes in table[s].items():
            try:
                row[checks.as_count("the action", a, 0)] = [
                    (float(p), checks.as_index("state", t, None, len(table)), float(r), bool(end))
                    for p, t, r, end in outcomes
                ]
            except (TypeError, ValueError) as error:
                form = "(probability, successor, reward, terminated)"
                raise ModelError(f"state {s}, action {a} must list {form}: {words(error)}") from error
        rows.append(row)
    return rows
