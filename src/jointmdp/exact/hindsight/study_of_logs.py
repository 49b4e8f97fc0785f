"""Many logs as one study: what another policy is worth, by every estimate there is, and which episodes it would change.

What it would have given in each episode is exact for the model's tables, coupling and sharing; so is its mean over
these episodes, up to the certified error. That other episodes could have been logged is what the bootstrap says, which
is sampled.

From the rewards alone importance sampling knows the value of the other policy. With ``ρ_t = Π_{u≤t} π(a_u|s_u) /
b(a_u|s_u)``, b what the logs followed, of N episodes of up to T steps

    weighted importance sampling       Σ_n ρ_T G / Σ_n ρ_T,          G = Σ_t γᵗ r_t,
    per-decision importance sampling   Σ_n Σ_t γᵗ ρ_t r_t / N.

Where b is not given it is what the logs themselves did in each state, and is counted again in every resample.

Outcomes ask for the law of the other branch's return, and of where it ends, given the log: forward along the walk, what
was paid so far carried along. Returns that differ by less than rounding could make them differ are one return.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jointmdp.exact.hindsight.backward_moments import moves_at
from jointmdp.exact.hindsight.logged_trajectories import UNSEEN
from jointmdp.exact.hindsight.other_branch import TimedPlan, walk
from jointmdp.exact.hindsight.scenario_posteriors import seen_paths
from jointmdp.exact.moments.default_solver import PolicyBranch
from jointmdp.ground import checks
from jointmdp.ground.answers import ResultFace, aligned, upstairs
from jointmdp.ground.arrays import UNIT, Bools, Floats, Ints, counted_once, expand
from jointmdp.ground.errors import ModelError, NotKnownError
from jointmdp.ground.files import FilePath
from jointmdp.ground.intervals import Interval
from jointmdp.model.gumbel_max import GumbelModel, ends_of
from jointmdp.model.policies import as_policy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AT_ONCE = 128  # logs whose laws are found together
DRAWN_AT_ONCE = 2**22  # numbers of resamples
MOST = 2**20  # returns that are told apart at one time
SAME = 2.0**-36  # of the largest reward: returns that are closer are one
LEAST = 1e-9  # a chance that counts as none: rounding can make one of this size
FEW = 10  # episodes that importance sampling rests on: resamples of fewer say little of others
NOT_KNOWN = "not known"
SIGNS = {-1: "below 0", 0: "0", 1: "above 0"}


class Estimate(NamedTuple):
    """One estimate of the mean return of an episode."""

    what: str
    mean: float
    interval: Interval
    """Sampled: percentiles of the bootstrap over episodes."""
    certified_error: float
    """For these very episodes and this model; NaN where nothing is certified."""
    remark: str


@dataclass(frozen=True, eq=False, repr=False)
class Study(ResultFace):
    """Many logs as one study; a table with a row for each episode, and what they say together."""

    answers: Sequence[Any] = field(repr=False)
    """Of `jointmdp.hindsight`, one for each episode."""
    behaviour: Floats | None = field(repr=False)
    """What the logs followed, ``[S, A]``; None: as often as they did it."""
    outcome: Callable[..., Any] | None = field(repr=False)
    confidence: float
    resamples: int
    seed: int

    def __len__(self) -> int:
        return len(self.answers)

    @property
    def words(self) -> str:
        """What is done instead."""
        return self.answers[0].question.words

    @cached_property
    def estimates(self) -> tuple[Estimate, ...]:
        """What the seen branches and the other policy give on average: one beside the other."""
        seen, other = self._returns("seen_return"), self._returns("other_return")
        gap = np.array([[each.gap.mean, each.gap.mean_error] for each in self.answers])
        ahead, why_not = self._model_based()
        steps, no_steps = self._logged_steps()
        columns = np.stack([seen[:, 0], other[:, 0], gap[:, 0], ahead], axis=1)
        several = None if steps is None else steps.values
        found = bootstrap(columns, several, self.resamples, self.confidence, self.seed)
        means = [math.fsum(column) / len(self) for column in columns.T]
        errors = [math.fsum(each[:, 1]) / len(self) for each in (seen, other, gap)]
        errors = [(1 + 8 * UNIT) * error + 2 * UNIT * abs(mean) for error, mean in zip(errors, means, strict=False)]
        has_future = any(each.seen_return.std > 0 for each in self.answers)
        beyond = "and what is expected of all that the logs do not show, such as what comes after them" * has_future
        noise = "on the noise of each log, given the model"
        asked = [each.question for each in self.answers]
        if stopped := sum(isinstance(x.branch.plan, TimedPlan) and bool(x.left) for x in asked):
            noise += f"; {stopped:,} logs stop before the horizon, where policy takes the place of the one in time"
        remarks = [beyond, noise, "counterfactual minus observed", why_not]
        names = ["observed", "counterfactual", "gap", "model-based"]
        weighted = (np.nan, np.nan) if steps is None else steps.values(np.ones(len(self)))
        rests = no_steps if steps is None else f"rests on {steps.effective:.1f} of {len(self):,} episodes"
        if steps is not None and steps.effective < FEW:
            rests += ", too few to trust its interval"
        first = rests
        if steps is not None and not steps.effective:
            rests = "no episode does to its end what the other policy does"
            first = (
                f"{steps.begun:,} of {len(self):,} episodes begin as the other policy does, and none goes on to its end"
            )
        names += ["weighted importance sampling", "per-decision importance sampling"]
        found += [Interval(np.nan, np.nan)] * (len(names) - len(found))
        rows = zip(names, [*means, *weighted], found, [*errors, *[np.nan] * 3], [*remarks, rests, first], strict=True)
        return tuple(Estimate(name, float(mean), ends, float(error), why) for name, mean, ends, error, why in rows)

    def estimate(self, what: str) -> Estimate:
        """One of them by its name, such as ``"counterfactual"``."""
        names = [each.what for each in self.estimates]
        return self.estimates[checks.as_called("estimate", what, names, names)]

    def _returns(self, name: str) -> Floats:
        """Means and certified errors, ``[N, 2]``."""
        return np.array([[getattr(each, name).mean, getattr(each, name).mean_error] for each in self.answers])

    def _target(self, question: Any) -> Floats | None:
        """What the other branch does at each step of the log, ``[T, S, A]``; None where that depends on the log."""
        branch, steps = question.branch, len(question.seen.actions)
        if isinstance(branch.plan, TimedPlan):
            return branch.plan.rows[:steps]
        if branch.plan is not None:
            return None
        rows = np.broadcast_to(branch.policy, (steps, *branch.policy.shape))
        return rows if branch.action is None else np.concatenate([branch.first.policy[None], rows[1:]])

    def _model_based(self) -> tuple[Floats, str]:
        """The mean return of the other policy from the first state of each log, by the tables alone, ``[N]``."""
        known: dict[tuple[int, int, int | None], Floats] = {}
        found = np.full(len(self), np.nan)
        for i, each in enumerate(self.answers):
            question = each.question
            rows, span = self._target(question), question.laws.horizon
            if rows is None:
                return found, "what is done instead depends on the log"
            if isinstance(question.branch.plan, TimedPlan):
                rows = question.branch.plan.rows  # beyond the log, too, where its episode was over before the horizon
            key = id(question.branch), 0 if question.branch.plan is None else len(rows), span
            if key not in known:
                known[key] = self._ahead(question, rows, span)
            found[i] = known[key][question.seen.states[0]]
        return found, "by the tables alone, held fixed, from the first states of the logs"

    def _ahead(self, question: Any, rows: Floats, span: int | None) -> Floats:
        """Mean returns over so many steps, ``[S]``, that begin with those of `rows`."""
        model, policy = question.model, question.branch.policy
        tables = model.alone if isinstance(model, GumbelModel) else model
        ordinary = tables.marginal_mdp()
        gains = np.where(model.available, ordinary.rewards, 0.0)
        if question.branch.plan is None:
            rows = rows[:1]
        if span is None:
            v, steps = PolicyBranch(tables, policy).mean, len(rows)
        else:
            v, steps = np.zeros(model.num_states), span
        for t in range(steps - 1, -1, -1):
            q = gains + model.discount * (ordinary.kernel @ v).reshape(gains.shape)
            v = np.einsum("sa,sa->s", rows[t] if t < len(rows) else policy, q)
        return v

    def _logged_steps(self) -> tuple[LoggedSteps | None, str]:
        """What importance sampling is made of; None where the logs do not hold it, and why."""
        first = self.answers[0].question
        model, over, count = first.model, ends_of(first.model), len(self)
        longest = max(len(each.question.seen.actions) for each in self.answers)
        pairs = np.full((count, longest), UNSEEN)
        target, rewards, followed = np.ones((count, longest)), np.zeros((count, longest)), np.ones((count, longest))
        for i, each in enumerate(self.answers):
            question, seen = each.question, each.question.seen
            length, last, rows = len(seen.actions), int(seen.states[-1]), self._target(question)
            if rows is None:
                return None, "what is done instead depends on the log"
            if np.any(seen.states[:length] == UNSEEN) or np.any(np.isnan(seen.rewards)):
                return None, f"states or rewards of {question.name} were not seen"
            if not (question.left == 0 or seen.ended or model.discount == 0 or (last != UNSEEN and over[last])):
                how = "a horizon says how many steps count" if question.left is None else "the horizon counts more"
                return None, f"{question.name} stops after {length} steps and is not over; {how}"
            x, a, t = seen.states[:length], seen.actions, np.arange(length)
            pairs[i, :length], target[i, :length] = x * model.num_actions + a, rows[t, x, a]
            rewards[i, :length] = model.discount**t * seen.rewards
            if self.behaviour is not None:
                followed[i, :length] = self.behaviour[x, a]
                if at := checks.first_place(followed[i] == 0):
                    label = f"{model.action_label(int(a[at]))} in {model.state_label(int(x[at]))}"
                    raise ModelError(f"behaviour never takes {label}, but {question.name} does at step {at[0]}")
        given = None if self.behaviour is None else followed
        steps = LoggedSteps(pairs, target, given, rewards, model.num_actions)
        return (steps, "") if steps.begun else (None, "no episode does what the other policy does")

    @cached_property
    def laws(self) -> tuple[ReturnLaw, ...]:
        """What the other branch may have got in each episode, and where it would have ended."""
        found: dict[int, ReturnLaw] = {}
        alike: dict[int, list[int]] = {}
        for i, each in enumerate(self.answers):
            alike.setdefault(id(each.question.branch), []).append(i)
        for places in alike.values():
            for first in range(0, len(places), AT_ONCE):
                block = places[first : first + AT_ONCE]
                found |= dict(zip(block, return_laws([self.answers[i].question for i in block]), strict=True))
        return tuple(found[i] for i in range(len(self)))

    def _label(self, value: float, state: int) -> str:
        model = self.answers[0].question.model
        if self.outcome is None:
            return SIGNS[int(np.sign(value))]
        if checks.takes_two(self.outcome):
            return NOT_KNOWN if state == UNSEEN else str(self.outcome(value, model.state_label(state)))
        return str(self.outcome(value))

    @cached_property
    def seen_outcomes(self) -> tuple[str, ...]:
        """What came of each episode."""
        found = []
        for each in self.answers:
            known, seen = each.seen_return, each.question.seen
            is_known = known.variance <= max(known.variance_error, (LEAST * (1 + abs(known.mean))) ** 2)
            value = 0.0 if abs(known.mean) <= known.mean_error else known.mean
            found.append(self._label(value, int(seen.states[-1])) if is_known else NOT_KNOWN)
        return tuple(found)

    @cached_property
    def other_outcomes(self) -> tuple[dict[str, float], ...]:
        """How likely each outcome of the other branch is in each episode; chances up to 1e-9 count as none."""
        labels: dict[tuple[float, int], str] = {}
        is_placed = self.outcome is not None and checks.takes_two(self.outcome)
        rows = []
        for law in self.laws:
            values = np.sign(law.returns) if self.outcome is None else law.returns
            states = law.states if is_placed else np.zeros_like(law.states)
            kept, chances = counted_once((values, states), law.chances)
            row: dict[str, float] = {}
            for value, state, chance in zip(
                values[kept].tolist(), states[kept].tolist(), chances.tolist(), strict=True
            ):
                if (value, state) not in labels:
                    labels[value, state] = self._label(value, state)
                label = labels[value, state]
                row[label] = row.get(label, 0.0) + chance
            rows.append({label: chance for label, chance in row.items() if chance > LEAST})
        return tuple(rows)

    def outcomes(self) -> list[dict[str, Any]]:
        """Observed by counterfactual: how many episodes with each outcome would have had which, on average."""
        labels = sorted({label for row in self.other_outcomes for label in row})
        seen = sorted(set(self.seen_outcomes))
        table = {label: dict.fromkeys(labels, 0.0) for label in seen}
        for was, row in zip(self.seen_outcomes, self.other_outcomes, strict=True):
            for label, chance in row.items():
                table[was][label] += chance
        counts = {label: self.seen_outcomes.count(label) for label in seen}
        return [{"observed": was, "episodes": counts[was], **table[was]} for was in seen]

    def table(self) -> list[dict[str, Any]]:
        """One row an episode: what it gave, what the other would have given, and how likely its outcome flips.

        `flips` is the probability that the other branch has another outcome, `is_open` whether the log leaves it open
        which one it has; `turning` the decision on which it turned, of `best_in_hindsight`.
        """
        rows = []
        try:
            others: Sequence[dict[str, float]] = self.other_outcomes
        except NotKnownError:
            others = [{}] * len(self)
        for each, was, other in zip(self.answers, self.seen_outcomes, others, strict=True):
            question = each.question
            row: dict[str, Any] = {"episode": question.number if question.episode is None else question.episode}
            row |= {"start": question.start, "steps": len(question.seen.actions)}
            row |= {"seen_return": each.seen_return.mean, "other_return": each.other_return.mean}
            row |= {"gap": each.gap.mean, "gap_interval": each.gap.mean_interval, "gap_std": each.gap.std}
            likely = max(other, key=lambda label: other[label]) if other else NOT_KNOWN
            row |= {"seen_outcome": was, "other_outcome": likely}
            is_known = bool(other) and was != NOT_KNOWN
            row["flips"] = sum(chance for label, chance in other.items() if label != was) if is_known else np.nan
            row["is_open"] = len(other) > 1 if other else None
            if hasattr(each, "turning"):
                row["turning"] = "" if each.turning is None else str(each.turning)
            rows.append(row)
        return rows

    def flips(self) -> list[dict[str, Any]]:
        """Episodes whose outcome may be another one, the likeliest first."""
        return sorted((row for row in self.table() if row["flips"] > 0), key=lambda row: -row["flips"])

    def undecided(self) -> list[dict[str, Any]]:
        """Episodes whose logs leave it open which outcome the other branch has."""
        return [row for row in self.table() if row["is_open"]]

    def gains(self) -> list[dict[str, Any]]:
        """Episodes by what the other branch would have given more, the most first."""
        return sorted(self.table(), key=lambda row: -row["gap"])

    def figure(self) -> Figure:
        """The estimates one beside the other, and what each episode would have given."""
        return self._drawn("hindsight_study")

    def report(self, path: FilePath = "study.html", *, title: str | None = None) -> Path:
        """Write one HTML file that needs nothing else: the estimates, the outcomes and the episodes."""
        written: Path = upstairs("show.report.report_page", "write_study")(self, path, title)
        return written

    def __repr__(self) -> str:
        part = f"{self.confidence:.0%} of {self.resamples:,} resamples"
        lines = [f"Study({len(self):,} episodes, {self.words}; intervals are sampled: {part} of the episodes)"]
        rows = [["", "mean", "bootstrap", "certified"]]
        for each in self.estimates:
            error = "" if np.isnan(each.certified_error) else f"± {each.certified_error:.0e}"
            known = [f"{each.mean:.4g}", f"{each.interval:.4g}"] if np.isfinite(each.mean) else ["-", "-"]
            rows.append([each.what, *known, error, each.remark])
        rows[0].append("")
        return "\n".join([*lines, *aligned(rows)])


def studied(  # many parameters: those of `Hindsights.study`
    answers: Sequence[Any],
    behaviour: Any,
    outcome: Callable[..., Any] | None,
    confidence: float,
    resamples: int,
    seed: int,
) -> Study:
    """A study of these answers."""
    numbers = [each.question.number for each in answers]
    if len(set(numbers)) < len(numbers):
        raise ModelError('a study has one answer for each episode; leave start="each" out')
    followed = None if behaviour is None else as_policy(answers[0].question.model, behaviour)
    return Study(
        answers,
        followed,
        outcome,
        checks.as_fraction("confidence", confidence),
        checks.as_count("resamples", resamples),
        checks.as_count("seed", seed, least=0),
    )


# -- laws of returns ---------------------------------------------------------------------------------------------------


class ReturnLaw(NamedTuple):
    """What the other branch may have got, and where it would have ended."""

    returns: Floats  # [K]
    states: Ints  # [K] the last one that counts
    chances: Floats  # [K]


class _Courses(NamedTuple):
    """Kinds of courses up to some time."""

    place: Ints  # what tells them apart beside the return
    paid: Floats
    chance: Floats

    def at(self, some: Bools) -> _Courses:
        """Some of them."""
        return _Courses._make(part[some] for part in self)

    @classmethod
    def joined(cls, parts: Sequence[_Courses]) -> _Courses:
        """All of several."""
        return cls._make(np.concatenate(part) for part in zip(*parts, strict=True))


def return_laws(asked: Sequence[Any]) -> list[ReturnLaw]:
    """Of each log; all logs have the same `branch`."""
    try:
        return _together(asked)
    except NotKnownError:
        if len(asked) == 1:
            raise
    half = len(asked) // 2
    return return_laws(asked[:half]) + return_laws(asked[half:])


def _together(asked: Sequence[Any]) -> list[ReturnLaw]:
    first, count = asked[0], len(asked)
    model, S = first.model, first.model.num_states
    names = [(each.name, each.start) for each in asked]
    paths = seen_paths(model, [each.known for each in asked], first.reward_tolerance, names)
    steps = walk(paths, first.branch)
    unit = SAME * max(model.reward_bound, np.finfo(float).tiny)
    now = _Courses(np.arange(count), np.zeros(count), np.ones(count))
    done: list[_Courses] = []
    for t, (nodes, states) in enumerate(zip(steps.nodes, paths.states, strict=True)):
        # First the nodes, then the places where both branches are one.
        place = np.append(nodes.place, np.arange(len(states)))[now.place]
        at = np.append(nodes.state, states)[now.place]
        is_last = paths.is_last(t)[place]
        if is_last.any():
            ended = now.at(is_last)
            done.append(ended._replace(place=(paths.which[t][place] * S + at)[is_last]))
        if t == len(paths.steps):
            break
        goes_on = now.at(~is_last)
        moves = moves_at(paths, steps, t)[1]
        order = np.argsort(moves.parent, kind="stable")
        starts = np.searchsorted(moves.parent[order], np.arange(len(nodes.place) + len(states) + 1))
        i, e = expand(starts, goes_on.place)
        e = order[e]
        paid = goes_on.paid[i] + model.discount**t * moves.paid[e]
        now = _merged(moves.child[e], paid, goes_on.chance[i] * moves.weight[e], unit)
    return _ended(asked, _Courses.joined(done), unit)


def _ended(asked: Sequence[Any], now: _Courses, unit: float) -> list[ReturnLaw]:
    """The branches alone after the last known step, as long as something counts."""
    first, S = asked[0], asked[0].model.num_states
    model, over = first.model, ends_of(first.model)
    time = np.array([len(each.known.actions) for each in asked])
    left = np.array([np.inf if each.left is None else each.left for each in asked])
    final: list[_Courses] = []
    ahead = 0
    while len(now.place):
        which, y = np.divmod(now.place, S)
        stops: Bools = over[y] | (left[which] <= ahead) | (model.discount == 0)
        if np.any(np.isinf(left[which[~stops]])):
            raise NotKnownError("what comes after the log has no end, so its returns cannot be listed; give a horizon")
        final.append(now.at(stops))
        now = now.at(~stops)
        if not len(now.place):
            break
        _, weights, rewards, successors = (part[0] for part in first.branch.outcomes)
        which, y = which[~stops], y[~stops]
        i, o = np.nonzero(weights[y] > 0)
        paid = now.paid[i] + model.discount ** (time[which[i]] + ahead) * rewards[y[i], o]
        now = _merged(which[i] * S + successors[y[i], o], paid, now.chance[i] * weights[y[i], o], unit)
        ahead += 1
    found = _merged(*_Courses.joined(final), unit)
    which, y = np.divmod(found.place, S)
    starts = np.searchsorted(which, np.arange(len(asked) + 1))
    parts = [slice(*ends) for ends in pairwise(starts.tolist())]
    return [ReturnLaw(found.paid[part], y[part], found.chance[part]) for part in parts]


def _merged(place: Ints, paid: Floats, chance: Floats, unit: float) -> _Courses:
    """Courses that are alike, once."""
    number = np.rint(paid / unit)
    kept, total = counted_once((place, number), chance)
    if len(kept) > MOST:
        raise NotKnownError(f"more than {MOST:,} different returns are possible, too many to list")
    return _Courses(place[kept], np.where(number[kept] == 0, 0.0, paid[kept]), total)


# -- importance sampling, and the bootstrap ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LoggedSteps:
    """Episodes as rows, filled up to the longest with steps that pay nothing and weigh 1."""

    pairs: Ints  # [N, T] state · actions + action; −1 where there is no step
    target: Floats  # [N, T] π(a|s); 1 where there is no step
    behaviour: Floats | None  # [N, T] b(a|s); None where it is counted
    rewards: Floats  # [N, T] discounted
    num_actions: int

    def weights(self, times: Floats) -> Floats:
        """Logarithms of ``ρ_t``, ``[N, T]``, where each episode counts so many `times`."""
        return self.known if self.behaviour is not None else self._weights(self._followed(times))

    @cached_property
    def known(self) -> Floats:
        """The same where `behaviour` is given."""
        assert self.behaviour is not None
        return self._weights(self.behaviour)

    def _weights(self, followed: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            return np.cumsum(np.log(self.target) - np.log(followed), axis=1)

    def _followed(self, times: Floats) -> Floats:
        is_step = self.pairs >= 0
        pairs, weight = self.pairs[is_step], np.broadcast_to(times[:, None], self.pairs.shape)[is_step]
        taken = np.bincount(pairs, weight)
        been = np.bincount(pairs // self.num_actions, weight)
        found = np.ones(self.pairs.shape)
        # An episode that is not in the resample weighs nothing, whatever stands here.
        found[is_step] = np.where(weight > 0, taken[pairs] / np.maximum(been[pairs // self.num_actions], 1.0), 1.0)
        return found

    def values(self, times: Floats) -> tuple[float, float]:
        """Weighted and per-decision importance sampling; NaN where no episode does what the other policy does."""
        logs = self.weights(times)
        with np.errstate(over="ignore", invalid="ignore"):
            largest = logs[:, -1].max(initial=-np.inf, where=times > 0)
            whole = times * np.exp(logs[:, -1] - largest) if np.isfinite(largest) else np.zeros(len(logs))
            steps = np.where(self.rewards == 0, 0.0, self.rewards * np.exp(logs))
        total, count = whole.sum(), times.sum()
        weighted = float(whole @ self.rewards.sum(axis=1) / total) if total > 0 else np.nan
        return weighted, float(times @ steps.sum(axis=1) / count)

    @property
    def begun(self) -> int:
        """In how many episodes the other policy could have done the first step."""
        return int(np.sum(np.isfinite(self.weights(np.ones(len(self.pairs)))[:, 0])))

    @property
    def effective(self) -> float:
        """How many episodes the weighted mean rests on: ``(Σ ρ)² / Σ ρ²``."""
        logs = self.weights(np.ones(len(self.pairs)))[:, -1]
        if not np.isfinite(largest := logs.max()):
            return 0.0
        rho = np.exp(logs - largest)
        return float(rho.sum() ** 2 / (rho**2).sum())


def bootstrap(  # many parameters: two kinds of statistics, and how they are resampled
    columns: Floats,
    several: Callable[[Floats], tuple[float, ...]] | None,
    resamples: int,
    confidence: float,
    seed: int,
) -> list[Interval]:
    """Percentile intervals over episodes: of means of columns ``[N, K]``, then of what `several` makes of counts."""
    rng, drawn = np.random.default_rng(seed), []
    block = max(DRAWN_AT_ONCE // len(columns), 1)
    for first in range(0, resamples, block):
        places = rng.integers(0, len(columns), (min(block, resamples - first), len(columns)))
        means = np.stack([column[places].mean(axis=1) for column in columns.T], axis=1)
        if several is not None:
            more = [several(np.bincount(row, minlength=len(columns)).astype(float)) for row in places]
            means = np.hstack([means, np.array(more)])
        drawn.append(means)
    return intervals(np.concatenate(drawn), confidence)


def intervals(values: Floats, confidence: float) -> list[Interval]:
    """Of each column of draws ``[B, K]``, those that are not a number left out; NaN where none is left."""
    tail = 50 * (1 - confidence)
    found = []
    for column in values.T:
        known = column[np.isfinite(column)]
        low, high = np.percentile(known, [tail, 100 - tail]) if len(known) else (np.nan, np.nan)
        found.append(Interval(float(low), float(high)))
    return found
