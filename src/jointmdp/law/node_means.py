"""Means and standard deviations of all nodes of a graph."""

import math
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from jointmdp.arrays import Floats, summed
from jointmdp.law.branch_outcomes import RAREST
from jointmdp.law.fixed_points import fixed_point
from jointmdp.law.gap_sides import Side


class NodeMeans(NamedTuple):
    """The mean of every node within a certified error, and about how far its values lie from it."""

    mean: Floats
    error: float
    spread: Floats


def node_means(side: Side) -> NodeMeans:
    """Means and standard deviations of all nodes; infinite errors where a cycle is not discounted."""
    e, size = side.graph.edges, side.graph.num_nodes
    some = e.child >= 0

    def step(scale: Floats) -> sp.csr_array:
        return sp.csr_array((e.weight[some] * scale[some], (e.parent[some], e.child[some])), shape=(size, size))

    chain = step(side.scale)
    mean = fixed_point(chain, summed(e.parent, e.weight * e.shift, size))
    after = e.shift + side.scale * np.where(some, mean[e.child], 0.0)
    missed = np.abs(summed(e.parent, e.weight * after, size) - mean)
    sizes = summed(e.parent, e.weight * (np.abs(after) + np.abs(e.shift) - e.counter - e.shift), size)
    missed += 4 * side.rounding * (sizes + np.abs(mean))
    is_rare = e.weight <= 2 * RAREST  # these may be far less likely still
    missed += summed(e.parent[is_rare], (e.weight * np.abs(after))[is_rare], size)
    error = side.patience * float(missed.max())
    error = math.inf if math.isnan(error) else error
    squares = summed(e.parent, e.weight * (after - mean[e.parent]) ** 2, size)
    variance = fixed_point(step(side.scale**2), squares)
    return NodeMeans(mean, error, np.sqrt(np.maximum(variance, 0.0)))
