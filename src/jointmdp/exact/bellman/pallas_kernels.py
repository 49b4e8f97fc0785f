"""The product of sparse rows with a large dense array on a GPU, as a Pallas kernel: the twin of `sparse_products`.

Each program makes a few rows of a block of columns. Programs that run at the same time read neighbouring rows, which
are in the cache then. XLA's own gather of rows is as fast, but fused with the transpose that a sweep needs in between
it takes ten times as long, and no barrier keeps it from fusing (`benchmarks/gpu_sweep.py`).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

# Rows with more entries than this are summed by a loop instead of one fused expression, to bound compile time.
UNROLL = 32
BLOCK_ROWS, BLOCK_COLUMNS, WARPS = 4, 256, 4  # of one program (`benchmarks/gpu_sweep.py`)


class Added(NamedTuple):
    """What a product is scaled by, and what is added to it in the same pass over memory."""

    scale: Float[Array, ""]
    sides: Float[Array, " S"] | None = None  # sides(s) + sides(t)
    base: Float[Array, "S S"] | None = None


def multiply_rows(
    weights: Array, columns: Array, C: Array, added: Added | None = None, is_interpreted: bool = False
) -> Array:
    """``P C`` by the kernel, scaled and added to; interpreted, it runs without a GPU, slowly."""
    # Here, because only a machine with a GPU has what they need.
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    (rows, entries), (_, width), dtype = columns.shape, C.shape, jnp.result_type(weights, C)
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

            total = jnp.zeros((BLOCK_COLUMNS,), dtype)
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
        out_shape=jax.ShapeDtypeStruct((rows, width), dtype),  # type: ignore[no-untyped-call]
        # Each entry of the base is read before it is written, by the same program.
        input_output_aliases={3 + list(more).index("base"): 0} if "base" in more else {},
        compiler_params=triton.CompilerParams(num_warps=WARPS),
        interpret=is_interpreted,
    )
    return call(columns, weights, C, *more.values())
