"""Learning from a model in tables: `init`, `draw`, `step` and `advance`, and the answer of a state."""

from functools import cached_property
from math import comb
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from jointmdp.exact.bellman import sample_backups
from jointmdp.exact.bellman.sample_backups import MeansAndPairs, Sample
from jointmdp.exact.bellman.tuple_moments import Tuples
from jointmdp.ground.arrays import Floats, float64
from jointmdp.ground.errors import ModelError
from jointmdp.learning import table_walks
from jointmdp.learning.incremental import recursion
from jointmdp.learning.incremental.learned import Learned, LearnedJoint, LearnedMoments
from jointmdp.learning.incremental.recursion import Info, RecursionLearner, State
from jointmdp.learning.incremental.settings import IncrementalSettings
from jointmdp.model.episodes import start_law
from jointmdp.model.joint_mdp import JointMDP, digest
from jointmdp.model.policies import as_policy


class TableLearner(RecursionLearner):
    """Incremental JIPE on a model in tables.

    ``state = learner.init()``, then ``state, info = learner.step(state, learner.draw(state))`` again and again;
    ``learner.advance(state, 1000)`` does the same in one compiled loop, and ``learner.answer(state)`` says what has
    been learned so far. States are values: nothing is changed in place.
    """

    is_compiled = True

    def __init__(self, model: JointMDP, policy: ArrayLike, method: IncrementalSettings) -> None:
        if model.discount >= 1:
            raise ModelError("discount is 1: returns over an endless future need a discount below 1")
        if method.reward_bound is not None:
            raise ModelError("a model in tables knows its rewards; leave reward_bound out")
        self.model, self.policy = model, as_policy(model, policy)
        choice = method.coordinates or "sweep"
        if method.joint and choice != "sweep":
            raise ModelError(f'moments of several returns are learned in sweeps, not coordinates="{choice}"')
        _check_memory(int(model.available.sum()), method)
        count = model.num_states
        start = np.full(count, 1 / count) if method.start is None else start_law(model, method.start)
        kind = "joint" if method.joint else "pairs"
        described = {"digest": digest(model, self.policy), "kind": kind, "start": start.tolist()}
        super().__init__(model, method, choice, model.reward_bound, described)
        self._tuples = Tuples(np.nonzero(model.available)[0], method.order) if method.joint else None
        with float64():
            links = None if self._tuples is None else sample_backups.links(self._tuples)
            self._source = table_walks.draw_tables(model, self.policy, start, self.restart)._replace(links=links)

    def init(self) -> State:
        """The state before the first step."""
        replicas, size = self.method.replicas, self._source.size
        if self._settings.choice == "sweep":
            return recursion.sweep_start(self._settings, self._source, replicas)
        return recursion.list_start(self._settings, replicas, size, size * size, self.method.batch)

    def draw(self, state: State) -> Sample:
        """The sample of the next step, ``[R, …, m]``; it depends on the seed, the step's number and the walkers."""
        with float64():
            return recursion.draw(self._settings, self._source, state)

    def step(self, state: State, sample: Sample) -> tuple[State, Info]:
        """The state after a sample: the one of `draw`, or one of your own with the same shape."""
        with float64():
            after = recursion.step(self._settings, self._source, state, sample)
            return after, recursion.info(self._settings, state, after)

    def advance(self, state: State, count: int) -> State:
        """`count` steps at once."""
        with float64():
            return recursion.advance(self._settings, self._source, state, jnp.asarray(count))

    def answer(self, state: State, log: tuple[dict[str, Any], ...] = ()) -> Learned | LearnedJoint:
        """What has been learned so far."""
        summary = self._summary(state, log)
        if self._tuples is not None:
            degrees = np.repeat(np.arange(self.method.order + 1), np.diff(self._tuples.starts))
            updates = int(state.step) * self.method.replicas
            held = self._replicas(state.averages, np.asarray(state.average_bias_bounds)[degrees], updates, degrees)
            return LearnedJoint(*summary, model=self.model, _tuples=self._tuples, _values=held)
        visits = None
        if state.visits is not None:
            mean, pair = (np.asarray(part).astype(np.int64) for part in state.visits)
            visits = mean, pair.reshape(*mean.shape, mean.shape[1])
        return Learned(*summary, model=self.model, _moments=self._moments(state), _visits=visits)

    def _moments(self, state: State) -> LearnedMoments:
        assert isinstance(state.averages, MeansAndPairs)
        order, bounds = self.method.order, state.average_bias_bounds
        mean, pair = (np.asarray(part) for part in state.averages)
        shape = (pair.shape[1], mean.shape[1], mean.shape[1])
        degrees = [i + j for i, j in sample_backups.powers(order)]
        if isinstance(bounds, MeansAndPairs):
            of_mean, of_pair = (np.asarray(part).mean(axis=0) for part in bounds)
        else:
            by_order = np.asarray(bounds)
            of_mean = np.full(mean.shape[1], by_order[1])
            of_pair = np.broadcast_to(by_order[degrees, None, None], shape)
        mean_count = pair_count = np.asarray(int(state.step) * self.method.replicas)
        if state.visits is not None:
            mean_count, pair_count = (np.asarray(part).sum(axis=0) for part in state.visits)
            pair_count = pair_count.reshape(shape[1:])
        pairs = self._replicas(
            pair.reshape(-1, *shape), of_pair.reshape(shape), pair_count, np.array(degrees)[:, None, None]
        )
        return LearnedMoments(order, self.model.sharing, self._replicas(mean, of_mean, mean_count, 1), pairs)

    def _rare_mass(self, chance: Floats) -> Floats:
        """The probability, in any state, of all that is rarer than this: the tables tell what may be unseen."""
        chances, most = self._masses
        count = self.model.num_scenarios * self.model.num_actions
        return np.minimum(most[np.searchsorted(chances, chance)], chance * count)

    @cached_property
    def _masses(self) -> tuple[Floats, Floats]:
        """The chances that occur, and before each of them what all smaller ones add up to in some state."""
        each = np.sort((self.model.probabilities[:, :, None] * self.policy[:, None, :]).reshape(len(self.policy), -1))
        rarest = np.unique(each[each > 0])
        together = np.cumsum(each, axis=1)
        found = [np.searchsorted(row, rarest, side="right") for row in each]
        most = np.max([np.append(0.0, row)[i] for row, i in zip(together, found, strict=True)], axis=0)
        return rarest, np.append(0.0, most)


def _check_memory(size: int, method: IncrementalSettings) -> None:
    """Values, averages, their successors in a step, and what is gathered on the way."""
    if method.joint:
        entries = comb(size + method.order, method.order)
        words = f"sorted tuples of up to {method.order} of {size} coordinates"
    else:
        entries = size * size * len(sample_backups.powers(method.order))
        words = f"moments of pairs of {size} coordinates"
    each = 6 if method.coordinates in (None, "sweep") else 10  # beside the values their bias bounds
    needed = 8 * each * method.replicas * entries
    if needed > method.memory_limit:
        raise ModelError(
            f"{entries:,} {words} in {method.replicas} replicas need about {needed / 2**30:.2g} GiB, above "
            f"memory_limit = {method.memory_limit / 2**30:.2g} GiB; take fewer replicas, a smaller order, or evaluate"
        )
