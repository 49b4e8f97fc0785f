"""Ready-made tabular models, each returned with the policy that its experiment evaluates.

The gridworld and the chain are the paper's tabular experiments, in our settings; the inventory is the everyday case of
common random numbers: order quantities compared under the same demand. The others have answers that are known: the
paper's examples, and a machine that wears out.

In the paper's examples every reward and every state is a fair coin when one action is looked at by itself; only the
joint law tells the variants apart. Write ``g = γ²``, ``q`` for the probability of ``a1`` (½ in the policies returned
here) and ``d = 2q(1−q)`` for the probability that two branches choose different actions.
"""

import math

import numpy as np
from scipy.special import gammaln, pdtrc, xlog1py, xlogy

from jointmdp.ground import checks
from jointmdp.ground.arrays import Floats
from jointmdp.ground.checks import Sharing
from jointmdp.ground.errors import ModelError
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


REPAIR, REPLACE = 1, 2  # actions of the machine; 0 keeps it as it is


def anticorrelated_rewards(discount: float = 0.9, sharing: Sharing = "state") -> tuple[JointMDP, Floats]:
    """The paper's Example 1: one state, and a fair coin ``U`` that pays ``R¹ = U`` and ``R² = 1 − U``.

    The state ``"s"`` leads to itself; the actions are ``"a1"`` and ``"a2"``, the policy is uniform. Two branches pay
    ``±1`` against each other until they choose the same action; from then on they are one branch. So

        E Z = 1 / (2(1−γ)),        Var Z = 1 / (4(1−g)),
        E G = 0,                   Var G = 1 / (1 − d·g),
        ρ = 1 − Var G / (2 Var Z), which is (3g − 2) / (2 − g) for the uniform policy.

    The correlation of the returns runs from −1 (γ → 0: the rewards alone) to 1 (γ → 1: the branches soon merge) and
    is 0 where ``g = 2/3``. In one state ``"state"`` and ``"time"`` are the same; under ``"none"``
    ``Var G = 1 / (2(1−g))``.
    """
    rewards = [[[0, 1], [1, 0]]]  # scenarios U = 0 and U = 1
    names = {"state_names": ["s"], "action_names": ["a1", "a2"]}
    model = JointMDP([[0.5, 0.5]], rewards, np.zeros((1, 2, 2)), discount, sharing, **names)
    return model, uniform_policy(model)


def shared_successors(
    flipped: bool = False, discount: float = 0.9, sharing: Sharing = "state"
) -> tuple[JointMDP, Floats]:
    """The paper's Example 2: a fair coin ``U`` is the next state, ``S'¹ = U`` and ``S'² = U``, or ``1 − U``.

    Example 2.1 by default, 2.2 when `flipped`. The states are ``"state 0"`` and ``"state 1"``, the actions ``"a1"``
    and ``"a2"``, the policy is uniform. The paper leaves the rewards open; here every step pays the state it is taken
    from, ``R = s``, so that a return is the discounted time spent in state 1. Each branch by itself has

        E Z(s,a) = s + γ / (2(1−γ)),        Var Z(s,a) = g / (4(1−g)),

    and the two actions of a state have the same mean. Their gap:

    - 2.1: the branches go everywhere together, ``G = 0`` (under ``"state"`` and ``"time"``).
    - 2.2: they are apart after one step, meet with probability ``m`` in each step that they spend apart, and part
      again with probability ``d`` where they stand together, or else become one: ``Var G = g·H`` with

          H = 1 + g((1−m)·H + m·g·d·H) = 1 / (1 − (1−m)·g − m·d·g²).

      Under ``"state"`` branches that are apart have coins of their own, ``m = ½``; under ``"time"`` they have one
      coin, and meet when they choose the same action, ``m = 1 − d``. For the uniform policy both are ½ and
      ``Var G = 4g / (4 − 2g − g²)``.
    - under ``"none"``, in both: ``Var G = g / (2(1−g))``.
    """
    if not isinstance(flipped, bool | np.bool_):
        raise ModelError(f"flipped must be True or False, not {flipped!r}")
    successors = np.tile([[0, 1], [1, 0]] if flipped else [[0, 0], [1, 1]], (2, 1, 1))  # U = 0 and U = 1 in each state
    rewards = np.tile(np.arange(2.0)[:, None, None], (1, 2, 2))
    names = {"state_names": ["state 0", "state 1"], "action_names": ["a1", "a2"]}
    model = JointMDP(np.full((2, 2), 0.5), rewards, successors, discount, sharing, **names)
    return model, uniform_policy(model)


def machine_replacement(  # many parameters: the settings of the model, each with a default
    max_wear: int = 8,
    *,
    shocks: int = 3,
    shock_probability: float = 0.3,
    income: float = 10.0,
    wear_cost: float = 0.5,
    failure_cost: float = 8.0,
    repair_cost: float = 4.0,
    replace_cost: float = 9.0,
    repair_levels: int = 3,
    repair_at: int = 3,
    replace_at: int = 6,
    discount: float = 0.95,
    sharing: Sharing = "time",
) -> tuple[JointMDP, Floats]:
    """A machine that wears out under random shocks: keep it, repair it or replace it.

    State ``x`` is the wear, ``"wear 0"`` (new) to the level before ``max_wear``, which is named ``"broken"``. The
    action comes first: ``keep`` leaves the wear as it is, ``repair`` takes off ``repair_levels`` (never below 0),
    ``replace`` gives a new machine; a broken machine can only be replaced. Then
    ``D ~ Binomial(shocks, shock_probability)`` shocks come, each one level of wear:

        S' = min(x⁺ + D, max_wear),        x⁺ = x, max(x − repair_levels, 0) or 0,
        R = income − wear_cost·S' − failure_cost·1[S' = max_wear] − cost of the action.

    The scenario is ``D``. Under the default ``sharing="time"`` every branch has the same shocks in the same period,
    as two machines in one workshop would. The policy replaces from wear ``replace_at`` on, repairs from ``repair_at``
    on and keeps what is better; under the default settings it is optimal.

    What is known, under ``"time"``:

    - ``Z(x, repair) = Z(x − repair_levels, keep) − repair_cost`` and ``Z(x, replace) = Z(0, keep) − replace_cost``
      in every run. So the gap between repairing and replacing at ``x ≤ repair_levels`` is
      ``replace_cost − repair_cost`` without any variance.
    - With ``max_wear=1`` the machine breaks in each period with ``p = 1 − (1−shock_probability)^shocks`` and is
      replaced. With ``c = wear_cost + failure_cost + γ·replace_cost``, the price of one breakdown,

          E Z(0, keep) = (income − p·c) / (1−γ),        Var Z(0, keep) = p(1−p)·c² / (1−γ²).
    """
    top = checks.as_count("max_wear", max_wear)
    most = checks.as_count("shocks", shocks)
    chances = _binomial(most, checks.as_probability("shock_probability", shock_probability))
    gain, per_level = checks.as_amount("income", income), checks.as_amount("wear_cost", wear_cost)
    failure = checks.as_amount("failure_cost", failure_cost)
    costs = [0.0, checks.as_amount("repair_cost", repair_cost), checks.as_amount("replace_cost", replace_cost)]
    levels = checks.as_count("repair_levels", repair_levels)
    from_repair = checks.as_count("repair_at", repair_at, 0)
    from_replace = checks.as_count("replace_at", replace_at, 0)
    wear = np.arange(top + 1)
    started = np.stack([wear, np.maximum(wear - levels, 0), np.zeros_like(wear)], axis=1)  # [S, A]
    ended = np.minimum(started[:, None, :] + np.arange(most + 1)[None, :, None], top)  # [S, W, A]
    available = np.ones((top + 1, 3), dtype=bool)
    available[top, :REPLACE] = False
    model = JointMDP(
        np.tile(chances, (top + 1, 1)),
        gain - per_level * ended - failure * (ended == top) - np.array(costs),
        ended,
        discount,
        sharing,
        available=available,
        state_names=[*(f"wear {x}" for x in range(top)), "broken"],
        action_names=["keep", "repair", "replace"],
    )
    is_replaced = (wear >= from_replace) | (wear == top)
    return model, deterministic_policy(model, np.where(is_replaced, REPLACE, REPAIR * (wear >= from_repair)))


def _binomial(count: int, chance: float) -> Floats:
    """Binomial probabilities of ``0..count``."""
    k = np.arange(count + 1)
    logs = gammaln(count + 1) - gammaln(k + 1) - gammaln(count - k + 1)
    found: Floats = np.exp(logs + xlogy(k, chance) + xlog1py(count - k, -chance))
    return found / found.sum()
