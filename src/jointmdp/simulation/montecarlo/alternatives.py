"""What is simulated side by side: first actions, whole policies, or decisions, each ready to be sampled.

Tables and JAX simulators run in the compiled engine, thousands of replications at once; all others run in the query
engine, one query at a time; a function ``run(decision, seed)`` is simply called. A `Sampler` hides which.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from jointmdp.ground import checks
from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import ModelError
from jointmdp.model.policies import as_policy, depends_on_time, looks_timed, timed_policy
from jointmdp.model.tables import start_law
from jointmdp.simulation.montecarlo.samples import ROUNDING_UNITS, Replications, Sampler
from jointmdp.simulation.montecarlo.simulator_branches import OnEvent, QuerySampler
from jointmdp.simulation.simulators.agents_with_memory import Situation, with_memories
from jointmdp.simulation.simulators.function_simulator import RunSimulator, WithNoise, as_named, is_run_function
from jointmdp.simulation.simulators.generators import kept_globals
from jointmdp.simulation.simulators.noise import Noise, Redraw
from jointmdp.simulation.simulators.registry import as_simulator
from jointmdp.simulation.simulators.simulator import Action, Simulator, Snapshot
from jointmdp.simulation.simulators.table_simulator import TableSimulator
from jointmdp.simulation.watching.recorded_draws import redrawn

SCATTER = 2654435761  # odd, so that multiples of it modulo 2³² do not repeat; neighbours end up far apart
MAX_SEED = 2**63 - 1


class SimulationSettings(NamedTuple):
    """How returns are simulated; what is None is as the simulator says itself."""

    seed: int = 0
    sharing: Sharing | None = None
    discount: float | None = None
    horizon: int | None = None
    until_merged: bool = False
    """Stop a replication when all its branches are one: its gaps are final, its returns are not."""
    some_whole: bool = False
    """Do so with most replications of the compiled engine."""

    def checked(self) -> SimulationSettings:
        """The same, after a look at every number."""
        return self._replace(
            seed=checks.as_count("seed", self.seed, 0, MAX_SEED),
            sharing=None if self.sharing is None else checks.as_sharing(self.sharing),
            discount=None if self.discount is None else checks.as_discount(self.discount),
            horizon=None if self.horizon is None else checks.as_count("horizon", self.horizon),
        )


class Alternatives(NamedTuple):
    """What is compared, ready to be sampled."""

    sampler: Sampler
    labels: tuple[str, ...]
    title: str
    """What is compared, in words."""
    sharing: Sharing
    can_share: tuple[Sharing, ...]
    """Which kinds of sharing can be simulated."""
    return_bound: float | None
    """Largest absolute return, where it is known."""
    spread: float | None = None
    """How far apart two rewards can be, where it is known."""
    actions: tuple[Action, ...] = ()
    """First actions, where these are compared: by their numbers in the simulator."""
    remark: str = ""
    """What a user may want to know about how it is sampled."""
    simulator: Simulator | None = None
    values: tuple[Any, ...] = ()
    """The alternatives as the user or the environment calls them, where that is not by their labels alone."""
    discount: float = 1.0
    policies: tuple[Any, ...] = ()
    """What each of the first actions is followed by."""
    state: Snapshot | None = None
    """Where all begin; None: in starting states of their own."""
    settings: SimulationSettings = SimulationSettings()

    @property
    def name(self) -> str:
        """What the simulator is called."""
        return self.title.partition(" in ")[2] or self.title

    def reach(self, run: Replications) -> float:
        """How far apart two returns can be, as far as seen: infinite before any reward."""
        whole = run.whole
        if len(whole.leads) == len(run.leads):
            return run.reach
        # Other returns stop where branches merge. A gap is made of rewards that differ as long as in the longest pair.
        rest = run.rows(~run.is_whole)  # type: ignore[operator] # not all are whole
        steps = int(rest.steps.max())
        weights = steps if self.discount >= 1 else (1 - self.discount**steps) / (1 - self.discount)
        most = math.inf if self.spread is None else self.spread * weights
        if len(whole.leads) == 0:
            return 0.0 if steps == 0 else run.reach if self.spread is None else most
        if not run.returns.any():
            return math.inf
        return max(whole.reach if whole.returns.any() else 0.0, min(rest.reach, most) if rest.returns.any() else 0.0)


def first_actions(
    source: Any,
    policy: Any,
    state: Snapshot | None,
    actions: Sequence[Action] | None,
    settings: SimulationSettings = SimulationSettings(),  # noqa: B008 - a value that never changes
) -> Alternatives:
    """First actions (by default all) in a state, after which `policy` is followed.

    Without a state each replication begins in a starting state of its own, which all alternatives share.
    """
    simulator = _opened(source)
    place = None if state is None else simulator.snapshot(state)
    if policy is None:
        raise ModelError("which policy is followed after the first action? give it, or policies={…} to compare")
    if actions is None:
        first = tuple(simulator.available(simulator.reset() if place is None else place))
    elif isinstance(actions, str) or not isinstance(actions, Sequence | np.ndarray) or len(actions) < 1:
        raise ModelError(f"actions must be a sequence of at least one action, not {actions!r}")
    else:
        first = tuple(simulator.action_index(action, place) for action in actions)
    labels = tuple(map(simulator.action_label, first))
    return first_actions_and_policies(simulator, [(action, policy) for action in first], labels, place, settings)


def whole_policies(
    source: Any,
    policies: Mapping[str, Any] | Sequence[Any],
    state: Snapshot | None,
    settings: SimulationSettings = SimulationSettings(),  # noqa: B008 - a value that never changes
) -> Alternatives:
    """Policies that are followed from the start."""
    simulator = _opened(source)
    place = None if state is None else simulator.snapshot(state)
    named = as_named("policies", policies)
    found = _simulated(simulator, list(named.values()), None, place, tuple(named), settings)
    values = tuple(policies) if isinstance(policies, Mapping) else ()
    return found._replace(title=f"policies in {simulator.name}", values=values)


def first_actions_and_policies(
    simulator: Simulator,
    branches: Sequence[tuple[Action, Any]],
    labels: tuple[str, ...],
    place: Snapshot | None,
    settings: SimulationSettings,
) -> Alternatives:
    """First actions, each with the policy that is followed after it."""
    first, policies = zip(*branches, strict=True)
    found = _simulated(simulator, policies, first, place, labels, settings)
    title, values = f"first actions in {simulator.name}", tuple(map(simulator.action_value, first))
    return found._replace(title=title, actions=first, policies=policies, state=place, settings=settings, values=values)


def decisions_of(
    run: Any, decisions: Mapping[str, Any] | Sequence[Any], seed: int = 0, sharing: Sharing | None = None
) -> Alternatives:
    """Decisions of a function ``run(decision, seed)``."""
    simulator = RunSimulator(run, decisions)
    chosen: Sharing = "time" if sharing is None else checks.as_sharing(sharing)
    if chosen == "state":
        raise ModelError('a function run(decision, seed) shows no states: its noise is shared in "time", or "none"')
    sampler = RunSampler(simulator, checks.as_count("seed", seed, 0, MAX_SEED))
    assert simulator.action_names is not None
    found = Alternatives(
        sampler, simulator.action_names, f"decisions in {simulator.name}", chosen, ("time", "none"), None
    )
    return found._replace(simulator=simulator, values=simulator.values)


def _opened(source: Any) -> Simulator:
    if is_run_function(source) and not isinstance(source, Simulator):
        raise ModelError("a function run(decision, seed) needs the decisions to try: decisions=[…]")
    return as_simulator(source)


def _simulated(
    simulator: Simulator,
    followed: Sequence[Any],
    first: tuple[Action, ...] | None,
    state: Snapshot | None,
    labels: tuple[str, ...],
    settings: SimulationSettings,
) -> Alternatives:
    """Branches that each follow a policy, in the quickest engine that can simulate them."""
    policies: list[Any] = []  # one policy under two names is one policy: its branches can become one
    for policy in followed:
        if not any(policy is other for other in policies):
            policies.append(policy)
    kinds = tuple(next(i for i, other in enumerate(policies) if other is policy) for policy in followed)
    how = settings.checked()
    discount = simulator.discount if how.discount is None else how.discount
    bounds = simulator.reward_bounds
    return_bound = None if bounds is None or discount >= 1 else max(map(abs, bounds)) / (1 - discount)
    if isinstance(simulator, TableSimulator):  # the forms that only tables know
        policies = [as_policy(simulator.model, each) if isinstance(each, Mapping) else each for each in policies]
        if how.horizon is not None:
            policies = [timed_policy(simulator.model, p, how.horizon) if looks_timed(p) else p for p in policies]
    for policy in policies:
        steps = math.inf if callable(policy) or not depends_on_time(policy) else len(policy)
        if steps < (math.inf if how.horizon is None else how.horizon):
            raise ModelError(f"a policy of {steps} steps, an array [T, S, A], needs a horizon of at most so many")
    # Whatever the engine, a policy that makes no sense is refused here.
    remembering, agents, place = with_memories(simulator, policies, state)
    dynamics, remark = _dynamics(simulator, policies, kinds, first, state, discount, how.horizon)
    if remembering is not simulator and state is not None and not isinstance(state, Situation):
        remark = "What the agent remembers, and its time, begin in the state that was given."
    if dynamics is None:
        own = tuple(agents[kind] for kind in kinds)
        sampler: Sampler = QuerySampler(
            remembering, own, first, place, how.seed, discount, how.horizon, how.until_merged, labels
        )
    else:
        from jointmdp.simulation.montecarlo.compiled_branches import BlockSampler

        until_merged = how.until_merged or how.some_whole
        sampler = BlockSampler(
            simulator.name, dynamics, how.seed, how.horizon, return_bound, until_merged, how.some_whole
        )
    sharing = simulator.sharing if how.sharing is None else how.sharing
    found = Alternatives(sampler, labels, "", sharing, ("state", "time", "none"), return_bound, discount=discount)
    return found._replace(spread=None if bounds is None else bounds.width, remark=remark, simulator=simulator)


def _dynamics(
    simulator: Simulator,
    policies: Sequence[Any],
    kinds: tuple[int, ...],
    first: tuple[Action, ...] | None,
    state: Snapshot | None,
    discount: float,
    horizon: int | None,
) -> tuple[Any, str]:
    """What the compiled engine can simulate, or None and why it cannot; both take JAX along, so they wait for it."""
    if isinstance(simulator, TableSimulator):
        from jointmdp.simulation.montecarlo.table_dynamics import as_table_policy, check_ends, table_dynamics

        model = simulator.model if discount == simulator.model.discount else simulator.model.with_discount(discount)
        tables = [as_table_policy(model, policy, horizon) for policy in policies]
        known = [table for table in tables if table is not None]
        if len(known) < len(tables):
            return None, "One replication at a time: the policy is not a table of all states."
        start = simulator.start_law if state is None else start_law(model, state)
        if discount >= 1 and horizon is None:
            check_ends(model, known, start, first)
        return table_dynamics(model, known, kinds, first, start), ""
    loaded = sys.modules.get("jointmdp.simulation.simulators.jax_simulator")  # if one exists
    if loaded is None or not isinstance(simulator, loaded.JaxSimulator):
        return None, ""
    from jointmdp.simulation.montecarlo.jax_dynamics import jax_dynamics
    from jointmdp.simulation.simulators.jax_simulator import UntraceableError

    try:
        return jax_dynamics(simulator, policies, kinds, first, state, discount), ""
    except UntraceableError as error:
        return None, f"One replication at a time: {error}."


@dataclass(frozen=True)
class RunSampler:
    """The sampler of a function ``run(decision, seed)``: one seed for all decisions, or one for each."""

    simulator: RunSimulator
    seed: int
    places: tuple[int, ...] = ()
    """Which decisions are tried; by default all."""
    redraw: Redraw | None = None
    """Which sources of noise draw other numbers than those of the seed; None: nobody follows them."""

    def __call__(self, first: int, count: int, sharing: Sharing) -> Replications:
        """Replications `first`, …, ``first + count − 1``; of several results a run, one after another in columns."""
        return self._made([self._row(i, sharing) for i in range(first, first + count)])

    def only(self, places: tuple[int, ...]) -> RunSampler:
        """The same replications of some of the decisions."""
        return replace(self, places=places)

    def replay(self, index: int, sharing: Sharing, on_event: OnEvent, *, is_backwards: bool) -> Replications:
        """One replication under the eyes of `on_event`, with the decisions in the opposite order where asked for."""
        return self._made([self._row(index, sharing, on_event, -1 if is_backwards else 1)])

    def _made(self, rows: list[list[tuple[float, ...]]]) -> Replications:
        results, count = np.moveaxis(np.array(rows), 2, 1), len(rows)  # [n, K, m]
        none, first = np.zeros(count, dtype=np.int64), results[:, :, :1]
        # What the function itself has rounded is not known: as much as a sum of so many terms.
        rounding = ROUNDING_UNITS * 2.0**-52 * (np.abs(results) + np.abs(first))
        returns, leads, rounding = (part.reshape(count, -1) for part in (results, results - first, rounding))
        leaders = np.broadcast_to(np.arange(returns.shape[1]), returns.shape)
        return Replications(returns, leads, rounding, none, leaders, none.astype(np.float64))

    def _row(
        self, index: int, sharing: Sharing, on_event: OnEvent | None = None, order: int = 1
    ) -> list[tuple[float, ...]]:
        """The outcomes of the decisions in one replication."""
        base, m = int.from_bytes(Noise("run", self.seed).address[:4], "little"), len(self.simulator.decisions)
        row, places = dict[int, tuple[float, ...]](), self.places or tuple(range(m))
        for j in places[::order]:
            place = index if sharing == "time" else index * m + j
            seed = (base + place * SCATTER) % 2**32
            try:
                row[j] = self._outcomes(j, seed)
            except ModelError:
                raise
            except Exception as error:
                raise ModelError(
                    f"{self.simulator.name}({self.simulator.decisions[j]!r}, {seed}) raised {type(error).__name__} in "
                    f"replication {index}: {error}"
                ) from error
            if on_event is not None:
                on_event("outcome", 0, j, (row[j] if len(row[j]) > 1 else row[j][0], True))
        return [row[j] for j in places]

    def _outcomes(self, j: int, seed: int) -> tuple[float, ...]:
        simulator, redraw = self.simulator, self.redraw
        if redraw is None:
            return simulator.outcomes(j, seed)
        if isinstance(simulator.run, WithNoise):
            simulator = copy.copy(simulator)
            simulator.run = WithNoise(simulator.run.run, redraw)  # type: ignore[union-attr]
            return simulator.outcomes(j, seed)
        with kept_globals(), redrawn(redraw):
            return simulator.outcomes(j, seed)
