"""Executors: whoever does a task and whatever befalls the workers, the results are the same bits."""

import contextlib
import functools
import itertools
import operator
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import warnings
from pathlib import Path

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from zoo import SHARINGS, slow_or_long

import jointmdp as jm
from jointmdp.learning.walks import Walks
from jointmdp.simulation.executors import Executor, Processes, Serial, WorkerError, as_executor, opened, worker
from jointmdp.simulation.montecarlo.alternatives import SimulationSettings, first_actions
from jointmdp.simulation.montecarlo.compiled_branches import BLOCK, BlockSampler
from jointmdp.simulation.montecarlo.samples import Portion, Replications, portions_of, sample, samples
from jointmdp.simulation.montecarlo.simulator_branches import QuerySampler
from jointmdp.simulation.simulators.function_simulator import FunctionSimulator
from jointmdp.simulation.simulators.table_simulator import TableSimulator

pytestmark = pytest.mark.optimised

# Workers then need not import this file, and JAX with it.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def pool():
    """Two workers for all tests that leave them as they are."""
    with Processes(2) as executor:
        yield executor


def stall():
    """A simulator and a policy made of closures, as users write them."""
    drift = 0.3

    def step(x, action, noise):
        after = round(x + action - drift + noise["weather"], 2)
        return noise["price"] * after, after, after > 6

    noise = {"weather": lambda rng: rng.normal(), "price": lambda rng: rng.uniform(1, 2)}
    simulator = FunctionSimulator(step, noise, start=lambda rng: rng.normal(), actions=2, discount=0.9)
    how = SimulationSettings(seed=4, horizon=12)
    return first_actions(simulator, lambda x: [0.4, 0.6] if x < 1 else [0.9, 0.1], None, [0, 1], how)


def table():
    """A table asked one query at a time, as a policy that is a function makes it."""
    model, _ = jm.envs.inventory(5, 3, 2.0, discount=0.7)
    law = jm.envs.uniform_policy(model)
    how = SimulationSettings(seed=8, horizon=10)
    found = first_actions(TableSimulator(model), lambda stock: law[stock], 2, [0, 1, 3], how)
    assert isinstance(found.sampler, QuerySampler)
    return found


def blocks():
    """A table in the compiled engine."""
    model, policy = jm.envs.inventory(5, 3, 2.0, discount=0.7)
    how = SimulationSettings(seed=8, horizon=10)
    found = first_actions(TableSimulator(model), policy, 2, [0, 1, 3], how)
    assert isinstance(found.sampler, BlockSampler)
    return found


def replications_of(returns) -> Replications:
    """What a sampler gives, of which only the returns matter."""
    none, apart = np.zeros(len(returns), int), np.broadcast_to(np.arange(returns.shape[1]), returns.shape)
    return Replications(returns, returns, np.zeros_like(returns), none, apart, np.zeros(len(returns)))


def assert_same_bits(found: Replications, wanted: Replications) -> None:
    for name, one, other in zip(found._fields, found, wanted, strict=True):
        assert (one is None) == (other is None), name
        if one is None or other is None:  # states that are not numbered
            continue
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()


def is_running(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def assert_gone(pids, patience=10.0) -> None:
    end = time.monotonic() + patience
    while any(map(is_running, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    assert [pid for pid in pids if is_running(pid)] == []


def mark(folder: Path) -> int:
    """Leave a file; how many there are with it."""
    (folder / f"{os.getpid()}-{time.monotonic_ns()}").touch()
    return len(os.listdir(folder))


# -- the same bits -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_any_number_of_workers_gives_the_same_bits():
    cases = [(made().sampler, sharing) for made in (stall, table) for sharing in SHARINGS]
    wanted = [sampler(3, 40, sharing) for sampler, sharing in cases]
    for (sampler, sharing), run in zip(cases, wanted, strict=True):
        assert_same_bits(sample(sampler, 3, 40, sharing), run)
    for workers in (1, 2, 4):
        with Processes(workers) as executor:
            for (sampler, sharing), run in zip(cases, wanted, strict=True):
                assert_same_bits(sample(sampler, 3, 40, sharing, executor), run)


def test_workers_that_only_sample_import_little():
    """What takes a second to import is needed where answers are made, not where samples are drawn."""
    functions = (QuerySampler, Walks)
    with Processes(1) as executor:
        ((names, loaded),) = executor.map(lambda _: ([each.__name__ for each in functions], list(sys.modules)), [0])
    assert names == ["QuerySampler", "Walks"]
    assert not {"jax", "scipy.stats", "scipy.special", "scipy.sparse", "matplotlib", "pandas", "xarray"} & set(loaded)


def test_workers_import_jax_where_it_is_used_and_as_it_is_set_here():
    """A fresh worker reads the settings when it imports JAX, another one changes its own."""

    def late(i):
        import jax

        return jax.config.jax_enable_x64, jax.config.jax_numpy_dtype_promotion.value, jax.numpy.ones(1).dtype.name

    with Processes(1) as executor:
        assert list(executor.map(lambda _: "jax" in sys.modules, [0])) == [False]
        with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
            under_way = executor.map(late, [0])
        assert list(under_way) == [(True, "strict", "float64")]
        assert list(executor.map(late, [0])) == [(False, "standard", "float32")]


@pytest.mark.slow
def test_the_compiled_engine_gives_the_same_bits_in_workers(pool):
    """Its arrays are float64 while JAX is set to float32, here as in the workers."""
    found = blocks()
    assert jax.config.jax_enable_x64 is False
    assert_same_bits(sample(found.sampler, 1000, 1100, "time", pool), found.sampler(1000, 1100, "time"))


@pytest.mark.slow
def test_any_number_of_workers_gives_the_same_bits_in_the_compiled_engine():
    found = blocks()
    wanted = {sharing: found.sampler(5, 4000, sharing) for sharing in SHARINGS}
    with Processes(3) as executor:  # one and two: see the test of tables whoever asks
        for sharing in SHARINGS:
            assert_same_bits(sample(found.sampler, 5, 4000, sharing, executor), wanted[sharing])


@pytest.mark.parametrize("sharing", slow_or_long(SHARINGS, 1))
@pytest.mark.slow
def test_one_engine_simulates_tables_whoever_asks_and_wherever(pool, sharing):
    """A model and its simulator, here, in one worker and in two: one seed gives the same bits."""
    # Far-sighted enough that pairs are followed until the last has merged, if they ever do.
    model, _ = jm.envs.inventory(5, 3, 2.0, discount=0.95, sharing=sharing)
    given = {"num_samples": 2 * BLOCK + 100, "seed": 5}
    with opened("processes:1") as alone:
        found = [
            jm.simulate(
                source, jm.envs.uniform_policy(model), "stock 1", [0, 3], executor=executor, **given, gaps_only=True
            ).gap(0, 3)
            for source, executor in itertools.product((model, TableSimulator(model)), (None, alone, pool))
        ]
    assert np.ptp(found[0].gaps) > 0
    for other in found[1:]:
        assert other.gaps.tobytes() == found[0].gaps.tobytes()
        assert other.slack.tobytes() == found[0].slack.tobytes()
        assert (other.action, other.other, other.steps) == ("order 0", "order 3", found[0].steps)
        assert other.mean_interval == found[0].mean_interval
    # Pairs that have merged leave nothing out; those that never do all leave out the same.
    bounds = {each.truncation_bound for each in found}
    assert len(bounds) == 1
    assert (bounds == {0.0}) is (sharing != "none")


def test_executors_of_tables_are_checked_like_all_others():
    model, policy = jm.envs.inventory(5, 3, 2.0, discount=0.7)
    for source in (model, TableSimulator(model)):
        for gaps_only in (True, False):
            with pytest.raises(jm.ModelError, match="'threads' is no executor"):
                jm.simulate(source, policy, 1, [0, 3], executor="threads", gaps_only=gaps_only)


@pytest.mark.slow
def test_workers_by_name_give_the_bits_of_this_process():
    model, policy = jm.envs.inventory(5, 3, 2.0, discount=0.7)
    found = [
        jm.simulate(model, policy, 1, [0, 3], num_samples=3 * BLOCK, executor=executor, gaps_only=True)
        .gap(0, 3)
        .gaps.tobytes()
        for executor in (None, "serial", "processes:2")
    ]
    assert len(set(found)) == 1


def test_luck_that_is_not_the_tasks_is_noticed():
    """The guard itself: a sampler with a generator of its own depends on how it is cut."""
    rng = np.random.default_rng(0)

    def sampler(first, count, sharing):
        return replications_of(rng.normal(size=(count, 2)))

    with pytest.raises(AssertionError):
        assert_same_bits(sample(sampler, 0, 300, "time"), sampler(0, 300, "time"))


@pytest.mark.parametrize(
    ("first", "count", "unit"), [(0, 1, 1), (3, 150, 1), (7, 100_000, 1), (7, 200_000, 1), (1000, 5000, 1024)]
)
def test_portions_cover_everything_once_and_are_aligned(first, count, unit):
    cut = list(portions_of(first, count, "time", unit))
    covered = [i for part in cut for i in range(part.first, part.first + part.count)]
    assert covered == list(range(first, first + count))
    assert all(part.first % unit == 0 for part in cut[1:])
    assert len(cut) <= 2 * 128 + 1
    assert max(part.count for part in cut) <= 1024
    # Whoever asks for more, or from elsewhere, is given the same cuts where the size is the same.
    assert [part.first for part in portions_of(first, count + 1, "time", unit)][: len(cut)] == [p.first for p in cut]


def test_a_sampler_of_blocks_is_asked_for_whole_blocks():
    asked = []

    class Blocks:
        portion = 100

        def __call__(self, first, count, sharing):
            asked.append((first, count))
            return replications_of(np.zeros((count, 2)))

    sample(Blocks(), 50, 300, "time")
    assert asked == [(50, 50), (100, 100), (200, 100), (300, 50)]


# -- order, progress, early stops --------------------------------------------------------------------------------


def uneven(i):
    time.sleep(0.05 if i % 3 == 0 else 0.0)
    return i * i


@pytest.mark.parametrize("executor", [Serial(), "pool"], ids=["serial", "processes"])
def test_results_come_in_order_and_progress_is_told_here(executor, request):
    executor = request.getfixturevalue("pool") if executor == "pool" else executor
    told = []
    found = executor.map(uneven, range(12), progress=lambda done: told.append((done, threading.get_ident())))
    assert list(found) == [i * i for i in range(12)]
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert told[-1][0] == 12
    assert {thread for _, thread in told} == {threading.get_ident()}


def test_whoever_stops_early_wastes_few(pool, tmp_path):
    taken = []

    def endless():
        for i in itertools.count():
            taken.append(i)
            yield i

    def leave(i):
        (tmp_path / str(i)).touch()
        time.sleep(1.0 if i >= 10 else 0.0)
        return i

    results = pool.map(leave, endless())
    assert list(itertools.islice(results, 10)) == list(range(10))
    results.close()
    assert len(taken) <= 9 + 2 * pool.workers
    assert list(pool.map(time.sleep, [0.3, 0.3])) == [None, None]  # after whatever was still to be done
    # Each worker may have begun one more; what waited behind it is never done.
    assert len(list(tmp_path.iterdir())) <= 10 + pool.workers


@pytest.mark.slow
def test_samples_come_portion_by_portion(pool):
    # The compiled engine is asked for whole blocks; queries are cut into some 128 portions, by powers of 2.
    for found, size in ((blocks(), BLOCK), (table(), 128)):
        parts = samples(found.sampler, 0, 20_000, "time", pool)
        first = next(parts)
        parts.close()
        assert len(first.returns) == size
        assert_same_bits(first, found.sampler(0, size, "time"))


def test_the_bar_shows_what_all_workers_have_done(pool, monkeypatch):
    shown = []
    monkeypatch.setattr(
        "jointmdp.ground.progress.Meter.update", lambda self, x, text="": shown.append((self.title, x, text))
    )
    sample(table().sampler, 0, 200, "time", pool, title="simulating pairs")
    assert shown[-1] == ("simulating pairs", 1.0, "200 of 200")
    assert [x for _, x, _ in shown] == sorted(x for _, x, _ in shown)


def test_the_function_is_sent_once_to_each_worker(pool, tmp_path):
    class Heavy:
        def __setstate__(self, state):
            mark(tmp_path)

        def __getstate__(self):
            return {"weight": 1}

        def __call__(self, i):
            return i

    heavy = Heavy()
    for _ in range(3):
        assert list(pool.map(heavy, range(20))) == list(range(20))
    assert 1 <= len(list(tmp_path.iterdir())) <= pool.workers


# -- killed workers ----------------------------------------------------------------------------------------------


class Deadly:
    """A sampler that kills its worker the first few times that it comes to replication 60."""

    def __init__(self, sampler, folder, times):
        self.sampler, self.folder, self.times = sampler, folder, times

    def __call__(self, first, count, sharing):
        if first <= 60 < first + count and mark(self.folder) <= self.times:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.sampler(first, count, sharing)


@pytest.mark.slow
def test_a_killed_worker_changes_nothing(tmp_path):
    found = stall()
    with Processes(2) as executor:
        run = sample(Deadly(found.sampler, tmp_path, 2), 0, 90, "time", executor)
        assert len(list(tmp_path.iterdir())) == 3
        assert_same_bits(run, found.sampler(0, 90, "time"))
        # From outside, while both are at work, and while both are idle.
        pids = set(executor.map(lambda _: time.sleep(0.05) or os.getpid(), range(6)))
        results = executor.map(uneven, range(40))
        head = list(itertools.islice(results, 5))
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        assert head + list(results) == [i * i for i in range(40)]
        pids = set(executor.map(lambda _: time.sleep(0.05) or os.getpid(), range(6)))
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        assert_gone(pids)
        assert list(executor.map(uneven, range(4))) == [0, 1, 4, 9]


@pytest.mark.slow
def test_a_task_that_kills_every_worker_is_named(tmp_path):
    with Processes(2, retries=1) as executor:
        with pytest.raises(WorkerError, match=r"replications 60 to 60.* lost its worker 2 times.*killed by SIGKILL"):
            sample(Deadly(stall().sampler, tmp_path, 99), 0, 90, "time", executor)
        assert len(list(tmp_path.iterdir())) == 2
        with pytest.raises(WorkerError, match="ended with exit code 3"):
            list(executor.map(os._exit, [3]))
        assert list(executor.map(abs, [-2])) == [2]


def stop_once(folder, i):
    """Stops its own process in task 2, the first time."""
    if i == 2 and mark(folder) == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    return i, os.getpid()


@pytest.mark.parametrize("is_woken", [False, True])
def test_a_stopped_worker_is_named_and_its_task_done_by_another(is_woken, tmp_path, monkeypatch):
    monkeypatch.setattr("jointmdp.simulation.executors.executor.LOOK", 0.05)
    monkeypatch.setattr("jointmdp.simulation.executors.processes.STOPPED_SAID", 2)
    monkeypatch.setattr("jointmdp.simulation.executors.processes.STOPPED_ENDED", 10**6 if is_woken else 6)
    said = []

    def hear(message, category, *_):
        said.append(str(message))
        if is_woken:
            os.kill(int(str(message).split()[1]), signal.SIGCONT)

    with Processes(2) as executor, warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", hear)
        results, pids = zip(*executor.map(functools.partial(stop_once, tmp_path), range(8)), strict=True)
    assert results == tuple(range(8))
    assert len(said) == 1
    stopped = int(said[0].split()[1])
    assert f"worker {stopped} has been stopped for 2 s (SIGSTOP? a debugger?) in task 2 (2)" in said[0]
    assert (pids[2] == stopped) == is_woken  # woken up, it goes on
    assert_gone([stopped])


def test_a_worker_that_is_stopped_again_and_again_is_given_up(monkeypatch):
    monkeypatch.setattr("jointmdp.simulation.executors.executor.LOOK", 0.05)
    monkeypatch.setattr("jointmdp.simulation.executors.processes.STOPPED_ENDED", 2)
    with Processes(1, retries=1) as executor:
        with pytest.raises(WorkerError, match=r"lost its worker 2 times.*SIGKILL \(it was stopped for 2 s\)"):
            list(executor.map(lambda i: os.kill(os.getpid(), signal.SIGSTOP), range(2)))
        assert list(executor.map(abs, [-2])) == [2]


def crash(address):
    import ctypes

    return ctypes.string_at(address)


def test_a_crash_shows_where():
    with Processes(1, retries=0) as executor, pytest.raises(WorkerError, match=r"SIGSEGV(?s:.*)in crash"):
        list(executor.map(crash, [0]))


# -- errors of the user's function ---------------------------------------------------------------------------------


class Picky(Exception):
    """Goes out and does not come back: its arguments are not what it is made from."""

    def __init__(self, one, other):
        super().__init__(f"{one} and {other}")


def fails(folder, i):
    if i in (3, 5):
        mark(folder)
        time.sleep(0.2 if i == 3 else 0)
        raise jm.ModelError(f"no {i}")
    return i


@pytest.mark.parametrize("kind", ["serial", "processes"])
def test_an_error_reaches_the_caller_with_its_place(kind, pool, tmp_path):
    executor = Serial() if kind == "serial" else pool
    results = executor.map(functools.partial(fails, tmp_path), range(9))
    assert list(itertools.islice(results, 3)) == [0, 1, 2]
    with pytest.raises(jm.ModelError, match="no 3") as caught:
        next(results)
    shown = "".join(traceback.format_exception(caught.value))
    assert "in task 3 (3)" in shown
    assert 'raise jm.ModelError(f"no {i}")' in shown
    list(pool.map(abs, range(4)))  # whatever was still under way is done now
    assert len(list(tmp_path.iterdir())) <= 2  # once each: an error is not tried again
    assert list(executor.map(abs, [-1])) == [1]


@pytest.mark.parametrize(
    ("function", "kind", "words"),
    [
        (lambda i: operator.truediv(1, i), ZeroDivisionError, "division"),
        (lambda i: (_ for _ in ()).throw(Picky(1, 2)), RuntimeError, "Picky: 1 and 2"),
        (lambda i: sys.exit("enough"), SystemExit, "enough"),
        (lambda i: threading.Lock(), jm.ModelError, "the result cannot be sent"),
    ],
)
def test_every_kind_of_error_arrives(pool, function, kind, words):
    with pytest.raises(kind, match=words) as caught:
        list(pool.map(function, [0]))
    assert "task 0 (0)" in "".join(caught.value.__notes__)


def test_what_cannot_be_sent_is_named(pool):
    lock = threading.Lock()

    def locked(i):
        return lock

    with pytest.raises(jm.ModelError, match=r"the function locked cannot be sent to another process.*lock"):
        pool.map(locked, [0])
    with pytest.raises(jm.ModelError, match=r"task 1 \(<unlocked.*cannot be sent"):
        list(pool.map(str, [0, lock]))


def test_a_module_that_only_the_caller_has_is_told(pool, monkeypatch):
    module = type(sys)("only_here")
    exec("def function(i): return i", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", module)
    with pytest.raises(ModuleNotFoundError, match="only_here") as caught:
        list(pool.map(module.function, [0]))
    assert "same packages" in "".join(traceback.format_exception(caught.value))


def test_warnings_reach_the_caller_under_the_callers_rules(pool):
    def doubtful(i):
        warnings.warn(f"{i} is doubtful", jm.errors.ConvergenceWarning, stacklevel=1)
        return i

    with pytest.warns(jm.errors.ConvergenceWarning, match="1 is doubtful"):
        assert list(pool.map(doubtful, [1])) == [1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jm.errors.ConvergenceWarning)
        assert list(pool.map(doubtful, [1])) == [1]
    with pytest.raises(jm.errors.ConvergenceWarning):  # in these tests warnings are errors
        list(pool.map(doubtful, [1]))


def test_workers_keep_quiet_and_to_their_threads(pool, capfd):
    def loud(i):
        print("out")
        print("err", file=sys.stderr)
        os.write(1, b"raw out")
        subprocess.run(["echo", "child"], check=True)
        return os.environ["OMP_NUM_THREADS"], os.environ["NPROC"], sys.stdin is None or sys.stdin.read()

    assert list(pool.map(loud, range(4))) == [("1", "1", "")] * 4
    # Groups of their own: Ctrl-C in a terminal is heard by the caller alone.
    assert os.getpgrp() not in set(pool.map(lambda _: os.getpgrp(), range(4)))
    assert capfd.readouterr() == ("", "")


# -- ends --------------------------------------------------------------------------------------------------------


def test_nothing_is_left_running_after_a_stop_in_the_middle():
    with Processes(2) as executor:
        pids = list(executor.map(lambda _: time.sleep(0.05) or os.getpid(), range(4)))
        under_way = executor.map(time.sleep, itertools.chain([0.0], itertools.repeat(60.0)))
        next(under_way)
        threads = executor._pool.threads
        begun = time.monotonic()
    assert time.monotonic() - begun < 10
    assert_gone(pids, 0)
    assert not any(thread.is_alive() for thread in threads)
    with pytest.raises(WorkerError, match="closed"):
        next(under_way)
    executor.close()


def test_an_executor_that_nobody_closes_ends_with_its_last_user():
    executor = Processes(1)
    pids = list(executor.map(lambda _: os.getpid(), [0]))
    assert is_running(pids[0])
    del executor
    assert_gone(pids)


# Without ``if __name__ == "__main__"``: workers do not run the script again.
SCRIPT = """
import os, signal, sys, time
from jointmdp.simulation.executors import Processes
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background inherit that it is ignored
print("begun", flush=True)

def work(i):
    with open(os.path.join(sys.argv[1], str(os.getpid())), "w"):
        pass
    time.sleep(60)

with Processes(2) as executor:
    list(executor.map(work, range(100)))
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["interrupt", "kill"])
def test_workers_end_with_their_caller(how, tmp_path):
    script, folder = tmp_path / "script.py", tmp_path / "pids"
    folder.mkdir()
    script.write_text(textwrap.dedent(SCRIPT).replace("sys.argv[1]", repr(str(folder))))
    caller = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        end = time.monotonic() + 30
        while len(os.listdir(folder)) < 2 and time.monotonic() < end:
            time.sleep(0.02)
        pids = [int(name) for name in os.listdir(folder)]
        assert len(pids) == 2
        assert all(map(is_running, pids))
        os.killpg(caller.pid, how)  # as a terminal does it: everyone in the group hears of it
        out, err = caller.communicate(timeout=20)
    finally:
        caller.kill()
        caller.communicate()
    assert out == "begun\n"
    if how == signal.SIGINT:
        assert err.rstrip().endswith("KeyboardInterrupt")
        assert err.count("Traceback") == 1
        assert_gone(pids, 0)
    else:
        assert_gone(pids)


# -- names and bytes ---------------------------------------------------------------------------------------------


def test_executors_by_name():
    assert isinstance(as_executor(None), Serial)
    assert isinstance(as_executor("serial"), Serial)
    assert as_executor("processes:3").workers == 3
    assert as_executor("processes").workers == len(os.sched_getaffinity(0))
    mine = Serial()
    assert as_executor(mine) is mine


@pytest.mark.parametrize("given", ["", "threads", "serial:2", "processes:", "processes:x", "processes:-1", "ray:", 3])
def test_unknown_executors_are_refused(given):
    with pytest.raises(jm.ModelError, match="is no executor"):
        as_executor(given)


@pytest.mark.parametrize("settings", [{"workers": 0}, {"workers": 1.5}, {"threads": 0}, {"retries": -1}])
def test_impossible_settings_are_refused(settings):
    with pytest.raises(jm.ModelError, match=next(iter(settings))):
        Processes(**settings)


def test_none_and_no_workers_are_refused_by_name():
    with pytest.raises(jm.ModelError, match="workers is 0"):
        as_executor("processes:0")
    with pytest.raises(jm.ModelError, match="count is 0"):
        sample(table().sampler, 0, 0, "time")


def test_only_what_was_opened_here_is_closed():
    class Noted(Serial):
        is_closed = False

        def close(self):
            self.is_closed = True

    mine = Noted()
    with opened(mine) as executor:
        assert executor is mine
    assert not mine.is_closed
    with mine:
        pass
    assert mine.is_closed
    with opened("processes:1") as executor:
        pids = list(executor.map(lambda _: os.getpid(), [0]))
    assert_gone(pids, 0)


def test_ray_is_asked_for_by_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'jointmdp\[ray\]'"):
        as_executor("ray")


def test_arrays_of_jax_keep_their_precision():
    with jax.enable_x64(True):
        wide = jnp.asarray([np.pi])
    narrow, weak, key = jnp.float32(0.1), jnp.asarray(0.5), jax.random.key(3)
    assert pickle.loads(cloudpickle.dumps(wide)).dtype == np.float32  # what would happen without care
    found = worker.loads(worker.dumps((wide, narrow, weak, key), "arrays"))
    assert found[0].dtype == np.float64
    assert float(np.asarray(found[0])[0]) == np.pi
    assert (found[1].dtype, found[2].weak_type) == (np.float32, True)
    assert jax.random.uniform(found[3]) == jax.random.uniform(key)


def test_a_portion_says_what_it_is():
    assert repr(Portion(64, 64, "time")) == "replications 64 to 127"
    assert issubclass(Processes, Executor)
