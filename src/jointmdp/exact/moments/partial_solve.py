"""Moments of a few states of a large model: means and variances on the states that they lead to, gaps on pairs.

The steps are those of `default_solver`, on a part of the model and on a list of pairs (`asked_pairs`) instead of all.
What is left out enters as an error: a value outside is off by at most the spread of all values, and the variance of a
gap that is not listed lies between ``(√B(s) − √B(t))²`` and ``(√B(s) + √B(t))²``. How these errors come back to the
asked states is part of the same bounds that hold rounding and residuals, so the certificate covers it. While it is too
large, less is left out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import permutations, product

import numpy as np
import scipy.sparse.linalg

from jointmdp.exact.bellman.pair_step import PairList
from jointmdp.exact.bellman.second_moments import listed_gap_source
from jointmdp.exact.moments.asked_pairs import LEAST_PAIR, likely_part, pair_list
from jointmdp.exact.moments.certificates import CHECK_ROOM, Certificate, StateErrors, Status
from jointmdp.exact.moments.default_solver import LEAST_SCALE, LEAST_STD
from jointmdp.exact.moments.pair_solver import Solve, listed_step_errors
from jointmdp.exact.moments.single_branch import SingleBranch, solve_single_branch
from jointmdp.exact.moments.stored_moments import FoundMoments, GapEstimate, gap_backup
from jointmdp.ground import checks
from jointmdp.ground.arrays import UNIT, Floats, Ints
from jointmdp.ground.errors import ModelError, NotKnownError
from jointmdp.ground.limits import is_time_over
from jointmdp.ground.progress import Meter
from jointmdp.model.derived_models import ReachedPart
from jointmdp.model.joint_mdp import JointMDP


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

    def difference(self, s: int, a: int, b: int, certificate: Certificate) -> GapEstimate:
        return self._gaps[self.place(s), a, b]

    @cached_property
    def _gaps(self) -> dict[tuple[int, int, int], GapEstimate]:
        """All gaps of the asked states."""
        model, found, alone = self.part.model, dict[tuple[int, int, int], GapEstimate](), None
        v = np.sum(self.part.policy * self.branch.mean, axis=1)
        for s in self.part.asked.tolist():
            rewards = self.branch.state.rewards[s]
            for a, b in permutations(np.flatnonzero(model.available[s]).tolist(), 2):
                if self.pairs is None:
                    alone = float(self.errors.variances[s, [a, b]].sum()), float(self._variance_errors[s, [a, b]].sum())
                later = self._later(s, a, b)
                found[s, a, b] = gap_backup(model, rewards, v, self.errors.values, (s, a, b), later, alone)
        return found

    def blocks(self, states: Sequence[int], actions: Sequence[int]) -> Floats:
        """Covariances; NaN in states that were not asked about."""
        found = np.full((len(states), len(actions), len(actions)), np.nan)
        places = self.part.place(np.asarray(states))
        for i in np.flatnonzero(np.isin(places, self.part.asked)).tolist():
            place = int(places[i])
            variances = self.errors.variances[place]
            for (j, a), (k, b) in product(enumerate(actions), repeat=2):
                if a == b:
                    found[i, j, k] = variances[a]
                elif (place, a, b) in self._gaps:
                    found[i, j, k] = (variances[a] + variances[b] - self._gaps[place, a, b].variance) / 2
        return found

    def between(self, s: int, a: int, t: int, b: int) -> float:
        raise NotKnownError(NOT_HELD)

    def across(self) -> Floats:
        raise NotKnownError(NOT_HELD)

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


NOT_HELD = (
    "covariances of distinct states are not held where evaluate(..., states=[…]) was asked for some; evaluate without "
    "states, or simulate"
)
FINER = 30.0  # times as small at the next attempt
ATTEMPTS = 4
TARGET = 1e-2  # of the tolerance: the residual, relative to what a step adds and to the steps that a return takes
SHARP = 0.9  # of a bound on errors that is left after some sweeps, when more are not worth it
SMALL = 1e-3  # of the variance of one branch: gaps that vary less need not be known to the tolerance of their own
LOOK = 16  # sweeps between two looks at the residual
RESTART, RESTARTS = 40, 10  # steps of GMRES between two restarts, and how many of these before sweeps look again
MOST_FROM_ABOVE = 512  # sweeps that sharpen a bound on errors
LONG = 400  # sweeps still to come, at the rate seen, beyond which a Krylov method takes over


def solve_asked(model: JointMDP, policy: Floats, asked: Ints, method: Solve) -> FoundMoments[ListedMoments]:
    """All moments of an endless future in the asked states."""
    tolerance = checks.as_positive("relative_tolerance", method.relative_tolerance)
    least = LEAST_PAIR * min(tolerance, 1.0)
    found: FoundMoments[ListedMoments] | None = None
    with Meter("joint moments") as meter:
        for _ in range(ATTEMPTS):
            part = likely_part(model, policy, asked, least)
            try:
                found = _solve_part(model, part, method, tolerance, meter, least)
            except ModelError:
                if found is None:
                    raise
                break  # finer takes more memory than there is: what is known stands, with its certificate
            if found.moments.part.layers is None or found.status is Status.CONVERGED or is_time_over():
                break
            least /= FINER
    assert found is not None
    return found


def _solve_part(
    model: JointMDP, part: ReachedPart, method: Solve, tolerance: float, meter: Meter, least: float
) -> FoundMoments[ListedMoments]:
    branch = solve_single_branch(part.model, part.policy)
    errors = StateErrors(part.model, part.policy, branch, part.outside, part.value_error)
    pairs, values, bounds, residual, sweeps = None, np.zeros(0), np.zeros(0), 0.0, 0
    if model.sharing != "none":
        part, pairs = pair_list(part, branch.state.idle, least, meter)
        values, bounds, residual, sweeps = _solve_list(part, branch, errors, pairs, tolerance, method, meter)
    mean = errors.mean + branch.state.offset[:, None]
    moments = ListedMoments(model, part, branch, errors, mean, pairs, values, bounds)
    certificate = moments.certificate(residual)
    paid = float(np.max(np.abs(branch.state.rewards)))
    least_variance = max((LEAST_STD * paid * branch.state.span) ** 2, LEAST_SCALE)
    is_met = moments.worst_error(SMALL, least_variance) <= tolerance
    missed = Status.STEP_LIMIT if sweeps >= method.max_sweeps else Status.STAGNATED
    status = Status.CONVERGED if is_met else Status.TIME_LIMIT if is_time_over() else missed
    return FoundMoments(moments, certificate, status, sweeps)


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
    v = np.sum(part.policy * branch.mean, axis=1)
    source = listed_gap_source(model, part.policy, branch.state.rewards, v, s, t)
    B, ends = branch.variance, partial(gap_ends, branch, errors)
    middle = pairs.left(lambda s, t: (ends(s, t)[1] + ends(s, t)[0]) / 2)
    apart = pairs.left(lambda s, t: (ends(s, t)[1] - ends(s, t)[0]) / 2)
    added, most = source + factor * middle, ends(s, t)[1]
    target = TARGET * tolerance * float(added.max()) / branch.state.span
    rounding = listed_step_errors(errors, source, s, t, 2 * most, float(most.max()))
    rho = rounding + factor * apart * (1 + CHECK_ROOM)
    recursion = _Recursion(pairs, factor, errors.relative, method, meter)
    D, sweeps = recursion.solved(added, np.where(s == t, source, B[s] + B[t]), target)
    D = np.maximum(D, 0.0)
    residual = float(np.max(np.abs(added + factor * pairs.later(D) - D)))
    return D, recursion.bound(rho + residual), residual, sweeps


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

    def solved(self, added: Floats, x: Floats, target: float) -> tuple[Floats, int]:
        """From `x` to a residual below `target` or to what rounding leaves: sweeps, and GMRES where they are slow."""
        done, before, shape = 0, math.inf, (len(x), len(x))
        matrix = scipy.sparse.linalg.LinearOperator(
            shape, lambda y: np.ravel(y) - self.factor * self.pairs.later(np.ravel(y)), dtype=np.float64
        )
        while done < self.method.max_sweeps:
            x, left = self.sweeps(added, x, LOOK)
            done += LOOK
            aim = max(target, self.relative * float(np.max(np.abs(x))) / 8)
            self.meter.update(0.0, f"{len(x):,} pairs, residual {left:.1e}, target {aim:.1e}")
            if left <= aim or is_time_over():
                break
            rate = math.log(before / left) / LOOK if left < before < math.inf else 0.0
            is_slow = before < math.inf and rate * LONG < math.log(left / aim)
            before = left
            if self.method.is_accelerated and is_slow:
                x, _ = scipy.sparse.linalg.gmres(
                    matrix, added, x0=x, rtol=0.0, atol=aim, restart=RESTART, maxiter=RESTARTS
                )
                before, done = math.inf, done + RESTART * RESTARTS
        return x, done

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
                if np.all(SHARP * before < K) or is_time_over():
                    break
        else:
            uniform = math.inf
            raised = (1 + CHECK_ROOM) * np.maximum(rho, CHECK_ROOM * top)
            K, _ = self.solved(raised, raised, CHECK_ROOM**2 * top / 4)
        later = self.factor * self.pairs.later(K)
        if np.all(K - later - rho >= 2 * self.relative * (K + later + rho)):
            return K
        return np.full_like(rho, uniform)
