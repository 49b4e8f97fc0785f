"""Sample backups: what one joint draw says about every moment of the coordinates it names.

A `Sample` names m coordinates x_1 … x_m and gives each its reward ``R_p`` and next coordinate ``X'_p``, drawn jointly:
one scenario for coordinates that share their noise, one next action for each *distinct* coordinate. For candidate
moments M it gives, for every p and q and all powers i, j ≥ 1,

    mean(x_p)              ←  R_p + γ M(X'_p)
    E[Z(x_p)ⁱ Z(x_q)ʲ]     ←  Σ_{k≤i, l≤j} C(i,k) C(j,l) γ^{k+l} R_p^{i−k} R_q^{j−l} M_kl(X'_p, X'_q)

with M_00 = 1, M_k0 = M_0k the k-th moment of one coordinate, and M_kl(x,x) = M_{k+l,0}(x). For i = j = 1 these are the
three cases of the paper's T̂₂. **The diagonal needs no case of its own**: a coordinate listed twice has one reward and
one next coordinate, and then the sum is that of the power i + j (Vandermonde's identity).

Each line has T as its expectation as soon as the outcomes of x_p and x_q *by themselves* have the right joint law.
Draws of different lines need not be independent of each other. So one field of outcomes, one for each of the X
coordinates, is a sample backup of all X + X² moments at once; and of all of Xᵏ, which `tuple_targets` forms on sorted
tuples. Under ``sharing="none"`` distinct coordinates never become one, and their moments are products of backups.
"""

from math import comb
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from jointmdp.exact.bellman.tuple_moments import Tuples
from jointmdp.ground.arrays import UNIT, on_device


class Sample(NamedTuple):
    """Joint draws of the outcomes of listed coordinates; leading axes are replicas and lists."""

    coordinates: Int[Array, "... m"]
    rewards: Float[Array, "... m"]
    nexts: Int[Array, "... m"]


class MeansAndPairs(NamedTuple):
    """Moments of one and two coordinates; those of one coordinate of order k ≥ 2 are on the diagonal."""

    mean: Float[Array, "... X"]
    pair: Float[Array, "... K N"]  # K powers (i, j), on N places, x·X + y in tables; in sweeps on [X, X]


def powers(order: int) -> list[tuple[int, int]]:
    """The powers (i, j) of a pair, i, j ≥ 1 and i + j ≤ order, in the order in which they are stored."""
    return [(i, degree - i) for degree in range(2, order + 1) for i in range(1, degree)]


def targets(
    order: int,
    discount: Array,
    rewards: Float[Array, "m ..."],
    singles: Float[Array, "n m ..."],
    later: Float[Array, "K m m ..."] | None,
    same: Array,
) -> tuple[Float[Array, "m ..."], Float[Array, "K m m ..."]]:
    """The sample backups of lists, on any further axes: means, and the powers (i, j) of all pairs.

    `singles` are the moments 1 … n of the next coordinates, `later` those of pairs of them; None where distinct
    coordinates stay independent, and then `same` says which are not distinct.
    """
    mean = rewards + discount * singles[0]
    left, right = rewards[:, None], rewards[None, :]
    place = {power: k for k, power in enumerate(powers(order))}
    if later is None:
        own = [rewards**k + future_part(k, discount, rewards, singles) for k in range(order + 1)]
        found = [jnp.where(same, own[i + j][:, None], own[i][:, None] * own[j][None, :]) for i, j in place]
        return mean, jnp.stack(found)

    def moment(k: int, m: int) -> Array:
        if k == 0:
            return singles[m - 1][None, :]
        return singles[k - 1][:, None] if m == 0 else later[place[k, m]]

    found = []
    for i, j in place:
        total = left**i * right**j
        for k in range(i + 1):
            for m in range(j + 1):
                if k + m > 0:
                    factor = comb(i, k) * comb(j, m) * discount ** (k + m)
                    total = total + factor * (left ** (i - k) * right ** (j - m)) * moment(k, m)
        found.append(total)
    return mean, jnp.stack(found)


def future_part(k: int, discount: Array, rewards: Array, singles: Array) -> Array:
    """Σ_{1≤m≤k} C(k,m) γᵐ R^{k−m} M_m(X'): the backup of the k-th moment of one coordinate, less Rᵏ."""
    terms = (comb(k, m) * discount**m * rewards ** (k - m) * singles[m - 1] for m in range(1, k + 1))
    return sum(terms, jnp.zeros_like(rewards))


def singles_of(order: int, mean: Float[Array, "m ..."], diagonal: Float[Array, "K m ..."]) -> Float[Array, "n m ..."]:
    """Moments 1 … n of coordinates, from their means and the diagonal of the pairs."""
    return jnp.stack([mean, *(diagonal[powers(order).index((k - 1, 1))] for k in range(2, order + 1))])


def field_targets(
    order: int, discount: Array, M: MeansAndPairs, rewards: Float[Array, " X"], nexts: Int[Array, " X"], is_shared: bool
) -> MeansAndPairs:
    """The sample backup of all coordinates from one field of outcomes; pairs are held on ``[K, X, X]``."""
    singles = singles_of(order, M.mean[nexts], M.pair[:, nexts, nexts])
    later = M.pair[:, nexts[:, None], nexts[None, :]] if is_shared else None
    return MeansAndPairs(*targets(order, discount, rewards, singles, later, jnp.eye(nexts.shape[0], dtype=bool)))


def rounding(order: int, reward_bound: Array, discount: Array) -> Float[Array, " orders"]:
    """The most that rounding changes in an update of order k: fewer than (k+3)² times, in sizes to (R_max/(1−γ))ᵏ."""
    orders = jnp.arange(order + 1)
    return UNIT * (orders + 3) ** 2 * (reward_bound / (1 - discount)) ** orders


class TupleLinks(NamedTuple):
    """Sorted tuples of coordinates as the backup reads them; tuple 0 is the empty one, whose moment is 1."""

    insert: Int[Array, "U X"]  # tuple and one more coordinate
    labels: tuple[Int[Array, "N_k k"], ...]  # coordinates of the tuples of each degree k = 1 … n
    stem: Int[Array, " N"]  # the tuple without its last run of equal coordinates
    runs: Int[Array, " N"]  # that run by itself


def links(tuples: Tuples) -> TupleLinks:
    """The links of all tuples up to an order."""
    labels = tuples.labels()
    chosen = tuple(on_device(labels[tuples.of_degree(k), :k]) for k in range(1, tuples.order + 1))
    stem, runs = (on_device(numbers.astype(np.int32)) for numbers in (tuples.stem, tuples.runs))
    return TupleLinks(on_device(tuples.insert), chosen, stem, runs)


def tuple_targets(
    table: TupleLinks,
    discount: Array,
    M: Float[Array, " N"],
    rewards: Float[Array, " X"],
    nexts: Int[Array, " X"],
    is_shared: bool,
) -> Float[Array, " N"]:
    """The sample backup of all sorted tuples: Σ_I γ^|I| Π_{i∉I} R_i M(X'_I), multiplied out factor by factor."""
    found = [jnp.ones(1)]
    for labels in table.labels:
        terms: list[tuple[Array, Array]] = [(jnp.zeros(labels.shape[0], dtype=jnp.int32), jnp.ones(labels.shape[0]))]
        for x in labels.T:
            later = [(table.insert[ids, nexts[x]], factor * discount) for ids, factor in terms]
            terms = [(ids, factor * rewards[x]) for ids, factor in terms] + later
        found.append(sum((factor * M[ids] for ids, factor in terms), jnp.zeros(labels.shape[0])))
    if not is_shared:
        start = 1
        for k, labels in enumerate(table.labels, 1):
            flat = jnp.concatenate(found)
            here = slice(start, start + labels.shape[0])
            # A run by itself is 1 times itself.
            found[k] = flat[table.stem[here]] * flat[table.runs[here]]
            start = here.stop
    return jnp.concatenate(found)
