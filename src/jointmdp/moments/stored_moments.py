"""Joint moments as the methods leave them: on states, where actions are one backup away, or on pairs of coordinates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Protocol

import jax
import numpy as np

from jointmdp.arrays import Floats, float64, on_device
from jointmdp.bellman import second_moments
from jointmdp.bellman.second_moments import Tables
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.moments import transition_kernels
from jointmdp.moments.higher_errors import Known
from jointmdp.moments.higher_solver import Effort, Higher, gap_moments
from jointmdp.moments.mixed_moments import JointPowers

_same_state = partial(jax.jit, static_argnames="is_shared")(second_moments.same_state)
_distinct_states = partial(jax.jit, static_argnames="sharing")(second_moments.distinct_states)


class StoredMoments(Protocol):
    """Joint moments as a method leaves them."""

    @property
    def mean(self) -> Floats: ...  # [S, A]

    def blocks(self, states: Sequence[int], actions: Sequence[int]) -> Floats: ...  # [n, m, m] covariances

    def between(self, s: int, a: int, t: int, b: int) -> float: ...


class StateMoments:
    """Moments held on states; those of actions are one backup away."""

    def __init__(
        self,
        model: JointMDP,
        tables: Tables,
        m: jax.Array,
        C: jax.Array,
        B: jax.Array,
        offset: float,
        higher: Higher | None = None,
        effort: Effort = Effort(),  # noqa: B008 - a value that never changes
    ) -> None:
        self._model = model
        self._sharing = model.sharing
        self._tables = tables
        self.higher = higher
        self._effort = effort  # of moments that are solved for when first asked for
        self._v = second_moments.state_mean(tables, m)
        self._C = C  # [S, S]
        self._B = B  # [S]
        self.mean: Floats = np.asarray(second_moments.mean(tables, self._v)) + offset

    def parts(self) -> dict[str, Floats]:
        """What a file keeps beside the mean; `restored` reads it back."""
        held = {
            "shifted_rewards": self._tables.rewards,  # [S, W, A]
            "state_mean": self._v,  # [S]
            "state_covariance": self._C,  # [S, S]
            "branch_variance": self._B,  # [S]
        }
        parts = {name: np.asarray(array) for name, array in held.items()}
        if self.higher is not None:
            higher = self.higher
            parts |= {"branch_moments": higher.branch, "gap_moments": higher.gaps, "higher_errors": higher.errors}
        return parts

    @classmethod
    def restored(
        cls, model: JointMDP, policy: Floats, parts: Mapping[str, Floats], order: int = 2, horizon: int | None = None
    ) -> StateMoments:
        """The moments whose ``parts`` and ``mean`` are given: nothing is computed again, so every bit is the same."""
        found = cls.__new__(cls)
        found.higher, found._effort = None, Effort()
        if order > 2:
            higher = (parts["branch_moments"], parts["gap_moments"], parts["higher_errors"])
            found.higher = Higher(order, *higher, horizon)
        with float64():
            found._model = model
            found._sharing = model.sharing
            found._tables = transition_kernels.tables(model, policy)._replace(
                rewards=on_device(parts["shifted_rewards"])
            )
            found._v = on_device(parts["state_mean"])
            found._C = on_device(parts["state_covariance"])
            found._B = on_device(parts["branch_variance"])
        found.mean = parts["mean"]
        return found

    def blocks(self, states: Sequence[int], actions: Sequence[int]) -> Floats:
        """Covariances of the chosen actions in each chosen state, ``[n, m, m]``."""
        rows, columns = np.asarray(states), np.asarray(actions)
        with float64():
            t = self._tables
            chosen = Tables(
                t.probabilities[rows],
                t.rewards[rows][:, :, columns],
                t.successors[rows][:, :, columns],
                t.policy[rows][:, columns],
                t.discount,
            )
            is_shared = self._sharing != "none"
            return np.asarray(_same_state(chosen, self._v, self._C, self._B, is_shared=is_shared))

    def gap_moments(self, s: int, a: int, b: int, mean_errors: Floats) -> Known:
        """Central moments of the gap of two actions up to the order held, with bounds on their errors."""
        assert self.higher is not None
        return gap_moments(self._model, self._tables, np.asarray(self._v), self.higher, (s, a, b), mean_errors)

    @cached_property
    def _joint(self) -> JointPowers:
        assert self.higher is not None
        return JointPowers(self._model, self._tables, self._v, self._C, self.higher, self._effort)

    def central(self, i: int, j: int) -> Floats:
        """E[(Z(s,a)−m(s,a))ⁱ (Z(s,b)−m(s,b))ʲ], ``[S, A, A]``."""
        with float64():
            return self._joint.central(i, j)

    def between(self, s: int, a: int, t: int, b: int) -> float:
        """Covariance of two coordinates in distinct states."""
        if self._sharing == "none":
            return 0.0
        with float64():
            found = _distinct_states(self._tables, self._v, self._C, (s, a), (t, b), sharing=self._sharing)
            return float(found)


class PairMoments:
    """Raw moments held on all pairs of coordinates."""

    def __init__(self, mean: Floats, second: Floats) -> None:
        self.mean = mean  # [S, A]
        self._second = second  # [S, A, S, A]

    def parts(self) -> dict[str, Floats]:
        """What a file keeps beside the mean."""
        return {"second_moment": self._second}

    def blocks(self, states: Sequence[int], actions: Sequence[int]) -> Floats:
        """Covariances of the chosen actions in each chosen state, ``[n, m, m]``."""
        s = np.asarray(states)[:, None, None]
        a, b = np.asarray(actions)[None, :, None], np.asarray(actions)[None, None, :]
        return self._second[s, a, s, b] - self.mean[s, a] * self.mean[s, b]

    def between(self, s: int, a: int, t: int, b: int) -> float:
        """Covariance of two coordinates."""
        return float(self._second[s, a, t, b] - self.mean[s, a] * self.mean[t, b])
