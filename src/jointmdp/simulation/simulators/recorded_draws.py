"""Generators that record what is drawn from them, and which generators a call makes, from which seeds.

They draw bit for bit what the generators draw that they replace. While a call is recorded, whatever modules hold to
make or seed a generator is replaced by its recording twin.
"""

from __future__ import annotations

import itertools
import os
import pickle
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.random.bit_generator import ISpawnableSeedSequence

from jointmdp.simulation.simulators.fingerprints import safe_fingerprint
from jointmdp.simulation.simulators.generators import state_of
from jointmdp.simulation.simulators.noise import Noise, StreamName, digest, stream_text

_SILENT = ("bit_generator", "spawn", "seed", "getstate", "setstate", "get_state", "set_state", "VERSION")
_LIBRARIES = ("jointmdp", "numpy", "jax", "jaxlib", "scipy")  # in whose modules nothing is replaced
STREAM = "the stream "  # what sources of the noise are called


class Made(NamedTuple):
    """A generator that was made: how, and from which seed; as text it is what its author would write."""

    kind: str
    seed: str  # empty where it was left to seed itself

    def __str__(self) -> str:
        return f"{self.kind}({self.seed})"


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
    made: list[Made] = field(default_factory=list)
    seeded: dict[str, str] = field(default_factory=dict)
    """What generators of the whole program were last seeded with, by the function that seeds them."""

    @property
    def drawn(self) -> list[Made]:
        """The generators made that were also drawn from, or that are seeded for the whole program."""
        return [made for made in self.made if str(made) in self.sources or made.kind in _ALWAYS_DRAWN]

    @property
    def sources(self) -> set[str]:
        """The names of the generators that were drawn from."""
        return {call.source for call in self.calls}


_logs: list[DrawLog] = []  # that generators made now write into; the last one counts


def _log() -> DrawLog:
    """The present log; one that nobody reads where a model kept a recording function and calls it later."""
    return _logs[-1] if _logs else DrawLog()


class _Disguise(type):
    """Stands in for a class: what is an instance of that one is an instance of this one."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, cls.__mro__[1])

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, cls.__mro__[1])


def _recording(base: Any, kind: str) -> Any:
    """A class like `base` whose instances record their calls."""

    def begin(self: Any, *args: Any, **settings: Any) -> None:
        _unrecorded(base.__init__, self, *args, **settings)
        self.log, self.source = None, kind
        given = [*args, *settings.values()][:1]
        if _logs and (not given or _is_seed(given[0])):
            self.log, self.source = _logs[-1], _note(kind, given)

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
    own = {
        "__init__": begin,
        "__module__": base.__module__,
        "__reduce__": lambda self: (_plain, (base, state_of(self))),
    }
    return _Disguise(base.__name__, (base,), {**own, **methods})


def _written(source: str, name: str, rng: Any, args: Any, settings: dict[str, Any]) -> DrawCall:
    given = safe_fingerprint((args, sorted(settings.items())))
    return DrawCall(source, name, given, digest(pickle.dumps(state_of(rng))))


def _plain(base: Any, state: Any) -> Any:
    """What a copy becomes: an ordinary generator, which records nothing."""
    if issubclass(base, np.random.Generator):
        return np.random.Generator(_plain(getattr(np.random, state["bit_generator"]), state))
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


def _unrecorded(call: Callable[..., Any], *args: Any, **settings: Any) -> Any:
    """A call whose own generators and entropy are not recorded."""
    _logs.append(DrawLog())
    try:
        return call(*args, **settings)
    finally:
        _logs.pop()


def _note(kind: str, given: Sequence[Any]) -> str:
    """Record that a generator is made; its name as a source."""
    seed = given[0] if given else None
    if isinstance(seed, np.random.SeedSequence):
        seed = [seed.entropy, *seed.spawn_key] if seed.spawn_key else seed.entropy
    words = "" if seed is None else str(seed if isinstance(seed, int | str | list) else np.asarray(seed))
    made = Made(kind, words)
    _log().made.append(made)
    return str(made)


_RecordingGenerator = _recording(np.random.Generator, "Generator")
_BITS = [np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64]
_ALWAYS_DRAWN = {"random.seed", "numpy.random.seed", "os.urandom", *(kind.__name__ for kind in _BITS)}


def recording(rng: np.random.Generator, source: str, log: DrawLog) -> np.random.Generator:
    """The generator with the same bits that writes into `log`."""
    found: Any = _RecordingGenerator(rng.bit_generator)
    found.log, found.source = log, source
    return found


def _default_rng(seed: Any = None) -> np.random.Generator:
    plain = _unrecorded(_PLAIN_RNG, seed)
    if not _is_seed(seed) or isinstance(seed, np.random.RandomState):
        return plain
    return recording(plain, _note("default_rng", [seed]), _log())


_PLAIN_RNG = np.random.default_rng


def _seeding(kind: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    def seed(*args: Any, **settings: Any) -> Any:
        _log().seeded[kind] = _note(kind, [*args, *settings.values()])
        return plain(*args, **settings)

    return seed


def _global_draws(module: Any, rng: Any, kind: str) -> Iterator[tuple[Any, Any]]:
    """The functions of a module that draw from its generator of the whole program, and what stands in for them."""

    def recorded(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **settings: Any) -> Any:
            log = _log()
            if kind in log.seeded:  # unseeded, it is nobody's noise, and other checks say so
                log.calls.append(_written(log.seeded[kind], name, rng, args, settings))
            return plain(*args, **settings)

        return call

    for name, plain in vars(module).items():
        if getattr(plain, "__self__", None) is rng and not name.startswith("_") and name not in _SILENT:
            yield plain, recorded(name, plain)


def _system_entropy(size: int) -> bytes:
    _note("os.urandom", [])
    return _PLAIN_ENTROPY(size)


_PLAIN_ENTROPY = os.urandom

_TWINS: list[tuple[Any, Any]] = [
    (np.random.default_rng, _default_rng),
    (np.random.RandomState, _recording(np.random.RandomState, "RandomState")),
    (random.Random, _recording(random.Random, "random.Random")),
    (np.random.seed, _seeding("numpy.random.seed", np.random.seed)),
    (random.seed, _seeding("random.seed", random.seed)),
    *_global_draws(random, random._inst, "random.seed"),
    *_global_draws(np.random, np.random.mtrand._rand, "numpy.random.seed"),
    *((kind, _recording(kind, kind.__name__)) for kind in _BITS),
    (os.urandom, _system_entropy),  # random.SystemRandom, secrets and uuid4 draw from it
]

Place = tuple[dict[str, Any], str, Any]  # a module's names, one of them, and what to put there


def _held_by_modules(twins: dict[int, Any]) -> list[Place]:
    """Where modules hold what is to be replaced, by its number: users import it by name, too."""
    found: list[Place] = []
    for name, module in list(sys.modules.items()):
        if module is not None and (name.split(".")[0] not in _LIBRARIES or name == "numpy.random"):
            held = getattr(module, "__dict__", {})
            found += [(held, key, twins[id(value)]) for key, value in list(held.items()) if id(value) in twins]
    return found


@contextmanager
def _replaced(places: list[Place]) -> Iterator[None]:
    kept = [(held, key, held[key]) for held, key, _ in places]
    for held, key, twin in places:
        held[key] = twin
    try:
        yield
    finally:
        for held, key, value in kept:
            held[key] = value


def places() -> list[Place]:
    """All places to replace what makes and seeds generators, found once for many recordings."""
    return _held_by_modules({id(plain): twin for plain, twin in _TWINS})


@contextmanager
def recorded(log: DrawLog, places: list[Place]) -> Iterator[DrawLog]:
    """Generators that are made inside write into `log`."""
    with _replaced(places):
        _logs.append(log)
        try:
            yield log
        finally:
            _logs.pop()


class WatchedNoise(Noise):
    """A noise that knows its copies, so that all their draws are recorded, and which of its forms were used."""

    __slots__ = ("family", "log", "others")

    def __init__(self, *parts: int | str | bytes) -> None:
        super().__init__(*parts)
        self.family: list[WatchedNoise] = [self]
        self.others: set[str] = set()
        self.log: DrawLog | None = None

    def __getitem__(self, name: StreamName) -> np.random.Generator:
        words = stream_text(name)
        if words not in self._streams and self.log is not None:
            self._streams[words] = recording(super().__getitem__(name), f"{STREAM}{words}", self.log)
        return super().__getitem__(name)

    def fresh(self) -> WatchedNoise:
        """The same draw, from its beginning, counted with the others."""
        return self.moved_to(self.address)

    def moved_to(self, address: bytes) -> WatchedNoise:
        """Another draw, counted with this one."""
        found = WatchedNoise.__new__(WatchedNoise)
        found._address, found._streams, found.family, found.others = address, {}, self.family, self.others
        found.log = self.log
        self.family.append(found)
        return found

    @property
    def uniform(self) -> float:
        self.others.add("uniform")
        return super().uniform

    @property
    def seed(self) -> int:
        self.others.add("seed")
        return super().seed

    @property
    def key(self) -> Any:
        self.others.add("key")
        return super().key

    @property
    def taken(self) -> dict[str, int]:
        """64-bit words taken from each stream, over all copies."""
        return dict(sum((Counter(member.draws) for member in self.family), Counter()))


def first_difference(one: DrawLog, other: DrawLog) -> str:
    """Where two steps draw something else from one generator, in words; empty where they draw alike.

    Other parameters of the same distribution are what actions are for, as long as the draws come in one order.
    """
    for source in sorted(one.sources & other.sources):
        x, y = ([call for call in log.calls if call.source == source] for log in (one, other))
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
