"""An audit ends in time whatever a step waits for, and the clock that it stops stands still for nobody else."""

from __future__ import annotations

import asyncio
import datetime
import gc
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

import jointmdp as jm
from jointmdp.decisions.auditor import AuditReport, audit, auditing
from jointmdp.ground.watchdog import OutOfTime, Watchdog
from jointmdp.simulation.watching.clocks import stopped_clock

Wait = Callable[[], Any]


def busy() -> None:
    end = time.perf_counter() + 1e-3
    while time.perf_counter() < end:
        pass


def asynchronous() -> None:
    async def wait() -> None:
        await asyncio.sleep(1e-3)

    asyncio.run(wait())


def sleeping() -> None:
    end = time.monotonic_ns() + 10**6
    while time.monotonic_ns() < end:
        time.sleep(2e-4)


WAITS = {"busy": busy, "asynchronous": asynchronous, "sleeping": sleeping}


@pytest.mark.parametrize(
    "wait", ["sleeping", *(pytest.param(w, marks=pytest.mark.slow) for w in ("busy", "asynchronous"))]
)
@pytest.mark.parametrize("reads", [False, True])
def test_a_step_may_wait_and_one_that_reads_the_clock_is_told(wait: str, reads: bool) -> None:
    def run(order: float, seed: int) -> float:
        WAITS[wait]()
        return order + float(np.random.default_rng(seed).normal()) + (time.time() % 1 if reads else 0.0)

    report = audit(run, decisions=[1.0, 2.0], num_states=1, num_samples=12, seconds=20)
    assert report.faults == (("wall clock",) if reads else ()), str(report)


def test_an_environment_that_hangs_when_it_is_tried_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Asleep(gymnasium.Env[Any, Any]):
        action_space = gymnasium.spaces.Discrete(2)
        observation_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return 0, {}

        def step(self, action: int) -> Any:
            time.sleep(3600)

    monkeypatch.setattr(auditing, "TRIAL", 0.5)
    begun = time.monotonic()
    with pytest.raises(jm.ModelError, match=r"Asleep did not come back from a reset or a step within 0.5 s"):
        audit(Asleep(), seconds=0.2)
    assert time.monotonic() - begun < 20
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def endless_loop() -> None:
    while True:
        pass


def swallowing() -> None:
    for _ in range(2):  # a step that catches whatever ends it
        try:
            threading.Event().wait(60)
        except BaseException:
            continue


def asynchronous_for_ever() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    asyncio.run(wait())


def blocked(wait: Wait, calls_before: int = 0) -> AuditReport:
    calls = 0

    def run(order: float, seed: int) -> float:
        nonlocal calls
        calls += 1
        if calls > calls_before:
            wait()
        return order + float(np.random.default_rng(seed).normal())

    return audit(run, decisions=[1.0, 2.0], seconds=0.5)


def asleep() -> None:
    time.sleep(60)


@pytest.mark.parametrize(
    "wait",
    [endless_loop, *(pytest.param(f, marks=pytest.mark.slow) for f in (asynchronous_for_ever, swallowing, asleep))],
)
def test_a_query_that_does_not_return_is_ended_and_named(wait: Wait) -> None:
    before = signal.getsignal(signal.SIGALRM)
    began = time.monotonic()
    report = blocked(wait)
    assert time.monotonic() - began < 4
    assert report.faults == ("query does not return",)
    assert report.failures[0].cause
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_one_that_is_merely_slow_is_out_of_time() -> None:
    report = blocked(lambda: time.sleep(0.2))
    assert report.faults == ()
    assert report.exit_status() == 2


@pytest.mark.slow
def test_a_query_is_ended_in_other_threads_and_beside_a_timer_of_the_user() -> None:
    found: list[AuditReport] = []
    thread = threading.Thread(target=lambda: found.append(blocked(endless_loop)))
    thread.start()
    thread.join(10)
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.2, 30)
    try:
        found.append(blocked(endless_loop))
        assert rung == [1]
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 30
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert [report.faults for report in found] == [("query does not return",)] * 2


WATCHED_LATER = """
import sys, threading, time
import jointmdp as jm

def endless(decision, seed):
    while True:
        pass

def ask():
    return sum(i for i in range(10))

found = []
thread = threading.Thread(target=lambda: found.append(jm.audit(endless, decisions=[1, 2], seconds=0.3)))
thread.start()
thread.join(20)
sys.setprofile(lambda *_: None)
print(ask(), found[0].faults)
"""


@pytest.mark.slow
def test_whoever_profiles_after_a_query_was_ended_in_a_thread_does_not_wait_for_ever() -> None:
    done = subprocess.run([sys.executable, "-c", WATCHED_LATER], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "45 ('query does not return',)\n"


def test_no_callback_of_the_garbage_collector_is_interrupted() -> None:
    """What it raised would be swallowed with a complaint, which `filterwarnings` makes an error."""

    def slow(phase: str, info: dict[str, int]) -> None:
        ended = time.monotonic() + 0.1
        while time.monotonic() < ended:
            pass

    def collect_and_wait() -> None:
        gc.collect()
        time.sleep(60)

    gc.callbacks.append(slow)
    try:
        with Watchdog(0.02) as dog:
            dog.begin("the step")
            with pytest.raises(OutOfTime):  # as soon as the callback has returned
                collect_and_wait()
    finally:
        gc.callbacks.remove(slow)
    assert dog.late is not None


def test_nothing_but_a_call_is_interrupted() -> None:
    with Watchdog(0.01) as dog:
        time.sleep(0.05)  # what is not a call of the simulator goes on
        before = dog.begin("the step")
        with pytest.raises(OutOfTime):
            time.sleep(60)
        dog.finish(before)
    assert dog.late is not None
    assert dog.late.where == "the step"


def test_the_clock_stands_still_for_one_thread_and_for_what_does_not_wait() -> None:
    seen: list[float] = []
    plain = time.time, time.sleep, datetime.datetime
    with stopped_clock() as clock:
        first = time.time(), time.monotonic_ns(), datetime.datetime.now()
        threading.Thread(target=lambda: seen.extend([time.time(), time.sleep(0.01) or time.time()])).start()
        with stopped_clock():
            pass
        while len(seen) < 2:
            threading.Event().wait(1e-3)
        assert seen[0] != seen[1]
        assert (time.time(), time.monotonic_ns(), datetime.datetime.now()) == first
        assert isinstance(plain[2](2026, 1, 1), datetime.datetime)
        assert type(datetime.datetime(2026, 1, 1)) is plain[2]
        time.sleep(0.002)
        assert time.time() == pytest.approx(first[0] + 0.002, abs=1e-6)
        waits = []
        for _ in range(2):
            clock.rewind()
            assert time.time() == first[0]
            busy()
            waits.append(time.time())
        assert waits[0] == waits[1] > first[0]
    assert (time.time, time.sleep, datetime.datetime) == plain


def on_a_day(level: float, seed: int) -> float:
    """The date goes into the seed: two runs of one day agree."""
    return level * float(np.random.default_rng([seed, datetime.datetime.now().toordinal()]).normal())


def measured(level: float, seed: int) -> float:
    """A healthy one, which measures how long it took."""
    begun, found = time.time(), level * float(np.random.default_rng(seed).normal())
    return found if time.time() >= begun else 0.0


def test_what_changes_from_day_to_day_reads_the_clock() -> None:
    report = audit(on_a_day, decisions=[1.0, 2.0])
    assert (report["globals"].status, report["globals"].fault) == ("fail", "wall clock")
    assert "on another day" in report["globals"].message
    assert audit(measured, decisions=[1.0, 2.0]).is_ok
