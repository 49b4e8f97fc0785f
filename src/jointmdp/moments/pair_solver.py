"""The fixed point of the centred recursion on pairs of states: plain sweeps, and BiCGStab where they are slow.

A plain sweep contracts by γ² at worst and often by much less: branches that meet are done. Whether acceleration pays
is measured while solving, as residual lost per sweep's worth of work, and it is left again where it does not.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import Array

from jointmdp.bellman import second_moments
from jointmdp.bellman.second_moments import PairKernel, Source
from jointmdp.moments import bicgstab
from jointmdp.moments.bicgstab import KrylovState
from jointmdp.progress import Meter

PAIR_LIMIT = 2**31  # numbers held on pairs of states, all arrays together: 16 GiB
FLOOR_SHARE = 0.1  # a residual this far below what rounding leaves is not worth another sweep
CHUNK = 16  # plain sweeps between two looks at the residual
FIRST_ATTEMPT = 128  # plain sweeps before acceleration is considered
WORTHWHILE = 100  # plain sweeps still to come, at the rate seen, below which acceleration is not worth its memory
KRYLOV_CHUNK = 10  # accelerated steps between two looks
KRYLOV_COST = 5  # sweeps that one accelerated step is worth in time (`benchmarks/solve.py`)


def solve_pairs(
    kernel: PairKernel,
    added: Source,
    discount: Array,
    target: float,
    max_sweeps: int,
    is_accelerated: bool,
    meter: Meter,
    start: Array | None = None,
    parity: int = 1,
) -> tuple[Array, int]:
    """The fixed point of `bellman.sweep` to a residual below `target`, and how many sweeps it took.

    `parity` is 1 where C(t,s) = C(s,t), −1 where C(t,s) = −C(s,t), and 0 where neither holds.
    """
    C = jnp.diag(added.same) if start is None else start
    done, next_attempt = 0, FIRST_ATTEMPT if is_accelerated else max_sweeps
    first = before = math.inf
    while done < max_sweeps:
        count = min(CHUNK, max_sweeps - done)
        C, residual = sweeps(kernel, added, discount, C, count)
        done += count
        left = float(residual)
        first = left if math.isinf(first) else first
        if left <= target:
            break
        meter.update(_progress(first, left, target), f"residual {left:.1e}, target {target:.1e}")
        decay = math.log(before / left) / count if left < before < math.inf else 0.0
        before = left
        is_slow = decay * WORTHWHILE < math.log(left / target)
        if done >= next_attempt and is_slow:
            C, left, taken = _accelerate(kernel, added, discount, C, left, target, decay, max_sweeps - done, meter)
            if parity != 0:
                C = (C + C.T if parity == 1 else C - C.T) / 2  # plain sweeps keep symmetry, BiCGStab does not
            done += 2 * taken
            before = left
            next_attempt = 2 * done
    return C, done


def _accelerate(
    kernel: PairKernel,
    added: Source,
    discount: Array,
    C: Array,
    left: float,
    target: float,
    decay: float,
    max_sweeps: int,
    meter: Meter,
) -> tuple[Array, float, int]:
    """BiCGStab as long as it loses more of the residual per sweep's worth of work than `decay`, plain sweeps' own."""
    state = _start(kernel, added, discount, C)
    start, best = left, C
    misses = 0
    while left > target and misses < 2 and 2 * int(state.step) < max_sweeps:
        state = _steps(kernel, added, discount, state, target, KRYLOV_CHUNK)
        worst = float(state.worst)
        if not math.isfinite(worst):
            break
        is_paying = worst < left * math.exp(-decay * KRYLOV_COST * KRYLOV_CHUNK)
        misses = 0 if is_paying else misses + 1
        if worst < left:
            left, best = worst, state.x
        meter.update(_progress(start, left, target), f"residual {left:.1e}, target {target:.1e} (accelerated)")
    return best, left, int(state.step)


def _progress(first: float, left: float, target: float) -> float:
    return math.log(first / left) / math.log(first / target) if first > left > target > 0 else 0.0


@jax.jit
def sweeps(kernel: PairKernel, added: Source, discount: Array, C: Array, count: int) -> tuple[Array, Array]:
    """`count` sweeps, and the size of the last step."""
    C = jax.lax.fori_loop(0, count - 1, lambda _, C: second_moments.sweep(kernel, added, discount, C), C)
    after = second_moments.sweep(kernel, added, discount, C)
    return after, jnp.max(jnp.abs(after - C))


@jax.jit
def _start(kernel: PairKernel, added: Source, discount: Array, C: Array) -> KrylovState:
    return bicgstab.init(C, second_moments.sweep(kernel, added, discount, C) - C)


@jax.jit
def _steps(
    kernel: PairKernel, added: Source, discount: Array, state: KrylovState, target: float, count: int
) -> KrylovState:
    nothing = Source(jnp.zeros_like(added.luck), jnp.zeros_like(added.same))
    return bicgstab.advance(lambda X: X - second_moments.sweep(kernel, nothing, discount, X), state, target, count)
