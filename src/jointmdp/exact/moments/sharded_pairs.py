"""Sweeps over pairs of states whose array D is sharded over devices, by columns.

Each device holds ``D[:, J]``, J being an equal share of the states. D is symmetric, and so

    (P D Pᵀ)[:, J] = P · Hᵀ[:, J],   H = P D,

where ``H[:, J] = P · D[:, J]`` takes nothing from other devices. One all-to-all turns the columns of H into those of
Hᵀ: a sweep sends every number once. What two branches of one state need of D, O(S·W·M²) entries, is added up over the
devices, all of which but one hold a zero. Sums are made in the same order whatever the number of devices, so their
bits do not depend on it.

States are padded to a multiple of the number of devices. Those that are added have no successors, and stay at zero.
"""

from functools import partial
from itertools import combinations
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh
from jaxtyping import Float, Int

from jointmdp.exact.bellman import second_moments
from jointmdp.exact.bellman.second_moments import PairKernel, Tables
from jointmdp.exact.bellman.sparse_products import row_product
from jointmdp.exact.moments.device_mesh import AXIS, BY_COLUMN, BY_ROW, EVERYWHERE, everywhere, largest, total
from jointmdp.exact.moments.gap_variances import block_step_errors
from jointmdp.ground.arrays import Floats, Ints

AT_ONCE = 2**22  # numbers that devices add up in one message; more are added up a pair of actions at a time


class ShardedProblem(NamedTuple):
    """What a sweep reads of a model, a policy and a sharing; the same on every device, T states with the padding."""

    chances: Float[Array, " G"]
    weights: Float[Array, "G T K"]
    columns: Int[Array, "G T K"]
    probabilities: Float[Array, "T W"]
    support: Int[Array, "T W M"]
    choice: Float[Array, "T M"]
    same: Float[Array, " T"]  # what one step adds on the diagonal
    alone: Float[Array, " T"]  # each branch's part of what it adds elsewhere
    shared: Float[Array, "W T"]  # mean outcomes by scenario, whose squared difference is added; zeros under "state"
    law: Float[Array, " W"]  # of these scenarios
    discount: Float[Array, ""]
    states: Int[Array, ""]  # without the padding


def sharded_problem(mesh: Mesh, tables: Tables, kernel: PairKernel, v: Array) -> ShardedProblem:
    """The problem on every device; the kernel has its entries in rows."""
    step = second_moments.gap_step(tables, v)
    is_parted = kernel.chances.shape[0] > 1
    alone = step.choice if is_parted else step.choice + jnp.sum(tables.probabilities * step.shared**2, axis=1)
    shared = step.shared.T if is_parted else jnp.zeros((1, len(v)))
    law = tables.probabilities[0] if is_parted else jnp.ones(1)
    assert kernel.columns is not None
    more = -len(v) % mesh.size

    def padded(values: Array, axis: int = 0) -> Array:
        room = [(0, more if i == axis else 0) for i in range(values.ndim)]
        return everywhere(mesh, np.pad(np.asarray(values), room))

    return ShardedProblem(
        everywhere(mesh, np.asarray(kernel.chances)),
        padded(kernel.weights, 1),
        padded(kernel.columns, 1),
        padded(kernel.probabilities),
        padded(kernel.support),
        padded(kernel.choice),
        padded(2 * step.choice),
        padded(alone),
        padded(shared, 1),
        everywhere(mesh, np.asarray(law)),
        everywhere(mesh, np.asarray(tables.discount)),
        everywhere(mesh, np.asarray(len(v), dtype=np.int32)),
    )


# -- on one device ---------------------------------------------------------------------------------------------------


def _here(D: Float[Array, "T J"]) -> Int[Array, " J"]:
    """The states whose columns are at hand."""
    return jax.lax.axis_index(AXIS) * D.shape[1] + jnp.arange(D.shape[1])


def _is_real(problem: ShardedProblem, D: Float[Array, "T J"]) -> Array:
    return (jnp.arange(D.shape[0]) < problem.states)[:, None] & (_here(D) < problem.states)[None, :]


def _transposed(H: Float[Array, "T J"]) -> Float[Array, "T J"]:
    """The columns of Hᵀ, each device having those of H."""
    # The barriers keep XLA from gathering in the transposed array, against the order of memory.
    rows = jax.lax.all_to_all(jax.lax.optimization_barrier(H), AXIS, 0, 1, tiled=True)  # type: ignore[no-untyped-call]
    return jax.lax.optimization_barrier(rows.T)  # type: ignore[no-untyped-call]


def _entries(D: Float[Array, "T J"], s: Int[Array, "..."], t: Int[Array, "..."]) -> Float[Array, "..."]:
    """D(s,t) at any places, on every device."""
    place = t - jax.lax.axis_index(AXIS) * D.shape[1]
    is_here = (place >= 0) & (place < D.shape[1])
    return total(jnp.where(is_here, D[s, jnp.where(is_here, place, 0)], 0.0))


def _met(problem: ShardedProblem, D: Float[Array, "T J"]) -> Float[Array, " T"]:
    """Σ_w p(w|s) Σ_{a≠b} π(a|s) π(b|s) D(S'_a, S'_b)."""
    p, n, choice = problem.probabilities, problem.support, problem.choice
    pairs = _pairs(n.shape[2])
    at_once = None
    if p.size * len(pairs) <= AT_ONCE:
        at_once = jnp.moveaxis(_entries(D, n[:, :, pairs[:, 0]], n[:, :, pairs[:, 1]]), 2, 0)

    def add(total: Array, pair: tuple[Array, Array | None]) -> tuple[Array, None]:
        (a, b), entries = pair
        entries = _entries(D, n[:, :, a], n[:, :, b]) if entries is None else entries
        return total + 2 * choice[:, a] * choice[:, b] * jnp.sum(p * entries, axis=1), None

    return jax.lax.scan(add, jnp.zeros(len(p)), (jnp.asarray(pairs), at_once))[0]


def _pairs(actions: int) -> Ints:
    return np.array(list(combinations(range(actions), 2)), dtype=np.int64).reshape(-1, 2)


def _cross(problem: ShardedProblem, D: Float[Array, "T J"], is_source_only: bool = False) -> Float[Array, "T J"]:
    """source(s,t) + γ² Σ_g p(g) (P_g D P_gᵀ)(s,t), for the columns t at hand."""
    here = _here(D)

    def add(total: Array, scenario: tuple[Array, Array]) -> tuple[Array, None]:
        chance, x = scenario
        return total + chance * (x[:, None] - x[None, here]) ** 2, None

    def move(total: Array, group: tuple[Array, Array, Array]) -> tuple[Array, None]:
        chance, weights, columns = group
        both = row_product(weights, columns, _transposed(row_product(weights, columns, D)))
        return total + problem.discount**2 * chance * both, None

    found = problem.alone[:, None] + problem.alone[None, here]
    if problem.chances.shape[0] > 1:
        found, _ = jax.lax.scan(add, found, (problem.law, problem.shared))
    if not is_source_only:
        found, _ = jax.lax.scan(move, found, (problem.chances, problem.weights, problem.columns))
    return found


def _sweep(problem: ShardedProblem, D: Float[Array, "T J"]) -> Float[Array, "T J"]:
    """`second_moments.sweep` for the columns at hand."""
    here = _here(D)
    diagonal = problem.same + problem.discount**2 * _met(problem, D)
    after = _cross(problem, D).at[here, jnp.arange(len(here))].set(diagonal[here])
    return jnp.where(_is_real(problem, D), after, 0.0)


# -- on all of them --------------------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames="mesh")
def first_guess(problem: ShardedProblem, B: Array, mesh: Mesh) -> Array:
    """B(s) + B(t), as if branches that are apart had nothing in common; B has the padding."""

    def guess(problem: ShardedProblem, B: Array) -> Array:
        D = jnp.zeros((len(B), len(B) // mesh.size))
        here = _here(D)
        D = (B[:, None] + B[None, here]).at[here, jnp.arange(len(here))].set(problem.same[here])
        return jnp.where(_is_real(problem, D), D, 0.0)

    return jax.shard_map(guess, mesh=mesh, in_specs=EVERYWHERE, out_specs=BY_COLUMN, check_vma=False)(problem, B)


class Swept(NamedTuple):
    """D after some sweeps, and what all processes know of it."""

    D: Array  # [T, T] by columns
    residual: Array  # largest |D' − D| of the last sweep
    largest: Array  # entry of D
    waited: Array  # longest of the processes' own times since the last checkpoint


@partial(jax.jit, static_argnames="mesh", donate_argnames="D")
def sharded_sweeps(problem: ShardedProblem, D: Array, count: int | Array, waited: Array, mesh: Mesh) -> Swept:
    """`count` sweeps; `waited` has a row for each device."""

    def sweeps(problem: ShardedProblem, D: Array, count: Array, waited: Array) -> tuple[Array, Array]:
        D = jax.lax.fori_loop(0, count - 1, lambda _, D: _sweep(problem, D), D)
        after = _sweep(problem, D)
        known = jnp.stack([jnp.max(jnp.abs(after - D)), jnp.max(after), waited[0, 0]])
        return after, largest(known)

    specs = (EVERYWHERE, BY_COLUMN, EVERYWHERE, BY_ROW)
    out = (BY_COLUMN, EVERYWHERE)
    run = jax.shard_map(sweeps, mesh=mesh, in_specs=specs, out_specs=out, check_vma=False)
    after, known = run(problem, D, jnp.asarray(count), waited)
    return Swept(after, *known)


class StepErrors(NamedTuple):
    """What one step makes of errors, by state; see `StateErrors.gap_step`."""

    off: Array
    choice_off: Array
    idle: Array
    is_single: Array


@partial(jax.jit, static_argnames="mesh", donate_argnames="D")
def step_maxima(
    problem: ShardedProblem, D: Array, errors: StepErrors, relative: float | Array, mesh: Mesh
) -> tuple[Array, Array, Array]:
    """D with nothing below zero; the largest ρ of each state with states that are alive and idle ``[2, T]``; residual.

    ρ is that of `gap_variances`: the residual of one more sweep, its rounding, and the errors of the values.
    """

    def maxima(problem: ShardedProblem, D: Array, errors: StepErrors, relative: Array) -> tuple[Array, Array, Array]:
        here = _here(D)
        D = jnp.maximum(D, 0.0)
        after = _sweep(problem, D)
        apart, top = _cross(problem, D, is_source_only=True), largest(jnp.max(D))
        rho, residual = block_step_errors(after, D, apart, problem.same, tuple(errors), here, relative, top)
        rho = jnp.where(_is_real(problem, D), rho, 0.0)
        idle = errors.idle

        # What is stored is symmetric only up to rounding: rows count as well as columns.
        def by_state(others: Array) -> Array:
            rows = jnp.max(jnp.where(others[None, here], rho, 0.0), axis=1)
            return rows.at[here].max(jnp.max(jnp.where(others[:, None], rho, 0.0), axis=0))

        found = largest(jnp.stack([by_state(~idle), by_state(idle)]))
        return D, found, largest(jnp.max(residual))

    specs = (EVERYWHERE, BY_COLUMN, EVERYWHERE, EVERYWHERE)
    out = (BY_COLUMN, EVERYWHERE, EVERYWHERE)
    run = jax.shard_map(maxima, mesh=mesh, in_specs=specs, out_specs=out, check_vma=False)
    return run(problem, D, errors, jnp.asarray(relative))


def later_variances(mesh: Mesh, D: Array, probabilities: Floats, successors: Ints) -> Floats:
    """Σ_w p(w|s) D(S'_a, S'_b) for all actions of all states, ``[S, A, A]``; zero where a = b."""
    S, _, A = successors.shape
    found = np.zeros((S, A, A))
    chances = everywhere(mesh, probabilities)
    for a, b in _pairs(A):
        ends = (everywhere(mesh, successors[:, :, each].astype(np.int32)) for each in (a, b))
        found[:, a, b] = found[:, b, a] = np.asarray(_later(D, chances, *ends, mesh=mesh).addressable_data(0))
    return found


@partial(jax.jit, static_argnames="mesh")
def _later(D: Array, probabilities: Array, s: Array, t: Array, mesh: Mesh) -> Array:
    def expected(D: Array, p: Array, s: Array, t: Array) -> Array:
        return jnp.sum(p * _entries(D, s, t), axis=1)

    specs = (BY_COLUMN, EVERYWHERE, EVERYWHERE, EVERYWHERE)
    return jax.shard_map(expected, mesh=mesh, in_specs=specs, out_specs=EVERYWHERE, check_vma=False)(
        D, probabilities, s, t
    )
