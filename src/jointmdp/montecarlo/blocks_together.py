"""Blocks of replications that take their steps at the same time.

One block after another is right on a CPU, but leaves a GPU almost idle. Each block goes its own way, with looks at its
numbers in between: it is a generator that asks for steps, and what several ask for alike is computed at once. The
numbers of a block do not depend on its company.
"""

from collections.abc import Generator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from jointmdp.arrays import Bools, Floats, Ints
from jointmdp.checks import Sharing
from jointmdp.montecarlo.table_and_jax_branches import Branches, Dynamics, advance, advance_alone

AT_ONCE = 32  # blocks: together they keep a GPU busy
Simulated = TypeVar("Simulated")


class AskedSteps(NamedTuple):
    """Steps that the branches of a block are to take."""

    branches: Branches
    noise_key: Array
    policy_key: Array
    number: int
    until_merged: bool
    alone_to: float | None = None
    """Where one branch goes on for all: the step from which on nothing counts."""

    def taken(self, dynamics: Dynamics, sharing: Sharing) -> Branches:
        """The branches afterwards."""
        if self.alone_to is None:
            found: Branches = advance(dynamics, *self[:3], self.number, sharing, self.until_merged)
            return found
        return advance_alone(dynamics, *self[:3], self.number, self.alone_to)


class HostBranches(NamedTuple):
    """What a look at a block needs of its branches, on the host; the axes are those of `Branches`."""

    is_over: Bools
    leader: Ints
    total: Floats
    lead: Floats
    size: Floats
    step: Ints
    steps: Ints
    apart: Floats
    meetings: Ints
    state: Ints | None
    """None where states are not numbers."""


class Standing(NamedTuple):
    """Where a block stands."""

    device: Branches
    host: HostBranches


Asking = Generator[AskedSteps, Standing, Simulated]


def together(dynamics: Dynamics, sharing: Sharing, blocks: Sequence[Asking[Simulated]]) -> list[Simulated]:
    """What the blocks return, in order."""
    found: dict[int, Simulated] = {}
    given: dict[int, Any] = dict.fromkeys(range(len(blocks)))  # what each block is told next; None begins
    while given:
        asked: dict[tuple[Any, ...], list[tuple[int, AskedSteps]]] = {}
        for i, branches in given.items():
            try:
                steps = blocks[i].send(branches)
            except StopIteration as end:
                found[i] = end.value
            else:
                kind = (len(steps.branches.total), steps.number, steps.until_merged, steps.alone_to)
                asked.setdefault(kind, []).append((i, steps))
        given = {}
        for group in asked.values():
            numbers, alike = zip(*group, strict=True)
            given.update(zip(numbers, _taken(dynamics, sharing, alike), strict=True))
    return [found[i] for i in range(len(blocks))]


def _taken(dynamics: Dynamics, sharing: Sharing, alike: Sequence[AskedSteps]) -> list[Standing]:
    if len(alike) == 1 or alike[0].alone_to is not None:  # few replications go on alone
        found = (steps.taken(dynamics, sharing) for steps in alike)
        return [Standing(branches, _on_host(branches)) for branches in found]
    filled = [*alike, *[alike[-1]] * (AT_ONCE - len(alike))]  # always as many: another number is another program
    stacked = _stacked([steps[:3] for steps in filled])
    after = _advanced(dynamics, stacked, alike[0].number, sharing, alike[0].until_merged)
    host = _on_host(after)
    hosts = [jax.tree.map(lambda leaf, i=i: leaf[i], host) for i in range(len(alike))]
    return [Standing(*each) for each in zip(_parts(after, AT_ONCE), hosts, strict=False)]


def _on_host(b: Branches) -> HostBranches:
    """Of one block, or of several."""
    state = b.state
    is_numbered = isinstance(state, Array) and state.ndim == b.leader.ndim and jnp.issubdtype(state.dtype, jnp.integer)
    chosen = (getattr(b, name) for name in HostBranches._fields[:-1])
    return HostBranches(*jax.device_get((*chosen, state if is_numbered else None)))


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
