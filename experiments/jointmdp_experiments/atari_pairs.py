"""Pairs of branches in an emulator, once for all variants of the shocks.

Shocks on rewards do not touch the dynamics. So the emulator is asked without them, and their part is added by hand:
given the paths of both branches, the variance that the coins add to a discounted gap is a sum over steps, of

    0                  where both branches are one,
    2·own²             in the same state with different actions (shared in time: wherever both play on),
    2·(shared² + own²) in different states,
    shared² + own²     where one branch is over.

By the law of total variance the mean of that sum is added to the variance of the emulator's own gap.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jointmdp.ground.arrays import Bools, Floats
from jointmdp.learning.estimates import Estimate
from jointmdp.learning.walks import Coordinate, PairWalks, state_key
from jointmdp.simulation.simulators.simulator import Simulator, Snapshot
from jointmdp_experiments.atari_coins import Coins

SURE = 1.96  # standard errors of a 95 % interval


class PairPaths(NamedTuple):
    """N pairs of branches over T steps."""

    rewards: NDArray[np.float32]  # [N, 2, T], the game's own
    is_alive: Bools  # [N, 2, T]
    same_state: Bools  # [N, T]
    same_action: Bools  # [N, T]

    def returns(self, coins: Coins) -> Floats:
        """Discounted sums of the game's own rewards, ``[N, 2]``."""
        t = np.arange(min(coins.horizon, self.rewards.shape[2]))
        return coins.game * self.rewards[:, :, t].astype(np.float64) @ coins.discount ** t.astype(np.float64)

    def coin_variances(self, coins: Coins) -> tuple[Floats, Floats]:
        """What the coins add to the variances of the gap ``[N]`` and of both returns ``[N, 2]``, given the paths."""
        t = np.arange(min(coins.horizon, self.rewards.shape[2]))
        alive, same, action = self.is_alive[:, :, t], self.same_state[:, t], self.same_action[:, t]
        weights = coins.discount ** (2.0 * t)
        both, one = alive.all(axis=1), alive.sum(axis=1) == 1
        shared, own = coins.shared**2, coins.own**2
        apart = ~(same | coins.is_clocked)
        # Coins of the clock are those of actions, wherever they are taken.
        other = ~action | apart
        gap = both * 2 * (shared * apart + own * other) + one * (shared + own)
        return gap @ weights, alive * (shared + own) @ weights

    def gap_mean(self, coins: Coins) -> Estimate:
        """The mean of the gap."""
        gaps = -np.diff(self.returns(coins), axis=1)[:, 0]
        return Estimate(float(gaps.mean()), SURE * float(gaps.std(ddof=1)) / math.sqrt(len(gaps)))

    def gap_variance(self, coins: Coins) -> Estimate:
        """The variance of the gap under shared noise."""
        return _variance(-np.diff(self.returns(coins), axis=1)[:, 0], self.coin_variances(coins)[0])

    def own_gap_variance(self, coins: Coins) -> Estimate:
        """The emulator's own part of it: without the coins."""
        gaps = -np.diff(self.returns(coins), axis=1)[:, 0]
        return _variance(gaps, np.zeros(len(gaps)))

    def halved(self, splits: int, seed: int = 0) -> list[tuple[PairPaths, PairPaths]]:
        """Two halves of the pairs, cut in several ways."""
        rng, count = np.random.default_rng(seed), len(self.rewards)
        orders = [rng.permutation(count) for _ in range(splits)]
        return [(self._some(order[: count // 2]), self._some(order[count // 2 :])) for order in orders]

    def _some(self, chosen: NDArray[np.int64]) -> PairPaths:
        return PairPaths(self.rewards[chosen], self.is_alive[chosen], self.same_state[chosen], self.same_action[chosen])

    def variances(self, coins: Coins) -> tuple[Estimate, Estimate]:
        """The variances of both returns."""
        returns, added = self.returns(coins), self.coin_variances(coins)[1]
        one, other = (_variance(returns[:, k], added[:, k]) for k in range(2))
        return one, other


def _variance(values: Floats, added: Floats) -> Estimate:
    """A variance by the law of total variance, and its error."""
    count = len(values)
    off = (values - values.mean()) ** 2 * count / (count - 1) + added
    return Estimate(float(off.mean()), SURE * float(off.std(ddof=1)) / math.sqrt(count))


def pair_paths(
    simulator: Simulator, policy: Any, root: Snapshot, actions: tuple[int, int], count: int, steps: int, seed: int = 0
) -> PairPaths:
    """Pairs of branches that take two actions in one state and follow the policy from there."""
    walks = PairWalks(simulator, policy, seed, 0.0)
    rewards = np.zeros((count, 2, steps), dtype=np.float32)
    alive, same, action = (
        np.zeros((count, 2, steps), bool),
        np.zeros((count, steps), bool),
        np.zeros((count, steps), bool),
    )
    key = state_key(simulator, root)
    for i in range(count):
        places = [Coordinate(root, key, a) for a in actions]
        for t in range(steps):
            alive[i, :, t] = [not place.is_over for place in places]
            if not alive[i, :, t].any():
                break
            same[i, t], action[i, t] = places[0].key == places[1].key, places[0].action == places[1].action
            drawn = walks.outcome("", t, i, places)
            rewards[i, :, t], places = [each.reward for each in drawn], [each.after for each in drawn]
            if same[i, t] and action[i, t]:
                places[1] = places[0]
    return PairPaths(rewards, alive, same, action)
