"""Whole policies from the same start: the return of each, and the gap of every two under shared noise."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from jointmdp.exact.law.gap_law import Laws
from jointmdp.exact.law.pair_graph import NOTHING, GapBranches
from jointmdp.exact.moments.certificates import Status, report_missed
from jointmdp.exact.moments.default_solver import PolicyBranch, policies_gap, shared_pairs
from jointmdp.exact.moments.pair_solver import Solve
from jointmdp.exact.solution.gap import Gap
from jointmdp.ground import checks
from jointmdp.ground.answers import ResultFace
from jointmdp.ground.arrays import Floats
from jointmdp.ground.files import write_csv
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.tables import StateLike


@dataclass(frozen=True, eq=False, repr=False)
class PolicyReturns(ResultFace):
    """The returns of policies that are followed from the first step on, with certified errors.

    Branches share scenarios as the model's ``sharing`` says and draw their actions independently of each other, also
    where two policies are the same; two branches never become one.
    """

    model: JointMDP
    names: tuple[str, ...]
    branches: tuple[PolicyBranch, ...]
    method: Solve
    minimise: bool = False
    """Whether returns are costs, and gaps say how much less a policy costs."""
    _shared: dict[tuple[int, int], tuple[Floats, Floats]] = field(default_factory=dict)  # covariance, error; [S] each
    _laws: dict[tuple[int, int], Laws] = field(default_factory=dict)

    @property
    def mean(self) -> Floats:
        """Mean return of each policy from each state, ``[K, S]``."""
        return np.stack([branch.mean for branch in self.branches])

    @property
    def variance(self) -> Floats:
        """Variance of the return of each policy from each state, ``[K, S]``."""
        return np.stack([branch.variance for branch in self.branches])

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
        pair = min(i, j), max(i, j)
        if pair not in self._shared:
            found = shared_pairs(self.branches[pair[0]], self.branches[pair[1]], self.method)
            if not found.is_reached:
                report_missed(Status.STEP_LIMIT, f"{labels[1]} and {labels[2]}", self.method.throw)
            mine, theirs = found.shares
            self._shared[pair] = found.covariance.diagonal() + 0.0 * mine, mine + theirs
        known = policies_gap(one, two, s, s, *(each[s] for each in self._shared[pair]))
        mean, mean_error, variance, variance_error = map(float, known)
        return Gap(
            *labels,
            mean=mean + 0.0,
            variance=variance,
            independent_variance=float(one.variance[s] + two.variance[s]),
            mean_error=mean_error,
            variance_error=variance_error,
            place=(self._laws_of(i, j), (s, NOTHING, NOTHING)),
            minimise=self.minimise,
        )

    def _laws_of(self, i: int, j: int) -> Laws:
        if (i, j) not in self._laws:
            branches = GapBranches(self.model, self.branches[i].policy, self.branches[j].policy, can_merge=False)
            self._laws[i, j] = Laws(branches, None)
        return self._laws[i, j]

    def table(self, states: Iterable[StateLike] | None = None) -> list[dict[str, Any]]:
        """One row for each state and every two policies: a tidy table of gaps."""
        rows = []
        for state in range(self.model.num_states) if states is None else states:
            for i, j in combinations(range(len(self.names)), 2):
                gap = self.gap(self.names[i], self.names[j], state)
                row = {"state": gap.state, "policy": gap.action, "other": gap.other, "mean": gap.mean, "std": gap.std}
                more = {"independent_std": gap.independent_variance**0.5, "inferiority_bound": gap.inferiority_bound}
                errors = {"mean_error": gap.mean_error, "variance_error": gap.variance_error}
                rows.append(row | more | errors | {"direction": gap.direction})
        return rows

    def to_csv(self, path: str | os.PathLike[str], states: Iterable[StateLike] | None = None) -> None:
        """Write `table` as a CSV file, whole or not at all."""
        write_csv(path, self.table(states), ("state", "policy", "other"))

    def __repr__(self) -> str:
        error = max(float(branch.mean_errors.max()) for branch in self.branches)
        return f"PolicyReturns({', '.join(self.names)} in {self.model!r}; mean ± {error:.1e})"
