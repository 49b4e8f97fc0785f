"""Front doors of simulation: the same calls for a table, any simulator, and a model that is one function.

Each kind has its engine: tables and JAX simulators run in `branches`, thousands of replications at once; all others run
in `rollouts`, one query at a time; a function ``run(decision, seed)`` is simply called. A `Sampler` hides which.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from jointmdp import checks
from jointmdp.checks import Sharing
from jointmdp.envs.registry import as_simulator
from jointmdp.errors import ModelError
from jointmdp.executors import Executor, opened, sample
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.montecarlo import samples
from jointmdp.montecarlo.batches import batch_rollout
from jointmdp.montecarlo.query_engine import Replications, Rollout, Sampler
from jointmdp.montecarlo.samples import GapSample, ReturnSample
from jointmdp.simulators.agents import as_agent
from jointmdp.simulators.jax_policies import UntraceableError
from jointmdp.simulators.jax_simulator import JaxSimulator
from jointmdp.simulators.noise import Noise
from jointmdp.simulators.simulator import Action, Simulator, Snapshot
from jointmdp.simulators.table_simulator import TableSimulator

# Weights γᵀ below which an endless future is cut, the second where thousands are simulated at once; what is left out is
# part of the intervals.
TAIL, BATCH_TAIL = 1e-4, 1e-6
SCATTER = 2654435761  # odd, so that multiples of it modulo 2³² do not repeat; neighbours end up far apart
MAX_SEED = 2**63 - 1


class Alternatives(NamedTuple):
    """What is compared, ready to be sampled."""

    sampler: Sampler
    labels: tuple[str, ...]
    title: str
    """What is compared, in words."""
    sharing: Sharing
    can_share: tuple[Sharing, ...]
    """Which kinds of sharing can be simulated."""
    cut: float
    """Discount weight of the first step left out; 0 where returns are complete."""
    return_bound: float | None
    """Largest absolute return, where it is known."""
    remark: str = ""
    """What a user may want to know about how it is sampled."""

    def truncation_bound(self, found: Replications) -> float:
        """Every return is within this of its complete value; without known rewards, as far as the sample tells."""
        # What follows the cut is a return like the others, with the weight of the cut.
        largest = float(np.max(np.abs(found.returns))) if self.return_bound is None else self.return_bound
        return self.cut * largest


def alternatives(
    source: Any,
    policy: Any = None,
    state: Snapshot | None = None,
    actions: Sequence[Action] | None = None,
    *,
    policies: Mapping[str, Any] | Sequence[Any] | None = None,
    decisions: Mapping[str, Any] | Sequence[Any] | None = None,
    seed: int = 0,
    sharing: Sharing | None = None,
    discount: float | None = None,
    horizon: int | None = None,
    until_merged: bool = False,
) -> Alternatives:
    """First actions, whole policies or decisions of a model, a simulator or a function, ready to be sampled.

    Without a state each replication begins in a starting state of its own, which all alternatives share.
    """
    seed = checks.as_count("seed", seed, 0, MAX_SEED)
    if decisions is not None:
        if any(given is not None for given in (policy, state, actions, policies, discount, horizon)):
            raise ModelError(
                "decisions are tried by a function run(decision, seed): leave policy, state and so on to it"
            )
        return _decisions(source, decisions, seed, sharing)
    if is_run_function(source):
        raise ModelError("a function run(decision, seed) needs the decisions to try: decisions=[…]")
    simulator = as_simulator(source)
    gamma = simulator.discount if discount is None else checks.as_discount(discount)
    is_batch = isinstance(simulator, TableSimulator | JaxSimulator)
    limit, cut = _horizon(gamma, horizon, BATCH_TAIL if is_batch else TAIL)
    if state is not None:
        state = simulator.snapshot(state)
    first: tuple[Action, ...] | None = None
    named: dict[str, Any] = {}
    if policies is not None:
        if policy is not None or actions is not None:
            raise ModelError("give either policies to compare, or one policy and the first actions to compare")
        named = _named("policies", policies)
        agents, labels = tuple(as_agent(each, simulator) for each in named.values()), tuple(named)
        title = f"policies in {simulator.name}"
    else:
        if policy is None:
            raise ModelError("which policy is followed after the first action? give it, or policies={…} to compare")
        first = _first_actions(simulator, state, actions)
        agents, labels = (as_agent(policy, simulator),) * len(first), tuple(map(simulator.action_label, first))
        title = f"first actions in {simulator.name}"
    chosen = simulator.sharing if sharing is None else checks.as_sharing(sharing)
    bounds = simulator.reward_bounds
    bound = None if bounds is None or gamma >= 1 else max(map(abs, bounds)) / (1 - gamma)
    forms = tuple(named.values()) if policies is not None else (policy,) * len(labels)
    sampler: Sampler | None = None
    remark = ""
    try:
        how: dict[str, Any] = {"seed": seed, "discount": gamma, "horizon": limit, "until_merged": until_merged}
        sampler = batch_rollout(simulator, forms, first, state, **how)
    except UntraceableError as error:
        remark = f"One replication at a time: {error}."
    if sampler is None:
        sampler = Rollout(simulator, agents, first, state, seed, gamma, limit, until_merged)
    return Alternatives(sampler, labels, title, chosen, ("state", "time", "none"), cut, bound, remark)


def simulate_gap(
    source: Any,
    policy: Any,
    state: Any,
    action: Action,
    other: Action,
    *,
    num_samples: int = 10_000,
    seed: int = 0,
    horizon: int | None = None,
    executor: Executor | str | None = None,
) -> GapSample:
    """Independent samples of the gap between two actions of a model or simulator, under its `sharing`.

    A `JointMDP` takes a state by name or index and a policy as an array; a simulator takes a snapshot (None: each pair
    begins in a starting state of its own) and a policy in any form of `as_agent`. A pair stops when it has merged or
    is over. Simulators may run on an `executor`, ``"processes:4"`` or ``"ray:ADDRESS"``, with the same result; tables
    run in one compiled loop, here.
    """
    if isinstance(source, JointMDP):
        given: dict[str, Any] = {"num_samples": num_samples, "seed": seed, "horizon": horizon}
        return samples.simulate_gap(source, policy, state, action, other, **given)
    return _sampled(source, policy, state, (action, other), num_samples, seed, horizon, True, executor).gap(0, 1)


def simulate_gaps(
    source: Any,
    policy: Any,
    state: Any,
    actions: Sequence[Action] | None = None,
    *,
    num_samples: int = 10_000,
    seed: int = 0,
    horizon: int | None = None,
    executor: Executor | str | None = None,
) -> dict[tuple[int, int], GapSample]:
    """Samples of the gaps of all pairs of actions, from one joint simulation.

    Keys are action indices for a `JointMDP`, places in `actions` for a simulator.
    """
    if isinstance(source, JointMDP):
        given: dict[str, Any] = {"num_samples": num_samples, "seed": seed, "horizon": horizon}
        return samples.simulate_gaps(source, policy, state, actions, **given)
    run = _sampled(source, policy, state, actions, num_samples, seed, horizon, True, executor)
    return {(i, j): run.gap(i, j) for i, j in itertools.combinations(range(len(run.actions)), 2)}


def simulate_returns(
    source: Any,
    policy: Any,
    state: Any,
    actions: Sequence[Action] | None = None,
    *,
    num_samples: int = 10_000,
    seed: int = 0,
    horizon: int | None = None,
    executor: Executor | str | None = None,
) -> ReturnSample:
    """Joint samples of the returns of several actions (by default all available ones): every pair at once."""
    if isinstance(source, JointMDP):
        given: dict[str, Any] = {"num_samples": num_samples, "seed": seed, "horizon": horizon}
        return samples.simulate_returns(source, policy, state, actions, **given)
    return _sampled(source, policy, state, actions, num_samples, seed, horizon, False, executor)


def _sampled(
    source: Any,
    policy: Any,
    state: Any,
    actions: Sequence[Action] | None,
    num_samples: int,
    seed: int,
    horizon: int | None,
    until_merged: bool,
    executor: Executor | str | None,
) -> ReturnSample:
    count = checks.as_count("num_samples", num_samples, least=2)
    found = alternatives(source, policy, state, actions, seed=seed, horizon=horizon, until_merged=until_merged)
    with opened(executor) as workers:
        run = sample(found.sampler, 0, count, found.sharing, workers, title="simulating pairs")
    bound = found.truncation_bound(run)
    return ReturnSample(found.labels, run.returns, bound, int(run.steps.max()), int(seed), run.leads)


def is_run_function(source: Any) -> bool:
    """Whether `source` is a model that is one function ``run(decision, seed) -> outcome``."""
    return callable(source) and not isinstance(source, type) and not hasattr(source, "step")


def _decisions(
    run: Any, decisions: Mapping[str, Any] | Sequence[Any], seed: int, sharing: Sharing | None
) -> Alternatives:
    if not is_run_function(run):
        raise ModelError(f"decisions are tried by a function run(decision, seed) -> outcome, not by {run!r}")
    chosen = "time" if sharing is None else checks.as_sharing(sharing)
    if chosen == "state":
        raise ModelError('a function run(decision, seed) shows no states: its luck is shared in "time", or "none"')
    named = _named("decisions", decisions)
    title = f"decisions in {getattr(run, '__name__', 'run')}"
    return Alternatives(
        _Runs(run, tuple(named.values()), seed), tuple(named), title, chosen, ("time", "none"), 0.0, None
    )


@dataclass(frozen=True)
class _Runs:
    """The sampler of a function ``run(decision, seed)``: one seed for all decisions, or one for each."""

    run: Callable[[Any, int], Any]
    decisions: tuple[Any, ...]
    seed: int

    def __call__(self, first: int, count: int, sharing: Sharing) -> Replications:
        m = len(self.decisions)
        base = Noise("run", self.seed).seed
        returns = np.empty((count, m))
        for row, i in enumerate(range(first, first + count)):
            for j, decision in enumerate(self.decisions):
                place = i if sharing == "time" else i * m + j
                found = self.run(decision, (base + place * SCATTER) % 2**32)
                returns[row, j] = _outcome(found, decision)
        none = np.zeros(count, dtype=np.int64)
        return Replications(returns, returns - returns[:, :1], none, none)


def _outcome(found: Any, decision: Any) -> float:
    try:
        value = float(found)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise ModelError(f"run({decision!r}, seed) returned {found!r}; it must return one finite number")
    return value


def _horizon(discount: float, horizon: int | None, tail: float) -> tuple[int | None, float]:
    """Where to stop, and the discount weight of the first step left out."""
    if horizon is not None:
        return checks.as_count("horizon", horizon), 0.0
    if discount >= 1:
        return None, 0.0
    limit = 1 if discount == 0 else math.ceil(math.log(tail) / math.log(discount))
    return limit, discount**limit


def _first_actions(
    simulator: Simulator, state: Snapshot | None, actions: Sequence[Action] | None
) -> tuple[Action, ...]:
    if actions is None:
        at = simulator.reset() if state is None else state
        actions = simulator.available(at)
    if isinstance(actions, str) or not isinstance(actions, Sequence | np.ndarray) or len(actions) < 1:
        raise ModelError(f"actions must be a sequence of at least one action, not {actions!r}")
    return tuple(simulator.action_index(action, state) for action in actions)


def _named(what: str, given: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    if isinstance(given, Mapping):
        named = {str(name): value for name, value in given.items()}
    elif isinstance(given, Sequence | np.ndarray) and not isinstance(given, str):
        named = {_label(value, i): value for i, value in enumerate(given)}
    else:
        raise ModelError(f"{what} must be a sequence, or a dictionary with their names, not {given!r}")
    if len(given) < 2:
        raise ModelError(f"comparing takes at least two {what}, not {len(given)}")
    if len(named) < len(given):
        raise ModelError(f"two {what} have the same name; give a dictionary with names of their own, {{name: value}}")
    return named


def _label(value: Any, place: int) -> str:
    if isinstance(value, int | float | str | np.generic | tuple):
        return str(value)
    return str(getattr(value, "__name__", f"number {place + 1}"))
