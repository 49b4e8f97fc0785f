"""What means and covariances of returns should be, from two independent draws of a joint outcome.

Coordinates x₁, …, x_m are listed together. A draw k pays rewards r and leads to next coordinates x′; with the error
``e(x) = r + γ μ(x′) − μ(x)`` the covariances satisfy

    C(x, y) = E e(x) e(y) + γ² E C(x′, y′)

where μ are the means of returns. Where networks cannot tell states apart that differ, μ is a mean over them, and what
it leaves out stays in e: C is then how far returns are from what is predicted of them. Half the product of the
differences of two draws would have the covariance of r + γ μ(x′) alone. It is free of the error of μ(x), and loses what
μ(x′) fails to see: in a game whose rewards can be foreseen some steps ahead, nearly all.

Where residuals are *measured*, two errors of one coordinate from independent draws are multiplied: the square of a
single one has the variance of its draw as a floor.

Rewards may be given by their expectations with their covariances R(x, y), where noise in them is known in law and does
not touch where a state leads. R is added then, and costs no draws.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int


class MomentHeads(NamedTuple):
    """What networks say of coordinates: ``C(x, y) = ⟨v, v⟩ + 1[same state]·⟨w, w⟩ + 1[x = y]·d``, μ and d ≥ 0."""

    mean: Float[Array, "*m"]
    v: Float[Array, "*m K"]
    w: Float[Array, "*m L"]
    d: Float[Array, "*m"]

    def covariances(self, states: Int[Array, "*m"], actions: Int[Array, "*m"]) -> Float[Array, "*m m"]:
        """C between all listed coordinates; states are told apart by numbers."""
        same = states[..., :, None] == states[..., None, :]
        one = same & (actions[..., :, None] == actions[..., None, :])
        found = jnp.einsum("...ik,...jk->...ij", self.v, self.v)
        found += same * jnp.einsum("...ik,...jk->...ij", self.w, self.w)
        return found + one * self.d[..., :, None]  # one coordinate has one d, so this is symmetric


class Backup(NamedTuple):
    """What the moments of m listed coordinates should be, by two draws."""

    mean: Float[Array, "*B m"]
    covariance: Float[Array, "*B m m"]


def backup(
    means: Float[Array, "*B m"],
    rewards: Float[Array, "*B 2 m"],
    next_means: Float[Array, "*B 2 m"],
    next_covariances: Float[Array, "*B 2 m m"],
    discount: float,
    reward_covariances: Float[Array, "*B m m"],
) -> Backup:
    """Targets from both draws; `means` are the current ones of the listed coordinates."""
    g = rewards + discount * next_means
    off = g - means[..., None, :]
    drawn = (off[..., :, None] * off[..., None, :] + discount**2 * next_covariances).mean(axis=-3)
    return Backup(g.mean(axis=-2), drawn + reward_covariances)


def draw_errors(
    mean: Float[Array, "*B m"],
    covariance: Float[Array, "*B m m"],
    rewards: Float[Array, "*B 2 m"],
    next_means: Float[Array, "*B 2 m"],
    next_covariances: Float[Array, "*B 2 m m"],
    discount: float,
    reward_covariances: Float[Array, "*B m m"],
) -> tuple[Float[Array, "*B 2 m"], Float[Array, "*B 2 m m"]]:
    """The errors of means, and of covariances around the current means, by each draw alone.

    The expected product of both is the squared residual. Of covariances it is that of ``C + (T μ − μ)(T μ − μ)``: 0
    where means and covariances are those of the returns.
    """
    off = rewards + discount * next_means - mean[..., None, :]
    products = off[..., :, None] * off[..., None, :] + reward_covariances[..., None, :, :]
    return off, products + discount**2 * next_covariances - covariance[..., None, :, :]


def gap_variances(covariance: Float[Array, "*B m m"]) -> Float[Array, "*B m m"]:
    """Variances of the gaps between listed coordinates."""
    own = jnp.diagonal(covariance, axis1=-2, axis2=-1)
    return own[..., :, None] + own[..., None, :] - 2 * covariance
