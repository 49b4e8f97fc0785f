"""The plan that is best on average given what was seen, with a limited number of actions unlike the logged ones.

Let x be the place of the seen branch, y the state of the other, l how many changes are left, and ``a_t`` the logged
action. Backward over the steps of the log, under the posterior of their noise where the branches share it,

    Q_t(b, l) = E[R + γ V_{t+1}(x', y', l) | x, y, b],      V_t(l) = max { Q_t(a_t, l), Q_t(b, l − 1) for b ≠ a_t },

and after the log V is what its policy expects. Noise of distinct steps is independent given the places, so no plan that
remembers more is better. With ``V°, Q°`` of the plan that repeats the log, by the best stand-in where its action is not
available, every plan satisfies

    V_0(l) − V°_0 = Σ_t γᵗ E[Q°_t(b_t) − V°_t],

which says what each change is worth: followed by the log, after all changes before it.

A change is made where it is better by more than rounding and the errors of what follows can account for. These errors
go the same way as values, and a second maximum with all of them added bounds what any other plan can give.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from jointmdp.exact.hindsight.other_branch import OtherBranch, as_logged, node_moves, seen_moves
from jointmdp.exact.hindsight.scenario_posteriors import SeenPaths
from jointmdp.exact.moments.known_returns import PairEnds
from jointmdp.ground.arrays import UNIT, Bools, Floats, Ints, summed
from jointmdp.ground.errors import ModelError
from jointmdp.model.joint_mdp import JointMDP


class Stage(NamedTuple):
    """What is best at one step, by node and by the number of changes that are left."""

    code: Ints  # [m] place · states + state of the nodes that the other branch can come to, sorted
    logged: Ints  # [m] what the log would do there; −1 where that is not available
    action: Ints  # [m, L+1]; −1 where nothing can be done
    worth: Floats  # [m, L+1] of the change; 0 where there is none
    instead: int
    """The best other action where all before was as logged."""
    instead_worth: float
    """How much more than the whole log it gives on average, with the best changes after it; NaN if there is none."""


class _Moves(NamedTuple):
    """How nodes move on under one action."""

    kernel: sp.csr_array  # [m, m']
    paid: Floats  # [m]
    off: sp.csr_array  # [m, m'] how far the weights are off at most
    paid_off: Floats  # [m]
    can: Bools  # [m]


class _Known(NamedTuple):
    """Of nodes, by changes left, and last of the log with stand-ins, ``[m, L+1]``; −inf where no plan goes on."""

    value: Floats  # of the plan that is found
    error: Floats
    most: Floats  # that any plan can have


class BestPlan:
    """Found by `find`; then it says what to do. The number that nodes keep is that of changes left."""

    def __init__(self, model: JointMDP, logged: Ints, changes: int | None, over: Bools) -> None:
        self.model, self.changes, self.over = model, changes, over
        self.acts = as_logged(model, logged, over)  # [T, S]
        # Without a limit there are two numbers: no change at all, and any.
        self.columns = 2 if changes is None else min(changes, len(logged)) + 1
        self.stages: list[Stage] = []
        self.loss_bound = 0.0
        """How much more any other plan can give, on average."""

    def __call__(self, t: int, place: Ints, state: Ints, kept: Ints) -> tuple[Floats, Ints]:
        at = self.at(t, place, state)
        action = self.stages[t].action[at, kept]
        is_change = action != self.stages[t].logged[at]
        return np.eye(self.model.num_actions)[action], self._left(kept) * is_change + kept * ~is_change

    def at(self, t: int, place: Ints, state: Ints) -> Ints:
        """Where these nodes stand in the stage."""
        return np.searchsorted(self.stages[t].code, place * self.model.num_states + state)

    def _left(self, kept: Ints) -> Ints:
        """After a change."""
        return kept if self.changes is None else np.where(kept < self.columns, np.maximum(kept - 1, 0), kept)

    def find(self, paths: SeenPaths, branch: OtherBranch, end: PairEnds) -> None:
        """All stages, for one trajectory."""
        size, A = self.model.num_states, self.model.num_actions
        codes, moves, follows, sums = [paths.states[0].copy()], [], [np.ones(1)], paths.sums
        for t, step in enumerate(paths.steps):
            own, (place, state) = seen_moves(step), np.divmod(codes[-1], size)
            logged, found = self.acts[t, state], []
            for b in range(A):
                can = (logged == b) | (self.model.available[state, b] & ~self.over[state])
                some, row = np.flatnonzero(can), np.arange(A) == b
                rows, apart = np.tile(row.astype(np.float64), (len(some), 1)), np.zeros(len(some), dtype=bool)
                found.append((can, node_moves(some, place[some], state[some], rows, apart, step, own, branch)))
            after = np.unique(np.concatenate([each.child for _, each in found]))
            here = []
            for can, each in found:
                where, shape = (each.parent, np.searchsorted(after, each.child)), (len(state), len(after))
                terms = np.bincount(each.parent, minlength=len(state))
                unsure = (terms[each.parent] + sums[t] + 16) * UNIT * each.weight + each.off
                kernel, off = (sp.csr_array((x, where), shape=shape) for x in (each.weight, unsure))
                kernel.eliminate_zeros()  # of chances too small for a float
                paid, paid_off = (
                    summed(each.parent, x, len(state)) for x in (each.weight * each.gain, unsure * np.abs(each.gain))
                )
                here.append(_Moves(kernel, paid, off, paid_off, can))
            follows.append(sum(each.kernel.T @ (follows[-1] * (logged == b)) for b, each in enumerate(here)))
            codes.append(after)
            moves.append(here)
        last = end.other(codes[-1] % size)
        ends = (last.mean, last.mean_error, last.mean + last.mean_error)
        known = _Known(*(np.tile(each[:, None], self.columns + 1) for each in ends))
        for t in range(len(moves) - 1, -1, -1):
            logged = self.acts[t, codes[t] % size]
            stage, known = self._stage(t, codes[t], logged, moves[t], known, follows[t])
            self.stages.insert(0, stage)
        value, error, most = (float(each[0, -2]) for each in known)
        if not np.isfinite(value):
            raise self._stuck()
        self.loss_bound = max(0.0, most - (value - error))

    def _stage(  # many parameters: the nodes of a step, how they move, what follows, and where the log itself leads
        self, t: int, code: Ints, logged: Ints, moves: list[_Moves], later: _Known, follows: Floats
    ) -> tuple[Stage, _Known]:
        m, left = np.arange(len(code)), np.arange(self.columns + 1)
        Q = _Known(*(np.stack(each) for each in zip(*(self._backup(each, later) for each in moves), strict=True)))
        is_logged = (logged >= 0)[:, None]
        kept = _Known(*(np.where(is_logged, each[logged, m], -np.inf) for each in Q))
        # Changes: every other action, followed with one change less; of the last column, stand-ins alone.
        other = np.ones((len(moves), len(code)), dtype=bool)
        other[logged, m] &= logged < 0
        spent, may = self._left(left), np.where(left < self.columns, left > 0, ~is_logged)
        changed = _Known(*(np.where(other[:, :, None], each[:, :, spent], -np.inf) for each in Q))
        best = np.argmax(changed.value, axis=0)  # [m, L+1]
        value, error = (np.take_along_axis(each, best[None], axis=0)[0] for each in changed[:2])
        can, goes_on = np.isfinite(value), np.isfinite(kept.value)
        margin = np.where(can & goes_on, error + kept.error, 0.0)
        is_better = may & can & (~goes_on | (value > np.where(goes_on, kept.value, 0.0) + margin))
        known = _Known(
            np.where(is_better, value, kept.value),
            np.where(is_better, error, np.where(goes_on, kept.error, 0.0)),
            np.maximum(kept.most, np.where(may, changed.most.max(axis=0), -np.inf)),
        )
        repeated = known.value[:, -1]
        alone = np.take_along_axis(Q.value[:, :, -1], best.T, axis=0).T - repeated[:, None]
        # Where all before was as logged; nodes at which nothing else can be done go on with the log.
        there = (follows > 0) & can[:, -2]
        first = float(follows[there] @ (value[there, -2] - repeated[there])) if there.any() else np.nan
        often = summed(best[there, -2], follows[there], len(moves))
        stage = Stage(
            code,
            logged,
            np.where(is_better, best, logged[:, None]),
            np.where(is_better, alone, 0.0),
            int(np.argmax(often)),
            self.model.discount**t * first,
        )
        return stage, known

    def _backup(self, moves: _Moves, later: _Known) -> _Known:
        """Q of one action, ``[m, L]``."""
        g = self.model.discount
        size = sum(np.abs(np.where(np.isfinite(each), each, 0.0)) for each in (later.value, later.most))
        rounding = moves.paid_off[:, None] + g * (moves.off @ (size + later.error))
        value, most = (self._followed(moves, each) for each in (later.value, later.most))
        return _Known(value, g * (moves.kernel @ later.error) + rounding, most + rounding)

    def _followed(self, moves: _Moves, later: Floats) -> Floats:
        after = moves.kernel @ later
        goes_on = moves.can[:, None] & np.isfinite(after)
        return np.where(goes_on, moves.paid[:, None] + self.model.discount * np.where(goes_on, after, 0.0), -np.inf)

    def _stuck(self) -> ModelError:
        model = self.model
        for t, stage in enumerate(self.stages):
            if len(at := np.flatnonzero(stage.logged < 0)):
                state = model.state_label(int(stage.code[at[0]] % model.num_states))
                few = f"at most {self.changes} change{'' if self.changes == 1 else 's'}"
                return ModelError(
                    f"{few} may not be enough: the other branch can come to {state} at step {t}, where the logged "
                    "action is not available; allow more changes"
                )
        raise AssertionError("no plan goes on, and no logged action is missing")
