"""Moments of all actions of one state, without the array of all pairs of states: S·A² numbers are kept of S²."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jax import Array

from jointmdp.arrays import Floats
from jointmdp.errors import NotKnownError
from jointmdp.moments.stored_moments import StateMoments


@dataclass(frozen=True, eq=False, repr=False)
class SameStateMoments(StateMoments):
    """Moments where `D` is E_w D(S'_a, S'_b), ``[S, A, A]``, and `errors.pairs` the share of each state, ``[S, 1]``."""

    @property
    def C(self) -> Array:
        """Not kept."""
        raise _not_kept()

    def _later(self, s: int, a: int, b: int) -> tuple[float, float]:
        p, n, shares = self.model.probabilities[s], self.model.successors[s], self.errors.pairs[:, 0]
        return float(self._on_host[2][s, a, b]), float(p @ (shares[n[:, a]] + shares[n[:, b]]))

    def blocks(self, states: Sequence[int], actions: Sequence[int]) -> Floats:
        """By one backup, with E_w C(S'_a, S'_b) = E_w [B(S'_a) + B(S'_b) − D(S'_a, S'_b)] / 2 where a ≠ b."""
        model, rows, columns = self.model, np.asarray(states), np.asarray(actions)
        g, p, n = model.discount, model.probabilities[rows], model.successors[rows][:, :, columns]
        rewards, v, later = self._on_host
        b = rewards[rows][:, :, columns] + g * v[n]
        x = b - np.einsum("sw,swa->sa", p, b)[:, None, :]
        B = np.einsum("sw,swa->sa", p, np.asarray(self.B)[n])
        among = later[rows[:, None, None], columns[:, None], columns[None, :]]
        return np.einsum("sw,swa,swb->sab", p, x, x) + g**2 * (B[:, :, None] + B[:, None, :] - among) / 2

    def between(self, s: int, a: int, t: int, b: int) -> float:
        """Not kept."""
        raise _not_kept()

    def across(self) -> Floats:
        """Not kept."""
        raise _not_kept()


def _not_kept() -> NotKnownError:
    return NotKnownError(
        "covariances of distinct states are not kept: of so many states only the pairs are that actions of one state "
        "need; gaps and covariances of actions of one state are known"
    )
