"""The law of two actions under Gumbel-max, in closed form.

Every outcome i has an exponential noise ``E_i`` that all actions share, and an action with the law p gets
``argmin_i E_i/p_i``. Of two actions with laws p and q, the first of which got k, the second gets j with probability

    P(j|k) = q_j ∫ dr / F(r)²  for r from ρ_j to ρ_k (0 if empty),   P(k|k) = 1/F(ρ_k),
    F(r) = Σ_i max(p_i, q_i r),   ρ_i = p_i/q_i (infinite where q_i = 0).

No p_k is divided by, so what a rare outcome says is known as well as what others say. Between two neighbouring ρ the
sum is linear, ``F(r) = P + Q r`` with P the p_i of larger ρ and Q the q_i of the others, and the integral from l to u
is

    (u − l)/(F(l) F(u)) = (1 − l/u) / (F(l) · (P/u + Q)).

*Error.* All terms are positive. F is at least 1 and at least r, as p and q sum to 1, so n terms give F and F(u)/u to a
relative error of ``(n + 4) u``, u the unit roundoff, also where P is 1 less a sum; a piece is at most 1, and its factor
``1 − l/u`` is off by 2 u at most. So a sum of n pieces is off by ``(4n + 20) u`` of itself and by ``2n u``, and P(j|k)
by at most ``e (P(j|k) + q_j)``, with room in ``e`` for ratios that count as one and for the last division by the sum
over j, which is 1: `relative_error`. Ratios nearer than `SAME_RATIO` are one: 0.1/0.3 and 0.2/0.6 differ by a
rounding, and what is possible by that alone is not part of the model. What underflows stays possible (`TINY`).
"""

import numpy as np

from jointmdp.ground.arrays import UNIT, Floats, Ints

TINY = float(np.finfo(np.float64).tiny)
SAME_RATIO = 8 * UNIT  # of two ratios that count as one


def relative_error(count: int) -> float:
    """How far ``P(j|k)`` is off at most, in parts of ``P(j|k) + q_j``, for laws of so many outcomes."""
    return count * (4 * UNIT + 2 * SAME_RATIO) + 20 * UNIT


def laws_given(p: Floats, q: Floats, seen: Ints) -> Floats:
    """``P(j|k)`` in the order of q, ``[M, n]``: by rows of the second law and of the first one's chances there.

    `p` need not list what q cannot reach: it sums to 1 with that. `seen` ``[M]`` is the column of k, or −1 where q
    cannot reach it. Columns with q = 0 fill up the rows.
    """
    rows = np.arange(len(q))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        ratio = np.where(q > 0, p / q, np.inf)
        last = np.where(seen >= 0, ratio[rows, seen], np.inf)[:, None]
        order = np.argsort(ratio, axis=1, kind="stable")
        at = rows[:, None], order
        begin = ratio[at]
        inside = np.cumsum(q[at], axis=1)
        outside = np.maximum(1 - np.cumsum(p[at], axis=1), 0.0)
        end = np.minimum(np.append(begin[:, 1:], np.full((len(q), 1), np.inf), axis=1), last)
        share = np.where(begin < end, 1 - begin / end, 0.0)
        share[~(share > SAME_RATIO)] = 0.0
        low = np.where(np.isfinite(begin), outside + inside * begin, np.inf)
        pieces = np.where(share > 0, share / ((outside / end + inside) * low), 0.0)
        found = np.empty_like(q)
        found[at] = q[at] * np.cumsum(pieces[:, ::-1], axis=1)[:, ::-1]
        # The largest ratio up to that of k is its own.
        place = np.sum(begin <= last, axis=1) - 1
        again = 1 / (outside[rows, place] + inside[rows, place] * last[:, 0])
        # What underflows can happen all the same; a ratio that overflows is no infinite one.
        is_possible = (q > 0) & (np.isinf(last) | (1 - ratio / last > SAME_RATIO))
    found = np.where(is_possible, np.maximum(found, TINY), found)
    both = np.flatnonzero(seen >= 0)
    found[both, seen[both]] = np.maximum(again[both], TINY)
    return found / found.sum(axis=1, keepdims=True)


def pair_cells(numbers: tuple[Ints, Ints], laws: tuple[Floats, Floats]) -> tuple[Floats, Ints]:
    """The joint law of two actions: probabilities ``[W]``, and which of its outcomes each gets ``[W, 2]``."""
    places = {number: i for i, number in enumerate(numbers[1].tolist())}
    column = np.array([places.get(number, -1) for number in numbers[0].tolist()])
    at_second = np.zeros(len(laws[1]))
    at_second[column[column >= 0]] = laws[0][column >= 0]
    size = len(laws[0])
    found = laws_given(np.tile(at_second, (size, 1)), np.tile(laws[1], (size, 1)), column) * laws[0][:, None]
    k, j = np.nonzero(found)
    return found[k, j], np.stack([k, j], axis=1)
