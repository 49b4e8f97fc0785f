"""The front door: which action, policy or decision is best under common random numbers.

``print(compare(simulator, policy, state))`` samples replications in which all alternatives share their noise, until
one is shown to be the best, and says how sure that is and what the sharing has saved.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from jointmdp import checks
from jointmdp.checks import Sharing
from jointmdp.comparing.comparison import Comparison
from jointmdp.comparing.deciding import Rules, decide
from jointmdp.errors import ModelError
from jointmdp.executors import Executor
from jointmdp.intervals import Interval
from jointmdp.montecarlo.alternatives import SimulationSettings, decisions_of, first_actions, whole_policies


def compare(  # many parameters: a front door, one keyword for each setting
    simulator: Any,
    policy: Any = None,
    state: Any = None,
    actions: Sequence[Any] | None = None,
    *,
    policies: Mapping[str, Any] | Sequence[Any] | None = None,
    decisions: Mapping[str, Any] | Sequence[Any] | None = None,
    half_width: float | None = None,
    indifference: float | None = None,
    confidence: float = 0.95,
    sharing: Sharing | None = None,
    horizon: int | None = None,
    discount: float | None = None,
    pilot: int = 200,
    max_replications: int = 100_000,
    seconds: float | None = None,
    bounds: tuple[float, float] | None = None,
    other_sharing: bool = False,
    minimise: bool = False,
    seed: int = 0,
    executor: Executor | str | None = None,
) -> Comparison:
    """Which alternative gives most under common random numbers, sampled until that is shown.

    That the noise is common is checked first: replications are run again, with the alternatives in the opposite order.
    What does not give the same again is refused; see `jointmdp.audit` for a thorough look.

    Args:
        simulator: a `JointMDP`, a simulator, or a function ``run(decision, seed) -> outcome``; where its second
            parameter is called `noise` it is given a `Noise` with named streams, ``noise["demand"]``, instead.
        policy, state, actions: compares first `actions` (by default all) in `state`, after which `policy` is followed.
            Without a state, each replication begins in a starting state of its own, the same for all alternatives.
        policies: compares whole policies instead, ``{"name": policy, …}``.
        decisions: compares decisions of a function instead.
        half_width: go on until the gap of every pair is known to ± this. By default sampling stops as soon as one
            alternative is shown best.
        indifference: a lead of the true best up to this does not matter; by default 5 % of the standard deviation of
            the returns (the median one). Given together with `half_width`, both must be reached.
        confidence: with which all intervals of gaps hold together, and all others together.
        sharing: which branches share their noise; by default as the simulator says itself.
        horizon, discount: of the returns; by default as the simulator says itself.
        pilot: replications before the first look.
        max_replications: stop here at the latest; the status then says that nothing was shown.
        seconds: stop sampling after about this long; the status then says that the time was up. The replications under
            way are finished, and the compiled engine makes 2,048 at a time.
        bounds: between which every return lies. The intervals then hold for every number of replications, and are
            wider; otherwise they rest on the central limit theorem.
        other_sharing: also sample the other kind of sharing, up to five pilots, for the standard deviation of its gaps.
        minimise: returns are costs, and the lowest is the best. All numbers keep the sign that they were given with.
        seed: replication i depends on the seed and i alone.
        executor: where replications are made: here, ``"processes:4"``, ``"ray:ADDRESS"``; the result is the same.
    """
    if decisions is not None:
        if any(given is not None for given in (policy, state, actions, policies, discount, horizon)):
            raise ModelError(
                "decisions are tried by a function run(decision, seed): leave policy, state and so on to it"
            )
        found = decisions_of(simulator, decisions, seed, sharing)
    else:
        settings = SimulationSettings(seed, sharing, discount, horizon, some_whole=True)
        if policies is None:
            found = first_actions(simulator, policy, state, actions, settings)
        elif policy is None and actions is None:
            found = whole_policies(simulator, policies, state, settings)
        else:
            raise ModelError("give either policies to compare, or one policy and the first actions to compare")
    most = checks.as_count("max_replications", max_replications, least=2)
    rules = Rules(
        None if half_width is None else checks.as_positive("half_width", half_width),
        None if indifference is None else checks.as_amount("indifference", indifference),
        checks.as_fraction("confidence", confidence),
        min(checks.as_count("pilot", pilot, least=2), most),
        most,
        None if bounds is None else _as_bounds(bounds),
        math.inf if seconds is None else checks.as_positive("seconds", seconds),
        bool(other_sharing),
        bool(minimise),
    )
    return decide(found, rules, seed=int(seed), executor=executor)


def _as_bounds(bounds: tuple[float, float]) -> Interval:
    try:
        lower, upper = (checks.as_number("bounds", end) for end in bounds)
    except (TypeError, ValueError):
        raise ModelError(f"bounds must be two numbers, the least and the largest return, not {bounds!r}") from None
    if not -math.inf < lower <= upper < math.inf:
        raise ModelError(f"bounds are ({lower:g}, {upper:g}); give the least and the largest return, both finite")
    return Interval(lower, upper)
