"""The engine of joint simulation: N samples of m branches, advanced together in one compiled loop.

What is simulated is a *world*: `TableWorld` for a model in tables, `simulators.batches` for environments with explicit
keys. The engine holds what is common to all: who shares the luck, who has become one with whom, what is over, and the
returns. Returns are kept as that of branch 0 and the *leads* of the others over it, in float64 whatever the world
computes in: a lead is exactly 0 where nothing ever differed.

A branch that is over pays 0 and stays where it is; all branches of a sample that are over are one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jointmdp.arrays import Bools, Floats, Ints, on_device
from jointmdp.checks import Sharing
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.query_samples import cumulative, invert

CHUNK = 64  # steps between two looks at the tail
TAIL_FRACTION = 0.01  # the tail left out is at most this fraction of the smallest standard error
LEAST_TAIL = 1e-10  # and never needs to be smaller than this fraction of the largest return
BLOCK = 1024  # replications that are simulated together where each must depend on the seed and its number alone

States = Any  # a pytree of arrays whose leaves begin with [N, m]


class World(Protocol):
    """What a step reads: a pytree, so that new numbers of the same shapes compile nothing."""

    @property
    def discount(self) -> Array:
        """γ, a float64 scalar."""

    @property
    def kinds(self) -> tuple[int, ...] | None:
        """Which policy each branch follows, where there are several: branches of different kinds are never one."""

    def draw(self, key: Array, shape: tuple[int, int], owner: Array | None) -> Any:
        """The noise of a step for ``[N, m]`` branches, each that of its `owner`; None: one draw for all branches."""

    def step(self, state: States, action: Any, noise: Any) -> tuple[Array, States, Array | None]:
        """Rewards ``[N, m]``, next states, and which of them are over ``[N, m]`` (None in worlds without an end)."""

    def choose(self, state: States, key: Array, leader: Array) -> Any:
        """The policy's actions ``[N, m]``; a branch that is one with another draws what its `leader` draws."""


class TableWorld(NamedTuple):
    """A joint MDP and a policy, ready for inversion."""

    scenario_ends: Array  # [S, W]
    action_ends: Array  # [S, A]
    rewards: Array  # [S, W, A]
    successors: Array  # [S, W, A]
    discount: Array
    is_terminal: Array | None = None  # [S] where nothing more is paid; None: not asked

    @property
    def kinds(self) -> None:
        """One policy for all."""
        return None

    def draw(self, key: Array, shape: tuple[int, int], owner: Array | None) -> Array:
        """One uniform for each branch."""
        uniform = jax.random.uniform(key, shape, dtype=jnp.float64)
        if owner is None:
            return jnp.broadcast_to(uniform[:, :1], shape)
        return jnp.take_along_axis(uniform, owner, axis=1)

    def step(self, state: Array, action: Array, noise: Array) -> tuple[Array, Array, Array | None]:
        """The scenario by inversion, and what it brings."""
        scenario = invert(self.scenario_ends, state, noise)
        reward, successor = self.rewards[state, scenario, action], self.successors[state, scenario, action]
        return reward, successor, None if self.is_terminal is None else self.is_terminal[successor]

    def choose(self, state: Array, key: Array, leader: Array) -> Array:
        """Actions by inversion."""
        uniform = jax.random.uniform(key, state.shape, dtype=jnp.float64)
        return invert(self.action_ends, state, jnp.take_along_axis(uniform, leader, axis=1))


def table_world(model: JointMDP, policy: Floats, is_terminal: Bools | None = None) -> TableWorld:
    """A model and an ``[S, A]`` policy as a world; to be called, like all that follows, in `kernels.float64`."""
    return TableWorld(
        on_device(cumulative(model.probabilities)),
        on_device(cumulative(policy)),
        on_device(model.rewards),
        on_device(model.successors.astype(np.int32)),
        on_device(model.discount),
        None if is_terminal is None else on_device(is_terminal),
    )


class Branches(NamedTuple):
    """Where N simulations of m branches stand."""

    state: States  # [N, m, …]
    action: Any  # [N, m, …]
    is_over: Array | None  # [N, m]; None in worlds without an end
    owner: Array | None  # [N, m] the first branch that sees the same noise; None where all do
    leader: Array  # [N, m] the first branch that this one is one with
    total: Array  # [N] return of branch 0
    lead: Array  # [N, m] return minus that of branch 0: exactly 0 where nothing ever differed
    step: Array  # []
    steps: Array  # [N] steps until nothing more could come
    meetings: Array  # [N] steps after which branches that are not one stood in the same state; 0 under "none"


def start(
    state: int, actions: Sequence[int], num_samples: int, sharing: Sharing, is_over: bool | None = None
) -> Branches:
    """All branches of all samples of a table in one state, the i-th about to take the i-th of `actions`."""
    shape = (num_samples, len(actions))
    return begin(
        jnp.full(shape, state, dtype=jnp.int32),
        jnp.broadcast_to(jnp.asarray(actions, dtype=jnp.int32), shape),
        None if is_over is None else jnp.full(shape, is_over),
        sharing,
    )


def begin(
    state: States, action: Any, is_over: Array | None, sharing: Sharing, kinds: tuple[int, ...] | None = None
) -> Branches:
    """Branches ``[N, m]``, those of each sample in one state, about to take their first actions."""
    same = _are_equal(action)
    shape = same.shape[:2]
    leader = _first(_are_one(same, is_over, kinds))
    # In one state at the beginning: under "state" all see the noise of branch 0, under "none" each its own.
    owner = {"time": None, "state": jnp.zeros_like(leader), "none": leader}[sharing]
    none = jnp.zeros(shape[0], dtype=jnp.int32)
    returns = (jnp.zeros(shape[0]), jnp.zeros(shape))
    return Branches(state, action, is_over, owner, leader, *returns, jnp.asarray(0), none, none)


@partial(jax.jit, static_argnames=("sharing", "until_merged"))
def advance(
    world: World,
    branches: Branches,
    noise_key: Array,
    policy_key: Array,
    count: int,
    sharing: Sharing,
    until_merged: bool,
) -> tuple[Branches, Array]:
    """Up to `count` more steps, and whether nothing more can come.

    That is so when all branches are over or, where only gaps matter (`until_merged`), when those of each sample are
    one.
    """
    end = branches.step + count

    def goes_on(b: Branches) -> Array:
        return (b.step < end) & jnp.any(_are_open(b, until_merged))

    def step(b: Branches) -> Branches:
        after = _step(world, b, noise_key, policy_key, sharing)
        return after._replace(steps=b.steps + _are_open(b, until_merged))

    after = jax.lax.while_loop(goes_on, step, branches)
    return after, ~jnp.any(_are_open(after, until_merged))


def _are_open(b: Branches, until_merged: bool) -> Array:
    """Samples in which something can still come, ``[N]``."""
    found = jnp.ones(b.total.shape, dtype=bool) if b.is_over is None else ~jnp.all(b.is_over, axis=1)
    return found & jnp.any(b.leader > 0, axis=1) if until_merged else found


def _step(world: World, b: Branches, noise_key: Array, policy_key: Array, sharing: Sharing) -> Branches:
    shape = (b.leader.shape[0], b.leader.shape[1])
    noise = world.draw(jax.random.fold_in(noise_key, b.step), shape, b.owner)
    reward, state, ends = world.step(b.state, b.action, noise)
    reward, is_over = reward.astype(jnp.float64), ends
    if b.is_over is not None:
        assert ends is not None
        reward = jnp.where(b.is_over, 0.0, reward)
        state = jax.tree.map(partial(_where, b.is_over), b.state, state)
        is_over = b.is_over | ends
    action = world.choose(state, jax.random.fold_in(policy_key, b.step), b.leader)
    owner, leader, meetings = _ties(state, action, is_over, b, sharing, world.kinds)
    weight = world.discount ** b.step.astype(jnp.float64)
    total, lead = b.total + weight * reward[:, 0], b.lead + weight * (reward - reward[:, :1])
    return Branches(state, action, is_over, owner, leader, total, lead, b.step + 1, b.steps, meetings)


def _ties(
    state: States, action: Any, is_over: Array | None, b: Branches, sharing: Sharing, kinds: tuple[int, ...] | None
) -> tuple[Array | None, Array, Array]:
    """Owners, leaders and meetings of branches that have just moved to `state` and chosen `action`."""
    if sharing == "none":
        if is_over is None:
            return b.owner, b.leader, b.meetings
        leader = _first(_are_one(b.leader[:, :, None] == b.leader[:, None, :], is_over, kinds))
        return leader, leader, b.meetings
    together = _are_equal(state)
    is_one = _are_one(together & _are_equal(action), is_over, kinds)
    meetings = b.meetings + jnp.any(together & ~is_one, axis=(1, 2))
    return None if sharing == "time" else _first(together), _first(is_one), meetings


def _are_one(same: Array, is_over: Array | None, kinds: tuple[int, ...] | None) -> Array:
    """Which branches are one, ``[N, m, m]``, given those that agree in all else."""
    if kinds is not None:
        same &= np.equal.outer(kinds, kinds)
    if is_over is None:
        return same
    one, other = is_over[:, :, None], is_over[:, None, :]
    return jnp.where(one | other, one & other, same)


def _where(is_over: Array, stays: Array, moves: Array) -> Array:
    """Leaves ``[N, m, …]`` of branches that are over stay as they are."""
    return jnp.where(is_over.reshape(*is_over.shape, *[1] * (moves.ndim - 2)), stays, moves)


def _are_equal(values: Any) -> Array:
    """Which branches of a sample have equal values in all leaves, ``[N, m, m]``; a NaN equals itself."""
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


# -- how long ----------------------------------------------------------------------------------------------------


def tail(discount: float, reward_bound: float, step: int) -> float:
    """The largest return that can still come after `step` steps."""
    if discount >= 1:
        return math.inf if reward_bound > 0 else 0.0
    return discount**step * reward_bound / (1 - discount)


def least_error(branches: Branches, only_gaps: bool) -> float:
    """The smallest standard error among the quantities of interest that vary at all."""
    deviations = np.std(np.asarray(branches.lead), axis=0)
    if not only_gaps:
        deviations = np.append(deviations, np.std(np.asarray(branches.total)))
    deviations = deviations[deviations > 0]
    return float(deviations.min()) / math.sqrt(len(branches.total)) if len(deviations) else 0.0


# -- replications by number --------------------------------------------------------------------------------------


class Block(NamedTuple):
    """What replications of one block, or of several, brought."""

    total: Floats  # [N] return of branch 0
    lead: Floats  # [N, m]
    steps: Ints  # [N]
    meetings: Ints  # [N]
    is_closed: bool  # whether nothing more could come

    def rows(self, rows: slice) -> tuple[Floats, Floats, Ints, Ints]:
        """Returns, leads, steps and meetings of some of the replications."""
        lead = self.lead[rows]
        return self.total[rows, None] + lead, lead, self.steps[rows], self.meetings[rows]


def simulate_block(
    world: World,
    begin: Callable[[Array, int], Branches],
    block: int,
    *,
    seed: int,
    sharing: Sharing,
    horizon: int | None,
    until_merged: bool,
    step_limit: int,
) -> Block:
    """Replications ``BLOCK·block, …, BLOCK·(block + 1) − 1``; they depend on the seed and their numbers alone.

    Blocks have one size, so that a replication is computed by the same program in the same place whoever asks for it,
    to the last bit. Without a horizon the block goes on until all is over, `step_limit` at most.
    """
    key = jax.random.fold_in(jax.random.key(seed), block)
    start_key, noise_key, policy_key = jax.random.split(key, 3)
    branches, done = begin(start_key, BLOCK), 0
    last, is_closed = step_limit if horizon is None else horizon, False
    while done < last and not is_closed:
        count = min(CHUNK, last - done)
        branches, closed = advance(world, branches, noise_key, policy_key, count, sharing, until_merged)
        done, is_closed = done + count, bool(closed)
    parts = (branches.total, branches.lead, branches.steps, branches.meetings)
    total, lead, steps, meetings = (np.asarray(part) for part in parts)
    return Block(total, lead, steps.astype(np.int64), meetings.astype(np.int64), is_closed)


def rows_of_blocks(first: int, count: int) -> Iterator[tuple[int, slice]]:
    """The blocks that hold replications ``first, …, first + count − 1``, and which of their rows these are."""
    for block in range(first // BLOCK, -(-(first + count) // BLOCK)):
        begin = block * BLOCK
        yield block, slice(max(first - begin, 0), min(first + count - begin, BLOCK))
