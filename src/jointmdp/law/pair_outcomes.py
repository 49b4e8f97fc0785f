"""What the branches of a pair can do in one step, as lists of outcomes with shaped rewards: the gap's own tables.

A gap does not change when both branches lose the same amount per step, nor when a potential Φ is paid out,
``e = R + γΦ(S') − Φ(s)``, as long as it is accounted for at the start: two branches in one state start level. Three
choices make most rewards exactly 0, and what is exactly 0 is never rounded: the commonest reward is subtracted
everywhere; where the return is no longer left to chance, Φ is that return, so that nothing happens there any more
(an absorbing goal that pays for ever pays once, on arrival); everywhere else Φ = 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointmdp.arrays import Bools, Floats, Ints
from jointmdp.model.joint_mdp import JointMDP

SAME = 1e-12  # amounts that differ by less than this fraction of the largest reward are one amount


class BranchOutcomes(NamedTuple):
    """Every way a branch can move, given the luck common to two branches; lists are padded with weight 0."""

    chances: Floats  # [G] law of the common luck
    weights: Floats  # [G, S, O]
    rewards: Floats  # [G, S, O] shaped
    successors: Ints  # [G, S, O]


class Meetings(NamedTuple):
    """Every way two branches in one state can move on when they draw different actions."""

    weights: Floats  # [Q]
    state: Ints  # [Q]
    rewards: Floats  # [Q] shaped, first minus second
    left: Ints  # [Q] successor of the first branch
    right: Ints  # [Q]
    ties: Floats  # [S] Σ_a π(a|s)², the probability that they draw the same


class PairTables(NamedTuple):
    """A model as the law of its gaps reads it, on the states that can be reached."""

    states: Ints  # [S] indices in the model
    place: Ints  # [states of the model] position in `states`, −1 where absent
    outcomes: BranchOutcomes
    meetings: Meetings | None  # None where branches never share
    mean: Floats  # [S] E Z(s,A) − Φ(s)
    discount: float
    same: float  # amounts closer than this are equal
    slack: float  # how far gaps can be off because of that
    shaped: Floats  # [states of the model, W, A]


def pair_tables(model: JointMDP, policy: Floats, mean: Floats, states: Ints, horizon: int | None) -> PairTables:
    """The tables of all pairs of `states`, which must be closed under the policy; `mean` is E Z(s,a), ``[S, A]``."""
    g = model.discount
    v = np.sum(np.where(policy > 0, policy * mean, 0.0), axis=1)
    steps = 1 / (1 - g) if horizon is None else min(horizon, 1 / (1 - g) if g < 1 else np.inf)
    is_taken = (policy[states] > 0)[:, None, :] & (model.probabilities[states] > 0)[:, :, None]
    bound = float(np.max(np.abs(model.rewards[states]), where=is_taken, initial=0.0))
    same = SAME * max(bound, np.finfo(float).tiny)
    common = _commonest(model, policy, states)
    shaped = np.where(model.is_possible, model.rewards - common, 0.0)
    potential = np.zeros(model.num_states)
    dropped = 0.0
    if horizon is None:
        settled = _settled(
            model, policy, v, same * steps
        )  # values are sums of so many rewards, and so is their rounding
        potential[settled] = v[settled] - common / (1 - g)
        shaped = shaped + g * potential[model.successors] - potential[:, None, None]
        taken = (policy > 0)[:, None, :] & (model.probabilities > 0)[:, :, None]
        done = settled[:, None, None] & taken
        dropped = float(np.max(np.abs(shaped), where=done, initial=0.0))
        shaped[done] = 0.0
    shaped[np.abs(shaped) <= same] = 0.0
    place = np.full(model.num_states, -1)
    place[states] = np.arange(len(states))
    offset = common * steps if horizon is None else 0.0
    return PairTables(
        states,
        place,
        _outcomes(model, policy, shaped, states, place),
        None if model.sharing == "none" else _meetings(model, policy, shaped, states, place),
        (v - offset - potential)[states],
        g,
        same,
        2 * (dropped + same) * float(steps),
        shaped,
    )


def _commonest(model: JointMDP, policy: Floats, states: Ints) -> float:
    """The reward that is paid most often, counted over states with the policy's probabilities."""
    weights = model.probabilities[states][:, :, None] * policy[states][:, None, :]
    values, which = np.unique(model.rewards[states].ravel(), return_inverse=True)
    return float(values[np.argmax(np.bincount(which.ravel(), weights.ravel()))])


def _settled(model: JointMDP, policy: Floats, v: Floats, same: float) -> Bools:
    """States whose return is certain: every outcome is worth v(s), and so on for ever."""
    taken = (policy > 0)[:, None, :] & (model.probabilities > 0)[:, :, None]
    worth = model.rewards + model.discount * v[model.successors]
    settled = np.all((np.abs(worth - v[:, None, None]) <= same) | ~taken, axis=(1, 2))
    while True:
        stays = settled & np.all(settled[model.successors] | ~taken, axis=(1, 2))
        if np.array_equal(stays, settled):
            return settled
        settled = stays


def _outcomes(model: JointMDP, policy: Floats, shaped: Floats, states: Ints, place: Ints) -> BranchOutcomes:
    p, n = model.probabilities[states], place[model.successors[states]]
    pi, e = policy[states], shaped[states]
    size, scenarios, _ = e.shape
    if model.sharing == "time":
        chances, groups = p[0], [slice(w, w + 1) for w in range(scenarios)]
        weights = np.broadcast_to(pi[:, None, :], e.shape)
        keep = chances > 0
        chances, groups = chances[keep], [group for group, kept in zip(groups, keep, strict=True) if kept]
    else:
        chances, groups = np.ones(1), [slice(None)]
        weights = p[:, :, None] * pi[:, None, :]
    lists = []
    for group in groups:
        flat = (size, -1)
        rows = np.broadcast_to(np.arange(size)[:, None], e[:, group].reshape(flat).shape)
        lists.append(
            _merged(rows.ravel(), weights[:, group].reshape(-1), e[:, group].reshape(-1), n[:, group].reshape(-1), size)
        )
    longest = max(found[0].shape[1] for found in lists)

    def stacked(columns: Iterable[NDArray[Any]]) -> NDArray[Any]:
        return np.stack([np.pad(column, ((0, 0), (0, longest - column.shape[1]))) for column in columns])

    return BranchOutcomes(chances / chances.sum(), *(stacked(columns) for columns in zip(*lists, strict=True)))


def _merged(rows: Ints, weights: Floats, rewards: Floats, to: Ints, size: int) -> tuple[Floats, Floats, Ints]:
    """One padded list per state, equal outcomes counted once: weights, rewards and successors ``[S, O]``."""
    some = weights > 0
    rows, weights, rewards, to = rows[some], weights[some], rewards[some], to[some]
    order = np.lexsort((rewards, to, rows))
    rows, weights, rewards, to = rows[order], weights[order], rewards[order], to[order]
    is_new = np.ones(len(rows), dtype=bool)
    is_new[1:] = (np.diff(rows) != 0) | (np.diff(to) != 0) | (np.diff(rewards) != 0)
    total = np.bincount(np.cumsum(is_new) - 1, weights)
    rows, rewards, to = rows[is_new], rewards[is_new], to[is_new]
    position = np.arange(len(rows)) - np.searchsorted(rows, rows)
    shape = (size, int(position.max()) + 1)
    found = np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=np.int64)
    for array, values in zip(found, (total, rewards, to), strict=True):
        array[rows, position] = values
    return found


def _meetings(model: JointMDP, policy: Floats, shaped: Floats, states: Ints, place: Ints) -> Meetings:
    p, n, pi, e = model.probabilities[states], place[model.successors[states]], policy[states], shaped[states]
    parts: list[tuple[Ints, Floats, Floats, Ints, Ints]] = []
    for s in range(len(states)):
        actions = np.flatnonzero(pi[s])
        a, b = (found.ravel() for found in np.meshgrid(actions, actions, indexing="ij"))
        a, b = a[a != b], b[a != b]
        w = np.flatnonzero(p[s])
        weights = p[s, w, None] * (pi[s, a] * pi[s, b])[None, :]
        at = (w[:, None], a[None, :]), (w[:, None], b[None, :])
        found = (weights, e[s][at[0]] - e[s][at[1]], n[s][at[0]], n[s][at[1]])
        parts.append((np.full(weights.size, s), *(x.ravel() for x in found)))
    state, weight, reward, left, right = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Meetings(weight, state, reward, left, right, np.sum(pi**2, axis=1))
