"""Who is first among the actions of a table, simulated until no order is open."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from jointmdp.arrays import Bools, Floats
from jointmdp.executors import Executor, opened
from jointmdp.law.pair_graph import identical_pairs
from jointmdp.law.pair_outcomes import pair_tables
from jointmdp.model.episodes import policy_kernel, reachable
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.montecarlo.alternatives import SimulationSettings, first_actions
from jointmdp.montecarlo.block_sampler import BlockSampler
from jointmdp.montecarlo.replications import sample
from jointmdp.montecarlo.samples import Replications
from jointmdp.montecarlo.winner_counts import Tally, count

PAIR_LIMIT = 2**23  # entries of tables on pairs of states, up to which every pair that can never differ is found


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
        states = reachable(policy_kernel(model, self.policy), state[is_open].ravel())
        groups = model.num_scenarios if model.sharing == "time" else 1
        if not 0 < groups * len(states) ** 2 <= PAIR_LIMIT:
            return None
        # Over one step nothing is shaped: the tables hold the rewards themselves, and no means are needed.
        tables = pair_tables(model, self.policy, np.zeros(self.policy.shape), states, 1)
        identical = np.pad(identical_pairs(tables), (0, 1))  # the last entry: states left out, place −1

        def never_differs(block: slice) -> Bools:
            at = tables.place[state[block]]
            return identical[at[:, :, None], at[:, None, :]]

        return never_differs
