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

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int, Shaped

from jointmdp.bellman import sample_backups
from jointmdp.bellman.sample_backups import Sample
from jointmdp.incremental.options import RunSettings

IN: Any = "promise_in_bounds"


class ListTables(NamedTuple):
    """All that lists update: X means in front of N pairs. Means are in the row of the first power; below are zeros."""

    values: Float[Array, "R K places"]
    averages: Float[Array, "R K places"]
    bias_bounds: Float[Array, "R K places"]
    average_bias_bounds: Float[Array, "R K places"]
    visits: Int[Array, "R places"]
    named: Int[Array, "R places"]  # how often a step names a place; zero between steps


def last(parts: Any) -> Any:
    """Arrays ``[R, B, m]`` as ``[m, R, B]``, and so ``[R, B, m, m]``."""
    return jax.tree.map(lambda part: jnp.moveaxis(part, (0, 1), (-2, -1)), parts)


def first(parts: Any) -> Any:
    """The inverse of `last`."""
    return jax.tree.map(lambda part: jnp.moveaxis(part, (-2, -1), (0, 1)), parts)


def update(
    settings: RunSettings,
    tables: ListTables,
    size: int,
    sample: Sample,
    slots: Int[Array, "R B m m"],
    later: Int[Array, "R B m m"],
) -> ListTables:
    """The tables of `size` coordinates after joint draws for lists; pairs stand at `slots`, those of nexts at `later`.

    Each entry adds to the bias bounds what it may have been rounded by.
    """
    x, rewards, nexts = last(sample)
    here, after = (
        jnp.concatenate([one, size + last(two).reshape(-1, *one.shape[1:])])
        for one, two in ((x, slots), (nexts, later))
    )
    same, sizes, powers = x[:, None] == x[None, :], jnp.abs(rewards), sample_backups.powers(settings.order)
    goals = _targets(settings, tables.values, rewards, after, same)
    # What the backup makes of bias alone: with it, less |R|ⁱ |R|ʲ, what it makes of nothing.
    nothing = _entries(sizes, jnp.stack([sizes[:, None] ** i * sizes[None, :] ** j for i, j in powers]))
    biases = _targets(settings, tables.bias_bounds, sizes, after, same) - nothing

    m, units = len(x), sample_backups.rounding(settings.order, settings.reward_bound, settings.discount)
    each = jnp.stack([jnp.broadcast_to(units[i + j], (m, m, 1, 1)) for i, j in powers])
    rounded = _entries(jnp.broadcast_to(units[1], (m, 1, 1)), each)

    ids = _flat(tables.visits[:, None], here)[0]
    named = tables.named.ravel().at[ids].add(1, mode=IN)
    part = 1.0 / named.at[ids].get(mode=IN)
    named = named.at[ids].set((0 * part).astype(named.dtype), mode=IN)
    n = tables.visits.ravel().at[ids].get(mode=IN) + 1
    alpha, share = settings.step_size(n), settings.average_share(n)
    visits = tables.visits.ravel().at[ids].set(n + (0 * (alpha + share)).astype(n.dtype), mode=IN)

    found = []
    ids = _flat(tables.values, here)
    for values, averages, targets, more in (
        (tables.values, tables.averages, goals, 0.0),
        (tables.bias_bounds, tables.average_bias_bounds, biases, rounded),
    ):
        old, before = values.ravel().at[ids].get(mode=IN), averages.ravel().at[ids].get(mode=IN)
        change = alpha * part * (targets - old) + more
        moved = share * (part * (old - before) + change) + more
        found += [values.ravel().at[ids].add(change + 0 * moved, mode=IN), averages.ravel().at[ids].add(moved, mode=IN)]
    return ListTables(*(new.reshape(old.shape) for new, old in zip((*found, visits, named), tables, strict=True)))


def _targets(settings: RunSettings, table: Array, rewards: Array, after: Array, same: Array) -> Float[Array, "K E R B"]:
    """The sample backups of all lists, from the moments of their next coordinates."""
    m, order = rewards.shape[0], settings.order
    read = table.ravel().at[_flat(table, after)].get(mode=IN)  # [K, m+m², R, B]
    pairs = read[:, m:].reshape(-1, m, *rewards.shape)
    diagonal = jnp.stack([pairs[:, p, p] for p in range(m)], axis=1)
    singles = sample_backups.singles_of(order, read[0, :m], diagonal)
    later = pairs if settings.sharing != "none" else None
    return _entries(*sample_backups.targets(order, settings.discount, rewards, singles, later, same))


def _entries(mean: Float[Array, "m R B"], pair: Float[Array, "K m m R B"]) -> Float[Array, "K E R B"]:
    below = ((0, pair.shape[0] - 1), (0, 0), (0, 0), (0, 0))
    return jnp.concatenate([jnp.pad(mean[None], below), pair.reshape(pair.shape[0], -1, *mean.shape[1:])], axis=1)


def _flat(table: Shaped[Array, "R K n"], places: Int[Array, "E R B"]) -> Int[Array, "K E R B"]:
    """Where places are in a table that is laid out in one line, for each of its K powers."""
    replicas, powers, size = table.shape
    kind = jnp.int32 if table.size < 2**31 else jnp.int64
    rows = jnp.arange(replicas * powers, dtype=kind).reshape(replicas, powers)
    return places + size * rows.T[:, None, :, None]
