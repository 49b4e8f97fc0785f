"""Joint moments of any order and any coordinates: the paper's iteration M ← T_n M on sorted tuples.

`evaluate` answers questions about two returns at a time; `joint_moments` answers those about three or more, such as
E[Z(x) Z(y) Z(z)], for models with few coordinates: order n has one number for each multiset of n coordinates.

The answer is certified as in `certificates`. With ``r_k`` the residual of order k, rounding included:

    e_k ≤ (r_k + Σ_{1≤j<k} C(k,j) γʲ R_max^{k−j} e_j) / (1−γᵏ)  ≤  λ_k ‖M − T_n M‖_λ / (1−γ)

The last is the paper's bound; the first, which is used, is never larger because the operator contracts order by order.
Under ``sharing="none"`` both hold for the moments of one coordinate. Entries of several are products there, and their
errors follow from those of the factors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from jointmdp.exact.bellman.tuple_moments import CHUNK, Collection, JointOperator, Tuples
from jointmdp.exact.moments.certificates import OUTWARD, Status, contraction_gap, norm_weight, report_missed
from jointmdp.exact.moments.iteration import iterate
from jointmdp.ground import checks
from jointmdp.ground.arrays import UNIT, Floats
from jointmdp.ground.errors import ModelError
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.policies import checked_policy
from jointmdp.model.tables import ActionLike, StateLike

LARGEST_POWER = 1e150  # no power of a reward or of a starting value that the iteration forms may exceed it
HIGHEST_ORDER = 64
# Bytes of a sorted tuple (its links, two collections, their difference), of an entry of a sparse matrix while it is
# being made, of an entry of the tables that insert a coordinate or a strand, and of a term of a product in the making.
TUPLE_BYTES, ENTRY_BYTES, LINK_BYTES, TERM_BYTES = 128, 56, 24, 96


@dataclass(frozen=True, eq=False, repr=False)
class JointMoments:
    """``E Π_i Z(x_i)`` for all tuples of up to `order` coordinates ``x = (s,a)``, with certified errors."""

    model: JointMDP
    policy: Floats  # [S, A]
    order: int
    residual: float
    """Upper bound of ‖M − T_n M‖_λ, rounding included."""
    errors: Floats  # [order]
    """``errors[k−1]`` bounds the error of every moment of order k."""
    status: Status
    steps: int
    history: Floats
    """‖M − T_n M‖_λ as computed, for the start and after each step."""
    memory_limit: float
    _tuples: Tuples
    _values: Collection  # by order, on sorted tuples of available coordinates

    def __repr__(self) -> str:
        return f"JointMoments({self.model!r}, order {self.order}: {self.status.value}; {self._bounds()})"

    def _bounds(self) -> str:
        errors = ", ".join(f"{error:.1e}" for error in self.errors)
        return f"orders 1 to {self.order} ± {errors}, residual ≤ {self.residual:.1e}"

    def __getitem__(self, order: int) -> Floats:
        """The moments of one order as a full tensor ``[S, A] * order``; NaN where an action is unavailable."""
        k = checks.as_count("order", order, most=self.order)
        size = self.model.num_states * self.model.num_actions
        if 32 * size**k > self.memory_limit:  # the tensor, its numbers and what NumPy makes of them on the way
            raise ModelError(
                f"the full tensor of order {k} has {size**k:,} entries, {8 * size**k / 2**30:.1f} GiB; "
                "ask moment((s, a), (t, b), …) for single entries, or raise memory_limit"
            )
        ids = self._tuples.insert[0]
        for _ in range(k - 1):
            ids = self._tuples.insert[ids]
        found = np.full((size,) * k, np.nan)
        exists = np.flatnonzero(self.model.available)
        found[np.ix_(*[exists] * k)] = self._values[k - 1][ids - self._tuples.starts[k]]
        return found.reshape((self.model.num_states, self.model.num_actions) * k)

    def moment(self, *coordinates: tuple[StateLike, ActionLike]) -> float:
        """``E Π_i Z(s_i,a_i)`` for coordinates given as ``(state, action)`` by index or name; repeats are powers."""
        found, k = self._tuples.number(self.model, coordinates), len(coordinates)
        return float(self._values[k - 1][found - self._tuples.starts[k]])


def joint_moments(
    model: JointMDP,
    policy: ArrayLike,
    order: int,
    *,
    tolerance: float | None = 1e-8,
    max_steps: int = 100_000,
    start: Sequence[ArrayLike] | None = None,
    memory_limit: float = 2 * 2**30,
    throw: bool = False,
) -> JointMoments:
    """All joint moments up to `order` of the returns of any coordinates, by iterating T_n.

    Args:
        model: the joint MDP; its ``sharing`` says which branches share their noise.
        policy: action probabilities ``[S, A]``, or one action per state ``[S]``, by index or name.
        order: n, the highest order.
        tolerance: bound on the certified error of every moment; None takes exactly `max_steps` steps.
        max_steps: most steps taken.
        start: first collection, one symmetric tensor ``[S, A] * k`` for each order k; zero by default.
        memory_limit: bytes that the computation may take.
        throw: raise `ConvergenceError` instead of warning when the tolerance is missed.
    """
    chosen = checked_policy(model, policy, "joint_moments(*jointmdp.envs.coupled_reward_chain(4), order=3)")
    n = checks.as_count("order", order, most=HIGHEST_ORDER)
    if tolerance is not None:
        checks.as_positive("tolerance", tolerance)
    most = checks.as_count("max_steps", max_steps, least=0)
    limit = checks.as_positive("memory_limit", memory_limit)
    if model.discount >= 1:
        raise ModelError("discount is 1: returns over an endless future need a discount below 1")
    bound, largest = model.reward_bound, LARGEST_POWER ** (1 / n)  # every moment must be a float with room to spare
    if 2 * bound / (1 - model.discount) > largest or 0 < bound < 1 / largest:
        raise ModelError(
            f"rewards up to {bound:g} at discount {model.discount:g} have moments of order {n} beyond the range of "
            "floats; rescale them to a size near 1, or ask for a smaller order"
        )
    _check_memory(model, chosen, n, limit)
    operator = JointOperator(model, chosen, n)
    first = operator.zero() if start is None else _checked_start(operator, start)
    M, bounds, status, steps, history = iterate(
        operator, _JointErrors(operator), first, tolerance, most, f"iterating T_{n}"
    )
    found = JointMoments(model, chosen, n, *bounds, status, steps, history, limit, operator.tuples, M)
    report_missed(found.status, found._bounds(), throw)
    return found


class _JointErrors:
    """Residuals and certified errors of collections, from ``M`` and ``after = T_n M`` as computed."""

    def __init__(self, operator: JointOperator) -> None:
        model = operator.model
        self.order, self.is_shared = operator.order, model.sharing != "none"
        self.discount, self.reward = model.discount, model.reward_bound
        weight = norm_weight(self.reward, self.discount)
        self.weights = np.array([weight**k for k in range(self.order)])
        # One average and one backup add up so many products, of factors with so many roundings: per coordinate a
        # sum over scenarios and actions, whose probabilities sum to 1 only up to rounding, and the merging of at
        # most 2ᵏ terms that name the same strands.
        per = 4 * model.num_scenarios + 4 * model.num_actions + 16
        self.orders = range(1, self.order + 1)
        counts = (operator.longest[k] + max(operator.widest[: k + 1]) + k * (per + 2**k) for k in self.orders)
        self.operations = np.array([0.0, *counts])

    def _backup(self, k: int, sizes: Floats, least: int) -> float:
        """Σ_{j≥least} C(k,j) γʲ R_max^{k−j} sizes[j]: how T_n passes on bounds of each order."""
        g, r = self.discount, self.reward
        return sum(comb(k, j) * g**j * r ** (k - j) * float(sizes[j]) for j in range(least, k + 1))

    def __call__(self, M: Collection, after: Collection) -> tuple[float, float, tuple[float, Floats]]:
        """The residual as computed, the largest error, and both bounds: residual with rounding, error of each order."""
        plain = np.array([np.max(np.abs(new - old)) for new, old in zip(after, M, strict=True)])
        sizes = np.array([1.0] + [np.max(np.abs(old)) for old in M])
        terms = np.array([self._backup(k, sizes, 0) for k in range(self.order + 1)])
        operations = self.operations
        if not self.is_shared:
            # A product over runs rounds as often as its factors together.
            terms, operations = _largest_products(terms), operations * np.arange(self.order + 1)
        r = np.append(0.0, plain + UNIT * (operations * (terms + sizes))[1:])
        residual = float(np.max(r[1:] / self.weights))
        errors = np.zeros(self.order + 1)
        room = OUTWARD + 64 * self.order**2 * UNIT  # sums of products of powers round more often than others
        for k in self.orders:
            errors[k] = room * (r[k] + self._backup(k, errors, 1)) / contraction_gap(self.discount, k)
        if not self.is_shared:
            errors = np.maximum(errors, room * (r + self._product_errors(sizes, errors)))
        return float(np.max(plain / self.weights)), float(errors[1:].max()), (residual, errors[1:])

    def _product_errors(self, sizes: Floats, errors: Floats) -> Floats:
        """Errors of products of one-coordinate moments ``u_m = (T_n M)_m`` that stand for the true ``v_m``.

        ``|Π u − Π v| ≤ Π (|v|+δ) − Π |v|`` over the runs of a tuple, where ``|u_m − v_m| ≤ δ_m``.
        """
        powers = (self.reward / (1 - self.discount)) ** np.arange(self.order + 1)
        true = np.minimum(powers, sizes + errors)
        off = np.array([self._backup(k, errors, 1) for k in range(self.order + 1)])
        largest = _largest_products(true + off)
        found = np.zeros(self.order + 1)
        for k in self.orders:
            found[k] = max(off[m] * largest[k - m] + true[m] * found[k - m] for m in range(1, k + 1))
        return found


def _largest_products(sizes: Floats) -> Floats:
    """``max Π_i sizes[m_i]`` over all ways to write k as a sum of ``m_i``, for each k."""
    found = np.ones(len(sizes))
    for k in range(1, len(sizes)):
        found[k] = max(sizes[m] * found[k - m] for m in range(1, k + 1))
    return found


def _check_memory(model: JointMDP, policy: Floats, order: int, limit: float) -> None:
    needed = _memory(model, policy, order)
    if needed <= limit:
        return
    count = int(model.available.sum())
    fitting = max((k for k in range(1, order) if _memory(model, policy, k) <= limit), default=0)
    smaller = f"order {fitting} would fit, and" if fitting else "not even order 1 would fit;"
    raise ModelError(
        f"order {order} on {count:,} coordinates has {comb(count + order, order) - 1:,} sorted tuples and needs about "
        f"{needed / 2**30:.3g} GiB, above memory_limit = {limit / 2**30:.3g} GiB; {smaller} "
        f"evaluate(model, policy, order={order}) needs only pairs of states where two returns at a time are enough"
    )


def _memory(model: JointMDP, policy: Floats, order: int) -> int:
    """About how many bytes the operator and its collections take at their largest."""
    S, W = model.num_states, int(np.count_nonzero(model.probabilities.any(axis=0)))
    count = int(model.available.sum())
    tuples = [comb(count + k - 1, k) for k in range(order + 1)]
    strands = _count_multisets([1] * S, order)
    sorted_successors = np.sort(np.moveaxis(model.successors, 1, 2)[model.available], axis=1)
    spread = 1 + int(np.max(np.count_nonzero(np.diff(sorted_successors, axis=1), axis=1)))  # successors of one pair
    entries = sum(_count_multisets(np.count_nonzero(policy, axis=1).tolist(), order))
    for k in range(1, order + 1):
        longest = min(sum(strands[: k + 1]), (1 + spread) ** k)
        if model.sharing == "none":
            entries += count * (1 + k * spread)
        else:
            longest = min(longest, 1 + W * (2**k - 1)) if model.sharing == "time" else longest
            entries += tuples[k] * longest
    links = sum(tuples[:order]) * count + sum(strands[:order]) * S * order
    # At most 2ᵏ terms of a product fall on one entry.
    terms = min(CHUNK, 2**order * entries) if model.sharing == "state" else 0
    return sum(tuples) * TUPLE_BYTES + entries * ENTRY_BYTES + links * LINK_BYTES + terms * TERM_BYTES


def _count_multisets(choices: list[int], order: int) -> list[int]:
    """Coefficients of ``Π_s Π_{j≥1} 1/(1 − choices[s] zʲ)``: multisets of strands by degree, each with its choices."""
    found = [1] + [0] * order
    for choice in choices:
        for j in range(1, order + 1):
            for degree in range(j, order + 1):
                found[degree] += choice * found[degree - j]
    return found


def _checked_start(operator: JointOperator, start: Sequence[ArrayLike]) -> Collection:
    """The entries of the starting tensors on sorted tuples of available coordinates."""
    model, order = operator.model, operator.order
    if isinstance(start, str) or not isinstance(start, Sequence) or len(start) != order:
        given = f"{len(start)} tensors" if isinstance(start, Sequence | np.ndarray) else repr(start)
        raise ModelError(f"start must be a sequence of {order} tensors, one for each order 1 to {order}, not {given}")
    exists, labels, found = np.flatnonzero(model.available), operator.tuples.labels(), []
    for k, values in enumerate(start, 1):
        name, words = f"start of order {k}", "[" + ", ".join(["S, A"] * k) + "]"
        tensor = checks.as_floats(name, values, words, 2 * k)
        checks.check_shape(name, tensor, model.available.shape * k, words)
        tensor = tensor.reshape((model.available.size,) * k)[np.ix_(*[exists] * k)]
        limit = LARGEST_POWER ** (k / order)
        if not np.all(np.isfinite(tensor)) or np.max(np.abs(tensor)) > limit:
            worst = np.argmax(np.where(np.isfinite(tensor), np.abs(tensor), np.inf))
            raise ModelError(
                f"{name} at {_coordinates(model, np.unravel_index(worst, tensor.shape))} is {tensor.flat[worst]:g}; "
                f"entries of available actions must be finite and at most {limit:.3g} in size"
            )
        for axis in range(k - 1):
            off = np.abs(tensor - np.swapaxes(tensor, axis, axis + 1))
            if off.max() > 1e-9 * np.max(np.abs(tensor)):
                place = np.unravel_index(np.argmax(off), off.shape)
                raise ModelError(
                    f"{name} is not symmetric: exchanging two coordinates of {_coordinates(model, place)} changes it "
                    f"by {off[place]:.3g}; a product of returns does not depend on their order"
                )
        found.append(tensor[tuple(labels[operator.tuples.of_degree(k), :k].T)].copy())
    return found


def _coordinates(model: JointMDP, place: tuple[Any, ...]) -> str:
    states, actions = np.nonzero(model.available)
    names = [f"({model.state_label(int(states[i]))}, {model.action_label(int(actions[i]))})" for i in place]
    return ", ".join(names)
