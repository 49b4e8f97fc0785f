"""Gymnasium environments with one planted fault each, and healthy twins.

A walker on a line steps left or right; with probability 0.3 it repeats its last step (sticky), and a gust moves it.
Faults and twins are this environment with one part done otherwise.
"""

from __future__ import annotations

import functools
import itertools
import random
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces, wrappers
from gymnasium.utils import EzPickle

from jointmdp.simulation.simulators.gymnasium_simulator import GymnasiumSimulator

BOARD: dict[str, float] = {}  # where a faulty environment keeps its state


class Line(gymnasium.Env[Any, Any]):
    """Healthy: all randomness from np_random, all state in attributes."""

    observation_space = spaces.Box(-99, 99, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.x, self.previous, self.t = 0.0, 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.x, self.previous, self.t = 0.0, 0, 0
        self.began(seed)
        return self.seen(), {}

    def began(self, seed: int | None) -> None:
        """What else a reset does."""

    def gust(self) -> float:
        return float(self.np_random.normal())

    def stuck(self) -> bool:
        return bool(self.np_random.random() < 0.3)

    def step(self, action: int) -> Any:
        if self.stuck():
            action = self.previous
        self.x += 2 * action - 1 + self.gust()
        self.previous, self.t = int(action), self.t + 1
        return self.seen(), float(self.x), abs(self.x) > 9, False, {}

    def seen(self) -> Any:
        return np.float32([self.x])


class Still(Line):
    """Healthy: nothing is random."""

    def gust(self) -> float:
        return 0.25

    def stuck(self) -> bool:
        return False


class NotSticky(Line):
    def stuck(self) -> bool:
        return False


# -- faults ------------------------------------------------------------------------------------------------------


class WeakPart(NotSticky):
    """A part looks at the environment through a weak reference, which in a copy still points to the original."""

    def __init__(self) -> None:
        super().__init__()
        self.me = weakref.ref(self)

    def gust(self) -> float:
        return 0.1 * self.me().t + super().gust()  # type: ignore[union-attr]


class TiedFunction(NotSticky):
    def __init__(self) -> None:
        super().__init__()
        self.slope = lambda: 0.1 * self.t

    def gust(self) -> float:
        return self.slope() + super().gust()


class OwnCopy(Line):
    """It says itself how it is copied, and forgets what it did last."""

    def __deepcopy__(self, memo: Any) -> Any:
        found = type(self)()
        found.__dict__.update({name: value for name, value in self.__dict__.items() if name != "previous"})
        return found


class OwnPickle(Line):
    def __getstate__(self) -> Any:
        return {name: value for name, value in self.__dict__.items() if name != "previous"}

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state, previous=0)


class ClassState(Line):
    """The time stands in the class."""

    time = 0

    def began(self, seed: int | None) -> None:
        type(self).time = 0

    def gust(self) -> float:
        type(self).time += 1
        return 0.1 * self.time + super().gust()


class ModuleState(Line):
    """The time stands in a dictionary of the module."""

    def began(self, seed: int | None) -> None:
        BOARD["time"] = 0

    def gust(self) -> float:
        BOARD["time"] = BOARD.get("time", 0) + 1
        return 0.1 * BOARD["time"] + super().gust()


class CounterGenerator(NotSticky):
    """A generator is made from the step counter."""

    def gust(self) -> float:
        return float(np.random.default_rng(self.t).normal())


class CounterRandom(NotSticky):
    def gust(self) -> float:
        return random.Random(self.t * 1000 + 7).gauss(0, 1)


class FixedGenerator(NotSticky):
    def gust(self) -> float:
        return float(np.random.default_rng(7).normal())


class PartlyFixed(Line):
    def gust(self) -> float:
        return float(np.random.default_rng(7 + self.t).normal())


class Unseeded(NotSticky):
    def gust(self) -> float:
        return float(np.random.default_rng().normal())


class ClosureGenerator(NotSticky):
    """A function closes over the generator, and is not copied."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(3)
        self.draw = lambda: float(rng.normal())

    def gust(self) -> float:
        return self.draw()


class BoundMethod(NotSticky):
    def __init__(self) -> None:
        super().__init__()
        self.draw = np.random.default_rng(3).normal

    def gust(self) -> float:
        return float(self.draw())


class Tape(NotSticky):
    """The reset fills an iterator, and the copies all go on with the same numbers."""

    def began(self, seed: int | None) -> None:
        self.tape = iter(np.random.default_rng(seed).normal(size=500).tolist())

    def gust(self) -> float:
        return float(next(self.tape))


class EndlessTape(NotSticky):
    """The iterator is made once, and runs on from episode to episode."""

    def __init__(self) -> None:
        super().__init__()
        self.tape = iter(np.random.default_rng(0).normal(size=2_000).tolist())

    def gust(self) -> float:
        return float(next(self.tape))


class Buried(NotSticky):
    """The generator is ten attributes deep."""

    def __init__(self) -> None:
        super().__init__()
        self.box: Any = np.random.default_rng(3)
        for _ in range(10):
            self.box = Box(self.box)

    def gust(self) -> float:
        found = self.box
        while isinstance(found, Box):
            found = found.inside
        return float(found.normal())


class Box:
    def __init__(self, inside: Any) -> None:
        self.inside = inside


class InATuple(NotSticky):
    """What is in a tuple cannot be replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = (np.random.default_rng(3), 1.0)

    def gust(self) -> float:
        return float(self.parts[0].normal())


class FilledOnce(Line):
    """A table is filled by whoever comes first, and never again."""

    table: Any = None

    def gust(self) -> float:
        if self.table is None:
            self.table = self.np_random.normal(size=5)
        return float(self.table[self.t % 5]) + super().gust()


class GlobalGust(Line):
    def gust(self) -> float:
        return float(np.random.normal())  # noqa: NPY002


class GlobalPlain(Line):
    def gust(self) -> float:
        return random.gauss(0, 1)


class Clock(Line):
    def gust(self) -> float:
        return time.perf_counter() % 1 + super().gust()


class HashGust(Line):
    def gust(self) -> float:
        return hash("gust") % 5 + super().gust()


class ModuloSeed(Line):
    """Only ten episodes begin differently."""

    def began(self, seed: int | None) -> None:
        self.x = float(np.random.default_rng((seed or 0) % 10).normal())


class NanLine(Line):
    def seen(self) -> Any:
        return np.float32([self.x if self.t < 2 else np.nan])


class Own(Line):
    """Gusts come from a second generator."""

    def __init__(self) -> None:
        super().__init__()
        self.gusts = np.random.default_rng(0)

    def gust(self) -> float:
        return float(self.gusts.normal())


def hooks(*parts: str, resets: bool = False) -> dict[str, Any]:
    def put(env: Any, value: Any) -> None:
        if resets:
            env.reset()
        env.unwrapped.__dict__.update(zip(parts, value, strict=True))

    return {"get_state": lambda env: tuple(getattr(env.unwrapped, part) for part in parts), "set_state": put}


def of(kind: Callable[[], Any], **settings: Any) -> Callable[[], GymnasiumSimulator]:
    def make() -> GymnasiumSimulator:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the simulator itself warns of frozen noise
            return GymnasiumSimulator(kind(), **settings)

    return make


IN_FULL, NOT_RESTORED, FROZEN = "state not restored in full", "generator not restored", "frozen noise"

FAULTS: list[tuple[str, Callable[[], Any], str, str, str]] = [
    ("gym: weak reference", of(WeakPart, state="copy"), "live", "fail", IN_FULL),
    ("gym: own __deepcopy__", of(OwnCopy, state="copy"), "live", "fail", IN_FULL),
    ("gym: own __deepcopy__ by itself", of(OwnCopy), "live", "fail", IN_FULL),
    ("gym: own __getstate__", of(OwnPickle, state="copy"), "live", "fail", IN_FULL),
    ("gym: set_state resets", of(Line, **hooks("x", "t", resets=True)), "live", "fail", IN_FULL),
    ("gym: set_state drops", of(Line, **hooks("x", "t")), "history", "fail", "dropped previous action"),
    ("gym: set_state drops x", of(NotSticky, **hooks("t")), "restore", "fail", "hidden state not restored"),
    ("gym: state in the class", of(ClassState, state="copy"), "restore", "fail", "hidden state not restored"),
    ("gym: state in the module", of(ModuleState, state="copy"), "restore", "fail", "hidden state not restored"),
    ("gym: generator from the counter", of(CounterGenerator), "noise", "fail", FROZEN),
    ("gym: Random from the counter", of(CounterRandom), "noise", "fail", FROZEN),
    ("gym: fixed seed", of(FixedGenerator), "noise", "fail", FROZEN),
    ("gym: partly fixed", of(PartlyFixed), "noise", "warn", "frozen generator"),
    ("gym: unseeded", of(Unseeded), "restore", "fail", NOT_RESTORED),
    ("gym: tape", of(Tape, state="copy"), "noise", "fail", FROZEN),
    ("gym: endless tape", of(EndlessTape, state="copy"), "noise", "fail", FROZEN),
    ("gym: buried", of(Buried, state="copy", streams=[]), "noise", "fail", FROZEN),
    ("gym: table filled once", of(FilledOnce, **hooks("x", "previous", "t")), "live", "fail", IN_FULL),
    ("gym: global numpy.random", of(GlobalGust), "globals", "fail", "global numpy.random"),
    ("gym: global random", of(GlobalPlain), "globals", "fail", "global random"),
    ("gym: clock", of(Clock, state="copy"), "restore", "fail", "wall clock"),
    ("gym: hash of a text", of(HashGust), "processes", "fail", "process-dependent"),
    ("gym: seeds modulo 10", of(ModuloSeed), "noise", "warn", "seeds that coincide"),
    ("gym: not a number", of(NanLine), "finite", "fail", "number that is not finite"),
    ("gym: stream left out", of(Own, streams=[], **hooks("x", "previous", "t")), "restore", "fail", NOT_RESTORED),
    ("gym: stream frozen", of(Own, streams=[], state="copy"), "noise", "fail", FROZEN),
    ("gym: bounds", of(Line, reward_bounds=(-1.0, 1.0)), "rewards", "fail", "reward outside its bounds"),
    (
        "gym: identity",
        of(Line, identity=lambda env: round(env.unwrapped.x, -1)),
        "identity",
        "fail",
        "identity ignores part of the state",
    ),
]


# -- healthy -----------------------------------------------------------------------------------------------------


class Eased(Line, EzPickle):
    """Its copies are new objects."""

    def __init__(self, wind: float = 0.5) -> None:
        EzPickle.__init__(self, wind)
        super().__init__()
        self.wind = wind

    def gust(self) -> float:
        return self.wind * super().gust()


class Caching(Line):
    """Remembers what it computed, and what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[float] = []

    @functools.cached_property
    def strength(self) -> float:
        return 0.5

    def gust(self) -> float:
        self.log.append(self.x)
        return self.strength * super().gust()


class HiddenGoal(Still):
    """The goal is drawn in the reset and not shown."""

    def began(self, seed: int | None) -> None:
        self.goal = float(self.np_random.integers(-3, 4))

    def step(self, action: int) -> Any:
        seen, _, over, cut, info = super().step(action)
        return seen, -abs(self.x - self.goal), over, cut, info


class Schedule(Line):
    """An iterator over a fixed timetable is state, not noise."""

    def began(self, seed: int | None) -> None:
        self.timetable = iter([0.0, 0.5, 1.0] * 200)

    def gust(self) -> float:
        return float(next(self.timetable)) + super().gust()


class StillSchedule(Schedule):
    def gust(self) -> float:
        return float(next(self.timetable))

    def stuck(self) -> bool:
        return False


class BufferLine(Line):
    """Hands out one buffer again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = np.zeros(1, np.float32)

    def seen(self) -> Any:
        self.buffer[0] = self.x
        return self.buffer


class Timed(Line):
    """The clock is read for people."""

    def step(self, action: int) -> Any:
        seen, reward, over, cut, _ = super().step(action)
        return seen, reward, over, cut, {"at": time.perf_counter()}


class History(Line):
    def began(self, seed: int | None) -> None:
        self.past: deque[float] = deque([0.0] * 3, maxlen=3)

    def gust(self) -> float:
        self.past.append(self.x)
        return 0.1 * sum(self.past) + super().gust()


class Masked(Line):
    """Holds a masked array and an object array, which are copied in ways of their own."""

    def began(self, seed: int | None) -> None:
        self.field = np.ma.masked_array(np.arange(4.0), [False, True, False, False])
        self.things = np.array([None, "a", 2], dtype=object)

    def gust(self) -> float:
        self.field[self.t % 4] = self.x
        return 0.01 * float(self.field.sum()) + super().gust()


class SeededLegacy(Line):
    def began(self, seed: int | None) -> None:
        self.old = np.random.RandomState(seed)

    def gust(self) -> float:
        return float(self.old.normal())


class PlainRandom(Line):
    def began(self, seed: int | None) -> None:
        self.coins = random.Random(seed)

    def stuck(self) -> bool:
        return self.coins.random() < 0.3


class Parts(Line):
    """Two parts with a generator each."""

    class Part:
        def __init__(self, seed: int) -> None:
            self.rng = np.random.default_rng(seed)

    def __init__(self) -> None:
        super().__init__()
        self.parts = {"wind": Parts.Part(1), "rain": Parts.Part(2)}

    def gust(self) -> float:
        return float(self.parts["wind"].rng.normal() - self.parts["rain"].rng.random())


class CountsResets(Line):
    """Counts its episodes, and nothing depends on that."""

    episodes = 0

    def began(self, seed: int | None) -> None:
        self.episodes += 1


class Terrain(Line):
    """The ground is a function of the place, made once."""

    ground = np.random.default_rng(0).normal(size=64)

    def gust(self) -> float:
        return 0.1 * float(self.ground[int(abs(self.x)) % 64]) + super().gust()


class FromNoise(Line):
    """A generator is made in the step, from np_random."""

    def gust(self) -> float:
        return float(np.random.default_rng(self.np_random.integers(2**32)).normal())


class DictLine(Line):
    observation_space = spaces.Dict({"x": spaces.Box(-99, 99, (1,)), "t": spaces.Discrete(1000)})  # type: ignore[assignment]

    def seen(self) -> Any:
        return {"x": np.float32([self.x]), "t": self.t}


class Cycled(Line):
    """A cycle of objects, which a hash has to survive."""

    def __init__(self) -> None:
        super().__init__()
        self.ring: Any = {"next": None}
        self.ring["next"] = self.ring


class Counting(Line):
    """Counts with an iterator."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = itertools.count()

    def began(self, seed: int | None) -> None:
        next(self.numbers)


def wrapped(*around: Callable[[Any], Any]) -> Callable[[], Any]:
    return lambda: functools.reduce(lambda env, wrap: wrap(env), around, Line())


_limit = functools.partial(wrappers.TimeLimit, max_episode_steps=12)
_sticky = functools.partial(wrappers.StickyAction, repeat_action_probability=0.25)
_frames = functools.partial(wrappers.FrameStackObservation, stack_size=3)

TWINS: list[tuple[str, Callable[[], Any]]] = [
    *(
        (f"gym: {kind.__name__}", of(kind))
        for kind in (
            Line,
            Still,
            Eased,
            Caching,
            HiddenGoal,
            Schedule,
            StillSchedule,
            BufferLine,
            Timed,
            History,
            Masked,
            SeededLegacy,
            PlainRandom,
            Parts,
            CountsResets,
            Terrain,
            FromNoise,
            DictLine,
            Cycled,
            Counting,
            Own,
        )
    ),
    *(
        (f"gym: {kind.__name__} replayed", of(kind, state="replay"))
        for kind in (
            Line,
            Still,
            Eased,
            Own,
            WeakPart,
            TiedFunction,
            HiddenGoal,
        )
    ),
    *(
        (f"gym: {kind.__name__} with hooks", of(kind, **hooks("x", "previous", "t")))
        for kind in (
            Line,
            Still,
            Own,
            BufferLine,
            Terrain,
            Eased,
        )
    ),
    ("gym: tied function copied", of(TiedFunction, state="copy")),
    ("gym: closure", of(ClosureGenerator)),
    ("gym: bound method", of(BoundMethod)),
    ("gym: in a tuple", of(InATuple)),
    ("gym: hooks that reset", of(Line, **hooks("x", "previous", "t", resets=True))),
    ("gym: weak reference by itself", of(WeakPart)),
    ("gym: tied function by itself", of(TiedFunction)),
    ("gym: time limit", of(wrapped(_limit))),
    ("gym: sticky wrapper", of(wrapped(_sticky))),
    ("gym: frames", of(wrapped(_frames))),
    ("gym: normalised", of(wrapped(wrappers.NormalizeObservation))),
    ("gym: stacked wrappers", of(wrapped(_sticky, _frames, _limit))),
    ("gym: normalised and still", of(lambda: wrappers.NormalizeReward(Still()))),
    ("gym: rescaled", of(lambda: wrappers.TransformReward(Line(), lambda reward: 0.1 * reward))),
]
