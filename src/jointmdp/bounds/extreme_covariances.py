"""The largest covariances over all couplings, as the fixed point of a monotone recursion on pairs of states.

Covariances C of returns under ``sharing="state"`` obey (centred form)

    C(s,s̃) = γ² (P C Pᵀ)(s,s̃)                                          for s ≠ s̃,
    C(s,s) = Σ_a π(a|s)² Var Z(s,a) + Σ_{a≠b} π(a|s) π(b|s) C_ab(s),
    C_ab(s) = E[b̃_a(S'_a) b̃_b(S'_b) + γ² C(S'_a, S'_b)],     b̃ = b − E b,  b = R + γv(S').

Couplings enter in the last line alone, and larger covariances at successors make every entry larger. So the largest
value of the last line over all joint laws of ``(S'_a, S'_b)``, an optimal transport, gives a map T that is monotone and
obeys ``T(C + c) ≤ T(C) + γ²c`` for constants c ≥ 0. No coupling has covariances above its fixed point C*, and with two
actions in each state the transports at C* are a coupling that has them.

The fixed point is found as policies are improved: transports for the C at hand, then the linear equations of these
transports by GMRES. It is certified from what was found alone: ``T(C) ≤ C + r`` gives ``C* ≤ C + r/(1−γ²)``, where
transports are bounded by weak duality. The least covariances are the largest of −C, with ``−b̃b̃`` in place of ``b̃b̃``.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse.linalg

from jointmdp.arrays import Floats, Ints
from jointmdp.bounds.marginal_returns import OUTWARD, MarginalReturns
from jointmdp.bounds.transports import Transport, best_transport

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


class _Round(NamedTuple):
    """T applied to a matrix."""

    plans: dict[ActionPair, Transport]
    above: float  # r with T(N) ≤ N + r, rounding included
    below: float  # r with T(N) ≥ N − r


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

    def applied(self, N: Floats) -> _Round:
        """T(N) by transports, and how far it is from N."""
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
        return _Round(plans, above, below)

    def solved(self, plans: dict[ActionPair, Transport], N: Floats) -> Floats:
        """The fixed point for these joint laws, from a first guess."""
        size = len(N)
        states, x, y, masses, added = self._entries(plans)

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

    def _entries(self, plans: dict[ActionPair, Transport]) -> tuple[Ints, Ints, Ints, Floats, Floats]:
        """Where plans lead: state, successors of both and weighted mass of each entry, and what one step adds."""
        added = self.own.copy()
        none = np.zeros(0, dtype=np.int64)
        states, left, right, masses = [none], [none], [none], [np.zeros(0)]
        for pair, plan in plans.items():
            first, second = (self.returns.laws.law(number) for number in self._sides(pair))
            mass = self.weights[pair] * plan.masses
            added[pair[0]] += mass @ self._product(pair)[plan.rows, plan.columns]
            states.append(np.full(len(mass), pair[0]))
            left.append(first.successors[plan.rows])
            right.append(second.successors[plan.columns])
            masses.append(mass)
        s, x, y = (np.concatenate(part) for part in (states, left, right))
        return s, x, y, np.concatenate(masses), added

    def found(self, tolerance: float) -> Extremes:
        """Rounds until the certified error is below the tolerance, or digits are used up."""
        size = self.returns.laws.num_states
        gap = (1 - self.returns.discount) * (1 + self.returns.discount)
        N, best, rounds, missed = np.zeros((size, size)), None, 0, 0
        while rounds < MOST_ROUNDS and missed < PATIENCE:
            rounds += 1
            now = self.applied(N)
            width = now.above + now.below
            if best is None or width < best[1].above + best[1].below:
                best, missed = (N, now), 0
            else:
                missed += 1  # a round may end farther from the fixed point by rounding alone
            if width <= gap * tolerance / 4:
                break
            N = self.solved(now.plans, N)
        assert best is not None
        return self._certified(*best, gap, rounds)

    def _certified(self, N: Floats, now: _Round, gap: float, rounds: int) -> Extremes:
        """One more step for all pairs, with what is left of the error added."""
        # Where variances are off by no more than e, covariances that are off by e stay so: they enter C(s,s) in shares.
        step, own = self.returns.step_error, self.returns.variance_error
        above, below = (OUTWARD * ((off + step) / gap + own) for off in (now.above, now.below))
        room = self.returns.step_error + self.returns.rounding * float(np.max(np.abs(N)))
        values, plans, error = {}, {}, 0.0
        for pair in self.pairs:
            plan = now.plans.get(pair) or self.transport(pair, N)
            top = plan.bound + OUTWARD * (self.factor * above + room)
            bottom = plan.value - OUTWARD * (self.factor * below + room)
            values[pair], plans[pair], error = top, plan, max(error, top - bottom)
        return Extremes(values, error, plans, rounds)
