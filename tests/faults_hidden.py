"""Models that hide their state or their dice: each fault says where it lives, and stands beside a healthy twin.

Functions ``run(decision, seed)`` come first, then Gymnasium environments on the line of `faults_gym`.
"""

from __future__ import annotations

import contextvars
import functools
import itertools
import os
import tempfile
import threading
import types
from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium
import numpy as np
from faults_gym import FROZEN, NOT_RESTORED, NotSticky, Still, of

rng = np.random.default_rng
LEDGER: dict[str, int] = {}
COUNT = 0
TOTAL: contextvars.ContextVar[int] = contextvars.ContextVar("total", default=0)
NUMBERS = itertools.count()
LOCAL = threading.local()
GUSTS = rng(5)
LAST: dict[str, Any] = {}
KEPT_FILE = os.path.join(tempfile.gettempdir(), f"jointmdp-faults-hidden-{os.getpid()}")


def module_table(order: float, seed: int) -> float:
    LEDGER["runs"] = LEDGER.get("runs", 0) + 1
    return order + LEDGER["runs"] * float(rng(seed).random())


def module_table_reset(order: float, seed: int) -> float:
    LEDGER["runs"] = 0
    return module_table(order, seed)


def _counted() -> int:
    global COUNT
    COUNT += 1
    return COUNT


def name_of_a_helper(order: float, seed: int) -> float:
    return order + _counted() * float(rng(seed).random())


def name_without_effect(order: float, seed: int) -> float:
    return order + 0 * _counted() + float(rng(seed).random())


def context(order: float, seed: int) -> float:
    TOTAL.set(TOTAL.get() + 1)
    return order + TOTAL.get() * float(rng(seed).random())


def context_of_its_own(order: float, seed: int) -> float:
    return contextvars.Context().run(context, order, seed)


class Board:
    time: ClassVar[int] = 0


def class_attribute(order: float, seed: int) -> float:
    Board.time += 1
    return order + Board.time * float(rng(seed).random())


def function_attribute(order: float, seed: int) -> float:
    function: Any = function_attribute
    function.runs = getattr(function, "runs", 0) + 1
    return order + function.runs * float(rng(seed).random())


def default(order: float, seed: int, memory: list[float] = []) -> float:  # noqa: B006
    memory.append(order)
    return order + len(memory) * float(rng(seed).random())


def default_that_is_read(order: float, seed: int, prices: tuple[float, ...] = (1.0, 2.0)) -> float:
    return order * prices[0] + float(rng(seed).random())


def iterator(order: float, seed: int) -> float:
    return order + next(NUMBERS) * float(rng(seed).random())


def thread_local(order: float, seed: int) -> float:
    LOCAL.runs = getattr(LOCAL, "runs", 0) + 1
    return order + LOCAL.runs * float(rng(seed).random())


def environment(order: float, seed: int) -> float:
    os.environ["JOINTMDP_RUNS"] = str(int(os.environ.get("JOINTMDP_RUNS", "0")) + 1)
    return order + int(os.environ["JOINTMDP_RUNS"]) * float(rng(seed).random())


def file(order: float, seed: int) -> float:
    with open(KEPT_FILE, "a+b") as kept:  # grows by a byte a run, whichever process runs it
        kept.write(b".")
        size = kept.tell()
    return order + size * float(rng(seed).random())


def file_that_is_read(order: float, seed: int) -> float:
    with open(__file__) as kept:
        return order + len(kept.readline()) * float(rng(seed).random())


@functools.lru_cache
def _list(key: int) -> list[float]:
    return []


def list_in_a_cache(order: float, seed: int) -> float:
    _list(0).append(order)
    return order + len(_list(0)) * float(rng(seed).random())


@functools.cache
def _first(seed: int) -> float:
    return float(LAST["order"]) * float(rng(seed).random())


def cache_of_the_first_decision(order: float, seed: int) -> float:
    LAST["order"] = order
    return order + _first(seed)


def cache_that_seldom_shows(order: float, seed: int) -> float:
    LAST["order"] = order
    found = _first(seed)
    return order + (found if rng([seed, 1]).random() < 0.1 else 0.0)


@functools.cache
def _demand(seed: int) -> float:
    return float(rng(seed).random())


def cache_of_the_demand(order: float, seed: int) -> float:
    return order * _demand(seed)


MEMO: dict[int, float] = {}


def memo_of_the_first_decision(order: float, seed: int) -> float:
    return order + MEMO.setdefault(seed, order * float(rng(seed).random()))


def _gust() -> float:
    return float(GUSTS.normal())


def generator_of_the_module(order: float, seed: int) -> float:
    np.random.seed(seed)  # noqa: NPY002
    return order + float(np.random.random()) + _gust()  # noqa: NPY002


WIND: Any = types.ModuleType("wind_of_faults_hidden")
exec("import numpy as np\nrng = np.random.default_rng(3)\ndef gust():\n    return float(rng.normal())\n", vars(WIND))


def generator_of_another_module(order: float, seed: int) -> float:
    return order + float(rng(seed).random()) + WIND.gust()


def seeded_globals(order: float, seed: int) -> float:
    np.random.seed(seed)  # noqa: NPY002
    return order + float(np.random.random())  # noqa: NPY002


HIDDEN = "hidden state not restored"

RUN_FAULTS: list[tuple[Callable[..., float], str, str, str]] = [
    (module_table, "restore", HIDDEN, "LEDGER of the module"),
    (name_of_a_helper, "restore", HIDDEN, "COUNT of the module"),
    (context, "restore", HIDDEN, "TOTAL of the module"),
    (class_attribute, "restore", HIDDEN, "Board.time"),
    (function_attribute, "restore", HIDDEN, "function_attribute.runs"),
    (default, "restore", HIDDEN, "a default of default"),
    (iterator, "restore", HIDDEN, "NUMBERS of the module"),
    (thread_local, "restore", HIDDEN, "LOCAL of the module"),
    (environment, "restore", HIDDEN, "os.environ"),
    (file, "restore", HIDDEN, "the file "),
    (list_in_a_cache, "restore", HIDDEN, "the cache of _list"),
    (cache_of_the_first_decision, "history", "hidden state", "LAST of the module"),
    (cache_that_seldom_shows, "history", "hidden state", "LAST of the module"),
    (memo_of_the_first_decision, "history", "hidden state", "MEMO of the module"),
    (generator_of_the_module, "restore", NOT_RESTORED, "GUSTS of the module"),
    (generator_of_another_module, "restore", NOT_RESTORED, "rng of the module wind_of_faults_hidden"),
]
RUN_TWINS: list[Callable[..., float]] = [
    module_table_reset,
    name_without_effect,
    context_of_its_own,
    default_that_is_read,
    file_that_is_read,
    cache_of_the_demand,
    seeded_globals,
]


# -- engines and environments inside of environments -------------------------------------------------------------


class Engine:
    """Dice that show nothing of themselves and cannot be copied, as in a compiled engine."""

    dice: ClassVar[dict[int, np.random.Generator]] = {}
    opened: ClassVar[Any] = itertools.count()

    def __init__(self, seed: int) -> None:
        self.reopen(seed)

    def reopen(self, seed: int) -> None:
        object.__setattr__(self, "handle", next(self.opened))
        self.dice[self.handle] = rng(seed)  # type: ignore[attr-defined]

    def __getattribute__(self, name: str) -> Any:
        if name == "__dict__":
            return {}
        return object.__getattribute__(self, name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("cannot pickle an engine")

    def roll(self) -> float:
        return float(self.dice[self.handle].normal())  # type: ignore[attr-defined]


class SeededByReset(NotSticky):
    """As in VizDoom: the reset hands its seed on, and every episode looks alike at first."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = Engine(0)

    def began(self, seed: int | None) -> None:
        if seed is not None:
            self.engine = Engine(seed)

    def gust(self) -> float:
        return self.engine.roll()


class KeepsItsSeed(SeededByReset):
    """As in SUMO: the seed stands in an attribute, and the engine is started anew in every reset."""

    number = 0

    def began(self, seed: int | None) -> None:
        self.number = self.number if seed is None else seed
        self.engine = Engine(self.number)
        self.sumo_seed = self.number


class SeededFromStream(SeededByReset):
    """The engine's seed is drawn from np_random."""

    def began(self, seed: int | None) -> None:
        self.engine = Engine(int(self.np_random.integers(2**31)))


class DiceLater(SeededByReset):
    """They are not rolled in the first steps."""

    def gust(self) -> float:
        return self.engine.roll() if self.t > 4 else 0.0


class QuietEngine(SeededByReset):
    """An engine whose dice move nothing."""

    def gust(self) -> float:
        return 0.0 * self.engine.roll()


class SeedIgnored(NotSticky):
    """As in mobile-env: the start is drawn, from a seed of the settings."""

    def began(self, seed: int | None) -> None:
        self.x = float(rng(666).normal())


class SeedHeeded(NotSticky):
    def began(self, seed: int | None) -> None:
        self.x = float(self.np_random.normal())


class GoalInAFunction(Still):
    """The goal is drawn in the reset, and a function holds it."""

    def began(self, seed: int | None) -> None:
        self.goal = functools.partial(float, self.np_random.integers(-3, 4))

    def step(self, action: int) -> Any:
        seen, _, over, cut, info = super().step(action)
        return seen, -abs(self.x - self.goal()), over, cut, info


class Inside(NotSticky):
    """Another environment does the work."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = NotSticky()

    def began(self, seed: int | None) -> None:
        self.inner.reset(seed=seed)

    def step(self, action: int) -> Any:
        return self.inner.step(action)


class InsideUnseeded(Inside):
    """The one inside is reset without a seed."""

    def began(self, seed: int | None) -> None:
        self.inner.reset()


class InsideAList(Inside):
    def __init__(self) -> None:
        super().__init__()
        self.parts = {"wind": [self.inner]}
        del self.inner

    def began(self, seed: int | None) -> None:
        self.parts["wind"][0].reset(seed=seed)

    def step(self, action: int) -> Any:
        return self.parts["wind"][0].step(action)


class InsideAVector(NotSticky):
    def __init__(self) -> None:
        super().__init__()
        self.many = gymnasium.vector.SyncVectorEnv([NotSticky, NotSticky])

    def began(self, seed: int | None) -> None:
        self.many.reset(seed=seed)

    def step(self, action: int) -> Any:
        seen, rewards, *_ = self.many.step(np.array([action, action]))
        return np.float32([seen.sum()]), float(rewards.sum()), False, False, {}


class GeneratorOfAModule(NotSticky):
    """Gusts come from a generator of another module."""

    def gust(self) -> float:
        return float(WIND.gust())


# made, check, status, fault, what the message or the cause names
GYM_FAULTS: list[tuple[Callable[[], Any], str, str, str, str]] = [
    (of(SeededByReset), "noise", "fail", FROZEN, "SeededByReset.engine (Engine)"),
    (of(KeepsItsSeed), "noise", "fail", FROZEN, "KeepsItsSeed.engine (Engine)"),
    (of(SeededFromStream), "noise", "fail", FROZEN, "SeededFromStream.engine (Engine)"),
    (of(DiceLater), "noise", "fail", FROZEN, "DiceLater.engine (Engine)"),
    (of(SeedIgnored), "noise", "warn", "seed ignored at the start", "default_rng(666)"),
    (of(SeedIgnored, state="replay"), "noise", "warn", "seed ignored at the start", "default_rng(666)"),
    (of(GeneratorOfAModule), "restore", "fail", NOT_RESTORED, "rng of the module wind_of_faults_hidden"),
    (of(Inside, streams=[], state="copy"), "noise", "fail", FROZEN, "streams="),
]
GYM_TWINS: list[Callable[[], Any]] = [
    of(kind, **settings)
    for kind in (SeedHeeded, GoalInAFunction, Inside, InsideUnseeded, InsideAList, InsideAVector)
    for settings in ({}, {"state": "replay"})
] + [of(QuietEngine)]
