"""The part of a model that matters to a few states: what their actions and then the policy lead to.

From a state that is asked about every action is taken once, and the policy afterwards. The states that come up make a
model of their own. Where there are too many, those that come up with hardly any discounted probability are left out:
one more state, the *outside*, stands for all of them. It pays one reward for ever, so that a value there is off by at
most what the rewards can differ, over 1 − γ.

And a model with time in its states, where a policy that depends on time is stationary.
"""

from typing import NamedTuple

import numpy as np

from jointmdp.ground.arrays import Bools, Floats, Ints, distinct, summed
from jointmdp.ground.errors import ModelError
from jointmdp.model.action_laws import ActionLaws
from jointmdp.model.gumbel_max import GumbelModel
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.tables import possible

MOST_CLOSED = 20_000  # states up to which all that can be reached are taken, whatever their probability


class Layers(NamedTuple):
    """Where a branch from each asked state may be, step by step: γᵗ P(S_t = s), at most over its first actions."""

    root: Ints  # [n] which of the asked states
    step: Ints  # [n]
    state: Ints  # [n] index in the part
    weight: Floats  # [n]


class ReachedPart(NamedTuple):
    """The states that matter, as a model."""

    model: JointMDP
    policy: Floats  # [R, A]
    states: Ints  # [R] their indices in the whole model, increasing; the outside has none
    asked: Ints  # [n] indices in the part
    outside: int | None  # the index that stands for everything else; None where nothing was left out
    value_error: float  # how far a value outside can be from the one that stands for it
    layers: Layers | None  # of a part that leaves something out

    def place(self, states: Ints) -> Ints:
        """Indices in the part of states of the whole model; those that are not in it have −1."""
        at = np.minimum(np.searchsorted(self.states, states), len(self.states) - 1)
        return np.where(self.states[at] == states, at, -1)


def reached_part(model: JointMDP, policy: Floats, asked: Ints, least: float) -> ReachedPart:
    """What matters to the states `asked`; beyond `MOST_CLOSED` states, those of a weight of at least `least`."""
    states = _closed(model, policy, asked, MOST_CLOSED)
    layers = None
    if states is None:
        if model.discount == 1:
            raise ModelError(
                f"the states asked about lead to more than {MOST_CLOSED:,} others, and with the discount 1 none of "
                "them can be left out; a discount below 1 or a simulation can answer"
            )
        layers = _layers(model, policy, asked, least)
        states = np.union1d(asked, layers.state)
        layers = layers._replace(state=np.searchsorted(states, layers.state))
    return _restricted(model, policy, states, asked, layers)


def with_layers(part: ReachedPart, least: float) -> ReachedPart:
    """A part with all its states, and how likely they are: for pairs of which there are too many."""
    return part._replace(layers=_layers(part.model, part.policy, part.asked, least))


def _closed(model: JointMDP, policy: Floats, asked: Ints, most: int) -> Ints | None:
    """All states that can be reached, the asked ones included; None beyond `most`."""
    exists = possible(model.probabilities[asked], model.available[asked])
    known = np.unique(asked)
    fresh = np.setdiff1d(model.successors[asked][exists], known)
    while len(fresh):
        known = np.union1d(known, fresh)
        if len(known) > most:
            return None
        taken = possible(model.probabilities[fresh], policy[fresh] > 0)
        fresh = np.setdiff1d(model.successors[fresh][taken], known)
    return known


def _layers(model: JointMDP, policy: Floats, asked: Ints, least: float) -> Layers:
    """Forward from each asked state, a step at a time, as long as some weight is at least `least`."""
    found: list[tuple[Ints, Ints, Ints, Floats]] = []
    number = np.zeros(model.num_states, dtype=np.int64)  # among those that a step leads to
    for root, s in enumerate(asked.tolist()):
        actions = np.flatnonzero(model.available[s])
        to = model.successors[s][:, actions]
        states = distinct(to)
        number[states] = np.arange(len(states))
        each = np.zeros((len(states), len(actions)))
        np.add.at(each, (number[to], np.arange(len(actions))), model.probabilities[s][:, None])
        weights, step = model.discount * each.max(axis=1), 1
        while (weights >= least).any():
            states, weights = states[weights >= least], weights[weights >= least]
            found.append((np.full(len(states), root), np.full(len(states), step), states, weights))
            chances = model.probabilities[states][:, :, None] * policy[states][:, None, :]
            to = np.where(chances > 0, model.successors[states], states[:, None, None])
            later = (model.discount * weights)[:, None, None] * chances
            states = distinct(to)
            number[states] = np.arange(len(states))
            weights, step = summed(number[to].ravel(), later.ravel(), len(states)), step + 1
    return Layers(*(np.concatenate(part) for part in zip(*found, strict=True)))


def _restricted(model: JointMDP, policy: Floats, states: Ints, asked: Ints, layers: Layers | None) -> ReachedPart:
    count, places = len(states), np.searchsorted(states, asked)
    exists: Bools = policy[states] > 0
    exists[places] = model.available[asked]
    chances, rewards, n = model.probabilities[states], model.rewards[states], model.successors[states]
    to = np.minimum(np.searchsorted(states, n), count - 1)
    is_possible = possible(chances, exists)
    leaves = (states[to] != n) & is_possible
    to = np.where(leaves, count, np.where(is_possible, to, np.arange(count)[:, None, None]))
    chosen, outside, value_error = policy[states], None, 0.0
    if leaves.any():
        # Not zero, since a state that pays nothing for ever would count as known.
        low, high = _reward_ends(model)
        paid = (low + high) / 2 if low + high != 0 else high / 4 or 1.0
        value_error = max(high - paid, paid - low) / (1 - model.discount)
        first = np.eye(1, model.num_actions)
        usual = chances[:1] if model.sharing == "time" else np.eye(1, model.num_scenarios)
        chances, chosen = np.concatenate([chances, usual]), np.concatenate([chosen, first])
        exists = np.concatenate([exists, first > 0])
        rewards = np.concatenate([rewards, np.full((1, *rewards.shape[1:]), paid)])
        to = np.concatenate([to, np.full((1, *to.shape[1:]), count)])
        outside = count
    names = [model.state_label(state) for state in states.tolist()] + [f"outside of the {count:,} states reached"] * (
        outside is not None
    )
    labels = {"state_names": names, "action_names": model.action_names}
    part = JointMDP(chances, rewards, to, model.discount, model.sharing, available=exists, **labels)
    return ReachedPart(part, chosen, states, places, outside, value_error, layers)


def _reward_ends(model: JointMDP) -> tuple[float, float]:
    """The least and the largest reward that can be paid."""
    low, high = np.inf, -np.inf
    for block in np.array_split(np.arange(model.num_states), model.num_states // 100_000 + 1):
        is_possible = possible(model.probabilities[block], model.available[block])
        paid = model.rewards[block]
        low = min(low, float(np.min(paid, where=is_possible, initial=np.inf)))
        high = max(high, float(np.max(paid, where=is_possible, initial=-np.inf)))
    return low, high


def with_time(model: JointMDP, policy: Floats) -> tuple[JointMDP, Floats]:
    """The model over the T steps of a policy ``[T, S, A]``, and that policy.

    State s at step t has the index t · S + s; after the last step comes one more state, where nothing is paid.
    """
    if isinstance(model, GumbelModel):
        return _laws_with_time(model, policy)
    horizon, (S, W, A) = len(policy), model.rewards.shape
    end = horizon * S
    later = np.arange(1, horizon)[:, None, None, None] * S + model.successors
    successors = np.concatenate([later.reshape(-1, W, A), np.full((S + 1, W, A), end)])
    chances, rewards, available = (
        np.concatenate([np.tile(table, (horizon, *[1] * (table.ndim - 1))), last])
        for table, last in (
            (model.probabilities, model.probabilities[:1]),
            (model.rewards, np.zeros((1, W, A))),
            (model.available, np.ones((1, A), dtype=bool)),
        )
    )
    names = [model.state_label(s) for s in range(S)]
    whole = JointMDP(
        chances,
        rewards,
        successors,
        model.discount,
        model.sharing,
        available=available,
        state_names=[*names, *(f"{name} at step {t}" for t in range(1, horizon) for name in names), "the end"],
        action_names=[model.action_label(a) for a in range(A)],
    )
    return whole, np.concatenate([policy.reshape(-1, A), np.full((1, A), 1 / A)])


def _laws_with_time(model: GumbelModel, policy: Floats) -> tuple[GumbelModel, Floats]:
    """The same where laws stand for tables; after the last step every state is an end of its own.

    What an outcome is hangs on the state that it leads to, and the noise belongs to the outcome.
    """
    laws, horizon, S, A = model.laws, len(policy), model.num_states, model.num_actions
    times, count = np.arange(horizon)[:, None], len(laws.probabilities)
    ends = horizon * S + np.arange(S)
    starts = np.append((times * count + laws.starts[:-1]).ravel(), horizon * count + np.arange(S * A + 1))
    whole = GumbelModel(
        ActionLaws(
            starts,
            np.append(np.tile(laws.probabilities, horizon), np.ones(S * A)),
            np.append(np.tile(laws.rewards, horizon), np.zeros(S * A)),
            np.append(((times + 1) * S + laws.successors).ravel(), np.repeat(ends, A)),
            A,
        ),
        model.coupling,
        model.discount,
        model.sharing,
        has_common_grid=model.has_common_grid,
        max_entries=model.max_entries,
        available=np.concatenate([np.tile(model.available, (horizon, 1)), np.ones((S, A), dtype=bool)]),
        state_names=[
            *(model.state_label(s) for s in range(S)),
            *(f"{model.state_label(s)} at step {t}" for t in range(1, horizon + 1) for s in range(S)),
        ],
        action_names=[model.action_label(a) for a in range(A)],
    )
    return whole, np.concatenate([policy.reshape(-1, A), np.full((S, A), 1 / A)])
