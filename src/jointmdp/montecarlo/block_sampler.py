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
from functools import partial
from operator import itemgetter
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jointmdp.arrays import float64, random_key
from jointmdp.checks import Sharing
from jointmdp.errors import ModelError
from jointmdp.montecarlo.branch_paths import BranchSteps
from jointmdp.montecarlo.samples import ROUNDING_UNITS, Replications
from jointmdp.montecarlo.table_and_jax_branches import (
    Branches,
    Dynamics,
    advance,
    advance_alone,
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
KEPT = 4  # blocks remembered: a caller that asks for a few replications at a time asks for the same block again
STEP_LIMIT = 20_000  # an episode longer than this was probably never meant to end, and a block waits for its longest
LONG_WAIT = 20.0  # seconds to come, of which nobody thought who gave a discount close to 1
TAIL_FRACTION = 1e-3  # what is left out of an endless return is at most this fraction of the block's standard error, or
FEW_TAIL = 1e-2  # where few returns of many replications are whole; their intervals allow for it,
LEAST_TAIL = 1e-10  # and never needs to be smaller than this fraction of the largest return
BLIND_TAIL = 1e-6  # the fraction where the largest return is not known


Enough = Callable[[Replications], bool]
Move = Callable[[Branches, int], Branches]


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
        parts = []
        for block, rows in rows_of_blocks(first, count):
            # The first few of long replications are a block of their own, drawn from the same keys.
            cut = FIRST if block == 0 and self._is_long else 0
            if rows.start < cut:
                parts.append(self._block(block, sharing, FIRST).rows(slice(rows.start, min(rows.stop, cut))))
            if rows.stop > cut:
                parts.append(self._block(block, sharing, BLOCK).rows(slice(max(rows.start, cut), rows.stop)))
        return Replications.joined(parts)

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
                    b = advance(dynamics, b, noise_key, policy_key, 1, sharing, self.until_merged)
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

    def _block(self, block: int, sharing: Sharing, size: int) -> Replications:
        found = self._kept.get((block, size, sharing))
        if found is None:
            with float64():
                found = self._simulated(block, sharing, size)
            while len(self._kept) >= KEPT:
                self._kept.pop(next(iter(self._kept)))
            self._kept[block, size, sharing] = found
        return found

    def _keys(self, block: int) -> tuple[Array, Array, Array]:
        """Of the starts, the noise and the policies of a block."""
        start, noise, policy = jax.random.split(jax.random.fold_in(random_key(self.seed), block), 3)
        return start, noise, policy

    def _simulated(self, block: int, sharing: Sharing, size: int) -> Replications:
        start_key, *keys = self._keys(block)
        end = math.inf if self.horizon is None else self.horizon

        def move(b: Branches, count: int, until_merged: bool = self.until_merged) -> Branches:
            return advance(self.dynamics, b, *keys, count, sharing, until_merged)

        def move_one(b: Branches, count: int) -> Branches:  # few different counts: each is a program
            return advance_alone(self.dynamics, b, *keys, ALONE if count > 1 else 1, end)

        first = begin(self.dynamics, start_key, size, sharing)
        found, last = self._gone_on(block, first, move, self.until_merged, CHUNK)
        if not self.until_merged:
            return found
        is_whole = (np.arange(size) < WHOLE) & self.some_whole & (block % EVERY == 0)
        if is_whole.any() and found.left_out[is_whole].any():
            # Branches that are apart are so until hardly anything is left of their returns, too.
            found, _ = self._gone_on(block, last, partial(move, until_merged=False), False, CHUNK)
        elif is_whole.any():
            rest, _ = self._gone_on(block, beginning(last, min(size, WHOLE)), move_one, False, ALONE)
            found.returns[is_whole], found.left_out[is_whole] = rest.returns, rest.left_out
        total, apart = np.asarray(last.total), np.asarray(last.apart)
        # What follows branches that are still apart is left out.
        is_done = np.asarray(last.is_over).all(axis=1) | np.asarray(last.leader).any(axis=1) | (int(last.step) >= end)
        followed = (total != apart) | ~is_done
        return found._replace(is_whole=is_whole, apart=apart[:, None] + found.leads, followed=followed)

    def _gone_on(
        self, block: int, first: Branches, move: Move, until_merged: bool, chunk: int
    ) -> tuple[Replications, Branches]:
        """Replications that go on from `first` until nothing more can come, or too little to matter."""
        branches, discount, done, started = first, float(self.dynamics.discount), int(first.step), 0.0
        last, begun, is_told = self._last(discount), done, False
        with Meter(f"simulating {self.name}") as meter:
            while True:
                count = min(chunk, last - done)
                branches = move(branches, count)
                done += count
                is_last = done >= last
                # A horizon leaves nothing out; an endless future that is cut leaves what comes with the next weight.
                weight = 0.0 if self.horizon is not None and is_last else discount**done
                if not _are_finite(branches):
                    raise ModelError(self._blamed(block, first, lambda b: move(b, 1)))
                found = self._replications(branches, weight, until_merged)
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
        return found, branches

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

    def _replications(self, b: Branches, weight: float, until_merged: bool) -> Replications:
        parts = (b.total, b.lead, b.size, b.steps, b.meetings, b.leader, are_open(b, until_merged))
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


def _plain(action: Any) -> Any:
    """A numbered action as a number of Python; others as they are."""
    return action.item() if np.ndim(action) == 0 else action


def _are_finite(b: Branches) -> bool:
    return bool(np.isfinite(b.total).all() and np.isfinite(b.lead).all())


def rows_of_blocks(first: int, count: int) -> Iterator[tuple[int, slice]]:
    """The blocks that hold replications ``first, …, first + count − 1``, and which of their rows these are."""
    for block in range(first // BLOCK, -(-(first + count) // BLOCK)):
        begin = block * BLOCK
        yield block, slice(max(first - begin, 0), min(first + count - begin, BLOCK))
