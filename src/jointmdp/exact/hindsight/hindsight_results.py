"""What hindsight answers: the gap to what was seen, both returns, and where the other branch would have been."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from jointmdp.exact.hindsight.other_branch import ONE, OtherBranch, Walk, walk
from jointmdp.exact.hindsight.scenario_posteriors import SeenPaths, seen_paths
from jointmdp.exact.hindsight.trajectory import SeenSteps
from jointmdp.exact.law.pair_graph import NOTHING, Opening, OpeningMoves
from jointmdp.exact.law.solution_laws import Laws
from jointmdp.exact.solution.gap import Gap
from jointmdp.ground.answers import ResultFace
from jointmdp.ground.arrays import Floats, Ints, summed
from jointmdp.ground.intervals import Interval
from jointmdp.model.joint_mdp import JointMDP


@dataclass(frozen=True, eq=False)
class AskedBack:
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

    @cached_property
    def paths(self) -> SeenPaths:
        return seen_paths(self.model, [self.known], self.reward_tolerance, [(self.name, self.start)])

    @cached_property
    def walk(self) -> Walk:
        return walk(self.paths, self.branch)

    @cached_property
    def opening(self) -> Opening:
        """The gap as the laws take it: moves of known steps, then pairs."""
        return Opening(self._moves)

    def _moves(self) -> OpeningMoves:
        last, first, terms, parts = len(self.walk.moves), 0, 0, []
        for t, moves in enumerate(self.walk.moves):
            after = first + len(self.walk.nodes[t].place)
            to, goes = self.walk.nodes[t + 1], moves.child != ONE
            child = np.where(goes, moves.child, 0)
            node = np.where(goes & (t + 1 < last), after + child, NOTHING)
            is_pair = goes & (t + 1 == last)
            here = np.where(is_pair, to.state[child] if len(to.state) else NOTHING, NOTHING)
            there = np.where(is_pair, self.paths.states[t + 1][moves.place], NOTHING)
            parts.append((first + moves.parent, moves.weight, moves.gain, moves.loss, node, here, there))
            terms += self.model.num_scenarios + 8
            first = after
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        return OpeningMoves._make([*columns, first, terms])


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

    question: AskedBack = field(repr=False)
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
        """ReturnMoves that were seen from the start on."""
        return len(self.question.seen.actions)

    def __repr__(self) -> str:
        better = "more" if self.gap.mean > 0 else "less"
        return (
            f"Hindsight({self.question.words} instead of {self.gap.other} at step {self.start}, in {self.gap.state}: "
            f"{abs(self.gap.mean):.6g} {better} on the same noise, ± {self.gap.std:.6g} of what is not known; "
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
        """The probability that both branches are one by each time, ``[n+1]``."""
        return np.array([chance.sum() for chance in self.question.walk.merged[: self.num_steps + 1]])

    @cached_property
    def posterior(self) -> Floats:
        """What the data say of the scenario of each step, ``[n, W]``."""
        paths, chances = self.question.paths, self.question.walk.chances
        steps = paths.steps[: self.num_steps]
        return np.stack([chances[t][~paths.is_last(t)] @ step.posterior for t, step in enumerate(steps)])

    @cached_property
    def prior(self) -> Floats:
        """The same before anything was seen of the step but its state, ``[n, W]``."""
        paths, chances = self.question.paths, self.question.walk.chances
        steps = paths.steps[: self.num_steps]
        rows = (chances[t][~paths.is_last(t)] @ self.model.probabilities[step.state] for t, step in enumerate(steps))
        return np.stack(list(rows))

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
        known, before = self.entropy, self.prior_entropy
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

    def __repr__(self) -> str:
        mean = self.mean
        return (
            f"Hindsights({len(self):,} answers; mean gap {mean.mean():.6g}, from {mean.min():.6g} to "
            f"{mean.max():.6g}; more in {np.mean(mean > 0):.1%} of them)"
        )

    def table(self) -> list[dict[str, Any]]:
        """One row a trajectory."""
        return [
            {
                "trajectory": each.question.number,
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
