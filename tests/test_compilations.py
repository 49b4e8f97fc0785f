"""Compilation is what eats time on small models: new numbers in the same shapes must not compile anything."""

import numpy as np
import oracle
import pytest
from zoo import STATE_AND_SLOW, build

import jointmdp as jm

pytestmark = pytest.mark.optimised


def work(seed: int, sharing: str) -> None:
    case = oracle.random_model(np.random.default_rng(seed), 4, 3, 3, discount=0.5 + seed / 100, sharing=sharing)
    case = case._replace(policy=np.full((4, 3), 1 / 3))
    model = build(case)
    solution = jm.evaluate(model, case.policy)
    solution.gap(0, 0, 1)
    solution.covariance_between(0, 1, 2, 0)
    jm.evaluate(model, case.policy, jm.Iterate(tolerance=None, max_steps=3))
    jm.evaluate(model, case.policy, horizon=3)
    jm.simulate(model, case.policy, 0, [0, 1], num_samples=100, seed=seed, gaps_only=True).gap(0, 1)


@pytest.mark.parametrize("sharing", STATE_AND_SLOW)
def test_new_numbers_compile_nothing(sharing: str, compilations: list[str]) -> None:
    work(0, sharing)
    first = len(compilations)
    assert first > 0  # the listener hears
    for seed in range(1, 5):
        work(seed, sharing)
    assert len(compilations) == first
