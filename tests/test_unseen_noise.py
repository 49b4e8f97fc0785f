"""What nobody can follow, calls that do not return, and states that a step changes: each is said, none passes."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import numpy as np
import pytest
from gymnasium import Env, spaces

import jointmdp as jm
from jointmdp.errors import NoiseWarning
from jointmdp.ground import checks
from jointmdp.simulation.watching import clocks

FEW: dict[str, Any] = {"pilot": 30, "max_replications": 30}


class Lehmer:
    """Dice of one's own, which nobody can follow."""

    def __init__(self, seed: int) -> None:
        self.x = seed % 2147483646 + 1

    def roll(self) -> float:
        self.x = self.x * 48271 % 2147483647
        return self.x / 2147483647


def rolled(decision: int, seed: int) -> float:
    """In step: the first number is the same for all."""
    return 5 * Lehmer(seed).roll() + decision


def skipping(decision: int, seed: int) -> float:
    """Each decision has another number."""
    dice = Lehmer(seed)
    return [dice.roll() for _ in range(decision + 1)][-1] + decision


def test_noise_that_cannot_be_followed_is_unfinished() -> None:
    report = jm.audit(rolled, decisions=[1, 2])
    assert not report.failures
    assert not report.is_ok
    assert report.exit_status() == 2
    assert [check.name for check in report.not_checked] == ["noise"]
    assert "the noise could not be followed" in report.summary


def test_a_comparison_says_so_where_pairing_is_not_shown_to_save() -> None:
    with pytest.warns(NoiseWarning, match="cannot be followed"):
        jm.compare(skipping, decisions=[0, 1], pilot=100, max_replications=100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jm.compare(rolled, decisions=[0, 1], **FEW)


def test_a_step_that_changes_its_state_is_refused_also_where_the_order_does_not_tell() -> None:
    def sold(state: list[float], order: int, noise: Any) -> Any:
        demand = noise.rng.random()
        state[0] += order - demand
        return demand - order, state

    simulator = jm.FunctionSimulator(sold, start=lambda rng: [0.0], actions=[0, 1])
    with pytest.raises(jm.ModelError, match="changes the state that it is given"):
        jm.compare(simulator, 0, horizon=2, **FEW)


class Place(Env[Any, Any]):
    """A walk; `kind` is what is wrong with it."""

    observation_space = spaces.Box(-100, 100, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, kind: str) -> None:
        self.kind, self.x = kind, 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=3 if self.kind == "one start" else seed)
        self.x = float(self.np_random.normal())
        return np.array([self.x]), {}

    def step(self, action: int) -> Any:
        if self.kind == "waits":
            threading.Event().wait(60)
        if self.kind == "refuses" and action == 1:
            raise ValueError("this move is not allowed")
        self.x += action + float(self.np_random.normal())
        return np.array([self.x]), -abs(self.x), False, False, {}


def test_a_trial_that_does_not_return_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jm.GymnasiumSimulator, "trial_seconds", 0.5)
    with pytest.raises(jm.ModelError, match=r"did not come back from a reset or a step within 0.5 s, .* wait for"):
        jm.compare(Place("waits"), 0, horizon=2, **FEW)


def test_starts_that_ignore_their_seed_are_told() -> None:
    with pytest.warns(NoiseWarning, match=r"All replications begin alike: PCG64\(3\)"):
        jm.compare(Place("one start"), 0, horizon=2, **FEW)


def test_actions_that_are_refused_get_a_cure() -> None:
    with pytest.raises(jm.ModelError, match=r"not allowed; if it takes only some .* info\['action_mask'\]"):
        jm.compare(Place("refuses"), 0, horizon=2, **FEW)


def test_a_call_that_takes_long_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(clocks, "FIRST_LINE", 0.05)
    monkeypatch.setattr(clocks, "STUCK", 0.05)
    monkeypatch.setenv("JOINTMDP_PROGRESS", "30")
    is_done = threading.Event()
    with clocks.told_late("comparing"):
        threading.Timer(0.7, is_done.set).start()
        is_done.wait()
    told = capsys.readouterr().err
    assert "comparing: still waiting for test_a_call_that_takes_long_is_told() at test_unseen_noise.py:" in told


def test_a_number_that_is_no_place_may_be_a_name() -> None:
    assert checks.as_index("action", 7, ("5", "7"), 2) == 1
    with pytest.raises(jm.ModelError, match="unknown action 6; there are 2 actions"):
        checks.as_index("action", 6, ("5", "7"), 2)
