"""The fixed point of the centred recursion on pairs of states: plain sweeps, and faster methods where they are slow.

A plain sweep contracts by γ² at worst and often by much less: branches that meet are done. Where sweeps are slow and
branches apart move independently, `diagonal_solver` solves for the diagonal; BiCGStab takes what is left, such as
branches that share every scenario. Whether a method pays is measured while solving, as residual lost per sweep's worth
of work, and it is left again where it does not.

Arrays of |S|² numbers alive at the peak, beside those of `problem` and of the caller: 3 in plain sweeps, 5 in
`diagonal_solver`, 7 in BiCGStab (`benchmarks/ergodic.py` counts them).

**The variance of the gap**, and a bound on the error of each pair: what is computed, D̂, misses the truth by e with
``|e(s,t)| ≤ ρ(s,t) + γ² E|e(S',T')|``, where ρ holds the residual, the rounding of one sweep and the errors of the
values, and branches that have become one add nothing. Every K with ``K ≥ ρ + γ²P₂K`` is therefore a bound. One is
``g(s) + g(t)`` with ``g ≥ ρ̃ + γ²Pg`` for single branches, where ρ is at most ρ̃(s) + ρ̃(t): cheap, and as large as
1/(1−γ²) steps. The other comes from sweeps over pairs with the source ρ and is checked: it is as large as the number of
steps until branches meet. The smaller of two such K is such a K again.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from jointmdp.exact.bellman import pair_sweep
from jointmdp.exact.bellman.numba_sweeps import TiledSweeps
from jointmdp.exact.bellman.pair_sweep import PairProblem, Source
from jointmdp.exact.moments import diagonal_solver
from jointmdp.exact.moments.asked_pairs import ReachableSize, asked_states, reachable_size
from jointmdp.exact.moments.certificates import CHECK_ROOM, UNDERFLOW, StateErrors, supersolution
from jointmdp.exact.moments.single_branch import Solver
from jointmdp.ground import checks
from jointmdp.ground.arrays import Floats, Ints, on_device
from jointmdp.ground.limits import ends, is_time_over
from jointmdp.ground.progress import Meter
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.policies import checked_policy
from jointmdp.model.tables import StateLike

PAIR_LIMIT = 2**31  # numbers held on pairs of states, all arrays together: 16 GiB
FLOOR_SHARE = 0.1  # a residual this far below what rounding leaves is not worth another sweep
CHUNK, LEAST_CHUNK = 16, 4  # plain sweeps between two looks at the residual, at most and at least
FIRST_ATTEMPT = 128  # plain sweeps before acceleration is considered
WORTHWHILE = 200  # plain sweeps still to come, at the rate seen, below which BiCGStab does not pay
MEETING_WORTHWHILE = 400  # as above, for `diagonal_solver` on a CPU, where its powers are dear
KRYLOV_CHUNK = 10  # accelerated steps between two looks
KRYLOV_LIMIT = 2**22  # pairs up to which BiCGStab is tried first, whatever its memory
KRYLOV_COST = 5  # sweeps that one accelerated step is worth in time (`benchmarks/solve.py`)
AMPLE = 100.0  # times ρ that a bound from single branches may be before sweeps over pairs are made for a better one
FEW = 128  # states; sweeps over more pairs take time, and ten times as much is ample
LEAST = 1e-3  # of the largest ρ: what a pair's source is raised to, so that few sweeps are enough
ROOM = 1e-6  # relative room that pays for computing a bound in float64

Values = TypeVar("Values", Floats, Array)


@dataclass(frozen=True)
class Solve:
    """Linear solves and the centred state-level recursion: the fast default.

    Plain sweeps come first; when their measured rate predicts many more, faster methods take over from where they are.
    Every residual is recomputed from the equations, so acceleration cannot spoil an answer.
    """

    relative_tolerance: float = 1e-6
    """Bound on the certified covariance error, relative to the largest variance of a return; usually far exceeded."""
    max_sweeps: int = 100_000
    is_accelerated: bool = True
    throw: bool = False
    """Raise `ConvergenceError` instead of warning when the tolerance is missed."""
    precision: Literal["double", "single"] = "double"
    """Of the pairs of states. In single precision they take half the memory; the certificate is computed in double."""

    def reach(self, model: JointMDP, policy: ArrayLike, states: Iterable[StateLike]) -> ReachableSize:
        """How many states and pairs ``evaluate(model, policy, self, states=states)`` would look at; nothing is solved.

        With a larger `relative_tolerance` more is left out where too much can be reached.
        """
        chosen = checked_policy(model, policy, "Solve().reach(*jointmdp.envs.inventory(), states=[0])")
        tolerance = checks.as_positive("relative_tolerance", self.relative_tolerance)
        return reachable_size(model, chosen, asked_states(model, states), tolerance)


# From a recursion, C, which is used up, its residual, the residual to reach, plain sweeps' loss, sweeps that are left,
# and a meter; to what takes the place of C, its residual, which is infinite where C is worse than before, the sweeps it
# was worth, and whether it is paying.
Method = Callable[[PairProblem, Array, float, float, float, int, Meter], tuple[Array, float, int, bool]]


class Attempt(NamedTuple):
    """A faster method, and when it is tried."""

    method: Method
    cost: float  # plain sweeps that take as long as one of the method's
    worthwhile: int  # of the method's sweeps, still to come at the rate seen, below which it does not pay


def solve_pairs(  # many parameters: a recursion, where to start and when to stop
    problem: PairProblem,
    target: float,
    max_sweeps: int,
    is_accelerated: bool,
    meter: Meter,
    start: Array | Floats | None = None,
    parity: int = 1,
    sweeps_before: int = 0,
) -> tuple[Array, int]:
    """The fixed point of `pair_sweep.sweep` to a residual below `target`, and how many sweeps it took.

    `parity` is 1 where C(t,s) = C(s,t), −1 where C(t,s) = −C(s,t), and 0 where neither holds. `sweeps_before` were made
    for another source: if they were many, acceleration is considered at once.
    """
    plain = plain_sweeps(problem, _first(problem, start), parity == 1)
    first_attempt = FIRST_ATTEMPT if sweeps_before <= FIRST_ATTEMPT else 2 * CHUNK
    done, next_attempt = 0, first_attempt if is_accelerated else math.inf
    first = before = left = math.inf
    attempts: list[Attempt] = []
    decay = 0.0
    while done < max_sweeps:
        count = min(_to_come(left, target, decay), max_sweeps - done, LEAST_CHUNK if ends() else CHUNK)
        left = plain.run(count)
        done += count
        first = left if math.isinf(first) else first
        if left <= target or is_time_over():
            break
        meter.update(swept_share(first, left, target), f"residual {left:.1e}, target {target:.1e}")
        decay = math.log(before / left) / count if left < before < math.inf else 0.0
        before = left
        if not next_attempt <= done < max_sweeps:
            continue
        attempts = attempts or _attempts(problem, plain.per_jax_sweep, parity == 1)
        method, cost, worthwhile = attempts[0]
        if decay * cost * worthwhile < math.log(left / target):
            C = plain.take()
            del plain  # its arrays make room
            C, left, taken, is_paying = method(problem, C, left, target, decay * cost, max_sweeps - done, meter)
            is_last = len(attempts) == 1
            if not is_paying and not is_last:
                attempts.pop(0)
            if not math.isfinite(left):  # spoilt
                C = _first(problem, start)
            elif parity != 0:
                C = (C + C.T if parity == 1 else C - C.T) / 2  # plain sweeps keep symmetry, accelerated ones do not
            plain = plain_sweeps(problem, C, parity == 1)
            del C
            done += taken
            before, decay = left, 0.0
            next_attempt = 2 * done if is_paying or is_last else done
    return plain.take(), done


def solve_to_rounding(  # many parameters: as `solve_pairs`
    problem: PairProblem,
    start: Array | Floats,
    largest: float,
    aim: Callable[[float], float],
    method: Solve,
    meter: Meter,
    parity: int = 1,
) -> tuple[Array | Floats, int]:
    """As `solve_pairs`, to the residual that `aim` asks for at the largest entry of the answer.

    Rounding is relative to the answer. It is at most `largest`: a first aim, until it is known.
    """
    C, done, last = start, 0, math.inf
    for _ in range(2):
        target = aim(largest)
        if done < method.max_sweeps and target < last / 2:
            left, last = method.max_sweeps - done, target
            C, more = solve_pairs(problem, target, left, method.is_accelerated, meter, C, parity)
            done, largest = done + more, float(jnp.max(jnp.abs(C)))
    return C, done


def _to_come(left: float, target: float, decay: float) -> int:
    """Sweeps before the next look at the residual: as many as it takes to the target at the rate seen."""
    if not (decay > 0 and target > 0 and math.isfinite(left)):
        return CHUNK
    return min(CHUNK, max(LEAST_CHUNK, math.ceil(math.log(left / target) / decay)))


def _attempts(problem: PairProblem, cost: float, is_symmetric: bool) -> list[Attempt]:
    """Faster methods in their order; plain sweeps are `cost` times as fast as those of JAX."""
    krylov, are_few = Attempt(_krylov, cost, WORTHWHILE), problem.kernel.weights.shape[1] ** 2 <= KRYLOV_LIMIT
    if not diagonal_solver.is_possible(problem):
        return [krylov]
    meeting = Attempt(partial(_meet, is_symmetric=is_symmetric), 1.0, WORTHWHILE)
    if cost == 1 and are_few:  # few slow modes may stand alone: BiCGStab is done before the other could be
        return [krylov._replace(method=partial(_krylov, is_brief=True)), meeting, krylov]
    on_cpu = all(device.platform == "cpu" for device in problem.kernel.weights.devices())
    return [meeting._replace(worthwhile=MEETING_WORTHWHILE) if on_cpu else meeting, krylov]


def _first(problem: PairProblem, start: Array | Floats | None) -> Array:
    return jnp.diag(problem.added.same) if start is None else on_device(start)


def plain_sweeps(
    problem: PairProblem, C: Array, is_symmetric: bool, is_donated: bool = False
) -> "DeviceSweeps | TiledSweeps":
    """Sweeps of C, which is used up, in the way that is fastest on its device."""
    if is_symmetric and pair_sweep.is_tiled(problem):
        return TiledSweeps(problem, C)
    return DeviceSweeps(problem, C, is_symmetric, is_donated)


@dataclass
class DeviceSweeps:
    """Sweeps of an array over pairs as JAX makes them."""

    problem: PairProblem
    C: Array
    is_symmetric: bool
    is_donated: bool = False  # an array gives its memory to the next: nobody else may have it
    per_jax_sweep: float = 1.0  # how many of these sweeps take as long as one that JAX makes

    def run(self, count: int) -> float:
        """`count` sweeps; the size of the last step."""
        run = _donated_sweeps if self.is_donated else sweeps
        self.C, residual = run(self.problem, self.C, count, self.is_symmetric)
        return float(residual)

    def largest(self) -> float:
        """The largest entry."""
        return float(jnp.max(self.C))

    def take(self) -> Array:
        """The array; sweeps end here."""
        return self.C


def _sweeps(problem: PairProblem, C: Array, count: int, is_symmetric: bool = False) -> tuple[Array, Array]:
    """`count` sweeps, and the size of the last step."""
    C = jax.lax.fori_loop(0, count - 1, lambda _, C: pair_sweep.sweep(problem, C, is_symmetric), C)
    after = pair_sweep.sweep(problem, C, is_symmetric)
    return after, jnp.max(jnp.abs(after - C))


sweeps = partial(jax.jit, static_argnames="is_symmetric")(_sweeps)
_donated_sweeps = partial(jax.jit, static_argnames="is_symmetric", donate_argnames="C")(_sweeps)


def swept_share(first: float, left: float, target: float) -> float:
    return math.log(first / left) / math.log(first / target) if first > left > target > 0 else 0.0


def _meet(  # many parameters: as `solve_pairs`
    problem: PairProblem,
    C: Array,
    left: float,
    target: float,
    decay: float,
    max_sweeps: int,
    meter: Meter,
    is_symmetric: bool,
) -> tuple[Array, float, int, bool]:
    """`diagonal_solver` as long as it loses more of the residual than plain sweeps, which lose `decay` each."""
    solver = diagonal_solver.build(problem)
    if solver is None:
        return C, left, diagonal_solver.MOST_STEPS // 2, False
    start, taken = left, solver.of_response.steps // 2
    while left > target and taken < max_sweeps and not is_time_over():
        C, after, more = diagonal_solver.improve(solver, problem, C, target, is_symmetric)
        taken += more
        if not after < left * math.exp(-decay * more):
            return C, after if after < start else math.inf, taken, False  # digits may be used up
        left = after
        meter.update(swept_share(start, left, target), f"residual {left:.1e}, target {target:.1e} (accelerated)")
    return C, left, taken, True


# The one in `jax.scipy` asks for the operator's transpose, which a sweep with an overwritten diagonal does not offer,
# stops on a Euclidean norm where certificates need the largest entry, and cannot be continued.


class KrylovState(NamedTuple):
    """All that the next step needs."""

    x: Array
    r: Array  # recursive residual sweep(x) − x
    shadow: Array
    p: Array
    v: Array
    rho: Array
    alpha: Array
    omega: Array
    worst: Array  # largest |r|
    step: Array


def _krylov(  # many parameters: as `solve_pairs`
    problem: PairProblem,
    C: Array,
    left: float,
    target: float,
    decay: float,
    max_sweeps: int,
    meter: Meter,
    is_brief: bool = False,
) -> tuple[Array, float, int, bool]:
    """BiCGStab as long as it loses more of the residual per sweep's worth of work than `decay`, plain sweeps' own.

    If `is_brief` it is left at the first step that loses too little to come to the target soon.
    """
    state, start, misses, patience = _start(problem, C), left, 0, 1 if is_brief else 2
    decay = max(decay, math.log(left / target) / WORTHWHILE) if is_brief else decay
    while left > target and misses < patience and 2 * int(state.step) < max_sweeps and not is_time_over():
        state = _advance(problem, state, target, KRYLOV_CHUNK)
        worst = float(state.worst)
        is_paying = worst < left * math.exp(-decay * KRYLOV_COST * KRYLOV_CHUNK)
        misses = 0 if is_paying else misses + 1
        if not math.isfinite(worst):  # a breakdown
            break
        left = min(left, worst)
        meter.update(swept_share(start, left, target), f"residual {left:.1e}, target {target:.1e} (accelerated)")
    worst = float(state.worst)
    return state.x, worst if worst < start else math.inf, 2 * int(state.step), misses == 0


@partial(jax.jit, donate_argnums=1)
def _start(problem: PairProblem, x: Array) -> KrylovState:
    residual = pair_sweep.sweep(problem, x) - x
    zero, one = jnp.zeros_like(x), jnp.ones(())
    worst = jnp.max(jnp.abs(residual))
    return KrylovState(x, residual, residual, zero, zero, one, one, one, worst, jnp.asarray(0))


@partial(jax.jit, donate_argnums=1)
def _advance(problem: PairProblem, state: KrylovState, target: float, steps: int) -> KrylovState:
    """Up to `steps` more steps, until the recursive residual is below `target` everywhere or not a number."""
    end = state.step + steps
    linear = problem._replace(added=Source(jnp.zeros_like(problem.added.same), None))

    def apply(x: Array) -> Array:
        return x - pair_sweep.sweep(linear, x)

    def goes_on(state: KrylovState) -> Array:
        return (state.worst > target) & (state.step < end)

    def improve(state: KrylovState) -> KrylovState:
        x, r, shadow, p, v, rho, alpha, omega, _, step = state
        rho_next = jnp.vdot(shadow, r)
        beta = (rho_next / rho) * (alpha / omega)
        p = r + beta * (p - omega * v)
        v = apply(p)
        alpha = rho_next / jnp.vdot(shadow, v)
        s = r - alpha * v
        t = apply(s)
        omega = jnp.vdot(t, s) / jnp.vdot(t, t)
        x = x + alpha * p + omega * s
        r = s - omega * t
        return KrylovState(x, r, shadow, p, v, rho_next, alpha, omega, jnp.max(jnp.abs(r)), step + 1)

    return jax.lax.while_loop(goes_on, improve, state)


# -- the variance of the gap, and bounds on its errors ---------------------------------------------------------------


def solve_gap_variances(
    problem: PairProblem, errors: StateErrors, target: float, method: Solve
) -> tuple[Floats, Floats, float, int]:
    """D(s,t) = Var(Z(s,A) − Z(t,B)) with independent actions to a residual below `target` or to what rounding leaves.

    With it come bounds on its errors, ``[S, S]`` each, the largest |D' − D| of one more sweep, and the sweeps taken.
    """
    B = errors.single.variance
    first = B[:, None] + B[None, :]  # as if branches that are apart had nothing in common
    np.fill_diagonal(first, np.asarray(problem.added.same))

    def aim(largest: float) -> float:
        return max(target, FLOOR_SHARE * (errors.floor_of_mean + errors.relative * largest))

    with Meter("joint moments") as meter:
        # The first guess stays on the host, so that the device holds it once.
        D, done = solve_to_rounding(problem, first, float(first.max()), aim, method, meter)
        D = jnp.maximum(D, 0.0)
        steps = tuple(on_device(each) for each in errors.gap_step)
        rho, residual = _whole_step_errors(problem, D, steps, errors.relative)
        solve = errors.single.solve_squared
        ample = AMPLE if len(D) <= FEW else 10 * AMPLE
        bounds = pair_bounds(problem, rho, errors, solve, errors.relative, done, method, meter, ample)
        return np.asarray(D), bounds, float(residual), done


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
    K, _ = solve_pairs(
        problem._replace(added=raised), target, most, method.is_accelerated, meter, start, sweeps_before=done
    )
    K, is_bound = _checked(problem, rho, K, relative)
    if not bool(is_bound):
        return apart
    found, _ = sweeps(problem._replace(added=_as_source(rho)), jnp.minimum(K, on_device(apart)), CHUNK)
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
    later = pair_sweep.sweep(problem._replace(added=Source(jnp.zeros(len(K)), None)), K)
    return K, jnp.all(K - later - rho >= 2 * relative * (K + later + rho))


def _as_source(values: Array) -> Source:
    return Source(jnp.diagonal(values), values)
