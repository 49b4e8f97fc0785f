"""The front door of everything exact: `evaluate`, with a certificate in every answer.

`Solve` (the default) solves the mean and the one-branch variance directly and iterates the centred recursion on pairs
of *states*: |S|² numbers, contraction γ² or better. `Sharded` spreads them over devices, `Iterate` is the paper's
iteration M ← T₂M on pairs of state-action *coordinates*, for small models, teaching and checking. A method of a higher
floor, such as `Projected`, evaluates itself.
"""

import difflib
import math
import os
from collections.abc import Iterable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Literal, Never, Protocol, overload

import jax
import numpy as np

from jointmdp.exact.law.gap_law import Laws
from jointmdp.exact.law.pair_graph import NOTHING, GapBranches
from jointmdp.exact.moments.asked_pairs import asked_states
from jointmdp.exact.moments.certificates import Status, report_missed
from jointmdp.exact.moments.column_blocks import WORDS, Sharded, solve_lean, solve_sharded
from jointmdp.exact.moments.default_solver import PolicyBranch, policies_gap, shared_pairs, solve, solve_horizon
from jointmdp.exact.moments.iteration import LARGEST, Iterate, solve_iterate
from jointmdp.exact.moments.pair_recursion import (
    FollowedBranch,
    TooManyMovesError,
    first_states,
    followed_gap,
    solve_gaps,
)
from jointmdp.exact.moments.pair_solver import PAIR_LIMIT, Solve
from jointmdp.exact.moments.partial_solve import solve_asked
from jointmdp.exact.moments.single_branch import MeanReturns, mean_returns
from jointmdp.exact.moments.stored_moments import FoundMoments
from jointmdp.exact.solution.gap import Gap
from jointmdp.exact.solution.solution import Solution
from jointmdp.ground import checks
from jointmdp.ground.answers import ResultFace
from jointmdp.ground.arrays import Floats, float64
from jointmdp.ground.errors import ModelError
from jointmdp.ground.files import write_csv
from jointmdp.ground.limits import Limits, kept, room_left
from jointmdp.model.derived_models import with_time
from jointmdp.model.gumbel_max import GumbelModel, warn_of_draws
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.policies import checked_policy, depends_on_time, timed_policy
from jointmdp.model.tables import StateLike, idle_states, paying_state, policy_kernel


@dataclass(frozen=True, eq=False, repr=False)
class PolicyReturns(ResultFace):
    """The returns of policies that are followed from the first step on, with certified errors.

    Branches share scenarios as the model's ``sharing`` says and draw their actions independently of each other, also
    where two policies are the same; two branches never become one.
    """

    model: JointMDP
    names: tuple[str, ...]
    branches: tuple[PolicyBranch | FollowedBranch, ...]
    method: Solve
    minimise: bool = False
    """Whether returns are costs, and gaps say how much less a policy costs."""
    horizon: int | None = None
    """Steps that count; None where all do."""
    _listed: tuple[JointMDP, int | None] | None = None  # whose pairs are listed move by move, and over how many steps
    _shared: dict[tuple[int, int], tuple[Floats, Floats]] = field(default_factory=dict)  # covariance, error; [S] each
    _laws: dict[tuple[int, int], Laws] = field(default_factory=dict)

    @property
    def mean(self) -> Floats:
        """Mean return of each policy from each state, ``[K, S]``."""
        return np.stack([branch.mean[: self.model.num_states] for branch in self.branches])

    @property
    def variance(self) -> Floats:
        """Variance of the return of each policy from each state, ``[K, S]``."""
        return np.stack([branch.variance[: self.model.num_states] for branch in self.branches])

    def gap(self, policy: str | int, other: str | int, state: StateLike = 0) -> Gap:
        """How much more `policy` gives than `other`, or how much less it costs; policies by name.

        Both start in `state`, by default the first one of the model, where what `from_start` finds begins.
        """
        s = self.model.state_index(state)
        i, j = (checks.as_called("policy", each, self.names, self.names) for each in (policy, other))
        labels = (self.model.state_label(s), self.names[i], self.names[j])
        if i == j:
            return Gap(*labels, 0.0, 0.0, 0.0, 0.0, 0.0, minimise=self.minimise)
        i, j = checks.subtracted(i, j, self.minimise)
        one, two = self.branches[i], self.branches[j]
        if (i, j) not in self._laws:
            model, steps = (self.model, None) if self._listed is None else self._listed
            self._laws[i, j] = Laws(GapBranches(model, one.policy, two.policy, can_merge=False), steps)
        listed = self._listed
        found = self._of_tables(i, j, s) if listed is None else followed_gap(*listed, one.policy, two.policy, s)
        mean, mean_error, variance, variance_error = found
        return Gap(
            *labels,
            mean=mean + 0.0,
            variance=variance,
            independent_variance=float(one.variance[s] + two.variance[s]),
            mean_error=mean_error,
            variance_error=variance_error,
            place=(self._laws[i, j], (s, NOTHING, NOTHING)),
            minimise=self.minimise,
        )

    def _of_tables(self, i: int, j: int, s: int) -> tuple[float, float, float, float]:
        """Mean and variance of a gap, each before a bound on its error, from the moments of all pairs of states."""
        one, two = self.branches[i], self.branches[j]
        assert isinstance(one, PolicyBranch)
        assert isinstance(two, PolicyBranch)
        pair = min(i, j), max(i, j)
        if pair not in self._shared:
            found = shared_pairs(*((one, two) if i < j else (two, one)), self.method)
            if not found.is_reached:
                report_missed(Status.STEP_LIMIT, f"{self.names[i]} and {self.names[j]}", self.method.throw)
            mine, theirs = found.shares
            self._shared[pair] = found.covariance.diagonal() + 0.0 * mine, mine + theirs
        known = policies_gap(one, two, s, s, *(each[s] for each in self._shared[pair]))
        return tuple(map(float, known))  # type: ignore[return-value]

    def table(self, states: Iterable[StateLike] | None = None) -> list[dict[str, Any]]:
        """One row for each state and every two policies: a tidy table of gaps."""
        rows = []
        for state in range(self.model.num_states) if states is None else states:
            for i, j in combinations(range(len(self.names)), 2):
                gap = self.gap(self.names[i], self.names[j], state)
                row = {"state": gap.state, "policy": gap.action, "other": gap.other}
                rows.append(row | {name: getattr(gap, name) for name in GAP_COLUMNS})
        return rows

    def to_csv(self, path: str | os.PathLike[str], states: Iterable[StateLike] | None = None) -> None:
        """Write `table` as a CSV file, whole or not at all."""
        write_csv(path, self.table(states), ("state", "policy", "other"))

    def __repr__(self) -> str:
        error = max(float(branch.mean_errors.max()) for branch in self.branches)
        return f"PolicyReturns({', '.join(self.names)} in {self.model!r}; mean ± {error:.1e})"


MAX_ORDER = 30  # beyond it binomial coefficients amplify rounding until no digit is left
USUAL_ARRAYS, LEAN_ARRAYS = 12.0, 3.3  # alive at the peak of the default method, and of `solve_lean`
MORE_IN_TIME = 2.0  # further ones where branches share their noise in time: what a step adds, and a sum over scenarios
SINGLE = 1e15  # returns whose squares single precision can hold with room to spare
SHARE = "XLA_PYTHON_CLIENT_MEM_FRACTION"
GAP_COLUMNS = ("mean", "std", "independent_std", "inferiority_bound", "mean_error", "variance_error", "direction")
EXAMPLE = "evaluate(*jointmdp.envs.inventory())"


class Method(Protocol):
    """A way to evaluate that comes from a higher floor, with settings of its own."""

    @property
    def throw(self) -> bool:
        """Whether to raise where the tolerance is missed."""

    def solution(self, model: JointMDP, policy: Floats) -> Solution:
        """Means and second moments of an endless future."""


@overload
def evaluate(
    model: JointMDP,
    policy: Mapping[Any, Any],
    method: Solve | Sharded | Iterate | Method | None = ...,
    *,
    order: int = ...,
    horizon: int | None = ...,
    states: Iterable[StateLike] | None = ...,
    minimise: bool = ...,
    limits: Limits | None = ...,
) -> Any: ...


@overload
def evaluate(
    model: JointMDP,
    policy: Any,
    method: Solve | None = ...,
    *,
    order: Literal[1],
    minimise: bool = ...,
    limits: Limits | None = ...,
) -> MeanReturns: ...


@overload
def evaluate(
    model: JointMDP,
    policy: Any,
    method: Solve | Sharded | Iterate | Method | None = ...,
    *,
    order: int = ...,
    horizon: int | None = ...,
    states: Iterable[StateLike] | None = ...,
    minimise: bool = ...,
    limits: Limits | None = ...,
) -> Solution: ...


def evaluate(
    model: JointMDP,
    policy: Any,
    method: Solve | Sharded | Iterate | Method | None = None,
    *,
    order: int = 2,
    horizon: int | None = None,
    states: Iterable[StateLike] | None = None,
    minimise: bool = False,
    limits: Limits | None = None,
    **unknown: Never,
) -> Solution | PolicyReturns | MeanReturns:
    """The joint moments of the returns of all actions under `policy`, with their certificate and status.

    Args:
        model: the joint MDP; its ``sharing`` says which branches share their noise.
        policy: probabilities ``[S, A]``, one action per state, a dictionary, a function of the state or "uniform"; see
            docs/models.md. Several whole policies, ``{"name": policy, …}``, are followed from the first step on: the
            answer has the return of each and the gap of every two; over a horizon they, too, may depend on time.
        method: `Solve()` by default, `Sharded()` on several devices, `Iterate()`, or `Projected(features)`.
        order: highest moment; 2, or more for the skewness, kurtosis and further moments of gaps and pairs; 1 for the
            means alone, which take far less.
        horizon: evaluate the first `horizon` steps only, exactly. Then the policy may depend on time, as an array
            ``[T, S, A]`` or a function of (time, state); at step 0 it is the action asked about that is taken. Without
            one the discount may be 1 where every return surely comes to an end under the policy.
        states: only these are asked about, of an endless future and to order 2. Then only what they lead to is looked
            at, by every action first and by the policy after, so the time does not depend on the size of the model; see
            docs/large-models.md.
        minimise: rewards are costs, and the lowest return is the best. Moments are those of the costs; a gap is how
            much less an action costs, so that positive still means better; see docs/signs.md.
        limits: seconds and bytes that it may take; none by default. Where time ends first, the answer is what is known
            by then, with its certificate and the status `TIME_LIMIT`; an error where nothing is known yet, or where the
            memory does not hold it.
    """
    checks.refuse_keywords(unknown, evaluate)
    _check_question(model, method)
    with kept(limits):
        if limits is not None and (isinstance(method, Sharded | Iterate) or _named_policies(model, policy)):
            raise ModelError(
                "limits=Limits(...) are kept by Solve() for one policy; Sharded(store=…) goes on from a checkpoint, "
                "Iterate(max_steps=…) counts steps, and whole policies are solved when a gap is asked for"
            )
        return _evaluated(model, policy, method, order, horizon, states, minimise)


def _evaluated(  # many parameters: those of `evaluate`
    model: JointMDP, policy: Any, method: Any, order: int, horizon: int | None, states: Any, minimise: bool
) -> Solution | PolicyReturns | MeanReturns:
    if named := _named_policies(model, policy):
        return _evaluate_policies(model, named, method, order, horizon, states, bool(minimise))
    horizon = None if horizon is None else checks.as_count("horizon", horizon)
    chosen = _chosen(model, policy, horizon)
    order = checks.as_count("order", order, most=MAX_ORDER)
    if not isinstance(method, Solve | Sharded | Iterate | None) and not hasattr(method, "solution"):
        raise ModelError(
            "method must be jointmdp.Solve(...), jointmdp.Sharded(...), jointmdp.Iterate(...) or "
            f"jointmdp.Projected(...), not {method!r}"
        )
    _check_combination(method, order, horizon, states)
    if order == 1:
        return mean_returns(model.alone if isinstance(model, GumbelModel) else model, chosen)
    if isinstance(model, GumbelModel) and not model.has_exact_tables:
        if isinstance(method, Solve | None):
            with suppress(TooManyMovesError) if model.sharing == "state" else nullcontext():
                found = _of_laws(model, chosen, method or Solve(), order, horizon, states)
                return replace(found, minimise=True) if minimise else found
        warn_of_draws(model)
    is_foreseen = states is not None or (order == 2 and horizon is None and isinstance(method, Solve | None))
    _check_size(model, order, is_counted=not (is_foreseen or isinstance(method, Sharded)))
    if horizon is not None:
        with float64():
            found = _solution(model, chosen, solve_horizon(model, chosen, horizon, order), "horizon", horizon)
        return replace(found, minimise=True) if minimise else found
    method = Solve() if method is None else method
    if states is not None:
        assert isinstance(method, Solve)
        solution = _solution(model, chosen, solve_asked(model, chosen, asked_states(model, states), method), "Solve")
    elif not isinstance(method, Solve | Sharded | Iterate):
        solution = method.solution(model, chosen)
    else:
        if model.discount == 1:
            _check_ends(model, chosen, method, order)
        with float64():
            solution = _solved(model, chosen, method, order)
    report_missed(solution.status, solution.summary, method.throw)
    return replace(solution, minimise=True) if minimise else solution


def _of_laws(  # many parameters: those of `evaluate`
    model: GumbelModel, policy: Floats, method: Solve, order: int, horizon: int | None, states: Any
) -> Solution:
    """Under Gumbel noise: from the laws of every two actions, of which no table has more than draws."""
    asked = np.arange(model.num_states) if states is None else asked_states(model, states)
    if model.discount == 1 and horizon is None:
        check_ends(model.alone, policy)
    if policy.ndim == 3:
        whole, rows = with_time(model, policy)
        found = first_states(solve_gaps(whole, rows, asked, order, None, method.relative_tolerance), model.num_states)
    else:
        found = solve_gaps(model, policy, asked, order, horizon, method.relative_tolerance)
    name = "laws of pairs" if horizon is None else "laws of pairs over a horizon"
    solution = _solution(model, policy, found, name, horizon)
    report_missed(solution.status, solution.summary, method.throw)
    return solution


def _chosen(model: JointMDP, policy: Any, horizon: int | None) -> Floats:
    """The policy ``[S, A]``, or ``[T, S, A]`` where it depends on time."""
    if horizon is not None and depends_on_time(policy) and isinstance(model, JointMDP):
        return timed_policy(model, policy, horizon)
    return checked_policy(model, policy, EXAMPLE)


def _check_question(model: Any, method: Any) -> None:
    """Point to the front door that was meant, where it is another one."""
    if callable(getattr(method, "learner", None)) and not hasattr(method, "solution"):
        name = type(method).__name__
        raise ModelError(f"{name}(…) learns from samples: learn(model, policy, {name}(…)); evaluate solves equations")
    if not isinstance(model, JointMDP) and (callable(getattr(model, "step", None)) or callable(model)):
        called = getattr(model, "name", None) or getattr(model, "__name__", None) or f"this {type(model).__name__}"
        raise ModelError(
            f"evaluate computes from the tables of a JointMDP, and {called} is a simulator: simulate(…) "
            "samples it, compare(…) says which action or decision is best, learn(…) learns its moments, and "
            "from_gymnasium(…) makes tables of a small environment"
        )


def _solved(model: JointMDP, policy: Floats, method: Solve | Sharded | Iterate, order: int) -> Solution:
    if isinstance(method, Sharded):
        return _solution(model, policy, solve_sharded(model, policy, method), "Sharded")
    if isinstance(method, Iterate):
        return _solution(model, policy, solve_iterate(model, policy, method), "Iterate")
    is_lean = order == 2 and _needs_lean(model, method)
    found = solve_lean(model, policy, method) if is_lean else solve(model, policy, method, order)
    return _solution(model, policy, found, "Solve")


def _solution(
    model: JointMDP, policy: Floats, found: FoundMoments[Any], name: str, horizon: int | None = None
) -> Solution:
    moments, certificate, status, steps, history = found
    return Solution(model, policy, moments, certificate, status, name, steps, horizon, history)


def _check_combination(
    method: Solve | Sharded | Iterate | Method | None, order: int, horizon: int | None, states: Any
) -> None:
    """Raise where a method does not know what is asked of it."""
    name = type(method).__name__
    if order == 1 and (horizon is not None or states is not None or not isinstance(method, Solve | None)):
        raise ModelError(
            "order=1 gives the means of an endless future by Solve(); leave horizon, states and others out"
        )
    if order > 2 and isinstance(method, Iterate):
        raise ModelError(
            f"Iterate evaluates moments of order 2, not {order}; joint_moments(model, policy, {order}) iterates the "
            "operator of higher order, and the default method gives the moments of pairs"
        )
    if states is not None and (order > 2 or horizon is not None or not isinstance(method, Solve | None)):
        raise ModelError("states=[…] gives means and second moments by Solve(); leave order, horizon and others out")
    if order > 2 and isinstance(method, Sharded):
        raise ModelError(f"Sharded evaluates moments of order 2, not {order}; the default method knows higher ones")
    if order > 2 and isinstance(method, Solve) and method.precision != "double":
        raise ModelError("single precision has no digits for moments above order 2; leave precision out")
    if not isinstance(method, Solve | Sharded | Iterate | None) and (order > 2 or horizon is not None):
        raise ModelError(f"{name} fits means and second moments of an endless future; leave order and horizon out")
    if horizon is not None and method is not None:
        raise ModelError("a horizon is evaluated by backward sweeps; leave method=None")


def _named_policies(model: JointMDP, policy: Any) -> dict[str, Any]:
    """Whole policies by their names; nothing where `policy` is one policy, such as a dictionary of states."""
    if not isinstance(policy, Mapping):
        return {}
    if not policy:
        raise ModelError("there is no policy to evaluate; give at least one")
    of_states = [key for key in policy if _is_state(model, key)]
    if len(policy) == 1 and not of_states:
        try:
            model.state_index(next(iter(policy)))
        except ModelError as error:
            raise ModelError(f"{error}; whole policies by their names, {{name: policy, …}}, are two or more") from None
    if of_states and len(of_states) < len(policy):
        other = next(key for key in policy if not _is_state(model, key))
        close = _like_a_state(model, other)
        hint = f" (did you mean {close!r}?)" if close else ""
        raise ModelError(
            f"{of_states[0]!r} is a state of the model and {other!r} is not{hint}: "
            "give {state: action, …} for one policy, or {name: policy, …} with names that are no states for several"
        )
    if not of_states and len(policy) == model.num_states and all(_like_a_state(model, key) for key in policy):
        key = next(iter(policy))
        raise ModelError(
            f"{key!r} is no state of the model; did you mean {_like_a_state(model, key)!r}? Whole policies by their "
            "names, {name: policy, …}, need names that do not look like states"
        )
    return {} if of_states else {str(name): each for name, each in policy.items()}


def _like_a_state(model: JointMDP, key: Any) -> str:
    """The state that a key may be a slip of the pen for; empty where there is none."""
    names = [model.state_label(s) for s in range(model.num_states)]
    return next(iter(difflib.get_close_matches(str(key), names, n=1, cutoff=0.8)), "")


def _is_state(model: JointMDP, key: Any) -> bool:
    try:
        model.state_index(key)
    except ModelError:
        return False
    return True


def _evaluate_policies(  # many parameters: those of `evaluate`
    model: JointMDP,
    policies: Mapping[str, Any],
    method: Any,
    order: int,
    horizon: int | None,
    states: Any,
    minimise: bool,
) -> PolicyReturns:
    method = Solve() if method is None else method
    if not isinstance(method, Solve) or order > 2 or states is not None:
        raise ModelError(
            "whole policies are evaluated by jointmdp.Solve(...), with means and second moments of all states; leave "
            "order and states out"
        )
    horizon = None if horizon is None else checks.as_count("horizon", horizon)
    is_timed = horizon is not None and any(map(depends_on_time, policies.values()))
    is_gumbel = isinstance(model, GumbelModel) and not model.has_exact_tables
    whole, branches = model, list[PolicyBranch | FollowedBranch]()
    for name, policy in policies.items():
        try:
            chosen = _chosen(model, policy, horizon)
            _check_size(model, 2)
            if model.discount == 1 and horizon is None:
                _check_ends(model, chosen, method, 2)
        except ModelError as error:
            raise ModelError(f"{name}: {error}") from None
        if is_timed:
            assert horizon is not None
            whole, chosen = with_time(model, timed_policy(model, policy, horizon))
        if horizon is None:
            branches.append(PolicyBranch(model.alone if isinstance(model, GumbelModel) else model, chosen))
        else:
            branches.append(FollowedBranch.of(whole, chosen, None if is_timed else horizon))
    listed = (whole, None if is_timed else horizon) if is_gumbel or horizon is not None else None
    return PolicyReturns(model, tuple(policies), tuple(branches), method, minimise, horizon, _listed=listed)


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


def _check_size(model: JointMDP, order: int, *, is_counted: bool = True) -> None:
    bound, largest = model.reward_bound, LARGEST ** (2 / order)
    if bound > largest or 0 < bound < 1 / largest:
        powers = "squares" if order == 2 else f"powers of order {order}"
        raise ModelError(
            f"rewards up to {bound:g} have {powers} beyond the range of floats; rescale them to a size near 1"
        )
    pairs, held = model.num_states**2, 1 if order == 2 else order + 1
    if model.sharing != "none" and pairs * held > PAIR_LIMIT and is_counted:
        each = "" if order == 2 else f", in each of {held} arrays for moments up to order {order}"
        raise ModelError(
            f"{model.num_states:,} states make {pairs:,} pairs{each}, more than the {PAIR_LIMIT:,} numbers that fit; "
            "evaluate(..., states=[…]) answers for a few states, jointmdp.Sharded(...) uses several devices"
        )


def _needs_lean(model: JointMDP, method: Solve) -> bool:
    """Whether the default method has to save memory; refuses what does not fit at all, and says what would."""
    precision = method.precision
    if precision not in WORDS:
        raise ModelError(f'precision is {precision!r}; it must be "double" or "single"')
    if model.sharing == "none":
        return False
    largest = model.reward_bound / (1 - model.discount if model.discount < 1 else 1.0)
    if precision == "single" and (largest > SINGLE or 0 < model.reward_bound < 1 / SINGLE):
        raise ModelError(
            f"returns up to {largest:g} have squares beyond the range of single precision; rescale rewards to a size "
            "near 1, or leave precision out"
        )
    room, word = room_left(_device_memory()), WORDS[precision].itemsize
    lean = LEAN_ARRAYS + (MORE_IN_TIME if model.sharing == "time" else 0.0)
    S = model.num_states
    if lean * word * S**2 > room:
        fits = {name: math.isqrt(int(room / (lean * each.itemsize))) for name, each in WORDS.items()}
        more = (
            "" if jax.default_backend() == "cpu" else f". Of a GPU JAX takes three quarters unless {SHARE}=0.95 is set"
        )
        raise ModelError(
            f"{S:,} states make {S**2:,} pairs, and {lean:g} arrays of them in {precision} precision take "
            f"{lean * word * S**2 / 2**30:,.0f} GiB, where {room / 2**30:,.0f} are free; up to {fits['double']:,} "
            f'states fit, {fits["single"]:,} with Solve(precision="single"). evaluate(..., states=[…]) answers for '
            f"a few states of any model, jointmdp.Sharded(...) uses several devices{more}"
        )
    return precision == "single" or USUAL_ARRAYS * word * S**2 > room


def _device_memory() -> float:
    """Bytes that arrays can take on the default device."""
    limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit")
    if limit:
        return float(limit)
    try:
        return 0.8 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # a system that does not say
        return math.inf
