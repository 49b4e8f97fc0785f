"""How true an answer is: error bounds computed from the answer alone, whatever method produced it.

A certificate applies the exact operator once to what is to be certified and turns the residual into an error bound by
contraction. Writing δ for the bound on the mean's error and σ for the largest one-step standard deviation:

    mean         e_μ ≤ r_μ / (1−γ)
    covariance   e_C ≤ (r_C + 2σγδ + γ²δ²) / (1−γ²)
    raw second   e_Σ ≤ (r_Σ + 2γ R_max e_μ) / (1−γ²)
    the paper's  ‖M − M*‖_λ ≤ ‖M − T₂M‖_λ / (1−γ),   λ = 2 R_max/(1−γ)

Residuals are themselves computed in float64, so each carries a rounding term: a sum of n products in any order is off
by at most n·u·Σ|terms| with u = 2⁻⁵³ (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). Without
it a stagnated iteration, whose computed residual is exactly zero, would be certified as exact. The counts also cover
probabilities that sum to 1 only up to rounding.

This module holds the certificate and the bounds for answers on coordinates and over horizons; answers on states have
local bounds, in `state_certificates`.
"""

from dataclasses import dataclass, field
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jointmdp.arrays import UNIT, Floats
from jointmdp.bellman import second_moments
from jointmdp.bellman.second_moments import Moments, Tables


@dataclass(frozen=True)
class Certificate:
    """Guaranteed bounds on the distance between an answer and the truth; all absolute."""

    residual: float
    """Upper bound of ‖M − T₂M‖_λ, the paper's Bellman residual. Over a horizon: the rounding of one sweep."""
    mean_error: float
    """Bound on every mean."""
    second_moment_error: float
    """Bound on every raw second moment."""
    covariance_error: float
    """Bound on every covariance and variance, from the centred recursion."""
    mean_errors: Floats = field(repr=False)  # [S, A]
    """Bound on each mean by itself."""
    covariance_shares: Floats = field(repr=False)  # [S, A]
    """Each coordinate's share e(x): the covariance of Z(x) and Z(y) is off by at most e(x) + e(y)."""

    def __str__(self) -> str:
        return (
            f"mean ± {self.mean_error:.1e}, covariance ± {self.covariance_error:.1e}, "
            f"second moment ± {self.second_moment_error:.1e}, residual ≤ {self.residual:.1e}"
        )


def uniform_certificate(
    shape: tuple[int, int], residual: float, mean: float, second: float, covariance: float
) -> Certificate:
    """A certificate that says the same of every coordinate."""
    return Certificate(residual, mean, second, covariance, np.full(shape, mean), np.full(shape, covariance / 2))


def norm_weight(reward_bound: float, discount: float) -> float:
    """λ = 2 R_max / (1−γ); any positive weight serves when all rewards are zero."""
    return 2 * reward_bound / (1 - discount) if reward_bound > 0 else 1.0


def mean_operations(scenarios: int, actions: int) -> int:
    """Rounding errors in one mean backup: half for its sums, half for rows of n entries that sum to 1 ± 2n·u only."""
    return 4 * scenarios + 4 * actions + 8


def pair_operations(scenarios: int, actions: int) -> int:
    """Rounding errors in one second-order backup."""
    return 4 * scenarios * actions + 8 * scenarios + 8 * actions + 16


def _top(values: Array) -> Array:
    return jnp.max(jnp.abs(values))


# -- answers on coordinates ------------------------------------------------------------------------------------


@jax.jit
def pair_norms(tables: Tables, M: Moments, after: Moments) -> dict[str, Array]:
    """What a certificate needs to know of a raw collection ``M`` and of ``after = T₂M``."""

    def centred(N: Moments) -> Array:
        return N.second - N.mean[:, :, None, None] * N.mean[None, None]

    v = second_moments.state_mean(tables, M.mean)
    spread = second_moments.variance(tables, v, second_moments.action_variance(tables, M.mean))
    return {
        "r_mean": _top(after.mean - M.mean),
        "r_second": _top(after.second - M.second),
        "r_centred": _top(centred(after) - centred(M)),
        "mean": jnp.maximum(_top(M.mean), _top(after.mean)),
        "second": jnp.maximum(_top(M.second), _top(after.second)),
        "sigma": jnp.sqrt(jnp.max(spread)),
        "reward": _top(tables.rewards),
    }


def certify_pairs(
    tables: Tables,
    found: dict[str, Array],
    reward_bound: float,
    discount: float,
    sharing: Literal["state", "time", "none"],
) -> Certificate:
    """The certificate of a raw moment collection, from its residual on every pair of coordinates."""
    n = {key: float(value) for key, value in found.items()}
    g = discount
    states, scenarios, actions = tables.rewards.shape
    outcome = n["reward"] + g * n["mean"]
    mean_rounding = mean_operations(scenarios, actions) * UNIT * outcome
    pair_rounding = pair_operations(scenarios, actions) * UNIT * (outcome**2 + n["second"])
    weight = norm_weight(reward_bound, g)

    r_mean, r_second = n["r_mean"] + mean_rounding, n["r_second"] + pair_rounding
    residual = max(r_mean, r_second / weight)
    delta = r_mean / (1 - g)
    second = (r_second + 2 * g * reward_bound * delta) / (1 - g**2)
    if sharing == "none":
        # Entries of distinct coordinates are products of means; their error does not go through the recursion.
        second = max(second, r_second + (2 * n["mean"] + 2 * mean_rounding + g * delta) * g * delta)
    else:
        second = min(second, weight * residual / (1 - g))
    rounded = 4 * UNIT * (n["second"] + n["mean"] ** 2)
    plain = second + (2 * n["mean"] + delta) * delta
    sigma = n["sigma"] + mean_rounding
    by_mean = 2 * sigma * g * delta + (g * delta) ** 2
    centred = (n["r_centred"] + pair_rounding + rounded + by_mean) / (1 - g**2)
    return uniform_certificate((states, actions), residual, delta, second, min(plain, centred) + rounded)


# -- answers over a horizon ------------------------------------------------------------------------------------


@jax.jit
def sizes(tables: Tables, m: Array, C: Array, B: Array) -> dict[str, Array]:
    """How large a state-level answer ``(m, C, B)`` and its one-step luck are."""
    v = second_moments.state_mean(tables, m)
    zero = jnp.zeros_like(B)
    return {
        "outcome": _top(tables.rewards) + tables.discount * _top(v),
        "sigma": jnp.sqrt(jnp.max(second_moments.variance(tables, v, zero))),
        "sigma_branch": jnp.sqrt(jnp.max(second_moments.branch_variance(tables, m, zero))),
        "variance": jnp.maximum(_top(C), _top(B)),
        "mean": _top(second_moments.mean(tables, v)),
    }


class HorizonErrors:
    """Accumulates the rounding of backward sweeps: nothing else stands between a horizon and the truth."""

    def __init__(self, tables: Tables) -> None:
        self.shape = tables.rewards.shape
        self.discount = float(tables.discount)
        self.mean = self.covariance = self.rounding = 0.0
        self.size: dict[str, float] = {}

    def step(self, found: dict[str, Array]) -> None:
        """One more sweep, made from an answer of these sizes with the errors so far."""
        self.size = n = {key: float(value) for key, value in found.items()}
        _, scenarios, actions = self.shape
        g = self.discount
        rounding = mean_operations(scenarios, actions) * UNIT * n["outcome"]
        delta, sigma = self.mean + rounding, n["sigma"] + n["sigma_branch"] + rounding
        relative = pair_operations(scenarios, actions) * UNIT
        here = 2 * sigma * rounding + rounding**2 + relative * (sigma**2 + n["variance"])
        self.covariance = g**2 * self.covariance + 3 * sigma * delta + 2 * delta**2 + here
        self.mean = g * self.mean + rounding
        self.rounding = max(self.rounding, rounding, here)

    def certificate(self) -> Certificate:
        """The bounds after the last sweep."""
        states, _, actions = self.shape
        n = self.size
        rounded = 16 * UNIT * (n["mean"] ** 2 + n["variance"] + n["sigma"] ** 2)
        second = self.covariance + (2 * n["mean"] + self.mean) * self.mean + rounded
        return uniform_certificate((states, actions), self.rounding, self.mean, second, self.covariance)
