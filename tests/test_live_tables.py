"""Live toy-text environments against the exact evaluation of their imported tables.

The means and variances of gaps are computed twice: by `evaluate` on the model that `from_gymnasium` reads out of the
environment, and by pairs of the live environment stepped from `np_random`. Each comparison allows K standard errors,
which the exact moments give; by the normal approximation a healthy comparison fails once in 1.7 million.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from zoo import slow_or_long

import jointmdp as jm
from jointmdp.ground.checks import Sharing
from jointmdp.simulation.montecarlo.simulate import simulate
from jointmdp.simulation.simulators.gymnasium_simulator import GymnasiumSimulator

K = 5.0


class Case(NamedTuple):
    """An environment, where the actions are compared, which, and how."""

    environment: str
    settings: dict[str, Any]
    state: int
    action: str
    other: str
    policy: str
    sharing: Sharing
    horizon: int
    pairs: int


def policy_of(kind: str, model: jm.JointMDP) -> Any:
    """A policy that treats every state and action differently."""
    rng = np.random.default_rng(5)
    if kind == "fixed":
        return rng.integers(model.num_actions, size=model.num_states)
    if kind == "greedy":
        marginal, value = model.marginal_mdp(), np.zeros(model.num_states)
        for _ in range(200):
            backup = marginal.rewards + model.discount * marginal.transitions @ value
            value = backup.max(axis=1)
        return backup.argmax(axis=1)
    return rng.dirichlet(np.full(model.num_actions, 0.7), size=model.num_states)


def model_and_simulator(case: Case, sharing: Sharing | None = None) -> tuple[jm.JointMDP, GymnasiumSimulator]:
    env = gymnasium.make(case.environment, **case.settings)
    simulator = GymnasiumSimulator(env, discount=0.95, sharing=sharing or case.sharing)
    names = simulator.action_names
    return jm.from_gymnasium(env, 0.95, sharing=case.sharing, action_names=names), simulator


EXACT: list[tuple[Case, jm.results.Gap]] = []  # of the cases so far: a Taxi's takes longer than its pairs


def distances(case: Case, sharing: Sharing | None = None, pairs: int | None = None) -> tuple[float, float]:
    """How many standard errors the simulated mean and variance are off the exact ones."""
    model, simulator = model_and_simulator(case, sharing)
    policy = policy_of(case.policy, model)
    gap = next((gap for known, gap in EXACT if known == case._replace(pairs=known.pairs)), None)
    if gap is None:
        gap = jm.evaluate(model, policy, horizon=case.horizon, order=4).gap(case.state, case.action, case.other)
        EXACT.append((case, gap))
    count = pairs or case.pairs
    sample = simulate(
        simulator,
        policy,
        simulator.at(case.state),
        [case.action, case.other],
        num_samples=count,
        horizon=case.horizon,
        seed=11,
        gaps_only=True,
    ).gap(case.action, case.other)
    assert gap.variance > 0.001, "a gap without spread tests nothing"
    m1, m2, m3, m4 = (gap.moment(k) for k in (1, 2, 3, 4))
    fourth = m4 - 4 * m3 * m1 + 6 * m2 * m1**2 - 3 * m1**4
    mean_error = math.sqrt(gap.variance / count)
    # Var(s²) = (μ₄ − σ⁴ (n−3)/(n−1)) / n
    variance_error = math.sqrt((fourth - gap.variance**2 * (count - 3) / (count - 1)) / count)
    return (sample.mean - gap.mean) / mean_error, (sample.variance - gap.variance) / variance_error


# As many pairs as tell "none" apart, both variances K standard errors wide by the exact moments, if 2,500 do; or 1,000.
# CLIFF and RAIN have about what tells "time" and "state" apart, and RAIN more: its gaps are rare (kurtosis 63).
LAKE = Case("FrozenLake-v1", {}, 14, "left", "down", "stochastic", "time", 30, 1500)
CLIFF = Case("CliffWalkingSlippery-v1", {}, 13, "up", "left", "fixed", "time", 25, 2500)
RAIN = Case("Taxi-v4", {"is_rainy": True}, 348, "south", "north", "fixed", "time", 20, 2500)
CASES = [
    LAKE,
    LAKE._replace(sharing="state", pairs=1600),
    LAKE._replace(policy="greedy", state=10, action="down", other="left", sharing="state", pairs=1000),
    LAKE._replace(policy="greedy", state=10, action="down", other="left", pairs=2500),
    Case("FrozenLake8x8-v1", {}, 62, "left", "down", "stochastic", "time", 60, 1000),
    Case("FrozenLake8x8-v1", {}, 53, "right", "left", "greedy", "state", 60, 1000),
    Case("FrozenLake8x8-v1", {}, 53, "right", "left", "greedy", "time", 60, 1000),
    CLIFF,
    CLIFF._replace(sharing="state", pairs=1400),
    CLIFF._replace(policy="stochastic", state=31, pairs=1000),
    CLIFF._replace(policy="stochastic", state=31, sharing="state", pairs=1000),
    Case("Taxi-v4", {}, 96, "south", "west", "stochastic", "time", 10, 1000),
    Case("Taxi-v4", {}, 96, "south", "west", "stochastic", "state", 10, 1000),
    RAIN,
    RAIN._replace(sharing="state", pairs=1200),
    RAIN._replace(policy="stochastic", horizon=8, pairs=1000),
]


def name_of(case: Case) -> str:
    rain = "-rainy" if case.settings else ""
    return f"{case.environment}{rain}-{case.policy}-{case.sharing}"


@pytest.mark.slow
@pytest.mark.parametrize("case", slow_or_long([*CASES[::2], *CASES[1::2]], 2), ids=name_of)
def test_live_pairs_agree_with_the_exact_table(case: Case) -> None:
    mean, variance = distances(case._replace(pairs=case.pairs // 2))
    assert abs(mean) < K
    assert abs(variance) < K


@pytest.mark.slow
def test_another_sharing_is_told_apart() -> None:
    """The comparison has teeth: pairs with separate luck are far from the variance under shared luck."""
    mean, variance = distances(LAKE, sharing="none")
    assert abs(mean) < 2 * K, "the mean is the same under every sharing, and its error at most twice as large"
    assert variance > K


@pytest.mark.slow
@pytest.mark.parametrize("case", slow_or_long([CLIFF, RAIN._replace(pairs=1200)], 1), ids=name_of)
def test_sharing_in_time_and_in_the_same_state_are_told_apart(case: Case) -> None:
    _, variance = distances(case, sharing="state")
    assert variance > K


def test_one_step_of_the_lake_is_enumerated_by_its_slips() -> None:
    """Over one step the live environment gives exactly the three slips of the table, each to all actions at once."""
    _, simulator = model_and_simulator(LAKE)
    table = simulator.env.unwrapped.P  # type: ignore[attr-defined]
    expected = {tuple(table[9][a][slip][1] for a in range(4)) for slip in range(3)}
    rows = simulator.sample(simulator.at(9), range(4), 200).states
    # A slip that never came has probability (2/3)²⁰⁰ < 10⁻³⁵.
    assert {tuple(simulator.observe(state) for state in row) for row in rows} == expected
