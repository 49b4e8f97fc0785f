"""The compiled engine of joint simulation: replications of m branches, advanced together in blocks.

Branches of one replication start in one state. At every step branches that share their noise (same state, or always
under ``sharing="time"``) see the same draw; each branch draws its next action by itself; branches whose state and
action coincide are one branch from then on (never under ``"none"``, and never for different policies). A branch that
is over pays 0 and stays where it is; all branches of a replication that are over are one.

What is simulated is a `Dynamics`: a table or a JAX environment. Returns are held as that of branch 0 and the *leads* of
the others over it, in float64 whatever the dynamics compute in: a lead is exactly 0 where nothing ever differed.
"""

import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jointmdp.arrays import float64, random_key
from jointmdp.checks import Sharing
from jointmdp.errors import ModelError
from jointmdp.montecarlo.samples import ROUNDING_UNITS, Replications
from jointmdp.progress import Meter

CHUNK = 64  # steps between two looks at whether to go on
BLOCK = 2048  # replications that are simulated together
FIRST = 64  # replications of the first block where replications are long: who asks for a few need not wait for all
KEPT = 4  # blocks remembered: a caller that asks for a few replications at a time asks for the same block again
STEP_LIMIT = 20_000  # an episode longer than this was probably never meant to end, and a block waits for its longest
LONG_WAIT = 20.0  # seconds to come, of which nobody thought who gave a discount close to 1
TAIL_FRACTION = 1e-3  # what is left out of an endless return is at most this fraction of the block's standard error,
LEAST_TAIL = 1e-10  # and never needs to be smaller than this fraction of the largest return
BLIND_TAIL = 1e-6  # the fraction where the largest return is not known

States = Any  # a pytree of arrays whose leaves begin with [N, m]


class Dynamics(Protocol):
    """What a step reads: a pytree, so that new numbers of the same shapes compile nothing."""

    @property
    def discount(self) -> Array:
        """γ, a float64 scalar."""

    @property
    def kinds(self) -> Array:
        """Which policy each of the m branches follows: branches of different kinds are never one."""

    def begin(self, key: Array, count: int) -> tuple[States, Any, Array]:
        """States, first actions and which of them are over, ``[N, m]`` each; those of a replication in one state."""

    def draw(self, key: Array, shape: tuple[int, int], owner: Array | None) -> Any:
        """The noise of a step for ``[N, m]`` branches, each that of its `owner`; None: one draw for all branches."""

    def step(self, state: States, action: Any, noise: Any) -> tuple[Array, States, Array]:
        """Rewards ``[N, m]``, next states, and which of them are over ``[N, m]``."""

    def choose(self, state: States, key: Array, leader: Array) -> Any:
        """The policies' actions ``[N, m]``; a branch that is one with another draws what its `leader` draws."""

    def mistake(self, state: States, action: Any, column: int) -> str:
        """Why a step of one branch did not pay a finite number, in words."""


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
    meetings: Array  # [N] steps after which branches that are not one stood in the same state; 0 under "none"


@partial(jax.jit, static_argnames=("count", "sharing"))
def begin(dynamics: Dynamics, key: Array, count: int, sharing: Sharing) -> Branches:
    """Replications before their first step."""
    state, action, is_over = dynamics.begin(key, count)
    leader = _first(_are_one(_are_equal(action), is_over, dynamics.kinds))
    # In one state at the beginning: under "state" all see the noise of branch 0, under "none" each its own.
    owner = {"time": None, "state": jnp.zeros_like(leader), "none": leader}[sharing]
    none, zero = jnp.zeros(count, dtype=jnp.int32), jnp.zeros(leader.shape)
    return Branches(state, action, is_over, owner, leader, zero[:, 0], zero, zero, jnp.asarray(0), none, none)


@partial(jax.jit, static_argnames=("sharing", "until_merged"))
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
    end = branches.step + count

    def goes_on(b: Branches) -> Array:
        return (b.step < end) & jnp.any(are_open(b, until_merged))

    def step(b: Branches) -> Branches:
        after = _step(dynamics, b, noise_key, policy_key, sharing)
        return after._replace(steps=b.steps + are_open(b, until_merged))

    return jax.lax.while_loop(goes_on, step, branches)


def are_open(b: Branches, until_merged: bool) -> Array:
    """Replications in which something can still come, ``[N]``; where only gaps matter, until all branches are one."""
    found = ~jnp.all(b.is_over, axis=1)
    return found & jnp.any(b.leader > 0, axis=1) if until_merged else found


def _step(dynamics: Dynamics, b: Branches, noise_key: Array, policy_key: Array, sharing: Sharing) -> Branches:
    shape = (b.leader.shape[0], b.leader.shape[1])
    noise = dynamics.draw(jax.random.fold_in(noise_key, b.step), shape, b.owner)
    reward, state, ends = dynamics.step(b.state, b.action, noise)
    reward = jnp.where(b.is_over, 0.0, reward.astype(jnp.float64))
    state = jax.tree.map(partial(_where, b.is_over), b.state, state)
    is_over = b.is_over | ends
    action = dynamics.choose(state, jax.random.fold_in(policy_key, b.step), b.leader)
    owner, leader, meetings = _ties(state, action, is_over, b, sharing, dynamics.kinds)
    weight = dynamics.discount ** b.step.astype(jnp.float64)
    more = weight * (reward - reward[:, :1])
    total, lead, size = b.total + weight * reward[:, 0], b.lead + more, b.size + jnp.abs(more)
    return Branches(state, action, is_over, owner, leader, total, lead, size, b.step + 1, b.steps, meetings)


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


Enough = Callable[[Replications], bool]


@dataclass(frozen=True, eq=False)
class BlockSampler:
    """Replications by number: each depends on the seed and its number alone, not on how many are asked for.

    Blocks have one size, so that a replication is computed by the same program in the same place, to the last bit.
    """

    name: str
    dynamics: Dynamics
    seed: int
    horizon: int | None
    return_bound: float | None
    """Largest absolute return from any state, where it is known and the discount below 1."""
    until_merged: bool = False
    is_enough: Enough | None = None
    """May ask a block to go on although what is left out is small."""
    _kept: dict[tuple[int, int, Sharing], Replications] = field(default_factory=dict, repr=False, init=False)

    portion: ClassVar[int] = BLOCK
    """Replications that are made together; asking for fewer makes the rest as well."""

    def __call__(self, first: int, count: int, sharing: Sharing) -> Replications:
        """Replications `first`, …, ``first + count − 1``."""
        parts = []
        for block, rows in rows_of_blocks(first, count):
            # The first few of long replications are a block of their own, drawn from the same keys.
            cut = FIRST if block == 0 and self._is_long else 0
            if rows.start < cut:
                parts.append(self._block(block, sharing, FIRST).rows(slice(rows.start, min(rows.stop, cut))))
            if rows.stop > cut:
                parts.append(self._block(block, sharing, BLOCK).rows(slice(max(rows.start, cut), rows.stop)))
        return Replications.joined(parts)

    @property
    def _is_long(self) -> bool:
        discount = float(self.dynamics.discount)
        return (self.horizon is not None or discount < 1) and self._last(discount) > STEP_LIMIT

    def _block(self, block: int, sharing: Sharing, size: int) -> Replications:
        found = self._kept.get((block, size, sharing))
        if found is None:
            with float64():
                found = self._simulated(block, sharing, size)
            while len(self._kept) >= KEPT:
                self._kept.pop(next(iter(self._kept)))
            self._kept[block, size, sharing] = found
        return found

    def _simulated(self, block: int, sharing: Sharing, size: int) -> Replications:
        key = jax.random.fold_in(random_key(self.seed), block)
        start_key, noise_key, policy_key = jax.random.split(key, 3)
        first = begin(self.dynamics, start_key, size, sharing)
        move = partial(advance, self.dynamics, sharing=sharing, until_merged=self.until_merged)
        branches, discount, done, started = first, float(self.dynamics.discount), 0, 0.0
        last, is_told = self._last(discount), False
        with Meter(f"simulating {self.name}") as meter:
            while True:
                count = min(CHUNK, last - done)
                branches = move(branches, noise_key, policy_key, count)
                done += count
                is_last = done >= last
                # A horizon leaves nothing out; an endless future that is cut leaves what comes with the next weight.
                weight = 0.0 if self.horizon is not None and is_last else discount**done
                if not _are_finite(branches):
                    raise ModelError(self._blamed(block, first, lambda b: move(b, noise_key, policy_key, 1)))
                found = self._replications(branches, weight)
                if is_last or not found.left_out.any() or self._is_small(found, discount**done):
                    break
                meter.update(done / last, f"step {done:,} of at most {last:,}")
                started = started or time.monotonic()  # after the first steps, which may have been compiled
                spent = time.monotonic() - started
                wait = spent * (last - done) / max(done - CHUNK, 1)
                if discount < 1 and self.horizon is None and spent > LONG_WAIT / 4 and wait > LONG_WAIT and not is_told:
                    is_told = True
                    warnings.warn(
                        f"{size:,} replications of {self.name} take up to {wait:,.0f} more seconds: with a discount of "
                        f"{discount:g} and no horizon they go on for up to {last:,} steps; a horizon, or the "
                        "simulator's reward_bounds, ends them sooner",
                        stacklevel=2,
                    )
        if discount >= 1 and found.left_out.any():
            raise ModelError(
                f"replications of {self.name} have not ended after {STEP_LIMIT:,} steps; give a horizon, or a discount "
                "below 1"
            )
        return found

    def _blamed(self, block: int, branches: Branches, move: Callable[[Branches], Branches]) -> str:
        """Which step of which branch is the first that did not pay a finite number, found by taking all steps again."""
        before = branches
        while _are_finite(branches):
            before, branches = branches, move(branches)
        lead = np.asarray(branches.lead)
        # Where branch 0 is not finite, no lead over it is either.
        row, column = (int(place) for place in np.argwhere(~np.isfinite(lead + np.asarray(branches.total)[:, None]))[0])
        state, action = jax.tree.map(lambda leaf: leaf[row, column], (before.state, before.action))
        return (
            f"a return of {self.name} is not a finite number: in step {int(before.step)} of replication "
            f"{block * BLOCK + row}, alternative {column + 1} of {lead.shape[1]}, "
            f"{self.dynamics.mistake(state, action, column)}"
        )

    def _last(self, discount: float) -> int:
        """Steps after which a block stops at the latest."""
        if self.horizon is not None:
            return self.horizon
        if discount >= 1:
            return STEP_LIMIT
        tail = BLIND_TAIL if self.return_bound is None else LEAST_TAIL
        return max(1, math.ceil(math.log(tail) / math.log(discount))) if discount > 0 else 1

    def _is_small(self, found: Replications, weight: float) -> bool:
        """Whether what is left out is small beside the noise of the block itself."""
        if self.return_bound is None or self.horizon is not None:
            return False
        # What comes after all branches are one comes to all, and leaves nothing out of their gaps.
        are_apart = bool((found.leaders.any(axis=1) & (found.left_out > 0)).any())
        deviations = np.std(found.leads, axis=0) if are_apart else np.empty(0)
        if not self.until_merged:
            deviations = np.append(deviations, np.std(found.returns, axis=0))
        deviations = deviations[deviations > 0]
        error = float(deviations.min()) / math.sqrt(len(found.leads)) if len(deviations) else 0.0
        is_small = weight * self.return_bound <= TAIL_FRACTION * error
        return is_small and (self.is_enough is None or self.is_enough(found))

    def _replications(self, b: Branches, weight: float) -> Replications:
        parts = (b.total, b.lead, b.size, b.steps, b.meetings, b.leader, are_open(b, self.until_merged))
        total, lead, size, steps, meetings, leader, is_open = (np.asarray(part) for part in parts)
        is_numbered = isinstance(b.state, Array) and b.state.ndim == 2 and jnp.issubdtype(b.state.dtype, jnp.integer)
        return Replications(
            returns=total[:, None] + lead,
            leads=lead,
            rounding=(steps[:, None] + ROUNDING_UNITS) * 2.0**-52 * size,
            steps=steps.astype(np.int64),
            meetings=meetings.astype(np.int64),
            leaders=leader.astype(np.int64),
            states=np.asarray(b.state).astype(np.int64) if is_numbered else None,
            left_out=np.where(is_open, weight, 0.0),
        )


def _are_finite(b: Branches) -> bool:
    return bool(np.isfinite(b.total).all() and np.isfinite(b.lead).all())


def rows_of_blocks(first: int, count: int) -> Iterator[tuple[int, slice]]:
    """The blocks that hold replications ``first, …, first + count − 1``, and which of their rows these are."""
    for block in range(first // BLOCK, -(-(first + count) // BLOCK)):
        begin = block * BLOCK
        yield block, slice(max(first - begin, 0), min(first + count - begin, BLOCK))
