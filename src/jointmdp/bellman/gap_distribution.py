"""The equations of the gap's law: what one step does to bounds on the distribution of G(s,t) = Z(s,A) − Z(t,B).

The gap obeys ``G(s,t) = e − ẽ + γ G(S',T')`` and is 0 once the two branches are one. Its law is bounded twice, on one
grid ``z_0 < … < z_{N−1}`` for all pairs, by functions of the threshold:

- pathwise: ``F_j = P(L ≤ z_j)`` of a variable ``L ≤ G`` on the grid. A step rounds every atom down:
  ``P(⌊r + cL⌋ ≤ z_j) = P(r + cL < z_{j+1})``, which is one entry of F. Since ``G(s,t) = −G(t,s)``, the law that is
  rounded up needs no array of its own: ``U(s,t) = −L(t,s)``;
- in convex order, by the stop-loss function ``Π(u) = E(G−u)⁺``, which one step takes to ``c Π((u−r)/c)``. From above,
  Π is known at the grid, and the chord between two points lies above it: each atom is spread over its neighbours,
  keeping the mean. From below, Π is known by tangents ``V_j + (D_j−1)(u−z_j)``, where D is a distribution function.
  Any mixture of two neighbouring tangents is a line below Π. Mixed in the proportion of the chord it is
  ``chord of V − f(1−f)·width·(D_{i+1}−D_i)`` with slope ``chord of D − 1``. The higher of the two tangents (the mass of
  a cell at its barycentre) would leave a quarter less between the bounds, but the mixture is linear, and several times
  faster to apply.

All maps are monotone, so a valid bound stays valid after any number of steps. A step of the pair is two half steps,
each moving one branch: first ``−ẽ + γ·`` for the second branch, then ``e + ·`` for the first. Given the noise that both
share the branches move independently, so a pair costs the sum, not the product, of the branches' outcomes.

Arrays are ``[S, N, S]``: first branch, threshold, second branch, so that whole rows are gathered. Each map is compiled
by itself: fused with each other, XLA computes one again inside the next.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

# Outcome lists longer than this are summed by a loop instead of one fused expression, to bound compile time.
UNROLL = 16


class Moves(NamedTuple):
    """How one branch moves, outcome by outcome, and where each threshold comes from: ``u = (z_j − r)/c``."""

    weights: Float[Array, "*G S O"]
    successors: Int[Array, "*G S O"]
    rounded: Int[Array, "*G S O N"]  # last i with r + c z_i < z_{j+1}
    cell: Int[Array, "*G S O N"]  # i with z_i ≤ u < z_{i+1}
    fraction: Float[Array, "*G S O N"]  # f = (u − z_i)/(z_{i+1} − z_i)
    bend: Float[Array, "*G S O N"]  # f(1−f)(z_{i+1} − z_i)
    below: Float[Array, "*G S N"]  # Σ_o w (z_0 − u)⁺, what Π gains beyond the grid


class MeetingMaps(NamedTuple):
    """Two branches in the same state that draw different actions: one scenario moves both, ``r = e_a − e_b``."""

    weights: Float[Array, " Q"]
    state: Int[Array, " Q"]
    left: Int[Array, " Q"]
    right: Int[Array, " Q"]
    rounded: Int[Array, "Q N"]
    cell: Int[Array, "Q N"]
    fraction: Float[Array, "Q N"]
    bend: Float[Array, "Q N"]
    below: Float[Array, "Q N"]
    ties: Float[Array, " S"]  # Σ_a π(a|s)²


class LawMaps(NamedTuple):
    """All that a step reads."""

    points: Float[Array, " N"]
    discount: Float[Array, ""]
    chances: list[Float[Array, " G"]]  # of the noise that branches in distinct states share, in blocks of its values
    first: list[Moves]  # e + ·, for each block
    second: list[Moves]  # −ẽ + γ·
    meetings: MeetingMaps | None  # None where no two branches ever share a state and differ
    is_identical: Array  # [S, S] pairs whose gap is 0 whatever happens


class StopLoss(NamedTuple):
    """Valid bounds on the stop-loss function of every pair."""

    upper: Float[Array, "S N S"]
    V: Float[Array, "S N S"]
    D: Float[Array, "S N S"]


def step_rounded(maps: LawMaps, F: Float[Array, "S N S"]) -> Float[Array, "S N S"]:
    """One step of both branches for every pair of states: the law that is rounded down."""
    crossed = None
    for chances, first, second in zip(maps.chances, maps.first, maps.second, strict=True):
        half = rounded_down(second, flip(F[None]))
        crossed = _added(crossed, chances, rounded_down(first, flip(half)))
    met = None if maps.meetings is None else meet_rounded(maps.points, maps.meetings, F)
    return _closed(crossed, met, zero_law(maps.points)[0], maps.is_identical)


def step_stop_loss(maps: LawMaps, X: StopLoss) -> StopLoss:
    """One step of both branches for every pair of states: the bounds in convex order."""
    crossed: tuple[Array | None, ...] = (None,) * 3
    lone = StopLoss(*(field[None] for field in X))
    for chances, first, second in zip(maps.chances, maps.first, maps.second, strict=True):
        both = half_step(first, half_step(second, lone, maps.discount), jnp.ones(()))
        crossed = tuple(_added(total, chances, field) for total, field in zip(crossed, both, strict=True))
    met = (None,) * 3 if maps.meetings is None else meet_stop_loss(maps.points, maps.meetings, maps.discount, X)
    at, stop_loss = zero_law(maps.points)
    parts = zip(crossed, met, (stop_loss, stop_loss, at), strict=True)
    return StopLoss(*(_closed(*part, maps.is_identical) for part in parts))


def half_step(moves: Moves, X: StopLoss, scale: Float[Array, ""]) -> StopLoss:
    """The second branch moves and the two change places; twice this, and both have moved."""
    upper, V, D = (flip(field) for field in X)
    return StopLoss(
        _scaled(scale, interpolated(moves, upper), moves.below),
        _scaled(scale, interpolated(moves, V), moves.below, bent(moves, D)),
        _pinned(interpolated(moves, D)),
    )


@jax.jit
def flip(X: Float[Array, "G S N T"]) -> Float[Array, "G T N S"]:
    """The two branches change places."""
    return jnp.transpose(X, (0, 3, 2, 1))


@jax.jit
def rounded_down(moves: Moves, F: Float[Array, "_ S N T"]) -> Float[Array, "G S N T"]:
    """``Σ_o w P(⌊r + cL(S'_o,·)⌋ ≤ z_j)`` given each value of the shared noise; one F for all, or one for each."""
    return _each(moves, F, lambda m, Y, o, w, state: w * Y[state, m.rounded[:, o]])


@jax.jit
def interpolated(moves: Moves, X: Float[Array, "_ S N T"]) -> Float[Array, "G S N T"]:
    """``Σ_o w ((1−f) X_i + f X_{i+1})``: the chord at every threshold."""

    def term(m: Moves, Y: Array, o: int | Array, w: Array, state: Array) -> Array:
        i, f = m.cell[:, o], m.fraction[:, o, :, None]
        return w * ((1 - f) * Y[state, i] + f * Y[state, i + 1])

    return _each(moves, X, term)


@jax.jit
def bent(moves: Moves, D: Float[Array, "_ S N T"]) -> Float[Array, "G S N T"]:
    """``Σ_o w f(1−f)·width·(D_{i+1} − D_i)``: how far the mixture of tangents lies below the chord."""

    def term(m: Moves, Y: Array, o: int | Array, w: Array, state: Array) -> Array:
        i = m.cell[:, o]
        return w * m.bend[:, o, :, None] * (Y[state, i + 1] - Y[state, i])

    return _each(moves, D, term)


@jax.jit
def meet_rounded(points: Float[Array, " N"], m: MeetingMaps, F: Float[Array, "S N S"]) -> Float[Array, "S N"]:
    """Two branches in one state: ``Σ_w p Σ_{a≠b} π_a π_b P(⌊e_a − e_b + γL(S'_a,S'_b)⌋ ≤ z_j)``, and ties at 0."""
    return m.ties[:, None] * zero_law(points)[0] + _by_state(m, F[m.left[:, None], m.rounded, m.right[:, None]])


@jax.jit
def meet_stop_loss(
    points: Float[Array, " N"], m: MeetingMaps, scale: Float[Array, ""], X: StopLoss
) -> tuple[Float[Array, "S N"], Float[Array, "S N"], Float[Array, "S N"]]:
    """The same for the stop-loss function: upper values, tangents and their slopes."""
    left, right, i, f = m.left[:, None], m.right[:, None], m.cell, m.fraction

    def chord(Y: Array) -> Array:
        return (1 - f) * Y[left, i, right] + f * Y[left, i + 1, right]

    at, stop_loss = (m.ties[:, None] * row for row in zero_law(points))
    bend = m.bend * (X.D[left, i + 1, right] - X.D[left, i, right])
    return (
        stop_loss + scale * _by_state(m, chord(X.upper) + m.below),
        stop_loss + scale * _by_state(m, chord(X.V) + m.below - bend),
        _pinned((at + _by_state(m, chord(X.D)))[..., None])[..., 0],
    )


def _by_state(m: MeetingMaps, values: Float[Array, "Q N"]) -> Float[Array, "S N"]:
    return jax.ops.segment_sum(m.weights[:, None] * values, m.state, num_segments=m.ties.shape[0])


def zero_law(points: Float[Array, " N"]) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
    """F and Π of the constant 0."""
    return (points >= 0).astype(points.dtype), jnp.maximum(-points, 0.0)


@jax.jit
def tightened(one: StopLoss, other: StopLoss) -> StopLoss:
    """The better of two valid brackets at every threshold."""
    is_higher = other.V >= one.V
    return StopLoss(
        jnp.minimum(one.upper, other.upper),
        jnp.where(is_higher, other.V, one.V),
        jnp.where(is_higher, other.D, one.D),
    )


@jax.jit
def at_points(
    X: StopLoss,
    cell: Int[Array, " M"],
    fraction: Float[Array, " M"],
    bend: Float[Array, " M"],
    below: Float[Array, " M"],
) -> StopLoss:
    """The same bracket at the M points of another grid."""
    f, more = fraction[None, :, None], below[None, :, None]

    def chord(Y: Array) -> Array:
        return (1 - f) * Y[:, cell] + f * Y[:, cell + 1]

    drop = bend[None, :, None] * (X.D[:, cell + 1] - X.D[:, cell])
    return StopLoss(chord(X.upper) + more, chord(X.V) + more - drop, _pinned(chord(X.D)))


Term = Callable[[Moves, Array, int | Array, Array, Array], Array]


def _each(moves: Moves, X: Array, term: Term) -> Array:
    """The sum of a term over outcomes, for each value of the shared noise."""
    if moves.weights.shape[0] == 1:
        return _sum(Moves(*(field[0] for field in moves)), X[0], term)[None]
    if X.shape[0] == 1:
        return jax.vmap(lambda m: _sum(m, X[0], term))(moves)
    return jax.vmap(lambda m, Y: _sum(m, Y, term))(moves, X)


def _sum(moves: Moves, X: Array, term: Term) -> Array:
    def weighted(o: int | Array) -> Array:
        return term(moves, X, o, moves.weights[:, o, None, None], moves.successors[:, o, None])

    total, count = weighted(0), moves.weights.shape[1]
    if count > UNROLL:
        return jax.lax.fori_loop(1, count, lambda o, sums: sums + weighted(o), total)
    for o in range(1, count):
        total = total + weighted(o)
    return total


@jax.jit
def _pinned(D: Array) -> Array:
    """0 and 1 at the ends of the grid: no gap lies beyond them."""
    j = jnp.arange(D.shape[-2])[:, None]
    return jnp.where(j == 0, 0.0, jnp.where(j == D.shape[-2] - 1, 1.0, D))


@jax.jit
def _scaled(scale: Array, X: Array, below: Array, bend: Array | float = 0.0) -> Array:
    return scale * (X + below[..., None] - bend)


@jax.jit
def _added(total: Array | None, chances: Array, more: Array) -> Array:
    mixed = jnp.einsum("g,gsnt->snt", chances, more)
    return mixed if total is None else total + mixed


@jax.jit
def _closed(crossed: Array, together: Array | None, row: Array, is_identical: Array) -> Array:
    """The diagonal, where branches share their state, and the pairs whose gap is 0, in their places."""
    if together is not None:
        crossed = jnp.where(jnp.eye(len(crossed), dtype=bool)[:, None, :], together[:, :, None], crossed)
    return jnp.where(is_identical[:, None, :], row[None, :, None], crossed)
