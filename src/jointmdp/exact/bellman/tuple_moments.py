"""The equations of T_n: joint moments of the returns of any coordinates, up to order n.

``M_k(x_1 … x_k) = E Π_i Z(x_i)``. Equal coordinates are one random variable, so a tuple is a multiset: distinct
coordinates ``x_i`` with multiplicities ``m_i``. With ``(R_i, S'_i)`` the outcome of ``x_i`` and one next action each,

    (T_n M)_k(x) = E Π_i (R_i + γ Z(X'_i))^{m_i}
                 = Σ_{j_i ≤ m_i} Π_i C(m_i,j_i) γ^{j_i} · E[ Π_i R_i^{m_i−j_i} · V({(S'_i, j_i)}) ]
    V({(s_i, j_i)}) = Σ_{a_1, a_2, …} Π_i π(a_i|s_i) · M(⋃_i (s_i,a_i)^{j_i})

A *strand* ``(s,j)`` is one branch in state ``s`` whose return counts ``j`` times; distinct strands draw their actions
independently, and where the draws coincide the coordinates are one from there on. ``V`` is all that T_n sees of ``M``.

Each entry of ``T_n M`` is thus a polynomial in commuting symbols, one per strand, whose monomials stand for entries of
``V``. The sharing says how the polynomial comes about:

    one scenario for all of x     P_x = Σ_w p(w|s) Π_i Σ_j C(m_i,j) γʲ R_i(w)^{m_i−j} · (S'_i(w), j)
    ``"time"``                    the line above, for every x
    ``"state"``                   the product of the line above over the groups of coordinates in one state
    ``"none"``                    T_n M is the product, over distinct coordinates, of their own (T_n M)_m(x_i … x_i)

``T_n`` is affine except under ``"none"``, and order k reads only orders up to k. With ``R_max = max |R|`` and
``λ_k = (2 R_max/(1−γ))^{k−1}`` it is a γ-contraction in ``‖M‖_λ = max_k ‖M_k‖∞/λ_k``: order k contributes at most
``Σ_{j≥1} C(k,j) γʲ ((1−γ)/2)^{k−j} = ((1+γ)/2)ᵏ − ((1−γ)/2)ᵏ ≤ γ``. Under ``"none"`` that holds for the moments of one
coordinate, and for all of them on ``|M_m(x … x)| ≤ (R_max/(1−γ))ᵐ``, a set which T_n keeps: a product over r ≥ 2
distinct coordinates then gains at most ``γ Σ_i 2^{m_i−k} ≤ γ r 2^{1−r} ≤ γ``.
"""

from collections.abc import Sequence
from math import comb
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from jointmdp.exact.bellman.pair_step import stretches
from jointmdp.ground.arrays import Floats, Ints, expand
from jointmdp.ground.errors import ModelError
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.tables import ActionLike, StateLike

Ids = NDArray[np.int32]
Collection = list[Floats]  # M_1 … M_n, each on the sorted tuples of that length
Parts = list[tuple[Ints, Ints, Floats]]  # pieces of a sparse matrix: rows, columns, values

CHUNK = 2**17  # terms of a product of polynomials that are formed at once


class Multisets:
    """All multisets of labels up to a total weight, numbered by weight; the empty one has number 0.

    ``insert[u, label]`` is the number of ``u`` with one more label, −1 where that is too heavy.
    """

    def __init__(self, weights: Ints, order: int) -> None:
        self.starts = np.array([0, 1])  # weight d has the numbers starts[d] … starts[d+1]−1
        last, parent = [np.array([-1])], [np.array([-1])]
        for degree in range(1, order + 1):
            new_last, new_parent = [], []
            for weight in np.unique(weights[weights <= degree]):
                labels = np.flatnonzero(weights == weight)
                # Labels are appended in ascending order, so that each multiset comes about once.
                u, i = np.nonzero(last[degree - weight][:, None] <= labels)
                new_parent.append(u + self.starts[degree - weight])
                new_last.append(labels[i])
            last.append(np.concatenate(new_last))
            parent.append(np.concatenate(new_parent))
            self.starts = np.append(self.starts, self.starts[-1] + len(last[-1]))
        self.order = order
        self.last: Ints = np.concatenate(last)
        self.parent: Ints = np.concatenate(parent)
        self.insert: Ids = np.full((self.starts[order], len(weights)), -1, dtype=np.int32)
        self.insert[self.parent[1:], self.last[1:]] = np.arange(1, len(self))
        for degree in range(1, order):
            rows = np.arange(self.starts[degree], self.starts[degree + 1])
            fits = weights[None, :] <= order - degree
            u, label = np.nonzero((self.insert[rows] < 0) & fits)
            u = rows[u]
            # The last label of u comes after the new one, so it is appended to the parent that has the new one.
            self.insert[u, label] = self.insert[self.insert[self.parent[u], label], self.last[u]]

    def __len__(self) -> int:
        return int(self.starts[-1])

    def of_degree(self, degree: int) -> slice:
        """Where the multisets of this weight stand."""
        return slice(int(self.starts[degree]), int(self.starts[degree + 1]))

    def labels(self) -> Ids:
        """The labels of each multiset, the last one first, ``[len, order]``, padded with −1."""
        rows = np.full((len(self), self.order), -1, dtype=np.int32)
        for degree in range(1, self.order + 1):
            here = self.of_degree(degree)
            rows[here] = np.roll(rows[self.parent[here]], 1, axis=1)
            rows[here, 0] = self.last[here]
        return rows


class Tuples(Multisets):
    """Sorted tuples of coordinates, each of which knows its last run of equal ones and its last group in one state."""

    def __init__(self, states: Ints, order: int) -> None:
        super().__init__(np.ones(len(states), dtype=np.int64), order)
        self.states = states  # of each coordinate, ascending
        self.run = np.zeros(len(self), dtype=np.int64)  # how often the last coordinate stands in the tuple
        self.stem = np.zeros_like(self.run)  # the tuple without that run
        self.runs = np.zeros_like(self.run)  # the run by itself
        self.front = np.zeros_like(self.run)  # the tuple without the coordinates in the last state
        self.group = np.zeros_like(self.run)  # those coordinates by themselves
        for degree in range(1, order + 1):
            here = self.of_degree(degree)
            last, above = self.last[here], self.parent[here]
            again = self.last[above] == last
            beside = (states[self.last[above]] == states[last]) & (above > 0)
            self.run[here] = np.where(again, self.run[above], 0) + 1
            self.stem[here] = np.where(again, self.stem[above], above)
            self.runs[here] = self.insert[np.where(again, self.runs[above], 0), last]
            self.front[here] = np.where(beside, self.front[above], above)
            self.group[here] = self.insert[np.where(beside, self.group[above], 0), last]

    def number(self, model: JointMDP, coordinates: Sequence[tuple[StateLike, ActionLike]]) -> int:
        """The tuple of coordinates given as ``(state, action)`` by index or name, in any order."""
        if not 1 <= len(coordinates) <= self.order:
            raise ModelError(
                f"{len(coordinates)} coordinates asked for, but the moments are of order 1 to {self.order}"
            )
        place = np.cumsum(model.available).reshape(model.available.shape) - 1
        found = 0
        for pair in coordinates:
            if isinstance(pair, str) or not isinstance(pair, Sequence | np.ndarray) or len(pair) != 2:
                raise ModelError(f"a coordinate is a pair (state, action), not {pair!r}")
            s = model.state_index(pair[0])
            found = int(self.insert[found, place[s, model.action_index(pair[1], s)]])
        return found


class JointOperator:
    """T_n of a model and a policy, as sparse matrices ``M ↦ V`` and ``V ↦ T_n M`` made once."""

    def __init__(self, model: JointMDP, policy: Floats, order: int) -> None:
        self.model, self.order = model, order
        states, actions = np.nonzero(model.available)
        self.coordinates = states, actions
        self.tuples = Tuples(states, order)
        # Strand (s, j) has the label (j−1)·S + s.
        S = model.num_states
        self.strands = Multisets(np.repeat(np.arange(1, order + 1), S), order)
        # Of a backup: sorted tuples of one degree by multisets of strands up to that degree.
        sizes = np.diff(self.tuples.starts).tolist(), self.strands.starts[1:].tolist()
        self._shapes: list[tuple[int, int]] = list(zip(*sizes, strict=True))
        self._averages = _averages(self.tuples, self.strands, policy[model.available])
        if model.sharing == "time":
            self._backups = self._one_scenario(np.ones(len(self.tuples), dtype=bool))
        elif model.sharing == "state":
            self._backups = self._groups(self._one_scenario(self.tuples.front == 0))
        else:
            self._backups = self._one_scenario(self.tuples.stem == 0)
        self.longest = [0, *(int(np.diff(rows.indptr).max()) for rows in self._backups[1:])]
        self.widest = [0, *(int(np.diff(rows.indptr).max()) for rows in self._averages[1:])]

    def zero(self) -> Collection:
        """The collection of zeros."""
        return [np.zeros(n) for n in np.diff(self.tuples.starts)[1:]]

    def __call__(self, M: Collection) -> Collection:
        """T_n M."""
        V = np.concatenate([[1.0], *(average @ m for average, m in zip(self._averages[1:], M, strict=True))])
        after = [backup @ V[: backup.shape[1]] for backup in self._backups[1:]]
        if self.model.sharing == "none":
            # Entries of several coordinates are products of runs. A run by itself is one times itself, not rounded.
            flat = np.concatenate([[1.0], *after])
            for degree in range(1, self.order + 1):
                here = self.tuples.of_degree(degree)
                flat[here] = flat[self.tuples.stem[here]] * flat[self.tuples.runs[here]]
                after[degree - 1] = flat[here]
        return after

    def _one_scenario(self, chosen: NDArray[np.bool_]) -> list[Any]:
        """P_x = Σ_w p(w) Π_i Σ_j C(m_i,j) γʲ R_i^{m_i−j} (S'_i, j) for the chosen tuples, as sparse rows per degree."""
        model, tuples, strands = self.model, self.tuples, self.strands
        states, actions = self.coordinates
        rewards = model.paid_rewards
        total: list[Any] = [sp.csr_array(np.ones((1, 1))), *(sp.csr_array(shape) for shape in self._shapes[1:])]
        for w in np.flatnonzero(model.probabilities.any(axis=0)):
            r, to = rewards[states, w, actions], model.successors[states, w, actions]
            p = model.probabilities[states, w]
            found = [total[0]]
            for degree in range(1, self.order + 1):
                start = tuples.starts[degree]
                ids = start + np.flatnonzero(chosen[tuples.of_degree(degree)])
                parts: Parts = []
                for m in range(1, degree + 1):
                    x = ids[(tuples.run[ids] == m) & (p[tuples.last[ids]] > 0)]
                    stems = found[degree - m]
                    owner, entry = expand(stems.indptr, tuples.stem[x] - tuples.starts[degree - m])
                    x = x[owner]
                    last, column, value = tuples.last[x], stems.indices[entry], stems.data[entry]
                    for j in range(m + 1):
                        factor = comb(m, j) * model.discount**j * r[last] ** (m - j)
                        taken = factor != 0
                        u = column[taken]
                        if j > 0:
                            u = strands.insert[u, (j - 1) * model.num_states + to[last[taken]]]
                        parts.append((x[taken] - start, u, value[taken] * factor[taken]))
                rows = _sparse(parts, self._shapes[degree])
                found.append(rows)
                weights = np.repeat(p[tuples.last[tuples.of_degree(degree)]], np.diff(rows.indptr))
                weighted = sp.csr_array((rows.data * weights, rows.indices, rows.indptr), rows.shape)
                total[degree] = total[degree] + weighted
        return total

    def _groups(self, single: list[Any]) -> list[Any]:
        """P_x as a product over states, from the rows of the tuples that stay in one state."""
        tuples, labels = self.tuples, self.strands.labels()
        degrees = np.repeat(np.arange(self.order + 1), np.diff(tuples.starts))
        found = [single[0]]
        for degree in range(1, self.order + 1):
            front, group = tuples.front[tuples.of_degree(degree)], tuples.group[tuples.of_degree(degree)]
            parts: Parts = []
            for first in range(1, degree):
                second = degree - first
                x = np.flatnonzero(degrees[front] == first)
                f, g = front[x] - tuples.starts[first], group[x] - tuples.starts[second]
                left, right = found[first], single[second]
                for some in stretches(np.diff(left.indptr)[f] * np.diff(right.indptr)[g], CHUNK):
                    owner, entry = expand(left.indptr, f[some])
                    inner, other = expand(right.indptr, g[some][owner])
                    entry = entry[inner]
                    u, added = left.indices[entry], labels[right.indices[other]]
                    for i in range(second):
                        more = added[:, i] >= 0
                        u[more] = self.strands.insert[u[more], added[more, i]]
                    shape = (len(x[some]), self._shapes[degree][1])
                    block = sp.csr_array((left.data[entry] * right.data[other], (owner[inner], u)), shape).tocoo()
                    parts.append((x[some][block.row], block.col, block.data))
            found.append(single[degree] + _sparse(parts, self._shapes[degree]))
        return found


def _averages(tuples: Tuples, strands: Multisets, chances: Floats) -> list[Any]:
    """V = Π M: for each multiset of strands the law of the tuple that their next actions make, as rows per degree.

    `chances` is the policy's probability of each coordinate in its state.
    """
    taken = np.flatnonzero(chances > 0)
    S = int(tuples.states.max()) + 1
    first = np.searchsorted(tuples.states[taken], np.arange(S + 1))  # where each state's actions begin
    found = [sp.csr_array(np.ones((1, 1)))]
    for degree in range(1, tuples.order + 1):
        parts: Parts = []
        last, above = strands.last[strands.of_degree(degree)], strands.parent[strands.of_degree(degree)]
        for j in range(1, degree + 1):
            u = np.flatnonzero(last // S == j - 1)
            before = found[degree - j]
            owner, entry = expand(before.indptr, above[u] - strands.starts[degree - j])
            inner, choice = expand(first, last[u][owner] % S)
            owner, entry, x = owner[inner], entry[inner], taken[choice]
            ids = before.indices[entry] + tuples.starts[degree - j]
            for _ in range(j):
                ids = tuples.insert[ids, x]
            parts.append((u[owner], ids - tuples.starts[degree], before.data[entry] * chances[x]))
        found.append(_sparse(parts, (len(last), int(np.diff(tuples.starts)[degree]))))
    return found


def _sparse(parts: Parts, shape: tuple[int, int]) -> Any:
    if not parts:
        return sp.csr_array(shape)
    rows, columns, values = (np.concatenate(part) for part in zip(*parts, strict=True))
    return sp.csr_array((values, (rows, columns)), shape)  # entries that stand in one place are added up
