"""Ordinary MDPs in the forms in which people have them, as the laws of their actions.

Arrays ``[S, A, S]``, sparse matrices for each action, and dictionaries by state and action all become `ActionLaws`,
the outcomes of every action in every state. Couplings and scenarios come later.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from jointmdp import checks
from jointmdp.arrays import Bools, Floats, Ints
from jointmdp.errors import ModelError
from jointmdp.model.available_actions import as_available
from jointmdp.model.couplings import NO_LAW, ActionLaw, ActionLaws, words

Rows = list[dict[int, list[tuple[float, int, float, bool]]]]  # by state and action: p, successor, reward, is it over


class OrdinaryModel(NamedTuple):
    """The laws of all actions, which of them exist, and names where the form has them."""

    laws: ActionLaws
    available: Bools
    state_names: Sequence[Any] | None = None
    action_names: Sequence[Any] | None = None


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
    laws: ActionLaws = [[NO_LAW] * num_actions for _ in range(num_states)]
    for s, a in np.argwhere(exists).tolist():
        targets = np.flatnonzero(kernel[s, a])
        laws[s][a] = action_law(_place(s, a), kernel[s, a, targets], gains[s, a, targets], targets)
    return OrdinaryModel(laws, exists)


def _check_axes(kernel: Floats) -> None:
    """Raise where the axes are in another order, judged by shape, and by which sums are 1."""
    first, middle, last = kernel.shape
    with np.errstate(invalid="ignore"):
        sums = [bool(np.all(np.abs(kernel.sum(axis=axis) - 1) <= checks.SUM_TOLERANCE)) for axis in range(3)]
    looks, order = "", (0, 1, 2)
    if middle == last != first and sums[1] and not sums[2]:
        looks, order = "like [A, S, S] with next states in the middle: sums over axis 1 are 1", (2, 0, 1)
    elif middle == last != first:
        looks, order = "like [A, S, S]", (1, 0, 2)
    elif sums[1] and not sums[2] and first == middle:
        looks, order = "like [S, S, A] with next states in the middle: sums over axis 1 are 1", (0, 2, 1)
    elif sums[0] and not sums[2] and last == first:
        looks, order = "like [S, A, S] with next states first: sums over axis 0 are 1", (2, 1, 0)
    elif sums[0] and not sums[2] and first == middle:
        looks, order = "like [S, S, A] with next states first: sums over axis 0 are 1", (1, 2, 0)
    if looks:
        raise ModelError(
            f"transitions has shape {kernel.shape}, which looks {looks}; give [S, A, S], for example by "
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
    kernels = [sp.csr_array(matrix, dtype=np.float64) for matrix in matrices]
    by_successor = [sp.csr_array(matrix, dtype=np.float64) for matrix in rewards] if is_sparse(rewards) else None
    if by_successor is None:
        gains = checks.as_floats("rewards", rewards, "[S, A], or one sparse matrix for each action,", 2)
        checks.check_shape("rewards", gains, (num_states, num_actions), "[S, A]")
    elif [matrix.shape for matrix in by_successor] != [kernel.shape for kernel in kernels]:
        raise ModelError(f"rewards must be one sparse matrix [S, S] for each of the {num_actions} actions")
    exists = as_available(available, num_states, num_actions)
    laws: ActionLaws = [[NO_LAW] * num_actions for _ in range(num_states)]
    for a, kernel in enumerate(kernels):
        kernel.sum_duplicates()
        kernel.eliminate_zeros()
        for s in np.flatnonzero(exists[:, a]).tolist():
            part = slice(kernel.indptr[s], kernel.indptr[s + 1])
            targets = kernel.indices[part].astype(np.int64)
            if by_successor is None:
                gain = np.full(len(targets), gains[s, a])
            else:
                gain = by_successor[a][[s]].toarray()[0][targets]
            laws[s][a] = action_law(_place(s, a), kernel.data[part], gain, targets)
    return OrdinaryModel(laws, exists)


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
    laws, exists, names = laws_of_rows(rows, len(actions), names, (list(states), list(actions)))
    return OrdinaryModel(laws, exists, names, named_actions if action_names is None else action_names)


def _listed(s: Any, a: Any, outcomes: Any, rewards: Any) -> list[tuple[float, Any, float, bool]]:
    """The outcomes of one action: probability, successor, reward, and whether the episode is over."""
    where = f"state {s!r}, action {a!r}"
    try:
        if isinstance(outcomes, Mapping):
            paid = rewards[s][a]
            of = paid if isinstance(paid, Mapping) else dict.fromkeys(outcomes, paid)
            return [(float(p), t, float(of[t]), False) for t, p in outcomes.items()]
        if rewards is not None:
            raise ModelError("outcomes in lists hold their rewards; give rewards=None")
        found = [(*outcome, False)[:4] for outcome in outcomes]
        return [(float(p), t, float(r), bool(end)) for p, t, r, end in found]
    except ModelError as error:
        raise ModelError(f"{where}: {error}") from None
    except (TypeError, ValueError, KeyError, IndexError) as error:
        form = "{successor: probability} with rewards beside it, or [(probability, successor, reward), …]"
        raise ModelError(f"{where} must list {form}: {words(error)}") from error


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


def laws_of_rows(
    rows: Rows,
    num_actions: int,
    state_names: Sequence[Any] | None,
    labels: tuple[Sequence[Any], Sequence[Any]] | None = None,
) -> tuple[ActionLaws, Bools, Sequence[Any] | None]:
    """The laws of listed outcomes, which actions exist, and names.

    An outcome that ends the episode goes to its successor when that state is absorbing with zero reward, and otherwise
    to one more state, "terminated", which is.
    """
    num_states = len(rows)
    shown, shown_actions = (range(num_states), range(num_actions)) if labels is None else labels
    absorbs = [
        all(t == s and r == 0 for outcomes in row.values() for p, t, r, _ in outcomes if p != 0)
        for s, row in enumerate(rows)
    ]
    laws: ActionLaws = [[NO_LAW] * num_actions for _ in rows]
    for s, row in enumerate(rows):
        for a, outcomes in row.items():
            targets = [num_states if end and not absorbs[t] else t for _, t, _, end in outcomes]
            numbers = np.array([(p, r) for p, _, r, _ in outcomes]).reshape(-1, 2)
            where = _place(shown[s], shown_actions[a])
            laws[s][a] = action_law(where, numbers[:, 0], numbers[:, 1], np.array(targets, dtype=np.int64))
    if any((law.successors == num_states).any() for row in laws for law in row):
        # Checked before the extra name joins them, so that the message counts the user's states.
        names = checks.as_names("state", state_names, num_states)
        state_names = [*(names or [f"state {s}" for s in range(num_states)]), "terminated"]
        laws.append([ActionLaw(np.ones(1), np.zeros(1), np.array([num_states]))] * num_actions)
    return laws, np.array([[len(law.successors) > 0 for law in row] for row in laws]), state_names


def action_law(where: str, chances: Floats, gains: Floats, targets: Ints) -> ActionLaw:
    """The checked law of one action in one state."""
    chances = checks.as_law(f"transition probabilities of {where}", "successor", targets, chances)
    if at := checks.first_place(~np.isfinite(gains)):
        cure = "; if the action does not exist there, say so with available=" if gains[at] == -np.inf else ""
        raise ModelError(f"reward of {where}, successor {targets[at]} is {gains[at]}, not a finite number{cure}")
    return ActionLaw(chances, gains, targets)


def _place(state: Any, action: Any) -> str:
    return checks.place((state, action), "state", "action")
