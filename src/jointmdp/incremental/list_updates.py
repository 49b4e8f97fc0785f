"""Updates at the places that lists of coordinates name, fast enough to be made one step after another in one loop.

What decides the speed on a CPU, measured by ``python -m benchmarks incremental``:

- Means and pairs stand in one table, so that a step has one kind of place: half as many operations.
- Lists are the last axis inside, ``[m, R, B]``: the innermost loops are long.
- A table that is written in a step is written in place. XLA does so where all that is read from it comes before; where
  nothing else says that it does, what is written has zero times what was read added. Else it reads from a copy of the
  whole table that it makes in each step.

A place that a step names c times is updated once, with the mean of its targets. The update is affine in that mean, so
each of the c entries adds one c-th of its own update.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int, Shaped

from jointmdp.bellman import sample_backups
from jointmdp.bellman.sample_backups import Pairs, Sample

IN: Any = "promise_in_bounds"
RateFunction = Callable[
    [Array], tuple[Array, Array]
]  # of the number n of an update: α(n), and the weight in the average


class ListTables(NamedTuple):
    """All that lists update: X means in front of N pairs. Means are in the row of the first power; below are zeros."""

    values: Float[Array, "R K places"]
    averages: Float[Array, "R K places"]
    doubts: Float[Array, "R K places"]
    doubt_averages: Float[Array, "R K places"]
    visits: Int[Array, "R places"]
    named: Int[Array, "R places"]  # how often a step names a place; zero between steps


def packed(collections: tuple[Pairs, Pairs, Pairs, Pairs], visits: tuple[Array, Array]) -> ListTables:
    """Values, averages, doubts and averages of doubts in tables."""

    def table(held: Pairs) -> Array:
        below = ((0, 0), (0, held.pair.shape[1] - 1), (0, 0))
        return jnp.concatenate([jnp.pad(held.mean[:, None], below), held.pair], axis=2)

    counts = jnp.concatenate(visits, axis=1)
    values, averages, doubts, doubt_averages = map(table, collections)
    return ListTables(values, averages, doubts, doubt_averages, counts, jnp.zeros_like(counts))


def unpacked(tables: ListTables, size: int) -> tuple[tuple[Pairs, Pairs, Pairs, Pairs], tuple[Array, Array]]:
    """The inverse of `packed`, for X = `size` coordinates."""
    values, averages, doubts, doubt_averages = (Pairs(part[:, 0, :size], part[:, :, size:]) for part in tables[:4])
    return (values, averages, doubts, doubt_averages), (tables.visits[:, :size], tables.visits[:, size:])


def last(parts: Any) -> Any:
    """Arrays ``[R, B, m]`` as ``[m, R, B]``, and so ``[R, B, m, m]``."""
    return jax.tree.map(lambda part: jnp.moveaxis(part, (0, 1), (-2, -1)), parts)


def first(parts: Any) -> Any:
    """The inverse of `last`."""
    return jax.tree.map(lambda part: jnp.moveaxis(part, (-2, -1), (0, 1)), parts)


def update(
    order: int,
    is_shared: bool,
    discount: Array,
    rates: RateFunction,
    rounding: Float[Array, " orders"],
    size: int,
    tables: ListTables,
    sample: Sample,
    slots: Int[Array, "R B m m"],
    later: Int[Array, "R B m m"],
) -> ListTables:
    """The tables after joint draws for lists of coordinates; pairs stand at `slots`, those of the nexts at `later`.

    Each entry adds to the doubts what it may have been rounded by, `rounding` for each order 0 … n.
    """
    x, rewards, nexts = last(sample)
    here, after = (_places(one, last(two), size) for one, two in ((x, slots), (nexts, later)))
    same, sizes = x[:, None] == x[None, :], jnp.abs(rewards)
    goals = _targets(order, is_shared, discount, tables.values, rewards, after, same)
    # What the backup makes of doubts alone: with them, less |R|ⁱ |R|ʲ, what it makes of nothing.
    nothing = _entries(
        sizes, jnp.stack([sizes[:, None] ** i * sizes[None, :] ** j for i, j in sample_backups.powers(order)])
    )
    doubtful = _targets(order, is_shared, discount, tables.doubts, sizes, after, same) - nothing

    m = len(x)
    each = jnp.stack([jnp.broadcast_to(rounding[i + j], (m, m, 1, 1)) for i, j in sample_backups.powers(order)])
    rounded = _entries(jnp.broadcast_to(rounding[1], (m, 1, 1)), each)

    ids = _flat(tables.visits[:, None], here)[0]
    named = _line(tables.named).at[ids].add(1, mode=IN)
    part = 1.0 / named.at[ids].get(mode=IN)
    named = named.at[ids].set((0 * part).astype(named.dtype), mode=IN)
    n = _line(tables.visits).at[ids].get(mode=IN) + 1
    alpha, share = rates(n)
    visits = _line(tables.visits).at[ids].set(n + (0 * (alpha + share)).astype(n.dtype), mode=IN)

    found = []
    ids = _flat(tables.values, here)
    for values, averages, targets, more in (
        (tables.values, tables.averages, goals, 0.0),
        (tables.doubts, tables.doubt_averages, doubtful, rounded),
    ):
        old, before = _line(values).at[ids].get(mode=IN), _line(averages).at[ids].get(mode=IN)
        change = alpha * part * (targets - old) + more
        moved = share * (part * (old - before) + change) + more
        found += [_line(values).at[ids].add(change + 0 * moved, mode=IN), _line(averages).at[ids].add(moved, mode=IN)]
    return ListTables(*(new.reshape(old.shape) for new, old in zip((*found, visits, named), tables, strict=True)))


def _targets(
    order: int, is_shared: bool, discount: Array, table: Array, rewards: Array, after: Array, same: Array
) -> Float[Array, "K E R B"]:
    """The sample backups of all lists, from the moments of their next coordinates."""
    m = rewards.shape[0]
    read = _line(table).at[_flat(table, after)].get(mode=IN)  # [K, m+m², R, B]
    pairs = read[:, m:].reshape(-1, m, *rewards.shape)
    diagonal = jnp.stack([pairs[:, p, p] for p in range(m)], axis=1)
    singles = sample_backups.singles_of(order, read[0, :m], diagonal)
    return _entries(*sample_backups.targets(order, discount, rewards, singles, pairs if is_shared else None, same))


def _entries(mean: Float[Array, "m R B"], pair: Float[Array, "K m m R B"]) -> Float[Array, "K E R B"]:
    below = ((0, pair.shape[0] - 1), (0, 0), (0, 0), (0, 0))
    return jnp.concatenate([jnp.pad(mean[None], below), pair.reshape(pair.shape[0], -1, *mean.shape[1:])], axis=1)


def _places(x: Int[Array, "m R B"], pairs: Int[Array, "m m R B"], size: int) -> Int[Array, "E R B"]:
    return jnp.concatenate([x, size + pairs.reshape(-1, *x.shape[1:])])


def _line(table: Array) -> Array:
    return table.reshape(-1)


def _flat(table: Shaped[Array, "R K n"], places: Int[Array, "E R B"]) -> Int[Array, "K E R B"]:
    """Where places are in a table that is laid out in one line, for each of its K powers."""
    replicas, powers, size = table.shape
    kind = jnp.int32 if table.size < 2**31 else jnp.int64
    rows = jnp.arange(replicas * powers, dtype=kind).reshape(replicas, powers)
    return places + size * rows.T[:, None, :, None]
