"""Functions ``step(state, action, noise)`` and classes around them: one planted fault each, and healthy twins."""

from __future__ import annotations

import copy
import random
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from faults import Lever, Machine

from jointmdp.ground.intervals import Interval
from jointmdp.simulation.simulators.function_simulator import FunctionSimulator
from jointmdp.simulation.simulators.noise import Noise
from jointmdp.simulation.simulators.simulator import Outcome


def shop(step: Callable[..., Any], start: Any = 4, **settings: Any) -> Callable[[], Any]:
    """A simulator of a shop: the state is the stock, the action an order."""
    return lambda: FunctionSimulator(step, **{"start": start, "actions": 3, "discount": 0.9, **settings})


def sold(stock: int, order: int, demand: float) -> tuple[float, int]:
    amount = min(stock + order, int(demand))
    return 10.0 * amount - 4.0 * order, stock + order - amount


# -- faults ------------------------------------------------------------------------------------------------------


def seed_of_action(stock: int, order: int, noise: Noise) -> Any:
    return sold(stock, order, np.random.default_rng(noise.seed + order).poisson(4))


def modulo(stock: int, order: int, noise: Noise) -> Any:
    return sold(stock, order, np.random.default_rng(noise.seed % 10).poisson(4))


def stream_of_action(stock: int, order: int, noise: Noise) -> Any:
    return sold(stock, order, noise[f"demand {order}"].poisson(4))


def swapped(stock: int, order: int, noise: Noise) -> Any:
    rng = noise.rng
    if order:
        price, demand = rng.normal(10, 1), rng.normal(4, 2)
    else:
        demand, price = rng.normal(4, 2), rng.normal(10, 1)
    amount = min(stock + order, max(0, int(demand)))
    return price * amount - 4 * order, stock + order - amount


def other_method(stock: int, order: int, noise: Noise) -> Any:
    shock = noise.rng.normal() if order else noise.rng.random()
    return sold(stock, order, 4 + 2 * shock + noise.rng.random())


def fixed(stock: int, order: int, noise: Noise) -> Any:
    return sold(stock, order, np.random.default_rng(stock).poisson(4))


def mutates(stock: list[int], order: int, noise: Noise) -> Any:
    reward, stock[0] = sold(stock[0], order, noise.rng.poisson(4))
    return reward, [stock[0]]


def hands_back(stock: list[int], order: int, noise: Noise) -> Any:
    reward, stock[0] = sold(stock[0], order, noise.rng.poisson(4))
    return reward, stock


def shared_buffer() -> Callable[[], Any]:
    buffer = np.zeros(1, dtype=int)

    def step(stock: Any, order: int, noise: Noise) -> Any:
        reward, buffer[0] = sold(int(stock[0]), order, noise.rng.poisson(4))
        return reward, buffer

    return shop(step, np.array([4]))


def closed_over() -> Callable[[], Any]:
    rng = random.Random(1)

    def step(stock: int, order: int, noise: Noise) -> Any:
        return sold(stock, order, rng.randrange(9))

    return shop(step)


def runs_on() -> Callable[[], Any]:
    day = [0]

    def step(stock: int, order: int, noise: Noise) -> Any:
        day[0] += 1
        return sold(stock, order, noise.rng.poisson(4) + (day[0] % 7 == 0) * 3)

    return shop(step)


def carried(state: Any, order: int, noise: Noise) -> Any:
    """The state carries a generator, and the noise is left alone."""
    stock, rng = state
    own = copy.deepcopy(rng)
    reward, after = sold(stock, order, own.poisson(4))
    return reward, (after, own)


def carried_random(state: Any, order: int, noise: Noise) -> Any:
    stock, rng = state
    own = copy.deepcopy(rng)
    reward, after = sold(stock, order, own.randrange(9))
    return reward, (after, own)


def plain(stock: int, order: int, noise: Noise) -> Any:
    return sold(stock, order, noise.rng.poisson(4))


class WeakOwner(Lever):
    """The snapshot looks at the live machine through a weak reference."""

    class Part:
        def __init__(self, owner: Machine, lever: int) -> None:
            self.owner, self.lever = weakref.ref(owner), lever

    def start(self, noise: Noise) -> Any:
        return *super().start(noise), WeakOwner.Part(self.live, 0)

    def step(self, state: Any, action: int, noise: Noise) -> Outcome:
        before = state[3].owner().spring
        reward, found = super().step(state[:3], action, noise)
        return Outcome(float(np.clip(reward + before, -4, 4)), (*found, WeakOwner.Part(self.live, found[0])))

    def observe(self, state: Any) -> Any:
        return np.array(state[:3])

    def identity(self, state: Any) -> Any:
        return state[:3]


class TwoGenerators(Lever):
    """Two generators of its own: both are to blame."""

    def __init__(self) -> None:
        super().__init__()
        self.wind, self.rain = np.random.default_rng(1), random.Random(2)

    def step(self, state: Any, action: int, noise: Noise) -> Outcome:
        reward, found = super().step(state, action, noise)
        return Outcome(float(np.clip(reward + self.wind.normal() + self.rain.random(), -4, 4)), found)


class ObjectIdentity(Lever):
    """The same states never have one identity, and noise is shared by identity: none is."""

    sharing = "state"

    def identity(self, state: Any) -> Any:
        return id(state)

    def snapshot(self) -> Any:
        return [self.live.lever, self.live.spring, self.live.previous]

    def is_over(self, state: Any) -> bool:
        return abs(state[0]) >= 3


class LiveDiffers(Lever):
    """A simulator of one's own that offers its live machine, and restores without the previous pull."""

    def restore(self, state: Any) -> None:
        self.live = Machine()
        self.live.lever, self.live.spring = state[:2]

    def live_episode(self, start: Noise, steps: Any) -> list[Outcome]:
        machine = Machine()
        machine.lever = int(start.rng.integers(-1, 2))
        found = [Outcome(0.0, (machine.lever, machine.spring, machine.previous))]
        for action, noise in steps:
            reward = machine.step(action, noise.rng)
            found.append(Outcome(reward, (machine.lever, machine.spring, machine.previous)))
        return found


class FrozenByWord(Lever):
    """Its adapter knows that noise does not reach it."""

    frozen_noise = "the step never uses the key it is given"


FAULTS: list[tuple[str, Callable[[], Any], str, str, str]] = [
    ("step: seed of the action", shop(seed_of_action), "noise", "fail", "noise not shared"),
    ("step: seed modulo 10", shop(modulo), "noise", "fail", "seeds that coincide"),
    ("step: stream of the action", shop(stream_of_action), "noise", "fail", "noise not shared"),
    ("step: swapped draws", shop(swapped), "noise", "warn", "draws out of step"),
    ("step: other method", shop(other_method), "noise", "warn", "draws out of step"),
    ("step: generator of the stock", shop(fixed), "noise", "fail", "frozen noise"),
    ("step: mutates its state", shop(mutates, [4]), "untouched", "fail", "mutating query"),
    ("step: hands its state back", shop(hands_back, [4]), "untouched", "fail", "mutating query"),
    ("step: one buffer for all states", shared_buffer(), "untouched", "fail", "shared snapshot"),
    ("step: closes over Random", closed_over(), "restore", "fail", "generator not restored"),
    ("step: counts days", runs_on(), "restore", "fail", "hidden state not restored"),
    ("step: carries a generator", shop(carried, (4, np.random.default_rng(1))), "noise", "fail", "frozen generator"),
    ("step: carries a Random", shop(carried_random, (4, random.Random(1))), "noise", "fail", "frozen generator"),
    (
        "step: coarse identity",
        shop(plain, lambda rng: int(rng.integers(6)), identity=bool),
        "identity",
        "fail",
        "identity ignores part of the state",
    ),
    ("step: bounds", shop(plain, reward_bounds=(0.0, 5.0)), "rewards", "fail", "reward outside its bounds"),
    ("class: weak owner", WeakOwner, "history", "fail", "hidden state"),
    ("class: two generators", TwoGenerators, "restore", "fail", "generator not restored"),
    ("class: identity by object", ObjectIdentity, "identity", "fail", "identity of the object"),
    ("class: live machine differs", LiveDiffers, "live", "fail", "state not restored in full"),
    ("class: frozen by its own word", FrozenByWord, "noise", "fail", "frozen noise"),
]


# -- healthy -----------------------------------------------------------------------------------------------------


def named(stock: int, order: int, noise: Noise) -> Any:
    price = noise["price"].normal(10, 1)
    reward, after = sold(stock, order, noise["demand"].poisson(4))
    return reward * price / 10, after


def seeded(stock: int, order: int, noise: Noise) -> Any:
    return sold(stock, order, np.random.default_rng(noise.seed).poisson(4))


def seeded_random(stock: int, order: int, noise: Noise) -> Any:
    return sold(stock, order, random.Random(noise.seed).randrange(9))


def uniform(stock: int, order: int, noise: Noise) -> Any:
    return sold(stock, order, 8 * noise.uniform)


def scaled(stock: int, order: int, noise: Noise) -> Any:
    return sold(stock, order, 4 + (1 + 0.1 * order) * noise.rng.normal())


def array(stock: Any, order: int, noise: Noise) -> Any:
    reward, after = sold(int(stock[0]), order, noise.rng.integers(8))
    return reward, np.array([after])


def record(stock: Any, order: int, noise: Noise) -> Any:
    reward, after = sold(stock["stock"], order, noise.rng.integers(8))
    return reward, {"stock": after, "days": stock["days"] + 1}


class Warehouse:
    """A state that caches what it computes, and when it is copied."""

    def __init__(self, stock: int) -> None:
        self.stock = stock

    @property
    def value(self) -> float:
        if not hasattr(self, "_value"):
            self._value = 2.0 * self.stock
        return self._value

    def __deepcopy__(self, memo: Any) -> Warehouse:
        self.copies = getattr(self, "copies", 0) + 1
        return Warehouse(self.stock)


def caching(state: Warehouse, order: int, noise: Noise) -> Any:
    reward, after = sold(state.stock, order, noise.rng.integers(8))
    return reward + 0.1 * state.value, Warehouse(after)


class Counted:
    """A state with a serial number that means nothing."""

    made = 0

    def __init__(self, stock: int) -> None:
        self.stock = stock
        Counted.made += 1
        self.serial = Counted.made


def counted(state: Counted, order: int, noise: Noise) -> Any:
    reward, after = sold(state.stock, order, noise.rng.integers(8))
    return reward, Counted(after)


class Handle:
    """Something that closes when a copy of it is thrown away."""

    is_open = True

    def __init__(self, stock: int) -> None:
        self.stock, self.is_original = stock, True

    def __deepcopy__(self, memo: Any) -> Handle:
        found = Handle(self.stock)
        found.is_original = False
        return found

    def __del__(self) -> None:
        if not self.is_original:
            Handle.is_open = False


def handled(state: Handle, order: int, noise: Noise) -> Any:
    if not Handle.is_open:
        raise ConnectionError("closed by a copy")
    reward, after = sold(state.stock, order, noise.rng.integers(8))
    return reward, Handle(after)


def ends(stock: int, order: int, noise: Noise) -> Any:
    reward, after = sold(stock, order, noise.rng.poisson(4))
    return reward, after, after == 0


def copied_state(state: Any, order: int, noise: Noise) -> Any:
    """The state carries a generator that is started from the noise in each step."""
    reward, after = sold(state[0], order, np.random.default_rng(noise.seed).integers(8))
    return reward, (after, np.random.default_rng(noise.seed))


class LiveAgrees(Lever):
    """Offers its live machine, and restores all of it."""

    live_episode = LiveDiffers.live_episode


class Idle(Lever):
    """Holds generators that nobody uses."""

    def __init__(self) -> None:
        super().__init__()
        self.wind, self.rain = np.random.default_rng(1), random.Random(2)


class Logging(Lever):
    """Writes down what was asked, for people."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[Any] = []

    def step(self, state: Any, action: int, noise: Noise) -> Outcome:
        self.log.append((state, action))
        return super().step(state, action, noise)


class Memo(Lever):
    """Remembers answers by all that they depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[Any, Outcome] = {}

    def step(self, state: Any, action: int, noise: Noise) -> Outcome:
        key = state, action, noise.address
        if key not in self.known:
            self.known[key] = super().step(state, action, noise)
        return self.known[key]


class SerialIdentity(Lever):
    """Counts more in its identity than matters."""

    name = "serial identity"
    reward_bounds = Interval(-4.2, 4.0)

    def __init__(self) -> None:
        super().__init__()
        self.made = 0

    def snapshot(self) -> Any:
        self.made += 1
        return *super().snapshot(), self.made

    def restore(self, state: Any) -> None:
        super().restore(state[:3])

    def observe(self, state: Any) -> Any:
        return np.array(state[:3])


TWINS: list[tuple[str, Callable[[], Any]]] = [
    ("step: plain", shop(plain)),
    ("step: named streams", shop(named)),
    ("step: seeded from the noise", shop(seeded)),
    ("step: Random from the noise", shop(seeded_random)),
    ("step: one uniform number", shop(uniform)),
    ("step: scaled by the action", shop(scaled)),
    ("step: array", shop(array, np.array([4]))),
    ("step: dictionary", shop(record, {"stock": 4, "days": 0})),
    ("step: caches", shop(caching, Warehouse(4), observe=lambda state: state.stock)),
    ("step: caches in the open", shop(caching, Warehouse(4))),
    ("step: serial numbers", shop(counted, Counted(4))),
    ("step: handle that closes", shop(handled, Handle(4), observe=lambda state: state.stock)),
    ("step: ends", shop(ends)),
    ("step: generator from the noise in the state", shop(copied_state, (4, np.random.default_rng(1)))),
    ("step: sampler", shop(lambda stock, order, demand: sold(stock, order, demand), noise=lambda rng: rng.poisson(4))),
    (
        "step: samplers",
        shop(
            lambda stock, order, noise: sold(stock, order, noise["demand"] + noise["visitors"]),
            noise={"demand": lambda rng: rng.poisson(3), "visitors": lambda rng: rng.integers(3)},
        ),
    ),
    ("step: random start", shop(plain, lambda rng: int(rng.integers(6)))),
    ("step: own identity", shop(plain, identity=lambda stock: stock)),
    ("class: live machine agrees", LiveAgrees),
    ("class: idle generators", Idle),
    ("class: log", Logging),
    ("class: memo", Memo),
    ("class: serial numbers in the identity", SerialIdentity),
]
