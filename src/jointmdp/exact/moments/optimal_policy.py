"""A policy with the highest mean returns, by policy iteration, and a bound on how far from the best it can be.

The mean returns of a policy are solved for, and an action is replaced where another one is better by more than the
certified errors of both; so every change is an improvement, ties stay as they are, and the iteration ends.

**What may be missing.** Let V be the computed values and ``ρ(s,a) = E[R + γV(S')] − V(s)``, rounding added on the safe
side. Every U with ``U(s) ≥ ρ(s,a) + γ E U(S')`` for all actions bounds what any other policy gives above V: iterating
``V+U ≥ T_a(V+U)`` along its path leaves its return below V+U. The least such U is the optimal value of the same model
with rewards ρ; it is found by policy iteration and then checked. With the discount 1 the inequality is strict, and
policies that do not surely end are covered too: they lose more than any amount.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Never

import numpy as np

from jointmdp.exact.moments.certificates import CHECK_ROOM, mean_operations, pair_operations, supersolution
from jointmdp.exact.moments.single_branch import BranchMean, discounted_solver, fills_in, solve_mean
from jointmdp.ground import checks
from jointmdp.ground.arrays import UNIT, Bools, Floats, Ints
from jointmdp.ground.errors import ModelError
from jointmdp.model.gumbel_max import GumbelModel
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.policies import uniform_policy
from jointmdp.model.tables import idle_states, reachable

SHOWN = 6  # states that a repr lists
BETTER = 1e-12  # relative gain below which the search for U stops; the check that follows has room for it


@dataclass(frozen=True, eq=False, repr=False)
class OptimalPolicy:
    """One action for each state; wherever a policy is asked for it serves as its ``[S, A]`` array."""

    model: JointMDP
    actions: Ints  # [S]
    values: Floats  # [S] mean returns
    loss_bounds: Floats  # [S]
    """Certified bound, state by state, on how much more the best policy can give on average, or how much less cost:
    more than this policy does, and more than `values` says."""
    minimise: bool = False
    """Whether returns are costs, and the policy is to have the lowest."""

    @property
    def loss_bound(self) -> float:
        """The largest of them; infinite where going round in circles costs nothing and the discount is 1."""
        return float(self.loss_bounds.max())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.eye(self.model.num_actions)[self.actions].astype(np.float64 if dtype is None else dtype)

    def __repr__(self) -> str:
        model, rest = self.model, self.model.num_states - SHOWN
        shown = [f"{model.state_label(s)}: {model.action_label(int(a))}" for s, a in enumerate(self.actions[:SHOWN])]
        more = f", and {rest} more" if rest > 0 else ""
        amounts, beside = ("costs", "above") if self.minimise else ("returns", "below")
        known = f"at most {self.loss_bound:.1e} {beside} the best" if np.isfinite(self.loss_bound) else "not certified"
        return f"OptimalPolicy({', '.join(shown)}{more}; mean {amounts} {known})"


def optimal_policy(model: JointMDP, *, minimise: bool = False, **unknown: Never) -> OptimalPolicy:
    """A policy with the highest mean return in every state, with a certified bound on what it may lack.

    With `minimise`, rewards are costs, and the mean return is the lowest. Sharing and coupling do not matter: they
    change no mean. The discount may be 1 where the model can be made to end from every state.
    """
    checks.refuse_keywords(unknown, optimal_policy)
    if not isinstance(model, JointMDP):
        raise ModelError(f"the model must be a JointMDP, not {type(model).__name__}")
    if minimise:
        best = optimal_policy(model.with_opposite_rewards())
        return replace(best, model=model, values=0.0 - best.values, minimise=True)
    if isinstance(model, GumbelModel):
        return replace(optimal_policy(model.alone), model=model)
    choices, g = _Choices(model), model.discount
    if g == 1:
        actions = choices.ending()
    else:  # the highest mean reward in each state
        rewards = np.einsum("sw,swa->sa", model.probabilities, model.rewards)
        actions = np.argmax(np.where(model.available, rewards, -np.inf), axis=1)
    while True:
        if (endless := choices.endless(actions)) is not None:
            raise ModelError(
                f"discount is 1, and from {model.state_label(endless)} on it is better never to end; give a discount "
                "below 1"
            )
        state = solve_mean(model, np.eye(model.num_actions)[actions])
        advantages, lower, upper, errors = choices.assessed(actions, state)
        now, best = np.take_along_axis(upper, actions[:, None], axis=1)[:, 0], np.argmax(lower, axis=1)
        is_better = np.take_along_axis(lower, best[:, None], axis=1)[:, 0] > now
        if not is_better.any():
            break
        actions = np.where(is_better, best, actions)
    sums = 4 * UNIT * (np.abs(state.values) + np.abs(state.offset))  # the offset is a quotient, the value a sum
    loss = (1 + CHECK_ROOM) * (choices.excess(advantages, actions, state.idle) + errors + sums)
    return OptimalPolicy(model, actions, state.values + state.offset + 0.0, loss)


class _Choices:
    """The ordinary MDP behind a model, and which of its states are over whatever is done."""

    def __init__(self, model: JointMDP) -> None:
        self.model = model
        self.kernel = model.marginal_mdp().kernel  # [S·A, S]
        self.is_over = idle_states(model, uniform_policy(model))
        self.relative = pair_operations(model.num_scenarios, 1) * UNIT

    def ending(self) -> Ints:
        """Actions that come nearer to the end with positive probability, so that they surely reach it."""
        model = self.model
        possible = model.is_possible
        actions, is_near = np.argmax(model.available, axis=1), self.is_over.copy()
        while True:
            nears = np.any(possible & is_near[model.successors], axis=1)  # [S, A]
            found = ~is_near & nears.any(axis=1)
            if not found.any():
                break
            actions[found] = np.argmax(nears[found], axis=1)
            is_near |= found
        if not is_near.all():
            where = model.state_label(int(np.flatnonzero(~is_near)[0]))
            raise ModelError(
                f"discount is 1, and from {where} rewards come for ever whatever is done; give a discount below 1"
            )
        return actions

    def endless(self, actions: Ints) -> int | None:
        """A state from which these actions never come to the end; None where they surely do, or need not."""
        if self.model.discount < 1:
            return None
        rows = self.kernel[np.arange(len(actions)) * self.model.num_actions + actions]
        ends = reachable(rows.T.tocsr(), np.flatnonzero(self.is_over))
        left = np.setdiff1d(np.arange(len(actions)), ends)
        return int(left[0]) if len(left) else None

    def assessed(self, actions: Ints, state: BranchMean) -> tuple[Floats, Floats, Floats, Floats]:
        """One backup of a policy's values: ρ, what each action gives from below and from above, errors of values."""
        model, g, v, n = self.model, self.model.discount, state.values, self.model.successors

        def expect(table: Floats) -> Floats:
            return np.einsum("sw,swa->sa", model.probabilities, table)

        q = expect(state.rewards + g * v[n])
        rounding = mean_operations(model.num_scenarios, 1) * UNIT * expect(state.sizes + g * np.abs(v[n]))
        rounding = rounding + 4 * UNIT * np.abs(v)[:, None]
        own = np.take_along_axis(np.abs(q - v[:, None]) + rounding, actions[:, None], axis=1)[:, 0]
        errors = supersolution(state.kernel, g, state.solve, np.where(state.idle, 0.0, own), self.relative)
        unsure = rounding + g * expect(errors[n])
        advantages = np.where(model.available, q - v[:, None] + rounding, -np.inf)
        lower, upper = (np.where(model.available, q + sign * unsure, -np.inf) for sign in (-1, 1))
        return advantages, lower, upper, errors

    def excess(self, advantages: Floats, actions: Ints, idle: Bools) -> Floats:
        """U, ``[S]``: what any policy can give above the values that the advantages ``[S, A]`` belong to."""
        model, g, size = self.model, self.model.discount, self.model.num_states
        is_over = self.is_over & idle  # where values are exactly 0, and nobody can do more
        is_open = model.available & ~is_over[:, None]
        top = float(np.max(advantages, where=is_open, initial=0.0))
        if top == 0:
            return np.zeros(size)
        uniform = np.full(size, (1 + CHECK_ROOM) * top / (1 - g) if g < 1 else np.inf)
        added = np.where(is_open, advantages + CHECK_ROOM * top, np.where(model.available, 0.0, -np.inf))
        index, chosen = np.arange(size), actions
        while self.endless(chosen) is None:
            rows = self.kernel[index * model.num_actions + chosen].multiply(~is_over[:, None]).tocsr()
            U = discounted_solver(rows, g, fills_in(rows))(added[index, chosen])
            later = g * (self.kernel @ U).reshape(size, -1)
            best = np.argmax(added + later, axis=1)
            is_better = ((added + later)[index, best] > U + BETTER * np.max(U)) & ~is_over
            if not is_better.any():
                room = U[:, None] - later - advantages
                is_sure = np.all(room >= 2 * self.relative * np.max(U), where=is_open) and np.min(U) >= 0
                return np.minimum(U, uniform) if is_sure else uniform
            chosen = np.where(is_better, best, chosen)
        return uniform
