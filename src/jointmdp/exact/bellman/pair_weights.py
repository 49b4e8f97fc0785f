"""How weights on pairs of coordinates move with the pair process, under each kind of sharing.

Weights ``ξ(x, y)`` are symmetric and not negative. In one step two branches at ``x ≠ y`` move to ``(X', Y')``: by one
scenario in the same state, by independent ones in distinct states (``"state"``) or by the same one (``"time"``), and
with independent next actions. One branch, the diagonal ``x = y``, stays one branch. After a step the actions are the
policy's, so that the weights live on *states*:

    two(s,t)   weight of two branches in s and t whose actions are still to be drawn
    one(s)     weight of one branch in s whose action is still to be drawn

and ``ξ((s,a),(t,b)) = two(s,t) π(a|s) π(b|t) + [s = t, a = b] one(s) π(a|s)``: two branches in one state that draw the
same action are one from then on. Under ``"none"`` the moments of distinct coordinates do not look at any later pair,
and their weight goes nowhere.

These run on the host: they are short sums over tables, and sparse products that JAX on CPUs is slow at.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float
from numpy import ndarray

from jointmdp.ground.arrays import Floats, Ints
from jointmdp.model.episodes import policy_kernel
from jointmdp.model.joint_mdp import JointMDP


class StateWeights(NamedTuple):
    """Weights of branches whose actions are still to be drawn."""

    two: Float[ndarray, "S S"]
    one: Float[ndarray, " S"]


class PairSteps:
    """One step of the pair process of a model under a policy."""

    def __init__(self, model: JointMDP, policy: Floats) -> None:
        self.model, self.policy = model, policy
        S, A, n = model.num_states, model.num_actions, model.successors
        places = np.arange(S * A).reshape(S, 1, A)
        chances = np.where(model.is_possible, model.probabilities[:, :, None], 0.0)
        rows = np.broadcast_to(places, n.shape).ravel()
        self.kernel = sp.csr_array((chances.ravel(), (rows, n.ravel())), shape=(S * A, S))  # P(s'|s,a)
        if model.sharing == "state":
            self._groups = [(1.0, policy_kernel(model, policy))]
        elif model.sharing == "time":
            self._groups = [
                (float(chance), _scenario_kernel(n[:, w, :], policy))
                for w, chance in enumerate(model.probabilities[0])
                if chance > 0
            ]
        else:
            self._groups = []

    def of_coordinates(
        self, same: Float[ndarray, "S A A"], apart: Float[ndarray, "S A S A"] | None = None
    ) -> StateWeights:
        """The weights after one step from ``ξ``, given in the same state and, where there are any, in distinct ones."""
        model, (S, A, _) = self.model, same.shape
        one = self.kernel.T @ np.einsum("saa->sa", same).ravel()
        two = np.zeros((S, S))
        if model.sharing != "none":
            two += self._met(same)
            if apart is not None:
                two += self._parted(apart.reshape(S * A, S * A))
        return StateWeights(two, np.asarray(one))

    def of_states(self, weights: StateWeights) -> StateWeights:
        """The weights after one more step."""
        here = np.einsum("ss->s", weights.two)
        # Two branches in one state that draw the same action go on as one.
        alone = here[:, None] * self.policy**2 + weights.one[:, None] * self.policy
        one = self.kernel.T @ alone.ravel()
        two = (self._meetings @ here).reshape(weights.two.shape)
        away = weights.two - np.diag(here)
        for chance, kernel in self._groups:
            two = two + chance * (kernel.T @ (kernel.T @ away).T).T
        return StateWeights(two, np.asarray(one))

    @cached_property
    def _meetings(self) -> sp.csr_array:
        """Where two branches of one state go whose actions are drawn and differ: pairs of states × states."""
        n, p, policy = self.model.successors, self.model.probabilities, self.policy
        S, W, A = n.shape
        if self.model.sharing == "none":
            return sp.csr_array((S * S, S))
        states = np.broadcast_to(np.arange(S)[:, None], (S, W)).ravel()
        found = sp.csr_array((S * S, S))
        for a, b in np.ndindex(A, A):
            if a != b:
                chances = p * (policy[:, a] * policy[:, b])[:, None]
                cells = (n[:, :, a] * S + n[:, :, b]).ravel()
                found = found + sp.csr_array((chances.ravel(), (cells, states)), shape=(S * S, S))
        return found

    def _met(self, same: Float[ndarray, "S A A"]) -> Float[ndarray, "S S"]:
        """Two branches in one state with distinct actions, by the scenario that they share."""
        n, p = self.model.successors, self.model.probabilities
        S, A = same.shape[:2]
        off = same * (1 - np.eye(A))
        found = np.zeros(S * S)
        for a, b in zip(*np.nonzero(off.any(axis=0)), strict=True):
            found += np.bincount((n[:, :, a] * S + n[:, :, b]).ravel(), (p * off[:, a, b, None]).ravel(), S * S)
        return found.reshape(S, S)

    def _parted(self, apart: Float[ndarray, "X X"]) -> Float[ndarray, "S S"]:
        """Two branches in distinct states."""
        model = self.model
        if model.sharing == "state":
            return np.asarray((self.kernel.T @ (self.kernel.T @ apart).T).T)
        found = np.zeros((model.num_states, model.num_states))
        for w, chance in enumerate(model.probabilities[0]):
            to = model.successors[:, w, :].ravel()
            np.add.at(found, (to[:, None], to[None, :]), chance * apart)
        return found


def on_coordinates(policy: Float[ndarray, "S A"], weights: StateWeights) -> Float[ndarray, "S A A"]:
    """``ξ((s,a),(s,b))`` of weights on states: all pairs of one state."""
    here = np.einsum("ss->s", weights.two)
    both = here[:, None, None] * policy[:, :, None] * policy[:, None, :]
    return both + (weights.one[:, None] * policy)[:, :, None] * np.eye(policy.shape[1])


def _scenario_kernel(successors: Ints, policy: Floats) -> sp.csr_array:
    """P_w(s'|s): the policy's kernel in one scenario."""
    S, A = policy.shape
    rows = np.repeat(np.arange(S), A)
    return sp.csr_array((policy.ravel(), (rows, successors.ravel())), shape=(S, S))
