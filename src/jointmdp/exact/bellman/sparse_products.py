"""Products ``P C`` of a sparse matrix, given by its rows, with a large dense one: what a sweep spends its time on.

On a GPU they are those of `pallas_kernels`, elsewhere XLA's.
"""

from collections.abc import Callable

import jax
from jax import Array
from jaxtyping import Float, Int

from jointmdp.exact.bellman.pallas_kernels import UNROLL, Added, multiply_rows


def row_product(
    weights: Float[Array, "R K"], columns: Int[Array, "R K"], C: Float[Array, "S T"]
) -> Float[Array, "R T"]:
    """P C."""

    def by_gathers(weights: Array, columns: Array, C: Array) -> Array:
        return sum_terms(lambda k: weights[:, k, None] * C[columns[:, k]], weights.shape[1])

    return jax.lax.platform_dependent(weights, columns, C, cuda=multiply_rows, default=by_gathers)


def both_sides(
    left: Float[Array, "S K"], right: Float[Array, "S K"], columns: Int[Array, "S K"], C: Float[Array, "S S"]
) -> Float[Array, "S S"]:
    """L C Rᵀ, for entries L and R in the same places."""

    def by_kernel(left: Array, right: Array, columns: Array, C: Array) -> Array:
        return multiply_rows(right, columns, multiply_rows(left, columns, C).T).T

    return jax.lax.platform_dependent(left, right, columns, C, cuda=by_kernel, default=_gathered)


def both_sides_symmetric(
    weights: Float[Array, "S K"], columns: Int[Array, "S K"], C: Float[Array, "S S"], added: Added
) -> Float[Array, "S S"]:
    """scale·P C Pᵀ + sides + sides + base for C = Cᵀ: one transpose less than `both_sides`."""

    def by_kernel(weights: Array, columns: Array, C: Array, added: Added) -> Array:
        return multiply_rows(weights, columns, multiply_rows(weights, columns, C).T, added)

    def by_gathers(weights: Array, columns: Array, C: Array, added: Added) -> Array:
        found = added.scale * _gathered(weights, weights, columns, C)
        if added.sides is not None:
            found = found + (added.sides[:, None] + added.sides[None, :])
        return found if added.base is None else found + added.base

    return jax.lax.platform_dependent(weights, columns, C, added, cuda=by_kernel, default=by_gathers)


def _gathered(left: Array, right: Array, columns: Array, C: Array) -> Array:
    # Whole rows are gathered first, so memory is read in order. Without the barrier XLA fuses the two gathers and
    # computes the first one again for every entry of the second.
    half = sum_terms(lambda k: left[:, k, None] * C[columns[:, k]], left.shape[1])
    half = jax.lax.optimization_barrier(half)  # type: ignore[no-untyped-call]
    return sum_terms(lambda k: right[:, k] * half[:, columns[:, k]], right.shape[1])


def sum_terms(term: Callable[[int | Array], Array], count: int, unrolled: int = UNROLL) -> Array:
    """The sum of terms 0, 1, …: one expression where they are few, else a loop."""
    if count <= unrolled:
        return sum(map(term, range(1, count)), term(0))
    return jax.lax.fori_loop(1, count, lambda k, total: total + term(k), term(0))
