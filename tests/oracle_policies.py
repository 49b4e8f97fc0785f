"""Independent oracle for two policies, in exact rational arithmetic, from the definitions.

Branch 1 follows one policy and branch 2 another. The unknowns are ``E[Z(x) Z'(y)]`` for coordinates ``x`` of branch 1
and ``y`` of branch 2, raw and on coordinates: no step is shared with the library. Branches in one state share the
scenario, in distinct states they share it under ``"time"`` only; next actions are two independent draws, always.
"""

from itertools import product
from typing import Any

import oracle
from flint import fmpq, fmpq_mat


def policy_gap(case: Any, other: Any, state: int) -> tuple[fmpq, fmpq]:
    """Mean and variance of ``Z^π(s) − Z^π'(s)``; states that are over pay nothing and stay, and need no equation."""
    models = [oracle._ExactModel(*case._replace(policy=policy)) for policy in (case.policy, other)]
    moments = [oracle.exact_moments(*case._replace(policy=policy)) for policy in (case.policy, other)]

    def average(k: int, table: Any) -> fmpq:
        chances = models[k].pi[state]
        return sum((p * table[a] for a, p in enumerate(chances) if p != 0), fmpq(0))

    means = [average(k, moments[k].mean[state]) for k in (0, 1)]
    squares = [average(k, [moments[k].second[state, a, state, a] for a in range(len(other[0]))]) for k in (0, 1)]
    cross = means[0] * means[1]
    if case.sharing != "none":
        cross = _cross(models, moments, state)
    mean = means[0] - means[1]
    return mean, squares[0] + squares[1] - 2 * cross - mean**2


def _cross(models: list[Any], moments: list[Any], state: int) -> fmpq:
    one, other = models
    g, xs = one.discount, one.coordinates
    over = {s for s, row in enumerate(one.N) if all(n == s for to in row for n in to) and not any(map(any, one.R[s]))}
    pairs = [(x, y) for x, y in product(xs, xs) if x[0] not in over and y[0] not in over]
    place = {pair: i for i, pair in enumerate(pairs)}
    matrix, right = fmpq_mat(len(pairs), len(pairs)), fmpq_mat(len(pairs), 1)
    for (x, y), row in place.items():
        matrix[row, row] += 1
        (s, a), (t, b) = x, y
        for chance, w, u in oracle._joint(one.p[s], one.p[t], tied=s == t or one.sharing == "time"):
            rx, ry = oracle.rational(one.R[s][w][a]), oracle.rational(one.R[t][u][b])
            to, to_other = one.N[s][w][a], one.N[t][u][b]
            for weight, c, d in oracle._joint(one.pi[to], other.pi[to_other], tied=False):
                factor = chance * weight
                later, later_other = moments[0].mean[to, c], moments[1].mean[to_other, d]
                right[row, 0] += factor * (rx * ry + g * rx * later_other + g * ry * later)
                if ((to, c), (to_other, d)) in place:
                    matrix[row, place[(to, c), (to_other, d)]] -= factor * g * g
    found = matrix.solve(right).entries() if pairs else []
    draws = oracle._joint(one.pi[state], other.pi[state], tied=False)
    return sum((p * found[place[(state, a), (state, b)]] for p, a, b in draws if state not in over), fmpq(0))
