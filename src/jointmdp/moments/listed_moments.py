"""Joint moments of the asked states of a model, held on the part of it that they lead to."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from jointmdp.arrays import UNIT, Floats, Ints
from jointmdp.errors import NotKnownError
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.reached_states import ReachedPart
from jointmdp.moments.certificates import Certificate, StateErrors
from jointmdp.moments.gap_backup import GapEstimate, gap_backup
from jointmdp.moments.pair_lists import PairList
from jointmdp.moments.single_branch import SingleBranch


def gap_ends(branch: SingleBranch, errors: StateErrors, s: Ints, t: Ints) -> tuple[Floats, Floats]:
    """What the variances of single branches say of the variance of a gap: (√B(s) ∓ √B(t))²."""
    B, off = branch.variance, errors.variance_errors
    up, low = np.sqrt(B + off), np.sqrt(np.maximum(B - off, 0.0))
    nearest = np.maximum(np.maximum(low[s] - up[t], low[t] - up[s]), 0.0)
    return nearest**2, (up[s] + up[t]) ** 2


@dataclass(frozen=True, eq=False, repr=False)
class ListedMoments:
    """Moments held on a part and on a list of pairs; states and actions are those of the whole model."""

    model: JointMDP
    part: ReachedPart
    branch: SingleBranch
    errors: StateErrors
    part_mean: Floats  # [R, A]
    pairs: PairList | None  # None where branches share nothing
    D: Floats  # [k] variance of the gap of two branches
    pair_errors: Floats  # [k]

    @property
    def asked(self) -> Ints:
        """The states that moments of all actions are known of."""
        return self.part.states[self.part.asked]

    def _whole(self, values: Floats, fill: float) -> Floats:
        """``[R, A]`` as ``[S, A]``."""
        found = np.full((self.model.num_states, *values.shape[1:]), fill)
        found[self.part.states] = values[: len(self.part.states)]
        return found

    @cached_property
    def mean(self) -> Floats:
        """E Z(s,a), ``[S, A]``; NaN in states that were not reached."""
        return self._whole(np.where(self.part.model.available, self.part_mean, np.nan), np.nan)

    @cached_property
    def _variance_errors(self) -> Floats:
        """Of the variance of each coordinate of the part, ``[R, A]``."""
        errors, n = self.errors, self.part.model.successors
        return errors.variance_steps + self.part.model.discount**2 * errors.expect(errors.variance_errors[n])

    def place(self, state: int) -> int:
        """The index in the part of a state that was asked about."""
        place = int(self.part.place(np.array(state)))
        if place not in self.part.asked:
            raise NotKnownError(
                f"{self.model.state_label(state)} was not among the states asked about; evaluate(..., states=[…]) with "
                "it, or without states"
            )
        return place

    def _later(self, s: int, a: int, b: int) -> tuple[float, float]:
        """E_w D(S'_a, S'_b) of a state of the part, and a bound on its error."""
        if self.pairs is None:
            return 0.0, 0.0
        p, n = self.part.model.probabilities[s], self.part.model.successors[s]
        n = n[p > 0]
        at = self.pairs.place(n[:, a], n[:, b])
        low, high = gap_ends(self.branch, self.errors, n[:, a], n[:, b])
        listed = at >= 0
        value = np.where(listed, np.append(self.D, 0.0)[at], (high + low) / 2)
        error = np.where(listed, np.append(self.pair_errors, 0.0)[at], (high - low) / 2)
        settled = ~listed & self.pairs.is_settled(n[:, a], n[:, b])
        return tuple(float(p[p > 0] @ np.where(settled, 0.0, each)) for each in (value, error))  # type: ignore[return-value]

    def _part_gap(self, s: int, a: int, b: int) -> GapEstimate:
        """Of a state of the part."""
        v = np.sum(self.part.policy * self.branch.mean, axis=1)
        rewards, values = self.branch.state.rewards[s], self.errors.values
        found = gap_backup(self.part.model, rewards, v, values, (s, a, b), self._later(s, a, b))
        if self.pairs is not None:
            return found
        variance = float(self.errors.variances[s, a] + self.errors.variances[s, b])
        off = float(self._variance_errors[s, a] + self._variance_errors[s, b])
        return found._replace(variance=variance, variance_error=off + 4 * UNIT * variance)

    def difference(self, s: int, a: int, b: int, certificate: Certificate) -> GapEstimate:
        return self._gaps[self.place(s), a, b]

    @cached_property
    def _gaps(self) -> dict[tuple[int, int, int], GapEstimate]:
        """All gaps of the asked states."""
        found: dict[tuple[int, int, int], GapEstimate] = {}
        for s in self.part.asked.tolist():
            actions = np.flatnonzero(self.part.model.available[s]).tolist()
            found |= {(s, a, b): self._part_gap(s, a, b) for a in actions for b in actions if a != b}
        return found

    def blocks(self, states: Sequence[int], actions: Sequence[int]) -> Floats:
        """Covariances; NaN in states that were not asked about."""
        found = np.full((len(states), len(actions), len(actions)), np.nan)
        places = self.part.place(np.asarray(states))
        for i in np.flatnonzero(np.isin(places, self.part.asked)).tolist():
            place = int(places[i])
            variances = self.errors.variances[place]
            for j, a in enumerate(actions):
                for k, b in enumerate(actions):
                    if a == b:
                        found[i, j, k] = variances[a]
                    elif (place, a, b) in self._gaps:
                        found[i, j, k] = (variances[a] + variances[b] - self._gaps[place, a, b].variance) / 2
        return found

    def between(self, s: int, a: int, t: int, b: int) -> float:
        raise _not_held()

    def across(self) -> Floats:
        raise _not_held()

    def worst_error(self, small: float, least: float) -> float:
        """The largest error of a gap's variance; relative to it, to `small` of those of its branches, to `least`."""
        worst = 0.0
        for (s, a, b), gap in self._gaps.items():
            size = max(gap.variance, small * float(self.errors.variances[s, [a, b]].sum()), least)
            worst = max(worst, gap.variance_error / size)
        return worst

    def certificate(self, residual: float) -> Certificate:
        """Bounds on the errors in the asked states; infinite in others."""
        errors, asked = self.errors, self.part.asked
        exists = self.part.model.available[asked]
        largest = float(np.max(np.abs(self.part_mean[asked]), where=exists, initial=0.0))
        scale = float(np.max(np.abs(errors.mean)) + np.max(np.abs(self.branch.state.offset)))
        mean_errors = errors.mean_errors + 4 * UNIT * scale
        shares = self._variance_errors / 2
        for (s, a, b), gap in self._gaps.items():
            floor = gap.variance_error / 4 + 8 * UNIT * float(errors.variances[s, a] + errors.variances[s, b])
            shares[s, a] = max(shares[s, a], self._variance_errors[s, a] / 2 + floor)
        top = float(np.max(shares[asked], where=exists, initial=0.0))
        mean_error = float(np.max(mean_errors[asked], where=exists, initial=0.0))
        variance = float(np.max(errors.variances[asked], where=exists, initial=0.0))
        second = 2 * top + (2 * largest + mean_error) * mean_error + 16 * UNIT * (largest**2 + variance)
        known = np.isin(np.arange(self.model.num_states), self.asked)[:, None]
        bounds = (np.where(known, self._whole(each, np.inf), np.inf) for each in (mean_errors, shares))
        return Certificate(residual, mean_error, second, 2 * top, *bounds)


def _not_held() -> NotKnownError:
    return NotKnownError(
        "covariances of distinct states are not held where evaluate(..., states=[…]) was asked for some; evaluate "
        "without states, or simulate"
    )
