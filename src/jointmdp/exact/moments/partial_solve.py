"""Joint moments of the asked states of a model, held on the part of it that they lead to.

Moments of a few states of a large model: means and variances on the states that they lead to, gaps on pairs.

The steps are those of `solving`, on a part of the model (`model.reached_states`) and on a list of pairs (`pair_lists`)
instead of all. What is left out enters as an error: a value outside is off by at most the spread of all values, and the
variance of a gap that is not listed lies between ``(√B(s) − √B(t))²`` and ``(√B(s) + √B(t))²``. How these errors come
back to the asked states is part of the same bounds that hold rounding and residuals, so the certificate covers it.
While it is too large, less is left out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import scipy.sparse.linalg

from jointmdp.exact.moments.certificates import CHECK_ROOM, Certificate, StateErrors
from jointmdp.exact.moments.default_solver import LEAST_SCALE, LEAST_STD
from jointmdp.exact.moments.gap_backup import GapEstimate, gap_backup
from jointmdp.exact.moments.gap_variances import gap_step_errors
from jointmdp.exact.moments.pair_lists import PairList, PairWalk, code
from jointmdp.exact.moments.pair_solver import Solve
from jointmdp.exact.moments.single_branch import SingleBranch, solve_single_branch
from jointmdp.ground import checks
from jointmdp.ground.arrays import UNIT, Bools, Floats, Ints, distinct, summed
from jointmdp.ground.errors import ModelError, NotKnownError, Status
from jointmdp.ground.progress import Meter
from jointmdp.model.episodes import idle_states
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.reached_states import ReachedPart, reached_part, with_layers


def gap_ends(branch: SingleBranch, errors: StateErrors, s: Ints, t: Ints) -> tuple[Floats, Floats]:
    """What the variances of single branches say of the variance of a gap: (√B(s) ∓ √B(t))²."""
    B, off = branch.variance, errors.variance_errors
    up, low = np.sqrt(B + off), np.sqrt(np.maximum(B - off, 0.0))
    nearest = np.maximum(np.maximum(low[s] - up[t], low[t] - up[s]), 0.0)
    return nearest**2, (up[s] + up[t]) ** 2


@dataclass(frozen=True, eq=False, repr=False)
class ListedMoments:
    """Moments held on a part and on a list of pairs; states and actions are those of the whole model."""

    model: JointMDP
    part: ReachedPart
    branch: SingleBranch
    errors: StateErrors
    part_mean: Floats  # [R, A]
    pairs: PairList | None  # None where branches share nothing
    D: Floats  # [k] variance of the gap of two branches
    pair_errors: Floats  # [k]

    @property
    def asked(self) -> Ints:
        """The states that moments of all actions are known of."""
        return self.part.states[self.part.asked]

    def _whole(self, values: Floats, fill: float) -> Floats:
        """``[R, A]`` as ``[S, A]``."""
        found = np.full((self.model.num_states, *values.shape[1:]), fill)
        found[self.part.states] = values[: len(self.part.states)]
        return found

    @cached_property
    def mean(self) -> Floats:
        """E Z(s,a), ``[S, A]``; NaN in states that were not reached."""
        return self._whole(np.where(self.part.model.available, self.part_mean, np.nan), np.nan)

    @cached_property
    def _variance_errors(self) -> Floats:
        """Of the variance of each coordinate of the part, ``[R, A]``."""
        errors, n = self.errors, self.part.model.successors
        return errors.variance_steps + self.part.model.discount**2 * errors.expect(errors.variance_errors[n])

    def place(self, state: int) -> int:
        """The index in the part of a state that was asked about."""
        place = int(self.part.place(np.array(state)))
        if place not in self.part.asked:
            raise NotKnownError(
                f"{self.model.state_label(state)} was not among the states asked about; evaluate(..., states=[…]) with "
                "it, or without states"
            )
        return place

    def _later(self, s: int, a: int, b: int) -> tuple[float, float]:
        """E_w D(S'_a, S'_b) of a state of the part, and a bound on its error."""
        if self.pairs is None:
            return 0.0, 0.0
        p, n = self.part.model.probabilities[s], self.part.model.successors[s]
        n = n[p > 0]
        at = self.pairs.place(n[:, a], n[:, b])
        low, high = gap_ends(self.branch, self.errors, n[:, a], n[:, b])
        listed = at >= 0
        value = np.where(listed, np.append(self.D, 0.0)[at], (high + low) / 2)
        error = np.where(listed, np.append(self.pair_errors, 0.0)[at], (high - low) / 2)
        settled = ~listed & self.pairs.is_settled(n[:, a], n[:, b])
        return tuple(float(p[p > 0] @ np.where(settled, 0.0, each)) for each in (value, error))  # type: ignore[return-value]

    def _part_gap(self, s: int, a: int, b: int) -> GapEstimate:
        """Of a state of the part."""
        v = np.sum(self.part.policy * self.branch.mean, axis=1)
        rewards, values = self.branch.state.rewards[s], self.errors.values
        found = gap_backup(self.part.model, rewards, v, values, (s, a, b), self._later(s, a, b))
        if self.pairs is not None:
            return found
        variance = float(self.errors.variances[s, a] + self.errors.variances[s, b])
        off = float(self._variance_errors[s, a] + self._variance_errors[s, b])
        return found._replace(variance=variance, variance_error=off + 4 * UNIT * variance)

    def difference(self, s: int, a: int, b: int, certificate: Certificate) -> GapEstimate:
        return self._gaps[self.place(s), a, b]

    @cached_property
    def _gaps(self) -> dict[tuple[int, int, int], GapEstimate]:
        """All gaps of the asked states."""
        found: dict[tuple[int, int, int], GapEstimate] = {}
        for s in self.part.asked.tolist():
            actions = np.flatnonzero(self.part.model.available[s]).tolist()
            found |= {(s, a, b): self._part_gap(s, a, b) for a in actions for b in actions if a != b}
        return found

    def blocks(self, states: Sequence[int], actions: Sequence[int]) -> Floats:
        """Covariances; NaN in states that were not asked about."""
        found = np.full((len(states), len(actions), len(actions)), np.nan)
        places = self.part.place(np.asarray(states))
        for i in np.flatnonzero(np.isin(places, self.part.asked)).tolist():
            place = int(places[i])
            variances = self.errors.variances[place]
            for j, a in enumerate(actions):
                for k, b in enumerate(actions):
                    if a == b:
                        found[i, j, k] = variances[a]
                    elif (place, a, b) in self._gaps:
                        found[i, j, k] = (variances[a] + variances[b] - self._gaps[place, a, b].variance) / 2
        return found

    def between(self, s: int, a: int, t: int, b: int) -> float:
        raise _not_held()

    def across(self) -> Floats:
        raise _not_held()

    def worst_error(self, small: float, least: float) -> float:
        """The largest error of a gap's variance; relative to it, to `small` of those of its branches, to `least`."""
        worst = 0.0
        for (s, a, b), gap in self._gaps.items():
            size = max(gap.variance, small * float(self.errors.variances[s, [a, b]].sum()), least)
            worst = max(worst, gap.variance_error / size)
        return worst

    def certificate(self, residual: float) -> Certificate:
        """Bounds on the errors in the asked states; infinite in others."""
        errors, asked = self.errors, self.part.asked
        exists = self.part.model.available[asked]
        largest = float(np.max(np.abs(self.part_mean[asked]), where=exists, initial=0.0))
        scale = float(np.max(np.abs(errors.mean)) + np.max(np.abs(self.branch.state.offset)))
        mean_errors = errors.mean_errors + 4 * UNIT * scale
        shares = self._variance_errors / 2
        for (s, a, b), gap in self._gaps.items():
            floor = gap.variance_error / 4 + 8 * UNIT * float(errors.variances[s, a] + errors.variances[s, b])
            shares[s, a] = max(shares[s, a], self._variance_errors[s, a] / 2 + floor)
        top = float(np.max(shares[asked], where=exists, initial=0.0))
        mean_error = float(np.max(mean_errors[asked], where=exists, initial=0.0))
        variance = float(np.max(errors.variances[asked], where=exists, initial=0.0))
        second = 2 * top + (2 * largest + mean_error) * mean_error + 16 * UNIT * (largest**2 + variance)
        known = np.isin(np.arange(self.model.num_states), self.asked)[:, None]
        bounds = (np.where(known, self._whole(each, np.inf), np.inf) for each in (mean_errors, shares))
        return Certificate(residual, mean_error, second, 2 * top, *bounds)


def _not_held() -> NotKnownError:
    return NotKnownError(
        "covariances of distinct states are not held where evaluate(..., states=[…]) was asked for some; evaluate "
        "without states, or simulate"
    )


MOVE_BYTES = 60  # that a move takes at the peak
FEWEST_MOVES = 2  # of a pair
AT_ONCE = 2**25  # weights of pairs that are formed at once
MEMORY = 2**31  # bytes for moves of pairs
# Of the tolerance: the discounted probability below which a pair of states, or a state, is left out at first.
LEAST_PAIR, LEAST_STATE = 1e-3, 1e-7
FINER = 30.0  # times as small at the next attempt
ATTEMPTS = 4
TARGET = 1e-2  # of the tolerance: the residual, relative to what a step adds and to the steps that a return takes
NEGLIGIBLE = 1e-2  # of the least weight of a pair: steps that add less are not counted
SHARP = 0.9  # of a bound on errors that is left after some sweeps, when more are not worth it
SMALL = 1e-3  # of the variance of one branch: gaps that vary less need not be known to the tolerance of their own
LOOK = 16  # sweeps between two looks at the residual
RESTART, RESTARTS = 40, 10  # steps of GMRES between two restarts, and how many of these before sweeps look again
MOST_FROM_ABOVE = 512  # sweeps that sharpen a bound on errors
LONG = 400  # sweeps still to come, at the rate seen, beyond which a Krylov method takes over


class Reach(NamedTuple):
    """What `evaluate` would look at to answer for some states; see `reach`."""

    states: int
    """How many states matter."""
    pairs: int
    """How many pairs of them, merged pairs left out."""
    moves: int
    """Steps between these pairs: what a sweep costs."""
    is_complete: bool
    """Whether nothing that can be reached is left out; else what is left out enters the certificate."""

    def __str__(self) -> str:
        rest = "nothing is left out" if self.is_complete else "less likely ones are left out, within the certificate"
        return f"{self.pairs:,} pairs of {self.states:,} states, {self.moves:,} moves between them; {rest}"


class FoundStates(NamedTuple):
    """Moments of the asked states, and how true they are."""

    moments: ListedMoments
    certificate: Certificate
    status: Status
    steps: int


def solve_asked(model: JointMDP, policy: Floats, asked: Ints, method: Solve) -> FoundStates:
    """All moments of an endless future in the asked states."""
    tolerance = checks.as_positive("relative_tolerance", method.relative_tolerance)
    least = LEAST_PAIR * min(tolerance, 1.0)
    found: FoundStates | None = None
    with Meter("joint moments") as meter:
        for _ in range(ATTEMPTS):
            part = reached_part(model, policy, asked, least * LEAST_STATE / LEAST_PAIR)
            try:
                found = _solve_part(model, part, method, tolerance, meter, least)
            except ModelError:
                if found is None:
                    raise
                break  # finer takes more memory than there is: what is known stands, with its certificate
            if found.moments.part.layers is None or found.status is Status.CONVERGED:
                break
            least /= FINER
    assert found is not None
    return found


def reached_from(model: JointMDP, policy: Floats, asked: Ints, tolerance: float) -> Reach:
    """What `solve_asked` looks at first, without solving anything."""
    least = LEAST_PAIR * min(tolerance, 1.0)
    part = reached_part(model, policy, asked, least * LEAST_STATE / LEAST_PAIR)
    if model.sharing == "none":
        return Reach(len(part.states), 0, 0, part.layers is None)
    with Meter("pairs of states") as meter:
        part, pairs = _pair_list(part, idle_states(part.model, part.policy), least, meter)
    return Reach(len(part.states), len(pairs.codes), pairs.num_moves, part.layers is None)


def _solve_part(
    model: JointMDP, part: ReachedPart, method: Solve, tolerance: float, meter: Meter, least: float
) -> FoundStates:
    branch = solve_single_branch(part.model, part.policy)
    errors = StateErrors(part.model, part.policy, branch, part.outside, part.value_error)
    pairs, values, bounds, residual, sweeps = None, np.zeros(0), np.zeros(0), 0.0, 0
    if model.sharing != "none":
        part, pairs = _pair_list(part, branch.state.idle, least, meter)
        values, bounds, residual, sweeps = _solve_list(part, branch, errors, pairs, tolerance, method, meter)
    mean = errors.mean + branch.state.offset[:, None]
    moments = ListedMoments(model, part, branch, errors, mean, pairs, values, bounds)
    certificate = moments.certificate(residual)
    paid = float(np.max(np.abs(branch.state.rewards)))
    least_variance = max((LEAST_STD * paid * branch.state.span) ** 2, LEAST_SCALE)
    is_met = moments.worst_error(SMALL, least_variance) <= tolerance
    status = Status.CONVERGED if is_met else Status.STEP_LIMIT if sweeps >= method.max_sweeps else Status.STAGNATED
    return FoundStates(moments, certificate, status, sweeps)


def _pair_list(part: ReachedPart, idle: Bools, least: float, meter: Meter) -> tuple[ReachedPart, PairList]:
    """The pairs that the first steps lead to: all of them, or those of a weight of at least `least`."""
    model, most = part.model, MEMORY // MOVE_BYTES
    walk = PairWalk(model, part.policy, idle, part.outside)
    found = walk.reached(_first_pairs(part, walk), most) if part.layers is None else None
    if found is None and part.layers is None and model.discount < 1:
        part = with_layers(part, least * LEAST_STATE / LEAST_PAIR)
    if part.layers is not None:
        weighty = _weighty_pairs(part, least, most // FEWEST_MOVES)
        if weighty is not None:
            codes = np.concatenate([weighty, _first_pairs(part, walk)])
            outside = -1 if part.outside is None else part.outside
            found = walk.listed(codes[codes % walk.size != outside], most)
    if found is None:
        raise ModelError(
            f"the states asked about lead to {len(part.states):,} states and to more pairs of them than {MEMORY:,} "
            f"bytes hold ({most:,} moves between pairs); a larger relative_tolerance leaves out more, fewer states at "
            "a time reach less; where one state reaches nearly all others, simulate: simulate(model, policy, "
            "state, action, other)"
        )
    meter.update(0.0, f"{len(found.codes):,} pairs of {len(part.states):,} states")
    return part, found


def _first_pairs(part: ReachedPart, walk: PairWalk) -> Ints:
    """Codes of the pairs that two actions of an asked state lead to."""
    model, found = part.model, [np.zeros(0, dtype=np.int64)]
    for s in part.asked.tolist():
        actions = np.flatnonzero(model.available[s])
        to = model.successors[s][model.probabilities[s] > 0][:, actions]  # [W, A]
        i, j = np.triu_indices(len(actions), 1)
        found.append(code(walk.size, to[:, i], to[:, j]).ravel())
    codes = distinct(np.concatenate(found))
    return codes[~walk.is_settled(*np.divmod(codes, walk.size))]


def _weighty_pairs(part: ReachedPart, least: float, most: int) -> Ints | None:
    """Codes of pairs that branches from one asked state come to with a weight of `least`, as if they moved apart.

    None where there are more than `most`.
    """
    layers, size = part.layers, part.model.num_states
    assert layers is not None
    found, count = [np.zeros(0, dtype=np.int64)], 0
    for root in range(len(part.asked)):
        mine = layers.root == root
        step, weight = layers.step[mine], layers.weight[mine]
        states, where = np.unique(layers.state[mine], return_inverse=True)
        # A weight is at most the largest of one branch at any time, times what the other has over all times.
        largest, in_all = np.zeros(len(states)), summed(where, weight, len(states)).max()
        np.maximum.at(largest, where, weight)
        is_kept = largest * in_all >= least
        number = np.cumsum(is_kept) - 1
        keep = is_kept[where] & (weight * largest.max() * step.max() >= NEGLIGIBLE * least)
        weights = np.zeros((int(step[keep].max(initial=0)) + 1, int(number[-1]) + 1), dtype=np.float32)
        weights[step[keep], number[where[keep]]] = weight[keep]
        chosen = states[is_kept]
        width = AT_ONCE // max(len(chosen), 1) + 1
        for begin in range(0, len(chosen), width):
            i, j = np.nonzero(weights[:, begin : begin + width].T @ weights[:, begin:] >= least)
            i, j = begin + i[i <= j], begin + j[i <= j]
            found.append(chosen[i] * size + chosen[j])
            count += len(i)
            if count > most:
                return None
    return distinct(np.concatenate(found))


def _solve_list(  # many parameters: a part of a model, what is known of its branches, and how to solve
    part: ReachedPart,
    branch: SingleBranch,
    errors: StateErrors,
    pairs: PairList,
    tolerance: float,
    method: Solve,
    meter: Meter,
) -> tuple[Floats, Floats, float, int]:
    """D on the list, bounds on its errors, the residual and the sweeps taken."""
    if not len(pairs.codes):
        return np.zeros(0), np.zeros(0), 0.0, 0
    model, factor = part.model, part.model.discount**2
    s, t = pairs.pairs
    source = _gap_source(model, part.policy, branch, s, t)
    B, ends = branch.variance, partial(gap_ends, branch, errors)
    middle = pairs.left(lambda s, t: (ends(s, t)[1] + ends(s, t)[0]) / 2)
    apart = pairs.left(lambda s, t: (ends(s, t)[1] - ends(s, t)[0]) / 2)
    added, most = source + factor * middle, ends(s, t)[1]
    target = TARGET * tolerance * float(added.max()) / branch.state.span
    rounding = gap_step_errors(errors, source, s, t, 2 * most, float(most.max()))
    rho = rounding + factor * apart * (1 + CHECK_ROOM)
    recursion = _Recursion(pairs, factor, errors.relative, method, meter)
    D, sweeps, _ = recursion.solved(added, np.where(s == t, source, B[s] + B[t]), target)
    D = np.maximum(D, 0.0)
    residual = float(np.max(np.abs(added + factor * pairs.later(D) - D)))
    return D, recursion.bound(rho + residual), residual, sweeps


def _gap_source(model: JointMDP, policy: Floats, branch: SingleBranch, s: Ints, t: Ints) -> Floats:
    """`second_moments.gap_source` for pairs of a list."""
    p = model.probabilities
    v = np.sum(policy * branch.mean, axis=1)
    e = branch.state.rewards + model.discount * v[model.successors]
    e = e - np.einsum("sw,sa,swa->s", p, policy, e)[:, None, None]
    shared = np.einsum("sa,swa->sw", policy, e)
    is_choice = (policy > 0).sum(axis=1) > 1
    choice = np.where(is_choice, np.einsum("sw,sa,swa->s", p, policy, (e - shared[:, :, None]) ** 2), 0.0)
    if model.sharing == "state":
        alone = choice + np.sum(p * shared**2, axis=1)
        apart = alone[s] + alone[t]
    else:
        apart = choice[s] + choice[t]
        for w in np.flatnonzero(p[0]):
            apart += p[0, w] * (shared[s, w] - shared[t, w]) ** 2
    return np.where(s == t, 2 * choice[s], apart)


class _Recursion:
    """``x = added + factor·E x(S', T')`` on a list of pairs."""

    def __init__(self, pairs: PairList, factor: float, relative: float, method: Solve, meter: Meter) -> None:
        self.pairs, self.factor, self.relative, self.method, self.meter = pairs, factor, relative, method, meter

    def sweeps(self, added: Floats, x: Floats, count: int) -> tuple[Floats, float]:
        """`count` sweeps, and the largest step of the last one."""
        for _ in range(count - 1):
            x = added + self.factor * self.pairs.later(x)
        after = added + self.factor * self.pairs.later(x)
        return after, float(np.max(np.abs(after - x)))

    def solved(self, added: Floats, x: Floats, target: float) -> tuple[Floats, int, float]:
        """From `x` to a residual below `target` or to what rounding leaves: sweeps, and GMRES where they are slow."""
        done, before, left = 0, math.inf, math.inf
        while done < self.method.max_sweeps:
            x, left = self.sweeps(added, x, LOOK)
            done += LOOK
            aim = max(target, self.relative * float(np.max(np.abs(x))) / 8)
            self.meter.update(0.0, f"{len(x):,} pairs, residual {left:.1e}, target {aim:.1e}")
            if left <= aim:
                break
            rate = math.log(before / left) / LOOK if left < before < math.inf else 0.0
            is_slow = before < math.inf and rate * LONG < math.log(left / aim)
            before = left
            if self.method.is_accelerated and is_slow:
                x, before = self._accelerated(added, x, aim), math.inf
                done += RESTART * RESTARTS
        return x, done, left

    def _accelerated(self, added: Floats, x: Floats, aim: float) -> Floats:
        matrix = scipy.sparse.linalg.LinearOperator(
            (len(x), len(x)), matvec=lambda y: np.ravel(y) - self.factor * self.pairs.later(np.ravel(y))
        )
        found = scipy.sparse.linalg.gmres(matrix, added, x0=x, rtol=0.0, atol=aim, restart=RESTART, maxiter=RESTARTS)
        return np.asarray(found[0])

    def bound(self, rho: Floats) -> Floats:
        """Some K with ``K ≥ ρ + factor·E K``: sweeps from above keep that, and it is checked in the end."""
        top = float(rho.max())
        if self.factor < 1:
            uniform = (1 + 2 * CHECK_ROOM) * top / (1 - self.factor)
            raised = (1 + CHECK_ROOM) * rho + 64 * self.relative * uniform
            K = np.full_like(rho, uniform)
            for _ in range(MOST_FROM_ABOVE // LOOK):
                before = K
                K, _ = self.sweeps(raised, K, LOOK)
                if np.all(SHARP * before < K):
                    break
        else:
            uniform = math.inf
            raised = (1 + CHECK_ROOM) * np.maximum(rho, CHECK_ROOM * top)
            K, _, _ = self.solved(raised, raised, CHECK_ROOM**2 * top / 4)
        later = self.factor * self.pairs.later(K)
        if np.all(K - later - rho >= 2 * self.relative * (K + later + rho)):
            return K
        return np.full_like(rho, uniform)
