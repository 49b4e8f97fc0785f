"""The recursion itself: M(i) ← M(i) + α(n_i) (T̂M(i) − M(i)) at the coordinates that a sample names.

`State` is all that the next step needs. The randomness of step k derives from the seed and k alone, so a state that was
saved goes on as if nothing had happened.

Every state holds several *replicas* of the recursion with independent draws, whose disagreement is the noise. What it
does not show is the start, zero, that all of them have not quite forgotten yet. So beside the values runs the *doubt*:
the most that a start anywhere within ``|M_k| ≤ (R_max/(1−γ))ᵏ``, where the truth is, could still make of a difference.
Two runs with the same draws and different starts differ by D, and D obeys the recursion without its rewards alone:

    |D_k(x…)| ← (1−α) |D_k(x…)| + α Σ_{1≤j≤k} C(k,j) γʲ |R|^{k−j} |D_j(X'…)|

A run that starts at the truth stays there on average, as the backup is affine. Hence the bias is at most the doubt. In
sweeps, where all coordinates are alike, one number for each order with R_max in place of |R| is enough; else each
coordinate has its own, and one that was never updated keeps all of it.

A coordinate that one step names several times is updated once, with the mean of its sample backups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import comb
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from jointmdp import kernels
from jointmdp.checks import Sharing
from jointmdp.incremental import backups, worlds
from jointmdp.incremental.backups import Links, Pairs, Sample
from jointmdp.incremental.schedules import Function, Rates, rate
from jointmdp.incremental.worlds import Choice, World

Collection = Pairs | Array  # an array: the moments of sorted tuples


class Visits(NamedTuple):
    """How often each coordinate was updated."""

    mean: Int[Array, "R X"]
    pair: Int[Array, "R N"]


class State(NamedTuple):
    """Where the recursion stands, R replicas at once."""

    step: Int[Array, ""]
    values: Collection
    averages: Collection
    doubts: Collection  # in sweeps one number for each order 0 … n, else as the values
    doubt_averages: Collection
    visits: Visits | None  # None: every coordinate was updated in every step
    walkers: Int[Array, "R B 2"]


class Info(NamedTuple):
    """What one step did."""

    step: int
    updated: int
    """Coordinates that were updated, in all replicas together."""
    surprise: float
    """Root mean square of the differences between sample backups and values: the noise, it does not go to zero."""


@dataclass(frozen=True)
class Rule:
    """What decides the shape of the computation; a new one compiles."""

    order: int
    sharing: Sharing
    choice: Choice
    function: Function | None = None
    """A user's schedule, in place of the numbers of a polynomial one."""


class Settings(NamedTuple):
    """The numbers of a run; new ones compile nothing."""

    rates: Rates
    reward_bound: Float[Array, ""]
    weight: Float[Array, ""]  # averages weigh the n-th iterate by n to this power; below 0: the last iterate alone
    burn_in: Int[Array, ""]  # updates that are left out of the averages
    key: Array


class Problem(NamedTuple):
    """What is learned from: a world, and the tuples where moments of more than two coordinates are asked for."""

    world: World
    table: Links | None


# -- starts ------------------------------------------------------------------------------------------------------


def filled(sizes: Sequence[float], replicas: int, size: int, *places: int) -> Pairs:
    """Means ``[R, X]`` and pairs ``[R, K, *places]`` that hold one number for each order k, ``sizes[k]``."""
    each = np.array([sizes[i + j] for i, j in backups.powers(len(sizes) - 1)])
    pair = np.broadcast_to(each.reshape(1, -1, *(1,) * len(places)), (replicas, len(each), *places))
    return Pairs(jnp.full((replicas, size), float(sizes[1])), jnp.asarray(pair))


def bounds(order: int, reward_bound: float, discount: float) -> list[float]:
    """``(R_max/(1−γ))ᵏ``, k = 0 … n: no moment of order k is larger."""
    return [(reward_bound / (1 - discount)) ** k for k in range(order + 1)]


def init(rule: Rule, problem: Problem, reward_bound: float, replicas: int, batch: int) -> State:
    """The state before the first step; `batch` is the number of lists in a step."""
    size = problem.world.size
    most = bounds(rule.order, reward_bound, float(problem.world.discount))
    with kernels.float64():
        values: Collection
        if problem.table is None:
            places = (size, size) if rule.choice == "sweep" else (size * size,)
            values = filled([0.0] * (rule.order + 1), replicas, size, *places)
        else:  # the moment of the empty tuple is 1
            count = 1 + sum(labels.shape[0] for labels in problem.table.labels)
            values = jnp.zeros((replicas, count)).at[:, 0].set(1.0)
        step = jnp.asarray(0, dtype=jnp.int64)
        if rule.choice == "sweep":
            doubts = jnp.asarray(most)
            return State(step, values, values, doubts, doubts, None, jnp.zeros((replicas, 0, 2), dtype=jnp.int32))
        full = filled(most, replicas, size, size * size)
        visits = Visits(*(jnp.zeros((replicas, count), dtype=jnp.int32) for count in (size, size * size)))
        walkers = jnp.full((replicas, batch, 2), -1, dtype=jnp.int32)
        return State(step, values, values, full, full, visits, walkers)


# -- one step ----------------------------------------------------------------------------------------------------


class Numbers(NamedTuple):
    """The uniform numbers of one step, all from one key: luck, next actions, and which coordinates."""

    luck: Array
    choice: Array
    where: Array


def _numbers(rule: Rule, problem: Problem, settings: Settings, state: State) -> Numbers:
    world, (replicas, batch, _) = problem.world, state.walkers.shape
    if rule.choice == "sweep":
        luck, choice, where = worlds.field_luck(world, rule.sharing), world.size, 0
    else:
        luck = choice = batch * worlds.length(world, rule.choice)
        where = batch * worlds.NUMBERS
    key = jax.random.fold_in(settings.key, state.step)
    found = jax.random.uniform(key, (replicas, luck + choice + where), dtype=jnp.float64)
    parts = found[:, :luck], found[:, luck : luck + choice], found[:, luck + choice :]
    if rule.choice == "sweep":
        return Numbers(*parts)
    return Numbers(*(part.reshape(replicas, batch, -1) for part in parts))


def _draw(rule: Rule, problem: Problem, numbers: Numbers, state: State) -> tuple[Sample, Array]:
    """The sample of the next step, and the walkers that it is drawn for."""
    world = problem.world
    if rule.choice == "sweep":
        one = partial(worlds.draw_field, world, sharing=rule.sharing)
        return jax.vmap(one)(numbers.luck, numbers.choice), state.walkers
    lists, walkers = jax.vmap(partial(worlds.choose, world, rule.choice))(numbers.where, state.walkers)
    each = partial(worlds.draw_lists, world, sharing=rule.sharing)
    return jax.vmap(each)(numbers.luck, numbers.choice, lists), walkers


def _apply(
    rule: Rule,
    problem: Problem,
    settings: Settings,
    state: State,
    sample: Sample,
    numbers: Numbers,
    walkers: Array,
    scratch: Array,
) -> tuple[State, Array]:
    """The state after a sample."""
    n, world = state.step + 1, problem.world
    if rule.choice == "sweep":
        found = _field_targets(rule, problem, state.values, sample)
        alpha, share = rate(settings.rates, rule.function, n), _share(settings, n)
        values = _towards(state.values, found, alpha)
        averages = _towards(state.averages, values, share)
        assert isinstance(state.doubts, Array)
        doubts = _towards(state.doubts, _order_doubts(rule, world.discount, settings, state.doubts), alpha)
        doubt_averages = _towards(state.doubt_averages, doubts, share)
        return State(n, values, averages, doubts, doubt_averages, None, walkers), scratch
    x, nexts = sample.coordinates, sample.nexts
    slots = x[..., :, None] * world.size + x[..., None, :]
    later = nexts[..., :, None] * world.size + nexts[..., None, :]
    state, scratch = apply_lists(rule, world.discount, settings, state, sample, slots, later, scratch)
    moved = jax.vmap(partial(worlds.move, world, rule.choice))(numbers.where, walkers, sample)
    return state._replace(walkers=moved), scratch


def _field_targets(rule: Rule, problem: Problem, values: Collection, sample: Sample) -> Collection:
    is_shared, discount = rule.sharing != "none", problem.world.discount
    if isinstance(values, Pairs):
        one = partial(backups.field_targets, rule.order, discount, is_shared=is_shared)
        return jax.vmap(one)(values, sample.rewards, sample.nexts)
    assert problem.table is not None
    each = partial(backups.tuple_targets, problem.table, discount, is_shared=is_shared)
    return jax.vmap(each)(values, sample.rewards, sample.nexts)


def _towards(old: Any, new: Any, share: Array) -> Any:
    return jax.tree.map(lambda a, b: a + share * (b - a), old, new)


def _order_doubts(rule: Rule, discount: Array, settings: Settings, doubts: Array) -> Array:
    """Σ_{1≤j≤k} C(k,j) γʲ R_max^{k−j} d_j for k = 0 … n."""
    r = settings.reward_bound
    rows = [
        sum((comb(k, j) * discount**j * r ** (k - j) * doubts[j] for j in range(1, k + 1)), jnp.asarray(0.0))
        for k in range(rule.order + 1)
    ]
    return jnp.stack(rows)


def _share(settings: Settings, n: Array) -> Array:
    """Weight of the n-th iterate in a running average with weights ~ (n−b)ᵖ: (1+p)/(n−b+p) after b updates, else 1."""
    p, later = settings.weight, n - settings.burn_in
    return jnp.where((p < 0) | (later < 1), 1.0, (1 + p) / (jnp.maximum(later, 1) + jnp.maximum(p, 0.0)))


def apply_lists(
    rule: Rule,
    discount: Array,
    settings: Settings,
    state: State,
    sample: Sample,
    slots: Int[Array, "R B m m"],
    later: Int[Array, "R B m m"],
    scratch: Int[Array, "R N"],
) -> tuple[State, Array]:
    """The state after joint draws for lists of coordinates; `slots` say where pairs are stored, `later` their nexts."""
    assert state.visits is not None
    known = (state.values, state.averages, state.doubts, state.doubt_averages)

    def one(known: tuple[Any, ...], visits: Visits, sample: Sample, slots: Array, later: Array, scratch: Array) -> Any:
        values, averages, doubts, doubt_averages = known
        mean, pair = _list_targets(rule, discount, values, sample, later)
        nothing = Pairs(jnp.zeros_like(values.mean), jnp.zeros_like(values.pair))
        sizes = sample._replace(rewards=jnp.abs(sample.rewards))
        # What the backup makes of the doubts alone: with them, less without.
        with_mean, with_pair = _list_targets(rule, discount, doubts, sizes, later)
        mean_only, pair_only = _list_targets(rule, discount, nothing, sizes, later)
        means = [
            (values.mean[None], averages.mean[None], mean[None]),
            (doubts.mean[None], doubt_averages.mean[None], (with_mean - mean_only)[None]),
        ]
        pairs = [
            (values.pair, averages.pair, pair),
            (doubts.pair, doubt_averages.pair, with_pair - pair_only),
        ]
        new, mean_visits, scratch = _scatter(rule, settings, means, visits.mean, sample.coordinates, scratch)
        more, pair_visits, scratch = _scatter(rule, settings, pairs, visits.pair, slots, scratch)
        found = [Pairs(new[i][k][0], more[i][k]) for i in range(2) for k in range(2)]
        return found, Visits(mean_visits, pair_visits), scratch

    found, visits, scratch = jax.vmap(one)(known, state.visits, sample, slots, later, scratch)
    return State(state.step + 1, found[0], found[1], found[2], found[3], visits, state.walkers), scratch


def _list_targets(rule: Rule, discount: Array, M: Pairs, sample: Sample, later: Array) -> tuple[Array, Array]:
    """Sample backups of all lists of one replica: means ``[B, m]`` and pairs ``[K, B, m, m]``."""
    x = sample.coordinates
    after = M.pair[:, later]  # [K, B, m, m]
    diagonal = jnp.diagonal(after, axis1=2, axis2=3)
    kept = after if rule.sharing != "none" else None

    def backup(r: Array, nexts: Array, diagonal: Array, after: Array | None, same: Array) -> tuple[Array, Array]:
        singles = backups.singles_of(rule.order, M.mean[nexts], diagonal)
        return backups.targets(rule.order, discount, r, singles, after, same)

    axes = (0, 0, 1, None if kept is None else 1, 0)
    same = x[:, :, None] == x[:, None, :]
    mean, pair = jax.vmap(backup, in_axes=axes)(sample.rewards, sample.nexts, diagonal, kept, same)
    return mean, jnp.moveaxis(pair, 1, 0)


Triple = tuple[Array, Array, Array]  # values and averages [K, N], and targets [K, …] for the named places


def _scatter(
    rule: Rule,
    settings: Settings,
    triples: list[Triple],
    visits: Int[Array, " N"],
    places: Int[Array, ...],
    scratch: Int[Array, " M"],
) -> tuple[list[tuple[Array, Array]], Array, Array]:
    """Update the named places; those named several times once, with the mean of their targets."""
    ids = places.reshape(-1)
    count = ids.shape[0]
    here = jnp.arange(count, dtype=jnp.int32)
    # The first entry that names a place gathers for all: integers, so that the order of writing does not matter.
    scratch = scratch.at[ids].set(count).at[ids].min(here)
    owner = scratch[ids]
    named = jnp.zeros(count, dtype=jnp.int32).at[owner].add(1)
    n = visits[ids] + 1
    alpha, share = rate(settings.rates, rule.function, n), _share(settings, n)
    where = jnp.where(owner == here, ids, visits.shape[0])  # beyond the end: dropped
    found = []
    for values, averages, targets in triples:
        flat = targets.reshape(values.shape[0], -1)
        goal = jnp.zeros(flat.shape).at[:, owner].add(flat) / jnp.maximum(named, 1)
        old, before = values[:, ids], averages[:, ids]
        new = old + alpha * (goal - old)
        averaged = before + share * (new - before)
        found.append((values.at[:, where].set(new, mode="drop"), averages.at[:, where].set(averaged, mode="drop")))
    return found, visits.at[where].set(n, mode="drop"), scratch


def _scratch(state: State) -> Array:
    shape = (state.walkers.shape[0], 0)
    return jnp.zeros(shape if state.visits is None else state.visits.pair.shape, dtype=jnp.int32)


# -- compiled ----------------------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames="rule")
def draw(rule: Rule, problem: Problem, settings: Settings, state: State) -> Sample:
    """The sample of the next step, with replicas in front."""
    return _draw(rule, problem, _numbers(rule, problem, settings, state), state)[0]


@partial(jax.jit, static_argnames="rule")
def _step(rule: Rule, problem: Problem, settings: Settings, state: State, sample: Sample) -> tuple[State, Array, Array]:
    numbers = _numbers(rule, problem, settings, state)
    walkers = state.walkers if rule.choice == "sweep" else _draw(rule, problem, numbers, state)[1]
    after, _ = _apply(rule, problem, settings, state, sample, numbers, walkers, _scratch(state))
    return after, *changes(rule, settings, state, after)


def changes(rule: Rule, settings: Settings, before: State, after: State) -> tuple[Array, Array]:
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
        alpha = rate(settings.rates, rule.function, jnp.maximum(n, 1))
        squares, count = squares + jnp.sum(((new - old) / alpha) ** 2), count + updated
    return count, jnp.sqrt(squares / count)


def step(rule: Rule, problem: Problem, settings: Settings, state: State, sample: Sample) -> tuple[State, Info]:
    """The state after one sample, and what a person may want to see of it."""
    with kernels.float64():
        after, count, surprise = _step(rule, problem, settings, state, sample)
        return after, Info(int(after.step), int(count), float(surprise))


@partial(jax.jit, static_argnames="rule")
def advance(rule: Rule, problem: Problem, settings: Settings, state: State, count: Any) -> State:
    """`count` steps of draw and update in one compiled loop."""

    def body(_: Any, carry: tuple[State, Array]) -> tuple[State, Array]:
        state, scratch = carry
        numbers = _numbers(rule, problem, settings, state)
        sample, walkers = _draw(rule, problem, numbers, state)
        return _apply(rule, problem, settings, state, sample, numbers, walkers, scratch)

    return jax.lax.fori_loop(0, count, body, (state, _scratch(state)))[0]
