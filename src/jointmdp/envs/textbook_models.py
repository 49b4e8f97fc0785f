"""Small models whose answers are known: the paper's examples, and a machine that wears out.

In the first two every reward and every state is a fair coin when one action is looked at by itself; only the joint
law tells the variants apart. Write ``g = γ²``, ``q`` for the probability of ``a1`` (½ in the policies returned here)
and ``d = 2q(1−q)`` for the probability that two branches choose different actions.
"""

import numpy as np
from scipy.special import gammaln, xlog1py, xlogy

from jointmdp import checks
from jointmdp.arrays import Floats
from jointmdp.checks import Sharing
from jointmdp.errors import ModelError
from jointmdp.model.joint_mdp import JointMDP
from jointmdp.model.policies import deterministic_policy, uniform_policy

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
