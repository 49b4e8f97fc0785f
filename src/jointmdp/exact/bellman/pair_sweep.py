"""The step of two branches as an operator on arrays over pairs of states, ``[S, S]`` or some of their columns.

`pair_step` says how two branches step. Here the sharing is in one object, `PairKernel`: the law of the noise ``g`` that
branches in distinct states have in common, and the policy's kernels ``P_g`` given it. A sweep is

    D ← source + γ² Σ_g p(g) P_g D P_gᵀ        with a diagonal of its own: branches in one state share the scenario.

`sweep` makes it of a whole array on one device, `sweep_columns` of some columns, wherever the others are. The functions
are pure. Call them in float64.
"""

import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax import Array
from jaxtyping import Float, Int
from numpy.typing import NDArray

from jointmdp.exact.bellman import sparse_products
from jointmdp.exact.bellman.pallas_kernels import UNROLL, Added
from jointmdp.ground.arrays import Floats, Ints, on_device, summed
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.tables import policy_kernel

# A gathered row entry costs about as much as this many entries of a matrix product (`benchmarks/sweep.py`).
GATHER_COST = 32
# Dense kernels are for small models; above this many numbers the row form is taken whatever its speed.
DENSE_LIMIT = 30_000_000
LEAST_STATES = 1000  # fewer are swept in less time than Numba's programs are loaded
MET_AT_ONCE = 2**26  # pairs of successors of all states that are looked up at once; more, one action at a time


class PairKernel(NamedTuple):
    """How two branches move on: what a sweep over pairs of states needs of a model, a policy and a sharing.

    ``columns is None`` means that ``weights`` holds dense matrices ``[G, S, S]``.
    """

    # The law of the noise common to branches in distinct states; G is 0 under "none", 1 under "state", else "time".
    chances: Float[Array, " G"]
    weights: Float[Array, "G S K"]  # nonzero entries of the policy's kernels P_g
    columns: Int[Array, "G S K"] | None  # where they stand
    probabilities: Float[Array, "S W"]
    support: Int[Array, "S W M"]  # successors of the actions the policy may take
    choice: Float[Array, "S M"]  # their probabilities
    other_weights: Float[Array, "G S K"] | None = None  # of the second branch, where it follows a policy of its own
    other_choice: Float[Array, "S M"] | None = None

    @property
    def sides(self) -> tuple[Array, ...]:
        """The entries of P_g and, where the second branch has a policy of its own, of its kernels."""
        return (self.weights,) if self.other_weights is None else (self.weights, self.other_weights)


class Source(NamedTuple):
    """What one step adds to a moment of two branches, given the moments of lower order."""

    same: Float[Array, " S"]  # everything on the diagonal that does not involve the unknown
    cross: Float[Array, "S S"] | None  # everything off it; None where nothing is added, or `sides` say it
    sides: Float[Array, " S"] | None = None  # sides(s) + sides(t) off the diagonal, instead of a whole array
    law: Float[Array, " W"] | None = None  # and E_w (steps_w(s) − steps_w(t))², where w has this law
    steps: Float[Array, "W S"] | None = None

    @property
    def apart(self) -> Float[Array, "S S"] | None:
        """What is added off the diagonal."""
        return self.columns(jnp.arange(len(self.same))) if self.sides is not None else self.cross

    def columns(self, here: Int[Array, " J"]) -> Float[Array, "S J"]:
        """What is added off the diagonal in some columns."""
        if self.sides is None:
            assert self.cross is not None
            return self.cross[:, here]
        total = self.sides[:, None] + self.sides[None, here]
        if self.steps is None or self.law is None:
            return total

        def add(total: Array, scenario: tuple[Array, Array]) -> tuple[Array, None]:
            chance, step = scenario
            return total + chance * (step[:, None] - step[None, here]) ** 2, None

        return jax.lax.scan(add, total, (self.law, self.steps))[0]

    def stored(self) -> "Source":
        """As one array, where differences of steps would have to be formed in every sweep."""
        return self if self.steps is None else Source(self.same, self.apart)


class PairProblem(NamedTuple):
    """The recursion of a moment of two branches: `sweep` applies it."""

    kernel: PairKernel
    added: Source
    discount: Float[Array, ""]  # of a branch: the unknown is multiplied by its square


def sweep(problem: PairProblem, D: Float[Array, "S S"], is_symmetric: bool = False) -> Float[Array, "S S"]:
    """One application of the recursion of a moment of two branches on pairs of states.

    Where D is known to be symmetric, and both branches follow one policy, `is_symmetric` saves a part of the work.

    For the variance of their gap, D(s,t) = Var(Z(s,A) − Z(t,B)), with independent actions A and B:
    D(s,t) = source(s,t) + γ² Σ_g p(g) (P_g D P_gᵀ)(s,t) for s ≠ t, where g is the common noise, and
    D(s,s) = source(s,s) + γ² E_w Σ_{a≠b} π_a π_b D(S'_a,S'_b): branches that draw the same action are one.

    Branches of two policies π and π' never become one: C(s,s) = Cov_w(b̄, b̄') + γ² E_w ΣΣ π_a π'_b C(S'_a,S'_b).
    """
    kernel, added, discount = problem
    groups = kernel.chances.shape[0]
    if groups == 0:
        return jnp.zeros_like(D)
    if is_symmetric and kernel.columns is not None:
        cross = _symmetric_cross(problem, D)
    else:
        cross = discount**2 * between(kernel, kernel.sides[0], kernel.sides[-1], D)
        if (apart := added.apart) is not None:
            cross = cross + apart
    if kernel.other_choice is not None and groups > 1:
        return cross  # two policies that share every scenario: being in the same state changes nothing
    here = jnp.arange(D.shape[0])
    diagonal = added.same + discount**2 * met(kernel, D)
    return cross.at[here, here].set(diagonal.astype(cross.dtype))


def is_tiled(problem: PairProblem) -> bool:
    """Whether symmetric arrays are swept by the twin on a CPU, `numba_sweeps`, if there is Numba."""
    kernel = problem.kernel
    if kernel.weights.shape[1] < LEAST_STATES or kernel.columns is None or kernel.other_weights is not None:
        return False
    is_here = [device.platform for device in kernel.weights.devices()] == ["cpu"]
    return is_here and kernel.chances.shape[0] > 0 and has_numba()


@cache
def has_numba() -> bool:
    """Whether there are the loops of `numba_kernels`."""
    if importlib.util.find_spec("numba") is None:
        return False
    try:
        from jointmdp.exact.bellman import numba_kernels  # noqa: F401
    except (ImportError, RuntimeError):  # it refuses a newer NumPy, and systems that leave no place for its programs
        return False
    return True


def _symmetric_cross(problem: PairProblem, D: Float[Array, "S S"]) -> Float[Array, "S S"]:
    """source + γ² Σ_g p(g) P_g D P_gᵀ for D = Dᵀ and one policy."""
    kernel, added, discount = problem
    assert kernel.columns is not None
    factor = discount**2
    if kernel.chances.shape[0] == 1:
        more = Added(factor, added.sides, added.cross)
        return sparse_products.both_sides_symmetric(kernel.weights[0], kernel.columns[0], D, more)

    def add(total: Array, group: tuple[Array, Array, Array]) -> tuple[Array, None]:
        chance, weights, columns = group
        return sparse_products.both_sides_symmetric(weights, columns, D, Added(factor * chance, None, total)), None

    first = added.apart
    first = jnp.zeros_like(D) if first is None else first
    total, _ = jax.lax.scan(add, first, (kernel.chances, kernel.weights, kernel.columns))
    return total


def between(
    kernel: PairKernel, left: Float[Array, "G S K"], right: Float[Array, "G S K"], C: Float[Array, "S S"]
) -> Float[Array, "S S"]:
    """Σ_g p(g) L_g C R_gᵀ, for any entries L and R in the places of the policy's kernels."""

    def product(left: Array, right: Array, columns: Array | None) -> Array:
        if columns is None:
            return left @ C @ right.T
        return sparse_products.both_sides(left, right, columns, C)

    if kernel.chances.shape[0] == 1:
        return product(left[0], right[0], None if kernel.columns is None else kernel.columns[0])

    def add(total: Array, group: tuple[Array, Array, Array, Array | None]) -> tuple[Array, None]:
        chance, left, right, columns = group
        return total + chance * product(left, right, columns), None

    total, _ = jax.lax.scan(add, jnp.zeros_like(C), (kernel.chances, left, right, kernel.columns))
    return total


Entries = Callable[[Array, Array], Array]  # D(s,t) at arrays of places


def met(kernel: PairKernel, C: Float[Array, "S S"] | Entries) -> Float[Array, " S"]:
    """Σ_w p(w|s) Σ_{a≠b} π(a|s) π(b|s) C(S'_a, S'_b): two branches in s that draw different actions.

    Under two policies equal actions count as well.
    """
    n, p = kernel.support, kernel.probabilities
    if n.shape[2] == 1 and kernel.other_choice is None:
        return jnp.zeros(n.shape[0])
    entries = C if callable(C) else lambda s, t: C[s, t]
    if n.size * n.shape[2] <= MET_AT_ONCE:
        return parted(kernel, entries(n[:, :, :, None], n[:, :, None, :]))

    def add(total: Array, first: tuple[Array, Array]) -> tuple[Array, None]:
        to, chances = first
        return total + jnp.einsum("sw,sb,swb->s", p, chances, entries(to[:, :, None], n)), None

    return jax.lax.scan(add, jnp.zeros(n.shape[0]), (jnp.moveaxis(n, 2, 0), jnp.moveaxis(_met_pairs(kernel), 1, 0)))[0]


def parted(kernel: PairKernel, values: Float[Array, "S W M M"]) -> Float[Array, " S"]:
    """Σ_w p(w|s) Σ_{a≠b} π(a|s) π(b|s) f(s,w,a,b): `met` for what depends on the step itself, not only its end."""
    return jnp.einsum("sw,sab,swab->s", kernel.probabilities, _met_pairs(kernel), values)


def _met_pairs(kernel: PairKernel) -> Float[Array, "S M M"]:
    """π(a|s) π(b|s) of two branches in s that do not become one."""
    if kernel.other_choice is not None:
        return kernel.choice[:, :, None] * kernel.other_choice[:, None, :]
    return kernel.choice[:, :, None] * kernel.choice[:, None, :] * (1 - jnp.eye(kernel.choice.shape[1]))


def met_columns(kernel: PairKernel, left: Float[Array, "S m"], right: Float[Array, "S m"]) -> Float[Array, "S m"]:
    """`met` of ``l rᵀ`` for each column l of `left` and r of `right`: no array over pairs is formed."""
    support, choice, other = kernel.support, kernel.choice, kernel.other_choice
    count = support.shape[2]
    if count == 1 and other is None:
        return jnp.zeros_like(left)
    few = UNROLL // 4

    def scenario(w: int | Array) -> Array:
        def mean(chances: Array, columns: Array) -> Array:
            return sparse_products.sum_terms(lambda a: chances[:, a, None] * columns[support[:, w, a]], count, few)

        def same(a: int | Array) -> Array:
            there = support[:, w, a]
            return choice[:, a, None] ** 2 * left[there] * right[there]

        if other is not None:
            both = mean(choice, left) * mean(other, right)
        else:
            both = mean(choice, left) * mean(choice, right) - sparse_products.sum_terms(same, count, few)
        return kernel.probabilities[:, w, None] * both

    return sparse_products.sum_terms(scenario, support.shape[1], few)


def moved(kernel: PairKernel, side: Float[Array, "1 S K"], columns: Float[Array, "S m"]) -> Float[Array, "S m"]:
    """P applied to columns, where branches in distinct states have no noise in common; `side` holds the entries."""
    if kernel.columns is None:
        return side[0] @ columns
    return sparse_products.row_product(side[0], kernel.columns[0], columns)


class Columns(NamedTuple):
    """Some columns of a symmetric array over pairs, and how they come by what they need of the others."""

    here: Int[Array, " J"]  # their states
    turned: Callable[[Array, Array], Array]  # from the entries of P, weights and places: (P D)ᵀ in these columns
    entries: Entries


def columns_of_whole(D: Float[Array, "S S"], begin: int | Array, width: int) -> Columns:
    """Columns of an array that is at hand as a whole, in the precision of the entries of P."""

    def turned(weights: Array, places: Array) -> Array:
        rows, chances = (jax.lax.dynamic_slice_in_dim(each, begin, width) for each in (places, weights))
        return sparse_products.row_product(chances, rows, D).T

    return Columns(begin + jnp.arange(width), turned, lambda s, t: D[s, t])


def sweep_columns(
    problem: PairProblem, columns: Columns, diagonal: Float[Array, " S"] | None = None
) -> tuple[Float[Array, "S J"], Float[Array, "S J"]]:
    """`sweep` of a symmetric array for some of its columns, (P D Pᵀ)(·,J) = P (P D)ᵀ(·,J); and what a step adds there.

    For one policy. `diagonal` holds `met`, where it was computed before.
    """
    kernel, added, discount = problem
    here, apart = columns.here, added.columns(columns.here)
    assert kernel.columns is not None

    def move(total: Array, group: tuple[Array, Array, Array]) -> tuple[Array, None]:
        chance, weights, places = group
        both = sparse_products.row_product(weights, places, columns.turned(weights, places))
        return total + discount**2 * chance * both, None

    found, _ = jax.lax.scan(move, apart, (kernel.chances, kernel.weights, kernel.columns))
    later = met(kernel, columns.entries) if diagonal is None else diagonal
    own = added.same + discount**2 * later
    return found.at[here, jnp.arange(len(here))].set(own[here]), apart


def pair_kernel(
    model: JointMDP,
    policy: Floats,
    other: Floats | None = None,
    *,
    may_be_dense: bool = True,
    may_merge: bool = True,
) -> PairKernel:
    """How two branches move on under the model's sharing; `other` is the policy of the second, if it has its own.

    Scenarios that lead to the same places are merged where `may_merge`: not for moments that multiply what a scenario
    pays by what follows it.
    """
    policies = [policy] if other is None else [policy, other]
    support, _ = policy_support(np.sum(policies, axis=0))
    choices = [np.take_along_axis(each, support, axis=1) for each in policies]
    successors = np.take_along_axis(model.successors, support[:, None, :], axis=2)  # [S, W, M]
    columns: Ints | None = None
    if model.sharing == "none":
        chances, weights = np.empty(0), [np.empty((0, model.num_states, 1))] * len(policies)
    elif model.sharing == "time":
        chances, columns = model.probabilities[0], np.moveaxis(successors, 1, 0)
        if may_merge:
            chances, columns = _scenario_groups(chances, columns)
        weights = [np.broadcast_to(choice, columns.shape) for choice in choices]
    else:
        chances = np.ones(1)
        # Two kernels in one: their places are those of both.
        kernels = [policy_kernel(model, each) for each in policies]
        entries, columns = _rows(kernels[0] if other is None else kernels[0] + 1j * kernels[1])
        weights = [entries.real, entries.imag][: len(policies)]
    if columns is not None and may_be_dense:
        groups, states, width = columns.shape
        if width * GATHER_COST >= states and groups * states * states <= DENSE_LIMIT:
            rows, whole = weights, [np.zeros((groups, states, states)) for _ in weights]
            for each, found in zip(rows, whole, strict=True):
                np.add.at(found, (np.arange(groups)[:, None, None], np.arange(states)[None, :, None], columns), each)
            weights, columns = whole, None
    return PairKernel(
        on_device(chances),
        on_device(np.ascontiguousarray(weights[0])),
        None if columns is None else on_device(columns.astype(np.int32)),
        on_device(model.probabilities),
        on_device(successors.astype(np.int32)),
        on_device(choices[0]),
        None if other is None else on_device(np.ascontiguousarray(weights[1])),
        None if other is None else on_device(choices[1]),
    )


def _scenario_groups(chances: Floats, columns: Ints) -> tuple[Floats, Ints]:
    """Scenarios ``[W]``, ``[W, S, M]`` that lead to the same places, merged; at least two, where there are two."""
    _, first, group = np.unique(columns.reshape(len(columns), -1), axis=0, return_index=True, return_inverse=True)
    if len(first) == len(chances):
        return chances, columns
    merged, kept = summed(group.ravel(), chances, len(first)), columns[first]
    if len(first) == 1:  # one group alone would stand for branches that share nothing
        merged, kept = np.append(merged, 0.0), np.concatenate([kept, kept])
    return merged, kept


def policy_support(policy: Floats) -> tuple[Ints, Floats]:
    """The actions that the policy may take, padded with probability 0 to the longest list, ``[S, M]`` each."""
    longest = int((policy > 0).sum(axis=1).max())
    support = np.argsort(policy == 0, axis=1, kind="stable")[:, :longest]
    return support, np.take_along_axis(policy, support, axis=1)


def _rows(kernel: sp.csr_array) -> tuple[NDArray[Any], Ints]:
    """A sparse matrix as padded rows, ``[1, S, K]``: values and columns."""
    lengths = np.diff(kernel.indptr)
    width = int(lengths.max())
    inside = np.arange(width)[None, :] < lengths[:, None]
    weights = np.zeros((1, *inside.shape), dtype=kernel.dtype)
    columns = np.zeros((1, *inside.shape), dtype=np.int64)
    weights[0][inside] = kernel.data
    columns[0][inside] = kernel.indices
    return weights, columns
