"""What an ordinary MDP says of each action by itself: mean and variance of its return, with certified errors.

With ``b = R + γv(S')`` for each outcome, ``v = Πr̄ + γPv`` and ``B(s) = Var_{A,S'} b + γ²(PB)(s)``, the variance of the
return of action a is ``Var b_a + γ² E B(S'_a)``. Errors follow from residuals, as in `moments.certificates`:

    |e_v| ≤ r_v/(1−γ) =: δ,   |e_B| ≤ (r_B + 2σγδ + γ²δ²)/(1−γ²).
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg

from jointmdp.arrays import UNIT, Floats, summed
from jointmdp.model.action_laws import ActionLaw, ActionLaws

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
