"""The answer of `evaluate`: joint moments of the returns of all actions, with a statement of how true they are.

And what is asked of it: gaps, which action is best, and the best guess of one return from another that was seen.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jointmdp.exact.law.gap_law import Laws, SignProbabilities
from jointmdp.exact.law.pair_graph import GapBranches
from jointmdp.exact.moments.certificates import Certificate, Status
from jointmdp.exact.moments.pair_recursion import ActionGaps
from jointmdp.exact.moments.partial_solve import ListedMoments
from jointmdp.exact.moments.stored_moments import StateMoments, StoredMoments
from jointmdp.exact.solution.gap import TOLERANCE, Gap
from jointmdp.ground import checks
from jointmdp.ground.answers import SHOWN, SHOWN_STATES, ResultFace, aligned, as_dataset, upstairs, words
from jointmdp.ground.arrays import UNIT, Floats, Ints
from jointmdp.ground.errors import ConvergenceWarning, ModelError, NotKnownError
from jointmdp.ground.files import FilePath, write_csv
from jointmdp.ground.intervals import Interval
from jointmdp.ground.limits import DEFAULT_LIMITS, Limits, check_limits
from jointmdp.model.derived_models import ReachedPart, with_time
from jointmdp.model.gumbel_max import GumbelModel
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.tables import ActionLike, StateLike, steady_states

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure


def _closed_part(moments: StoredMoments) -> ReachedPart | None:
    """A part that has all that the asked states lead to; None where there is none, or something was left out."""
    part = moments.part if isinstance(moments, ListedMoments) else None
    return part if part is not None and part.outside is None else None


def laws_of(model: JointMDP, policy: Floats, moments: StoredMoments, mean_errors: Floats, horizon: int | None) -> Laws:
    """The laws of the gaps of a solution, on the part that is enough where there is one."""
    mean, part = moments.mean, _closed_part(moments)
    if policy.ndim == 3:  # every state of the model with time comes once
        model, policy = with_time(model, policy)
        horizon = None
    if part is not None:
        model, policy, mean, mean_errors = part.model, part.policy, mean[part.states], mean_errors[part.states]
    return Laws(GapBranches(model, policy, policy, can_merge=True), horizon, mean, mean_errors)


def law_state(moments: StoredMoments, state: int) -> int:
    """The index of a state in the model of the laws; it must have been asked about."""
    if not isinstance(moments, ListedMoments):
        return state
    place = moments.place(state)
    return state if _closed_part(moments) is None else place


def check_whole(asked: int, count: int, what: str) -> None:
    """Refuse what shows every state where only some were asked about."""
    if asked < count:
        raise NotKnownError(
            f"{what} shows every state, and {asked:,} of {count:,} were asked about; gap(...), table() and "
            "best_action(...) answer for these, evaluate(...) without states for all"
        )


ROUNDED = 1e-6  # observed returns are often rounded
BLOCK_LIMIT = 2**27  # covariance entries formed at once; more are to be asked for state by state
# A variance below this fraction of the largest, and below its own certified error, cannot be told from zero.
ZERO_FRACTION = 1e-9
REPORT_LIMITS = Limits(seconds=30.0)  # of the laws of a report


def _check_blocks(states: int, actions: int) -> None:
    if states * actions**2 > BLOCK_LIMIT:
        raise ModelError(
            f"{states:,} states × {actions:,}² actions are too many covariances at once; "
            "ask covariance_of for some states and actions"
        )


@dataclass(frozen=True, eq=False, repr=False)
class BestAction(ResultFace):
    """How probably each action is the best of all, with the highest return or the lowest cost, with intervals."""

    state: str
    actions: tuple[str, ...]
    probability: list[float]
    """P(best); equal firsts share it equally, so that the sum is 1."""
    intervals: list[Interval]
    """Of `probability`."""
    alone: list[float]
    """P(better than all others)."""
    alone_intervals: list[Interval]
    tied: list[float]
    """P(best, together with at least one other)."""
    tied_intervals: list[Interval]
    tie: float
    """P(more than one action is best)."""
    tie_interval: Interval
    mean: list[float]
    """Mean returns: simulated, or exact where a solution was at hand."""
    is_certified: bool
    """Whether the intervals are guaranteed bounds; otherwise they hold together with probability `confidence`."""
    confidence: float
    """1 where certified."""
    method: str
    num_samples: int = 0
    """0 where nothing was simulated."""
    seed: int | None = None
    undecided: float = 0.0
    """Fraction of samples in which the end of the simulation leaves open who is first; the intervals allow for it."""
    minimise: bool = False
    """Whether returns are costs, and the lowest is the best."""

    def table(self) -> list[dict[str, Any]]:
        """One row per action."""
        names = ("action", "probability", "interval", "alone", "alone_interval", "tied", "tied_interval", "mean")
        columns = (self.actions, self.probability, self.intervals, self.alone, self.alone_intervals)
        rows = zip(*columns, self.tied, self.tied_intervals, self.mean, strict=True)
        return [dict(zip(names, row, strict=True)) | {"direction": self.direction} for row in rows]

    def __repr__(self) -> str:
        unit = 10_000 if self.is_certified else 1_000

        def both(value: float, found: Interval) -> str:
            # Ends are rounded outwards: the interval printed holds the one found.
            numbers = (value, math.floor(found.lower * unit) / unit, math.ceil(found.upper * unit) / unit)
            return "{} [{}, {}]".format(*(f"{x:.{len(str(unit)) - 1}f}" for x in numbers))

        rows = [["action", "best", "alone", "tied", "mean"]]
        for r in self.table():
            cells = [both(r["probability"], r["interval"]), both(r["alone"], r["alone_interval"])]
            rows.append([r["action"], *cells, both(r["tied"], r["tied_interval"]), f"{r['mean']:.6g}"])
        most, note = words(self.minimise).most, "(best = alone, or tied and the first place shared equally)"
        title = f"Which action {most} in {self.state}? {note}"
        tie = f"More than one is first with probability {both(self.tie, self.tie_interval)}."
        return "\n".join([title, *aligned(rows), tie, f"{self.method}."])


@dataclass(frozen=True)
class Counterfactual(ResultFace):
    """What is expected of `other` when `action` was seen to give `observed_return`.

    The best linear prediction of ``Z(s,b)`` from ``Z(s,a) = z`` is ``μ_b + β (z − μ_a)`` with ``β = C_ab / C_aa``. Its
    error has mean 0, variance ``C_bb − C_ab²/C_aa``, and is uncorrelated with what was seen; nothing else follows from
    moments of order 2. So an interval around it that holds for every law with these moments is Chebyshev's, and a law
    with three atoms attains it. What the return of the seen branch was made of says more: see `hindsight`.
    """

    state: str
    action: str
    other: str
    observed_return: float
    mean: float
    """The best linear prediction of the return of `other`."""
    std: float
    """Standard deviation of its error."""
    slope: float
    """How much more is expected for one more that was seen."""
    mean_error: float
    """Guaranteed bound on the numerical error of `mean`; infinite where what was seen varies less than is known."""
    std_error: float
    """Guaranteed bound on the numerical error of `std`."""

    def __repr__(self) -> str:
        found = f"{self.mean:.6g} ± {self.std:.6g}"
        if math.isinf(self.mean_error):
            found = "not known: what was seen varies less than its variance is certain"
        return (
            f"Counterfactual({self.other} in {self.state}, given that {self.action} gave {self.observed_return:.6g}: "
            f"{found})"
        )

    def interval(self, confidence: float = 0.95) -> Interval:
        """Holds the return of `other` with at least this probability, for every law with these moments.

        The probability is that of both returns together. Of one value seen, which may be as rare as it likes, moments
        say nothing by themselves.
        """
        alpha = 1 - checks.as_fraction("confidence", confidence)
        half = (self.std + self.std_error) / math.sqrt(alpha) + self.mean_error
        return Interval(self.mean - half, self.mean + half)

    def table(self) -> list[dict[str, Any]]:
        """One row."""
        names = ("state", "action", "other", "observed_return", "mean", "std", "slope")
        return [{name: getattr(self, name) for name in names} | {"interval": self.interval()}]


def predicted(
    seen: tuple[str, str, str, float],
    is_steady: Callable[[], bool],
    means: Floats,
    covariance: Floats,
    mean_errors: Floats,
    shares: Floats,
) -> Counterfactual:
    """From means ``[2]`` and the covariance ``[2, 2]`` of both returns, which are off by at most their errors.

    Where the seen return varies less than these errors, all turns on whether it varies at all.
    """
    state, action, _, z = seen
    (mean, other_mean), (a, c), b = means.tolist(), covariance[0].tolist(), float(covariance[1, 1])
    off = [float(2 * share) + 8 * UNIT * x for share, x in zip(shares.tolist(), (a, b), strict=True)]
    off_c = float(shares.sum()) + 8 * UNIT * math.sqrt(max(a * b, 0.0))
    if a <= off[0]:
        is_known = is_steady()
        if is_known and abs(z - mean) > float(mean_errors[0]) + 1e-6 * max(abs(z), abs(mean)):
            raise ModelError(f"{action} in {state} always gives {mean:.6g}, and never the observed return of {z:.6g}")
        error = float(mean_errors[1]) if is_known else math.inf
        return Counterfactual(*seen, other_mean, math.sqrt(b), 0.0, error, math.sqrt(off[1]))
    slope = c / a
    off_slope = (off_c + abs(slope) * off[0]) / (a - off[0])
    guess = other_mean + slope * (z - mean)
    size = abs(other_mean) + abs(slope) * (abs(z) + abs(mean))
    error = float(mean_errors[1]) + off_slope * abs(z - mean) + (abs(slope) + off_slope) * float(mean_errors[0])
    left = max(0.0, b - slope * c)
    off_left = off[1] + (abs(c) + off_c) * off_slope + abs(slope) * off_c + 8 * UNIT * b
    std = math.sqrt(left)
    off_std = math.sqrt(off_left) if left <= off_left else off_left / std
    return Counterfactual(*seen, guess, std, slope, error + 8 * UNIT * size, off_std)


@dataclass(frozen=True, eq=False)
class Solution(ResultFace):
    """Joint moments of ``Z(s, a)`` for all states and actions; unavailable actions hold NaN."""

    model: JointMDP
    policy: Floats
    """``[S, A]``, or ``[T, S, A]`` where it depends on time."""
    moments: StoredMoments = field(repr=False)
    certificate: Certificate
    status: Status
    method: str
    steps: int
    horizon: int | None = None
    history: Floats = field(default_factory=lambda: np.empty(0), repr=False)
    """`Iterate` only: ‖M_k − T₂M_k‖_λ for k = 0, 1, …"""
    minimise: bool = False
    """Whether returns are costs: moments are those of the costs, and gaps say how much less an action costs."""

    @property
    def summary(self) -> str:
        """How true it is, in a few words."""
        return str(self.certificate)

    def __repr__(self) -> str:
        of_laws = isinstance(self.moments, ActionGaps)
        of_draws = isinstance(self.model, GumbelModel) and not (of_laws or self.model.has_exact_tables)
        drawn = "; of a table that was drawn for Gumbel noise: gaps vary as there, not certainly" if of_draws else ""
        return f"Solution({self.model!r}, {self.method}: {self.status.value}; {self.certificate}{drawn})"

    @cached_property
    def mean(self) -> Floats:
        """E Z(s,a), ``[S, A]``."""
        return np.where(self.model.available, self.moments.mean, np.nan)

    @cached_property
    def covariance(self) -> Floats:
        """Cov(Z(s,a), Z(s,b)), ``[S, A, A]``."""
        return self.covariance_of(range(self.model.num_states))

    @cached_property
    def second_moment(self) -> Floats:
        """E[Z(s,a) Z(s,b)], ``[S, A, A]``."""
        return self.covariance + self.mean[:, :, None] * self.mean[:, None, :]

    @cached_property
    def variance(self) -> Floats:
        """Var Z(s,a), ``[S, A]``."""
        return np.diagonal(self.covariance, axis1=1, axis2=2)

    @property
    def order(self) -> int:
        """The highest order of moments held."""
        if isinstance(self.moments, ActionGaps):
            return self.moments.order
        higher = getattr(self.moments, "higher", None)
        return 2 if higher is None else int(higher.order)

    def central_moment(self, i: int, j: int = 0) -> Floats:
        """E[(Z(s,a)−E Z(s,a))ⁱ (Z(s,b)−E Z(s,b))ʲ], ``[S, A, A]``, for i + j up to the order evaluated."""
        i, j = (checks.as_count(name, power, least=0) for name, power in (("i", i), ("j", j)))
        if i + j > self.order:
            raise ModelError(
                f"a moment of order {i} + {j} asked for, but the solution holds moments up to order {self.order}; "
                f"evaluate(..., order={i + j}) computes it"
            )
        if (i, j) not in self._central:
            self._central[i, j] = self._form_central(i, j)
        return self._central[i, j].copy()

    @cached_property
    def _central(self) -> dict[tuple[int, int], Floats]:
        return {}

    def _form_central(self, i: int, j: int) -> Floats:
        exists = self.model.available[:, :, None] & self.model.available[:, None, :]
        _check_blocks(self.model.num_states, self.model.num_actions)
        if i > j:
            return np.swapaxes(self.central_moment(j, i), 1, 2)
        if i + j <= 1:
            found = np.full(exists.shape, 1.0 - j)
        elif i + j == 2:
            found = self.covariance if i == 1 else np.broadcast_to(self.variance[:, None, :], exists.shape)
        else:
            if not isinstance(self.moments, StateMoments):
                raise NotKnownError(
                    "under Gumbel noise moments above order 2 are known of gaps: gap(…).central_moment(k), and not of "
                    "products of two returns"
                )
            found = self.moments.central(i, j)
        return np.where(exists, found, np.nan)

    def moment(self, i: int, j: int = 0) -> Floats:
        """E[Z(s,a)ⁱ Z(s,b)ʲ], ``[S, A, A]``, for i + j up to the order evaluated."""
        total = np.zeros_like(self.central_moment(i, j))
        for k in range(int(i) + 1):
            for m in range(int(j) + 1):
                powers = (self.mean ** (i - k))[:, :, None] * (self.mean ** (j - m))[:, None, :]
                total += math.comb(i, k) * math.comb(j, m) * powers * self.central_moment(k, m)
        return total

    @cached_property
    def correlation(self) -> Floats:
        """Correlation of Z(s,a) and Z(s,b), ``[S, A, A]``; NaN where a variance is zero."""
        return self._correlation(self.covariance)

    def covariance_of(self, states: Iterable[StateLike], actions: Iterable[ActionLike] | None = None) -> Floats:
        """Covariances of the chosen actions (all by default) in the chosen states, ``[n, m, m]``."""
        rows = [self.model.state_index(state) for state in states]
        chosen = range(self.model.num_actions) if actions is None else actions
        columns = [self.model.action_index(action) for action in chosen]
        if not rows or not columns:
            raise ModelError("choose at least one state and one action")
        _check_blocks(len(rows), len(columns))
        exists = self.model.available[np.ix_(rows, columns)]
        both = exists[:, :, None] & exists[:, None, :]
        # An action asked for twice is one coordinate, not two.
        distinct, places = np.unique(columns, return_inverse=True)
        blocks = self.moments.blocks(rows, distinct.tolist())
        return np.where(both, blocks[:, places[:, None], places[None, :]], np.nan)

    def correlation_of(self, states: Iterable[StateLike], actions: Iterable[ActionLike] | None = None) -> Floats:
        """Correlations of the chosen actions in the chosen states, ``[n, m, m]``."""
        return self._correlation(self.covariance_of(states, actions))

    def _correlation(self, covariance: Floats) -> Floats:
        variance = np.diagonal(covariance, axis1=1, axis2=2)
        largest = np.max(variance, where=np.isfinite(variance), initial=0.0)
        least = min(self.certificate.covariance_error, ZERO_FRACTION * largest)
        std = np.sqrt(np.where(variance > least, variance, np.nan))
        return np.clip(covariance / (std[:, :, None] * std[:, None, :]), -1.0, 1.0)

    def covariance_between(self, s: StateLike, a: ActionLike, t: StateLike, b: ActionLike) -> float:
        """Covariance of the returns of any two state-action pairs."""
        i, j = self.model.state_index(s), self.model.state_index(t)
        a, b = self.model.action_index(a, i), self.model.action_index(b, j)
        if i != j:
            return self.moments.between(i, a, j, b)
        return float(self._blocks(i, a, b)[0, 1])

    def _blocks(self, state: int, action: int, other: int) -> Floats:
        """The 2×2 covariance matrix of two actions, from the cache where it exists."""
        if "covariance" in self.__dict__ or self.model.num_states * self.model.num_actions**2 <= BLOCK_LIMIT // 64:
            return self.covariance[state][np.ix_([action, other], [action, other])]
        if action == other:
            return np.full((2, 2), self.moments.blocks([state], [action])[0, 0, 0])
        return self.moments.blocks([state], [action, other])[0]

    def gap(self, state: StateLike, action: ActionLike, other: ActionLike) -> Gap:
        """How much more `action` gives than `other`, or where returns are costs, how much less it costs."""
        s = self.model.state_index(state)
        a, b = self.model.action_index(action, s), self.model.action_index(other, s)
        labels = (self.model.state_label(s), self.model.action_label(a), self.model.action_label(b))
        a, b = checks.subtracted(a, b, self.minimise)
        c = self._blocks(s, a, b)
        more = self.order - 2
        if a == b:
            return Gap(*labels, 0.0, 0.0, 0.0, 0.0, 0.0, (0.0,) * more, (0.0,) * more, minimise=self.minimise)
        found = self.moments.difference(s, a, b, self.certificate)
        variance, variance_error = found.variance, found.variance_error
        higher: tuple[float, ...] = ()
        higher_errors: tuple[float, ...] = ()
        if isinstance(self.moments, StateMoments | ActionGaps) and more > 0:
            known = self.moments.gap_moments(s, a, b, self.certificate.mean_errors[s, [a, b]], found.mean_error)
            higher, higher_errors = tuple(known.values[3:].tolist()), tuple(known.errors[3:].tolist())
            if known.errors[2] < variance_error:
                variance, variance_error = float(known.values[2]), float(known.errors[2])
        return Gap(
            *labels,
            mean=found.mean + 0.0,
            variance=variance,
            independent_variance=max(0.0, float(c[0, 0] + c[1, 1])),  # projections may fit less than none
            mean_error=found.mean_error,
            variance_error=variance_error,
            higher=higher,
            higher_errors=higher_errors,
            place=(self.laws, (law_state(self.moments, s), a, b)),
            minimise=self.minimise,
        )

    def counterfactual(
        self, state: StateLike, action: ActionLike, observed_return: float, other: ActionLike
    ) -> Counterfactual:
        """The best guess of the return of `other` in `state`, where `action` was seen to give `observed_return`."""
        s, (a, b) = self.model.query_indices(state, (action, other))
        value, model, g = checks.as_finite("observed_return", observed_return), self.model, self.model.discount
        labels = (model.state_label(s), model.action_label(a), model.action_label(b))
        steps = math.inf if self.horizon is None else float(self.horizon)
        most = model.reward_bound * (steps if g == 1 else (1 - g**steps) / (1 - g)) if model.reward_bound > 0 else 0.0
        if abs(value) > (1 + ROUNDED) * most:
            raise ModelError(
                f"{labels[1]} in {labels[0]} was observed to give {value:.6g}, but no return of the model is larger "
                f"than {most:.6g}"
            )
        known = (each[s, [a, b]] for each in (self.certificate.mean_errors, self.certificate.covariance_shares))

        def is_steady() -> bool:
            model = self.model.alone if isinstance(self.model, GumbelModel) else self.model
            return bool(
                steady_states(model, self.policy.max(axis=0) if self.policy.ndim == 3 else self.policy)[1][s, a]
            )

        return predicted((*labels, value), is_steady, self.mean[s, [a, b]], self._blocks(s, a, b), *known)

    @cached_property
    def asked(self) -> Ints:
        """The states whose actions were asked about: all, or those of ``evaluate(..., states=[…])``."""
        if isinstance(self.moments, ListedMoments | ActionGaps):
            return self.moments.asked
        return np.arange(self.model.num_states)

    @cached_property
    def laws(self) -> Laws:
        """The laws of all gaps, made as they are asked for."""
        return laws_of(self.model, self.policy, self.moments, self.certificate.mean_errors, self.horizon)

    def signs(self, *, tolerance: float = TOLERANCE, limits: Limits = DEFAULT_LIMITS) -> SignProbabilities:
        """Certified probabilities that one action is better than another, or equal, for all of all states at once."""
        check_whole(len(self.asked), self.model.num_states, "signs()")
        tolerance = checks.as_positive("tolerance", tolerance)
        check_limits(limits)
        found = self.laws.signs(tolerance, limits)
        found = found.mirrored() if self.minimise else found
        if not found.status.is_success:
            message = f"the widest sign is known to {found.width:.3g}, {tolerance:.3g} was asked for: "
            warnings.warn(message + found.status.value, ConvergenceWarning, stacklevel=2)
        return found

    def best_action(
        self,
        state: StateLike,
        actions: Sequence[ActionLike] | None = None,
        *,
        tolerance: float = TOLERANCE,
        limits: Limits = DEFAULT_LIMITS,
        num_samples: int = 10_000,
        seed: int = 0,
        confidence: float = 0.95,
    ) -> BestAction:
        """Which action has the highest return (lowest cost): certified for two actions, by joint simulation for more.

        `limits` are those of the law; where that is not sharp, `num_samples` are simulated.
        """
        best_of = upstairs("simulation.montecarlo.best_action", "best_of")
        found: BestAction = best_of(
            self.laws,
            law_state(self.moments, self.model.state_index(state)),
            actions,
            tolerance=tolerance,
            limits=limits,
            num_samples=num_samples,
            seed=seed,
            confidence=confidence,
            minimise=self.minimise,
        )
        return found

    def report(
        self,
        path: FilePath = "report.html",
        *,
        title: str | None = None,
        grid: tuple[int, int] | None = None,
        limits: Limits = REPORT_LIMITS,
    ) -> Path:
        """Write one HTML file that needs nothing else: states to pick, gaps with their laws, where the policy is wrong.

        Args:
            path: where to write it.
            title: its first line.
            grid: rows and columns, where states are the cells of a grid, row by row; names like ``(x,y)`` are seen.
            limits: what laws may take; those of states where another action comes nearest are computed first.
        """
        check_whole(len(self.asked), self.model.num_states, "a report")
        check_limits(limits)
        if not Path(path).absolute().parent.is_dir():  # said before anything is computed
            raise ModelError(f"cannot write {str(path)!r}: there is no such folder")
        written: Path = upstairs("show.report.report_page", "write_solution")(self, path, title, grid, limits)
        return written

    def to_xarray(self) -> xarray.Dataset:
        """The moments as a labelled dataset with dimensions state, action and other."""
        model = self.model
        names: dict[str, list[Any]] = {
            "state": list(map(str, model.state_names or ())) or [*range(model.num_states)],
            "action": list(map(str, model.action_names or ())) or [*range(model.num_actions)],
        }
        blocks = ("state", "action", "other")
        return as_dataset(
            {
                "mean": (("state", "action"), self.mean),
                "policy": (("step", "state", "action")[-self.policy.ndim :], self.policy),
                "second_moment": (blocks, self.second_moment),
                "covariance": (blocks, self.covariance),
                "correlation": (blocks, self.correlation),
            },
            {**names, "other": names["action"]},
            {
                "discount": model.discount,
                "sharing": model.sharing,
                "status": self.status.value,
                "mean_error": self.certificate.mean_error,
                "covariance_error": self.certificate.covariance_error,
                "direction": self.direction,
            },
        )

    def table(self, states: Iterable[StateLike] | None = None) -> list[dict[str, Any]]:
        """One row per state (all that were asked about by default) and unordered pair of available actions."""
        names = ("state", "action", "other", "mean", "std", "independent_std", "variance_error", "inferiority_bound")
        rows = []
        for state in self.asked.tolist() if states is None else states:
            s = self.model.state_index(state)
            for a, b in combinations(np.flatnonzero(self.model.available[s]).tolist(), 2):
                gap = self.gap(s, a, b)
                rows.append({name: getattr(gap, name) for name in (*names, "direction")})
        return rows

    def to_csv(self, path: FilePath, states: Iterable[StateLike] | None = None) -> None:
        """Write `table` as a CSV file, whole or not at all."""
        write_csv(path, self.table(states), ("state", "action", "other"))

    def _shown(self) -> list[dict[str, Any]]:
        return self.table(self.asked[:SHOWN_STATES].tolist())[:SHOWN]

    def figure(self) -> Figure:
        """The mean return of each action in each state."""
        return self._drawn("means")
