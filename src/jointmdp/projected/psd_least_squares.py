"""The best positive semidefinite matrix, or several at once, for a weighted least-squares problem.

    minimise  f(Θ) = ½⟨Θ, HΘ⟩ − ⟨q, Θ⟩   over  Θ ⪰ 0

where Θ may consist of several matrices (*parts*), each positive semidefinite by itself, in one vector after the other;
by an accelerated projected gradient method (Beck and Teboulle 2009) that starts again where it turns uphill (O'Donoghue
and Candès 2015), from a warm start. It stops by optimality, not by small steps. Since f is convex, and quadratic in the
norm of H, ``‖Θ − Θ*‖²_H ≤ 2 (f(Θ) − min f)``, which is at most

    2⟨Q, Θ⟩ + 2 max(0, −λ_min(Q)) tr Θ*     with the gradient Q = HΘ − q (the duality gap),
    L²‖Θ − Θ⁺‖² / λ_min(H)                  with the projected gradient step from Θ to Θ⁺, at Θ⁺,
    ‖Θ − U‖²_H                              with the best matrix U of all, where that is nearly allowed.

The first holds always, the others are sharper than the root of rounding where they apply. The trace of the best matrix
is not known; twice that of the present one, or of the one a step further, stands for it.

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
HARDLY_SEEN = 1e-5  # of the largest eigenvalue of H: what is below does not count in the middle one
UNSEEN = 1e-13  # of the largest eigenvalue of H: directions below it are not seen by any weight
LOOK = 5  # steps between two tests of optimality: one costs as much as a step


class PsdFit(NamedTuple):
    """A matrix, or several, as a vector, and how good it is."""

    vector: Float[ndarray, " N"]
    error: float
    """Bound on the distance to the best matrix in the norm of H."""
    steps: int


def matrices(vector: Float[ndarray, " N"], parts: int) -> Float[ndarray, "P K K"]:
    """The parts of a vector."""
    return smat(vector.reshape(parts, -1))


def nearest_psd(vector: Float[ndarray, " N"], parts: int = 1) -> Float[ndarray, " N"]:
    """The nearest positive semidefinite matrix, part by part."""
    values, vectors = np.linalg.eigh(matrices(vector, parts))
    return svec((vectors * np.maximum(values, 0.0)[:, None, :]) @ vectors.swapaxes(1, 2)).ravel()


def least_eigenvalue(vector: Float[ndarray, " N"], parts: int = 1) -> float:
    """λ_min, of all parts."""
    return float(np.linalg.eigvalsh(matrices(vector, parts)).min())


class QuadraticForm:
    """H with what is needed of it again and again."""

    def __init__(self, H: Float[ndarray, "N N"], parts: int = 1) -> None:
        self.matrix, self.parts = H, parts
        # Entries that no weight sees are left out first: with one feature a coordinate they are most.
        self._seen = np.flatnonzero(np.diag(H) > UNSEEN * np.diag(H).max(initial=0.0))
        inside = H[np.ix_(self._seen, self._seen)] if len(self._seen) < len(H) else H
        spectrum = np.linalg.eigvalsh(inside) if len(inside) else np.zeros(1)
        self.largest, self.least = 1.001 * max(float(spectrum[-1]), 1e-300), 0.0  # rounded up
        self.middle = float(np.median(spectrum[spectrum > HARDLY_SEEN * self.largest])) if spectrum[-1] > 0 else 1.0
        self._vectors: Floats | None = None
        if len(inside) and spectrum[0] > UNSEEN * self.largest:
            self._lower = scipy.linalg.cholesky(inside, lower=True)
            self.least = 0.9 * float(spectrum[0]) if len(inside) == len(H) else 0.0  # rounded down
        else:
            values, vectors = np.linalg.eigh(inside)
            kept = values > UNSEEN * self.largest
            self._vectors = vectors[:, kept] / np.sqrt(values[kept])

    def size(self, x: Float[ndarray, " N"]) -> float:
        """The norm of a vector."""
        return float(np.sqrt(max(0.0, x @ (self.matrix @ x))))

    def into(self, q: Floats) -> Floats:
        """A right-hand side in coordinates in which H is the identity, of the directions that it sees."""
        if self._vectors is None:
            return scipy.linalg.solve_triangular(self._lower, q[self._seen], lower=True)
        return self._vectors.T @ q[self._seen]

    def back(self, y: Float[ndarray, " k"]) -> Float[ndarray, " N"]:
        """The vector that has these coordinates, the shortest where H does not see all directions."""
        x = np.zeros(len(self.matrix))
        if self._vectors is None:
            x[self._seen] = scipy.linalg.solve_triangular(self._lower, y, lower=True, trans="T")
        else:
            x[self._seen] = self._vectors @ y
        return x


def fit_psd(
    form: QuadraticForm,
    q: Float[ndarray, " N"],
    start: Float[ndarray, " N"],
    tolerance: float,
    most_steps: int = MOST_STEPS,
) -> PsdFit:
    """The best Θ ⪰ 0, to within `tolerance` in the norm of H."""
    H, L, parts = form.matrix, form.largest, form.parts
    free = form.back(form.into(q))
    x = y = nearest_psd(start, parts)
    t, error = 1.0, np.inf
    for step in range(most_steps + 1):
        after = nearest_psd(y - (H @ y - q) / L, parts)
        if (y - after) @ (after - x) > 0:  # uphill: start again
            t, y = 1.0, x
            after = nearest_psd(x - (H @ x - q) / L, parts)
        if form.least > 0:
            error = L * float(np.linalg.norm(y - after)) / np.sqrt(form.least)
        if error > tolerance and step % LOOK == 0:
            error = min(error, duality_error(form, q, after), form.size(after - free))
        t, before = (1 + np.sqrt(1 + 4 * t * t)) / 2, t
        y = after + (before - 1) / t * (after - x)
        x = after
        if error <= tolerance:
            break
    return PsdFit(x, error, step)


def duality_error(form: QuadraticForm, q: Float[ndarray, " N"], x: Float[ndarray, " N"]) -> float:
    """The distance to the best matrix, in the norm of H, that the duality gap allows."""
    slope = form.matrix @ x - q
    ahead = nearest_psd(x - slope / form.largest, form.parts)  # at Θ = 0 its own trace says nothing
    trace = max(float(np.trace(matrices(y, form.parts), axis1=1, axis2=2).sum()) for y in (x, ahead))
    return float(np.sqrt(2 * max(0.0, slope @ x) + 4 * max(0.0, -least_eigenvalue(slope, form.parts)) * trace))
