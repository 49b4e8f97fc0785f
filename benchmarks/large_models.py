"""Large models of which few states matter: orders that arrive later, from a start under a base-stock policy.

A shop sells what it has, up to the demand of the day; what is asked for beyond that is lost. An order arrives after two
more days, so a state is the stock and the two orders on their way. The order brings the position (stock and orders)
up to `BASE_STOCK`, which keeps the shop among 56 states however large stock and orders may be.
"""

import time
from typing import Any

import numpy as np
from scipy.special import gammaln

import jointmdp as jm
from jointmdp.arrays import Ints

BASE_STOCK = 5
START = (2, 1, 1)
MEAN_DEMAND = 1.2
LIMITS = {2_000: (40, 6), 5_000: (61, 8), 50_000: (413, 10)}  # by size: the largest stock and the largest order


def lead_time_inventory(size: int) -> tuple[jm.JointMDP, Ints, tuple[int, int, int]]:
    """The model with about `size` states, the base-stock policy ``[S]``, and a start."""
    largest_stock, largest_order = LIMITS[size]
    demand = np.arange(11)
    chances = np.exp(demand * np.log(MEAN_DEMAND) - MEAN_DEMAND - gammaln(demand + 1.0))

    def successor(state: Any, order: Any, asked: Any) -> tuple[Any, Any, Any]:
        stock, arrives, on_its_way = state
        return np.minimum(np.maximum(stock - asked, 0) + arrives, largest_stock), on_its_way, order

    def reward(state: Any, order: Any, asked: Any) -> Any:
        stock, _, _ = state
        sold = np.minimum(stock, asked)
        return 5.0 * sold - 2.0 * order - 0.1 * (stock - sold)

    model = jm.from_start(
        reward,
        successor,
        demand,
        chances / chances.sum(),
        START,
        actions=largest_order + 1,
        discount=0.95,
        sharing="time",
        action_names=[f"order {order}" for order in range(largest_order + 1)],
        is_vectorised=True,
    )
    position = np.array(model.state_names).sum(axis=1)
    return model, np.clip(BASE_STOCK - position, 0, largest_order), START


def reached(model: jm.JointMDP, policy: Ints, front: Ints) -> Ints:
    """The states that the policy can come to from those of `front`, themselves included."""
    seen = np.zeros(model.num_states, dtype=bool)
    while len(front):
        seen[front] = True
        after = np.unique(model.successors[front, :, policy[front]])
        front = after[~seen[after]]
    return np.flatnonzero(seen)


def main() -> None:
    print("\nLead-time inventory: states discovered from a start")
    print(f"{'states':>8}{'table entries':>16}{'built in':>12}{'under the policy':>20}{'after any action':>20}")
    for size in LIMITS:
        started = time.perf_counter()
        model, policy, start = lead_time_inventory(size)
        seconds = time.perf_counter() - started
        at = model.state_index(start)
        own, first = (reached(model, policy, front) for front in (np.array([at]), np.unique(model.successors[at])))
        print(
            f"{model.num_states:>8,}{model.rewards.size:>16,}{seconds:>10.2f} s{len(own):>20}"
            f"{len(np.union1d(own, first)):>20}",
            flush=True,
        )
