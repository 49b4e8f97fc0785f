"""Runs that are killed and taken up again."""

import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from zoo import daily

import jointmdp as jm
from jointmdp.ground import archives
from jointmdp.learning.incremental.learners import TableLearner
from jointmdp.learning.learn import learn

pytestmark = pytest.mark.optimised

# -- checkpoints -------------------------------------------------------------------------------------------------

CHOICES = daily(["pairs", "sweep", "uniform", "trajectory"])


def bits(state: object) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)]


@pytest.mark.parametrize("choice", CHOICES)
def test_a_run_taken_up_again_is_the_same_run(choice: str, tmp_path: Path) -> None:
    """Stopped after any number of steps, with another limit each time: every bit of the state agrees."""
    model, policy = jm.envs.coupled_reward_chain(3)
    options = jm.Incremental(coordinates=choice, batch=4, replicas=4, seed=3, checkpoint=tmp_path / "run")
    for steps in (1, 17, 40, 60):
        part = learn(model, policy, options, steps=steps)
        assert part.steps == steps
    resumed, log = TableLearner(model, policy, options).resume()
    assert [row["step"] for row in log][-1] == 60
    whole = TableLearner(model, policy, replace(options, checkpoint=None))
    assert bits(whole.advance(whole.init(), 60)) == bits(resumed)
    again = learn(model, policy, options, steps=50)  # enough was done before
    assert again.steps == 60


@pytest.mark.slow
def test_a_joint_run_is_taken_up_again(tmp_path: Path) -> None:
    model, policy = jm.envs.coupled_reward_chain(3)
    options = jm.Incremental(order=3, replicas=2, joint=True)
    saved = replace(options, checkpoint=tmp_path / "run")
    learn(model, policy, saved, steps=11)
    found = learn(model, policy, saved, steps=30)
    np.testing.assert_array_equal(found[3], learn(model, policy, options, steps=30)[3])
    with pytest.raises(jm.ModelError, match=r"not the same kind \('joint' there, 'pairs' here\)"):
        learn(model, policy, replace(saved, joint=False), steps=30)


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    model, policy = jm.envs.coupled_reward_chain(3)
    options = jm.Incremental(replicas=2, checkpoint=tmp_path / "run")
    learn(model, policy, options, steps=2)
    before = (tmp_path / "run").read_bytes()
    for change, words in (
        ({"seed": 1}, r"not the same seed \(0 there, 1 here\)"),
        ({"order": 3}, "not the same order"),
        ({"batch": 9}, "not the same batch"),
        ({"schedule": lambda n: 1 / n}, "not the same schedule"),
        ({"coordinates": "uniform"}, "not the same coordinates"),
        ({"averaging": False}, "not the same averaging"),
        ({"burn_in": 3}, "not the same burn_in"),
    ):
        with pytest.raises(jm.ModelError, match=words):
            learn(model, policy, replace(options, **change), steps=2)
    with pytest.raises(jm.ModelError, match="not the same model, simulator or policy"):
        learn(model.with_discount(0.5), policy, options, steps=2)
    assert (tmp_path / "run").read_bytes() == before


def test_numbers_of_numpy_make_the_same_run(tmp_path: Path) -> None:
    """Options are kept as plain numbers: checkpoints are JSON."""
    model, policy = jm.envs.coupled_reward_chain(3)
    numbers = {"order": np.int64(2), "batch": np.int32(4), "replicas": 4.0, "seed": np.uint8(7), "burn_in": np.int64(3)}
    options = jm.Incremental(**numbers, restart=np.float32(0.25), averaging=np.float32(2), coordinates="pairs")
    plain = jm.Incremental(
        order=2, coordinates="pairs", batch=4, averaging=2.0, burn_in=3, replicas=4, restart=0.25, seed=7
    )
    learn(model, policy, replace(options, checkpoint=tmp_path / "run"), steps=3)
    found = learn(model, policy, replace(plain, checkpoint=tmp_path / "run"), steps=5)
    np.testing.assert_array_equal(found.mean, learn(model, policy, plain, steps=5).mean)


def test_damaged_and_foreign_checkpoints_are_refused(tmp_path: Path) -> None:
    model, policy = jm.envs.coupled_reward_chain(3)
    path = tmp_path / "run"
    options = jm.Incremental(replicas=2, checkpoint=path)
    learn(model, policy, options, steps=2)
    whole = path.read_bytes()
    for spoiled in (whole[:-1], whole[:100] + b"?" + whole[101:], b""):
        path.write_bytes(spoiled)
        with pytest.raises(jm.ModelError, match="cannot load"):
            learn(model, policy, options, steps=2)
    jm.save(model, path)
    with pytest.raises(jm.ModelError, match="not a checkpoint of learning"):
        learn(model, policy, options, steps=2)
    path.write_bytes(whole)
    page, arrays = archives.read(path)
    arrays["part1"] = arrays["part1"][:1]
    archives.write(path, page, arrays)
    with pytest.raises(jm.ModelError, match="part1 does not fit"):
        learn(model, policy, options, steps=2)
    with pytest.raises(jm.ModelError, match="its directory does not exist"):
        learn(model, policy, replace(options, checkpoint=tmp_path / "nowhere" / "run"), steps=1)


# -- kill -9 -----------------------------------------------------------------------------------------------------

# The server imports everything once and forks a worker for each line that it reads: a path and a kind of run. JAX has
# started no threads by then, so forking is safe.
SERVER = """
import os, sys
import jax
import jointmdp as jm
from jointmdp.simulation.simulators.table_simulator import TableSimulator
from jointmdp.learning.learn import learn

def work(path, choice, steps):
    model, policy = jm.envs.coupled_reward_chain(3, discount=0.8)
    source = TableSimulator(model) if choice.startswith("simulator-") else model
    coordinates = choice.removeprefix("simulator-")
    options = jm.Incremental(coordinates=coordinates, replicas=4, batch=2, checkpoint=path, checkpoint_seconds=0.0)
    learn(source, policy, options, steps=steps)

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
@pytest.mark.slow
def test_killed_runs_end_with_the_same_bits(tmp_path: Path) -> None:
    assert killed_runs(tmp_path, [("sweep", 40_000)], kills=2, seed=0) == 2


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked")
@pytest.mark.parametrize("kills", [4, 30])
def test_many_killed_runs_end_with_the_same_bits(kills: int, tmp_path: Path) -> None:
    """Sweeps, lists and simulators, on two servers at once."""
    simulators = [("simulator-pairs", 512), ("simulator-trajectory", 512), ("simulator-uniform", 512)]
    halves = [[("sweep", 60_000), *simulators], [("pairs", 6_000), ("uniform", 6_000)]]
    for name in "01":
        (tmp_path / name).mkdir()
    with ThreadPoolExecutor(2) as pool:
        counts = list(pool.map(lambda i: killed_runs(tmp_path / str(i), halves[i], kills, i), range(2)))
    assert counts == [kills, kills]
