"""Who is first among the actions of a table, simulated until no order is open."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from jointmdp.arrays import Bools, Floats
from jointmdp.errors import ModelError
from jointmdp.executors import Executor, opened
from jointmdp.law.reached_pairs import GapBranches, equal_pairs
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.montecarlo.alternatives import SimulationSettings, first_actions
from jointmdp.montecarlo.block_sampler import BlockSampler
from jointmdp.montecarlo.replications import sample
from jointmdp.montecarlo.samples import Replications
from jointmdp.montecarlo.winner_counts import Tally, count

PAIR_LIMIT = 2**21  # moves of pairs of states, up to which every pair that can never differ is found


def simulate_tally(
    model: JointMDP,
    policy: Floats,
    state: int,
    actions: list[int],
    num_samples: int,
    settings: SimulationSettings,
    executor: Executor | str | None = None,
) -> tuple[Tally, Replications]:
    """The replications of `simulate_returns`, each block gone on with while a sample in it is open, and their tally."""
    found = first_actions(model, policy, state, actions, settings)
    assert isinstance(found.sampler, BlockSampler)
    orders = Orders(model, policy)
    sampler = replace(found.sampler, is_enough=orders.are_decided)
    with opened(executor) as workers:
        run = sample(sampler, 0, num_samples, found.sharing, workers, title="simulating who is best")
    return orders.tally(run), run


@dataclass(frozen=True)
class Orders:
    """The order of branches of a table's replications."""

    model: JointMDP
    policy: Floats

    def are_decided(self, run: Replications) -> bool:
        """Whether no sample is open."""
        return self.tally(run).undecided == 0

    def tally(self, run: Replications) -> Tally:
        """Compare all branches of all samples."""
        g, paid = self.model.discount, self.model.rewards[self.model.is_possible]
        # What is left of two futures differs by at most so much.
        ahead = run.left_out * float(np.ptp(paid)) / (1 - g) if g < 1 else run.left_out
        return count(run, ahead, self._never_differs(run))

    def _never_differs(self, run: Replications) -> Callable[[slice], Bools] | None:
        """Which branches of some samples pay the same for ever whatever happens, ``[n, m, m]``.

        They are found where what is left of the futures has few enough states; otherwise they stay open.
        """
        model, leader, state = self.model, run.leaders, run.states
        assert state is not None
        is_open = (leader != leader[:, :1]).any(axis=1) & (run.left_out > 0)
        size, m = model.num_states, state.shape[1]
        codes = np.unique(state[is_open][:, :, None] * size + state[is_open][:, None, :]) if m else np.zeros(0, int)
        if len(codes) == 0:
            return None
        try:
            is_equal = equal_pairs(
                GapBranches(model, self.policy, self.policy, True), *np.divmod(codes, size), PAIR_LIMIT
            )
        except ModelError:
            return None
        equal = codes[is_equal]

        def never_differs(block: slice) -> Bools:
            at = state[block]
            return np.isin(at[:, :, None] * size + at[:, None, :], equal)

        return never_differs
