"""Replications of the compiled engine by number, simulated in blocks until nothing more can come, or too little.

Gaps are known where all branches of a replication have become one, returns only at their end, which takes a hundred
times as long in an endless task. Where gaps are what matters most, a few replications go on to their end all the same:
one branch for all, since they are one.
"""

import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from operator import itemgetter
from typing import Any, ClassVar

import jax
import numpy as np
from jax import Array

from jointmdp.arrays import float64, random_key
from jointmdp.checks import Sharing
from jointmdp.errors import ModelError
from jointmdp.montecarlo.blocks_together import AT_ONCE, AskedSteps, Asking, HostBranches, Standing, together
from jointmdp.montecarlo.branch_paths import BranchSteps
from jointmdp.montecarlo.samples import ROUNDING_UNITS, Replications
from jointmdp.montecarlo.table_and_jax_branches import (
    Branches,
    Dynamics,
    are_open,
    begin,
    beginning,
    next_rewards,
)
from jointmdp.progress import Meter

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
Move = Callable[[Branches, int], AskedSteps]


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
        parts: list[tuple[int, int, slice]] = []
        for block, rows in rows_of_blocks(first, count):
            # The first few of long replications are a block of their own, drawn from the same keys.
            cut = FIRST if block == 0 and self._is_long else 0
            if rows.start < cut:
                parts.append((block, FIRST, slice(rows.start, min(rows.stop, cut))))
            if rows.stop > cut:
                parts.append((block, BLOCK, slice(max(rows.start, cut), rows.stop)))
        found: list[Replications] = []
        for begun in range(0, len(parts), self.together):
            some = parts[begun : begun + self.together]
            blocks = self._blocks([(block, size) for block, size, _ in some], sharing)
            found.extend(each.rows(rows) for each, (_, _, rows) in zip(blocks, some, strict=True))
        return Replications.joined(found)

    @cached_property
    def together(self) -> int:
        """Blocks that are simulated at once: one by itself leaves a GPU almost idle, unless its states are large."""
        if jax.default_backend() == "cpu":
            return 1
        with float64():
            block = jax.eval_shape(partial(begin, count=BLOCK, sharing="time"), self.dynamics, random_key(0))
        size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(block))
        return AT_ONCE if AT_ONCE * size <= MOST_BYTES else 1

    def traced(self, index: int, sharing: Sharing) -> BranchSteps:
        """What the branches of one replication did: its block once more, step by step."""
        (block, rows), steps = next(rows_of_blocks(index, 1)), int(self(index, 1, sharing).steps[0])
        row, dynamics = rows.start, self.dynamics
        size = FIRST if block == 0 and self._is_long and row < FIRST else BLOCK
        states, actions, rewards, is_over = [], [], [], []
        with float64():
            start_key, noise_key, policy_key = self._keys(block)
            b = begin(dynamics, start_key, size, sharing)
            for t in range(steps + 1):
                if t > 0:
                    b = AskedSteps(b, noise_key, policy_key, 1, self.until_merged).taken(dynamics, sharing)
                state, action, over = jax.tree.map(lambda leaf: leaf[row], (b.state, b.action, b.is_over))
                branches = range(len(over))
                states.append([dynamics.snapshot(jax.tree.map(itemgetter(j), state), over[j]) for j in branches])
                is_over.append(np.asarray(over))
                if t < steps:
                    actions.append([_plain(np.asarray(action)[j]) for j in branches])
                    rewards.append(np.asarray(next_rewards(dynamics, b, noise_key)[row]))
        return BranchSteps(states, actions, np.array(rewards).reshape(steps, -1), np.array(is_over))

    @property
    def _is_long(self) -> bool:
        discount = float(self.dynamics.discount)
        return (self.horizon is not None or discount < 1) and self._last(discount) > STEP_LIMIT

    def _blocks(self, asked: list[tuple[int, int]], sharing: Sharing) -> list[Replications]:
        """Blocks of given sizes, those that are not remembered simulated together."""
        found = {each: kept for each in asked if (kept := self._kept.get((*each, sharing))) is not None}
        missing = [each for each in asked if each not in found]
        with float64():
            # The first of them says how far they are.
            blocks = [self._simulated(block, sharing, size, i == 0) for i, (block, size) in enumerate(missing)]
            made = together(self.dynamics, sharing, blocks)
        for each, replications in zip(missing, made, strict=True):
            found[each] = self._kept[*each, sharing] = replications
        while len(self._kept) > KEPT:
            self._kept.pop(next(iter(self._kept)))
        return [found[each] for each in asked]

    def _keys(self, block: int) -> tuple[Array, Array, Array]:
        """Of the starts, the noise and the policies of a block."""
        found: tuple[Array, Array, Array] = _three_keys(random_key(self.seed), block)
        return found

    def _simulated(self, block: int, sharing: Sharing, size: int, is_shown: bool) -> Asking[Replications]:
        start_key, noise_key, policy_key = self._keys(block)
        end = math.inf if self.horizon is None else self.horizon

        def move(b: Branches, count: int, until_merged: bool = self.until_merged) -> AskedSteps:
            return AskedSteps(b, noise_key, policy_key, count, until_merged)

        def move_one(b: Branches, count: int) -> AskedSteps:  # few different counts: each is a program
            return AskedSteps(b, noise_key, policy_key, ALONE if count > 1 else 1, False, end)

        goes_on = partial(self._gone_on, block, is_shown)
        first = begin(self.dynamics, start_key, size, sharing)
        found, last = yield from goes_on(first, 0, move, self.until_merged, CHUNK)
        if not self.until_merged:
            return found
        host, done = last.host, int(last.host.step)
        is_whole = (np.arange(size) < WHOLE) & self.some_whole & (block % EVERY == 0)
        if is_whole.any() and found.left_out[is_whole].any():
            # Branches that are apart are so until hardly anything is left of their returns, too.
            found, _ = yield from goes_on(last.device, done, partial(move, until_merged=False), False, CHUNK)
        elif is_whole.any():
            rest, _ = yield from goes_on(beginning(last.device, min(size, WHOLE)), done, move_one, False, ALONE)
            found.returns[is_whole], found.left_out[is_whole] = rest.returns, rest.left_out
        # What follows branches that are still apart is left out.
        is_done = host.is_over.all(axis=1) | host.leader.any(axis=1) | (done >= end)
        followed = (host.total != host.apart) | ~is_done
        return found._replace(is_whole=is_whole, apart=host.apart[:, None] + found.leads, followed=followed)

    def _gone_on(
        self, block: int, is_shown: bool, first: Branches, done: int, move: Move, until_merged: bool, chunk: int
    ) -> Asking[tuple[Replications, Standing]]:
        """Replications that go on from `first`, after `done` steps, until nothing more can come, or too little."""
        branches, discount, started = first, float(self.dynamics.discount), 0.0
        last, begun, is_told = self._last(discount), done, not is_shown
        with Meter(f"simulating {self.name}" if is_shown else "") as meter:
            while True:
                count = min(chunk, last - done)
                standing = yield move(branches, count)
                branches, host = standing
                done += count
                is_last = done >= last
                # A horizon leaves nothing out; an endless future that is cut leaves what comes with the next weight.
                weight = 0.0 if self.horizon is not None and is_last else discount**done
                if not _are_finite(host):
                    raise ModelError((yield from self._blamed(block, first, move)))
                found = self._replications(host, weight, until_merged)
                if is_last or not found.left_out.any() or self._is_small(found, discount**done, until_merged):
                    break
                meter.update(done / last, f"step {done:,} of at most {last:,}")
                started = started or time.monotonic()  # after the first steps, which may have been compiled
                spent = time.monotonic() - started
                wait = spent * (last - done) / max(done - begun - chunk, 1)
                if discount < 1 and self.horizon is None and spent > LONG_WAIT / 4 and wait > LONG_WAIT and not is_told:
                    is_told = True
                    warnings.warn(
                        f"{len(found.leads):,} replications of {self.name} take up to {wait:,.0f} more seconds: with a "
                        f"discount of {discount:g} and no horizon they go on for up to {last:,} steps; a horizon, or "
                        "the simulator's reward_bounds, ends them sooner",
                        stacklevel=2,
                    )
        if discount >= 1 and found.left_out.any():
            raise ModelError(
                f"replications of {self.name} have not ended after {STEP_LIMIT:,} steps; give a horizon, or a discount "
                "below 1"
            )
        return found, standing

    def _blamed(self, block: int, branches: Branches, move: Move) -> Asking[str]:
        """Which step of which branch is the first that did not pay a finite number, found by taking all steps again."""
        before, (branches, host) = branches, (yield move(branches, 1))
        while _are_finite(host):
            before, (branches, host) = branches, (yield move(branches, 1))
        # Where branch 0 is not finite, no lead over it is either.
        row, column = (int(place) for place in np.argwhere(~np.isfinite(host.lead + host.total[:, None]))[0])
        state, action = jax.tree.map(lambda leaf: leaf[row, column], (before.state, before.action))
        return (
            f"a return of {self.name} is not a finite number: in step {int(before.step)} of replication "
            f"{block * BLOCK + row}, alternative {column + 1} of {host.lead.shape[1]}, "
            f"{self.dynamics.mistake(state, action, column)}"
        )

    def _last(self, discount: float) -> int:
        """AskedSteps after which a block stops at the latest."""
        if self.horizon is not None:
            return self.horizon
        if discount >= 1:
            return STEP_LIMIT
        tail = BLIND_TAIL if self.return_bound is None else LEAST_TAIL
        return max(1, math.ceil(math.log(tail) / math.log(discount))) if discount > 0 else 1

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

    def _replications(self, b: HostBranches, weight: float, until_merged: bool) -> Replications:
        return Replications(
            returns=b.total[:, None] + b.lead,
            leads=b.lead,
            rounding=(b.steps[:, None] + ROUNDING_UNITS) * 2.0**-52 * b.size,
            steps=b.steps.astype(np.int64),
            meetings=b.meetings.astype(np.int64),
            leaders=b.leader.astype(np.int64),
            states=None if b.state is None else b.state.astype(np.int64),
            left_out=np.where(are_open(b, until_merged), weight, 0.0),
        )


def _plain(action: Any) -> Any:
    """A numbered action as a number of Python; others as they are."""
    return action.item() if np.ndim(action) == 0 else action


@jax.jit
def _three_keys(key: Array, block: int) -> tuple[Array, Array, Array]:
    first, second, third = jax.random.split(jax.random.fold_in(key, block), 3)
    return first, second, third


def _are_finite(b: HostBranches) -> bool:
    return bool(np.isfinite(b.total).all() and np.isfinite(b.lead).all())


def rows_of_blocks(first: int, count: int) -> Iterator[tuple[int, slice]]:
    """The blocks that hold replications ``first, …, first + count − 1``, and which of their rows these are."""
    for block in range(first // BLOCK, -(-(first + count) // BLOCK)):
        begin = block * BLOCK
        yield block, slice(max(first - begin, 0), min(first + count - begin, BLOCK))
