"""Bounds over all couplings: attained where that is possible, never passed, and certified."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog
from zoo import daily

import jointmdp as jm
from jointmdp.exact.bounds import coupling_bounds
from tests import oracle
from tests.test_couplings import random_mdp

pytest.importorskip("ot", reason="POT is not installed: pip install 'jointmdp[transport]'")

WIDTH = 12  # scenarios that models are filled up to, so that few programs are compiled


def policy_of(seed: int, S: int, A: int) -> np.ndarray:
    """Random; deterministic in state 0."""
    policy = np.random.default_rng(seed).dirichlet(np.ones(A), S)
    policy[0] = np.eye(A)[seed % A]
    return policy


def episodic(seed: int, S: int = 4, A: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Negative and positive rewards, and a last state that is over."""
    kernel, rewards = random_mdp(seed, S, A)
    kernel[-1], rewards[-1] = np.eye(S)[-1], 0.0
    return kernel, 3 * rewards - 1


def pair_variances(model: jm.JointMDP, policy: np.ndarray) -> np.ndarray:
    """Gap variances ``[S, A, A]`` by the definitions: raw second moments of all pairs of coordinates, in one solve."""
    S, A = policy.shape
    size, g = S * A, model.discount
    p, R, successors = model.probabilities, model.rewards, model.successors
    # Where coordinate x = (s, a) goes in each scenario of s, and with which action.
    moves = np.zeros((size, p.shape[1], size))
    for s, a, w in itertools.product(range(S), range(A), range(p.shape[1])):
        t = successors[s, w, a]
        moves[s * A + a, w, t * A : (t + 1) * A] = policy[t]
    chances = np.repeat(p, A, axis=0)  # [X, W]
    gains = R.swapaxes(1, 2).reshape(size, -1)  # [X, W]
    kernel = np.einsum("xw,xwy->xy", chances, moves)
    paid = np.einsum("xw,xw->x", chances, gains)
    mean = np.linalg.solve(np.eye(size) - g * kernel, paid)
    ahead = moves @ mean  # [X, W]
    matrix, right = np.zeros((size, size, size, size)), np.zeros((size, size))
    for x, y in itertools.product(range(size), repeat=2):
        law = chances[x]
        if x // A == y // A:
            first, second = gains[x], gains[y]
            right[x, y] = law @ (first * second + g * (first * ahead[y] + second * ahead[x]))
            if x == y:
                matrix[x, y, range(size), range(size)] = kernel[x]
            else:
                matrix[x, y] = np.einsum("w,wi,wj->ij", law, moves[x], moves[y])
        else:
            right[x, y] = paid[x] * paid[y] + g * (paid[x] * (kernel[y] @ mean) + paid[y] * (kernel[x] @ mean))
            matrix[x, y] = np.outer(kernel[x], kernel[y])
    system = np.eye(size**2) - g**2 * matrix.reshape(size**2, size**2)
    second_moments = np.linalg.solve(system, right.ravel()).reshape(size, size)
    covariance = (second_moments - np.outer(mean, mean)).reshape(S, A, S, A)
    blocks = covariance[np.arange(S), :, np.arange(S), :]
    own = np.einsum("saa->sa", blocks)
    return own[:, :, None] + own[:, None, :] - 2 * blocks


def vertex(p: np.ndarray, q: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """An optimal joint law ``[K, L]`` by linear programming."""
    K, L = cost.shape
    sums = np.zeros((K + L, K, L))
    sums[range(K), range(K)] = 1
    sums[range(K, K + L), :, range(L)] = 1
    found = linprog(cost.ravel(), A_eq=sums.reshape(K + L, -1), b_eq=np.append(p, q), method="highs")
    assert found.success
    return np.maximum(found.x.reshape(K, L), 0.0)


def north_west(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The joint law that fills up in the given order: a vertex for every order."""
    ends = np.unique(np.concatenate([[0.0], p.cumsum(), q.cumsum()]).round(14))
    ends[-1] = 1.0
    middles = (ends[1:] + ends[:-1]) / 2
    rows, columns = (np.minimum(np.searchsorted(law.cumsum(), middles), len(law) - 1) for law in (p, q))
    plan = np.zeros((len(p), len(q)))
    np.add.at(plan, (rows, columns), np.diff(ends))
    return plan


def random_coupling(rng: np.random.Generator) -> Callable[..., Any]:
    """Actions joined one after the other: each to the scenarios so far, by a mixture of two vertices."""

    def coupling(state: int, laws: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        chances, choices = laws[0], np.arange(len(laws[0]))[:, None]
        for law in laws[1:]:
            plan = np.zeros((len(chances), len(law)))
            for share in rng.dirichlet(np.ones(2)) if rng.random() < 0.5 else [1.0]:
                rows, columns = rng.permutation(len(chances)), rng.permutation(len(law))
                plan[np.ix_(rows, columns)] += share * north_west(chances[rows], law[columns])
            i, j = np.nonzero(plan)
            chances, choices = plan[i, j], np.hstack([choices[i], j[:, None]])
        return chances, choices

    return coupling


def widened(model: jm.JointMDP) -> jm.JointMDP:
    """The same model with impossible scenarios added."""
    missing = WIDTH - model.num_scenarios
    assert missing >= 0
    wide = ((0, 0), (0, missing), (0, 0))
    tables = (np.pad(model.rewards, wide), np.pad(model.successors, wide))
    return jm.JointMDP(np.pad(model.probabilities, wide[:2]), *tables, model.discount)


def assert_inside(bounds: jm.results.CouplingBounds, variances: np.ndarray, rounding: float = 1e-11) -> None:
    room = rounding * np.nanmax(bounds.largest_variance)
    assert np.all(variances >= bounds.least_variance - room)
    assert np.all(variances <= bounds.largest_variance + room)


# -- two actions: attained -------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["least", "largest"])
@pytest.mark.parametrize(("seed", "discount"), [(0, 0.5), (1, 0.9), (2, 0.99), (3, 0.99)])
def test_two_actions_attain_both_ends(seed: int, discount: float, end: Any) -> None:
    kernel, rewards = episodic(seed) if seed % 2 else random_mdp(seed, 4, 2)
    policy = policy_of(seed, 4, 2)
    bounds = jm.coupling_bounds(kernel, rewards, discount, policy)
    model = widened(bounds.model(end))
    np.testing.assert_allclose(model.marginal_mdp().transitions, kernel, rtol=0, atol=1e-14)
    solution = jm.evaluate(model, policy)
    found = np.array([solution.gap(s, 0, 1).variance for s in range(4)])
    table = bounds.least_variance if end == "least" else bounds.largest_variance
    scale = table.max()
    np.testing.assert_allclose(found, table[:, 0, 1], rtol=0, atol=1e-8 * scale)
    np.testing.assert_allclose(found, pair_variances(model, policy)[:, 0, 1], rtol=0, atol=1e-9 * scale)
    np.testing.assert_allclose(solution.mean, bounds.mean, rtol=0, atol=1e-10)
    assert 0 < bounds.error <= 1e-8 * np.max(bounds.largest_covariance)
    assert np.any(bounds.largest_variance[:, 0, 1] > 1.1 * bounds.least_variance[:, 0, 1])


@pytest.mark.parametrize("seed", range(3))
def test_a_model_where_states_have_different_actions(seed: int) -> None:
    """Three actions, of which each state has two, or one."""
    kernel, rewards = random_mdp(seed, 4, 3)
    available = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1], [0, 0, 1]], dtype=bool)
    bounds = jm.coupling_bounds(kernel, rewards, 0.9, "uniform", available=available)
    both = available[:, :, None] & available[:, None, :]
    for table in (bounds.least_variance, bounds.largest_variance, bounds.least_covariance, bounds.largest_covariance):
        assert np.array_equal(np.isfinite(table), both)
    for end, table in (("least", bounds.least_variance), ("largest", bounds.largest_variance)):
        model = bounds.model(end)  # type: ignore[arg-type]
        assert np.array_equal(model.available, available)
        found = pair_variances(model, jm.envs.uniform_policy(model))
        np.testing.assert_allclose(found[both], table[both], rtol=0, atol=1e-9 * np.nanmax(table))


@pytest.mark.parametrize("end", ["least", "largest"])
def test_three_actions_attain_each_end_by_itself_under_a_deterministic_policy(end: Any) -> None:
    kernel, rewards = random_mdp(5, 3, 3)
    policy = np.eye(3)[[2, 0, 1]]
    bounds = jm.coupling_bounds(kernel, rewards, 0.9, policy)
    table = bounds.least_variance if end == "least" else bounds.largest_variance
    for (s, a, b), plan in bounds._plans[end].items():

        def coupling(state: int, laws: list[np.ndarray], s: int = s, a: int = a, b: int = b, plan: Any = plan) -> Any:
            if state != s:
                chances = np.prod(np.meshgrid(*laws, indexing="ij"), axis=0).ravel()
                return chances, np.array(list(np.ndindex(*map(len, laws))))
            rest = 3 - a - b
            choices = np.zeros((len(plan.masses), len(laws[rest]), 3))
            choices[:, :, a], choices[:, :, b] = plan.rows[:, None], plan.columns[:, None]
            choices[:, :, rest] = np.arange(len(laws[rest]))
            return np.outer(plan.masses, laws[rest]).ravel(), choices.reshape(-1, 3)

        found = pair_variances(jm.from_mdp(kernel, rewards, 0.9, coupling), policy)[s, a, b]
        assert found == pytest.approx(table[s, a, b], abs=1e-9 * table.max())


def test_a_closed_form() -> None:
    """One step that pays 0 or 1 and then ends: the couplings of two coins."""
    p, q, g = 0.3, 0.6, 0.9
    table = {"s": {"a": [(p, "end", 1.0), (1 - p, "end", 0.0)], "b": [(q, "end", 1.0), (1 - q, "end", 0.0)]}, "end": {}}
    bounds = jm.coupling_bounds(table, None, g, "uniform")
    assert bounds.largest_covariance[0, 0, 1] == pytest.approx(min(p, q) - p * q, abs=bounds.error)
    assert bounds.least_covariance[0, 0, 1] == pytest.approx(max(p + q - 1, 0) - p * q, abs=bounds.error)
    assert bounds.variance("s", "a", "b").lower == pytest.approx(0.3 - 0.3**2, abs=1e-10)
    assert bounds.variance("s", "b", "a").upper == pytest.approx(0.9 - 0.3**2, abs=1e-10)
    assert bounds.std("s", "a", "b").upper == pytest.approx(np.sqrt(0.81))
    np.testing.assert_array_equal(bounds.least_variance[1], np.zeros((2, 2)))
    assert bounds.largest_variance[1, 0, 1] < 1e-10
    assert 0 < bounds.error < 1e-11


# -- any number of actions: never passed -----------------------------------------------------------------------


def inside_trials(A: int, discount: float, trials: int) -> tuple[float, float]:
    """Random couplings against the bounds; how near to the ends they came, in shares of the widths."""
    rng = np.random.default_rng(A)
    kernel, rewards = episodic(A, 3, A)
    policy = policy_of(A, 3, A)
    bounds = jm.coupling_bounds(kernel, rewards, discount, policy)
    low, high = bounds.least_variance[0, 0, 1], bounds.largest_variance[0, 0, 1]
    shares = []
    for _ in range(trials):
        model = jm.from_mdp(kernel, rewards, discount, random_coupling(rng))
        found = pair_variances(model, policy)
        assert_inside(bounds, found)
        shares.append((found[0, 0, 1] - low) / (high - low))
    return min(shares), max(shares)


@pytest.mark.parametrize(("A", "trials"), [(2, 150), (3, 60), (4, 20)])
def test_random_couplings_stay_inside(A: int, trials: int) -> None:
    least, largest = inside_trials(A, 0.9, trials)
    if A == 2:  # the trial itself: random couplings come near both ends
        assert least < 0.15
        assert largest > 0.85


@pytest.mark.slow
@pytest.mark.parametrize(
    ("A", "discount"),
    [(2, 0.99), (3, 0.95), *(pytest.param(*each, marks=pytest.mark.long) for each in ((2, 0.5), (4, 0.8)))],
)
def test_a_thousand_random_couplings_stay_inside(A: int, discount: float) -> None:
    inside_trials(A, discount, 1000)


@pytest.mark.parametrize("A", [2, 3, 4])
def test_the_named_couplings_are_inside(A: int) -> None:
    kernel, rewards = random_mdp(A, 3, A)
    policy = policy_of(A + 1, 3, A)
    bounds = jm.coupling_bounds(kernel, rewards, 0.95, policy)
    for coupling in ("comonotone", "antithetic", "independent", "maximal", "gumbel-max"):
        model = jm.from_mdp(kernel, rewards, 0.95, coupling)  # type: ignore[arg-type]
        assert_inside(bounds, pair_variances(model, policy))


@pytest.mark.parametrize("A", daily([3, 2]))
@pytest.mark.slow
def test_the_fixed_point_by_linear_programs(A: int) -> None:
    """The recursion written down plainly, from zero, with another solver of transports; γ² = 1/4."""
    S, g = 3, 0.5
    kernel, rewards = random_mdp(8, S, A)
    policy = policy_of(8, S, A)
    bounds = jm.coupling_bounds(kernel, rewards, g, policy)
    P, r = np.einsum("sa,sat->st", policy, kernel), np.einsum("sat,sat->sa", kernel, rewards)
    v = np.linalg.solve(np.eye(S) - g * P, np.sum(policy * r, axis=1))
    b = rewards + g * v  # [S, A, S]
    mean = np.einsum("sat,sat->sa", kernel, b)
    spread = np.einsum("sat,sat->sa", kernel, (b - mean[:, :, None]) ** 2)
    B = np.linalg.solve(np.eye(S) - g**2 * P, np.sum(policy * (spread + (mean - v[:, None]) ** 2), axis=1))
    own = spread + g**2 * kernel @ B
    np.testing.assert_allclose(bounds.mean, mean, rtol=0, atol=1e-13)
    for sign, table in ((1, bounds.largest_covariance), (-1, bounds.least_covariance)):
        C, pairs = np.zeros((S, S)), np.zeros((S, A, A))
        for _ in range(25):  # to 4⁻²⁵ of the largest variance
            for s, a, other in itertools.product(range(S), range(A), range(A)):
                left, right = b[s, a] - mean[s, a], b[s, other] - mean[s, other]
                gain = np.outer(left, right) + g**2 * C
                plan = vertex(kernel[s, a], kernel[s, other], -sign * gain) if a < other else None
                pairs[s, a, other] = own[s, a] if a == other else 0.0
                if plan is not None:
                    pairs[s, a, other] = np.sum(plan * gain)
            full = pairs + np.triu(pairs, 1).swapaxes(1, 2)
            C = g**2 * P @ C @ P.T
            np.fill_diagonal(C, np.einsum("sa,sb,sab->s", policy, policy, full))
        np.testing.assert_allclose(table, full, rtol=0, atol=1e-9 * own.max())
        assert np.all(sign * (table - full) >= -1e-9 * own.max())


@pytest.mark.parametrize(("seed", "discount"), [(0, 0.9), (1, 0.999), (2, 0.5), (3, 0.99)])
def test_ends_are_rounded_outward(seed: int, discount: float) -> None:
    """Against exact rational numbers: the couplings that attain the ends lie inside, by no more than is certified."""
    rng = np.random.default_rng(seed)
    kernel, rewards = (random_mdp, episodic)[seed % 2](seed, 3, 2)
    kernel[0, 0] = [1 - 3e-9, 1e-9, 2e-9]
    rewards *= 10.0 ** rng.integers(-3, 4)
    policy = policy_of(seed, 3, 2)
    bounds = jm.coupling_bounds(kernel, rewards, discount, policy, relative_tolerance=1e-4)
    for end, sign, table in (("least", 1, bounds.least_variance), ("largest", -1, bounds.largest_variance)):
        model = bounds.model(end)  # type: ignore[arg-type]
        tables = (model.probabilities, model.rewards, model.successors)
        exact = oracle.exact_moments(*tables, discount, policy, "state", None)
        for s in range(3):
            own, other, both = (exact.covariance(s, a, s, b) for a, b in ((0, 0), (1, 1), (0, 1)))
            inside = sign * (oracle.nearest_float(own + other - 2 * both) - table[s, 0, 1])
            assert -1e-15 * np.max(bounds.largest_covariance) <= inside <= bounds.variance_error


# -- the transports --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_transports_against_linear_programs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p, q, gain = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(6)), 1e3 + 1e-3 * rng.normal(size=(4, 6))
    found = coupling_bounds.best_transport(p, q, gain)
    expected = np.sum(vertex(p, q, -gain) * gain)
    assert found.value <= expected + 1e-11
    assert expected - 1e-11 <= found.bound <= found.value + 1e-10
    plan = np.zeros(gain.shape)
    plan[found.rows, found.columns] = found.masses
    np.testing.assert_allclose(plan.sum(axis=1), p, rtol=0, atol=1e-15)
    np.testing.assert_allclose(plan.sum(axis=0), q, rtol=0, atol=1e-15)


class WrongSolver:
    """Answers with the product, and with potentials that are anything."""

    def emd(self, p: np.ndarray, q: np.ndarray, cost: np.ndarray, **_: Any) -> tuple[np.ndarray, dict[str, Any]]:
        return np.outer(p, q), {"u": np.random.default_rng(0).normal(size=len(p))}


def test_bounds_hold_whatever_the_solver_says(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, rewards = random_mdp(2, 4, 2)
    true = jm.coupling_bounds(kernel, rewards, 0.8, "uniform")
    monkeypatch.setattr(coupling_bounds, "solver", WrongSolver)
    with pytest.warns(jm.errors.ConvergenceWarning, match="certified to"):
        wide = jm.coupling_bounds(kernel, rewards, 0.8, "uniform")
    assert wide.error > 0.1
    assert np.all(wide.least_variance <= true.least_variance + 1e-9)
    assert np.all(wide.largest_variance >= true.largest_variance - 1e-9)


@pytest.mark.parametrize("shape", [(1, 3), (3, 1), (1, 1)])
def test_laws_of_one_outcome_leave_nothing_to_choose(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    p, q, gain = rng.dirichlet(np.ones(shape[0])), rng.dirichlet(np.ones(shape[1])), rng.normal(size=shape)
    found = coupling_bounds.best_transport(p, q, gain)
    assert found.value == pytest.approx(p @ gain @ q, abs=1e-13)
    assert found.bound == pytest.approx(p @ gain @ q, abs=1e-13)


# -- what the result says --------------------------------------------------------------------------------------


def test_superiority_holds_under_every_coupling() -> None:
    kernel, rewards = episodic(1)
    rewards[0, 0] += 6  # action 0 is far better in state 0
    bounds = jm.coupling_bounds(kernel, rewards, 0.5, [1, 1, 1, 1])
    better, worse = bounds.superiority(0, 0, 1), bounds.superiority(0, 1, 0)
    mean = bounds.mean[0, 0] - bounds.mean[0, 1]
    most = bounds.largest_variance[0, 0, 1]
    assert better.lower == pytest.approx(mean**2 / (mean**2 + most))
    assert better.lower > 0.5
    assert (better.upper, worse.lower) == (1.0, 0.0)
    assert worse.upper == pytest.approx(1 - better.lower)
    assert bounds.superiority(0, 1, 1) == (0.0, 0.0)
    for end in ("least", "largest"):
        gap = jm.evaluate(widened(bounds.model(end)), [1, 1, 1, 1]).gap(0, 0, 1)  # type: ignore[arg-type]
        law = gap.law()
        assert law.superiority().upper >= better.lower


def test_it_explains_itself() -> None:
    kernel, rewards = random_mdp(3, 4, 2)
    bounds = jm.coupling_bounds(kernel, rewards, 0.9, "uniform", state_names=list("wxyz"), action_names=["go", "stay"])
    assert repr(bounds).startswith("CouplingBounds(4 states, 2 actions, discount 0.9; covariances certified to ")
    lines = str(bounds).splitlines()
    assert len(lines) == 2 + 4
    widths = [bounds.std(s, "go", "stay").width for s in "wxyz"]
    first = "wxyz"[int(np.argmax(widths))]
    assert f"go − stay in {first}: " in lines[2]
    assert f"and {bounds.std(first, 0, 1).upper:.6g}" in lines[2]
    assert bounds.model("least").state_names == ("w", "x", "y", "z")


def test_one_action_and_no_noise() -> None:
    bounds = jm.coupling_bounds(np.ones((1, 1, 1)), [[2.0]], 0.5, "uniform")
    assert bounds.mean == pytest.approx(4.0)
    assert bounds.largest_variance[0, 0, 0] == 0
    assert bounds.model("least").num_scenarios == 1
    assert str(bounds)
    still = np.tile(np.eye(2)[:, None], (1, 2, 1))
    bounds = jm.coupling_bounds(still, [[1.0, 2.0], [3.0, 4.0]], 0.9, "uniform")
    assert np.all(bounds.least_variance[:, 0, 1] == bounds.least_variance[:, 1, 0])
    # G = ±1 + γG', where G' is 0 once both branches draw the same action and ±G otherwise: V = γ²(V + 1)/2.
    assert_inside(bounds, np.tile(0.405 / 0.595 * (1 - np.eye(2)), (2, 1, 1)))
    np.testing.assert_allclose(bounds.largest_variance, bounds.least_variance, rtol=0, atol=1e-10)


BAD: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "discount 1": (lambda: ask(discount=1.0), ["discount is 1", "below 1"]),
    "another policy": (lambda: ask(policy=[0, 0]), ["2 actions for 4 states"]),
    "no tolerance": (lambda: ask(relative_tolerance=0), ["relative_tolerance"]),
    "another end": (lambda: ask().model("widest"), ["'widest'", '"least" or "largest"']),
    "three actions": (lambda: ask(A=3).model("least"), ["state 0 has 3 actions", "need not fit together"]),
    "unknown action": (lambda: ask().variance(0, 0, 7), ["unknown action 7"]),
    "rows off": (lambda: jm.coupling_bounds(np.ones((2, 2, 2)), np.zeros((2, 2)), 0.9, "uniform"), ["sum to 2"]),
    "too many states": (
        lambda: jm.coupling_bounds({s: {0: [(1.0, s, 0.0)]} for s in range(2001)}, None, 0.9, "uniform"),
        ["2001 states", "2000"],
    ),
}


def ask(A: int = 2, discount: float = 0.9, policy: Any = "uniform", **settings: Any) -> jm.results.CouplingBounds:
    return jm.coupling_bounds(*random_mdp(1, 4, A), discount, policy, **settings)


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case: str) -> None:
    request, fragments = BAD[case]
    with pytest.raises(jm.ModelError) as caught:
        request()
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(ImportError, match=r"pip install 'jointmdp\[transport\]'"):
        ask()


def test_frozen_lake() -> None:
    """Most of the spread of some gaps is the coupling; the environment's own is inside."""
    gymnasium = pytest.importorskip("gymnasium")
    lake = gymnasium.make("FrozenLake-v1")
    model = jm.from_gymnasium(lake, 0.95)
    best = jm.optimal_policy(model)
    bounds = jm.coupling_bounds(lake.unwrapped.P, None, 0.95, best)
    solution = jm.evaluate(model, best)
    ratios = []
    for s, (a, b) in itertools.product(range(16), itertools.combinations(range(4), 2)):
        found = solution.gap(s, a, b).variance
        ends = bounds.variance(s, a, b)
        assert ends.lower - 1e-9 <= found <= ends.upper + 1e-9
        if ends.upper > 1e-6:
            ratios.append(ends.lower / ends.upper)
    print(
        f"least over largest variance of a gap: {min(ratios):.3f} to {max(ratios):.3f}, median {np.median(ratios):.3f}"
    )
    assert min(ratios) < 0.2
