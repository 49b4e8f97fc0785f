"""Which pairs of coordinates a projection looks at, and how closely.

A projection minimises ``Σ ξ(x,y) (fit − target)²``: what ``ξ`` does not see may come out as anything.

- **restart**, the default: the pair process begins in a pair that is asked about, goes on with probability c and
  begins anew otherwise, ``ξ = (1−c) Σ_k cᵏ ρ P₂ᵏ``. So ``ξP₂ ≤ ξ/c``, and one step of the process enlarges no norm by
  more than ``1/√c``.
- **stationary**, the paper's: the pair process after a long time, ``ξP₂ = ξ`` and c = 1. Two branches that meet with
  the same action are one for ever, so that in the end nearly always only pairs ``(x, x)`` are left.
- the user's **own** weights: c is the largest with ``ξP₂ ≤ ξ/c``, and 0 where the process leaves what they see.

States in which nothing is ever paid any more have no weight: their returns are 0 and not to be learned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg
from numpy.typing import ArrayLike

from jointmdp.exact.bellman.pair_step import PairPush, StateWeights, coordinate_kernel, on_coordinates
from jointmdp.ground import checks
from jointmdp.ground.arrays import Bools, Floats, Ints
from jointmdp.ground.errors import ModelError
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.tables import StateLike, policy_kernel, terminal_states

LEFT = 1e-13  # part of the weight that a step of the process may still change at the end
SOLVED = 1e-13  # relative residual at which the linear solve stops
MOST_STEPS = 500  # of the linear solve
KRYLOV = 2**27  # numbers of the vectors that a second linear solve keeps
STEADY = 1e-14  # change in a step of a process that counts as being at rest
STEPS = 200_000  # that are taken before a process counts as one that does not come to rest
PAIR_LIMIT = 20_000  # coordinates whose pairs a weighting of one's own may list
FAINT = 1e-11  # a weight below this is what a process at rest has not quite left behind, and is none
NAMED = 5  # states that a message names


@dataclass(frozen=True, eq=False, repr=False)
class PairWeighting:
    """Weights of means and of pairs; those of pairs in distinct states stand on *nodes*.

    A node is a state with a law of its action: the policy's where the process says which pairs there are, one action
    where the weights are a user's own.
    """

    name: str
    mean: Floats  # [S, A]
    same: Floats  # [S, A, A]
    cross: Floats  # [N, N]
    node_state: Ints  # [N]
    node_choice: Floats  # [N, A]
    mean_constant: float
    """The largest known c with νP ≤ ν/c."""
    pair_constant: float
    """The largest known c with ξP₂ ≤ ξ/c."""

    def weight(self, s: int, a: int, t: int, b: int) -> float:
        """ξ of two coordinates."""
        if s == t:
            return float(self.same[s, a, b])
        one, other = (np.where(self.node_state == i, self.node_choice[:, x], 0.0) for i, x in ((s, a), (t, b)))
        return float(one @ self.cross @ other)

    @property
    def is_seen(self) -> Bools:
        """Which pairs of one state have weight, ``[S, A, A]``."""
        return self.same > 0

    def words(self, model: JointMDP) -> str:
        """What is seen of the pairs that gaps are made of."""
        wanted = (model.available & ~terminal_states(model)[:, None])[:, :, None] & model.available[:, None, :]
        wanted &= ~np.eye(model.num_actions, dtype=bool)
        total, seen = int(wanted.sum()) // 2, int((wanted & self.is_seen).sum()) // 2
        if total == 0:
            return "no state has two actions"
        if seen == 0:
            return (
                f"the {self.name} weighting sees none of the {total:,} pairs of two actions in one state: nothing was "
                'learned about their covariances or gaps; weighting="restart" sees them'
            )
        return f"the {self.name} weighting sees {seen:,} of the {total:,} pairs of two actions in one state"


def continuation(discount: float, c: float | None) -> float:
    """How likely the pair process goes on in a step, checked; γ by default."""
    c = discount if c is None else checks.as_number("restart c", c)
    if not discount**2 < c < 1:
        raise ModelError(
            f"c is {c:g}; a restart weighting needs c between γ² = {discount**2:.6g}, where second moments stop "
            "contracting, and 1; c=None takes γ itself"
        )
    return c


def restart_weighting(
    model: JointMDP, policy: Floats, c: float | None, states: Sequence[StateLike] | None
) -> PairWeighting:
    """``ξ = (1−c) Σ_k cᵏ ρ P₂ᵏ``, where ρ is uniform over the states asked about and over pairs of actions in each."""
    c = continuation(model.discount, c)
    asked, is_over = asked_states(model, states), terminal_states(model)
    exists = model.available & asked[:, None] & ~is_over[:, None]
    rho = (exists[:, :, None] & exists[:, None, :]) / np.maximum(exists.sum(axis=1), 1)[:, None, None] ** 2
    total = rho.sum()
    if total == 0:
        raise ModelError(
            "nothing is ever paid in the states asked about: their returns are 0, and there is nothing to fit"
        )
    rho = rho / total
    steps = PairPush(model, policy)
    summed = _discounted_sum(steps, _dropped(steps.of_coordinates(rho), is_over), c, is_over)
    shares = StateWeights(c * summed.two, c * summed.one)
    same = (1 - c) * (rho + on_coordinates(policy, shares))
    cross = (1 - c) * (shares.two - np.diag(np.diag(shares.two)))
    mean = _restarted_mean(model, policy, np.einsum("sab->sa", rho), c, is_over)
    return _on_states("restart", policy, mean, same, cross, c)


def _discounted_sum(steps: PairPush, first: StateWeights, c: float, is_over: Bools) -> StateWeights:
    """``Σ_k cᵏ w P₂ᵏ``: a linear solve, and steps of the process itself until they change nothing any more."""
    shape, size = first.two.shape, first.two.size

    def moved(weights: StateWeights) -> StateWeights:
        return _dropped(steps.of_states(weights), is_over)

    def apply(flat: Floats) -> Floats:
        after = moved(StateWeights(flat[:size].reshape(shape), flat[size:]))
        return flat - c * np.concatenate([after.two.ravel(), after.one])

    begun = np.concatenate([first.two.ravel(), first.one])
    system = scipy.sparse.linalg.LinearOperator((len(begun), len(begun)), matvec=apply, dtype=np.float64)
    found, missed = scipy.sparse.linalg.bicgstab(system, begun, rtol=SOLVED, maxiter=MOST_STEPS)
    if not np.isfinite(found).all():
        found = begun
    if missed:  # it may break down, and near c = 1 the steps alone would take for ever
        kept = max(5, min(60, KRYLOV // len(begun)))
        found, _ = scipy.sparse.linalg.gmres(system, begun, found, rtol=SOLVED, restart=kept, maxiter=20)
    # Whatever the solver left, the steps put right: they contract, and keep weights positive.
    now = StateWeights(np.maximum(found[:size].reshape(shape), 0.0), np.maximum(found[size:], 0.0))
    while True:
        after = moved(now)
        after = StateWeights(first.two + c * after.two, first.one + c * after.one)
        change = float(np.abs(after.two - now.two).sum() + np.abs(after.one - now.one).sum())
        now = after
        if change <= LEFT * float(now.two.sum() + now.one.sum()):
            return now


def _restarted_mean(model: JointMDP, policy: Floats, start: Floats, c: float, is_over: Bools) -> Floats:
    """``ν = (1−c) Σ_k cᵏ ρ₁ Pᵏ``, the law of one branch."""
    open_states = sp.diags_array(np.where(is_over, 0.0, 1.0))
    kernel = (policy_kernel(model, policy) @ open_states).T.tocsc()
    first = np.where(is_over, 0.0, coordinate_kernel(model).T @ start.ravel())
    entered = scipy.sparse.linalg.spsolve(
        sp.eye_array(model.num_states, format="csc") - c * kernel, (1 - c) * c * first
    )
    return (1 - c) * start + np.asarray(entered)[:, None] * policy


def _dropped(weights: StateWeights, is_over: Bools) -> StateWeights:
    keep = np.where(is_over, 0.0, 1.0)
    return StateWeights(weights.two * keep[:, None] * keep[None, :], weights.one * keep)


def _on_states(name: str, policy: Floats, mean: Floats, same: Floats, cross: Floats, c: float) -> PairWeighting:
    nodes = np.arange(len(policy))
    return PairWeighting(name, mean, same, (cross + cross.T) / 2, nodes, policy, c, c)


def asked_states(model: JointMDP, states: Sequence[StateLike] | None) -> Bools:
    """The states that are asked about, all by default."""
    asked = np.zeros(model.num_states, dtype=bool)
    if states is None:
        return ~asked
    if isinstance(states, str | int | np.integer):
        states = [states]
    for state in states:
        asked[model.state_index(state)] = True
    if not asked.any():
        raise ModelError("states is empty; name at least one state that is asked about, or leave it out for all")
    return asked


def stationary_weighting(model: JointMDP, policy: Floats) -> PairWeighting:
    """The paper's ν and μ₂; of several μ₂ the one that the pairs of all states come to."""
    kernel = policy_kernel(model, policy)
    _check_ergodic(model, kernel)
    nu = _stationary_law(kernel)
    mean = nu[:, None] * policy
    same = np.zeros((model.num_states, model.num_actions, model.num_actions))
    cross = np.zeros((model.num_states, model.num_states))
    diagonal = StateWeights(cross, nu)
    if model.sharing == "none" or _all_merge(model, policy):
        return _on_states("stationary", policy, mean, same + on_coordinates(policy, diagonal), cross, 1.0)
    weights = _at_rest(model, policy, nu)
    away = weights.two - np.diag(np.diag(weights.two))
    return _on_states("stationary", policy, mean, on_coordinates(policy, weights), away, 1.0)


def _check_ergodic(model: JointMDP, kernel: sp.csr_array) -> None:
    count, label = sp.csgraph.connected_components(kernel, directed=True, connection="strong")
    if count == 1:
        return
    leaves = np.zeros(count, dtype=bool)
    rows, columns = kernel.nonzero()
    leaves[label[rows[label[rows] != label[columns]]]] = True
    closed = np.flatnonzero(~leaves)
    members = np.flatnonzero(label == closed[0])
    names = ", ".join(model.state_label(int(s)) for s in members[:NAMED])
    more = f" and {len(members) - NAMED:,} more" if len(members) > NAMED else ""
    others = f" (and {len(closed) - 1:,} more such classes)" if len(closed) > 1 else ""
    raise ModelError(
        f"the stationary weighting needs a chain that comes back to every state, but under this policy it never leaves "
        f"{{{names}{more}}} once it is there{others}: all other states would have weight 0; "
        'weighting="restart" needs nothing of the kind'
    )


def _stationary_law(kernel: sp.csr_array) -> Floats:
    """ν with νP = ν, of a chain that comes back to every state."""
    count = kernel.shape[0]
    system = (sp.eye_array(count) - kernel).T.tolil()
    system[0, :] = 1.0
    right = np.zeros(count)
    right[0] = 1.0
    nu = np.maximum(np.asarray(scipy.sparse.linalg.spsolve(system.tocsc(), right)), 0.0)
    return nu / nu.sum()


def _all_merge(model: JointMDP, policy: Floats) -> bool:
    """Whether two branches can become one from every pair of states."""
    # One branch: the same state and action. From one state with equal draws it happens at once.
    reached = np.eye(model.num_states, dtype=bool)
    groups = [(kernel > 0).astype(np.float64) for _, kernel in PairPush(model, policy).groups]
    while True:
        before = reached
        for kernel in groups:
            reached = reached | (np.asarray(kernel @ (kernel @ before.astype(np.float64)).T).T > 0)
        if (reached == before).all():
            return bool(reached.all())


def _at_rest(model: JointMDP, policy: Floats, nu: Floats) -> StateWeights:
    """Where the pair process from two actions of one state comes to; half of it waits, so that it comes to rest."""
    steps = PairPush(model, policy)
    exists = model.available / model.available.sum(axis=1, keepdims=True)
    now = steps.of_coordinates(nu[:, None, None] * exists[:, :, None] * exists[:, None, :])
    for _ in range(STEPS):
        after = steps.of_states(now)
        change = float(np.abs(after.two - now.two).sum() + np.abs(after.one - now.one).sum())
        now = StateWeights((now.two + after.two) / 2, (now.one + after.one) / 2)
        if change <= STEADY * 4:
            return StateWeights(np.where(now.two > FAINT, now.two, 0.0), now.one)
    raise ModelError(
        f"the pair process has not come to rest after {STEPS:,} steps, so its stationary weights are not known; "
        'weighting="restart" needs none'
    )


def own_weighting(
    model: JointMDP, policy: Floats, weights: ArrayLike, states: Sequence[StateLike] | None
) -> PairWeighting:
    """A user's weights of pairs ``[S, A, S, A]``, made symmetric; the means have their marginals."""
    S, A = model.num_states, model.num_actions
    if S * A > PAIR_LIMIT:
        raise ModelError(f"{S * A:,} coordinates have too many pairs to be listed; use the restart weighting")
    full = checks.as_floats("weighting", weights, "[S, A, S, A]", 4)
    checks.check_shape("weighting", full, (S, A, S, A), "[S, A, S, A]")
    checks.check_finite("weight", full, "state", "action", "state", "action")
    if at := checks.first_place(full < 0):
        where = checks.place(at, "state", "action", "state", "action")
        raise ModelError(f"the weight of {where} is {full[at]:g}; none may be negative")
    is_over = terminal_states(model)
    exists = (model.available & ~is_over[:, None]).astype(np.float64)
    full = full * exists[:, :, None, None] * exists[None, None]
    total = float(full.sum())
    if total == 0:
        raise ModelError("the weighting is 0 for every pair of available actions; give some pairs a weight")
    full = full / (2 * total)
    full = full + np.transpose(full, (2, 3, 0, 1))
    if states is not None:
        _check_asked(model, full, asked_states(model, states) & ~is_over)
    here = np.arange(S)
    same = full[here, :, here, :].copy()
    apart = full.copy()
    apart[here, :, here, :] = 0.0
    mean = full.sum(axis=(2, 3))
    steps = PairPush(model, policy)
    after = _dropped(steps.of_coordinates(same, apart), is_over)
    spread = after.two[:, None, :, None] * policy[:, :, None, None] * policy[None, None]
    spread[here, :, here, :] = on_coordinates(policy, after)
    entered = np.where(is_over, 0.0, steps.kernel.T @ mean.ravel())[:, None] * policy
    nodes = np.repeat(here, A)
    return PairWeighting(
        "given", mean, same, apart.reshape(S * A, S * A), nodes, np.tile(np.eye(A), (S, 1)),
        _largest_constant(mean, entered), _largest_constant(full, spread),
    )  # fmt: skip


def _largest_constant(weights: Floats, after: Floats) -> float:
    """The largest c with ``after ≤ weights/c``, at most 1."""
    moved = after > 0
    return float(min(1.0, np.min(weights[moved] / after[moved], initial=math.inf)))


def _check_asked(model: JointMDP, full: Floats, asked: Bools) -> None:
    for s in np.flatnonzero(asked):
        actions = np.flatnonzero(model.available[s])
        block = full[s][:, s][np.ix_(actions, actions)]
        if at := checks.first_place(block == 0):
            a, b = (model.action_label(int(actions[i])) for i in at)
            raise ModelError(
                f"the weighting has no weight on {a} and {b} in {model.state_label(int(s))}, which is asked about: "
                "their covariance could come out as anything; give that pair a weight"
            )
