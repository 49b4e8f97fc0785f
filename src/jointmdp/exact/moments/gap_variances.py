"""The variance of the gap of two branches on pairs of states, and a bound on the error of each pair.

What is computed, D̂, misses the truth by e with ``|e(s,t)| ≤ ρ(s,t) + γ² E|e(S',T')|``, where ρ holds the residual, the
rounding of one sweep and the errors of the values, and branches that have become one add nothing. Every K with
``K ≥ ρ + γ²P₂K`` is therefore a bound. One is ``g(s) + g(t)`` with ``g ≥ ρ̃ + γ²Pg`` for single branches, where ρ is at
most ρ̃(s) + ρ̃(t): cheap, and as large as 1/(1−γ²) steps. The other comes from sweeps over pairs with the source ρ and is
checked: it is as large as the number of steps until branches meet. The smaller of two such K is such a K again.
"""

from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jointmdp.exact.bellman import pair_sweep
from jointmdp.exact.bellman.pair_sweep import PairProblem, Source
from jointmdp.exact.moments.certificates import CHECK_ROOM, UNDERFLOW, StateErrors, supersolution
from jointmdp.exact.moments.pair_solver import CHUNK, FLOOR_SHARE, Solve, solve_pairs, sweeps
from jointmdp.exact.moments.single_branch import Solver
from jointmdp.ground.arrays import Floats, Ints, on_device
from jointmdp.ground.progress import Meter

AMPLE = 100.0  # times ρ that a bound from single branches may be before sweeps over pairs are made for a better one
FEW = 128  # states; sweeps over more pairs take time, and ten times as much is ample
LEAST = 1e-3  # of the largest ρ: what a pair's source is raised to, so that few sweeps are enough
Values = TypeVar("Values", Floats, Array)
ROOM = 1e-6  # relative room that pays for computing a bound in float64


class GapVariances(NamedTuple):
    """D(s,t) = Var(Z(s,A) − Z(t,B)) with independent actions, and what is known of it."""

    values: Array  # [S, S]
    errors: Floats  # [S, S]
    residual: float  # largest |D' − D| of one more sweep
    sweeps: int


def solve_gap_variances(problem: PairProblem, errors: StateErrors, target: float, method: Solve) -> GapVariances:
    """The fixed point to a residual below `target` or to what rounding leaves, with bounds on its errors."""
    B = errors.single.variance
    first = B[:, None] + B[None, :]  # as if branches that are apart had nothing in common
    np.fill_diagonal(first, np.asarray(problem.added.same))
    D: Array | Floats = first  # stays on the host, so that the device holds it once
    done = 0
    with Meter("joint moments") as meter:
        # Rounding is relative to the answer, which is at most the first guess: a first aim, until it is known.
        last = np.inf
        for _ in range(2):
            aim = max(target, FLOOR_SHARE * (errors.floor_of_mean + errors.relative * float(jnp.max(D))))
            if done < method.max_sweeps and aim < last / 2:
                last = aim
                D, more = solve_pairs(problem, aim, method.max_sweeps - done, method.is_accelerated, meter, D)
                done += more
        D = jnp.maximum(D, 0.0)
        steps = tuple(on_device(each) for each in errors.gap_step)
        rho, residual = _whole_step_errors(problem, D, steps, errors.relative)
        solve = errors.single.solve_squared
        ample = AMPLE if len(D) <= FEW else 10 * AMPLE
        bounds = pair_bounds(problem, rho, errors, solve, errors.relative, done, method, meter, ample)
        return GapVariances(D, bounds, float(residual), done)


@jax.jit
def _whole_step_errors(
    problem: PairProblem, D: Array, steps: tuple[Array, ...], relative: float
) -> tuple[Array, Array]:
    """ρ ``[S, S]``, exactly zero where no error can arise, and the largest residual."""
    after, apart, same = pair_sweep.sweep(problem, D), problem.added.apart, problem.added.same
    assert apart is not None
    rho, residual = step_errors(after, D, apart, same, steps, jnp.arange(len(D)), relative, jnp.max(D))
    return jnp.maximum(rho, rho.T), jnp.max(residual)


def _by_values(added: Values, off: Values) -> Values:
    """How far the variance of a step is off, where what varies is off by `off` in the mean square."""
    return 2 * (1 + CHECK_ROOM) * added**0.5 * off + off**2


def listed_step_errors(errors: StateErrors, added: Floats, s: Ints, t: Ints, sizes: Floats, largest: float) -> Floats:
    """ρ of listed pairs without the residual: `added` is what a step adds, `sizes` what rounding is relative to."""
    off, choice_off = errors.gap_step[:2]
    by_values = np.where(s == t, 2 * _by_values(added / 2, choice_off[s]), _by_values(added, off[s] + off[t]))
    return errors.relative * sizes + by_values + UNDERFLOW * (1 + largest)


# many parameters: a block of columns and its next, what a step adds to it, and what its errors are made of
def step_errors(
    after: Array,
    stored: Array,
    apart: Array,
    same: Array,
    steps: tuple[Array, ...],
    here: Array,
    relative: float | Array,
    largest: Array,
) -> tuple[Array, Array]:
    """ρ of the columns `here`, ``[S, J]``, exactly zero where no error can arise, and the residuals."""
    off, choice_off, idle, is_single = steps
    places = jnp.arange(len(here))
    by_values = _by_values(apart, off[:, None] + off[None, here])
    by_values = by_values.at[here, places].set(2 * _by_values(same[here] / 2, choice_off[here]))
    residual = jnp.abs(after - stored)
    rho = residual + relative * (after + stored) + by_values + UNDERFLOW * (1 + largest)
    return jnp.where(_is_settled(idle, is_single, here), 0.0, rho), residual


def _is_settled(idle: Array, is_single: Array, here: Array) -> Array:
    """Pairs whose gap is exactly zero: nothing is paid any more, or both branches take the one action there is."""
    return (idle[:, None] & idle[None, here]).at[here, jnp.arange(len(here))].max(is_single[here])


def pair_bounds(  # many parameters: a recursion, how it was solved, and how its errors are passed on
    problem: PairProblem,
    rho: Array,
    errors: StateErrors,
    solve: Solver,
    relative: float,
    done: int,
    method: Solve,
    meter: Meter,
    ample: float,
) -> Floats:
    """Some K ``[S, S]`` with ``K ≥ ρ + fP₂K``, f the squared discount of `problem`; `solve` is (I − fP)⁻¹.

    ρ is symmetric, and exactly zero where no error can arise. `done` sweeps were made for the answer itself.
    """
    host, idle = np.asarray(rho), errors.single.state.idle
    largest = np.stack([np.max(host[each], axis=0, initial=0.0) for each in (~idle, idle)])
    shares = branch_shares(largest, errors, float(problem.discount) ** 2, solve, relative)
    apart, top = shares[:, None] + shares[None, :], float(host.max())
    if top == 0 or 2 * float(shares.max()) <= ample * top:
        return apart
    raised = _raised(rho, *(on_device(each) for each in errors.gap_step[2:]))
    most = min(method.max_sweeps, done + 4 * CHUNK)
    target, start = LEAST * top / 4, raised.cross
    K, _ = solve_pairs(_with(problem, raised), target, most, method.is_accelerated, meter, start, sweeps_before=done)
    K, is_bound = _checked(problem, rho, K, relative)
    if not bool(is_bound):
        return apart
    found, _ = sweeps(_with(problem, _as_source(rho)), jnp.minimum(K, on_device(apart)), CHUNK)
    return (1 + ROOM) * np.asarray(found)


def branch_shares(largest: Floats, errors: StateErrors, factor: float, solve: Solver, relative: float) -> Floats:
    """g ``[S]``: a pair is off by at most g(s) + g(t). `largest` ``[2, S]`` is that of ρ with states alive and idle."""
    state, (alive, idle) = errors.single.state, largest
    # A state where nothing is paid has no share: a branch that is still on its way bears all of the pair's.
    source = np.where(state.idle, 0.0, np.maximum(alive / 2, idle))
    return supersolution(state.kernel, factor, solve, source, relative)


@jax.jit
def _raised(rho: Array, idle: Array, is_single: Array) -> Source:
    return _as_source(
        jnp.where(_is_settled(idle, is_single, jnp.arange(len(rho))), 0.0, jnp.maximum(rho, LEAST * jnp.max(rho)))
    )


@jax.jit
def _checked(problem: PairProblem, rho: Array, K: Array, relative: float) -> tuple[Array, Array]:
    """K with room to spare, and whether it is a bound for certain."""
    K = 1.5 * jnp.maximum(K, 0.0)
    later = pair_sweep.sweep(_with(problem, Source(jnp.zeros(len(K)), None)), K)
    return K, jnp.all(K - later - rho >= 2 * relative * (K + later + rho))


def _as_source(values: Array) -> Source:
    return Source(jnp.diagonal(values), values)


def _with(problem: PairProblem, source: Source) -> PairProblem:
    return problem._replace(added=source)
