"""Random models in a handful of shapes, so that compilation does not eat the tests, and helpers around them."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from oracle import RandomModel, random_model

from jointmdp.ground.checks import Sharing
from jointmdp.model.joint_mdp import JointMDP

SHARINGS: tuple[Sharing, ...] = ("state", "time", "none")


def slow_or_long(values: Sequence[Any], count: int) -> list[Any]:
    """Parameters of a slow test of which all but the first few are long ones."""
    return [*values[:count], *(pytest.param(value, marks=pytest.mark.long) for value in values[count:])]


def daily(values: Sequence[Any], count: int = 1) -> list[Any]:
    """Parameters of which only the first few are everyday tests."""
    return [*values[:count], *(pytest.param(value, marks=pytest.mark.slow) for value in values[count:])]


def daily_rows(rows: Sequence[tuple[Any, ...]], count: int = 1) -> list[Any]:
    """The same for tests of several parameters, which stand in a row."""
    return [*rows[:count], *(pytest.param(*row, marks=pytest.mark.slow) for row in rows[count:])]


def repeated(count: int) -> list[Any]:
    """Seeds: one for every day, one for the slow tests, the others for the long ones."""
    return daily(range(2)) + [pytest.param(seed, marks=pytest.mark.long) for seed in range(2, count)]


STATE_AND_SLOW = daily(SHARINGS)
SHAPES = ((2, 2, 2), (3, 3, 3), (6, 4, 4))  # S, W, A
DISCOUNTS = (0.1, 0.5, 0.9, 0.99)


def build(case: RandomModel) -> JointMDP:
    """The library's model of a random case."""
    return JointMDP(
        case.probabilities, case.rewards, case.successors, case.discount, case.sharing, available=case.available
    )


def cases(
    seed: int,
    count: int,
    shapes: tuple[tuple[int, int, int], ...] = SHAPES,
    discounts: tuple[float, ...] = DISCOUNTS,
    sharings: tuple[Sharing, ...] = SHARINGS,
) -> Iterator[RandomModel]:
    """`count` asymmetric random models: policies of both kinds, absorbing states, unavailable actions, float32."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        case = random_model(
            rng,
            *shapes[i % len(shapes)],
            discount=float(rng.choice(discounts)),
            sharing=sharings[(i // len(shapes)) % len(sharings)],
            deterministic=bool(rng.integers(2)),
            absorbing=bool(rng.integers(2)),
            unavailable=bool(rng.integers(2)),
            dtype=np.float32 if rng.integers(3) == 0 else np.float64,
        )
        everything = np.ones(case.policy.shape, dtype=bool)
        yield case._replace(available=everything if case.available is None else case.available)


def padded(case: RandomModel, S: int, W: int, A: int) -> RandomModel:
    """The same case in another shape: states that nothing leads to, scenarios that never come, actions not at hand.

    Scenarios and actions that are added pay, so that whoever reads them gets another answer.
    """
    s, w, a = case.rewards.shape
    more = ((0, S - s), (0, W - w), (0, A - a))
    chances = np.pad(case.probabilities, (more[0], (0, 0)), mode="edge")  # one row for all under "time"
    available = np.pad(np.ones((s, a), dtype=bool) if case.available is None else case.available, more[::2])
    policy = np.pad(case.policy, more[::2])
    available[s:, 0], policy[s:, 0] = True, 1
    return case._replace(
        probabilities=np.pad(chances, ((0, 0), more[1])),
        rewards=np.pad(
            np.pad(case.rewards, (more[0], (0, 0), (0, 0)), mode="edge"), ((0, 0), *more[1:]), constant_values=7
        ),
        successors=np.pad(case.successors, more),
        policy=policy,
        available=available,
    )
