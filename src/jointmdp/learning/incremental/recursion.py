"""The recursion itself: M(i) ← M(i) + α(n_i) (T̂M(i) − M(i)) at the coordinates that a sample names.

`State` is all that the next step needs. The randomness of step k derives from the seed and k alone, so a state that was
saved continues as if it had never stopped.

Every state holds several *replicas* of the recursion with independent draws, whose disagreement is the noise. It does
not show the bias from the common start, zero. So beside the values runs a *bias bound*: the most that a start anywhere
within ``|M_k| ≤ (R_max/(1−γ))ᵏ``, where the truth is, could still change. Two runs with the same draws and different
starts differ by D, and D obeys the recursion without its pure reward term:

    |D_k(x…)| ← (1−α) |D_k(x…)| + α Σ_{1≤j≤k} C(k,j) γʲ |R|^{k−j} |D_j(X'…)|

A run that starts at the truth stays there on average, as the backup is affine and as no draw decides which coordinates
come next. So the bias is at most this bound. In sweeps, where all coordinates are alike, one number for each order
with R_max in place of |R| is enough; else each coordinate has its own, and one that was never updated keeps all of it.
Rounding is added to the bias bounds in every step: where nothing is random it is all that is left.

A coordinate that one step names several times is updated once, with the mean of its sample backups. The update is
affine in that mean, so each of c entries adds one c-th of its own update.

What decides the speed of lists on a CPU, measured by ``python -m benchmarks incremental``:

- Means and pairs stand in one table, so that a step has one kind of place: half as many operations.
- Lists are the last axis inside, ``[m, R, B]``: the innermost loops are long.
- A table that is written in a step is written in place. XLA does so where all that is read from it comes before; where
  nothing else says that it does, what is written has zero times what was read added. Else it reads from a copy of the
  whole table that it makes in each step.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, Shaped

from jointmdp.exact.bellman import sample_backups
from jointmdp.exact.bellman.sample_backups import MeansAndPairs
from jointmdp.exact.bellman.sample_backups import Sample as Sample
from jointmdp.ground.arrays import Floats, float64, on_device
from jointmdp.learning import table_walks
from jointmdp.learning.incremental.settings import RunSettings
from jointmdp.learning.table_walks import DrawTables

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


MomentArrays = MeansAndPairs | Array  # an array: the moments of sorted tuples
StepUniforms = tuple[Array, Array, Array]  # numbers for scenarios, next actions, and which coordinates


class Visits(NamedTuple):
    """How often each coordinate was updated."""

    mean: Int[Array, "R X"]
    pair: Int[Array, "R N"]


class State(NamedTuple):
    """The state of the recursion between two steps, R replicas at once."""

    step: Int[Array, ""]
    values: MomentArrays
    averages: MomentArrays
    bias_bounds: MomentArrays  # in sweeps one number for each order 0 … n, else as the values
    average_bias_bounds: MomentArrays
    visits: Visits | None  # None: every coordinate was updated in every step
    walkers: Int[Array, "R B 2"]


class Info(NamedTuple):
    """What one step did."""

    step: int
    updated: int
    """Coordinates that were updated, in all replicas together."""
    td_error: float
    """Root mean square of sample backup minus value, the temporal-difference error: noise, it does not go to zero."""


def sweep_start(settings: RunSettings, source: DrawTables, replicas: int) -> State:
    """The state before the first step of sweeps."""
    size, kinds = source.size, len(sample_backups.powers(settings.order))
    with float64():
        values: MomentArrays
        if source.links is None:
            values = MeansAndPairs(_filled((replicas, size), 0.0), _filled((replicas, kinds, size, size), 0.0))
        else:  # the moment of the empty tuple is 1
            values = on_device(np.eye(1, len(source.links.stem)).repeat(replicas, axis=0))
        full = on_device(_moment_bounds(settings))
        return State(_filled((), 0), values, values, full, full, None, _filled((replicas, 0, 2), np.int32(0)))


def list_start(settings: RunSettings, replicas: int, size: int, places: int, batch: int) -> State:
    """The state before the first step of `batch` lists, with room for so many coordinates and pairs."""
    most = _moment_bounds(settings)
    each = most[[i + j for i, j in sample_backups.powers(settings.order)]]
    with float64():
        pair = on_device(np.broadcast_to(each[:, None], (replicas, len(each), places)))
        full = MeansAndPairs(_filled((replicas, size), most[1]), pair)
        zero = MeansAndPairs(*(_filled(part.shape, 0.0) for part in full))
        visits = Visits(*(_filled((replicas, count), np.int32(0)) for count in (size, places)))
        return State(_filled((), 0), zero, zero, full, full, visits, _filled((replicas, batch, 2), np.int32(-1)))


def _filled(shape: tuple[int, ...], value: Any) -> Array:
    """Made on the host: JAX would compile a program for each shape."""
    return on_device(np.full(shape, value))


def _moment_bounds(settings: RunSettings) -> Floats:
    """``(R_max/(1−γ))ᵏ``, k = 0 … n: no moment of order k is larger."""
    most = float(settings.reward_bound) / (1 - float(settings.discount))
    return np.array([most**k for k in range(settings.order + 1)])


def _uniforms(settings: RunSettings, source: DrawTables, state: State, ahead: int = 0) -> StepUniforms:
    """The uniform numbers of the next step, or of one that many steps ahead of it, all from one key."""
    replicas, batch, _ = state.walkers.shape
    key = jax.random.fold_in(settings.key, state.step + ahead)
    if settings.choice == "sweep":
        count = table_walks.scenario_draws(source, settings.sharing)
        found = table_walks.uniforms(key, (replicas, count + source.size))
        return found[:, :count], found[:, count:], found[:, :0]
    m = table_walks.length(source, settings.choice)
    found = table_walks.uniforms(key, (2 * m + table_walks.LIST_UNIFORMS[settings.choice], replicas, batch))
    return first((found[:m], found[m : 2 * m], found[2 * m :]))


def _draw(settings: RunSettings, source: DrawTables, uniform: StepUniforms, state: State) -> tuple[Sample, Array]:
    """The sample of the next step, and the walkers that it is drawn for."""
    scenario, action, coordinate = uniform
    if settings.choice == "sweep":
        one = partial(table_walks.draw_field, source, sharing=settings.sharing)
        return jax.vmap(one)(scenario, action), state.walkers
    named, walkers = jax.vmap(partial(table_walks.choose, source, settings.choice))(coordinate, state.walkers)
    each = partial(table_walks.draw_lists, source, sharing=settings.sharing)
    return jax.vmap(each)(scenario, action, named), walkers


def _swept(settings: RunSettings, source: DrawTables, state: State, sample: Sample) -> State:
    """The state after a sample of a whole field."""
    order, discount, bound, n = settings.order, settings.discount, settings.reward_bound, state.step + 1
    one: Any
    is_shared = settings.sharing != "none"
    if source.links is None:
        one = partial(sample_backups.field_targets, order, discount, is_shared=is_shared)
    else:
        one = partial(sample_backups.tuple_targets, source.links, discount, is_shared=is_shared)
    alpha, share = settings.step_size(n), settings.average_share(n)
    values = _towards(state.values, jax.vmap(one)(state.values, sample.rewards, sample.nexts), alpha)
    averages = _towards(state.averages, values, share)
    old = state.bias_bounds
    assert isinstance(old, Array)
    targets = jnp.stack([sample_backups.future_part(k, discount, bound, old[1:]) for k in range(order + 1)])
    rounding = sample_backups.rounding(order, bound, discount)
    biases = _towards(old, targets, alpha) + rounding
    average_biases = _towards(state.average_bias_bounds, biases, share) + rounding
    return State(n, values, averages, biases, average_biases, None, state.walkers)


def _towards(old: Any, new: Any, share: Array) -> Any:
    return jax.tree.map(lambda a, b: a + share * (b - a), old, new)


def _listed(settings: RunSettings, size: int, tables: ListTables, sample: Sample) -> ListTables:
    """The tables after a sample of lists."""
    slots, later = (x[..., :, None] * size + x[..., None, :] for x in (sample.coordinates, sample.nexts))
    return update(settings, tables, size, sample, slots, later)


def _moved(settings: RunSettings, source: DrawTables, uniform: Array, walkers: Array) -> Array:
    return jax.vmap(partial(table_walks.move, source, settings.choice, sharing=settings.sharing))(uniform, walkers)


def packed(state: State) -> ListTables:
    """What lists update, as a loop of `update` holds it."""
    assert state.visits is not None

    def table(held: Any) -> Array:
        below = ((0, 0), (0, held.pair.shape[1] - 1), (0, 0))
        return jnp.concatenate([jnp.pad(held.mean[:, None], below), held.pair], axis=2)

    counts = jnp.concatenate(state.visits, axis=1)
    values, averages, biases, average_biases = map(table, state[1:5])
    return ListTables(values, averages, biases, average_biases, counts, jnp.zeros_like(counts))


def unpacked(state: State, tables: ListTables) -> State:
    """The state with the tables in it."""
    assert state.visits is not None
    size = state.visits.mean.shape[1]
    values, averages, biases, average_biases = (MeansAndPairs(x[:, 0, :size], x[:, :, size:]) for x in tables[:4])
    visits = Visits(tables.visits[:, :size], tables.visits[:, size:])
    return State(state.step, values, averages, biases, average_biases, visits, state.walkers)


@jax.jit
def draw(settings: RunSettings, source: DrawTables, state: State) -> Sample:
    """The sample of the next step, with replicas in front."""
    return _draw(settings, source, _uniforms(settings, source, state), state)[0]


@jax.jit
def step(settings: RunSettings, source: DrawTables, state: State, sample: Sample) -> State:
    """The state after one sample."""
    if settings.choice == "sweep":
        return _swept(settings, source, state, sample)
    uniform = _uniforms(settings, source, state)
    walkers = _draw(settings, source, uniform, state)[1]
    after = unpacked(state, _listed(settings, source.size, packed(state), sample))
    return after._replace(step=state.step + 1, walkers=_moved(settings, source, uniform[2], walkers))


@jax.jit
def _changes(settings: RunSettings, before: State, after: State) -> tuple[Array, Array]:
    """How many coordinates one step updated, and the root mean square of sample backup minus value there."""
    olds, news = jax.tree.leaves(before.values), jax.tree.leaves(after.values)
    squares, count = jnp.asarray(0.0), jnp.asarray(0)
    for k, (old, new) in enumerate(zip(olds, news, strict=True)):
        if after.visits is None or before.visits is None:
            n, updated = after.step, jnp.asarray(new.size)
        else:
            n, was = after.visits[k], before.visits[k]
            updated = jnp.sum(n > was) * (new.size // n.size)
            n = n if new.ndim == n.ndim else n[:, None, :]
        alpha = settings.step_size(jnp.maximum(n, 1))
        squares, count = squares + jnp.sum(((new - old) / alpha) ** 2), count + updated
    return count, jnp.sqrt(squares / count)


def info(settings: RunSettings, before: State, after: State) -> Info:
    """What one step did."""
    with float64():
        count, td_error = _changes(settings, before, after)
        return Info(int(after.step), int(count), float(td_error))


@jax.jit
def advance(settings: RunSettings, source: DrawTables, state: State, count: Any) -> State:
    """`count` steps of draw and update in one compiled loop."""
    if settings.choice == "sweep":

        def sweep(_: Any, state: State) -> State:
            sample, _ = _draw(settings, source, _uniforms(settings, source, state), state)
            return _swept(settings, source, state, sample)

        return jax.lax.fori_loop(0, count, sweep, state)

    def drawn(state: State, uniform: StepUniforms) -> Any:
        return last((*_draw(settings, source, uniform, state), uniform[2]))

    def then(state: State) -> Any:
        return last(_uniforms(settings, source, state, ahead=1))

    # Samples are drawn one step ahead, their numbers two, so that they are held in memory: else they would be made anew
    # at every use.
    def body(_: Any, carry: tuple[State, ListTables, Any, Any]) -> tuple[State, ListTables, Any, Any]:
        state, tables, now, uniform = carry
        sample, walkers, coordinate = first(now)
        tables = _listed(settings, source.size, tables, sample)
        walkers = _moved(settings, source, coordinate, walkers)
        state = state._replace(step=state.step + 1, walkers=walkers)
        return state, tables, drawn(state, first(uniform)), then(state)

    start = (state, packed(state), drawn(state, _uniforms(settings, source, state)), then(state))
    return unpacked(*jax.lax.fori_loop(0, count, body, start)[:2])
