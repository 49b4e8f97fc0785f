"""Who is first among several branches, sample by sample, with what the end of a simulation leaves open.

A simulation ends after finitely many steps in float64, the returns do not. Two branches that are one, or can never
differ again, keep the order they have; all others may still move by what is left of the future. Wherever that leaves
an order open, a sample counts as both: for certain, and possibly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from jointmdp.arrays import Bools, Floats, Ints, float64
from jointmdp.law import ties
from jointmdp.law.pair_outcomes import pair_tables, reachable
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.montecarlo import branch_engine
from jointmdp.progress import Meter

OPEN_FRACTION = 0.05  # open samples, at most, as a fraction of √N: far below what chance itself leaves unknown
BLOCK = 2**22  # comparisons of two branches made at once
PAIR_LIMIT = 2**23  # entries of tables on pairs of states, up to which every pair that can never differ is found
POWER_UNITS = 64  # rounding errors in one discounted reward, most of them in the power of the discount


class Tally(NamedTuple):
    """Where each statement holds; axes of length 2 are (for certain, possibly)."""

    counts: Ints  # [3, 2, m] alone, tied, either
    tie: Ints  # [2]
    shares: Floats  # [2, N, m] bounds of 1{first} / #firsts
    likeliest: Floats  # [3, m] share, alone and tied on the average, ignoring the rest of the future and all rounding
    is_tie: float  # the same
    undecided: float


def simulate_tally(
    model: JointMDP, policy: Floats, s: int, chosen: list[int], num_samples: int, seed: int, limit: int | None
) -> tuple[Tally, Floats, int]:
    """The simulation of `montecarlo.simulate_returns`, gone on with while too many samples are open.

    Returns what it says, mean returns ``[m]`` and the number of steps.
    """
    g, spread = model.discount, float(np.ptp(model.rewards[model.is_possible]))
    with float64(), Meter("simulating who is best") as meter:
        world = branch_engine.table_world(model, policy)
        found = branch_engine.start(s, chosen, num_samples, model.sharing)
        noise_key, policy_key = jax.random.split(jax.random.key(seed))
        bounds = (g, model.reward_bound)
        steps, ahead = 0, 0.0
        while True:
            more = branch_engine.CHUNK if limit is None else min(branch_engine.CHUNK, limit - steps)
            found, _ = branch_engine.advance(world, found, noise_key, policy_key, more, model.sharing, False)
            steps += more
            meter.update(0.0 if limit is None else steps / limit, f"step {steps}")
            if limit is None:
                tail, least = (
                    branch_engine.tail(*bounds, steps),
                    branch_engine.LEAST_TAIL * branch_engine.tail(*bounds, 0),
                )
                is_last = tail <= least
                if tail > max(branch_engine.TAIL_FRACTION * branch_engine.least_error(found, False), least):
                    continue
                ahead = g**steps * spread / (1 - g)
            elif steps < limit:
                continue
            rounding = (steps + POWER_UNITS) * 2.0**-52 * spread * math.fsum(g**t for t in range(steps))
            lead, state, leader = (np.asarray(x) for x in (found.lead, found.state, found.leader))
            settled = None if limit is not None else _settled(model, policy, state, leader)
            tally = count(lead, settled, ahead, rounding)
            if limit is not None or is_last or tally.undecided * math.sqrt(num_samples) <= OPEN_FRACTION:
                return tally, np.asarray(found.total).mean() + lead.mean(axis=0), steps


def count(lead: Floats, settled: Callable[[slice], Bools] | None, ahead: float, rounding: float) -> Tally:
    """Compare all branches of all samples.

    Two of them are apart by their leads' difference, give or take `rounding` and, unless nothing can differ any more,
    `ahead`. Leads of branches that never differed agree to the last bit.
    """
    n, m = lead.shape
    size, others = max(1, BLOCK // m**2), ~np.eye(m, dtype=bool)
    parts: list[tuple[Bools, Bools, Bools, Floats]] = []
    for block in (slice(begin, begin + size) for begin in range(0, n, size)):
        gap = lead[block, :, None] - lead[block, None, :]
        closed = np.ones(gap.shape, dtype=bool) if settled is None else settled(block)
        level = closed & (gap == 0)
        room = np.where(level, 0.0, np.where(closed, rounding, rounding + ahead))
        near = np.abs(gap) <= room
        alone = np.stack([((gap > room) | ~others).all(axis=2), ((gap > -room) | ~others).all(axis=2)])
        first = np.stack([((gap > room) | level).all(axis=2), (gap >= -room).all(axis=2)])
        tied = first & np.stack([(level & others).any(axis=2), (near & others).any(axis=2)])
        parts.append((alone, tied, first, first / np.stack([near.sum(axis=2), level.sum(axis=2)])))
    alone, tied, first, shares = (np.concatenate(part, axis=1) for part in zip(*parts, strict=True))
    top = lead >= lead.max(axis=1, keepdims=True) - rounding
    firsts = top.sum(axis=1, keepdims=True)
    return Tally(
        np.stack([alone.sum(axis=1), tied.sum(axis=1), first.sum(axis=1)]),
        tied.any(axis=2).sum(axis=1),
        shares,
        np.stack([top / firsts, top & (firsts == 1), top & (firsts > 1)]).mean(axis=1),
        float(np.mean(firsts > 1)),
        float(np.mean((shares[0] != shares[1]).any(axis=1))),
    )


def _settled(model: JointMDP, policy: Floats, state: Ints, leader: Ints) -> Callable[[slice], Bools]:
    """Which branches of a block of samples are one, or pay the same for ever whatever happens, ``[n, m, m]``.

    The latter are found where what is left of the futures has few enough states; otherwise they stay open.
    """

    def merged(block: slice) -> Bools:
        return leader[block, :, None] == leader[block, None, :]

    states = reachable(model, policy, state[(leader != leader[:, :1]).any(axis=1)].ravel())
    groups = model.num_scenarios if model.sharing == "time" else 1
    if not 0 < groups * len(states) ** 2 <= PAIR_LIMIT:
        return merged
    # Over one step nothing is shaped: the tables hold the rewards themselves, and no means are needed.
    tables = pair_tables(model, policy, np.zeros(policy.shape), states, 1)
    is_nought = np.pad(ties.nought_pairs(tables), (0, 1))  # the last entry stands for states left out, place −1

    def settled(block: slice) -> Bools:
        at = tables.place[state[block]]
        return merged(block) | is_nought[at[:, :, None], at[:, None, :]]

    return settled
