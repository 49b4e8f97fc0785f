"""How much the coupling of an ordinary MDP matters: the least and the largest variance of every gap over all of them.

An ordinary MDP fixes the law of each action and leaves open how outcomes of different actions go together. Means and
variances of returns do not depend on it; covariances of two actions, and so variances of gaps, do. `coupling_bounds`
says how much at most, under ``sharing="state"``, where covariances C of returns obey (centred form)

    C(s,s̃) = γ² (P C Pᵀ)(s,s̃)                                          for s ≠ s̃,
    C(s,s) = Σ_a π(a|s)² Var Z(s,a) + Σ_{a≠b} π(a|s) π(b|s) C_ab(s),
    C_ab(s) = E[b̃_a(S'_a) b̃_b(S'_b) + γ² C(S'_a, S'_b)],     b̃ = b − E b,  b = R + γv(S').

Couplings enter in the last line alone, and larger covariances at successors make every entry larger. So the largest
value of the last line over all joint laws of ``(S'_a, S'_b)``, an optimal transport, gives a map T that is monotone and
obeys ``T(C + c) ≤ T(C) + γ²c`` for constants c ≥ 0. No coupling has covariances above its fixed point C*, and with two
actions in each state the transports at C* are a coupling that has them, which `CouplingBounds.model` gives. With more,
each pair of actions has its own best joint law, and these need not fit together into one law of all actions: the bounds
are valid, and may be wider than what couplings can do. Under a deterministic policy each end is attained by a coupling
for its own pair, since branches that meet are one and only the first step's coupling matters.

The fixed point is found as policies are improved: transports for the C at hand, then the linear equations of these
transports by GMRES. It is certified from what was found alone: ``T(C) ≤ C + r`` gives ``C* ≤ C + r/(1−γ²)``. The least
covariances are the largest of −C, with ``−b̃b̃`` in place of ``b̃b̃``. What a transport gains is bounded without leaning
on its solver: by weak duality any u and z with ``u_i + z_j ≥ g_ij`` bound ``Σ w_ij g_ij`` by ``Σ p_i u_i + Σ q_j z_j``
for all joint laws w with marginals p and q. The solver's own u serves, whatever it is: with
``z_j = max_i (g_ij − u_i)`` no inequality is broken. In the code costs ``max g − g`` stand for gains.

Of each action by itself: with ``v = Πr̄ + γPv`` and ``B(s) = Var_{A,S'} b + γ²(PB)(s)``, the variance of the return of
action a is ``Var b_a + γ² E B(S'_a)``. Errors follow from residuals, as in `moments.certificates`:

    |e_v| ≤ r_v/(1−γ) =: δ,   |e_B| ≤ (r_B + 2σγδ + γ²δ²)/(1−γ²).
"""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg
from numpy.typing import ArrayLike

from jointmdp.exact.bounds.moment_bounds import cantelli
from jointmdp.ground import checks
from jointmdp.ground.arrays import UNIT, Bools, Floats, Ints, summed
from jointmdp.ground.errors import ConvergenceWarning, ModelError
from jointmdp.ground.intervals import Interval
from jointmdp.model.action_laws import ActionLaw, ActionLaws
from jointmdp.model.couplings import coupled_tables
from jointmdp.model.from_mdp import ordinary_model
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.policies import as_policy
from jointmdp.model.tables import ActionLike, StateLike

MOST_STEPS = 10_000_000  # of the network simplex method


class Transport(NamedTuple):
    """A joint law of the outcomes of two actions."""

    rows: Ints  # [n] outcomes of the first
    columns: Ints  # [n] outcomes of the second
    masses: Floats  # [n]
    value: float  # it gains at least this, rounding included
    bound: float  # no joint law gains more, rounding included


def solver() -> Any:
    """The package with the network simplex method."""
    try:
        return importlib.import_module("ot")
    except ImportError as error:
        raise ImportError(
            "coupling_bounds needs POT for optimal transport, which is not installed: pip install 'jointmdp[transport]'"
        ) from error


def best_transport(p: Floats, q: Floats, gain: Floats) -> Transport:
    """The joint law with marginals p and q that gains most; `gain` is ``[K, L]``."""
    # A constant changes no plan. Without it numbers are as large as they differ, and so is rounding.
    base = float(gain.max())
    cost = np.ascontiguousarray(base - gain)
    scale = float(cost.max())
    if len(p) == 1 or len(q) == 1 or scale == 0:
        plan = np.outer(p, q)
        u = np.zeros(len(p)) if len(p) > 1 else cost.min(axis=1)
        u = cost[:, 0] if len(q) == 1 else u
    else:
        plan, log = solver().emd(p / p.sum(), q / q.sum(), cost / scale, numItermax=MOST_STEPS, log=True)
        u = scale * log["u"]
    z = np.min(cost - u[:, None], axis=0)
    u = np.min(cost - z, axis=1)
    rows, columns = np.nonzero(plan)
    masses = plan[rows, columns]
    sizes = abs(base) + scale + float(np.max(np.abs(u))) + float(np.max(np.abs(z)))
    rounding = 4 * (len(p) + len(q) + 16) * UNIT * sizes
    value = base - float(masses @ cost[rows, columns]) - rounding
    return Transport(rows, columns, masses, value, base - float(p @ u + q @ z) + rounding)


OUTWARD = 1 + 1e-9  # pays for the rounding of the few operations that make a bound of its parts


class MarginalReturns(NamedTuple):
    """Numbers of one branch; laws are numbered ``l = s·A + a``."""

    laws: ActionLaws
    policy: Floats  # [S, A]
    discount: float
    kernel: sp.csr_array  # [S, S] the policy's P
    outcomes: Floats  # [N] b − E b, one for each outcome of `laws`
    mean: Floats  # [S, A]
    variance: Floats  # [S, A]
    mean_error: float
    variance_error: float
    step_error: float  # of a covariance of b for two actions of a state, whatever joins them

    def law(self, number: int) -> tuple[ActionLaw, Floats]:
        """A law, and ``b − E b`` of its outcomes."""
        return self.laws.law(number), self.outcomes[self.laws.starts[number] : self.laws.starts[number + 1]]

    @property
    def rounding(self) -> float:
        """Relative rounding of one expectation over two successors."""
        return 8 * (int(self.laws.sizes.max()) * self.laws.num_actions + 16) * UNIT


def possible_outcomes(laws: ActionLaws) -> ActionLaws:
    """The laws without outcomes that have probability zero."""
    kept = laws.probabilities > 0
    starts = np.concatenate([[0], np.cumsum(kept)])[laws.starts]
    return ActionLaws(starts, laws.probabilities[kept], laws.rewards[kept], laws.successors[kept], laws.num_actions)


def marginal_returns(laws: ActionLaws, policy: Floats, discount: float) -> MarginalReturns:
    """Mean and variance of the return of every action under a policy, with a discount below 1."""
    S, A, g = laws.num_states, laws.num_actions, discount
    p, owners = laws.probabilities, np.repeat(np.arange(S * A), laws.sizes)
    by_law = sp.csr_array((p, (owners, laws.successors)), shape=(S * A, S))
    chosen = sp.csr_array((policy.ravel(), (np.repeat(np.arange(S), A), np.arange(S * A))), shape=(S, S * A))
    kernel = (chosen @ by_law).tocsr()

    def expect(values: Floats) -> Floats:
        return summed(owners, p * values, S * A)

    # Covariances see values up to a constant. Relative to one in their midst, numbers are as large as they differ.
    v = _solved(kernel, g, chosen @ expect(laws.rewards))
    level = float(v.max() + v.min()) / 2
    rewards = laws.rewards - (1 - g) * level
    v = _solved(kernel, g, chosen @ expect(rewards))
    b = rewards + g * v[laws.successors]
    mean = expect(b)
    centred = b - mean[owners]
    spread = expect(centred**2)
    added = chosen @ (spread + (mean - np.repeat(v, A)) ** 2)
    B = _solved(kernel, g**2, added)

    operations = 4 * (int(laws.sizes.max()) + A + 8) * UNIT
    sizes = float(np.max(np.abs(rewards))) + (1 - g) * abs(level) + float(np.max(np.abs(v)))
    off = float(np.max(np.abs(chosen @ mean - v))) + operations * sizes
    delta = OUTWARD * off / (1 - g)
    d = g * delta + operations * sizes  # of b, its mean, and what is left when they are subtracted
    step = 2 * float(np.sqrt(np.max(spread))) * d + d**2 + operations * float(np.max(spread))
    # The variance over actions is taken around v, which is off from their mean by what v leaves open.
    branch = 2 * float(np.sqrt(np.max(added))) * d + d**2 + off**2 + operations * float(np.max(added))
    off = float(np.max(np.abs(added + g**2 * (kernel @ B) - B))) + operations * float(np.max(B))
    error = OUTWARD * (off + branch) / ((1 - g) * (1 + g))
    variance = spread + g**2 * (by_law @ B)
    error = g**2 * error + step + operations * float(np.max(variance))
    shape = (S, A)
    return MarginalReturns(
        laws,
        policy,
        g,
        kernel,
        centred,
        mean.reshape(shape) + level,
        variance.reshape(shape),
        OUTWARD * (d + operations * (sizes + abs(level))),
        OUTWARD * error,
        OUTWARD * step,
    )


def _solved(kernel: sp.csr_array, factor: float, right: Floats) -> Floats:
    """x = right + factor·Px, with a step of refinement."""
    matrix = sp.eye_array(len(right), format="csc") - factor * kernel.tocsc()
    factors = scipy.sparse.linalg.splu(matrix.tocsc())
    x = factors.solve(right)
    return np.asarray(x + factors.solve(right + factor * (kernel @ x) - x))


MOST_ROUNDS = 100
KRYLOV_ACCURACY = 1e-10  # of a correction; the next pass gives as many digits again
KRYLOV_STEPS = 30
PASSES = 3
PATIENCE = 3  # rounds without progress after which digits are used up

ActionPair = tuple[int, int, int]  # state, action, other action


class Extremes(NamedTuple):
    """The largest values of ``sign·C_ab(s)`` over all couplings."""

    values: dict[ActionPair, float]  # never below the truth
    error: float  # nor farther from the fixed point than this
    plans: dict[ActionPair, Transport]
    rounds: int


class ExtremeCovariances:
    """The recursion for ``N = sign·C``; with ``sign = −1`` its largest values are the least covariances."""

    def __init__(self, returns: MarginalReturns, pairs: list[ActionPair], sign: int) -> None:
        self.returns, self.sign, self.pairs = returns, sign, pairs
        self.factor = returns.discount**2
        policy = returns.policy
        self.weights = {(s, a, b): 2 * float(policy[s, a] * policy[s, b]) for s, a, b in pairs}
        self.weighted = [pair for pair in pairs if self.weights[pair] > 0]
        self.own = sign * np.sum(policy**2 * returns.variance, axis=1)

    def _sides(self, pair: ActionPair) -> tuple[int, int]:
        s, a, b = pair
        return s * self.returns.laws.num_actions + a, s * self.returns.laws.num_actions + b

    def _product(self, pair: ActionPair) -> Floats:
        (_, left), (_, right) = (self.returns.law(number) for number in self._sides(pair))
        return self.sign * np.outer(left, right)

    def transport(self, pair: ActionPair, N: Floats) -> Transport:
        """The best joint law of two actions of a state, where the covariances of what follows are N."""
        (left, _), (right, _) = (self.returns.law(number) for number in self._sides(pair))
        gain = self._product(pair) + self.factor * N[np.ix_(left.successors, right.successors)]
        return best_transport(left.probabilities, right.probabilities, gain)

    def apart(self, N: Floats) -> Floats:
        """γ² P N Pᵀ."""
        P = self.returns.kernel
        return self.factor * (P @ (P @ N).T).T

    def applied(self, N: Floats) -> tuple[dict[ActionPair, Transport], float, float]:
        """T(N) by transports, with r and r' such that ``N − r' ≤ T(N) ≤ N + r``, rounding included."""
        plans = {pair: self.transport(pair, N) for pair in self.weighted}
        upper, lower = self.own.copy(), self.own.copy()
        for pair, plan in plans.items():
            upper[pair[0]] += self.weights[pair] * plan.bound
            lower[pair[0]] += self.weights[pair] * plan.value
        off = self.apart(N) - N
        np.fill_diagonal(off, 0.0)
        held = np.diagonal(N)
        rounding = self.returns.rounding * float(np.max(np.abs(N)) + np.max(np.abs(self.own)))
        above = max(float(off.max()), float(np.max(upper - held)), 0.0) + rounding
        below = max(float(-off.min()), float(np.max(held - lower)), 0.0) + rounding
        return plans, above, below

    def solved(self, plans: dict[ActionPair, Transport], N: Floats) -> Floats:
        """The fixed point for these joint laws, from a first guess."""
        size, added = len(N), self.own.copy()
        none = np.zeros(0, dtype=np.int64)
        entries = [(none, none, none, np.zeros(0))]  # state, successors of both, and weighted mass
        for pair, plan in plans.items():
            first, second = (self.returns.laws.law(number) for number in self._sides(pair))
            mass = self.weights[pair] * plan.masses
            added[pair[0]] += mass @ self._product(pair)[plan.rows, plan.columns]
            to = first.successors[plan.rows], second.successors[plan.columns]
            entries.append((np.full(len(mass), pair[0]), *to, mass))
        states, x, y, masses = (np.concatenate(part) for part in zip(*entries, strict=True))

        def step(M: Floats) -> Floats:
            later = self.apart(M)
            met = np.bincount(states, masses * M[x, y], minlength=size)
            later[np.diag_indices(size)] = self.factor * met
            return later

        def residual(M: Floats) -> Floats:
            found = step(M) - M
            found[np.diag_indices(size)] += added
            return found

        operator = scipy.sparse.linalg.LinearOperator(
            (size**2,) * 2, lambda x: x - step(x.reshape(size, size)).ravel(), dtype=np.float64
        )
        for _ in range(PASSES):
            rest = residual(N).ravel()
            if not rest.any():
                break
            more, _ = scipy.sparse.linalg.gmres(operator, rest, rtol=KRYLOV_ACCURACY, restart=KRYLOV_STEPS, maxiter=10)
            N = N + more.reshape(size, size)
        return (N + N.T) / 2

    def found(self, tolerance: float) -> Extremes:
        """Rounds until the certified error is below the tolerance, or digits are used up."""
        size = self.returns.laws.num_states
        gap = (1 - self.returns.discount) * (1 + self.returns.discount)
        N, rounds, missed, least = np.zeros((size, size)), 0, 0, math.inf
        best: tuple[Floats, dict[ActionPair, Transport], float, float] | None = None
        while rounds < MOST_ROUNDS and missed < PATIENCE:
            rounds += 1
            missed += 1  # a round may end farther from the fixed point by rounding alone
            plans, above, below = self.applied(N)
            if best is None or above + below < least:
                best, least, missed = (N, plans, above, below), above + below, 0
            if above + below <= gap * tolerance / 4:
                break
            N = self.solved(plans, N)
        assert best is not None
        N, known, over, under = best
        # One more step for all pairs, with what is left of the error added. Where variances are off by no more than e,
        # covariances that are off by e stay so: they enter C(s,s) in shares.
        step, own = self.returns.step_error, self.returns.variance_error
        above, below = (OUTWARD * ((each + step) / gap + own) for each in (over, under))
        room = step + self.returns.rounding * float(np.max(np.abs(N)))
        values, plans, error = {}, {}, 0.0
        for pair in self.pairs:
            plan = known.get(pair) or self.transport(pair, N)
            top = plan.bound + OUTWARD * (self.factor * above + room)
            bottom = plan.value - OUTWARD * (self.factor * below + room)
            values[pair], plans[pair], error = top, plan, max(error, top - bottom)
        return Extremes(values, error, plans, rounds)


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
