"""The best positive semidefinite matrix for a weighted least-squares problem.

    minimise  f(Θ) = ½⟨Θ, HΘ⟩ − ⟨q, Θ⟩   over  Θ ⪰ 0

by an accelerated projected gradient method (Beck and Teboulle 2009) that starts again where it turns uphill (O'Donoghue
and Candès 2015), from a warm start. It stops by optimality, not by small steps. Since f is convex, and quadratic in the
norm of H, ``‖Θ − Θ*‖²_H ≤ 2 (f(Θ) − min f)``, which is at most

    2⟨Q, Θ⟩ + 2 max(0, −λ_min(Q)) tr Θ*     with the gradient Q = HΘ − q (the duality gap),
    L²‖Θ − Θ⁺‖² / λ_min(H)                  with the projected gradient step from Θ to Θ⁺, at Θ⁺,
    ‖Θ − U‖²_H                              with the best matrix U of all, where that is nearly allowed.

The first holds always, the others are sharper than the root of rounding where they apply. The trace of the best matrix
is not known; twice that of the present one stands for it.

By hand, because interior-point solvers form all K(K+1)/2 unknowns at once: at K = 40 Clarabel takes more than twenty
times as long (`python -m benchmarks projected`).
"""

from typing import NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Float
from numpy import ndarray

from jointmdp.arrays import Floats
from jointmdp.projected.symmetric_matrices import smat, svec

MOST_STEPS = 20_000
UNSEEN = 1e-13  # of the largest eigenvalue of H: directions below it are not seen by any weight
LOOK = 5  # steps between two tests of optimality: one costs as much as a step


class PsdFit(NamedTuple):
    """A matrix as a vector, and how good it is."""

    vector: Float[ndarray, " n"]
    error: float
    """Bound on the distance to the best matrix in the norm of H."""
    steps: int


def nearest_psd(vector: Float[ndarray, " n"]) -> Float[ndarray, " n"]:
    """The nearest positive semidefinite matrix."""
    values, vectors = np.linalg.eigh(smat(vector))
    return svec((vectors * np.maximum(values, 0.0)) @ vectors.T)


def least_eigenvalue(vector: Float[ndarray, " n"]) -> float:
    """λ_min."""
    return float(np.linalg.eigvalsh(smat(vector))[0])


class QuadraticForm:
    """H with what is needed of it again and again."""

    def __init__(self, H: Float[ndarray, "n n"]) -> None:
        self.matrix = H
        # Entries that no weight sees are left out first: with one feature a coordinate they are most.
        self._seen = np.flatnonzero(np.diag(H) > UNSEEN * np.diag(H).max(initial=0.0))
        inside = H[np.ix_(self._seen, self._seen)] if len(self._seen) < len(H) else H
        spectrum = np.linalg.eigvalsh(inside) if len(inside) else np.zeros(1)
        self.largest, self.least = 1.001 * max(float(spectrum[-1]), 1e-300), 0.0  # rounded up
        self._vectors: Floats | None = None
        if len(inside) and spectrum[0] > UNSEEN * self.largest:
            self._lower = scipy.linalg.cholesky(inside, lower=True)
            self.least = 0.9 * float(spectrum[0]) if len(inside) == len(H) else 0.0  # rounded down
        else:
            values, vectors = np.linalg.eigh(inside)
            kept = values > UNSEEN * self.largest
            self._vectors = vectors[:, kept] / np.sqrt(values[kept])

    def size(self, x: Float[ndarray, " n"]) -> float:
        """The norm of a vector."""
        return float(np.sqrt(max(0.0, x @ (self.matrix @ x))))

    def into(self, q: Floats) -> Floats:
        """A right-hand side in coordinates in which H is the identity, of the directions that it sees."""
        if self._vectors is None:
            return scipy.linalg.solve_triangular(self._lower, q[self._seen], lower=True)
        return self._vectors.T @ q[self._seen]

    def back(self, y: Float[ndarray, " k"]) -> Float[ndarray, " n"]:
        """The vector that has these coordinates, the shortest where H does not see all directions."""
        x = np.zeros(len(self.matrix))
        if self._vectors is None:
            x[self._seen] = scipy.linalg.solve_triangular(self._lower, y, lower=True, trans="T")
        else:
            x[self._seen] = self._vectors @ y
        return x


def fit_psd(
    form: QuadraticForm,
    q: Float[ndarray, " n"],
    start: Float[ndarray, " n"],
    tolerance: float,
    most_steps: int = MOST_STEPS,
) -> PsdFit:
    """The best Θ ⪰ 0, to within `tolerance` in the norm of H."""
    H, L = form.matrix, form.largest
    free = form.back(form.into(q))
    x = y = nearest_psd(start)
    t, error = 1.0, np.inf
    for step in range(most_steps + 1):
        after = nearest_psd(y - (H @ y - q) / L)
        if (y - after) @ (after - x) > 0:  # uphill: start again
            t, y = 1.0, x
            after = nearest_psd(x - (H @ x - q) / L)
        if form.least > 0:
            error = L * float(np.linalg.norm(y - after)) / np.sqrt(form.least)
        if error > tolerance and step % LOOK == 0:
            error = min(error, duality_error(H, q, after), form.size(after - free))
        t, before = (1 + np.sqrt(1 + 4 * t * t)) / 2, t
        y = after + (before - 1) / t * (after - x)
        x = after
        if error <= tolerance:
            break
    return PsdFit(x, error, step)


def duality_error(H: Float[ndarray, "n n"], q: Float[ndarray, " n"], x: Float[ndarray, " n"]) -> float:
    """The distance to the best matrix, in the norm of H, that the duality gap allows."""
    slope = H @ x - q
    trace = float(np.trace(smat(x)))
    return float(np.sqrt(2 * max(0.0, slope @ x) + 4 * max(0.0, -least_eigenvalue(slope)) * trace))
