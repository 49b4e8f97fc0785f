"""Runs that are killed and taken up again, and runs on simulators whose states are discovered."""

import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
import pytest
from test_incremental import check_all, exact
from zoo import build, random_model

import jointmdp as jm
from jointmdp import archives
from jointmdp.incremental import LearnedStates, Options, SimulatorLearner, TableLearner, learn
from jointmdp.incremental.atlas import state_key
from jointmdp.incremental.discovery import STRETCH
from jointmdp.incremental.replicas import Replicas
from jointmdp.simulators.functions import FunctionSimulator
from jointmdp.simulators.tables import TableSimulator

# -- checkpoints -------------------------------------------------------------------------------------------------

CHOICES = ["sweep", "pairs", *(pytest.param(choice, marks=pytest.mark.slow) for choice in ("uniform", "trajectory"))]


def bits(state: object) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)]


@pytest.mark.parametrize("choice", CHOICES)
def test_a_run_taken_up_again_is_the_same_run(choice: str, tmp_path: Path) -> None:
    """Stopped after any number of steps, with another limit each time: every bit of the state agrees."""
    model, policy = jm.coupled_reward_chain(3)
    options = {"coordinates": choice, "batch": 4, "replicas": 4, "seed": 3, "checkpoint": tmp_path / "run"}
    for steps in (1, 17, 40, 60):
        part = learn(model, policy, steps=steps, **options)
        assert part.steps == steps
    resumed, log = TableLearner(model, policy, **options).resume()
    assert [row["step"] for row in log][-1] == 60
    whole = TableLearner(model, policy, **{**options, "checkpoint": None})
    assert bits(whole.advance(whole.init(), 60)) == bits(resumed)
    again = learn(model, policy, steps=50, **options)  # enough was done before
    assert again.steps == 60


@pytest.mark.slow
def test_a_joint_run_is_taken_up_again(tmp_path: Path) -> None:
    model, policy = jm.coupled_reward_chain(3)
    options = {"collection": "joint", "order": 3, "replicas": 2}
    learn(model, policy, steps=11, checkpoint=tmp_path / "run", **options)
    found = learn(model, policy, steps=30, checkpoint=tmp_path / "run", **options)
    np.testing.assert_array_equal(found[3], learn(model, policy, steps=30, **options)[3])


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    model, policy = jm.coupled_reward_chain(3)
    options = {"steps": 2, "replicas": 2, "checkpoint": tmp_path / "run"}
    learn(model, policy, **options)
    before = (tmp_path / "run").read_bytes()
    for change, words in (
        ({"seed": 1}, r"seed differs \(0 there, 1 here\)"),
        ({"order": 3}, "order differs"),
        ({"batch": 9}, "batch differs"),
        ({"schedule": lambda n: 1 / n}, "schedule differs"),
        ({"coordinates": "uniform"}, "coordinates differs"),
        ({"averaging": False}, "averaging differs"),
        ({"burn_in": 3}, "burn_in differs"),
    ):
        with pytest.raises(jm.ModelError, match=words):
            learn(model, policy, **{**options, **change})
    with pytest.raises(jm.ModelError, match="model or policy differs"):
        learn(model.with_discount(0.5), policy, **options)
    assert (tmp_path / "run").read_bytes() == before


def test_damaged_and_foreign_checkpoints_are_refused(tmp_path: Path) -> None:
    model, policy = jm.coupled_reward_chain(3)
    path = tmp_path / "run"
    options = {"steps": 2, "replicas": 2, "checkpoint": path}
    learn(model, policy, **options)
    whole = path.read_bytes()
    for spoiled in (whole[:-1], whole[:100] + b"?" + whole[101:], b""):
        path.write_bytes(spoiled)
        with pytest.raises(jm.ModelError, match="cannot load"):
            learn(model, policy, **options)
    jm.save(model, path)
    with pytest.raises(jm.ModelError, match="not a checkpoint of learning"):
        learn(model, policy, **options)
    path.write_bytes(whole)
    page, arrays = archives.read(path)
    arrays["part1"] = arrays["part1"][:1]
    archives.write(path, page, arrays)
    with pytest.raises(jm.ModelError, match="part1 does not fit"):
        learn(model, policy, **options)
    with pytest.raises(jm.ModelError, match="its directory does not exist"):
        learn(model, policy, steps=1, replicas=2, checkpoint=tmp_path / "nowhere" / "run")


# -- kill -9 -----------------------------------------------------------------------------------------------------

# The server imports everything once and forks a worker for each line that it reads: a path and a kind of run. JAX has
# started no threads by then, so forking is safe.
SERVER = """
import os, sys
import jax
import jointmdp as jm
from jointmdp.simulators.tables import TableSimulator
from jointmdp.incremental import learn

def work(path, choice, steps):
    model, policy = jm.coupled_reward_chain(3, discount=0.8)
    options = {"steps": steps, "replicas": 4, "batch": 2, "checkpoint": path, "checkpoint_seconds": 0.0}
    if choice == "simulator":
        learn(TableSimulator(model), policy, **options)
    else:
        learn(model, policy, coordinates=choice, **options)

for line in sys.stdin:
    path, choice, steps = line.split()
    child = os.fork()
    if child == 0:
        try:
            work(path, choice, int(steps))
        finally:
            os._exit(0 if sys.exc_info()[0] is None else 1)
    print(child, flush=True)
    sys.stdin.readline()  # until then a worker that has ended keeps its number, and nobody else can be killed
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


PATIENCE = 5.0  # seconds for a worker's first write; a run that had ended before writes nothing more


class Server:
    """Workers that can be killed."""

    def __init__(self) -> None:
        environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def run(self, path: Path, choice: str, steps: int, after: float | None) -> int:
        """Let a worker go on with a run, and kill it so many seconds after it first writes; its exit code."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        before = path.stat().st_mtime_ns if path.exists() else 0
        print(path, choice, steps, file=self.process.stdin, flush=True)
        child = int(self.process.stdout.readline())
        if after is not None:
            deadline = time.monotonic() + PATIENCE
            while not (path.exists() and path.stat().st_mtime_ns != before) and time.monotonic() < deadline:
                time.sleep(0.002)
            time.sleep(after)
            os.kill(child, signal.SIGKILL)
        print("wait", file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()


def killed_runs(folder: Path, kinds: list[tuple[str, int]], kills: int, seed: int) -> int:
    """Runs of each kind in turn, killed at random moments until `kills` were; all end with the bits of an unkilled one.

    Returns how many workers were killed in mid-run.
    """
    rng = random.Random(seed)
    server, count, turn = Server(), 0, 0
    try:
        expected = {}
        for choice, steps in kinds:
            assert server.run(folder / choice, choice, steps, None) == 0
            expected[choice] = archives.read(folder / choice)[1]
        while count < kills:
            choice, steps = kinds[turn % len(kinds)]
            path = folder / f"run-{turn}"
            turn += 1
            code = -signal.SIGKILL
            while count < kills and code != 0:
                code = server.run(path, choice, steps, rng.expovariate(1 / 0.05))
                count += code == -signal.SIGKILL
            assert code == 0 or server.run(path, choice, steps, None) == 0
            found = archives.read(path)[1]
            assert list(found) == list(expected[choice])
            assert all(np.array_equal(found[name], expected[choice][name]) for name in found), (choice, turn)
    finally:
        server.close()
    return count


@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked")
def test_killed_runs_end_with_the_same_bits(tmp_path: Path) -> None:
    assert killed_runs(tmp_path, [("sweep", 40_000)], kills=2, seed=0) == 2


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked")
def test_a_hundred_killed_runs_end_with_the_same_bits(tmp_path: Path) -> None:
    """Sweeps, lists and simulators, on two servers at once."""
    halves = [[("sweep", 60_000), ("simulator", 512)], [("pairs", 6_000), ("uniform", 6_000)]]
    for name in "01":
        (tmp_path / name).mkdir()
    with ThreadPoolExecutor(2) as pool:
        counts = list(pool.map(lambda i: killed_runs(tmp_path / str(i), halves[i], 50, i), range(2)))
    assert counts == [50, 50]


# -- simulators --------------------------------------------------------------------------------------------------


def held_values(learned: LearnedStates, model: jm.JointMDP) -> tuple[Replicas, np.ndarray]:
    """Means of all discovered coordinates of a table's simulator, and their numbers in the table."""
    numbers, keys = learned._atlas.coordinates, learned._atlas.states
    simulator = TableSimulator(model)
    where = {keys[state_key(simulator, s)]: s for s in range(model.num_states) if state_key(simulator, s) in keys}
    found = [(numbers[s, a], where[s] * model.num_actions + a) for s, a in numbers]
    places = np.array([place for place, _ in found])
    return learned._mean[places], np.array([x for _, x in found])


@pytest.mark.parametrize("sharing", ["state", "time", pytest.param("none", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_simulator_is_learned_like_its_table(sharing: str) -> None:
    """A random table behind the protocol: means, same-state second moments and gaps within their intervals."""
    case = random_model(np.random.default_rng(12), 3, 3, 2, discount=0.4, sharing=sharing)
    case = case._replace(policy=np.full((3, 2), 0.5))
    model = build(case)
    learned = learn(TableSimulator(model), case.policy, steps=6 * STRETCH, batch=4, replicas=8)
    assert learned.num_states == 3
    mean, second = exact(model, case.policy)
    values, x = held_values(learned, model)
    check_all(values, mean[x])
    solution = jm.evaluate(model, case.policy)
    most = 20.0  # intervals of 8 replicas; Student's t with 7 degrees of freedom is beyond 8.5 of them once in 1e7
    for s in range(3):
        found = learned.second_moment(s, 0, 1)
        assert abs(found.value - second[2 * s, 2 * s + 1]) < most * found.error
        gap, truth = learned.gap(s, 0, 1), solution.gap(s, 0, 1)
        assert abs(gap.mean.value - truth.mean) < most * gap.mean.error
        assert abs(gap.variance.value - truth.variance) < most * gap.variance.error
        assert learned.gap(s, 1, 1).variance == (0.0, 0.0)
        assert gap.variance.error < 0.5 * (truth.variance + 1)


def stall(state: tuple[int, int], action: int | str, rain: bool) -> tuple[float, tuple[int, int], bool]:
    """A market stall for three days, in town (0) or on the coast (1); moving costs 1."""
    (day, place), moves = state, int(action in (1, "move"))
    earned = (-1.0 if rain else 3.0 + place) if place else (0.0 if rain else 3.0)
    return earned - moves, (day + 1, place ^ moves), day == 2


def test_states_are_discovered_and_episodes_end() -> None:
    """Known answer: three days, one coin a day, and what is over pays nothing."""
    simulator = FunctionSimulator(
        stall,
        lambda rng: rng.random() < 0.4,
        start=(0, 0),
        actions=["stay", "move"],
        discount=0.9,
        reward_bounds=(-2, 4),
    )
    learned = learn(simulator, "stay", steps=4 * STRETCH, batch=4)
    assert learned.num_states == 5  # two places on the second and third day, and one on the first
    start = simulator.at((0, 0))
    town, coast = 0.6 * 3.0, 0.6 * 4.0 - 0.4
    stay = town * (1 + 0.9 + 0.81)
    move = town - 1 + coast * (0.9 + 0.81)
    for action, truth in (("stay", stay), ("move", move)):
        found = learned.mean(start, action)
        assert abs(found.value - truth) < 8.5 * found.error
        assert found.error < 0.5
    # One coin for both: the gap of a day is 1 in the sun and −1 in the rain.
    gap = learned.gap(start, "move", "stay")
    assert abs(gap.variance.value - (0.81 + 0.81**2) * 4 * 0.24) < 8.5 * gap.variance.error
    assert {row.kind for row in learned.visits} == {"mean", "diagonal", "same state", "distinct states"}
    assert "5 states discovered" in repr(learned)
    with pytest.raises(jm.ModelError, match="has not been visited"):
        learned.mean(simulator.at((7, 7)), "stay")
    with pytest.raises(jm.ModelError, match="has not been visited"):
        learned.mean(simulator.at((2, 1)), "move")  # the policy stays from the second day on


def test_steps_of_a_simulator_can_be_taken_by_hand_and_are_saved(tmp_path: Path) -> None:
    model, policy = jm.coupled_reward_chain(4, discount=0.7)
    options = {"batch": 2, "replicas": 2}
    whole = SimulatorLearner(TableSimulator(model), policy, Options(**options))
    state = whole.advance(whole.init(), 1)
    assert int(state.step) == STRETCH
    by_hand = SimulatorLearner(TableSimulator(model), policy, Options(**options))
    other = by_hand.init()
    for n in range(STRETCH):
        other, info = by_hand.step(other, by_hand.draw(other))
        assert info.step == n + 1
        assert info.updated >= 2 * 2
    assert bits(state) == bits(other)
    for steps in (1, STRETCH + 1, 3 * STRETCH):
        learn(TableSimulator(model), policy, steps=steps, checkpoint=tmp_path / "run", **options)
    found = learn(TableSimulator(model), policy, steps=3 * STRETCH, checkpoint=tmp_path / "run", **options)
    straight = learn(TableSimulator(model), policy, steps=3 * STRETCH, **options)
    np.testing.assert_array_equal(found._pair.values, straight._pair.values)
    np.testing.assert_array_equal(found._mean.doubt, straight._mean.doubt)
    assert found._atlas == straight._atlas


def test_simulators_that_cannot_be_learned_are_refused() -> None:
    def simulator(**changes: object) -> FunctionSimulator:
        settings = {"start": (0, 0), "actions": 2, "discount": 0.9, "reward_bounds": (-2, 4), **changes}
        return FunctionSimulator(stall, lambda rng: rng.random() < 0.4, **settings)

    for changes, options, words in (
        ({"reward_bounds": None}, {}, "give reward_bound="),
        ({"discount": 1.0}, {}, "is 1"),
        ({"actions": None}, {}, "not numbered"),
        ({}, {"coordinates": "sweep"}, "along pairs of branches"),
        ({}, {"collection": "joint"}, "along pairs of branches"),
        ({}, {"start": 3}, "leave start out"),
        ({"reward_bounds": (0, 1)}, {}, "above its bound 1"),
        ({}, {"memory_limit": 1000.0}, "coarser identity"),
    ):
        with pytest.raises(jm.ModelError, match=words):
            learn(simulator(**changes), "uniform", steps=STRETCH, batch=8, replicas=4, **options)
    assert learn(simulator(reward_bounds=None), 0, steps=1, batch=1, replicas=2, reward_bound=4).num_states > 1
