"""Who is first among several branches, sample by sample, with what the end of a simulation leaves open.

A simulation ends after finitely many steps in float64, the returns do not. Two branches that are one, or can never
differ again, keep the order they have; all others may still move by what is left of the future. Wherever that leaves
an order open, a sample counts as both: for certain, and possibly.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jointmdp.arrays import Bools, Floats, Ints
from jointmdp.intervals import Interval
from jointmdp.montecarlo import confidence_intervals
from jointmdp.montecarlo.samples import Replications

BLOCK = 2**22  # comparisons of two branches made at once


class Tally(NamedTuple):
    """Where each statement holds; axes of length 2 are (for certain, possibly)."""

    counts: Ints  # [3, 2, m] alone, tied, either
    tie: Ints  # [2]
    shares: Floats  # [2, m, N] bounds of 1{first} / #firsts
    likeliest: Floats  # [3, m] share, alone and tied on the average, ignoring the rest of the future and all rounding
    is_tie: float  # the same
    undecided: float


def count(run: Replications, ahead: Floats, never_differs: Callable[[slice], Bools] | None = None) -> Tally:
    """Compare all branches of all samples.

    Two of them are apart by their leads' difference, give or take their rounding and, unless they are one, are over or
    can never differ again (`never_differs` of some samples, ``[n, m, m]``), what is `ahead` of them, ``[N]``. Leads of
    branches that never differed agree to the last bit.
    """
    # Replications last: NumPy adds up long axes many times as quickly as short ones.
    lead, rounding, leaders = (np.ascontiguousarray(part.T) for part in (run.leads, run.rounding, run.leaders))
    m, n = lead.shape
    size, same = max(1, BLOCK // m**2), np.eye(m, dtype=bool)[:, :, None]
    parts: list[tuple[Bools, Bools, Bools, Floats]] = []
    for block in (slice(begin, begin + size) for begin in range(0, n, size)):
        gap = lead[:, None, block] - lead[None, :, block]
        closed = (leaders[:, None, block] == leaders[None, :, block]) | (run.left_out[block] == 0)
        closed = closed if never_differs is None else closed | np.moveaxis(never_differs(block), 0, 2)
        level = closed & (gap == 0)
        rounded = rounding[:, None, block] + rounding[None, :, block]
        room = np.where(level, 0.0, np.where(closed, rounded, rounded + ahead[block]))
        near = np.abs(gap) <= room
        alone = np.stack([((gap > room) | same).all(axis=1), ((gap > -room) | same).all(axis=1)])
        first = np.stack([((gap > room) | level).all(axis=1), (gap >= -room).all(axis=1)])
        tied = first & np.stack([(level & ~same).any(axis=1), (near & ~same).any(axis=1)])
        parts.append((alone, tied, first, first / np.stack([near.sum(axis=1), level.sum(axis=1)])))
    alone, tied, first, shares = (np.concatenate(part, axis=2) for part in zip(*parts, strict=True))
    top = lead >= lead.max(axis=0) - rounding.max(axis=0)
    firsts = top.sum(axis=0)
    return Tally(
        np.stack([alone.sum(axis=2), tied.sum(axis=2), first.sum(axis=2)]),
        tied.any(axis=1).sum(axis=1),
        shares,
        np.stack([top / firsts, top & (firsts == 1), top & (firsts > 1)]).mean(axis=2),
        float(np.mean(firsts > 1)),
        float(np.mean((shares[0] != shares[1]).any(axis=0))),
    )


def best_interval(tally: Tally, i: int, error: float) -> Interval:
    """Confidence interval of P(the i-th is first), where equal firsts share the first place; missed with `error`."""
    n = tally.shares.shape[2]
    alone, first = (confidence_intervals.proportion(tally.counts[kind, :, i], n, error) for kind in (0, 2))
    found = confidence_intervals.bounded_mean(tally.shares[:, i], error)
    return Interval(max(found.lower, alone.lower), min(found.upper, first.upper))
