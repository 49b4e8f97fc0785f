"""The compiled engine of joint simulation: replications of m branches, advanced together step by step.

Branches of one replication start in one state. At every step branches that share their noise (same state, or always
under ``sharing="time"``) see the same draw; each branch draws its next action by itself; branches whose state and
action coincide are one branch from then on (never under ``"none"``, and never for different policies). A branch that
is over pays 0 and stays where it is; all branches of a replication that are over are one.

What is simulated is a `Dynamics`: a table or a JAX environment. Returns are held as that of branch 0 and the *leads* of
the others over it, in float64 whatever the dynamics compute in: a lead is exactly 0 where nothing ever differed.

Replications have numbers and are simulated in blocks until nothing more can come, or too little. One block after
another is right on a CPU, but leaves a GPU almost idle. There several go on together, and each ends by a look at its
own numbers, which do not depend on those of the others.

Gaps are known where all branches of a replication have become one, returns only at their end, which takes a hundred
times as long in an endless task. Where gaps are what matters most, a few replications go on to their end all the same:
one branch for all, since they are one.
"""

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jointmdp.ground.arrays import float64, random_key
from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import ModelError
from jointmdp.ground.progress import Meter
from jointmdp.simulation.montecarlo.samples import BranchPath, Replications, last_step

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

    @property
    def first(self) -> Array | None:
        """First actions ``[m, …]``; None: the policies choose them too."""

    def start(self, key: Array, shape: tuple[int, int]) -> tuple[States, Array]:
        """States ``[N, m, …]``, those of a replication the same, and which of them are over ``[N, m]``."""

    def draw(self, key: Array, shape: tuple[int, ...]) -> Array:
        """The noise of a step for ``[N, m]`` branches, or for ``[N]`` replications whose branches share it.

        As in `chances`, more branches change nothing for the first ones: see `columns_of`.
        """

    def step(self, state: States, action: Any, noise: Any) -> tuple[Array, States, Array]:
        """Rewards ``[N, m]``, next states, and which of them are over ``[N, m]``."""

    def chances(self, key: Array, shape: tuple[int, int]) -> Any:
        """What the policies of ``[N, m]`` branches draw from."""

    def choose(self, state: States, chances: Any, leader: Array, time: Array) -> Any:
        """The policies' actions ``[N, m]`` at this step; branches that are one draw what their `leader` draws."""

    def mistake(self, state: States, action: Any, column: int) -> str:
        """Why a step of one branch did not pay a finite number, in words."""

    def only(self, places: tuple[int, ...]) -> "Dynamics":
        """Those of some branches."""

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


@partial(jax.jit, static_argnames=("count", "sharing"))
def begin(dynamics: Dynamics, key: Array, count: int, sharing: Sharing) -> Branches:
    """Replications before their first step."""
    shape = (count, dynamics.kinds.shape[0])
    start_key, policy_key = jax.random.split(key)
    state, is_over = dynamics.start(start_key, shape)
    if dynamics.first is None:
        everyone = jnp.broadcast_to(jnp.arange(shape[1]), shape)
        action = dynamics.choose(state, dynamics.chances(policy_key, shape), everyone, jnp.asarray(0))
    else:
        action = jnp.broadcast_to(dynamics.first, (count, *dynamics.first.shape))
    leader = _first(_are_one(_are_equal(action), is_over, dynamics.kinds))
    # In one state at the beginning: under "state" all see the noise of branch 0, under "none" each its own.
    owner = {"time": None, "state": jnp.zeros_like(leader), "none": leader}[sharing]
    none, zero, zeros = jnp.zeros(count, dtype=jnp.int32), jnp.zeros(count), jnp.zeros(leader.shape)
    return Branches(state, action, is_over, owner, leader, zero, zeros, zeros, jnp.asarray(0), none, zero)


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
def alone(b: Branches, count: int) -> Branches:
    """Branch 0 of the first `count` replications, whose branches are one or over: it goes on for all of them.

    Leads stay as they are, ``[N, m]``: from here on everything comes to all branches alike.
    """
    b = jax.tree.map(lambda leaf: leaf[:count] if leaf.ndim else leaf, b)
    state, action, is_over = jax.tree.map(lambda leaf: leaf[:, :1], (b.state, b.action, b.is_over))
    return b._replace(state=state, action=action, is_over=is_over, owner=None, leader=jnp.zeros_like(b.leader[:, :1]))


def are_open(b: Branches, until_merged: Any) -> Any:
    """Replications in which something can still come, ``[N]``; where only gaps matter, until all branches are one."""
    return ~b.is_over.all(axis=1) & ((b.leader > 0).any(axis=1) | (until_merged ^ True))


def _step(dynamics: Dynamics, b: Branches, noise: Any, chances: Any, sharing: Sharing) -> Branches:
    reward, state, ends = _outcomes(dynamics, b, noise)
    state = jax.tree.map(partial(_where, b.is_over), b.state, state)
    is_over = b.is_over | ends
    action = dynamics.choose(state, chances, b.leader, b.step + 1)
    # Owners and leaders of branches that have just moved and chosen.
    together = b.leader[:, :, None] == b.leader[:, None, :] if sharing == "none" else _are_equal(state)
    one = together if sharing == "none" else together & _are_equal(action)
    leader = _first(_are_one(one, is_over, dynamics.kinds))
    owner = _first(together) if sharing == "state" else leader if sharing == "none" else None
    weight = dynamics.discount ** b.step.astype(jnp.float64)
    more = weight * (reward - reward[:, :1])
    total, lead, size = b.total + weight * reward[:, 0], b.lead + more, b.size + jnp.abs(more)
    return Branches(state, action, is_over, owner, leader, total, lead, size, b.step + 1, b.steps, b.apart)


def _outcomes(dynamics: Dynamics, b: Branches, noise: Array) -> tuple[Array, States, Array]:
    """Rewards ``[N, m]`` of the next step, and what `Dynamics.step` says of its states."""
    own = noise if b.owner is None else of_branches(noise, b.owner)
    reward, state, ends = dynamics.step(b.state, b.action, own)
    return jnp.where(b.is_over, 0.0, reward.astype(jnp.float64)), state, ends


@jax.jit
def next_rewards(dynamics: Dynamics, b: Branches, noise_key: Array) -> Array:
    """Rewards ``[N, m]`` of the next step."""
    return _outcomes(dynamics, b, _drawn(dynamics, b, noise_key, noise_key, b.step)[0])[0]


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


AT_ONCE = 32  # blocks: together they keep a GPU busy


@dataclass
class Block:
    """Some replications by number under way: on the device, and what is looked at of them on the host."""

    number: int
    branches: Branches
    noise_key: Array
    policy_key: Array
    done: int = 0
    """Steps."""
    host: Any = None
    """`Branches` of NumPy arrays after the last steps."""

    @property
    def given(self) -> tuple[Branches, Array, Array]:
        """What steps are computed from."""
        return self.branches, self.noise_key, self.policy_key


def take_steps(dynamics: Dynamics, sharing: Sharing, blocks: Sequence[Block], number: int, until_merged: bool) -> None:
    """So many more steps of blocks of one size."""
    if len(blocks) == 1:
        after = [advance(dynamics, *blocks[0].given, number, sharing, until_merged)]
        hosts = [_on_host(after[0])]
    else:
        filled = [*blocks, *[blocks[-1]] * (AT_ONCE - len(blocks))]  # always as many: another number, another program
        whole = _advanced(dynamics, _stacked([block.given for block in filled]), number, sharing, until_merged)
        host, after = _on_host(whole), _parts(whole, AT_ONCE)
        hosts = [jax.tree.map(lambda leaf, i=i: leaf[i], host) for i in range(len(blocks))]
    for block, branches, host in zip(blocks, after, hosts, strict=False):
        block.branches, block.host, block.done = branches, host, block.done + number


def _on_host(b: Branches) -> Any:
    """One block, or several, as NumPy arrays: without actions, owners, and states that are not numbers."""
    state = b.state
    is_numbered = isinstance(state, Array) and state.ndim == b.leader.ndim and jnp.issubdtype(state.dtype, jnp.integer)
    return jax.device_get(b._replace(state=state if is_numbered else None, action=None, owner=None))


@jax.jit
def _stacked(parts: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)


@partial(jax.jit, static_argnames="count")
def _parts(whole: Any, count: int) -> list[Any]:
    return [jax.tree.map(lambda leaf, i=i: leaf[i], whole) for i in range(count)]


@partial(jax.jit, static_argnames="sharing")
def _advanced(dynamics: Dynamics, blocks: Any, count: int, sharing: Sharing, until_merged: bool) -> Branches:
    """`advance` of several blocks: their branches, and the keys of their noise and policies."""
    return jax.vmap(lambda b, noise, policy: advance(dynamics, b, noise, policy, count, sharing, until_merged))(*blocks)


CHUNK = 64  # steps between two looks at whether to go on
ALONE = 128  # the same where one branch goes on for all: a look costs as much as dozens of such steps
BLOCK = 2048  # replications that are simulated together
FIRST = 64  # replications of the first block where replications are long: who asks for a few need not wait for all
WHOLE = 128  # replications of a block that go on to their end where gaps matter most, and
EVERY = 8  # blocks, of one of which they are
MOST_BYTES = 2**30  # of the blocks that are simulated at once; a step takes several times as much
KEPT = 4  # blocks remembered: a caller that asks for a few replications at a time asks for the same block again
STEP_LIMIT = 20_000  # an episode longer than this was probably never meant to end, and a block waits for its longest
LONG_WAIT = 20.0  # seconds to come, of which nobody thought who gave a discount close to 1
TAIL_FRACTION = 1e-3  # what is left out of an endless return is at most this fraction of the block's standard error, or
FEW_TAIL = 1e-2  # where few returns of many replications are whole; their intervals allow for it,
LEAST_TAIL = 1e-10  # and never needs to be smaller than this fraction of the largest return
BLIND_TAIL = 1e-6  # the fraction where the largest return is not known


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
    some_whole: bool = False
    """Whether some replications, the first of every eighth block, go on to their end although others do not."""
    is_enough: Enough | None = None
    """May ask a block to go on although what is left out is small."""
    _kept: dict[tuple[int, int, Sharing], Replications] = field(default_factory=dict, repr=False, init=False)

    portion: ClassVar[int] = BLOCK
    """Replications that are made together; asking for fewer makes the rest as well."""

    def __call__(self, first: int, count: int, sharing: Sharing) -> Replications:
        """Replications `first`, …, ``first + count − 1``."""
        parts, found = list[tuple[int, int, slice]](), list[Replications]()
        for block, rows in rows_of_blocks(first, count):
            # The first few of long replications are a block of their own, drawn from the same keys.
            cut = FIRST if block == 0 and self._is_long else 0
            if rows.start < cut:
                parts.append((block, FIRST, slice(rows.start, min(rows.stop, cut))))
            if rows.stop > cut:
                parts.append((block, BLOCK, slice(max(rows.start, cut), rows.stop)))
        for begun in range(0, len(parts), self.together):
            some = parts[begun : begun + self.together]
            made = self._blocks([(block, size) for block, size, _ in some], sharing)
            found.extend(each.rows(rows) for each, (_, _, rows) in zip(made, some, strict=True))
        return Replications.joined(found)

    @property
    def _is_long(self) -> bool:
        discount = float(self.dynamics.discount)
        return (self.horizon is not None or discount < 1) and self._last(discount) > STEP_LIMIT

    def only(self, places: tuple[int, ...]) -> "BlockSampler":
        """The same replications of some of the branches; policies that draw may draw other numbers."""
        with float64():
            return replace(self, dynamics=self.dynamics.only(places))

    @cached_property
    def together(self) -> int:
        """Blocks that are simulated at once: one by itself leaves a GPU almost idle, unless its states are large."""
        if jax.default_backend() == "cpu":
            return 1
        with float64():
            block = jax.eval_shape(partial(begin, count=BLOCK, sharing="time"), self.dynamics, random_key(0))
        size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(block))
        return AT_ONCE if AT_ONCE * size <= MOST_BYTES else 1

    def traced(self, index: int, sharing: Sharing, branch: int, total: float) -> BranchPath:
        """What one branch of a replication did, whose return is `total`: its block once more, step by step."""
        (block, rows), steps = next(rows_of_blocks(index, 1)), int(self(index, 1, sharing).steps[0])
        place, dynamics = (rows.start, branch), self.dynamics
        size = FIRST if block == 0 and self._is_long and rows.start < FIRST else BLOCK
        states, actions, rewards, is_over = list[Any](), list[Any](), list[float](), list[bool]()
        with float64():
            start_key, *keys = _three_keys(random_key(self.seed), block)
            b = begin(dynamics, start_key, size, sharing)
            for t in range(steps + 1):
                if t > 0:
                    b = advance(dynamics, b, *keys, 1, sharing, self.until_merged)
                state, action, over = jax.tree.map(lambda leaf: leaf[place], (b.state, b.action, b.is_over))
                states.append(dynamics.snapshot(state, over))
                is_over.append(bool(over))
                if t < steps:
                    actions.append(action.item() if np.ndim(action) == 0 else np.asarray(action))
                    rewards.append(float(next_rewards(dynamics, b, keys[0])[place]))
        return BranchPath.of(states, actions, rewards, is_over, total)

    def _blocks(self, asked: list[tuple[int, int]], sharing: Sharing) -> list[Replications]:
        """Blocks by number and size, those that are not remembered simulated together."""
        found = {each: kept for each in asked if (kept := self._kept.get((*each, sharing))) is not None}
        missing = [each for each in asked if each not in found]
        if missing:
            with float64():
                made = dict(zip(missing, self._simulated(missing, sharing), strict=True))
            found |= made
            self._kept.update({(*each, sharing): replications for each, replications in made.items()})
        while len(self._kept) > KEPT:
            self._kept.pop(next(iter(self._kept)))
        return [found[each] for each in asked]

    def _simulated(self, asked: Sequence[tuple[int, int]], sharing: Sharing) -> list[Replications]:
        """Blocks, together."""
        blocks, end = list[Block](), math.inf if self.horizon is None else self.horizon
        for number, size in asked:
            start_key, *keys = _three_keys(random_key(self.seed), number)
            blocks.append(Block(number, begin(self.dynamics, start_key, size, sharing), *keys))
        found = self._gone_on(self.dynamics, sharing, blocks, self.until_merged, CHUNK)
        if not self.until_merged:
            return found
        hosts = [block.host for block in blocks]
        for block in blocks:
            block.done = int(block.host.step)
        wholes = [(np.arange(size) < WHOLE) & self.some_whole & (number % EVERY == 0) for number, size in asked]
        # Branches that are apart are so until hardly anything is left of their returns, too.
        apart = [i for i, is_whole in enumerate(wholes) if is_whole.any() and found[i].left_out[is_whole].any()]
        rest = self._gone_on(self.dynamics, sharing, [blocks[i] for i in apart], False, CHUNK) if apart else []
        found = [rest[apart.index(i)] if i in apart else run for i, run in enumerate(found)]
        for i, (block, is_whole) in enumerate(zip(blocks, wholes, strict=True)):
            if is_whole.any() and i not in apart:  # few replications: one after another
                block.branches = alone(block.branches, min(len(is_whole), WHOLE))
                (one,) = self._gone_on(self.dynamics.only((0,)), "time", [block], False, ALONE)
                found[i].returns[is_whole], found[i].left_out[is_whole] = one.returns, one.left_out
            # What follows branches that are still apart is left out.
            host = hosts[i]
            is_done = host.is_over.all(axis=1) | host.leader.any(axis=1) | (int(host.step) >= end)
            followed = (host.total != host.apart) | ~is_done
            more = {"apart": host.apart[:, None] + found[i].leads, "followed": followed}
            found[i] = found[i]._replace(is_whole=is_whole, **more)
        return found

    def _gone_on(
        self, dynamics: Dynamics, sharing: Sharing, blocks: Sequence[Block], until_merged: bool, chunk: int
    ) -> list[Replications]:
        """What blocks give that go on until nothing more can come, or too little."""
        discount, started, found = float(self.dynamics.discount), 0.0, dict[int, Replications]()
        last, begun, is_told = self._last(discount), [block.done for block in blocks], False
        first = [block.branches for block in blocks]
        going = list(enumerate(blocks))
        with Meter(f"simulating {self.name}") as meter:
            while going:
                kinds = [(min(chunk, last - block.done), len(block.branches.total)) for _, block in going]
                for kind in dict.fromkeys(kinds):
                    alike = [block for (_, block), own in zip(going, kinds, strict=True) if own == kind]
                    take_steps(dynamics, sharing, alike, kind[0], until_merged)
                for i, block in going:
                    done, host = block.done, block.host
                    is_last = done >= last
                    # A horizon leaves nothing out; an endless future that is cut leaves what has the next weight.
                    weight = 0.0 if self.horizon is not None and is_last else discount**done
                    if not _are_finite(host):
                        block.branches = first[i]
                        raise ModelError(self._blamed(dynamics, sharing, block, until_merged))
                    steps, leaders = host.steps.astype(np.int64), host.leader.astype(np.int64)
                    left_out = np.where(are_open(host, until_merged), weight, 0.0)
                    states = None if host.state is None else host.state.astype(np.int64)
                    run = Replications.of_sums(
                        host.total, host.lead, host.size, steps, leaders, left_out, states=states
                    )
                    if is_last or not run.left_out.any() or self._is_small(run, discount**done, until_merged):
                        found[i] = run
                going = [(i, block) for i, block in going if i not in found]
                if not going:
                    break
                i, block = going[0]
                meter.update(block.done / last, f"step {block.done:,} of at most {last:,}")
                started = started or time.monotonic()  # after the first steps, which may have been compiled
                spent = time.monotonic() - started
                wait = spent * (last - block.done) / max(block.done - begun[i] - chunk, 1)
                if discount < 1 and self.horizon is None and spent > LONG_WAIT / 4 and wait > LONG_WAIT and not is_told:
                    is_told = True
                    warnings.warn(
                        f"{len(block.host.total):,} replications of {self.name} take up to {wait:,.0f} more seconds: "
                        f"with a discount of {discount:g} and no horizon they go on for up to {last:,} steps; a "
                        "horizon, or the simulator's reward_bounds, ends them sooner",
                        stacklevel=2,
                    )
        if discount >= 1 and any(run.left_out.any() for run in found.values()):
            raise ModelError(
                f"replications of {self.name} have not ended after {STEP_LIMIT:,} steps; give a horizon, or a discount "
                "below 1"
            )
        return [found[i] for i in range(len(blocks))]

    def _blamed(self, dynamics: Dynamics, sharing: Sharing, block: Block, until_merged: bool) -> str:
        """Which step of which branch is the first that did not pay a finite number, found by taking all steps again."""
        before = block.branches
        take_steps(dynamics, sharing, [block], 1, until_merged)
        while _are_finite(block.host):
            before = block.branches
            take_steps(dynamics, sharing, [block], 1, until_merged)
        # Where branch 0 is not finite, no lead over it is either.
        host = block.host
        row, column = (int(place) for place in np.argwhere(~np.isfinite(host.lead + host.total[:, None]))[0])
        state, action = jax.tree.map(lambda leaf: leaf[row, column], (before.state, before.action))
        return (
            f"a return of {self.name} is not a finite number: in step {int(before.step)} of replication "
            f"{block.number * BLOCK + row}, alternative {column + 1} of {host.lead.shape[1]}, "
            f"{self.dynamics.mistake(state, action, column)}"
        )

    def _last(self, discount: float) -> int:
        """Steps after which a block stops at the latest."""
        found = last_step(self.horizon, discount, BLIND_TAIL if self.return_bound is None else LEAST_TAIL)
        return STEP_LIMIT if found is None else found

    def _is_small(self, found: Replications, weight: float, until_merged: bool) -> bool:
        """Whether what is left out is small beside the noise of the block itself."""
        if self.return_bound is None or self.horizon is not None:
            return False
        # What comes after all branches are one comes to all, and leaves nothing out of their gaps.
        are_apart = bool((found.leaders.any(axis=1) & (found.left_out > 0)).any())
        deviations = np.std(found.leads, axis=0) if are_apart else np.empty(0)
        if not until_merged:
            deviations = np.append(deviations, np.std(found.returns, axis=0))
        deviations = deviations[deviations > 0]
        error = float(deviations.min()) / math.sqrt(len(found.leads)) if len(deviations) else 0.0
        fraction = FEW_TAIL if self.some_whole and not until_merged else TAIL_FRACTION
        is_small = weight * self.return_bound <= fraction * error
        return is_small and (self.is_enough is None or self.is_enough(found))


@jax.jit
def _three_keys(key: Array, block: int) -> tuple[Array, Array, Array]:
    """Of the starts, the noise and the policies of a block."""
    first, second, third = jax.random.split(jax.random.fold_in(key, block), 3)
    return first, second, third


def _are_finite(b: Any) -> bool:
    return bool(np.isfinite(b.total).all() and np.isfinite(b.lead).all())


def rows_of_blocks(first: int, count: int) -> Iterator[tuple[int, slice]]:
    """The blocks that hold replications ``first, …, first + count − 1``, and which of their rows these are."""
    for block in range(first // BLOCK, -(-(first + count) // BLOCK)):
        begin = block * BLOCK
        yield block, slice(max(first - begin, 0), min(first + count - begin, BLOCK))
