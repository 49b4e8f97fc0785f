"""The front door: what another action or policy would have given, given what was seen."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, overload

import numpy as np

from jointmdp.exact.evaluate import MAX_ORDER
from jointmdp.exact.hindsight import backward_moments
from jointmdp.exact.hindsight.backward_moments import KnownReturns, PairEnds, ReturnMoves, backed_up, of_node
from jointmdp.exact.hindsight.hindsight_results import AskedBack, BranchReturn, Hindsight, Hindsights
from jointmdp.exact.hindsight.other_branch import ONE, OtherBranch, Walk, walk
from jointmdp.exact.hindsight.scenario_posteriors import REWARD_TOLERANCE, SeenPaths, seen_paths
from jointmdp.exact.hindsight.trajectory import UNSEEN, SeenSteps, Trajectory, seen_steps, until
from jointmdp.exact.law.pair_graph import GapBranches
from jointmdp.exact.law.solution_laws import Laws
from jointmdp.exact.moments.pair_solver import Solve
from jointmdp.exact.moments.stored_moments import StateMoments
from jointmdp.exact.solution.gap import Gap
from jointmdp.exact.solution.solution import Solution
from jointmdp.ground import checks
from jointmdp.ground.arrays import Bools, Floats, Ints
from jointmdp.ground.errors import ModelError
from jointmdp.ground.progress import Meter
from jointmdp.model.episodes import terminal_states
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.policies import as_policy
from jointmdp.model.tables import ActionLike

AT_ONCE = 128  # trajectories that are walked beside each other


@overload
def hindsight(  # many parameters: as below
    model: JointMDP,
    policy: Any,
    trajectory: Trajectory,
    action: ActionLike | None = ...,
    *,
    other_policy: Any = ...,
    start: int = ...,
    horizon: int | None = ...,
    order: int = ...,
    solution: Solution | None = ...,
    reward_tolerance: float = ...,
) -> Hindsight: ...


@overload
def hindsight(  # many parameters: as below
    model: JointMDP,
    policy: Any,
    trajectory: Trajectory | Sequence[Trajectory],
    action: ActionLike | None = ...,
    *,
    other_policy: Any = ...,
    start: int | Literal["each"] = ...,
    horizon: int | None = ...,
    order: int = ...,
    solution: Solution | None = ...,
    reward_tolerance: float = ...,
) -> Hindsights: ...


def hindsight(  # many parameters: a front door, one keyword for each setting
    model: JointMDP,
    policy: Any,
    trajectory: Trajectory | Sequence[Trajectory],
    action: ActionLike | None = None,
    *,
    other_policy: Any = None,
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
        other_policy: a whole policy that is followed instead, from `start` on and for ever; in place of `action`.
        start: the step at which the other branch parts from the seen one. Returns count from there. With ``"each"`` the
            answers of all steps, one after the other, whose state was seen and at which the action was available.
        horizon: how many steps count in all, from step 0 of the trajectory; None for an endless future.
        order: highest moment of the gap; 2, or more for skewness, kurtosis and tighter bounds.
        solution: of `evaluate(model, policy, order=order)`, where it is at hand; else the pairs are solved for here.
        reward_tolerance: how close a seen reward must be to one of the table where none is equal to it, relative to the
            largest reward of the state and action.
    """
    several = not isinstance(trajectory, Trajectory) or start == "each"
    given = _given(trajectory)
    chosen = as_policy(model, policy)
    if (action is None) == (other_policy is None):
        both = "" if action is None else ", not both"
        raise ModelError(f"give an action, or other_policy: what is done instead{both}")
    order = checks.as_count("order", order, least=2, most=MAX_ORDER)
    reward_tolerance = checks.as_positive("reward_tolerance", reward_tolerance)
    number = None if action is None else model.action_index(action)
    over = terminal_states(model)
    asked = [(n, each, t) for n, each in enumerate(given) for t in _starts(model, each, number, start, over)]
    if not asked:
        raise ModelError(f"{model.action_label(number or 0)} was not available at any step of the trajectory")
    seen = []
    for n, each, t in asked:
        with _named(n, len(given)):
            seen.append(_seen_from(model, each, t, number, over))
    other = chosen if other_policy is None else as_policy(model, other_policy)
    branch = OtherBranch(model, other, number, can_merge=number is not None)
    ends = _Ends(model, chosen, branch, order, horizon, solution, over)
    laws: dict[int | None, Laws] = {}
    questions = []
    for steps, (n, original, t) in zip(seen, asked, strict=True):
        with _named(n, len(given)):
            span = ends.steps_from(t, original)
        if span not in laws:
            laws[span] = Laws(GapBranches(model, other, chosen, branch.can_merge), span)
        words = "policy" if number is None else model.action_label(number)
        known = steps if span is None else until(model, steps, span, over)
        name = "the trajectory" if len(given) == 1 else f"trajectory {n}"
        questions.append(AskedBack(model, steps, known, branch, words, reward_tolerance, laws[span], t, n, name))
    found: list[Hindsight] = []
    with Meter("hindsight") as meter:
        for first in range(0, len(seen), AT_ONCE):
            block = questions[first : first + AT_ONCE]
            found += _answered(block, [ends.of(each) for each in block], reward_tolerance)
            meter.update(len(found) / len(seen), f"{len(found):,} of {len(seen):,} trajectories")
    return Hindsights(tuple(found)) if several else found[0]


def _starts(
    model: JointMDP, trajectory: Trajectory, action: int | None, start: int | str, over: Bools
) -> Sequence[int]:
    if start != "each":
        return [checks.as_count("start", start, least=0)]
    seen = seen_steps(model, trajectory, over)
    known = [t for t in range(len(seen.actions)) if seen.states[t] != UNSEEN]
    return [t for t in known if action is None or model.available[seen.states[t], action]]


def _given(trajectory: Any) -> list[Trajectory]:
    is_one = isinstance(trajectory, Trajectory) or not isinstance(trajectory, Iterable)
    found = [trajectory] if is_one else list(trajectory)
    if not found:
        raise ModelError("no trajectories were given")
    for each in found:
        if not isinstance(each, Trajectory):
            raise ModelError(f"a trajectory is a jointmdp.Trajectory(states, actions, …), not {each!r}")
    return found


@contextlib.contextmanager
def _named(number: int, count: int) -> Iterator[None]:
    """Of several trajectories, errors say which."""
    try:
        yield
    except ModelError as error:
        if count == 1:
            raise
        raise ModelError(f"trajectory {number}: {error}") from None


def _seen_from(model: JointMDP, trajectory: Trajectory, start: int, action: int | None, over: Bools) -> SeenSteps:
    whole = seen_steps(model, trajectory, over)
    start = checks.as_count("start", start, least=0, most=len(whole.actions))
    if start == len(whole.actions):
        raise ModelError(
            f"the trajectory has no action at step {start}, so there is nothing that could have been done instead; "
            "evaluate(...).gap(...) compares actions that are still to be taken"
        )
    if whole.states[start] == UNSEEN:
        raise ModelError(f"state {start} of the trajectory was not seen, so nothing can begin there")
    if action is not None:
        model.action_index(action, int(whole.states[start]))
    parts = whole.states[start:], whole.actions[start:], whole.rewards[start:], whole.scenarios[start:]
    return SeenSteps(*parts, whole.ended)


class _Ends:
    """What follows the last step, for each number of steps that are left."""

    def __init__(  # many parameters: those of the front door
        self,
        model: JointMDP,
        policy: Floats,
        other: OtherBranch,
        order: int,
        horizon: int | None,
        solution: Solution | None,
        over: Bools,
    ) -> None:
        self.model, self.policy, self.other, self.order = model, policy, other, order
        self.horizon = None if horizon is None else checks.as_count("horizon", horizon)
        self.moments = None if solution is None else self._of_solution(solution)
        self._is_terminal = over
        self._made: dict[tuple[int | None, bool], PairEnds] = {}

    def _of_solution(self, solution: Solution) -> StateMoments:
        fits = solution.model == self.model and np.array_equal(solution.policy, self.policy)
        if not fits or solution.horizon is not None or solution.order < self.order:
            raise ModelError("the solution is not one of evaluate(model, policy) for this model, policy and order")
        return backward_moments.moments_of_pairs(solution)

    def steps_from(self, start: int, trajectory: Trajectory) -> int | None:
        """That count from step `start` on; None for an endless future."""
        if self.horizon is None:
            return None
        if self.horizon < len(trajectory):
            raise ModelError(f"the trajectory has {len(trajectory)} steps, more than the horizon of {self.horizon}")
        return self.horizon - start

    def of(self, question: AskedBack) -> PairEnds:
        """What follows the last known step of a trajectory."""
        span, last = question.laws.horizon, int(question.known.states[-1])
        left = None if span is None else span - len(question.known.actions)
        is_over = left is None and last != UNSEEN and bool(self._is_terminal[last]) and self.order == 2
        if (left, is_over) not in self._made:
            self._made[left, is_over] = self._solved(left, is_over)
        return self._made[left, is_over]

    def _solved(self, left: int | None, is_over: bool) -> PairEnds:
        model, other = self.model, self.other.policy
        if left == 0:
            return backward_moments.nothing_follows(self.order)
        if left is None and is_over:
            return backward_moments.seen_is_over(model, other, self.policy)
        if self.other.action is None:
            if self.order > 2:
                raise ModelError("whole policies are compared to order 2; leave order out")
            if left is not None:
                raise ModelError(
                    f"whole policies are compared over a horizon only where it ends with the trajectory or its "
                    f"episode, and {left} steps would follow; give that horizon, or none"
                )
            return backward_moments.two_policies(model, other, self.policy, Solve())
        if left is not None:
            return backward_moments.over_horizon(model, self.policy, self.order, left)
        return backward_moments.same_policy(model, self.policy, self.order, self.moments)


def _answered(block: list[AskedBack], ends: list[PairEnds], tolerance: float) -> list[Hindsight]:
    """Backward over all steps of some trajectories at once."""
    model = block[0].model
    paths = seen_paths(model, [each.known for each in block], tolerance, [(each.name, each.start) for each in block])
    steps = walk(paths, block[0].branch)
    gaps = _backward_gaps(model, paths, steps, ends)
    returns = _backward_returns(model, paths, steps, ends)
    found = []
    for n, question in enumerate(block):
        other, seen = (_branch_return(*of_node(returns, n + at)) for at in (0, len(block)))
        found.append(Hindsight(question, _gap(question, gaps, n, ends[n].order, other, seen), other, seen))
    return found


def _branch_return(mean: float, error: float, known: Any) -> BranchReturn:
    return BranchReturn(mean + 0.0, float(known.values[2]), error, float(known.errors[2]))


def _gap(question: AskedBack, gaps: KnownReturns, n: int, order: int, other: BranchReturn, seen: BranchReturn) -> Gap:
    model, first = question.model, int(question.seen.actions[0])
    label, taken = model.state_label(int(question.seen.states[0])), model.action_label(first)
    if question.branch.action == first and model.sharing != "none":
        more = (0.0,) * (order - 2)
        return Gap(label, taken, taken, 0.0, 0.0, 0.0, 0.0, 0.0, more, more)
    mean, error, known = of_node(gaps, n)
    return Gap(
        label,
        question.words,
        f"{taken} (seen)",
        mean=mean + 0.0,
        variance=float(known.values[2]),
        independent_variance=other.variance + seen.variance,
        mean_error=error,
        variance_error=float(known.errors[2]),
        higher=tuple(known.values[3:].tolist()),
        higher_errors=tuple(known.errors[3:].tolist()),
        place=(question.laws, question.opening),
    )


def _backward_gaps(model: JointMDP, paths: SeenPaths, steps: Walk, ends: list[PairEnds]) -> KnownReturns:
    """Of the gaps of all nodes at time 0."""
    known: KnownReturns | None = None
    for t in range(len(paths.steps), -1, -1):
        nodes = steps.nodes[t]
        is_last = paths.is_last(t)[nodes.place]
        at = np.flatnonzero(is_last)
        which, x = paths.which[t][nodes.place[at]], paths.states[t][nodes.place[at]]
        last = _by_trajectory(which, ends, partial(_gap_end, nodes.state[at], x))
        if known is None:
            known = last
            continue
        moves = steps.moves[t]
        columns = ReturnMoves(
            moves.parent, moves.weight, moves.gain - moves.loss, np.abs(moves.gain) + np.abs(moves.loss), moves.child
        )
        found = backed_up(columns, len(nodes.place), known, model.discount)
        known = _put(found, at, last)
    assert known is not None
    return known


def _backward_returns(model: JointMDP, paths: SeenPaths, steps: Walk, ends: list[PairEnds]) -> KnownReturns:
    """Of the returns of the other branch at all nodes of time 0, and then of the seen branch at all places."""
    known: KnownReturns | None = None
    for t in range(len(paths.steps), -1, -1):
        nodes, is_last = steps.nodes[t], paths.is_last(t)
        size, places = len(nodes.place), np.flatnonzero(is_last)
        at = np.flatnonzero(is_last[nodes.place])
        which = paths.which[t]
        of_other = _by_trajectory(which[nodes.place[at]], ends, partial(_other_end, nodes.state[at]))
        of_seen = _by_trajectory(which[places], ends, partial(_seen_end, paths.states[t][places]))
        where = np.concatenate([at, size + places])
        last = KnownReturns(*(np.concatenate(parts, axis=-1) for parts in zip(of_other, of_seen, strict=True)))
        if known is None:
            known = last
            continue
        moves, own, after = steps.moves[t], steps.seen[t], len(steps.nodes[t + 1].place)
        from_places = np.flatnonzero(~is_last)
        parent = np.concatenate([moves.parent, size + np.repeat(from_places, np.diff(own.start))])
        weight = np.concatenate([moves.weight, own.weight])
        paid = np.concatenate([moves.gain, own.reward])
        to = np.where(moves.child == ONE, after + moves.place, moves.child)
        child = np.concatenate([to, after + own.place])
        found = backed_up(
            ReturnMoves(parent, weight, paid, np.abs(paid), child), size + len(which), known, model.discount
        )
        known = _put(found, where, last)
    assert known is not None
    return known


def _put(found: KnownReturns, at: Ints, known: KnownReturns) -> KnownReturns:
    for array, values in zip(found, known, strict=True):
        array[..., at] = values
    return found


def _gap_end(y: Ints, x: Ints, ends: PairEnds, i: Ints) -> KnownReturns:
    return ends.gap(y[i], x[i])


def _other_end(y: Ints, ends: PairEnds, i: Ints) -> KnownReturns:
    return ends.other(y[i])


def _seen_end(x: Ints, ends: PairEnds, i: Ints) -> KnownReturns:
    return ends.seen(x[i])


def _by_trajectory(which: Ints, ends: list[PairEnds], of: Callable[[PairEnds, Ints], KnownReturns]) -> KnownReturns:
    """What follows the last step of each node; most often one solution serves all."""
    if all(each is ends[0] for each in ends):
        return of(ends[0], np.arange(len(which)))
    places = [np.flatnonzero(which == n) for n in range(len(ends))]
    parts = [of(end, i) for i, end in zip(places, ends, strict=True)]
    order, count = len(parts[0].moments), len(which)
    found = KnownReturns(*(np.zeros(shape) for shape in ((count,), (count,), (order, count), (order, count))))
    for i, part in zip(places, parts, strict=True):
        _put(found, i, part)
    return found
