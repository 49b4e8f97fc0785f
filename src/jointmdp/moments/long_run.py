"""Where branches end up: the classes that are never left, and the states from which one of them is sure."""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import scipy.sparse.csgraph

from jointmdp.arrays import Bools, Floats, Ints

# Labels: the outside of a part, which stands for many states; several classes may come; nothing is paid any more. Other
# classes count from 1.
OUTSIDE, MIXED, IDLE = -2, -1, 0


class LongRun(NamedTuple):
    """The classes of a chain, by state."""

    label: Ints  # [S] the one class that surely comes, or MIXED
    is_closed: Bools  # [S] whether the state lies in a class that is never left
    reference: Ints  # [S] where a branch of this class is most of the time; itself where there is no such state

    @property
    def references(self) -> Bools:
        """Whether a state is the reference of its class, ``[S]``."""
        return (self.reference == np.arange(len(self.label))) & (self.label > IDLE)

    def average(self, weights: Floats, values: Floats) -> Floats:
        """The weighted mean of `values` over each class, for the states that surely come to it; zero elsewhere."""
        inside = np.where(self.is_closed & (self.label > IDLE), weights, 0.0)
        total, mass = (np.bincount(self.label + 1, each) for each in (inside * values, inside))
        return np.divide(total, mass, out=np.zeros_like(total), where=mass > 0)[self.label + 1]


def find_long_run(kernel: sp.csr_array, idle: Bools, occupancy: Floats) -> LongRun:
    """The classes of `kernel`, whose explicit zeros count as steps; `occupancy` says where a reference is good."""
    size = kernel.shape[0]
    ones = np.ones(len(kernel.indices))
    back = sp.csr_array((ones, kernel.indices, kernel.indptr), shape=kernel.shape).T.tocsr()
    rows = np.repeat(np.arange(size), np.diff(kernel.indptr))
    component = scipy.sparse.csgraph.connected_components(back, connection="strong")[1]
    is_closed = np.ones(component.max() + 1, dtype=bool)
    is_closed[component[rows[component[rows] != component[kernel.indices]]]] = False
    ends = np.flatnonzero(is_closed[component])
    # One class that may come, for each state; where a step changes it two may come.
    likely = np.full(component.max() + 1, IDLE)
    paying = np.unique(component[ends[~idle[ends]]])
    likely[paying] = 1 + np.arange(len(paying))
    nearest = _nearest(back, ends)
    label = likely[component[nearest]]
    changes = np.unique(rows[label[rows] != label[kernel.indices]])
    if len(changes):
        label = np.where(_nearest(back, changes) >= 0, MIXED, label)
    # The last of each class by occupancy.
    reference = np.arange(size)
    inside = ends[~idle[ends]]
    inside = inside[np.lexsort((occupancy[inside], label[inside]))]
    chosen = np.zeros(len(paying) + 1, dtype=np.int64)
    chosen[label[inside]] = inside
    is_sure = label > IDLE
    reference[is_sure] = chosen[label[is_sure]]
    return LongRun(label, is_closed[component], reference)


def _nearest(back: sp.csr_array, targets: Ints) -> Ints:
    """The nearest of `targets` that each state can come to, ``[S]``, or −1."""
    steps, _, source = scipy.sparse.csgraph.dijkstra(
        back, indices=targets, min_only=True, unweighted=True, return_predecessors=True
    )
    return np.where(np.isfinite(steps), source, -1)
