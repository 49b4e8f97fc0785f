"""The paper's iteration M ← TM, stopped by its own certificate, and what is said when that misses the tolerance.

Two front doors: `evaluate`, exact with a certificate in every answer, and `learn`, from samples.

`Solve` (the default) solves the mean and the one-branch variance directly and iterates the centred recursion on pairs
of *states*: |S|² numbers, contraction γ² or better. `Iterate` is the paper's iteration M ← T₂M on pairs of
state-action *coordinates*, for small models, teaching and checking.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar, Unpack, overload

import jax
import numpy as np
from numpy.typing import ArrayLike

from jointmdp.exact.bellman import second_moments
from jointmdp.exact.bellman.second_moments import Moments
from jointmdp.exact.moments.asked_pairs import ReachableSize, asked_states
from jointmdp.exact.moments.certificates import assess_pairs
from jointmdp.exact.moments.column_blocks import Sharded, needs_lean, solve_lean, solve_sharded
from jointmdp.exact.moments.default_solver import FoundMoments, PolicyBranch, solve, solve_horizon
from jointmdp.exact.moments.pair_solver import PAIR_LIMIT, Solve
from jointmdp.exact.moments.partial_solve import solve_asked
from jointmdp.exact.moments.policy_inputs import checked_policy
from jointmdp.exact.moments.shard_files import ShardFiles
from jointmdp.exact.moments.stored_moments import PairMoments
from jointmdp.exact.solution.policy_returns import PolicyReturns
from jointmdp.exact.solution.solution import Solution
from jointmdp.ground import checks
from jointmdp.ground.arrays import Floats, float64, on_device
from jointmdp.ground.errors import ConvergenceError, ConvergenceWarning, ModelError, Status
from jointmdp.ground.lost_processes import Survivor
from jointmdp.ground.progress import Meter
from jointmdp.learning.incremental.learned import Learned, LearnedStates
from jointmdp.learning.incremental.learner_runs import answers, last_answer, reports
from jointmdp.learning.incremental.settings import LearnOptions
from jointmdp.learning.projected.feature_learner import FeatureLearner, LearnedFeatures
from jointmdp.learning.projected.projecting import Projected, project
from jointmdp.model.episodes import idle_states, paying_state, policy_kernel
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.tables import StateLike
from jointmdp.simulation.executors import Executor
from jointmdp.simulation.simulators.any_simulator import as_simulator

PATIENCE = 100  # residuals without a new low after which what is left is rounding

MomentsT = TypeVar("MomentsT")
BoundsT = TypeVar("BoundsT")


class Iterated(NamedTuple, Generic[MomentsT, BoundsT]):
    """Where an iteration ended."""

    moments: MomentsT
    bounds: BoundsT
    status: Status
    steps: int
    history: Floats  # residuals as computed, of the start and after each step


def iterate(
    backup: Callable[[MomentsT], MomentsT],
    assess: Callable[[MomentsT, MomentsT], tuple[float, float, BoundsT]],
    start: MomentsT,
    tolerance: float | None,
    max_steps: int,
    title: str,
) -> Iterated[MomentsT, BoundsT]:
    """M ← TM until the certified error is at most `tolerance`; without one, exactly `max_steps` times.

    ``assess(M, TM)`` gives the residual as computed, the largest certified error, and all bounds.
    """
    M, history, low, steps = start, list[float](), 0, 0
    with Meter(title) as meter:
        while True:
            after = backup(M)
            residual, worst, bounds = assess(M, after)
            history.append(residual)
            low = steps if residual < history[low] else low
            status = None
            if tolerance is not None and worst <= tolerance:
                status = Status.CONVERGED
            elif tolerance is not None and (residual == 0 or (steps - low >= PATIENCE and steps >= 2 * PATIENCE)):
                status = Status.STAGNATED
            elif steps == max_steps:
                status = Status.COMPLETED if tolerance is None else Status.STEP_LIMIT
            if status is not None:
                return Iterated(M, bounds, status, steps, np.array(history))
            M, steps = after, steps + 1
            meter.update(steps / max_steps, f"step {steps}, certified error {worst:.1e}")


def report_missed(status: Status, bounds: str, throw: bool) -> None:
    """Raise or warn, in the name of the caller's caller, where a method did not reach its tolerance."""
    if status.is_success:
        return
    message = f"{status.value} ({bounds})"
    if throw:
        raise ConvergenceError(message)
    warnings.warn(message, ConvergenceWarning, stacklevel=3)


LARGEST = 1e100  # rewards and starting values whose squares floats can hold with room to spare
MOMENT_LIMIT = 2**28  # coordinate pairs that `Iterate` agrees to form: 2 GiB a collection
MAX_ORDER = 30  # beyond it binomial coefficients amplify rounding until no digit is left

_backup = partial(jax.jit, static_argnames="sharing")(second_moments.moment_backup)


@dataclass(frozen=True)
class Iterate:
    """The paper's JIPE-2: M ← T₂M on all pairs of coordinates, with its residual history."""

    tolerance: float | None = 1e-8
    """Bound on the certified error of means and second moments; None takes exactly `max_steps` steps."""
    max_steps: int = 100_000
    start: tuple[ArrayLike, ArrayLike] | None = None
    """First collection: means ``[S, A]`` and second moments ``[S, A, S, A]``; zero by default."""
    throw: bool = False


def evaluate(
    model: JointMDP,
    policy: ArrayLike,
    method: Solve | Sharded | Iterate | Projected | None = None,
    *,
    order: int = 2,
    horizon: int | None = None,
    states: Iterable[StateLike] | None = None,
) -> Solution:
    """The joint moments of the returns of all actions under `policy`, with their certificate and status.

    Args:
        model: the joint MDP; its ``sharing`` says which branches share their noise.
        policy: probabilities ``[S, A]``, one action per state, a dictionary, a function of the state or "uniform"; see
            docs/models.md.
        method: `Solve()` by default, `Sharded()` on several devices, `Iterate()`, or `Projected(features)`.
        order: highest moment; 2, or more for the skewness, kurtosis and further moments of gaps and pairs.
        horizon: evaluate the first `horizon` steps only, exactly. Without one the discount may be 1 where every return
            surely comes to an end under the policy.
        states: only these are asked about. Then only what they lead to is looked at, by every action first and by the
            policy after, so the time does not depend on the size of the model; see docs/large-models.md.
    """
    chosen = checked_policy(model, policy, "evaluate(*jointmdp.envs.inventory())")
    order = checks.as_count("order", order, least=2, most=MAX_ORDER)
    if order > 2 and isinstance(method, Iterate):
        raise ModelError(
            f"Iterate evaluates moments of order 2, not {order}; joint_moments(model, policy, {order}) iterates the "
            "operator of higher order, and the default method gives the moments of pairs"
        )
    if states is not None:
        return _evaluate_states(model, chosen, states, method, order, horizon)
    if isinstance(method, Sharded) and order > 2:
        raise ModelError(f"Sharded evaluates moments of order 2, not {order}; the default method knows higher ones")
    is_foreseen = order == 2 and horizon is None and isinstance(method, Solve | None)
    _check_size(model, order, is_counted=not (is_foreseen or isinstance(method, Sharded)))
    if order > 2 and isinstance(method, Solve) and method.precision != "double":
        raise ModelError("single precision has no digits for moments above order 2; leave precision out")
    if isinstance(method, Projected):
        return _project(model, chosen, method, order, horizon)
    if horizon is not None:
        if method is not None:
            raise ModelError("a horizon is evaluated by backward sweeps; leave method=None")
        horizon = checks.as_count("horizon", horizon)
        with float64():
            found = solve_horizon(model, chosen, horizon, order)
        known = found.moments, found.certificate, found.status
        return Solution(model, chosen, *known, method="horizon", steps=horizon, horizon=horizon)
    method = Solve() if method is None else method
    if model.discount == 1:
        _check_ends(model, chosen, method, order)
    with float64():
        if isinstance(method, Solve):
            is_lean = order == 2 and needs_lean(model, method)
            found = solve_lean(model, chosen, method) if is_lean else solve(model, chosen, method, order)
            solution = Solution(model, chosen, found.moments, found.certificate, found.status, "Solve", found.steps)
        elif isinstance(method, Sharded):
            found = _solve_sharded(model, chosen, method)
            solution = Solution(model, chosen, found.moments, found.certificate, found.status, "Sharded", found.steps)
        elif isinstance(method, Iterate):
            solution = _iterate(model, chosen, method)
        else:
            raise ModelError(
                "method must be jointmdp.Solve(...), jointmdp.Sharded(...), jointmdp.Iterate(...) or "
                f"jointmdp.Projected(...), not {method!r}"
            )
    report_missed(solution.status, str(solution.certificate), method.throw)
    return solution


# many parameters: those of `evaluate`
def _evaluate_states(
    model: JointMDP,
    policy: Floats,
    states: Iterable[StateLike],
    method: Solve | Sharded | Iterate | Projected | None,
    order: int,
    horizon: int | None,
) -> Solution:
    if order > 2 or horizon is not None or not isinstance(method, Solve | None):
        raise ModelError("states=[…] gives means and second moments by Solve(); leave order, horizon and others out")
    asked = asked_states(model, states)
    _check_range(model, 2)
    method = Solve() if method is None else method
    found = solve_asked(model, policy, asked, method)
    solution = Solution(model, policy, found.moments, found.certificate, found.status, "Solve", found.steps)
    report_missed(solution.status, str(solution.certificate), method.throw)
    return solution


def reach(
    model: JointMDP, policy: ArrayLike, states: Iterable[StateLike], relative_tolerance: float = 1e-6
) -> ReachableSize:
    """As `Solve.reach`."""
    return Solve(relative_tolerance=relative_tolerance).reach(model, policy, states)


def _solve_sharded(model: JointMDP, policy: Floats, method: Sharded) -> FoundMoments:
    process, processes = jax.process_index(), jax.process_count()
    store = None if method.checkpoint is None else ShardFiles(method.checkpoint, process, processes)
    with Survivor(process, processes, (lambda: "nothing was saved") if store is None else store.described) as survivor:
        if store is not None:
            store.on_write = survivor.update
        return solve_sharded(model, policy, method, store)


def _project(model: JointMDP, policy: Floats, method: Projected, order: int, horizon: int | None) -> Solution:
    if order > 2 or horizon is not None:
        raise ModelError("Projected fits means and second moments of an endless future; leave order and horizon out")
    solution = project(model, policy, method)
    report_missed(solution.status, str(solution), method.throw)
    return solution


def evaluate_policies(
    model: JointMDP, policies: Mapping[Any, Any] | Sequence[Any], method: Solve | None = None
) -> PolicyReturns:
    """The returns of whole policies from the same start, and the gap of every two under shared noise, exactly.

    Args:
        model: the joint MDP; its ``sharing`` says which branches share their noise.
        policies: ``{"name": policy, …}`` or a list, each policy as in `evaluate`.
        method: tolerance and limits of the solver.
    """
    method = Solve() if method is None else method
    if not isinstance(method, Solve):
        raise ModelError(f"policies are evaluated by jointmdp.Solve(...), not {method!r}")
    if isinstance(policies, Mapping):
        named = {str(name): policy for name, policy in policies.items()}
    elif isinstance(policies, list | tuple):
        named = {f"policy {i}": policy for i, policy in enumerate(policies)}
    else:
        raise ModelError(f"policies must be a dictionary {{name: policy}} or a list of policies, not {policies!r}")
    if not named:
        raise ModelError("there is no policy to evaluate; give at least one")
    branches = []
    for name, policy in named.items():
        try:
            chosen = checked_policy(model, policy, "evaluate(*jointmdp.envs.inventory())")
            _check_size(model, 2)
            if model.discount == 1:
                _check_ends(model, chosen, method, 2)
        except ModelError as error:
            raise ModelError(f"{name}: {error}") from None
        branches.append(PolicyBranch(model, chosen))
    return PolicyReturns(model, tuple(named), tuple(branches), method)


def check_ends(model: JointMDP, policy: Floats) -> None:
    """Raise where the discount is 1 and a return may have no end."""
    if model.discount < 1:
        return
    kernel = policy_kernel(model, policy)
    state = paying_state(kernel, idle_states(model, policy, kernel))
    if state is not None:
        raise ModelError(
            f"discount is 1, and from {model.state_label(state)} on rewards may come for ever under this policy; an "
            "endless future needs a discount below 1, or give a horizon"
        )


def _check_ends(model: JointMDP, policy: Floats, method: Solve | Sharded | Iterate, order: int) -> None:
    check_ends(model, policy)
    if order > 2 or isinstance(method, Iterate):
        what = "Iterate" if isinstance(method, Iterate) else "order above 2"
        raise ModelError(f"discount is 1: {what} needs a discount below 1, or a horizon; the default method does not")


def _check_range(model: JointMDP, order: int) -> None:
    bound, largest = model.reward_bound, LARGEST ** (2 / order)
    if bound > largest or 0 < bound < 1 / largest:
        powers = "squares" if order == 2 else f"powers of order {order}"
        raise ModelError(
            f"rewards up to {bound:g} have {powers} beyond the range of floats; rescale them to a size near 1"
        )


def _check_size(model: JointMDP, order: int, *, is_counted: bool = True) -> None:
    _check_range(model, order)
    pairs, held = model.num_states**2, 1 if order == 2 else order + 1
    if model.sharing != "none" and pairs * held > PAIR_LIMIT and is_counted:
        each = "" if order == 2 else f", in each of {held} arrays for moments up to order {order}"
        raise ModelError(
            f"{model.num_states:,} states make {pairs:,} pairs{each}, more than the {PAIR_LIMIT:,} numbers that fit; "
            "evaluate(..., states=[…]) answers for a few states, jointmdp.Sharded(...) uses several devices"
        )


def _iterate(model: JointMDP, policy: Floats, method: Iterate) -> Solution:
    if method.tolerance is not None:
        checks.as_positive("tolerance", method.tolerance)
    max_steps = checks.as_count("max_steps", method.max_steps, least=0)
    tables = second_moments.model_tables(model, policy)
    backup, assess = partial(_backup, tables, sharing=model.sharing), partial(assess_pairs, model, tables)
    run = iterate(backup, assess, _first_collection(model, method), method.tolerance, max_steps, "T₂")
    moments = PairMoments(np.asarray(run.moments.mean), np.asarray(run.moments.second))
    return Solution(model, policy, moments, run.bounds, run.status, "Iterate", run.steps, history=run.history)


def _first_collection(model: JointMDP, method: Iterate) -> Moments:
    S, A = model.num_states, model.num_actions
    if (S * A) ** 2 > MOMENT_LIMIT:
        raise ModelError(
            f"Iterate forms all {(S * A) ** 2:,} pairs of state-action coordinates, "
            f"{(S * A) ** 2 * 8 / 2**30:.1f} GiB a collection; the default method needs only pairs of states"
        )
    if method.start is None:
        return Moments(on_device(np.zeros((S, A))), on_device(np.zeros((S, A, S, A))))
    mean = checks.as_floats("start means", method.start[0], "[S, A]", 2)
    second = checks.as_floats("start second moments", method.start[1], "[S, A, S, A]", 4)
    checks.check_shape("start means", mean, (S, A), "[S, A]")
    checks.check_shape("start second moments", second, (S, A, S, A), "[S, A, S, A]")
    checks.check_finite("start mean", mean, "state", "action")
    checks.check_finite("start second moment", second, "state", "action", "state", "action")
    if np.max(np.abs(mean)) > LARGEST or np.max(np.abs(second)) > LARGEST:
        raise ModelError(f"the starting collection has entries above {LARGEST:g}, whose squares floats cannot hold")
    return Moments(on_device(mean), on_device(second))


# -- from samples --------------------------------------------------------------------------------------------------


class LearnLimits(TypedDict, total=False):
    """When `learn` stops, and where it runs."""

    steps: int | None
    tolerance: float | None
    seconds: float | None
    executor: Executor | str | None


@overload
def learn(
    source: JointMDP,
    policy: Any,
    options: LearnOptions | None = ...,
    *,
    features: None = ...,
    **limits: Unpack[LearnLimits],
) -> Learned: ...


@overload
def learn(
    source: Any, policy: Any, options: LearnOptions | None = ..., *, features: None = ..., **limits: Unpack[LearnLimits]
) -> LearnedStates: ...


@overload
def learn(
    source: Any, policy: Any, options: LearnOptions | None = ..., *, features: Any, **limits: Unpack[LearnLimits]
) -> LearnedFeatures: ...


def learn(
    source: Any,
    policy: Any,
    options: LearnOptions | None = None,
    *,
    features: Any = None,
    steps: int | None = None,
    tolerance: float | None = None,
    seconds: float | None = None,
    executor: Executor | str | None = None,
) -> Learned | LearnedStates | LearnedFeatures:
    """Joint moments of returns learned from samples.

    Without features: the paper's incremental JIPE-2 and higher moments of pairs, one number for each coordinate and
    pair. With features: projected JIPE-2, for state spaces too large to list or continuous.

    Args:
        source: a `JointMDP`, or a simulator whose states are discovered on the way.
        policy: as in `evaluate`; for a simulator as in `simulate_gap`.
        options: order, coordinates, replicas, seed, checkpoint and the rest: see `LearnOptions`.
        features: `jointmdp.features.…`, a function ``f(observation, action) -> [K]``, for a model also an array
            ``[S, A, K]``; or `Projected(features, constraint=…)` with settings of its own.
        steps: steps of each replica; a step of a sweep updates every coordinate once, any other visits a batch of
            pairs. By default 100/(1 − γ).
        tolerance: stop earlier, at the first report whose `error` is below it.
        seconds: stop earlier, after about so many seconds.
        executor: where a simulator is sampled, ``"processes"``, ``"ray"`` and so on; the result is the same to the last
            bit. Draws from tables are part of the compiled recursion and have none, unless features are learned.

    Returns:
        `Learned` for a model, `LearnedStates` for a simulator, `LearnedFeatures` with features. With a checkpoint a run
        that was killed, or that ended before, is continued.
    """
    if features is None:
        return last_answer(answers(source, policy, options, steps=steps, seconds=seconds, executor=executor), tolerance)
    learner = FeatureLearner(as_simulator(source), policy, features, options)
    return last_answer(reports(learner, steps, seconds, executor), tolerance)
