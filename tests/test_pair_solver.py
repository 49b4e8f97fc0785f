"""Solvers on pairs of states against a dense linear system that is enumerated from the model's tables."""

from collections.abc import Callable

import numpy as np
import pytest
from zoo import daily

import jointmdp as jm
from jointmdp.exact.bellman import pair_sweep
from jointmdp.exact.bellman.pair_sweep import PairProblem, Source
from jointmdp.exact.moments import diagonal_solver, pair_solver
from jointmdp.ground.arrays import float64, on_device
from jointmdp.ground.checks import Sharing
from jointmdp.ground.progress import Meter

SIZE, SCENARIOS, ACTIONS = 12, 3, 3
KINDS = ("merging", "deterministic", "absorbing", "periodic", "one way")


def tables(kind: str, discount: float, sharing: Sharing, seed: int = 0) -> tuple[jm.JointMDP, np.ndarray, np.ndarray]:
    """A model of each kind, its policy and a second one."""
    rng = np.random.default_rng(seed)
    here = np.arange(SIZE)[:, None, None]
    to = rng.integers(0, SIZE, (SIZE, SCENARIOS, ACTIONS))
    policy, other = rng.dirichlet(np.ones(ACTIONS), (2, SIZE))
    if kind == "deterministic":
        policy = np.eye(ACTIONS)[rng.integers(0, ACTIONS, SIZE)]
    elif kind == "absorbing":
        to[-3:] = here[-3:]
    elif kind == "periodic":  # even states lead to odd ones and odd ones to even ones
        to = to // 2 * 2 + (here + 1) % 2
    elif kind == "one way":  # to itself or upwards
        to = np.minimum(here + rng.integers(0, 3, to.shape), SIZE - 1)
    chances = rng.dirichlet(np.ones(SCENARIOS), 1 if sharing == "time" else SIZE)
    chances = np.broadcast_to(chances, (SIZE, SCENARIOS))
    return jm.JointMDP(chances, rng.normal(size=to.shape), to, discount, sharing), policy, other


def dense(model: jm.JointMDP, policies: list[np.ndarray], same: np.ndarray, cross: np.ndarray) -> np.ndarray:
    """C(s,t) = added + γ² E C(S',T'), one equation after another; branches of one policy that tie add nothing."""
    size, p, to = model.num_states, model.probabilities, model.successors
    moves = np.zeros((size, size, size, size))
    for s, t in np.ndindex(size, size):
        tied = s == t or model.sharing == "time"
        for w, u in np.ndindex(p.shape[1], p.shape[1]):
            chance = (p[s, w] if w == u else 0.0) if tied else p[s, w] * p[t, u]
            for a, b in np.ndindex(policies[0].shape[1], policies[-1].shape[1]):
                if chance > 0 and not (s == t and a == b and len(policies) == 1):
                    moves[s, t, to[s, w, a], to[t, u, b]] += chance * policies[0][s, a] * policies[-1][t, b]
    added = np.where(np.eye(size, dtype=bool), np.diag(same), cross)
    matrix = np.eye(size**2) - model.discount**2 * moves.reshape(size**2, size**2)
    return np.linalg.solve(matrix, added.ravel()).reshape(size, size)


def problem_of(model: jm.JointMDP, policies: list[np.ndarray], same: np.ndarray, cross: np.ndarray) -> PairProblem:
    kernel = pair_sweep.pair_kernel(model, *policies)
    return PairProblem(kernel, Source(on_device(same), on_device(cross)), on_device(model.discount))


def sources(symmetric: bool, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    cross = rng.normal(size=(SIZE, SIZE))
    cross = cross + cross.T if symmetric else cross
    return np.diagonal(cross).copy(), cross


def limit(exact: np.ndarray, target: float, discount: float) -> float:
    """A residual ρ is an error of at most ρ/(1−γ²); rounding leaves a residual of some hundred units of the answer."""
    return (target + 200 * 2.0**-53 * float(np.max(np.abs(exact)))) / (1 - discount**2)


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("count", daily([2, 1]))
@pytest.mark.parametrize("sharing", daily(("state", "time")))
@pytest.mark.parametrize("kind", KINDS)
def test_every_solver_agrees_with_the_dense_system(
    kind: str, sharing: Sharing, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """γ = 0.9999, with acceleration at once: all methods in turn, each alone, and whatever is chosen."""
    discount, target = 0.9999, 1e-11
    model, *policies = tables(kind, discount, sharing)
    policies = policies[:count]
    added = sources(symmetric=count == 1)
    exact = dense(model, policies, *added)
    monkeypatch.setattr(pair_solver, "FIRST_ATTEMPT", pair_solver.CHUNK)
    with float64(), Meter("test") as meter:
        problem = problem_of(model, policies, *added)
        aim = target * float(np.max(np.abs(exact)))
        found, done = pair_solver.solve_pairs(problem, aim, 100_000, True, meter, parity=2 - count)
        assert done < 100_000
        assert np.max(np.abs(np.asarray(found) - exact)) <= limit(exact, aim, discount)
        if sharing == "state":
            solver = diagonal_solver.build(problem)
            assert solver is not None
            C, left, taken = on_device(np.zeros((SIZE, SIZE))), np.inf, 0
            for _ in range(3):
                C, left, more = diagonal_solver.improve(solver, problem, C + 0.0, aim)
                taken += more
            assert left <= aim
            assert taken <= 100
            assert np.max(np.abs(np.asarray(C) - exact)) <= limit(exact, aim, discount)


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("count", [1, 2])
def test_modes_stand_for_late_powers(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few modes for twelve states, so that most of the kernel is summed and a little is followed by its modes."""
    monkeypatch.setattr(diagonal_solver, "FEW", 1)
    monkeypatch.setattr(diagonal_solver, "MODES", 4)
    monkeypatch.setattr(diagonal_solver, "FEW_MODES", 2)
    model, *policies = tables("merging", 0.9999, "state")
    policies = policies[:count]
    added = sources(symmetric=False)
    exact = dense(model, policies, *added)
    aim = 1e-11 * float(np.max(np.abs(exact)))
    with float64():
        problem = problem_of(model, policies, *added)
        solver = diagonal_solver.build(problem)
        assert solver is not None
        assert solver.of_pairs.steps > 0
        assert solver.of_pairs.left.basis.shape[1] <= 4
        C, left = on_device(np.zeros((SIZE, SIZE))), np.inf
        for _ in range(3):
            C, left, _ = diagonal_solver.improve(solver, problem, C, aim)
    assert left <= aim
    assert np.max(np.abs(np.asarray(C) - exact)) <= limit(exact, aim, 0.9999)


@pytest.mark.usefixtures("quick_compilation")
def test_a_chain_that_never_mixes_is_left_to_other_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """States on a circle, one step at a time: every power has all modes."""
    monkeypatch.setattr(diagonal_solver, "FEW", 1)
    monkeypatch.setattr(diagonal_solver, "MODES", 4)
    monkeypatch.setattr(pair_solver, "FIRST_ATTEMPT", pair_solver.CHUNK)
    to = np.broadcast_to(((np.arange(SIZE) + 1) % SIZE)[:, None, None], (SIZE, SCENARIOS, ACTIONS))
    chances = np.full((SIZE, SCENARIOS), 1 / SCENARIOS)
    model = jm.JointMDP(chances, np.zeros(to.shape), to, 0.99)
    policy = np.full((SIZE, ACTIONS), 1 / ACTIONS)
    added = sources(symmetric=True)
    exact = dense(model, [policy], *added)
    aim = 1e-11 * float(np.max(np.abs(exact)))
    with float64(), Meter("test") as meter:
        problem = problem_of(model, [policy], *added)
        assert diagonal_solver.build(problem) is None
        found, _ = pair_solver.solve_pairs(problem, aim, 100_000, True, meter)
    assert np.max(np.abs(np.asarray(found) - exact)) <= limit(exact, aim, 0.99)


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("spoil", [lambda C: C * np.nan, lambda C: C + 1e6])
def test_a_pass_that_makes_it_worse_is_undone(
    spoil: Callable[[np.ndarray], np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The residual decides, and a start that is still at hand takes the place of what was spoilt."""
    real = diagonal_solver.improve

    def spoilt(*arguments: object) -> tuple[object, float, int]:
        C, _, taken = real(*arguments)
        C = on_device(spoil(np.asarray(C)))
        return C, float(np.max(np.abs(pair_solver.sweeps(arguments[1], C, 1)[1]))), taken

    monkeypatch.setattr(diagonal_solver, "improve", spoilt)
    monkeypatch.setattr(pair_solver, "FIRST_ATTEMPT", pair_solver.CHUNK)
    monkeypatch.setattr(pair_solver, "KRYLOV_LIMIT", 0)
    model, policy, _ = tables("merging", 0.99, "state")
    added = sources(symmetric=True)
    exact = dense(model, [policy], *added)
    aim = 1e-11 * float(np.max(np.abs(exact)))
    with float64(), Meter("test") as meter:
        problem = problem_of(model, [policy], *added)
        found, _ = pair_solver.solve_pairs(problem, aim, 100_000, True, meter)
    assert np.max(np.abs(np.asarray(found) - exact)) <= limit(exact, aim, 0.99)


@pytest.mark.slow
def test_work_does_not_grow_as_the_discount_goes_to_one() -> None:
    """A slowly mixing ring with more states than are followed one by one."""
    size, rng = 3 * diagonal_solver.FEW, np.random.default_rng(3)
    here = np.arange(size)
    successors = np.stack([np.stack([(here + 1) % size, here], 1), np.stack([(here - 1) % size, here], 1)], 1)
    rewards, sweeps = rng.normal(size=(size, 2, 2)), {}
    for discount in (0.99, 0.9999):
        model = jm.JointMDP(np.full((size, 2), 0.5), rewards, successors, discount)
        solution = jm.evaluate(model, np.full((size, 2), 0.5))
        sweeps[discount] = solution.steps
        assert solution.certificate.covariance_error <= 1e-8 * np.max(solution.variance)
    assert sweeps[0.9999] <= 2 * sweeps[0.99]
