"""What moments say of a law: closed forms, an independent linear programme, known laws, and sequences of no law.

The library builds quadrature rules and proves each bound with one polynomial. The oracle here is of another kind: a
linear programme over weights on a growing set of points, solved by HiGHS, which only ever sees laws with the moments.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import pytest
from numpy.polynomial.polynomial import polyval
from scipy.optimize import OptimizeResult, linprog, minimize_scalar
from zoo import slow_or_long

from jointmdp import bounds
from jointmdp.bounds import MomentBounds
from jointmdp.exact.bounds.moment_problem import MomentProblem, MomentSequence, Pieces, least
from jointmdp.ground.errors import ModelError

INF = math.inf
SHARP = 1e-9  # what the page promises of well-conditioned moments
LP = 1e-6  # what the linear programme is good for: constraints hold to 1e-10 (1e-8 in hard cases), duals are about 1e2

Lines = tuple[tuple[float, float], tuple[float, float]]
Polynomial = np.polynomial.Polynomial


# -- laws ------------------------------------------------------------------------------------------------------


class Law(NamedTuple):
    """Atoms and weights, the weights adding up to 1."""

    atoms: np.ndarray
    weights: np.ndarray

    def moments(self, order: int, centre: float = 0.0) -> list[float]:
        """Correctly rounded moments about `centre`."""
        pairs = [(Fraction(float(w)), Fraction(float(x)) - Fraction(centre)) for x, w in zip(*self, strict=True)]
        total = sum(w for w, _ in pairs)
        return [float(sum(w * x**k for w, x in pairs) / total) for k in range(1, order + 1)]

    def cdf(self, t: float) -> float:
        return float(np.sum(self.weights[self.atoms <= t]))

    def cdf_left(self, t: float) -> float:
        return float(np.sum(self.weights[self.atoms < t]))

    def stop_loss(self, t: float) -> float:
        return float(self.weights @ np.maximum(self.atoms - t, 0))

    def quantile(self, q: float) -> float:
        order = np.argsort(self.atoms)
        index = int(np.searchsorted(np.cumsum(self.weights[order]), q))
        return float(self.atoms[order][min(index, len(order) - 1)])

    def cvar(self, alpha: float) -> float:
        order = np.argsort(self.atoms)
        taken = np.diff(np.minimum(np.cumsum(self.weights[order]), alpha), prepend=0.0)
        return float(taken @ self.atoms[order]) / alpha


def random_law(rng: np.random.Generator, size: int) -> Law:
    """A standardised law: symmetric or skewed atoms, uneven weights."""
    atoms = rng.normal(size=size) if rng.random() < 0.6 else rng.gamma(1.5, size=size)
    weights = rng.dirichlet(np.ones(size))
    atoms = atoms - weights @ atoms
    return Law(atoms / math.sqrt(weights @ atoms**2), weights)


def random_support(rng: np.random.Generator, law: Law, kind: int) -> tuple[float, float]:
    """The whole line, two half lines, an interval, by kind 0..3."""
    low, high = float(np.min(law.atoms) - rng.uniform(0.05, 0.5)), float(np.max(law.atoms) + rng.uniform(0.05, 0.5))
    return [(-INF, INF), (low, INF), (-INF, high), (low, high)][kind]


# -- the linear programme --------------------------------------------------------------------------------------


class Programme:
    """Laws with given moments, as weights on points; a point x counts (1+x²)^{n/2} times, so that none is too far.

    Mass that runs off to infinity leaves the top moment alone, so it is one more column; of f it keeps nothing, or its
    slope when only the mean is known.
    """

    def __init__(self, law: Law, order: int, support: tuple[float, float]) -> None:
        self.order, (self.lo, self.hi) = order, support
        self.moments = np.array([1.0, *law.moments(order)])
        angles = np.linspace(math.atan(self.lo), math.atan(self.hi), 202)[1:-1]
        self.points = np.concatenate([law.atoms, np.tan(angles), [e for e in support if math.isfinite(e)]])
        self.far = [(1.0, 1)] * math.isinf(self.hi) + [((-1.0) ** order, 0)] * math.isinf(self.lo)

    def size(self, x: np.ndarray) -> np.ndarray:
        return (1 + x**2) ** (self.order / 2)

    def columns(self, x: np.ndarray) -> np.ndarray:
        return np.vander(x, self.order + 1, increasing=True).T / self.size(x)

    def dips(self, g: Polynomial, low: float, high: float) -> list[float]:
        """Where g/(1+x²)^{n/2} has a minimum below zero."""
        turns = (g.deriv() * Polynomial([1, 0, 1]) - self.order * Polynomial([0, 1]) * g).roots().real
        turns = turns[(turns > low) & (turns < high)]
        return list(turns[g(turns) / self.size(turns) < -1e-10])

    def most(self, t: float, lines: Lines, at_t: int) -> float:
        """max E f, f being one line below t and another above; at t itself the line `at_t` counts."""
        points = np.append(self.points, t)
        for _ in range(30):
            worth = np.where(points < t, *([a + b * points for a, b in lines]))
            worth = np.where(points == t, lines[at_t][0] + lines[at_t][1] * t, worth) / self.size(points)
            far = np.array([[0.0] * self.order + [top] for top, _ in self.far]).reshape(-1, self.order + 1).T
            gain = [(2 * side - 1) * lines[side][1] if self.order == 1 else 0.0 for _, side in self.far]
            found = solve(-np.append(worth, gain), A_eq=np.hstack([self.columns(points), far]), b_eq=self.moments)
            p = Polynomial(-found.eqlin.marginals)
            ends = ((self.lo, t), (t, self.hi))
            new = [x for line, end in zip(lines, ends, strict=True) for x in self.dips(p - Polynomial(line), *end)]
            new = np.setdiff1d(new, points)
            if not len(new):
                break
            points = np.append(points, new)
        return -float(found.fun)

    def least_cvar(self, alpha: float) -> float:
        """max over p and t of t − E p/α with p ≥ 0 and p(x) ≥ t − x: one programme for both."""
        points, n = self.points, self.order
        for _ in range(30):
            rows, size = self.columns(points).T, self.size(points)
            above = np.vstack([np.c_[-rows, 0 * size], np.c_[-rows, 1 / size]])
            limits = np.concatenate([0 * size, points / size])
            for top, side in self.far:
                above = np.vstack([above, [0.0] * n + [-top, 0.0]])
                limits = np.append(limits, -1.0 if n == 1 and side == 0 else 0.0)
            free = [(None, None)] * (n + 1) + [(-50, 50)]
            found = solve(np.append(self.moments / alpha, -1), A_ub=above, b_ub=limits, bounds=free)
            p, t = Polynomial(found.x[:-1]), found.x[-1]
            new = self.dips(p, self.lo, self.hi) + self.dips(p - Polynomial([t, -1]), self.lo, self.hi)
            new = np.setdiff1d(new, points)
            if not len(new):
                break
            points = np.append(points, new)
        return -float(found.fun)

    def largest_cvar(self, alpha: float) -> float:
        """max over t of t − (least E(t−X)⁺)/α."""
        low, high = max(self.lo, -math.sqrt((1 - alpha) / alpha)), min(self.hi, math.sqrt(alpha / (1 - alpha)))

        def loss(t: float) -> float:
            return -t - self.most(t, ((-t, 1.0), (0.0, 0.0)), 0) / alpha

        return -float(minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-6}).fun)


def solve(cost: np.ndarray, **constraints: object) -> OptimizeResult:
    """At the tightest tolerance at which HiGHS comes to an end."""
    for method, tolerance in (("highs", 1e-10), ("highs", 1e-9), ("highs", 1e-8), ("highs-ipm", 1e-9)):
        options = {"primal_feasibility_tolerance": tolerance, "dual_feasibility_tolerance": tolerance}
        found = linprog(cost, method=method, options=options, **constraints)
        if found.status == 0:
            break
    assert found.status == 0, found.message
    return found


def compare(seed: int, kind: int, order: int) -> None:
    """All bounds at one place against the programme."""
    rng = np.random.default_rng([seed, kind, order])
    law = random_law(rng, int(rng.integers(12, 30)))
    support = random_support(rng, law, kind)
    t = float(rng.uniform(max(-2.5, support[0]), min(2.5, support[1])))
    found, programme = MomentBounds(law.moments(order), support), Programme(law, order, support)
    step, call = ((1.0, 0.0), (0.0, 0.0)), ((0.0, 0.0), (-t, 1.0))
    minus_step, minus_call = ((-1.0, 0.0), (0.0, 0.0)), ((0.0, 0.0), (t, -1.0))
    most, least_ = programme.most(t, step, 0), -programme.most(t, minus_step, 1)
    assert found.cdf(t) == pytest.approx((least_, most), abs=LP)
    assert found.cdf_left(t) == pytest.approx((least_, most), abs=LP)
    excess = found.stop_loss(t)
    assert excess.lower == pytest.approx(-programme.most(t, minus_call, 0), abs=LP)
    if order > 1 or kind:
        assert excess.upper == pytest.approx(programme.most(t, call, 0), abs=LP)


@pytest.mark.parametrize("kind", range(4))
@pytest.mark.parametrize("order", [1, 3, 6])
def test_agrees_with_the_linear_programme(order: int, kind: int) -> None:
    compare(0, kind, order)


@pytest.mark.slow
@pytest.mark.parametrize("kind", range(4))
@pytest.mark.parametrize("order", range(1, 9))
@pytest.mark.parametrize("seed", slow_or_long(range(1, 6), 1))
def test_agrees_with_the_linear_programme_many_times(seed: int, order: int, kind: int) -> None:
    compare(seed, kind, order)


def compare_cvar(seed: int, kind: int, order: int, alpha: float) -> None:
    rng = np.random.default_rng([seed, kind, order])
    law = random_law(rng, int(rng.integers(12, 30)))
    support = random_support(rng, law, kind)
    found, programme = MomentBounds(law.moments(order), support).cvar(alpha), Programme(law, order, support)
    assert found.lower == pytest.approx(programme.least_cvar(alpha), abs=LP / alpha)
    assert found.upper == pytest.approx(programme.largest_cvar(alpha), abs=LP / alpha)


@pytest.mark.parametrize(("kind", "order", "alpha"), [(3, 4, 0.05)])
def test_cvar_agrees_with_the_linear_programme(kind: int, order: int, alpha: float) -> None:
    compare_cvar(0, kind, order, alpha)


@pytest.mark.slow
@pytest.mark.parametrize("kind", slow_or_long(range(4), 1))  # the last one by day, of one order
@pytest.mark.parametrize(("order", "alpha"), [(2, 0.05), (3, 0.5), (4, 0.05), (5, 0.5), (6, 0.05), (7, 0.5), (8, 0.05)])
def test_cvar_agrees_with_the_linear_programme_many_times(order: int, kind: int, alpha: float) -> None:
    compare_cvar(1, kind, order, alpha)


# -- closed forms ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("t", [-3.0, -0.2, 0.7, 1.5, 12.0])
def test_two_moments_have_closed_forms(t: float) -> None:
    mean, variance = 0.7, 2.5
    found = MomentBounds([mean, variance + mean**2])
    reach = mean - t
    assert found.cdf(t).upper == pytest.approx(bounds.cantelli(reach, variance), abs=SHARP)
    assert found.cdf(t).lower == pytest.approx(1 - bounds.cantelli(-reach, variance), abs=SHARP)
    assert found.stop_loss(t).lower == pytest.approx(max(reach, 0), abs=SHARP)
    assert found.stop_loss(t).upper == pytest.approx((math.hypot(reach, math.sqrt(variance)) + reach) / 2, abs=SHARP)


@pytest.mark.parametrize("q", [0.05, 0.5, 0.9])
def test_two_moments_have_closed_forms_for_quantiles_and_tails(q: float) -> None:
    mean, std = 0.7, math.sqrt(2.5)
    found = MomentBounds([0.0, 2.5], centre=mean)
    low, high = mean - std * math.sqrt((1 - q) / q), mean + std * math.sqrt(q / (1 - q))
    assert found.quantile(q) == pytest.approx((low, high), abs=SHARP)
    assert found.cvar(q) == pytest.approx((low, mean), abs=SHARP / q)


def test_the_worst_twentieth_is_436_standard_deviations_below_the_mean_at_most() -> None:
    assert MomentBounds([0.0, 1.0]).cvar(0.05).lower == pytest.approx(-math.sqrt(19), abs=SHARP)


def test_a_support_sharpens_two_moments() -> None:
    """μ = 0.3, σ² = 0.03 at t = 0.28: on [0, 1] the nodes are 0, t and 1; (1−t)·t·w_t = E X(1−X) fixes the weights."""
    moments = [0.3, 0.03 + 0.09]
    middle = (0.3 - 0.12) / (0.28 * 0.72)
    top = 0.3 - 0.28 * middle
    assert MomentBounds(moments, (0, 1)).cdf(0.28) == pytest.approx((1 - middle - top, 1 - top), abs=SHARP)
    assert MomentBounds(moments).cdf(0.28) == pytest.approx((0, 0.03 / (0.03 + 0.02**2)), abs=SHARP)


@pytest.mark.parametrize("t", [0.5, 1.0, 4.0])
def test_a_mean_and_a_lower_end_are_markovs_inequality(t: float) -> None:
    found = MomentBounds([1.5], (0, None))
    assert found.cdf(t).lower == pytest.approx(max(1 - 1.5 / t, 0), abs=SHARP)
    assert found.stop_loss(t) == pytest.approx((max(1.5 - t, 0), 1.5), abs=SHARP)
    q = t / 5
    assert found.quantile(q) == pytest.approx((0, 1.5 / (1 - q)), abs=1e-8)  # the last is where 1 − 1.5/t passes q


def test_an_odd_moment_helps_only_with_a_support() -> None:
    moments = [0.0, 1.0, 1.5]
    assert MomentBounds(moments).cdf(0.4) == pytest.approx(MomentBounds(moments[:2]).cdf(0.4), abs=SHARP)
    with_end = MomentBounds(moments, (-1, None)).cdf(0.4)
    assert with_end.width < MomentBounds(moments[:2], (-1, None)).cdf(0.4).width - 0.01


def test_four_moments_of_the_normal_law_at_its_mean() -> None:
    """The rule with a node at 0 has −√3, 0, √3 with weights 1/6, 2/3, 1/6."""
    assert MomentBounds([0, 1, 0, 3]).cdf(0) == pytest.approx((1 / 6, 5 / 6), abs=SHARP)


# -- sharpness: the extreme laws exist -------------------------------------------------------------------------


@pytest.mark.parametrize("order", [2, 3, 5, 6, 8])
@pytest.mark.parametrize("kind", range(4))
def test_extreme_laws_have_the_moments_and_attain_the_bounds(order: int, kind: int) -> None:
    rng = np.random.default_rng([order, kind])
    law = random_law(rng, 25)
    support = random_support(rng, law, kind)
    moments = law.moments(order)
    problem = MomentProblem(MomentSequence(moments, [0.0] * order, support, 0.0))
    order -= kind == 0 and order % 2  # without a support the last odd moment says nothing
    t = float(rng.uniform(-1, 1))
    rule = problem.canonical(order, float(problem.sequence.standard(Fraction(t))))
    assert rule is not None
    atoms = np.array([float(problem.sequence.original(y)) for y in rule.nodes])
    assert np.all(rule.weights > 0)
    assert np.all((atoms >= support[0] - 1e-9) & (atoms <= support[1] + 1e-9))
    # A node at infinity takes a part of the last moment, which is then attained in a limit only.
    ends = np.sum(np.isin(rule.nodes, (problem.lo, problem.hi)))
    count = order if len(atoms) * 2 - ends == order + 2 else order - 1
    scale = np.array([np.abs(rule.weights) @ np.abs(atoms) ** k for k in range(1, count + 1)])
    reached = np.array([rule.weights @ atoms**k for k in range(1, count + 1)])
    assert np.all(np.abs(reached - moments[:count]) <= 1e-9 * scale)
    extreme = Law(atoms, rule.weights)
    found = MomentBounds(moments, support)
    is_t = np.abs(atoms - t) < 1e-12
    assert found.cdf(t).lower == pytest.approx(float(np.sum(rule.weights[(atoms < t) & ~is_t])), abs=SHARP)
    assert found.cdf(t).upper == pytest.approx(float(np.sum(rule.weights[(atoms < t) | is_t])), abs=SHARP)
    assert found.stop_loss(t).lower == pytest.approx(extreme.stop_loss(t), abs=SHARP)


@pytest.mark.parametrize("order", [2, 4, 6, 8])
def test_the_largest_excess_is_attained(order: int) -> None:
    law = random_law(np.random.default_rng(order), 25)
    moments = law.moments(order)
    problem = MomentProblem(MomentSequence(moments, [0.0] * order, (-INF, INF), 0.0))
    y = 0.3
    t = float(problem.sequence.original(y))
    _, rule = next(problem._straddling(Pieces(y, (0.0, 0.0), (-y, 1.0)), order))
    atoms = np.array([float(problem.sequence.original(node)) for node in rule.nodes])
    reached = [rule.weights @ atoms**k for k in range(1, order + 1)]
    assert reached == pytest.approx(moments, rel=1e-9, abs=1e-9)
    assert MomentBounds(moments).stop_loss(t).upper == pytest.approx(Law(atoms, rule.weights).stop_loss(t), abs=SHARP)


def test_quantiles_are_where_the_probabilities_pass_q() -> None:
    found = MomentBounds([0, 1, 0.5, 3, 2, 14])
    for q in (0.1, 0.6):
        low, high = found.quantile(q)
        assert found.cdf(low - 1e-7).upper < q <= found.cdf(low + 1e-7).upper
        assert found.cdf(high - 1e-7).lower < q <= found.cdf(high + 1e-7).lower


def test_the_search_for_the_largest_cvar_meets_one_hill() -> None:
    """t − (least E(t−X)⁺)/α has one maximum for every α iff the least E(t−X)⁺ is convex in t."""
    for trial in range(8):
        rng = np.random.default_rng(trial)
        law = random_law(rng, int(rng.integers(5, 20)))
        found = MomentBounds(law.moments(2 + trial % 7), random_support(rng, law, trial % 4))
        places = np.linspace(max(found.support[0], -2.5), min(found.support[1], 2.5), 21)
        least_put = np.array([found.stop_loss(t).lower + t for t in places])  # less the mean
        assert np.all(np.diff(least_put, 2) > -1e-10)


def test_integrated_quantiles_are_not_the_tail_mean() -> None:
    """No one law has all the lowest quantiles, so their mean is far below: −8.87 against −4.36 for two moments."""
    alpha = 0.05
    integrated = -(math.sqrt(alpha * (1 - alpha)) + math.asin(math.sqrt(alpha))) / alpha
    found = MomentBounds([0.0, 1.0])
    roots = (np.arange(20) + 0.5) / 20  # u = α v² takes the singularity at 0 away
    mean = np.mean([found.quantile(float(alpha * v * v)).lower * 2 * v for v in roots])
    assert mean == pytest.approx(integrated, abs=1e-2)
    assert found.cvar(alpha).lower > integrated + 4


# -- the truth is inside ---------------------------------------------------------------------------------------


def normal_moments(order: int, mean: float, std: float, centre: float) -> np.ndarray:
    """By the recursion E(X−c)^{k+1} = (μ−c) E(X−c)ᵏ + k σ² E(X−c)^{k−1}."""
    found = [1.0, mean - centre]
    for k in range(1, order):
        found.append((mean - centre) * found[k] + k * std**2 * found[k - 1])
    return np.array(found[1 : order + 1])


MIXTURE = ((0.7, 0.0, 1.0), (0.3, 4.0, 0.5))

KNOWN: dict[str, tuple[list[float], tuple[float | None, float | None] | None, Callable[[float], float]]] = {
    "normal": (list(normal_moments(10, 0.0, 1.0, 0.0)), None, NormalDist().cdf),
    "exponential": ([math.factorial(k) for k in range(1, 11)], (0, None), lambda t: 1 - math.exp(-max(t, 0.0))),
    "exponential, support untold": (
        [math.factorial(k) for k in range(1, 11)],
        None,
        lambda t: 1 - math.exp(-max(t, 0.0)),
    ),
    "uniform": ([1 / (k + 1) for k in range(1, 11)], (0, 1), lambda t: min(max(t, 0.0), 1.0)),
    "lognormal": (
        [math.exp(k * k / 2) for k in range(1, 9)],
        (0, None),
        lambda t: NormalDist().cdf(math.log(t)) if t > 0 else 0.0,
    ),
    "mixture": (
        list(sum(w * normal_moments(10, m, s, 0.0) for w, m, s in MIXTURE)),
        None,
        lambda t: sum(w * NormalDist(m, s).cdf(t) for w, m, s in MIXTURE),
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_laws_lie_between_the_bounds(name: str) -> None:
    moments, support, cdf = KNOWN[name]
    for order in (1, 3, 4, 8, len(moments)):
        found = MomentBounds(moments[:order], support)
        for t in (-1.3, 0.0, 0.4, 1.0, 2.2, 5.0):
            assert cdf(t) in found.cdf(t)
            assert cdf(t) in found.cdf_left(t)


@pytest.mark.parametrize("name", KNOWN)
def test_more_moments_never_say_less(name: str) -> None:
    moments, support, _ = KNOWN[name]
    asked = [("cdf", 0.4), ("cdf", 1.7), ("stop_loss", 0.4), ("quantile", 0.3)]
    last = [(-INF, INF)] * len(asked)
    for order in range(1, len(moments) + 1):
        found = MomentBounds(moments[:order], support)
        now = [getattr(found, what)(at) for what, at in asked]
        for before, after in zip(last, now, strict=True):
            assert after[0] >= before[0] - SHARP
            assert after[1] <= before[1] + SHARP
        last = now


def test_more_moments_never_make_the_tail_mean_looser() -> None:
    found = [MomentBounds(KNOWN["mixture"][0][:order]).cvar(0.1) for order in (2, 4, 6, 8)]
    truth = Law(*tail_of_mixture()).cvar(0.1)
    for before, after in pairwise(found):
        assert before.lower < after.lower <= truth <= after.upper < before.upper + SHARP


def tail_of_mixture() -> tuple[np.ndarray, np.ndarray]:
    """The mixture as cells of width 0.001, each at its middle: the tail mean is off by less than a cell."""
    edges = np.arange(-8, 9, 0.001)
    weights = np.diff([KNOWN["mixture"][2](t) for t in edges])
    return (edges[1:] + edges[:-1]) / 2, weights / weights.sum()


@pytest.mark.parametrize(
    "seed",
    [
        *range(4),
        *(pytest.param(seed, marks=pytest.mark.long if seed > 12 else pytest.mark.slow) for seed in range(4, 30)),
    ],
)
def test_discrete_laws_lie_between_the_bounds(seed: int) -> None:
    """Two to eight atoms and up to twelve moments: mostly sequences that fix the law, known up to rounding."""
    rng = np.random.default_rng(seed)
    for trial in range(6):
        law = random_law(rng, int(rng.integers(2, 9)))
        found = MomentBounds(law.moments(int(rng.integers(1, 13))), random_support(rng, law, trial % 4))
        for t in (float(law.atoms[0]), float(law.atoms[1]), float(law.atoms[1]) + 1e-8, float(rng.normal())):
            check_truth(found, law, t)


def check_truth(found: MomentBounds, law: Law, t: float) -> None:
    for name in ("cdf", "cdf_left", "stop_loss"):
        lower, upper = getattr(found, name)(t)
        assert lower <= upper
        assert lower - 1e-12 <= getattr(law, name)(t) <= upper + 1e-12  # the sums here round


@pytest.mark.slow
def test_quantiles_and_tail_means_of_discrete_laws_lie_between_the_bounds() -> None:
    rng = np.random.default_rng(11)
    for trial in range(8):
        law = random_law(rng, int(rng.integers(2, 7)))
        found = MomentBounds(law.moments(int(rng.integers(2, 9))), random_support(rng, law, trial % 4))
        level = float(rng.uniform(0.05, 0.9))
        for name in ("quantile", "cvar"):
            lower, upper = getattr(found, name)(level)
            assert lower <= upper
            assert lower - 1e-12 <= getattr(law, name)(level) <= upper + 1e-12


# -- errors ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1e-12, 1e-6, 1e-3, 1e-1])
@pytest.mark.parametrize("count", [10, pytest.param(80, marks=pytest.mark.slow)])
def test_the_truth_is_inside_whatever_the_errors_do(size: float, count: int) -> None:
    rng = np.random.default_rng([int(-math.log10(size)), count])
    for trial in range(count):
        law = random_law(rng, int(rng.integers(2, 12)))
        order = int(rng.integers(1, 9))
        errors = [size * float(law.weights @ np.abs(law.atoms) ** k) for k in range(1, order + 1)]
        wrong = [m + rng.uniform(-1, 1) * e for m, e in zip(law.moments(order), errors, strict=True)]
        found = MomentBounds(wrong, random_support(rng, law, trial % 4), errors=errors)
        for t in (float(law.atoms[0]), float(rng.normal())):
            check_truth(found, law, t)


def test_errors_left_out_show() -> None:
    """The same wrong moments without their errors exclude the truth, so the errors do the work."""
    law = Law(np.array([-1.0, 1.0]), np.array([0.5, 0.5]))
    wrong = [0.1, 1.0, 0.1, 1.05]
    assert law.cdf(0.0) not in MomentBounds(wrong).cdf(0.0)
    assert law.cdf(0.0) in MomentBounds(wrong, errors=[0.1, 0.0, 0.1, 0.05]).cdf(0.0)


def test_errors_widen_by_no_more_than_their_worst_case() -> None:
    """Mean and variance: the worst law has the largest second moment and the smallest mean within the errors."""
    found = MomentBounds([2.0, 5.0], errors=[0.01, 0.02])
    worst = bounds.cantelli(1.99, 5.02 - 1.99**2)
    assert MomentBounds([2.0, 5.0]).cdf(0).upper < worst <= found.cdf(0).upper < worst + 1e-4


def test_errors_that_hide_the_variance_leave_something() -> None:
    found = MomentBounds([0.0, 0.0], errors=[1e-3, 1e-3])
    assert found.cdf(-1.0).upper == pytest.approx(bounds.cantelli(1 - 1e-3, 1e-3), abs=1e-3)
    assert found.cvar(0.5).lower > -0.05


# -- units -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shift", "scale"), [(1e6, 1e-3), (-3.0, 1e5), (0.1, 1.0)])
def test_shift_and_scale_go_through(shift: float, scale: float) -> None:
    law = random_law(np.random.default_rng(3), 20)
    moments = law.moments(7)
    plain = MomentBounds(moments, (-6, 8))
    support = (shift - 6 * scale, shift + 8 * scale)
    moved = MomentBounds([m * scale**k for k, m in enumerate(moments, 1)], support, centre=shift)
    unit = 4 * np.spacing(max(abs(shift), scale)) / scale  # the places below round by this much
    for t in (-1.1, 0.2, 2.0):
        assert moved.cdf(shift + scale * t) == pytest.approx(plain.cdf(t), abs=SHARP + unit)
        excess = moved.stop_loss(shift + scale * t)
        assert [end / scale for end in excess] == pytest.approx(list(plain.stop_loss(t)), abs=SHARP + unit)
    quantile, tail = moved.quantile(0.3), moved.cvar(0.2)
    assert [(end - shift) / scale for end in quantile] == pytest.approx(list(plain.quantile(0.3)), abs=SHARP + unit)
    assert [(end - shift) / scale for end in tail] == pytest.approx(list(plain.cvar(0.2)), abs=SHARP + unit)


def test_a_centre_far_from_the_mean_costs_digits_but_not_truth() -> None:
    law = random_law(np.random.default_rng(4), 20)
    near = Law(law.atoms + 30, law.weights)
    raw, centred = MomentBounds(near.moments(8)), MomentBounds(near.moments(8, 30.0), centre=30.0)
    assert raw.cdf(30.4).lower <= centred.cdf(30.4).lower + SHARP
    assert raw.cdf(30.4).upper >= centred.cdf(30.4).upper - SHARP
    assert raw.cdf(30.4).width <= MomentBounds(near.moments(4), centre=0.0).cdf(30.4).width


def test_the_mirror_image() -> None:
    law = random_law(np.random.default_rng(5), 20)
    moments = law.moments(5)
    here = MomentBounds(moments, (-4, 6))
    there = MomentBounds([m * (-1) ** k for k, m in enumerate(moments, 1)], (-6, 4))
    low, high = here.cdf(0.3)
    assert there.cdf_left(-0.3) == pytest.approx((1 - high, 1 - low), abs=SHARP)
    assert there.stop_loss(-0.3) == pytest.approx([end + 0.3 for end in here.stop_loss(0.3)], abs=SHARP)  # mean 0


# -- laws that the moments fix ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moments", "support", "atoms", "weights"),
    [
        ([0.0, 0.0], None, [0.0], [1.0]),
        ([2.0, 4.0, 8.0], None, [2.0], [1.0]),
        ([1.0], (1, 4), [1.0], [1.0]),
        ([0.25] * 4, None, [0.0, 1.0], [0.75, 0.25]),
        ([0.25, 0.25], (0, 1), [0.0, 1.0], [0.75, 0.25]),
        (Law(np.array([-1.0, 0.0, 2.0]), np.array([0.25, 0.25, 0.5])).moments(8), None, [-1, 0, 2], [0.25, 0.25, 0.5]),
    ],
)
def test_moments_that_leave_one_law(
    moments: list[float], support: tuple[float, float] | None, atoms: list[float], weights: list[float]
) -> None:
    law = Law(np.array(atoms, dtype=float), np.array(weights))
    found = MomentBounds(moments, support)
    assert f"only one law has them, on {len(atoms)} point" in repr(found)
    for t in (*atoms, -1.5, 0.5, 1.25, 3.0):
        for name in ("cdf", "cdf_left", "stop_loss"):
            assert getattr(found, name)(t) == pytest.approx([getattr(law, name)(t)] * 2, abs=1e-14)
    for level in (0.1, 0.6):
        assert found.quantile(level) == pytest.approx([law.quantile(level)] * 2, abs=1e-14)
        assert found.cvar(level) == pytest.approx([law.cvar(level)] * 2, abs=1e-14)


def test_a_constant_far_from_zero() -> None:
    found = MomentBounds([0.0, 0.0, 0.0], centre=1e6)
    assert (found.cdf(1e6), found.cdf_left(1e6)) == ((1, 1), (0, 0))
    assert found.cvar(0.3) == found.quantile(0.9) == (1e6, 1e6)


def test_a_law_known_up_to_rounding_is_open_at_its_atoms_only() -> None:
    """A law next to this one has its atom on the other side of t, so the whole jump is possible there."""
    law = Law(np.array([-1.1, 0.3, 2.7]), np.array([0.2, 0.3, 0.5]))
    found = MomentBounds(law.moments(8))
    assert found.cdf(0.3) == pytest.approx((0.2, 0.5), abs=1e-6)
    assert found.cdf(0.5) == pytest.approx((0.5, 0.5), abs=SHARP)
    assert found.cdf(-1.5) == pytest.approx((0, 0), abs=SHARP)
    assert found.stop_loss(0.5) == pytest.approx([law.stop_loss(0.5)] * 2, abs=SHARP)
    assert found.cvar(0.5) == pytest.approx([law.cvar(0.5)] * 2, abs=1e-6)  # its t is at an atom


# -- sequences of no law, and other bad input ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moments", "support", "words"),
    [
        ([1.3], (0, 1), r"the mean 1.3 lies outside the support \[0, 1\]"),
        ([0.0, -0.3], None, "the variance is -0.3"),
        ([0.5, 0.6], (0, 1), r"the variance 0.35 is above the largest possible 0.25 .* on the support \[0, 1\]"),
        ([0, 1, 0.75, 1.2], None, r"4th central moment 1.2 is below the least possible, 1.5625 = variance² · \(skew"),
        ([0, 1, 0, 3, 0, 5], None, "6th central moment 5 is below the least possible, 9 .* order 3 is negative"),
        ([0, 1, -3], (-1, None), r"3rd central moment -3 is below the least possible on the support \[-1, inf\), 0 "),
        ([0, 1, 3], (None, 1), r"3rd central moment 3 is above the largest possible on the support \(-inf, 1\], 0 "),
        ([0, 1, 0, 30], (-2, 2), r"4th central moment 30 is above the largest possible on the support \[-2, 2\], 4 "),
        ([0, 0, 0, 5], None, "those of a constant, whose 4th moment differs from the given one by 5"),
    ],
)
def test_sequences_of_no_law(moments: list[float], support: tuple[float, float] | None, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        MomentBounds(moments, support)


def test_errors_excuse_a_sequence_of_no_law() -> None:
    moments = [0, 1, 0.75, 1.2]
    with pytest.raises(ModelError, match="below the least possible"):
        MomentBounds(moments, errors=[0, 0, 0, 0.36])
    assert MomentBounds(moments, errors=[0, 0, 0, 0.37]).cdf(0).width < 1


def test_moments_at_the_edge_of_the_possible_are_not_refused_for_their_rounding() -> None:
    rng = np.random.default_rng(0)
    for trial in range(40):
        law = random_law(rng, 1 + trial % 4 + 1)
        support = (float(np.min(law.atoms)), float(np.max(law.atoms)))
        noise = 1 + 1e-16 * rng.uniform(-1, 1, size=9)
        found = MomentBounds([m * e for m, e in zip(law.moments(9), noise, strict=True)], support)
        # Between two atoms nothing jumps, so the law itself must be among those that are possible there.
        middle = float(np.mean(np.sort(law.atoms)[:2]))
        lower, upper = found.cdf(middle)
        assert lower - SHARP <= law.cdf(middle) <= upper + SHARP, trial


@pytest.mark.parametrize(
    ("arguments", "settings", "words"),
    [
        (([],), {}, "moments is empty"),
        (([0.0, math.nan],), {}, "moment 2 is nan; leave out"),
        (([[0.0]],), {}, "moments must have shape"),
        (([0, 1], (1, 0)), {}, r"the support \[1, 0\] is empty; are its ends in the wrong order"),
        (([0, 1], 3), {}, "support must be two numbers"),
        (([0, 1],), {"errors": [1]}, "1 errors for 2 moments"),
        (([0, 1],), {"errors": [1, -1]}, "the error of moment 2 is -1"),
        (([0, 1],), {"errors": [1, INF]}, "the error of moment 2 is inf"),
        (([0, 1],), {"centre": INF}, "centre is inf"),
    ],
)
def test_bad_input(arguments: tuple[object, ...], settings: dict[str, object], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        MomentBounds(*arguments, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "value"), [("cdf", math.nan), ("stop_loss", "x"), ("quantile", 1.0), ("cvar", 0.0)])
def test_bad_questions(name: str, value: object) -> None:
    with pytest.raises(ModelError, match="must"):
        getattr(MomentBounds([0, 1]), name)(value)


def test_what_little_a_mean_says() -> None:
    found = MomentBounds([1.0])
    assert (found.cdf(3), found.quantile(0.3)) == ((0, 1), (-INF, INF))
    assert found.stop_loss(0.25) == pytest.approx((0.75, INF), abs=SHARP)
    assert found.cvar(0.2) == pytest.approx((-INF, 1), abs=SHARP)


def test_places_far_out() -> None:
    found = MomentBounds([0, 1, 0, 3], centre=2.0)
    assert found.cdf(-INF) == (0, 0)
    assert found.cdf(INF) == (1, 1)
    assert found.cdf(1e300) == pytest.approx((1, 1), abs=SHARP)
    assert found.stop_loss(1e300) == pytest.approx((0, 0), abs=SHARP)
    assert found.stop_loss(-1e300) == pytest.approx((1e300, 1e300))
    assert found.stop_loss(-1e8) == pytest.approx((1e8 + 2, 1e8 + 2))


def test_the_repr_says_what_is_known() -> None:
    found = MomentBounds([0.3, 0.12], (0, None), errors=[0, 1e-3])
    assert repr(found) == "MomentBounds(2 moments, mean 0.3, std 0.173205, support [0, inf), errors up to 0.001)"


# -- the proof itself ------------------------------------------------------------------------------------------


def test_a_polynomial_below_f_is_lifted() -> None:
    problem = MomentProblem(MomentSequence([0.0, 1.0], [0.0, 0.0], (-INF, INF), 0.0))
    step = Pieces(0.5, (1.0, 0.0), (0.0, 0.0))
    half = np.array([0.5], dtype=np.longdouble)
    assert problem._certified(half, step)[0] == pytest.approx(1.0)
    dips = np.array([1.0, -0.5, 0.01], dtype=np.longdouble)  # −5.25 at y = 25
    assert problem._certified(dips, step)[0] == pytest.approx(1.01 + 5.25)
    falls = np.array([2.0, -1.0], dtype=np.longdouble)
    assert problem._certified(falls, step)[0] == INF


@pytest.mark.parametrize("kind", range(4))
def test_lifted_polynomials_lie_above_f_everywhere(kind: int) -> None:
    """The second way to see it: many points, near and far, instead of the roots of the derivative."""
    checked = 0
    for order in (3, 6, 9):
        rng = np.random.default_rng([kind, order])
        law = random_law(rng, 4 if order == 6 else 20)
        sequence = MomentSequence(law.moments(order), [0.0] * order, random_support(rng, law, kind), 0.0)
        problem = MomentProblem(sequence)
        angles = np.linspace(math.atan(problem.lo), math.atan(problem.hi), 4002)[1:-1]
        points = np.tan(angles).astype(np.longdouble)
        t = float(rng.uniform(-1, 1))
        for f in (
            Pieces(t, (1.0, 0.0), (0.0, 0.0)),
            Pieces(t, (0.0, 0.0), (-t, 1.0)),
            Pieces(t, (-t, 1.0), (0.0, 0.0)),
        ):
            for _, p in problem._touching(f, order):
                bound, slack = problem._certified(p, f)
                if bound < INF:
                    lift = bound - slack - sequence.expectation(p)[0]
                    rounding = 40 * np.finfo(np.longdouble).eps * polyval(np.abs(points), np.abs(p))
                    assert np.all(polyval(points, p) + lift + rounding + 1e-15 >= f.values(points.astype(float)))
                    checked += 1
    assert checked >= 9


def test_the_least_value_of_a_polynomial() -> None:
    p = np.array([4.0, 0.0, -5.0, 0.0, 1.0], dtype=np.longdouble)  # (y²−1)(y²−4), least at ±√2.5
    assert least(p, -INF, INF) == pytest.approx(-2.25)
    assert least(p, -1.0, 1.0) == pytest.approx(0.0, abs=1e-15)
    assert least(p, 0.0, 1.5) == pytest.approx(float(np.polyval([1, 0, -5, 0, 4], 1.5)))
    assert least(-p, -1.0, INF) == -INF
    assert least(p[:2], 0.0, 3.0) == 4.0


@pytest.mark.parametrize(("moments", "support"), [([0, 1, 0, 1, 0, 0.9], None), ([0, 1, 0, 3], (-1, 1))])
def test_moments_beyond_a_zero_norm_are_checked(moments: list[float], support: tuple[float, float] | None) -> None:
    """Fourth moment 1, or a support of ±1, leave a fair coin: its sixth moment is not below 1, its fourth is 1."""
    with pytest.raises(ModelError, match="no law"):
        MomentBounds(moments, support)
