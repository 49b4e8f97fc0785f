"""Queries of a table, many lanes in one step; the same rules as `recording`."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

from jointmdp.arrays import Bools, Floats, Ints, float64, on_device, random_key
from jointmdp.checks import Sharing
from jointmdp.incremental.table_draws import DrawTables, draw_lists, draw_tables, uniforms
from jointmdp.model.inverse_sampling import drawn_rows
from jointmdp.neural.queries import LISTED, OVER, Lists, no_covariances
from jointmdp.simulators.table_simulator import TableSimulator

LANES = 4096  # stepped together
APART = 0.1  # of new pairs: one branch begins, the other goes on
BEGIN, DRAW, MOVE = 7, 4 * LISTED, 2  # uniform numbers of a lane in a step


class Restarts(NamedTuple):
    """The chances that a pair, and that an episode, begins anew in a step."""

    pair: float
    episode: float


class TableStep(NamedTuple):
    """A step of L lanes."""

    walkers: Int[Array, "L 3"]  # the trunk's state and two coordinates; −1 where something new must begin
    listed: Int[Array, "L m"]
    rewards: Float[Array, "L 2 m"]
    nexts: Int[Array, "L 2 m"]


def table_lists(
    source: TableSimulator, policy: Floats, count: int, restarts: Restarts, seed: int
) -> tuple[Ints, Lists]:
    """Numbers of states as the pool, and lists."""
    model, lanes = source.model, min(LANES, count)
    is_over = np.array([source.is_over(s) for s in range(model.num_states)])
    parts = []
    with float64():
        tables = draw_tables(model, policy, source.start_law, restarts.pair)
        over, key = on_device(is_over), random_key(seed)
        walkers = on_device(np.full((lanes, 3), -1, dtype=np.int32))
        for t in range(-(-count // lanes)):
            step = _step(tables, walkers, jax.random.fold_in(key, t), on_device(restarts.episode), over, source.sharing)
            walkers = step.walkers
            parts.append([np.asarray(part) for part in step[1:]])
    listed, rewards, nexts = (np.concatenate(each) for each in zip(*parts, strict=True))
    return np.arange(model.num_states), _as_lists(np.argwhere(model.available), is_over, listed, rewards, nexts)


@partial(jax.jit, static_argnames="sharing")
def _step(
    tables: DrawTables,
    walkers: Int[Array, "L 3"],
    key: Array,
    episode_restart: Float[Array, ""],
    is_over: Bool[Array, " S"],
    sharing: Sharing,
) -> TableStep:
    drawn = uniforms(key, (walkers.shape[0], BEGIN + DRAW + MOVE))
    begin, draw, move = jnp.split(drawn, [BEGIN, BEGIN + DRAW], axis=1)
    trunk, x, y = walkers.T
    first = drawn_rows(tables.start_ends, jnp.zeros_like(trunk), begin[:, 0])
    trunk = jnp.where((trunk < 0) | (begin[:, 1] < episode_restart), first, trunk)
    new = tables.packed[trunk, (begin[:, 3] * tables.counts[trunk]).astype(jnp.int32)]
    is_new = (x < 0) | (begin[:, 2] < tables.restart)
    is_apart = (x >= 0) & (begin[:, 6] < APART)
    second = jnp.where(is_apart, new, _other(tables, new, begin[:, 4]))
    x, y = jnp.where(is_new & ~is_apart, new, x), jnp.where(is_new, second, y)
    listed = jnp.stack([x, _other(tables, x, begin[:, 5]), y], axis=1)
    found = [
        draw_lists(tables, each[:, :LISTED], each[:, LISTED:], listed, sharing) for each in jnp.split(draw, 2, axis=1)
    ]
    rewards, nexts = (jnp.stack([getattr(each, name) for each in found], axis=1) for name in ("rewards", "nexts"))
    one, other = nexts[:, 0, 0], nexts[:, 0, 2]
    one_over, other_over = is_over[tables.states[one]], is_over[tables.states[other]]
    one, other = jnp.where(one_over, other, one), jnp.where(other_over, one, other)
    ends = one_over & other_over
    taken = tables.place[trunk, drawn_rows(tables.action_ends, trunk, move[:, 0])]
    trunk = tables.successors[taken, drawn_rows(tables.scenario_ends, trunk, move[:, 1])]
    after = [jnp.where(is_over[trunk], -1, trunk), jnp.where(ends, -1, one), jnp.where(ends, -1, other)]
    return TableStep(jnp.stack(after, axis=1).astype(jnp.int32), listed, rewards, nexts)


def _other(tables: DrawTables, x: Int[Array, " L"], uniform: Float[Array, " L"]) -> Int[Array, " L"]:
    """Another action of the same state; the same one where there is no other."""
    state = tables.states[x]
    first, count = tables.packed[state, 0], tables.counts[state]  # coordinates of a state follow each other
    return first + (x - first + 1 + (uniform * (count - 1)).astype(jnp.int32)) % count


def _as_lists(
    coordinates: Ints, is_over: Bools, listed: NDArray[np.int32], rewards: Floats, nexts: NDArray[np.int32]
) -> Lists:
    s, a = coordinates.T

    def numbered(x: NDArray[np.int32]) -> NDArray[np.int16]:
        states = s[x]
        return np.argmax(states[..., :, None] == states[..., None, :], axis=-1).astype(np.int16)

    def actions(x: NDArray[np.int32]) -> NDArray[np.int16]:
        return np.where(is_over[s[x]], OVER, a[x]).astype(np.int16)

    seen, seen_next = s[listed].astype(np.int32), s[nexts].astype(np.int32)
    here, there = (seen, actions(listed), numbered(listed)), (seen_next, actions(nexts), numbered(nexts))
    return Lists(*here, rewards, *there, no_covariances(len(listed)))
