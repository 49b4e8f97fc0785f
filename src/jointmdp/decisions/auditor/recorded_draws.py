"""Generators that write down what is drawn from them, and which generators a call makes, from which seeds.

They draw bit for bit what the generators draw that they stand in for.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import pickle
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from numpy.random.bit_generator import ISpawnableSeedSequence

from jointmdp.decisions.auditor.observed_outcomes import safe_fingerprint

_SILENT = ("bit_generator", "spawn", "seed", "getstate", "setstate", "get_state", "set_state", "VERSION")
_UNSEEDED = "no seed"
STREAM = "the stream "  # what sources of the noise are called


class DrawCall(NamedTuple):
    """One call of a generator."""

    source: str
    method: str
    arguments: bytes
    standing: bytes
    """Where the generator stood before."""


@dataclass
class DrawLog:
    """What was drawn, and which generators were made: how, and from which seed."""

    calls: list[DrawCall] = field(default_factory=list)
    made: list[tuple[str, str]] = field(default_factory=list)
    seeded: dict[str, str] = field(default_factory=dict)
    """What generators of the whole program were last seeded with, by the function that seeds them."""

    @property
    def drawn(self) -> list[tuple[str, str]]:
        """The generators made that were also drawn from, or that are seeded for the whole program."""
        used = {call.source for call in self.calls}
        return [made for made in self.made if text(made) in used or made[0] in _ALWAYS_DRAWN]

    def of(self, source: str) -> list[DrawCall]:
        """The calls of one generator, in their order."""
        return [call for call in self.calls if call.source == source]

    @property
    def sources(self) -> set[str]:
        """The names of the generators that were drawn from."""
        return {call.source for call in self.calls}


def text(made: tuple[str, str]) -> str:
    """How a generator was made, as its author would write it."""
    kind, seed = made
    return f"{kind}({'' if seed == _UNSEEDED else seed})"


def is_unseeded(made: tuple[str, str]) -> bool:
    """Whether a generator was left to seed itself."""
    return made[1] == _UNSEEDED


class _Disguise(type):
    """Stands in for a class: what is an instance of that one is an instance of this one."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, cls.__mro__[1])

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, cls.__mro__[1])


_now: list[DrawLog] = []  # logs that generators made now write into


def _recording(base: Any, kind: str) -> Any:
    """A class like `base` whose instances write their calls down."""

    def begin(self: Any, *args: Any, **settings: Any) -> None:
        _inside(base.__init__, self, *args, **settings)
        self.log, self.source = None, kind
        given = [*args, *settings.values()][:1]
        if _now and (not given or _is_seed(given[0])):
            self.log, self.source = _now[-1], text(_note(kind, given))

    def recorded(name: str) -> Callable[..., Any]:
        plain = getattr(base, name)

        def call(self: Any, *args: Any, **settings: Any) -> Any:
            log, self.log = getattr(self, "log", None), None  # calls inside of this one are its own business
            if log is not None:
                log.calls.append(_written(self.source, name, self, args, settings))
            try:
                return plain(self, *args, **settings)
            finally:
                self.log = log

        return call

    names = [name for name in dir(base) if not name.startswith("_") and name not in _SILENT]
    is_bits = issubclass(base, np.random.BitGenerator)
    methods = {} if is_bits else {name: recorded(name) for name in names if callable(getattr(base, name))}
    own = {"__init__": begin, "__module__": base.__module__, "__reduce__": lambda self: (_plain, (base, _state(self)))}
    return _Disguise(base.__name__, (base,), {**own, **methods})


def _written(source: str, name: str, rng: Any, args: Any, settings: dict[str, Any]) -> DrawCall:
    given = safe_fingerprint((args, sorted(settings.items())))
    return DrawCall(source, name, given, hashlib.blake2b(pickle.dumps(_state(rng)), digest_size=16).digest())


def _state(rng: Any) -> Any:
    """Where a generator of any kind stands."""
    if isinstance(rng, random.Random):
        return rng.getstate()
    return rng.get_state() if isinstance(rng, np.random.RandomState) else getattr(rng, "bit_generator", rng).state


def _plain(base: Any, state: Any) -> Any:
    """What a copy becomes: an ordinary generator, which writes nothing down."""
    if issubclass(base, np.random.Generator):
        bits = getattr(np.random, state["bit_generator"])(0)
        bits.state = state
        return np.random.Generator(bits)
    found = base(0)
    if issubclass(base, random.Random):
        found.setstate(state)
    elif issubclass(base, np.random.RandomState):
        found.set_state(state)
    else:
        found.state = state
    return found


def _is_seed(value: Any) -> bool:
    """Whether a generator made from it is a new one; our own noise makes its generators from keys."""
    is_key = isinstance(value, ISpawnableSeedSequence) and not isinstance(value, np.random.SeedSequence)
    return not is_key and not isinstance(value, np.random.BitGenerator | np.random.Generator)


def _inside(call: Callable[..., Any], *args: Any, **settings: Any) -> Any:
    """A call whose own generators and entropy are no news."""
    _now.append(DrawLog())
    try:
        return call(*args, **settings)
    finally:
        _now.pop()


def _note(kind: str, given: list[Any]) -> tuple[str, str]:
    """Write down that a generator is made."""
    seed = given[0] if given else None
    if isinstance(seed, np.random.SeedSequence):
        seed = [seed.entropy, *seed.spawn_key] if seed.spawn_key else seed.entropy
    words = _UNSEEDED if seed is None else str(seed if isinstance(seed, int | str | list) else np.asarray(seed))
    _now[-1].made.append((kind, words))
    return kind, words


RecordingGenerator = _recording(np.random.Generator, "Generator")
_RecordingState = _recording(np.random.RandomState, "RandomState")
_RecordingRandom = _recording(random.Random, "random.Random")
_BITS = [np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64]
_ALWAYS_DRAWN = {"random.seed", "numpy.random.seed", "os.urandom", *(kind.__name__ for kind in _BITS)}


def recording(rng: np.random.Generator, source: str, log: DrawLog) -> np.random.Generator:
    """The generator with the same bits that writes into `log`."""
    found: Any = RecordingGenerator(rng.bit_generator)
    found.log, found.source = log, source
    return found


def _default_rng(seed: Any = None) -> np.random.Generator:
    plain = _inside(_PLAIN_RNG, seed)
    if not _is_seed(seed) or isinstance(seed, np.random.RandomState):
        return plain
    return recording(plain, text(_note("default_rng", [seed])), _now[-1])


_PLAIN_RNG = np.random.default_rng


def _seeding(kind: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    def seed(*args: Any, **settings: Any) -> Any:
        source = text(_note(kind, [*args, *settings.values()]))
        _now[-1].seeded.pop(kind, None)
        if sys._getframe(1).f_globals.get("__name__", "").split(".")[0] != "jointmdp":  # else it is nobody's noise
            _now[-1].seeded[kind] = source
        return plain(*args, **settings)

    return seed


def _global_draws(module: Any, rng: Any, kind: str) -> Iterator[tuple[Any, Any]]:
    """The functions of a module that draw from its generator of the whole program, and what stands in for them."""

    def recorded(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **settings: Any) -> Any:
            # Unseeded, it is nobody's noise, and other checks say so; a model may keep the function and call it later.
            source = _now[-1].seeded.get(kind) if _now else None
            if source is not None:
                _now[-1].calls.append(_written(source, name, rng, args, settings))
            return plain(*args, **settings)

        return call

    for name, plain in vars(module).items():
        if getattr(plain, "__self__", None) is rng and not name.startswith("_") and name not in _SILENT:
            yield plain, recorded(name, plain)


def _system_entropy(size: int) -> bytes:
    _note("os.urandom", [])
    return _PLAIN_ENTROPY(size)


_PLAIN_ENTROPY = os.urandom

_STANDINS: list[tuple[Any, Any]] = [
    (np.random.default_rng, _default_rng),
    (np.random.RandomState, _RecordingState),
    (random.Random, _RecordingRandom),
    (np.random.seed, _seeding("numpy.random.seed", np.random.seed)),
    (random.seed, _seeding("random.seed", random.seed)),
    *_global_draws(random, random._inst, "random.seed"),
    *_global_draws(np.random, np.random.mtrand._rand, "numpy.random.seed"),
    *((kind, _recording(kind, kind.__name__)) for kind in _BITS),
    (os.urandom, _system_entropy),  # random.SystemRandom, secrets and uuid4 draw from it
]
_OWN = ("jointmdp", "numpy", "jax", "scipy")


def _places() -> Iterator[tuple[dict[str, Any], str, Any]]:
    """Where modules hold what generators are made with: users import it by name, too."""
    standins = {id(plain): standin for plain, standin in _STANDINS}
    for name, module in list(sys.modules.items()):
        if module is None or (name.split(".")[0] in _OWN and name != "numpy.random"):
            continue
        held = getattr(module, "__dict__", {})
        yield from ((held, key, standins[id(value)]) for key, value in list(held.items()) if id(value) in standins)


@contextmanager
def recorded(log: DrawLog, places: list[Any]) -> Iterator[DrawLog]:
    """Generators that are made inside write into `log`."""
    with ExitStack() as stack:
        for held, key, standin in places:
            stack.enter_context(mock.patch.dict(held, {key: standin}))
        _now.append(log)
        stack.callback(_now.pop)
        yield log


def places() -> list[Any]:
    """All places to patch, found once for many recordings."""
    return list(_places())


def first_difference(one: DrawLog, other: DrawLog) -> str:
    """Where two steps draw something else from one generator, in words; empty where they draw alike.

    Other parameters of the same distribution are what actions are for, as long as the draws come in one order.
    """
    for source in sorted(one.sources & other.sources):
        x, y = one.of(source), other.of(source)
        # How much is taken from a stream of the noise is counted in words; two calls may take half a word each.
        pairs = zip(x, y, strict=False) if source.startswith(STREAM) else itertools.zip_longest(x, y)
        for i, (a, b) in enumerate(pairs):
            if a is None or b is None or a.method != b.method:
                names = [f"{call.method}()" if call else "nothing" for call in (a, b)]
                return f"draw {i + 1} from {source} is {names[0]} for one and {names[1]} for the other"
            if a.standing != b.standing:
                return f"draw {i + 1} from {source} begins elsewhere, since draws before it took more or fewer numbers"
        given = [[call[1:3] for call in calls] for calls in (x, y)]
        if given[0] != given[1] and sorted(given[0]) == sorted(given[1]):
            return f"the draws from {source} are the same in another order"
    return ""
