"""One draw of noise as a value: the same noise gives the same numbers whenever it is asked.

A `Noise` is an address, not a generator. Its generators are made anew from the address, so that the actions of a query
start from the same place whatever the others consumed, and so that replication 17 draws the same numbers on one worker
as on four. Generators are counter-based (Philox), which also tells how many numbers were taken from each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.random.bit_generator import ISpawnableSeedSequence
from numpy.typing import NDArray

from jointmdp.ground.arrays import random_key, users_calls

if TYPE_CHECKING:
    from jax import Array

StreamName = str | tuple[str | int, ...]
MAIN = "main"  # the stream of simulators with a single source of noise
WORDS = np.dtype("<u8")
START, POLICY = "the start", "the policy"  # what these draw is no stream of a step
SIZE, REDRAWN = 16, b"*"  # bytes of an address, and what follows where some of its sources are drawn anew


class Watcher(Protocol):
    """Who is told of every stream of noise that is made in its context, and hands out the generator."""

    def stream(
        self, noise: Noise, words: str, key: bytes, made: Callable[[bytes], np.random.Generator]
    ) -> np.random.Generator:
        """The generator of a stream, from its key."""

    def function(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """A function of the user's, as it is to be called."""

    def used(self, noise: Noise, source: str) -> None:
        """A source of a noise is drawn from: one of its families of streams, or the noise as a number or a key."""


class Redraw(NamedTuple):
    """Which sources draw other numbers than they did, while all others keep theirs."""

    names: frozenset[str] = frozenset()
    is_rest: bool = False
    """Whether it is all others that do."""
    salt: int = 1
    """Other numbers for each."""

    def holds(self, *names: str) -> bool:
        """Whether the source that is called by any of these names draws other numbers."""
        return self.names.isdisjoint(names) == self.is_rest

    @property
    def mark(self) -> bytes:
        """What it adds to an address, and `marked` reads."""
        parts = [f"{self.is_rest:d}", str(self.salt), *sorted(self.names)]
        return REDRAWN + "\n".join(parts).encode() if self.is_any else b""

    @property
    def is_any(self) -> bool:
        """Whether any source draws other numbers."""
        return bool(self.names) or self.is_rest


AS_IT_WAS = Redraw()


@lru_cache(maxsize=256)
def marked(mark: bytes) -> Redraw:
    """What was added to an address."""
    is_rest, salt, *names = mark[len(REDRAWN) :].decode().split("\n")
    return Redraw(frozenset(names), is_rest == "1", int(salt))


watcher: ContextVar[Watcher | None] = ContextVar("who watches streams of noise", default=None)


class Noise:
    """One draw of a step's randomness.

    ``noise.rng`` is the generator of a simulator with one source of noise. Where there are several, give each its own
    by name, ``noise["demand"]``, ``noise["breakdowns"]``: one source that draws more often then does not shift the
    others. ``noise["service", k]`` is that of the k-th customer, who draws the same whatever others have drawn.
    ``noise.key`` is the same as a JAX key, ``noise.seed`` as a whole number for whatever else wants one.
    """

    __slots__ = ("_address", "_clock", "_parts", "_streams")

    def __init__(self, *parts: int | str | bytes | np.integer[Any]) -> None:
        self._parts, self._address = parts, b""
        self._streams: dict[str, np.random.Generator] = {}

    @property
    def address(self) -> bytes:
        """16 bytes that stand for the draw; made when they are first asked for, since many policies draw nothing."""
        if not self._address:
            words = repr(self._parts)
            if "np." in words:  # numbers of NumPy, perhaps
                words = repr(tuple(int(part) if isinstance(part, np.integer) else part for part in self._parts))
            self._address = digest(words.encode())
        return self._address

    @property
    def rng(self) -> np.random.Generator:
        """The generator of the only source of noise."""
        return self[MAIN]

    def __getitem__(self, name: StreamName) -> np.random.Generator:
        # Equal names have equal texts.
        words = name if isinstance(name, str) else repr(tuple(p if isinstance(p, str) else int(p) for p in name))
        found = self._streams.get(words)
        if found is None:
            watching, address = watcher.get(), self.address
            if watching is not None or len(address) > SIZE:
                address = self.source(family(words))
            key = digest(address + words.encode())
            found = _philox(key) if watching is None else watching.stream(self, words, key, _philox)
            self._streams[words] = found
        return found

    @property
    def uniform(self) -> float:
        """One number in [0, 1), the same at every call; twenty times as quick as the first number of a generator."""
        return (int.from_bytes(digest(self.source("noise.uniform"))[:8], "little") >> 11) * 2.0**-53

    @property
    def seed(self) -> int:
        """A whole number below 2³²: what old generators and simulators take as a seed."""
        return int.from_bytes(self.source("noise.seed")[:4], "little")

    @property
    def key(self) -> Array:
        """The same draw as a JAX key."""
        address = self.source("noise.key")
        with users_calls():
            return random_key(int.from_bytes(address[4:8] + address[:4], "little"))

    def source(self, name: str) -> bytes:
        """The address that a source of the draw begins from: its own, or another where the source is drawn anew."""
        watching, address = watcher.get(), self.address
        if watching is not None:
            watching.used(self, name)
        if address[SIZE : SIZE + 1] != REDRAWN:
            return address
        own, redraw = address[:SIZE], marked(address[SIZE:])
        return digest(own + b"redrawn%d" % redraw.salt) if redraw.holds(name) else own

    def redrawn(self, redraw: Redraw) -> Noise:
        """The draw in which some of the sources give other numbers; whoever keeps its address keeps that too."""
        return Noise.at(self.address + redraw.mark)

    def fresh(self) -> Noise:
        """The same draw, from its beginning."""
        found, clock = self.at(self.address), getattr(self, "_clock", None)
        return found if clock is None else found.with_clock(clock.fresh())

    @property
    def clock(self) -> Noise:
        """What all branches share at the same time, wherever they are; the draw itself where nothing else is said.

        A source of noise that is to be shared in time under ``sharing="state"`` draws from it.
        """
        return getattr(self, "_clock", self)

    def with_clock(self, clock: Noise) -> Noise:
        """This draw, with what is shared at its time."""
        self._clock = clock
        return self

    def moved_to(self, address: bytes) -> Noise:
        """The draw of another address."""
        return Noise.at(address)

    @classmethod
    def at(cls, address: bytes) -> Noise:
        """The draw with this address, from its beginning."""
        found = cls.__new__(cls)
        found._address, found._streams = address, {}
        return found

    @classmethod
    def of_seed(cls, seed: int) -> Self:
        """A draw whose `seed` this is."""
        found = cls()
        found._address = seed.to_bytes(4, "little") + bytes(12)
        return found

    @property
    def draws(self) -> dict[str, int]:
        """How many 64-bit words were taken from each stream so far."""
        return {name: words_taken(rng) for name, rng in self._streams.items()}

    def __repr__(self) -> str:
        return f"Noise({self.address.hex()[:8]}…)"


class _Key(ISpawnableSeedSequence):
    """16 bytes as the key of a Philox generator.

    ``Philox(key=…)`` gathers fresh entropy besides, which takes three times as long as all the rest and gives a
    generator whose children (``rng.spawn``) differ from run to run.
    """

    def __init__(self, key: bytes) -> None:
        self.key, self.children = key, 0

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[Any]:
        if n_words == 2 and (dtype is np.uint64 or np.dtype(dtype) == np.uint64):  # what Philox asks for
            return np.frombuffer(self.key, WORDS)
        words = np.random.SeedSequence(int.from_bytes(self.key, "little"))
        return words.generate_state(n_words, dtype)

    def spawn(self, n_children: int) -> list[_Key]:
        first, self.children = self.children, self.children + n_children
        return [_Key(digest(self.key + b"child%d" % i)) for i in range(first, self.children)]


def _philox(key: bytes) -> np.random.Generator:
    return _Generator(_Philox(_Key(key)))  # type: ignore[arg-type]


_Generator, _Philox = np.random.Generator, np.random.Philox  # themselves, whoever stands in for them


def words_taken(rng: np.random.Generator) -> int:
    """64-bit words that a Philox generator has handed out since it was made with counter 0."""
    state = rng.bit_generator.state
    blocks = sum(int(word) << (64 * i) for i, word in enumerate(state["state"]["counter"]))
    return 4 * blocks - (4 - int(state["buffer_pos"]))


def digest(data: bytes) -> bytes:
    """16 bytes that stand for the data."""
    return hashlib.blake2b(data, digest_size=16).digest()


def family(words: str) -> str:
    """What the streams of one source have in common: ``noise["service", k]`` is of "service"."""
    return "noise.rng" if words == MAIN else words.split(",")[0].strip("()'\"")
