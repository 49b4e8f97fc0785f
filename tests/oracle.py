"""Independent oracle for the tests: joint moments in exact rational arithmetic, from the definitions.

Nothing here uses the library or a state-level shortcut.  A *coordinate* is ``x = (s, a)``; everything follows
from listing what one step can do to an ordered pair of coordinates:

* a repeated coordinate ``(x, x)`` is one random variable: one scenario, one successor, one next action;
* distinct coordinates in one state share the scenario; in distinct states they draw it independently
  (``sharing="state"``) or share it too (``"time"``); their next actions are always independent draws;
* a pair whose two next coordinates are equal has merged: it is a repeated coordinate from there on;
* under ``"none"`` the returns of distinct coordinates are independent: they neither share nor merge.

Floats are read as the rationals they are; each row of probabilities and policy is divided by its exact sum.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cache
from graphlib import TopologicalSorter
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from flint import fmpq, fmpq_mat
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

Coordinate = tuple[int, int]
Outcome = tuple[fmpq, fmpq, fmpq, Coordinate, Coordinate]  # probability, two rewards, two next coordinates
Unknown = tuple[Coordinate, ...]  # (x,) stands for E Z(x), and (x, y) with x <= y for E Z(x) Z(y)
Equation = tuple[fmpq, dict[Unknown, fmpq]]  # unknown = constant + sum of coefficient * unknown


def rational(value: Any) -> fmpq:
    """The exact value of a float, an integer or a fraction (NumPy scalars included)."""
    return fmpq(*value.as_integer_ratio())


def nearest_float(value: fmpq | None) -> float:
    """The float nearest to a rational (Python rounds a quotient of integers correctly); nan for ``None``."""
    return math.nan if value is None else int(value.p) / int(value.q)


_to_floats = np.vectorize(nearest_float, otypes=[np.float64])


def _exact_rows(rows: np.ndarray) -> list[list[fmpq]]:
    """Rows of weights as rationals, each divided by its exact sum."""
    exact = [[rational(v) for v in row] for row in rows.tolist()]
    return [[v / sum(row, fmpq(0)) for v in row] for row in exact]


def _joint(one: list[fmpq], other: list[fmpq], *, tied: bool) -> list[tuple[fmpq, int, int]]:
    """Pairs of indices with their positive probability: one draw for both when tied, else two draws."""
    pairs = product(range(len(one)), range(len(other)))
    draws = [(one[i] if tied else one[i] * other[j], i, j) for i, j in pairs if i == j or not tied]
    return [draw for draw in draws if draw[0] != 0]


class _ExactModel:
    """A model in rationals, with the outcomes of one step from a pair of coordinates."""

    def __init__(self, p: Any, R: Any, N: Any, discount: Any, pi: Any, sharing: str, available: Any) -> None:
        self.p = _exact_rows(np.broadcast_to(np.asarray(p), np.shape(R)[:2]))
        self.pi = _exact_rows(np.asarray(pi))
        self.R, self.N = np.asarray(R).tolist(), np.asarray(N).tolist()
        self.discount, self.sharing = rational(discount), sharing
        self.coordinates = [x for x in np.ndindex(np.shape(pi)) if available is None or available[x]]
        assert sharing in ("state", "time", "none")
        assert sharing != "time" or all(row == self.p[0] for row in self.p)

    def step(self, x: Coordinate, y: Coordinate) -> Iterator[Outcome]:
        """Every outcome of positive probability of one step from the pair ``(x, y)``."""
        (s, a), (t, b) = x, y
        for chance, w, v in _joint(self.p[s], self.p[t], tied=s == t or self.sharing == "time"):
            rx, ry, next_s, next_t = self.R[s][w][a], self.R[t][v][b], self.N[s][w][a], self.N[t][v][b]
            for weight, c, d in _joint(self.pi[next_s], self.pi[next_t], tied=x == y):
                yield chance * weight, rational(rx), rational(ry), (next_s, c), (next_t, d)


class ExactMoments(NamedTuple):
    """Exact moments: object arrays of ``flint.fmpq``, ``None`` at unavailable coordinates."""

    mean: np.ndarray  # [S, A], E Z(s,a)
    second: np.ndarray  # [S, A, S, A], E Z(s,a) Z(t,b)

    def covariance(self, s: int, a: int, t: int, b: int) -> fmpq | None:
        """``Cov(Z(s,a), Z(t,b))``."""
        moment = self.second[s, a, t, b]
        return None if moment is None else moment - self.mean[s, a] * self.mean[t, b]

    def covariance_blocks(self) -> np.ndarray:
        """``Cov(Z(s,a), Z(s,b))`` as an object array ``[S, A, A]``."""
        s, a, b = np.indices((*self.mean.shape, self.mean.shape[1]))
        return np.vectorize(self.covariance, otypes=[object])(s, a, s, b)

    def mean_float(self) -> np.ndarray:
        """The means, each rounded once."""
        return _to_floats(self.mean)

    def second_float(self) -> np.ndarray:
        """The second moments, each rounded once."""
        return _to_floats(self.second)

    def covariance_blocks_float(self) -> np.ndarray:
        """The same-state covariances ``[S, A, A]``, subtracted exactly and rounded once."""
        return _to_floats(self.covariance_blocks())


def _groups(equations: Mapping[Unknown, Equation]) -> list[list[Unknown]]:
    """Strongly connected groups of unknowns, each after every group it depends on."""
    place = {unknown: i for i, unknown in enumerate(equations)}
    edges = [(place[one], place[other]) for one, (_, terms) in equations.items() for other in terms]
    graph = coo_array((np.ones(len(edges)), np.transpose(edges)), shape=(len(place), len(place)))
    label = connected_components(graph, connection="strong")[1].tolist()
    members: dict[int, list[Unknown]] = {k: [] for k in label}
    for unknown, k in zip(equations, label, strict=True):
        members[k].append(unknown)
    needs: dict[int, set[int]] = {k: set() for k in label}
    for i, j in edges:
        needs[label[i]] |= {label[j]} - {label[i]}
    return [members[k] for k in TopologicalSorter(needs).static_order()]


def _solve(equations: Mapping[Unknown, Equation]) -> dict[Unknown, fmpq]:
    """The exact solution of all equations, by one dense solve per strongly connected group."""
    known: dict[Unknown, fmpq] = {}
    for group in _groups(equations):
        place = {unknown: i for i, unknown in enumerate(group)}
        matrix, right = fmpq_mat(len(group), len(group)), fmpq_mat(len(group), 1)
        for unknown, i in place.items():
            right[i, 0], terms = equations[unknown]
            matrix[i, i] = 1
            for other, c in terms.items():
                if other in place:
                    matrix[i, place[other]] -= c
                else:
                    right[i, 0] += c * known[other]
        try:
            values = matrix.solve(right).entries()
        except ZeroDivisionError:  # discount 1, and these unknowns lead to each other alone: nothing is paid any more
            assert all(right[i, 0] == 0 for i in place.values())
            values = [fmpq(0)] * len(group)
        known.update(zip(group, values, strict=True))
    return known


def exact_moments(
    p: Any, R: Any, N: Any, discount: Any, pi: Any, sharing: str = "state", available: Any = None
) -> ExactMoments:
    """The unique fixed point of the second-order joint Bellman operator, as exact rationals.

    Probabilities ``p[S,W]`` or ``p[W]``, rewards ``R[S,W,A]``, successors ``N[S,W,A]``, policy ``pi[S,A]``.
    """
    model = _ExactModel(p, R, N, discount, pi, sharing, available)
    g, xs = model.discount, model.coordinates
    equations: dict[Unknown, Equation] = {}
    for x, y in product(xs, xs):
        if x > y or (x != y and sharing == "none"):
            continue  # the first follows by symmetry, the second from the means
        moment, terms = fmpq(0), defaultdict[Unknown, fmpq](fmpq)
        for chance, rx, ry, next_x, next_y in model.step(x, y):
            moment += chance * rx * ry
            terms[(next_y,)] += g * chance * rx
            terms[(next_x,)] += g * chance * ry
            terms[min(next_x, next_y), max(next_x, next_y)] += g * g * chance
        equations[x, y] = moment, terms
    for x in xs:
        mean, terms = fmpq(0), defaultdict[Unknown, fmpq](fmpq)
        for chance, r, _, next_x, _ in model.step(x, x):
            mean += chance * r
            terms[(next_x,)] += g * chance
        equations[(x,)] = mean, terms
    solution = _solve(equations)
    means, second = np.full(np.shape(pi), None, object), np.full(np.shape(pi) * 2, None, object)
    for x in xs:
        means[x] = solution[(x,)]
    for x, y in product(xs, xs):
        apart = sharing == "none" and x != y
        second[x + y] = means[x] * means[y] if apart else solution[min(x, y), max(x, y)]
    return ExactMoments(means, second)


def max_abs_error(values: Any, exact: np.ndarray) -> float:
    """The largest ``|float - rational|`` over two arrays of one shape, found exactly, then rounded up.

    Where the rational is ``None`` the float must be nan and is skipped; any other mismatch gives ``inf``.
    """
    assert np.shape(values) == exact.shape
    worst = fmpq(0)
    for value, truth in zip(np.ravel(values).tolist(), exact.ravel().tolist(), strict=True):
        if truth is not None and math.isfinite(value):
            worst = max(worst, abs(rational(value) - truth))
        elif truth is not None or not math.isnan(value):
            return math.inf
    rounded = nearest_float(worst)
    return rounded if rational(rounded) >= worst else math.nextafter(rounded, math.inf)


class Backup:
    """The operator of a model on any moments (symmetric or not), in float64 over ordered pairs.

    Its terms are enumerated one by one, once for however many applications; it shares no enumeration with
    ``exact_moments``.  Under ``"none"`` distinct pairs are products of new means.
    """

    def __init__(self, p: Any, R: Any, N: Any, discount: Any, pi: Any, sharing: str, available=None) -> None:
        R, N, pi = np.asarray(R, np.float64), np.asarray(N), np.asarray(pi, np.float64)
        p = np.broadcast_to(np.asarray(p, np.float64), R.shape[:2])
        p, pi = p / p.sum(axis=1, keepdims=True), pi / pi.sum(axis=1, keepdims=True)
        g, support = float(discount), [np.flatnonzero(row) for row in pi]
        self.shape, num_actions, width = pi.shape, pi.shape[1], pi.size
        exists = np.ones(pi.shape, bool) if available is None else np.asarray(available)
        self.exists, xs = exists, [x for x in np.ndindex(pi.shape) if exists[x]]
        means, pairs = [], []  # where to, and the factors of what is added there
        for s, a in xs:
            for w, n in enumerate(N[s, :, a]):
                for c in support[n]:
                    weight = p[s, w] * pi[n, c]
                    means.append((s * num_actions + a, weight * R[s, w, a], weight * g, n * num_actions + c))
        for (s, a), (t, b) in product(xs, xs):
            one, shared = (s, a) == (t, b), s == t or sharing == "time"
            if sharing == "none" and not one:
                continue
            target = (s * num_actions + a) * width + t * num_actions + b
            for w, v in ((w, v) for w, v in np.ndindex(p.shape[1], p.shape[1]) if w == v or not shared):
                chance = p[s, w] if shared else p[s, w] * p[t, v]
                r, k, n, m = R[s, w, a], R[t, v, b], N[s, w, a], N[t, v, b]
                for c, d in ((c, d) for c, d in product(support[n], support[m]) if c == d or not one):
                    f = chance * (pi[n, c] if one else pi[n, c] * pi[m, d])
                    places = n * num_actions + c, m * num_actions + d
                    pairs.append((target, f * r * k, f * g * r, f * g * k, f * g * g, *places))
        self.means, self.pairs = ([np.array(each) for each in zip(*rows, strict=True)] for rows in (means, pairs))
        self.is_apart = sharing == "none"

    def __call__(self, mean: Any, second: Any) -> tuple[np.ndarray, np.ndarray]:
        old, pair, width = np.ravel(mean), np.reshape(second, (-1,)), self.exists.size
        target, constant, factor, x = self.means
        new = np.bincount(target, constant + factor * old[x], width)
        target, constant, by_y, by_x, by_pair, x, y = self.pairs
        terms = constant + by_y * old[y] + by_x * old[x] + by_pair * pair[x * width + y]
        both = np.bincount(target, terms, width * width).reshape(width, width)
        if self.is_apart:
            both = np.where(np.eye(width, dtype=bool), both, np.outer(new, new))
        there = self.exists.ravel()
        new = np.where(there, new, np.nan).reshape(self.shape)
        return new, np.where(np.outer(there, there), both, np.nan).reshape(self.shape * 2)


def backup(
    p: Any, R: Any, N: Any, discount: Any, pi: Any, sharing: str, mean: Any, second: Any, available=None
) -> tuple[np.ndarray, np.ndarray]:
    """One application of the operator."""
    return Backup(p, R, N, discount, pi, sharing, available)(mean, second)


def finite_horizon_law(
    p: Any, R: Any, N: Any, discount: Any, pi: Any, sharing: str, x: Coordinate, y: Coordinate, horizon: int
) -> dict[tuple[Fraction, Fraction], Fraction]:
    """The exact joint law of the discounted returns of ``x`` and ``y`` over their first ``horizon`` steps."""
    model = _ExactModel(p, R, N, discount, pi, sharing, None)

    @cache
    def law(x: Coordinate, y: Coordinate, steps: int) -> dict[tuple[fmpq, fmpq], fmpq]:
        if steps == 0:
            return {(fmpq(0), fmpq(0)): fmpq(1)}
        if sharing == "none" and x != y:
            both = product(law(x, x, steps).items(), law(y, y, steps).items())
            return {(zx, zy): c * d for ((zx, _), c), ((_, zy), d) in both}
        out: dict[tuple[fmpq, fmpq], fmpq] = defaultdict(fmpq)
        for chance, rx, ry, next_x, next_y in model.step(x, y):
            for (zx, zy), c in law(next_x, next_y, steps - 1).items():
                out[rx + model.discount * zx, ry + model.discount * zy] += chance * c
        return out

    atoms = [[Fraction(int(v.p), int(v.q)) for v in (*z, c)] for z, c in law(x, y, horizon).items()]
    return {(zx, zy): c for zx, zy, c in atoms}


class RandomModel(NamedTuple):
    """A model in the order of the arguments of ``exact_moments``: ``exact_moments(*model)`` works."""

    probabilities: np.ndarray
    rewards: np.ndarray
    successors: np.ndarray
    discount: float
    policy: np.ndarray
    sharing: str
    available: np.ndarray | None


def _random_rows(rng: np.random.Generator, mask: np.ndarray, drop: float) -> np.ndarray:
    """Random distributions on the mask, one a row; all but the largest entry are 0 with chance ``drop``."""
    weights = rng.dirichlet(np.ones(mask.shape[1]), size=len(mask)) * mask
    weights[(weights < weights.max(axis=1, keepdims=True)) & (rng.random(mask.shape) < drop)] = 0.0
    return weights / weights.sum(axis=1, keepdims=True)


def random_model(
    rng: np.random.Generator,
    S: int,
    W: int,
    A: int,
    *,
    discount: float,
    sharing: str = "state",
    deterministic: bool = False,
    negative: bool = True,
    absorbing: bool = False,
    unavailable: bool = False,
    dtype: Any = np.float64,
) -> RandomModel:
    """An asymmetric random model: some scenarios have probability 0, some send every action to one state.

    Some available actions have ``pi = 0``.  ``absorbing``: the last state is absorbing, half of the time with
    zero reward.  ``unavailable`` (needs ``A > 1``): at least one action is; its table entries are decoys.
    """
    p = _random_rows(rng, np.ones((S, W), bool), drop=0.15).astype(dtype)
    p = p[np.zeros(S, int)] if sharing == "time" else p
    R = rng.uniform(-1.5 if negative else 0.0, 1.5, size=(S, W, A)).astype(dtype)
    N = rng.integers(S, size=(S, W, A))
    N = np.where(rng.random((S, W, 1)) < 0.3, N[:, :, :1], N)
    if absorbing:
        N[-1], R[-1] = S - 1, R[-1] * rng.integers(2)
    usable = rng.random((S, A)) < (0.6 if unavailable else 1.0)
    if unavailable:
        usable[rng.integers(S), rng.integers(A)] = False
        usable[~usable.any(axis=1), rng.integers(A)] = True
    pi = _random_rows(rng, usable, drop=1.0 if deterministic else 0.15).astype(dtype)
    return RandomModel(p, R, N, discount, pi, sharing, usable if unavailable else None)
