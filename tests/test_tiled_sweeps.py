"""Sweeps by tiles against those of the equations, and answers with and without them."""

import numpy as np
import pytest
from zoo import daily, daily_rows

import jointmdp as jm
from jointmdp.exact.bellman import numba_sweeps, pair_sweep
from jointmdp.exact.bellman.numba_sweeps import TiledResponses, TiledSweeps
from jointmdp.exact.bellman.pair_sweep import PairProblem, Source
from jointmdp.exact.moments import pair_solver
from jointmdp.ground.arrays import float64, on_device
from jointmdp.ground.checks import Sharing
from jointmdp.ground.progress import Meter

SIZES = (3, 300, 128)  # a panel has 128 columns


@pytest.fixture(autouse=True)
def _for_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_sweep, "LEAST_STATES", 1)


def random_problem(size: int, sharing: Sharing, actions: int, scenarios: int, has_sides: bool) -> PairProblem:
    """Scattered and near successors, states that end and choices between one action and all."""
    rng = np.random.default_rng(size + 10 * actions + scenarios)
    here = np.arange(size)[:, None, None]
    to = rng.integers(0, size, (size, scenarios, actions))
    near = (here + rng.integers(-2, 3, to.shape)) % size
    to = np.where(rng.random((size, 1, 1)) < 0.5, near, to)
    to[rng.random(size) < 0.1] = 0
    chances = rng.dirichlet(np.ones(scenarios), 1 if sharing == "time" else size)
    model = jm.JointMDP(np.broadcast_to(chances, (size, scenarios)), rng.normal(size=to.shape), to, 0.97, sharing)
    policy = rng.dirichlet(np.ones(actions), size)
    sure = rng.random(size) < 0.3
    policy[sure] = np.eye(actions)[rng.integers(0, actions, int(sure.sum()))]
    kernel = pair_sweep.pair_kernel(model, policy, may_be_dense=False)
    cross, sides = rng.normal(size=(size, size)), rng.normal(size=size)
    added = Source(on_device(rng.normal(size=size)), None, on_device(sides))
    if not has_sides:
        added = Source(on_device(rng.normal(size=size)), on_device(cross + cross.T))
    return PairProblem(kernel, added, on_device(0.97))


@pytest.mark.parametrize("has_sides", [True, False])
@pytest.mark.parametrize(("actions", "scenarios"), daily_rows([(3, 5), (1, 1), (1, 2), (2, 2)]))
@pytest.mark.parametrize("sharing", ["state", "time"])
@pytest.mark.parametrize("size", [*daily(SIZES[:2]), pytest.param(SIZES[2], marks=pytest.mark.long)])
def test_a_sweep_is_that_of_the_equations(
    size: int, sharing: Sharing, actions: int, scenarios: int, has_sides: bool
) -> None:
    """Entries of order one, and a sum of at most 15² products twice over: some hundred units of rounding."""
    with float64():
        problem = random_problem(size, sharing, actions, scenarios, has_sides)
        D = np.random.default_rng(1).normal(size=(size, size))
        D = D + D.T
        tiles = TiledSweeps(problem, on_device(D))
        step = tiles.run(3)
        found = np.asarray(tiles.take())
        before = after = on_device(D)
        for _ in range(3):
            before, after = after, pair_sweep.sweep(problem, after)
        scale = float(np.max(np.abs(np.asarray(after)))) + float(np.max(np.abs(D)))
        assert np.max(np.abs(found - np.asarray(after))) <= 500 * 2.0**-53 * scale
        assert step == pytest.approx(float(np.max(np.abs(after - before))), abs=1000 * 2.0**-53 * scale)
        assert np.array_equal(found, found.T)
        assert tiles.largest() == (found.max() if size % 128 == 0 else max(0.0, found.max()))


@pytest.mark.slow
def test_single_precision_and_what_is_no_number() -> None:
    with float64():
        problem = random_problem(200, "state", 3, 4, has_sides=True)
        D = np.ones((200, 200))
        exact = np.asarray(pair_sweep.sweep(problem, on_device(D)))
        fast = problem._replace(
            kernel=problem.kernel._replace(weights=problem.kernel.weights.astype(np.float32)),
            added=Source(problem.added.same.astype(np.float32), None, problem.added.sides.astype(np.float32)),  # type: ignore[union-attr]
        )
        tiles = TiledSweeps(fast, on_device(D).astype(np.float32))
        tiles.run(1)
        found = np.asarray(tiles.take())
        assert found.dtype == np.float32
        assert np.max(np.abs(found - exact)) <= 500 * 2.0**-24 * np.max(np.abs(exact))
        D[3, 3] = np.inf
        assert np.isnan(TiledSweeps(problem, on_device(D)).run(1))


@pytest.mark.parametrize("actions", daily([3, 1]))
def test_sums_of_powers_are_those_of_dense_matrices(actions: int) -> None:
    """Each of the powers is a sum of at most 12 products, and each term of two such sums."""
    size, count = 150, 32
    with float64():
        problem = random_problem(size, "state", actions, 4, has_sides=True)
        kernel = problem.kernel
        assert kernel.columns is not None
        P = np.zeros((size, size))
        np.add.at(P, (np.arange(size)[:, None], np.asarray(kernel.columns[0])), np.asarray(kernel.weights[0]))
        R = np.random.default_rng(2).normal(size=(size, size))
        R = R + R.T
        exact, response, power, factor = np.zeros((size, size)), np.zeros((size, size)), np.eye(size), 0.97**2
        p, to, choice = (np.asarray(each) for each in (kernel.probabilities, kernel.support, kernel.choice))
        pairs = choice[:, :, None] * choice[:, None, :] * (1 - np.eye(choice.shape[1]))
        for k in range(count):
            exact += factor**k * power @ R @ power.T
            both = power[to][:, :, :, None] * power[to][:, :, None, :]  # [S, W, M, M, S]
            later = np.einsum("sw,sab,swabj->sj", p, pairs, both)
            response += factor**k * (power**2 - factor * later)
            power = P @ power
        rounding = 2 * 12 * count * 2.0**-53
        found = np.asarray(numba_sweeps.spread(problem, on_device(R), count))
        assert np.max(np.abs(found - exact)) <= rounding * np.abs(exact).max()
        tiles = TiledResponses(problem, count // 2)
        tiles.add()
        tiles.add()
        assert np.max(np.abs(np.asarray(tiles.response) - response)) <= rounding * np.abs(response).max()
        assert np.max(np.abs(np.asarray(tiles.powers[0]) - power)) <= rounding
        assert float(tiles.share) == pytest.approx(factor**count)


def test_a_full_disk_keeps_no_program_and_stops_nothing() -> None:
    tries: list[int] = []

    def loop(value: int) -> int:
        tries.append(value)
        if len(tries) < 4:
            raise OSError(28, "No space left on device")
        return 2 * value

    assert numba_sweeps.run_loop(loop, 5) == 10

    def broken() -> None:
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        numba_sweeps.run_loop(broken)


@pytest.mark.slow
def test_branches_that_meet_are_solved_for_by_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """γ = 0.9999: plain sweeps would take 10⁵, and what is found is a fixed point."""
    monkeypatch.setattr(pair_solver, "FIRST_ATTEMPT", pair_solver.CHUNK)
    with float64(), Meter("test") as meter:
        problem = random_problem(200, "state", 3, 2, has_sides=True)._replace(discount=on_device(0.9999))
        found, done = pair_solver.solve_pairs(problem, 1e-9, 5_000, True, meter)
        assert done < 1_000
        step = np.asarray(pair_sweep.sweep(problem, found) - found)
        assert np.max(np.abs(step)) <= 2e-9  # and rounding of numbers up to 10⁴


@pytest.mark.parametrize(
    "method",
    daily([jm.Solve(), jm.Solve(is_accelerated=False), jm.Solve(precision="single", relative_tolerance=1e-4)]),
)
@pytest.mark.parametrize("sharing", daily(["state", "time"]))
def test_answers_with_and_without_tiles_agree(
    sharing: Sharing, method: jm.Solve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are certified, so they differ by no more than both certificates."""
    monkeypatch.setattr(pair_sweep, "DENSE_LIMIT", 0)
    model, policy = jm.envs.windy_gridworld(6, discount=0.95)
    model, policy = model.with_sharing(sharing), 0.9 * policy + 0.1 / 4
    used: list[int] = []
    run = TiledSweeps.run
    monkeypatch.setattr(TiledSweeps, "run", lambda self, count: used.append(count) or run(self, count))
    tiled = jm.evaluate(model, policy, method=method)
    assert used
    used.clear()
    monkeypatch.setattr(pair_sweep, "has_numba", lambda: False)
    plain = jm.evaluate(model, policy, method=method)
    assert not used
    room = tiled.certificate.covariance_error + plain.certificate.covariance_error
    assert np.max(np.abs(tiled.covariance - plain.covariance)) <= room
    assert tiled.certificate.covariance_error <= 2 * plain.certificate.covariance_error


def test_tiles_are_for_symmetric_arrays_of_one_policy_on_a_cpu() -> None:
    with float64():
        problem = random_problem(30, "state", 3, 2, has_sides=True)
        D = on_device(np.zeros((30, 30)))
        assert pair_sweep.is_tiled(problem)
        assert isinstance(pair_solver.plain_sweeps(problem, D, is_symmetric=True), TiledSweeps)
        assert not isinstance(pair_solver.plain_sweeps(problem, D, is_symmetric=False), TiledSweeps)
        two = problem._replace(kernel=problem.kernel._replace(other_weights=problem.kernel.weights))
        assert not pair_sweep.is_tiled(two)
        dense = problem._replace(kernel=problem.kernel._replace(columns=None))
        assert not pair_sweep.is_tiled(dense)
