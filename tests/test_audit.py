"""The auditor: planted faults are flagged by name, nothing healthy fails, and its one random check keeps its rate."""

from __future__ import annotations

import copy
import functools
import json
import os
import pickle
import random
import re
import sqlite3
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from faults import FAULTS, HEALTHY, Counter, Lever, NamedStreams, OutOfStep, OwnGenerator, Quiet
from faults_functions import FAULTS as STEP_FAULTS
from faults_functions import TWINS as STEP_TWINS
from faults_gym import FAULTS as GYM_FAULTS
from faults_gym import TWINS as GYM_TWINS
from faults_gym import Line, of
from faults_runs import FAULTS as RUN_FAULTS
from faults_runs import TWINS as RUN_TWINS
from scipy import stats
from zoo import daily, daily_rows, slow_or_long

import jointmdp as jm
from jointmdp.decisions.auditor import AuditReport, audit, state_checks
from jointmdp.decisions.auditor.audit_report import CLAIMS, RUN_CLAIMS
from jointmdp.decisions.auditor.state_checks import same_law_level, without_rounding
from jointmdp.ground.errors import ModelError
from jointmdp.simulation.simulators.function_simulator import FunctionSimulator
from jointmdp.simulation.simulators.generators import global_states, kept_globals
from jointmdp.simulation.simulators.noise import Noise, Redraw
from jointmdp.simulation.simulators.registry import MODELS
from jointmdp.simulation.simulators.simulator import Outcome
from jointmdp.simulation.simulators.table_simulator import TableSimulator
from jointmdp.simulation.watching import recorded_draws
from jointmdp.simulation.watching.hidden_state import changed, hidden_generators
from jointmdp.simulation.watching.probe import ObservedOutcome, Probe, WatchedNoise, difference, numbers

# Other checks that may fail with a fault: what a query does wrong also shows in the numbers that it gives.
CONSEQUENCES = {
    "KeptSpeed": {"law"},
    "OrderDependent": {"repetition", "law", "rewards"},
    "PositionShock": {"repetition"},
    "RunningNoise": {"repetition"},
    "Company": {"law"},
    "InfiniteReward": {"law"},
}


def quick(simulator: Any, **settings: Any) -> AuditReport:
    return audit(simulator, **{"num_states": 4, "num_samples": 40, **settings})


def unhappy(report: AuditReport) -> list[str]:
    return [f"{check.name}: {check.message}" for check in (*report.failures, *report.warnings)]


# -- planted faults ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "check", "status", "fault"),
    [pytest.param(*row, id=row[0].__name__, marks=[pytest.mark.slow] * (i % 8 > 0)) for i, row in enumerate(FAULTS)],
)
def test_every_planted_fault_is_flagged_by_name(kind: type[Lever], check: str, status: str, fault: str) -> None:
    report = quick(kind())
    found = report[check]
    assert (found.status, found.fault) == (status, fault), str(report)
    assert found.cause
    others = {failed.name for failed in report.failures} - {check}
    assert others <= CONSEQUENCES.get(kind.__name__, set()), str(report)
    assert report.is_ok == (status == "warn")


def test_the_ten_faults_that_were_asked_for_are_among_them() -> None:
    assert {
        "generator not restored",
        "global numpy.random",
        "stale observation",
        "draws out of step",
        "order-dependent query",
        "mutating query",
        "shock tied to the query position",
        "dropped previous action",
        "clipped reward",
        "shared snapshot",
    } <= {fault for *_, fault in FAULTS}


# One of each cause every day; all of them in the long run.
DAILY = {
    "run: seed + decision",
    "run: fixed seed",
    "run: table filled once",
    "run: swapped draws",
    "gym: set_state resets",
    "step: seed modulo 10",
    "class: two generators",
    "own_streams",
    "gym: Eased",
    "gym: HiddenGoal",
    "gym: StillSchedule",
    "step: caches in the open",
    "step: serial numbers",
    "step: handle that closes",
    "class: live machine agrees",
}
# What may warn in a healthy twin: identities that count too much, caches, and a function without any noise.
MAY_WARN = {
    "step: caches": {"snapshot changes", "identity of the object"},
    "step: caches in the open": {"snapshot changes", "identity of the object"},
    "step: serial numbers": {"identity alone"},
    "class: serial numbers in the identity": {"identity alone"},
    "deterministic": {"seed ignored"},
}


def audited(found: Any, is_run: bool) -> AuditReport:
    if is_run:
        return audit(found, decisions=[1.0, 3.0], num_states=2, num_samples=24)
    return audit(found(), num_states=3, num_samples=24)


def by_day(rows: list[Any], every: int = 1) -> list[Any]:
    """Those of every day, every so many of the others for the slow tests, and the rest for the long ones."""
    marks = [pytest.mark.long if i % every else pytest.mark.slow for i in range(len(rows))]
    return [
        pytest.param(*row, id=row[0], marks=() if row[0] in DAILY else mark)
        for row, mark in zip(rows, marks, strict=True)
    ]


@pytest.mark.parametrize(("name", "made", "check", "status", "fault"), by_day([*RUN_FAULTS, *GYM_FAULTS, *STEP_FAULTS]))
def test_faults_of_functions_and_environments_are_flagged_by_name(
    name: str, made: Any, check: str, status: str, fault: str
) -> None:
    report = audited(made, name.startswith("run:"))
    assert (report[check].status, report[check].fault) == (status, fault), str(report)
    assert report[check].cause
    assert report.is_ok == (status == "warn")


@pytest.mark.parametrize(("name", "made"), by_day([*RUN_TWINS, *GYM_TWINS, *STEP_TWINS], every=3))
def test_healthy_functions_and_environments_pass(name: str, made: Any) -> None:
    report = audited(made, (name, made) in RUN_TWINS)
    assert not report.failures, str(report)
    assert set(report.faults) <= MAY_WARN.get(name, set()), str(report)


def test_there_are_ninety_faults_and_as_many_twins() -> None:
    names = [kind.__name__ for kind, *_ in FAULTS] + [row[0] for row in (*RUN_FAULTS, *GYM_FAULTS, *STEP_FAULTS)]
    twins = [kind.__name__ for kind in HEALTHY] + [row[0] for row in (*RUN_TWINS, *GYM_TWINS, *STEP_TWINS)]
    assert len(set(names)) == len(names) >= 90
    assert len(set(twins)) == len(twins) >= 90


def test_a_function_that_ignores_its_seed_is_told_what_to_do() -> None:
    report = audit(lambda order, seed: float(np.random.default_rng(7).random() * order), decisions={"a": 1, "b": 2})
    assert (report["noise"].status, report["noise"].fault) == ("fail", "seed ignored")
    assert "default_rng(7)" in report["noise"].message
    assert "default_rng(seed)" in report["noise"].cause
    assert audit(lambda order, seed: 2.0 * order, decisions=[1, 2])["noise"].status == "warn"


@pytest.mark.slow
def test_functions_are_told_of_seeds_and_not_of_snapshots() -> None:
    for name, run, check, *_ in RUN_FAULTS:
        if name in ("run: closure", "run: unseeded", "run: global numpy.random", "run: counter"):
            cause = audited(run, True)[check].cause
            assert "seed" in cause
            assert "snapshot" not in cause


def test_every_guilty_generator_is_named() -> None:
    rows = {name: (made, check) for name, made, check, *_ in (*RUN_FAULTS, *STEP_FAULTS)}
    made, check = rows["run: both globals"]
    report = audited(made, True)
    assert report.faults == ("global random", "global numpy.random")
    made, check = rows["class: two generators"]
    cause = audited(made, False)[check].cause
    assert "simulator.wind" in cause
    assert "simulator.rain" in cause


def test_what_does_not_fit_into_the_time_is_not_passed() -> None:
    class Slow(Lever):
        def step(self, state: Any, action: int, noise: Noise) -> Outcome:
            time.sleep(0.02)
            return super().step(state, action, noise)

    report = audit(Slow(), seconds=1.0)
    assert report.seconds < 4  # a check may end the query that it is in
    late = [check for check in report.checks if "out of time" in check.message]
    assert late
    assert all(check.status == "skip" for check in late if check.name != "law")
    nothing = audit(Lever(), seconds=1e-6)
    assert nothing["restore"].status == nothing["law"].status == "skip"
    assert nothing.exit_status() == 2
    with pytest.raises(ModelError, match="seconds"):
        audit(Lever(), seconds=0)


def test_recorded_generators_draw_alike_and_are_plain_again_when_copied() -> None:
    def draws() -> list[Any]:
        bits = np.random.Generator(np.random.PCG64(3))
        sources = [np.random.default_rng(3), np.random.RandomState(3), random.Random(3), bits]
        numbers = [float(rng.random()) for rng in sources]
        return [numbers, sources]

    with recorded_draws.recorded() as log:
        numbers, sources = draws()
        assert isinstance(np.random.mtrand._rand, np.random.RandomState)
    plain, originals = draws()
    assert numbers == plain
    assert [stream.kind for stream in log.streams] == ["PCG64", "default_rng", "RandomState", "random.Random"]
    assert [[draw.method for draw in stream.draws] for stream in log.streams] == [["random"]] * 4
    for rng, original in zip(sources, originals, strict=True):
        for again in (copy.deepcopy(rng), pickle.loads(pickle.dumps(rng))):
            assert type(again) is type(original)
            assert float(again.random()) == float(copy.deepcopy(original).random())


def test_the_live_environment_is_left_alone() -> None:
    simulator = of(Line)()
    state = simulator.reset(3)
    before = simulator.query(state, [0, 1], Noise("here"))
    assert audit(simulator, num_states=2, num_samples=12)["live"].status == "pass"
    after = simulator.query(simulator.reset(3), [0, 1], Noise("here"))
    assert [o.reward for o in before] == [o.reward for o in after]
    assert [simulator.identity(o.state) for o in before] == [simulator.identity(o.state) for o in after]


@pytest.mark.parametrize("kind", daily(HEALTHY, 2))
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_healthy_twins_pass(kind: type[Lever], seed: int) -> None:
    # The law alone can raise a false alarm, with probability at most 1e-4 in each of the 12 runs.
    report = quick(kind(), seed=seed)
    assert not unhappy(report), str(report)


@pytest.mark.parametrize("kind", [kind for kind, *_ in FAULTS if kind.__name__ in ("DroppedPrevious", "ClippedReward")])
@pytest.mark.parametrize("seed", daily(range(1, 4)))
def test_random_faults_are_found_whatever_the_seed(kind: type[Lever], seed: int) -> None:
    assert quick(kind(), seed=seed).faults == next((fault,) for k, _, _, fault in FAULTS if k is kind)


@pytest.mark.slow
def test_a_fault_is_named_with_its_place() -> None:
    assert "simulator.rng moves on" in quick(OwnGenerator())["restore"].cause
    assert "simulator.calls changes" in quick(Counter())["restore"].cause
    message = quick(OutOfStep())["noise"].message
    assert 'draw 1 from noise["main"] is random() at faults.py:' in message


@pytest.mark.slow
def test_functions_of_noise_are_watched_too() -> None:
    """One generator for two sources shifts, two streams by name do not."""

    def one(extra: int, noise: jm.Noise) -> float:
        return sum(noise.rng.exponential(size=extra)) + noise.rng.normal()

    def two(extra: int, noise: jm.Noise) -> float:
        return sum(noise["more"].exponential(size=extra)) + noise["main"].normal()

    found = audit(one, decisions=[1, 3])
    assert found.faults == ("draws out of step",)
    assert 'noise["service", k]' in found["noise"].cause
    assert not audit(two, decisions=[1, 3]).faults
    assert jm.compare(two, decisions=[1, 3], seed=3).returns.shape[1] == 2


def test_draws_of_a_named_stream_do_not_count_against_the_others() -> None:
    check = quick(NamedStreams())["noise"]
    assert check.status == "pass"
    assert "lottery" in check.message
    assert "in step" in check.message


# -- functions and tables ----------------------------------------------------------------------------------------


def drift(state: float, action: int, noise: float) -> tuple[float, float]:
    return state + action, 0.5 * state + noise


def test_a_function_simulator_passes_and_one_that_draws_by_itself_does_not() -> None:
    healthy = FunctionSimulator(drift, lambda rng: rng.normal(), start=0.0, actions=2)
    report = quick(healthy)
    assert not unhappy(report), str(report)
    assert report["over"].status == "skip"
    assert "normal where states are continuous" in report["identity"].message

    rng = np.random.default_rng(1)
    faulty = FunctionSimulator(lambda s, a, n: drift(s, a, rng.normal()), lambda _: 0, start=0.0, actions=2)
    check = quick(faulty)["restore"]
    assert check.fault == "generator not restored"
    assert "closes over rng" in check.cause


@pytest.mark.slow
def test_actions_without_numbers_are_given_or_drawn() -> None:
    simulator = FunctionSimulator(drift, lambda rng: rng.normal(), start=0.0, actions=None)
    with pytest.raises(ModelError, match="actions="):
        audit(simulator)
    assert quick(simulator, actions=[0.5, -1.0]).is_ok
    assert quick(simulator, actions=[0.5, -1.0], policy=lambda observation, rng: rng.normal()).is_ok


@pytest.mark.parametrize("name", daily([*MODELS], 2))
def test_tables_pass(name: str) -> None:
    model, policy = MODELS[name].function()
    report = quick(TableSimulator(model), policy=policy)
    assert not report.failures, str(report)


def run_healthy(decision: float, seed: int) -> float:
    return decision * float(np.random.default_rng(seed).normal(1.0))


def run_legacy(decision: float, seed: int) -> float:
    random.seed(seed)
    return decision * random.random()


def run_forgets_its_seed(decision: float, seed: int) -> float:
    return decision * float(np.random.normal())  # noqa: NPY002


class Remembering:
    """Starts with what the run before left over."""

    def __init__(self) -> None:
        self.left = 0.0

    def __call__(self, decision: float, seed: int) -> float:
        start, self.left = self.left, decision
        return start + decision * float(np.random.default_rng(seed).random())


def test_plain_functions_of_a_decision_and_a_seed() -> None:
    assert not unhappy(quick(run_healthy, decisions=[1.0, 2.0]))
    legacy = quick(run_legacy, decisions=[1.0, 2.0])
    assert legacy["globals"].status == "pass"
    assert "seeded by the run itself" in legacy["globals"].message
    assert quick(run_forgets_its_seed, decisions=[1.0, 2.0]).faults == ("global numpy.random",)
    assert quick(Remembering(), decisions=[1.0, 2.0])["history"].fault == "dropped previous action"

    def draws_before_it_seeds(decision: float, seed: int) -> float:
        drawn = random.random()
        random.seed(seed)
        return decision + drawn

    assert "global random" in quick(draws_before_it_seeds, decisions=[1.0, 2.0]).faults
    nothing = quick(lambda decision, seed: None, decisions=[1.0, 2.0])["answers"]
    assert nothing.fault == "query not answered"
    assert "run(1.0, seed) returned None; it must return one finite number" in nothing.message
    assert "does the function return a number" in nothing.cause


# -- streams, decisions, threads ---------------------------------------------------------------------------------


def eaten(decision: int, seed: int) -> float:
    one, other = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])
    if decision:
        one.random(decision)
    return float(10 * one.normal() + other.normal() + decision)


def shifted(decision: int, seed: int) -> float:
    season, local = np.random.default_rng(seed), np.random.default_rng(seed + 7 * decision)
    return float(season.normal() + 10 * local.normal() + decision)


def epidemic(decision: int, noise: Noise) -> float:
    if decision == 3:
        noise["epidemic"].random()
    return float(noise["epidemic"].normal() + noise["other"].normal())


@pytest.mark.parametrize(
    ("run", "decisions", "fault", "words"),
    [
        (eaten, [0, 1], "draws out of step", "draw 1 from default_rng([SEED, 1]), made at test_audit.py"),
        (shifted, [0, 1], "noise not shared", "0 draws from default_rng(SEED) and 1 draws from default_rng("),
        (epidemic, [0, 1, 3], "draws out of step", 'draw 1 from noise["epidemic"] is normal() at test_audit.py'),
    ],
)
def test_a_fault_beside_an_intact_stream_is_found(run: Any, decisions: list[int], fault: str, words: str) -> None:
    report = audit(run, decisions=decisions)
    found = report["noise"]
    assert (found.status, found.fault) == ("fail", fault), str(report)
    seed = re.findall(r"seed (\d+)", found.message)[0]
    assert words.replace("SEED", seed) in found.message


@pytest.mark.parametrize("count", [12, *(pytest.param(n, marks=pytest.mark.slow) for n in (8, 20))])
def test_a_fault_in_the_last_of_many_decisions_is_found(count: int) -> None:
    def last(decision: int, seed: int) -> float:
        return eaten(int(decision == count - 1), seed)

    report = audit(last, decisions=range(count))
    assert report["noise"].fault == "draws out of step"
    assert f"for {count - 1} (seed" in report["noise"].message


@pytest.mark.slow
def test_a_slow_model_has_all_its_decisions_asked_in_time() -> None:
    def slow(decision: str, seed: int) -> float:
        time.sleep(0.01)
        return eaten(int(decision == "high"), seed)

    names = ["low", "middle", "high"]
    report = audit(slow, decisions=names, seconds=8.0)
    assert report["noise"].fault == "draws out of step"
    assert "for high" in report["noise"].message
    healthy = audit(lambda d, seed: slow("low", seed) + len(d), decisions=names, seconds=8.0)
    assert (healthy.is_ok, healthy.exit_status(), healthy.not_checked) == (True, 0, ()), str(healthy)


def test_what_is_not_asked_is_named_and_never_passed() -> None:
    def slow(decision: int, seed: int) -> float:
        time.sleep(0.05)
        return decision + float(np.random.default_rng(seed).normal())

    report = audit(slow, decisions=range(10), seconds=1.0)
    assert not report.failures
    assert not report.is_ok
    assert report.exit_status() == 2
    missing = report["noise"].left_out
    assert report["noise"].status == "skip"
    assert missing[-1] == "9"
    assert "not asked" in report["noise"].message
    assert "not all asked" in report.summary
    held = json.loads(report.to_json())
    assert held["is_ok"] is False
    assert "noise" in held["not_checked"]
    assert "9" in next(row for row in held["checks"] if row["name"] == "noise")["left_out"]


@pytest.mark.slow
def test_all_actions_of_a_simulator_are_asked_or_counted() -> None:
    def step(state: float, action: int, noise: Noise) -> tuple[float, float]:
        if action == 11:
            noise.rng.random()
        return action + noise.rng.normal(), state + noise.rng.normal()

    report = audit(FunctionSimulator(step, start=0.0, actions=12))
    assert report["noise"].fault == "draws out of step"
    many = FunctionSimulator(lambda s, a, n: (a + n.rng.normal(), s), start=0.0, actions=100_000)
    report = audit(many, num_states=1, num_samples=12, seconds=3.0)
    assert report["noise"].is_incomplete
    assert report["noise"].left_out or "out of time" in report["noise"].message
    assert (report.is_ok, report.exit_status()) == (False, 2)


def test_runs_are_told_of_decisions_runs_and_seeds() -> None:
    report = audit(run_healthy, decisions=[1.0, 2.0])
    assert [check.name for check in report.checks] == list(RUN_CLAIMS)
    text = str(report).replace("in step", "")
    assert not [word for word in ("snapshot", "state", "quer", "action", "reward", "step ") if word in text], text


def test_clocks_that_cannot_be_moved_are_a_warning() -> None:
    lines = sqlite3.connect(":memory:")

    def by_array(size: int, seed: int) -> float:
        return float(np.random.default_rng(seed).normal() + size * (np.datetime64("now").astype(int) > 0))

    def by_query(size: int, seed: int) -> float:
        (minute,) = lines.execute("select cast(strftime('%M', 'now') as integer)").fetchone()
        return float(np.random.default_rng(seed).normal() + size * (minute >= 0))

    def by_given_day(size: int, seed: int) -> float:
        return float(np.random.default_rng(seed).normal() + size * (np.datetime64("2026-01-01").astype(int) > 0))

    for run in (by_array, by_query):
        assert "wall clock" in audit(run, decisions=[1, 2], num_samples=24).faults
        with pytest.warns(jm.errors.NoiseWarning, match="reads the time where it cannot be moved"):
            jm.compare(run, decisions=[1, 2], pilot=50, max_replications=50)
    assert audit(by_given_day, decisions=[1, 2], num_samples=24).is_ok
    lines.close()


def test_pairing_that_saves_nothing_is_a_warning() -> None:
    def mirrored(decision: str, seed: int) -> float:
        drawn = np.random.default_rng(seed).random(6)
        return float(np.log(1 - drawn if decision == "other" else drawn).sum())

    report = audit(mirrored, decisions=["plain", "other"])
    assert (report["pairing"].status, report["pairing"].fault) == ("warn", "pairing saves nothing")
    assert "pairing costs" in report["pairing"].message
    assert audit(run_healthy, decisions=[1.0, 2.0])["pairing"].status == "pass"


@pytest.mark.slow
def test_audits_in_many_threads_disturb_nobody() -> None:
    """Eight threads audit while others draw and seed: all verdicts are right, and nothing is left behind."""
    plain = [random.seed, random.random, np.random.default_rng, np.random.RandomState, np.random.seed, os.urandom]
    held = [random.Random, np.random.Generator, np.random.PCG64, threading.Thread.start]
    expected = [float(np.random.default_rng(7).random()) for _ in range(3)]
    is_done, wrong = threading.Event(), list[Any]()

    def draws() -> None:
        while not is_done.is_set():
            try:
                found = [float(np.random.default_rng(7).random()) for _ in range(3)]
                if found != expected or type(np.random.default_rng(7)) is not held[1]:
                    wrong.append(found)
                if random.Random(7).random() != 0.32383276483316237:
                    wrong.append("random")
            except Exception as error:  # whatever a twin may raise
                wrong.append(repr(error))

    others = [threading.Thread(target=draws) for _ in range(2)]
    for thread in others:
        thread.start()
    try:
        with ThreadPoolExecutor(8) as pool:
            runs = [(run_healthy, [1.0, 2.0]), (eaten, [0, 1]), (shifted, [0, 1]), (epidemic, [0, 3])] * 4
            reports = list(pool.map(lambda pair: audit(pair[0], decisions=pair[1], seconds=30), runs))
    finally:
        is_done.set()
        for thread in others:
            thread.join()
    assert not wrong
    faults = [report["noise"].fault for report in reports]
    assert faults == ["", "draws out of step", "noise not shared", "draws out of step"] * 4
    assert plain == [
        random.seed,
        random.random,
        np.random.default_rng,
        np.random.RandomState,
        np.random.seed,
        os.urandom,
    ]
    assert held == [random.Random, np.random.Generator, np.random.PCG64, threading.Thread.start]


def test_what_was_replaced_is_put_back_whatever_raises() -> None:
    plain = np.random.default_rng, random.seed

    def interrupted() -> None:
        with recorded_draws.recorded(), recorded_draws.recorded():
            assert np.random.default_rng is not plain[0]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert plain == (np.random.default_rng, random.seed)
    assert recorded_draws._present.get() is None


@pytest.mark.slow
def test_a_copy_of_a_generator_is_a_stream_of_its_own() -> None:
    def kept_apart(decision: int, seed: int) -> float:  # as a library does that copies its distributions
        arrivals, service = (copy.deepcopy(np.random.default_rng([seed, i])) for i in range(2))
        return sum(arrivals.exponential() for _ in range(5)) + sum(service.normal() for _ in range(decision))

    def eaten(decision: int, seed: int) -> float:
        arrivals, service = (copy.deepcopy(np.random.default_rng([seed, i])) for i in range(2))
        arrivals.random(decision - 2)
        return float(5 * arrivals.normal() + service.normal())

    def twice(decision: int, seed: int) -> float:
        one = random.Random(seed)
        other = copy.copy(one)
        return one.gauss(0, 1) + decision * other.gauss(0, 1)

    faults = [audit(run, decisions=[2, 3])["noise"].fault for run in (kept_apart, eaten, twice)]
    assert faults == ["", "draws out of step", "one stream for two sources"]


def test_one_stream_is_redrawn_and_the_others_keep_their_numbers() -> None:
    def run(noise: Noise) -> list[float]:
        made = np.random.default_rng(3)
        return [noise["arrivals"].random(), noise["service", 1].random(), noise["service", 2].random(), made.random()]

    with recorded_draws.recorded() as log:
        plain = run(Noise("run", 1))
    groups = [stream.group for stream in log.streams]
    assert groups[1:] == ["arrivals", "service", "service"]
    assert groups[0].startswith("test_audit.py:")
    for salted in set(groups):
        with recorded_draws.redrawn(Redraw(frozenset({salted}))):
            found = run(Noise("run", 1))
        with recorded_draws.redrawn(Redraw(frozenset({salted}), salt=2)):
            other = run(Noise("run", 1))
        order = [*groups[1:], groups[0]]
        assert [x != y for x, y in zip(plain, found, strict=True)] == [group == salted for group in order]
        assert [x != y for x, y in zip(other, found, strict=True)] == [group == salted for group in order]
    assert run(Noise("run", 1)) == plain


# -- the report --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_report_says_what_it_found() -> None:
    good, warned, bad = quick(Lever()), quick(OutOfStep()), quick(OwnGenerator())
    assert [report.exit_status() for report in (good, warned, bad)] == [0, 0, 1]
    assert [report.exit_status(strict=True) for report in (good, warned, bad)] == [0, 1, 1]
    assert [check.name for check in good.checks] == list(CLAIMS)
    assert {row["name"]: row["status"] for row in good.table()} == dict.fromkeys(CLAIMS, "pass") | {"live": "skip"}
    held = json.loads(bad.to_json())
    assert held["faults"] == ["generator not restored"]
    assert held["is_ok"] is False
    text = str(bad)
    assert "✗ restore" in text
    assert "- order" in text
    assert "probability at most 0.0001" in text
    assert "! noise" in str(warned)
    assert max(map(len, text.splitlines())) <= 120
    assert good["restore"].claim == "restoring gives back the same state"


@pytest.mark.slow
def test_an_audit_can_be_repeated_and_leaves_no_trace() -> None:
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002
    before = global_states()
    first = quick(HEALTHY[2]())
    assert global_states() == before
    assert quick(HEALTHY[2]()).table() == first.table()
    with kept_globals():
        np.random.seed(4)  # noqa: NPY002
    assert global_states() == before


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"false_alarm": 0.0}, "false_alarm"),
        ({"false_alarm": 1}, "false_alarm"),
        ({"num_samples": 3}, "num_samples"),
        ({"num_states": 0}, "num_states"),
        ({"seed": -1}, "seed"),
        ({"policy": "best"}, "policy"),
        ({"actions": []}, "actions is empty"),
        ({"actions": ["sideways"]}, "sideways"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        audit(Lever(), **settings)


def test_decisions_go_with_a_function() -> None:
    with pytest.raises(ModelError, match="run"):
        audit(3, decisions=[1])
    with pytest.raises(ModelError, match="decisions="):
        audit(run_healthy)
    with pytest.raises(ModelError, match="empty"):
        audit(run_healthy, decisions=[])


def test_a_start_that_is_over_is_told() -> None:
    class Ended(Lever):
        def start(self, noise: Noise) -> Any:
            return 3, 0, 1

    report = audit(Ended())
    assert "over already" in report["answers"].message
    assert report["law"].status == "skip"


# -- the law -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [12, 60, 200])
def test_the_level_is_that_of_the_exact_test(n: int) -> None:
    rng = np.random.default_rng(n)
    for shift in (0.0, 0.5, 1.0, 5.0):
        x, y = rng.normal(size=n), rng.normal(shift, size=n)
        exact = stats.ks_2samp(x, y, method="exact").pvalue
        # The bound doubles the one-sided level: it misses only the paths that cross both sides.
        assert exact <= same_law_level(x, y) * (1 + 1e-9)
        if exact < 1e-3:
            assert same_law_level(x, y) <= 1.001 * exact
    assert same_law_level(np.zeros(n), np.zeros(n)) == 1.0


@pytest.mark.parametrize("atoms", [2, 5, None])
def test_the_level_keeps_its_rate(atoms: int | None) -> None:
    # At most 5 % of 2,000 pairs of samples of one law come out below 0.05; 0.05 + 4 standard errors is exceeded by
    # chance with probability below 1e-4.
    rng = np.random.default_rng(7)
    draws = rng.random((2_000, 2, 40)) if atoms is None else rng.integers(atoms, size=(2_000, 2, 40)).astype(float)
    rate = np.mean([same_law_level(x, y) <= 0.05 for x, y in draws])
    assert rate <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / 2_000)


@pytest.mark.slow
def test_the_whole_check_of_the_law_keeps_its_rate() -> None:
    # 200 checks at a false-alarm rate of 10 %: more than 20 + 4 · 4.2 failures have probability below 1e-3.
    simulator = Lever()
    failures = 0
    for seed in range(200):
        probe = Probe(simulator, seed)
        spot = probe.reached((1, 0, 0), "here", (0, 1, 2)).with_content()
        check, tests = state_checks.check_law(probe, [spot], 12, 0.1)
        assert tests > 1
        failures += check.status == "fail"
    assert failures <= 20 + 4 * np.sqrt(200 * 0.1 * 0.9)


def test_rounding_is_no_difference_of_laws() -> None:
    x = np.random.default_rng(0).choice([0.1, 0.2, 0.7], size=300)
    assert same_law_level(x, x * (1 + 1e-7)) < 1e-3
    assert same_law_level(*without_rounding(x, x * (1 + 1e-7), 2.0**-23)) == 1.0
    assert same_law_level(*without_rounding(x, x * (1 + 1e-7), 2.0**-52)) < 1e-3


def test_constants_that_differ_are_certain_with_the_fewest_samples() -> None:
    class Doubled(Quiet):
        def query(self, state: Any, actions: Any, noise: Noise) -> list[Outcome]:
            return [Outcome(2 * o.reward, o.state) for o in super().query(state, actions, noise)]

    report = audit(Doubled(), num_samples=12)
    assert report["law"].status == "fail"


# -- what it is made of ------------------------------------------------------------------------------------------


def observed(reward: float = 1.0, observation: Any = 0.0, identity: Any = 0, is_over: bool = False) -> ObservedOutcome:
    values, precision = numbers(observation)
    return ObservedOutcome(reward, is_over, np.asarray(observation).tobytes(), values, precision, identity, observation)


def test_outcomes_are_compared_bit_for_bit_and_nan_equals_itself() -> None:
    assert difference(observed(float("nan"), np.nan), observed(float("nan"), np.nan)) is None
    assert difference(observed(0.1), observed(0.2)).text == "reward 0.1 and 0.2"  # type: ignore[union-attr]
    for other in (observed(2.0), observed(is_over=True), observed(observation=1.0), observed(identity=1)):
        found = difference(observed(), other)
        assert found is not None
        assert not found.is_rounding
    single = np.float32([1.0, 2.0])
    close = difference(observed(observation=single), observed(observation=np.nextafter(single, np.float32(9))))
    assert close is not None
    assert close.is_rounding
    far = difference(observed(observation=single), observed(observation=single * np.float32(1.001)))
    assert far is not None
    assert not far.is_rounding
    assert difference(observed(), observed(observation=1.0), is_blind=True) is None


def test_a_watched_noise_is_the_noise_and_knows_its_forms() -> None:
    plain, watched = Noise("audit", 1), WatchedNoise("audit", 1)
    assert plain.rng.random() == watched.rng.random() == watched.fresh().rng.random()
    assert plain.seed == watched.seed
    assert plain["other"].random() == watched.fresh()["other"].random()
    assert watched.others == {"seed"}


def test_generators_are_found_where_they_hide() -> None:
    class Slotted:
        __slots__ = ("rng",)

    class Holder:
        pass

    holder, slotted = Holder(), Slotted()
    slotted.rng = np.random.default_rng(0)
    holder.parts = [{"deep": slotted}]  # type: ignore[attr-defined]
    holder.old = np.random.RandomState(0)  # type: ignore[attr-defined]
    holder.plain = random.Random(0)  # type: ignore[attr-defined]
    holder.luck = Noise("given")  # type: ignore[attr-defined]
    assert holder.luck.rng is not None  # type: ignore[attr-defined]
    before = hidden_generators(holder, "h")
    assert set(before) == {"h.parts[0]['deep'].rng", "h.old", "h.plain"}
    slotted.rng.random()
    assert changed(before, hidden_generators(holder, "h")) == ["h.parts[0]['deep'].rng"]


def test_generators_are_found_behind_functions_and_classes() -> None:
    rng = [np.random.default_rng(i) for i in range(4)]

    class Holder:
        shared = rng[0]

    def draws(value: float, own: Any = rng[1]) -> float:
        return value + own.random()

    holder = Holder()
    holder.partial = functools.partial(draws, rng[2])  # type: ignore[attr-defined]
    holder.method = rng[3:].copy  # type: ignore[attr-defined]
    holder.closure = lambda: rng[0]  # type: ignore[attr-defined]
    found = set(hidden_generators(holder, "h"))
    default = f"a default of {draws.__qualname__}"
    closed_over = {f"h.closure closes over rng[{i}]" for i in range(4)}
    bound = "h.method closes over __self__[0]"
    assert found == {"Holder.shared", default, bound, "h.partial.args[0]", *closed_over}


def test_models_and_names_are_audited_as_they_are() -> None:
    model, _ = MODELS["shared-successors"].function()
    assert quick(model).is_ok
    assert quick("shared-successors").simulator == "shared-successors"
    with pytest.raises(ModelError, match="no simulator"):
        audit(3.0)


# -- environments of others --------------------------------------------------------------------------------------


def sticky_line(source: str = "np_random") -> Any:
    """A Gymnasium environment: a walk on a line whose steps stick, and gusts from one of several generators."""
    gymnasium = pytest.importorskip("gymnasium")

    class StickyLine(gymnasium.Env):  # type: ignore[misc, name-defined]
        observation_space = gymnasium.spaces.Box(-99, 99, (1,))
        action_space = gymnasium.spaces.Discrete(2)

        def __init__(self) -> None:
            self.x, self.previous = 0.0, 0
            self.gusts = np.random.default_rng(0)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            self.x, self.previous = 0.0, 0
            return np.float32([self.x]), {}

        def step(self, action: int) -> Any:
            if self.np_random.random() < 0.3:
                action = self.previous
            gust = np.random.normal() if source == "global" else getattr(self, source).normal()  # noqa: NPY002
            self.x += 2 * action - 1 + gust
            self.previous = int(action)
            return np.float32([self.x]), float(self.x), abs(self.x) > 9, False, {}

    return StickyLine()


def line_hooks(*parts: str) -> dict[str, Any]:
    def put(env: Any, value: Any) -> None:
        env.unwrapped.__dict__.update(zip(parts, value, strict=True))

    return {"get_state": lambda env: tuple(getattr(env.unwrapped, part) for part in parts), "set_state": put}


@pytest.mark.parametrize(
    ("source", "settings", "fault"),
    daily_rows(
        [
            ("np_random", {}, None),
            ("gusts", {"streams": ["np_random"], **line_hooks("x", "previous")}, "generator not restored"),
            ("np_random", line_hooks("x"), "dropped previous action"),
            ("global", {}, "global numpy.random"),
            ("gusts", {}, None),
            ("np_random", line_hooks("x", "previous"), None),
            ("gusts", {"streams": ["np_random"], "state": "copy"}, "frozen noise"),
        ],
        4,
    ),
)
def test_a_gymnasium_environment_and_its_faults(source: str, settings: dict[str, Any], fault: str | None) -> None:
    env = sticky_line(source)
    from jointmdp.simulation.simulators.gymnasium_simulator import GymnasiumSimulator

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the simulator itself warns of frozen noise
        simulator = GymnasiumSimulator(env, **settings)
    report = quick(simulator)
    assert report.faults == (() if fault is None else (fault,)), str(report)


EVERYDAY = ["FrozenLake-v1"]
STOCK = [
    "CartPole-v1",
    "Blackjack-v1",
    "Acrobot-v1",
    "MountainCar-v0",
    "Pendulum-v1",
    "CliffWalking-v1",
    "CliffWalkingSlippery-v1",
    "Taxi-v4",
    "LunarLander-v3",
    "Ant-v5",
    "HalfCheetah-v5",
    "Hopper-v5",
    "Humanoid-v5",
    "InvertedPendulum-v5",
    "Reacher-v5",
]
BOX2D = ("LunarLander", "BipedalWalker", "CarRacing")
MORE_STOCK = [  # of the same kinds
    "BipedalWalker-v3",
    "CarRacing-v3",
    "MountainCarContinuous-v0",
    "FrozenLake8x8-v1",
    "LunarLanderContinuous-v3",
    "BipedalWalkerHardcore-v3",
    "HumanoidStandup-v5",
    "InvertedDoublePendulum-v5",
    "Pusher-v5",
    "Swimmer-v5",
    "Walker2d-v5",
]


@pytest.mark.parametrize(
    "name",
    [
        *EVERYDAY,
        *(pytest.param(name, marks=pytest.mark.long if i % 3 else pytest.mark.slow) for i, name in enumerate(STOCK)),
        *(pytest.param(name, marks=pytest.mark.long) for name in MORE_STOCK),
    ],
)
def test_stock_gymnasium_environments_pass(name: str) -> None:
    # A false alarm of the law has probability at most 1e-4 in each.
    pytest.importorskip("gymnasium")
    if name.startswith(BOX2D):
        pytest.importorskip("Box2D")  # no wheels for Linux on ARM
    from jointmdp.simulation.simulators.gymnasium_simulator import GymnasiumSimulator

    report = audit(GymnasiumSimulator(name))
    assert not unhappy(report), str(report)


# A choice of gymnax's; not MNISTBandit, which downloads its pictures.
GYMNAX = [
    "BernoulliBandit-misc",
    "Catch-bsuite",
    "FrozenLake-misc",
    "MemoryChain-bsuite",
    "Pong-misc",
    "Acrobot-v1",
    "Asterix-MinAtar",
    "CartPole-v1",
    "Pendulum-v1",
    "UmbrellaChain-bsuite",
]


@pytest.mark.slow
@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("name", slow_or_long(GYMNAX, 3))
def test_gymnax_environments_pass(name: str) -> None:
    pytest.importorskip("gymnax")
    from jointmdp.simulation.simulators.jax_adapters import gymnax_simulator

    report = audit(gymnax_simulator(name))
    assert not report.failures, str(report)
    assert len([check for check in report.checks if check.status == "pass"]) >= 10


@pytest.mark.slow
def test_a_typed_key_that_a_jax_state_carries_is_no_fault() -> None:
    """The types that a simulator remembers of its states look like keys, and hold none."""

    def step(key: Any, state: Any, action: Any) -> Any:
        x = state["x"] + action + jax.random.uniform(key)
        return x, {"x": x, "key": state["key"]}

    def reset(key: Any) -> Any:
        return {"x": 0.0 * jax.random.uniform(key), "key": jax.random.key(1)}

    simulator = jm.JaxSimulator(step, reset, actions=2)
    assert audit(simulator, num_states=1, num_samples=12).faults == ()


def test_only_legal_actions_of_a_jax_environment_are_asked_for() -> None:
    def step(key: Any, state: Any, action: Any) -> Any:
        after = state.at[action].set(1)
        return jax.random.uniform(key), after, jnp.all(after == 1)

    simulator = jm.JaxSimulator(step, lambda key: jnp.zeros(4, jnp.int32), actions=4, available=lambda s: s == 0)
    assert audit(simulator, num_states=1, num_samples=12).faults == ()
