"""Projected JIPE-2 from samples of a simulator: sums of features along the pair process, then their fixed point.

The operator is estimated in the space of features, and the projection iterated with it. (Solving first and projecting
once at the end would be another fixed point where the constraint matters.) For state spaces too large to list, or
continuous: memory depends on the number of features alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointmdp.arrays import Floats, Ints
from jointmdp.errors import ModelError
from jointmdp.executors.interface import Executor, Serial
from jointmdp.incremental.base_learner import BaseLearner
from jointmdp.incremental.options import LearnOptions, as_options
from jointmdp.incremental.simulator_walks import Walker, Walks, WalkTask, behaviour
from jointmdp.projected.feature_walks import FeatureSamples, FeatureWalks
from jointmdp.projected.features import FeatureRows, FeatureTable, as_feature_rows, as_feature_table
from jointmdp.projected.learned_features import LearnedFeatures
from jointmdp.projected.projecting import Projected
from jointmdp.projected.sample_sums import Sums, VisitRules, add, empty_sums, size_of_sums
from jointmdp.simulators.simulator import Simulator, as_agent
from jointmdp.simulators.table_simulator import TableSimulator

STEPS_AHEAD = 64  # steps drawn at once at most
LANES = 16  # lists in a task
NOT_HERE = ("schedule", "start", "burn_in")  # settings of the incremental methods


class FeatureState(NamedTuple):
    """A run between two steps."""

    step: NDArray[np.int64]
    sums: Sums


class TableRows(FeatureRows):
    """Features of a table behind a simulator, whose observations are numbers of states."""

    def __init__(self, table: FeatureTable) -> None:
        self.values, self.names = table.values, table.names
        self.coordinates = int(np.any(table.values != 0, axis=2).sum())

    def __call__(self, observations: Any, actions: Ints) -> Floats:
        return self.values[np.asarray(observations, dtype=np.int64), actions]


class FeatureLearner(BaseLearner):
    """``state = learner.init()``, then ``state = learner.advance(state, steps)`` and ``learner.answer(state)``."""

    reports = 1
    """In every power of ten of steps: each solves for the fixed point once, and once without each replica."""

    def __init__(
        self,
        simulator: Simulator,
        policy: Any,
        features: Any,
        options: LearnOptions | None = None,
        executor: Executor | None = None,
    ) -> None:
        options = as_options(options)
        method = features if isinstance(features, Projected) else Projected(features)
        self.simulator, self.executor, self.method = simulator, executor or Serial(), method
        self._check(options)
        self.rows = _rows(method.features, simulator)
        parts = method.parts_of(simulator.sharing, len(self.rows.names), self.rows.coordinates)
        described = {
            "simulator": simulator.name,
            "discount": simulator.discount,
            "sharing": simulator.sharing,
            "features": list(self.rows.names),
            "constraint": method.constraint,
            "parts": list(parts),
            "digest": behaviour(simulator, policy) if options.checkpoint else "",
        }
        super().__init__(simulator, options, "pairs", 1.0, described)
        c = 1 - self.restart
        if not simulator.discount**2 < c < 1:
            raise ModelError(
                f"restart is {self.restart:g}, so walkers go on with probability {c:g}; that must lie between "
                f"γ² = {simulator.discount**2:.6g}, where second moments stop contracting, and 1"
            )
        self._lanes = options.replicas * options.batch
        walks = Walks(simulator, as_agent(policy, simulator), "pairs", options.seed, self.restart)
        self.walks = FeatureWalks(walks, self.rows)
        self.rules = VisitRules(simulator.discount, simulator.sharing, method.constraint != "second_moment", parts)
        self._begin()

    def _check(self, options: LearnOptions) -> None:
        simulator, method = self.simulator, self.method
        if simulator.action_names is None:
            raise ModelError(f"the actions of {simulator.name} are not numbered, so its coordinates have no features")
        if simulator.discount >= 1:
            raise ModelError(f"the discount of {simulator.name} is 1: a projection contracts only below")
        if options.order != 2:
            raise ModelError(f"features fit moments of order 2, not {options.order}")
        if options.coordinates not in (None, "pairs"):
            raise ModelError('features are learned along "pairs" of branches; leave coordinates out')
        if method.weighting != "restart" or method.states is not None:
            raise ModelError(
                "samples come from pairs that begin in the simulator's starting states: the weighting is "
                '"restart"; let the simulator start in the states that you ask about'
            )
        for name in NOT_HERE:
            if getattr(options, name) is not None:
                raise ModelError(f"{name} belongs to learning without features; leave it out")

    def _begin(self) -> None:
        self._step = 0
        self._walkers: list[list[Walker | None]] = [[None] for _ in range(self._lanes)]

    def init(self) -> FeatureState:  # type: ignore[override]
        """Before the first step."""
        K, replicas, parts = len(self.rows.names), self.options.replicas, len(self.rules.parts)
        needed = size_of_sums(replicas, K, parts)
        if needed > self.options.memory_limit:
            raise ModelError(
                f"{K:,} features need about {needed / 2**30:.2g} GiB for {replicas} replicas, above memory_limit; use "
                "fewer features"
            )
        self._begin()
        return FeatureState(np.array(0, dtype=np.int64), empty_sums(replicas, K, parts))

    def advance(self, state: FeatureState, count: int) -> FeatureState:
        """`count` steps at once, each a mini-batch of visits for every replica."""
        step, goal = int(state.step), int(state.step) + count
        sums = Sums(*(np.array(part) for part in state.sums))
        while step < goal:
            some = min(goal - step, STEPS_AHEAD)
            samples = self._sampled(step, some)
            for t in range(some):  # one by one: sums of floats must not depend on how many steps were drawn at once
                self._add(sums, FeatureSamples(*(part[t] for part in samples)))
            step += some
        return FeatureState(np.array(step, dtype=np.int64), sums)

    def _sampled(self, step: int, count: int) -> FeatureSamples:
        """Visits ``[T, L]`` of the next steps."""
        if step != self._step:
            raise ModelError(f"samples can be drawn for step {self._step} only, where the walkers are, not for {step}")
        cut = [range(i, min(i + LANES, self._lanes)) for i in range(0, self._lanes, LANES)]
        steps = range(step, step + count)
        tasks = [WalkTask(steps, lanes, self._walkers[lanes.start : lanes.stop]) for lanes in cut]
        found = list(self.executor.map(self.walks, tasks))
        self._walkers = [walkers for each in found for walkers in each.walkers]
        self._step = step + count
        parts: list[NDArray[Any]] = [
            np.concatenate(each, axis=1) for each in zip(*(f.samples for f in found), strict=True)
        ]
        return FeatureSamples(*parts)

    def _add(self, sums: Sums, samples: FeatureSamples) -> None:
        """Add the visits ``[L]`` of one step."""
        batch = self.options.batch
        for r in range(self.options.replicas):
            own = FeatureSamples(*(part[r * batch : (r + 1) * batch] for part in samples))
            add(sums, r, own, self.rules)

    def updates(self, state: FeatureState) -> int:  # type: ignore[override]
        """Pairs visited so far, over all replicas."""
        return int(np.asarray(state.sums.pairs).sum())

    def answer(self, state: FeatureState, log: tuple[dict[str, Any], ...] = ()) -> LearnedFeatures:
        """What has been learned so far."""
        return LearnedFeatures(
            *self._summary(state, log),  # type: ignore[arg-type]
            simulator=self.simulator,
            rows=self.rows,
            is_centred=self.rules.is_centred,
            part_names=self.rules.parts,
            is_psd=self.method.constraint is not None,
            tolerance=self.method.tolerance,
            max_steps=self.method.max_steps,
            _sums=Sums(*map(np.asarray, state.sums)),
        )

    def _extra(self, state: FeatureState) -> dict[str, NDArray[Any]]:  # type: ignore[override]
        assert int(state.step) == self._step, "walkers are ahead of the state"
        since = [[self._step if each is None else each.since for each in walkers] for walkers in self._walkers]
        return {"since": np.array(since, dtype=np.int64)}

    def _restore(self, step: int, arrays: Mapping[str, Ints]) -> None:
        self._begin()
        self._step, walks = step, self.walks
        tasks = [(lane, int(since), step) for (lane, _), since in np.ndenumerate(arrays["since"])]
        self._walkers = [[walker] for walker in self.executor.map(lambda task: walks.found_again(*task), tasks)]


def _rows(features: Any, simulator: Simulator) -> FeatureRows:
    if isinstance(simulator, TableSimulator):
        return TableRows(as_feature_table(features, simulator.model))
    return as_feature_rows(features, simulator)
