"""How much the coupling of an ordinary MDP matters: the least and the largest variance of every gap over all of them.

An ordinary MDP fixes the law of each action and leaves open how outcomes of different actions go together. Means and
variances of returns do not depend on it; covariances of two actions, and so variances of gaps, do. `coupling_bounds`
says how much at most, under ``sharing="state"``. See `extreme_covariances` for the mathematics.

With two actions in each state both ends are attained, in all states by one coupling, which `CouplingBounds.model`
gives. With more, each pair of actions has its own best joint law, and these need not fit together into one law of all
actions: the bounds are valid, and may be wider than what couplings can do. Under a deterministic policy each end is
attained by a coupling for its own pair, since branches that meet are one and only the first step's coupling matters.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from jointmdp import checks
from jointmdp.arrays import Bools, Floats
from jointmdp.bounds.cantelli import cantelli
from jointmdp.bounds.extreme_covariances import ActionPair, ExtremeCovariances, Extremes
from jointmdp.bounds.marginal_returns import marginal_returns, possible_outcomes
from jointmdp.bounds.transports import Transport, solver
from jointmdp.errors import ConvergenceWarning, ModelError
from jointmdp.intervals import Interval
from jointmdp.model.action_laws import ActionLaws
from jointmdp.model.couplings import coupled_tables
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.ordinary_models import ordinary_model
from jointmdp.model.policies import as_policy
from jointmdp.model.tables import ActionLike, StateLike

MOST_STATES = 2000  # arrays over pairs of states, some dozens of them
MAX_ENTRIES = 20_000_000
VARIANCE_ROUNDING = 8 * float(np.finfo(np.float64).eps)
SHOWN = 8  # gaps that a text lists

End = Literal["least", "largest"]


@dataclass(frozen=True, eq=False, repr=False)
class CouplingBounds:
    """The least and the largest covariances and gap variances over every coupling of given marginals.

    All ends are certified, rounding included: no coupling lies outside, and ends are farther out than they need to be
    by no more than the errors say. Entries of unavailable actions are NaN.
    """

    mean: Floats  # [S, A]
    """Mean returns, the same under every coupling."""
    mean_error: float
    least_covariance: Floats  # [S, A, A]
    largest_covariance: Floats  # [S, A, A]
    least_variance: Floats  # [S, A, A]
    """``least_variance[s, a, b]`` bounds Var(Z(s,a) − Z(s,b)) from below."""
    largest_variance: Floats  # [S, A, A]
    error: float
    """How far an end of a covariance of two actions may lie outside of the exact bound."""
    variance_error: float
    """The same for variances of gaps."""
    rounds: int
    """Rounds of transports that were needed, for both ends together."""
    _base: JointMDP
    _laws: ActionLaws
    _plans: dict[str, dict[ActionPair, Transport]]

    def variance(self, state: StateLike, action: ActionLike, other: ActionLike) -> Interval:
        """Between which ends the variance of the gap ``Z(s,a) − Z(s,b)`` lies, whatever the coupling is."""
        place = self._place(state, action, other)
        return Interval(float(self.least_variance[place]), float(self.largest_variance[place]))

    def std(self, state: StateLike, action: ActionLike, other: ActionLike) -> Interval:
        """The same for the standard deviation."""
        return Interval(*map(math.sqrt, self.variance(state, action, other)))

    def superiority(self, state: StateLike, action: ActionLike, other: ActionLike) -> Interval:
        """P(Z(s,a) > Z(s,b)) under every coupling, as far as mean and largest variance say it (Cantelli)."""
        s, a, b = self._place(state, action, other)
        gap, room = float(self.mean[s, a] - self.mean[s, b]), 2 * self.mean_error
        most = self.largest_variance[s, a, b]
        if a == b:
            return Interval(0.0, 0.0)
        return Interval(1 - cantelli(gap - room, most), cantelli(-gap - room, most))

    def model(self, variance: End) -> JointMDP:
        """A model whose gaps have the least (the largest) variances, in all states at once.

        For models with at most two actions in each state. With more actions the best joint laws of pairs need not fit
        together, so that no coupling may have all the variances of the bounds.
        """
        if variance not in self._plans:
            raise ModelError(f'variance is {variance!r}; it must be "least" or "largest"')
        counts = self._base.available.sum(axis=1)
        if at := checks.first_place(counts > 2):
            raise ModelError(
                f"{self._base.state_label(at[0])} has {counts[at]} actions: the best joint laws of its pairs of "
                "actions need not fit together into one law of all of them, so there may be no such model; with two "
                "actions in each state there is"
            )
        plans = {pair[0]: (pair, plan) for pair, plan in self._plans[variance].items()}

        def coupling(state: int, laws: list[Floats]) -> tuple[Floats, Any]:
            if state not in plans:
                (action,) = np.flatnonzero([len(law) for law in laws])
                choices = np.zeros((len(laws[action]), len(laws)))
                choices[:, action] = np.arange(len(laws[action]))
                return laws[action], choices
            (_, a, b), plan = plans[state]
            choices = np.zeros((len(plan.masses), len(laws)))
            choices[:, a], choices[:, b] = plan.rows, plan.columns
            return plan.masses, choices

        tables = coupled_tables(self._laws, coupling, False, MAX_ENTRIES)
        base = self._base
        exists, states, actions = base.available, base.state_names, base.action_names
        return JointMDP(*tables, base.discount, available=exists, state_names=states, action_names=actions)

    def _place(self, state: StateLike, action: ActionLike, other: ActionLike) -> tuple[int, int, int]:
        s, (a, b) = self._base.query_indices(state, (action, other))
        return s, a, b

    def __repr__(self) -> str:
        S, A = self.mean.shape
        known = 10.0 ** math.ceil(math.log10(self.error)) if self.error > 0 else 0.0  # what it is below says enough
        return (
            f"CouplingBounds({S} states, {A} actions, discount {self._base.discount:g}; covariances certified to "
            f"{known:.0e})"
        )

    def __str__(self) -> str:
        """The gaps whose variance depends most on the coupling."""
        base = self._base
        width = np.sqrt(self.largest_variance) - np.sqrt(self.least_variance)
        upper = np.triu(np.ones(width.shape[1:], dtype=bool), 1)
        order = np.argsort(np.where(upper & np.isfinite(width), -width, np.inf), axis=None, kind="stable")
        lines = [f"{self!r}", "Gaps whose standard deviation depends most on the coupling:"]
        for s, a, b in zip(*np.unravel_index(order[:SHOWN], width.shape), strict=True):
            if a < b and np.isfinite(width[s, a, b]):
                names = f"{base.action_label(int(a))} − {base.action_label(int(b))} in {base.state_label(int(s))}"
                gap = self.mean[s, a] - self.mean[s, b]
                std = self.std(int(s), int(a), int(b))
                lines.append(f"  {names}: {gap:.6g} ± between {std.lower:.6g} and {std.upper:.6g}")
        return "\n".join(lines)


def coupling_bounds(  # many parameters: those of `from_mdp`, and a policy
    transitions: Any,
    rewards: Any,
    discount: float,
    policy: ArrayLike,
    *,
    available: ArrayLike | None = None,
    state_names: Sequence[Any] | None = None,
    action_names: Sequence[Any] | None = None,
    relative_tolerance: float = 1e-8,
) -> CouplingBounds:
    """The least and the largest covariance of every two actions over all couplings, under ``sharing="state"``.

    Args:
        transitions, rewards, discount, available, state_names, action_names: as in `from_mdp`; the discount is below 1.
        policy: what is done after the first action, as in `evaluate`.
        relative_tolerance: of the covariances, relative to the largest variance of a return; a warning says where it
            was not met. The bounds hold in any case.

    Needs the package POT, for optimal transport: ``pip install 'jointmdp[transport]'``.
    """
    solver()  # to say at once that it is missing
    found = ordinary_model(transitions, rewards, available, state_names, action_names)
    laws = possible_outcomes(found.laws)
    if laws.num_states > MOST_STATES:
        raise ModelError(
            f"bounds over all couplings need arrays over pairs of states; {laws.num_states} states are more than "
            f"{MOST_STATES}"
        )
    base = JointMDP(*coupled_tables(laws, "comonotone", False, MAX_ENTRIES), discount, **found.names_and_actions())
    if base.discount >= 1:
        raise ModelError("discount is 1: bounds over all couplings need a discount below 1")
    tolerance = checks.as_positive("relative_tolerance", relative_tolerance)
    returns = marginal_returns(laws, as_policy(base, policy), base.discount)
    scale, off = float(np.max(returns.variance)), returns.variance_error
    pairs = _pairs(base.available)
    least, largest = (ExtremeCovariances(returns, pairs, sign).found(tolerance * scale) for sign in (-1, 1))
    error = max(least.error, largest.error)
    if error > tolerance * scale > 0:
        message = f"covariances are certified to {error:.1e} only, not to {tolerance:.1e} of the largest, {scale:.3g}"
        warnings.warn(message, ConvergenceWarning, stacklevel=2)
    exists, (lower, upper) = base.available, (returns.variance - off, returns.variance + off)
    least_covariance = _covariances(exists, lower, least, -1)
    largest_covariance = _covariances(exists, upper, largest, 1)
    return CouplingBounds(
        mean=np.where(exists, returns.mean, np.nan),
        mean_error=returns.mean_error,
        least_covariance=least_covariance,
        largest_covariance=largest_covariance,
        least_variance=_gap_variances(lower, largest_covariance, -1),
        largest_variance=_gap_variances(upper, least_covariance, 1),
        error=error,
        variance_error=2 * error + 4 * off + VARIANCE_ROUNDING * 8 * (scale + off),
        rounds=least.rounds + largest.rounds,
        _base=base,
        _laws=laws,
        # The largest covariance goes with the least variance of a gap.
        _plans={"least": largest.plans, "largest": least.plans},
    )


def _pairs(exists: Bools) -> list[ActionPair]:
    """Each two available actions of each state once."""
    actions = range(exists.shape[1])
    return [(s, a, b) for s, row in enumerate(exists) for a in actions for b in range(a) if row[a] and row[b]]


def _covariances(exists: Bools, own: Floats, ends: Extremes, sign: int) -> Floats:
    """Covariances ``[S, A, A]`` from what was found for pairs, and variances on the diagonal."""
    S, A = exists.shape
    table = np.full((S, A, A), np.nan)
    table[:, np.arange(A), np.arange(A)] = np.where(exists, np.maximum(own, 0.0), np.nan)
    for (s, a, b), value in ends.values.items():
        table[s, a, b] = table[s, b, a] = sign * value
    return table


def _gap_variances(own: Floats, covariance: Floats, sign: int) -> Floats:
    """Var Z(a) + Var Z(b) − 2 Cov, rounded outward in the direction of `sign`; exactly zero for one action."""
    both = own[:, :, None] + own[:, None, :]
    rounding = VARIANCE_ROUNDING * (np.abs(both) + np.abs(covariance))
    found = np.maximum(both - 2 * covariance + sign * rounding, 0.0)
    actions = np.arange(own.shape[1])
    found[:, actions, actions] *= 0.0
    return np.asarray(found)
