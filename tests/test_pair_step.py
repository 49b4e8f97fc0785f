"""The step of two branches: all of its forms against each other, and against every outcome counted one by one."""

from collections.abc import Callable
from functools import partial

import jax
import numpy as np
import pytest
from zoo import daily

import jointmdp as jm
from jointmdp.exact.bellman import pair_sweep, sparse_products
from jointmdp.exact.bellman.numba_sweeps import TiledSweeps
from jointmdp.exact.bellman.pair_step import (
    PairLister,
    PairPush,
    PairStep,
    PairWalk,
    StateWeights,
    branch_outcomes,
)
from jointmdp.exact.bellman.pair_sweep import PairProblem, Source, columns_of_whole
from jointmdp.exact.bellman.pallas_kernels import multiply_rows
from jointmdp.exact.moments.column_blocks import ManyDevices, all_devices
from jointmdp.ground.arrays import float64, on_device
from jointmdp.ground.checks import Sharing

SIZE, SCENARIOS, ACTIONS = 7, 3, 3
ROUNDING = 200 * 2.0**-53  # sums of at most 9² products of numbers of order one, twice over


def random_case(seed: int, sharing: Sharing) -> tuple[jm.JointMDP, np.ndarray, np.ndarray]:
    """Absorbing states, actions that are not available, scenarios that never come, and two policies."""
    rng = np.random.default_rng(seed)
    to = rng.integers(0, SIZE, (SIZE, SCENARIOS, ACTIONS))
    to[-2:] = np.arange(SIZE)[-2:, None, None]
    chances = np.broadcast_to(rng.dirichlet(np.ones(SCENARIOS), 1 if sharing == "time" else SIZE), (SIZE, SCENARIOS))
    if sharing != "time":
        chances = chances.copy()
        chances[0] = [0.0, 0.25, 0.75]
    available = rng.random((SIZE, ACTIONS)) < 0.8
    available[np.arange(SIZE), rng.integers(0, ACTIONS, SIZE)] = True
    rewards = rng.normal(size=to.shape)
    rewards[-1] = 0.0
    policy, other = (rng.dirichlet(np.ones(ACTIONS), SIZE) * available for _ in range(2))
    policy, other = (each / each.sum(axis=1, keepdims=True) for each in (policy, other))
    sure = np.argmax(available[1])
    policy[1] = np.eye(ACTIONS)[sure]  # one state without a choice
    return jm.JointMDP(chances, rewards, to, 0.9, sharing, available=available), policy, other


def counted(model: jm.JointMDP, one: np.ndarray, two: np.ndarray, X: np.ndarray, can_merge: bool) -> np.ndarray:
    """E X(S', T') of every pair, outcome by outcome; what becomes one counts as nothing."""
    p, to, found = model.probabilities, model.successors, np.zeros((SIZE, SIZE))
    for s, t in np.ndindex(SIZE, SIZE):
        is_tied = model.sharing == "time" or (s == t and model.sharing == "state")
        for w, u in np.ndindex(SCENARIOS, SCENARIOS):
            chance = (p[s, w] if w == u else 0.0) if is_tied else p[s, w] * p[t, u]
            for a, b in np.ndindex(ACTIONS, ACTIONS):
                if not (s == t and a == b and can_merge and model.sharing != "none"):
                    found[s, t] += chance * one[s, a] * two[t, b] * X[to[s, w, a], to[t, u, b]]
    return found


Form = Callable[[jm.JointMDP, np.ndarray, np.ndarray], np.ndarray]  # of a model, a policy and a symmetric X


def problem_of(model: jm.JointMDP, policy: np.ndarray, may_be_dense: bool) -> PairProblem:
    """Without a source and a discount: a sweep is the step itself."""
    kernel = pair_sweep.pair_kernel(model, policy, may_be_dense=may_be_dense)
    nothing = on_device(np.zeros(SIZE))
    return PairProblem(kernel, Source(nothing, None, nothing), on_device(1.0))


def by_moves(model: jm.JointMDP, policy: np.ndarray, X: np.ndarray) -> np.ndarray:
    step, found = PairStep(model, policy), np.zeros((SIZE, SIZE))
    s, t = (each.ravel() for each in np.indices((SIZE, SIZE)))
    is_one = step.is_together(s, t)
    for chosen, moves in ((~is_one, step.apart(s[~is_one], t[~is_one])), (is_one, step.together(s[is_one]))):
        np.add.at(found, (s[chosen][moves.row], t[chosen][moves.row]), moves.weight * X[moves.first, moves.second])
    assert np.all(step.counts(s, t) >= 0)
    return found


def by_halves(model: jm.JointMDP, policy: np.ndarray, X: np.ndarray) -> np.ndarray:
    """One branch after the other, as laws of gaps move them where branches apart share nothing."""
    walk = PairWalk(PairStep(model, policy), has_halves=model.sharing != "time", is_ordered=True, block=10)
    values = np.zeros(2 * SIZE**2)
    values[: SIZE**2] = X.ravel()
    found = np.zeros(2 * SIZE**2)
    for codes in (np.arange(SIZE**2, 2 * SIZE**2), np.arange(SIZE**2)):
        if codes[0] < SIZE**2 or walk.has_halves:
            moves = walk.moves(codes)
            goes_on = moves.child >= 0
            np.add.at(found, moves.parent[goes_on], (moves.weight * values[moves.child])[goes_on])
            values[SIZE**2 :] = found[SIZE**2 :]
    return found[: SIZE**2].reshape(SIZE, SIZE)


def by_list(model: jm.JointMDP, policy: np.ndarray, X: np.ndarray) -> np.ndarray:
    """The list of some pairs, and what is outside of it; settled pairs stay at nothing."""
    lister = PairLister(model, policy, np.zeros(SIZE, dtype=bool))
    chosen = np.flatnonzero(np.triu(np.random.default_rng(1).random((SIZE, SIZE)) < 0.6).ravel())
    pairs = lister.listed(chosen, 10**6)
    assert pairs is not None
    s, t = pairs.pairs
    is_settled = np.eye(SIZE, dtype=bool) & lister.is_single
    Y = np.where(is_settled, 0.0, X)
    found = counted(model, policy, policy, Y, True)
    found[s, t] = pairs.later(Y[s, t]) + pairs.left(lambda a, b: Y[a, b])
    # What the list leaves to nothing is what X has in pairs that are settled.
    return np.triu(found) + np.triu(found, 1).T + counted(model, policy, policy, X - Y, True)


def by_sweep(may_be_dense: bool, is_symmetric: bool) -> Form:
    def form(model: jm.JointMDP, policy: np.ndarray, X: np.ndarray) -> np.ndarray:
        return np.asarray(pair_sweep.sweep(problem_of(model, policy, may_be_dense), on_device(X), is_symmetric))

    return form


def by_columns(model: jm.JointMDP, policy: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Blocks of three columns, the last of which repeats some."""
    problem = problem_of(model, policy, may_be_dense=False)
    found = np.zeros((SIZE, SIZE))
    for begin in (0, 3, SIZE - 3):
        block, _ = pair_sweep.sweep_columns(problem, columns_of_whole(on_device(X), begin, 3))
        found[:, begin : begin + 3] = np.asarray(block)
    return found


def by_devices(model: jm.JointMDP, policy: np.ndarray, X: np.ndarray) -> np.ndarray:
    """As columns are sharded, here over the one device of the tests; `test_sharded` has several."""
    mesh = all_devices()
    block = ManyDevices(mesh, None, problem_of(model, policy, may_be_dense=False), np.zeros(SIZE))
    block.D = jax.device_put(on_device(X), block.D.sharding)
    block.run(1, 0.0)
    return block.whole()


def by_tiles(model: jm.JointMDP, policy: np.ndarray, X: np.ndarray) -> np.ndarray:
    tiles = TiledSweeps(problem_of(model, policy, may_be_dense=False), on_device(X))
    tiles.run(1)
    return np.asarray(tiles.take())


def by_pallas(is_symmetric: bool) -> Form:
    """The sweep of a GPU, its kernel interpreted."""

    def on_gpu(*arrays: jax.Array, cuda: Callable[..., jax.Array], default: object) -> jax.Array:
        return cuda(*arrays)

    def form(model: jm.JointMDP, policy: np.ndarray, X: np.ndarray) -> np.ndarray:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(jax.lax, "platform_dependent", on_gpu)
            patch.setattr(sparse_products, "multiply_rows", partial(multiply_rows, is_interpreted=True))
            return by_sweep(False, is_symmetric)(model, policy, X)

    return form


def by_columns_of_rank_one(model: jm.JointMDP, policy: np.ndarray, X: np.ndarray) -> np.ndarray:
    """X as a sum of products of columns; away from the diagonal the kernel moves each column, as powers are made."""
    kernel = pair_sweep.pair_kernel(model, policy, may_be_dense=False)
    values, vectors = np.linalg.eigh(X)
    left, right = on_device(vectors * values), on_device(vectors)
    found = by_sweep(may_be_dense=False, is_symmetric=False)(model, policy, X).copy()
    if model.sharing == "state":
        moved = (np.asarray(pair_sweep.moved(kernel, kernel.weights, each)) for each in (left, right))
        found = next(moved) @ next(moved).T
    np.fill_diagonal(found, np.asarray(pair_sweep.met_columns(kernel, left, right)).sum(axis=1))
    return found


def by_weights(model: jm.JointMDP, policy: np.ndarray, X: np.ndarray) -> np.ndarray:
    """The transpose: a unit of weight on each pair is pushed forward, and meets X there."""
    push, found = PairPush(model, policy), np.zeros((SIZE, SIZE))
    for s, t in np.ndindex(SIZE, SIZE):
        unit = np.zeros((SIZE, SIZE))
        unit[s, t] = 1.0
        found[s, t] = np.sum(push.of_states(StateWeights(unit, np.zeros(SIZE))).two * X)
    return found


FORMS: dict[str, Form] = {
    "moves": by_moves,
    "half moves": by_halves,
    "list": by_list,
    "dense sweep": by_sweep(may_be_dense=True, is_symmetric=False),
    "sweep of rows": by_sweep(may_be_dense=False, is_symmetric=False),
    "symmetric sweep": by_sweep(may_be_dense=False, is_symmetric=True),
    "columns": by_columns,
    "devices": by_devices,
    "tiles": by_tiles,
    "symmetric Pallas": by_pallas(is_symmetric=True),
    "rank one": by_columns_of_rank_one,
    "weights": by_weights,
    "Pallas": by_pallas(is_symmetric=False),
}


@pytest.mark.parametrize("seed", daily(range(4), 1))
@pytest.mark.parametrize("sharing", daily(["time", "state"]))
@pytest.mark.parametrize("form", daily([*FORMS], 3))
def test_every_form_is_the_same_step(form: str, sharing: Sharing, seed: int) -> None:
    model, policy, _ = random_case(seed, sharing)
    X = np.random.default_rng(seed + 100).normal(size=(SIZE, SIZE))
    X = X + X.T
    with float64():
        found = FORMS[form](model, policy, X)
    assert np.max(np.abs(found - counted(model, policy, policy, X, True))) <= ROUNDING * np.max(np.abs(X))


@pytest.mark.parametrize("form", [by_moves, by_halves])
def test_without_sharing_every_pair_moves_apart(form: Form) -> None:
    model, policy, _ = random_case(5, "none")
    X = np.random.default_rng(6).normal(size=(SIZE, SIZE))
    assert np.max(np.abs(form(model, policy, X) - counted(model, policy, policy, X, True))) <= ROUNDING * 5
    assert not PairPush(model, policy).of_states(StateWeights(np.ones((SIZE, SIZE)), np.zeros(SIZE))).two.any()
    with float64():
        problem = problem_of(model, policy, may_be_dense=False)
        assert not np.asarray(pair_sweep.sweep(problem, on_device(X))).any()


@pytest.mark.parametrize("may_be_dense", [True, False])
@pytest.mark.parametrize("sharing", ["state", "time"])
def test_branches_of_two_policies_never_become_one(sharing: Sharing, may_be_dense: bool) -> None:
    model, policy, other = random_case(7, sharing)
    X = np.random.default_rng(8).normal(size=(SIZE, SIZE))
    exact, found = counted(model, policy, other, X, False), np.zeros((SIZE, SIZE))
    with float64():
        kernel = pair_sweep.pair_kernel(model, policy, other, may_be_dense=may_be_dense)
        problem = PairProblem(kernel, Source(on_device(np.zeros(SIZE)), None), on_device(1.0))
        swept = np.asarray(pair_sweep.sweep(problem, on_device(X)))
    step = PairStep(model, policy, other, can_merge=False)
    s, t = (each.ravel() for each in np.indices((SIZE, SIZE)))
    is_one = step.is_together(s, t)
    for chosen, moves in ((~is_one, step.apart(s[~is_one], t[~is_one])), (is_one, step.together(s[is_one]))):
        np.add.at(found, (s[chosen][moves.row], t[chosen][moves.row]), moves.weight * X[moves.first, moves.second])
    for each in (swept, found):
        assert np.max(np.abs(each - exact)) <= ROUNDING * np.max(np.abs(X))


@pytest.mark.parametrize("sharing", ["state", "time", "none"])
def test_moves_pay_what_the_tables_say(sharing: Sharing) -> None:
    """E of what both are paid, of each pair; ties and moves together have all of the probability."""
    model, policy, other = random_case(9, sharing)
    step, p, r = PairStep(model, policy, other), model.probabilities, model.rewards
    s, t = (each.ravel() for each in np.indices((SIZE, SIZE)))
    apart = step.apart(s, t)
    for paid, mine, states in ((apart.gain, policy, s), (apart.loss, other, t)):
        expected = np.einsum("sw,sa,swa->s", p, mine, np.where(model.is_possible, r, 0.0))
        assert np.bincount(apart.row, apart.weight * paid) == pytest.approx(expected[states])
    if sharing != "none":
        own = PairStep(model, policy)
        moves = own.together(np.arange(SIZE))
        total = np.bincount(moves.row, moves.weight, SIZE) + own.ties(np.arange(SIZE))
        assert total == pytest.approx(np.ones(SIZE))
    out = branch_outcomes(model, policy)
    assert np.sum(out.chances[:, None, None] * out.weights, axis=(0, 2)) == pytest.approx(np.ones(SIZE))
