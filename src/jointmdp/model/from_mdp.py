"""Ordinary MDPs made joint: `from_mdp` and `from_gymnasium`.

An ordinary MDP gives each action its outcomes ``(probability, reward, successor)`` and does not say how the outcomes of
different actions go together: a coupling says it. Arrays ``[S, A, S]``, sparse matrices for each action, dictionaries
by state and action, and data frames all become `ActionLaws`, the outcomes of every action in every state; then the
coupling makes scenarios of them.
"""

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from jointmdp.ground import checks
from jointmdp.ground.arrays import Bools, Floats
from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import ModelError
from jointmdp.model.action_laws import ActionLaws, laws_from_entries
from jointmdp.model.couplings import MAX_ENTRIES, Coupling, GumbelMax, coupled_tables
from jointmdp.model.gumbel_max import GumbelModel
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.tables import ModelTables, as_available

Rows = list[dict[int, list[tuple[float, int, float, bool]]]]  # by state and action: p, successor, reward, is it over
COLUMNS = ("state", "action", "successor", "probability")  # of a table of transitions
DEFAULTS = {"reward": 0.0, "over": False}  # of columns that it need not have


class OrdinaryModel(NamedTuple):
    """The laws of all actions, which of them exist, and names where the form has them."""

    laws: ActionLaws
    available: Bools
    state_names: Sequence[Any] | None = None
    action_names: Sequence[Any] | None = None

    def names_and_actions(self) -> dict[str, Any]:
        """As arguments of a `JointMDP`."""
        return {name: getattr(self, name) for name in ("available", "state_names", "action_names")}


def ordinary_model(
    transitions: Any,
    rewards: Any,
    available: ArrayLike | None,
    state_names: Sequence[Any] | None,
    action_names: Sequence[Any] | None,
) -> OrdinaryModel:
    """From any of the forms; of tables that were estimated from logs their mean."""
    if isinstance(transitions, ModelTables):
        raise ModelError("transitions are those of an ordinary MDP, and this is a joint one: give what it was made of")
    if isinstance(getattr(transitions, "transitions", None), Mapping):
        transitions = transitions.transitions
    if hasattr(transitions, "columns") and hasattr(transitions, "shape"):
        if rewards is not None:
            raise ModelError("a table of transitions has its rewards in a column; give rewards=None")
        transitions = _of_frame(transitions)
    if isinstance(transitions, Mapping):
        if available is not None:
            raise ModelError("dictionaries list the actions that are available; leave available=None")
        return listed_model(transitions, rewards, state_names, action_names)
    make = sparse_model if is_sparse(transitions) else dense_model
    return make(transitions, rewards, available)._replace(state_names=state_names, action_names=action_names)


def dense_model(transitions: ArrayLike, rewards: ArrayLike, available: ArrayLike | None) -> OrdinaryModel:
    """From ``[S, A, S]`` probabilities."""
    kernel = checks.as_floats("transitions", transitions, "[S, A, S]", 3)
    num_states, num_actions = kernel.shape[:2]
    if not num_states or not num_actions:
        raise ModelError("transitions are empty; the model needs at least one state and one action")
    _check_axes(kernel)
    checks.check_shape("transitions", kernel, (num_states, num_actions, num_states), "[S, A, S]")
    gains = _gains(rewards, kernel.shape)
    exists = as_available(available, num_states, num_actions)
    is_entry = (kernel != 0) & exists[:, :, None]
    states, actions, targets = np.nonzero(is_entry)
    owners = states * num_actions + actions
    return OrdinaryModel(
        laws_from_entries(owners, kernel[is_entry], gains[is_entry], targets, exists, place_of), exists
    )


def _check_axes(kernel: Floats) -> None:
    """Raise where the axes are in another order, judged by shape, and by which sums are 1."""
    first, middle, last = kernel.shape
    with np.errstate(invalid="ignore"):
        sums = [bool(np.all(np.abs(kernel.sum(axis=axis) - 1) <= checks.SUM_TOLERANCE)) for axis in range(3)]
    by_first, by_middle = (sums[axis] and not sums[2] for axis in (0, 1))
    forms = (
        (by_middle and middle == last != first, "[A, S, S]", (2, 0, 1)),
        (middle == last != first, "[A, S, S]", (1, 0, 2)),
        (by_middle and first == middle, "[S, S, A]", (0, 2, 1)),
        (by_first and first == last, "[S, A, S]", (2, 1, 0)),
        (by_first and first == middle, "[S, S, A]", (1, 2, 0)),
    )
    for is_so, form, order in forms:
        if is_so:
            axis = order[2]  # where next states are
            where = ("first", "in the middle", "last")[axis]
            why = f" with next states {where}: sums over axis {axis} are 1" if axis < 2 else ""
            raise ModelError(
                f"transitions has shape {kernel.shape}, which looks like {form}{why}; give [S, A, S], for example by "
                f"transitions.transpose{order}"
            )


def _gains(rewards: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """Rewards ``[S, A, S]``, from those or from ``[S, A]``."""
    gains = checks.as_floats("rewards", rewards, "[S, A] or [S, A, S]", 2, 3)
    checks.check_shape("rewards", gains, shape[: gains.ndim], "[S, A, S]" if gains.ndim == 3 else "[S, A]")
    return gains if gains.ndim == 3 else np.broadcast_to(gains[:, :, None], shape)


def is_sparse(values: Any) -> bool:
    """Whether these are sparse matrices, one for each action."""
    return isinstance(values, list | tuple) and len(values) > 0 and all(sp.issparse(each) for each in values)


def sparse_model(matrices: Sequence[Any], rewards: Any, available: ArrayLike | None) -> OrdinaryModel:
    """From one sparse matrix ``[S, S]`` for each action."""
    num_states, num_actions = matrices[0].shape[0], len(matrices)
    for a, matrix in enumerate(matrices):
        checks.check_shape(f"the transition matrix of action {a}", matrix, (num_states, num_states), "[S, S]")
    kernels = [_copied(matrix) for matrix in matrices]
    by_successor = [_copied(matrix) for matrix in rewards] if is_sparse(rewards) else None
    if by_successor is None:
        gains = checks.as_floats("rewards", rewards, "[S, A], or one sparse matrix for each action,", 2)
        checks.check_shape("rewards", gains, (num_states, num_actions), "[S, A]")
    elif [matrix.shape for matrix in by_successor] != [kernel.shape for kernel in kernels]:
        raise ModelError(f"rewards must be one sparse matrix [S, S] for each of the {num_actions} actions")
    exists = as_available(available, num_states, num_actions)
    parts = []
    for a, kernel in enumerate(kernels):
        kernel.eliminate_zeros()
        rows = np.repeat(np.arange(num_states), np.diff(kernel.indptr))
        gain = gains[rows, a] if by_successor is None else np.asarray(by_successor[a][rows, kernel.indices]).ravel()
        kept = exists[rows, a]
        parts.append(
            (rows[kept] * num_actions + a, kernel.data[kept], gain[kept], kernel.indices[kept].astype(np.int64))
        )
    owners, chances, gained, targets = (np.concatenate(part) for part in zip(*parts, strict=True))
    return OrdinaryModel(laws_from_entries(owners, chances, gained, targets, exists, place_of), exists)


def _copied(matrix: Any) -> sp.csr_matrix:
    """The user's matrix by rows, each place once and in order; a copy, since both are done in place."""
    found = sp.csr_matrix(matrix, dtype=np.float64, copy=True)
    found.sum_duplicates()
    return found


def listed_model(
    table: Mapping[Any, Any],
    rewards: Mapping[Any, Any] | None,
    state_names: Sequence[Any] | None,
    action_names: Sequence[Any] | None,
) -> OrdinaryModel:
    """From dictionaries by state and action; successors without an entry of their own are over."""
    listed: dict[Any, dict[Any, list[tuple[Any, ...]]]] = {}
    for s, row in table.items():
        if not isinstance(row, Mapping):
            raise ModelError(f"state {s!r} must list its actions as a dictionary {{action: outcomes}}, not {row!r}")
        listed[s] = {a: _listed(s, a, outcomes, rewards) for a, outcomes in row.items()}
    reached = (outcome[1] for row in listed.values() for outcomes in row.values() for outcome in outcomes)
    states, named_states = _numbered("state", {**dict.fromkeys(listed), **dict.fromkeys(reached)})
    actions, named_actions = _numbered("action", dict.fromkeys(a for row in listed.values() for a in row))
    if not actions:
        raise ModelError("transitions list no action; give {state: {action: outcomes}}")
    rows: Rows = [{} for _ in states]
    for s, row in listed.items():
        for a, outcomes in row.items():
            rows[states[s]][actions[a]] = [(p, states[t], r, end) for p, t, r, end in outcomes]
    for s, outcome in enumerate(rows):
        if not outcome:
            outcome.update({a: [(1.0, s, 0.0, False)] for a in actions.values()})
    names = named_states if state_names is None else state_names
    return _model_of_rows(
        rows, len(actions), names, named_actions if action_names is None else action_names, [*states], [*actions]
    )


def _of_frame(frame: Any) -> dict[Any, dict[Any, list[tuple[Any, ...]]]]:
    """The rows of a data frame, one for each outcome, as dictionaries."""
    given = list(frame.columns)
    missing = [name for name in COLUMNS if name not in given]
    if missing or len(set(given)) < len(given):
        raise ModelError(
            f"a table of transitions has the columns {', '.join(COLUMNS)}, and perhaps {' and '.join(DEFAULTS)}, each "
            f"once; this one has {', '.join(map(str, given))}" + (f", and no {missing[0]}" if missing else "")
        )
    count = len(frame)
    columns = [list(frame[name]) for name in COLUMNS]
    columns += [list(frame[name]) if name in given else [value] * count for name, value in DEFAULTS.items()]
    found: dict[Any, dict[Any, list[tuple[Any, ...]]]] = {}
    for number, row in enumerate(zip(*columns, strict=True)):
        state, action, *outcome = row
        if any(value is None or value != value for value in row):
            raise ModelError(f"row {number} of the table of transitions has an empty cell: {row}")
        if outcome[3] not in (False, True):
            raise ModelError(f"over is {outcome[3]!r} in row {number} of the table of transitions; it is true or false")
        found.setdefault(state, {}).setdefault(action, []).append((outcome[1], outcome[0], *outcome[2:]))
    return found


def _listed(s: Any, a: Any, outcomes: Any, rewards: Any) -> list[tuple[float, Any, float, bool]]:
    """The outcomes of one action: probability, successor, reward, and whether the episode is over."""
    form = "{successor: probability} with rewards beside it, or [(probability, successor, reward), …]"
    with checks.blamed(f"state {s!r}, action {a!r} must list {form}"):
        if isinstance(outcomes, Mapping):
            paid = rewards[s][a]
            of = paid if isinstance(paid, Mapping) else dict.fromkeys(outcomes, paid)
            return [(float(p), t, float(of[t]), False) for t, p in outcomes.items()]
        if rewards is not None:
            raise ModelError("outcomes in lists hold their rewards; give rewards=None")
        found = [(*outcome, False)[:4] for outcome in outcomes]
        return [(float(p), t, float(r), bool(end)) for p, t, r, end in found]


def _numbered(kind: str, keys: dict[Any, None]) -> tuple[dict[Any, int], list[Any] | None]:
    """Numbers of states or actions, and their names; those that are 0, 1, 2, … are their own numbers."""
    whole = [key for key in keys if isinstance(key, int | np.integer) and not isinstance(key, bool)]
    if not whole:
        return {key: i for i, key in enumerate(keys)}, list(keys)
    if sorted(whole) != list(range(len(keys))):
        raise ModelError(
            f"{kind}s that are numbers must be 0, 1, 2, … without gaps, since a number is an index; use text or tuples "
            f"instead (here: {', '.join(map(repr, list(keys)[:8]))}{'…' * (len(keys) > 8)})"
        )
    return {key: key for key in range(len(keys))}, None


def _model_of_rows(
    rows: Rows,
    num_actions: int,
    state_names: Sequence[Any] | None,
    action_names: Sequence[Any] | None,
    states: Sequence[Any],
    actions: Sequence[Any],
) -> OrdinaryModel:
    """From listed outcomes; messages call states and actions what `states` and `actions` say.

    An outcome that ends the episode goes to its successor when that state is absorbing with zero reward, and otherwise
    to one more state, "terminated", which is.
    """
    absorbs = [
        all(t == s and r == 0 for outcomes in row.values() for p, t, r, _ in outcomes if p != 0)
        for s, row in enumerate(rows)
    ]
    last = len(rows)
    if any(end and not absorbs[t] for row in rows for outcomes in row.values() for _, t, _, end in outcomes):
        # Checked before the extra name joins them, so that the message counts the user's states.
        names = checks.as_names("state", state_names, last)
        state_names = [*(names or [f"state {s}" for s in range(last)]), "terminated"]
        states = [*states, "terminated"]
        rows = [*rows, {a: [(1.0, last, 0.0, False)] for a in range(num_actions)}]
    exists = np.zeros((len(rows), num_actions), dtype=bool)
    entries = []
    for s, row in enumerate(rows):
        exists[s, list(row)] = True
        for a, outcomes in row.items():
            entries += [(s * num_actions + a, p, r, last if end and not absorbs[t] else t) for p, t, r, end in outcomes]
    owners, chances, gains, targets = zip(*entries, strict=True) if entries else ((),) * 4
    laws = laws_from_entries(
        np.array(owners, dtype=np.int64),
        np.array(chances, dtype=np.float64),
        np.array(gains, dtype=np.float64),
        np.array(targets, dtype=np.int64),
        exists,
        lambda s, a: place_of(states[s], actions[a]),
    )
    return OrdinaryModel(laws, exists, state_names, action_names)


def place_of(state: Any, action: Any) -> str:
    return checks.place((state, action), "state", "action")


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
            list are unavailable there, and outcomes stay in listed order. Or a data frame
            (pandas, polars) with a row for each outcome: ``state``, ``action``, ``successor``, ``probability``, and
            perhaps ``reward`` and ``over``.
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
    return coupled_model(found, coupling, common, checks.as_count("max_entries", max_entries), discount, sharing)


def coupled_model(  # many parameters: the parts of a model, and how to couple them
    found: OrdinaryModel, coupling: Coupling, common: bool, max_entries: int, discount: float, sharing: Sharing
) -> JointMDP:
    """The tables, or of Gumbel-max the laws."""
    parts = found.names_and_actions()
    if isinstance(coupling, GumbelMax) or coupling == "gumbel-max":
        chosen = coupling if isinstance(coupling, GumbelMax) else GumbelMax()
        how: dict[str, Any] = {"has_common_grid": bool(common), "max_entries": max_entries}
        return GumbelModel(found.laws, chosen, discount, sharing, **how, **parts)
    return JointMDP(*coupled_tables(found.laws, coupling, common, max_entries), discount, sharing, **parts)


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
    num_actions = 1 + max(max(row) for row in rows)
    known = TOY_TEXT_ACTIONS.get(type(environment).__name__, ())
    if action_names is None and len(known) == num_actions:
        action_names = known
    found = _model_of_rows(rows, num_actions, state_names, action_names, range(len(rows)), range(num_actions))
    is_drawn = coupling == "gumbel-max" or isinstance(coupling, GumbelMax)  # draws serve one state best by itself
    return coupled_model(found, coupling, not is_drawn or sharing == "time", MAX_ENTRIES, discount, sharing)


def _table_rows(table: Any) -> Rows:
    """A toy-text table as one dictionary for each state."""
    if not isinstance(table, Mapping) or set(table) != set(range(len(table))) or not table:
        raise ModelError(
            "expected an environment with a transition table P, or a table {state: {action: outcomes}} whose "
            f"states are 0, 1, 2, …; got {reprlib.repr(table)}"
        )
    rows: Rows = []
    for s in range(len(table)):
        if not isinstance(table[s], Mapping) or not table[s]:
            raise ModelError(f"state {s} of the table lists no actions")
        rows.append({})
        for a, outcomes in table[s].items():
            with checks.blamed(f"state {s}, action {a} must list (probability, successor, reward, terminated)"):
                rows[s][checks.as_count("the action", a, 0)] = [
                    (float(p), checks.as_index("state", t, None, len(table)), float(r), bool(end))
                    for p, t, r, end in outcomes
                ]
    return rows
