"""The projected fixed point, in the space of features, and the best positive semidefinite matrices it is made of.

**The fixed point.** The mean is solved first, ``Aθ = r + γNθ``. Then ``Θ ← argmin ½⟨Θ, HΘ⟩ − ⟨g + γ²GΘ, Θ⟩`` over the
allowed matrices: one application of the operator, projected. Without a constraint its fixed point solves
``(H − γ²G)Θ = g``; where that matrix happens to be allowed it is the constrained fixed point, too. Else the projection
is iterated, each step warm from the one before and as exact as the iteration needs it.

The iteration contracts by γ²/√c, slowly where γ is near 1. So between its steps Newton's method is tried on the
equation ``Θ = P(Θ − F(Θ)/L)`` with ``F(Θ) = HΘ − γ²GΘ − g`` and the projection P onto positive semidefinite matrices,
whose derivative is known (Sun and Sun 2002). What comes out is judged by that equation, which holds at the fixed point
alone, and by ``‖Θ − Θ*‖ ≤ ‖Θ − ΠTΘ‖ / (1 − κ)``.

Everything is done in features that are whitened, ``A = 1``: matrices stay positive semidefinite under ``Θ ↦ LᵀΘL``,
and steps of the gradient fit all directions.

**One projection** is the best positive semidefinite matrix for a weighted least-squares problem,

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

**Symmetric matrices are vectors**: ``svec`` lists the entries on and above the diagonal, those above it times √2, so
that inner products stay what they are, ``⟨svec Θ, svec Ψ⟩ = tr(ΘΨ)``. K features make n = K(K+1)/2 numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse.linalg
from jaxtyping import Float
from numpy import ndarray
from threadpoolctl import threadpool_limits

from jointmdp.exact.bellman.feature_moments import PARTS, PairPart
from jointmdp.exact.moments.certificates import Status
from jointmdp.ground.arrays import Floats, Ints
from jointmdp.ground.errors import ModelError
from jointmdp.ground.progress import Meter

ROOT = float(np.sqrt(2.0))


@lru_cache(maxsize=16)
def upper(size: int) -> tuple[Ints, Ints, Floats]:
    """Where the entries of a vector stand in a symmetric matrix of this size, and what they are multiplied by."""
    rows, columns = np.triu_indices(size)
    return rows, columns, np.where(rows == columns, 1.0, ROOT)


def svec(matrix: Float[ndarray, "*N K K"]) -> Float[ndarray, "*N n"]:
    """The vector of a matrix, or of many; of one that is not symmetric, that of its symmetric part."""
    rows, columns, scale = upper(matrix.shape[-1])
    return (matrix[..., rows, columns] + matrix[..., columns, rows]) * (scale / 2)


def smat(vector: Float[ndarray, "*N n"]) -> Float[ndarray, "*N K K"]:
    """The matrix of a vector, or those of many."""
    size = int(np.sqrt(2 * vector.shape[-1]))
    rows, columns, scale = upper(size)
    matrix = np.zeros((*vector.shape[:-1], size, size))
    matrix[..., rows, columns] = matrix[..., columns, rows] = vector / scale
    return matrix


def products(left: Float[ndarray, "N K"], right: Float[ndarray, "N K"]) -> Float[ndarray, "N n"]:
    """``svec`` of each ``l rᵀ``, made symmetric: ``lᵀΘr = ⟨svec(l rᵀ), svec Θ⟩``."""
    rows, columns, scale = upper(left.shape[1])
    return (left[:, rows] * right[:, columns] + left[:, columns] * right[:, rows]) * (scale / 2)


def as_map(entries: Float[ndarray, "Q Q"], numbers: Ints) -> Float[ndarray, "n n"]:
    """The map ``Θ ↦ Σ T(i,j,k,l) Θ(k,l)``, where ``T(i,j,k,l) = entries[numbers[i,k], numbers[j,l]]`` is symmetric."""
    i, j, scale = upper(len(numbers))
    straight = entries[numbers[i[:, None], i[None, :]], numbers[j[:, None], j[None, :]]]
    crossed = entries[numbers[i[:, None], j[None, :]], numbers[j[:, None], i[None, :]]]
    return (straight + crossed) * (scale[:, None] * scale[None, :] / 2)


def congruence(matrix: Float[ndarray, "K K"]) -> Float[ndarray, "n n"]:
    """The map ``Θ ↦ A Θ Aᵀ``."""
    i, j, scale = upper(len(matrix))
    straight = matrix[i[:, None], i[None, :]] * matrix[j[:, None], j[None, :]]
    crossed = matrix[i[:, None], j[None, :]] * matrix[j[:, None], i[None, :]]
    # An entry off the diagonal stands for two, one on it for one.
    return (straight + crossed) * (scale[:, None] / (2 * scale[None, :])) * np.where(i == j, 1.0, 2.0)


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
    return _Projection(vector, parts).value


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


INSIDE = 1e-12  # of the largest eigenvalue: a matrix with no eigenvalue further below 0 is allowed but for rounding
INNER_STEPS = 200  # of the gradient method in a step
NEWTON_STEPS, FEW_NEWTON_STEPS = 200, 80  # between two steps of the iteration, and where it may never converge
FREE_STEPS, HELD_STEPS = 60, 30  # without a hold, and with one
LOOSEST, LOOSER = 1e-9, 0.03  # holds, in units of the middle eigenvalue of H, and how they follow each other
SOLID = 1e-9  # added to Newton's equations: directions that no weight sees stay where they are
ROUGH = 1e-2  # how exact a solve is, beside its hold
WANDERING = 1  # steps that are tried where nothing says that the iteration converges
SMALL = 500  # unknowns up to which one thread is quicker than several
DENSE = 3500  # unknowns up to which Newton's equations are formed
PATIENCE = 3  # steps in which the equation comes to hold no better by half
NEAR = 1e3  # times FLOOR: what stands still there is held up by rounding
FLOOR = 1e-13  # of the size of a matrix: an equation that holds to this holds but for rounding
SHARE = 0.1  # of what is asked for: how exact the parts of a step are


class FeatureSystem(NamedTuple):
    """What the fixed point needs of a model, or of samples; in whitened features."""

    discount: float
    parts: int
    """How many matrices a second moment is made of; their vectors stand one after the other."""
    N: Floats
    r: Floats
    H: Floats
    G: Floats
    source: Callable[[Floats], Floats]
    """g, given the mean."""


class FixedPoint(NamedTuple):
    """The fixed point and how it was reached."""

    theta: Float[ndarray, " K"]
    matrix: Float[ndarray, " N"]
    """Of every part, one after the other."""
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


def solve_fixed_point(system: FeatureSystem, is_psd: bool, tolerance: float, max_steps: int) -> FixedPoint:
    """The fixed point, to `tolerance` relative to its size in the norm of H."""
    g, parts, N, r, H, G, _ = system
    theta = _fixed(g * N, r)
    mean_contraction = g * float(np.linalg.norm(N, 2))
    source = system.source(theta)
    form = QuadraticForm(H, parts)
    moved = form.into(form.into(G).T).T
    pair_contraction = g**2 * _norm(moved)
    whole = form.back(_fixed(g**2 * moved, form.into(source)))
    found = FixedPoint(theta, whole, Status.CONVERGED, 0, 0.0, mean_contraction, pair_contraction, False, np.empty(0))
    if not is_psd:
        return found
    size = float(np.linalg.norm(whole))
    least = least_eigenvalue(whole, parts)
    if least >= -INSIDE * max(size, np.finfo(float).tiny):
        return found._replace(matrix=nearest_psd(whole, parts))
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
    newton_steps = NEWTON_STEPS if first.pair_contraction < 1 else FEW_NEWTON_STEPS
    x = nearest_psd(first.matrix, form.parts)
    scale = max(form.size(first.matrix), np.finfo(float).tiny)
    history: list[float] = []
    best, least, stalled = x, np.inf, 0
    newton, status = _Newton(form, G, source), Status.STEP_LIMIT
    one_thread = threadpool_limits(1 if len(x) <= SMALL else None, "blas")  # eigenvalues of small matrices
    with Meter("projected iteration") as meter, one_thread:
        for step in range(1, max_steps + 1):
            inner = SHARE * (1 - kappa) * (history[-1] if history else scale)
            after = fit_psd(form, source + G @ x, x, inner, INNER_STEPS).vector
            history.append(form.size(after - x))
            x, off = newton.improved(after, SHARE**2 * tolerance * scale * (1 - kappa), newton_steps)
            stalled = 0 if off < least / 2 else stalled + 1
            if off < least:
                best, least = x, off
            error = newton.error(best, least) / (1 - kappa)
            meter.update(min(1.0, np.log(max(error / scale, 1e-300)) / np.log(tolerance)), f"step {step}")
            size = float(np.linalg.norm(best))
            if error <= tolerance * scale or least <= FLOOR * size:
                status = Status.CONVERGED
                break
            if stalled == PATIENCE:
                status = Status.STAGNATED if least <= NEAR * FLOOR * size else Status.STEP_LIMIT
                break
    return first._replace(
        matrix=best, status=status, steps=step, step_error=error, is_active=True, history=np.array(history)
    )


class _Newton:
    """Newton's method on ``Θ = P(Θ − F(Θ)/σ)``, whose solutions are the same for every σ.

    Where several matrices fit equally well, Newton's equations are singular. So each solve *holds* the matrix near to
    where it was, ``F(Θ) + h(Θ − Θ₀)``: the proximal point method (Rockafellar 1976), which comes to a solution for any
    h. It begins with a firm hold and loosens it as it comes nearer.
    """

    def __init__(self, form: QuadraticForm, G: Floats, source: Floats) -> None:
        self.form, self.later, self.matrix, self.source = form, G, form.matrix - G, source
        self.largest, self.parts, self.middle = form.largest, form.parts, form.middle
        # Kept from one call to the next. Where a try costs little, or should do, it begins without any hold.
        is_easy = form.least > HARDLY_SEEN * form.largest or len(source) <= SMALL
        self.hold, self.factor = 0.0 if is_easy else 1.0, LOOSER
        self.firm = 1.0  # the last hold that was firm enough

    def improved(self, x: Floats, enough: float, left: int) -> tuple[Floats, float]:
        """The best point that Newton's steps lead to, and the size of ``Θ − P(Θ − F(Θ)/L)`` there.

        It is good `enough` when its `error` is no larger; `left` are the steps that may be taken.
        """
        best, least, kept = x, self.off(x), x
        while left > 0 and least > FLOOR * float(np.linalg.norm(best)) and self.error(best, least) > enough:
            most = HELD_STEPS if self.hold > 0 else FREE_STEPS
            found, steps = self._held(x, self.hold, min(left, most))
            left -= steps
            if not np.isfinite(found).all():
                found, steps = best, most
            x, off = found, self.off(found)
            if off < least:
                best, least = x, off
            if self.hold == 0:
                x, self.hold = best, 1.0 if steps == most else 0.0
            elif steps < most:
                kept, self.firm = x, self.hold
                self.hold = max(self.hold * self.factor, LOOSEST)
            elif self.hold == 1.0:
                break
            else:  # too loose: again with the last hold that was not, and from there by half as much
                x, self.hold, self.factor = kept, self.firm, self.factor**0.5
        return best, least

    def off(self, x: Floats) -> float:
        """The size of ``Θ − P(Θ − F(Θ)/L)``, 0 at the fixed point alone."""
        return float(np.linalg.norm(x - nearest_psd(x - (self.matrix @ x - self.source) / self.largest, self.parts)))

    def error(self, x: Floats, off: float) -> float:
        """Bound on ``‖Θ − ΠTΘ‖`` in the norm of H, from how far Θ is `off`."""
        known = [duality_error(self.form, self.source + self.later @ x, x)]
        if self.form.least > 0:
            known.append(2 * self.largest * off / np.sqrt(self.form.least))
        return float(min(known))

    def _held(self, x: Floats, hold: float, most_steps: int) -> tuple[Floats, int]:
        """The solution that is held near x, about as exact as the hold deserves, and the number of steps.

        Their way is not monotone: whole steps find the right eigenvalues sooner than those that must always improve.
        """
        h = hold * self.middle
        sigma = self.middle / 2 if hold else self.largest / 30  # of several fractions those that took the fewest steps
        step = np.eye(len(x)) * (1 - h / sigma) - self.matrix / sigma
        added = (self.source + h * x) / sigma
        best, least = nearest_psd(x, self.parts), np.inf
        for count in range(1, most_steps + 1):
            found = _Projection(step @ x + added, self.parts)
            off = x - found.value
            size, whole = float(np.linalg.norm(off)), float(np.linalg.norm(x))
            # But for rounding the equation holds, and another step does not make it hold better.
            is_over = size <= FLOOR * whole and size > least / 4
            if size < least:
                best, least = found.value, size
            if is_over or size <= ROUGH * hold * whole:
                break
            x = x + _newton_step(found, step, off)
            if not np.isfinite(x).all():
                count = most_steps
                break
        return best, count


def _newton_step(found: _Projection, step: Floats, off: Floats) -> Floats:
    """The solution of ``(1 − P′·step) d = −off``."""
    size = len(off)
    if size <= DENSE:
        try:
            return np.asarray(np.linalg.solve((1 + SOLID) * np.eye(size) - found.derivative_of(step), -off), np.float64)
        except np.linalg.LinAlgError:
            return np.full(size, np.nan)
    system = scipy.sparse.linalg.LinearOperator(
        (size, size), matvec=lambda d: (1 + SOLID) * d - found.along(step @ d.ravel()), dtype=np.float64
    )
    move, _ = scipy.sparse.linalg.gmres(system, -off, rtol=1e-3, restart=60, maxiter=5)
    return np.asarray(move)


class _Projection:
    """The nearest positive semidefinite matrix of Z, part by part, and the derivative of that."""

    def __init__(self, z: Floats, parts: int) -> None:
        self.parts = parts
        self._values, self._vectors = np.linalg.eigh(matrices(z, parts))
        above = np.maximum(self._values, 0.0)[:, None, :]
        self.value = svec((self._vectors * above) @ self._vectors.swapaxes(1, 2)).ravel()

    def derivative_of(self, step: Floats) -> Floats:
        """``D ↦ Q (Ω ∘ QᵀDQ) Qᵀ`` as a matrix, times another."""
        rows, columns, _ = upper(self._values.shape[1])
        found = np.empty_like(step)
        for k, (vectors, shares) in enumerate(zip(self._vectors, self._shares, strict=True)):
            turn, some = congruence(vectors), slice(k * len(rows), (k + 1) * len(rows))
            found[some] = ((turn * shares[rows, columns]) @ turn.T) @ step[some]
        return found

    def along(self, d: Floats) -> Floats:
        """The derivative in one direction."""
        Q, back = self._vectors, self._vectors.swapaxes(1, 2)
        return svec(Q @ (self._shares * (back @ matrices(d, self.parts) @ Q)) @ back).ravel()

    @cached_property
    def _shares(self) -> Floats:
        """Ω: 1 between positive eigenvalues, λᵢ/(λᵢ − λⱼ) across the signs, else 0."""
        above, total = np.maximum(self._values, 0.0), np.abs(self._values)
        both = total[:, :, None] + total[:, None, :]
        return (above[:, :, None] + above[:, None, :]) / np.where(both > 0, both, 1.0)


def _norm(matrix: Floats) -> float:
    """The largest singular value; of large matrices by a hundred steps of the power method, from below."""
    if len(matrix) <= DENSE:
        return float(np.sqrt(np.linalg.eigvalsh(matrix.T @ matrix)[-1])) if len(matrix) else 0.0
    x = np.ones(len(matrix))
    for _ in range(100):
        x = matrix.T @ (matrix @ (x / np.linalg.norm(x)))
    return float(np.sqrt(np.linalg.norm(x)))


class FeatureMatrices:
    """The matrices that covariances of features are made of, under their names."""

    theta: Any
    covariances: Any
    part_names: Any

    @property
    def covariance_matrix(self) -> Floats:
        """Ψ = Θ − θθᵀ: covariances are ``φᵀΨφ``, and more in the same state where there are `parts`."""
        return np.asarray(self.covariances.all)

    @property
    def second_moment_matrix(self) -> Floats:
        """Θ: second moments are ``φᵀΘφ``, and more in the same state where there are `parts`."""
        return self.covariance_matrix + np.outer(self.theta, self.theta)

    @property
    def parts(self) -> dict[PairPart, Floats]:
        """The matrices that covariances are made of: for all pairs, for the same state, for the same action there."""
        return {name: getattr(self.covariances, name) for name in PARTS if name in ("all", *self.part_names)}
