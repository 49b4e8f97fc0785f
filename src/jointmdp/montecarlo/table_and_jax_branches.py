"""The compiled engine of joint simulation: replications of m branches, advanced together step by step.

Branches of one replication start in one state. At every step branches that share their noise (same state, or always
under ``sharing="time"``) see the same draw; each branch draws its next action by itself; branches whose state and
action coincide are one branch from then on (never under ``"none"``, and never for different policies). A branch that
is over pays 0 and stays where it is; all branches of a replication that are over are one.

What is simulated is a `Dynamics`: a table or a JAX environment. Returns are held as that of branch 0 and the *leads* of
the others over it, in float64 whatever the dynamics compute in: a lead is exactly 0 where nothing ever differed.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from jointmdp.checks import Sharing

States = Any  # a pytree of arrays whose leaves begin with [N, m]


class Dynamics(Protocol):
    """What a step reads: a pytree, so that new numbers of the same shapes compile nothing."""

    @property
    def discount(self) -> Array:
        """γ, a float64 scalar."""

    @property
    def drawn_together(self) -> int:
        """Steps whose noise is drawn at once. Large draws are quicker than small ones, and take longer to compile."""

    @property
    def kinds(self) -> Array:
        """Which policy each of the m branches follows: branches of different kinds are never one."""

    def begin(self, key: Array, count: int) -> tuple[States, Any, Array]:
        """States, first actions and which of them are over, ``[N, m]`` each; those of a replication in one state."""

    def draw(self, key: Array, shape: tuple[int, ...]) -> Array:
        """The noise of a step for ``[N, m]`` branches, or for ``[N]`` replications whose branches share it.

        As in `chances`, more branches change nothing for the first ones: see `columns_of`.
        """

    def step(self, state: States, action: Any, noise: Any) -> tuple[Array, States, Array]:
        """Rewards ``[N, m]``, next states, and which of them are over ``[N, m]``."""

    def chances(self, key: Array, shape: tuple[int, int]) -> Any:
        """What the policies of ``[N, m]`` branches draw from."""

    def choose(self, state: States, chances: Any, leader: Array) -> Any:
        """The policies' actions ``[N, m]``; a branch that is one with another draws what its `leader` draws."""

    def mistake(self, state: States, action: Any, column: int) -> str:
        """Why a step of one branch did not pay a finite number, in words."""

    def alone(self) -> "Dynamics":
        """Those of branch 0 by itself."""

    def snapshot(self, state: States, is_over: Array) -> Any:
        """One branch's state as the simulator's snapshot."""


def columns_of(draw: Callable[[Array, tuple[int, int]], Array], key: Array, shape: tuple[int, ...]) -> Array:
    """Draws ``[N, m]`` of which the j-th column is the same however many columns there are.

    A replication can so be asked again with one more branch, on the same noise.
    """
    count, m = shape
    pair = (count, 2)  # most simulations have two branches: one draw
    if m <= 2:
        return draw(key, pair)[:, :m]
    more = jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(2, m, 2))
    found = jax.vmap(lambda each: draw(each, pair), out_axes=1)(jnp.concatenate([key[None], more]))  # [N, P, 2]
    return found.reshape(count, -1)[:, :m]


def of_branches(drawn: Array, branch: Array) -> Array:
    """For each branch what was drawn for another one, ``[N, m]``: numbers or keys."""
    if not jnp.issubdtype(drawn.dtype, jax.dtypes.prng_key):
        return jnp.take_along_axis(drawn, branch, axis=1)
    data = jnp.take_along_axis(jax.random.key_data(drawn), branch[:, :, None], axis=1)
    return jax.random.wrap_key_data(data, impl=jax.random.key_impl(drawn))


class Branches(NamedTuple):
    """Where N replications of m branches stand."""

    state: States  # [N, m, …]
    action: Any  # [N, m, …]
    is_over: Array  # [N, m]
    owner: Array | None  # [N, m] the first branch that sees the same noise; None where all do
    leader: Array  # [N, m] the first branch that this one is one with
    total: Array  # [N] return of branch 0
    lead: Array  # [N, m] return minus that of branch 0
    size: Array  # [N, m] sum of the absolute amounts that the lead is made of
    step: Array  # []
    steps: Array  # [N] steps until nothing more could come
    apart: Array  # [N] return of branch 0 until all branches were one
    meetings: Array  # [N] steps after which branches that are not one stood in the same state; 0 under "none"


@partial(jax.jit, static_argnames=("count", "sharing"))
def begin(dynamics: Dynamics, key: Array, count: int, sharing: Sharing) -> Branches:
    """Replications before their first step."""
    state, action, is_over = dynamics.begin(key, count)
    leader = _first(_are_one(_are_equal(action), is_over, dynamics.kinds))
    # In one state at the beginning: under "state" all see the noise of branch 0, under "none" each its own.
    owner = {"time": None, "state": jnp.zeros_like(leader), "none": leader}[sharing]
    none, zero, zeros = jnp.zeros(count, dtype=jnp.int32), jnp.zeros(count), jnp.zeros(leader.shape)
    return Branches(state, action, is_over, owner, leader, zero, zeros, zeros, jnp.asarray(0), none, zero, none)


@partial(jax.jit, static_argnames="sharing")
def advance(
    dynamics: Dynamics,
    branches: Branches,
    noise_key: Array,
    policy_key: Array,
    count: int,
    sharing: Sharing,
    until_merged: bool,
) -> Branches:
    """Up to `count` more steps, fewer where nothing more can come."""
    # One program, whether only gaps matter or not: compiling it takes longer than most simulations.
    end = branches.step + count

    def goes_on(b: Branches) -> Array:
        return (b.step < end) & jnp.any(are_open(b, until_merged))

    def step(b: Branches, noise: Array, chances: Any) -> Branches:
        after = _step(dynamics, b, noise, chances, sharing)
        apart = b.apart + jnp.where(are_open(b, True), after.total - b.total, 0.0)
        return after._replace(steps=b.steps + are_open(b, until_merged), apart=apart)

    drawn, width = partial(_drawn, dynamics, branches, noise_key, policy_key), dynamics.drawn_together
    if width == 1:
        return jax.lax.while_loop(goes_on, lambda b: step(b, *drawn(b.step)), branches)

    def several(first: Branches) -> Branches:
        all_drawn = jax.vmap(drawn)(first.step + jnp.arange(width))

        def next_step(b: Branches) -> Branches:
            return step(b, *jax.tree.map(lambda leaf: leaf[b.step - first.step], all_drawn))

        return jax.lax.while_loop(lambda b: goes_on(b) & (b.step < first.step + width), next_step, first)

    return jax.lax.while_loop(goes_on, several, branches)


def _drawn(dynamics: Dynamics, b: Branches, noise_key: Array, policy_key: Array, t: Array) -> tuple[Array, Any]:
    """The noise of a step, and what the policies then draw from."""
    replications, m = b.leader.shape
    noise_shape = (replications,) if b.owner is None else (replications, m)
    noise = dynamics.draw(jax.random.fold_in(noise_key, t), noise_shape)
    return noise, dynamics.chances(jax.random.fold_in(policy_key, t), (replications, m))


@partial(jax.jit, static_argnames="count")
def advance_alone(
    dynamics: Dynamics, b: Branches, noise_key: Array, policy_key: Array, count: int, end: float
) -> Branches:
    """More steps of replications whose branches are one or over: branch 0 takes them, the others follow.

    What comes from step `end` on does not count.
    """
    one, steps, shape = dynamics.alone(), b.step + jnp.arange(count), (b.leader.shape[0], 1)
    first = b._replace(leader=b.leader[:, :1], owner=None)
    # One large draw is quicker than many small ones.
    noise, chances = jax.vmap(partial(_drawn, one, first, noise_key, policy_key))(steps)
    weights = jnp.where(steps < end, dynamics.discount ** steps.astype(jnp.float64), 0.0)
    leader = jnp.zeros(shape, dtype=b.leader.dtype)

    def step(now: tuple[States, Any, Array, Array], drawn: tuple[Any, Any, Array]) -> tuple[Any, None]:
        (state, action, is_over, total), (noise, chance, weight) = now, drawn
        reward, after, ends = one.step(state, action, noise)
        total += weight * jnp.where(is_over | (weight == 0), 0.0, reward.astype(jnp.float64))[:, 0]
        state = jax.tree.map(partial(_where, is_over), state, after)
        return (state, one.choose(state, chance, leader), is_over | ends, total), None

    column = jax.tree.map(lambda leaf: leaf[:, :1], (b.state, b.action, b.is_over))
    *moved, total = jax.lax.scan(step, (*column, b.total), (noise, chances, weights))[0]
    like = (b.state, b.action, b.is_over)
    state, action, is_over = jax.tree.map(lambda leaf, whole: jnp.broadcast_to(leaf, whole.shape), tuple(moved), like)
    return b._replace(state=state, action=action, is_over=is_over, total=total, step=b.step + count)


@partial(jax.jit, static_argnames="count")
def beginning(b: Branches, count: int) -> Branches:
    """The first `count` replications."""
    found: Branches = jax.tree.map(lambda leaf: leaf[:count] if leaf.ndim else leaf, b)
    return found


def are_open(b: Any, until_merged: Any) -> Any:
    """Replications in which something can still come, ``[N]``; where only gaps matter, until all branches are one.

    `b` is `Branches`, or what was copied of them to the host.
    """
    return ~b.is_over.all(axis=1) & ((b.leader > 0).any(axis=1) | (until_merged ^ True))


def _step(dynamics: Dynamics, b: Branches, noise: Any, chances: Any, sharing: Sharing) -> Branches:
    reward, state, ends = _outcomes(dynamics, b, noise)
    state = jax.tree.map(partial(_where, b.is_over), b.state, state)
    is_over = b.is_over | ends
    action = dynamics.choose(state, chances, b.leader)
    owner, leader, meetings = _ties(state, action, is_over, b, sharing, dynamics.kinds)
    weight = dynamics.discount ** b.step.astype(jnp.float64)
    more = weight * (reward - reward[:, :1])
    total, lead, size = b.total + weight * reward[:, 0], b.lead + more, b.size + jnp.abs(more)
    return Branches(state, action, is_over, owner, leader, total, lead, size, b.step + 1, b.steps, b.apart, meetings)


def _outcomes(dynamics: Dynamics, b: Branches, noise: Array) -> tuple[Array, States, Array]:
    """Rewards ``[N, m]`` of the next step, and what `Dynamics.step` says of its states."""
    own = noise if b.owner is None else of_branches(noise, b.owner)
    reward, state, ends = dynamics.step(b.state, b.action, own)
    return jnp.where(b.is_over, 0.0, reward.astype(jnp.float64)), state, ends


@jax.jit
def next_rewards(dynamics: Dynamics, b: Branches, noise_key: Array) -> Array:
    """Rewards ``[N, m]`` of the next step."""
    return _outcomes(dynamics, b, _drawn(dynamics, b, noise_key, noise_key, b.step)[0])[0]


def _ties(
    state: States, action: Any, is_over: Array, b: Branches, sharing: Sharing, kinds: Array
) -> tuple[Array | None, Array, Array]:
    """Owners, leaders and meetings of branches that have just moved to `state` and chosen `action`."""
    if sharing == "none":
        leader = _first(_are_one(b.leader[:, :, None] == b.leader[:, None, :], is_over, kinds))
        return leader, leader, b.meetings
    together = _are_equal(state)
    is_one = _are_one(together & _are_equal(action), is_over, kinds)
    meetings = b.meetings + jnp.any(together & ~is_one, axis=(1, 2))
    return None if sharing == "time" else _first(together), _first(is_one), meetings


def _are_one(same: Array, is_over: Array, kinds: Array) -> Array:
    """Which branches are one, ``[N, m, m]``, given those that agree in state and action."""
    one, other = is_over[:, :, None], is_over[:, None, :]
    return jnp.where(one | other, one & other, same) & (kinds[:, None] == kinds[None, :])


def _where(is_over: Array, stays: Array, moves: Array) -> Array:
    """Leaves ``[N, m, …]`` of branches that are over stay as they are."""
    return jnp.where(is_over.reshape(*is_over.shape, *[1] * (moves.ndim - 2)), stays, moves)


def _are_equal(values: Any) -> Array:
    """Which branches of a replication have equal values in all leaves, ``[N, m, m]``; a NaN equals itself."""
    found: Array | None = None
    for leaf in jax.tree.leaves(values):
        numbers = jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
        one, other = numbers[:, :, None], numbers[:, None, :]
        same = one == other
        if jnp.issubdtype(numbers.dtype, jnp.inexact):
            same |= jnp.isnan(one) & jnp.isnan(other)
        same = same.all(axis=tuple(range(3, same.ndim)))
        found = same if found is None else found & same
    assert found is not None, "a state without leaves"
    return found


def _first(same: Array) -> Array:
    """For each branch the first one that it is the same with, ``[N, m]``."""
    # Not argmax: XLA reduces the pair of value and index more slowly than one number.
    m = same.shape[2]
    return jnp.min(jnp.where(same, jnp.arange(m, dtype=jnp.int32), m), axis=2)
