"""The variants of the Atari experiment: coins on the rewards of recorded queries.

Coins do not touch where a state leads, so one recording serves all variants. They need not be drawn either: rewards are
given by their expectations, and with the covariances that the coins of listed coordinates have.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jointmdp.ground.arrays import Floats
from jointmdp.learning.neural.queries import OVER, RecordedQueries


@dataclass(frozen=True)
class Coins:
    """A variant: factors of the game's own reward and of both coins, how they are shared, and how far one looks."""

    game: float
    shared: float
    own: float
    is_clocked: bool
    """Whether branches have the coins in common at the same time, wherever they are."""
    discount: float
    horizon: int


VARIANTS = {
    "A": Coins(1.0, 1.0, 0.1, False, 0.95, 100),
    "B": Coins(0.1, 1.0, 0.1, True, 0.95, 100),
    "C": Coins(1.0, 0.0, 0.0, False, 0.99, 300),
    "D": Coins(1.0, 0.0, 0.0, False, 0.95, 100),
}
WORDS = {
    "A": "A, the paper's rule: coins shared in the same state",
    "B": "B, coins shared at the same time, wherever branches are",
    "C": "C, the emulator alone",
    "D": "D, the emulator alone with the discount of A and B: its part of their gaps",
}


def with_coins(queries: RecordedQueries, coins: Coins) -> RecordedQueries:
    """Queries that were recorded without coins, with those of a variant."""
    lists = queries.lists
    same = coins.is_clocked | (lists.states[:, :, None] == lists.states[:, None, :])
    action = lists.actions[:, :, None] == lists.actions[:, None, :]
    alive = lists.actions != OVER
    covariances = np.where(alive[:, :, None] & alive[:, None, :] & same, coins.shared**2 + coins.own**2 * action, 0.0)
    return queries.with_rewards(coins.game * lists.rewards, covariances, discount=coins.discount)


def with_drawn_coins(queries: RecordedQueries, coins: Coins, seed: int) -> RecordedQueries:
    """The same with coins that are drawn, as a simulator does."""
    rng, lists, count = np.random.default_rng(seed), queries.lists, len(queries)
    places = np.arange(lists.actions.shape[1])
    # A coordinate has the coins of its state and action; those of the clock, of its action alone.
    first = np.zeros_like(lists.states) if coins.is_clocked else lists.states
    shared = _tossed(rng, (count, 2, len(places)))
    own = _tossed(rng, (count, 2, len(places), len(queries.action_names)))
    row, draw = np.arange(count)[:, None, None], np.arange(2)[None, :, None]
    state, action = first[:, None, :], np.maximum(lists.actions, 0)[:, None, :]
    tossed = coins.shared * shared[row, draw, state] + coins.own * own[row, draw, state, action]
    alive = (lists.actions != OVER)[:, None, :]
    return queries.with_rewards(coins.game * lists.rewards + np.where(alive, tossed, 0.0), discount=coins.discount)


def blind(queries: RecordedQueries) -> RecordedQueries:
    """The same with nothing to be seen: what a network learns from them is constant."""
    lists = queries.lists
    none = lists._replace(observed=np.zeros_like(lists.observed), next_observed=np.zeros_like(lists.next_observed))
    told = (queries.simulator, queries.discount, queries.sharing, queries.action_names)
    return RecordedQueries(*told, np.zeros((1, *queries.observations.shape[1:])), none)


def _tossed(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return np.where(rng.random(shape) < 0.5, -1.0, 1.0)
