"""Random models in a handful of shapes, so that compilation does not eat the tests, and helpers around them."""

from collections.abc import Iterator

import numpy as np
from oracle import RandomModel, random_model

from jointmdp.checks import Sharing
from jointmdp.model import JointMDP

SHARINGS: tuple[Sharing, ...] = ("state", "time", "none")
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
