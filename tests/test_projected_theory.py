"""What the theory says of projections, held against brute force on hundreds of random ergodic models.

For weights with ``ξP₂ ≤ ξ/c`` and ``νP ≤ ν/c``: one step of the process enlarges no norm by more than 1/√c, so that the
projected operator of means contracts by γ/√c, that of covariances or second moments by γ²/√c, and both together, in
the norm ``max{‖m‖_ν, β‖M‖_ξ}`` of the paper, by ``max{γ/√c, βb + γ²/√c}`` with ``b = 2γR_max/√c``. The stationary
weighting has c = 1. Largest expansions are singular values, so "for all functions" is tested as it is said.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from oracle_projected import PairChain, Projector, stands_for
from projected_models import CONSTRAINTS, PART_CHOICES, pair_values
from zoo import SHARINGS, slow_or_long

import jointmdp as jm
from jointmdp.exact.moments.certificates import Certificate, Status
from jointmdp.exact.moments.stored_moments import PairMoments
from jointmdp.exact.solution.solution import Solution
from jointmdp.learning.projected.projecting import ProjectedSolution, ProjectionErrors

S, W, A, K = 4, 3, 2, 3
MODELS = (36, pytest.param(72, marks=pytest.mark.slow), pytest.param(720, marks=pytest.mark.long))
ROUNDING = 1 + 1e-9


class Trial(NamedTuple):
    """A random ergodic model, and what is known of it by brute force."""

    chain: PairChain
    weighting: str
    constraint: str | None
    c: float
    projector: Projector
    features: np.ndarray
    parts: tuple[str, ...]
    rng: np.random.Generator

    @property
    def is_centred(self) -> bool:
        return self.constraint != "second_moment"


@cache
def trial(seed: int) -> Trial:
    rng = np.random.default_rng(seed)
    sharing = SHARINGS[seed % 3]
    weighting = ("restart", "stationary")[seed // 3 % 2]
    constraint = CONSTRAINTS[seed // 6 % 3]
    discount = (0.5, 0.8, 0.95)[seed // 18 % 3]
    p = rng.dirichlet(np.ones(W), size=S)
    N = rng.integers(S, size=(S, W, A))
    N[:, 0] = (np.arange(S)[:, None] + 1) % S  # every state is reached from every other
    N[0, 1] = 0  # at no fixed period
    R = 3 * rng.normal(size=(S, W, A)) + rng.normal(size=(S, 1, 1))
    model = jm.JointMDP(p[np.zeros(S, int)] if sharing == "time" else p, R, N, discount, sharing)
    chain = PairChain(model, rng.dirichlet(np.ones(A), size=S))
    features = rng.normal(size=(S, A, K))
    if weighting == "restart":
        c = discount if seed % 2 else float(rng.uniform(discount**2, 1))
        nu, xi = chain.restart_mean(c), chain.restart(c)
    else:
        c, n = 1.0, chain.size
        nu = chain.long_run(chain.P, np.full(n, 1 / n))
        xi = np.diag(nu).ravel()  # two branches that meet are one for ever
    parts = PART_CHOICES[int(np.random.default_rng([seed, 1]).integers(len(PART_CHOICES)))]
    projector = Projector(chain, features.reshape(-1, K), nu, xi, parts)
    return Trial(chain, weighting, constraint, c, projector, features, parts, rng)


of_many_models = pytest.mark.parametrize("models", MODELS)


def trials(models: int) -> list[Trial]:
    return [trial(seed) for seed in range(models)]


def largest_expansion(matrix: np.ndarray, weights: np.ndarray) -> float:
    """sup ‖Pf‖/‖f‖ over all functions on the support of the weights."""
    seen = weights > 0
    root = np.sqrt(weights[seen])
    return float(np.linalg.norm(root[:, None] * matrix[np.ix_(seen, seen)] / root, 2))


@of_many_models
def test_one_step_of_the_process_enlarges_no_norm_by_more_than_the_constant_says(models: int) -> None:
    tight = []
    for each in trials(models):
        chain, projector = each.chain, each.projector
        for matrix, weights in ((chain.P, projector.nu), (chain.P2, projector.xi)):
            assert (weights @ matrix <= weights / each.c + 1e-14).all()
            tight.append(math.sqrt(each.c) * largest_expansion(matrix, weights))
            assert tight[-1] <= ROUNDING
            for f in each.rng.normal(size=(3, len(matrix))):
                assert math.sqrt(weights @ (matrix @ f) ** 2) <= math.sqrt(weights @ f**2 / each.c) * ROUNDING
    stationary = [t for t, each in zip(np.reshape(tight, (-1, 2)), trials(models), strict=True) if each.c == 1]
    assert stationary == pytest.approx(np.ones_like(stationary))  # constants stay what they are
    assert np.quantile(tight, 0.5) > 0.8


def candidate(each: Trial, is_psd: bool) -> tuple[np.ndarray, np.ndarray]:
    """Random means and second moments within the features."""
    phi, size = each.projector.phi, 3 / (1 - each.chain.discount)
    found = np.zeros((S * A, S * A))
    for part in each.parts:
        matrix = each.rng.normal(size=(K, K)) * size
        matrix = matrix @ matrix.T if is_psd else size * (matrix + matrix.T)
        found += stands_for(each.chain, part) * (phi @ matrix @ phi.T)
    return phi @ each.rng.normal(size=K) * size, found.ravel()


def pair_step(each: Trial, m: np.ndarray, M: np.ndarray) -> np.ndarray:
    """TM by brute force, given the means."""
    chain = each.chain
    return chain.source(m, each.is_centred) + chain.discount**2 * (chain.P2 @ M)


@of_many_models
def test_the_projected_operator_contracts(models: int) -> None:
    """Means by γ/√c, covariances or second moments by γ²/√c while the means are held fixed."""
    seen = []
    for each in trials(models):
        chain, projector, is_psd = each.chain, each.projector, each.constraint is not None
        g, root = chain.discount, math.sqrt(each.c)
        (m, M), (k, L) = candidate(each, is_psd), candidate(each, is_psd)
        ahead = projector.mean(chain.backed_mean(m)) - projector.mean(chain.backed_mean(k))
        seen.append((projector.mean_size(ahead) / projector.mean_size(m - k)) / (g / root))
        ahead = projector.pair(pair_step(each, m, M), is_psd) - projector.pair(pair_step(each, m, L), is_psd)
        seen.append((projector.pair_size(ahead) / projector.pair_size(M - L)) / (g**2 / root))
    assert max(seen) <= ROUNDING + 1e-6
    assert max(seen) > 0.8  # and not by much less


@of_many_models
def test_both_blocks_together_contract_in_the_norm_of_the_paper(models: int) -> None:
    """With β below (√c − γ²)/(2γR_max); the paper's own β lacks R_max, and does not do."""
    without_bound = []
    for each in trials(models):
        if each.constraint != "second_moment" or each.chain.model.sharing == "none":
            continue  # a product of means there: not Lipschitz with one constant
        chain, projector, g = each.chain, each.projector, each.chain.discount
        root, R = math.sqrt(each.c), chain.model.reward_bound
        for is_psd in (False, True):
            (m, M), (k, L) = candidate(each, is_psd), candidate(each, is_psd)
            after = projector.mean(chain.backed_mean(m)) - projector.mean(chain.backed_mean(k))
            pairs = projector.pair(pair_step(each, m, M), is_psd) - projector.pair(pair_step(each, k, L), is_psd)

            beta = each.rng.uniform(0, 1) * (root - g**2) / (2 * g * R)
            kappa = max(g / root, beta * 2 * g * R / root + g**2 / root)
            assert kappa < 1
            before = max(projector.mean_size(m - k), beta * projector.pair_size(M - L))
            assert max(projector.mean_size(after), beta * projector.pair_size(pairs)) <= before * (kappa + 1e-6)
        # The same second moments, means that differ: what one step adds is all there is.
        pairs = projector.pair(pair_step(each, m, M) - pair_step(each, k, M), is_psd=False)
        assert projector.pair_size(pairs) <= 2 * g * R / root * projector.mean_size(m - k) * ROUNDING
        without_bound.append(projector.pair_size(pairs) / (2 * g / root * projector.mean_size(m - k)))
    assert max(without_bound) > 1


def exact(each: Trial) -> Solution:
    """The brute-force truth as a solution."""
    chain, model = each.chain, each.chain.model
    mean, second = chain.mean.reshape(S, A), chain.pairs(is_centred=False).reshape(S, A, S, A)
    sure = Certificate(0.0, 0.0, 0.0, 0.0, np.zeros((S, A)), np.zeros((S, A)))
    return Solution(model, chain.policy, PairMoments(mean, second), sure, Status.CONVERGED, "brute force", 0)


class Answer(NamedTuple):
    """The library's answer beside the truth, which is exact where the features fit."""

    trial: Trial
    solution: ProjectedSolution
    errors: ProjectionErrors


@cache
def answers(models: int) -> list[Answer]:
    found = []
    for seed, each in enumerate(trials(models)):
        c = each.c if each.weighting == "restart" and seed % 2 == 0 else None
        method = jm.Projected(each.features, each.weighting, each.constraint, parts=each.parts, c=c)
        solution = jm.evaluate(each.chain.model, each.chain.policy, method)
        assert isinstance(solution, ProjectedSolution)
        found.append(Answer(each, solution, solution.projection_errors(exact(each))))
    return found


def fitted_pairs(answer: Answer) -> np.ndarray:
    trial = answer.trial
    return pair_values(trial.chain, answer.solution, trial.projector.phi, trial.is_centred)


@pytest.mark.slow
@pytest.mark.parametrize("models", slow_or_long([72, 720], 1))
def test_the_answer_says_how_well_its_features_could_do_and_did(models: int) -> None:
    for each in answers(models):
        (chain, projector), errors = (each.trial.chain, each.trial.projector), each.errors
        truth, constraint = chain.pairs(each.trial.is_centred), each.trial.constraint
        m = projector.phi @ each.solution.theta
        assert errors.mean_error == pytest.approx(projector.mean_size(m - chain.mean), rel=1e-7)
        projected = projector.mean_size(projector.mean(chain.mean) - chain.mean)
        assert errors.mean_projection == pytest.approx(projected, rel=1e-7)
        assert errors.pair_error == pytest.approx(projector.pair_size(fitted_pairs(each) - truth), rel=1e-7)
        projected = projector.pair_size(projector.pair(truth, constraint is not None) - truth)
        assert errors.pair_projection == pytest.approx(projected, rel=1e-6)
        assert each.solution.status is Status.CONVERGED
        assert each.solution.mean_contraction.seen <= each.solution.mean_contraction.bound * ROUNDING
        assert each.solution.pair_contraction.seen <= each.solution.pair_contraction.bound * ROUNDING
        assert each.solution.mean_contraction.bound == pytest.approx(chain.discount / math.sqrt(each.trial.c))
        assert each.solution.pair_contraction.bound == pytest.approx(chain.discount**2 / math.sqrt(each.trial.c))


@pytest.mark.parametrize("models", [pytest.param(72, marks=pytest.mark.slow), *MODELS[1:]])
def test_the_approximation_bound_holds(models: int) -> None:
    """Before anything is solved: from what the features could do. Of the mean, of pairs, and in the paper's norm."""
    mean_slack, pair_slack = [], []
    for each in answers(models):
        errors, chain = each.errors, each.trial.chain
        assert errors.mean_projection <= errors.mean_error * ROUNDING
        assert errors.mean_error <= errors.mean_bound * ROUNDING
        assert errors.pair_projection <= errors.pair_error * (1 + 1e-7)
        assert errors.pair_error <= errors.pair_bound * ROUNDING
        mean_slack.append(errors.mean_bound / errors.mean_error)
        pair_slack.append(errors.pair_bound / errors.pair_error)
        if each.trial.constraint == "second_moment" and chain.model.sharing != "none":
            g, root, R = chain.discount, math.sqrt(each.trial.c), chain.model.reward_bound
            beta = 0.5 * (root - g**2) / (2 * g * R)
            kappa = max(g / root, beta * 2 * g * R / root + g**2 / root)
            could = max(errors.mean_projection, beta * errors.pair_projection)
            assert max(errors.mean_error, beta * errors.pair_error) <= could / (1 - kappa)
    # Not for nothing: of the size of the errors themselves, at discount 0.95 as well.
    assert min(mean_slack) < 2
    assert min(pair_slack) < 4
    assert np.median(mean_slack) < 10
    assert np.median(pair_slack) < 60


@pytest.mark.slow
@of_many_models
def test_bounds_from_the_answer_alone_hold(models: int) -> None:
    """Afterwards: from how far the answer is from the exact equations."""
    slack = []
    for each in answers(models):
        (chain, projector), solution = (each.trial.chain, each.trial.projector), each.solution
        m, M = projector.phi @ solution.theta, fitted_pairs(each)
        residual = projector.mean_size(m - chain.backed_mean(m))
        assert solution.mean_residual == pytest.approx(residual, rel=1e-7)
        assert solution.pair_residual == pytest.approx(projector.pair_size(M - pair_step(each.trial, m, M)), rel=1e-7)
        assert each.errors.mean_error <= solution.mean_norm_error
        assert each.errors.pair_error <= solution.pair_norm_error
        slack += [
            solution.mean_norm_error / each.errors.mean_error,
            solution.pair_norm_error / each.errors.pair_error,
        ]
    assert min(slack) < 1.5
    assert np.median(slack) < 50


@pytest.mark.slow
@pytest.mark.parametrize("models", slow_or_long([72, 720], 1))
def test_pointwise_bounds_and_gaps_hold(models: int) -> None:
    used, narrow = 0, []
    for each in answers(models):
        chain, solution, n = each.trial.chain, each.solution, each.trial.chain.size
        fit, truth = fitted_pairs(each), chain.pairs(each.trial.is_centred)
        C, mu = chain.pairs(is_centred=True).reshape(n, n), chain.mean
        off = np.abs(fit - truth).reshape(n, n)
        assert (np.abs(solution.mean.ravel() - mu) <= solution.certificate.mean_errors.ravel()).all()
        assert solution.certificate.mean_error >= np.abs(solution.mean.ravel() - mu).max()
        covariances = projector_covariances(each)
        assert np.abs(covariances - C).max() <= solution.certificate.covariance_error
        for i, x in enumerate(chain.xs):
            for j, y in enumerate(chain.xs):
                bound = solution.pair_error(*x, *y)
                assert off[i, j] <= bound
                weight = each.trial.projector.xi[i * n + j] * (1 if i == j else 2)  # both orders are in the norm
                assert math.isinf(bound) == (weight == 0)
                if weight > 0:
                    assert bound == pytest.approx(solution.pair_norm_error / math.sqrt(weight), rel=1e-6)
                    used += 1
        for s in range(S):
            i, j = chain.place[s, 0], chain.place[s, 1]
            gap = solution.gap(s, 0, 1)
            variance = C[i, i] + C[j, j] - 2 * C[i, j]
            assert mu[i] - mu[j] in gap.mean_interval
            assert variance in gap.variance_interval
            narrow.append(gap.variance_interval.width / variance)
    assert used > 20 * models
    assert min(narrow) < 5


def projector_covariances(each: Answer) -> np.ndarray:
    chain = each.trial.chain
    return pair_values(chain, each.solution, each.trial.projector.phi, is_centred=True).reshape(chain.size, -1)


@of_many_models
@pytest.mark.slow
def test_the_certified_residual_is_that_of_the_operator_of_the_paper(models: int) -> None:
    for each in answers(models):
        chain, solution = each.trial.chain, each.solution
        m = each.trial.projector.phi @ solution.theta
        M = projector_covariances(each).ravel() + np.outer(m, m).ravel()
        step = chain.source(m, is_centred=False) + chain.discount**2 * (chain.P2 @ M)
        weight = 2 * chain.model.reward_bound / (1 - chain.discount)
        residual = max(np.abs(m - chain.backed_mean(m)).max(), np.abs(M - step).max() / weight)
        assert residual <= solution.certificate.residual <= 20 * residual


def test_bounds_on_every_mean_and_covariance_are_sharp() -> None:
    """Two states that are never left and one feature, the constant 1: residuals are the same at every step."""
    g, stay = 0.9, [[[0], [0]], [[1], [1]]]
    noise = jm.JointMDP([[0.5, 0.5]] * 2, [[[1.0], [-1.0]], [[3.0], [-3.0]]], stay, g)
    solution = jm.evaluate(noise, "uniform", jm.Projected(np.ones((2, 1, 1)), parts=["all"]))
    assert solution.mean == pytest.approx(0)
    fit = float(solution.covariance[1, 0, 0])  # of all pairs, also of the two states, which are independent
    error = max(9 / (1 - g**2) - fit, fit)
    assert solution.certificate.covariance_error == pytest.approx(error, rel=1e-9)
    sure = jm.JointMDP([[0.5, 0.5]] * 2, [[[1.0], [1.0]], [[-1.0], [-1.0]]], stay, g)
    solution = jm.evaluate(sure, "uniform", jm.Projected(np.ones((2, 1, 1))))
    assert solution.mean == pytest.approx(0, abs=1e-12)
    assert solution.certificate.mean_errors == pytest.approx(1 / (1 - g))
    assert isinstance(solution, ProjectedSolution)
    # In the weights of means only κ₁ = γ/√c is known, though nothing is lost in a step here.
    assert solution.mean_norm_error == pytest.approx(1 / (1 - math.sqrt(g)))
