"""BiCGStab (van der Vorst 1992) for equations ``x = source + L x`` whose unknown is a whole matrix.

Written here because the one in `jax.scipy` asks for the operator's transpose, which a sweep with an overwritten
diagonal does not offer, stops on a Euclidean norm where certificates need the largest entry, and cannot be continued.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


class KrylovState(NamedTuple):
    """All that the next step needs."""

    x: Array
    r: Array  # recursive residual source + Lx − x
    shadow: Array
    p: Array
    v: Array
    rho: Array
    alpha: Array
    omega: Array
    worst: Array  # largest |r|
    step: Array


def init(x: Array, residual: Array) -> KrylovState:
    """Start at `x`, whose residual is ``source + Lx − x``."""
    zero, one = jnp.zeros_like(x), jnp.ones(())
    worst = jnp.max(jnp.abs(residual))
    return KrylovState(x, residual, residual, zero, zero, one, one, one, worst, jnp.asarray(0))


def advance(apply: Callable[[Array], Array], state: KrylovState, target: float | Array, steps: int) -> KrylovState:
    """Up to `steps` more steps, until the recursive residual is below `target` everywhere.

    ``apply(x)`` is ``x − Lx``. A breakdown shows as a `worst` that is not a number, and ends the loop.
    """
    end = state.step + steps

    def goes_on(state: KrylovState) -> Array:
        return (state.worst > target) & (state.step < end)

    def improve(state: KrylovState) -> KrylovState:
        x, r, shadow, p, v, rho, alpha, omega, _, step = state
        rho_next = jnp.vdot(shadow, r)
        beta = (rho_next / rho) * (alpha / omega)
        p = r + beta * (p - omega * v)
        v = apply(p)
        alpha = rho_next / jnp.vdot(shadow, v)
        s = r - alpha * v
        t = apply(s)
        omega = jnp.vdot(t, s) / jnp.vdot(t, t)
        x = x + alpha * p + omega * s
        r = s - omega * t
        return KrylovState(x, r, shadow, p, v, rho_next, alpha, omega, jnp.max(jnp.abs(r)), step + 1)

    return jax.lax.while_loop(goes_on, improve, state)
