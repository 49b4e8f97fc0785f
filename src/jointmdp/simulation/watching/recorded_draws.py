"""Generators that record what is drawn from them: every stream of noise that a call touches, draw by draw.

They draw bit for bit what the generators draw that they stand in for. While anything is recorded, whatever modules hold
to make or seed a generator is replaced by its twin (`twins`).

A stream is a generator from where it was made or seeded: by which call in which line, from which seed. Streams that are
made at one place are a group, which `redrawn` gives other numbers while all others keep theirs.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.random._pickle as numpy_pickle
from numpy.random.bit_generator import ISpawnableSeedSequence

from jointmdp.simulation.simulators.fingerprints import safe_fingerprint
from jointmdp.simulation.simulators.generators import COMPILED, compiled_states, place_of, put_state, standing, state_of
from jointmdp.simulation.simulators.noise import AS_IT_WAS, POLICY, START, Noise, Redraw, digest, family, watcher
from jointmdp.simulation.watching.patched_functions import (
    PACKAGE,
    Disguise,
    Path,
    Twins,
    path_here,
    place_text,
    position,
    turns_here,
    with_twins,
)

_SILENT = ("bit_generator", "getstate", "setstate", "get_state", "set_state", "VERSION")
_SHUFFLES = ("permutation", "permuted", "shuffle", "choice")  # which give rows that they were handed
MOST_DRAWS = 20_000  # of a stream that are written down

NOISE = "noise"  # the kind of the streams of a `Noise`
# Kinds that draw the same numbers from the same seed.
SAME_NUMBERS = {"default_rng": "PCG64", "numpy.random.seed": "RandomState", "random.seed": "random.Random"}
# Whose generator is everybody's.
OF_PROGRAM = {f"{name}.seed": name for name in ("random", "numpy.random", *COMPILED)}
# Draws that nobody can follow.
UNSEEN = ("os.urandom", "jax.random.key", "jax.random.PRNGKey", "jax.random.fold_in", "torch.manual_seed")


class Draw(NamedTuple):
    """One call of a generator."""

    method: str
    arguments: Any
    standing: int
    """Where the generator stood before, hashed."""
    path: Path
    rows: tuple[int, ...] = ()
    """The shape of one of several rows that it gave: what is filled row by row."""


@dataclass(eq=False, slots=True)
class Stream:
    """A generator from where it was made or seeded; as text it is what its author would write."""

    kind: str
    seed: str | None  # None where it was left to seed itself
    path: Path  # by which it was made
    log: DrawLog = field(repr=False)
    draws: list[Draw] = field(default_factory=list)
    turns: list[tuple[tuple[str, Any], ...]] = field(default_factory=list)  # whose draw each is, in a thorough log
    threads: set[int] = field(default_factory=set)  # that drew from it
    is_kept: bool = False  # made before the call that is recorded
    is_child: bool = False  # one of several that a seed or a generator has spawned
    set_back: Draw | None = None  # the first that draws numbers which were drawn before
    began: int = 0  # the how-manieth of all streams it was to be drawn from
    number: int = 0  # the how-manieth of its group it was to be made
    rng: Any = field(default=None, repr=False)  # of a thorough log, as long as that is written
    after: int | None = None  # where the last draw left it, there
    is_eaten: bool = False  # moved by what is not written down: compiled code, or somebody who sets its state
    end: int | None = None  # where a thorough log left it

    def __str__(self) -> str:
        if self.kind != NOISE:
            return f"{self.kind}({self.seed or ''})"
        words = str(self.seed)
        return f"noise[{words[1:-1]}]" if words.startswith("(") else f'noise["{words}"]'

    @property
    def group(self) -> str:
        """What it has in common with the streams that stand for the same source."""
        if self.kind == NOISE:
            return family(str(self.seed))
        return place_text(self.path)

    @property
    def title(self) -> str:
        """What it is and where it is made, in few words."""
        if (shared := OF_PROGRAM.get(self.kind, "")) in COMPILED:
            return shared
        return self.group if self.kind == NOISE else f"{self.kind} at {self.group}"

    def follow(self, rng: Any) -> None:
        """Look for moves of the generator that are no draws, where the log is thorough."""
        if self.log.is_thorough and not self.is_kept:
            self.rng, self.after = rng, _standing(rng)

    def finish(self) -> None:
        """The log is at its end."""
        if self.rng is not None:
            self.end, self.rng = _standing(self.rng), None
            self.is_eaten |= self.end != self.after

    def gave(self, found: Any, rng: Any) -> Any:
        """What the last call gave."""
        self.follow(rng)
        if len(self.draws) > 1 and self.draws[-1] == self.draws[-2] and _standing(rng) != self.draws[-1].standing:
            self.set_back = self.set_back or self.draws[-1]  # the one before has moved the generator just so
        has_rows = isinstance(found, np.ndarray) and found.ndim > 1 and len(found) > 1
        if has_rows and len(self.draws) < MOST_DRAWS and self.draws[-1].method not in _SHUFFLES:
            self.draws[-1] = self.draws[-1]._replace(rows=found.shape[1:])
        return found

    @property
    def names(self) -> tuple[str, str]:
        """Its group, and itself within that."""
        return self.group, f"{self.group} #{self.number}"

    def note(self, method: str, rng: Any, args: Any, settings: dict[str, Any]) -> None:
        """Write a call down."""
        if not self.draws:
            self.log.begun += 1
            self.began = self.log.begun
        self.threads.add(threading.get_ident())
        if len(self.draws) < MOST_DRAWS:
            given = (*args, *settings.items()) if settings else args
            try:
                hash(given)
            except TypeError:
                given = safe_fingerprint(given)
            draw = Draw(method, given, _standing(rng), self.log.interned(path_here(2)))
            if self.after not in (None, draw.standing):
                if any(each.standing == draw.standing for each in self.draws):
                    self.set_back = self.set_back or draw
                else:
                    self.is_eaten |= self.rng is not None
            self.draws.append(draw)
            if self.log.is_thorough:
                self.turns.append(turns_here(draw.path))


@dataclass(eq=False)
class DrawLog:
    """The streams that a call touched."""

    streams: list[Stream] = field(default_factory=list)
    redraw: Redraw = AS_IT_WAS
    """Groups of streams that draw other numbers than their seeds say."""
    program: dict[str, Stream] = field(default_factory=dict)
    """Generators of the whole program, by what seeds them."""
    states: dict[tuple[str, int], Stream] = field(default_factory=dict)
    """Of these, where somebody has kept where they stood, to put them back there."""
    keys: list[Draw] = field(default_factory=list)  # what those of JAX were used for, as far as Python sees
    roots: dict[int, str] = field(default_factory=dict)  # those made from a seed and never seen used, and by what
    begun: int = 0
    """Streams that were drawn from."""
    thread: int = field(default_factory=threading.get_ident)
    """In which the call began."""
    is_thorough: bool = False
    """Whether moves of generators that are no draws are looked for, which takes as long as the draws."""
    compiled: dict[str, bytes] = field(default_factory=compiled_states)
    """Where the generators stood at first that compiled code draws from."""
    _paths: dict[Path, Path] = field(default_factory=dict)
    _kept: dict[int, Stream] = field(default_factory=dict)
    _groups: Counter[str] = field(default_factory=Counter)

    def interned(self, path: Path) -> Path:
        """The path, as one object however often it is walked."""
        return self._paths.setdefault(path, path)

    def made(self, kind: str, seed: Any, is_kept: bool = False, is_child: bool = False) -> Stream:
        """A new stream."""
        is_child |= isinstance(seed, np.random.SeedSequence) and bool(seed.spawn_key)
        found = Stream(kind, _seed_text(seed), self.interned(path_here(2)), self, is_kept=is_kept, is_child=is_child)
        if self.redraw.is_any and not is_kept:
            self._groups[found.group] += 1
            found.number = self._groups[found.group]
        self.streams.append(found)
        return found

    def of_program(self, kind: str) -> Stream:
        """A generator of the whole program; before it is seeded it has no seed."""
        if kind not in self.program:
            self.program[kind] = self.made(kind, None, is_kept=True)
        return self.program[kind]

    def leave(self, kind: str) -> None:
        """A generator of the whole program is put elsewhere: nobody follows its stream any more."""
        if kind in self.program:
            self.program[kind].rng = None

    def salt(self, stream: Stream) -> bytes:
        """What its seed is mixed with, where it draws other numbers."""
        return b"salt%d" % self.redraw.salt if self.redraw.holds(*stream.names) else b""

    def kept(self, old: Stream) -> Stream:
        """A stream of an earlier call that is drawn from in this one."""
        if id(old) not in self._kept:
            self._kept[id(old)] = Stream(old.kind, old.seed, old.path, self, is_kept=True)
            self.streams.append(self._kept[id(old)])
        return self._kept[id(old)]

    @property
    def drawn(self) -> list[Stream]:
        """The streams that were drawn from, as far as one can know."""
        return [each for each in self.streams if each.draws or each.kind in UNSEEN or each.is_eaten]

    def finish(self) -> None:
        """The call is at its end."""
        for name, state in compiled_states().items():
            if self.compiled.get(name, state) != state:
                stream = self.of_program(f"{name}.seed")
                stream.is_eaten, stream.end = True, hash(state)
        for stream in self.streams:
            stream.finish()

    def stream(self, noise: Noise, words: str, key: bytes, made: Callable[[bytes], Any]) -> Any:
        """The generator of a stream of a noise; `Noise` asks for it."""
        found = self.made(NOISE, words)
        if salt := self.salt(found):
            key = digest(key + salt)
        return recording(made(key), found)

    def function(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """With twins for what it was handed by value, beside what modules hold."""
        return with_twins(run, {id(plain): twin for plain, twin in _pairs()})

    def used(self, noise: Noise, source: str) -> None:
        """Streams are all that is written down."""


_UNPICKLED = str(numpy_pickle.__file__)  # puts together what comes out of a file
_present: ContextVar[DrawLog | None] = ContextVar("the log of the recording under way", default=None)


# -- twins -----------------------------------------------------------------------------------------------------------


def _standing(rng: Any) -> int:
    """Where a generator stands, as a number that is quick to make."""
    state = state_of(rng)
    return hash(state if isinstance(state, tuple) else _flat(state))


def _flat(state: Any) -> Any:
    if isinstance(state, dict):
        return tuple(map(_flat, state.values()))
    return state.tobytes() if isinstance(state, np.ndarray) else state


class _Recording(Disguise):
    """Of the class of a twin: what is unwatched is made by the plain one."""

    def __call__(cls, *args: Any, **settings: Any) -> Any:
        if _present.get() is None and "is_twin" in vars(cls):
            return cls.__mro__[1](*args, **settings)
        return super().__call__(*args, **settings)


def _recording(base: Any, kind: str) -> Any:
    """A class like `base` whose instances record their calls."""

    def begin(self: Any, *args: Any, **settings: Any) -> None:
        self.stream = None
        log, given = _present.get(), _first([*args, *settings.values()])
        if log is None:
            base.__init__(self, *args, **settings)
        elif isinstance(given, np.random.BitGenerator):
            base.__init__(self, *args, **settings)
            self.stream = getattr(given, "stream", None)
            if sys._getframe(2).f_code.co_filename == _UNPICKLED and not _is_ours():
                self.stream = log.made(type(given).__name__, place_of(given))
        else:
            both = [each for each in (*args, *settings.values()) if each is not None]
            stream = log.made(kind, both if len(both) > 1 else given)
            args, settings = _salted(log, stream, args, settings)
            unrecorded(base.__init__, self, *args, **settings)
            self.stream = stream
            stream.follow(self)

    def recorded(name: str) -> Callable[..., Any]:
        plain = getattr(base, name)

        def call(self: Any, *args: Any, **settings: Any) -> Any:
            log, stream = _present.get(), getattr(self, "stream", None)
            if log is None or stream is None:
                return plain(self, *args, **settings)
            if stream.log is not log:
                stream = log.kept(stream)
            self.stream = None  # calls inside of this one are its own business
            try:
                if name == "seed":
                    stream.rng = None  # nobody follows it any more
                    stream = log.made(f"{kind}.seed", _first(args))
                    args, settings = _salted(log, stream, args, settings)
                elif name == "spawn":
                    return _spawned(log, stream, plain(self, *args, **settings))
                elif name == "jumped":
                    made = log.made(kind, f"{stream.seed} jumped {_first(args)}")
                    found = unrecorded(type.__call__, type(self), _derived(log, made))
                    if not log.redraw.is_any:
                        found.state = unrecorded(plain, self, *args, **settings).state
                    found.stream = made
                    return found
                else:
                    stream.note(name, self, args, settings)
                    return stream.gave(plain(self, *args, **settings), self)
                return plain(self, *args, **settings)
            finally:
                self.stream = stream

        return call

    names = [name for name in dir(base) if not name.startswith("_") and name not in _SILENT]
    if issubclass(base, np.random.BitGenerator):
        names = [name for name in ("random_raw", "jumped") if hasattr(base, name)]

    def setstate(self: Any, state: Any) -> None:
        base.setstate(self, state)
        stream = getattr(self, "stream", None)
        if _present.get() is not None and stream is not None and stream.seed is None and not stream.draws:
            stream.seed = place_of(self)
            stream.follow(self)

    own = {
        "__init__": begin,
        "__module__": base.__module__,
        "is_twin": True,
        "__reduce__": lambda self: (_unpickled, _named(base, self)),
        "__copy__": lambda self: _copied(*_named(base, self)),
        "__deepcopy__": lambda self, memo: _copied(*_named(base, self)),
        **{name: recorded(name) for name in names if callable(getattr(base, name))},
        **({"setstate": setstate} if hasattr(base, "setstate") else {}),
    }
    return _Recording(base.__name__, (base,), own)


def _first(given: Sequence[Any]) -> Any:
    return given[0] if given else None


def _spawned(log: DrawLog, parent: Stream, children: Sequence[Any]) -> list[Any]:
    """Children of a generator, each a stream of its own."""
    before = sum(str(stream.seed).startswith(f"{parent.seed} child") for stream in log.streams)
    found = []
    for i, child in enumerate(children):
        made = log.made(f"{parent.kind}.spawn", f"{parent.seed} child {before + i}", is_child=True)
        # Where streams are redrawn one by one, other numbers of the parent must not be other numbers of its children.
        own = unrecorded(_PLAIN_RNG, _derived(log, made)) if log.redraw.is_any else child
        found.append(recording(own, made))
    return found


def _derived(log: DrawLog, stream: Stream) -> int:
    """A seed made from the text of a stream's own, with its salt."""
    return int.from_bytes(digest(f"{stream.seed} ".encode() + log.salt(stream)), "little")


def _plain(base: Any, state: Any) -> Any:
    """What comes back from a file or another process: an ordinary generator, which records nothing."""
    if issubclass(base, np.random.Generator):
        bits = _plain(getattr(np.random, state["bit_generator"]), state)
        return unrecorded(np.random.Generator, bits)
    return put_state(unrecorded(base, 0), state)


def _named(base: Any, rng: Any) -> tuple[Any, Any, str, str | None]:
    """What a copy is made of: its class, where it stands, and how the stream was made that it is a copy of."""
    stream = rng.stream
    return base, state_of(rng), *(("", None) if stream is None else (stream.kind, stream.seed))


def _copied(base: Any, state: Any, kind: str, seed: str | None) -> Any:
    """A copy is a stream of its own, with the seed of the one that it is made of."""
    log = _present.get()
    if log is None or not kind:
        return _plain(base, state)
    made = log.made(kind, seed)
    if issubclass(base, np.random.Generator):
        return recording(_plain(base, state), made)
    found = put_state(unrecorded(type.__call__, dict(_PLAIN_TWINS)[base], 0), state)
    found.stream = made
    return found


def _unpickled(base: Any, state: Any, kind: str, seed: str | None) -> Any:
    """A copy that comes out of a file, unless we have put it there."""
    return _plain(base, state) if _is_ours() else _copied(base, state, kind, seed)


def _is_ours() -> bool:
    """Whether it is this package that makes a copy, of a state or to look at it."""
    path = path_here(1)
    return not path or path[0].co_filename.startswith(PACKAGE)


def unrecorded(call: Callable[..., Any], *args: Any, **settings: Any) -> Any:
    """A call whose own generators and entropy are not recorded."""
    token = _present.set(None)
    try:
        return call(*args, **settings)
    finally:
        _present.reset(token)


def _seed_text(seed: Any) -> str | None:
    """A seed as its author would write it."""
    if isinstance(seed, np.random.SeedSequence):
        if seed.spawn_key:
            return f"SeedSequence({seed.entropy}, spawn_key={tuple(map(int, seed.spawn_key))})"
        seed = seed.entropy
    if seed is None or isinstance(seed, int | str | list):
        return None if seed is None else str(seed)
    return str(np.asarray(seed))


def _salted(log: DrawLog, stream: Stream, args: Any, settings: Any) -> tuple[Any, Any]:
    """What a generator is made from; another seed, made from its own, where its group is redrawn."""
    if not log.redraw.is_any or stream.seed is None or not log.salt(stream):
        return args, settings
    number = _derived(log, stream) % 2**32
    return (number, *args[1:]) if args else (), settings if args else dict.fromkeys([*settings][:1], number)


_RecordingGenerator = _recording(np.random.Generator, "Generator")
_BITS = [np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64]


def recording(rng: np.random.Generator, stream: Stream) -> np.random.Generator:
    """The generator with the same bits that writes into a stream."""
    found: Any = _RecordingGenerator(rng.bit_generator)
    found.stream = stream
    stream.follow(found)
    return found


def _default_rng(seed: Any = None) -> np.random.Generator:
    log = _present.get()
    is_ours = isinstance(seed, ISpawnableSeedSequence) and not isinstance(seed, np.random.SeedSequence)
    is_made = isinstance(seed, np.random.BitGenerator | np.random.Generator | np.random.RandomState)
    if log is None or is_ours or is_made:
        stream = None if log is None else getattr(seed, "stream", None)
        plain = unrecorded(_PLAIN_RNG, seed)
        return plain if stream is None or plain is seed else recording(plain, stream)
    stream = log.made("default_rng", seed)
    args, _ = _salted(log, stream, (seed,), {})
    return recording(unrecorded(_PLAIN_RNG, *args), stream)


_PLAIN_RNG = np.random.default_rng


def _seeding(kind: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    def seed(*args: Any, **settings: Any) -> Any:
        log, given = _present.get(), _first([*args, *settings.values()])
        is_ours = kind not in OF_PROGRAM and sys._getframe(1).f_code.co_filename.startswith(PACKAGE)
        if log is not None and not is_ours and (kind in OF_PROGRAM or isinstance(given, int)):
            log.leave(kind)
            log.program[kind] = log.made(kind, given)
            args, settings = _salted(log, log.program[kind], args, settings)
        found = plain(*args, **settings)
        if log is not None and not is_ours and kind in UNSEEN and found is not None:
            with suppress(Exception):  # while a program is traced
                log.roots[hash(standing(found))] = kind
        return found

    return seed


def _keyed(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is given a key; in one that is compiled nobody sees its keys."""

    def call(*args: Any, **settings: Any) -> Any:
        log, found = _present.get(), plain(*args, **settings)
        if log is not None and not sys._getframe(1).f_code.co_filename.startswith(PACKAGE):
            with suppress(Exception):  # while a program is traced
                key = hash(standing(args[0] if args else settings["key"]))
                if name == "fold_in":  # the key is made from both
                    log.made("jax.random.fold_in", str(np.asarray(sys.modules["jax"].random.key_data(found)).tolist()))
                elif len(log.keys) < MOST_DRAWS:
                    log.keys.append(Draw(name, None, key, log.interned(path_here(1))))
                log.roots.pop(key, None)
        return found

    return call


def _global_draws(module: Any, rng: Any, kind: str) -> Iterator[tuple[Any, Any]]:
    """The functions of a module that draw from its generator of the whole program, and what stands in for them."""

    def recorded(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **settings: Any) -> Any:
            log = _present.get()
            if log is None:
                return plain(*args, **settings)
            stream = log.of_program(kind)
            stream.note(name, rng, args, settings)
            return stream.gave(plain(*args, **settings), rng)

        return call

    def kept(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **settings: Any) -> Any:
            found, log = plain(*args, **settings), _present.get()
            if log is not None and name.startswith("get"):
                log.states[kind, _standing(rng)] = log.of_program(kind)
            elif log is not None:  # whoever puts it to a place that nobody has kept, seeds it
                log.leave(kind)
                known = log.states.get((kind, _standing(rng)))
                log.program[kind] = known or log.made(kind, f"state {_standing(rng)}")
            return found

        return call

    for name, plain in vars(module).items():
        is_its = getattr(plain, "__self__", None) is rng and not name.startswith("_")
        if is_its and name in ("getstate", "setstate", "get_state", "set_state"):
            yield plain, kept(name, plain)
        elif is_its and name not in _SILENT and name != "seed":
            yield plain, recorded(name, plain)


def _system_entropy(size: int) -> bytes:
    if log := _present.get():
        log.made("os.urandom", None)
    return _PLAIN_ENTROPY(size)


_PLAIN_ENTROPY = os.urandom
_PLAIN_TWINS: list[tuple[Any, Any]] = [
    (np.random.default_rng, _default_rng),
    (np.random.Generator, _RecordingGenerator),
    (np.random.RandomState, _recording(np.random.RandomState, "RandomState")),
    (random.Random, _recording(random.Random, "random.Random")),
    (np.random.seed, _seeding("numpy.random.seed", np.random.seed)),
    (random.seed, _seeding("random.seed", random.seed)),
    *_global_draws(random, random._inst, "random.seed"),
    *_global_draws(np.random, np.random.mtrand._rand, "numpy.random.seed"),
    *((kind, _recording(kind, kind.__name__)) for kind in _BITS),
    (os.urandom, _system_entropy),  # random.SystemRandom, secrets and uuid4 draw from it
]
_SEEDING: dict[Any, Any] = {}  # seeds of PyTorch and keys of JAX, where somebody has loaded these


def _pairs() -> list[tuple[Any, Any]]:
    keyed: Any = sys.modules.get("jax.random")
    if hasattr(keyed, "split") and not {keyed.split} & {*_SEEDING, *_SEEDING.values()}:
        given = {name: f for name, f in vars(keyed).items() if callable(f) and not isinstance(f, type)}
        names = [name for name, f in given.items() if [*inspect.signature(f).parameters][:1] == ["key"]]
        _SEEDING.update({given[name]: _keyed(name, given[name]) for name in names if name != "clone"})
    for module, name in (("jax.random", "key"), ("jax.random", "PRNGKey"), ("torch", "manual_seed")):
        plain = getattr(sys.modules.get(module), name, None)
        if plain is not None and plain not in _SEEDING.values():
            _SEEDING.setdefault(plain, _seeding(f"{module}.{name}", plain))
    return [*_PLAIN_TWINS, *_SEEDING.items()]


# -- while something is recorded -------------------------------------------------------------------------------------


def _start(thread: threading.Thread) -> None:
    """A thread that is begun while something is recorded is recorded too."""
    if _present.get() is not None:
        context, run = copy_context(), thread.run
        thread.run = lambda: context.run(run)  # type: ignore[method-assign]
    _PLAIN_START(thread)


def _submit(pool: ThreadPoolExecutor, call: Callable[..., Any], /, *args: Any, **settings: Any) -> Any:
    """Work for threads that may have begun long before."""
    if _present.get() is not None:
        call = partial(copy_context().run, call)
    return _PLAIN_SUBMIT(pool, call, *args, **settings)


_PLAIN_START, _PLAIN_SUBMIT = threading.Thread.start, ThreadPoolExecutor.submit
_twins = Twins(
    _pairs,
    spared=("jointmdp", "numpy", "jax", "jaxlib", "scipy"),
    others=("numpy.random", "numpy.random._pickle", "jax.random"),
    attributes=(
        (threading.Thread, "start", _PLAIN_START, _start),
        (ThreadPoolExecutor, "submit", _PLAIN_SUBMIT, _submit),
    ),
)


def twins_installed() -> Twins:
    """Twins stand in modules as long as anybody is inside; who records much goes inside once."""
    return _twins


@contextmanager
def recorded(log: DrawLog | None = None) -> Iterator[DrawLog]:
    """Streams that are touched inside, by this thread, are written into `log`."""
    log = DrawLog() if log is None else log
    with _twins:
        token, watching = _present.set(log), watcher.set(log)
        try:
            yield log
        finally:
            unrecorded((_present.get() or log).finish)
            watcher.reset(watching)
            _present.reset(token)


def split(is_thorough: bool = False) -> DrawLog:
    """The log of the recording under way so far; what comes is written into a new one."""
    before = _present.get()
    assert before is not None, "nothing is recorded"
    unrecorded(before.finish)
    after = DrawLog(redraw=before.redraw, is_thorough=is_thorough)
    _present.set(after)
    watcher.set(after)
    return before


@contextmanager
def redrawn(redraw: Redraw) -> Iterator[DrawLog]:
    """Inside, the streams of the named groups draw other numbers, others for every salt; all others draw their own.

    Groups are called as `Stream.group` says: ``noise["service", k]`` is of the group "service", and a generator that
    is made in the 12th line of model.py is of the group "model.py:12", the second one made there "model.py:12 #2".
    """
    watching = watcher.get()
    with recorded(DrawLog(redraw=redraw)) as log:
        yield log
    if isinstance(watching, Sources):
        watching.add(log)


class Sources:
    """A watcher that lists the sources of noise that are met, with the seeds of each run's, where they have seeds."""

    def __init__(self) -> None:
        self.seeds: dict[str, list[list[str]]] = {}
        self.titles: dict[str, str] = {}

    def stream(self, noise: Noise, words: str, key: bytes, made: Callable[[bytes], Any]) -> Any:
        """The generator itself."""
        return made(key)

    def function(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """The function itself."""
        return run

    def used(self, noise: Noise, source: str) -> None:
        """A source of a noise; what starts and policies draw are sources of their own."""
        kind = (getattr(noise, "_parts", ()) or ("",))[0]
        name = {"start": START, "policy": POLICY}.get(kind, source)
        self.seeds.setdefault(name, [])
        self.titles[name] = name

    def add(self, log: DrawLog) -> None:
        """The streams of one run that were seeded in it."""
        found: dict[str, list[str]] = {}
        drawn = {stream.group for stream in log.drawn}
        for stream in log.streams:
            if stream.seed is not None and not stream.is_kept and stream.group in drawn:
                found.setdefault(stream.group, []).append(stream.seed)
                for name in stream.names:
                    self.titles.setdefault(name, _title(stream, name))
        for group, seeds in found.items():
            self.seeds.setdefault(group, []).append(seeds)


def _title(stream: Stream, name: str) -> str:
    """What the program calls a generator, and where it is made: ``arrivals (model.py:12)``."""
    if stream.kind in OF_PROGRAM:
        return f"{OF_PROGRAM[stream.kind]} ({name})"
    line, column = position(*stream.path[:2]) if stream.path else (0, 0)
    text = linecache.getline(stream.path[0].co_filename, line) if line else ""
    with suppress(SyntaxError, ValueError, IndexError, AttributeError):  # a line of another form, or no file
        (statement,) = ast.parse(text.strip()).body
        column -= len(text) - len(text.lstrip())
        targets, value = statement.targets[0], statement.value  # type: ignore[attr-defined]
        parts = list(zip(targets.elts, value.elts, strict=False)) if hasattr(targets, "elts") else [(targets, value)]
        called = [ast.unparse(target) for target, made in parts if made.col_offset <= column < made.end_col_offset]
        return f"{called[0]}{name[len(stream.group) :]} ({stream.group})"
    return name
