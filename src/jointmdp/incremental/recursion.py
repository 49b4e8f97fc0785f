"""The recursion itself: M(i) ← M(i) + α(n_i) (T̂M(i) − M(i)) at the coordinates that a sample names.

`State` is all that the next step needs. The randomness of step k derives from the seed and k alone, so a state that was
saved goes on as if nothing had happened.

Every state holds several *replicas* of the recursion with independent draws, whose disagreement is the noise. What it
does not show is the start, zero, that all of them have not quite forgotten yet. So beside the values runs the *doubt*:
the most that a start anywhere within ``|M_k| ≤ (R_max/(1−γ))ᵏ``, where the truth is, could still make of a difference.
Two runs with the same draws and different starts differ by D, and D obeys the recursion without its rewards alone:

    |D_k(x…)| ← (1−α) |D_k(x…)| + α Σ_{1≤j≤k} C(k,j) γʲ |R|^{k−j} |D_j(X'…)|

A run that starts at the truth stays there on average, as the backup is affine and as no draw decides which coordinates
come next. Hence the bias is at most the doubt. In sweeps, where all coordinates are alike, one number for each order
with R_max in place of |R| is enough; else each coordinate has its own, and one that was never updated keeps all of it.
Rounding is added to the doubts in every step: where nothing is random it is all that is left.

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

from jointmdp.arrays import UNIT, float64, on_device
from jointmdp.bellman import sample_backups
from jointmdp.bellman.sample_backups import Links, Pairs, Sample
from jointmdp.checks import Sharing
from jointmdp.incremental import list_updates, table_draws
from jointmdp.incremental.list_updates import ListTables
from jointmdp.incremental.schedules import Function, Rates, rate
from jointmdp.incremental.table_draws import Choice, DrawTables
from jointmdp.incremental.uniforms import uniforms

MomentArrays = Pairs | Array  # an array: the moments of sorted tuples


class Visits(NamedTuple):
    """How often each coordinate was updated."""

    mean: Int[Array, "R X"]
    pair: Int[Array, "R N"]


class State(NamedTuple):
    """Where the recursion stands, R replicas at once."""

    step: Int[Array, ""]
    values: MomentArrays
    averages: MomentArrays
    doubts: MomentArrays  # in sweeps one number for each order 0 … n, else as the values
    doubt_averages: MomentArrays
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


class RunNumbers(NamedTuple):
    """The numbers of a run; new ones compile nothing."""

    rates: Rates
    reward_bound: Float[Array, ""]
    weight: Float[Array, ""]  # averages weigh the n-th iterate by n to this power; below 0: the last iterate alone
    burn_in: Int[Array, ""]  # updates that are left out of the averages
    key: Array


class Problem(NamedTuple):
    """What is learned from: a source, and the tuples where moments of more than two coordinates are asked for."""

    source: DrawTables
    table: Links | None


# -- starts ------------------------------------------------------------------------------------------------------


def filled(sizes: Sequence[float], replicas: int, size: int, *places: int) -> Pairs:
    """Means ``[R, X]`` and pairs ``[R, K, *places]`` that hold one number for each order k, ``sizes[k]``."""
    each = np.array([sizes[i + j] for i, j in sample_backups.powers(len(sizes) - 1)])
    pair = np.broadcast_to(each.reshape(1, -1, *(1,) * len(places)), (replicas, len(each), *places))
    return Pairs(jnp.full((replicas, size), float(sizes[1])), on_device(pair))


def bounds(order: int, reward_bound: float, discount: float) -> list[float]:
    """``(R_max/(1−γ))ᵏ``, k = 0 … n: no moment of order k is larger."""
    return [(reward_bound / (1 - discount)) ** k for k in range(order + 1)]


def init(rule: Rule, problem: Problem, reward_bound: float, replicas: int, batch: int) -> State:
    """The state before the first step; `batch` is the number of lists in a step."""
    size = problem.source.size
    most = bounds(rule.order, reward_bound, float(problem.source.discount))
    with float64():
        values: MomentArrays
        if problem.table is None:
            places = (size, size) if rule.choice == "sweep" else (size * size,)
            values = filled([0.0] * (rule.order + 1), replicas, size, *places)
        else:  # the moment of the empty tuple is 1
            count = 1 + sum(labels.shape[0] for labels in problem.table.labels)
            values = jnp.zeros((replicas, count)).at[:, 0].set(1.0)
        step = jnp.asarray(0, dtype=jnp.int64)
        if rule.choice == "sweep":
            doubts = on_device(most)
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


def _numbers(rule: Rule, problem: Problem, settings: RunNumbers, state: State, ahead: int = 0) -> Numbers:
    """The numbers of the next step, or of one that many steps ahead of it."""
    source, (replicas, batch, _) = problem.source, state.walkers.shape
    key = jax.random.fold_in(settings.key, state.step + ahead)
    if rule.choice == "sweep":
        luck = table_draws.scenario_draws(source, rule.sharing)
        found = uniforms(key, (replicas, luck + source.size))
        return Numbers(found[:, :luck], found[:, luck:], found[:, :0])
    m = table_draws.length(source, rule.choice)
    found = uniforms(key, (2 * m + table_draws.NUMBERS[rule.choice], replicas, batch))
    return Numbers(*(list_updates.first(part) for part in (found[:m], found[m : 2 * m], found[2 * m :])))


def _draw(rule: Rule, problem: Problem, numbers: Numbers, state: State) -> tuple[Sample, Array]:
    """The sample of the next step, and the walkers that it is drawn for."""
    source = problem.source
    if rule.choice == "sweep":
        one = partial(table_draws.draw_field, source, sharing=rule.sharing)
        return jax.vmap(one)(numbers.luck, numbers.choice), state.walkers
    named, walkers = jax.vmap(partial(table_draws.choose, source, rule.choice))(numbers.where, state.walkers)
    each = partial(table_draws.draw_lists, source, sharing=rule.sharing)
    return jax.vmap(each)(numbers.luck, numbers.choice, named), walkers


def _swept(rule: Rule, problem: Problem, settings: RunNumbers, state: State, sample: Sample) -> State:
    """The state after a sample of a whole field."""
    n = state.step + 1
    found = _field_targets(rule, problem, state.values, sample)
    alpha, share = rate(settings.rates, rule.function, n), _share(settings, n)
    values = _towards(state.values, found, alpha)
    averages = _towards(state.averages, values, share)
    assert isinstance(state.doubts, Array)
    discount = problem.source.discount
    more = _rounding(rule, discount, settings)
    doubts = _towards(state.doubts, _order_doubts(rule, discount, settings, state.doubts), alpha) + more
    doubt_averages = _towards(state.doubt_averages, doubts, share) + more
    return State(n, values, averages, doubts, doubt_averages, None, state.walkers)


def _listed(rule: Rule, source: DrawTables, settings: RunNumbers, tables: ListTables, sample: Sample) -> ListTables:
    """The tables after a sample of lists."""
    slots, later = (x[..., :, None] * source.size + x[..., None, :] for x in (sample.coordinates, sample.nexts))
    return update_lists(rule, source.discount, settings, tables, source.size, sample, slots, later)


def _moved(rule: Rule, source: DrawTables, where: Array, walkers: Array) -> Array:
    return jax.vmap(partial(table_draws.move, source, rule.choice, sharing=rule.sharing))(where, walkers)


def _field_targets(rule: Rule, problem: Problem, values: MomentArrays, sample: Sample) -> MomentArrays:
    is_shared, discount = rule.sharing != "none", problem.source.discount
    if isinstance(values, Pairs):
        one = partial(sample_backups.field_targets, rule.order, discount, is_shared=is_shared)
        return jax.vmap(one)(values, sample.rewards, sample.nexts)
    assert problem.table is not None
    each = partial(sample_backups.tuple_targets, problem.table, discount, is_shared=is_shared)
    return jax.vmap(each)(values, sample.rewards, sample.nexts)


def _towards(old: Any, new: Any, share: Array) -> Any:
    return jax.tree.map(lambda a, b: a + share * (b - a), old, new)


def _order_doubts(rule: Rule, discount: Array, settings: RunNumbers, doubts: Array) -> Array:
    """Σ_{1≤j≤k} C(k,j) γʲ R_max^{k−j} d_j for k = 0 … n."""
    r = settings.reward_bound
    rows = [
        sum((comb(k, j) * discount**j * r ** (k - j) * doubts[j] for j in range(1, k + 1)), jnp.asarray(0.0))
        for k in range(rule.order + 1)
    ]
    return jnp.stack(rows)


def _rounding(rule: Rule, discount: Array, settings: RunNumbers) -> Float[Array, " orders"]:
    """The most that rounding changes in an update of order k: fewer than (k+3)² times, in sizes to (R_max/(1−γ))ᵏ."""
    orders = jnp.arange(rule.order + 1)
    return UNIT * (orders + 3) ** 2 * (settings.reward_bound / (1 - discount)) ** orders


def _share(settings: RunNumbers, n: Array) -> Array:
    """Weight of the n-th iterate in a running average with weights ~ (n−b)ᵖ: (1+p)/(n−b+p) after b updates, else 1."""
    p, later = settings.weight, n - settings.burn_in
    return jnp.where((p < 0) | (later < 1), 1.0, (1 + p) / (jnp.maximum(later, 1) + jnp.maximum(p, 0.0)))


def packed(state: State) -> ListTables:
    """What lists update, as a loop of `update_lists` holds it."""
    known: tuple[Any, ...] = (state.values, state.averages, state.doubts, state.doubt_averages)
    assert state.visits is not None
    return list_updates.packed(known, state.visits)


def unpacked(state: State, tables: ListTables) -> State:
    """The state with the tables in it."""
    found, visits = list_updates.unpacked(tables, _size(state))
    return State(state.step, *found, Visits(*visits), state.walkers)


def _size(state: State) -> int:
    assert state.visits is not None
    return state.visits.mean.shape[1]


def update_lists(
    rule: Rule,
    discount: Array,
    settings: RunNumbers,
    tables: ListTables,
    size: int,
    sample: Sample,
    slots: Int[Array, "R B m m"],
    later: Int[Array, "R B m m"],
) -> ListTables:
    """The tables after joint draws for lists of coordinates, of which there are `size`."""

    def rates(n: Array) -> tuple[Array, Array]:
        return rate(settings.rates, rule.function, n), _share(settings, n)

    is_shared, more = rule.sharing != "none", _rounding(rule, discount, settings)
    return list_updates.update(rule.order, is_shared, discount, rates, more, size, tables, sample, slots, later)


# -- compiled ----------------------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames="rule")
def draw(rule: Rule, problem: Problem, settings: RunNumbers, state: State) -> Sample:
    """The sample of the next step, with replicas in front."""
    return _draw(rule, problem, _numbers(rule, problem, settings, state), state)[0]


@partial(jax.jit, static_argnames="rule")
def _step(
    rule: Rule, problem: Problem, settings: RunNumbers, state: State, sample: Sample
) -> tuple[State, Array, Array]:
    if rule.choice == "sweep":
        after = _swept(rule, problem, settings, state, sample)
    else:
        numbers = _numbers(rule, problem, settings, state)
        walkers = _draw(rule, problem, numbers, state)[1]
        after = unpacked(state, _listed(rule, problem.source, settings, packed(state), sample))
        walkers = _moved(rule, problem.source, numbers.where, walkers)
        after = after._replace(step=state.step + 1, walkers=walkers)
    return after, *changes(rule, settings, state, after)


def changes(rule: Rule, settings: RunNumbers, before: State, after: State) -> tuple[Array, Array]:
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


def step(rule: Rule, problem: Problem, settings: RunNumbers, state: State, sample: Sample) -> tuple[State, Info]:
    """The state after one sample, and what a person may want to see of it."""
    with float64():
        after, count, surprise = _step(rule, problem, settings, state, sample)
        return after, Info(int(after.step), int(count), float(surprise))


@partial(jax.jit, static_argnames="rule")
def advance(rule: Rule, problem: Problem, settings: RunNumbers, state: State, count: Any) -> State:
    """`count` steps of draw and update in one compiled loop."""
    if rule.choice == "sweep":

        def sweep(_: Any, state: State) -> State:
            sample, _ = _draw(rule, problem, _numbers(rule, problem, settings, state), state)
            return _swept(rule, problem, settings, state, sample)

        return jax.lax.fori_loop(0, count, sweep, state)

    def drawn(state: State, numbers: Numbers) -> Any:
        return list_updates.last((*_draw(rule, problem, numbers, state), numbers.where))

    def then(state: State, ahead: int) -> Any:
        return list_updates.last(_numbers(rule, problem, settings, state, ahead))

    # Samples are drawn one step ahead, their numbers two, so that they are held in memory: else they would be made anew
    # at every use.
    def body(_: Any, carry: tuple[State, ListTables, Any, Any]) -> tuple[State, ListTables, Any, Any]:
        state, tables, now, numbers = carry
        sample, walkers, where = list_updates.first(now)
        tables = _listed(rule, problem.source, settings, tables, sample)
        walkers = _moved(rule, problem.source, where, walkers)
        state = state._replace(step=state.step + 1, walkers=walkers)
        return state, tables, drawn(state, list_updates.first(numbers)), then(state, 1)

    start = (state, packed(state), drawn(state, _numbers(rule, problem, settings, state)), then(state, 1))
    return unpacked(*jax.lax.fori_loop(0, count, body, start)[:2])
