"""The default method where memory is short: plain sweeps on one device with three arrays over pairs alive.

Sweeps run in the precision asked for. The certificate does not care how an answer was made: the residual of what is
stored is computed in double precision, a block of columns at a time, so that no further array is needed. Of the pairs
of states only those are kept that actions of one state lead to, ``[S, A, A]``.
"""

import math
import os
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jointmdp.exact.bellman import second_moments, sparse_products
from jointmdp.exact.bellman.second_moments import PairProblem
from jointmdp.exact.moments import numba_sweeps, transition_kernels
from jointmdp.exact.moments.certificates import StateErrors
from jointmdp.exact.moments.default_solver import FoundMoments, reached, residual_target
from jointmdp.exact.moments.gap_variances import block_step_errors, branch_shares
from jointmdp.exact.moments.numba_sweeps import TiledSweeps
from jointmdp.exact.moments.pair_solver import CHUNK, FLOOR_SHARE, Solve, swept_share
from jointmdp.exact.moments.single_branch import solve_single_branch
from jointmdp.exact.moments.stored_moments import GapErrors, SameStateMoments
from jointmdp.ground import checks
from jointmdp.ground.arrays import Floats, on_device
from jointmdp.ground.errors import ModelError
from jointmdp.ground.progress import Meter
from jointmdp.model.joint_mdp import JointMDP

USUAL_ARRAYS, LEAN_ARRAYS = 12.0, 3.3  # alive at the peak of the default method, and here
MORE_IN_TIME = 2.0  # further ones where branches share their noise in time: what a step adds, and a sum over scenarios
BLOCK_BYTES = 2**31  # of the columns that are certified at once
WORDS: dict[str, np.dtype[Any]] = {"double": np.dtype(np.float64), "single": np.dtype(np.float32)}


def needs_lean(model: JointMDP, method: Solve) -> bool:
    """Whether the default method has to work leanly; refuses what does not fit at all, and says what would."""
    precision = method.precision
    if precision not in WORDS:
        raise ModelError(f'precision is {precision!r}; it must be "double" or "single"')
    if model.sharing == "none":
        return False
    room, word = device_memory(), WORDS[precision].itemsize
    lean = LEAN_ARRAYS + (MORE_IN_TIME if model.sharing == "time" else 0.0)
    S = model.num_states
    if lean * word * S**2 > room:
        fits = {name: math.isqrt(int(room / (lean * each.itemsize))) for name, each in WORDS.items()}
        raise ModelError(
            f"{S:,} states make {S**2:,} pairs, and {lean:g} arrays of them in {precision} precision take "
            f"{lean * word * S**2 / 2**30:,.0f} GiB, where {room / 2**30:,.0f} are free; up to {fits['double']:,} "
            f'states fit, {fits["single"]:,} with Solve(precision="single"). evaluate(..., states=[…]) answers for '
            "a few states of any model, jointmdp.Sharded(...) uses several devices"
        )
    return precision == "single" or USUAL_ARRAYS * word * S**2 > room


def device_memory() -> float:
    """Bytes that arrays can take on the default device."""
    limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit")
    if limit:
        return float(limit)
    try:
        return 0.8 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # a system that does not say
        return math.inf


def solve_lean(model: JointMDP, policy: Floats, method: Solve) -> FoundMoments:
    """Second moments of an endless future."""
    tolerance = checks.as_positive("relative_tolerance", method.relative_tolerance)
    max_sweeps = checks.as_count("max_sweeps", method.max_sweeps)
    branch = solve_single_branch(model, policy)
    tables = transition_kernels.tables(model, policy, branch.state.rewards)
    kernel = transition_kernels.pair_kernel(model, policy, may_be_dense=False)
    errors = StateErrors(model, policy, branch)
    v = second_moments.state_mean(tables, on_device(branch.mean))
    problem = PairProblem(kernel, _source(tables, kernel, v), tables.discount)
    word = WORDS[method.precision]
    fast = jax.tree.map(lambda x: x.astype(word) if x.dtype == np.float64 else x, problem)
    D = _first(on_device(branch.variance), problem.added.same, dtype=word)
    least = 2.0**-52 if method.precision == "double" else 2.0**-23
    target, done, first, before = residual_target(errors, tolerance), 0, math.inf, math.inf
    plain: TiledSweeps | LeanSweeps
    plain = TiledSweeps(fast, D) if numba_sweeps.is_possible(fast) else LeanSweeps(fast, D)
    del D
    with Meter("joint moments") as meter:
        while done < max_sweeps:
            count = min(CHUNK, max_sweeps - done)
            left = plain.run(count)
            done += count
            first = left if math.isinf(first) else first
            largest = plain.largest()
            floor = FLOOR_SHARE * (errors.floor_of_mean + errors.relative * largest)
            aim = max(target, floor, least * largest)
            meter.update(swept_share(first, left, aim), f"residual {left:.1e}, target {aim:.1e}")
            if left <= aim or (left > before / 2 and left < 64 * least * largest):
                break
            before = left
        D = _symmetric(plain.take())
        del plain
        steps = tuple(on_device(each) for each in errors.gap_step)
        largest_rho, residual = _certified(problem, D, steps, errors.relative, meter)
    shares = branch_shares(largest_rho, errors, model.discount**2, branch.solve_squared, errors.relative)
    certificate = errors.certificate((shares + shares.max())[:, None], residual)
    status = reached(certificate, errors, tolerance, done >= max_sweeps)
    mean = np.asarray(second_moments.mean(tables, v)) + branch.state.offset[:, None]
    held = _same_state(D, model)
    gap_errors = GapErrors(errors.values, shares[:, None])
    moments = SameStateMoments(model, tables, v, on_device(held), on_device(branch.variance), mean, gap_errors)
    return FoundMoments(moments, certificate, status, done)


_source = jax.jit(second_moments.gap_source)


@partial(jax.jit, static_argnames="dtype")
def _first(B: Array, same: Array, dtype: np.dtype[Any]) -> Array:
    """B(s) + B(t), as if branches that are apart had nothing in common."""
    B, here = B.astype(dtype), jnp.arange(len(B))
    return (B[:, None] + B[None, :]).at[here, here].set(same.astype(dtype))


class LeanSweeps:
    """Sweeps on the device, where an array gives its memory to the next."""

    def __init__(self, problem: PairProblem, D: Array) -> None:
        self.problem, self.D, self.most = problem, D, 0.0

    def run(self, count: int) -> float:
        """`count` sweeps; the size of the last step."""
        self.D, step, most = _swept(self.problem, self.D, count)
        self.most = float(most)
        return float(step)

    def largest(self) -> float:
        """The largest entry."""
        return self.most

    def take(self) -> Array:
        """The array."""
        return self.D


@partial(jax.jit, donate_argnames="D")
def _swept(problem: PairProblem, D: Array, count: int) -> tuple[Array, Array, Array]:
    """`count` sweeps, the largest step of the last one, and the largest entry."""
    D = jax.lax.fori_loop(0, count - 1, lambda _, D: second_moments.sweep(problem, D, is_symmetric=True), D)
    after = second_moments.sweep(problem, D, is_symmetric=True)
    return after, jnp.max(jnp.abs(after - D)), jnp.max(after)


@partial(jax.jit, donate_argnames="D")
def _symmetric(D: Array) -> Array:
    """Sweeps in one precision keep symmetry up to rounding only, and the certificate counts on it."""
    return jnp.maximum((D + D.T) / 2, 0.0)


def _certified(
    problem: PairProblem, D: Array, steps: tuple[Array, ...], relative: float, meter: Meter
) -> tuple[Floats, float]:
    """Largest ρ ``[2, S]`` of each state with states alive and idle, and the largest residual."""
    S = len(D)
    width = min(S, max(1, BLOCK_BYTES // (8 * S)))
    found, worst = np.zeros((2, S)), 0.0
    met = _met(problem.kernel, D)
    largest = jnp.max(D).astype(np.float64)
    for start in range(0, S, width):
        begin = min(start, S - width)  # the last block may repeat some columns: one shape for all
        rho, residual = _block_maxima(problem, D, met, largest, steps, relative, begin, width=width)
        found[:, begin : begin + width] = np.asarray(rho)
        worst = max(worst, float(residual))
        meter.update(start / S, "certificate")
    return found, worst


_met = jax.jit(lambda kernel, D: second_moments.met(kernel, D))


# many parameters: a recursion and its candidate, what its errors are made of, and which columns are looked at
@partial(jax.jit, static_argnames="width")
def _block_maxima(
    problem: PairProblem,
    D: Array,
    met: Array,
    largest: Array,
    steps: tuple[Array, ...],
    relative: float,
    begin: int,
    width: int,
) -> tuple[Array, Array]:
    """As `_certified`, for the columns from `begin` on, in double precision."""
    kernel, added, discount = problem
    assert kernel.columns is not None
    here = begin + jnp.arange(width)

    def columns_of(values: Array, axis: int = 0) -> Array:
        return jax.lax.dynamic_slice_in_dim(values, begin, width, axis)

    def moved(weights: Array, columns: Array) -> Array:
        """(P D Pᵀ)(·, J) = P (P_J D)ᵀ, where D is symmetric."""
        rows = columns_of(columns)
        chances = columns_of(weights)
        half = jnp.zeros((width, len(D)))
        for k in range(rows.shape[1]):
            half = half + chances[:, k, None] * D[rows[:, k]]
        return sparse_products.row_product(weights, columns, half.T)

    def add(total: Array, group: tuple[Array, Array, Array]) -> tuple[Array, None]:
        chance, weights, columns = group
        return total + chance * moved(weights, columns), None

    stored = columns_of(D, 1).astype(np.float64)
    later, _ = jax.lax.scan(add, jnp.zeros_like(stored), (kernel.chances, kernel.weights, kernel.columns))
    if added.sides is not None:
        apart = added.sides[:, None] + columns_of(added.sides)[None, :]
    else:
        assert added.cross is not None
        apart = columns_of(added.cross, 1)
    diagonal = added.same + discount**2 * met
    after = (apart + discount**2 * later).at[here, jnp.arange(width)].set(columns_of(diagonal))
    rho, residual = block_step_errors(after, stored, apart, added.same, steps, here, relative, largest)
    idle = steps[2]
    found = jnp.stack([jnp.max(jnp.where(each[:, None], rho, 0.0), axis=0) for each in (~idle, idle)])
    return found, jnp.max(residual)


def _same_state(D: Array, model: JointMDP) -> Floats:
    """Σ_w p(w|s) D(S'_a, S'_b) for all actions of all states, ``[S, A, A]``; zero where a = b."""
    S, _, A = model.successors.shape
    found, p = np.zeros((S, A, A)), on_device(model.probabilities)
    n = on_device(model.successors.astype(np.int32))
    for a in range(A):
        for b in range(a + 1, A):
            found[:, a, b] = found[:, b, a] = np.asarray(_expected(D, p, n[:, :, a], n[:, :, b]))
    return found


_expected = jax.jit(lambda D, p, s, t: jnp.sum(p * D[s, t], axis=1))
