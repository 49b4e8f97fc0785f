"""Bounds on errors that are as local as the errors themselves: supersolutions, and errors of values and differences."""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from jointmdp.arrays import Floats, Ints
from jointmdp.moments.long_run import IDLE, MIXED, OUTSIDE
from jointmdp.moments.single_branch import BranchMean, Solver, discounted_solver, restricted

# Room left in a supersolution, relative to its own source and to what checking rounds: the first that passes is taken.
CHECK_ROOM = 1e-3
CHECK_ROOMS = (8, 64, 4096)
# Products below the range of floats vanish; a step is taken to lose this much of what stands there, and of 1.
UNDERFLOW = 1e-300


def supersolution(kernel: sp.csr_array, factor: float, solve: Solver, source: Floats, relative: float) -> Floats:
    """Some δ with ``δ ≥ source + factor·Pδ``, as small as can be had; infinite where none is found.

    `solve` proposes it, and the inequality is checked row by row: all terms of a row are non-negative, so it is rounded
    by at most `relative` times what stands in it, and that much is added to the source before solving.
    """
    top = float(source.max())
    if top == 0:
        return np.zeros_like(source)
    uniform = np.full_like(source, (1 + CHECK_ROOM) * top / (1 - factor) if factor < 1 else np.inf)
    first = np.maximum(solve(source), 0.0)
    for room in CHECK_ROOMS:
        found = np.minimum(solve((1 + CHECK_ROOM) * source + room * relative * first), uniform)
        later = factor * (kernel @ found)
        if np.all(found >= 0) and np.all(found - later - source >= 2 * relative * (found + later + source)):
            return found
    return uniform


class ValueErrors(NamedTuple):
    """Bounds on the errors of a value function, and on how far those of two states can differ."""

    alone: Floats  # [S] |e(s)|
    apart: Floats  # [S] |e(s) − e(s₀)|, s₀ the reference of the class of s
    label: Ints  # [S] the class, or MIXED
    offset: Floats  # [S] what the values are stored relative to

    @classmethod
    def uniform(cls, size: int, error: float) -> "ValueErrors":
        """The same for every state."""
        return cls(np.full(size, error), np.full(size, np.inf), np.full(size, MIXED), np.zeros(size))

    def between(self, s: Ints, t: Ints) -> Floats:
        """Bounds on |e(s) − e(t)| for arrays of states."""
        by_class = np.where(self.label[s] == self.label[t], self.apart[s] + self.apart[t], np.inf)
        is_one = (s == t) & (self.label[s] != OUTSIDE)
        return np.where(is_one, 0.0, np.minimum(self.alone[s] + self.alone[t], by_class))

    def with_outside(self, outside: int) -> "ValueErrors":
        """Where a state stands for many, none of its class can be compared with it."""
        with_it = self.label == self.label[outside]
        label = np.where(with_it, MIXED, self.label)
        label[outside] = OUTSIDE
        return self._replace(apart=np.where(with_it, np.inf, self.apart), label=label)


def deviations(state: BranchMean, discount: float, source: Floats, delta: Floats, relative: float) -> Floats:
    """Bounds η on |e(s) − e(s₀)|, the error of a value against that of its class's reference.

    With |(1−γ) e(s₀)| ≤ κ the difference obeys |f| ≤ ρ + κ + γP|f| and vanishes in s₀, so it is enough that
    η ≥ ρ + κ + γPη with the column of s₀ left out: how soon s₀ is reached takes the place of 1/(1−γ).
    """
    classes = state.classes
    is_sure = classes.label > IDLE
    if not is_sure.any():
        return np.where(classes.label == IDLE, delta, np.inf)
    kernel = restricted(state.kernel, is_sure, is_sure & ~classes.references)
    by_reference = (1 - discount) * delta[classes.reference]
    added = np.where(is_sure, source + (1 + CHECK_ROOM) * by_reference, 0.0)
    solve = discounted_solver(kernel, discount, state.is_dense)
    found = supersolution(kernel, discount, solve, added, relative)
    return np.where(is_sure, found, np.where(classes.label == IDLE, delta, np.inf))
