"""The front door and its answers: what another action or policy would have given, given what was seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, Unpack, overload

import numpy as np

from jointmdp.exact.hindsight.backward_moments import Ends, backward, of_node
from jointmdp.exact.hindsight.counterfactual_model import OtherCourses, check_size, drawn_courses, kernel_of
from jointmdp.exact.hindsight.logged_trajectories import (
    UNSEEN,
    SeenSteps,
    Trajectory,
    called,
    given_trajectories,
    named_trajectory,
    seen_steps,
    until,
)
from jointmdp.exact.hindsight.other_branch import (
    ONE,
    OtherBranch,
    TimedPlan,
    Walk,
    all_cells,
    as_changes,
    but_plan,
    told,
    walk,
)
from jointmdp.exact.hindsight.scenario_posteriors import REWARD_TOLERANCE, SeenPaths, seen_paths
from jointmdp.exact.hindsight.study_of_logs import Study, studied
from jointmdp.exact.law.gap_law import Laws
from jointmdp.exact.law.pair_graph import NOTHING, GapBranches, Opening, OpeningMoves
from jointmdp.exact.moments.known_returns import KnownReturns, PairEnds
from jointmdp.exact.solution.evaluate import MAX_ORDER
from jointmdp.exact.solution.gap import Gap
from jointmdp.exact.solution.solution import Solution
from jointmdp.ground import checks
from jointmdp.ground.answers import ResultFace
from jointmdp.ground.arrays import UNIT, Floats, Ints, summed
from jointmdp.ground.errors import ModelError, NotKnownError
from jointmdp.ground.files import FilePath
from jointmdp.ground.intervals import Interval
from jointmdp.ground.progress import Meter
from jointmdp.model.gumbel_max import GumbelModel, ends_of
from jointmdp.model.gumbel_pair_law import relative_error
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.policies import as_policy, as_timed_policy, depends_on_time
from jointmdp.model.tables import ActionLike

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AT_ONCE = 128  # trajectories that are walked beside each other


@dataclass(frozen=True, eq=False)
class Question:
    """What was asked: one trajectory, and what would have been done instead."""

    model: JointMDP
    seen: SeenSteps  # from the start on
    known: SeenSteps  # the same, and steps after an end that are known to pay nothing
    branch: OtherBranch
    words: str
    reward_tolerance: float
    laws: Laws = field(repr=False)
    start: int
    number: int
    """Of the trajectory among those given."""
    name: str = "the trajectory"
    episode: Any = None
    """What the trajectory is called."""

    @property
    def left(self) -> int | None:
        """Steps that count after the known ones; None for an endless future."""
        return None if self.laws.horizon is None else self.laws.horizon - len(self.known.actions)

    @cached_property
    def paths(self) -> SeenPaths:
        return seen_paths(self.model, [self.known], self.reward_tolerance, [(self.name, self.start)])

    @cached_property
    def walk(self) -> Walk:
        return walk(self.paths, self.branch)

    def forget(self) -> None:
        """Drop what takes memory and can be made again."""
        for name in ("paths", "walk"):
            self.__dict__.pop(name, None)

    @cached_property
    def opening(self) -> Opening:
        """The gap as the laws take it: moves of known steps, then pairs."""
        return Opening(self._moves)

    def _moves(self) -> OpeningMoves:
        last, first, terms, parts = len(self.walk.moves), 0, 0, []
        counted = last if self.model.discount else 1
        for t, moves in enumerate(self.walk.moves[:counted]):
            after = first + len(self.walk.nodes[t].place)
            to, goes = self.walk.nodes[t + 1], moves.child != ONE
            child = np.where(goes, moves.child, 0)
            node = np.where(goes & (t + 1 < last), after + child, NOTHING)
            is_pair = goes & (t + 1 == last) & (self.left != 0)
            here = np.where(is_pair, to.state[child] if len(to.state) else NOTHING, NOTHING)
            there = np.where(is_pair, self.paths.states[t + 1][moves.place], NOTHING)
            # A law may count an event as likelier than it is.
            parts.append((first + moves.parent, moves.weight + moves.off, moves.gain, moves.loss, node, here, there))
            terms += self._terms
            first = after
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        return OpeningMoves._make([*columns, first, terms])

    @property
    def _terms(self) -> int:
        """Roundings of one step in what a law adds up."""
        if isinstance(self.model, GumbelModel):
            return math.ceil(2 * relative_error(2 * self.model.outcomes.width) / UNIT)
        return self.model.num_scenarios + self.model.num_actions + 8


class BranchReturn(NamedTuple):
    """The return of one branch given what was seen."""

    mean: float
    variance: float
    mean_error: float
    """Guaranteed bound on the error of `mean`."""
    variance_error: float
    """Guaranteed bound on the error of `variance`."""

    @property
    def std(self) -> float:
        """Standard deviation."""
        return math.sqrt(self.variance)

    @property
    def mean_interval(self) -> Interval:
        """Certified bounds of the mean."""
        return Interval(self.mean - self.mean_error, self.mean + self.mean_error)


@dataclass(frozen=True, eq=False)
class Hindsight(ResultFace):
    """One trajectory, and what would have come of something else on the same noise."""

    question: Question = field(repr=False)
    gap: Gap
    """Other minus seen: positive where it would have given more."""
    other_return: BranchReturn
    """Of the other branch, from the start on."""
    seen_return: BranchReturn
    """Of the seen branch: what it was paid, and what it still expects after the last step."""

    @property
    def model(self) -> JointMDP:
        """The model."""
        return self.question.model

    @property
    def start(self) -> int:
        """The step at which the branches part."""
        return self.question.start

    @property
    def num_steps(self) -> int:
        """Steps that were seen from the start on."""
        return len(self.question.seen.actions)

    def kernel(self, step: int | None = None) -> Floats:
        """The model as the log leaves it: ``P(s' | t, s, a, log)`` as ``[n, S, A, S]``, or of one `step` ``[S, A, S]``.

        For a branch that is in s and takes a at step t, however it came there, and meets the noise as the sharing says.
        What was not seen of the seen branch is averaged over. Rows of actions that are not available are 0.
        """
        first = self.start
        if step is not None:
            at = checks.as_count("step", step, least=first, most=first + self.num_steps - 1) - first
            return kernel_of(self.model, self.question.paths, self.question.walk.chances, [at])[0]
        check_size(self.model, self.num_steps)
        return kernel_of(self.model, self.question.paths, self.question.walk.chances, range(self.num_steps))

    def sample(self, n: int, seed: int = 0) -> OtherCourses:
        """Courses of the other branch given the log, drawn at random: trajectories over the steps of the log."""
        count, question = checks.as_count("n", n), self.question
        rng = np.random.default_rng(checks.as_count("seed", seed, least=0))
        return drawn_courses(self.model, question.paths, question.branch, self.num_steps, count, rng, self.start)

    def figure(self) -> Figure:
        """The seen path, and where the other branch would have been."""
        return self._drawn("hindsight_path")

    def __repr__(self) -> str:
        gap = self.gap
        told = f"{abs(gap.mean):.6g} {'more' if gap.mean > 0 else 'less'}"
        if abs(gap.mean) <= gap.mean_error:
            told = "0 more" if gap.mean_error == 0 else f"0 more, within {gap.mean_error:.1g},"
        open_std = gap.std if gap.variance > gap.variance_error else 0.0
        return (
            f"Hindsight({self.question.words} instead of {self.gap.other} at step {self.start}, in {self.gap.state}: "
            f"{told} on the same noise, ± {open_std:.6g} of what is not known; "
            f"{self.num_steps} steps seen)"
        )

    @cached_property
    def path(self) -> Floats:
        """Where the other branch would have been: the probability of each state at each time.

        ``[n+1, S]``, where n steps were seen from the start on.
        """
        question, size = self.question, self.model.num_states
        found = np.zeros((self.num_steps + 1, size))
        for t, nodes in enumerate(question.walk.nodes[: self.num_steps + 1]):
            found[t] += summed(nodes.state, nodes.chance, size)
            found[t] += summed(question.paths.states[t], question.walk.merged[t], size)
        return found

    @cached_property
    def merged(self) -> Floats:
        """The probability that both branches are one by each time, ``[n+1]``.

        Where the other follows a plan it may part again, and this is the probability that both are in one state.
        """
        walked, places = self.question.walk, self.question.paths.states
        found = np.array([chance.sum() for chance in walked.merged[: self.num_steps + 1]])
        if self.question.branch.plan is not None:
            for t in range(len(found)):
                nodes = walked.nodes[t]
                found[t] += nodes.chance[nodes.state == places[t][nodes.place]].sum()
        return found

    @cached_property
    def posterior(self) -> Floats:
        """What the data say of the scenario of each step, ``[n, W]``."""
        paths, chances = self.question.paths, self.question.walk.chances
        steps = enumerate(paths.steps[: self.num_steps])
        self._check_scenarios()
        return np.stack([chances[t][~paths.is_last(t)] @ step.posterior for t, step in steps])

    @cached_property
    def prior(self) -> Floats:
        """The same before anything was seen of the step but its state, ``[n, W]``."""
        paths, chances = self.question.paths, self.question.walk.chances
        steps = enumerate(paths.steps[: self.num_steps])
        self._check_scenarios()
        return np.stack([chances[t][~paths.is_last(t)] @ step.prior for t, step in steps])

    def _check_scenarios(self) -> None:
        if isinstance(self.model, GumbelModel):
            raise NotKnownError(
                "Gumbel noise is continuous: it has no scenarios whose probabilities could be listed, and what is open "
                "of it is no number of bits; path and gap say what follows"
            )

    @property
    def entropy(self) -> Floats:
        """What is still not known of the noise of each step, in bits, ``[n]``."""
        return _bits(self.posterior)

    @property
    def prior_entropy(self) -> Floats:
        """What was not known of it before, in bits, ``[n]``."""
        return _bits(self.prior)

    def most_likely_path(self) -> list[str]:
        """The most likely course of events, by the names of the other branch's states.

        Of events: the states of the other branch, whether both are one by then, and states of the seen branch that were
        not seen. Where the same states can come about in several ways, another sequence of states may be likelier.
        """
        return [self.model.state_label(int(s)) for s in self._most_likely()]

    def _most_likely(self) -> Ints:
        """Viterbi's algorithm on nodes, and on places where both branches are one."""
        walked, paths = self.question.walk, self.question.paths
        best, back = np.ones(1 + len(paths.states[0])), []
        best[1:] = 0.0
        for t, (moves, own) in enumerate(zip(walked.moves, walked.seen, strict=True)):
            size, after = len(walked.nodes[t].place), len(walked.nodes[t + 1].place)
            count = after + len(paths.states[t + 1])
            parent = np.concatenate([moves.parent, size + np.repeat(np.arange(len(own.start) - 1), np.diff(own.start))])
            child = np.concatenate([np.where(moves.child == ONE, after + moves.place, moves.child), after + own.place])
            code, which = np.unique(parent * count + child, return_inverse=True)
            chance = np.bincount(which, np.concatenate([moves.weight, own.weight]))
            parent, child = np.divmod(code, count)
            reached = best[parent] * chance
            order = np.argsort(reached, kind="stable")
            now, link = np.zeros(count), np.zeros(count, dtype=np.int64)
            now[child[order]], link[child[order]] = reached[order], parent[order]  # the last one is the likeliest
            best = now / now.max()
            back.append(link)
        node, found = int(np.argmax(best)), []
        for t in range(len(back), -1, -1):
            nodes = walked.nodes[t]
            is_node = node < len(nodes.place)
            found.append(nodes.state[node] if is_node else paths.states[t][node - len(nodes.place)])
            node = int(back[t - 1][node]) if t else 0
        return np.array(found[::-1])[: self.num_steps + 1]

    def table(self) -> list[dict[str, Any]]:
        """One row a step: what was seen, and where the other branch would most likely have been."""
        model, seen, likely = self.model, self.question.seen, self._most_likely()
        nothing = np.full(self.num_steps, math.nan)
        is_listed = not isinstance(model, GumbelModel)
        known, before = (self.entropy, self.prior_entropy) if is_listed else (nothing, nothing)
        rows = []
        for t in range(self.num_steps + 1):
            row: dict[str, Any] = {"step": self.start + t}
            row["seen_state"] = "" if seen.states[t] < 0 else model.state_label(int(seen.states[t]))
            is_step = t < self.num_steps
            row["seen_action"] = model.action_label(int(seen.actions[t])) if is_step else ""
            row["seen_reward"] = float(seen.rewards[t]) if is_step else math.nan
            row["other_state"] = model.state_label(int(likely[t]))
            row["probability"] = float(self.path[t, likely[t]])
            row["one"] = float(self.merged[t])
            row["noise_known"] = float(before[t] - known[t]) if is_step else math.nan
            row["noise_open"] = float(known[t]) if is_step else math.nan
            rows.append(row)
        return rows


def _bits(rows: Floats) -> Floats:
    logs = np.log2(rows, where=rows > 0, out=np.zeros_like(rows))
    return np.asarray(-np.sum(rows * logs, axis=1) + 0.0)


@dataclass(frozen=True, eq=False)
class Hindsights(ResultFace, Sequence[Hindsight]):
    """Several trajectories, in the order given."""

    results: tuple[Hindsight, ...] = field(repr=False)

    def __getitem__(self, i: Any) -> Any:
        return self.results[i]

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[Hindsight]:
        return iter(self.results)

    @property
    def mean(self) -> Floats:
        """Mean gap of each, ``[N]``."""
        return np.array([each.gap.mean for each in self.results])

    @property
    def variance(self) -> Floats:
        """Variance of each gap, ``[N]``."""
        return np.array([each.gap.variance for each in self.results])

    def study(
        self,
        *,
        behaviour: Any = None,
        outcome: Callable[..., Any] | None = None,
        confidence: float = 0.95,
        resamples: int = 1000,
        seed: int = 0,
    ) -> Study:
        """What the other policy is worth by these logs, by every estimate there is, and which episodes it changes.

        Args:
            behaviour: the policy that the logs followed, for importance sampling; None: what they did in each state, as
                often as they did it, counted again in every resample.
            outcome: a function of the return, or of the return and the last state by name, that says what came of an
                episode; None for the sign of the return.
            confidence: of the intervals, which are sampled: percentiles of the bootstrap over episodes.
            resamples: how many.
            seed: of the resamples.
        """
        return studied(self.results, behaviour, outcome, confidence, resamples, seed)

    def figure(self) -> Figure:
        """That of the `study`."""
        return self.study().figure()

    def report(self, path: FilePath = "study.html", *, title: str | None = None) -> Path:
        """Write that of the `study`: one HTML file that needs nothing else."""
        return self.study().report(path, title=title)

    def __repr__(self) -> str:
        errors = np.array([each.gap.mean_error for each in self.results])
        mean = np.where(np.abs(self.mean) <= errors, 0.0, self.mean)
        return (
            f"Hindsights({len(self):,} answers; mean gap {mean.mean():.6g}, from {mean.min():.6g} to "
            f"{mean.max():.6g}; more in {np.mean(mean > 0):.1%} of them)"
        )

    def table(self) -> list[dict[str, Any]]:
        """One row a trajectory; episodes by what they are called, where they are."""
        return [
            {
                "trajectory": each.question.number,
                **({} if each.question.episode is None else {"episode": each.question.episode}),
                "start": each.start,
                "steps": each.num_steps,
                "state": each.gap.state,
                "action": each.gap.action,
                "seen": each.gap.other,
                "mean": each.gap.mean,
                "mean_interval": each.gap.mean_interval,
                "std": each.gap.std,
                "other_return": each.other_return.mean,
                "seen_return": each.seen_return.mean,
            }
            for each in self.results
        ]


class Options(TypedDict, total=False):
    """Settings of `hindsight` that do not change the kind of its answer."""

    other_policy: Any
    but: Mapping[int, ActionLike] | None
    horizon: int | None
    order: int
    solution: Solution | None
    reward_tolerance: float


@overload
def hindsight(
    model: JointMDP,
    policy: Any,
    trajectory: Trajectory,
    action: ActionLike | None = ...,
    *,
    start: int = ...,
    **options: Unpack[Options],
) -> Hindsight: ...


@overload
def hindsight(
    model: JointMDP,
    policy: Any,
    trajectory: Trajectory | Sequence[Trajectory],
    action: ActionLike | None = ...,
    *,
    start: int | Literal["each"] = ...,
    **options: Unpack[Options],
) -> Hindsights: ...


def hindsight(  # many parameters: a front door, one keyword for each setting
    model: JointMDP,
    policy: Any,
    trajectory: Trajectory | Sequence[Trajectory],
    action: ActionLike | None = None,
    *,
    other_policy: Any = None,
    but: Mapping[int, ActionLike] | None = None,
    start: int | Literal["each"] = 0,
    horizon: int | None = None,
    order: int = 2,
    solution: Solution | None = None,
    reward_tolerance: float = REWARD_TOLERANCE,
) -> Hindsight | Hindsights:
    """What would `action` have given on the very noise that was seen? Exact, with certificates.

    Args:
        model: the joint MDP; its ``sharing`` says where the other branch meets the noise of the seen one.
        policy: what both branches follow: the other after its first action, the seen one after the last step.
        trajectory: what was seen, or several trajectories of one model.
        action: what is done instead at `start`; then the other branch follows `policy`.
        other_policy: a whole policy that is followed instead, from `start` on and for ever; in place of `action`. One
            that depends on time, as an array ``[T, S, A]`` or a function of time and state, is followed at the steps of
            the log, which its times count, and where an episode is over up to the `horizon`; after them `policy` is.
        but: the logged actions but at some steps of the log, ``{step: action}``; after the log `policy`.
        start: the step at which the other branch parts from the seen one. Returns count from there. With ``"each"`` the
            answers of all steps, one after the other, whose state was seen and at which the action was available.
        horizon: how many steps count in all, from step 0 of the trajectory; None for an endless future.
        order: highest moment of the gap; 2, or more for skewness, kurtosis and tighter bounds.
        solution: of `evaluate(model, policy, order=order)`, where it is at hand; else the pairs are solved for here.
            Under Gumbel noise it is not used: pairs come from their closed law.
        reward_tolerance: how close a seen reward must be to one of the model where none is equal to it, relative to the
            larger of the two.
    """
    several = not isinstance(trajectory, Trajectory) or start == "each"
    given = given_trajectories(trajectory)
    chosen = as_policy(model, policy)
    if sum(each is not None for each in (action, other_policy, but)) != 1:
        both = "" if action is None and other_policy is None and but is None else ", not both"
        raise ModelError(f"give an action, or other_policy, or but: what is done instead{both}")
    order = checks.as_count("order", order, least=2, most=MAX_ORDER)
    reward_tolerance = checks.as_positive("reward_tolerance", reward_tolerance)
    number = None if action is None else model.action_index(action)
    words = "policy" if number is None else model.action_label(number)
    is_planned = but is not None or depends_on_time(other_policy)
    other = chosen if other_policy is None or is_planned else as_policy(model, other_policy)
    cells = all_cells(model) if is_planned else None
    branch = OtherBranch(model, other, number, can_merge=number is not None or is_planned, known=cells)
    over = ends_of(model)
    ends = Ends(model, chosen, branch, order, horizon, solution, over)
    laws: dict[int | None, Laws] = {}
    timed: dict[tuple[int, int], OtherBranch] = {}
    questions = []
    for n, each in enumerate(given):
        with named_trajectory(n, len(given), each.episode):
            whole = seen_steps(model, each, over)
            if start != 0:  # what came before the branches part must be possible, too
                seen_paths(model, [whole], reward_tolerance)
            for t in _starts(model, whole, number, start):
                seen, span = _seen_from(model, whole, t, number), ends.steps_from(t, len(whole.actions))
                if span not in laws:
                    laws[span] = laws_after(branch, chosen, span)
                # Pairs after an episode that is over need no plan, and are the same for all logs.
                known = (
                    seen
                    if span is None or (isinstance(model, GumbelModel) and not is_planned)
                    else until(model, seen, span, over)
                )
                if but is not None:
                    changes = as_changes(model, but, len(seen.actions), t)
                    words = told(model, changes, t)
                    branch = replace(branch, plan=but_plan(model, seen, changes, chosen, over, t))
                elif is_planned:
                    steps = t + len(known.actions)
                    if (t, steps) not in timed:
                        rows = as_timed_policy(model, other_policy, steps, chosen)
                        timed[t, steps] = replace(branch, plan=TimedPlan(rows[t:]))
                    branch = timed[t, steps]
                name = called(n, len(given), each.episode)
                parts = (branch, words, reward_tolerance, laws[span], t, n, name, each.episode)
                questions.append(Question(model, seen, known, *parts))
    if not questions:
        raise ModelError(f"{words} was not available at any step of the trajectory")
    found: list[Hindsight] = []
    with Meter("hindsight") as meter:
        for _, group in groupby(questions, lambda each: id(each.branch)):
            alike = list(group)
            for first in range(0, len(alike), AT_ONCE):
                block = alike[first : first + AT_ONCE]
                found += answered(block, [ends.after(each.known, each.laws.horizon) for each in block])
                if several:
                    block[0].forget()
                meter.update(len(found) / len(questions), f"{len(found):,} of {len(questions):,} trajectories")
    return Hindsights(tuple(found)) if several else found[0]


def laws_after(branch: OtherBranch, chosen: Floats, span: int | None) -> Laws:
    """Laws of gaps over so many steps."""
    return Laws(GapBranches(branch.model, branch.policy, chosen, branch.can_merge), span)


def _starts(model: JointMDP, seen: SeenSteps, action: int | None, start: int | str) -> Sequence[int]:
    if start != "each":
        return [checks.as_count("start", start, least=0)]
    known = [t for t in range(len(seen.actions)) if seen.states[t] != UNSEEN]
    return [t for t in known if action is None or model.available[seen.states[t], action]]


def _seen_from(model: JointMDP, whole: SeenSteps, start: int, action: int | None) -> SeenSteps:
    if checks.as_count("start", start, least=0, most=len(whole.actions)) == len(whole.actions):
        raise ModelError(
            f"the trajectory has no action at step {start}, so there is nothing that could have been done instead; "
            "evaluate(...).gap(...) compares actions that are still to be taken"
        )
    if whole.states[start] == UNSEEN:
        raise ModelError(f"state {start} of the trajectory was not seen, so nothing can begin there")
    if action is not None:
        model.action_index(action, int(whole.states[start]))
    return whole.cut(start)


def answered(block: Sequence[Question], ends: list[PairEnds]) -> list[Hindsight]:
    """Backward over all steps of some trajectories at once."""
    first, names = block[0], [(each.name, each.start) for each in block]
    if len(block) == 1:
        paths, steps = first.paths, first.walk
    else:
        paths = seen_paths(first.model, [each.known for each in block], first.reward_tolerance, names)
        steps = walk(paths, first.branch)
    gaps, returns = backward(first.model, paths, steps, ends)

    def alone(i: int) -> BranchReturn:
        mean, error, known = of_node(returns, i)
        return BranchReturn(mean + 0.0, float(known.values[2]), error, float(known.errors[2]))

    found = []
    for n, question in enumerate(block):
        other, seen = alone(n), alone(n + len(block))
        found.append(Hindsight(question, _gap(question, gaps, n, other, seen), other, seen))
    return found


def _gap(question: Question, gaps: KnownReturns, n: int, other: BranchReturn, seen: BranchReturn) -> Gap:
    model, first = question.model, int(question.seen.actions[0])
    label, taken = model.state_label(int(question.seen.states[0])), model.action_label(first)
    mean, error, known = of_node(gaps, n)
    if question.branch.action == first and model.sharing != "none":
        more = (0.0,) * (len(known.values) - 3)
        return Gap(label, taken, taken, 0.0, 0.0, 0.0, 0.0, 0.0, more, more)
    return Gap(
        label,
        question.words,
        f"{taken} (seen)" if question.branch.plan is None else "what was seen",
        mean=mean + 0.0,
        variance=float(known.values[2]),
        independent_variance=other.variance + seen.variance,
        mean_error=error,
        variance_error=float(known.errors[2]),
        higher=tuple(known.values[3:].tolist()),
        higher_errors=tuple(known.errors[3:].tolist()),
        place=(question.laws, question.opening),
    )
