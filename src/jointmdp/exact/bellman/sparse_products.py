"""Products ``P C`` of a sparse matrix, given by its rows, with a large dense one: what a sweep spends its time on.

On a GPU each program of a Pallas kernel makes a few rows of a block of columns. Programs that run at the same time
read neighbouring rows, which are in the cache then. XLA's own gather of rows is as fast, but fused with the transpose
that a sweep needs in between it takes ten times as long, and no barrier keeps it from fusing
(`benchmarks/gpu_sweep.py`). Elsewhere the products are XLA's.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

# Rows with more entries than this are summed by a loop instead of one fused expression, to bound compile time.
UNROLL = 32
BLOCK_ROWS, BLOCK_COLUMNS, WARPS = 4, 256, 4  # of one program (`benchmarks/gpu_sweep.py`)


def row_product(
    weights: Float[Array, "S K"], columns: Int[Array, "S K"], C: Float[Array, "S T"]
) -> Float[Array, "S T"]:
    """P C."""

    def by_gathers(weights: Array, columns: Array, C: Array) -> Array:
        return _sum_terms(lambda k: weights[:, k, None] * C[columns[:, k]], weights.shape[1])

    return jax.lax.platform_dependent(weights, columns, C, cuda=_rows, default=by_gathers)


def both_sides(
    left: Float[Array, "S K"], right: Float[Array, "S K"], columns: Int[Array, "S K"], C: Float[Array, "S S"]
) -> Float[Array, "S S"]:
    """L C Rᵀ, for entries L and R in the same places."""

    def by_kernel(left: Array, right: Array, columns: Array, C: Array) -> Array:
        return _rows(right, columns, _rows(left, columns, C).T).T

    return jax.lax.platform_dependent(left, right, columns, C, cuda=by_kernel, default=_gathered)


class Added(NamedTuple):
    """What a product is scaled by, and what is added to it in the same pass over memory."""

    scale: Float[Array, ""]
    sides: Float[Array, " S"] | None = None  # sides(s) + sides(t)
    base: Float[Array, "S S"] | None = None


def both_sides_symmetric(
    weights: Float[Array, "S K"], columns: Int[Array, "S K"], C: Float[Array, "S S"], added: Added
) -> Float[Array, "S S"]:
    """scale·P C Pᵀ + sides + sides + base for C = Cᵀ: one transpose less than `both_sides`."""

    def by_kernel(weights: Array, columns: Array, C: Array, added: Added) -> Array:
        return _rows(weights, columns, _rows(weights, columns, C).T, added)

    def by_gathers(weights: Array, columns: Array, C: Array, added: Added) -> Array:
        found = added.scale * _gathered(weights, weights, columns, C)
        if added.sides is not None:
            found = found + (added.sides[:, None] + added.sides[None, :])
        return found if added.base is None else found + added.base

    return jax.lax.platform_dependent(weights, columns, C, added, cuda=by_kernel, default=by_gathers)


def _gathered(left: Array, right: Array, columns: Array, C: Array) -> Array:
    # Whole rows are gathered first, so memory is read in order. Without the barrier XLA fuses the two gathers and
    # computes the first one again for every entry of the second.
    half = _sum_terms(lambda k: left[:, k, None] * C[columns[:, k]], left.shape[1])
    half = jax.lax.optimization_barrier(half)  # type: ignore[no-untyped-call]
    return _sum_terms(lambda k: right[:, k] * half[:, columns[:, k]], right.shape[1])


def _sum_terms(term: Callable[[int | Array], Array], count: int) -> Array:
    if count <= UNROLL:
        return sum(map(term, range(1, count)), term(0))
    return jax.lax.fori_loop(1, count, lambda k, total: total + term(k), term(0))


def _rows(weights: Array, columns: Array, C: Array, added: Added | None = None) -> Array:
    """``P C`` by the kernel, scaled and added to."""
    # Here, because only a machine with a GPU has what they need.
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    (rows, entries), (_, width) = columns.shape, C.shape
    index = jnp.int64 if rows * width >= 2**31 else jnp.int32
    more = {} if added is None else {"scale": added.scale.reshape(1), "sides": added.sides, "base": added.base}
    more = {name: array for name, array in more.items() if array is not None}

    def program(column_ref, weight_ref, from_ref, *refs) -> None:  # type: ignore[no-untyped-def]
        to_ref, given = refs[-1], dict(zip(more, refs, strict=False))
        first = pl.program_id(0).astype(index) * BLOCK_ROWS
        start = pl.program_id(1).astype(index) * BLOCK_COLUMNS
        block, inside = pl.ds(start, BLOCK_COLUMNS), start + jnp.arange(BLOCK_COLUMNS) < width
        for ahead in range(BLOCK_ROWS):
            row = first + ahead
            read = jnp.minimum(row, rows - 1)

            def term(k: int | Array, total: Array, row: Array = read) -> Array:
                column = column_ref[row, k].astype(index)
                return total + weight_ref[row, k] * triton.load(from_ref.at[column, block], mask=inside, other=0.0)

            total = jnp.zeros((BLOCK_COLUMNS,), C.dtype)
            if entries <= UNROLL:
                for k in range(entries):
                    total = term(k, total)
            else:
                total = jax.lax.fori_loop(0, entries, term, total)
            if "scale" in given:
                total = given["scale"][0] * total
            if "sides" in given:
                total += given["sides"][read] + triton.load(given["sides"].at[block], mask=inside, other=0.0)
            if "base" in given:
                total += triton.load(given["base"].at[read, block], mask=inside, other=0.0)
            triton.store(to_ref.at[read, block], total, mask=inside & (row < rows))

    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    call = pl.pallas_call(
        program,
        grid=(pl.cdiv(rows, BLOCK_ROWS), pl.cdiv(width, BLOCK_COLUMNS)),
        in_specs=[anywhere] * (3 + len(more)),
        out_specs=anywhere,
        out_shape=jax.ShapeDtypeStruct((rows, width), C.dtype),  # type: ignore[no-untyped-call]
        # Each entry of the base is read before it is written, by the same program.
        input_output_aliases={3 + list(more).index("base"): 0} if "base" in more else {},
        compiler_params=triton.CompilerParams(num_warps=WARPS),
    )
    return call(columns, weights, C, *more.values())
