"""The equations of means and covariances.

Notation, for a fixed policy π: scenario ``w`` of state ``s`` has probability ``p(w|s)`` and gives every action its
reward ``R(s,w,a)`` and successor ``S'(s,w,a)``; ``x = (s,a)`` is a coordinate, ``Z(x)`` its return.

    m(s,a) = E Z(s,a)            v(s) = Σ_a π(a|s) m(s,a)         b(s,w,a) = R(s,w,a) + γ v(S'(s,w,a))
    C(x,y) = Cov(Z(x), Z(y))     C(s,t) = ΣΣ π(a|s) π(b|t) C((s,a),(t,b))      B(s) = Var Z(s,A), A ~ π(·|s)

Two diagonals live on states and must not be mixed up: ``C(s,s)`` belongs to *two* branches in ``s`` that draw their
actions independently (and are one branch from then on if the draws coincide), ``B(s)`` to *one* branch. What is solved
for on pairs is the variance of the gap, ``D(s,t) = B(s) + B(t) − 2C(s,t)``: its recursion ends where branches become
one, so it knows small gaps of large returns, and no constant 1/(1−γ) enters it.

**Who shares the noise** enters through the step of two branches, see `pair_step`: what is added here to a moment by one
step, `pair_sweep` carries through all later ones. Under ``"none"`` distinct coordinates stay independent and ``C``
vanishes off its one-branch diagonal.

The functions are pure; shapes stand in the signatures, and the tests execute them. Call them in float64.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from jointmdp.exact.bellman.pair_sweep import PairKernel, Source
from jointmdp.ground.arrays import Floats, Ints, on_device
from jointmdp.ground.checks import Sharing
from jointmdp.model.joint_mdp import JointMDP


class Tables(NamedTuple):
    """A model and a policy, as the equations read them."""

    probabilities: Float[Array, "S W"]
    rewards: Float[Array, "S W A"]
    successors: Int[Array, "S W A"]
    policy: Float[Array, "S A"]
    discount: Float[Array, ""]


def model_tables(model: JointMDP, policy: Floats, rewards: Floats | None = None) -> Tables:
    """The model's arrays on the device; `rewards` stand in place of its own where they are given."""
    return Tables(
        on_device(model.probabilities),
        on_device(model.paid_rewards if rewards is None else rewards),
        on_device(model.successors.astype(np.int32)),
        on_device(policy),
        on_device(model.discount),
    )


@partial(jax.jit, inline=True)
def state_mean(tables: Tables, m: Float[Array, "S A"]) -> Float[Array, " S"]:
    """v(s) = Σ_a π(a|s) m(s,a)."""
    return jnp.sum(tables.policy * m, axis=1)


def outcome(tables: Tables, v: Float[Array, " S"]) -> Float[Array, "S W A"]:
    """b(s,w,a) = R(s,w,a) + γ v(S'(s,w,a))."""
    return tables.rewards + tables.discount * v[tables.successors]


def expect(tables: Tables, values: Float[Array, "S W A"]) -> Float[Array, "S A"]:
    """Σ_w p(w|s) f(s,w,a)."""
    return jnp.einsum("sw,swa->sa", tables.probabilities, values)


@partial(jax.jit, inline=True)
def mean(tables: Tables, v: Float[Array, " S"]) -> Float[Array, "S A"]:
    """m(s,a) = Σ_w p(w|s) b(s,w,a)."""
    return expect(tables, outcome(tables, v))


def centred_outcome(tables: Tables, v: Float[Array, " S"]) -> Float[Array, "S W A"]:
    """b(s,w,a) − Σ_w p(w|s) b(s,w,a)."""
    b = outcome(tables, v)
    return b - expect(tables, b)[:, None, :]


def action_variance(tables: Tables, m: Float[Array, "S A"]) -> Float[Array, " S"]:
    """u(s) = Var_{A~π} m(s,A)."""
    v = state_mean(tables, m)
    return jnp.sum(tables.policy * (m - v[:, None]) ** 2, axis=1)


def variance(tables: Tables, v: Float[Array, " S"], B: Float[Array, " S"]) -> Float[Array, "S A"]:
    """C(x,x) = Var_w b(s,w,a) + γ² Σ_w p(w|s) B(S'): scenario, next action and all that follows."""
    x = centred_outcome(tables, v)
    return expect(tables, x**2 + tables.discount**2 * B[tables.successors])


def branch_variance(tables: Tables, m: Float[Array, "S A"], B: Float[Array, " S"]) -> Float[Array, " S"]:
    """B(s) = u(s) + Σ_a π(a|s) C((s,a),(s,a))."""
    v = state_mean(tables, m)
    return action_variance(tables, m) + state_mean(tables, variance(tables, v, B))


def gap_source(tables: Tables, kernel: PairKernel, v: Float[Array, " S"]) -> Source:
    """What one step adds to the variance of the gap of two branches.

    With e = b − v(s), ē_w its policy mean in scenario w and c(s) = Σ_w p(w|s) Var_a e:  c(s) + c(t) + E(ē(s) − ē(t))²
    for s ≠ t, and 2c(s) on the diagonal. Nothing large is subtracted: where noise is shared little is left.
    """
    p = tables.probabilities
    choice, shared = _deviations(p, tables.policy, outcome(tables, v))
    if kernel.chances.shape[0] <= 1:
        return Source(2 * choice, None, choice + jnp.sum(p * shared**2, axis=1))
    return Source(2 * choice, None, choice, p[0], shared.T)


def _deviations(p: Any, policy: Any, b: Any) -> tuple[Any, Any]:
    """c(s) and ē_w(s) of `gap_source`, ``[S]`` and ``[S, W]``; of arrays of the host or of the device."""
    xp = b.__array_namespace__()
    e = b - xp.sum(policy * xp.einsum("sw,swa->sa", p, b), axis=1)[:, None, None]
    shared = xp.einsum("sa,swa->sw", policy, e)
    choice = xp.einsum("sw,sa,swa->s", p, policy, (e - shared[:, :, None]) ** 2)
    return xp.where(xp.sum(policy > 0, axis=1) > 1, choice, 0.0), shared


def listed_gap_source(model: JointMDP, policy: Floats, rewards: Floats, v: Floats, s: Ints, t: Ints) -> Floats:
    """`gap_source` for pairs of a list, on the host; `rewards` are those that v is the value of."""
    p = model.probabilities
    choice, shared = _deviations(p, policy, rewards + model.discount * v[model.successors])
    if model.sharing == "state":
        alone = choice + np.sum(p * shared**2, axis=1)
        apart = alone[s] + alone[t]
    else:
        apart = choice[s] + choice[t]
        for w in np.flatnonzero(p[0]):
            apart += p[0, w] * (shared[s, w] - shared[t, w]) ** 2
    return np.where(s == t, 2 * choice[s], apart)


def policies_source(
    one: Tables, other: Tables, kernel: PairKernel, v: Float[Array, " S"], v_other: Float[Array, " S"]
) -> Source:
    """What one step adds for branches of two policies: Cov_w(Σ_a π b_a, Σ_b π' b'_b) where they share the scenario."""
    x, y = (jnp.einsum("sa,swa->sw", t.policy, centred_outcome(t, u)) for t, u in ((one, v), (other, v_other)))
    groups = kernel.chances.shape[0]
    cross = (x * one.probabilities[0]) @ y.T if groups > 1 else None
    return Source(jnp.sum(one.probabilities * x * y, axis=1), cross)


class Moments(NamedTuple):
    """A candidate moment collection M = (M_μ, M_Σ) of the paper: raw moments on coordinates."""

    mean: Float[Array, "S A"]
    second: Float[Array, "S A S A"]


def moment_backup(tables: Tables, M: Moments, sharing: Sharing) -> Moments:
    """T₂M, on every coordinate pair.

    (T₂M)_Σ(x,y) = E[R R̃ + γ R M_μ(Ỹ') + γ R̃ M_μ(X') + γ² M_Σ(X',Y')], where the expectation is over one shared
    scenario (same state, or ``sharing="time"``) or two independent ones (distinct states), and over independent next
    actions; on the diagonal x = y there is one scenario and one next action. Under ``"none"`` entries of distinct
    coordinates are products, (T₂M)_μ(x) (T₂M)_μ(y).
    """
    p, R, n, policy, g = tables
    S, _, A = R.shape
    v = state_mean(tables, M.mean)
    D = jnp.einsum("sa,sasa->s", policy, M.second)
    mu = mean(tables, v)
    diagonal = expect(tables, R**2 + 2 * g * R * v[n] + g**2 * D[n])
    if sharing == "none":
        second = mu[:, :, None, None] * mu[None, None, :, :]
    else:
        V = jnp.einsum("sa,satb,tb->st", policy, M.second, policy)
        here = jnp.arange(S)
        shared = _raw(R[:, :, :, None], R[:, :, None, :], v[n][:, :, :, None], v[n][:, :, None, :], g)
        shared = shared + g**2 * V[n[:, :, :, None], n[:, :, None, :]]
        blocks = jnp.einsum("sw,swab->sab", p, shared)
        if sharing == "time":

            def add(total: Array, scenario: tuple[Array, Array, Array]) -> tuple[Array, None]:
                chance, r, to = scenario[0], scenario[1].ravel(), scenario[2].ravel()
                value = _raw(r[:, None], r[None, :], v[to][:, None], v[to][None, :], g) + g**2 * V[to][:, to]
                return total + chance * value, None

            rows = (p[0], jnp.moveaxis(R, 1, 0), jnp.moveaxis(n, 1, 0))
            second = jax.lax.scan(add, jnp.zeros((S * A, S * A)), rows)[0].reshape(S, A, S, A)
        else:
            kernel = jnp.zeros((S, A, S)).at[here[:, None, None], jnp.arange(A)[None, None, :], n].add(p[:, :, None])
            r, w = expect(tables, R), kernel @ v
            second = _raw(r[:, :, None, None], r[None, None], w[:, :, None, None], w[None, None], g)
            second = second + g**2 * jnp.einsum("saj,jk,tbk->satb", kernel, V, kernel, optimize="optimal")
        second = second.at[here, :, here, :].set(blocks)
    every = jnp.arange(S)[:, None], jnp.arange(A)[None, :]
    return Moments(mu, second.at[*every, *every].set(diagonal))


def _raw(r: Array, r2: Array, later: Array, later2: Array, g: Array) -> Array:
    """R R̃ + γ R M_μ(Ỹ') + γ R̃ M_μ(X')."""
    return r * r2 + g * (r * later2 + r2 * later)
