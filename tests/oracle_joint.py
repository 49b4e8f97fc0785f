"""Independent oracles for joint moments of any order: exact rationals, and one random field that needs no rule.

`exact_joint_moments` writes the equation of every unordered tuple of coordinates in rationals, by listing what one
step can do: a scenario for each distinct state (or one for all under ``"time"``), then a next action for each
*distinct* coordinate. Equal coordinates are one random variable, and so are coordinates that have become equal.

`field_moments` gives every coordinate at every time its own next action, and every state (or every time) its scenario,
and lists all such fields: coordinates that meet read the same entries, so nothing has to be said about merging.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations_with_replacement, product
from math import prod
from typing import Any

import numpy as np
from flint import fmpq
from oracle import Coordinate, Equation, RandomModel, Unknown, _exact_rows, _solve, nearest_float, rational

Way = tuple[fmpq, dict[Coordinate, fmpq], dict[Coordinate, Coordinate]]  # probability, rewards, next coordinates


def _ways(case: RandomModel, distinct: list[Coordinate]) -> Iterator[Way]:
    """Everything of positive probability that one step does to distinct coordinates."""
    p, pi = _exact_rows(np.asarray(case.probabilities)), _exact_rows(np.asarray(case.policy))
    R, N = np.asarray(case.rewards).tolist(), np.asarray(case.successors).tolist()
    sites = [0] if case.sharing == "time" else sorted({s for s, _ in distinct})
    for luck in product(range(len(p[0])), repeat=len(sites)):
        drawn = dict(zip(sites, luck, strict=True))
        chance = prod((p[s][w] for s, w in drawn.items()), start=fmpq(1))
        if chance == 0:
            continue
        scenario = {x: drawn[0 if case.sharing == "time" else x[0]] for x in distinct}
        rewards = {x: rational(R[x[0]][scenario[x]][x[1]]) for x in distinct}
        states = {x: N[x[0]][scenario[x]][x[1]] for x in distinct}
        for choice in product(range(len(pi[0])), repeat=len(distinct)):
            nexts = {x: (states[x], c) for x, c in zip(distinct, choice, strict=True)}
            weight = prod((pi[s][c] for s, c in nexts.values()), start=fmpq(1))
            if weight != 0:
                yield chance * weight, rewards, nexts


def _equation(case: RandomModel, x: Unknown) -> Equation:
    """E Π Z(x_i) = E Π (R_i + γ Z(X'_i)), multiplied out factor by factor."""
    g, constant, terms = rational(case.discount), fmpq(0), defaultdict[Unknown, fmpq](fmpq)
    for chance, rewards, nexts in _ways(case, sorted(set(x))):
        for later in product((False, True), repeat=len(x)):
            value = chance
            for y, is_later in zip(x, later, strict=True):
                value *= g if is_later else rewards[y]
            if value == 0:
                continue
            left = tuple(sorted(nexts[y] for y, is_later in zip(x, later, strict=True) if is_later))
            if left:
                terms[left] += value
            else:
                constant += value
    return constant, dict(terms)


def backup(case: RandomModel, x: Unknown, M: dict[Unknown, float]) -> float:
    """(T_n M)(x) for any moments of sorted tuples; under ``"none"`` the product over its distinct coordinates."""
    if case.sharing == "none" and len(set(x)) > 1:
        return prod(backup(case, (y,) * x.count(y), M) for y in sorted(set(x)))
    constant, terms = _equation(case, x)
    return nearest_float(constant) + sum(nearest_float(c) * M[y] for y, c in terms.items())


def exact_joint_moments(case: RandomModel, order: int) -> dict[Unknown, fmpq]:
    """E Π Z(x_i) for every sorted tuple of 1 to `order` available coordinates."""
    exists = case.available
    xs = [x for x in np.ndindex(case.policy.shape) if exists is None or exists[x]]
    tuples = [x for k in range(1, order + 1) for x in combinations_with_replacement(xs, k)]
    if case.sharing != "none":
        return _solve({x: _equation(case, x) for x in tuples})
    powers = _solve({x: _equation(case, x) for x in tuples if len(set(x)) == 1})
    return {x: prod((powers[(y,) * x.count(y)] for y in set(x)), start=fmpq(1)) for x in tuples}


def field_moments(case: RandomModel, order: int, horizon: int) -> list[np.ndarray]:
    """Moments of the returns of the first `horizon` steps of all coordinates, ``[S·A] * k`` for k = 1 … `order`.

    Not for ``"none"``, where coordinates that meet stay apart. All actions must be available.
    """
    states, scenarios, actions = case.rewards.shape
    xs = [(s, a) for s in range(states) for a in range(actions)]
    places = states if case.sharing == "state" else 1
    found = [np.zeros((len(xs),) * k) for k in range(1, order + 1)]

    def add(time: int, chance: float, value: np.ndarray) -> None:
        """Luck and actions of one step in front of returns `value` that start at the next."""
        if time == horizon:
            total: Any = chance
            for moments in found:
                total = np.multiply.outer(total, value)
                moments += total
            return
        for luck in product(range(scenarios), repeat=places):
            here = chance * prod(case.probabilities[s, w] for s, w in enumerate(luck))
            rows = [luck[s % places] for s, _ in xs]
            earned = np.array([case.rewards[s, w, a] for (s, a), w in zip(xs, rows, strict=True)])
            to = [int(case.successors[s, w, a]) for (s, a), w in zip(xs, rows, strict=True)]
            # Returns of zero steps do not depend on the next action.
            choices = product(range(actions), repeat=len(xs)) if time > 0 else [(0,) * len(xs)]
            for choice in choices:
                weight = here * prod(case.policy[s, c] for s, c in zip(to, choice, strict=True)) if time > 0 else here
                if weight > 0:
                    later = np.array([value[s * actions + c] for s, c in zip(to, choice, strict=True)])
                    add(time + 1, weight, earned + case.discount * later)

    add(0, 1.0, np.zeros(len(xs)))
    return found
