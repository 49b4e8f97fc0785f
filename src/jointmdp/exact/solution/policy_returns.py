"""Whole policies from the same start: the return of each, and the gap of every two under shared noise."""

import os
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from jointmdp.exact.law.gap_law import Laws
from jointmdp.exact.law.pair_graph import NOTHING, GapBranches
from jointmdp.exact.moments.certificates import Status
from jointmdp.exact.moments.default_solver import PolicyBranch, SharedPart, shared_part
from jointmdp.exact.moments.pair_solver import Solve
from jointmdp.exact.solution.gap import Gap
from jointmdp.ground import checks
from jointmdp.ground.answers import ResultFace
from jointmdp.ground.arrays import UNIT, Floats
from jointmdp.ground.errors import ConvergenceError, ConvergenceWarning
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
    _shared: dict[tuple[int, int], SharedPart] = field(default_factory=dict)
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
        """``Z^policy(state) − Z^other(state)``, policies by name or number.

        Both start in `state`, by default the first one of the model, where what `from_start` finds begins.
        """
        s = self.model.state_index(state)
        i, j = (checks.as_index("policy", each, self.names, len(self.names)) for each in (policy, other))
        labels = (self.model.state_label(s), self.names[i], self.names[j])
        if i == j:
            return Gap(*labels, 0.0, 0.0, 0.0, 0.0, 0.0)
        one, two = self.branches[i], self.branches[j]
        shared = self._between(min(i, j), max(i, j))
        covariance = float(shared.covariance[s])
        apart = float(one.variance[s] + two.variance[s])
        error = one.variance_errors[s] + two.variance_errors[s] + 2 * shared.errors[s]
        # Means are subtracted before their offsets are added: digits that both share do not round.
        offset = float(one.single.state.offset[s] - two.single.state.offset[s])
        mean = float(one.relative_mean[s] - two.relative_mean[s]) + offset
        return Gap(
            *labels,
            mean=mean + 0.0,
            variance=max(0.0, apart - 2 * covariance),
            independent_variance=apart,
            mean_error=float(one.mean_errors[s] + two.mean_errors[s]),
            variance_error=float(error + 8 * UNIT * (apart + 2 * abs(covariance))),
            place=(self._laws_of(i, j), (s, NOTHING, NOTHING)),
        )

    def _laws_of(self, i: int, j: int) -> Laws:
        if (i, j) not in self._laws:
            branches = GapBranches(self.model, self.branches[i].policy, self.branches[j].policy, can_merge=False)
            self._laws[i, j] = Laws(branches, None)
        return self._laws[i, j]

    def _between(self, i: int, j: int) -> SharedPart:
        if (i, j) not in self._shared:
            found = shared_part(self.branches[i], self.branches[j], self.method)
            if not found.is_reached:
                message = f"{Status.STEP_LIMIT.value} ({self.names[i]} and {self.names[j]})"
                if self.method.throw:
                    raise ConvergenceError(message)
                warnings.warn(message, ConvergenceWarning, stacklevel=3)
            self._shared[i, j] = found
        return self._shared[i, j]

    def table(self, states: Iterable[StateLike] | None = None) -> list[dict[str, Any]]:
        """One row for each state and every two policies: a tidy table of gaps."""
        rows = []
        for state in range(self.model.num_states) if states is None else states:
            for i, j in combinations(range(len(self.names)), 2):
                gap = self.gap(i, j, state)
                row = {"state": gap.state, "policy": gap.action, "other": gap.other, "mean": gap.mean, "std": gap.std}
                more = {"independent_std": gap.independent_variance**0.5, "inferiority_bound": gap.inferiority_bound}
                rows.append(row | more | {"mean_error": gap.mean_error, "variance_error": gap.variance_error})
        return rows

    def to_csv(self, path: str | os.PathLike[str], states: Iterable[StateLike] | None = None) -> None:
        """Write `table` as a CSV file, whole or not at all."""
        write_csv(path, self.table(states), ("state", "policy", "other"))

    def __repr__(self) -> str:
        error = max(float(branch.mean_errors.max()) for branch in self.branches)
        return f"PolicyReturns({', '.join(self.names)} in {self.model!r}; mean ± {error:.1e})"
