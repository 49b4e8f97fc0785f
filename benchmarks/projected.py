"""Projection onto features: best positive semidefinite matrices beside a semidefinite solver, and a whole evaluation.

The first lines fit a matrix of K features to noisy values of pairs, half of them at odds with any covariance, so that
the constraint matters. Clarabel gets the same problem through cvxpy, reduced to K(K+1)/2 rows, without which it takes
many times longer. The last lines evaluate a gridworld that starts again at the goal, with features and exactly. Seconds
are those of the processor, on one core with OPENBLAS_NUM_THREADS=1. ``--small`` takes less of both.
"""

import sys
import time

import cvxpy as cp
import numpy as np
import scipy.linalg

import jointmdp as jm
from jointmdp.ground.arrays import Floats
from jointmdp.learning.projected.fixed_point import QuadraticForm, duality_error, fit_psd, products, smat, svec

TOLERANCE = 1e-6  # of the size of the values, in the norm of the weights: what Clarabel reaches at its own settings


def noisy_pairs(features: int, seed: int = 0) -> tuple[Floats, Floats]:
    """H and q of values at pairs of random coordinates: a covariance of half rank, and noise of its size."""
    rng = np.random.default_rng(seed)
    n = features * (features + 1) // 2
    phi = rng.normal(size=(2, 4 * n, features)) / np.sqrt(features)
    phi[1, ::2] = phi[0, ::2]  # half of the pairs are of a coordinate with itself
    half = rng.normal(size=(features, features // 2))
    U = products(phi[0], phi[1])
    values = U @ svec(half @ half.T)
    values = values + rng.normal(size=len(values)) * np.std(values)
    return U.T @ U / len(U), U.T @ values / len(U)


def by_clarabel(H: Floats, q: Floats) -> Floats:
    """The best matrix."""
    root = scipy.linalg.cholesky(H)
    K = int(np.sqrt(2 * len(q)))
    theta = cp.Variable((K, K), PSD=True)
    rows, columns = np.triu_indices(K)
    scale = np.where(rows == columns, 1.0, np.sqrt(2.0))
    vector = cp.multiply(scale, theta[rows, columns])
    problem = cp.Problem(cp.Minimize(cp.sum_squares(root @ vector - scipy.linalg.solve_triangular(root, q, trans="T"))))
    problem.solve(solver=cp.CLARABEL)
    return svec(np.asarray(theta.value))


def least_squares(features: int) -> float:
    """Print both times and the distance of the answers; the ratio of the times is returned."""
    H, q = noisy_pairs(features)
    start = time.process_time()
    form = QuadraticForm(H)
    size = form.size(form.back(form.into(q)))
    fit = fit_psd(form, q, np.zeros(len(q)), TOLERANCE * size)
    ours = time.process_time() - start
    start = time.process_time()
    other = by_clarabel(H, q)
    theirs = time.process_time() - start
    negative = float(np.mean(np.linalg.eigvalsh(smat(form.back(form.into(q)))) < 0))
    print(
        f"{features:>9}{len(q):>9}{ours:>10.3f}{theirs:>10.2f}{theirs / ours:>9.0f}"
        f"{form.size(fit.vector - other) / size:>11.1e}{fit.error / size:>10.1e}"
        f"{duality_error(form, q, other) / size:>10.1e}{fit.steps:>7}{negative:>8.0%}"
    )
    return theirs / ours


def restarted_gridworld(size: int, discount: float = 0.95) -> tuple[jm.JointMDP, Floats]:
    """The windy gridworld that starts again in the first cell once the goal has paid; a tenth of all steps explores."""
    model, policy = jm.envs.windy_gridworld(size, discount)
    successors = model.successors.copy()
    successors[-1] = 0
    ergodic = jm.JointMDP(model.probabilities, model.rewards, successors, discount, model.sharing)
    return ergodic, 0.9 * policy + 0.1 * jm.envs.uniform_policy(ergodic)


def blocks(size: int, across: int) -> Floats:
    """Indicators of ``across × across`` groups of cells, for each of four actions."""
    cells = np.arange(size) * across // size
    group = (cells[:, None] * across + cells[None, :]).ravel()
    table = np.zeros((size * size, 4, 4, across * across))
    for a in range(4):
        table[np.arange(size * size), a, a, group] = 1.0
    return table.reshape(size * size, 4, -1)


def evaluation(size: int, across: int) -> None:
    """Print the seconds of a projected evaluation and of the exact one."""
    model, policy = restarted_gridworld(size)
    features = blocks(size, across)
    jm.evaluate(model, policy)  # compiles
    start = time.process_time()
    exact = jm.evaluate(model, policy)
    exactly = time.process_time() - start
    for constraint in ("covariance", "second_moment", None):
        start = time.process_time()
        solution = jm.evaluate(model, policy, jm.Projected(features, constraint=constraint))
        seconds = time.process_time() - start
        active = getattr(solution, "fixed_point").is_active  # noqa: B009 - evaluate promises a Solution
        off = np.abs(solution.covariance - exact.covariance)[: size * size - 1]
        print(
            f"{f'{size}×{size}':>9}{features.shape[2]:>9}  {constraint or 'none':<14}{seconds:>9.2f}{exactly:>9.2f}"
            f"  {'active' if active else 'idle':<8}{np.median(off) / np.median(exact.variance):>9.2f}"
        )


def main() -> None:
    is_small = "--small" in sys.argv
    print("Best positive semidefinite matrix, seconds; distances relative to the values")
    print(
        f"{'features':>9}{'unknowns':>9}{'ours':>10}{'Clarabel':>10}{'ratio':>9}{'distance':>11}"
        f"{'our gap':>10}{'its gap':>10}{'steps':>7}{'λ < 0':>8}"
    )
    for features in (5, 10) if is_small else (10, 20, 40):
        least_squares(features)
    print("Whole evaluation, seconds; median error of covariances over median variance")
    print(f"{'grid':>9}{'features':>9}  {'constraint':<14}{'features':>9}{'exact':>9}  {'it is':<8}{'error':>9}")
    evaluation(*((5, 2) if is_small else (10, 3)))
