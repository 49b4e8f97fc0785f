"""The answer: joint moments of the returns of all actions, with a statement of how true they are."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jointmdp import bellman, kernels
from jointmdp.bellman import Tables
from jointmdp.certificates import Certificate
from jointmdp.checks import Floats
from jointmdp.errors import ModelError, Status
from jointmdp.gaps import Gap
from jointmdp.model import ActionLike, JointMDP, StateLike

if TYPE_CHECKING:
    import xarray

BLOCK_LIMIT = 2**27  # covariance entries formed at once; more are to be asked for state by state
# A variance below this fraction of the largest, and below its own certified error, cannot be told from zero.
ZERO_FRACTION = 1e-9

_same_state = partial(jax.jit, static_argnames="is_shared")(bellman.same_state)
_distinct_states = partial(jax.jit, static_argnames="sharing")(bellman.distinct_states)


class Held(Protocol):
    """Joint moments as a method leaves them."""

    @property
    def mean(self) -> Floats: ...  # [S, A]

    def blocks(self, states: Sequence[int], actions: Sequence[int]) -> Floats: ...  # [n, m, m] covariances

    def between(self, s: int, a: int, t: int, b: int) -> float: ...


class StateMoments:
    """Moments held on states; those of actions are one backup away."""

    def __init__(
        self, model: JointMDP, tables: Tables, m: jax.Array, C: jax.Array, B: jax.Array, offset: float
    ) -> None:
        self._sharing = model.sharing
        self._tables = tables
        self._v = bellman.state_mean(tables, m)
        self._C = C  # [S, S]
        self._B = B  # [S]
        self.mean: Floats = np.asarray(bellman.mean(tables, self._v)) + offset

    def parts(self) -> dict[str, Floats]:
        """What a file keeps beside the mean; `restored` reads it back."""
        held = {
            "shifted_rewards": self._tables.rewards,  # [S, W, A]
            "state_mean": self._v,  # [S]
            "state_covariance": self._C,  # [S, S]
            "branch_variance": self._B,  # [S]
        }
        return {name: np.asarray(array) for name, array in held.items()}

    @classmethod
    def restored(cls, model: JointMDP, policy: Floats, parts: Mapping[str, Floats]) -> StateMoments:
        """The moments whose ``parts`` and ``mean`` are given: nothing is computed again, so every bit is the same."""
        found = cls.__new__(cls)
        with kernels.float64():
            found._sharing = model.sharing
            found._tables = kernels.tables(model, policy)._replace(rewards=jnp.asarray(parts["shifted_rewards"]))
            found._v = jnp.asarray(parts["state_mean"])
            found._C = jnp.asarray(parts["state_covariance"])
            found._B = jnp.asarray(parts["branch_variance"])
        found.mean = parts["mean"]
        return found

    def blocks(self, states: Sequence[int], actions: Sequence[int]) -> Floats:
        """Covariances of the chosen actions in each chosen state, ``[n, m, m]``."""
        rows, columns = np.asarray(states), np.asarray(actions)
        with kernels.float64():
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

    def between(self, s: int, a: int, t: int, b: int) -> float:
        """Covariance of two coordinates in distinct states."""
        if self._sharing == "none":
            return 0.0
        with kernels.float64():
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


@dataclass(frozen=True, eq=False)
class Solution:
    """Joint moments of ``Z(s, a)`` for all states and actions; unavailable actions hold NaN."""

    model: JointMDP
    policy: Floats  # [S, A]
    moments: Held = field(repr=False)
    certificate: Certificate
    status: Status
    method: str
    steps: int
    horizon: int | None = None
    history: Floats = field(default_factory=lambda: np.empty(0), repr=False)
    """`Iterate` only: ‖M_k − T₂M_k‖_λ for k = 0, 1, …"""

    def __repr__(self) -> str:
        return f"Solution({self.model!r}, {self.method}: {self.status.value}; {self.certificate})"

    @cached_property
    def mean(self) -> Floats:
        """E Z(s,a), ``[S, A]``."""
        return np.where(self.model.available, self.moments.mean, np.nan)

    @cached_property
    def covariance(self) -> Floats:
        """Cov(Z(s,a), Z(s,b)), ``[S, A, A]``."""
        return self.covariance_of(range(self.model.num_states))

    @cached_property
    def second_moment(self) -> Floats:
        """E[Z(s,a) Z(s,b)], ``[S, A, A]``."""
        return self.covariance + self.mean[:, :, None] * self.mean[:, None, :]

    @cached_property
    def variance(self) -> Floats:
        """Var Z(s,a), ``[S, A]``."""
        return np.diagonal(self.covariance, axis1=1, axis2=2)

    @cached_property
    def correlation(self) -> Floats:
        """Correlation of Z(s,a) and Z(s,b), ``[S, A, A]``; NaN where a variance is zero."""
        return self._correlation(self.covariance)

    def covariance_of(self, states: Iterable[StateLike], actions: Iterable[ActionLike] | None = None) -> Floats:
        """Covariances of the chosen actions (all by default) in the chosen states, ``[n, m, m]``."""
        rows = [self.model.state_index(state) for state in states]
        chosen = range(self.model.num_actions) if actions is None else actions
        columns = [self.model.action_index(action) for action in chosen]
        if not rows or not columns:
            raise ModelError("choose at least one state and one action")
        if len(rows) * len(columns) ** 2 > BLOCK_LIMIT:
            raise ModelError(
                f"{len(rows):,} states × {len(columns):,}² actions are too many covariances at once; "
                "ask covariance_of for some states and actions"
            )
        exists = self.model.available[np.ix_(rows, columns)]
        both = exists[:, :, None] & exists[:, None, :]
        # An action asked for twice is one coordinate, not two.
        distinct, places = np.unique(columns, return_inverse=True)
        blocks = self.moments.blocks(rows, distinct.tolist())
        return np.where(both, blocks[:, places[:, None], places[None, :]], np.nan)

    def correlation_of(self, states: Iterable[StateLike], actions: Iterable[ActionLike] | None = None) -> Floats:
        """Correlations of the chosen actions in the chosen states, ``[n, m, m]``."""
        return self._correlation(self.covariance_of(states, actions))

    def _correlation(self, covariance: Floats) -> Floats:
        variance = np.diagonal(covariance, axis1=1, axis2=2)
        largest = np.max(variance, where=np.isfinite(variance), initial=0.0)
        least = min(self.certificate.covariance_error, ZERO_FRACTION * largest)
        std = np.sqrt(np.where(variance > least, variance, np.nan))
        return np.clip(covariance / (std[:, :, None] * std[:, None, :]), -1.0, 1.0)

    def covariance_between(self, s: StateLike, a: ActionLike, t: StateLike, b: ActionLike) -> float:
        """Covariance of the returns of any two state-action pairs."""
        i, j = self.model.state_index(s), self.model.state_index(t)
        a, b = self.model.action_index(a, i), self.model.action_index(b, j)
        if i != j:
            return self.moments.between(i, a, j, b)
        return float(self._blocks(i, a, b)[0, 1])

    def _blocks(self, state: int, action: int, other: int) -> Floats:
        """The 2×2 covariance matrix of two actions, from the cache where it exists."""
        if "covariance" in self.__dict__ or self.model.num_states * self.model.num_actions**2 <= BLOCK_LIMIT // 64:
            return self.covariance[state][np.ix_([action, other], [action, other])]
        if action == other:
            return np.full((2, 2), self.moments.blocks([state], [action])[0, 0, 0])
        return self.moments.blocks([state], [action, other])[0]

    def gap(self, state: StateLike, action: ActionLike, other: ActionLike) -> Gap:
        """``Z(state, action) − Z(state, other)``."""
        s = self.model.state_index(state)
        a, b = self.model.action_index(action, s), self.model.action_index(other, s)
        labels = (self.model.state_label(s), self.model.action_label(a), self.model.action_label(b))
        c = self._blocks(s, a, b)
        if a == b:
            return Gap(*labels, 0.0, 0.0, 0.0, 0.0, 0.0)
        shares, mean_errors = self.certificate.covariance_shares[s], self.certificate.mean_errors[s]
        return Gap(
            *labels,
            mean=float(self.mean[s, a] - self.mean[s, b]),
            variance=max(0.0, float(c[0, 0] + c[1, 1] - 2 * c[0, 1])),
            independent_variance=float(c[0, 0] + c[1, 1]),
            mean_error=float(mean_errors[a] + mean_errors[b]),
            # Two variances and twice a covariance, each off by the shares of its two coordinates.
            variance_error=float(4 * (shares[a] + shares[b])),
        )

    # -- export ------------------------------------------------------------------------------------------------

    def to_xarray(self) -> xarray.Dataset:
        """The moments as a labelled dataset with dimensions state, action and other."""
        try:
            import xarray
        except ImportError:
            raise ImportError("to_xarray needs xarray: pip install 'jointmdp[xarray]'") from None
        model = self.model
        names = {
            "state": list(model.state_names or range(model.num_states)),
            "action": list(model.action_names or range(model.num_actions)),
        }
        blocks = ("state", "action", "other")
        return xarray.Dataset(
            {
                "mean": (("state", "action"), self.mean),
                "policy": (("state", "action"), self.policy),
                "second_moment": (blocks, self.second_moment),
                "covariance": (blocks, self.covariance),
                "correlation": (blocks, self.correlation),
            },
            coords={**names, "other": names["action"]},
            attrs={
                "discount": model.discount,
                "sharing": model.sharing,
                "status": self.status.value,
                "mean_error": self.certificate.mean_error,
                "covariance_error": self.certificate.covariance_error,
            },
        )

    def table(self, states: Iterable[StateLike] | None = None) -> list[dict[str, Any]]:
        """One row per state and unordered pair of available actions: a tidy table of gaps."""
        chosen = range(self.model.num_states) if states is None else states
        rows = []
        for s in (self.model.state_index(state) for state in chosen):
            actions = np.flatnonzero(self.model.available[s])
            for i, a in enumerate(actions):
                for b in actions[i + 1 :]:
                    gap = self.gap(s, int(a), int(b))
                    rows.append(
                        {
                            "state": gap.state,
                            "action": gap.action,
                            "other": gap.other,
                            "mean": gap.mean,
                            "std": gap.std,
                            "independent_std": float(np.sqrt(gap.independent_variance)),
                            "variance_error": gap.variance_error,
                            "inferiority_bound": gap.inferiority_bound,
                        }
                    )
        return rows

    def to_csv(self, path: str | os.PathLike[str], states: Iterable[StateLike] | None = None) -> None:
        """Write `table` as a CSV file."""
        rows = self.table(states)
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]) if rows else ["state", "action", "other"])
            writer.writeheader()
            writer.writerows(rows)
