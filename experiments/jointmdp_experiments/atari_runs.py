"""The runs of the Atari experiment: recordings, networks and what they predict, game by game.

Every seed has a recording of its own, and its network learns from those of all other seeds. So the spread between
seeds is that of a jackknife, and holds the error of the queries too. Everything is kept in a folder, and a run that was
killed goes on from there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from jointmdp.ground.arrays import Floats
from jointmdp.learning.learn import Neural, learn
from jointmdp.learning.neural.queries import RecordedQueries, joined, record_queries
from jointmdp.simulation.executors import Executor, as_executor
from jointmdp.simulation.simulators.atari_simulator import AtariSimulator, RewardShocks
from jointmdp_experiments import atari_coins
from jointmdp_experiments.atari_pairs import PairPaths
from jointmdp_experiments.atari_roots import POLICY, Measurement, Root, measured, roots_of

PAPER_GAMES = ("Pong", "BattleZone", "Boxing", "Atlantis")
FURTHER_GAMES = ("Breakout", "SpaceInvaders")  # not looked at before
ROWS = ("parts", "gram", "blind", "drawn coins")


@dataclass(frozen=True)
class AtariPlan:
    """Sizes of the experiment; one set of settings for all games."""

    games: tuple[str, ...] = (*PAPER_GAMES, *FURTHER_GAMES)
    seeds: tuple[int, ...] = (0, 1, 2)
    lists: int = 24_000
    """Recorded for each seed."""
    lane: int = 600
    """Steps of a recorded game: as far as roots lie, and some more."""
    restart: float = 0.03
    roots: int = 100
    pairs: int = 10
    horizon: int = 300
    asked: int = 10_000
    """The seed of the roots and of their pairs; settings were chosen by looking at other ones."""
    rows: tuple[str, ...] = ROWS
    settings: dict[str, Any] = field(
        default_factory=lambda: {
            "steps": 2000,
            "batch": 256,
            "hidden": (128, 128),
            "rank": 8,
            "own_rank": 4,
            "action_rank": 2,
            "learning_rate": 1e-3,
            "target_rate": 0.2,
            "averaging": 0.99,
            "weight_decay": 3.0,
        }
    )

    def tasks(self, game: str) -> list[RunTask]:
        """What is trained for a game: coins drawn in the first of the paper's games alone, to compare."""
        rows = [row for row in self.rows if row != "drawn coins" or game == self.games[0]]
        found = [RunTask(variant, row, seed) for variant in atari_coins.VARIANTS for row in rows for seed in self.seeds]
        return [task for task in found if task.row in ("parts", "blind") or atari_coins.VARIANTS[task.variant].shared]


QUICK = AtariPlan(
    games=("Pong",),
    seeds=(0, 1),
    lists=600,
    lane=100,
    roots=10,
    pairs=4,
    horizon=100,
    settings={"steps": 400, "batch": 64, "hidden": (32,), "rank": 4, "own_rank": 2, "learning_rate": 1e-2},
    rows=("parts", "blind"),
)


class RunTask(NamedTuple):
    """One network."""

    variant: str
    row: str
    seed: int

    @property
    def folder(self) -> str:
        """Where its weights are kept."""
        return f"{self.variant}-{self.row.replace(' ', '-')}-{self.seed}"


class Prediction(NamedTuple):
    """What a network says at the roots."""

    task: RunTask
    means: Floats  # [roots, 2]
    covariances: Floats  # [roots, 2, 2]
    log: tuple[dict[str, Any], ...]


class GameResult(NamedTuple):
    """All of a game."""

    game: str
    paths: list[PairPaths]
    predictions: list[Prediction]


class GameRuns:
    """Trains and asks the networks of a game; the same in every process."""

    def __init__(self, game: str, plan: AtariPlan, folder: str, roots: list[Root]) -> None:
        self.game, self.plan, self.folder, self.roots = game, plan, folder, roots

    def recorded(self, seed: int, executor: Executor | None = None) -> RecordedQueries:
        """Queries without coins, from files if they are there."""
        plan = self.plan
        return record_queries(
            AtariSimulator(self.game),
            POLICY,
            plan.lists,
            restart=plan.restart,
            episode_restart=0.0,
            lane=plan.lane,
            seed=seed,
            executor=executor,
            folder=os.path.join(self.folder, f"queries-{seed}"),
        )

    def learned_from(self, seed: int) -> RecordedQueries:
        """The recordings of all other seeds; its own where there is no other."""
        parts = [self.recorded(other) for other in self.plan.seeds if other != seed] or [self.recorded(seed)]
        pool, lists = joined([(part.observations, part.lists) for part in parts])
        return replace(parts[0], observations=pool, lists=lists)

    def __call__(self, task: RunTask) -> Prediction:
        coins = atari_coins.VARIANTS[task.variant]
        recorded = self.learned_from(task.seed)
        if task.row == "drawn coins":
            queries = atari_coins.with_drawn_coins(recorded, coins, task.seed)
        else:
            queries = atari_coins.with_coins(recorded, coins)
        changes: dict[str, Any] = {"form": "gram"} if task.row == "gram" else {}
        if task.row == "blind":
            # Nothing but constants: larger steps do no harm, and small ones would not get there.
            queries, changes = atari_coins.blind(queries), {"hidden": (), "learning_rate": 1e-2}
        place = os.path.join(self.folder, task.folder)
        settings = {**self.plan.settings, **changes, "queries": queries}
        steps = settings.pop("steps")
        method = Neural(**settings, networks=1, seed=task.seed, checkpoint=place)
        shocks = RewardShocks(coins.game, coins.shared, coins.own, "time" if coins.is_clocked else "state")
        simulator = AtariSimulator(self.game, shocks=shocks, discount=coins.discount)
        trained = learn(simulator, POLICY, method, steps=steps)
        means, covariances = np.zeros((len(self.roots), 2)), np.zeros((len(self.roots), 2, 2))
        for i, (_, state, actions) in enumerate(self.roots):
            for j, a in enumerate(actions):
                means[i, j] = trained.mean_at(state, a).value
                for k, b in enumerate(actions):
                    covariances[i, j, k] = trained.covariance_at(state, a, b).value
        return Prediction(task, means, covariances, trained.log)


def run(plan: AtariPlan, folder: str, announce: Callable[[str], None]) -> Iterator[GameResult]:
    """Game by game: pairs of branches, recordings, then all networks, several at once."""
    with as_executor("processes") as workers:
        for game in plan.games:
            simulator, place = AtariSimulator(game), os.path.join(folder, game)
            announce(f"{game}: pairs of branches at {plan.roots} roots")
            roots = roots_of(simulator, plan.roots, plan.asked)
            paths = measured(Measurement(simulator, plan.pairs, plan.horizon, plan.asked), roots, place, workers)
            runs = GameRuns(game, plan, place, roots)
            for seed in plan.seeds:
                announce(f"{game}: recording {plan.lists:,} queries, seed {seed}")
                runs.recorded(seed, workers)
            tasks = plan.tasks(game)
            announce(f"{game}: training {len(tasks)} networks")
            yield GameResult(game, paths, list(workers.map(runs, tasks)))
