"""The projected fixed point, in the space of features.

The mean is solved first, ``Aθ = r + γNθ``. Then ``Θ ← argmin ½⟨Θ, HΘ⟩ − ⟨g + γ²GΘ, Θ⟩`` over the allowed matrices: one
application of the operator, projected. Without a constraint its fixed point solves ``(H − γ²G)Θ = g``; where that
matrix happens to be allowed it is the constrained fixed point, too. Else the projection is iterated, each step warm
from the one before and as exact as the iteration needs it.

The iteration contracts by γ²/√c, slowly where γ is near 1. So between its steps Newton's method is tried on the
equation ``Θ = P(Θ − F(Θ)/L)`` with ``F(Θ) = HΘ − γ²GΘ − g`` and the projection P onto positive semidefinite matrices,
whose derivative is known (Sun and Sun 2002). What comes out is judged by that equation, which holds at the fixed point
alone, and by ``‖Θ − Θ*‖ ≤ ‖Θ − ΠTΘ‖ / (1 − κ)``.

Everything is done in features that are whitened, ``A = 1``: matrices stay positive semidefinite under ``Θ ↦ LᵀΘL``,
and steps of the gradient fit all directions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse.linalg
from jaxtyping import Float
from numpy import ndarray
from threadpoolctl import threadpool_limits

from jointmdp.arrays import Floats
from jointmdp.errors import ModelError, Status
from jointmdp.progress import Meter
from jointmdp.projected.psd_least_squares import (
    QuadraticForm,
    duality_error,
    fit_psd,
    least_eigenvalue,
    nearest_psd,
)
from jointmdp.projected.symmetric_matrices import congruence, smat, svec, upper

INSIDE = 1e-12  # of the largest eigenvalue: a matrix with no eigenvalue further below 0 is allowed but for rounding
INNER_STEPS = 200  # of the gradient method in a step
NEWTON_STEPS = 60  # between two steps of the iteration
WANDERING = 5  # steps that are tried where nothing says that the iteration converges
HELD = 1e-9  # of the identity in Newton's equations
DENSE = 1500  # numbers of a symmetric matrix up to which Newton's equations are formed
SHORTER = 30.0  # σ is L over this: of 1, 30 and 1,000 the one that took the fewest of Newton's steps
FLOOR = 1e-13  # of the size of a matrix: an equation that holds to this holds but for rounding
SHARE = 0.1  # of the last step: how exact the projection inside of a step is


class FeatureSums(ABC):
    """What the fixed point needs of a model, or of samples; in whitened features."""

    discount: float

    @abstractmethod
    def mean_system(self) -> tuple[Floats, Floats]:
        """N and r, where A is the identity."""

    @abstractmethod
    def pair_system(self) -> tuple[Floats, Floats]:
        """H and G."""

    @abstractmethod
    def source(self, theta: Floats) -> Floats:
        """g, given the mean."""


class FixedPoint(NamedTuple):
    """The fixed point and how it was reached."""

    theta: Float[ndarray, " K"]
    matrix: Float[ndarray, " n"]
    status: Status
    steps: int
    step_error: float
    """Bound on the distance to the fixed point in the norm of H that stopping early may have left."""
    mean_contraction: float
    """The factor by which the projected mean operator shrinks distances, at most."""
    pair_contraction: float
    """The same of second moments, without the constraint."""
    is_active: bool
    """Whether the constraint holds the matrix back."""
    history: Floats
    """Sizes of the steps of the iteration, in the norm of H; empty where it was solved at once."""


def solve_fixed_point(sums: FeatureSums, is_psd: bool, tolerance: float, max_steps: int) -> FixedPoint:
    """The fixed point, to `tolerance` relative to its size in the norm of H."""
    g = sums.discount
    N, r = sums.mean_system()
    theta = _fixed(g * N, r)
    mean_contraction = g * float(np.linalg.norm(N, 2))
    H, G = sums.pair_system()
    source = sums.source(theta)
    form = QuadraticForm(H)
    moved = form.into(form.into(G).T).T
    pair_contraction = g**2 * _norm(moved)
    whole = form.back(_fixed(g**2 * moved, form.into(source)))
    found = FixedPoint(theta, whole, Status.CONVERGED, 0, 0.0, mean_contraction, pair_contraction, False, np.empty(0))
    if not is_psd:
        return found
    size = float(np.linalg.norm(whole))
    least = least_eigenvalue(whole)
    if least >= -INSIDE * max(size, np.finfo(float).tiny):
        return found._replace(matrix=nearest_psd(whole))
    return _iterated(form, g**2 * G, source, found, tolerance, max_steps)


def _fixed(matrix: Floats, added: Floats) -> Floats:
    """The x with ``x = added + matrix x``."""
    try:
        return np.asarray(np.linalg.solve(np.eye(len(matrix)) - matrix, added), np.float64)
    except np.linalg.LinAlgError:
        raise ModelError(
            "the projected equations have no solution with these features and weights: the process goes where the "
            'weights hardly look; weighting="restart" always has one'
        ) from None


def _iterated(
    form: QuadraticForm, G: Floats, source: Floats, first: FixedPoint, tolerance: float, max_steps: int
) -> FixedPoint:
    """Θ ← Π(source + GΘ) until it stands still, with Newton's steps in between."""
    kappa = min(first.pair_contraction, 1 - 1e-9)
    if first.pair_contraction >= 1:  # of few samples, or of weights that the process leaves: it may wander for ever
        max_steps = min(max_steps, WANDERING)
    x = nearest_psd(first.matrix)
    scale = max(form.size(first.matrix), np.finfo(float).tiny)
    history: list[float] = []
    best: tuple[Floats, float] = x, np.inf
    newton, status = _Newton(form, G, source), Status.STEP_LIMIT
    one_thread = threadpool_limits(1 if len(x) <= DENSE else None, "blas")  # eigenvalues of small matrices
    with Meter("projected iteration") as meter, one_thread:
        for step in range(1, max_steps + 1):
            inner = SHARE * (1 - kappa) * (history[-1] if history else scale)
            after = fit_psd(form, source + G @ x, x, inner, INNER_STEPS).vector
            history.append(form.size(after - x))
            x, off = newton.improved(after)
            if off < best[1]:
                best = x, off
            error = _error(form, source + G @ x, x, off) / (1 - kappa)
            meter.update(min(1.0, np.log(max(error / scale, 1e-300)) / np.log(tolerance)), f"step {step}")
            if error <= tolerance * scale or off <= FLOOR * float(np.linalg.norm(x)):
                status = Status.CONVERGED
                break
    return first._replace(
        matrix=best[0], status=status, steps=step, step_error=error, is_active=True, history=np.array(history)
    )


def _error(form: QuadraticForm, q: Floats, x: Floats, off: float) -> float:
    """Bound on ``‖Θ − ΠTΘ‖`` in the norm of H, from the size of ``Θ − P(Θ − F(Θ)/L)``; see `psd_least_squares`."""
    known = [duality_error(form.matrix, q, x)]
    if form.least > 0:
        known.append(2 * form.largest * off / np.sqrt(form.least))
    return float(min(known))


class _Newton:
    """Newton's method on ``Θ = P(Θ − F(Θ)/σ)``, whose solutions are the same for every σ."""

    def __init__(self, form: QuadraticForm, G: Floats, source: Floats) -> None:
        self.matrix, self.source, self.largest = form.matrix - G, source, form.largest
        self.sigma = form.largest / SHORTER

    def improved(self, x: Floats) -> tuple[Floats, float]:
        """The best point that Newton's steps lead to, and the size of ``Θ − P(Θ − F(Θ)/L)`` there.

        Their way is not monotone: whole steps find the right eigenvalues sooner than those that must always improve.
        """
        step, added = np.eye(len(x)) - self.matrix / self.sigma, self.source / self.sigma
        best, least = nearest_psd(x), np.inf
        for _ in range(NEWTON_STEPS):
            found = _Projection(step @ x + added)
            off = x - found.value
            size = float(np.linalg.norm(off))
            # But for rounding the equation holds, and another step does not make it hold better.
            is_over = size <= FLOOR * float(np.linalg.norm(x)) and size > least / 4
            if size < least:
                best, least = found.value, size
            if is_over or size == 0:
                break
            x = x + _newton_step(found, step, off)
            if not np.isfinite(x).all():
                break
        moved = nearest_psd(best - (self.matrix @ best - self.source) / self.largest)
        return best, float(np.linalg.norm(best - moved))


def _newton_step(found: _Projection, step: Floats, off: Floats) -> Floats:
    """The solution of ``(1 − P′·step) d = −off``; directions that no weight sees are free, and HELD where they are."""
    size = len(off)
    if size <= DENSE:
        return np.asarray(np.linalg.solve((1 + HELD) * np.eye(size) - found.derivative() @ step, -off), np.float64)
    system = scipy.sparse.linalg.LinearOperator(
        (size, size), matvec=lambda d: (1 + HELD) * d - found.along(step @ d.ravel()), dtype=np.float64
    )
    move, _ = scipy.sparse.linalg.gmres(system, -off, rtol=1e-3, restart=60, maxiter=5)
    return np.asarray(move)


class _Projection:
    """The nearest positive semidefinite matrix of Z, and the derivative of that."""

    def __init__(self, z: Floats) -> None:
        self._values, self._vectors = np.linalg.eigh(smat(z))
        self.value = svec((self._vectors * np.maximum(self._values, 0.0)) @ self._vectors.T)

    def derivative(self) -> Floats:
        """``D ↦ Q (Ω ∘ QᵀDQ) Qᵀ`` as a matrix."""
        rows, columns, _ = upper(len(self._values))
        turn = congruence(self._vectors)
        return (turn * self._shares[rows, columns]) @ turn.T

    def along(self, d: Floats) -> Floats:
        """The derivative in one direction."""
        Q = self._vectors
        return svec(Q @ (self._shares * (Q.T @ smat(d) @ Q)) @ Q.T)

    @cached_property
    def _shares(self) -> Floats:
        """Ω: 1 between positive eigenvalues, λᵢ/(λᵢ − λⱼ) across the signs, else 0."""
        above, total = np.maximum(self._values, 0.0), np.abs(self._values)
        both = total[:, None] + total[None, :]
        return (above[:, None] + above[None, :]) / np.where(both > 0, both, 1.0)


def _norm(matrix: Floats) -> float:
    """The largest singular value; of large matrices by a hundred steps of the power method, from below."""
    if len(matrix) <= DENSE:
        return float(np.sqrt(np.linalg.eigvalsh(matrix.T @ matrix)[-1])) if len(matrix) else 0.0
    x = np.ones(len(matrix))
    for _ in range(100):
        x = matrix.T @ (matrix @ (x / np.linalg.norm(x)))
    return float(np.sqrt(np.linalg.norm(x)))
