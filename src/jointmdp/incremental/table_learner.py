"""Learning from a model in tables: `init`, `draw`, `step` and `advance`, and the answer of a state."""

from __future__ import annotations

from math import comb
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from jointmdp.arrays import Ints, float64
from jointmdp.bellman import sample_backups
from jointmdp.bellman.sample_backups import Pairs, Sample
from jointmdp.bellman.tuple_moments import Tuples
from jointmdp.errors import ModelError
from jointmdp.incremental import checkpoints, recursion, table_draws
from jointmdp.incremental.learned import Learned, LearnedJoint
from jointmdp.incremental.options import LearnOptions, as_options
from jointmdp.incremental.recursion import Info, Problem, Rule, State
from jointmdp.incremental.replicas import LearnedMoments, Replicas
from jointmdp.model.episodes import start_law
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.policies import as_policy


class TableLearner:
    """Incremental JIPE on a model in tables.

    ``state = learner.init()``, then ``state, info = learner.step(state, learner.draw(state))`` again and again;
    ``learner.advance(state, 1000)`` does the same in one compiled loop, and ``learner.answer(state)`` says what has
    been learned so far. States are values: nothing is changed in place.
    """

    def __init__(
        self,
        model: JointMDP,
        policy: ArrayLike,
        options: LearnOptions | None = None,
        *,
        is_joint: bool = False,
    ) -> None:
        """`is_joint`: moments of any number of returns up to the order, for small tables and sweeps only."""
        if model.discount >= 1:
            raise ModelError("discount is 1: returns over an endless future need a discount below 1")
        self.options = options = as_options(options)
        if options.reward_bound is not None:
            raise ModelError("a model in tables knows its rewards; leave reward_bound out")
        self.model, self.policy = model, as_policy(model, policy)
        choice = options.coordinates or "sweep"
        size = int(model.available.sum())
        self._tuples = None
        if is_joint and choice != "sweep":
            raise ModelError(f'moments of several returns are learned in sweeps, not coordinates="{choice}"')
        _check_memory(size, options, is_joint)
        count = model.num_states
        start = np.full(count, 1 / count) if options.start is None else start_law(model, options.start)
        restart = 1 - model.discount if options.restart is None else options.restart
        with float64():
            world = table_draws.draw_tables(model, self.policy, start, restart)
            table = None
            if is_joint:
                self._tuples = Tuples(np.nonzero(model.available)[0], options.order)
                table = sample_backups.links(self._tuples)
            self._problem = Problem(world, table)
            self._settings, function = options.settings(model.discount, model.reward_bound)
        self._rule = Rule(options.order, model.sharing, choice, function)
        self._run = {
            "digest": checkpoints.described(model, self.policy),
            "collection": "joint" if is_joint else "pairs",
            **options.described(),
            "coordinates": choice,
            "restart": restart,
            "start": start.tolist(),
        }

    @property
    def discount(self) -> float:
        """γ."""
        return self.model.discount

    def init(self) -> State:
        """The state before the first step."""
        bound, options = self.model.reward_bound, self.options
        return recursion.init(self._rule, self._problem, bound, options.replicas, options.batch)

    def draw(self, state: State) -> Sample:
        """The sample of the next step, ``[R, …, m]``; it depends on the seed, the step's number and the walkers."""
        with float64():
            return recursion.draw(self._rule, self._problem, self._settings, state)

    def step(self, state: State, sample: Sample) -> tuple[State, Info]:
        """The state after a sample: the one of `draw`, or one of your own with the same shape."""
        return recursion.step(self._rule, self._problem, self._settings, state, sample)

    def advance(self, state: State, count: int) -> State:
        """`count` steps at once."""
        with float64():
            return recursion.advance(self._rule, self._problem, self._settings, state, jnp.asarray(count))

    def answer(self, state: State, log: tuple[dict[str, Any], ...] = ()) -> Learned | LearnedJoint:
        """What has been learned so far."""
        steps = int(state.step)
        how = (self.options.order, self.model.sharing, self.options.replicas, self.options.seed, steps)
        updates = self.updates(state)
        if not isinstance(state.averages, Pairs):
            assert self._tuples is not None
            degrees = np.repeat(np.arange(self.options.order + 1), np.diff(self._tuples.starts))
            held = Replicas(np.asarray(state.averages), np.asarray(state.doubt_averages)[degrees])
            return LearnedJoint(*how, updates, log, model=self.model, _tuples=self._tuples, _values=held)
        return Learned(*how, updates, log, model=self.model, _moments=self._moments(state), _visits=_visits(state))

    def _moments(self, state: State) -> LearnedMoments:
        assert isinstance(state.averages, Pairs)
        mean, pair = (np.asarray(part) for part in state.averages)
        size = mean.shape[1]
        if isinstance(state.doubt_averages, Pairs):
            doubts = [np.asarray(part).mean(axis=0) for part in state.doubt_averages]
        else:
            one, each = np.asarray(state.doubt_averages), [i + j for i, j in sample_backups.powers(self.options.order)]
            doubts = [np.full(size, one[1]), np.repeat(one[each][:, None], size * size, axis=1)]
        shape = (len(pair[0]), size, size)
        pairs = Replicas(pair.reshape(-1, *shape), doubts[1].reshape(shape))
        return LearnedMoments(self.options.order, self.model.sharing, Replicas(mean, doubts[0]), pairs)

    def updates(self, state: State) -> int:
        """Coordinate updates so far, over all replicas."""
        if state.visits is None:
            values = state.values
            per = values.mean.size + values.pair.size if isinstance(values, Pairs) else values.size - values.shape[0]
            return int(state.step) * per
        kinds = len(sample_backups.powers(self.options.order))
        mean, pair = (int(np.asarray(part).sum(dtype=np.int64)) for part in state.visits)
        return mean + kinds * pair

    # -- on disk -------------------------------------------------------------------------------------------------

    def save(self, state: State, log: list[dict[str, Any]]) -> None:
        """Write the checkpoint of the options."""
        assert self.options.checkpoint is not None
        checkpoints.save(self.options.checkpoint, self._run, log, state)

    def resume(self) -> tuple[State, list[dict[str, Any]]]:
        """The state and log of the checkpoint, or those before the first step."""
        first = self.init()
        if self.options.checkpoint is None:
            return first, []
        found = checkpoints.load(self.options.checkpoint, self._run, first)
        return (first, []) if found is None else found[:2]


def _visits(state: State) -> tuple[Ints, Ints] | None:
    """Visits ``[R, X]`` and ``[R, X, X]``; None: all of them in every step."""
    if state.visits is None:
        return None
    mean, pair = (np.asarray(part).astype(np.int64) for part in state.visits)
    return mean, pair.reshape(len(mean), mean.shape[1], mean.shape[1])


def _check_memory(size: int, options: LearnOptions, is_joint: bool) -> None:
    """Values, averages, their successors in a step, and what is gathered on the way."""
    if is_joint:
        entries = comb(size + options.order, options.order)
        words = f"sorted tuples of up to {options.order} of {size} coordinates"
    else:
        entries = size * size * len(sample_backups.powers(options.order))
        words = f"moments of pairs of {size} coordinates"
    each = 6 if options.coordinates in (None, "sweep") else 10  # beside the values their doubts
    needed = 8 * each * options.replicas * entries
    if needed > options.memory_limit:
        raise ModelError(
            f"{entries:,} {words} in {options.replicas} replicas need about {needed / 2**30:.2g} GiB, above "
            f"memory_limit = {options.memory_limit / 2**30:.2g} GiB; take fewer replicas, a smaller order, or evaluate"
        )
