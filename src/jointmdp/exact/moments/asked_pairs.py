"""The states and pairs that matter to a few states of a large model: what `evaluate(..., states=[…])` looks at.

From an asked state every action is taken once, and the policy afterwards (`model.derived_models`); pairs come from two
actions of one asked state (`bellman.pair_step`). Where there are too many, those of little weight are left out.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from jointmdp.exact.bellman.pair_step import PairList, PairLister
from jointmdp.ground.arrays import Bools, Floats, Ints, distinct, summed
from jointmdp.ground.errors import ModelError
from jointmdp.ground.limits import room_left
from jointmdp.ground.progress import Meter
from jointmdp.model.derived_models import ReachedPart, reached_part, with_layers
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.tables import StateLike, idle_states

# Of the tolerance: the discounted probability below which a pair of states, or a state, is left out at first.
LEAST_PAIR, LEAST_STATE = 1e-3, 1e-7
MOVE_BYTES = 60  # that a move takes at the peak
FEWEST_MOVES = 2  # of a pair
AT_ONCE = 2**25  # weights of pairs that are formed at once
MEMORY = 2**31  # bytes for moves of pairs
NEGLIGIBLE = 1e-2  # of the least weight of a pair: steps that add less are not counted


class ReachableSize(NamedTuple):
    """What `evaluate` would look at to answer for some states; see `Solve.reach`."""

    states: int
    """How many states matter."""
    pairs: int
    """How many pairs of them, merged pairs left out."""
    moves: int
    """Steps between these pairs: what a sweep costs."""
    is_complete: bool
    """Whether nothing that can be reached is left out; else what is left out enters the certificate."""

    def __str__(self) -> str:
        rest = "nothing is left out" if self.is_complete else "less likely ones are left out, within the certificate"
        return f"{self.pairs:,} pairs of {self.states:,} states, {self.moves:,} moves between them; {rest}"


def asked_states(model: JointMDP, states: Iterable[StateLike]) -> Ints:
    """The indices of the states asked about, in order and once each."""
    if isinstance(states, str) or not isinstance(states, Iterable):
        raise ModelError(f"states must be a list of states, not {states!r}")
    if isinstance(states, tuple) and states in (model.state_names or ()):
        raise ModelError(f"{states} is the name of one state; write states=[{states}]")
    asked = np.unique([model.state_index(state) for state in states])
    if not len(asked):
        raise ModelError("states=[] asks about no state; name at least one")
    return asked


def reachable_size(model: JointMDP, policy: Floats, asked: Ints, tolerance: float) -> ReachableSize:
    """What is looked at first to answer for the asked states, without solving anything."""
    least = LEAST_PAIR * min(tolerance, 1.0)
    part = likely_part(model, policy, asked, least)
    if model.sharing == "none":
        return ReachableSize(len(part.states), 0, 0, part.layers is None)
    with Meter("pairs of states") as meter:
        part, pairs = pair_list(part, idle_states(part.model, part.policy), least, meter)
    return ReachableSize(len(part.states), len(pairs.codes), pairs.num_moves, part.layers is None)


def likely_part(model: JointMDP, policy: Floats, asked: Ints, least: float) -> ReachedPart:
    """What matters to the states asked about, where pairs of a weight of at least `least` do."""
    return reached_part(model, policy, asked, least * LEAST_STATE / LEAST_PAIR)


def pair_list(part: ReachedPart, idle: Bools, least: float, meter: Meter) -> tuple[ReachedPart, PairList]:
    """The pairs that the first steps lead to: all of them, or those of a weight of at least `least`."""
    model, memory = part.model, int(room_left(MEMORY))
    most = memory // MOVE_BYTES
    lister = PairLister(model, part.policy, idle, part.outside)
    found = lister.listed(_first_pairs(part, lister), most, is_closed=False) if part.layers is None else None
    if found is None and part.layers is None and model.discount < 1:
        part = with_layers(part, least * LEAST_STATE / LEAST_PAIR)
    if part.layers is not None:
        weighty = _weighty_pairs(part, least, most // FEWEST_MOVES)
        if weighty is not None:
            codes = np.concatenate([weighty, _first_pairs(part, lister)])
            outside = -1 if part.outside is None else part.outside
            found = lister.listed(codes[codes % lister.size != outside], most)
    if found is None:
        raise ModelError(
            f"the states asked about lead to {len(part.states):,} states and to more pairs of them than {memory:,} "
            f"bytes hold ({most:,} moves between pairs); a larger relative_tolerance leaves out more, fewer states at "
            "a time reach less; where one state reaches nearly all others, simulate: simulate(model, policy, "
            "state, action, other)"
        )
    meter.update(0.0, f"{len(found.codes):,} pairs of {len(part.states):,} states")
    return part, found


def _first_pairs(part: ReachedPart, lister: PairLister) -> Ints:
    """Codes of the pairs that two actions of an asked state lead to."""
    model, found = part.model, [np.zeros(0, dtype=np.int64)]
    for s in part.asked.tolist():
        actions = np.flatnonzero(model.available[s])
        to = model.successors[s][model.probabilities[s] > 0][:, actions]  # [W, A]
        i, j = np.triu_indices(len(actions), 1)
        found.append(lister.walk.code(to[:, i], to[:, j]).ravel())
    return lister.opened(np.concatenate(found))


def _weighty_pairs(part: ReachedPart, least: float, most: int) -> Ints | None:
    """Codes of pairs that branches from one asked state come to with a weight of `least`, as if they moved apart.

    None where there are more than `most`.
    """
    layers, size = part.layers, part.model.num_states
    assert layers is not None
    found, count = [np.zeros(0, dtype=np.int64)], 0
    for root in range(len(part.asked)):
        mine = layers.root == root
        step, weight = layers.step[mine], layers.weight[mine]
        states, where = np.unique(layers.state[mine], return_inverse=True)
        # A weight is at most the largest of one branch at any time, times what the other has over all times.
        largest, in_all = np.zeros(len(states)), summed(where, weight, len(states)).max()
        np.maximum.at(largest, where, weight)
        is_kept = largest * in_all >= least
        number = np.cumsum(is_kept) - 1
        keep = is_kept[where] & (weight * largest.max() * step.max() >= NEGLIGIBLE * least)
        weights = np.zeros((int(step[keep].max(initial=0)) + 1, int(number[-1]) + 1), dtype=np.float32)
        weights[step[keep], number[where[keep]]] = weight[keep]
        chosen = states[is_kept]
        width = AT_ONCE // max(len(chosen), 1) + 1
        for begin in range(0, len(chosen), width):
            i, j = np.nonzero(weights[:, begin : begin + width].T @ weights[:, begin:] >= least)
            i, j = begin + i[i <= j], begin + j[i <= j]
            found.append(chosen[i] * size + chosen[j])
            count += len(i)
            if count > most:
                return None
    return distinct(np.concatenate(found))
