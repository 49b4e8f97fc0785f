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
from jointmdp.arrays import Bools, Floats
from jointmdp.checks import Sharing
from jointmdp.errors import ModelError
from jointmdp.model.available_actions import as_available
from jointmdp.model.couplings import Coupling, coupled_tables, words
from jointmdp.model.gumbel_max import GumbelMax
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.ordinary_models import Rows, laws_of_rows, ordinary_model

NoiseFunction = Callable[[Any, Any, Any], Any]  # state, action, noise

MAX_ENTRIES = 20_000_000
TOY_TEXT_ACTIONS: dict[str, tuple[str, ...]] = {  # what their pages call them, by class
    "CliffWalkingEnv": ("up", "right", "down", "left"),
    "FrozenLakeEnv": ("left", "down", "right", "up"),
    "TaxiEnv": ("south", "north", "east", "west", "pick up", "drop off"),
}


def from_mdp(  # many parameters: the parts of a model, and how to couple them
    transitions: Any,
    rewards: Any,
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
        transitions: ``[S, A, S]`` probabilities; an action's outcomes are its possible successors by index. Or a list
            of one SciPy sparse matrix ``[S, S]`` for each action. Or dictionaries,
            ``{state: {action: {successor: p}}}`` or ``{state: {action: [(p, successor, reward), …]}}`` with an optional
            fourth entry, whether the episode is over; states without actions are over, actions that a state does not
            list are unavailable there, and outcomes stay in listed order.
        rewards: ``[S, A]``, or ``[S, A, S]`` by successor (those of impossible successors are ignored), for sparse
            transitions also as one sparse matrix for each action; dictionaries beside dictionaries; None where the
            outcomes hold them.
        discount, sharing, state_names, action_names: as in `JointMDP`; dictionaries name states and actions themselves.
        coupling: ``"comonotone"``, ``"antithetic"``, ``"independent"`` (product scenarios), ``"maximal"`` (equal
            outcomes coincide as often as they can), ``"gumbel-max"`` or a `GumbelMax` (a noise for each outcome), or a
            function ``(state, laws) -> (probabilities [W], choices [W, A])``: ``laws[a]`` has the probability of each
            outcome of action ``a`` (none where it is unavailable), ``choices`` the outcome each action gets.
        available: ``[S, A]`` booleans; rows of unavailable actions are ignored.
        common_grid: one scenario grid for all states; by default under ``sharing="time"`` only. A coupling
            function chooses its own grid.
        max_entries: the largest table ``S·W·A`` to build.
    """
    found = ordinary_model(transitions, rewards, available, state_names, action_names)
    common = checks.as_sharing(sharing) == "time" if common_grid is None else common_grid
    tables = coupled_tables(found.laws, coupling, common, checks.as_count("max_entries", max_entries))
    return JointMDP(*tables, discount, sharing, **found.names_and_actions())


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
    works; only ``"gumbel-max"`` has one under ``sharing="time"`` alone. An action that a state does not list is
    unavailable there. Actions of Gymnasium's own environments have the names of their pages.

    A terminated transition ends the episode. It goes to its successor when that state is absorbing with zero
    reward (FrozenLake), and otherwise to one more state, ``"terminated"``, which is (CliffWalking, Taxi).
    """
    environment = getattr(table, "unwrapped", table)
    if getattr(environment, "fickle_passenger", False):
        raise ModelError("the fickle passenger changes its mind outside of the table P, so P is not the model")
    rows = _table_rows(getattr(environment, "P", environment))
    known = TOY_TEXT_ACTIONS.get(type(environment).__name__, ())
    if action_names is None and len(known) == 1 + max(max(row) for row in rows):
        action_names = known
    laws, exists, state_names = laws_of_rows(rows, 1 + max(max(row) for row in rows), state_names)
    is_drawn = coupling == "gumbel-max" or isinstance(coupling, GumbelMax)  # draws serve one state best by itself
    tables = coupled_tables(laws, coupling, not is_drawn or sharing == "time", MAX_ENTRIES)
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
    is_vectorised: bool = False,
) -> JointMDP:
    """A joint MDP from functions of exogenous noise: ``R = reward(s, a, u)``, ``S' = successor(s, a, u)``.

    Each value ``u`` of ``noise`` is a scenario with its entry of ``probabilities``, the same in every state,
    so every ``sharing`` works. The functions are called once for each state, available action and value; the
    successor is a state's index or name. With ``is_vectorised`` they are called once, with arrays that broadcast to
    ``[S, W, A]``, and successors are indices; values that are tuples come as a tuple of arrays.
    """
    S, A = checks.as_count("num_states", num_states), checks.as_count("num_actions", num_actions)
    values, chances = noise_law(noise, probabilities)
    exists = as_available(available, S, A)
    names = checks.as_names("state", state_names, S)
    shape = (S, len(values), A)
    if is_vectorised:
        gains, targets = (
            _whole_table(f, name, values, shape) for f, name in ((reward, "reward"), (successor, "successor"))
        )
        gains = np.where(exists[:, None, :], gains, 0.0)
    else:
        gains, targets = _called(reward, successor, values, exists, names)
    if at := checks.first_place(~np.isfinite(gains)):
        where = f"state {at[0]}, action {at[2]}, noise {reprlib.repr(values[at[1]])}"
        raise ModelError(f"the reward of {where} is {gains[at]}, not a finite number")
    tables = (np.tile(chances, (S, 1)), gains, targets)
    return JointMDP(*tables, discount, sharing, available=exists, state_names=names, action_names=action_names)


def noise_law(noise: Sequence[Any], probabilities: ArrayLike) -> tuple[list[Any], Floats]:
    """The values of the noise and their checked probabilities, ``[W]``."""
    values = list(noise)
    if not values:
        raise ModelError("the noise has no values; it needs at least one")
    chances = checks.as_floats("probabilities", probabilities, "[W]", 1)
    checks.check_shape("probabilities", chances, (len(values),), "one for each noise value")
    return values, checks.as_law("noise probabilities", "value", np.arange(len(values)), chances)


def _called(
    reward: NoiseFunction, successor: NoiseFunction, values: list[Any], exists: Bools, names: tuple[Any, ...] | None
) -> tuple[Floats, Floats]:
    """Rewards and successors ``[S, W, A]`` by calls with one state, action and noise value each."""
    gains, targets = np.zeros((2, len(exists), len(values), exists.shape[1]))
    for s, a in np.argwhere(exists).tolist():
        for w, u in enumerate(values):
            asked = "reward"
            try:
                gains[s, w, a] = reward(s, a, u)
                asked = "successor"
                targets[s, w, a] = checks.as_index("state", successor(s, a, u), names, len(exists))
            except Exception as error:
                where = f"state {s}, action {a}, noise {reprlib.repr(u)}"
                raise ModelError(f"the {asked} of {where} failed: {words(error)}") from error
    return gains, targets


def _whole_table(function: NoiseFunction, name: str, values: list[Any], shape: tuple[int, int, int]) -> Floats:
    """What a vectorised function gives for all states, noise values and actions at once."""
    S, _, A = shape
    is_many = all(isinstance(u, tuple) for u in values)
    noise = [np.asarray(part)[None, :, None] for part in (zip(*values, strict=True) if is_many else [values])]
    try:
        table = function(
            np.arange(S)[:, None, None], np.arange(A)[None, None, :], tuple(noise) if is_many else noise[0]
        )
        return np.array(np.broadcast_to(np.asarray(table, dtype=np.float64), shape))
    except Exception as error:
        form = f"it gets arrays [S, 1, 1], [1, 1, A] and [1, W, 1] and gives one that broadcasts to [S, W, A] = {shape}"
        raise ModelError(f"the vectorised {name} failed: {words(error)}; {form}") from error


class NoiseModelSettings(TypedDict):
    """The settings that `from_sampler` hands on to `from_noise`."""

    num_states: int
    num_actions: int
    discount: float
    sharing: NotRequired[Sharing]
    available: NotRequired[ArrayLike | None]
    state_names: NotRequired[Sequence[Any] | None]
    action_names: NotRequired[Sequence[Any] | None]
    is_vectorised: NotRequired[bool]


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


def _table_rows(table: Any) -> Rows:
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
