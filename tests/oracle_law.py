"""Independent oracle for laws of gaps: exact finite laws in rationals, and who arrives first in the windy gridworld.

Nothing here uses the library. A law is exact when the futures end: over a horizon, or in models whose states lead, in
layers, to states that never change again and pay the same amount for ever.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from oracle import Coordinate, RandomModel, _ExactModel

Atom = tuple[Fraction, bool, bool]  # the gap, whether the branches are one, whether they never differed


@dataclass(frozen=True)
class ExactLaw:
    """The law of a gap on finitely many values, all in rationals."""

    values: list[Fraction]  # ascending
    chances: list[Fraction]
    merge: Fraction  # P(the branches become one)
    level: Fraction  # P(no reward difference ever)

    @cached_property
    def _sums(self) -> tuple[list[Fraction], list[Fraction]]:
        """P(G ≤ value) and E[G; G ≤ value] after the first 0, 1, 2, … values."""
        masses = accumulate(self.chances, initial=Fraction(0))
        parts = accumulate((z * p for z, p in zip(self.values, self.chances, strict=True)), initial=Fraction(0))
        return list(masses), list(parts)

    def cdf(self, t: float | Fraction) -> Fraction:
        """P(G ≤ t)."""
        return self._sums[0][bisect_right(self.values, Fraction(t))]

    def below(self, t: float | Fraction) -> Fraction:
        """P(G < t)."""
        return self._sums[0][bisect_left(self.values, Fraction(t))]

    @property
    def signs(self) -> tuple[Fraction, Fraction, Fraction]:
        """P(G > 0), P(G = 0), P(G < 0)."""
        return 1 - self.cdf(0), self.cdf(0) - self.below(0), self.below(0)

    @property
    def mean(self) -> Fraction:
        """E G."""
        return self._sums[1][-1]

    def quantile(self, q: float) -> Fraction:
        """inf{t: P(G ≤ t) ≥ q}."""
        return self.values[bisect_left(self._sums[0], Fraction(q)) - 1]

    def cvar(self, alpha: float) -> Fraction:
        """The mean of the lowest `alpha` fraction."""
        masses, parts = self._sums
        i = bisect_right(masses, Fraction(alpha)) - 1
        rest = Fraction(alpha) - masses[i]
        return (parts[i] + (rest * self.values[i] if rest > 0 else 0)) / Fraction(alpha)

    def stop_loss(self, t: float | Fraction) -> Fraction:
        """E(G − t)⁺."""
        masses, parts = self._sums
        i = bisect_right(self.values, Fraction(t))
        return parts[-1] - parts[i] - Fraction(t) * (1 - masses[i])


def exact_law(
    case: RandomModel, state: int, action: int, other: int, steps: int, pay: dict[int, float] | None = None
) -> ExactLaw:
    """The law of ``Z(state, action) − Z(state, other)``.

    Without `pay`, over a horizon of so many `steps`. With it, over an endless future in which every branch stands after
    `steps` steps in a state that it never leaves; ``pay[s]`` is what such a state pays at every step.
    """
    model = _ExactModel(*case[:6], case.available)
    g = _fraction(model.discount)
    tail = {} if pay is None else {s: Fraction(c) / (1 - g) for s, c in pay.items()}

    def ended(x: Coordinate, y: Coordinate) -> Atom:
        if pay is None:
            return Fraction(0), False, True
        # Two branches in one state that never changes draw the same action sooner or later.
        return tail[x[0]] - tail[y[0]], case.sharing != "none" and x[0] == y[0], pay[x[0]] == pay[y[0]]

    @cache
    def law(x: Coordinate, y: Coordinate, left: int) -> dict[Atom, Fraction]:
        if x == y and case.sharing != "none":
            return {(Fraction(0), True, True): Fraction(1)}
        if left == 0:
            return {ended(x, y): Fraction(1)}
        found: dict[Atom, Fraction] = defaultdict(Fraction)
        for chance, r, k, next_x, next_y in _steps(model, x, y):
            now = r - k
            for (z, is_one, is_level), p in law(next_x, next_y, left - 1).items():
                found[now + g * z, is_one, is_level and now == 0] += chance * p
        return found

    joint = law((state, action), (state, other), steps)
    values: dict[Fraction, Fraction] = defaultdict(Fraction)
    for (z, _, _), p in joint.items():
        values[z] += p
    merge = sum((p for (_, is_one, _), p in joint.items() if is_one), Fraction(0))
    level = sum((p for (_, _, is_level), p in joint.items() if is_level), Fraction(0))
    ordered = sorted(values)
    return ExactLaw(ordered, [values[z] for z in ordered], merge, level)


def _steps(model: _ExactModel, x: Coordinate, y: Coordinate) -> Any:
    """One step of two branches that are not one; under ``"none"`` each has a scenario of its own, wherever it is."""
    if model.sharing != "none":
        for chance, r, k, next_x, next_y in model.step(x, y):
            yield _fraction(chance), _fraction(r), _fraction(k), next_x, next_y
        return
    for first, r, _, next_x, _ in model.step(x, x):
        for second, k, _, next_y, _ in model.step(y, y):
            yield _fraction(first * second), _fraction(r), _fraction(k), next_x, next_y


def _fraction(value: Any) -> Fraction:
    return Fraction(int(value.p), int(value.q))


# -- models whose futures end ----------------------------------------------------------------------------------


class Ending(NamedTuple):
    """A model with an exact endless law: after `steps` steps from state 0 every branch is where it stays."""

    case: RandomModel
    steps: int
    pay: dict[int, float]


def ending_model(
    rng: np.random.Generator,
    *,
    discount: float,
    sharing: str,
    amounts: np.ndarray,
    pays: tuple[float, ...],
    width: int = 2,
    layers: int = 2,
    scenarios: int = 2,
    actions: int = 2,
    deterministic: bool = False,
) -> Ending:
    """State 0, then `layers` layers of `width` states each, then a state for ever for each of `pays`.

    Rewards are drawn from `amounts`. Some successors lie beyond the next layer, some scenarios have probability 0.
    """
    size = 1 + layers * width + len(pays)
    stays = range(size - len(pays), size)
    p = rng.dirichlet(np.ones(scenarios), size=size)
    p[rng.random(size) < 0.2] = np.eye(scenarios)[0]
    p = p[np.zeros(size, int)] if sharing == "time" else p
    R = rng.choice(amounts, size=(size, scenarios, actions))
    N = np.zeros((size, scenarios, actions), int)
    for s in range(stays.start):
        layer = 0 if s == 0 else 1 + (s - 1) // width
        first = 1 + layer * width
        N[s] = rng.integers(first, min(first + width + 1, size) if layer < layers else size, size=N[s].shape)
    for s, c in zip(stays, pays, strict=True):
        N[s], R[s] = s, c
    pi = rng.dirichlet(np.ones(actions), size=size)
    if deterministic:
        pi = np.eye(actions)[rng.integers(actions, size=size)]
    case = RandomModel(p, R, N, discount, pi, sharing, None)
    return Ending(case, layers + 1, dict(zip(stays, pays, strict=True)))


# -- the windy gridworld ---------------------------------------------------------------------------------------


def first_arrivals(successors: np.ndarray, gust: float, policy: np.ndarray, goal: int, sharing: str) -> np.ndarray:
    """P(the branch of action a reaches the goal first) and P(both at the same time), ``[2, S, A, A]``.

    ``successors[S, 2, A]`` for calm and gust. Two states ahead of their moves are solved for at once: who is first,
    and who arrives together or has become one branch, are absorption probabilities of the pair chain.
    """
    size, _, actions = successors.shape
    chance, choice = np.array([1 - gust, gust]), policy.argmax(axis=1)
    own = np.zeros((2, size, size))
    for w in range(2):
        own[w, np.arange(size), successors[np.arange(size), w, choice]] = 1.0
    alone = np.einsum("w,wst->st", chance, own)
    both = (
        sum(c * np.kron(k, k) for c, k in zip(chance, own, strict=True)) if sharing == "time" else np.kron(alone, alone)
    )
    s, t = np.divmod(np.arange(size * size), size)
    is_first, is_last = (s == goal) & (t != goal), (s != goal) & (t == goal)
    is_level = (s == goal) & (t == goal) if sharing == "none" else s == t
    is_over = is_first | is_last | is_level
    matrix = np.eye(size * size) - np.where(is_over[:, None], 0.0, both)
    solved = np.linalg.solve(matrix, np.stack([is_first, is_level], axis=1).astype(float))
    ahead = solved.T.reshape(2, size, size)
    found = np.zeros((2, size, actions, actions))
    for a in range(actions):
        for b in range(actions):
            for w, v in np.ndindex(2, 2):
                weight = chance[w] * chance[v] if sharing == "none" else chance[w] * (w == v)
                found[:, :, a, b] += weight * ahead[:, successors[:, w, a], successors[:, v, b]]
            if a == b:
                found[:, :, a, b] = np.array([0.0, 1.0])[:, None]
    return found
