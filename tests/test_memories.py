"""What was kept before anybody looked: every place where Python can keep it, and healthy uses of the same places."""

import functools
import json
import multiprocessing
import os
import threading
import time
import types
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.random import default_rng
from zoo import daily

import jointmdp as jm
from jointmdp.simulation.simulators.function_simulator import RunSimulator
from jointmdp.simulation.watching.other_processes import ForkedRun, Needed, first_difference, forked, needed, walked

Run = Callable[[float, int], float]


def demand(seed: int) -> np.ndarray:
    return default_rng([seed, 1]).exponential(2.0, 20)


def result(path: np.ndarray, amount: float, seed: int) -> float:
    return float(path.sum() * amount + default_rng([seed, 2]).normal())


def by_amount(store: Any, amount: float, seed: int) -> float:
    """The demand of the first seed that met this amount."""
    if amount not in store:
        store[amount] = demand(seed)
    return result(store[amount], amount, seed)


class Plant:
    shared: ClassVar[dict[float, np.ndarray]] = {}
    path: Any = None

    def __init__(self) -> None:
        self.cache: dict[float, np.ndarray] = {}
        self.inner = types.SimpleNamespace(cache={}, path=None)
        self.own: Any = None
        self.is_ready = False
        self.seed = 0

    def in_attribute(self, amount: float, seed: int) -> float:
        return by_amount(self.cache, amount, seed)

    def in_inner(self, amount: float, seed: int) -> float:
        return by_amount(self.inner.cache, amount, seed)

    def in_class(self, amount: float, seed: int) -> float:
        return by_amount(Plant.shared, amount, seed)

    def in_name_of_class(self, amount: float, seed: int) -> float:
        if self.path is None:
            type(self).path = demand(seed)
        return result(self.path, amount, seed)

    def behind_flag(self, amount: float, seed: int) -> float:
        if not self.is_ready:
            self.own, self.is_ready = demand(seed), True
        return result(self.own, amount, seed)

    def when_missing(self, amount: float, seed: int) -> float:
        if not hasattr(self, "late"):
            self.late = demand(seed)
        return result(self.late, amount, seed)

    def in_inner_name(self, amount: float, seed: int) -> float:
        if self.inner.path is None:
            self.inner.path = demand(seed)
        return result(self.inner.path, amount, seed)

    @functools.cached_property
    def known(self) -> np.ndarray:
        return demand(self.seed)

    def in_property(self, amount: float, seed: int) -> float:
        self.seed = seed
        return result(self.known, amount, seed)

    @functools.cache  # noqa: B019
    def found(self, amount: float) -> np.ndarray:
        return demand(self.seed)

    def in_cache_of_method(self, amount: float, seed: int) -> float:
        self.seed = seed
        return result(self.found(amount), amount, seed)

    def __call__(self, amount: float, seed: int) -> float:
        return by_amount(self.cache, amount, seed)


@dataclass
class Store:
    kept: dict[float, np.ndarray] = field(default_factory=dict)

    @property
    def all(self) -> dict[float, np.ndarray]:
        return self.kept

    def run(self, amount: float, seed: int) -> float:
        return by_amount(self.all, amount, seed)


PLANT, ORDERED, SPACE, LOCAL = (
    Plant(),
    OrderedDict[float, np.ndarray](),
    types.SimpleNamespace(path=None),
    threading.local(),
)
SLOTS: list[Any] = [None] * 3
POOL = [Plant(), Plant()]
TABLE = np.full((3, 20), np.nan)
MIXED: dict[str, Any] = {"rate": 2.0}
SINGLE: Any = None
LOCAL.cache = {}


def slots(amount: float, seed: int) -> float:
    if SLOTS[int(amount)] is None:
        SLOTS[int(amount)] = demand(seed)
    return result(SLOTS[int(amount)], amount, seed)


def table(amount: float, seed: int) -> float:
    if np.isnan(TABLE[int(amount), 0]):
        TABLE[int(amount)] = demand(seed)
    return result(TABLE[int(amount)], amount, seed)


def single(amount: float, seed: int) -> float:
    global SINGLE
    if SINGLE is None:
        SINGLE = demand(seed)
    return result(SINGLE, amount, seed)


def mixed(amount: float, seed: int) -> float:
    if "path" not in MIXED:
        MIXED["path"] = demand(seed) * MIXED["rate"]
    return result(MIXED["path"], amount, seed)


def space(amount: float, seed: int) -> float:
    if SPACE.path is None:
        SPACE.path = demand(seed)
    return result(SPACE.path, amount, seed)


def of_function(amount: float, seed: int) -> float:
    if not hasattr(of_function, "path"):
        of_function.path = demand(seed)  # type: ignore[attr-defined]
    return result(of_function.path, amount, seed)  # type: ignore[attr-defined]


def closing() -> Run:
    path = None

    def run(amount: float, seed: int) -> float:
        nonlocal path
        if path is None:
            path = demand(seed)
        return result(path, amount, seed)

    return run


def as_default(amount: float, seed: int, store: dict[float, np.ndarray] = {}) -> float:  # noqa: B006
    return by_amount(store, amount, seed)


FAULTS: dict[str, tuple[Run, str]] = {
    "attribute": (Plant().in_attribute, "Plant.cache"),
    "attribute of an attribute": (Plant().in_inner, "cache"),
    "class": (Plant().in_class, "Plant.shared"),
    "name of a class": (Plant().in_name_of_class, "Plant.path"),
    "behind a flag": (Plant().behind_flag, "Plant.is_ready"),
    "attribute that comes late": (Plant().when_missing, "Plant.late"),
    "name of an inner object": (Plant().in_inner_name, "path"),
    "cached property": (Plant().in_property, "Plant.known"),
    "cached method": (Plant().in_cache_of_method, "Plant.found"),
    "object that is called": (Plant(), "Plant.cache"),
    "property of a data class": (Store().run, "Store.kept"),
    "object of the module": (lambda amount, seed: PLANT.in_attribute(amount, seed), "Plant.cache"),
    "objects in a list": (lambda amount, seed: POOL[int(amount) - 1].behind_flag(amount, seed), "Plant.is_ready"),
    "argument of a partial function": (functools.partial(by_amount, {}), "run.args"),
    "ordered dictionary": (lambda amount, seed: by_amount(ORDERED, amount, seed), "ORDERED"),
    "of a thread": (lambda amount, seed: by_amount(LOCAL.cache, amount, seed), "cache"),
    "places of a list": (slots, "SLOTS"),
    "rows of an array": (table, "TABLE"),
    "name of the module": (single, "SINGLE"),
    "dictionary with data in it": (mixed, "MIXED"),
    "name of a namespace": (space, "path"),
    "attribute of a function": (of_function, "of_function.path"),
    "closure": (closing(), "path"),
    "default": (as_default, "a default of as_default"),
}


class Healthy:
    rate = 2.0

    def __init__(self) -> None:
        self.count, self.last, self.memo, self.queue = 0, None, dict[tuple[float, int], float](), list[int]()
        self.settings, self.buffer = {"scale": 3.0, "calls": 0}, np.zeros(20)

    def run(self, amount: float, seed: int) -> float:
        self.count += 1
        self.last, self.queue = amount, [1, 2]  # type: ignore[assignment]
        self.settings["calls"] = self.settings.get("calls", 0) + 1
        self.buffer[:] = demand(seed) * self.rate
        if (amount, seed) not in self.memo:
            self.memo[amount, seed] = result(self.buffer, amount, seed)
        return self.memo[amount, seed] * self.settings.get("scale", 1.0)


WEIGHTS, SEEN = np.linspace(0, 1, 20), list[float]()
NET: Any = None


def lazy(amount: float, seed: int) -> float:
    global NET
    if NET is None:
        NET = default_rng(0).normal(size=20)
    SEEN.append(amount)
    return result(demand(seed) * NET * WEIGHTS, amount, seed)


def recomputed(seeds: int, amount: float, seed: int) -> float:
    store = {k: demand(seed + k) for k in range(seeds)}
    return sum(result(path, amount, seed) for path in store.values())


class Options(dict[str, Any]):
    """Settings in the manner of sciris: no copy can be made of them, for no key can be added."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self:
            raise KeyError(f"no such option: {name}")
        super().__setitem__(name, value)

    def clear(self) -> None:
        raise TypeError("options stay")


class Refuses(list[float]):
    def __bool__(self) -> bool:
        raise TypeError("neither true nor false")


OPTIONS, REFUSES = Options(scale=2.0), Refuses([1.0])


def with_options(amount: float, seed: int) -> float:
    OPTIONS["scale"] = 2.0
    return OPTIONS["scale"] * REFUSES[0] * result(demand(seed), amount, seed)


RATES, TABLE_OF_RATES = {"base": 25.0}, {1.0: 25.0, 2.0: 26.0}
FALLING_BACK = defaultdict(lambda: 1.0, {"rate": 25.0})


def with_default(amount: float, seed: int) -> float:
    return RATES.setdefault("base", 1.0) * result(demand(seed), amount, seed)


def with_fallback(amount: float, seed: int) -> float:
    """An amount that the table does not know gets a rate."""
    if amount not in TABLE_OF_RATES:
        TABLE_OF_RATES[amount] = 1.0
    return TABLE_OF_RATES[amount] * result(demand(seed), amount, seed)


def with_factory(amount: float, seed: int) -> float:
    return FALLING_BACK["rate"] * result(demand(seed), amount, seed)


SETTINGS = [with_options, with_default, with_fallback, with_factory]


def asked(run: Run, seconds: float = 60.0) -> Needed:
    """Once everything has been kept by calls with another seed."""
    for amount in (1.0, 2.0):
        run(amount, 5)
    simulator = RunSimulator(run, [1.0, 2.0])
    calls = (lambda: walked(simulator, 0, 0, [0, 1])), (lambda: walked(simulator, 1, 0, [0, 1], is_backwards=True))
    return needed(simulator, *calls, first_difference, seconds)


@pytest.mark.parametrize("name", daily([*FAULTS], 3))
def test_what_was_kept_is_found_where_it_lives(name: str) -> None:
    run, where = FAULTS[name]
    assert where in asked(run).where


@pytest.mark.parametrize(
    "run",
    [Healthy().run, lazy, functools.partial(recomputed, 3), *SETTINGS],
)
def test_what_may_be_kept_is_left_alone(run: Run) -> None:
    assert asked(run) == Needed("", ())


def test_what_a_model_writes_to_a_file_is_its_own(tmp_path: Path) -> None:
    """Emptied copies of it would write there, too, and what they write was never asked for."""
    path = tmp_path / "results.txt"

    def logged(amount: float, seed: int) -> float:
        rate = RATES.get("base", 1.0)
        with path.open("a") as file:
            file.write(f"{rate}\n")
        return rate * result(demand(seed), amount, seed)

    assert asked(logged) == Needed("", (), writes=True)
    assert set(path.read_text().split()) == {"25.0"}
    report = jm.audit(logged, decisions=[1.0, 2.0], seconds=30)
    assert report.is_ok
    assert "was not tried, for it writes files" in report["processes"].message
    assert set(path.read_text().split()) == {"25.0"}


def test_a_file_that_a_model_writes_anew_is_not_emptied(tmp_path: Path) -> None:
    """A cache on disk that is read, added to and written again: opening it to be written would empty it."""
    path = tmp_path / "cache.json"
    path.write_text("{}")

    def cached(amount: float, seed: int) -> float:
        known = json.loads(path.read_text())
        key = f"{amount} {seed}"
        if key not in known:
            known[key] = RATES.get("base", 1.0) * result(demand(seed), amount, seed)
            path.write_text(json.dumps(known))
        return known[key]

    def removing(amount: float, seed: int) -> float:
        (tmp_path / "lock").write_text("")
        os.remove(tmp_path / "lock")
        return RATES.get("base", 1.0) * result(demand(seed), amount, seed)

    for run in (cached, removing):
        asked(run)
    assert {"1.0 5", "2.0 5"} <= json.loads(path.read_text()).keys()
    run = ForkedRun(lambda: path.write_text("lost"), may_write=False)
    assert run.result(5.0) is None
    assert "1.0 5" in path.read_text()


def test_memories_that_were_not_tried_are_named() -> None:
    found = asked(Healthy().run, seconds=1e-9)
    assert not found.where
    assert "Healthy.memo" in found.not_tried


def test_an_object_that_keeps_its_noise_is_no_common_noise() -> None:
    plant = Plant()
    for amount in (1.0, 2.0):
        plant.in_attribute(amount, 5)
    report = jm.audit(plant.in_attribute, decisions=[1.0, 2.0])
    assert report.faults == ("hidden state",)
    assert "Plant.cache" in report["history"].message
    with pytest.raises(jm.ModelError, match=r"Plant\.cache holds what earlier calls have left"):
        jm.compare(plant.in_attribute, decisions=[1.0, 2.0], pilot=100, max_replications=100)


def test_what_a_copy_of_the_process_holds_when_it_is_ended_is_free_here() -> None:
    """A progress bar of tqdm has such locks: the audit waited for ever once a copy had been ended that held one."""
    lock, plain, tokens = multiprocessing.RLock(), multiprocessing.Lock(), multiprocessing.Semaphore(3)
    tokens.acquire()

    def holds() -> None:
        plain.acquire()
        with lock:
            time.sleep(100)

    with lock:
        ended = forked(object(), holds)
        assert ended is not None
        assert ended.result(0.5) is None
    assert lock.acquire(timeout=5)
    assert plain.acquire(timeout=5)
    copy = forked(object(), lambda: (lock._semlock._is_mine(), plain.acquire(timeout=0.01), tokens.get_value()))
    assert copy is not None
    assert copy.result(5.0) == (True, False, 2)
