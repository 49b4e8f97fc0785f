"""Projected moments: fixed points and best fits, against brute force and a semidefinite solver."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from oracle_projected import PairChain, Projector, clarabel
from projected_models import CONSTRAINTS, PART_CHOICES, chains, on_coordinates, pair_values, projected, stalls
from zoo import SHARINGS, daily

import jointmdp as jm
from benchmarks import projected as benchmark
from jointmdp.exact.moments.certificates import Status
from jointmdp.ground.checks import Sharing
from jointmdp.learning.projected.features import one_hot
from jointmdp.learning.projected.fixed_point import QuadraticForm, as_map, congruence, fit_psd, products, smat, svec
from jointmdp.learning.projected.projecting import ProjectedSolution

# Fixed points


@pytest.mark.parametrize("sharing", daily(SHARINGS))
def test_one_feature_for_each_coordinate_gives_the_exact_moments(sharing: Sharing) -> None:
    """Wherever the weighting has weight; there is nothing to be held back by a constraint."""
    rng = np.random.default_rng(0)
    for k, chain in enumerate(chains(11, 6, discounts=(0.5, 0.9, 0.999), sharings=(sharing,))):
        states = None if k % 2 else [chain.xs[0][0]]
        nu = chain.restart_mean(chain.discount, states)
        rows = np.eye(chain.size)[:, nu > 0]
        turned = rows @ rng.normal(size=(rows.shape[1],) * 2)  # any basis of the same functions
        seen = chain.restart(chain.discount, states) > 0
        for constraint, phi in zip(CONSTRAINTS, (rows, turned)[:: 1 - 2 * (k % 2)] * 2, strict=False):
            solution = projected(chain, on_coordinates(chain, phi), constraint=constraint, states=states)
            is_centred = constraint != "second_moment"
            matrix, truth = solution.covariance_matrix, chain.pairs(is_centred)
            if not is_centred:
                matrix = solution.second_moment_matrix
            fit = (phi @ matrix @ phi.T).ravel()
            assert fit[seen] == pytest.approx(truth[seen], abs=1e-8 * max(1.0, np.abs(truth).max()))
            assert (phi @ solution.theta)[nu > 0] == pytest.approx(chain.mean[nu > 0], abs=1e-9 / (1 - chain.discount))
            assert solution.status is Status.CONVERGED


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_one_hot_features_give_the_solution_of_the_exact_method(constraint: str | None) -> None:
    """All of the face, in a model with a goal that ends it and an action that is not always at hand."""
    model, policy = stalls()
    exact = jm.evaluate(model, policy, jm.Iterate(tolerance=1e-11))
    solution = jm.evaluate(model, policy, jm.Projected(one_hot(), constraint=constraint))
    assert isinstance(solution, ProjectedSolution)
    assert solution.features.shape == (4, 2, 5)
    for name in ("mean", "covariance", "correlation", "second_moment", "variance"):
        np.testing.assert_allclose(getattr(solution, name), getattr(exact, name), atol=1e-8)
    assert solution.covariance_between(0, 0, 1, 1) == pytest.approx(exact.covariance_between(0, 0, 1, 1), abs=1e-9)
    errors = solution.projection_errors(exact)
    assert max(errors.mean_error, errors.mean_projection, errors.pair_error, errors.pair_projection) < 1e-8
    assert solution.pair_norm_error < 1e-8
    assert solution.pair_error("a", "left", "b", "right") < 1e-6
    gap, truth = solution.gap("a", "left", "right"), exact.gap("a", "left", "right")
    assert truth.mean in gap.mean_interval
    assert truth.variance in gap.variance_interval.widened(1e-10)
    assert gap.variance_interval.width < 1e-6
    assert solution.covers("a", "left", "right")
    assert "sees 2 of the 2 pairs" in solution.coverage


def target(chain: PairChain, solution: ProjectedSolution, phi: np.ndarray, is_centred: bool) -> tuple[np.ndarray, ...]:
    """The answer at all pairs, and one step of the operator from it."""
    M, m = pair_values(chain, solution, phi, is_centred), phi @ solution.theta
    return M, chain.source(m, is_centred) + chain.discount**2 * (chain.P2 @ M)


@pytest.mark.parametrize("kind", daily(["restart", "given", "stationary"]))
def test_fewer_features_solve_the_projected_equations(kind: str) -> None:
    """The answer is the best fit to one step from itself: by least squares, and by the conditions for a best matrix."""
    rng, active, solved = np.random.default_rng(3), 0, 0
    for k, chain in enumerate(chains(21, 36, discounts=(0.5, 0.9, 0.99))):
        K = int(rng.integers(1, min(4, chain.size) + 1))
        phi, constraint = rng.normal(size=(chain.size, K)), CONSTRAINTS[k % 3]
        parts = PART_CHOICES[k // 3 % 4]
        weighting: Any = kind
        if kind == "given":
            weighting = rng.random(chain.model.available.shape * 2) + 1e-3
        try:
            with warnings.catch_warnings(action="ignore", category=jm.errors.ConvergenceWarning):
                solution = projected(chain, on_coordinates(chain, phi), weighting, constraint, parts=parts)
        except jm.ModelError:
            if kind != "stationary":  # which many models do not have
                raise
            continue
        if kind == "given" and solution.status is not Status.CONVERGED:
            # With one feature all sets of active constraints were tried by hand: there is none that solves them.
            assert "may be no fixed point" in repr(solution)
            assert solution.pair_contraction.seen > 1
            continue
        assert solution.status is Status.CONVERGED
        solved += 1
        is_centred = constraint != "second_moment"
        nu, xi = chain.table(solution.weighting.mean), chain.weights(solution.weighting)
        projector = Projector(chain, phi, nu, xi, parts)
        m = phi @ solution.theta
        assert projector.mean(chain.backed_mean(m)) == pytest.approx(m, abs=1e-9 * max(1.0, np.abs(m).max()))
        M, step = target(chain, solution, phi, is_centred)
        size = max(projector.pair_size(step), 1e-12)
        if constraint is None or not solution.fixed_point.is_active:
            assert projector.pair_size(projector.pair(step, is_psd=False) - M) <= 1e-9 * size
        else:
            active += 1
            product, least = projector.slope(step, M)
            assert abs(product) <= 1e-11 * size**2
            assert least >= -1e-11 * size
        if constraint is not None:
            matrices = dict(solution.parts)
            if not is_centred:
                matrices["all"] = solution.second_moment_matrix
            for matrix in matrices.values():
                assert np.linalg.eigvalsh(matrix)[0] >= -1e-12 * max(1e-12, *np.abs(matrix).ravel())
                assert pytest.approx(matrix) == matrix.T
    assert solved >= 10
    assert active >= 3 or kind == "stationary"


@pytest.mark.slow
def test_constrained_fixed_points_agree_with_clarabel() -> None:
    rng, tried = np.random.default_rng(1), 0
    for chain in chains(21, 30, discounts=(0.9,)):
        phi = rng.normal(size=(chain.size, min(3, chain.size)))
        for constraint in CONSTRAINTS[:2]:
            parts = PART_CHOICES[tried % 2]
            solution = projected(chain, on_coordinates(chain, phi), constraint=constraint, parts=parts)
            if not solution.fixed_point.is_active or tried == 6:
                continue
            tried += 1
            xi = chain.weights(solution.weighting)
            projector, root = Projector(chain, phi, chain.table(solution.weighting.mean), xi, parts), np.sqrt(xi)
            M, step = target(chain, solution, phi, constraint == "covariance")
            fit = projector.U @ clarabel(root[:, None] * projector.U, root * step, len(parts)).ravel()
            # Clarabel stops at a duality gap of its own, and so do the distances that the gap allows.
            allowed = math.sqrt(2 * abs(projector.slope(step, fit)[0]))
            assert projector.pair_size(fit - M) <= 1e-6 * projector.pair_size(M) + allowed
            assert allowed < 1e-3 * projector.pair_size(M)
    assert tried == 6


def test_a_constraint_that_matters_moves_the_answer() -> None:
    """Features too few for the model of the collapse: without a constraint a variance is negative."""
    for chain in chains(21, 15, discounts=(0.9,)):
        phi = on_coordinates(chain, np.random.default_rng(1).normal(size=(chain.size, min(3, chain.size))))
        free = projected(chain, phi, constraint=None, parts=["all"])
        kept = projected(chain, phi, parts=["all"])
        assert kept.fixed_point.is_active == (np.linalg.eigvalsh(free.covariance_matrix)[0] < -1e-9)
        if kept.fixed_point.is_active:
            assert not np.allclose(kept.covariance_matrix, free.covariance_matrix)
            assert kept.theta == pytest.approx(free.theta)
            assert len(kept.history) == kept.steps > 0
        else:
            assert kept.covariance_matrix == pytest.approx(free.covariance_matrix)


@pytest.mark.slow
def test_nearly_dependent_features_come_to_an_end() -> None:
    """A forest that grows, burns or is cut (the example of MDPtoolbox), of a stranger: it went on for half an hour.

    Cubics for each action, of which one is hardly ever taken: products of features are all but dependent there.
    """
    size, fire = 40, 0.08
    transitions, rewards = np.zeros((size, 2, size)), np.zeros((size, 2))
    transitions[:, :, 0] = fire
    transitions[np.arange(size), 0, np.minimum(np.arange(size) + 1, size - 1)] += 1 - fire
    transitions[:, 1, 0] = 1
    rewards[1:, 1], rewards[-1] = 1, [30, 20]
    model, cut = jm.from_mdp(transitions, rewards, 0.96), np.where(np.arange(size) % 40 < 7, 1, 0)
    with warnings.catch_warnings(action="ignore", category=jm.errors.ConvergenceWarning):
        solution = jm.evaluate(model, cut, jm.Projected(jm.features.polynomial(3)))
    assert isinstance(solution, ProjectedSolution)
    assert solution.status in (Status.CONVERGED, Status.STAGNATED)
    assert solution.steps < 50
    exact = jm.evaluate(model, cut)
    for s in range(0, size, 13):
        found, truth = solution.gap(s, 0, 1), exact.gap(s, 0, 1)
        assert truth.mean in found.mean_interval
        assert truth.variance in found.variance_interval
        assert found.variance >= 0


# Best positive semidefinite matrices


@pytest.mark.parametrize("rank", [None, 1, 4])
def test_best_psd_matrices_agree_with_clarabel(rank: int | None) -> None:
    """Also where some directions of the matrix are not seen at all; values are then unique, matrices are not."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        K, rows = 4, 40
        if rank is None:
            left, right = rng.normal(size=(2, rows, K))
        else:
            left = rng.normal(size=(rank, K))[rng.integers(rank, size=rows)]
            right = left
        U = products(left, right)
        wanted = rng.normal(size=rows)
        form = QuadraticForm(U.T @ U)
        fit = fit_psd(form, U.T @ wanted, np.zeros(U.shape[1]), 1e-7 * float(np.linalg.norm(wanted)))
        assert np.linalg.eigvalsh(smat(fit.vector))[0] >= -1e-12
        vectors = (left[:, :, None] * right[:, None, :]).reshape(rows, -1)
        other = vectors @ clarabel(vectors, wanted).ravel()
        assert U @ fit.vector == pytest.approx(other, abs=1e-6)
        assert form.size(fit.vector - svec(clarabel(vectors, wanted)[0])) <= fit.error + 1e-6


def test_maps_of_symmetric_matrices() -> None:
    rng = np.random.default_rng(0)
    left, right, B = rng.normal(size=(3, 4, 4))
    Theta = left + left.T
    assert smat(svec(Theta)) == pytest.approx(Theta)
    assert svec(Theta) @ svec(right + right.T) == pytest.approx(np.trace(Theta @ (right + right.T)))
    assert products(left, right) @ svec(Theta) == pytest.approx(np.einsum("ni,ij,nj->n", left, Theta, right))
    assert smat(congruence(B) @ svec(Theta)) == pytest.approx(B @ Theta @ B.T)
    T = rng.normal(size=(16, 16))
    numbers = np.arange(16).reshape(4, 4)
    T = T + T.T
    entries = np.einsum("ikjl,kl->ij", T.reshape(4, 4, 4, 4), Theta)
    assert smat(as_map(T, numbers) @ svec(Theta)) == pytest.approx((entries + entries.T) / 2)


def test_the_benchmark_solves_one_problem_both_ways(capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmark.least_squares(5) > 0
    distance, ours = (float(number) for number in capsys.readouterr().out.split()[5:7])
    assert distance < 1e-4
    assert ours <= 1e-6
