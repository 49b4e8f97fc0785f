"""Moments E[Z(x)ⁱ Z(y)ʲ] of two returns, each solved for when it is first asked for."""

from __future__ import annotations

import math
import warnings
from functools import cached_property, partial

import numpy as np
from jax import Array

from jointmdp.arrays import Floats, on_device
from jointmdp.bellman import second_moments
from jointmdp.bellman.second_moments import Tables
from jointmdp.errors import ConvergenceWarning, ModelError, Status
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.moments import pair_solver
from jointmdp.moments.higher_solver import Effort, Higher, solve_order, swept
from jointmdp.moments.power_steps import Layout, Step
from jointmdp.progress import Meter


class JointPowers:
    """c_ij for two branches anywhere, each computed when first asked for."""

    def __init__(self, model: JointMDP, tables: Tables, v: Array, C: Array, higher: Higher, effort: Effort) -> None:
        self.model, self.tables, self.higher, self.effort = model, tables, higher, effort
        self.v = np.asarray(v)
        self.layout = Layout(model, tables, higher.order)
        self.found: dict[tuple[int, int], Floats] = {(1, 1): np.asarray(C)}

    def __call__(self, i: int, j: int) -> Floats:
        """c_ij, ``[S, S]``."""
        if min(i, j) > 0 and (min(i, j), max(i, j)) not in self.found:
            self._check_size(i, j)
            if self.higher.horizon is None:
                self._solve(min(i, j), max(i, j))
            else:
                self._sweep_back(self.higher.horizon)
        return _held(i, j, self.higher.branch, self.found)

    def _check_size(self, i: int, j: int) -> None:
        arrays = i * j if self.higher.horizon is None else self.higher.order**2 // 2
        size = self.model.num_states
        if arrays * size**2 > pair_solver.PAIR_LIMIT:
            raise ModelError(
                f"moments of order {i} and {j} of two returns take {arrays} arrays of {size:,}² numbers"
                f", more than the {pair_solver.PAIR_LIMIT:,} numbers that fit; gaps have moments of the same order"
            )

    def _solve(self, i: int, j: int) -> None:
        for k in range(1, i + 1):
            for m in range(1, j + 1):
                if k + m < i + j:
                    self(k, m)
        with Meter(f"joint moments of order {i} and {j}") as meter:
            added = self.step.joint(i, j, self.higher.branch, self)
            found = solve_order(self.layout, added, i + j, 1 if i == j else 0, self.effort, meter)
        if not found.is_reached:
            warnings.warn(Status.STEP_LIMIT.value, ConvergenceWarning, stacklevel=5)
        self.found[i, j] = found.values

    @cached_property
    def step(self) -> Step:
        """One step about the values."""
        return Step(self.layout, self.v, self.v)

    def _sweep_back(self, horizon: int) -> None:
        """All c_ij over the horizon; they need the values of every step on the way."""
        order, size = self.higher.order, self.model.num_states
        asked = [(i, total - i) for total in range(2, order + 1) for i in range(1, total // 2 + 1)]
        c = np.zeros((order + 1, size))
        c[0] = 1.0
        found = {key: np.zeros((size, size)) for key in asked}
        v = np.zeros(size)
        with Meter("joint moments") as meter:
            for done in range(horizon - 1):
                now = np.asarray(second_moments.state_mean(self.tables, second_moments.mean(self.tables, on_device(v))))
                step = Step(self.layout, v, now)
                held = partial(_held, c=c, found=found)
                after = {}
                for i, j in asked:
                    after[i, j] = swept(self.layout, step.joint(i, j, c, held), i + j, found[i, j])
                moments = [step.branch(i, c, i, self.layout.chance) for i in range(2, order + 1)]
                c, found, v = np.stack([c[0], c[1], *moments]), after, now
                meter.update((done + 1) / horizon, f"step {done + 1} of {horizon}")
        self.found = found

    def central(self, i: int, j: int) -> Floats:
        """E[(Z(s,a)−m(s,a))ⁱ (Z(s,b)−m(s,b))ʲ], ``[S, A, A]``: one backup of the moments on states."""
        model, g = self.model, self.model.discount
        p, n, branch = model.probabilities, model.successors, self.higher.branch
        outcome = np.asarray(self.tables.rewards) + g * self.v[n]
        surplus = outcome - np.einsum("sw,swa->sa", p, outcome)[:, None, :]

        def alone(k: int) -> Floats:
            terms = (math.comb(k, m) * g**m * surplus ** (k - m) * branch[m][n] for m in range(k + 1))
            return np.einsum("sw,swa->sa", p, sum(terms))

        if not self.layout.is_shared or i == 0 or j == 0:
            blocks = alone(i)[:, :, None] * alone(j)[:, None, :]
        else:
            blocks = np.zeros((model.num_states, model.num_actions, model.num_actions))
            for k in range(i + 1):
                for m in range(j + 1):
                    if k + m == 1:
                        continue
                    factor, c = math.comb(i, k) * math.comb(j, m) * g ** (k + m), self(k, m)
                    for w in range(model.num_scenarios):
                        powers = surplus[:, w, :, None] ** (i - k) * surplus[:, w, None, :] ** (j - m)
                        later = c[n[:, w, :, None], n[:, w, None, :]]
                        blocks += factor * p[:, w, None, None] * powers * later
        actions = np.arange(model.num_actions)
        blocks[:, actions, actions] = alone(i + j)
        return blocks


def _held(i: int, j: int, c: Floats, found: dict[tuple[int, int], Floats]) -> Floats:
    """c_ij from what is held: moments of one branch, and of two with i ≤ j."""
    if i > j:
        return _held(j, i, c, found).T
    return np.broadcast_to(c[j], (c.shape[1],) * 2) if i == 0 else found[i, j]
