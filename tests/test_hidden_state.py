"""State and dice that snapshots do not hold are found, and the report says where they live."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from faults_gym import HiddenGoal, NotSticky, Still, of
from faults_hidden import (
    GYM_FAULTS,
    GYM_TWINS,
    KEPT_FILE,
    RUN_FAULTS,
    RUN_TWINS,
    Engine,
    SeededByReset,
    SeededFromStream,
)
from zoo import daily, daily_rows

import jointmdp as jm
from jointmdp.decisions.auditor import audit


@pytest.mark.parametrize(("run", "check", "fault", "where"), daily_rows(RUN_FAULTS, 5))
def test_what_is_remembered_from_run_to_run_is_named_with_its_place(
    run: Callable[..., float], check: str, fault: str, where: str
) -> None:
    try:
        report = audit(run, decisions=[1.0, 3.0], num_states=1, num_samples=12)
    finally:
        if os.path.exists(KEPT_FILE):
            os.remove(KEPT_FILE)
    assert (report[check].status, report[check].fault) == ("fail", fault), str(report)
    assert where in report[check].cause
    assert "snapshot" not in report[check].cause
    assert "global" not in " ".join(report.faults)


@pytest.mark.parametrize("run", daily(RUN_TWINS))
def test_what_only_looks_like_it_passes(run: Callable[..., float]) -> None:
    assert audit(run, decisions=[1.0, 3.0], num_states=1, num_samples=12).faults == ()


@pytest.mark.parametrize(("made", "check", "status", "fault", "words"), daily_rows(GYM_FAULTS, 1))
def test_dice_and_seeds_of_environments(
    made: Callable[[], Any], check: str, status: str, fault: str, words: str
) -> None:
    report = audit(made(), num_states=2, num_samples=12)
    assert (report[check].status, report[check].fault) == (status, fault), str(report)
    assert words in report[check].message + report[check].cause


@pytest.mark.parametrize("made", daily(GYM_TWINS))
def test_environments_inside_of_environments_and_starts_pass(made: Callable[[], Any]) -> None:
    report = audit(made(), num_states=2, num_samples=12)
    # Dice that a step throws and only a reset seeds: that nothing ever comes of them cannot be shown.
    warned = ("noise outside the snapshot",) if report.simulator == "QuietEngine" else ()
    assert not report.failures, str(report)
    assert report.faults == warned, str(report)


@pytest.mark.slow
def test_no_noise_says_what_was_tried() -> None:
    still, hidden = (audit(of(kind)(), num_states=2, num_samples=12)["noise"] for kind in (Still, HiddenGoal))
    assert still.status == hidden.status == "pass"
    assert "6 starts under other seeds are one, and went the same way for 8 steps" in still.message
    assert "part of what a start draws is not shown" in hidden.message
    assert "there is one start" in audit(of(NotSticky)(), num_states=2, num_samples=12)["noise"].message


@pytest.mark.slow
def test_an_engine_whose_starts_differ_gets_no_tick() -> None:
    class Dungeon(SeededFromStream):
        """As in NLE: every seed has another map."""

        def began(self, seed: int | None) -> None:
            super().began(seed)
            self.x = self.engine.roll()

    check = audit(of(Dungeon)(), num_states=2, num_samples=12)["noise"]
    assert (check.status, check.fault) == ("warn", "noise outside the snapshot")
    assert "draws in a step from what only a reset has made" in check.message


def test_the_planted_engine_hides_what_it_holds() -> None:
    with pytest.raises(TypeError):
        Engine(0).__reduce_ex__(4)
    assert vars(Engine(0)) == {}
    assert of(SeededByReset)().state_kind == "replay"


@pytest.mark.slow
def test_an_identity_that_cannot_be_hashed_is_one_warning() -> None:
    report = audit(of(NotSticky, identity=lambda env: [env.unwrapped.x])(), num_states=2, num_samples=12)
    assert report.faults == ("state without identity",), str(report)
    assert "unhashable type: 'list'" in report["identity"].message


def test_an_engine_that_takes_small_seeds_alone_is_given_such() -> None:
    class Narrow(NotSticky):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            if seed is not None and seed >= 2**31:
                raise OverflowError("Python int too large to convert to C int")
            return super().reset(seed=seed)

    assert audit(of(Narrow)(), num_states=2, num_samples=12).faults == ()


class Library:
    """Any name is a function of it, as of the libraries that Numba's functions hold."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        return len


def test_functions_of_other_compilers_may_be_closed_over() -> None:
    library = Library()

    def run(order: float, seed: int) -> float:
        return order * library.size((1, 2)) + float(np.random.default_rng(seed).normal())

    assert audit(run, decisions=[1.0, 3.0], num_states=1, num_samples=12).faults == ()


def test_what_an_earlier_call_has_left_behind_does_not_hide_it() -> None:
    kept = dict[int, float]()

    def memo(order: float, seed: int) -> float:
        return order + kept.setdefault(seed, order * float(np.random.default_rng(seed).random()))

    for _ in range(2):
        assert audit(memo, decisions=[1.0, 3.0], num_states=1, num_samples=12).faults == ("hidden state",)
        with pytest.raises(jm.ModelError, match=r"what one decision leaves behind .* trial 0 of memo gave"):
            jm.compare(memo, decisions=[1.0, 3.0])


WARM: dict[Any, Any] = {}
JOBS = [3.0, 1.0, 2.0]


@functools.lru_cache
def first_arrivals(buffer: float) -> Any:
    return np.random.default_rng(SEEN[-1]).exponential(2.0, 20)


SEEN: list[int] = []


def kept_by_decision(buffer: float, seed: int) -> float:
    arrivals, service = (np.random.default_rng([seed, i]) for i in (1, 2))
    if buffer not in WARM:
        WARM[buffer] = arrivals.exponential(2.0, 20)
    return float(buffer * WARM[buffer].sum() + service.normal())


def kept_by_a_cache(buffer: float, seed: int) -> float:
    SEEN.append(seed)
    return float(buffer * first_arrivals(buffer).sum() + np.random.default_rng([seed, 2]).normal())


def kept_by_seed(buffer: float, seed: int) -> float:
    SEEN.append(seed)
    arrivals, service, _ = (np.random.default_rng([seed, i]) for i in (1, 2, 3))
    if (buffer, seed) not in WARM:
        WARM[buffer, seed] = arrivals.exponential(2.0, 20)
    return float(buffer * WARM[buffer, seed].sum() + service.normal() + sum(JOBS))


@pytest.mark.parametrize(
    ("run", "where"),
    daily_rows(
        [(kept_by_decision, "WARM of the module"), (kept_by_a_cache, "the cache of first_arrivals"), (kept_by_seed, "")]
    ),
)
def test_what_was_kept_before_anybody_looked_is_found_by_throwing_it_away(run: Any, where: str) -> None:
    """A cache that is warm already gives the same at every call: only its loss shows that it leaves out the seed."""
    WARM.clear()
    for buffer in (1.0, 2.0):
        run(buffer, 5)
    report = audit(run, decisions=[1.0, 2.0], num_samples=12)
    assert (report["history"].status == "fail") == bool(where), str(report)
    assert where in report["history"].message
    with pytest.raises(jm.ModelError, match=where) if where else warnings.catch_warnings():
        jm.compare(run, decisions=[1.0, 2.0], pilot=100, max_replications=100)
