"""The equations of moments of any order of one branch or two; continues `second_moments`.

About any potential v, a branch in s has the surplus e = R + γ v(S') − v(s) in its first step, and
Z(s,A) − v(s) = e + γ (Z(S',A') − v(S')). Powers of this sum are expanded by the binomial theorem, so moments of order k
obey the recursions of `second_moments` at factor γᵏ, with a source made of moments of lower order:

    c_i(s)    = E[(Z(s,A)−v(s))ⁱ]                 = Σ_{k≤i} C(i,k) γᵏ E[e^{i−k} c_k(S')]                     one branch
    c_ij(s,t) = E[(Z(s,A)−v(s))ⁱ (Z(t,B)−v(t))ʲ]  = Σ_{k≤i,l≤j} C(i,k) C(j,l) γ^{k+l} E[e^{i−k} ẽ^{j−l} c_kl(S',T')]
    h_k(s,t)  = E[(Z(s,A)−v(s)−Z(t,B)+v(t))ᵏ]     = Σ_{j≤k} C(k,j) γʲ E[(e−ẽ)^{k−j} h_j(S',T')]

Two branches in s that draw the same action are one: they add nothing to h, and the moment of one branch to c. Given the
common noise g the branches are independent, so E[eⁱ ẽʲ c(S',T')] = Σ_g p(g) P_g⁽ⁱ⁾ c P_g⁽ʲ⁾ᵀ, with P⁽ⁱ⁾ the policy's
kernel whose outcomes are weighted by eⁱ. Branches in the same state share the scenario; what they add is a sum over few
outcomes, and stands with the sums over one branch in `moments.higher_orders`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from jointmdp.exact.bellman.pair_sweep import PairKernel


class Steps(NamedTuple):
    """The steps of one branch, outcome by outcome, beside the rows of a `PairKernel`."""

    chance: Float[Array, "S W M"]  # probability of the outcome given the common noise
    place: Int[Array, "S W M"]  # where the kernel's rows hold its successor


def weigh(kernel: PairKernel, steps: Steps, factor: Float[Array, "S W M"]) -> Float[Array, "G S K"]:
    """The kernels P_g with every outcome weighted by a factor f(s,w,a), in the places of the kernel's own entries."""
    states, scenarios, _ = factor.shape
    group = jnp.arange(scenarios)[None, :, None] if kernel.chances.shape[0] > 1 else 0
    zero = jnp.zeros_like(kernel.weights)
    return zero.at[group, jnp.arange(states)[:, None, None], steps.place].add(steps.chance * factor)


def gap_apart(
    kernel: PairKernel,
    e: Float[Array, "S W M"],
    off: Float[Array, " S"] | None,
    coefficients: Float[Array, " N"],
    H: Float[Array, "N S S"],
    k: int | Int[Array, ""],
) -> Float[Array, "S S"]:
    """Σ_w p(w) ΣΣ π(a|s) π(b|t) Σ_{j≤k} c_j d^{k−j} H_j(S'_a,T'_b), for branches that share the scenario.

    The difference d = e_a−ẽ_b is formed before its powers: where noise is shared it is far smaller than what it is made
    of. Where `off` says how far e may be off, d is the size |e_a−ẽ_b|+η(s)+η(t).
    """
    count = kernel.support.shape[2]

    def add(total: Array, scenario: tuple[Array, Array, Array]) -> tuple[Array, None]:
        chance, step, to = scenario

        def pair(i: Array, total: Array) -> Array:
            a, b = i // count, i % count
            d = step[:, a, None] - step[None, :, b]
            if off is not None:
                d = jnp.abs(d) + off[:, None] + off[None, :]
            later = jax.lax.fori_loop(
                0, k + 1, lambda j, x: x * d + coefficients[j] * H[j][to[:, a]][:, to[:, b]], jnp.zeros_like(d)
            )
            return total + chance * kernel.choice[:, a, None] * kernel.choice[None, :, b] * later

        return jax.lax.fori_loop(0, count**2, pair, total), None

    rows = (kernel.chances, jnp.moveaxis(e, 1, 0), jnp.moveaxis(kernel.support, 1, 0))
    return jax.lax.scan(add, jnp.zeros((e.shape[0], e.shape[0])), rows)[0]
