"""Ready-made tabular models, each returned with the policy that its experiment evaluates.

The gridworld and the chain are the paper's tabular experiments, in our settings; the inventory is the
everyday case of common random numbers: order quantities compared under the same demand.
"""

import math

import numpy as np
from scipy.special import gammaln, pdtrc, xlogy

from jointmdp import checks
from jointmdp.arrays import Floats
from jointmdp.checks import Sharing
from jointmdp.errors import ModelError
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.policies import deterministic_policy, uniform_policy

# Demand this unlikely is lumped into the largest demand of the inventory's table.
DEMAND_TAIL = 1e-9


def windy_gridworld(
    size: int = 5, discount: float = 0.99, gust_probability: float = 0.2, sharing: Sharing = "state"
) -> tuple[JointMDP, Floats]:
    """A ``size × size`` grid in which one shared gust blows every branch one cell to the left.

    Cells are named ``"(x,y)"``, ``x`` to the right and ``y`` up, both from 0; state ``y·size + x``. The
    actions U, R, D, L move one cell, walls block. With ``gust_probability`` the gust then moves the branch
    one cell left, blocked by the wall, also out of a goal that its own move has just reached. The goal, top
    right, is absorbing: from there no move and no gust leads away, and every step taken there pays 1; all
    other steps pay 0. The policy goes right, and in the last column up.
    """
    k = checks.as_count("size", size, 2)
    gust = checks.as_probability("gust_probability", gust_probability)
    goal = k * k - 1
    y, x = np.divmod(np.arange(k * k), k)
    moved_x = np.clip(x[:, None] + np.array([0, 1, 0, -1]), 0, k - 1)  # [S, A] for U, R, D, L
    moved_y = np.clip(y[:, None] + np.array([1, 0, -1, 0]), 0, k - 1)
    blown_x = np.maximum(moved_x - 1, 0)
    successors = np.stack([moved_y * k + moved_x, moved_y * k + blown_x], axis=1)  # scenarios: calm, gust
    successors[goal] = goal
    rewards = np.zeros(successors.shape)
    rewards[goal] = 1.0
    chances = np.tile([1 - gust, gust], (k * k, 1))
    names = {"state_names": [f"({i},{j})" for j in range(k) for i in range(k)], "action_names": ["U", "R", "D", "L"]}
    model = JointMDP(chances, rewards, successors, discount, sharing, **names)
    return model, deterministic_policy(model, np.where(x < k - 1, 1, 0))


def coupled_reward_chain(
    num_states: int = 25,
    discount: float = 0.99,
    reward: float = 1.0,
    sharing: Sharing = "state",
    deterministic: bool = False,
    shifted: bool = False,
) -> tuple[JointMDP, Floats]:
    """A chain on which a shared fair coin pays one of two actions ``+reward`` and the other ``−reward``.

    Both actions move to the next state ``s1, s2, …``; the last state is absorbing and pays 0. The policy is
    uniform, or always the first action when ``deterministic``.

    ``shifted`` maps the coin's rewards onto [0, 1] by ``(R + reward) / (2·reward)``: one action gets 1, the
    other 0. The last state keeps paying 0, so that the chain still ends there; half a unit for ever would
    only add a constant to every return. All covariances are those of the unshifted chain divided by
    ``4·reward²``, and the correlations are the same.
    """
    n = checks.as_count("num_states", num_states, 2)
    r = checks.as_positive("reward", reward)
    win, lose = (1.0, 0.0) if shifted else (r, -r)
    rewards = np.tile([[win, lose], [lose, win]], (n, 1, 1))  # the coin's two sides, [W, A]
    rewards[-1] = 0.0
    successors = np.tile(np.minimum(np.arange(n) + 1, n - 1)[:, None, None], (1, 2, 2))
    names = {"state_names": [f"s{i}" for i in range(n)], "action_names": ["a1", "a2"]}
    model = JointMDP(np.full((n, 2), 0.5), rewards, successors, discount, sharing, **names)
    policy = deterministic_policy(model, np.zeros(n)) if deterministic else uniform_policy(model)
    return model, policy


def inventory(  # many parameters: the settings of the model, each with a default
    max_stock: int = 20,
    max_order: int = 7,
    demand_mean: float = 4.0,
    *,
    price: float = 10.0,
    unit_cost: float = 4.0,
    holding_cost: float = 0.2,
    shortage_cost: float = 5.0,
    order_cost: float = 0.0,
    base_stock: int | None = None,
    discount: float = 0.95,
    sharing: Sharing = "time",
) -> tuple[JointMDP, Floats]:
    """A single product under periodic review with Poisson demand and lost sales.

    State ``x`` is the stock before ordering, ``0..max_stock``. Action ``q`` orders ``q`` units, ``0..max_order``, which
    arrive at once; orders that do not fit (``x + q > max_stock``) are unavailable, as in textbooks. Then demand ``D``
    comes, ``min(x + q, D)`` units are sold, the rest of the demand is lost:

        R = price·sold − unit_cost·q − order_cost·1[q > 0] − holding_cost·S' − shortage_cost·lost,
        S' = x + q − sold.

    The scenario is the demand, ``0, 1, 2, …``; the last one stands for all larger demands too, which have a probability
    below 1e-9. Under the default ``sharing="time"`` the same demand on the same day meets every branch.

    The policy orders up to ``base_stock`` as far as the order limit allows. By default that is the level where a
    further unit no longer pays, the smallest ``y`` with ``P(D ≤ y) ≥ c_u / (c_u + c_o)``, where
    ``c_u = price + shortage_cost − unit_cost`` is lost with a unit too few and
    ``c_o = holding_cost + (1 − discount)·unit_cost`` with one too many. Without an order cost, and where the order
    limit does not bind, it is optimal.
    """
    top = checks.as_count("max_stock", max_stock)
    most = checks.as_count("max_order", max_order)
    if most > top:
        raise ModelError(f"max_order is {most}, more than max_stock = {top}; such an order never fits")
    p, c = checks.as_amount("price", price), checks.as_amount("unit_cost", unit_cost)
    h, b = checks.as_amount("holding_cost", holding_cost), checks.as_amount("shortage_cost", shortage_cost)
    k = checks.as_amount("order_cost", order_cost)
    chances = _poisson(checks.as_positive("demand_mean", demand_mean))
    gamma = checks.as_discount(discount)
    if base_stock is None:
        under, over = p + b - c, h + (1 - gamma) * c
        ratio = under / (under + over) if under > 0 else 0.0
        level = min(int(np.searchsorted(np.cumsum(chances), ratio)), top)
    else:
        level = checks.as_count("base_stock", base_stock, 0)
        if level > top:
            raise ModelError(f"base_stock is {level}, more than max_stock = {top}")
    stock = np.arange(top + 1)[:, None, None]
    demand = np.arange(len(chances))[None, :, None]
    order = np.arange(most + 1)[None, None, :]
    offered = stock + order
    sold = np.minimum(offered, demand)
    left = offered - sold
    rewards = p * sold - c * order - k * (order > 0) - h * left - b * (demand - sold)
    model = JointMDP(
        np.tile(chances, (top + 1, 1)),
        rewards,
        np.minimum(left, top),
        gamma,
        sharing,
        available=offered[:, 0, :] <= top,
        state_names=[f"stock {x}" for x in range(top + 1)],
        action_names=[f"order {q}" for q in range(most + 1)],
    )
    return model, deterministic_policy(model, np.clip(level - np.arange(top + 1), 0, most))


def _poisson(mean: float) -> Floats:
    """Poisson probabilities of ``0, 1, 2, …``; the last value carries the rest of the mass."""
    # Twelve standard deviations, and twelve units for small means, reach far beyond the tail that is cut.
    values = np.arange(math.ceil(mean + 12 * math.sqrt(mean)) + 13)
    last = int(np.argmax(pdtrc(values, mean) < DEMAND_TAIL))
    chances: Floats = np.exp(xlogy(values, mean) - mean - gammaln(values + 1))[: last + 1]
    chances[last] = pdtrc(last - 1, mean) if last > 0 else 1.0
    return chances / chances.sum()
