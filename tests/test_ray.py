"""Executors on Ray: a cluster of two nodes on this machine; workers and nodes that are killed change no bit."""

import contextlib
import itertools
import os
import signal
import sys
import time
import warnings

import cloudpickle
import numpy as np
import pytest

import jointmdp as jm
from jointmdp.learning.learn import learn
from jointmdp.simulation.executors import RayExecutor, Serial, WorkerError, as_executor
from jointmdp.simulation.montecarlo.alternatives import SimulationSettings, first_actions
from jointmdp.simulation.montecarlo.samples import sample
from jointmdp.simulation.simulators.function_simulator import FunctionSimulator

pytestmark = [pytest.mark.slow, pytest.mark.optimised]
ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'jointmdp[ray]'")

cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def cluster():
    """Two nodes with one core each; the cluster's head is on the first."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        with quiet_forks():
            found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
            found.add_node(num_cpus=1)
        found.wait_for_nodes()
        yield found
        ray.shutdown()
        found.shutdown()


@contextlib.contextmanager
def quiet_forks():
    """JAX warns of every fork; those of Ray's cluster are followed by an exec at once."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
        yield


def stall():
    """Closures, as users write them."""
    drift = 0.3

    def step(x, action, noise):
        after = round(x + action - drift + noise, 2)
        return noise * after, after, after > 6

    simulator = FunctionSimulator(step, lambda rng: rng.normal(), start=0.0, actions=2, discount=0.9)
    how = SimulationSettings(seed=4, horizon=12)
    return first_actions(simulator, lambda x: [0.4, 0.6] if x < 1 else [0.9, 0.1], None, [0, 1], how)


def same_bits(found, wanted) -> bool:
    pairs = zip(found, wanted, strict=True)
    return all(one is other is None or one.tobytes() == other.tobytes() for one, other in pairs)


def slow_square(i):
    """Which node did it, and a number that takes a while."""
    time.sleep(0.1)
    return ray.get_runtime_context().get_node_id(), float(np.random.default_rng(i).normal())


def test_two_nodes_give_the_bits_of_one_process(cluster):
    with RayExecutor(cluster.address) as executor:
        wanted = stall().sampler(5, 200, "state")
        assert same_bits(sample(stall().sampler, 5, 200, "state", executor), wanted)
        model, policy = jm.envs.inventory(5, 3, 2.0, discount=0.7)
        found = first_actions(model, policy, 2, [0, 1, 3], SimulationSettings(seed=8, horizon=10))
        assert same_bits(sample(found.sampler, 0, 2500, "time", executor), found.sampler(0, 2500, "time"))
        assert len({node for node, _ in executor.map(slow_square, range(8))}) == 2
        assert set(executor.map(lambda _: (os.environ["OMP_NUM_THREADS"], os.environ["NPROC"]), range(3))) == {
            ("1", "1")
        }


def test_a_killed_worker_changes_nothing(cluster, tmp_path):
    sampler = stall().sampler

    def deadly(first, count, sharing):
        if first <= 60 < first + count and not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return sampler(first, count, sharing)

    with RayExecutor(cluster.address) as executor:
        assert same_bits(sample(deadly, 0, 200, "time", executor), sampler(0, 200, "time"))
    assert (tmp_path / "died").exists()


def test_learning_from_a_simulator_survives_a_killed_worker(cluster, tmp_path):
    def stall(place, move, rain, is_deadly):
        if is_deadly and place == "coast" and rain < 0.02 and not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        there = {"town": "coast", "coast": "town"}[place]
        return (4.0 if place == "coast" else 3.0) * (rain > 0.4) - move, there if move else place

    def learned(executor, is_deadly):
        simulator = FunctionSimulator(
            lambda place, move, rain: stall(place, move, rain, is_deadly),
            lambda rng: rng.random(),
            start="town",
            actions=2,
            discount=0.5,
            reward_bounds=(-1, 4),
        )
        return learn(
            simulator,
            "uniform",
            jm.Incremental(batch=9, replicas=2, coordinates="uniform"),
            steps=80,
            executor=executor,
        )

    straight = learned(None, False)
    with RayExecutor(cluster.address) as executor:
        found = learned(executor, True)
    assert (tmp_path / "died").exists()
    assert found._moments.mean.values.tobytes() == straight._moments.mean.values.tobytes()
    assert found._moments.pair.values.tobytes() == straight._moments.pair.values.tobytes()


def test_a_killed_node_changes_nothing(cluster):
    with quiet_forks():
        third = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    pid = third.all_processes["raylet"][0].process.pid
    tasks = range(90)
    with RayExecutor(cluster.address) as executor:
        results = executor.map(slow_square, tasks)
        head = list(itertools.islice(results, 15))
        os.kill(pid, signal.SIGKILL)
        found = head + list(results)
    nodes = [node for node, _ in found]
    assert len(set(nodes[:15])) == 3  # all were at work
    assert len(set(nodes[-30:])) == 2  # and one was lost
    assert [value for _, value in found] == [float(np.random.default_rng(i).normal()) for i in tasks]


def test_a_task_that_kills_every_worker_is_named(cluster, tmp_path):
    def deadly(i):
        (tmp_path / str(time.monotonic_ns())).touch()
        os._exit(3)

    with RayExecutor(cluster.address, retries=1) as executor:
        with pytest.raises(WorkerError, match=r"task 0 \('a'\) was lost by Ray, after 1 retries at most"):
            list(executor.map(deadly, ["a"]))
        assert len(list(tmp_path.iterdir())) == 2
        assert list(executor.map(abs, [-1])) == [1]


def test_an_error_reaches_the_caller_with_its_place(cluster, tmp_path):
    def fails(i):
        if i == 3:
            (tmp_path / str(time.monotonic_ns())).touch()
            raise jm.ModelError("no three")
        return i

    with RayExecutor(cluster.address) as executor:
        results = executor.map(fails, range(6))
        assert list(itertools.islice(results, 3)) == [0, 1, 2]
        with pytest.raises(jm.ModelError, match="no three") as caught:
            next(results)
        assert caught.value.__notes__ == ["in task 3 (3)"]
        assert 'raise jm.ModelError("no three")' in str(caught.value.__cause__)
        assert len(list(tmp_path.iterdir())) == 1


def test_whoever_stops_early_wastes_few_and_a_closed_executor_stays_closed(cluster):
    taken = []

    def endless():
        for i in itertools.count():
            taken.append(i)
            yield i

    with RayExecutor(cluster.address) as executor:
        results = executor.map(lambda i: i, endless())
        assert list(itertools.islice(results, 5)) == list(range(5))
        results.close()
        assert len(taken) <= 5 + 2 * 3  # a third node may still be counted
        assert list(executor.map(abs, [-1])) == [1]
        under_way = executor.map(time.sleep, [0.0, 60.0])
        next(under_way)
    with pytest.raises(WorkerError, match="was not finished: its executor was closed"):
        next(under_way)
    with pytest.raises(WorkerError, match="closed"):
        executor.map(abs, [-1])
    assert not ray.is_initialized()


def test_connections_of_others_are_used_and_left(cluster):
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    try:
        with as_executor("ray") as executor:
            assert list(executor.map(abs, [-1, -2])) == [1, 2]
        assert ray.is_initialized()
        with pytest.raises(jm.ModelError, match="already connected"):
            RayExecutor("192.0.2.1:6379")
    finally:
        ray.shutdown()


def test_a_cluster_of_its_own_says_nothing_and_is_ended(monkeypatch, capfd):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    told = []
    with as_executor("ray") as executor:
        assert list(executor.map(abs, range(-5, 0), progress=told.append)) == list(Serial().map(abs, range(-5, 0)))
        pids = set(executor.map(lambda _: print("loud") or os.getpid(), range(4)))
    assert told == sorted(told)
    assert told[-1] == 5
    assert not ray.is_initialized()
    end = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < end:
        time.sleep(0.1)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:1", "no.such.host.invalid:6379"])
def test_a_cluster_that_is_not_there_is_told_at_once(address):
    begun = time.monotonic()
    with pytest.raises(jm.ModelError, match=f"no Ray cluster at {address}"):
        RayExecutor(address)
    assert time.monotonic() - begun < 60


def test_tasks_must_take_something():
    with pytest.raises(jm.ModelError, match="cpus is 0"):
        RayExecutor(cpus=0)
