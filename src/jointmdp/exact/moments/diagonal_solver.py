"""Pairs of branches that move independently until they meet: a solver whose work does not grow as γ → 1.

Away from the diagonal a sweep is ``T X = γ² P X P'ᵀ``, and only the |S| entries on the diagonal obey another equation.
With ``G = (I − T)⁻¹ = Σ_k γ²ᵏ Pᵏ X P'ᵏᵀ`` a residual ρ is therefore removed by ``G(ρ + diag(e))``, where the vector e
makes the diagonal right: ``F e`` is the residual that ``Gρ`` leaves there, with

    F e = diag(G diag(e)) − γ² met(G diag(e)),    F = Σ_k γ²ᵏ (Pᵏ∘P'ᵏ − γ² met of the columns of Pᵏ and P'ᵏ).

GMRES solves for e: a few dozen products with F, whatever γ is. Of each sum over k the first K terms are computed. The
others need no arrays over pairs: Pᴷ of a chain that mixes has few modes, ``Pᴷ = Q Z`` and ``P Q = Q M`` with a small
matrix M, so ``G X = Σ_{k<K} γ²ᵏ Pᵏ X P'ᵏᵀ + γ²ᴷ Q Y Q'ᵀ`` with ``Y = Z X Z'ᵀ + γ² M Y M'ᵀ``, which doubling solves.

Nothing here is trusted: the residual is computed anew after each pass.

Arrays of |S|² numbers alive at the peak, beside those of `problem`: F, the answer, a term of the sum and two within a
sweep. Two policies have the powers of two kernels while F is built, which are as many.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.sparse.linalg
from jax import Array

from jointmdp.exact.bellman import numba_sweeps, pair_sweep
from jointmdp.exact.bellman.numba_sweeps import TiledResponses
from jointmdp.exact.bellman.pair_sweep import PairKernel, PairProblem
from jointmdp.ground.arrays import on_device

FEW = 64  # states that are taken for modes as they are
MODES = 128  # most modes, where they are followed once in a pass
FEW_MODES = 32  # most modes, where they are followed in every product with F; bases have multiples of it
MORE_STEPS = 4  # times as many powers as a pass needs, at most, for products with fewer modes
STEP = 16  # powers between two looks at the number of modes
MOST_STEPS = 256  # powers after which a chain is taken not to mix
MODE_ACCURACY = 1e-9  # of the largest mode: what is left out of a power
KRYLOV_ACCURACY = 1e-9  # of e; the next pass gives as many digits again
KRYLOV_STEPS = 60
NEGLIGIBLE = 1e-18  # factor of a term that changes no digit

Powers = tuple[Array, ...]  # Pᵏ and, where the second branch has a kernel of its own, P'ᵏ; [S, S] each


class Modes(NamedTuple):
    """A power of a kernel by its modes: ``Pᴷ = Q Z`` and ``P Q = Q M``."""

    basis: Array  # [S, r] Q
    rest: Array  # [r, S] Z
    step: Array  # [r, r] M


class Tail(NamedTuple):
    """The terms of a sum over k from K on."""

    steps: int  # K
    share: Array  # γ²ᴷ
    left: Modes
    right: Modes


class DiagonalSolver(NamedTuple):
    """What depends on a kernel and a discount alone, whatever one step adds."""

    response: Array  # [S, S] the first terms of F
    of_response: Tail
    of_pairs: Tail  # of G


def is_possible(problem: PairProblem) -> bool:
    """Whether branches that are apart move independently, and G exists."""
    return problem.kernel.chances.shape[0] == 1 and float(problem.discount) < 1


def build(problem: PairProblem) -> DiagonalSolver | None:
    """The solver for this kernel and discount; None where powers of the kernel keep too many modes."""
    terms = TiledResponses(problem, STEP) if pair_sweep.is_tiled(problem) else DeviceTerms(problem)
    of_pairs: Tail | None = None
    for steps in range(0, MOST_STEPS + 1, STEP):
        if steps > 0:
            terms.add()
        tail = _tail(problem.kernel, terms.powers, steps, terms.share)
        of_pairs = tail if of_pairs is None else of_pairs
        if tail is None or of_pairs is None:
            continue
        # A power costs less than a sweep, and with fewer modes each product with F is faster.
        if tail.left.step.shape[0] <= FEW_MODES or steps >= MORE_STEPS * of_pairs.steps:
            return DiagonalSolver(terms.response, tail, of_pairs)
    return None


class DeviceTerms:
    """The first terms of F, and the powers that come next, as JAX makes them."""

    def __init__(self, problem: PairProblem) -> None:
        size = problem.kernel.weights.shape[1]
        self.problem, self.share, self.response = problem, jnp.ones(()), jnp.zeros((size, size))
        self.powers: Powers = tuple(jnp.eye(size) for _ in problem.kernel.sides)

    def add(self) -> None:
        """STEP more powers."""
        self.powers, self.response, self.share = _add_terms(self.problem, self.powers, self.response, self.share)


def improve(
    solver: DiagonalSolver, problem: PairProblem, C: Array, target: float, is_symmetric: bool = False
) -> tuple[Array, float, int]:
    """C, which is used up, with its residual removed as far as digits go; the residual, and sweeps it was worth."""
    by_tiles = is_symmetric and pair_sweep.is_tiled(problem)
    taken = 2
    R, apart, worst = _residual(problem, C)
    if float(apart) > max(target, KRYLOV_ACCURACY * float(worst)):
        C = _with_spread(problem, solver.of_pairs, C, R, by_tiles)
        taken += solver.of_pairs.steps
    missing = np.array(_missing(problem, C))
    if np.any(missing):
        product = scipy.sparse.linalg.LinearOperator(
            (len(missing),) * 2, lambda e: np.array(_respond(problem, solver, on_device(e))), dtype=np.float64
        )
        e, _ = scipy.sparse.linalg.gmres(product, missing, rtol=KRYLOV_ACCURACY, restart=KRYLOV_STEPS, maxiter=2)
        C = _with_spread(problem, solver.of_pairs, C, jnp.diag(on_device(e)), by_tiles)
        taken += solver.of_pairs.steps
    return C, float(_residual(problem, C)[2]), taken


def _tail(kernel: PairKernel, powers: Powers, steps: int, share: Array) -> Tail | None:
    found = []
    for side, power in zip(kernel.sides, powers, strict=True):
        basis = _basis(power, steps)
        if basis is None:
            return None
        found.append(_modes(kernel, side, power, basis))
    return Tail(steps, share, found[0], found[-1])


def _basis(power: Array, steps: int) -> Array | None:
    """Orthonormal columns ``[S, r]`` that span the range of a power, where they are few."""
    size = len(power)
    if size <= FEW:
        return jnp.eye(size)
    if steps == 0:
        return None
    probes = np.random.default_rng(steps).normal(size=(size, min(MODES + 1, size)))
    Q, R, _ = scipy.linalg.qr(np.asarray(power @ on_device(probes)), mode="economic", pivoting=True)
    sizes = np.abs(np.diagonal(R))
    rank = int(np.sum(sizes > MODE_ACCURACY * sizes[0]))
    if rank > MODES:
        return None
    width = -(-rank // FEW_MODES) * FEW_MODES  # few shapes, few compilations
    return on_device(np.ascontiguousarray(Q[:, :width]))


@jax.jit
def _modes(kernel: PairKernel, side: Array, power: Array, basis: Array) -> Modes:
    return Modes(basis, basis.T @ power, basis.T @ pair_sweep.moved(kernel, side, basis))


@partial(jax.jit, donate_argnums=(1, 2))
def _add_terms(problem: PairProblem, powers: Powers, response: Array, share: Array) -> tuple[Powers, Array, Array]:
    """STEP more powers, and terms of F."""
    kernel, factor = problem.kernel, problem.discount**2

    def add(_: int, state: tuple[Powers, Array, Array]) -> tuple[Powers, Array, Array]:
        powers, response, share = state
        left, right = powers[0], powers[-1]
        response = response + share * (left * right - factor * pair_sweep.met_columns(kernel, left, right))
        after = tuple(pair_sweep.moved(kernel, side, power) for side, power in zip(kernel.sides, powers, strict=True))
        return after, response, share * factor

    return jax.lax.fori_loop(0, STEP, add, (powers, response, share))


def _doubled(tail: Tail, factor: Array, source: Array) -> Array:
    """γ²ᴷ Y with Y = source + γ² M Y M'ᵀ."""

    def double(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        left, right, factor, Y = state
        return left @ left, right @ right, factor**2, Y + factor * (left @ Y @ right.T)

    first = (tail.left.step, tail.right.step, factor, source)
    return tail.share * jax.lax.while_loop(lambda state: state[2] > NEGLIGIBLE, double, first)[3]


@jax.jit
def _respond(problem: PairProblem, solver: DiagonalSolver, e: Array) -> Array:
    """F e."""
    factor, tail = problem.discount**2, solver.of_response
    left, right = tail.left, tail.right
    columns = left.basis @ _doubled(tail, factor, (left.rest * e) @ right.rest.T)
    later = jnp.sum(
        columns * right.basis - factor * pair_sweep.met_columns(problem.kernel, columns, right.basis), axis=1
    )
    return solver.response @ e + later


def _with_spread(problem: PairProblem, tail: Tail, C: Array, R: Array, by_tiles: bool) -> Array:
    """C + G R; both are used up."""
    if by_tiles and tail.steps > 0:
        first = numba_sweeps.spread(problem, R, tail.steps)
        return _with_modes(problem, tail, C + first, R)
    return _spread(problem, tail, C, R)[0]


@partial(jax.jit, donate_argnums=2)
def _with_modes(problem: PairProblem, tail: Tail, C: Array, R: Array) -> Array:
    """C and the terms of G R from K on."""
    left, right = tail.left, tail.right
    Y = _doubled(tail, problem.discount**2, left.rest @ R @ right.rest.T)
    return C + left.basis @ Y @ right.basis.T


@partial(jax.jit, donate_argnums=(2, 3))
def _spread(problem: PairProblem, tail: Tail, C: Array, R: Array) -> tuple[Array, Array]:
    """C + G R, and what is left of R."""
    kernel, factor, (left, right) = problem.kernel, problem.discount**2, (tail.left, tail.right)
    sides = kernel.sides
    Y = _doubled(tail, factor, left.rest @ R @ right.rest.T)

    def add(_: int, state: tuple[Array, Array]) -> tuple[Array, Array]:
        C, R = state
        return C + R, factor * pair_sweep.between(kernel, sides[0], sides[-1], R)

    C, R = jax.lax.fori_loop(0, tail.steps, add, (C, R))
    return C + left.basis @ Y @ right.basis.T, R


@jax.jit
def _residual(problem: PairProblem, C: Array) -> tuple[Array, Array, Array]:
    """sweep(C) − C, its largest entry off the diagonal, and its largest."""
    R = pair_sweep.sweep(problem, C) - C
    sizes = jnp.abs(R)
    return R, jnp.max(jnp.where(jnp.eye(len(C), dtype=bool), 0.0, sizes)), jnp.max(sizes)


@jax.jit
def _missing(problem: PairProblem, C: Array) -> Array:
    """The residual on the diagonal."""
    return problem.added.same + problem.discount**2 * pair_sweep.met(problem.kernel, C) - jnp.diagonal(C)
