"""Models for tests of projections, and the way from one to its projected solution."""

from __future__ import annotations

from typing import Any

import numpy as np
from oracle_projected import PairChain, stands_for
from zoo import build, cases

import jointmdp as jm
from jointmdp.ground.checks import Sharing
from jointmdp.learning.projected.projecting import ProjectedSolution
from jointmdp.model.policies import as_policy

CONSTRAINTS = ("covariance", "second_moment", None)
PART_CHOICES = (("all",), ("all", "same_state", "same_action"), ("all", "same_state"), ("same_state", "same_action"))
SHAPES = ((2, 2, 2), (3, 3, 3), (4, 3, 2))


def chains(seed: int, count: int, **options: Any) -> list[PairChain]:
    """Random models with zero chances, merging branches, absorbing states, unavailable actions; and their policies."""
    found = []
    for case in cases(seed, count, SHAPES, **options):
        model = build(case)
        found.append(PairChain(model, as_policy(model, case.policy)))
    return [chain for chain in found if chain.size]


def projected(chain: PairChain, features: Any, *arguments: Any, **options: Any) -> ProjectedSolution:
    solution = jm.evaluate(chain.model, chain.policy, jm.Projected(features, *arguments, **options))
    assert isinstance(solution, ProjectedSolution)
    return solution


def pair_values(chain: PairChain, solution: ProjectedSolution, phi: np.ndarray, is_centred: bool) -> np.ndarray:
    """Covariances or second moments at all pairs, ``[n²]``, from the matrices of the answer."""
    m = phi @ solution.theta
    found = sum(stands_for(chain, part) * (phi @ matrix @ phi.T) for part, matrix in solution.parts.items())
    return np.ravel(found if is_centred else found + np.outer(m, m))


def on_coordinates(chain: PairChain, rows: np.ndarray) -> np.ndarray:
    """Features ``[n, K]`` of the oracle's coordinates as a table, zero elsewhere."""
    table = np.zeros((*chain.model.available.shape, rows.shape[1]))
    s, a = np.array(chain.xs).T
    table[s, a] = rows
    return table


def ring(sharing: Sharing, steps: tuple[int, int], p: Any = (0.5, 0.5)) -> jm.JointMDP:
    """Six states in a ring; the scenario says how far both actions go, the second in the other direction."""
    s = np.arange(6)[:, None]
    successors = np.stack([(s + steps) % 6, (s - np.array(steps)) % 6], axis=2)
    rewards = np.arange(24.0).reshape(6, 2, 2) % 5 - 2
    return jm.JointMDP(np.tile(p, (6, 1)), rewards, successors, 0.9, sharing)


def stalls() -> tuple[jm.JointMDP, list[list[float]]]:
    model = jm.JointMDP(
        [[0.6, 0.4]] * 4,
        [[[1, -2], [0, 3]], [[2, 1], [-1, 1]], [[1, 9], [1, 9]], [[0, 0], [0, 0]]],
        [[[1, 1], [0, 2]], [[2, 0], [1, 3]], [[0, 0], [3, 0]], [[3, 3], [3, 3]]],
        0.9,
        available=[[True, True], [True, True], [True, False], [True, True]],
        state_names=["a", "b", "c", "goal"],
        action_names=["left", "right"],
    )
    return model, [[0.5, 0.5], [0.2, 0.8], [1.0, 0.0], [0.5, 0.5]]
